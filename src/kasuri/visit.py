"""Measure and visit: noisy counts of chosen levels of a tree, drawn only below nodes that noise left positive.

A cut is a depth of the tree whose nodes are measured: y = count + discrete Laplace noise of the level's own scale. From
the top, the first cut is drawn whole and projected on {x >= 0, sum x = max(sum y, 0)}; at every next cut all possible
children of each kept node are drawn, x = max(y - t, 0) with t such that they sum to the parent's x, and a child is kept
iff x > 0. Everything kept here is a function of noisy values (docs/proofs/refined_tree.md), and may be published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kasuri.engine import prefix_sums, spread
from kasuri.errors import DomainError
from kasuri.noise import discrete_laplace
from kasuri.order import NONE, Order
from kasuri.rng import Streams

Int = NDArray[np.int64]
Float = NDArray[np.float64]

TOP_NODES = 1 << 22
"""Most nodes of the first cut, which is drawn whole."""
BLOCKS = 256
"""Blocks are the nodes of the last cut with at most this many; each has its own keystream per level."""


@dataclass(frozen=True, eq=False)
class Level:
    """The drawn nodes of one cut, in key order: noisy count `y`, visiting estimate `x`, and the children of node i at
    first[i]:first[i+1] of the next level (none if it was not kept)."""

    prefix: Int
    y: Int
    x: Float
    first: Int


@dataclass(frozen=True, eq=False)
class Visited:
    """The visited tree: per cut its depth, the scale of its noise, and its drawn nodes."""

    cuts: tuple[int, ...]
    scales: tuple[Fraction, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True, eq=False)
class Visit:
    """What to measure: the tree, the depths of its cuts (the last is the leaves), the scale of each."""

    order: Order
    cuts: tuple[int, ...]
    scales: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if list(self.cuts) != sorted(set(self.cuts)) or not self.cuts or self.cuts[-1] != self.order.depth:
            raise DomainError("cuts must be rising depths of the tree that end with its leaves")
        if self._width(0, self.cuts[0]) > TOP_NODES:
            raise DomainError(f"the first measured level has more than {TOP_NODES} nodes; measure a higher one too")

    def _width(self, start: int, end: int) -> int:
        return math.prod(digit.radix for digit in self.order.digits[start:end])

    def stride(self, depth: int) -> int:
        """Leaves below a node at `depth`."""
        return self.order.strides[depth] * self.order.digits[depth].radix if depth < self.order.depth else 1

    def run(self, keys: Int, values: Int, streams: Streams, threads: int) -> Visited:
        """Sorted keys and values of the true records -> the visited tree. Cost: O(m + drawn nodes log fan-out)."""
        sums = prefix_sums(values)
        split = self.split
        top = self.top(keys, sums, streams)
        if split + 1 == len(self.cuts):
            return self._visited(top)
        roots, x = top[-1].prefix, top[-1].x
        kept = np.flatnonzero(x > 0)
        stride = self.stride(self.cuts[split])
        low, high = np.searchsorted(keys, roots[kept] * stride), np.searchsorted(keys, (roots[kept] + 1) * stride)

        def one(i: int) -> list[Level]:
            at = kept[i]
            return self.below(int(roots[at]), float(x[at]), keys[low[i] : high[i]], sums[low[i] : high[i] + 1], streams)

        blocks = spread(one, range(kept.size), threads)
        top[-1] = _with_children(top[-1], kept, [block[0].prefix.size for block in blocks])
        below = [_join([block[i] for block in blocks]) for i in range(len(self.cuts) - split - 1)]
        return self._visited([*top, *below])

    @cached_property
    def split(self) -> int:
        """The last cut of the top; its nodes are the roots of the blocks."""
        return max((i for i, cut in enumerate(self.cuts) if self._width(0, cut) <= BLOCKS), default=0)

    def top(self, keys: Int, sums: Int, streams: Streams) -> list[Level]:
        """The cuts 0..split. Only the sums of the nodes at cut `split` count (see `Descent.top`)."""
        return self._block(keys, sums, np.zeros(1, dtype=np.int64), None, 0, self.split, streams, 0)

    def below(self, root: int, x: float, keys: Int, sums: Int, streams: Streams) -> list[Level]:
        """One block: the cuts below node `root` of cut `split`, of visiting estimate x > 0 and with these records."""
        last = len(self.cuts) - 1
        return self._block(keys, sums, np.array([root]), np.array([x]), self.split + 1, last, streams, root)

    def _visited(self, levels: list[Level]) -> Visited:
        return Visited(self.cuts, self.scales, tuple(levels))

    def _block(
        self, keys: Int, sums: Int, roots: Int, totals: Float | None, start: int, end: int, streams: Streams, block: int
    ) -> list[Level]:
        """The levels of cuts start..end below `roots` (of refined totals, None: the whole tree, unprojected)."""
        from kasuri._kernels.visit import range_sums, water

        levels: list[Level] = []
        parents = roots
        for at in range(start, end + 1):
            before = self.cuts[at - 1] if at else 0
            nodes, owner = self._children(parents, before, self.cuts[at])
            true = np.zeros(nodes.size, dtype=np.int64)
            range_sums(keys, sums, nodes, self.stride(self.cuts[at]), true)
            y = true + discrete_laplace(self.scales[at]).draw(streams.open("noise", self.cuts[at], block), nodes.size)
            first = np.zeros(parents.size + 1, dtype=np.int64)
            np.cumsum(np.bincount(owner, minlength=parents.size), out=first[1:])
            if totals is None:
                totals = np.array([max(float(y.sum()), 0.0)])
            x = np.zeros(nodes.size)
            water(y.astype(np.float64), first, totals, x)
            if levels:
                last = levels[-1]
                levels[-1] = _with_children(last, np.flatnonzero(last.x > 0), np.diff(first).tolist())
            levels.append(Level(nodes, y, x, np.zeros(nodes.size + 1, dtype=np.int64)))
            parents, totals = nodes[x > 0], x[x > 0]
        return levels

    def _children(self, parents: Int, start: int, end: int) -> tuple[Int, Int]:
        """Possible descendants of `parents` (depth start) at depth end, in key order, and whose they are."""
        nodes, owner = parents, np.arange(parents.size)
        for depth in range(start, end):
            radix = self.order.digits[depth].radix
            nodes = (nodes[:, None] * radix + np.arange(radix)).ravel()
            owner = np.repeat(owner, radix)
            f, own = self.order.split_by[depth]
            if not self.order.factors[f].whole:
                good = self.order.factors[f].of(own + 1, self._own(nodes, depth + 1, f)) != NONE
                nodes, owner = nodes[good], owner[good]
        return nodes, owner

    def _own(self, nodes: Int, depth: int, factor: int) -> Int:
        """The digits of one factor in the prefixes of nodes at `depth`."""
        out = np.zeros(nodes.size, dtype=np.int64)
        for level in self.order.factors[factor].levels:
            if level < depth:
                radix = self.order.digits[level].radix
                out = out * radix + nodes // self._width(level + 1, depth) % radix
        return out


def _with_children(level: Level, kept: Int, counts: list[int]) -> Level:
    sizes = np.zeros(level.prefix.size, dtype=np.int64)
    sizes[kept] = counts
    first = np.zeros(level.prefix.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=first[1:])
    return Level(level.prefix, level.y, level.x, first)


def _join(parts: list[Level]) -> Level:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Level(empty, empty, np.zeros(0), np.zeros(1, dtype=np.int64))
    offsets = np.cumsum([0, *(int(part.first[-1]) for part in parts)])
    first = np.concatenate([part.first[:-1] + at for part, at in zip(parts, offsets, strict=False)] + [offsets[-1:]])
    return Level(
        np.concatenate([part.prefix for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.x for part in parts]),
        first,
    )
