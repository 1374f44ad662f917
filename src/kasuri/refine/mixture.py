"""The prior of a bin of cells, against noise of variance 2 in units of its scale: tables by numerical integration."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float

MEANS = tuple(m / 16 for m in (4, 10, 25, 60, 150, 400))
SHAPES = (1, 4)
"""The prior of a bin: a point mass at 0 and gammas of these means (in units of the noise scale) and shapes."""
BELOW = 4
"""With normal noise numbers down to so many scales below 0 differ in what they say; with Laplace noise none do."""


def cut_off(a: Float, normal: bool) -> tuple[Float, Float]:
    """E[n | n > -a] and E[n^2 | n > -a] of noise of variance 2, in scales; a may be infinite."""
    from kasuri._kernels.bayes import hazards

    cut = np.isfinite(a)
    a = np.where(cut, a, 0.0)
    if normal:
        b, h = a / math.sqrt(2), np.empty(a.size)
        hazards(b, h)
        h = np.where(cut, h, 0.0)
        return math.sqrt(2) * h, 2 - 2 * b * h
    tail = np.where(cut, np.exp(-a) / 2, 0.0)
    return tail * (a + 1) / (1 - tail), (2 - tail * (a * a + 2 * a + 2)) / (1 - tail)


def start(normal: bool) -> float:
    """Where the grid of the mixture begins, below 0."""
    return float(BELOW) if normal else 0.0


def _noise(off: Float, normal: bool) -> Float:
    """The density of noise of variance 2."""
    return np.exp(-off * off / 4) / math.sqrt(4 * math.pi) if normal else np.exp(-np.abs(off)) / 2


def _noise_above(off: Float, normal: bool) -> Float:
    """The probability of more noise than that."""
    if normal:
        from scipy.special import erfc

        return np.asarray(erfc(off / 2) / 2)
    return np.where(off > 0, np.exp(-np.abs(off)) / 2, 1 - np.exp(-np.abs(off)) / 2)


@lru_cache(maxsize=2)
def mixture(normal: bool = False) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Per class of u and part of the prior: its likelihood, and on the grid the first two moments times likelihood.

    Classes as in the histograms; noise of variance 2, integrated panel by panel (the kink of Laplace noise is an edge).
    """
    from kasuri._kernels.bayes import GRID, TOP

    below = int(start(normal))
    grid = np.arange((below + TOP) * GRID + 1) / GRID - below
    nodes, weights = np.polynomial.legendre.leggauss(12)
    panels = [0, 0.03, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 11, 15, 20, 30, 45, 70, 100, 150, 250, 400]
    tables = np.zeros((3, grid.size + 1, 1 + len(MEANS) * len(SHAPES)))
    tables[0, :-1, 0] = _noise(grid, normal)
    tables[0, -1, 0] = _noise_above(np.array([float(TOP)]), normal)[0]
    for j, u in enumerate([*grid, float(TOP)]):
        edges = np.unique([*panels, max(u, 0.0)])
        half = np.diff(edges) / 2
        x = (edges[:-1, None] + half[:, None] * (1 + nodes)).ravel()
        dx = (half[:, None] * weights).ravel()
        noise = _noise(u - x, normal) if j < grid.size else _noise_above(u - x, normal)
        for k, (mean, shape) in enumerate((mean, shape) for mean in MEANS for shape in SHAPES):
            rate = shape / mean
            factorial = {1: 1.0, 4: 6.0}[shape]
            density = rate**shape * x ** (shape - 1) * np.exp(-rate * x) / factorial * noise * dx
            tables[:, j, k + 1] = density.sum(), (density * x).sum(), (density * x * x).sum()
    likelihood, first, second = tables
    return likelihood, first[:-1], second[:-1]
