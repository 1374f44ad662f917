"""Empirical Bayes on the visited tree: neighbours, mixture weights, posteriors (docs/proofs/bayes_tree.md).

Numbers called u are in units of the noise scale. One thread, sums in a fixed order: bit-identical everywhere. Every
kernel is total: nothing here may fail on noisy numbers, which come after the budget was charged.
"""

import math

import numpy as np

from kasuri._kernels.cached import njit

TILE = 8
RADIUS = 4
GRID = 8
"""Grid points per unit of u."""
TOP = 8
"""The mixture is used up to u = TOP; class TOP * GRID + 1 of a histogram is everything above."""


@njit(error_model="numpy")
def tiles_of(tile_ids, local, values, slots, keys, out_slot):
    """Scatter values into dense tiles: slot of a value's tile by open addressing in (keys, slots), all -1 at first.
    Returns (tiles, their ids); out_slot[i] is the slot of value i."""
    mask = keys.size - 1
    used, last, last_slot = 0, np.int64(-1), np.int64(-1)
    for i in range(tile_ids.size):
        tile = tile_ids[i]
        if tile != last:
            at = (tile * np.int64(-7046029254386353131) >> np.int64(20)) & mask
            while keys[at] != -1 and keys[at] != tile:
                at = (at + 1) & mask
            if keys[at] == -1:
                keys[at] = tile
                slots[at] = used
                used += 1
            last, last_slot = tile, slots[at]
        out_slot[i] = last_slot
    tiles = np.zeros((used, TILE * TILE))
    ids = np.empty(used, np.int64)
    for i in range(tile_ids.size):
        tiles[out_slot[i], local[i]] = values[i]
        ids[out_slot[i]] = tile_ids[i]
    return tiles, ids


@njit(error_model="numpy")
def _slot(tile, slots, keys):
    mask = keys.size - 1
    at = (tile * np.int64(-7046029254386353131) >> np.int64(20)) & mask
    while keys[at] != -1:
        if keys[at] == tile:
            return slots[at]
        at = (at + 1) & mask
    return np.int64(-1)


@njit(error_model="numpy")
def _surround(tiles, ids, i, tile_rows, tile_cols, slots, keys, around):
    """around = tile i and RADIUS numbers on every side of it."""
    side = TILE + 2 * RADIUS
    around[:] = 0.0
    row, col = ids[i] // tile_cols % tile_rows, ids[i] % tile_cols
    for dr in range(-1, 2):
        if not 0 <= row + dr < tile_rows:
            continue
        for dc in range(-1, 2):
            if not 0 <= col + dc < tile_cols:
                continue
            other = np.int64(i)
            if dr != 0 or dc != 0:
                other = _slot(ids[i] + dr * tile_cols + dc, slots, keys)
            if other < 0:
                continue
            for r in range(max(0, RADIUS + dr * TILE), min(side, RADIUS + (dr + 1) * TILE)):
                for c in range(max(0, RADIUS + dc * TILE), min(side, RADIUS + (dc + 1) * TILE)):
                    around[r, c] = tiles[other, (r - RADIUS - dr * TILE) * TILE + c - RADIUS - dc * TILE]


@njit(error_model="numpy")
def smooth(tiles, ids, tile_rows, tile_cols, slots, keys, weights, out):
    """out[k] = every tile smoothed by the separable window weights[k] (2 RADIUS + 1 numbers that sum to 1), its own
    centre left out and the rest scaled to 1. Whatever was not drawn counts as 0."""
    side = TILE + 2 * RADIUS
    around = np.empty((side, side))
    along = np.empty((side, TILE))
    for i in range(ids.size):
        _surround(tiles, ids, i, tile_rows, tile_cols, slots, keys, around)
        for k in range(weights.shape[0]):
            w = weights[k]
            for r in range(side):
                for c in range(TILE):
                    total = 0.0
                    for d in range(2 * RADIUS + 1):
                        total += w[d] * around[r, c + d]
                    along[r, c] = total
            centre = w[RADIUS] * w[RADIUS]
            for r in range(TILE):
                for c in range(TILE):
                    total = 0.0
                    for d in range(2 * RADIUS + 1):
                        total += w[d] * along[r + d, c]
                    own = around[r + RADIUS, c + RADIUS]
                    out[k, i, r * TILE + c] = (total - centre * own) / (1.0 - centre)


@njit(error_model="numpy")
def bins_of(f, g, edges, inner, out):
    """Bin of each (f, g): b by `edges`, then within it by inner[b]; each edge belongs to the bin above it."""
    n = inner.shape[1] + 1
    for i in range(f.size):
        b = np.searchsorted(edges, f[i], "right")
        out[i] = b * n + np.searchsorted(inner[b], g[i], "right")


@njit(error_model="numpy")
def histograms(u, bins, low, hist):
    """Classes of u per bin: 0 up to -low, then the nearest grid point, the last one above TOP."""
    last = hist.shape[1] - 1
    for i in range(u.size):
        at = 0
        if u[i] > -low:
            at = last if u[i] > TOP else int(np.rint((u[i] + low) * GRID))
        hist[bins[i], at] += 1.0


