"""Empirical Bayes on the visited tree: every part against a slow twin, and what the whole must always do."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import bayes as slow
from reference import visit as slow_visit

import kasuri as ks
from kasuri import bayes, order, shares
from kasuri._kernels.bayes import RADIUS, mixture_weights, normal_laplace, project
from kasuri.mechanism import resolve
from kasuri.rng import Streams, seeded
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.visit import Visit
from kasuri.visited import Level, Visited

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
    likelihood, first, second = bayes.mixture()
    for k, (mean, shape) in enumerate((mean, shape) for mean in bayes.MEANS for shape in bayes.SHAPES):
        for j in (0, 3, 40, 64):
            wanted = slow.gamma_moments(j / 8, mean, shape)
            found = likelihood[j, k + 1], first[j, k + 1], second[j, k + 1]
            assert np.allclose(found, wanted, rtol=2e-4), (mean, shape, j)
    assert np.allclose(likelihood[:-1, 0], np.exp(-np.arange(65) / 8) / 2)


def test_neighbours_are_averaged_without_the_cell_itself():
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (21, 27))
    drawn = rng.random(values.shape) < 0.7
    domain = Domain.of(Mesh("g", shape=values.shape))
    cells = rng.permutation(np.flatnonzero(drawn))  # in any order
    place = bayes._Neighbours.of(cells, domain)
    near, far = place.smooth(values.ravel()[cells])
    dense = np.where(drawn, values, 0.0)
    narrow, wide, widest = (slow.smooth(dense, sigma, RADIUS).ravel()[cells] for sigma in bayes.WINDOWS)
    assert np.allclose(near, 0.6 * narrow + 0.4 * wide) and np.allclose(far, widest)


def test_layers_of_other_axes_do_not_mix():
    domain = Domain.of(Ordered("age", 3), Mesh("g", shape=(8, 8)))
    cells = np.arange(domain.size)
    near, _ = bayes._Neighbours.of(cells, domain).smooth(np.where(cells < 64, 1.0, 0.0))
    assert (near[:64] > 0).all() and (near[64:] == 0).all()


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


def test_mass_without_children_is_spread_evenly_over_possible_cells():
    tree = order.morton(DOMAINS[1])
    nodes, _ = tree.children(np.zeros(1, dtype=np.int64), 0, 6)
    mass = np.arange(nodes.size) % 11
    keys, values = bayes.spread_evenly(tree, 6, nodes, mass)
    assert tree.possible_leaves()[keys].all()
    back = np.bincount(np.searchsorted(nodes, keys // tree.stride(6)), values, nodes.size)
    assert np.array_equal(back, mass)
    assert values.max() <= 2  # at most 11 people among up to 128 cells, evenly down to single ones


RECIPES = {
    "middle": lambda domain: ks.bayes_tree(),
    "pilot": lambda domain: ks.bayes_tree(pilot=True),
    "prior": lambda domain: ks.bayes_tree(prior=public_on(domain)),
    "auto": lambda domain: ks.auto((1, 16)),
    "auto, prior": lambda domain: ks.auto((1, 16), "mae", prior=public_on(domain)),
}


def public_on(domain):
    array = np.random.default_rng(5).poisson(4, domain.shape)
    array[~domain.possible_dense()] = 0
    return ks.PublicTable.from_dense(array, domain, name="made-up-2015")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_release_follows_from_its_measurements(name, which):
    """From the published noisy counts and public facts alone, by the rules: the same descent, the same estimate. So
    nothing but noise stands between the table and the release."""
    domain = DOMAINS[which]
    recipe, counts = RECIPES[name](domain), counts_on(domain, mean=(6.0, 0.3, 0.3)[which])
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(which))
    run = resolve(recipe, domain, PERSON, "0.5")
    cuts = run.cuts or run.choices[out.recipe["preset"]]
    refine = out.recipe.get("refined", "bayes")
    visit = run.visit(cuts, refine)
    levels = slow_visit.replay(out.measurements, run.trees[0], visit.slacks)
    visited = Visited(visit.cuts, visit.scales, visit.slacks, tuple(Level(*level) for level in levels))
    from kasuri.choose import refined

    keys, values = refined(run, visited, refine)
    cells = run.trees[0].cells(keys)
    ranked = np.argsort(cells)
    assert np.array_equal(cells[ranked], out.cells) and np.array_equal(values[ranked], out.values)


@pytest.mark.parametrize("name", ["pilot", "auto"])
def test_threads_change_nothing(name):
    counts = counts_on(DOMAINS[0])
    one, two = (
        ks.release(counts, RECIPES[name](DOMAINS[0]), epsilon="0.3", ledger=None, source=ks.seeded(3), threads=threads)
        for threads in (1, 2)
    )
    assert one.recipe == two.recipe
    assert np.array_equal(one.cells, two.cells) and np.array_equal(one.values, two.values)


@given(top=st.integers(0, 40), height=st.integers(1, 12))
def test_shares_sum_to_exactly_one(top, height):
    for preset in (*shares.BAYES.values(), *shares.REFINED.values()):
        plain = preset(top)
        assert sum(plain.values()) == 1 and min(plain) == 0 and max(plain) <= top and min(plain.values()) > 0
        if height < top:
            piloted = shares.with_pilot(plain, height)
            assert sum(piloted.values()) == 1 and piloted[height] == shares.PILOT_SHARE


@pytest.mark.parametrize(("change", "cells", "factor"), [("add-remove", 1, 1), ("replace", 1, 2), ("add-remove", 3, 3)])
@pytest.mark.parametrize(
    "recipe", [ks.bayes_tree(), ks.bayes_tree(pilot=True), ks.auto((16,))], ids=lambda r: str(r.shares)
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
