"""Words -> integers by exact tables (see kasuri.noise.samplers for the tables and their proof)."""

import numpy as np

from kasuri._kernels.cached import njit

MANY = 0x80000000
"""Flag in a guide entry: the bucket holds two thresholds or more."""


@njit(inline="always")
def _look_up(u, thresholds, guide, shift):
    """(number of thresholds above u, undecided). Thresholds fall and end with 0. guide[b] counts the thresholds above
    every u of bucket b; a bucket mostly holds none or one further, so that one comparison decides. All numbers are
    unsigned: a signed index would cost numba a test for negative ones."""
    one = np.uint64(1)
    entry = np.uint64(guide[u >> shift])
    start = entry & np.uint64(MANY - 1)
    threshold = np.uint64(thresholds[start])
    if entry < np.uint64(MANY):
        return start + np.uint64(u < threshold), u == threshold
    low, high, step = start, np.uint64(thresholds.size - 1), one
    while start + step < high and u < np.uint64(thresholds[start + step]):
        low = start + step
        step = step << one
    if start + step < high:
        high = start + step
    while low < high:
        middle = (low + high) >> one
        if u < np.uint64(thresholds[middle]):
            low = middle + one
        else:
            high = middle
    return low, u == np.uint64(thresholds[low])


@njit()
def one_digit(words, thresholds, guide, shift, out, ties):
    """out[i] from the 32-bit words[i]: 31 bits choose |X|, the lowest is the sign. Undecided places go to
    `ties` and are settled by the caller; returns their number."""
    found = 0
    for i in range(words.size):
        word = np.uint64(words[i])
        size, tied = _look_up(word >> np.uint64(1), thresholds, guide, np.uint64(shift))
        minus = np.int64(word & np.uint64(1))
        out[i] = (np.int64(size) ^ -minus) + minus
        if tied:
            if found < ties.size:
                ties[found] = i
            found += 1
    return found


@njit()
def two_digits(
    words,
    base,
    q_table,
    q_guide,
    q_shift,
    zero_table,
    zero_guide,
    zero_shift,
    rest_table,
    rest_guide,
    rest_shift,
    out,
    ties,
):
    """|X| = base * Q + R: the high 32 bits choose Q, the next 31 choose R (its law depends on Q = 0), the lowest is
    the sign. Undecided places as in one_digit."""
    found = 0
    for i in range(words.size):
        word = words[i]
        q, q_tied = _look_up(word >> np.uint64(32), q_table, q_guide, np.uint64(q_shift))
        u = (word >> np.uint64(1)) & np.uint64(0x7FFFFFFF)
        if q == np.uint64(0):
            r, r_tied = _look_up(u, zero_table, zero_guide, np.uint64(zero_shift))
        else:
            r, r_tied = _look_up(u, rest_table, rest_guide, np.uint64(rest_shift))
        minus = np.int64(word & np.uint64(1))
        out[i] = ((base * np.int64(q) + np.int64(r)) ^ -minus) + minus
        if q_tied or r_tied:
            if found < ties.size:
                ties[found] = i
            found += 1
    return found


def warm_up():
    out, ties = np.zeros(1, np.int64), np.zeros(1, np.int64)
    table, guide = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
    one_digit(np.zeros(1, np.uint32), table, guide, 30, out, ties)
    two_digits(np.zeros(1, np.uint64), 1, table, guide, 31, table, guide, 30, table, guide, 30, out, ties)
