"""Error bars that hold after refinement: from the published noisy numbers, never from the refined values.

The true count of an area lies in [lower, upper] with the confidence asked for (docs/proofs/intervals.md: what is exact
and what is measured). Everything is a function of what is published: it works on a release read back from disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kasuri import bounds, estimate, order, transform
from kasuri.bounds import Bounds, Float, Int, factor
from kasuri.errors import DomainError
from kasuri.estimate import Estimated
from kasuri.noise import laplace_variance
from kasuri.order import Order
from kasuri.published import Release
from kasuri.regions import Boxes, BoxSearch, CellSearch
from kasuri.schema import Domain, Ordered

Values = NDArray[Any]

LEVEL = 0.95
"""The confidence of the columns lower and upper of a stored release."""
FEW = 32
"""An area of more nodes than this is summed from numbers corrected for selection: what selection does to one number is
within its noise, but it adds up over many (docs/proofs/intervals.md)."""
REACH = 0.6
"""The correction takes a node for one like the others of its level, which may be wrong where few live among many empty
nodes: its limits also reach this part of the half-width around the estimate that takes the numbers as they are."""


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


class Bars(Protocol):
    """What a recipe's published numbers say about cells and areas of the given released values."""

    @property
    def method(self) -> str: ...
    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds: ...
    def of_boxes(self, boxes: Boxes, values: Values, level: float) -> Bounds: ...
    def of_area(self, cells: Int, values: Values, level: float) -> Bounds: ...


def interval(release: Release, area: Boxes | Int, level: float) -> Interval:
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


def saved_columns(release: Release, method: object) -> tuple[Float, Float] | None:
    """`columns` by the method that a saved release names: today's, or an earlier one."""
    bars = None if missing(release) is not None else bars_of(release)
    if not isinstance(bars, TreeBars) or method != bars.earlier:
        return columns(release)
    return finish(bounds.of_cells_cut(bars.plain, bars.tree.keys(release.cells), LEVEL), release.values)


def columns(release: Release, boxes: Boxes | None = None, values: Values | None = None) -> tuple[Float, Float] | None:
    """(lower, upper) of every released cell, or of `boxes` of released `values`, at LEVEL; None where no interval can
    be made."""
    if missing(release) is not None:
        return None
    bars = bars_of(release)
    if boxes is None or values is None:
        return finish(bars.of_cells(release.cells, release.values, LEVEL), release.values)
    try:
        return finish(bars.of_boxes(boxes, values, LEVEL), values)
    except DomainError:  # too many cells to treat one by one
        return None


def finish(found: Bounds, values: Values) -> tuple[Float, Float]:
    """Limits as whole numbers, since counts are, stretched to the released value where it lies outside."""
    lower, upper, _ = found
    slack = 1e-6 + 1e-12 * np.abs(upper)  # floating-point sums: rather one too wide than one too narrow
    low, high = np.ceil(lower - slack), np.floor(upper + slack)
    none = low > high
    low[none], high[none] = np.floor(lower[none]), np.ceil(upper[none])
    return np.minimum(np.maximum(low, 0.0), values), np.maximum(np.maximum(high, 0.0), values)


def missing(release: Release) -> str | None:
    """Why no interval can be made of this release, or None."""
    recipe, kind = release.recipe, release.recipe["transform"]
    if recipe["refine"] in ("none", "inverse") and kind in ("identity", "sum_difference", "haar_nd"):
        return None  # the released values are the noisy numbers, or their inverse
    if release.measurements is not None and kind in ("counts", "sum_difference"):
        return None
    if recipe["name"] == "haar_topdown" and recipe["descent"] == "jump":
        return "drawn with level jumps, which leave no measurements; haar_topdown(descent='plain') publishes them"
    return f"{recipe['name']} with these options publishes no measurements"


def bars_of(release: Release) -> Bars:
    """The error bars of a release, made once."""
    why = missing(release)
    if why is not None:
        raise DomainError(f"no interval: {why}")
    kept = release.__dict__.get("_bars")
    if kept is None:
        kept = release.__dict__["_bars"] = _bars(release)
    return kept


