"""CSV files with bytes that are no UTF-8: those cells are unknown, and nothing else of the file changes.

Arrow stops at a line that both has too few or too many cells and is no UTF-8. One record must never stop the others, so
such a file is read from a private copy in which every wrong byte has become a mark that stands nowhere else in it.
"""

from __future__ import annotations

import codecs
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kasuri.ingest import scratch

_BLOCK = 1 << 24
_WRONG = re.compile("[\udc80-\udcff]+")  # what a wrong byte is decoded to; no text in UTF-8 holds it


@contextmanager
def readable(path: Path, away: Sequence[Path] = ()) -> Iterator[tuple[Path, str | None]]:
    """The file itself, or a copy without wrong bytes and the mark that stands for them; it ends with the block."""
    if _is_utf8(path):
        yield path, None
        return
    mark = f"\N{REPLACEMENT CHARACTER}{secrets.token_hex(16)}"  # nobody can have written it before
    with scratch.folder(away) as folder:
        copy = folder / "copy.csv"
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        with open(path, "rb") as source, open(copy, "w", encoding="utf-8", newline="") as target:
            for block in iter(lambda: source.read(_BLOCK), b""):
                target.write(_WRONG.sub(mark, decoder.decode(block)))
            target.write(_WRONG.sub(mark, decoder.decode(b"", final=True)))
        yield copy, mark


def unmarked(table: Any, mark: str | None) -> Any:
    """An Arrow batch or table of text in which a cell with the mark is null."""
    if mark is None:
        return table
    import pyarrow as pa
    from pyarrow import compute

    columns = []
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = compute.if_else(compute.match_substring(column, mark), pa.scalar(None, column.type), column)
        columns.append(column)
    return type(table).from_arrays(columns, names=table.schema.names)


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(_BLOCK), b""):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
