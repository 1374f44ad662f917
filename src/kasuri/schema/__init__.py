"""What is public about a table: its axes, its impossible cells, and the unit that is protected.

Nothing here is ever taken from data. A cell is one number: the row-major (C order) index over `Domain.shape`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import meshcode, names
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, raise_faults

MAX_CELLS = 1 << 62
"""Largest cell index and largest total: both fit int64 with room for noise."""

MAX_MASK = 1 << 30
"""Most cells under one mask read from a file: it is held as an array."""

PROVIDER_BOUNDED = "the provider bounded each unit's contributions (the table came pre-aggregated)"
"""The caveat of a table that was counted elsewhere."""

ROWS_ALONE = "rows depend on their own id alone"
"""What a person vouches for where kasuri cannot see that each record is mapped by itself."""

RESERVED = ("cell", "col", "lower", "mesh_code", "release_id", "row", "upper", "value")
"""Columns of every release, which no axis may be called."""

WINDOWS: dict[str, tuple[str, tuple[int, int], tuple[int, int]]] = {
    "japan": ("500m", (4864, 3584), (6144, 5376)),
    "japan4096": ("500m", (6912, 3328), (4096, 4096)),
    "kanto": ("500m", (8400, 6080), (512, 512)),
    "kinki": ("500m", (8040, 5440), (512, 512)),
    "kyushu": ("500m", (7560, 4688), (512, 512)),
    "tohoku": ("500m", (9000, 6240), (512, 512)),
}
"""Public windows of the 500 m mesh: name -> (level, (row, col) of the south-west cell, (rows, cols)). "japan" holds the
whole country; "japan4096" is the square of the papers, without Okinawa and Ogasawara."""


@dataclass(frozen=True)
class Mesh:
    """A rectangle of grid cells. `level` names a JIS X 0410 level; None is a plain grid of rows and columns, without
    codes, without a place on earth (`crs` then says nothing) and so without map formats. `origin` is the (row, col) of
    its south-west cell in cells of that level, `shape` its (rows, cols)."""

    name: str
    level: str | None = None
    origin: tuple[int, int] = (0, 0)
    shape: tuple[int, int] = field(kw_only=True)
    crs: str = field(default="JGD2011", kw_only=True)
    kind: ClassVar[str] = "mesh"

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", _pair(self.origin, "origin"))
        object.__setattr__(self, "shape", _pair(self.shape, "shape"))
        faults = _name_faults(self.name)
        if min(self.shape) < 1:
            faults.append(f"mesh {self.name!r}: shape {self.shape} must be at least one row and one column")
        if self.crs not in meshcode.DATUMS:
            faults.append(f"mesh {self.name!r}: crs {self.crs!r} is not known; use {', '.join(meshcode.DATUMS)}")
        if self.level is not None:
            side = 100 * meshcode.level(self.level).per_first
            ends = [start + size for start, size in zip(self.origin, self.shape, strict=True)]
            if min(self.origin) < 0 or max(ends) > side:
                faults.append(f"mesh {self.name!r}: origin {self.origin} + shape {self.shape} leaves the JIS grid")
        raise_faults(DomainError, faults)

    @classmethod
    def window(cls, name: str, window: str, *, level: str = "500m") -> Mesh:
        """A public window by name (see WINDOWS), or the first-order mesh of a four-digit code such as "5339"."""
        if window in WINDOWS:
            own, origin, shape = WINDOWS[window]
            if level != own:
                raise DomainError(f"window {window!r} is a {own} window; give origin and shape for level {level}")
            return cls(name, own, origin, shape=shape)
        if window.isdigit() and len(window) == 4:
            per = meshcode.level(level).per_first
            return cls(name, level, (int(window[:2]) * per, int(window[2:]) * per), shape=(per, per))
        raise DomainError(
            f"window {window!r} is not known; use {', '.join(WINDOWS)}, a first-order mesh such as 5339, "
            "or give origin and shape"
        )

    @property
    def dims(self) -> tuple[str, ...]:
        return ("row", "col")

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "level": self.level,
            "origin": list(self.origin),
            "shape": list(self.shape),
            "crs": self.crs,
        }


@dataclass(frozen=True)
class Ordered:
    """Categories in an order that matters (age bands, income classes); `labels` may name them."""

    name: str
    size: int
    labels: tuple[str, ...] | None = None
    kind: ClassVar[str] = "ordered"

    def __post_init__(self) -> None:
        faults = _name_faults(self.name)
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            faults.append(f"axis {self.name!r}: size must be a positive whole number")
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(self.labels))
            faults += _label_faults(self.name, self.labels, self.size)
        raise_faults(DomainError, faults)

    @property
    def dims(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.size,)

    def to_json(self) -> dict[str, Any]:
        labels = None if self.labels is None else list(self.labels)
        return {"kind": self.kind, "name": self.name, "size": self.size, "labels": labels}


@dataclass(frozen=True)
class Tree:
    """A public hierarchy over labels, any fan-outs: a node is a label (leaf) or (name, children).

    >>> Tree.of({"east": ["a", "b"], "west": ["c"]}).leaves
    ('a', 'b', 'c')
    """

    children: tuple[Any, ...]

    @classmethod
    def of(cls, nested: Mapping[str, Any] | Sequence[Any]) -> Tree:
        return cls(_tree_children(nested))

    def __post_init__(self) -> None:
        raise_faults(DomainError, names.first(_tree_names(self.children), "a tree's node"))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        return tuple(label for label, _ in self.paths)

    @cached_property
    def paths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(label, child numbers from the root) of every leaf, left to right."""
        found: list[tuple[str, tuple[int, ...]]] = []

        def walk(children: tuple[Any, ...], path: tuple[int, ...]) -> None:
            for i, child in enumerate(children):
                if isinstance(child, str):
                    found.append((child, (*path, i)))
                else:
                    walk(child[1], (*path, i))

        walk(self.children, ())
        return tuple(found)

    def to_json(self) -> list[Any]:
        def out(children: tuple[Any, ...]) -> list[Any]:
            return [child if isinstance(child, str) else {child[0]: out(child[1])} for child in children]

        return out(self.children)


