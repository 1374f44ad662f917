"""Totals by size of area, and what to expect of them after refinement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.report import frame, margins, reliability
from kasuri.report.frame import Text
from kasuri.report.pack import HUNDREDTHS, Rows
from kasuri.report.sheet import Sheet, summed
from kasuri.schema import Axis
from kasuri.words import japanese


def number(value: float) -> str:
    """A number with separators; two decimals where it is not whole."""
    return f"{value:,.0f}" if value == round(value) else f"{round(value * HUNDREDTHS) / HUNDREDTHS:,.2f}"


def totals(sheet: Sheet) -> str:
    """Per level of the first mesh, or tree of places: areas that are not 0, the total, the median and the largest."""
    mesh = sheet.meshes[0] if sheet.meshes else None
    head = [
        Text("area", "区域").html(),
        Text("areas that are not 0", "0 でない区域数").html(),
        Text("total", "合計").html(),
        Text("median of these", "その中央値").html(),
        Text("largest", "最大値").html(),
    ]
    lines = []
    tree = next((at for at, axis in enumerate(sheet.domain.axes) if axis.level_names), None) if mesh is None else None
    if tree is not None:
        axis, place = sheet.domain.axes[tree], sheet.along()[tree]
        for at, ((first, _),) in enumerate(margins.spans(axis)):
            _, (sums,) = summed(np.searchsorted(first, place, side="right") - 1, [sheet.values], first.size)
            lines.append([kind([axis], (at,)).html(), *_four(sums)])
    elif mesh is None:
        lines.append([Text("one cell", "1 セル").html(), *_four(sheet.values)])
    else:
        index = sheet.domain.unravel(sheet.cells)
        row, col = (index[place] for place in sheet.domain.positions(mesh.name))
        values: Any = sheet.values
        for step in mesh.levels:
            side, (above, beside) = step.side, step.offset
            width = (mesh.shape[1] - 1 + beside) // side + 1
            high = (mesh.shape[0] - 1 + above) // side + 1
            _, (sums,) = summed((row + above) // side * width + (col + beside) // side, [values], width * high)
            lines.append([area_name(step.name if mesh.level else None, side).html(), *_four(sums)])
    return frame.table(head, lines, numbers=range(1, 5))


def area_name(level: str | None, side: int) -> Text:
    """What an area of one size is called: by its mesh level, or by the cells to its side."""
    if level is None:
        return Text(f"{side} x {side} cells", f"{side} × {side} セル")
    spaced = re.sub("(k?m)$", r" \1", level)
    return Text(f"{spaced} cells", f"{level}メッシュ")


def _four(values: NDArray[Any]) -> list[str]:
    if values.size == 0:
        return ["0", "0", "–", "–"]
    return [
        f"{values.size:,}",
        number(values.sum()),
        f"{np.median(values):,.1f}".removesuffix(".0"),
        number(values.max()),
    ]


def after(sheet: Sheet, ranges: Mapping[margins.Key, Rows], confidence: int, *, secret: bool) -> list[str]:
    """What to expect after refinement, by size of area."""
    good = np.isfinite(sheet.lower) & np.isfinite(sheet.upper) & (sheet.values != 0)
    half = (sheet.upper[good] - sheet.lower[good]) / 2
    kinds = [
        reliability.Kind(kind(sheet.domain.axes, (0,) * len(sheet.domain.axes)), sheet.values[good].astype(float), half)
    ]
    if len(sheet.domain.axes) == 1:
        for key, rows in ranges.items():
            known = rows.columns["above"] >= 0
            width = rows.columns["below"][known] + rows.columns["above"][known]
            kinds.append(reliability.Kind(kind(sheet.domain.axes, key), rows.columns["value"][known] / rows.unit,
                                          width / 2 / rows.unit))  # fmt: skip
    return reliability.body(sorted(kinds, key=lambda one: -one.value.size), confidence, secret=secret)


def kind(axes: Sequence[Axis], key: margins.Key) -> Text:
    """What the areas of one level are called."""
    axis, at = axes[0], key[0]
    if len(axes) > 1:
        return Text("one cell", "1 セル")
    if at == margins.ALL:
        return Text("everything", "全体")
    if axis.plane is not None:
        step = axis.plane.levels[at]
        return area_name(step.name if axis.plane.level else None, step.side)
    name = axis.own_level if at == 0 else axis.level_names[at - 1]
    return Text(name or "one cell", japanese.name(name) if name else "1 セル")
