"""An axis as it is written in a job file or on the command line: one model per kind, which makes its axis itself."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from kasuri.errors import DomainError, KasuriError
from kasuri.ingest.labels import read_labels
from kasuri.job.parameters import File, Part, arguments, form_faults, same_file, split
from kasuri.schema import H3, Axis, Grid, Mesh, Nominal, Ordered, Regions, Time, Tree

Elsewhere = Annotated[bool, Field(description="One more cell for records at any other place.")]


class AxisPart(Part):
    """One axis; `make` builds it."""

    name: str

    @property
    def file(self) -> str | None:
        """The public file that its labels are read from."""
        return None

    @abstractmethod
    def make(self, base: Path) -> Axis:
        """The axis; its file is relative to `base`."""

    @classmethod
    @abstractmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        """The keys that a short form on the command line stands for, KIND(words); ValueError where it is not one."""


class MeshAxis(AxisPart):
    kind: Literal["mesh"]
    level: str | None = Field(None, description="80km, 10km, 5km, 2km, 1km, 500m, 250m, 125m")
    window: str | None = Field(None, description="A public window by name, or a first-order mesh such as 5339.")
    origin: tuple[int, int] | None = Field(None, description="(row, col) of the south-west cell, with shape.")
    shape: tuple[int, int] | None = None
    crs: str = "JGD2011"
    elsewhere: Elsewhere = False

    def make(self, base: Path) -> Mesh:
        if self.window is not None:
            if self.origin is not None or self.shape is not None:
                raise DomainError(f"axis {self.name!r}: give window, or origin and shape, not both")
            made = Mesh.window(self.name, self.window, level=self.level or "500m")
            return replace(made, crs=self.crs, elsewhere=self.elsewhere)
        if self.shape is None:
            raise DomainError(f"axis {self.name!r}: the public window is missing: window, or origin and shape")
        given: dict[str, Any] = {"shape": self.shape, "crs": self.crs, "elsewhere": self.elsewhere}
        return Mesh(self.name, self.level, self.origin or (0, 0), **given)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 1:
            raise ValueError("mesh(WINDOW), or origin=[ROW, COL], shape=[ROWS, COLS]")
        return {"window": words[0]}


Points = Annotated[str, Field(description="EPSG code of the coordinates in records: lat and lon, or north and east.")]
Number = int | str


class GridAxis(AxisPart):
    kind: Literal["grid"]
    scheme: str | None = Field(None, description="A grid with codes, such as eu, geohash, jis or quadkey.")
    level: str | None = Field(None, description="A level of the scheme, such as 1km (eu) or 17 (quadkey).")
    window: tuple[str, str] | None = Field(None, description="Codes of its south-west and its north-east cell.")
    origin: tuple[int, int] | None = Field(None, description="(row, col) of the south-west cell, with shape.")
    shape: tuple[int, int] | None = None
    crs: str | None = Field(None, description="Without a scheme: the EPSG code of its reference system.")
    step: Number | tuple[Number, Number] | None = Field(
        None, description='Without a scheme: the side of a cell in units of crs, exactly: 1000, "0.1", "1/120".'
    )
    anchor: tuple[Number, Number] | None = Field(
        None, description="Without a scheme: (north, east) of the south-west corner of cell (0, 0)."
    )
    splits: list[int] | None = Field(
        None, description="Into how many rows (and columns) each level of the tree splits the one above it."
    )
    points: Points = "EPSG:4326"
    elsewhere: Elsewhere = False

    def make(self, base: Path) -> Grid:
        given: dict[str, Any] = {"splits": self.splits, "points": self.points, "elsewhere": self.elsewhere}
        if self.window is not None:
            if self.scheme is None or any((self.origin, self.shape, self.level, self.crs, self.step, self.anchor)):
                raise DomainError(f"axis {self.name!r}: window goes with scheme alone; its codes hold level and place")
            return Grid.window(self.name, self.scheme, *self.window, **given)
        if self.shape is None:
            raise DomainError(f"axis {self.name!r}: the public window is missing: window, or origin and shape")
        given |= {"scheme": self.scheme, "level": self.level, "crs": self.crs or "", "step": self.step}
        return Grid(self.name, origin=self.origin or (0, 0), shape=self.shape, anchor=self.anchor, **given)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 3:
            raise ValueError("grid(SCHEME,SOUTH_WEST_CODE,NORTH_EAST_CODE), or the keys of a job file")
        return {"scheme": words[0], "window": words[1:]}


class H3Axis(AxisPart):
    kind: Literal["h3"]
    resolution: int = Field(description="0 to 15.")
    within: list[str] = Field(default_factory=list, description="H3 indices that hold its cells; none: the earth.")
    points: Points = "EPSG:4326"
    elsewhere: Elsewhere = False

    def make(self, base: Path) -> H3:
        return H3(self.name, self.resolution, tuple(self.within), points=self.points, elsewhere=self.elsewhere)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        return {"resolution": words[0], "within": words[1:]}


class RegionsAxis(AxisPart):
    kind: Literal["regions"]
    places: File = Field(
        description="A public list of places, relative to this job file: .csv, or .geojson, .topojson, .gpkg, .shp."
    )
    layers: list[str] = Field(default_factory=list, description="The layers of a file of shapes that are read.")
    code: str = Field("code", description="The column of codes.")
    parent: str | None = Field(None, description="The column of the code above; parent, where there is one.")
    prefix: list[int] | None = Field(None, description="Lengths of codes by level, from the top: [2, 5].")
    names: list[str] | None = Field(None, description="Columns of names; those called name or name_..., unless given.")
    levels: list[str] = Field(
        default_factory=list, description='Names of the levels from the top: ["state", "county"].'
    )
    crs: str | None = Field(None, description="EPSG code of the shapes, where the file does not say it.")
    repair: bool = Field(False, description="Repair outlines that cross themselves.")
    tolerance: float = Field(1e-6, ge=0, le=0.5, description="Share of a place that another may cover as well.")
    points: Points = "EPSG:4326"
    elsewhere: Elsewhere = False

    @property
    def file(self) -> str | None:
        return self.places

    def make(self, base: Path) -> Regions:
        given = self.model_dump(exclude={"kind", "name", "places"})
        return Regions(self.name, base / self.places, **given)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 1 or not words[0].startswith("@"):
            raise ValueError("regions(@FILE), or the keys of a job file")
        return {"places": words[0][1:]}


class TimeAxis(AxisPart):
    kind: Literal["time"]
    start: str
    seconds: int
    size: int

    def make(self, base: Path) -> Time:
        return Time(self.name, self.start, self.seconds, self.size)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 3:
            raise ValueError("time(START,SECONDS,STEPS)")
        return {"start": words[0], "seconds": words[1], "size": words[2]}


LabelsFile = Annotated[
    File | None,
    Field(
        description="A public CSV file, relative to this job file: a column code (or label), and where a tree groups "
        "them a column parent."
    ),
]


class OrderedAxis(AxisPart):
    kind: Literal["ordered"]
    size: int | None = Field(None, description="Number of categories; not needed with labels.")
    labels: list[str] | None = None
    labels_file: LabelsFile = None

    @model_validator(mode="after")
    def _told(self) -> OrderedAxis:
        if self.size is None and self.labels is None and self.labels_file is None:
            raise ValueError("give size, labels or labels_file")
        _once(self.labels, self.labels_file)
        return self

    @property
    def file(self) -> str | None:
        return self.labels_file

    def make(self, base: Path) -> Ordered:
        labels = None if self.labels is None else tuple(self.labels)
        if self.labels_file is not None:
            labels, tree = read_labels(base / self.labels_file)
            if tree is not None:
                raise DomainError(
                    f"axis {self.name!r}: an ordered axis takes no tree; leave the column parent of "
                    f"{self.labels_file} out, or declare the axis nominal"
                )
        return Ordered(self.name, len(labels or ()) if self.size is None else self.size, labels)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if len(words) == 1 and words[0].isdecimal():
            return {"size": words[0]}
        return _labels(words)


def _grouped(nested: Any) -> Any:
    try:
        Tree.of(nested)
    except KasuriError as error:
        raise ValueError("; ".join(error.faults)) from None
    except RecursionError:
        raise ValueError("the tree has too many levels") from None
    return nested


class NominalAxis(AxisPart):
    kind: Literal["nominal"]
    labels: list[str] | None = Field(None, description="Not needed with labels_file or tree.")
    labels_file: LabelsFile = None
    tree: Annotated[dict[str, Any] | list[Any], AfterValidator(_grouped)] | None = Field(
        None, description='Groups of labels, nested at will: { east = ["a", "b"], west = ["c"] }.'
    )
    elsewhere: bool = Field(False, description="One more label for records with any other one.")

    @model_validator(mode="after")
    def _told(self) -> NominalAxis:
        if self.labels is None and self.labels_file is None and self.tree is None:
            raise ValueError("give labels, labels_file or tree")
        _once(self.labels, self.labels_file)
        return self

    @property
    def file(self) -> str | None:
        return self.labels_file

    def make(self, base: Path) -> Nominal:
        tree = None if self.tree is None else Tree.of(self.tree)
        labels = None if self.labels is None else tuple(self.labels)
        if self.labels_file is not None:
            labels, found = read_labels(base / self.labels_file)
            if tree is not None and found is not None:
                raise DomainError(
                    f"axis {self.name!r}: its tree is given twice; leave tree, or the column parent of "
                    f"{self.labels_file}, out"
                )
            tree = tree or found
        if labels is None:
            labels = () if tree is None else tree.leaves
        return Nominal(self.name, labels, tree, elsewhere=self.elsewhere)

    @classmethod
    def short(cls, words: list[str]) -> dict[str, Any]:
        if not any("(" in word for word in words):
            return _labels(words)
        return {"tree": [_group(word) for word in words]}


def _once(labels: list[str] | None, file: str | None) -> None:
    if labels is not None and file is not None:
        raise ValueError("give labels or labels_file, not both")


def _labels(words: list[str]) -> dict[str, Any]:
    """The labels themselves, or @FILE."""
    if len(words) == 1 and words[0].startswith("@"):
        return {"labels_file": words[0][1:]}
    return {"labels": words}


def _group(word: str) -> str | dict[str, list[Any]]:
    """A label, or GROUP(label,...)."""
    name, bracket, inside = word.partition("(")
    if not bracket:
        return word
    if not inside.endswith(")"):
        raise ValueError("a closing bracket is missing")
    return {name.strip(): [_group(part) for part in split(inside[:-1])]}


PARTS: dict[str, type[AxisPart]] = {
    "mesh": MeshAxis,
    "grid": GridAxis,
    "h3": H3Axis,
    "regions": RegionsAxis,
    "ordered": OrderedAxis,
    "nominal": NominalAxis,
    "time": TimeAxis,
}
if TYPE_CHECKING:
    AnyAxis = AxisPart
else:
    AnyAxis = Annotated[reduce(or_, PARTS.values()), Field(discriminator="kind")]


def parse(text: str) -> AxisPart:
    """One axis as it is written on the command line: NAME=KIND(...), with labels or numbers in the brackets, or with
    the keys of a job file in TOML.

    >>> parse("sex=nominal(f,m)").make(Path())
    Nominal(name='sex', labels=('f', 'm'), tree=None, elsewhere=False)
    >>> parse("ward=nominal(east(a,b),west(c))").make(Path()).labels
    ('a', 'b', 'c')
    >>> parse('age=ordered(size=3, labels=["0-", "20-", "65-"])').make(Path()).size
    3
    """
    name, equals, rest = (part.strip() for part in text.partition("="))
    kind, bracket, inside = rest.partition("(")
    kind, inside = kind.strip(), inside.rstrip()
    if not equals or not bracket or not inside.endswith(")") or "\n" in text:
        raise DomainError(f"axis {text[:80]!r}: write NAME=KIND(...), such as sex=nominal(f,m) or age=ordered(18)")
    if kind not in PARTS:
        raise DomainError(f"axis {name}: kind {kind!r} is not known; use {', '.join(PARTS)}")
    inside = inside[:-1].strip()
    try:
        if re.match(r"[a-z_]+\s*=", inside):
            given = arguments(inside)
        else:
            if set(inside) & set("\"'"):
                raise ValueError('text in quotes goes with a key, as in a job file: labels=["a, b", "c"]')
            given = PARTS[kind].short(split(inside))
    except (ValueError, RecursionError) as error:
        raise DomainError(f"axis {name}: what is in the brackets cannot be read ({error})") from None
    twice = [key for key in ("name", "kind") if key in given]
    if twice:
        raise DomainError(f"axis {name}: its {twice[0]} goes before the bracket")
    content = {**given, "kind": kind, "name": name}
    try:
        found: AxisPart = TypeAdapter(AnyAxis).validate_python(content)
    except ValidationError as error:
        raise DomainError(*(f"axis {name}: {words}" for _, words in form_faults(error, content))) from None
    return found


def not_public(part: AxisPart, sources: Sequence[Any], base: Path) -> list[str]:
    """How the public file of an axis is (or may be) one of the confidential `sources`."""
    if part.file is None:
        return []
    found = [fault for source in sources for fault in same_file(base / part.file, source)]
    return [f"the labels file of axis {part.name!r} {fault}" for fault in dict.fromkeys(found)]
