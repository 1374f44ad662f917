"""A series estimated once more, each slot with the slots before and after it: the filter run both ways.

Neither prediction contains the slot's own numbers, so nothing is counted twice (docs/proofs/series.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kasuri.arrays import Array, Float
from kasuri.refine import filter as filters
from kasuri.refine import jumps, learn
from kasuri.refine.filter import FLAT, Estimate, Measured, Shape, State, When
from kasuri.refine.learn import Learned

Slot = Callable[[], tuple[list[Measured], When]]
_HALF = np.array([0.5, 0.5])


def smooth(shape: Shape, slots: Sequence[Slot], wanted: range) -> Iterator[list[Estimate]]:
    """The estimates of the `wanted` ones of consecutive `slots`, each read when it is needed."""
    ahead = _guesses(shape, slots, wanted, range(len(slots)))
    back = _guesses(shape, slots, wanted, range(len(slots) - 1, -1, -1))
    levels = len(shape.variances)
    weights = _weights(shape, slots, wanted, ahead, back)
    learned = [Learned.begin() for _ in range(levels)]
    for last in (False, True):  # variances are learned from all of them, then used
        for t in wanted:
            numbers, when = slots[t]()
            found = _again(shape, numbers, when, _joined(ahead[t], back[t], weights), learned)
            learned = found[1]
            if last:
                yield found[0]


def _guesses(shape: Shape, slots: Sequence[Slot], wanted: range, order: range) -> dict[int, list[tuple[Array, Array]]]:
    """(prediction, known) of every level of the wanted slots, from the slots that come before them in `order`."""
    state, out = filters.begin(shape), {}
    for t in order:
        levels, when = slots[t]()
        if t in wanted:
            out[t] = [_guess(state, at, level, when) for at, level in enumerate(levels)]
        state = filters.step(shape, state, levels, when)[1]
    return out


def _guess(state: State, at: int, level: Measured, when: When) -> tuple[Array, Array]:
    if state.row < 0:
        return np.zeros(level.y.size, dtype=np.float32), np.zeros(level.y.size, dtype=bool)
    found = filters.predict(state.known[at], state.learned[at], state, when, level.prefix)
    return found.m.astype(np.float32), found.seen


def _weights(shape: Shape, slots: Sequence[Slot], wanted: range, ahead: dict[int, list[tuple[Array, Array]]],
             back: dict[int, list[tuple[Array, Array]]]) -> list[Float]:  # fmt: skip
    """Of the two predictions, by level: least squares of the slots' own numbers, with a ridge towards a half each."""
    sums = [(np.zeros((2, 2)), np.zeros(2)) for _ in shape.variances]
    for t in wanted:
        levels, _ = slots[t]()
        for at, level in enumerate(levels):
            (one, seen), (two, known) = ahead[t][at], back[t][at]
            both = seen & known
            features = np.stack((one[both], two[both])).astype(np.float64)
            weight = 1 / (shape.variances[at] + features.mean(axis=0).clip(0))
            G, g = sums[at]
            sums[at] = G + (weight * features) @ features.T, g + features @ (weight * level.y[both])
    out = []
    for G, g in sums:
        ridge = 0.001 * np.trace(G) / 2 + 1e-9
        out.append(np.linalg.solve(G + ridge * np.eye(2), g + ridge * _HALF))
    return out


def _joined(
    one: list[tuple[Array, Array]], two: list[tuple[Array, Array]], weights: list[Float]
) -> list[tuple[Float, Array]]:
    """Both predictions where there are both, else the one there is."""
    out = []
    for (m, seen), (n, known), (a, b) in zip(one, two, weights, strict=True):
        both = np.maximum(a * m.astype(np.float64) + b * n, 0.0)
        out.append((np.where(seen & known, both, np.where(seen, m, n)), seen | known))
    return out


def _again(shape: Shape, levels: list[Measured], when: When, guess: list[tuple[Float, Array]],
           learned: list[Learned]) -> tuple[list[Estimate], list[Learned]]:  # fmt: skip
    ms, Vs, found = [levels[0].y.copy()], [np.full(1, FLAT * shape.variances[0])], []
    after = [learned[0]]
    for at in range(1, len(levels)):
        level, above, (m, seen) = levels[at], levels[at - 1], guess[at]
        owner = np.repeat(np.arange(above.y.size), np.diff(above.first))
        fan = np.diff(above.first)[owner]
        m = np.where(seen, m, ms[at - 1][owner] / fan)
        split = learn.split(level.y, m, above, owner, fan, shape.variances[at], shape.variances[at - 1])
        own, V = learn.variances(split, learned[at], when.part, seen)
        ms.append(m)
        Vs.append(np.where(seen, V, FLAT * shape.variances[at]))
        found.append(split)
        after.append(own)
    none = [(np.zeros(level.y.size), np.zeros(level.y.size)) for level in levels]
    boxes = replace(shape, version=min(shape.version, 2))  # an event is known from both sides: no term of its own
    Vs, flags, _, after = jumps.allow(boxes, levels, ms, Vs, found, after, none)
    flat = [np.full(V.size, FLAT * R) for V, R in zip(Vs, shape.variances, strict=True)]
    first, alone = filters.sweeps(levels, ms, flat, shape.variances)
    x, f = filters.sweeps(levels, ms, Vs, shape.variances, (first[0], alone[0]))
    return filters.estimates(levels, x, f, flags), after
