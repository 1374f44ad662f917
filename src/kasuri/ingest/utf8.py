"""CSV files as UTF-8: those of other encodings, and those with wrong bytes, are read from a private copy.

Arrow stops at a line that both has too few or too many cells and is not UTF-8. One record must never stop the others,
so in the copy every wrong byte has become a mark that is nowhere else in it; cells with the mark are unknown, and
nothing else of the file changes.
"""

from __future__ import annotations

import codecs
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from kasuri.ingest import encodings, scratch

_BLOCK = 1 << 24
# What a wrong byte is decoded to: in UTF-8, of which a copy is made only where there is one, what no text can hold, so
# that it changes no other record; the other encodings, of which there is always a copy, may have the same for good.
_WRONG = {True: ("surrogateescape", re.compile("[\udc80-\udcff]+")), False: ("replace", re.compile("\ufffd+"))}


@contextmanager
def readable(path: Path, away: Sequence[Path] = (), encoding: str | None = None) -> Iterator[tuple[Path, str | None]]:
    """The file itself, or a copy in UTF-8 and the mark that stands for its wrong bytes; it ends with the block."""
    codec = encodings.of(path, encoding)
    if codec == "utf-8" and _is_utf8(path):
        yield path, None
        return
    mark = f"\N{REPLACEMENT CHARACTER}{secrets.token_hex(16)}"  # nobody can have written it before
    with scratch.folder(away) as folder:
        copy = folder / "copy.csv"
        handling, wrong = _WRONG[codec == "utf-8"]
        with open(path, "rb") as source, open(copy, "w", encoding="utf-8", newline="") as target:
            blocks = iter(lambda: source.read(_BLOCK), b"")
            pieces = _lines(blocks) if codec.startswith("utf-16") else _decoded(blocks, codec, handling)
            for piece in pieces:
                target.write(wrong.sub(mark, piece))
        yield copy, mark


def _decoded(blocks: Iterator[bytes], codec: str, handling: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(codec)(handling)
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def _lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """UTF-16 line by line, each from its own first byte on. An odd byte would shift all that follows; so the two bytes
    of a line break are one wherever they are, and a line of an odd number of bytes is a wrong one. (A letter of the
    block U+0A00 or U+0D00 beside one of the form U+xx00 has these bytes too, and breaks its own line.)"""
    rest = next(blocks, b"")
    big = rest.startswith(codecs.BOM_UTF16_BE)
    codec, ends = ("utf-16-be", rb"(\0[\r\n])") if big else ("utf-16-le", rb"([\r\n]\0)")
    rest = rest[2 * rest.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)) :]
    for block in chain([b""], blocks):
        *lines, rest = re.split(ends, rest + block)
        if len(rest) > _BLOCK:  # longer than any line that can be read: not kept whole
            cut = (len(rest) - 1) // 2 * 2
            lines, rest = [*lines, rest[:cut]], rest[cut:]
        yield "".join(_line(line, codec) for line in lines)
    yield _line(rest, codec)


def _line(line: bytes, codec: str) -> str:
    return "\N{REPLACEMENT CHARACTER}" if len(line) % 2 else line.decode(codec, "replace")


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
