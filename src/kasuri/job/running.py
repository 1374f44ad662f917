"""A job run: its data counted, released, saved and exported, here or on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri.budget.ledger import Ledger
from kasuri.draw import release as make_release
from kasuri.errors import DomainError, raise_faults
from kasuri.ingest import count, read_estat
from kasuri.ingest.micro import Progress
from kasuri.job.facts import about, criteria, domain, judged_on, mechanism, opened, sources, unit
from kasuri.job.models import Job, SparkPart
from kasuri.job.parameters import places
from kasuri.privacy import asked
from kasuri.published.acceptance import Acceptance
from kasuri.published.protected import Described
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import Domain, Unit
from kasuri.store import ready
from kasuri.store.export import export_faults
from kasuri.study.accept import accept
from kasuri.table import Counts


def counts(job: Job, base: Path, progress: Progress | None = None) -> Counts:
    """Count the job's data; paths are relative to `base`."""
    table, who, found = domain(job, base), unit(job), sources(job, base)
    if job.data.kind == "estat":
        where: Any = places(job.data.columns)
        meshes = [plane.name for plane in table.planes]
        picked = where[meshes[0]] if list(where) == meshes[:1] else where
        return read_estat(found, table, columns=picked, unit=who, data=job.data.name, suppressed=job.data.suppressed)
    return count(
        opened(job, found),
        table,
        columns=places(job.data.columns),
        unit=who,
        weight=job.data.weight,
        data=job.data.name,
        key=_sampling_key(job),
        memory=job.data.memory,
        progress=progress,
        away=away(job, base),
        assume=job.data.assume,
        sum=job.data.sum,
    )


def _sampling_key(job: Job) -> bytes | None:
    return None if job.data.sampling_key is None else bytes.fromhex(job.data.sampling_key)


def away(job: Job, base: Path) -> list[Path]:
    """Where no record may lie, not even for the time of the count."""
    return [base, base / job.output.folder]


def exports(job: Job, base: Path) -> list[str]:
    return [export if "://" in export else str(base / export) for export in job.output.exports]


def judge_exports(table: Domain, targets: list[str], levels: list[str]) -> None:
    """Refuse, before the data is read, what no release over `table` could be exported to."""
    raise_faults(DomainError, export_faults(table, targets, levels))


def run(job: Job, base: Path, *, threads: int | None = None, progress: Progress | None = None) -> Described:
    """Count, release, save and export, here or on Spark. Everything that can be refused without the data is refused
    before it is read."""
    recipe, book, judged = rehearse(job, base)
    target, words = base / job.output.folder, about(job)
    if job.spark is not None:
        return _run_on_spark(job, job.spark, base, recipe, book, judged)
    released = make_release(
        counts(job, base, progress), recipe, epsilon=job.budget.epsilon, ledger=book, threads=threads, about=words,
        acceptance=judged,
    )  # fmt: skip
    released.save(str(target), unmetered=book is None)
    for where in exports(job, base):
        released.export(where, levels=job.output.levels, unmetered=book is None)
    return released


def rehearse(job: Job, base: Path) -> tuple[Mechanism, Ledger | None, Acceptance | None]:
    """Refuse what can be refused without the data; the recipe, the ledger that would pay, and what was judged. Nothing
    is charged."""
    if job.series is not None:
        raise DomainError("this job file is of a series: kasuri series run")
    table, who = domain(job, base), unit(job)
    about(job)
    recipe = mechanism(job, base, table)
    judge_recipe(job, recipe, table, who)
    judged = judge_criteria(job, base, recipe, table, who)
    if judged is not None:
        judged.must_be_met()
    target = base / job.output.folder
    if target.exists():
        raise DomainError(f"{target} exists; a release is never written over another")
    judge_exports(table, exports(job, base), job.output.levels)
    book = None if job.budget.ledger is None else Ledger.load(base / job.budget.ledger)
    ready(target)  # writable, before anything is read or charged
    return recipe, book, judged


def judge_criteria(job: Job, base: Path, recipe: Mechanism, table: Domain, who: Unit) -> Acceptance | None:
    """What the job asks of its release, judged without its data."""
    if job.acceptance is None:
        return None
    loss = asked(job.budget.epsilon)
    public, trials = judged_on(job, base, table), job.acceptance.trials
    return accept(criteria(job), recipe, table, who, epsilon=loss, public=public, trials=trials)


def judge_recipe(job: Job, recipe: Mechanism, table: Domain, who: Unit) -> None:
    """Refuse a recipe that has no guarantee here, or does not run where the job runs, before any session is started."""
    found = recipe.on(table, who, asked(job.budget.epsilon))
    if job.spark is not None:
        from kasuri.spark.plans import plan

        plan(found)


def _run_on_spark(
    job: Job, part: SparkPart, base: Path, recipe: Mechanism, book: Ledger | None, judged: Acceptance | None
) -> Described:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DomainError("engine = 'spark' needs the extra: pip install 'kasuri[spark]'") from None
    from kasuri import spark

    frame = SparkSession.builder.getOrCreate().read.parquet(*sources(job, base))
    released = spark.release(
        frame, domain(job, base), recipe, epsilon=job.budget.epsilon, unit=unit(job), ledger=book,
        columns=places(job.data.columns), work=base / part.work, weight=job.data.weight, data=job.data.name,
        key=_sampling_key(job), partitions=part.partitions, assume=job.data.assume, about=about(job),
        acceptance=judged,
    )  # fmt: skip
    with released:
        released.save(str(base / job.output.folder), unmetered=book is None)
    return released
