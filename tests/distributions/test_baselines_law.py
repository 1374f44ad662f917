"""The law of the noise of projections, thresholds, trees and matrices, from what a release shows."""

from fractions import Fraction

import numpy as np
import pytest
from reference.sensitivity import mask
from reference.statistics import ALPHA, chi_square, laplace_cdf, uniform

import kasuri as ks
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import discrete_laplace, runs_below
from kasuri.recipes import strategy
from kasuri.refine import project
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit

POPULOUS = Domain.of(Mesh("g", shape=(90, 120)))
TRUTH = 4000 + 40 * (np.add.outer(np.arange(90) * 7, np.arange(120) * 13) % 50)


def variance(scale):
    a = np.exp(-1 / scale)
    return 2 * a / (1 - a) ** 2


@pytest.mark.parametrize(
    ("recipe", "change", "scale"),
    [
        (ks.simplex(share="0.5"), "add-remove", 2 / 0.5),
        (ks.simplex(share="0.2"), "replace", 2 / (0.8 * 0.5) * 1),
        (ks.simplex("public", declared_total=int(TRUTH.sum())), "replace", 2 / 0.5),
        (ks.neg_l2_simplex("1", "public", declared_total=int(TRUTH.sum())), "replace", 2 / 0.5),
        (ks.nonneg_lasso("2", share="0.5", adjust="shift"), "add-remove", 2 / 0.5),
    ],
    ids=["noisy", "noisy replace", "public", "neg l2 public", "lasso"],
)
def test_cells_have_the_noise_of_their_share(recipe, change, scale):
    """Where every cell is far above the threshold, cells keep their noise up to one common shift (and rounding)."""
    counts = ks.Counts.from_dense(TRUTH, POPULOUS, Unit("p", change, 1))
    error = np.concatenate(
        [
            (x := ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(seed)).to_dense() - TRUTH)
            - x.mean()
            for seed in range(4)
        ]
    )
    ratio = error.var() / (variance(scale) + 0.25)
    assert 0.9 < ratio < 1.1  # share or doubling forgotten: a factor 1.56 to 4


@pytest.mark.parametrize(("share", "change", "max_cells"), [("0.5", "add-remove", 1), ("0.05", "replace", 3)])
def test_the_total_has_the_noise_of_its_share(share, change, max_cells):
    counts = ks.Counts.from_dense([900, 50, 800], Domain.of(Ordered("x", 3)), Unit("p", change, max_cells))
    scale = max_cells / (float(share) * 2)
    recipe = ks.simplex(share=share)
    noise = np.array(
        [ks.release(counts, recipe, epsilon="2", ledger=None, source=ks.seeded(i)).total() - 1750 for i in range(500)]
    )
    rng = np.random.default_rng(0)
    low, high = laplace_cdf(noise - 1, scale), laplace_cdf(noise, scale)
    assert uniform(low + rng.random(noise.size) * (high - low), bins=16) > ALPHA
    for wrong in (0.6, 1.7):
        low, high = laplace_cdf(noise - 1, scale * wrong), laplace_cdf(noise, scale * wrong)
        assert uniform(low + rng.random(noise.size) * (high - low), bins=16) < ALPHA


def test_gamma_is_chosen_from_noisy_numbers_alone():
    """Rebuilt from the noisy table and total only: the tuned release is that function of them, whatever the truth."""
    domain = Domain.of(Mesh("g", shape=(30, 30)))
    rng = np.random.default_rng(1)
    truth = np.where(rng.random((30, 30)) < 0.1, rng.integers(1, 300, (30, 30)), 0)
    counts = ks.Counts.from_dense(truth, domain, Unit("p", "add-remove", 1))
    for name, recipe in (("neg_l2_simplex", ks.neg_l2_simplex()), ("nonneg_lasso", ks.nonneg_lasso())):
        out = ks.release(counts, recipe, epsilon="0.2", ledger=None, source=ks.seeded(3))
        streams = Streams(ks.seeded(3).release_key(), name)
        scale, share = Fraction(1) / (Fraction(1, 5) * Fraction(19, 20)), Fraction(1, 5) / 20
        noisy = truth.ravel() + discrete_laplace(scale).draw(streams.open("noise"), 900)
        total = int(truth.sum() + discrete_laplace(1 / share).draw(streams.open("total"), 1)[0])
        tally = project.Tally.of(noisy)
        samples = [discrete_laplace(scale).draw(streams.open("bootstrap", i), 900) for i in range(16)]
        draws = [lambda sample=sample: sample.copy() for sample in samples]
        base = project.RULES["neg l2"].shape(tally, total, Fraction(1)).apply(noisy)
        rule = recipe.rule.name
        if rule != "neg l2":
            sharper = project.tune(base, draws, total, project.RULES["neg l2"], project.GAMMAS)
            base = project.RULES["neg l2"].shape(tally, total, sharper).apply(noisy)
        grid = project.GAMMAS if rule == "neg l2" else [Fraction(round(4 * scale * t), 4) for t in project.THRESHOLDS]
        chosen = project.tune(base, draws, total, project.RULES[rule], grid)
        cells, values = project.RULES[rule].shape(tally, total, chosen).apply(noisy)
        assert np.array_equal(out.cells, cells) and np.array_equal(out.values, values)


