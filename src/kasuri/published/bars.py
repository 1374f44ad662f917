"""Error bars by kind of recipe: what its published numbers say about cells and areas (docs/proofs/intervals.md).

Everything is a function of what is published; nothing here sees counts, or refined values but to stretch to them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace, Noise
from kasuri.published import around, bounds, estimate
from kasuri.published.bounds import Bounds, factor
from kasuri.published.estimate import Estimated
from kasuri.published.measurements import Measurements
from kasuri.schema import Domain
from kasuri.trees import transform
from kasuri.trees.order import Order
from kasuri.trees.regions import Boxes, BoxSearch, CellSearch, Sets

Values = NDArray[Any]

FEW = 32
"""An area of more nodes than this is summed from numbers corrected for selection: what selection does to one number is
within its noise, but it adds up over many (docs/proofs/intervals.md)."""
REACH = 0.4
"""The correction takes a node for one like the others of its level, which may be wrong where few live among many empty
nodes: its limits also reach this part of the half-width around the estimate that takes the numbers as they are."""


class Bars(Protocol):
    """What a recipe's published numbers say about cells and areas of the given released values."""

    @property
    def method(self) -> str: ...
    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds: ...
    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds: ...
    def of_area(self, cells: Int, values: Values, level: float) -> Bounds: ...


@dataclass(frozen=True)
class NoBars:
    """No interval can be made, and why."""

    why: str


@dataclass(frozen=True, eq=False)
class TreeBars(ABC):
    """The published numbers of a drawn tree."""

    domain: Domain
    tree: Order
    measurements: Measurements
    what: ClassVar[str]
    by: ClassVar[str]

    @property
    def method(self) -> str:
        return f"{self._plainly}; {self.by}"

    @property
    def _plainly(self) -> str:
        return f"least squares of the noisy {self.what} of the drawn tree, without sign constraint"

    @property
    def earlier(self) -> tuple[str, ...]:
        """The methods that saved releases name: limits cut by those of the nodes around; windows without an end; two
        windows, with another reach of areas."""
        pooled = f"{self._plainly}; pooled with the nodes around it"
        return self._plainly, pooled, f"{pooled}, in two windows at most"

    @property
    def earlier_of_areas(self) -> tuple[str, ...]:
        """The methods that saved releases name whose limits of cells are those of today."""
        return ()

    @property
    @abstractmethod
    def plain(self) -> Estimated:
        """Estimates from the numbers as they are."""

    @abstractmethod
    def within(self, boxes: Boxes | Sets) -> BoxSearch | CellSearch:
        """The areas against the tree."""

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        return bounds.of_cells(self.plain, self.tree.keys(cells), level)

    def of_cells_earlier(self, method: str, cells: Int, values: Values, level: float) -> Bounds:
        """The limits that releases of one of the `earlier` methods were saved with."""
        keys = self.tree.keys(cells)
        if method == self.earlier[0]:
            return bounds.of_cells_cut(self.plain, keys, level)
        parts = around.EVER if method == self.earlier[1] else around.TWICE
        return bounds.of_cells(self.plain, keys, level, around.pooled(self.plain, level, parts))

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        return self.search(self.within(boxes), level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self.search(CellSearch(self.tree, np.sort(self.tree.keys(cells))), level)

    def search(self, search: BoxSearch | CellSearch, level: float) -> Bounds:
        return self.limits(self.sums(search), level)

    def sums(self, search: BoxSearch | CellSearch) -> list[bounds.Sums]:
        """Areas as sums of the nodes of every tree of estimates that their limits need."""
        return [bounds.sums(self.plain, search.count, bounds.pairs(self.plain, search))]

    def limits(self, sums: list[bounds.Sums], level: float) -> Bounds:
        """Limits of areas."""
        return bounds.of_areas(self.plain, sums[0], level)


@dataclass(frozen=True, eq=False)
class CountBars(TreeBars):
    """Counts of chosen levels, with noise of one law."""

    law: type[DiscreteLaplace] | type[DiscreteGaussian] = field(default=DiscreteLaplace, kw_only=True)
    what: ClassVar[str] = "counts"
    by: ClassVar[str] = "pooled with the nodes around it, in two windows at most; areas reach what they cut"

    @cached_property
    def plain(self) -> Estimated:
        return estimate.counts(self.measurements, self.tree, shrink=False, law=self.law)

    @cached_property
    def fitted(self) -> Estimated:
        """Estimates from numbers corrected for selection."""
        return estimate.counts(self.measurements, self.tree, shrink=True, law=self.law)

    def within(self, boxes: Boxes | Sets) -> BoxSearch | CellSearch:
        return boxes.search(self.tree, self.domain)

    def sums(self, search: BoxSearch | CellSearch) -> list[bounds.Sums]:
        pairs = bounds.pairs(self.plain, search)  # the same nodes, whatever their numbers
        plain = bounds.sums(self.plain, search.count, pairs)
        return [plain, bounds.sums(self.fitted, search.count, pairs)] if (plain.nodes > FEW).any() else [plain]

    def limits(self, sums: list[bounds.Sums], level: float) -> Bounds:
        area, found = sums[0], bounds.of_areas(self.plain, sums[0], level)
        if len(sums) == 1:
            return found
        better = bounds.of_areas(self.fitted, sums[1], level)
        reach = REACH * factor(level) * np.sqrt(area.variance)
        lower = np.minimum(better[0], np.maximum(area.estimate - reach, 0.0))
        upper = np.maximum(better[1], area.estimate + reach)
        many, three = area.nodes > FEW, (lower, upper, better[2])
        lower, upper, middle = (np.where(many, b, a) for a, b in zip(found, three, strict=True))
        return lower, upper, middle


@dataclass(frozen=True, eq=False)
class DifferenceBars(TreeBars):
    """Sums and differences down a binary tree."""

    what: ClassVar[str] = "differences"
    weighed: ClassVar[str] = "pooled with the nodes around it, in two windows at most, or weighed against the way to it"
    by: ClassVar[str] = f"{weighed}; areas doubt what they cut"

    @property
    def earlier_of_areas(self) -> tuple[str, ...]:
        """When areas believed what the nodes that they cut are expected to hold."""
        return (f"{self._plainly}; {self.weighed}",)

    @cached_property
    def plain(self) -> Estimated:
        return estimate.differences(self.measurements, self.tree)

    def within(self, boxes: Boxes | Sets) -> BoxSearch | CellSearch:
        """Of a masked tree cell by cell: the share of an area in a node that was not descended depends on the mask
        below it."""
        if not self.domain.zeros:
            return boxes.search(self.tree, self.domain)
        return Sets(*boxes.all_cells(self.domain), boxes.count).search(self.tree, self.domain)


@dataclass(frozen=True, eq=False)
class CellBars:
    """Cells by themselves, noise known exactly: one cell has the exact quantile, sums of n the variance n v."""

    domain: Domain
    noise: Noise
    method: str = "exact noise of single cells; sums by their variance"

    def _half(self, cells: Any, level: float) -> Float:
        many = factor(level) * np.sqrt(self.noise.variance * np.asarray(cells))
        return np.where(cells == 1, self.noise.half_width(level), many)

    def _around(self, values: Values, cells: Any, level: float) -> Bounds:
        x, half = values.astype(np.float64), self._half(cells, level)
        return np.maximum(x - half, 0.0), bounds.above(x, half), x

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, 1, level)

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        return self._around(values, boxes.possible(self.domain), level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, np.array([cells.size]), level)


