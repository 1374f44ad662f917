"""Empirical Bayes on the visited tree: every part against a slow twin, and what the whole must always do."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import bayes as slow
from reference import visit as slow_visit

import kasuri as ks
from kasuri._kernels.bayes import RADIUS, mixture_weights, normal_laplace, public_likelihoods
from kasuri._kernels.visit import project
from kasuri.noise.rng import Streams, seeded
from kasuri.recipes import shares
from kasuri.recipes.bayestree import ChosenTreeRun, OfPrior, Preset
from kasuri.recipes.choose import Chooser
from kasuri.recipes.spending import Given
from kasuri.recipes.visit import Visit
from kasuri.refine import bayes, mixture
from kasuri.refine.least_squares import least_squares
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.trees import order
from kasuri.trees.visited import Level, Visited

MASK = np.zeros((45, 70), dtype=bool)
MASK[:20, :30] = True
DOMAINS = [
    Domain.of(Mesh("g", shape=(64, 64))),
    Domain.of(Mesh("g", shape=(45, 70)), mask=MASK),
    Domain.of(Mesh("g", shape=(16, 12)), Ordered("age", 5), Nominal("sex", ("f", "m"))),
    Domain.of(Nominal("w", tuple("abcdefg"), Tree.of({"p": ["a", "b", "c"], "q": ["d", "e"], "r": ["f", "g"]}))),
    Domain.of(Ordered("x", 1)),
]
PERSON = ks.Unit("p", "add-remove", 1)


def counts_on(domain, seed=0, mean=6.0):
    rng = np.random.default_rng(seed)
    truth = rng.poisson(mean * rng.pareto(1.1, domain.shape).clip(0, 200))
    truth[~domain.possible_dense()] = 0
    return ks.Counts.from_dense(truth, domain, PERSON)


@given(s=st.floats(-400, 400), w=st.floats(0.05, 1e4), y=st.floats(-400, 400), scale=st.floats(0.5, 200))
@settings(max_examples=40)
def test_normal_times_laplace_is_the_integral(s, w, y, scale):
    z, v = np.empty(1), np.empty(1)
    normal_laplace(np.array([s]), np.array([w]), np.array([y]), scale, z, v)
    mean, variance, _ = slow.normal_laplace(s, w, y, scale)
    assert abs(z[0] - mean) < 1e-3 * math.sqrt(variance) + 1e-3
    assert abs(v[0] - variance) < 5e-3 * variance


def test_mixture_tables_are_the_integrals():
    likelihood, first, second = mixture.mixture()
    for k, (mean, shape) in enumerate((mean, shape) for mean in mixture.MEANS for shape in mixture.SHAPES):
        for j in (0, 3, 40, 64):
            wanted = slow.gamma_moments(j / 8, mean, shape)
            found = likelihood[j, k + 1], first[j, k + 1], second[j, k + 1]
            assert np.allclose(found, wanted, rtol=2e-4), (mean, shape, j)
    assert np.allclose(likelihood[:-1, 0], np.exp(-np.arange(65) / 8) / 2)


def test_mixture_tables_of_normal_noise_are_the_integrals():
    likelihood, first, second = mixture.mixture(True)
    below = mixture.BELOW
    assert likelihood.shape[0] == (below + 8) * 8 + 2
    for k, (mean, shape) in enumerate((mean, shape) for mean in mixture.MEANS for shape in mixture.SHAPES):
        for j in (0, 20, 40, 96):
            wanted = slow.gamma_moments(j / 8 - below, mean, shape, slow.normal_noise)
            found = likelihood[j, k + 1], first[j, k + 1], second[j, k + 1]
            assert np.allclose(found, wanted, rtol=2e-4), (mean, shape, j)
    # every class of a histogram together: a probability
    each = likelihood[:-1].sum(axis=0) / 8 - likelihood[-2] / 16 + likelihood[-1]
    assert np.allclose(each, 1, atol=3e-3)


@given(p=st.floats(0.01, 60), w=st.floats(0.05, 400), u=st.floats(-9, 60))
@settings(max_examples=40)
def test_normal_times_normal_is_the_integral(p, w, u):
    """Of the parts that a public table gives: their likelihood, and that of nobody, up to one factor."""
    out, spreads = np.empty((1, 3)), np.array([math.sqrt(w) / p])
    public_likelihoods(np.array([u]), np.array([[p, 0.0]]), spreads, 80.0, True, out)
    x = np.linspace(p - 12 * math.sqrt(w), p + 12 * math.sqrt(w), 200_001)
    density = np.exp(-((x - p) ** 2) / (2 * w)) / math.sqrt(2 * math.pi * w) * slow.normal_noise(u - x)
    assert out[0, 1] == pytest.approx(density.sum() * (x[1] - x[0]) * math.sqrt(4 * math.pi), rel=1e-5, abs=1e-12)
    assert out[0, 0] == pytest.approx(math.exp(-u * u / 4))


def test_posteriors_under_normal_noise_are_those_of_normal_noise():
    """Against numbers of a known prior: the posterior mean is nearly the best function of the noisy number, better than
    with the likelihood of Laplace noise, and its stated variance is its error."""
    rng = np.random.default_rng(4)
    x = np.where(rng.random(200_000) < 0.6, 0.0, rng.gamma(1, 3, 200_000))
    u = x + math.sqrt(2) * rng.standard_normal(x.size)
    bins = np.zeros(x.size, dtype=np.int64)
    found = {normal: bayes.fitted(u, bins, 1, normal=normal) for normal in (True, False)}
    error = {normal: ((mean - x) ** 2).mean() for normal, (mean, _) in found.items()}
    grid = np.floor(u * 8).astype(np.int64)
    grid -= grid.min()
    best = np.bincount(grid, x) / np.maximum(np.bincount(grid), 1)  # the mean of x near each u, which knows the truth
    assert error[True] < 1.03 * ((best[grid] - x) ** 2).mean() and error[True] < 0.98 * error[False]
    assert found[True][1].mean() == pytest.approx(error[True], rel=0.05)


@pytest.mark.parametrize("limit", [1.7, 3.0, 30.0])
def test_noise_that_was_cut_off_has_these_moments(limit):
    rng = np.random.default_rng(8)
    for normal in (True, False):
        n = rng.normal(0, math.sqrt(2), 10**6) if normal else rng.laplace(0, 1, 10**6)
        n = n[n > -limit]
        mean, square = (float(part[0]) for part in mixture.cut_off(np.array([limit]), normal))
        assert mean == pytest.approx(n.mean(), abs=0.01) and square == pytest.approx((n**2).mean(), rel=0.01)
        assert [float(part[0]) for part in mixture.cut_off(np.array([np.inf]), normal)] == [0, 2]


def test_neighbours_are_averaged_without_the_cell_itself():
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (21, 27))
    drawn = rng.random(values.shape) < 0.7
    domain = Domain.of(Mesh("g", shape=values.shape))
    cells = rng.permutation(np.flatnonzero(drawn))  # in any order
    place = bayes.Neighbours.of(cells, domain)
    near, far = place.smooth(values.ravel()[cells])
    dense = np.where(drawn, values, 0.0)
    narrow, wide, widest = (slow.smooth(dense, sigma, RADIUS).ravel()[cells] for sigma in bayes.WINDOWS)
    assert np.allclose(near, 0.6 * narrow + 0.4 * wide) and np.allclose(far, widest)


def test_layers_of_other_axes_do_not_mix():
    domain = Domain.of(Ordered("age", 3), Mesh("g", shape=(8, 8)))
    cells = np.arange(domain.size)
    near, _ = bayes.Neighbours.of(cells, domain).smooth(np.where(cells < 64, 1.0, 0.0))
    assert (near[:64] > 0).all() and (near[64:] == 0).all()


def test_the_table_of_tiles_has_room_for_all():
    """Of very many cells one tile in 61 is looked at, and those may all be empty: a full table would have no end."""
    domain = Domain.of(Mesh("m", shape=(8, 488)), Ordered("age", 20_000))
    cells = (np.arange(8, 488, 8)[:, None] * 20_000 + np.arange(20_000)).ravel()
    found = bayes.Neighbours.of(cells, domain)
    assert found is not None and found.most >= np.unique(found.tile).size == cells.size


@given(seed=st.integers(0, 999), ridge=st.sampled_from([0.5, 30.0]))
@settings(max_examples=20)
def test_mixture_weights_are_em(seed, ridge):
    rng = np.random.default_rng(seed)
    hist, likelihood = rng.integers(0, 50, (1, 9)).astype(float), rng.random((9, 4))
    start = rng.dirichlet(np.ones(4))
    found = mixture_weights(hist, likelihood, start, ridge, 25)[0]
    assert np.allclose(found, slow.mixture_weights(hist[0], likelihood, start, ridge, 25))


@given(z=st.lists(st.floats(-30, 60), min_size=1, max_size=6), total=st.floats(0.01, 90), seed=st.integers(0, 999))
def test_projection_is_the_weighted_one(z, total, seed):
    v = np.random.default_rng(seed).uniform(0.5, 8, len(z))
    out = np.empty(len(z))
    project(np.array(z), v, np.array([0, len(z)]), np.array([total]), out)
    assert np.allclose(out, slow_visit.weighted_simplex(z, v, total), atol=1e-6)


@pytest.mark.parametrize(
    ("z", "v", "total"),
    [
        ([336599674696274.25, 0.07702506829365746, 0.05615897248444669], [1e-6, 0.005, 1e-4], 336599674696274.25),
        ([1e4], [3.0], 1e-13),
        ([12.3] * 4, [7.1] * 4, 1e-16),
        ([-1e18] * 3, [1e-4] * 3, 1.0),
        ([0.0, 1e18], [1e-4, 1e36], 5e-324),
    ],
)
def test_projection_ends_whatever_the_numbers_are(z, v, total):
    """Beyond the precision of floats a loop over active sets would turn for ever, or run out of active ones."""
    out = np.full(len(z), np.nan)
    project(np.array(z), np.array(v), np.array([0, len(z)]), np.array([total]), out)
    assert np.isfinite(out).all() and (out >= 0).all()
    assert abs(out.sum() - total) <= 1e-15 * len(z) * max(map(abs, z))


@pytest.mark.parametrize("which", range(len(DOMAINS)))
@pytest.mark.parametrize("mean", [0.0, 0.3, 30.0])
def test_estimates_are_whole_numbers_on_possible_cells(which, mean):
    """Non-negative integers, impossible cells stay 0, and the total is the estimate of the top level."""
    domain = DOMAINS[which]
    tree = order.hierarchy(domain) if which == 3 else order.morton(domain)
    counts = counts_on(domain, which, mean)
    keys = tree.keys(counts.cells)
    ranked = np.argsort(keys)
    cuts = tree.stages[1:] or (0,)
    cuts = cuts if len(cuts) < 4 else (*cuts[:-3], cuts[-1])
    visit = Visit(
        tree, cuts, tuple(Fraction(8) for _ in cuts), (0.0,) * max(len(cuts) - 2, 0) + (2.0,) * min(len(cuts), 2)
    )
    visited = visit.run(keys[ranked], counts.values[ranked], Streams(seeded(which).release_key(), "test"), 1)
    found, values = bayes.estimate(visited, tree, domain)
    assert (np.diff(found) > 0).all() and (values > 0).all() and values.dtype == np.int64
    assert tree.possible_leaves()[found].all()


ODD = {
    "zero": lambda rng, n: np.zeros(n),
    "huge": lambda rng, n: np.full(n, 1e18),
    "negative": lambda rng, n: np.full(n, -1e18),
    "both": lambda rng, n: rng.choice([-1e18, 1e18], n),
    "all sizes": lambda rng, n: rng.choice([-1, 1], n) * 10 ** rng.uniform(0, 18, n),
    "small": lambda rng, n: rng.integers(-3, 9, n),
}


def odd_visited(tree, cuts, scales, draw, keep, rng):
    """Levels no noise would give: `draw` says the numbers, `keep` the part of the nodes with children."""
    levels, parents, above, kept = [], np.zeros(1, dtype=np.int64), 0, np.zeros(0, dtype=np.int64)
    for cut in cuts:
        nodes, first = tree.children(parents, above, cut)
        y = draw(rng, nodes.size).astype(np.int64)
        if levels:
            counts = np.zeros(levels[-1].y.size, dtype=np.int64)
            counts[kept] = np.diff(first)
            last = levels[-1]
            levels[-1] = Level(last.prefix, last.y, last.x, np.append(0, np.cumsum(counts)))
        levels.append(Level(nodes, y, np.maximum(y, 0).astype(float), np.zeros(nodes.size + 1, dtype=np.int64)))
        kept = np.flatnonzero(rng.random(nodes.size) < keep)
        parents, above = nodes[kept], cut
    return Visited(cuts, scales, (0.0,) * len(cuts), tuple(levels))


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("with_prior", [False, True])
@pytest.mark.parametrize("normal", [False, True])
def test_no_noisy_number_makes_an_estimate_fail(kind, with_prior, normal):
    """Whatever the noisy numbers are, an estimate comes: an error after the charge would tell about the counts."""
    rng = np.random.default_rng(3)
    for domain in (DOMAINS[0], DOMAINS[1], DOMAINS[4], Domain.of(Mesh("g", shape=(1, 5)))):
        tree = order.morton(domain)
        prior = None
        if with_prior:
            public = rng.choice([0, 5e-324, 1e-200, 1e-20, 1.0, 1e14], domain.shape)
            public[~domain.possible_dense()] = 0
            prior = ks.PublicTable.from_dense(public, domain, name="x")
        for keep in (0.0, 0.3, 1.0):
            for scale in (Fraction(1, 10**200), Fraction(1), Fraction(1 << 55)):
                cuts = tree.stages[1:] or (0,)
                visited = odd_visited(tree, cuts, (scale,) * len(cuts), ODD[kind], keep, rng)
                visited = replace(visited, normal=normal)
                keys, values = bayes.estimate(visited, tree, domain, prior)
                assert (values > 0).all() and tree.possible_leaves()[keys].all()
                variances = [1e-20] * len(cuts)
                least_squares([(level.y, level.first) for level in visited.levels], variances)


@pytest.mark.parametrize("epsilon", ["0.1", "1e199 weak"])
@pytest.mark.parametrize("recipe", ["bayes_tree", "auto"])
def test_a_public_table_may_fade_to_nothing(recipe, epsilon):
    """Gaussian tails that leave the range of floats, under few people."""
    r, c = np.mgrid[0:64, 0:64]
    public = 2000 * np.exp(-((r - 5.0) ** 2 + (c - 5.0) ** 2) / (2 * 1.2**2))
    prior = ks.PublicTable.from_dense(public, DOMAINS[0], name="surface")
    counts = ks.Counts.from_coo([5 * 64 + 5], [20], DOMAINS[0], PERSON)
    out = ks.release(counts, getattr(ks, recipe)(prior=prior), epsilon=epsilon, ledger=None, source=ks.seeded(0))
    assert (out.values > 0).all()


def test_mass_without_children_is_spread_evenly_over_possible_cells():
    tree = order.morton(DOMAINS[1])
    nodes, _ = tree.children(np.zeros(1, dtype=np.int64), 0, 6)
    mass = np.arange(nodes.size) % 11
    keys, values = bayes.spread_evenly(tree, 6, tree.depth, nodes, mass, 10_000)
    assert tree.possible_leaves()[keys].all()
    back = np.bincount(np.searchsorted(nodes, keys // tree.stride(6)), values, nodes.size)
    assert np.array_equal(back, mass)
    assert values.max() <= 2  # at most 11 people among up to 128 cells, evenly down to single ones


def test_spreading_costs_what_there_is_room_for():
    """Billions of people inside dropped blocks of a map of 2^36 cells: no row for each of them."""
    tree = order.morton(Domain.of(Mesh("g", shape=(1 << 18, 1 << 18))))
    nodes, mass = np.array([1, 2, 9, 15]), np.array([10**12, 3, 5 * 10**9, 10**15])
    keys, values = bayes.spread_evenly(tree, 4, tree.depth, nodes, mass, 1000)
    assert keys.size <= 1000 and (values > 0).all() and (np.diff(keys) > 0).all()
    assert np.array_equal(np.bincount(np.searchsorted(nodes, keys // tree.stride(4)), values), mass)


HUGE = {
    "mesh": Domain.of(Mesh("g", shape=(1 << 18, 1 << 18))),
    "axes": Domain.of(
        Mesh("g", shape=(2048, 2048)), Ordered("age", 16), Nominal("sex", ("f", "m")), Ordered("home", 512)
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_the_cost_on_2_36_cells_follows_the_drawn_nodes(name, monkeypatch):
    """Millions of people per cell at a small epsilon: far more of them inside dropped blocks than nodes were drawn.
    Counted, not timed: nodes made on the way down (a frontier of at most the drawn nodes), tiles, and cells."""
    rng = np.random.default_rng(8)
    cells = np.sort(rng.choice(1 << 36, 60, replace=False))
    counts = ks.Counts.from_coo(cells, rng.integers(1, 1 << 24, cells.size), HUGE[name], PERSON)
    made, tiles = [], []
    children, smooth = order.Order.children, bayes.Neighbours.smooth

    def counted(self, *words):
        found = children(self, *words)
        made.append(found[0].size)
        return found

    monkeypatch.setattr(bayes, "ROOM", 1 << 10)
    monkeypatch.setattr(order.Order, "children", counted)
    monkeypatch.setattr(bayes.Neighbours, "smooth", lambda self, values: (
        tiles.append(np.unique(self.tile).size), smooth(self, values))[1])  # fmt: skip
    out = ks.release(counts, ks.bayes_tree(), epsilon="0.0001", ledger=None, source=ks.seeded(0), threads=1)
    drawn = out.measurements.value.size
    assert out.values.sum() > 1 << 20  # there were people to spread
    assert drawn > 1 << 10 and out.cells.size <= 2 * drawn
    assert sum(made) <= 2 * 36 * drawn, (sum(made), drawn)
    assert max(tiles, default=0) <= drawn


RECIPES = {
    "middle": lambda domain: ks.bayes_tree(),
    "gaussian": lambda domain: ks.bayes_tree(noise="gaussian", delta="1e-6"),
    "gaussian, prior": lambda domain: ks.bayes_tree(prior=public_on(domain), noise="gaussian", delta="1e-6"),
    "pilot": lambda domain: ks.bayes_tree(pilot=True),
    "prior": lambda domain: ks.bayes_tree(prior=public_on(domain)),
    "auto": lambda domain: ks.auto((1, min(16, domain.size))),
    "auto, prior": lambda domain: ks.auto((1, min(16, domain.size)), "mae", prior=public_on(domain)),
}


def public_on(domain):
    array = np.random.default_rng(5).poisson(4, domain.shape)
    array[~domain.possible_dense()] = 0
    return ks.PublicTable.from_dense(array, domain, name="made-up-2015")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("which", [0, 1, 2, 4])
def test_a_release_follows_from_its_measurements(name, which):
    """From the published noisy counts and public facts alone, by the rules: the same descent, the same estimate. So
    nothing but noise stands between the table and the release."""
    domain = DOMAINS[which]
    recipe, counts = RECIPES[name](domain), counts_on(domain, mean=(6.0, 0.3, 0.3, 6.0, 6.0)[which])
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(which))
    run = recipe.on(domain, PERSON, "0.5")
    if isinstance(run, ChosenTreeRun):
        preset = out.recipe["preset"]
        visit, join = run.offer.visit(preset), run.offer.join(preset)
        assert join.word == out.recipe["refined"]
    else:
        visit, join = run.visit, run.join
    levels = slow_visit.replay(out.measurements, run.tree, visit.slacks)
    normal = name.startswith("gaussian")
    visited = Visited(visit.cuts, visit.scales, visit.slacks, tuple(Level(*level) for level in levels), normal)
    keys, values = join.refine(visited, run.tree, domain)
    cells = run.tree.cells(keys)
    ranked = np.argsort(cells)
    assert np.array_equal(cells[ranked], out.cells) and np.array_equal(values[ranked], out.values)


@pytest.mark.parametrize(
    ("domain", "tree"),
    [
        *((Domain.of(Ordered("x", size)), "morton") for size in (1, 2, 3, 4)),
        (Domain.of(Nominal("a", tuple(map(str, range(3000)))), Nominal("b", ("f", "m"))), "hierarchy"),
    ],
    ids=["1", "2", "3", "4", "3000 x 2"],
)
@pytest.mark.parametrize("recipe", [ks.auto, lambda **given: ks.bayes_tree(pilot=True, **given)], ids=["auto", "pilot"])
def test_without_a_level_for_a_pilot_it_is_bayes_tree_and_says_so(recipe, domain, tree):
    chosen = recipe(order=tree)
    counts = ks.Counts.from_dense(np.full(domain.shape, 5), domain, PERSON)
    out, plain = (
        ks.release(counts, each, epsilon="0.5", ledger=None, source=seeded(1))
        for each in (chosen, ks.bayes_tree("middle", order=tree))
    )
    run = chosen.on(domain, PERSON, "0.5")
    assert run.offer.pilot is None and set(run.offer.choices) == {"middle"}
    assert out.recipe["preset"] == "middle" and out.recipe["refined"] == "bayes"
    assert "no level" in out.recipe["tuning"]["source"] and "no pilot" in out.recipe["tuning"]["charged"]
    assert out.measurements.scale == plain.measurements.scale
    visit = run.offer.visit("middle")
    levels = slow_visit.replay(out.measurements, run.tree, visit.slacks)
    visited = Visited(visit.cuts, visit.scales, visit.slacks, tuple(Level(*level) for level in levels))
    keys, values = bayes.estimate(visited, run.tree, domain)
    ranked = np.argsort(run.tree.cells(keys))
    assert np.array_equal(values[ranked], out.values)


def test_shares_of_another_join_are_refused():
    for wrong in (
        replace(ks.bayes_tree(), shares=Preset("u4")),
        replace(ks.refined_tree(), shares=Preset("dense")),
        replace(ks.bayes_tree(), shares=OfPrior()),
        replace(ks.bayes_tree(), shares=Given(((0, Fraction(1, 2)), (1, Fraction(1, 4))))),
        replace(ks.bayes_tree(), shares=Given(((0, Fraction(1)), (0, Fraction(1))))),
    ):
        with pytest.raises(ks.PrivacyError):
            wrong.on(DOMAINS[0], PERSON, "1")


@pytest.mark.parametrize("name", ["pilot", "auto"])
def test_threads_change_nothing(name):
    counts = counts_on(DOMAINS[0])
    one, two = (
        ks.release(counts, RECIPES[name](DOMAINS[0]), epsilon="0.3", ledger=None, source=ks.seeded(3), threads=threads)
        for threads in (1, 2)
    )
    assert one.recipe == two.recipe
    assert np.array_equal(one.cells, two.cells) and np.array_equal(one.values, two.values)


@pytest.mark.parametrize("name", ["pilot", "auto", "auto, prior"])
def test_no_stream_is_opened_twice(name, monkeypatch):
    """Nor does what chooses hold the key of the release: with it a pilot's noise could be taken off again."""
    opened, held, open_, choose = [], [], Streams.open, Chooser.choose

    def opening(self, purpose, level=0, block=0):
        opened.append((self.key, self.recipe, purpose, level, block))
        return open_(self, purpose, level, block)

    def choosing(self, offer, pilot, streams):
        held.append(streams.key)
        return choose(self, offer, pilot, streams)

    monkeypatch.setattr(Streams, "open", opening)
    monkeypatch.setattr(Chooser, "choose", choosing)
    recipe = RECIPES[name](DOMAINS[0])
    ks.release(counts_on(DOMAINS[0]), recipe, epsilon="0.5", ledger=None, source=seeded(1), threads=2)
    assert len(opened) == len(set(opened))
    own = {at[2] for at in opened if at[0] == seeded(1).release_key()}
    assert own == ({"noise"} if "prior" in name else {"noise", "pilot"})
    assert held and seeded(1).release_key() not in held


