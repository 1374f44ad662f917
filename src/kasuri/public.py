"""PublicTable: a table everyone may know, declared as such: to tune a recipe on, never made from the one released."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.schema import Domain


@dataclass(frozen=True, repr=False)
class PublicTable:
    """A published table of non-negative whole numbers over `domain`, under a declared `name` ("census-2015").

    Make it with `PublicTable.of`. It must have been public before, and must not come from the data to be released: the
    guarantee of a release lists it among what is public. A confidential Counts is refused.
    """

    domain: Domain
    name: str
    digest: str
    values: NDArray[np.int64] = field(compare=False)

    @classmethod
    def of(cls, values: ArrayLike, domain: Domain, name: str) -> PublicTable:
        """From an array of the domain's shape; every fault at once."""
        if hasattr(values, "unit"):
            raise PrivacyError("a public table is never made from confidential Counts; load what was published before")
        array = np.asarray(values)
        faults = []
        if not isinstance(name, str) or not name.strip():
            faults.append('a public table needs a declared name such as "census-2015"')
        if array.shape != domain.shape:
            faults.append(f"the public table has shape {array.shape}; the domain has {domain.shape}")
        if array.dtype.kind not in "iuf":
            faults.append(f"a public table holds whole numbers, not {array.dtype}")
        elif not np.all((array >= 0) & (array < 2.0**62)) or not np.array_equal(array, np.floor(array)):
            faults.append("a public table holds whole numbers from 0 to 2^62")
        elif array.shape == domain.shape and np.any(array[~domain.possible_dense()]):
            faults.append("the public table has people in cells that the mask calls impossible")
        raise_faults(DomainError, faults)
        flat = np.array(array, dtype=np.int64).ravel()
        flat.flags.writeable = False
        return cls(domain, name, hashlib.sha256(flat.astype("<i8").tobytes()).hexdigest(), flat)

    def __repr__(self) -> str:
        return f"PublicTable({self.name!r}, shape={self.domain.shape})"

    def to_json(self) -> dict[str, Any]:
        """Its name and the digest of its values, which are public."""
        return {"name": self.name, "sha256": self.digest}
