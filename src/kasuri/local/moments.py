"""Mean, variance and histogram of numbers from their randomised reports. Post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.local.estimators import Floats, ascend
from kasuri.local.grid import Numeric
from kasuri.local.randomizer import Reports
from kasuri.privacy import Guarantee


@dataclass(frozen=True)
class Moment:
    """A number and its standard error."""

    value: float
    standard_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The ends of a normal confidence interval."""
        if not 0 < level < 1:
            raise DomainError("level must lie between 0 and 1, e.g. 0.95")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return self.value - reach, self.value + reach

    def to_json(self) -> dict[str, float]:
        lower, upper = self.interval()
        return {"value": self.value, "standard_error": self.standard_error, "lower": lower, "upper": upper}


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """Estimated people at the grid points from low to high."""

    points: Floats
    counts: Floats
    converged: bool
    gap: float


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """All that a round of numbers tells: mean, variance (None where its reports tell nothing of it), histogram."""

    randomizer: Numeric
    reports: int
    reports_per_device: int
    mean: Moment
    variance: Moment | None
    histogram: Histogram

    @property
    def guarantee(self) -> Guarantee:
        """The claim of one device."""
        return self.randomizer.guarantee(reports=self.reports_per_device)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": "moments",
            "reports": self.reports,
            "converged": self.histogram.converged,
            "gap": self.histogram.gap,
            "guarantee": self.guarantee.to_json(),
            "level": 0.95,
            "mean": self.mean.to_json(),
            "variance": None if self.variance is None else self.variance.to_json(),
            "points": self.histogram.points.tolist(),
            "counts": self.histogram.counts.tolist(),
        }


def summary(
    reports: Reports | NDArray[np.int64], randomizer: Numeric, *, reports_per_device: int = 1, prior: float = 0.0
) -> Summary:
    """Mean, variance and histogram of a round's reports; `prior` is that of `histogram`."""
    y = _checked(reports, randomizer)
    spread = None if randomizer.squares is None else variance(y, randomizer)
    found = histogram(y, randomizer, prior=prior)
    return Summary(randomizer, int(y.size), reports_per_device, mean(y, randomizer), spread, found)


def mean(reports: Reports | NDArray[np.int64], randomizer: Numeric) -> Moment:
    """The mean of the debiased outputs: unbiased up to `randomizer.bias`."""
    values = randomizer.debiased(_checked(reports, randomizer))
    return Moment(float(values.mean()), float(values.std() / values.size**0.5))


def variance(reports: Reports | NDArray[np.int64], randomizer: Numeric) -> Moment:
    """E[x^2] - (E[x])^2 from unbiased squares; rounding to the grid adds at most ((high - low)/steps)^2 / 4.

    Not to be had from two-point reports: the square of either output is the same constant, whatever x was.
    """
    if randomizer.squares is None:
        raise PrivacyError(
            f"the variance cannot be identified from {randomizer.kind} reports; randomise with piecewise or hybrid"
        )
    y = _checked(reports, randomizer)
    half = float(randomizer.high - randomizer.low) / 2
    squares = np.array([float(s) for s in randomizer.squares])[y]
    v = np.array([float(t) for t in randomizer.values])[y]
    n, m = y.size, v.mean()
    product = (n * m * m - (v * v).mean()) / (n - 1)  # unbiased for (E v)^2: pairs of different people
    influence = squares - 2 * m * v
    return Moment(float((squares.mean() - product) * half**2), float(influence.std() / n**0.5 * half**2))


def histogram(reports: Reports | NDArray[np.int64], randomizer: Numeric, *, prior: float = 0.0) -> Histogram:
    """Maximum likelihood of how many people are at each grid point; `prior` imaginary people, spread evenly, smooth."""
    y = _checked(reports, randomizer)
    seen = np.bincount(y, minlength=randomizer.outputs).astype(np.float64)
    channel, n = randomizer.channel, y.size
    size = channel.shape[0]

    def run(theta: Floats) -> tuple[Floats, float]:
        m = theta @ channel
        return channel @ (seen / m), float(seen[seen > 0] @ np.log(m[seen > 0]))

    theta, gap, _ = ascend(run, np.full(size, 1 / size), n, np.full(size, prior / size), None, 1e-3, 5000)
    points = float(randomizer.low) + float(randomizer.high - randomizer.low) * np.arange(size) / (size - 1)
    return Histogram(points, n * theta, gap <= 1e-3, gap)


def _checked(reports: Reports | NDArray[np.int64], randomizer: Numeric) -> NDArray[np.int64]:
    """The outputs of what `randomize` gave, or the outputs themselves as `unpack` gives them."""
    if isinstance(reports, Reports) and reports.fingerprint != randomizer.fingerprint:
        raise FormatError("these reports were made by another randomizer (its fingerprint differs)")
    y = randomizer.unpack(reports.rows) if isinstance(reports, Reports) else np.asarray(reports)
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.size < 2 or y.min() < 0 or y.max() >= randomizer.outputs:
        raise DomainError(f"outputs of {randomizer.kind}: at least two whole numbers below {randomizer.outputs}")
    return y
