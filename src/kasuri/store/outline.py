"""Cells on the map: their outlines as WKB polygons, and the reference systems of Japanese grids."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.schema import Plane

_GRS80 = ("GRS 1980", 6378137.0, 298.257222101)
_BESSEL = ("Bessel 1841", 6377397.155, 299.1528128)
_FRAMES = {
    "JGD2011": ("JGD2011", "Japanese Geodetic Datum 2011", _GRS80),
    "JGD2000": ("JGD2000", "Japanese Geodetic Datum 2000", _GRS80),
    "Tokyo": ("Tokyo", "Tokyo", _BESSEL),
}

_WKB = np.dtype([("order", "u1"), ("kind", "<u4"), ("rings", "<u4"), ("points", "<u4"), ("xy", "<f8", (5, 2))])


def _polygons(mesh: Plane, row: NDArray[np.int64], col: NDArray[np.int64]) -> NDArray[Any]:
    west, south, east, north = mesh.edges(row, col)
    out = np.zeros(row.size, dtype=_WKB)
    out["order"], out["kind"], out["rings"], out["points"] = 1, 3, 1, 5
    for i, (x, y) in enumerate(((west, south), (east, south), (east, north), (west, north), (west, south))):
        out["xy"][:, i, 0], out["xy"][:, i, 1] = x, y
    return out


def _binary(rows: NDArray[Any]) -> Any:
    import pyarrow as pa

    size = rows.dtype.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows.size, [None, pa.py_buffer(rows.tobytes())]).cast(
        pa.binary()
    )


def wkb(mesh: Plane, row: NDArray[np.int64], col: NDArray[np.int64]) -> Any:
    """The outline of each cell as a WKB polygon, counter-clockwise, in an Arrow binary array."""
    return _binary(_polygons(mesh, row, col))


def gpkg_blobs(mesh: Plane, polygons: Any) -> Any:
    """WKB polygons with the header of a GeoPackage (no envelope, little-endian)."""
    header = struct.pack("<2sBBi", b"GP", 0, 1, meshcode.DATUMS[mesh.crs])
    return [header + polygon for polygon in polygons.to_pylist()]


def wkt(crs: str) -> str:
    """The reference system as well-known text."""
    name, frame, (body, axis, flat) = _FRAMES[crs]
    return (
        f'GEOGCS["{name}",DATUM["{frame.replace(" ", "_")}",SPHEROID["{body}",{axis},{flat}]],PRIMEM["Greenwich",0],'
        f'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","{meshcode.DATUMS[crs]}"]]'
    )


def projjson(crs: str) -> dict[str, Any]:
    """The reference system as PROJJSON, for GeoParquet."""
    name, frame, (body, axis, flat) = _FRAMES[crs]
    return {
        "type": "GeographicCRS",
        "name": name,
        "datum": {
            "type": "GeodeticReferenceFrame",
            "name": frame,
            "ellipsoid": {"name": body, "semi_major_axis": axis, "inverse_flattening": flat},
        },
        "coordinate_system": {
            "subtype": "ellipsoidal",
            "axis": [
                {"name": "Geodetic latitude", "abbreviation": "Lat", "direction": "north", "unit": "degree"},
                {"name": "Geodetic longitude", "abbreviation": "Lon", "direction": "east", "unit": "degree"},
            ],
        },
        "id": {"authority": "EPSG", "code": meshcode.DATUMS[crs]},
    }
