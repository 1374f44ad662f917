"""bayes_tree and auto: count trees joined by empirical Bayes, their shares fixed, or chosen after the charge.

`ChosenTree` chooses from a pilot, which is measured first, or from a public table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar, Literal

from kasuri.arrays import Int
from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, exact
from kasuri.public import PublicTable
from kasuri.published.bars import Bars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.choose import Chooser, Offer, Pilot
from kasuri.recipes.counttree import (
    CountTree,
    Tree,
    Trees,
    after_join,
    by_itself,
    check_tree,
    count_bars,
    expect_words,
    joined,
    replayed,
    shares_of,
)
from kasuri.recipes.descent import by_key
from kasuri.recipes.joined import ChosenBlocks, JoinedBlocks
from kasuri.recipes.joins import Bayes
from kasuri.recipes.mechanism import AreaError, Bias, Drawn, Mechanism, NoForm, Replay, TreeRun, Words, scale_of
from kasuri.recipes.normal import NoiseWord, asked_for
from kasuri.recipes.shares import BAYES, pilot_height, with_pilot
from kasuri.recipes.simulated import ERRORS, Simulated
from kasuri.recipes.spending import (
    Facts,
    OfPrior,
    Preset,
    Shares,
    cuts_of,
    declared_words,
    drawable,
    fits,
    level_cost,
    prior_words,
    share_words,
)  # fmt: skip
from kasuri.schema import Domain, Unit
from kasuri.trees.order import Order


def bayes_tree(
    shares: str | Mapping[int, Exact] | None = None,
    order: Tree | None = None,
    *,
    facts: Mapping[str, object] | None = None,
    pilot: bool = False,
    prior: PublicTable | None = None,
    interleave: tuple[str, ...] = (),
    expect: bool = False,
    noise: NoiseWord = "laplace",
    delta: Exact | None = None,
) -> Mechanism:
    """Noisy counts of chosen levels of a tree, joined by empirical Bayes: small errors at every area size.

    shares: as in `refined_tree`, or a preset: "sparse", "scattered", "middle" (the default), "dense". Instead of
    shares, facts={"density": share of non-empty cells, "size": mean count of a non-empty cell} chooses a preset from
    declared public facts, e.g. of an earlier release; pilot=True from one level that is measured first, with its own
    part of epsilon. prior: an earlier public table on the same domain; it also chooses the preset where nothing else
    does.
    Cells with like neighbourhoods share a prior that is fitted to their noisy counts; a mesh has neighbours, on other
    domains siblings of the tree take their part. expect=True, for tables of several axes: cells of like expectation
    share it, by what the sums over their axes and blocks imply.
    noise, delta: as in `refined_tree`; with a pilot or expect=True Laplace noise only.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: the levels' shares add up to epsilon, the pilot's among
    them, also where it chooses the others; with Gaussian noise (epsilon, delta)-DP by the exact law of the loss
    (docs/proofs/gaussian.md). Proof: docs/proofs/bayes_tree.md. Public: domain, mask, order, shares,
    declared facts, the prior. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + drawn nodes) for m records; people inside blocks that were not descended are spread over at most as many
    cells as nodes were drawn (or 2^20). References: [Hay2010], [Robbins1956], [Efron2014].
    """
    faults: list[str] = []
    if sum((shares is not None, facts is not None, bool(pilot))) > 1:
        faults.append("bayes_tree: give shares, facts or pilot=True, only one of them")
    if not isinstance(pilot, bool):
        faults.append("bayes_tree: pilot is True or False")
    if prior is not None and not isinstance(prior, PublicTable):
        faults.append("bayes_tree: prior must be declared public: PublicTable.from_dense(array, domain, name=...)")
    if not isinstance(expect, bool) or (expect and (prior is not None or order == "1d")):
        faults.append("bayes_tree: expect is True or False, and needs axes and no prior: order='interleaved', say")
    given: Shares = Preset("middle") if prior is None else OfPrior()
    if shares is not None:
        given = shares_of("bayes_tree", shares, tuple(BAYES), faults)
    elif facts is not None:
        if not isinstance(facts, Mapping) or set(facts) != {"density", "size"}:
            faults.append('bayes_tree: facts are {"density": ..., "size": ...}')
        else:
            given = Facts(*(exact(facts[name], name) for name in ("density", "size")))
            if given.density > 1:
                faults.append("bayes_tree: density is a share of all cells, at most 1")
    word = check_tree("bayes_tree", order, interleave, faults)
    asked = asked_for("bayes_tree", noise, delta, faults)
    if noise != "laplace" and (pilot or expect):
        faults.append("bayes_tree: with pilot=True or expect=True the noise is Laplace; leave noise and delta out")
    raise_faults(PrivacyError, faults)
    proof = "docs/proofs/bayes_tree.md" if asked is None else "docs/proofs/gaussian.md"
    named, tree = ("bayes_tree", proof), (word, tuple(interleave))
    if pilot:
        return by_itself(ChosenTree(*named, *tree, Pilot(), prior, expect), order)
    return by_itself(CountTree(*named, *tree, given, Bayes(prior, expect), asked), order)


def auto(
    areas: Sequence[int] = (1,),
    metric: Literal["rmse", "mae"] = "rmse",
    order: Tree | None = None,
    *,
    prior: PublicTable | None = None,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """`refined_tree` or `bayes_tree` with the preset that does best for the areas you will publish.

    areas: their sizes in cells. metric: "rmse" or "mae", averaged over the areas (geometric mean). Every preset is
    tried on parts of a map of made-up people, spread below one level of the tree that is measured first with its own
    part of epsilon, or of a declared public table (`prior`), which then also supports the cells. The release says what
    was chosen and why.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: whatever is chosen, the levels' shares and the pilot's
    add up to epsilon. Proof: docs/proofs/auto.md. Public: domain, mask, order, areas, the prior. Assumes: a good
    keystream; run time depends on the data (SECURITY.md).

    Cost: 2 to 5 times that of `bayes_tree` where areas are small beside the table, else up to 18 times.
    References: [Hay2010], [Terada2015].
    """
    faults: list[str] = []
    sizes = tuple(areas) if isinstance(areas, Sequence) and not isinstance(areas, str) else ()
    if not sizes or any(not isinstance(area, Integral) or isinstance(area, bool) or area < 1 for area in sizes):
        faults.append("auto: areas are sizes in cells, whole numbers from 1 up, e.g. areas=(1, 4, 16)")
    if metric not in ERRORS:
        faults.append(f'auto: metric {metric!r} is not known; use "rmse" or "mae"')
    if prior is not None and not isinstance(prior, PublicTable):
        faults.append("auto: prior must be declared public: PublicTable.from_dense(array, domain, name=...)")
    word = check_tree("auto", order, interleave, faults)
    raise_faults(PrivacyError, faults)
    chooser = Simulated(tuple(int(area) for area in sizes), metric)
    return by_itself(ChosenTree("auto", "docs/proofs/auto.md", word, tuple(interleave), chooser, prior), order)


@dataclass(frozen=True)
class ChosenTree(Trees):
    """bayes_tree(pilot=True), auto: the shares are chosen after the charge, from noisy counts or a public table."""

    chooser: Chooser
    prior: PublicTable | None
    expect: bool = False

    @property
    def tables(self) -> tuple[tuple[PublicTable, str], ...]:
        return () if self.prior is None else ((self.prior, "prior"),)

    def stored(self) -> dict[str, Any]:
        return super().stored() | self.chooser.stored() | {"prior": self.prior} | expect_words(self.expect)

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> ChosenTreeRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        tree, cost = self.tree(domain), level_cost(unit)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        offer = self._offer(domain, tree, noise.scale)
        for preset, cuts in offer.choices.items():
            drawable(tree, cuts)
            fits(offer.visit(preset))
        return ChosenTreeRun(self, domain, claim, cost, noise, tree, offer)

    def _offer(self, domain: Domain, tree: Order, scale: Fraction) -> Offer:
        """What may be chosen: each of the choices sums to 1, the pilot's share, where there is one, in all of them."""
        beyond = self.chooser.beyond(domain.size)
        if beyond:
            raise DomainError(f"areas of {beyond} cells are asked for; the domain has {domain.size}")
        top = len(tree.stages) - 1
        offered, share, pilot = self.chooser.offered, self.chooser.share, None
        if not self.chooser.needs_pilot(self.prior):
            choices = {name: cuts_of(tree, preset(top)) for name, preset in offered.items()}
        elif (height := pilot_height(tree, odd=self.chooser.odd)) is not None:
            pilot = tree.stages[top - height], share
            choices = {name: cuts_of(tree, with_pilot(preset(top), height, share)) for name, preset in offered.items()}
        else:  # too small, or too wide at once
            choices = {"middle": cuts_of(tree, BAYES["middle"](top))}
        return Offer(tree, domain, scale, choices, pilot, self.prior, self.expect)


