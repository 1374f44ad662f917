"""Any table as a stream of Arrow batches: files, queries and data frames, never whole in memory where that is possible.

CSV is read as text, so that an id "0012" stays four characters. No message quotes a value of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.ingest import scratch, utf8
from kasuri.ingest.axes import LONGEST, twice

BATCH = 1 << 20
"""Rows per batch."""
_TEXT = 1 << 26
"""Bytes of text in a batch."""


@dataclass(frozen=True)
class Query:
    """The rows of an SQL query: `database` is a .duckdb or SQLite file, or a postgresql:// address. A `closed` query
    of DuckDB reads its own database and no other file, not through a view either."""

    database: str
    sql: str
    closed: bool = False

    def __repr__(self) -> str:
        return "Query(...)"  # an address can hold a password


Batches = Iterator[tuple[Any, float | None]]
"""Arrow batches, each with the share of the source that is read by then."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Column names, and a function that starts reading the wanted ones.

    A line of a CSV file that does not have the header's number of cells is left out, and its number (1 is the first
    below the header) added to `start`'s second argument: one record never stops the reading of the others.
    """

    names: tuple[str, ...]
    start: Callable[[Sequence[str], list[int]], Batches]
    label: str


def open_stream(source: Any, file: str | None = None, *, memory: str = "1GB", away: Sequence[Path] = ()) -> Stream:
    """The stream of a path, several paths, a Query, or any data frame narwhals knows. `memory` limits DuckDB where it
    runs the query; what it spills does not lie in the folders `away`.

    An error of a library can quote a record, so only its kind is passed on, here and while the rows are read.
    """
    try:
        stream = _open(source, file, memory, away)
    except KasuriError:
        raise
    except Exception as error:
        raise _damaged(file or "the source", error) from None

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        raise_faults(DomainError, twice(stream.names, wanted, stream.label))
        try:
            for batch, share in stream.start(wanted, ragged):
                for piece in short(batch):
                    yield piece, share
        except KasuriError:
            raise
        except Exception as error:
            raise _damaged(stream.label, error) from None

    return replace(stream, start=start)


def short(batch: Any) -> Iterator[Any]:
    """An Arrow batch without cells of text longer than LONGEST, in pieces of at most _TEXT bytes of it. Text that came
    with a dictionary is looked at there and unfolded last: a small file can hold a long text in very many rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, size = [], 0
    for column in batch.columns:
        coded = pa.types.is_dictionary(column.type)
        kind = column.type.value_type if coded else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            items = column.dictionary if coded else column
            lengths = pc.binary_length(items)
            long = pc.greater(lengths, LONGEST)
            if pc.any(long).as_py():
                items = pc.if_else(long, pa.scalar(None, kind), items)
                lengths = pc.if_else(long, 0, lengths)
            column = pa.DictionaryArray.from_arrays(column.indices, items) if coded else items
            size += pc.sum(lengths.take(column.indices) if coded else lengths).as_py() or 0
        columns.append(column)
    half = batch.num_rows // 2
    made = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    if size > _TEXT and half:
        yield from short(made.slice(0, half))
        yield from short(made.slice(half))
        return
    unfolded = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in columns]
    yield pa.RecordBatch.from_arrays(unfolded, names=batch.schema.names)


RAGGED = "the line does not have the header's number of cells"


def numbered(rows: NDArray[np.int64], ragged: Sequence[int]) -> list[int]:
    """Numbers of rows in their file (1 is the first below the header) from their places in the stream (0 is the first),
    which leaves `ragged` lines out."""
    kept_before = np.asarray(ragged, np.int64) - np.arange(len(ragged))
    return (rows + 1 + np.searchsorted(kept_before, rows + 1, side="right")).tolist()


def _open(source: Any, file: str | None, memory: str, away: Sequence[Path]) -> Stream:
    if isinstance(source, (str, Path)):
        return _files([Path(source)], file, away)
    if isinstance(source, (list, tuple)) and source and all(isinstance(item, (str, Path)) for item in source):
        return _files([Path(item) for item in source], file, away)
    if isinstance(source, Query):
        return _query(source, file, memory, away)
    return _frame(source, file or "frame")


