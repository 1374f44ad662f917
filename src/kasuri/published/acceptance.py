"""What a release must reach to be made at all: criteria declared and judged before any data is touched.

"95 % of municipalities over 500 people within 5 %": judged by a closed form, or on a public table (`study.accept`),
never on the counts. What was judged is part of the fingerprint that the ledger is charged under, so that a criterion
cannot be added, loosened or left out afterwards.

*Privacy.* Nothing here depends on the data: a recipe, a domain, a unit, an epsilon and, where one is named, a table
that is declared public. Whether a release is made follows from these alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from kasuri import names
from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.privacy import Exact, decimal, exact, written
from kasuri.recipes.mechanism import DENSE_CELLS, NoForm, Run, possible_cells, square_errors
from kasuri.recipes.views import Woven
from kasuri.trees.weave import interleaved

FORM = "closed form"


@dataclass(frozen=True, init=False)
class Criterion:
    """Of the areas that hold more than `people`, at least the share `share` is released within `within` of the truth.

    areas: a number of cells (squares on a mesh, runs elsewhere, as in `compare`) or a view: "grid@3", "age, sex", the
    name of a map of the domain. within and share: exact, "5 %" or "0.05".

    >>> Criterion("municipality", people=500, within="5 %", share="95 %").words()
    '95 % of municipality over 500 within 5 %'
    """

    areas: int | str
    people: int
    within: Fraction
    share: Fraction

    def __init__(self, areas: int | str, *, people: int, within: Exact, share: Exact) -> None:
        faults = []
        if isinstance(areas, bool) or not isinstance(areas, (int, str)):
            faults.append('criterion: areas is a number of cells, or a view such as "age, sex" or the name of a map')
        elif isinstance(areas, str):
            faults += names.faults(areas, "criterion: areas")
        if isinstance(people, bool) or not isinstance(people, int) or people < 1:
            faults.append("criterion: people is a whole number of at least 1; the areas judged hold more")
        parts = []
        for name, value in (("within", within), ("share", share)):
            try:
                parts.append(_part(value, name))
            except PrivacyError as fault:
                faults += [f"criterion: {words}" for words in fault.faults]
        raise_faults(DomainError, faults)
        given = {"areas": areas, "people": people, "within": parts[0], "share": parts[1]}
        for name, known in given.items():
            object.__setattr__(self, name, known)

    def words(self) -> str:
        """In one line."""
        areas = f"areas of {self.areas:,} cells" if isinstance(self.areas, int) else self.areas
        return f"{percent(self.share)} of {areas} over {self.people:,} within {percent(self.within)}"

    def to_json(self) -> dict[str, Any]:
        parts = {"within": decimal(self.within), "share": decimal(self.share)}
        return {"areas": self.areas, "people": self.people, **parts}


@dataclass(frozen=True)
class Verdict:
    """One criterion and what was found: the expected share of areas within reach, on how many areas (None: a closed
    form, for every area of this kind), and twice the standard error of a simulated share."""

    criterion: Criterion
    found: float
    margin: float = 0.0
    areas: int | None = None

    def __post_init__(self) -> None:
        """Whoever builds it: a margin is taken off a simulated share and never added to one."""
        told = self.margin == 0 if self.areas is None else _whole(self.areas, 1)
        if not (told and 0 <= self.found <= 1 and self.margin >= 0):
            raise DomainError("a verdict is a share of 0 to 1, and a margin of a simulation on at least one area")

    @property
    def met(self) -> bool:
        """Is the share reached, with room for the error of the simulation?"""
        return self.found - self.margin >= self.criterion.share

    def to_json(self) -> dict[str, Any]:
        found = {"found": self.found, "margin": self.margin, "judged": self.areas}
        return self.criterion.to_json() | found | {"met": self.met}


@dataclass(frozen=True)
class Acceptance:
    """Criteria and verdicts for one recipe on one domain at one epsilon, whose fingerprint is `plan`.

    `public`: name and digest of the public table that some were judged on, with `trials` releases of it; None where
    closed forms told them all. Handed to `release`, which refuses where one is not met, or where it was judged for
    anything else.
    """

    verdicts: tuple[Verdict, ...]
    plan: str
    public: tuple[str, str] | None = None
    trials: int = 0

    def __post_init__(self) -> None:
        tried = any(verdict.areas is not None for verdict in self.verdicts)
        right = _whole(self.trials, 2) if tried else self.trials == 0
        if not self.verdicts or tried == (self.public is None) or not right:
            raise DomainError(
                "acceptance has verdicts; a public table and trials where one is simulated, and only there"
            )

    @property
    def met(self) -> bool:
        return all(verdict.met for verdict in self.verdicts)

    @property
    def basis(self) -> str:
        return FORM if self.public is None else f"{self.trials} releases of the public table {self.public[0]}"

    def table(self) -> str:
        """A line per criterion."""
        lines = []
        for verdict in self.verdicts:
            margin = f" (less {percent(verdict.margin)} for the simulation)" if verdict.margin else ""
            how = FORM if verdict.areas is None else f"{verdict.areas:,} areas of the public table"
            found = f"expected {percent(verdict.found)}{margin}, {how}"
            lines.append(f"{'met    ' if verdict.met else 'NOT MET'}  {verdict.criterion.words()}: {found}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As the manifest tells it."""
        public = None if self.public is None else dict(zip(("name", "fingerprint"), self.public, strict=True))
        judged = {"basis": self.basis, "public": public, "trials": self.trials}
        return {"criteria": [verdict.to_json() for verdict in self.verdicts], **judged}

    def judge(self, plan: str, data: str | None) -> None:
        """Refuse a release that this does not speak for, or that would not be good enough. Before the charge."""
        if self.plan != plan:
            raise DomainError(
                "acceptance was judged for another recipe, domain, unit or epsilon; judge it again with accept(...)"
            )
        if self.public is not None and self.public[0] == data:
            raise PrivacyError(f"what is declared public as {data!r} has the name of the confidential data")
        self.must_be_met()

    def must_be_met(self) -> None:
        """Refuse a release that would not be good enough."""
        if not self.met:
            raise DomainError(
                f"not released, and nothing was charged: the release would not meet its criteria\n{self.table()}\n"
                "ask for a larger epsilon, larger areas or less; the data was not looked at"
            )


