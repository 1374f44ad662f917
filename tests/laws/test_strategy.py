"""Measured matrices: sensitivity by brute force, what they determine, and trees made consistent, against slow twins."""

from fractions import Fraction

import numpy as np
import pytest
from reference.sensitivity import brute_force, mask

import kasuri as ks
from kasuri.recipes import strategy
from kasuri.recipes.matrix import GivenMatrix, Measured
from kasuri.refine.least_squares import consistency, nonnegative_fit
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Unit

DOMAINS = {
    "line": Domain.of(Ordered("x", 5)),
    "one cell": Domain.of(Ordered("x", 1)),
    "masked map": Domain.of(Mesh("g", shape=(2, 3)), mask=mask((2, 3), [(0, 1)])),
    "axes": Domain.of(Ordered("x", 2), Nominal("w", ("a", "b", "c"))),
}
RECIPES = {
    "fourier": lambda domain: ks.recipes.fourier(len(domain.shape)),
    "fourier 1": lambda domain: ks.recipes.fourier(1),
    "optimised": lambda domain: ks.recipes.matrix(workload="prefix"),
    "given": lambda domain: ks.recipes.matrix(
        np.vstack([np.eye(domain.size, dtype=np.int64), np.arange(-2, domain.size - 2), np.ones(domain.size, int)])
    ),
}


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", DOMAINS)
def test_sensitivity_of_the_measured_matrix(name, recipe, change):
    """The scale of a run is c times what brute force finds over all contributions, met exactly."""
    domain = DOMAINS[name]
    for c in (1, 2):
        run = RECIPES[recipe](domain).on(domain, Unit("p", change, c), "0.5")
        rows = run.strategy.rows
        found = brute_force(lambda x, rows=rows: rows @ x, np.ones(len(rows), int), rows.shape[1],
                            np.ones(rows.shape[1], bool), change, c)  # fmt: skip
        assert run.scale == found / Fraction(1, 2)


def test_fourier_rows_determine_the_marginals_and_nothing_else():
    domain = Domain.of(Ordered("x", 4), Ordered("y", 2), Ordered("z", 3))
    for ways in (1, 2, 3):
        made = strategy.fourier(domain, ways)
        assert np.abs(made.rows).max() == 1 and np.abs(made.rows).min() == 1
        index = domain.unravel(made.cells)
        cube = np.indices(domain.shape).reshape(3, -1)
        assert np.array_equal(np.array(index), cube)
        for dims in [(0,), (1, 2), (0, 1, 2)]:
            flat = np.ravel_multi_index([cube[d] for d in dims], [domain.shape[d] for d in dims])
            sums = (flat == np.unique(flat)[:, None]).astype(float)  # the table over these dimensions
            inside = np.linalg.matrix_rank(np.vstack([made.rows, sums])) == np.linalg.matrix_rank(made.rows)
            assert inside == (len(dims) <= ways)


def test_an_optimised_strategy_beats_the_cells_on_its_workload():
    for workload in ("prefix", "ranges"):
        domain = Domain.of(Ordered("x", 64))
        made = strategy.optimised(domain, workload)
        wanted = strategy.gram(domain, workload)
        assert made.rows.dtype == np.int64
        inverse = np.linalg.inv(made.rows.T.astype(float) @ made.rows)
        error = (inverse * wanted).sum() * float(made.cost("add-remove")) ** 2
        assert error < 0.75 * np.trace(wanted)


@pytest.mark.parametrize("workload", ["cells", "prefix", "ranges"])
def test_gram_matrices_by_counting_queries(workload):
    domain = Domain.of(Mesh("g", shape=(3, 4)))
    found = np.zeros((12, 12))
    lines = {"cells": lambda n: np.eye(n), "prefix": lambda n: np.tril(np.ones((n, n))),
             "ranges": lambda n: np.array([[a <= i < b for i in range(n)]
                                           for a in range(n) for b in range(a + 1, n + 1)])}  # fmt: skip
    for row in lines[workload](3):
        for col in lines[workload](4):
            query = np.outer(row, col).ravel()
            found += np.outer(query, query)
    assert np.allclose(strategy.gram(domain, workload), found)


