"""What every axis answers for itself: `Axis`, and `Plane` for axes that are rows and columns side by side.

An axis is one dimension with labels or plain indices unless its class says otherwise; nothing outside this package asks
which class it is. To add a kind: one class in a file here and in `kinds.KINDS`, its part of a job file in `job.axes`,
its page in docs.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kasuri import names
from kasuri.arrays import Bool, Float, Int
from kasuri.errors import DomainError
from kasuri.schema import columns
from kasuri.schema.columns import Found, Place
from kasuri.schema.drawing import SIDE, Drawing, drawn

_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?|[+-]?[0-9]+/[0-9]+")
_VAST = Fraction(10) ** 60
"""No public number is as large, or but for 0 as near to 0: its square and the square of that are ordinary doubles."""


def rational(value: object) -> Fraction | None:
    """The exact number that a public description says (a decimal, p/q, a whole number); None where it says none, or one
    that would fill the memory, such as "1e999999999".

    >>> rational("1/120"), rational(0.5), rational("1e999999999")
    (Fraction(1, 120), Fraction(1, 2), None)
    """
    if isinstance(value, bool) or not isinstance(value, Rational | float | Decimal | str):
        return None
    try:
        text = str(value).strip()  # ValueError: a whole number of more than 4,300 digits
        found = Fraction(text) if len(text) <= 400 and _NUMBER.fullmatch(text) else None
    except (ValueError, ZeroDivisionError):
        return None
    return found if found is not None and (not found or 1 / _VAST < abs(found) < _VAST) else None


class Axis(ABC):
    """One axis of a public domain: a frozen value. What is here suits one dimension of labels or indices."""

    kind: ClassVar[str]
    """The word for the class in stored domains and job files."""
    timed: ClassVar[bool] = False
    """Its columns may hold times."""
    ordered: ClassVar[bool] = False
    """Does the order of its indices mean something, so that there is a median along it?"""

    name: str
    elsewhere: bool = False
    """Is one more cell declared, for records outside all the others? It is the last one, or of a plane one more row."""
    labels: tuple[str, ...] | None = None
    """The names of its indices, as records and released tables write them; None where indices have none."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """The size of each of its dimensions."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Its kind and its fields, as a stored domain holds them."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The axis whose fields (`to_json` without the kind) these are."""
        return cls(**fields)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dimensions."""
        return (self.name,)

    @property
    def declared(self) -> tuple[int, ...]:
        """The size of each of its dimensions as masks are declared over it."""
        return self.sizes

    def mapped(self) -> Axis:
        """The axis as a map shows it: without a cell elsewhere, which has no place there."""
        return self

    @property
    def residual(self) -> tuple[tuple[int, int], ...] | None:
        """The half-open range along each of its dimensions that holds the cell elsewhere and no other possible one;
        None where none is declared."""
        return ((self.sizes[0] - 1, self.sizes[0]),) if self.elsewhere else None

    def inside(self, index: Sequence[Int]) -> Bool:
        """Which cells are not the one elsewhere."""
        found = self.residual
        return np.ones(np.shape(index[0]), dtype=bool) if found is None else index[0] < found[0][0]

    @property
    def plane(self) -> Plane | None:
        """The axis as rows and columns side by side; None where its cells have no neighbours on a plane."""
        return None

    @property
    def grouped(self) -> bool:
        """Are its indices grouped by a declared tree?"""
        return False

    def where(self) -> str | None:
        """The reference system its cells lie in; None where they have no place on earth."""
        return None

    @property
    def epsg(self) -> int | None:
        """The EPSG number of the system that the outlines of its cells are in; None where they have no outline."""
        return None

    outline_type: ClassVar[str] = "Polygon"
    """What `outlines` holds."""

    def outlines(self, index: Sequence[Int]) -> Any:
        """The outline of each cell as WKB, counter-clockwise, in an Arrow binary array; where there is an `epsg`."""
        raise DomainError(f"the cells of axis {self.name!r} have no outline")

    def centres(self, index: Sequence[Int]) -> tuple[Float, Float]:
        """(y, x) of the middle of each cell, in the system of its outlines."""
        raise DomainError(f"the cells of axis {self.name!r} have no outline")

    holds_points: ClassVar[bool] = False
    """Is it a list of places, which says what holds a point (`holding`) or covers an outline?"""

    def holding(self, y: Float, x: Float, crs: str) -> Int:
        """The index of the place in which each point of a reference system is; -1 where it is in none."""
        raise DomainError(f"axis {self.name!r} is not a list of places")

    def covering(self, outlines: Any, crs: str) -> Int:
        """The index of the place that covers most of each outline (WKB, in a reference system); -1 where none does."""
        raise DomainError(f"axis {self.name!r} is not a list of places")

    def gaps(self) -> list[tuple[float, float, float]]:
        """Ground inside that is in none of its cells: (x, y) and its part of the whole."""
        return []

    def part(self, index: Int) -> Axis:
        """The places of these rising indices alone, with the places above them."""
        raise DomainError(f"axis {self.name!r} is not a list of places")

    def extent(self) -> tuple[float, float, float, float]:
        """West, south, east and north of all of it, in the system of its outlines."""
        raise DomainError(f"the cells of axis {self.name!r} have no outline")

    def drawing(self, level: str | None = None, *, side: int = SIDE) -> Drawing:
        """Its places, or those of a coarser level, simplified for a map whose longer side is `side` units.

        >>> axis.drawing("state").rings                                     # doctest: +SKIP
        """
        if self.epsg is None or self.plane is not None:
            raise DomainError(f"axis {self.name!r} has no shapes to draw (the cells of a grid are rows and columns)")
        own = np.arange(self.sizes[0])
        axis, ((low, high),) = (self, [(own, own + 1)]) if level in (None, self.own_level) else self.coarsened(level)
        every = [np.arange(axis.declared[0])]
        low, high = low[: every[0].size], high[: every[0].size]
        width, height, rings = drawn(axis.outlines(every).to_pylist(), f"EPSG:{axis.epsg}", side)
        found = {name.removeprefix(f"{self.name}_"): tuple(c.to_pylist()) for name, c in axis.column(every).items()}
        codes = found.pop(self.name)
        spans = tuple(zip(low.tolist(), high.tolist(), strict=True))
        return Drawing(axis.own_level or "", width, height, codes, found, spans, rings)

    @property
    def own_level(self) -> str | None:
        """The name of its own level; None where it has none."""
        return None

    @property
    def level_names(self) -> tuple[str, ...]:
        """The coarser levels that its cells can be summed to."""
        return ()

    def coarsened(self, level: str) -> tuple[Axis, list[tuple[Int, Int]]]:
        """The axis of a coarser level, and per dimension the half-open ranges of own indices that its indices hold,
        rising and without a gap."""
        raise DomainError(f"axis {self.name!r} has no level {level!r}")

    def tree_paths(self) -> tuple[tuple[int, ...], ...] | None:
        """Per index the child numbers from the root of its tree; None where its indices are halved, bit by bit."""
        return None

    def span(self, label: str) -> tuple[int, int] | None:
        """The half-open range of indices that a label names; None where it names none."""
        if self.labels is None or label not in self.labels:
            return None
        at = self.labels.index(label)
        return at, at + 1

    def code_level(self, code: str) -> str | None:
        """The level of a code by its form; None where it has that of none, or the axis has no levels."""
        return None

    def codes(self) -> Any:
        """What a record writes for each cell of the axis, in order; None where one column cannot tell them."""
        return np.arange(self.sizes[0]) if self.labels is None else self.labels

    def shown(self) -> list[str] | None:
        """What people read for each index; None where it is its number."""
        return None if self.labels is None else list(self.labels)

    def place_faults(self, place: Place) -> list[str]:
        """Why its cells cannot be found by these columns."""
        if isinstance(place, Mapping):
            return [f"axis {self.name!r} is not a mesh with a level, so coordinates cannot place it"]
        return [] if len(columns.names(place)) == 1 else [f"axis {self.name!r} needs exactly 1 column"]

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        """Index arrays from the columns of `place` (numpy arrays), which rows are wrong, and the rule they break."""
        if self.labels is not None:
            import pyarrow as pa

            return self._labelled(pa.array(parts[0].tolist(), from_pandas=True), self.labels)
        number, good = columns.whole(parts[0])
        good &= (number >= 0) & (number < self.sizes[0])
        return [np.where(good, number, 0)], ~good, f"not an index of axis {self.name!r} (0..{self.sizes[0] - 1})"

    def from_arrow(self, place: Place, parts: Sequence[Any]) -> Found:
        """`indices` of Arrow columns; missing entries are wrong."""
        if self.labels is not None:
            return self._labelled(parts[0], self.labels)
        decimals = isinstance(place, Mapping)
        return self.indices(place, [columns.from_arrow(part, self.name, decimals) for part in parts])

    def _labelled(self, column: Any, labels: tuple[str, ...]) -> Found:
        found = columns.labelled(column, labels)
        return [np.maximum(found, 0)], found < 0, f"not a label of axis {self.name!r}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns a released table has for it, at most."""
        return (self.name,)

    def column(self, index: Sequence[Int]) -> dict[str, Any]:
        """The columns of a released table for these indices, one array per dimension: Arrow arrays by name."""
        import pyarrow as pa

        at = pa.array(index[0])
        return {self.name: at if self.labels is None else pa.array(self.labels).take(at)}


