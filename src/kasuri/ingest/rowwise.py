"""Queries that map each record by itself: one SELECT of expressions over the columns of one stored table.

The text of a query is read by DuckDB's own parser. What is in this module's lists is written anew, from the parse tree;
anything else is refused. The database then hands over stored columns as they are, and a DuckDB of kasuri's own, which
knows no macro, view, type or function of the database, computes the expressions: the text itself is never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kasuri.errors import PrivacyError
from kasuri.ingest.stream import Doubt
from kasuri.ingest.workshop import STORED, literal, quoted

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Run SQL on the connection that holds the table and give its rows."""
Node = Mapping[str, Any]

MOST_SQL = 20_000
"""Characters of one expression as it is written anew: a chain of subqueries can double it at every step."""
MOST_COLUMNS = 10_000
MOST_JOINED = 16
"""Texts that one expression may join to a longer one: a record must never need more memory than there is."""

_NUMBERS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
    "DOUBLE",
)  # fmt: skip
_TIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_TYPES = {name: name for name in ("DECIMAL", "VARCHAR", *_NUMBERS, *_TIMES)} | {
    "BOOL": "BOOLEAN", "INT1": "TINYINT", "INT2": "SMALLINT", "SHORT": "SMALLINT", "INT": "INTEGER", "INT4": "INTEGER",
    "INT8": "BIGINT", "LONG": "BIGINT", "REAL": "FLOAT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "NUMERIC": "DECIMAL",
    "TEXT": "VARCHAR", "STRING": "VARCHAR", "CHAR": "VARCHAR", "DATETIME": "TIMESTAMP",
}  # fmt: skip
"""Types a value can be cast to, by the names a query may give them."""

_FREE = (
    "+", "-", "*", "/", "//", "%", "**", "^", "abs", "ceil", "ceiling", "floor", "sign", "sqrt", "cbrt", "exp", "ln",
    "log", "log10", "log2", "pow", "power", "mod", "pi", "trunc", "sin", "cos", "tan", "asin", "acos", "atan",
    "atan2", "radians", "degrees", "greatest", "least", "lower", "upper", "lcase", "ucase", "length", "strlen",
    "char_length", "left", "right", "substring", "substr", "reverse", "strip_accents", "||", "concat", "starts_with",
    "prefix", "ends_with", "suffix", "contains", "instr", "strpos", "position", "ascii", "unicode", "^@", "year",
    "month", "day", "hour", "minute", "second", "quarter", "week", "weekday", "dayofweek", "isodow", "dayofyear",
    "dayofmonth", "epoch", "last_day", "make_date", "to_years", "to_months", "to_weeks", "to_days", "to_hours",
    "to_minutes", "to_seconds",
)  # fmt: skip
FUNCTIONS: dict[str, tuple[int, ...]] = dict.fromkeys(_FREE, ()) | {
    "round": (1,), "trim": (1,), "ltrim": (1,), "rtrim": (1,), "replace": (1, 2), "translate": (1, 2),
    "~~": (1,), "!~~": (1,), "~~*": (1,), "!~~*": (1,),
    "regexp_matches": (1, 2), "regexp_full_match": (1, 2), "regexp_extract": (1, 2, 3),
    "date_trunc": (0,), "datetrunc": (0,), "date_part": (0,), "datepart": (0,), "date_diff": (0,), "datediff": (0,),
    "strftime": (1,), "strptime": (1,), "try_strptime": (1,),
}  # fmt: skip
"""Built-in functions of one row, and which of their arguments must be constants (patterns and formats: some errors in
them are not caught by TRY, and would tell of a record). None can make a text much longer than its arguments."""
_JOINS = ("||", "concat")
_FORMATS = ("strftime", "strptime", "try_strptime")
_FORMAT = re.compile(r"(?:[^%]|%[%ABGHIMSTUVWXYZabcdfghjmpuwxyz]|%-[HIMSdjmy])*", re.DOTALL)
"""What a format of times may hold. After %n DuckDB leaves bytes as they were in memory, which other records may have
written."""

_COMPARES = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "<>", "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=", "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM", "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}  # fmt: skip
_SILENT = {"class", "type", "alias", "query_location", "query_location_length"}


class NotRowwiseError(Exception):
    """Why a query is not one that maps each record by itself, in words that go into a message."""


