"""Recoding: which columns identify people, the tree of each, and which columns are sensitive. All of it public."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri import names
from kasuri.arrays import Int
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults, rows_faults
from kasuri.kanon import hierarchy
from kasuri.kanon.columns import arrow_of, cells_of, ranked, table_of
from kasuri.kanon.hierarchy import MISSING, OUTSIDE, Hierarchy
from kasuri.schema import Domain, Mesh

Small = NDArray[np.int32]
Order = Literal["nominal", "ordered"]
Cut = tuple[Int, ...]
"""Per attribute: the node that stands for each leaf."""

_FIELDS = {
    "categories": {"tree", "file"},
    "numbers": {"low", "high", "widths", "open_low", "open_high"},
    "mesh": {"level", "window", "origin", "shape", "levels"},
    "dates": {"start", "end", "levels"},
}


@dataclass(frozen=True)
class Sensitive:
    """A column that is published unchanged and looked at by l-diversity and t-closeness; `order` decides how far two
    distributions are apart: "nominal" (every value equally far) or "ordered" (by rank)."""

    name: str
    order: Order = "nominal"


@dataclass(frozen=True, eq=False)
class Recoding:
    """The specification of a k-anonymised release.

    `attributes` are the quasi-identifiers with their trees, `sensitive` the columns published as they are. Columns
    that are neither are never published.

    >>> age = hierarchy.numbers("age", 0, 100, [10, 50])
    >>> Recoding.of(age, sensitive={"illness": "nominal"})
    Recoding(age, sensitive=illness)
    """

    attributes: tuple[Hierarchy, ...]
    sensitive: tuple[Sensitive, ...] = ()

    @classmethod
    def of(cls, *attributes: Hierarchy, sensitive: Mapping[str, Order] | Sequence[str] = ()) -> Recoding:
        kinds = sensitive if isinstance(sensitive, Mapping) else dict.fromkeys(sensitive, "nominal")
        return cls(tuple(attributes), tuple(Sensitive(name, order) for name, order in kinds.items()))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        faults = []
        if not self.attributes:
            faults.append("a recoding needs at least one attribute with a hierarchy")
        every = [*(tree.name for tree in self.attributes), *(column.name for column in self.sensitive)]
        faults += [f"column {name!r} is named twice" for name in sorted({n for n in every if every.count(n) > 1})]
        faults += names.first((column.name for column in self.sensitive), "the name of sensitive column")
        faults += [
            f'sensitive column {column.name!r}: order must be "nominal" or "ordered"'
            for column in self.sensitive
            if not isinstance(column.order, str) or column.order not in ("nominal", "ordered")
        ]
        raise_faults(DomainError, faults)

    def __repr__(self) -> str:
        names = ", ".join(tree.name for tree in self.attributes)
        sensitive = ", ".join(column.name for column in self.sensitive)
        return f"Recoding({names}{f', sensitive={sensitive}' if sensitive else ''})"

    @classmethod
    def load(cls, path: str | Path) -> Recoding:
        """Read a TOML file: one table [attributes.NAME] per quasi-identifier, and `sensitive = {...}`.

        Files it names are looked for beside it. Every fault of every table is reported at once.
        """
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise DomainError(f"{path}: no such file") from None
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}: not a TOML file ({error})") from None
        return cls.from_dict(data, path.parent, str(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], folder: Path = Path(), file: str = "recoding") -> Recoding:
        """The same from a mapping of the TOML file's shape."""
        faults = [f"{file}: unknown entry {key!r}; use attributes, sensitive" for key in data
                  if key not in ("attributes", "sensitive")]  # fmt: skip
        attributes, sensitive = data.get("attributes"), data.get("sensitive", {})
        if not isinstance(attributes, Mapping) or not attributes:
            faults.append(f"{file}: one table [attributes.NAME] per quasi-identifier is needed")
            attributes = {}
        if not isinstance(sensitive, (Mapping, list)):
            faults.append(f'{file}: sensitive must read {{ column = "nominal" }} or ["column"]')
            sensitive = {}
        elif not all(isinstance(name, str) and name for name in sensitive):
            faults.append(f'{file}: sensitive names columns, e.g. ["income"]')
            sensitive = {}
        trees = []
        for name, entry in attributes.items():
            try:
                trees.append(_tree(name, entry, folder))
            except KasuriError as error:
                faults += [f"{file}: [attributes.{name}]: {fault}" for fault in error.faults]
        raise_faults(FormatError, faults)
        return cls.of(*trees, sensitive=sensitive)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tree.name for tree in self.attributes)

    def check_covers(self, domain: Domain) -> None:
        """Raise unless every value of every axis of a declared domain falls on a leaf of the tree of that name.

        >>> from kasuri.schema import Nominal
        >>> Recoding.of(hierarchy.categories("sex", ["f", "m"])).check_covers(Domain.of(Nominal("sex", ("f", "m"))))
        """
        faults = []
        trees = {tree.name: tree for tree in self.attributes}
        for axis in domain.axes:
            if axis.name not in trees:
                faults.append(f"axis {axis.name!r} has no hierarchy; there are {list(trees)}")
                continue
            left_out = int((trees[axis.name].reader.read(_values(axis.codes())) < 0).sum())
            if left_out:
                faults.append(f"hierarchy {axis.name!r} leaves out {left_out} values of the declared axis")
        raise_faults(DomainError, faults)

    def cut(self, chosen: Mapping[str, int | Sequence[str]]) -> Cut:
        """A generalisation written down beforehand: per attribute a depth (0 = the root) or the labels to write.

        >>> age = hierarchy.numbers("age", 0, 100, [10, 50])
        >>> [age.labels[i] for i in np.unique(Recoding.of(age).cut({"age": 1})[0])]
        ['0-49', '50-99']
        """
        if not isinstance(chosen, Mapping):
            raise DomainError('a cut maps every attribute to a depth or to labels, e.g. {"age": 2}')
        faults = [
            f"cut: no attribute {name!r}; there are {list(self.names)}" for name in chosen if name not in self.names
        ]
        faults += [f"cut: attribute {name!r} is missing; 0 writes its root alone" for name in self.names
                   if name not in chosen]  # fmt: skip
        out = []
        for tree in self.attributes:
            choice = chosen.get(tree.name, 0)
            if isinstance(choice, bool) or not isinstance(choice, (int, list, tuple)) or choice in ((), []):
                faults.append(f"cut: attribute {tree.name!r} takes a depth or a list of labels")
            elif isinstance(choice, int):
                if choice < 0:
                    faults.append(f"cut: the depth of {tree.name!r} is 0 (root) or more")
                out.append(tree.at_depth(max(choice, 0)))
            else:
                try:
                    out.append(tree.by_nodes(choice))
                except DomainError as error:
                    faults += error.faults
        raise_faults(DomainError, faults)
        return tuple(out)


