"""Nodes of a level that is a grid: where they are, and sums over boxes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasuri.arrays import Float, Int


def places(prefix: Int, grid: tuple[int, int]) -> Int:
    """Row-major places of nodes whose prefixes interleave the bits of row and column, row above column."""
    rows = np.zeros(prefix.size, dtype=np.int64)
    cols = np.zeros(prefix.size, dtype=np.int64)
    for bit in range((max(grid) - 1).bit_length()):
        rows |= (prefix >> (2 * bit + 1) & 1) << bit
        cols |= (prefix >> (2 * bit) & 1) << bit
    return rows * grid[1] + cols


def box_sums(values: Float, place: Int, grid: tuple[int, int], sides: Sequence[int]) -> list[Float]:
    """The sums over all boxes of each side that fits, by their first row and column."""
    dense = np.zeros(grid[0] * grid[1])
    dense[place] = values
    t = np.zeros((grid[0] + 1, grid[1] + 1))
    t[1:, 1:] = dense.reshape(grid).cumsum(axis=0).cumsum(axis=1)
    return [t[s:, s:] - t[:-s, s:] - t[s:, :-s] + t[:-s, :-s] for s in sides if s <= min(grid)]
