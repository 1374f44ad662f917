"""Tables and queries of databases as streams (DuckDB and SQLite files, PostgreSQL); whatever is asked, a database is
only read: one SELECT, no other file, no setting to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.ingest import rowwise, scratch
from kasuri.ingest.axes import LONGEST
from kasuri.ingest.stream import BATCH, TEXT, Batches, Doubt, Stream
from kasuri.ingest.workshop import compute, literal, lock, quoted, short_text, without_rows, workshop

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")
Condition = tuple[Any, ...]
"""(column, operator) or (column, operator, value): compared with a constant or, after "in", a list of them."""


@dataclass(frozen=True)
class Query:
    """The rows of one SELECT, `sql`; `database` is a .duckdb or SQLite file, or a postgresql:// address.

    A query of DuckDB that maps each record by itself is taken as it is (`kasuri.ingest.rowwise`); records of any other
    query need `count(..., assume=...)`. `reads` names other CSV or Parquet files for DuckDB: {"older": "older.csv"} is
    `FROM older`. No other file is read.
    """

    database: str
    sql: str
    reads: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Query(...)"  # an address can hold a password


@dataclass(frozen=True)
class Table:
    """Rows of one stored table; kasuri writes the SQL. `name` is a table, or (schema, table); rows stay for which every
    condition in `where` holds, e.g. [("age", ">=", 18), ("sex", "in", ["f", "m"]), ("place", "is not null")]."""

    database: str
    name: str | tuple[str, str]
    where: Sequence[Condition] = ()

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.name, str) and not (len(self.name) == 2 and all(isinstance(n, str) for n in self.name)):
            faults.append("table: a name, or a schema and a name")
        for at, condition in enumerate(self.where, 1):
            column, operator, *values = condition
            if not isinstance(column, str) or operator not in OPERATORS:
                faults.append(f"where, condition {at}: a column and one of {', '.join(OPERATORS)}")
            elif len(values) != (0 if operator.startswith("is") else 1):
                faults.append(f"where, condition {at}: {operator!r} takes {'no' if values else 'one'} value")
            elif operator in ("in", "not in") and not (isinstance(values[0], (list, tuple)) and values[0]):
                faults.append(f"where, condition {at}: {operator!r} takes a list of values")
            else:
                many = values[0] if operator in ("in", "not in") else values
                try:
                    list(map(literal, many))
                except DomainError as error:
                    faults += [f"where, condition {at}: {fault}" for fault in error.faults]
        raise_faults(DomainError, faults)

    def __repr__(self) -> str:
        return "Table(...)"

    @property
    def path(self) -> tuple[str, ...]:
        return (self.name,) if isinstance(self.name, str) else tuple(self.name)

    def conditions(self, known: Mapping[str, str]) -> list[tuple[str, str]]:
        """(column, SQL) of every condition over the declared columns, `known` by name with their SQL."""
        raise_faults(
            DomainError, [f"where: no column {name!r} that can be used" for name, *_ in self.where if name not in known]
        )
        made = []
        for column, operator, *values in self.where:
            many = values[0] if operator in ("in", "not in") else values
            right = ", ".join(map(literal, many))
            right = f"({right})" if operator in ("in", "not in") else right
            made.append((column, f"{known[column]} {operator.upper()} {right}".rstrip()))
        return made


def stream(source: Query | Table, file: str | None, memory: str, away: Sequence[Path]) -> Stream:
    """The stream of a query or a stored table; `memory` and `away` as in `open_stream`."""
    database = source.database
    reads = source.reads if isinstance(source, Query) else {}
    if database.startswith(("postgresql://", "postgres://")):
        kind, label = _postgres, file or "query"
    else:
        path = Path(database)
        if not path.exists():
            raise DomainError(f"{path}: no such database file")
        with path.open("rb") as handle:
            magic = handle.read(16)
        label = file or str(path)
        if magic[8:12] == b"DUCK":
            return _duckdb(source, label, memory, away)
        if not magic.startswith(b"SQLite format 3"):
            raise DomainError(f"{path}: neither a DuckDB nor a SQLite file")
        kind = _sqlite
    if reads:
        raise DomainError(f"{label}: only a query of DuckDB reads other files")
    return kind(source, label)


_OWN_SQL = Doubt("kasuri does not look into the SQL of this database")
_FIRST = re.compile(r"(select|with)\b", re.IGNORECASE)


def _one_select(sql: str, label: str) -> str:
    """`sql` where it is one statement that begins with SELECT or WITH. A semicolon is refused even in a text, and a
    comment before the first word: what ends them differs between databases."""
    text = sql.strip().removesuffix(";")
    if ";" in text or "\0" in text or not _FIRST.match(text):
        raise PrivacyError(
            f"{label}: a query is one SELECT statement without a semicolon or a comment before it; nothing else is run"
        )
    return text


def _unchanged(before: object, now: object, label: str) -> None:
    """Refuse rows of a table that is not what it was when the stream was opened. Every reading looks at the table once
    more, where no one can change it before the rows are read: what was checked is what is read."""
    if before != now:
        raise PrivacyError(f"{label}: the table was changed after it was checked; count it again")


# --- SQLite


def _sqlite(source: Query | Table, label: str) -> Stream:
    import sqlite3

    import pyarrow as pa

    own = _one_select(source.sql, label) if isinstance(source, Query) else None

    @contextmanager
    def connect() -> Iterator[Any]:
        # DuckDB may pull the rows from a thread of its own, one batch after the other
        place = Path(source.database).absolute()
        with place.open("rb") as file:
            logged = 2 in file.read(20)[18:]  # write-ahead logging
        # where nobody writes to it: SQLite would make files beside one in WAL mode only to read it
        still = logged and not place.with_name(f"{place.name}-wal").exists()
        address = f"{place.as_uri()}?mode=ro{'&immutable=1' if still else ''}"
        try:
            with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as base:
                base.execute("BEGIN")  # from the first look on, one state of the database
                yield base
        except sqlite3.Error as error:
            raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None

    def allow(action: int, first: str | None, second: str | None, *_: Any) -> int:
        """The authorizer: nothing but reading; no ATTACH, VACUUM, PRAGMA, write, or loading of an extension."""
        reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
        call = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in ("load_extension", "fts3_tokenizer")
        return sqlite3.SQLITE_OK if action in reading or call else sqlite3.SQLITE_DENY

    def run(base: Any, sql: str) -> Any:
        base.set_authorizer(allow)
        try:
            return base.execute(sql)
        except sqlite3.DatabaseError as error:
            if str(error) == "not authorized":
                raise PrivacyError(f"{label}: a query may only read the tables of its database") from None
            raise

    def look(base: Any) -> tuple[tuple[str, ...], Mapping[str, str], str]:
        if isinstance(source, Table):
            return _sqlite_columns(base, source, label)
        return tuple(column[0] for column in run(base, own or "").description), {}, ""

    with connect() as base:
        names, unusable, where = seen = look(base)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        sql = own
        keep = [names.index(name) for name in wanted]
        if isinstance(source, Table):
            _usable(wanted, unusable, label)
            keep = list(range(len(wanted)))
            sql = f"SELECT {', '.join(map(quoted, wanted))} FROM main.{quoted(source.path[-1])}{where}"
        with connect() as base:
            _unchanged(seen, look(base), label)
            base.text_factory = bytes  # text that is not UTF-8 must not stop the reading
            cursor = run(base, sql or "")
            # SQLite types each value by itself: as text, one value never changes how the others are read
            some = False
            while rows := [[_sqlite_text(row[i]) for i in keep] for row in islice(cursor, 1 << 16)]:
                arrays = [pa.array(column, pa.binary()).view(pa.string()) for column in zip(*rows, strict=True)]
                some = True
                yield pa.RecordBatch.from_arrays(arrays, list(wanted)), None
            if not some:
                yield without_rows(pa.schema([(name, pa.string()) for name in wanted])), None

    return Stream(names, start, label, Doubt() if isinstance(source, Table) else _OWN_SQL)


def _usable(wanted: Sequence[str], unusable: Mapping[str, str], label: str) -> None:
    raise_faults(DomainError, [f"{label}: {unusable[name]}" for name in wanted if name in unusable])


def _where(conditions: Sequence[tuple[str, str]]) -> str:
    return f" WHERE {' AND '.join(sql for _, sql in conditions)}" if conditions else ""


def _sqlite_columns(base: Any, table: Table, label: str) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The columns of a stored table, why some cannot be used, and the WHERE of its conditions."""
    *schema, name = table.path
    # as SQLite itself read the schema; what it keeps beside a virtual table or for itself mixes records
    found = base.execute("SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ?", [name]).fetchall()
    if schema not in ([], ["main"]) or found != [("table",)] or name.lower().startswith("sqlite_"):
        raise DomainError(
            f"{label}: {'.'.join(table.path)!r} is not a stored table (views, virtual tables and what SQLite keeps "
            "beside them are not)"
        )
    columns = base.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", [name]).fetchall()
    unusable = {name: f"column {name!r} is generated when it is read, not stored" for name, hidden in columns if hidden}
    conditions = table.conditions({name: quoted(name) for name, hidden in columns if not hidden})
    return tuple(name for name, _ in columns), unusable, _where(conditions)


