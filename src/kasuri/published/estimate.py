"""What the published noisy numbers say about every drawn node: least squares without sign constraint.

Nothing here sees counts or refined values. A release's measurements are joined to one tree of drawn nodes; going up,
every node's own number is combined with its children's sum, going down, the parent's estimate is shared out:

    x_c = z_c + (v_c/Sv)(x_p - Sz)        f_c = v_c - v_c^2/Sv + (v_c/Sv)^2 f_p

z and v are the estimate and variance from the node and all below it, x and f those from everything drawn, sums over
the children. Numbers of differences (haar_topdown) fit the same formulas with z = +-D/2 and v half of D's variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace
from kasuri.noise.samplers import laplace_variance
from kasuri.published.measurements import Measurements
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE


@dataclass(frozen=True, eq=False)
class Level:
    """Drawn nodes of one depth in key order; children of node i at first[i]:first[i+1] of the next level, none where
    it was not descended. z, v: estimate and variance from below; x, f: from everything drawn; mean, spread: expected
    count (at least 0) and variance of a node by itself, selection allowed for."""

    prefix: Int
    first: Int
    z: Float
    v: Float
    x: Float
    f: Float
    mean: Float
    spread: Float

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Nodes that were not descended."""
        return np.diff(self.first) == 0


@dataclass(frozen=True, eq=False)
class Estimated:
    """The drawn tree: its public order, the depth of every level (the last: the leaves), and the levels. halves: the
    numbers are differences, by which a node is shared in halves."""

    order: Order
    depths: tuple[int, ...]
    levels: tuple[Level, ...]
    halves: bool

    def find(self, at: int, prefix: Int) -> Int:
        """Index of nodes in level `at`, -1 where a node was not drawn."""
        own = self.levels[at].prefix
        if own.size == 0:
            return np.full(prefix.size, -1)
        place = np.minimum(np.searchsorted(own, prefix), own.size - 1)
        return np.where(own[place] == prefix, place, -1)

    def find_below(self, at: int, prefix: Int, above: Int) -> Int:
        """`find` of nodes that lie below the nodes `above` of the level before."""
        from kasuri._kernels.intervals import find_below

        out = np.empty(prefix.size, dtype=np.int64)
        find_below(self.levels[at].prefix, self.levels[at - 1].first, prefix, above, out)
        return out


How = ParamSpec("How")
_Made = WeakKeyDictionary[Estimated, tuple[Any, ...]]


def _once(
    make: Callable[Concatenate[Measurements, Order, How], Estimated],
) -> Callable[Concatenate[Measurements, Order, How], Estimated]:
    """A release that is saved is read back for its report: what the same numbers say is not computed again while the
    first answer is in use."""
    known: _Made = WeakKeyDictionary()

    @wraps(make)
    def found(measured: Measurements, tree: Order, *args: How.args, **how: How.kwargs) -> Estimated:
        for made, (numbers, order, options) in list(known.items()):
            if options == how and _same_numbers(numbers, measured) and _same_tree(order, tree):
                return made
        made = make(measured, tree, *args, **how)
        known[made] = (measured, tree, how)
        return made

    return found


def _same_tree(one: Order, other: Order) -> bool:
    """As far as can be told without looking at masks and places."""
    if one is other:
        return True
    if any(dim.places is not None for tree in (one, other) for dim in tree.dims):
        return False
    a, b = ((tree.name, tree.mixed, tree.dims, tree.digits) for tree in (one, other))
    parts = [[(part.size, part.radices) for part in tree.factors if part.status is None] for tree in (one, other)]
    return a == b and parts[0] == parts[1] and all(len(own) == len(one.factors) for own in parts)


def _same_numbers(one: Measurements, other: Measurements) -> bool:
    return one is other or (
        one.scale == other.scale
        and np.array_equal(one.level, other.level)
        and np.array_equal(one.prefix, other.prefix)
        and np.array_equal(one.value, other.value)
    )


