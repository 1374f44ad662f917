"""Public partitions of the cells that need not be levels of the tree: margins, maps of regions, products of both.

A partition is a product over axes of labels: every cell of an axis has one label from 0 up, or none (-1). Along the
tree's own order of an axis, labels are runs of keys; a node of the tree is a range of keys per axis, so which groups it
touches, and with what fraction of its possible cells, follows by merging runs, without looking at cells. (Where a mask
couples several axes the fractions leave it out: they say how a node that nobody looked into is spread, no more.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.schema import Domain
from kasuri.trees.order import Order

OUTSIDE = -1
"""Label of cells that are in no group."""
IMPOSSIBLE = -2
"""Label of keys that are padding, or masked on the axis by itself."""


@dataclass(frozen=True, eq=False)
class AxisLabels:
    """One axis of a partition: the tree's levels that split it with their radices, and runs of labels in the order of
    its own keys: run i holds keys starts[i] up to starts[i+1] (the last: `end`)."""

    axis: str
    levels: tuple[int, ...]
    radices: tuple[int, ...]
    starts: Int = field(repr=False)
    labels: Int = field(repr=False)
    end: int
    count: int

    def own(self, tree: Order, nodes: Int, depth: int) -> tuple[Int, int]:
        """The axis' digits in the prefixes of nodes at `depth`, and how many keys each of these numbers stands for."""
        out, span = np.zeros(nodes.size, dtype=np.int64), self.end
        for level, radix in zip(self.levels, self.radices, strict=True):
            if level < depth:
                width = tree.width(level + 1, depth)
                if radix == 2 and width & (width - 1) == 0:
                    out = out << 1 | nodes >> (width.bit_length() - 1) & 1
                else:
                    out = out * radix + nodes // width % radix
                span //= radix
        return out, span

    def touched(self, numbers: Int, span: int) -> tuple[Int, Int, Float]:
        """The groups of each range of `span` keys: (first, labels, fractions of the range's possible keys)."""
        low, high = numbers * span, (numbers + 1) * span
        at, until = np.searchsorted(self.starts, low, "right") - 1, np.searchsorted(self.starts, high, "left")
        owner, run = _ranges(at, until)
        edges = np.append(self.starts, self.end)
        size = np.minimum(edges[run + 1], high[owner]) - np.maximum(edges[run], low[owner])
        label = self.labels[run]
        possible = np.bincount(owner, size * (label != IMPOSSIBLE), numbers.size)
        inside = label >= 0
        both, place = np.unique(owner[inside] * self.count + label[inside], return_inverse=True)
        sums = np.bincount(place, size[inside], both.size)
        row, label = np.divmod(both, self.count)
        first = np.searchsorted(row, np.arange(numbers.size + 1))
        return first, label, sums / np.maximum(possible, 1.0)[row]


@dataclass(frozen=True, eq=False)
class Partition:
    """Groups of cells, numbered row-major over the labels of the axes; no axis at all: one group of everything."""

    name: str
    axes: tuple[AxisLabels, ...]

    @cached_property
    def groups(self) -> int:
        return math.prod(axis.count for axis in self.axes)

    @cached_property
    def whole(self) -> bool:
        """Is every possible cell in a group?"""
        return all((axis.labels != OUTSIDE).all() for axis in self.axes)

    def of_keys(self, tree: Order, keys: Int) -> Int:
        """The group of each leaf of the tree, -1 for none."""
        out, outside = np.zeros(keys.size, dtype=np.int64), np.zeros(keys.size, dtype=bool)
        for axis in self.axes:
            own, _ = axis.own(tree, keys, tree.depth)
            label = axis.labels[np.searchsorted(axis.starts, own, "right") - 1]
            outside |= label < 0
            out = out * axis.count + label
        return np.where(outside, OUTSIDE, out)

    def of_nodes(self, tree: Order, depth: int, nodes: Int) -> Touched:
        """Which groups nodes touch. Nodes with equal numbers on the axes of the partition share a class."""
        klass, rows = np.zeros(nodes.size, dtype=np.int64), _ALL
        for axis in self.axes:
            own, span = axis.own(tree, nodes, depth)
            numbers, place = np.unique(own, return_inverse=True)
            other = axis.touched(numbers, span)
            pairs, klass = np.unique(klass * max(numbers.size, 1) + place, return_inverse=True)
            rows = _product(*np.divmod(pairs, max(numbers.size, 1)), rows, other, axis.count)
        return Touched(klass, *rows)


