"""A noise is a value: its law, its scale, and everything a recipe, an error or an interval asks of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kasuri.noise import blocks
from kasuri.noise.evidence import Chances, chances
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import Sampler, discrete_gaussian, discrete_laplace, laplace_variance

KEYSTREAM = "the keystream (AES-256-CTR under BLAKE2b keys) is as good as ideal random bits"
IDEALISED = "idealised numerics: floating-point noise, for reproducing papers only"


@dataclass(frozen=True)
class Noise(ABC):
    """Noise of one number: `scale` is that of a coefficient of weight 1."""

    scale: Fraction
    name: ClassVar[str]
    """The word of stored releases."""
    sampler_words: ClassVar[str]
    continuous: ClassVar[bool] = False
    """Does it leave the whole numbers?"""
    caveat: ClassVar[str]
    """What the claim of a release with this noise assumes."""

    def over(self, share: Fraction) -> Self:
        """The noise of a number that is measured with this share of epsilon."""
        return replace(self, scale=self.scale / share)

    @property
    @abstractmethod
    def variance(self) -> float: ...

    @property
    @abstractmethod
    def loss(self) -> Fraction | None:
        """The epsilon of one number that moves by 1, where the loss is that of randomised response; None where no pair
        is proved (docs/proofs/composition.md)."""

    @abstractmethod
    def half_width(self, level: float) -> float:
        """The least q with P(|N| > q) <= 1 - level."""

    @abstractmethod
    def repeats(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """How likely, at most, a sum of so many values is to be any one number (`evidence`)."""

    def chances(self, values: NDArray[Any]) -> Chances:
        """How likely this noise is to be as small as each of these numbers (`evidence`)."""
        return chances(values, float(self.scale), self.continuous)

    @abstractmethod
    def draw(self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0) -> NDArray[Any]:
        """`size` independent values, in blocks that each have their own keystream."""


@dataclass(frozen=True)
class DiscreteLaplace(Noise):
    """P(N = n) in proportion to exp(-|n| / scale), exact on the integers."""

    name: ClassVar[str] = "discrete Laplace"
    sampler_words: ClassVar[str] = "exact on the integers"
    caveat: ClassVar[str] = KEYSTREAM

    @property
    def variance(self) -> float:
        return laplace_variance(self.scale)

    @property
    def loss(self) -> Fraction:
        return 1 / self.scale

    @property
    def sampler(self) -> Sampler:
        return discrete_laplace(self.scale)

    def draw_block(self, streams: Streams, block: int, out: NDArray[np.int64]) -> None:
        """Overwrite `out` with the values of one block of `draw`."""
        blocks.dense_block(self.sampler, streams, block, out)

    def half_width(self, level: float) -> float:
        # P(|N| > q) = 2 a^(q+1)/(1+a), a = exp(-1/scale)
        a = math.exp(-1 / float(self.scale)) if self.variance > 0 else 0.0
        return 0.0 if a == 0 else max(math.ceil(math.log((1 - level) * (1 + a) / 2) / math.log(a) - 1 - 1e-9), 0)

    def repeats(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        return 1 / np.sqrt(1 + 2 * numbers * self.variance)

    def draw(
        self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
    ) -> NDArray[np.int64]:
        return blocks.dense_noise(self.sampler, streams, size, threads, purpose, level)


@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """P(N = n) in proportion to exp(-n^2 / (2 scale^2)), exact on the integers; its price needs a delta.

    Shares are spent in squares: a number of share s has the variance scale^2 / s.
    """

    name: ClassVar[str] = "discrete Gaussian"
    sampler_words: ClassVar[str] = "exact on the integers"
    caveat: ClassVar[str] = KEYSTREAM

    def over(self, share: Fraction) -> DiscreteGaussian:
        """Rounded up to 24 bits: a scale must be rational, and more noise is never dearer than it is claimed to be."""
        return DiscreteGaussian(root_above(self.scale**2 / share))

    @cached_property
    def _masses(self) -> NDArray[np.float64]:
        """P(|N| = n) from 0 as far as floating point reaches."""
        s = float(self.scale)
        at = np.arange(math.ceil(12 * s) + 40, dtype=np.float64)
        mass = np.exp(-at * at / (2 * s * s))
        mass[1:] *= 2
        return mass / mass.sum()

    @property
    def variance(self) -> float:
        return float((self._masses * np.arange(self._masses.size, dtype=np.float64) ** 2).sum())

    @property
    def loss(self) -> None:
        return None

    @property
    def sampler(self) -> Sampler:
        return discrete_gaussian(self.scale**2)

    def half_width(self, level: float) -> float:
        beyond = np.cumsum(self._masses[::-1])[::-1]  # P(|N| >= n)
        return float(np.flatnonzero(np.append(beyond, 0.0) <= 1 - level)[0] - 1)

    def chances(self, values: NDArray[Any]) -> Chances:
        within = np.minimum(np.cumsum(self._masses), 1.0)
        at = np.minimum(np.abs(values.astype(np.float64)), within.size - 1).astype(np.int64)
        return within[at], np.full(at.size, within[0])

    def repeats(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        # from a variance parameter of 4 on a sum is a discrete Gaussian, but for a factor below 1.001
        # (docs/proofs/gaussian.md), and a normalising sum exceeds sqrt(2 pi n) scale; a sum of several is never more
        # likely to be one number than one of them
        many = 1.001 / np.sqrt(2 * math.pi * np.maximum(numbers, 1)) / float(self.scale)
        alone = self._masses[0]
        return np.minimum(many, alone) if self.scale >= 2 else np.full(numbers.size, alone)

    def draw(
        self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
    ) -> NDArray[np.int64]:
        return blocks.dense_noise(self.sampler, streams, size, threads, purpose, level)


def root_above(square: Fraction) -> Fraction:
    """A rational of 24 bits at least the square root."""
    size = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    places = 24 - size
    scaled = square * Fraction(4) ** places
    least = math.isqrt(-(-scaled.numerator // scaled.denominator))
    return Fraction(least if Fraction(least) ** 2 >= scaled else least + 1) / Fraction(2) ** places


WholeNoise = DiscreteLaplace | DiscreteGaussian
"""Noise that stays on the whole numbers, with an exact sampler."""


@dataclass(frozen=True)
class FloatLaplace(Noise):
    """Floating-point Laplace noise of the papers: its guarantee assumes idealised numerics."""

    name: ClassVar[str] = "float Laplace"
    sampler_words: ClassVar[str] = "floating point (papers only)"
    continuous: ClassVar[bool] = True
    caveat: ClassVar[str] = IDEALISED

    @property
    def variance(self) -> float:
        return 2 * float(self.scale) ** 2

    @property
    def loss(self) -> None:
        return None

    def half_width(self, level: float) -> float:
        return -math.log(1 - level) * float(self.scale)

    def repeats(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(numbers.size, 1e-300)

    def draw(
        self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
    ) -> NDArray[np.float64]:
        return blocks.dense_float_noise(float(self.scale), streams, size, purpose, level)
