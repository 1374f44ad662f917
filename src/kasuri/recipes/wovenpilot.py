"""woven_tree, and its pilot: the sums of one level are measured first, and choose how the rest of epsilon is spent.

Each choice is a run of `woven_tree` with the pilot as its first part and every other share scaled to what the pilot
leaves: whatever is chosen, the shares sum to 1. The choice reads the pilot's noisy numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, log
from typing import Any, Literal

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, decimal, exact
from kasuri.published.measurements import Measurements
from kasuri.recipes.joined import JoinedBlocks, Tally, tally
from kasuri.recipes.mechanism import Mechanism, Words
from kasuri.recipes.views import View, Woven
from kasuri.recipes.woven import BASIS, FIRST_PART, WovenRun, WovenTree, every_cell
from kasuri.recipes.wovenchoice import ChoiceRun
from kasuri.recipes.wovenlook import LOOK, LookedTree
from kasuri.schema import Domain, Unit
from kasuri.schema.maps import RegionMap
from kasuri.trees.partition import Partition
from kasuri.trees.regions import leaves_below
from kasuri.trees.visited import LEAST_SCALE

SHARE, LESS = Fraction(3, 100), Fraction(1, 100)
"""The pilot's part of epsilon up to epsilon 1, and above: where every cell is measured with the rest, the mean error of
its noise is at most 1.05 of that of plain noise."""
WIDE = 512
"""Where every cell is measured, a pilot of sums of fewer cells than this adds nothing to what their noisy sums say."""
NODES = 64
"""The pilot is the level of the tree with about so many nodes: fewer tell little of where people are, more are lost in
the noise of so small a share."""
ALL_HEIGHTS = 3
"""Which sums are held where every cell is measured."""
LEVELS, MIDDLE, WHOLE = "levels", "middle", "whole"
SPARSE, FULL = 0.25, 0.5
"""By `fullness`: up to the first the shares are those of levels and margins, from the second on every cell is measured;
between them the cells have CELLS of epsilon. On the tables that these were chosen on (benchmarks/tables.py, seed 0,
epsilon 0.003 to 1) levels became worse than plain noise somewhere from 0.29 on, the middle from 0.5 on."""
CELLS = Fraction(3, 5)


def woven_tree(
    views: Mapping[str, object] | None = None,
    *,
    shares: Mapping[str, object] | None = None,
    maps: Sequence[RegionMap] = (),
    whole: bool = False,
    pilot: bool | Literal["cells"] = False,
) -> Mechanism:
    """Noisy counts of a tree and of any other declared sums of the same cells, joined: margins, regions, pairs.

    views: {view: wished standard error in people}; only the ratios of the errors decide, shares of epsilon follow by a
    closed form. A view names axes ("age, sex"), heights of axes ("grid@3": squares of 8 x 8), regions of a map by its
    name, or "cells". Left out: cells, every height of the tree, every axis by itself, all small axes together.
    shares: {view: "exact decimal"} instead, "cells" among them, summing to 1. maps: public maps of one axis' cells.
    The tree splits axes of one kind together (pairs of regions, of squares); views that are its levels are measured
    there, and only below nodes that noise left positive; every other view is measured whole.
    whole=True, for tables of at most 2^22 cells: every cell is measured, by itself unless views or shares name more;
    sums of the noisy cells then take the part of measured levels. About plain noise on full tables, and better the
    emptier they are.
    pilot=True, for tables of at most as many cells, without views, shares and maps: some sums are measured first, with
    0.03 of epsilon, and choose between whole=True and what is left out above. They stay a measurement.
    pilot="cells", for the same tables: the cells are looked at first under the noise of a quarter of epsilon. Where
    they are told well enough the rest of epsilon goes to sums; else noise is taken off them, and they are looked at
    under that of more of epsilon, or nearly all of it. The look costs nothing beside what is published.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured partition's counts change by c in all
    (replace: 2c), c = counts a unit adds: a cell lies in one group of each at most. Guarantee: epsilon-DP, exactly: the
    partitions' shares add up to epsilon, the pilot's among them. Proof: docs/proofs/woven_tree.md. Public: domain,
    mask, views, shares, maps. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + drawn nodes + groups) for m records, some dozens of passes over the drawn nodes. References:
    [Hay2010], [Robbins1956], [Xiao2023].
    """
    faults: list[str] = []
    if views is not None and shares is not None:
        faults.append("woven_tree: give views with wished errors, or shares, only one of them")
    given = views if views is not None else shares
    named: list[tuple[str, Fraction]] = []
    if given is not None:
        if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
            faults.append('woven_tree: views and shares are mappings such as {"cells": "12", "age, sex": "60"}')
        else:
            for name, number in given.items():
                try:
                    named.append((name, exact(number, f"view {name!r}")))
                except KasuriError as fault:
                    faults.append(f"woven_tree: {fault}")
    if shares is not None and not faults and sum(share for _, share in named) != 1:
        faults.append("woven_tree: shares must sum to exactly 1: their sum is what epsilon pays for")
    if not all(isinstance(one, RegionMap) for one in maps):
        faults.append("woven_tree: maps must be declared public: RegionMap(axis, labels, name=...)")
    if not isinstance(whole, bool):
        faults.append("woven_tree: whole is True or False")
    if not (isinstance(pilot, bool) or pilot == LOOK) or (pilot and (given is not None or maps or whole)):
        faults.append(
            'woven_tree: pilot is True, False or "cells", and chooses by itself: no views, shares, maps or whole=True'
        )
    raise_faults(PrivacyError, faults)
    if pilot == LOOK:
        return LookedTree("woven_tree", BASIS)
    if pilot:
        return PilotedTree("woven_tree", BASIS)
    bare = tuple(one.without_places for one in maps)
    return WovenTree("woven_tree", BASIS, tuple(named), shares is not None, bare, whole)


def fullness(sums: Float, cells: Int, scale: float) -> float:
    """How far the cells of an average block stand out of plain noise: the mean of r / (1 + r) over all cells, r a
    block's mean count per cell over the mean absolute error of plain noise. 0: nothing does; 1: every cell does."""
    a = exp(-1 / scale)
    r = sums / cells / (2 * a / (1 - a * a))
    return float((cells * (r / (1 + r))).sum() / cells.sum())


