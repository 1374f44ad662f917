"""The exact posterior of splits along a tree: sweeps up and down over all levels (docs/proofs/series.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kasuri.arrays import Float

if TYPE_CHECKING:
    from kasuri.refine.filter import Measured

Levels = list[Float]
Pair = tuple[Float, Float]


def sweeps(
    levels: Sequence[Measured],
    ms: Sequence[Float],
    Vs: Sequence[Float],
    variances: Sequence[float],
    top: Pair | None = None,
) -> tuple[Levels, Levels]:
    """The posterior mean and variance of every node, given predictions and split variances; that of the whole as it
    is given."""
    return down(levels, ms, Vs, *up(levels, ms, Vs, [level.y for level in levels], variances), top)


def up(levels: Sequence[Measured], ms: Sequence[Float], Vs: Sequence[Float], ys: Sequence[Float],
       variances: Sequence[float], lowest: Pair | None = None) -> tuple[Levels, Levels]:  # fmt: skip
    """z and v, what the subtree of every node says of it; of the lowest level as they are given, where they are."""
    from kasuri._kernels.filter import sweep_up

    none = np.zeros(0)
    z, v = [none] * len(levels), [none] * len(levels)
    if lowest is not None:
        z[-1], v[-1] = lowest
    for at in range(len(levels) - (1 if lowest is None else 2), -1, -1):
        z[at], v[at] = np.empty(ys[at].size), np.empty(ys[at].size)
        last = at == len(levels) - 1
        below = (none,) * 4 if last else (ms[at + 1], Vs[at + 1], z[at + 1], v[at + 1])
        sweep_up(levels[at].first, *below, ys[at], variances[at], z[at], v[at])
    return z, v


def down(levels: Sequence[Measured], ms: Sequence[Float], Vs: Sequence[Float], z: Levels, v: Levels,
         top: Pair | None = None) -> tuple[Levels, Levels]:  # fmt: skip
    """The posterior from what the subtrees say."""
    from kasuri._kernels.filter import sweep_down

    x, f = ([z[0]], [v[0]]) if top is None else ([top[0]], [top[1]])
    for at in range(1, len(levels)):
        x.append(np.empty(z[at].size))
        f.append(np.empty(z[at].size))
        sweep_down(levels[at - 1].first, ms[at], Vs[at], z[at], v[at], x[at - 1], f[at - 1], x[at], f[at])
    return x, f
