"""What shuffling n reports costs: four upper bounds, each certified, and an attack that no bound may fall below.

One formula serves all numeric bounds. Let a and b be the laws of one person's report under two records, and w a
measure below the law of every record (a blanket, of mass gamma <= 1). Then [Balle2019, lemma 5.3]

    delta(epsilon) <= (1/n) E[(X_1 + ... + X_n)_+],     X = (a(y) - e^epsilon b(y)) / w(y) with measure w(y), else 0.

The bounds differ in (a, b, w) alone; which is valid when is proved in docs/proofs/shuffle_bounds.md by convex order:
a spread of X that keeps its mean can only raise the right side. The same fact makes the grid below an upper bound.

E[(X_1 + ... + X_n)_+] is computed by one FFT of the law of X tilted by e^(lambda x), so that even delta = 1e-30 keeps
its leading digits. Each step errs upwards: values of X are split between two neighbouring grid points with the same
mean; what wraps around is counted as well; the far tail and the round-off (`_FFT`, `_EACH`) are added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.privacy import Exact, exact

Floats = NDArray[np.float64]

MAX_PEOPLE = 10**9
_UNIT = 2.0**-52
_FFT = 16 * _UNIT
"""Relative l2 error of one FFT of length N is taken as _FFT log2 N: over ten times what pocketfft shows."""
_EACH = 1024 * _UNIT
"""Relative error of one probability, one value of X, or one factor of the n-th power: e^y with |y| up to 300 has lost
at most some hundred units."""
_FINE = 0.125
"""Grid step over the standard deviation of one (tilted) X: adds at most _FINE^2/4 to its relative variance."""
_LARGEST = 1 << 21
"""The longest FFT; where more would be needed, Chernoff's bound has to do."""
_MOST_ATOMS = 1 << 15
_HOPELESS = 150
"""A row's local epsilon above which nothing but the local claim is stated. Up to it e^epsilon times a ratio of
likelihoods is at most e^300 and its square is a double; above it the other bounds could hardly say less."""
_LEAST = 1e-300
"""A delta below which nothing but the local claim is stated: doubles are no longer exact to some digits there."""
_DIGITS = 4
"""Significant decimal digits of an epsilon that is stated; always rounded up."""


@dataclass(frozen=True)
class Bound:
    """A valid (epsilon, delta) of the shuffled rows and the theorem it comes from."""

    name: str
    epsilon: Fraction
    delta: Fraction
    n: int


@dataclass(frozen=True, eq=False)
class Atoms:
    """The report of one person in likelihood ratios to the blanket: u = a/w, v = b/w, and the measure w."""

    u: Floats
    v: Floats
    w: Floats


def two_points(e: float, mass: float) -> Atoms:
    """Two outputs, e times as likely under one record as under the other; the blanket spreads `mass` evenly."""
    keep, flip = e / (e + 1), 1 / (e + 1)
    half = mass / 2
    return Atoms(np.array([keep, flip]) / half, np.array([flip, keep]) / half, np.array([half, half]))


def columns(epsilons: Sequence[Fraction], differing: int | None = None) -> Atoms:
    """Independent two-point columns; in the first `differing` of them (all, unless given) the records differ.

    A column brings the factor (e^eps, 1) or (1, e^eps) to (u, v) where the records differ, (e^eps, e^eps) or (1, 1)
    where they agree, each with measure 1/(e^eps + 1).
    """
    k = len(epsilons) if differing is None else differing
    groups = Counter((eps, i < k) for i, eps in enumerate(epsilons))
    log_u, log_v, log_w = np.zeros(1), np.zeros(1), np.zeros(1)
    for (eps, differ), count in groups.items():
        e, i = float(eps), np.arange(count + 1)
        ways = np.array([math.log(math.comb(count, int(j))) for j in i]) - count * math.log1p(math.exp(e))
        log_u = np.add.outer(log_u, i * e).ravel()
        log_v = np.add.outer(log_v, (count - i if differ else i) * e).ravel()
        log_w = np.add.outer(log_w, ways).ravel()
    return Atoms(np.exp(log_u), np.exp(log_v), np.exp(log_w))


def coarse(epsilons: Sequence[Fraction]) -> list[Fraction]:
    """The same columns with few enough different epsilons, none lowered: more epsilon is never more private."""
    found, levels = list(epsilons), 64
    while levels and math.prod(count + 1 for count in Counter(found).values()) > _MOST_ATOMS:
        step = max(epsilons) / levels
        found = [math.ceil(eps / step) * step for eps in epsilons]
        levels //= 2
    return found


