"""Tables and queries of PostgreSQL as streams, in one transaction that only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.ingest.asked import OWN_SQL, Query, Table, one_select, unchanged, usable, where_sql
from kasuri.ingest.axes import LONGEST
from kasuri.ingest.stream import Batches, Doubt, Stream
from kasuri.ingest.workshop import literal, quoted, without_rows

_POSTGRES = (
    "bool", "char", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "name",
    "date", "time", "timestamp", "uuid",
)  # fmt: skip
"""Types of pg_catalog whose text and comparisons concern one value and never fail."""
_FIRST_OWN = 16384
"""The number of the first object that somebody has made after the database was set up."""
_SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    "standard_conforming_strings": "on",
    "DateStyle": "'ISO'",
    "row_security": "off",  # a policy may look at other rows: an error instead
    "statement_timeout": "0",  # one long text takes time
    "client_encoding": "'SQL_ASCII'",  # bytes as they are: a letter that another encoding lacks would end the release
    "enable_indexscan": "off",  # an index that is damaged, or ordered by a function of its own, hides rows of others
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "constraint_exclusion": "off",  # a CHECK may compare with a function's value; parts are skipped by it
}
"""What holds while a table is read, whatever the database or the role has set: operators, the form of dates and the
way to the rows are PostgreSQL's own."""
_HEAP = 2
"""The number of PostgreSQL's own way to store a table."""


def postgres(source: Query | Table, label: str) -> Stream:
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise DomainError("PostgreSQL needs the extra: pip install 'kasuri[postgres]'") from None

    own = one_select(source.sql, label) if isinstance(source, Query) else None

    @contextmanager
    def connect() -> Iterator[Any]:
        try:
            with dbapi.connect(source.database) as base, base.cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # to see what changed meanwhile
                if isinstance(source, Table):
                    for name, value in _SETTINGS.items():
                        cursor.execute(f"SET LOCAL {name} = {value}")
                else:
                    _only_reads(cursor, label)
                yield cursor
        except Error as error:
            raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None

    def look(cursor: Any) -> _Postgres:
        if isinstance(source, Table):
            return _postgres_columns(cursor, source, label)
        cursor.execute(own)
        return _Postgres((), tuple(cursor.fetch_record_batch().schema.names), {}, "")

    with connect() as cursor:
        seen = look(cursor)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        sql = own
        if isinstance(source, Table):
            usable(wanted, seen.unusable, label)
            items = ", ".join(f"{_postgres_text(name)} AS {quoted(name)}" for name in wanted)
            sql = f"SELECT {items} FROM {_postgres_name(source)}{seen.where}"
        with connect() as cursor:
            cursor.execute(sql)
            reader, some = cursor.fetch_record_batch(), False
            for batch in reader:
                some = some or batch.num_rows > 0
                yield batch.select(list(wanted)), None
            if not some:
                yield without_rows(reader.schema).select(list(wanted)), None
            if isinstance(source, Table):  # afterwards: what was read is locked against changes until the end
                unchanged(seen, look(cursor), label)

    return Stream(seen.names, start, label, Doubt() if isinstance(source, Table) else OWN_SQL)


_READER = (
    "may a query; connect as a role that only reads tables (CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO "
    "reader), or name a table and conditions"
)


def _only_reads(cursor: Any, label: str) -> None:
    """Refuse SQL that is not kasuri's as a role which may read or write files of the server, or run programs there:
    one SELECT can (lo_export, pg_read_file), in a transaction that only reads too. So it may with a function that is
    kept from the public and was granted, with one that runs as its owner, or in a language that nothing confines."""
    cursor.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    cursor.execute(
        "SELECT 1 FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER') AND (rolsuper OR rolname IN "
        "('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')) LIMIT 1"
    )
    if cursor.fetchall():
        raise PrivacyError(f"{label}: the role of this address may read or write files of the server, and so {_READER}")
    cursor.execute(
        "SELECT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
        "LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' "
        "LEFT JOIN pg_extension e ON e.oid = d.refobjid WHERE has_function_privilege(session_user, p.oid, 'EXECUTE') "
        f"AND CASE WHEN p.oid < {_FIRST_OWN} THEN NOT has_function_privilege('public', p.oid, 'EXECUTE') "
        "ELSE (p.prosecdef AND e.oid IS NULL) OR e.extname = 'dblink' "
        "OR NOT (l.lanpltrusted OR l.lanname IN ('c', 'internal')) END ORDER BY 1 LIMIT 1"
    )
    for (function,) in cursor.fetchall():
        raise PrivacyError(
            f"{label}: the role of this address may call {function}(), which can do more than read tables, and so "
            f"{_READER}"
        )
    cursor.execute("SET LOCAL search_path TO DEFAULT")


@dataclass(frozen=True)
class _Postgres:
    """A stored table as it was found: it and its parts, its columns, why some cannot be used, its WHERE."""

    parts: tuple[int, ...]
    names: tuple[str, ...]
    unusable: Mapping[str, str]
    where: str


def _postgres_name(table: Table) -> str:
    return ".".join(map(quoted, table.path if len(table.path) == 2 else ("public", *table.path)))


