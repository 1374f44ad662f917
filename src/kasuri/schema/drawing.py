"""Drawing: the places of an axis as a map draws them, on a small grid of whole numbers; public, like the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float
from kasuri.errors import DomainError
from kasuri.schema import places, systems

SIDE = 1000
"""Units along the longer side of a drawing unless said otherwise: about what a screen shows."""
Ring = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Drawing:
    """Shapes on a sheet of `width` x `height` units, x to the right and y down, as screens count. Neighbours share
    their borders to the last unit; nothing smaller than a unit is kept, but every place with ground has a ring. Areas
    on the sheet are in proportion to those on the ground."""

    level: str
    """The name of the level that is drawn."""
    width: int
    height: int
    codes: tuple[str, ...] = field(repr=False)
    """The places, in the order of the axis of that level."""
    names: Mapping[str, tuple[str, ...]] = field(repr=False)
    """By column of names ("name", "name_ja"), the name of each, or nothing."""
    spans: tuple[tuple[int, int], ...] = field(repr=False)
    """The half-open range of own indices of the axis that each place holds."""
    rings: tuple[tuple[Ring, ...], ...] = field(repr=False)
    """Per place its rings, one (x, y) a row, the first corner not repeated; fill by the even-odd rule (holes)."""


def drawn(shapes: Sequence[bytes], crs: str, side: int) -> tuple[int, int, tuple[tuple[Ring, ...], ...]]:
    """Width, height and rings of WKB outlines in the system `crs`."""
    if not 16 <= side <= 1 << 14:
        raise DomainError(f"a drawing is 16 to {1 << 14} units wide, not {side}")
    library = places.shapely()
    found = library.from_wkb(np.array(shapes, dtype=object))
    if systems.geographic(crs):
        found = library.transform(found, _flat(library.get_coordinates(found), found))
    west, south, east, north = library.total_bounds(found).tolist()
    unit = max(east - west, north - south) / side
    simple = library.coverage_simplify(found, unit)
    width, height = (max(int(np.ceil(size / unit)), 1) for size in (east - west, north - south))

    def steps(geometry: Any) -> Ring:
        xy = library.get_coordinates(geometry)
        return np.rint(np.column_stack([xy[:, 0] - west, north - xy[:, 1]]) / unit).astype(np.int32)

    rings = []
    for own, whole in zip(simple, found, strict=True):
        kept = [_ring(steps(ring)) for part in library.get_parts(own) for ring in library.get_rings(part)]
        kept = [ring for ring in kept if len(ring) > 2]
        middle = steps(library.point_on_surface(whole))
        rings.append(tuple(kept) or tuple(map(_dot, middle)))
    return width, height, tuple(rings)


def _ring(steps: Ring) -> Ring:
    """Without its closing corner, corners that fell together, and corners on the way between their neighbours."""
    ring = steps[:-1]
    for _ in range(2):
        ring = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]
        if len(ring) < 3:
            return ring[:0]
        before, after = ring - np.roll(ring, 1, axis=0), np.roll(ring, -1, axis=0) - ring
        back = before.astype(np.int64)
        ring = ring[back[:, 0] * after[:, 1] != back[:, 1] * after[:, 0]]
    return ring if len(ring) > 2 else ring[:0]


def _dot(at: Ring) -> Ring:
    """A place that is smaller than a unit."""
    return (at + np.array([[0, 0], [1, 0], [1, 1], [0, 1]])).astype(np.int32)


def _flat(xy: Float, shapes: Any) -> Any:
    """Degrees to a plane: Lambert's equal areas about the middle of the shapes, by the sphere [Snyder1987, eq. 24-2 to
    24-4]. The globe is cut where the widest strip of longitudes is empty, so that a country across the 180th meridian
    is in one piece."""
    library = places.shapely()
    around = np.sort(np.unique(np.floor(xy[:, 0]) % 360))
    gaps = np.diff(around, append=around[0] + 360)
    start = float(around[(int(gaps.argmax()) + 1) % around.size])
    shapes = shapes[~library.is_empty(shapes)]
    middle = library.get_coordinates(library.centroid(shapes))
    weight = library.area(shapes) * np.cos(np.radians(middle[:, 1]))
    lon0 = float(np.average((middle[:, 0] - start) % 360, weights=weight)) + start
    lat0 = float(np.radians(np.average(middle[:, 1], weights=weight)))

    def move(points: Float) -> Float:
        lon = np.radians((points[:, 0] - start) % 360 + start - lon0)
        lat = np.radians(points[:, 1])
        near = 1 + np.sin(lat0) * np.sin(lat) + np.cos(lat0) * np.cos(lat) * np.cos(lon)
        by = np.sqrt(2 / np.maximum(near, 1e-9))
        up = np.cos(lat0) * np.sin(lat) - np.sin(lat0) * np.cos(lat) * np.cos(lon)
        return np.column_stack([by * np.cos(lat) * np.sin(lon), by * up])

    return move