def delta_of(atoms: Atoms, n: int, epsilon: float) -> float:
    """An upper bound of (1/n) E[(X_1 + ... + X_n)_+], hence of the delta of n shuffled reports at `epsilon`."""
    x = _values(atoms, epsilon)
    if x.max() <= 0:
        return 0.0
    rate = _saddle(x, atoms.w, n)
    total, chernoff = _chernoff(x, atoms.w, n, rate)
    deviation = math.sqrt(float((atoms.w * np.exp(rate * x)) @ (x * x)) / total)
    step = _FINE * deviation
    reach = 12 * deviation * math.sqrt(n) + 2 * float(np.abs(x).max()) + 45 / rate
    size = 1 << max(8, math.ceil(math.log2(reach / step)))
    if size > _LARGEST:
        return chernoff
    return min(chernoff, _positive_part(x, atoms.w, n, rate, step, size) / n)


def _values(atoms: Atoms, epsilon: float) -> Floats:
    """X, not below its true value: the errors of e^epsilon, u, v and their difference go upwards."""
    g = math.exp(epsilon) * (1 - 4 * _UNIT)
    return atoms.u - g * atoms.v + 4 * _EACH * (atoms.u + g * atoms.v)


def _chernoff(x: Floats, w: Floats, n: int, rate: float) -> tuple[float, float]:
    """(E e^(rate X), the bound of E[S_+]/n that s_+ <= e^(rate s) / (e rate) gives)."""
    total = float(w @ np.exp(rate * x)) + max(0.0, 1 - float(w.sum()))
    return total, math.exp(n * (math.log(total) + 4 * _EACH + len(x) * _UNIT)) / (math.e * rate * n) * (1 + 1e-9)


def _simple(atoms: Atoms, n: int, epsilon: float) -> float:
    """Chernoff's bound alone: no FFT, some per cent more epsilon."""
    x = _values(atoms, epsilon)
    return 0.0 if x.max() <= 0 else _chernoff(x, atoms.w, n, _saddle(x, atoms.w, n))[1]


def _saddle(x: Floats, w: Floats, n: int) -> float:
    """The rate at which E[X e^(rate X)] = 0: there the tilted sum is centred on 0, where the positive part begins.

    Any positive rate is valid; where epsilon is near 0 so is the saddle, and a fraction of 1/deviation serves.
    """
    top = float(x.max())

    def slope(rate: float) -> float:
        return float((w * x) @ np.exp(rate * (x - top)))

    low, high = 0.0, 1 / top
    while slope(high) < 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return max(high, 0.5 / math.sqrt(n * float(w @ (x * x))))


def _positive_part(x: Floats, w: Floats, n: int, rate: float, step: float, size: int) -> float:
    """Upper bound of E[S_+], S the sum of n copies of X."""
    at = np.floor(x / step)
    share = np.clip(x / step - at, 0.0, 1.0)
    cells = np.concatenate((at, at + 1, [0.0]))
    mass = np.concatenate((w * (1 - share), w * share, [max(0.0, 1 - float(w.sum()))]))
    tilted = mass * np.exp(rate * step * cells)
    total = math.fsum(tilted.tolist())
    law = np.zeros(size)
    np.add.at(law, cells.astype(np.int64) % size, tilted / total)
    transform = np.fft.rfft(law)
    # |error| of an entry of the transform: the FFT's own, and that of the law, which sums to 1
    wrong = _FFT * math.log2(size) * math.sqrt(size) * math.sqrt(float(law @ law))
    wrong += 2 * _EACH + len(cells) * _UNIT
    largest = np.minimum(1.0, np.abs(transform) + wrong)
    # most frequencies vanish in the n-th power: those below e^-75 are set to 0, which `gone` bounds
    active = np.flatnonzero(largest > math.exp(-75 / n))
    power = np.zeros_like(transform)
    power[active] = transform[active] ** n
    there = np.fft.irfft(power, size)
    gone = len(transform) * math.exp(-75)
    near = n * (wrong + _EACH) * largest[active] ** (n - 1)  # |z^n - y^n| <= n |z - y| max(|z|, |y|)^(n-1)
    norm = math.sqrt(size * 2 * (float((largest[active] ** (2 * n)).sum()) + gone))
    doubt = (2 * (float(near.sum()) + gone) + _FFT * math.log2(size) * norm) / size
    s = step * np.arange(size)
    weights = s * np.exp(-rate * s)
    # beyond the window s e^(-rate s) falls and the law sums to at most 1
    inside = (
        float(weights @ np.maximum(there, 0.0))
        + doubt * float(weights.sum())
        + size * step * math.exp(-rate * size * step)
    )
    return inside * math.exp(n * math.log(total) + n * _EACH * 4) * (1 + 1e-9)