def sparse_release(seed, epsilon="0.5", threshold=8, change="add-remove"):
    """A masked line of 400,000 cells, 20,000 of them with small counts."""
    mask = np.zeros(400_000, dtype=bool)
    mask[1000:3000] = True
    domain = Domain.of(Ordered("x", 400_000), mask=mask)
    truth = np.zeros(400_000, dtype=np.int64)
    truth[5000:385_000:19] = 1 + np.arange(20_000) % 12
    counts = ks.Counts.from_dense(truth, domain, Unit("p", change, 1))
    out = ks.release(counts, ks.recipes.sparse(threshold), epsilon=epsilon, ledger=None, source=ks.seeded(seed))
    return truth, mask, out


@pytest.mark.parametrize(("change", "scale"), [("add-remove", 2.0), ("replace", 4.0)])
def test_thresholded_cells_have_the_law_of_geometric(change, scale):
    """True cells and empty ones: released iff count + noise >= threshold, by that value; the mask never."""
    least = 8
    truth, mask, out = sparse_release(1, change=change)
    released = np.zeros(truth.size, dtype=np.int64)
    released[out.cells] = out.values
    assert out.values.min() >= least and not released[mask].any()
    for count in (0, 1, 4, 8, 12):
        at = (truth == count) & ~mask
        tail = 1 - laplace_cdf(np.arange(least - count - 1, least - count + 12), scale)
        chances = np.concatenate(([1 - tail[0]], -np.diff(tail), [tail[-1]]))  # not released, least, least + 1, ...
        bins = np.where(released[at] == 0, 0, np.minimum(released[at] - least + 1, chances.size - 1))
        observed = np.bincount(bins, minlength=chances.size)
        assert chi_square(observed, chances * at.sum()) > ALPHA, count
        if count == 0:
            wrong = chances.copy()
            wrong[1:] *= 1.25
            wrong[0] = 1 - wrong[1:].sum()
            assert chi_square(observed, wrong * at.sum()) < ALPHA


def test_passing_empty_cells_are_independent_of_one_another():
    passed, before = [], []
    for seed in range(3):
        truth, mask, out = sparse_release(seed + 10, threshold=4)
        hit = np.isin(np.arange(truth.size), out.cells)
        empty = np.flatnonzero((truth == 0) & ~mask)
        passed.append(hit[empty[1:]])
        before.append(hit[empty[:-1]])
    a, b = np.concatenate(before), np.concatenate(passed)
    table = np.array([[np.sum(a & b), np.sum(a & ~b)], [np.sum(~a & b), np.sum(~a & ~b)]], dtype=float)
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    assert chi_square(table.ravel(), expected.ravel()) > ALPHA
    table = np.array([[np.sum(a & a), 0.0], [0.0, np.sum(~a & ~a)]])  # the test has power
    assert chi_square(table.ravel(), expected.ravel()) < ALPHA


@pytest.mark.parametrize(("scale", "threshold", "most"), [(3, 2, 6), (2, 9, 10**6), (10, 90, 10**9)])
def test_runs_have_their_exact_law(scale, threshold, most):
    """The slow rule with a cut, one table, two digits: geometric runs of the chance to pass."""
    a = np.exp(-1 / scale)
    chance = a**threshold / (1 + a)
    sampler = runs_below(Fraction(scale), threshold, most)
    size = 4000 if sampler.one is None and sampler.digits is None else 60_000
    runs = np.abs(sampler.draw(Streams(ks.seeded(5).release_key(), "t").open("gap"), size))
    assert runs.max() <= most

    def pit(p):
        """1 - (1-p)^run, spread over the step; the cut takes the rest."""
        rng = np.random.default_rng(7)
        low = -np.expm1(runs * np.log1p(-p))
        high = np.where(runs == most, 1.0, -np.expm1((runs + 1) * np.log1p(-p)))
        return low + rng.random(size) * (high - low)

    assert uniform(pit(chance), bins=16) > ALPHA
    for wrong in (0.8, 1.25):
        assert uniform(pit(chance * wrong), bins=16) < ALPHA


def nodes(groups, size, possible):
    """Indicators over the possible cells of the groups of each level (by number), those that hold none left out."""
    rows = [np.asarray(level) == group for level in groups for group in range(max(level) + 1)]
    rows = np.array(rows, dtype=float).reshape(-1, size)[:, possible]
    return rows[rows.any(axis=1)]