def _files(paths: list[Path], file: str | None, away: Sequence[Path]) -> Stream:
    faults = [f"{path}: no such file" for path in paths if not path.exists()]
    faults += [
        f"{path}: a .csv or .parquet file is needed"
        for path in paths
        if path.suffix.lower() not in (".csv", ".parquet")
    ]
    raise_faults(DomainError, faults)
    every = [_file_names(path, away) for path in paths]
    first = every[0]
    for path, own in zip(paths[1:], every[1:], strict=True):
        faults += [f"{path}: no column {name!r}, which {paths[0]} has" for name in first if name not in own]
    raise_faults(DomainError, faults)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        doubled = [fault for path, own in zip(paths, every, strict=True) for fault in twice(own, wanted, str(path))]
        raise_faults(DomainError, doubled)
        before = 0
        for i, path in enumerate(paths):
            rows, own = 0, list[int]()
            for batch, share in _file_batches(path, wanted, own, away):
                rows += batch.num_rows
                yield batch, (i + share) / len(paths)
            ragged += [before + row for row in own]
            before += rows + len(own)

    label = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    return Stream(first, start, file or label)


def _file_names(path: Path, away: Sequence[Path]) -> tuple[str, ...]:
    import pyarrow as pa

    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                return tuple(file.schema_arrow.names)
        with utf8.readable(path, away) as (clean, _), _csv(clean, None, []) as reader:
            return tuple(reader.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _file_batches(
    path: Path, wanted: Sequence[str], ragged: list[int], away: Sequence[Path]
) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa

    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            # without the first two Arrow keeps every column chunk it has read until the file is closed; text stays
            # coded (`short` unfolds it)
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=list(wanted)) as file:
                rows, done = max(1, file.metadata.num_rows), 0
                for batch in file.iter_batches(_parquet_rows(file.metadata), columns=list(wanted), use_threads=False):
                    done += batch.num_rows
                    yield batch, done / rows
        else:
            size, done = max(1, path.stat().st_size), 0
            with utf8.readable(path, away) as (clean, mark), _csv(clean, wanted, ragged) as reader:
                for batch in reader:
                    done = min(size, done + _CSV_BLOCK)
                    yield utf8.unmarked(batch, mark), done / size
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _parquet_rows(metadata: Any) -> int:
    """Rows per batch of a Parquet file: fewer where its rows are large."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    large = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(BATCH, int(_TEXT / max(1, large))))


_CSV_BLOCK = 1 << 24
MAX_COLUMNS = 1 << 16
"""Most columns of a CSV file: every one of them costs a reader some 3 KB."""


def _csv(path: Path, wanted: Sequence[str] | None, ragged: list[int]) -> Any:
    import pyarrow as pa

    with path.open("rb") as file:
        head = next((line for line in iter(lambda: file.readline(_CSV_BLOCK), b"") if line.strip()), b"")
    if head.count(b",") >= MAX_COLUMNS:
        raise FormatError(f"{path}: has more than {MAX_COLUMNS} columns; keep those that are needed")
    # the names as Arrow itself finds them (after blank lines, with line breaks in quotes): a column missed here would
    # get a type from its values, and one record would change how all ids are read
    with _csv_reader(path, [], None, []) as reader:
        names = reader.schema.names
    reader = _csv_reader(path, names, wanted, ragged)
    if not all(pa.types.is_string(field.type) for field in reader.schema):
        reader.close()
        raise FormatError(f"{path}: a column cannot be read as text; write the header line again")
    return reader


def _csv_reader(path: Path, names: Sequence[str], wanted: Sequence[str] | None, ragged: list[int]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    def leave_out(row: Any) -> str:
        ragged.append(row.number - 1)  # Arrow counts the header
        return "skip"

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=leave_out),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=None if wanted is None else list(wanted),
            check_utf8=False,  # utf8.readable has checked
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )


def _damaged(path: Path | str, error: Exception) -> FormatError:
    # the library's message can quote a line of the file: only its kind is passed on
    return FormatError(f"{path}: cannot be read ({type(error).__name__}); is it damaged, or not UTF-8?")


def _query(query: Query, file: str | None, memory: str, away: Sequence[Path]) -> Stream:
    database = query.database
    if database.startswith(("postgresql://", "postgres://")):
        return _postgres(query, file or "query")
    path = Path(database)
    if not path.exists():
        raise DomainError(f"{path}: no such database file")
    with path.open("rb") as handle:
        magic = handle.read(16)
    if magic.startswith(b"SQLite format 3"):
        return _sqlite(query, file or str(path))
    if magic[8:12] == b"DUCK":
        return _duckdb(query, file or str(path), memory, away)
    raise DomainError(f"{path}: neither a DuckDB nor a SQLite file")


def _sqlite(query: Query, label: str) -> Stream:
    import sqlite3

    import pyarrow as pa

    def connect() -> Any:
        # DuckDB may pull the rows from a thread of its own, one batch after the other
        address = f"{Path(query.database).absolute().as_uri()}?mode=ro"
        return sqlite3.connect(address, uri=True, check_same_thread=False)

    try:
        with connect() as base:
            names = tuple(column[0] for column in base.execute(query.sql).description)
        base.close()
    except sqlite3.Error as error:
        raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        keep = [names.index(name) for name in wanted]
        base = connect()
        base.text_factory = bytes  # text that is not UTF-8 must not stop the reading
        try:
            cursor = base.execute(query.sql)
            # SQLite types each value by itself: as text, one value never changes how the others are read
            while rows := [[_sqlite_text(row[i]) for i in keep] for row in islice(cursor, 1 << 16)]:
                arrays = [pa.array(column, pa.binary()).view(pa.string()) for column in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, list(wanted)), None
        except sqlite3.Error as error:
            raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None
        finally:
            base.close()

    return Stream(names, start, label)


def _sqlite_text(value: Any) -> bytes | None:
    """A value's text (longer than LONGEST: none); whole numbers in decimal also where SQLite holds them as floats."""
    if value is None or isinstance(value, bytes):
        return None if value is None or len(value) > LONGEST else value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53
    return str(int(value) if whole else value).encode()


