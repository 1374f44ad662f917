"""The released table as a value: what stores, manifests, reports and intervals work on. There is no way from here back
to Counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kasuri.budget.ledger import Receipt
from kasuri.errors import DomainError
from kasuri.privacy import Guarantee
from kasuri.published.measurements import Measurements
from kasuri.schema import Domain
from kasuri.trees.regions import Boxes

NO_LEDGER = "no ledger: nothing bounds what other releases of the same data spend"

_DENSE = 1 << 28


def files_of(table: Literal["release", "measurements"], names: Iterable[str]) -> list[str]:
    """Those of `names` that hold a table of a saved release, in order: release.parquet, or release-00000.parquet and
    so on where a cluster wrote it."""
    return sorted(name for name in names if re.fullmatch(rf"{table}(-[0-9]{{5,}})?\.parquet", name))


class Described(Protocol):
    """What a manifest tells of a release, wherever its cells are: `Release`, and a release on a cluster."""

    @property
    def domain(self) -> Domain: ...
    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def recipe(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...
    @property
    def receipt(self) -> Receipt | None: ...
    @property
    def non_zero(self) -> int: ...
    def total(self) -> int | float: ...


@dataclass(frozen=True, repr=False, eq=False)
class Protected:
    """A protected table in coordinate form: `cells` strictly increasing, `values` not 0; every other cell is 0.

    `recipe` is the mechanism in words and parameters, `provenance` how it was run (release_id, version, source, ledger
    entry). `receipt` is the reservation that paid for it, to be settled by `save()`; it is not published. What is
    written, read back, checked and shown is this value; `Release`, which users hold, can do all of that.
    """

    domain: Domain
    cells: NDArray[np.int64]
    values: NDArray[Any]
    measurements: Measurements | None
    guarantee: Guarantee
    recipe: Mapping[str, Any]
    provenance: Mapping[str, Any]
    receipt: Receipt | None = None

    def __repr__(self) -> str:
        return (
            f"Release({self.recipe['name']}, {self.cells.size} cells of {self.domain.size}, total {self.total()}, "
            f"{self.guarantee.words()}, source: {self.provenance['source']})"
        )

    @property
    def non_zero(self) -> int:
        """How many cells are not 0."""
        return self.cells.size

    def total(self) -> int | float:
        """Sum over all cells: counts, to which one unit adds up to `max_cells` (times `max_weight`), not units."""
        return self.values.sum().item()

    def to_dense(self) -> NDArray[Any]:
        """The table as an array of `domain.shape`."""
        if self.domain.size > _DENSE:
            raise DomainError(f"{self.domain.size} cells do not fit in memory as an array; use cells and values")
        out = np.zeros(self.domain.size, dtype=self.values.dtype)
        out[self.cells] = self.values
        return out.reshape(self.domain.shape)

    def sum_over(self, area: Boxes | NDArray[np.int64]) -> Any:
        """Released sum over one box, or over an array of rising cells, as a NumPy number."""
        if not isinstance(area, Boxes):
            return self.values[np.isin(self.cells, area, assume_unique=True)].sum()
        keep = np.ones(self.cells.size, dtype=bool)
        for index, low, high in zip(self.domain.unravel(self.cells), area.low[0], area.high[0], strict=True):
            keep &= (index >= low) & (index < high)
        return self.values[keep].sum()
