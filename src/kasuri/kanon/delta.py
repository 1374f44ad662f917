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
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice

from kasuri.errors import NumericsError, PrivacyError, raise_faults
from kasuri.noise.survival import exp_minus
from kasuri.privacy import Exact, exact

_BITS = 160  # working precision of e^eps, and of tails beyond the size of their smallest term
_MOST_ROWS = 500_000  # class sizes looked at before giving up
_TERM_ROWS = 2000  # class sizes whose largest binomial term is worked out for the stopping rule
_MOST_EPSILON = 500
_LEAST_RATE = Fraction(1, 10**12)
_TOO_SMALL = "epsilon is too small for this sampling rate and k: delta could not be bounded; raise it"


@dataclass(frozen=True)
class Sampling:
    """A rate in (0, 1) and the least class size that is shown; both public."""

    rate: Fraction
    k: int

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.rate, Fraction) or not 0 < self.rate < 1:
            faults.append("the sampling rate must lie between 0 and 1, both excluded")
        elif not _LEAST_RATE <= self.rate <= 1 - _LEAST_RATE:
            faults.append("the sampling rate must keep 10^-12 away from 0 and 1")
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


def exact_delta(epsilon: Exact, sampling: Sampling) -> Fraction:
    """The exact hockey-stick delta at `epsilon`, rounded up in its sixth digit. It is never below beta^k."""
    return _exact(exact(epsilon), sampling)


def li_qardaji_su_delta(epsilon: Exact, sampling: Sampling) -> Fraction | None:
    """max over n >= ceil(k/gamma - 1) of Pr[Bin(n, beta) > gamma n], gamma = (e^eps - 1 + beta)/e^eps, rounded up;
    None for epsilon < -ln(1 - beta), where the theorem does not hold [Li2012, Theorem 1]."""
    value = exact(epsilon)
    if _exp(value)[0] * (1 - sampling.rate) < 1:
        return None
    return _theorem(value, sampling)


def least_epsilon(delta: object, sampling: Sampling, *, bound: str = "exact") -> Fraction | None:
    """The least epsilon, in steps of 0.001, with delta(epsilon) <= `delta`; None if there is none up to 20.

    bound: "exact" or "theorem" (Li, Qardaji and Su).
    """
    wanted = exact(delta, "delta")
    if sampling.least_delta > wanted:
        return None

    def enough(step: int) -> bool:
        epsilon = Fraction(step, 1000)
        try:
            found = (li_qardaji_su_delta if bound == "theorem" else exact_delta)(epsilon, sampling)
        except NumericsError:
            return False
        return found is not None and found <= wanted

    low, high = 0, 20_000
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 1000)


def least_k(epsilon: Exact, delta: object, rate: Fraction, *, most_rows: int = _MOST_ROWS) -> int | None:
    """The smallest k whose exact delta at `epsilon` is at most `delta`; None if there is none up to 4096.

    most_rows: class sizes looked at per k before it gives up with a NumericsError.
    """
    wanted, value = exact(delta, "delta"), exact(epsilon)

    def enough(k: int) -> bool:
        return rate**k <= wanted and _exact(value, Sampling(rate, k), most_rows) <= wanted  # delta >= rate^k

    low, high = 1, 2
    while not enough(high):
        if high >= 4096:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _theorem(epsilon: Fraction, sampling: Sampling) -> Fraction:
    """The largest Pr[Bin(n, beta) > gamma n], rounded up; gamma is taken from below, so that no term is left out."""
    beta, k = sampling.rate, sampling.k
    e_low = _exp(epsilon)[0]
    gamma = 1 - (1 - beta) / e_low
    best = Fraction(0)
    for t in range(k, k + _MOST_ROWS):
        # Pr[Bin(n, beta) >= t] rises in n: of all n with floor(gamma n) + 1 = t only the last can be the largest
        n = math.ceil(t / gamma) - 1
        best = max(best, tail(n, beta, math.floor(gamma * n) + 1)[1])
        if _beyond(n, e_low, beta, best, both=False):
            return min(_short(best), Fraction(1))
    raise NumericsError(_TOO_SMALL)


