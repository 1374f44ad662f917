"""Models from unbiased moments: linear regression, principal components, logistic regression, a linear SVM.

A person's noisy row cannot be fed to an ordinary fit: noise in the features shrinks every coefficient. What is unbiased
is each product of two different columns and each debiased square, so every model here is the solution of equations in
those: E[x x^T] beta = E[x y]. Its error comes from the same rows: the influence of a person on beta is
S^-1 (x y - (x x^T) beta), each product replaced by its unbiased value. Post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, NumericsError
from kasuri.shuffle.columns import Floats
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.statistics import (
    NOT_IDENTIFIED,
    Reports,
    covariance,
    learned,
    mark,
    names_of,
    plain,
    reports_of,
)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Coefficients in the user's units, with standard errors; the first is the intercept."""

    kind: str
    target: str
    names: tuple[str, ...]
    coefficients: Floats
    standard_error: Floats
    notes: tuple[str, ...]

    @property
    def learned(self) -> NDArray[np.bool_]:
        """True where a coefficient is larger than two of its standard errors."""
        return learned(self.coefficients, self.standard_error)

    def words(self) -> str:
        lines = [f"{self.kind} of {self.target}", f"{'':24}{'coefficient':>14}{'std. error':>14}"]
        for name, value, error in zip(self.names, self.coefficients, self.standard_error, strict=True):
            lines.append(f"{name:24}{value:14.5g}{error:14.3g}{mark(value, error)}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "target": self.target,
            "names": list(self.names),
            "coefficients": plain(self.coefficients),
            "standard_error": plain(self.standard_error),
            "learned": self.learned.tolist(),
            "notes": list(self.notes),
        }


def regression(joined: Joined, target: str, features: tuple[str, ...], *, ridge: float = 0.0) -> Model:
    """Least squares of a number on numbers and labels (the first label of a category is the reference).

    ridge: added to the diagonal of E[x x^T] on the scale [-1, 1]; a little of it steadies what the noise leaves open.
    """
    column = joined.plan.column(target)
    if not column.is_number:
        raise DomainError(f"regression: {target!r} holds categories; use logistic or svm with two labels")
    r, names = _features(joined, target, features)
    own = reports_of(joined, (target,))
    beta, spread, notes = _solve(r, own.z[:, 0], ridge)
    b, e = _in_units(r, beta, spread, own.half[0], own.centre[0])
    return Model("linear regression", target, ("intercept", *names), b, e, notes)


def logistic(joined: Joined, target: str, features: tuple[str, ...], *, ridge: float = 0.0) -> Model:
    """Logistic regression on a column of two labels: the loss in its second-order expansion at 0.

    ln(1 + e^-t) = ln 2 - t/2 + t^2/8 + O(t^4): beyond the second order the loss of a noisy row has no unbiased value.
    Its minimum is beta = 2 E[x x^T]^-1 E[x y] with y = +1 for the second label, -1 for the first; good for |t| < 2.
    """
    r, names, y = _two_labels(joined, target, features)
    beta, spread, notes = _solve(r, y, ridge)
    b, e = _in_units(r, beta, spread, 2.0, 0.0)
    note = "second-order expansion of the loss: coefficients of strong effects are understated"
    return Model("logistic regression", target, ("intercept", *names), b, e, (*notes, note))


def svm(joined: Joined, target: str, features: tuple[str, ...], *, ridge: float = 0.01) -> Model:
    """A linear SVM on a column of two labels with the squared loss (least-squares SVM): sign(beta x) is the second
    label. The hinge has no unbiased value on a noisy row; the square has."""
    r, names, y = _two_labels(joined, target, features)
    beta, spread, notes = _solve(r, y, ridge)
    b, e = _in_units(r, beta, spread, 1.0, 0.0)
    return Model("linear SVM (least squares)", target, ("intercept", *names), b, e, notes)


