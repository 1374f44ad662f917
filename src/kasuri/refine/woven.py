"""Empirical Bayes on a visited tree with parts: `woven_tree`, and `bayes_tree` with expectations, after measurement.

As `bayes.estimate`, with two additions: numbers of measured partitions shift the tree's estimates (`fuse`), and the
second pass over the cells asks what their sums imply (`expect`). Pure post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.refine import after, bayes, expect
from kasuri.refine.fuse import Drawn, Fused, Incidence, dot, fuse, solve
from kasuri.refine.least_squares import whole_total
from kasuri.schema import Domain
from kasuri.trees.order import Order
from kasuri.trees.partition import Partition
from kasuri.trees.visited import LEAST_SCALE, Visited

TURNS = 16
"""Offsets that the rounding of a block chooses from."""


EACH = 40
"""Views of at most so many sums have the variance of each of them computed."""


@dataclass(frozen=True, eq=False)
class Part:
    """A partition whose groups were all measured: y of noise variance `variance` each."""

    partition: Partition
    y: Int
    variance: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """A visited tree after empirical Bayes and the join with its parts; `cells`: variances of the cells before the join
    raised them, `total`: that of all cells together."""

    visited: Visited
    tree: Order
    groups: list[Int]
    found: Fused
    cells: Float
    total: float
    joined: _Joined

    @property
    def sizes(self) -> Int:
        return np.cumsum([level.y.size for level in self.visited.levels])[:-1]

    def spreads(self) -> list[after.Posterior]:
        """Posterior variances of every drawn node, what parts add to them left out."""
        z, v, x = (np.split(numbers, self.sizes) for numbers in (self.found.z, self.found.v, self.found.x))
        levels = [(level.prefix, level.first) for level in self.visited.levels]
        return after.posteriors(levels, z, [*v[:-1], self.cells], x, self.total)

    def view_variance(self, view: Partition) -> float:
        """The mean variance of a view's sums by tree and parts together: C - C B' K^-1 B C, its trace by unit vectors,
        or by some vectors of signs where there are many sums."""
        drawn, joined = self.joined.drawn, self.joined
        own = Incidence.of([view], drawn, self.visited, self.tree)
        v = np.where(self.found.x > 0, self.found.v, after.second_moments(self.found.z, self.found.v, self.found.x))

        def system(numbers: Float) -> Float:
            shared = drawn.covariance(v, self.total, joined.incidence.of_units(numbers, v.size))
            return joined.incidence.of_groups(shared) + joined.s2 * numbers

        few = own.groups <= EACH
        tests = np.eye(own.groups) if few else np.array(own.signs)
        found = 0.0
        for test in tests:
            weights = own.of_units(test, v.size)
            shared = drawn.covariance(v, self.total, weights)
            found += dot(weights, shared)
            if joined.y.size:
                across = joined.incidence.of_groups(shared)
                inverse = 1 / (joined.incidence.of_groups(v, square=True) + joined.s2)
                found -= dot(across, solve(system, across, inverse))
        return max(found / (1 if few else len(tests)), 0.0) / own.groups


def estimate(
    visited: Visited,
    tree: Order,
    domain: Domain,
    parts: Sequence[Part],
    around: Sequence[Partition],
    few: bool = False,
    damped: bool = False,
) -> tuple[Int, Int]:
    """Keys and integer values of the leaves: non-negative, every drawn node the sum of its drawn children. `around`:
    the partitions whose sums make a cell's expectation; none: its neighbours do. `few`, `damped`: see `bayes.upward`
    and `fuse`."""
    fitted = fit(visited, tree, domain, parts, around, few, damped)
    return _integers(fitted.found, visited, tree, fitted.groups, fitted.sizes, fitted.joined)


def fit(
    visited: Visited,
    tree: Order,
    domain: Domain,
    parts: Sequence[Part],
    around: Sequence[Partition],
    few: bool = False,
    damped: bool = False,
) -> Fitted:
    """What `estimate` rounds."""
    levels = visited.levels
    scales = [float(max(scale, LEAST_SCALE)) for scale in visited.scales]
    scale, keys = scales[-1], levels[-1].prefix
    groups = [np.array([0, levels[0].y.size], dtype=np.int64), *(level.first for level in levels[:-1])]
    dropped = [
        bayes.dropped_posteriors(level, part, own)
        for level, part, own in zip(levels[:-1], groups, scales, strict=False)
    ]
    place = bayes.Neighbours.of(tree.cells(keys), domain)
    u = levels[-1].y / scale
    drawn = Drawn.of(visited)
    total, spread = _total(visited, scales, parts)
    joined = _Joined.of(parts, drawn, visited, tree, total, damped)
    labels, count = expect.labels(around, tree, keys)
    sizes = np.cumsum([level.y.size for level in levels])[:-1]
    values: Float = u
    found, variance = None, u
    for turn in range(2):
        near, far = place.smooth(values) if place is not None else (
            bayes.sibling_features(values, groups[-1]), np.zeros(u.size))  # fmt: skip
        if turn and around and found is not None:
            x = np.split(found.x, sizes)
            above = x[-2] if len(levels) > 1 else np.array([found.total])
            e = expect.expectation(x[-1], groups[-1], above, labels, count) / scale
            mean, variance = expect.posteriors(u, e, near, scale)
        else:
            mean, variance = bayes.cell_posteriors(u, near, far)
        z, v = bayes.upward(visited, groups, scales, dropped, mean * scale, variance * scale**2, few)
        found = joined.shift(np.concatenate(z), np.concatenate(v))
        values = found.x[drawn.cells :] / scale
    assert found is not None
    return Fitted(visited, tree, groups, found, variance * scale**2, spread, joined)


def _total(visited: Visited, scales: list[float], parts: Sequence[Part]) -> tuple[float, float]:
    """The total and its variance by least squares over all numbers that noise did not select: levels drawn whole, and
    parts that hold every cell. It is fixed before the join, which sees constraints and priors and would bend it."""
    top, weight = bayes.looks(visited.levels, scales, visited.slacks)
    for part in parts:
        if part.partition.whole:
            own = 2 / (part.y.size * part.variance)
            top, weight = top + own * part.y.sum(dtype=np.float64), weight + own
    return max(top / weight, 0.0), 2 / weight


@dataclass(frozen=True, eq=False)
class _Joined:
    """A drawn tree with its parts."""

    drawn: Drawn
    incidence: Incidence
    labels: Int
    y: Float
    s2: Float
    total: float
    damped: bool

    @classmethod
    def of(
        cls, parts: Sequence[Part], drawn: Drawn, visited: Visited, tree: Order, total: float, damped: bool
    ) -> _Joined:
        incidence = Incidence.of([part.partition for part in parts], drawn, visited, tree)
        labels, _ = expect.labels([part.partition for part in parts], tree, visited.levels[-1].prefix)
        y = np.concatenate([np.zeros(0), *(part.y for part in parts)])
        s2 = np.concatenate([np.zeros(0), *(np.full(part.y.size, part.variance) for part in parts)])
        return cls(drawn, incidence, labels, y, s2, total, damped)

    def shift(self, z: Float, v: Float) -> Fused:
        from kasuri._kernels.fuse import descend

        if self.y.size:
            return fuse(self.drawn, self.incidence, z, v, self.total, 0.0, self.y, self.s2, damped=self.damped)
        x = np.empty(z.size)
        descend(self.drawn.start, self.drawn.end, self.drawn.top, z, v, np.zeros(z.size), self.total, x)
        return Fused(z, v, self.total, self.y, 1.0, x)


def _integers(
    found: Fused, visited: Visited, tree: Order, groups: list[Int], sizes: Int, joined: _Joined
) -> tuple[Int, Int]:
    """As in `bayes`, but for the cells, whose running sums are rounded so that the parts keep their real sums."""
    from kasuri._kernels.fuse import round_cells
    from kasuri._kernels.visit import share_out

    levels = visited.levels
    room = max(bayes.ROOM, sum(level.y.size for level in levels))
    z, v, x = (np.split(numbers, sizes) for numbers in (found.z, found.v, found.x))
    totals = whole_total(np.array([found.total]))
    nodes, mass = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    left = np.zeros(found.x.size)  # what undescended nodes lose by rounding
    for at, level in enumerate(levels):
        if at:
            nodes, mass = bayes.spread_evenly(tree, visited.cuts[at - 1], visited.cuts[at], nodes, mass, room)
        shares = np.zeros(z[at].size, dtype=np.int64)
        if at + 1 < len(levels):
            share_out(z[at], v[at], np.zeros(z[at].size, dtype=bool), groups[at], totals, shares)
            lone = np.diff(level.first) == 0
            start = int(sizes[at - 1]) if at else 0
            left[start : start + shares.size][lone] = (x[at] - shares)[lone]
        else:
            deficit = joined.incidence.of_groups(left)
            round_cells(z[at], v[at], x[at], groups[at], totals, joined.labels, deficit, TURNS, shares)
        alone = (shares > 0) & (np.diff(level.first) == 0)
        nodes, mass = np.concatenate((nodes, level.prefix[alone])), np.concatenate((mass, shares[alone]))
        ranked = np.argsort(nodes, kind="stable")
        nodes, mass = nodes[ranked], mass[ranked]
        totals = shares
    return nodes, mass
