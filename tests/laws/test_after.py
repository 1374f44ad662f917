"""Errors after refinement, from noisy numbers alone, against the true ones (docs/proofs/errors_after.md)."""

from dataclasses import replace

import numpy as np
import pytest

import kasuri as ks
from kasuri.manifest import expected
from kasuri.recipes.mechanism import Drawn, NoForm
from kasuri.refine import after

UNIT = ks.Unit("person", "add-remove", 1)


def town_map(seed: int = 0, side: int = 128) -> np.ndarray:
    """Towns in an empty country: smooth densities, half of the cells without people."""
    rng = np.random.default_rng(seed)
    at = np.stack(np.mgrid[:side, :side], axis=-1)
    density = np.zeros((side, side))
    for _ in range(12):
        place, size, wide = rng.uniform(0, side, 2), rng.lognormal(5, 1), rng.uniform(3, 14)
        density += size * np.exp(-((at - place) ** 2).sum(-1) / (2 * wide**2))
    return rng.poisson(density * (density > 2))


def released(recipe: ks.Mechanism, truth: np.ndarray, seed: int, epsilon: str = "0.2"):
    domain = ks.Domain.of(ks.Mesh("grid", shape=truth.shape))
    counts = ks.Counts.from_dense(truth, domain, UNIT, data="made up")
    out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed))
    return recipe.on(domain, UNIT, epsilon), out


@pytest.mark.parametrize(
    "recipe", [ks.bayes_tree(pilot=True), ks.haar_topdown(), ks.refined_tree(), ks.geometric()], ids=lambda r: r.name
)
def test_stated_errors_are_those_of_the_release(recipe):
    truth = town_map()
    stated, true = {}, {}
    for seed in range(4):
        run, out = released(recipe, truth, seed)
        gap = out.to_dense() - truth
        for row in expected.after(run, out):
            side = int(np.sqrt(row["cells"]))
            own = gap.reshape(128 // side, side, 128 // side, side).sum((1, 3))
            stated.setdefault(side, []).append(row["rmse"] ** 2)
            true.setdefault(side, []).append(float((own**2).mean()))
    assert set(stated) == {1, 2, 4, 8, 16, 32, 64, 128}
    for side in (1, 2, 4, 8, 16):  # of 64 and more blocks: fewer scatter by themselves
        ratio = np.sqrt(np.mean(stated[side]) / np.mean(true[side]))
        assert 0.8 <= ratio <= 1.25, (side, ratio)


@pytest.mark.parametrize("recipe", [ks.bayes_tree("middle"), ks.haar_topdown(), ks.woven_tree()], ids=lambda r: r.name)
def test_errors_follow_from_what_is_published(recipe):
    run, out = released(recipe, town_map(3, 32), 1)
    drawn = Drawn(out.cells, out.values, out.measurements, out.recipe)
    first, again = run.after(drawn, (1, 16)), run.after(drawn, (1, 16))
    assert first == again
    assert isinstance(run.after(replace(drawn, measurements=None), (1, 16)), NoForm)


def test_a_view_has_the_variance_of_dense_least_squares():
    """Where nothing is shrunk or cut (large counts), errors of views are those of least squares on all numbers."""
    domain = ks.Domain.of(ks.Nominal("a", tuple("pqrs")), ks.Nominal("b", tuple("xyz")))
    counts = ks.Counts.from_dense(np.full((4, 3), 100_000), domain, UNIT, data="made up")
    recipe = ks.woven_tree(shares={"cells": "0.5", "a": "0.2", "b": "0.3"})
    run = recipe.on(domain, UNIT, "1")
    out = ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(5))
    found = {
        e.view: e.rmse for e in run.after(Drawn(out.cells, out.values, out.measurements, out.recipe), (1,)) if e.view
    }
    rows = [np.eye(12), np.kron(np.eye(4), np.ones((1, 3))), np.kron(np.ones((1, 4)), np.eye(3))]
    weights = [0.5**2 / 2, 0.2**2 / 2, 0.3**2 / 2]
    spread = np.linalg.inv(sum(w * r.T @ r for w, r in zip(weights, rows, strict=True)))
    for view, r in zip(("a", "b"), rows[1:], strict=True):
        assert found[view] == pytest.approx(np.sqrt(np.trace(r @ spread @ r.T) / len(r)), rel=0.15)


def test_second_moments_are_those_of_a_normal_law_cut_off_at_zero():
    rng = np.random.default_rng(1)
    for z, x in ((3.0, 3.0), (0.5, 0.5), (-1.0, 0.0), (-4.0, 0.0)):
        draws = rng.normal(z, 2.0, 2_000_000)
        draws = draws[draws > 0]
        found = after.second_moments(np.array([z]), np.array([4.0]), np.array([x]))[0]
        assert found == pytest.approx(((draws - x) ** 2).mean(), rel=0.02)
