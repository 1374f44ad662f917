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
def pool_down(first, x, f, v, factors, small, above_x, above_w, above_g, above_chances, above_seen,
              w, g, chances, seen):  # fmt: skip
    """The windows of the children of every node.

    A node's window (w, g) is the estimate, and its variance, of a count that has been all of its ancestors' since the
    window began: a child adds x - share x_parent, which is independent of all above it and expects (1 - share) times
    that count. Or a new window begins with the child alone. The one of the lower upper limit is taken, at
    factors[chances]: chances are the nodes above the window's first whose estimate was `small`, in standard
    deviations; seen are those above and with this node."""
    for i in range(above_x.size):
        start, end = first[i], first[i + 1]
        total = 0.0
        for j in range(start, end):
            total += v[j]
        for j in range(start, end):
            w[j], g[j], chances[j], seen[j] = above_w[i], above_g[i], above_chances[i], above_seen[i]
            if end - start == 1:  # the same node once more
                continue
            share = v[j] / total
            g[j] = 1.0 / (1.0 / above_g[i] + (1.0 - share) / v[j])
            w[j] = g[j] * (above_w[i] / above_g[i] + (x[j] - share * above_x[i]) / v[j])
            pooled, alone = factors[chances[j]] * np.sqrt(g[j]), factors[seen[j]] * np.sqrt(f[j])
            if max(x[j] + alone, 0.5 * alone) < max(w[j] + pooled, 0.5 * pooled):
                w[j], g[j], chances[j] = x[j], f[j], seen[j]
            seen[j] += x[j] < small * np.sqrt(f[j])


@njit(inline="always")
def _round(u):
    """-|u|, rounded near 0 as the law of a noise together with those of the nodes above it is."""
    return 0.86 - np.sqrt(u * u + 0.74)


@njit()
def weigh_down(first, d, above_sum, above_odds, sizes, margin, total, odds):
    """What the numbers of every node's children say about counts of the given sizes, in units of the noise scale.

    d[j] is the measured difference, seen from child j. A count t that is all of the node expects d = t; where the node
    holds more (its tracked sum S is above t) at least 2t - S. Against that: nothing of the count, d = 0 or -S. The log
    of the ratio is added up along the path (docs/proofs/intervals.md, The odds of a count)."""
    for i in range(above_sum.size):
        start, end = first[i], first[i + 1]
        held = above_sum[i]
        for j in range(start, end):
            if end - start == 1:  # the same node once more
                total[j] = held
                odds[j] = above_odds[i]
                continue
            seen = d[j]
            total[j] = (held + min(max(seen, -held), held)) / 2
            apart = _round(seen + held)
            least_apart = max(apart, _round(seen))
            for k in range(sizes.size):
                t = sizes[k]
                if held <= t:
                    own, none = -abs(seen - t), -min(abs(seen), abs(seen + held))
                else:
                    least = 2 * t - held - margin
                    own = _round(seen - least)
                    none = least_apart if least >= 0.0 else max(apart, own)
                odds[j, k] = above_odds[i, k] + own - none


@njit()
def largest(odds, sizes, least, out):
    """Per node the largest size whose log odds reach `least`, between two sizes by a straight line; infinite where the
    last one does, 0 where none does."""
    for i in range(odds.shape[0]):
        k = sizes.size - 1
        while k >= 0 and odds[i, k] < least[k]:
            k -= 1
        if k < 0:
            out[i] = 0.0
        elif k == sizes.size - 1:
            out[i] = np.inf
        else:
            over, under = odds[i, k] - least[k], least[k + 1] - odds[i, k + 1]
            part = over / (over + under)
            out[i] = sizes[k] + part * (sizes[k + 1] - sizes[k])


@njit()
def fit_prior(like, weight, prior, steps):
    """Steps of EM on `prior`, the weights of points of which observations of `weight` have likelihoods `like` (one row
    each, eight points or more). In the order in which NumPy adds: prior = sum of weight * joint / sum of joint."""
    size, whole = prior.size, weight.sum()
    full = size - size % 8
    joint, total = np.empty(size), np.empty(size)
    for _ in range(steps):
        total[:] = 0.0
        for i in range(weight.size):
            for k in range(size):
                joint[k] = like[i, k] * prior[k]
            a, b, c, d = joint[0], joint[1], joint[2], joint[3]
            e, f, g, h = joint[4], joint[5], joint[6], joint[7]
            for k in range(8, full, 8):
                a, b, c, d = a + joint[k], b + joint[k + 1], c + joint[k + 2], d + joint[k + 3]
                e, f, g, h = e + joint[k + 4], f + joint[k + 5], g + joint[k + 6], h + joint[k + 7]
            row = ((a + b) + (c + d)) + ((e + f) + (g + h))
            for k in range(full, size):
                row += joint[k]
            many = weight[i]
            for k in range(size):
                total[k] += many * joint[k] / row
        for k in range(size):
            prior[k] = total[k] / whole


@njit()
def sums_below(nodes, width, keys, values, out):
    """Per node the sum of the values whose keys lie in it: key // width is its number. Nodes and keys rise."""
    k = 0
    for i in range(nodes.size):
        first = nodes[i] * width
        while k < keys.size and keys[k] < first:
            k += 1
        total = 0.0
        while k < keys.size and keys[k] < first + width:
            total += values[k]
            k += 1
        out[i] = total


