"""Slow, obvious twin of the privacy-loss composition: every outcome of many answers of randomised response.

An answer of randomised response has loss +e with probability 1/(1 + exp(-e)), else -e. For losses (e_i, n_i) the twin
adds up delta(epsilon) over all (j_1, ..., j_T), in decimals of 50 digits. No import from kasuri.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product


def _number(value):
    return Decimal(value.numerator) / Decimal(value.denominator) if isinstance(value, Fraction) else Decimal(value)


def _law(epsilon, count):
    """[(loss, probability)] of `count` answers."""
    likely = 1 / (1 + (-epsilon).exp())
    rare = 1 - likely
    probability = rare**count
    out = []
    for j in range(count + 1):
        out.append((epsilon * (2 * j - count), probability))
        probability = probability * (count - j) / (j + 1) * likely / rare
    return out


def delta(losses, epsilon):
    """The least delta for which the composition is (epsilon, delta)-DP."""
    with localcontext() as context:
        context.prec = 50
        laws = [_law(_number(e), n) for e, n in losses]
        epsilon = _number(epsilon)
        total = Decimal(0)
        for outcome in product(*laws):
            loss = sum((part for part, _ in outcome), start=Decimal(0))
            if loss > epsilon:
                probability = Decimal(1)
                for _, share in outcome:
                    probability *= share
                total += probability * (1 - (epsilon - loss).exp())
        return total


def epsilon(losses, target):
    """The least epsilon for which the composition is (epsilon, target)-DP, to twelve digits."""
    with localcontext() as context:
        context.prec = 50
        target = _number(target)
        low, high = Decimal(0), sum((_number(e) * n for e, n in losses), start=Decimal(0))
        for _ in range(44):
            middle = (low + high) / 2
            low, high = (middle, high) if delta(losses, middle) > target else (low, middle)
        return high
