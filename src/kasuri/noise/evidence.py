"""Whether noisy numbers hold too little noise for their scale: evidence from a release alone, whatever the counts are.

Noise N is symmetric and falls away from 0, so count + N is at least as far from 0 as N (in law): the chance that
|count + N| <= d is at most p = P(|N| <= d). Likewise a noisy parent and the sum of its f noisy children, which are
drawn after it, with p = (2 d + 1) / sqrt(1 + 2 f v), v the variance of a child: by Bernoulli's inequality on
characteristic functions a sum of f such numbers is 0 at most as often as one of variance f v. Evidence is a product
over numbers drawn one after the other whose factors have mean at most 1, however many are drawn: above 10^12 with a
chance of at most 10^-12 [Ville1939].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVIDENCE = 12
"""Too little noise is a fault where it has a chance below 10^-12."""
_KAPPAS = (0.5, 0.8, 0.95, 0.99)
_BETS = (0.01, 0.1, 0.5)
Chances = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Of numbers: how likely noise is to be as small as each, at most; and how likely to be 0."""


def too_little(shown: Sequence[Chances], apart: Sequence[Chances] | None = None) -> bool:
    """Whether noise as small as `shown` has a chance below 10^-12; `apart` bets as much on sums beside their parts."""
    found = evidence(shown)
    if apart is not None:
        found = float(np.logaddexp(found, evidence(apart))) - math.log(2)
    return found > EVIDENCE * math.log(10)


def chances(values: NDArray[Any], scale: float, continuous: bool = False) -> Chances:
    """P(|N| <= |value|) of each: 1 - exp(-d/s), or on the integers 1 - 2 a^(d+1) / (1 + a) with a = exp(-1/s), written
    without cancellation; and that of 0."""
    distance = np.abs(values.astype(np.float64))
    if continuous:
        return -np.expm1(-distance / scale), np.full(distance.size, 1e-300)
    a = math.exp(-1 / scale)
    p = (-np.expm1(-(distance + 1) / scale) - a * np.expm1(-distance / scale)) / (1 + a)
    return p, np.full(distance.size, -math.expm1(-1 / scale) / (1 + a))


def evidence(parts: Sequence[Chances]) -> float:
    """log of a mean of products over all numbers: of kappa p^(kappa - 1), which finds numbers that are all too small,
    and of bets of a share q on 0, whose chance is at most p0: 1 - q + q / p0 where it comes, else 1 - q."""
    each = np.zeros(len(_KAPPAS) + len(_BETS))
    for p, zero in parts:
        logs, hit = float(np.log(np.maximum(p, 1e-300)).sum()), p <= zero
        each[: len(_KAPPAS)] += [p.size * math.log(kappa) + (kappa - 1) * logs for kappa in _KAPPAS]
        each[len(_KAPPAS) :] += [float(np.where(hit, np.log(1 - q + q / zero), math.log(1 - q)).sum()) for q in _BETS]
    return float(np.logaddexp.reduce(each)) - math.log(each.size)


def too_rare(found: int, chances: NDArray[np.float64], tests: int = 1) -> bool:
    """Whether so many of independent events of these chances come with a chance below 10^-12, in one of `tests`:
    x or more, or x or less, where mu are expected, have at most exp(-(x log(x / mu) - x + mu)) [Chernoff1952]."""
    limit = EVIDENCE * math.log(10) + math.log(4 * tests)
    for x, mu in ((found, float(chances.sum())), (chances.size - found, float((1 - chances).sum()))):
        if (x and mu <= 0) or (x * math.log(x / mu) if x else 0.0) - x + mu > limit:
            return True
    return False