@dataclass(frozen=True)
class Value:
    """An expression over stored columns, written anew: `sql`, the columns it `uses` and how many texts it `joins`; the
    stored column it is, if it is one as it is; or why it cannot be used."""

    sql: str
    uses: frozenset[str]
    joins: int = 0
    stored: bool = False
    why: str | None = None


@dataclass(frozen=True)
class Rows:
    """What a query of one stored table comes to: the `table` in SQL, the columns by name, the conditions."""

    table: str
    columns: Mapping[str, Value]
    where: tuple[Value, ...] = ()

    @property
    def doubt(self) -> Doubt:
        return Doubt(
            columns={name: value.why for name, value in self.columns.items() if value.why is not None},
            made=frozenset(name for name, value in self.columns.items() if not value.stored),
        )

    def uses(self, wanted: Iterable[str]) -> list[str]:
        """The stored columns that the wanted ones need."""
        values = [*(self.columns[name] for name in wanted), *self.where]
        return sorted({name for value in values for name in value.uses})

    def select(self, wanted: Sequence[str]) -> str:
        """The SELECT over the stored columns. An expression that fails on a row is null there, and its row
        dropped: an error would tell of a record."""
        items = (f"{_tried(self.columns[name])} AS {quoted(name)}" for name in wanted)
        where = " AND ".join(map(_tried, self.where))
        return f"SELECT {', '.join(items)} FROM {STORED}" + (f" WHERE {where}" if where else "")


def _tried(value: Value) -> str:
    return value.sql if value.stored else f"TRY({value.sql})"


def statement(own: Any, sql: str, label: str) -> Node:
    """The parse tree of the one SELECT that `sql` must be, whatever else is assumed about it."""
    try:
        tree = json.loads(own.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0])
    except RecursionError:
        raise PrivacyError(f"{label}: the query is nested too deeply") from None
    found = tree.get("statements", ())
    if tree.get("error") is not False or len(found) != 1 or not _selects(found[0]):
        raise PrivacyError(f"{label}: a query is one SELECT statement; nothing else is run, no second statement")
    return found[0]["node"]


_SELECTS = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")


def _selects(tree: Any) -> bool:
    """Whether every statement in the tree is a SELECT: a common table expression may hold an INSERT."""
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            kind = item.get("type")
            if isinstance(kind, str) and (kind == "SHOW_REF" or kind.endswith("_NODE")) and kind not in _SELECTS:
                return False
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return True


