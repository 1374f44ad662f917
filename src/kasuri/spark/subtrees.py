"""The draw on a cluster: the driver runs the top of the tree on node sums, executors run the blocks below.

Every block has the keystreams it has on one machine (`engine`, `visit`), so a task that runs twice, at two places or
in another order writes the same numbers. Blocks with noisy mass and no record are drawn like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import NumericsError
from kasuri.noise.blocks import DENSE_BLOCK
from kasuri.noise.rng import Streams
from kasuri.recipes import engine
from kasuri.recipes.cells import CellBlocks
from kasuri.recipes.counttree import CountBlocks
from kasuri.recipes.descent import HalvingBlocks
from kasuri.recipes.joined import Tally
from kasuri.recipes.joins import variances
from kasuri.recipes.mechanism import Run, Words
from kasuri.recipes.visit import Visit
from kasuri.recipes.visit import Whole as Known
from kasuri.refine import least_squares
from kasuri.spark import keep
from kasuri.spark.keep import Kept
from kasuri.spark.rows import ROWS, drawn_rows, in_order, joined_levels, no_rows
from kasuri.spark.session import quiet, told
from kasuri.trees.order import Order
from kasuri.trees.visited import Level

Task = Callable[[Any, Any], Any]
"""(rows of a block, its root) -> rows, as Arrow tables."""
Batches = Callable[[Iterator[Any]], Iterator[Any]]

LOST = "a copy of noisy rows does not hold what was drawn; nothing is released"
PUT = 1 << 20
"""Rows that the driver writes at once."""
GROUPS = 256
"""Most groups of blocks that are handed to tasks."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """The drawn rows, with at least the columns ROWS, that no noise is drawn for again; the scales of the measurements;
    words about what noisy numbers chose."""

    parts: tuple[Kept, ...]
    scales: Mapping[int, Fraction] | None
    words: Words = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Copy:
    """The private folder, and what tasks read from there: the one copy of the counts first of all."""

    session: Any
    folder: Path
    token: str

    def kept(self, frame: Any, name: str, columns: str, made: Batches | None = None) -> Kept:
        """Run `frame` once and keep its rows in the folder, or what `made` makes of the batches of a task. What is read
        from there are the files that tasks gave a receipt for, and a lost one ends the release: passed over, the same
        keystream would meet another table."""
        write = keep.writer(str(self.folder), self.token, name)
        task = write if made is None else lambda batches: write(made(batches))
        with told():
            found = frame.mapInArrow(task, keep.RECEIPT).toArrow().to_pylist()
        return self._of(found, columns)

    def put(self, table: Any, name: str, columns: str) -> Kept:
        """Rows that the driver made, kept as those of a task are."""
        batches = keep.writer(str(self.folder), self.token, name)(iter(table.to_batches(PUT)))
        return self._of([row for batch in batches for row in batch.to_pylist()], columns)

    def _of(self, found: list[dict[str, Any]], columns: str) -> Kept:
        """The rows of these receipts."""
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        files = [f"file://{self.folder / receipt['file']}" for receipt in found]
        rows, total = sum(receipt["rows"] for receipt in found), sum(int(receipt["total"]) for receipt in found)
        if not files:
            return Kept(self.session.createDataFrame(no_rows(columns)), 0, 0)
        with told():
            frame = self.session.read.options(**strict).schema(columns).parquet(*files)
        return Kept(frame, rows, total, tuple(receipt["file"] for receipt in found))

    def here(self, kept: Kept, columns: Sequence[str]) -> Any:
        """Noisy rows in this process, as an Arrow table."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            read = [parquet.read_table(self.folder / name, columns=list(columns)) for name in kept.files]
        except (OSError, pa.ArrowException):
            raise NumericsError(LOST) from None
        table = pa.concat_tables(read) if read else no_rows(ROWS).select(list(columns))
        if table.num_rows != kept.rows or keep.total(table.column("value")) != kept.total:
            raise NumericsError(LOST)
        return table

    def sums(self, counts: Kept) -> tuple[Int, Int]:
        """Blocks and the sum of each: all that the driver sees of the counts."""
        from pyspark.sql import functions as fn

        summed = fn.sum("value").alias("sum"), fn.count(fn.lit(1)).alias("rows")
        with told():
            found = counts.frame.groupBy("block").agg(*summed).toArrow().sort_by("block")
        if keep.total(found.column("sum")) != counts.total or keep.total(found.column("rows")) != counts.rows:
            raise NumericsError("the copy of the counts does not hold what was counted; nothing is released")
        return found.column("block").to_numpy(), found.column("sum").to_numpy()

    def totals(self, counts: Kept, tallies: Sequence[Tally]) -> list[Int]:
        """The true sums of all groups of each tally."""
        from pyspark.sql import functions as fn

        out = [np.zeros(tally.groups, dtype=np.int64) for tally in tallies]
        if not tallies:
            return out
        groups = _groups([tally.of for tally in tallies])
        grouped = counts.frame.mapInArrow(groups, "tally int, at bigint, value bigint")
        with told():
            found = grouped.groupBy("tally", "at").agg(fn.sum("value").alias("sum")).toArrow()
        tally, at, sums = (found.column(name).to_numpy() for name in ("tally", "at", "sum"))
        for i, own in enumerate(out):
            own[at[tally == i]] = sums[tally == i]
        return out

    def coarser(self, counts: Kept, ratio: int) -> Kept:
        """The same rows by larger blocks, each of `ratio` blocks."""
        from pyspark.sql import functions as fn

        return replace(counts, frame=counts.frame.withColumn("block", fn.expr(f"block div {ratio}")))

    def spread(self, rows: Kept, roots: Mapping[str, NDArray[Any]], task: Task, columns: str) -> Any:
        """The frame of task(rows of a block, its root) over all `roots`, whether they have rows or not; run on the
        executors, several blocks at a time where there are many. Rows of blocks without a root, above which the noise
        left no mass, are passed over."""
        import pyarrow as pa
        from pyspark.sql import functions as fn

        frame = self.session.createDataFrame(pa.table({name: pa.array(column) for name, column in roots.items()}))
        span = 1 + int(roots["block"].max(initial=0)) // GROUPS
        group = (fn.col("block") / span).cast("bigint") if span > 1 else fn.col("block")

        def blocks(key: Any, own: Any, root: Any) -> Any:
            with quiet("blocks"):
                return pa.concat_tables([task(*pair) for pair in _pairs(own, root)] or [no_rows(columns)])

        return rows.frame.groupBy(group).cogroup(frame.groupBy(group)).applyInArrow(blocks, columns)


