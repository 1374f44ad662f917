"""Packed bits in bulk: coins of an exact probability, the truth put among them, sums of columns.

In numpy, 64 lanes to a word: a device or a collector that sends and counts unary reports loads no compiler.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kasuri.noise.rng import Stream, Streams

Rows = NDArray[np.uint8]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_PART = 1 << 17
"""Words worked on at a time: a megabyte."""
_FULL_PLANES = 5
"""Planes after which hardly a word of 64 lanes is decided as a whole."""


def coins(streams: Streams, purpose: str, block: int, count: int, threshold: int, bits: int) -> Words:
    """At least `count` bits, packed in 64-bit words, each 1 with probability threshold / 2^bits."""
    out = np.zeros(-(-count // 64), dtype=np.uint64)
    stream = streams.open(purpose, 0, block)
    for start in range(0, out.size, _PART):
        flip(stream, threshold, bits, out[start : start + _PART])
    return out


def flip(stream: Stream, threshold: int, bits: int, below: Words) -> None:
    """Set each bit of `below`, which is 0, with probability threshold / 2^bits.

    Every lane compares a fresh uniform U of `bits` bits, most significant first, with the threshold: it is decided at
    the first bit where they differ, and U = threshold gives 0. Words whose lanes are all decided draw no more.
    """
    undecided = np.full(below.size, ~np.uint64(0))
    at: Ints | None = None  # the words that are still drawn for; None: all
    for plane in range(bits - 1, -1, -1):
        u = np.empty(undecided.size, dtype=np.uint64)
        stream.fill(u)
        if threshold >> plane & 1:
            u &= undecided  # the lanes that are still equal
            undecided ^= u  # the lanes with U below
            if at is None:
                below |= undecided
            else:
                below[at] |= undecided
            undecided = u
        else:
            undecided &= ~u
        if plane < bits - _FULL_PLANES:
            left = np.flatnonzero(undecided)
            if not left.size:
                return
            if left.size < 0.75 * undecided.size:
                undecided, at = undecided[left], left if at is None else at[left]


def set_truth(rows: Rows, values: Ints, truth: Words, size: int) -> None:
    """In every packed row clear the padding above `size` bits and put the report's coin in place of its true bit."""
    n, width = rows.shape
    if size % 8:
        rows[:, -1] &= (1 << size % 8) - 1
    coin = np.unpackbits(truth.astype("<u8", copy=False).view(np.uint8), count=n, bitorder="little")
    bit = (values & 7).astype(np.uint8)
    flat, at = rows.reshape(-1), np.arange(n) * width + (values >> 3)
    flat[at] = flat[at] & ~(np.uint8(1) << bit) | coin << bit


def column_sums(rows: Rows, size: int) -> Ints:
    """Set bits in each of the first `size` columns of packed rows.

    Eight rows are `width` 64-bit words exactly; adders without carry chains turn three words of one weight into one
    of that weight and one of twice it, until few are left to unpack.
    """
    n, width = rows.shape
    whole = n // 8 * 8
    words = np.ascontiguousarray(rows[:whole]).reshape(-1).view("<u8").reshape(-1, width)
    sums = np.zeros(64 * width, dtype=np.int64)
    step = max(64, _PART // width)
    for start in range(0, words.shape[0], step):
        level, weight = words[start : start + step], 1
        while level.shape[0]:
            carries = []
            while level.shape[0] > 8:
                third = level.shape[0] // 3
                a, b, c = level[:third], level[third : 2 * third], level[2 * third : 3 * third]
                odd = a ^ b
                carries.append(a & b | odd & c)
                level = np.concatenate((odd ^ c, level[3 * third :]))
            sums += weight * _unpacked(level.view(np.uint8).reshape(level.shape[0], -1))
            level, weight = np.concatenate(carries) if carries else level[:0], 2 * weight
    return (sums.reshape(8, 8 * width).sum(axis=0) + _unpacked(rows[whole:]))[:size]


def _unpacked(rows: Rows) -> Ints:
    return np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)


def padding(rows: Rows, size: int) -> NDArray[np.bool_]:
    """True where a packed row has a bit set above `size`."""
    if size % 8 == 0:
        return np.zeros(rows.shape[0], dtype=bool)
    return rows[:, -1] >> (size % 8) != 0
