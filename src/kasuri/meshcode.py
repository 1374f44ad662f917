"""Japanese standard grid codes (JIS X 0410) <-> (row, col) <-> Morton order.

A level divides one degree of latitude and longitude into whole numbers of cells; `row` counts cells northward from
the equator and `col` eastward from 100 degrees E. The level is always declared: ten digits can be two levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError


@dataclass(frozen=True)
class Level:
    """One level of the grid: cells per first-order (80 km) mesh side, and how its digits divide the level above."""

    name: str
    digits: int
    per_first: int
    parent: str | None
    form: Literal["digits", "quadrant", "even"]
    """How it is written below its parent: two digits row, col; one digit 1 SW, 2 SE, 3 NW, 4 NE; or (the 2 km mesh)
    two even digits and a 5."""


LEVELS: dict[str, Level] = {
    "80km": Level("80km", 4, 1, None, "digits"),
    "10km": Level("10km", 6, 8, "80km", "digits"),
    "5km": Level("5km", 7, 16, "10km", "quadrant"),
    "2km": Level("2km", 9, 40, "10km", "even"),
    "1km": Level("1km", 8, 80, "10km", "digits"),
    "500m": Level("500m", 9, 160, "1km", "quadrant"),
    "250m": Level("250m", 10, 320, "500m", "quadrant"),
    "125m": Level("125m", 11, 640, "250m", "quadrant"),
}


GUARD = 1e-7
"""In cells: how far below an edge a coordinate still counts as on it."""

DATUMS = {"JGD2011": 6668, "JGD2000": 4612, "Tokyo": 4301}
"""Reference systems of Japanese grids and their EPSG numbers; the grid's lines are the same, the ground is not."""


def level(name: str) -> Level:
    """The level called `name`; an unknown one is a DomainError that lists them."""
    if name not in LEVELS:
        raise DomainError(f"mesh level {name!r} is not known; use one of {', '.join(LEVELS)}")
    return LEVELS[name]


def degrees(name: str) -> tuple[float, float]:
    """Height and width of a cell of this level in degrees (80 km mesh: 2/3 degree by 1 degree)."""
    per = level(name).per_first
    return 2 / 3 / per, 1 / per


def _array(values: ArrayLike, kind: type[np.generic], what: str) -> NDArray[Any]:
    """A contiguous array of int64 or float64; anything else is refused."""
    try:
        return np.ascontiguousarray(values, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise DomainError(f"{what} must be an array of numbers") from None


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
    from kasuri._kernels import mesh

    code = _array(codes, np.int64, "mesh codes")
    sides, forms = _steps(name)
    row, col, good = np.empty(code.size, np.int64), np.empty(code.size, np.int64), np.empty(code.size, np.bool_)
    mesh.decode(code.ravel(), level(name).digits, sides, forms, row, col, good)
    return row.reshape(code.shape), col.reshape(code.shape), good.reshape(code.shape)


def encode(rows: ArrayLike, cols: ArrayLike, name: str) -> Int:
    """(row, col) -> codes of level `name`: the inverse of `decode`.

    >>> encode([8585], [6332], "500m").tolist()
    [533945263]
    """
    from kasuri._kernels import mesh

    row = _array(rows, np.int64, "rows")
    col = _array(cols, np.int64, "columns")
    if row.shape != col.shape:
        raise DomainError("rows and cols must have one shape")
    side = 100 * level(name).per_first
    if row.size and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= side):
        raise DomainError(f"rows and columns of a {name} mesh lie in 0..{side - 1}; some do not")
    sides, forms = _steps(name)
    out = np.empty(row.size, np.int64)
    mesh.encode(row.ravel(), col.ravel(), sides, forms, out)
    return out.reshape(row.shape)


def locate(lat: ArrayLike, lon: ArrayLike, name: str) -> Int:
    """Latitude and longitude in degrees, in the grid's own reference system -> codes of level `name`.

    A point on an edge belongs to the cell north or east of it. A double up to 1e-7 of a cell below an edge counts as on
    it (1e-7 of a 500 m cell is 0.05 mm): the double nearest to a corner's decimal is often below the corner.

    >>> locate([35.681236], [139.767125], "500m").tolist()
    [533946113]
    """
    row, col, good = try_locate(lat, lon, name)
    if not good.all():
        at = ", ".join(str(i) for i in np.flatnonzero(~good)[:10])
        raise DomainError(f"some coordinates lie outside the grid, 0-66.7 N, 100-200 E (positions {at})")
    return encode(row, col, name)


def try_locate(lat: ArrayLike, lon: ArrayLike, name: str) -> tuple[Int, Int, NDArray[np.bool_]]:
    """Degrees -> (row, col, good): `good` is False where a point lies outside the grid or is not a number."""
    from kasuri._kernels import mesh

    y, x = _array(lat, np.float64, "latitudes"), _array(lon, np.float64, "longitudes")
    if y.shape != x.shape:
        raise DomainError("latitudes and longitudes must have one shape")
    row, col, good = np.empty(y.size, np.int64), np.empty(y.size, np.int64), np.empty(y.size, np.bool_)
    mesh.locate(y.ravel(), x.ravel(), level(name).per_first, GUARD, row, col, good)
    return row.reshape(y.shape), col.reshape(y.shape), good.reshape(y.shape)


def level_of(code: str) -> str:
    """The level of one mesh code whose number of digits settles it; others must be declared.

    >>> level_of("5339"), level_of("533946113")
    ('80km', '500m')
    """
    found = [this.name for this in LEVELS.values() if this.digits == len(code) and code.isascii() and code.isdigit()]
    fits = [name for name in found if try_decode([int(code)], name)[2][0]]
    if len(fits) != 1 or len(code) >= 10:  # ten digits are 250 m here and 100 m elsewhere
        raise DomainError(f"the level of mesh code {code!r} is not settled by its digits; give rows and cols instead")
    return fits[0]


def sides(name: str) -> tuple[int, ...]:
    """Into how many rows (and columns) each step from the 80 km mesh down to level `name` splits a cell.

    >>> sides("500m")
    (8, 10, 2)
    """
    return tuple(_steps(name)[0][::-1].tolist())


@lru_cache(maxsize=16)
def _steps(name: str) -> tuple[Int, Int]:
    """The steps from level `name` up to the 80 km mesh, as the kernels read them."""
    sides, forms, this = [], [], level(name)
    while this.parent is not None:
        above = LEVELS[this.parent]
        sides.append(this.per_first // above.per_first)
        forms.append(("digits", "quadrant", "even").index(this.form))
        this = above
    return np.array(sides, dtype=np.int64), np.array(forms, dtype=np.int64)


def morton(rows: ArrayLike, cols: ArrayLike) -> Int:
    """Interleave the bits of row and col, row first ([Terada2015, eq. 53-55]); both below 2^31.

    >>> morton([3], [5]).tolist()
    [27]
    """
    from kasuri._kernels.morton import interleave2

    row = _array(rows, np.int64, "rows")
    col = _array(cols, np.int64, "columns")
    if row.shape != col.shape:
        raise DomainError("rows and cols must have one shape")
    keys, seen = interleave2(row.ravel(), col.ravel())
    if seen >= 1 << 31:  # a negative number has the highest bit
        raise DomainError("rows and cols of a Morton code lie in 0..2^31-1; some do not")
    return keys.reshape(row.shape)
