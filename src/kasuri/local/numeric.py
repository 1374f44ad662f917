"""Randomizers of numbers: a finite public grid in, a finite public grid out, every probability a whole number of
2^bits-ths. There is no floating-point output lattice to attack, and the debiasing constants are those of the
probabilities really used.

A number x in [low, high] is first rounded at random to one of the steps + 1 points g of a public grid (mean x), and
then row g of an integer matrix W is drawn from: P(output y | g) = W[g, y] / N, N = 2^bits, every row summing to N.
The worst ratio of two entries of one column is the loss, compared exactly with e^epsilon.

With v = (2 g - steps)/steps in [-1, 1], `values[y]` satisfies sum_y W[g, y] values[y] / N = v(g): exactly for
two_point, piecewise and hybrid, up to `bias` for laplace. Proof: docs/proofs/local_numeric.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, FormatError, KasuriError, NumericsError, PrivacyError, raise_faults
from kasuri.local.odds import BITS, demand, least, within
from kasuri.local.randomizer import (
    WIRE_VERSION,
    Reports,
    Rows,
    Word,
    bytes_for,
    fingerprint_of,
    fresh,
    little,
    number_of,
    trusted,
    words_of,
)
from kasuri.noise.rng import Source, Streams
from kasuri.noise.samplers import exp_minus
from kasuri.privacy import Guarantee, asked, decimal, exact

Outputs = NDArray[np.int64]
Bounds = tuple[object, object]

_MAX_STEPS = 1 << 10
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Numeric(ABC):
    """A randomizer of numbers in [low, high].

    Privacy: Neighbours: one person's number changes to any other in the bounds. Sensitivity: the worst ratio within a
    column of W, in exact integers. Guarantee: epsilon per fresh report. Proof: docs/proofs/local_numeric.md. Public:
    the bounds, the grid, the randomizer. Assumes: the device draws uniform words.
    """

    low: Fraction
    high: Fraction
    epsilon: Fraction
    steps: int
    bits: int = field(default=BITS, kw_only=True)
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        faults = []
        if not self.low < self.high:
            faults.append(f"{self.kind}: bounds must be two numbers low < high")
        if not 2 <= self.steps <= _MAX_STEPS or self.steps % 2:
            faults.append(f"{self.kind}: steps must be an even number from 2 to {_MAX_STEPS}")
        if not 1 <= self.bits <= BITS:
            faults.append(f"bits must be 1 to {BITS}")
        raise_faults(DomainError, faults)
        demand(self.ratio, self.epsilon, f"the {self.kind} randomizer")

    @property
    def words(self) -> int:
        return 1 << self.bits

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The worst ratio of two probabilities of the same output."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs."""

    @property
    @abstractmethod
    def channel(self) -> NDArray[np.float64]:
        """P(output | g): (steps + 1, outputs), for estimators."""

    @abstractmethod
    def _choose(self, g: int, word: Word) -> int: ...

    @abstractmethod
    def _draw(self, g: Outputs, streams: Streams, block: int) -> Outputs: ...

    @property
    @abstractmethod
    def values(self) -> tuple[Fraction, ...]:
        """Unbiased value of each output, on the scale where the bounds are -1 and 1."""

    @property
    @abstractmethod
    def squares(self) -> tuple[Fraction, ...] | None:
        """Unbiased value of the square of each output's source on the same scale; None where no such value exists."""

    @property
    @abstractmethod
    def bias(self) -> Fraction:
        """The largest |mean of values - v| over the grid, in exact arithmetic (0 where the randomizer is unbiased)."""

    @property
    def width(self) -> int:
        """Bytes of one report."""
        return bytes_for(self.outputs)

    def guarantee(self, *, reports: int = 1, person: str = "person") -> Guarantee:
        """The claim for a person who sends `reports` fresh reports."""
        return fresh(self.epsilon, reports, person, "docs/proofs/local_numeric.md")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, which every report of this randomizer carries."""
        return fingerprint_of(self.to_json())

    def report(self, x: float | Fraction, word: Word) -> int:
        """One output, as a device draws it: a word rounds x to the grid, a word chooses the output."""
        try:
            at = (Fraction(x) - self.low) * self.steps / (self.high - self.low)
        except (TypeError, ValueError, OverflowError, ZeroDivisionError):
            raise DomainError("the number is none") from None
        if not 0 <= at <= self.steps:
            raise DomainError("the number lies outside the bounds")
        g = math.floor(at)
        g += word() < math.floor((at - g) * self.words)
        return self._choose(g, word)

    def randomize(self, numbers: ArrayLike, *, source: Source | None = None) -> Reports:
        """Reports of many numbers: exact law, bulk speed."""
        x = np.asarray(numbers, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            at = (x - float(self.low)) * (self.steps / float(self.high - self.low))
        bad = ~((x >= float(self.low)) & (x <= float(self.high)))
        if x.ndim != 1 or bad.any():
            raise DomainError(
                f"{int(bad.sum())} of {x.size} numbers lie outside the bounds (or are none): clip them on the device"
            )
        at = np.clip(at, 0, self.steps)
        source = trusted(source)
        streams = Streams(source.release_key(), f"local.{self.kind}")
        out = np.empty(x.size, dtype=np.int64)
        for block, first in enumerate(range(0, x.size, _BLOCK)):
            part = at[first : first + _BLOCK]
            floor = np.floor(part)
            up = self._word(streams, "round", block, part.size) < np.floor((part - floor) * self.words)
            out[first : first + _BLOCK] = self._draw(floor.astype(np.int64) + up, streams, block)
        return Reports(little(out, self.width), self.fingerprint, source.secure)

    def _word(self, streams: Streams, purpose: str, block: int, size: int) -> Outputs:
        return words_of(streams, purpose, block, size).astype(np.int64) >> (BITS - self.bits)

    def pack(self, reports: Reports) -> Rows:
        """Reports as the rows of `width` bytes that are sent; those of a seed or of another randomizer are refused."""
        return reports.leave(self.fingerprint)

    def unpack(self, rows: Rows) -> Outputs:
        """Rows of bytes as outputs; refuses what this randomizer cannot send."""
        if rows.ndim != 2 or rows.shape[1] != self.width or (number_of(rows) >= self.outputs).any():
            raise FormatError(f"reports of {self.kind} are rows of {self.width} bytes below {self.outputs}")
        return number_of(rows)

    def debiased(self, outputs: Outputs) -> NDArray[np.float64]:
        """The unbiased number of each output, on the scale of the bounds (far outside them: it is noise)."""
        table = np.array([float(t) for t in self.values])
        return float(self.low) + float(self.high - self.low) * (1 + table[outputs]) / 2

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kasuri": "local numeric", "version": WIRE_VERSION, "kind": self.kind}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Fraction):
                value = decimal(value)
            elif isinstance(value, Numeric):
                value = value.to_json()
            data[f.name] = list(value) if isinstance(value, tuple) else value
        return data


@dataclass(frozen=True)
class Table(Numeric):
    """A randomizer given by its integer matrix W: (steps + 1, outputs), rows of sum 2^bits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weights < 0).any() or (self.weights.sum(axis=1) != self.words).any():
            raise PrivacyError(f"{self.kind}: every row of its probabilities must be whole numbers >= 0 of sum 2^bits")

    @abstractmethod
    def _row(self, g: int) -> list[int]: ...

    @cached_property
    def weights(self) -> Outputs:
        """W."""
        return np.array([self._row(g) for g in range(self.steps + 1)], dtype=np.int64)

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[1])

    @property
    def channel(self) -> NDArray[np.float64]:
        return self.weights.astype(np.float64) / self.words

    @cached_property
    def ratio(self) -> Fraction:
        least_, most = self.weights.min(axis=0), self.weights.max(axis=0)
        if (least_[most > 0] == 0).any():
            raise PrivacyError(f"{self.kind}: an output that some number can give and another cannot")
        pairs = zip(most[most > 0].tolist(), least_[most > 0].tolist(), strict=True)
        return max(Fraction(a, b) for a, b in pairs)

    @cached_property
    def bias(self) -> Fraction:
        worst = Fraction(0)
        for g in range(self.steps + 1):
            row = self.weights[g].tolist()
            mean = sum((Fraction(w) * t for w, t in zip(row, self.values, strict=True)), Fraction(0)) / self.words
            worst = max(worst, abs(mean - Fraction(2 * g - self.steps, self.steps)))
        return worst

    def _choose(self, g: int, word: Word) -> int:
        return bisect_right(self._edges[g].tolist(), word())

    @cached_property
    def _edges(self) -> Outputs:
        return np.cumsum(self.weights, axis=1)

    def _draw(self, g: Outputs, streams: Streams, block: int) -> Outputs:
        u = self._word(streams, "output", block, g.size)
        offsets = np.arange(self.steps + 1, dtype=np.int64) * self.words
        flat = (self._edges + offsets[:, None]).ravel()
        return np.searchsorted(flat, u + offsets[g], side="right") - g * self.outputs


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
        if self.steps * self.shift + self.window > 1 << 16:
            raise DomainError(f"{self.kind}: more than 65536 outputs; take fewer steps")
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
    try:
        low, high = (Fraction(str(bound)) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        raise DomainError("bounds must be two numbers (low, high), declared and not taken from data") from None
    return low, high


def two_point(
    bounds: Bounds,
    *,
    epsilon: object,
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
        raise PrivacyError("two_point: the words are too short for this epsilon and grid; take fewer steps")
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


def piecewise(bounds: Bounds, *, epsilon: object, steps: int = 64, shift: int = 4, bits: int = BITS) -> Piecewise:
    """The Piecewise mechanism: a window of e^(-eps/2) times the distance it slides, drawn e^eps times as often."""
    eps = asked(epsilon)
    window = _odd(steps * shift * math.exp(-float(eps) / 2))
    made: Piecewise = _window(Piecewise, bounds, eps, steps, shift, window, bits)
    return made


def square_wave(bounds: Bounds, *, epsilon: object, steps: int = 64, bits: int = BITS) -> SquareWave:
    """The square wave of half-width b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)), for histograms."""
    eps = asked(epsilon)
    e, grown = float(eps), math.exp(min(float(eps), 50.0))
    half = (e * grown - grown + 1) / (2 * grown * (grown - 1 - e)) if e > 1e-3 else 0.5
    made: SquareWave = _window(SquareWave, bounds, eps, steps, 1, _odd(2 * half * steps), bits)
    return made


def hybrid(bounds: Bounds, *, epsilon: object, steps: int = 64, shift: int = 4, bits: int = BITS) -> Hybrid:
    """Piecewise with probability 1 - e^(-eps/2), else two-point: best above epsilon 0.61 (below, take two_point)."""
    eps, N = asked(epsilon), 1 << bits
    mix = min(max(1, round(N * -math.expm1(-float(eps) / 2))), N - 1)
    wide = piecewise(bounds, epsilon=eps, steps=steps, shift=shift, bits=bits)
    narrow = two_point(bounds, epsilon=eps, steps=steps, bits=bits)
    return Hybrid(*_bounds(bounds), eps, steps, mix=mix, wide=wide, narrow=narrow, bits=bits)


def laplace(
    bounds: Bounds, *, epsilon: object, steps: int = 64, margin: int | None = None, bits: int = BITS
) -> Laplace:
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
    raise NumericsError("laplace: the words are too short for this epsilon, grid and margin")


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
    if not isinstance(value, str) or len(value) > 400 or not set(value) <= set("-0123456789./"):
        raise FormatError("fields low, high: exact decimals as text")
    return Fraction(value)


def from_json(data: Mapping[str, Any]) -> Numeric:
    """A randomizer of numbers from its JSON, checked again."""
    try:
        if data["kasuri"] != "local numeric" or data["version"] != WIRE_VERSION:
            raise FormatError(f"field version: this client reads numeric randomizers of version {WIRE_VERSION}")
        kind = KINDS[data["kind"]]
        given: dict[str, Any] = {}
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
