"""Estimates of joined rows: unbiased, with honest errors; on the six numeric columns of Adult and on made-up rows."""

from fractions import Fraction
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from pyarrow import parquet

import kasuri as ks
from kasuri.errors import DomainError, NumericsError
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.party import _place
from kasuri.shuffle.statistics import nearest_correlation, nearest_psd, nearest_shares

ADULT = Path(ks.__file__).parent / "reproduce" / "adult" / "numeric.parquet"
BOUNDS = {
    "age": (17, 90), "education_num": (1, 16), "fnlwgt": (0, 1_500_000), "capital_gain": (0, 100_000),
    "capital_loss": (0, 5000), "hours_per_week": (1, 99),
}  # fmt: skip
NAMES = tuple(BOUNDS)


@cache
def adult():
    table = parquet.ParquetFile(ADULT).read()
    return {name: table.column(name).to_numpy().astype(float) for name in NAMES}


def joined_of(plan, rows, seed):
    """What the join gives, without the pseudonyms: rows randomised as a Party does."""
    columns = {}
    n = len(next(iter(rows.values())))
    for column in plan.columns:
        place = _place(ks.seeded(seed), plan, column, 0)
        columns[column.name] = column.randomize(rows[column.name], place)
    return Joined(plan, MappingProxyType(columns), CLAIMS(plan, n), False)


@cache
def CLAIMS(plan, n):  # noqa: N802
    return plan.guarantee(n=n)


