"""From published measurements to released values, once more.

A refinement sees noisy numbers only, so whoever has them can run it again. Trees of counts follow wholly from their
measurements; a descent of differences follows but for its coins, which can be read off the values. The noise itself
is gone; that there is too little of it for the scale stated can show all the same (`evidence`).
"""

from __future__ import annotations

import numpy as np

from kasuri.arrays import Int
from kasuri.errors import FormatError
from kasuri.noise.evidence import Chances
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace
from kasuri.published.measurements import Measurements
from kasuri.recipes.visit import Visit
from kasuri.refine import LARGEST
from kasuri.trees.order import Order
from kasuri.trees.visited import Level, Visited

WRONG_SCALE = "a scale is not what the recipe gives"
_STEPS = 1 << 20  # nodes looked at together: what a file promises below its nodes is not built before it is compared


def visited(visit: Visit, measured: Measurements) -> Visited:
    """The visited tree of these measurements; FormatError where they are not the nodes that the visit draws."""
    from kasuri._kernels.visit import keep, water

    if set(np.unique(measured.level).tolist()) - set(visit.cuts) or measured.scale.keys() - set(visit.cuts):
        raise FormatError("a level was not to be measured")
    levels: list[Level] = []
    parents, totals, kept, above = np.zeros(1, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64), 0
    for at, (cut, scale, slack) in enumerate(zip(visit.cuts, visit.scales, visit.slacks, strict=True)):
        own = measured.level == cut
        nodes, y = measured.prefix[own], measured.value[own]
        first = _firsts(visit.order, parents, above, cut, nodes)
        if at == 0:
            totals = np.maximum(y.sum(dtype=np.float64, keepdims=True), 0.0)
        else:
            sizes = np.zeros(levels[-1].y.size + 1, dtype=np.int64)
            sizes[kept + 1] = np.diff(first)
            levels[-1] = Level(levels[-1].prefix, levels[-1].y, levels[-1].x, np.cumsum(sizes))
        x, t = np.zeros(nodes.size), np.empty(parents.size)
        water(y, first, totals, x, t)
        levels.append(Level(nodes, y, x, np.zeros(nodes.size + 1, dtype=np.int64)))
        kept = visit.kept(at, nodes, keep(y, first, t, float(slack * scale)))
        parents, totals, above = nodes[kept], x[kept], cut
    return Visited(visit.cuts, visit.scales, visit.slacks, tuple(levels), visit.law is DiscreteGaussian)


def _firsts(tree: Order, parents: Int, start: int, end: int, nodes: Int) -> Int:
    """Where the possible descendants of each parent begin among `nodes`, which must be exactly these."""
    step, at, sizes = max(1, _STEPS // tree.width(start, end)), 0, [np.zeros(1, dtype=np.int64)]
    for low in range(0, parents.size, step):
        wanted, first = tree.children(parents[low : low + step], start, end)
        if not np.array_equal(nodes[at : at + wanted.size], wanted):
            raise FormatError("the measured nodes are not those below the nodes that were kept")
        sizes.append(np.diff(first))
        at += wanted.size
    if at != nodes.size:
        raise FormatError("more nodes were measured than those below the nodes that were kept")
    return np.cumsum(np.concatenate(sizes))


def descends(tree: Order, measured: Measurements, cells: Int, values: Int) -> bool:
    """Do the values of haar_topdown follow from its measured sum and differences, whatever the coins showed?

    Every node of positive sum S with two possible children was measured, and no other; the difference of its children
    is D, or D +- 1 where D and S differ in parity (the coin), cut to -S .. S.
    """
    root = measured.value[measured.level == -1]
    if root.size != 1 or measured.prefix[measured.level == -1] != 0 or measured.level.min() < -1:
        return False
    if measured.level.max() >= tree.depth or int(root[0]) > LARGEST or values.dtype != np.int64:
        return False
    keys = tree.keys(cells)
    ranked = np.argsort(keys)
    nodes, sums = keys[ranked], values[ranked]
    if sum(sums.tolist()) != max(int(root[0]), 0) or (sums <= 0).any():
        return False
    for depth in range(tree.depth - 1, -1, -1):
        starts = np.flatnonzero(np.diff(nodes >> 1, prepend=-1))
        left = np.add.reduceat(np.where(nodes & 1 == 0, sums, 0), starts) if starts.size else sums
        nodes, sums = nodes[starts] >> 1, np.add.reduceat(sums, starts) if starts.size else sums
        both = np.diff(tree.children(nodes, depth, depth + 1)[1]) == 2
        own = measured.level == depth
        if not np.array_equal(measured.prefix[own], nodes[both]):
            return False
        S, D, found = sums[both], measured.value[own], (left - (sums - left))[both]
        odd, D = (D ^ S) & 1, np.clip(D, -S - 1, S + 1)
        if not ((found == np.clip(D - odd, -S, S)) | (found == np.clip(D + odd, -S, S))).all():
            return False
    return True


def apart(
    tree: Visited, pilot: int | None, law: type[DiscreteLaplace] | type[DiscreteGaussian] = DiscreteLaplace
) -> list[Chances]:
    """The chances of each noisy parent and the sum of its noisy children; where a pilot was drawn first, its own
    parents are left out."""
    out = []
    for at, (level, below) in enumerate(zip(tree.levels[:-1], tree.levels[1:], strict=True)):
        kept = np.diff(level.first) > 0
        if kept.any() and (tree.cuts[at + 1] != pilot):
            sums = np.add.reduceat(below.y.astype(np.float64), level.first[:-1][kept])
            zero = law(tree.scales[at + 1]).repeats(np.diff(level.first)[kept])
            out.append((np.minimum((2 * np.abs(level.y[kept] - sums) + 1) * zero, 1.0), zero))
    return out
