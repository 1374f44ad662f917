"""How noisy counts of a tree's levels become a table: least squares, or empirical Bayes. Values that see no counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import ClassVar

from kasuri.arrays import Int
from kasuri.errors import PrivacyError, unknown
from kasuri.noise.samplers import laplace_variance
from kasuri.public import PublicTable
from kasuri.recipes import shares
from kasuri.recipes.views import Woven
from kasuri.recipes.visit import Visit
from kasuri.refine import bayes, woven
from kasuri.refine.least_squares import least_squares
from kasuri.schema import Domain
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE, Visited

LARGE = 1 << 26
"""Count trees of more leaves keep fewer of the blocks above the cells."""

Cuts = tuple[tuple[int, Fraction], ...]
"""The measured depths of a tree with their shares of epsilon."""


def variances(scales: Sequence[Fraction]) -> list[float]:
    """Noise variance per measured level of a count tree."""
    return [laplace_variance(max(scale, LEAST_SCALE)) for scale in scales]


@dataclass(frozen=True)
class Join(ABC):
    """A refinement of the visited tree: noisy counts in, positive integers of the leaves out."""

    word: ClassVar[str]
    """As releases store it."""
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]]
    """The shares that go with it, by name."""

    @abstractmethod
    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        """Keys and positive integers of the leaves."""

    def slacks(self, tree: Order, cuts: Cuts) -> list[float]:
        """How much more than a positive refined sum each level keeps, in scales of its noise."""
        return [0.0] * len(cuts)


@dataclass(frozen=True)
class LeastSquares(Join):
    word: ClassVar[str] = "least squares"
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]] = shares.REFINED

    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        leaves, _ = least_squares([(level.y, level.first) for level in visited.levels], variances(visited.scales))
        keep = leaves > 0
        return visited.levels[-1].prefix[keep], leaves[keep]


@dataclass(frozen=True)
class Bayes(Join):
    """`prior`: an earlier public table that stands behind the cells. `expect`: cells of a table of several axes are
    compared with what their sums imply."""

    prior: PublicTable | None = None
    expect: bool = False
    word: ClassVar[str] = "bayes"
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]] = shares.BAYES

    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        if not self.expect:
            return bayes.estimate(visited, tree, domain, self.prior)
        return woven.estimate(visited, tree, domain, (), Woven(domain, tree).around(visited.cuts))

    def slacks(self, tree: Order, cuts: Cuts) -> list[float]:
        """A little more than refined_tree on the last level above the cells."""
        slacks = super().slacks(tree, cuts)
        if len(cuts) > 1:
            slacks[-2] = 2.0 if tree.leaves <= LARGE else 1.0
        return slacks


def of_preset(preset: str, prior: PublicTable | None, expect: bool = False) -> Join:
    """The join a preset of shares was made for."""
    if preset in shares.BAYES:
        return Bayes(prior, expect)
    if preset not in shares.REFINED:
        raise unknown(PrivacyError, "the preset", preset, (*shares.BAYES, *shares.REFINED))
    return LeastSquares()


def visit_of(tree: Order, scale: Fraction, cuts: Cuts, join: Join, pilot: int | None = None) -> Visit:
    """What a count tree measures: the noise of a cut has the whole's scale over its share. Above a pilot's depth every
    node is kept."""
    depths, scales = zip(*((depth, scale / share) for depth, share in cuts), strict=True)
    slacks = join.slacks(tree, cuts)
    if pilot is not None:
        slacks = [inf if depth < pilot else slack for depth, slack in zip(depths, slacks, strict=True)]
    return Visit(tree, depths, scales, tuple(slacks))
