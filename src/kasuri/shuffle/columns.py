"""The columns of a plan: each a name, a side and a randomizer in exact odds.

Numbers: piecewise (the default), coin, two_point, hybrid, laplace. Categories: grr (k-ary response, the default),
one_hot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.local import categorical, numeric
from kasuri.local.grid import Numeric, Table
from kasuri.local.numeric import Hybrid, Laplace, Window
from kasuri.local.odds import BITS, least, within
from kasuri.local.randomizer import Randomizer
from kasuri.noise.rng import Source
from kasuri.privacy import Exact, asked
from kasuri.schema import Domain, Nominal

Side = Literal["a", "b"]
Codes = NDArray[Any]
Floats = NDArray[np.float64]

NUMBERS = ("coin", "two_point", "piecewise", "hybrid", "laplace")
CATEGORIES = ("grr", "one_hot")
STEPS = 256
"""Grid steps of a number: rounding to the grid adds at most 1/STEPS^2 to E[v^2] on the scale [-1, 1]."""


@dataclass(frozen=True)
class Coin(Table):
    """Two-point reports of v or, by a fair coin inside the randomizer, of 2 v^2 - 1; the report says which.

    The coin is the person's own and fresh: it depends on no key, order or side. Outputs 0, 1 are v's minus and plus,
    2, 3 those of 2 v^2 - 1; each has N/4 words plus or minus v `slope` steps, or (2 v^2 - 1) `bend` steps^2.
    """

    slope: int = field(kw_only=True)
    bend: int = field(kw_only=True)
    kind: ClassVar[str] = "coin"

    def _row(self, g: int) -> list[int]:
        quarter, t = self.words // 4, 2 * g - self.steps
        one, two = t * self.slope, (2 * t * t - self.steps**2) * self.bend
        return [quarter - one, quarter + one, quarter - two, quarter + two]

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        most = Fraction(self.words, 2 * self.slope * self.steps)
        return -most, most, Fraction(0), Fraction(0)

    @cached_property
    def squares(self) -> tuple[Fraction, ...]:
        # E[t] = 2 v^2 - 1 over both coins, so that (1 + t)/2 is v^2
        most = Fraction(self.words, 2 * self.bend * self.steps**2)
        half = Fraction(1, 2)
        return half, half, half - most / 2, half + most / 2


def coin(bounds: tuple[object, object], *, epsilon: Exact, steps: int = STEPS, bits: int = BITS) -> Coin:
    """The coin randomizer with the steepest whole slopes that keep epsilon."""
    eps, quarter = asked(epsilon), (1 << bits) // 4

    def reach(most: int, scale: int) -> int:
        def keeps(less: int) -> bool:
            odds = (most - less) * scale
            return within(Fraction(quarter + odds, quarter - odds), eps)

        return most - least(0, most - 1, keeps)

    slope, bend = reach((quarter - 1) // steps, steps), reach((quarter - 1) // steps**2, steps**2)
    low, high = numeric._bounds(bounds)
    return Coin(low, high, eps, steps, slope=slope, bend=bend, bits=bits)


@dataclass(frozen=True)
class Column:
    """One column of the plan."""

    name: str
    side: Side
    randomizer: Numeric | Randomizer

    @property
    def epsilon(self) -> Fraction:
        return self.randomizer.epsilon

    @property
    def is_number(self) -> bool:
        return isinstance(self.randomizer, Numeric)

    @property
    def numeric(self) -> Numeric:
        assert isinstance(self.randomizer, Numeric)
        return self.randomizer

    @property
    def category(self) -> Randomizer:
        assert isinstance(self.randomizer, Randomizer)
        return self.randomizer

    @property
    def half(self) -> float:
        """Half the width of the bounds: one unit of the scale [-1, 1]."""
        return float(self.numeric.high - self.numeric.low) / 2

    @cached_property
    def covered(self) -> bool:
        """Whether the blanket of two-point columns is no better than this column's own (proof, section 3)."""
        made = self.randomizer
        if isinstance(made, Hybrid):
            return _windowed(made.wide)
        if isinstance(made, Window):
            return _windowed(made)
        return not isinstance(made, Laplace)

    def levels(self) -> tuple[str, ...]:
        """Names of what is estimated: the number itself, or one indicator for each label."""
        return (self.name,) if self.is_number else tuple(f"{self.name}={label}" for label in self.category.labels)

    def randomize(self, values: Any, source: Source) -> Codes:
        """Codes of fresh reports, one for each number or label."""
        if not self.is_number:
            return self.category.randomize(values, source=source).rows
        made = self.numeric
        return made.unpack(made.randomize(values, source=source).rows).astype(
            np.uint8 if made.outputs <= 256 else np.uint16
        )

    def unbiased(self, codes: Codes) -> Floats:
        """(rows, levels): unbiased for v in [-1, 1], or for each label's indicator."""
        if self.is_number:
            return _look_up(self.numeric.values, codes)[:, None]
        made = self.category
        bits = np.unpackbits(made.supports(codes), axis=1, bitorder="little")[:, : made.size]
        law = made.law
        return (bits.astype(np.float64) - float(law.q)) / float(law.p - law.q)

    def squares(self, codes: Codes) -> Floats | None:
        """Unbiased for v^2, where one report tells anything of it."""
        table = self.numeric.squares
        return None if table is None else _look_up(table, codes)


