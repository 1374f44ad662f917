"""What lies under a map: coasts, boundaries and names of places, from public files in this package (see NOTICE).

*Privacy.* A function of the axis alone: every release of a domain has the same ground.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Bool, Float, Int
from kasuri.report.pack import Packed, from_planes, text_of, varints, zigzag
from kasuri.report.window import Window

RING, COUNTRY, STATE, COUNTY = range(4)
MOST_BYTES = 36_000
"""Of packed text; finer lines are thinned until they fit."""
MOST_NAMES = 1_200
_WIDEST = {COUNTY: 7.0, STATE: 60.0, COUNTRY: 361.0, RING: 361.0}
"""Degrees of a window up to which lines of a kind are drawn."""
_FINE = 1 << 13
"""Steps along the longer side in which coordinates are kept."""

Line = tuple[int, Float]
"""A kind, and points (x, y) one below the other; a ring ends where it starts."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Many lines in three arrays: kinds, numbers of points, and all points one below the other."""

    kind: Int
    size: Int
    points: Float

    @classmethod
    def of(cls, lines: list[Line]) -> Lines:
        kinds, sizes = [kind for kind, _ in lines], [len(points) for _, points in lines]
        points = np.concatenate([np.empty((0, 2)), *(points for _, points in lines)])
        return cls(np.array(kinds, np.int64), np.array(sizes, np.int64), points)


@dataclass(frozen=True, eq=False)
class World:
    """Lines and names of the whole earth, in degrees."""

    kind: Int
    size: Int
    points: Float
    """All lines' points, one below the other."""
    bounds: Float
    """West, south, east, north of each line."""
    names: list[tuple[str, str, str]]
    """Native and Latin name, and code; the largest places first."""
    lon: Float
    lat: Float
    people: Int


@cache
def world() -> World:
    """The files of this package, read once."""
    data = np.load(io.BytesIO((files("kasuri.report") / "ground.npz").read_bytes()))
    size, planes = data["size"].astype(np.int64), data["xy"]
    coded = [from_planes(np.ascontiguousarray(planes[:, axis]).ravel(), planes.shape[2]) for axis in (0, 1)]
    steps = [(part >> np.uint64(1)).astype(np.int64) ^ -(part & np.uint64(1)).astype(np.int64) for part in coded]
    points = np.cumsum(np.column_stack(steps), axis=0) / 10_000
    ends = np.cumsum(size)
    first = ends - size
    low, high = np.minimum.reduceat(points, first), np.maximum.reduceat(points, first)
    names = [tuple(row.split("\t")) for row in bytes(data["names"]).decode().split("\n")]
    lon, lat = data["at"] / 10_000
    kinds = data["kind"].astype(np.int64)
    return World(kinds, size, points, np.hstack([low, high]), names, lon, lat, data["people"])  # type: ignore[arg-type]


def of(window: Window | None, *, lines: bool = True) -> Packed | None:
    """The ground of a window, packed; None where it is not on the earth or nothing is known there. Without `lines` of
    its own regions, only coasts and countries."""
    told = None if window is None else window.told()
    if window is None or told is None:
        return None
    lon, lat = np.array(told["lon"]), np.array(told["lat"])
    bounds = lon.min() - 0.2, lat.min() - 0.2, lon.max() + 0.2, lat.max() + 0.2
    wide = bounds[2] - bounds[0]
    kinds = {kind for kind, most in _WIDEST.items() if wide <= most and (lines or kind <= COUNTRY)}
    drawn = _projected(window, bounds, kinds)
    names = _names(window, bounds)
    if not drawn and not names[0]:
        return None
    side, step = max(window.size), max(window.size) / 1024
    all_of, places = Lines.of(drawn), "\n".join(map("\t".join, names[0])).encode()
    told_of, data = _pack(all_of, names, places, window, step)
    while 5 * len(data) > 4 * MOST_BYTES and step < side / 16:  # five letters for four bytes
        step *= 1.3
        told_of, data = _pack(all_of, names, places, window, step)
    return told_of, text_of(data)


def _projected(window: Window, bounds: tuple[float, float, float, float], kinds: set[int]) -> list[Line]:
    """The lines of some kinds inside the window, in page coordinates."""
    cut: list[Line] = []
    west, south, east, north = bounds
    known = world()
    first = np.cumsum(known.size) - known.size
    wanted = np.isin(known.kind, list(kinds))
    for turn in (-360.0, 0.0, 360.0):  # a window across the 180th meridian sees the earth twice
        low, high = west - turn, east - turn
        near = wanted & (known.bounds[:, 0] < high) & (known.bounds[:, 2] > low)
        near &= (known.bounds[:, 1] < north) & (known.bounds[:, 3] > south)
        for at in np.flatnonzero(near).tolist():
            points = known.points[first[at] : first[at] + known.size[at]]
            box = (low, south, high, north)
            parts = [points] if _within(known.bounds[at], box) else _clipped(int(known.kind[at]), points, box)
            cut += [(int(known.kind[at]), part + np.array([turn, 0.0])) for part in parts]
    return _placed(window, Lines.of(cut)) if cut else []


def _placed(window: Window, lines: Lines) -> list[Line]:
    """Lines in degrees in page coordinates, cut at the page; those that leave the projection are left out."""
    moved = np.column_stack(window.place(lines.points[:, 0], lines.points[:, 1]))
    ends = np.cumsum(lines.size)
    low, high = np.minimum.reduceat(moved, ends - lines.size), np.maximum.reduceat(moved, ends - lines.size)
    out: list[Line] = []
    page = (0.0, 0.0, *window.size)
    told = zip(lines.kind.tolist(), (ends - lines.size).tolist(), ends.tolist(), np.hstack([low, high]), strict=True)
    for kind, start, end, own in told:
        if np.isfinite(own).all():
            points = moved[start:end]
            parts = [points] if _within(own, page) else _clipped(kind, points, page)
            out += [(kind, part) for part in parts]
    return out


