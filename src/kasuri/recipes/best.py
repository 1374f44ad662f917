"""best: the recipe for a table of which only the domain is known, and what was declared about it.

Nothing here sees counts or noisy numbers: the choice is a function of the domain and of declared public facts, made
before the budget is charged. The release is one of the chosen recipe, under that recipe's name, words and plan; beside
them it says who chose and why. `RULE` numbers the rule, so that a better one does not change what releases say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from kasuri.budget.declared import Declared
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.privacy import Exact, decimal, exact
from kasuri.recipes.bayestree import bayes_tree
from kasuri.recipes.descent import haar_topdown
from kasuri.recipes.mechanism import Mechanism, Run
from kasuri.recipes.spending import Facts
from kasuri.recipes.woven import WIDE, WovenTree
from kasuri.recipes.wovenlook import LookedTree
from kasuri.recipes.wovenpilot import woven_tree
from kasuri.schema import Domain, Unit
from kasuri.schema.maps import RegionMap

BASIS = "docs/proofs/best.md"
RULES = ("1", "2", "3", "4", "5", "6")
RULE = RULES[-1]
LOOKS = {"4": 1, "5": 2}
"""The version of the look by rules before the last."""
VAST = 10**10
"""Tables of so many cells and more are left to the recipe whose cost follows the people; so are those of several axes
with more than `WIDE`."""
MESH = 1 << 14
"""Meshes of so many cells and more (128 x 128) have levels enough to be measured."""
SMALL = 1 << 20
"""Tables of at most so many cells can be measured whole, after a pilot that says so or at once."""
FEW = 1 << 9
"""Smaller tables are measured whole at once: there is little to choose."""
FILLED = Fraction(3, 10)
"""Below this declared share of non-empty cells a table counts as sparse."""


def best(
    views: Mapping[str, object] | None = None,
    *,
    maps: Sequence[RegionMap] = (),
    facts: Mapping[str, object] | None = None,
) -> Mechanism:
    """The recipe that suits a table, chosen from its public description alone; it says what and why.

    views, maps: sums you will publish, and public maps, as in `woven_tree`. facts={"density": share of non-empty
    cells, "size": mean count of a non-empty cell}: declared public facts, e.g. of an earlier release. Without them a
    table of up to 2^20 cells is measured as its noisy cells show that it is filled (`woven_tree(pilot="cells")`), so
    that it is about as good as plain noise or better whether it is full or empty; a larger one of several axes is taken
    to be mostly empty.
    The release carries the name and the words of the recipe that was chosen, and its plan is that recipe's.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: that of the chosen recipe. Guarantee: epsilon-DP, exactly:
    the choice reads the domain and what is declared, never the data. Proof: docs/proofs/best.md. Public: domain, mask,
    views, maps, declared facts. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: that of the chosen recipe.
    """
    faults: list[str] = []
    given: tuple[Fraction, Fraction] | None = None
    if facts is not None:
        if not isinstance(facts, Mapping) or set(facts) != {"density", "size"}:
            faults.append('best: facts are {"density": ..., "size": ...}')
        else:
            given = exact(facts["density"], "density"), exact(facts["size"], "size")
            if given[0] > 1:
                faults.append("best: density is a share of all cells, at most 1")
    woven = None
    try:
        woven = woven_tree(views, maps=maps)
    except PrivacyError as error:
        faults += [fault.replace("woven_tree", "best") for fault in error.faults]
    raise_faults(PrivacyError, faults)
    assert isinstance(woven, WovenTree)
    return Best("best", BASIS, woven, given)


@dataclass(frozen=True)
class Best(Mechanism):
    """`woven`: the recipe where views or maps are declared. `facts`: declared density and size."""

    woven: WovenTree
    facts: tuple[Fraction, Fraction] | None
    rule: str = RULE
    """The first held fewer sums of tables that are measured whole; the first two had no pilot but for one mesh, the
    third one of sums of cells, the fourth and fifth earlier versions of the look."""

    def stored(self) -> dict[str, Any]:
        """Of the recipe that measures what was declared; the plan of a release is that of the chosen recipe."""
        chosen = {"transform": "chosen", "noise": DiscreteLaplace.name, "refine": "chosen"}
        return self.woven.stored() | chosen | ({"facts": tuple(map(decimal, self.facts))} if self.facts else {})

    @property
    def declared(self) -> tuple[str, ...]:
        return self.woven.declared

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> Run:
        """The run of the first candidate that does not refuse the domain, with the words that say why."""
        refused: list[str] = []
        for recipe, why in self._candidates(domain):
            try:
                run = recipe.on(domain, unit, epsilon)
            except DomainError as error:
                if self._asked:
                    raise
                refused.append(f"{recipe.name} refuses this domain ({error})")
                continue
            words = {"by": self.name, "rule": self.rule, "why": why} | self._facts_words()
            known = dict.fromkeys((*run.guarantee.public, *(Facts.public if self.facts else ())))
            return replace(run, chosen=words, guarantee=replace(run.guarantee, public=tuple(known)))
        raise DomainError(*refused)

    @property
    def _asked(self) -> bool:
        return bool(self.woven.named or self.woven.maps)

    def _facts_words(self) -> dict[str, Any]:
        if self.facts is None:
            return {}
        return {"facts": {"density": decimal(self.facts[0]), "size": decimal(self.facts[1])}}

    def _candidates(self, domain: Domain) -> Iterator[tuple[Mechanism, str]]:
        """Recipes with the reason for each, the best first: the rule."""
        size, axes = domain.size, len(domain.axes)
        sparse = self.facts is not None and self.facts[0] < FILLED
        order: Any = "hierarchy" if domain.grouped else "morton"
        told = self._facts_words().get("facts")
        if self._asked:
            yield self.woven, "views or maps are declared: each is measured with a share of its own"
            return
        if size < VAST and (axes == 1 or size <= WIDE):
            if domain.one_mesh and size >= MESH:
                if told is None:
                    yield bayes_tree(pilot=True), f"one mesh of {size} cells: a pilot chooses the shares of its levels"
                else:
                    yield bayes_tree(facts=told), f"one mesh of {size} cells: the declared facts choose its shares"
            several = axes > 1
            piloted = told is None and size <= SMALL and self.rule not in ("1", "2")
            if piloted and size >= FEW:
                if self.rule == "3":
                    yield woven_tree(pilot=True), f"{size} cells, full or not: a pilot chooses what is measured"
                else:
                    looked = woven_tree(pilot="cells")
                    assert isinstance(looked, LookedTree)
                    looked = replace(looked, version=LOOKS.get(self.rule, looked.version))
                    yield looked, f"{size} cells, full or not: noisy cells choose what is measured"
            mesh = told is None and not piloted and any(axis.plane is not None for axis in domain.axes)
            if several and (sparse or mesh):
                known = f"declared density {told['density']}" if told else "a mesh, taken to be mostly empty"
                yield woven_tree(), f"{axes} axes, {size} cells, {known}: levels and margins have shares"
            if sparse and told is not None and not several:
                yield bayes_tree(facts=told, order=order), f"declared density {told['density']}: levels have shares"
            if size <= SMALL:
                whole = woven_tree(whole=True)
                assert isinstance(whole, WovenTree)
                yield (
                    replace(whole, held=1) if self.rule == "1" else whole,
                    (
                        f"{size} cells, full or not: every cell is measured with all of epsilon, and sums of cells "
                        "are refined with them"
                    ),
                )
            if several:
                yield woven_tree(), f"{axes} axes, {size} cells: too many to measure all of them"
            yield bayes_tree(pilot=True, order=order), f"{size} cells: a pilot chooses the shares of the levels"
        transform: Any = "nominal" if domain.grouped else "sum_difference"
        yield haar_topdown(transform=transform), f"{size} cells: the cost must follow the people, not the cells"

    def plan(self, domain: Domain, unit: Unit, epsilon: Exact) -> str:
        return self.on(domain, unit, epsilon).mechanism.plan(domain, unit, epsilon)

    def series(self, domain: Domain, unit: Unit, epsilon: Exact, releases: int) -> Declared:
        return self.on(domain, unit, epsilon).mechanism.series(domain, unit, epsilon, releases)