@dataclass(frozen=True)
class Step:
    """A coarser level of a plane: its name, its own cells to a side of a coarse one, and how many of them the first
    coarse row and column lack at the window's south-west corner."""

    name: str
    side: int
    offset: tuple[int, int]


_WKB = np.dtype([("order", "u1"), ("kind", "<u4"), ("rings", "<u4"), ("points", "<u4"), ("xy", "<f8", (5, 2))])


class Plane(Axis):
    """An axis of two dimensions, rows and columns, whose cells lie side by side. A plane with a reference system
    (`where`) has codes, standard levels and a place on the map."""

    level: str | None
    """The name of its level among those of its scheme; None for a plain grid."""
    origin: tuple[int, int]
    """(row, col) of its south-west cell, counted in cells of its level."""
    shape: tuple[int, int]
    """(rows, cols)."""
    crs: str

    @property
    def plane(self) -> Plane:
        return self

    @property
    def dims(self) -> tuple[str, ...]:
        return ("row", "col")

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.shape[0] + self.elsewhere, self.shape[1])

    @property
    def declared(self) -> tuple[int, ...]:
        return self.shape

    def mapped(self) -> Plane:
        return dataclasses.replace(self, elsewhere=False) if self.elsewhere else self  # type: ignore[type-var]

    @property
    def residual(self) -> tuple[tuple[int, int], ...] | None:
        """One row more, of which only the first cell is possible."""
        return ((self.shape[0], self.shape[0] + 1), (0, self.shape[1])) if self.elsewhere else None

    def _within(self, row: Int, col: Int, good: Bool, rule: str, real: Bool | None = None) -> Found:
        """Records by the row and column of their cell, counted like `origin`. `good`: it is a cell of the grid; `real`,
        where that is more: they are at some place, be it in a cell or not."""
        row, col = row - self.origin[0], col - self.origin[1]
        inside = good & (row >= 0) & (row < self.shape[0]) & (col >= 0) & (col < self.shape[1])
        if not self.elsewhere:
            return [np.where(inside, row, 0), np.where(inside, col, 0)], ~inside, rule
        wrong = ~(inside | (good if real is None else real))
        return [np.where(inside, row, self.shape[0]), np.where(inside, col, 0)], wrong, rule

    def _shown(self, index: Sequence[Int], codes: str, encode: Callable[[Int, Int], Any] | None) -> dict[str, Any]:
        """The columns of a released table; null where records are elsewhere."""
        import pyarrow as pa
        import pyarrow.compute as pc

        row, col = index
        out: dict[str, Any] = {"row": pa.array(row), "col": pa.array(col)}
        inside = self.inside(index)
        if encode is not None:
            held = encode(np.where(inside, row, 0) + self.origin[0], col + self.origin[1])
            out = {codes: pa.array(held), **out}
        if inside.all():
            return out
        kept, gone = pa.array(inside), pa.nulls(inside.size)
        return {name: pc.if_else(kept, column, gone.cast(column.type)) for name, column in out.items()}

    @property
    def column_names(self) -> tuple[str, ...]:
        return ("mesh_code", "row", "col")

    @property
    @abstractmethod
    def levels(self) -> tuple[Step, ...]:
        """Its own level and every coarser one that it is made of."""

    @abstractmethod
    def at_level(self, level: str) -> Step:
        """The coarser level by name; DomainError where it is not made of whole cells."""

    @abstractmethod
    def coarser(self, step: Step) -> Plane:
        """The plane of a coarser level that holds this one."""

    @abstractmethod
    def nesting(self) -> tuple[int, ...] | None:
        """Into how many rows (and columns) each standard level splits the one above it, from the top; None where there
        are not standard levels."""

    @abstractmethod
    def area(self, code: str) -> tuple[slice, slice]:
        """The rows and columns of the cell, of its own level or a coarser one, that a code names."""

    @abstractmethod
    def edges(self, row: Int, col: Int) -> tuple[Float, Float, Float, Float]:
        """West, south, east and north of cells, in its reference system; neighbours share an edge to the last bit."""

    @property
    def jis_level(self) -> str | None:
        """Its level where that is one of JIS X 0410, whose codes the map of a report can write."""
        return None

    @property
    def code_scheme(self) -> str | None:
        """The word for the way its cells have codes; None where they have none."""
        return None if self.jis_level is None else "jis"

    @property
    def own_level(self) -> str | None:
        return self.level

    @property
    def level_names(self) -> tuple[str, ...]:
        return () if self.where() is None else tuple(step.name for step in self.levels if step.side > 1)

    def coarsened(self, level: str) -> tuple[Axis, list[tuple[Int, Int]]]:
        """A coarse cell that the window cuts holds the part inside the window."""
        step = self.at_level(level)
        coarse, spans = self.coarser(step), []
        for at, first, size, count in zip(self.origin, coarse.origin, self.shape, coarse.shape, strict=True):
            ends = np.clip((np.arange(count + 1, dtype=np.int64) + first) * step.side - at, 0, size)
            spans.append((ends[:-1], ends[1:]))
        if self.elsewhere:
            low, high = spans[0]
            spans[0] = np.append(low, self.shape[0]), np.append(high, self.shape[0] + 1)
        return coarse, spans

    def outlines(self, index: Sequence[Int]) -> Any:
        import pyarrow as pa

        west, south, east, north = self.edges(*index)
        out = np.zeros(index[0].size, dtype=_WKB)
        out["order"], out["kind"], out["rings"], out["points"] = 1, 3, 1, 5
        for i, (x, y) in enumerate(((west, south), (east, south), (east, north), (west, north), (west, south))):
            out["xy"][:, i, 0], out["xy"][:, i, 1] = x, y
        wide = pa.binary(_WKB.itemsize)
        return pa.FixedSizeBinaryArray.from_buffers(wide, out.size, [None, pa.py_buffer(out.tobytes())]).cast(
            pa.binary()
        )

    def centres(self, index: Sequence[Int]) -> tuple[Float, Float]:
        west, south, east, north = self.edges(*index)
        return (south + north) / 2, (west + east) / 2

    def extent(self) -> tuple[float, float, float, float]:
        ends = self.edges(np.array([0, self.shape[0] - 1]), np.array([0, self.shape[1] - 1]))
        return float(ends[0][0]), float(ends[1][0]), float(ends[2][1]), float(ends[3][1])

    @property
    @abstractmethod
    def aspect(self) -> float:
        """Height of a cell over its width on the ground."""


