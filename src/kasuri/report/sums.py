"""Which areas larger than a cell a page's rows are in, and their sums: the page's viewer works them out in the same way
(viewer/rows.js), so that a table of their intervals need not carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from kasuri.arrays import Int, added_up
from kasuri.report.pack import Rows

Known = tuple[tuple[Int, ...], Int]
"""Numbers of areas along every axis that is not added up, and sums."""


def of(axes: Sequence[Mapping[str, Any]], rows: Rows, key: Sequence[int]) -> Known | None:
    """The areas of one kind (`margins.Key`) whose sums are not 0, rising. `axes` are those of the page's view; None
    where it does not say what areas an axis has."""
    kept = [(axis, level, index) for axis, level, index in zip(axes, key, rows.index, strict=True) if level >= 0]
    if any(level and level >= len(axis.get("levels") or ()) for axis, level, _ in kept):
        return None
    sizes = [_many(axis, level) for axis, level, _ in kept]
    if prod(sizes) >= 1 << 62:
        return None
    at = np.zeros(rows.size, np.int64)
    for (axis, level, index), size in zip(kept, sizes, strict=True):
        at = at * size + _area(axis, level, index)
    areas, sums = added_up(at, rows.columns["value"], prod(sizes))
    out = []
    for size in reversed(sizes):
        areas, own = np.divmod(areas, size)
        out.append(own)
    return tuple(reversed(out)), sums


def same(known: Known, rows: Rows) -> bool:
    """Whether these are the areas and the values of `rows`."""
    index, value = known
    return np.array_equal(value, rows.columns["value"]) and all(map(np.array_equal, index, rows.index))


def around(known: Known, rows: Rows) -> Rows:
    """The intervals of `rows`, of one axis, as whole numbers around the sums of what a page shows, where the values of
    its cells are rounded: wider by what that takes, and none where a sum was 0 before it was rounded."""
    index, value = known
    if not rows.size:
        return Rows(index, {"value": value, "below": np.full_like(value, -1), "above": np.full_like(value, -1)})
    at, found = np.zeros(value.size, np.int64), np.ones(value.size, bool)
    if index:
        at = np.minimum(np.searchsorted(rows.index[0], index[0]), rows.size - 1)
        found = rows.index[0][at] == index[0]
    was, below, above = (rows.columns[name][at] for name in ("value", "below", "above"))
    known_ends = found & (above >= 0)
    low, high = np.minimum((was - below) // rows.unit, value), np.maximum(-(-(was + above) // rows.unit), value)
    ends = {"below": value - low, "above": high - value}
    return Rows(index, {"value": value} | {name: np.where(known_ends, part, -1) for name, part in ends.items()})


def _many(axis: Mapping[str, Any], level: int) -> int:
    if not level:
        return int(axis["size"])
    told = axis["levels"][level]
    return int(told["high"] * told["wide"]) if "side" in told else len(told["spans"])


def _area(axis: Mapping[str, Any], level: int, index: Int) -> Int:
    if not level:
        return index
    told = axis["levels"][level]
    if "side" in told:  # squares
        (above, beside), side = told["offset"], told["side"]
        row, col = np.divmod(index, axis["cols"])
        return (row + above) // side * told["wide"] + (col + beside) // side
    firsts = np.array([low for low, _ in told["spans"]])
    return np.searchsorted(firsts, index, side="right") - 1
