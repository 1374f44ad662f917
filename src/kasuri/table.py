"""Counts: the confidential table, sparse, with contributions already bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.schema import MAX_CELLS, Domain, Unit

PROVIDER_BOUNDED = "the provider bounded each unit's contributions (the table came pre-aggregated)"

_SHOWN = 10  # positions named per fault; the rest are counted


@dataclass(frozen=True, repr=False, eq=False)
class Counts:
    """A confidential table of counts in coordinate form.

    `cells` are strictly increasing, `values` positive; every other cell is 0. `data` is a declared name
    ("census-2020"), never a digest. `assumes` holds what the counting step took on trust.
    """

    domain: Domain
    cells: NDArray[np.int64]
    values: NDArray[np.int64]
    unit: Unit
    data: str | None = None
    assumes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Counts(confidential, data={self.data!r}, shape={self.domain.shape}, unit={self.unit})"

    @classmethod
    def from_dense(cls, array: ArrayLike, domain: Domain, unit: Unit, data: str | None = None) -> Counts:
        """Counts from an array of the domain's shape; every fault is named at once."""
        dense = np.asarray(array)
        if dense.shape != domain.shape:
            raise DomainError(f"the array has shape {dense.shape}; the domain has {domain.shape}")
        flat = dense.ravel()
        if flat.dtype == np.bool_ or not np.issubdtype(flat.dtype, np.number):
            raise DomainError(f"counts must be whole numbers, not {flat.dtype}")
        cells = np.flatnonzero(flat)  # NaN counts as non-zero and is found below
        return cls.from_coo(cells, flat[cells], domain, unit, data)

    @classmethod
    def from_coo(
        cls, cells: ArrayLike, values: ArrayLike, domain: Domain, unit: Unit, data: str | None = None
    ) -> Counts:
        """Counts from (cell, value) pairs in any order, at most one per cell; every fault is named at once.

        The table is taken as pre-aggregated: its guarantee assumes that the provider bounded contributions.
        """
        return checked(cells, values, domain, unit, data, assumes=(PROVIDER_BOUNDED,))


def checked(
    cells: ArrayLike,
    values: ArrayLike,
    domain: Domain,
    unit: Unit,
    data: str | None,
    *,
    assumes: tuple[str, ...],
    where: Sequence[str] | None = None,
) -> Counts:
    """Validate (cell, value) pairs and build Counts. `where` names each pair in messages (default: its position).

    Cost: O(m) for sorted cells, else O(m log m), for m pairs.
    """
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    if data is not None and (not isinstance(data, str) or not data.strip()):
        raise PrivacyError('data must be a declared name such as "census-2020"')
    index, number = np.asarray(cells), np.asarray(values)
    if index.ndim != 1 or number.shape != index.shape:
        raise DomainError("cells and values must be two one-dimensional arrays of one length")
    if index.size == 0:
        index, number = index.astype(np.int64), number.astype(np.int64)
    if not np.issubdtype(index.dtype, np.integer):
        raise DomainError(f"cells must be whole numbers, not {index.dtype}")
    if not (np.issubdtype(number.dtype, np.integer) or np.issubdtype(number.dtype, np.floating)):
        raise DomainError(f"counts must be whole numbers, not {number.dtype}")

    faults: list[str] = []

    def report(bad: NDArray[np.bool_], rule: str) -> None:
        at = np.flatnonzero(bad)
        if at.size:
            names = [where[i] if where is not None else f"position {i}" for i in at[:_SHOWN]]
            more = f" and {at.size - _SHOWN} more" if at.size > _SHOWN else ""
            faults.append(f"{rule}: {', '.join(names)}{more}")

    with np.errstate(invalid="ignore"):
        if np.issubdtype(number.dtype, np.floating):
            finite = np.isfinite(number)
            report(~finite, "a count is missing or not finite")
            report(finite & (number != np.floor(number)), "a count is not a whole number")
            report(finite & (np.abs(number) > MAX_CELLS), "a count is larger than 2^62")
            number = np.where(finite & (np.abs(number) <= MAX_CELLS), number, 0)
        elif number.dtype == np.uint64:
            report(number > MAX_CELLS, "a count is larger than 2^62")
            number = np.minimum(number, MAX_CELLS)
        number = number.astype(np.int64, copy=False)
    report(number < 0, "a count is negative")
    outside = (index < 0) | (index >= domain.size)
    report(outside, f"a cell lies outside the domain of {domain.size} cells")
    index = (np.where(outside, 0, index) if outside.any() else index).astype(np.int64, copy=False)
    if domain.mask:
        report(~outside & ~domain.possible(index), "a cell is impossible by the mask")
    rising = bool(np.all(index[1:] > index[:-1]))
    if not rising:
        sorted_by = np.argsort(index, kind="stable")
        repeated = np.zeros(index.size, dtype=bool)
        repeated[sorted_by[1:]] = index[sorted_by[1:]] == index[sorted_by[:-1]]
        report(repeated & ~outside, "a cell appears more than once")
        index, number = index[sorted_by], number[sorted_by]
    if _total(number) > MAX_CELLS:
        faults.append("the total is larger than 2^62")
    raise_faults(DomainError, faults)
    keep = number != 0
    if not keep.all():
        index, number = index[keep], number[keep]
    return Counts(domain, _frozen(index), _frozen(number), unit, data, assumes)


def _total(values: NDArray[np.int64]) -> int:
    """The exact sum of the positive values: low and high 31 bits apart, a million at a time, so that nothing wraps."""
    total = 0
    for start in range(0, values.size, 1 << 20):
        part = np.maximum(values[start : start + (1 << 20)], 0)
        total += int((part & 0x7FFFFFFF).sum()) + (int((part >> 31).sum()) << 31)
    return total


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    copy = np.array(array, dtype=np.int64, order="C")
    copy.flags.writeable = False
    return copy
