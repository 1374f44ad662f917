"""Projections of a noisy integer table on {x >= 0, sum x = total} and its relatives [Matsumoto2025], without sorting.

Pure post-processing: noisy whole numbers and a total in, whole numbers with exactly that total out. Noise on the
integers makes equal values many, and every rule here depends on a cell's value alone: one tally of the values gives
the exact rational threshold of any gamma, and the rounding of every cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Array, Float, Int
from kasuri.errors import PrivacyError

_BINS = 1 << 22
"""Widest range of values that is tallied bin by bin; wider ones are sorted."""
GAMMAS = (Fraction(1), *(Fraction(10000 - k, 10000) for k in
          (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 75, 100, 125, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600,
           700, 800, 900, 1000, 1200, 1400, 1700, 2000, 2500, 3000, 4000, 5000, 6000, 7000, 8000, 9000)))  # fmt: skip
"""Candidates of gamma="auto"."""
THRESHOLDS = tuple(Fraction(k, 4) for k in (0, *range(1, 20), *range(20, 40, 2), *range(40, 65, 4)))
"""Candidates of strength="auto": half of lambda, in units of the noise scale."""


@dataclass(frozen=True, eq=False)
class Tally:
    """How often each value occurs: `values` rise, one by one from the least (`dense`) or only those that occur."""

    values: Int
    counts: Int
    dense: bool

    @classmethod
    def of(cls, noisy: Int) -> Tally:
        """Cost: O(n + range), or O(n log n) for a range above 2^22 and 8 n."""
        from kasuri._kernels.simplex import extent, histogram

        if noisy.size == 0:
            return cls(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), True)
        low, high = extent(noisy)
        if high - low < max(min(_BINS, 8 * noisy.size), 1 << 10):
            counts = np.zeros(high - low + 1, dtype=np.int64)
            histogram(noisy, low, counts)
            occur = np.flatnonzero(counts)
            if 4 * occur.size >= counts.size:
                return cls(np.arange(low, high + 1), counts, True)
            return cls(occur + low, counts[occur], False)
        values, counts = np.unique(noisy, return_counts=True)
        return cls(values, counts.astype(np.int64), False)

    def above(self, least: int) -> Tally:
        """The same without values below `least`."""
        at = int(np.searchsorted(self.values, least))
        return Tally(self.values[at:], self.counts[at:], self.dense)

    def places(self, noisy: Int) -> Int:
        """The place in `values` of each number (which must occur)."""
        return noisy - self.values[0] if self.dense else np.searchsorted(self.values, noisy)

    @cached_property
    def _from_top(self) -> tuple[Array, Array]:
        """Number and sum of all entries from each value up, as whole numbers that cannot wrap."""
        size = int(self.counts.sum()) * max(abs(int(self.values[0])), abs(int(self.values[-1])), 1)
        kind = np.int64 if size < 1 << 61 else object
        counts, values = self.counts.astype(kind), self.values.astype(kind)
        return counts[::-1].cumsum()[::-1], (counts * values)[::-1].cumsum()[::-1]

    def water(self, total: Fraction) -> tuple[int, int]:
        """(A, E): number and sum of the entries above tau, where sum max(y - tau, 0) = total > 0; tau = (E - total)/A.

        An entry y is active iff E - A y < total with A, E over all entries from y up [Matsumoto2025, eq. 9].
        """
        active, sums = self._from_top
        below = sums - active * self.values.astype(active.dtype)  # falls as the value rises
        first = int(np.argmax(below <= -(-total.numerator // total.denominator) - 1))
        return int(active[first]), int(sums[first])


@dataclass(frozen=True, eq=False)
class Shaped:
    """What every value becomes: `whole` for the values of `tally` (others become 0); the first `extra` entries in key
    order whose value is `flagged` (one value at most) get one more, so that the total is met."""

    tally: Tally
    whole: Int
    flagged: NDArray[np.bool_]
    extra: int

    def apply(self, noisy: Int) -> tuple[Int, Int]:
        """(places, values not 0) of the shaped table."""
        if self.whole.size == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if self.tally.dense and self.whole.dtype == noisy.dtype == np.int64 and noisy.flags.writeable:
            from kasuri._kernels.simplex import at_least, shape

            low = int(self.tally.values[0])
            at, values = at_least(noisy, low, int(self.tally.counts.sum()))
            size = shape(at, values, low, self.whole, self.flagged, self.extra)
            return at[:size], values[:size]
        at = np.flatnonzero(noisy >= self.tally.values[0])
        index = self.tally.places(noisy[at])
        values = self.whole[index]
        if self.extra:
            values[np.flatnonzero(self.flagged[index])[: self.extra]] += 1
        keep = values != 0
        return at[keep], values[keep]

    def squared(self, tally: Tally) -> float:
        """Expected sum of squares of the entries of `tally` (a part of the same table, of value 0 before noise)."""
        within = tally.above(int(self.tally.values[0])) if self.whole.size else None
        if within is None or within.values.size == 0:
            return 0.0
        index = self.tally.places(within.values)
        return float((within.counts * self._moment(index, 0.0)).sum())

    def distance(self, noisy: Int, truth: Int) -> float:
        """Expected sum of squared errors of entries with these noisy and true values."""
        if self.whole.size == 0:
            return float((truth.astype(np.float64) ** 2).sum())
        inside = noisy >= self.tally.values[0]
        lost = truth[~inside].astype(np.float64)
        return float((lost**2).sum() + self._moment(self.tally.places(noisy[inside]), truth[inside]).sum())

    def _moment(self, index: Int, truth: Any) -> Float:
        """E (x - truth)^2 where a flagged entry gets its one with probability extra / flagged entries."""
        flagged = int(self.tally.counts[self.flagged].sum())
        chance = np.where(self.flagged[index], self.extra / flagged if flagged else 0.0, 0.0)
        gap = (self.whole[index] - truth).astype(np.float64)  # squares of counts may leave 64 bits
        return gap**2 + chance * (2 * gap + 1)


class Rule(ABC):
    """How noisy values become whole numbers of a given total: exact rational values, floor, largest remainder, ties to
    the larger value and then to the lower key. Largest remainders give the point of the integer simplex nearest to the
    projection [Matsumoto2025, sec. 2.4]. Cost: O(distinct values)."""

    name: ClassVar[str]
    """The word of stored releases, and that of its family."""
    family: ClassVar[str]
    signed: ClassVar[bool] = False
    """May a value come out negative?"""

    def shape(self, tally: Tally, total: int, parameter: Fraction) -> Shaped:
        """The integers of this rule."""
        if total <= 0 or not tally.counts.any():
            return _nothing(tally)
        return self._shape(tally, total, parameter)

    def candidates(self, scale: Fraction) -> Sequence[Fraction]:
        """What "auto" chooses the parameter from, at this scale of noise."""
        return [Fraction(round(4 * scale * t), 4) for t in THRESHOLDS]

    def check(self, parameter: Fraction) -> None:
        """Refuse a parameter this rule cannot take."""
        if parameter <= 0:
            raise PrivacyError("the parameter must be greater than 0")

    @abstractmethod
    def _shape(self, tally: Tally, total: int, parameter: Fraction) -> Shaped: ...


class NegL2(Rule):
    """Project noisy / gamma, 0 < gamma <= 1; gamma = 1 is the plain projection."""

    name = "neg l2"
    family = "simplex"

    def check(self, parameter: Fraction) -> None:
        super().check(parameter)
        if parameter > 1:
            raise PrivacyError("gamma must lie above 0 and at most at 1")

    def candidates(self, scale: Fraction) -> Sequence[Fraction]:
        return GAMMAS

    def _shape(self, tally: Tally, total: int, parameter: Fraction) -> Shaped:
        return _water(tally, total, parameter)


class NonnegLasso(Rule):
    """Values above the threshold t = lambda / 2 less t, scaled to the total; nothing left: the plain projection."""

    name = "nonneg lasso scale"
    family = "nonneg lasso"

    def _shape(self, tally: Tally, total: int, parameter: Fraction) -> Shaped:
        live = tally.above(_floor(parameter) + 1)  # y > t
        count = int(live.counts.sum())
        return _water(tally, total, Fraction(1)) if count == 0 else self._adjust(live, total, parameter, count)

    def _adjust(self, live: Tally, total: int, parameter: Fraction, count: int) -> Shaped:
        p, q = parameter.numerator, parameter.denominator
        mass = q * _sum(live.counts, live.values) - p * count  # q times the sum of y - t
        return _round(live, _scaled(live.values, q * total, -p * total), mass, total)


class NonnegLassoShift(NonnegLasso):
    """The same, every value above the threshold moved by one amount (and cut at 0)."""

    name = "nonneg lasso shift"

    def _adjust(self, live: Tally, total: int, parameter: Fraction, count: int) -> Shaped:
        return _water(live, total, Fraction(1))


class Lasso(Rule):
    """Soft threshold in both directions [Matsumoto2025, eq. 4]: s = y - t above t, y + t below -t, else 0; scaled to
    the total. What leaves nothing (nothing positive, or so little that cells would leave 64 bits) to carry a total > 0
    falls back on the plain projection."""

    name = "lasso scale"
    family = "lasso"
    signed = True

    def _shape(self, tally: Tally, total: int, parameter: Fraction) -> Shaped:
        p, q = parameter.numerator, parameter.denominator
        live = np.abs(tally.values) > _floor(parameter)
        counts = np.where(live, tally.counts, 0)
        soft = _scaled(tally.values, q, 0) - p * np.sign(tally.values).astype(object)  # q s
        soft = np.where(live, soft, 0)
        number, mass = int(counts.sum()), _sum(counts, soft)
        adjusted = self._adjust(soft, live, q, mass, number, total) if number else None
        if adjusted is None:
            return _water(tally, total, Fraction(1))
        tops, den = adjusted
        if max(abs(int(tops.min())), abs(int(tops.max()))) >= den << 62:  # a mass near 0 blows the table up
            return _water(tally, total, Fraction(1))
        return _round(Tally(tally.values, counts, tally.dense), tops, den, total)

    def _adjust(
        self, soft: Array, live: NDArray[np.bool_], q: int, mass: int, number: int, total: int
    ) -> tuple[Array, int] | None:
        return None if mass <= 0 else (soft * total, mass)


class LassoShift(Lasso):
    """The same, every s that is not 0 moved by one amount."""

    name = "lasso shift"

    def _adjust(
        self, soft: Array, live: NDArray[np.bool_], q: int, mass: int, number: int, total: int
    ) -> tuple[Array, int] | None:
        return np.where(live, soft * number + (q * total - mass), 0), q * number


RULES: dict[str, Rule] = {
    rule.name: rule for rule in (NegL2(), NonnegLasso(), NonnegLassoShift(), Lasso(), LassoShift())
}
"""Every rule by the word of stored releases."""


def _water(tally: Tally, total: int, gamma: Fraction) -> Shaped:
    """x = (y - tau) / gamma on the A active entries, tau = (E - gamma total) / A."""
    p, q = gamma.numerator, gamma.denominator
    active, sums = tally.water(gamma * total)
    live = tally.above(-((p * total - q * sums) // (q * active)))  # the least whole number y >= tau
    return _round(live, _scaled(live.values, q * active, p * total - q * sums), active * p, total)


def _round(tally: Tally, tops: Array, den: int, total: int) -> Shaped:
    """Floors of tops / den, and ones by largest remainder until the counted entries sum to `total`."""
    if den >= 1 << 62:
        tops = tops.astype(object)
    wholes = tops // den
    rests = tops - wholes * den
    left = total - _sum(tally.counts, wholes)
    ones = np.zeros(wholes.size, dtype=bool)
    flagged, extra = np.zeros(wholes.size, dtype=bool), 0
    if left:
        # by remainder, then by value: equal remainders are the rule at gamma = 1, and the larger value is the surer one
        served = np.flatnonzero(tally.counts > 0)[::-1]
        served = served[np.argsort(-rests[served], kind="stable")]
        upto = tally.counts[served].cumsum()
        whole_groups = int(np.searchsorted(upto, left, side="right"))
        ones[served[:whole_groups]] = True
        extra = int(left - (upto[whole_groups - 1] if whole_groups else 0))
        if extra:
            flagged[served[whole_groups]] = True
    return Shaped(tally, (wholes + ones).astype(np.int64), flagged, extra)


def _nothing(tally: Tally) -> Shaped:
    return Shaped(tally, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool), 0)


def _floor(number: Fraction) -> int:
    return number.numerator // number.denominator


def _sum(counts: Array, values: Array) -> int:
    """sum of counts * values, whatever its size."""
    largest = max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0
    if values.dtype != object and largest * max(int(counts.sum()), 1) < 1 << 62:
        return int((counts * values).sum())
    return int((counts.astype(object) * values.astype(object)).sum()) if values.size else 0


def _scaled(values: Int, factor: int, plus: int) -> Array:
    """factor * values + plus, in 64 bits where it fits."""
    largest = max(abs(int(values[0])), abs(int(values[-1]))) if values.size else 0
    if abs(factor) * max(largest, 1) + abs(plus) < 1 << 61:  # the factor itself must fit, even where all values are 0
        return values * factor + plus
    return values.astype(object) * factor + plus


def tune(
    base: tuple[Int, Int],
    noise: Sequence[Callable[[], Int]],
    total: int,
    rule: Rule,
    candidates: Sequence[Fraction],
) -> Fraction:
    """The parameter of least squared error when fresh `noise` is added to the table `base` (places, values): a
    parametric bootstrap. `base` is a noisy table already projected, or a public one; never the truth.

    One tally of each simulated table serves every candidate. Cost: O(n + candidates * (distinct values + m)).
    """
    loss = np.zeros(len(candidates))
    places, values = base
    for draw in noise:
        noisy = draw()
        own = noisy[places] + values
        noisy[places] = own
        tally = Tally.of(noisy)
        here = Tally.of(own)
        rest = tally.counts.copy()
        if own.size:
            np.subtract.at(rest, tally.places(here.values[here.counts > 0]), here.counts[here.counts > 0])
        empty = Tally(tally.values, rest, tally.dense)
        for i, candidate in enumerate(candidates):
            shaped = rule.shape(tally, total, candidate)
            loss[i] += shaped.squared(empty) + shaped.distance(own, values)
    return candidates[int(np.argmin(loss))]
