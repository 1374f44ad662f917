"""`count`: any table to Counts, records bounded by the tool or a table that came pre-aggregated; `read_public`: a table
that is declared public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults, rows_faults
from kasuri.ingest.axes import Place, from_arrow, names, place_faults, twice
from kasuri.ingest.files import read_array
from kasuri.ingest.micro import Engine, Progress, count_records, needed
from kasuri.ingest.sources import RAGGED, numbered, open_stream
from kasuri.ingest.stream import BATCH, Stream, trusted, vouched
from kasuri.names import uncell
from kasuri.public import PublicTable
from kasuri.schema import MAX_CELLS, PROVIDER_BOUNDED, Domain, Unit
from kasuri.table import Counts, checked

DIGITS = "write plain digits (1234; neither 1,234 nor full-width digits), 0 for nobody"


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
    sum: bool | str = False,
) -> Counts:
    """Counts from a frame, a CSV, Excel or Parquet file (or several, or a `File`), or a database's `Table` or `Query`.

    With the column `unit.id` the rows are records (people, visits, events): the tool bounds them, each unit counts in
    at most `unit.max_cells` distinct cells, once in each (or `weight` times, clipped to `unit.max_weight`). Rows
    outside domain or mask, rows without an id or with one of more than 1024 bytes, and CSV lines that cannot be read
    are dropped. `key` is the sampling key that decides which cells of a crowded unit stay: 32 bytes, random unless
    given, never taken from data. `engine` is "radix" ("auto" means the same) or "duckdb", which is slower and gives the
    same counts. `memory` bounds what is counted at a time, and DuckDB (as an engine, and where it runs a query);
    `progress` is told the share that is done. Working files lie in a private folder outside the current one and the
    folders `away`, where the release will be written.

    Without that column the table is pre-aggregated: one row per cell, its count in column `weight`; every fault of
    every row is reported at once, by row and column, never by value. With `sum` rows of one cell are added, as of a
    table that also tells age where the domain does not; `max_cells` then bounds what a unit adds over all rows.

    `sum` as the name of a column of whole numbers publishes sums instead of counts: the amounts of one unit's records
    in one cell are added and clipped to `unit.max_sum`; rows without an amount above 0 are dropped. Amounts with
    fractions are written in a smaller unit, such as cents.

    `columns` says where each axis is: a mesh in one column of mesh codes, in two of row and column numbers of the
    level's grid (not of the window), or in {"lat": column, "lon": column}; any other axis in one column of labels,
    indices or (a time axis) local times. `file` names the source in messages.

    Records of a query, a DuckDB relation or a lazy frame are bounded only if one record changes no other's rows. Where
    kasuri cannot see that, they are refused, unless `assume="rows depend on their own id alone"` vouches for it; the
    guarantee then says so. A frame in memory and a file are the records themselves.
    """
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    if isinstance(sum, str) != (unit.max_sum is not None) or (isinstance(sum, str) and weight is not None):
        raise PrivacyError(
            "a sum needs the column it adds (sum=...) and the most that one unit adds to a cell, "
            "Unit(..., max_sum=...), and no weight"
        )
    weight = sum if isinstance(sum, str) else weight
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
    cells, values = _one_row_per_cell(stream, domain, columns, weight, whole=True, add=sum is True)
    return checked(cells, values, domain, unit, data, assumes=(PROVIDER_BOUNDED,))


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
        raise DomainError(f"{path}: say which columns hold its axes (columns) and its numbers (value)")
    if columns is not None and value is not None:
        cells, values = _one_row_per_cell(open_stream(path), domain, columns, value, whole=False)
    try:
        if array:
            return PublicTable.from_dense(read_array(path), domain, name=name)
        return PublicTable.from_coo(cells, values, domain, name=name)
    except DomainError as error:
        raise DomainError(*(f"{path}: {fault}" for fault in error.faults)) from None


def _one_row_per_cell(
    stream: Stream, domain: Domain, columns: Mapping[str, Place], weight: str, *, whole: bool, add: bool = False
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Cells and numbers (`whole` ones) of a table with one row per cell. Every fault of every row is named at once: a
    row that cannot be placed may have a wrong number too, and hides no other row."""
    import pyarrow as pa

    faults = place_faults(stream.names, domain, columns, stream.label)
    if weight not in stream.names:
        faults.append(f"{stream.label}: no column {weight!r}; is there a header line?")
    raise_faults(DomainError, faults)
    placing = list(dict.fromkeys(name for place in columns.values() for name in names(place)))
    wanted = list(dict.fromkeys([*placing, weight]))
    raise_faults(DomainError, twice(stream.names, wanted, stream.label))

    ragged: list[int] = []
    batches, rows = [], 0
    for batch, _ in stream.start(wanted, ragged):
        batches.append(batch)
        rows += batch.num_rows
        if rows > max(domain.size, BATCH) and not add:  # before all are held: a small file can unfold into very many
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
    placed = np.ones(rows, dtype=bool)

    def report(wrong: NDArray[np.bool_], column: str, broken: str, remedy: str) -> None:
        found = rows_faults(stream.label, column, broken, numbered(np.flatnonzero(wrong), ragged, stream.fold))
        faults.extend(f"{fault}; {remedy}" for fault in found)

    for axis in domain.axes:
        place = columns[axis.name]
        labels = axis.labels or ()
        try:
            found = [uncell(_one(table, name), labels) for name in names(place)]
            parts, wrong, broken = from_arrow(axis, place, found)
        except DomainError as error:  # of the whole column
            faults += [f"{stream.label}: {fault}" for fault in error.faults]
            placed[:] = False
            continue
        report(wrong, "/".join(names(place)), broken, "correct it, or leave the row out")
        index += parts
        placed &= ~wrong
    every = "/".join(placing)
    cells = domain.ravel(index) if len(index) == len(domain.shape) else np.zeros(rows, dtype=np.int64)
    if domain.mask:
        report(placed & ~domain.possible(cells), every, "a cell is impossible by the mask", "correct row or mask")
    if not add:
        remedy = "add an axis for the columns in which these rows differ, or say sum = true to add them"
        report(_repeated(cells, placed), every, "a cell appears more than once", remedy)
    values, wrong = numbers(_one(table, weight))
    report(wrong, weight, "not a whole number" if whole else "not a number", DIGITS)
    with np.errstate(invalid="ignore"):
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            report(~wrong & ~finite, weight, "a count is missing or not finite", DIGITS)
            if whole:
                broken_up = finite & (values != np.floor(values))
                report(broken_up, weight, "a count has a fraction", "counts are 0, 1, 2, ...")
        report(values < 0, weight, "a count is negative", "counts are 0 or more")
        report(values > MAX_CELLS, weight, "a count is larger than 2^62", "correct it")
    raise_faults(DomainError, faults)
    return _added(cells, values, stream.label) if add else (cells, values)


def _added(cells: NDArray[np.int64], values: NDArray[Any], label: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """One row per cell, with the sum of its rows."""
    if values.astype(float).sum() > MAX_CELLS:
        raise DomainError(f"{label}: the counts add up to more than 2^62; correct them")
    found, at = np.unique(cells, return_inverse=True)
    total = np.zeros(found.size, values.dtype)
    np.add.at(total, at, values)
    return found, total


def _repeated(cells: NDArray[np.int64], placed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rows whose cell is in another row too, the first of them among these."""
    at = np.flatnonzero(placed)
    at = at[np.argsort(cells[at], kind="stable")]
    same = cells[at][1:] == cells[at][:-1]
    out = np.zeros(cells.size, dtype=bool)
    out[at[1:][same]] = out[at[:-1][same]] = True
    return out


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
