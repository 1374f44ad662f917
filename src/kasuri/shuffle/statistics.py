"""Means, covariance, correlation and contingency tables of the joined rows, unbiased, each with its standard error.

Every report y of a column has a value z(y) with E[z] = v, the person's value on the scale [-1, 1] (or a label's 0/1
indicator). The randomizers of different columns are independent, so E[z_i z_j] = v_i v_j for i != j; on the diagonal
E[z^2] is NOT v^2, and a second table s(y) with E[s] = v^2 is needed. From one plain two-point report there is none:
z^2 is constant. (The diagonal printed in [Kii2022] is that constant.) All of this is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.shuffle.columns import Column, Floats
from kasuri.shuffle.joined import Joined

NOT_IDENTIFIED = "its variance cannot be identified from this mechanism; plan it with coin, piecewise or hybrid"


@dataclass(frozen=True, eq=False)
class Reports:
    """The unbiased values of chosen columns: one row a person, one column a number or a label."""

    names: tuple[str, ...]
    of: NDArray[np.int64]
    """Which column of the plan each belongs to."""
    z: Floats
    """On the scale [-1, 1] (numbers) or 0/1 (labels)."""
    s: tuple[Floats | None, ...]
    """Unbiased squares; None where one report tells nothing of the square."""
    centre: Floats
    half: Floats
    """A value is centre + half z in the user's units."""

    @property
    def n(self) -> int:
        return self.z.shape[0]

    def pair(self, i: int, j: int) -> Floats | None:
        """Per person an unbiased value of the product v_i v_j."""
        if self.of[i] != self.of[j]:
            return self.z[:, i] * self.z[:, j]
        if i == j:
            return self.s[i]
        return np.zeros(self.n)  # two labels of one column: nobody has both


def reports_of(joined: Joined, columns: tuple[str, ...] | None = None) -> Reports:
    """The unbiased values of the joined rows."""
    chosen = joined.plan.columns if columns is None else tuple(joined.plan.column(name) for name in columns)
    names: list[str] = []
    of: list[int] = []
    parts: list[Floats] = []
    squares: list[Floats | None] = []
    centre: list[float] = []
    half: list[float] = []
    for k, column in enumerate(chosen):
        z = column.unbiased(joined.columns[column.name])
        parts.append(z)
        names += column.levels()
        of += [k] * z.shape[1]
        if column.is_number:
            squares.append(column.squares(joined.columns[column.name]))
            centre.append(float(column.numeric.low + column.numeric.high) / 2)
            half.append(column.half)
        else:
            squares += [z[:, level] for level in range(z.shape[1])]  # an indicator is its own square
            centre += [0.0] * z.shape[1]
            half += [1.0] * z.shape[1]
    return Reports(tuple(names), np.array(of), np.hstack(parts), tuple(squares), np.array(centre), np.array(half))


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Means and covariances of the joined people, in the user's units, with standard errors.

    `covariance` is unbiased entry by entry and may fail to be a covariance matrix; `psd` is the nearest one that is
    (eigenvalues below 0 set to 0). An entry that cannot be identified is nan.
    """

    names: tuple[str, ...]
    n: int
    mean: Floats
    mean_error: Floats
    covariance: Floats
    covariance_error: Floats
    correlation: Floats
    correlation_error: Floats
    notes: tuple[str, ...]

    @cached_property
    def psd(self) -> Floats:
        """The covariance matrix projected on those that exist; entries that are not identified count as 0."""
        return nearest_psd(np.nan_to_num(self.covariance))

    @property
    def learned(self) -> NDArray[np.bool_]:
        """True where an entry of the covariance is larger than its standard error."""
        with np.errstate(invalid="ignore"):
            return np.abs(self.covariance) > self.covariance_error

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """(lower, upper) of every entry of the covariance."""
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.covariance_error
        return self.covariance - reach, self.covariance + reach

    def __repr__(self) -> str:
        return f"Moments({', '.join(self.names)}; {self.n} rows)"

    def words(self) -> str:
        """The tables as a person reads them; "?" marks what is not larger than its own error."""
        lines = [f"{self.n} joined rows", f"{'':24}{'mean':>14}{'std. error':>14}"]
        for name, mean, error in zip(self.names, self.mean, self.mean_error, strict=True):
            lines.append(f"{name:24}{mean:14.5g}{error:14.3g}{_mark(mean, error)}")
        lines.append("correlation (std. error)")
        for i, name in enumerate(self.names):
            for j in range(i):
                r, error = self.correlation[i, j], self.correlation_error[i, j]
                c, own = self.covariance[i, j], self.covariance_error[i, j]
                lines.append(
                    f"{self.names[j] + ', ' + name:40}{r:9.3f} ({error:.3f}){_mark(r, error)}"
                    f"   covariance {c:.4g} ({own:.2g}){_mark(c, own)}"
                )
            spread, error = self.covariance[i, i], self.covariance_error[i, i]
            lines.append(f"{name + ', variance':40}{spread:.4g} ({error:.2g}){_mark(spread, error)}")
        lines += [f"note: {note}" for note in self.notes]
        lines.append('"?": the error is as large as the estimate; nothing is learned')
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "n": self.n,
            "mean": plain(self.mean),
            "mean_error": plain(self.mean_error),
            "covariance": plain(self.covariance),
            "covariance_error": plain(self.covariance_error),
            "correlation": plain(self.correlation),
            "correlation_error": plain(self.correlation_error),
            "learned": self.learned.tolist(),
            "psd": plain(self.psd),
            "notes": list(self.notes),
        }


def _mark(value: float, error: float) -> str:
    return "" if abs(value) > error else " ?"


def plain(values: Floats) -> Any:
    """Numbers as lists, None for what is not a number."""
    return np.where(np.isfinite(values), values, None).tolist()  # type: ignore[call-overload]


def covariance(joined: Joined, columns: tuple[str, ...] | None = None) -> Moments:
    """Means, covariance and correlation of the people in both tables.

    Off the diagonal c = mean(z_i z_j) - m_i m_j, on it mean(s) - m^2 + mean(z^2 - s)/n, where the last term is the
    noise in m^2: each is unbiased for the covariance (divided by n) of the true rows, up to the grid of the
    randomizer (1/256^2 of the squared half-width). Standard errors are those of the influence function of each entry.
    Cost: O(n d^2) for d columns.
    """
    r = reports_of(joined, columns)
    n, d = r.z.shape
    if n < 2:
        raise DomainError("covariance: at least two joined rows")
    m = r.z.mean(axis=0)
    c, c_error = np.full((d, d), np.nan), np.full((d, d), np.nan)
    influence: dict[int, Floats] = {}
    notes = []
    for i in range(d):
        square = r.s[i]
        if square is None:
            notes.append(f"{r.names[i]}: {NOT_IDENTIFIED}")
            continue
        zi = r.z[:, i]
        c[i, i] = square.mean() - m[i] ** 2 + float((zi * zi - square).mean()) / n
        influence[i] = square - 2 * m[i] * zi
        c_error[i, i] = influence[i].std() / math.sqrt(n)
    correlation, r_error = np.full((d, d), np.nan), np.full((d, d), np.nan)
    for i in range(d):
        for j in range(i):
            product = r.pair(i, j)
            assert product is not None
            noise = 0.0
            if r.of[i] == r.of[j]:  # two labels of one report share their noise
                noise = float((r.z[:, i] * r.z[:, j]).mean()) / n
            c[i, j] = c[j, i] = product.mean() - m[i] * m[j] + noise
            own = product - m[j] * r.z[:, i] - m[i] * r.z[:, j]
            c_error[i, j] = c_error[j, i] = own.std() / math.sqrt(n)
            if i in influence and j in influence and c[i, i] > 0 and c[j, j] > 0:
                scale = math.sqrt(c[i, i] * c[j, j])
                rho = c[i, j] / scale
                shift = own / scale - rho / 2 * (influence[i] / c[i, i] + influence[j] / c[j, j])
                correlation[i, j] = correlation[j, i] = rho
                r_error[i, j] = r_error[j, i] = shift.std() / math.sqrt(n)
        if i in influence:
            correlation[i, i], r_error[i, i] = (1.0, 0.0) if c[i, i] > 0 else (np.nan, np.nan)
            if c[i, i] <= 0:
                notes.append(f"{r.names[i]}: the noise is larger than the variance; no correlation can be told")
    units = np.outer(r.half, r.half)
    return Moments(
        r.names, n, r.centre + r.half * m, r.half * r.z.std(axis=0) / math.sqrt(n), c * units, c_error * units,
        correlation, r_error, tuple(notes),
    )  # fmt: skip


def nearest_psd(matrix: Floats) -> Floats:
    """The nearest positive semidefinite matrix in the Frobenius norm: negative eigenvalues become 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    out: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (out + out.T) / 2


