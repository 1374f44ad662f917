"""Mask: cells in which nobody can be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri.errors import DomainError, FormatError

MAX_MASK = 1 << 30
"""Most cells under one mask read from a file: it is held as an array."""


@dataclass(frozen=True)
class Mask:
    """Impossible cells of one axis, or of several axes together; `bits` packs a boolean array of `shape`."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    bits: bytes = field(repr=False)

    @classmethod
    def of(cls, axes: Sequence[str], impossible: ArrayLike) -> Mask:
        array = np.asarray(impossible)
        if array.dtype != np.bool_:
            raise DomainError(f"mask of {'x'.join(axes)}: a boolean array is needed, True where no one can be")
        return cls(tuple(axes), array.shape, np.packbits(array.ravel()).tobytes())

    def impossible(self) -> NDArray[np.bool_]:
        return _unpack(self.bits, self.shape)

    def beside(self, at: int, cells: tuple[slice | int, ...]) -> Mask:
        """The same with one index more along dimension `at`, where `cells` of the others alone are possible."""
        more = np.ones([size for d, size in enumerate(self.shape) if d != at], dtype=bool)
        more[cells] = False
        return Mask.of(self.axes, np.concatenate([self.impossible(), np.expand_dims(more, at)], axis=at))

    def to_json(self) -> dict[str, Any]:
        flat = self.impossible().ravel()
        edges = np.flatnonzero(np.diff(flat)) + 1
        runs = np.diff(np.concatenate(([0], edges, [flat.size]))).tolist()
        return {"axes": list(self.axes), "shape": list(self.shape), "first": bool(flat[0]), "runs": runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mask:
        runs = np.asarray(data["runs"], dtype=np.int64)
        cells = math.prod(data["shape"])
        if runs.ndim != 1 or (runs < 0).any() or not 0 < cells <= MAX_MASK or sum(runs.tolist()) != cells:
            raise FormatError(f"mask: its runs must add up to the cells of its shape, at most {MAX_MASK}")
        values = (np.arange(runs.size) % 2 == 1) ^ bool(data["first"])
        return cls.of(tuple(data["axes"]), np.repeat(values, runs).reshape(data["shape"]))


@lru_cache(maxsize=8)
def _unpack(bits: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    array = np.unpackbits(np.frombuffer(bits, np.uint8), count=math.prod(shape)).astype(bool).reshape(shape)
    array.flags.writeable = False
    return array