@dataclass(frozen=True, eq=False)
class ChosenTreeRun(TreeRun):
    mechanism: ChosenTree
    offer: Offer
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    publishes: ClassVar[bool] = True
    chooses: ClassVar[tuple[str, ...]] = ("preset", "refined", "tuning", "shares")

    def arguments(self) -> dict[str, Any]:
        told = self.mechanism.chooser.told() | prior_words(self.mechanism.prior)
        return told | expect_words(self.mechanism.expect)

    def further(self) -> dict[str, Any]:
        return declared_words(self.mechanism.prior, None)

    def retold(self, words: Words, measurements: Measurements | None) -> tuple[dict[str, Any], list[str]]:
        """The rule once more where a pilot chose, any candidate where a simulation did."""
        preset = str(words.get("preset"))
        if preset not in self.offer.choices:
            raise FormatError("the preset is not among the candidates")
        if measurements is None:  # a table too large to be replayed
            kept = {"preset": preset, "refined": self.offer.join(preset).word, "tuning": words.get("tuning")}
            shares = {"shares": share_words(self.offer.choices[preset])}
            return self.words() | kept | shares, ["why the preset was chosen: the measurements were not read"]
        choice, notes = self.mechanism.chooser.again(self.offer, preset, measurements)
        found = choice.words() | {"shares": share_words(self.offer.choices[choice.preset])}
        return self.words() | found, notes

    def replay(self, drawn: Drawn) -> Replay:
        preset, pilot = str(drawn.words["preset"]), self.offer.pilot
        return replayed(self, drawn, self.offer.visit(preset), self.offer.join(preset), pilot and pilot[0])

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        return count_bars(self, measurements, [self.offer.visit(preset) for preset in self.offer.choices])

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        """Measure (the pilot first, where there is one), choose, visit."""
        keys, values = by_key(self.tree, self.domain, cells, values)
        cut = self.blocks().chosen(keys, values, streams)
        measured = cut.measured(keys, values, streams, threads)
        del keys, values
        return cut.finish(*measured)

    def _chosen(self, y: Int | None, streams: Streams) -> JoinedBlocks:
        """The preset, from the pilot's noisy numbers, and what it measures."""
        known = self.offer.told(y)
        # a key of its own: what chooses can open no stream of the release
        own = Streams(streams.block_key("simulation", 0, 0), "simulation")
        chosen = self.mechanism.chooser.choose(self.offer, known, own)
        words = chosen.words() | {"shares": share_words(self.offer.choices[chosen.preset])}
        return joined(self, self.offer.visit(chosen.preset), self.offer.join(chosen.preset), words, known)

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        preset = str(drawn.words["preset"])
        return after_join(self, drawn, self.offer.visit(preset), self.offer.join(preset), sizes)

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")

    def blocks(self) -> ChosenBlocks:
        visits = tuple(self.offer.visit(preset) for preset in self.offer.choices)
        return ChosenBlocks(visits, self.offer.tally, self._chosen)
