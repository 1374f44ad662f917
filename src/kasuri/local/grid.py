"""A randomizer of numbers on public grids: what every one of them does, and the one that is given by its matrix.

A number x in [low, high] is first rounded at random to one of the steps + 1 points g of a public grid (mean x), and
then row g of an integer matrix W is drawn from: P(output y | g) = W[g, y] / N, N = 2^bits, every row summing to N.
The worst ratio of two entries of one column is the loss, compared exactly with e^epsilon. The families are in
`local.numeric`. Proof: docs/proofs/local_numeric.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, FormatError, PrivacyError, raise_faults
from kasuri.local.odds import BITS, demand
from kasuri.local.randomizer import (
    WIRE_VERSION,
    Reports,
    Rows,
    Word,
    bytes_for,
    fingerprint_of,
    fresh,
    little,
    number_of,
    trusted,
    words_of,
)
from kasuri.noise.rng import Source, Streams
from kasuri.privacy import Guarantee, decimal

Outputs = NDArray[np.int64]

_MAX_STEPS = 1 << 10
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Numeric(ABC):
    """A randomizer of numbers in [low, high].

    Privacy: Neighbours: one person's number changes to any other in the bounds. Sensitivity: the worst ratio within a
    column of W, in exact integers. Guarantee: epsilon per fresh report. Proof: docs/proofs/local_numeric.md. Public:
    the bounds, the grid, the randomizer. Assumes: the device draws uniform words.
    """

    low: Fraction
    high: Fraction
    epsilon: Fraction
    steps: int
    bits: int = field(default=BITS, kw_only=True)
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        faults = []
        if not self.low < self.high:
            faults.append(f"{self.kind}: bounds must be two numbers low < high")
        if not 2 <= self.steps <= _MAX_STEPS or self.steps % 2:
            faults.append(f"{self.kind}: steps must be an even number from 2 to {_MAX_STEPS}")
        if not 1 <= self.bits <= BITS:
            faults.append(f"bits must be 1 to {BITS}")
        raise_faults(DomainError, faults)
        demand(self.ratio, self.epsilon, f"the {self.kind} randomizer")

    @property
    def words(self) -> int:
        return 1 << self.bits

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The worst ratio of two probabilities of the same output."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs."""

    @property
    @abstractmethod
    def channel(self) -> NDArray[np.float64]:
        """P(output | g): (steps + 1, outputs), for estimators."""

    @abstractmethod
    def _choose(self, g: int, word: Word) -> int: ...

    @abstractmethod
    def _draw(self, g: Outputs, streams: Streams, block: int) -> Outputs: ...

    @property
    @abstractmethod
    def values(self) -> tuple[Fraction, ...]:
        """Unbiased value of each output, on the scale where the bounds are -1 and 1."""

    @property
    @abstractmethod
    def squares(self) -> tuple[Fraction, ...] | None:
        """Unbiased value of the square of each output's source on the same scale; None where no such value exists."""

    @property
    @abstractmethod
    def bias(self) -> Fraction:
        """The largest |mean of values - v| over the grid, in exact arithmetic (0 where the randomizer is unbiased)."""

    @property
    def width(self) -> int:
        """Bytes of one report."""
        return bytes_for(self.outputs)

    @property
    def size(self) -> int:
        """Length of what `agreeing` counts: the outputs."""
        return self.outputs

    def agreeing(self, rows: Rows) -> Outputs:
        """For each output the number of reports that are it."""
        return np.bincount(number_of(rows), minlength=self.outputs)

    def bad_rows(self, rows: Rows) -> NDArray[np.bool_]:
        """True where a report is not one that this randomizer can send."""
        return number_of(rows) >= self.outputs

    def check(self, rows: Rows) -> None:
        """Refuse rows that are not reports of this randomizer."""
        if rows.dtype != np.uint8:
            raise FormatError(f"reports of {self.kind} are rows of {self.width} bytes")
        self.unpack(rows)

    def guarantee(self, *, reports: int = 1, person: str = "person") -> Guarantee:
        """The claim for a person who sends `reports` fresh reports."""
        return fresh(self.epsilon, reports, person, "docs/proofs/local_numeric.md")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, which every report of this randomizer carries."""
        return fingerprint_of(self.to_json())

    def report(self, x: float | Fraction, word: Word) -> int:
        """One output, as a device draws it: a word rounds x to the grid, a word chooses the output."""
        return self.draw(self.at(x), word)

    def draw(self, at: Fraction, word: Word) -> int:
        """The same from a place on the grid that `at` gave."""
        g = math.floor(at)
        g += word() < math.floor((at - g) * self.words)
        return self._choose(g, word)

    def at(self, x: object) -> Fraction:
        """Where a number lies on the grid, from 0 to steps; one outside the bounds, or not a number, is refused."""
        if isinstance(x, bool) or not isinstance(x, int | float | Fraction):
            raise DomainError("the value is not a number")
        try:
            at = (Fraction(x) - self.low) * self.steps / (self.high - self.low)
        except (ValueError, OverflowError):
            raise DomainError("the value is not a number") from None
        if not 0 <= at <= self.steps:
            raise DomainError("the number lies outside the bounds: clip it on the device")
        return at

    def randomize(self, numbers: ArrayLike, *, source: Source | None = None) -> Reports:
        """Reports of many numbers: exact law, bulk speed."""
        x = np.asarray(numbers, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            at = (x - float(self.low)) * (self.steps / float(self.high - self.low))
        bad = ~((x >= float(self.low)) & (x <= float(self.high)))
        if x.ndim != 1 or bad.any():
            raise DomainError(
                f"{int(bad.sum())} of {x.size} numbers lie outside the bounds or are NaN: clip them on the device"
            )
        at = np.clip(at, 0, self.steps)
        source = trusted(source)
        streams = Streams(source.release_key(), f"local.{self.kind}")
        out = np.empty(x.size, dtype=np.int64)
        for block, first in enumerate(range(0, x.size, _BLOCK)):
            part = at[first : first + _BLOCK]
            floor = np.floor(part)
            up = self._word(streams, "round", block, part.size) < np.floor((part - floor) * self.words)
            out[first : first + _BLOCK] = self._draw(floor.astype(np.int64) + up, streams, block)
        return Reports(little(out, self.width), self.fingerprint, source.secure)

    def _word(self, streams: Streams, purpose: str, block: int, size: int) -> Outputs:
        return words_of(streams, purpose, block, size).astype(np.int64) >> (BITS - self.bits)

    def pack(self, reports: Reports) -> Rows:
        """Reports as the rows of `width` bytes that are sent; those of a seed or of another randomizer are refused."""
        return reports.leave(self.fingerprint)

    def unpack(self, rows: Rows) -> Outputs:
        """Rows of bytes as outputs; refuses what this randomizer cannot send."""
        if rows.ndim != 2 or rows.shape[1] != self.width or (number_of(rows) >= self.outputs).any():
            raise FormatError(f"reports of {self.kind} are rows of {self.width} bytes below {self.outputs}")
        return number_of(rows)

    def debiased(self, outputs: Outputs) -> NDArray[np.float64]:
        """The unbiased number of each output, on the scale of the bounds (far outside them: it is noise)."""
        table = np.array([float(t) for t in self.values])
        return float(self.low) + float(self.high - self.low) * (1 + table[outputs]) / 2

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kasuri": "local numeric", "version": WIRE_VERSION, "kind": self.kind}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Fraction):
                value = decimal(value)
            elif isinstance(value, Numeric):
                value = value.to_json()
            data[f.name] = list(value) if isinstance(value, tuple) else value
        return data


@dataclass(frozen=True)
class Table(Numeric):
    """A randomizer given by its integer matrix W: (steps + 1, outputs), rows of sum 2^bits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weights < 0).any() or (self.weights.sum(axis=1) != self.words).any():
            raise PrivacyError(f"{self.kind}: every row of its probabilities must be whole numbers >= 0 of sum 2^bits")

    @abstractmethod
    def _row(self, g: int) -> list[int]: ...

    @cached_property
    def weights(self) -> Outputs:
        """W."""
        return np.array([self._row(g) for g in range(self.steps + 1)], dtype=np.int64)

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[1])

    @property
    def channel(self) -> NDArray[np.float64]:
        return self.weights.astype(np.float64) / self.words

    @cached_property
    def ratio(self) -> Fraction:
        least_, most = self.weights.min(axis=0), self.weights.max(axis=0)
        if (least_[most > 0] == 0).any():
            raise PrivacyError(f"{self.kind}: an output that some number can give and another cannot")
        pairs = zip(most[most > 0].tolist(), least_[most > 0].tolist(), strict=True)
        return max(Fraction(a, b) for a, b in pairs)

    @cached_property
    def bias(self) -> Fraction:
        worst = Fraction(0)
        for g in range(self.steps + 1):
            row = self.weights[g].tolist()
            mean = sum((Fraction(w) * t for w, t in zip(row, self.values, strict=True)), Fraction(0)) / self.words
            worst = max(worst, abs(mean - Fraction(2 * g - self.steps, self.steps)))
        return worst

    def _choose(self, g: int, word: Word) -> int:
        return bisect_right(self._edges[g].tolist(), word())

    @cached_property
    def _edges(self) -> Outputs:
        return np.cumsum(self.weights, axis=1)

    def _draw(self, g: Outputs, streams: Streams, block: int) -> Outputs:
        u = self._word(streams, "output", block, g.size)
        offsets = np.arange(self.steps + 1, dtype=np.int64) * self.words
        flat = (self._edges + offsets[:, None]).ravel()
        return np.searchsorted(flat, u + offsets[g], side="right") - g * self.outputs
