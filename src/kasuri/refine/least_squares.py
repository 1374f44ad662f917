"""Noisy counts of nested levels joined by weighted least squares, and shared out as non-negative integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasuri.arrays import Array
from kasuri.errors import NumericsError
from kasuri.refine import LARGEST


def simplex_integers(scaled: Array, starts: Array, totals: Array) -> Array:
    """Nearest integers of the projection on {x >= 0, sum x = total}, group by group, in exact arithmetic.

    Group g is scaled[starts[g]:starts[g+1]]: its f entries are f times the estimates.
    """
    from kasuri._kernels.simplex import simplex_groups

    out = np.zeros(scaled.size, dtype=np.int64)
    if scaled.size == 0:
        return out
    widest = int(np.diff(starts).max())
    largest = max(int(np.abs(scaled).max()), int(totals.max()) * widest)
    if scaled.dtype == np.int64 and largest * widest * 2 < 1 << 62:
        simplex_groups(scaled, starts, totals, out)
        return out
    # beyond 64 bits: the same computation in whole numbers of any size. An error here would tell about the counts
    for g, total in enumerate(totals.tolist()):
        out[starts[g] : starts[g + 1]] = _simplex_group([int(e) for e in scaled[starts[g] : starts[g + 1]]], total)
    return out


def _simplex_group(e: list[int], S: int) -> list[int]:
    """One group of `simplex_integers`, as in the kernel: x = (A e - E + f S) / (A f) on the active entries."""
    f = len(e)
    active = E = total = 0
    for r, value in enumerate(sorted(e, reverse=True), start=1):
        total += value
        if r * value - total + f * S > 0:
            active, E = r, total
    tops = [max(active * value - E + f * S, 0) for value in e]
    out = [top // (active * f) for top in tops]
    by_rest = sorted(range(f), key=lambda i: (-(tops[i] % (active * f)) if tops[i] else 1, i))
    for i in by_rest[: S - sum(out)]:
        out[i] += 1
    return out


def whole_total(estimates: Array) -> Array:
    """The sum of estimates as one whole number from 0 to LARGEST."""
    return np.array([np.rint(np.clip(estimates.sum(dtype=np.float64), 0.0, float(LARGEST)))]).astype(np.int64)


def least_squares(levels: list[tuple[Array, Array]], variances: list[float]) -> tuple[Array, list[Array]]:
    """From noisy counts of nested levels to non-negative integer leaves: `refined_tree`.

    `levels` holds per level (y, first): node i's children are first[i]:first[i+1] of the next level, none where it was
    not descended; `variances` the noise variance of each level. Bottom-up weighted least squares combines every node's
    y with its children's sum; top-down the total max(round(sum), 0) is shared out by the projection weighted with the
    estimates' variances, running sums rounded inside each node. A node that reaches no leaf gets nothing, so every
    level has the same sum. Returns the integers of every level.
    """
    z, v = combine(levels, variances)
    out = share(levels, z, v, whole_total(z[0]))
    return out[-1], out


def combine(
    levels: list[tuple[Array, Array]], variances: list[float], below: tuple[Array, Array] | None = None
) -> tuple[list[Array], list[Array]]:
    """Estimates and their variances of every level, bottom-up; `below` those of the level under the last one."""
    from kasuri._kernels.visit import combine_up

    z: list[Array] = [np.zeros(0)] * len(levels)
    v: list[Array] = [np.zeros(0)] * len(levels)
    under = below or (np.zeros(0), np.zeros(0))
    for at in range(len(levels) - 1, -1, -1):
        y, first = levels[at]
        z[at], v[at] = np.empty(y.size), np.empty(y.size)
        own = y if y.dtype == np.int64 and y.flags.writeable else y.astype(np.float64)  # no copy of most numbers
        combine_up(own, variances[at], first, under[0], under[1], z[at], v[at])
        under = z[at], v[at]
    return z, v


def share(levels: list[tuple[Array, Array]], z: list[Array], v: list[Array], total: Array,
          open_below: Array | None = None) -> list[Array]:  # fmt: skip
    """Integers of every level, top-down: `total` is shared out over the first level, each node's share over its
    children. A node that reaches no leaf gets none; `open_below` tells which nodes of the last level do, where that is
    not the level of the leaves."""
    from kasuri._kernels.visit import share_out

    closed = [np.zeros(z[-1].size, dtype=bool) if open_below is None else ~open_below]
    for _, children in reversed(levels[:-1]):
        before = children
        if closed[0].any():  # open nodes of the next level before each of its nodes
            before = np.append(0, np.cumsum(~closed[0]))[children]
        closed.insert(0, before[1:] == before[:-1])
    totals, first = total, np.array([0, z[0].size], dtype=np.int64)
    out = []
    for at, (_, children) in enumerate(levels):
        shares = np.zeros(z[at].size, dtype=np.int64)
        share_out(z[at], v[at], closed[at], first, totals, shares)
        out.append(shares)
        totals, first = shares, children
    return out


def consistency(levels: list[tuple[Array, Array]], variances: list[float]) -> Array:
    """The leaves of the weighted least-squares table: every node is the sum of its children; may be negative.

    Bottom-up as in `least_squares`; top-down each node's surplus over its children's estimates is shared among them in
    proportion to their variances [Hay2010, theorem 3; there all levels have one variance]. `levels` is the whole tree.
    """
    z, v = combine(levels, variances)
    values = z[0]
    for at in range(1, len(levels)):
        owner = np.repeat(np.arange(values.size), np.diff(levels[at - 1][1]))
        surplus = values - np.bincount(owner, z[at], values.size)
        values = z[at] + surplus[owner] * v[at] / np.bincount(owner, v[at], values.size)[owner]
    return values


def nonnegative_fit(rows: Array, noisy: Array) -> Array:
    """Whole numbers x >= 0 whose measured numbers rows @ x lie as near to `noisy` as can be (largest distance, a linear
    program [Barak2007]), rounded by largest remainder so that their sum is the rounded sum."""
    from scipy.optimize import linprog

    m, n = rows.shape
    size = max(float(np.abs(noisy).max()), 1.0)  # HiGHS wants numbers near 1
    slack = np.full((m, 1), -1.0)
    found: Any = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[rows.astype(np.float64), slack], [-rows.astype(np.float64), slack]]),
        b_ub=np.append(noisy / size, -noisy / size),
        bounds=(0, None),
        method="highs",
    )
    if found.x is None:
        raise NumericsError("the linear program found no table; this should not happen: every program here has one")
    exact = np.maximum(found.x[:n] * size, 0.0)
    whole = np.floor(exact).astype(np.int64)
    left = int(np.rint(exact.sum())) - int(whole.sum())
    whole[np.argsort(-(exact - whole), kind="stable")[: max(left, 0)]] += 1
    return whole