def pair(value: Any) -> tuple[int, int] | None:
    """Two whole numbers; None where `value` is something else."""
    try:
        a, b = (int(x) for x in value)
    except (TypeError, ValueError):
        return None
    return a, b


def name_faults(name: object) -> list[str]:
    """Why `name` cannot name an axis."""
    if isinstance(name, str) and name.isidentifier():
        return []
    return [f"axis name {name!r} must be a plain name (letters, digits, underscore)"]


def label_faults(name: str, labels: Sequence[Any], size: int) -> list[str]:
    """Why `labels` cannot name the `size` indices of axis `name`."""
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


ELSEWHERE = "elsewhere"
"""The label of records outside all declared ones."""
MOST_BEYOND = 1 << 27
"""Most cells of a plane with a cell elsewhere, its sides rounded up to powers of two: its one row more is held as an
array of impossible cells."""


def elsewhere_faults(name: str, elsewhere: object, shape: Sequence[int] = ()) -> list[str]:
    """Why an axis cannot have a cell elsewhere."""
    if not isinstance(elsewhere, bool):
        return [f"axis {name!r}: elsewhere is true or false"]
    padded = 1 << sum((size - 1).bit_length() for size in shape)
    if elsewhere and padded > MOST_BEYOND:
        return [f"axis {name!r}: a cell elsewhere beside {padded} padded cells cannot be held ({MOST_BEYOND} at most)"]
    return []


def number_faults(name: str, what: str, value: object) -> list[str]:
    """Why the field `what` of axis `name` is not a positive whole number."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    return [f"axis {name!r}: {what} must be a positive whole number"]
