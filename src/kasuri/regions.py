"""Areas of a domain against a public tree: boxes, and any set of cells. Everything here is public geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError
from kasuri.order import NONE, Order
from kasuri.schema import Domain

Int = NDArray[np.int64]

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

    def cells(self, domain: Domain, r: int) -> Int:
        """Possible cells of area r."""
        if int(np.prod((self.high[r] - self.low[r]).astype(object))) > MOST_CELLS:
            raise DomainError(f"this area has more than {MOST_CELLS} cells, too many to treat one by one")
        ranges = [np.arange(a, b) for a, b in zip(self.low[r], self.high[r], strict=True)]
        cells = domain.ravel(np.meshgrid(*ranges, indexing="ij")).ravel()
        return cells[domain.possible(cells)]

    def in_places(self, order: Order, domain: Domain) -> Boxes | None:
        """The same areas as ranges of the tree's places, open ended where they reach the edge; None where a range of
        labels is no range of places."""
        if len(order.dims) != len(domain.shape):  # cells one after the other: only whole rows of the last dimensions
            return None
        low, high = self.low.copy(), self.high.copy()
        for d, dim in enumerate(order.dims):
            if dim.places is not None:
                rises = bool((np.diff(dim.places) > 0).all())
                if not rises and (((self.high[:, d] - self.low[:, d]) != 1) & (self.low[:, d] > 0)).any():
                    return None
                if not rises and ((self.high[:, d] - self.low[:, d] != 1) & (self.high[:, d] < dim.size)).any():
                    return None
                low[:, d], high[:, d] = dim.places[self.low[:, d]], dim.places[self.high[:, d] - 1] + 1
            low[self.low[:, d] == 0, d] = low[self.low[:, d] == 0, d] if dim.places is not None else 0
            whole = (self.low[:, d] == 0) & (self.high[:, d] == dim.size)
            low[whole, d] = 0
            high[whole, d] = _END
            if dim.places is None:
                high[self.high[:, d] == dim.size, d] = _END  # padding holds no cell
        return Boxes(low, high)


class BoxSearch:
    """Status of nodes against boxes in places."""

    def __init__(self, order: Order, boxes: Boxes) -> None:
        self._tree = tuple(
            np.array([getattr(digit, name) for digit in order.digits], dtype=np.int64)
            for name in ("dim", "weight", "radix")
        )
        self._boxes, self.count = boxes, boxes.count

    def status(self, depth: int, prefix: Int, region: Int) -> Int:
        from kasuri._kernels.intervals import box_status

        out = np.zeros(prefix.size, dtype=np.int64)
        box_status(prefix, region, depth, *self._tree, self._boxes.low, self._boxes.high, out)
        return out


class CellSearch:
    """Status of nodes against one set of cells, given by their sorted keys."""

    count = 1

    def __init__(self, order: Order, keys: Int) -> None:
        self._order, self._keys = order, keys

    def status(self, depth: int, prefix: Int, region: Int) -> Int:
        stride = self._order.stride(depth)
        inside = np.searchsorted(self._keys, (prefix + 1) * stride) - np.searchsorted(self._keys, prefix * stride)
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


def boxes_of(ranges: Sequence[tuple[int, int]]) -> Boxes:
    """One area, as the ranges of `Release.area`."""
    low, high = np.array(ranges, dtype=np.int64).T
    return Boxes(low[None, :].copy(), high[None, :].copy())