def _within(own: Float, box: tuple[float, float, float, float]) -> bool:
    """Do bounds (west, south, east, north) lie in a box?"""
    west, south, east, north = own.tolist()
    return west >= box[0] and south >= box[1] and east <= box[2] and north <= box[3]


def _clipped(kind: int, points: Float, box: tuple[float, float, float, float]) -> list[Float]:
    """The parts of a line, or the ring, inside a box."""
    low, high = np.array(box[:2]), np.array(box[2:])
    if ((points >= low) & (points <= high)).all():
        return [points]
    if kind != RING:
        return list(_pieces(points, low, high))
    for axis, limit, sign in ((0, low[0], 1), (0, high[0], -1), (1, low[1], 1), (1, high[1], -1)):
        points = _half(points, axis, float(limit), sign)  # Sutherland and Hodgman
        if len(points) < 4:
            return []
    return [points]


def _half(ring: Float, axis: int, limit: float, sign: int) -> Float:
    """The part of a closed ring on one side of a line along an axis."""
    inside: Bool = sign * (ring[:, axis] - limit) >= 0
    if inside.all() or not inside.any():
        return ring if inside.all() else ring[:0]
    a, b, cross = ring[:-1], ring[1:], inside[:-1] != inside[1:]
    share = np.where(cross, (limit - a[:, axis]) / np.where(cross, b[:, axis] - a[:, axis], 1), 0)
    cut = a + share[:, None] * (b - a)
    cut[:, axis] = limit
    both = np.empty((2 * len(a), 2))
    both[0::2], both[1::2] = a, cut
    keep = np.empty(2 * len(a), dtype=bool)
    keep[0::2], keep[1::2] = inside[:-1], cross
    out = both[keep]
    return np.vstack([out, out[:1]]) if len(out) else out


def _pieces(points: Float, low: Float, high: Float) -> Iterator[Float]:
    """Liang and Barsky, all segments at once."""
    a, way = points[:-1], np.diff(points, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, two = (low - a) / way, (high - a) / way
        enter, leave = np.minimum(one, two), np.maximum(one, two)
    flat, within = way == 0, (a >= low) & (a <= high)
    enter = np.where(flat, np.where(within, -np.inf, np.inf), enter).max(axis=1).clip(0, None)
    leave = np.where(flat, np.where(within, np.inf, -np.inf), leave).min(axis=1).clip(None, 1)
    seen = np.flatnonzero(enter < leave)
    if not seen.size:
        return
    breaks = (np.diff(seen) != 1) | (leave[seen[:-1]] < 1) | (enter[seen[1:]] > 0)
    for run in np.split(seen, np.flatnonzero(breaks) + 1):
        starts = a[run] + enter[run, None] * way[run]
        last = a[run[-1]] + leave[run[-1]] * way[run[-1]]
        yield np.vstack([starts, last])


def _names(window: Window, bounds: tuple[float, float, float, float]) -> tuple[list[tuple[str, ...]], Float, Int]:
    """Names of places in the window, the largest first; where they are, and how many people live there."""
    known = world()
    west, south, east, north = bounds
    lon = np.where(known.lon < west, known.lon + 360, known.lon)
    near = np.flatnonzero((lon <= east) & (known.lat >= south) & (known.lat <= north))
    x, y = window.place(lon[near], known.lat[near])
    wide, high = window.size
    inside = (x >= 0) & (y >= 0) & (x <= wide) & (y <= high)
    near, at = near[inside][:MOST_NAMES], np.column_stack([x[inside], y[inside]])[:MOST_NAMES]
    return [known.names[i] for i in near.tolist()], at, known.people[near].astype(np.int64)


def thinned(lines: Lines, step: float) -> Lines:
    """Points that leave the square of `step` that the point before is in, and the ends; rings that are a point go."""
    if not lines.size.size:
        return lines
    last = np.cumsum(lines.size) - 1
    first = last + 1 - lines.size
    square = np.floor(lines.points / step)
    keep = np.ones(len(square), dtype=bool)
    keep[1:] = (square[1:] != square[:-1]).any(axis=1)
    keep[first] = keep[last] = True
    size = np.add.reduceat(keep.astype(np.int64), first)
    stays = size > np.where(lines.kind == RING, 3, 1)
    keep &= np.repeat(stays, lines.size)
    return Lines(lines.kind[stays], size[stays], lines.points[keep])


def _pack(
    lines: Lines, names: tuple[list[tuple[str, ...]], Float, Int], places: bytes, window: Window, step: float
) -> tuple[dict[str, Any], bytes]:
    scale = _FINE / max(window.size)
    kept = thinned(lines, step)
    points = np.rint(np.concatenate([kept.points, names[1].reshape(-1, 2)]) * scale).astype(np.int64)
    steps = zigzag(np.diff(points, axis=0, prepend=0))
    numbers: dict[str, NDArray[Any]] = {
        "kind": kept.kind, "size": kept.size,
        "x": steps[:, 0], "y": steps[:, 1],
        "people": np.ceil(np.log2(names[2] + 1)).astype(np.int64),
    }  # fmt: skip
    parts = [(name, varints(part) if part.size else b"") for name, part in numbers.items()] + [("names", places)]
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    data = squeeze.compress(b"".join(part for _, part in parts)) + squeeze.flush()
    told = {"lines": kept.size.size, "names": len(names[0]), "scale": scale, "streams": [[n, len(p)] for n, p in parts]}
    return told, data
