"""A job file of a series: one file, run again and again, each slot once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kasuri import files
from kasuri.budget.ledger import Ledger
from kasuri.errors import BudgetError, DomainError, PrivacyError, raise_faults
from kasuri.job.facts import domain, mechanism, unit
from kasuri.job.models import Data, Job, SeriesPart
from kasuri.job.running import counts, judge_exports
from kasuri.privacy import asked, decimal, exact
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import Domain, Unit, Window
from kasuri.series import Calendar, Hour, Series
from kasuri.series import folder as disk
from kasuri.store.export import adds, finished


def part(job: Job) -> SeriesPart:
    """The job's table [series]; DomainError for a job of one release."""
    if job.series is None:
        raise DomainError("this job file is of one release: a series has a table [series]; see docs/guide/series.md")
    return job.series


def _facts(job: Job, base: Path) -> tuple[Window, Domain, Unit, Mechanism, Calendar, Path]:
    told = part(job)
    if job.budget.ledger is None:
        raise PrivacyError("a series is paid by a ledger: [budget] ledger = FILE")
    table, who = domain(job, base), unit(job)
    calendar = Calendar(tuple(told.off), tuple(map(str, told.days_off)), told.season)
    window = Window(told.window, told.slot, told.zone)
    raise_faults(DomainError, _source_faults(job.data, window))
    return window, table, who, mechanism(job, base, table), calendar, base / job.budget.ledger


_BOTH_ENDS = re.compile(r"\bbetween\b[^{]*\{(local_)?start\}[^{]*\band\b[^{]*\{(local_)?end\}", re.IGNORECASE)
_FROM_START = re.compile(r">=[\w\s('\"]*\{(local_)?start\}|\{(local_)?start\}['\")]*(::\w+)?\)?\s*<=")
_TO_END = re.compile(r"<=[\w\s('\"]*\{(local_)?end\}|\{(local_)?end\}['\")]*(::\w+)?\)?\s*>=")
"""A query in which both ends belong to the slot."""


def _source_faults(data: Data, window: Window) -> list[str]:
    """Where the rows of a slot are not told from those of others. A record that is counted in other slots than its own
    changes what is published outside the window that its unit is protected in."""
    said = "[data] must take the rows of one slot, or a record counts in slots that it is not of"
    if data.files:
        return [f"{said}: {file} does not name the slot" for file in data.files if not _names_start(file, window)]
    if data.database is not None and _names_start(str(data.database), window):
        return []
    if data.table is not None:
        of_start, of_end, whole = _bounds(data, window)
        if whole or of_start & of_end:
            return []
        return [f'{said}: where = [time >= "{{start}}", time < "{{end}}"], on one column']
    query = data.query or ""
    if _BOTH_ENDS.search(query) or (_TO_END.search(query) and _FROM_START.search(query)):
        return [
            f"{said}: its query counts the moment between two slots in both: write time < '{{end}}', not BETWEEN or <="
        ]
    reads = any(_names_start(file, window) for file in data.reads.values())
    both = any(start in query and end in query for start, end in _ENDS)
    if reads or both or _names_start(" ".join(re.findall(r"(?<![<>!=])=\s*'([^']*)'", query)), window):
        return []
    return [f"{said}: its query must name {{start}} and {{end}}"]


_ENDS = (("{start}", "{end}"), ("{local_start}", "{local_end}"))
"""A slot from its start to its end: one with its zone and one without lie hours apart where a column has either."""
_Bound = tuple[str, bool, int]


def _bounds(data: Data, window: Window) -> tuple[set[_Bound], set[_Bound], bool]:
    """(column, is the start itself in, which of `_ENDS`) of lower bounds, the same of upper ones, and whether what
    columns equal names the slot."""
    starts, ends = ({words[side]: kind for kind, words in enumerate(_ENDS)} for side in (0, 1))
    lower: set[_Bound] = set()
    upper: set[_Bound] = set()
    equal: list[str] = []
    for one in data.where:
        text = one.value if isinstance(one.value, str) else ""
        if one.op in (">=", ">") and text in starts:
            lower.add((one.column, one.op == ">=", starts[text]))
        elif one.op in ("<", "<=") and text in ends:
            upper.add((one.column, one.op == "<", ends[text]))
        elif one.op == "=":
            equal.append(text)
    return lower, upper, _names_start(" ".join(equal), window)


def _names_start(text: str, window: Window) -> bool:
    """Are these words different in every slot?"""
    if "{start}" in text or "{local_start}" in text:
        return True
    hour = window.seconds % 86400 == 0 or "{hour}" in text
    return "{date}" in text and hour and (window.seconds % 3600 == 0 or "{minute}" in text)


def begin(job: Job, base: Path) -> Series:
    """Open the ledger and the folder of a series, or check that they are what the job says. Nothing is charged."""
    told = part(job)
    window, table, who, recipe, calendar, ledger = _facts(job, base)
    window.index(told.start)
    if not (base / job.output.folder).exists():
        one = [f"{target}: one file for every slot; name the slot in it" for target in job.output.exports
               if not adds(target) and not _names_start(target, window)]  # fmt: skip
        raise_faults(DomainError, one)
        first = _words(window, window.index(told.start))
        judge_exports(table, [_filled(target, first) for target in job.output.exports], job.output.levels)
    book = Ledger.open(
        ledger, epsilon=job.budget.epsilon, delta=told.delta, unit=who, data=job.data.name, window=window,
        recipe=recipe, domain=table, aside=told.aside,
    )  # fmt: skip
    return Series.open(base / job.output.folder, ledger=book, recipe=recipe, domain=table, calendar=calendar)