@_once
def counts(
    measured: Measurements,
    tree: Order,
    *,
    shrink: bool,
    law: type[DiscreteLaplace] | type[DiscreteGaussian] = DiscreteLaplace,
) -> Estimated:
    """The estimates of a count tree whose noise has this law. With `shrink` the numbers of inner nodes are replaced by
    their expectation under the level's own fitted prior: nodes were descended because their noise was high, and left
    alone because it was low, which sums over many nodes would add up (docs/proofs/intervals.md).

    Cost: O(drawn nodes).
    """
    from kasuri._kernels.intervals import join_up

    cuts = sorted(measured.scale)
    prefixes, numbers = _by_level(measured, cuts)
    last = len(cuts) - 1
    firsts, z, v = [], [np.zeros(0)] * (last + 1), [np.zeros(0)] * (last + 1)
    for at in range(last + 1):
        if at == last:
            firsts.append(np.zeros(prefixes[at].size + 1, dtype=np.int64))
            continue
        width = math.prod(digit.radix for digit in tree.digits[cuts[at] : cuts[at + 1]])
        parents = prefixes[at + 1] // width
        firsts.append(np.concatenate((np.searchsorted(parents, prefixes[at]), [parents.size])))
    for at in range(last, -1, -1):
        scale = max(measured.scale[cuts[at]], LEAST_SCALE)
        y = numbers[at].astype(np.float64)
        own = np.full(y.size, max(law(scale).variance, laplace_variance(LEAST_SCALE)))
        if shrink and at < last and y.size:
            y, own = expected(y, float(scale), own[0], normal=law is DiscreteGaussian)
        z[at], v[at] = np.empty(y.size), np.empty(y.size)
        below = (np.zeros(0), np.zeros(0)) if at == last else (z[at + 1], v[at + 1])
        join_up(y, own, firsts[at], *below, z[at], v[at])
    return _down(tree, cuts, prefixes, firsts, z, v, z[0].copy(), v[0].copy(), halves=False)


@_once
def differences(measured: Measurements, tree: Order) -> Estimated:
    """The estimates of a tree of differences (haar_topdown): the inverse transform over the drawn nodes. A node with
    one possible child hands its estimate on; below a node whose difference was not drawn nothing is known but its sum.

    Cost: O(drawn nodes).
    """
    depths = range(tree.depth + 1)
    prefixes, numbers = _by_level(measured, range(-1, tree.depth))
    variance = laplace_variance(max(measured.scale[-1], LEAST_SCALE))
    nodes, z, v, firsts = [np.zeros(1, dtype=np.int64)], [np.zeros(1)], [np.full(1, variance)], []
    for depth in range(tree.depth):
        above = nodes[-1]
        drawn, value = prefixes[depth + 1], numbers[depth + 1]
        below, first = tree.children(above, depth, depth + 1)
        fan = np.diff(first)
        owner = np.repeat(np.arange(above.size), fan)
        place = np.minimum(np.searchsorted(drawn, above), max(drawn.size - 1, 0))
        there = (drawn[place] == above) if drawn.size else np.zeros(above.size, dtype=bool)
        opened = there | (fan == 1)
        keep = opened[owner]
        below, owner = below[keep], owner[keep]
        half = np.where(there & (fan == 2), value[place] / 2.0, 0.0) if drawn.size else np.zeros(above.size)
        nodes.append(below)
        z.append(np.where(below & 1, -half[owner], half[owner]))
        v.append(np.full(below.size, variance / 2))
        firsts.append(np.concatenate(([0], np.cumsum(np.where(opened, fan, 0)))))
    firsts.append(np.zeros(nodes[-1].size + 1, dtype=np.int64))
    return _down(tree, depths, nodes, firsts, z, v, numbers[0].astype(np.float64), v[0].copy(), halves=True)


