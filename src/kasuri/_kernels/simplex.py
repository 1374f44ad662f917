"""Projection on {x >= 0, sum x = S}: integers group by group; tallies and thresholds of whole tables without a sort."""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def simplex_groups(scaled, starts, totals, out):
    """For group g = scaled[starts[g]:starts[g+1]] (f numbers, each f times an estimate) write the integers nearest to
    the projection of the estimates on {x >= 0, sum x = totals[g]}: exact threshold, floor, largest remainder (ties to
    the lower index). With A active entries of sum E: x = (A e - E + f S) / (A f)."""
    for g in range(totals.size):
        first, last, S = starts[g], starts[g + 1], totals[g]
        f = last - first
        e = scaled[first:last]
        ranked = np.argsort(-e, kind="mergesort")
        total = np.int64(0)
        active, E = np.int64(0), np.int64(0)
        for r in range(f):
            value = e[ranked[r]]
            total += value
            if (r + 1) * value - total + f * S > 0:
                active, E = np.int64(r + 1), total
        left = S
        rest = np.full(f, np.int64(-1))
        for i in range(f):
            top = active * e[i] - E + f * S
            x = np.int64(0)
            if top > 0:
                x = top // (active * f)
                rest[i] = top - x * active * f
            out[first + i] = x
            left -= x
        if left > 0:
            by_rest = np.argsort(-rest, kind="mergesort")
            for j in range(left):
                out[first + by_rest[j]] += 1


@njit()
def extent(values):
    """Least and largest value."""
    low = high = values[0]
    for i in range(values.size):
        low = min(low, values[i])
        high = max(high, values[i])
    return low, high


@njit()
def histogram(values, low, counts):
    """counts[v - low] += 1 for every value v."""
    for i in range(values.size):
        counts[np.uint64(values[i] - low)] += 1


_PIECE = 1 << 12  # stays in the first-level cache


@njit()
def at_least(values, least, room):
    """The places of values of at least so much, and these values; there should be `room` of them."""
    at, own = np.empty(_PIECE, np.int64), np.empty(_PIECE, np.int64)
    all_at, all_own, found = np.empty(room, np.int64), np.empty(room, np.int64), np.int64(0)
    for start in range(0, values.size, _PIECE):
        n = np.uint64(0)  # unsigned, as in `topdown`
        for i in range(start, min(start + _PIECE, values.size)):  # no branch on what noise decides
            at[n], own[n] = i, values[np.uint64(i)]
            n += np.uint64(values[np.uint64(i)] >= least)
        size = np.int64(n)
        if found + size > all_at.size:
            wider_at, wider_own = np.empty(2 * found + _PIECE, np.int64), np.empty(2 * found + _PIECE, np.int64)
            wider_at[:found], wider_own[:found] = all_at[:found], all_own[:found]
            all_at, all_own = wider_at, wider_own
        all_at[found : found + size], all_own[found : found + size] = at[:size], own[:size]
        found += size
    return all_at[:found], all_own[:found]


@njit()
def shape(at, values, low, whole, flagged, extra):
    """What these values become, in place: whole[value - low], and one more for the first `extra` that are flagged.
    Zeros are left out, and their places; returns how many are left."""
    n, left = np.int64(0), np.int64(extra)
    for j in range(at.size):
        place = values[j] - low
        if place >= whole.size:
            raise IndexError("a value that was not tallied")
        more = np.int64(flagged[place]) & np.int64(left > 0)
        left -= more
        own = whole[place] + more
        at[n], values[n] = at[j], own
        n += np.int64(own != 0)
    return n


@njit()
def michelot(values, total):
    """tau with sum max(v - tau, 0) = total > 0 [Michelot1986]: entries at or below (sum - total) / number of the active
    set leave it until none does; the active set shrinks in place."""
    active = values.copy()
    size = active.size
    tau = (active.sum() - total) / size
    while True:
        kept, s = 0, 0.0
        for i in range(size):
            if active[i] > tau:
                active[kept] = active[i]
                s += active[i]
                kept += 1
        new = (s - total) / kept
        if kept == size or new <= tau:
            return new
        size, tau = kept, new


def warm_up():
    simplex_groups(np.ones(2, np.int64), np.array([0, 2]), np.ones(1, np.int64), np.zeros(2, np.int64))
    extent(np.ones(2, np.int64))
    histogram(np.ones(2, np.int64), 1, np.zeros(2, np.int64))
    one = np.ones(1, np.int64)
    shape(*at_least(one, 2, 0), 1, one, np.ones(1, np.bool_), 0)
    michelot(np.ones(2), 1.0)
