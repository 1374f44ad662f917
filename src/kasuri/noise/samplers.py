"""Exact noise on the integers, from words of a keystream. No floating-point number is involved.

A distribution is given by its survival function P(|X| >= x), x = 1, 2, ..., as integer intervals of any precision.
With U uniform on [0, 1), |X| = #{x >= 1 : U < P(|X| >= x)} has exactly that law, and a fair bit is its sign.
Of U the first 31 (or 32) bits u are drawn; with T_x = floor(2^31 P(|X| >= x)):

    u < T_x  implies  U < P(|X| >= x);     u > T_x  implies  U >= P(|X| >= x);

only u = T_x is undecided (the tail is u = 0). Then 64 further bits at a time refine U, and the intervals are
refined with them, until every comparison is decided. Proof: docs/proofs/noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import NumericsError
from kasuri.noise.rng import Stream, Words
from kasuri.noise.survival import Survival, exp_minus, gaussian_survival, laplace_survival

_WORD = 31
_ONE_DIGIT = 700  # largest Laplace scale sampled from one table
TWO_DIGITS = 1 << 24  # largest sampled from two; above, up to two further digits of this many bits
_DIGIT_BITS = 16
_MAX_SIGMA2 = 1 << 32


def _decide(survival: Survival, known: int, u: int, bits: int, more: Callable[[int], int]) -> int:
    """#{x >= 1 : U < P(|X| >= x)} for the U whose first `bits` bits are u and whose next bits `more(turn)` gives;
    it is known to be at least `known`."""
    turn = 0

    def below(x: int) -> bool:
        nonlocal u, bits, turn
        while True:
            low, high = survival(x, bits + 16)
            if (u + 1) << 16 <= low:
                return True
            if u << 16 >= high:
                return False
            u, bits, turn = (u << 64) | more(turn), bits + 64, turn + 1

    step = 1
    while below(known + step):
        step *= 2
    low, high = known + step // 2, known + step  # U < P(|X| >= low) (or low = known), not U < P(|X| >= high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Table:
    """Falling thresholds T_1 >= T_2 >= ... >= T_m, then 0, and a guide into them by the top bits of u."""

    thresholds: NDArray[np.uint32]
    guide: NDArray[np.uint32]
    shift: int

    @classmethod
    def of(cls, thresholds: list[int], bits: int) -> Table:
        from kasuri._kernels.noise import MANY

        array = np.array([*(t for t in thresholds if t), 0], dtype=np.int64)
        top = min(16, max(8, array.size.bit_length() + 2))
        edges = np.arange((1 << top) + 1, dtype=np.int64) << (bits - top)
        at_least = np.searchsorted(-array, -edges, side="right")  # number of thresholds >= the first u of a bucket
        above, inside = at_least[1:], at_least[:-1] - at_least[1:]
        guide = np.where(inside > 1, above + MANY, above)
        return cls(array.astype(np.uint32), guide.astype(np.uint32), bits - top)

    def above(self, u: int) -> int:
        """Number of thresholds above u."""
        return int(np.searchsorted(-self.thresholds.astype(np.int64), -u, side="left"))


def _floor_table(bounds: Callable[[int], list[tuple[int, int]]], bits: int) -> list[int]:
    """floor(2^bits P) for each interval of `bounds(w)` (scaled 2^w), doubling w until low and high agree."""
    w = 128
    while True:
        pairs = bounds(w)
        floors = [low >> (w - bits) for low, _ in pairs]
        if all(high >> (w - bits) == floor for (_, high), floor in zip(pairs, floors, strict=True)):
            return floors
        w *= 2


def _powers(base: tuple[int, int], count: int, w: int) -> tuple[list[int], list[int]]:
    """Intervals of base^1 .. base^count, scaled 2^w."""
    low, high = base
    lows, highs = [low], [high]
    for _ in range(count - 1):
        low, high = low * base[0] >> w, -(-high * base[1] >> w)
        lows.append(low)
        highs.append(high)
    return lows, highs


@dataclass(frozen=True)
class Sampler:
    """Draws one distribution exactly: from one table, from two digits, or (no table) by the slow rule alone."""

    survival: Survival
    one: Table | None = None
    base: int = 0
    q: Table | None = None
    zero: Table | None = None
    rest: Table | None = None
    digits: tuple[Survival, Survival, Survival] | None = None

    def draw(self, stream: Stream, size: int) -> Int:
        """The next `size` samples of `stream`; the cut into calls changes nothing."""
        return self.draw_into(stream, np.empty(size, dtype=np.int64))

    def draw_into(self, stream: Stream, out: Int) -> Int:
        """`draw` into an array that exists: fresh pages would cost more than the noise."""
        size = out.size
        words: Words = np.empty(min(size, 1 << 14), dtype=np.uint32 if self.digits is None else np.uint64)
        for start in range(0, size, 1 << 14):
            part = out[start : start + (1 << 14)]
            self._some(stream, words[: part.size], part)
        return out

    def _some(self, stream: Stream, words: Words, out: Int) -> None:
        first = stream.drawn
        stream.fill(words)
        self.of_words(words, out, lambda i: partial(stream.tie, first + i))

    def of_words(self, words: Words, out: Int, further: Callable[[int], Callable[[int], int]]) -> None:
        """One sample per word; further(i)(turn) are 64 more bits for word i, the turn-th time it asks."""
        from kasuri._kernels.noise import one_digit, two_digits

        ties = np.empty(64, dtype=np.int64)
        if self.one is not None:
            found = one_digit(words, self.one.thresholds, self.one.guide, self.one.shift, out, ties)
        elif self.q is not None and self.zero is not None and self.rest is not None:
            found = two_digits(
                words, self.base, self.q.thresholds, self.q.guide, self.q.shift,
                self.zero.thresholds, self.zero.guide, self.zero.shift,
                self.rest.thresholds, self.rest.guide, self.rest.shift, out, ties,
            )  # fmt: skip
        else:
            ties, found = np.arange(out.size), out.size
        if found > ties.size:
            raise NumericsError("more undecided words than can be: the keystream is not random")
        for i in ties[:found].tolist():
            word = int(words[i])
            size = self.decide(word, further(i))
            if size >= 1 << 62:
                raise NumericsError("a noise value beyond 2^62; choose a larger epsilon")
            out[i] = -size if word & 1 else size

    def decide(self, word: int, more: Callable[[int], int]) -> int:
        """|X| for one word by the slow rule: the meaning of every table look-up."""
        low = (word >> 1) & 0x7FFFFFFF
        if self.digits is None:
            return _decide(self.survival, self.one.above(low) if self.one else 0, low, _WORD, more)
        of_q, of_zero, of_rest = self.digits
        assert self.q is not None and self.zero is not None and self.rest is not None
        q = _decide(of_q, self.q.above(word >> 32), word >> 32, 32, lambda turn: more(2 * turn))
        law, table = (of_rest, self.rest) if q else (of_zero, self.zero)
        return self.base * q + _decide(law, table.above(low), low, _WORD, lambda turn: more(2 * turn + 1))


@dataclass(frozen=True)
class WideSampler(Sampler):
    """|X| = wide H + L, 0 <= L < wide: `high` draws H and the sign from one word; where H > 0 the digits of L (each the
    factor it counts with, and its law) come from the halves of a second word, where H = 0, hardly ever, L comes from
    that word by the slow rule."""

    high: Sampler | None = None
    wide: int = 1
    low: tuple[tuple[int, Sampler], ...] = ()
    when_zero: Survival | None = None

    def draw_into(self, stream: Stream, out: Int) -> Int:
        for start in range(0, out.size, 1 << 13):
            part = out[start : start + (1 << 13)]
            first = stream.drawn
            words = np.empty(2 * part.size, dtype=np.uint64)
            stream.fill(words)
            self._pairs(words[::2].copy(), words[1::2], part, stream, first)
        return out

    def _pairs(self, words: Words, further: Words, out: Int, stream: Stream, first: int) -> None:
        assert self.high is not None and self.when_zero is not None
        self.high.of_words(words, out, lambda i: partial(stream.tie, first + 2 * i))
        np.abs(out, out=out)
        none = np.flatnonzero(out == 0)
        if out.size and int(out.max()) >= (1 << 62) // self.wide:
            raise NumericsError("a noise value beyond 2^62; choose a larger epsilon")
        out *= self.wide
        digit = np.empty(out.size, dtype=np.int64)
        for j, (factor, law) in enumerate(self.low):
            half = ((further >> np.uint64(32 * j)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            law.of_words(half, digit, lambda i, j=j: lambda turn: stream.tie(first + 2 * i + 1, 2 * turn + j))  # type: ignore[misc]
            out += factor * np.abs(digit)
        for i in none.tolist():
            out[i] = _decide(self.when_zero, 0, int(further[i]), 64, partial(stream.tie, first + 2 * i + 1))
        np.negative(out, out=out, where=(words & np.uint64(1)).astype(bool))


def _wide(
    scale: Fraction, survival: Survival, first: Callable[[int], tuple[int, int]], bits: int, digit_bits: int
) -> WideSampler:
    """What `_tailed` draws, as H of scale / 2^bits and L of `bits` bits, in digits of at most `digit_bits`: with
    a = exp(-1/scale) and B = 2^bits, P(H >= q) = c a^(Bq), q >= 1, and L given H as R given Q in
    `_two_digits`. a^(fd + l) = (a^f)^d a^l again: the digits of L are independent where H > 0."""

    def power(x: int, w: int) -> tuple[int, int]:
        return exp_minus(x / scale, w)

    def digit(factor: int, radix: int) -> Sampler:
        """P(D >= d) = (a^(fd) - a^(fr)) / (1 - a^(fr))."""

        def survival(d: int, w: int) -> tuple[int, int]:
            if d >= radix:
                return 0, 0
            v = w + 128
            least, most = _share(power(factor * d, v), power(factor * radix, v), v)
            return least >> 128, -(-most >> 128)

        def bounds(w: int) -> list[tuple[int, int]]:
            pairs = list(zip(*_powers(power(factor, w), radix, w), strict=True))
            return [_share(pair, pairs[-1], w) for pair in pairs[:-1]]

        return Sampler(survival, one=Table.of(_floor_table(bounds, _WORD), _WORD))

    def when_zero(x: int, w: int) -> tuple[int, int]:
        if x >= wide:
            return 0, 0
        v = w + 128
        c = first(v)
        least, most = _share(_times(c, power(x, v), v), _times(c, power(wide, v), v), v)
        return least >> 128, -(-most >> 128)

    wide, few = 1 << bits, min(bits, digit_bits)
    low = [(1, digit(1, 1 << few))]
    if bits > few:
        low.append((1 << few, digit(1 << few, 1 << (bits - few))))
    high = _two_digits(scale / wide, lambda x, w: survival(wide * x, w), lambda x, w: power(wide * x, w), first)
    return WideSampler(survival, high=high, wide=wide, low=tuple(low), when_zero=when_zero)


def _twice_over(scale: Fraction, w: int) -> tuple[int, int]:
    """c = 2 / (1 + a) with a = exp(-1/scale), scaled 2^w."""
    one = 1 << w
    a = exp_minus(1 / scale, w)
    return (one << (w + 1)) // (one + a[1]), -(-(one << (w + 1)) // (one + a[0]))


def _times(p: tuple[int, int], q: tuple[int, int], w: int) -> tuple[int, int]:
    return p[0] * q[0] >> w, -(-p[1] * q[1] >> w)


def _share(top: tuple[int, int], low: tuple[int, int], w: int) -> tuple[int, int]:
    """(top - low) / (1 - low) for intervals 0 <= low <= top <= 1; rises with top, falls with low."""
    one = 1 << w
    least = ((max(top[0] - low[1], 0)) << w) // (one - low[1])
    return least, -(-((top[1] - low[0]) << w) // (one - low[0]))


@lru_cache(maxsize=64)
def discrete_laplace(scale: Fraction) -> Sampler:
    """The sampler of P(X = x) proportional to exp(-|x| / scale), any rational scale > 0.

    Cost: about 2 ns a sample up to scale 700, 4 ns up to 2^24, 30-60 ns up to 2^56 (1 ms above, where no recipe
    goes); the first call builds the tables.
    """
    if scale <= 0:
        raise NumericsError("the scale of noise must be greater than 0")
    return _tailed(scale, laplace_survival(scale), partial(_twice_over, scale))


@lru_cache(maxsize=64)
def widening(scale: Fraction, wider: Fraction) -> Sampler:
    """The sampler of the noise that makes discrete Laplace noise of `scale` into that of `wider`, independent of it:
    0, or discrete Laplace of `wider` (docs/proofs/noise.md). Cost: as `discrete_laplace`."""
    if not 0 < scale < wider:
        raise NumericsError("noise can be made wider, never narrower")

    first = lru_cache(maxsize=8)(partial(widening_tail, scale, wider))

    def survival(x: int, w: int) -> tuple[int, int]:
        v = w + 8
        low, high = _times(first(v), exp_minus(x / wider, v), v)
        return low >> 8, -(-high >> 8)

    return _tailed(wider, survival, first)


def widening_tail(scale: Fraction, wider: Fraction, w: int) -> tuple[int, int]:
    """c of P(|M| >= x) = c a^x, x >= 1, scaled 2^w: with a = exp(-1/wider) and b = exp(-1/scale)
    c = 2 (1 - b/a) (1 - ab) / ((1 - b)^2 (1 + a))."""
    v = w + 4 * math.ceil(wider).bit_length() + 64
    one = 1 << v
    apart, both = exp_minus(1 / scale - 1 / wider, v), exp_minus(1 / scale + 1 / wider, v)
    a, b = exp_minus(1 / wider, v), exp_minus(1 / scale, v)
    least = (2 * (one - apart[1]) * (one - both[1]) << 2 * v) // ((one - b[0]) ** 2 * (one + a[1]))
    most = -(-(2 * (one - apart[0]) * (one - both[0]) << 2 * v) // ((one - b[1]) ** 2 * (one + a[0])))
    return least >> (v - w), -(-most >> (v - w))


def _tailed(scale: Fraction, survival: Survival, first: Callable[[int], tuple[int, int]]) -> Sampler:
    """P(|X| >= x) = c a^x, x >= 1, with a = exp(-1/scale) and c = first(w) / 2^w."""
    if scale > TWO_DIGITS << (2 * _DIGIT_BITS):
        return Sampler(survival)
    if scale > TWO_DIGITS:
        return _wide(scale, survival, first, (math.ceil(scale / TWO_DIGITS) - 1).bit_length(), _DIGIT_BITS)
    if scale <= _ONE_DIGIT:
        # a^x < 2^-32 from here on, so every later threshold is 0
        count = math.floor(scale * 23) + 2

        def bounds(w: int) -> list[tuple[int, int]]:
            c, (lows, highs) = first(w), _powers(exp_minus(1 / scale, w), count, w)
            return [_times(c, pair, w) for pair in zip(lows, highs, strict=True)]

        return Sampler(survival, one=Table.of(_floor_table(bounds, _WORD), _WORD))

    return _two_digits(scale, survival, lambda x, w: exp_minus(Fraction(x) / scale, w), first)


Power = Callable[[int, int], tuple[int, int]]
"""(x, w) -> integers (low, high) with low <= 2^w a^x <= high."""


def _two_digits(scale: Fraction, survival: Survival, power: Power, first: Callable[[int], tuple[int, int]]) -> Sampler:
    """P(|X| >= x) = c a^x, x >= 1, with a = exp(-1/scale) nearly (`power` says exactly) and c = first(w) / 2^w:
    |X| = B Q + R with a^(Bq + r) = (a^B)^q a^r, so P(Q >= q) = c a^(Bq) and
    P(R >= r | Q > 0) = (a^r - a^B) / (1 - a^B),   P(R >= r | Q = 0) = (c a^r - c a^B) / (1 - c a^B)."""
    # tables of about equal length, but Q = 0 rare (about 1 in 16): its law of R is a branch
    base = 1 << min(math.isqrt(math.ceil(scale * 24)).bit_length(), (math.floor(scale) >> 4).bit_length() - 1)
    count = math.floor(scale * 24 / base) + 2

    def of_q(x: int, w: int) -> tuple[int, int]:
        v = w + 32
        low, high = _times(first(v), power(base * x, v), v)
        return low >> 32, -(-high >> 32)

    def of_r(zero: bool) -> Survival:
        def survival_r(r: int, w: int) -> tuple[int, int]:
            if r >= base:
                return 0, 0
            v = w + 64
            top, low = power(r, v), power(base, v)
            if zero:
                c = first(v)
                top, low = _times(c, top, v), _times(c, low, v)
            least, most = _share(top, low, v)
            return least >> 64, -(-most >> 64)

        return survival_r

    def q_bounds(w: int) -> list[tuple[int, int]]:
        c = first(w)
        lows, highs = _powers(power(base, w), count, w)
        return [_times(c, pair, w) for pair in zip(lows, highs, strict=True)]

    def r_bounds(zero: bool) -> Callable[[int], list[tuple[int, int]]]:
        def bounds(w: int) -> list[tuple[int, int]]:
            a, c = power(1, w), first(w)
            lows, highs = _powers(a, base, w)
            pairs = list(zip(lows, highs, strict=True))
            if zero:
                pairs = [_times(c, pair, w) for pair in pairs]
            return [_share(pair, pairs[-1], w) for pair in pairs[:-1]]

        return bounds

    return Sampler(
        survival,
        base=base,
        q=Table.of(_floor_table(q_bounds, 32), 32),
        zero=Table.of(_floor_table(r_bounds(True), _WORD), _WORD),
        rest=Table.of(_floor_table(r_bounds(False), _WORD), _WORD),
        digits=(of_q, of_r(True), of_r(False)),
    )


@lru_cache(maxsize=16)
def runs_below(scale: Fraction, threshold: int, most: int) -> Sampler:
    """|X| = how many of the next values of discrete Laplace noise stay below `threshold` >= 1 before one does not, cut
    at `most`: P(|X| >= x) = q^x with q = 1 - a^threshold / (1 + a), a = exp(-1/scale), for 1 <= x <= most."""

    def first_power(v: int) -> tuple[int, int]:
        one = 1 << v
        (low, high), (a_low, a_high) = exp_minus(threshold / scale, v), exp_minus(1 / scale, v)
        return one + (-(high << v) // (one + a_low)), one - (low << v) // (one + a_high)

    first = lru_cache(maxsize=16)(first_power)

    def power(x: int, w: int) -> tuple[int, int]:
        v = w + x.bit_length() + 16
        low, high = first(v)
        out_low = out_high = 1 << v
        for bit in bin(x)[2:]:
            out_low, out_high = out_low * out_low >> v, -(-out_high * out_high >> v)
            if bit == "1":
                out_low, out_high = out_low * low >> v, -(-out_high * high >> v)
        return out_low >> (v - w), -(-out_high >> (v - w))

    def survival(x: int, w: int) -> tuple[int, int]:
        return (0, 0) if x > most else power(x, w)

    passing = passes(scale, threshold)
    mean = Fraction(1) / Fraction(passing) if passing > 2.0**-60 else Fraction(1 << 60)
    if mean > TWO_DIGITS or most < 64 * mean:  # the tables know no cut
        return Sampler(survival)
    if mean <= _ONE_DIGIT:
        count = math.floor(mean * 23) + 2

        def bounds(w: int) -> list[tuple[int, int]]:
            return list(zip(*_powers(power(1, w), count, w), strict=True))

        return Sampler(survival, one=Table.of(_floor_table(bounds, _WORD), _WORD))
    return _two_digits(mean, survival, power, lambda w: (1 << w, 1 << w))


def passes(scale: Fraction, threshold: int) -> float:
    """P(N >= threshold) of discrete Laplace noise, threshold >= 1, as a float: for planning, it decides nothing."""
    return math.exp(-threshold / scale) / (1 + math.exp(-1 / scale))


@lru_cache(maxsize=16)
def discrete_gaussian(sigma2: Fraction) -> Sampler:
    """The sampler of P(X = x) proportional to exp(-x^2 / (2 sigma2)), any rational sigma2 up to 2^32."""
    if not 0 < sigma2 <= _MAX_SIGMA2:
        raise NumericsError("the variance parameter of discrete Gaussian noise must lie in (0, 2^32]")
    survival = gaussian_survival(sigma2)
    count = math.isqrt(math.ceil(sigma2 * 46)) + 3  # exp(-x^2/(2 sigma2)) < 2^-33 from here on

    def bounds(w: int) -> list[tuple[int, int]]:
        return [survival(x, w) for x in range(1, count + 1)]

    return Sampler(survival, one=Table.of(_floor_table(bounds, _WORD), _WORD))


def laplace_variance(scale: Fraction) -> float:
    """Variance of one discrete Laplace value: 2a/(1-a)^2 with a = exp(-1/scale)."""
    if scale * 700 < 1:  # below what floating point can tell from 0
        return 0.0
    return 1 / (2 * math.sinh(0.5 / scale) ** 2)


def float_laplace(scale: float, stream: Stream, size: int) -> NDArray[np.float64]:
    """Floating-point Laplace noise, for recipes that reproduce papers: its guarantee assumes idealised numerics."""
    words = np.empty(size, dtype=np.uint64)
    stream.fill(words)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
    return -scale * sign * np.log(uniform)
