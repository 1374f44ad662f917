"""Hierarchy: noisy counts of every node of a tree, made consistent by least squares; dense and linear [Hay2010]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.budget.accounting import Losses
from kasuri.errors import DomainError
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact
from kasuri.published.bars import HierarchyBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.counttree import Trees
from kasuri.recipes.joins import Cuts, LeastSquares, node_variances, variances, visit_of
from kasuri.recipes.mechanism import (
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    TreeRun,
    dense,
    kept,
    of_sizes,
    scale_of,
)  # fmt: skip
from kasuri.recipes.spending import cuts_of, fits, level_cost, level_losses, share_words
from kasuri.recipes.visit import Visit
from kasuri.refine.least_squares import consistency
from kasuri.schema import Domain, Unit


def hierarchy(order: Literal["1d", "morton", "hierarchy"] | None = None) -> Mechanism:
    """Noisy counts of every node of a tree, made consistent by least squares; may be negative [Hay2010].

    order "1d": a binary tree over the cells row by row, as in the paper; "morton": squares of a mesh (a quadtree);
    "hierarchy": axes along their public trees; left out, that where there are any, else "1d". Every level has the same
    share of epsilon. Nothing is made non-negative: `refined_tree` does that.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each level's counts change by c in all (replace: 2c), c =
    counts a unit adds; L levels: scale L c / epsilon. Guarantee: epsilon-DP, exactly. Proof: docs/proofs/hierarchy.md.
    Public: domain, mask, order. Assumes: a good keystream.

    Cost: O(n). References: [Hay2010].
    """
    word = "1d" if order is None else order
    if word not in ("1d", "morton", "hierarchy"):
        raise DomainError(f'hierarchy: order {order!r} is not known; use "1d", "morton" or "hierarchy"')
    along = None if order is not None else hierarchy("hierarchy")
    return Hierarchy("hierarchy", "docs/proofs/hierarchy.md", word, (), binary=word == "1d", along_trees=along)


@dataclass(frozen=True)
class Hierarchy(Trees):
    """Every level of a tree, equally. `binary`: every binary level, not only those that split all dimensions."""

    binary: bool

    def stored(self) -> dict[str, Any]:
        return super().stored() | {"refine": "consistency", "descent": "dense", "shares": "u4"}

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> HierarchyRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        tree, cost = self.tree(domain), level_cost(unit)
        dense(self.name, tree.leaves)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        if self.binary:
            cuts: Cuts = tuple((at, Fraction(1, tree.depth + 1)) for at in range(tree.depth + 1))
        else:
            cuts = cuts_of(tree, LeastSquares().presets["u4"](len(tree.stages) - 1))
        run = HierarchyRun(self, domain, claim, cost, noise, tree, cuts)
        fits(run.visit)
        return run


@dataclass(frozen=True, eq=False)
class HierarchyRun(TreeRun):
    cuts: Cuts
    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED
    fractions: ClassVar[bool] = True

    def arguments(self) -> dict[str, Any]:
        return {"shares": "u4"}

    def bars(self, measurements: Measurements | None) -> HierarchyBars:
        return HierarchyBars(self.domain, max(self.visit.scales), self.tree, self.visit.cuts)

    @property
    def losses(self) -> Losses:
        return level_losses(self, self.cuts)

    @property
    def visit(self) -> Visit:
        return visit_of(self.tree, self.noise.scale, self.cuts, LeastSquares())

    def further(self) -> dict[str, Any]:
        return {"shares": share_words(self.cuts)}

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        """Noisy counts of every possible node of every measured level, made consistent by least squares."""
        tree, visit = self.tree, self.visit
        leaves = np.zeros(tree.leaves, dtype=np.int64)
        leaves[tree.keys(cells)] = values
        possible = tree.possible_leaves()
        levels: list[tuple[NDArray[Any], Int]] = []
        nodes, before = np.zeros(0, dtype=np.int64), tree.leaves
        for depth, scale in zip(visit.cuts, visit.scales, strict=True):
            stride = tree.stride(depth)
            above, nodes = nodes, np.flatnonzero(possible.reshape(-1, stride).any(axis=1))
            if levels:
                wide = before // stride
                levels[-1] = levels[-1][0], np.searchsorted(nodes, np.append(above, above[-1] + 1) * wide)
            noise = DiscreteLaplace(scale).draw(streams, nodes.size, threads, "noise", depth)
            sums = leaves.reshape(-1, stride).sum(axis=1)
            levels.append((sums[nodes] + noise, np.zeros(nodes.size + 1, dtype=np.int64)))
            before = stride
        made = consistency(levels, variances(visit.scales))
        found = tree.cells(nodes)
        ranked = np.argsort(found)
        return Drawn(*kept(found[ranked], made[ranked]))

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        if not self.tree.whole:
            return NoForm(
                "no closed form for hierarchy where padding or a mask leaves nodes out: its error differs from node to "
                "node"
            )
        found = [BlockError(size, sqrt(variance), True) for size, variance in node_variances(self.visit)]
        return of_sizes(found, sizes)

    def blocks(self) -> None:
        return None
