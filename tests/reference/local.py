"""Slow, obvious twins of kasuri.local: exact report laws by counting words, EM by loops. No kernel is imported."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction


def law_by_enumeration(randomizer, category: int, words: int) -> dict[bytes, Fraction]:
    """The exact law of `randomizer.report(category, ...)`: every sequence of `words` words is tried once."""
    seen: Counter[bytes] = Counter()
    for sequence in itertools.product(range(1 << randomizer.bits), repeat=words):
        rest = iter(sequence)
        seen[randomizer.report(category, lambda rest=rest: next(rest))] += 1
        assert next(rest, None) is None, "a report must use every word"
    total = (1 << randomizer.bits) ** words
    return {report: Fraction(count, total) for report, count in seen.items()}


def unary_law(p: Fraction, q: Fraction, size: int, category: int) -> dict[bytes, Fraction]:
    """Independent bits, straight from the definition."""
    out = {}
    for bits in itertools.product((0, 1), repeat=size):
        chance = Fraction(1)
        for x, bit in enumerate(bits):
            one = p if x == category else q
            chance *= one if bit else 1 - one
        number = sum(bit << x for x, bit in enumerate(bits))
        out[number.to_bytes(-(-size // 8), "little")] = chance
    return out


def response_law(p: Fraction, q: Fraction, size: int, category: int) -> list[Fraction]:
    return [p if y == category else q for y in range(size)]


def em_pass(reports: list[list[int]], theta: list[float], ratio: float) -> list[float]:
    """One EM step of [Horigome2020, A.3.2] on whole reports given as 0/1 lists."""
    size = len(theta)
    mean = [0.0] * size
    for z in reports:
        weights = [theta[i] * (ratio if z[i] else 1.0) for i in range(size)]
        total = sum(weights)
        for i in range(size):
            mean[i] += weights[i] / total / len(reports)
    return mean
