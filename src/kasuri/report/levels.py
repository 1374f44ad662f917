"""Totals by size of area, and what to expect of them after refinement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.report import frame, margins, reliability
from kasuri.report.frame import Text
from kasuri.report.pack import HUNDREDTHS, Rows
from kasuri.report.sheet import Sheet, summed
from kasuri.schema import Axis
from kasuri.words import japanese

EVERYTHING = Text("everything", "全体")


def number(value: float) -> str:
    """A number with separators; two decimals where it is not whole."""
    return f"{value:,.0f}" if value == round(value) else f"{round(value * HUNDREDTHS) / HUNDREDTHS:,.2f}"


def totals(sheet: Sheet) -> str:
    """Per level of the first mesh, or tree of places: areas that are not 0, the median of these and the largest."""
    mesh = sheet.meshes[0] if sheet.meshes else None
    head = [
        Text("area", "区域").html(),
        Text("areas that are not 0", "0 でない区域数").html(),
        Text("median", "中央値").html(),
        Text("largest", "最大値").html(),
    ]
    lines = []
    tree = next((at for at, axis in enumerate(sheet.domain.axes) if axis.level_names), None) if mesh is None else None
    if tree is not None:
        axis, place = sheet.domain.axes[tree], sheet.along()[tree]
        for at, ((first, _),) in enumerate(margins.spans(axis)):
            _, (sums,) = summed(np.searchsorted(first, place, side="right") - 1, [sheet.values], first.size)
            lines.append([kind([axis], (at,)).html(), *_three(sums)])
    elif mesh is None:
        lines.append([Text("one cell", "1 セル").html(), *_three(sheet.values)])
    else:
        index = sheet.domain.unravel(sheet.cells)
        row, col = (index[place] for place in sheet.domain.positions(mesh.name))
        values: Any = sheet.values
        for step in mesh.levels:
            side, (above, beside) = step.side, step.offset
            if side == 1:  # the cells themselves
                lines.append([area_name(step.name if mesh.level else None, side).html(), *_three(values[values != 0])])
                continue
            width = (mesh.shape[1] - 1 + beside) // side + 1
            high = (mesh.shape[0] - 1 + above) // side + 1
            _, (sums,) = summed((row + above) // side * width + (col + beside) // side, [values], width * high)
            lines.append([area_name(step.name if mesh.level else None, side).html(), *_three(sums)])
    return frame.table(head, lines, numbers=range(1, 4))


def area_name(level: str | None, side: int) -> Text:
    """What an area of one size is called: by its mesh level, or by the cells to its side."""
    if level is None:
        return Text(f"{side} x {side} cells", f"{side} × {side} セル")
    spaced = re.sub("(k?m)$", r" \1", level)
    return Text(f"{spaced} cells", f"{level}メッシュ")


def _three(values: NDArray[Any]) -> list[str]:
    if values.size == 0:
        return ["0", "–", "–"]
    return [
        f"{values.size:,}",
        reliability.median(values),
        number(values.max()),
    ]


def kinds(sheet: Sheet, ranges: Mapping[margins.Key, Rows]) -> list[reliability.Kind]:
    """The areas of every size whose intervals are known, all else added up, the smallest first."""
    axes = sheet.domain.axes
    good = np.isfinite(sheet.lower) & np.isfinite(sheet.upper) & (sheet.values != 0)
    half = (sheet.upper[good] - sheet.lower[good]) / 2
    main = next((at for at, axis in enumerate(axes) if axis.plane is not None or axis.level_names), None)
    others = [axis.name for at, axis in enumerate(axes) if at != main]
    en, ja = ", ".join(others), "・".join(map(japanese.name, others))
    each, rest = Text(f"by {en}", f"{ja}ごと"), Text(f"{en}: all", f"{ja}は合計")
    name = Text("one cell", "1 セル") if main is None else kind(axes[main : main + 1], (0,))
    told = each if others and main is not None else reliability.NOTHING
    out = [reliability.Kind(name, sheet.values[good].astype(float), half, told, single=True)]
    for key, rows in ranges.items():
        if any(level != margins.ALL for at, level in enumerate(key) if at != main):
            continue
        known = rows.columns["above"] >= 0
        width = rows.columns["below"][known] + rows.columns["above"][known]
        whole = set(key) == {margins.ALL} or not others
        out.append(reliability.Kind(kind(axes, key), rows.columns["value"][known] / rows.unit, width / 2 / rows.unit,
                                    reliability.NOTHING if whole else rest))  # fmt: skip
    return sorted(out, key=lambda one: (-one.value.size, one.name == EVERYTHING))


def kind(axes: Sequence[Axis], key: margins.Key) -> Text:
    """What the areas of one level are called."""
    told = [(axis, at) for axis, at in zip(axes, key, strict=True) if at != margins.ALL]
    if not told:
        return EVERYTHING
    axis, at = told[0]
    if len(told) > 1:
        return Text("one cell", "1 セル")
    if axis.plane is not None:
        step = axis.plane.levels[at]
        return area_name(step.name if axis.plane.level else None, step.side)
    name = axis.own_level if at == 0 else axis.level_names[at - 1]
    return Text(name or "one cell", japanese.name(name) if name else "1 セル")


def sums_of(axes: Sequence[Axis], view: str, many: int) -> Text:
    """What readers call a table of `many` sums, which a recipe calls "grid@3, age"; as the recipe does where its
    heights are not those that people know."""
    shown = [axis.mapped() for axis in axes]
    named, count = [], 1
    for word in view.split(", "):
        name, _, height = word.partition("@")
        axis = next((axis for axis in shown if axis.name == name), None)
        if axis is None and height:
            return Text(view, view)
        told, own = (Text(name, japanese.name(name)), 0) if axis is None else _sums_along(axis, int(height or 0))
        if axis is not None and _is_map(axis) and sum(map(_is_map, shown)) > 1:
            told = Text(f"{name}: {told.en}", f"{japanese.name(name)}：{told.ja}")
        named.append(told)
        count *= own
    same = count in (many, 0)  # 0: regions of a map, whose number no axis tells
    return (
        Text(" × ".join(part.en for part in named), " × ".join(part.ja for part in named)) if same else Text(view, view)
    )


def _is_map(axis: Axis) -> bool:
    return axis.plane is not None or bool(axis.level_names)


def _sums_along(axis: Axis, height: int) -> tuple[Text, int]:
    """What the areas of an axis are, so many heights above its own, and how many there are."""
    side, own = 1 << min(height, 62), Text(axis.name, japanese.name(axis.name))
    if axis.plane is not None:
        many = prod(-(-size // side) for size in axis.plane.shape)
        cells = Text(f"squares of {side} x {side} cells", f"{side} × {side} セルの区画")
        return (cells if height else area_name(axis.plane.level, 1)), many
    if axis.level_names and height <= len(axis.level_names):
        level = axis.level_names[height - 1] if height else axis.own_level or axis.name
        coarse = axis.coarsened(level)[0] if height else axis
        return Text(level, japanese.name(level)), coarse.sizes[0]
    steps = Text(f"{own.en}, {side} at a time", f"{own.ja}（{side} 区分ずつ）")
    return (steps if height else own), -(-axis.sizes[0] // side)
