"""Drawn rows to files whose layout follows from the released table alone: sorted, numbered, cut at fixed numbers of
rows, named by their number. Nothing is left of which block, task or executor a row came from."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import NumericsError
from kasuri.published.measurements import Measurements
from kasuri.schema import Domain
from kasuri.spark import keep
from kasuri.spark.rows import RELEASED, ROWS
from kasuri.spark.session import quiet, told
from kasuri.spark.subtrees import Copy, Drawn
from kasuri.store.columns import cell_table, measured_table

FILE_ROWS = 1 << 22
"""Rows of every file but the last."""
HERE_ROWS = 1 << 22
"""Most drawn rows that the driver writes itself."""
GROUP_ROWS = 1 << 20
"""Rows of every row group but a file's last; divides FILE_ROWS."""
RECEIPT = "part int, number bigint, aside string, rows bigint, total bigint"
"""What a task tells of a file it wrote: which one of which table it is, its name for now, rows and their sum."""


@dataclass(frozen=True)
class File:
    """One written file: which table it is of, its name, its rows and the sum of their values."""

    part: int
    name: str
    rows: int
    total: int


@dataclass(frozen=True, eq=False)
class Tables:
    """What turns drawn rows into the columns of the published tables."""

    domain: Domain
    release_id: str
    scales: Mapping[int, Fraction] | None

    def of(self, part: int, rows: Any) -> Any:
        level, place, value = (rows.column(name).to_numpy() for name in ("level", "place", "value"))
        if part == RELEASED:
            return cell_table(self.domain, place, value, self.release_id, geometry=False, limits=None)
        return measured_table(Measurements(level.astype(np.int64), place, value, self.scales or {}))


def write(copy: Copy, drawn: Drawn, tables: Tables, folder: Path) -> tuple[File, ...]:
    """Write the drawn rows into `folder`, which the executors see too; the files, in order."""
    from pyarrow import parquet

    number = sum(part.rows for part in drawn.parts)
    found = _here(copy, drawn, tables, folder) if number <= HERE_ROWS else _spread(copy, drawn, tables, folder)
    files = [_named(folder, **row) for row in found]
    wanted = number, sum(part.total for part in drawn.parts)
    there = sum(parquet.read_metadata(folder / file.name).num_rows for file in files)
    if (sum(file.rows for file in files), sum(file.total for file in files)) != wanted or there != wanted[0]:
        raise NumericsError("the files do not hold the rows that were drawn; nothing is released")
    if not any(file.part == RELEASED for file in files):
        files.append(_empty(tables, folder))
    return tuple(sorted(files, key=lambda file: (file.part, file.name)))


def _here(copy: Copy, drawn: Drawn, tables: Tables, folder: Path) -> list[dict[str, Any]]:
    """Few rows: sorted and written by the driver, which saves several jobs. What is drawn may be seen there."""
    import pyarrow as pa

    columns = "part", "level", "place", "value"
    rows = pa.concat_tables([copy.here(part, columns) for part in drawn.parts])
    part, level, place = (rows.column(name).to_numpy() for name in columns[:-1])
    rows = rows.take(pa.array(np.lexsort((place, level, part))))
    part = rows.column("part").to_numpy()
    file = (np.arange(part.size) - np.searchsorted(part, part)) // FILE_ROWS
    batches = rows.append_column("file", pa.array(file)).to_batches(GROUP_ROWS)
    written = _writer(tables, str(folder), GROUP_ROWS)(iter(batches))
    return [receipt for batch in written for receipt in batch.to_pylist()]


