"""Estimators: kernels equal slow twins, certificates hold, priors are what they say, blocks add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.local import em_pass

import kasuri as ks
from kasuri.local.bits import column_sums
from kasuri.local.categorical import MAKERS
from kasuri.local.estimators import expectation, from_columns, project


@given(st.integers(1, 70), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_column_sums_are_the_sums_of_the_columns(size, n, seed):
    rows = np.random.default_rng(seed).integers(0, 256, (n, -(-size // 8)), dtype=np.uint8)
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, :size]
    assert column_sums(rows, size).tolist() == bits.sum(axis=0).tolist()


def test_column_sums_of_many_rows():
    rows = np.random.default_rng(0).integers(0, 256, (70_003, 3), dtype=np.uint8)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    assert column_sums(rows, 24).tolist() == bits.sum(axis=0).tolist()


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_one_pass_is_one_em_step_of_the_paper(kind):
    randomizer = MAKERS[kind](ks.Nominal("p", labels=tuple("abcdefghi")), epsilon="2")
    rng = np.random.default_rng(5)
    rows = randomizer.randomize(rng.integers(0, 10, 300), source=ks.seeded(1)).rows
    theta = rng.dirichlet(np.ones(10))
    gradient, _ = expectation(randomizer, rows)(theta)
    bits = np.unpackbits(randomizer.supports(rows), axis=1, bitorder="little")[:, :10]
    slow = em_pass(bits.tolist(), theta.tolist(), float(randomizer.law.ratio))
    assert theta * gradient / 300 == pytest.approx(np.array(slow), rel=1e-9)


@pytest.mark.parametrize("kind", ["unary", "olh"])
def test_the_gap_is_a_certificate(kind):
    """A thousand plain EM steps from the estimate never gain more than the gap it states."""
    randomizer = MAKERS[kind](ks.Nominal("p", labels=tuple("abcdefg")), epsilon="1")
    truth = np.array([900, 400, 100, 50, 20, 0, 0, 0])
    reports = randomizer.randomize(np.repeat(np.arange(8), truth), source=ks.seeded(2))
    run = expectation(randomizer, reports.rows)
    found = ks.local.estimate(reports, randomizer, tolerance=0.5)
    theta = 0.99 * found.counts / 1470 + 0.01 / 8
    start = run(found.counts / 1470)[1]
    for _ in range(1000):
        theta = theta * run(theta)[0] / 1470
    assert run(theta)[1] - start <= found.gap + 1e-9
    best = ks.local.estimate(reports, randomizer, tolerance=1e-9)
    assert best.converged and run(best.counts / 1470)[1] >= run(theta)[1] - 1e-9


def test_not_converging_is_reported():
    randomizer = ks.local.unary(ks.Nominal("p", labels=tuple("abc")), epsilon="1")
    reports = randomizer.randomize(np.zeros(500, np.int64), source=ks.seeded(1))
    cut = ks.local.estimate(reports, randomizer, tolerance=1e-12, max_passes=2)
    assert not cut.converged and "NOT converged" in repr(cut)


def test_whole_reports_beat_column_sums_at_epsilon_5():
    randomizer = ks.local.unary(ks.Nominal("w", labels=tuple(f"w{i}" for i in range(23))), epsilon="5", elsewhere=False)
    truth = np.round(4640 * (0.8 ** np.arange(23)) / (0.8 ** np.arange(23)).sum()).astype(int)
    errors = {"em": [], "em_columns": []}
    for seed in range(40):
        reports = randomizer.randomize(np.repeat(np.arange(23), truth), source=ks.seeded(seed))
        for method, found in errors.items():
            found.append(np.abs(ks.local.estimate(reports, randomizer, method=method).counts - truth).sum())
    assert np.mean(errors["em"]) < 0.92 * np.mean(errors["em_columns"])


@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_em_intervals_cover(epsilon):
    """95 % intervals of 150 collections cover the people really there in 92 to 99 % of the large categories."""
    randomizer = ks.local.unary(ks.Nominal("p", labels=tuple("abcd")), epsilon=epsilon)
    truth = np.array([1500, 1000, 800, 700, 500])
    hits = []
    for seed in range(150):
        reports = randomizer.randomize(np.repeat(np.arange(5), truth), source=ks.seeded(seed))
        low, high = ks.local.estimate(reports, randomizer, method="em").interval(0.95)
        hits.append((low <= truth) & (truth <= high))
    assert 0.92 < np.mean(hits) < 0.99


def test_dirichlet_pulls_to_its_shape_and_neighbours_smooth():
    mesh = ks.Mesh("grid", shape=(8, 8))
    randomizer = ks.local.oue(mesh, epsilon="1", elsewhere=False)
    row, col = np.divmod(np.arange(64), 8)
    truth = np.round(200 * np.exp(-((row - 4) ** 2 + (col - 3) ** 2) / 6)).astype(int)
    reports = randomizer.randomize(np.repeat(np.arange(64), truth), source=ks.seeded(4))
    error = {}
    for name, prior in {
        "none": None,
        "shape": ks.local.Dirichlet(1e6, tuple(truth + 1.0)),
        "weak": ks.local.Dirichlet(64.0),
        "smooth": ks.local.Neighbours(30.0),
    }.items():
        found = ks.local.estimate(reports, randomizer, prior=prior)
        assert found.converged
        error[name] = np.sqrt(((found.counts - truth) ** 2).mean())
    assert error["shape"] < 2
    assert error["smooth"] < 0.7 * error["none"]
    assert error["weak"] < error["none"]
    with pytest.raises(ks.DomainError):
        ks.local.estimate(reports, randomizer, prior=ks.local.Dirichlet(1.0, (1.0,)))
    with pytest.raises(ks.DomainError):
        ks.local.estimate(reports, randomizer, method="inversion", prior=ks.local.Neighbours(1.0))


def test_projection_is_the_nearest_whole_numbers():
    found = project(np.array([5.2, -1.0, 3.9, 0.1]), 8)
    assert found.tolist() == [5, 0, 3, 0]  # threshold 0.55: 4.65, 0, 3.35, 0; the last unit to the largest remainder


def test_columns_are_enough_for_inversion_and_refused_for_em():
    randomizer = ks.local.oue(ks.Nominal("p", labels=tuple("abc")), epsilon="1")
    reports = randomizer.randomize(np.zeros(500, np.int64), source=ks.seeded(1))
    sums = randomizer.agreeing(reports.rows)
    for method in ("inversion", "projection", "em_columns"):
        whole = ks.local.estimate(reports, randomizer, method=method)
        assert (whole.counts == from_columns(sums, 500, randomizer, method=method).counts).all()
    with pytest.raises(ks.DomainError):
        from_columns(sums, 500, randomizer, method="em")
    with pytest.raises(ks.DomainError):
        from_columns(sums, 5, randomizer)


@pytest.mark.parametrize(("shape", "elsewhere"), [((8, 8), False), ((5, 11), True), ((1, 3), True)])
def test_refined_map_adds_up(shape, elsewhere):
    randomizer = ks.local.oue(ks.Mesh("grid", shape=shape), epsilon="1", elsewhere=elsewhere)
    rng = np.random.default_rng(1)
    reports = randomizer.randomize(rng.integers(0, randomizer.size, 3000), source=ks.seeded(4))
    found = ks.local.estimate(reports, randomizer, method="inversion")
    refined = found.refined()
    assert refined.shape == shape and refined.min() >= 0 and refined.dtype == np.int64
    if elsewhere:
        assert 0 < refined.sum() < 3000
    else:
        assert refined.sum() == 3000


def test_refined_blocks_keep_the_accuracy_of_their_sums():
    """A corner block of a half-empty map: projecting all cells at once pushes mass into the empty half."""
    randomizer = ks.local.oue(ks.Mesh("grid", shape=(16, 16)), epsilon="2", elsewhere=False)
    truth = np.zeros((16, 16), int)
    truth[:8, :8] = 60
    values = np.repeat(np.arange(256), truth.ravel())
    tree, plain = [], []
    for seed in range(20):
        reports = randomizer.randomize(values, source=ks.seeded(seed))
        tree.append(ks.local.estimate(reports, randomizer, method="inversion").refined()[:8, :8].sum() - 3840)
        flat = ks.local.estimate(reports, randomizer, method="projection").counts.reshape(16, 16)
        plain.append(flat[:8, :8].sum() - 3840)
    assert np.sqrt(np.mean(np.square(tree))) < np.sqrt(np.mean(np.square(plain)))