@dataclass(frozen=True)
class PilotedTree(Mechanism):
    """`held`: see `wovenviews.anchored`."""

    held: int = ALL_HEIGHTS

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "counts", "noise": DiscreteLaplace.name, "refine": "woven", "order": "interleaved",
            "descent": "plain", "shares": "pilot", "held": self.held,
        }  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> PilotedRun:
        every_cell(domain)
        parts = (self.name, self.basis, (), False, ())
        plain = {LEVELS: WovenTree(*parts, crossed=True), WHOLE: WovenTree(*parts, whole=True, held=self.held)}
        runs = {name: mechanism.run(domain, unit, epsilon) for name, mechanism in plain.items()}
        weave = runs[LEVELS].weave
        view = _pilot(weave)
        if view is None:
            raise DomainError(
                "woven_tree(pilot=True): this table has no level between its total and its cells that could choose; "
                "use whole=True"
            )
        pilot = weave.partition(view)
        claim, one, sizes = runs[LEVELS].guarantee, runs[LEVELS], _sizes(weave, view, pilot)
        choices = {name: _with(run, pilot, SHARE if claim.epsilon <= 1 else LESS) for name, run in runs.items()}
        choices[LEVELS] = replace(choices[LEVELS], everywhere=True)
        choices[MIDDLE] = _on_cells(choices[LEVELS])
        if sizes.mean() < WIDE:
            choices[WHOLE] = replace(choices[WHOLE], beside=1)
        return PilotedRun(self, domain, claim, one.cost, one.noise, one.tree, choices, sizes)


def _pilot(weave: Woven) -> View | None:
    """The sums that are measured first: the level of the tree nearest to NODES nodes; None where it has none."""
    stages = sorted(weave.tree.stages[1:-1], key=lambda depth: (abs(log(weave.tree.nodes(depth) / NODES)), depth))
    return next((view for depth in stages if (view := weave.view_at(depth))), None)


