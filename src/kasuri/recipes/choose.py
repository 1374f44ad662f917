"""What is chosen after the budget is charged: presets of a count tree, from noisy counts of a pilot or a public table.

Nothing here sees counts. `simulated` has the choice by simulation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.noise.rng import Streams
from kasuri.privacy import decimal
from kasuri.public import PublicTable
from kasuri.published.measurements import Measurements
from kasuri.recipes import shares
from kasuri.recipes.joined import Tally
from kasuri.recipes.joins import Cuts, Join, of_preset, visit_of
from kasuri.recipes.visit import Visit, Whole, measure_whole
from kasuri.refine import LARGEST
from kasuri.schema import Domain
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE


@dataclass(frozen=True)
class Choice:
    """A preset, how it refines, and why, in words that go into the release."""

    preset: str
    refine: str
    why: str
    charged: str

    def words(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "refined": self.refine,
            "tuning": {"source": self.why, "charged": self.charged},
        }


@dataclass(frozen=True, eq=False)
class Offer:
    """What there is to choose from, all of it public: cuts by preset, and the pilot (depth, share) in all of them."""

    tree: Order
    domain: Domain
    scale: Fraction
    choices: Mapping[str, Cuts]
    pilot: tuple[int, Fraction] | None
    prior: PublicTable | None
    expect: bool = False

    def join(self, preset: str) -> Join:
        return of_preset(preset, self.prior, self.expect)

    def visit(self, preset: str) -> Visit:
        pilot = None if self.pilot is None else self.pilot[0]
        return visit_of(self.tree, self.scale, self.choices[preset], self.join(preset), pilot)

    def measure(self, keys: Int, values: Int, streams: Streams) -> Whole | None:
        """The pilot, measured before anything is decided; None where there is none."""
        if self.pilot is None:
            return None
        depth, share = self.pilot
        return measure_whole(self.tree, depth, self.scale / share, keys, values, streams)

    @property
    def tally(self) -> Tally | None:
        """The pilot as sums of the nodes of its depth, possible or not: its noise comes from the same stream."""
        if self.pilot is None:
            return None
        nodes, stride = self.tree.width(0, self.pilot[0]), self.tree.stride(self.pilot[0])

        def noisy(sums: Int, streams: Streams) -> Int:
            seen = np.flatnonzero(sums)
            found = self.measure(seen * stride, sums[seen], streams)
            assert found is not None
            return found.y

        return Tally(nodes, partial(_node, stride), noisy)

    def told(self, y: Int | None) -> Whole | None:
        """The pilot again, of which only the noisy numbers were handed on."""
        if self.pilot is None or y is None:
            return None
        nodes, _ = self.tree.children(np.zeros(1, dtype=np.int64), 0, self.pilot[0])
        return Whole(self.pilot[0], self.scale / self.pilot[1], nodes, y)


def _node(stride: int, keys: Int) -> Int:
    return keys // stride


@dataclass(frozen=True)
class Chooser(ABC):
    """Who chooses the shares after the budget is charged."""

    word: ClassVar[str]
    """As releases store it."""
    share: ClassVar[Fraction]
    """The pilot's part of epsilon."""
    odd: ClassVar[bool]
    """Is the pilot's an odd height, which the presets of even heights do not measure?"""

    @property
    @abstractmethod
    def offered(self) -> Mapping[str, Callable[[int], shares.Shares]]:
        """The presets it chooses from."""

    def beyond(self, cells: int) -> list[int]:
        """Areas it is asked to be right for that are larger than the table."""
        return []

    @abstractmethod
    def stored(self) -> dict[str, Any]:
        """The plan's fields refine, shares, areas and metric."""

    def told(self) -> dict[str, Any]:
        """The arguments as a release tells them."""
        return {"shares": self.word}

    def needs_pilot(self, prior: PublicTable | None) -> bool:
        return True

    @abstractmethod
    def choice(self, offer: Offer, pilot: Whole | None, streams: Streams) -> Choice:
        """The preset, from noisy counts or public tables."""

    def choose(self, offer: Offer, pilot: Whole | None, streams: Streams) -> Choice:
        """The preset for a run, with streams that serve nothing else."""
        return only(offer) if len(offer.choices) == 1 else self.choice(offer, pilot, streams)

    @abstractmethod
    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        """What a release with these measurements and this preset was to choose; and what of it is not known."""


def only(offer: Offer) -> Choice:
    (preset,) = offer.choices
    why = "none: the tree has no level between its root and its cells that is small enough for a pilot"
    return Choice(preset, offer.join(preset).word, why, "nothing: no pilot was measured")


def chosen(offer: Offer, preset: str, why: str) -> Choice:
    charged = "nothing: the public table was declared"
    if offer.pilot is not None:
        charged = f"{decimal(offer.pilot[1])} of epsilon, within the total; the pilot stays a measurement"
    return Choice(preset, offer.join(preset).word, why, charged)


@dataclass(frozen=True)
class Pilot(Chooser):
    """bayes_tree(pilot=True): the rule, from the density and size that the pilot shows."""

    word: ClassVar[str] = "pilot"
    share: ClassVar[Fraction] = shares.PILOT_SHARE["pilot"]
    odd: ClassVar[bool] = False

    @property
    def offered(self) -> Mapping[str, Callable[[int], shares.Shares]]:
        return shares.BAYES

    def stored(self) -> dict[str, Any]:
        return {"refine": "bayes", "shares": self.word}

    def choice(self, offer: Offer, pilot: Whole | None, streams: Streams) -> Choice:
        assert pilot is not None
        return self._rule(offer, pilot)

    def _rule(self, offer: Offer, pilot: Whole) -> Choice:
        density, size = _facts(offer, pilot)
        why = f"pilot: about {density:.2f} of the cells not empty, {size:.0f} scales of noise each on average"
        return chosen(offer, shares.rule(density, size), why)

    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        if offer.pilot is None:
            return only(offer), []
        own = measured.level == offer.pilot[0]
        scale = offer.scale / offer.pilot[1]
        return self._rule(offer, Whole(offer.pilot[0], scale, measured.prefix[own], measured.value[own])), []


def projected(pilot: Whole) -> Float:
    """The pilot on {x >= 0, sum x = max(sum y, 0)}: clamping node by node would add people."""
    from kasuri._kernels.visit import water

    x, t = np.zeros(pilot.y.size), np.empty(1)
    water(
        pilot.y, np.array([0, pilot.y.size]), np.clip(pilot.y.sum(dtype=np.float64, keepdims=True), 0.0, LARGEST), x, t
    )
    return x


def _facts(run: Offer, pilot: Whole) -> tuple[float, float]:
    x = projected(pilot)
    return shares.facts(x, np.full(x.size, float(run.tree.stride(pilot.depth))), float(max(run.scale, LEAST_SCALE)))