def _by_level(measured: Measurements, levels: Any) -> tuple[list[Int], list[Int]]:
    """Prefixes and numbers of every level, in key order."""
    level, prefix, value = measured.level, measured.prefix, measured.value
    ranked = np.diff(level) > 0
    if not (ranked | ((np.diff(level) == 0) & (np.diff(prefix) > 0))).all():
        by = np.lexsort((prefix, level))
        level, prefix, value = level[by], prefix[by], value[by]
    edges = np.searchsorted(level, [*levels, max(levels) + 1])
    parts = [slice(a, b) for a, b in pairwise(edges)]
    return [prefix[part] for part in parts], [value[part] for part in parts]


def _down(tree: Order, depths: Any, prefixes: list[Int], firsts: list[Int], z: list[Float], v: list[Float],
          x: Float, f: Float, *, halves: bool) -> Estimated:  # fmt: skip
    from kasuri._kernels.intervals import spread_down

    levels: list[Level] = []
    for at in range(len(prefixes)):
        if at:
            above = levels[-1]
            x, f = np.empty(z[at].size), np.empty(z[at].size)
            spread_down(above.first, z[at], v[at], above.x, above.f, x, f)
        mean, spread = np.maximum(x, 0.0), f
        if halves and at and x.size:  # not from x: its noise from above is what the node was drawn for
            fan = np.diff(above.first)
            plain = (float(above.spread.mean()) + 2 * v[at][0]) / 4
            fresh = z[at] + np.repeat(above.mean / np.maximum(fan, 1), fan)
            alone, spread = expected(fresh, math.sqrt(plain / 2), plain)
            mean = np.empty(x.size)  # made to add up to the parent's
            spread_down(above.first, alone, spread, above.mean, above.spread, mean, np.empty(x.size))
            mean = np.maximum(mean, 0.0)
        levels.append(Level(prefixes[at], firsts[at], z[at], v[at], x, f, mean, spread))
    return Estimated(tree, tuple(depths), tuple(levels), halves)


_PLAIN = 8.0  # noise scales above which a number is taken as it is
_BLEND = 5.0  # noise scales from which it is blended
_BINS = 16  # histogram bins per noise scale
_STEPS = 100


def expected(y: Float, scale: float, plain: float, *, normal: bool = False) -> tuple[Float, Float]:
    """E[x | y] and Var[x | y] per number, for counts x of one unknown distribution plus Laplace or normal noise of
    `scale`.

    The distribution is fitted to all the numbers by 100 steps of EM on a histogram: weights of point masses at 0 and
    on a grid up to 12 scales; far above the noise the prior is taken as flat, and the variance is `plain`.
    """
    from kasuri._kernels.intervals import fit_prior

    mean_out, variance_out = y.copy(), np.full(y.size, plain)
    small = y < _PLAIN * scale
    if not small.any():
        return mean_out, variance_out
    at = np.maximum(np.floor(y[small] / scale * _BINS).astype(np.int64), -12 * _BINS)
    bins, place, weight = np.unique(at, return_inverse=True, return_counts=True)
    middle = (bins + 0.5) / _BINS
    grid = np.concatenate(([0.0], np.arange(1, 24) / 8.0, 3.0 + np.arange(0, 37) / 4.0))
    off = np.abs(middle[:, None] - grid[None, :])
    like = np.exp(-off * off / 2) if normal else np.exp(-off)
    prior = np.full(grid.size, 1.0 / grid.size)
    fit_prior(like, weight.astype(np.float64), prior, _STEPS)
    joint = like * prior
    joint /= joint.sum(axis=1, keepdims=True)
    mean = joint @ grid
    variance = np.maximum(joint @ grid**2 - mean**2, 1e-3)
    share = np.clip((y[small] / scale - _BLEND) / (_PLAIN - _BLEND), 0.0, 1.0)
    mean_out[small] = share * y[small] + (1 - share) * mean[place] * scale
    variance_out[small] = share * plain + (1 - share) * np.minimum(variance[place] * scale**2, plain)
    return mean_out, variance_out
