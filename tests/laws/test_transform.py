"""Transforms are linear and invert; their coefficients are what the papers define."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.trees import order, transform

MASK = np.zeros((3, 5), dtype=bool)
MASK[1:, 3:] = True
DOMAINS = [
    Domain.of(Ordered("x", 1)),
    Domain.of(Ordered("x", 16)),
    Domain.of(Ordered("x", 11)),
    Domain.of(Mesh("g", shape=(3, 5)), mask=MASK),
    Domain.of(Mesh("g", shape=(4, 4)), Ordered("age", 3)),
    Domain.of(Nominal("w", tuple("abcdef"), Tree.of({"p": ["a", "b", "c"], "q": ["d"], "r": ["e", "f"]}))),
]


def made(domain):
    for tree in (order.morton(domain), order.row_major(domain)):
        yield tree.leaves, np.flatnonzero(tree.possible_leaves()), transform.sum_difference(tree)
        yield tree.leaves, np.flatnonzero(tree.possible_leaves()), transform.haar(tree)
    tree = order.hierarchy(domain)
    yield tree.leaves, np.flatnonzero(tree.possible_leaves()), transform.nominal(tree)
    axes = tuple(order.row_major(Domain.of(Ordered("x", size))) for size in domain.shape)
    padded = np.zeros(tuple(t.leaves for t in axes), dtype=bool)
    padded[tuple(slice(0, s) for s in domain.shape)] = True
    yield padded.size, np.flatnonzero(padded), transform.haar_nd(axes)
    yield domain.size, np.arange(domain.size), transform.identity(domain.size)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: str(d.shape))
@given(seed=st.integers(0, 2**32))
def test_inverse_and_linear(domain, seed):
    rng = np.random.default_rng(seed)
    for leaves, where, t in made(domain):
        x, y = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
        x[where], y[where] = rng.integers(0, 1000, where.size), rng.integers(0, 1000, where.size)
        assert np.allclose(t.inverse(t.forward(x)), x, atol=1e-6), t.name
        assert np.allclose(t.forward(3 * x - 2 * y), 3 * t.forward(x) - 2 * t.forward(y)), t.name
        assert t.forward(x).size == t.weights.size


def test_coefficients_of_four_cells():
    """[Terada2015, sec. 5.1]: W = (mean, half difference of halves, half differences of pairs)."""
    tree = order.row_major(Domain.of(Ordered("x", 4)))
    v = np.array([7, 1, 4, 2])
    assert transform.sum_difference(tree).forward(v).tolist() == [14, 2, 6, 2]
    assert transform.haar(tree).forward(v).tolist() == [14 / 4, 2 / 4, 6 / 2, 2 / 2]
    assert transform.haar(tree).weights.tolist() == [1 / 4, 1 / 4, 1 / 2, 1 / 2]


def test_coefficients_are_as_many_as_possible_cells():
    for domain in DOMAINS:
        for tree in (order.morton(domain), order.row_major(domain)):
            assert transform.sum_difference(tree).weights.size == tree.possible_leaves().sum()


def test_nominal_coefficients():
    tree = order.hierarchy(Domain.of(Nominal("w", ("a", "b", "c"))))
    t = transform.nominal(tree)
    assert t.forward(np.array([5, 1, 0])).tolist() == [6, 9, -3, -6]
    assert t.weights.tolist() == [1, 4, 4, 4]
