"""Which frames map each record by itself, read off Spark's analyzed plan before a row is read.

A list of what is allowed, by the full name of the Java class: scans of one stored table, projections and filters of
expressions over one row that are deterministic and fail on no value. Whatever is not listed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kasuri.errors import PrivacyError, raise_faults
from kasuri.schema import ROWS_ALONE

PLANS = "org.apache.spark.sql.catalyst.plans.logical."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
SOURCES = "org.apache.spark.sql.execution.datasources."

STEPS = {"Filter", "Project", "Repartition", "RepartitionByExpression", "Sort", "SubqueryAlias", "View"}
"""Nodes with one child that keep, drop, compute or rearrange rows one by one."""

TOTAL = {
    "Alias", "And", "AtLeastNNonNulls", "AttributeReference", "Between", "CaseWhen", "Coalesce", "CommonExpressionDef",
    "CommonExpressionRef", "Contains", "EndsWith", "EqualNullSafe", "EqualTo", "GetStructField", "GreaterThan",
    "GreaterThanOrEqual", "Greatest", "If", "In", "InSet", "IsNaN", "IsNotNull", "IsNull", "Least", "Length",
    "LessThan", "LessThanOrEqual", "Literal", "Lower", "NaNvl", "Not", "NullIf", "Nvl", "OctetLength", "Or",
    "SortOrder", "StartsWith", "StringTrim", "StringTrimLeft", "StringTrimRight", "Substring", "TryAdd", "TryDivide",
    "TryMod", "TryMultiply", "TrySubtract", "Upper", "With",
}  # fmt: skip
"""Expressions over one row that have a value, or null, whatever their children's values are."""

TRIED = {"Add": "try_add", "Cast": "try_cast", "Divide": "try_divide", "Multiply": "try_multiply",
         "Remainder": "try_mod", "Subtract": "try_subtract"}  # fmt: skip
