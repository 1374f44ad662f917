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
        counts[values[i] - low] += 1


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
    michelot(np.ones(2), 1.0)
