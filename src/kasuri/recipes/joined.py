"""Trees that are joined as a whole, cut for a cluster: measured block by block, refined where all noisy numbers are.

What is measured first, and what it chooses, comes before the cut. Runs of one machine draw through the same values, so
a cluster has their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np

from kasuri.arrays import Int
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import discrete_laplace
from kasuri.recipes.mechanism import Drawn, Words
from kasuri.recipes.visit import Visit, Whole
from kasuri.trees.order import Order
from kasuri.trees.partition import Partition
from kasuri.trees.visited import Visited


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over groups of leaves, measured whole: `of` tells the group of each key (negative: none), `noisy` makes the
    numbers from the true sums of all groups."""

    groups: int
    of: Callable[[Int], Int]
    noisy: Callable[[Int, Streams], Int]

    def sums(self, keys: Int, values: Int) -> Int:
        """The true sum of every group."""
        out, group = np.zeros(self.groups, dtype=np.int64), self.of(keys)
        np.add.at(out, group[group >= 0], values[group >= 0])
        return out


def tally(tree: Order, part: Partition, scale: Fraction, place: tuple[str, int, int]) -> Tally:
    """The sums of a partition's groups, each with noise of its own, from the keystream of that place."""

    def noisy(sums: Int, streams: Streams) -> Int:
        return discrete_laplace(scale).draw(streams.open(*place), part.groups) + sums

    return Tally(part.groups, partial(part.of_keys, tree), noisy)


@dataclass(frozen=True, eq=False)
class JoinedBlocks:
    """Executors measure the cuts below the top, block by block; every part is measured whole, from the sums of its
    groups; `finish` sees noisy numbers alone. `known`: a cut that was measured before. `scales`: those of the cuts and
    parts, by their levels among the measurements. `words`: what a choice after the charge adds to the recipe's."""

    visit: Visit
    scales: Mapping[int, Fraction]
    finish: Callable[[Visited, Sequence[Int]], Drawn]
    parts: tuple[Tally, ...] = ()
    known: Whole | None = None
    words: Words = field(default_factory=dict)

    def measured(self, keys: Int, values: Int, streams: Streams, threads: int) -> tuple[Visited, list[Int]]:
        """The noisy numbers, all measured at one place from the rising keys of the true records and their values."""
        tree = self.visit.run(keys, values, streams, threads, self.known)
        return tree, [part.noisy(part.sums(keys, values), streams) for part in self.parts]


@dataclass(frozen=True, eq=False)
class ChosenBlocks:
    """`pilot`, where there is one, is measured first; `choose` sees its noisy numbers alone. `visits`: all that may be
    chosen, of one tree."""

    visits: tuple[Visit, ...]
    pilot: Tally | None
    choose: Callable[[Int | None, Streams], JoinedBlocks]

    def chosen(self, keys: Int, values: Int, streams: Streams) -> JoinedBlocks:
        """Measured and chosen at one place."""
        numbers = None if self.pilot is None else self.pilot.noisy(self.pilot.sums(keys, values), streams)
        return self.choose(numbers, streams)


def settled(cut: JoinedBlocks) -> ChosenBlocks:
    """Nothing to choose."""
    return ChosenBlocks((cut.visit,), None, lambda numbers, streams: cut)
