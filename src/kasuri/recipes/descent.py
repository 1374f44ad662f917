"""Descent: haar_topdown, noisy sums and differences refined from the top at a cost that follows the filled cells.

`Halving` walks a binary tree, `Fan` a tree of any fan-outs; the dense forms are in `wavelet`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from kasuri.budget.accounting import Losses
from kasuri.errors import DomainError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact
from kasuri.published.bars import Bars, DifferenceBars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes import engine, spread
from kasuri.recipes.mechanism import (
    AreaError,
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    Replay,
    TreeRun,
    equal_losses,
    kept,
    of_sizes,
    scale_of,
)  # fmt: skip
from kasuri.recipes.replay import WRONG_SCALE, descends
from kasuri.recipes.wavelet import InFloats, Refined, tree_errors
from kasuri.schema import Domain, Unit
from kasuri.trees import order as orders
from kasuri.trees.order import Order

MEASURED_CELLS = 1 << 24
"""haar_topdown draws every node, and so publishes its measurements, up to this many leaves; above it jumps."""
_BASIS = "docs/proofs/haar_topdown.md"


def haar_topdown(
    order: Literal["morton", "1d", "jis"] | None = None,
    transform: Literal["sum_difference", "haar", "nominal"] | None = None,
    *,
    interleave: tuple[str, ...] = (),
    descent: Literal["auto", "dense", "plain", "jump"] = "auto",
) -> Mechanism:
    """Terada et al.: noisy sums and differences along a tree, refined from the top to non-negative numbers that add up.

    transform "sum_difference": exact integers. "haar": the paper's floating-point form, dense, for reproduction.
    "nominal": an axis is split along its public tree, any fan-outs. Left out, "nominal" where an axis has a public tree
    and nothing else was asked for, else "sum_difference" (order "morton"). order "jis" splits a mesh along the standard
    grid (80 km, 10 km, 1 km, 500 m, ...) with the nominal transform, for users whose areas are the 10 km mesh.
    `interleave` mixes the bits of the named
    axes. descent "plain" draws every node of positive refined sum and publishes its measurements; "jump" passes whole
    levels at once in empty parts (cost follows the output, not the tree's height) and publishes none; "dense" is T1,
    every coefficient; "auto" is plain up to 2^24 leaves, jump above.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the most measured coefficients on a possible
    cell's path, root included (1 + k for a full binary tree; replace: 2k for k >= 1, 1 for one cell).
    Guarantee: epsilon-DP, exactly ("haar": with idealised numerics). Proof: docs/proofs/haar_topdown.md.
    Public: domain, mask, order. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + outputs) with jumps, O(m + outputs * k) plain, O(n) dense; m records, n cells, k levels.
    References: [Terada2015, sec. 4.2; eq. 25, not 38-39], [JP6310345B2, eq. 33-36].
    """
    faults = []
    unasked = order is None and transform is None and descent == "auto" and not interleave
    order, transform = order or "morton", transform or "sum_difference"
    if order not in ("morton", "1d", "jis"):
        faults.append(f'haar_topdown: order {order!r} is not known; use "morton", "1d" or "jis"')
    if order == "jis":
        if transform == "haar":
            faults.append("haar_topdown: order='jis' has fan-outs above two; transform='haar' is binary")
        transform = "nominal"
    if transform not in ("sum_difference", "haar", "nominal"):
        faults.append(f'haar_topdown: transform {transform!r} is not known; use "sum_difference", "haar" or "nominal"')
    if descent not in ("auto", "dense", "plain", "jump"):
        faults.append(f'haar_topdown: descent {descent!r} is not known; use "auto", "dense", "plain" or "jump"')
    if transform != "sum_difference" and descent != "auto":
        faults.append(f'haar_topdown: descent is a choice of "sum_difference" only, not of {transform!r}')
    if (order == "1d" or transform == "nominal") and interleave:
        faults.append("haar_topdown: interleave needs order='morton' and a binary transform")
    if transform == "nominal" and order == "1d":
        faults.append("haar_topdown: the nominal transform follows the axes, not order='1d'")
    raise_faults(DomainError, faults)
    named, tree = ("haar_topdown", _BASIS), (order, tuple(interleave))
    if transform == "nominal":
        return Fan(*named, order, "jis" if order == "jis" else "hierarchy")
    if transform == "haar":
        return InFloats(*named, *tree)
    if descent == "dense":
        return Refined(*named, *tree)
    along = Fan(*named, order, "hierarchy") if unasked else None
    return Halving(*named, *tree, {"auto": None, "jump": True, "plain": False}[descent], along_trees=along)


@dataclass(frozen=True)
class Halving(Mechanism):
    """The descent on a binary tree. jumps: pass whole levels at once in empty parts; None: in large trees only."""

    tree_word: str
    interleave: tuple[str, ...] = ()
    jumps: bool | None = None

    def stored(self) -> dict[str, Any]:
        descent = {None: "auto", True: "jump", False: "plain"}[self.jumps]
        return {
            "transform": "sum_difference", "noise": DiscreteLaplace.name, "refine": "topdown",
            "order": self.tree_word, "interleave": self.interleave, "descent": descent,
        }  # fmt: skip

    def once_told_alike(self) -> list[Mechanism]:
        return [] if self.jumps is None else [replace(self, jumps=None)]

    @property
    def ignores_trees(self) -> str | None:
        return orders.ignoring(self.tree_word)

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> HalvingRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        tree = orders.halved(self.tree_word, domain, self.interleave)
        cost = tree.cost(unit.change)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        jumps = tree.leaves > MEASURED_CELLS if self.jumps is None else self.jumps
        return HalvingRun(self, domain, claim, cost, noise, tree, jumps)


@dataclass(frozen=True)
class HalvingBlocks:
    """The driver descends from the noisy total to the cut, executors from there to the leaves."""

    engine: engine.Descent
    record: bool

    @property
    def scales(self) -> dict[int, Fraction] | None:
        """Noise scales of the measurements by level."""
        return dict.fromkeys(range(-1, self.engine.order.depth), self.engine.scale) if self.record else None


@dataclass(frozen=True, eq=False)
class HalvingRun(TreeRun):
    mechanism: Halving
    jumps: bool
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES

    @property
    def descent(self) -> str:
        return "jump" if self.jumps else "plain"

    @property
    def losses(self) -> Losses:
        return equal_losses(self)

    @property
    def publishes(self) -> bool:  # type: ignore[override]
        return not self.jumps

    def arguments(self) -> dict[str, Any]:
        return {"descent": "auto"} if self.mechanism.jumps is None else {}

    def replay(self, drawn: Drawn) -> Replay:
        measured = drawn.measurements
        if measured is None:
            return super().replay(drawn)
        if any(scale != self.noise.scale for scale in measured.scale.values()):
            return Replay(wrong_measurements=WRONG_SCALE)
        if not descends(self.tree, measured, drawn.cells, drawn.values):
            return Replay(wrong_values="its values do not follow from the measurements")
        note = "the coins of the descent: random; the values follow from the measurements but for them"
        return Replay(notes=(note,), shown=(self.noise.chances(measured.value),))

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        if measurements is None:
            return NoBars(
                "drawn with level jumps, which leave no measurements; haar_topdown(descent='plain') publishes them"
            )
        return DifferenceBars(self.domain, self.tree, measurements)

    @property
    def engine(self) -> engine.Descent:
        return engine.Descent(self.tree, self.noise.scale, self.jumps)

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        parts, measurements = self.engine.run(keys, values, streams, threads, record=not self.jumps)
        del keys, values
        return Drawn(*by_cell(self.tree, self.domain, parts), measurements)

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError]:
        return of_sizes(tree_errors(self.tree, self.domain, self.noise.variance, exact=False), sizes)

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        return spread.projected(self, drawn, sizes)

    def blocks(self) -> HalvingBlocks:
        return HalvingBlocks(self.engine, not self.jumps)


@dataclass(frozen=True)
class Fan(Mechanism):
    """The descent on a tree of any fan-outs: nominal axes along their public trees, a mesh along the standard grid."""

    asked: str
    """The order that was asked for: releases store the word as it always was."""
    tree_word: Literal["hierarchy", "jis"]

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "nominal", "noise": DiscreteLaplace.name, "refine": "topdown", "order": self.asked,
            "descent": "plain",
        }  # fmt: skip

    def told_apart(self) -> list[str]:
        return [*super().told_apart(), "nominal"]

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> FanRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        tree = orders.make(self.tree_word, domain)
        cost: Fraction = tree.cost(unit.change)
        return FanRun(self, domain, claim, cost, DiscreteLaplace(scale_of(unit, cost, claim.epsilon)), tree)


@dataclass(frozen=True, eq=False)
class FanRun(TreeRun):
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        parts = [engine.FanDescent(self.tree, self.noise.scale).run(keys, values, streams)]
        return Drawn(*by_cell(self.tree, self.domain, parts))

    def bars(self, measurements: Measurements | None) -> NoBars:
        return NoBars(f"{self.mechanism.name} with these options publishes no measurements")

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm("no closed form for the nominal transform: its noise differs from node to node")

    def blocks(self) -> None:
        return None


def by_key(tree: Order, domain: Domain, cells: Int, values: Int) -> tuple[Int, Int]:
    """Rising keys of the tree and their values, from rising cells."""
    from kasuri._kernels.sort import join_sorted

    tail_cells, tail_leaves = tree.shared_tail
    keys = tree.keys(cells)
    if tail_cells >= domain.size:
        return keys, values
    skip = tail_leaves.bit_length() - 1 if tree.binary else 0
    return join_sorted([(keys, values)], (tree.leaves - 1).bit_length(), skip)


def by_cell(tree: Order, domain: Domain, parts: list[tuple[Int, Int]]) -> tuple[Int, Any]:
    """Rising cells and their values, without zeros, from keys and values in parts; the parts are used up."""
    from kasuri._kernels.sort import join_sorted

    for i, (keys, values) in enumerate(parts):
        parts[i] = tree.cells(keys), values
    bits, runs = (domain.size - 1).bit_length(), tree.rising_cells
    skip = bits if runs == domain.size else (runs & -runs).bit_length() - 1  # cells >> skip never mixes two runs
    return kept(*join_sorted(parts, bits, skip))
