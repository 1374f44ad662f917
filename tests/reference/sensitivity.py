"""Sensitivity by brute force: every contribution of a unit, every pair, exact fractions."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np


def contributions(cells: int, c: int, possible: np.ndarray):
    """Every way to put 0..c counts on possible leaves."""
    where = np.flatnonzero(possible)
    for size in range(c + 1):
        for chosen in combinations_with_replacement(where, size):
            out = np.zeros(cells, dtype=np.int64)
            np.add.at(out, list(chosen), 1)
            yield out


def brute_force(forward, weights, leaves: int, possible: np.ndarray, change: str, c: int) -> Fraction:
    """The largest weighted distance, in whole numbers: images times a power of two, over a common denominator of the
    weights."""
    images = np.array([forward(x) for x in contributions(leaves, c, possible)], dtype=np.float64)
    fine = 1
    while (images * fine % 1).any():
        fine *= 2
    whole = (images * fine).astype(np.int64)
    weights = [Fraction(w) for w in weights.tolist()]
    common = math.lcm(*(w.numerator for w in weights))
    rates = np.array([int(common / w) for w in weights], dtype=np.int64)
    assert all(common / w == rate for w, rate in zip(weights, rates.tolist(), strict=True))
    assert 2 * int(np.abs(whole).max(initial=1)) * int(rates.sum()) < 1 << 62
    starts = [np.zeros_like(whole[0])] if change == "add-remove" else whole
    best = max(int((np.abs(whole - one) @ rates).max()) for one in starts)
    return Fraction(best, fine * common)


def mask(shape, holes):
    array = np.zeros(shape, dtype=bool)
    for hole in holes:
        array[hole] = True
    return array
