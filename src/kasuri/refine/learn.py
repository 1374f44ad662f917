"""What a series learns of itself from published numbers: coefficients of the prediction, variances of splits, and
whether filtering helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from kasuri.arrays import Array, Bool, Float, Int

if TYPE_CHECKING:
    from kasuri.refine.filter import Measured, Predicted

BINS, PARTS = 3, 4
START = np.array([0.7, 0.95, -0.65])
"""Coefficients before anything is learned."""
SPREAD = np.array([1.0, 0.02, 0.1])
"""Variances of splits before anything is learned: V = alpha m + beta m^2 + gamma (h dp)^2."""
_FORGET_B, _FORGET_V, _FORGET_C = 0.95, 0.96, 0.985
_LEAST = 1e-6  # of the noise: a split that is certain divides by 0
_EMPTY = 0.05  # of an even share: what a node predicted as empty still may hold


def bins(size: Float, seen: Bool) -> Int:
    """The bin of each node by the size of its features: large levels have three, small ones one."""
    out = np.zeros(size.size, dtype=np.int64)
    for least, part in ((256, 0.6), (4096, 0.9)):
        if size.size >= least and seen.any():
            out += size > np.quantile(size[seen], part)
    return out


@dataclass(frozen=True, eq=False)
class Split:
    """Residuals of the splits of one level: r = (y - m) - h sum(y - m), of noise e = R (1 - 2 h + n h^2)."""

    m: Float
    h: Float
    r: Float
    e: Float
    features: Float
    """Of the variance: m, m^2, (h dp)^2, dp the parent's surprise beyond its noise."""
    surprise: Float
    """y_p - M of the parent."""
    parent_noise: float
    noise: float
    owner: Int
    parents: int

    def sums(self, values: Float) -> Float:
        """Over the siblings of each node."""
        return np.bincount(self.owner, values, self.parents).astype(np.float64)[self.owner]

    def left(self, V: Float) -> Float:
        """q = 1 - V / sum V: what of a split's variance its residual shows."""
        return 1 - V / np.maximum(self.sums(V), 1e-300)


def split(y: Float, m: Float, above: Measured, owner: Int, fan: Int, R: float, R_above: float) -> Split:
    parents = above.y.size
    M = np.bincount(owner, m, parents)
    h = np.where(M[owner] > 0, m / np.maximum(M[owner], 1e-300), 1 / fan)
    off = y - m
    r = off - h * np.bincount(owner, off, parents)[owner]
    # an only child is split from nothing: its r is 0, its q too, and it teaches nothing
    e = np.where(np.asarray(fan) == 1, R, R * (1 - 2 * h + fan * h * h)).astype(np.float64)
    surprise = above.y - M
    dp = np.sign(surprise) * np.maximum(np.abs(surprise) - 2 * np.sqrt(R_above), 0)
    low = np.maximum(m, _EMPTY * M[owner] / fan)
    features = np.stack((low, low * low, (h * dp[owner]) ** 2))
    return Split(m, h, r, e, features, surprise, R_above, R, owner, parents)


def variances(found: Split, learned: Learned, part: int, use: Bool) -> tuple[Learned, Float]:
    """The split variances of a level in this slot, after it was learned from. Where the whole level moved significantly
    more than usual, by kappa times, they are raised so for this slot alone, which then teaches less."""
    floor = _LEAST * found.noise
    V = np.maximum(learned.spread(part) @ found.features, floor)
    if not use.any():
        return learned, V
    q = found.left(V)
    total = found.e + V * q
    seen = np.minimum(found.r**2, 25 * total) - found.e
    weight = np.where(use, 1 / total**2, 0.0)
    strength = float((weight * (V * q) ** 2).sum())
    most = np.minimum(found.r**2, 9 * total) - found.e  # a few that jump are not the whole level
    kappa = float((weight * V * q * most).sum()) / max(strength, 1e-300)
    error = np.sqrt(2 / max(strength, 1e-300))
    kappa = kappa if kappa > 1 + 3 * error else 1.0
    learned = learned.spread_by(found.features * q, seen, weight / kappa**2, part)
    return learned, np.maximum(kappa * (learned.spread(part) @ found.features), floor)