@lru_cache(maxsize=1024)
def _exact(epsilon: Fraction, sampling: Sampling, most_rows: int = _MOST_ROWS) -> Fraction:
    """The larger hockey-stick divergence, n against n - 1 rows, the largest over all n, rounded up."""
    e = _exp(epsilon)[0]
    best, checked = Fraction(0), sampling.k
    for n, leaves, enters in islice(divergences(e, sampling), most_rows):
        best = max(best, leaves, enters)  # the first was the larger wherever we looked; that is not relied on
        if n < sampling.k + 64 or n >= checked + 64:
            checked = n
            if _beyond(n, e, sampling.rate, best, both=True):
                return min(_short(best), Fraction(1))
    raise NumericsError(_TOO_SMALL)


def divergences(e: Fraction, sampling: Sampling) -> Iterator[tuple[int, Fraction, Fraction]]:
    """For n = k, k + 1, ...: upper bounds of sum (P - e Q)+ (a unit leaves) and of sum (Q - e P)+ (it enters).

    With S_n(t) = Pr[Bin(n, beta) >= t] = S_{n-1}(t) + beta Q(t-1) the first is, at its threshold t,
    S_n(t) - e S_{n-1}(t) = beta Q(t-1) - (e - 1) S_{n-1}(t). An e below e^eps makes both larger; for e itself the
    thresholds are found exactly. With fewer than k rows nothing is ever shown, and both are 0.
    """
    beta, k = sampling.rate, sampling.k
    gamma, other = 1 - (1 - beta) / e, 1 - e * (1 - beta)
    bits = _BITS + 2 * math.ceil(1 / sampling.least_delta).bit_length()
    high, low, hidden = (_Tail(k, beta, bits) for _ in range(3))  # at gamma n, at `other` n, and at k
    e_fixed = math.floor(e * (1 << _BITS))  # rounded down once more
    one = 1 << bits
    for n in count(k):
        high.to(n, max(math.floor(gamma * n) + 1, k))
        leaves = high.rise()[1] - ((e_fixed - (1 << _BITS)) * high.s_low >> _BITS)
        enters = 0
        if other > 0:
            # Q/P = (n - x)/(n (1 - beta)) falls in x, so it is {x < k}, one outcome, and k <= x < other n
            hidden.to(n, k)
            rise_low, rise_high = hidden.rise()
            p_hidden = max(one - hidden.s_high - rise_high, 0)
            enters = max(one - hidden.s_low - (e_fixed * p_hidden >> _BITS), 0)
            if (end := math.ceil(n * other)) > k:
                low.to(n, end)
                p_seen = max(hidden.s_low + rise_low - low.s_high - low.rise()[1], 0)
                enters += max(hidden.s_high - low.s_low - (e_fixed * p_seen >> _BITS), 0)
        yield n, Fraction(max(leaves, 0), one), Fraction(enters, one)


class _Tail:
    """Q(t-1) and S(t) = Pr[X >= t] of X ~ Bin(n-1, beta), as integers over 2^bits, rounded outward; it starts at
    n = t = k and walks to larger n and t by the ratios of neighbouring binomial terms."""

    def __init__(self, k: int, beta: Fraction, bits: int) -> None:
        self.n = self.t = k
        self.a, self.b = beta.numerator, beta.denominator
        self.c = self.b - self.a
        first = beta ** (k - 1)
        self.p_low = (first.numerator << bits) // first.denominator
        self.p_high = self.p_low + 1
        self.s_low = self.s_high = 0

    def rise(self) -> tuple[int, int]:
        """beta Q(t-1): by how much Pr[X >= t] rises with one row more."""
        return self.p_low * self.a // self.b, -(-self.p_high * self.a // self.b)

    def to(self, n: int, t: int) -> None:
        while self.n < n:
            rise_low, rise_high = self.rise()
            self.s_low, self.s_high = self.s_low + rise_low, self.s_high + rise_high
            up, down = self.n * self.c, (self.n - self.t + 1) * self.b
            self.p_low, self.p_high = self.p_low * up // down, -(-self.p_high * up // down)
            self.n += 1
        while self.t < t:
            up, down = (self.n - self.t) * self.a, self.t * self.c
            self.p_low, self.p_high = self.p_low * up // down, -(-self.p_high * up // down)
            self.s_low, self.s_high = max(self.s_low - self.p_high, 0), max(self.s_high - self.p_low, 0)
            self.t += 1


