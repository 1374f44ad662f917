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
from kasuri.budget.gaussian import Normal
from kasuri.errors import FormatError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, exact
from kasuri.public import Named, PublicTable
from kasuri.published.bars import Bars, CountBars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes import spread
from kasuri.recipes.descent import by_cell, by_key
from kasuri.recipes.joined import ChosenBlocks, JoinedBlocks, settled
from kasuri.recipes.joins import Bayes, Cuts, Join, LeastSquares, node_variances, variances, visit_of
from kasuri.recipes.mechanism import (
    AreaError,
    Bias,
    BlockError,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    Replay,
    Run,
    TreeRun,
    Words,
    of_sizes,
    scale_of,
)  # fmt: skip
from kasuri.recipes.normal import Asked, Bought, NoiseWord, asked_for, bought, smaller, wins
from kasuri.recipes.replay import WRONG_SCALE, apart, visited
from kasuri.recipes.spending import (
    Given,
    Preset,
    Shares,
    cuts_of,
    declared_words,
    drawable,
    fits,
    level_cost,
    level_losses,
    prior_words,
    share_words,
)  # fmt: skip
from kasuri.recipes.visit import Visit, Whole
from kasuri.refine import bayes
from kasuri.schema import Domain, Unit, Window
from kasuri.trees import order as orders
from kasuri.trees import weave
from kasuri.trees.order import Order
from kasuri.trees.visited import Visited

Tree = Literal["morton", "1d", "hierarchy", "jis", "interleaved"]


