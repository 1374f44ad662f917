"""What is chosen after the budget is charged: presets of a count tree, from noisy counts of a pilot or a public table.

Nothing here sees counts. A simulation draws its own made-up people and its own noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import PrivacyError
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

TURNS = 8
LARGE = 1 << 21
"""Trees of more leaves are simulated once per candidate, smaller ones up to TURNS times."""
BEHIND = 0.15
"""A candidate this far behind the best, in mean log error, is simulated no further."""
POOL_LEVELS = 6
"""Splits of so many levels above the pilot stand for those below it."""


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
        return _only(offer) if len(offer.choices) == 1 else self.choice(offer, pilot, streams)

    @abstractmethod
    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        """What a release with these measurements and this preset was to choose; and what of it is not known."""


def _only(offer: Offer) -> Choice:
    (preset,) = offer.choices
    why = "none: the tree has no level between its root and its cells that is small enough for a pilot"
    return Choice(preset, offer.join(preset).word, why, "nothing: no pilot was measured")


def _chosen(offer: Offer, preset: str, why: str) -> Choice:
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
        return _chosen(offer, shares.rule(density, size), why)

    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        if offer.pilot is None:
            return _only(offer), []
        own = measured.level == offer.pilot[0]
        scale = offer.scale / offer.pilot[1]
        return self._rule(offer, Whole(offer.pilot[0], scale, measured.prefix[own], measured.value[own])), []


@dataclass(frozen=True)
class Simulated(Chooser):
    """auto: the candidate of least error over the asked areas, on people made up from the pilot or on the prior."""

    areas: tuple[int, ...]
    metric: Metric
    word: ClassVar[str] = "simulation"
    share: ClassVar[Fraction] = shares.PILOT_SHARE["simulation"]
    odd: ClassVar[bool] = True

    @property
    def offered(self) -> Mapping[str, Callable[[int], shares.Shares]]:
        return shares.BAYES | shares.REFINED

    def stored(self) -> dict[str, Any]:
        return {"refine": "chosen", "shares": self.word, "areas": self.areas, "metric": self.metric}

    def told(self) -> dict[str, Any]:
        return {"shares": self.word, "areas": list(self.areas), "metric": self.metric}

    def beyond(self, cells: int) -> list[int]:
        whole = all(type(area) is int and area > 0 for area in self.areas)
        if not self.areas or not whole or self.metric not in ERRORS:
            raise PrivacyError("areas are whole numbers from 1 on, the metric is rmse or mae; use auto()")
        return [area for area in self.areas if area > cells]

    def needs_pilot(self, prior: PublicTable | None) -> bool:
        return prior is None

    def choice(self, offer: Offer, pilot: Whole | None, streams: Streams) -> Choice:
        return self._found(offer, _simulated(offer, self, pilot, streams))

    def _found(self, offer: Offer, preset: str) -> Choice:
        what = "people made up from the pilot" if offer.pilot is not None else "the declared public table"
        sizes = ", ".join(str(area) for area in self.areas)
        candidates = ", ".join(offer.choices)
        why = f"least {self.metric} for areas of {sizes} cells among {candidates}, simulated on {what}"
        return _chosen(offer, preset, why)

    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        if len(offer.choices) == 1:
            return _only(offer), []
        note = "which preset was chosen: by simulation, with random people; only that it is a candidate"
        return self._found(offer, preset), [note]


def _projected(pilot: Whole) -> Float:
    """The pilot on {x >= 0, sum x = max(sum y, 0)}: clamping node by node would add people."""
    from kasuri._kernels.visit import water

    x, t = np.zeros(pilot.y.size), np.empty(1)
    water(
        pilot.y, np.array([0, pilot.y.size]), np.clip(pilot.y.sum(dtype=np.float64, keepdims=True), 0.0, LARGEST), x, t
    )
    return x


def _facts(run: Offer, pilot: Whole) -> tuple[float, float]:
    x = _projected(pilot)
    return shares.facts(x, np.full(x.size, float(run.tree.stride(pilot.depth))), float(max(run.scale, LEAST_SCALE)))


def _simulated(run: Offer, wanted: Simulated, pilot: Whole | None, streams: Streams) -> str:
    seed = np.empty(4, dtype=np.uint64)
    streams.open("people").fill(seed)
    rng = np.random.default_rng(seed)
    depths = [_depth(run.tree, area) for area in wanted.areas]
    scores: dict[str, list[float]] = {name: [] for name in run.choices}
    racing = list(run.choices)
    for turn in range(TURNS if run.tree.leaves <= LARGE else 1):
        keys, values = _people(run, pilot, rng)
        for name in racing:
            own = Streams(streams.block_key("candidate", turn, 0), name)
            visited = run.visit(name).run(keys, values, own, 1, run.measure(keys, values, own))
            found = run.join(name).refine(visited, run.tree, run.domain)
            errors = [ERRORS[wanted.metric](_gaps(run.tree, depth, (keys, values), found)) for depth in depths]
            scores[name].append(float(np.mean(np.log(np.maximum(errors, 1e-9)))))
        mean = {name: float(np.mean(scores[name])) for name in racing}
        best = min(mean, key=lambda name: mean[name])
        racing = [name for name in racing if mean[name] <= mean[best] + BEHIND]
        if len(racing) == 1:
            break
    return best


def _depth(tree: Order, area: int) -> int:
    """The depth whose blocks are nearest to `area` cells."""
    return min(range(tree.depth + 1), key=lambda depth: abs(np.log2(tree.stride(depth)) - np.log2(area)))


def _people(run: Offer, pilot: Whole | None, rng: np.random.Generator) -> tuple[Int, Int]:
    """Sorted keys and positive counts: the public table in whole numbers, or a random cascade below the pilot."""
    tree, prior = run.tree, run.prior
    if pilot is None:
        assert prior is not None
        values = np.floor(prior.values + rng.random(prior.values.size)).astype(np.int64)
        keys = tree.keys(prior.cells)
        ranked = np.argsort(keys[values > 0])
        return keys[values > 0][ranked], values[values > 0][ranked]
    x = _projected(pilot)
    nodes, mass = pilot.prefix, np.floor(x + rng.random(x.size)).astype(np.int64)
    pool = _splits(tree, pilot, x)
    for depth in range(pilot.depth, tree.depth):
        nodes, mass = nodes[mass > 0], mass[mass > 0]
        children, first = tree.children(nodes, depth, depth + 1)
        weight = rng.choice(pool, children.size)
        owner = np.repeat(np.arange(nodes.size), np.diff(first))
        total = np.bincount(owner, weight, nodes.size)
        weight = np.where(total[owner] > 0, weight, 1.0)
        mass = _shared(weight, first, mass, rng)
        nodes = children
    return nodes[mass > 0], mass[mass > 0]


def _splits(tree: Order, pilot: Whole, x: Float) -> Float:
    """How uneven splits are: children's parts of their parent times their number, where the parent stands out of the
    pilot's noise, on the few levels above the pilot."""
    found = []
    nodes, sums = pilot.prefix, x
    above: Float
    for depth in range(pilot.depth - 1, max(pilot.depth - 1 - POOL_LEVELS, -1), -1):
        parents, at = np.unique(nodes // tree.digits[depth].radix, return_inverse=True)
        above, fan = np.bincount(at, sums).astype(np.float64), np.bincount(at)
        clear = (above > 8 * max(float(pilot.scale), 1e-9)) & (fan > 1)
        found.append((sums * fan[at] / np.maximum(above[at], 1e-9))[clear[at]])
        nodes, sums = parents, above
    pool = np.concatenate(found)
    return pool if pool.size >= 8 else np.ones(1)


def _shared(weight: Float, first: Int, mass: Int, rng: np.random.Generator) -> Int:
    """Each parent's people among its children at random, with the given weights."""
    out = np.zeros(weight.size, dtype=np.int64)
    left, rest = mass.copy(), np.add.reduceat(weight, first[:-1]) if first.size > 1 else np.zeros(0)
    for rank in range(int(np.diff(first).max(initial=0))):
        here = np.flatnonzero(np.diff(first) > rank)
        at = first[here] + rank
        part = np.clip(weight[at] / np.maximum(rest[here], 1e-300), 0.0, 1.0)
        out[at] = rng.binomial(left[here], part)
        left[here] -= out[at]
        rest[here] -= weight[at]
    out[first[1:] - 1] += left  # rounding may leave a few
    return out


def _gaps(tree: Order, depth: int, true: tuple[Int, Int], found: tuple[Int, Int]) -> Float:
    """Errors of the blocks of a depth (their number is the same for all candidates)."""
    nodes = np.concatenate((true[0], found[0])) // tree.stride(depth)
    signed = np.concatenate((-true[1], found[1])).astype(np.float64)
    ranked = np.argsort(nodes, kind="stable")
    starts = np.flatnonzero(np.diff(nodes[ranked], prepend=-1))
    return np.add.reduceat(signed[ranked], starts) if starts.size else np.zeros(1)


Metric = Literal["rmse", "mae"]
ERRORS: dict[str, Callable[[Float], float]] = {
    "rmse": lambda gaps: float(np.sqrt((gaps**2).sum())),
    "mae": lambda gaps: float(np.abs(gaps).sum()),
}
"""What a simulation may be asked to keep small, summed over blocks."""
