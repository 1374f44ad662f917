"""What users may call an area, as one box or as cells: rows and columns, a mesh code, labels, or any cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kasuri.arrays import Int
from kasuri.errors import DomainError
from kasuri.schema import ELSEWHERE, Axis, Domain
from kasuri.trees.regions import MOST_CELLS, Boxes, cells_of


@dataclass(frozen=True, eq=False, init=False)
class Area:
    """A part of a table: `rows` and `cols` of the mesh (indices of the window), or a mesh `code` of the same or a
    coarser level; other axes by index, slice or label, and the regions of a map by the map's name and theirs. The cell
    elsewhere is the label "elsewhere" of its axis (of a mesh too, by its name). Or any
    `cells`: an array of cell indices, or of true and false in the domain's shape. It is looked up in a domain when it
    is used.

    >>> Area(rows=slice(0, 64), cols=slice(0, 64), sex="female")
    Area(rows 0:64, cols 0:64, sex female)
    """

    rows: slice | int | None
    cols: slice | int | None
    code: str | None
    cells: ArrayLike | None
    axes: Mapping[str, Any]

    def __init__(
        self,
        *,
        rows: slice | int | None = None,
        cols: slice | int | None = None,
        code: str | None = None,
        cells: ArrayLike | None = None,
        **axes: Any,
    ) -> None:
        if cells is not None and (rows is not None or cols is not None or code is not None or axes):
            raise DomainError("an area is cells=, or a mesh code, rows, cols and axes, not both")
        if code is not None and (rows is not None or cols is not None):
            raise DomainError("an area is a mesh code, or rows and cols, not both")
        given = {"rows": rows, "cols": cols, "code": code, "cells": cells, "axes": MappingProxyType(axes)}
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @classmethod
    def along(cls, axis: str, choice: slice | int | str) -> Area:
        """A part of one axis, whatever its name: one may be called "code" or "cells"."""
        out = cls()
        object.__setattr__(out, "axes", MappingProxyType({axis: choice}))
        return out

    def __repr__(self) -> str:
        return f"Area({self.words()})"

    def words(self) -> str:
        """The area as it was given, on one line."""
        if self.cells is not None:
            return "cells"
        given = {"rows": self.rows, "cols": self.cols, "code": self.code, **self.axes}
        return ", ".join(f"{name} {_said(choice)}" for name, choice in given.items() if choice is not None) or "all"

    @classmethod
    def given(cls, area: Area | None, /, **words: Any) -> Area:
        """An area, or the same in words of its own; not both."""
        if area is None:
            return cls(**words)
        if not isinstance(area, Area) or any(value is not None for value in words.values()):
            raise DomainError("an area is an Area, or keywords such as rows= and cols=, not both")
        return area

    def on(self, domain: Domain) -> Boxes | Int:
        """One box of the domain, or its possible cells of an irregular area."""
        if self.cells is not None:
            return cells_of(self.cells, domain)
        rows, cols = (self.rows, self.cols) if self.code is None else _code_slices(self.code, domain)
        wanted: dict[str, Any] = {}
        if rows is not None or cols is not None:
            meshes = domain.planes
            if len(meshes) != 1:
                raise DomainError(f"rows and cols need one mesh; name the dimension among {domain.dims}")
            wanted |= {"row": rows, "col": cols}
        beyond = [p.name for p in domain.planes if p.elsewhere and self.axes.get(p.name) == ELSEWHERE]
        regions = {name: region for name, region in self.axes.items() if domain.map(name) is not None}
        wanted |= {name: choice for name, choice in self.axes.items() if name not in (*regions, *beyond)}
        unknown = [name for name in wanted if name not in domain.dims]
        if unknown:
            known = [*domain.dims, *(one.name for one in domain.maps)]
            raise DomainError(f"no dimension {unknown}; the dimensions are {known}")
        ranges = [span for axis in domain.axes for span in _ranges(axis, axis.name in beyond, wanted, domain)]
        low, high = np.array(ranges, dtype=np.int64).T
        if (high <= low).any():
            return np.zeros(0, dtype=np.int64)
        if regions:
            return _in_regions(domain, [np.arange(*span) for span in ranges], regions)
        return Boxes(low[None, :].copy(), high[None, :].copy())

    def cells_on(self, domain: Domain) -> Int:
        """The possible cells of the area."""
        found = self.on(domain)
        return found.all_cells(domain)[0] if isinstance(found, Boxes) else found


def _in_regions(domain: Domain, index: list[Int], regions: Mapping[str, Any]) -> Int:
    """The possible cells with these indices along every dimension that are in regions of maps, by map."""
    good: dict[str, Any] = {}
    for name, region in regions.items():
        one = domain.map(name)
        assert one is not None
        good[one.axis] = good.get(one.axis, True) & one.inside(str(region))
    parts: list[Int] = []  # per axis the flat indices along it
    for axis in domain.axes:
        own = [index[d] for d in domain.positions(axis.name)]
        flat = np.ravel_multi_index(np.meshgrid(*own, indexing="ij"), axis.sizes).ravel()
        parts.append(flat[good[axis.name][flat]] if axis.name in good else flat)
    if math.prod(part.size for part in parts) > MOST_CELLS:
        raise DomainError(f"an area of regions has at most {MOST_CELLS} cells; ask for parts of it")
    cells = np.zeros(1, dtype=np.int64)
    for axis, part in zip(domain.axes, parts, strict=True):
        cells = (cells[:, None] * math.prod(axis.sizes) + part).ravel()
    return cells[domain.possible(cells)]


def _said(choice: Any) -> str:
    if not isinstance(choice, slice):
        return str(choice)
    return f"{'' if choice.start is None else choice.start}:{'' if choice.stop is None else choice.stop}"


def _code_slices(code: str, domain: Domain) -> tuple[slice, slice]:
    """Rows and columns of the window that lie in the mesh `code`; the code must lie wholly in the window."""
    meshes = domain.planes
    if len(meshes) != 1 or meshes[0].level is None:
        raise DomainError(
            "a mesh code names an area of one mesh with a level; this domain has none, or several: give rows and cols"
        )
    return meshes[0].area(code)


def _ranges(axis: Axis, beyond: bool, wanted: Mapping[str, Any], domain: Domain) -> Sequence[tuple[int, int]]:
    """The half-open range along each dimension of an axis. Rows and columns are of the window alone."""
    dims = [domain.dims[at] for at in domain.positions(axis.name)]
    asked = [wanted.get(dim) for dim in dims]
    if beyond:
        if any(choice is not None for choice in asked):
            raise DomainError(f"{axis.name}: an area is elsewhere, or rows and columns, not both")
        return axis.residual or ()
    sizes = axis.sizes if all(choice is None for choice in asked) else axis.declared
    return [
        (0, size) if choice is None else _range(choice, size, dim, domain)
        for choice, size, dim in zip(asked, sizes, dims, strict=True)
    ]


def _range(choice: Any, size: int, dim: str, domain: Domain) -> tuple[int, int]:
    """Half-open range of indices for a slice, an index or a label."""
    if isinstance(choice, slice):
        if choice.step not in (None, 1):
            raise DomainError(f"{dim}: a slice with a step is not an area")
        low, high, _ = choice.indices(size)
        if (choice.stop is not None and choice.stop > size) or (choice.start is not None and choice.start > size):
            raise DomainError(f"{dim}: {choice.start}:{choice.stop} leaves the domain (0:{size})")
        return low, high
    if isinstance(choice, str):
        found = domain.axis(dim).span(choice)
        if found is None:
            raise DomainError(f"{dim}: no label {choice!r}")
        return found
    index = int(choice)
    if not 0 <= index < size:
        raise DomainError(f"{dim}: index {index} leaves the domain (0..{size - 1})")
    return index, index + 1