"""Expressions that fail on some values (an overflow, a division by zero, a text that is not a number), and functions
that give null instead."""
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""Types of whole numbers, from narrow to wide, and their digits."""
_FLOAT = ("float", "double")
_PLAIN = {*_WHOLE, *_FLOAT, "boolean", "date", "string", "timestamp_ntz"}

FORMATS = {f"{SOURCES}parquet.ParquetFileFormat", f"{SOURCES}orc.OrcFileFormat"}
OPTIONS = {"basepath", "compression", "mergeschema", "modifiedafter", "modifiedbefore", "path", "pathglobfilter",
           "paths", "recursivefilelookup", "serialization.format"}  # fmt: skip
"""What a reader of files may be told: which files, not how a value is read."""
SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": ("TRUE", "one value that cannot be read would take others along", "false"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("EXCEPTION", "one old date would end the release", "CORRECTED"),
    "spark.sql.parquet.int96RebaseModeInRead": ("EXCEPTION", "one old date would end the release", "CORRECTED"),
}
"""What the session must not say while files are read, why not, and what it should say instead."""
INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"

REMEDY = (
    "Release one stored table, with filters and columns computed from one row each; or, if each row depends on the "
    f'records of its own id alone, vouch for it: assume="{ROWS_ALONE}"'
)


def trusted(frame: Any, unit_id: str, needed: Sequence[str], assume: str | None) -> tuple[str, ...]:
    """What is taken on trust about the rows of `frame`: nothing where its plan shows that each record is mapped by
    itself, else the assumption a person makes; without one it is refused. `needed` are the columns that are read.

    Privacy
    -------
    Neighbours: stored tables that differ by all rows of one id, or by other rows for one id. Guarantee: the frames then
    differ by rows of that id alone. Proof: docs/proofs/spark.md. Assumes: ROWS_ALONE, where it is given.
    """
    if assume is not None:
        if assume != ROWS_ALONE:
            raise PrivacyError(f'assume: the only assumption that can be made is "{ROWS_ALONE}"')
        return (ROWS_ALONE,)
    faults = [f"frame: {fault}" for fault in _Plan(frame).faults(unit_id, needed)]
    raise_faults(PrivacyError, [*faults, REMEDY] if faults else [])
    return ()


class _Plan:
    """The analyzed plan of a frame: its steps from the top to the leaf, and what each alias was made of."""

    def __init__(self, frame: Any) -> None:
        self.session, self.columns = frame.sparkSession, list(frame.columns)
        node = frame._jdf.queryExecution().analyzed()
        self.output = _all(node.output())
        self.steps: list[Any] = []
        while _name(node, PLANS) in STEPS:
            self.steps.append(node)
            node = node.children().apply(0)
        self.leaf = node
        self.made: dict[str, Any] = {}
        for step in self.steps:
            if _name(step, PLANS) == "Project":
                aliases = [e for e in _all(step.projectList()) if _name(e, EXPRESSIONS) == "Alias"]
                self.made |= {_identity(alias): alias.children().apply(0) for alias in aliases}
        # a frame remembers what was cached when it was planned: a new one looks again
        node, open_filters = frame.select("*")._jdf.queryExecution().withCachedData(), 0
        while node.children().size():
            open_filters += _name(node, PLANS) == "Filter"
            node = node.children().apply(0)
        self.filtered = open_filters < sum(_name(step, PLANS) == "Filter" for step in self.steps)

    def faults(self, unit_id: str, needed: Sequence[str]) -> Iterator[str]:
        known = _name(self.leaf, PLANS) == "LocalRelation"  # rows that the program itself gave
        if not known and _name(self.leaf, SOURCES) != "LogicalRelation":
            yield f"its plan has {_simple(self.leaf)}, and rows behind that may depend on other records"
            return
        yield from sorted({fault for step in self.steps for e in _all(step.expressions()) for fault in _unsafe(e)})
        wanted = [self.output[self.columns.index(name)] for name in needed]
        at = self.output[self.columns.index(unit_id)]
        while _name(at, EXPRESSIONS) == "AttributeReference" and _identity(at) in self.made:
            at = self.made[_identity(at)]
        if _name(at, EXPRESSIONS) != "AttributeReference":
            yield f"the id column {unit_id!r} is computed; take the stored one as it is (it may be renamed)"
        filters = [e for step in self.steps if _name(step, PLANS) == "Filter" for e in _all(step.expressions())]
        if self.filtered:
            yield (
                "its filter was run into a cache, where Spark may have skipped rows by the least and the largest value "
                "of many; unpersist() it, or cache the table before it is filtered"
            )
        if not known:
            parts = [e for e in self._parts([*wanted, *filters]) if _name(e, EXPRESSIONS) == "AttributeReference"]
            yield from self._scan_faults({_identity(e) for e in parts} - set(self.made))

    def _parts(self, expressions: Sequence[Any]) -> Iterator[Any]:
        """All that expressions are computed from, down to attributes of the leaf."""
        waiting, seen = list(expressions), set[str]()
        while waiting:
            expression = waiting.pop()
            if _name(expression, EXPRESSIONS) != "AttributeReference":
                waiting += _all(expression.children())
            elif (own := _identity(expression)) in seen:
                continue
            else:
                seen.add(own)
                waiting += [self.made[own]] if own in self.made else []
            yield expression

    def _scan_faults(self, reached: set[str]) -> Iterator[str]:
        relation = self.leaf.relation()
        if _name(relation, SOURCES) != "HadoopFsRelation":
            yield f"it is read by {_simple(relation)}; only Parquet and ORC files, and tables of them, are looked into"
            return
        if relation.fileFormat().getClass().getName() not in FORMATS:
            yield (
                f"it is read by {_simple(relation.fileFormat())}, where other rows may decide how one is read; "
                "write it to Parquet first"
            )
        told = {str(key).lower() for key in _keys(relation.options())}
        for option in sorted(told - OPTIONS):
            yield f"its reader has the option {option!r}; read it without"
        for setting, (wrong, why, right) in SETTINGS.items():
            if self.session.conf.get(setting).upper() == wrong:
                yield f"{setting} is {wrong.lower()}, and {why}; set it to {right}"
        stored = list(relation.schema().fieldNames())
        if self.leaf.output().size() != len(stored):
            yield "it reads _metadata, which describes files and not a record"
        if any(name.lower().startswith("_tmp_metadata") for name in stored):
            yield "its schema has a column _tmp_metadata..., which Spark makes from the place of a row in its file"
        folders = {name.casefold() for name in relation.partitionSchema().fieldNames()}
        declared = self.leaf.catalogTable().isDefined()
        inferred = self.session.conf.get(INFERENCE).lower() != "false"
        for field in _all(self.leaf.output()):
            guessed = not declared and (inferred or field.dataType().typeName() != "string")
            if guessed and field.name().casefold() in folders and _identity(field) in reached:
                yield (
                    f"column {field.name()!r} is made from the names of folders, which together decide its type; "
                    f"set {INFERENCE} to false before reading, or read a table of the catalogue"
                )


def _unsafe(expression: Any) -> set[str]:
    """What is wrong with an expression, in words; nothing where it is over one row, deterministic and total."""
    name = _name(expression, EXPRESSIONS)
    found = {fault for child in _all(expression.children()) for fault in _unsafe(child)}
    if name in TOTAL or (name is not None and _total(name, expression)):
        return found
    if name in TRIED:
        return found | {
            f"{name} fails on some values, and a release that fails reveals something about a record; use "
            f"{TRIED[name]} instead"
        }
    return found | {
        f"it computes with {_simple(expression)}, which may look beyond the row, change from run to run or fail on a "
        "value"
    }


def _total(name: str, expression: Any) -> bool:
    """Whether an expression that may fail cannot: by its mode, or by its types."""
    if name not in ("Abs", "Add", "Cast", "Divide", "IntegralDivide", "Multiply", "Pmod", "Remainder", "Subtract",
                    "UnaryMinus"):  # fmt: skip
        return False
    kind = expression.dataType().typeName()
    if name == "Cast":
        child = expression.children().apply(0)
        source = child.dataType().typeName()
        if source in _WHOLE and kind.startswith("decimal") and _name(child, EXPRESSIONS) == "Literal":
            source = f"decimal({len(str(child.toString()).lstrip('-'))},0)"  # Spark gives a constant no digit to spare
        return _casts(source, kind) or (_mode(expression) == "TRY" and _simple_type(source) and _simple_type(kind))
    if name in ("Abs", "Add", "Multiply", "Subtract", "UnaryMinus") and kind in _FLOAT:
        return True
    number = kind in _WHOLE or kind in _FLOAT or kind.startswith("decimal")  # dates and intervals fail in any mode
    return number and name not in ("Abs", "UnaryMinus") and _mode(expression) in ("TRY", "LEGACY")


def _casts(source: str, target: str) -> bool:
    """Whether each value of one type has a value of the other."""
    if source == "void" or (source in _PLAIN and target in ("string", source)):
        return True
    ranks = list(_WHOLE)
    if target in ranks:
        return source == "boolean" or (source in ranks and ranks.index(source) <= ranks.index(target))
    if target in _FLOAT:
        return source in ranks or source.startswith("decimal") or (source, target) == ("float", "double")
    wide, own = (re.fullmatch(r"decimal\((\d+),(-?\d+)\)", kind) for kind in (target, source))
    if wide is None:
        return False
    before, after = int(wide[1]) - int(wide[2]), int(wide[2])
    if source in ranks:
        return before >= _WHOLE[source] and after >= 0
    return own is not None and before >= int(own[1]) - int(own[2]) and after >= int(own[2])


def _simple_type(kind: str) -> bool:
    return kind in _PLAIN or kind == "timestamp" or kind.startswith("decimal")


def _mode(expression: Any) -> str:
    return str(expression.evalMode().toString())


def _name(node: Any, package: str) -> str | None:
    """The simple name of a class of Spark's own `package`; None for any other class."""
    full = node.getClass().getName()
    return full[len(package) :] if full.startswith(package) and "." not in full[len(package) :] else None


def _simple(node: Any) -> str:
    return str(node.getClass().getSimpleName()).rstrip("$")


def _identity(attribute: Any) -> str:
    return str(attribute.exprId().toString())


def _keys(options: Any) -> list[Any]:
    return _all(options.keys().toSeq())


def _all(items: Any) -> list[Any]:
    return [items.apply(i) for i in range(items.size())]
