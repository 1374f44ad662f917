"""Regions: a public tree of places (states and counties, prefectures and municipalities) with names and shapes."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults
from kasuri.schema import columns, places, systems
from kasuri.schema.axis import ELSEWHERE, Axis, elsewhere_faults, name_faults
from kasuri.schema.columns import Found, Place

_SHOWN = 10


@dataclass(frozen=True, init=False)
class Regions(Axis):
    """A public tree of places. Records hold the code of a place without places below it (or a point, where there are
    shapes); every place, of any level, can be asked for by its code or by a name.

    `table` is a file (CSV; GeoJSON, TopoJSON, GeoPackage, Shapefile with their shapes), several of them, a mapping of
    columns, or an Arrow table. The column `code` holds codes as text. A place is below the one that its column `parent`
    names (empty: at the top), or, with `prefix=(2, 5)`, below the one whose code is the first 2 of its 5 characters.
    `names` are columns of names, such as ("name", "name_ja"); left out, all that are called so. `levels` names the
    levels from the top. `crs` is the system of the shapes where the file does not say it, `points` that of records;
    `repair` allows outlines that cross themselves, as simplified ones do; `tolerance` is the share of the smaller of
    two places that both may cover (a point there is in the first of them). `elsewhere` declares one more place at the
    top, "elsewhere", for records with any other code or point.

    >>> Regions("place", {"code": ["01", "02", "01001"], "name": ["Ala.", "Alaska", "Autauga"]}, prefix=(2, 5)).labels
    ('01001', '02')
    """

    name: str
    every: tuple[str, ...] = field(repr=False)
    """The codes of all places, each before those below it."""
    parents: tuple[str, ...] = field(repr=False)
    """The code of the place above each; empty at the top."""
    titles: tuple[tuple[str, tuple[str, ...]], ...] = field(repr=False)
    """Columns of names: what each is called, and a name (or nothing) for every place."""
    levels: tuple[str, ...]
    shapes: tuple[bytes, ...] | None = field(repr=False)
    """Outlines of the places that records hold, as WKB."""
    crs: str
    points: str
    elsewhere: bool
    kind: ClassVar[str] = "regions"
    outline_type: ClassVar[str] = "MultiPolygon"
    holds_points: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        table: places.Source,
        *,
        code: str = "code",
        parent: str | None = None,
        prefix: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        levels: Sequence[str] = (),
        layers: Sequence[str] = (),
        crs: str | None = None,
        repair: bool = False,
        tolerance: float = places.TOLERANCE,
        points: str = systems.DEGREES,
        elsewhere: bool = False,
    ) -> None:
        faults = (
            name_faults(name) + elsewhere_faults(name, elsewhere) + systems.faults(points, f"axis {name!r}: points")
        )
        try:
            found, wrong = places.read(table, code, parent, names, layers, crs)
        except KasuriError as error:
            raise type(error)(*faults, *error.faults) from None
        above = found.parents
        if prefix is not None:
            if parent is not None:
                wrong.append("give prefix or a parent column, not both")
            found, above, odd = places.by_prefix(found, prefix)
            wrong += odd
        above = above or ("",) * len(found.codes)
        list_faults = [f"axis {name!r}: {fault}" for fault in wrong] + places.faults(found, above, name)
        if elsewhere and ELSEWHERE in found.codes:
            list_faults.append(f"axis {name!r}: a place has the code {ELSEWHERE!r}; rename it, or leave elsewhere out")
        if not list_faults:
            parents = dict(zip(found.codes, above, strict=True))
            order = _order(parents)
            self._set(
                name=name,
                every=order,
                parents=tuple(parents[one] for one in order),
                titles=tuple((title, _sorted(values, found.codes, order)) for title, values in found.titles.items()),
                levels=tuple(levels),
                shapes=None,
                crs=found.crs,
                points=points,
                elsewhere=elsewhere,
            )
            faults += self._level_faults()
        faults += list_faults
        if found.shapes is not None:
            unknown = systems.faults(found.crs, f"axis {name!r}: crs") if found.crs else []
            shapes = dict(zip(found.codes, found.shapes, strict=True))
            # of a list that is not a tree, those that are there and that no place names as its parent
            held = [c for c, shape in shapes.items() if shape and c not in set(above)] if list_faults else self._held
            system = "" if unknown else found.crs
            told, more = places.outlines([shapes[c] for c in held], held, system, name, repair, tolerance)
            faults += unknown + more
            object.__setattr__(self, "shapes", told)
        raise_faults(DomainError, faults)

    def _set(self, **fields: Any) -> None:
        for what, value in fields.items():
            object.__setattr__(self, what, value)

    def _level_faults(self) -> list[str]:
        """What is wrong with the names of its levels; numbers are put where none are given."""
        deepest = max(len(path) for path in self._paths.values())
        if not self.levels:
            object.__setattr__(self, "levels", tuple(str(depth) for depth in range(1, deepest + 1)))
        faults = []
        if len(self.levels) != deepest or len(set(self.levels)) != deepest:
            faults.append(f"axis {self.name!r}: {deepest} levels need as many different names, from the top")
        if not all(re.fullmatch("[A-Za-z0-9_]+", level) and level != "meta" for level in self.levels):
            faults.append(f"axis {self.name!r}: names of levels are of letters, digits and underscores, and not meta")
        return faults

    def to_json(self) -> dict[str, Any]:
        shapes = None
        if self.shapes is not None:
            data = base64.b64encode(zlib.compress(b"".join(self.shapes), 9)).decode()
            shapes = {"lengths": [len(shape) for shape in self.shapes], "wkb": data}
        titles: Any = {title: list(values) for title, values in self.titles}
        if list(titles) != sorted(titles):  # a manifest sorts keys, and tables have their columns in this order
            titles = [[title, values] for title, values in titles.items()]
        return {
            "kind": self.kind, "name": self.name, "codes": list(self.every), "parents": list(self.parents),
            "titles": titles, "levels": list(self.levels),
            "shapes": shapes, "crs": self.crs, "points": self.points,
            **({"elsewhere": True} if self.elsewhere else {}),
        }  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        titles = dict(fields["titles"])
        told = {"code": fields["codes"], "parent": fields["parents"], **titles}
        given = {"points": fields["points"], "elsewhere": fields.get("elsewhere", False)}
        out = cls(fields["name"], told, names=tuple(titles), levels=fields["levels"], **given)
        if out.every != tuple(fields["codes"]):
            raise FormatError("regions: places are not in the order of their tree")
        if fields["shapes"] is not None:
            raise_faults(DomainError, systems.faults(fields["crs"], f"axis {out.name!r}: crs"))
            object.__setattr__(out, "shapes", _cut(fields["shapes"], len(out._held)))
            object.__setattr__(out, "crs", fields["crs"])
        return out

    @cached_property
    def _paths(self) -> dict[str, tuple[int, ...]]:
        """Child numbers from the root of every place."""
        seen: dict[str, int] = {}
        paths: dict[str, tuple[int, ...]] = {"": ()}
        for code, above in zip(self.every, self.parents, strict=True):
            paths[code] = (*paths[above], seen.get(above, 0))
            seen[above] = seen.get(above, 0) + 1
        del paths[""]
        return paths

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """The range of labels below every place, itself where it is one."""
        above = dict(zip(self.every, self.parents, strict=True))
        spans: dict[str, tuple[int, int]] = {}
        for at, label in enumerate(self._held):
            code = label
            while code:
                spans[code] = (spans.get(code, (at, at))[0], at + 1)
                code = above[code]
        return spans

    @cached_property
    def _held(self) -> tuple[str, ...]:
        """The places that have none below them."""
        groups = set(self.parents)
        return tuple(code for code in self.every if code not in groups)

    @cached_property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]  # made once, when it is asked for
        return (*self._held, ELSEWHERE) if self.elsewhere else self._held

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.labels),)

    @property
    def declared(self) -> tuple[int, ...]:
        return (len(self._held),)

    def mapped(self) -> Regions:
        if not self.elsewhere:
            return self
        out = object.__new__(Regions)
        out._set(**{part.name: getattr(self, part.name) for part in fields(self)})
        out._set(elsewhere=False)
        return out

    @property
    def grouped(self) -> bool:
        return len(self.levels) > 1

    def tree_paths(self) -> tuple[tuple[int, ...], ...]:
        paths = tuple(self._paths[label] for label in self._held)
        return (*paths, (sum(not above for above in self.parents),)) if self.elsewhere else paths

    def where(self) -> str | None:
        return None if self.shapes is None else self.crs

    @property
    def epsg(self) -> int | None:
        return None if self.shapes is None else systems.number(self.crs)

    def named(self, text: str) -> list[str]:
        """The codes of the places that a text names: a code, a name, or a name and that of a place above it
        ("Cook County, Illinois")."""
        if text in self._paths:
            return [text]
        found = self._by_name.get(text, [])
        first, comma, above = text.rpartition(", ")
        if not found and comma:
            over = dict(zip(self.every, self.parents, strict=True))
            for code in self._by_name.get(first, []):
                up = over[code]
                while up and above not in (up, *self._names_of(up)):
                    up = over[up]
                found = [*found, code] if up else found
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for _, values in self.titles:
            for code, name in zip(self.every, values, strict=True):
                if name and code not in out.setdefault(name, []):
                    out[name].append(code)
        return out

    @cached_property
    def _at(self) -> dict[str, int]:
        return {code: i for i, code in enumerate(self.every)}

    def _names_of(self, code: str) -> list[str]:
        return [values[self._at[code]] for _, values in self.titles if values[self._at[code]]]

    def span(self, label: str) -> tuple[int, int] | None:
        """A name that several places have is refused with their codes."""
        if self.elsewhere and label == ELSEWHERE:
            return len(self._held), len(self.labels)
        found = self.named(label)
        if len(found) > 1:
            over = dict(zip(self.every, self.parents, strict=True))
            said = [" in ".join([code, *self._names_of(over[code])[:1]]) if over[code] else code for code in found]
            more = "" if len(said) <= _SHOWN else f" and {len(said) - _SHOWN} more"
            raise DomainError(
                f"{self.name}: {len(found)} places are called {label!r}: {', '.join(said[:_SHOWN])}{more}; ask by "
                "code, or by name, a comma and the place above it"
            )
        return self._spans[found[0]] if found else None

    def shown(self) -> list[str] | None:
        """Codes with the first name of each."""
        shown = [" ".join([label, *self._names_of(label)[:1]]) for label in self._held]
        return [*shown, ELSEWHERE] if self.elsewhere else shown

    @property
    def column_names(self) -> tuple[str, ...]:
        return (self.name, *(f"{self.name}_{title}" for title, _ in self.titles))

    def column(self, index: Sequence[Int]) -> dict[str, Any]:
        import pyarrow as pa

        leaves = np.array([*(self._at[label] for label in self._held), len(self.every)])
        at = pa.array(leaves[index[0]])
        out = {self.name: pa.array([*self.every, ELSEWHERE], pa.string()).take(at)}
        told = {title: pa.array([*values, ""], pa.string()) for title, values in self.titles}
        return out | {f"{self.name}_{title}": values.take(at) for title, values in told.items()}

    def code_level(self, code: str) -> str | None:
        return self.levels[len(self._paths[code]) - 1] if code in self._paths else None

    def place_faults(self, place: Place) -> list[str]:
        if not isinstance(place, Mapping):
            return super().place_faults(place)
        return [] if self.shapes else [f"axis {self.name!r} has no shapes, so coordinates cannot place it; give codes"]

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        if not isinstance(place, Mapping):
            return super().indices(place, parts)
        y, x = map(columns.degrees, parts)
        found = self.holding(y, x, self.points)
        if self.elsewhere:
            found = np.where((found < 0) & systems.real(self.points, y, x), len(self._held), found)
        return [np.maximum(found, 0)], found < 0, f"not a point in {self.points} inside a place of axis {self.name!r}"

    def from_arrow(self, place: Place, parts: Sequence[Any]) -> Found:
        if isinstance(place, Mapping):
            return self.indices(place, [columns.from_arrow(part, self.name, True) for part in parts])
        return super().from_arrow(place, parts)

    def _labelled(self, column: Any, labels: tuple[str, ...]) -> Found:
        if not self.elsewhere:
            return super()._labelled(column, labels)
        # a declared place that has others below it says which of them as little as no code at all
        found = columns.labelled(column, labels, others=lambda code: -1 if code in self._paths else len(self._held))
        return [np.maximum(found, 0)], found < 0, f"not a code for axis {self.name!r}"

    def holding(self, y: Float, x: Float, crs: str) -> Int:
        return places.find(self._index, *systems.mover(crs, self.crs)(y, x))

    def covering(self, outlines: Any, crs: str) -> Int:
        return places.most(self._index, outlines, systems.mover(crs, self.crs))

    def gaps(self) -> list[tuple[float, float, float]]:
        """Ground that places enclose and none covers (lakes, slivers), the largest first: (x, y) inside it in their
        system, and its part of the ground they cover. A point there is in no place."""
        return places.gaps(self.shapes or ())

    @cached_property
    def _index(self) -> places.Index:
        return places.index(self.shapes or ())

    @property
    def own_level(self) -> str | None:
        return self.levels[-1]

    @property
    def level_names(self) -> tuple[str, ...]:
        return self.levels[-2::-1]

    def coarsened(self, level: str) -> tuple[Axis, list[tuple[Int, Int]]]:
        """Places of a level, and those above it that have none below them, so that every level has the same total."""
        if level not in self.level_names:
            raise DomainError(f"axis {self.name!r} has no level {level!r}; use {', '.join(self.level_names) or 'none'}")
        if level not in self._coarse:
            self._coarse[level] = self._coarsened(level)
        return self._coarse[level]

    @cached_property
    def _coarse(self) -> dict[str, tuple[Axis, list[tuple[Int, Int]]]]:
        """Levels that were asked for: joining outlines takes long."""
        return {}

    def _coarsened(self, level: str) -> tuple[Axis, list[tuple[Int, Int]]]:
        depth = self.levels.index(level) + 1
        coarse = self._only([i for i, code in enumerate(self.every) if len(self._paths[code]) <= depth])
        spans = [self._spans[label] for label in coarse._held]
        if self.shapes is not None:
            object.__setattr__(coarse, "shapes", tuple(places.union(self.shapes[low:high]) for low, high in spans))
        spans += [(len(self._held), len(self.labels))] * self.elsewhere
        object.__setattr__(coarse, "elsewhere", self.elsewhere)
        low, high = np.array(spans, dtype=np.int64).T
        return coarse, [(low, high)]

    def _only(self, keep: Sequence[int]) -> Regions:
        """Some of all places, those above them among them, still without shapes."""
        told: dict[str, Sequence[str]] = {
            "code": [self.every[i] for i in keep], "parent": [self.parents[i] for i in keep],
            **{title: [values[i] for i in keep] for title, values in self.titles},
        }  # fmt: skip
        titles = tuple(title for title, _ in self.titles)
        deepest = max(len(self._paths[self.every[i]]) for i in keep)
        out = Regions(self.name, told, names=titles, levels=self.levels[:deepest], points=self.points)
        object.__setattr__(out, "crs", self.crs)
        return out

    def part(self, index: Int) -> Regions:
        above = dict(zip(self.every, self.parents, strict=True))
        wanted = set()
        for at in index.tolist():
            code = self.labels[at]
            while code and code not in wanted:
                wanted.add(code)
                code = above[code]
        out = self._only([i for i, code in enumerate(self.every) if code in wanted])
        if self.shapes is not None:
            object.__setattr__(out, "shapes", tuple(self.shapes[at] for at in index.tolist()))
        return out

    def outlines(self, index: Sequence[Int]) -> Any:
        import pyarrow as pa

        return pa.array(self.shapes or (), pa.binary()).take(pa.array(index[0]))

    def extent(self) -> tuple[float, float, float, float]:
        return places.extent(self.shapes or ())


def _order(parents: Mapping[str, str]) -> tuple[str, ...]:
    """All places, each before those below it and these before the next one, as they are listed."""
    below: dict[str, list[str]] = {}
    for code, above in parents.items():
        below.setdefault(above, []).append(code)
    out: list[str] = []
    left = below[""][::-1]
    while left:
        out.append(left.pop())
        left += below.get(out[-1], [])[::-1]
    return tuple(out)


def _sorted(values: Sequence[str], codes: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    found = dict(zip(codes, values, strict=True))
    return tuple(found[code] for code in order)


def _cut(stored: Mapping[str, Any], count: int) -> tuple[bytes, ...]:
    """The shapes that `to_json` wrote."""
    lengths = np.array(stored["lengths"], dtype=np.int64)
    unpack = zlib.decompressobj()
    most = int(lengths.sum())
    if lengths.size != count or (lengths < 9).any() or most > places.MAX_BYTES:
        raise FormatError("regions: one shape is needed for every place that records hold")
    data = unpack.decompress(base64.b64decode(stored["wkb"], validate=True), most + 1)
    if len(data) != most:
        raise FormatError("regions: its shapes have another length than they say")
    ends = np.cumsum(lengths).tolist()
    return tuple(data[low:high] for low, high in zip([0, *ends], ends, strict=False))