@dataclass(frozen=True, eq=False, repr=False)
class Components:
    """Principal components of the projected covariance of standardised or raw columns: variances, then directions."""

    names: tuple[str, ...]
    variances: Floats
    directions: Floats
    """(columns, components), unit length."""

    @property
    def shares(self) -> Floats:
        """Share of the total variance."""
        total = float(self.variances.sum())
        return self.variances / total if total > 0 else self.variances

    def words(self) -> str:
        lines = [f"{'':24}" + "".join(f"{f'PC{k + 1} {share:.1%}':>14}" for k, share in enumerate(self.shares))]
        lines += [
            f"{name:24}" + "".join(f"{w:14.3f}" for w in row)
            for name, row in zip(self.names, self.directions, strict=True)
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {"names": list(self.names), "variances": plain(self.variances), "directions": plain(self.directions)}


def pca(joined: Joined, columns: tuple[str, ...] | None = None, *, standardize: bool = True) -> Components:
    """Principal components from the estimated covariance (correlation, where `standardize`), projected to PSD."""
    found = covariance(joined, columns)
    matrix = found.correlation if standardize else found.covariance
    if np.isnan(np.diagonal(matrix)).any():
        raise NumericsError("pca: the variance of a column is not known: " + "; ".join(found.notes))
    values, vectors = np.linalg.eigh(np.nan_to_num(matrix))
    order = np.argsort(-values)
    return Components(found.names, np.maximum(values[order], 0.0), vectors[:, order])


def _features(joined: Joined, target: str, features: tuple[str, ...]) -> tuple[Reports, tuple[str, ...]]:
    """The features' unbiased values, without the first label of each category."""
    features = names_of(features, "features")
    if target in features:
        raise DomainError("features: the target is not one of them")
    r = reports_of(joined, features)
    category = [not joined.plan.column(features[k]).is_number for k in r.of]
    keep = [i for i in range(len(r.names)) if not (category[i] and (i == 0 or r.of[i] != r.of[i - 1]))]
    bad = [r.names[i] for i in keep if r.s[i] is None]
    if bad:
        raise DomainError(f"{', '.join(bad)}: {NOT_IDENTIFIED}")
    picked = Reports(
        tuple(r.names[i] for i in keep), r.of[keep], r.z[:, keep], tuple(r.s[i] for i in keep), r.centre[keep],
        r.half[keep],
    )  # fmt: skip
    return picked, picked.names


def _two_labels(joined: Joined, target: str, features: tuple[str, ...]) -> tuple[Reports, tuple[str, ...], Floats]:
    column = joined.plan.column(target)
    if column.is_number or len(column.category.labels) != 2:
        raise DomainError(f"{target!r}: a column of two labels is needed")
    r, names = _features(joined, target, features)
    seen = column.unbiased(joined.columns[target])
    return r, names, seen[:, 1] - seen[:, 0]


def _solve(r: Reports, y: Floats, ridge: float) -> tuple[Floats, Floats, tuple[str, ...]]:
    """beta of y on (1, z), its estimated covariance, and notes, on the scale [-1, 1]."""
    n, d = r.z.shape
    second = np.eye(d + 1)
    cross = np.concatenate(([y.mean()], r.z.T @ y / n))
    second[0, 1:] = second[1:, 0] = r.z.mean(axis=0)
    for i in range(d):
        for j in range(i + 1):
            product = r.pair(i, j)
            assert product is not None
            second[i + 1, j + 1] = second[j + 1, i + 1] = product.mean()
    second[1:, 1:] += ridge * np.eye(d)
    values = np.linalg.eigvalsh(second)
    if values[0] <= 1e-9:
        raise NumericsError(_what_would_fit(r, second, float(values[0])))
    beta = np.linalg.solve(second, cross)
    # influence: S^-1 (x y - (x x^T) beta)
    score = np.empty((n, d + 1))
    score[:, 0] = y - beta[0] - r.z @ beta[1:]
    for i in range(d):
        own = r.z[:, i] * (y - beta[0])
        for j in range(d):
            product = r.pair(i, j)
            assert product is not None
            own = own - product * beta[j + 1]
        score[:, i + 1] = own
    score -= score.mean(axis=0)
    inverse = np.linalg.inv(second)
    spread = inverse @ (score.T @ score / n) @ inverse.T / n
    notes = () if values[0] > 0.1 * float(np.diagonal(second).min()) else ("the moments are nearly singular",)
    return beta, spread, notes


ENOUGH = 0.1
"""A least eigenvalue of the features' moments, on the scale [-1, 1], that two of its errors must stay below."""


def _what_would_fit(r: Reports, second: Floats, least: float) -> str:
    """What would make the moments' least eigenvalue known: rows, epsilon or a ridge.

    Along its vector w the eigenvalue is the mean over people of w^T (x x^T) w, each product by its unbiased value; its
    error e falls with the root of n, and with the square of epsilon where epsilon is small (a report's size is about
    2/epsilon, a product's its square). Two errors below `ENOUGH` are asked for.
    """
    w = np.linalg.eigh(second)[1][:, 0]
    each = np.full(r.n, w[0] ** 2)
    for i in range(r.z.shape[1]):
        each += 2 * w[0] * w[i + 1] * r.z[:, i]
        for j in range(r.z.shape[1]):
            product = r.pair(i, j)
            assert product is not None
            each += w[i + 1] * w[j + 1] * product
    error = float(each.std()) / r.n**0.5
    short = max(2 * error / ENOUGH, 1.0)
    return (
        f"the noise leaves the features' moments singular: their least eigenvalue is {least:.2g} with a standard error "
        f"of {error:.2g}. To fit take about {r.n * short**2:,.0f} rows ({r.n:,} are here), or about {short**0.5:.1f} "
        f"times the epsilon of each feature, or fewer features, or a ridge of {max(ENOUGH - least, ENOUGH):.2g}"
    )


def _in_units(r: Reports, beta: Floats, spread: Floats, half: float, centre: float) -> tuple[Floats, Floats]:
    """From the scale [-1, 1] to the user's units: y = centre + half (beta_0 + sum beta_i (x_i - centre_i)/half_i)."""
    change = np.eye(len(beta))
    change[0, 1:] = -r.centre / r.half
    change[1:, 1:] = np.diag(1 / r.half)
    b = half * (change @ beta)
    b[0] += centre
    return b, half * np.sqrt(np.maximum(np.diagonal(change @ spread @ change.T), 0.0))
