"""Synthetic rows from what was estimated: means, variances, shapes and correlations, nothing else. Post-processing.

copula, pca: a normal vector with a latent correlation matrix; each number is the quantile of its component under a law
with its estimated mean and variance, each category the label whose latent utility is largest. The latent correlation of
two columns is the one that gives the estimated correlation after the quantiles (Hermite series).

regression, svm: column by column (`sequence`), each drawn given those already drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError
from kasuri.local.randomizer import trusted
from kasuri.noise.rng import Source, Streams
from kasuri.privacy import Guarantee
from kasuri.shuffle.columns import Column, Floats
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.marginals import Marginal, marginal
from kasuri.shuffle.statistics import Moments, covariance, nearest_correlation, nearest_shares

Method = Literal["copula", "pca", "regression", "svm"]
METHODS: tuple[Method, ...] = ("copula", "pca", "regression", "svm")
_TERMS = 40
_FAR = 0.05
"""A latent correlation moved by more is said."""
WORST = 3.0
"""Standard errors by which the mean of a synthetic column may be off the estimate before `quality` fails."""
TOGETHER = "not all correlations can be imitated at once; the nearest that can were"


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


def synthesize(joined: Joined, *, rows: int, method: Method = "copula", source: Source | None = None) -> Synthetic:
    """`rows` synthetic people. Each number has the estimated mean and variance, as far as its bounds allow.

    method: "copula" keeps the shape that the reports tell of a number (its histogram); "pca" takes the law of most
    entropy with the two moments instead, a normal law where the bounds are far. Correlations are `Moments.imitated`, 0
    where they are not larger than two of their errors: noise is not worth imitating. What was moved is in `notes`.
    "regression" and "svm" draw one column after another from a model on those before it: see `sequence`.

    Privacy
    -------
    Neighbours, Public, Assumes: as of the joined rows. Sensitivity: none: no data but the joined rows is read.
    Guarantee: that of the joined rows (post-processing). Proof: docs/proofs/shuffle_join.md.
    """
    if type(rows) is not int or rows < 1:
        raise DomainError("synthesize: rows must be a whole number of at least 1")
    if method not in METHODS:
        raise DomainError(f"synthesize: method must be one of {', '.join(METHODS)}")
    streams = Streams(trusted(source).release_key(), "shuffle.synthesis")
    moments = covariance(joined)
    target = moments.imitated
    notes = list(moments.notes)
    marginals: dict[str, Marginal] = {}
    for column in joined.plan.columns:
        if column.is_number:
            marginals[column.name], moved = marginal(joined, column, moments, shaped=method != "pca")
            notes += moved
    shares = {c.name: _shares(c, moments) for c in joined.plan.columns if not c.is_number}
    if method in ("regression", "svm"):
        drawn, more = sequence(joined, target, marginals, shares, rows, streams, logits=method == "svm")
        return Synthetic(drawn, joined.claims.public, method, (*notes, *more), joined.secure)
    wanted = _latent(joined, moments.names, target, marginals, shares)
    latent = nearest_correlation(wanted)
    if float(np.abs(latent - wanted).max()) > _FAR:
        notes.append(TOGETHER)
    normal = _normals(streams, rows, len(moments.names)) @ np.linalg.cholesky(latent).T
    out: dict[str, NDArray[Any]] = {}
    at = 0
    for column in joined.plan.columns:
        size = len(column.levels())
        part = normal[:, at : at + size]
        at += size
        if not column.is_number:
            labels = np.array(column.category.labels)
            out[column.name] = labels[_choice(part, shares[column.name])]
        else:
            out[column.name] = marginals[column.name].quantile(_phi(part[:, 0]))
    return Synthetic(out, joined.claims.public, method, tuple(notes), joined.secure)


def sequence(
    joined: Joined,
    target: Floats,
    marginals: dict[str, Marginal],
    shares: dict[str, Floats],
    rows: int,
    streams: Streams,
    *,
    logits: bool,
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """One column after another, each from a model on the columns before it, as [Nowok2016] (regression) and
    [Drechsler2010] (SVM) do with clean rows; here every model is solved from the estimated correlations alone.

    With R the correlations of what is drawn, beta = (R + ridge)^-1 r gives a column's standardised prediction z beta,
    of variance v; a number is the quantile of its own law at the rank of z beta + sqrt(1 - v) N(0, 1), so that its law
    is kept whatever those before it are. A label has the chance share + deviation x (z beta), cut to [0, 1]
    (`logits` False: a linear probability), or share x exp(deviation / share x (z beta)) (`logits`: the score of the
    least-squares machine of each label through a logistic link, the same to first order), and the labels together have
    their shares. The ridge is 0 for the regression, 0.01 for the machine, as of `svm`.
    """
    ridge = 0.01 if logits else 0.0
    kept = nearest_correlation(target)
    notes = (TOGETHER,) if float(np.abs(kept - target).max()) > _FAR else ()
    out: dict[str, NDArray[Any]] = {}
    done: list[Floats] = []
    for at, column in enumerate(joined.plan.columns):
        first, size = len(done), len(column.levels())
        before = np.stack(done, axis=1) if done else np.zeros((rows, 0))
        inner = kept[:first, :first] + ridge * np.eye(first)
        beta = np.linalg.solve(inner, kept[:first, first : first + size]) if first else np.zeros((0, size))
        seen = before @ beta
        if column.is_number:
            score = seen[:, 0]
            left = max(1.0 - float(score.var()), 0.0)
            score = score + math.sqrt(left) * _normals(streams, rows, 1, at)[:, 0]
            rank = np.empty(rows)
            rank[np.argsort(score, kind="stable")] = (np.arange(rows) + 0.5) / rows
            values = marginals[column.name].quantile(rank)
            out[column.name] = values
            done.append(_standard(values))
        else:
            share = shares[column.name]
            spread = np.sqrt(np.maximum(share * (1 - share), 1e-9))
            chosen = _drawn_labels(seen, share, spread, _uniforms(streams, f"label {at}", rows), logits=logits)
            out[column.name] = np.array(column.category.labels)[chosen]
            done += [_standard((chosen == level).astype(np.float64)) for level in range(size)]
    return out, notes


def _standard(values: Floats) -> Floats:
    """Mean 0 and deviation 1; a constant is 0."""
    deviation = float(values.std())
    out: Floats = (values - values.mean()) / deviation if deviation > 0 else np.zeros_like(values)
    return out


def _drawn_labels(seen: Floats, share: Floats, spread: Floats, coins: Floats, *, logits: bool) -> NDArray[np.int64]:
    """A label for each row by its chances, which are scaled until the labels together have their shares."""
    wanted = np.maximum(share, 1e-9)
    if logits:
        chance = wanted * np.exp(np.clip(seen * spread / wanted, -30, 30))
    else:
        chance = np.clip(share + spread * seen, 1e-9, None)
    for _ in range(100):
        chance = chance / chance.sum(axis=1, keepdims=True)
        chance = chance * (wanted / np.maximum(chance.mean(axis=0), 1e-300))
    ends = np.cumsum(chance / chance.sum(axis=1, keepdims=True), axis=1)
    found: NDArray[np.int64] = np.minimum((coins[:, None] >= ends).sum(axis=1), share.size - 1)
    return found


def _shares(column: Column, moments: Moments) -> Floats:
    """Shares of the labels: the nearest to the estimates that can be."""
    first = moments.names.index(column.levels()[0])
    return nearest_shares(moments.mean[first : first + len(column.levels())])


def _latent(
    joined: Joined, names: tuple[str, ...], target: Floats, marginals: dict[str, Marginal], shares: dict[str, Floats]
) -> Floats:
    """Latent correlations whose quantile-transformed variables have the target correlations, or come nearest."""
    nodes = np.linspace(-8, 8, 3201)
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    base = [np.ones_like(nodes), nodes]  # Hermite polynomials of norm 1
    for k in range(2, _TERMS + 1):
        base.append((nodes * base[-1] - math.sqrt(k - 1) * base[-2]) / math.sqrt(k))
    series: list[Floats] = []
    of: list[int] = []
    for k, column in enumerate(joined.plan.columns):
        if column.is_number:
            curves = [marginals[column.name].quantile(_phi(nodes))]
        else:
            # an indicator: the upper tail of its own latent utility
            curves = [(_phi(nodes) > 1 - share).astype(float) for share in shares[column.name]]
        for curve in curves:
            curve = curve - weights @ curve
            length = math.sqrt(float(weights @ curve**2))
            series.append((np.stack(base) * weights) @ (curve / length if length > 0 else curve))
        of += [k] * len(curves)
    out = np.eye(len(names))
    powers = np.arange(_TERMS + 1)
    for i in range(len(names)):
        for j in range(i):
            if of[i] == of[j]:  # utilities of one column's labels: as far apart as so many can be
                out[i, j] = out[j, i] = -1 / (of.count(of[i]) - 1)
                continue
            terms = series[i] * series[j]
            if target[i, j] == 0 or not terms.any():
                continue
            low, high = -1.0, 1.0
            for _ in range(40):  # the series rises with rho where both curves rise
                middle = (low + high) / 2
                low, high = (middle, high) if float(terms @ middle**powers) < target[i, j] else (low, middle)
            out[i, j] = out[j, i] = (low + high) / 2
    return out


def _choice(utility: Floats, shares: Floats) -> NDArray[np.int64]:
    """The label of the largest utility, after offsets under which the labels have their shares: found on some rows,
    then mended on all (or a million)."""
    wanted = np.maximum(shares, 1e-6)
    offset = np.log(wanted)
    for rows, passes in ((20_000, 200), (1_000_000, 20)):
        part = utility[:rows]
        tenth = 0.1 / len(part)
        nearest, kept = math.inf, offset
        for k in range(passes):
            seen = np.bincount(np.argmax(part + offset, axis=1), minlength=len(shares)) / len(part)
            gap = float((np.abs(seen - wanted) / np.sqrt(wanted)).max())
            if gap < nearest:
                nearest, kept = gap, offset
            if float(np.abs(seen - wanted).max()) <= 1 / len(part):
                break
            step = 0.5 ** (1 + 5 * k // passes)
            offset = offset + step * np.log(np.maximum(wanted, tenth) / np.maximum(seen, tenth))
        offset = kept
    chosen: NDArray[np.int64] = np.argmax(utility + offset, axis=1)
    return chosen


def _uniforms(streams: Streams, purpose: str, size: int) -> Floats:
    words = np.empty(size, dtype=np.uint64)
    streams.open(purpose).fill(words)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _normals(streams: Streams, rows: int, columns: int, at: int | None = None) -> Floats:
    """Standard normal numbers by Box and Muller; those of a column have streams of their own."""
    own = "" if at is None else f" {at}"
    radius = np.sqrt(-2 * np.log(_uniforms(streams, f"radius{own}", rows * columns)))
    angle = 2 * math.pi * _uniforms(streams, f"angle{own}", rows * columns)
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
    """Mean standard error of the estimated correlations: less than this cannot be told apart from noise."""
    regression: dict[str, float]
    """Coefficients of the first number on the other numbers, on standardised columns: largest difference."""
    means: tuple[float, ...]
    """Means of the synthetic rows, in the order of `Moments.names`; of a label, its share."""
    off: dict[str, float]
    """By how many standard errors, those of the estimate and of drawing so many rows, each of these means is off what
    was estimated (as far as the bounds allow). One row more or less is not counted."""

    @property
    def failed(self) -> tuple[str, ...]:
        """Names whose synthetic mean is more than 3 standard errors off."""
        return tuple(name for name, off in self.off.items() if not off <= WORST)

    def words(self) -> str:
        lines = [f"FAILED: {name}: the mean is {self.off[name]:.1f} standard errors off" for name in self.failed]
        lines += [f"{name:24} marginal distance {value:.3f}" for name, value in self.marginals.items()]
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
            "off": self.off,
            "failed": list(self.failed),
        }


def quality(synthetic: Synthetic, joined: Joined) -> Quality:
    """Compare synthetic rows with the estimates they were made from: means, marginals, correlations, a regression.

    It fails (`failed`) where the mean of a column, or the share of a label, is over 3 standard errors off.
    """
    moments = covariance(joined)
    marginals: dict[str, float] = {}
    off: dict[str, float] = {}
    parts: list[Floats] = []
    for column in joined.plan.columns:
        values = synthetic.columns[column.name]
        if column.is_number:
            i = moments.names.index(column.name)
            spread = moments.covariance[i, i]
            unit = math.sqrt(spread) if spread > 0 else column.half
            marginals[column.name] = abs(float(values.mean()) - float(moments.mean[i])) / unit
            parts.append(values.astype(np.float64))
            low, high = float(column.numeric.low), float(column.numeric.high)
            width = high - low  # in widths of the bounds, where squares are ordinary numbers
            mean = min(max((float(moments.mean[i]) - low) / width, 0.0), 1.0)
            told = 0.0 if math.isnan(spread) else min(spread / width / width, mean * (1 - mean))
            off[column.name] = _off((parts[-1] - low) / width, mean, float(moments.mean_error[i]) / width, told)
        else:
            seen = np.array([float((values == label).mean()) for label in column.category.labels])
            wanted = _shares(column, moments)
            marginals[column.name] = float(np.abs(seen - wanted).sum()) / 2
            parts += [(values == label).astype(np.float64) for label in column.category.labels]
            for name, part, share in zip(column.levels(), parts[-len(wanted) :], wanted.tolist(), strict=True):
                error = float(moments.mean_error[moments.names.index(name)])
                off[name] = _off(part, share, error, share * (1 - share))
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
        best = np.linalg.solve(kept[np.ix_(others, others)], kept[others, first])
        found = np.linalg.lstsq(np.nan_to_num(made)[np.ix_(others, others)], np.nan_to_num(made)[others, first])[0]
        downstream[moments.names[first]] = float(np.abs(best - found).max())
    return Quality(marginals, apart, noise, downstream, tuple(float(part.mean()) for part in parts), off)


def _off(made: Floats, wanted: float, error: float, variance: float) -> float:
    """Standard errors between the mean of the rows made, in [0, 1], and the one wanted; one row at the far end is not
    counted. The variance of drawing is that of the estimate or of the rows, whichever is more."""
    gap = max(abs(float(made.mean()) - wanted) - 1 / len(made), 0.0)
    return gap / max(math.hypot(error, math.sqrt(max(variance, float(made.var())) / len(made))), 1e-12)
