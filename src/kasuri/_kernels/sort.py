"""Stable radix sort of (key, value) pairs by key."""

import numpy as np
from numba import njit

_DIGIT = 11


@njit(cache=True, nogil=True)
def sort_pairs(keys, values, bits):
    """Sorted copies of int64 `keys` (0 <= key < 2^bits) and their values. O(m * bits / 11)."""
    a_keys, a_values = keys.copy(), values.copy()
    b_keys, b_values = np.empty_like(keys), np.empty_like(values)
    radix = 1 << _DIGIT
    place = np.empty(radix, np.int64)
    for shift in range(0, bits, _DIGIT):
        place[:] = 0
        for i in range(a_keys.size):
            place[(a_keys[i] >> shift) & (radix - 1)] += 1
        if place[(a_keys[0] >> shift) & (radix - 1) if a_keys.size else 0] == a_keys.size:
            continue  # every key has this digit
        total = np.int64(0)
        for d in range(radix):
            count = place[d]
            place[d] = total
            total += count
        for i in range(a_keys.size):
            d = (a_keys[i] >> shift) & (radix - 1)
            b_keys[place[d]] = a_keys[i]
            b_values[place[d]] = a_values[i]
            place[d] += 1
        a_keys, b_keys = b_keys, a_keys
        a_values, b_values = b_values, a_values
    return a_keys, a_values


def warm_up():
    sort_pairs(np.array([1, 0], np.int64), np.array([1, 2], np.int64), 1)
    sort_pairs(np.array([1, 0], np.int64), np.array([1.0, 2.0]), 1)
