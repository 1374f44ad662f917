"""The visited tree: noisy counts of the nodes that were drawn. What refinement sees, and all it may see."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kasuri.arrays import Float, Int

LEAST_SCALE = Fraction(1, 64)
"""Refinement takes smaller scales of noise as this one: below it there is no noise to speak of, and the variance would
leave the range of floats."""


@dataclass(frozen=True, eq=False)
class Level:
    """The drawn nodes of one cut, in key order: noisy count `y`, visiting estimate `x`, and the children of node i at
    first[i]:first[i+1] of the next level (none if it was not kept)."""

    prefix: Int
    y: Int
    x: Float
    first: Int


@dataclass(frozen=True, eq=False)
class Visited:
    """The visited tree: per cut its depth, the scale of its noise, its drawn nodes, and its slack (a node was kept iff
    y > t - slack * scale, t the threshold among its siblings; infinite: every node)."""

    cuts: tuple[int, ...]
    scales: tuple[Fraction, ...]
    slacks: tuple[float, ...]
    levels: tuple[Level, ...]
    normal: bool = False
    """Is the noise discrete Gaussian, and not Laplace?"""
