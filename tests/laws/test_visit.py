"""Measure and visit, and least squares on the visited tree, against slow twins."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import visit as slow

from kasuri._kernels.visit import FEW, combine_up, keep, project, share_out, water
from kasuri.errors import PrivacyError
from kasuri.noise.rng import Streams, seeded
from kasuri.noise.samplers import laplace_variance
from kasuri.recipes import auto, refined_tree
from kasuri.recipes.spending import Given, OfPrior, Preset
from kasuri.recipes.visit import Visit, measure_whole
from kasuri.refine.least_squares import least_squares
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.trees import order

MASK = np.zeros((5, 7), dtype=bool)
MASK[:3, :2] = True
TREES = [
    order.morton(Domain.of(Mesh("g", shape=(8, 8)))),
    order.morton(Domain.of(Mesh("g", shape=(5, 7)), mask=MASK)),
    order.morton(Domain.of(Mesh("g", shape=(4, 3)), Ordered("age", 5))),
    order.hierarchy(
        Domain.of(Nominal("w", tuple("abcdefg"), Tree.of({"p": ["a", "b", "c"], "q": ["d", "e"], "r": ["f", "g"]})))
    ),
    order.row_major(Domain.of(Ordered("x", 1))),
]


def table(tree, seed, mean):
    rng = np.random.default_rng(seed)
    keys = np.flatnonzero(tree.possible_leaves())
    values = rng.poisson(mean, keys.size)
    return keys[values > 0], values[values > 0]


def run(tree, cuts, seed, mean, threads=1):
    keys, values = table(tree, seed, mean)
    visit = Visit(tree, cuts, tuple(Fraction(3 + i) for i in range(len(cuts))))
    return visit, visit.run(keys, values, Streams(seeded(seed).release_key(), "test"), threads)


@given(which=st.integers(0, len(TREES) - 1), seed=st.integers(0, 10**6), mean=st.sampled_from([0.0, 0.5, 20.0]),
       every=st.booleans())  # fmt: skip
def test_the_visited_tree_is_what_dense_noise_would_give(which, seed, mean, every):
    """Noise on undrawn nodes is never read: filled in at random, the dense twin visits the same nodes."""
    tree = TREES[which]
    cuts = tree.stages[1:] if every or tree.depth == 0 else tree.stages[1:][-2:]
    cuts = cuts or (0,)
    _, out = run(tree, cuts, seed, mean)
    rng = np.random.default_rng(seed)
    possible = tree.possible_leaves()
    widths = [int(np.prod([digit.radix for digit in tree.digits[:cut]], dtype=object)) if cut else 1 for cut in cuts]
    good = [possible.reshape(width, -1).any(axis=1) for width in widths]
    y = [rng.normal(0, 50, width).tolist() for width in widths]
    for i, level in enumerate(out.levels):
        for node, value in zip(level.prefix.tolist(), level.y.tolist(), strict=True):
            y[i][node] = float(value)

    def children(level, node):
        fan = widths[level + 1] // widths[level]
        return [c for c in range(node * fan, (node + 1) * fan) if good[level + 1][c]]

    dense = slow.visit(y, children, [n for n in range(widths[0]) if good[0][n]])
    for i, level in enumerate(out.levels):
        drawn = dict(zip(level.prefix.tolist(), level.x.tolist(), strict=True))
        wanted = {node: x for (at, node), x in dense.items() if at == i}
        assert drawn.keys() == wanted.keys()
        assert np.allclose([drawn[n] for n in drawn], [wanted[n] for n in drawn], atol=1e-6)


@given(seed=st.integers(0, 10**6), mean=st.sampled_from([0.3, 5.0]))
def test_upward_pass_and_integers(seed, mean):
    tree = TREES[1]
    _, out = run(tree, tree.stages[1:], seed, mean)
    variances = [2.0 * float(s) ** 2 for s in out.scales]
    totals, shares = least_squares([(level.y, level.first) for level in out.levels], variances)
    assert totals is shares[-1]
    for level, above, below in zip(out.levels, shares, shares[1:], strict=False):
        for i in range(level.prefix.size):
            a, b = level.first[i], level.first[i + 1]
            if a < b:
                assert below[a:b].sum() == above[i]  # every node is the sum of its drawn children
            else:
                assert above[i] == 0  # nothing is left on a node that was not descended
    assert all((part >= 0).all() for part in shares)


def test_upward_pass_is_least_squares():
    """Bottom-up estimates of the top nodes equal the normal equations over everything drawn below them."""
    rng = np.random.default_rng(1)
    y = [rng.normal(0, 9, 1), rng.normal(0, 5, 3), rng.normal(0, 3, 7)]
    first = [np.array([0, 3]), np.array([0, 4, 4, 7]), np.zeros(8, dtype=np.int64)]
    variance = [4.0, 9.0, 2.0]
    z = v = np.zeros(0)
    for at in (2, 1, 0):
        below = (z, v)
        z, v = np.empty(y[at].size), np.empty(y[at].size)
        combine_up(y[at], variance[at], first[at], *below, z, v)
    nodes = [(0, 0), *((1, i) for i in range(3)), *((2, i) for i in range(7))]
    parent = {(1, i): (0, 0) for i in range(3)}
    parent |= {(2, j): (1, i) for i in range(3) for j in range(first[1][i], first[1][i + 1])}
    found = slow.least_squares(nodes, parent, {n: y[n[0]][n[1]] for n in nodes}, {n: variance[n[0]] for n in nodes})
    assert np.isclose(z[0], found[(0, 0)])


@given(z=st.lists(st.floats(-30, 60), min_size=1, max_size=6), total=st.integers(0, 90), seed=st.integers(0, 999))
def test_sharing_out_rounds_the_weighted_projection(z, total, seed):
    v = np.random.default_rng(seed).uniform(0.5, 8, len(z))
    out = np.zeros(len(z), dtype=np.int64)
    share_out(np.array(z), v, np.zeros(len(z), dtype=bool), np.array([0, len(z)]), np.array([total]), out)
    assert out.sum() == total and out.min() >= 0
    assert np.abs(out - slow.weighted_simplex(z, v, total)).max() < 1 + 1e-6


@pytest.mark.parametrize("preset", ["u4", "even16", "tilt16"])
@pytest.mark.parametrize("people", [200, 2000])
def test_nobody_is_lost_below_a_pilot(preset, people):
    """Above a pilot every node is kept, also one whose descendants were all closed: it must get no people."""
    domain = Domain.of(Mesh("g", shape=(64, 64)))
    plan = auto((1,)).on(domain, Unit("p", "add-remove", 1), "0.1")
    tree, (depth, share) = plan.tree, plan.offer.pilot
    rng = np.random.default_rng(people)
    keys, values = np.unique(rng.integers(0, tree.leaves, people), return_counts=True)
    for seed in range(12):
        streams = Streams(seeded(seed).release_key(), preset)
        known = measure_whole(tree, depth, plan.scale / share, keys, values, streams)
        found = plan.offer.visit(preset).run(keys, values, streams, 1, known)
        variances = [laplace_variance(scale) for scale in found.scales]
        _, shares = least_squares([(level.y, level.first) for level in found.levels], variances)
        assert len({int(part.sum()) for part in shares}) == 1
        assert plan.offer.join(preset).refine(found, tree, domain)[1].sum() == shares[0].sum()


def test_closed_nodes_take_nothing_and_cost_nothing():
    out = np.zeros(3, dtype=np.int64)
    first, total = np.array([0, 3]), np.array([10**18])
    share_out(np.full(3, 5.0), np.ones(3), np.ones(3, dtype=bool), first, total, out)
    assert not out.any()
    share_out(np.full(3, 5.0), np.ones(3), np.array([True, False, True]), first, total, out)
    assert out.tolist() == [0, 10**18, 0]


def test_threads_and_blocks_change_nothing():
    tree = order.morton(Domain.of(Mesh("g", shape=(256, 256))))
    cuts = tree.stages[2::2]
    one, two = (run(tree, cuts, 3, 0.4, threads)[1] for threads in (1, 2))
    for a, b in zip(one.levels, two.levels, strict=True):
        assert np.array_equal(a.prefix, b.prefix) and np.array_equal(a.y, b.y) and np.array_equal(a.first, b.first)


def test_rounding_favours_no_child():
    """Equal shares of 16 siblings: the whole numbers of any run of them stay within 1 of its share."""
    for total in range(40):
        out = np.zeros(16, dtype=np.int64)
        share_out(np.full(16, 2.0), np.ones(16), np.zeros(16, dtype=bool), np.array([0, 16]), np.array([total]), out)
        assert out.sum() == total
        sums = np.concatenate(([0], np.cumsum(out - total / 16)))
        assert np.abs(sums[:, None] - sums[None, :]).max() <= 1 + 1e-9


@pytest.mark.parametrize(
    "shares",
    [Given(((0, Fraction(2)),)), Given(((0, Fraction(1, 2)), (1, Fraction(9, 10)))), Given(((0, Fraction(1, 2)),)),
     Given(((0, Fraction(-1)), (1, Fraction(2)))),
     Given(((0, Fraction(1, 2)), (0, Fraction(1, 2)), (1, Fraction(1, 2)))), Given(((0, 1.0),)), Preset("other"),
     OfPrior()],
    ids=str,
)  # fmt: skip
def test_shares_that_do_not_sum_to_one_make_no_claim(shares):
    """A Mechanism built around its recipe must not claim an epsilon its levels do not add up to."""
    forged = replace(refined_tree(), shares=shares)
    with pytest.raises(PrivacyError):
        forged.guarantee(Domain.of(Mesh("g", shape=(8, 8))), Unit("person", "add-remove", 1), "0.1")


@pytest.mark.parametrize("size", [1, 2, 5, FEW - 1, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize("tied", [False, True])
def test_groups_sorted_in_place_are_those_of_a_sort(size, tied):
    """To the last bit: siblings are ranked pair by pair up to FEW, and by a sort above."""
    rng = np.random.default_rng(size)
    first = np.arange(201) * size
    z, v = rng.normal(3, 10, 200 * size), rng.gamma(1, 10, 200 * size) + 1e-3
    if tied:
        z, v = np.rint(z / 8), np.full(v.size, 3.0)
    y, totals = np.rint(z).astype(np.int64), np.maximum(np.rint(rng.normal(5 * size, 10 * size, 200)), 0.0)
    open_all = np.zeros(z.size, dtype=bool)
    x, whole, level, t = (np.zeros(z.size), np.zeros(z.size, np.int64), np.zeros(z.size), np.empty(200))
    project(z, v, first, totals, x)
    share_out(z, v, open_all, first, totals.astype(np.int64), whole)
    water(y, first, totals, level, t)
    for g, total in enumerate(totals.tolist()):
        own = slice(first[g], first[g + 1])
        if total == 0:
            assert not x[own].any() and not whole[own].any() and not level[own].any() and t[g] == np.inf
            continue
        ranked = np.argsort(-z[own] / v[own], kind="stable")
        theta = ((np.cumsum(z[own][ranked]) - total) / np.cumsum(v[own][ranked])).max()
        expected = np.maximum(z[own] - theta * v[own], 0.0)
        assert np.array_equal(x[own], expected)
        goals = np.minimum(np.floor(np.cumsum(expected) + 0.5), total)
        assert whole[own].sum() == total and np.array_equal(np.cumsum(whole[own])[:-1], goals[:-1])
        assert t[g] == ((np.cumsum(np.sort(y[own])[::-1]) - total) / np.arange(1, size + 1)).max()
        assert np.array_equal(level[own], np.maximum(y[own] - t[g], 0.0))
    assert np.array_equal(keep(y, first, t, 1.5), np.flatnonzero(y > np.repeat(t, size) - 1.5))
    assert np.array_equal(keep(y, first, t, np.inf), np.arange(y.size))
