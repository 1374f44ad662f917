"""Local events: what is said of a window is exact, and windows stay free until they agree again."""

import numpy as np
import pytest
from test_filter import joint, measured, tree

from kasuri.refine import events, learn
from kasuri.refine import filter as filters
from kasuri.refine.filter import Shape, When
from kasuri.refine.grids import box_sums, places

FANS = (4, 4, 4)
GRIDS = (None, (2, 2), (4, 4), (8, 8))
R = (9.0, 16.0, 25.0, 12.0)
NONE = np.zeros((0, 5), dtype=np.int64)


def model(seed):
    rng = np.random.default_rng(seed)
    sizes, firsts = tree(FANS)
    ms = [np.array([100.0])] + [rng.uniform(1, 30, n) for n in sizes[1:]]
    Vs = [np.array([1.0])] + [rng.uniform(0.5, 60, n) for n in sizes[1:]]
    ys = [rng.normal(30, 20, n) for n in sizes]
    levels = measured(sizes, firsts, ys)
    splits = []
    for at in range(1, len(sizes)):
        owner = np.repeat(np.arange(sizes[at - 1]), 4)
        splits.append(learn.split(ys[at], ms[at], levels[at - 1], owner, np.full(sizes[at], 4), R[at], R[at - 1]))
    return Shape(R, (1, 4, 4, 4), GRIDS, True, 2), levels, ms, Vs, splits


def spread(splits, at, inside):
    """One more in every node of a window of a level, at every node: sums above, shares in proportion below."""
    out = {at: inside.astype(float)}
    for level in range(at, 0, -1):
        out[level - 1] = np.bincount(splits[level - 1].owner, out[level])
    for level in range(at + 1, len(R)):
        out[level] = splits[level - 1].h * out[level - 1][splits[level - 1].owner]
    return np.concatenate([out[level] for level in range(len(R))])


def where(window, grid):
    row, col, high, wide = window
    at = places(np.arange(grid[0] * grid[1]), grid)
    rows, cols = at // grid[1], at % grid[1]
    return (rows >= row) & (rows < row + high) & (cols >= col) & (cols < col + wide)


@pytest.mark.parametrize(("at", "one", "two"), [(3, (1, 2, 3, 2), (2, 3, 4, 3)), (2, (0, 1, 2, 2), (1, 1, 3, 2))])
def test_what_is_said_of_a_window_is_generalised_least_squares(at, one, two):
    """Against one joint Gaussian: how sure an event is by itself, beside another, and how large both are; also where
    the grid is above the leaves."""
    shape, levels, ms, Vs, splits = model(at)
    search = events._Search(shape, levels, ms, Vs, splits, at)
    search.wild = 1.0
    ys = [level.y for level in levels]
    prior, covs, noise, _ = joint(FANS, ms, Vs, R, ys)
    S = np.linalg.inv(covs + np.diag(noise))
    off = np.concatenate(ys) - prior
    a, b = (spread(splits, at, where(window, GRIDS[at])) for window in (one, two))
    assert search.sure(one) == pytest.approx(a @ S @ off / np.sqrt(a @ S @ a), rel=1e-4, abs=1e-4)
    search.take(one)
    free = b @ S @ b - (a @ S @ b) ** 2 / (a @ S @ a)
    score = b @ S @ off - (a @ S @ b) / (a @ S @ a) * (a @ S @ off)
    assert search.sure(two) == pytest.approx(score / np.sqrt(free), rel=1e-4, abs=1e-4)
    search.take(two)
    X = np.stack((a, b))
    size = np.linalg.solve(X @ S @ X.T, X @ S @ off)
    np.testing.assert_allclose(search.b, size, rtol=1e-4)
    found = search.events([], splits, [y.size for y in ys])
    np.testing.assert_allclose(np.concatenate(found.total), size @ X, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found.cover[at], where(one, GRIDS[at]) | where(two, GRIDS[at]))
    np.testing.assert_allclose(found.cover[at - 1], found.cover[at].reshape(-1, 4).mean(axis=1))


