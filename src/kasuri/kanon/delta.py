"""(epsilon, delta) of sampling, a fixed generalisation and suppression below k: exact integers, rounded outward.

Rows are kept independently with probability beta; a class (a tuple of generalised values) of n rows then shows
X ~ Bin(n, beta) rows, and 0 if X < k. Tables that differ by one row differ in one class, n against n - 1 rows. With

    P(x) = Pr[Bin(n, beta) = x],   Q(x) = Pr[Bin(n-1, beta) = x],   P(x) / Q(x) = n (1 - beta) / (n - x),

(infinite at x = n) the exact delta at epsilon is the largest over n >= 1 of the two hockey-stick divergences, x < k
counting as one outcome: sum (P - e^eps Q)+ and sum (Q - e^eps P)+. Both ratios are monotone in x, so each sum is a
binomial tail. Li, Qardaji and Su bound the first by its P part alone and drop the second (which needs
epsilon >= -ln(1 - beta)). Proof: docs/proofs/sample_then_anonymize.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from kasuri.errors import NumericsError, PrivacyError, raise_faults
from kasuri.noise import exp_minus
from kasuri.privacy import exact

_BITS = 192  # working precision of tails and of e^eps, beyond the size of the first term
_MOST_ROWS = 200_000  # class sizes looked at before giving up


@dataclass(frozen=True)
class Sampling:
    """A rate in (0, 1) and the least class size that is shown; both public."""

    rate: Fraction
    k: int

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.rate, Fraction) or not 0 < self.rate < 1:
            faults.append("the sampling rate must lie between 0 and 1, both excluded")
        if not isinstance(self.k, int) or isinstance(self.k, bool) or self.k < 2:
            faults.append("k must be a whole number of at least 2")
        raise_faults(PrivacyError, faults)

    @property
    def least_delta(self) -> Fraction:
        """beta^k: a class of exactly k rows shows them all with this probability; no epsilon has a smaller delta."""
        return self.rate**self.k

    @property
    def floor(self) -> float:
        """-ln(1 - beta): below this epsilon Li, Qardaji and Su's bound says nothing."""
        return -math.log1p(-float(self.rate))


def exact_delta(epsilon: object, sampling: Sampling) -> Fraction:
    """The exact hockey-stick delta at `epsilon`, rounded up in its sixth digit. It is never below beta^k."""
    return _largest(exact(epsilon), sampling, "exact")


def li_qardaji_su_delta(epsilon: object, sampling: Sampling) -> Fraction | None:
    """max over n >= ceil(k/gamma - 1) of Pr[Bin(n, beta) > gamma n], gamma = (e^eps - 1 + beta)/e^eps, rounded up;
    None for epsilon < -ln(1 - beta), where the theorem does not hold [Li2012, Theorem 1]."""
    value = exact(epsilon)
    if _exp(value)[1] * (1 - sampling.rate) < 1:
        return None
    return _largest(value, sampling, "theorem")


def least_epsilon(delta: object, sampling: Sampling, *, bound: str = "exact") -> Fraction | None:
    """The least epsilon, in steps of 0.001, with delta(epsilon) <= `delta`; None if there is none up to 20.

    bound: "exact" or "theorem" (Li, Qardaji and Su).
    """
    wanted = exact(delta, "delta")
    if sampling.least_delta > wanted:
        return None

    def enough(step: int) -> bool:
        epsilon = Fraction(step, 1000)
        if bound == "theorem":
            found = li_qardaji_su_delta(epsilon, sampling)
            return found is not None and found <= wanted
        return exact_delta(epsilon, sampling) <= wanted

    low, high = 0, 20_000
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 1000)


def least_k(epsilon: object, delta: object, rate: Fraction) -> int | None:
    """The smallest k whose exact delta at `epsilon` is at most `delta`; None if there is none up to 4096."""
    wanted = exact(delta, "delta")
    low, high = 1, 2
    while exact_delta(epsilon, Sampling(rate, high)) > wanted:
        if high >= 4096:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exact_delta(epsilon, Sampling(rate, middle)) <= wanted else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _largest(epsilon: Fraction, sampling: Sampling, bound: str) -> Fraction:
    """The largest upper bound over all class sizes n; sizes beyond the last one looked at are covered by Chernoff."""
    beta, k = sampling.rate, sampling.k
    e_low = _exp(epsilon)[0]
    best = Fraction(0)
    for n in range(k, k + _MOST_ROWS):  # with fewer than k rows nothing is ever shown
        value = _theorem_at(n, e_low, sampling) if bound == "theorem" else _exact_at(n, e_low, sampling)
        best = max(best, value)
        if _beyond(n, e_low, beta, best, both=bound == "exact"):
            return min(_short(best), Fraction(1))
    raise NumericsError("epsilon is too small for this sampling rate and k: delta could not be bounded; raise it")


