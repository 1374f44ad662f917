"""What a top-down release always is: non-negative integers that add up, zero where nobody can be, repeatable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.domains import taken_by

import kasuri as ks
from kasuri.recipes import engine
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.trees import order

PERSON = Unit("person", "add-remove", 1)
WARDS = Nominal("ward", tuple("abcdefg"), Tree.of({"n": ["a", "b", "c"], "s": ["d", {"t": ["e", "f"]}], "w": ["g"]}))


def name(recipe):
    return "-".join(str(recipe.parts()[part]) for part in ("name", "order", "transform", "descent"))


@st.composite
def tables(draw):
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    ages = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    mask = rng.random(shape) < draw(st.sampled_from([0.0, 0.3]))
    mask[0, 0] = False
    domain = Domain.of(Mesh("g", shape=shape), Ordered("age", ages), WARDS, mask={"g": mask})
    truth = rng.poisson(draw(st.sampled_from([0.0, 0.02, 2.0])), domain.shape)
    truth[mask] = 0
    return domain, truth


@given(table=tables(), seed=st.integers(0, 2**32), epsilon=st.sampled_from(["0.05", "1", "20"]))
def test_feasible(table, seed, epsilon):
    domain, truth = table
    for recipe in (
        ks.haar_topdown(),
        ks.haar_topdown(descent="jump"),
        ks.haar_topdown(descent="dense"),
        ks.haar_topdown("1d"),
        ks.haar_topdown(transform="nominal"),
        ks.haar_topdown(interleave=("g", "age")),
    ):
        counts = ks.Counts.from_dense(truth, taken_by(recipe, domain), PERSON)
        out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed))
        assert out.values.dtype == np.int64
        assert (out.values > 0).all()
        assert (np.diff(out.cells) > 0).all()
        assert domain.possible(out.cells).all() and (out.cells < domain.size).all()
        if out.measurements is not None and out.measurements.level.size:
            assert out.total() == max(0, int(out.measurements.value[0]))


def test_measurements_are_all_nodes_of_positive_sum_and_explain_the_release():
    """Plain descent: refining the published measurements again, with the published parity rule, gives sums that add up;
    which nodes were drawn follows from the released values alone."""
    domain = Domain.of(Mesh("g", shape=(40, 50)))
    rng = np.random.default_rng(0)
    counts = ks.Counts.from_dense(rng.poisson(0.3, (40, 50)), domain, PERSON)
    out = ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None, source=ks.seeded(1))
    tree = order.morton(domain)
    leaves, possible = np.zeros(tree.leaves, np.int64), tree.possible_leaves()
    leaves[tree.keys(out.cells)] = out.values
    expected = []
    level = tree.depth
    while leaves.size > 1:
        level -= 1
        both, sums = possible[0::2] & possible[1::2], leaves[0::2] + leaves[1::2]
        expected += [(level, int(node)) for node in np.flatnonzero(both & (sums > 0))]
        leaves, possible = sums, possible[0::2] | possible[1::2]
    drawn = list(zip(out.measurements.level.tolist(), out.measurements.prefix.tolist(), strict=True))
    assert drawn == sorted([(-1, 0), *expected])


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.haar_topdown(descent="jump"), ks.geometric(),
                                    ks.privelet(), ks.haar_topdown(descent="dense")], ids=name)  # fmt: skip
def test_threads_change_nothing_and_secure_runs_differ(recipe):
    shape = (1100, 600)  # 21 levels: two blocks
    domain = Domain.of(Mesh("g", shape=shape), mask=np.add.outer(np.arange(1100), np.arange(600)) < 90)
    rng = np.random.default_rng(2)
    truth = rng.poisson(0.2, shape)
    truth[~domain.possible_dense()] = 0
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    one, two, five = (
        ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(3), threads=threads)
        for threads in (1, 2, 5)
    )
    for other in (two, five):
        assert np.array_equal(one.cells, other.cells)
        assert np.array_equal(one.values, other.values)
    first, second = (ks.release(counts, recipe, epsilon="0.5", ledger=None) for _ in range(2))
    assert not np.array_equal(first.to_dense(), second.to_dense())
    assert first.provenance["release_id"] != second.provenance["release_id"]


def test_pieces_of_noise_and_coins_change_nothing(monkeypatch):
    """The kernel pauses for noise, coins and room; where it pauses must not matter."""
    domain = Domain.of(Mesh("g", shape=(300, 300)))
    counts = ks.Counts.from_dense(np.random.default_rng(4).poisson(0.5, (300, 300)), domain, PERSON)
    for descent in ("plain", "jump"):
        recipe = ks.haar_topdown(descent=descent)
        normal = ks.release(counts, recipe, epsilon="0.3", ledger=None, source=ks.seeded(5))
        with monkeypatch.context() as patch:
            patch.setattr(engine._Tape, "_next_size", lambda self, which, first, most: (3, 5)[which])
            small = ks.release(counts, recipe, epsilon="0.3", ledger=None, source=ks.seeded(5))
        assert np.array_equal(normal.cells, small.cells) and np.array_equal(normal.values, small.values)


def test_partition_into_blocks_is_the_order_of_the_tree_alone():
    tree = order.morton(Domain.of(Mesh("g", shape=(1 << 10, 1 << 10)), Ordered("a", 1 << 17)))
    assert engine.Descent(tree, 1, True).block_depth == engine.MAX_BLOCK_DEPTH


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.haar_topdown(transform="nominal"), ks.geometric(),
                                    ks.laplace(), ks.privelet("1d"), ks.privelet("2d")], ids=name)  # fmt: skip
@pytest.mark.parametrize("domain", [Domain.of(Ordered("x", 1)), Domain.of(Mesh("g", shape=(1, 1))),
                                    Domain.of(Nominal("w", ("a",)))], ids=["ordered", "mesh", "nominal"])  # fmt: skip
def test_one_cell_and_empty_tables_work(recipe, domain):
    for truth in (np.zeros(domain.shape, int), np.full(domain.shape, 3)):
        for change in ("add-remove", "replace"):
            counts = ks.Counts.from_dense(truth, domain, Unit("p", change, 1))
            totals = [
                ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(seed)).total()
                for seed in range(30)
            ]
            assert len(set(totals)) > 2  # noise even on one cell, even under replace: a person may drop out


def test_empty_table_gets_noise():
    domain = Domain.of(Mesh("g", shape=(32, 32)))
    counts = ks.Counts.from_coo([], [], domain, PERSON)
    assert any(
        ks.release(counts, ks.haar_topdown(), epsilon="0.5", ledger=None, source=ks.seeded(s)).total() for s in range(9)
    )


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.haar_topdown(descent="jump"),
                                    ks.haar_topdown(descent="dense"), ks.haar_topdown(transform="nominal")],
                         ids=name)  # fmt: skip
def test_totals_at_the_limit_neither_overflow_nor_fail(recipe):
    """No error and no wrap may depend on the counts: the largest total works like any other."""
    domain = Domain.of(Ordered("x", 2), Nominal("w", tuple("abcdefg")))
    for value in ((1 << 62) - 1, 1 << 62):
        counts = ks.Counts.from_coo([3], [value], domain, PERSON)
        for seed in range(6):
            out = ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(seed))
            assert (out.values > 0).all()
            assert abs(sum(out.values.tolist()) - value) < 10_000


def test_sparse_at_10_to_11_cells():
    """The national table of the paper: 500 m mesh x 20 ages x 2 sexes x 2,000 municipalities."""
    domain = Domain.of(
        Mesh("g", level="500m", origin=(6912, 3328), shape=(1300, 1200)),
        Ordered("age", 20),
        Nominal("sex", ("f", "m")),
        Ordered("home", 2000),
    )
    assert domain.size > 10**11
    rng = np.random.default_rng(6)
    cells = np.unique(rng.integers(0, domain.size, 100_000))
    counts = ks.Counts.from_coo(cells, rng.integers(1, 50, cells.size), domain, PERSON)
    out = ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None, source=ks.seeded(7))
    assert out.measurements is None  # jumps publish no trace
    assert abs(out.total() - counts.values.sum()) < 2000
    assert (np.diff(out.cells) > 0).all() and out.cells[-1] < domain.size
    assert out.cells.size < 2_000_000  # the cost follows the counts, not the 10^11 cells