@dataclass(frozen=True, eq=False)
class FullBars:
    """Every coefficient of a tree of differences was measured and inverted (privelet): the released sums are the
    estimates, and only their variance is computed here."""

    domain: Domain
    tree: Order
    variance: float
    method: ClassVar[str] = "the inverse transform, by the variance of the area and steps of the noise"
    earlier: ClassVar[tuple[str, ...]] = ("the inverse transform, by the variance of the area",)

    def of_cells_earlier(self, method: str, cells: Int, values: Values, level: float) -> Bounds:
        """The limits that releases were saved with before steps were known."""
        return self.of_cells(cells, values, level)

    def _around(self, values: Values, variance: Float, level: float) -> Bounds:
        x, half = values.astype(np.float64), factor(level) * np.sqrt(variance)
        return np.maximum(x - half, 0.0), bounds.above(x, half), x

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        f = np.full(1, self.variance)
        for left, right in transform.levels(self.tree.possible_leaves()):
            both = left & right
            f = np.repeat(np.where(both, (f + self.variance) / 4, f), 2)
        return self._around(values, f[self.tree.keys(cells)], level)

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        cells, region = boxes.all_cells(self.domain)
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

    domain: Domain
    tree: tuple[Order, ...]  # type: ignore[assignment]
    variance: float

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        index = np.column_stack(self.domain.unravel(cells))
        return self._around(values, self._boxes(index, index + 1), level)

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        if self.domain.zeros or isinstance(boxes, Sets):
            if boxes.count > 1:
                raise DomainError("sums of many masked areas have no closed form in privelet(order='2d')")
            return self.of_area(boxes.all_cells(self.domain)[0], values, level)
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
        weights[self.domain.unravel(cells)] = 1.0
        for d, tree in enumerate(self.tree):
            weights = np.moveaxis(transform.sum_weights(tree, np.moveaxis(weights, d, 0)), 0, d)
        return self._around(values, np.array([self.variance * (weights**2).sum()]), level)


