"""What every randomizer of categories is: a frozen, public value that a device reads and an estimator inverts.

It is made of whole numbers. With N = 2^bits a device draws words u uniform on 0..N-1 and
compares them with thresholds, so that each probability is exactly k/N; the claim is computed from those k, never from
the formula they came from. A report is a few bytes; each category x either agrees with it (x is in its support) or
does not, and

    P(report | true x) = C(report) * (ratio if x in support else 1),     ratio <= e^epsilon.

That one line is the privacy proof (docs/proofs/local_categorical.md) and all an estimator needs.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.local.bits import Ints, Rows
from kasuri.local.odds import BITS, demand
from kasuri.noise.rng import Source, Streams, secure
from kasuri.privacy import Guarantee, decimal
from kasuri.schema import Axis, Domain, Unit

Word = Callable[[], int]
"""Gives the next random word, uniform on 0 .. 2^bits - 1."""

ELSEWHERE = "elsewhere"
WIRE_VERSION = 1
BLOCK = 1 << 16
"""Reports per keystream: a public constant, so that threads and restarts draw the same bits for the same place."""
MAX_CATEGORIES = 1 << 20
MAX_BUCKETS = 1 << 16
ONE_DEVICE = "a person reports with one device"
PUBLIC = ("domain", "randomizer", "that a person takes part", "number of reports")


@dataclass(frozen=True)
class Law:
    """What an estimator needs to know of a randomizer, in exact rationals.

    p: probability that the true category agrees with the report; q: that another one does; ratio: P(report | x) for a
    category that agrees, over one that does not.
    """

    p: Fraction
    q: Fraction
    ratio: Fraction


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """Randomised reports, one packed row of `width` bytes each, and the randomizer's fingerprint."""

    rows: Rows
    fingerprint: str
    secure: bool = True
    """False for reports of a seeded source: for tests only, and what stores or sends them refuses them."""

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __repr__(self) -> str:
        seeded = "" if self.secure else ", seeded: for tests only"
        return f"Reports({len(self)} of {self.rows.shape[1]} bytes, randomizer {self.fingerprint[:12]}{seeded})"

    def leave(self, fingerprint: str) -> Rows:
        """The rows, to be stored or sent as reports of the randomizer with this fingerprint; else refused."""
        if not self.secure:
            raise PrivacyError("seeded reports are for tests: they cannot be saved. Randomise again without a seed")
        if self.fingerprint != fingerprint:
            raise PrivacyError("these reports were made by another randomizer (its fingerprint differs)")
        return self.rows


