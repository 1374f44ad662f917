"""Released rows as bytes a page can carry: streams of whole numbers, deflated each on its own, in base 85.

One stream per axis (the first rises, so its gaps are kept; the others as they are), then values, then intervals: how
far they reach above the value, and their width, or 0 for those that start at 0 (most widths are the same, so that
stream nearly vanishes); signed ones zigzagged. Numbers that vary much are kept as planes (all lowest bytes, then all
next ones), the others as LEB128 varints, whichever makes the page of a census smaller. 512 x 512 cells with intervals
take 0.22 MB. The page's viewer undoes it (viewer/rows.js); `unpack` is the same in Python, for `verify` and the tests.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int

Packed = tuple[dict[str, Any], str]
"""(what a reader must know, base-85 text)."""

HUNDREDTHS = 100
"""Numbers that are not whole are kept to two decimals."""

_CHUNK = 1 << 20
_LEVEL = 7
"""Of deflate: 9 takes 5.7 times the time on the national mesh and saves 1.6 %."""
_PLANES = ("value", "above", "truth")
"""The streams kept as planes of bytes; the others are varints."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What the viewer shows: the index of each row along every axis, and whole-number columns in units of 1/`unit`.

    `columns` holds "value", and where they are known "below" and "above" (distances to the interval's ends, -1 where a
    row has none) and "truth" (internal reports only).
    """

    index: tuple[Int, ...]
    columns: Mapping[str, Int]
    unit: int = 1

    @property
    def size(self) -> int:
        return self.columns["value"].size


def whole(numbers: Sequence[NDArray[Any]]) -> int:
    """1 if all numbers are whole, else 100: the unit that keeps them."""
    for part in numbers:
        good = part[np.isfinite(part)] if part.dtype.kind == "f" else part
        if good.dtype.kind == "f" and bool(np.any(good != np.rint(good))):
            return HUNDREDTHS
    return 1


def distances(values: NDArray[Any], lower: NDArray[Any], upper: NDArray[Any], unit: int) -> tuple[Int, Int]:
    """How far the interval reaches below and above each value, rounded outwards; -1 where there is none."""
    none = ~(np.isfinite(lower) & np.isfinite(upper))
    at = np.rint(values.astype(np.float64) * unit)
    below = np.where(none, -1, at - np.floor(np.where(none, 0, lower) * unit + 1e-9))
    above = np.where(none, -1, np.ceil(np.where(none, 0, upper) * unit - 1e-9) - at)
    return below.astype(np.int64), above.astype(np.int64)


def pack(rows: Rows) -> Packed:
    """Rows as text; `unpack` gives them back."""
    streams: dict[str, NDArray[Any]] = {}
    for i, index in enumerate(rows.index):
        streams[f"axis{i}"] = np.diff(index, prepend=0) if i == 0 else index
    columns = dict(rows.columns)
    if "below" in columns:
        below, above = columns.pop("below"), columns["above"]
        columns["width"] = np.where((above < 0) | (columns["value"] == below), 0, above + below + 1)
    streams |= columns
    squeeze, packed, lengths = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9), b"", []
    for name, numbers in streams.items():
        plain = numbers if name.startswith("axis") else zigzag(numbers)
        parts = planes(plain) if name in _PLANES else [varints(plain)]
        # a flush ends the block: the next part gets codes of its own
        packed += b"".join(squeeze.compress(part) + squeeze.flush(zlib.Z_SYNC_FLUSH) for part in parts)
        lengths.append([name, sum(map(len, parts))])
    packed += squeeze.flush()
    return {"rows": rows.size, "unit": rows.unit, "streams": lengths}, text_of(packed)


def text_of(data: bytes) -> str:
    """Bytes as text that stands in a page as it is: base 85, five letters for four bytes, with a comma for "<"."""
    return base64.b85encode(data).decode().replace("<", ",")


def bytes_of(text: str) -> bytes:
    """The inverse of `text_of`; ValueError where the text is not of its making."""
    return base64.b85decode(text.replace("<", " ").replace(",", "<"))


def unpack(about: Mapping[str, Any], text: str) -> Rows:
    """The rows that `pack` was given; ValueError or zlib.error where the bytes are not of its making."""
    size, squeezed = sum(length for _, length in about["streams"]), zlib.decompressobj(-15)
    data = squeezed.decompress(bytes_of(text), size + 1)  # never more than was announced
    at, index, columns = 0, [], {}
    for name, length in about["streams"]:
        read = from_planes if name in _PLANES else from_varints
        numbers = read(np.frombuffer(data, np.uint8, length, at), about["rows"])
        at += length
        if name.startswith("axis"):
            index.append((np.cumsum(numbers) if name == "axis0" else numbers).astype(np.int64))
        else:
            columns[name] = (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
    if at != len(data) or not squeezed.eof:
        raise ValueError("bytes are left over")
    if "width" in columns:
        width, above, value = columns.pop("width"), columns["above"], columns["value"]
        columns["below"] = np.where(above < 0, -1, np.where(width == 0, value, width - 1 - above))
    return Rows(tuple(index), columns, about["unit"])


def zigzag(numbers: Int) -> NDArray[np.uint64]:
    """0, -1, 1, -2, ... -> 0, 1, 2, 3, ..."""
    return (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> 63).astype(np.uint64)


def planes(numbers: NDArray[np.uint64]) -> list[bytes]:
    """All lowest bytes, then all next ones, ... as far as any number reaches."""
    most = int(numbers.max(initial=0))
    return [(numbers >> np.uint64(8 * i)).astype(np.uint8).tobytes() for i in range((most.bit_length() + 7) // 8)]


def from_planes(data: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:
    """The inverse of `planes`."""
    many = data.size // count if count else 0
    if many > 8 or many * count != data.size:
        raise ValueError("not as many numbers as there are rows")
    out = np.zeros(count, np.uint64)
    for i, plane in enumerate(data.reshape(many, count)):
        out |= plane.astype(np.uint64) << np.uint64(8 * i)
    return out


def varints(numbers: NDArray[Any]) -> bytes:
    """Numbers of 0 .. 2^64 - 1, seven bits a byte, low bits first, the high bit says that more follows."""
    return b"".join(_varints(numbers[at : at + _CHUNK].astype(np.uint64)) for at in range(0, numbers.size, _CHUNK))


def _varints(numbers: NDArray[np.uint64]) -> bytes:
    length = np.ones(numbers.size, np.int64)
    for bits in range(7, 64, 7):
        length += numbers >= np.uint64(1 << bits)
    end = np.cumsum(length)
    out = np.zeros(end[-1], np.uint8)
    for i in range(int(length.max())):
        has = length > i
        byte = ((numbers[has] >> np.uint64(7 * i)) & np.uint64(127)).astype(np.uint8)
        out[end[has] - length[has] + i] = byte | ((length[has] > i + 1).astype(np.uint8) << 7)
    return out.tobytes()


def from_varints(data: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:
    """The inverse of `varints`."""
    ends = np.flatnonzero(data < 128)
    if ends.size != count or (data.size and ends[-1] != data.size - 1 if ends.size else data.size):
        raise ValueError("not as many numbers as there are rows")
    starts = np.concatenate(([0], ends[:-1] + 1))[: ends.size]
    out = np.zeros(count, np.uint64)
    for i in range(int((ends - starts).max(initial=-1)) + 1):
        has = starts + i <= ends
        out[has] |= (data[starts[has] + i] & 127).astype(np.uint64) << np.uint64(7 * i)
    return out
