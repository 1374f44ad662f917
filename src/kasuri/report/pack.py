"""Released rows as bytes a page can carry: streams of whole numbers, deflated each on its own, in base 85.

One stream per axis (the first rises, so its gaps are kept; the others as they are), then values, then intervals: how
far they reach above the value, and their width, or 0 for those that start at 0 (most widths are the same, so that
stream nearly vanishes); signed ones zigzagged. Intervals are in the order of their values, since equal values have
alike limits: where noise fills every cell they are the same, and both streams nearly vanish. Numbers that vary much are
kept as planes (all lowest bytes, then all next ones), the others as LEB128 varints, whichever makes the page of a
census smaller. 512 x 512 cells with intervals take 0.2 to 0.35 MB. The page's viewer undoes it (viewer/rows.js);
`unpack` is the same in Python, for `verify` and the tests.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int, ranked

Packed = tuple[dict[str, Any], str]
"""(what a reader must know, base-85 text)."""

HUNDREDTHS = 100
"""Numbers that are not whole are kept to two decimals."""

_LETTERS = np.frombuffer(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~", np.uint8
)
"""Those of base 85, with a comma for "<"."""
_CHUNK = 1 << 20
_LEVEL = 7
_RUNS = ("axis0", "value", "above", "truth")
"""The streams in which nothing but runs is looked for: on the national mesh that takes a tenth of the time and makes
them 5 to 11 % smaller, since what repeats there by chance does not pay for its distance."""
_PLANES = ("value", "above", "truth")
"""The streams kept as planes of bytes; the others are varints."""
_LIMITS = ("above", "width")
"""The streams in the order of values."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What the viewer shows: the index of each row along every axis, and whole-number columns in units of 1/`unit`.

    `columns` holds "value", and where they are known "below" and "above" (distances to the interval's ends, -1 where a
    row has none) and "truth" (internal reports only). The ends of all intervals are multiples of `step`, all values
    are multiples of `grain`.
    """

    index: tuple[Int, ...]
    columns: Mapping[str, Int]
    unit: int = 1
    step: int = 1
    grain: int = 1

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


def pack(rows: Rows, *, sums: bool = False) -> Packed:
    """Rows as text; `unpack` gives them back. `sums`: their index and values are what others add up to, and are left
    out."""
    streams: dict[str, NDArray[Any]] = {}
    columns, value, step = dict(rows.columns), rows.columns["value"], rows.step
    if not sums:
        for i, index in enumerate(rows.index):
            streams[f"axis{i}"] = np.diff(index, prepend=0) if i == 0 else index
    else:
        del columns["value"]
    if "below" in columns:
        below, above = columns.pop("below"), columns["above"]
        columns["above"] = np.where(above < 0, -1, (value + above) // step - value // step)
        columns["width"] = np.where((above < 0) | (value == below), 0, (above + below) // step + 1)
    if not sums:
        columns["value"] = value // rows.grain
    streams |= columns
    order = ranked(value)
    packed, lengths = b"", []
    for name, numbers in streams.items():
        strategy = zlib.Z_RLE if name in _RUNS else zlib.Z_DEFAULT_STRATEGY
        squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, strategy)
        plain = numbers if name.startswith("axis") else zigzag(numbers)
        plain = plain[order] if name in _LIMITS else plain
        parts = planes(plain) if name in _PLANES else [varints(plain)] if plain.size else []
        # a flush ends the block: the next part gets codes of its own
        packed += b"".join(squeeze.compress(part) + squeeze.flush(zlib.Z_SYNC_FLUSH) for part in parts)
        lengths.append([name, sum(map(len, parts))])
    packed += zlib.compressobj(_LEVEL, zlib.DEFLATED, -15).flush()  # the end
    told = {"rows": rows.size, "unit": rows.unit, "step": step, "grain": rows.grain, "streams": lengths}
    return told, text_of(packed)


def text_of(data: bytes) -> str:
    """Bytes as text that goes into a page unescaped: base 85, five letters for four bytes, with a comma for "<"."""
    spare = -len(data) % 4
    words = np.frombuffer(data + bytes(spare), ">u4").astype(np.uint32)
    letters = np.empty((words.size, 5), np.uint8)
    for at in range(4, -1, -1):
        words, digit = np.divmod(words, np.uint32(85))
        letters[:, at] = _LETTERS[digit]
    return letters.tobytes()[: letters.size - spare].decode("ascii")


def bytes_of(text: str) -> bytes:
    """The inverse of `text_of`; ValueError where the text is not of its making."""
    data = base64.b85decode(text.replace("<", " ").replace(",", "<"))
    if text_of(data) != text:
        raise ValueError("letters are left over")
    return data


def squeezed_in(text: str, most: int) -> bytes:
    """The squeezed bytes in a text, fewer than `most`; ValueError where there are more, or others behind them."""
    squeezed = zlib.decompressobj(-15)
    data = squeezed.decompress(bytes_of(text), most)
    if not squeezed.eof or squeezed.unused_data:
        raise ValueError("bytes are left over")
    return data


def unpack(about: Mapping[str, Any], text: str, known: tuple[tuple[Int, ...], Int] | None = None) -> Rows:
    """The rows that `pack` was given; ValueError or zlib.error where the bytes are not of its making. `known` are index
    and values where they were left out."""
    data = squeezed_in(text, sum(length for _, length in about["streams"]) + 1)  # never more than was announced
    at, index, columns = 0, [], {}
    if known is not None:
        index, columns = list(known[0]), {"value": known[1]}
    for name, length in about["streams"]:
        read = from_planes if name in _PLANES else from_varints
        numbers = read(np.frombuffer(data, np.uint8, length, at), about["rows"])
        at += length
        if name.startswith("axis"):
            index.append((np.cumsum(numbers) if name == "axis0" else numbers).astype(np.int64))
        else:
            columns[name] = (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
    if at != len(data):
        raise ValueError("bytes are left over")
    if known is None:
        columns["value"] *= about["grain"]
    if "width" in columns:
        value, step = columns["value"], about["step"]
        if value.size != about["rows"]:
            raise ValueError("not as many limits as there are values")
        order = ranked(value)
        above, width = (np.empty_like(columns[name]) for name in _LIMITS)
        above[order], width[order] = columns["above"], columns.pop("width")
        columns["above"] = np.where(above < 0, -1, (above + value // step) * step - value)
        columns["below"] = np.where(above < 0, -1, np.where(width == 0, value, (width - 1) * step - columns["above"]))
    return Rows(tuple(index), columns, about["unit"], about["step"], about["grain"])


def zigzag(numbers: Int) -> NDArray[np.uint64]:
    """0, -1, 1, -2, ... -> 0, 1, 2, 3, ..."""
    return (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> 63).astype(np.uint64)


def planes(numbers: NDArray[np.uint64], many: int | None = None) -> list[bytes]:
    """All lowest bytes, then all next ones, ...: so `many`, or as far as any number reaches."""
    if many is None:
        many = (int(numbers.max(initial=0)).bit_length() + 7) // 8
    return [(numbers >> np.uint64(8 * i)).astype(np.uint8).tobytes() for i in range(many)]


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
