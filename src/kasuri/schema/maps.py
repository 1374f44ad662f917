"""RegionMap: a public map from the cells of one axis to regions that need not follow its tree (municipalities), and
how it is made of a grid and places with shapes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import files, names
from kasuri.arrays import Bool, Int
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults
from kasuri.schema.axis import Axis
from kasuri.schema.kinds import axis_from_json

MAX_REGIONS = 1 << 22
"""Most regions of a map: all of them are drawn."""
MAX_MASK = 1 << 30
"""Most cells of a map that is read from a file: it is held as an array."""
MAX_FILE = 1 << 28
"""Bytes of the longest file of a map."""
_KIND = "kasuri map of regions 1"


@dataclass(frozen=True, eq=False)
class RegionMap:
    """Every cell of axis `axis` is in one region, or in none: `labels`, row-major over the axis' own dimensions, number
    the regions from 0 up, -1 for none. Declared public by `name`: it must not come from the confidential data.

    A cell is in one region at most, so one unit changes one region's count: that is what its share of epsilon pays for.
    """

    axis: str
    labels: NDArray[np.int64] = field(repr=False)
    name: str = field(kw_only=True)
    regions: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    """Their names, in the order of their numbers; empty: the numbers."""
    over: str = field(default="", kw_only=True, repr=False)
    """The digest of the axis it was made for (`digest`); empty: any of as many cells."""
    places: Axis | None = field(default=None, kw_only=True, repr=False)
    """The regions as an axis of that name, with their names, the places above them and their shapes."""

    def __init__(
        self,
        axis: str,
        labels: ArrayLike,
        *,
        name: str,
        regions: tuple[str, ...] = (),
        over: str = "",
        places: Axis | None = None,
    ) -> None:
        told = np.asarray(labels)
        faults = names.faults(name, "the name of a map") + names.faults(axis, f"map {name!r}: its axis")
        faults += names.first(regions, f"map {name!r}")
        if told.dtype.kind not in "iu":
            faults.append(
                f"map {name!r}: labels are whole numbers, one per cell of the axis (a cell lies in one region, -1: in "
                "none); a table of regions with several rows per cell would overlap"
            )
            told = np.zeros(1, dtype=np.int64)
        told = told.astype(np.int64).ravel()
        count = int(told.max(initial=-1)) + 1
        if told.min(initial=0) < -1:
            faults.append(f"map {name!r}: labels are 0 and above, or -1 for none")
        if not 0 < count <= MAX_REGIONS:
            faults.append(f"map {name!r}: it has {count} regions; 1 to {MAX_REGIONS} can be measured")
        if regions and len(regions) < count:
            faults.append(f"map {name!r}: {len(regions)} names are given for {count} regions")
        if len(set(regions)) != len(regions):
            faults.append(f"map {name!r}: two regions have one name")
        if places is not None and (places.name != name or places.labels != tuple(regions)):
            faults.append(f"map {name!r}: its places are an axis of the same name whose labels are its regions")
        raise_faults(DomainError, faults)
        told.flags.writeable = False
        given = {"axis": axis, "labels": told, "name": name, "regions": tuple(regions), "over": over, "places": places}
        for at, value in given.items():
            object.__setattr__(self, at, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RegionMap):
            return NotImplemented
        return self.fingerprint() == other.fingerprint() and self.places == other.places

    def __hash__(self) -> int:
        return hash((self.axis, self.name))

    @property
    def count(self) -> int:
        return max(int(self.labels.max()) + 1, len(self.regions))

    @property
    def codes(self) -> tuple[str, ...]:
        """What each region is asked for by."""
        return self.regions or tuple(map(str, range(self.count)))

    def inside(self, region: str) -> Bool:
        """Which cells of the axis are in a region, by its code or name, or in one of those below a place above."""
        span = None
        if self.places is not None:
            span = self.places.span(region)
        elif region in self.codes:
            span = (self.codes.index(region), self.codes.index(region) + 1)
        if span is None:
            raise DomainError(f"{self.name}: no region {region!r}")
        return (self.labels >= span[0]) & (self.labels < span[1])

    @property
    def without_places(self) -> RegionMap:
        """The same map, named by the codes of its regions alone."""
        return RegionMap(self.axis, self.labels, name=self.name, regions=self.regions, over=self.over)

    def to_json(self) -> dict[str, Any]:
        """Runs of equal labels: what a release stores, so that whoever reads it knows its regions."""
        starts = np.flatnonzero(np.diff(self.labels, prepend=-2))
        runs = np.diff(np.append(starts, self.labels.size))
        out = {"axis": self.axis, "name": self.name, "regions": list(self.regions), "runs": runs.tolist(),
               "labels": self.labels[starts].tolist()}  # fmt: skip
        out |= {"over": self.over} if self.over else {}
        return out | ({} if self.places is None else {"places": self.places.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RegionMap:
        runs, labels = (np.asarray(data[name], dtype=np.int64) for name in ("runs", "labels"))
        if runs.shape != labels.shape or (runs < 1).any() or sum(runs.tolist()) > MAX_MASK:
            raise FormatError(f"a map is runs of labels, at most {MAX_MASK} cells")
        places = None if data.get("places") is None else axis_from_json(data["places"])
        return cls(
            data["axis"], np.repeat(labels, runs), name=data["name"], regions=tuple(data["regions"]),
            over=data.get("over", ""), places=places,
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write it to a new file, whole or not at all, so that jobs and other people use the same map."""
        text = json.dumps({"kind": _KIND, **self.to_json()}, ensure_ascii=False, separators=(",", ":"))
        with files.whole(Path(path), new=True) as aside:
            aside.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> RegionMap:
        """The map that `save` or `kasuri geography match` wrote."""
        try:
            size = Path(path).stat().st_size
            data = json.loads(Path(path).read_text(encoding="utf-8")) if size <= MAX_FILE else None
        except OSError as error:
            raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or data.get("kind") != _KIND:
            raise FormatError(f"{path}: not a map of regions; make one with kasuri geography match")
        try:
            return cls.from_json(data)
        except KasuriError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise FormatError(f"{path}: a field of the map is missing or malformed") from None

    def along(self, axis: Axis) -> RegionMap:
        """The same over all cells of an axis: one elsewhere is in no region."""
        missing = int(np.prod(axis.sizes, dtype=object)) - self.labels.size
        if not missing:
            return self
        labels = np.append(self.labels, np.full(missing, -1))
        return RegionMap(
            self.axis, labels, name=self.name, regions=self.regions, over=self.over, places=self.places
        )  # fmt: skip

    def fingerprint(self) -> str:
        """A digest of all that it says: what releases name it by."""
        text = "\n".join((self.axis, self.name, *self.regions)).encode()
        made_for = b"\0" + self.over.encode() if self.over else b""
        return hashlib.sha256(text + b"\0" + self.labels.tobytes() + made_for).hexdigest()

    def faults(self, axes: Mapping[str, Axis]) -> list[str]:
        """Why it is not a map over one of these axes."""
        own = f"map {self.name!r}"
        if self.axis not in axes:
            return [f"{own} is over axis {self.axis!r}, which the domain does not have"]
        axis = axes[self.axis]
        size = int(np.prod(axis.sizes, dtype=object))
        if self.labels.size not in (size, size - _beyond(axis)):
            return [f"{own} has {self.labels.size} labels; axis {self.axis!r} has {size - _beyond(axis)} cells"]
        if self.over and self.over != digest(axis):
            return [f"{own} was made for another window than that of axis {self.axis!r}; match them again"]
        return []