@njit(error_model="numpy")
def mixture_weights(hist, likelihood, start, ridge, steps):
    """EM for mixture weights per row of `hist`, drawn to `start` as by `ridge` further observations."""
    bins, classes = hist.shape
    parts = likelihood.shape[1]
    out = np.empty((bins, parts))
    new = np.empty(parts)
    for b in range(bins):
        w = start.copy()
        count = hist[b].sum()
        for _ in range(steps):
            new[:] = ridge * start
            for j in range(classes):
                if hist[b, j] > 0:
                    total = 0.0
                    for k in range(parts):
                        total += w[k] * likelihood[j, k]
                    share = hist[b, j] / total
                    for k in range(parts):
                        new[k] += share * w[k] * likelihood[j, k]
            for k in range(parts):
                w[k] = new[k] / (count + ridge)
        out[b] = w
    return out


@njit(error_model="numpy")
def posteriors(u, bins, means, variances, low, flat, mean, variance):
    """Mean and variance per value from tables over the grid from -low on (linear between its points); above `flat`
    blended into the flat prior's (u, 2), which holds alone from TOP on."""
    for i in range(u.size):
        at = (u[i] + low) * GRID
        b = bins[i]
        if at <= 0:
            mean[i], variance[i] = means[b, 0], variances[b, 0]
        elif u[i] >= TOP:
            mean[i], variance[i] = u[i], 2.0
        else:
            j = int(at)
            part = at - j
            m = means[b, j] * (1 - part) + means[b, j + 1] * part
            v = variances[b, j] * (1 - part) + variances[b, j + 1] * part
            share = min(max((u[i] - flat) / (TOP - flat), 0.0), 1.0)
            mean[i] = m + share * (u[i] - m)
            variance[i] = v + share * (2.0 - v) + share * (1 - share) * (u[i] - m) ** 2


@njit(error_model="numpy")
def child_sums(first, z, v, s, w):
    for i in range(s.size):
        total, spread = 0.0, 0.0
        for j in range(first[i], first[i + 1]):
            total += z[j]
            spread += v[j]
        s[i], w[i] = total, spread


@njit(error_model="numpy")
def thresholds(y, x, groups, t):
    """t of each node's group: y - x of a node with x > 0; infinite where there is none."""
    for g in range(groups.size - 1):
        level = np.inf
        for i in range(groups[g], groups[g + 1]):
            if x[i] > 0:
                level = y[i] - x[i]
                break
        for i in range(groups[g], groups[g + 1]):
            t[i] = level


@njit(error_model="numpy")
def sibling_means(y, groups, out):
    """The mean of the other nodes of each node's group; 0 for an only child."""
    for g in range(groups.size - 1):
        total = 0.0
        for i in range(groups[g], groups[g + 1]):
            total += y[i]
        n = groups[g + 1] - groups[g]
        for i in range(groups[g], groups[g + 1]):
            out[i] = (total - y[i]) / (n - 1) if n > 1 else 0.0


@njit(error_model="numpy")
def _mills(a):
    """(1 - Phi(a)) / phi(a)."""
    if a < 6.0:
        return math.sqrt(math.pi / 2) * math.erfc(a / math.sqrt(2.0)) * math.exp(a * a / 2)
    f = 0.0
    for k in range(30, 0, -1):
        f = k / (a + f)
    return 1.0 / (a + f)


@njit(error_model="numpy")
def hazards(r, out):
    """phi(r) / Phi(r) of each r: how far below its mean a standard normal is cut off."""
    for i in range(r.size):
        out[i] = 1.0 / _mills(-r[i])


@njit(error_model="numpy")
def _half(a):
    """(h - a, 1 + a h - h^2) with h = 1 / mills(a): mean above a, and variance, of a standard normal above a."""
    if a > 30.0:
        return 1.0 / a - 2.0 / a**3, 1.0 / a**2 - 6.0 / a**4
    h = 1.0 / _mills(a)
    return h - a, max(1.0 + a * h - h * h, 1e-12)


@njit(error_model="numpy")
def _normal_laplace(s, w, y, scale):
    """Mean and variance of x with density N(x; s, w) exp(-|y - x| / scale), and the integral of it over x.

    With d = (y - s)/sqrt(w) and k = sqrt(w)/scale it is N(k, 1) below d and N(-k, 1) above (in units of sqrt(w) from
    s), of weights phi(d) mills(k - d) and phi(d) mills(k + d)."""
    w = max(w, 1e-12 * scale * scale)
    root = math.sqrt(w)
    d, k = (y - s) / root, root / scale
    if k - abs(d) < -25.0:  # the kink is too far out to matter
        return s + math.copysign(root * k, d), w, math.exp(min(k * k / 2 - k * abs(d), 0.0))
    low, high = _mills(k - d), _mills(k + d)
    share = low / (low + high)
    below, below_v = _half(k - d)
    above, above_v = _half(k + d)
    z = s + root * (d - share * below + (1 - share) * above)
    v = w * (share * below_v + (1 - share) * above_v + share * (1 - share) * (below + above) ** 2)
    return z, max(v, 1e-12 * w), math.exp(-d * d / 2) / math.sqrt(2 * math.pi) * (low + high)


