"""Intervals of nodes, cells and areas of any shape from the estimates of a drawn tree (docs/proofs/intervals.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kasuri.estimate import Estimated
from kasuri.regions import APART, CUT, INSIDE, BoxSearch, CellSearch

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bounds = tuple[Float, Float, Float]
"""(lower, upper, estimate) per area."""


def above(x: Float, half: Float) -> Float:
    """Upper limits x + half, but at least half / 2: how far below 0 a noisy number fell says little about a count,
    which is not negative, and an interval of no width would say that all is known."""
    return np.maximum(x + half, half / 2)


def uppers(tree: Estimated, c: float) -> list[Float]:
    """Upper limit of every drawn node, at most its parent's, and (see `above`) never next to nothing."""
    from kasuri._kernels.intervals import limit_down

    top = tree.levels[0]
    out = [above(top.x, c * np.sqrt(top.f))]
    for parents, level in zip(tree.levels, tree.levels[1:], strict=False):
        out.append(np.empty(level.x.size))
        limit_down(parents.first, level.x, level.f, c, out[-2], out[-1])
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
    node is cut by the border but was not descended); `share` of the node's possible cells that lie in the area."""

    region: Int
    node: Int
    owner: Int
    kind: Int
    share: Float


@dataclass(frozen=True, eq=False)
class Areas:
    """Limits of areas, of how many nodes each is made, the variance of its estimate from the numbers alone, and
    whether it is a part of one node that was not descended."""

    limits: Bounds
    nodes: Int
    variance: Float
    shut_in: NDArray[np.bool_]


def of_regions(tree: Estimated, search: BoxSearch | CellSearch, c: float) -> Areas:
    """Limits of areas of any shape.

    An area is the sum of the drawn nodes inside it. A node that its border cuts is followed to its children; where it
    was not descended it is estimated by its share of cells, and may lie in the area with nothing or with all it is
    expected to hold. Variance: with weight a on the ends, a_p = S a v/Sv, and each parent adds
    S a^2 v - (S a v)^2/Sv.
    """
    levels, cap, shut_in = _pairs(tree, search, uppers(tree, c))
    estimate, variance, less, more, less_v, more_v, ends_of = (np.zeros(search.count) for _ in range(7))

    def gather(out: Float, pairs: _Pairs, values: Float) -> None:
        out += np.bincount(pairs.region, values, search.count)

    up_a = np.zeros(0)
    for at in range(len(levels) - 1, -1, -1):
        pairs, level = levels[at], tree.levels[at]
        a = pairs.share.copy()
        a[pairs.kind == CUT] = up_a
        ends = pairs.kind != CUT
        gather(estimate, pairs, np.where(ends, a * level.x[pairs.node], 0.0))
        gather(ends_of, pairs, ends.astype(np.float64))
        shut = pairs.kind == APART
        mean, spread = level.mean[pairs.node] * shut, level.spread[pairs.node] * shut
        gather(less, pairs, a * mean)
        gather(more, pairs, (1 - a) * mean)
        gather(less_v, pairs, a**2 * spread)
        gather(more_v, pairs, (1 - a) ** 2 * spread)
        if at == 0:
            gather(variance, pairs, a**2 * level.f[pairs.node])
            break
        v = level.v[pairs.node]
        up, parents = levels[at - 1], tree.levels[at - 1]
        opened = np.flatnonzero(up.kind == CUT)
        total = np.zeros(parents.x.size)
        starts = parents.first[:-1][~parents.closed]
        if starts.size:
            total[~parents.closed] = np.add.reduceat(level.v, starts)
        whole = total[up.node[opened]]
        av, aav = (np.bincount(pairs.owner, w, opened.size) for w in (a * v, a * a * v))
        variance += np.bincount(up.region[opened], np.maximum(aav - av**2 / whole, 0.0), search.count)
        up_a = av / whole
    upper = more + above(estimate, c * np.sqrt(variance + more_v))
    upper = np.where(shut_in, cap, np.minimum(upper, cap))
    lower = np.clip(estimate - less - c * np.sqrt(variance + less_v), 0.0, upper)
    return Areas((lower, upper, estimate), ends_of.astype(np.int64), variance, shut_in)


def _pairs(
    tree: Estimated, search: BoxSearch | CellSearch, limits: list[Float]
) -> tuple[list[_Pairs], Float, NDArray[np.bool_]]:
    """The pairs of every level; per area the upper limit of the lowest drawn node that holds all of it, and whether
    that node was not descended."""
    order = tree.order
    region = np.arange(search.count)
    prefix = np.zeros(search.count, dtype=np.int64)
    owner = np.arange(search.count)
    cap = np.full(search.count, np.inf)
    alone, shut_in = np.ones(search.count, dtype=bool), np.zeros(search.count, dtype=bool)
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
        share = (kind == INSIDE).astype(np.float64)
        apart = kind == APART
        share[apart] = search.share(depth, prefix[apart], region[apart])
        shut_in |= np.bincount(region[lone & apart], minlength=search.count) > 0
        out.append(_Pairs(region, node, owner, kind, share))
        opened = kind == CUT
        prefix, region, owner = prefix[opened], region[opened], np.arange(int(opened.sum()))
        before = depth
    return out, cap, shut_in