@dataclass(frozen=True, eq=False)
class Learned:
    """What one level has learned: sums of squares for the coefficients (by bin and part of the day) and for the
    variances (by part of the day), how often nodes jump, and what filtering costs and alone would (by bin)."""

    G: Array
    g: Array
    S: Array
    s: Array
    ridge: Array
    jump: float
    cost: Array
    """Discounted sums of the estimated squared error, the model's variance and that of the slot alone."""

    @classmethod
    def begin(cls) -> Learned:
        zeros = np.zeros
        return cls(
            zeros((BINS, PARTS, 3, 3)), zeros((BINS, PARTS, 3)), zeros((PARTS, 3, 3)), zeros((PARTS, 3)),
            zeros((BINS, PARTS)), 0.03, zeros((3, BINS)),
        )  # fmt: skip

    def coefficients(self, part: int) -> Float:
        """b of every bin: least squares with a ridge towards START."""
        out = np.tile(START, (BINS, 1))
        for at in range(BINS):
            G, weight = self.G[at, part], self.ridge[at, part]
            weight = weight + 0.001 * np.trace(G) / 3
            if weight > 0:
                out[at] = np.linalg.solve(G + weight * np.eye(3), self.g[at, part] + weight * START)
        return out

    def spread(self, part: int) -> Float:
        """(alpha, beta, gamma) >= 0 by least squares: the best of the seven sets that may be above 0."""
        S, s = self.S[part], self.s[part]
        if S[0, 0] <= 0:
            return SPREAD
        scale = np.sqrt(np.maximum(np.diag(S), 1e-300))
        A, b = S / np.outer(scale, scale) + 1e-9 * np.eye(3), s / scale
        best, value = np.zeros(3), 0.0
        for size in (1, 2, 3):
            for some in combinations(range(3), size):
                chosen = list(some)
                got = np.linalg.solve(A[np.ix_(chosen, chosen)], b[chosen])
                if (got >= 0).all() and got @ b[chosen] > value:
                    best, value = np.zeros(3), float(got @ b[chosen])
                    best[chosen] = got
        return best / scale

    def spread_by(self, features: Float, seen: Float, weight: Float, part: int) -> Learned:
        S, s = self.S.copy(), self.s.copy()
        S[part] = _FORGET_V * S[part] + (weight * features) @ features.T
        s[part] = _FORGET_V * s[part] + features @ (weight * seen)
        return replace(self, S=S, s=s)

    def regressed(self, guess: Predicted, y: Float, R: float, flag: Float, part: int) -> Learned:
        """With this slot's numbers: their noise is fresh, so y on the features is the best linear predictor of x."""
        G, g, ridge = self.G.copy(), self.g.copy(), self.ridge.copy()
        alpha, beta, _ = self.spread(part)
        weight = np.where(guess.profiled, (1 - 0.9 * flag) / (R + alpha * guess.m + beta * guess.m**2), 0.0)
        for at in range(BINS):
            own = guess.bins == at
            features, w = guess.features[:, own], weight[own]
            G[at, part] = _FORGET_B * G[at, part] + (w * features) @ features.T
            g[at, part] = _FORGET_B * g[at, part] + features @ (w * y[own])
            ridge[at, part] = 0.02 * float((np.where(guess.profiled, guess.m, 0.0)[own] ** 2).sum()) / R
        return replace(self, G=G, g=g, ridge=ridge)

    def judged(self, bin_of: Int, y: Float, x: Float, f: Float, alone: Float, R: float) -> Learned:
        """Stein's identity: E(x - truth)^2 = E[(y - x)^2] - R + 2 f, since dx/dy = f/R."""
        new = [np.bincount(bin_of, values, BINS) for values in ((y - x) ** 2 - R + 2 * f, f, alone)]
        return replace(self, cost=_FORGET_C * self.cost + np.stack(new))

    def helps(self) -> Bool:
        """By bin: is the estimated error of filtering below that of the slot alone?"""
        return self.cost[0] <= np.maximum(self.cost[2], 1e-300) if self.cost[2].any() else np.ones(BINS, dtype=bool)

    def calibration(self) -> Float:
        """By bin, at least 1: the estimated error over the model's variance."""
        return np.maximum(np.divide(self.cost[0], self.cost[1], out=np.ones(BINS), where=self.cost[1] > 0), 1.0)
