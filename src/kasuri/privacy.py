"""What is promised: exact epsilons and the Guarantee that travels with every release."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal

from kasuri import notebook
from kasuri.errors import PrivacyError
from kasuri.schema import Unit

Model = Literal["central", "local", "shuffle", "none"]
Exact = str | int | Fraction | Decimal
"""What can say an epsilon or a share exactly; a float cannot, and is refused (`exact`, `asked`)."""


_BITS = 1400  # whatever 200 characters and an exponent of 200 can say
_WRITABLE = 13000  # bits of a number Python writes out (4300 digits)
_NUMBER = re.compile("-?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|-?[0-9]+/[0-9]+")  # "0_1" is 1 to Python

MOST = 20
"""The largest epsilon that is taken without a second word."""
WEAK = "weak"
"""The second word."""


def exact(value: object, what: str = "epsilon") -> Fraction:
    """An exact positive rational from a decimal string, a whole number or a Fraction; a float is refused. Text is ASCII
    digits with at most one point and an exponent, or p/q.

    >>> exact("0.1"), exact("1/3")
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, Fraction, Decimal)):
        raise PrivacyError(f'{what} must be an exact decimal such as "0.1" or a Fraction, not {type(value).__name__}')
    try:
        number = _fraction(value)
    except (ValueError, InvalidOperation, OverflowError, ZeroDivisionError):
        raise PrivacyError(f'{what} must be a finite decimal such as "0.1"') from None
    if number <= 0:
        raise PrivacyError(f"{what} must be greater than 0")
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _BITS:
        raise PrivacyError(f'{what} has too many digits; use a decimal such as "0.1"')
    return number


def _fraction(value: str | int | Fraction | Decimal) -> Fraction:
    if isinstance(value, str):
        value = value.strip(" ")
        if len(value) > 200 or not _NUMBER.fullmatch(value):
            raise ValueError
        value = Fraction(value) if "/" in value else Decimal(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > 200:  # 1e999999999 would fill the memory
        raise ValueError
    return Fraction(value)


class Meant(Fraction):
    """An epsilon whose writer has said that it is meant, however large: `asked("25 weak")`."""


def asked(value: object, what: str = "epsilon", *, study: bool = False) -> Fraction:
    """The epsilon somebody asks for. Above 20 a promise is next to none (odds may change by e^20, 485 million), so it
    needs a second word that says so, after the number; a `study`, which promises nothing, does without.

    >>> asked("0.1"), asked("25 weak") == 25
    (Fraction(1, 10), True)
    """
    said = isinstance(value, Meant)
    if isinstance(value, str) and value.rstrip(" ").endswith(f" {WEAK}"):
        value, said = value.rstrip(" ").removesuffix(WEAK), True
    number = exact(value, what)
    if not said and not study:
        promised(number, what)
    return Meant(number) if said else number


def promised(epsilon: Fraction, what: str = "epsilon") -> None:
    """Refuse an epsilon above 20 that nobody has said is meant."""
    if epsilon > MOST and not isinstance(epsilon, Meant):
        raise PrivacyError(
            f"{what} is above {MOST}: odds may change by more than e^{MOST}, 485 million times, which protects hardly "
            f'anyone. Ask for less, or write the word {WEAK} after the number, such as "25 {WEAK}", if it is meant'
        )


def written(text: object) -> Fraction:
    """The rational whose text `decimal` wrote; ValueError for anything else. No exponent: "1e999999999" would fill the
    memory.

    >>> written("0.1"), written("1/3")
    (Fraction(1, 10), Fraction(1, 3))
    """
    if not isinstance(text, str) or len(text) > _WRITABLE or not set(text) <= set("-0123456789./"):
        raise ValueError("not a decimal or p/q")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError("not a decimal or p/q") from None


def decimal(number: Fraction) -> str:
    """Shortest exact text of a rational: a decimal where one exists, else p/q.

    >>> decimal(Fraction(1, 10)), decimal(Fraction(1, 3))
    ('0.1', '1/3')
    """
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _WRITABLE:
        raise PrivacyError("a sum of so many unlike fractions cannot be written down; use decimals such as 0.1")
    rest, twos, fives = number.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{number.numerator}/{number.denominator}"
    places = max(twos, fives)
    digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
    text = digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}"
    return f"-{text}" if number < 0 else text


@dataclass(frozen=True)
class Guarantee:
    """A privacy claim and everything it rests on.

    For any two tables that differ by `unit` (one unit enters or leaves, or changes its records), and any set of
    outputs, the probabilities differ by at most a factor e^epsilon, plus delta. `public` lists what is treated as
    known to everyone, `assumes` the caveats in words, `basis` the proof. Where the claim is rho-zCDP, `rho` says so;
    (epsilon, delta) follows from it, or is the tighter price of the same noise.
    """

    model: Model
    epsilon: Fraction
    delta: Fraction
    unit: Unit
    public: tuple[str, ...]
    assumes: tuple[str, ...]
    basis: str
    rho: Fraction | None = None

    def assuming(self, *caveats: str) -> Guarantee:
        """The same claim with further caveats, each once."""
        return replace(self, assumes=tuple(dict.fromkeys((*self.assumes, *caveats))))

    def words(self) -> str:
        """The claim in one sentence."""
        loss = f"epsilon {decimal(self.epsilon)}" + (f", delta {decimal(self.delta)}" if self.delta else "")
        loss += "" if self.rho is None else f" (rho {decimal(self.rho)} zCDP)"
        return f"{self.model} differential privacy, {loss}, when {self.relation()}"

    def _repr_html_(self) -> str:
        rows = [
            ("promise", self.words()),
            ("public", "; ".join(self.public) or "nothing further"),
            ("assumes", "; ".join(self.assumes) or "nothing further"),
            ("proof", self.basis),
        ]
        return notebook.card("kasuri Guarantee", rows)

    def relation(self) -> str:
        """The neighbour relation in words; where the total is public, only a record that moves is protected, and where
        membership is, only a unit's values."""
        if "membership" in self.public:
            return f"the values of one {self.unit.id} change, none enters or leaves the data"
        if "total" in self.public:
            return f"the record of one {self.unit.id} changes its cell, none enters or leaves the data"
        return self.unit.words()

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "epsilon": decimal(self.epsilon),
            "delta": decimal(self.delta),
            "unit": self.unit.to_json(),
            "public": list(self.public),
            "assumes": list(self.assumes),
            "basis": self.basis,
            **({} if self.rho is None else {"rho": decimal(self.rho)}),
        }
