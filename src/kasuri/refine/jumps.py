"""Jumps: where this slot's own published numbers say that a split changed more than it usually does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.refine.grids import places
from kasuri.refine.learn import Learned, Split

if TYPE_CHECKING:
    from kasuri.refine.filter import Measured, Predicted, Shape

_TIMES = 5.0 ** np.arange(6)  # tau: how much more than usual
_BOXES = (1, 2, 3, 5, 9)
_LARGEST_GRID = 1 << 18
_HITS = 64
_NORMAL = 4.6
_LAPLACE = {1: 8.5, 2: 6.0, 3: 5.2}
_BESIDE = 3.0  # times what a node beside a local event is handed of it: it may give that back

Levels = list[Float]


def allow(
    shape: Shape,
    levels: Sequence[Measured],
    ms: Levels,
    Vs: Levels,
    found: Sequence[Split],
    learned: Sequence[Learned],
    kept: Sequence[tuple[Float, Float]],
) -> tuple[Levels, Levels, Levels, list[Learned]]:
    """Split variances that allow for jumps, flags from 0 to 1, tracking signals, and what was learned of jumps."""
    out, flags, tracks, known = [Vs[0]], [np.zeros(Vs[0].size)], [np.zeros(Vs[0].size)], [learned[0]]
    plain = list(Vs)
    for at in range(1, len(levels)):
        split, R = found[at - 1], shape.variances[at]
        V, flag, own = _single(split, Vs[at], R, learned[at])
        V = V + _below(split, Vs[at])
        q = split.left(Vs[at])
        total = split.e + Vs[at] * q
        track = 0.7 * kept[at][0] + split.r / np.sqrt(total)
        V = V + 0.3 * np.maximum(0.51 * track**2 - 9, 0) * total
        out.append(V)
        flags.append(flag)
        tracks.append(track)
        known.append(own)
    if shape.version < 3:  # since then events are terms of their own
        _around(shape, levels, ms, plain, found, kept, out, flags)
    return out, flags, tracks, known


def lasting(shape: Shape, predicted: Sequence[Predicted], Vs: Levels) -> Levels:
    """Split variances that allow for the end of an event: where the last estimate departed from its profile far more
    than usual, how much of that stays is not known."""
    out = [Vs[0]]
    for V, guess, R in zip(Vs[1:], predicted[1:], shape.variances[1:], strict=True):
        off = np.where(guess.profiled, guess.features[0] - guess.features[2], 0.0)
        usual = np.sqrt(V + 0.1 * R)
        if guess.profiled.any():
            usual = usual * 1.4826 * float(np.median(np.abs(off / usual)[guess.profiled]))
        out.append(V + (0.7 * np.maximum(np.abs(off) - 3 * usual, 0.0)) ** 2)
    return out


def _single(split: Split, V: Float, R: float, learned: Learned) -> tuple[Float, Float, Learned]:
    """One node: r is a mixture of N(0, tau V q + e); the mean gain as a variance. The flag is the weight of tau > 1
    beyond its usual."""
    q = split.left(V)
    spread = _TIMES[:, None] * (V * q) + split.e
    prior = np.full((_TIMES.size, 1), learned.jump / (_TIMES.size - 1))
    prior[0] = 1 - learned.jump
    log = -0.5 * (split.r**2 / spread + np.log(spread))
    weight = prior * np.exp(log - log.max(axis=0))
    weight /= weight.sum(axis=0)
    moved = _TIMES[:, None] * V
    gain = np.minimum((weight * moved / (moved + R)).sum(axis=0), 1 - 1e-9)
    jumped = 1 - weight[0]
    usual = float(np.clip(0.95 * learned.jump + 0.05 * jumped.mean(), 0.003, 0.2))
    flag = np.clip((jumped - 2 * learned.jump) / (1 - 2 * learned.jump), 0.0, 1.0)
    return np.maximum(R * gain / (1 - gain), V), flag, replace(learned, jump=usual)


def _below(split: Split, V: Float) -> Float:
    """Below a node that jumped: all newcomers may be in one child."""
    off = split.surprise
    room = split.parent_noise + np.bincount(split.owner, V, split.parents)
    jumped = np.where(np.abs(off) > 4 * np.sqrt(room), off**2, 0.0)
    return 0.3 * split.h * jumped[split.owner]


def _around(shape: Shape, levels: Sequence[Measured], ms: Levels, plain: Levels, found: Sequence[Split],
            kept: Sequence[tuple[Float, Float]], out: Levels, flags: Levels) -> None:  # fmt: skip
    """Neighbourhoods: sums of surprises over boxes of nodes, of this slot and discounted over the last; what they have
    in excess is allowed for in the box, above it and below it. The nodes above hand it down in proportion, to nodes
    beside the box too, which must be able to give it back (not in the first version)."""
    beside = 0.0 if shape.version == 1 else _BESIDE
    excess: list[Float] = [np.zeros(V.size) for V in out]
    for at in range(1, len(levels)):
        grid = shape.grids[at]
        if grid is None or grid[0] * grid[1] > _LARGEST_GRID:
            continue
        place = places(levels[at].prefix, grid)
        noise = shape.variances[at] + plain[at]
        now = levels[at].y - ms[at]
        for values, half, old in ((now, 1.0, 1.0), (now + 0.7 * kept[at][1], 0.5, 1 / 0.51)):
            painted = half * _boxes(values, noise * old, place, grid, shape.normal)
            excess[at] = np.maximum(excess[at], painted)
    for at in range(1, len(levels)):
        own = excess[at]
        if not own.any():
            continue
        out[at] = out[at] + own**2
        flags[at] = np.maximum(flags[at], np.minimum(own**2 / shape.variances[at], 1.0))
        up: Float = own
        for higher in range(at - 1, -1, -1):
            split = found[higher]
            up = np.bincount(split.owner, up, levels[higher].y.size).astype(np.float64)
            if higher:
                out[higher] = out[higher] + up**2
            if beside:
                out[higher + 1] = out[higher + 1] + (beside * split.h * up[split.owner]) ** 2
        down = own**2
        for lower in range(at + 1, len(levels)):
            split = found[lower - 1]
            fan = np.bincount(split.owner, minlength=split.parents)[split.owner]
            down = split.h * down[split.owner] / fan
            out[lower] = out[lower] + down


def _boxes(values: Float, noise: Float, place: Int, grid: tuple[int, int], normal: bool) -> Float:
    """The excess of each node: (|sum| - 1.5 sd)/nodes of the boxes whose sum is far beyond its noise, the largest."""
    maps = []
    for one in (values, noise):
        dense = np.zeros(grid[0] * grid[1])
        dense[place] = one
        table = np.zeros((grid[0] + 1, grid[1] + 1))
        table[1:, 1:] = dense.reshape(grid).cumsum(axis=0).cumsum(axis=1)
        maps.append(table)
    painted = np.zeros(grid)
    for side in _BOXES:
        if side > min(grid):
            break
        total, spread = (t[side:, side:] - t[:-side, side:] - t[side:, :-side] + t[:-side, :-side] for t in maps)
        sd = np.sqrt(np.maximum(spread, 1e-300))
        z = np.where(spread > 0, total / sd, 0.0)
        z /= max(1.0, 1.4826 * float(np.median(np.abs(z))))
        hits = np.flatnonzero(np.abs(z).ravel() > (_NORMAL if normal else _LAPLACE.get(side, _NORMAL)))
        for hit in hits[np.argsort(-np.abs(z).ravel()[hits], kind="stable")][:_HITS]:
            row, col = divmod(int(hit), z.shape[1])
            extra = max(abs(total[row, col]) - 1.5 * sd[row, col], 0.0) / side**2
            box = painted[row : row + side, col : col + side]
            np.maximum(box, extra, out=box)
    return painted.ravel()[place]
