"""Codes and points of the world's geographies against independent libraries, a million points of the whole earth each.

    pip install mercantile pygeohash geopandas   # the libraries compared with, beside the extra geo
    python benchmarks/geography.py               # half a CPU minute
    python benchmarks/geography.py FILE CODE 2,5 # ten million points in the places of a file (EPSG:4326), whose column
                                                 # CODE has a prefix rule; a sample by geopandas too

Prints one line per comparison: how many points differ, and CPU seconds of each side. The European grid is compared with
the published codes of ../shared/data (docs: NOTICE) where they are there.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet

import kasuri as ks

DATA = Path(__file__).parents[2] / "shared" / "data"

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
    import mercantile

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
    differ = int((np.array(codes.to_pylist(), object) != np.array(theirs, object)).sum())
    lost = int(wrong.sum() + bad.sum() + sum((a != b).sum() for a, b in zip(back, index, strict=True)))
    line(f"quadkey level {level}", differ, lost, own, other)


def geohashes(level: int) -> None:
    import pygeohash

    lat, lon = world(90.0)
    _, rows, _, cols = ks.Grid("home", scheme="geohash", level=str(level), shape=(1, 1))._cells.bounds(str(level))
    grid = ks.Grid("home", scheme="geohash", level=str(level), shape=(rows, cols))
    start = time.process_time()
    index, wrong, _ = grid.indices(LATLON, [lat, lon])
    codes = grid.column(index)["grid_code"]
    back, bad, _ = grid.from_arrow("code", [codes])
    own = time.process_time() - start
    start = time.process_time()
    theirs = [pygeohash.encode(y, x, precision=level) for y, x in zip(lat.tolist(), lon.tolist(), strict=True)]
    other = time.process_time() - start
    differ = int((np.array(codes.to_pylist(), object) != np.array(theirs, object)).sum())
    lost = int(wrong.sum() + bad.sum() + sum((a != b).sum() for a, b in zip(back, index, strict=True)))
    line(f"geohash of {level} letters", differ, lost, own, other)


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


def european() -> None:
    """Every row of a published file: the code of its cell, from the code itself, its long form, and points inside it
    that pyproj moves to degrees, near all four corners."""
    import pyproj

    if not (DATA / "eu_grid1km_nw512.parquet").exists():
        sys.stdout.write("skipped: eu_grid1km_nw512.parquet is not in ../shared/data\n")
        return
    table = pa.parquet.read_table(DATA / "eu_grid1km_nw512.parquet")
    x, y = (table[name].to_numpy().astype(np.int64) for name in ("x_km", "y_km"))
    published = pa.array([f"1kmN{b}E{a}" for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    long = pa.array([f"CRS3035RES1000mN{b}000E{a}000" for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    grid = ks.Grid.window("home", "eu", "1kmN2800E3600", "1kmN3311E4111")
    start = time.process_time()
    found = [grid.from_arrow("code", [codes]) for codes in (published, long)]
    move = pyproj.Transformer.from_crs(3035, 4326, always_xy=True).transform
    for east, north in ((0.01, 0.01), (999.99, 0.01), (500, 500), (0.01, 999.99), (999.99, 999.99)):
        lon, lat = move(x * 1000 + east, y * 1000 + north)
        found.append(grid.indices(LATLON, [np.asarray(lat), np.asarray(lon)]))
    own = time.process_time() - start
    codes = [grid.column(index)["grid_code"] for index, _, _ in found]
    differ = sum(int((np.array(one.to_pylist()) != np.array(published.to_pylist())).sum()) for one in codes)
    lost = sum(int(wrong.sum()) for _, wrong, _ in found)
    line(f"European grid, {len(codes)} x {len(published)} rows", differ, lost, own, 0.0)


def municipalities(path: str, code: str, prefix: str) -> None:
    """Ten million points in the window of a file of places; a sample, with all their corners and points on their edges,
    against geopandas."""
    import geopandas
    import shapely

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    lengths = tuple(map(int, prefix.split(",")))
    axis = ks.Regions("place", path, code=code, prefix=lengths, crs="EPSG:4326", repair=True, tolerance=0.01)
    line(f"{len(axis.labels)} places read and judged", 0, 0, time.process_time() - start, 0.0)
    west, south, east, north = axis.extent()
    rng = np.random.default_rng(22)
    lat, lon = rng.uniform(south, north, 10 * POINTS), rng.uniform(west, east, 10 * POINTS)
    shapes = shapely.from_wkb(np.array(axis.shapes, dtype=object))
    start = time.process_time()
    axis.indices(LATLON, [lat, lon])
    wide = time.process_time() - start
    corners = np.concatenate([shapely.get_coordinates(one) for one in shapes])
    land = rng.integers(0, len(corners), 10 * POINTS)  # near corners, so that every place is met, and borders often
    lon, lat = (corners[land, at] + rng.normal(0, 0.02, land.size) for at in (0, 1))
    start = time.process_time()
    _, wrong, _ = axis.indices(LATLON, [lat, lon])
    near = time.process_time() - start
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sys.stdout.write(f"10^7 points: {wide:.1f} CPU s over the window, {near:.1f} near borders ({1 - wrong.mean():.0%} "
                     f"inside); the process grew by {more:.0f} MB, 4 x 80 of them the points\n")  # fmt: skip
    some = rng.choice(lat.size, 100_000, replace=False)
    at = rng.integers(0, len(corners) - 1, 100_000)
    part = rng.uniform(0, 1, (at.size, 1))
    edge = corners[at] * part + corners[at + 1] * (1 - part)
    x, y = (np.concatenate([held[some], corners[:, axis_], edge[:, axis_]]) for axis_, held in ((0, lon), (1, lat)))
    (own,), outside, _ = axis.indices(LATLON, [y, x])
    start = time.process_time()
    points = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(x, y), crs=4326)
    held = geopandas.GeoDataFrame({"at": range(len(shapes))}, geometry=shapes, crs=4326)
    joined = points.sjoin(held, predicate="intersects")
    other = time.process_time() - start
    first = joined.groupby(level=0)["at"].min()
    wanted = np.full(x.size, -1)
    wanted[first.index] = first
    several = int((joined.groupby(level=0).size() > 1).sum())
    differ = int((np.where(outside, -1, own) != wanted).sum())
    line(f"sample of {x.size} points, {several} of them in several places by geopandas", differ, 0, 0.0, other)


def line(what: str, differ: int, lost: int, own: float, other: float) -> None:
    sys.stdout.write(f"{what}: {differ} differ, {lost} lost on the way back; CPU {own:.1f} s, library {other:.1f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        municipalities(*sys.argv[1:])
        sys.exit()
    affine()
    european()
    for level in (9, 18):
        quadkeys(level)
    for resolution in (2, 5):
        hexagons(resolution)
    for letters in (5, 9):
        geohashes(letters)
