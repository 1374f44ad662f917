"""Map estimates that add up: a quad tree over the mesh, cut top-down in whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.refine.least_squares import simplex_integers

if TYPE_CHECKING:
    from kasuri.local.estimators import Estimate


def quadtree(estimate: Estimate) -> NDArray[np.int64]:
    """Cut the total into quarters, sixteenths, ...: each node's children are the whole numbers >= 0 of its value
    nearest to their own sums of estimates (a projection on the simplex, node by node).

    A block of 4^k cells is decided at its own level, before any of its cells is pushed up to 0, so that it does not
    collect the bias of its empty cells. Post-processing.
    """
    axes = estimate.randomizer.domain.axes
    if len(axes) != 1 or axes[0].plane is None:
        raise DomainError("refined() needs a domain of one mesh")
    rows, cols = axes[0].plane.shape
    side = 1 << (max(rows, cols) - 1).bit_length()
    levels: list[NDArray[Any]] = [np.zeros((side, side))]
    exists: list[NDArray[Any]] = [np.zeros((side, side), dtype=bool)]
    levels[0][:rows, :cols] = estimate.counts[: rows * cols].reshape(rows, cols)
    exists[0][:rows, :cols] = True
    while levels[-1].shape[0] > 1:
        half = levels[-1].shape[0] // 2
        levels.append(levels[-1].reshape(half, 2, half, 2).sum(axis=(1, 3)))
        exists.append(np.asarray(exists[-1].reshape(half, 2, half, 2).any(axis=(1, 3))))
    if estimate.randomizer.elsewhere:
        outside = estimate.counts[-1]
        split = _share(np.array([levels[-1][0, 0], outside]), np.array([0, 2]), np.array([estimate.reports]))
        total = split[:1]
    else:
        total = np.array([estimate.reports], dtype=np.int64)
    above = total.reshape(1, 1)
    for values, real in zip(levels[-2::-1], exists[-2::-1], strict=True):
        half = above.shape[0]
        order = np.arange(4 * half * half).reshape(half, 2, half, 2).transpose(0, 2, 1, 3).ravel()
        keep = real.ravel()[order]
        parents = np.repeat(np.arange(half * half), 4)[keep]
        children = order[keep]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(parents)) + 1, [parents.size]))
        below = np.zeros(4 * half * half, dtype=np.int64)
        below[children] = _share(values.ravel()[children], starts, above.ravel()[parents[starts[:-1]]])
        above = below.reshape(2 * half, 2 * half)
    return above[:rows, :cols]


def _share(values: NDArray[np.float64], starts: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = np.diff(starts)
    scaled = np.rint(values * np.repeat(sizes, sizes)).astype(np.int64)
    return simplex_integers(scaled, starts, totals)