def _sqlite_text(value: Any) -> bytes | None:
    """A value's text (longer than LONGEST: none); whole numbers in decimal also where SQLite holds them as floats."""
    if value is None or isinstance(value, bytes):
        return None if value is None or len(value) > LONGEST else value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53
    return str(int(value) if whole else value).encode()


# --- DuckDB


def _duckdb(source: Query | Table, label: str, memory: str, away: Sequence[Path]) -> Stream:
    import duckdb

    reads = _reads(source.reads, label) if isinstance(source, Query) else {}

    @contextmanager
    def connect() -> Iterator[Any]:
        with scratch.folder(away) as folder:  # what the query spills is true records: never beside the database
            base = duckdb.connect()  # an instance of its own: to lock one the caller has open would lock the caller out
            try:
                at = str(Path(source.database).absolute())
                name = Path(at).stem if Path(at).stem.lower() not in ("memory", "system", "temp") else "base"
                base.execute(f"ATTACH {literal(at)} AS {quoted(name)} (READ_ONLY, TYPE duckdb)")
                base.execute(f"USE {quoted(name)}")
                base.execute("SET memory_limit = ?", [memory])
                base.execute("SET temp_directory = ?", [str(folder / "spill")])
                for name, (reader, path) in reads.items():
                    rows = f"SELECT * FROM system.main.{reader}({literal(path)})"
                    base.execute(f"CREATE TEMP VIEW {quoted(name)} AS {rows}")
                lock(base, [path for _, path in reads.values()])
                base.execute("BEGIN TRANSACTION")  # from the first look on, one state of the database
                yield base
            except duckdb.PermissionException:
                raise PrivacyError(
                    f"{label}: the query reads or writes a file beside its database; import it into the database, or "
                    "name it as a file the query reads (reads)"
                ) from None
            except duckdb.Error as error:
                raise FormatError(f"{label}: the query cannot be run ({type(error).__name__})") from None
            finally:
                base.close()

    def look(base: Any) -> tuple[tuple[str, ...], rowwise.Rows | None, Doubt]:
        with closing(workshop()) as own:
            return _seen(base, source, tree, own)

    with closing(workshop()) as own:
        tree = rowwise.statement(own, source.sql, label) if isinstance(source, Query) else None
    with connect() as base:
        names, rows, doubt = seen = look(base)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        with connect() as base:
            _unchanged(seen, look(base), label)
            if isinstance(source, Table):
                _usable(wanted, doubt.columns, label)
            for batch in _duckdb_rows(rows, doubt, wanted, base.sql, lambda: base.sql(source.sql)):  # type: ignore[union-attr]
                yield batch, None

    return Stream(names, start, label, Doubt() if isinstance(source, Table) else doubt)


