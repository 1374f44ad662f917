"""Files to columns: CSV and Parquet, read whole, as Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError


def read_table(path: str | Path, *, text: str | None = None) -> Any:
    """A CSV (header line, UTF-8) or Parquet file as an Arrow table; the CSV column `text` is not guessed to be numbers
    ("01" stays "01")."""
    path = Path(path)
    if not path.exists():
        raise DomainError(f"{path}: no such file")
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise DomainError(f"{path}: a .csv or .parquet file is needed")
    import pyarrow as pa

    try:
        if kind == ".csv":
            from pyarrow import csv

            types = {} if text is None else {text: pa.string()}
            return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:  # read_table would import pandas where it is installed
            return file.read()
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        # Arrow's message can quote a line of the file: only its kind is passed on
        raise FormatError(f"{path}: cannot be read as {kind[1:]} ({type(error).__name__}); is it damaged?") from None