@dataclass(frozen=True)
class Nominal:
    """Categories without an order; `tree` may group them. Recipes with order="hierarchy" (or "jis", or the nominal
    transform) measure the groups; recipes along another tree refuse a domain that declares one."""

    name: str
    labels: tuple[str, ...]
    tree: Tree | None = None
    kind: ClassVar[str] = "nominal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        faults = _name_faults(self.name) + _label_faults(self.name, self.labels, len(self.labels))
        if not self.labels:
            faults.append(f"axis {self.name!r}: at least one label is needed")
        if self.tree is not None and sorted(self.tree.leaves) != sorted(self.labels):
            faults.append(f"axis {self.name!r}: the leaves of its tree must be its labels, each once")
        raise_faults(DomainError, faults)

    @property
    def dims(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def to_json(self) -> dict[str, Any]:
        tree = None if self.tree is None else self.tree.to_json()
        return {"kind": self.kind, "name": self.name, "labels": list(self.labels), "tree": tree}


@dataclass(frozen=True)
class Time:
    """Equal steps of time from a public start, e.g. Time("hour", "2020-10-01T00:00", seconds=3600, size=24)."""

    name: str
    start: str
    seconds: int
    size: int
    kind: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        faults = _name_faults(self.name)
        try:
            datetime.fromisoformat(self.start)
        except (TypeError, ValueError):
            faults.append(f"axis {self.name!r}: start must be an ISO 8601 time such as 2020-10-01T00:00")
        else:
            faults += names.faults(self.start, f"axis {self.name!r}: start")  # any character may stand for the T
        for what in ("seconds", "size"):
            value = getattr(self, what)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                faults.append(f"axis {self.name!r}: {what} must be a positive whole number")
        raise_faults(DomainError, faults)

    @property
    def dims(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.size,)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "start": self.start,
            "seconds": self.seconds,
            "size": self.size,
        }


Axis = Mesh | Ordered | Nominal | Time


