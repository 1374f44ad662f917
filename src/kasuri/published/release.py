"""Release: what may be published, and all that its holder can do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

from numpy.typing import ArrayLike

from kasuri.published import questions
from kasuri.published.area import Area
from kasuri.published.intervals import Interval, interval
from kasuri.published.protected import Protected
from kasuri.published.questions import Answer, Quantile, Ranking


@dataclass(frozen=True, repr=False, eq=False)
class Release(Protected):
    """A protected table in coordinate form: `cells` strictly increasing, `values` not 0; every other cell is 0.

    `recipe` is the mechanism in words and parameters, `provenance` how it was run (release_id, version, source, ledger
    entry). `receipt` is the reservation that paid for it, to be settled by `save()`; it is not published.
    """

    def area(
        self,
        area: Area | None = None,
        /,
        *,
        rows: slice | int | None = None,
        cols: slice | int | None = None,
        code: str | None = None,
        cells: ArrayLike | None = None,
        **axes: Any,
    ) -> int | float:
        """Sum over an area: an `Area`, or its keywords. These are `rows` and `cols` of the mesh (indices of the
        window), or a mesh `code` of the same or a coarser level; other axes by index, slice or label; regions of a map
        by the map's name and theirs. Or any `cells`: an array of cell indices, or of true and false in the domain's
        shape.

        >>> out.area(rows=slice(0, 64), cols=slice(0, 64), sex="female")    # doctest: +SKIP
        >>> out.area(code="5339")                                           # doctest: +SKIP
        >>> out.area(municipality="横浜市西区")                              # doctest: +SKIP
        """
        where = Area.given(area, rows=rows, cols=cols, code=code, cells=cells, **axes)
        return self.sum_over(where.on(self.domain)).item()

    def interval(
        self,
        area: Area | None = None,
        /,
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
        where = Area.given(area, rows=rows, cols=cols, code=code, cells=cells, **axes)
        return interval(self, where.on(self.domain), level)

    @overload
    def quantile(
        self, axis: str, q: float, /, area: Area | None = None, *, level: float = 0.95, **where: Any
    ) -> Quantile: ...
    @overload
    def quantile(
        self, axis: str, q: Sequence[float], /, area: Area | None = None, *, level: float = 0.95, **where: Any
    ) -> list[Quantile]: ...
    def quantile(
        self, axis: str, q: float | Sequence[float], /, area: Area | None = None, *, level: float = 0.95, **where: Any
    ) -> Quantile | list[Quantile]:
        """The q-quantile of an area along an Ordered or Time axis, or several, each with the range of indices that
        holds the true one with confidence `level`. It costs no budget (docs/proofs/questions.md); areas as in `area`.

        >>> out.quantile("age", [.25, .5, .75], county="17031")             # doctest: +SKIP
        """
        several = [*q] if isinstance(q, Sequence) else [q]
        found = questions.quantiles(self, axis, several, Area.given(area, **where), level)
        return found if isinstance(q, Sequence) else found[0]

    def mean(
        self,
        axis: str,
        /,
        area: Area | None = None,
        *,
        numbers: Sequence[Any] | None = None,
        level: float = 0.95,
        **where: Any,
    ) -> Answer:
        """The mean of an area along an ordered axis whose indices have `numbers`: one each, or (low, high) where
        records may have any number between. Left out: labels that are numbers, or the indices. It costs no budget."""
        return questions.mean(self, axis, numbers, Area.given(area, **where), level)

    def share(self, part: Area, of: Area | None = None, /, *, level: float = 0.95) -> Answer:
        """The part of an area (left out: the whole table) that lies in `part`. It costs no budget."""
        return questions.share(self, part, Area.given(of), level)

    def ratio(self, first: Area, second: Area, /, *, other: Release | None = None, level: float = 0.95) -> Answer:
        """The count of `first` over that of `second`, of this release or of the `other`. It costs no budget."""
        return questions.ratio(self, first, self if other is None else other, second, level)

    def average(self, counts: Release, /, area: Area | None = None, *, level: float = 0.95, **where: Any) -> Answer:
        """The mean amount of an area: this release of bounded sums over a release of `counts` of the same unit and
        domain. Both were charged; the answer costs no budget."""
        return questions.average(self, counts, Area.given(area, **where), level)

    def change(self, earlier: Release, /, area: Area | None = None, *, level: float = 0.95, **where: Any) -> Answer:
        """The count of an area less that in an `earlier` release. It costs no budget."""
        return questions.change(earlier, self, Area.given(area, **where), level)

    def rank(
        self, by: str | Mapping[str, Area], /, area: Area | None = None, *, level: float = 0.95, **where: Any
    ) -> Ranking:
        """The indices of an axis within an area, or areas by name, from the largest down: the ranks each may have, and
        groups whose order is certified, all pairs together. `.top(10)` says which are, and which may be, among the ten
        largest. It costs no budget."""
        return questions.ranking(self, by, Area.given(area, **where), level)

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
        from kasuri.store.folder import save

        save(self, folder, unmetered=unmetered, sign=sign)

    @classmethod
    def load(cls, folder: str) -> Release:
        """A saved release, verified and read back: the same areas and intervals as before it was saved."""
        from kasuri.store.load import load

        found = load(folder)
        return cls(*(getattr(found, field.name) for field in fields(found)))

    def export(self, target: str, *, levels: Sequence[str] = (), unmetered: bool = False) -> None:
        """Write the release for others to use: a .csv, .xlsx, .parquet (GeoParquet), .gpkg, .sqlite or .duckdb file,
        or a postgresql:// database. `levels` adds the sums at coarser mesh levels. Refused as in `save`.

        Databases may hold several releases; one whose release_id is there already is refused.
        """
        from kasuri.store.export import export

        export(self, target, levels, unmetered=unmetered)
