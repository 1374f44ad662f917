"""Where the page of an axis lies on the earth: page coordinates (x to the east, y to the south) and degrees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kasuri.arrays import Float
from kasuri.schema import Axis, Plane, systems

_NODES = 16
"""Patches to a side of a window in which degrees are told; between their corners the page goes in straight lines."""


@dataclass(frozen=True)
class Window:
    """A rectangle of the reference system `crs` (None: degrees) and its size in page units."""

    crs: str | None
    extent: tuple[float, float, float, float]
    """West, south, east, north."""
    size: tuple[float, float]
    """(wide, high)."""
    datum: str = ""
    """"Tokyo" where degrees are of the old Japanese datum."""

    def place(self, lon: Float, lat: Float) -> tuple[Float, Float]:
        """Page coordinates of degrees (WGS 84)."""
        x, y = lon, lat
        if self.datum == "Tokyo":  # the usual linear formula, some metres exact
            x = lon + 0.000046047 * lat + 0.000083049 * lon - 0.010041046
            y = lat + 0.00010696 * lat - 0.000017467 * lon - 0.0046020
        elif self.crs == systems.MERCATOR:
            x, y = lon / 180 * systems.HALF, np.arcsinh(np.tan(np.radians(lat))) / np.pi * systems.HALF
        elif self.crs == _Europe.crs:
            x, y = _Europe.forward(lon, lat)
        elif self.crs is not None:
            y, x = systems.mover(systems.DEGREES, self.crs)(lat, lon)
        west, south, east, north = self.extent
        return (x - west) / (east - west) * self.size[0], (north - y) / (north - south) * self.size[1]

    def degrees(self, x: Float, y: Float) -> tuple[Float, Float]:
        """Longitude and latitude of page coordinates."""
        west, south, east, north = self.extent
        x, y = west + x / self.size[0] * (east - west), north - y / self.size[1] * (north - south)
        if self.datum == "Tokyo":
            return (x - 0.000046038 * y - 0.000083043 * x + 0.010040, y - 0.00010695 * y + 0.000017464 * x + 0.0046017)
        if self.crs is None:
            return x, y
        if self.crs == systems.MERCATOR:
            return x / systems.HALF * 180, np.degrees(np.arctan(np.sinh(y / systems.HALF * np.pi)))
        if self.crs == _Europe.crs:
            return _Europe.back(x, y)
        lat, lon = systems.mover(self.crs, systems.DEGREES)(y, x)
        return lon, lat

    def nodes(self) -> tuple[Float, Float]:
        """Longitude and latitude at the corners of equal patches, row by row from the north-west; one patch where
        both are linear. A window across the 180th meridian has longitudes above it."""
        count = 2 if self.crs is None else _NODES + 1
        y, x = (np.linspace(0, side, count) for side in self.size[::-1])
        lon, lat = self.degrees(*(part.ravel() for part in np.meshgrid(x, y)))
        if self.crs is not None:
            lon = np.degrees(np.unwrap(np.radians(lon.reshape(count, count)), axis=1)).ravel()
        return lon, lat

    def told(self) -> dict[str, Any] | None:
        """The corners for the viewer, to a metre or so; None where degrees have no meaning there."""
        lon, lat = self.nodes()
        if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
            return None
        parts = {name: [round(float(v), 5) for v in values] for name, values in (("lon", lon), ("lat", lat))}
        return {"patches": math.isqrt(lon.size) - 1, **parts}


def of_plane(plane: Plane) -> Window | None:
    """The window of rows and columns, in cells; None for a plain grid."""
    if plane.where() is None:
        return None
    high, wide = plane.shape
    if plane.jis_level is not None:
        return Window(None, plane.extent(), (wide, high), plane.crs)
    return Window(_system(plane), plane.extent(), (wide, high))


def _system(axis: Axis) -> str | None:
    """The system of an axis; None where it is degrees."""
    crs = f"EPSG:{axis.epsg}"
    return None if systems.geographic(crs) else crs


class _Europe:
    """EPSG:3035, Lambert's azimuthal equal-area projection of ETRS89 (EPSG Guidance Note 7-2), without pyproj: so a
    page is the same wherever it is made."""

    crs = "EPSG:3035"
    radius, e2 = 6378137.0, 0.00669438002290
    lat, lon, east, north = math.radians(52), math.radians(10), 4321000.0, 3210000.0

    @classmethod
    def _q(cls, lat: Any) -> Any:
        e, sine = math.sqrt(cls.e2), np.sin(lat)
        return (1 - cls.e2) * (sine / (1 - cls.e2 * sine**2) - np.log((1 - e * sine) / (1 + e * sine)) / (2 * e))

    @classmethod
    def _constants(cls) -> tuple[float, float, float, float]:
        pole = float(cls._q(math.pi / 2))
        beta, radius = math.asin(float(cls._q(cls.lat)) / pole), cls.radius * math.sqrt(pole / 2)
        across = math.cos(cls.lat) / math.sqrt(1 - cls.e2 * math.sin(cls.lat) ** 2)
        return pole, beta, radius, cls.radius * across / (radius * math.cos(beta))

    @classmethod
    def forward(cls, lon: Float, lat: Float) -> tuple[Float, Float]:
        pole, beta0, radius, d = cls._constants()
        beta = np.arcsin(np.clip(cls._q(np.radians(lat)) / pole, -1, 1))
        turn = np.radians(lon) - cls.lon
        inner = 1 + np.sin(beta0) * np.sin(beta) + np.cos(beta0) * np.cos(beta) * np.cos(turn)
        b = radius * np.sqrt(2 / np.maximum(inner, 1e-9))
        x = cls.east + b * d * np.cos(beta) * np.sin(turn)
        return x, cls.north + b / d * (np.cos(beta0) * np.sin(beta) - np.sin(beta0) * np.cos(beta) * np.cos(turn))

    @classmethod
    def back(cls, x: Float, y: Float) -> tuple[Float, Float]:
        _, beta0, radius, d = cls._constants()
        x, y = x - cls.east, y - cls.north
        far = np.maximum(np.hypot(x / d, d * y), 1e-9)
        c = 2 * np.arcsin(np.clip(far / (2 * radius), -1, 1))
        beta = np.arcsin(np.cos(c) * np.sin(beta0) + d * y * np.sin(c) * np.cos(beta0) / far)
        lon = cls.lon + np.arctan2(
            x * np.sin(c), d * far * np.cos(beta0) * np.cos(c) - d * d * y * np.sin(beta0) * np.sin(c)
        )
        e2, e4, e6 = cls.e2, cls.e2**2, cls.e2**3
        lat = beta + (e2 / 3 + 31 * e4 / 180 + 517 * e6 / 5040) * np.sin(2 * beta)
        lat += (23 * e4 / 360 + 251 * e6 / 3780) * np.sin(4 * beta) + 761 * e6 / 45360 * np.sin(6 * beta)
        return np.degrees(lon), np.degrees(lat)
