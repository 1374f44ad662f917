"""Mesh: a window of a JIS X 0410 grid, or a plain grid of rows and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, raise_faults
from kasuri.schema import columns, systems
from kasuri.schema.axis import Plane, Step, elsewhere_faults, name_faults, pair
from kasuri.schema.columns import Found, Place

WINDOWS: dict[str, tuple[str, tuple[int, int], tuple[int, int]]] = {
    "japan": ("500m", (4864, 3584), (6144, 5376)),
    "japan4096": ("500m", (6912, 3328), (4096, 4096)),
    "kanto": ("500m", (8400, 6080), (512, 512)),
    "kinki": ("500m", (8040, 5440), (512, 512)),
    "kyushu": ("500m", (7560, 4688), (512, 512)),
    "tohoku": ("500m", (9000, 6240), (512, 512)),
}
"""Public windows of the 500 m mesh: name -> (level, (row, col) of the south-west cell, (rows, cols)). "japan" holds the
whole country; "japan4096" is the square of the papers, without Okinawa and Ogasawara."""

_LONGEST = 1 << 61
"""No row or column of a plain grid is as large."""


@dataclass(frozen=True)
class Mesh(Plane):
    """A rectangle of grid cells. `level` names a JIS X 0410 level; None is a plain grid of rows and columns, without
    codes, without a place on earth (`crs` then says nothing) and so without map formats. `origin` is the (row, col) of
    its south-west cell in cells of that level, `shape` its (rows, cols). `elsewhere` declares one more cell, for
    records at any other place: totals then count everybody whose place can be read."""

    name: str
    level: str | None = None
    origin: tuple[int, int] = (0, 0)
    shape: tuple[int, int] = field(kw_only=True)
    crs: str = field(default="JGD2011", kw_only=True)
    elsewhere: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "mesh"

    def __post_init__(self) -> None:
        for what in ("origin", "shape"):
            two = pair(getattr(self, what))
            if two is None:
                raise DomainError(f"{what} must be two whole numbers (rows, cols)")
            object.__setattr__(self, what, two)
        faults = name_faults(self.name)
        if min(self.shape) < 1:
            faults.append(f"mesh {self.name!r}: shape {self.shape} must be at least one row and one column")
        faults += elsewhere_faults(self.name, self.elsewhere, self.shape)
        if self.crs not in meshcode.DATUMS:
            faults.append(f"mesh {self.name!r}: crs {self.crs!r} is not known; use {', '.join(meshcode.DATUMS)}")
        if self.level is not None:
            side = 100 * meshcode.level(self.level).per_first
            ends = [start + size for start, size in zip(self.origin, self.shape, strict=True)]
            if min(self.origin) < 0 or max(ends) > side:
                faults.append(f"mesh {self.name!r}: origin {self.origin} + shape {self.shape} leaves the JIS grid")
        raise_faults(DomainError, faults)

    @classmethod
    def window(cls, name: str, window: str, *, level: str = "500m") -> Mesh:
        """A public window by name (see WINDOWS), or the first-order mesh of a four-digit code such as "5339"."""
        if window in WINDOWS:
            own, origin, shape = WINDOWS[window]
            if level != own:
                raise DomainError(f"window {window!r} is a {own} window; give origin and shape for level {level}")
            return cls(name, own, origin, shape=shape)
        if window.isdigit() and len(window) == 4:
            per = meshcode.level(level).per_first
            return cls(name, level, (int(window[:2]) * per, int(window[2:]) * per), shape=(per, per))
        raise DomainError(
            f"window {window!r} is not known; use {', '.join(WINDOWS)}, a first-order mesh such as 5339, "
            "or give origin and shape"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "level": self.level,
            "origin": list(self.origin),
            "shape": list(self.shape),
            "crs": self.crs,
            **({"elsewhere": True} if self.elsewhere else {}),
        }

    def where(self) -> str | None:
        return None if self.level is None else self.crs

    @property
    def epsg(self) -> int | None:
        return None if self.level is None else meshcode.DATUMS[self.crs]

    @property
    def jis_level(self) -> str | None:
        return self.level

    def code_level(self, code: str) -> str | None:
        try:
            return meshcode.level_of(code)
        except DomainError:
            return None

    def codes(self) -> Int | None:
        if self.level is None:
            return None
        rows, cols = (np.arange(start, start + size) for start, size in zip(self.origin, self.shape, strict=True))
        return meshcode.encode(np.repeat(rows, cols.size), np.tile(cols, rows.size), self.level)

    def place_faults(self, place: Place) -> list[str]:
        faults = []
        if isinstance(place, Mapping):
            if self.level is None:
                faults.append(f"axis {self.name!r} is not a mesh with a level, so coordinates cannot place it")
            return faults
        count = len(columns.names(place))
        if count not in (1, 2):
            faults.append(f"axis {self.name!r} needs 1 or 2 columns")
        if self.level is None and count == 1:
            faults.append(f"axis {self.name!r} has no level, so it needs two columns (row, col)")
        return faults

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        if isinstance(place, Mapping):
            lat, lon = columns.degrees(parts[0]), columns.degrees(parts[1])
            row, col, good = meshcode.try_locate(lat, lon, self.level or "")
            rule = "not a latitude and longitude in degrees inside the window"
            return self._within(row, col, good, rule, systems.on_earth(lat, lon))
        if len(parts) == 1:
            numbers, good = columns.whole(parts[0])
            row, col, decoded = meshcode.try_decode(numbers, self.level or "")
            rule = f"not a {self.level} mesh code inside the window"
            good &= decoded
        else:
            (row, a), (col, b) = columns.whole(parts[0]), columns.whole(parts[1])
            side = _LONGEST if self.level is None else 100 * meshcode.level(self.level).per_first
            good = a & b & (row >= 0) & (row < side) & (col >= 0) & (col < side)
            rule = "row or column outside the window"
        return self._within(row, col, good, rule)

    def column(self, index: Sequence[Int]) -> dict[str, Any]:
        level = self.level
        return self._shown(index, "mesh_code", None if level is None else lambda y, x: meshcode.encode(y, x, level))

    @property
    def levels(self) -> tuple[Step, ...]:
        if self.level is None:  # sums of 2 x 2, 4 x 4, ... cells
            return tuple(Step(str(1 << k), 1 << k, (0, 0)) for k in range(max(self.shape).bit_length()))
        own = meshcode.level(self.level).per_first
        coarse = [name for name, level in meshcode.LEVELS.items() if own % level.per_first == 0]
        return tuple(self.at_level(name) for name in reversed(coarse))

    def at_level(self, level: str) -> Step:
        own, wanted = meshcode.level(self.level or "").per_first, meshcode.level(level).per_first
        if own % wanted:
            raise DomainError(f"level {level} is not made of whole {self.level} cells")
        side = own // wanted
        return Step(level, side, (self.origin[0] % side, self.origin[1] % side))

    def coarser(self, step: Step) -> Mesh:
        row, col = (at // step.side for at in self.origin)
        high, wide = (-(-(size + off) // step.side) for size, off in zip(self.shape, step.offset, strict=True))
        level = None if self.level is None else step.name
        return replace(self, level=level, origin=(row, col), shape=(high, wide))

    def nesting(self) -> tuple[int, ...] | None:
        return None if self.level is None else meshcode.sides(self.level)

    def area(self, code: str) -> tuple[slice, slice]:
        """The code must lie wholly in the window."""
        level = meshcode.level_of(str(code))
        per = Fraction(meshcode.level(self.level or "").per_first, meshcode.level(level).per_first)
        if per.denominator != 1:
            raise DomainError(f"mesh code {code} ({level}) is not a whole number of {self.level} cells")
        side = int(per)
        row, col = (int(part[0]) * side for part in meshcode.decode([int(code)], level))
        low = row - self.origin[0], col - self.origin[1]
        if min(low) < 0 or low[0] + side > self.shape[0] or low[1] + side > self.shape[1]:
            raise DomainError(f"mesh code {code} is only partly inside the window; use rows= and cols=")
        return slice(low[0], low[0] + side), slice(low[1], low[1] + side)

    def edges(self, row: Int, col: Int) -> tuple[Float, Float, Float, Float]:
        per = meshcode.level(self.level or "").per_first
        row, col = row + self.origin[0], col + self.origin[1]
        return 100 + col / per, row * 2 / (3 * per), 100 + (col + 1) / per, (row + 1) * 2 / (3 * per)

    @property
    def aspect(self) -> float:
        """A JIS mesh has 2/3 as many degrees of latitude as of longitude, and a degree of longitude shrinks with the
        cosine of the latitude."""
        if self.level is None:
            return 1.0
        middle = (self.origin[0] + self.shape[0] / 2) / meshcode.level(self.level).per_first * 2 / 3
        return 1 / (1.5 * math.cos(math.radians(middle)))
