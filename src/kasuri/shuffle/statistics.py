"""Means, covariance, correlation and contingency tables of the joined rows, unbiased, each with its standard error.

Every report y of a column has a value z(y) with E[z] = v, the person's value on the scale [-1, 1] (or a label's 0/1
indicator). The randomizers of different columns are independent, so E[z_i z_j] = v_i v_j for i != j; on the diagonal
E[z^2] is NOT v^2, and a second table s(y) with E[s] = v^2 is needed. From one plain two-point report there is none:
z^2 is constant. (The diagonal printed in [Kii2022] is that constant.) All of this is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.shuffle.columns import Column, Floats
from kasuri.shuffle.joined import Joined

NOT_IDENTIFIED = "its variance cannot be identified from this mechanism; plan it with piecewise, hybrid or coin"
ERRORS = 2.0
"""Standard errors beyond which an estimate counts as learned: noise alone passes one error in 3 tries, two in 22."""


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


def names_of(columns: Iterable[str], what: str) -> tuple[str, ...]:
    """Names of columns: at least one, each once."""
    names = () if isinstance(columns, str) else tuple(columns)
    if not names or len(set(names)) != len(names):
        raise DomainError(f'{what}: at least one name, each once, as in ("age", "spend")')
    return names


def reports_of(joined: Joined, columns: tuple[str, ...] | None = None) -> Reports:
    """The unbiased values of the joined rows."""
    chosen = joined.plan.columns
    if columns is not None:
        chosen = tuple(joined.plan.column(name) for name in names_of(columns, "columns"))
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
    ratio: Floats
    """Covariance over both deviations, cut to [-1, 1]: noise carries it beyond."""
    correlation_error: Floats
    """Of the ratio before it is cut."""
    notes: tuple[str, ...]

    @cached_property
    def psd(self) -> Floats:
        """The covariance matrix projected on those that exist; entries that are not identified count as 0."""
        return nearest_psd(np.nan_to_num(self.covariance))

    @cached_property
    def correlation(self) -> Floats:
        """The ratio r shrunk by r^2/(r^2 + error^2), at most by half its error: noise is not shown as a relation."""
        squared = self.ratio**2
        with np.errstate(invalid="ignore"):
            return self.ratio * squared / np.maximum(squared + self.correlation_error**2, 1e-300)

    @property
    def imitated(self) -> Floats:
        """The correlation that synthetic rows have: r (1 - (2 errors/r)^2) beyond two errors, else 0.

        It rises from 0: where a step to 0.8 r is taken instead, the few pairs that noise carries past two errors make
        the rows worse than independent ones (Adult, epsilon 1 a column).
        """
        beyond = np.where(self.correlation_learned, self.ratio, np.inf)
        out: Floats = np.where(self.correlation_learned, beyond - (ERRORS * self.correlation_error) ** 2 / beyond, 0.0)
        return out

    @property
    def learned(self) -> NDArray[np.bool_]:
        """True where an entry of the covariance is larger than two of its standard errors."""
        return learned(self.covariance, self.covariance_error)

    @property
    def correlation_learned(self) -> NDArray[np.bool_]:
        """True where the ratio is larger than two of its standard errors; never where these are above 1/2."""
        return learned(self.ratio, self.correlation_error)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """(lower, upper) of every entry of the covariance."""
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.covariance_error
        return self.covariance - reach, self.covariance + reach

    def __repr__(self) -> str:
        return f"Moments({', '.join(self.names)}; {self.n} rows)"

    def words(self) -> str:
        """The tables as a person reads them; "?" marks what is not larger than two of its errors."""
        lines = [f"{self.n} joined rows", f"{'':24}{'mean':>14}{'std. error':>14}"]
        for name, mean, error in zip(self.names, self.mean, self.mean_error, strict=True):
            lines.append(f"{name:24}{mean:14.5g}{error:14.3g}{mark(mean, error)}")
        lines.append("correlation, shrunk by its noise (std. error)")
        known = self.correlation_learned
        for i, name in enumerate(self.names):
            for j in range(i):
                r, error = self.correlation[i, j], self.correlation_error[i, j]
                c, own = self.covariance[i, j], self.covariance_error[i, j]
                lines.append(
                    f"{self.names[j] + ', ' + name:40}{r:9.3f} ({error:.3f}){'' if known[i, j] else ' ?'}"
                    f"   covariance {c:.4g} ({own:.2g}){mark(c, own)}"
                )
            spread, error = self.covariance[i, i], self.covariance_error[i, i]
            lines.append(f"{name + ', variance':40}{spread:.4g} ({error:.2g}){mark(spread, error)}")
        lines += [f"note: {note}" for note in self.notes]
        lines.append('"?": not larger than two standard errors; nothing is learned')
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
            "correlation_learned": self.correlation_learned.tolist(),
            "learned": self.learned.tolist(),
            "psd": plain(self.psd),
            "notes": list(self.notes),
        }


def learned(values: Floats, errors: Floats) -> NDArray[np.bool_]:
    """True where an estimate is larger than two of its standard errors."""
    with np.errstate(invalid="ignore"):
        return np.abs(values) > ERRORS * errors


def mark(value: float, error: float) -> str:
    """What is printed behind an estimate that is not."""
    return "" if learned(np.array(value), np.array(error)) else " ?"


def plain(values: Floats) -> Any:
    """Numbers as lists, None for what is not a number."""
    return np.where(np.isfinite(values), values, None).tolist()  # type: ignore[call-overload]


def covariance(joined: Joined, columns: tuple[str, ...] | None = None) -> Moments:
    """Means, covariance and correlation of the people in both tables.

    Off the diagonal c = mean(z_i z_j) - m_i m_j, on it mean(s) - m^2 + mean(z^2 - s)/n, where the last term is the
    noise in m^2: each is unbiased for the covariance (divided by n) of the true rows, up to the grid of the
    randomizer (1/256^2 of the squared half-width). Standard errors are those of the influence function of each entry
    and of the product of the two means' errors, which is all there is of a label's variance at a share of 1/2 (there,
    and near it, intervals cover more often than they say). They count the randomizers' noise and that people differ:
    intervals are for the population that these people are a sample of. For these people alone they are wider than
    needed: hardly so where the noise prevails, by half for a label of share 0.3 at epsilon 2.
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
        c_error[i, i] = _error(influence[i], zi, zi)
    ratio, r_error = np.full((d, d), np.nan), np.full((d, d), np.nan)
    for i in range(d):
        for j in range(i):
            product = r.pair(i, j)
            assert product is not None
            noise = 0.0
            if r.of[i] == r.of[j]:  # two labels of one report share their noise
                noise = float((r.z[:, i] * r.z[:, j]).mean()) / n
            c[i, j] = c[j, i] = product.mean() - m[i] * m[j] + noise
            own = product - m[j] * r.z[:, i] - m[i] * r.z[:, j]
            c_error[i, j] = c_error[j, i] = _error(own, r.z[:, i], r.z[:, j])
            if i in influence and j in influence and c[i, i] > 0 and c[j, j] > 0:
                scale = math.sqrt(c[i, i] * c[j, j])
                rho = c[i, j] / scale
                shift = own / scale - rho / 2 * (influence[i] / c[i, i] + influence[j] / c[j, j])
                r_error[i, j] = r_error[j, i] = shift.std() / math.sqrt(n)
                ratio[i, j] = ratio[j, i] = min(max(rho, -1.0), 1.0)
        if i in influence:
            ratio[i, i], r_error[i, i] = (1.0, 0.0) if c[i, i] > 0 else (np.nan, np.nan)
            if c[i, i] <= 0:
                notes.append(f"{r.names[i]}: the noise is larger than the variance; no correlation can be estimated")
    units = np.outer(r.half, r.half)
    return Moments(
        r.names, n, r.centre + r.half * m, r.half * r.z.std(axis=0) / math.sqrt(n), c * units, c_error * units,
        ratio, r_error, tuple(notes),
    )  # fmt: skip


