"""Measured partitions ("parts") joined to a visited tree, as a shift of its estimates. Pure post-processing.

The joint least-squares estimate of tree and parts is x_T + C B'l with (B C B' + diag s2) l = y - B x_T: C is the
covariance of the tree's own estimate, B says which part of every unit (a drawn cell, or a drawn node that was not
descended) lies in which group. That is the downward pass run on z + v u, u the potentials B'l lifted to every node, so
the numbers below zero are handled as everywhere in the tree. C is never written out: two passes over the drawn nodes
apply it, and conjugate gradients solve for l (docs/proofs/woven_tree.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.trees.order import Order
from kasuri.trees.partition import Partition
from kasuri.trees.visited import Visited

ROUNDS = 6
ENOUGH = 1e-3
"""Rounds end where residuals have this root mean square, in standard deviations of the parts' noise."""
DAMPED_ROUNDS, NEAR, HALVED = 60, 1e-2, 20
"""Damped rounds are many, and each of them need not be exact; a step is halved at most so often."""
CLOSE, STEPS = 1e-4, 400
"""Relative residual at which conjugate gradients end, and the most of their steps."""
NEARLY_NONE = 1e-6
"""Numbers that the constraint holds at 0 keep this part of their variance: none at all would divide by 0."""
WIDEST = 50.0
"""Most by which the variance of the cells is raised."""
SIGNS = 4


@dataclass(frozen=True, eq=False)
class Drawn:
    """The visited tree, flat: level after level, children of node i at start[i]:end[i], the first `top` below the
    root; `units` are the nodes without children, `cells` the first node of the last level."""

    start: Int
    end: Int
    top: int
    units: Int
    cells: int

    @classmethod
    def of(cls, visited: Visited) -> Drawn:
        sizes = [level.y.size for level in visited.levels]
        offsets = np.cumsum([0, *sizes])
        start = np.concatenate(
            [level.first[:-1] + offsets[at + 1] for at, level in enumerate(visited.levels)]
        )  # of the last level: empty ranges
        end = np.concatenate([level.first[1:] + offsets[at + 1] for at, level in enumerate(visited.levels)])
        return cls(start, end, sizes[0], np.flatnonzero(start == end), int(offsets[-2]))

    def covariance(self, v: Float, v0: float, potentials: Float) -> Float:
        """C u at every node, for potentials u of the units (at their nodes)."""
        from kasuri._kernels.fuse import covary

        g = np.zeros(v.size)
        covary(self.start, self.end, self.top, v, v0, potentials.copy(), g)
        return g


