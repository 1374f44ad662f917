"""Files to columns: CSV and Parquet, read whole, as Arrow; arrays of public .npy files."""

from __future__ import annotations

from collections.abc import Collection
from csv import reader
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError, raise_faults
from kasuri.ingest import utf8
from kasuri.ingest.axes import twice
from kasuri.ingest.sources import MAX_COLUMNS

_LONGEST_LINE = 1 << 26  # bytes; a line that is longer than a block of the reader stops it


def read_table(path: str | Path, *, text: Collection[str] = (), only: bool = False) -> Any:
    """A CSV (header line; its encoding is that of the header, see `encodings`) or Parquet file as an Arrow table.

    A CSV file has no types. Those of its columns are guessed from all their cells, so that one record can change how
    every other is read; the columns named in `text` are not guessed: each cell is the text that is in the file.
    With `only` no other column is read, and a line that does not have the header's number of cells is left out like
    any record outside the domain: one record then neither changes how another is read nor stops the reading, as long
    as its quotation marks are balanced and its line has less than 64 MB.
    """
    path = Path(path)
    if not path.exists():
        raise DomainError(f"{path}: no such file")
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise DomainError(f"{path}: a .csv or .parquet file is needed")
    try:
        if kind == ".csv":
            return _read_csv(path, text, only)
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:  # read_table would import pandas where it is installed
            wanted = [name for name in file.schema_arrow.names if name in text]
            raise_faults(DomainError, twice(file.schema_arrow.names, wanted, str(path)))
            return file.read(wanted if only else None)
    except DomainError:
        raise
    except Exception as error:  # a library's message can quote a line of the file: only its kind is passed on
        raise FormatError(f"{path}: cannot be read as {kind[1:]} ({type(error).__name__}); is it damaged?") from None


def _read_csv(path: Path, text: Collection[str], only: bool) -> Any:
    with utf8.readable(path) as (clean, mark):
        return utf8.unmarked(_read_utf8(path, clean, text, only), mark)


def _read_utf8(path: Path, clean: Path, text: Collection[str], only: bool) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    with open(clean, encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(reader(iter(lambda: file.readline(_LONGEST_LINE), "")), [])
    if len(header) > MAX_COLUMNS:
        raise DomainError(f"{path}: has more than {MAX_COLUMNS} columns; keep those that are needed")
    wanted = [name for name in header if name in text]
    raise_faults(DomainError, twice(header, wanted, str(path)))
    if only and not wanted:
        return pa.table({name: pa.nulls(0) for name in header})  # whoever asked says which columns it misses
    options = csv.ConvertOptions(column_types=dict.fromkeys(wanted, pa.large_string()))
    if only:
        options.include_columns = wanted
        parse = csv.ParseOptions(invalid_row_handler=lambda row: "skip")
        blocks = csv.ReadOptions(block_size=_LONGEST_LINE)
        return csv.read_csv(clean, read_options=blocks, parse_options=parse, convert_options=options)
    return csv.read_csv(clean, convert_options=options)


def read_array(path: Path) -> Any:
    """The array of a public .npy file."""
    import numpy as np

    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # a shape the file does not hold reserves nothing
        if not isinstance(found, np.memmap):
            raise ValueError  # an archive of arrays
        return np.array(found)
    except Exception:  # its header is an expression: what numpy raises on a damaged one is not of one family
        raise DomainError(f"{path} is not a .npy array") from None
