"""Rows kept for the length of a release: tasks write them into the private folder themselves, and give a receipt.

Spark's own writer makes missing parent folders, readable by everyone, and tells nobody: on a host that does not share
the folder, or after it was removed, true counts would stay behind. Here a task makes no folder, writes only where it
finds the release's token, and names the file it wrote, so that the driver reads these files and no others.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError
from kasuri.spark.session import quiet

TOKEN = "token"
RECEIPT = "file string, rows bigint, total string"
PLAIN = {"use_dictionary": False, "compression": "none", "write_statistics": False}
"""How the files are written: they are read once or twice, and hold few numbers that repeat."""
NOT_SHARED = "an executor does not see the private folder in `work`: give a folder that driver and executors all share"


@dataclass(frozen=True, eq=False)
class Kept:
    """Rows that no task makes again: the frame that reads them, their number, the sum of their column `value`, and the
    files of the private folder that hold them."""

    frame: Any
    rows: int
    total: int
    files: tuple[str, ...] = ()


def mark(folder: Path) -> str:
    """Put a fresh token into `folder`: by it a task knows this folder from one of the same name on another host."""
    token = secrets.token_hex(16)
    with os.fdopen(os.open(folder / TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    return token


def sees(folder: str, token: str) -> bool:
    """Whether this host sees the folder that `token` was put into."""
    try:
        return Path(folder, TOKEN).read_text() == token
    except OSError:
        return False


def total(values: Any) -> int:
    """The exact sum of 64-bit integers in an Arrow column, which may be larger than any of them can say."""
    numbers = values.to_numpy(zero_copy_only=False)
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def writer(folder: str, token: str, name: str) -> Any:
    """Batches of a task -> a file of its own in `folder` (none where it has no rows), and the RECEIPT for it. A task
    that runs twice writes two files; the driver reads the one whose receipt it got."""
    import pyarrow as pa
    from pyarrow import parquet

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("keeping a copy"):
            if not sees(folder, token):
                raise DomainError(NOT_SHARED)
            file = f"{name}-{secrets.token_hex(16)}.parquet"
            aside = os.path.join(folder, f".{file}")
            made, rows, sums = None, 0, 0
            try:
                for batch in batches:
                    if batch.num_rows == 0:
                        continue
                    if made is None:
                        handle = os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
                        made = handle, parquet.ParquetWriter(handle, batch.schema, **PLAIN)
                    made[1].write_batch(batch)
                    rows, sums = rows + batch.num_rows, sums + total(batch.column("value"))
                if made is None:
                    return
                made[1].close()
                made[0].close()
                os.replace(aside, os.path.join(folder, file))
            except BaseException:
                with suppress(OSError):
                    os.unlink(aside)
                raise
            columns = [pa.array([file]), pa.array([rows], pa.int64()), pa.array([str(sums)])]
            yield pa.RecordBatch.from_arrays(columns, ["file", "rows", "total"])

    return write