def _bars(release: Release) -> Bars:
    kind, domain = release.recipe["transform"], release.domain
    scale, noise = Fraction(release.recipe["scale"]), str(release.recipe["noise"])
    if kind == "identity":
        return CellBars(release, scale, noise)
    if kind == "haar_nd":
        axes = tuple(order.row_major(Domain.of(Ordered(f"d{i}", size))) for i, size in enumerate(domain.shape))
        return AxisBars(release, axes, laplace_variance(scale, noise))
    tree = estimate.tree_of(release.recipe, domain)
    if release.measurements is None:
        return FullBars(release, tree, laplace_variance(scale, noise))
    return TreeBars(release, tree)


@dataclass(frozen=True, eq=False)
class TreeBars:
    """A drawn tree of counts or differences."""

    release: Release
    tree: Order

    @property
    def method(self) -> str:
        return f"{self.earlier}; pooled with the nodes around it"

    @property
    def earlier(self) -> str:
        """The method that saved releases name whose limits were cut by those of the nodes around."""
        what = "counts" if self.counts else "differences"
        return f"least squares of the noisy {what} of the drawn tree, without sign constraint"

    @property
    def counts(self) -> bool:
        return bool(self.release.recipe["transform"] == "counts")

    @cached_property
    def plain(self) -> Estimated:
        """Estimates from the numbers as they are."""
        assert self.release.measurements is not None
        if self.counts:
            return estimate.counts(self.release.measurements, self.tree, shrink=False)
        return estimate.differences(self.release.measurements, self.tree)

    @cached_property
    def fitted(self) -> Estimated:
        """Estimates from numbers corrected for selection."""
        assert self.release.measurements is not None
        return estimate.counts(self.release.measurements, self.tree, shrink=True)

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        return bounds.of_cells(self.plain, self.tree.keys(cells), level)

    def of_boxes(self, boxes: Boxes, values: Values, level: float) -> Bounds:
        return self._search(self.within(boxes), level)

    def within(self, boxes: Boxes) -> BoxSearch | CellSearch:
        """The areas against the tree. Of a masked tree of differences cell by cell: the share of an area in a node that
        was not descended depends on the mask below it."""
        if self.counts or not self.release.domain.mask:
            return boxes.search(self.tree, self.release.domain)
        cells, region = boxes.all_cells(self.release.domain)
        return CellSearch(self.tree, np.sort(region * self.tree.leaves + self.tree.keys(cells)), boxes.count)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._search(CellSearch(self.tree, np.sort(self.tree.keys(cells))), level)

    def _search(self, search: BoxSearch | CellSearch, level: float) -> Bounds:
        found = bounds.of_regions(self.plain, search, level)
        many = found.nodes > FEW
        if not self.counts or not many.any():
            return found.limits
        better = bounds.of_regions(self.fitted, search, level).limits
        reach = REACH * factor(level) * np.sqrt(found.variance)
        lower = np.minimum(better[0], np.maximum(found.limits[2] - reach, 0.0))
        upper = np.maximum(better[1], found.limits[2] + reach)
        lower, upper, middle = (
            np.where(many, b, a) for a, b in zip(found.limits, (lower, upper, better[2]), strict=True)
        )
        return lower, upper, middle


@dataclass(frozen=True, eq=False)
class CellBars:
    """Cells by themselves, noise known exactly: one cell has the exact quantile, sums of n the variance n v."""

    release: Release
    scale: Fraction
    noise: str
    method: str = "exact noise of single cells; sums by their variance"

    def _half(self, cells: Any, level: float) -> Float:
        v = laplace_variance(self.scale, self.noise)
        if self.noise == "float Laplace":
            one = -math.log(1 - level) * float(self.scale)
        else:  # the smallest q with P(|N| > q) = 2 a^(q+1)/(1+a) <= 1 - level, a = exp(-1/scale)
            a = math.exp(-1 / float(self.scale)) if v > 0 else 0.0
            one = 0.0 if a == 0 else max(math.ceil(math.log((1 - level) * (1 + a) / 2) / math.log(a) - 1 - 1e-9), 0)
        return np.where(cells == 1, one, factor(level) * np.sqrt(v * np.asarray(cells)))

    def _around(self, values: Values, cells: Any, level: float) -> Bounds:
        x, half = values.astype(np.float64), self._half(cells, level)
        return np.maximum(x - half, 0.0), bounds.above(x, half), x

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, 1, level)

    def of_boxes(self, boxes: Boxes, values: Values, level: float) -> Bounds:
        return self._around(values, boxes.possible(self.release.domain), level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, np.array([cells.size]), level)