def relation_stream(relation: Any, label: str) -> Stream:
    """The stream of a DuckDB relation. Its connection is the caller's: no setting of it is changed."""
    names = tuple(relation.columns)

    def ask(sql: str) -> Any:
        return relation.query("kasuri_relation", sql)

    def look() -> tuple[rowwise.Rows | None, Doubt]:
        with closing(workshop()) as own:
            try:
                tree = rowwise.statement(own, relation.sql_query(), label)
                found = rowwise.read(tree, names, own, lambda sql: ask(sql).fetchall())
            except rowwise.NotRowwiseError as error:
                return None, Doubt(str(error))
            except PrivacyError:
                return None, Doubt("its SQL is not one SELECT")
            return found, found.doubt

    rows, doubt = seen = look()

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        for batch in _duckdb_rows(rows, doubt, wanted, ask, lambda: relation):
            yield batch, None
        _unchanged(seen, look(), label)  # afterwards: another statement of the connection would end the reading

    return Stream(names, start, label, doubt)


def _duckdb_rows(
    rows: rowwise.Rows | None,
    doubt: Doubt,
    wanted: Sequence[str],
    ask: Callable[[str], Any],
    itself: Callable[[], Any],
) -> Iterator[Any]:
    """Rows computed by kasuri from stored columns where it can see that they are row by row, else `itself`."""
    if rows is None or set(wanted) & set(doubt.columns):
        reader, some = duckdb_batches(itself(), wanted), False
        for batch in reader:
            some = True
            yield batch
        if not some:
            yield without_rows(reader.schema)
    else:
        used = rows.uses(wanted)
        plain = ask(f"SELECT {', '.join(map(quoted, used)) or '*'} FROM {rows.table}")  # nothing else is computed
        yield from compute(rows.select(wanted), duckdb_batches(plain, rows.uses(wanted)))


