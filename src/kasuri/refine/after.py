"""Errors of released sums after refinement, from noisy numbers alone. Pure post-processing, and no random number.

Nodes of a drawn tree have a variance from everything drawn (f), or, after empirical Bayes, that of their posterior.
The mean square error of all blocks of one depth follows in one of two ways (docs/proofs/errors_after.md):

* Least squares, then numbers that are not negative: the released X is about the nearest table to the estimate x, so
  that X - t and x - X are about orthogonal: mean (X - t)^2 = mean f - mean (X - x)^2.
* Empirical Bayes: the posterior variance, sent down the tree, with normal laws cut off at 0 above the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.trees.order import Order

ROUGH = 0.35
"""An estimate whose own standard error is a larger part of it is not one: then the variance of the noise bounds it."""


class Nodes(Protocol):
    """Drawn nodes of one depth: see `published.estimate.Level`."""

    @property
    def prefix(self) -> Int: ...
    @property
    def first(self) -> Int: ...
    @property
    def v(self) -> Float: ...
    @property
    def x(self) -> Float: ...
    @property
    def f(self) -> Float: ...


@dataclass(frozen=True, eq=False)
class Posterior:
    """Nodes of one level after empirical Bayes: their non-negative estimate x, variance v from below, f from all."""

    prefix: Int
    first: Int
    v: Float
    x: Float
    f: Float


@dataclass(frozen=True)
class MeanSquare:
    """Mean square error of all blocks of a depth; `bound`: at most this."""

    value: float
    bound: bool = False


def second_moments(z: Float, v: Float, x: Float) -> Float:
    """E (t - x)^2 of a count t that is normal about z with variance v, cut off below 0; x > 0 is taken for its mean."""
    from kasuri._kernels.bayes import hazards

    positive = x > 0
    r = np.where(positive, x, np.minimum(z, 0.0)) / np.sqrt(v)
    h = np.empty(r.size)
    hazards(r, h)
    return np.maximum(v * np.where(positive, 1 - r * h, 1 + r * r + r * h), 1e-9)


def spread(first: Int, v: Float, above: Float) -> Float:
    """f of the children of nodes whose f is `above`: v (1 - v/Sv) + (v/Sv)^2 f, sums over siblings."""
    from kasuri._kernels.intervals import spread_down

    out, none = np.empty(v.size), np.zeros(above.size)
    spread_down(first, np.zeros(v.size), v, none, above, np.empty(v.size), out)
    return out


def posteriors(
    levels: Sequence[tuple[Int, Int]], z: Sequence[Float], v: Sequence[Float], x: Sequence[Float], total: float
) -> list[Posterior]:
    """The levels (prefix, first) of a visited tree, estimates and variances from below, non-negative estimates from
    all, and the variance of the total: posterior variances of every node. Those of cells know already that counts are
    not negative."""
    out, above, first = [], np.array([total]), np.array([0, levels[0][0].size], dtype=np.int64)
    for at, (prefix, below) in enumerate(levels):
        own = v[at] if at + 1 == len(levels) else second_moments(z[at], v[at], x[at])
        above = spread(first, own, above)
        out.append(Posterior(prefix, below, own, x[at], above))
        first = below
    return out


def hidden(
    tree: Order, depths: Sequence[int], levels: Sequence[Nodes], released: tuple[Int, Int] | None = None
) -> list[float]:
    """What is not known of the people below nodes that were not descended: per level the sum of their squares."""
    out = []
    for depth, level in zip(depths[:-1], levels[:-1], strict=True):
        closed = np.diff(level.first) == 0
        own = level.f[closed]
        if released is not None:
            own = own - (_sums(tree, depth, level.prefix[closed], released) - level.x[closed]) ** 2
        out.append(max(float(own.sum()), 0.0))
    return out


def mean_square(
    tree: Order, depths: Sequence[int], levels: Sequence[Nodes], depth: int, below: Sequence[float],
    released: tuple[Int, Int] | None = None,
) -> MeanSquare:  # fmt: skip
    """The mean square error of all possible blocks at a depth of the tree. `below` is what is `hidden`; `released`:
    keys and values of the table, where it is the nearest one to the estimates; none: f are posterior variances
    already."""
    at = next(at for at, own in enumerate(depths) if own >= depth)
    ids, x, f = _blocks(tree, depths, levels, at, depth)
    total, noise, rough = float(f.sum()), float(f.sum()), 0.0
    if released is not None:
        gap = (_sums(tree, depth, ids, released) - x) ** 2
        total -= float(gap.sum())
        rough += float(((gap - gap.mean()) ** 2).sum()) if gap.size else 0.0
    for up in range(at):  # people below nodes that were not descended: between one heap and an even spread
        own = below[up] / sqrt(tree.stride(depths[up]) / tree.stride(depth))
        total, noise = total + own, noise + own
    nodes = max(tree.nodes(depth), 1)
    if released is not None and (total <= 0 or sqrt(rough) > ROUGH * total):
        return MeanSquare(noise / nodes, bound=True)
    return MeanSquare(total / nodes)


def _blocks(
    tree: Order, depths: Sequence[int], levels: Sequence[Nodes], at: int, depth: int
) -> tuple[Int, Float, Float]:
    """Drawn blocks of a depth, their estimates and variances: nodes of level `at`, or m of n siblings together, of
    variance a (1 - a/Sv) + (a/Sv)^2 f_p, a the sum of their v."""
    level, width = levels[at], tree.stride(depth) // tree.stride(depths[at])
    if width == 1:
        return level.prefix, level.x, level.f
    block = level.prefix // width  # rises
    new = np.diff(block, prepend=-1) != 0
    ids, place = block[new], np.cumsum(new) - 1
    x, a = (_counted(place, numbers, ids.size) for numbers in (level.x, level.v))
    if at == 0:
        return ids, x, _counted(place, level.f, ids.size)
    above = levels[at - 1]
    fan = np.diff(above.first)
    owner = np.repeat(np.arange(fan.size), fan)
    siblings = _counted(owner, level.v, fan.size)
    own = np.empty(ids.size, dtype=np.int64)
    own[place] = owner
    share = a / siblings[own]
    return ids, x, a * (1 - share) + share**2 * above.f[own]


def _sums(tree: Order, depth: int, ids: Int, released: tuple[Int, Int]) -> Float:
    """Released people in each of these rising nodes; the keys rise too."""
    from kasuri._kernels.intervals import sums_below

    keys, values = released
    out = np.empty(ids.size)
    sums_below(ids, tree.stride(depth), keys, values.astype(np.float64), out)
    return out


def _counted(place: Int, numbers: Int | Float, size: int) -> Float:
    return np.bincount(place, numbers, size).astype(np.float64)
