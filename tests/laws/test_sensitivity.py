"""Every sensitivity against brute force: all pairs of neighbours, by the coefficients themselves.

One unit adds at most c counts, wherever it puts them. add-remove: the dearest contribution; replace: the dearest pair
of contributions of 0..c counts. The claim must be met exactly, not only bounded.
"""

import numpy as np
import pytest
from reference.sensitivity import brute_force, mask

import kasuri as ks
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.trees import factors, order, transform

DOMAINS = {
    "one cell": Domain.of(Ordered("x", 1)),
    "two cells": Domain.of(Ordered("x", 2)),
    "eight cells": Domain.of(Ordered("x", 8)),
    "five cells": Domain.of(Ordered("x", 5)),
    "masked line": Domain.of(Ordered("x", 8), mask=mask(8, [0, 1, 2, 5])),
    "one possible": Domain.of(Ordered("x", 4), mask=mask(4, [0, 1, 3])),
    "odd map": Domain.of(Mesh("g", shape=(3, 5))),
    "masked map": Domain.of(Mesh("g", shape=(3, 4)), mask=mask((3, 4), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)])),
    "map x age": Domain.of(Mesh("g", shape=(2, 3)), Ordered("age", 3)),
    "masked map x age": Domain.of(Mesh("g", shape=(2, 2)), Ordered("age", 3), mask={"g": mask((2, 2), [(1, 1)])}),
    "deep right": Domain.of(Ordered("x", 8), mask=mask(8, [1, 2, 3])),
}
NOMINAL = {
    "flat": Domain.of(Nominal("w", ("a", "b", "c"))),
    "tree": Domain.of(Nominal("w", tuple("abcdef"), Tree.of({"p": ["a", "b", "c"], "q": ["d"], "r": ["e", "f"]}))),
    "ragged": Domain.of(Nominal("w", tuple("abcd"), Tree.of(["a", {"q": ["b", {"z": ["c", "d"]}]}]))),
    "map x ward": Domain.of(Mesh("g", shape=(2, 2)), Nominal("w", ("a", "b", "c"))),
    "masked ward": Domain.of(Nominal("w", tuple("abcde")), mask=mask(5, [1, 4])),
    "one label": Domain.of(Nominal("w", ("a",))),
}


def limit(domain, c):
    return c == 1 or domain.size ** (2 * c) <= 3_000_000


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("name", DOMAINS)
def test_sum_difference(name, c, change):
    domain = DOMAINS[name]
    for tree in (order.morton(domain), order.row_major(domain)):
        if not limit(domain, c):
            continue
        for make in (transform.sum_difference, transform.haar):
            made = make(tree)
            found = brute_force(made.forward, made.weights, tree.leaves, tree.possible_leaves(), change, c)
            assert found == c * tree.cost(change), (tree.name, made.name)


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("name", NOMINAL)
def test_nominal(name, c, change):
    domain = NOMINAL[name]
    tree = order.hierarchy(domain)
    if limit(domain, c):
        made = transform.nominal(tree)
        found = brute_force(made.forward, made.weights, tree.leaves, tree.possible_leaves(), change, c)
        assert found == c * tree.cost(change)


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("shape", [(1,), (4,), (5,), (4, 4), (3, 5), (2, 3, 2), (1, 6), (3, 3), (2, 2, 2)])
def test_standard_decomposition(shape, change):
    trees = tuple(order.row_major(Domain.of(Ordered("x", size))) for size in shape)
    made = transform.haar_nd(trees)
    padded = tuple(tree.leaves for tree in trees)
    possible = np.zeros(padded, dtype=bool)
    possible[tuple(slice(0, size) for size in shape)] = True
    for c in (1, 2):
        if limit(Domain.of(Ordered("x", int(np.prod(shape)))), c):
            found = brute_force(made.forward, made.weights, int(np.prod(padded)), possible.ravel(), change, c)
            assert found == c * made.cost(change)


MOVES = [
    (3,),
    (12,),
    (19,),
    (3, 3),
    (3, 12),
    (16, 19),
    (19, 19),
    (3, 3, 3),
    (3, 3, 5),
    (3, 3, 12),
    (7, 7, 9),
    (2, 3, 3, 4),
]


