"""The randomizers of categories: unary (basic RAPPOR), OUE, k-ary response, local hashing, Hadamard, count-mean sketch.

Each is chosen with the least odds of a lie that keep epsilon in whole numbers; see `randomizer` for what they share
and docs/proofs/local_categorical.md for the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.local.bits import Ints, Rows, coins, column_sums, padding, set_truth
from kasuri.local.odds import BITS, least, within
from kasuri.local.randomizer import (
    MAX_BUCKETS,
    Law,
    Randomizer,
    Word,
    bytes_for,
    domain_of,
    little,
    number_of,
    words_of,
)
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, asked
from kasuri.schema import Axis, Domain


@dataclass(frozen=True)
class Unary(Randomizer):
    """One bit per category, each flipped on its own: RAPPOR's basic form (`unary`) and OUE (`oue`).

    P(bit = 1) is p/N for the true category and q/N for every other. Two categories differ in two bits, so the worst
    ratio is p (N - q) / (q (N - p)). [Horigome2020, A.2; Wang2017, sec. 4.2-4.3]
    """

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "unary" if self.p == self.words - self.q else "oue"

    @property
    def law(self) -> Law:
        N = self.words
        return Law(Fraction(self.p, N), Fraction(self.q, N), Fraction(self.p * (N - self.q), self.q * (N - self.p)))

    @property
    def width(self) -> int:
        return -(-self.size // 8)

    def report(self, category: int, word: Word) -> bytes:
        sent = 0
        for x in range(self.size):
            sent |= int(word() < (self.p if x == category else self.q)) << x
        return sent.to_bytes(self.width, "little")

    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows:
        n = categories.size
        noise = coins(streams, "others", block, 8 * self.width * n, self.q, self.bits)
        rows = noise.view(np.uint8)[: n * self.width].reshape(n, self.width)
        set_truth(rows, categories, coins(streams, "truth", block, n, self.p, self.bits), self.size)
        return rows

    def supports(self, rows: Rows) -> Rows:
        return rows

    def agreeing(self, rows: Rows) -> Ints:
        return column_sums(rows, self.size)

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        return padding(rows, self.size)


@dataclass(frozen=True)
class Grr(Randomizer):
    """Generalised (k-ary) randomised response: the true category with p/N, each other with q/N, p + (d-1) q = N."""

    kind: ClassVar[str] = "grr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p + (self.size - 1) * self.q != self.words:
            raise PrivacyError("grr: p + (d - 1) q must be 2^bits")

    @property
    def law(self) -> Law:
        return Law(Fraction(self.p, self.words), Fraction(self.q, self.words), Fraction(self.p, self.q))

    @property
    def width(self) -> int:
        return bytes_for(self.size)

    def report(self, category: int, word: Word) -> bytes:
        return _respond(category, word(), self.p, self.q).to_bytes(self.width, "little")

    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows:
        from kasuri._kernels.local import k_ary

        out = np.empty_like(categories)
        k_ary(words_of(streams, "response", block, out.size), categories, self.size, self.p, self.q, self.bits, out)
        return little(out, self.width)

    def supports(self, rows: Rows) -> Rows:
        sent = number_of(rows)
        out = np.zeros((sent.size, -(-self.size // 8)), dtype=np.uint8)
        out[np.arange(sent.size), sent >> 3] = np.left_shift(1, sent & 7).astype(np.uint8)
        return out

    def agreeing(self, rows: Rows) -> Ints:
        return np.bincount(number_of(rows), minlength=self.size).astype(np.int64)

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        return number_of(rows) >= self.size


def _respond(category: int, u: int, keep: int, other: int) -> int:
    """Randomised response by one word u: the first `keep` words stay, `other` words go to each further category."""
    if u < keep:
        return category
    y = (u - keep) // other
    return y + (y >= category)


@dataclass(frozen=True)
class Olh(Randomizer):
    """Local hashing: a public random hash puts the category in one of g buckets, k-ary response on the bucket.

    The seed is drawn before and apart from the category, so the report (seed, y) has the ratio p/q of the response.
    [Wang2017, sec. 4.4]
    """

    buckets: int = field(kw_only=True)
    kind: ClassVar[str] = "olh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.buckets <= MAX_BUCKETS or self.p + (self.buckets - 1) * self.q != self.words:
            raise PrivacyError(f"olh: 2 to {MAX_BUCKETS} buckets, and p + (buckets - 1) q must be 2^bits")

    @property
    def law(self) -> Law:
        return Law(Fraction(self.p, self.words), Fraction(1, self.buckets), Fraction(self.p, self.q))

    @property
    def width(self) -> int:
        return 4 + bytes_for(self.buckets)

    def report(self, category: int, word: Word) -> bytes:
        seed = word()
        sent = _respond(bucket(seed, category, self.buckets), word(), self.p, self.q)
        return seed.to_bytes(4, "little") + sent.to_bytes(self.width - 4, "little")

    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows:
        from kasuri._kernels.local import hash_values, k_ary

        n = categories.size
        seeds = words_of(streams, "seed", block, n) >> np.uint32(BITS - self.bits)
        hashed, out = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        hash_values(seeds, categories, self.buckets, hashed)
        k_ary(words_of(streams, "response", block, n), hashed, self.buckets, self.p, self.q, self.bits, out)
        return np.hstack((little(seeds.astype(np.int64), 4), little(out, self.width - 4)))

    def supports(self, rows: Rows) -> Rows:
        from kasuri._kernels.local import hash_supports

        out = np.zeros((rows.shape[0], -(-self.size // 8)), dtype=np.uint8)
        hash_supports(*self._split(rows), self.size, self.buckets, out)
        return out

    def agreeing(self, rows: Rows) -> Ints:
        from kasuri._kernels.local import hash_counts

        out = np.zeros(self.size, dtype=np.int64)
        hash_counts(*self._split(rows), self.size, self.buckets, out)
        return out

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        seeds, sent = self._split(rows)
        return (sent >= self.buckets) | (seeds >= self.words)

    def _split(self, rows: Rows) -> tuple[NDArray[Any], Ints]:
        return number_of(rows[:, :4]).astype(np.uint32), number_of(rows[:, 4:])


@dataclass(frozen=True)
class Hadamard(Randomizer):
    """Hadamard response: one random coefficient of the category's row of a Hadamard matrix, as a sign that is flipped
    with probability 1 - p/N. Report 2 j + b with j uniform on 0 .. D-1; category x agrees where <j, x+1> = b."""

    kind: ClassVar[str] = "hadamard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p + self.q != self.words or self.order > self.bits:
            raise PrivacyError("hadamard: p + q must be 2^bits, and D = 2^order at most 2^bits")

    @property
    def order(self) -> int:
        """D = 2^order is the least power of two above d: row 0 is constant and belongs to no category."""
        return self.size.bit_length()

    @property
    def law(self) -> Law:
        return Law(Fraction(self.p, self.words), Fraction(1, 2), Fraction(self.p, self.q))

    @property
    def width(self) -> int:
        return bytes_for(2 << self.order)

    def report(self, category: int, word: Word) -> bytes:
        j = word() >> (self.bits - self.order)
        sign = (j & (category + 1)).bit_count() & 1
        return (2 * j + (sign ^ (word() >= self.p))).to_bytes(self.width, "little")

    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows:
        from kasuri._kernels.local import hadamard_reports

        out = np.empty_like(categories)
        words = words_of(streams, "response", block, 2 * out.size)
        hadamard_reports(words, categories, self.p, self.order, self.bits, out)
        return little(out, self.width)

    def supports(self, rows: Rows) -> Rows:
        from kasuri._kernels.local import hadamard_supports

        out = np.zeros((rows.shape[0], -(-self.size // 8)), dtype=np.uint8)
        hadamard_supports(number_of(rows), self.size, out)
        return out

    def agreeing(self, rows: Rows) -> Ints:
        from kasuri._kernels.local import walsh

        seen = np.bincount(number_of(rows), minlength=2 << self.order).astype(np.int64).reshape(-1, 2)
        spectrum = seen[:, 0] - seen[:, 1]
        walsh(spectrum)  # [x] = agreeing - disagreeing reports of row x
        return (rows.shape[0] + spectrum[1 : self.size + 1]) // 2

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        return number_of(rows) >= 2 << self.order


@dataclass(frozen=True)
class CountMeanSketch(Randomizer):
    """Count-mean sketch for large domains: hash number j of `hashes` (public, uniform) puts the category in one of m
    buckets; the report is j and a unary report over the m buckets. [Apple2017]"""

    buckets: int = field(kw_only=True)
    hashes: int = field(kw_only=True)
    kind: ClassVar[str] = "count_mean_sketch"

    def __post_init__(self) -> None:
        faults = []
        if not 2 <= self.buckets <= MAX_BUCKETS:
            faults.append(f"count_mean_sketch: 2 to {MAX_BUCKETS} buckets")
        if self.hashes < 1 or self.hashes & (self.hashes - 1) or self.hashes > min(self.words, 1 << 16):
            faults.append("count_mean_sketch: hashes must be a power of two, at most 2^16 and 2^bits")
        raise_faults(DomainError, faults)
        super().__post_init__()

    @property
    def law(self) -> Law:
        N, m = self.words, self.buckets
        q = Fraction(self.p, N * m) + Fraction(self.q * (m - 1), N * m)
        return Law(Fraction(self.p, N), q, Fraction(self.p * (N - self.q), self.q * (N - self.p)))

    @property
    def width(self) -> int:
        return 2 + -(-self.buckets // 8)

    def report(self, category: int, word: Word) -> bytes:
        j = word() * self.hashes >> self.bits
        true = bucket(j, category, self.buckets)
        sent = 0
        for x in range(self.buckets):
            sent |= int(word() < (self.p if x == true else self.q)) << x
        return j.to_bytes(2, "little") + sent.to_bytes(self.width - 2, "little")

    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows:
        from kasuri._kernels.local import hash_values

        n, width = categories.size, self.width - 2
        chosen = (words_of(streams, "seed", block, n).astype(np.int64) * self.hashes) >> BITS
        hashed = np.empty(n, dtype=np.int64)
        hash_values(chosen.astype(np.uint32), categories, self.buckets, hashed)
        sent = coins(streams, "others", block, 8 * width * n, self.q, self.bits).view(np.uint8)
        rows = sent[: n * width].reshape(n, width)
        set_truth(rows, hashed, coins(streams, "truth", block, n, self.p, self.bits), self.buckets)
        return np.hstack((little(chosen, 2), rows))

    def sketch(self, rows: Rows) -> Ints:
        """Set bits by hash and bucket: the whole state an inversion needs, whatever the number of categories."""
        chosen = number_of(rows[:, :2])
        out = np.zeros((self.hashes, self.buckets), dtype=np.int64)
        ranked = np.argsort(chosen, kind="stable")
        edges = np.searchsorted(chosen[ranked], np.arange(self.hashes + 1))
        for j in np.flatnonzero(np.diff(edges)):
            out[j] = column_sums(rows[ranked[edges[j] : edges[j + 1]], 2:], self.buckets)
        return out

    def places(self) -> Ints:
        """[j, x]: the bucket of category x under hash j."""
        from kasuri._kernels.local import categories_of

        out = np.empty((self.hashes, self.size), dtype=np.int64)
        for j in range(self.hashes):
            categories_of(j, self.size, self.buckets, out[j])
        return out

    def supports(self, rows: Rows) -> Rows:
        chosen, places = number_of(rows[:, :2]), self.places()
        bits = np.unpackbits(rows[:, 2:], axis=1, bitorder="little")
        return np.packbits(np.take_along_axis(bits, places[chosen], axis=1), axis=1, bitorder="little")

    def agreeing(self, rows: Rows) -> Ints:
        from kasuri._kernels.local import categories_of

        sketch, out, place = self.sketch(rows), np.zeros(self.size, dtype=np.int64), np.empty(self.size, dtype=np.int64)
        for j in range(self.hashes):
            categories_of(j, self.size, self.buckets, place)
            out += sketch[j][place]
        return out

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        return (number_of(rows[:, :2]) >= self.hashes) | padding(rows[:, 2:], self.buckets)


def bucket(seed: int, category: int, buckets: int) -> int:
    """Hash number `seed` of a category, 0 .. buckets - 1: murmur3's finaliser twice, the high part kept."""
    return _mix(seed ^ _mix(category * 0x9E3779B9 + 1 & 0xFFFFFFFF)) * buckets >> 32