def _values(codes: Any) -> Any:
    """The values of an axis as an Arrow array: one that is missing where they cannot be told."""
    import pyarrow as pa

    return pa.nulls(1) if codes is None else pa.array(codes)


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """Rows as leaf numbers, confidential: one array per attribute and per sensitive column."""

    spec: Recoding
    rows: int
    leaves: tuple[Small, ...]
    sensitive: tuple[Small, ...]
    sensitive_sizes: tuple[int, ...]
    sensitive_values: tuple[Any, ...]
    good: NDArray[np.bool_]
    """Rows without any fault."""

    def __repr__(self) -> str:
        return f"Coded(confidential, {self.spec!r})"


def encode(rows: Any, spec: Recoding, *, file: str = "rows", drop: bool = False) -> Coded:
    """Leaf numbers of every row. A value that is not a leaf, or is missing without a declared category, is a fault.

    All faults of all columns are raised at once, by row and never by value; with `drop` they are only marked in
    `good` (a release that claims differential privacy must not refuse because of one record).
    """
    table = table_of(rows)
    faults = absent(table.columns, spec, file)
    raise_faults(DomainError, faults)
    size = len(table)
    good = np.ones(size, dtype=bool)
    leaves: list[Small] = []
    for tree in spec.attributes:
        code = tree.reader.read(cells_of(table, tree.name))
        if tree.missing is not None:
            code[code == MISSING] = tree.leaf_labels.index(tree.missing)
        for sign, rule in (
            (OUTSIDE, "a value is not a leaf of its hierarchy"),
            (MISSING, 'a value is missing; declare missing = "label" in its hierarchy or leave the row out'),
        ):
            faults += rows_faults(file, tree.name, rule, (np.flatnonzero(code == sign) + 1).tolist())
        good &= code >= 0
        leaves.append(np.maximum(code, 0).astype(np.int32))
    sensitive, sizes, values = [], [], []
    for column in spec.sensitive:
        arrow = arrow_of(table, column.name)
        code, count = ranked(arrow)
        rule = "a sensitive value is missing; leave the row out or fill it in"
        faults += rows_faults(file, column.name, rule, (np.flatnonzero(code < 0) + 1).tolist())
        good &= code >= 0
        sensitive.append(np.maximum(code, 0).astype(np.int32))
        sizes.append(count)
        values.append(arrow)
    if not drop:
        raise_faults(DomainError, faults)
    return Coded(spec, size, tuple(leaves), tuple(sensitive), tuple(sizes), tuple(values), good)


