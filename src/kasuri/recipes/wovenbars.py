"""Limits of areas from the raw numbers of a tree and of its parts together (WovenBars); sees no refined value.

With x_T, C the least-squares estimate of the tree by itself and its covariance, and l as in `refine.fuse` but without
sign constraint or prior, the joint estimate of an area w is x_T(w) + (B C w)'l, of variance
w'C w - (B C w)'K^-1 (B C w), K = B C B' + diag s2. Which numbers speak for an area is decided by variances, which are
public, never by values. Where the parts add little, limits are those of the tree (docs/proofs/intervals.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.published import bounds
from kasuri.published.bars import Bounds, CountBars, Values
from kasuri.published.bounds import factor
from kasuri.refine.fuse import Drawn, Incidence, dot, solve
from kasuri.refine.woven import Part
from kasuri.trees.regions import Boxes, Sets, leaves_below
from kasuri.trees.visited import Level, Visited

JOINED = 2000
"""Most areas of one question that are joined: each takes a solution by conjugate gradients."""
STEPS = 1 << 22
"""Most areas times drawn nodes of such a question; one area is always joined. A page asks dozens of questions."""
CLOSE = 1e-7
BETTER = 0.8
"""Parts speak for an area where they lower its variance at least to so much of the tree's: then most of what is said is
said by numbers that were drawn whatever they are, and not by those that noise selected."""


@dataclass(frozen=True, eq=False)
class WovenBars(CountBars):
    """Counts of chosen levels and of parts."""

    parts: tuple[Part, ...]
    what: ClassVar[str] = "counts and parts"

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        found = super().of_boxes(boxes, values, level)
        if not self.parts or boxes.count > JOINED or boxes.count * self._joint.v.size > STEPS:
            return found
        cells, region = boxes.all_cells(self.domain)
        return self._joined(found, self.tree.keys(cells), region, boxes.count, level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        found = super().of_area(cells, values, level)
        if not self.parts:
            return found
        return self._joined(found, self.tree.keys(cells), np.zeros(cells.size, dtype=np.int64), 1, level)

    def _joined(self, alone: Bounds, keys: Int, region: Int, count: int, level: float) -> Bounds:
        joint, c = self._joint, factor(level)
        lower, upper, middle = (part.copy() for part in alone)
        unit = joint.find(keys)
        for area in range(count):
            own = unit[region == area]
            weight = np.bincount(own[own >= 0], minlength=joint.drawn.start.size) / joint.possible
            plain, variance, shift = joint.spreads(weight)
            if not 0 < variance < BETTER * plain:
                continue
            cut = (weight > 0) & (weight < 1)
            mean, spread, part = joint.mean[cut], joint.spread[cut], weight[cut]
            x = np.array([dot(weight, joint.x) + shift])
            more = float(((1 - part) * mean).sum())
            wide = c * np.sqrt(variance + float(((1 - part) ** 2 * spread).sum()))
            low = c * np.sqrt(variance + float((part**2 * spread).sum())) + float((part * mean).sum())
            middle[area] = x[0]
            upper[area] = more + bounds.above(x, np.array([wide]))[0]
            lower[area] = min(max(x[0] - low, 0.0), upper[area])
        return lower, upper, middle

    @cached_property
    def _joint(self) -> _Joint:
        return _Joint.of(self)


@dataclass(frozen=True, eq=False)
class _Joint:
    """The drawn tree of raw numbers with its parts: estimates and variances by node, flat."""

    tree: Any
    drawn: Drawn
    incidence: Incidence
    v: Float
    x: Float
    mean: Float
    spread: Float
    possible: Float
    v0: float
    s2: Float
    potentials: Float

    @classmethod
    def of(cls, bars: WovenBars) -> _Joint:
        found = bars.plain
        levels = [Level(level.prefix, np.zeros(level.x.size, dtype=np.int64), level.x, level.first)
                  for level in found.levels]  # fmt: skip
        visited = Visited(found.depths, (), (), tuple(levels))
        drawn = Drawn.of(visited)
        incidence = Incidence.of([part.partition for part in bars.parts], drawn, visited, bars.tree)
        v, x, mean, spread = (
            np.concatenate([getattr(level, name) for level in found.levels]) for name in ("v", "x", "mean", "spread")
        )
        possible = np.concatenate(
            [leaves_below(bars.tree, depth, level.prefix) for depth, level in zip(found.depths, levels, strict=True)]
        )
        y = np.concatenate([part.y for part in bars.parts]).astype(np.float64)
        s2 = np.concatenate([np.full(part.y.size, part.variance) for part in bars.parts])
        v0 = float(found.levels[0].v.sum())
        self = cls(found, drawn, incidence, v, x, mean, spread, np.maximum(possible, 1.0), v0, s2, np.zeros(y.size))
        potentials = self._solve(y - incidence.of_groups(x))
        return cls(found, drawn, incidence, v, x, mean, spread, np.maximum(possible, 1.0), v0, s2, potentials)

    def _solve(self, right: Float) -> Float:
        def system(numbers: Float) -> Float:
            spread = self.drawn.covariance(self.v, self.v0, self.incidence.of_units(numbers, self.v.size))
            return self.incidence.of_groups(spread) + self.s2 * numbers

        inverse = 1 / (self.incidence.of_groups(self.v, square=True) + self.s2)
        return solve(system, right, inverse, CLOSE)

    def find(self, keys: Int) -> Int:
        """The unit that holds each leaf, by its number among all nodes; -1 where none was drawn around it."""
        out, before = np.full(keys.size, -1, dtype=np.int64), 0
        for at, (depth, level) in enumerate(zip(self.tree.depths, self.tree.levels, strict=True)):
            place = self.tree.find(at, keys // self.tree.order.stride(depth))
            out = np.where(place >= 0, place + before, out)
            before += level.x.size
        return out

    def spreads(self, weight: Float) -> tuple[float, float, float]:
        """The variance of an area by the tree alone and by all together, and what the parts add to its estimate; by the
        tree alone twice where the parts cannot be BETTER: K is at least diag s2, so K^-1 takes no more than its
        inverse."""
        spread = self.drawn.covariance(self.v, self.v0, weight)
        plain = dot(weight, spread)
        across = self.incidence.of_groups(spread)
        if plain - dot(across, across / self.s2) >= BETTER * plain:
            return plain, plain, 0.0
        return plain, plain - dot(across, self._solve(across)), dot(across, self.potentials)
