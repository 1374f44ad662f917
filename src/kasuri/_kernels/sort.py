"""Stable radix sort of (key, value) pairs by key."""

import numpy as np

from kasuri._kernels.cached import njit

_DIGIT = 12  # a table of this many bits stays in the first-level cache


@njit()
def _width(bits):
    """Bits per pass: as few passes as _DIGIT allows, then the narrowest digits."""
    passes = -(-bits // _DIGIT)
    return -(-bits // passes) if passes else 1


@njit()
def _count(keys, shift, mask, place):
    for i in range(keys.size):
        place[np.uint64((keys[i] >> shift) & mask)] += 1


@njit()
def _starts(place):
    """Counts per digit -> where each digit's first pair goes."""
    total = np.int64(0)
    for d in range(place.size):
        count = place[d]
        place[d] = total
        total += count


@njit()
def _scatter(keys, values, shift, mask, place, out_keys, out_values):
    for i in range(keys.size):
        d = np.uint64((keys[i] >> shift) & mask)
        at = np.uint64(place[d])
        out_keys[at] = keys[i]
        out_values[at] = values[i]
        place[d] += 1


@njit()
def sort_pairs(keys, values, bits, skip):
    """Sort int64 `keys` (0 <= key < 2^bits) and their values, stably, by the bits from `skip` up: enough where pairs
    that agree in those are in order already. Overwrites its arguments; returns them or equally large buffers.
    O(m (bits - skip) / 12)."""
    other_keys, other_values = np.empty_like(keys), np.empty_like(values)
    width = _width(bits - skip)
    place = np.empty(1 << width, np.int64)
    mask = np.int64(place.size - 1)
    for shift in range(skip, bits, width):
        place[:] = 0
        _count(keys, shift, mask, place)
        if place[(keys[0] >> shift) & mask if keys.size else 0] == keys.size:
            continue  # every key has this digit
        _starts(place)
        _scatter(keys, values, shift, mask, place, other_keys, other_values)
        keys, other_keys = other_keys, keys
        values, other_values = other_values, values
    return keys, values


def join_sorted(parts, bits, skip):
    """`sort_pairs` of the (keys, values) in the list `parts`, one after the other, joined by the first pass itself.
    Empties the list as it goes, so that memory holds the pairs twice and no more."""
    size = sum(keys.size for keys, _ in parts)
    width = _width(max(bits - skip, 0))
    place, mask = np.zeros(1 << width, np.int64), np.int64((1 << width) - 1)
    for keys, _ in parts:
        _count(keys, skip, mask, place)
    _starts(place)
    out_keys = np.empty(size, np.int64)
    out_values = np.empty(size, parts[0][1].dtype if parts else np.int64)
    parts.reverse()
    while parts:
        keys, values = parts.pop()
        _scatter(keys, values, skip, mask, place, out_keys, out_values)
    if bits - skip > width:
        return sort_pairs(out_keys, out_values, bits, skip + width)
    return out_keys, out_values


def warm_up():
    for values in (np.array([1, 2], np.int64), np.array([1.0, 2.0])):
        sort_pairs(np.array([1, 0], np.int64), values.copy(), 1, 0)
        join_sorted([(np.array([1, 0], np.int64), values)], 1, 0)
        values.flags.writeable = False  # as those of Counts are
        join_sorted([(np.array([1, 0], np.int64), values)], 1, 0)
