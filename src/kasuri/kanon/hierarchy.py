"""Generalisation trees: for categories, numbers, mesh cells and dates. Public: declared, never taken from data.

A tree's nodes are numbered from the root (0) downward, parents before children, left to right; its leaves are in
one row from left to right, so that every node covers a run of leaves [low, high). The loss of writing a node instead
of a value is NCP = leaves under the node / leaves of the tree [Horigome2020, sec. 2.4].
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode, names
from kasuri.arrays import Int
from kasuri.errors import DomainError, FormatError, raise_faults
from kasuri.files import whole
from kasuri.schema import Mesh, Tree

Kind = Literal["categories", "numbers", "mesh", "dates"]
Node = tuple[str, tuple[Any, ...]]
"""(label, children); a leaf has none."""

ROOT = "*"
MAX_LEAVES = 1 << 22
MAX_LEVELS = 100
MAX_TEXT = 1 << 26
"""Most characters of a hierarchy file."""
MAX_NUMBER = 1 << 53
"""Whole numbers up to here are floats too."""
UNITS = ("day", "month", "quarter", "year", "decade")
MISSING, OUTSIDE = -2, -1


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The generalisation tree of one column, and how the column's values fall on its leaves.

    `labels`, `parent`, `low`, `high` describe the nodes (see the module); `ordered` says that the leaves have an
    order that matters (numbers, dates), so that a run of them is a meaningful value. `missing` names the leaf that
    stands for missing values, if they are allowed.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    parent: Int
    low: Int
    high: Int
    reader: Any
    ordered: bool = False
    missing: str | None = None

    def __post_init__(self) -> None:
        found = names.faults(self.name, "a hierarchy's name")
        raise_faults(DomainError, found or names.first(self.labels, f"hierarchy {self.name!r}: label"))

    def __repr__(self) -> str:
        return f"Hierarchy({self.name!r}, {self.kind}, {self.leaves} leaves, {len(self.labels)} nodes)"

    @property
    def leaves(self) -> int:
        return int(self.high[0])

    @cached_property
    def leaf_nodes(self) -> Int:
        """The node of each leaf."""
        is_leaf = np.ones(len(self.labels), dtype=bool)
        is_leaf[self.parent[1:]] = False
        return np.flatnonzero(is_leaf).astype(np.int64)

    @cached_property
    def leaf_labels(self) -> tuple[str, ...]:
        return tuple(self.labels[node] for node in self.leaf_nodes.tolist())

    @cached_property
    def depth(self) -> Int:
        out = np.zeros(len(self.labels), dtype=np.int64)
        for node, parent in enumerate(self.parent.tolist()[1:], 1):
            out[node] = out[parent] + 1
        return out

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        out: list[list[int]] = [[] for _ in self.labels]
        for node, parent in enumerate(self.parent.tolist()[1:], 1):
            out[parent].append(node)
        return tuple(tuple(nodes) for nodes in out)

    @cached_property
    def node_of(self) -> dict[str, int]:
        return {label: node for node, label in enumerate(self.labels)}

    def at_depth(self, depth: int) -> Int:
        """The node that stands for each leaf when nothing deeper than `depth` is written (0: the root alone)."""
        out = self.leaf_nodes.copy()
        while (deep := self.depth[out] > depth).any():
            out[deep] = self.parent[out[deep]]
        return out

    def by_nodes(self, nodes: Iterable[str]) -> Int:
        """The node that stands for each leaf when these labels, and no others, are written."""
        out = np.full(self.leaves, -1, dtype=np.int64)
        faults = []
        for label in nodes:
            node = self.node_of.get(label)
            if node is None:
                faults.append(f"hierarchy {self.name!r} has no node {label!r}")
                continue
            part = out[self.low[node] : self.high[node]]
            if (part >= 0).any():
                faults.append(f"hierarchy {self.name!r}: node {label!r} overlaps another one of the cut")
            part[:] = node
        if not faults and (out < 0).any():
            faults.append(f"hierarchy {self.name!r}: the cut leaves {int((out < 0).sum())} leaves uncovered")
        raise_faults(DomainError, faults)
        return out

    def to_json(self, cut: Int | None = None) -> dict[str, Any]:
        """The tree as plain data, with the nodes of a cut."""
        return {
            "name": self.name,
            "kind": self.kind,
            "leaves": self.leaves,
            "labels": list(self.labels),
            "parent": self.parent.tolist(),
            "cut": None if cut is None else np.unique(cut).tolist(),
        }

    def save_csv(self, path: str | Path) -> None:
        """Write the tree as an ARX hierarchy: one line per leaf, its ancestors up to the root, separated by ";"."""
        deepest = int(self.depth.max())
        with whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=";", lineterminator="\n")
            for leaf in self.leaf_nodes.tolist():
                path_up = [leaf]
                while path_up[-1] != 0:
                    path_up.append(int(self.parent[path_up[-1]]))
                padding = [leaf] * (deepest + 1 - len(path_up))  # a shallow leaf is repeated, as ARX does
                writer.writerow([self.labels[node] for node in padding + path_up])


@dataclass(frozen=True)
class CategoryReader:
    """Text (or whole numbers, as text) to leaf numbers."""

    place: Mapping[str, int]

    def read(self, column: Any) -> Int:
        from kasuri.kanon.columns import coded

        codes, values = coded(column)
        table = np.array([self.place.get(value, OUTSIDE) for value in values] + [MISSING], dtype=np.int64)
        return table[codes]  # code -1 (missing) takes the last entry


@dataclass(frozen=True)
class NumberReader:
    """Numbers to intervals [low + i*width, low + (i+1)*width), below high."""

    low: int
    high: int
    width: int
    open_low: bool
    open_high: bool

    def read(self, column: Any) -> Int:
        from kasuri.kanon.columns import numbers

        values, known = numbers(column)
        with np.errstate(invalid="ignore"):
            inside = known & ((values >= self.low) | (self.open_low & (values < self.low)))
            inside &= (values < self.high) | (self.open_high & (values >= self.high))
        end = (self.high - self.low - 1) // self.width
        place = np.clip(np.where(inside, values, self.low), self.low, self.high)
        leaf = np.minimum(np.floor_divide(place - self.low, self.width).astype(np.int64), end)
        return np.where(inside, leaf, np.where(known, OUTSIDE, MISSING))


@dataclass(frozen=True, eq=False)
class MeshReader:
    """Mesh codes to leaf numbers (codes are sorted)."""

    codes: Int

    def read(self, column: Any) -> Int:
        from kasuri.kanon.columns import numbers

        values, known = numbers(column)
        with np.errstate(invalid="ignore"):
            inside = known & (values >= 0) & (values < MAX_NUMBER)  # an infinity has no remainder and no whole number
        whole = inside & (np.where(inside, values, 0.5) % 1 == 0)
        code = np.where(whole, values, 0).astype(np.int64)
        leaf = np.minimum(np.searchsorted(self.codes, code), self.codes.size - 1)
        return np.where(whole & (self.codes[leaf] == code), leaf, np.where(known, OUTSIDE, MISSING))


@dataclass(frozen=True, eq=False)
class DateReader:
    """Days from `start` to leaf numbers."""

    start: np.datetime64
    leaf_of_day: Int

    def read(self, column: Any) -> Int:
        from kasuri.kanon.columns import days

        day, known = days(column)
        offset = day - int(self.start.astype(np.int64))
        inside = known & (offset >= 0) & (offset < self.leaf_of_day.size)
        leaf = self.leaf_of_day[np.where(inside, offset, 0)]
        return np.where(inside, leaf, np.where(known, OUTSIDE, MISSING))


def categories(name: str, tree: Mapping[str, Any] | Sequence[Any] | Tree, *, missing: str | None = None) -> Hierarchy:
    """A tree of categories: nested mappings and lists, as in `Tree.of`.

    >>> categories("workclass", {"Government": ["Federal", "Local"], "Other": ["Private", "Self"]})
    Hierarchy('workclass', categories, 4 leaves, 7 nodes)
    """
    nested = tree if isinstance(tree, Tree) else Tree.of(tree)

    def node(child: Any) -> Node:
        return (child, ()) if isinstance(child, str) else (child[0], tuple(node(below) for below in child[1]))

    return _category_tree(name, (ROOT, tuple(node(child) for child in nested.children)), missing)


def categories_csv(name: str, path: str | Path, *, missing: str | None = None) -> Hierarchy:
    """A tree of categories from an ARX hierarchy file: `leaf;parent;...;root` per line, no header."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_TEXT + 1)
    except OSError:
        raise FormatError(f"{path}: the hierarchy file of {name!r} cannot be read") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: the hierarchy file of {name!r} is not UTF-8 text") from None
    except ValueError:
        raise FormatError(f"{name!r}: a hierarchy file cannot have this name") from None
    if len(text) > MAX_TEXT:
        raise FormatError(f"{path}: the hierarchy file of {name!r} has more than {MAX_TEXT >> 20} million characters")
    first = text.partition("\n")[0]
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter=";" if ";" in first else ",") if row]
    except csv.Error:
        raise FormatError(f"{path}: the hierarchy file of {name!r} cannot be read as CSV") from None
    parent_of: dict[str, str] = {}
    order: dict[str, None] = {}
    tops: dict[str, None] = {}
    faults: list[str] = []
    for line, row in enumerate(rows, 1):
        steps = [label.strip() for label in row]
        steps = [label for i, label in enumerate(steps) if i == 0 or label != steps[i - 1]]
        if len(steps) > MAX_LEVELS:
            faults.append(f"{path} line {line}: more than {MAX_LEVELS} levels")
        order.setdefault(steps[0])
        tops.setdefault(steps[-1])
        for child, above in pairwise(steps):
            if parent_of.setdefault(child, above) != above:
                faults.append(f"{path} line {line}: {child!r} has a second parent, {above!r}")
    if not rows:
        faults.append(f"{path}: the hierarchy is empty")
    elif len(tops) > 1:
        faults.append(f"{path}: {len(tops)} values are at the top; end every line with one root such as *")
    faults += [f"{path}: {label!r} is its own ancestor" for label in _cycles(parent_of)]
    inner = set(parent_of.values())
    faults += [f"{path}: {label!r} is a leaf and also generalises others" for label in order if label in inner]
    raise_faults(FormatError, faults)
    below: dict[str, dict[str, None]] = {}
    for leaf in order:  # children in the order in which the file first names them
        label = leaf
        while label in parent_of:
            below.setdefault(parent_of[label], {}).setdefault(label)
            label = parent_of[label]

    def node(label: str) -> Node:
        return label, tuple(node(child) for child in below.get(label, ()))

    return _category_tree(name, node(next(iter(tops))), missing)


