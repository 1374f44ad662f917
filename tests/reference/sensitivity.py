"""Sensitivity by brute force: every contribution of a unit, every pair, exact fractions."""

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
    images = [forward(x) for x in contributions(leaves, c, possible)]
    if change == "add-remove":
        pairs = [(image, images[0] * 0) for image in images]
    else:
        pairs = [(a, b) for i, a in enumerate(images) for b in images[i:]]
    weights = [Fraction(w) for w in weights.tolist()]
    best = Fraction(0)
    for a, b in pairs:
        best = max(best, sum(abs(Fraction(float(d))) / w for d, w in zip(a - b, weights, strict=True)))
    return best


def mask(shape, holes):
    array = np.zeros(shape, dtype=bool)
    for hole in holes:
        array[hole] = True
    return array
