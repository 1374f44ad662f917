"""Counts: the confidential table, sparse, with contributions already bounded."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import names
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.schema import MAX_CELLS, PROVIDER_BOUNDED, Domain, Part, Unit

_SHOWN = 10  # positions named per fault; the rest are counted


@dataclass(frozen=True, repr=False, eq=False)
class Counts:
    """A confidential table of counts in coordinate form.

    `cells` are strictly increasing, `values` positive; every other cell is 0. `data` is a declared name
    ("census-2020"), never a digest. `assumes` holds what the counting step took on trust, `part` which part of a
    split it is.
    """

    domain: Domain
    cells: NDArray[np.int64]
    values: NDArray[np.int64]
    unit: Unit
    data: str | None = None
    assumes: tuple[str, ...] = (PROVIDER_BOUNDED,)
    part: Part | None = None

    def __post_init__(self) -> None:
        """What always holds, whoever builds it; `from_coo` and `count` say what is wrong and where."""
        if self.data is not None:
            names.declared(self.data)
        raise_faults(PrivacyError, names.first(self.assumes, "a caveat"))
        cells, values = self.cells, self.values
        good = isinstance(self.unit, Unit) and cells.ndim == 1 and cells.shape == values.shape
        good = good and cells.dtype == np.int64 and values.dtype == np.int64
        if good and cells.size:
            good = cells[0] >= 0 and cells[-1] < self.domain.size and bool(np.all(cells[1:] > cells[:-1]))
            good = good and bool(values.min() > 0) and bool(self.domain.possible(cells).all())
        if not good or _total(values) > MAX_CELLS:
            raise DomainError("Counts need rising possible cells and positive whole values; use Counts.from_coo")

    def __repr__(self) -> str:
        return f"Counts(confidential, data={self.data!r}, shape={self.domain.shape}, unit={self.unit})"

    @classmethod
    def from_dense(cls, array: ArrayLike, domain: Domain, unit: Unit, data: str | None = None) -> Counts:
        """Counts from an array of the domain's shape; every fault is named at once."""
        if isinstance(array, np.ma.MaskedArray):
            raise DomainError("a masked array hides entries; fill or drop them first")
        dense = np.asarray(array)
        if dense.shape != domain.shape:
            raise DomainError(f"the array has shape {dense.shape}; the domain has {domain.shape}")
        flat = dense.ravel()
        if flat.dtype.kind not in "iuf":
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

    def split(self, axis: str) -> dict[str, Counts]:
        """One table per label of a nominal or ordered axis: a public partition of this one, already bounded, table.

        Under add-remove a ledger charges the parts of one split in parallel: a unit is in at most max_cells of
        them, so with one cell per unit they cost the dearest part, not the sum. Never across time, and never for two
        tables that were counted apart.

        Cost: O(m) per label.
        """
        chosen = self.domain.axis(axis)
        faults = []
        labels = chosen.labels
        if labels is None:
            faults.append(f"split: axis {axis!r} must be nominal or ordered with labels (time and mesh are not split)")
        if len(self.domain.axes) == 1:
            faults.append("split: the table has no other axis to keep")
        if any(axis in mask.axes for mask in self.domain.mask):
            faults.append(f"split: axis {axis!r} has a mask; split a table without it")
        if self.part is not None:
            faults.append("split: a part is not split again; split once, by the finer axis")
        raise_faults(DomainError, faults)
        rest = Domain(tuple(other for other in self.domain.axes if other is not chosen), self.domain.mask)
        at = self.domain.positions(axis)[0]
        index = self.domain.unravel(self.cells)
        cells = rest.ravel([part for i, part in enumerate(index) if i != at]) if self.cells.size else self.cells
        token = secrets.token_hex(16)
        out = {}
        for i, label in enumerate(labels or ()):
            own = index[at] == i
            out[label] = replace(self, domain=rest, cells=_frozen(cells[own]), values=_frozen(self.values[own]),
                                 part=Part(token, label))  # fmt: skip
        return out


def checked(
    cells: ArrayLike,
    values: ArrayLike,
    domain: Domain,
    unit: Unit,
    data: str | None,
    *,
    assumes: tuple[str, ...],
) -> Counts:
    """Validate (cell, value) pairs and build Counts; messages name a pair by its position.

    Cost: O(m) for sorted cells, else O(m log m), for m pairs.
    """
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    if data is not None:
        names.declared(data)
    index, number = _pairs(cells, values)
    faults: list[str] = []

    def report(bad: NDArray[np.bool_], rule: str) -> None:
        at = np.flatnonzero(bad)
        if at.size:
            shown = ", ".join(f"position {i}" for i in at[:_SHOWN])
            faults.append(f"{rule}: {shown}{f' and {at.size - _SHOWN} more' if at.size > _SHOWN else ''}")

    number = _whole(number, report)
    report(number < 0, "a count is negative")
    outside = (index < 0) | (index >= domain.size)
    report(outside, f"a cell lies outside the domain of {domain.size} cells")
    index = (np.where(outside, 0, index) if outside.any() else index).astype(np.int64, copy=False)
    if domain.zeros:
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


def _pairs(cells: ArrayLike, values: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cells and values as two arrays of numbers, of one length."""
    if isinstance(cells, np.ma.MaskedArray) or isinstance(values, np.ma.MaskedArray):
        raise DomainError("a masked array hides entries; fill or drop them first")
    index, number = np.asarray(cells), np.asarray(values)
    if index.ndim != 1 or number.shape != index.shape:
        raise DomainError("cells and values must be two one-dimensional arrays of one length")
    if index.size == 0:
        index, number = index.astype(np.int64), number.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise DomainError(f"cells must be whole numbers, not {index.dtype}")
    if number.dtype.kind not in "iuf":
        raise DomainError(f"counts must be whole numbers, not {number.dtype}")
    return index, number


def _whole(number: NDArray[Any], report: Callable[[NDArray[np.bool_], str], None]) -> NDArray[np.int64]:
    """Counts as whole numbers; those that are not are reported."""
    with np.errstate(invalid="ignore"):
        if number.dtype.kind == "f":
            finite = np.isfinite(number)
            report(~finite, "a count is missing or not finite")
            report(finite & (number != np.floor(number)), "a count is not a whole number")
            report(finite & (np.abs(number) > MAX_CELLS), "a count is larger than 2^62")
            number = np.where(finite & (np.abs(number) <= MAX_CELLS), number, 0)
        elif number.dtype == np.uint64:
            report(number > MAX_CELLS, "a count is larger than 2^62")
            number = np.minimum(number, MAX_CELLS)
        return number.astype(np.int64, copy=False)


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