@dataclass(frozen=True)
class Randomizer(ABC):
    """What a device needs to know, and nothing else: public, JSON, versioned.

    Privacy: Neighbours: one person's category changes to any other (local: no trusted party). Sensitivity: the worst
    ratio of the probabilities of one report, in exact integers. Guarantee: epsilon per fresh report, k reports cost
    k epsilon. Proof: docs/proofs/local_categorical.md. Public: the domain, the randomizer, that a person takes part.
    Assumes: the device draws uniform words and reports as often as it says, and is a person's only one.
    """

    domain: Domain
    epsilon: Fraction
    p: int
    """Words (of 2^bits) that keep the truth: true bit sent as 1, category kept, sign kept."""
    q: int
    """Words that send a false bit as 1, or one particular other category."""
    elsewhere: bool = True
    bits: int = field(default=BITS, kw_only=True)
    kind: ClassVar[str]
    basis: ClassVar[str] = "docs/proofs/local_categorical.md"

    def __post_init__(self) -> None:
        faults = []
        if self.domain.mask:
            faults.append("local randomizers take a domain without a mask: list the possible places as labels")
        if any(axis.plane is not None and axis.elsewhere for axis in self.domain.axes):
            faults.append("a randomizer adds elsewhere itself: leave elsewhere out of the mesh")
        if not 1 <= self.bits <= BITS:
            faults.append(f"bits must be 1 to {BITS}")
        elif not (0 < self.q < self.p < self.words):
            faults.append(
                "probabilities must satisfy 0 < q < p < 2^bits: the random numbers have too few bits, or epsilon is "
                "too small for them"
            )
        if not 2 <= self.size <= MAX_CATEGORIES:
            faults.append(f"{self.size} categories; a randomizer takes 2 to {MAX_CATEGORIES}")
        if self.elsewhere and any(ELSEWHERE in (axis.labels or ()) for axis in self.domain.axes):
            faults.append(f"the label {ELSEWHERE!r} is the one that is added; leave it out, or give elsewhere=False")
        raise_faults(DomainError, faults)
        demand(self.law.ratio, self.epsilon, f"the {self.kind} randomizer")

    @property
    def words(self) -> int:
        """N = 2^bits; 0, which every check refuses, where the bits of a description are out of range."""
        return 1 << self.bits if 1 <= self.bits <= BITS else 0

    @cached_property
    def size(self) -> int:
        """Number of categories d, "elsewhere" included (it is the last)."""
        return self.domain.size + int(self.elsewhere)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the categories: labels where the domain has one labelled axis, else cell numbers."""
        own = self.domain.axes[0].labels if len(self.domain.axes) == 1 else None
        named = tuple(own) if own else tuple(str(cell) for cell in range(self.domain.size))
        return (*named, ELSEWHERE) if self.elsewhere else named

    @property
    @abstractmethod
    def law(self) -> Law: ...

    @property
    @abstractmethod
    def width(self) -> int:
        """Bytes of one report."""

    @abstractmethod
    def report(self, category: int, word: Word) -> bytes:
        """One report, as a device makes it: the reference that every client must equal, word for word."""

    @abstractmethod
    def _draw(self, categories: Ints, streams: Streams, block: int) -> Rows: ...

    @abstractmethod
    def supports(self, rows: Rows) -> Rows:
        """For each report its support, packed to ceil(d/8) bytes."""

    @abstractmethod
    def agreeing(self, rows: Rows) -> Ints:
        """For each category the number of reports that agree with it."""

    @abstractmethod
    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        """True where a report is not one that this randomizer can send."""

    def guarantee(self, *, reports: int = 1, person: str = "person") -> Guarantee:
        """The claim for a person who sends `reports` fresh reports."""
        return fresh(self.epsilon, reports, person, self.basis)

    def categories(self, values: Any) -> Ints:
        """Category numbers of labels, cell numbers, or None (elsewhere). A value outside the domain is refused.

        Where a label is a numeral ("1", "13101"), a whole number, or a float that is one, is looked up by its digits
        as a label; elsewhere it is the number of a category. This depends on the public labels alone.
        """
        texts = _texts(values)
        array = None if texts is not None else np.asarray(values)
        if array is not None and array.ndim != 1:
            raise DomainError("values must be one list, one category for each report")
        if array is not None and array.dtype.kind in "iu" and not self._numerals:
            found = array.astype(np.int64)
            bad = (array < 0) | (array >= self.size)
        else:
            index: dict[Any, int] = {label: i for i, label in enumerate(self.labels)}
            if self.elsewhere:
                index[None] = self.size - 1
            if array is not None:
                found = np.array([self._look_up(value, index) for value in array.tolist()], dtype=np.int64)
            else:
                assert texts is not None
                codes, different = texts
                found = np.array([index.get(text, -1) for text in different], dtype=np.int64)[codes]
            bad = found < 0
        if bad.any():
            where = int(np.flatnonzero(bad)[0])
            raise DomainError(
                f"{int(bad.sum())} of {found.size} values (the first at position {where}) are not among the "
                f"{self.size} categories; a place outside the domain is reported as {ELSEWHERE!r}"
            )
        return found

    @cached_property
    def _numerals(self) -> bool:
        own = self.domain.axes[0].labels if len(self.domain.axes) == 1 else None
        return any(_is_numeral(label) for label in own or ())

    def _look_up(self, value: Any, index: Mapping[Any, int]) -> int:
        if isinstance(value, bool):
            return -1
        if self._numerals and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int):
            if self._numerals:
                return index.get(str(value), -1)
            return value if 0 <= value < self.size else -1
        try:
            return index.get(value, -1)
        except TypeError:
            return -1

    def randomize(self, values: ArrayLike | Sequence[str | None], *, source: Source | None = None) -> Reports:
        """Randomise one value per person: exact law, bulk speed. `source` is `secure()` unless a test is seeded.

        Cost: about 8 random bits per bit sent for unary reports, 64 per report for the others.
        """
        categories = self.categories(values)
        source = trusted(source)
        streams = Streams(source.release_key(), f"local.{self.kind}")
        rows = np.empty((categories.size, self.width), dtype=np.uint8)
        for block, start in enumerate(range(0, categories.size, BLOCK)):
            stop = min(start + BLOCK, categories.size)
            rows[start:stop] = self._draw(categories[start:stop], streams, block)
        return Reports(rows, self.fingerprint, source.secure)

    def check(self, rows: Rows) -> None:
        """Refuse rows that are not reports of this randomizer."""
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self.width:
            raise FormatError(f"reports of {self.kind} are rows of {self.width} bytes")
        bad = self.bad_rows(rows)
        if bad.any():
            raise FormatError(f"{int(bad.sum())} of {rows.shape[0]} reports are not ones that {self.kind} can send")

    def to_json(self) -> dict[str, Any]:
        more = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("domain", "epsilon")}
        return {
            "kasuri": "local randomizer",
            "version": WIRE_VERSION,
            "kind": self.kind,
            "domain": self.domain.to_json(),
            "epsilon": decimal(self.epsilon),
            **more,
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON: reports of another randomizer, or another version, do not match it."""
        return fingerprint_of(self.to_json())


