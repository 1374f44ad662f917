"""What the nodes around a count say about it: limits from above (docs/proofs/intervals.md).

A count is at most that of every drawn node around it. The least of their limits is too low, since a count that is all
they hold may be lost at each of them; here what was seen of a path is taken together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from kasuri.arrays import Float
from kasuri.published.estimate import Estimated

_SMALL = 4.0
"""A node whose estimate is below so many standard deviations might have lost a count that is all it holds."""
_CHOOSE = 0.95
"""The level at which windows are chosen, whatever is asked for."""
_SECOND = 2.0
"""A second limit, by the window of the node or of the one around, has one of so many parts of the error."""
_CUT = (0.3, 0.7)
"""An area reaches this part of the half-width of nodes that it cuts and that were not descended (counts, differences):
what is lost in one of them may lie outside of the area as well."""
TWICE = (1.0, 1.25)
"""Parts of the error that a window has which begins after 0, 1, ... small nodes; none begins after more of them."""
EVER = tuple(float(part) for part in range(1, 65))
"""The parts by which releases were saved before: a window begins anywhere, with ever less of the error."""
SIZES = np.geomspace(0.5, 16, 37)
"""Counts that are weighed against a path of differences, in noise scales; a larger one is hardly ever lost."""
_MARGIN = 0.5
"""What a node that holds more than the count is taken to hold besides, in noise scales: its sum is noisy too."""
_LEAST = np.minimum(1.5, np.maximum(0.15 + 0.58 * SIZES, 1.2 * SIZES - 0.71))
"""The log odds at which a size is given up, in units of log(1 - level): a small count cannot weigh more than twice its
size in one number (docs/proofs/intervals.md: measured)."""
_ALSO = 1.3
"""The odds that are a second limit have one of so many parts of the error."""


def factor(level: float, parts: float = 1) -> float:
    """Half-width of a two-sided interval in standard deviations: the larger of the normal and the Laplace quantile.
    parts: that of an interval which may use one of so many parts of the error."""
    error = (1 - level) / parts
    return max(-NormalDist().inv_cdf(error / 2), -math.log(error) / math.sqrt(2))


def above(x: Float, half: Float) -> Float:
    """Upper limits x + half, but at least half / 2: how far below 0 a noisy number fell says little about a count,
    which is not negative, and an interval of no width would say that all is known."""
    return np.maximum(x + half, half / 2)


@dataclass(frozen=True, eq=False)
class Said:
    """What is said of the drawn nodes of one level: `closed`, the limit of whatever lies below one that was not
    descended; `second`, a second limit of what lies in a drawn one; `low` and `high`, which the interval of a drawn
    node reaches; `cut`, which the limit of an area reaches that cuts one which was not descended."""

    closed: Float
    second: Float
    low: Float
    high: Float
    cut: Float


def said(tree: Estimated, level: float) -> list[Said]:
    """What is said of all drawn nodes, level by level; kept for the level that was asked for last."""
    kept: Any = tree.__dict__.get("_said")
    if kept is None or kept[0] != level:
        kept = tree.__dict__["_said"] = level, weighed(tree, level) if tree.halves else pooled(tree, level)
    return kept[1]


@dataclass(frozen=True, eq=False)
class Window:
    """What a node and those above it say together about a count: the estimate, and its standard deviation, of a count
    that has been all its ancestors held since the window began; and what part of the error the window has."""

    x: Float
    sd: Float
    chances: Any
    parts: tuple[float, ...]

    def half(self, level: float, share: float = 1) -> Float:
        """Half-widths, from one of so many shares of the error."""
        factors = np.array([factor(level, share * part) for part in self.parts])
        return factors[self.chances] * self.sd

    def upper(self, level: float, share: float = 1) -> Float:
        """Limits of whatever lies below the nodes."""
        return above(self.x, self.half(level, share))


def windows(tree: Estimated, parts: tuple[float, ...] = TWICE) -> list[Window]:
    """The windows of all drawn nodes, level by level.

    A count has as many chances to be lost as there are drawn nodes around it, so the least of their limits, each at the
    level asked for, would be too low. What was seen of its ancestors is pooled, or the node begins a window of its own;
    after two small ancestors none begins any more (docs/proofs/intervals.md). Which of them is chosen at one level for
    all, so that intervals grow with theirs.
    """
    from kasuri._kernels.intervals import pool_down

    factors = np.full(max(len(tree.levels), len(parts)) + 1, np.inf)
    factors[: len(parts)] = [factor(_CHOOSE, part) for part in parts]
    top = tree.levels[0]
    small = (top.x < _SMALL * np.sqrt(top.f)).astype(np.int64)
    state: Any = (top.x, top.f, np.zeros_like(small), small)
    out = [Window(top.x, np.sqrt(top.f), state[2], parts)]
    for parents, own in zip(tree.levels, tree.levels[1:], strict=False):
        new = tuple(np.empty(own.x.size, dtype=old.dtype) for old in state)
        pool_down(parents.first, own.x, own.f, own.v, factors, _SMALL, parents.x, *state, *new)
        state = new
        out.append(Window(new[0], np.sqrt(new[1]), new[2], parts))
    return out


def pooled(tree: Estimated, level: float, parts: tuple[float, ...] = TWICE) -> list[Said]:
    """By windows: the nodes of a path pooled to one estimate."""
    c = factor(level)
    return [
        Said(
            window.upper(level),
            window.upper(level, _SECOND),
            window.x - c * window.sd,
            np.maximum(window.x + c * window.sd, 0.0),
            above(window.x, _CUT[tree.halves] * window.half(level)),
        )
        for window in windows(tree, parts)
    ]


def weighed(tree: Estimated, level: float) -> list[Said]:
    """By the odds of counts of every size, from the differences along a path, or by windows: the lower limit of the
    two, which are seldom wrong apart from each other."""
    from kasuri._kernels.intervals import largest, weigh_down

    top, out = tree.levels[0], []
    scale = np.sqrt(top.f[0] / 2)
    total, odds = np.maximum(top.x / scale, 0.0), np.zeros((top.x.size, SIZES.size))
    for at, (own, by) in enumerate(zip(tree.levels, pooled(tree, level), strict=True)):
        if at:
            before, scale = (total, odds), np.sqrt(own.v[:1]).sum()  # 0 where the level is empty
            total, odds = np.empty(own.x.size), np.empty((own.x.size, SIZES.size))
            weigh_down(tree.levels[at - 1].first, 2 * own.z / max(scale, 1e-300), *before, SIZES, _MARGIN, total, odds)
        found = np.empty((2, own.x.size))
        for parts, limits in zip((1.0, _ALSO), found, strict=True):
            largest(odds, SIZES, math.log((1 - level) / parts) * _LEAST, limits)
        limits = np.maximum(found * scale, factor(level) / 2 * np.sqrt(own.f))
        closed, second = (np.minimum(one, other) for one, other in zip(limits, (by.closed, by.second), strict=True))
        out.append(Said(closed, second, by.low, np.minimum(by.high, closed), by.cut))
    return out
