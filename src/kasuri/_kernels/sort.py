"""Stable radix sort of (key, value) pairs by key."""

import numpy as np
from numba import njit

_DIGIT = 12


@njit(cache=True, nogil=True)
def sort_pairs(keys, values, bits, skip):
    """Sort int64 `keys` (0 <= key < 2^bits) and their values, stably, by the bits from `skip` up: enough where pairs
    that agree in those are in order already. Overwrites its arguments; returns them or equally large buffers.
    O(m (bits - skip) / 12)."""
    other_keys, other_values = np.empty_like(keys), np.empty_like(values)
    radix = 1 << _DIGIT
    place = np.empty(radix, np.int64)
    for shift in range(skip, bits, _DIGIT):
        place[:] = 0
        for i in range(keys.size):
            place[(keys[i] >> shift) & (radix - 1)] += 1
        if place[(keys[0] >> shift) & (radix - 1) if keys.size else 0] == keys.size:
            continue  # every key has this digit
        total = np.int64(0)
        for d in range(radix):
            count = place[d]
            place[d] = total
            total += count
        for i in range(keys.size):
            d = (keys[i] >> shift) & (radix - 1)
            at = place[d]
            other_keys[at] = keys[i]
            other_values[at] = values[i]
            place[d] = at + 1
        keys, other_keys = other_keys, keys
        values, other_values = other_values, values
    return keys, values


def warm_up():
    sort_pairs(np.array([1, 0], np.int64), np.array([1, 2], np.int64), 1, 0)
    sort_pairs(np.array([1, 0], np.int64), np.array([1.0, 2.0]), 1, 0)
