"""The standard decomposition in d dimensions with top-down refinement: what [Terada2015, sec. 6] and the patent name
and leave out.

The coefficients are those of `privelet(order="2d")`: the sum-difference transform along every axis in turn, so that
one person changes prod(1 + k_i) of them by 1 and the noise is Laplace(prod(1 + k_i) / epsilon). Two refinements:

- `lattice`, d = 2: every coefficient is clamped once, into the interval that its refined ancestors leave. Rectangles
  a x b of a row node and a column node have a non-negative sum each, from the whole table down to the cells.
- `axes`, any d: the table of the other axes is refined first, then split along the first axis, cell by cell.

From d = 3 on no coefficient-wise clamp can be non-negative (docs/proofs/standard_decomposition.md has the proof and
the counter-example). Both are post-processing of noisy coefficients. They reproduce the papers on public data, in
floating point, and are not recipes: on the census window the better of them has 2 to 4 times the error of the Morton
order at every size of area below the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float
from kasuri.refine.topdown import topdown_float
from kasuri.trees import transform


def forward(table: NDArray[Any]) -> Float:
    """The standard decomposition: along each axis the root sum, then the differences left - right from the top."""
    out = np.asarray(table, dtype=np.float64)
    for axis in range(out.ndim):
        out = np.moveaxis(_split(np.moveaxis(out, axis, 0)), 0, axis)
    return out


def _split(leaves: Float) -> Float:
    parts = []
    while leaves.shape[0] > 1:
        parts.append(leaves[0::2] - leaves[1::2])
        leaves = leaves[0::2] + leaves[1::2]
    return np.concatenate([leaves, *reversed(parts)])


def inverse(coefficients: Float) -> Float:
    """Back to the table."""
    out = coefficients
    for axis in range(out.ndim):
        out = np.moveaxis(_join(np.moveaxis(out, axis, 0)), 0, axis)
    return out


def _join(coefficients: Float) -> Float:
    sums = coefficients[:1]
    while sums.shape[0] < coefficients.shape[0]:
        d = coefficients[sums.shape[0] : 2 * sums.shape[0]]
        sums = np.stack(((sums + d) / 2, (sums - d) / 2), axis=1).reshape(-1, *sums.shape[1:])
    return sums


def cost(shape: tuple[int, ...]) -> int:
    """How many coefficients one person changes by 1: prod(1 + k_i) for 2^k_i places along axis i."""
    return int(np.prod([size.bit_length() for size in shape]))


def lattice(noisy: Float) -> Float:
    """Coefficient-wise refinement of two axes.

    sums[i, j] are the refined sums of all rectangles 2^i row nodes x 2^j column nodes. The first row and column of
    this lattice are one-dimensional trees. The 2 x 2 table below a rectangle has its margins from there, S the sum,
    R and C the differences of the margins, and one coefficient X left: the four parts (S +- R +- C +- X)/4 are
    non-negative exactly for |R + C| - S <= X <= S - |R - C|, an interval that is never empty since |R|, |C| <= S.
    """
    rows, cols = (size.bit_length() for size in noisy.shape)
    sums: dict[tuple[int, int], Float] = {(0, 0): np.maximum(noisy[:1, :1], 0.0)}
    for j in range(1, cols):
        above = sums[0, j - 1]
        d = np.clip(noisy[:1, 1 << (j - 1) : 1 << j], -above, above)
        sums[0, j] = np.stack(((above + d) / 2, (above - d) / 2), axis=2).reshape(1, -1)
    for i in range(1, rows):
        above = sums[i - 1, 0]
        d = np.clip(noisy[1 << (i - 1) : 1 << i, :1], -above, above)
        sums[i, 0] = np.stack(((above + d) / 2, (above - d) / 2), axis=1).reshape(-1, 1)
        for j in range(1, cols):
            s, halves_r, halves_c = sums[i - 1, j - 1], sums[i, j - 1], sums[i - 1, j]
            r, c = halves_r[0::2] - halves_r[1::2], halves_c[:, 0::2] - halves_c[:, 1::2]
            x = noisy[1 << (i - 1) : 1 << i, 1 << (j - 1) : 1 << j]
            x = np.clip(x, np.abs(r + c) - s, np.maximum(s - np.abs(r - c), np.abs(r + c) - s))
            out = np.empty((1 << i, 1 << j))
            out[0::2, 0::2], out[0::2, 1::2] = (s + r + c + x) / 4, (s + r - c - x) / 4
            out[1::2, 0::2], out[1::2, 1::2] = (s - r + c - x) / 4, (s - r - c + x) / 4
            sums[i, j] = np.maximum(out, 0.0)  # what the last digit of a sum of four may leave
    return sums[rows - 1, cols - 1]


def axes(noisy: Float) -> Float:
    """Refinement of any number of axes: the rest of the axes first, then the first axis from its root, each cell of
    the rest clamped by |difference| <= sum. With one axis it is T1 of the paper."""
    if noisy.ndim == 1:
        size = noisy.size
        sides = transform.levels(np.ones(size, dtype=np.bool_))
        heights = np.repeat([size.bit_length() - 1, *range(size.bit_length() - 1, 0, -1)],
                            [1, *(1 << at for at in range(size.bit_length() - 1))])  # fmt: skip
        return topdown_float(noisy * np.ldexp(1.0, -heights), sides)
    sums = axes(noisy[0])[None]
    while sums.shape[0] < noisy.shape[0]:
        details = noisy[sums.shape[0] : 2 * sums.shape[0]]
        d = np.clip(np.stack([inverse(part) for part in details]), -sums, sums)
        sums = np.stack(((sums + d) / 2, (sums - d) / 2), axis=1).reshape(-1, *sums.shape[1:])
    return sums
