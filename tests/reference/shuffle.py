"""Shuffled reports by enumeration: exact rationals, no kernel, no FFT."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction


def columns_law(record, odds):
    """{report: probability} of independent two-point columns; odds[j] = e^eps_j as a Fraction, record[j] in {0, 1}."""
    law = {}
    for report in itertools.product((0, 1), repeat=len(odds)):
        law[report] = math.prod(
            (e if said == true else Fraction(1)) / (e + 1) for said, true, e in zip(report, record, odds, strict=True)
        )
    return law


def shuffled(laws):
    """{multiset: probability} of independent reports with these laws, in a random order."""
    total = {(): Fraction(1)}
    for law in laws:
        following = Counter()
        for seen, mass in total.items():
            for report, p in law.items():
                following[tuple(sorted((*seen, report)))] += mass * p
        total = following
    return total


def hockey_stick(one, two, g):
    """sup over events of P_one(E) - g P_two(E)."""
    return sum((max(p - g * two.get(key, Fraction(0)), Fraction(0)) for key, p in one.items()), Fraction(0))


def positive_part(values, masses, n):
    """E[(X_1 + ... + X_n)_+] / n by convolution of exact atoms; mass that is left is at 0."""
    law = Counter({Fraction(0): Fraction(1)})
    rest = 1 - sum(masses)
    for _ in range(n):
        following = Counter()
        for total, mass in law.items():
            for x, w in zip(values, masses, strict=True):
                following[total + x] += mass * w
            following[total] += mass * rest
        law = following
    return sum((total * mass for total, mass in law.items() if total > 0), Fraction(0)) / n


def blanket_values(a, b, w, g):
    """The atoms of X = (a - g b)/w of finite laws a, b above the measure w: values, masses."""
    keys = list(w)
    return [(a[key] - g * b[key]) / w[key] for key in keys], [w[key] for key in keys]
