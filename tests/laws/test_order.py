"""Trees: keys and cells are inverse, blocks are squares, structural zeros stand where they should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasuri import meshcode
from kasuri._kernels.sort import join_sorted, sort_pairs
from kasuri.errors import DomainError
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.trees import order


def naive_key(tree, cell):
    """A leaf's key digit by digit, from the description."""
    rest, index = cell, []
    for dim in reversed(tree.dims):
        index.append(rest % dim.size)
        rest //= dim.size
    index.reverse()
    key = 0
    for digit in tree.digits:
        at = index[digit.dim]
        at = at if tree.dims[digit.dim].places is None else int(tree.dims[digit.dim].places[at])
        key = key * digit.radix + at // digit.weight % digit.radix
    return key


axes = st.one_of(
    st.builds(lambda r, c: Mesh("g", shape=(r, c)), st.integers(1, 9), st.integers(1, 9)),
    st.builds(lambda n: Ordered("x", n), st.integers(1, 20)),
)


@given(first=axes, second=st.integers(1, 6), third=st.integers(1, 5))
def test_keys_are_a_bijection_onto_the_possible_leaves(first, second, third):
    domain = Domain.of(first, Ordered("age", second), Nominal("sex", tuple(f"s{i}" for i in range(third))))
    cells = np.arange(domain.size)
    for tree in (order.morton(domain), order.row_major(domain), order.hierarchy(domain)):
        keys = tree.keys(cells)
        assert keys.tolist() == [naive_key(tree, int(cell)) for cell in cells]
        assert np.array_equal(tree.cells(keys), cells)
        assert np.array_equal(np.sort(keys), np.flatnonzero(tree.possible_leaves()))


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 7), cols=st.integers(1, 7), ages=st.integers(1, 3))
def test_mask_and_padding_are_the_impossible_leaves(seed, rows, cols, ages):
    rng = np.random.default_rng(seed)
    joint = rng.random((rows, cols, ages)) < 0.5
    joint[0, 0, 0] = False
    for mask in ({"g": joint[:, :, 0]}, {("g", "age"): joint}, {"age": joint[0, 0, :]}):
        domain = Domain.of(Mesh("g", shape=(rows, cols)), Ordered("age", ages), mask=mask)
        good = np.flatnonzero(domain.possible(np.arange(domain.size)))
        assert np.array_equal(good, np.flatnonzero(domain.possible_dense().ravel()))
        for tree in (order.morton(domain), order.row_major(domain)):
            assert np.array_equal(np.sort(tree.keys(good)), np.flatnonzero(tree.possible_leaves()))


@given(first=axes, second=st.integers(1, 6), third=st.integers(1, 5), mixed=st.booleans())
def test_keys_rise_inside_the_runs_that_are_not_sorted(first, second, third, mixed):
    domain = Domain.of(first, Ordered("age", second), Ordered("home", third))
    for tree in (order.morton(domain, ("age", "home") if mixed else ()), order.row_major(domain)):
        keys = tree.keys(np.arange(domain.size))
        assert (np.diff(keys.reshape(-1, tree.rising_cells), axis=1) > 0).all()
        assert (np.diff(keys.reshape(-1, tree.shared_tail[0]), axis=1) > 0).all()
    if isinstance(first, Mesh) and not mixed:
        assert order.morton(domain).rising_cells % (first.shape[1] * second * third) == 0


@given(
    sizes=st.lists(st.integers(0, 40), max_size=5),
    bits=st.integers(1, 30),
    skip=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
def test_parts_are_joined_in_order(sizes, bits, skip, seed):
    """By the bits from `skip` up, stably: pairs that agree in those keep their order."""
    rng = np.random.default_rng(seed)
    parts = [(rng.integers(0, 1 << bits, size), rng.integers(0, 9, size)) for size in sizes]
    keys, values = (np.concatenate([part[i] for part in parts] + [np.zeros(0, np.int64)]) for i in (0, 1))
    ranked = np.argsort(keys >> skip, kind="stable")
    out_keys, out_values = join_sorted(parts, bits, skip)
    assert np.array_equal(out_keys, keys[ranked]) and np.array_equal(out_values, values[ranked])
    if keys.size:
        again = sort_pairs(keys.copy(), values.copy(), bits, min(skip, bits))
        assert np.array_equal(again[0], out_keys) and np.array_equal(again[1], out_values)


def test_morton_of_a_square_mesh_is_bit_interleaving():
    tree = order.morton(Domain.of(Mesh("g", shape=(16, 16))))
    row, col = np.divmod(np.arange(256), 16)
    assert np.array_equal(tree.keys(np.arange(256)), meshcode.morton(row, col))


@pytest.mark.parametrize("shape", [(64, 16), (5, 40)])
def test_blocks_near_the_leaves_are_squares(shape):
    domain = Domain.of(Mesh("g", shape=shape))
    tree = order.morton(domain)
    row, col = domain.unravel(np.arange(domain.size))
    keys = tree.keys(np.arange(domain.size))
    for height in (2, 4):
        block = {}
        for key, r, c in zip(keys >> height, row, col, strict=True):
            block.setdefault(int(key), set()).add((int(r) >> height // 2, int(c) >> height // 2))
        assert all(len(squares) == 1 for squares in block.values())


def test_interleave_mixes_the_named_axes():
    domain = Domain.of(Mesh("o", shape=(4, 4)), Mesh("d", shape=(4, 4)), Ordered("h", 2))
    plain, mixed = order.morton(domain), order.morton(domain, ("o", "d"))
    assert [digit.dim for digit in plain.digits] == [0, 1, 0, 1, 2, 3, 2, 3, 4]
    assert [digit.dim for digit in mixed.digits] == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    cells = np.arange(domain.size)
    assert np.array_equal(mixed.cells(mixed.keys(cells)), cells)


def test_large_domains_fit_int64():
    domain = Domain.of(Mesh("g", shape=(1 << 20, 1 << 20)), Ordered("age", 1 << 22))
    tree = order.morton(domain)
    cells = np.array([0, 1, (1 << 62) - 1, 123456789012345678], dtype=np.int64)
    assert np.array_equal(tree.cells(tree.keys(cells)), cells)
    assert tree.cost("add-remove") == 63


def test_a_tree_beyond_2_62_leaves_is_refused():
    domain = Domain.of(*(Ordered(f"x{i}", (1 << 12) + 1) for i in range(5)))
    with pytest.raises(DomainError, match="2\\^62 leaves"):
        order.morton(domain)


def test_hierarchy_follows_the_tree():
    labels = ("d", "a", "c", "b")
    tree = order.hierarchy(Domain.of(Nominal("w", labels, Tree.of({"p": ["a", "b"], "q": ["c", "d"]}))))
    place = dict(zip(labels, tree.keys(np.arange(4)).tolist(), strict=True))
    assert place == {"a": 0, "b": 1, "c": 2, "d": 3}