@dataclass(frozen=True)
class Mask:
    """Impossible cells of one axis, or of several axes together; `bits` packs a boolean array of `shape`."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    bits: bytes = field(repr=False)

    @classmethod
    def of(cls, axes: Sequence[str], impossible: ArrayLike) -> Mask:
        array = np.asarray(impossible)
        if array.dtype != np.bool_:
            raise DomainError(f"mask of {'x'.join(axes)}: a boolean array is needed, True where no one can be")
        return cls(tuple(axes), array.shape, np.packbits(array.ravel()).tobytes())

    def impossible(self) -> NDArray[np.bool_]:
        return _unpack(self.bits, self.shape)

    def to_json(self) -> dict[str, Any]:
        flat = self.impossible().ravel()
        edges = np.flatnonzero(np.diff(flat)) + 1
        runs = np.diff(np.concatenate(([0], edges, [flat.size]))).tolist()
        return {"axes": list(self.axes), "shape": list(self.shape), "first": bool(flat[0]), "runs": runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mask:
        runs = np.asarray(data["runs"], dtype=np.int64)
        cells = math.prod(data["shape"])
        if runs.ndim != 1 or (runs < 0).any() or not 0 < cells <= MAX_MASK or sum(runs.tolist()) != cells:
            raise FormatError(f"mask: its runs must add up to the cells of its shape, at most {MAX_MASK}")
        values = (np.arange(runs.size) % 2 == 1) ^ bool(data["first"])
        return cls.of(tuple(data["axes"]), np.repeat(values, runs).reshape(data["shape"]))


@lru_cache(maxsize=8)
def _unpack(bits: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    array = np.unpackbits(np.frombuffer(bits, np.uint8), count=math.prod(shape)).astype(bool).reshape(shape)
    array.flags.writeable = False
    return array


def _doubles(axes: Sequence[Axis]) -> list[str]:
    """Columns of a release table over `axes` whose names agree but for case."""
    several = sum(isinstance(axis, Mesh) for axis in axes) > 1
    made = [*RESERVED, "geom", "fid"]  # the last two in map formats
    for axis in axes:
        if not isinstance(axis, Mesh):
            made.append(axis.name)
        elif several:
            made += [f"{axis.name}_{part}" for part in ("mesh_code", "row", "col")]
    lower = [name.lower() for name in made]
    return [name for i, name in enumerate(made) if name.lower() in lower[:i]]


@dataclass(frozen=True)
class Domain:
    """The public shape of a table: its axes and its impossible cells (structural zeros, e.g. the sea)."""

    axes: tuple[Axis, ...]
    mask: tuple[Mask, ...] = ()

    @classmethod
    def of(cls, *axes: Axis, mask: ArrayLike | Mapping[str | tuple[str, ...], ArrayLike] | None = None) -> Domain:
        """A domain of these axes. `mask` is True where no one can be: an array over the whole `shape`, or a mapping
        from an axis name (or several) to an array over those axes, e.g. `mask={"grid": sea}`."""
        if mask is None:
            return cls(axes)
        if not isinstance(mask, Mapping):
            return cls(axes, (Mask.of([axis.name for axis in axes], mask),))
        return cls(axes, tuple(Mask.of((k,) if isinstance(k, str) else k, array) for k, array in mask.items()))

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not self.axes:
            faults.append("a domain needs at least one axis")
        names = [axis.name for axis in self.axes]
        faults += [f"axis name {name!r} is used twice" for name in {n for n in names if names.count(n) > 1}]
        taken = [axis.name for axis in self.axes if not isinstance(axis, Mesh) and axis.name in RESERVED]
        faults += [f"axis name {name!r} is a column of every release; choose another" for name in taken]
        if not faults:
            faults += [f"column {name!r} of a release would stand twice (databases ignore case); rename an axis"
                       for name in _doubles(self.axes)]  # fmt: skip
        if len(self.shape) > 60:
            faults.append(f"the domain has {len(self.shape)} dimensions; at most 60 can be handled")
        if math.prod(self.shape) > MAX_CELLS:
            faults.append(f"the domain has {math.prod(self.shape)} cells; at most 2^62 can be indexed")
        masked = [name for mask in self.mask for name in mask.axes]
        faults += [f"axis {name!r} appears in two masks; give one mask over the axes together"
                   for name in {n for n in masked if masked.count(n) > 1}]  # fmt: skip
        by_name = {axis.name: axis for axis in self.axes}
        for mask in self.mask:
            unknown = [name for name in mask.axes if name not in by_name]
            if unknown:
                faults.append(f"mask over unknown axes {unknown}; the axes are {names}")
                continue
            wanted = tuple(size for name in mask.axes for size in by_name[name].sizes)
            if wanted != mask.shape:
                faults.append(f"mask of {'x'.join(mask.axes)} has shape {mask.shape}; the axes have {wanted}")
            elif mask.impossible().all():
                faults.append(f"mask of {'x'.join(mask.axes)} leaves no possible cell")
        raise_faults(DomainError, faults)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all dimensions; a mesh has two (rows, cols)."""
        return tuple(size for axis in self.axes for size in axis.sizes)

    @property
    def size(self) -> int:
        """Number of cells, impossible ones included."""
        return math.prod(self.shape)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of all dimensions: `row` and `col` for a single mesh, `<name>_row` and `<name>_col` for several."""
        several = sum(isinstance(axis, Mesh) for axis in self.axes) > 1
        return tuple(
            f"{axis.name}_{dim}" if several and isinstance(axis, Mesh) else dim
            for axis in self.axes
            for dim in axis.dims
        )

    @property
    def grouped(self) -> tuple[str, ...]:
        """Axes whose labels have a declared tree."""
        return tuple(axis.name for axis in self.axes if isinstance(axis, Nominal) and axis.tree is not None)

    @property
    def one_mesh(self) -> bool:
        """Is the table one mesh and nothing else?"""
        return len(self.axes) == 1 and isinstance(self.axes[0], Mesh)

    def axis(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise DomainError(f"no axis {name!r}; the axes are {[axis.name for axis in self.axes]}")

    def positions(self, name: str) -> tuple[int, ...]:
        """The dimensions of `shape` that belong to axis `name`."""
        start = 0
        for axis in self.axes:
            if axis.name == name:
                return tuple(range(start, start + len(axis.sizes)))
            start += len(axis.sizes)
        raise DomainError(f"no axis {name!r}; the axes are {[axis.name for axis in self.axes]}")

    def ravel(self, indices: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """One index array per dimension -> cells. Indices must lie inside `shape`."""
        cells = np.zeros(np.broadcast_shapes(*(np.shape(i) for i in indices)), dtype=np.int64)
        for index, size in zip(indices, self.shape, strict=True):
            cells *= size
            cells += np.asarray(index, dtype=np.int64)
        return cells

    def unravel(self, cells: ArrayLike) -> tuple[NDArray[np.int64], ...]:
        """Cells -> one index array per dimension."""
        rest = np.asarray(cells, dtype=np.int64)
        out = []
        for size in reversed(self.shape):
            rest, index = np.divmod(rest, size)
            out.append(index)
        return tuple(reversed(out))

    def possible(self, cells: ArrayLike) -> NDArray[np.bool_]:
        """True where a cell (inside the shape) is not masked."""
        array = np.asarray(cells, dtype=np.int64)
        good = np.ones(array.shape, dtype=bool)
        if self.mask:
            index = self.unravel(array)
            for mask in self.mask:
                where = tuple(index[p] for name in mask.axes for p in self.positions(name))
                good &= ~mask.impossible()[where]
        return good

    def possible_dense(self) -> NDArray[np.bool_]:
        """`possible` for every cell, in `shape`. Dense recipes only."""
        good = np.ones(self.shape, dtype=bool)
        for mask in self.mask:
            dims = [p for name in mask.axes for p in self.positions(name)]
            spread = np.transpose(mask.impossible(), np.argsort(dims))
            good &= ~np.expand_dims(spread, tuple(d for d in range(len(self.shape)) if d not in dims))
        return good

    def to_json(self) -> dict[str, Any]:
        return {"axes": [axis.to_json() for axis in self.axes], "mask": [mask.to_json() for mask in self.mask]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Domain:
        """The domain `to_json` wrote; FormatError for anything else."""
        try:
            return cls(
                tuple(_axis_from_json(axis) for axis in data["axes"]), tuple(Mask.from_json(m) for m in data["mask"])
            )
        except KasuriError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise FormatError("not a domain: a field is missing or malformed") from None


Change = Literal["add-remove", "replace"]


@dataclass(frozen=True)
class Unit:
    """Who is protected: the only source of sensitivity.

    `id` names the id column; `change` is the neighbour relation: "add-remove" (a unit and all its records enter or
    leave) or "replace" (a unit's records change, the unit stays). One unit adds at most `max_cells` counts, or
    `max_cells * max_weight` where records carry a weight.
    """

    id: str
    change: Change
    max_cells: int
    max_weight: int | None = None

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.id, str) or not self.id:
            faults.append("unit: id must name the column that tells one unit from another")
        else:
            faults += names.faults(self.id, "unit: id")
        if self.change not in ("add-remove", "replace"):
            faults.append('unit: change must be "add-remove" or "replace"')
        for what in ("max_cells", "max_weight"):
            value = getattr(self, what)
            if value is None and what == "max_weight":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 40:
                faults.append(f"unit: {what} must be a whole number from 1 to 2^40")
        raise_faults(PrivacyError, faults)

    @property
    def most(self) -> int:
        """The most one unit adds to the table, over all cells (c in the proofs)."""
        return self.max_cells * (self.max_weight or 1)

    def words(self) -> str:
        """The relation in words, for a certificate."""
        weight = "" if self.max_weight is None else f", each counted at most {self.max_weight} times"
        cells = "1 cell" if self.max_cells == 1 else f"at most {self.max_cells} cells"
        act = "enters or leaves the data" if self.change == "add-remove" else "changes its records"
        return f"one {self.id}, in {cells}{weight}, {act}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "change": self.change,
            "max_cells": self.max_cells,
            "max_weight": self.max_weight,
        }


@dataclass(frozen=True)
class Part:
    """Which part of a public partition a table is: `split` is drawn once per `Counts.split`, `name` a public label."""

    split: str
    name: str

    def __post_init__(self) -> None:
        raise_faults(PrivacyError, [*names.faults(self.split, "a split"), *names.faults(self.name, "a part's name")])


def _pair(value: Any, what: str) -> tuple[int, int]:
    try:
        a, b = (int(x) for x in value)
    except (TypeError, ValueError):
        raise DomainError(f"{what} must be two whole numbers (rows, cols)") from None
    return a, b


def _name_faults(name: object) -> list[str]:
    if isinstance(name, str) and name.isidentifier():
        return []
    return [f"axis name {name!r} must be a plain name (letters, digits, underscore)"]


def _label_faults(name: str, labels: Sequence[Any], size: int) -> list[str]:
    faults = []
    if any(not isinstance(label, str) for label in labels):
        faults.append(f"axis {name!r}: labels must be text")
    else:
        faults += names.first(labels, f"axis {name!r}: label")
    if len(set(labels)) != len(labels):
        faults.append(f"axis {name!r}: labels must differ from one another")
    if len(labels) != size:
        faults.append(f"axis {name!r}: {len(labels)} labels for size {size}")
    return faults


def _tree_children(nested: Any) -> tuple[Any, ...]:
    if isinstance(nested, Mapping):
        return tuple((str(name), _tree_children(below)) for name, below in nested.items())
    if isinstance(nested, str) or not isinstance(nested, Sequence):
        raise DomainError("a tree is a mapping {name: children} or a list of labels and such mappings")
    out: list[Any] = []
    for child in nested:
        if isinstance(child, str):
            out.append(child)
        else:
            out.extend(_tree_children(child))
    if not out:
        raise DomainError("a tree node needs at least one child")
    return tuple(out)


def _tree_names(children: Sequence[Any]) -> list[str]:
    """The names of all nodes, leaves among them."""
    return [
        name
        for child in children
        for name in ([child] if isinstance(child, str) else [child[0], *_tree_names(child[1])])
    ]


def _axis_from_json(data: Mapping[str, Any]) -> Axis:
    kind = data.get("kind")
    fields = {key: value for key, value in data.items() if key != "kind"}
    if kind == "mesh":
        return Mesh(**fields)
    if kind == "ordered":
        return Ordered(**fields)
    if kind == "time":
        return Time(**fields)
    if kind == "nominal":
        tree = fields.pop("tree")
        return Nominal(**fields, tree=None if tree is None else Tree.of(tree))
    raise DomainError(f"axis kind {kind!r} is not known")
