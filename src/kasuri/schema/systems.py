"""Reference systems by EPSG code. pyproj (the extra `geo`) is asked for all but the few that are written here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kasuri.arrays import Bool, Float
from kasuri.errors import DomainError

DEGREES = "EPSG:4326"
"""Latitude and longitude on WGS 84: what points are in unless a job says otherwise."""
MERCATOR = "EPSG:3857"
HALF = 20037508.342789244
"""Half the side of the square that EPSG:3857 makes of the earth: pi times 6378137 m."""
_BUILT_IN = {DEGREES: True, MERCATOR: False, "EPSG:3035": False}
"""Systems known without pyproj; are they geographic?"""

Move = Callable[[Float, Float], tuple[Float, Float]]
"""(y, x) in one system to (y, x) in another; what has no place there becomes infinite."""


def number(crs: object) -> int | None:
    """The EPSG number of a code such as EPSG:3035; None where it is not one."""
    found = re.fullmatch(r"EPSG:([1-9][0-9]{3,5})", crs) if isinstance(crs, str) else None
    return None if found is None else int(found[1])


def pyproj() -> Any:
    """The library, or the refusal that says how to get it."""
    try:
        import pyproj as library
    except ImportError:
        raise DomainError(
            "reference systems need the library pyproj, which is not installed; pip install 'kasuri[geo]'"
        ) from None
    return library


@lru_cache(maxsize=64)
def system(crs: str) -> Any:
    """The system as pyproj knows it; None where it does not."""
    try:
        return pyproj().CRS.from_epsg(number(crs))
    except pyproj().exceptions.CRSError:
        return None


def faults(crs: object, what: str) -> list[str]:
    """Why coordinates on a plane or a globe cannot be in the system `crs`."""
    if crs in _BUILT_IN:
        return []
    if number(crs) is None:
        return [f"{what}: {crs!r} is not a reference system; write its EPSG code, such as EPSG:3035"]
    found = system(str(crs))
    if found is None:
        return [f"{what}: {crs} is not a known reference system; look the number up at epsg.org"]
    if not (found.is_projected or found.is_geographic) or len(found.axis_info) != 2:
        return [f"{what}: {crs} is not a system of two coordinates on a plane or a globe; use its horizontal part"]
    return []


def geographic(crs: str) -> bool:
    """Are its coordinates latitude and longitude?"""
    return _BUILT_IN[crs] if crs in _BUILT_IN else bool(system(crs).is_geographic)


def on_earth(lat: Float, lon: Float) -> Bool:
    """Which latitudes and longitudes are those of a point."""
    with np.errstate(invalid="ignore"):
        return (np.abs(lat) <= 90) & (np.abs(lon) <= 180)


def real(crs: str, y: Float, x: Float) -> Bool:
    """Which coordinates in the system `crs` are those of a point, wherever it is."""
    return on_earth(y, x) if geographic(crs) else np.isfinite(y) & np.isfinite(x)


def elsewhere(crs: str, extent: Sequence[float], what: str) -> list[str]:
    """Why coordinates that extend so (west, south, east, north) are not in the system `crs`."""
    west, south, east, north = extent
    if geographic(crs) and (west < -180.001 or south < -90.001 or east > 360 or north > 90.001):
        return [f"{what} are not in {crs}: coordinates leave the globe"]
    if not geographic(crs) and max(abs(west), abs(east)) <= 360 and max(abs(south), abs(north)) <= 90:
        return [f"{what} are not in {crs}: they are within 360 units of its origin, as degrees are"]
    low, bottom, high, top = _used(crs)
    if west > high or east < low or south > top or north < bottom:
        return [f"{what} are not in {crs}: they are far from where it is used; are its coordinates exchanged?"]
    return []


@lru_cache(maxsize=64)
def _used(crs: str) -> tuple[float, float, float, float]:
    """West, south, east and north of where a system is meant to be used, a tenth wider, in its own coordinates; without
    an end where that cannot be told, or goes across the 180th meridian."""
    everywhere = (-np.inf, -np.inf, np.inf, np.inf)
    told = None if crs == DEGREES else system(crs).area_of_use
    if told is None or told.west >= told.east:
        return everywhere
    move = pyproj().Transformer.from_crs(DEGREES, crs, always_xy=True)
    west, south, east, north = move.transform_bounds(told.west, told.south, told.east, told.north)
    wide, high = (east - west) / 10, (north - south) / 10
    found = west - wide, south - high, east + wide, north + high
    return found if np.isfinite(found).all() and west < east else everywhere


@lru_cache(maxsize=64)
def mover(source: str, target: str) -> Move:
    """How points of one system are found in another."""
    if source == target:
        return lambda y, x: (y, x)
    if (source, target) == (DEGREES, MERCATOR):
        return _mercator
    between = pyproj().Transformer.from_crs(source, target, always_xy=True)

    def move(y: Float, x: Float) -> tuple[Float, Float]:
        east, north = between.transform(x, y)
        return np.asarray(north, dtype=np.float64), np.asarray(east, dtype=np.float64)

    return move


def _mercator(lat: Float, lon: Float) -> tuple[Float, Float]:
    """Exact at the edges of tiles: a longitude that halves the globe again and again is one division and one
    product, as an edge is one product."""
    with np.errstate(invalid="ignore", over="ignore"):
        good = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
        north = np.arcsinh(np.tan(np.radians(np.where(good, lat, 0)))) / np.pi * HALF
        return np.where(good, north, np.inf), np.where(good, lon / 180 * HALF, np.inf)
