"""Files that others wrote, read in bounded memory: a small file must not unfold into a large table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kasuri.errors import FormatError

UNFOLDS = 200
"""Bytes in memory for one byte of a file. Released tables unfold less than twentyfold."""
_ROOM = 1 << 26  # whatever the ratio
_ROWS = 1 << 14  # rows read before the size is looked at again


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file (or those of its columns) as an Arrow table.

    FormatError where it would unfold to more than UNFOLDS times its size; what Arrow raises is passed on.
    """
    import pyarrow as pa
    from pyarrow import parquet

    room = _ROOM + UNFOLDS * Path(path).stat().st_size
    with parquet.ParquetFile(path, memory_map=False) as file:
        rows = file.metadata.num_rows
        names = list(file.schema_arrow.names if columns is None else columns)
        if not 0 <= rows * max(1, len(names)) <= room:  # no cell of ours takes less than a byte
            raise FormatError(f"{path}: says it has far more rows than its size can hold")
        batches, size = [], 0
        for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
            size += batch.nbytes
            if size > room:
                raise FormatError(f"{path}: unfolds to more than {UNFOLDS} times its size")
            batches.append(batch)
        schema = pa.schema([file.schema_arrow.field(name) for name in names], file.schema_arrow.metadata)
        return pa.Table.from_batches(batches, schema)