def stated(epsilon: float) -> Fraction:
    """The next decimal of four significant digits that is not below epsilon."""
    return Fraction(Context(prec=_DIGITS, rounding=ROUND_CEILING).create_decimal(Decimal(epsilon)))


def solve(atoms: Atoms, n: int, delta: Fraction, most: Fraction) -> Fraction | None:
    """A stated epsilon up to `most` whose bound is at most delta, the least one up to 0.1 %; None where there is none.

    Chernoff's bound brackets it, the Illinois rule on ln delta closes in, and the decimal itself is certified.
    """
    goal = float(delta) * (1 - 1e-12)
    if goal < _LEAST or _simple(atoms, n, float(most)) > goal:
        return None
    low, high = 0.0, float(most)
    while high - low > 1e-3 * high and high > 1e-9:
        middle = (low + high) / 2 if low > high / 16 else high / 8
        low, high = (low, middle) if _simple(atoms, n, middle) <= goal else (middle, high)
    low = high / 2
    while low > 1e-9 and delta_of(atoms, n, low) <= goal:
        low, high = low / 2, low

    def excess(epsilon: float) -> float:
        return math.log(max(delta_of(atoms, n, epsilon), 1e-320) / goal)

    below, above = excess(low), excess(high)
    side = 0
    while high - low > 5e-4 * high:
        middle = (low * above - high * below) / (above - below)
        if not low + 1e-4 * high < middle < high - 1e-4 * high:
            middle = (low + high) / 2
        at = excess(middle)
        if at <= 0:
            high, above, below, side = middle, at, (below / 2 if side < 0 else below), -1
        else:
            low, below, above, side = middle, at, (above / 2 if side > 0 else above), 1
    found = stated(high)
    while delta_of(atoms, n, float(found)) > goal:
        found = stated(float(found) * (1 + 10.0 ** (1 - _DIGITS)))
    return min(found, most)


def theorem_3(n: int, epsilon: Fraction, delta: Fraction) -> Bound | None:
    """The closed form; None where its condition epsilon <= ln(n / (16 ln(2/delta))) fails. [Feldman2021, thm. 3.1;
    Kii2022, thm. 3]"""
    if epsilon > _HOPELESS or float(delta) < _LEAST:
        return None
    e, d = math.exp(float(epsilon)), float(delta)
    if e > n / (16 * math.log(2 / d)) * (1 - 1e-12):
        return None
    inner = 8 * math.sqrt(e * math.log(4 / d) / n) + 8 * e / n
    value = math.log1p((e - 1) / (e + 1) * inner)
    return Bound("theorem 3", stated(value * (1 + 1e-12)), delta, n)


def clones_2021(n: int, epsilon: Fraction, delta: Fraction) -> Bound | None:
    """Any epsilon-LDP randomizer: the others hide among clones of mass e^-epsilon. [Feldman2021, thm. 3.2]"""
    if epsilon > _HOPELESS:
        return None
    e = math.exp(float(epsilon) * (1 + 2 * _UNIT))
    atoms = two_points(e, 1 / e)
    return _bound("clones 2021", n, delta, solve(atoms, n, delta, epsilon))


def clones_2023(n: int, epsilon: Fraction, delta: Fraction) -> Bound | None:
    """Any epsilon-LDP randomizer, clones of mass 2/(e^epsilon + 1). [Feldman2023, thm. 3.2]; own proof by convex order
    in docs/proofs/shuffle_bounds.md."""
    if epsilon > _HOPELESS:
        return None
    e = math.exp(float(epsilon) * (1 + 2 * _UNIT))
    atoms = two_points(e, 2 / (e + 1))
    return _bound("clones 2023", n, delta, solve(atoms, n, delta, epsilon))


def blanket(n: int, epsilons: Sequence[Fraction], delta: Fraction, differing: int | None = None) -> Bound | None:
    """Independent two-point columns, or columns that are no worse: a blanket of mass prod 2/(e^eps_j + 1).

    All columns differing is the worst case (proof, section 4); `differing` computes any other number.
    """
    few = coarse(epsilons)
    if sum(few, Fraction(0)) > _HOPELESS or len(few) > _MOST_ATOMS:
        return None
    most = sum(epsilons, Fraction(0))
    return _bound("blanket", n, delta, solve(columns(few, differing), n, delta, most))


def _bound(name: str, n: int, delta: Fraction, epsilon: Fraction | None) -> Bound | None:
    return None if epsilon is None else Bound(name, epsilon, delta, n)