def _seen(
    base: Any, source: Query | Table, tree: rowwise.Node | None, own: Any
) -> tuple[tuple[str, ...], rowwise.Rows | None, Doubt]:
    """Names of the columns, the rows as kasuri computes them if they are row by row, and what is doubtful about it."""
    ask: Callable[[str], Any] = lambda sql: base.execute(sql).fetchall()  # noqa: E731
    if isinstance(source, Query):
        names = tuple(base.sql(source.sql).columns)
        try:
            rows = rowwise.read(tree or {}, names, own, ask)
        except rowwise.NotRowwiseError as error:
            return names, None, Doubt(str(error))
        return names, rows, rows.doubt
    try:
        table, columns = rowwise.stored(source.path if len(source.path) > 1 else ("main", *source.path), ask)
    except rowwise.NotRowwiseError as error:
        raise DomainError(f"table: {error}") from None
    found = dict(columns)
    usable = {name: value.sql for name, value in found.items() if value.why is None}
    where = [rowwise.Value(sql, frozenset([column])) for column, sql in source.conditions(usable)]
    rows = rowwise.Rows(table, found, tuple(where))
    return tuple(found), rows, rows.doubt


def _reads(files: Mapping[str, str], label: str) -> dict[str, tuple[str, str]]:
    """Name -> (function that reads it, absolute path) of the files a query may read."""
    kinds = {".csv": "read_csv", ".parquet": "read_parquet"}
    faults = [
        f"{label}: {path}: a query reads .csv and .parquet files that exist"
        for path in files.values()
        if Path(path).suffix.lower() not in kinds or not Path(path).is_file() or set(path) & set("*?[")
    ]
    raise_faults(DomainError, faults)
    return {name: (kinds[Path(path).suffix.lower()], str(Path(path).absolute())) for name, path in files.items()}


def duckdb_batches(relation: Any, wanted: Sequence[str]) -> Any:
    """Arrow batches of a DuckDB relation, whose own text can be as small as a Parquet file's: `short` in SQL."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    items = ", ".join(short_text(name, kinds[name]) for name in wanted)
    return relation.project(items).to_arrow_reader(min(BATCH, TEXT // LONGEST))


# --- PostgreSQL


def _postgres(source: Query | Table, label: str) -> Stream:
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise DomainError("PostgreSQL needs the extra: pip install 'kasuri[postgres]'") from None

    own = _one_select(source.sql, label) if isinstance(source, Query) else None

    @contextmanager
    def connect() -> Iterator[Any]:
        try:
            with dbapi.connect(source.database) as base, base.cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # to see what changed meanwhile
                if isinstance(source, Table):  # operators and the form of dates are PostgreSQL's own
                    cursor.execute("SET LOCAL search_path = pg_catalog, pg_temp")
                    cursor.execute("SET LOCAL standard_conforming_strings = on")
                    cursor.execute("SET LOCAL DateStyle = 'ISO'")
                    cursor.execute("SET LOCAL row_security = off")  # a policy may look at other rows: an error instead
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
            _usable(wanted, seen.unusable, label)
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
                _unchanged(seen, look(cursor), label)

    return Stream(seen.names, start, label, Doubt() if isinstance(source, Table) else _OWN_SQL)


@dataclass(frozen=True)
class _Postgres:
    """A stored table as it was found: it and its parts, its columns, why some cannot be used, its WHERE."""

    parts: tuple[int, ...]
    names: tuple[str, ...]
    unusable: Mapping[str, str]
    where: str


_POSTGRES = (
    "bool", "char", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "name",
    "date", "time", "timestamp", "uuid",
)  # fmt: skip
"""Types of pg_catalog whose text and comparisons concern one value and never fail."""


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
    # a table and all its parts are stored ones: no view, no foreign table, nobody's policy
    kinds = ask(
        "WITH RECURSIVE part(oid) AS (SELECT to_regclass(" + where + ")::oid UNION "
        "SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid) "
        "SELECT oid::int8, relkind::text, relrowsecurity FROM pg_class JOIN part USING (oid) ORDER BY oid"
    )
    if not kinds or any(kind not in ("r", "p") or policy for _, kind, policy in kinds):
        raise DomainError(
            f"{label}: {'.'.join(table.path)!r} is not a stored table (views, foreign tables and tables with row "
            "security are not); in another schema than public, name it as schema and table"
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
    parts = tuple(oid for oid, *_ in kinds)
    return _Postgres(parts, tuple(name for name, *_ in rows), unusable, _where(conditions))