def numbers(
    name: str,
    low: int,
    high: int,
    widths: Sequence[int],
    *,
    open_low: bool = False,
    open_high: bool = False,
    missing: str | None = None,
) -> Hierarchy:
    """Intervals of numbers from `low` up to, not including, `high`; each width divides the next.

    With `open_low` (`open_high`) the first (last) interval also takes everything below (above).

    >>> numbers("age", 10, 100, [10, 30]).leaf_labels[:2]
    ('10-19', '20-29')
    """
    faults = []
    if not all(isinstance(x, int) and not isinstance(x, bool) for x in (low, high, *widths)):
        faults.append(f"hierarchy {name!r}: low, high and widths are whole numbers")
    elif max(abs(low), abs(high), *(abs(width) for width in widths)) > MAX_NUMBER:
        faults.append(f"hierarchy {name!r}: low, high and widths lie within 2^53 of 0")
    elif not widths or min(widths) < 1 or any(b % a or b == a for a, b in pairwise(widths)):
        faults.append(f"hierarchy {name!r}: widths must rise, each a multiple of the one before, e.g. [5, 10, 20]")
    elif high <= low:
        faults.append(f"hierarchy {name!r}: high must lie above low")
    elif (high - low) // widths[0] > MAX_LEAVES:
        faults.append(f"hierarchy {name!r}: more than 2^22 leaves; widen the smallest interval")
    if not isinstance(open_low, bool) or not isinstance(open_high, bool):
        faults.append(f"hierarchy {name!r}: open_low and open_high are true or false")
    raise_faults(DomainError, faults)

    def label(start: int, width: int) -> str:
        end = min(start + width, high)
        if open_high and end == high:
            return f"{start}+"
        if open_low and start == low:
            return f"<{end}"
        if end == start + 1:
            return str(start)
        return f"{start}-{end - 1}" if low >= 0 else f"{start}..{end - 1}"

    def interval(start: int, level: int) -> Node:
        if level == 0:
            return label(start, widths[0]), ()
        inner = range(start, min(start + widths[level], high), widths[level - 1])
        return label(start, widths[level]), tuple(interval(at, level - 1) for at in inner)

    top = len(widths) - 1
    root = (ROOT, tuple(interval(at, top) for at in range(low, high, widths[top])))
    reader = NumberReader(low, high, widths[0], open_low, open_high)
    return _build(name, "numbers", root, reader, missing=missing, ordered=True)


