"""Release: what may be published. There is no way from here back to Counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.budget.ledger import Receipt
from kasuri.errors import DomainError
from kasuri.privacy import Guarantee
from kasuri.published.measurements import Measurements
from kasuri.schema import Domain
from kasuri.trees.regions import Boxes, cells_of

if TYPE_CHECKING:
    from kasuri.published.intervals import Interval

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
class Release:
    """A protected table in coordinate form: `cells` strictly increasing, `values` not 0; every other cell is 0.

    `recipe` is the mechanism in words and parameters, `provenance` how it was run (release_id, version, source, ledger
    entry). `receipt` is the reservation that paid for it, to be settled by `save()`; it is not published.
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

    def area(
        self,
        *,
        rows: slice | int | None = None,
        cols: slice | int | None = None,
        code: str | None = None,
        cells: ArrayLike | None = None,
        **axes: Any,
    ) -> int | float:
        """Sum over an area: `rows` and `cols` of the mesh (indices of the window), or a mesh `code` of the same or a
        coarser level; other axes by index, slice or label. Or any `cells`: an array of cell indices, or of true and
        false in the domain's shape.

        >>> out.area(rows=slice(0, 64), cols=slice(0, 64), sex="female")    # doctest: +SKIP
        >>> out.area(code="5339")                                           # doctest: +SKIP
        """
        return self.sum_over(self._area(rows, cols, code, cells, axes)).item()

    def interval(
        self,
        *,
        level: float = 0.95,
        rows: slice | int | None = None,
        cols: slice | int | None = None,
        code: str | None = None,
        cells: ArrayLike | None = None,
        **axes: Any,
    ) -> Interval:
        """Where the true count of an area lies, with confidence `level`; areas as in `area`. Cells that are absent from
        the release (released as 0) have an upper limit too.

        From the published noisy numbers alone, so the privacy guarantee is untouched, and a release read back from
        disk gives the same answer (docs/proofs/intervals.md). DomainError where a recipe publishes none.

        >>> out.interval(rows=slice(0, 64), cols=slice(0, 64), level=0.95)  # doctest: +SKIP
        """
        from kasuri.published.intervals import interval

        return interval(self, self._area(rows, cols, code, cells, axes), level)

    def sum_over(self, area: Boxes | NDArray[np.int64]) -> Any:
        """Released sum over one box, or over an array of rising cells, as a NumPy number."""
        if not isinstance(area, Boxes):
            return self.values[np.isin(self.cells, area, assume_unique=True)].sum()
        keep = np.ones(self.cells.size, dtype=bool)
        for index, low, high in zip(self.domain.unravel(self.cells), area.low[0], area.high[0], strict=True):
            keep &= (index >= low) & (index < high)
        return self.values[keep].sum()

    def _area(
        self,
        rows: slice | int | None,
        cols: slice | int | None,
        code: str | None,
        cells: ArrayLike | None,
        axes: Mapping[str, Any],
    ) -> Boxes | NDArray[np.int64]:
        """One box, or the possible cells of an irregular area."""
        if cells is not None:
            if rows is not None or cols is not None or code is not None or axes:
                raise DomainError("an area is cells=, or a mesh code, rows, cols and axes, not both")
            return cells_of(cells, self.domain)
        wanted: dict[str, Any] = {}
        if code is not None:
            if rows is not None or cols is not None:
                raise DomainError("an area is a mesh code, or rows and cols, not both")
            rows, cols = _code_slices(code, self.domain)
        if rows is not None or cols is not None:
            meshes = self.domain.planes
            if len(meshes) != 1:
                raise DomainError(f"rows and cols need one mesh; name the dimension among {self.domain.dims}")
            wanted |= {"row": rows, "col": cols}
        wanted |= axes
        unknown = [name for name in wanted if name not in self.domain.dims]
        if unknown:
            raise DomainError(f"no dimension {unknown}; the dimensions are {list(self.domain.dims)}")
        ranges = [
            (0, size) if wanted.get(dim) is None else _range(wanted[dim], size, dim, self.domain)
            for dim, size in zip(self.domain.dims, self.domain.shape, strict=True)
        ]
        low, high = np.array(ranges, dtype=np.int64).T
        if (high <= low).any():
            return np.zeros(0, dtype=np.int64)
        return Boxes(low[None, :].copy(), high[None, :].copy())

    def to_arrow(self) -> Any:
        """The released cells as an Arrow table: labels and times, value, lower and upper (see `published.frames`)."""
        from kasuri.published import frames

        return frames.arrow(self)

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas frame."""
        from kasuri.published import frames

        return frames.pandas(self)

    def to_polars(self) -> Any:
        """`to_arrow` as a polars frame."""
        from kasuri.published import frames

        return frames.polars(self)

    def to_geopandas(self) -> Any:
        """`to_arrow` as a geopandas frame with the outlines of the mesh's cells."""
        from kasuri.published import frames

        return frames.geopandas(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """What DuckDB, polars and pandas take as a table: `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(self) -> Any:
        """A matplotlib figure: a map of the mesh, or bars by label."""
        from kasuri.published import frames

        return frames.figure(self)

    def _repr_html_(self) -> str:
        from kasuri.published import frames

        return frames.html(self)

    def save(self, folder: str, *, unmetered: bool = False, sign: str | None = None) -> None:
        """Write the release to a new folder: Parquet, DuckDB, the measurements, datapackage.json, a certificate in two
        languages and report.html; never over an existing one. `sign` names a private key file of `kasuri keygen`.

        A seeded release is refused, and one without a ledger unless `unmetered=True` says that this is meant. The
        ledger records `committed` before the folder appears under its name.
        """
        from kasuri.store import save

        save(self, folder, unmetered=unmetered, sign=sign)

    @classmethod
    def load(cls, folder: str) -> Release:
        """A saved release, verified and read back: the same areas and intervals as before it was saved."""
        from kasuri.store.load import load

        return load(folder)

    def export(self, target: str, *, levels: Sequence[str] = (), unmetered: bool = False) -> None:
        """Write the release for others to use: a .csv, .xlsx, .parquet (GeoParquet), .gpkg, .sqlite or .duckdb file,
        or a postgresql:// database. `levels` adds the sums at coarser mesh levels. Refused as in `save`.

        Databases may hold several releases; one whose release_id is there already is refused.
        """
        from kasuri.store.export import export

        export(self, target, levels, unmetered=unmetered)


def _code_slices(code: str, domain: Domain) -> tuple[slice, slice]:
    """Rows and columns of the window that lie in the mesh `code`; the code must lie wholly in the window."""
    meshes = domain.planes
    if len(meshes) != 1 or meshes[0].level is None:
        raise DomainError(
            "a mesh code names an area of one mesh with a level; this domain has none, or several: give rows and cols"
        )
    return meshes[0].area(code)


def _range(choice: Any, size: int, dim: str, domain: Domain) -> tuple[int, int]:
    """Half-open range of indices for a slice, an index or a label."""
    if isinstance(choice, slice):
        if choice.step not in (None, 1):
            raise DomainError(f"{dim}: a slice with a step is no area")
        low, high, _ = choice.indices(size)
        if (choice.stop is not None and choice.stop > size) or (choice.start is not None and choice.start > size):
            raise DomainError(f"{dim}: {choice.start}:{choice.stop} leaves the domain (0:{size})")
        return low, high
    if isinstance(choice, str):
        found = domain.axis(dim).span(choice)
        if found is None:
            raise DomainError(f"{dim}: no label {choice!r}")
        return found
    index = int(choice)
    if not 0 <= index < size:
        raise DomainError(f"{dim}: index {index} leaves the domain (0..{size - 1})")
    return index, index + 1
