"""Mean, variance and histogram of numbers from their randomised reports. Post-processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.local.estimators import Floats, ascend
from kasuri.local.grid import Numeric
from kasuri.local.randomizer import Reports


@dataclass(frozen=True)
class Moment:
    """A number and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """Estimated people at the grid points from low to high."""

    points: Floats
    counts: Floats
    converged: bool
    gap: float


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
