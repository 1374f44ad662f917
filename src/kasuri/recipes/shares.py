"""Shares of epsilon for the measured heights of a count tree: presets, the rule that chooses one, the pilot.

Heights count from the cells (0) up; `top` is the height of the root. All shares are exact and sum to exactly 1.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kasuri.trees.order import Order

Shares = dict[int, Fraction]

PILOT_SHARE = {"pilot": Fraction(8, 100), "simulation": Fraction(4, 100)}
"""By who chooses. The rule's pilot has about what its level deserves anyway: with less it became the worst size. The
simulation may choose a preset that measures other levels: then its pilot is little use afterwards."""
PILOT_NODES = 1 << 11
"""The pilot is the finest level of at most this many nodes."""
FULL = 8.0
"""An inhabited cell is taken to hold about this many scales of noise, where its block is not full of such cells."""


def weighted(cells: str, lowest: int, first: str, last: str) -> Callable[[int], Shares]:
    """`cells` on height 0; the rest on heights lowest..top-1 in proportion to (first, 1, ..., 1, last)."""

    def shares(top: int) -> Shares:
        if top < 2:
            return {0: Fraction(1)}
        heights = range(min(lowest, top - 1), top)
        weights = dict.fromkeys(heights, Fraction(1)) | {heights[0]: Fraction(first), heights[-1]: Fraction(last)}
        rest = (1 - Fraction(cells)) / sum(weights.values())
        return {0: Fraction(cells)} | {height: rest * weight for height, weight in weights.items()}

    return shares


BAYES: dict[str, Callable[[int], Shares]] = {
    "sparse": weighted("0.23", 2, "1", "1"),
    "scattered": weighted("0.36", 2, "1", "1.4"),
    "middle": weighted("0.55", 3, "0.8", "1.2"),
    "dense": weighted("0.63", 4, "1", "1.1"),
}
"""Presets of bayes_tree: height of the tree -> {measured height: share of epsilon}."""

REFINED: dict[str, Callable[[int], Shares]] = {
    "u4": lambda top: {height: Fraction(1, top + 1) for height in range(top + 1)},
    "even16": lambda top: {height: Fraction(1, top // 2 + 1) for height in range(0, top + 1, 2)},
    "tilt16": lambda top: (
        {0: Fraction(1)}
        if top < 2
        else {0: Fraction(2, 5)} | {height: Fraction(3, 5 * (top // 2)) for height in range(2, top + 1, 2)}
    ),
}
"""Presets of refined_tree."""


def _series(top: int) -> Shares:
    """Cells 2/5; every second height above them and the top in proportion to 11, 10, 5, 4, 4, ..."""
    heights = [*range(2, top, 2), top] if top else []
    weights = [Fraction(([11, 10, 5] + [4] * len(heights))[at]) for at in range(len(heights))]
    rest = (1 - Fraction(2, 5)) / sum(weights) if heights else Fraction(0)
    shares = {height: rest * weight for height, weight in zip(heights, weights, strict=True)}
    return {0: 1 - sum(shares.values(), start=Fraction(0))} | shares


SERIES: dict[str, Callable[[int], Shares]] = {"series": _series}
"""Preset of refined_tree for tables that follow one another and are filtered: the top is measured too."""


def rule(density: float, size: float) -> str:
    """The preset of bayes_tree for a table of which `density` of all cells are not empty and hold `size` scales of
    noise each, on average. Both are public, or estimated from noisy numbers."""
    if density >= 0.3 and size >= 20:
        return "dense"
    if density >= 0.12 and size >= 5.5:
        return "middle"
    return "scattered" if density >= 0.02 and size >= 10 else "sparse"


def with_pilot(shares: Shares, height: int, pilot: Fraction) -> Shares:
    """The same shares, scaled to leave `pilot` for the pilot's height."""
    others = {at: share for at, share in shares.items() if at != height}
    scale = (1 - pilot) / sum(others.values())
    return {height: pilot} | {at: share * scale for at, share in others.items()}


def pilot_height(tree: Order, *, odd: bool = False) -> int | None:
    """The finest height above the cells with at most PILOT_NODES nodes; None in a tree too small or too wide.

    odd: an odd height next to it, which the presets of even heights do not measure: theirs keep their shares. The
    lower one, or where that is too wide the upper one, if there is one.
    """
    stages = tree.stages
    top = len(stages) - 1
    for height in range(1, top):
        if tree.width(0, stages[top - height]) <= PILOT_NODES:
            found = max(height, min(3, top - 1))
            if not odd or found % 2:
                return found
            if tree.width(0, stages[top - found + 1]) <= 16 * PILOT_NODES:
                return found - 1
            return min(found + 1, top - 1)
    return None


def facts(sums: NDArray[np.float64], cells: NDArray[np.float64], scale: float) -> tuple[float, float]:
    """(density, size) of a table as `rule` takes them, from non-negative sums over blocks of so many cells.

    A block of mean r (in scales of noise per cell) is taken to have a share min(1, r / FULL) of inhabited cells.
    """
    total = float(cells.sum())
    filled = float(np.minimum(sums / (scale * FULL), cells).sum())
    return filled / total, float(sums.sum()) / scale / max(filled, 1e-9)
