"""Quadkeys: the tiles of web maps (EPSG:3857). Every digit quarters the tile above: 0 north-west, 1 north-east, 2
south-west, 3 south-east. A level is the number of digits, the zoom of the map."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasuri.arrays import Bool, Float, Int
from kasuri.schema.schemes.scheme import Lines, Scheme, letters, texts
from kasuri.schema.systems import HALF, MERCATOR

_DEEPEST = 24


class Quadkey(Scheme):
    """Latitudes beyond 85.0511 degrees are in no tile."""

    crs = MERCATOR
    about = "quadkey of the tile"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(str(zoom) for zoom in range(1, _DEEPEST + 1))

    def lines(self, level: str) -> tuple[Lines, Lines]:
        half = 1 << (int(level) - 1)
        own = Lines(-half, 1, half, HALF)
        return own, own

    def bounds(self, level: str) -> tuple[int, int, int, int]:
        end = 1 << int(level)
        return 0, end, 0, end

    def find(self, level: str, y: Float, x: Float) -> tuple[Int, Int, Bool]:
        """As web maps do: rows are counted from the north, so a point on a line is south (or east) of it, and the ends
        of the map belong to the last tiles."""
        rows, cols = self.lines(level)
        end = 1 << int(level)
        (down, a), (col, b) = rows.find(-y), cols.find(x)
        down, col = (np.where(part == HALF, end - 1, number) for part, number in ((-y, down), (x, col)))
        good = a & b & (down >= 0) & (down < end) & (col >= 0) & (col < end)
        return np.where(good, end - 1 - down, 0), np.where(good, col, 0), good

    def encode(self, level: str, row: Int, col: Int) -> Any:
        zoom = int(level)
        down = (1 << zoom) - 1 - row
        digits = [48 + (col >> bit & 1) + 2 * (down >> bit & 1) for bit in range(zoom - 1, -1, -1)]
        return texts(np.column_stack(digits))

    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        zoom = int(level)
        found, good = letters(codes, zoom)
        good = good & ((found >= 48) & (found <= 51)).all(axis=1)
        digits = np.where(good[:, None], found, 48).astype(np.int64) - 48
        place = 1 << np.arange(zoom - 1, -1, -1)
        col, down = (digits & 1) @ place, (digits >> 1) @ place
        return np.where(good, (1 << zoom) - 1 - down, 0), col, good

    def level_of(self, code: str) -> str | None:
        return str(len(code)) if 1 <= len(code) <= _DEEPEST and set(code) <= set("0123") else None

    def splits(self, level: str) -> tuple[int, ...]:
        return (2,) * (int(level) - 1)


SCHEME = Quadkey()
