"""Trees that are refined as a whole, on a cluster: what a pilot chooses, measured where the counts are, joined here.

The driver gets the sums of the pilot's and the parts' groups, measures those and the top of the tree; executors measure
the blocks. From there on everything is a function of noisy numbers, and made on the driver from the drawn nodes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.errors import NumericsError
from kasuri.noise.rng import Streams
from kasuri.published.measurements import Measurements
from kasuri.recipes import engine, replay
from kasuri.recipes.joined import ChosenBlocks, JoinedBlocks
from kasuri.recipes.mechanism import Run
from kasuri.recipes.visit import TOP_NODES, Visit
from kasuri.spark.keep import Kept
from kasuri.spark.rows import ROWS, drawn_rows, in_order
from kasuri.spark.subtrees import Copy, Drawn, Task, measure
from kasuri.trees.order import Order

MOST_DRAWN = 1 << 26
"""Most nodes below the top that are brought to the driver."""


@dataclass(frozen=True, eq=False)
class Joined:
    """bayes_tree, auto, woven_tree. Trees of few leaves are measured and refined by one task, as by one machine."""

    run: Run
    cut: ChosenBlocks

    @property
    def tree(self) -> Order:
        return self.cut.visits[0].order

    @property
    def whole(self) -> bool:
        """Is there little to cut, or nothing?"""
        return self.tree.leaves <= TOP_NODES or any(visit.split + 1 == len(visit.cuts) for visit in self.cut.visits)

    @property
    def _block(self) -> int:
        """Leaves of a block: the smallest of all that may be chosen."""
        return min(_stride(visit) for visit in self.cut.visits)

    def address(self, cells: Int) -> tuple[Int, Int]:
        keys = self.tree.keys(cells)
        return (np.zeros(keys.size, dtype=np.int64) if self.whole else keys // self._block), keys

    def draw(self, copy: Copy, counts: Kept, blocks: Int, sums: Int, streams: Streams) -> Drawn:
        numbers = None
        if self.cut.pilot is not None:
            (found,) = copy.totals(counts, [self.cut.pilot])
            numbers = self.cut.pilot.noisy(found, streams)
        cut = self.cut.choose(numbers, streams)
        if self.whole:
            task = _everything(self.run, cut, self.tree, streams)
            rows = copy.spread(counts, {"block": np.zeros(1, dtype=np.int64)}, task, ROWS)
            return Drawn((copy.kept(rows, "drawn", ROWS),), cut.scales, cut.words)
        return self._by_blocks(copy, counts, cut, blocks, sums, streams)

    def _by_blocks(
        self, copy: Copy, counts: Kept, cut: JoinedBlocks, blocks: Int, sums: Int, streams: Streams
    ) -> Drawn:
        visit, tree, noisy_rows = cut.visit, self.tree, f"block bigint, {ROWS}"
        ratio = _stride(visit) // self._block
        if ratio > 1:
            counts, own = copy.coarser(counts, ratio), blocks // ratio
            blocks, at = np.unique(own, return_inverse=True)
            finer, sums = sums, np.zeros(blocks.size, dtype=np.int64)
            np.add.at(sums, at, finer)
        top, kept, x = visit.top(blocks * _stride(visit), engine.prefix_sums(sums), streams, cut.known)
        roots = {"block": top[-1].prefix[kept], "x": x}
        task = measure(self.run, visit, streams, cut.known)
        noisy = copy.kept(copy.spread(counts, roots, task, noisy_rows), "noisy", noisy_rows)
        if noisy.rows > MOST_DRAWN:
            raise NumericsError(
                f"noise left {noisy.rows} nodes to refine together, at most {MOST_DRAWN} are brought to the driver; "
                "nothing is released. Use refined_tree or haar_topdown, which refine block by block"
            )
        parts = [part.noisy(found, streams) for part, found in
                 zip(cut.parts, copy.totals(counts, cut.parts), strict=True)]  # fmt: skip
        # below the top the numbers are those of the tasks; what is published of top and parts is added to them
        below = copy.here(noisy, ("level", "place", "value"))
        levels = [(np.full(one.y.size, depth), one.prefix, one.y) for depth, one in zip(visit.cuts, top, strict=False)]
        levels.append(tuple(below.column(name).to_numpy().astype(np.int64) for name in ("level", "place", "value")))
        del below
        level, prefix, value = (np.concatenate(column) for column in zip(*levels, strict=True))
        del levels
        ranked = np.lexsort((prefix, level))
        scales = dict(zip(visit.cuts, visit.scales, strict=True))
        tree_only = Measurements(level[ranked], prefix[ranked], value[ranked], scales)
        del level, prefix, value, ranked
        drawn = cut.finish(replay.visited(visit, tree_only), parts)
        del tree_only
        released = copy.put(drawn_rows(self.run, (drawn.cells, drawn.values)), "drawn", ROWS)
        assert drawn.measurements is not None
        upper = drawn.measurements.level <= visit.cuts[visit.split]
        above = tuple(getattr(drawn.measurements, name)[upper] for name in ("level", "prefix", "value"))
        more = copy.put(drawn_rows(self.run, None, above, tree), "measured", ROWS)
        return Drawn((noisy, released, more), cut.scales, cut.words)


def _stride(visit: Visit) -> int:
    """Leaves below a root of a block."""
    return visit.order.stride(visit.cuts[visit.split])


def _everything(run: Run, cut: JoinedBlocks, tree: Order, streams: Streams) -> Task:
    """All counts -> all that is published."""

    def task(own: Any, root: Any) -> Any:
        drawn = cut.finish(*cut.measured(*in_order(own, tree.leaves), streams, 1))
        measured = drawn.measurements
        levels = () if measured is None else (measured.level, measured.prefix, measured.value)
        return drawn_rows(run, (drawn.cells, drawn.values), levels, tree)

    return task
