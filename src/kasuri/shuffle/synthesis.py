"""Synthetic rows from what was estimated: marginals and correlations, nothing else. Post-processing.

Gaussian copula: a normal vector with a latent correlation matrix; each number is its marginal's quantile of its
component, each category the label whose latent utility is largest. The latent correlation of two columns is the one
that gives the estimated correlation after the quantiles (Hermite series). PCA: the means plus the leading principal
components, clipped to the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError
from kasuri.local.moments import histogram
from kasuri.local.randomizer import trusted
from kasuri.privacy import Guarantee
from kasuri.rng import Source, Streams
from kasuri.shuffle.columns import Column, Floats
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.statistics import Moments, covariance, nearest_correlation, nearest_psd

Method = Literal["copula", "pca"]
_TERMS = 12
_NODES = 64
_POINTS = 129
_SMOOTH = 0.02
"""Imaginary people, as a share of the rows, that smooth a histogram read from noisy reports."""


@dataclass(frozen=True, eq=False, repr=False)
class Synthetic:
    """Synthetic rows, in the user's units and labels; their guarantee is that of the joined rows."""

    columns: dict[str, NDArray[Any]]
    guarantee: Guarantee
    method: str
    notes: tuple[str, ...]
    secure: bool
    """False where the joined rows were drawn from a seed."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        seeded = "" if self.secure else ", seeded: for tests only"
        return f"Synthetic({len(self)} rows, {self.method}, {self.guarantee.words()}{seeded})"

    def to_arrow(self) -> Any:
        """The rows as an Arrow table; refused where the joined rows were drawn from a seed."""
        if not self.secure:
            raise PrivacyError("rows from a seeded table are for tests: they do not leave")
        import pyarrow as pa

        return pa.table(self.columns)


@dataclass(frozen=True, eq=False)
class Marginal:
    """A distribution of a number on points of its bounds."""

    points: Floats
    weights: Floats

    def quantile(self, u: Floats) -> Floats:
        """The value below which a share u lies, linear between points."""
        ends = np.concatenate(([0.0], np.cumsum(self.weights)))
        width = (self.points[1] - self.points[0]) / 2
        edges = np.clip(
            np.concatenate((self.points - width, [self.points[-1] + width])), self.points[0], self.points[-1]
        )
        keep = np.concatenate(([True], np.diff(ends) > 1e-12))
        return np.interp(u, ends[keep] / ends[-1], edges[keep])


def synthesize(joined: Joined, *, rows: int, method: Method = "copula", source: Source | None = None) -> Synthetic:
    """`rows` synthetic people. method: "copula" (numbers and categories) or "pca" (the same, from components).

    Correlations that are not larger than their error are set to 0: noise is not worth imitating.

    Privacy
    -------
    Neighbours, Public, Assumes: as of the joined rows. Sensitivity: none: no data but the joined rows is read.
    Guarantee: that of the joined rows (post-processing). Proof: docs/proofs/shuffle_join.md.
    """
    if type(rows) is not int or rows < 1:
        raise DomainError("synthesize: rows must be a whole number of at least 1")
    if method not in ("copula", "pca"):
        raise DomainError('synthesize: method must be "copula" or "pca"')
    streams = Streams(trusted(source).release_key(), "shuffle.synthesis")
    moments = covariance(joined)
    target = np.where(np.abs(moments.correlation) > moments.correlation_error, moments.correlation, 0.0)
    target = np.nan_to_num(target)
    np.fill_diagonal(target, 1.0)
    notes = list(moments.notes)
    marginals = {c.name: _marginal(joined, c, moments) for c in joined.plan.columns if c.is_number}
    shares = {c.name: _shares(c, moments) for c in joined.plan.columns if not c.is_number}
    if method == "copula":
        latent = _latent(joined, moments.names, target, marginals, shares)
        normal = _normals(streams, rows, len(moments.names)) @ np.linalg.cholesky(latent).T
    else:
        values, vectors = np.linalg.eigh(nearest_psd(target))
        normal = _normals(streams, rows, len(values)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    out: dict[str, NDArray[Any]] = {}
    at = 0
    for column in joined.plan.columns:
        size = len(column.levels())
        part = normal[:, at : at + size]
        at += size
        if not column.is_number:
            labels = np.array(column.category.labels)
            out[column.name] = labels[_choice(part, shares[column.name])]
        elif method == "copula":
            out[column.name] = marginals[column.name].quantile(_phi(part[:, 0]))
        else:
            i = moments.names.index(column.name)
            spread = moments.covariance[i, i]
            made = column.numeric
            deviation = math.sqrt(spread) if spread > 0 else 0.0
            out[column.name] = np.clip(moments.mean[i] + deviation * part[:, 0], float(made.low), float(made.high))
    return Synthetic(out, joined.claims.public, method, tuple(notes), joined.secure)


def _marginal(joined: Joined, column: Column, moments: Moments) -> Marginal:
    """A number's distribution: its histogram where the reports tell one, else the beta law of its mean and variance."""
    made = column.numeric
    low, high = float(made.low), float(made.high)
    if made.kind in ("piecewise", "hybrid", "laplace"):
        found = histogram(joined.columns[column.name].astype(np.int64), made, prior=_SMOOTH * len(joined))
        return Marginal(found.points, found.counts / found.counts.sum())
    i = moments.names.index(column.name)
    mean = min(max((moments.mean[i] - low) / (high - low), 1e-3), 1 - 1e-3)
    spread = moments.covariance[i, i] / (high - low) ** 2
    most = mean * (1 - mean)
    # where the variance is not known or is noise: that of the law with the most entropy is near the uniform one's
    spread = min(max(spread, 1e-3 * most), 0.95 * most) if math.isfinite(spread) else most / 3
    size = most / spread - 1
    x = (np.arange(_POINTS) + 0.5) / _POINTS
    log = (mean * size - 1) * np.log(x) + ((1 - mean) * size - 1) * np.log1p(-x)
    weights = np.exp(log - log.max())
    return Marginal(low + (high - low) * x, weights / weights.sum())


