"""`kasuri.spark.release`: count where the records are, pay, draw, and write the released files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kasuri import names
from kasuri.budget.ledger import Ledger, Receipt
from kasuri.draw import charge, checked, warned
from kasuri.errors import DomainError, NumericsError, PrivacyError
from kasuri.ingest import micro, scratch
from kasuri.ingest.axes import Place
from kasuri.noise.rng import Source
from kasuri.privacy import Exact, Guarantee, asked
from kasuri.published.about import About
from kasuri.published.acceptance import Acceptance
from kasuri.published.measurements import Measurements
from kasuri.published.release import Release
from kasuri.recipes import best
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import MAX_CELLS, Domain, Unit
from kasuri.spark import bounding, files, keep, rows, rowwise, session, subtrees
from kasuri.spark.files import File
from kasuri.spark.plans import plan

LOGS = (
    "Spark's event logs, user interface and metrics hold row counts per task: they stay as confidential as the records"
)
STEADY = "the frame gave Spark the same rows whenever a task read them"

COLLECTED = 1 << 27
"""Most cells `collect` brings to the driver."""


@dataclass(frozen=True, eq=False, repr=False)
class SparkRelease:
    """A release whose cells are in files of a private folder, not in memory. Use it in a `with` block, or `close()` it:
    that removes the folder; what `save()` wrote stays."""

    domain: Domain
    guarantee: Guarantee
    recipe: Mapping[str, Any]
    provenance: Mapping[str, Any]
    receipt: Receipt | None
    files: tuple[File, ...]
    scales: Mapping[int, Fraction] | None
    folder: Path
    _session: Any
    _open: ExitStack

    def __repr__(self) -> str:
        return (
            f"SparkRelease({self.recipe['name']}, {self.non_zero} cells of {self.domain.size}, total {self.total()}, "
            f"{self.guarantee.words()}, source: {self.provenance['source']})"
        )

    def __enter__(self) -> SparkRelease:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the private folder."""
        self._open.close()

    @property
    def non_zero(self) -> int:
        """How many cells are not 0."""
        return sum(file.rows for file in self._of(rows.RELEASED))

    def total(self) -> int:
        """Sum over all cells, as in `Release.total`."""
        return sum(file.total for file in self._of(rows.RELEASED))

    def frame(self) -> Any:
        """The released table as a Spark DataFrame."""
        return self._session.read.parquet(*(f"file://{path}" for path in self._paths(rows.RELEASED)))

    def collect(self) -> Release:
        """The release in this process's memory, equal to that of one machine."""
        from pyarrow import parquet

        if self.non_zero > COLLECTED:
            raise DomainError(f"{self.non_zero} cells are too many for one process; read the files, or frame()")

        def columns(part: int, *wanted: str) -> list[Any]:
            read = [parquet.read_table(path, columns=list(wanted)) for path in self._paths(part)]
            return [np.concatenate([table.column(name).to_numpy() for table in read]) for name in wanted]

        cells, values = columns(rows.RELEASED, "cell", "value")
        measured = None
        if self.scales is not None:
            level, prefix, value = columns(rows.MEASURED, "level", "prefix", "value")
            measured = Measurements(level.astype(np.int64), prefix, value, self.scales)
        words = self.guarantee, self.recipe, self.provenance, self.receipt
        return Release(self.domain, cells, values, measured, *words)

    def save(self, folder: str, *, unmetered: bool = False, sign: str | None = None) -> None:
        """Write the release to a new folder, as `Release.save` does, but with its tables in numbered Parquet files of
        equal length (release-00000.parquet, ...) and without a DuckDB copy."""
        from pyarrow import parquet

        from kasuri.store import save_tables
        from kasuri.store.columns import meta_table

        def tables(aside: Path) -> None:
            for file in self.files:
                _link(self.folder / file.name, aside / file.name)
            parquet.write_table(meta_table(self), aside / "release_meta.parquet", compression="zstd")

        save_tables(self, tables, folder, unmetered=unmetered, sign=sign)

    def _of(self, part: int) -> list[File]:
        return [file for file in self.files if file.part == part]

    def _paths(self, part: int) -> list[Path]:
        return [self.folder / file.name for file in self._of(part)]


