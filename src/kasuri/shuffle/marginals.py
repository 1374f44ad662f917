"""The law of one number for synthetic rows: it has the estimated mean and variance.

A law is piecewise uniform between edges in the public bounds. It starts from the histogram that the reports tell, where
they tell one, else from the uniform law, and is tilted: each piece's weight times exp(a x + b x^2), a and b such that
mean and variance are those asked for. Of all laws with these two moments it is the nearest to the start (in relative
entropy); from the uniform start, the one of most entropy. Post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kasuri.local.moments import histogram
from kasuri.shuffle.columns import Column, Floats
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.statistics import Moments

SHARP = 1e-4
"""A law keeps this share below the largest variance its mean allows, where it would be two points; its mean keeps the
square of it, in widths, from either bound, and its deviation is no less."""
CLOSE = 1e-6
"""How far the moments of a law may be from those asked for: the mean in deviations, the variance relatively."""
_PIECES, _HALVINGS, _REACH = 128, 30, 8
_SMOOTH = 0.02
"""Imaginary people, as a share of the rows, that smooth a histogram read from noisy reports."""
MOVED = "its mean or variance was moved to what its bounds allow and its error leaves open"


@dataclass(frozen=True, eq=False)
class Marginal:
    """A law of a number: uniform within each piece, of the given weight."""

    edges: Floats
    weights: Floats

    def quantile(self, u: Floats) -> Floats:
        """The value below which a share u lies."""
        ends = np.cumsum(self.weights)
        k = np.minimum(np.searchsorted(ends, np.asarray(u) * ends[-1], side="right"), len(ends) - 1)
        weight = np.maximum(self.weights[k], 1e-300)
        share = np.clip(1 - (ends[k] - np.asarray(u) * ends[-1]) / weight, 0.0, 1.0)
        found: Floats = self.edges[k] + share * (self.edges[k + 1] - self.edges[k])
        return found

    @property
    def mean(self) -> float:
        return float(self.weights @ (self.edges[1:] + self.edges[:-1])) / 2

    @property
    def variance(self) -> float:
        apart = (self.edges[1:] + self.edges[:-1]) / 2 - self.mean
        return float(self.weights @ (apart**2 + np.diff(self.edges) ** 2 / 12))


def marginal(
    joined: Joined, column: Column, moments: Moments, *, shaped: bool = True
) -> tuple[Marginal, tuple[str, ...]]:
    """The law of a column of numbers with its estimated moments, and what had to be moved for it; `shaped` by the
    histogram of the reports, where they tell one."""
    i = moments.names.index(column.name)
    return law(
        _start(joined, column, shaped), float(moments.mean[i]), float(moments.mean_error[i]),
        float(moments.covariance[i, i]), float(moments.covariance_error[i, i]), column.name,
    )  # fmt: skip


def law(
    start: Marginal, mean: float, mean_error: float, variance: float, variance_error: float, name: str
) -> tuple[Marginal, tuple[str, ...]]:
    """The start tilted to an estimated mean and variance, after these were moved to what can be.

    The mean goes half its error inside the bounds: at a bound every row would be the same. The variance goes to at most
    (mean - low)(high - mean), the largest there is; a variance below its own error is not known, and is then that error
    or the variance of the start tilted to the mean alone, whichever is less. Without any variance (nan) the mean alone
    counts.
    """
    low, width = float(start.edges[0]), float(start.edges[-1] - start.edges[0])
    room = min(mean_error, width) / 2
    m = (min(max(mean, low + room), low + width - room) - low) / width
    m = min(max(m, SHARP**2), 1 - SHARP**2)
    unit = Marginal((start.edges - low) / width, start.weights)
    found = _tilted(unit, m, None)
    moved = abs(low + m * width - mean) > CLOSE * width
    if math.isfinite(variance):
        most = m * (1 - m)
        v = max(variance / width / width, min(variance_error / width / width, found.variance))
        v = min(max(v, SHARP**4), (1 - SHARP) * most)
        moved |= abs(v - variance / width / width) > CLOSE * most
        found = _tilted(unit, m, v)
    return Marginal(low + width * found.edges, found.weights), (f"{name}: {MOVED}",) if moved else ()


def _start(joined: Joined, column: Column, shaped: bool) -> Marginal:
    """What is known of the shape: the histogram of the reports, where they tell one, else the uniform law."""
    made = column.numeric
    low, high = float(made.low), float(made.high)
    if not shaped or made.kind not in ("piecewise", "hybrid", "laplace"):
        return Marginal(np.array([low, high]), np.ones(1))
    found = histogram(joined.columns[column.name].astype(np.int64), made, prior=_SMOOTH * len(joined))
    middles = (found.points[1:] + found.points[:-1]) / 2
    return Marginal(np.concatenate(([low], middles, [high])), found.counts / found.counts.sum())


def _tilted(start: Marginal, mean: float, variance: float | None) -> Marginal:
    """The start on [0, 1], on finer pieces, times exp(a x + b x^2) with that mean (and that variance)."""
    s = math.sqrt(mean * (1 - mean) / 3 if variance is None else variance)
    # pieces that can hold any such law: even ones, ever narrower ones towards both bounds, and some around the mean
    near = 0.5 ** np.arange(1, _HALVINGS + 1)
    around = mean + s * np.linspace(-_REACH, _REACH, 16 * _REACH + 1)
    even = np.linspace(0, 1, _PIECES + 1)
    edges = np.unique(np.concatenate((even, near, 1 - near, around[(around > 0) & (around < 1)], start.edges)))
    base = np.diff(np.interp(edges, start.edges, np.concatenate(([0.0], np.cumsum(start.weights)))))
    base = base + 1e-9 * np.diff(edges)  # a tilt cannot put weight where the start has none
    log = np.log(base / base.sum())
    x, half = ((edges[1:] + edges[:-1]) / 2 - mean) / s, np.diff(edges) / s
    stats = x[None] if variance is None else np.stack((x, x**2 + half**2 / 12 - 1))
    weights = _solve(log, stats)
    return _two_points(mean, s**2) if weights is None else Marginal(edges, weights)


def _two_points(mean: float, variance: float) -> Marginal:
    """Two points of that mean and variance, where no tilt is found: beside a bound, with a long tail to the other."""
    near, mirrored = (mean, False) if mean <= 0.5 else (1 - mean, True)
    s = math.sqrt(variance)
    low, high = (near - s, near + s) if s <= near else (0.0, near + variance / near)
    above = (near - low) / (high - low)
    if mirrored:
        low, high, above = 1 - high, 1 - low, 1 - above
    return Marginal(np.array([0.0, low, low, high, high, 1.0]), np.array([0.0, 1 - above, 0.0, above, 0.0]))


def _solve(log: Floats, stats: Floats) -> Floats | None:
    """Weights e^(log + t stats) of sum 1 under which every statistic has mean 0: Newton's method on the logarithm of
    the sum, which is convex in t. None where it does not arrive."""

    def at(t: Floats) -> tuple[float, Floats]:
        power = log + t @ stats
        top = float(power.max())
        weights = np.exp(power - top)
        total = float(weights.sum())
        return top + math.log(total), weights / total

    starts = [np.zeros(len(stats))] + ([np.array([0.0, -0.5])] if len(stats) == 2 else [])
    t = min(starts, key=lambda start: at(start)[0])
    value, weights = at(t)
    for _ in range(100):
        slope = stats @ weights
        if float(np.abs(slope).max()) < CLOSE / 4:
            return weights
        centred = stats - slope[:, None]
        curve = (centred * weights) @ centred.T
        step = np.linalg.lstsq(curve + 1e-14 * np.diag(np.diagonal(curve)), -slope, rcond=1e-15)[0]
        length = 1.0
        while True:
            new, there = at(t + length * step)
            if new <= value + 1e-4 * length * float(slope @ step) or length < 1e-12:
                break
            length /= 2
        t, value, weights = t + length * step, new, there
    return None
