"""The law of whole releases, from outputs alone: every node of a large tree is one sample of a known law.

Given its refined sum S (the sum of the released leaves below it) and its true difference D, the refined difference of
a measured node has the law of tests/reference. Its probability transform is uniform, independent between parents and
children, neighbours, and blocks. Each planted fault of tests/falsify is caught by one of these tests by name.
"""

from fractions import Fraction

import numpy as np
import pytest
from reference.statistics import ALPHA, independent, laplace_cdf, split_pit, uniform

import kasuri as ks
from kasuri.schema import Domain, Mesh, Ordered
from kasuri.trees import order


def odd_map(rows=150, cols=210):
    """A masked, odd-shaped map with empty, small and large cells; the coast and two lakes are impossible."""
    rng = np.random.default_rng(5)
    r, c = np.mgrid[0:rows, 0:cols]
    mask = (r + c < 40) | ((r - 90) ** 2 + (c - 120) ** 2 < 300) | (c > cols - 9)
    intensity = 60 * np.exp(-((r - 60) ** 2 + (c - 60) ** 2) / 900) + 9 * np.exp(
        -((r - 120) ** 2 + (c - 170) ** 2) / 200
    )
    truth = rng.poisson(intensity)
    truth[mask] = 0
    return Domain.of(Mesh("g", shape=(rows, cols)), mask=mask), truth


MAPS = {"odd": odd_map()}


def release(domain, truth, seed, change="add-remove", epsilon="2", descent="auto", max_cells=1):
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("person", change, max_cells))
    recipe = ks.haar_topdown(descent=descent)
    return ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed))


def node_table(domain, truth, released, dtype=np.int64):
    """Per level from the top: (measured, true D, refined S, refined D+) of every node, computed from leaves alone."""
    tree = order.morton(domain)
    possible = tree.possible_leaves()
    true, out = np.zeros(tree.leaves, dtype), np.zeros(tree.leaves, dtype)
    cells = np.arange(domain.size)
    keys = tree.keys(cells)
    true[keys], out[keys] = truth.ravel(), released.to_dense().ravel()
    levels = []
    while true.size > 1:
        measured = possible[0::2] & possible[1::2]
        levels.append((measured, true[0::2] - true[1::2], out[0::2] + out[1::2], out[0::2] - out[1::2]))
        true, out, possible = true[0::2] + true[1::2], out[0::2] + out[1::2], possible[0::2] | possible[1::2]
    return levels[::-1]


def expected_scale(change, epsilon="2", max_cells=1):
    """From the description alone: the most measured nodes on a possible path, or on the two paths of a pair."""
    tree = order.morton(MAPS["odd"][0])
    path = np.where(tree.possible_leaves(), 0, -1)
    pair = 0
    while path.size > 1:
        left, right = path[0::2], path[1::2]
        measured = (left >= 0) & (right >= 0)
        pair = max(pair, int((2 + left + right)[measured].max(initial=0)))
        path = np.maximum(left, right) + measured
    cost = 1 + int(path[0]) if change == "add-remove" else max(1 + int(path[0]), pair)
    return max_cells * cost / float(Fraction(epsilon))


def transforms(domain, truth, released, scale, seed):
    """Per level: (node numbers, their probability transforms)."""
    rng = np.random.default_rng(seed)
    out = []
    for measured, D, S, d in node_table(domain, truth, released):
        at = np.flatnonzero(measured & (S > 0))
        out.append((at, split_pit(d[at], D[at], S[at], scale, rng)))
    return out