def _link(source: Path, target: Path) -> None:
    """The file under a second name, or a copy of it where that is another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def release(
    frame: Any,
    domain: Domain,
    recipe: Mechanism | None = None,
    *,
    epsilon: Exact,
    unit: Unit,
    ledger: Ledger | None,
    columns: Mapping[str, Place],
    work: str | Path,
    weight: str | None = None,
    data: str | None = None,
    key: bytes | None = None,
    source: Source | None = None,
    partitions: int | None = None,
    assume: str | None = None,
    about: Mapping[str, str] | None = None,
    acceptance: Acceptance | None = None,
) -> SparkRelease:
    """Publish the records of a Spark DataFrame with `recipe`, or `best()`, at `epsilon`, without bringing them to one
    machine.

    The rows are records with the id column `unit.id`; `columns`, `weight`, `data` and `key` (the sampling key) are
    those of `ks.count`, `epsilon`, `ledger`, `source`, `about` and `acceptance` those of
    `ks.release`. work: a folder that driver and
    executors see under one path (a path, not a URI); a private folder is made in it, which holds the counts while the
    release runs and the released files until it is closed. partitions: tasks per shuffle, the session's
    `spark.sql.shuffle.partitions` unless given; any number gives the same result, which is that of one machine.

    The frame must map each record by itself: a scan of stored Parquet or ORC files, or of a table of them, with filters
    and columns computed from one row each, by expressions that fail on no value, and the id as it is stored. What the
    plan does not show is refused, unless `assume="rows depend on their own id alone"` vouches for it; the guarantee
    then says so.

    Privacy
    -------
    Neighbours, Sensitivity, Guarantee: as `ks.count` and the recipe on one machine, whose numbers these are.
    Proof: docs/proofs/spark.md. Public: domain, mask. Assumes: as there; that the frame gives the same rows whenever it
    is read; that event logs, user interface and metrics, which hold row counts per task, stay confidential.

    Cost: three shuffles of the records at most (by id, by cell, by block) and one of the output. The driver holds the
    sums of the blocks: at most 256 numbers (trees of counts: the nodes of their first cut, where these are more;
    geometric: one per 65,536 cells, at most 1,024), and a line per file. bayes_tree, auto and woven_tree are refined as
    a whole: on up to 2^22 leaves by one task; else on the driver, which then holds every drawn node (at most 2^26) and
    the sums of the parts.
    """
    spark = session.of(frame)
    recipe = best() if recipe is None else recipe
    source = checked(recipe, ledger, source)
    if data is not None:
        names.declared(data)
    if ledger is not None and data is None:
        raise PrivacyError("a ledger pays for one data set: name it with data=")
    said = None if about is None else About.of(about)
    run = recipe.on(domain, unit, asked(epsilon))
    cut = plan(run)
    warned(run, data)
    key = bounding.judge(frame, domain, columns, unit, weight, key)
    vouched = rowwise.trusted(frame, unit.id, micro.needed(columns, unit, weight), assume)
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise DomainError("partitions must be a whole number of at least 1")
    place = _folder(work)
    with ExitStack() as opened:
        out = opened.enter_context(scratch.folder(inside=place))  # kept open until the release is closed
        # from the inside out: end the jobs, remove what they wrote, put the settings back
        with session.settings(spark, partitions), scratch.folder(inside=place) as private, session.jobs(spark):
            copy = subtrees.Copy(spark, private, keep.mark(private))
            session.probe(spark, partial(keep.sees, str(private), copy.token))
            records = bounding.records(frame, domain, columns, unit, weight)
            bound = bounding.bound(domain, unit, weight is not None, key)
            pairs = copy.kept(records, "bounded", bounding.BOUNDED, bound)
            if pairs.total > MAX_CELLS:  # below it no sum of them can pass 64 bits
                raise NumericsError("the total is larger than 2^62; use a smaller max_weight")
            addressed = bounding.addressed(cut.address)
            counts = copy.kept(bounding.counted(pairs.frame), "counts", rows.COUNTS, addressed)
            if counts.total != pairs.total:
                raise NumericsError("the counts do not add up to the bounded records; nothing is released")
            blocks, sums = copy.sums(counts)
            paid = charge(
                run, ledger, source, data=data, assumes=(*vouched, STEADY, LOGS), part=None, about=said,
                acceptance=acceptance,
            )  # fmt: skip
            with paid.streams() as streams:
                drawn = cut.draw(copy, counts, blocks, sums, streams)
                tables = files.Tables(domain, paid.provenance["release_id"], drawn.scales)
                written = files.write(copy, drawn, tables, out)
        told = MappingProxyType({**run.words(), **drawn.words})
        words = paid.guarantee, told, paid.provenance, paid.receipt
        return SparkRelease(domain, *words, written, drawn.scales, out, spark, opened.pop_all())


def _folder(work: str | Path) -> Path:
    if "://" in str(work):
        raise DomainError(f"work={str(work)!r}: a path that driver and executors share is needed, not a URI; mount it")
    place = Path(work).absolute()
    if set(str(place)) & set("[]{}*?\\"):
        raise DomainError(f"{place}: Spark reads [ ] {{ }} * ? \\ in a path as a pattern; give a folder without them")
    if not place.is_dir():
        raise DomainError(f"{place}: no such folder; driver and executors must share it")
    return place
