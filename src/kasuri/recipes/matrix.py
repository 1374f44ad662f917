"""Matrix: a measured matrix of whole numbers on a small table, given, optimised for a workload, or Fourier rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact
from kasuri.public import PublicMatrix
from kasuri.published.bars import MatrixBars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes import strategy as matrices
from kasuri.recipes.mechanism import Bias, Drawn, Mechanism, NoForm, Run, kept, scale_of
from kasuri.recipes.strategy import Matrix, Strategy
from kasuri.refine.least_squares import nonnegative_fit
from kasuri.schema import Domain, Unit

NO_FORM = "no closed form for matrix: its error differs from cell to cell, as the strategy does"
MOST_WRITTEN = 1 << 16
"""Most characters of a measured matrix that a release writes out: enough for about 128 cells."""
WRITTEN = 1 << 10
"""Most characters of a matrix that a release writes out; of a larger one it tells the fingerprint."""


QUICK = 1 << 7
"""Cells of the largest table for which a strategy is optimised in a second or two."""


def fourier(ways: int = 1) -> Mechanism:
    """Noisy Fourier (Walsh) coefficients of all tables over `ways` dimensions, then the nearest non-negative table.

    A linear program finds the table x >= 0 whose coefficients are nearest to the noisy ones (largest distance), rounded
    to whole numbers. Only the tables over at most `ways` dimensions are measured: anything finer is made up. Up to 1024
    cells, each dimension padded to a power of two.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the number of coefficients, each of which a count
    moves by 1 (add-remove); c times the largest distance of two columns of the measured matrix (replace).
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/fourier.md. Public: domain, mask, ways.
    Assumes: a good keystream.

    Cost: a linear program of n variables. References: [Barak2007].
    """
    if not isinstance(ways, int) or isinstance(ways, bool) or ways < 1:
        raise DomainError("fourier: ways is a whole number of dimensions, from 1 on")
    return Fourier("fourier", "docs/proofs/fourier.md", ways)


def matrix(
    strategy: str | Matrix | PublicMatrix = "optimised", workload: str | Matrix | PublicMatrix | None = None
) -> Mechanism:
    """Noisy answers of a strategy matrix, inverted by least squares; may be negative [Li2010].

    strategy: "optimised" for `workload`, or a matrix of whole numbers or Fractions with one column per cell. workload,
    only of an optimised strategy: "cells", "prefix", "ranges" (the default; of every dimension, combined: all
    rectangles of a map), or such a matrix. A matrix is public, like the recipe; a PublicMatrix also says its name. Up
    to 1024 cells.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the largest column's L1 norm (replace: c times the
    largest L1 distance of two columns), of the whole-number matrix that is measured. Guarantee: epsilon-DP, exactly.
    Proof: docs/proofs/matrix.md. Public: domain, mask, strategy, workload. Assumes: a good keystream.

    Cost: O(n^3); optimising a few seconds at 256 cells. References: [Li2010], [McKenna2018].
    """
    if isinstance(strategy, str) and strategy != "optimised":
        raise DomainError(f'matrix: strategy {strategy!r} is not known; use "optimised" or a matrix of whole numbers')
    if not isinstance(strategy, str):
        if workload is not None:
            raise DomainError("matrix: a workload is what a strategy is optimised for; give one of them")
        measured: Queries = GivenMatrix(*_written(strategy, "strategy"))
    else:
        wanted = "ranges" if workload is None else workload
        if isinstance(wanted, str) and wanted not in matrices.WORKLOADS:
            raise DomainError(
                f"matrix: workload {wanted!r} is not known; use {', '.join(matrices.WORKLOADS)} or a matrix"
            )
        measured = Workload(wanted) if isinstance(wanted, str) else GivenWorkload(*_written(wanted, "workload"))
    return Measured("matrix", "docs/proofs/matrix.md", measured)


def _written(given: Matrix | PublicMatrix, use: str) -> tuple[str, str | None]:
    rows = given.rows if isinstance(given, PublicMatrix) else given
    return matrices.write(rows, f"the {use}"), given.name if isinstance(given, PublicMatrix) else None


@dataclass(frozen=True)
class Queries(ABC):
    """Which matrix is measured."""

    @abstractmethod
    def on(self, domain: Domain) -> Strategy: ...

    optimised: ClassVar[bool] = False
    """Was the matrix found by an optimisation?"""

    @abstractmethod
    def options(self) -> list[tuple[str, str]]:
        """As the plan's fingerprint has them."""

    def told(self) -> dict[str, str]:
        """As a release tells them."""
        return dict(self.options())

    @property
    def public(self) -> tuple[str, ...]:
        """What the guarantee says is public."""
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Workload(Queries):
    """Optimised for a workload by name."""

    workload: str
    optimised: ClassVar[bool] = True

    def on(self, domain: Domain) -> Strategy:
        return matrices.optimised(domain, self.workload)

    def options(self) -> list[tuple[str, str]]:
        return [("strategy", "optimised"), ("workload", self.workload)]