@pytest.mark.parametrize("descent", ["plain", "jump", "dense"])
@pytest.mark.parametrize(("change", "max_cells"), [("add-remove", 1), ("replace", 1), ("add-remove", 3)])
def test_split_law(descent, change, max_cells):
    """Scale, parity coin, clamp and unit: every measured node has its law, and a wrong scale is noticed."""
    domain, truth = MAPS["odd"]
    scale = expected_scale(change, max_cells=max_cells)
    pits, wrong = [], {0.8: [], 1.25: []}
    for seed in range(3):
        released = release(domain, truth, seed, change, descent=descent, max_cells=max_cells)
        pits += [u for _, u in transforms(domain, truth, released, scale, seed)]
        for factor, found in wrong.items():
            found += [u for _, u in transforms(domain, truth, released, scale * factor, seed)]
    assert uniform(np.concatenate(pits)) > ALPHA
    for factor, found in wrong.items():
        assert uniform(np.concatenate(found)) < ALPHA, factor


@pytest.mark.parametrize("change", ["add-remove", "replace"])
def test_the_stated_scale_is_the_one_described(change):
    domain, truth = MAPS["odd"]
    assert ks.haar_topdown().scale(domain, ks.Unit("p", change, 1), "2") == expected_scale(change)
    assert release(domain, truth, 0, change).recipe["scale"] == str(expected_scale(change)).removesuffix(".0")


def test_float_haar_law_level_by_level():
    """The paper's floating-point form has the same law: eq. (25), not eq. (38)."""
    domain, truth = MAPS["odd"]
    scale = expected_scale("add-remove")
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("p", "add-remove", 1))
    recipe = ks.haar_topdown(transform="haar")
    rng = np.random.default_rng(2)

    def cdf(x):
        return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale))

    found = []
    for seed in range(4):
        released = ks.release(counts, recipe, epsilon="2", ledger=None, source=ks.seeded(seed))
        for measured, D, S, d in node_table(domain, truth, released, float)[2:]:
            at = measured & (S > 1e-9)
            D, S, d = D[at], S[at], d[at]
            low = np.where(d <= -S * (1 - 1e-9), 0.0, cdf(np.minimum(d, S) - D))
            high = np.where(d >= S * (1 - 1e-9), 1.0, np.where(low == 0.0, cdf(-S - D), low))
            found.append(low + rng.random(d.size) * (high - low))
    assert uniform(np.concatenate(found)) > ALPHA


def test_blocks_do_not_share_a_stream():
    """A flat table is walked alike in every block: equal places of two blocks must differ all the same."""
    domain = Domain.of(Mesh("g", shape=(2048, 1200)))  # 22 levels: four blocks
    truth = np.full((2048, 1200), 400)
    released = release(domain, truth, 1)
    scale = float(Fraction(released.recipe["scale"]))
    for level, (at, u) in enumerate(transforms(domain, truth, released, scale, 1)):
        if level < 6:
            continue
        by_node = np.full(1 << level, np.nan)
        by_node[at] = u
        for blocks in (2, 4):
            parts = by_node.reshape(blocks, -1)
            for other in range(1, blocks):
                both = ~np.isnan(parts[0]) & ~np.isnan(parts[other])
                if both.sum() > 500:
                    assert independent(parts[0][both], parts[other][both], bins=4) > ALPHA, (level, blocks)


def test_split_law_level_by_level():
    """Each level by itself: eq. (38) as printed halves the noise of all levels but the top ones."""
    domain, truth = MAPS["odd"]
    scale = expected_scale("add-remove")
    by_level = {}
    for seed in range(60):
        released = release(domain, truth, seed)
        for level, (_, u) in enumerate(transforms(domain, truth, released, scale, seed)):
            by_level.setdefault(level, []).append(u)
    for level, found in by_level.items():
        u = np.concatenate(found)
        if u.size > 200:
            assert uniform(u, bins=16) > ALPHA, level
    assert sum(np.concatenate(found).size > 200 for found in by_level.values()) >= 12


def test_total_law():
    """The released total is max(0, total + noise) of the same scale."""
    domain, truth = MAPS["odd"]
    scale = expected_scale("add-remove")
    rng = np.random.default_rng(0)
    noise = np.array([release(domain, truth, seed).total() - truth.sum() for seed in range(400)])
    u = laplace_cdf(noise - 1, scale) + rng.random(noise.size) * (
        laplace_cdf(noise, scale) - laplace_cdf(noise - 1, scale)
    )
    assert uniform(u, bins=16) > ALPHA
    wide = laplace_cdf(noise, scale * 2)
    assert uniform(wide, bins=16) < ALPHA


