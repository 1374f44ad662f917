"""Exact coins and uniform numbers from keystreams, for sampling and replacement. No floating-point number decides."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import PrivacyError, raise_faults
from kasuri.noise.rng import Source, Stream, secure
from kasuri.noise.survival import exp_minus


def source_faults(source: Source | None) -> list[str]:
    """What is wrong with a source: anything but a Source could say of itself that it is secure."""
    if source is None or type(source) is Source:
        return []
    return ["source must be secure() or, in a test, seeded(n)"]


def checked_source(source: Source | None) -> Source:
    """The source itself, or the operating system."""
    raise_faults(PrivacyError, source_faults(source))
    return secure() if source is None else source


def coins(stream: Stream, p: Fraction, size: int) -> NDArray[np.bool_]:
    """`size` independent coins, True with probability exactly p (0 < p < 1).

    A coin is U < p for a uniform U whose first 64 bits u are drawn: u < T and u > T decide, T = floor(2^64 p); u = T
    draws 64 bits more, and so on.
    """
    words = np.empty(size, dtype=np.uint64)
    at = stream.drawn
    stream.fill(words)
    threshold, rest = divmod(p.numerator << 64, p.denominator)
    out = words < np.uint64(threshold)
    for i in np.flatnonzero(words == np.uint64(threshold)).tolist():
        out[i] = _decide(stream, at + i, Fraction(rest, p.denominator))
    return out


def _decide(stream: Stream, word: int, p: Fraction) -> bool:
    turn = 0
    while True:
        threshold, rest = divmod(p.numerator << 64, p.denominator)
        u = stream.tie(word, turn)
        if u != threshold:
            return u < threshold
        p, turn = Fraction(rest, p.denominator), turn + 1


def uniform(stream: Stream, bound: int, size: int) -> NDArray[np.int64]:
    """`size` independent uniform numbers below `bound` (at most 2^32): a 64-bit word modulo `bound`, redrawn where it
    lies beyond the last whole multiple of `bound`."""
    words = np.empty(size, dtype=np.uint64)
    at = stream.drawn
    stream.fill(words)
    excess = (1 << 64) % bound
    out = (words % np.uint64(bound)).astype(np.int64)
    if excess:
        last = (1 << 64) - excess
        for i in np.flatnonzero(words >= np.uint64(last)).tolist():
            turn = 0
            while (u := stream.tie(at + i, turn)) >= last:
                turn += 1
            out[i] = u % bound
    return out


def coin_exp(stream: Stream, x: Fraction) -> bool:
    """One coin, True with probability exactly e^-x, x >= 0: bits of a uniform number until e^-x is decided."""
    word = stream.drawn
    first = np.empty(1, dtype=np.uint64)
    stream.fill(first)
    u, bits, turn = int(first[0]), 64, 0
    while True:
        low, high = exp_minus(x, bits + 16)
        if (u + 1) << 16 <= low:
            return True
        if u << 16 >= high:
            return False
        u, bits, turn = (u << 64) | stream.tie(word, turn), bits + 64, turn + 1
