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

from kasuri.errors import PrivacyError, raise_faults
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
    """The exact hockey-stick delta at `epsilon`, rounded up in its last of about 50 digits: the tight claim."""
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
    if sampling.least_delta >= wanted:
        return None  # delta(epsilon) > beta^k for every epsilon of the theorem, and >= beta^k - e^eps 0 in the exact law

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
    e_low, e_high = _exp(epsilon)
    best = Fraction(0)
    n = 1 if bound == "exact" else k  # below k rows nothing is ever shown
    while True:
        if n >= k:
            value = _theorem_at(n, e_low, sampling) if bound == "theorem" else _exact_at(n, e_low, e_high, sampling)
            best = max(best, value)
            if best >= 1:
                return Fraction(1)
            if _beyond(n, e_low, beta, best, both=bound == "exact"):
                return _short(best)
        n += 1
        if n > _MOST_ROWS:
            raise PrivacyError("epsilon is too small for this sampling rate: delta could not be bounded; raise it")


def _theorem_at(n: int, e_low: Fraction, sampling: Sampling) -> Fraction:
    """Pr[Bin(n, beta) > gamma n, X >= k], rounded up; gamma from below, so that no term is left out."""
    gamma = 1 - (1 - sampling.rate) / e_low
    return tail(n, sampling.rate, max(math.floor(gamma * n) + 1, sampling.k))[1]


def _exact_at(n: int, e_low: Fraction, e_high: Fraction, sampling: Sampling) -> Fraction:
    """The larger hockey-stick divergence for a class of n against n - 1 rows, rounded up. n >= k.

    Any threshold gives a lower bound of a divergence, its own one the value; so the sum at the threshold computed
    from e_low is within one borderline term, which the outward rounding of e^eps covers: (P - e_low Q)+ >= (P - e^eps Q)+.
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
    """True if every class larger than n has a smaller delta than `best`, by Chernoff's bound exp(-n KL(a || beta)).

    First divergence: at most Pr[Bin(m, beta) > gamma m]. Second: at most Pr[Bin(m-1, beta) < g m] plus, for m rows
    with k below g m, the hidden outcome, which lies inside the same event; for k >= g m the hidden outcome is
    {X < k} whose divergence is at most Pr[Bin(m-1) < k] - ... <= that of X < k, a subset of nothing smaller: it is
    only covered once k <= g m or its ratio is below e^eps, both checked here.
    """
    raise NotImplementedError


def tail(n: int, beta: Fraction, start: int) -> tuple[Fraction, Fraction]:
    """(low, high) with low <= Pr[Bin(n, beta) >= start] <= high."""
    raise NotImplementedError


def _exp(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    raise NotImplementedError


def _short(value: Fraction) -> Fraction:
    raise NotImplementedError