@dataclass(frozen=True, eq=False)
class Incidence:
    """B: the groups of all parts, one after the other, against the units of a drawn tree. `classes[p, i]` is the class
    of unit i in part p; class c touches groups first[c]:first[c+1] with fractions of a unit."""

    groups: int
    classes: Int
    units: Int
    first: Int
    group: Int
    fraction: Float

    @classmethod
    def of(cls, parts: Sequence[Partition], drawn: Drawn, visited: Visited, tree: Order) -> Incidence:
        offsets = np.cumsum([0, *(level.y.size for level in visited.levels)])
        place = np.searchsorted(drawn.units, offsets)
        classes = np.full((len(parts), drawn.units.size), -1, dtype=np.int64)
        firsts, groups, fractions = [np.zeros(1, dtype=np.int64)], [], []
        known, entries, before = 0, 0, 0
        for p, part in enumerate(parts):
            for at, (cut, level) in enumerate(zip(visited.cuts, visited.levels, strict=True)):
                own = drawn.units[place[at] : place[at + 1]] - offsets[at]
                touched = part.of_nodes(tree, cut, level.prefix[own])
                classes[p, place[at] : place[at + 1]] = known + touched.klass
                firsts.append(entries + touched.first[1:])
                groups.append(before + touched.group)
                fractions.append(touched.fraction)
                known += touched.first.size - 1
                entries += int(touched.first[-1])
            before += part.groups
        none = np.zeros(0, dtype=np.int64)
        return cls(
            before, classes, drawn.units, np.concatenate(firsts),
            np.concatenate([none, *groups]), np.concatenate([np.zeros(0), *fractions]),
        )  # fmt: skip

    def of_units(self, numbers: Float, size: int) -> Float:
        """B' of numbers by group, at the nodes of the units."""
        from kasuri._kernels.fuse import to_units

        out = np.zeros(size)
        to_units(self.classes, self.units, self.first, self.group, self.fraction, numbers, out)
        return out

    def of_groups(self, x: Float, *, square: bool = False) -> Float:
        """B x, for numbers x at the nodes; square: with squared fractions."""
        from kasuri._kernels.fuse import to_groups

        out = np.zeros(self.groups)
        to_groups(self.classes, self.units, self.first, self.group, self.fraction, x, out, square)
        return out

    @cached_property
    def signs(self) -> list[Float]:
        """Fixed vectors of +1 and -1 by group: traces are estimated with them."""
        index = np.arange(self.groups, dtype=np.uint64)
        out = []
        for turn in range(SIGNS):
            mixed = (index * np.uint64(2 * SIGNS) + np.uint64(turn + 1)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            out.append(np.where((mixed >> np.uint64(40)) & np.uint64(1), 1.0, -1.0))
        return out


@dataclass(frozen=True, eq=False)
class Fused:
    """The tree's estimates shifted by the parts: z and v of every node, the total, what the shift is made of (l by
    group), by how much the variance of the cells was raised, and the non-negative numbers x that follow."""

    z: Float
    v: Float
    total: float
    potentials: Float
    raised: float
    x: Float


def fuse(
    drawn: Drawn, parts: Incidence, z: Float, v: Float, total: float, v0: float, y: Float, s2: Float, *,
    calibrate: bool = True, damped: bool = False,
) -> Fused:  # fmt: skip
    """Join numbers y (of noise variances s2, by group) to a tree of estimates z and variances v. `damped`: steps are
    halved while they go too far, as often as it takes to converge; without, rounds may swing to and fro between sets of
    numbers at 0 and end anywhere. Cost: O(drawn nodes + groups touched) per step of the conjugate gradients, some
    dozens in all, or some hundreds where many numbers come to 0."""
    from kasuri._kernels.fuse import descend, lift

    v, raised = v.copy(), 1.0
    rounds, enough, close = (DAMPED_ROUNDS, NEAR, NEAR) if damped else (ROUNDS, ENOUGH, CLOSE)

    def at(potentials: Float) -> tuple[Float, float, Float, Float]:
        """The shift, that of the root, the numbers that follow, and how far they are from y: the slope of what the
        potentials make as large as can be."""
        a, x = parts.of_units(potentials, z.size), np.empty(z.size)
        root = lift(drawn.start, drawn.end, drawn.top, v, a)
        descend(drawn.start, drawn.end, drawn.top, z, v, a, max(total + v0 * root, 0.0), x)
        return a, root, x, y - parts.of_groups(x) - s2 * potentials

    potentials = np.zeros(parts.groups)
    a, root, x, residual = at(potentials)
    for turn in range(rounds):
        if turn and math.sqrt(np.mean(residual**2 / s2)) < enough:
            break
        active = np.where(x > 0, v, NEARLY_NONE * v)
        if turn == 0 and calibrate:
            raised = _raised(drawn, parts, active, v0, residual, s2)
            v[drawn.cells :] *= raised
            active[drawn.cells :] *= raised

        def system(numbers: Float, active: Float = active) -> Float:
            spread = drawn.covariance(active, v0, parts.of_units(numbers, active.size))
            return parts.of_groups(spread) + s2 * numbers

        step = solve(system, residual, 1 / (parts.of_groups(active, square=True) + s2), close)
        uphill, new = dot(residual, step), at(potentials + step)
        for _ in range(HALVED if damped else 0):
            if dot(new[3], step) >= -uphill / 2:
                break
            step, uphill = step / 2, uphill / 2
            new = at(potentials + step)
        potentials = potentials + step
        a, root, x, residual = new
    return Fused(z + v * a, v, max(total + v0 * root, 0.0), potentials, raised, x)


def _raised(drawn: Drawn, parts: Incidence, v: Float, v0: float, residual: Float, s2: Float) -> float:
    """Posterior means of cells have errors in common, which their variances do not know: by how much those must be
    larger for the parts to lie as far from the tree as they do."""
    low = v.copy()
    low[drawn.cells :] *= NEARLY_NONE
    traces = []
    for spread in (v, low):
        found = 0.0
        for sign in parts.signs:
            weights = parts.of_units(sign / np.sqrt(s2), v.size)
            shared = drawn.covariance(spread, v0, weights)
            found += dot(weights[drawn.units], shared[drawn.units])
        traces.append(found / SIGNS)
    spare = float((residual**2 / s2).sum()) - parts.groups - traces[1]
    return float(np.clip(spare / max(traces[0] - traces[1], 1e-12), 1.0, WIDEST))


def solve(system: Callable[[Float], Float], right: Float, inverse: Float, close: float = CLOSE) -> Float:
    """Conjugate gradients for a symmetric positive system, preconditioned by `inverse` (its diagonal's, about)."""
    x = np.zeros(right.size)
    r = right.copy()
    d = inverse * r
    p, old = d.copy(), dot(r, d)
    first = math.sqrt(dot(right, right))
    for _ in range(STEPS):
        if math.sqrt(dot(r, r)) <= close * first or old <= 0:
            break
        q = system(p)
        step = old / dot(p, q)
        x += step * p
        r -= step * q
        d = inverse * r
        new = dot(r, d)
        p, old = d + new / old * p, new
    return x


def dot(a: Float, b: Float) -> float:
    """Summed in one fixed order, whatever the number of threads of the linear algebra behind np.dot."""
    return float((a * b).sum())