def _shares(column: Column, moments: Moments) -> Floats:
    """Shares of the labels, none below 0."""
    first = moments.names.index(column.levels()[0])
    found = np.maximum(moments.mean[first : first + len(column.levels())], 1e-6)
    return found / found.sum()


def _latent(
    joined: Joined, names: tuple[str, ...], target: Floats, marginals: dict[str, Marginal], shares: dict[str, Floats]
) -> Floats:
    """Latent correlations whose quantile-transformed variables have the target correlations."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    base = np.stack([np.polynomial.hermite_e.hermeval(nodes, np.eye(_TERMS + 1)[k]) for k in range(_TERMS + 1)])
    scale = np.array([1 / math.sqrt(math.factorial(k)) for k in range(_TERMS + 1)])
    series: list[Floats] = []
    for column in joined.plan.columns:
        if column.is_number:
            curves = [marginals[column.name].quantile(_phi(nodes))]
        else:
            # an indicator: the upper tail of its own latent utility
            curves = [(_phi(nodes) > 1 - share).astype(float) for share in shares[column.name]]
        for curve in curves:
            found = (base * weights) @ curve * scale
            found[0] = 0.0
            length = math.sqrt(float(found @ found))
            series.append(found / length if length > 0 else found)
    out = np.eye(len(names))
    powers = np.arange(_TERMS + 1)
    for i in range(len(names)):
        for j in range(i):
            terms = series[i] * series[j]
            low, high = -1.0, 1.0
            for _ in range(40):  # the series rises with rho where both curves rise
                middle = (low + high) / 2
                low, high = (middle, high) if float(terms @ middle**powers) < target[i, j] else (low, middle)
            out[i, j] = out[j, i] = 0.0 if target[i, j] == 0 else (low + high) / 2
    return nearest_correlation(out)


def _choice(utility: Floats, shares: Floats) -> NDArray[np.int64]:
    """The label of the largest utility, after offsets under which the labels have their shares."""
    part = utility[:20_000]
    offset = np.log(shares)
    for _ in range(60):
        seen = np.bincount(np.argmax(part + offset, axis=1), minlength=len(shares)) / len(part)
        offset += 0.5 * (np.log(shares) - np.log(np.maximum(seen, 0.1 / len(part))))
    chosen: NDArray[np.int64] = np.argmax(utility + offset, axis=1)
    return chosen


def _uniforms(streams: Streams, purpose: str, size: int) -> Floats:
    words = np.empty(size, dtype=np.uint64)
    streams.open(purpose).fill(words)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _normals(streams: Streams, rows: int, columns: int) -> Floats:
    """Standard normal numbers by Box and Muller."""
    radius = np.sqrt(-2 * np.log(_uniforms(streams, "radius", rows * columns)))
    angle = 2 * math.pi * _uniforms(streams, "angle", rows * columns)
    return (radius * np.cos(angle)).reshape(rows, columns)


def _phi(x: Floats) -> Floats:
    """The normal distribution function, to 1e-7."""
    grid = np.linspace(-9, 9, 18001)
    table = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in grid])
    return np.interp(x, grid, table)


@dataclass(frozen=True)
class Quality:
    """How near synthetic rows are to what was estimated of the joined ones."""

    marginals: dict[str, float]
    """Numbers: |difference of means| over the estimated deviation; categories: total variation."""
    correlation: float
    """Mean absolute difference of correlations, off the diagonal."""
    correlation_noise: float
    """Mean standard error of the estimated correlations: less than this cannot be told."""
    regression: dict[str, float]
    """Coefficients of the first number on the other numbers, on standardised columns: largest difference."""
    means: tuple[float, ...]
    """Means of the synthetic rows, in the order of `Moments.names`; of a label, its share."""

    def words(self) -> str:
        lines = [f"{name:24} marginal distance {value:.3f}" for name, value in self.marginals.items()]
        lines.append(f"correlations differ by {self.correlation:.3f} (their own error is {self.correlation_noise:.3f})")
        lines += [f"regression of {name}: largest difference {value:.3f}" for name, value in self.regression.items()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "marginals": self.marginals,
            "correlation": self.correlation,
            "correlation_noise": self.correlation_noise,
            "regression": self.regression,
            "means": list(self.means),
        }


def quality(synthetic: Synthetic, joined: Joined) -> Quality:
    """Compare synthetic rows with the estimates they were made from: marginals, correlations, a regression."""
    moments = covariance(joined)
    marginals: dict[str, float] = {}
    parts: list[Floats] = []
    for column in joined.plan.columns:
        values = synthetic.columns[column.name]
        if column.is_number:
            i = moments.names.index(column.name)
            spread = moments.covariance[i, i]
            unit = math.sqrt(spread) if spread > 0 else column.half
            marginals[column.name] = abs(float(values.mean()) - float(moments.mean[i])) / unit
            parts.append(values.astype(np.float64))
        else:
            seen = np.array([float((values == label).mean()) for label in column.category.labels])
            marginals[column.name] = float(np.abs(seen - _shares(column, moments)).sum()) / 2
            parts += [(values == label).astype(np.float64) for label in column.category.labels]
    with np.errstate(invalid="ignore", divide="ignore"):
        made: Floats = np.atleast_2d(np.corrcoef(np.stack(parts)))
    pairs = np.tril(np.ones_like(made, dtype=bool), -1) & np.isfinite(moments.correlation) & np.isfinite(made)
    apart = float(np.abs(made - moments.correlation)[pairs].mean()) if pairs.any() else math.nan
    noise = float(moments.correlation_error[pairs].mean()) if pairs.any() else math.nan
    numbers = [i for i, name in enumerate(moments.names) if name in marginals and joined.plan.column(name).is_number]
    downstream: dict[str, float] = {}
    if len(numbers) > 1 and np.isfinite(moments.correlation[np.ix_(numbers, numbers)]).all():
        first, others = numbers[0], numbers[1:]
        kept = nearest_correlation(moments.correlation)
        wanted = np.linalg.solve(kept[np.ix_(others, others)], kept[others, first])
        found = np.linalg.lstsq(made[np.ix_(others, others)], made[others, first], rcond=None)[0]
        downstream[moments.names[first]] = float(np.abs(wanted - found).max())
    return Quality(marginals, apart, noise, downstream, tuple(float(part.mean()) for part in parts))