@dataclass(frozen=True)
class Written(Queries):
    """A matrix written out, public like the recipe, perhaps under a name of its own."""

    text: str
    name: str | None
    use: ClassVar[str]

    def told(self) -> dict[str, str]:
        """A matrix that has a name, or is large, by its fingerprint."""
        told = super().told()
        if self.name is not None or len(self.text) > WRITTEN:
            told[self.use] = matrices.fingerprint(self.text)
        return told

    @property
    def public(self) -> tuple[str, ...]:
        return (f"matrix {'of the recipe' if self.name is None else self.name} ({self.use})",)

    @property
    def declared(self) -> tuple[str, ...]:
        return () if self.name is None else (self.name,)

    def _named(self) -> list[tuple[str, str]]:
        return [(self.use, self.text), *(("public", name) for name in self.declared)]


@dataclass(frozen=True)
class GivenMatrix(Written):
    use: ClassVar[str] = "strategy"

    def on(self, domain: Domain) -> Strategy:
        return matrices.given(domain, self.text)

    def options(self) -> list[tuple[str, str]]:
        return self._named()


@dataclass(frozen=True)
class GivenWorkload(Written):
    use: ClassVar[str] = "workload"
    optimised: ClassVar[bool] = True

    def on(self, domain: Domain) -> Strategy:
        return matrices.optimised(domain, self.text)

    def options(self) -> list[tuple[str, str]]:
        return [("strategy", "optimised"), *self._named()]


def _told_public(said: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """What a guarantee says is public of a matrix, from the options that a saved release tells."""
    options = dict(said)
    use = "strategy" if options.get("strategy") != "optimised" else "workload"
    if options.get(use) in matrices.WORKLOADS:
        return ()
    return (f"matrix {options.get('public', 'of the recipe')} ({use})",)


@dataclass(frozen=True)
class ToldRows(Queries):
    """The rows of a saved release, which tells them for its error bars, and the options it tells."""

    rows: str
    said: tuple[tuple[str, str], ...]

    @property
    def public(self) -> tuple[str, ...]:
        return _told_public(self.said)

    def on(self, domain: Domain) -> Strategy:
        rows, cells = matrices.parse(self.rows), matrices.possible_cells(domain)
        if rows.shape[1] != cells.size or np.linalg.matrix_rank(rows.astype(np.float64)) < cells.size:
            raise DomainError("the rows given do not determine every possible cell")
        return Strategy(rows, cells)

    def options(self) -> list[tuple[str, str]]:
        return list(self.said)


@dataclass(frozen=True)
class Measured(Mechanism):
    """matrix: inverted by least squares."""

    queries: Queries

    @property
    def declared(self) -> tuple[str, ...]:
        return self.queries.declared

    def long(self, domain: Domain) -> bool:
        return self.queries.optimised and QUICK < domain.size <= matrices.MAX_CELLS  # larger ones are refused at once

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "matrix", "noise": DiscreteLaplace.name, "refine": "inverse",
            "options": tuple(self.queries.options()),
        }  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> MeasuredRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace, self.queries.public)
        strategy = self.queries.on(domain)
        cost = strategy.cost(unit.change)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        return MeasuredRun(self, domain, claim, cost, noise, strategy)


