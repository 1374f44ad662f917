"""Discrete Gaussian noise of cells and count trees: how far a unit moves each level, how much noise (epsilon, delta)
buys, and whether it beats Laplace noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, isqrt
from typing import Any, Literal

from kasuri.budget.gaussian import Normal, least_scale
from kasuri.errors import PrivacyError
from kasuri.noise.laws import DiscreteGaussian
from kasuri.privacy import Exact, Guarantee, decimal, exact
from kasuri.recipes.joins import Cuts, variances
from kasuri.recipes.mechanism import TOO_SMALL, Mechanism, Run
from kasuri.schema import Domain, Unit, Window
from kasuri.trees.order import Order

NoiseWord = Literal["laplace", "gaussian", "auto"]
DIFFERENT_CELLS = "a unit is counted in different cells, in each no more often than the unit says"
"""The caveat where a unit is counted in several cells: squares, unlike sums, depend on it. Records are bounded so; of a
table that was counted elsewhere the provider must know it."""
_MOST = 1 << 16  # largest scale of the sampler


@dataclass(frozen=True)
class Asked:
    """Which noise a recipe was asked for: discrete Gaussian, or whichever of the two is smaller; with its delta."""

    word: NoiseWord
    delta: Fraction

    @property
    def whichever(self) -> bool:
        """Gaussian or Laplace noise, whichever is smaller?"""
        return self.word == "auto"

    def told(self) -> dict[str, str]:
        return {"noise": self.word, "delta": decimal(self.delta)}


def asked_for(recipe: str, noise: object, delta: object, faults: list[str]) -> Asked | None:
    """What the arguments noise and delta ask for; None: Laplace noise."""
    if noise not in ("laplace", "gaussian", "auto"):
        faults.append(f'{recipe}: noise {noise!r} is not known; use "laplace", "gaussian" or "auto"')
    elif noise == "laplace":
        if delta is not None:
            faults.append(f'{recipe}: Laplace noise has no delta; leave it out, or use noise="gaussian"')
    elif delta is None:
        faults.append(f'{recipe}: noise={noise!r} needs a delta, an exact decimal such as delta="1e-9"')
    else:
        small = exact(delta, "delta")
        if not Fraction(1, 10**30) <= small <= Fraction(1, 1000):
            faults.append(f"{recipe}: delta lies from 1e-30 to 0.001; far below one over the number of units is sound")
        return Asked(noise, small)
    return None


def level_square(tree: Order, depth: int, unit: Unit) -> int:
    """The most one unit changes the counts of a level by, as a sum of squares."""
    return nodes_square(tree.stride(depth), tree.leaves // tree.stride(depth), unit)


def nodes_square(cells: int, nodes: int, unit: Unit) -> int:
    """The most one unit changes the counts of so many nodes of so many cells each by, as a sum of squares.

    A unit adds k counts, at most unit.each in a cell: a node of n cells changes by at most c = min(k, n max_weight),
    and the sum of squares is largest where as many nodes as possible change by c: q c^2 + r^2, k = q c + r. Under
    replace what a unit takes away and what it adds are such vectors with no negative entry, so twice that; a single
    node changes by no more than before.
    """
    k = unit.most
    c = min(k, cells * unit.each)
    q, r = divmod(k, c)
    twice = unit.change == "replace" and nodes > 1
    return (q * c * c + r * r) * (2 if twice else 1)


@dataclass(frozen=True)
class Bought:
    """Discrete Gaussian noise for a tree: the noise of a level that moves by 1 with all the share, what each level is
    measured with, and the loss of all of them."""

    noise: DiscreteGaussian
    cuts: Cuts
    squares: tuple[int, ...]
    losses: Normal

    @property
    def spent(self) -> Cuts:
        """Depths with the part that one count of each has: a level's share over its squares."""
        return tuple((depth, share / square) for (depth, share), square in zip(self.cuts, self.squares, strict=True))

    def claimed(self, claim: Guarantee, asked: Asked) -> Guarantee:
        """The guarantee of a release with this noise."""
        own = replace(claim, delta=asked.delta, rho=self.losses.rho)
        return own.assuming(DIFFERENT_CELLS) if own.unit.max_cells > 1 else own

    def mechanisms(self, recipe: str, of: str = "counts of level {depth}") -> list[dict[str, Any]]:
        """One entry per level for a manifest: its own scale and its sensitivity in L2."""
        return [
            {
                "query": of.format(depth=depth),
                "recipe": recipe,
                "sensitivity": str(root) if (root := isqrt(square)) ** 2 == square else f"sqrt({square})",
                "noise": self.noise.name,
                "scale": decimal(self.noise.over(part).scale),
            }
            for (depth, part), square in zip(self.spent, self.squares, strict=True)
        ]


def bought(tree: Order, cuts: Cuts, unit: Unit, epsilon: Fraction, delta: Fraction) -> Bought:
    """The least noise for these levels of a tree whose price is at most (epsilon, delta)."""
    squares = tuple(level_square(tree, depth, unit) for depth, _ in cuts)
    return least(cuts, squares, unit.most == 1, epsilon, delta)


def least(cuts: Cuts, squares: tuple[int, ...], ones: bool, epsilon: Fraction, delta: Fraction) -> Bought:
    """The least noise whose price is at most (epsilon, delta). `ones`: a unit moves single counts by 1 at most, so the
    price is that of the exact law; else that of zCDP, which needs the squares alone."""

    def losses(scale: Fraction) -> Normal:
        scales = [
            DiscreteGaussian(scale).over(share / square).scale for (_, share), square in zip(cuts, squares, strict=True)
        ]
        rho = sum((Fraction(square) / (2 * own**2) for own, square in zip(scales, squares, strict=True)), Fraction(0))
        parts = tuple((own**2, square) for own, square in zip(scales, squares, strict=True)) if ones else ()
        return Normal(Fraction(ceil(rho * 10**12), 10**12), parts)

    scale = least_scale(lambda tried: losses(tried).price(delta), epsilon, delta)
    found = Bought(DiscreteGaussian(scale), cuts, squares, losses(scale))
    if max(found.noise.over(part).scale for _, part in found.spent) > _MOST:
        raise PrivacyError(TOO_SMALL.replace("2^55", "2^16, the largest of discrete Gaussian noise"))
    return found


def smaller(
    gaussian: Mechanism, laplace: Mechanism, variance: Callable[[Run], float], domain: Domain, unit: Unit,
    window: Window, epsilon: Exact, delta: Exact,
) -> Mechanism:  # fmt: skip
    """Whichever has the smaller variance when both are priced over a window."""

    def spread(one: Mechanism) -> float:
        return variance(one.run(domain, unit, one.recurring(domain, unit, window, epsilon, delta).epsilon))

    return min(gaussian, laplace, key=spread)


def wins(found: Bought, laplace: Sequence[Fraction]) -> bool:
    """Is the sum of the levels' variances smaller than with Laplace noise of these scales? They are priced by pure
    sums: where the exact price of Laplace noise is well below those, Gaussian noise is smaller than either."""
    own = [found.noise.over(part).scale for _, part in found.spent]
    return sum(variances(own, DiscreteGaussian)) < sum(variances(laplace))