@dataclass(frozen=True, eq=False)
class Whole:
    """A tree too small to be cut: one task draws it as one machine would."""

    run: Run
    scales: Mapping[int, Fraction] | None
    tree: Order

    def address(self, cells: Int) -> tuple[Int, Int]:
        return np.zeros(cells.size, dtype=np.int64), cells

    def draw(self, copy: Copy, counts: Kept, blocks: Int, sums: Int, streams: Streams) -> Drawn:
        run, tree = self.run, self.tree

        def task(own: Any, root: Any) -> Any:
            drawn = run.draw(*in_order(own, run.domain.size), streams, 1)
            measured = drawn.measurements
            levels = () if measured is None else (measured.level, measured.prefix, measured.value)
            return drawn_rows(run, (drawn.cells, drawn.values), levels, tree)

        drawn = copy.spread(counts, {"block": np.zeros(1, dtype=np.int64)}, task, ROWS)
        return Drawn((copy.kept(drawn, "drawn", ROWS),), self.scales)


@dataclass(frozen=True, eq=False)
class Cells:
    """Independent noise per cell: blocks of DENSE_BLOCK cells, at most 1,024 of them; the driver draws nothing."""

    run: Run
    cut: CellBlocks

    def address(self, cells: Int) -> tuple[Int, Int]:
        return cells // DENSE_BLOCK, cells

    def draw(self, copy: Copy, counts: Kept, blocks: Int, sums: Int, streams: Streams) -> Drawn:
        run, cut, size = self.run, self.cut, self.run.domain.size

        def task(own: Any, root: Any) -> Any:
            block = root.column("block")[0].as_py()
            cells = np.arange(block * DENSE_BLOCK, min((block + 1) * DENSE_BLOCK, size))
            noisy = np.empty(cells.size, dtype=np.int64)
            cut.noise.draw_block(streams, block, noisy)
            at, values = in_order(own, size)
            noisy[at - cells[0]] += values
            keep = run.domain.possible(cells) & (noisy != 0)
            return drawn_rows(run, (cells[keep], noisy[keep]))

        every = np.arange(-(-size // DENSE_BLOCK), dtype=np.int64)
        drawn = copy.spread(counts, {"block": every}, task, ROWS)
        return Drawn((copy.kept(drawn, "drawn", ROWS),), None)


@dataclass(frozen=True, eq=False)
class Halves:
    """haar_topdown: the driver descends from the noisy total to the cut, executors from there to the leaves."""

    run: Run
    cut: HalvingBlocks

    def address(self, cells: Int) -> tuple[Int, Int]:
        descent = self.cut.engine
        keys = descent.order.keys(cells)
        return keys >> (descent.order.depth - descent.block_depth), keys

    def draw(self, copy: Copy, counts: Kept, blocks: Int, sums: Int, streams: Streams) -> Drawn:
        run, descent, record = self.run, self.cut.engine, self.cut.record
        tree = descent.order
        first_leaves = blocks << (tree.depth - descent.block_depth)
        top = descent.top(first_leaves, engine.prefix_sums(sums), streams, record)

        def task(own: Any, root: Any) -> Any:
            prefix, S = (root.column(name)[0].as_py() for name in ("block", "refined"))
            keys, values = in_order(own, tree.leaves)
            made = descent.below(prefix, S, keys, engine.prefix_sums(values), streams, record)
            leaves, values = made.joined()
            return drawn_rows(run, (tree.cells(leaves), values), joined_levels(made.records) if record else (), tree)

        roots = dict(zip(("block", "refined"), top.joined(), strict=True))
        parts = [copy.kept(copy.spread(counts, roots, task, ROWS), "drawn", ROWS)]
        if record:
            parts.append(copy.put(drawn_rows(run, None, joined_levels(top.records), tree), "measured", ROWS))
        return Drawn(tuple(parts), self.cut.scales)


@dataclass(frozen=True, eq=False)
class CountTree:
    """refined_tree: the driver measures the cuts of the top and executors those below, once. The refinement then reads
    noisy numbers alone: the blocks' estimates come up to the driver, shares of the total go down to the blocks."""

    run: Run
    cut: CountBlocks

    @property
    def visit(self) -> Visit:
        return self.cut.visit

    def address(self, cells: Int) -> tuple[Int, Int]:
        keys = self.visit.order.keys(cells)
        return keys // self.visit.order.stride(self.visit.cuts[self.visit.split]), keys

    def draw(self, copy: Copy, counts: Kept, blocks: Int, sums: Int, streams: Streams) -> Drawn:
        run, visit = self.run, self.visit
        noisy_rows = f"block bigint, {ROWS}"
        top, open_nodes, x = visit.top(
            blocks * visit.order.stride(visit.cuts[visit.split]), engine.prefix_sums(sums), streams
        )
        kept = np.zeros(top[-1].y.size, dtype=bool)
        kept[open_nodes] = True
        roots = {"block": top[-1].prefix[kept], "x": x, "y": top[-1].y[kept]}
        measured = copy.spread(counts, roots, measure(run, visit, streams), noisy_rows)
        noisy = copy.kept(measured, "noisy", noisy_rows)
        estimates = copy.spread(noisy, roots, _estimate(visit), "block bigint, z double, v double")
        with told():
            found = estimates.toArrow()
        shares = self._shares(top, kept, found)
        roots = {"block": top[-1].prefix[kept], "share": shares[kept]}
        drawn = copy.kept(copy.spread(noisy, roots, _share(run, visit), ROWS), "drawn", ROWS)
        levels = [
            (np.full(level.y.size, cut), level.prefix, level.y) for cut, level in zip(visit.cuts, top, strict=False)
        ]
        above = copy.put(drawn_rows(run, None, joined_levels(levels), visit.order), "measured", ROWS)
        return Drawn((noisy, drawn, above), self.cut.scales)

    def _shares(self, top: list[Level], kept: NDArray[np.bool_], found: Any) -> Int:
        """The driver's half of `least_squares`: from the estimates of the blocks' roots to their shares."""
        variance = variances(self.visit.scales, self.visit.law)
        z, v = top[-1].y.astype(np.float64), np.full(kept.size, variance[self.visit.split])
        at = np.searchsorted(top[-1].prefix, found.column("block").to_numpy())
        z[at], v[at] = found.column("z").to_numpy(), found.column("v").to_numpy()
        levels = [(level.y, level.first) for level in top]
        above_z, above_v = least_squares.combine(levels[:-1], variance, below=(z, v))
        every_z, every_v = [*above_z, z], [*above_v, v]
        return least_squares.share(levels, every_z, every_v, least_squares.whole_total(every_z[0]), open_below=kept)[-1]


def measure(run: Run, visit: Visit, streams: Streams, known: Known | None = None) -> Task:
    """True records of a block -> its noisy counts, cut by cut."""
    import pyarrow as pa

    def task(own: Any, root: Any) -> Any:
        block = root.column("block")[0].as_py()
        keys, values = in_order(own, visit.order.leaves)
        levels = visit.below(block, root.column("x")[0].as_py(), keys, engine.prefix_sums(values), streams, known)
        cuts = visit.cuts[visit.split + 1 :]
        made = [(np.full(level.y.size, cut), level.prefix, level.y) for cut, level in zip(cuts, levels, strict=True)]
        rows = drawn_rows(run, None, joined_levels(made), visit.order)
        return rows.add_column(0, "block", pa.array(np.full(rows.num_rows, block, dtype=np.int64)))

    return task


def _groups(tallies: Sequence[Callable[[Int], Int]]) -> Any:
    """Counts -> (tally, group, sum), summed as far as a task sees them."""
    import pyarrow as pa

    def grouped(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("adding up groups"):
            for batch in batches:
                keys, values = (batch.column(name).to_numpy() for name in ("key", "value"))
                for tally, of in enumerate(tallies):
                    at, own = np.unique(of(keys), return_inverse=True)
                    sums = np.zeros(at.size, dtype=np.int64)
                    np.add.at(sums, own, values)
                    at, sums = at[at >= 0], sums[at >= 0]
                    columns = [pa.array(np.full(at.size, tally, dtype=np.int32)), pa.array(at), pa.array(sums)]
                    yield pa.RecordBatch.from_arrays(columns, ["tally", "at", "value"])

    return grouped


def _levels(visit: Visit, own: Any, root: int) -> list[tuple[Int, Int]]:
    """The (y, first) of a block's cuts and of its root above them, from its noisy rows; the root's y is left out."""
    level, prefix, y = (own.column(name).to_numpy() for name in ("level", "place", "value"))
    at = visit.split
    parents, out = np.array([root]), [np.zeros(1, dtype=np.int64)]
    firsts = []
    for cut in visit.cuts[at + 1 :]:
        mine = np.flatnonzero(level == cut)
        mine = mine[np.argsort(prefix[mine])]
        nodes = prefix[mine]
        of = nodes // (visit.order.stride(visit.cuts[at]) // visit.order.stride(cut))
        firsts.append(np.append(np.searchsorted(of, parents), nodes.size))
        parents, at = nodes, at + 1
        out.append(y[mine])
    firsts.append(np.zeros(parents.size + 1, dtype=np.int64))
    return list(zip(out, firsts, strict=True))


def _estimate(visit: Visit) -> Task:
    """Noisy counts of a block -> the estimate of its root and its variance."""
    import pyarrow as pa

    variance = variances(visit.scales, visit.law)[visit.split :]

    def task(own: Any, root: Any) -> Any:
        block = root.column("block")[0].as_py()
        levels = _levels(visit, own, block)
        levels[0] = (root.column("y").to_numpy(), levels[0][1])
        z, v = least_squares.combine(levels, variance)
        return pa.table({"block": pa.array([block], pa.int64()), "z": pa.array(z[0]), "v": pa.array(v[0])})

    return task


def _share(run: Run, visit: Visit) -> Task:
    """Noisy counts of a block and its share of the total -> released cells."""
    variance = variances(visit.scales, visit.law)[visit.split + 1 :]

    def task(own: Any, root: Any) -> Any:
        levels = _levels(visit, own, root.column("block")[0].as_py())[1:]
        z, v = least_squares.combine(levels, variance)
        values = least_squares.share(levels, z, v, root.column("share").to_numpy())[-1]
        leaves = np.sort(own.column("place").to_numpy()[own.column("level").to_numpy() == visit.cuts[-1]])
        keep = values > 0
        return drawn_rows(run, (visit.order.cells(leaves[keep]), values[keep]))

    return task


def _pairs(own: Any, root: Any) -> Iterator[tuple[Any, Any]]:
    """The rows of each root, and that root alone."""
    blocks = own.column("block").to_numpy()
    if np.any(blocks[1:] < blocks[:-1]):
        ranked = np.argsort(blocks, kind="stable")
        own, blocks = own.take(ranked), blocks[ranked]
    wanted = root.column("block").to_numpy()
    edges = np.searchsorted(blocks, wanted), np.searchsorted(blocks, wanted, side="right")
    for i, (low, high) in enumerate(zip(*edges, strict=True)):
        yield own.slice(low, high - low), root.slice(i, 1)