@njit()
def _place(prefix, depth, dims, weights, radices, start, span):
    """The half-open range of places of a node along every dimension; a span of -1: the whole dimension."""
    start[:] = 0
    span[:] = -1
    for j in range(depth - 1, -1, -1):
        d = dims[j]
        if radices[j] == 2:  # most are, and shifts take a tenth of divisions
            start[d] += (prefix & 1) * weights[j]
            prefix >>= 1
        else:
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


@njit(inline="always")
def _against(first, past, low, high):
    """0 apart, 1 cut, 2 inside: the places first .. past - 1 of a node against those of a box."""
    if first >= high or past <= low:
        return 0
    return 2 if low <= first and past <= high else 1


@njit()
def box_below(prefix, region, start, depth, dims, weights, radices, low, high):
    """Children of node `prefix` at `depth`, whose places begin at `start`, that box `region` does not leave apart:
    which node each is below, the children, their status, and where their places begin. None is visited that the box
    does not reach along the dimension that splits."""
    span = np.full(low.shape[1], -1)
    for j in range(depth):
        span[dims[j]] = weights[j]
    axis, weight, radix = dims[depth], weights[depth], radices[depth]
    n, room = 0, 2 * prefix.size + 1
    out, begins = np.empty((3, room), np.int64), np.empty((room, span.size), np.int64)
    for i in range(prefix.size):
        r = region[i]
        rest = 2  # along the other dimensions
        for d in range(span.size):
            if d == axis:
                continue
            if span[d] >= 0:
                rest = min(rest, _against(start[i, d], start[i, d] + span[d], low[r, d], high[r, d]))
            elif low[r, d] > 0 or high[r, d] < np.int64(1) << 62:
                rest = min(rest, 1)
        if rest == 0:
            continue
        begin, least, most = start[i, axis], low[r, axis], high[r, axis]
        first = min(max(least - begin, 0) // weight, radix)
        past = radix if most - begin >= radix * weight else (most - begin + weight - 1) // weight
        for child in range(first, past):
            place = begin + child * weight
            status = min(rest, _against(place, place + weight, least, most))
            if status == 0:
                continue
            if n == out.shape[1]:
                wider, more = np.empty((3, 2 * n), np.int64), np.empty((2 * n, span.size), np.int64)
                wider[:, :n], more[:n] = out, begins
                out, begins = wider, more
            out[0, n], out[1, n], out[2, n] = i, prefix[i] * radix + child, status
            for d in range(span.size):
                begins[n, d] = start[i, d]
            begins[n, axis] = place
            n += 1
    return out[0, :n], out[1, :n], out[2, :n], begins[:n]


@njit()
def find_below(own, first, prefix, above, out):
    """Where in the rising `own` each prefix is, or -1; it can only be among the children of the node `above`."""
    for i in range(prefix.size):
        low, past = first[above[i]], first[above[i] + 1]
        end = past
        while low < past:
            middle = (low + past) // 2
            if own[middle] < prefix[i]:
                low = middle + 1
            else:
                past = middle
        out[i] = low if low < end and own[low] == prefix[i] else -1


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


@njit()
def _below(bound, start, span, size):
    """Share of the leaves below `bound` in a node of one binary, padded dimension, where every node with two possible
    children gives each of them one half, whatever their sizes."""
    out, weight = 0.0, 1.0
    while bound > start:
        if bound >= min(start + span, size):
            return out + weight
        span //= 2
        if start + span >= size:  # one possible child has it all
            continue
        weight /= 2
        if bound > start + span:
            out += weight
            start += span
    return out


@njit()
def box_halves(prefix, region, depth, dims, weights, radices, sizes, low, high, out):
    """Share of box `region` in a node of a binary tree without a mask, every level shared in halves."""
    start, span = np.zeros(low.shape[1], np.int64), np.zeros(low.shape[1], np.int64)
    for i in range(prefix.size):
        r = region[i]
        _place(prefix[i], depth, dims, weights, radices, start, span)
        share = 1.0
        for d in range(span.size):
            whole = span[d]
            if whole < 0:
                whole = np.int64(1)
                while whole < sizes[d]:
                    whole *= 2
            a, b = max(low[r, d], np.int64(0)), min(high[r, d], sizes[d])
            share *= _below(b, start[d], whole, sizes[d]) - _below(a, start[d], whole, sizes[d])
        out[i] = share


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    first, box = np.array([0, 1], np.int64), np.ones((1, 1), np.int64)
    join_up(f, f, first, f, f, f.copy(), f.copy())
    spread_down(first, f, f, f, f, f.copy(), f.copy())
    pool_down(first, f, f, f, f, 1.0, f, f, f, one, one, f.copy(), f.copy(), one.copy(), one.copy())
    weigh_down(first, f, f, f[:, None], f, 1.0, f.copy(), f[:, None].copy())
    largest(f[:, None], f, f, f.copy())
    fit_prior(np.ones((1, 8)), f, np.ones(8), 1)
    sums_below(one, 1, one, f, f.copy())
    box_status(one, one, 0, one, one, one, box, box, one.copy())
    box_below(one, one, box, 0, one, one + 1, one, box, box)
    find_below(one, first, one, one, one.copy())
    box_share(one, one, 0, one, one, one, one, box, box, f.copy())
    box_halves(one, one, 0, one, one, one, one, box, box, f.copy())
