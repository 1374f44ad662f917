"""docs/proofs/standard_decomposition.md: what the refinement of the standard decomposition promises, and cannot."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from kasuri.refine.topdown import topdown_float
from kasuri.reproduce import standard
from kasuri.trees import transform

SHAPES = [(8,), (4, 8), (8, 2), (4, 2, 8), (2, 2, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_one_person_changes_so_many_coefficients_by_one(shape):
    for place in itertools.product(*map(range, shape)):
        unit = np.zeros(shape)
        unit[place] = 1
        changed = standard.forward(unit)
        assert set(np.unique(changed)) <= {-1.0, 0.0, 1.0}
        assert np.abs(changed).sum() == standard.cost(shape)
    assert standard.cost((512, 512)) == 100


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_and_inverse(shape):
    table = np.random.default_rng(1).integers(-9, 9, shape)
    assert (standard.inverse(standard.forward(table)) == table).all()
    assert standard.forward(table).ravel()[0] == table.sum()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 20.0, 500.0]))
def test_refined_tables_are_non_negative_and_keep_the_total(seed, scale):
    rng = np.random.default_rng(seed)
    for shape in SHAPES[1:]:
        noisy = standard.forward(rng.poisson(0.7, shape)) + rng.laplace(0, scale, shape)
        refined = [standard.axes(noisy)] + ([standard.lattice(noisy)] if len(shape) == 2 else [])
        for made in refined:
            assert made.min() >= 0
            assert made.sum() == pytest.approx(max(noisy.ravel()[0], 0.0), abs=1e-9 * scale * made.size + 1e-9)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_nothing_is_clamped_that_is_a_transform_of_a_table(shape):
    table = np.random.default_rng(2).poisson(0.5, shape).astype(float)
    assert np.allclose(standard.axes(standard.forward(table)), table)
    if len(shape) == 2:
        assert np.allclose(standard.lattice(standard.forward(table)), table)


def test_one_axis_is_the_papers_refinement():
    noisy = np.random.default_rng(3).normal(0, 40, 16)
    heights = np.repeat([4, 4, 3, 2, 1], [1, 1, 2, 4, 8])
    means = noisy * np.ldexp(1.0, -heights)
    assert (standard.axes(noisy) == topdown_float(means, transform.levels(np.ones(16, dtype=bool)))).all()


def test_the_interval_of_the_last_coefficient_is_all_that_is_feasible():
    for r, c in itertools.product(range(-4, 5), repeat=2):
        feasible = [
            x for x in range(-9, 10) if all(4 + s * r + t * c + s * t * x >= 0 for s in (1, -1) for t in (1, -1))
        ]
        assert feasible == list(range(abs(r + c) - 4, 4 - abs(r - c) + 1)) and feasible
        for x in (-9, 0, 9):
            made = standard.forward(standard.lattice(np.array([[4.0, c], [r, x]])))
            assert made.ravel().tolist() == [4, c, r, min(max(x, feasible[0]), feasible[-1])]


def test_three_axes_have_margins_that_no_table_has():
    cells = list(itertools.product((0, 1), repeat=3))
    wanted = {(0, 1): [[1, 0], [0, 1]], (1, 2): [[1, 0], [0, 1]], (0, 2): [[0, 1], [1, 0]]}
    rows, right = [], []
    for (i, j), margin in wanted.items():
        for a, b in itertools.product((0, 1), repeat=2):
            rows.append([float(cell[i] == a and cell[j] == b) for cell in cells])
            right.append(margin[a][b])
    rows, right = np.array(rows), np.array(right, dtype=float)
    signed = np.linalg.lstsq(rows, right, rcond=None)[0]
    assert np.allclose(rows @ signed, right)  # the margins agree with each other
    assert linprog(np.zeros(8), A_eq=rows, b_eq=right, bounds=(0, None)).status == 2  # and no table >= 0 has them