def _windowed(made: Window) -> bool:
    """At least as many outputs outside as inside the window, the spare words included: each output of the window then
    has a partner outside both windows."""
    spare = made.words - made.window * made.inside - (made.outputs - made.window) * made.outside
    return (made.outputs - 2 * made.window) * made.outside >= spare


def _look_up(table: tuple[Fraction, ...], codes: Codes) -> Floats:
    return np.array([float(value) for value in table])[codes]


def _is_double(value: Fraction) -> bool:
    """Whether it has a finite double; a width must not vanish either."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def number(
    name: str, side: Side, bounds: tuple[object, object], kind: str, epsilon: Fraction, ab: tuple[object, object] | None
) -> Column:
    """A column of numbers in public bounds."""
    if kind not in NUMBERS:
        raise DomainError(f"column {name!r}: the mechanism of numbers is one of {', '.join(NUMBERS)}")
    low, high = numeric._bounds(bounds)
    if not all(map(_is_double, (low, high, high - low))) or not float(low) < float(high):
        raise DomainError(
            f"column {name!r}: the bounds and the width between them must be ordinary numbers, low < high"
        )
    if ab is not None:
        if not isinstance(ab, tuple) or len(ab) != 2:
            raise DomainError(f"column {name!r}: ab must be two numbers (a, b)")
        if kind != "two_point":
            raise DomainError(f"column {name!r}: (a, b) goes with the mechanism two_point")
        made: Numeric = numeric.two_point(bounds, epsilon=epsilon, steps=STEPS, ab=ab)
    elif kind == "coin":
        made = coin(bounds, epsilon=epsilon)
    elif kind in ("piecewise", "hybrid"):
        made = numeric.MAKERS[kind](bounds, epsilon=epsilon, steps=STEPS, shift=2)
    elif kind == "laplace":
        made = numeric.laplace(bounds, epsilon=epsilon)  # tells nothing of squares: a coarse grid costs nothing
    else:
        made = numeric.two_point(bounds, epsilon=epsilon, steps=STEPS)
    return Column(name, side, made)


def category(name: str, side: Side, labels: tuple[str, ...], kind: str, epsilon: Fraction) -> Column:
    """A column of public labels."""
    if kind not in CATEGORIES:
        raise DomainError(f"column {name!r}: the mechanism of categories is one of {', '.join(CATEGORIES)}")
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise DomainError(f"column {name!r}: at least two labels, each once")
    make = categorical.grr if kind == "grr" else categorical.unary
    return Column(name, side, make(Domain.of(Nominal(name, labels=labels)), epsilon=epsilon, elsewhere=False))


def mechanism_of(column: Column) -> str:
    """The mechanism's name as a plan writes it."""
    return "one_hot" if column.randomizer.kind == "unary" else column.randomizer.kind