def opened(job: Job, base: Path) -> Series:
    """The series of a job, which must have been begun, with the facts that the job says."""
    window, table, who, recipe, calendar, ledger = _facts(job, base)
    book = Ledger.load(ledger)
    raise_faults(PrivacyError, _changed(job, book, window, who))
    return Series.open(base / job.output.folder, ledger=book, recipe=recipe, domain=table, calendar=calendar)


def _changed(job: Job, book: Ledger, window: Window, who: Unit) -> list[str]:
    """What the job says otherwise than the ledger was opened with."""
    told, held, name = part(job), book.allowance, book.path.name
    if held.window != window or book.data != job.data.name:
        return [f"{name}: was opened for another window or other data than the job says"]
    faults = []
    epsilon, delta = asked(job.budget.epsilon, study=True), exact(told.delta, "delta")
    if (held.epsilon, held.delta) != (epsilon, delta):
        faults.append(
            f"{name}: was opened with epsilon {decimal(held.epsilon)} and delta {decimal(held.delta)}, which never "
            f"change; the job says {decimal(epsilon)} and {decimal(delta)}"
        )
    if told.aside is not None and held.price > epsilon - exact(told.aside, "aside"):
        faults.append(f"{name}: less of epsilon was set aside than the job says")
    if book.unit != who:
        faults.append(f"{name}: protects {book.unit.words()}; the job protects {who.words()}")
    return faults


def due(job: Job, series: Series, until: str | None = None) -> list[int]:
    """Slots that have ended, are not paid for and not declared missing, from the job's start on, oldest first."""
    told, window = part(job), series.window
    ready = datetime.now(UTC) - timedelta(minutes=told.wait)
    last = None if until is None else window.index(until)
    done, gone = series.ledger.paid_slots(), series.missing()
    out, at = [], window.index(told.start)
    while window.ended(at, ready) and (last is None or at <= last):
        if at not in done and at not in gone:
            out.append(at)
        at += 1
    return out


def run(
    job: Job,
    base: Path,
    series: Series,
    slots: list[int],
    *,
    threads: int | None = None,
    begun: Callable[[str], None] = lambda label: None,
) -> Iterator[Hour]:
    """Count, release and export these slots, one after the other. A slot that is paid for is not drawn again."""
    for hour in _unexported(job, series):
        _export(job, base, series, hour, again=True)
    for slot in slots:
        label = series.window.label(slot)
        if slot in series.ledger.paid_slots():
            continue  # another run of the same job was quicker
        begun(label)
        words = _words(series.window, slot)
        data = Data.model_validate(_filled(job.data.model_dump(exclude_unset=True), words))
        table = counts(job.model_copy(update={"data": data}), base)
        try:
            hour = series.release(table, slot=label, threads=threads)
        except BudgetError:
            if slot in series.ledger.paid_slots():
                continue
            raise
        _export(job, base, series, hour)
        yield hour


def _unexported(job: Job, series: Series) -> Iterator[Hour]:
    """Published slots whose exports a crash left undone."""
    if job.output.exports:
        for label in series.labels():
            if not _mark(series, label).exists():
                yield series.hour(label)


def _mark(series: Series, label: str) -> Path:
    return series.folder / "exported" / label[:16].replace(":", "-")


def _export(job: Job, base: Path, series: Series, hour: Hour, *, again: bool = False) -> None:
    """Append the slot to every export, once; `again`: what is there already is what a crash left."""
    if not job.output.exports:
        return
    with disk.alone(series.folder, ".exporting"):
        if not _mark(series, hour.slot).exists():
            _append(job, base, series, hour, again)


def _append(job: Job, base: Path, series: Series, hour: Hour, again: bool) -> None:
    words = _words(series.window, series.window.index(hour.slot))
    for target in job.output.exports:
        filled = _filled(target, words)
        where = filled if "://" in filled else str(base / filled)
        if again and not adds(where) and finished(where, job.output.levels):
            continue
        try:
            hour.export(where, levels=job.output.levels)
        except DomainError as error:
            if not (again and adds(where) and "never written over" in str(error)):
                raise
    mark = _mark(series, hour.slot)
    mark.parent.mkdir(exist_ok=True)
    files.write(mark, "")


def _words(window: Window, slot: int) -> dict[str, str]:
    """What stands for {...} in a job file: the slot's start and end with their zone, and as the clock there shows."""
    start, end = window.start(slot), window.start(slot + 1)
    return {
        "{start}": start.isoformat(timespec="seconds"),
        "{end}": end.isoformat(timespec="seconds"),
        "{local_start}": start.replace(tzinfo=None).isoformat(" ", "seconds"),
        "{local_end}": end.replace(tzinfo=None).isoformat(" ", "seconds"),
        "{date}": start.date().isoformat(),
        "{hour}": f"{start.hour:02d}",
        "{minute}": f"{start.minute:02d}",
    }


def _filled(told: Any, words: dict[str, str]) -> Any:
    """The same with every {...} of a slot filled in; other braces stay."""
    if isinstance(told, str):
        for name, text in words.items():
            told = told.replace(name, text)
        return told
    if isinstance(told, dict):
        return {name: _filled(value, words) for name, value in told.items()}
    return [_filled(value, words) for value in told] if isinstance(told, (list, tuple)) else told
