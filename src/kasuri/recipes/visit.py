"""Measure and visit: noisy counts of chosen levels of a tree, drawn only below nodes that noise left positive.

A cut is a depth of the tree whose nodes are measured: y = count + noise of the level's own scale. From
the top, the first cut is drawn whole and projected on {x >= 0, sum x = max(sum y, 0)}; at every next cut all possible
children of each kept node are drawn, x = max(y - t, 0) with t such that they sum to the parent's x, and a child is kept
iff x > 0, or y > t less some slack. All of it is a function of noisy values (docs/proofs/refined_tree.md), and may be
published.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError
from kasuri.noise.blocks import spread
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.recipes.engine import prefix_sums
from kasuri.trees.order import Order
from kasuri.trees.visited import Level, Visited

TOP_NODES = 1 << 22
"""Most nodes of the first cut, which is drawn whole."""
BLOCKS = 256
"""Blocks are the nodes of the last cut with at most this many; each has its own keystream per level."""


@dataclass(frozen=True, eq=False)
class Visit:
    """What to measure: the tree, the depths of its cuts (the last is the leaves), the scale of each and its slack: a
    node is kept iff y > t - slack * scale (0: iff x > 0; infinite: always). Empty slacks are 0."""

    order: Order
    cuts: tuple[int, ...]
    scales: tuple[Fraction, ...]
    slacks: tuple[float, ...] = ()
    law: type[DiscreteLaplace] | type[DiscreteGaussian] = DiscreteLaplace
    also: tuple[Int, ...] = ()
    """Nodes of each cut that are kept whatever their noise says: public, known before the draw."""

    def __post_init__(self) -> None:
        if list(self.cuts) != sorted(set(self.cuts)) or not self.cuts or self.cuts[-1] != self.order.depth:
            raise DomainError("cuts must be rising depths of the tree that end with its leaves")
        if self.order.nodes(self.cuts[0]) > TOP_NODES:
            raise DomainError(f"the first measured level has more than {TOP_NODES} nodes; measure a higher one too")
        if not self.slacks:
            object.__setattr__(self, "slacks", (0.0,) * len(self.cuts))

    def run(self, keys: Int, values: Int, streams: Streams, threads: int, known: Whole | None = None) -> Visited:
        """Sorted keys and values of the true records -> the visited tree. `known` is a cut that was measured before,
        whole: its numbers stay as they are. Cost: O(m + drawn nodes log fan-out)."""
        sums = prefix_sums(values)
        split = self.split
        top, kept, x = self.top(keys, sums, streams, known)
        roots = top[-1].prefix[kept]
        if split + 1 == len(self.cuts):
            return self._visited(top)
        pieces = min(kept.size, 1 if threads == 1 else 4 * threads)
        edges = [kept.size * i // max(pieces, 1) for i in range(pieces + 1)]

        def some(i: int) -> list[Level]:
            own = slice(edges[i], edges[i + 1])
            return self._below(roots[own], x[own], keys, sums, streams, known)

        parts = spread(some, range(pieces), threads)
        below = [_join([part[i] for part in parts]) for i in range(len(self.cuts) - split - 1)]
        starts = np.searchsorted(below[0].prefix, roots * self.order.width(self.cuts[split], self.cuts[split + 1]))
        top[-1] = _with_children(top[-1], kept, np.diff(starts, append=below[0].prefix.size))
        return self._visited([*top, *below])

    def kept(self, at: int, nodes: Int, kept: Int) -> Int:
        """Which of the rising nodes of a cut are kept: those that noise left, and those that are kept anyway."""
        if not self.also:
            return kept
        return np.union1d(kept, np.flatnonzero(np.isin(nodes, self.also[at], assume_unique=True)))

    @cached_property
    def split(self) -> int:
        """The last cut of the top; its nodes are the roots of the blocks."""
        return max((i for i, cut in enumerate(self.cuts) if self.order.width(0, cut) <= BLOCKS), default=0)

    def top(self, keys: Int, sums: Int, streams: Streams, known: Whole | None = None) -> tuple[list[Level], Int, Float]:
        """The cuts 0..split, which nodes of the last are kept, and their refined sums. Only the sums of the nodes at
        cut `split` count (see `Descent.top`)."""
        return self._levels(keys, sums, np.zeros(1, dtype=np.int64), None, 0, self.split, streams, known)

    def below(
        self, root: int, x: float, keys: Int, sums: Int, streams: Streams, known: Whole | None = None
    ) -> list[Level]:
        """One block: the cuts below the kept node `root` of cut `split`, of refined sum x and with these records."""
        return self._below(np.array([root]), np.array([x]), keys, sums, streams, known)

    def _below(
        self, roots: Int, x: Float, keys: Int, sums: Int, streams: Streams, known: Whole | None = None
    ) -> list[Level]:
        """Some blocks next to one another: what `below` gives for each, level by level for all of them."""
        return self._levels(keys, sums, roots, x, self.split + 1, len(self.cuts) - 1, streams, known)[0]

    def _visited(self, levels: list[Level]) -> Visited:
        return Visited(self.cuts, self.scales, self.slacks, tuple(levels), self.law is DiscreteGaussian)

    def _levels(
        self,
        keys: Int,
        sums: Int,
        roots: Int,
        totals: Float | None,
        start: int,
        end: int,
        streams: Streams,
        known: Whole | None,
    ) -> tuple[list[Level], Int, Float]:
        """The levels of cuts start..end below `roots` (of refined totals, None: the whole tree, unprojected), each a
        block with keystreams of its own, which nodes of the last were kept, and their refined sums."""
        from kasuri._kernels.visit import keep, water

        levels: list[Level] = []
        parents, kept = roots, np.zeros(0, dtype=np.int64)
        for at in range(start, end + 1):
            cut, scale = self.cuts[at], self.scales[at]
            nodes, first = self.order.children(parents, self.cuts[at - 1] if at else 0, cut)
            if known is not None and known.depth == cut:
                y = known.y[np.searchsorted(known.prefix, nodes)]
            else:
                y = self._noise(at, nodes, roots, streams)
                add_counts(self.order, cut, nodes, keys, sums, y)
            if totals is None:
                totals = np.maximum(y.sum(dtype=np.float64, keepdims=True), 0.0)
            x, t = np.zeros(nodes.size), np.empty(parents.size)
            water(y, first, totals, x, t)
            if levels:
                levels[-1] = _with_children(levels[-1], kept, np.diff(first))
            levels.append(Level(nodes, y, x, np.zeros(nodes.size + 1, dtype=np.int64)))
            kept = self.kept(at, nodes, keep(y, first, t, float(self.slacks[at] * scale)))
            parents, totals = nodes[kept], x[kept]
        assert totals is not None
        return levels, kept, totals

    def _noise(self, at: int, nodes: Int, roots: Int, streams: Streams) -> Int:
        """The noise of rising nodes of cut `at`, those below each root from its own keystream."""
        cut, sampler = self.cuts[at], self.law(self.scales[at]).sampler
        out = np.empty(nodes.size, dtype=np.int64)
        edges = np.searchsorted(nodes, roots * self.order.width(self.cuts[self.split], cut)).tolist()
        for block, low, high in zip(roots.tolist(), edges, [*edges[1:], nodes.size], strict=True):
            sampler.draw_into(streams.open("noise", cut, block), out[low:high])
        return out


@dataclass(frozen=True, eq=False)
class Whole:
    """One level measured for all its possible nodes, before anything else is decided."""

    depth: int
    scale: Fraction
    prefix: Int
    y: Int


def measure_whole(order: Order, depth: int, scale: Fraction, keys: Int, values: Int, streams: Streams) -> Whole:
    """The noisy counts of every possible node at `depth`, from a keystream of their own."""
    nodes, _ = order.children(np.zeros(1, dtype=np.int64), 0, depth)
    y = DiscreteLaplace(scale).sampler.draw(streams.open("pilot", depth, 0), nodes.size)
    add_counts(order, depth, nodes, keys, prefix_sums(values), y)
    return Whole(depth, scale, nodes, y)


def add_counts(order: Order, depth: int, nodes: Int, keys: Int, sums: Int, noise: Int) -> None:
    """Add the true sums below rising `nodes` of `depth` to their noise."""
    from kasuri._kernels.visit import add_range_sums

    add_range_sums(keys, sums, nodes, order.stride(depth), noise)


def _with_children(level: Level, kept: Int, counts: Int) -> Level:
    sizes = np.zeros(level.prefix.size, dtype=np.int64)
    sizes[kept] = counts
    first = np.zeros(level.prefix.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=first[1:])
    return Level(level.prefix, level.y, level.x, first)


def _join(parts: list[Level]) -> Level:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Level(empty, empty, np.zeros(0), np.zeros(1, dtype=np.int64))
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(int(part.first[-1]) for part in parts)])
    first = np.concatenate([part.first[:-1] + at for part, at in zip(parts, offsets, strict=False)] + [offsets[-1:]])
    return Level(
        np.concatenate([part.prefix for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.x for part in parts]),
        first,
    )