def absent(present: Sequence[str], spec: Recoding, file: str) -> list[str]:
    """Columns of a recoding that a table does not have; the others are not named: without a header they are data."""
    wanted = [*spec.names, *(column.name for column in spec.sensitive)]
    return [f"{file}: no column {name!r}; is there a header line?" for name in wanted if name not in present]


def _tree(name: str, entry: Any, folder: Path) -> Hierarchy:
    """One [attributes.NAME] table."""
    if not isinstance(entry, Mapping) or str(entry.get("kind")) not in _FIELDS:
        raise FormatError(f"kind must be one of {', '.join(_FIELDS)}")
    kind, missing = str(entry["kind"]), entry.get("missing")
    fields = {key: value for key, value in entry.items() if key not in ("kind", "missing")}
    faults = [f"unknown entry {key!r}; {kind} takes {', '.join(sorted(_FIELDS[kind]))}, missing" for key in fields
              if key not in _FIELDS[kind]]  # fmt: skip
    if missing is not None and (not isinstance(missing, str) or not missing):
        faults.append("missing must be a label")
    if kind == "categories":
        needed = [] if len(fields.keys() & {"tree", "file"}) == 1 else ["either tree or file"]
    elif kind == "mesh":
        placed = "window" in fields or {"origin", "shape"} <= fields.keys()
        needed = [
            *(x for x in ("level", "levels") if x not in fields),
            *([] if placed else ["window, or origin and shape"]),
        ]
    else:
        needed = [x for x in sorted(_FIELDS[kind]) if x not in fields and not x.startswith("open_")]
    faults += [f"{kind} needs {what}" for what in needed]
    raise_faults(FormatError, faults)
    try:
        if kind == "numbers":
            return hierarchy.numbers(name, **fields, missing=missing)
        if kind == "dates":
            start, end = (str(fields[key])[:10] for key in ("start", "end"))
            return hierarchy.dates(name, start, end, fields["levels"], missing=missing)
        if kind == "mesh":
            if "window" in fields:
                window = Mesh.window(_plain(name), str(fields["window"]), level=fields["level"])
            else:
                window = Mesh(_plain(name), fields["level"], tuple(fields["origin"]), shape=tuple(fields["shape"]))
            return hierarchy.mesh(name, window, fields["levels"], missing=missing)
        if "file" in fields:
            return hierarchy.categories_csv(name, folder / fields["file"], missing=missing)
        return hierarchy.categories(name, fields["tree"], missing=missing)
    except KasuriError:
        raise
    except RecursionError:
        raise FormatError(f"{kind}: the tree has too many levels") from None
    except (TypeError, AttributeError, OverflowError, ValueError):
        raise FormatError(f"{kind}: an entry has the wrong type") from None


def _plain(name: str) -> str:
    return name if name.isidentifier() else "mesh"