SQUARE = np.arange(16)
HIERARCHIES = {
    "1d": (Domain.of(Ordered("x", 8)), [np.arange(8) >> shift for shift in (3, 2, 1, 0)]),
    "morton": (Domain.of(Mesh("g", shape=(4, 4)), mask=mask((4, 4), [(0, 0), (0, 1), (1, 0), (1, 1), (3, 2)])),
               [SQUARE * 0, SQUARE // 8 * 2 + SQUARE % 4 // 2, SQUARE]),
    "hierarchy": (Domain.of(Nominal("w", tuple("abcdef"), Tree((("ab", ("a", "b")), ("rest", ("c", "d", "e", "f"))))),
                            mask=mask(6, [1, 4])),
                  [[0] * 6, [0, 0, 1, 1, 1, 1], range(6)]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("order", "change", "factor"),
    [("1d", "add-remove", 1), ("1d", "replace", 2), ("morton", "add-remove", 1), ("hierarchy", "replace", 2)],
)
def test_hierarchy_is_least_squares_of_its_levels(order, change, factor):
    """The variance of the total, of single cells and of a half, against the closed form of least squares."""
    domain, groups = HIERARCHIES[order]
    possible = domain.possible_dense().ravel()
    rows = nodes(groups, domain.size, possible)
    covariance = variance(len(groups) * factor / 2.0) * np.linalg.inv(rows.T @ rows)
    truth = np.where(possible, 500, 0).reshape(domain.shape)
    counts = ks.Counts.from_dense(truth, domain, Unit("p", change, 1))
    recipe = ks.recipes.hierarchy(order)
    out = np.array(
        [
            ks.release(counts, recipe, epsilon="2", ledger=None, source=ks.seeded(i)).to_dense().ravel()[possible]
            for i in range(1200)
        ]
    )
    n = rows.shape[1]
    for weights in (np.ones(n), np.eye(n)[0], np.eye(n)[3], (np.arange(n) < n // 2).astype(float)):
        ratio = (out @ weights).var() / (weights @ covariance @ weights)
        assert 0.75 < ratio < 1.3
        assert abs((out @ weights).mean() - 500 * weights.sum()) < 5 * np.sqrt(weights @ covariance @ weights / 1200)


@pytest.mark.parametrize("change", ["add-remove", "replace"])
def test_measured_rows_have_the_noise_of_the_dearest_column(change):
    """An invertible strategy gives its noisy rows back: columns of unlike norms, the dearest not the first."""
    rows = np.array([[1, 0, 0], [0, 4, -4], [0, 0, 6]])
    counts = ks.Counts.from_dense([300, 200, 100], Domain.of(Ordered("x", 3)), Unit("p", change, 1))
    cost = {"add-remove": 10, "replace": 14}[change]
    noise = np.array(
        [
            rows @ ks.release(counts, ks.recipes.matrix(rows), epsilon="2", ledger=None, source=ks.seeded(i)).to_dense()
            for i in range(1500)
        ]
    ) - rows @ [300, 200, 100]
    assert np.allclose(noise, np.rint(noise), atol=1e-6)
    whole = np.rint(noise).astype(int).ravel()
    rng = np.random.default_rng(2)
    for factor, right in ((1, True), (0.8, False), (1.25, False)):
        scale = cost / 2 * factor
        low, high = laplace_cdf(whole - 1, scale), laplace_cdf(whole, scale)
        assert (uniform(low + rng.random(whole.size) * (high - low), bins=16) > ALPHA) == right


@pytest.mark.parametrize(("change", "cost"), [("add-remove", 8), ("replace", 8)])
def test_measured_coefficients_have_the_noise_of_their_number(change, cost):
    """All coefficients of a table of 2 x 2 x 2 full cells: the fit meets the noisy ones but for rounding, which is
    small beside a scale of 80. Two Walsh columns differ by 2 in half of the rows: replace costs the same here."""
    domain = Domain.of(Ordered("x", 2), Ordered("y", 2), Ordered("z", 2))
    counts = ks.Counts.from_dense(np.full((2, 2, 2), 20_000), domain, Unit("p", change, 1))
    rows = np.array([[1 - 2 * ((i & j).bit_count() & 1) for j in range(8)] for i in range(8)])
    recipe = ks.recipes.fourier(3)
    noise = np.concatenate(
        [
            rows
            @ (ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(i)).to_dense() - 20_000).ravel()
            for i in range(500)
        ]
    )
    rng = np.random.default_rng(3)
    for factor, right in ((1, True), (0.8, False), (1.25, False)):
        low, high = (laplace_cdf(noise - at, cost / 0.1 * factor) for at in (1, 0))
        assert (uniform(low + rng.random(noise.size) * (high - low), bins=16) > ALPHA) == right


def test_fourier_measures_what_it_says():
    """Little noise: every table over `ways` dimensions comes back; much noise: still whole and non-negative."""
    domain = Domain.of(Ordered("x", 4), Ordered("y", 3), Ordered("z", 2))
    truth = np.random.default_rng(0).poisson(30, domain.shape)
    counts = ks.Counts.from_dense(truth, domain, Unit("p", "add-remove", 1))
    out = ks.release(counts, ks.recipes.fourier(2), epsilon="100000 weak", ledger=None, source=ks.seeded(1)).to_dense()
    for axis in range(3):
        assert np.abs(out.sum(axis=axis) - truth.sum(axis=axis)).max() <= 2  # rounding of up to 4 cells
    assert len(strategy.fourier(domain, 2).rows) == 4 * 4 * 2 - 3 * 3 * 1
    noisy = ks.release(counts, ks.recipes.fourier(2), epsilon="0.1", ledger=None, source=ks.seeded(1))
    assert noisy.values.min() > 0
