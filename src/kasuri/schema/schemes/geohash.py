"""Geohashes: latitude and longitude (WGS 84) halved in turn, longitude first, five halvings to a letter. A level is the
number of letters."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasuri.arrays import Bool, Float, Int
from kasuri.schema.schemes.scheme import Lines, Scheme, letters, texts
from kasuri.schema.systems import DEGREES

_LETTERS = b"0123456789bcdefghjkmnpqrstuvwxyz"
_VALUES = np.full(256, -1, dtype=np.int64)
_VALUES[np.frombuffer(_LETTERS, np.uint8)] = np.arange(32)
_DEEPEST = 11


def _bits(level: str) -> tuple[int, int]:
    """Halvings of latitude and of longitude."""
    return 5 * int(level) // 2, (5 * int(level) + 1) // 2


class Geohash(Scheme):
    """A letter splits 4 x 8 or 8 x 4, so that codes with one letter less are not squares of these cells; those with two
    letters less are, 32 x 32, and the tree halves its way to them."""

    crs = DEGREES
    about = "geohash"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(str(size) for size in range(1, _DEEPEST + 1))

    def lines(self, level: str) -> tuple[Lines, Lines]:
        lat, lon = _bits(level)
        return Lines(-90 << lat, 180, 1 << lat), Lines(-180 << lon, 360, 1 << lon)

    def bounds(self, level: str) -> tuple[int, int, int, int]:
        lat, lon = _bits(level)
        return 0, 1 << lat, 0, 1 << lon

    def find(self, level: str, y: Float, x: Float) -> tuple[Int, Int, Bool]:
        """The north pole and the 180th meridian, the ends of the map, belong to the last cells."""
        lat, lon = _bits(level)
        row, col, good = super().find(level, np.where(y == 90, -90, y), np.where(x == 180, -180, x))
        return np.where(y == 90, (1 << lat) - 1, row), np.where(x == 180, (1 << lon) - 1, col), good

    def encode(self, level: str, row: Int, col: Int) -> Any:
        rest, count = [col, row], 5 * int(level)
        parts = [np.zeros(row.size, dtype=np.int64) for _ in range(int(level))]
        for bit in range(count):  # from the most significant; the longitude has the even ones
            place = _bits(level)[1 - bit % 2] - 1 - bit // 2
            parts[bit // 5] |= (rest[bit % 2] >> place & 1) << (4 - bit % 5)
        return texts(np.frombuffer(_LETTERS, np.uint8)[np.column_stack(parts)])

    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        found, good = letters(codes, int(level))
        values = _VALUES[found]
        good = good & (values >= 0).all(axis=1)
        both = [np.zeros(good.size, dtype=np.int64) for _ in range(2)]
        for bit in range(5 * int(level)):
            both[bit % 2] = both[bit % 2] << 1 | (values[:, bit // 5] >> (4 - bit % 5) & 1)
        return np.where(good, both[1], 0), np.where(good, both[0], 0), good

    def level_of(self, code: str) -> str | None:
        return str(len(code)) if 1 <= len(code) <= _DEEPEST and set(code.encode()) <= set(_LETTERS) else None

    def splits(self, level: str) -> tuple[int, ...]:
        return (2,) * _bits(level)[0]


SCHEME = Geohash()