def _postgres_text(name: str) -> str:
    """A column as text, without one that is too long: whatever a row holds, the driver can hand it over."""
    plain = f"CAST({quoted(name)} AS text)"
    return f"CASE WHEN octet_length({plain}) <= {LONGEST} THEN {plain} END"


def _postgres_columns(cursor: Any, table: Table, label: str) -> _Postgres:
    where = literal(_postgres_name(table))

    def ask(sql: str) -> list[Any]:
        cursor.execute(sql)
        return cursor.fetchall()

    if ask("SELECT current_setting('server_encoding')")[0][0] not in ("UTF8", "SQL_ASCII"):
        raise DomainError(
            f"{label}: the text of this database is not in UTF-8, and one record that cannot be written in it would "
            "end the release; copy the table to a database in UTF-8"
        )
    plain = ", ".join(map(literal, _POSTGRES))
    own = ask(
        "WITH plain AS (SELECT oid FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace "
        f"AND typname IN ({plain})) "
        f"SELECT 1 FROM pg_cast WHERE oid >= {_FIRST_OWN} AND castsource IN (SELECT oid FROM plain) "
        "AND casttarget IN (SELECT oid FROM plain) UNION ALL SELECT 1 FROM pg_operator "
        f"WHERE oid >= {_FIRST_OWN} AND oprnamespace = 'pg_catalog'::regnamespace UNION ALL SELECT 1 FROM pg_proc "
        f"WHERE oid >= {_FIRST_OWN} AND pronamespace = 'pg_catalog'::regnamespace UNION ALL "
        "SELECT 1 FROM (SELECT oid, amprocfamily, amproclefttype, amprocrighttype FROM pg_amproc UNION ALL "
        "SELECT oid, amopfamily, amoplefttype, amoprighttype FROM pg_amop) AS o(oid, family, one, other) "
        "JOIN pg_opfamily f ON f.oid = o.family JOIN pg_am a ON a.oid = f.opfmethod "
        f"WHERE o.oid >= {_FIRST_OWN} AND a.amname IN ('btree', 'hash') "
        "AND (o.one IN (SELECT oid FROM plain) OR o.other IN (SELECT oid FROM plain))"  # by these it skips parts
    )
    if own:
        raise PrivacyError(
            f"{label}: this database has casts of its own between plain types, or orders of its own for them, or "
            "operators or functions of its own in pg_catalog, which may look at other rows; drop them, or copy the "
            "table to another database"
        )
    # a table and all its parts are stored ones: no view, no foreign table, nobody's policy
    kinds = ask(
        "WITH RECURSIVE part(oid) AS (SELECT to_regclass(" + where + ")::oid UNION "
        "SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid) "
        "SELECT oid::int8, relkind::text, relrowsecurity, relam::int8 FROM pg_class JOIN part USING (oid) ORDER BY oid"
    )
    if not kinds or any(policy or (kind != "p" and (kind, way) != ("r", _HEAP)) for _, kind, policy, way in kinds):
        raise DomainError(
            f"{label}: {'.'.join(table.path)!r} is not a stored table (views, foreign tables, tables with row security "
            "and those that an extension stores are not); in another schema than public, name it as schema and table"
        )
    parts = tuple(oid for oid, *_ in kinds)
    planned = ask(
        f"WITH part AS (SELECT unnest(ARRAY[{', '.join(map(str, parts))}]::oid[]) AS oid), own AS ("
        "SELECT 'pg_class'::regclass AS class, oid FROM part UNION ALL "
        "SELECT 'pg_class'::regclass, indexrelid FROM pg_index JOIN part ON indrelid = part.oid UNION ALL "
        "SELECT 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s JOIN part ON stxrelid = part.oid) "
        "SELECT 1 FROM own JOIN pg_depend d ON d.classid = own.class AND d.objid = own.oid "
        "LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid "
        "LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid "
        "JOIN pg_roles r ON r.oid = COALESCE(p.proowner, o.oprowner) "
        f"WHERE d.refobjid >= {_FIRST_OWN} AND NOT (r.rolsuper AND EXISTS (SELECT 1 FROM pg_depend e "
        "WHERE e.classid = d.refclassid AND e.objid = d.refobjid AND e.deptype = 'e')) LIMIT 1"
    )
    if planned:  # run while the reading is planned: one that fails for one record would end the release
        raise PrivacyError(
            f"{label}: {'.'.join(table.path)!r} has an index, statistics or parts that are made by a function of this "
            "database, which may look at other rows and is run whenever the table is read; drop them, or copy the "
            "table without them"
        )
    rows = ask(
        "SELECT attname::text, typname::text, nspname::text, attgenerated::text FROM pg_attribute "
        "JOIN pg_type ON pg_type.oid = atttypid JOIN pg_namespace ON pg_namespace.oid = typnamespace "
        f"WHERE attrelid = to_regclass({where}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    unusable = {
        name: f"column {name!r} is not a stored column of a plain type (a number, a text, a date, a local time)"
        for name, kind, space, made in rows
        if space != "pg_catalog" or kind not in _POSTGRES or made == "v"
    }
    conditions = table.conditions({name: quoted(name) for name, *_ in rows if name not in unusable})
    return _Postgres(parts, tuple(name for name, *_ in rows), unusable, where_sql(conditions))
