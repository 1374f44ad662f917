"""A noise is a value: its law, its scale, and everything a recipe, an error or an interval asks of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kasuri.noise import blocks
from kasuri.noise.evidence import Chances, chances
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import Sampler, discrete_laplace, laplace_variance

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

    def draw(
        self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
    ) -> NDArray[np.int64]:
        return blocks.dense_noise(self.sampler, streams, size, threads, purpose, level)


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

    def draw(
        self, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
    ) -> NDArray[np.float64]:
        return blocks.dense_float_noise(float(self.scale), streams, size, purpose, level)