def read(tree: Node, names: Sequence[str], own: Any, ask: Ask) -> Rows:
    """The rows of a SELECT whose answer has the columns `names`; NotRowwiseError where it is not in the lists."""
    builtin = {
        name for name, kind, stability, internal in own.execute(
            "SELECT function_name, any_value(function_type), any_value(stability), bool_and(internal) "
            "FROM system.main.duckdb_functions() GROUP BY 1 "
            "HAVING count(DISTINCT function_type) = 1 AND count(DISTINCT stability) = 1"
        ).fetchall() if (kind, stability, internal) == ("scalar", "CONSISTENT", True)
    }  # fmt: skip
    try:
        table, where, values = _select(tree, lambda path: stored(path, ask), builtin, {})
    except RecursionError:
        raise NotRowwiseError("it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError, IndexError):
        raise NotRowwiseError("it has a part that this version of kasuri does not know") from None
    if len({name.casefold() for name in names}) != len(names):
        raise NotRowwiseError("two columns of its answer have one name")
    if len(values) != len(names) or any(
        own is not None and _folded(own) != _folded(name) for (own, _), name in zip(values, names, strict=True)
    ):
        raise NotRowwiseError("DuckDB reads its list of columns in another way")
    return Rows(table, dict(zip(names, (value for _, value in values), strict=True)), tuple(where))


def stored(path: Sequence[str], ask: Ask) -> tuple[str, list[tuple[str, Value]]]:
    """The stored table at `path` (table; schema, table; database, schema, table) and its columns.

    System functions are called by their full names and answers compared here: a macro of the database may have any
    short name."""
    tables = ask("SELECT database_name, schema_name, table_name, sql FROM system.main.duckdb_tables()")
    views = ask("SELECT database_name, schema_name, view_name FROM system.main.duckdb_views()")
    here = ask("SELECT system.main.current_database(), system.main.current_schema()")[0]
    kinds: dict[str, str] = dict(ask("SELECT database_name, type FROM system.main.duckdb_databases()"))
    shown = ".".join(path)
    *before, name = map(_folded, path)
    places = {0: [tuple(here), ("temp", "main")], 1: [(here[0], *before), (*before, "main")], 2: [tuple(before)]}
    reach = {tuple(map(_folded, place)) for place in places.get(len(before), [])}
    found = [row for row in [*tables, *views] if tuple(map(_folded, row[:2])) in reach and _folded(row[2]) == name]
    if len(found) != 1 or len(found[0]) != 4 or kinds.get(found[0][0]) != "duckdb":
        kind = "several tables or views" if len(found) > 1 else "not a stored table of DuckDB"
        raise NotRowwiseError(f"{shown!r} is {kind} (a view, macro, function, file or Python variable is not one)")
    database, schema, table, made = found[0]
    if "collate" in str(made).lower():
        raise NotRowwiseError(f"{shown!r} has a column with a collation")
    rows = ask(
        "SELECT database_name, schema_name, table_name, column_index, column_name, data_type, is_generated "
        "FROM system.main.duckdb_columns()"
    )
    own = sorted(row[3:] for row in rows if tuple(row[:3]) == (database, schema, table))
    columns = [(name, _column(name, kind, made)) for _, name, kind, made in own]
    return ".".join(map(quoted, (database, schema, table))), columns


def _column(name: str, kind: str, generated: bool) -> Value:
    plain, uses = quoted(name), frozenset([name])
    if generated:
        return Value("NULL", uses, why=f"column {name!r} is generated when it is read, not stored")
    if kind in _NUMBERS or kind in _TIMES or kind == "VARCHAR" or kind.startswith("DECIMAL("):
        return Value(plain, uses, stored=True)
    if kind == "UUID" or kind.startswith("ENUM("):  # by its text: the order of an ENUM may come from the data
        return Value(f"CAST({plain} AS VARCHAR)", uses, stored=True)
    return Value("NULL", uses, why=f"column {name!r} is not of a plain type (a number, a text, a date or a time)")


def _folded(name: str) -> str:
    """As DuckDB compares names: without regard to case in ASCII."""
    return "".join(c.lower() if c.isascii() else c for c in name)


Find = Callable[[Sequence[str]], tuple[str, list[tuple[str, Value]]]]
"""The stored table at a path, in SQL, and its columns."""
Scope = Callable[[Sequence[str]], list[tuple[str | None, Value]]]
"""The columns that a path names; of a path that ends in "*", all."""
Parts = tuple[str, list[Value], list[tuple[str | None, Value]]]
"""Table, conditions and (name, value) of the columns of a SELECT."""
Views = Mapping[str, Callable[[], Parts]]
"""What WITH has named."""

_MIXING = {
    "modifiers": "DISTINCT, ORDER BY and LIMIT", "group_expressions": "GROUP BY", "group_sets": "GROUP BY",
    "having": "HAVING", "sample": "a sample", "qualify": "QUALIFY",
}  # fmt: skip


def _select(node: Node, find: Find, builtin: set[str], views: Views) -> Parts:
    """The parts of a SELECT, subqueries in FROM and WITH folded in."""
    if node["type"] != "SELECT_NODE":
        raise NotRowwiseError("it is not a plain SELECT (UNION and the like mix rows)")
    for key, words in _MIXING.items():
        if _filled(node.get(key)):
            raise NotRowwiseError(f"{words} can mix rows")
    if node["aggregate_handling"] != "STANDARD_HANDLING":
        raise NotRowwiseError("GROUP BY can mix rows")
    _only(node, {"select_list", "from_table", "where_clause", "cte_map", "aggregate_handling"})
    for item in node["cte_map"]["map"]:
        _only(item["value"], {"query_node", "materialized"})
        # each sees those before it, and is read where it is used
        known = partial(_select, item["value"]["query_node"], find, builtin, views)
        views = {**views, _folded(item["key"]): known}
    table, where, scope = _from(node["from_table"], find, builtin, views)
    if node["where_clause"] is not None:
        where = [*where, _value(node["where_clause"], scope, builtin)]
    values: list[tuple[str | None, Value]] = []
    for item in node["select_list"]:
        if item["class"] == "STAR":
            _only(item, {"relation_name"})
            values += scope([*filter(None, [item["relation_name"]]), "*"])
        elif item["class"] == "COLUMN_REF":
            # a column that cannot be used is refused only where it is wanted: SELECT * would else rarely be taken
            values.append((item["alias"] or item["column_names"][-1], _one(scope, item["column_names"])))
        else:
            values.append((item["alias"] or None, _value(item, scope, builtin)))
        if len(values) > MOST_COLUMNS:
            raise NotRowwiseError(f"it has more than {MOST_COLUMNS} columns")
    return table, where, values


def _from(node: Node, find: Find, builtin: set[str], views: Views) -> tuple[str, list[Value], Scope]:
    kind = node["type"]
    where: list[Value] = []
    columns: list[tuple[str | None, Value]]
    if kind == "BASE_TABLE":
        _only(node, {"table_name", "schema_name", "catalog_name", "qualified_name"})
        path = [part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part]
        if len(path) == 1 and _folded(path[0]) in views:
            table, where, columns = views[_folded(path[0])]()
        else:
            table, own = find(path)
            columns = list(own)
        prefixes = [[node["alias"]]] if node["alias"] else [path[i:] for i in range(len(path))]
    elif kind == "SUBQUERY":
        _only(node, {"subquery"})
        _only(node["subquery"], {"node"})
        table, where, columns = _select(node["subquery"]["node"], find, builtin, views)
        prefixes = [[node["alias"]]] if node["alias"] else []
    else:
        raise NotRowwiseError(f"FROM {kind.lower().replace('_', ' ')} is not one stored table")
    known = [list(map(_folded, prefix)) for prefix in ([], *prefixes)]

    def scope(path: Sequence[str]) -> list[tuple[str | None, Value]]:
        *before, name = map(_folded, path)
        if before not in known:
            return []
        return [item for item in columns if name == "*" or (item[0] is not None and _folded(item[0]) == name)]

    return table, where, scope


def _one(scope: Scope, path: Sequence[str]) -> Value:
    found = scope(path)
    if len(found) != 1 or path[-1] == "*":
        raise NotRowwiseError(f"{'.'.join(path)!r} is not a declared column of the table")
    return found[0][1]


def _value(node: Node, scope: Scope, builtin: set[str]) -> Value:
    """An expression written anew; its parts are in brackets, so that no precedence is relied on."""
    sql, parts, joins = _written(node, scope, builtin)
    uses = frozenset().union(*(part.uses for part in parts))
    joins += sum(part.joins for part in parts)
    if len(sql) > MOST_SQL or joins > MOST_JOINED:
        raise NotRowwiseError(f"an expression is too long (or joins more than {MOST_JOINED} texts)")
    if node["class"] == "COLUMN_REF":
        return parts[0]
    return Value(f"({sql})", uses, joins)


def _written(node: Node, scope: Scope, builtin: set[str]) -> tuple[str, list[Value], int]:
    kind, what = node["class"], node["type"]

    def parts(nodes: Iterable[Node]) -> list[Value]:
        return [_value(item, scope, builtin) for item in nodes]

    if kind == "COLUMN_REF":
        _only(node, {"column_names"})
        found = _one(scope, node["column_names"])
        if found.why is not None:
            raise NotRowwiseError(found.why)
        return found.sql, [found], 0
    if kind == "CONSTANT":
        return _constant(node), [], 0
    if kind == "COMPARISON" and what in _COMPARES:
        _only(node, {"left", "right"})
        a, b = parts([node["left"], node["right"]])
        return f"{a.sql} {_COMPARES[what]} {b.sql}", [a, b], 0
    if kind == "CONJUNCTION" and what in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        _only(node, {"children"})
        made = parts(node["children"])
        return f" {what[12:]} ".join(part.sql for part in made), made, 0
    if kind == "BETWEEN" and what == "COMPARE_BETWEEN":
        _only(node, {"input", "lower", "upper"})
        a, b, c = parts([node["input"], node["lower"], node["upper"]])
        return f"{a.sql} BETWEEN {b.sql} AND {c.sql}", [a, b, c], 0
    if kind == "OPERATOR" and what in _OPERATORS:
        _only(node, {"children"})
        made = parts(node["children"])
        return _OPERATORS[what]([part.sql for part in made]), made, 0
    if kind == "CASE":
        _only(node, {"case_checks", "else_expr"})
        made, sql = [], "CASE"
        for check in node["case_checks"]:
            when, then = parts([check["when_expr"], check["then_expr"]])
            made += [when, then]
            sql += f" WHEN {when.sql} THEN {then.sql}"
        made += (last := parts([node["else_expr"]]))
        return f"{sql} ELSE {last[0].sql} END", made, 0
    if kind == "CAST":
        _only(node, {"child", "type_expr", "try_cast"})
        (child,) = parts([node["child"]])
        return f"{'TRY_' if node['try_cast'] else ''}CAST({child.sql} AS {_type(node['type_expr'])})", [child], 0
    if kind == "FUNCTION":
        return _call(node, parts, builtin)
    words = "a subquery" if kind == "SUBQUERY" else what.lower().replace("_", " ")
    raise NotRowwiseError(f"{words} in an expression is not in the list of what maps a row by itself")


_OPERATORS: dict[str, Callable[[list[str]], str]] = {
    "OPERATOR_NOT": lambda of: f"NOT {of[0]}",
    "OPERATOR_IS_NULL": lambda of: f"{of[0]} IS NULL",
    "OPERATOR_IS_NOT_NULL": lambda of: f"{of[0]} IS NOT NULL",
    "OPERATOR_COALESCE": lambda of: f"COALESCE({', '.join(of)})",
    "OPERATOR_TRY": lambda of: f"TRY({of[0]})",
    "COMPARE_IN": lambda of: f"{of[0]} IN ({', '.join(of[1:])})",
    "COMPARE_NOT_IN": lambda of: f"{of[0]} NOT IN ({', '.join(of[1:])})",
}


_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?")


def _constant(node: Node) -> str:
    _only(node, {"literal"})
    own = node["literal"]
    kind, text = own["kind"], own["text"]
    if kind == "STRING":
        return literal(text)
    if kind == "NULL_LITERAL":
        return "NULL"
    if kind == "BOOLEAN" and text in ("true", "false"):
        return str(text)
    if kind in ("INTEGER", "NUMERIC") and _NUMBER.fullmatch(text) and len(text) < 40:
        return str(text)
    raise NotRowwiseError("a constant is not a number, a text, true, false or null")


def _type(node: Node) -> str:
    name = _TYPES.get(node["type_name"].upper())
    if name is None or node["class"] != "TYPE" or node["schema"] or node["catalog"]:
        raise NotRowwiseError("a cast is to a type that is not a plain number, text, date or time")
    if name != "DECIMAL":
        return name
    sizes = [_constant(child) for child in node["children"]]
    if not all(size.isdigit() for size in sizes):
        raise NotRowwiseError("a cast to DECIMAL needs whole numbers")
    return f"DECIMAL({', '.join(sizes)})" if sizes else name


def _call(
    node: Node, parts: Callable[[Iterable[Node]], list[Value]], builtin: set[str]
) -> tuple[str, list[Value], int]:
    _only(node, {"function_name", "qualified_name", "arguments", "order_bys", "is_operator"})
    name = node["function_name"].lower()
    if node["order_bys"]["orders"] or any(item["name"] for item in node["arguments"]):
        raise NotRowwiseError(f"function {name!r} is called with names or an order")
    given = [item["expression"] for item in node["arguments"]]
    if name == "nullif" and len(given) == 2:  # a macro of DuckDB's own
        a, b = parts(given)
        return f"CASE WHEN {a.sql} = {b.sql} THEN NULL ELSE {a.sql} END", [a, b, a], 0
    if name not in FUNCTIONS or name not in builtin:
        raise NotRowwiseError(f"function {name!r} is not in the list of functions that map a row by itself")
    constants = {at: given[at] for at in FUNCTIONS[name] if at < len(given)}
    if any(item["class"] != "CONSTANT" for item in constants.values()):
        raise NotRowwiseError(f"function {name!r} takes its pattern, format or second argument as a constant only")
    if name in _FORMATS and not _FORMAT.fullmatch(given[1]["literal"]["text"] or ""):
        raise NotRowwiseError(f"{name}() has a format that is not in the list; fractions of a second are %f and %g")
    if name == "replace" and len(_text(given[2])) > len(_text(given[1])):
        raise NotRowwiseError("replace() with a longer text makes texts of any length")
    made = parts(given)
    short = f"system.main.{quoted(name)}({', '.join(part.sql for part in made)})"
    return short, made, len(made) - 1 if name in _JOINS else 0


def _text(node: Node) -> bytes:
    return str(node["literal"]["text"]).encode()


def _only(node: Node, known: set[str]) -> None:
    """Refuse a node with a part that is not known, unless it is empty: it could mean anything."""
    for key, value in node.items():
        if key not in known and key not in _SILENT and _filled(value):
            raise NotRowwiseError(
                f"{str(node.get('type', 'query')).lower().replace('_', ' ')} with {key.replace('_', ' ')}"
            )


def _filled(value: object) -> bool:
    return value not in (None, False, "", [], {})