@dataclass(frozen=True, eq=False)
class FullBars:
    """Every coefficient of a tree of differences was measured and inverted (privelet): the released sums are the
    estimates, and only their variance is computed here."""

    release: Release
    tree: Order
    variance: float
    method: str = "the inverse transform, by the variance of the area"

    def _around(self, values: Values, variance: Float, level: float) -> Bounds:
        x, half = values.astype(np.float64), factor(level) * np.sqrt(variance)
        return np.maximum(x - half, 0.0), bounds.above(x, half), x

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        f = np.full(1, self.variance)
        for left, right in transform.levels(self.tree.possible_leaves()):
            both = left & right
            f = np.repeat(np.where(both, (f + self.variance) / 4, f), 2)
        return self._around(values, f[self.tree.keys(cells)], level)

    def of_boxes(self, boxes: Boxes, values: Values, level: float) -> Bounds:
        cells, region = boxes.all_cells(self.release.domain)
        return self._around(values, self._spread(cells, region, boxes.count), level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, self._spread(cells, np.zeros(cells.size, dtype=np.int64), 1), level)

    def _spread(self, cells: Int, region: Int, count: int) -> Float:
        """Variance of the sums over areas: a child is (S +- D)/2, so weights a give (a_l - a_r)/2 on D and
        (a_l + a_r)/2 on S; where one child is possible it takes S. Cost: O(cells log)."""
        number = self.tree.keys(cells) * count + region
        a: Any = np.ones(cells.size)
        out = np.zeros(count)
        for left, right in reversed(transform.levels(self.tree.possible_leaves())):
            node, region = np.divmod(number, count)
            both = (left & right)[node >> 1]
            a = np.where(both, a / 2, a)
            number, at = np.unique((node >> 1) * count + region, return_inverse=True)
            d = np.bincount(at, np.where(node & 1, -a, a) * both, number.size)
            a = np.bincount(at, a, number.size)
            out += np.bincount(number % count, self.variance * d**2, count)
        return out + np.bincount(number % count, self.variance * a**2, count)


@dataclass(frozen=True, eq=False)
class AxisBars(FullBars):
    """The standard decomposition, axis by axis (privelet order="2d"): the variance of a box is a product."""

    release: Release
    tree: tuple[Order, ...]  # type: ignore[assignment]
    variance: float

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        index = np.column_stack(self.release.domain.unravel(cells))
        return self._around(values, self._boxes(index, index + 1), level)

    def of_boxes(self, boxes: Boxes, values: Values, level: float) -> Bounds:
        if self.release.domain.mask:
            if boxes.count > 1:
                raise DomainError("sums of many masked areas have no closed form in privelet(order='2d')")
            return self.of_area(boxes.all_cells(self.release.domain)[0], values, level)
        return self._around(values, self._boxes(boxes.low, boxes.high), level)

    def _boxes(self, low: Int, high: Int) -> Float:
        out = np.full(low.shape[0], self.variance)
        for d, tree in enumerate(self.tree):
            ranges, at = np.unique(np.column_stack((low[:, d], high[:, d])), axis=0, return_inverse=True)
            weights = np.zeros((tree.leaves, len(ranges)))
            for i, (a, b) in enumerate(ranges.tolist()):
                weights[a:b, i] = 1.0
            out *= (transform.sum_weights(tree, weights) ** 2).sum(axis=0)[at.ravel()]
        return out

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        weights = np.zeros(tuple(tree.leaves for tree in self.tree))
        weights[self.release.domain.unravel(cells)] = 1.0
        for d, tree in enumerate(self.tree):
            weights = np.moveaxis(transform.sum_weights(tree, np.moveaxis(weights, d, 0)), 0, d)
        return self._around(values, np.array([self.variance * (weights**2).sum()]), level)