_MANY = 1000
"""Fewer values are looked up one by one: a device has one, and need not load Arrow for it."""


def _texts(values: Any) -> tuple[Ints, list[str | None]] | None:
    """(number of the text of each value, the different texts) where the values are many and all text or None; else
    None. Each different text is then looked up once, not each value."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "UO":
        values = values.tolist()  # numpy's fixed-width text is read faster as Python's
    if not isinstance(values, (list, tuple)) and not type(values).__module__.startswith("pyarrow"):
        return None
    if len(values) < _MANY:
        return None
    import pyarrow as pa

    try:
        arrow = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None  # values of several kinds: looked up one by one
    if not pa.types.is_string(arrow.type) and not pa.types.is_large_string(arrow.type):
        return None
    whole = arrow.combine_chunks() if isinstance(arrow, pa.ChunkedArray) else arrow
    coded = whole.dictionary_encode()
    different: list[str | None] = [*coded.dictionary.to_pylist(), None]
    codes = coded.indices.fill_null(len(different) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, different


def fingerprint_of(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(description)).hexdigest()


def fresh(epsilon: Fraction, reports: int, person: str, basis: str) -> Guarantee:
    """The claim for a person who sends `reports` fresh reports of `epsilon` each."""
    if not isinstance(reports, int) or isinstance(reports, bool) or reports < 1:
        raise PrivacyError("reports must be a whole number of at least 1: how often one person reports")
    return Guarantee(
        "local",
        epsilon * reports,
        Fraction(0),
        Unit(person, "replace", reports),
        PUBLIC,
        (f"a device sends at most {reports} report{'s' if reports > 1 else ''} of this randomizer", ONE_DEVICE),
        basis,
    )


def trusted(source: Source | None) -> Source:
    """The source to draw from; an object that only looks like one could say `secure` of anything."""
    if source is None:
        return secure()
    if type(source) is not Source:
        raise PrivacyError("source must be ks.secure() or ks.seeded(n)")
    return source


def _is_numeral(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def canonical(data: Any) -> bytes:
    """JSON with sorted keys and no spaces, UTF-8: the bytes that are signed and fingerprinted."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def domain_of(places: Domain | Axis) -> Domain:
    return places if isinstance(places, Domain) else Domain.of(places)


def little(numbers: Ints, width: int) -> Rows:
    """Numbers as little-endian rows of `width` bytes."""
    return np.ascontiguousarray(numbers.astype("<u8")).view(np.uint8).reshape(-1, 8)[:, :width]


def number_of(rows: Rows) -> Ints:
    """Little-endian rows back to numbers."""
    out = np.zeros(rows.shape[0], dtype=np.int64)
    for k in range(rows.shape[1]):
        out |= rows[:, k].astype(np.int64) << (8 * k)
    return out


def bytes_for(count: int) -> int:
    """Bytes that hold the numbers 0 .. count - 1: 1, 2 or 4."""
    return 1 if count <= 1 << 8 else 2 if count <= 1 << 16 else 4


def words_of(streams: Streams, purpose: str, block: int, size: int) -> NDArray[np.uint32]:
    words = np.empty(size, dtype=np.uint32)
    streams.open(purpose, 0, block).fill(words)
    return words
