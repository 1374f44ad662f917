"""Codes and points of the world's geographies against independent libraries, a million points of the whole earth each.

    python benchmarks/geography.py            # needs mercantile (pip install mercantile) beside the extra geo

Prints one line per comparison: how many points differ, and CPU seconds of each side.
"""

from __future__ import annotations

import sys
import time

import h3
import mercantile
import numpy as np
import pyarrow as pa

import kasuri as ks

POINTS = 1_000_000
LATLON = {"lat": "lat", "lon": "lon"}


def world(most: float) -> tuple[np.ndarray, np.ndarray]:
    """Uniform on the sphere up to a latitude; among them the date line from both sides, the equator, Greenwich, and
    (for 90 degrees) the poles."""
    rng = np.random.default_rng(20)
    lat = np.degrees(np.arcsin(rng.uniform(-1, 1, POINTS) * np.sin(np.radians(most))))
    lon = rng.uniform(-180, 180, POINTS)
    lon[:2000], lon[2000:4000] = 180.0, -180.0
    lon[4000:6000] = np.nextafter(180.0, 0) - rng.uniform(0, 1e-6, 2000)
    lat[6000:8000], lon[8000:10000] = 0.0, 0.0
    lat[10000:11000], lat[11000:12000] = most, -most
    return lat, lon


def quadkeys(level: int) -> None:
    lat, lon = world(85.05)
    grid = ks.Grid("home", scheme="quadkey", level=str(level), shape=(1 << level, 1 << level))
    start = time.process_time()
    index, wrong, _ = grid.indices(LATLON, [lat, lon])
    codes = grid.column(index)["grid_code"]
    back, bad, _ = grid.from_arrow("code", [codes])
    own = time.process_time() - start
    start = time.process_time()
    # mercantile takes 180 degrees for the first tile east of the map's end; the ends of the map belong to the last
    theirs = [mercantile.quadkey(mercantile.tile(min(x, 179.9999999999), y, level))
              for x, y in zip(lon.tolist(), lat.tolist(), strict=True)]  # fmt: skip
    other = time.process_time() - start
    differ = np.flatnonzero(np.array(codes.to_pylist(), object) != np.array(theirs, object))
    lost = int(wrong.sum() + bad.sum() + sum((a != b).sum() for a, b in zip(back, index, strict=True)))
    line(f"quadkey level {level}", differ.size, lost, own, other)
    for i in differ[:5].tolist():
        sys.stdout.write(f"    {lat[i]!r} {lon[i]!r}: {codes[i]} {theirs[i]}\n")


def hexagons(resolution: int) -> None:
    lat, lon = world(90.0)
    axis = ks.H3("hex", resolution)
    start = time.process_time()
    (at,), wrong, _ = axis.indices(LATLON, [lat, lon])
    codes = axis.column([at])["hex"]
    (back,), bad, _ = axis.from_arrow("hex", [codes])
    own = time.process_time() - start
    start = time.process_time()
    theirs = [h3.latlng_to_cell(y, x, resolution) for y, x in zip(lat.tolist(), lon.tolist(), strict=True)]
    other = time.process_time() - start
    differ = int((np.array(codes.to_pylist(), object) != np.array(theirs, object)).sum())
    line(f"H3 resolution {resolution}", differ, int(wrong.sum() + bad.sum() + (back != at).sum()), own, other)


def affine() -> None:
    """Points that are in the grid's own system."""
    rng = np.random.default_rng(21)
    grid = ks.Grid.window("home", "eu", "1kmN2800E3600", "1kmN3311E4111", points="EPSG:3035")
    y, x = rng.uniform(2_800_000, 3_312_000, 10 * POINTS), rng.uniform(3_600_000, 4_112_000, 10 * POINTS)
    start = time.process_time()
    index, wrong, _ = grid.indices(LATLON, [y, x])
    own = time.process_time() - start
    differ = int((index[0] != np.floor(y / 1000) - 2800).sum() + (index[1] != np.floor(x / 1000) - 3600).sum())
    line(f"affine grid, {10 * POINTS / own / 1e6:.1f} M points a second", differ, int(wrong.sum()), own, 0.0)
    start = time.process_time()
    pa.array(grid.column(index)["grid_code"])
    line("codes of these", 0, 0, time.process_time() - start, 0.0)


def line(what: str, differ: int, lost: int, own: float, other: float) -> None:
    sys.stdout.write(f"{what}: {differ} differ, {lost} lost on the way back; CPU {own:.1f} s, library {other:.1f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    affine()
    for level in (9, 18):
        quadkeys(level)
    for resolution in (2, 5):
        hexagons(resolution)