@given(top=st.integers(0, 40), height=st.integers(1, 12))
def test_shares_sum_to_exactly_one(top, height):
    for preset in (*shares.BAYES.values(), *shares.REFINED.values()):
        plain = preset(top)
        assert sum(plain.values()) == 1 and min(plain) == 0 and max(plain) <= top and min(plain.values()) > 0
        if height < top:
            for part in shares.PILOT_SHARE.values():
                piloted = shares.with_pilot(plain, height, part)
                assert sum(piloted.values()) == 1 and piloted[height] == part


@pytest.mark.parametrize(("change", "cells", "factor"), [("add-remove", 1, 1), ("replace", 1, 2), ("add-remove", 3, 3)])
@pytest.mark.parametrize(
    "recipe", [ks.bayes_tree(), ks.bayes_tree(pilot=True), ks.auto((16,))], ids=lambda r: str(r.parts()["shares"])
)
def test_the_published_scales_spend_epsilon_once(recipe, change, cells, factor):
    """Sum over all measured levels of c Delta / scale is epsilon, exactly, the pilot's among them."""
    domain = DOMAINS[0]
    counts = ks.Counts.from_dense(np.full(domain.shape, 9), domain, ks.Unit("p", change, cells))
    out = ks.release(counts, recipe, epsilon="0.7", ledger=None, source=ks.seeded(8))
    assert sum(factor / scale for scale in out.measurements.scale.values()) == Fraction(7, 10)


def test_the_rule_reads_noisy_counts_like_the_table():
    """Density and size from blocks: half of the blocks full of large cells, the others empty."""
    x = np.array([64 * 500.0] * 50 + [0.0] * 50)
    density, size = shares.facts(x, np.full(100, 64.0), 10.0)
    assert density == 0.5 and size == 50.0 and shares.rule(density, size) == "dense"
    assert shares.rule(*shares.facts(x / 1000, np.full(100, 64.0), 10.0)) == "sparse"
