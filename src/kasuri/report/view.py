"""The axes of a table as the viewer wants them, what lies below maps, and the outlines of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kasuri.report import ground, margins, shapes, window
from kasuri.report.frame import Text
from kasuri.schema import Axis
from kasuri.words import japanese

MOST_LABELS = 120_000
"""An axis with more labels is shown by number."""
Part = tuple[dict[str, Any], dict[str, Any], str]
"""What a packed text is, what its reader must know, and the text."""


def places(axes: Sequence[Axis]) -> tuple[list[dict[str, Any]], list[Part], list[str]]:
    """The axes as the viewer wants them, the ground below those that are maps and the outlines of their places, and
    whom that is owed to."""
    told, parts = [], []
    for at, axis in enumerate(axes):
        found = view_axis(axis)
        if shapes.drawable(axis):
            drawn, packed = shapes.of(axis)
            found = {**found, **drawn}
            parts.append(({"what": "shapes", "axis": at}, *packed))
        place = None if axis.plane is None else window.of_plane(axis.plane)
        below = ground.of(place)
        if below is not None:
            parts.append(({"what": "ground", "axis": at}, *below))
        told.append(found)
    lines = any(what["what"] == "ground" for what, _, _ in parts)
    return told, parts, [f'<p class="hint">{_GROUND.html()}</p>'] if lines else []


_GROUND = Text(
    "Coasts, boundaries and place names: Natural Earth; National Land Numerical Information (administrative areas), "
    "MLIT Japan, processed; US Census Bureau. They are public and not part of the release.",
    "海岸線・境界・地名：Natural Earth、「国土数値情報（行政区域データ）」（国土交通省）を加工して作成、"
    "米国国勢調査局。これらは公開情報であり、公表値ではありません。",
)


def names(axes: Sequence[Axis]) -> dict[str, str]:
    """Japanese for those names of axes, levels and labels that are common words."""
    words = {word for axis in axes for word in (axis.name, axis.own_level or "", *axis.level_names)}
    words |= {label for axis in axes if axis.plane is None and axis.sizes[0] <= _FEW for label in axis.shown() or ()}
    return {word: japanese.name(word) for word in sorted(words) if japanese.name(word) != word}


_FEW = 400
_CODES = ("jis", "eu", "quadkey")
"""Schemes whose codes the viewer can write."""


def view_axis(axis: Axis) -> dict[str, Any]:
    """One axis as the viewer wants it."""
    plane = axis.plane
    if plane is not None:
        rows, cols = plane.shape
        levels = [
            {"name": step.name, "side": step.side, "offset": list(step.offset),
             "high": (rows - 1 + step.offset[0]) // step.side + 1, "wide": (cols - 1 + step.offset[1]) // step.side + 1}
            for step in plane.levels
        ]  # fmt: skip
        scheme = plane.code_scheme if plane.code_scheme in _CODES else None
        place = window.of_plane(plane)
        return {
            "kind": "mesh", "name": axis.name, "size": rows * cols, "rows": rows, "cols": cols, "scheme": scheme,
            "level": plane.level if scheme else None, "origin": list(plane.origin), "levels": levels, "labels": None,
            "aspect": 1 / plane.aspect, "globe": None if place is None else place.told(),
        }  # fmt: skip
    labels = None if axis.sizes[0] > MOST_LABELS else axis.shown()
    out = {"kind": axis.kind, "name": axis.name, "size": axis.sizes[0], "labels": labels}
    if labels is not None and axis.level_names and not shapes.drawable(axis):
        own = {"name": axis.own_level, "labels": labels, "spans": None}
        out["levels"] = [own, *(_coarse(level, *axis.coarsened(level)) for level in axis.level_names)]
    return out


def _coarse(level: str, coarse: Axis, spans: Sequence[margins.Span]) -> dict[str, Any]:
    low, high = spans[0]
    return {"name": level, "labels": coarse.shown(), "spans": np.column_stack([low, high]).tolist()}
