"""Error bars that hold after refinement: from the published noisy numbers, never from the refined values.

The true count of an area lies in [lower, upper] with the confidence asked for (docs/proofs/intervals.md: what is exact
and what is measured). Works on a release that was read back from disk as on a fresh one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.estimate import Estimated
from kasuri.regions import APART, CUT, INSIDE, BoxSearch, CellSearch

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bounds = tuple[Float, Float, Float]


def factor(level: float) -> float:
    """Half-width of a two-sided interval in standard deviations: the larger of the normal and the Laplace quantile."""
    if not isinstance(level, (int, float)) or not 0.5 <= level < 1:
        raise DomainError("level must be a number from 0.5 up to but not 1, such as 0.95")
    return max(NormalDist().inv_cdf((1 + level) / 2), -math.log(1 - level) / math.sqrt(2))


def uppers(tree: Estimated, c: float) -> list[Float]:
    """Upper limit of every drawn node, at most its parent's."""
    from kasuri._kernels.intervals import limit_down

    top = tree.levels[0]
    out = [np.maximum(top.x + c * np.sqrt(top.f), 0.0)]
    for above, level in zip(tree.levels, tree.levels[1:], strict=False):
        out.append(np.empty(level.x.size))
        limit_down(above.first, level.x, level.f, c, out[-2], out[-1])
    return out


def of_cells(tree: Estimated, keys: Int, c: float) -> Bounds:
    """(lower, upper, estimate) of single cells by their keys: a drawn leaf by itself, any other from the lowest drawn
    node around it."""
    limits = uppers(tree, c)
    lower, upper, estimate = np.zeros(keys.size), np.zeros(keys.size), np.zeros(keys.size)
    rest = np.arange(keys.size)
    for at in range(len(tree.depths) - 1, -1, -1):
        level = tree.levels[at]
        found = tree.find(at, keys[rest] // tree.order.stride(tree.depths[at]))
        here, node = rest[found >= 0], found[found >= 0]
        upper[here] = limits[at][node]
        if at + 1 == len(tree.depths):
            estimate[here] = level.x[node]
            lower[here] = np.clip(level.x[node] - c * np.sqrt(level.f[node]), 0.0, upper[here])
        rest = rest[found < 0]
    return lower, upper, estimate


@dataclass(frozen=True, eq=False)
class _Pairs:
    """(area, node) pairs of one level: `owner` is the pair above, `kind` INSIDE, CUT (went on below) or APART (the
    node is cut by the border but was not descended)."""

    region: Int
    node: Int
    owner: Int
    kind: Int


def of_regions(tree: Estimated, search: BoxSearch | CellSearch, c: float) -> Bounds:
    """(lower, upper, estimate) of areas of any shape.

    An area is the sum of the drawn nodes inside it; a node that its border cuts is followed to its children, and where
    it was not descended it counts nothing in the lower and fully in the upper limit. Variance: with weight 1 on the
    nodes inside, a_p = S a v/Sv and each parent adds S a^2 v - (S a v)^2/Sv (docs/proofs/intervals.md).
    """
    levels, cap = _pairs(tree, search, uppers(tree, c))
    zero = [np.zeros(search.count) for _ in range(4)]
    estimate, least, variance, most = zero
    above: tuple[Float, Float] | None = None
    for at in range(len(levels) - 1, -1, -1):
        pairs, level = levels[at], tree.levels[at]
        x = level.x[pairs.node]
        inside, shut = pairs.kind == INSIDE, pairs.kind == APART
        estimate += np.bincount(pairs.region[inside], x[inside], search.count)
        most += np.bincount(pairs.region[shut], x[shut], search.count)
        low, high = inside.astype(np.float64), (inside | shut).astype(np.float64)
        if above is not None:
            low[pairs.kind == CUT], high[pairs.kind == CUT] = above
        v = level.v[pairs.node]
        if at == 0:
            least += np.bincount(pairs.region, low**2 * level.f[pairs.node], search.count)
            variance += np.bincount(pairs.region, high**2 * level.f[pairs.node], search.count)
            break
        up = levels[at - 1]
        opened = np.flatnonzero(up.kind == CUT)
        parents = tree.levels[at - 1]
        starts = parents.first[:-1][~parents.closed]
        total = np.zeros(parents.x.size)
        if starts.size:
            total[~parents.closed] = np.add.reduceat(level.v, starts)
        whole = total[up.node[opened]]
        above_parts = []
        for a, out in ((low, least), (high, variance)):
            av = np.bincount(pairs.owner, a * v, opened.size)
            aav = np.bincount(pairs.owner, a * a * v, opened.size)
            out += np.bincount(up.region[opened], np.maximum(aav - av**2 / whole, 0.0), search.count)
            above_parts.append(av / whole)
        above = above_parts[0], above_parts[1]
    upper = np.maximum(estimate + c * np.sqrt(least), estimate + most + c * np.sqrt(variance))
    upper = np.minimum(np.maximum(upper, 0.0), cap)
    lower = np.clip(estimate - c * np.sqrt(least), 0.0, upper)
    return lower, upper, estimate


def _pairs(tree: Estimated, search: BoxSearch | CellSearch, limits: list[Float]) -> tuple[list[_Pairs], Float]:
    """The pairs of every level, and per area the upper limit of the lowest drawn node that holds all of it."""
    order = tree.order
    region = np.arange(search.count)
    prefix = np.zeros(search.count, dtype=np.int64)
    owner = np.arange(search.count)
    cap = np.full(search.count, np.inf)
    alone = np.ones(search.count, dtype=bool)
    out: list[_Pairs] = []
    before = 0
    for at, depth in enumerate(tree.depths):
        status = np.full(region.size, CUT)
        for down in range(before, depth):
            radix = order.digits[down].radix
            prefix = (prefix[:, None] * radix + np.arange(radix)).ravel()
            region, owner = np.repeat(region, radix), np.repeat(owner, radix)
            status = search.status(down + 1, prefix, region)
            keep = status != APART
            prefix, region, owner, status = prefix[keep], region[keep], owner[keep], status[keep]
        if before == depth:
            status = search.status(depth, prefix, region)
        node = tree.find(at, prefix)
        there = node >= 0
        prefix, region, owner, node, status = (part[there] for part in (prefix, region, owner, node, status))
        closed = tree.levels[at].closed[node] if at + 1 < len(tree.depths) else np.ones(node.size, dtype=bool)
        kind = np.where(status == INSIDE, INSIDE, np.where(closed, APART, CUT))
        alone &= np.bincount(region, minlength=search.count) == 1
        lone = alone[region]
        cap[region[lone]] = limits[at][node[lone]]
        out.append(_Pairs(region, node, owner, kind))
        opened = kind == CUT
        prefix, region, owner = prefix[opened], region[opened], np.arange(int(opened.sum()))
        before = depth
    return out, cap
