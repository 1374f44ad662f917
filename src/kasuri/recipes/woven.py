"""Woven: one visited tree and any other public partitions of the cells, measured and joined (woven_tree)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, sqrt
from typing import Any, ClassVar

import numpy as np

from kasuri.arrays import Float
from kasuri.budget.accounting import Losses, generic
from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.noise.evidence import Chances
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import laplace_variance
from kasuri.privacy import Exact, decimal, written
from kasuri.published.bars import Bars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes import spread
from kasuri.recipes.descent import by_cell, by_key
from kasuri.recipes.joined import ChosenBlocks, JoinedBlocks, Tally, settled, tally
from kasuri.recipes.joins import Bayes, Cuts, visit_of
from kasuri.recipes.mechanism import (
    AreaError,
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    Replay,
    Run,
    TreeRun,
    Words,
    scale_of,
    single,
)  # fmt: skip
from kasuri.recipes.replay import WRONG_SCALE, apart, visited
from kasuri.recipes.spending import drawable, fits, level_cost
from kasuri.recipes.targets import PARTS
from kasuri.recipes.views import MAX_GROUPS, View, Woven, map_faults
from kasuri.recipes.visit import Visit, Whole
from kasuri.recipes.wovenbars import WovenBars
from kasuri.recipes.wovenviews import ANCHORED, HELD, anchored, crossed, every, least_squares, planned, standard
from kasuri.refine import woven
from kasuri.refine.fuse import Drawn as Nodes
from kasuri.refine.fuse import Incidence, solve
from kasuri.schema import Domain, Unit
from kasuri.schema.maps import RegionMap
from kasuri.trees.partition import Partition
from kasuri.trees.visited import LEAST_SCALE, Level, Visited
from kasuri.trees.weave import interleaved

BASIS = "docs/proofs/woven_tree.md"
ROUNDED = Fraction(2, PARTS)
FIRST_PART = -2
"""Level of the first part among the measurements; the second is one below, and so on."""
WIDE = 1 << 28
"""Sums over the axes of a table with more cells than this take long to plan."""


@dataclass(frozen=True)
class WovenTree(Mechanism):
    """`named`: views with wished errors, or with shares where `fixed`; empty: those of the domain by itself. `whole`:
    the cells are the only level of the tree that is measured as such; all other views are parts. `held`: see
    `wovenviews.anchored`. `crossed`: without views, those of `wovenviews.crossed`."""

    named: tuple[tuple[str, Fraction], ...]
    fixed: bool
    maps: tuple[RegionMap, ...]
    whole: bool = False
    held: int = HELD
    crossed: bool = False

    def stored(self) -> dict[str, Any]:
        told = tuple((name, decimal(number)) for name, number in self.named)
        return {
            "transform": "counts", "noise": DiscreteLaplace.name, "refine": "woven", "order": "interleaved",
            "descent": "plain", "shares": told if self.fixed else (), "views": () if self.fixed else told,
            "maps": tuple((one.name, one.fingerprint()) for one in self.maps),
        } | whole_words(self.whole, self.held)  # fmt: skip

    def long(self, domain: Domain) -> bool:
        return len(domain.axes) > 1 and domain.size > WIDE

    @property
    def declared(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.maps)

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> WovenRun:
        public = tuple(f"map {one.name} (regions)" for one in self.maps)
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace, public)
        raise_faults(DomainError, map_faults(domain, self.maps))
        weave, cost = Woven(domain, interleaved(domain), self.maps), level_cost(unit)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        if self.whole:
            every_cell(domain)
        spent = self._spent(weave)
        if sum(spent.values()) != 1 or min(spent.values()) <= 0:
            raise PrivacyError("shares are positive and sum to exactly 1: their sum is what epsilon pays for")
        depths = {view: self._cut(weave, view) for view in spent}
        cuts = tuple(sorted((depth, spent[view]) for view, depth in depths.items() if depth is not None))
        if not cuts or cuts[-1][0] != weave.tree.depth:
            raise DomainError('woven_tree: the cells must have a share; add the view "cells"')
        parts = tuple((weave.partition(view), share) for view, share in spent.items() if depths[view] is None)
        drawable(weave.tree, cuts)
        run = WovenRun(self, domain, claim, cost, noise, weave.tree, weave, cuts, parts)
        fits(run.visit)
        return run

    def _cut(self, weave: Woven, view: View) -> int | None:
        """The depth of the tree that a view is measured at; None: as a part."""
        depth = weave.cut(view)
        return None if self.whole and depth != weave.tree.depth else depth

    def _spent(self, weave: Woven) -> dict[View, Fraction]:
        """Every measured view with its share."""
        faults: list[str] = []
        views: dict[View, Fraction] = {}
        above: dict[View, Fraction] = {}
        for name, number in self.named:
            try:
                view = weave.view(name)
            except DomainError as fault:
                faults.append(f"woven_tree: {fault}")
                continue
            if not self.fixed and name.strip() != "cells" and "@" not in name:
                above |= dict.fromkeys(weave.heights(view), number)
                view = view if view not in views else weave.view("cells")
            elif view in views:
                faults.append(f"woven_tree: view {name!r} is named twice")
            views.setdefault(view, number)
        raise_faults(DomainError, faults)
        if self.fixed:
            return views
        if self.whole and not views:
            return {weave.view("cells"): Fraction(1)}
        return planned(weave, above | views or dict.fromkeys(crossed(weave) if self.crossed else (), Fraction(0)))


def every_cell(domain: Domain) -> None:
    """DomainError for a table of too many cells to draw every one of them; to be asked before much is planned."""
    if domain.size > MAX_GROUPS:
        raise DomainError(
            f"woven_tree(whole=True) draws every one of {domain.size} cells; it takes at most {MAX_GROUPS}. "
            "Leave whole out: then only what noise left positive is descended"
        )


WORSE = 1.05
"""A view whose error is so many times that of plain noise is warned of."""
FULL = Fraction(3, 10)
"""A declared share of non-empty cells from which a table counts as full."""
MANY_CELLS = 1 << 15
"""Drawn cells from which errors of sums are told by least squares: their own would take minutes."""
TIGHT = 8.0
"""How many times more exactly than the variance of that: with 1 some margins had 1.3 of the error of plain noise."""


def whole_words(whole: bool, held: int) -> dict[str, Any]:
    """Told where it is asked for: what was stored before there were the words never changes."""
    return ({"whole": True} | ({"held": held} if held > 1 else {})) if whole else {}


@dataclass(frozen=True, eq=False)
class WovenRun(TreeRun):
    mechanism: WovenTree
    weave: Woven
    cuts: Cuts
    parts: tuple[tuple[Partition, Fraction], ...]
    beside: int = 0
    """So many of the first parts are measured, but not joined: they only chose."""
    everywhere: bool = False
    """Is every node descended, whatever its noise says?"""
    few: bool = False
    """Do levels of few nodes say how far the sums below them are off (`bayes.upward`)?"""
    by_form: bool = False
    """Are the errors of sums told by least squares, where they are held or more than MANY_CELLS are drawn?"""
    damped: bool = False
    """As `fuse` has it."""
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    publishes: ClassVar[bool] = True

    @property
    def losses(self) -> Losses:
        """One count moves one number of every measured partition, each under noise of its own share."""
        epsilon = self.guarantee.epsilon
        if not single(self.guarantee.unit):
            return generic(epsilon)
        return tuple((share * epsilon, 1) for _, share in (*self.cuts, *self.parts))

    @property
    def visit(self) -> Visit:
        return visit_of(self.tree, self.noise.scale, self.cuts, Bayes(), self.tree.depth if self.everywhere else None)

    def part_scale(self, at: int) -> Fraction:
        return self.noise.scale / self.parts[at][1]

    def arguments(self) -> dict[str, Any]:
        told = {name: decimal(number) for name, number in self.mechanism.named}
        maps = {"maps": [one.to_json() for one in self.mechanism.maps]} if self.mechanism.maps else {}
        return (
            {"shares" if self.mechanism.fixed else "views": told}
            | maps
            | whole_words(self.mechanism.whole, self.mechanism.held)
        )

    def fingerprints(self) -> dict[str, str]:
        return {f"map {one.name}": one.fingerprint() for one in self.mechanism.maps}

    def further(self) -> dict[str, Any]:
        by_depth = {str(depth): decimal(share) for depth, share in self.cuts}
        return {"shares": by_depth | {part.name: decimal(share) for part, share in self.parts}}

    def sharing(self, told: Mapping[str, str]) -> WovenRun:
        """The same run with shares as a release tells them, where each is within ROUNDED of the computed one: another
        machine may have rounded the last digit otherwise. Itself where they are not."""
        own = {**{str(depth): share for depth, share in self.cuts}, **{part.name: share for part, share in self.parts}}
        if not isinstance(told, Mapping) or told.keys() != own.keys() or self.mechanism.fixed:
            return self
        said = {name: written(share) for name, share in told.items()}
        close = all(said[name] > 0 and abs(said[name] - share) <= ROUNDED for name, share in own.items())
        if not close or sum(said.values()) != 1:
            return self
        cuts = tuple((depth, said[str(depth)]) for depth, _ in self.cuts)
        return replace(self, cuts=cuts, parts=tuple((part, said[part.name]) for part, _ in self.parts))

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        cut = self.joined()
        measured = cut.measured(keys, values, streams, threads)
        del keys, values
        return cut.finish(*measured)

    def joined(self, known: Sequence[Int] = (), words: Words | None = None, look: Whole | None = None) -> JoinedBlocks:
        """What is measured, and what follows from it. `known`: the numbers of the first parts, measured before; `look`:
        those of the cells."""
        told = words or {}

        def finish(tree: Visited, numbers: Sequence[Int]) -> Drawn:
            every = [*known, *numbers]
            found = by_cell(self.tree, self.domain, [self._refined(tree, every)])
            return Drawn(*found, self._measurements(tree, every), told)

        parts = tuple(self._tally(at) for at in range(len(known), len(self.parts)))
        return JoinedBlocks(self.visit, self.told_scales, finish, parts, look, told)

    def _tally(self, at: int) -> Tally:
        return tally(self.tree, self.parts[at][0], self.part_scale(at), ("part", at, 0))

    def _refined(self, tree: Visited, numbers: Sequence[Int]) -> tuple[Int, Int]:
        """From here on everything sees noisy numbers only."""
        return woven.estimate(*self._given(tree, numbers))

    def _given(self, tree: Visited, numbers: Sequence[Int]) -> tuple[Any, ...]:
        parts, around = self._parts(numbers)[self.beside :], self.around
        cells, variance = tree.levels[-1], laplace_variance(max(tree.scales[-1], LEAST_SCALE))
        if self.mechanism.whole:
            known = [part.name for part, _ in self.parts]
            held = [view for view in anchored(self.weave, self.mechanism.held) if self.weave.cut(view) is None]
            named = [view for view in held if self.weave.words(view) not in known]
            if self.few:
                tree, parts, named = self._moved(tree, parts, variance), [], held
                cells = tree.levels[-1]
            parts += self._anchors(cells, named, variance / TIGHT)
            tree = self._summed(tree)
        elif self.few and len(self.domain.axes) > 1:
            parts += self._told_by_finer(tree, parts)
        return tree, self.tree, self.domain, parts, around, self.few, self.damped

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        """Blocks, and every measured view and those of `standard`. Where all cells are measured, sums of theirs have at
        most the error of plain noise, as far as was seen."""
        if drawn.measurements is None:
            return Run.after(self, drawn, sizes)
        measured, numbers = self._told(drawn.measurements)
        tree = visited(self.visit, measured)
        fitted = woven.fit(*self._given(tree, numbers))
        cells = sqrt(float(fitted.cells.sum()) / max(self.tree.nodes(self.tree.depth), 1))
        noise = sqrt(laplace_variance(max(tree.scales[-1], LEAST_SCALE)))
        out = []
        if self.mechanism.whole:
            out += [
                AreaError(size, cells if size == 1 else noise * sqrt(size), size > 1)
                for size, _ in spread.by_size(self, sizes)
            ]
        else:
            levels = fitted.spreads()
            out += spread.of_tree(self, self.visit.cuts, levels, sizes, total=fitted.total)
        told = self.mechanism.whole or (self.by_form and tree.levels[-1].y.size > MANY_CELLS)
        form = {one.view: one.rmse for one in self.view_errors()} if self.by_form else {}
        for view in self._shown:
            part = self.weave.partition(view)
            own = noise * sqrt(self.domain.size / part.groups)
            rmse = form.get(part.name, own) if told else sqrt(fitted.view_variance(part))
            out.append(AreaError(None, rmse, told, part.name, part.groups))
        return out

    def view_errors(self) -> list[AreaError]:
        """By least squares on all that is measured, without sign or prior: what refinement gains is not in it."""
        shown = [self.weave.view("cells"), *self._shown]
        spread = least_squares(self.weave, self.measured, shown) * float(self.noise.scale) ** 2
        return [
            AreaError(None, sqrt(float(one)), False, self.weave.words(view) if at else "cells", self.weave.groups(view))
            for at, (view, one) in enumerate(zip(shown, spread, strict=True))
        ]

    @property
    def measured(self) -> list[tuple[View, Fraction]]:
        """Every measured view with its share."""
        parts = [(self.weave.view(part.name), share) for part, share in self.parts]
        return parts + [(self.weave.view_at(depth) or (), share) for depth, share in self.cuts]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Declared views that least squares has worse than plain noise. Small sums of a table that is not known to be
        full are left out: there priors gain most."""
        told = (self.chosen or {}).get("facts", {})
        full = written(str(told.get("density", "0"))) >= FULL
        asked = {"cells" if name.strip() == "cells" else self.weave.words(self.weave.view(name))
                 for name, _ in self.mechanism.named}  # fmt: skip
        out = []
        for error in self.view_errors():
            size = self.domain.size / (error.sums or 1)
            plain = sqrt(2 * size) * float(self.noise.scale)
            if error.view in asked and (full or size >= ANCHORED) and error.rmse > WORSE * plain:
                out.append(
                    f"view {error.view!r}: expected error {error.rmse:.3g} (root mean square, least squares), plain "
                    f"noise {plain:.3g}: {error.rmse / plain:.2f} times. Wish for a smaller error there, or for fewer "
                    "views"
                )
        return tuple(out)

    @property
    def _shown(self) -> list[View]:
        """Views whose errors a release tells: those measured or standard, but for the cells and what is too many."""
        cells = self.weave.view("cells")
        found = dict.fromkeys((*(view for view, _ in self.measured if view), *standard(self.weave)))
        return [view for view in found if view != cells and self.weave.groups(view) <= MAX_GROUPS]

    def _summed(self, tree: Visited) -> Visited:
        """The same noisy cells with sums of theirs as levels above: nothing is measured again."""
        (cells,), (scale,) = tree.levels, tree.scales
        depths = [depth for depth in self.tree.stages[1:-1] if self.tree.nodes(depth) * ANCHORED <= cells.y.size]
        levels: list[tuple[int, Level]] = []
        keys = below = cells.prefix
        for depth in reversed(depths):
            prefix, at = np.unique(keys // self.tree.stride(depth), return_inverse=True)
            y = np.zeros(prefix.size, dtype=cells.y.dtype)
            np.add.at(y, at, cells.y)
            stride = self.tree.stride(depth) // (self.tree.stride(levels[0][0]) if levels else 1)
            first = np.searchsorted(below // stride, np.append(prefix, prefix[-1:] + 1))
            levels.insert(0, (depth, Level(prefix, y, y.astype(np.float64), first)))
            below = prefix
        scales = [scale * Fraction(sqrt(cells.y.size / level.y.size / TIGHT)) for _, level in levels]
        return Visited(
            (*(depth for depth, _ in levels), *tree.cuts), (*scales, scale), (inf,) * len(levels) + tree.slacks,
            (*(level for _, level in levels), cells),
        )  # fmt: skip

    def _moved(self, tree: Visited, parts: Sequence[woven.Part], variance: float) -> Visited:
        """The noisy cells as least squares of them and the parts has them, without sign: so every sum of theirs that is
        held knows the parts."""
        (cells,) = tree.levels
        incidence = Incidence.of([part.partition for part in parts], Nodes.of(tree), tree, self.tree)
        noisy, size = cells.y.astype(np.float64), cells.y.size
        s2 = np.concatenate([np.full(part.y.size, part.variance) for part in parts])
        y = np.concatenate([part.y for part in parts])

        def system(numbers: Float) -> Float:
            return variance * incidence.of_groups(incidence.of_units(numbers, size)) + s2 * numbers

        inverse = 1 / (variance * incidence.of_groups(np.ones(size), square=True) + s2)
        moved = variance * incidence.of_units(solve(system, y - incidence.of_groups(noisy), inverse), size)
        return replace(tree, levels=(replace(cells, y=noisy + moved),))  # type: ignore[arg-type]  # real numbers here

    def _told_by_finer(self, tree: Visited, parts: Sequence[woven.Part]) -> list[woven.Part]:
        """Every view that was not measured itself, as the sums of those two measured partitions, finer than it, whose
        noise tells it best: posterior cells err together, which their variances do not know."""
        keys = self.tree
        told = [
            (self.weave.view_at(depth) or (), level.prefix * keys.stride(depth), level.y, laplace_variance(scale), True)
            for depth, level, scale in zip(
                tree.cuts, tree.levels, (max(scale, LEAST_SCALE) for scale in tree.scales), strict=True
            )
        ]
        for part in parts:  # any cell of a group says where the group lies
            cells = tree.levels[-1].prefix
            some = np.zeros(part.y.size, dtype=np.int64)
            some[part.partition.of_keys(keys, cells)] = cells
            told.append((self.weave.view(part.partition.name), some, part.y, part.variance, False))
        out = []
        for view in every(self.weave):
            groups, cut = self.weave.groups(view), self.weave.cut(view)
            if cut in tree.cuts or groups * ANCHORED > self.domain.size:
                continue
            finer = [one for one in told if self.weave.refines(one[0], view)]
            for own, some, numbers, noise, level in sorted(finer, key=lambda one: one[2].size * one[3])[:2]:
                if own == view or (level and cut is not None):
                    continue  # it is measured itself, or the tree knows
                wanted = self.weave.partition(view)
                into, y = wanted.of_keys(keys, some), np.zeros(groups, dtype=np.int64)
                np.add.at(y, into[into >= 0], numbers[into >= 0])
                out.append(woven.Part(wanted, y, numbers.size * noise / groups))
        return out

    def _anchors(self, cells: Level, views: Sequence[View], variance: float) -> list[woven.Part]:
        """Sums of the noisy cells as parts, with the variance that each cell adds: nothing is measured again."""
        out = []
        for view in views:
            groups = self.weave.groups(view)
            if groups * ANCHORED <= self.domain.size:
                part = self.weave.partition(view)
                y = np.zeros(groups, dtype=cells.y.dtype)
                group = part.of_keys(self.tree, cells.prefix)
                np.add.at(y, group[group >= 0], cells.y[group >= 0])
                out.append(woven.Part(part, y, variance * (self.domain.size / groups)))
        return out

    def _parts(self, numbers: Sequence[Int]) -> list[woven.Part]:
        return [
            woven.Part(part, y, laplace_variance(max(self.part_scale(at), LEAST_SCALE)))
            for at, ((part, _), y) in enumerate(zip(self.parts, numbers, strict=True))
        ]

    @property
    def around(self) -> list[Partition]:
        """The partitions whose sums make a cell's expectation."""
        return self.weave.around([depth for depth, _ in self.cuts], [part for part, _ in self.parts])

    def _measurements(self, tree: Visited, numbers: Sequence[Int]) -> Measurements:
        rows = [(FIRST_PART - at, np.arange(y.size), y) for at, y in enumerate(numbers)][::-1]
        rows += [(cut, level.prefix, level.y) for cut, level in zip(tree.cuts, tree.levels, strict=True)]
        level = np.concatenate([np.full(y.size, at) for at, _, y in rows])
        prefix, value = (np.concatenate([row[i] for row in rows]) for i in (1, 2))
        return Measurements(level, prefix, value, self.told_scales)

    @property
    def told_scales(self) -> dict[int, Fraction]:
        """The scale of every part and cut, by its level among the measurements."""
        scales = {FIRST_PART - at: self.part_scale(at) for at in range(len(self.parts))}
        return scales | dict(zip(self.visit.cuts, self.visit.scales, strict=True))

    def _told(self, measured: Measurements) -> tuple[Measurements, list[Int]]:
        """The measurements of the tree, and those of every part; FormatError where a part is not whole."""
        numbers = []
        for at, (part, _) in enumerate(self.parts):
            own = measured.level == FIRST_PART - at
            if not np.array_equal(measured.prefix[own], np.arange(part.groups)):
                raise FormatError("a part is not measured whole")
            numbers.append(measured.value[own])
        own = measured.level >= 0
        scale = dict(zip(self.visit.cuts, self.visit.scales, strict=True))  # also of levels where nothing was drawn
        return Measurements(measured.level[own], measured.prefix[own], measured.value[own], scale), numbers

    def replay(self, drawn: Drawn) -> Replay:
        measured = drawn.measurements
        if measured is None:
            return Run.replay(self, drawn)
        wanted = self.told_scales
        if any(wanted.get(level) != scale for level, scale in measured.scale.items()):
            return Replay(wrong_measurements=WRONG_SCALE)
        try:
            own, numbers = self._told(measured)
            tree = visited(self.visit, own)
        except FormatError:
            return Replay(wrong_measurements="its nodes are not those that the recipe draws")
        shown = [DiscreteLaplace(scale).chances(level.y) for level, scale in zip(tree.levels, tree.scales, strict=True)]
        shown += [DiscreteLaplace(self.part_scale(at)).chances(y) for at, y in enumerate(numbers)]
        found = by_cell(self.tree, self.domain, [self._refined(tree, numbers)])
        return Replay(found=found, shown=tuple(shown), apart=(*apart(tree, None), *self._beside(tree, numbers)))

    def _beside(self, tree: Visited, numbers: Sequence[Int]) -> Iterator[Chances]:
        """The chances of each number of a part and the sum of its noisy cells, where all cells were drawn: the part's
        own noise comes after theirs, and no number is likelier for it than 0."""
        cells = tree.levels[-1]
        if cells.y.size < self.tree.nodes(self.tree.depth):
            return
        for at, ((part, _), y) in enumerate(zip(self.parts, numbers, strict=True)):
            group = part.of_keys(self.tree, cells.prefix)
            sums = np.bincount(group[group >= 0], cells.y[group >= 0], minlength=y.size)
            _, zero = DiscreteLaplace(self.part_scale(at)).chances(y)
            yield np.minimum((2 * np.abs(y - sums) + 1) * zero, 1.0), zero

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        if measurements is None:
            return NoBars(f"{self.mechanism.name} with these options publishes no measurements")
        own, numbers = self._told(measurements)
        return WovenBars(self.domain, self.tree, own, tuple(self._parts(numbers)))

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")

    def blocks(self) -> ChosenBlocks:
        return settled(self.joined())
