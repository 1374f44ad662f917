"""The exact laws of the noise samplers, written out in decimals, and how a histogram of samples is judged by them.

No kernel and nothing of kasuri.noise is imported. A law is P(X >= x) for whole x; a histogram counts X >> shift, so
that wide laws need few bins. What is judged: the centre (about 200 bins of equal mass), the tail (bins beyond mass
1e-3, and exact binomial probabilities far out), the sign, and the scale (the score test, which no other test beats).
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
from scipy import stats

DIGITS = 60
CENTRE, TAIL = 200, 1e-3
FAR = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
"""Probabilities (about) of the far tails that are counted exactly."""


def number(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def laplace(scale: Fraction) -> Callable[[int], Decimal]:
    """x -> P(X >= x), x >= 1, of P(X = x) = (1 - a) / (1 + a) a^|x| with a = exp(-1/scale)."""
    with localcontext() as context:
        context.prec = DIGITS
        a = (-1 / number(scale)).exp()
        norm = 1 + a

    def upper(x: int) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            return (-Decimal(x) / number(scale)).exp() / norm

    return upper


def gaussian(sigma2: Fraction) -> Callable[[int], Decimal]:
    """x -> P(X >= x), x >= 1, of P(X = x) proportional to exp(-x^2 / (2 sigma2)), summed term by term."""
    with localcontext() as context:
        context.prec = DIGITS
        terms, x = [], 0
        while not terms or terms[-1] > Decimal(10) ** (5 - DIGITS):
            terms.append((-Decimal(x * x) / (2 * number(sigma2))).exp())
            x += 1
        sums = [Decimal(0)]
        for term in reversed(terms[1:]):
            sums.append(sums[-1] + term)
        sums.reverse()  # [i] = sum of the terms from i + 1 on
        norm = terms[0] + 2 * sums[0]
        found = [value / norm for value in sums]
    return lambda x: found[x - 1] if x <= len(found) else Decimal(0)


def size(upper: Callable[[int], Decimal]) -> Callable[[int], Decimal]:
    """x -> P(|X| >= x), x >= 1."""

    def both(x: int) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            return 2 * upper(x)

    return both


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of X >> shift, from -most to most - 1; what lies outside is counted in the first and the last."""

    most: int
    shift: int

    @classmethod
    def of(cls, upper: Callable[[int], Decimal], spread: float) -> "Bins":
        """Bins narrow enough for the law's spread that reach to where hardly a sample of 10^9 falls."""
        shift = max(0, int(spread / 256).bit_length())
        most = 8
        while upper(most << shift) > Decimal("1e-11"):
            most += max(1, most // 8)
        return cls(most, shift)

    def count(self, samples: np.ndarray) -> np.ndarray:
        index = samples >> self.shift
        np.clip(index, -self.most, self.most - 1, out=index)
        index += self.most
        return np.bincount(index, minlength=2 * self.most)

    def chances(self, upper: Callable[[int], Decimal]) -> np.ndarray:
        """The probability of every bin. By symmetry P(X < x) = P(X >= 1 - x): no difference of numbers near 1."""
        with localcontext() as context:
            context.prec = DIGITS
            width = 1 << self.shift
            right = [upper(i * width) for i in range(1, self.most)] + [Decimal(0)]  # P(X >= edge), edge > 0
            left = [upper(i * width + 1) for i in range(self.most)] + [Decimal(0)]  # P(X < -i width)
            half = [1 - left[0], *right]  # P(X >= 0), P(X >= width), ...
            up = [float(a - b) for a, b in pairwise(half)]
            down = [float(a - b) for a, b in pairwise(left)]
        return np.array([*reversed(down), *up])


def judge(counts: np.ndarray, chances: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """p-values by name; each of them is uniform (or larger) for samples of the law."""
    n, most = int(counts.sum()), counts.size // 2
    found = {"centre": _pearson(counts, chances, np.full(chances.size, True), 1 / CENTRE)}
    inner = np.minimum(np.cumsum(chances), np.cumsum(chances[::-1])[::-1]) > TAIL / 2
    found["tail"] = _pearson(counts, chances, ~inner, 20 / n)
    for name, part in (("right", slice(None, most - 1, -1)), ("left", slice(0, most))):
        mass, seen = np.cumsum(chances[part]), np.cumsum(counts[part])
        for far in FAR:
            at = int(np.searchsorted(mass, far))
            if mass[at] * n >= 1 and mass[at] < 10 * far:
                found[f"{name} {far:g}"] = binomial(int(seen[at]), n, float(mass[at]))
    chance = float(chances[:most].sum())
    found["sign"] = binomial(int(counts[:most].sum()), n, chance)
    found["scale"] = float(2 * stats.norm.sf(abs(slope(counts, chances, score))))
    return found


def score_of(upper: Callable[[int], Decimal], wider: Callable[[int], Decimal], step: float, bins: Bins) -> np.ndarray:
    """d log P(bin) / d log scale, from the law with a scale larger by the share `step`."""
    here, there = bins.chances(upper), bins.chances(wider)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((here > 0) & (there > 0), np.log(there / here) / np.log1p(step), 0.0)


def slope(counts: np.ndarray, chances: np.ndarray, score: np.ndarray) -> float:
    """The score test's z: standard normal for samples of the law."""
    n = counts.sum()
    centred = score - (chances * score).sum()
    return float((counts * centred).sum() / np.sqrt(n * (chances * centred**2).sum()))


def least_error(chances: np.ndarray, score: np.ndarray, n: int, alpha: float, power: float = 0.99) -> float:
    """The smallest relative error of the scale that the score test at `alpha` finds with that power."""
    centred = score - (chances * score).sum()
    z = stats.norm.isf(alpha / 2) + stats.norm.isf(1 - power)
    return float(z / np.sqrt(n * (chances * centred**2).sum()))


def binomial(seen: int, n: int, chance: float) -> float:
    """Two-sided p-value of `seen` successes of n."""
    return min(1.0, 2 * min(float(stats.binom.cdf(seen, n, chance)), float(stats.binom.sf(seen - 1, n, chance))))


def _pearson(counts: np.ndarray, chances: np.ndarray, chosen: np.ndarray, mass: float) -> float:
    """Pearson's test over runs of the chosen bins of at least `mass` each; all the other bins are one."""
    seen, wanted = [], []
    add_seen = add_wanted = 0.0
    for count, chance in zip(counts[chosen].tolist(), chances[chosen].tolist(), strict=True):
        add_seen, add_wanted = add_seen + count, add_wanted + chance
        if add_wanted >= mass:
            seen.append(add_seen)
            wanted.append(add_wanted)
            add_seen = add_wanted = 0.0
    n, rest = counts.sum(), counts[~chosen].sum() + add_seen
    seen.append(rest)
    wanted.append(chances[~chosen].sum() + add_wanted)
    o, e = np.array(seen), np.array(wanted) * n
    if e[-1] < 20:
        o, e = np.append(o[:-2], o[-2] + o[-1]), np.append(e[:-2], e[-2] + e[-1])
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), e.size - 1)) if e.size > 1 else 1.0


