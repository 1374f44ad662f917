"""A part of a public tree: what lies below some of its nodes, as if nothing else were possible."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from kasuri.arrays import Int
from kasuri.trees.order import Order


@dataclass(frozen=True, eq=False)
class Part(Order):
    """The tree below the rising nodes `kept` of depth `at`, and the way down to them. Keys, strides and the number of
    leaves are those of the whole tree; only `children` sees less."""

    at: int = field(default=0, kw_only=True)
    kept: Int = field(default_factory=lambda: np.zeros(1, dtype=np.int64), kw_only=True)

    @classmethod
    def of(cls, tree: Order, at: int, kept: Int) -> Part:
        return cls(**{part.name: getattr(tree, part.name) for part in fields(Order)}, at=at, kept=kept)

    def children(self, parents: Int, start: int, end: int) -> tuple[Int, Int]:
        if start >= self.at:
            return super().children(parents, start, end)
        stop = min(end, self.at)
        nodes = np.unique(self.kept // self.width(stop, self.at))
        nodes = nodes[np.isin(nodes // self.width(start, stop), parents)]
        if end > stop:
            nodes, _ = super().children(nodes, stop, end)
        return nodes, np.append(np.searchsorted(nodes, parents * self.width(start, end)), nodes.size)
