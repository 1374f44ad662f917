"""Top-down refinement of sums and differences on a whole tree, in integers and as printed in floating point."""

from __future__ import annotations

import numpy as np

from kasuri.arrays import Array
from kasuri.refine import LARGEST

Sides = list[tuple[Array, Array]]


def topdown(coefficients: Array, sides: Sides, coins: Array) -> Array:
    """T1 in integers: from the noisy (S | D ...) of `sum_difference` to non-negative integer leaves.

    S+ = max(0, S). Level by level D' gets +-1 by a fair coin (one 0/1 coin per coefficient) where its parity differs
    from S+, D+ = clip(D', -S+, S+), and the children are (S+ + D+)/2 and (S+ - D+)/2: integers that sum to S+.
    `sides` says per level which children are possible; a node with one possible child hands S+ to it.
    Cost: O(n). [Terada2015, eq. 27-31], in the patent's sum-difference form.
    """
    sums = np.clip(coefficients[:1], 0, LARGEST)
    at = 1
    for left, right in sides:
        both = left & right
        end = at + int(both.sum())
        d = np.zeros(both.size, dtype=np.int64)
        d[both] = coefficients[at:end]
        odd = both & ((d ^ sums) & 1 == 1)
        flip = np.zeros(both.size, dtype=np.int64)
        flip[both] = 2 * coins[at:end] - 1
        d = np.clip(d + np.where(odd, flip, 0), -sums, sums)
        d = np.where(both, d, np.where(left, sums, -sums))
        half = (sums >> 1) + (d >> 1) + (sums & d & 1)  # (sums + d) / 2 without overflow: equal parities
        sums = np.column_stack((half, sums - half)).ravel()
        at = end
    return sums


def topdown_float(coefficients: Array, sides: Sides) -> Array:
    """T1 as printed, in floating point, on Haar coefficients (cA_k | cD_k | ... | cD_1) [Terada2015, eq. 27-31]."""
    means = np.maximum(coefficients[:1], 0.0)
    at = 1
    for left, right in sides:
        both = left & right
        end = at + int(both.sum())
        d = np.zeros(both.size)
        d[both] = coefficients[at:end]
        d = np.where(both, np.clip(d, -means, means), np.where(left, means, -means))
        means = np.column_stack((means + d, means - d)).ravel()
        at = end
    return means
