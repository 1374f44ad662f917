"""Series: slots released one after the other, each drawn once, filtered with those before it, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kasuri import draw, files
from kasuri.budget.ledger import Ledger
from kasuri.budget.window import VARYING, prices
from kasuri.errors import BudgetError, DomainError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.noise.blocks import threads_or_all
from kasuri.noise.rng import Source
from kasuri.privacy import decimal, written
from kasuri.recipes.counttree import CountTreeRun
from kasuri.recipes.mechanism import Mechanism
from kasuri.recipes.read import read
from kasuri.refine import filter as filters
from kasuri.refine.filter import Measured, Shape, State, When
from kasuri.refine.smooth import smooth
from kasuri.schema import Domain, Unit, Window
from kasuri.series import folder as disk
from kasuri.series import judged
from kasuri.series.calendar import Calendar
from kasuri.series.hour import Hour, SlotRun, flagged, levels_of, shape_of, to_cells
from kasuri.series.revised import Revised
from kasuri.table import Counts

FORMAT = 1
_STATE_EVERY = 24  # slots of a small tree between two copies of the state; of a large one it is kept at once
_SMALL = 1 << 18

MUST_NOT = (
    "epsilon per person: the claim is about one window",
    "that the budget is renewed: what a window has lost is never undone",
    "a figure for a window whose slots were also published elsewhere without being charged to this ledger",
    "protection of habits repeated over weeks at the price of one window: see the rows of longer spans",
)


@dataclass(frozen=True, eq=False)
class Series:
    """Hourly tables (or of any slot) for ever, in one public folder.

    Privacy
    -------
    Neighbours: streams that differ by one unit's records in one window. Sensitivity: as of the recipe, slot by slot.
    Guarantee: the window's (epsilon, delta), whatever is published, ever; filtering and revising are post-processing.
    Proof: docs/proofs/window.md, docs/proofs/series.md. Public: window, calendar, recipe, domain, all measurements, the
    state. Assumes: as of the recipe and the ledger; a slot is missing for public reasons only.
    """

    folder: Path
    ledger: Ledger
    run: CountTreeRun
    window: Window
    calendar: Calendar
    data: str
    filter: int = filters.VERSION
    """The version of the filter that it was begun with."""

    # -- opening --------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        ledger: Ledger,
        recipe: Mechanism | None = None,
        domain: Domain | None = None,
        calendar: Calendar | None = None,
    ) -> Series:
        """Open the series in `folder`, or begin one: recipe and domain as in `Ledger.open`.

        A series that was begun has its facts on disk: what is given again must be the same. Another calendar or
        recipe needs another folder.
        """
        allowance, place = ledger.allowance, Path(folder)
        if allowance.window is None or allowance.series is None:
            raise PrivacyError("a series is paid by a ledger with window=Window(...), recipe and domain")
        if not (place / disk.FACTS).exists():
            if recipe is None or domain is None:
                raise DomainError(f"{place}: no series there; give recipe= and domain= to begin one")
            _begin(place, ledger, recipe, domain, calendar or Calendar())
        facts = disk.read_json(place / disk.FACTS)
        series = _read(cls, place, ledger, facts)
        if calendar is not None and calendar != series.calendar:
            raise DomainError(f"{place}: was begun with another calendar; begin a new folder, which costs nothing")
        if domain is not None and domain != series.run.domain:
            raise PrivacyError(f"{place}: was begun on another domain. {VARYING}")
        if recipe is not None:
            whole = allowance.price, allowance.delta
            own = recipe.settled(series.run.domain, ledger.unit, allowance.window, *whole)
            if own.plan(series.run.domain, ledger.unit, allowance.series.epsilon) != allowance.series.plan:
                raise PrivacyError(f"{place}: was begun with another recipe. {VARYING}")
        with disk.alone(place):
            series._recover()
        return series

    def __repr__(self) -> str:
        return f"Series({self.folder.name!r}, {self.window.words()}, slots of {self.window.slot}, data={self.data!r})"

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.run, self.calendar.rows(self.window), self.filter)

    # -- releasing ------------------------------------------------------------------------------------------------

    def release(self, counts: Counts, *, slot: str, source: Source | None = None, threads: int | None = None) -> Hour:
        """Pay for a slot, draw it, filter it with the slots before, and publish it in the folder.

        Every refusal comes before the charge. An empty table is released like any other: to refuse it would tell. A
        slot older than the last one published is published by itself and enters the filter when the series is
        revised.
        """
        if not isinstance(counts, Counts):
            raise PrivacyError("Series.release takes Counts (see count(), Counts.from_dense, Counts.from_coo)")
        index = self.window.index(slot)
        label = self.window.label(index)
        if counts.domain != self.run.domain:
            raise PrivacyError(f"the counts are on another domain than the series. {VARYING}")
        if counts.unit != self.run.guarantee.unit or counts.data != self.data:
            raise PrivacyError("the counts have another unit or data name than the series")
        source = draw.checked(self.run.mechanism, self.ledger, source)
        if not source.secure:
            raise PrivacyError("a series is published: source must be secure()")
        with disk.alone(self.folder):
            self._recover()
            said = disk.slots(self.folder)
            if index in self.missing():
                raise DomainError(f"slot {label} was declared missing")
            self._backed(said)
            if index in self.ledger.paid_slots():
                raise BudgetError(f"slot {label} is paid for; a slot is drawn once. Nothing was drawn")
            state, last = self._state(said)
            late = last is not None and index < last
            when = self.calendar.when(self.window, index)
            run = SlotRun.of(self.run, () if late else tuple(filters.wanted(self.shape, state, when)))
            aside = disk.aside_of(self.folder, label)
            try:
                hour, after = self._drawn(run, counts, source, threads_or_all(threads), label, when, state, late)
                told = self._told(hour, said, late)
                mark = disk.write_slot(aside, told, hour.measurements, (hour.cells, hour.values, hour.spread))  # type: ignore[arg-type]
                assert hour.receipt is not None
                hour.receipt.commit(hour.provenance["release_id"])
                disk.publish(aside)
            finally:
                disk.drop(aside)
            if not late and (len(said) % _STATE_EVERY == _STATE_EVERY - 1 or _nodes(after) > _SMALL):
                disk.write_state(self.folder, after, mark)
            self.__dict__["_held"] = (after, index if not late else last, mark)
        return hour

    def _drawn(self, run: SlotRun, counts: Counts, source: Source, threads: int, label: str, when: When,
               state: State, late: bool) -> tuple[Hour, State]:  # fmt: skip
        paid = draw.charge(
            run, self.ledger, source, data=counts.data, assumes=counts.assumes, part=counts.part, about=None,
            slots=(label, label),
        )  # fmt: skip
        with paid.streams() as streams:
            numbers = draw.draw(run, counts, streams, threads).measurements
        assert numbers is not None
        found, after = self._filtered(numbers, state, when, late)
        cells, values, spread, flags = found
        parts = run.domain, cells, values, numbers, paid.guarantee, MappingProxyType(self.run.words())
        told = {"slot": label, "status": "late" if late else "first", "spread": spread, "flags": flags}
        return Hour(*parts, paid.provenance, paid.receipt, **told), after

    def _filtered(self, numbers: Any, state: State, when: When, late: bool) -> tuple[tuple[Any, ...], State]:
        """(cells, values, model errors, flags) of a slot, and the state after it, from published numbers alone."""
        levels = levels_of(self.run, numbers)
        begun = filters.begin(self.shape) if late else state
        found, after = filters.step(self.shape, begun, levels, when)
        profiled = state.row >= 0 and not late and state.times[[when.row, when.twin]].any()
        flags = flagged(self.run, levels, found) if profiled else ()
        return (*to_cells(self.run, levels, found), flags), state if late else after

    def _told(self, hour: Hour, said: list[dict[str, Any]], late: bool) -> dict[str, Any]:
        return {
            "number": len(said) + 1,
            "previous": said[-1]["digest"] if said else "",
            "slot": hour.slot,
            "status": hour.status,
            "used": 0 if late else sum(one["status"] == "first" for one in said),
            "release_id": hour.provenance["release_id"],
            "ledger": hour.provenance["ledger"],
            "software": hour.provenance["software"],
            "source": hour.provenance["source"],
            "assumes": list(hour.guarantee.assumes),
            "flags": [dict(one) for one in hour.flags],
        }

    def declare_missing(self, slot: str, *, reason: str) -> None:
        """Say that a slot will not be published, and why: a public fact (a timetable, a notice of an outage), never
        what the counts show. Costs nothing; the slot cannot be released afterwards."""
        raise_faults(PrivacyError, judged.reason_faults(reason))
        index = self.window.index(slot)
        with disk.alone(self.folder):
            if index in self.ledger.paid_slots():
                raise DomainError(f"slot {self.window.label(index)} is paid for already")
            held = self.missing()
            told = {self.window.label(at): why for at, why in held.items()} | {self.window.label(index): reason}
            files.write(self.folder / disk.ABSENT, disk.text(told))

    def missing(self) -> dict[int, str]:
        """Slots that were declared missing, with their reasons."""
        return {self.window.index(label): str(reason) for label, reason in self._absent().items()}

    def _absent(self) -> dict[str, Any]:
        path = self.folder / disk.ABSENT
        return disk.read_json(path) if path.exists() else {}

    # -- looking --------------------------------------------------------------------------------------------------

    def labels(self) -> list[str]:
        """Published slots in the order of time."""
        return sorted(one["slot"] for one in disk.slots(self.folder))

    def hour(self, slot: str) -> Hour:
        """A published slot, read back."""
        label = self.window.label(self.window.index(slot))
        for one in disk.slots(self.folder):
            if one["slot"] == label:
                return self._hour(one)
        raise DomainError(f"slot {label} is not published in {self.folder}")

    def hours(self, last: int) -> Iterator[Hour]:
        """The last so many published slots in the order of time, for looking at: without their receipts."""
        said = sorted(disk.slots(self.folder), key=lambda one: self.window.index(one["slot"]))
        for one in said[-max(last, 1) :]:
            yield self._hour(one, paid=False)

    def _hour(self, one: dict[str, Any], *, paid: bool = True) -> Hour:
        cells, values, spread = disk.values(one["folder"])
        guarantee = self.run.guarantee.assuming(*one["assumes"])
        provenance = {name: one[name] for name in ("release_id", "ledger", "software", "source")}
        provenance |= {"secure": True, "data": self.data, "plan": self.ledger.allowance.series.plan}  # type: ignore[union-attr]
        numbers = disk.measurements(one["folder"])
        parts = self.run.domain, cells, values, numbers, guarantee, MappingProxyType(self.run.words())
        told = {"slot": one["slot"], "status": one["status"], "spread": spread, "flags": tuple(one["flags"])}
        receipt = self.ledger.receipt(one["ledger"]["entry"]) if paid else None
        return Hour(*parts, MappingProxyType(provenance), receipt, **told)

    def status(self) -> dict[str, Any]:
        """The series in plain data: what was declared, what is published, paid, lost and missing, and the prices."""
        said, paid = disk.slots(self.folder), self.ledger.paid_slots()
        shown = {self.window.index(one["slot"]) for one in said}
        facts = disk.read_json(self.folder / disk.FACTS)
        return {
            "series": str(self.folder.name),
            "data": self.data,
            "window": self.window.to_json(),
            "claim": facts["claim"],
            "prices": self.ledger.summary()["window"]["prices"],  # with what was charged beside the series since
            "must_not_be_claimed": list(MUST_NOT),
            "published": len(said),
            "first": min((one["slot"] for one in said), default=None),
            "last": max((one["slot"] for one in said), default=None),
            "late": [one["slot"] for one in said if one["status"] == "late"],
            "lost": [self.window.label(at) for at in sorted(paid.keys() - shown)],
            "missing": {self.window.label(at): why for at, why in sorted(self.missing().items())},
            "flagged": [one["slot"] for one in said if one["flags"]][-24:],
        }

    def revise(self, first: str, last: str) -> Revised:
        """Published slots from `first` to `last` estimated once more, with all those before and after them, late ones
        too. A function of published numbers: it costs nothing, and gives other numbers than were published first."""
        ends = self.window.index(first), self.window.index(last)
        said = sorted(disk.slots(self.folder), key=lambda one: self.window.index(one["slot"]))
        at = [self.window.index(one["slot"]) for one in said]
        inside = [place for place, index in enumerate(at) if ends[0] <= index <= ends[1]]
        if not inside:
            raise DomainError(f"no slot from {first} to {last} is published in {self.folder}")
        readers = [partial(self._numbers, one) for one in said]
        wanted = range(inside[0], inside[-1] + 1)
        maps = []
        for place, found in zip(wanted, smooth(self.shape, readers, wanted), strict=True):
            maps.append(to_cells(self.run, readers[place]()[0], found))
        names = tuple(one["slot"] for one in said)
        told = {"ledger": self.ledger.id, "data": self.data, "filter": self.filter, "head": said[-1]["digest"]}
        return Revised(self.run.domain, tuple(names[place] for place in wanted), tuple(maps), names, told)

    def _numbers(self, one: dict[str, Any]) -> tuple[list[Measured], When]:
        """A published slot as the filter takes it."""
        when = self.calendar.when(self.window, self.window.index(one["slot"]))
        return levels_of(self.run, disk.measurements(one["folder"])), when

    # -- replaying ------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Finish what a crash left: a slot that was written whole gets its name; what was not is gone, and stays
        paid."""
        for part in disk.parts(self.folder):
            if (part / disk.SLOT).exists():
                told = disk.read_json(part / disk.SLOT)
                receipt = self.ledger.receipt(int(told["ledger"]["entry"]))
                if receipt is not None and receipt.hash == told["ledger"]["hash"]:
                    with suppress(PrivacyError):
                        receipt.commit(told["release_id"])
                        disk.publish(part)
            disk.drop(part)

    def _backed(self, said: list[dict[str, Any]]) -> None:
        """FormatError where the ledger no longer knows a published slot: both its files were put back to an earlier
        state, and slots that it has forgotten could be drawn twice."""
        paid = self.ledger.paid_slots()
        lost = [one for one in said if paid.get(self.window.index(one["slot"])) != one["ledger"]["entry"]]
        if not lost and said and not self.ledger.holds(said[-1]["ledger"]["entry"], said[-1]["ledger"]["hash"]):
            lost = said[-1:]
        if lost:
            raise FormatError(
                f"{self.ledger.path.name}: does not know that slot {lost[0]['slot']} was paid, which is published: it "
                "was put back to an earlier state. Nothing was drawn; restore its latest copy"
            )

    def _state(self, said: list[dict[str, Any]]) -> tuple[State, int | None]:
        """The filter's state after the last slot: the one held, or the kept one brought up to date from the published
        measurements."""
        timely = [one for one in said if one["status"] == "first"]
        last = self.window.index(timely[-1]["slot"]) if timely else None
        held = self.__dict__.get("_held")
        if held is not None and timely and held[2] == said[-1]["digest"]:
            return held[0], last
        kept = disk.read_state(self.folder, len(self.shape.variances))
        digests = [one["digest"] for one in timely]
        start = digests.index(kept[1]) + 1 if kept is not None and kept[1] in digests else 0
        state = kept[0] if kept is not None and start else filters.begin(self.shape)
        for one in timely[start:]:
            state = filters.step(self.shape, state, *self._numbers(one))[1]
        return state, last

    def verify(self) -> dict[str, Any]:
        """Compute everything again from the published measurements: nodes drawn, filtered maps, flags, the state; and
        compare files, ledger and facts. `faults` lists what differs."""
        faults: list[str] = []
        plan = self.ledger.allowance.series.plan  # type: ignore[union-attr]
        facts = _declared(self.ledger, self.run.domain, self.run, plan, self.calendar, self.filter)
        if disk.text(disk.read_json(self.folder / disk.FACTS)) != disk.text(facts):  # 8.0 is not 8, true is not 1
            faults.append(f"{disk.FACTS}: does not say what the ledger and the recipe do")
        try:
            said = disk.slots(self.folder)
        except FormatError as error:
            return {"ok": False, "slots": 0, "faults": [*faults, str(error)], "state": None}
        strange = [one.get("number") for one in said if not judged.formed(one, self.window)]
        if strange:
            faults += [f"slot number {number}: does not say what a slot says" for number in strange]
            return {"ok": False, "slots": len(said), "faults": faults, "state": None}
        faults += judged.places(self.folder, said)
        absent = judged.missing(self._absent(), self.ledger.paid_slots(), self.window)
        faults += [f"{disk.ABSENT}: {fault}" for fault in absent]
        entries = {entry["entry"]: entry for entry in self.ledger.entries()}
        settled = {entry["of"]: entry for entry in entries.values() if entry["kind"] == "committed"}
        state, marks = filters.begin(self.shape), {}
        timely: list[str] = []
        for one in said:
            label, late = one["slot"], one["status"] == "late"
            wrong = [file for file, mark in one["files"].items() if disk.digest(one["folder"] / file) != mark]
            faults += [f"slot {label}: {file} was changed" for file in wrong]
            entry = entries.get(one["ledger"]["entry"], {})
            paid = entry.get("claim", {}).get("slots") == [self.window.index(label)] * 2
            if entry.get("hash") != one["ledger"]["hash"] or not paid:
                faults.append(f"slot {label}: its ledger did not pay for it")
            elif settled.get(entry["entry"], {}).get("release_id") != one["release_id"]:
                faults.append(f"slot {label}: was not committed to this release")
            else:
                told = judged.words(one, entry, timely, self.window, self.ledger)
                faults += [f"slot {label}: {fault}" for fault in told]
            when = self.calendar.when(self.window, self.window.index(label))
            try:
                numbers = disk.measurements(one["folder"])
                also = () if late else tuple(filters.wanted(self.shape, state, when))
                judged.noise(SlotRun.of(self.run, also).visit, numbers)
                faults += [f"slot {label}: {fault}" for fault in judged.tables(one["folder"], numbers)]
                found, state = self._filtered(numbers, state, when, late)
                values = disk.values(one["folder"])
            except (KasuriError, OSError, ValueError) as error:
                faults.append(f"slot {label}: {error if isinstance(error, KasuriError) else 'cannot be read'}")
                break
            same = all(np.array_equal(own, kept) for own, kept in zip(found, values, strict=False))
            if not same or [dict(flag) for flag in found[3]] != one["flags"]:
                faults.append(f"slot {label}: its map does not follow from the published measurements")
            marks[one["digest"]] = disk.state_digest(state)
            timely += [] if late else [label]
        kept = disk.read_state(self.folder, len(self.shape.variances))
        if kept is not None and marks.get(kept[1]) != disk.state_digest(kept[0]):
            faults.append("state.npz: not the state that follows from the measurements; remove it, it is made again")
        return {"ok": not faults, "slots": len(said), "faults": faults, "state": disk.state_digest(state)}


