"""Least squares without sign constraint on a drawn tree, and boxes against its nodes (docs/proofs/intervals.md)."""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def join_up(y, own, first, below_z, below_v, z, v):
    """Node i's own number y (of variance own[i]) with the sum of its children, where it has any."""
    for i in range(y.size):
        z[i], v[i] = y[i], own[i]
        if first[i] < first[i + 1]:
            s, w = 0.0, 0.0
            for j in range(first[i], first[i + 1]):
                s += below_z[j]
                w += below_v[j]
            z[i] = (y[i] * w + s * own[i]) / (w + own[i])
            v[i] = w * own[i] / (w + own[i])


@njit()
def spread_down(first, z, v, above_x, above_f, x, f):
    """Children j of node i: x = z + (v/Sv)(x_i - Sz), f = v - v^2/Sv + (v/Sv)^2 f_i, with sums over the children."""
    for i in range(above_x.size):
        start, end = first[i], first[i + 1]
        s, w = 0.0, 0.0
        for j in range(start, end):
            s += z[j]
            w += v[j]
        for j in range(start, end):
            share = v[j] / w
            x[j] = z[j] + share * (above_x[i] - s)
            f[j] = v[j] * (1.0 - share) + share * share * above_f[i]


@njit()
def limit_down(first, x, f, factor, above_upper, upper):
    """Upper limits of all children: x + factor sqrt(f), at least half the latter, at most the parent's upper limit."""
    for i in range(above_upper.size):
        for j in range(first[i], first[i + 1]):
            half = factor * np.sqrt(f[j])
            upper[j] = min(max(x[j] + half, 0.5 * half), above_upper[i])


@njit()
def _place(prefix, depth, dims, weights, radices, start, span):
    """The half-open range of places of a node along every dimension; a span of -1: the whole dimension."""
    start[:] = 0
    span[:] = -1
    for j in range(depth - 1, -1, -1):
        d = dims[j]
        start[d] += prefix % radices[j] * weights[j]
        prefix //= radices[j]
        if span[d] < 0:
            span[d] = weights[j]


@njit()
def box_status(prefix, region, depth, dims, weights, radices, low, high, out):
    """Node `prefix` at `depth` against box `region`: 0 apart, 1 cut by its border, 2 inside. low and high are half-open
    ranges of places per region and dimension; digit i of a prefix splits dimension dims[i] by weights[i]."""
    start, span = np.zeros(low.shape[1], np.int64), np.zeros(low.shape[1], np.int64)
    for i in range(prefix.size):
        r = region[i]
        _place(prefix[i], depth, dims, weights, radices, start, span)
        status = 2
        for d in range(span.size):
            if span[d] < 0:
                if low[r, d] > 0 or high[r, d] < np.int64(1) << 62:
                    status = min(status, 1)
                continue
            if start[d] >= high[r, d] or start[d] + span[d] <= low[r, d]:
                status = 0
                break
            if start[d] < low[r, d] or start[d] + span[d] > high[r, d]:
                status = 1
        out[i] = status


@njit()
def box_share(prefix, region, depth, dims, weights, radices, sizes, low, high, out):
    """Share of a node's places (of `sizes` per dimension, padding left out) that lie in box `region`."""
    start, span = np.zeros(low.shape[1], np.int64), np.zeros(low.shape[1], np.int64)
    for i in range(prefix.size):
        r = region[i]
        _place(prefix[i], depth, dims, weights, radices, start, span)
        share = 1.0
        for d in range(span.size):
            a = start[d]
            b = sizes[d] if span[d] < 0 else min(a + span[d], sizes[d])
            share *= max(min(b, high[r, d]) - max(a, low[r, d]), 0) / max(b - a, 1)
        out[i] = share


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    first, box = np.array([0, 1], np.int64), np.ones((1, 1), np.int64)
    join_up(f, f, first, f, f, f.copy(), f.copy())
    spread_down(first, f, f, f, f, f.copy(), f.copy())
    limit_down(first, f, f, 1.0, f, f.copy())
    box_status(one, one, 0, one, one, one, box, box, one.copy())
    box_share(one, one, 0, one, one, one, one, box, box, f.copy())
