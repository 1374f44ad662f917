"""How a count tree spends epsilon over its levels, where that is fixed before the draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

from kasuri.budget.accounting import Losses, generic
from kasuri.errors import DomainError, PrivacyError
from kasuri.privacy import decimal
from kasuri.public import PublicTable
from kasuri.recipes.joins import Cuts, Join
from kasuri.recipes.mechanism import MAX_SCALE, TOO_SMALL, Run, single
from kasuri.recipes.shares import rule
from kasuri.recipes.visit import Visit
from kasuri.schema import Unit
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE

MAX_FAN = 1 << 16
"""Most nodes of a measured level below one node of the level above: all of them are drawn where it is kept."""
MAX_LEVEL = 1 << 22
"""Possible nodes of a level that can be drawn all at once, whatever lies below which node."""


@dataclass(frozen=True)
class Shares(ABC):
    """Shares of epsilon that are fixed before the draw."""

    @abstractmethod
    def of(self, join: Join, prior: PublicTable | None, scale: Fraction, top: int) -> Mapping[int, Fraction]:
        """The share of every measured height of a tree of height `top`."""

    @abstractmethod
    def stored(self) -> dict[str, Any]:
        """The plan's fields `shares` and `facts`."""

    def told(self) -> dict[str, Any]:
        """The arguments as a release tells them."""
        return self.stored()

    public: ClassVar[tuple[str, ...]] = ()


def _preset(join: Join, name: str, top: int) -> Mapping[int, Fraction]:
    if name not in join.presets:
        raise PrivacyError(f"shares {name!r} are not known; use {', '.join(join.presets)} or a mapping")
    return join.presets[name](top)


@dataclass(frozen=True)
class Preset(Shares):
    name: str

    def of(self, join: Join, prior: PublicTable | None, scale: Fraction, top: int) -> Mapping[int, Fraction]:
        return _preset(join, self.name, top)

    def stored(self) -> dict[str, Any]:
        return {"shares": self.name}


@dataclass(frozen=True)
class Given(Shares):
    """(height, share) pairs."""

    shares: tuple[tuple[int, Fraction], ...]

    def of(self, join: Join, prior: PublicTable | None, scale: Fraction, top: int) -> Mapping[int, Fraction]:
        given = dict(self.shares)
        return given if len(given) == len(self.shares) else {}

    def stored(self) -> dict[str, Any]:
        return {"shares": tuple((height, decimal(share)) for height, share in self.shares)}

    def told(self) -> dict[str, Any]:
        return {"shares": {str(height): decimal(share) for height, share in self.shares}}


@dataclass(frozen=True)
class Facts(Shares):
    """The preset for a declared share of non-empty cells and their mean count."""

    density: Fraction
    size: Fraction
    public: ClassVar[tuple[str, ...]] = ("declared density and size of the non-empty cells",)

    def of(self, join: Join, prior: PublicTable | None, scale: Fraction, top: int) -> Mapping[int, Fraction]:
        scales = min(self.size / max(scale, LEAST_SCALE), Fraction(1 << 62))
        return _preset(join, rule(float(self.density), float(scales)), top)

    def stored(self) -> dict[str, Any]:
        return {"shares": "facts", "facts": (decimal(self.density), decimal(self.size))}

    def told(self) -> dict[str, Any]:
        return {"shares": "facts", "facts": {"density": decimal(self.density), "size": decimal(self.size)}}


@dataclass(frozen=True)
class OfPrior(Shares):
    """The preset for the mean of the prior's cells: where people are, the prior knows; their number decides."""

    def of(self, join: Join, prior: PublicTable | None, scale: Fraction, top: int) -> Mapping[int, Fraction]:
        if prior is None:
            raise PrivacyError("shares of a prior need the prior; use bayes_tree(prior=...)")
        mean = float(prior.values.sum()) / max(prior.cells.size, 1)
        return _preset(join, rule(1.0, mean / float(max(scale, LEAST_SCALE))), top)

    def stored(self) -> dict[str, Any]:
        return {"shares": "prior"}


def cuts_of(tree: Order, by_height: Mapping[int, Fraction]) -> Cuts:
    """Depths and shares from heights and shares. The claim rests on their sum: checked where the claim is made."""
    stages = tree.stages
    top = len(stages) - 1
    exactly = all(isinstance(share, Fraction) for share in by_height.values())
    if not exactly or sum(by_height.values()) != 1 or min(by_height.values()) <= 0:
        raise PrivacyError(
            "shares name each height once, are positive and sum to exactly 1: their sum is what epsilon pays for"
        )
    if max(by_height) > top:
        raise DomainError(f"this tree has heights 0..{top}; shares name {max(by_height)}")
    return tuple(sorted((stages[top - height], share) for height, share in by_height.items()))


def fits(visit: Visit) -> None:
    """Refuse noise that 64 bits do not hold, before anything is charged."""
    if max(visit.scales) > MAX_SCALE:
        raise PrivacyError(TOO_SMALL)


def drawable(tree: Order, cuts: Cuts) -> None:
    """Refuse levels that leave too much to draw below one kept node, before anything is charged. A public tree of
    uneven groups is wide by its padding alone: a level whose possible nodes can all be drawn is never refused."""
    for (above, _), (below, _) in pairwise(cuts):
        if tree.width(above, below) > MAX_FAN and tree.nodes(below) > MAX_LEVEL:
            raise DomainError(
                f"{tree.width(above, below)} nodes of one measured level would be drawn below a single node of the "
                f"level above, at most {MAX_FAN} can be: measure a level between them (shares), group the labels of "
                'wide axes in a tree, or use order="morton"'
            )


def level_cost(unit: Unit) -> Fraction:
    """The most one count changes the counts of a level by, all together."""
    return Fraction(1 if unit.change == "add-remove" else 2)


def level_losses(run: Run, cuts: Cuts) -> Losses:
    """A count tree of fixed shares moves one count per measured level, each under noise of that level's own share."""
    epsilon = run.guarantee.epsilon
    return tuple((share * epsilon, 1) for _, share in cuts) if single(run.guarantee.unit) else generic(epsilon)


def share_words(cuts: Cuts) -> dict[str, str]:
    return {str(depth): decimal(share) for depth, share in cuts}


def prior_words(prior: PublicTable | None) -> dict[str, Any]:
    return {} if prior is None else {"prior": prior.name}


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
