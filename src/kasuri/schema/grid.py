"""Grid: a window of any grid of the earth: of a scheme with codes, or of equal steps in a reference system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Bool, Float, Int
from kasuri.errors import DomainError, raise_faults
from kasuri.schema import columns, systems
from kasuri.schema.axis import Plane, Step, elsewhere_faults, name_faults, pair, rational
from kasuri.schema.columns import Found, Place
from kasuri.schema.schemes import Lines, Scheme, scheme, words

Number = int | float | str | Fraction
Steps = Number | tuple[Number, Number]
"""One exact number, or two (north, east); kept as two texts."""


@dataclass(frozen=True)
class Grid(Plane):
    """A rectangle of grid cells on the earth. `origin` is the (row, col) of its south-west cell, `shape` its (rows,
    cols); rows count to the north, columns to the east.

    With a `scheme` ("eu", "quadkey", "geohash", "jis") and one of its `level`s, cells have codes. Without one, `crs`
    and `step` say where they are: cell (0, 0) has its south-west corner at `anchor`, and every cell is `step` high and
    wide, in units of `crs` (one number, or two: north, east), exactly: 1000, "0.1", "1/120".

    `splits` chooses the tree: into how many rows (and columns) each level splits the one above it, from the top. Points
    in records are in the system `points`; a projected one has its northing in `lat` and its easting in `lon`.
    `elsewhere` declares one more cell, for records at any other place.

    >>> Grid("home", scheme="eu", level="1km", origin=(2800, 3600), shape=(512, 512)).nesting()
    (2, 5, 2, 5)
    """

    name: str
    scheme: str | None = field(default=None, kw_only=True)
    level: str | None = field(default=None, kw_only=True)
    origin: tuple[int, int] = field(default=(0, 0), kw_only=True)
    shape: tuple[int, int] = field(kw_only=True)
    crs: str = field(default="", kw_only=True)
    step: Steps | None = field(default=None, kw_only=True)
    anchor: Steps | None = field(default=None, kw_only=True)
    splits: tuple[int, ...] | None = field(default=None, kw_only=True)
    points: str = field(default=systems.DEGREES, kw_only=True)
    elsewhere: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        own = f"axis {self.name!r}"
        faults = name_faults(self.name)
        for what in ("origin", "shape"):
            two = pair(getattr(self, what))
            if two is None:
                faults.append(f"{own}: {what} must be two whole numbers (rows, cols)")
            object.__setattr__(self, what, two or (0, 1))
        if min(self.shape) < 1:
            faults.append(f"{own}: shape {self.shape} must be at least one row and one column")
        faults += elsewhere_faults(self.name, self.elsewhere, self.shape)
        faults += systems.faults(self.points, f"{own}: points")
        faults += self._plain_faults(own) if self.scheme is None else self._scheme_faults(own)
        if self.splits is not None:
            object.__setattr__(self, "splits", tuple(self.splits))
            if not all(isinstance(part, int) and part >= 2 for part in self.splits):
                faults.append(f"{own}: splits are whole numbers of at least 2")
        raise_faults(DomainError, faults)
        raise_faults(DomainError, self._window_faults(own))

    def _scheme_faults(self, own: str) -> list[str]:
        found = scheme(str(self.scheme))
        if found is None:
            return [f"{own}: scheme {self.scheme!r} is not known; use {', '.join(words())}"]
        faults = []
        if self.level not in found.levels:
            faults.append(f"{own}: level {self.level!r} is not one of {self.scheme}; use {', '.join(found.levels)}")
        if self.crs not in ("", found.crs):
            faults.append(f"{own}: the cells of {self.scheme} are in {found.crs}; leave crs out")
        if self.step is not None or self.anchor is not None:
            faults.append(f"{own}: the level of {self.scheme} gives step and anchor; leave them out")
        object.__setattr__(self, "crs", found.crs)
        return faults

    def _plain_faults(self, own: str) -> list[str]:
        faults = systems.faults(self.crs, f"{own}: crs")
        if self.level is not None:
            faults.append(f"{own}: a level is of a scheme; give scheme, or leave level out")
        for what, given in (("step", self.step), ("anchor", self.anchor or 0)):
            two = _exact(given)
            if two is None or (what == "step" and min(two) <= 0):
                faults.append(
                    f'{own}: {what} must be exact, such as 1000, "0.1" or "1/120", or two of them (north, east)'
                )
                two = Fraction(1), Fraction(1)
            object.__setattr__(self, what, tuple(str(part) for part in two))
        return faults

    def _window_faults(self, own: str) -> list[str]:
        low, high, left, right = self._cells.bounds(self._level)
        (row, col), (rows, cols) = self.origin, self.shape
        faults = []
        if row < low or col < left or row + rows > high or col + cols > right:
            faults.append(f"{own}: origin {self.origin} + shape {self.shape} leaves the grid")
        ends = zip(self._cells.lines(self._level), self.origin, self.shape, strict=True)
        if not all(lines.exact(at) and lines.exact(at + size) for lines, at, size in ends):
            faults.append(f"{own}: step and anchor are too fine for exact edges; give them fewer digits")
        elif self.scheme is None and systems.geographic(self.crs):
            west, south, east, north = self.extent()
            if south < -90 or north > 90 or west < -180 or east > 540 or east - west > 360:
                faults.append(f"{own}: the window leaves the globe (90 S to 90 N, once around from 180 W)")
        if self.scheme is None or self.splits is None:
            return faults
        found = self._cells
        usual = {found.side(self._level, name) for name in found.levels}
        usual |= set(accumulate(reversed(found.splits(self._level)), mul))
        return faults + [
            f"{own}: splits {self.splits} lead to squares of {side} x {side} cells, which are not a level of "
            f"{self.scheme}: a step does not divide it"
            for side in self._sides()
            if side not in usual
        ]

    @classmethod
    def window(cls, name: str, scheme_word: str, south_west: str, north_east: str, **more: Any) -> Grid:
        """The window between two cells of a scheme, told by their codes, both included."""
        found = scheme(scheme_word)
        faults = name_faults(name)
        faults += systems.faults(more.get("points", systems.DEGREES), f"axis {name!r}: points")
        if found is None:
            faults.append(f"axis {name!r}: scheme {scheme_word!r} is not known; use {', '.join(words())}")
            raise DomainError(*faults)
        import pyarrow as pa

        level = found.level_of(south_west)
        if level is None or found.level_of(north_east) != level:
            raise DomainError(*faults, f"axis {name!r}: a window is given by two codes of one level of {scheme_word}")
        row, col, good = found.decode(level, pa.array([south_west, north_east]))
        if not good.all() or row[1] < row[0] or col[1] < col[0]:
            faults.append(f"axis {name!r}: the codes of its window are not its south-west and its north-east cell")
        raise_faults(DomainError, faults)
        shape = int(row[1] - row[0]) + 1, int(col[1] - col[0]) + 1
        return cls(name, scheme=scheme_word, level=level, origin=(int(row[0]), int(col[0])), shape=shape, **more)

    @property
    def _cells(self) -> Scheme:
        found = None if self.scheme is None else scheme(self.scheme)
        return found or _Plain(self.crs, *(_exact(part) or (Fraction(1),) * 2 for part in (self.step, self.anchor)))

    @property
    def _level(self) -> str:
        return self.level or ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "kind": self.kind, "name": self.name, "origin": list(self.origin), "shape": list(self.shape),
            "points": self.points, "splits": None if self.splits is None else list(self.splits),
        }  # fmt: skip
        out |= {"elsewhere": True} if self.elsewhere else {}
        if self.scheme is not None:
            return out | {"scheme": self.scheme, "level": self.level}
        return out | {
            "crs": self.crs,
            "step": [str(part) for part in _exact(self.step) or ()],
            "anchor": [str(part) for part in _exact(self.anchor) or ()],
        }

    def where(self) -> str | None:
        return self.crs

    @property
    def epsg(self) -> int | None:
        return systems.number(self.crs)

    @property
    def code_scheme(self) -> str | None:
        return self.scheme

    def code_level(self, code: str) -> str | None:
        return self._cells.level_of(code)

    def codes(self) -> Any:
        if self.scheme is None:
            return None
        rows, cols = (np.arange(start, start + size) for start, size in zip(self.origin, self.shape, strict=True))
        found = self._cells.encode(self._level, np.repeat(rows, cols.size), np.tile(cols, rows.size))
        return np.array(found.to_pylist(), dtype=object)

    def place_faults(self, place: Place) -> list[str]:
        if isinstance(place, Mapping):
            return []
        count = len(columns.names(place))
        if count not in (1, 2):
            return [f"axis {self.name!r} is in 1 or 2 columns"]
        if self.scheme is None and count == 1:
            return [f"axis {self.name!r} has no scheme, so it needs two columns (row, col), or lat and lon"]
        return []

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        if isinstance(place, Mapping):
            y, x = columns.degrees(parts[0]), columns.degrees(parts[1])
            row, col, good = self._find(y, x)
            rule = f"not a point in {self.points} inside the window"
            return self._within(row, col, good, rule, systems.real(self.points, y, x))
        if len(parts) == 1:
            import pyarrow as pa

            return self._decoded(pa.array([None if part is None else str(part) for part in parts[0].tolist()]))
        (row, a), (col, b) = columns.whole(parts[0]), columns.whole(parts[1])
        low, high, left, right = self._cells.bounds(self._level)
        good = a & b & (row >= low) & (row < high) & (col >= left) & (col < right)
        return self._within(row, col, good, "row or column outside the window")

    def from_arrow(self, place: Place, parts: Sequence[Any]) -> Found:
        if isinstance(place, Mapping) or len(parts) != 1:
            return super().from_arrow(place, parts)
        import pyarrow as pa

        column = parts[0]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return self._decoded(column if columns.is_text(column) else pa.nulls(len(column), pa.string()))

    def _decoded(self, codes: Any) -> Found:
        row, col, good = self._cells.decode(self._level, codes)
        return self._within(row, col, good, f"not a code of {self.scheme} inside the window, of level {self.level}")

    def _find(self, y: Float, x: Float) -> tuple[Int, Int, Bool]:
        y, x = systems.mover(self.points, self.crs)(y, x)
        if self.scheme is None and systems.geographic(self.crs):
            west, _, east, _ = self.extent()
            with np.errstate(invalid="ignore"):
                x = np.where((x < west) & (east > 180), x + 360, x)  # a window across the 180th meridian
        return self._cells.find(self._level, y, x)

    @property
    def column_names(self) -> tuple[str, ...]:
        return ("row", "col") if self.scheme is None else ("grid_code", "row", "col")

    def column(self, index: Sequence[Int]) -> dict[str, Any]:
        encode = None if self.scheme is None else lambda row, col: self._cells.encode(self._level, row, col)
        return self._shown(index, "grid_code", encode)

    def _sides(self) -> list[int]:
        """Own cells along a side of each coarser square of the tree, the smallest first."""
        return list(accumulate(reversed(self.nesting()), mul))

    @property
    def levels(self) -> tuple[Step, ...]:
        if self.scheme is None:
            sides = self._sides() if self.splits else [1 << k for k in range(1, max(self.shape).bit_length())]
            return tuple(self._at(str(side), side) for side in (1, *sides))
        found = self._cells
        named = [(name, found.side(self._level, name)) for name in reversed(found.levels)]
        return tuple(self._at(name, side) for name, side in named if side is not None)

    def _at(self, name: str, side: int) -> Step:
        return Step(name, side, (self.origin[0] % side, self.origin[1] % side))

    def at_level(self, level: str) -> Step:
        found = next((step for step in self.levels if step.name == level), None)
        if found is None:
            known = ", ".join(step.name for step in self.levels)
            raise DomainError(f"level {level} is not made of whole cells of axis {self.name!r}; use {known}")
        return found

    def coarser(self, step: Step) -> Grid:
        row, col = (at // step.side for at in self.origin)
        high, wide = (-(-(size + off) // step.side) for size, off in zip(self.shape, step.offset, strict=True))
        if self.scheme is not None:
            return replace(self, level=step.name, origin=(row, col), shape=(high, wide), splits=None)
        north, east = (str(part * step.side) for part in _exact(self.step) or ())
        return replace(self, step=(north, east), origin=(row, col), shape=(high, wide), splits=None)

    def nesting(self) -> tuple[int, ...]:
        """As chosen by `splits`; else the way of the scheme, or halves, as far up as the window needs."""
        if self.splits is not None:
            return self.splits
        if self.scheme is None:
            return (2,) * (max(self.shape) - 1).bit_length()
        own = self._cells.splits(self._level)
        if set(own) == {2}:
            return own[-max((max(self.shape) - 1).bit_length(), 1) :]
        return own

    def area(self, code: str) -> tuple[slice, slice]:
        """The code must lie wholly in the window."""
        import pyarrow as pa

        level = self._cells.level_of(str(code))
        if level is None:
            raise DomainError(f"{code} is not a code of {self.scheme}")
        step = self.at_level(level)
        row, col, good = self._cells.decode(level, pa.array([str(code)]))
        low = int(row[0]) * step.side - self.origin[0], int(col[0]) * step.side - self.origin[1]
        if not good[0] or min(low) < 0 or any(at + step.side > size for at, size in zip(low, self.shape, strict=True)):
            raise DomainError(f"code {code} is only partly inside the window; use rows= and cols=")
        return slice(low[0], low[0] + step.side), slice(low[1], low[1] + step.side)

    def edges(self, row: Int, col: Int) -> tuple[Float, Float, Float, Float]:
        rows, cols = self._cells.lines(self._level)
        row, col = row + self.origin[0], col + self.origin[1]
        return cols.at(col), rows.at(row), cols.at(col + 1), rows.at(row + 1)

    @property
    def aspect(self) -> float:
        rows, cols = self._cells.lines(self._level)
        flat = float(Fraction(rows.step * cols.per, rows.per * cols.step))
        if not systems.geographic(self.crs):
            return flat
        _, south, _, north = self.extent()
        return flat / max(math.cos(math.radians((south + north) / 2)), 0.01)


class _Plain(Scheme):
    """Equal steps from an anchor, without codes."""

    about = ""
    levels = ("",)

    def __init__(self, crs: str, step: tuple[Fraction, Fraction], anchor: tuple[Fraction, Fraction]) -> None:
        self.crs = crs
        self._lines = tuple(Lines.of(first, by) for first, by in zip(anchor, step, strict=True))

    def lines(self, level: str) -> tuple[Lines, Lines]:
        return self._lines[0], self._lines[1]

    def bounds(self, level: str) -> tuple[int, int, int, int]:
        return -(1 << 40), 1 << 40, -(1 << 40), 1 << 40

    def encode(self, level: str, row: Int, col: Int) -> Any:
        raise DomainError("a grid without a scheme has no codes")

    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        raise DomainError("a grid without a scheme has no codes")

    def level_of(self, code: str) -> str | None:
        return None

    def splits(self, level: str) -> tuple[int, ...]:
        return ()


def _exact(given: Any) -> tuple[Fraction, Fraction] | None:
    """One exact number for both directions, or two (north, east); None where it is something else."""
    both = list(given) if isinstance(given, list | tuple) else [given, given]
    found = [part for part in map(rational, both) if part is not None]
    return (found[0], found[1]) if len(found) == len(both) == 2 else None
