"""woven_tree(pilot="cells"): the noisy cells themselves say how much of epsilon they need.

Noise of the finest choice is drawn first, and made wider step by step (`noise.samplers.widening`): the cells are looked
at under the widest, and what is published is the look itself or the finer noisy cells that it was made of. So the look
costs nothing, whatever it chooses. It chooses by histograms of its cells alone, which are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import log, sqrt
from typing import Any

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError
from kasuri.noise.evidence import too_rare
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import discrete_laplace, widening, widening_tail
from kasuri.privacy import Exact, decimal
from kasuri.published.measurements import Measurements
from kasuri.recipes.joined import JoinedBlocks, Tally
from kasuri.recipes.mechanism import Mechanism, Words
from kasuri.recipes.targets import Plan, balanced
from kasuri.recipes.views import Woven
from kasuri.recipes.visit import Whole
from kasuri.recipes.woven import WovenRun, WovenTree, every_cell
from kasuri.recipes.wovenchoice import ChoiceRun
from kasuri.recipes.wovenviews import ANCHORED, every, least_squares, sums_of
from kasuri.refine import bayes
from kasuri.schema import Domain, Unit
from kasuri.trees.visited import LEAST_SCALE
from kasuri.trees.weave import interleaved

LOOK = "cells"
"""What `pilot` is called."""
LOOKED = Fraction(1, 4)
"""The share of the look."""
WHOLE, MOST = "whole", Fraction(39, 40)
"""Where no stop will do the cells have so much: their noise has 1.026 times the mean error of plain noise, and
rounding adds a little at epsilon 1."""
NODES = 64
"""Of several axes, the level of the tree with about so many nodes has a share whatever comes out: it tells how far sums
of cells are off that err together."""
LIMIT, PLANNED = 1.05, 0.9
"""What a view may be, of plain noise. A stop plans for less on several axes, whose margins come out worse, as sums of
posterior cells, than the closed form has them; one axis has only levels of its tree, and plans for 1."""
TESTED = (1, 2, 4, 8, 16, 32, 64)
"""Classes of the look from which on the published cells say about how many there were."""
TOP = 8
"""Of the classes of `bayes`, in scales."""


@dataclass(frozen=True)
class Version:
    """A release names the version that it was made by.

    `stops`: shares of the cells that leave something for sums. `enough`: a stop will do where the look expects the
    cells, each by itself, to be at most so many times worse than plain noise. Their sums tell about them too: measured,
    they were 0.65 to 1.0 of what the look expects. `bins`: the look has a histogram for each bin of cells of like
    neighbourhoods. `held`: from this stop on sums of the noisy cells are held, as in `whole=True`: sums of posterior
    cells, which err together, had up to 1.9 times the error of plain noise there. `plan`: of its shares; EVEN up to
    `even`. `sums`: from `held` on a stop must also do for the sums that are held, of which priors of cells tell little.
    `damped`: see `fuse`. `anchored`: which sums are held."""

    stops: tuple[Fraction, ...]
    enough: float
    bins: tuple[int, int]
    held: Fraction
    plan: Plan
    even: Fraction = Fraction(0)
    sums: bool = False
    damped: bool = False
    anchored: int = 3

    def planned(self, stop: Fraction) -> Plan | None:
        """None: no sums of noisy cells are held."""
        return None if stop < self.held else EVEN if stop <= self.even else self.plan


def _stops(*shares: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, shares))


EVEN = Plan(1.04, taken=0.9, strict=12.0, alone=ANCHORED)
"""Keeps the sums that are held within the limit by least squares alone. Up to 0.7 that is about as good for the others;
with 0.8 and more on the cells it leaves them nothing."""
VERSIONS = {
    1: Version(_stops("0.25", "0.4", "0.5", "0.6", "0.8"), 1.0, (1, 1), MOST, Plan(LIMIT)),
    2: Version(_stops("0.25", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"), 1.02, (8, 2), Fraction("0.6"),
               Plan(0.98, taken=0.9, strict=12.0)),
}  # fmt: skip
VERSIONS[3] = replace(VERSIONS[2], even=Fraction("0.7"), sums=True, damped=True, anchored=4)
"""The first had one histogram for all cells, and held sums where the cells have MOST alone. The second asked nothing of
sums: those of 16 to 32 cells of full tables were at 1.07 of plain noise; and took what six rounds had come to for the
join of tree and sums, up to 5 times plain noise."""


@dataclass(frozen=True)
class LookedTree(Mechanism):
    """woven_tree(pilot="cells")."""

    version: int = max(VERSIONS)

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "counts", "noise": DiscreteLaplace.name, "refine": "woven", "order": "interleaved",
            "descent": "plain", "shares": f"pilot: {LOOK}",
        } | version_words(self.version)  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> LookedRun:
        every_cell(domain)
        weave = Woven(domain, interleaved(domain), ())
        if not any(weave.view_at(depth) for depth in weave.tree.stages[1:-1]):
            raise DomainError(
                'woven_tree(pilot="cells"): this table has no level between its total and its cells that could have a '
                "share; use whole=True"
            )

        def choice(stop: Fraction, plan: Plan | None) -> WovenRun:
            """`plan`: where sums of noisy cells are held."""
            named, whole = _named(weave, stop, plan), plan is not None
            run = WovenTree(self.name, self.basis, named, True, (), whole, own.anchored).run(domain, unit, epsilon)
            return replace(run, everywhere=not whole, few=True, by_form=self.version > 1, damped=own.damped)

        own = VERSIONS[self.version]
        choices = {decimal(stop): choice(stop, own.planned(stop)) for stop in own.stops}
        whole = choice(MOST, Plan(LIMIT))
        return LookedRun(self, domain, whole.guarantee, whole.cost, whole.noise, whole.tree, choices | {WHOLE: whole})


def version_words(version: int) -> dict[str, int]:
    """Told from the second on: what was stored before there were two never changes."""
    return {"version": version} if version > 1 else {}


def _named(weave: Woven, own: Fraction, plan: Plan | None) -> tuple[tuple[str, Fraction], ...]:
    """Shares of every measured view where the cells have `own`."""
    cells = weave.view("cells")
    views = [view for view in every(weave) if view != cells]
    several, held = len(weave.domain.axes) > 1, None
    if several and (plan is None or own == MOST):
        stages = [view for depth in weave.tree.stages[1:-1] if (view := weave.view_at(depth))]
        held = views.index(min(stages, key=lambda view: abs(log(weave.groups(view) / NODES))))
    wanted = plan or Plan(PLANNED if several else 1.0)
    shares = balanced(sums_of(weave, cells), tuple(sums_of(weave, view) for view in views), own, held, wanted)
    return (LOOK, own), *((weave.words(view), share) for view, share in zip(views, shares, strict=True) if share)


@dataclass(frozen=True, eq=False)
class LookedRun(ChoiceRun):
    mechanism: LookedTree

    @property
    def version(self) -> Version:
        return VERSIONS[self.mechanism.version]

    def arguments(self) -> dict[str, Any]:
        return {"pilot": LOOK} | version_words(self.mechanism.version)

    def _scales(self) -> dict[str, Fraction]:
        """The scale of the cells' noise by choice, from the look to the finest."""
        shares = (*self.version.stops, MOST)
        return {name: self.noise.scale / share for name, share in zip(self.choices, shares, strict=True)}

    def first(self) -> Tally:
        """Every possible cell under the noise of the finest choice."""
        nodes, scale = self._cells, self._scales()[WHOLE]

        def noisy(sums: Int, streams: Streams) -> Int:
            return discrete_laplace(scale).draw(streams.open("cells", 0, 0), nodes.size) + sums

        def of(keys: Int) -> Int:
            return np.searchsorted(nodes, keys)

        return Tally(nodes.size, of, noisy)

    @property
    def _cells(self) -> Int:
        return self.tree.children(np.zeros(1, dtype=np.int64), 0, self.tree.depth)[0]

    def taken(self, y: Int, streams: Streams) -> JoinedBlocks:
        """By the look, whichever of the numbers that it was made of are then published."""
        looks = self.looks(y, streams)
        first = next(iter(looks.values()))
        words = self._rule(self._look(first), self._sums(first))
        return self.choices[words["preset"]].joined((), words, looks[words["preset"]])

    def looks(self, y: Int, streams: Streams) -> dict[str, Whole]:
        """Every possible cell under the noise of every choice: each but the finest, y, is the next finer one with
        further noise, independent of all before."""
        nodes, depth = self._cells, self.tree.depth
        finest, *wider = reversed(self._scales().items())
        found = {finest[0]: Whole(depth, finest[1], nodes, y)}
        for at, ((_, scale), (name, more)) in enumerate(pairwise((finest, *wider)), 1):
            y = y + widening(scale, more).draw(streams.open("cells", at, 0), nodes.size)
            found[name] = Whole(depth, more, nodes, y)
        return dict(reversed(found.items()))

    def _look(self, look: Whole) -> Int:
        """How many of the noisy cells are in every class of `bayes`, as whole numbers, by bin."""
        u = look.y / float(max(look.scale, LEAST_SCALE))
        outer, inner = self.version.bins
        bins = np.zeros(u.size, dtype=np.int64)
        if outer * inner > 1:
            bins = bayes.quantile_bins(*self._around(look.prefix, u), outer, inner)
        return bayes.classes(u, bins, outer * inner).astype(np.int64)

    def _around(self, keys: Int, u: Float) -> tuple[Float, Float]:
        """What the look says of the cells around each: its neighbours on a mesh, else its siblings of the tree."""
        place = bayes.Neighbours.of(self.tree.cells(keys), self.domain)
        if place is not None:
            return place.smooth(u)
        above = keys // self.tree.stride(self.tree.stages[-2])
        first = np.flatnonzero(np.diff(above, prepend=-1, append=-1))
        return bayes.sibling_features(u, first), np.zeros(u.size)

    @cached_property
    def _blocks(self) -> int | None:
        """The depth of the least nodes of the tree whose sums are held."""
        cells = self.tree.nodes(self.tree.depth)
        return max((at for at in self.tree.stages[1:-1] if self.tree.nodes(at) * ANCHORED <= cells), default=None)

    def _sums(self, look: Whole) -> Int:
        """How many sums of the noisy cells, those of `_blocks`, are in every class of `bayes` for normal noise."""
        if not self.version.sums or self._blocks is None:
            return np.zeros(0, dtype=np.int64)
        _, at, cells = np.unique(look.prefix // self.tree.stride(self._blocks), return_inverse=True, return_counts=True)
        u = np.bincount(at, look.y) / np.sqrt(cells) / float(max(look.scale, LEAST_SCALE))
        return bayes.classes(u, np.zeros(u.size, dtype=np.int64), 1, normal=True)[0].astype(np.int64)

    def _rule(self, look: Int, sums: Int) -> dict[str, Any]:
        """What the look's histograms choose, and why, as a release says it."""
        spread, enough = expected(look, self.version.stops), self.version.enough
        told, held, preset = [], {}, WHOLE
        for stop, ratio in spread.items():
            name = decimal(stop)
            if preset == WHOLE and ratio <= enough:
                if self.version.sums and self.choices[name].mechanism.whole:
                    held[name] = self._of_sums(name, sums)
                preset = name if held.get(name, 0.0) <= LIMIT else WHOLE
            told.append(f"{name}: {ratio:.2f}" + (f" (sums {held[name]:.2f})" if name in held else ""))
        also = f"; of sums of {ANCHORED} cells and more {LIMIT}" if self.version.sums else ""
        tuning = {
            "source": f"the cells under the noise of {decimal(LOOKED)} of epsilon; their expected error over that of "
            f"plain noise, by share: {', '.join(told)}; limit {enough}{also}",
            "charged": "nothing beside what is published: the look is one of its numbers, or made of them",
            "look": look.tolist() if len(look) > 1 else look[0].tolist(),
        } | ({"sums": sums.tolist()} if self.version.sums else {})
        return {"preset": preset, "tuning": tuning, "shares": self.choices[preset].further()["shares"]}

    def _of_sums(self, name: str, sums: Int) -> float:
        """The largest expected error, over that of plain noise, of sums that are held under a choice: what least
        squares makes of them, and what the look knows of the least of them before."""
        run, cells = self.choices[name], self.tree.nodes(self.tree.depth)
        sizes = {view: cells / run.weave.groups(view) for view in every(run.weave)}
        large = [view for view, size in sizes.items() if size >= ANCHORED]
        if not large:
            return 0.0
        plain = 2 * np.array([sizes[view] for view in large])
        worst = float((least_squares(run.weave, run.measured, large) / plain).max())
        noise = 2 * worst * float(LOOKED) ** 2
        if not sums.size:
            return sqrt(worst)
        v = bayes.class_variances(sums[None].astype(np.float64), normal=True)
        return sqrt(_after(v, noise, sums) / 2) / float(LOOKED)

    def retold(self, words: Words, measurements: Measurements | None) -> tuple[dict[str, Any], list[str]]:
        """The rule once more, on the histograms as they are told."""
        if words.get("preset") not in self.choices:
            raise FormatError("the preset is not among the choices")
        tuning, bins = words.get("tuning"), self.version.bins[0] * self.version.bins[1]
        tuning = tuning if isinstance(tuning, Mapping) else {}
        shape = (bins, bayes.CLASSES) if bins > 1 else (bayes.CLASSES,)
        look = _histogram(tuning.get("look"), shape, self.tree.nodes(self.tree.depth))
        blocks = 0 if self._blocks is None or not self.version.sums else self.tree.nodes(self._blocks)
        of_sums = (bayes.CLASSES_NORMAL if blocks else 0,)
        sums = _histogram(tuning.get("sums", [] if not self.version.sums else None), of_sums, blocks)
        told, preset = self.words() | self._rule(np.atleast_2d(look), sums), words["preset"]
        if measurements is None:  # a table too large to be replayed
            return told, ["the look that chose the preset: the measurements were not read"]
        own, depth = measurements.level == self.tree.depth, self.tree.depth
        cells = Whole(depth, self._scales()[preset], measurements.prefix[own], measurements.value[own])
        if told["preset"] != preset:  # whoever compares the words names it
            return told, []
        if self._refuted(np.atleast_2d(look), sums, cells):
            raise FormatError("the published cells did not look like this")
        if preset == next(iter(self.choices)):
            return told, []
        return told, [
            "the look that chose the preset: its histograms are told; tested was only that the published cells, with "
            "the noise that was added to look at them, may have it"
        ]

    def _refuted(self, look: Int, sums: Int, cells: Whole) -> bool:
        """Whether cells that were published under their noise have another look, or hardly ever this one."""
        fine, wide = cells.scale, next(iter(self._scales().values()))
        if fine == wide:
            return not (np.array_equal(self._look(cells), look) and np.array_equal(self._sums(cells), sums))
        one = widening_tail(fine, wide, 64)[0] / 2.0**65  # P(M >= x) = one a^x, x >= 1
        at_least = look.sum(axis=0)[::-1].cumsum()[::-1]
        for name in TESTED:
            away = _least(name, wide) - cells.y
            tail = one * np.exp(-np.where(away >= 1, away, 1 - away) / float(wide))
            if too_rare(int(at_least[name]), np.where(away >= 1, tail, 1 - tail), len(TESTED)):
                return True
        return False


def _least(name: int, scale: Fraction) -> int:
    """The least whole number in class `name` or a higher one, as `_classes` has them."""
    about = round((name - 0.5) / (bayes.CLASSES - 2) * TOP * scale)
    near = range(about - 2, about + 3)
    return next((y for y in near if _classes(np.array([y]), scale)[name:].any()), about)


def _classes(y: Int, scale: Fraction) -> Int:
    """How many of noisy cells are in every class of `bayes`, as whole numbers."""
    u = y / float(max(scale, LEAST_SCALE))
    return bayes.classes(u, np.zeros(u.size, dtype=np.int64), 1)[0].astype(np.int64)


def _histogram(told: object, shape: tuple[int, ...], of: int) -> Int:
    """A told histogram, where it can be one of so many numbers."""
    found = np.array(told if told != [] else np.zeros(0, dtype=np.int64))
    if found.shape != shape or found.dtype.kind != "i" or (found.size and found.min() < 0):
        raise FormatError("the look is not a histogram of noisy cells")
    if found.size and (found.max() > of or found.sum() != of):  # larger numbers might add up to it modulo 2^64
        raise FormatError("the look does not hold every cell once")
    return found


def expected(look: Int, stops: tuple[Fraction, ...]) -> dict[Fraction, float]:
    """By share of the cells: their root mean square error over that of plain noise, where histograms of the look
    (numbers in scales of its noise), by bin, are all that is known."""
    v, first = bayes.class_variances(look.astype(np.float64)), float(LOOKED)
    return {stop: sqrt(_after(v, 2 * (first / float(stop)) ** 2, look) / 2) / first for stop in stops}


def _after(v: Float, noise: float, look: Int) -> float:
    """The mean variance of numbers that have v under the look, of variance n = 2, where they are told with a variance
    of n' instead: 1 / (1/v + 1/n' - 1/n)."""
    after: Float = 1 / (1 / v + 1 / noise - 1 / 2)
    return float((look * after).sum()) / max(int(look.sum()), 1)