def mesh(name: str, window: Mesh, levels: Sequence[str], *, missing: str | None = None) -> Hierarchy:
    """Cells of a mesh window and, above them, the coarser JIS levels named in `levels`, finest first."""
    if window.level is None:
        raise DomainError(f"hierarchy {name!r}: the mesh needs a JIS level")
    chain, divide = [window.level], [1]
    while (parent := meshcode.level(chain[-1]).parent) is not None:
        divide.append(divide[-1] * (10 if meshcode.level(chain[-1]).form == "quadrant" else 100))
        chain.append(parent)
    unknown = [level for level in levels if level not in chain[1:]]
    faults = [f"hierarchy {name!r}: level {x!r} is not above {chain[0]}; use {chain[1:]}" for x in unknown]
    if math.prod(window.shape) > MAX_LEAVES:
        faults.append(f"hierarchy {name!r}: more than 2^22 cells; take a coarser level or a smaller window")
    raise_faults(DomainError, faults)
    steps = [divide[chain.index(level)] for level in sorted(levels, key=chain.index)]
    rows, cols = (np.arange(start, start + size) for start, size in zip(window.origin, window.shape, strict=True))
    codes = np.sort(meshcode.encode(np.repeat(rows, cols.size), np.tile(cols, rows.size), window.level))

    def group(low: int, high: int, depth: int) -> tuple[Node, ...]:
        part = codes[low:high]
        if depth < 0:
            return tuple((str(code), ()) for code in part.tolist())
        keys = part // steps[depth]
        edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), part.size]
        return tuple((str(int(keys[a])), group(low + a, low + b, depth - 1)) for a, b in pairwise(edges))

    return _build(name, "mesh", (ROOT, group(0, codes.size, len(steps) - 1)), MeshReader(codes), missing=missing)