@njit(error_model="numpy")
def normal_laplace(s, w, y, scale, z, v):
    """Posterior mean and variance of each node: prior N(s, w), Laplace noise of one scale, seen as y."""
    for i in range(s.size):
        z[i], v[i], _ = _normal_laplace(s[i], w[i], y[i], scale)


@njit(error_model="numpy")
def _seen(s, w, y, normal):
    """As `_normal_laplace` at scale 1, or with normal noise of its variance, 2: exp(-(y - x)^2 / 4)."""
    if not normal:
        return _normal_laplace(s, w, y, 1.0)
    gain = w / (w + 2.0)
    return s + gain * (y - s), 2.0 * gain, math.sqrt(2.0 / (w + 2.0)) * math.exp(-((y - s) ** 2) / (2.0 * (w + 2.0)))


@njit(error_model="numpy")
def _nobody(u, normal):
    """The likelihood of u under 0, as those of `_seen` are scaled."""
    return math.exp(-u * u / 4.0) if normal else math.exp(-abs(u))


@njit(error_model="numpy")
def public_likelihoods(u, public, spreads, broad, normal, out):
    """Likelihood of each u (in scales of noise) under 0, N(p, (spread p)^2 + p / 2 ...) per spread, and N(p, broad^2);
    public[i] = (p, variance of p people counted by chance). Up to a factor of each u."""
    parts = spreads.size
    for i in range(u.size):
        out[i, 0] = _nobody(u[i], normal)
        for k in range(parts + 1):
            w = (spreads[k] * public[i, 0]) ** 2 + public[i, 1] if k < parts else broad**2
            out[i, k + 1] = _seen(public[i, 0], w, u[i], normal)[2]


@njit(error_model="numpy")
def public_posteriors(u, public, bins, weights, spreads, broad, normal, mean, variance):
    """Posterior mean and variance of each u under its bin's weights of the same parts; far from all of them (u, 2)."""
    parts = spreads.size
    for i in range(u.size):
        total = weights[bins[i], 0] * _nobody(u[i], normal)
        first, second = 0.0, 0.0
        for k in range(parts + 1):
            w = (spreads[k] * public[i, 0]) ** 2 + public[i, 1] if k < parts else broad**2
            z, v, share = _seen(public[i, 0], w, u[i], normal)
            share *= weights[bins[i], k + 1]
            total += share
            first += share * z
            second += share * (v + z * z)
        if total > 1e-200:
            mean[i] = first / total
            variance[i] = max(second / total - mean[i] ** 2, 1e-4)
        else:
            mean[i], variance[i] = u[i], 2.0
        mean[i] = max(mean[i], 0.0)


@njit(error_model="numpy")
def row_weights(likelihood, bins, count, steps):
    """EM for mixture weights per bin from likelihoods of single rows, one pseudo-observation per part."""
    n, parts = likelihood.shape
    w = np.full((count, parts), 1.0 / parts)
    for _ in range(steps):
        new = np.ones((count, parts))
        for i in range(n):
            total = 0.0
            for k in range(parts):
                total += w[bins[i], k] * likelihood[i, k]
            if total > 1e-200:
                for k in range(parts):
                    new[bins[i], k] += w[bins[i], k] * likelihood[i, k] / total
        for b in range(count):
            w[b] = new[b] / new[b].sum()
    return w


def warm_up():
    one, f = np.zeros(1, np.int64), np.ones(1)
    groups = np.array([0, 1], np.int64)
    keys, slots = np.full(2, -1, np.int64), np.full(2, -1, np.int64)
    tiles, ids = tiles_of(one, one, f, slots, keys, one.copy())
    smooth(tiles, ids, 1, 1, slots, keys, np.full((1, 2 * RADIUS + 1), 0.1), np.zeros((1, 1, TILE * TILE)))
    bins_of(f, f, f, np.ones((2, 1)), one.copy())
    hist = np.zeros((1, TOP * GRID + 2))
    histograms(f, one, 0.0, hist)
    mixture_weights(hist, np.ones((TOP * GRID + 2, 1)), f, 1.0, 1)
    table = np.ones((1, TOP * GRID + 1))
    posteriors(f, one, table, table, 0.0, 5.0, f.copy(), f.copy())
    child_sums(groups, f, f, f.copy(), f.copy())
    thresholds(f, f, groups, f.copy())
    sibling_means(f, groups, f.copy())
    normal_laplace(f, f, f, 1.0, f.copy(), f.copy())
    public = np.ones((1, 2))
    public_likelihoods(f, public, f, 9.0, False, np.ones((1, 3)))
    public_posteriors(f, public, one, np.ones((1, 3)), f, 9.0, False, f.copy(), f.copy())
    row_weights(np.ones((1, 3)), one, 1, 1)
