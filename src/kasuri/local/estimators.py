"""From reports to a population with error bars. Everything here is post-processing: reports in, no truth, no noise.

With c_x the number of the n reports that agree with category x, p and q as in `Law` and r = ratio - 1:

    inversion     n_x = (c_x - n q) / (p - q): unbiased; the papers' "MLE"         [Horigome2020, A.3.1]
    projection    the whole numbers >= 0 that sum to n nearest to the inversion
    em            maximum likelihood on whole reports: theta_x <- mean over reports of
                  theta_x (1 + r z_x) / (1 + r sum_y theta_y z_y), z = support        [Horigome2020, A.3.2]
    em_columns    the same from the sums c_x alone: what a collector can keep when it keeps no reports

The log-likelihood is concave in theta, so with G_x its derivative the distance to the maximum is at most
max_x G_x - n: `gap`, in nats, is a certificate of convergence and not a guess from small steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, NumericsError, PrivacyError
from kasuri.local.categorical import CountMeanSketch, Grr, Hadamard
from kasuri.local.longitudinal import Memoised
from kasuri.local.randomizer import Randomizer, Reports, Rows, number_of
from kasuri.privacy import Guarantee
from kasuri.refine.least_squares import simplex_integers

Floats = NDArray[np.float64]
Method = Literal["inversion", "projection", "em", "em_columns"]
Pass = Callable[[Floats], tuple[Floats, float]]
"""theta -> (G, log-likelihood): G_x = sum over reports of (1 + r z_x) / m(z)."""
Penalty = Callable[[Floats], tuple[Floats, float]]
"""theta -> (gradient, value) of a concave log-prior."""

METHODS = ("inversion", "projection", "em", "em_columns")
_INFORMATION_CATEGORIES = 512
_INFORMATION_REPORTS = 1 << 16
_DETERMINED = 20
"""Reports per category from which the observed information is taken for the expected one."""
_SUPPORT_BYTES = 1 << 30


@dataclass(frozen=True)
class Dirichlet:
    """A prior worth `reports` imaginary people, spread evenly or like a public map `shape` (one weight a category).

    It pulls a thin estimate towards that shape openly, where stopping EM early would pull it towards uniform unseen.
    """

    reports: float
    shape: tuple[float, ...] | None = None

    def pseudo(self, size: int) -> Floats:
        weights = np.ones(size) if self.shape is None else np.asarray(self.shape, dtype=np.float64)
        if weights.shape != (size,) or not (weights > 0).all() or not np.isfinite(weights).all():
            raise DomainError(f"Dirichlet: shape must be {size} positive numbers, one for each category")
        if not 0 < self.reports < np.inf:
            raise DomainError("Dirichlet: reports must be a positive number")
        return self.reports * weights / weights.sum()


@dataclass(frozen=True)
class Neighbours:
    """A spatial prior on a mesh: the numbers of people in two cells side by side differ by about `deviation`
    (independent normal differences). "Elsewhere" has no neighbours."""

    deviation: float

    def penalty(self, randomizer: Randomizer, n: int) -> Penalty:
        axes = randomizer.domain.axes
        if len(axes) != 1 or axes[0].plane is None:
            raise DomainError("Neighbours: the domain must be one mesh")
        if not 0 < self.deviation < np.inf:
            raise DomainError("Neighbours: deviation must be a positive number of people")
        rows, cols = axes[0].plane.shape
        scale = (n / self.deviation) ** 2

        def log_prior(theta: Floats) -> tuple[Floats, float]:
            grid = theta[: rows * cols].reshape(rows, cols)
            down, across = np.diff(grid, axis=0), np.diff(grid, axis=1)
            slope = np.zeros_like(grid)
            slope[:-1] += down
            slope[1:] -= down
            slope[:, :-1] += across
            slope[:, 1:] -= across
            flat = np.zeros_like(theta)
            flat[: rows * cols] = scale * slope.ravel()
            return flat, -0.5 * scale * (float((down * down).sum()) + float((across * across).sum()))

        return log_prior


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Estimated people in each category ("elsewhere" last) and how far to trust them.

    standard_error is that of the counts of these very people (the population is fixed, the reports are random): exact
    in form for inversion and, being larger, conservative for projection and em_columns; from the observed information
    for em up to 512 categories where the reports determine it, else the inversion's. With a prior it does not contain
    the prior's bias. Memoised reports of one device are copies of one permanent report: their errors are widened by
    sqrt(reports_per_device), which holds however strongly the copies agree.
    """

    randomizer: Randomizer
    counts: Floats
    standard_error: Floats
    reports: int
    method: str
    converged: bool
    passes: int
    gap: float
    reports_per_device: int = 1

    @property
    def labels(self) -> tuple[str, ...]:
        return self.randomizer.labels

    @property
    def guarantee(self) -> Guarantee:
        """The claim for a device that sent reports_per_device reports; an estimate adds nothing to it."""
        return self.randomizer.guarantee(reports=self.reports_per_device)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return f"Estimate({self.method}, {self.reports} reports, {self.counts.size} categories, {state})"

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper ends of normal confidence intervals, category by category, cut to 0 .. reports."""
        if not 0 < level < 1:
            raise DomainError("level must lie between 0 and 1, e.g. 0.95")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        n = float(self.reports)
        return np.clip(self.counts - reach, 0, n), np.clip(self.counts + reach, 0, n)

    def refined(self) -> NDArray[np.int64]:
        """Whole numbers >= 0 of the mesh's shape from a quad tree cut top-down: every block of 2^k x 2^k cells is the
        sum of its cells, and its error does not grow with the number of empty cells in it."""
        from kasuri.local.mesh import quadtree

        return quadtree(self)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval()
        return {
            "method": self.method,
            "reports": self.reports,
            "converged": self.converged,
            "passes": self.passes,
            "gap": self.gap,
            "guarantee": self.guarantee.to_json(),
            "level": 0.95,
            "labels": list(self.labels),
            "counts": self.counts.tolist(),
            "standard_error": self.standard_error.tolist(),
            "lower": low.tolist(),
            "upper": high.tolist(),
        }


def estimate(
    reports: Reports | Rows,
    randomizer: Randomizer,
    *,
    method: Method = "em",
    reports_per_device: int | None = None,
    prior: Dirichlet | Neighbours | None = None,
    tolerance: float = 1e-3,
    max_passes: int = 5000,
) -> Estimate:
    """Estimate how many people are in each category.

    reports: what `randomize` gave, or rows of bytes. method: see the module. prior: for em and em_columns.
    reports_per_device: how often one device may have reported, as its round says; the claim and the errors of memoised
    reports rest on it. 1 where it is left out; memoised reports must say it.
    tolerance: the certified distance to the maximum, in nats. Not reaching it in max_passes is reported
    (`converged` False), never hidden.
    Cost: O(n d / 8) a pass; about ten passes.
    """
    if method not in METHODS:
        raise DomainError(f"method must be one of {', '.join(METHODS)}")
    if prior is not None and method not in ("em", "em_columns"):
        raise DomainError("a prior goes with method='em' or 'em_columns'")
    rows = _rows(reports, randomizer)
    if method != "em":
        return from_columns(
            randomizer.agreeing(rows), rows.shape[0], randomizer, method=method, reports_per_device=reports_per_device,
            prior=prior, tolerance=tolerance, max_passes=max_passes,
        )  # fmt: skip
    each = _each(reports_per_device, randomizer, tolerance, max_passes)
    start = _project(randomizer.agreeing(rows), rows.shape[0], randomizer)
    found = _maximise(expectation(randomizer, rows), start, rows.shape[0], randomizer, "em", prior, tolerance,
                      max_passes, rows)  # fmt: skip
    return _of_devices(found, each)


def _each(reports_per_device: int | None, randomizer: Randomizer, tolerance: float, max_passes: int) -> int:
    if not tolerance > 0:
        raise DomainError("tolerance must be a positive number of nats")
    if type(max_passes) is not int or max_passes < 1:
        raise DomainError("max_passes must be a whole number of at least 1")
    if reports_per_device is None:
        if isinstance(randomizer, Memoised):
            raise DomainError("give reports_per_device: memoised reports of one device are copies, not new evidence")
        return 1
    if type(reports_per_device) is not int or reports_per_device < 1:
        raise DomainError("reports_per_device must be a whole number of at least 1")
    return reports_per_device


def _of_devices(found: Estimate, each: int) -> Estimate:
    """The estimate of devices that reported `each` times. The variance of a sum of m terms is at most m times the sum
    of their variances, whatever their correlation; fresh reports of one person are independent."""
    wider = each**0.5 if isinstance(found.randomizer, Memoised) else 1.0
    return replace(found, standard_error=wider * found.standard_error, reports_per_device=each)


def from_columns(
    agreeing: NDArray[np.int64],
    n: int,
    randomizer: Randomizer,
    *,
    method: Method = "inversion",
    reports_per_device: int | None = None,
    prior: Dirichlet | Neighbours | None = None,
    tolerance: float = 1e-3,
    max_passes: int = 5000,
) -> Estimate:
    """An estimate from column sums alone (c_x reports of n agree with category x): what a stream can keep."""
    if method == "em":
        raise DomainError("em needs whole reports: column sums are not sufficient for it; use method='em_columns'")
    if agreeing.shape != (randomizer.size,) or n < 1 or agreeing.min() < 0 or agreeing.max() > n:
        raise DomainError(f"column sums: {randomizer.size} numbers from 0 to the number of reports, at least one")
    each = _each(reports_per_device, randomizer, tolerance, max_passes)
    if method in ("inversion", "projection"):
        counts = (invert if method == "inversion" else _project)(agreeing, n, randomizer)
        error = _inversion_error(counts, n, randomizer)
        return _of_devices(Estimate(randomizer, counts, error, n, method, True, 0, 0.0), each)
    ratio = float(randomizer.law.p / randomizer.law.q)
    total = float(agreeing.sum())
    seen = agreeing * (n / total) if total else np.full(randomizer.size, n / randomizer.size)
    passing = _on_counts(seen.astype(np.float64), ratio - 1)
    start = _project(agreeing, n, randomizer)
    found = _maximise(passing, start, n, randomizer, "em_columns", prior, tolerance, max_passes, None)
    return _of_devices(found, each)


def _rows(reports: Reports | Rows, randomizer: Randomizer) -> Rows:
    if not isinstance(randomizer, Randomizer):
        raise PrivacyError("estimate(reports, randomizer) takes a randomizer such as ks.local.unary(...)")
    if isinstance(reports, Reports):
        if reports.fingerprint != randomizer.fingerprint:
            raise PrivacyError("these reports were made by another randomizer (its fingerprint differs)")
        rows = reports.rows
    else:
        rows = reports
        randomizer.check(rows)
    if not rows.shape[0]:
        raise DomainError("no reports: nothing to estimate")
    return rows


def invert(agreeing: NDArray[np.int64], n: int, randomizer: Randomizer) -> Floats:
    """(c - n q) / (p - q), from the exact p and q: unbiased, may be negative."""
    law = randomizer.law
    return (agreeing.astype(np.float64) - n * float(law.q)) / float(law.p - law.q)


def _inversion_error(counts: Floats, n: int, randomizer: Randomizer) -> Floats:
    law = randomizer.law
    p, q = float(law.p), float(law.q)
    here = np.clip(counts, 0, n)
    variance = (here * p * (1 - p) + (n - here) * q * (1 - q)) / (p - q) ** 2
    if isinstance(randomizer, CountMeanSketch):
        # the public hashes are fixed: a category that collides too often with the others is off in every report
        m, others = randomizer.buckets, (here**2).sum() - here**2
        variance = variance + others / (m - 1) / randomizer.hashes
    return np.sqrt(variance)


def _project(agreeing: NDArray[np.int64], n: int, randomizer: Randomizer) -> Floats:
    inverted = invert(agreeing, n, randomizer)
    return project(inverted, n).astype(np.float64)


def project(values: Floats, total: int) -> NDArray[np.int64]:
    """The whole numbers >= 0 of sum `total` nearest to `values`."""
    size = values.size
    scaled = np.rint(values * size).astype(np.int64)
    return simplex_integers(scaled, np.array([0, size]), np.array([total], dtype=np.int64))


def expectation(randomizer: Randomizer, rows: Rows) -> Pass:
    """The expectation pass of whole reports for each kind of randomizer."""
    gain = float(randomizer.law.ratio - 1)
    if isinstance(randomizer, Grr):
        return _on_counts(randomizer.agreeing(rows).astype(np.float64), gain)
    if isinstance(randomizer, Hadamard):
        return _on_signs(randomizer, rows, gain)
    if isinstance(randomizer, CountMeanSketch):
        return _on_sketch(randomizer, rows, gain)
    if rows.shape[0] * (randomizer.size // 8 + 1) > _SUPPORT_BYTES and randomizer.width < randomizer.size // 8:
        raise NumericsError("the supports of these reports need more than 1 GiB; use method='projection'")
    return _on_bits(randomizer.supports(rows), randomizer.size, gain)


def _on_bits(rows: Rows, size: int, gain: float) -> Pass:
    from kasuri._kernels.local import em_pass

    rows = np.ascontiguousarray(rows)

    def run(theta: Floats) -> tuple[Floats, float]:
        sums = np.empty(size)
        total, logs = em_pass(rows, theta, gain, sums)
        return total + gain * sums, logs

    return run


def _on_counts(seen: Floats, gain: float) -> Pass:
    """Reports that agree with one category each, as counts."""

    def run(theta: Floats) -> tuple[Floats, float]:
        m = 1 + gain * theta
        return (seen / m).sum() + gain * seen / m, float((seen * np.log(m)).sum())

    return run


def _on_signs(randomizer: Hadamard, rows: Rows, gain: float) -> Pass:
    """Hadamard reports: 2 D distinct ones; both products are Walsh transforms."""
    from kasuri._kernels.local import walsh

    D = 1 << randomizer.order
    seen = np.bincount(number_of(rows), minlength=2 * D).astype(np.float64).reshape(D, 2)

    def run(theta: Floats) -> tuple[Floats, float]:
        spectrum = np.zeros(D)
        spectrum[1 : theta.size + 1] = theta
        walsh(spectrum)  # agreeing mass of (j, 0) is (1 + s_j)/2, of (j, 1) it is (1 - s_j)/2
        m = 1 + gain * np.column_stack((1 + spectrum, 1 - spectrum)) / 2
        weights = seen / m
        total = weights.sum()
        difference = weights[:, 0] - weights[:, 1]
        walsh(difference)
        agreeing = (total + difference[1 : theta.size + 1]) / 2
        return total + gain * agreeing, float((seen * np.log(m)).sum())

    return run


def _on_sketch(randomizer: CountMeanSketch, rows: Rows, gain: float) -> Pass:
    """Sketch reports, hash by hash: the mass of a bucket is the sum over the categories in it."""
    from kasuri._kernels.local import em_pass

    if randomizer.hashes * randomizer.size * 8 > _SUPPORT_BYTES:
        raise NumericsError("the hash table of this sketch needs more than 1 GiB; use method='projection'")
    chosen, places = number_of(rows[:, :2]), randomizer.places()
    groups = [
        (np.ascontiguousarray(rows[chosen == j, 2:]), places[j])
        for j in range(randomizer.hashes)
        if (chosen == j).any()
    ]

    def run(theta: Floats) -> tuple[Floats, float]:
        out, logs = np.zeros(theta.size), 0.0
        sums = np.empty(randomizer.buckets)
        for bits, place in groups:
            total, log = em_pass(bits, np.bincount(place, theta, randomizer.buckets), gain, sums)
            out += total + gain * sums[place]
            logs += log
        return out, logs

    return run


def _maximise(
    passing: Pass,
    start: Floats,
    n: int,
    randomizer: Randomizer,
    method: str,
    prior: Dirichlet | Neighbours | None,
    tolerance: float,
    max_passes: int,
    rows: Rows | None,
) -> Estimate:
    size = randomizer.size
    pseudo = prior.pseudo(size) if isinstance(prior, Dirichlet) else np.zeros(size)
    penalty = prior.penalty(randomizer, n) if isinstance(prior, Neighbours) else None
    theta = 0.9 * (start + pseudo) / (n + pseudo.sum()) + 0.1 / size
    theta, gap, passes = ascend(passing, theta, n, pseudo, penalty, tolerance, max_passes)
    counts = n * theta
    error = _inversion_error(counts, n, randomizer)
    if rows is not None and size <= _INFORMATION_CATEGORIES:
        error = _information_error(rows, theta, pseudo, randomizer, error)
    return Estimate(randomizer, counts, error, n, method, gap <= tolerance, passes, gap)


def ascend(
    passing: Pass,
    theta: Floats,
    n: int,
    pseudo: Floats,
    penalty: Penalty | None,
    tolerance: float,
    max_passes: int,
) -> tuple[Floats, float, int]:
    """The maximum of the log-posterior on the simplex by spectral projected gradients (Birgin, Martinez
    & Raydan 2000).

    Every pass is one EM pass (G is its gradient); only the step differs: EM's multiplicative steps, and SQUAREM on top
    of them, need hundreds of passes where epsilon is small and a category is near 0, this about ten. With a Dirichlet
    prior the maximum satisfies theta_x >= pseudo_x / (n + sum pseudo), so the simplex is cut there and the gradient
    stays bounded. Returns (theta, gap, passes), gap = max over the simplex of the linear upper bound, in nats.
    """
    weight = n + pseudo.sum()
    floor = pseudo / weight
    free = 1 - floor.sum()
    prior = pseudo > 0
    passes = 0

    def look(at: Floats) -> tuple[Floats, float, float]:
        """(gradient, objective, gap) at a point."""
        nonlocal passes
        passes += 1
        slope, objective = passing(at)
        slope = slope.copy()
        slope[prior] += pseudo[prior] / at[prior]
        objective += float((pseudo[prior] * np.log(at[prior])).sum())
        if penalty is not None:
            further, value = penalty(at)
            slope, objective = slope + further, objective + value
        return slope, objective, float((floor * slope).sum() + free * slope.max() - (at * slope).sum())

    theta = np.maximum(theta, floor)
    theta = floor + (theta - floor) * (free / (theta - floor).sum())
    slope, objective, gap = look(theta)
    spread = float(np.abs(slope - slope.mean()).max())
    step = 1e-3 / spread if spread > 0 else 1.0
    recent = [objective]
    while gap > tolerance and passes < max_passes:
        way = floor + simplex(theta + step * slope - floor, free) - theta
        climb = float((slope * way).sum())
        part = 1.0
        while True:
            after = theta + part * way
            next_slope, objective, next_gap = look(after)
            if objective >= min(recent[-8:]) + 1e-4 * part * climb or passes >= max_passes:
                break
            part /= 2
        moved = after - theta
        bend = -float((moved * (next_slope - slope)).sum())
        step = float((moved * moved).sum()) / bend if bend > 0 else 1e3 * step
        theta, slope, gap = after, next_slope, next_gap
        recent.append(objective)
    return theta, gap, passes


def simplex(values: Floats, total: float) -> Floats:
    """Euclidean projection of real numbers on {x >= 0, sum x = total}."""
    falling = np.sort(values)[::-1]
    thresholds = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    active = int(np.flatnonzero(falling > thresholds)[-1])
    return np.maximum(values - thresholds[active], 0)


def _information_error(rows: Rows, theta: Floats, pseudo: Floats, randomizer: Randomizer, inversion: Floats) -> Floats:
    """Standard errors of n theta from the observed information on the simplex, less what sampling the people adds.

    Where the reports leave a direction undetermined (few reports, many categories) the information says 0 or anything
    of it: there, and where it says more than the inversion's error or nothing at all, the inversion's error is kept.
    """
    n, size = rows.shape[0], randomizer.size
    gain = float(randomizer.law.ratio - 1)
    chosen = rows[:: -(-n // _INFORMATION_REPORTS)]
    information = np.zeros((size, size))
    for first in range(0, chosen.shape[0], 4096):
        bits = np.unpackbits(randomizer.supports(chosen[first : first + 4096]), axis=1, bitorder="little")[:, :size]
        score = 1 + gain * bits.astype(np.float64)
        score /= (score @ theta)[:, None]
        information += score.T @ score
    information *= n / chosen.shape[0]
    information[np.diag_indices(size)] += np.divide(pseudo, theta**2, out=np.zeros(size), where=pseudo > 0)
    basis = np.linalg.qr(np.column_stack((np.ones(size), np.eye(size)[:, 1:])))[0][:, 1:]  # directions of sum 0
    strength, directions = np.linalg.eigh(basis.T @ information @ basis)
    if n < _DETERMINED * size or strength[0] < 1e-6 * strength[-1]:
        return inversion
    way = basis @ directions
    variance = n * n * ((way * way) / strength).sum(axis=1) - n * theta * (1 - theta)
    return np.where(variance > 0, np.minimum(np.sqrt(np.maximum(variance, 0)), inversion), inversion)
