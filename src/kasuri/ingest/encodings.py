"""In which encoding a CSV file is read: by its first bytes and its header line alone, or as it is told.

No record decides it, so none changes how another is read. In every encoding of the list a line break is a line break
whatever bytes come before it, so that a record with wrong bytes spoils itself alone (docs/proofs/bounding.md).
"""

from __future__ import annotations

import codecs
from pathlib import Path

from kasuri.errors import DomainError

NAMES = ("utf-8", "utf-16", "cp932", "cp1252")
"""Every encoding that can be read; cp932 is the Shift-JIS of Windows."""
_SAME = {"utf8": "utf-8", "utf-8-sig": "utf-8", "utf16": "utf-16", "shift_jis": "cp932", "shift-jis": "cp932",
         "sjis": "cp932", "ms932": "cp932", "windows-31j": "cp932", "windows-1252": "cp1252"}  # fmt: skip
_HEADER = 1 << 20  # bytes in which the header line ends


def known(name: str) -> str:
    """The name in NAMES of an encoding that is asked for."""
    found = _SAME.get(name.strip().lower(), name.strip().lower())
    if found not in NAMES:
        raise DomainError(f"encoding {name!r} is not known; use one of {', '.join(NAMES)}, or save the file as UTF-8")
    return found


def of(path: Path, forced: str | None = None) -> str:
    """The codec of a CSV file: `forced`, or by its mark or header line: UTF-16 with its mark, UTF-8, else cp932."""
    with path.open("rb") as file:
        start = file.read(_HEADER)
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if forced is not None:
        found = known(forced)
        return found if found != "utf-16" or marked else "utf-16-le"  # as Windows writes it
    if marked:
        return "utf-16"
    header = next((line for line in start.splitlines() if line.strip()), b"")
    for name in ("utf-8", "cp932"):
        try:
            header.decode(name)
            return name
        except UnicodeDecodeError:
            continue
    raise DomainError(f'{path}: the header line is neither UTF-8 nor cp932; save as UTF-8 or say encoding = "cp1252"')


def labelled(path: Path, forced: str | None) -> str:
    """The file's name in messages, with its encoding where that is not UTF-8."""
    codec = of(path, forced) if path.suffix.lower() == ".csv" else "utf-8"
    return str(path) if codec == "utf-8" else f"{path} (read as {codec})"