def nearest_correlation(matrix: Floats) -> Floats:
    """A positive definite matrix with ones on its diagonal near `matrix`: alternating projections, then a shrink."""
    out = np.clip(np.nan_to_num(matrix), -1.0, 1.0)
    for _ in range(50):
        out = nearest_psd(out)
        np.fill_diagonal(out, 1.0)
    low = float(np.linalg.eigvalsh(out).min())
    if low < 1e-6:  # towards the identity, until it has a Cholesky factor
        share = (1e-6 - low) / (1 - low)
        out = (1 - share) * out + share * np.eye(len(out))
    return out


@dataclass(frozen=True, eq=False, repr=False)
class Contingency:
    """People by the labels of two columns: unbiased counts (a few may be below 0) and standard errors."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Floats
    standard_error: Floats

    @property
    def learned(self) -> NDArray[np.bool_]:
        """True where a count is larger than its standard error."""
        return np.abs(self.counts) > self.standard_error

    def words(self) -> str:
        lines = [f"{'':16}" + "".join(f"{label:>22}" for label in self.columns)]
        for i, label in enumerate(self.rows):
            cells = zip(self.counts[i], self.standard_error[i], strict=True)
            lines.append(f"{label:16}" + "".join(f"{f'{c:.0f} ({e:.0f}){_mark(c, e)}':>22}" for c, e in cells))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "counts": self.counts.tolist(),
            "standard_error": self.standard_error.tolist(),
            "learned": self.learned.tolist(),
        }


def contingency(joined: Joined, row: str, column: str) -> Contingency:
    """How many people have each pair of labels of two category columns."""
    one, two = (_category(joined, name) for name in (row, column))
    if one.name == two.name:
        raise DomainError("contingency: two different columns are needed")
    x, y = one.unbiased(joined.columns[one.name]), two.unbiased(joined.columns[two.name])
    n = len(joined)
    squares = (x * x).T @ (y * y) / n
    share = x.T @ y / n
    return Contingency(one.category.labels, two.category.labels, n * share, np.sqrt(n * (squares - share**2)))


def _category(joined: Joined, name: str) -> Column:
    column = joined.plan.column(name)
    if column.is_number:
        raise DomainError(f"column {name!r} holds numbers; a contingency table takes categories")
    return column
