"""The noise of count trees, from what a release publishes: each level has its own law, no word serves two nodes."""

import numpy as np
import pytest
from reference.statistics import ALPHA, independent, laplace_cdf, uniform

import kasuri as ks
from kasuri.schema import Domain, Mesh
from kasuri.trees import order

EPSILON = 2.0


def dense_map():
    """A masked, odd-shaped map so populous that every node is kept: then what is drawn does not depend on the noise."""
    r, c = np.mgrid[0:90, 0:120]
    mask = (r + c < 30) | ((r - 60) ** 2 + (c - 70) ** 2 < 120)
    truth = 3000 + 40 * ((r * 7 + c * 13) % 50)
    truth[mask] = 0
    return Domain.of(Mesh("g", shape=(90, 120)), mask=mask), truth


def transforms(recipe, change, max_cells, seed):
    """Per level: node numbers and the probability transforms of y - count."""
    domain, truth = dense_map()
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("p", change, max_cells))
    out = ks.release(counts, recipe, epsilon="2", ledger=None, source=ks.seeded(seed))
    tree = order.morton(domain)
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(np.arange(domain.size))] = truth.ravel()
    rng = np.random.default_rng(seed)
    found = {}
    measured = out.measurements
    for level in np.unique(measured.level).tolist():
        at = measured.level == level
        sums = leaves.reshape(1 << level, -1).sum(axis=1)
        found[level] = (measured.prefix[at], measured.value[at] - sums[measured.prefix[at]], rng)
    return found


def pit(noise, scale, rng):
    low, high = laplace_cdf(noise - 1, scale), laplace_cdf(noise, scale)
    return low + rng.random(noise.size) * (high - low)


@pytest.mark.parametrize(("change", "max_cells"), [("add-remove", 1), ("replace", 1), ("add-remove", 3)])
@pytest.mark.parametrize(
    ("shares", "expected"), [("even16", None), ({0: "0.7", 2: "0.2", 4: "0.1"}, {14: 0.7, 10: 0.2, 6: 0.1})]
)
def test_measured_counts_have_the_law_of_their_level(shares, expected, change, max_cells):
    factor = max_cells * (1 if change == "add-remove" else 2)
    pits = {}
    for seed in range(2):
        for level, (_, noise, rng) in transforms(ks.refined_tree(shares), change, max_cells, seed).items():
            pits.setdefault(level, []).append((noise, rng))
    assert sorted(pits) == [2, 6, 10, 14] if expected is None else sorted(expected)
    for level, parts in pits.items():
        share = 1 / 4 if expected is None else expected[level]
        noise, rng = np.concatenate([part for part, _ in parts]), parts[0][1]
        if noise.size < 300:
            continue
        scale = factor / (share * EPSILON)
        assert uniform(pit(noise, scale, rng), bins=16) > ALPHA, level
        for wrong in (0.8, 1.25):
            if noise.size > 5000:
                assert uniform(pit(noise, scale * wrong, rng), bins=16) < ALPHA


def test_levels_and_blocks_do_not_share_noise():
    pairs = {"parent": ([], []), "next": ([], []), "block": ([], [])}
    for seed in range(3):
        found = transforms(ks.refined_tree("u4"), "add-remove", 1, seed)
        scale = len(found) / EPSILON
        u = {level: dict(zip(nodes.tolist(), pit(noise, scale, rng).tolist(), strict=True))
             for level, (nodes, noise, rng) in found.items()}  # fmt: skip
        for level, by_node in u.items():
            for node, value in by_node.items():
                for name, other in (("parent", u.get(level - 2, {}).get(node >> 2)), ("next", by_node.get(node + 1)),
                                    ("block", by_node.get(node ^ (1 << max(level - 3, 0))))):  # fmt: skip
                    if other is not None:
                        pairs[name][0].append(other)
                        pairs[name][1].append(value)
    for name, (a, b) in pairs.items():
        assert len(a) > 2000
        assert independent(np.array(a), np.array(b)) > ALPHA, name


@pytest.mark.parametrize(
    "recipe",
    [ks.bayes_tree("sparse"), ks.bayes_tree(), ks.bayes_tree(pilot=True)],
    ids=lambda recipe: recipe.parts()["shares"],
)
def test_posterior_means_do_not_move_the_total(recipe):
    """2000 people in a tenth of a map of 64 x 64 cells: the sum of posterior means was 5 to 10 % too high."""
    truth = np.zeros((64, 64), dtype=np.int64)
    truth[:20, :20] = 5
    counts = ks.Counts.from_dense(truth, Domain.of(Mesh("g", shape=(64, 64))), ks.Unit("p", "add-remove", 1))
    totals = [
        ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(seed), threads=1).total()
        for seed in range(120)
    ]
    assert abs(np.mean(totals) - truth.sum()) < 4 * np.std(totals) / np.sqrt(120) < 0.035 * truth.sum()


def test_total_is_unbiased_on_a_table_that_is_nearly_empty():
    """90 % empty: clamping cell by cell would add mass; the tree keeps the total within its noise."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random((128, 128)) < 0.1, rng.poisson(8, (128, 128)), 0)
    counts = ks.Counts.from_dense(truth, Domain.of(Mesh("g", shape=(128, 128))), ks.Unit("p", "add-remove", 1))
    totals = [
        ks.release(counts, ks.refined_tree(), epsilon="0.1", ledger=None, source=ks.seeded(seed)).total()
        for seed in range(60)
    ]
    assert abs(np.mean(totals) - truth.sum()) < 4 * np.std(totals) / np.sqrt(60) < 0.05 * truth.sum()


@pytest.mark.parametrize("change", ["add-remove", "replace"])
def test_a_pilot_and_the_levels_it_chose_have_their_own_noise(change):
    """The pilot's counts, and those of the levels whose shares it chose, have the law their published scale says."""
    domain, truth = dense_map()
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("p", change, 1))
    tree = order.morton(domain)
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(np.arange(domain.size))] = truth.ravel()
    pits: dict[int, list] = {}
    for seed in range(4):
        out = ks.release(counts, ks.bayes_tree(pilot=True), epsilon="2", ledger=None, source=ks.seeded(seed))
        rng = np.random.default_rng(seed)
        for level, scale in out.measurements.scale.items():
            at = out.measurements.level == level
            noise = out.measurements.value[at] - leaves.reshape(1 << level, -1).sum(axis=1)[out.measurements.prefix[at]]
            pits.setdefault(level, []).append(pit(noise, float(scale), rng))
            pits.setdefault(-1 - level, []).append(pit(noise, 0.7 * float(scale), rng))
    pilot = 8  # 90 x 120 cells: heights 0..7 of which 3 has at most 2^11 nodes
    assert pilot in pits and sum(part.size for part in pits[pilot]) > 500
    for level, parts in pits.items():
        found = np.concatenate(parts)
        if level >= 0 and found.size > 300:
            assert uniform(found, bins=16) > ALPHA, level
        elif level < 0 and found.size > 2000:
            assert uniform(found, bins=16) < ALPHA, level
