"""Goodness-of-fit helpers with their constants in one place. They are tested with planted faults themselves."""

import numpy as np
from scipy import stats

ALPHA = 1e-6
"""Chance that a right implementation fails one test; every source is seeded, so it fails never or always."""


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    """p-value of Pearson's test; bins expected below 10 are merged with their successor."""
    o, e = [0.0], [0.0]
    for x, y in zip(observed, expected, strict=True):
        if e[-1] >= 10:
            o.append(0.0)
            e.append(0.0)
        o[-1] += x
        e[-1] += y
    if e[-1] < 10 and len(e) > 1:
        o[-2] += o.pop()
        e[-2] += e.pop()
    o, e = np.array(o), np.array(e)
    if len(e) < 2:
        return 1.0
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(e) - 1))


def uniform(u: np.ndarray, bins: int = 64) -> float:
    """p-value that u is uniform on [0, 1)."""
    observed = np.bincount(np.minimum((u * bins).astype(int), bins - 1), minlength=bins)
    return chi_square(observed, np.full(bins, u.size / bins))


def independent(u: np.ndarray, v: np.ndarray, bins: int = 8) -> float:
    """p-value that v is uniform whatever u is (u may have been selected by what it led to)."""
    table = np.zeros((bins, bins))
    np.add.at(table, (np.minimum((u * bins).astype(int), bins - 1), np.minimum((v * bins).astype(int), bins - 1)), 1)
    expected = np.repeat(table.sum(axis=1), bins) / bins
    statistic = ((table.ravel() - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float(stats.chi2.sf(statistic, bins * (bins - 1)))


def laplace_cdf(x: np.ndarray, scale: float) -> np.ndarray:
    """P(N <= x) of discrete Laplace noise, for whole x."""
    a = np.exp(-1.0 / scale)
    return np.where(x >= 0, 1 - a ** (np.maximum(x, 0) + 1) / (1 + a), a ** np.maximum(-x, 0) / (1 + a))


def split_cdf(d: np.ndarray, D: np.ndarray, S: np.ndarray, scale: float) -> np.ndarray:
    """P(D+ <= d) for d of the parity of S in [-S, S]: the law of one measured node."""
    # D' + coin <= d  iff  N <= d - D, or N = d + 1 - D and the coin is -1; at d = S it is certain, below -S impossible
    inner = laplace_cdf(d - D, scale) + 0.5 * (laplace_cdf(d + 1 - D, scale) - laplace_cdf(d - D, scale))
    return np.where(d >= S, 1.0, np.where(d < -S, 0.0, inner))


def split_pit(d: np.ndarray, D: np.ndarray, S: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Randomised probability transform: uniform if and only if D+ has the law of a measured node."""
    low, high = split_cdf(d - 2, D, S, scale), split_cdf(d, D, S, scale)
    return low + rng.random(d.size) * (high - low)
