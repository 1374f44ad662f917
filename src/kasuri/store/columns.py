"""One schema everywhere: release(release_id, cell, mesh_code, row, col, other axes, value) and release_meta."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.published import Release
from kasuri.schema import Domain, Mesh, Nominal, Ordered


def release_table(release: Release) -> Any:
    """The released cells as an Arrow table, sorted by cell."""
    return cells_table(release.provenance["release_id"], release.domain, release.cells, release.values)


def cells_table(release_id: str, domain: Domain, cells: NDArray[np.int64], values: NDArray[Any]) -> Any:
    """Cells and values with every column that follows from them. `row` and `col` count from the window's corner."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "release_id": pa.array([release_id]).take(pa.array(np.zeros(cells.size, np.int32))),
        "cell": pa.array(cells),
    }
    index = dict(zip(domain.dims, domain.unravel(cells), strict=True))
    several = sum(isinstance(axis, Mesh) for axis in domain.axes) > 1
    for axis in domain.axes:
        if isinstance(axis, Mesh):
            prefix = f"{axis.name}_" if several else ""
            row, col = index[f"{prefix}row"], index[f"{prefix}col"]
            if axis.level is not None:
                codes = meshcode.encode(row + axis.origin[0], col + axis.origin[1], axis.level)
                columns[f"{prefix}mesh_code"] = pa.array(codes)
            columns[f"{prefix}row"] = pa.array(row)
            columns[f"{prefix}col"] = pa.array(col)
        elif isinstance(axis, (Nominal, Ordered)) and axis.labels is not None:
            columns[axis.name] = pa.array(axis.labels).take(pa.array(index[axis.name]))
        else:
            columns[axis.name] = pa.array(index[axis.name])
    columns["value"] = pa.array(values)
    return pa.table(columns)


def meta_table(release: Release) -> Any:
    """One row: what the release is, in text a database can show."""
    import pyarrow as pa

    guarantee = release.guarantee.to_json()
    row = {
        "release_id": release.provenance["release_id"],
        "data": release.provenance["data"] or "",
        "model": guarantee["model"],
        "epsilon": guarantee["epsilon"],
        "delta": guarantee["delta"],
        "unit": release.guarantee.unit.words(),
        "recipe": json.dumps(dict(release.recipe)),
        "guarantee": json.dumps(guarantee),
        "provenance": json.dumps(dict(release.provenance)),
        "domain": json.dumps(release.domain.to_json()),
        "absent_cells": "0",
    }
    return pa.table({name: pa.array([value], type=pa.string()) for name, value in row.items()})


def measurements_table(release: Release) -> Any | None:
    """The noisy numbers the release was made of, or None where a recipe publishes none."""
    import pyarrow as pa

    measured = release.measurements
    if measured is None:
        return None
    scale = pa.array([str(measured.scale)]).take(pa.array(np.zeros(measured.level.size, np.int32)))
    return pa.table(
        {
            "level": pa.array(measured.level.astype(np.int32)),
            "prefix": pa.array(measured.prefix),
            "value": pa.array(measured.value),
            "scale": scale,
        }
    )
