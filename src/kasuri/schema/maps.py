"""RegionMap: a public map from the cells of one axis to regions that need not follow its tree (municipalities)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import names
from kasuri.errors import DomainError, FormatError, raise_faults

MAX_REGIONS = 1 << 22
"""Most regions of a map: all of them are drawn."""
MAX_MASK = 1 << 30
"""Most cells of a map that is read from a file: it is held as an array."""


@dataclass(frozen=True, eq=False)
class RegionMap:
    """Every cell of axis `axis` is in one region, or in none: `labels`, row-major over the axis' own dimensions, number
    the regions from 0 up, -1 is none. Declared public by `name`: it must not come from the confidential data.

    A cell is in one region at most, so one unit changes one region's count: that is what its share of epsilon pays for.
    """

    axis: str
    labels: NDArray[np.int64] = field(repr=False)
    name: str = field(kw_only=True)
    regions: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    """Their names, in the order of their numbers; empty: the numbers."""

    def __init__(self, axis: str, labels: ArrayLike, *, name: str, regions: tuple[str, ...] = ()) -> None:
        told = np.asarray(labels)
        faults = names.faults(name, "the name of a map") + names.first(regions, f"map {name!r}")
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
        raise_faults(DomainError, faults)
        told.flags.writeable = False
        for at, value in (("axis", axis), ("labels", told), ("name", name), ("regions", tuple(regions))):
            object.__setattr__(self, at, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegionMap) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash((self.axis, self.name))

    @property
    def count(self) -> int:
        return max(int(self.labels.max()) + 1, len(self.regions))

    def to_json(self) -> dict[str, Any]:
        """Runs of equal labels: what a release stores, so that whoever reads it knows its regions."""
        starts = np.flatnonzero(np.diff(self.labels, prepend=-2))
        runs = np.diff(np.append(starts, self.labels.size))
        return {"axis": self.axis, "name": self.name, "regions": list(self.regions), "runs": runs.tolist(),
                "labels": self.labels[starts].tolist()}  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RegionMap:
        runs, labels = (np.asarray(data[name], dtype=np.int64) for name in ("runs", "labels"))
        if runs.shape != labels.shape or (runs < 1).any() or sum(runs.tolist()) > MAX_MASK:
            raise FormatError(f"a map is runs of labels, at most {MAX_MASK} cells")
        return cls(data["axis"], np.repeat(labels, runs), name=data["name"], regions=tuple(data["regions"]))

    def fingerprint(self) -> str:
        """A digest of all that it says: what releases name it by."""
        text = "\n".join((self.axis, self.name, *self.regions)).encode()
        return hashlib.sha256(text + b"\0" + self.labels.tobytes()).hexdigest()
