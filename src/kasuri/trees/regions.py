"""Areas of a domain against a public tree: boxes, and any set of cells. Everything here is public geometry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError
from kasuri.schema import Domain
from kasuri.trees.factors import NONE
from kasuri.trees.order import Order

APART, CUT, INSIDE = 0, 1, 2
"""A node against an area."""
MOST_CELLS = 1 << 24
"""Most cells of an area that is given, or has to be treated, cell by cell."""
_END = np.int64(1) << 62


@dataclass(frozen=True, eq=False)
class Boxes:
    """Areas low[r, d] <= index < high[r, d] along every dimension d."""

    low: Int
    high: Int

    @property
    def count(self) -> int:
        return self.low.shape[0]

    def sizes(self) -> Int:
        """Cells of every area, impossible ones included; never wraps, as a domain has at most 2^62."""
        return np.prod(self.high - self.low, axis=1)

    def all_cells(self, domain: Domain) -> tuple[Int, Int]:
        """Possible cells of all areas, area by area, and the area each belongs to."""
        sizes = self.sizes()
        if int(sizes.sum()) > MOST_CELLS:
            raise DomainError(f"more than {MOST_CELLS} cells would have to be treated one by one; give smaller areas")
        region = np.repeat(np.arange(self.count), sizes)
        rest = np.arange(region.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        index = []
        for d in range(len(domain.shape) - 1, -1, -1):
            rest, own = np.divmod(rest, (self.high[:, d] - self.low[:, d])[region])
            index.append(own + self.low[region, d])
        cells = domain.ravel(index[::-1])
        good = domain.possible(cells)
        return cells[good], region[good]

    def possible(self, domain: Domain) -> Int:
        """Possible cells of every area, counted."""
        if not domain.zeros:
            return self.sizes()
        return np.bincount(self.all_cells(domain)[1], minlength=self.count)

    def search(self, order: Order, domain: Domain) -> BoxSearch | CellSearch:
        """These areas against a tree over the domain."""
        boxes = self.in_places(order, domain)
        if boxes is not None:
            return BoxSearch(order, boxes)
        return Sets(*self.all_cells(domain), self.count).search(order, domain)

    def in_places(self, order: Order, domain: Domain) -> Boxes | None:
        """The same areas as ranges of the tree's places, open ended where they reach the edge; None where a range of
        labels is not a range of places."""
        if len(order.dims) != len(domain.shape):  # cells one after the other, whatever their dimensions
            return None
        low, high = self.low.copy(), self.high.copy()
        for d, dim in enumerate(order.dims):
            first, last = self.low[:, d] == 0, self.high[:, d] == dim.size
            if dim.places is not None:
                one = self.high[:, d] - self.low[:, d] == 1
                rising = bool((np.diff(dim.places) > 0).all())
                if not rising and not (one | (first & last)).all():
                    return None
                low[:, d], high[:, d] = dim.places[self.low[:, d]], dim.places[self.high[:, d] - 1] + 1
                if not rising:
                    first = last = first & last
            low[first, d] = 0
            high[last, d] = _END  # what lies beyond the last cell is padding
        return Boxes(low, high)


@dataclass(frozen=True, eq=False)
class Sets:
    """Areas of any possible cells that do not overlap: the cells, and the number of the area each is in."""

    cells: Int
    region: Int
    count: int

    def all_cells(self, domain: Domain) -> tuple[Int, Int]:
        return self.cells, self.region

    def possible(self, domain: Domain) -> Int:
        return np.bincount(self.region, minlength=self.count)

    def search(self, order: Order, domain: Domain) -> CellSearch:
        """These areas against a tree over the domain."""
        if self.count * order.leaves >= 1 << 62:
            raise DomainError("too many areas for so large a tree; give them one by one")
        return CellSearch(order, np.sort(self.region * order.leaves + order.keys(self.cells)), self.count)


class BoxSearch:
    """Status of nodes against boxes in places."""

    def __init__(self, order: Order, boxes: Boxes) -> None:
        self._tree = tuple(
            np.array([getattr(digit, name) for digit in order.digits], dtype=np.int64)
            for name in ("dim", "weight", "radix")
        )
        self._boxes, self.count = boxes, boxes.count
        self._sizes = np.array([dim.size if dim.places is None else dim.places.max() + 1 for dim in order.dims])

    def status(self, depth: int, prefix: Int, region: Int) -> Int:
        from kasuri._kernels.intervals import box_status

        out = np.zeros(prefix.size, dtype=np.int64)
        box_status(prefix, region, depth, *self._tree, self._boxes.low, self._boxes.high, out)
        return out

    def starts(self) -> Int:
        """Where the places of the root begin, for every box."""
        return np.zeros_like(self._boxes.low)

    def below(self, depth: int, prefix: Int, region: Int, starts: Int) -> tuple[Int, Int, Int, Int]:
        """Children that are not apart: the node that each is a child of, by its place, the children, their status, and
        where their places begin. None is visited that is apart by the dimension that splits the nodes: an axis may have
        thousands."""
        from kasuri._kernels.intervals import box_below

        return box_below(prefix, region, starts, depth, *self._tree, self._boxes.low, self._boxes.high)

    def share(self, depth: int, prefix: Int, region: Int) -> Float:
        from kasuri._kernels.intervals import box_share

        out = np.zeros(prefix.size)
        box_share(prefix, region, depth, *self._tree, self._sizes, self._boxes.low, self._boxes.high, out)
        return out

    def halves(self, depth: int, prefix: Int, region: Int) -> Float:
        """Share of an area in nodes of a binary tree without a mask, every node shared in halves by its children."""
        from kasuri._kernels.intervals import box_halves

        out = np.zeros(prefix.size)
        box_halves(prefix, region, depth, *self._tree, self._sizes, self._boxes.low, self._boxes.high, out)
        return out


class CellSearch:
    """Status of nodes against sets of cells: sorted numbers, area * leaves + key."""

    def __init__(self, order: Order, keys: Int, count: int = 1) -> None:
        self._order, self._keys, self.count = order, keys, count

    def starts(self) -> Int:
        """Nothing: nodes are told by their keys."""
        return np.zeros((self.count, 0), dtype=np.int64)

    def below(self, depth: int, prefix: Int, region: Int, starts: Int) -> tuple[Int, Int, Int, Int]:
        """Children that are not apart: the node that each is a child of, by its place, the children, and their
        status."""
        radix = self._order.digits[depth].radix
        parent = np.repeat(np.arange(prefix.size), radix)
        child = (prefix[:, None] * radix + np.arange(radix)).ravel()
        status = self.status(depth + 1, child, region[parent])
        keep = status != APART
        return parent[keep], child[keep], status[keep], starts[parent[keep]]

    def _inside(self, depth: int, prefix: Int, region: Int) -> Int:
        stride = self._order.stride(depth)
        first = region * self._order.leaves + prefix * stride
        return np.searchsorted(self._keys, first + stride) - np.searchsorted(self._keys, first)

    def share(self, depth: int, prefix: Int, region: Int) -> Float:
        return self._inside(depth, prefix, region) / np.maximum(leaves_below(self._order, depth, prefix), 1)

    def halves(self, depth: int, prefix: Int, region: Int) -> Float:
        """Share of an area in nodes of a binary tree, every node shared in halves by its possible children."""
        number, share = self._halves[depth]
        wanted = region * (self._order.leaves // self._order.stride(depth)) + prefix
        place = np.minimum(np.searchsorted(number, wanted), number.size - 1)
        return np.where(number[place] == wanted, share[place], 0.0)

    @cached_property
    def _halves(self) -> list[tuple[Int, Float]]:
        """Per depth: area * nodes + prefix, rising, and the share. Cost: O(cells log)."""
        number, share = self._keys, np.ones(self._keys.size)
        out: list[tuple[Int, Float]] = [(number, share)]
        for depth in range(self._order.depth, 0, -1):
            nodes = self._order.leaves // self._order.stride(depth)
            both = leaves_below(self._order, depth, (number ^ 1) % nodes) > 0
            number, at = np.unique(number >> 1, return_inverse=True)
            share = np.bincount(at, np.where(both, share / 2, share), number.size).astype(np.float64)
            out.append((number, share))
        return out[::-1]

    def status(self, depth: int, prefix: Int, region: Int) -> Int:
        inside = self._inside(depth, prefix, region)
        return np.where(inside == 0, APART, np.where(inside == leaves_below(self._order, depth, prefix), INSIDE, CUT))


def leaves_below(order: Order, depth: int, prefix: Int) -> Int:
    """Possible leaves below nodes at `depth`."""
    out = np.ones(prefix.size, dtype=np.int64)
    for f, factor in enumerate(order.factors):
        own = sum(level < depth for level in factor.levels)
        span = int(np.prod(factor.radices[own:], dtype=object)) if own < len(factor.radices) else 1
        digits = order.own(prefix, depth, f)
        if factor.whole:
            out *= span
        elif factor.status is None:
            out *= np.clip(factor.size - digits * span, 0, span)
        else:
            before = np.concatenate(([0], np.cumsum(factor.status[-1] != NONE)))
            out *= before[(digits + 1) * span] - before[digits * span]
    return out


def cells_of(area: ArrayLike, domain: Domain) -> Int:
    """Possible cells of an irregular area: an array of cell indices, or a boolean array of the domain's shape."""
    array: Any = np.asarray(area)
    if array.dtype == np.bool_:
        if array.shape != domain.shape:
            raise DomainError(f"the area has shape {array.shape}; the domain has {domain.shape}")
        cells = np.flatnonzero(array)
    else:
        if array.dtype.kind not in "iu":
            raise DomainError("cells= is an array of cell indices, or of true and false in the domain's shape")
        cells = np.unique(array.ravel().astype(np.int64))
        if cells.size and (cells[0] < 0 or cells[-1] >= domain.size):
            raise DomainError(f"cells= names a cell outside the domain (0..{domain.size - 1})")
    if cells.size > MOST_CELLS:
        raise DomainError(f"an irregular area has at most {MOST_CELLS} cells; this one has {cells.size}")
    return cells[domain.possible(cells)]
