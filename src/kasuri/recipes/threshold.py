"""Thresholded: noisy cells of at least a threshold, all others 0, at a cost that follows what passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import TWO_DIGITS, passes, runs_below
from kasuri.privacy import Exact
from kasuri.published.bars import NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.mechanism import DENSE_CELLS, Bias, Drawn, Mechanism, NoForm, Replay, Run, scale_of
from kasuri.schema import Domain, Unit
from kasuri.trees import transform

MAX_PASSING = 1 << 26
"""Most empty cells a thresholded release may expect to pass."""
MAX_SLOW = 1 << 16
"""The same where the runs between them are drawn by the slow rule, some milliseconds each: minutes, not hours."""


def sparse(threshold: int | Literal["auto"] = "auto") -> Mechanism:
    """Noisy cells of at least `threshold`, all others 0: for tables with far more cells than people [Cormode2012].

    threshold "auto": so high that at most one empty cell passes on average, log(cells) times the noise scale. Empty
    cells are not drawn one by one: the cost follows what passes, at any number of cells. At most 2^26 empty cells may
    be expected to pass, 2^16 where fewer than one in 2^24 does (each of those takes some milliseconds).

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP, exactly: equal in law to `geometric` with small cells dropped. Proof: docs/proofs/sparse.md.
    Public: domain, mask, threshold. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + passing cells) for m records. References: [Cormode2012].
    """
    if threshold != "auto" and (not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1):
        raise DomainError('sparse: threshold is "auto" or a whole number from 1 on')
    return Thresholded("sparse", "docs/proofs/sparse.md", None if threshold == "auto" else threshold)


@dataclass(frozen=True)
class Thresholded(Mechanism):
    """Noisy cells of at least `threshold`; None: as few empty cells pass as one on average."""

    threshold: int | None

    def stored(self) -> dict[str, Any]:
        said = "auto" if self.threshold is None else str(self.threshold)
        return {
            "transform": "identity", "noise": DiscreteLaplace.name, "refine": "threshold", "descent": "jump",
            "options": (("threshold", said),),
        }  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> ThresholdedRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        cost = transform.identity_cost(domain.size, unit.change)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        return ThresholdedRun(self, domain, claim, cost, noise, self._least(domain, noise.scale))

    def _least(self, domain: Domain, scale: Fraction) -> int:
        if domain.size >= 1 << 62:
            raise DomainError("a thresholded release takes fewer than 2^62 cells")
        least = 1 if self.threshold is None else self.threshold
        if type(least) is not int:
            raise PrivacyError("a threshold is a whole number; make a Mechanism by its recipe")
        if self.threshold is None and domain.size * passes(scale, 1) > 1:
            least = max(1, math.ceil(scale * Fraction(math.log(domain.size))))
        if least < 1:
            raise PrivacyError("a threshold is a whole number from 1 on: every empty cell would be released below it")
        if least >= 1 << 62:
            raise DomainError("a threshold lies below 2^62: no count comes near it")
        chance = passes(scale, least)
        most = MAX_PASSING if chance * TWO_DIGITS >= 1 else MAX_SLOW
        if domain.size * chance > most:
            raise DomainError(
                f"at threshold {least} about {domain.size * chance:.3g} empty cells would pass; "
                f'at most {most} can be drawn: raise the threshold, or use threshold="auto"'
            )
        return least


@dataclass(frozen=True, eq=False)
class ThresholdedRun(Run):
    least: int
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.DROPPED
    untold: ClassVar[str] = "they are the noisy numbers themselves"

    def lawful(self, values: NDArray[Any]) -> bool:
        return super().lawful(values) and bool((values >= self.least).all())

    def replay(self, drawn: Drawn) -> Replay:
        """A released value is its noisy number; a cell that is absent tells nothing of its noise."""
        known = self.noise.chances(drawn.values)
        absent = int(self.domain.possible_dense().sum()) - drawn.cells.size if self.domain.size <= DENSE_CELLS else 0
        sure = np.ones(absent), np.full(absent, known[1][0] if known[1].size else 1.0)
        shown = np.append(known[0], sure[0]), np.append(known[1], sure[1])
        return replace(super().replay(drawn), shown=(shown,))

    def bars(self, measurements: Measurements | None) -> NoBars:
        return NoBars(f"{self.mechanism.name} with these options publishes no measurements")

    def further(self) -> dict[str, Any]:
        return {"options": dict(self.mechanism.stored()["options"]), "threshold": self.least}

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        """Empty cells pass one by one with the same small chance, so only those that do are drawn: the runs between
        them, and by how much each passes (docs/proofs/sparse.md)."""
        assert isinstance(self.noise, DiscreteLaplace)
        sampler = self.noise.sampler
        own = values + sampler.draw(streams.open("noise"), cells.size)
        keep = own >= self.least
        found = self._passing(streams)
        excess = sampler.draw(streams.open("excess"), found.size)
        passed = self.least + np.where(excess >= 0, excess, -excess - 1)  # P(N >= least + j | N >= least) = a^j
        at = np.minimum(np.searchsorted(cells, found), max(cells.size - 1, 0))
        empty = cells[at] != found if cells.size else np.ones(found.size, dtype=bool)
        empty &= self.domain.possible(found)
        out = np.concatenate([cells[keep], found[empty]])
        ranked = np.argsort(out, kind="stable")
        return Drawn(out[ranked], np.concatenate([own[keep], passed[empty]])[ranked])

    def _passing(self, streams: Streams) -> Int:
        """Every cell by itself with probability P(N >= least), in order: exact runs of cells that do not pass."""
        size = self.domain.size
        sampler = runs_below(self.noise.scale, self.least, size)
        stream = streams.open("gap")
        chance = passes(self.noise.scale, self.least)  # how many to draw at a time; decides nothing
        found: list[Int] = []
        at = -1
        while at < size - 1:
            left = size - 1 - at
            piece = max(1, min(1 << 14, int(left * chance) + 1, (1 << 62) // (left + 1)))
            steps = at + np.cumsum(np.minimum(np.abs(sampler.draw(stream, piece)), left) + 1)
            found.append(steps[steps < size])
            at = min(int(steps[-1]), size)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")

    def blocks(self) -> None:
        return None
