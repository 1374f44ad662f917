"""Measure and visit, least squares and weighted projection on the visited tree (docs/proofs/refined_tree.md)."""

import numpy as np

from kasuri._kernels.cached import njit

FEW = 128
"""So many siblings at most are ranked by comparing all pairs: most groups are of 4, 16 or 64."""


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def widest(first):
    """The largest group, for the room it needs."""
    most = np.int64(0)
    for g in range(first.size - 1):
        most = max(most, first[g + 1] - first[g])
    return most


@njit(error_model="numpy")
def _places(values, size, place):
    """The place of each of the first values in a stable sort. No branch depends on them, and each row of comparisons
    is done several at a time: for few values faster than any sort."""
    for i in range(size):
        own, below = values[i], np.int64(0)
        for j in range(i):
            before = np.int64(values[j] <= own)
            below += before
            place[j] += 1 - before
        place[i] = below


@njit(error_model="numpy")
def water(y, first, totals, out, t):
    """Per group g = first[g]:first[g+1] of numbers y: out = max(y - t, 0) with t such that it sums to totals[g]; t[g]
    is infinite where totals[g] is 0 or the group is empty."""
    room = widest(first)
    ranked, place = np.empty(room, y.dtype), np.empty(room, np.int64)
    for g in range(totals.size):
        start, end = first[g], first[g + 1]
        t[g] = np.inf
        if start == end or totals[g] <= 0.0:
            continue
        size = end - start
        if size > FEW:
            ranked[:size] = np.sort(y[start:end])
        else:
            _places(y[start:end], size, place)
            for i in range(size):
                ranked[place[i]] = y[start + i]
        total, level = 0.0, -np.inf
        for r in range(size):  # t is the largest of (sum of the r + 1 largest - total) / (r + 1)
            total += ranked[size - 1 - r]
            mean = (total - totals[g]) / (r + 1)
            if mean < level:  # rises, then falls
                break
            level = mean
        t[g] = level
        for i in range(start, end):
            out[i] = max(y[i] - level, 0.0)


@njit(error_model="numpy")
def keep(y, first, t, slack):
    """The i whose y exceeds its group's t less `slack` (infinite: all)."""
    out = np.empty(y.size + 1, np.int64)
    n = np.int64(0)
    for g in range(t.size):
        limit = -np.inf if slack == np.inf else t[g] - slack
        for i in range(first[g], first[g + 1]):  # no branch on what noise decides
            out[n] = i
            n += np.int64(y[i] > limit)
    return out[:n].copy()


@njit(error_model="numpy")
def positive(nodes, mass):
    """The nodes whose mass is above 0, and it."""
    out_nodes, out_mass = np.empty(nodes.size + 1, np.int64), np.empty(nodes.size + 1, np.int64)
    n = np.int64(0)
    for i in range(nodes.size):  # no branch on what noise decides
        out_nodes[n], out_mass[n] = nodes[i], mass[i]
        n += np.int64(mass[i] > 0)
    return out_nodes[:n], out_mass[:n]


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def _rank_many(ratio, ranked, size):
    ranked[:size] = np.argsort(ratio[:size], kind="mergesort")


@njit(error_model="numpy")
def lowering(z, v, closed, start, end, total, ratio, place, ranked):
    """theta of x = max(z - theta v, 0), the argmin of sum (x - z)^2 / v over {x >= 0, sum x = total, x = 0 where
    closed} on start:end: the largest of (sum of z - total) / (sum of v) over the open ones of largest z / v. One sort,
    whatever the numbers are; minus infinity where all are closed. `ratio`, `place`, `ranked`: room for the group."""
    size = end - start
    for i in range(size):
        ratio[i] = -z[start + i] / v[start + i]
    if size > FEW:
        _rank_many(ratio, ranked, size)
    else:
        _places(ratio, size, place)
        for i in range(size):
            ranked[place[i]] = i
    s, w, theta = 0.0, 0.0, -np.inf
    for at in range(size):
        i = start + ranked[at]
        if not closed[i]:
            s += z[i]
            w += v[i]
            theta = max(theta, (s - total) / w)
    return theta


