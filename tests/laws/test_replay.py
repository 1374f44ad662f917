"""Words and back, the replay of measurements, and the test for too little noise: laws over seeded releases."""

import json
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import FormatError
from kasuri.noise import evidence
from kasuri.recipes import (
    RECIPES,
    fourier,
    hierarchy,
    laplace,
    lasso,
    matrix,
    neg_l2_simplex,
    nonneg_lasso,
    simplex,
    sparse,
)
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.read import UntoldError, read
from kasuri.recipes.replay import descends

COAST = np.zeros((8, 8), dtype=bool)
COAST[0, 3:] = True
DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(8, 8)),
    ks.Nominal("sex", ("f", "m", "x")),
    mask={"grid": COAST},
)
LINE = ks.Domain.of(ks.Ordered("age", 8))
SEVERAL, MOVES = ks.Unit("person", "add-remove", 2, 3), ks.Unit("person", "replace", 1)
TABLE = ks.PublicTable.from_dense(np.where(COAST, 0, 3)[:, :, None] * np.ones(3), DOMAIN, name="census-2015")
EYE = np.eye(8, dtype=int)

MAPS = [
    ks.geometric(), laplace(), ks.privelet(), ks.privelet("1d"), ks.privelet("2d"), ks.haar_topdown(),
    ks.haar_topdown("1d"), ks.haar_topdown("jis"), ks.haar_topdown(transform="haar"),
    ks.haar_topdown(transform="nominal"), ks.haar_topdown(interleave=("sex",)), ks.haar_topdown(descent="jump"),
    ks.haar_topdown(descent="plain"), ks.haar_topdown(descent="dense"), ks.refined_tree(),
    ks.refined_tree("u4", "hierarchy"), ks.refined_tree("u4", "jis"), ks.bayes_tree(order="jis"),
    ks.refined_tree({0: "0.5", 1: "0.5"}), ks.refined_tree(interleave=("sex",)),
    ks.bayes_tree(), ks.bayes_tree(facts={"density": "0.2", "size": "10"}), ks.bayes_tree(pilot=True),
    ks.bayes_tree(prior=TABLE), ks.bayes_tree("dense", prior=TABLE), ks.auto((1, 4), "mae"), ks.auto(prior=TABLE),
    hierarchy(), hierarchy("morton"), hierarchy("hierarchy"), simplex(), neg_l2_simplex("0.9", share="0.1"),
    neg_l2_simplex(), nonneg_lasso("3"), lasso("3.5", adjust="shift"), lasso(tune_on=TABLE), sparse(), sparse(5),
    ks.woven_tree(), ks.woven_tree({"cells": "2", "sex": "1"}), ks.woven_tree(whole=True), ks.best(),
    ks.best(facts={"density": "0.2", "size": "10"}),
    ks.recipes.cell_counts(), ks.recipes.cell_counts(noise="gaussian", delta="1e-6"),
    ks.bayes_tree("sparse", noise="gaussian", delta="1e-6"), ks.bayes_tree(prior=TABLE, noise="auto", delta="1e-6"),
]  # fmt: skip
LINES = [fourier(), matrix(), matrix(EYE), matrix(workload=EYE), matrix(ks.PublicMatrix(EYE, "ages")),
         ks.privelet("2d"), ks.privelet("1d")]  # fmt: skip
CASES = [(recipe, domain, unit) for unit in (SEVERAL, MOVES) for domain, recipes in ((DOMAIN, MAPS), (LINE, LINES))
         for recipe in recipes] + [(simplex("public", declared_total=5), DOMAIN, MOVES)]  # fmt: skip


def of(out):
    return Drawn(out.cells, out.values, out.measurements, out.recipe)


def told(run):
    return json.loads(json.dumps(run.words()))