@pytest.mark.parametrize("descent", ["plain", "dense"])
def test_no_noise_word_is_used_twice(descent):
    """Transforms of parent and child, of neighbours, and of the same place in two blocks are independent."""
    domain, truth = MAPS["odd"]
    scale = expected_scale("add-remove")
    pairs = {"parent": ([], []), "neighbour": ([], []), "block": ([], [])}
    for seed in range(6):
        released = release(domain, truth, seed, descent=descent)
        levels = transforms(domain, truth, released, scale, seed)
        for level, (at, u) in enumerate(levels):
            by_node = dict(zip(at.tolist(), u.tolist(), strict=True))
            below = (
                dict(zip(levels[level + 1][0].tolist(), levels[level + 1][1].tolist(), strict=True))
                if level < 15
                else {}
            )
            for node, value in by_node.items():
                for child in (2 * node, 2 * node + 1):
                    if child in below:
                        pairs["parent"][0].append(value)
                        pairs["parent"][1].append(below[child])
                if node + 1 in by_node:
                    pairs["neighbour"][0].append(value)
                    pairs["neighbour"][1].append(by_node[node + 1])
                far = node ^ (1 << max(level - 3, 0))
                if far > node and far in by_node:
                    pairs["block"][0].append(value)
                    pairs["block"][1].append(by_node[far])
    for name, (u, v) in pairs.items():
        assert len(u) > 2000
        assert independent(np.array(u), np.array(v)) > ALPHA, name
        assert independent(np.array(u), np.array(u)) < ALPHA  # the test has power


@pytest.mark.parametrize("descent", ["plain", "dense"])
def test_purposes_do_not_share_a_stream(descent):
    """Two cells, many releases: the joint law of (total, difference) is exact, so coins do not depend on noise."""
    domain = Domain.of(Ordered("x", 2))
    counts = ks.Counts.from_dense([6, 3], domain, ks.Unit("p", "add-remove", 1))
    recipe = ks.haar_topdown("1d", descent=descent)
    scale, runs = 2.0, 6_000
    joint = np.array(
        [
            ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(seed)).to_dense()
            for seed in range(runs)
        ]
    )
    total, d = joint.sum(axis=1), joint[:, 0] - joint[:, 1]
    keep = total > 0
    total, d = total[keep], d[keep]
    rng = np.random.default_rng(1)
    n = total - 9
    u = laplace_cdf(n - 1, scale) + rng.random(n.size) * (laplace_cdf(n, scale) - laplace_cdf(n - 1, scale))
    v = split_pit(d, np.full(d.size, 3), total, scale, rng)
    kept = u > laplace_cdf(np.array([-9]), scale)[0]
    assert independent(u[kept], v[kept]) > ALPHA
    # by the sign of the root noise: a coin that repeats it would shift the difference one way
    for sign in (n > 0, n < 0):
        assert uniform(v[sign], bins=24) > ALPHA


def test_impossible_cells_are_exactly_zero():
    domain, truth = MAPS["odd"]
    masked = ~domain.possible_dense()
    recipes = [ks.geometric(), ks.laplace(), ks.privelet("1d"), ks.privelet("2d"), ks.privelet("morton"),
               ks.haar_topdown(), ks.haar_topdown(descent="jump"), ks.haar_topdown(descent="dense"),
               ks.haar_topdown(transform="haar"), ks.haar_topdown(transform="nominal")]  # fmt: skip
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("p", "add-remove", 1))
    for recipe in recipes:
        for seed in range(3):
            out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(seed))
            assert (out.cells < domain.size).all(), recipe
            assert not masked.ravel()[out.cells].any(), recipe
