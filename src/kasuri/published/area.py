"""What users may call an area, as one box or as cells: rows and columns, a mesh code, labels, or any cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError
from kasuri.schema import Domain
from kasuri.trees.regions import Boxes, cells_of


def area_of(
    domain: Domain,
    rows: slice | int | None,
    cols: slice | int | None,
    code: str | None,
    cells: ArrayLike | None,
    axes: Mapping[str, Any],
) -> Boxes | NDArray[np.int64]:
    """One box, or the possible cells of an irregular area."""
    if cells is not None:
        if rows is not None or cols is not None or code is not None or axes:
            raise DomainError("an area is cells=, or a mesh code, rows, cols and axes, not both")
        return cells_of(cells, domain)
    wanted: dict[str, Any] = {}
    if code is not None:
        if rows is not None or cols is not None:
            raise DomainError("an area is a mesh code, or rows and cols, not both")
        rows, cols = _code_slices(code, domain)
    if rows is not None or cols is not None:
        meshes = domain.planes
        if len(meshes) != 1:
            raise DomainError(f"rows and cols need one mesh; name the dimension among {domain.dims}")
        wanted |= {"row": rows, "col": cols}
    wanted |= axes
    unknown = [name for name in wanted if name not in domain.dims]
    if unknown:
        raise DomainError(f"no dimension {unknown}; the dimensions are {list(domain.dims)}")
    ranges = [
        (0, size) if wanted.get(dim) is None else _range(wanted[dim], size, dim, domain)
        for dim, size in zip(domain.dims, domain.shape, strict=True)
    ]
    low, high = np.array(ranges, dtype=np.int64).T
    if (high <= low).any():
        return np.zeros(0, dtype=np.int64)
    return Boxes(low[None, :].copy(), high[None, :].copy())


def _code_slices(code: str, domain: Domain) -> tuple[slice, slice]:
    """Rows and columns of the window that lie in the mesh `code`; the code must lie wholly in the window."""
    meshes = domain.planes
    if len(meshes) != 1 or meshes[0].level is None:
        raise DomainError(
            "a mesh code names an area of one mesh with a level; this domain has none, or several: give rows and cols"
        )
    return meshes[0].area(code)


def _range(choice: Any, size: int, dim: str, domain: Domain) -> tuple[int, int]:
    """Half-open range of indices for a slice, an index or a label."""
    if isinstance(choice, slice):
        if choice.step not in (None, 1):
            raise DomainError(f"{dim}: a slice with a step is no area")
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
