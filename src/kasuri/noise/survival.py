"""Survival functions P(|X| >= x) of the noise laws as integer intervals of any precision, by exact arithmetic alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

Survival = Callable[[int, int], tuple[int, int]]
"""(x, w) -> integers (low, high) with low <= 2^w P(|X| >= x) <= high."""


def exp_minus(t: Fraction, w: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^w e^-t <= high, for t >= 0: Taylor series, squaring, outward rounding."""
    halvings = max(0, math.ceil(t * 2).bit_length())
    v = w + halvings + 16
    x_low, x_high = _divide(t.numerator << v, t.denominator << halvings)
    low = high = term_low = term_high = 1 << v
    n = 0
    while term_high > 1:
        n += 1
        term_low = term_low * x_low // (n << v)
        term_high = -(-term_high * x_high // (n << v))
        low += term_low
        high += term_high
    high += 2  # x <= 1/2, so the terms left out sum to at most the last one
    low, high = (1 << 2 * v) // high, -(-(1 << 2 * v) // low)
    for _ in range(halvings):
        low, high = low * low >> v, -(-high * high >> v)
    return low >> (v - w), -(-high >> (v - w))


def _divide(p: int, q: int) -> tuple[int, int]:
    return p // q, -(-p // q)


def laplace_survival(scale: Fraction) -> Survival:
    """Discrete Laplace, P(X = x) = (1-a)/(1+a) a^|x| with a = exp(-1/scale): P(|X| >= x) = 2 a^x / (1+a)."""

    first = lru_cache(maxsize=8)(lambda w: exp_minus(1 / scale, w))

    def survival(x: int, w: int) -> tuple[int, int]:
        a_low, a_high = first(w + 8)
        low, high = exp_minus(x / scale, w + 8)
        one = 1 << (w + 8)
        return (low << (w + 1)) // (one + a_high), -(-(high << (w + 1)) // (one + a_low))

    return survival


def gaussian_survival(sigma2: Fraction) -> Survival:
    """Discrete Gaussian, P(X = x) proportional to exp(-x^2 / (2 sigma2)): P(|X| >= x) as ratios of interval sums."""

    @lru_cache(maxsize=4)
    def tails(v: int) -> tuple[list[int], list[int]]:
        # term(y+1) = term(y) g(y), g(y+1) = g(y) h, with g(0) = e^(-1/(2 sigma2)), h = e^(-1/sigma2)
        g_low, g_high = exp_minus(1 / (2 * sigma2), v)
        h_low, h_high = exp_minus(1 / sigma2, v)
        t_low = t_high = 1 << v
        lows, highs = [t_low], [t_high]
        while t_high > 1 or g_high > 1 << (v - 1):  # stop where the rest is below its last term
            t_low, t_high = t_low * g_low >> v, -(-t_high * g_high >> v)
            g_low, g_high = g_low * h_low >> v, -(-g_high * h_high >> v)
            lows.append(t_low)
            highs.append(t_high)
        highs[-1] += 2 * t_high
        for y in range(len(lows) - 2, 0, -1):
            lows[y] += lows[y + 1]
            highs[y] += highs[y + 1]
        return lows, highs  # [y] = sum from y on, for y >= 1; [0] = 1

    def survival(x: int, w: int) -> tuple[int, int]:
        v = w + 64
        lows, highs = tails(v)
        if x >= len(lows):
            return 0, max(1, highs[-1] >> (v - w - 2))
        z_low, z_high = (1 << v) + 2 * lows[1], (1 << v) + 2 * highs[1]
        return (lows[x] << (w + 1)) // z_high, -(-(highs[x] << (w + 1)) // z_low)

    return survival
