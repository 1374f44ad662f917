"""Parts joined to a visited tree: potentials up, covariances down, projections, rounding (docs/proofs/woven_tree.md).

A tree is flat: node i has the children start[i]:end[i], which come after it; none: it is a unit, whose potential is
given. The first `top` nodes are the children of the root. One thread, sums in a fixed order. Every kernel is total.
"""

import numpy as np

from kasuri._kernels.cached import njit


@njit(error_model="numpy")
def lift(start, end, top, v, a):
    """a holds the units' potentials; a of every other node becomes the mean of its children's, weighted by v. Returns
    that of the root."""
    for i in range(start.size - 1, -1, -1):
        if start[i] < end[i]:
            s, w = 0.0, 0.0
            for j in range(start[i], end[i]):
                s += v[j] * a[j]
                w += v[j]
            a[i] = s / w
    s, w = 0.0, 0.0
    for j in range(top):
        s += v[j] * a[j]
        w += v[j]
    return s / w if w > 0 else 0.0


@njit(error_model="numpy")
def covary(start, end, top, v, v0, a, g):
    """g = C a, C the covariance of the tree's least-squares estimate, a the units' potentials (lifted on the way)."""
    root = lift(start, end, top, v, a)
    _share(v, a, 0, top, root, v0 * root, g)
    for i in range(start.size):
        if start[i] < end[i]:
            _share(v, a, start[i], end[i], a[i], g[i], g)


@njit(error_model="numpy")
def _share(v, a, low, high, mean, above, g):
    w = 0.0
    for j in range(low, high):
        w += v[j]
    for j in range(low, high):
        g[j] = v[j] * (a[j] - mean) + v[j] / w * above


@njit(error_model="numpy")
def _project(z, v, a, low, high, total, x):
    """x = max(z + a v - theta v, 0) that sum to total: the nearest by weighted distance."""
    if total <= 0.0:
        x[low:high] = 0.0
        return
    ratio = np.empty(high - low)
    for i in range(low, high):
        ratio[i - low] = -(z[i] / v[i] + a[i])
    s, w, theta = 0.0, 0.0, -np.inf
    for r in np.argsort(ratio, kind="mergesort"):
        s += z[low + r] + a[low + r] * v[low + r]
        w += v[low + r]
        theta = max(theta, (s - total) / w)
    for i in range(low, high):
        x[i] = max(z[i] + (a[i] - theta) * v[i], 0.0)


@njit(error_model="numpy")
def descend(start, end, top, z, v, a, total, x):
    """From the total down: non-negative numbers near z + a v that add up at every node."""
    _project(z, v, a, 0, top, total, x)
    for i in range(start.size):
        if start[i] < end[i]:
            _project(z, v, a, start[i], end[i], x[i], x)


@njit(error_model="numpy")
def to_units(classes, units, first, group, fraction, numbers, out):
    """out[units[i]] = sum over parts p of the mean of `numbers` (by group) over the unit's cells; classes[p, i] is -1
    where the part does not touch it."""
    value = np.zeros(first.size - 1)
    for c in range(value.size):
        for k in range(first[c], first[c + 1]):
            value[c] += fraction[k] * numbers[group[k]]
    for i in range(units.size):
        total = 0.0
        for p in range(classes.shape[0]):
            if classes[p, i] >= 0:
                total += value[classes[p, i]]
        out[units[i]] = total


@njit(error_model="numpy")
def to_groups(classes, units, first, group, fraction, x, out, square):
    """out[g] += what the units hold of group g; square: fractions squared."""
    value = np.zeros(first.size - 1)
    for p in range(classes.shape[0]):
        for i in range(units.size):
            if classes[p, i] >= 0:
                value[classes[p, i]] += x[units[i]]
    for c in range(value.size):
        for k in range(first[c], first[c + 1]):
            out[group[k]] += value[c] * fraction[k] * (fraction[k] if square else 1.0)


