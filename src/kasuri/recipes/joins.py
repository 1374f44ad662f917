"""How noisy counts of a tree's levels become a table: least squares, or empirical Bayes. Values that see no counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import ClassVar

from kasuri.arrays import Int
from kasuri.errors import PrivacyError, unknown
from kasuri.noise.laws import DiscreteGaussian, DiscreteLaplace
from kasuri.public import Named, PublicTable
from kasuri.recipes import shares
from kasuri.recipes.views import Woven
from kasuri.recipes.visit import Visit
from kasuri.refine import after, bayes, woven
from kasuri.refine.least_squares import least_squares
from kasuri.schema import Domain
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE, Visited

LARGE = 1 << 26
"""Count trees of more leaves keep fewer of the blocks above the cells."""

Cuts = tuple[tuple[int, Fraction], ...]
"""The measured depths of a tree with their shares of epsilon."""


Law = type[DiscreteLaplace] | type[DiscreteGaussian]
"""The noise of a count tree."""
_LEAST_VARIANCE = DiscreteLaplace(LEAST_SCALE).variance


def variances(scales: Sequence[Fraction], law: Law = DiscreteLaplace) -> list[float]:
    """Noise variance per measured level of a count tree."""
    return [max(law(max(scale, LEAST_SCALE)).variance, _LEAST_VARIANCE) for scale in scales]


@dataclass(frozen=True)
class Join(ABC):
    """A refinement of the visited tree: noisy counts in, positive integers of the leaves out."""

    word: ClassVar[str]
    """As releases store it."""
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]]
    """The shares that go with it, by name."""

    law: Law = field(default=DiscreteLaplace, kw_only=True)
    """The noise of the counts, which a run knows."""

    @abstractmethod
    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        """Keys and positive integers of the leaves."""

    def spreads(self, visited: Visited, tree: Order, domain: Domain) -> list[after.Posterior] | None:
        """Posterior variances of every drawn node; None where it has none."""
        return None

    def slacks(self, tree: Order, cuts: Cuts) -> list[float]:
        """How much more than a positive refined sum each level keeps, in scales of its noise."""
        return [0.0] * len(cuts)


@dataclass(frozen=True)
class LeastSquares(Join):
    """Weights by the variances of the noise."""

    word: ClassVar[str] = "least squares"
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]] = shares.REFINED | shares.SERIES

    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        from kasuri._kernels.visit import positive

        leaves, _ = least_squares(
            [(level.y, level.first) for level in visited.levels], variances(visited.scales, self.law)
        )
        return positive(visited.levels[-1].prefix, leaves)


@dataclass(frozen=True)
class Bayes(Join):
    """`prior`: an earlier public table that supports the cells. `expect`: cells of a table of several axes are
    compared with what their sums imply."""

    prior: PublicTable | None = None
    expect: bool = False
    word: ClassVar[str] = "bayes"
    presets: ClassVar[Mapping[str, Callable[[int], shares.Shares]]] = shares.BAYES

    def refine(self, visited: Visited, tree: Order, domain: Domain) -> tuple[Int, Int]:
        if not self.expect:
            return bayes.estimate(visited, tree, domain, self.prior)
        return woven.estimate(visited, tree, domain, (), Woven(domain, tree).around(visited.cuts))

    def spreads(self, visited: Visited, tree: Order, domain: Domain) -> list[after.Posterior] | None:
        if isinstance(self.prior, Named):
            return None
        if not self.expect:
            return bayes.spreads(visited, tree, domain, self.prior)
        return woven.fit(visited, tree, domain, (), Woven(domain, tree).around(visited.cuts)).spreads()

    def slacks(self, tree: Order, cuts: Cuts) -> list[float]:
        """A little more than refined_tree on the last level above the cells."""
        slacks = super().slacks(tree, cuts)
        if len(cuts) > 1:
            slacks[-2] = 2.0 if tree.leaves <= LARGE else 1.0
            if self.law is DiscreteGaussian:  # whose scale is its standard deviation, sqrt(2) Laplace scales
                slacks[-2] *= 0.75
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
    depths, scales = zip(*((depth, join.law(scale).over(share).scale) for depth, share in cuts), strict=True)
    slacks = join.slacks(tree, cuts)
    if pilot is not None:
        slacks = [inf if depth < pilot else slack for depth, slack in zip(depths, slacks, strict=True)]
    return Visit(tree, depths, scales, tuple(slacks), join.law)


def node_variances(visit: Visit) -> list[tuple[int, float]]:
    """(cells, variance) of the least-squares estimate of a node, without sign constraint, where every node of the
    measured levels is drawn; from one cell to the whole tree.

    Up: 1/v_j = 1/s_j + 1/(n_{j+1} v_{j+1}) for noise variance s_j and n children. Down: f_0 = v_0 and
    f_j = v_j (1 - 1/n_j) + f_{j-1}/n_j^2; m of n siblings together have m v_j (1 - m/n_j) + (m/n_j)^2 f_{j-1}.
    """
    tree, cuts, noise = visit.order, visit.cuts, variances(visit.scales, visit.law)
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