def _sizes(weave: Woven, view: View, pilot: Partition) -> Int:
    """The possible cells of every sum of the pilot."""
    depth = weave.cut(view)
    assert depth is not None
    nodes, _ = weave.tree.children(np.zeros(1, dtype=np.int64), 0, depth)
    touched = pilot.of_nodes(weave.tree, depth, nodes)
    out = np.zeros(pilot.groups, dtype=np.int64)
    out[touched.group[touched.first[touched.klass]]] = leaves_below(weave.tree, depth, nodes)
    return out


def _with(run: WovenRun, pilot: Partition, first: Fraction) -> WovenRun:
    """The same run with the pilot as its first part, and every share scaled to what that leaves."""
    rest = 1 - first
    cuts = tuple((depth, share * rest) for depth, share in run.cuts)
    return replace(run, cuts=cuts, parts=((pilot, first), *((part, share * rest) for part, share in run.parts)))


def _on_cells(run: WovenRun) -> WovenRun:
    """The same run with CELLS on the cells, where they have less; all shares but the pilot's give for it."""
    (last, own), first = run.cuts[-1], run.parts[0]
    if own >= CELLS:
        return run
    rest = (1 - first[1] - CELLS) / (1 - first[1] - own)
    cuts = (*((depth, share * rest) for depth, share in run.cuts[:-1]), (last, CELLS))
    return replace(run, cuts=cuts, parts=(first, *((part, share * rest) for part, share in run.parts[1:])))


@dataclass(frozen=True, eq=False)
class PilotedRun(ChoiceRun):
    mechanism: PilotedTree
    sizes: Int

    def arguments(self) -> dict[str, Any]:
        return {"pilot": True, "held": self.mechanism.held}

    @property
    def _pilot(self) -> Partition:
        return self.choices[WHOLE].parts[0][0]

    def first(self) -> Tally:
        return tally(self.tree, self._pilot, self.choices[WHOLE].part_scale(0), ("pilot", 0, 0))

    def taken(self, y: Int, streams: Streams) -> JoinedBlocks:
        words = self._rule(y)
        return self.choices[words["preset"]].joined((y,), words)

    def _rule(self, y: Int) -> dict[str, Any]:
        """What the pilot's noisy numbers choose, and why, as a release says it."""
        from kasuri._kernels.visit import water

        pilot, scale = self._pilot, float(max(self.noise.scale, LEAST_SCALE))
        x, total = np.zeros(y.size), np.maximum(y.sum(dtype=np.float64, keepdims=True), 0.0)
        water(y, np.array([0, y.size]), total, x, np.empty(1))
        found = fullness(x, self.sizes, scale)
        preset = LEVELS if found < SPARSE else MIDDLE if found < FULL else WHOLE
        source = f"pilot: {pilot.name}, measured first; fullness {found:.2f}, limits {SPARSE} and {FULL}"
        share = decimal(self.choices[WHOLE].parts[0][1])
        charged = f"{share} of epsilon, within the total; the pilot stays a measurement"
        shares = self.choices[preset].further()["shares"]
        return {"preset": preset, "tuning": {"source": source, "charged": charged}, "shares": shares}

    def retold(self, words: Words, measurements: Measurements | None) -> tuple[dict[str, Any], list[str]]:
        """The rule once more."""
        if words.get("preset") not in self.choices:
            raise FormatError("the preset is not among the choices")
        if measurements is None:  # a table too large to be replayed
            told = {name: words.get(name) for name in ("preset", "tuning")}
            shares = self.choices[str(words["preset"])].further()
            return self.words() | told | shares, ["why the preset was chosen: the measurements were not read"]
        own = measurements.level == FIRST_PART
        if not np.array_equal(measurements.prefix[own], np.arange(self._pilot.groups)):
            raise FormatError("the pilot is not measured whole")
        return self.words() | self._rule(measurements.value[own]), []
