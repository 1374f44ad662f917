"""Names for the arrays that are handed around, sums by key, and the order of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bool = NDArray[np.bool_]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

_FEW = 1 << 20
"""Keys of which each may have a place of its own, however few are given."""


def added_up(keys: Int, values: Array, size: int) -> tuple[Int, Array]:
    """Values added up by key (below `size`): the keys whose sums are not 0, rising, and these sums."""
    names = None
    if size > max(_FEW, 4 * keys.size):
        names, keys = np.unique(keys, return_inverse=True)
        size = names.size
    sums = np.zeros(size, values.dtype)
    np.add.at(sums, keys, values)
    there = np.flatnonzero(sums)
    return there if names is None else names[there], sums[there]


def ranked(values: Array) -> Int:
    """The stable order of numbers; of whole ones by digits of 16 bits, which NumPy sorts without comparing."""
    if values.dtype != np.int64 or not values.size:
        return np.argsort(values, kind="stable")
    rest = (values - values.min()).view(np.uint64)  # right where the difference wraps
    order = np.argsort(rest.astype(np.uint16), kind="stable")
    while (rest := rest >> np.uint64(16)).any():
        order = order[np.argsort(rest[order].astype(np.uint16), kind="stable")]
    return order
