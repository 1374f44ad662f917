"""Files: written aside and renamed, so that one is there whole or not at all; those of others read in bounded memory,
so that a small file cannot unfold into a large table."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError

UNFOLDS = 200
"""Bytes in memory for one byte of a file. Released tables unfold less than twentyfold."""
_ROOM = 1 << 26  # whatever the ratio
_ROWS = 1 << 14  # rows read before the size is looked at again


@contextmanager
def whole(path: str | Path, *, new: bool = False, private: bool = False) -> Iterator[Path]:
    """A name beside `path` to write to; when the block ends well it becomes `path`, else nothing is kept.

    new: an existing file is refused and not written over. private: nobody but the owner may read it.
    """
    target = Path(os.path.realpath(path))  # what a link leads to, not the link
    if target.exists() and not target.is_file():
        raise DomainError(f"{target}: not a plain file; name one")
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        try:
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
            yield aside
            sync(aside)
            if new:
                place(aside, target)
            else:
                os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise DomainError(f"{target}: not written ({why}); nothing was kept") from None


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def place(part: Path, target: Path) -> None:
    """Give a finished file its name; FileExistsError where another file has it. `part` may be left: remove it."""
    try:
        os.link(part, target)  # unlike rename, never over a file that came meanwhile
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # a file system without links: claim it first
        os.replace(part, target)


def write(path: str | Path, data: str | bytes, *, new: bool = False, private: bool = False) -> None:
    """Write text (UTF-8) or bytes to `path`, whole or not at all."""
    with whole(path, new=new, private=private) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


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
