"""The parts of bayes_tree, slowly: integrals on a fine grid, neighbours one by one, EM as in a textbook."""

import math

import numpy as np


def normal_laplace(s, w, y, scale):
    """(mean, variance, integral / sqrt(2 pi w)) of N(x; s, w) exp(-|y - x| / scale) on a fine grid."""
    root = math.sqrt(w)
    x = np.linspace(min(s, y) - 12 * root - 30 * scale, max(s, y) + 12 * root + 30 * scale, 400_001)
    logs = -0.5 * ((x - s) / root) ** 2 - np.abs(y - x) / scale
    top = logs.max()  # far apart, both factors are too small for floating point
    density = np.exp(logs - top)
    mean = (density * x).sum() / density.sum()
    variance = (density * (x - mean) ** 2).sum() / density.sum()
    return mean, variance, density.sum() * (x[1] - x[0]) * math.exp(top) / (root * math.sqrt(2 * math.pi))


def laplace_noise(off):
    return np.exp(-np.abs(off)) / 2


def normal_noise(off):
    """Of the same variance, 2."""
    return np.exp(-off * off / 4) / math.sqrt(4 * math.pi)


def gamma_moments(u, mean, shape, noise=laplace_noise):
    """The integral over x > 0 of (1, x, x^2) gamma(x; mean, shape) noise(u - x)."""
    x = (np.arange(600_000) + 0.5) * 2e-4
    rate = shape / mean
    density = rate**shape * x ** (shape - 1) * np.exp(-rate * x) / math.gamma(shape) * noise(u - x)
    return [(density * x**k).sum() * 2e-4 for k in range(3)]


def smooth(values, sigma, radius):
    """Gaussian average around every entry of a dense array, its own value left out; outside is 0."""
    rows, cols = values.shape
    offsets = range(-radius, radius + 1)
    weight = {d: math.exp(-0.5 * (d / sigma) ** 2) for d in offsets}
    total = sum(weight.values()) ** 2
    out = np.zeros(values.shape)
    for r in range(rows):
        for c in range(cols):
            near = [(dr, dc) for dr in offsets for dc in offsets if (dr or dc)]
            inside = [(dr, dc) for dr, dc in near if 0 <= r + dr < rows and 0 <= c + dc < cols]
            found = sum(weight[dr] * weight[dc] * values[r + dr, c + dc] for dr, dc in inside)
            out[r, c] = found / (total - weight[0] ** 2)
    return out


def mixture_weights(hist, likelihood, start, ridge, steps):
    """EM for one histogram, with `ridge` further observations that are split as `start` says."""
    w = start.copy()
    for _ in range(steps):
        resp = w * likelihood / (likelihood @ w)[:, None]
        w = (hist @ resp + ridge * start) / (hist.sum() + ridge)
    return w
