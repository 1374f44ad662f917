"""Error bars that hold after refinement: from the published noisy numbers, never from the refined values.

The true count of an area lies in [lower, upper] with the confidence asked for (docs/proofs/intervals.md: what is exact
and what is measured). Everything is a function of what is published: it works on a release read back from disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError
from kasuri.published.bars import Bars, NoBars, TreeBars
from kasuri.published.bounds import Bounds
from kasuri.published.protected import Protected
from kasuri.recipes.read import read
from kasuri.schema.axis import Step
from kasuri.trees.regions import Boxes

Values = NDArray[Any]

LEVEL = 0.95
"""The confidence of the columns lower and upper of a stored release."""


@dataclass(frozen=True)
class Interval:
    """The true count of an area is in [lower, upper] with confidence `level`.

    `value` is the released sum, always inside; `estimate` the least-squares estimate of the noisy numbers, without
    sign constraint, around which the interval was made; `method` says how.
    """

    lower: float
    upper: float
    level: float
    value: float
    estimate: float
    method: str


def interval(release: Protected, area: Boxes | Int, level: float) -> Interval:
    """The interval of one area: a box, or an array of possible cells."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0.5 <= level < 1:
        raise DomainError("level must be a number from 0.5 up to but not 1, such as 0.95")
    bars, value = bars_of(release), np.array([release.sum_over(area)])
    if isinstance(area, Boxes):
        found = bars.of_boxes(area, value, level)
    else:
        found = bars.of_area(area, value, level)
    lower, upper = finish(found, value)
    return Interval(float(lower[0]), float(upper[0]), level, value[0].item(), float(found[2][0]), bars.method)


def earlier(release: Protected) -> tuple[str, ...]:
    """Earlier methods that a saved release may name."""
    bars = _bars(release)
    return bars.earlier if isinstance(bars, TreeBars) else ()


def saved_columns(release: Protected, method: object) -> tuple[Float, Float] | None:
    """`columns` by the method that a saved release names: today's, or an earlier one."""
    bars = _bars(release)
    if isinstance(bars, TreeBars) and isinstance(method, str) and method in bars.earlier:
        return finish(bars.of_cells_earlier(method, release.cells, LEVEL), release.values)
    return columns(release)


def columns(release: Protected, boxes: Boxes | None = None, values: Values | None = None) -> tuple[Float, Float] | None:
    """(lower, upper) of every released cell, or of `boxes` of released `values`, at LEVEL; None where no interval can
    be made."""
    bars = _bars(release)
    if isinstance(bars, NoBars):
        return None
    if boxes is None or values is None:
        return finish(bars.of_cells(release.cells, release.values, LEVEL), release.values)
    try:
        return finish(bars.of_boxes(boxes, values, LEVEL), values)
    except DomainError:  # too many cells to treat one by one
        return None


def by_step(release: Protected, step: Step) -> tuple[Int, Values, Float, Float] | None:
    """The areas of a coarser level of the one plane whose sum is not 0: their row-major numbers, sums, and limits at
    LEVEL. None for other tables, and where no interval can be made."""
    if len(release.domain.axes) != 1 or not release.domain.planes:
        return None
    shape = release.domain.shape
    at = [
        (index + off) // step.side
        for index, off in zip(release.domain.unravel(release.cells), step.offset, strict=True)
    ]
    width = (shape[1] - 1 + step.offset[1]) // step.side + 1
    areas, place = np.unique(at[0] * width + at[1], return_inverse=True)
    values = np.zeros(areas.size, dtype=release.values.dtype)
    np.add.at(values, place, release.values)
    areas, values = areas[values != 0], values[values != 0]
    low = np.column_stack(np.divmod(areas, width)) * step.side - np.array(step.offset)
    limits = columns(release, Boxes(np.maximum(low, 0), np.minimum(low + step.side, shape)), values)
    return None if limits is None else (areas, values, *limits)


def finish(found: Bounds, values: Values) -> tuple[Float, Float]:
    """Limits as whole numbers, since counts are, stretched to the released value where it lies outside."""
    lower, upper, _ = found
    slack = 1e-6 + 1e-12 * np.abs(upper)  # floating-point sums: rather one too wide than one too narrow
    low, high = np.ceil(lower - slack), np.floor(upper + slack)
    none = low > high
    low[none], high[none] = np.floor(lower[none]), np.ceil(upper[none])
    return np.minimum(np.maximum(low, 0.0), values), np.maximum(np.maximum(high, 0.0), values)


def missing(release: Protected) -> str | None:
    """Why no interval can be made of this release, or None."""
    bars = _bars(release)
    return bars.why if isinstance(bars, NoBars) else None


def bars_of(release: Protected) -> Bars:
    """The error bars of a release; DomainError where it has none."""
    bars = _bars(release)
    if isinstance(bars, NoBars):
        raise DomainError(f"no interval: {bars.why}")
    return bars


def _bars(release: Protected) -> Bars | NoBars:
    """The error bars of a release, made once."""
    kept = release.__dict__.get("_bars")
    if kept is None:
        claim = release.guarantee
        run = read(release.recipe, release.domain, claim.unit, claim.epsilon, told=True)
        kept = release.__dict__["_bars"] = run.bars(release.measurements)
    return kept