def fingerprint(plan: str, said: Mapping[str, Any] | None) -> str:
    """The fingerprint that the ledger is charged under: of the plan, and of what was judged, as `to_json` tells it."""
    if said is None:
        return plan
    text = json.dumps([plan, said], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def by_form(run: Run, criterion: Criterion) -> float | NoForm:
    """The share within reach of areas just over the size, by a closed form of what is released; larger ones fare
    better. Of the laws of an area's error between one Laplace and a normal one the worse is taken."""
    found = _closed(run, criterion.areas)
    if isinstance(found, NoForm):
        return found
    reach = math.floor(criterion.within * (criterion.people + 1))  # released and true sums are whole numbers
    ratio = reach / found
    return down(min(math.erf(ratio / math.sqrt(2)), 1 - math.exp(-math.sqrt(2) * ratio)))


def _closed(run: Run, areas: int | str) -> float | NoForm:
    """Root mean square error of released sums over such areas."""
    why = NoForm(f"{run.mechanism.name} has no closed form for areas {areas!r}: name a public table to judge it on")
    if isinstance(areas, int):
        error = square_errors(run, [areas]).get(areas)
        return error.rmse if error is not None and error.exact and not error.about else why
    if not run.cells_apart or run.domain.size > DENSE_CELLS:
        return why
    weave = Woven(run.domain, interleaved(run.domain), run.domain.maps)
    part = weave.partition(weave.view(areas))
    group = part.of_keys(weave.tree, weave.tree.keys(possible_cells(run.domain)))
    largest = int(np.bincount(group[group >= 0], minlength=1).max())
    return math.sqrt(run.noise.variance * max(largest, 1))


def down(share: float) -> float:
    """Four digits of a share, never more than it is: as it is judged, printed and stored."""
    return math.floor(share * 10_000) / 10_000


def wrong(said: object, run: Run, *, here: bool = True) -> tuple[list[str], list[str]]:
    """What is wrong with what a manifest tells of its acceptance, and what cannot be judged again. A closed form that
    was not computed `here` may differ in its last digit."""
    try:
        told = _told(said)
        faults = [fault for verdict in told.verdicts for fault in _wrong(verdict, run, here)]
    except (AttributeError, KeyError, TypeError, ValueError, KasuriError):
        return ["acceptance: is not of the form in which it is told"], []
    if json.dumps(told.to_json(), sort_keys=True) != json.dumps(said, sort_keys=True):  # 1, 1.0 and true are equal
        faults.append("acceptance: what it was judged on is not what its criteria say")
    return faults, [] if told.public is None else ["acceptance: the public table it was judged on is not told"]


def _told(said: Any) -> Acceptance:
    verdicts = []
    for row in said["criteria"]:
        stated = written(row["within"]), written(row["share"])
        criterion = Criterion(row["areas"], people=row["people"], within=stated[0], share=stated[1])
        verdicts.append(Verdict(criterion, float(row["found"]), float(row["margin"]), row["judged"]))
    public = None if said["public"] is None else (said["public"]["name"], said["public"]["fingerprint"])
    return Acceptance(tuple(verdicts), "", public, said["trials"])


def _wrong(verdict: Verdict, run: Run, here: bool) -> list[str]:
    own, again = f"acceptance: {verdict.criterion.words()}", by_form(run, verdict.criterion)
    faults = [] if verdict.met else [f"{own}: is not met by its own figures"]
    if verdict.areas is not None:
        return faults if isinstance(again, NoForm) else [*faults, f"{own}: has a closed form, and was not judged by it"]
    if isinstance(again, NoForm) or abs(again - verdict.found) > (0 if here else 1.5e-4):
        faults.append(f"{own}: not what the closed form gives")
    return faults


def percent(part: Fraction | float) -> str:
    """A share as people read it.

    >>> percent(Fraction(1, 20)), percent(0.9512)
    ('5 %', '95.1 %')
    """
    return f"{float(100 * part):.4g} %" if isinstance(part, Fraction) else f"{100 * part:.1f} %"


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _part(value: object, name: str) -> Fraction:
    """A share in (0, 1], exact; a text may say it in percent."""
    if isinstance(value, str) and value.rstrip(" ").endswith("%"):
        part = exact(value.rstrip(" ").removesuffix("%").rstrip(" "), name) / 100
    else:
        part = exact(value, name)
    if part > 1:
        raise PrivacyError(f'{name} is at most 1: write "5 %" or "0.05"')
    return part