def dates(name: str, start: str, end: str, levels: Sequence[str], *, missing: str | None = None) -> Hierarchy:
    """Days from `start` to `end` (both included): leaves of the first unit of `levels`, the further units above.

    >>> dates("admitted", "2020-01-01", "2020-12-31", ["month", "quarter"]).leaf_labels[:2]
    ('2020-01', '2020-02')
    """
    faults = [
        f"hierarchy {name!r}: {unit!r} is not a unit; use {', '.join(UNITS)}" for unit in levels if unit not in UNITS
    ]
    ranks = [UNITS.index(unit) for unit in levels if unit in UNITS]
    if not ranks or any(b <= a for a, b in pairwise(ranks)):
        faults.append(f"hierarchy {name!r}: levels name one unit or more, finest first, e.g. month, year")
    try:
        first, last = np.datetime64(start, "D"), np.datetime64(end, "D")
        if not 0 <= int((last - first).astype(np.int64)) < MAX_LEAVES:
            faults.append(f"hierarchy {name!r}: end must not lie before start (nor 2^22 days after it)")
    except ValueError:
        faults.append(f"hierarchy {name!r}: start and end are days such as 2020-10-01")
    raise_faults(DomainError, faults)
    all_days = np.arange(first, last + 1)
    marks = [_date_labels(all_days, unit) for unit in levels]
    leaf_of_day = np.concatenate(([0], np.cumsum(marks[0][1:] != marks[0][:-1]))).astype(np.int64)

    def group(low: int, high: int, level: int) -> tuple[Node, ...]:
        part = marks[level][low:high]
        edges = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), part.size]
        return tuple((str(part[a]), group(low + a, low + b, level - 1) if level else ()) for a, b in pairwise(edges))

    root = (ROOT, group(0, all_days.size, len(levels) - 1))
    return _build(name, "dates", root, DateReader(first, leaf_of_day), missing=missing, ordered=True)