def _theorem_at(n: int, e_low: Fraction, sampling: Sampling) -> Fraction:
    """Pr[Bin(n, beta) > gamma n, X >= k], rounded up; gamma from below, so that no term is left out."""
    gamma = 1 - (1 - sampling.rate) / e_low
    return tail(n, sampling.rate, max(math.floor(gamma * n) + 1, sampling.k))[1]


def _exact_at(n: int, e_low: Fraction, sampling: Sampling) -> Fraction:
    """The larger hockey-stick divergence for a class of n against n - 1 rows, rounded up. n >= k.

    e_low <= e^eps, so (P - e_low Q)+ >= (P - e^eps Q)+; for e_low itself the thresholds are found exactly.
    """
    beta, k = sampling.rate, sampling.k
    gamma = 1 - (1 - beta) / e_low
    start = max(math.floor(gamma * n) + 1, k)
    first = tail(n, beta, start)[1] - e_low * tail(n - 1, beta, start)[0]
    # Q against P: the ratio (n - x)/(n (1 - beta)) falls in x, so it is {x < k} (one outcome) and k <= x < other.
    other = math.ceil(n * (1 - e_low * (1 - beta)))  # Q(x) > e_low P(x) iff x < n (1 - e_low (1 - beta))
    hidden = (1 - tail(n - 1, beta, k)[0]) - e_low * (1 - tail(n, beta, k)[1])
    second = max(hidden, Fraction(0))
    if other > k:
        q = tail(n - 1, beta, k)[1] - tail(n - 1, beta, other)[0]
        p = tail(n, beta, k)[0] - tail(n, beta, other)[1]
        second += q - e_low * max(p, Fraction(0))
    return max(first, second, Fraction(0))


def _beyond(n: int, e_low: Fraction, beta: Fraction, best: Fraction, *, both: bool) -> bool:
    """True if no class of more than n rows can have a delta above `best`.

    Hiding small classes is post-processing, so both divergences are at most those without it. The first is then at
    most Pr[Bin(m, beta) > gamma m] <= exp(-m KL(gamma || beta)), and the second at most Pr[Bin(m-1, beta) < g m] <=
    exp(-(m-1) KL(g m/(m-1) || beta)) with g = 1 - e^eps (1 - beta) < beta, and 0 for g <= 0. Both bounds fall in m.
    """
    needed = math.log(best.denominator) - math.log(best.numerator) + 1e-6 if best else math.inf
    if (n + 1) * _kl_low(float(1 - (1 - beta) / e_low), float(beta)) < needed:
        return False
    g = float(1 - e_low * (1 - beta)) * (n + 1) / n
    if not both or g <= 0:
        return True
    return g < float(beta) and n * _kl_low(g, float(beta)) >= needed


def _kl_low(a: float, b: float) -> float:
    """A lower bound of KL(a || b) = a ln(a/b) + (1-a) ln((1-a)/(1-b)): its float value less its error, or Pinsker's."""
    a = min(max(a, 0.0), 1.0)
    value = (a * math.log(a / b) if a > 0 else 0.0) + ((1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0)
    return max(value - 1e-11, 2 * (abs(a - b) - 1e-15) ** 2 * (1 - 1e-9) if abs(a - b) > 1e-15 else 0.0)


@lru_cache(maxsize=256)
def tail(n: int, beta: Fraction, start: int) -> tuple[Fraction, Fraction]:
    """(low, high) with low <= Pr[Bin(n, beta) >= start] <= high: the first term exactly, the others by their ratio."""
    if start <= 0:
        return Fraction(1), Fraction(1)
    if start > n:
        return Fraction(0), Fraction(0)
    a, b = beta.numerator, beta.denominator
    c = b - a
    top, bottom = math.comb(n, start) * a**start * c ** (n - start), b**n
    shift = max(_BITS + bottom.bit_length() - top.bit_length(), 0)
    t_low = (top << shift) // bottom
    t_high = t_low + 1
    low, high = t_low, t_high
    for x in range(start, n):
        up, down = (n - x) * a, (x + 1) * c
        t_low, t_high = t_low * up // down, -(-t_high * up // down)
        low += t_low
        high += t_high
        if t_high <= 1 and 2 * up <= down:  # the ratio only falls: what is left is at most the last term
            high += t_high
            break
    return Fraction(low, 1 << shift), min(Fraction(high, 1 << shift), Fraction(1))


@lru_cache(maxsize=64)
def _exp(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """(low, high) around e^epsilon."""
    low, high = exp_minus(epsilon, _BITS)
    return Fraction(1 << _BITS, high), Fraction(1 << _BITS, low)


def _short(value: Fraction) -> Fraction:
    """The next number up with six significant decimal digits."""
    if value <= 0:
        return Fraction(0)
    places = 5 - math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    scaled = value * Fraction(10) ** places
    return Fraction(math.ceil(scaled)) / Fraction(10) ** places
