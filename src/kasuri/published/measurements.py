"""Measurements: the noisy numbers a release was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Measurements:
    """The noisy numbers a release was made of, a function of noisy values alone.

    Node `prefix` at `level` levels below the root was measured as `value`, with discrete Laplace noise of scale
    `scale[level]` (Gaussian noise, where the recipe says so). haar_topdown: level -1 is the root sum, every other
    number a difference left minus right.
    refined_tree, bayes_tree, auto: every number is a count, a pilot's among them.
    """

    level: NDArray[np.int64]
    prefix: NDArray[np.int64]
    value: NDArray[np.int64]
    scale: Mapping[int, Fraction]
