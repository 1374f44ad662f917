"""Differences: every coefficient of a tree of sums and differences (Haar wavelets), measured and inverted; dense.

Also the dense forms of haar_topdown: T1, every coefficient and then the descent, and the paper's floating point.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from kasuri.budget.accounting import Losses
from kasuri.errors import DomainError
from kasuri.noise.blocks import dense_coins
from kasuri.noise.laws import DiscreteLaplace, FloatLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact
from kasuri.published.bars import AxisBars, Bars, FullBars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.mechanism import (
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    Replay,
    Run,
    TreeRun,
    dense,
    equal_losses,
    kept,
    of_sizes,
    possible_cells,
    scale_of,
)  # fmt: skip
from kasuri.refine.topdown import topdown, topdown_float
from kasuri.schema import Domain, Ordered, Unit
from kasuri.trees import order as orders
from kasuri.trees import transform
from kasuri.trees.order import Order

EXACT = 1 << 52
"""Sums beyond it lose their last digits as floating-point numbers: no noise shows in them."""
INVERTED = "they are the noisy numbers inverted, one for one"
_PRIVELET = "docs/proofs/privelet.md"


def privelet(order: Literal["1d", "2d", "morton"] = "morton") -> Mechanism:
    """Sum-difference (Haar) coefficients plus exact noise, inverted; no refinement, cells may be negative [Xiao2011].

    order "1d": the cells row by row; "morton": along the Morton curve; "2d": standard decomposition, axis by axis.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the cost of the tree (1 + k add-remove, 2k
    replace for 2^k cells); "2d": c times the product over axes (add-remove).
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/privelet.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Xiao2011], [Terada2015, sec. 5.3].
    """
    if order not in ("1d", "2d", "morton"):
        raise DomainError(f'privelet: order {order!r} is not known; use "1d", "2d" or "morton"')
    return AxisByAxis("privelet", _PRIVELET) if order == "2d" else Inverted("privelet", _PRIVELET, order)


@dataclass(frozen=True)
class Dense(Mechanism):
    """One tree over all cells, every coefficient of it measured."""

    tree_word: str
    interleave: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        return {"noise": DiscreteLaplace.name, "order": self.tree_word, "interleave": self.interleave}

    @property
    def ignores_trees(self) -> str | None:
        return orders.ignoring(self.tree_word)

    def tree(self, domain: Domain) -> Order:
        tree = orders.halved(self.tree_word, domain, self.interleave)
        dense(self.name, tree.leaves)
        return tree


@dataclass(frozen=True)
class Inverted(Dense):
    """privelet along one tree."""

    def stored(self) -> dict[str, Any]:
        return super().stored() | {"transform": "sum_difference", "refine": "inverse"}

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> InvertedRun:
        claim, tree = self.claim(domain, unit, epsilon, DiscreteLaplace), self.tree(domain)
        cost = tree.cost(unit.change)
        return InvertedRun(self, domain, claim, cost, DiscreteLaplace(scale_of(unit, cost, claim.epsilon)), tree)


@dataclass(frozen=True)
class Refined(Dense):
    """haar_topdown(descent="dense"): T1."""

    def stored(self) -> dict[str, Any]:
        return super().stored() | {"transform": "sum_difference", "refine": "topdown", "descent": "dense"}

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> RefinedRun:
        claim, tree = self.claim(domain, unit, epsilon, DiscreteLaplace), self.tree(domain)
        cost = tree.cost(unit.change)
        return RefinedRun(self, domain, claim, cost, DiscreteLaplace(scale_of(unit, cost, claim.epsilon)), tree)


@dataclass(frozen=True)
class InFloats(Dense):
    """haar_topdown(transform="haar"): the paper's floating-point form."""

    def stored(self) -> dict[str, Any]:
        own = {"transform": "haar", "noise": FloatLaplace.name, "refine": "topdown", "descent": "dense"}
        return super().stored() | own

    def told_apart(self) -> list[str]:
        return [*super().told_apart(), "haar"]

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> InFloatsRun:
        claim, tree = self.claim(domain, unit, epsilon, FloatLaplace), self.tree(domain)
        cost = tree.cost(unit.change)
        return InFloatsRun(self, domain, claim, cost, FloatLaplace(scale_of(unit, cost, claim.epsilon)), tree)


def tree_errors(tree: Order, domain: Domain, variance: float, *, exact: bool) -> list[BlockError]:
    """Error of every height of a binary tree of sums and differences.

    k levels: Var = v (4^(l-k) + sum_{i=l+1..k} 4^(l-i)) for a block of 2^l cells, v the variance of one coefficient's
    noise; it is (2/3) lambda^2 (1 + 2/q^2) with q = 2^(k-l) [Terada2015, eq. 51]. Where padding or a mask leaves a
    split unmeasured a child keeps its parent's variance: that of a single draw is then a bound.
    """
    if not tree.whole:
        sizes = (*(1 << at for at in range(tree.depth) if 1 << at < domain.size), domain.size)
        return [BlockError(size, sqrt(variance), False, bound=True) for size in sizes]
    factors = ((1 << at, transform.node_variance(tree.depth - at)) for at in range(tree.depth + 1))
    return [BlockError(size, sqrt(variance * factor), exact) for size, factor in factors]


