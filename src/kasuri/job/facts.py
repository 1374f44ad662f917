"""The facts a job file states: its public domain, its unit, its recipe, and where its confidential rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.ingest import File, Melt, Query, Table, read_array
from kasuri.job.axes import not_public
from kasuri.job.models import Job
from kasuri.job.parameters import places, public_table, refuse_public, same_file
from kasuri.public import PublicTable
from kasuri.published.about import About
from kasuri.published.acceptance import Criterion
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import Axis, Domain, Mask, Unit
from kasuri.schema.maps import RegionMap


def about(job: Job) -> dict[str, str] | None:
    """What readers are told of the release."""
    return None if job.about is None else About.of(job.about.words()).to_json()


def domain(job: Job, base: Path) -> Domain:
    """The public domain the job declares; the files of its labels and masks are relative to `base`. A file of labels
    that is (or may be) the confidential data is not opened."""
    faults: list[str] = []
    private: list[str] = []
    made: list[Axis] = []
    for axis in job.axes:
        try:
            secret = not_public(axis, sources(job, base), base) if axis.file is not None else []
            private += secret
            if not secret:
                made.append(axis.make(base))
        except KasuriError as error:
            faults += error.faults
    masks: list[Mask] = []
    for part in job.masks:
        try:
            masks.append(Mask.of(part.axes, read_array(base / part.file)))
        except KasuriError as error:
            faults += error.faults
    maps: list[RegionMap] = []
    for told in job.maps:
        secret = [fault for source in sources(job, base) for fault in same_file(base / told.file, source)]
        private += [f"the map {told.file} {fault}" for fault in dict.fromkeys(secret)]
        try:
            if not secret:
                maps.append(RegionMap.load(base / told.file))
        except KasuriError as error:
            faults += error.faults
    raise_faults(PrivacyError if private else DomainError, private + faults)
    return Domain(tuple(made), tuple(masks), tuple(maps))


def unit(job: Job) -> Unit:
    told = job.unit
    return Unit(told.id, told.change, told.max_cells, told.max_weight, told.per, told.max_sum)


def mechanism(job: Job, base: Path, table: Domain) -> Mechanism:
    """The recipe the job asks for; its public files, relative to `base`, are read, and are not the data."""
    refuse_public(job.recipe.public, job.data.name, sources(job, base), base)
    return job.recipe.mechanism(base, table, *public_columns(job))


def criteria(job: Job) -> list[Criterion]:
    """What the release must reach; DomainError names every fault."""
    found, faults = list[Criterion](), list[str]()
    for part in job.acceptance.criteria if job.acceptance is not None else ():
        try:
            found.append(Criterion(part.areas, people=part.people, within=part.within, share=part.share))
        except KasuriError as error:
            faults += error.faults
    raise_faults(DomainError, faults)
    return found


def judged_on(job: Job, base: Path, table: Domain) -> PublicTable | None:
    """The public table that acceptance is judged on, which is not the data."""
    part = None if job.acceptance is None else job.acceptance.on
    if part is None:
        return None
    refuse_public([part], job.data.name, sources(job, base), base)
    return public_table(part, base, table, *public_columns(job))


def public_columns(job: Job) -> tuple[dict[str, Any] | None, str | None]:
    """Where the axes and the numbers of a public table are unless the recipe says otherwise: where the data's do."""
    return places(job.data.columns) if job.data.kind == "table" else None, job.data.weight


def sources(job: Job, base: Path) -> list[Any]:
    """Where the confidential rows are: paths, or addresses as Spark takes them, or a table or query of a database."""
    if job.data.database is not None:
        address = job.data.database
        where = address if "://" in address else str(base / address)
        if job.data.table is not None:
            return [Table(where, job.data.table, tuple(part.words() for part in job.data.where))]
        reads = {name: str(base / file) for name, file in job.data.reads.items()}
        return [Query(where, job.data.query or "", reads)]
    if job.spark is not None:
        return [file if "://" in file else f"file://{(base / file).absolute()}" for file in job.data.files]
    return [base / file for file in job.data.files]


def opened(job: Job, found: list[Any]) -> Any:
    """Some of the `sources` as `count` reads them: files with their encoding, their sheet and what becomes rows."""
    data = job.data
    if data.encoding is None and data.sheet is None and data.melt is None:
        return found[0] if len(found) == 1 else found
    melt = None if data.melt is None else Melt(*data.melt.words())
    return File(found, data.encoding, data.sheet, melt)
