"""The plans that spread a draw over a cluster, run here without one: blocks in any order and any grouping give the
release of one machine, bit for bit."""

import shutil
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from reference.bounding import bounded

import kasuri as ks
from kasuri.ingest import parts, scratch
from kasuri.noise.rng import Streams
from kasuri.recipes.engine import prefix_sums
from kasuri.spark import bounding, joined, keep, plans, subtrees
from kasuri.spark.rows import no_rows


@dataclass(frozen=True)
class Rows:
    """An Arrow table that answers as a Spark frame does."""

    table: Any

    @property
    def rows(self):
        return self.table.num_rows

    @property
    def frame(self):
        return self

    def toArrow(self):  # noqa: N802 (Spark's name)
        return self.table


class Here:
    """As `subtrees.Copy`, in this process: groups of blocks in a random order, rows shuffled."""

    def __init__(self, groups, rng):
        self._groups, self._rng = groups, rng
        self.given = Rows

    def put(self, table, name, columns):
        return Rows(table)

    def here(self, kept, columns):
        table = kept.table.select(list(columns))
        return table.take(self._rng.permutation(table.num_rows))

    def totals(self, counts, tallies):
        key, value = (counts.table[name].to_numpy() for name in ("key", "value"))
        return [tally.sums(key, value) for tally in tallies]

    def coarser(self, counts, ratio):
        table = counts.table.drop(["block"])
        return Rows(table.append_column("block", pa.array(counts.table["block"].to_numpy() // ratio)))

    def kept(self, frame, name, columns):
        names = [pair.split()[0] for pair in columns.split(", ")]
        return Rows(frame.table.select(names))

    def spread(self, rows, roots, task, columns):
        table, roots = rows.table, pa.table(roots)
        table = table.take(self._rng.permutation(table.num_rows))
        group_of, root_group = (t["block"].to_numpy() % self._groups for t in (table, roots))
        out = [no_rows(columns)]
        for group in self._rng.permutation(self._groups):
            own, root = table.filter(pa.array(group_of == group)), roots.filter(pa.array(root_group == group))
            out += [task(*pair) for pair in subtrees._pairs(own, root)]
        return Rows(pa.concat_tables(out))


def drawn(run, counts, source, groups, rng):
    """(cells, values, measurements as sorted rows) by the plan of `run`."""
    plan = plans.plan(run)
    block, key = plan.address(counts.cells)
    table = Rows(pa.table({"block": block, "key": key, "value": counts.values}))
    blocks, at = np.unique(block, return_inverse=True)
    sums = np.bincount(at, weights=counts.values, minlength=blocks.size).astype(np.int64)
    made = plan.draw(Here(groups, rng), table, blocks, sums, Streams(source.release_key(), run.mechanism.name))
    rows = pa.concat_tables([f.table.select(["part", "bucket", "level", "place", "value"]) for f in made.parts])
    rows = rows.sort_by([("part", "ascending"), ("bucket", "ascending"), ("place", "ascending")])
    cells, measured = (rows.filter(pa.array(rows["part"].to_numpy() == part)) for part in (0, 1))
    return cells["place"].to_numpy(), cells["value"].to_numpy(), measured, made.scales, made.words


SEA = np.random.default_rng(0).random((300, 500)) < 0.3
DOMAINS = {
    "mask": ks.Domain.of(ks.Mesh("grid", shape=(300, 500)), mask={"grid": SEA}),
    "axes": ks.Domain.of(ks.Mesh("grid", shape=(2000, 1500)), ks.Ordered("age", 7)),
    "tree": ks.Domain.of(ks.Nominal("area", ("a", "b", "c", "d", "e")), ks.Mesh("grid", shape=(60, 50))),
    "one": ks.Domain.of(ks.Ordered("x", 1)),
}
RECIPES = {
    "geometric": ks.geometric(),
    "haar plain": ks.haar_topdown(descent="plain"),
    "haar jump": ks.haar_topdown(descent="jump", order="1d"),
    "even16": ks.refined_tree(),
    "u4": ks.refined_tree("u4"),
    "two heights": ks.refined_tree({0: "0.5", 1: "0.5"}),
    "hierarchy": ks.refined_tree("u4", order="hierarchy"),
}
BLOCKWISE = sorted(RECIPES)
RECIPES |= {
    "bayes": ks.bayes_tree(),
    "hierarchy bayes": ks.bayes_tree("sparse", order="hierarchy"),
    "expect": ks.bayes_tree(order="interleaved", expect=True),
    "pilot": ks.bayes_tree(pilot=True),
    "auto": ks.auto((1, 64)),
    "woven": ks.woven_tree(),
    "woven views": ks.woven_tree(views={"cells": 12, "area": 60, "grid@2": 50}),
    "woven whole": ks.woven_tree(whole=True),
    "woven pilot": ks.woven_tree(pilot=True),
    "woven look": ks.woven_tree(pilot="cells"),
    "best": ks.best(),
}


@settings(max_examples=25)
@given(
    domain=st.sampled_from(sorted(DOMAINS)), recipe=st.sampled_from(BLOCKWISE), seed=st.integers(0, 99),
    records=st.sampled_from([0, 1, 40, 2000]), groups=st.sampled_from([1, 3, 50]),
)  # fmt: skip
def test_blocks_anywhere_are_the_release_of_one_machine(domain, recipe, seed, records, groups):
    assert_release_of_one_machine(domain, recipe, seed, records, groups)


@pytest.mark.parametrize("recipe", ["haar plain", "haar jump", "even16"])
def test_a_cut_tree_is_the_release_of_one_machine(recipe):
    assert_release_of_one_machine("axes", recipe, 5, 2000, 7)


@pytest.mark.parametrize(
    ("domain", "recipe", "cut"),
    [
        ("mask", "bayes", True), ("mask", "pilot", False), ("mask", "pilot", True), ("tree", "expect", True),
        ("tree", "hierarchy bayes", True), ("tree", "woven", True), ("tree", "woven views", True),
        ("tree", "woven views", False), ("tree", "woven pilot", False), ("tree", "woven look", False),
        ("tree", "woven whole", False),
        pytest.param("mask", "auto", True, marks=pytest.mark.full), ("one", "bayes", False),
        *(pytest.param("axes", name, True, marks=pytest.mark.full) for name in ("bayes", "pilot", "best")),
    ],
)  # fmt: skip
def test_what_is_refined_as_a_whole_is_the_release_of_one_machine(monkeypatch, domain, recipe, cut):
    """Measured in blocks and joined, and where the tree is small drawn by one task."""
    if cut and domain != "axes":  # which has 2^25 leaves
        monkeypatch.setattr(joined, "TOP_NODES", 0)
    plan = plans.plan(RECIPES[recipe].on(DOMAINS[domain], ks.Unit("person", "add-remove", 1), "0.5"))
    assert plan.whole is not cut
    for seed, records in ((5, 3000), (6, 0)):
        assert_release_of_one_machine(domain, recipe, seed, records, 7)


def assert_release_of_one_machine(domain, recipe, seed, records, groups):
    table, mechanism, rng = DOMAINS[domain], RECIPES[recipe], np.random.default_rng(seed)
    cells = np.unique(rng.integers(0, table.size, records))
    cells = cells[table.possible(cells)]
    unit = ks.Unit("person", "add-remove", 1)
    counts = ks.Counts.from_coo(cells, rng.integers(1, 300, cells.size), table, unit)
    if recipe == "two heights" and domain in ("mask", "axes"):  # thousands of blocks: the small tree has them too
        return
    try:
        run = mechanism.on(table, unit, "0.5")
    except ks.DomainError:  # a tree without that height, or too many cells for a dense recipe
        return
    local = ks.release(counts, mechanism, epsilon="0.5", ledger=None, source=ks.seeded(seed))
    got_cells, got_values, measured, scales, words = drawn(run, counts, ks.seeded(seed), groups, rng)
    assert np.array_equal(got_cells, local.cells) and np.array_equal(got_values, local.values)
    assert {**run.words(), **words} == local.recipe
    if local.measurements is None:
        assert scales is None and measured.num_rows == 0
        return
    for name, column in (("level", "level"), ("prefix", "place"), ("value", "value")):
        assert np.array_equal(measured[column].to_numpy(), getattr(local.measurements, name)), name
    assert scales == local.measurements.scale


@pytest.mark.parametrize(
    ("domain", "recipe", "kind"),
    [
        ("mask", "geometric", subtrees.Cells), ("axes", "haar plain", subtrees.Halves),
        ("axes", "haar jump", subtrees.Halves), ("mask", "haar plain", subtrees.Whole),
        ("axes", "even16", subtrees.CountTree), ("one", "u4", subtrees.Whole),
    ],
)  # fmt: skip
def test_every_plan_is_used(domain, recipe, kind):
    run = RECIPES[recipe].on(DOMAINS[domain], ks.Unit("person", "add-remove", 1), "1")
    assert isinstance(plans.plan(run), kind)


@pytest.mark.parametrize("recipe", ["haar plain", "haar jump", "even16"])
def test_blocks_without_a_record_have_their_mass(recipe):
    """All records in one corner: most of the released mass of a large tree is elsewhere."""
    domain, unit = DOMAINS["axes"], ks.Unit("person", "add-remove", 1)
    counts = ks.Counts.from_coo([0], [5000], domain, unit)
    run = RECIPES[recipe].on(domain, unit, "0.05")
    local = ks.release(counts, RECIPES[recipe], epsilon="0.05", ledger=None, source=ks.seeded(3))
    cells, values, *_ = drawn(run, counts, ks.seeded(3), 7, np.random.default_rng(0))
    elsewhere = plans.plan(run).address(cells)[0] != plans.plan(run).address(np.array([0]))[0][0]
    assert values[elsewhere].sum() > 0 and values.sum() == local.total()


@pytest.mark.parametrize("recipe", ["haar plain", "haar jump", "even16"])
def test_the_top_needs_the_sums_of_the_blocks_alone(recipe):
    """Where in its block a record is makes no difference to the driver's part."""
    domain, unit = DOMAINS["axes"], ks.Unit("person", "add-remove", 1)
    rng = np.random.default_rng(1)
    cells = np.unique(rng.integers(0, domain.size, 500))
    run = RECIPES[recipe].on(domain, unit, "0.5")
    plan = plans.plan(run)
    block, key = plan.address(cells)
    order = np.argsort(key)
    streams = Streams(ks.seeded(1).release_key(), run.mechanism.name)
    blocks, sums = np.unique(block, return_counts=True)
    one, many = np.ones(cells.size, np.int64), prefix_sums(sums)
    if isinstance(plan, subtrees.Halves):
        first = blocks << (run.tree.depth - plan.cut.engine.block_depth)
        pair = [
            plan.cut.engine.top(key[order], prefix_sums(one), streams, True),
            plan.cut.engine.top(first, many, streams, True),
        ]
        assert all(np.array_equal(a, b) for a, b in zip(pair[0].joined(), pair[1].joined(), strict=True))
        return
    first = blocks * plan.visit.order.stride(plan.visit.cuts[plan.visit.split])
    whole, summed = plan.visit.top(key[order], prefix_sums(one), streams), plan.visit.top(first, many, streams)
    assert all(np.array_equal(a.y, b.y) and np.array_equal(a.x, b.x) for a, b in zip(whole[0], summed[0], strict=True))
    assert np.array_equal(whole[1], summed[1]) and np.array_equal(whole[2], summed[2])


def test_a_task_writes_only_where_its_token_is_and_says_what(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir(0o700)
    token = keep.mark(folder)
    values = [2**62, 2**62, 2**62, -5, 0, 7]
    batches = pa.table({"cell": range(6), "value": values}).to_batches(4)
    (receipt,) = (batch.to_pylist()[0] for batch in keep.writer(str(folder), token, "counts")(iter(batches)))
    assert (receipt["rows"], int(receipt["total"])) == (6, sum(values))
    kept = folder / receipt["file"]
    assert parquet.read_table(kept)["value"].to_pylist() == values and kept.stat().st_mode & 0o777 == 0o600
    assert list(keep.writer(str(folder), token, "counts")(iter(batches[:0]))) == []

    def breaking():
        yield batches[0]
        raise ValueError("person-77")

    with pytest.raises(ks.KasuriError) as caught:
        list(keep.writer(str(folder), token, "counts")(breaking()))
    assert "person-77" not in str(caught.value)
    with pytest.raises(ks.DomainError, match="does not see the private folder"):
        list(keep.writer(str(folder), "0" * 32, "counts")(iter(batches)))
    assert {path.name for path in folder.iterdir()} == {keep.TOKEN, receipt["file"]}
    shutil.rmtree(folder)
    with pytest.raises(ks.DomainError, match="does not see the private folder"):
        list(keep.writer(str(folder), token, "counts")(iter(batches)))
    assert not folder.exists()


def test_too_many_drawn_nodes_end_the_release_before_they_are_fetched(monkeypatch):
    """By their number alone, which noise decides."""
    monkeypatch.setattr(joined, "TOP_NODES", 0)
    monkeypatch.setattr(joined, "MOST_DRAWN", 10)
    monkeypatch.setattr(Here, "here", None)
    counts = ks.Counts.from_coo([5], [9000], DOMAINS["mask"], unit := ks.Unit("person", "add-remove", 1))
    run = RECIPES["bayes"].on(DOMAINS["mask"], unit, "0.5")
    with pytest.raises(ks.NumericsError, match="at most 10 are brought to the driver"):
        drawn(run, counts, ks.seeded(3), 7, np.random.default_rng(0))


def test_noisy_rows_that_are_lost_end_the_release(tmp_path):
    table = pa.table({"level": pa.array([0, 1], pa.int32()), "place": [0, 3], "value": [5, -2]})
    token = keep.mark(tmp_path)
    (receipt,) = (
        row for b in keep.writer(str(tmp_path), token, "noisy")(iter(table.to_batches())) for row in b.to_pylist()
    )
    copy = subtrees.Copy(None, tmp_path, token)
    kept = keep.Kept(None, 2, 3, (receipt["file"],))
    assert copy.here(kept, ("level", "value")).to_pylist() == [{"level": 0, "value": 5}, {"level": 1, "value": -2}]
    for wrong in (replace(kept, total=4), replace(kept, rows=3), replace(kept, files=("gone.parquet",))):
        with pytest.raises(ks.NumericsError, match="does not hold what was drawn"):
            copy.here(wrong, ("level", "value"))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("max_weight", [None, 4])
@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 28), (40, 1 << 28), (1 << 21, 1), (1 << 21, 1 << 28)])
def test_units_are_bounded_piece_by_piece(monkeypatch, text, max_weight, rows, size):
    """However a task's batches are cut, and wherever a unit's rows are among them, the cells kept are those of the slow
    twin."""
    monkeypatch.setattr(parts, "PART_ROWS", rows)
    monkeypatch.setattr(parts, "PART_BYTES", size)
    domain, rng, key = ks.Domain.of(ks.Ordered("x", 50)), np.random.default_rng(rows + size), bytes(range(32))
    unit = ks.Unit("person", "add-remove", 3, max_weight)
    ids = rng.choice(
        ["7", "07", "é", "e\u0301", "", "x" * 900] if text else [0, 7, -7, 2**63 - 1, -(2**63)], 300
    ).tolist()
    cells, weights = rng.integers(0, 50, 300), rng.integers(1, 9, 300)
    table = pa.table({"id": ids, "cell": cells, "weight": np.minimum(weights, max_weight or 1)})
    task = bounding.bound(domain, unit, max_weight is not None, key)
    made = pa.Table.from_batches(list(task(iter(table.to_batches(13)))))
    found = {}
    for cell, value in zip(made["cell"].to_pylist(), made["value"].to_pylist(), strict=True):
        found[cell] = found.get(cell, 0) + value
    assert found == bounded(list(zip(ids, cells.tolist(), weights.tolist(), strict=True)), 3, key, max_weight)
    none = list(task(iter([])))
    assert none == []


def test_a_working_folder_that_stays_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch.time, "sleep", lambda seconds: None)
    with pytest.raises(ks.PrivacyError, match="remove it by hand"), scratch.folder(inside=tmp_path) as made:
        monkeypatch.setattr(scratch.shutil, "rmtree", lambda path, ignore_errors: None)
    assert made.exists()