def _error(influence: Floats, x: Floats, y: Floats) -> float:
    """Standard error of mean(xy) - mean(x) mean(y): its first order, and four times that of the second.

    The means' errors d (normal) add Var(d_x d_y) = V_x V_y + C_xy^2, all there is where the influence vanishes. Once
    would do if the slope were known; it is estimated from the same means, and with four times as much a 95 % interval
    covers m(1 - m) at least 93.5 % of the time at every distance of m from 1/2 (by quadrature). Of no weight elsewhere.
    """
    n = len(x)
    spread = np.cov(x, y, bias=True) / n
    return math.sqrt(influence.var() / n + 4 * (spread[0, 0] * spread[1, 1] + spread[0, 1] ** 2))


def nearest_psd(matrix: Floats) -> Floats:
    """The nearest positive semidefinite matrix in the Frobenius norm: negative eigenvalues become 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    out: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (out + out.T) / 2


def nearest_correlation(matrix: Floats) -> Floats:
    """The positive definite matrix with ones on its diagonal that is nearest to `matrix` (Frobenius norm): alternating
    projections with Dykstra's correction [Higham 2002], then a shrink."""
    out = np.clip(np.nan_to_num(matrix), -1.0, 1.0)
    np.fill_diagonal(out, 1.0)
    if float(np.linalg.eigvalsh(out).min()) >= 1e-6:
        return out
    carried = np.zeros_like(out)
    for _ in range(100):
        last, before = out, out - carried
        out = nearest_psd(before)
        carried = out - before
        np.fill_diagonal(out, 1.0)
        if float(np.abs(out - last).max()) < 1e-6:
            break
    low = float(np.linalg.eigvalsh(out).min())
    if low < 1e-6:  # towards the identity, until it has a Cholesky factor
        share = (1e-6 - low) / (1 - low)
        out = (1 - share) * out + share * np.eye(len(out))
    return out


def nearest_shares(found: Floats) -> Floats:
    """The shares, none below 0 and 1 in sum, that are nearest to `found`."""
    down = np.sort(found)[::-1]
    excess = (np.cumsum(down) - 1) / np.arange(1, len(down) + 1)
    out: Floats = np.maximum(found - excess[np.nonzero(down > excess)[0][-1]], 0.0)
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
        """True where a count is larger than two of its standard errors."""
        return learned(self.counts, self.standard_error)

    def words(self) -> str:
        lines = [f"{'':16}" + "".join(f"{label:>22}" for label in self.columns)]
        for i, label in enumerate(self.rows):
            cells = zip(self.counts[i], self.standard_error[i], strict=True)
            lines.append(f"{label:16}" + "".join(f"{f'{c:.0f} ({e:.0f}){mark(c, e)}':>22}" for c, e in cells))
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