@pytest.mark.parametrize("shape", MOVES, ids=str)
def test_the_dearest_move_between_any_two_cells(shape):
    """Where the pairs part along each axis is a choice of its own: at the root, below it, or on some axes only."""
    trees = tuple(order.row_major(Domain.of(Ordered("x", size))) for size in shape)
    made = transform.haar_nd(trees)
    padded = tuple(tree.leaves for tree in trees)
    cells = np.ravel_multi_index(np.unravel_index(np.arange(np.prod(shape)), shape), padded)
    changes = np.array([made.forward(np.eye(1, int(np.prod(padded)), cell, dtype=np.int64)[0]) for cell in cells])
    dearest = max(int(np.abs(changes - one).sum(axis=1).max()) for one in changes)
    assert made.cost("replace") == max(dearest, int(np.abs(changes).sum(axis=1).max()))


def test_many_axes_are_resolved_at_once():
    """The pairs of kinds of 26 axes are 2^26 and more; the cost of 26 axes of two cells each is known: 2 * 2^26 entries
    that differ from 0, less the 2^26 in which they agree."""
    for sizes, cost in (([2] * 26, 2**26), ([3] * 13, 3**13)):
        domain = Domain(tuple(Ordered(f"d{i}", size) for i, size in enumerate(sizes)))
        assert ks.privelet("2d").on(domain, Unit("person", "replace", 1), "1").scale == cost


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_identity(size, change):
    made = transform.identity(size)
    for c in (1, 2, 3):
        found = brute_force(made.forward, made.weights, size, np.ones(size, bool), change, c)
        assert found == c * made.cost(change)


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("name", ["eight cells", "masked map", "map x age", "one cell", "cut squares of the standard"])
def test_counts_of_cuts(name, change):
    """Each measured level of a count tree changes by at most c (replace: 2c), and add-remove reaches it."""
    standard = Domain.of(Mesh("g", "5km", (848 + 7, 624 + 1), shape=(3, 2)), mask=mask((3, 2), [(1, 1)]))
    domain = DOMAINS.get(name, standard)
    word = "morton" if name in DOMAINS else "jis"
    tree = order.make(word, domain)
    run = ks.refined_tree("u4", word).on(domain, Unit("p", change, 1), "1")
    assert len(run.cuts) >= 2 or domain.size < 4
    for depth, _ in run.cuts:

        def forward(leaves, depth=depth):
            return leaves.reshape(-1, tree.leaves // max(1, _nodes(tree, depth))).sum(axis=1)

        weights = np.ones(_nodes(tree, depth), dtype=np.int64)
        found = brute_force(forward, weights, tree.leaves, tree.possible_leaves(), change, 1)
        assert found <= run.scale * run.guarantee.epsilon
        assert change == "replace" or found == 1


def _nodes(tree, depth):
    return int(np.prod([digit.radix for digit in tree.digits[:depth]], dtype=object)) if depth else 1


def test_the_papers_numbers():
    full = order.morton(Domain.of(Mesh("g", shape=(512, 512))))
    assert full.cost("add-remove") == 19  # 1 + k
    assert full.cost("replace") == 36  # 2k, not 2(1 + k)
    assert order.row_major(Domain.of(Ordered("x", 1))).cost("replace") == 1
    axes = tuple(order.row_major(Domain.of(Ordered("x", 512))) for _ in range(2))
    assert transform.haar_nd(axes).cost("add-remove") == 100


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("max_weight", [None, 7])
@pytest.mark.parametrize("name", ["eight cells", "masked map", "one cell"])
def test_every_recipe_scales_with_its_unit(name, max_weight, change):
    domain = DOMAINS[name]
    trees = (ks.privelet("morton"), ks.privelet("2d"), ks.haar_topdown(), ks.recipes.hierarchy())
    cells = (ks.geometric(), ks.laplace(), ks.simplex(), ks.nonneg_lasso("3"), ks.recipes.sparse())
    for recipe in (*trees, *cells, ks.recipes.fourier(), ks.recipes.matrix(workload="prefix")):
        one = recipe.scale(domain, Unit("p", change, 1), "0.5")
        three = recipe.scale(domain, Unit("p", change, 3, max_weight), "0.5")
        assert three == one * 3 * (max_weight or 1)
        assert recipe.scale(domain, Unit("p", change, 1), "0.25") == 2 * one


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 11, 16, 21])
def test_padded_axis_equals_the_same_axis_leaf_by_leaf(size):
    bits = (size - 1).bit_length()
    leaves = np.zeros(1 << bits, dtype=np.uint8)
    leaves[:size] = factors.ALL
    pyramid = factors.pyramid(leaves, (2,) * bits)
    assert factors.padded_costs(bits, size) == factors.explicit_costs(pyramid, (2,) * bits)
