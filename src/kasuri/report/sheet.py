"""The released rows as a page shows them: read from the release's folder, summed to the level that fits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int, ranked
from kasuri.errors import FormatError
from kasuri.files import read_parquet
from kasuri.published.protected import files_of
from kasuri.report.pack import Packed, Rows, distances, pack, whole
from kasuri.schema import Domain, Plane

MOST_EXACT = 100_000
"""Listed cells up to which their limits are shown to the last digit: these digits are half of a page."""
GRAINS = 25
"""Of values that are not whole: how many steps of their rounding half an interval of most cells has, at least."""
MOST_BYTES = 14_000_000
MOST_ROWS = 5_000_000
MOST_SIDE = 1 << 14
"""Tables beyond these (bytes, rows; cells to a side of the mesh) are shown at a coarser level, so that a page stays
below 15 MB and opens at once."""
MOST_NOISE = 1_700_000
"""Bytes, where noise fills most cells of the table: single ones tell little, and a page stays below 2 MB."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """The released rows and the domain they lie in, without those that no map shows, which are elsewhere; `truth` only
    in internal reports."""

    domain: Domain
    cells: Int
    values: NDArray[Any]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    truth: NDArray[Any] | None = None
    rounded: int = 0
    """The grain of the table whose sums these are."""

    @classmethod
    def read(cls, folder: Path, about: Mapping[str, Any]) -> Sheet:
        """The table of a saved release: release.parquet, or numbered files where it was written in parts. Their
        SHA-256 must be those the manifest names."""
        from pyarrow import ArrowException, concat_tables

        said = {str(item.get("path")): item.get("hash") for item in about["resources"] if isinstance(item, dict)}
        names, parts = ["cell", "value", "lower", "upper"], []
        for name in files_of("release", said):
            path = folder / name
            try:
                if "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest() != said[name]:
                    raise FormatError(f"{path}: changed since it was written; see: kasuri verify {folder}")
                parts.append(read_parquet(path, names))
            except (OSError, KeyError, ArrowException) as error:
                raise FormatError(f"{path}: cannot be read ({type(error).__name__})") from None
        if not parts:
            raise FormatError(f"{folder}: no released table (release.parquet) is listed in its manifest")
        table = concat_tables(parts)
        cells, values, lower, upper = (table[name].to_numpy() for name in names)
        if np.any(np.diff(cells) <= 0):
            order = np.argsort(cells, kind="stable")
            cells, values, lower, upper = cells[order], values[order], lower[order], upper[order]
        low, high = lower.astype(float, copy=False), upper.astype(float, copy=False)
        return cls(Domain.from_json(about["domain"]), cells, values, low, high).mapped()

    def mapped(self) -> Sheet:
        """The rows that a map shows."""
        domain = self.domain.mapped()
        if domain == self.domain:
            return self
        index = self.domain.unravel(self.cells)
        good = np.ones(self.cells.size, dtype=bool)
        for was, now in zip(self.domain.axes, domain.axes, strict=True):
            if now != was:
                good &= was.inside([index[d] for d in self.domain.positions(was.name)])
        truth = None if self.truth is None else self.truth[good]
        cells = domain.ravel([part[good] for part in index])
        return Sheet(domain, cells, self.values[good], self.lower[good], self.upper[good], truth)

    @property
    def meshes(self) -> tuple[Plane, ...]:
        return self.domain.planes

    @property
    def has_mesh(self) -> bool:
        return bool(self.meshes)

    @property
    def has_intervals(self) -> bool:
        return bool(np.isfinite(self.lower).any())

    def along(self) -> tuple[Int, ...]:
        """Index of each row along every axis (of a mesh: row-major)."""
        dims, out = list(self.domain.unravel(self.cells)), []
        for axis in self.domain.axes:
            at = [dims[p] for p in self.domain.positions(axis.name)]
            out.append(at[0] if len(at) == 1 else at[0] * axis.sizes[1] + at[1])
        return tuple(out)

    @cached_property
    def _wide(self) -> float:
        """The width of the interval of most cells, in a table of very many; else 0."""
        wide = (self.upper - self.lower)[np.isfinite(self.lower) & np.isfinite(self.upper)]
        return float(np.median(wide)) if self.cells.size > MOST_EXACT and wide.size else 0.0

    @cached_property
    def grain(self) -> int:
        """What values that are not whole are rounded to, in a table of very many cells: 1, 2 or 5 times a power of ten,
        far below the width of most intervals. 0: they are shown to the last digit, as are those of more axes, whose
        long sums would show the rounding."""
        if self.rounded:
            return self.rounded
        plain = len(self.domain.axes) == 1 and self.truth is None and self._wide > 0
        return _round(self._wide / 2 / GRAINS) if plain and whole([self.values]) > 1 else 0

    @cached_property
    def step(self) -> int:
        """What the limits of single cells are rounded to, outwards: in a table of very many cells 1, 2 or 5 times a
        power of ten, at most a third of the width of most of them; else 1. Limits that follow from the value alone
        take no room and stay as they are."""
        if not self._wide or (not self.grain and whole([self.values, self.lower, self.upper]) > 1):
            return 1
        order = ranked(self.values)
        equal = np.diff(self.values[order]) == 0
        alike = (np.diff(ends[order])[equal] == 0 for ends in (self.lower, self.upper))
        return _round(self._wide / 3) if self.grain or not all(map(np.all, alike)) else 1

    @cached_property
    def drawn(self) -> NDArray[Any]:
        """The values as the page has them. Where they are rounded, what is rounded off a cell is passed on to the next
        one of its area: sums over areas of every size are off by one `grain` at most, or by four where squares of one
        size do not lie within those of the next (2 km and 5 km)."""
        if not self.grain:
            return self.values
        index = self.domain.unravel(self.cells)
        levels = self.meshes[0].levels if self.has_mesh else ()
        areas = [(part + off) // step.side for step in levels for part, off in zip(index, step.offset, strict=True)]
        order = np.lexsort((self.cells, *areas))
        sums = np.rint(np.cumsum(self.values[order]) / self.grain)
        out = np.empty(self.cells.size)
        out[order] = np.diff(sums, prepend=0) * self.grain
        return out

    @cached_property
    def rows(self) -> Rows:
        """What the viewer is given, in full detail."""
        values, step, grain = self.drawn, self.step, max(self.grain, 1)
        unit = whole([values] + ([] if self.truth is None else [self.truth]))
        columns = {"value": np.rint(values * unit).astype(np.int64)}
        if self.has_intervals:
            lower, upper = (np.floor(self.lower / step) * step, np.ceil(self.upper / step) * step)
            below, above = distances(values, np.minimum(lower, values), np.maximum(upper, values), unit)
            columns["below"], columns["above"] = below, above
        if self.truth is not None:
            columns["truth"] = np.rint(self.truth * unit).astype(np.int64)
        return Rows(self.along(), columns, unit, step, grain)

    def shown(self) -> tuple[Packed, Sheet]:
        """The packed rows for the page, and the sheet they show: this one, or its sums at the finest level that
        fits."""
        small = self.cells.size <= MOST_ROWS and all(max(mesh.shape) <= MOST_SIDE for mesh in self.meshes)
        packed = pack(self.rows) if small else None
        most = MOST_NOISE if 2 * self.cells.size > self.domain.size else MOST_BYTES
        if packed is not None and len(packed[1]) <= most:
            return packed, self
        coarse = self.coarser()
        if coarse is not None:
            return coarse.shown()
        kept = np.sort(np.argsort(-np.abs(self.values), kind="stable")[: MOST_ROWS // 4])
        few = None if self.truth is None else self.truth[kept]
        part = replace(self, cells=self.cells[kept], values=self.values[kept], lower=self.lower[kept],
                       upper=self.upper[kept], truth=few)  # fmt: skip
        return pack(part.rows), part

    def coarser(self) -> Sheet | None:
        """Sums over squares of 2 x 2 (or the next level's) cells of the first mesh; no intervals."""
        mesh = max(self.meshes, key=lambda mesh: max(mesh.shape), default=None)
        if mesh is None or len(mesh.levels) < 2:
            return None
        step = mesh.levels[1]
        small = mesh.coarser(step)
        domain = Domain(tuple(small if axis is mesh else axis for axis in self.domain.axes))
        index = list(self.domain.unravel(self.cells))
        for place, off in zip(self.domain.positions(mesh.name), step.offset, strict=True):
            index[place] = (index[place] + off) // step.side
        columns = [self.values] + ([] if self.truth is None else [self.truth])
        cells, (values, *true) = summed(domain.ravel(index), columns, domain.size)
        truth = true[0] if true else None
        none = np.full(cells.size, np.nan)
        return Sheet(domain, cells, values.astype(self.values.dtype), none, none, truth, self.grain)


def _round(most: float) -> int:
    """1, 2 or 5 times a power of ten: the largest up to `most`, at least 1."""
    power = 10 ** int(np.log10(max(most, 1.0)))
    return int(power * max((part for part in (1, 2, 5) if part * power <= most), default=1))


def summed(keys: Int, columns: list[NDArray[Any]], size: int) -> tuple[Int, list[NDArray[Any]]]:
    """Columns added up by key (below `size`): the keys whose sums are not all 0, and these sums."""
    if size <= max(1 << 20, 4 * keys.size):
        sums = [np.bincount(keys, weights=column, minlength=size) for column in columns]
        names = np.arange(size)
    else:
        names, at = np.unique(keys, return_inverse=True)
        sums = [np.bincount(at, weights=column, minlength=names.size) for column in columns]
    keep = np.any([part != 0 for part in sums], axis=0)
    return names[keep], [part[keep] for part in sums]
