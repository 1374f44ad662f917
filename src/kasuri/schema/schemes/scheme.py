"""What a scheme of grid cells answers: levels, lines, and codes both ways; `Lines`: where the lines of a grid are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from kasuri.arrays import Bool, Float, Int

EXACT = 1 << 53
"""Whole numbers up to this one are doubles."""


@dataclass(frozen=True)
class Lines:
    """Parallel lines, numbered: line k is at (first + step * k) / per * unit. One rounding: `first`, `step` and `per`
    are whole numbers, `per` is a power of two where `unit` is not 1. Cell k is from line k up to, not including, k + 1.
    """

    first: int
    step: int
    per: int = 1
    unit: float = 1.0

    @classmethod
    def of(cls, first: Fraction, step: Fraction) -> Lines:
        """Lines from `first`, `step` apart.

        >>> Lines.of(Fraction(0), Fraction(1, 10)).at(np.arange(4)).tolist()
        [0.0, 0.1, 0.2, 0.3]
        """
        per = lcm(first.denominator, step.denominator)
        return cls(int(first * per), int(step * per), per)

    def at(self, number: Int) -> Float:
        """Where lines are: the double nearest to the exact place."""
        whole = (self.first + self.step * number).astype(np.float64)
        return whole / self.per if self.unit == 1.0 else whole * self.unit / self.per

    def exact(self, number: int) -> bool:
        """Is line `number` where doubles can tell it from its neighbours without a rounding of its number?"""
        return abs(self.first + self.step * number) <= EXACT

    def find(self, place: Float) -> tuple[Int, Bool]:
        """The cells in which places are, by the lines themselves and not by a rounded quotient; and which are."""
        good = np.isfinite(place)
        with np.errstate(over="ignore", invalid="ignore"):
            guess = np.floor((np.where(good, place, 0.0) / self.unit * self.per - self.first) / self.step)
        good &= np.abs(guess) < EXACT >> 1
        number = np.where(good, guess, 0).astype(np.int64)
        number -= self.at(number) > place
        number += self.at(number + 1) <= place
        return number, good


class Scheme(ABC):
    """A grid of the earth, or of a part of it, with a code for every cell of every level. A frozen value without fields
    that anybody sets; `row` counts cells of a level to the north and `col` to the east."""

    crs: str
    """The reference system that its lines are straight in."""
    about: str
    """What its codes are, for the description of a column."""

    @property
    @abstractmethod
    def levels(self) -> tuple[str, ...]:
        """The names of its levels, the coarsest first."""

    @abstractmethod
    def lines(self, level: str) -> tuple[Lines, Lines]:
        """The lines between rows, and those between columns."""

    @abstractmethod
    def bounds(self, level: str) -> tuple[int, int, int, int]:
        """First row, last row, first column and last column that have a code, the last ones excluded."""

    @abstractmethod
    def encode(self, level: str, row: Int, col: Int) -> Any:
        """Cells within `bounds` to codes: an Arrow array of text."""

    @abstractmethod
    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        """An Arrow array of text to (row, col, good): `good` is False where it is not a code of this level."""

    @abstractmethod
    def level_of(self, code: str) -> str | None:
        """The level of a code; None where it has the form of none."""

    @abstractmethod
    def splits(self, level: str) -> tuple[int, ...]:
        """Into how many rows (and columns) each level of the usual tree splits the one above it, from the top down to
        this one."""

    def side(self, level: str, coarse: str) -> int | None:
        """Cells of `level` along a side of a cell of `coarse`; None where that is not a whole number of them, or they
        do not begin together."""
        sides = {
            Fraction(big.step * small.per, small.step * big.per)
            for big, small in zip(self.lines(coarse), self.lines(level), strict=True)
        }
        one = sides.pop()
        return int(one) if not sides and one.denominator == 1 else None

    def find(self, level: str, y: Float, x: Float) -> tuple[Int, Int, Bool]:
        """Places in its reference system to (row, col, good). A point on a line is north or east of it."""
        rows, cols = self.lines(level)
        (row, a), (col, b) = rows.find(y), cols.find(x)
        low, high, left, right = self.bounds(level)
        good = a & b & (row >= low) & (row < high) & (col >= left) & (col < right)
        return np.where(good, row, 0), np.where(good, col, 0), good


def letters(codes: Any, length: int) -> tuple[Any, Bool]:
    """Texts of exactly `length` ASCII characters as a matrix of bytes, and which they are; other rows hold zeros."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = codes.cast(pa.large_string())
    good = pc.and_(pc.equal(pc.binary_length(codes), length), pc.is_valid(codes))
    blank = pa.scalar("\0" * length, pa.large_string())
    whole = pc.if_else(pc.fill_null(good, False), codes, blank)
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if len(whole) == 0:
        return np.zeros((0, length), dtype=np.uint8), np.zeros(0, dtype=bool)
    start = np.frombuffer(whole.buffers()[1], np.int64, count=len(whole) + 1, offset=8 * whole.offset)
    data = np.frombuffer(whole.buffers()[2], np.uint8)[start[0] : start[-1]]
    return data.reshape(len(whole), length), pc.fill_null(good, False).to_numpy(zero_copy_only=False)


def texts(characters: Any) -> Any:
    """A matrix of ASCII bytes as an Arrow array of text, one row each."""
    import pyarrow as pa

    count, length = characters.shape
    start = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * length)
    data = pa.py_buffer(np.ascontiguousarray(characters, dtype=np.uint8))
    return pa.LargeStringArray.from_buffers(count, start, data).cast(pa.string())