def test_matrices_that_are_refused():
    for bad in ([[0.5, 1.0]], [[1, 2], [3]], [], "greedy", [[True, False]], np.eye(2)):
        with pytest.raises(ks.DomainError):
            ks.recipes.matrix(bad)
    for given in ({"strategy": [[1]], "workload": "cells"}, {"workload": [[0, 0]]}, {"strategy": [[0]]}):
        with pytest.raises(ks.DomainError):
            ks.recipes.matrix(**given)
    domain, unit = Domain.of(Ordered("x", 4)), Unit("p", "add-remove", 1)
    aside = Domain.of(Ordered("x", 2), mask=mask(2, [0]))  # what the workload asks is impossible
    with pytest.raises(ks.DomainError, match="workload"):
        ks.recipes.matrix(workload=[[1, 0]]).guarantee(aside, unit, "1")
    for bad in (ks.recipes.matrix([[1, 1]]), ks.recipes.matrix([[1, 1, 1, 1]]), ks.recipes.matrix(workload=[[1, 2]])):
        with pytest.raises(ks.DomainError):
            bad.guarantee(domain, unit, "1")
    halves = ks.recipes.matrix([[Fraction(1, 2), 0], [0, Fraction(1, 3)]])
    assert dict(halves.parts()["options"])["strategy"] == "3 0;0 2"
    with pytest.raises(ks.DomainError, match="1024"):
        ks.recipes.matrix().guarantee(Domain.of(Ordered("x", 1025)), unit, "1")
    with pytest.raises(ks.DomainError, match="1024"):
        ks.recipes.fourier().guarantee(Domain.of(Mesh("g", shape=(33, 32))), unit, "1")
    with pytest.raises(ks.DomainError, match="ways"):
        ks.recipes.fourier(2).guarantee(domain, unit, "1")


@pytest.mark.parametrize(
    "text",
    [
        ";".join([f"{1 << 62} 0"] * 4 + ["1 0", "0 1"]),  # the first column's norm is 2^64 + 1, which wraps to 1
        "-9223372036854775808 0;0 1",  # has no absolute value in 64 bits
        f"{1 << 31} 0;0 1",
        f"{1 << 80} 0;0 1",
        "1 0;0",
        "1 0;0 x",
        "",
    ],
)
def test_a_mechanism_built_by_hand_has_the_bounds_of_its_recipe(text):
    made = Measured("matrix", "x", GivenMatrix(text, None))
    for change in ("add-remove", "replace"):
        with pytest.raises(ks.DomainError):
            made.scale(Domain.of(Ordered("x", 2)), Unit("p", change, 1), "1")
    largest = f"{strategy.LARGEST} 0;{-strategy.LARGEST} 0;0 1"
    made = Measured("matrix", "x", GivenMatrix(largest, None))
    assert made.scale(Domain.of(Ordered("x", 2)), Unit("p", "add-remove", 1), "1") == 2 * strategy.LARGEST
    with pytest.raises(ks.DomainError):
        strategy.Strategy(np.array([[np.iinfo(np.int64).min]]), np.array([0]))


def test_consistency_is_least_squares():
    """Against the normal equations of the whole tree, levels of unequal noise, unequal numbers of children."""
    rng = np.random.default_rng(4)
    first = [np.array([0, 3]), np.array([0, 2, 3, 6])]
    sizes = [1, 3, 6]
    variances = [2.0, 5.0, 3.0]
    ys = [rng.integers(-5, 30, size) for size in sizes]
    rows = [np.ones((1, 6)), np.zeros((3, 6)), np.eye(6)]
    for i in range(3):
        rows[1][i, first[1][i] : first[1][i + 1]] = 1
    weights = np.concatenate([np.full(size, v**-0.5) for size, v in zip(sizes, variances, strict=True)])
    expected = np.linalg.lstsq(np.vstack(rows) * weights[:, None], np.concatenate(ys) * weights)[0]
    levels = [(ys[0], first[0]), (ys[1], first[1]), (ys[2], np.zeros(7, dtype=np.int64))]
    assert np.allclose(consistency(levels, variances), expected)


def test_the_linear_program_is_nearest():
    """No non-negative table on a fine grid comes nearer, and a feasible one is found again."""
    domain = Domain.of(Ordered("x", 2), Ordered("y", 2))
    rows = strategy.fourier(domain, 2).rows
    assert np.array_equal(nonnegative_fit(rows, (rows @ [4, 0, 2, 9]).astype(float)), [4, 0, 2, 9])
    noisy = np.array([7.0, -9.0, 3.0, 8.0])
    out = nonnegative_fit(rows, noisy)
    grid = np.stack(np.meshgrid(*[np.arange(9)] * 4), -1).reshape(-1, 4)
    best = np.abs(grid @ rows.T - noisy).max(axis=1).min()
    assert out.min() >= 0 and np.abs(rows @ out - noisy).max() <= best + 4 / 2
