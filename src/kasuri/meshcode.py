"""Japanese standard grid codes (JIS X 0410) <-> (row, col) <-> Morton order.

A level divides one degree of latitude and longitude into whole numbers of cells; `row` counts cells northward from
the equator and `col` eastward from 100 degrees E. The level is always declared: ten digits can be two levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """One level of the grid: cells per first-order (80 km) mesh side, and how its digits divide the level above."""

    name: str
    digits: int
    per_first: int
    parent: str | None
    quadrant: bool  # True: one digit 1..4 (1 SW, 2 SE, 3 NW, 4 NE); False: two digits row, col


LEVELS: dict[str, Level] = {
    "80km": Level("80km", 4, 1, None, False),
    "10km": Level("10km", 6, 8, "80km", False),
    "5km": Level("5km", 7, 16, "10km", True),
    "1km": Level("1km", 8, 80, "10km", False),
    "500m": Level("500m", 9, 160, "1km", True),
    "250m": Level("250m", 10, 320, "500m", True),
    "125m": Level("125m", 11, 640, "250m", True),
}


def level(name: str) -> Level:
    """The level called `name`; an unknown one is a DomainError that lists them."""
    if name not in LEVELS:
        raise DomainError(f"mesh level {name!r} is not known; use one of {', '.join(LEVELS)}")
    return LEVELS[name]


def degrees(name: str) -> tuple[float, float]:
    """Height and width of a cell of this level in degrees (80 km mesh: 2/3 degree by 1 degree)."""
    per = level(name).per_first
    return 2 / 3 / per, 1 / per


def decode(codes: ArrayLike, name: str) -> tuple[Int, Int]:
    """Codes of level `name` -> (row, col). Digits outside their range raise one DomainError naming the rows.

    >>> [int(x[0]) for x in decode([533945263], "500m")]
    [8585, 6332]
    """
    row, col, good = try_decode(codes, name)
    if not good.all():
        at = ", ".join(str(i) for i in np.flatnonzero(~good)[:10])
        raise DomainError(f"{int((~good).sum())} codes are not {name} mesh codes (positions {at}); check the level")
    return row, col


def try_decode(codes: ArrayLike, name: str) -> tuple[Int, Int, NDArray[np.bool_]]:
    """Codes -> (row, col, good): `good` is False where the code is not of this level; row and col are then 0."""
    code = np.asarray(codes, dtype=np.int64)
    this = level(name)
    good = (code >= 10 ** (this.digits - 1)) & (code < 10**this.digits)
    rest = np.where(good, code, 0)
    row = np.zeros_like(rest)
    col = np.zeros_like(rest)
    step = 1
    while this.parent is not None:
        if this.quadrant:
            digit = rest % 10 - 1
            rest = rest // 10
            good &= (digit >= 0) & (digit < 4)
            side, r, c = 2, digit // 2, digit % 2
        else:
            side = this.per_first // LEVELS[this.parent].per_first
            r, c = rest // 10 % 10, rest % 10
            rest = rest // 100
            good &= (r < side) & (c < side)
        row += r * step
        col += c * step
        step *= side
        this = LEVELS[this.parent]
    row += rest // 100 * step
    col += rest % 100 * step
    row[~good] = 0
    col[~good] = 0
    return row, col, good


def encode(rows: ArrayLike, cols: ArrayLike, name: str) -> Int:
    """(row, col) -> codes of level `name`: the inverse of `decode`.

    >>> encode([8585], [6332], "500m").tolist()
    [533945263]
    """
    row = np.asarray(rows, dtype=np.int64)
    col = np.asarray(cols, dtype=np.int64)
    this = level(name)
    per = this.per_first
    if np.any((row < 0) | (row >= 100 * per) | (col < 0) | (col >= 100 * per)):
        raise DomainError(f"rows and columns of a {name} mesh lie in 0..{100 * per - 1}; some do not")
    if this.parent is None:
        return row * 100 + col
    if this.quadrant:
        return encode(row // 2, col // 2, this.parent) * 10 + (row % 2) * 2 + col % 2 + 1
    side = per // LEVELS[this.parent].per_first
    return encode(row // side, col // side, this.parent) * 100 + (row % side) * 10 + col % side


def morton(rows: ArrayLike, cols: ArrayLike) -> Int:
    """Interleave the bits of row and col, row first ([Terada2015, eq. 53-55]); both below 2^31.

    >>> morton([3], [5]).tolist()
    [27]
    """
    from kasuri._kernels.morton import interleave2

    row = np.ascontiguousarray(rows, dtype=np.int64)
    col = np.ascontiguousarray(cols, dtype=np.int64)
    if row.shape != col.shape:
        raise DomainError("rows and cols must have one shape")
    if row.size and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= 1 << 31):
        raise DomainError("rows and cols of a Morton code lie in 0..2^31-1; some do not")
    return interleave2(row.ravel(), col.ravel()).reshape(row.shape)


def unmorton(keys: ArrayLike) -> tuple[Int, Int]:
    """The inverse of `morton`."""
    from kasuri._kernels.morton import deinterleave2

    key = np.ascontiguousarray(keys, dtype=np.int64)
    if key.size and key.min() < 0:
        raise DomainError("Morton codes are not negative; some are")
    row, col = deinterleave2(key.ravel())
    return row.reshape(key.shape), col.reshape(key.shape)