@dataclass(frozen=True)
class Fourier(Mechanism):
    """fourier: Walsh rows of all tables over `ways` dimensions, then the nearest non-negative table."""

    ways: int

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "fourier", "noise": DiscreteLaplace.name, "refine": "linear program",
            "options": (("ways", str(self.ways)),),
        }  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> FourierRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        if not isinstance(self.ways, int):
            raise PrivacyError("fourier: ways must be a whole number; make a Mechanism by its recipe")
        strategy = matrices.fourier(domain, self.ways)
        cost = strategy.cost(unit.change)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        return FourierRun(self, domain, claim, cost, noise, strategy)


@dataclass(frozen=True, eq=False)
class StrategyRun(Run):
    """A measured matrix of whole numbers."""

    strategy: Strategy

    @abstractmethod
    def finish(self, noisy: NDArray[np.float64]) -> NDArray[Any]:
        """Noisy answers -> values of the possible cells."""

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        full = np.zeros(self.domain.size, dtype=np.int64)
        full[cells] = values
        known: NDArray[Any] = full[self.strategy.cells]
        rows: NDArray[Any] = self.strategy.rows
        if int(np.abs(rows).max()) * int(values.sum()) >= 1 << 61:  # beyond 64 bits: whole numbers of any size
            rows, known = rows.astype(object), known.astype(object)
        noisy = (rows @ known + self.noise.draw(streams, len(rows), threads)).astype(np.float64)
        return Drawn(*kept(self.strategy.cells, self.finish(noisy)))

    def blocks(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class MeasuredRun(StrategyRun):
    mechanism: Measured

    @property
    def optimised(self) -> bool:  # type: ignore[override]
        return self.mechanism.queries.optimised

    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED

    fractions: ClassVar[bool] = True

    def further(self) -> dict[str, Any]:
        words: dict[str, Any] = {"options": self.mechanism.queries.told()}
        if not self.mechanism.declared:
            rows = ";".join(" ".join(map(str, row)) for row in self.strategy.rows.tolist())  # error bars need them
            words |= {"rows": rows} if len(rows) <= MOST_WRITTEN else {}
        return words

    def bars(self, measurements: Measurements | None) -> MatrixBars | NoBars:
        if "rows" not in self.further():
            return NoBars("the release does not say its strategy row by row: it has a name, or is large")
        return MatrixBars(self.domain, self.noise.scale, self.strategy.rows)

    def finish(self, noisy: NDArray[np.float64]) -> NDArray[Any]:
        return np.linalg.lstsq(self.strategy.rows.astype(np.float64), noisy)[0]

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(NO_FORM)


@dataclass(frozen=True, eq=False)
class FourierRun(StrategyRun):
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.NEAREST

    def further(self) -> dict[str, Any]:
        return {"options": dict(self.mechanism.stored()["options"])}

    def bars(self, measurements: Measurements | None) -> NoBars:
        return NoBars(f"{self.mechanism.name} with these options publishes no measurements")

    def finish(self, noisy: NDArray[np.float64]) -> NDArray[Any]:
        return nonnegative_fit(self.strategy.rows, noisy)

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")


@dataclass(frozen=True)
class Untold(Mechanism):
    """A measured matrix of which a saved release tells the fingerprint and the scale: it can be read, not drawn."""

    said: tuple[tuple[str, str], ...]
    scale_said: Fraction

    def stored(self) -> dict[str, Any]:
        return {"transform": "matrix", "noise": DiscreteLaplace.name, "refine": "inverse", "options": self.said}

    def on(self, domain: Domain, unit: Unit, epsilon: Exact) -> Run:
        raise PrivacyError("the matrix of a saved release is not stored in it: it cannot be released with again")

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> UntoldRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace, _told_public(self.said))
        cost = self.scale_said * claim.epsilon / unit.most
        return UntoldRun(self, domain, claim, cost, DiscreteLaplace(self.scale_said))


@dataclass(frozen=True, eq=False)
class UntoldRun(Run):
    signed: ClassVar[bool] = True
    fractions: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED

    def further(self) -> dict[str, Any]:
        return {"options": dict(self.mechanism.stored()["options"])}

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        raise PrivacyError("the matrix of a saved release is not stored in it: it cannot be drawn from again")

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(NO_FORM)

    def bars(self, measurements: Measurements | None) -> NoBars:
        return NoBars("the release does not say its strategy row by row: it has a name, or is large")

    def blocks(self) -> None:
        return None
