"""Error bars that hold after refinement: from the published noisy numbers, never from the refined values.

The true count of an area lies in [lower, upper] with the confidence asked for (docs/proofs/intervals.md: what is exact
and what is measured). Everything is a function of what is published: it works on a release read back from disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int, added_up
from kasuri.errors import DomainError
from kasuri.published.bars import Bars, CellBars, FullBars, HierarchyBars, NoBars, TreeBars
from kasuri.published.bounds import Bounds
from kasuri.published.protected import Protected
from kasuri.recipes.read import read
from kasuri.trees.regions import Boxes, Sets

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
    lower, upper = finish(found, value, stepped(bars))
    return Interval(float(lower[0]), float(upper[0]), level, value[0].item(), float(found[2][0]), bars.method)


def earlier(release: Protected) -> tuple[str, ...]:
    """Earlier methods that a saved release may name."""
    bars = known(release)
    if isinstance(bars, TreeBars):
        return *bars.earlier, *bars.earlier_of_areas
    return bars.earlier if isinstance(bars, FullBars) else ()


def saved_columns(release: Protected, method: object) -> tuple[Float, Float] | None:
    """`columns` by the method that a saved release names: today's, or an earlier one."""
    bars = known(release)
    if isinstance(bars, (TreeBars, FullBars)) and isinstance(method, str) and method in bars.earlier:
        return finish(bars.of_cells_earlier(method, release.cells, release.values, LEVEL), release.values)
    return columns(release)


def columns(
    release: Protected, areas: Boxes | Sets | None = None, values: Values | None = None
) -> tuple[Float, Float] | None:
    """(lower, upper) of every released cell, or of `areas` of released `values`, at LEVEL; None where no interval can
    be made."""
    bars = known(release)
    if isinstance(bars, NoBars):
        return None
    if areas is None or values is None:
        return finish(bars.of_cells(release.cells, release.values, LEVEL), release.values, stepped(bars))
    try:
        return finish(bars.of_boxes(areas, values, LEVEL), values, stepped(bars))
    except DomainError:  # too many cells to treat one by one
        return None


Spans = tuple[Int, Int]
"""First and past-the-last indices along a dimension of areas that rise without a gap."""


def by_spans(release: Protected, spans: Sequence[Spans]) -> tuple[list[Int], Values, Float, Float] | None:
    """The areas, one of `spans` along every dimension, whose sum is not 0: their numbers along each, sums, and limits
    at LEVEL, in the order of the first dimension. None where no interval can be made."""
    shape = tuple(first.size for first, _ in spans)
    indices = zip(release.domain.unravel(release.cells), release.domain.shape, spans, strict=True)
    at = [_span_of(first, index, size) for index, size, (first, _) in indices]
    areas, values = added_up(np.ravel_multi_index(at, shape), release.values, prod(shape))
    index = [part.astype(np.int64) for part in np.unravel_index(areas, shape)]
    ends = [
        np.column_stack([end[part] for end, part in zip(side, index, strict=True)]) for side in zip(*spans, strict=True)
    ]
    limits = columns(release, Boxes(*ends), values)
    return None if limits is None else (index, values, *limits)


def _span_of(first: Int, index: Int, size: int) -> Int:
    """Which span each index below `size` is in; looked up where there are more indices than there can be."""
    if size < index.size:
        return (np.searchsorted(first, np.arange(size), side="right") - 1)[index]
    return np.searchsorted(first, index, side="right") - 1


FEW_STEPS = 2.0
"""Half-widths below so many whole numbers: of noise that is mostly 0, the steps show in any estimate."""


def stepped(bars: Bars) -> bool:
    """Does the noise go in steps of 1, and limits follow from quantiles of laws that do not?"""
    return isinstance(bars, (TreeBars, CellBars, FullBars))


def finish(found: Bounds, values: Values, steps: bool = False) -> tuple[Float, Float]:
    """Limits as whole numbers, since counts are, stretched to the released value where it lies outside.

    `steps`: half a step more where the estimate is a whole number, as its noise is then too: with N of scale 1/3, of
    which |N| <= 0.7 is N = 0, an interval of 95 % held in 90 of 100 cases. Likewise where the interval is narrow."""
    lower, upper, middle = found
    if steps:
        near = (np.abs(middle - np.rint(middle)) < 1e-6) | (upper - middle < FEW_STEPS)
        lower, upper = lower - 0.5 * near, upper + 0.5 * near
    slack = 1e-6 + 1e-12 * np.abs(upper)  # floating-point sums: rather one too wide than one too narrow
    low, high = np.ceil(lower - slack), np.floor(upper + slack)
    none = low > high
    low[none], high[none] = np.floor(lower[none]), np.ceil(upper[none])
    return np.minimum(np.maximum(low, 0.0), values), np.maximum(np.maximum(high, 0.0), values)


def once_without(release: Protected, why: object) -> bool:
    """Did an earlier kasuri give such a release no limits, for this reason?"""
    bars = known(release)
    return isinstance(bars, HierarchyBars) and bars.once == why


def missing(release: Protected) -> str | None:
    """Why no interval can be made of this release, or None."""
    bars = known(release)
    return bars.why if isinstance(bars, NoBars) else None


def bars_of(release: Protected) -> Bars:
    """The error bars of a release; DomainError where it has none."""
    bars = known(release)
    if isinstance(bars, NoBars):
        raise DomainError(f"no interval: {bars.why}")
    return bars


def known(release: Protected) -> Bars | NoBars:
    """The error bars of a release, made once."""
    kept = release.__dict__.get("_bars")
    if kept is None:
        claim = release.guarantee
        run = read(release.recipe, release.domain, claim.unit, claim.epsilon, told=True)
        kept = release.__dict__["_bars"] = run.bars(release.measurements)
    return kept
