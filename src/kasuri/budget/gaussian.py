"""What discrete Gaussian noise costs: the exact price of many draws, the tight conversion of zCDP, the least noise for
a price.

One number that moves by 1 under discrete Gaussian noise of variance parameter s loses (1 - 2y)/(2s) at noise y, so n of
them lose (n - 2S)/(2s), S the sum of n draws: a lattice, as for Laplace noise. The law of S is a positive convolution,
or, from s = 4 on, one discrete Gaussian to within a factor that is computed. The formula of the continuous Gaussian is
not an upper bound for this law and decides nothing here. Proof: docs/proofs/gaussian.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from kasuri.budget.accounting import gathered, least_epsilon, small
from kasuri.errors import PrivacyError
from kasuri.privacy import exact

Normals = tuple[tuple[Fraction, int], ...]
"""((variance parameter, how many), ...): independent discrete Gaussian numbers that a unit moves by 1 each."""


@dataclass(frozen=True)
class Normal:
    """The privacy loss of numbers with discrete Gaussian noise: rho-zCDP, and, where a unit moves each of them by 1 at
    most, their exact pair in `parts`."""

    rho: Fraction
    parts: Normals = ()

    def price(self, delta: Fraction) -> Fraction:
        """Epsilon at `delta`."""
        return normal_epsilon(self.parts, delta) if self.parts else tight_epsilon_of_zcdp(self.rho, delta)

    def repeated(self, times: int) -> Normal:
        """The loss of `times` such releases."""
        return Normal(self.rho * times, tuple((variance, count * times) for variance, count in self.parts))


_GRID = 1 << 14  # points of the common grid where parts of several variances meet
_TAIL = 1e-6  # share of delta given to the far tails, and as much to rounding
_SLACK = 1e-9  # far above the rounding of some thousand positive additions
_DIGITS = 6  # a price is rounded up to this many decimals
_BITS = 16  # of a scale that is solved for
SMOOTH = 4
"""From this variance parameter on a sum of draws is one discrete Gaussian, but for a factor below 1 + 1e-15."""
_CONVOLVED = 1 << 12  # most draws below SMOOTH whose law is convolved
_WIDEST = 3 << 19  # furthest sum of draws whose law is held: 3,600 draws at epsilon 0.1 and delta 1e-9 are below


def normal_epsilon(parts: Normals, delta: Fraction) -> Fraction:
    """Least epsilon (rounded up) for which all parts together are (epsilon, delta)-DP.

    Privacy
    -------
    Neighbours: those who move so many numbers by 1 each. Sensitivity: as of the parts. Guarantee: (epsilon, delta)-DP
    for the composition, adaptive choices included as long as the variances were fixed beforehand. Proof:
    docs/proofs/gaussian.md. Public: the variances and delta. Assumes: nothing further (all sums are positive, tails are
    given to delta, rounding is outward).

    Cost: O(sqrt(n s)) for parts of one variance, O(grid^2) for several. References: [CKS2020], [KLS2021].
    """
    return _priced(tuple(gathered(parts, "a variance").items()), small(delta))


@lru_cache(maxsize=4096)  # a scale is found by trying some, and each slot of a series asks again
def _priced(joined: Normals, delta: Fraction) -> Fraction:
    """The same of exact parts, each variance once."""
    converted = tight_epsilon_of_zcdp(rho_of(joined), delta)
    tail = float(delta) * _TAIL / len(joined)
    if any(
        (variance < SMOOTH and count > _CONVOLVED) or _reach(variance, count, tail) > _WIDEST
        for variance, count in joined
    ):
        return converted
    loss, mass = _joined([_law(variance, count, tail) for variance, count in joined])
    spare = float(delta) * (1 - 4 * _TAIL)
    bound = least_epsilon(loss, mass, spare, float(converted), 50) * (1 + _SLACK) + _SLACK
    return min(converted, Fraction(math.ceil(bound * 10**_DIGITS), 10**_DIGITS))


def _joined(pieces: Sequence[tuple[float, float, Any]]) -> tuple[Any, Any]:
    """(losses, masses) of the sum of independent (lowest loss, step, masses): of several, each is rounded up once to a
    common grid."""
    base = sum(low for low, _, _ in pieces)
    if len(pieces) == 1:
        _, step, mass = pieces[0]
        return base + step * np.arange(mass.size), mass
    width = sum(step * (mass.size - 1) for _, step, mass in pieces) / _GRID
    whole = np.ones(1)
    for _, step, own in pieces:
        at = np.ceil(np.arange(own.size) * (step / width) - _SLACK).astype(np.int64)
        whole = np.convolve(whole, np.bincount(at, weights=own))
    return base + width * (np.arange(whole.size) + len(pieces) * _SLACK), whole


def _reach(variance: Fraction, n: int, tail: float) -> int:
    """At most `tail` of a sum of n draws lies from here on: P(S >= t) <= exp(-t^2 / (2 n s)), as it is sub-Gaussian."""
    return math.ceil(math.sqrt(2 * n * float(variance) * math.log(1 / tail)) * (1 + _SLACK)) + 1


@lru_cache(maxsize=16)
def _law(variance: Fraction, n: int, tail: float) -> tuple[float, float, Any]:
    """(lowest loss, step, masses) of n draws: the middle of the law, each mass at least the true one.

    At most `tail` lies beyond either end (`_reach`). What lies below is dearer at the lowest point, where it is added;
    what lies above is paid from delta by the caller.
    """
    s, reach = float(variance), _reach(variance, n, tail)
    if variance >= SMOOTH:
        at = np.arange(-reach, reach + 1, dtype=np.float64)
        mass = np.exp(-at * at / (2 * n * s))
        mass *= smooth_factor(variance, n) / mass.sum()
    else:
        one = math.ceil(math.sqrt(2 * s * math.log(2 * n / tail)) * (1 + _SLACK)) + 1
        at = np.arange(-one, one + 1, dtype=np.float64)
        mass = np.exp(-at * at / (2 * s))
        mass = _power(mass / mass.sum(), n)
        if mass.size > 2 * reach + 1:
            mass = mass[mass.size // 2 - reach : mass.size // 2 + reach + 1].copy()
        reach = mass.size // 2
    mass[0] += 2 * tail
    # the loss rises as S falls, and the law is symmetric: from S = reach, the lowest loss, upwards
    return (n - 2 * reach) / (2 * s), 1 / s, mass


def _power(mass: Any, n: int) -> Any:
    """The n-fold convolution, by doubling; every term is positive."""
    out = None
    while True:
        if n & 1:
            out = mass if out is None else np.convolve(out, mass)
        n >>= 1
        if not n:
            return out
        mass = np.convolve(mass, mass)


def smooth_factor(variance: Fraction, n: int) -> float:
    """At least the largest ratio of the law of a sum of n draws to the discrete Gaussian of n times the variance.

    By Poisson summation adding a draw to a sum of k changes the ratio by at most (1 + q)/(1 - q), with
    q = 2.1 exp(-2 pi^2 s k / (k + 1)): docs/proofs/gaussian.md.
    """
    s, few = float(variance), min(n, 64)
    log = sum(_turn(s * k / (k + 1)) for k in range(1, few)) + (n - few) * _turn(s * few / (few + 1))
    return math.exp(log) * (1 + 1e-14)


def _turn(v: float) -> float:
    q = 2.1 * math.exp(-2 * math.pi**2 * v)
    return 2 * q / (1 - q)


def rho_of(parts: Normals) -> Fraction:
    """Numbers that move by 1 are (n / (2 s))-zCDP together [CKS2020]."""
    return sum((Fraction(count) / (2 * variance) for variance, count in parts), start=Fraction(0))


def tight_epsilon_of_zcdp(rho: Fraction, delta: Fraction) -> Fraction:
    """rho-zCDP implies (epsilon, delta)-DP with epsilon = a rho + (ln(1/(a delta)) + (a - 1) ln(1 - 1/a)) / (a - 1) for
    every a > 1 [CKS2020, prop. 12]; the best a is looked for, whichever it is the bound holds; rounded up."""
    rho, delta = exact(rho, "rho"), exact(delta, "delta")
    if delta >= 1:
        raise PrivacyError("delta must be below 1")

    def at(log_a: float) -> float:
        a = 1 + math.exp(log_a)
        return a * float(rho) + (-math.log(float(delta)) - math.log(a)) / (a - 1) + math.log1p(-1 / a)

    low, high = -30.0, 60.0
    for _ in range(120):  # unimodal in a; a bad a would only be dearer
        third = (high - low) / 3
        low, high = (low + third, high) if at(low + third) > at(high - third) else (low, high - third)
    with localcontext() as context:
        context.prec = 80 + len(str(rho.numerator // rho.denominator))
        context.rounding = ROUND_FLOOR
        least = Decimal(delta.numerator) / Decimal(delta.denominator)
        context.rounding = ROUND_CEILING
        most = Decimal(rho.numerator) / Decimal(rho.denominator)
        a = 1 + Decimal(math.exp((low + high) / 2))
        # ln rounds half-even whatever the context says: the added digit makes it an upper bound
        bound = a * most + ((1 / (a * least)).ln() + Decimal("1e-40")) / (a - 1) + (1 - 1 / a).ln() + Decimal("1e-30")
        bound = max(bound, Decimal(0))
        return Fraction(bound.quantize(Decimal(1).scaleb(-_DIGITS), rounding=ROUND_CEILING))


def analytic_mu(epsilon: float, delta: float) -> float:
    """The mu of Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) = delta: the price of continuous Gaussian
    noise, a first guess for the discrete one and nothing more."""

    def found(mu: float) -> float:
        one, two = (mu / 2 - epsilon / mu) / math.sqrt(2), (mu / 2 + epsilon / mu) / math.sqrt(2)
        rest = math.exp(epsilon) * math.erfc(two) if epsilon < 700 else 0.0  # a first guess, never a price
        return (math.erfc(-one) - rest) / 2

    low, high = 1e-12, 100.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if found(middle) < delta else (low, middle)
    return low


def least_scale(price: Callable[[Fraction], Fraction], epsilon: Fraction, delta: Fraction, slots: int = 1) -> Fraction:
    """A scale of 16 bits whose `price` is at most epsilon, at most about a thousandth above the least: from that of
    the continuous Gaussian in so many slots upwards."""
    guess = math.sqrt(slots) / analytic_mu(float(epsilon), float(delta))
    step = Fraction(2) ** (math.frexp(guess)[1] - _BITS)
    number = math.ceil(guess / step)
    for _ in range(200):
        found = price(number * step)
        if found <= epsilon:
            return number * step
        number += math.ceil(number * max(float(found / epsilon) - 1, 2.0**-12) / 2)
    raise PrivacyError("no discrete Gaussian noise was found for this epsilon and delta; use Laplace noise")