@dataclass(frozen=True, eq=False)
class Touched:
    """Nodes by class, and per class the groups touched at first[c]:first[c+1] with the fraction of a node in each."""

    klass: Int
    first: Int
    group: Int
    fraction: Float


_ALL: tuple[Int, Int, Float] = np.array([0, 1]), np.zeros(1, dtype=np.int64), np.ones(1)  # one row: one group, wholly


def _ranges(start: Int, end: Int) -> tuple[Int, Int]:
    """All i in start[j]:end[j], for every j one after the other, with their j."""
    sizes = end - start
    owner = np.repeat(np.arange(start.size), sizes)
    return owner, np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + start[owner]


def _product(left: Int, right: Int, one: tuple[Int, Int, Float], two: tuple[Int, Int, Float], count: int
             ) -> tuple[Int, Int, Float]:  # fmt: skip
    """The products of row left[c] of `one` and row right[c] of `two`, per class c."""
    (first, group, share), (other, label, fraction) = one, two
    wide = (other[1:] - other[:-1])[right]
    sizes = (first[1:] - first[:-1])[left] * wide
    owner, at = _ranges(np.zeros(sizes.size, dtype=np.int64), sizes)
    a, b = np.divmod(at, wide[owner])
    i, j = first[left[owner]] + a, other[right[owner]] + b
    return np.append(0, np.cumsum(sizes)), group[i] * count + label[j], share[i] * fraction[j]


def axis_labels(tree: Order, domain: Domain, axis: str, labels: Int, count: int) -> AxisLabels:
    """Labels (-1: none) of every cell of an axis, row-major over its own dimensions, as runs along the tree."""
    positions = domain.positions(axis)
    levels = tuple(level for level, digit in enumerate(tree.digits) if digit.dim in positions)
    radices = tuple(tree.digits[level].radix for level in levels)
    end = math.prod(radices)
    shape = [domain.shape[d] for d in positions]
    keys = np.zeros((1,) * len(shape), dtype=np.int64)
    stride = end
    for level, radix in zip(levels, radices, strict=True):
        digit = tree.digits[level]
        stride //= radix
        dim = tree.dims[digit.dim]
        place = np.arange(dim.size) if dim.places is None else dim.places
        part = place // digit.weight % radix * stride
        keys = keys + part.reshape([-1 if d == digit.dim else 1 for d in positions])
    by_key = np.full(end, IMPOSSIBLE, dtype=np.int64)
    told = np.asarray(labels, dtype=np.int64).reshape(shape).copy()
    for mask in domain.zeros:
        if mask.axes == (axis,):
            told[mask.impossible().reshape(shape)] = IMPOSSIBLE
    by_key[np.broadcast_to(keys, shape)] = told
    starts = np.flatnonzero(np.diff(by_key, prepend=IMPOSSIBLE - 1))
    return AxisLabels(axis, levels, radices, starts, by_key[starts], end, count)


def axis_level(tree: Order, domain: Domain, axis: str, depth: int | None = None) -> AxisLabels:
    """The nodes of an axis after `depth` of its own splits (None: its cells), numbered in the tree's order."""
    cells = math.prod(domain.shape[d] for d in domain.positions(axis))
    fine = axis_labels(tree, domain, axis, np.zeros(cells, dtype=np.int64), 1)
    own = len(fine.levels) if depth is None else depth
    span = math.prod(fine.radices[own:])
    edges = np.append(fine.starts, fine.end)
    possible = fine.labels >= 0
    _, block = _ranges(edges[:-1][possible] // span, -(-edges[1:][possible] // span))
    nodes = np.unique(block)
    starts = np.unique(np.concatenate((fine.starts, nodes * span)))
    there = fine.labels[np.searchsorted(fine.starts, starts, "right") - 1] >= 0
    labels = np.where(there, np.searchsorted(nodes, starts // span), IMPOSSIBLE)
    return AxisLabels(axis, fine.levels, fine.radices, starts, labels, fine.end, nodes.size)
