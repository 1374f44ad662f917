"""Any table as a stream of Arrow batches: files, queries and data frames, never whole in memory where that is possible.

CSV is read as text, so that an id "0012" stays four characters. No message quotes a value of the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults
from kasuri.ingest import encodings, objects, utf8, workbook
from kasuri.ingest.asked import Query, Table
from kasuri.ingest.axes import LONGEST, twice
from kasuri.ingest.melt import Melt, melted
from kasuri.ingest.stream import BATCH, TEXT, Batches, Doubt, Stream
from kasuri.ingest.workshop import without_rows

KINDS = (".csv", ".parquet", ".xlsx")


@dataclass(frozen=True)
class File:
    """Files that need words beside their names: `encoding` of CSV files (else found by the header line, see
    `encodings`), `sheet` of a workbook, and which columns become rows."""

    paths: Sequence[str | Path]
    encoding: str | None = None
    sheet: str | None = None
    melt: Melt | None = None


def open_stream(source: Any, file: str | None = None, *, memory: str = "1GB", away: Sequence[Path] = ()) -> Stream:
    """The stream of a path, several paths, a File, a Query, a Table, or any data frame narwhals knows. `memory` limits
    DuckDB where it runs the query; what it spills does not lie in the folders `away`.

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
    """An Arrow batch without cells of text longer than LONGEST, in pieces of at most TEXT bytes of it. Text that came
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
    if size > TEXT and half:
        yield from short(made.slice(0, half))
        yield from short(made.slice(half))
        return
    unfolded = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in columns]
    yield pa.RecordBatch.from_arrays(unfolded, names=batch.schema.names)


RAGGED = "the line does not have the header's number of cells"


def numbered(rows: NDArray[np.int64], ragged: Sequence[int], fold: int = 1) -> list[int]:
    """Numbers of rows in their file (1 is the first below the header) from their places in the stream (0 is the first),
    which leaves `ragged` lines out and has `fold` rows for each of the others."""
    rows = np.unique(rows // fold)
    kept_before = np.asarray(ragged, np.int64) - np.arange(len(ragged))
    return (rows + 1 + np.searchsorted(kept_before, rows + 1, side="right")).tolist()


def _open(source: Any, file: str | None, memory: str, away: Sequence[Path]) -> Stream:
    if isinstance(source, (str, Path)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(item, (str, Path)) for item in source):
        source = File(source)
    if isinstance(source, File):
        found = _files(source, file, away)
        return found if source.melt is None else melted(found, source.melt)
    if isinstance(source, (Query, Table)):
        from kasuri.ingest import databases

        return databases.stream(source, file, memory, away)
    return _frame(source, file or "frame")


def _files(source: File, file: str | None, away: Sequence[Path]) -> Stream:
    paths = [Path(path) for path in source.paths]
    faults = [f"{path}: no such file" for path in paths if not path.exists()]
    faults += [f"{path}: {NEEDED}" for path in paths if path.suffix.lower() not in KINDS]
    raise_faults(DomainError, faults)
    every = [_file_names(path, away, source) for path in paths]
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
            for batch, share in _file_batches(path, wanted, own, away, source):
                rows += batch.num_rows
                yield batch, (i + share) / len(paths)
            ragged += [before + row for row in own]
            before += rows + len(own)

    label = encodings.labelled(paths[0], source.encoding) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    return Stream(first, start, file or label)


NEEDED = "a .csv, .xlsx or .parquet file is needed; save it as one of these"


def _file_names(path: Path, away: Sequence[Path], source: File) -> tuple[str, ...]:
    import pyarrow as pa

    try:
        if path.suffix.lower() == ".xlsx":
            with workbook.opened(path, source.sheet) as sheet:
                return workbook.header(path, sheet)
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                return tuple(file.schema_arrow.names)
        with utf8.readable(path, away, source.encoding) as (clean, _):
            names = _csv_names(clean)
        if len(names) == 1 and any(mark in names[0] for mark in "\t;"):
            raise FormatError(f"{path}: its columns are separated by tabs or semicolons; save it with commas")
        return names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _file_batches(
    path: Path, wanted: Sequence[str], ragged: list[int], away: Sequence[Path], source: File
) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa

    try:
        if path.suffix.lower() == ".xlsx":
            with workbook.opened(path, source.sheet) as sheet:
                yield from workbook.batches(path, sheet, wanted, ragged)
        elif path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            # without the first two Arrow keeps every column chunk it has read until the file is closed; text stays
            # coded (`short` unfolds it)
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=list(wanted)) as file:
                rows, done = max(1, file.metadata.num_rows), 0
                for batch in file.iter_batches(_parquet_rows(file.metadata), columns=list(wanted), use_threads=False):
                    done += batch.num_rows
                    yield batch, done / rows
                if done == 0:
                    yield without_rows(file.schema_arrow).select(list(wanted)), 1.0
        else:
            size, done = max(1, path.stat().st_size), 0
            readable = utf8.readable(path, away, source.encoding)
            with readable as (clean, mark), _csv(clean, wanted, ragged) as reader:
                some = False
                for batch in reader:
                    done, some = min(size, done + _CSV_BLOCK), some or batch.num_rows > 0
                    yield utf8.unmarked(batch, mark), done / size
                if not some:
                    yield without_rows(pa.schema([(name, pa.string()) for name in wanted])), 1.0
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _parquet_rows(metadata: Any) -> int:
    """Rows per batch of a Parquet file: fewer where its rows are large."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    large = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(BATCH, int(TEXT / max(1, large))))


