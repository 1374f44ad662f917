"""The shift by which parts join a visited tree, against dense least squares; expectations; rounding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kasuri.refine import expect, fuse
from kasuri.refine.least_squares import combine
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.trees.partition import Partition, axis_labels, axis_level
from kasuri.trees.visited import Level, Visited
from kasuri.trees.weave import interleaved
from tests.reference import fuse as reference

TREE = Tree.of({"e": ["a", "b", "c"], "w": ["d", "f"]})
TOWNS = tuple("abcdf")
DOMAINS = {
    "od": Domain.of(Nominal("o", TOWNS, TREE), Nominal("d", TOWNS, TREE)),
    "mesh": Domain.of(Mesh("g", shape=(3, 4)), Ordered("age", 3)),
    "masked": Domain.of(Mesh("g", shape=(4, 4)), mask={"g": np.eye(4, dtype=bool)}),
}


def some_partitions(name, domain, tree, rng):
    if name == "od":
        return [
            Partition("in", (axis_level(tree, domain, "d"),)),
            Partition("out", (axis_level(tree, domain, "o", 1),)),
        ]
    cells = int(np.prod(domain.axes[0].sizes))
    regions = axis_labels(tree, domain, "g", rng.integers(-1, 3, cells), 3)
    if name == "masked":
        return [Partition("regions", (regions,))]
    ages = axis_level(tree, domain, "age")
    return [Partition("age", (ages,)), Partition("regions x age", (regions, ages))]


def some_tree(tree, rng, high=100.0):
    """A visited tree with undescended nodes: random cuts among the stages, random nodes kept, random numbers."""
    cuts = tuple(sorted({*rng.choice(tree.stages[1:], rng.integers(1, len(tree.stages))).tolist(), tree.depth}))
    levels, parents, above = [], np.zeros(1, dtype=np.int64), 0
    kept = np.zeros(0, dtype=np.int64)
    for cut in cuts:
        nodes, first = tree.children(parents, above, cut)
        if levels:
            sizes = np.zeros(levels[-1].y.size + 1, dtype=np.int64)
            sizes[kept + 1] = np.diff(first)
            levels[-1] = Level(levels[-1].prefix, levels[-1].y, levels[-1].x, np.cumsum(sizes))
        y = np.rint(rng.normal(high * tree.stride(cut), 10.0, nodes.size)).astype(np.int64)
        levels.append(Level(nodes, y, y.astype(float), np.zeros(nodes.size + 1, dtype=np.int64)))
        kept = np.flatnonzero(rng.random(nodes.size) < 0.7)
        parents, above = nodes[kept], cut
    scales = tuple(Fraction(int(s), 4) for s in rng.integers(2, 20, len(cuts)))
    return Visited(cuts, scales, (0.0,) * len(cuts), tuple(levels))


def joined(visited, tree, partitions, y, s2):
    drawn = fuse.Drawn.of(visited)
    incidence = fuse.Incidence.of(partitions, drawn, visited, tree)
    own = [2 * float(scale) ** 2 for scale in visited.scales]
    z, v = combine([(level.y, level.first) for level in visited.levels], own)
    total, v0 = float(z[0].sum()), float(v[0].sum())
    z, v = np.concatenate(z), np.concatenate(v)
    return drawn, incidence, z, v, total, v0, own, fuse.fuse(
        drawn, incidence, z, v, total, v0, y, s2, calibrate=False
    )  # fmt: skip


@pytest.mark.parametrize("name", DOMAINS)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_shift_is_dense_least_squares(name, seed):
    rng = np.random.default_rng(seed)
    domain = DOMAINS[name]
    tree = interleaved(domain)
    partitions = some_partitions(name, domain, tree, rng)
    visited = some_tree(tree, rng)
    groups = sum(partition.groups for partition in partitions)
    s2 = rng.uniform(1.0, 200.0, groups)
    units = reference.units_of(visited.levels)
    B = np.concatenate([reference.fractions(p, tree, visited, units, tree.possible_leaves()) for p in partitions])
    strides = np.array([tree.stride(visited.cuts[at]) for at, _ in units])
    y = rng.normal(B @ (100.0 * strides), np.sqrt(s2))
    drawn, incidence, _, v, _, v0, own, found = joined(visited, tree, partitions, y, s2)
    weights = rng.normal(size=groups)
    at_units = incidence.of_units(weights, v.size)[drawn.units]
    np.testing.assert_allclose(at_units, B.T @ weights, atol=1e-12)
    tree_rows = reference.below(visited.levels, units)
    numbers = np.concatenate([level.y for level in visited.levels]).astype(float)
    variances = np.concatenate([np.full(level.y.size, s) for level, s in zip(visited.levels, own, strict=True)])
    _, covariance = reference.least_squares(tree_rows, numbers, variances)
    potentials = np.zeros(v.size)
    potentials[drawn.units] = rng.normal(size=len(units))
    shared = drawn.covariance(v, v0, potentials)[drawn.units]
    np.testing.assert_allclose(shared, covariance @ potentials[drawn.units], rtol=1e-9, atol=1e-9)
    x, _ = reference.least_squares(np.concatenate((tree_rows, B)), np.append(numbers, y), np.append(variances, s2))
    assert (x > 0).all()  # no constraint binds, so both are linear
    np.testing.assert_allclose(found.x[drawn.units], x, rtol=1e-4, atol=1e-2 * np.sqrt(s2.min()))


def test_damped_steps_end_where_nothing_is_left_to_move():
    """Large cells of a mostly empty table, told by margins: plain rounds swing to and fro."""
    rng = np.random.default_rng(3)
    domain = Domain.of(Ordered("a", 16), Ordered("b", 24))
    tree = interleaved(domain)
    truth = rng.poisson(0.3, (16, 24))
    truth[:11, 9] = 4000
    keys, _ = tree.children(np.zeros(1, dtype=np.int64), 0, tree.depth)
    y = truth.ravel()[tree.cells(keys)] + np.rint(rng.laplace(0, 40, keys.size)).astype(np.int64)
    cells = Level(keys, y, y.astype(float), np.zeros(keys.size + 1, dtype=np.int64))
    visited = Visited((tree.depth,), (Fraction(40),), (0.0,), (cells,))
    parts = [Partition(f"{axis}@{up}", (axis_level(tree, domain, axis, up),)) for axis in "ab" for up in (4, 3, 2, 1)]
    drawn = fuse.Drawn.of(visited)
    incidence = fuse.Incidence.of(parts, drawn, visited, tree)
    sums = incidence.of_groups(truth.ravel()[tree.cells(keys)].astype(float))
    s2 = np.full(sums.size, 4.0)
    v = np.where(y > 400, 4.0e6, rng.uniform(1e-2, 1e2, y.size))
    args = (drawn, incidence, np.maximum(y, 0.1) * rng.uniform(0.2, 2, y.size), v, float(truth.sum()), 0.0, sums, s2)
    left = []
    for damped in (False, True):
        found = fuse.fuse(*args, damped=damped)
        residual = sums - incidence.of_groups(found.x) - s2 * found.potentials
        left.append(np.sqrt(np.mean(residual**2 / s2)))
    assert left[1] < fuse.NEAR < left[0]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_part_that_is_a_cut_is_a_larger_share_on_that_cut(seed):
    rng = np.random.default_rng(seed)
    domain = DOMAINS["od"]
    tree = interleaved(domain)
    first, last = tree.stages[1], tree.depth
    top, _ = tree.children(np.zeros(1, dtype=np.int64), 0, first)
    leaves, kids = tree.children(top, first, last)
    y = np.rint(rng.normal(500, 20, top.size)).astype(np.int64)
    part = rng.normal(500, 20, top.size)
    own = np.rint(rng.normal(500 / 9, 5, leaves.size)).astype(np.int64)
    s2 = 37.0
    pairs = Partition("pairs", (axis_level(tree, domain, "o", 1), axis_level(tree, domain, "d", 1)))
    closed = np.zeros(leaves.size + 1, dtype=np.int64)

    def tree_of(numbers, scale):
        levels = Level(top, numbers, numbers.astype(float), kids), Level(leaves, own, own.astype(float), closed)
        return Visited((first, last), (scale, Fraction(3)), (0.0, 0.0), levels)

    *_, found = joined(tree_of(y, Fraction(5)), tree, [pairs], part, np.full(top.size, s2))
    both = (y / 50 + part / s2) / (1 / 50 + 1 / s2)
    z, v = combine([(both, kids), (own, closed)], [1 / (1 / 50 + 1 / s2), 18.0])
    drawn = fuse.Drawn.of(tree_of(y, Fraction(5)))
    flat = np.concatenate(v)
    expected = np.empty(flat.size)
    from kasuri._kernels.fuse import descend

    descend(drawn.start, drawn.end, drawn.top, np.concatenate(z), flat, np.zeros(flat.size), z[0].sum(), expected)
    np.testing.assert_allclose(found.x, expected, rtol=1e-4, atol=1e-2)


def test_permuted_labels_permute_nothing_else():
    rng = np.random.default_rng(5)
    domain = DOMAINS["mesh"]
    tree = interleaved(domain)
    labels = rng.integers(-1, 4, 12)
    order = rng.permutation(4)
    visited = some_tree(tree, rng, 3.0)
    y = rng.normal(9.0, 5.0, 4)
    found = []
    for names, numbers in ((labels, y), (np.where(labels >= 0, order[labels], -1), y[np.argsort(order)])):
        part = Partition("regions", (axis_labels(tree, domain, "g", names, 4),))
        found.append(joined(visited, tree, [part], numbers, np.full(4, 8.0))[-1].x)
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)


def test_rounding_keeps_blocks_runs_and_parts():
    from kasuri._kernels.fuse import round_cells

    rng = np.random.default_rng(3)
    blocks, width = 400, 16
    real = rng.gamma(0.3, 1.0, blocks * width)
    first = np.arange(blocks + 1) * width
    totals = np.rint(np.add.reduceat(real, first[:-1])).astype(np.int64)
    labels = np.tile(np.arange(width), blocks)[None, :]
    out = np.zeros(real.size, dtype=np.int64)
    deficit = np.zeros(width)
    round_cells(real, np.ones(real.size), real, first, totals, labels, deficit, 16, out)
    plain = np.zeros(real.size, dtype=np.int64)
    round_cells(real, np.ones(real.size), real, first, totals, labels[:0], np.zeros(width), 16, plain)
    for integers in (out, plain):
        assert (integers >= 0).all()
        np.testing.assert_array_equal(np.add.reduceat(integers, first[:-1]), totals)
    gap = np.bincount(labels[0], real - out)
    np.testing.assert_allclose(gap, deficit, atol=1e-9)
    assert np.abs(gap).max() < 3 < 0.2 * np.abs(np.bincount(labels[0], real - plain)).max()


def test_expectation_of_a_product_table_is_the_product():
    rng = np.random.default_rng(1)
    domain = DOMAINS["od"]
    tree = interleaved(domain)
    keys = tree.keys(np.arange(25))
    keys.sort()
    rows, cols = rng.uniform(1, 50, 5), rng.uniform(1, 50, 5)
    x = np.outer(rows, cols).ravel()[tree.cells(keys)]
    partitions = [Partition(name, (axis_level(tree, domain, name),)) for name in ("o", "d")]
    groups, count = expect.labels(partitions, tree, keys)
    blocks = np.searchsorted(keys // tree.stride(tree.stages[1]), np.arange(5))
    totals = np.add.reduceat(x, blocks[:-1])
    found = expect.expectation(x, blocks, totals, groups, count)
    out = 1 - x / np.repeat(totals, np.diff(blocks))
    for own in groups:
        out *= 1 - x / np.bincount(own, x, count)[own]
    np.testing.assert_allclose(found, x * out, rtol=5e-3)
