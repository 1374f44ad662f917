"""Synthetic rows have the moments that were estimated, imitate no noise, and `quality` says when they do not."""

import re
from dataclasses import replace

import numpy as np
import pytest
from distributions.test_shuffle_statistics import NAMES, adult, adult_plan, joined_of, made_up, made_up_plan
from typer.testing import CliRunner

import kasuri as ks
from kasuri.errors import NumericsError
from kasuri.shuffle import marginals, synthesis
from kasuri.shuffle.marginals import CLOSE, SHARP, Marginal, law
from kasuri.shuffle.synthesis import TOGETHER

OFF = np.tril(np.ones((6, 6), dtype=bool), -1)


def flat():
    return Marginal(np.array([0.0, 1.0]), np.ones(1))


def rough():
    """A histogram as noisy reports tell it: spikes and holes, all near the lower end."""
    rng = np.random.default_rng(3)
    weights = rng.exponential(size=257) ** 3 * np.exp(-np.linspace(0, 12, 257))
    points = np.linspace(0, 1, 257)
    return Marginal(np.concatenate(([0], (points[1:] + points[:-1]) / 2, [1])), weights / weights.sum())


MEANS = (1e-6, 1e-4, 1e-3, 0.0171, 0.1, 0.4, 0.5, 0.83, 0.99, 0.9999)
SHARES = (1e-3, 0.02, 0.1, 0.3, 0.577, 0.8, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("start", [flat, rough])
def test_a_law_has_the_mean_and_deviation_asked_for(start):
    """Every mean with every share of the largest deviation it allows. The law's own moments are exact to the solver's
    CLOSE. A mean over k even steps of a rising quantile is off by at most width/k, a mean of squares by twice that."""
    k = 20_000
    steps = (np.arange(k) + 0.5) / k
    for mean in MEANS:
        for share in SHARES:
            sd = max(share * (mean * (1 - mean)) ** 0.5, SHARP**2)
            found, moved = law(start(), mean, 1e-12, sd**2, 1e-18, "x")
            where = f"mean {mean}, deviation {sd}"
            assert abs(found.mean - mean) <= 2 * CLOSE * sd, where
            assert found.variance == pytest.approx(sd**2, rel=4 * CLOSE), where
            drawn = found.quantile(steps)
            assert drawn.min() >= 0 and drawn.max() <= 1 and (np.diff(drawn) >= 0).all()
            assert abs(drawn.mean() - mean) <= 1 / k + CLOSE * sd, where
            assert abs((drawn**2).mean() - mean**2 - sd**2) <= 2 / k + 4 * CLOSE * sd, where
            assert moved == (), where


def test_moments_that_cannot_be_are_moved_to_what_can():
    def of(mean, mean_error, variance, variance_error, low=0.0, high=100.0):
        start = Marginal(np.array([low, high]), np.ones(1))
        found, notes = law(start, mean, mean_error, variance, variance_error, "x")
        return found.mean, found.variance, notes

    said = (f"x: {marginals.MOVED}",)
    assert of(40, 1, 25, 1) == (pytest.approx(40), pytest.approx(25), ())
    # a mean beyond its bound: half its error inside
    assert of(-3, 2, 0.25, 0.1) == (pytest.approx(1), pytest.approx(0.25), said)
    assert of(103, 2, 0.25, 0.1) == (pytest.approx(99), pytest.approx(0.25), said)
    # more than two points at the bounds have: those, nearly
    assert of(20, 1, 9000, 1) == (pytest.approx(20), pytest.approx(1600, rel=2 * SHARP), said)
    # a variance below 0 with an error: that error; with an error above all that is likely: most entropy
    assert of(20, 1, -5, 9) == (pytest.approx(20), pytest.approx(9), said)
    mean, variance, notes = of(50, 1, -5, 1e6)
    assert (mean, variance, notes) == (pytest.approx(50), pytest.approx(100**2 / 12), said)
    # no variance at all: most entropy with the mean; near a bound that is the exponential law
    mean, variance, notes = of(2, 0.1, float("nan"), float("nan"))
    assert (mean, variance**0.5, notes) == (pytest.approx(2), pytest.approx(2, rel=0.02), ())
    # other bounds are a change of units
    mean, variance, _ = of(-70, 0.5, 16, 1, low=-90, high=-40)
    assert (mean, variance) == (pytest.approx(-70), pytest.approx(16))


@pytest.fixture(scope="module")
def studies():
    """Adult at epsilon 1 a column, several draws: (joined, moments, synthetic rows) of both randomizers."""
    out = []
    for mechanism, seeds in (("piecewise", range(4)), ("coin", range(4))):
        plan = adult_plan(mechanism, "1")
        for seed in seeds:
            joined = joined_of(plan, adult(), seed)
            made = ks.shuffle.synthesize(joined, rows=20_000, source=ks.seeded(seed))
            out.append((mechanism, joined, ks.shuffle.covariance(joined), made))
    return out


def test_synthetic_means_and_deviations_are_the_estimates(studies):
    """Of 8 x 6 columns. Means: estimate and law agree within half an error, and 20,000 rows add their own."""
    for mechanism, joined, moments, made in studies:
        near = ks.shuffle.quality(made, joined)
        assert near.failed == () and set(near.off) == set(NAMES), (mechanism, near.words())
        for i, name in enumerate(NAMES):
            rows, spread, error = made.columns[name], moments.covariance[i, i], moments.covariance_error[i, i]
            assert abs(rows.mean() - moments.mean[i]) <= 1.3 * moments.mean_error[i] + 4 * rows.std() / 20_000**0.5
            width = 2 * joined.plan.column(name).half
            # four errors of a variance of 20,000 rows: its own variance is at most width^2 Var(x)
            assert rows.var() <= max(spread, error) + 4 * width * rows.std() / 20_000**0.5
            if spread > error:
                assert abs(rows.var() - spread) <= 4 * width * rows.std() / 20_000**0.5, (mechanism, name)


def test_synthetic_rows_are_not_worse_than_independent_ones(studies):
    """Mean distance of correlations from the truth. Rows that imitate nothing are `independent` off; drawing 20,000 of
    them adds at most sqrt(2/pi)/sqrt(rows) to the mean of 15 absolute values."""
    truth = np.corrcoef(np.stack([adult()[name] for name in NAMES]))
    independent = np.abs(truth[OFF]).mean()
    for kind in ("piecewise", "coin"):
        apart = [
            np.abs(np.corrcoef(np.stack([made.columns[name] for name in NAMES])) - truth)[OFF].mean()
            for mechanism, _, _, made in studies
            if mechanism == kind
        ]
        assert np.mean(apart) <= independent + (2 / np.pi / 20_000) ** 0.5, kind
    far = [np.abs(np.where(np.abs(m.ratio) > m.correlation_error, m.ratio, 0) - truth)[OFF] for _, _, m, _ in studies]
    assert np.nanmean(far) > 1.5 * independent, "what passes one error is mostly noise: the comparison can fail"


def test_no_correlation_beyond_one_is_printed_or_imitated(studies):
    beyond = 0
    for _, _, moments, _ in studies:
        spread = np.sqrt(np.maximum(np.diagonal(moments.covariance), 0))
        spread[spread == 0] = np.nan
        raw = (moments.covariance / np.outer(spread, spread))[OFF]
        beyond += np.nansum(np.abs(raw) > 1)
        shown = [float(found) for found in re.findall(r"(-?\d+\.\d{3}) \(\d+\.\d{3}\)", moments.words())]
        assert len(shown) == np.isfinite(moments.correlation[OFF]).sum()
        said = [r for row in moments.to_json()["correlation"] for r in row if r is not None]
        for values in (shown, said, moments.imitated.ravel()):
            assert np.abs(values).max() <= 1
        assert np.linalg.eigvalsh(moments.psd).min() >= -1e-6 * np.abs(moments.psd).max()
    assert beyond >= 5, "the noise does carry ratios beyond 1 here"


def two_columns(r, error):
    """Moments of two columns whose correlation was estimated so."""
    joined = joined_of(made_up_plan(each="2"), made_up(2000, 1), 1)
    found = ks.shuffle.covariance(joined, ("x", "y"))
    return replace(
        found,
        ratio=np.array([[1.0, r], [r, 1.0]]),
        correlation_error=np.array([[0.0, error], [error, 0.0]]),
    )


@pytest.mark.parametrize(
    ("r", "error", "shown", "imitated", "learned"),
    [
        (0.5, 0.1, 0.5 * 0.25 / 0.26, 0.5 - 0.04 / 0.5, True),
        (-0.5, 0.1, -0.5 * 0.25 / 0.26, -0.5 + 0.04 / 0.5, True),
        (0.21, 0.1, 0.21 * 0.0441 / 0.0541, 0.21 - 0.04 / 0.21, True),
        (0.19, 0.1, 0.19 * 0.0361 / 0.0461, 0.0, False),
        (1.0, 0.756, 1 / (1 + 0.756**2), 0.0, False),
        (0.3, 0.0, 0.3, 0.3, True),
        (0.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_learned_means_two_errors_and_noise_shrinks(r, error, shown, imitated, learned):
    found = two_columns(r, error)
    assert found.correlation[0, 1] == pytest.approx(shown) and found.imitated[0, 1] == pytest.approx(imitated)
    assert found.correlation_learned[0, 1] == learned == found.to_json()["correlation_learned"][0][1]
    (line,) = [line for line in found.words().splitlines() if line.startswith("x, y")]
    assert (") ?   covariance" in line) is not learned
    own = found.covariance_error[0, 1]
    for size, known in ((1.9, False), (2.1, True)):
        given = replace(found, covariance=np.full((2, 2), size * own), covariance_error=np.full((2, 2), own))
        assert given.learned.all() == known == (" ?" not in given.words().splitlines()[-2])


def test_correlations_that_cannot_all_hold_are_said(monkeypatch):
    """Of three numbers two pairs that rise together leave the third no choice."""
    joined = joined_of(adult_plan("coin", "8 weak"), adult(), 1)
    found = ks.shuffle.covariance(joined)
    assert TOGETHER not in ks.shuffle.synthesize(joined, rows=10, source=ks.seeded(1)).notes
    ratio = found.ratio.copy()
    for i, j, r in ((0, 1, 0.9), (0, 2, 0.9), (1, 2, -0.9)):
        ratio[i, j] = ratio[j, i] = r
    told = replace(found, ratio=ratio, correlation_error=np.full((6, 6), 0.01))
    monkeypatch.setattr(synthesis, "covariance", lambda _: told)
    made = ks.shuffle.synthesize(joined, rows=20_000, source=ks.seeded(1))
    assert TOGETHER in made.notes
    r = np.corrcoef(np.stack([made.columns[name] for name in NAMES[:3]]))
    assert r[0, 1] > 0.3 and r[0, 2] > 0.3 and r[1, 2] < -0.3


def test_degenerate_columns_have_rows_and_a_verdict():
    """Everyone alike, bounds tiny or huge, an epsilon under which reports are the truth, two rows: no error, no nan."""
    for bounds, value, each in (((0, 1), 1.0, "40 weak"), (("0", "1e-59"), 0.0, "2"), ((-1e50, 1e50), 0.0, "2"),
                                ((0, 1), 0.5, "0.001")):  # fmt: skip
        plan = ks.shuffle.Plan(
            key="id", a=("x",), b=("y",), bounds={"x": bounds, "y": (0, 1)}, epsilon_each=each, delta=1e-8,
            mechanisms={"x": "piecewise", "y": "coin"},
        )  # fmt: skip
        joined = joined_of(plan, {"x": np.full(1500, value), "y": np.full(1500, 1.0)}, 1)
        for rows in (2, 500):
            made = ks.shuffle.synthesize(joined, rows=rows, source=ks.seeded(2))
            for name in "xy":
                low, high = (float(end) for end in plan.bounds[name])
                assert ((low <= made.columns[name]) & (made.columns[name] <= high)).all()
            near = ks.shuffle.quality(made, joined)
            assert np.isfinite(list(near.off.values())).all() and near.failed == ()


def test_quality_fails_where_a_mean_is_three_errors_off(tmp_path, monkeypatch):
    from contract.test_shuffle import plan_of, tables

    from kasuri.cli import app

    joined = ks.shuffle.join(plan_of(), *tables(plan_of()))
    made = ks.shuffle.synthesize(joined, rows=4000)
    found = ks.shuffle.covariance(joined)
    assert ks.shuffle.quality(made, joined).failed == ()

    def shifted(errors):
        i = found.names.index("age")
        rows = made.columns["age"]
        error = (found.mean_error[i] ** 2 + max(rows.var(), found.covariance[i, i]) / 4000) ** 0.5
        # exactly so many errors above the estimate, and one row's reach
        off = found.mean[i] - rows.mean() + errors * error + 60 / 4000
        return replace(made, columns=made.columns | {"age": rows + off})

    assert ks.shuffle.quality(shifted(2.9), joined).failed == ()
    bad = shifted(3.1)
    near = ks.shuffle.quality(bad, joined)
    assert near.failed == ("age",) and near.off["age"] == pytest.approx(3.1) and "FAILED: age" in near.words()
    assert near.to_json()["failed"] == ["age"]
    page = ks.shuffle.report(joined, synthetic=bad)
    assert "FAILED: means over 3 standard errors" in page and "不合格" in page
    assert "FAILED" not in ks.shuffle.report(joined, synthetic=made)
    # labels: all of one share
    labels = replace(made, columns=made.columns | {"sex": np.full(4000, "F")})
    assert "sex=F" in ks.shuffle.quality(labels, joined).failed
    joined.save(tmp_path / "joined.parquet", unmetered=True)
    words = ["shuffle", "synthesize", str(tmp_path / "joined.parquet"), "--rows", "4000", "--out"]
    monkeypatch.setattr(ks.shuffle, "synthesize", lambda *_, **__: bad, raising=False)
    run = CliRunner().invoke(app, [*words, str(tmp_path / "bad.csv")])
    assert (
        run.exit_code == 1 and isinstance(run.exception, NumericsError) and "nothing was written" in str(run.exception)
    )
    assert not (tmp_path / "bad.csv").exists()
    monkeypatch.setattr(ks.shuffle, "synthesize", lambda *_, **__: made, raising=False)
    run = CliRunner().invoke(app, [*words, str(tmp_path / "good.csv"), "--json"])
    assert run.exit_code == 0 and '"failed": []' in run.output and (tmp_path / "good.csv").exists()


@pytest.mark.parametrize(("labels", "rows"), [(2, 50), (8, 50_000), (60, 5000)])
def test_labels_have_their_shares(labels, rows):
    """Also many and rare ones: within three errors of drawing so many rows and one row."""
    rng = np.random.default_rng(labels)
    shares = rng.dirichlet(np.full(labels, 0.3))
    utility = rng.normal(size=(rows, labels))
    seen = np.bincount(synthesis._choice(utility, shares), minlength=labels) / rows
    assert (np.abs(seen - shares) <= 3 * np.sqrt(shares * (1 - shares) / rows) + 1 / rows).all()


@pytest.mark.parametrize("method", ["regression", "svm"])
def test_columns_drawn_one_after_another_keep_means_shares_and_relations(method):
    """60,000 people at epsilon 4 a column: laws and shares are those estimated, correlations near the imitated ones."""
    rows = made_up(60_000, 1)
    joined = joined_of(made_up_plan(), rows, 2)
    made = ks.shuffle.synthesize(joined, rows=40_000, method=method, source=ks.seeded(5))
    near = ks.shuffle.quality(made, joined)
    assert made.method == method and near.failed == ()
    kept = ks.shuffle.covariance(joined)
    x, y = (made.columns[name] for name in "xy")
    yes = (made.columns["s"] == "yes").astype(float)
    at = {name: i for i, name in enumerate(kept.names)}
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(kept.imitated[at["x"], at["y"]], abs=0.05)
    assert np.corrcoef(x, yes)[0, 1] == pytest.approx(kept.imitated[at["x"], at["s=yes"]], abs=0.08)
    r = made.columns["t"] == "r"
    assert r[made.columns["s"] == "yes"].mean() < 0.6 * r[made.columns["s"] == "no"].mean()
    assert np.abs(np.corrcoef(x, np.random.default_rng(1).permutation(y))[0, 1]) < 0.02  # the check itself sees a break


@pytest.mark.parametrize("method", ["regression", "svm"])
def test_columns_one_after_another_read_nothing_but_the_joined_rows(method):
    """Equal estimates and equal seed, equal rows; another seed, other rows."""
    joined = joined_of(made_up_plan(), made_up(5_000, 3), 4)
    one, two, other = (
        ks.shuffle.synthesize(joined, rows=500, method=method, source=ks.seeded(seed)).columns for seed in (7, 7, 8)
    )
    assert all((one[name] == two[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_an_unknown_method_is_refused():
    joined = joined_of(made_up_plan(), made_up(5_000, 3), 4)
    with pytest.raises(ks.DomainError, match="copula, pca, regression, svm"):
        ks.shuffle.synthesize(joined, rows=10, method="tree")


def test_a_model_that_does_not_fit_says_what_would():
    """1,000 rows at epsilon 0.2: the message names rows, epsilon and a ridge, and that ridge fits."""
    joined = joined_of(adult_plan("piecewise", each="0.2"), {k: v[:1000] for k, v in adult().items()}, 9)
    with pytest.raises(
        NumericsError, match=r"take about [\d,]+ rows \(1,000 are here\), or about [\d.]+ times"
    ) as caught:
        ks.shuffle.regression(joined, NAMES[0], tuple(NAMES[1:]))
    asked = int(re.search(r"about ([\d,]+) rows", str(caught.value))[1].replace(",", ""))
    times = float(re.search(r"about ([\d.]+) times", str(caught.value))[1])
    assert asked > 1000 and times == pytest.approx((asked / 1000) ** 0.25, rel=0.05)
    ridge = float(re.search(r"a ridge of ([\d.e+]+)", str(caught.value))[1])
    ks.shuffle.regression(joined, NAMES[0], tuple(NAMES[1:]), ridge=1.1 * ridge)
