"""Every fault of a job file and of its data in one go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kasuri.errors import DomainError, FormatError, KasuriError, rows_faults
from kasuri.ingest import axes
from kasuri.ingest.frames import numbers
from kasuri.ingest.micro import needed, typed_ids
from kasuri.ingest.sources import RAGGED, numbered, open_stream
from kasuri.ingest.stream import trusted
from kasuri.job.facts import about, criteria, domain, mechanism, opened, sources, unit
from kasuri.job.lines import line_of, load
from kasuri.job.models import Job
from kasuri.job.parameters import Place, form_faults, places
from kasuri.job.running import away, counts, exports, judge_criteria, judge_recipe
from kasuri.schema import Domain, Unit
from kasuri.store.export import export_faults


def check(path: str | Path, *, outside: bool = False) -> list[str]:
    """Every fault of a job file and of its data, in one go: file, row, column, rule. The answer is confidential.

    outside=True lets records fall outside the domain, as `run` does.
    """
    path = Path(path)
    try:
        job = load(path)
    except FormatError as error:
        return list(error.faults)
    text, base = path.read_text(encoding="utf-8"), path.parent
    found, parts = facts(job, base)
    if len(parts.keys() & {"domain", "unit", "recipe"}) == 3:
        try:
            judge_recipe(job, parts["recipe"], parts["domain"], parts["unit"])
        except KasuriError as error:
            found += [("recipe", fault) for fault in error.faults]
        else:
            found += _unmet(job, base, parts)
    faults = [f"{path}, line {line_of(text, (at,))}: {at}: {fault}" for at, fault in found]
    if "domain" in parts and "unit" in parts and job.spark is None:  # the rows of a cluster are not read here
        faults += _data_faults(job, base, parts["domain"], parts["unit"], outside)
    return faults


def _unmet(job: Job, base: Path, parts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the job asks of its release and would not get."""
    if "criteria" not in parts:
        return []
    try:
        judged = judge_criteria(job, base, parts["recipe"], parts["domain"], parts["unit"])
        if judged is not None:
            judged.must_be_met()
    except KasuriError as error:
        return [("acceptance", fault) for fault in error.faults]
    return []


def facts(job: Job, base: Path) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """What is wrong with a job beside its form, as (table of the file, fault), and the domain, unit and recipe as far
    as they can be made. No row is read, and the recipe is not resolved, which can take long on a large domain."""
    found: list[tuple[str, str]] = []
    parts: dict[str, Any] = {}

    def attempt(name: str, at: str, make: Callable[[], Any]) -> None:
        try:
            parts[name] = make()
        except KasuriError as error:
            found.extend((at, fault) for fault in error.faults)

    attempt("domain", "axes", lambda: domain(job, base))
    attempt("unit", "unit", lambda: unit(job))
    if "domain" in parts:
        attempt("recipe", "recipe", lambda: mechanism(job, base, parts["domain"]))
        found += [("output", fault) for fault in export_faults(parts["domain"], exports(job, base), job.output.levels)]
    attempt("about", "about", lambda: about(job))
    attempt("criteria", "acceptance", lambda: criteria(job))
    if (base / job.output.folder).exists():
        found.append(("output", "folder exists; a release is never written over another"))
    return found, parts


def faults(content: Mapping[str, Any], base: Path) -> list[tuple[Place, str]]:
    """What is wrong with the content of a job file, or still missing, without a look at its data."""
    try:
        job = Job.model_validate(content)
    except ValidationError as error:
        return form_faults(error, content)
    return [((at,), fault) for at, fault in facts(job, base)[0]]


def _data_faults(job: Job, base: Path, table: Domain, who: Unit, outside: bool) -> list[str]:
    faults: list[str] = []
    records = []
    if job.data.kind == "table":
        try:
            found = [opened(job, [source]) for source in sources(job, base)]
        except KasuriError as error:
            return list(error.faults)
        for source in found:
            try:
                stream = open_stream(source, memory=job.data.memory, away=away(job, base))
            except KasuriError as error:
                faults += error.faults
                continue
            if who.id in stream.names:
                records.append(stream)
    if not records:
        if not faults:
            try:
                counts(job, base)
            except KasuriError as error:
                faults += error.faults
        return faults
    kinds: set[str] = set()
    for stream in records:
        try:
            faults += _record_faults(stream, job, table, who, outside, kinds)
        except KasuriError as error:
            faults += error.faults
    if len(kinds) > 1:
        faults.append(f"column {who.id}: ids are whole numbers in one part and text in another; use one")
    return faults


def _record_faults(stream: Any, job: Job, table: Domain, who: Unit, outside: bool, kinds: set[str]) -> list[str]:
    """The faults of records, by row, which a release passes over in silence; the kinds of ids are added to `kinds`."""
    import numpy as np
    import pyarrow as pa

    columns, weight = places(job.data.columns), job.data.sum if isinstance(job.data.sum, str) else job.data.weight
    found = axes.place_faults(stream.names, table, columns, stream.label)
    if weight is not None and weight not in stream.names:
        found.append(f"{stream.label}: no column {weight!r}; is there a header line?")
    if weight is not None and who.max_weight is None and who.max_sum is None:
        found.append(f"{stream.label}: unit.max_weight (or max_sum) must bound column {weight!r}")
    if not found:
        found += axes.twice(stream.names, needed(columns, who, weight), stream.label)
    if found:
        return found
    trusted(stream, who.id, needed(columns, who, weight), job.data.assume)
    wrong_rows: dict[tuple[str, str], list[Any]] = {}

    def report(wrong: Any, column: str, rule: str) -> None:
        wrong_rows.setdefault((column, rule), []).append(np.flatnonzero(wrong) + done)

    done = 0
    ragged: list[int] = []
    for batch, _ in stream.start(needed(columns, who, weight), ragged):
        ids = batch.column(who.id)
        if not pa.types.is_null(ids.type):
            try:
                kind, ids = typed_ids(ids, None, stream.label, who.id)
                kinds.add(kind)
            except DomainError as error:
                found += [fault for fault in error.faults if fault not in found]
        report(
            ids.is_null().to_numpy(zero_copy_only=False),
            who.id,
            f"the id is missing, not in the file's encoding, or longer than {axes.LONGEST} bytes",
        )
        if weight is not None:
            values, wrong = numbers(batch.column(weight))
            wrong |= (values < 1) | (values != np.floor(values))
            report(wrong, weight, "not a whole number of at least 1")
        if not outside:
            index, possible = [], np.ones(batch.num_rows, dtype=bool)
            for axis in table.axes:
                place = columns[axis.name]
                names = axes.names(place)
                held = [batch.column(name) for name in names]
                parts, wrong, rule = axes.from_arrow(axis, place, held)
                for some, words in axes.reasons(axis, place, held, wrong, rule):
                    report(some, "/".join(names), words)
                index += parts
                possible &= ~wrong
            if table.mask:
                report(possible & ~table.possible(table.ravel(index)), "/".join(names), "a cell that is masked")
        done += batch.num_rows
    found += rows_faults(stream.label, "", RAGGED, ragged)
    for (column, rule), at in wrong_rows.items():
        found += rows_faults(stream.label, column, rule, numbered(np.concatenate(at), ragged, stream.fold))
    return found
