"""Errors of a tree recipe's released sums, from its noisy numbers: blocks by their number of cells (`Run.after`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from kasuri.published.bars import TreeBars
from kasuri.recipes.mechanism import AreaError, Drawn, NoForm, TreeRun, blocks_are_nodes
from kasuri.refine import after


def projected(run: TreeRun, drawn: Drawn, sizes: Sequence[int]) -> list[AreaError] | NoForm:
    """Of a table that is about the nearest one to the estimates of its noisy numbers."""
    bars = drawn.bars or run.bars(drawn.measurements)
    if not isinstance(bars, TreeBars):
        return NoForm(f"no estimate: {run.mechanism.name} publishes no noisy numbers to estimate its error from")
    keys = run.tree.keys(drawn.cells)
    ranked = np.argsort(keys, kind="stable")
    levels, released = bars.plain.levels, (keys[ranked], drawn.values[ranked])
    return of_tree(run, bars.plain.depths, levels, sizes, released)


def of_tree(
    run: TreeRun, depths: Sequence[int], levels: Sequence[after.Nodes], sizes: Sequence[int],
    released: tuple[np.ndarray, np.ndarray] | None = None, total: float | None = None,
) -> list[AreaError]:  # fmt: skip
    """Blocks of these sizes that are nodes of the tree. `total`: the variance of all cells together, where it is not
    that of the top level's sum."""
    out, below = [], after.hidden(run.tree, depths, levels, released)
    for size, depth in by_size(run, sizes):
        if depth == 0 and total is not None:
            out.append(AreaError(size, sqrt(total)))
            continue
        found = after.mean_square(run.tree, depths, levels, depth, below, released)
        out.append(AreaError(size, sqrt(found.value), found.bound))
    return out


def by_size(run: TreeRun, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Those of `sizes` whose aligned blocks are nodes of the tree, as in `square_errors`, each with its depth."""
    last = run.tree.depth
    known = {run.tree.stride(depth): depth for depth in range(last, -1, -1)} if blocks_are_nodes(run) else {}
    known |= {1: last, run.domain.size: 0}
    return [(size, known[size]) for size in sorted(sizes) if size in known]
