"""What tasks and driver hand to one another: counts by block, and drawn rows, as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.recipes.mechanism import Run
from kasuri.trees.order import Order

COUNTS = "block bigint, key bigint, value bigint"
ROWS = "part int, bucket int, level int, place bigint, value bigint"
"""A drawn row: `place` is the cell of a released value, or the prefix of a measured node at `level`. Buckets rise with
(level, place) within a part and are few, so that rows can be numbered in order though no machine sees them all."""
RELEASED, MEASURED = 0, 1
"""The parts: which table a drawn row belongs to."""
BUCKETS = 1024
"""Most buckets of a level, or of the cells."""


def no_rows(columns: str) -> Any:
    """No rows, with these columns."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()}
    return pa.table({name: pa.array([], kinds[kind]) for name, kind in (pair.split() for pair in columns.split(", "))})


def in_order(own: Any, size: int) -> tuple[Int, Int]:
    """Keys (below `size`) and values of a block, in key order."""
    from kasuri._kernels.sort import sort_pairs

    keys, values = (np.array(own.column(name).to_numpy(), dtype=np.int64) for name in ("key", "value"))
    return sort_pairs(keys, values, (size - 1).bit_length(), 0)


def joined_levels(parts: Sequence[tuple[Int, ...]]) -> tuple[Int, Int, Int]:
    level, prefix, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    return level, prefix, value


def drawn_rows(
    run: Run, released: tuple[Int, Int] | None, measured: tuple[Int, ...] = (), tree: Order | None = None
) -> Any:
    """Drawn rows as an Arrow table: (cells, values) and (level, prefix, value). Levels below 0 are not depths of the
    tree; they come whole, in one call."""
    import pyarrow as pa

    parts: list[tuple[Int, ...]] = []
    if released is not None:
        cells, values = released
        bucket = cells // -(-run.domain.size // BUCKETS)
        parts.append((np.full(cells.size, RELEASED), bucket, np.zeros(cells.size, dtype=np.int64), cells, values))
    if measured and tree is not None:
        level, prefix, value = measured
        width = np.array([-(-nodes // BUCKETS) for nodes in _nodes(tree)])
        span = width[np.maximum(level, 0)]
        for other in np.unique(level[level < 0]).tolist():
            own = level == other
            span[own] = 1 + int(prefix[own].max()) // BUCKETS
        bucket = (level + 1) * BUCKETS + prefix // span
        parts.append((np.full(level.size, MEASURED), bucket, level, prefix, value))
    kinds = {"part": pa.int32(), "bucket": pa.int32(), "level": pa.int32(), "place": pa.int64(), "value": pa.int64()}
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0)] * len(kinds)
    numpy_of = {pa.int32(): np.int32, pa.int64(): np.int64}
    return pa.table({
        name: pa.array(column.astype(numpy_of[kind]), kind)
        for (name, kind), column in zip(kinds.items(), columns, strict=True)
    })  # fmt: skip


def _nodes(tree: Order) -> list[int]:
    """Nodes of the padded tree at every depth."""
    out = [1]
    for digit in tree.digits:
        out.append(out[-1] * digit.radix)
    return out