@njit(error_model="numpy")
def fit_sums(labels, sums, first, totals, sweeps, e):
    """Proportional fitting of e (cells in blocks first[b]:first[b+1]) to sums[offset + label] of every row of labels
    (-1: none) and to the blocks' totals, which come last."""
    found = np.empty(sums.size)
    for _ in range(sweeps):
        for p in range(labels.shape[0]):
            found[:] = 0.0
            for i in range(e.size):
                if labels[p, i] >= 0:
                    found[labels[p, i]] += e[i]
            for i in range(e.size):
                if labels[p, i] >= 0:
                    g = labels[p, i]
                    e[i] *= sums[g] / found[g] if found[g] > 0 else 0.0
        for b in range(totals.size):
            s = 0.0
            for i in range(first[b], first[b + 1]):
                s += e[i]
            for i in range(first[b], first[b + 1]):
                e[i] = e[i] * totals[b] / s if s > 0 else totals[b] / (first[b + 1] - first[b])


@njit(error_model="numpy")
def round_cells(z, v, real, first, totals, labels, deficit, turns, out):
    """Integers of cells in blocks first[b]:first[b+1] of whole totals: running sums of max(z - theta v, 0), scaled to
    the total, are rounded with that one of `turns` offsets for which the groups touched end nearest to their real sums.

    labels[p, i] is the group of cell i in part p (-1: none); deficit[g] is what group g has lost so far, `real` the
    numbers it is measured by. Every run of cells of a block stays within 1 of its share."""
    for b in range(totals.size):
        low, high = first[b], first[b + 1]
        if low == high:
            continue
        if totals[b] <= 0:
            for i in range(low, high):
                out[i] = 0
                for p in range(labels.shape[0]):
                    if labels[p, i] >= 0:
                        deficit[labels[p, i]] += real[i]
            continue
        theta = _theta(z, v, low, high, float(totals[b]))
        best, chosen = np.inf, 0
        for turn in range(turns if labels.shape[0] else 1):
            offset = (turn + 0.5) / turns if labels.shape[0] else 0.5
            cost = _rounded(z, v, theta, real, low, high, totals[b], offset, labels, deficit, out)
            for p in range(labels.shape[0]):  # undo
                for i in range(low, high):
                    if labels[p, i] >= 0:
                        deficit[labels[p, i]] -= real[i] - out[i]
            if cost < best:
                best, chosen = cost, turn
        offset = (chosen + 0.5) / turns if labels.shape[0] else 0.5
        _rounded(z, v, theta, real, low, high, totals[b], offset, labels, deficit, out)


@njit(error_model="numpy")
def _theta(z, v, low, high, total):
    ratio = np.empty(high - low)
    for i in range(low, high):
        ratio[i - low] = -z[i] / v[i]
    s, w, theta = 0.0, 0.0, -np.inf
    for r in np.argsort(ratio, kind="mergesort"):
        s += z[low + r]
        w += v[low + r]
        theta = max(theta, (s - total) / w)
    return theta


@njit(error_model="numpy")
def _rounded(z, v, theta, real, low, high, total, offset, labels, deficit, out):
    """One rounding, with its change to the squared deficits of the groups it touches."""
    running, given, last, cost = 0.0, np.int64(0), low, 0.0
    for i in range(low, high):
        x = max(z[i] - theta * v[i], 0.0)
        running += x
        goal = total if running >= total else min(np.int64(np.floor(running + offset)), total)
        out[i] = goal - given
        given = goal
        if x > 0:
            last = i
    out[last] += total - given
    for i in range(low, high):
        change = real[i] - out[i]
        for p in range(labels.shape[0]):
            g = labels[p, i]
            if g >= 0:
                cost += change * (2 * deficit[g] + change)
                deficit[g] += change
    return cost


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    end, first, classes = np.ones(1, np.int64), np.array([0, 1], np.int64), np.zeros((1, 1), np.int64)
    covary(one, one, 1, f, 1.0, f.copy(), f.copy())
    descend(one, one, 1, f, f, f, 1.0, f.copy())
    to_units(classes, one, first, one, f, f, f.copy())
    to_groups(classes, one, first, one, f, f, f.copy(), False)
    fit_sums(classes, f, first, f, 1, f.copy())
    round_cells(f, f, f, first, end, classes, f.copy(), 2, one.copy())