def refined_tree(
    shares: str | Mapping[int, Exact] = "even16",
    order: Tree | None = None,
    *,
    noise: NoiseWord = "laplace",
    delta: Exact | None = None,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """Noisy counts of chosen levels of a tree, joined by least squares, refined to non-negative integers that add up.

    shares: which heights of the tree are measured (0: cells, l: squares of 2^l x 2^l cells of a mesh), with what part
    of epsilon. "u4": every height equally; "even16": every second height from the cells, equally; "tilt16": the same
    heights, 0.40 on the cells and the rest equally; or {height: "exact decimal"}, height 0 among them, summing to 1.
    order: left out, "hierarchy" where an axis has a public tree, else "morton". "hierarchy" splits such axes along
    their trees, "jis" also a grid along the levels of its scheme (10 km, 5 km, 1 km), "interleaved" also several axes
    of one kind together, level by level: pairs of regions, or of squares of two meshes, are nodes. Only nodes that
    noise left positive are descended: the cost follows them.
    noise: discrete "laplace"; "gaussian", which needs a delta and spends the shares in squares; or "auto", the
    one of the two whose levels have the smaller sum of variances: Gaussian where a unit moves many counts.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: level l alone is (share_l epsilon)-DP, and they add up;
    with Gaussian noise (epsilon, delta)-DP by the exact law of the loss (docs/proofs/gaussian.md).
    Proof: docs/proofs/refined_tree.md. Public: domain, mask, order, shares. Assumes: a good keystream; run time depends
    on the data (SECURITY.md).

    Cost: O(m + drawn nodes) for m records. References: [Hay2010], [Terada2015], [CKS2020].
    """
    faults: list[str] = []
    given = shares_of("refined_tree", shares, tuple(LeastSquares.presets), faults)
    word = check_tree("refined_tree", order, interleave, faults)
    asked = asked_for("refined_tree", noise, delta, faults)
    raise_faults(PrivacyError, faults)
    named = "refined_tree", "docs/proofs/refined_tree.md" if asked is None else "docs/proofs/gaussian.md"
    return by_itself(CountTree(*named, word, tuple(interleave), given, LeastSquares(), asked), order)


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


def check_tree(recipe: str, order: str | None, interleave: tuple[str, ...], faults: list[str]) -> str:
    """The word of the tree on a domain without declared trees."""
    word = "morton" if order is None else order
    if word not in get_args(Tree):
        faults.append(f"{recipe}: order {order!r} is not known; use {', '.join(get_args(Tree))}")
    if interleave and word != "morton":
        faults.append(f"{recipe}: interleave needs order='morton'")
    return word


def by_itself(recipe: Trees, order: str | None) -> Trees:
    """`recipe`, which follows declared trees where no order was asked for, and no axes to mix."""
    if order is not None or recipe.interleave:
        return recipe
    return replace(recipe, along_trees=replace(recipe, tree_word="hierarchy"))


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
        return orders.ignoring(self.tree_word)

    @property
    def follows_trees(self) -> str:
        return f"{self.name}(order='hierarchy')"

    def tree(self, domain: Domain) -> Order:
        return weave.make(self.tree_word, domain, self.interleave)


@dataclass(frozen=True)
class CountTree(Trees):
    """refined_tree, bayes_tree: shares fixed before the draw."""

    shares: Shares
    join: Join
    asked: Asked | None = None
    """The noise, where it need not be Laplace."""

    @property
    def prior(self) -> PublicTable | None:
        return self.join.prior if isinstance(self.join, Bayes) else None

    @property
    def tables(self) -> tuple[tuple[PublicTable, str], ...]:
        return () if self.prior is None else ((self.prior, "prior"),)

    def stored(self) -> dict[str, Any]:
        told = super().stored() | self.shares.stored() | {"refine": self.join.word, "prior": self.prior}
        return told | expect_words(self.expect) | ({} if self.asked is None else self.asked.told())

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
        return run if self.asked is None else self._normal(run, self.asked)

    def settled(self, domain: Domain, unit: Unit, window: Window, epsilon: Exact, delta: Exact) -> Mechanism:
        """noise="auto" over a window: whichever noise has the smaller sum of variances when both are priced so."""
        if self.asked is None or not self.asked.whichever:
            return self
        normal = replace(self, asked=replace(self.asked, word="gaussian"))
        plain = replace(self, asked=None, basis=f"docs/proofs/{self.name}.md")

        def variance(run: Run) -> float:
            assert isinstance(run, CountTreeRun)
            return sum(variances(run.visit.scales, run.visit.law))

        return smaller(normal, plain, variance, domain, unit, window, epsilon, delta)

    def _normal(self, run: CountTreeRun, asked: Asked) -> CountTreeRun:
        """The run with discrete Gaussian noise, where that was asked for or is smaller."""
        claim = run.guarantee
        found = bought(run.tree, run.cuts, claim.unit, claim.epsilon, asked.delta)
        if asked.whichever and not wins(found, list(run.visit.scales)):
            return run
        return replace(run, guarantee=found.claimed(claim, asked), noise=found.noise, normal=found)


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
    normal: Bought | None = None
    """Discrete Gaussian noise and its loss, where it has that."""
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    publishes: ClassVar[bool] = True

    @property
    def losses(self) -> Losses | Normal:
        return level_losses(self, self.cuts) if self.normal is None else self.normal.losses

    @property
    def join(self) -> Join:
        return self.mechanism.join if self.normal is None else replace(self.mechanism.join, law=DiscreteGaussian)

    @property
    def visit(self) -> Visit:
        spent = self.cuts if self.normal is None else self.normal.spent
        return visit_of(self.tree, self.noise.scale, spent, self.join)

    def arguments(self) -> dict[str, Any]:
        asked = self.mechanism.asked
        told = self.mechanism.shares.told() | prior_words(self.mechanism.prior)
        return told | expect_words(self.mechanism.expect) | ({} if asked is None else asked.told())

    def further(self) -> dict[str, Any]:
        words: dict[str, Any] = {"shares": share_words(self.cuts)}
        if self.normal is not None:
            words["mechanisms"] = self.normal.mechanisms(self.mechanism.name)
        return words | declared_words(self.mechanism.prior, self.mechanism.shares)

    def replay(self, drawn: Drawn) -> Replay:
        return replayed(self, drawn, self.visit, self.join, None)

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        return count_bars(self, measurements, [self.visit])

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        visited = self.visit.run(keys, values, streams, threads)
        del keys, values
        return drawn(self, self.tree, visited, self.join, {})

    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        if not isinstance(self.mechanism.join, LeastSquares):
            return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")
        padded = not self.tree.whole
        found = [BlockError(size, sqrt(variance), False, about=padded) for size, variance in node_variances(self.visit)]
        return of_sizes(found, sizes)

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        return after_join(self, drawn, self.visit, self.join, sizes)

    def counted(self) -> CountTreeRun:
        return self

    def blocks(self) -> CountBlocks | ChosenBlocks:
        if isinstance(self.mechanism.join, LeastSquares):
            return CountBlocks(self.visit)
        return settled(joined(self, self.visit, self.join, {}))


def count_bars(run: TreeRun, measurements: Measurements | None, visits: Sequence[Visit]) -> Bars | NoBars:
    """Error bars of a tree that one of `visits` drew. A saved release says nothing of levels where nothing was drawn;
    the first visit that measures what was drawn as it was measured has them."""
    if measurements is None:
        return NoBars(f"{run.mechanism.name} with these options publishes no measurements")
    seen = {level: measurements.scale[level] for level in np.unique(measurements.level).tolist()}
    for visit in visits:
        scale = dict(zip(visit.cuts, visit.scales, strict=True))
        if seen.items() <= scale.items():
            measurements = replace(measurements, scale=scale)
            break
    law = DiscreteGaussian if isinstance(run.noise, DiscreteGaussian) else DiscreteLaplace
    return CountBars(run.domain, run.tree, measurements, law=law)


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
    own = tuple(visit.law(scale).chances(level.y) for level, scale in zip(tree.levels, tree.scales, strict=True))
    shown = Replay(shown=own, apart=tuple(apart(tree, pilot, visit.law)))
    if isinstance(join, Bayes) and isinstance(join.prior, Named):
        if sum(drawn.values.tolist()) != bayes.total_of(tree):
            return replace(shown, wrong_values="its total does not follow from the measurements")
        return replace(shown, notes=("values: refined with a public table that the release names and does not hold",))
    return replace(shown, found=by_cell(run.tree, run.domain, [join.refine(tree, run.tree, run.domain)]))


def after_join(run: TreeRun, drawn: Drawn, visit: Visit, join: Join, sizes: Sequence[int]) -> list[AreaError] | NoForm:
    """Errors after the join of a count tree."""
    if drawn.measurements is None:
        return Run.after(run, drawn, sizes)
    if isinstance(join, LeastSquares):
        return spread.projected(run, drawn, sizes)
    tree = _kept(drawn.measurements) or visited(visit, drawn.measurements)
    levels = join.spreads(tree, run.tree, run.domain)
    if levels is None:
        return NoForm("no estimate: it was refined with a public table that the release names and does not hold")
    return spread.of_tree(run, visit.cuts, levels, sizes, total=bayes.total_variance(tree))


def expect_words(expect: bool) -> dict[str, Any]:
    """Told where it is asked for: what was stored before there was the word never changes."""
    return {"expect": True} if expect else {}


def drawn(run: Run, tree: Order, visited: Visited, join: Join, words: Words) -> Drawn:
    """Cells and measurements of a visited tree: from here on everything sees noisy counts only."""
    found, numbers = join.refine(visited, tree, run.domain), measured(visited)
    if "_fitted" in visited.__dict__ and numbers.value.size <= KEPT:
        numbers.__dict__["_visited"] = visited
    return Drawn(*by_cell(tree, run.domain, [found]), numbers, words)


KEPT = 1 << 21
"""What was fitted to so many noisy numbers, or fewer, is kept until `save` asks how far off the table is."""


def _kept(numbers: Measurements) -> Visited | None:
    """The visited tree of these numbers, with what was fitted to it, where it was kept; it is let go."""
    kept: Visited | None = numbers.__dict__.pop("_visited", None)
    return kept


def joined(run: TreeRun, visit: Visit, join: Join, words: Words, known: Whole | None = None) -> JoinedBlocks:
    """A tree that `join` refines as a whole, from noisy counts alone."""

    def finish(visited: Visited, numbers: Sequence[Int]) -> Drawn:
        return drawn(run, run.tree, visited, join, words)

    return JoinedBlocks(visit, dict(zip(visit.cuts, visit.scales, strict=True)), finish, known=known, words=words)


def measured(visited: Visited) -> Measurements:
    """The noisy counts of a visited tree, as they are published."""
    levels = visited.levels
    depths = np.repeat(np.array(visited.cuts, dtype=np.int64), [level.y.size for level in levels])
    prefix, y = (np.concatenate([getattr(level, name) for level in levels]) for name in ("prefix", "y"))
    scales = dict(zip(visited.cuts, visited.scales, strict=True))
    return Measurements(depths, prefix, y, scales)
