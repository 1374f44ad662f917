"""Outlines of places, packed for a page: the rings of every place in whole page units."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kasuri.report.pack import Packed, text_of, varints, zigzag
from kasuri.schema import Axis

SIDE = 2000
"""Page units along the longer side."""
MOST_PLACES = 40_000
"""An axis with more places is shown by bars."""


def drawable(axis: Axis) -> bool:
    """Whether its places have outlines that a page can hold."""
    return axis.plane is None and axis.epsg is not None and axis.sizes[0] <= MOST_PLACES


def of(axis: Axis) -> tuple[dict[str, Any], Packed]:
    """The axis as the viewer wants it, and the packed outlines of its own places: larger ones are made of them."""
    drawn = axis.drawing(side=SIDE)
    levels = [_level(drawn.level, drawn.codes, drawn.names, None)]
    for level in axis.level_names:
        coarse, ((low, high),) = axis.coarsened(level)
        every = [np.arange(coarse.declared[0])]
        low, high = low[: every[0].size], high[: every[0].size]
        columns = {name.removeprefix(f"{axis.name}_"): part.to_pylist() for name, part in coarse.column(every).items()}
        levels.append(_level(level, columns.pop(axis.name), columns, np.column_stack([low, high]).tolist()))
    told = {"kind": "shapes", "page": [drawn.width, drawn.height], "levels": levels, "globe": None}
    return told, _packed(drawn.rings)


def _level(name: str, codes: Sequence[str], names: Mapping[str, Sequence[str]], spans: Any) -> dict[str, Any]:
    return {
        "name": name,
        "codes": list(codes),
        "names": {key: list(part) for key, part in names.items()},
        "spans": spans,
    }


def _packed(places: Any) -> Packed:
    rings = [ring for place in places for ring in place]
    points = np.concatenate(rings).astype(np.int64) if rings else np.zeros((0, 2), np.int64)
    steps = zigzag(np.diff(points, axis=0, prepend=0))
    streams = {
        "rings": np.array([len(place) for place in places]), "size": np.array([len(ring) for ring in rings]),
        "x": steps[:, 0], "y": steps[:, 1],
    }  # fmt: skip
    parts = [(name, varints(numbers) if numbers.size else b"") for name, numbers in streams.items()]
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    data = squeeze.compress(b"".join(part for _, part in parts)) + squeeze.flush()
    return {"streams": [[name, len(part)] for name, part in parts]}, text_of(data)
