"""Cells: each cell by itself plus noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from kasuri.budget.accounting import Losses
from kasuri.budget.gaussian import Normal
from kasuri.errors import PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace, FloatLaplace, Noise
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact
from kasuri.published.bars import CellBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.mechanism import (
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    Replay,
    Run,
    dense,
    equal_losses,
    kept,
    possible_cells,
    scale_of,
)  # fmt: skip
from kasuri.recipes.normal import Asked, Bought, NoiseWord, asked_for, least, nodes_square, smaller
from kasuri.schema import Domain, Unit, Window
from kasuri.trees import transform


def laplace() -> Mechanism:
    """Every cell plus floating-point Laplace noise of scale c/epsilon: the papers' baseline [Dwork2006].

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP in exact arithmetic. Proof: docs/proofs/laplace.md. Public: domain, mask.
    Assumes: idealised numerics (floating-point noise can leak; use `geometric` for real data).

    Cost: O(n). References: [Dwork2006], [Terada2015, eq. 7].
    """
    return Cells("laplace", "docs/proofs/laplace.md", FloatLaplace)


def geometric() -> Mechanism:
    """Every cell plus exact discrete Laplace noise of scale c/epsilon (the geometric mechanism); may be negative.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/geometric.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Ghosh2012].
    """
    return Cells("geometric", "docs/proofs/geometric.md", DiscreteLaplace)


def cell_counts(*, noise: NoiseWord = "laplace", delta: Exact | None = None) -> Mechanism:
    """Every cell plus exact noise of a law that you choose; may be negative. For units in many cells.

    noise: discrete "laplace", the noise of `geometric`; "gaussian", which needs a delta; or "auto", the smaller of the
    two: Gaussian where a unit is counted in many cells, or in many slots of a window.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds; with
    Gaussian noise the squares of the cells' changes. Guarantee: epsilon-DP, exactly; with Gaussian noise (epsilon,
    delta)-DP by the exact law of the loss. Proof: docs/proofs/cell_counts.md. Public: domain, mask. Assumes: a good
    keystream.

    Cost: O(n). References: [Ghosh2012], [CKS2020].
    """
    faults: list[str] = []
    asked = asked_for("cell_counts", noise, delta, faults)
    raise_faults(PrivacyError, faults)
    return Cells("cell_counts", "docs/proofs/cell_counts.md", DiscreteLaplace, asked)


@dataclass(frozen=True)
class Cells(Mechanism):
    """Every cell plus noise of one law."""

    law: type[Noise]
    asked: Asked | None = None
    """The noise, where it need not be of that law."""

    def stored(self) -> dict[str, Any]:
        told = {} if self.asked is None else self.asked.told()
        return {"transform": "identity", "noise": self.law.name, "refine": "none"} | told

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> CellsRun:
        claim = self.claim(domain, unit, epsilon, self.law)
        dense(self.name, domain.size)
        cost = transform.identity_cost(domain.size, unit.change)
        run = CellsRun(self, domain, claim, cost, self.law(scale_of(unit, cost, claim.epsilon)))
        return run if self.asked is None else self._normal(run, self.asked)

    def _normal(self, run: CellsRun, asked: Asked) -> CellsRun:
        """The run with discrete Gaussian noise, where that was asked for or is smaller."""
        claim = run.guarantee
        square = nodes_square(1, run.domain.size, claim.unit)
        found = least(((0, Fraction(1)),), (square,), claim.unit.each == 1, claim.epsilon, asked.delta)
        noise = found.noise.over(found.spent[0][1])
        if asked.whichever and noise.variance >= run.noise.variance:
            return run
        return replace(run, guarantee=found.claimed(claim, asked), noise=noise, normal=found)

    def settled(self, domain: Domain, unit: Unit, window: Window, epsilon: Exact, delta: Exact) -> Mechanism:
        """noise="auto" over a window: whichever noise is smaller when both are priced so."""
        if self.asked is None or not self.asked.whichever:
            return self
        normal, plain = replace(self, asked=replace(self.asked, word="gaussian")), replace(self, asked=None)
        return smaller(normal, plain, lambda run: run.noise.variance, domain, unit, window, epsilon, delta)


@dataclass(frozen=True)
class CellBlocks:
    """Independent noise per cell, blocks.DENSE_BLOCK cells at a time."""

    noise: DiscreteLaplace


@dataclass(frozen=True, eq=False)
class CellsRun(Run):
    mechanism: Cells
    normal: Bought | None = None
    """Discrete Gaussian noise and its loss, where it has that."""
    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED
    cells_apart: ClassVar[bool] = True
    untold: ClassVar[str] = "they are the noisy numbers themselves"

    @property
    def fractions(self) -> bool:  # type: ignore[override]
        return self.noise.continuous

    @property
    def losses(self) -> Losses | Normal:
        return equal_losses(self) if self.normal is None else self.normal.losses

    def arguments(self) -> dict[str, Any]:
        return {} if self.mechanism.asked is None else self.mechanism.asked.told()

    def further(self) -> dict[str, Any]:
        return {} if self.normal is None else {"mechanisms": self.normal.mechanisms(self.mechanism.name, "identity")}

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        return Drawn(*kept(*noisy_cells(self, cells, values, streams, threads)))

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError]:
        powers = (1 << at for at in range(self.domain.size.bit_length()))
        return [BlockError(size, sqrt(self.noise.variance * size), True) for size in sizes or powers]

    def bars(self, measurements: Measurements | None) -> CellBars:
        return CellBars(self.domain, self.noise)

    def replay(self, drawn: Drawn) -> Replay:
        absent = int(self.domain.possible_dense().sum()) - drawn.cells.size
        values = np.append(drawn.values.astype(np.float64), np.zeros(absent))
        return replace(super().replay(drawn), shown=(self.noise.chances(values),))

    def blocks(self) -> CellBlocks | None:
        return CellBlocks(self.noise) if isinstance(self.noise, DiscreteLaplace) else None


def noisy_cells(run: Run, cells: Int, values: Int, streams: Streams, threads: int) -> tuple[Int, Any]:
    """Every possible cell with its noisy count: the identity transform, so cells are coefficients."""
    noisy = run.noise.draw(streams, run.domain.size, threads)
    noisy[cells] += values
    possible = possible_cells(run.domain)
    return possible, noisy[possible]
