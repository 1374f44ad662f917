"""auto: the preset that does best, tried on people made up from a pilot's noisy counts, or on a public table.

Nothing here sees counts. A simulation draws its own made-up people and its own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.errors import PrivacyError
from kasuri.noise.rng import Streams
from kasuri.public import PublicTable
from kasuri.published.measurements import Measurements
from kasuri.recipes import shares
from kasuri.recipes.choose import Choice, Chooser, Offer, chosen, only, projected
from kasuri.recipes.visit import Whole
from kasuri.trees.order import Order
from kasuri.trees.part import Part

LARGE = 1 << 21
"""Trees of more leaves are tried fewer times."""
BEHIND = 0.15
"""A candidate this far behind the best, in mean log error, is simulated no further."""
POOL_LEVELS = 6
"""Splits below the pilot are drawn from those of so many levels above it."""
LEAST_LEAVES = 1 << 16
LEAST_NODES = 32
FEWER = 32
"""A part has one leaf in so many, but at least so many leaves and so many nodes."""
WITHIN = 64
"""Nodes of a part have at least so many times the cells of the largest area: the levels above them are thinned."""
TURN_VARIANCE = 0.03**2
"""Of a gap between two candidates from one part to the next, at least: two turns may agree by chance."""


@dataclass(frozen=True)
class Race:
    """How candidates are tried; a release names the version.

    `turns`: so often at most, `large` for trees of more than LARGE leaves. `parts`: each time on a random part of the
    map where the areas allow it. `sure`: a candidate so many standard errors behind the best is tried no further."""

    turns: int
    large: int
    parts: bool
    sure: float


VERSIONS = {1: Race(8, 1, False, inf), 2: Race(8, 4, True, 2.5)}
"""The first tried every candidate on the whole map."""


@dataclass(frozen=True)
class Simulated(Chooser):
    """auto: the candidate of least error over the asked areas, on people made up from the pilot or on the prior."""

    areas: tuple[int, ...]
    metric: Metric
    version: int = 2
    word: ClassVar[str] = "simulation"
    share: ClassVar[Fraction] = shares.PILOT_SHARE["simulation"]
    odd: ClassVar[bool] = True

    @property
    def offered(self) -> Mapping[str, Callable[[int], shares.Shares]]:
        return shares.BAYES | shares.REFINED

    def stored(self) -> dict[str, Any]:
        """Without the version: what is measured and spent is the same, and declared series go on."""
        return {"refine": "chosen", "shares": self.word, "areas": self.areas, "metric": self.metric}

    def told(self) -> dict[str, Any]:
        told = {"shares": self.word, "areas": list(self.areas), "metric": self.metric}
        return told | ({"version": self.version} if self.version > 1 else {})  # what was told before never changes

    def beyond(self, cells: int) -> list[int]:
        whole = all(type(area) is int and area > 0 for area in self.areas)
        if not self.areas or not whole or self.metric not in ERRORS or self.version not in VERSIONS:
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
        return chosen(offer, preset, why)

    def again(self, offer: Offer, preset: str, measured: Measurements) -> tuple[Choice, list[str]]:
        if len(offer.choices) == 1:
            return only(offer), []
        note = "which preset was chosen: by simulation, with random people; only that it is a candidate"
        return self._found(offer, preset), [note]


def _simulated(run: Offer, wanted: Simulated, pilot: Whole | None, streams: Streams) -> str:
    seed = np.empty(4, dtype=np.uint64)
    streams.open("people").fill(seed)
    rng, race = np.random.default_rng(seed), VERSIONS[wanted.version]
    depths = [_depth(run.tree, area) for area in wanted.areas]
    scene = _Scene.of(run, pilot, max(wanted.areas) if race.parts else None)
    scores: dict[str, list[float]] = {name: [] for name in run.choices}
    racing, best = list(run.choices), ""
    for turn in range(scene.turns(race)):
        own_run, keys, values = scene.drawn(rng)
        for name in racing:
            own = Streams(streams.block_key("candidate", turn, 0), name)
            visited = own_run.visit(name).run(keys, values, own, 1, own_run.measure(keys, values, own))
            found = own_run.join(name).refine(visited, own_run.tree, run.domain)
            errors = [ERRORS[wanted.metric](_gaps(run.tree, depth, (keys, values), found)) for depth in depths]
            scores[name].append(float(np.mean(np.log(np.maximum(errors, 1e-9)))))
        best, racing = _ahead({name: np.array(scores[name]) for name in racing}, race.sure)
        if len(racing) == 1:
            break
    return best


def _ahead(scores: Mapping[str, Float], sure: float) -> tuple[str, list[str]]:
    """The best, and all who are near it."""
    best = min(scores, key=lambda name: float(np.mean(scores[name])))
    near = []
    for name, own in scores.items():
        gap, limit = own - scores[best], BEHIND
        if gap.size > 1 and sure < inf:
            limit = min(limit, sure * sqrt((float(gap.var(ddof=1)) + TURN_VARIANCE) / gap.size))
        if float(np.mean(own)) <= float(np.mean(scores[best])) + limit:
            near.append(name)
    return best, near


@dataclass(frozen=True, eq=False)
class _Scene:
    """The made-up map that candidates are tried on. `at`, `nodes`, `people`: a depth at which parts are cut, its
    possible nodes and what is known of the people there; `count` of the nodes are a part (all: the whole map)."""

    run: Offer
    pilot: Whole | None
    x: Float
    pool: Float
    at: int
    nodes: Int
    people: Float
    count: int

    @classmethod
    def of(cls, run: Offer, pilot: Whole | None, area: int | None) -> _Scene:
        tree = run.tree
        x = np.zeros(0) if pilot is None else projected(pilot)
        pool = np.zeros(0) if pilot is None else _splits(tree, pilot, x)
        whole = cls(run, pilot, x, pool, 0, np.zeros(1, dtype=np.int64), np.zeros(1), 1)
        height = shares.pilot_height(tree, odd=True) if area is not None else None
        if area is None or height is None:
            return whole
        deepest = tree.stages[len(tree.stages) - 1 - height] if pilot is None else pilot.depth
        at = max(
            (depth for depth in tree.stages if depth <= deepest and tree.stride(depth) >= WITHIN * area), default=0
        )
        nodes, _ = tree.children(np.zeros(1, dtype=np.int64), 0, at)
        share = max(LEAST_LEAVES / tree.leaves, 1 / FEWER)
        count = min(max(int(np.ceil(share * nodes.size)), LEAST_NODES), nodes.size)
        if count == nodes.size:
            return whole
        if pilot is not None:
            known, weight = pilot.prefix // tree.width(at, pilot.depth), x
        else:
            assert run.prior is not None
            known, weight = tree.keys(run.prior.cells) // tree.stride(at), run.prior.values
        people = np.bincount(np.searchsorted(nodes, known), weight, nodes.size).astype(np.float64)
        return cls(run, pilot, x, pool, at, nodes, people, count)

    def turns(self, race: Race) -> int:
        if self.run.tree.leaves <= LARGE:
            return race.turns
        return race.large if self.count < self.nodes.size else 1

    def drawn(self, rng: np.random.Generator) -> tuple[Offer, Int, Int]:
        """A part of the map, or the whole, with new people."""
        if self.count == self.nodes.size:
            return self.run, *_people(self.run, self.pilot, self.x, self.pool, rng)
        tree, own = self.run.tree, self.nodes[_evenly(self.people, self.count, rng)]
        pilot, x, prior = self.pilot, self.x, self.run.prior
        if pilot is not None:
            here = np.isin(pilot.prefix // tree.width(self.at, pilot.depth), own)
            pilot, x = replace(pilot, prefix=pilot.prefix[here], y=pilot.y[here]), x[here]
        else:
            assert prior is not None
            here = np.isin(tree.keys(prior.cells) // tree.stride(self.at), own)
            prior = PublicTable(prior.domain, prior.cells[here], prior.values[here], prior.name)
        run = replace(self.run, tree=Part.of(tree, self.at, own), prior=prior)
        return run, *_people(run, pilot, x, self.pool, rng)


def _evenly(people: Float, count: int, rng: np.random.Generator) -> Int:
    """`count` places, evenly along the ranks of how many people they have: a part is mixed as the whole is."""
    ranked = np.lexsort((rng.random(people.size), people))
    step = people.size / count
    at = ((rng.random() + np.arange(count)) * step).astype(np.int64)
    return np.sort(ranked[np.minimum(at, people.size - 1)])


def _depth(tree: Order, area: int) -> int:
    """The depth whose blocks are nearest to `area` cells."""
    return min(range(tree.depth + 1), key=lambda depth: abs(np.log2(tree.stride(depth)) - np.log2(area)))


def _people(run: Offer, pilot: Whole | None, x: Float, pool: Float, rng: np.random.Generator) -> tuple[Int, Int]:
    """Sorted keys and positive counts: the public table in whole numbers, or a random cascade below the pilot."""
    tree, prior = run.tree, run.prior
    if pilot is None:
        assert prior is not None
        values = np.floor(prior.values + rng.random(prior.values.size)).astype(np.int64)
        keys = tree.keys(prior.cells)
        ranked = np.argsort(keys[values > 0])
        return keys[values > 0][ranked], values[values > 0][ranked]
    nodes, mass = pilot.prefix, np.floor(x + rng.random(x.size)).astype(np.int64)
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