def _mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x85EBCA6B & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


Places: TypeAlias = Domain | Axis


def unary(places: Places, *, epsilon: Exact, elsewhere: bool = True, bits: int = BITS) -> Unary:
    """Symmetric unary encoding (basic RAPPOR): every bit kept with p = e^(eps/2) / (1 + e^(eps/2)), rounded towards
    privacy: the least q of the word size with ((N - q)/q)^2 <= e^epsilon. [Horigome2020, A.2]"""
    eps, N = asked(epsilon), 1 << bits
    q = least(1, N // 2, lambda k: within(Fraction((N - k) ** 2, k * k), eps))
    return Unary(domain_of(places), eps, N - q, q, elsewhere, bits=bits)


def oue(places: Places, *, epsilon: Exact, elsewhere: bool = True, bits: int = BITS) -> Unary:
    """Optimised unary encoding: p = 1/2 and the least q with (N - q)/q <= e^epsilon. [Wang2017, sec. 4.3]"""
    eps, N = asked(epsilon), 1 << bits
    q = least(1, N // 2, lambda k: within(Fraction(N - k, k), eps))
    return Unary(domain_of(places), eps, N // 2, q, elsewhere, bits=bits)


def _response(size: int, epsilon: Fraction, bits: int) -> tuple[int, int]:
    """(p, q) of k-ary response: the least q with p/q <= e^epsilon, p = N - (size - 1) q."""
    N = 1 << bits
    q = least(1, N // size, lambda k: within(Fraction(N - (size - 1) * k, k), epsilon))
    return N - (size - 1) * q, q


def grr(places: Places, *, epsilon: Exact, elsewhere: bool = True, bits: int = BITS) -> Grr:
    """Generalised randomised response: best for few categories (d < 3 e^eps + 2)."""
    domain, eps = domain_of(places), asked(epsilon)
    return Grr(domain, eps, *_response(domain.size + elsewhere, eps, bits), elsewhere, bits=bits)


def olh(places: Places, *, epsilon: Exact, elsewhere: bool = True, buckets: int | None = None, bits: int = BITS) -> Olh:
    """Optimised local hashing, g = round(e^eps) + 1 buckets: OUE's accuracy at five or six bytes a report."""
    eps = asked(epsilon)
    g = buckets if buckets is not None else min(max(2, round(math.exp(min(float(eps), 20.0))) + 1), MAX_BUCKETS)
    return Olh(domain_of(places), eps, *_response(g, eps, bits), elsewhere, buckets=g, bits=bits)


def hadamard(places: Places, *, epsilon: Exact, elsewhere: bool = True, bits: int = BITS) -> Hadamard:
    """Hadamard response: one sign of one coefficient, two to four bytes; near the best accuracy for small epsilon."""
    eps = asked(epsilon)
    return Hadamard(domain_of(places), eps, *_response(2, eps, bits), elsewhere, bits=bits)


def count_mean_sketch(
    places: Places,
    *,
    epsilon: Exact,
    elsewhere: bool = True,
    buckets: int = 256,
    hashes: int = 1024,
    bits: int = BITS,
) -> CountMeanSketch:
    """Count-mean sketch: reports of buckets/8 + 2 bytes whatever the number of categories; symmetric bits."""
    eps, N = asked(epsilon), 1 << bits
    q = least(1, N // 2, lambda k: within(Fraction((N - k) ** 2, k * k), eps))
    return CountMeanSketch(domain_of(places), eps, N - q, q, elsewhere, bits=bits, buckets=buckets, hashes=hashes)


KINDS: dict[str, type[Randomizer]] = {
    "count_mean_sketch": CountMeanSketch,
    "grr": Grr,
    "hadamard": Hadamard,
    "olh": Olh,
    "oue": Unary,
    "unary": Unary,
}
MAKERS: dict[str, Callable[..., Randomizer]] = {
    "count_mean_sketch": count_mean_sketch,
    "grr": grr,
    "hadamard": hadamard,
    "olh": olh,
    "oue": oue,
    "unary": unary,
}
"""Every randomizer of categories by name; the contract tests run over all of them."""
