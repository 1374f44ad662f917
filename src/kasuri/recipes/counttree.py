"""CountTree: noisy counts of chosen levels of a tree, joined by least squares or empirical Bayes.

The shares of epsilon are fixed before the draw; `bayestree` has those that are chosen after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from kasuri.budget.accounting import Losses
from kasuri.errors import FormatError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, decimal, exact
from kasuri.public import Named, PublicTable
from kasuri.published.bars import Bars, CountBars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.descent import by_cell, by_key
from kasuri.recipes.joins import Bayes, Cuts, Join, LeastSquares, variances, visit_of
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
    ignoring,
    of_sizes,
    scale_of,
)  # fmt: skip
from kasuri.recipes.replay import WRONG_SCALE, apart, visited
from kasuri.recipes.shares import REFINED
from kasuri.recipes.spending import (
    Facts,
    Given,
    Preset,
    Shares,
    cuts_of,
    drawable,
    fits,
    level_cost,
    level_losses,
    share_words,
)  # fmt: skip
from kasuri.recipes.visit import Visit
from kasuri.refine import bayes
from kasuri.schema import Domain, Unit
from kasuri.trees import order as orders
from kasuri.trees.order import Order
from kasuri.trees.visited import Visited
from kasuri.trees.weave import interleaved

Tree = Literal["morton", "1d", "hierarchy", "interleaved"]


def refined_tree(
    shares: str | Mapping[int, Exact] = "even16",
    order: Tree = "morton",
    *,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """Noisy counts of chosen levels of a tree, joined by least squares, refined to non-negative integers that add up.

    shares: which heights of the tree are measured (0: cells, l: squares of 2^l x 2^l cells of a mesh), with what part
    of epsilon. "u4": every height equally; "even16": every second height from the cells, equally; "tilt16": the same
    heights, 0.40 on the cells and the rest equally; or {height: "exact decimal"}, height 0 among them, summing to 1.
    order "hierarchy" splits nominal axes along their public tree, "interleaved" also several axes of one kind together,
    level by level: pairs of regions, or of squares of two meshes, are nodes. Only nodes that noise left positive are
    descended: the cost follows them.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: level l alone is (share_l epsilon)-DP, and they add up.
    Proof: docs/proofs/refined_tree.md. Public: domain, mask, order, shares. Assumes: a good keystream; run time depends
    on the data (SECURITY.md).

    Cost: O(m + drawn nodes) for m records. References: [Hay2010], [Terada2015].
    """
    faults: list[str] = []
    given = shares_of("refined_tree", shares, tuple(REFINED), faults)
    check_tree("refined_tree", order, interleave, faults)
    raise_faults(PrivacyError, faults)
    return CountTree("refined_tree", "docs/proofs/refined_tree.md", order, tuple(interleave), given, LeastSquares())


def shares_of(recipe: str, shares: object, presets: tuple[str, ...], faults: list[str]) -> Preset | Given:
    if not isinstance(shares, Mapping):
        if not isinstance(shares, str) or shares not in presets:
            faults.append(f"{recipe}: shares {shares!r} are not known; use {', '.join(presets)} or a mapping")
        return Preset(str(shares))
    if any(not isinstance(height, int) or isinstance(height, bool) or height < 0 for height in shares):
        faults.append(f"{recipe}: heights are whole numbers from 0 (cells) up")
        return Given(())
    exacts: dict[int, Fraction] = {height: exact(share, "a share") for height, share in shares.items()}
    if sum(exacts.values()) != 1 or 0 not in exacts:
        faults.append(f"{recipe}: shares must include height 0 and sum to exactly 1")
    return Given(tuple(sorted(exacts.items())))


def check_tree(recipe: str, order: str, interleave: tuple[str, ...], faults: list[str]) -> None:
    if order not in get_args(Tree):
        faults.append(f"{recipe}: order {order!r} is not known; use {', '.join(get_args(Tree))}")
    if interleave and order != "morton":
        faults.append(f"{recipe}: interleave needs order='morton'")


@dataclass(frozen=True)
class Trees(Mechanism):
    """Counts of chosen levels of one tree."""

    tree_word: str
    interleave: tuple[str, ...]

    def stored(self) -> dict[str, Any]:
        return {
            "transform": "counts", "noise": DiscreteLaplace.name, "order": self.tree_word,
            "interleave": self.interleave, "descent": "plain",
        }  # fmt: skip

    @property
    def ignores_trees(self) -> str | None:
        return ignoring(self.tree_word)

    @property
    def follows_trees(self) -> str:
        return f"{self.name}(order='hierarchy')"

    def tree(self, domain: Domain) -> Order:
        if self.tree_word == "interleaved":
            return interleaved(domain)
        return orders.make(self.tree_word, domain, self.interleave)


@dataclass(frozen=True)
class CountTree(Trees):
    """refined_tree, bayes_tree: shares fixed before the draw."""

    shares: Shares
    join: Join

    @property
    def prior(self) -> PublicTable | None:
        return self.join.prior if isinstance(self.join, Bayes) else None

    @property
    def tables(self) -> tuple[tuple[PublicTable, str], ...]:
        return () if self.prior is None else ((self.prior, "prior"),)

    def stored(self) -> dict[str, Any]:
        told = super().stored() | self.shares.stored() | {"refine": self.join.word, "prior": self.prior}
        return told | expect_words(self.expect)

    @property
    def expect(self) -> bool:
        return isinstance(self.join, Bayes) and self.join.expect

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> CountTreeRun:
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace, self.shares.public)
        tree, cost = self.tree(domain), level_cost(unit)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon))
        cuts = cuts_of(tree, self.shares.of(self.join, self.prior, noise.scale, len(tree.stages) - 1))
        drawable(tree, cuts)
        run = CountTreeRun(self, domain, claim, cost, noise, tree, cuts)
        fits(run.visit)
        return run


@dataclass(frozen=True)
class CountBlocks:
    """The driver measures the cuts of the top and executors those below, once; least squares joins them."""

    visit: Visit

    @property
    def scales(self) -> dict[int, Fraction]:
        """Noise scales of the measurements by level."""
        return dict(zip(self.visit.cuts, self.visit.scales, strict=True))


@dataclass(frozen=True, eq=False)
class CountTreeRun(TreeRun):
    mechanism: CountTree
    cuts: Cuts
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    publishes: ClassVar[bool] = True

    @property
    def losses(self) -> Losses:
        return level_losses(self, self.cuts)

    @property
    def visit(self) -> Visit:
        return visit_of(self.tree, self.noise.scale, self.cuts, self.mechanism.join)

    def arguments(self) -> dict[str, Any]:
        told = self.mechanism.shares.told() | prior_words(self.mechanism.prior)
        return told | expect_words(self.mechanism.expect)

    def further(self) -> dict[str, Any]:
        words = {"shares": share_words(self.cuts)}
        return words | declared_words(self.mechanism.prior, self.mechanism.shares)

    def replay(self, drawn: Drawn) -> Replay:
        return replayed(self, drawn, self.visit, self.mechanism.join, None)

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        return count_bars(self, measurements)

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        visited = self.visit.run(keys, values, streams, threads)
        del keys, values
        return drawn(self, self.tree, visited, self.mechanism.join, {})

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        if not isinstance(self.mechanism.join, LeastSquares):
            return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")
        padded = not self.tree.whole
        found = [BlockError(size, sqrt(variance), False, about=padded) for size, variance in node_variances(self.visit)]
        return of_sizes(found, sizes)

    def blocks(self) -> CountBlocks | None:
        return CountBlocks(self.visit) if isinstance(self.mechanism.join, LeastSquares) else None


def count_bars(run: TreeRun, measurements: Measurements | None) -> Bars | NoBars:
    if measurements is None:
        return NoBars(f"{run.mechanism.name} with these options publishes no measurements")
    return CountBars(run.domain, run.tree, measurements)


def replayed(run: TreeRun, drawn: Drawn, visit: Visit, join: Join, pilot: int | None) -> Replay:
    """A count tree follows wholly from its measurements; with a public table that the release only names, its noisy
    numbers alone are looked at."""
    measured = drawn.measurements
    if measured is None:
        return Run.replay(run, drawn)
    scales = dict(zip(visit.cuts, visit.scales, strict=True))
    if any(scales.get(level) != scale for level, scale in measured.scale.items()):
        return Replay(wrong_measurements=WRONG_SCALE)
    try:
        tree = visited(visit, measured)
    except FormatError:
        return Replay(wrong_measurements="its nodes are not those that the recipe draws")
    own = tuple(DiscreteLaplace(scale).chances(level.y) for level, scale in zip(tree.levels, tree.scales, strict=True))
    shown = Replay(shown=own, apart=tuple(apart(tree, pilot)))
    if isinstance(join, Bayes) and isinstance(join.prior, Named):
        if sum(drawn.values.tolist()) != bayes.total_of(tree):
            return replace(shown, wrong_values="its total does not follow from the measurements")
        return replace(shown, notes=("values: refined with a public table that the release names and does not hold",))
    return replace(shown, found=by_cell(run.tree, run.domain, [join.refine(tree, run.tree, run.domain)]))


def prior_words(prior: PublicTable | None) -> dict[str, Any]:
    return {} if prior is None else {"prior": prior.name}


def expect_words(expect: bool) -> dict[str, Any]:
    """Told where it is asked for: what was stored before there was the word never changes."""
    return {"expect": True} if expect else {}


def declared_words(prior: PublicTable | None, shares: Shares | None) -> dict[str, Any]:
    """What chose the shares, where it was declared public."""
    if prior is not None:
        source = f"public table {prior.name}, declared"
    elif isinstance(shares, Facts):
        density, size = decimal(shares.density), decimal(shares.size)
        source = f"density {density} and size {size} of non-empty cells, declared public"
    else:
        return {}
    return {"tuning": {"source": source, "charged": "nothing: it does not come from this data"}}


def drawn(run: Run, tree: Order, visited: Visited, join: Join, words: dict[str, Any]) -> Drawn:
    """Cells and measurements of a visited tree: from here on everything sees noisy counts only."""
    found = join.refine(visited, tree, run.domain)
    levels = visited.levels
    depths = np.concatenate([np.full(level.y.size, cut) for cut, level in zip(visited.cuts, levels, strict=True)])
    prefix, y = (np.concatenate([getattr(level, name) for level in levels]) for name in ("prefix", "y"))
    scales = dict(zip(visited.cuts, visited.scales, strict=True))
    return Drawn(*by_cell(tree, run.domain, [found]), Measurements(depths, prefix, y, scales), words)


def node_variances(visit: Visit) -> list[tuple[int, float]]:
    """(cells, variance) of the least-squares estimate of a node, without sign constraint, where every node of the
    measured levels is drawn; from one cell to the whole tree.

    Up: 1/v_j = 1/s_j + 1/(n_{j+1} v_{j+1}) for noise variance s_j and n children. Down: f_0 = v_0 and
    f_j = v_j (1 - 1/n_j) + f_{j-1}/n_j^2; m of n siblings together have m v_j (1 - m/n_j) + (m/n_j)^2 f_{j-1}.
    """
    tree, cuts, noise = visit.order, visit.cuts, variances(visit.scales)
    starts = (0, *cuts[:-1])
    width = [tree.stride(start) // tree.stride(cut) for start, cut in zip(starts, cuts, strict=True)]
    v = noise[:]
    for j in range(len(cuts) - 2, -1, -1):
        v[j] = 1 / (1 / noise[j] + 1 / (width[j + 1] * v[j + 1]))
    f = [v[0]]
    for j in range(1, len(cuts)):
        f.append(v[j] * (1 - 1 / width[j]) + f[-1] / width[j] ** 2)
    out = []
    for depth in range(tree.depth, -1, -1):
        j = next(j for j, cut in enumerate(cuts) if cut >= depth)
        m = tree.stride(depth) // tree.stride(cuts[j])
        above = m / width[j] if j else 0.0
        variance = m * v[j] * (1 - above) + above**2 * f[j - 1] if j else m * v[0]
        out.append((tree.stride(depth), f[j] if m == 1 else variance))
    return out