@dataclass(frozen=True, eq=False)
class DenseRun(TreeRun):
    """The dense composition refine(transform(counts) + noise), word for word."""

    @property
    def losses(self) -> Losses:
        return equal_losses(self)

    @property
    def parts(self) -> transform.Transform:
        return transform.sum_difference(self.tree)

    @abstractmethod
    def finish(self, coefficients: Any, streams: Streams) -> Any:
        """Noisy coefficients -> leaves."""

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        tree, parts = self.tree, self.parts
        leaves = np.zeros(tree.leaves, dtype=np.int64)
        leaves[tree.keys(cells)] = values
        coefficients = parts.forward(leaves)
        coefficients += parts.weights * self.noise.draw(streams, coefficients.size, threads)
        made = self.finish(coefficients, streams)
        keys = np.flatnonzero(tree.possible_leaves())
        found = tree.cells(keys)
        ranked = np.argsort(found)
        return Drawn(*kept(found[ranked], made[keys[ranked]]))

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        return NoBars(f"{self.mechanism.name} with these options publishes no measurements")

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError]:
        found = tree_errors(self.tree, self.domain, self.noise.variance, exact=self.signed)
        return of_sizes(found, sizes)

    def blocks(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class InvertedRun(DenseRun):
    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED
    fractions: ClassVar[bool] = True
    untold: ClassVar[str] = INVERTED

    def finish(self, coefficients: Any, streams: Streams) -> Any:
        return self.parts.inverse(coefficients)

    def bars(self, measurements: Measurements | None) -> FullBars:
        return FullBars(self.domain, self.tree, self.noise.variance)

    def replay(self, drawn: Drawn) -> Replay:
        if np.abs(drawn.values).sum() >= EXACT:
            return super().replay(drawn)
        leaves = np.zeros(self.tree.leaves)
        leaves[self.tree.keys(drawn.cells)] = drawn.values
        return replace(super().replay(drawn), shown=(self.noise.chances(np.rint(self.parts.forward(leaves))),))


@dataclass(frozen=True, eq=False)
class RefinedRun(DenseRun):
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES

    def finish(self, coefficients: Any, streams: Streams) -> Any:
        sides = transform.levels(self.tree.possible_leaves())
        return topdown(coefficients, sides, dense_coins(streams, coefficients.size))


@dataclass(frozen=True, eq=False)
class InFloatsRun(DenseRun):
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    fractions: ClassVar[bool] = True

    @property
    def parts(self) -> transform.Transform:
        return transform.haar(self.tree)

    def finish(self, coefficients: Any, streams: Streams) -> Any:
        return topdown_float(coefficients, transform.levels(self.tree.possible_leaves()))


@dataclass(frozen=True)
class AxisByAxis(Mechanism):
    """privelet(order="2d"): the standard decomposition, a tree per dimension."""

    def stored(self) -> dict[str, Any]:
        return {"transform": "haar_nd", "noise": DiscreteLaplace.name, "refine": "inverse", "order": "2d"}

    @property
    def ignores_trees(self) -> str:
        return "2d"

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> AxisByAxisRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        trees = tuple(orders.row_major(Domain.of(Ordered(f"d{i}", size))) for i, size in enumerate(domain.shape))
        dense(self.name, prod(tree.leaves for tree in trees))
        cost = transform.haar_nd_cost(trees, unit.change)
        return AxisByAxisRun(self, domain, claim, cost, DiscreteLaplace(scale_of(unit, cost, claim.epsilon)), trees)


@dataclass(frozen=True, eq=False)
class AxisByAxisRun(Run):
    trees: tuple[Order, ...]
    signed: ClassVar[bool] = True
    bias: ClassVar[Bias] = Bias.UNBIASED
    fractions: ClassVar[bool] = True
    untold: ClassVar[str] = INVERTED

    @property
    def order(self) -> str:  # a domain of one dimension has one tree, and its name
        return self.trees[0].name if len(self.trees) == 1 else "2d"

    @property
    def losses(self) -> Losses:
        return equal_losses(self)

    @cached_property
    def parts(self) -> transform.Transform:
        return transform.haar_nd(self.trees)

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        padded = np.zeros(tuple(tree.leaves for tree in self.trees), dtype=np.int64)
        padded[self.domain.unravel(cells)] = values
        coefficients = self.parts.forward(padded.ravel())
        coefficients += self.noise.draw(streams, coefficients.size, threads)
        inside = tuple(slice(0, size) for size in self.domain.shape)
        made = self.parts.inverse(coefficients).reshape(padded.shape)[inside].ravel()
        possible = possible_cells(self.domain)
        return Drawn(*kept(possible, made[possible]))

    def bars(self, measurements: Measurements | None) -> AxisBars:
        return AxisBars(self.domain, self.trees, self.noise.variance)

    def replay(self, drawn: Drawn) -> Replay:
        """The inverse lost coefficients in padding and mask: without these every one of them shows."""
        known = super().replay(drawn)
        whole = not self.domain.zeros and tuple(tree.leaves for tree in self.trees) == self.domain.shape
        if not whole or np.abs(drawn.values).sum() >= EXACT:
            return known
        full = np.zeros(self.domain.size)
        full[drawn.cells] = drawn.values
        return replace(known, shown=(self.noise.chances(np.rint(self.parts.forward(full))),))

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        """Aligned blocks of the same height along every dimension: the product of the axes' factors."""
        if not all(tree.whole for tree in self.trees) or self.domain.zeros:
            found = [BlockError(size, sqrt(self.noise.variance), False, bound=True) for size in (1, self.domain.size)]
            return of_sizes(found, sizes)
        depths, v = [tree.depth for tree in self.trees], self.noise.variance
        heights = {1 << (at * len(depths)): [depth - at for depth in depths] for at in range(min(depths) + 1)}
        heights[self.domain.size] = [0] * len(depths)
        factors = ((size, prod(map(transform.node_variance, left))) for size, left in heights.items())
        return of_sizes([BlockError(size, sqrt(v * factor), True) for size, factor in factors], sizes)

    def blocks(self) -> None:
        return None
