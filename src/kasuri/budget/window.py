"""A series without end: the price of a window of slots, the noise that it leaves for each, and what is charged beside.

A constant schedule: every slot is measured with the same noise, fixed when the ledger is opened, so that every window
of w consecutive slots costs what w slots cost, for ever (docs/proofs/window.md, theorem 1). Nothing is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, isqrt, log10

from kasuri.budget.accounting import Losses
from kasuri.budget.declared import Declared, priced
from kasuri.budget.gaussian import Normal
from kasuri.errors import PrivacyError
from kasuri.privacy import decimal
from kasuri.schema import Change, Window

VARYING = (
    "the schedule of a window ledger is constant: every slot has the recipe, the domain and the epsilon that it was "
    "opened with. Prices of noise that was not fixed beforehand do not add up to one price of a window"
)
_TRIES = 40


@dataclass(frozen=True)
class Beside:
    """Another release of the same data: the first and the last slot its records come from (None: not known, so it
    counts in every window), and what a window that touches them loses by it."""

    slots: tuple[int, int] | None
    cost: Fraction


def beside(epsilon: Fraction, change: Change, slots: tuple[int, int] | None) -> Beside:
    """What an epsilon-DP release beside the series costs the windows that it touches.

    It bounds what a unit adds over all its slots. Where a window holds some of them only, a unit whose records in the
    window go may be counted elsewhere instead: it leaves, and enters with other records, twice epsilon under
    add-remove. With one slot, or where records change, it is epsilon.
    """
    whole = slots is not None and slots[0] == slots[1]
    return Beside(slots, epsilon if whole or change == "replace" else 2 * epsilon)


def dearest_window(others: Sequence[Beside], width: int) -> Fraction:
    """The most that releases beside the series cost any `width` consecutive slots, sliding.

    A window that begins at slot i touches slots a..b where a - width < i <= b; the sum over i changes at these ends.
    """
    always = sum((other.cost for other in others if other.slots is None), start=Fraction(0))
    steps: list[tuple[int, Fraction]] = []
    for other in others:
        if other.slots is not None:
            first, last = other.slots
            steps += [(first - width + 1, other.cost), (last + 1, -other.cost)]
    most = now = Fraction(0)
    for _, step in sorted(steps):  # at one place what ends comes first, being below 0
        now += step
        most = max(most, now)
    return always + most


def slot_epsilon(
    losses: Callable[[Fraction], Losses | Normal], slots: int, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """The epsilon of one slot, so that `slots` of them cost at most `epsilon` at `delta`, and hardly less.

    `losses` gives those of one release of so much. Bisection, begun in proportion; what is returned was priced.
    """
    low, high, guess = Fraction(0), epsilon, epsilon / isqrt(slots)
    for _ in range(_TRIES):
        guess = _rounded(guess)
        if not low < guess < high:
            guess = _rounded((low + high) / 2)
        if guess in (low, high):
            break
        found = priced(losses(guess), slots, guess, delta)
        low, high = (guess, high) if found <= epsilon else (low, guess)
        if found <= epsilon < found * Fraction(1001, 1000):
            break
        guess *= epsilon / found
    if slots == 1 and priced(losses(epsilon), 1, epsilon, delta) <= epsilon:
        return epsilon
    if low == 0:
        raise PrivacyError(
            f"epsilon {decimal(epsilon)} at delta {decimal(delta)} is too little for {slots} slots; ask for more, a "
            "shorter window or longer slots"
        )
    return low


def _rounded(number: Fraction) -> Fraction:
    """Down to five digits."""
    step = Fraction(10) ** (floor(log10(number)) - 4)
    return int(number / step) * step


def prices(
    series: Declared, window: Window, delta: Fraction, others: Sequence[Beside] = ()
) -> tuple[tuple[str, int, Fraction], ...]:
    """(span, slots, epsilon at delta) for somebody who is counted in every slot of it; docs/proofs/window.md. What
    was released beside the series is in it, where such a span touches the most of it."""
    return tuple(
        (name, slots, priced(series.losses, slots, series.epsilon, delta) + dearest_window(others, slots))
        for name, slots in window.spans()
    )
