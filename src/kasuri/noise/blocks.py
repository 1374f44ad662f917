"""Dense noise in fixed blocks: each has its own keystream, so any number of threads gives the same numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import Sampler, float_laplace

A = TypeVar("A")
B = TypeVar("B")

DENSE_BLOCK = 1 << 16
"""Coefficients per keystream in dense recipes."""


def threads_or_all(threads: int | None) -> int:
    """`threads`, or one per core this process may use."""
    if threads is not None:
        return max(1, threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(function: Callable[[A], B], items: Iterable[A], threads: int) -> list[B]:
    """[function(item) ...] in order, by `threads` threads (the kernels release the interpreter lock)."""
    if threads == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def dense_noise(
    sampler: Sampler, streams: Streams, size: int, threads: int, purpose: str = "noise", level: int = 0
) -> Int:
    """`size` samples, block b of DENSE_BLOCK from its own stream."""
    out = np.empty(size, dtype=np.int64)

    def one(block: int) -> None:
        part = out[block * DENSE_BLOCK : (block + 1) * DENSE_BLOCK]
        dense_block(sampler, streams, block, part, purpose, level)

    spread(one, range(-(-size // DENSE_BLOCK)), threads)
    return out


def dense_block(
    sampler: Sampler, streams: Streams, block: int, out: Int, purpose: str = "noise", level: int = 0
) -> None:
    """Overwrite `out` with the samples of one block (the last block of a table may be shorter)."""
    sampler.draw_into(streams.open(purpose, level, block), out)


def dense_float_noise(
    scale: float, streams: Streams, size: int, purpose: str = "noise", level: int = 0
) -> NDArray[np.float64]:
    """Floating-point Laplace noise, in blocks as `dense_noise`."""
    starts = range(0, size, DENSE_BLOCK)
    parts = [
        float_laplace(scale, streams.open(purpose, level, i), min(DENSE_BLOCK, size - at))
        for i, at in enumerate(starts)
    ]
    return np.concatenate([np.zeros(0), *parts])


def dense_coins(streams: Streams, size: int) -> Int:
    """`size` fair bits, one per coefficient."""
    words = np.empty(-(-size // 32), dtype=np.uint32)
    for block in range(-(-words.size // DENSE_BLOCK)):
        streams.open("coin", 0, block).fill(words[block * DENSE_BLOCK : (block + 1) * DENSE_BLOCK])
    return np.unpackbits(words.view(np.uint8), count=size, bitorder="little").astype(np.int64)
