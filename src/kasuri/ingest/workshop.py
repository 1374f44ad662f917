"""The DuckDBs that kasuri opens itself: one that computes expressions of single rows, and what locks any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kasuri.errors import DomainError
from kasuri.ingest.axes import LONGEST


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(value: object) -> str:
    """A constant in SQL, as DuckDB, SQLite and PostgreSQL (with standard strings) all read it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, float) and abs(value) < float("inf"):
        return repr(value)
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise DomainError("a condition compares with a number, a text, true or false")


STORED = "stored_rows"
"""What stored columns are called in the workshop."""


def workshop() -> Any:
    """A DuckDB in memory that computes expressions and nothing else: no file, no extension, no setting to change.

    Its optimizer is off: it takes common parts of expressions, and lists after IN, out of their TRY, and a value that
    cannot be cast would then stop the whole query."""
    import duckdb

    own = duckdb.connect()
    every = [name for (name,) in own.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
    own.execute(f"SET disabled_optimizers = '{','.join(every)}'")
    own.execute("SET default_collation = ''")
    lock(own)
    return own


def lock(base: Any, files: Sequence[str] = ()) -> None:
    """From here on the connection reads and writes no file but its own database, its spill and (to read) `files`,
    loads no extension, and keeps its settings."""
    base.execute("SET autoinstall_known_extensions = false")
    base.execute("SET autoload_known_extensions = false")
    base.execute("SET allow_community_extensions = false")
    if files:
        base.execute(f"SET allowed_paths = [{', '.join(map(literal, files))}]")
    base.execute("SET python_enable_replacements = false")  # no variable of this program is a table
    base.execute("SET enable_external_access = false")
    base.execute("SET lock_configuration = true")


def short_text(name: str, kind: str) -> str:
    """A column in SQL without texts longer than LONGEST; the function by its full name, which no macro can take."""
    plain = quoted(name)
    if kind != "VARCHAR":
        return plain
    return f"CASE WHEN system.main.strlen({plain}) <= {LONGEST} THEN {plain} END AS {plain}"


def compute(sql: str, batches: Any) -> Iterator[Any]:
    """What `sql` makes of the table STORED, which is each batch of an Arrow reader in turn; one batch without rows
    where nothing is left.

    TRY does not catch every kind of error (a date part that a type does not have): a batch that fails is halved until
    the rows that fail are alone, and these are left out, as they are where TRY does its work."""
    import duckdb

    own = [workshop()]

    def made(batch: Any) -> list[Any]:
        try:
            own[0].register(STORED, batch)
            return own[0].sql(sql).to_arrow_table().to_batches()
        except duckdb.Error:
            own[0].close()
            own[0] = workshop()  # some errors leave a database that answers no more
            half = batch.num_rows // 2
            return [*made(batch.slice(0, half)), *made(batch.slice(half))] if half else []

    try:
        own[0].register(STORED, batches.schema.empty_table())
        none = own[0].sql(sql).to_arrow_table()  # a query that no type fits is refused whatever the rows are
        some = False
        for batch in batches:
            for found in made(batch):
                some = True
                yield found
        if not some:
            yield without_rows(none.schema)
    finally:
        own[0].close()


def without_rows(schema: Any) -> Any:
    """A batch of no rows: columns of the wrong type are refused whether a row is left or not, since that would tell."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