def adult_plan(mechanism, each="2"):
    return ks.shuffle.Plan(
        key="id", a=NAMES[:3], b=NAMES[3:], bounds=BOUNDS, epsilon_each=each, delta=1e-8,
        mechanisms=dict.fromkeys(NAMES, mechanism),
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", ["piecewise", "coin", pytest.param("hybrid", marks=pytest.mark.full)])
def test_adult_means_covariances_and_diagonal_are_unbiased_and_covered(mechanism):
    data = adult()
    truth = np.stack([data[name] for name in NAMES])
    mean, cov = truth.mean(axis=1), np.cov(truth, bias=True)
    plan, runs = adult_plan(mechanism), 200
    assert truth.shape == (6, 30_162)
    means, covs, inside, mean_inside = [], [], [], []
    for seed in range(runs):
        found = ks.shuffle.covariance(joined_of(plan, data, seed))
        means.append(found.mean)
        covs.append(found.covariance)
        low, high = found.interval(0.95)
        inside.append((low <= cov) & (cov <= high))
        mean_inside.append(np.abs(found.mean - mean) <= 1.96 * found.mean_error)
    means, covs = np.array(means), np.array(covs)
    assert (np.abs(means.mean(axis=0) - mean) < 4 * means.std(axis=0) / runs**0.5).all()
    off = ~np.eye(6, dtype=bool)
    gap, error = np.abs(covs.mean(axis=0) - cov), covs.std(axis=0) / runs**0.5
    assert (gap < 4 * error)[off].all()
    assert (gap < 4 * error)[~off].all()  # the diagonal too
    lower = np.tril(np.ones((6, 6), dtype=bool))
    assert 0.93 <= np.mean(inside, axis=0)[lower].mean() <= 0.97
    assert 0.93 <= np.mean(mean_inside) <= 0.97


def test_the_square_of_two_point_reports_is_constant_and_refused():
    plan = adult_plan("two_point")
    found = ks.shuffle.covariance(joined_of(plan, adult(), 1))
    assert np.isnan(np.diagonal(found.covariance)).all() and np.isfinite(found.covariance[0, 1])
    assert len(found.notes) == 6
    with pytest.raises(NumericsError):
        ks.shuffle.pca(joined_of(plan, adult(), 1))
    with pytest.raises(DomainError):
        ks.shuffle.regression(joined_of(plan, adult(), 1), "age", ("fnlwgt",))


def test_the_coin_depends_on_nothing():
    # as many of each half report squares whatever their value
    plan = ks.shuffle.Plan(
        key="id", a=("x",), b=("y",), bounds={"x": (0, 1), "y": (0, 1)}, epsilon_each="3", delta=1e-8,
        mechanisms={"x": "coin", "y": "coin"},
    )  # fmt: skip
    n = 40_000
    rows = {"x": np.repeat([0.0, 1.0], n // 2), "y": np.tile([0.0, 1.0], n // 2)}
    joined = joined_of(plan, rows, 4)
    x, y = joined.columns["x"] >= 2, joined.columns["y"] >= 2
    for split in (np.arange(n) < n // 2, rows["y"] > 0.5, y):
        assert abs(x[split].mean() - x[~split].mean()) < 4 * 0.5 * (2 / (n / 2)) ** 0.5


def made_up(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    y = np.clip(0.6 * x + rng.normal(0, 0.2, n), -1, 1)
    s = np.where(rng.random(n) < 0.5 + 0.4 * x, "yes", "no")
    t = np.array(["p", "q", "r"])[np.where(s == "yes", rng.integers(0, 2, n), rng.integers(1, 3, n))]
    return {"x": x, "y": y, "s": s, "t": t}


def made_up_plan(kind="piecewise", category="grr", each="4"):
    return ks.shuffle.Plan(
        key="id", a=("x", "s"), b=("y", "t"), bounds={"x": (-1, 1), "y": (-1, 1)},
        categories={"s": ("no", "yes"), "t": ("p", "q", "r")}, epsilon_each=each, delta=1e-8,
        mechanisms={"x": kind, "y": kind, "s": category, "t": category},
    )  # fmt: skip


@pytest.mark.parametrize("category", ["grr", "one_hot"])
def test_mixed_moments_models_and_tables_are_within_their_errors(category):
    rows = made_up(60_000, 1)
    joined = joined_of(made_up_plan(category=category), rows, 2)
    found = ks.shuffle.covariance(joined)
    columns = [rows["x"], rows["s"] == "no", rows["s"] == "yes", rows["y"], *(rows["t"] == k for k in "pqr")]
    truth = np.cov(np.array(columns, dtype=float), bias=True)
    assert found.names == ("x", "s=no", "s=yes", "y", "t=p", "t=q", "t=r")
    assert (np.abs(found.covariance - truth) < 4.5 * found.covariance_error).all()
    assert (np.abs(found.correlation - np.corrcoef(np.array(columns, dtype=float)))
            <= 4.5 * found.correlation_error + 1e-9).all()  # fmt: skip
    assert found.learned[0, 3]
    table = ks.shuffle.contingency(joined, "s", "t")
    counts = np.array([[np.sum((rows["s"] == i) & (rows["t"] == j)) for j in "pqr"] for i in ("no", "yes")])
    assert (np.abs(table.counts - counts) < 4.5 * table.standard_error).all()
    fit = ks.shuffle.regression(joined, "y", ("x", "t"))
    design = np.stack([np.ones(60_000), rows["x"], rows["t"] == "q", rows["t"] == "r"], axis=1).astype(float)
    exact = np.linalg.lstsq(design, rows["y"], rcond=None)[0]
    assert (np.abs(fit.coefficients - exact) < 4.5 * fit.standard_error).all()
    y = np.where(rows["s"] == "yes", 1.0, -1.0)
    simple = np.stack([np.ones(60_000), rows["x"]], axis=1)
    least = np.linalg.lstsq(simple, y, rcond=None)[0]
    logit = ks.shuffle.logistic(joined, "s", ("x",))
    assert (np.abs(logit.coefficients - 2 * least) < 4.5 * logit.standard_error).all()
    vector = ks.shuffle.svm(joined, "s", ("x",), ridge=0.0)
    assert (np.abs(vector.coefficients - least) < 4.5 * vector.standard_error).all()
    right = np.sign(vector.coefficients[0] + vector.coefficients[1] * rows["x"]) == y
    assert right.mean() > 0.65
    parts = ks.shuffle.pca(joined, ("x", "y"))
    assert parts.shares[0] == pytest.approx((1 + np.corrcoef(rows["x"], rows["y"])[0, 1]) / 2, abs=0.05)


def test_errors_of_models_are_honest():
    rows, plan = made_up(8000, 3), made_up_plan()
    design = np.stack([np.ones(8000), rows["x"]], axis=1)
    exact = np.linalg.lstsq(design, rows["y"], rcond=None)[0]
    inside = []
    for seed in range(150):
        fit = ks.shuffle.regression(joined_of(plan, rows, seed), "y", ("x",))
        inside.append(np.abs(fit.coefficients - exact) <= 1.96 * fit.standard_error)
    assert 0.90 <= np.mean(inside) <= 0.99


@pytest.mark.parametrize(("share", "most"), [(0.5, 1.0), (0.48, 1.0), (0.46, 0.97), (0.3, 0.97)])
def test_label_variances_are_covered_where_their_influence_vanishes(share, most):
    # at a share of 1/2 d(m(1 - m))/dm is 0: what is left is of second order. People are drawn anew: the intervals are
    # for their population
    n, runs = 4000, 400
    plan = ks.shuffle.Plan(
        key="id", a=("s",), b=("y",), bounds={"y": (0, 1)}, categories={"s": ("no", "yes")}, epsilon_each="2",
        delta=1e-6,
    )  # fmt: skip
    truth = share * (1 - share)
    inside, errors, values = [], [], []
    for seed in range(runs):
        people = np.random.default_rng(seed).random(n) < share
        rows = {"s": np.where(people, "no", "yes"), "y": np.full(n, 0.5)}
        found = ks.shuffle.covariance(joined_of(plan, rows, seed), ("s",))
        low, high = found.interval(0.95)
        errors.append(found.covariance_error[0, 0])
        values.append(found.covariance[0, 0])
        inside.append([low[0, 0] <= truth <= high[0, 0], low[0, 1] <= -truth <= high[0, 1]])
    assert (np.mean(inside, axis=0) >= 0.93).all() and np.mean(inside) <= most
    assert share != 0.5 or min(errors) > np.std(values)


def test_columns_are_named_once_each():
    joined = joined_of(made_up_plan(), made_up(2000, 3), 1)
    for bad in (("x", "x"), (), "x"):
        with pytest.raises(DomainError, match="each once"):
            ks.shuffle.covariance(joined, bad)
        with pytest.raises(DomainError, match="each once"):
            ks.shuffle.regression(joined, "y", bad)
    with pytest.raises(DomainError, match="target"):
        ks.shuffle.regression(joined, "y", ("y",))


def test_nothing_learned_is_said():
    rng = np.random.default_rng(9)
    plan = ks.shuffle.Plan(
        key="id", a=("x",), b=("y",), bounds={"x": (0, 1), "y": (0, 1)}, epsilon_each="0.1", delta=1e-8,
        mechanisms={"x": "piecewise", "y": "piecewise"},
    )  # fmt: skip
    found = ks.shuffle.covariance(joined_of(plan, {"x": rng.random(2000), "y": rng.random(2000)}, 2))
    assert not found.learned[0, 1] or found.covariance_error[0, 1] > 0.3 * abs(found.covariance[0, 1])
    assert "?" in found.words() and found.to_json()["learned"][0][1] == bool(found.learned[0, 1])


def test_projections():
    rng = np.random.default_rng(2)
    noisy = rng.normal(size=(6, 6))
    noisy = noisy + noisy.T
    psd = nearest_psd(noisy)
    assert np.linalg.eigvalsh(psd).min() > -1e-9 and np.allclose(nearest_psd(psd), psd)
    right = nearest_correlation(noisy)
    assert np.linalg.eigvalsh(right).min() > 0 and np.allclose(np.diagonal(right), 1)
    # the example of Higham (2002), whose nearest correlation matrix is known
    known = nearest_correlation(np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]))
    assert known[[0, 0, 1], [1, 2, 2]] == pytest.approx([0.7607, 0.1573, 0.7607], abs=2e-4)
    assert nearest_correlation(known) is not known and np.array_equal(nearest_correlation(np.eye(3)), np.eye(3))
    for seed in range(20):
        found = np.random.default_rng(seed).normal(0.2, 0.4, 5)
        shares = nearest_shares(found)
        assert shares.min() >= 0 and shares.sum() == pytest.approx(1)
        others = np.random.default_rng(seed).dirichlet(np.ones(5), 2000)
        assert ((others - found) ** 2).sum(axis=1).min() >= ((shares - found) ** 2).sum() - 1e-12
    assert nearest_shares(np.array([0.25, 0.75])) == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("method", ["copula", "pca"])
def test_synthetic_rows_follow_the_estimates(method):
    rows = made_up(60_000, 5)
    joined = joined_of(made_up_plan(), rows, 6)
    made = ks.shuffle.synthesize(joined, rows=40_000, method=method, source=ks.seeded(1))
    assert made.guarantee == joined.claims.public
    for name in ("x", "y"):
        assert made.columns[name].min() >= -1 and made.columns[name].max() <= 1
        assert made.columns[name].mean() == pytest.approx(rows[name].mean(), abs=0.05)
        assert made.columns[name].std() == pytest.approx(rows[name].std(), rel=0.1)
    for name in ("s", "t"):
        for label in np.unique(rows[name]):
            assert (made.columns[name] == label).mean() == pytest.approx((rows[name] == label).mean(), abs=0.03)
    r = np.corrcoef(made.columns["x"], made.columns["y"])[0, 1]
    assert r == pytest.approx(np.corrcoef(rows["x"], rows["y"])[0, 1], abs=0.08)
    with_label = np.corrcoef(made.columns["x"], made.columns["s"] == "yes")[0, 1]
    assert with_label == pytest.approx(np.corrcoef(rows["x"], rows["s"] == "yes")[0, 1], abs=0.15)
    near = ks.shuffle.quality(made, joined)
    assert near.correlation < 0.1 and max(near.marginals.values()) < 0.1 and near.regression["x"] < 0.25
    again = ks.shuffle.synthesize(joined, rows=40_000, method=method, source=ks.seeded(1))
    assert all((again.columns[name] == made.columns[name]).all() for name in made.columns)


def test_synthesis_reads_nothing_but_joined_rows():
    joined = joined_of(made_up_plan("coin", each="2"), made_up(5000, 7), 8)
    assert len(ks.shuffle.synthesize(joined, rows=10)) == 10
    for bad in ({"rows": 0}, {"rows": 5, "method": "gan"}):
        with pytest.raises(DomainError):
            ks.shuffle.synthesize(joined, **bad)


def test_only_b_over_a_matters():
    # [Kii2022, Figure 4]: (a, b) and (c a, c b) are one mechanism
    plans = [
        ks.shuffle.Plan(
            key="id", a=("x",), b=("y",), bounds={"x": (0, 1), "y": (0, 1)}, epsilon_each="2", delta=1e-8,
            mechanisms={"x": "two_point"}, ab={"x": (str(a), str(b))},
        )
        for a, b in ((1, 2), (1000, 2000))
    ]  # fmt: skip
    one, two = (plan.column("x").randomizer for plan in plans)
    assert one == two
    assert max(one.values) == pytest.approx(2, rel=1e-6)
    assert Fraction(one.ratio) <= 3
