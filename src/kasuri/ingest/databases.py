"""Tables and queries of databases as streams (DuckDB and SQLite files, PostgreSQL); whatever is asked, a database is
only read: one SELECT, no other file, no setting to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.ingest import rowwise, scratch
from kasuri.ingest.asked import OWN_SQL, Query, Table, one_select, unchanged, usable, where_sql
from kasuri.ingest.axes import LONGEST
from kasuri.ingest.postgres import postgres
from kasuri.ingest.stream import BATCH, TEXT, Batches, Doubt, Stream
from kasuri.ingest.workshop import compute, literal, lock, quoted, short_text, without_rows, workshop


def stream(source: Query | Table, file: str | None, memory: str, away: Sequence[Path]) -> Stream:
    """The stream of a query or a stored table; `memory` and `away` as in `open_stream`."""
    database = source.database
    reads = source.reads if isinstance(source, Query) else {}
    if database.startswith(("postgresql://", "postgres://")):
        kind, label = postgres, file or "query"
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


def _sqlite(source: Query | Table, label: str) -> Stream:
    import sqlite3

    import pyarrow as pa

    own = one_select(source.sql, label) if isinstance(source, Query) else None

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
            usable(wanted, unusable, label)
            keep = list(range(len(wanted)))
            # from the table itself: an index that is damaged hides rows
            sql = f"SELECT {', '.join(map(quoted, wanted))} FROM main.{quoted(source.path[-1])} NOT INDEXED{where}"
        with connect() as base:
            unchanged(seen, look(base), label)
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

    return Stream(names, start, label, Doubt() if isinstance(source, Table) else OWN_SQL)


def _sqlite_columns(base: Any, table: Table, label: str) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The columns of a stored table, why some cannot be used, and the WHERE of its conditions."""
    *schema, name = table.path
    # as SQLite itself read the schema; what it keeps beside a virtual table or for itself mixes records. Statements,
    # not SELECTs from pragma_table_list: a table of the database may have that name
    tables = base.execute("PRAGMA main.table_list").fetchall()
    found = [kind for place, own, kind, *_ in tables if (place, own) == ("main", name)]
    if schema not in ([], ["main"]) or found != ["table"] or name.lower().startswith("sqlite_"):
        raise DomainError(
            f"{label}: {'.'.join(table.path)!r} is not a stored table (views, virtual tables and what SQLite keeps "
            "beside them are not)"
        )
    rows = base.execute(f"PRAGMA main.table_xinfo({quoted(name)})").fetchall()
    columns = [(column, hidden) for _, column, *_, hidden in rows]
    unusable = {name: f"column {name!r} is generated when it is read, not stored" for name, hidden in columns if hidden}
    conditions = table.conditions({name: quoted(name) for name, hidden in columns if not hidden})
    return tuple(name for name, _ in columns), unusable, where_sql(conditions)


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
            unchanged(seen, look(base), label)
            if isinstance(source, Table):
                usable(wanted, doubt.columns, label)
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
        unchanged(seen, look(), label)  # afterwards: another statement of the connection would end the reading

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
