"""Cells on the map: the headers of their outlines, reference systems in words, and GeoJSON."""

from __future__ import annotations

import struct
from typing import Any

from kasuri import meshcode
from kasuri.errors import DomainError
from kasuri.schema import Axis, systems

_GRS80 = ("GRS 1980", 6378137.0, 298.257222101)
_BESSEL = ("Bessel 1841", 6377397.155, 299.1528128)
_FRAMES = {
    "JGD2011": ("JGD2011", "Japanese Geodetic Datum 2011", _GRS80),
    "JGD2000": ("JGD2000", "Japanese Geodetic Datum 2000", _GRS80),
    "Tokyo": ("Tokyo", "Tokyo", _BESSEL),
}


def gpkg_blobs(axis: Axis, polygons: Any) -> Any:
    """WKB polygons with the header of a GeoPackage (no envelope, little-endian)."""
    header = struct.pack("<2sBBi", b"GP", 0, 1, axis.epsg)
    return [header + polygon for polygon in polygons.to_pylist()]


def _known(crs: str) -> Any:
    """A system that is not of Japanese grids, as pyproj describes it."""
    return systems.system(crs)


def wkt(crs: str) -> str:
    """The reference system as well-known text."""
    if crs not in _FRAMES:
        return str(_known(crs).to_wkt("WKT1_GDAL"))
    name, frame, (body, axis, flat) = _FRAMES[crs]
    return (
        f'GEOGCS["{name}",DATUM["{frame.replace(" ", "_")}",SPHEROID["{body}",{axis},{flat}]],PRIMEM["Greenwich",0],'
        f'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","{meshcode.DATUMS[crs]}"]]'
    )


def projjson(crs: str) -> dict[str, Any]:
    """The reference system as PROJJSON, for GeoParquet."""
    if crs not in _FRAMES:
        return dict(_known(crs).to_json_dict())
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


def geojson(table: Any, axis: Axis) -> bytes:
    """A table with outlines as GeoJSON (RFC 7946): degrees of WGS 84, longitude first, rings counter-clockwise. Corners
    are moved to WGS 84 and joined by straight lines. One without outlines has features without a place."""
    import json

    import pyarrow as pa

    def plain(column: Any) -> list[Any]:
        found = column.to_pylist()
        return [None if value != value else value for value in found] if pa.types.is_floating(column.type) else found

    names = [name for name in table.column_names if name != "geom"]
    rows = zip(*(plain(table[name]) for name in names), strict=True)
    shapes = ["null"] * table.num_rows if "geom" not in table.column_names else _written(table["geom"], axis)
    features = (
        f'{{"type": "Feature", "properties": {json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)}, '
        f'"geometry": {shape}}}'
        for row, shape in zip(rows, shapes, strict=True)
    )
    return ('{"type": "FeatureCollection", "features": [\n' + ",\n".join(features) + "\n]}\n").encode()


def _written(outlines: Any, axis: Axis) -> list[str]:
    try:
        import shapely
    except ImportError:
        raise DomainError(
            "GeoJSON needs the library shapely, which is not installed; pip install 'kasuri[geo]'"
        ) from None
    move = systems.mover(f"EPSG:{axis.epsg}", systems.DEGREES)

    def degrees(xy: Any) -> Any:
        import numpy as np

        lat, lon = move(xy[:, 1], xy[:, 0])
        return np.column_stack([lon, lat])

    shapes = shapely.from_wkb(outlines.to_pylist())
    return list(shapely.to_geojson(shapely.transform(shapes, degrees)))
