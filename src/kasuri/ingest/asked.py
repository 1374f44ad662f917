"""What is asked of a database: a stored table with conditions, or one SELECT."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.ingest.stream import Doubt
from kasuri.ingest.workshop import literal

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")
Condition = tuple[Any, ...]
"""(column, operator) or (column, operator, value): compared with a constant or, after "in", a list of them."""
OWN_SQL = Doubt("kasuri does not look into the SQL of this database")
_FIRST = re.compile(r"(select|with)\b", re.IGNORECASE)


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


def one_select(sql: str, label: str) -> str:
    """`sql` where it is one statement that begins with SELECT or WITH. A semicolon is refused even in a text, and a
    comment before the first word: what ends them differs between databases."""
    text = sql.strip().removesuffix(";")
    if ";" in text or "\0" in text or not _FIRST.match(text):
        raise PrivacyError(
            f"{label}: a query is one SELECT statement without a semicolon or a comment before it; nothing else is run"
        )
    return text


def unchanged(before: object, now: object, label: str) -> None:
    """Refuse rows of a table that is not what it was when the stream was opened. Every reading looks at the table once
    more, where no one can change it before the rows are read: what was checked is what is read."""
    if before != now:
        raise PrivacyError(f"{label}: the table was changed after it was checked; count it again")


# --- SQLite


def usable(wanted: Sequence[str], unusable: Mapping[str, str], label: str) -> None:
    raise_faults(DomainError, [f"{label}: {unusable[name]}" for name in wanted if name in unusable])


def where_sql(conditions: Sequence[tuple[str, str]]) -> str:
    return f" WHERE {' AND '.join(sql for _, sql in conditions)}" if conditions else ""
