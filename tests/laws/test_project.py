"""Projections by tallies against their slow twins in exact rationals, and what always holds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import project as twin

from kasuri._kernels.simplex import at_least, michelot
from kasuri.refine import project

VALUES = st.lists(st.integers(-30, 60), min_size=1, max_size=12)
GAMMA = st.sampled_from([Fraction(1), Fraction(19, 20), Fraction(3, 5), Fraction(1, 10)])


def dense(y, total, rule, parameter):
    noisy = np.array(y, dtype=np.int64)
    at, values = project.RULES[rule].shape(project.Tally.of(noisy), total, parameter).apply(noisy)
    assert (values != 0).all() and (np.diff(at) > 0).all()
    out = np.zeros(noisy.size, dtype=np.int64)
    out[at] = values
    return out.tolist()


@given(y=VALUES, total=st.integers(1, 80), gamma=GAMMA)
def test_tally_equals_the_sorted_projection(y, total, gamma):
    exact = twin.negative_l2([Fraction(value) for value in y], Fraction(total), gamma)
    found = dense(y, total, "neg l2", gamma)
    assert found == twin.whole(y, exact, total)
    assert sum(found) == total and min(found) >= 0


@given(y=VALUES, total=st.integers(1, 80), gamma=GAMMA)
def test_the_integers_are_the_nearest_of_that_total(y, total, gamma):
    """No unit moved from one cell to another comes nearer to the projection."""
    exact = twin.negative_l2([Fraction(value) for value in y], Fraction(total), gamma)
    found = dense(y, total, "neg l2", gamma)
    gap = [x - e for x, e in zip(found, exact, strict=True)]
    assert max(g for g, x in zip(gap, found, strict=True) if x > 0) - min(gap) <= 1


@pytest.mark.parametrize("gamma", [Fraction(9, 10), Fraction(3, 5)])
def test_the_iteration_of_the_paper_has_the_same_limit(gamma):
    """Eq. 12-13 repeated end where eq. 14 goes in one step, with gamma = 1 - lambda (not 1 - n lambda)."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        y = rng.integers(-10, 40, 12).tolist()
        direct = twin.negative_l2([Fraction(value) for value in y], Fraction(60), gamma)
        assert np.allclose(twin.iterate(y, 60, gamma, 120), [float(x) for x in direct], atol=1e-5)


@given(y=VALUES, total=st.integers(1, 80), t=st.sampled_from([Fraction(1, 2), Fraction(3), Fraction(17, 4)]))
def test_lassos_equal_their_twins(y, total, t):
    for signed in (False, True):
        for adjust in ("scale", "shift"):
            exact = twin.lasso(y, Fraction(total), t, signed, adjust)
            if exact is None:
                exact = twin.simplex([Fraction(value) for value in y], Fraction(total))
            name = f"{'lasso' if signed else 'nonneg lasso'} {adjust}"
            live = [i for i, s in enumerate(twin.soft(y, t, signed)) if s != 0] if any(exact) else []
            found = dense(y, total, name, t)
            assert sum(found) == total
            if live and all(exact[i] != 0 or i not in live for i in range(len(y))):
                keep = [i for i in range(len(y)) if exact[i] != 0]
                rounded = twin.whole([y[i] for i in keep], [exact[i] for i in keep], total)
                assert [found[i] for i in keep] == rounded


@given(y=st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1, max_size=5), total=st.integers(1, 1 << 62), gamma=GAMMA)
def test_beyond_64_bits_the_same(y, total, gamma):
    exact = twin.negative_l2([Fraction(value) for value in y], Fraction(total), gamma)
    assert dense(y, total, "neg l2", gamma) == twin.whole(y, exact, total)


