"""A public list of labels in a CSV file, with a column of parents where a tree groups them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kasuri.errors import DomainError, FormatError, raise_faults
from kasuri.schema import Tree
from kasuri.schema.places import MAX_LEVELS, endless

MAX_TEXT = 1 << 26
"""Characters of the longest file of labels."""


def read_labels(path: str | Path) -> tuple[tuple[str, ...], Tree | None]:
    """The labels of a CSV file (UTF-8, with a header) and the tree over them, None where there is none.

    The column `code`, or else `label`, holds what records hold; other columns are left alone. In a column `parent` each
    row names the group above it, or nothing; a row that others name is a group and not a label. Every fault is named
    at once, by line.
    """
    header, rows = _rows(Path(path))
    column = next((name for name in ("code", "label") if name in header), None)
    faults = [f"{path}: the header needs a column code or label"] if column is None else []
    faults += [f"{path}: column {name!r} is there twice" for name in (column, "parent") if header.count(name or "") > 1]
    faults += [
        f"{path}, line {line}: {len(row)} fields for {len(header)} columns"
        for line, row in rows
        if len(row) != len(header)
    ]
    raise_faults(DomainError, faults)
    own = header.index(column or "")
    above = header.index("parent") if "parent" in header else None
    lines: dict[str, int] = {}
    parents: dict[str, str] = {}
    for line, row in rows:
        code = row[own]
        if not code:
            faults.append(f"{path}, line {line}: the {column} is missing")
        elif code in lines:
            faults.append(f"{path}, line {line}: the {column} of line {lines[code]} once more")
        else:
            lines[code] = line
            parents[code] = "" if above is None else row[above]
    if not rows:
        faults.append(f"{path}: there is no label below the header")
    faults += [
        f"{path}, line {lines[code]}: its parents lead back to it, or are more than {MAX_LEVELS} levels"
        for code in endless(parents)
    ]
    raise_faults(DomainError, faults)
    groups = set(parents.values()) - {""}
    return tuple(code for code in lines if code not in groups), _tree(parents) if groups else None


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and every further row that is not empty with its line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(MAX_TEXT + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not UTF-8; save it as UTF-8") from None
    if len(text) > MAX_TEXT:
        raise FormatError(f"{path}: more than {MAX_TEXT >> 20} million characters")
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(reader, [])
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        raise FormatError(f"{path}: cannot be read as CSV") from None
    return [name.strip() for name in header], rows


def _tree(parents: dict[str, str]) -> Tree:
    """The tree of codes and their parents, in the order of the file; a parent that has no row is a top group."""
    below: dict[str, list[str]] = {}
    tops: dict[str, None] = {}
    for code, parent in parents.items():
        if parent:
            below.setdefault(parent, []).append(code)
            if parent not in parents:
                tops.setdefault(parent)
        else:
            tops.setdefault(code)

    def node(code: str) -> str | dict[str, list[object]]:
        return {code: [node(child) for child in below[code]]} if code in below else code

    return Tree.of([node(code) for code in tops])