def _date_labels(day: NDArray[np.datetime64], unit: str) -> NDArray[np.str_]:
    year = day.astype("datetime64[Y]").astype(np.int64) + 1970
    month = day.astype("datetime64[M]").astype(np.int64) % 12
    if unit == "day":
        return day.astype(str)
    if unit == "month":
        return day.astype("datetime64[M]").astype(str)
    if unit == "quarter":
        return np.char.add(np.char.add(year.astype(str), "-Q"), (month // 3 + 1).astype(str))
    if unit == "year":
        return year.astype(str)
    return np.char.add((year // 10 * 10).astype(str), "s")


def _category_tree(name: str, root: Node, missing: str | None) -> Hierarchy:
    place: dict[str, int] = {}
    tree = _build(name, "categories", root, CategoryReader(place), missing=missing)
    place.update({label: leaf for leaf, label in enumerate(tree.leaf_labels)})
    return tree


def _build(
    name: str, kind: Kind, root: Node, reader: Any, *, missing: str | None = None, ordered: bool = False
) -> Hierarchy:
    """Number the nodes, check that the labels tell them apart, and freeze the arrays."""
    labels: list[str] = []
    parents: list[int] = []
    lows: list[int] = []
    highs: list[int] = []
    leaf = 0

    def walk(node: Node, parent: int) -> None:
        nonlocal leaf
        label, children = node
        while len(children) == 1 and children[0][0] == label:  # ARX repeats a label where nothing is generalised
            label, children = children[0]
        number = len(labels)
        labels.append(label)
        parents.append(parent)
        lows.append(leaf)
        highs.append(0)
        if not children:
            leaf += 1
        for child in children:
            walk(child, number)
        highs[number] = leaf

    label, children = root
    if missing is not None and not _has_leaf(root, missing):
        children = (*children, (missing, ()))
    walk((label, children), -1)
    faults = []
    if not name or not isinstance(name, str):
        faults.append("a hierarchy needs the name of its column")
    if len(set(labels)) != len(labels):
        twice = sorted({label for label in labels if labels.count(label) > 1})[:10] if len(labels) < 5000 else ["..."]
        faults.append(f"hierarchy {name!r}: labels are at two places of the tree: {', '.join(map(repr, twice))}")
    if any(not isinstance(label, str) or not label for label in labels):
        faults.append(f"hierarchy {name!r}: labels must be text, not empty")
    if leaf > MAX_LEAVES:
        faults.append(f"hierarchy {name!r}: more than 2^22 leaves")
    raise_faults(DomainError, faults)
    parent, low, high = (np.array(x, dtype=np.int64) for x in (parents, lows, highs))
    for array in (parent, low, high):
        array.flags.writeable = False
    return Hierarchy(name, kind, tuple(labels), parent, low, high, reader, ordered, missing)


def _has_leaf(node: Node, label: str) -> bool:
    return (not node[1] and node[0] == label) or any(_has_leaf(child, label) for child in node[1])


def _cycles(parent_of: Mapping[str, str]) -> list[str]:
    """Labels that come back to themselves on the way up, each cycle once."""
    found: list[str] = []
    done: set[str] = set()
    for start in parent_of:
        path: dict[str, None] = {}
        label = start
        while label in parent_of and label not in done and label not in path:
            path.setdefault(label)
            label = parent_of[label]
        if label in path:
            found.append(label)
        done.update(path)
    return found