def bounds_of(n: int, epsilons: Iterable[Exact], delta: object, *, paired: bool = True) -> tuple[Bound, ...]:
    """Every bound that holds for n shuffled rows of independent columns with these local epsilons, least first.

    paired: each column is a two-point randomizer or one that the blanket's proof covers (`covered`). The local claim,
    the sum of the epsilons with delta 0, always holds and is always there.
    """
    each = [exact(eps) for eps in epsilons]
    d = exact(delta, "delta")
    if not each or not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_PEOPLE or d >= 1:
        raise DomainError(f"bounds_of: at least one column, 1 to {MAX_PEOPLE} rows and a delta below 1")
    total = sum(each, Fraction(0))
    found: list[Bound | None] = [Bound("local", total, Fraction(0), n)]
    found += [theorem_3(n, total, d), clones_2021(n, total, d), clones_2023(n, total, d)]
    found += [blanket(n, each, d)] if paired else []
    return tuple(sorted((bound for bound in found if bound is not None), key=lambda bound: bound.epsilon))


def least(n: int, epsilons: Sequence[Fraction], delta: Fraction, *, paired: bool) -> Bound:
    """The least bound that holds. The numeric ones are ordered (proof, section 5), so only the sharpest is computed."""
    total = sum(epsilons, Fraction(0))
    local = Bound("local", total, Fraction(0), n)
    numeric = blanket(n, epsilons, delta) if paired else clones_2023(n, total, delta)
    found = [theorem_3(n, total, delta), numeric, local]
    return min((bound for bound in found if bound is not None), key=lambda bound: bound.epsilon)


def attack(n: int, epsilons: Iterable[Exact], delta: object) -> float:
    """An epsilon that n shuffled rows of two-point columns do exceed at this delta: a lower bound for every claim.

    The victim's record is all -1 or all +1, everyone else's all -1. The adversary counts the rows with at least s
    values +, a binomial number and the victim's own, and decides by a threshold. The best s and threshold are taken:
    P(count >= t | +) - e^epsilon P(count >= t | -) is a lower bound of delta, and so is the other direction.
    """
    each = [float(exact(eps)) for eps in epsilons]
    d = float(exact(delta, "delta"))
    plus, minus = _at_least(each, 1), _at_least(each, -1)
    best = 0.0
    for s in range(1, len(each) + 1):
        if not 0 < minus[s] < 1:
            continue
        pmf, below, above = _binomial(n - 1, minus[s])
        best = max(
            best,
            _disproved(pmf, above, plus[s], minus[s], d),  # count > j
            _disproved(pmf, below, 1 - minus[s], 1 - plus[s], d),  # count <= j
        )
    return best


def _disproved(pmf: Floats, tail: Floats, a: float, b: float, delta: float) -> float:
    """The largest epsilon with P(E | a) - e^epsilon P(E | b) >= delta for one of the events E.

    The others' count is K and E happens where K is in the tail beyond j, or where K = j and the victim's own report
    falls on E's side, with probability a or b: P(E) = tail + own pmf.
    """
    top, bottom = tail + a * pmf - delta * (1 + 1e-6), tail + b * pmf
    good = (top > 0) & (bottom > 0)
    if not good.any():
        return 0.0
    return max(0.0, float((np.log(top[good]) - np.log(bottom[good])).max()) - 1e-9)


def _at_least(epsilons: Sequence[float], record: int) -> list[float]:
    """[s]: probability that at least s of the columns report +, for the record of all +1 or all -1."""
    law = np.ones(1)
    for eps in epsilons:
        up = 1 / (1 + math.exp(min(-record * eps, 700)))
        law = np.convolve(law, [1 - up, up])
    return np.minimum(np.cumsum(law[::-1])[::-1], 1.0).tolist()


def _binomial(n: int, p: float) -> tuple[Floats, Floats, Floats]:
    """(P(K = j), P(K < j), P(K > j)) of K ~ Bin(n, p) over all j within 40 deviations of the mean."""
    mean, deviation = n * p, math.sqrt(n * p * (1 - p))
    low, high = max(0, math.floor(mean - 40 * deviation - 40)), min(n, math.ceil(mean + 40 * deviation + 40))
    j = np.arange(low, high)
    steps = np.concatenate(([0.0], np.cumsum(np.log((n - j) / (j + 1.0)) + math.log(p) - math.log1p(-p))))
    pmf = np.exp(steps - steps.max())
    pmf /= pmf.sum()  # all but e^-800 of the mass is inside
    below = np.concatenate(([0.0], np.cumsum(pmf)[:-1]))
    above = np.concatenate((np.cumsum(pmf[::-1])[::-1][1:], [0.0]))
    return pmf, below, above
