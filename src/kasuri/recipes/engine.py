"""The sparse engines: transform, noise and refinement fused, run over fixed blocks of the tree. Only `mechanism`
calls them. Their law is that of the dense composition (docs/proofs/haar_topdown.md, tests/laws/test_equal_in_law.py).

A tree is cut once: the levels above `block_depth` are the top block, every node at that depth is the root of a block
of its own. The cut is a function of the tree's depth only, and every block has its own keystreams, so the result is
the same for any number of threads and any way to spread blocks over machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.noise.blocks import spread
from kasuri.noise.rng import Streams
from kasuri.noise.samplers import Sampler, discrete_laplace
from kasuri.published.measurements import Measurements
from kasuri.refine import LARGEST
from kasuri.refine.least_squares import simplex_integers
from kasuri.trees.factors import NONE
from kasuri.trees.order import Order

BLOCK_LEVELS = 20
"""A block has at least this many levels below it, where the tree is that deep."""
MAX_BLOCK_DEPTH = 8

_ROOM = 1 << 15  # outputs a block collects before they are set aside


class _Tape:
    """Noise and coins of one block, handed to the kernel in growing pieces."""

    def __init__(self, sampler: Sampler, streams: Streams, level: int, block: int, records: int) -> None:
        self._sampler = sampler
        self._noise_stream = streams.open("noise", level, block)
        self._coin_stream = streams.open("coin", level, block)
        self._pieces = [min(records // 2, 1 << 13), min(records // 16, 1 << 11)]
        self.noise = np.empty(0, dtype=np.int64)
        self.coins = np.empty(0, dtype=np.uint64)

    def _next_size(self, which: int, first: int, most: int) -> int:
        self._pieces[which] = min(max(first, 4 * self._pieces[which]), most)
        return self._pieces[which]

    def more_noise(self) -> None:
        size = self._next_size(0, 256, 1 << 15)
        if self.noise.size != size:
            self.noise = np.empty(size, dtype=np.int64)
        self._sampler.draw_into(self._noise_stream, self.noise)

    def more_coins(self, used: int) -> int:
        """Refill, keeping the words not yet used up; returns the new position in bits."""
        rest = self.coins[used >> 6 :]
        fresh = np.empty(self._next_size(1, 64, 1 << 13), dtype=np.uint64)
        self._coin_stream.fill(fresh)
        self.coins = np.concatenate((rest, fresh))
        return used & 63


@dataclass(frozen=True)
class Block:
    """What one block gave, in parts: leaves (or nodes at its floor) and values; recorded (level, prefix, value)."""

    parts: list[tuple[Int, Int]]
    records: list[tuple[Int, ...]]

    def joined(self) -> tuple[Int, Int]:
        """Keys and values in one piece."""
        keys, values = zip(*self.parts, strict=True) if self.parts else ((), ())
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate((none, *keys)), np.concatenate((none, *values))


@dataclass(frozen=True, eq=False)
class Descent:
    """The top-down descent of [Terada2015] on a binary tree (haar_topdown with the sum-difference transform)."""

    order: Order
    scale: Fraction
    jumps: bool

    @cached_property
    def block_depth(self) -> int:
        return min(max(self.order.depth - BLOCK_LEVELS, 0), MAX_BLOCK_DEPTH)

    @cached_property
    def _tree(self) -> tuple[Any, ...]:
        """The public tree as the arrays the kernel reads."""
        order = self.order
        factors = order.factors
        longest = max((len(factor.levels) for factor in factors), default=0)
        levels = np.zeros((len(factors), max(longest, 1)), dtype=np.int64)
        offset, heap = np.full(len(factors), -1, dtype=np.int64), [np.zeros(1, dtype=np.uint8)]
        for f, factor in enumerate(factors):
            levels[f, : len(factor.levels)] = factor.levels
            if factor.status is not None and not factor.whole:
                offset[f] = sum(part.size for part in heap) - 1  # heap numbering starts at 1
                heap.extend(factor.status)
        return (
            np.array([f for f, _ in order.split_by], dtype=np.int64),
            np.array([depth for _, depth in order.split_by], dtype=np.int64),
            levels,
            np.array([factor.size for factor in factors], dtype=np.int64),
            np.array([len(factor.levels) for factor in factors], dtype=np.int64),
            offset,
            np.concatenate(heap),
            (1 << len(factors)) - 1,
        )

    def whole_factors(self, depth: int, prefix: int) -> int:
        """Bit f set: the node has no structural zero in factor f."""
        if self.order.whole:
            return (1 << len(self.order.factors)) - 1
        bits = 0
        for f, factor in enumerate(self.order.factors):
            own = [level for level in factor.levels if level < depth]
            digits = 0
            for level in own:
                digits = digits << 1 | (prefix >> (depth - 1 - level)) & 1
            if factor.of(len(own), np.array([digits]))[0] == 2:
                bits |= 1 << f
        return bits

    def run_block(
        self,
        keys: Int,
        sums: Int,
        root: tuple[int, int, int],
        floor: int,
        tape: _Tape,
        record: bool,
        skip_noise: int = 0,
    ) -> Block:
        """One block from its root (depth, prefix, S > 0) to `floor`."""
        from kasuri._kernels import topdown as kernel

        depth, prefix, S = root
        stack = np.zeros((self.order.depth + 2, 6), dtype=np.int64)
        stack[0] = depth, prefix, S, 0, keys.size, self.whole_factors(depth, prefix)
        state = np.zeros(kernel.STATE, dtype=np.int64)
        state[kernel.TOP], state[kernel.NOISE] = 1, skip_noise
        room = min(64 + 4 * keys.size, _ROOM)
        out_keys, out_values = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        records = [np.empty(room if record else 0, dtype=np.int64) for _ in range(3)]
        done = Block([], [])
        code = -1
        while code != kernel.DONE:
            code = kernel.descend(
                keys, sums, self.order.depth, floor, int(self.jumps), *self._tree,
                tape.noise, tape.coins, stack, state, out_keys, out_values, *records,
            )  # fmt: skip
            if code == kernel.NEED_NOISE:
                tape.more_noise()
                state[kernel.NOISE] = 0
            elif code == kernel.NEED_COINS:
                state[kernel.COIN] = tape.more_coins(int(state[kernel.COIN]))
            if code in (kernel.DONE, kernel.NEED_ROOM):
                used, state[kernel.OUT] = int(state[kernel.OUT]), 0
                done.parts.append((out_keys[:used], out_values[:used]))
                if code == kernel.NEED_ROOM:
                    out_keys, out_values = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
                elif 2 * used < room:  # do not keep a large buffer for a few numbers
                    done.parts[-1] = out_keys[:used].copy(), out_values[:used].copy()
            if record and code in (kernel.DONE, kernel.NEED_RECORDS):
                used, state[kernel.RECORDED] = int(state[kernel.RECORDED]), 0
                done.records.append(tuple(part[:used] for part in records))
                if code == kernel.NEED_RECORDS:
                    records = [np.empty(room, dtype=np.int64) for _ in range(3)]
                elif 2 * used < room:
                    done.records[-1] = tuple(part[:used].copy() for part in records)
        return done

    def run(
        self, keys: Int, values: Int, streams: Streams, threads: int, record: bool
    ) -> tuple[list[tuple[Int, Int]], Measurements | None]:
        """Sorted keys and positive values of the true records -> those of the release, in parts one after the other.

        Cost: O(m + outputs) with jumps, O(m + outputs * k) without, for m records and k levels.
        """
        sums = prefix_sums(values)
        k, cut = self.order.depth, self.block_depth
        top = self.top(keys, sums, streams, record)
        if cut == 0 or not top.parts:
            return top.parts, self._measurements(top.records, record)
        top_keys, top_values = top.joined()
        edges = np.searchsorted(keys, np.concatenate((top_keys, top_keys + 1)) << (k - cut)).reshape(2, -1)

        def one(i: int) -> Block:
            low, high = int(edges[0, i]), int(edges[1, i])
            return self.below(
                int(top_keys[i]), int(top_values[i]), keys[low:high], sums[low : high + 1], streams, record
            )

        blocks = spread(one, range(top_keys.size), threads)
        recorded = [*top.records, *(part for block in blocks for part in block.records)]
        return [part for block in blocks for part in block.parts], self._measurements(recorded, record)

    def top(self, keys: Int, sums: Int, streams: Streams, record: bool) -> Block:
        """From the root to the nodes at `block_depth`; to the leaves of a tree that is not cut.

        Above the cut only the sums of the nodes there count, so whoever holds no more than these can hand in one
        record per node, at its first leaf.
        """
        cut = self.block_depth
        tape = _Tape(discrete_laplace(self.scale), streams, 0, 0, 0 if cut else keys.size)
        tape.more_noise()
        noisy_total = min(int(sums[-1]) + int(tape.noise[0]), LARGEST)
        root = (np.array([-1]), np.array([0]), np.array([noisy_total]))
        if noisy_total <= 0:
            return Block([], [root])
        top = self.run_block(keys, sums, (0, 0, noisy_total), cut or self.order.depth, tape, record, skip_noise=1)
        return Block(top.parts, [root, *top.records])

    def below(self, prefix: int, S: int, keys: Int, sums: Int, streams: Streams, record: bool) -> Block:
        """One block: from node `prefix` at `block_depth`, of refined sum S > 0 and with these true records, to the
        leaves."""
        cut = self.block_depth
        tape = _Tape(discrete_laplace(self.scale), streams, cut, prefix, keys.size)
        return self.run_block(keys, sums, (cut, prefix, S), self.order.depth, tape, record)

    def _measurements(self, recorded: list[tuple[Int, ...]], record: bool) -> Measurements | None:
        if not record:
            return None
        from kasuri._kernels.topdown import count_levels, place_levels

        k = self.order.depth
        first = np.zeros(k + 2, dtype=np.int64)
        for level, _, _ in recorded:
            count_levels(level, first)
        sizes = first[1:].copy()
        np.cumsum(first, out=first)
        prefix, value = np.empty(first[-1], dtype=np.int64), np.empty(first[-1], dtype=np.int64)
        for part in recorded:
            place_levels(*part, first, prefix, value)
        return Measurements(np.repeat(np.arange(-1, k), sizes), prefix, value, dict.fromkeys(range(-1, k), self.scale))


def prefix_sums(values: Int) -> Int:
    """sums[i] = sum of the values before record i."""
    sums = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


@dataclass(frozen=True, eq=False)
class FanDescent:
    """The top-down descent on a tree of any fan-outs (haar_topdown with the nominal transform), level by level.

    Measured node with f possible children: y_i = f S_i - S_parent + N of scale 2(f-1) s; the children of refined sum
    S+ are the integers nearest to the projection of (y_i + S+)/f on {x >= 0, sum x = S+}.
    """

    order: Order
    scale: Fraction

    def run(self, keys: Int, values: Int, streams: Streams) -> tuple[Int, Int]:
        """As Descent.run. Cost: O(kept nodes * fan-out + m k)."""
        sums = prefix_sums(values)
        noise = int(discrete_laplace(self.scale).draw(streams.open("noise", 0, 0), 1)[0])
        noisy_total = min(int(sums[-1]) + noise, LARGEST)
        prefix = np.zeros(1 if noisy_total > 0 else 0, dtype=np.int64)
        kept = np.full(prefix.size, noisy_total, dtype=np.int64)
        own = [np.zeros(prefix.size, dtype=np.int64) for _ in self.order.factors]
        for level, (digit, stride) in enumerate(zip(self.order.digits, self.order.strides, strict=True)):
            radix = digit.radix
            f, depth = self.order.split_by[level]
            child_own = (own[f][:, None] * radix + np.arange(radix)).ravel()
            good = self.order.factors[f].of(depth + 1, child_own) != NONE
            parent = np.repeat(np.arange(prefix.size), radix)[good]
            child = (prefix[:, None] * radix + np.arange(radix)).ravel()[good]
            fan = np.bincount(parent, minlength=prefix.size)
            value = self._children(level, child, parent, fan, kept, keys, sums, stride, streams)
            keep = value > 0
            own = [part[parent][keep] for part in own]
            own[f] = child_own[good][keep]
            prefix, kept = child[keep], value[keep]
        return prefix, kept

    def _children(
        self,
        level: int,
        child: Int,
        parent: Int,
        fan: Int,
        kept: Int,
        keys: Int,
        sums: Int,
        stride: int,
        streams: Streams,
    ) -> Int:
        low = np.searchsorted(keys, child * stride)
        high = np.searchsorted(keys, (child + 1) * stride)
        true = sums[high] - sums[low]
        above = np.zeros(fan.size, dtype=np.int64)
        np.add.at(above, parent, true)  # impossible children hold nothing, so this is S_parent
        width = fan[parent]
        if int(true.max(initial=0)) * int(width.max(initial=1)) >= 1 << 61:
            width, true = width.astype(object), true.astype(object)  # slower, never an error: that would tell
        y = width * true - above[parent]
        for f in np.unique(fan[fan > 1]).tolist():
            own = fan[parent] == f
            noise = discrete_laplace(2 * (f - 1) * self.scale).draw(streams.open("noise", level + 1, f), int(own.sum()))
            y[own] += noise
        out = kept[parent].copy()  # an only child takes everything
        measured = fan[parent] > 1
        if measured.any():
            starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(fan[fan > 1])))
            out[measured] = simplex_integers((y + kept[parent])[measured], starts, kept[fan > 1])
        return out