_CSV_BLOCK = 1 << 24
_HEAD_BLOCK = 1 << 16
"""Enough for the header of most files; where it is not, a whole block is looked at."""
MAX_COLUMNS = 1 << 16
"""Most columns of a CSV file: every one of them costs a reader some 3 KB."""


def _csv(path: Path, wanted: Sequence[str], ragged: list[int]) -> Any:
    return _strings(path, _csv_reader(path, _csv_names(path), wanted, ragged))


def _csv_names(path: Path) -> tuple[str, ...]:
    """The names as Arrow itself finds them (after blank lines, with line breaks in quotes): a column missed here would
    get a type from its values, and one record would change how all ids are read."""
    import pyarrow as pa

    with path.open("rb") as file:
        head = next((line for line in iter(lambda: file.readline(_CSV_BLOCK), b"") if line.strip()), b"")
    if head.count(b",") >= MAX_COLUMNS:
        raise FormatError(f"{path}: has more than {MAX_COLUMNS} columns; keep those that are needed")
    for block in (_HEAD_BLOCK, _CSV_BLOCK):
        try:
            with _csv_reader(path, (), None, [], block) as reader:
                names = tuple(reader.schema.names)
            with _strings(path, _csv_reader(path, names, None, [], block)):
                return names
        except pa.ArrowInvalid:  # the header, or the line below it, is longer
            if block == _CSV_BLOCK:
                raise
    raise AssertionError


def _strings(path: Path, reader: Any) -> Any:
    """The reader, where every column is read as text."""
    import pyarrow as pa

    if not all(pa.types.is_string(field.type) for field in reader.schema):
        reader.close()
        raise FormatError(f"{path}: a column cannot be read as text; write the header line again")
    return reader


def _csv_reader(
    path: Path, names: Sequence[str], wanted: Sequence[str] | None, ragged: list[int], block: int = _CSV_BLOCK
) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    def leave_out(row: Any) -> str:
        ragged.append(row.number - 1)  # Arrow counts the header
        return "skip"

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=block, use_threads=False),
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
    return FormatError(f"{path}: cannot be read ({type(error).__name__}); is it damaged?")


def _frame(frame: Any, label: str) -> Stream:
    import narwhals as nw

    try:
        table = nw.from_native(frame, pass_through=False)
        names = tuple(table.collect_schema().names())
    except (nw.exceptions.NarwhalsError, TypeError):
        raise DomainError(f"{label}: not a data frame with one name per column") from None
    if len(set(names)) != len(names):
        raise DomainError(f"{label}: two columns have the same name; rename one")
    lazy = isinstance(table, nw.LazyFrame)
    if lazy and table.implementation.is_duckdb():
        from kasuri.ingest import databases

        return databases.relation_stream(table.to_native(), label)
    polars = lazy and table.implementation.is_polars()
    path = _scanned(table.to_native(), names) if polars else None
    if path is not None:  # polars would stop at a text that is not UTF-8: one record would end the release
        return _files(File([path]), label, ())
    doubt = Doubt()
    if lazy and not (polars and _held(table.to_native())):
        doubt = Doubt("a lazy frame is a query that kasuri does not look into; collect it first, or give its file")

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        import pyarrow as pa

        chosen = table.select(list(wanted))
        if isinstance(chosen, nw.LazyFrame):
            chosen = chosen.collect()
        texts = {name: objects.texts(chosen[name].to_list()) for name in wanted if _of_objects(chosen[name])}
        plain = [name for name in wanted if name not in texts]
        try:
            typed = chosen.select(plain).to_arrow()
        except (pa.ArrowException, TypeError, OverflowError):
            raise DomainError(f"{label}: a column has a type that cannot be read; use numbers, text or times") from None
        arrow = pa.table({name: texts[name] if name in texts else typed.column(name) for name in wanted})
        done = 0
        for batch in arrow.to_batches(BATCH) if arrow.num_rows else [without_rows(arrow.schema)]:
            done += batch.num_rows
            yield batch, done / max(1, arrow.num_rows)

    return Stream(names, start, label, doubt)


def _of_objects(column: Any) -> bool:
    """Whether a column of pandas, or the categories of one, are Python objects."""
    kind = getattr(column.to_native(), "dtype", None)
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)
    return str(kind) == "object" or getattr(kind, "storage", None) == "python"


_SCAN = re.compile(r"Parquet SCAN \[(.*)\]\nPROJECT \*/\d+ COLUMNS(\nESTIMATED ROWS: \d+)?")
_HELD = re.compile(r"DF \[.*\]; PROJECT \*/\d+ COLUMNS")


def _held(frame: Any) -> bool:
    """Whether a lazy frame of polars is a frame in memory as it is."""
    return _HELD.fullmatch(frame.explain(optimized=False)) is not None


def _scanned(frame: Any, names: Sequence[str]) -> Path | None:
    """The Parquet file that a lazy frame of polars is, as it is: not one step, limit or row number more, no other type,
    and no column that is made from names of folders and files, whose type all of them decide. A scan of a text file may
    skip lines, which its plan does not show, and one record decides over the types of all."""
    import polars as pl

    found = _SCAN.fullmatch(frame.explain(optimized=False))
    path = Path(found[1]) if found is not None else Path()
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None
    own = pl.scan_parquet(path, hive_partitioning=False).collect_schema()
    return path if frame.collect_schema() == own and _file_names(path, (), File([path])) == tuple(names) else None