@dataclass(frozen=True, eq=False)
class LinearBars:
    """Least squares of numbers that all have discrete Laplace noise of one scale: the released sums are the estimates,
    with errors sum w N of public weights w. `_norms` gives sum w^2 of areas of cells.

    P(|N| > x) <= 2 a^x / (1 + a), a = exp(-1/scale), so one number is covered by the first of two half-widths and the
    sum of many by the normal one; a sum of few lies between the two laws (measured: docs/proofs/intervals.md).
    """

    domain: Domain
    scale: Fraction
    method: ClassVar[str] = "least squares of all measured numbers, by the variance of the area"

    def _norms(self, cells: Int, region: Int, count: int) -> Float:
        raise NotImplementedError

    def _around(self, values: Values, norms: Float, level: float) -> Bounds:
        s = float(self.scale)
        a = math.exp(-1 / s) if s > 1e-3 else 0.0
        one = max(s * math.log(2 / ((1 - level) * (1 + a))), math.sqrt(2) * s * NormalDist().inv_cdf((1 + level) / 2))
        x, half = values.astype(np.float64), one * np.sqrt(norms)
        return np.maximum(x - half, 0.0), bounds.above(x, half), x

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, self._norms(cells, np.arange(cells.size), cells.size), level)

    def of_boxes(self, boxes: Boxes | Sets, values: Values, level: float) -> Bounds:
        cells, region = boxes.all_cells(self.domain)
        return self._around(values, self._norms(cells, region, boxes.count), level)

    def of_area(self, cells: Int, values: Values, level: float) -> Bounds:
        return self._around(values, self._norms(cells, np.zeros(cells.size, dtype=np.int64), 1), level)


@dataclass(frozen=True, eq=False)
class MatrixBars(LinearBars):
    """A measured matrix A: sum w^2 = a^T (A^T A)^-1 a."""

    rows: Int

    @cached_property
    def _root(self) -> Float:
        """R^-1 of A = QR, a row per cell of the domain (0: impossible), so that sum w^2 = |R^-T a|^2."""
        domain = self.domain
        cells = np.flatnonzero(domain.possible_dense().ravel())
        a = self.rows.astype(np.float64)
        out = np.zeros((domain.size, cells.size))
        out[cells] = np.linalg.inv(np.linalg.qr(a, mode="r"))
        return out

    def _norms(self, cells: Int, region: Int, count: int) -> Float:
        weights = np.zeros((count, self.domain.size))
        weights[region, cells] = 1.0
        return ((weights @ self._root) ** 2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class HierarchyBars(LinearBars):
    """Counts of every possible node of the measured levels of a tree, all of one scale (hierarchy)."""

    tree: Order
    depths: tuple[int, ...]

    once: ClassVar[str] = "hierarchy with these options publishes no measurements"
    """What was said of such releases before they had limits."""

    @cached_property
    def _levels(self) -> list[tuple[int, Float, Float]]:
        """Per measured level, from the top: leaves below a node; by node the variance v of its estimate from itself
        and all below, in units of one number's, and the sum of v over its children. Impossible nodes have v = 0."""
        possible, out, below = self.tree.possible_leaves(), [], None
        for depth in sorted(self.depths, reverse=True):
            stride = self.tree.stride(depth)
            there = possible.reshape(-1, stride).any(axis=1)
            sums = np.zeros(there.size) if below is None else below.reshape(there.size, -1).sum(axis=1)
            below = np.where(there, 1.0, 0.0) if below is None else np.where(there, sums / (1 + sums), 0.0)
            out.append((stride, below, sums))
        return out[::-1]

    def of_cells(self, cells: Int, values: Values, level: float) -> Bounds:
        f = self._levels[0][1]
        for (_, _, sums), (_, v, _) in pairwise(self._levels):
            wide = v.size // sums.size
            share = v / np.repeat(np.maximum(sums, 1e-300), wide)
            f = v - v * share + share**2 * np.repeat(f, wide)
        return self._around(values, f[self.tree.keys(cells)], level)

    def _norms(self, cells: Int, region: Int, count: int) -> Float:
        """As areas in docs/proofs/intervals.md: upward a_p = S a v / Sv over the children of p, and every parent adds
        S a^2 v - (S a v)^2 / Sv. Cost: O(cells x levels)."""
        number, a, out = self.tree.keys(cells) * count + region, np.ones(cells.size), np.zeros(count)
        levels = self._levels
        for (stride, v, _), (above, _, sums) in zip(levels[:0:-1], levels[-2::-1], strict=True):
            node, own = np.divmod(number, count)
            number, at = np.unique(node // (above // stride) * count + own, return_inverse=True)
            parent, whose = np.divmod(number, count)
            first, second = (np.bincount(at, part * v[node], number.size) for part in (a, a * a))
            out += np.bincount(whose, second - first * first / sums[parent], count)
            a = first / sums[parent]
        node, own = np.divmod(number, count)
        return out + np.bincount(own, a * a * levels[0][1][node], count)
