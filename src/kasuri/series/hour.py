"""Hour: one slot of a series as it is published, and the run that draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, isqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError
from kasuri.noise.rng import Streams
from kasuri.published.measurements import Measurements
from kasuri.published.release import Release
from kasuri.recipes.counttree import CountTreeRun, measured
from kasuri.recipes.descent import by_cell, by_key
from kasuri.recipes.joins import variances
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.replay import visited
from kasuri.recipes.visit import Visit
from kasuri.refine.filter import VERSION, Estimate, Measured, Shape

WHOLE = 1 << 20
"""Trees of at most so many leaves are drawn whole; larger ones where noise or earlier slots leave something."""
FLAGGED = 0.5


@dataclass(frozen=True, eq=False)
class SlotRun(CountTreeRun):
    """A run that draws more nodes than its recipe would: all of a small tree, those that earlier slots want of a large
    one. The price of a level does not depend on how many of its nodes are drawn."""

    also: tuple[Int, ...] = ()

    @classmethod
    def of(cls, run: CountTreeRun, also: tuple[Int, ...] = ()) -> SlotRun:
        given = {one.name: getattr(run, one.name) for one in fields(run)}
        return cls(**given | {"also": also})

    @property
    def visit(self) -> Visit:
        own = super().visit
        if own.order.leaves <= WHOLE:
            return replace(own, slacks=(inf,) * len(own.cuts))
        return replace(own, also=self.also)

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        """The noisy counts alone: what becomes of them sees nothing else."""
        keys, values = by_key(self.tree, self.domain, cells, values)
        found = self.visit.run(keys, values, streams, threads)
        del keys, values
        none = np.zeros(0, dtype=np.int64)
        return Drawn(none, none, measured(found))


def shape_of(run: CountTreeRun, rows: int, version: int = VERSION) -> Shape:
    """What the filter knows of the tree; DomainError where the whole is not measured."""
    visit, order = run.visit, run.tree
    if visit.cuts[0] != 0:
        raise DomainError('a series measures the whole area too: use shares="series", or name the top height')
    widths = (1, *(order.width(a, b) for a, b in zip(visit.cuts[:-1], visit.cuts[1:], strict=True)))
    sides = run.domain.shape
    square = run.domain.one_mesh and len(sides) == 2 and order.mixed and run.squares
    square = square and (sides[0] - 1).bit_length() == (sides[1] - 1).bit_length()
    square = square and not run.domain.axes[0].elsewhere  # which is beside the squares
    grids: list[tuple[int, int] | None] = []
    for cut in visit.cuts:
        stride = order.stride(cut)
        side = isqrt(stride)
        fits = square and side * side == stride
        most = isqrt(order.leaves) // side
        grids.append((most, most) if fits else None)
    noise = tuple(variances(visit.scales, visit.law))
    return Shape(noise, widths, tuple(grids), run.normal is not None, rows, version)


def levels_of(run: CountTreeRun, numbers: Measurements) -> list[Measured]:
    """Published numbers as the filter takes them, level by level."""
    cuts = run.visit.cuts
    parts = [numbers.level == cut for cut in cuts]
    prefixes = [numbers.prefix[part] for part in parts]
    out = []
    for at, part in enumerate(parts):
        if at + 1 < len(cuts):
            parents = prefixes[at + 1] // run.tree.width(cuts[at], cuts[at + 1])
            first = np.append(np.searchsorted(parents, prefixes[at]), parents.size)
        else:
            first = np.zeros(prefixes[at].size + 1, dtype=np.int64)
        out.append(Measured(prefixes[at], numbers.value[part].astype(np.float64), first))
    return out


@dataclass(frozen=True, repr=False, eq=False)
class Hour(Release):
    """One slot of a series: a release whose values were filtered with the slots published before it.

    Its intervals are made from the slot's own noisy numbers, around the filtered value: they hold whatever the model
    of the filter is worth. `spread` is that model's standard error per released cell: narrower, and not a promise (of
    blocks of cells it covers less than it says). `flags` are places that depart from their profile.
    """

    slot: str = field(default="", kw_only=True)
    status: str = field(default="first", kw_only=True)
    spread: Float = field(default_factory=lambda: np.zeros(0), kw_only=True)
    flags: tuple[Mapping[str, Any], ...] = field(default=(), kw_only=True)

    def alone(self) -> Release:
        """The slot by itself: its recipe on its own numbers, as if there had been no slot before."""
        from kasuri.recipes.read import read

        unit, epsilon = self.guarantee.unit, self.guarantee.epsilon
        run = read(self.recipe, self.domain, unit, epsilon).counted()
        if run is None or self.measurements is None:
            raise DomainError("a slot by itself is made from its noisy counts, which this release does not have")
        numbers = _own(run, self.measurements)
        keys, values = run.join.refine(visited(run.visit, numbers), run.tree, self.domain)
        cells, values = by_cell(run.tree, self.domain, [(keys, values)])
        return Release(self.domain, cells, values, numbers, self.guarantee, self.recipe, self.provenance, self.receipt)


def _own(run: CountTreeRun, numbers: Measurements) -> Measurements:
    """Those of a slot's numbers that the recipe would have drawn by itself."""
    from kasuri._kernels.visit import keep, water

    visit = run.visit
    parents, totals, above = np.zeros(1, dtype=np.int64), np.zeros(0), 0
    level: list[Int] = []
    taken: list[Int] = []
    for at, (cut, scale, slack) in enumerate(zip(visit.cuts, visit.scales, visit.slacks, strict=True)):
        own = np.flatnonzero(numbers.level == cut)
        nodes, first = visit.order.children(parents, above, cut)
        places = own[np.searchsorted(numbers.prefix[own], nodes)]
        y = numbers.value[places]
        totals = np.maximum(y.sum(dtype=np.float64, keepdims=True), 0.0) if at == 0 else totals
        x, t = np.zeros(nodes.size), np.empty(parents.size)
        water(y, first, totals, x, t)
        kept = keep(y, first, t, float(slack * scale))
        level.append(np.full(nodes.size, cut))
        taken.append(places)
        parents, totals, above = nodes[kept], x[kept], cut
    picked = np.concatenate(taken)
    return Measurements(np.concatenate(level), numbers.prefix[picked], numbers.value[picked], numbers.scale)


def to_cells(run: CountTreeRun, levels: list[Measured], found: list[Estimate]) -> tuple[Int, Int, Float]:
    """Rising cells, filtered values that are not 0, and the model's standard errors of them."""
    whole, keep = found[-1].whole, found[-1].whole > 0
    keys = levels[-1].prefix[keep]
    cells = run.tree.cells(keys)
    by = np.argsort(cells, kind="stable")
    return cells[by], whole[keep][by], np.sqrt(found[-1].f[keep])[by].astype(np.float32)


def flagged(run: CountTreeRun, levels: list[Measured], found: list[Estimate]) -> tuple[Mapping[str, Any], ...]:
    """Nodes above the cells that depart from their profile: how many cells they have, where they begin, how surely."""
    out = []
    for at, (cut, level, one) in enumerate(zip(run.visit.cuts, levels, found, strict=True)):
        if at == 0 or at == len(levels) - 1:
            continue
        for node in np.flatnonzero(one.flag > FLAGGED)[:64]:
            stride = run.tree.stride(cut)
            start = run.tree.cells(np.array([level.prefix[node] * stride]))
            corner = [int(index[0]) for index in run.domain.unravel(start)]
            told = {"cells": stride, "corner": corner, "weight": round(float(one.flag[node]), 3)}
            out.append(MappingProxyType(told | {"value": int(one.whole[node])}))
    return tuple(out)