def test_with_its_events_the_filter_is_the_posterior_with_a_flat_prior_on_them():
    shape, levels, ms, Vs, splits = model(8)
    search = events._Search(shape, levels, ms, Vs, splits, 3)
    window = (1, 2, 3, 2)
    search.take(window)
    found = search.events([], splits, [level.y.size for level in levels])
    rest = [filters.replace(one, y=one.y - more) for one, more in zip(levels, found.total, strict=True)]
    x, f = filters.sweeps(rest, ms, Vs, R)
    x, f, _ = found.added(x, f, [np.zeros(one.size) for one in x], R)
    prior, covs, noise, index = joint(FANS, ms, Vs, R, [level.y for level in levels])
    s = spread(splits, 3, where(window, GRIDS[3]))
    covs = covs + 1e6 * np.outer(s, s)
    gain = covs @ np.linalg.inv(covs + np.diag(noise))
    wanted = prior + gain @ (np.concatenate([level.y for level in levels]) - prior)
    spreads = np.diag(covs - gain @ covs)
    for at in range(1, 4):
        np.testing.assert_allclose(x[at], wanted[index[at]], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(f[at], spreads[index[at]], rtol=2e-3)


def test_where_nothing_is_known_beforehand_there_is_no_event():
    """The filter follows every number: what is left of them is rounding, and says nothing of a window."""
    shape, levels, ms, Vs, splits = model(9)
    window = (1, 2, 3, 2)
    assert events._Search(shape, levels, ms, Vs, splits, 3).shape(window).own > 0.01
    search = events._Search(shape, levels, ms, [V * 1e9 for V in Vs], splits, 3)
    assert search.shape(window).own == 0.0 and search.sure(window) == 0.0
    assert events.find(shape, levels, ms, [V * 1e9 for V in Vs], splits, NONE) is None


def test_sums_over_boxes():
    values = np.random.default_rng(1).normal(size=64)
    place = places(np.arange(64), (8, 8))
    dense = np.zeros((8, 8))
    dense.ravel()[place] = values
    sums = box_sums(values, place, (8, 8), (2, 3, 9))
    assert len(sums) == 2
    np.testing.assert_allclose(sums[1][4, 2], dense[4:7, 2:5].sum())


def series(gained, version=3, last=46):
    """Windows of a made series of 32 x 32 cells after every slot; 5 x 7 cells gain people in some."""
    place = places(np.arange(1024), (32, 32))
    inside = (place // 32 >= 9) & (place // 32 < 14) & (place % 32 >= 17) & (place % 32 < 24)
    sizes, firsts = tree((64, 16))
    noise = (900.0, 900.0, 400.0)
    shape = Shape(noise, (1, 64, 16), (None, (8, 8), (32, 32)), True, 2, version)
    rng, state, out = np.random.default_rng(5), filters.begin(shape), []
    mean = rng.gamma(4, 10, 1024)
    for t in range(last):
        cells = rng.poisson(mean + inside * gained.get(t, 0))
        truth = [cells.sum(keepdims=True), cells.reshape(64, 16).sum(1), cells]
        ys = [np.rint(x + rng.normal(0, r**0.5, x.size)) for x, r in zip(truth, noise, strict=True)]
        found, state = filters.step(shape, state, measured(sizes, firsts, ys), When(t % 2, t % 2, 0))
        out.append((state.windows, found[2].flag[inside].mean(), found[2].flag[~inside].mean()))
    return out


def test_the_window_of_an_event_is_found_stays_and_goes():
    found = series(dict.fromkeys(range(34, 40), 40))
    assert sum(len(windows) for windows, _, _ in found[4:34]) < 200  # by chance: about four, most of them resting
    windows, inside, outside = found[34]
    assert inside > 0.8 and outside < 0.1
    assert any(abs(row - 9) <= 1 and abs(col - 17) <= 1 and abs(high - 5) <= 1 and abs(wide - 7) <= 1
               for row, col, high, wide, _ in windows)  # fmt: skip
    assert any((windows[:, 4] == 0).any() for windows, _, _ in found[40:42])  # it leaves: an event, too
    assert all(rest <= 2 for windows, _, _ in found for rest in windows[:, 4])


def test_earlier_versions_know_no_windows():
    assert not any(windows.size for windows, _, _ in series(dict.fromkeys(range(34, 40), 40), 2))
