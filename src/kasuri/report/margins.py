"""Intervals of the sums that a page shows: every level of its places, one label or all of every other axis.

*Privacy.* From the published measurements, like the columns lower and upper of the release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.published import intervals
from kasuri.published.protected import Protected
from kasuri.report.pack import Rows, distances, whole
from kasuri.schema import Axis, Plane
from kasuri.schema.axis import Step

MOST_AREAS = 60_000
"""A kind of sum with more areas has no intervals in the page."""
MOST_ALL = 110_000
"""Of all kinds together; those with few areas come first."""
MOST_KINDS = 64

ALL = -1
Key = tuple[int, ...]
"""The level of every axis, 0 its own; `ALL` where its cells are added up."""
Span = tuple[Int, Int]


def spans(axis: Axis) -> list[list[Span]]:
    """Per level of an axis, its own first, and per dimension: the ranges of indices of its areas."""
    plane = axis.plane
    own = [(np.arange(size), np.arange(1, size + 1)) for size in axis.declared]
    if plane is None:
        return [own, *(axis.coarsened(level)[1] for level in axis.level_names)]
    out = []
    for step in plane.levels:
        sides = []
        for size, off in zip(plane.shape, step.offset, strict=True):
            ends = np.clip(np.arange((size - 1 + off) // step.side + 2) * step.side - off, 0, size)
            sides.append((ends[:-1], ends[1:]))
        out.append(sides)
    return out


def tables(release: Protected) -> Iterator[tuple[Key, Rows]]:
    """Sums and intervals by kind, without those of the single cells, which the release has itself."""
    axes = release.domain.axes
    shown = [axis.mapped() for axis in axes]
    levels = [spans(axis) for axis in shown]
    for axis, known in zip(shown, levels, strict=True):
        known.append([(np.array([0]), np.array([size])) for size in axis.sizes])
    kinds = product(*([*range(len(found) - 1), ALL] for found in levels))
    sized = sorted((_areas(levels, key), key) for key in kinds if any(key))
    left = MOST_ALL
    for most, key in sized[:MOST_KINDS]:
        if min(most, release.cells.size) > MOST_AREAS and most > MOST_AREAS * 4:
            break
        found = _inside(release, [part for axis, at in zip(levels, key, strict=True) for part in axis[at]])
        if found is None or found[1].size > min(MOST_AREAS, left):
            continue
        index, values, lower, upper = found
        left -= values.size
        unit = whole([values])
        below, above = distances(values, lower, upper, unit)
        columns = {"value": np.rint(values * unit).astype(np.int64), "below": below, "above": above}
        yield key, Rows(_along(shown, levels, key, index), columns, unit)


def shown_at(axes: Sequence[Axis], drawn: Sequence[Axis], found: Mapping[Key, Rows]) -> dict[Key, Rows]:
    """Those tables that are of larger areas also where a page shows the sums of cells instead of them."""
    out = {}
    for key, rows in found.items():
        places = [_at(*part) for part in zip(axes, drawn, key, strict=True)]
        if None not in places:
            out[tuple(place for place in places if place is not None)] = rows
    return out


def _at(axis: Axis, drawn: Axis, level: int) -> int | None:
    """The place of a level of `axis` among those of a coarser one."""
    was, now = axis.mapped().plane, drawn.plane
    if level == ALL or was is None or now is None or was == now:
        return level
    wanted = _many(was, was.levels[level])
    return next((at for at, step in enumerate(now.levels) if at and _many(now, step) == wanted), None)


def _many(plane: Plane, step: Step) -> tuple[str, tuple[int, ...]]:
    sides = zip(plane.shape, step.offset, strict=True)
    return step.name, tuple((size - 1 + off) // step.side + 1 for size, off in sides)


def _inside(release: Protected, asked: Sequence[Span]) -> tuple[list[Int], NDArray[Any], Float, Float] | None:
    """`intervals.by_spans` without what is elsewhere, beyond the last of the spans."""
    beyond = [
        first.size if last[-1] < size else -1 for (first, last), size in zip(asked, release.domain.shape, strict=True)
    ]
    every = [
        (first, last) if end < 0 else (np.append(first, last[-1]), np.append(last, last[-1] + 1))
        for (first, last), end in zip(asked, beyond, strict=True)
    ]
    found = intervals.by_spans(release, every)
    if found is None or max(beyond) < 0:
        return found
    index, values, lower, upper = found
    keep = np.all([part != end for part, end in zip(index, beyond, strict=True)], axis=0)
    return [part[keep] for part in index], values[keep], lower[keep], upper[keep]


def _areas(levels: Sequence[Sequence[Sequence[Span]]], key: Key) -> int:
    return prod(first.size for axis, at in zip(levels, key, strict=True) for first, _ in axis[at])


def _along(
    axes: Sequence[Axis], levels: Sequence[Sequence[Sequence[Span]]], key: Key, index: list[Int]
) -> tuple[Int, ...]:
    """One number per axis that is not added up; of a plane, row-major at its level."""
    out, at = [], 0
    for axis, found, level in zip(axes, levels, key, strict=True):
        own, at = index[at : at + len(axis.sizes)], at + len(axis.sizes)
        if level != ALL:
            out.append(own[0] if len(own) == 1 else own[0] * found[level][1][0].size + own[1])
    return tuple(out)
