"""SQLite and GeoPackage, written with the standard library: one transaction, a foreign file never touched."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError
from kasuri.published.protected import Protected
from kasuri.schema import Axis, Domain
from kasuri.store import outline
from kasuri.store.columns import OTHER_COLUMNS, all_tables, domains, other_columns, shapes, the_place

_GPKG_ID = 0x47504B47  # "GPKG"
_GPKG_VERSION = 10300

_GPKG_TABLES = """
CREATE TABLE IF NOT EXISTS gpkg_spatial_ref_sys (
    srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
    organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE IF NOT EXISTS gpkg_contents (
    table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE, description TEXT DEFAULT '',
    last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
    min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
    CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE IF NOT EXISTS gpkg_geometry_columns (
    table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL,
    z TINYINT NOT NULL, m TINYINT NOT NULL, CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name),
    CONSTRAINT uk_gc_table_name UNIQUE (table_name),
    CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
    CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id));
"""


def write(release: Protected, path: Path, levels: Sequence[str], *, map_format: bool) -> None:
    """Add the release to an SQLite file or (map_format) a GeoPackage; made where there is none."""
    fresh = not path.exists()
    base = sqlite3.connect(path, isolation_level=None)
    try:
        base.execute("PRAGMA synchronous = FULL")
        base.execute("PRAGMA foreign_keys = ON")
        base.execute("BEGIN IMMEDIATE")
        if map_format:
            if not fresh and base.execute("PRAGMA application_id").fetchone()[0] != _GPKG_ID:
                raise DomainError(f"{path}: not a GeoPackage; use a new file")
            the_place(release.domain)  # or says why there is none
            _register_systems(base)
        own = domains(release.domain, levels)
        for name, table in all_tables(release, levels, geometry=map_format).items():
            _add(base, path, name, table, own[name], map_format)
        if map_format:
            _one_place(base, path, the_place(release.domain))
        base.execute("COMMIT")
    except sqlite3.IntegrityError:
        raise DomainError(f"{path}: this release is there already; a release is never written over another") from None
    except sqlite3.Error as error:
        raise OSError(f"SQLite could not write the release ({type(error).__name__})") from None
    finally:
        base.close()  # rolls back what was not committed
        if fresh and path.exists() and path.stat().st_size == 0:
            path.unlink()


def faults(path: Path, domain: Domain, levels: Sequence[str], *, map_format: bool) -> list[str]:
    """What `write` of any release over `domain` would refuse of the file that is there."""
    if not path.exists():
        return []
    try:
        base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            if map_format and base.execute("PRAGMA application_id").fetchone()[0] != _GPKG_ID:
                return [f"{path}: not a GeoPackage; use a new file"]
            own = domains(domain, levels)
            found = [
                OTHER_COLUMNS.format(path, name)
                for name, table in shapes(domain, levels, geometry=map_format).items()
                if other_columns(_there(base, name), _wanted(table, own[name]), value=False)
            ]
            if map_format and _there(base, "release_meta") and not found:
                _one_place(base, path, the_place(domain))
            return found
        finally:
            base.close()
    except DomainError as error:
        return list(error.faults)
    except sqlite3.Error as error:
        return [f"{path}: not a file of SQLite ({type(error).__name__}); use a new file"]


def _there(base: Any, name: str) -> list[tuple[str, str]]:
    return [row[1:3] for row in base.execute(f'PRAGMA table_info("{name}")') if row[1] != "fid"]


def _wanted(table: Any, domain: Domain) -> list[tuple[str, str]]:
    return [(field.name, _kind(field, domain).split()[0]) for field in table.schema]


def _add(base: Any, path: Path, name: str, table: Any, domain: Domain, map_format: bool) -> None:
    key = "release_id" if name == "release_meta" else "release_id, cell"
    shape = "geom" in table.column_names
    columns = [f'"{field.name}" {_kind(field, domain)}' for field in table.schema]
    if map_format and shape:
        columns = ["fid INTEGER PRIMARY KEY AUTOINCREMENT", *columns, f"UNIQUE ({key})"]
    else:
        columns.append(f"PRIMARY KEY ({key})")
    there = _there(base, name)
    if not there:
        base.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
    elif other_columns(there, _wanted(table, domain)):
        raise DomainError(OTHER_COLUMNS.format(path, name))
    fields = ", ".join(f'"{column}"' for column in table.column_names)
    marks = ", ".join("?" * table.num_columns)
    axis = the_place(domain) if shape else None
    base.executemany(f'INSERT INTO "{name}" ({fields}) VALUES ({marks})', _rows(table, axis))
    if map_format:
        _register(base, name, axis)


def _one_place(base: Any, path: Path, axis: Axis) -> None:
    """A layer of a map has one reference system, level and extent: refuse a release over another mesh."""
    for (text,) in base.execute("SELECT domain FROM release_meta"):
        if the_place(Domain.from_json(json.loads(text))) != axis:
            raise DomainError(f"{path}: holds a release of another window, level or reference system; use a new file")


def _rows(table: Any, axis: Axis | None) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(1 << 16):
        columns = [
            outline.gpkg_blobs(axis, batch.column(i)) if name == "geom" and axis else batch.column(i).to_pylist()
            for i, name in enumerate(table.column_names)
        ]
        yield from zip(*columns, strict=True)


def _kind(field: Any, domain: Domain) -> str:
    import pyarrow as pa

    if field.name == "geom":
        return the_place(domain).outline_type.upper()
    if pa.types.is_integer(field.type):
        return "INTEGER" + (" NOT NULL" if field.name in ("cell", "value") else "")
    if pa.types.is_floating(field.type):
        return "REAL"
    return "TEXT NOT NULL"


_SYSTEM = "INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, NULL)"


def _register_systems(base: Any) -> None:
    base.execute(f"PRAGMA application_id = {_GPKG_ID}")
    base.execute(f"PRAGMA user_version = {_GPKG_VERSION}")
    for statement in _GPKG_TABLES.split(";\n"):
        base.execute(statement)
    wgs84 = (
        'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
        'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
    )
    for row in (
        ("Undefined Cartesian", -1, "NONE", -1, "undefined"),
        ("Undefined geographic", 0, "NONE", 0, "undefined"),
        ("WGS 84", 4326, "EPSG", 4326, wgs84),
    ):
        base.execute(_SYSTEM, row)


def _register(base: Any, name: str, axis: Axis | None) -> None:
    """The table in the GeoPackage's contents; its extent is that of the public window, never of the cells. The format
    wants the time of a change: the day is enough, since the minute would tell how long a release took."""
    kind, place = ("attributes", [None] * 5) if axis is None else ("features", [*axis.extent(), axis.epsg])
    if axis is not None:
        crs = axis.where() or ""
        base.execute(_SYSTEM, (crs, axis.epsg, "EPSG", axis.epsg, outline.wkt(crs)))
    base.execute(
        "INSERT OR IGNORE INTO gpkg_contents (table_name, data_type, identifier, min_x, min_y, max_x, max_y, srs_id, "
        "last_change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%dT00:00:00.000Z', 'now'))",
        [name, kind, name, *place],
    )
    if axis is not None:
        base.execute(
            "INSERT OR IGNORE INTO gpkg_geometry_columns VALUES (?, 'geom', ?, ?, 0, 0)",
            [name, axis.outline_type.upper(), axis.epsg],
        )