def _beyond(n: int, e_low: Fraction, beta: Fraction, best: Fraction, *, both: bool) -> bool:
    """True if no class of more than n rows can have a delta above `best`.

    Hiding small classes is post-processing, so both divergences are at most those without it. The first is then at
    most Pr[Bin(m, beta) > gamma m] <= exp(-m KL(gamma || beta)), and the second at most Pr[Bin(m-1, beta) < g m] <=
    exp(-(m-1) KL(g m/(m-1) || beta)) with g = 1 - e^eps (1 - beta) < beta, and 0 for g <= 0. Both bounds fall in m.
    Where epsilon is small a second bound is sooner met: both are at most the total variation distance, which is
    beta times the largest Pr[Bin(m-1, beta) = x], and that falls in m (a further row averages two neighbours).
    """
    if both and n <= _TERM_ROWS and beta * _largest_term(n, beta) <= best:
        return True
    needed = math.log(best.denominator) - math.log(best.numerator) + 1e-6 if best else math.inf
    if (n + 1) * _kl_low(float(1 - (1 - beta) / e_low), float(beta)) < needed:
        return False
    g = float(1 - e_low * (1 - beta)) * (n + 1) / n
    if not both or g <= 0:
        return True
    return g < float(beta) and n * _kl_low(g, float(beta)) >= needed


def _largest_term(n: int, beta: Fraction) -> Fraction:
    mode = math.floor((n + 1) * beta)
    return math.comb(n, mode) * beta**mode * (1 - beta) ** (n - mode)


def _kl_low(a: float, b: float) -> float:
    """A lower bound of KL(a || b) = a ln(a/b) + (1-a) ln((1-a)/(1-b)): its float value less its error, or Pinsker's."""
    a = min(max(a, 0.0), 1.0)
    value = (a * math.log(a / b) if a > 0 else 0.0) + ((1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0)
    return max(value - 1e-11, 2 * (abs(a - b) - 1e-15) ** 2 * (1 - 1e-9) if abs(a - b) > 1e-15 else 0.0)


@lru_cache(maxsize=256)
def tail(n: int, beta: Fraction, start: int) -> tuple[Fraction, Fraction]:
    """(low, high) with low <= Pr[Bin(n, beta) >= start] <= high; summed on the side away from the mean."""
    if start <= 0:
        return Fraction(1), Fraction(1)
    if start > n:
        return Fraction(0), Fraction(0)
    if start > n * beta:
        return _sum(n, beta.numerator, beta.denominator - beta.numerator, start)
    # X < start is n - X >= n - start + 1, and n - X is Bin(n, 1 - beta)
    low, high = _sum(n, beta.denominator - beta.numerator, beta.numerator, n - start + 1)
    return 1 - high, 1 - low


def _sum(n: int, a: int, c: int, start: int) -> tuple[Fraction, Fraction]:
    """Bounds of Pr[Bin(n, a/(a+c)) >= start], start above or near the mean: the first term exactly, then ratios."""
    top, bottom = math.comb(n, start) * a**start * c ** (n - start), (a + c) ** n
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
    if epsilon > _MOST_EPSILON:
        raise PrivacyError(f"epsilon is at most {_MOST_EPSILON}: beyond it nothing is promised")
    bits = _BITS + 2 * math.ceil(epsilon)  # e^-epsilon is at least 2^(-2 epsilon): the bits that are left are _BITS
    low, high = exp_minus(epsilon, bits)
    return Fraction(1 << bits, high), Fraction(1 << bits, low)


def _short(value: Fraction) -> Fraction:
    """The next number up with six significant decimal digits."""
    if value <= 0:
        return Fraction(0)
    places = 5 - math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    scaled = value * Fraction(10) ** places
    return Fraction(math.ceil(scaled)) / Fraction(10) ** places