def _nodes(state: State) -> int:
    return sum(known.prefix.size for known in state.known)


def _begin(place: Path, ledger: Ledger, recipe: Mechanism, domain: Domain, calendar: Calendar) -> None:
    allowance = ledger.allowance
    window, series = allowance.window, allowance.series
    assert window is not None and series is not None
    own = recipe.settled(domain, ledger.unit, window, allowance.price, allowance.delta)
    run = own.on(domain, ledger.unit, series.epsilon).counted()
    if own.plan(domain, ledger.unit, series.epsilon) != series.plan:
        raise PrivacyError(f"{ledger.path.name}: was opened for another recipe or domain. {VARYING}")
    if run is None:
        raise PrivacyError("a series is filtered along a tree of counts: use refined_tree('series', ...)")
    shape_of(run, 1)  # refuses what it cannot filter
    facts = _declared(ledger, domain, run, series.plan, calendar, filters.VERSION)
    (place / "slots").mkdir(parents=True, exist_ok=True)
    files.write(place / disk.FACTS, disk.text(facts), new=True)


def _declared(
    ledger: Ledger, domain: Domain, run: CountTreeRun, plan: str, calendar: Calendar, version: int
) -> dict[str, Any]:
    """What a series says of itself from its first slot on."""
    allowance = ledger.allowance
    window, series = allowance.window, allowance.series
    assert window is not None and series is not None
    claim = (
        f"whatever one {ledger.unit.id} did in {window.words()} changes the probability of anything published of this "
        f"series, ever, by a factor of at most e^{decimal(allowance.epsilon)}, but for delta {decimal(allowance.delta)}"
    )
    rows = prices(series, window, allowance.delta)
    return {
        "format": FORMAT,
        "ledger": ledger.id,
        "data": ledger.data,
        "window": window.to_json(),
        "unit": ledger.unit.to_json(),
        "domain": domain.to_json(),
        "epsilon": decimal(series.epsilon),
        "delta": decimal(allowance.delta),
        "plan": plan,
        "recipe": run.words(),
        "calendar": calendar.to_json(),
        "filter": version,
        "claim": claim,
        "must_not_be_claimed": list(MUST_NOT),
        "prices": [{"span": name, "slots": slots, "epsilon": decimal(price)} for name, slots, price in rows],
    }


def _read(cls: type[Series], place: Path, ledger: Ledger, facts: dict[str, Any]) -> Series:
    try:
        if facts["format"] != FORMAT or facts["filter"] not in filters.VERSIONS:
            raise FormatError(f"{place}: begun with another version of the filter; begin a new folder, at no cost")
        domain, unit, window = Domain.from_json(facts["domain"]), Unit(**facts["unit"]), Window(**facts["window"])
        run = read(facts["recipe"], domain, unit, written(facts["epsilon"]))
        calendar, name = Calendar.from_json(facts["calendar"]), facts["data"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, KasuriError):
            raise
        raise FormatError(f"{place / disk.FACTS}: a field is missing or malformed") from None
    series = ledger.allowance.series
    assert series is not None
    plan = run.mechanism.plan(domain, unit, series.epsilon)
    same = facts["ledger"] == ledger.id and plan == series.plan and window == ledger.allowance.window
    counted = run.counted()
    if not same or counted is None:
        raise PrivacyError(f"{place}: is the series of another ledger, recipe or domain")
    return cls(place, ledger, counted, window, calendar, name, facts["filter"])
