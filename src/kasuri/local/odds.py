"""Integer odds: probabilities k / 2^bits, and comparisons of their ratios with e^epsilon that are never rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from kasuri.errors import PrivacyError
from kasuri.noise.survival import exp_minus

BITS = 32
"""Bits of one random word on a device: every probability is a whole number of 2^32nds."""


def within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Whether ratio <= e^epsilon, decided by integer intervals of e^-epsilon (irrational, so this always ends)."""
    if ratio <= 1:
        return True
    w = 64
    while True:
        low, high = exp_minus(epsilon, w)
        if ratio.denominator << w >= high * ratio.numerator:
            return True
        if ratio.denominator << w < low * ratio.numerator:
            return False
        w *= 2


def least(low: int, high: int, test: Callable[[int], bool]) -> int:
    """The least whole number in low..high that passes a test which stays true once it is true."""
    if low > high or not test(high):
        raise PrivacyError("no probability of this word size keeps epsilon; take more bits or a smaller domain")
    while low < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle + 1
    return low


def loss(ratio: Fraction) -> float:
    """ln(ratio), to display."""
    return math.log(ratio.numerator) - math.log(ratio.denominator)


MOST = 10**6
"""No randomizer states a larger epsilon: a claim that nothing could break is a slip of the hand."""


def demand(ratio: Fraction, epsilon: Fraction, what: str) -> None:
    """Refuse probabilities whose worst ratio exceeds e^epsilon, and an epsilon beyond `MOST`."""
    if epsilon > MOST:
        raise PrivacyError(f"{what}: an epsilon above {MOST:,} protects nobody; ask for a smaller one")
    if not within(ratio, epsilon):
        raise PrivacyError(
            f"{what}: its probabilities lose {loss(ratio):.6g}, more than the epsilon {float(epsilon):.6g} it states"
        )
