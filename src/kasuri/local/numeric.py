"""Randomizers of numbers: a finite public grid in, a finite public grid out, every probability a whole number of
2^bits-ths. There is no floating-point output lattice to attack, and the debiasing constants are those of the
probabilities really used. What they share is in `local.grid`.

With v = (2 g - steps)/steps in [-1, 1], `values[y]` satisfies sum_y W[g, y] values[y] / N = v(g): exactly for
two_point, piecewise and hybrid, up to `bias` for laplace. Proof: docs/proofs/local_numeric.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, FormatError, KasuriError, NumericsError, PrivacyError
from kasuri.local.grid import Numeric, Outputs, Table
from kasuri.local.odds import BITS, least, within
from kasuri.local.randomizer import WIRE_VERSION, Word
from kasuri.noise.rng import Streams
from kasuri.noise.survival import exp_minus
from kasuri.privacy import Exact, asked, exact
from kasuri.schema.axis import rational

Bounds = tuple[object, object]
_MAX_ENTRIES = 1 << 24
"""Most entries of W: a description is a few bytes, and what it asks for must fit a device."""


@dataclass(frozen=True)
class TwoPoint(Table):
    """Two outputs: P(1 | g) = 1/2 + v slope steps / N. [Duchi2018; Nguyen2016; Kii2022, Alg. 1 and 3]"""

    slope: int = field(kw_only=True)
    kind: ClassVar[str] = "two_point"

    def _row(self, g: int) -> list[int]:
        up = self.words // 2 + (2 * g - self.steps) * self.slope
        return [self.words - up, up]

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        most = Fraction(self.words, 2 * self.slope * self.steps)
        return -most, most

    @property
    def squares(self) -> None:
        return None  # the square of either output is the same constant: one report tells nothing of x^2


@dataclass(frozen=True)
class Window(Table):
    """`inside` words for each output of a window that slides with g, `outside` for every other, and the spare words
    of N, fewer than the window is wide, for the middle output whatever g is: piecewise and square wave."""

    shift: int = field(kw_only=True)
    """Outputs the window moves for one step of the grid."""
    window: int = field(kw_only=True)
    inside: int = field(kw_only=True)
    outside: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.shift < 1 or self.window < 1 or self.window % 2 == 0 or min(self.inside, self.outside) < 1:
            raise DomainError(f"{self.kind}: shift, inside, outside at least 1 and an odd window")
        total = self.steps * self.shift + self.window
        if total > 1 << 16 or (self.steps + 1) * total > _MAX_ENTRIES:
            raise DomainError(f"{self.kind}: more than 65536 outputs, or 2^24 probabilities; take fewer steps")
        super().__post_init__()

    def _row(self, g: int) -> list[int]:
        total = self.steps * self.shift + self.window
        row = [self.outside] * total
        first = g * self.shift
        row[first : first + self.window] = [self.inside] * self.window
        row[total // 2] += self.words - sum(row)
        return row

    @property
    def _middle(self) -> int:
        return (self.steps * self.shift + self.window) // 2

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        # E[y - middle | g] = (inside - outside) window (g - steps/2) shift / N
        gain = Fraction((self.inside - self.outside) * self.window * self.steps * self.shift, 2 * self.words)
        return tuple(Fraction(y - self._middle) / gain for y in range(self.outputs))

    @cached_property
    def squares(self) -> tuple[Fraction, ...]:
        # E[(y - middle)^2 | g] = E[... | centre] + (inside - outside) window ((g - steps/2) shift)^2 / N
        gain = Fraction((self.inside - self.outside) * self.window * (self.steps * self.shift) ** 2, 4 * self.words)
        spread = [(y - self._middle) ** 2 for y in range(self.outputs)]
        centre = self.weights[self.steps // 2].tolist()
        base = Fraction(sum(w * s for w, s in zip(centre, spread, strict=True)), self.words)
        return tuple((Fraction(s) - base) / gain for s in spread)


@dataclass(frozen=True)
class Piecewise(Window):
    """The Piecewise mechanism on grids. [Wang2019, Alg. 2; Kii2022, Alg. 2]"""

    kind: ClassVar[str] = "piecewise"


@dataclass(frozen=True)
class SquareWave(Window):
    """The square wave, made for histograms. [Li2020]"""

    kind: ClassVar[str] = "square_wave"


@dataclass(frozen=True)
class Laplace(Table):
    """Discrete Laplace noise of `decay` words by distance, cut at `margin` steps outside the bounds: what would fall
    beyond goes to the edge. decay[j] words for a shift by +j and by -j, the last one for all larger shifts."""

    margin: int = field(kw_only=True)
    decay: tuple[int, ...] = field(kw_only=True)
    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        if len(self.decay) != self.steps + self.margin + 1 or self.margin < 1:
            raise DomainError("laplace: one entry of decay for every distance up to steps + margin")
        super().__post_init__()

    def _row(self, g: int) -> list[int]:
        last = self.steps + 2 * self.margin
        at = g + self.margin
        tails = self._tails
        inner = [self.decay[abs(y - at)] for y in range(1, last)]
        return [tails[at], *inner, tails[last - at]]

    @cached_property
    def _tails(self) -> list[int]:
        """[j]: words of all shifts of j or more in one direction."""
        return np.cumsum(np.array(self.decay, dtype=np.int64)[::-1])[::-1].tolist()

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        # the law forgets where it was cut, so one mean overshoot serves both edges; it is set by the middle's symmetry
        # and the outermost grid point, from the integers themselves
        raw = [Fraction(2 * (y - self.margin) - self.steps, self.steps) for y in range(self.outputs)]
        top = self.weights[self.steps].tolist()
        mean = sum((Fraction(w) * t for w, t in zip(top, raw, strict=True)), Fraction(0)) / self.words
        over = (1 - mean) * self.words / Fraction(top[-1] - top[0])
        raw[0] -= over
        raw[-1] += over
        return tuple(raw)

    @property
    def squares(self) -> None:
        return None  # cutting bends the square; take piecewise where a variance is wanted


@dataclass(frozen=True)
class Hybrid(Numeric):
    """Piecewise with probability mix/N, else two-point. [Wang2019, sec. 3.3]"""

    mix: int = field(kw_only=True)
    wide: Piecewise = field(kw_only=True)
    narrow: TwoPoint = field(kw_only=True)
    kind: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        if not isinstance(self.wide, Piecewise) or not isinstance(self.narrow, TwoPoint):
            raise PrivacyError("hybrid: its parts are piecewise and two_point")
        same = [(part.low, part.high, part.epsilon, part.steps, part.bits) for part in (self.wide, self.narrow, self)]
        if len(set(same)) != 1 or not 0 < self.mix < self.words:
            raise PrivacyError("hybrid: two parts of the same bounds, epsilon, steps and bits, and 0 < mix < 2^bits")
        super().__post_init__()

    @property
    def outputs(self) -> int:
        return self.wide.outputs + 2

    @property
    def ratio(self) -> Fraction:
        return max(self.wide.ratio, self.narrow.ratio)  # the coin does not depend on the number

    @property
    def bias(self) -> Fraction:
        return max(self.wide.bias, self.narrow.bias)

    @property
    def channel(self) -> NDArray[np.float64]:
        share = self.mix / self.words
        return np.hstack((share * self.wide.channel, (1 - share) * self.narrow.channel))

    def _choose(self, g: int, word: Word) -> int:
        if word() < self.mix:
            return self.wide._choose(g, word)
        return self.wide.outputs + self.narrow._choose(g, word)

    def _draw(self, g: Outputs, streams: Streams, block: int) -> Outputs:
        wide = self._word(streams, "coin", block, g.size) < self.mix
        out = np.empty(g.size, dtype=np.int64)
        out[wide] = self.wide._draw(g, streams, block)[wide]
        out[~wide] = self.wide.outputs + self.narrow._draw(g, streams, block)[~wide]
        return out

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        return self.wide.values + self.narrow.values

    @cached_property
    def squares(self) -> tuple[Fraction, ...]:
        scale = Fraction(self.words, self.mix)
        return (*(scale * s for s in self.wide.squares), Fraction(0), Fraction(0))


def _bounds(bounds: Bounds) -> tuple[Fraction, Fraction]:
    found = [rational(bound) for bound in bounds] if isinstance(bounds, Iterable) else []
    if len(found) != 2 or found[0] is None or found[1] is None:
        raise DomainError("bounds must be two numbers (low, high), declared and not taken from data; at most 60 digits")
    return found[0], found[1]


def two_point(
    bounds: Bounds,
    *,
    epsilon: Exact,
    steps: int = 64,
    ab: tuple[object, object] | None = None,
    bits: int = BITS,
) -> TwoPoint:
    """Two-point randomizer: the steepest slope of the word size that keeps epsilon, or the (a, b) of [Kii2022, Alg. 3].

    Only b/a matters there: P(+ | v) = (1 + v a/b)/2 loses ln((b + a)/(b - a)); a = b would be no privacy at all.
    """
    low, high, eps, N = *_bounds(bounds), asked(epsilon), 1 << bits

    def ratio(slope: int) -> Fraction:
        return Fraction(N // 2 + steps * slope, N // 2 - steps * slope)

    if ab is None:
        most = (N // 2 - 1) // steps
        slope = most - least(0, most - 1, lambda k: within(ratio(most - k), eps))
    else:
        a, b = exact(ab[0], "a"), exact(ab[1], "b")
        if a >= b:
            raise PrivacyError("two_point: a must be less than b; with a = b every report is the truth")
        slope = math.floor(a / b * N / (2 * steps))
    if slope < 1:
        raise PrivacyError("two_point: random numbers have too few bits for this epsilon and grid; take fewer steps")
    return TwoPoint(low, high, eps, steps, slope=slope, bits=bits)


def _odd(width: float) -> int:
    return max(1, 2 * round((width - 1) / 2) + 1)


def _window(kind: type[Window], bounds: Bounds, eps: Fraction, steps: int, shift: int, window: int, bits: int) -> Any:
    N, total = 1 << bits, steps * shift + window

    def inside(outside: int) -> int:
        return (N - (total - window) * outside) // window

    outside = least(1, N // total, lambda k: within(Fraction(inside(k), k), eps))
    return kind(
        *_bounds(bounds), eps, steps, shift=shift, window=window, inside=inside(outside), outside=outside, bits=bits
    )


def piecewise(bounds: Bounds, *, epsilon: Exact, steps: int = 64, shift: int = 4, bits: int = BITS) -> Piecewise:
    """The Piecewise mechanism: a window of e^(-eps/2) times the distance it slides, drawn e^eps times as often."""
    eps = asked(epsilon)
    window = _odd(steps * shift * math.exp(-float(eps) / 2))
    made: Piecewise = _window(Piecewise, bounds, eps, steps, shift, window, bits)
    return made


def square_wave(bounds: Bounds, *, epsilon: Exact, steps: int = 64, bits: int = BITS) -> SquareWave:
    """The square wave of half-width b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)), for histograms."""
    eps = asked(epsilon)
    e, grown = float(eps), math.exp(min(float(eps), 50.0))
    half = (e * grown - grown + 1) / (2 * grown * (grown - 1 - e)) if e > 1e-3 else 0.5
    made: SquareWave = _window(SquareWave, bounds, eps, steps, 1, _odd(2 * half * steps), bits)
    return made


ALONE = Fraction("0.61")
"""Up to this epsilon [Wang2019] mixes no piecewise report into the hybrid: two-point alone has the smaller variance."""


def hybrid(bounds: Bounds, *, epsilon: Exact, steps: int = 64, shift: int = 4, bits: int = BITS) -> Hybrid | TwoPoint:
    """Piecewise with probability 1 - e^(-eps/2), else two-point; up to epsilon 0.61 two-point alone, which tells
    nothing of the variance."""
    eps, N = asked(epsilon), 1 << bits
    if eps <= ALONE:
        return two_point(bounds, epsilon=eps, steps=steps, bits=bits)
    mix = min(max(1, round(N * -math.expm1(-float(eps) / 2))), N - 1)
    wide = piecewise(bounds, epsilon=eps, steps=steps, shift=shift, bits=bits)
    narrow = two_point(bounds, epsilon=eps, steps=steps, bits=bits)
    return Hybrid(*_bounds(bounds), eps, steps, mix=mix, wide=wide, narrow=narrow, bits=bits)


def laplace(bounds: Bounds, *, epsilon: Exact, steps: int = 64, margin: int | None = None, bits: int = BITS) -> Laplace:
    """Discrete Laplace noise of scale steps/epsilon on the grid, cut `margin` steps outside the bounds."""
    eps, N = asked(epsilon), 1 << bits
    margin = margin if margin is not None else math.ceil(steps * min(4.0, 6 / float(eps)))
    for tries in range(24, 3, -1):  # rounding to whole words costs a little: lower the rate until the claim holds
        rate = eps * (1 - Fraction(1, 1 << tries)) / steps
        decay = _decay(rate, steps + margin, N)
        try:
            return Laplace(*_bounds(bounds), eps, steps, margin=margin, decay=decay, bits=bits)
        except PrivacyError:
            continue
    raise NumericsError("laplace: the random numbers have too few bits for this epsilon, grid and margin")


def _decay(rate: Fraction, far: int, N: int) -> tuple[int, ...]:
    """Words by distance 0..far of P(shift = j) = (1 - a)/(1 + a) a^j, a = e^-rate; the last holds the whole tail."""
    w = 96
    a = Fraction(exp_minus(rate, w)[0], 1 << w)
    powers = [Fraction(exp_minus(j * rate, w)[0], 1 << w) for j in range(far + 1)]
    words = [math.floor(N * (1 - a) / (1 + a) * power) for power in powers[:far]]
    words.append(math.floor(N / (1 + a) * powers[far]))
    words[0] = N - 2 * sum(words[1:])
    return tuple(words)


KINDS: dict[str, type[Numeric]] = {
    "hybrid": Hybrid,
    "laplace": Laplace,
    "piecewise": Piecewise,
    "square_wave": SquareWave,
    "two_point": TwoPoint,
}
MAKERS: dict[str, Callable[..., Numeric]] = {
    "hybrid": hybrid,
    "laplace": laplace,
    "piecewise": piecewise,
    "square_wave": square_wave,
    "two_point": two_point,
}
"""Every randomizer of numbers by name."""


def _bound(value: object) -> Fraction:
    """A bound from its exact text."""
    found = rational(value) if isinstance(value, str) and set(value) <= set("-0123456789./") else None
    if found is None:
        raise FormatError("fields low, high: exact decimals as text")
    return found


def from_json(data: Mapping[str, Any]) -> Numeric:
    """A randomizer of numbers from its JSON, checked again."""
    try:
        if data["kasuri"] != "local numeric" or data["version"] != WIRE_VERSION:
            raise FormatError(f"field version: this client reads numeric randomizers of version {WIRE_VERSION}")
        kind = KINDS[data["kind"]]
        given: dict[str, Any] = {}
        unknown = set(data) - {f.name for f in fields(kind)} - {"kasuri", "version", "kind"}
        if unknown:
            raise FormatError("fields of the randomizer that this version does not know")
        for f in fields(kind):
            value = data[f.name]
            if f.name == "epsilon":
                value = exact(value)
            elif f.name in ("low", "high"):
                value = _bound(value)
            elif f.name in ("wide", "narrow"):
                value = from_json(value)
            elif f.name == "decay":
                value = tuple(value)
                if any(type(words) is not int for words in value):
                    raise FormatError("field decay of the randomizer")
            elif type(value) is not int:
                raise FormatError(f"field {f.name} of the randomizer")
            given[f.name] = value
        return kind(**given)
    except KasuriError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as fault:
        raise FormatError(f"not a randomizer's description: {type(fault).__name__}") from None