def _duckdb(query: Query, label: str, memory: str, away: Sequence[Path]) -> Stream:
    import duckdb

    @contextmanager
    def rows() -> Iterator[Any]:
        with scratch.folder(away) as folder:  # what the query spills is true records: never beside the database
            base = duckdb.connect(query.database, read_only=True)
            try:
                base.execute("SET memory_limit = ?", [memory])
                base.execute("SET temp_directory = ?", [str(folder / "spill")])
                if query.closed:
                    base.execute("SET enable_external_access = false")
                yield base.sql(query.sql)
            except duckdb.Error as error:
                if query.closed and isinstance(error, duckdb.PermissionException):
                    raise PrivacyError(
                        f"{label}: the query reads a file beside its database, which cannot be told from the public "
                        "file that the recipe names; import it into the database"
                    ) from None
                raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None
            finally:
                base.close()

    with rows() as found:
        names = tuple(found.columns)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        with rows() as found:
            for batch in _duckdb_batches(found, wanted):
                yield batch, None

    return Stream(names, start, label)


def _duckdb_batches(relation: Any, wanted: Sequence[str]) -> Any:
    """Arrow batches of a DuckDB relation, whose own text can be as small as a Parquet file's: `short` in SQL."""

    def one(name: str) -> str:
        quoted = '"' + name.replace('"', '""') + '"'
        text = str(relation.types[relation.columns.index(name)]) == "VARCHAR"
        return f"CASE WHEN strlen({quoted}) <= {LONGEST} THEN {quoted} END AS {quoted}" if text else quoted

    return relation.project(", ".join(map(one, wanted))).to_arrow_reader(min(BATCH, _TEXT // LONGEST))


def _postgres(query: Query, label: str) -> Stream:
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise DomainError("PostgreSQL needs the extra: pip install 'kasuri[postgres]'") from None

    def read() -> Iterator[Any]:
        try:
            with dbapi.connect(query.database) as base, base.cursor() as cursor:
                cursor.execute(query.sql)
                reader = cursor.fetch_record_batch()
                yield reader.schema
                yield from reader
        except Error as error:
            raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None

    first = read()
    names = tuple(next(first).names)
    first.close()  # type: ignore[attr-defined]

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        batches = read()
        next(batches)
        for batch in batches:
            yield batch.select(list(wanted)), None

    return Stream(names, start, label)


def _frame(frame: Any, label: str) -> Stream:
    import narwhals as nw

    try:
        table = nw.from_native(frame, pass_through=False)
        names = tuple(table.collect_schema().names())
    except (nw.exceptions.NarwhalsError, TypeError):
        raise DomainError(f"{label}: not a data frame with one name per column") from None
    if len(set(names)) != len(names):
        raise DomainError(f"{label}: a column name stands twice; rename one")

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        import pyarrow as pa

        chosen = table.select(list(wanted))
        if isinstance(chosen, nw.LazyFrame):
            if chosen.implementation.is_duckdb():
                for batch in _duckdb_batches(chosen.to_native(), wanted):
                    yield batch, None
                return
            chosen = chosen.collect()
        try:
            arrow = chosen.to_arrow()
        except (pa.ArrowException, TypeError, OverflowError):
            raise DomainError(
                f"{label}: a column mixes types, so that ids or codes are unclear; use one type"
            ) from None
        done = 0
        for batch in arrow.to_batches(BATCH):
            done += batch.num_rows
            yield batch, done / max(1, arrow.num_rows)

    return Stream(names, start, label)