@pytest.mark.parametrize(
    ("y", "total", "rule", "parameter"),
    [
        ([0, 0, 0], 5, "neg l2", Fraction(1, 10**27)),
        ([0, -3, 0], 5, "neg l2", Fraction(10**26 + 1, 10**27)),
        ([9, 2, 0], 5, "neg l2", Fraction(1, 10**27)),
        ([1 << 60, 3, -(1 << 60)], 1 << 40, "lasso scale", Fraction(1)),  # soft mass 2, scaled by 2^39
        ([10**6, 1 - 10**6], 1 << 62, "lasso scale", Fraction(1, 10**30)),
        ([10**6, 10**6], 1, "nonneg lasso scale", Fraction(1, 10**30)),
        ([1 << 60] * 9, 1, "nonneg lasso scale", Fraction(1)),
        ([5, 2], 9, "nonneg lasso scale", Fraction(10**30)),
        ([5, -2], 9, "lasso shift", Fraction(10**30)),
        ([5, -2], 9, "lasso shift", Fraction(1, 10**30)),
    ],
)
def test_odd_parameters_do_not_leave_64_bits(y, total, rule, parameter):
    out = dense(y, total, rule, parameter)
    assert sum(out) == total
    if rule == "neg l2":
        assert out == twin.whole(y, twin.negative_l2([Fraction(v) for v in y], Fraction(total), parameter), total)


def test_tuning_survives_counts_whose_squares_leave_64_bits():
    base = np.array([0, 3]), np.array([1 << 61, 1 << 60])
    noise = np.array([3, -8, 12, 5, -1])
    assert project.tune(base, [noise.copy], 3 << 60, project.RULES["neg l2"], project.GAMMAS) == 1


def test_no_total_no_table():
    for rule in ("neg l2", "nonneg lasso scale", "nonneg lasso shift", "lasso scale", "lasso shift"):
        assert dense([3, -2, 5], 0, rule, Fraction(1)) == [0, 0, 0]


@given(
    y=st.lists(st.floats(-50, 50, allow_nan=False, width=32), min_size=1, max_size=30),
    total=st.floats(0.5, 90, width=32),
)
def test_michelot_is_the_sorted_threshold(y, total):
    tau = michelot(np.array(y, dtype=np.float64), total)
    assert np.isclose(np.maximum(np.array(y) - tau, 0).sum(), total, rtol=1e-9)
    assert np.isclose(tau, float(twin.threshold([Fraction(v) for v in y], Fraction(total))), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", ["neg l2", "nonneg lasso scale", "lasso shift"])
def test_the_tallied_loss_is_the_loss_of_the_shaped_table(rule):
    """`tune` ranks candidates by the squared error of the very integers that would come out."""
    rng = np.random.default_rng(8)
    truth = np.where(rng.random(3000) < 0.1, rng.integers(1, 200, 3000), 0)
    noise = rng.integers(-9, 10, 3000)
    candidates = [Fraction(1), Fraction(9, 10), Fraction(1, 2)] if rule == "neg l2" else [Fraction(0), Fraction(4)]
    total = int(truth.sum())
    losses = []
    for candidate in candidates:
        out = np.array(dense((truth + noise).tolist(), total, rule, candidate))
        losses.append(((out - truth) ** 2).sum())
    base = np.flatnonzero(truth), truth[truth > 0]
    best = project.tune(base, [lambda: noise.copy()], total, project.RULES[rule], candidates)
    chosen = losses[candidates.index(best)]
    assert chosen <= 1.02 * min(losses)  # only the place of a last +1 is averaged over
    tally = project.Tally.of(truth + noise)
    shaped = project.RULES[rule].shape(tally, total, candidates[-1])
    empty = project.Tally.of((truth + noise)[truth == 0])
    told = shaped.squared(empty) + shaped.distance((truth + noise)[truth > 0], truth[truth > 0])
    assert np.isclose(told, losses[-1], rtol=0.02)


@pytest.mark.parametrize("gamma", [Fraction(1), Fraction(19, 20), Fraction(1, 2)])
def test_one_pass_finds_what_several_find(gamma):
    """To the number: the kernel of writable tables and NumPy on read-only ones; and the total is kept."""
    rng = np.random.default_rng(6)
    noisy = rng.integers(-60, 60, 30_000) + np.where(rng.random(30_000) < 0.02, 500, 0)
    shaped = project.RULES["neg l2"].shape(project.Tally.of(noisy), 12_345, gamma)
    fixed = noisy.copy()
    fixed.flags.writeable = False
    one, other = shaped.apply(noisy), shaped.apply(fixed)
    assert shaped.tally.dense and all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    assert one[1].sum() == 12_345 and one[1].min() > 0
    for room in (0, 10, 40_000):
        at, values = at_least(noisy, 40, room)
        assert np.array_equal(at, np.flatnonzero(noisy >= 40)) and np.array_equal(values, noisy[at])
    with pytest.raises(IndexError):
        shaped.apply(noisy + 1)