def _spread(copy: Copy, drawn: Drawn, tables: Tables, folder: Path) -> list[dict[str, Any]]:
    """Sorted and written by tasks, a file each."""
    import pyarrow as pa
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    names = [pair.split()[0] for pair in ROWS.split(", ")]
    rows = reduce(lambda above, below: above.unionByName(below), [part.frame.select(names) for part in drawn.parts])
    with told():
        sizes = rows.groupBy("part", "bucket").count().toArrow()
    sizes = sizes.sort_by([("part", "ascending"), ("bucket", "ascending")])
    part, size = sizes.column("part").to_numpy(), sizes.column("count").to_numpy()
    before = np.cumsum(size) - size
    for each in np.unique(part):
        before[part == each] -= before[part == each][0]
    starts = copy.session.createDataFrame(sizes.select(["part", "bucket"]).append_column("start", pa.array(before)))
    turn = fn.row_number().over(Window.partitionBy("part", "bucket").orderBy("place"))
    numbered = rows.join(fn.broadcast(starts), ["part", "bucket"]).withColumn("turn", turn)
    laid = numbered.selectExpr("part", f"(start + turn - 1) div {FILE_ROWS} AS file", "level", "place", "value")
    laid = laid.repartition("part", "file").sortWithinPartitions("part", "file", "level", "place")
    writer = _writer(tables, str(folder), GROUP_ROWS)
    with told():
        return list(laid.mapInArrow(writer, RECEIPT).toArrow().to_pylist())


def _named(folder: Path, part: int, number: int, aside: str, rows: int, total: int) -> File:
    """The file of a receipt, under its name in the release. The driver gives it: a task that Spark ends, because a
    copy of it was faster, may see the end of its rows too early, and would put a shorter file in the place of the
    whole one."""
    name = f"{'release' if part == RELEASED else 'measurements'}-{number:05d}.parquet"
    try:
        os.replace(folder / aside, folder / name)
    except OSError:
        raise NumericsError("a file that was written is not there; nothing is released") from None
    return File(part, name, rows, total)


def _empty(tables: Tables, folder: Path) -> File:
    """The one file of a release whose every cell is 0."""
    import pyarrow as pa

    none = pa.table({name: pa.array([], pa.int64()) for name in ("level", "place", "value")})
    return _named(folder, **_File(tables, folder, RELEASED, 0, GROUP_ROWS).close(none))


class _File:
    """One file in the making, under a name that no other run of the task has, and its RECEIPT when it is closed."""

    def __init__(self, tables: Tables, folder: Path, part: int, number: int, group_rows: int) -> None:
        self._tables, self._part, self._number, self._group_rows = tables, part, number, group_rows
        self._aside = folder / f".{secrets.token_hex(16)}"
        self._writer: Any = None
        self._rows = self._total = 0

    def group(self, rows: Any) -> None:
        from pyarrow import parquet

        table = self._tables.of(self._part, rows)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._aside, table.schema, compression="zstd")
        self._writer.write_table(table, row_group_size=self._group_rows)
        self._rows += rows.num_rows
        self._total += keep.total(rows.column("value"))

    def close(self, rest: Any) -> dict[str, Any]:
        if rest.num_rows or self._writer is None:
            self.group(rest)
        self._writer.close()
        told = self._part, self._number, self._aside.name, self._rows, self._total
        return dict(zip(("part", "number", "aside", "rows", "total"), told, strict=True))


def _writer(tables: Tables, folder: str, group_rows: int) -> Any:
    """Rows sorted by (part, file, level, place) -> files, a row group at a time in memory, and the RECEIPT of each."""
    import pyarrow as pa

    kinds = pa.schema([("part", pa.int32()), ("number", pa.int64()), ("aside", pa.string()), ("rows", pa.int64()),
                       ("total", pa.int64())])  # fmt: skip

    def write_files(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("writing files"):
            for receipt in _written(batches):
                yield pa.RecordBatch.from_pylist([receipt], schema=kinds)

    def _written(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
        made, waiting, at = None, pa.table({}), None
        for batch in batches:
            table = pa.Table.from_batches([batch])
            part, number = table.column("part").to_numpy(), table.column("file").to_numpy()
            edges = np.flatnonzero((np.diff(part) != 0) | (np.diff(number) != 0)) + 1
            for low, high in zip([0, *edges], [*edges, table.num_rows], strict=True):
                if low == high:
                    continue
                here = (int(part[low]), int(number[low]))
                if here != at:
                    if made is not None:
                        yield made.close(waiting)
                    made, waiting, at = _File(tables, Path(folder), *here, group_rows), table.slice(0, 0), here
                waiting = pa.concat_tables([waiting, table.slice(low, high - low)])
                while made is not None and waiting.num_rows > group_rows:
                    made.group(waiting.slice(0, group_rows))
                    waiting = waiting.slice(group_rows)
        if made is not None:
            yield made.close(waiting)

    return write_files