@njit(error_model="numpy")
def project(z, v, first, totals, out):
    """Per group argmin sum (x - z)^2 / v over {x >= 0, sum x = totals[g]}: x = max(z - theta v, 0)."""
    closed = np.zeros(z.size, np.bool_)
    room = widest(first)
    ratio, place, ranked = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    for g in range(totals.size):
        start, end = first[g], first[g + 1]
        if start == end:
            continue
        if totals[g] <= 0.0:
            for i in range(start, end):
                out[i] = 0.0
            continue
        theta = lowering(z, v, closed, start, end, totals[g], ratio, place, ranked)
        for i in range(start, end):
            out[i] = max(z[i] - theta * v[i], 0.0)


@njit(error_model="numpy")
def share_out(z, v, closed, first, totals, out):
    """Per group integers near argmin sum (x - z)^2 / v over {x >= 0, sum x = totals[g], x = 0 where closed}, which is
    x = max(z - theta v, 0). Running sums are rounded, not single numbers: every run of children, so every block of them
    in key order, is within 1 of its share. (By largest remainder all would tie, and the first ones would gain.)"""
    room = widest(first)
    ratio, place, ranked = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    for g in range(totals.size):
        start, end = first[g], first[g + 1]
        if start == end:
            continue
        if totals[g] <= 0:
            for i in range(start, end):
                out[i] = 0
            continue
        theta = lowering(z, v, closed, start, end, totals[g], ratio, place, ranked)
        running, given, last = 0.0, np.int64(0), -1
        for i in range(start, end):
            x = 0.0 if closed[i] else max(z[i] - theta * v[i], 0.0)
            running += x
            goal = totals[g] if running >= totals[g] else np.int64(np.floor(running + 0.5))
            out[i] = goal - given
            given = goal
            if x > 0 or (last < 0 and not closed[i]):
                last = i
        if last >= 0:  # what floating point left over, where numbers are beyond 2^53
            out[last] += totals[g] - given


@njit(error_model="numpy", inline="always")
def _first_heir(node, fan):
    """Which of its `fan` children has the first of what does not go up evenly: spread over the nodes."""
    return (node * np.int64(-7046029254386353131) >> np.int64(40)) % fan


@njit(error_model="numpy")
def split_evenly(nodes, mass, below, first, out_nodes, out_mass):
    """Each node's mass among its children below[first[i]:first[i+1]], as evenly as whole numbers go; children without
    any are left out. Returns their number, or -1 where out has no room for them."""
    found = 0
    for i in range(nodes.size):
        fan = first[i + 1] - first[i]
        turn = fan - _first_heir(nodes[i], fan)
        even = mass[i] // fan
        rest = mass[i] - even * fan
        for j in range(first[i], first[i + 1]):
            if turn == fan:
                turn = 0
            own = even + np.int64(turn < rest)
            turn += 1
            if own > 0:
                if found == out_nodes.size:
                    return -1
                out_nodes[found], out_mass[found] = below[j], own
                found += 1
    return found


@njit(error_model="numpy")
def hand_down(nodes, below, first, out_nodes):
    """One child of each node, to have all that it has."""
    for i in range(nodes.size):
        out_nodes[i] = below[first[i] + _first_heir(nodes[i], first[i + 1] - first[i])]


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    first = np.array([0, 1], np.int64)
    add_range_sums(one, np.zeros(2, np.int64), one, 1, one.copy())
    water(one, first, f, f.copy(), f.copy())
    keep(one, first, f, 0.0)
    for y in (one, f):
        combine_up(y, 1.0, first, f, f, f.copy(), f.copy())
    positive(one, one)
    share_out(f, f, np.zeros(1, np.bool_), first, np.ones(1, np.int64), one.copy())
    project(f, f, first, f, f.copy())
    split_evenly(one, one, one, first, one.copy(), one.copy())
    hand_down(one, one, first, one.copy())
