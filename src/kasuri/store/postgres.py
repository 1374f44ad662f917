"""PostgreSQL through ADBC's COPY, with outlines where PostGIS is present; one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kasuri.errors import DomainError, FormatError
from kasuri.published.protected import Protected
from kasuri.schema import Domain
from kasuri.store.columns import all_tables, domains, has_outline, other_columns, shapes, the_place

_LOCK = 0x6B6173757269  # "kasuri": two writers of one database take turns


def write(release: Protected, address: str, levels: Sequence[str]) -> None:
    """Add the release to the database at `address`, in the first schema of its search path."""
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise DomainError("PostgreSQL needs the extra: pip install 'kasuri[postgres]'") from None

    try:
        with dbapi.connect(address) as base, base.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            cursor.fetchall()
            outlines = _outlines(cursor, release.domain)
            own = domains(release.domain, levels)
            for name, table in all_tables(release, levels, geometry=outlines).items():
                _add(cursor, name, table, own[name], release.provenance["release_id"])
            base.commit()
    except Error as error:
        # the server's message can quote a row; it is a released one, but the address holds a password
        raise FormatError(
            f"PostgreSQL did not take the release ({type(error).__name__}, state {error.sqlstate or 'none'}); "
            "nothing was kept"
        ) from None


def faults(address: str, domain: Domain, levels: Sequence[str]) -> list[str]:
    """What `write` of any release over `domain` would refuse of the database at `address`."""
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError:
        return ["PostgreSQL needs the extra: pip install 'kasuri[postgres]'"]

    try:
        with dbapi.connect(address) as base, base.cursor() as cursor:
            tables, own = shapes(domain, levels, geometry=_outlines(cursor, domain)), domains(domain, levels)
            return [
                _OTHER.format(name)
                for name, table in tables.items()
                if other_columns(*_sides(cursor, name, table, own[name]), value=False)
            ]
    except Error as error:  # its message can hold the password of the address
        return [f"PostgreSQL cannot be reached ({type(error).__name__}, state {error.sqlstate or 'none'})"]


_OTHER = "the table {} in this database has other columns than this release; use another schema"


def _outlines(cursor: Any, domain: Domain) -> bool:
    cursor.execute("SELECT count(*) FROM pg_extension WHERE extname = 'postgis'")
    return has_outline(domain) and cursor.fetchone() != (0,)


def _sides(cursor: Any, name: str, table: Any, domain: Domain) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Columns (name, type) of the table in the database, and of ours; the server itself compares outlines."""
    cursor.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass($1) "
        "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f'"{name}"',),
    )
    there = [(column, "" if column == "geom" else kind) for column, kind in cursor.fetchall()]
    own = [(f.name, "" if f.name == "geom" else _kind(f, domain).removesuffix(" NOT NULL")) for f in table.schema]
    return there, own


def _add(cursor: Any, name: str, table: Any, domain: Domain, release_id: str) -> None:
    key = "release_id" if name == "release_meta" else "release_id, cell"
    columns = [f'"{field.name}" {_kind(field, domain)}' for field in table.schema]
    cursor.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({", ".join(columns)}, PRIMARY KEY ({key}))')
    if other_columns(*_sides(cursor, name, table, domain)):
        raise DomainError(_OTHER.format(name))
    cursor.execute(f'SELECT count(*) FROM "{name}" WHERE release_id = $1', (release_id,))
    if cursor.fetchone() != (0,):
        raise DomainError("this release is in the database already; a release is never written over another")
    cursor.adbc_ingest(f"incoming_{name}", table, mode="create", temporary=True)
    names = ", ".join(f'"{column}"' for column in table.column_names)
    number = the_place(domain).epsg if "geom" in table.column_names else 0
    picked = names.replace('"geom"', f'ST_GeomFromWKB("geom", {number})')
    cursor.execute(f'INSERT INTO "{name}" ({names}) SELECT {picked} FROM pg_temp."incoming_{name}"')
    cursor.execute(f'DROP TABLE pg_temp."incoming_{name}"')


def _kind(field: Any, domain: Domain) -> str:
    import pyarrow as pa

    if field.name == "geom":
        place = the_place(domain)
        return f"geometry({place.outline_type}, {place.epsg})"
    if pa.types.is_int32(field.type):
        return "integer NOT NULL"
    if pa.types.is_integer(field.type):
        return "bigint NOT NULL"
    if pa.types.is_floating(field.type):
        return "double precision"
    return "text NOT NULL"
