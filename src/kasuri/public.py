"""PublicTable and PublicMatrix: what everyone may know, declared by name; never made from the confidential data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import names
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.schema import Domain


@dataclass(frozen=True, repr=False, eq=False)
class PublicTable:
    """A public table in coordinate form: `cells` rising, `values` positive, every other cell 0.

    Making one declares that its numbers are public: a published statistic of an earlier year, another source, or an
    earlier release. A prior made from the confidential table itself would void the guarantee. `name` is in the
    guarantee of every release that uses it.

    >>> from kasuri.schema import Ordered
    >>> domain = Domain.of(Ordered("age", 3))
    >>> PublicTable.from_dense([5, 0, 2], domain, name="census-2015").cells.tolist()
    [0, 2]
    """

    domain: Domain
    cells: NDArray[np.int64]
    values: NDArray[np.float64]
    name: str

    def __post_init__(self) -> None:
        """What always holds, whoever builds it: checked, on copies that nobody can change afterwards."""
        if not isinstance(self.domain, Domain):
            raise DomainError("a public table needs a Domain")
        _named(self.name, "table")
        cells, values = _numbers(self.cells, "cells"), _numbers(self.values, "values")
        if cells.ndim != 1 or values.shape != cells.shape or cells.dtype != np.int64 or values.dtype != np.float64:
            raise DomainError("a public table needs cells (int64) and values (float64) of one length; use from_coo")
        faults = []
        if cells.size and (cells.min() < 0 or cells.max() >= self.domain.size):
            faults.append(f"public table: a cell lies outside the domain of {self.domain.size} cells")
        elif not self.domain.possible(cells).all():
            faults.append("public table: a cell is impossible by the mask")
        if (cells[1:] == cells[:-1]).any():
            faults.append("public table: a cell appears more than once")
        elif (cells[1:] < cells[:-1]).any():
            faults.append("public table: cells must rise")
        if not (np.isfinite(values).all() and (values > 0).all()):
            faults.append("public table: values must be finite and not negative, and 0 is left out")
        elif values.sum() > 1 << 62:
            faults.append("public table: the values sum to more than 2^62")
        raise_faults(DomainError, faults)
        for part, array in (("cells", cells.copy()), ("values", values.copy())):
            array.flags.writeable = False
            object.__setattr__(self, part, array)

    def __repr__(self) -> str:
        return f"PublicTable({self.name!r}, shape={self.domain.shape})"

    @classmethod
    def from_dense(cls, array: ArrayLike, domain: Domain, *, name: str) -> PublicTable:
        """From an array of the domain's shape."""
        dense = _numbers(array, "array")
        if dense.shape != domain.shape:
            raise DomainError(f"the public table has shape {dense.shape}; the domain has {domain.shape}")
        flat = dense.ravel()
        cells = np.flatnonzero(flat)  # NaN counts as non-zero and is found below
        return cls.from_coo(cells, flat[cells], domain, name=name)

    @classmethod
    def from_coo(cls, cells: ArrayLike, values: ArrayLike, domain: Domain, *, name: str) -> PublicTable:
        """From (cell, value) pairs in any order, at most one per cell; every fault is named at once."""
        index, number = _numbers(cells, "cells"), _numbers(values, "values")
        if index.ndim != 1 or number.shape != index.shape:
            raise DomainError("cells and values must be two one-dimensional arrays of one length")
        if index.size and index.dtype.kind not in "iu":
            raise DomainError(f"cells must be whole numbers, not {index.dtype}")
        keep = np.flatnonzero(number)  # NaN counts as non-zero and is found below
        ranked = keep[np.argsort(index[keep], kind="stable")]
        return cls(domain, index.astype(np.int64)[ranked], number.astype(np.float64)[ranked], name)

    def on(self, cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values of any cells, 0 where the table has none."""
        out = np.zeros(cells.size)
        if self.cells.size:
            at = np.minimum(np.searchsorted(self.cells, cells), self.cells.size - 1)
            there = self.cells[at] == cells
            out[there] = self.values[at[there]]
        return out

    def fingerprint(self) -> str:
        """A digest of the whole public table, for the plan of a release."""
        digest = hashlib.sha256(self.name.encode() + b"\0")
        for array in (self.cells, self.values):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, repr=False, eq=False)
class Named(PublicTable):
    """A public table of which a release tells the name and the fingerprint, not the numbers: it takes the place of the
    table, and may be asked for nothing else."""

    digest: str = ""

    def fingerprint(self) -> str:
        """What the release tells; an earlier kasuri told nothing."""
        return self.digest


@dataclass(frozen=True, repr=False, eq=False)
class PublicMatrix:
    """A matrix of whole numbers or Fractions, one column per cell, declared public by `name`: a table of districts, a
    list of questions. As with a PublicTable, one made from the confidential table would void the guarantee."""

    rows: Any
    name: str

    def __post_init__(self) -> None:
        _named(self.name, "matrix")

    def __repr__(self) -> str:
        return f"PublicMatrix({self.name!r})"


def _named(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise PrivacyError(f'a public {what} is declared by a name, such as "census-2015"')
    raise_faults(PrivacyError, names.faults(name, f"the name of a public {what}"))


def _numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    """A plain array of numbers; anything else (Counts, a frame, a masked array) is refused."""
    if not isinstance(values, (np.ndarray, list, tuple)) or isinstance(values, np.ma.MaskedArray):
        raise PrivacyError(f"a public table is made of plain arrays ({what}); confidential Counts are not")
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise DomainError(f"{what} must be numbers, not {array.dtype}")
    return array
