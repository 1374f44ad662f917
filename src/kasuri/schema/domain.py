"""Domain: the axes of a table and its impossible cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults
from kasuri.schema.axis import Axis, Plane
from kasuri.schema.kinds import axis_from_json
from kasuri.schema.maps import RegionMap
from kasuri.schema.mask import Mask

MAX_CELLS = 1 << 62
"""Largest cell index and largest total: both fit int64 with room for noise."""

RESERVED = ("cell", "col", "lower", "mesh_code", "release_id", "row", "upper", "value")
"""Columns of every release, which no axis may be called."""


@dataclass(frozen=True)
class Domain:
    """The public shape of a table: its axes, its impossible cells (structural zeros, e.g. the sea), and maps from the
    cells of an axis to regions whose sums people ask for by name. A mask is over the window of a plane: its cell
    elsewhere is always possible."""

    axes: tuple[Axis, ...]
    mask: tuple[Mask, ...] = ()
    maps: tuple[RegionMap, ...] = ()

    @classmethod
    def of(
        cls,
        *axes: Axis,
        mask: ArrayLike | Mapping[str | tuple[str, ...], ArrayLike] | None = None,
        maps: Sequence[RegionMap] = (),
    ) -> Domain:
        """A domain of these axes. `mask` is True where no one can be: an array over the whole `shape`, or a mapping
        from an axis name (or several) to an array over those axes, e.g. `mask={"grid": sea}`. `maps` are public maps
        from the cells of an axis to regions (`kasuri geography match`)."""
        masks: tuple[Mask, ...] = ()
        if isinstance(mask, Mapping):
            masks = tuple(Mask.of((k,) if isinstance(k, str) else k, array) for k, array in mask.items())
        elif mask is not None:
            masks = (Mask.of([axis.name for axis in axes], mask),)
        return cls(axes, masks, tuple(maps))

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not self.axes:
            faults.append("a domain needs at least one axis")
        names = [axis.name for axis in self.axes]
        faults += [f"axis name {name!r} is used twice" for name in {n for n in names if names.count(n) > 1}]
        taken = [axis.name for axis in self.axes if axis.plane is None and axis.name in RESERVED]
        faults += [f"axis name {name!r} is a column of every release; choose another" for name in taken]
        if not faults:
            faults += [f"column {name!r} of a release would be there twice (databases ignore case); rename an axis"
                       for name in self._doubles()]  # fmt: skip
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
            wanted = tuple(size for name in mask.axes for size in by_name[name].declared)
            if wanted != mask.shape:
                faults.append(f"mask of {'x'.join(mask.axes)} has shape {mask.shape}; the axes have {wanted}")
            elif mask.impossible().all():
                faults.append(f"mask of {'x'.join(mask.axes)} leaves no possible cell")
        raise_faults(DomainError, faults + self._map_faults())
        object.__setattr__(self, "maps", tuple(one.along(self.axis(one.axis)) for one in self.maps))

    def _map_faults(self) -> list[str]:
        taken = [*RESERVED, "rows", "cols", "code", "cells", "area", "level", *self.dims]
        faults, axes = [], {axis.name: axis for axis in self.axes}
        for one in self.maps:
            if not one.name.isidentifier() or one.name in taken or one.name in axes:
                faults.append(
                    f"map {one.name!r}: regions are asked for by its name, which must be of letters, digits and "
                    "underscores and not that of an axis or a column"
                )
            taken.append(one.name)
            faults += one.faults(axes)
        return faults

    def map(self, name: str) -> RegionMap | None:
        """The map of that name."""
        return next((one for one in self.maps if one.name == name), None)

    def _doubles(self) -> list[str]:
        """Columns of a release table whose names agree but for case."""
        made = [*RESERVED, "geom", "fid"]  # the last two in map formats
        for axis in self.axes:
            own = [f"{self.prefix(axis)}{name}" for name in axis.column_names]
            made += [name for name in own if axis.plane is None or name not in RESERVED]  # those of one plane are there
        lower = [name.lower() for name in made]
        return [name for i, name in enumerate(made) if name.lower() in lower[:i]]

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
        return tuple(f"{self.prefix(axis)}{dim}" for axis in self.axes for dim in axis.dims)

    @cached_property
    def planes(self) -> tuple[Plane, ...]:
        """The axes that are rows and columns side by side."""
        return tuple(plane for axis in self.axes if (plane := axis.plane) is not None)

    def prefix(self, axis: Axis) -> str:
        """What is put before the names of an axis's dimensions and columns: its own name where several axes have rows
        and columns."""
        return f"{axis.name}_" if axis.plane is not None and len(self.planes) > 1 else ""

    @property
    def grouped(self) -> tuple[str, ...]:
        """Axes whose labels have a declared tree."""
        return tuple(axis.name for axis in self.axes if axis.grouped)

    @property
    def timed(self) -> bool:
        """Does an axis run along time?"""
        return any(axis.timed for axis in self.axes)

    @property
    def one_mesh(self) -> bool:
        """Is the table one mesh and nothing else?"""
        return len(self.axes) == 1 and self.axes[0].plane is not None

    def axis(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise DomainError(f"no axis {name!r}; the axes are {[axis.name for axis in self.axes]}")

    @cached_property
    def zeros(self) -> tuple[Mask, ...]:
        """All impossible cells: those of the masks, and what a plane with a cell elsewhere has beside it. No axis is in
        two of them."""
        masked = {name for mask in self.mask for name in mask.axes}
        planes = [plane for plane in self.planes if plane.elsewhere and plane.name not in masked]
        none = [Mask.of((plane.name,), np.zeros(plane.declared, dtype=bool)) for plane in planes]
        return tuple(map(self._beside, (*self.mask, *none)))

    def _beside(self, mask: Mask) -> Mask:
        """A mask over the declared cells of its axes as one over all: the cell elsewhere is possible whatever the other
        axes say, and of a plane it is the first of one row more."""
        for name in mask.axes:
            axis = self.axis(name)
            if axis.declared != axis.sizes:
                at = sum(len(self.axis(other).sizes) for other in mask.axes[: mask.axes.index(name)])
                mask = mask.beside(at, (*(slice(None),) * at, *(0,) * (len(axis.sizes) - 1)))
        return mask

    def mapped(self) -> Domain:
        """The domain as a map shows it: without the cells elsewhere of its places."""
        return Domain(tuple(axis.mapped() for axis in self.axes), self.mask)

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
        if self.zeros:
            index = self.unravel(array)
            for mask in self.zeros:
                where = tuple(index[p] for name in mask.axes for p in self.positions(name))
                good &= ~mask.impossible()[where]
        return good

    def possible_dense(self) -> NDArray[np.bool_]:
        """`possible` for every cell, in `shape`. Dense recipes only."""
        good = np.ones(self.shape, dtype=bool)
        for mask in self.zeros:
            dims = [p for name in mask.axes for p in self.positions(name)]
            spread = np.transpose(mask.impossible(), np.argsort(dims))
            good &= ~np.expand_dims(spread, tuple(d for d in range(len(self.shape)) if d not in dims))
        return good

    def to_json(self) -> dict[str, Any]:
        out = {"axes": [axis.to_json() for axis in self.axes], "mask": [mask.to_json() for mask in self.mask]}
        return out | ({"maps": [one.to_json() for one in self.maps]} if self.maps else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Domain:
        """The domain `to_json` wrote; FormatError for anything else."""
        try:
            return cls(
                tuple(axis_from_json(axis) for axis in data["axes"]),
                tuple(Mask.from_json(m) for m in data["mask"]),
                tuple(RegionMap.from_json(m) for m in data.get("maps", ())),
            )
        except KasuriError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise FormatError("not a domain: a field is missing or malformed") from None