def test_every_recipe_is_read_back():
    assert {recipe.name for recipe, _, _ in CASES} == set(RECIPES)
    for recipe, domain, unit in CASES:
        words = told(recipe.on(domain, unit, "0.3"))
        if "public" in words.get("options", {}):
            with pytest.raises(UntoldError):
                read(words, domain, unit, "0.3")
            continue
        back = read(words, domain, unit, "0.3")
        assert told(back) == words and back.guarantee == recipe.guarantee(domain, unit, "0.3"), recipe
        assert back.mechanism.plan(domain, unit, "0.3") == recipe.plan(domain, unit, "0.3"), recipe


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.refined_tree(), sparse(), lasso()], ids=lambda r: r.name)
def test_words_of_no_recipe_are_refused(recipe):
    words = told(recipe.on(DOMAIN, SEVERAL, "0.3"))
    for name in ("name", "order", "arguments", "options"):
        if name in words:
            with pytest.raises(FormatError):
                read({**words, name: 7}, DOMAIN, SEVERAL, "0.3")


def counts(seed, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    return ks.Counts.from_dense(
        np.where(domain.possible_dense(), rng.poisson(rng.gamma(0.3, 20, domain.shape)), 0), domain, SEVERAL
    )


@pytest.mark.parametrize(
    "recipe", [ks.refined_tree(), ks.refined_tree("u4"), ks.bayes_tree(), ks.bayes_tree(pilot=True)], ids=str
)
def test_a_count_tree_follows_from_its_measurements(recipe):
    for seed in range(6):
        for epsilon in ("0.05", "5"):
            table = counts(seed) if seed else ks.Counts.from_coo([], [], DOMAIN, SEVERAL)
            out = ks.release(table, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
            run = recipe.on(DOMAIN, SEVERAL, epsilon)
            assert run.retold(out.recipe, out.measurements) == (dict(out.recipe), [])
            found = run.replay(of(out)).found
            np.testing.assert_array_equal(found[0], out.cells)
            np.testing.assert_array_equal(found[1], out.values)


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.haar_topdown("1d")], ids=["morton", "1d"])
def test_a_descent_follows_from_its_measurements_and_nothing_near_it_does(recipe):
    rng = np.random.default_rng(0)
    for seed in range(12):
        epsilon = ("0.05", "1", "20")[seed % 3]
        out = ks.release(counts(seed), recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
        run = recipe.on(DOMAIN, SEVERAL, epsilon)
        assert descends(run.tree, out.measurements, out.cells, out.values)
        values = out.values.copy()
        one, two = rng.choice(values.size, 2, replace=False)
        values[one], values[two] = values[one] + 2, values[two] - 2  # beyond any coin
        keep = values > 0
        assert not descends(run.tree, out.measurements, out.cells[keep], values[keep])


@pytest.mark.parametrize("recipe", [ks.geometric(), laplace(), ks.privelet(), ks.haar_topdown(), ks.refined_tree()],
                         ids=lambda recipe: recipe.name)  # fmt: skip
def test_evidence_of_too_little_noise_keeps_its_level(recipe, monkeypatch):
    """An empty table has the least numbers there are. By Markov's inequality a quantity of mean at most 1 passes 20
    with a chance of at most 1/20; 200 draws."""
    empty = ks.Counts.from_coo([], [], DOMAIN, SEVERAL)
    monkeypatch.setattr(evidence, "EVIDENCE", np.log10(20))
    for epsilon in ("0.01", "3"):
        run = recipe.on(DOMAIN, SEVERAL, epsilon)
        found = 0
        for seed in range(100):
            out = ks.release(empty, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
            again = run.replay(of(out))
            found += evidence.too_little(again.shown, again.apart)
        assert found <= 5 + 3 * np.sqrt(5)


def test_a_sum_is_zero_at_most_as_often_as_one_number_of_its_variance():
    """The bound behind parents and children, by convolution."""
    from kasuri.noise.samplers import laplace_variance

    for scale in (Fraction(1, 3), Fraction(2), Fraction(9)):
        k = np.arange(-400, 401)
        a = np.exp(-1 / float(scale))
        one = (1 - a) / (1 + a) * a ** np.abs(k)
        total = np.ones(1)
        for f in range(1, 9):
            total = np.convolve(total, one)
            bound = 1 / np.sqrt(1 + 2 * f * laplace_variance(scale))
            assert total.max() <= bound * (1 + 1e-9)
            assert f > 1 or total.max() == pytest.approx(bound)