def _beyond(axis: Axis) -> int:
    """Cells that follow those of the window: the one elsewhere, and the impossible ones beside it."""
    return 0 if axis.residual is None else math.prod(high - low for low, high in axis.residual)


def digest(axis: Axis) -> str:
    """A digest of where the cells of an axis are, whatever its name and the system of its records."""
    told = {key: value for key, value in axis.to_json().items() if key not in ("name", "points", "elsewhere")}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def match(grid: Axis, places: Axis, *, progress: Callable[[float], None] | None = None) -> RegionMap:
    """The public map from the cells of a grid (of rows and columns, or hexagons) to places with shapes: a cell is in
    the place that holds its centre; where none does (at a coast) in the one that covers most of it, if any.

    Made from the two public geographies alone. A border cell goes to one side whole. The places that have a cell keep
    their names, the places above them, and their shapes, in their own reference system.

    Cost: O(n log p) for n cells and p places. Cells at the edge of all places are cut with them one by one.
    """
    faults = [
        f"axis {axis.name!r} {why}"
        for axis, why in ((grid, "has no place on earth; match a grid or hexagons"), (places, "has no shapes"))
        if axis.epsg is None
    ]
    if not places.holds_points or grid.holds_points:
        faults.append(f"axis {places.name!r} is not a list of places; match a grid with one, in this order")
    size = int(np.prod(grid.sizes, dtype=object)) - _beyond(grid)
    if size > MAX_MASK:
        faults.append(f"axis {grid.name!r} has {size} cells; at most {MAX_MASK} are matched")
    if grid.name == places.name:
        faults.append(f"the grid and the places are both called {grid.name!r}; areas are asked for by these names")
    raise_faults(DomainError, faults)
    labels = np.full(size, -1, dtype=np.int64)
    for start in range(0, size, _AT_ONCE):
        cells = np.arange(start, min(start + _AT_ONCE, size))
        labels[cells] = _matched(grid, places, np.unravel_index(cells, grid.sizes))  # those before any elsewhere
        if progress is not None:
            progress((cells[-1] + 1) / size)
    if (labels < 0).all():
        raise DomainError(f"no cell of axis {grid.name!r} is in a place of {places.name!r}; are they of one country?")
    used, numbers = np.unique(labels, return_inverse=True)
    none = int(used[0] < 0)
    own = places.part(used[none:])
    return RegionMap(grid.name, numbers - none, name=own.name, regions=own.labels or (), over=digest(grid), places=own)


_AT_ONCE = 1 << 18


def _matched(grid: Axis, places: Axis, index: tuple[Int, ...]) -> Int:
    system = f"EPSG:{grid.epsg}"
    found = places.holding(*grid.centres(index), system)
    missed = np.flatnonzero(found < 0)
    if missed.size:
        found[missed] = places.covering(grid.outlines([part[missed] for part in index]), system)
    return found
