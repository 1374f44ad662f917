"""Measure and visit, least squares and weighted projection on the visited tree (docs/proofs/refined_tree.md)."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add_range_sums(keys, sums, nodes, stride, out):
    """out[i] += true sum below node i, keys in [node * stride, (node + 1) * stride); the nodes rise, so it gallops."""
    at = np.int64(0)
    for i in range(nodes.size):
        before = np.int64(0)
        for end in range(2):
            key = (nodes[i] + end) * stride
            if at < keys.size and keys[at] < key:
                step = np.int64(1)
                while at + step < keys.size and keys[at + step] < key:
                    step <<= 1
                low, high = at + (step >> 1), min(at + step, keys.size)
                while low < high:
                    middle = (low + high) >> 1
                    if keys[middle] < key:
                        low = middle + 1
                    else:
                        high = middle
                at = low
            before = sums[at] - before
        out[i] += before


@njit(cache=True, nogil=True)
def water(y, first, totals, out, t):
    """Per group g = first[g]:first[g+1] of numbers y: out = max(y - t, 0) with t such that it sums to totals[g]; t[g]
    is infinite where totals[g] is 0 or the group is empty."""
    for g in range(totals.size):
        start, end = first[g], first[g + 1]
        t[g] = np.inf
        if start == end or totals[g] <= 0.0:
            continue
        ranked = np.sort(y[start:end])
        total, level = 0.0, -np.inf
        for r in range(end - start):  # t is the largest of (sum of the r + 1 largest - total) / (r + 1)
            total += ranked[end - start - 1 - r]
            mean = (total - totals[g]) / (r + 1)
            if mean < level:  # rises, then falls
                break
            level = mean
        t[g] = level
        for i in range(start, end):
            out[i] = max(y[i] - level, 0.0)


@njit(cache=True, nogil=True)
def keep(y, first, t, slack):
    """The i whose y exceeds its group's t less `slack` (infinite: all)."""
    out = np.empty(y.size, np.int64)
    n = 0
    for g in range(t.size):
        for i in range(first[g], first[g + 1]):
            if slack == np.inf or y[i] > t[g] - slack:
                out[n] = i
                n += 1
    return out[:n].copy()


@njit(cache=True, nogil=True)
def combine_up(y, variance, first, below_z, below_v, z, v):
    """Bottom-up least squares: node i's own y (of one variance) with the sum of its children, where it has any."""
    for i in range(y.size):
        z[i], v[i] = y[i], variance
        if first[i] < first[i + 1]:
            s, w = 0.0, 0.0
            for j in range(first[i], first[i + 1]):
                s += below_z[j]
                w += below_v[j]
            z[i] = (y[i] * w + s * variance) / (w + variance)
            v[i] = w * variance / (w + variance)


@njit(cache=True, nogil=True)
def share_out(z, v, closed, first, totals, out):
    """Per group integers near argmin sum (x - z)^2 / v over {x >= 0, sum x = totals[g], x = 0 where closed}, which is
    x = max(z - theta v, 0). Running sums are rounded, not single numbers: every run of children, so every block of them
    in key order, is within 1 of its share. (By largest remainder all would tie, and the first ones would gain.)"""
    for g in range(totals.size):
        start, end = first[g], first[g + 1]
        n = end - start
        if n == 0:
            continue
        ratio = np.empty(n)
        for i in range(n):
            ratio[i] = -z[start + i] / v[start + i]
        ranked = np.argsort(ratio, kind="mergesort")
        s, w, theta = 0.0, 0.0, -np.inf
        for r in range(n):
            i = start + ranked[r]
            if closed[i]:
                continue
            s += z[i]
            w += v[i]
            theta = max(theta, (s - totals[g]) / w)
        running, given, last = 0.0, np.int64(0), -1
        for i in range(start, end):
            x = 0.0 if closed[i] else max(z[i] - theta * v[i], 0.0)
            running += x
            goal = min(np.int64(np.floor(running + 0.5)), totals[g])
            out[i] = goal - given
            given = goal
            if x > 0:
                last = i
        if last >= 0:  # what floating point left over, where totals are beyond 2^53
            out[last] += totals[g] - given


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    first = np.array([0, 1], np.int64)
    add_range_sums(one, np.zeros(2, np.int64), one, 1, one.copy())
    water(one, first, f, f.copy(), f.copy())
    keep(one, first, f, 0.0)
    combine_up(f, 1.0, first, f, f, f.copy(), f.copy())
    share_out(f, f, np.zeros(1, np.bool_), first, np.ones(1, np.int64), one.copy())
