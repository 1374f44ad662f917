"""H3: the hexagons of Uber's global grid, by the h3 library (the extra `geo`), and their tree of indices."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, raise_faults
from kasuri.schema import columns, systems
from kasuri.schema.axis import ELSEWHERE, Axis, elsewhere_faults, name_faults
from kasuri.schema.columns import Found, Place

MAX_HEXAGONS = 1 << 22
"""Most cells of one axis: each has a label."""


def library() -> Any:
    """h3 with indices as whole numbers, or the refusal that says how to get it."""
    try:
        import h3.api.basic_int as found
    except ImportError:
        raise DomainError("H3 needs the library h3, which is not installed; pip install 'kasuri[geo]'") from None
    return found


@dataclass(frozen=True)
class H3(Axis):
    """All cells of one `resolution` (0 to 15) below the cells `within`, which are of any coarser resolutions; without
    them, the whole earth. Labels are the indices as H3 writes them, such as 8928308280fffff.

    The tree is that of the indices: every cell has seven children (a pentagon six). Children do not tile their parent
    on the ground: a sum over a parent is over the children by index, along its edge not exactly over its own hexagon.
    `elsewhere` declares one more label, "elsewhere", a child of the root, for any other cell of the resolution.
    """

    name: str
    resolution: int
    within: tuple[str, ...] = ()
    points: str = field(default=systems.DEGREES, kw_only=True)
    elsewhere: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "h3"
    outline_type: ClassVar[str] = "MultiPolygon"

    def __post_init__(self) -> None:
        own, faults = f"axis {self.name!r}", name_faults(self.name)
        object.__setattr__(self, "within", tuple(self.within))
        faults += systems.faults(self.points, f"{own}: points") + elsewhere_faults(self.name, self.elsewhere)
        if not isinstance(self.resolution, int) or isinstance(self.resolution, bool) or not 0 <= self.resolution <= 15:
            raise DomainError(*faults, f"{own}: resolution must be a whole number from 0 to 15")
        bad = [i for i, code in enumerate(self.within) if not self._may_hold(code)]
        faults += [f"{own}: within {i} is not an H3 index of resolution {self.resolution} or coarser" for i in bad[:10]]
        if not bad:
            spans = sorted((*_span(cell, self.resolution), cell) for cell in self._tops)
            faults += [
                f"{own}: within names {_text(cell)} twice, or a cell and one below it"
                for (_, last, _), (first, _, cell) in pairwise(spans)
                if first <= last
            ]
            if self._count > MAX_HEXAGONS:
                faults.append(f"{own}: {self._count} cells; at most {MAX_HEXAGONS}: coarsen it, or name fewer within")
        raise_faults(DomainError, faults)

    def code_level(self, code: str) -> str | None:
        h3 = library()
        cell = int(code, 16) if re.fullmatch("[0-9a-f]{15}", code) else 0
        return str(h3.get_resolution(cell)) if h3.is_valid_cell(cell) else None

    def _may_hold(self, code: object) -> bool:
        level = self.code_level(code) if isinstance(code, str) else None
        return level is not None and int(level) <= self.resolution

    @property
    def _tops(self) -> list[int]:
        """The cells `within`; else those that the earth is divided into."""
        return [int(code, 16) for code in self.within] or list(library().get_res0_cells())

    @property
    def _count(self) -> int:
        h3 = library()
        return sum(h3.cell_to_children_size(cell, self.resolution) for cell in self._tops)

    @cached_property
    def _cells(self) -> Int:
        """All cells in the order of the tree, which is the order of their numbers."""
        h3 = library()
        below = [np.array(list(h3.cell_to_children(cell, self.resolution)), np.uint64) for cell in self._tops]
        return np.sort(np.concatenate(below).astype(np.int64))

    @cached_property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]  # made once, when it is asked for
        return (*map(_text, self._cells.tolist()), *((ELSEWHERE,) if self.elsewhere else ()))

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self._count + self.elsewhere,)

    @property
    def declared(self) -> tuple[int, ...]:
        return (self._count,)

    def mapped(self) -> H3:
        return replace(self, elsewhere=False)

    @property
    def grouped(self) -> bool:
        return self.resolution > self._top_resolution

    def where(self) -> str | None:
        return systems.DEGREES

    @property
    def epsg(self) -> int | None:
        return systems.number(systems.DEGREES)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "name": self.name, "resolution": self.resolution, "within": list(self.within),
            "points": self.points, **({"elsewhere": True} if self.elsewhere else {}),
        }  # fmt: skip

    @property
    def _top_resolution(self) -> int:
        """The coarsest resolution that the cells `within` share."""
        h3 = library()
        return min(h3.get_resolution(cell) for cell in self._tops)

    @cached_property
    def _paths(self) -> tuple[tuple[int, ...], ...]:
        top = self._top_resolution
        _, above = np.unique(_parents(self._cells, top), return_inverse=True)
        digits = [self._cells >> 3 * (15 - level) & 7 for level in range(top + 1, self.resolution + 1)]
        paths = tuple(map(tuple, np.column_stack([above, *digits]).tolist()))
        return (*paths, (int(above[-1]) + 1,)) if self.elsewhere else paths

    def tree_paths(self) -> tuple[tuple[int, ...], ...]:
        return self._paths

    def span(self, label: str) -> tuple[int, int] | None:
        """Of a cell of this resolution or a coarser one: the cells below it by index, all of which must be there."""
        if not self._may_hold(label):
            return (self._count, self._count + 1) if self.elsewhere and label == ELSEWHERE else None
        cell = int(label, 16)
        first, last = _span(cell, self.resolution)
        low, high = np.searchsorted(self._cells, [first, last + 1]).tolist()
        whole = library().cell_to_children_size(cell, self.resolution)
        return (low, high) if high - low == whole else None

    def place_faults(self, place: Place) -> list[str]:
        return [] if isinstance(place, Mapping) else super().place_faults(place)

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        if not isinstance(place, Mapping):
            return super().indices(place, parts)
        lat, lon = systems.mover(self.points, systems.DEGREES)(*map(columns.degrees, parts))
        with np.errstate(invalid="ignore"):
            good = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
        h3, level = library(), self.resolution
        places = zip(lat[good].tolist(), lon[good].tolist(), strict=True)
        cell = np.zeros(lat.size, dtype=np.int64)
        cell[good] = np.array([h3.latlng_to_cell(y, x, level) for y, x in places], dtype=np.int64)
        at = np.minimum(np.searchsorted(self._cells, cell), self._cells.size - 1)
        inside = good & (self._cells[at] == cell)
        wrong = ~(good if self.elsewhere else inside)
        return [np.where(inside, at, self._count)], wrong, f"not a point in {self.points} inside axis {self.name!r}"

    def from_arrow(self, place: Place, parts: Sequence[Any]) -> Found:
        if isinstance(place, Mapping):
            return self.indices(place, [columns.from_arrow(part, self.name, True) for part in parts])
        return super().from_arrow(place, parts)

    def _labelled(self, column: Any, labels: tuple[str, ...]) -> Found:
        if not self.elsewhere:
            return super()._labelled(column, labels)
        level = str(self.resolution)

        def other(code: str) -> int:
            return self._count if self.code_level(code) == level else -1

        found = columns.labelled(column, labels[:-1], others=other)
        return [np.maximum(found, 0)], found < 0, f"not a cell of axis {self.name!r}, nor of its resolution"

    @property
    def own_level(self) -> str | None:
        return str(self.resolution)

    @property
    def level_names(self) -> tuple[str, ...]:
        return tuple(str(level) for level in range(self.resolution - 1, self._top_resolution - 1, -1))

    def coarsened(self, level: str) -> tuple[Axis, list[tuple[Int, Int]]]:
        if level not in self.level_names:
            raise DomainError(f"axis {self.name!r} has no level {level!r}; use {', '.join(self.level_names)}")
        parents, first = np.unique(_parents(self._cells, int(level)), return_index=True)
        within = tuple(map(_text, parents.tolist()))
        coarse = H3(self.name, int(level), within, points=self.points, elsewhere=self.elsewhere)
        first = np.append(first, [self._count] * self.elsewhere)
        return coarse, [(first.astype(np.int64), np.append(first[1:], self.sizes[0]).astype(np.int64))]

    def outlines(self, index: Sequence[Int]) -> Any:
        """Cut where a cell crosses the 180th meridian."""
        import pyarrow as pa

        h3 = library()
        return pa.array([_outline(h3.cell_to_boundary(cell)) for cell in self._cells[index[0]].tolist()], pa.binary())

    def centres(self, index: Sequence[Int]) -> tuple[Float, Float]:
        h3 = library()
        found = np.array([h3.cell_to_latlng(cell) for cell in self._cells[index[0]].tolist()]).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def extent(self) -> tuple[float, float, float, float]:
        """That of the globe: exact bounds of many hexagons say nothing more."""
        return -180.0, -90.0, 180.0, 90.0


def _text(cell: int) -> str:
    return f"{cell:x}"


def _parents(cells: Int, level: int) -> Int:
    """The ancestors at a coarser resolution: its number in bits 52-55, the digits below it all 7."""
    return cells & ~np.int64(15 << 52) | np.int64(level << 52) | np.int64((1 << 3 * (15 - level)) - 1)


def _span(cell: int, level: int) -> tuple[int, int]:
    """The lowest and the highest number that cells of resolution `level` below a cell can have."""
    own, unused = cell >> 52 & 15, 3 * (15 - level)
    digits = sum(7 << 3 * (15 - at) for at in range(own + 1, level + 1))
    low = cell & ~(15 << 52) & ~digits | level << 52 | (1 << unused) - 1
    return low, low | sum(6 << 3 * (15 - at) for at in range(own + 1, level + 1))


def _outline(corners: Sequence[tuple[float, float]]) -> bytes:
    """WKB of a cell from its corners (lat, lon), counter-clockwise on the globe."""
    lat = np.array([corner[0] for corner in corners])
    lon = np.array([corner[1] for corner in corners])
    turn = (np.diff(lon, append=lon[0]) + 180) % 360 - 180  # the shorter way around
    flat = lon[0] + np.concatenate(([0.0], np.cumsum(turn[:-1])))
    if abs(turn.sum()) > 180:  # around a pole: from edge to edge of the map, and along the pole
        return _multi([_cap(lat, lon)])
    ring = list(zip(flat.tolist(), lat.tolist(), strict=True))
    if flat.max() > 180:
        parts = [_cut(ring, 180, 1), [(x - 360, y) for x, y in _cut(ring, 180, -1)]]
    elif flat.min() < -180:
        parts = [_cut(ring, -180, -1), [(x + 360, y) for x, y in _cut(ring, -180, 1)]]
    else:
        parts = [ring]
    return _multi([part for part in parts if len(part) > 2])


def _cap(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> list[tuple[float, float]]:
    order = np.argsort(lon)
    x, y = lon[order], lat[order]
    edge = float(np.interp(180, [x[-1], x[0] + 360], [y[-1], y[0]]))
    pole = float(np.copysign(90, y.mean()))
    ring = [(-180.0, edge), *zip(x.tolist(), y.tolist(), strict=True), (180.0, edge), (180.0, pole), (-180.0, pole)]
    return ring if pole > 0 else ring[::-1]


def _cut(ring: list[tuple[float, float]], at: float, side: int) -> list[tuple[float, float]]:
    """The part of a convex ring west (1) or east (-1) of a meridian."""
    out: list[tuple[float, float]] = []
    for (x, y), (u, v) in zip(ring, ring[1:] + ring[:1], strict=True):
        if side * (at - x) >= 0:
            out.append((x, y))
        if (at - x) * (at - u) < 0:
            out.append((at, y + (v - y) * (at - x) / (u - x)))
    return out


def _multi(rings: list[list[tuple[float, float]]]) -> bytes:
    """A WKB MultiPolygon of polygons without holes."""
    out = struct.pack("<BII", 1, 6, len(rings))
    for ring in rings:
        closed = [*ring, ring[0]]
        out += struct.pack("<BIII", 1, 3, 1, len(closed)) + np.array(closed).tobytes()
    return out