def least_share(chance: float, n: int, alpha: float, power: float = 0.99) -> float:
    """The smallest relative error of a probability that the binomial test at `alpha` finds with that power."""
    z = stats.norm.isf(alpha / 2) + stats.norm.isf(1 - power)
    return float(z * np.sqrt((1 - chance) / (n * chance)))


def digits(scale: Fraction, base: int) -> tuple[Callable[[int], Decimal], ...]:
    """x -> P(Q >= x), P(R >= x | Q = 0), P(R >= x | Q > 0) of |X| = base Q + R, x >= 1 (R < base)."""
    with localcontext() as context:
        context.prec = DIGITS
        a = (-1 / number(scale)).exp()
        c, low = 2 / (1 + a), (-Decimal(base) / number(scale)).exp()
        c_low = c * low

    def of(x: int, first: Decimal, below: Decimal) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            return (first * (-Decimal(x) / number(scale)).exp() - below) / (1 - below)

    zero = Decimal(0)
    return (lambda x: of(base * x, c, zero)), (lambda x: of(x, c, c_low)), (lambda x: of(x, Decimal(1), low))


def turning_point(chance: Decimal, u: int, bits: int, turn: int) -> tuple[int, ...]:
    """Of a uniform number whose first `bits` bits are u: the 64-bit words that follow, up to number `turn`, at which it
    first is at least `chance` when one half of the last word's unit follows (never zeros alone: the number 0 has no
    least value that is not above it)."""
    with localcontext() as context:
        context.prec = DIGITS
        share = chance * (1 << bits) - u
        words = []
        for _ in range(turn):
            words.append(int(share * (1 << 64)))
            share = share * (1 << 64) - words[-1]
        last = (share * (1 << 64) - Decimal("0.5")).to_integral_value(rounding="ROUND_CEILING")
        words.append(max(0, int(last)))
    return tuple(words)


def found_turning_point(
    size_of: Callable[[Callable[[int], int]], int], x: int, wanted: tuple[int, ...], turn: int
) -> bool:
    """Does a tied word go from x or more to less exactly at `wanted`? The last of its words is searched by halving."""

    def at_least(v: int) -> bool:
        return size_of(lambda i: wanted[i] if i < turn else v if i == turn else 1 << 63 if i == turn + 1 else 0) >= x

    low, high = 0, 1 << 64  # at_least(low - 1) or low = 0; not at_least(high) or high = 2^64
    while low < high:
        middle = (low + high) // 2
        if at_least(middle):
            low = middle + 1
        else:
            high = middle
    return low == wanted[turn]
