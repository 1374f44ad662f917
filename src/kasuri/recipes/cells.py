"""Cells: each cell by itself plus noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from kasuri.budget.accounting import Losses
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
from kasuri.schema import Domain, Unit
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


@dataclass(frozen=True)
class Cells(Mechanism):
    """Every cell plus noise of one law."""

    law: type[Noise]

    def stored(self) -> dict[str, Any]:
        return {"transform": "identity", "noise": self.law.name, "refine": "none"}

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> CellsRun:
        claim = self.claim(domain, unit, epsilon, self.law)
        dense(self.name, domain.size)
        cost = transform.identity_cost(domain.size, unit.change)
        return CellsRun(self, domain, claim, cost, self.law(scale_of(unit, cost, claim.epsilon)))


@dataclass(frozen=True)
class CellBlocks:
    """Independent noise per cell, blocks.DENSE_BLOCK cells at a time."""

    noise: DiscreteLaplace


@dataclass(frozen=True, eq=False)
class CellsRun(Run):
    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED
    cells_apart: ClassVar[bool] = True
    untold: ClassVar[str] = "they are the noisy numbers themselves"

    @property
    def fractions(self) -> bool:  # type: ignore[override]
        return self.noise.continuous

    @property
    def losses(self) -> Losses:
        return equal_losses(self)

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
