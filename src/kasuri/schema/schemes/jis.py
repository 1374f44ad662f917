"""Codes of the Japanese mesh (JIS X 0410) as text: the cells of `Mesh`, for grids that are declared by scheme."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from kasuri import meshcode
from kasuri.arrays import Bool, Float, Int
from kasuri.errors import DomainError
from kasuri.schema.schemes.scheme import Lines, Scheme, letters


class Japanese(Scheme):
    """Two thirds of a degree by one degree, divided; rows from the equator, columns from 100 degrees east."""

    crs = "EPSG:6668"
    about = "code of JIS X 0410"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(meshcode.LEVELS)

    def lines(self, level: str) -> tuple[Lines, Lines]:
        per = meshcode.level(level).per_first
        return Lines.of(Fraction(0), Fraction(2, 3 * per)), Lines.of(Fraction(100), Fraction(1, per))

    def bounds(self, level: str) -> tuple[int, int, int, int]:
        end = 100 * meshcode.level(level).per_first
        return 0, end, 0, end

    def find(self, level: str, y: Float, x: Float) -> tuple[Int, Int, Bool]:
        """As `Mesh` finds them."""
        row, col, good = meshcode.try_locate(y, x, level)
        return np.where(good, row, 0), np.where(good, col, 0), good

    def encode(self, level: str, row: Int, col: Int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        number = pa.array(meshcode.encode(row, col, level)).cast(pa.string())
        return pc.utf8_lpad(number, meshcode.level(level).digits, "0")

    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        digits = meshcode.level(level).digits
        found, good = letters(codes, digits)
        good = good & ((found >= 48) & (found <= 57)).all(axis=1)
        values = np.where(good[:, None], found, 48).astype(np.int64) - 48
        row, col, known = meshcode.try_decode(values @ 10 ** np.arange(digits - 1, -1, -1), level)
        good = good & known
        return np.where(good, row, 0), np.where(good, col, 0), good

    def level_of(self, code: str) -> str | None:
        try:
            return meshcode.level_of(code)
        except DomainError:
            return None

    def splits(self, level: str) -> tuple[int, ...]:
        return meshcode.sides(level)


SCHEME = Japanese()
