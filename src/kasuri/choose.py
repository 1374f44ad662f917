"""What is chosen after the budget is charged: presets of a count tree, from noisy counts of a pilot or a public table.

Nothing here sees counts. A simulation draws its own made-up people and its own noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from kasuri import bayes, shares
from kasuri.errors import PrivacyError, unknown
from kasuri.mechanism import Run
from kasuri.noise import laplace_variance
from kasuri.order import Order
from kasuri.privacy import decimal
from kasuri.refine import LARGEST, least_squares
from kasuri.rng import Streams
from kasuri.visit import Whole, measure_whole
from kasuri.visited import LEAST_SCALE, Float, Int, Visited

Refine = Literal["bayes", "least squares"]

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
    refine: Refine
    why: str
    charged: str

    def words(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "refined": self.refine,
            "tuning": {"source": self.why, "charged": self.charged},
        }


def refined(run: Run, visited: Visited, refine: str) -> tuple[Int, Int]:
    """Keys and positive integers of the leaves, from noisy counts."""
    if refine == "bayes":
        return bayes.estimate(visited, run.trees[0], run.domain, run.mechanism.prior)
    if refine != "least squares":
        raise PrivacyError(f"a count tree is refined by bayes or least squares, not {refine!r}")
    leaves, _ = least_squares([(level.y, level.first) for level in visited.levels], variances(visited.scales))
    keep = leaves > 0
    return visited.levels[-1].prefix[keep], leaves[keep]


def variances(scales: Sequence[Fraction]) -> list[float]:
    """Noise variance per measured level of a count tree."""
    return [laplace_variance(max(scale, LEAST_SCALE)) for scale in scales]


def choose(run: Run, pilot: Whole | None, streams: Streams) -> Choice:
    """The preset for a run: by the rule, or by simulation for the areas it was asked for, with streams that serve
    nothing else."""
    if len(run.choices) == 1:
        (preset,) = run.choices
        why = "none: the tree has no level between its root and its cells that is small enough for a pilot"
        return Choice(preset, refine_of(preset), why, "nothing: no pilot was measured")
    if run.mechanism.shares == "simulation":
        return simulated(run, _simulated(run, pilot, streams))
    if run.mechanism.shares != "pilot":
        raise unknown(PrivacyError, "who chooses the shares", run.mechanism.shares, ("pilot", "simulation"))
    assert pilot is not None
    density, size = _facts(run, pilot)
    why = f"pilot: about {density:.2f} of the cells not empty, {size:.0f} scales of noise each on average"
    return Choice(shares.rule(density, size), "bayes", why, _charged(run))


def simulated(run: Run, preset: str) -> Choice:
    """The choice of a simulation that found `preset` best."""
    what = "people made up from the pilot" if run.pilot is not None else "the declared public table"
    sizes = ", ".join(str(area) for area in run.mechanism.areas)
    why = f"least {run.mechanism.metric} for areas of {sizes} cells among {', '.join(run.choices)}, simulated on {what}"
    return Choice(preset, refine_of(preset), why, _charged(run))


def _charged(run: Run) -> str:
    if run.pilot is None:
        return "nothing: the public table was declared"
    return f"{decimal(run.pilot[1])} of epsilon, within the total; the pilot stays a measurement"


def refine_of(preset: str) -> Refine:
    """How a preset refines its noisy counts."""
    if preset in shares.BAYES:
        return "bayes"
    if preset not in shares.REFINED:
        raise unknown(PrivacyError, "the preset", preset, (*shares.BAYES, *shares.REFINED))
    return "least squares"


def _projected(pilot: Whole) -> Float:
    """The pilot on {x >= 0, sum x = max(sum y, 0)}: clamping node by node would add people."""
    from kasuri._kernels.visit import water

    x, t = np.zeros(pilot.y.size), np.empty(1)
    water(
        pilot.y, np.array([0, pilot.y.size]), np.clip(pilot.y.sum(dtype=np.float64, keepdims=True), 0.0, LARGEST), x, t
    )
    return x


def _facts(run: Run, pilot: Whole) -> tuple[float, float]:
    x = _projected(pilot)
    return shares.facts(x, np.full(x.size, float(run.trees[0].stride(pilot.depth))), float(max(run.scale, LEAST_SCALE)))


def _simulated(run: Run, pilot: Whole | None, streams: Streams) -> str:
    """The candidate of least error over the asked areas, on people made up from the pilot or on the public table."""
    tree, mechanism = run.trees[0], run.mechanism
    seed = np.empty(4, dtype=np.uint64)
    streams.open("people").fill(seed)
    rng = np.random.default_rng(seed)
    depths = [_depth(tree, area) for area in mechanism.areas]
    scores: dict[str, list[float]] = {name: [] for name in run.choices}
    racing = list(run.choices)
    for turn in range(TURNS if tree.leaves <= LARGE else 1):
        keys, values = _people(run, pilot, rng)
        for name in racing:
            cuts = run.choices[name]
            own = Streams(streams.block_key("candidate", turn, 0), name)
            known = None
            if run.pilot is not None:
                depth, share = run.pilot
                known = measure_whole(tree, depth, run.scale / share, keys, values, own)
            visited = run.visit(cuts, refine_of(name)).run(keys, values, own, 1, known)
            found = refined(run, visited, refine_of(name))
            errors = [_error(tree, depth, (keys, values), found, mechanism.metric) for depth in depths]
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


def _people(run: Run, pilot: Whole | None, rng: np.random.Generator) -> tuple[Int, Int]:
    """Sorted keys and positive counts: the public table in whole numbers, or a random cascade below the pilot."""
    tree, prior = run.trees[0], run.mechanism.prior
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


def _error(tree: Order, depth: int, true: tuple[Int, Int], found: tuple[Int, Int], metric: str) -> float:
    """Sum of absolute or root sum of squared errors over the blocks of a depth (their number is the same for all)."""
    nodes = np.concatenate((true[0], found[0])) // tree.stride(depth)
    signed = np.concatenate((-true[1], found[1])).astype(np.float64)
    ranked = np.argsort(nodes, kind="stable")
    starts = np.flatnonzero(np.diff(nodes[ranked], prepend=-1))
    errors = np.add.reduceat(signed[ranked], starts) if starts.size else np.zeros(1)
    if metric == "mae":
        return float(np.abs(errors).sum())
    if metric != "rmse":
        raise unknown(PrivacyError, "the metric", metric, ("rmse", "mae"))
    return float(np.sqrt((errors**2).sum()))
