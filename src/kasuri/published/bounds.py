"""Intervals of nodes, cells and areas of any shape from the estimates of a drawn tree (docs/proofs/intervals.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.published.around import Said, above, factor, said
from kasuri.published.estimate import Estimated
from kasuri.trees.regions import APART, CUT, INSIDE, BoxSearch, CellSearch

Bounds = tuple[Float, Float, Float]
"""(lower, upper, estimate) per area."""
_DOUBT = (0.0, 0.7)
"""What cut nodes that were not descended are expected to hold may be too little by so much of it (counts, differences):
the fit shares people out alike among nodes that the area touches and others, and they may all be in the former."""


def of_cells(tree: Estimated, keys: Int, level: float, seen: list[Said] | None = None) -> Bounds:
    """(lower, upper, estimate) of single cells by their keys: a drawn leaf by itself and by what is said of it, any
    other by what is said of the lowest drawn node around it. With `seen` by an earlier rule: only `verify` asks."""
    seen, c = said(tree, level) if seen is None else seen, factor(level)
    lower, upper, estimate = np.zeros(keys.size), np.zeros(keys.size), np.zeros(keys.size)
    rest = np.arange(keys.size)
    for at in range(len(tree.depths) - 1, -1, -1):
        own = tree.levels[at]
        found = tree.find(at, keys[rest] // tree.order.stride(tree.depths[at]))
        here, node = rest[found >= 0], found[found >= 0]
        if at + 1 == len(tree.depths):
            estimate[here], half = own.x[node], c * np.sqrt(own.f[node])
            upper[here] = np.maximum(np.minimum(above(own.x[node], half), seen[at].second[node]), seen[at].high[node])
            lower[here] = np.maximum(np.minimum(own.x[node] - half, seen[at].low[node]), 0.0)
        else:
            upper[here] = seen[at].closed[node]
        rest = rest[found < 0]
    return np.minimum(lower, upper), upper, estimate


def of_cells_cut(tree: Estimated, keys: Int, level: float) -> Bounds:
    """The limits that releases were saved with before there were windows: each node's cut by the least of its
    ancestors'. They cover too little; only `verify` computes them, to tell old limits from changed ones."""
    c = factor(level)
    lower, upper, estimate = np.zeros(keys.size), np.full(keys.size, np.inf), np.zeros(keys.size)
    for at, own in enumerate(tree.levels):
        half = c * np.sqrt(own.f)
        found = tree.find(at, keys // tree.order.stride(tree.depths[at]))
        there = found >= 0
        upper[there] = np.minimum(upper[there], above(own.x, half)[found[there]])
        if at + 1 == len(tree.levels):
            estimate[there] = own.x[found[there]]
            lower[there] = np.clip(estimate[there] - half[found[there]], 0.0, upper[there])
    return lower, upper, estimate


@dataclass(frozen=True, eq=False)
class Pairs:
    """(area, node) pairs of one level: `owner` is the pair above, `kind` INSIDE, CUT (went on below) or APART (the
    node is cut by the border but was not descended); `share` of the node's possible cells that lie in the area; `lone`:
    the node holds all of the area."""

    region: Int
    node: Int
    owner: Int
    kind: Int
    share: Float
    lone: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sums:
    """Areas as sums of drawn nodes: per level the pairs; per area the estimate and its variance, and of how many nodes
    it is made. Of the cut nodes that were not descended: what the area's shares are expected to hold (`less`), what the
    rest is (`more`), and their variances; whether the area is a part of one such node."""

    pairs: list[Pairs]
    estimate: Float
    variance: Float
    nodes: Int
    less: Float
    less_v: Float
    more: Float
    more_v: Float
    shut_in: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Around:
    """Per area: `cap`, a limit of what lies below the lowest drawn node that holds all of it; `low` and `high`, what
    its interval must reach: down to that of this node's window, which holds no less than the area; up to it where the
    area is the node, and towards the limits of cut nodes that were not descended: one cell may hold all of theirs."""

    cap: Float
    low: Float
    high: Float


def sums(tree: Estimated, count: int, levels: list[Pairs]) -> Sums:
    """Areas of any shape as sums of the drawn nodes inside them, which are their `pairs`.

    A node that the border cuts is followed to its children; where it was not descended it is estimated by its share of
    cells, and may lie in the area with nothing or with all it is expected to hold. Variance: with weight a on the ends,
    a_p = S a v/Sv, and each parent adds S a^2 v - (S a v)^2/Sv.
    """
    estimate, variance, less, more, less_v, more_v, ends_of = (np.zeros(count) for _ in range(7))
    shut_in = np.zeros(count, dtype=bool)

    def gather(out: Float, pairs: Pairs, some: Int, values: Float) -> None:
        out += np.bincount(pairs.region[some], values, count)

    up_a = np.zeros(0)
    for at in range(len(levels) - 1, -1, -1):
        pairs, own = levels[at], tree.levels[at]
        a = pairs.share.copy()
        a[pairs.kind == CUT] = up_a
        ends = np.flatnonzero(pairs.kind != CUT)
        gather(estimate, pairs, ends, a[ends] * own.x[pairs.node[ends]])
        gather(ends_of, pairs, ends, np.ones(ends.size))
        shut = np.flatnonzero(pairs.kind == APART)
        shut_in[pairs.region[shut[pairs.lone[shut]]]] = True
        part, mean, spread = a[shut], own.mean[pairs.node[shut]], own.spread[pairs.node[shut]]
        gather(less, pairs, shut, part * mean)
        gather(more, pairs, shut, (1 - part) * mean)
        gather(less_v, pairs, shut, part**2 * spread)
        gather(more_v, pairs, shut, (1 - part) ** 2 * spread)
        if at == 0:
            variance += np.bincount(pairs.region, a**2 * own.f[pairs.node], count)
            break
        v = own.v[pairs.node]
        up, parents = levels[at - 1], tree.levels[at - 1]
        opened = np.flatnonzero(up.kind == CUT)
        total = np.zeros(parents.x.size)
        starts = parents.first[:-1][~parents.closed]
        if starts.size:
            total[~parents.closed] = np.add.reduceat(own.v, starts)
        whole = total[up.node[opened]]
        av, aav = (np.bincount(pairs.owner, w, opened.size) for w in (a * v, a * a * v))
        variance += np.bincount(up.region[opened], np.maximum(aav - av**2 / whole, 0.0), count)
        up_a = av / whole
    return Sums(levels, estimate, variance, ends_of.astype(np.int64), less, less_v, more, more_v, shut_in)


def of_areas(tree: Estimated, area: Sums, level: float) -> Bounds:
    """(lower, upper, estimate) of areas by their own estimates, and by what the nodes around them say."""
    around, shut_in, c = _around(tree, area, level), area.shut_in, factor(level)
    most = 1 + _DOUBT[tree.halves]
    upper = most * area.more + above(area.estimate, c * np.sqrt(area.variance + area.more_v))
    lower = area.estimate - most * area.less - c * np.sqrt(area.variance + area.less_v)
    upper = np.where(shut_in, around.cap, np.maximum(np.minimum(upper, around.cap), around.high))
    return np.clip(np.minimum(lower, around.low), 0.0, upper), upper, area.estimate


def _around(tree: Estimated, area: Sums, level: float) -> _Around:
    """What the smallest drawn node around each area, and the cut nodes that were not descended, say."""
    around = _Around(*(np.full(area.estimate.size, end) for end in (np.inf, np.inf, 0.0)))
    for of, pairs in zip(said(tree, level), area.pairs, strict=True):
        region, node, lone, apart = pairs.region, pairs.node, pairs.lone, pairs.kind == APART
        for those, limit in ((lone & apart, of.closed), (lone & ~apart, of.second)):
            around.cap[region[those]] = limit[node[those]]
        np.maximum.at(around.high, region[apart], of.cut[node[apart]])
        around.low[region[lone]] = of.low[node[lone]]
        same = lone & (pairs.kind == INSIDE)
        around.high[region[same]] = of.high[node[same]]
    return around


def pairs(tree: Estimated, search: BoxSearch | CellSearch) -> list[Pairs]:
    """The pairs of every level."""
    region = np.arange(search.count)
    prefix = np.zeros(search.count, dtype=np.int64)
    owner = np.arange(search.count)
    above = np.zeros(0, dtype=np.int64)
    starts = search.starts()
    alone = np.ones(search.count, dtype=bool)
    out: list[Pairs] = []
    before = 0
    for at, depth in enumerate(tree.depths):
        status = np.full(region.size, CUT)
        for down in range(before, depth):
            parent, prefix, status, starts = search.below(down, prefix, region, starts)
            region, owner = region[parent], owner[parent]
        if before == depth:
            status = search.status(depth, prefix, region)
        node = tree.find_below(at, prefix, above[owner]) if at else tree.find(at, prefix)
        there = node >= 0
        if not there.all():
            every = (prefix, region, owner, node, status, starts)
            prefix, region, owner, node, status, starts = (part[there] for part in every)
        closed = tree.levels[at].closed[node] if at + 1 < len(tree.depths) else np.ones(node.size, dtype=bool)
        kind = np.where(status == INSIDE, INSIDE, np.where(closed, APART, CUT))
        alone &= np.bincount(region, minlength=search.count) == 1
        share, apart = (kind == INSIDE).astype(np.float64), kind == APART
        shares = search.halves if tree.halves else search.share
        share[apart] = shares(depth, prefix[apart], region[apart])
        out.append(Pairs(region, node, owner, kind, share, alone[region]))
        opened = kind == CUT
        prefix, region, above, starts = (part[opened] for part in (prefix, region, node, starts))
        owner = np.arange(prefix.size)
        before = depth
    return out
