"""`count`: any table to Counts, records bounded by the tool or a table that came pre-aggregated; `read_public`: a table
that is declared public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults, rows_faults
from kasuri.ingest.axes import Place, from_arrow, names, place_faults
from kasuri.ingest.files import read_array
from kasuri.ingest.micro import Engine, Progress, count_records, needed
from kasuri.ingest.sources import RAGGED, numbered, open_stream
from kasuri.ingest.stream import BATCH, Stream, trusted, vouched
from kasuri.public import PublicTable
from kasuri.schema import PROVIDER_BOUNDED, Domain, Unit
from kasuri.table import Counts, checked


def count(
    frame: Any,
    domain: Domain,
    *,
    columns: Mapping[str, Place],
    unit: Unit,
    weight: str | None = None,
    data: str | None = None,
    file: str | None = None,
    key: bytes | None = None,
    engine: Engine = "auto",
    memory: str = "1GB",
    progress: Progress | None = None,
    away: Sequence[str | Path] = (),
    assume: str | None = None,
) -> Counts:
    """Counts from a frame, a CSV or Parquet file (or several), or a `Table` or `Query` of a database.

    With the column `unit.id` the rows are records (people, visits, events): the tool bounds them, each unit counts in
    at most `unit.max_cells` distinct cells, once in each (or `weight` times, clipped to `unit.max_weight`). Rows
    outside domain or mask, rows without an id or with one of more than 1024 bytes, and CSV lines that cannot be read
    are dropped. `key` is the sampling key that decides which cells of a crowded unit stay: 32 bytes, random unless
    given, never taken from data. `engine` "radix" counts whole-number ids, "duckdb" any; "auto" chooses; both give the
    same counts. `memory` limits DuckDB (the count, and the query where it runs one, each); `progress` is told the share
    that is done. Working files lie in a private folder outside the current one and the folders `away`, where the
    release will be written.

    Without that column the table is pre-aggregated: one row per cell, its count in column `weight`; every fault of
    every row is reported at once, by row and column, never by value.

    `columns` says where each axis stands: a mesh in one column of mesh codes, in two of row and column numbers of the
    level's grid (not of the window), or in {"lat": column, "lon": column}; any other axis in one column of labels,
    indices or (a time axis) local times. `file` names the source in messages.

    Records of a query, a DuckDB relation or a lazy frame are bounded only if one record changes no other's rows. Where
    kasuri cannot see that, they are refused, unless `assume="rows depend on their own id alone"` vouches for it; the
    guarantee then says so. A frame in memory and a file are the records themselves.
    """
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    vouched(assume)  # refused before anything is read
    folders = [Path(folder) for folder in away]
    stream = open_stream(frame, file, memory=memory, away=folders)
    alike = [name for name in stream.names if name != unit.id and name.casefold() == unit.id.casefold()]
    if alike:
        raise PrivacyError(
            f"{stream.label}: is column {alike[0]!r} the id column {unit.id!r}? Names must agree exactly"
        )
    if unit.id in stream.names:
        assumes = trusted(stream, unit.id, needed(columns, unit, weight), assume)
        return count_records(
            stream, domain, columns, unit, weight, data, key=key, engine=engine, memory=memory, progress=progress,
            away=folders, assumes=assumes,
        )  # fmt: skip
    if assume is not None:
        raise PrivacyError(f"{stream.label}: rows without the id column {unit.id!r} are nobody's; leave assume out")
    if weight is None:
        raise DomainError(
            *place_faults(stream.names, domain, columns, stream.label),
            f"{stream.label}: a table without the id column {unit.id!r} is pre-aggregated: "
            "name its count column (weight=)",
        )
    cells, values = _one_row_per_cell(stream, domain, columns, weight, "not a whole number")
    where = _Rows(stream.label)
    return checked(cells, values, domain, unit, data, assumes=(PROVIDER_BOUNDED,), where=where)


def read_public(
    path: str | Path,
    domain: Domain,
    *,
    name: str,
    columns: Mapping[str, Place] | None = None,
    value: str | None = None,
) -> PublicTable:
    """A table that everyone may know, declared public by `name`: a .npy array of the domain's shape, or a CSV or
    Parquet file with one row per cell, its axes in `columns` (as in `count`) and its numbers in column `value`."""
    path = Path(path)
    array = path.suffix.lower() == ".npy"
    if array and (columns is not None or value is not None):
        raise DomainError(f"{path}: an array has no columns; leave columns and value out")
    if not array and (columns is None or value is None):
        raise DomainError(f"{path}: say where its axes stand (columns) and its numbers (value)")
    if columns is not None and value is not None:
        cells, values = _one_row_per_cell(open_stream(path), domain, columns, value, "not a number")
    try:
        if array:
            return PublicTable.from_dense(read_array(path), domain, name=name)
        return PublicTable.from_coo(cells, values, domain, name=name)
    except DomainError as error:
        raise DomainError(*(f"{path}: {fault}" for fault in error.faults)) from None


def _one_row_per_cell(
    stream: Stream, domain: Domain, columns: Mapping[str, Place], weight: str, rule: str
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Cells and numbers of a table with one row per cell; a row whose number breaks `rule` is a fault."""
    import pyarrow as pa

    faults = place_faults(stream.names, domain, columns, stream.label)
    if weight not in stream.names:
        faults.append(f"{stream.label}: no column {weight!r}; is there a header line?")
    raise_faults(DomainError, faults)

    wanted = list(dict.fromkeys([*(n for place in columns.values() for n in names(place)), weight]))
    ragged: list[int] = []
    batches, rows = [], 0
    for batch, _ in stream.start(wanted, ragged):
        batches.append(batch)
        rows += batch.num_rows
        if rows > max(domain.size, BATCH):  # before all are held: a small file can unfold into very many
            raise DomainError(f"{stream.label}: has more rows than the domain has cells; one row per cell is needed")
    faults = rows_faults(stream.label, "", RAGGED, ragged)
    if not batches:
        raise_faults(DomainError, faults)
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    try:
        table = pa.Table.from_batches(batches).combine_chunks()
    except pa.ArrowException:
        raise DomainError(f"{stream.label}: a column has one type in one part and another in the next") from None
    index: list[NDArray[np.int64]] = []

    def report(wrong: NDArray[np.bool_], column: str, broken: str) -> None:
        faults.extend(rows_faults(stream.label, column, broken, numbered(np.flatnonzero(wrong), ragged)))

    for axis in domain.axes:
        place = columns[axis.name]
        parts, wrong, broken = from_arrow(axis, place, [_one(table, name) for name in names(place)])
        report(wrong, "/".join(names(place)), broken)
        index += parts
    values, wrong = numbers(_one(table, weight))
    report(wrong, weight, rule)
    raise_faults(DomainError, faults)
    return domain.ravel(index), values


def _one(table: Any, name: str) -> Any:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbers(column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Counts as numbers, and which rows hold none; `checked` judges the numbers themselves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        good = pc.match_substring_regex(column, r"^-?[0-9]{1,18}([.][0-9]*)?$")
        fractions = bool(pc.any(pc.match_substring(column, ".")).as_py())
        kind = pa.float64() if fractions else pa.int64()
        column = pc.if_else(good, column, pa.scalar(None, column.type)).cast(kind)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.zeros(len(column), np.int64), np.ones(len(column), dtype=bool)
    wrong = pc.is_null(column).to_numpy(zero_copy_only=False)
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.array(wrong)


class _Rows(Sequence[str]):
    """Names of data rows, made only when a message needs one (row 1 is the first below the header)."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, i: Any) -> Any:
        return f"{self._file} row {int(i) + 1}"
