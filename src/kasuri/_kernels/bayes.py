"""Empirical Bayes on the visited tree: neighbours, mixture weights, posteriors (docs/proofs/bayes_tree.md).

Numbers called u are in units of the noise scale. One thread, sums in a fixed order: bit-identical everywhere. Every
kernel is total: nothing here may fail on noisy numbers, which come after the budget was charged.
"""

import math

import numpy as np

from kasuri._kernels.cached import njit

TILE = 8
RADIUS = 4
SIDE = TILE + 2 * RADIUS
GRID = 8
"""Grid points per unit of u."""
TOP = 8
"""The mixture is used up to u = TOP; class TOP * GRID + 1 of a histogram is everything above."""


@njit(error_model="numpy")
def tiles_and_places(cells, below, size_r, size_c, tile, local):
    """Each cell's tile and its place there; a mesh of size_r x size_c with axes of `below` cells inside each of its
    cells. The axes before and after the mesh together number the layers of tiles."""
    rows, cols = (size_r + TILE - 1) // TILE, (size_c + TILE - 1) // TILE
    for i in range(cells.size):
        mesh, after = cells[i], np.int64(0)
        if below > 1:
            mesh = cells[i] // below
            after = cells[i] - mesh * below
        line = mesh // size_c
        col = mesh - line * size_c
        before = line // size_r
        row = line - before * size_r
        tile[i] = ((before * below + after) * rows + row // TILE) * cols + col // TILE
        local[i] = row % TILE * TILE + col % TILE


@njit(error_model="numpy")
def tiles_of(tile_ids, slots, keys):
    """Number the tiles as they come, by open addressing in (keys, slots), all -1 at first. Returns the ids of the
    tiles, and the values of every tile: those of tile i are among[first[i]:first[i + 1]]."""
    mask = keys.size - 1
    ids, numbers = np.empty(keys.size, np.int64), np.empty(tile_ids.size, np.int32)
    first = np.zeros(keys.size + 2, np.int64)
    used, last, number = 0, np.int64(-1), np.int64(-1)
    for i in range(tile_ids.size):
        tile = tile_ids[i]
        if tile != last:
            at = (tile * np.int64(-7046029254386353131) >> np.int64(20)) & mask
            while keys[at] != -1 and keys[at] != tile:
                at = (at + 1) & mask
            if keys[at] == -1:
                keys[at] = tile
                slots[at] = used
                ids[used] = tile
                used += 1
            last, number = tile, slots[at]
        numbers[i] = number
        first[number + 2] += 1
    for i in range(used):
        first[i + 2] += first[i + 1]
    among = np.empty(tile_ids.size, np.int32)
    for i in range(tile_ids.size):
        number = np.int64(numbers[i])
        among[first[number + 1]] = i
        first[number + 1] += 1
    return ids[:used].copy(), first[: used + 1].copy(), among


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
def tiles_around(ids, tile_rows, tile_cols, slots, keys):
    """The numbers of each tile and the eight around it, row by row; -1 where there is none."""
    out = np.full((ids.size, 9), -1, np.int64)
    for i in range(ids.size):
        row, col = ids[i] // tile_cols % tile_rows, ids[i] % tile_cols
        for dr in range(-1, 2):
            for dc in range(-1, 2):
                if 0 <= row + dr < tile_rows and 0 <= col + dc < tile_cols:
                    out[i, 3 * dr + dc + 4] = _slot(ids[i] + dr * tile_cols + dc, slots, keys)
    return out


@njit(error_model="numpy")
def _surround(tiles, around, out):
    """out = a tile and RADIUS numbers on every side of it, row by row."""
    out[:] = 0.0
    for n in range(9):
        if around[n] < 0:
            continue
        dr, dc = n // 3 - 1, n % 3 - 1
        start = around[n] * (TILE * TILE)
        first, last = max(0, RADIUS + dc * TILE), min(SIDE, RADIUS + (dc + 1) * TILE)
        for r in range(max(0, RADIUS + dr * TILE), min(SIDE, RADIUS + (dr + 1) * TILE)):
            line = start + (r - RADIUS - dr * TILE) * TILE - RADIUS - dc * TILE
            for c in range(first, last):
                out[r * SIDE + c] = tiles[line + c]


@njit(error_model="numpy")
def _window(a, w, step, out):
    """out[j] = sum of w[d] a[j + d step], the sum in this order; written out so that it runs in vectors."""
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]
    for j in range(out.size):
        out[j] = (
            0.0 + w0 * a[j] + w1 * a[j + step] + w2 * a[j + 2 * step] + w3 * a[j + 3 * step] + w4 * a[j + 4 * step]
            + w5 * a[j + 5 * step] + w6 * a[j + 6 * step] + w7 * a[j + 7 * step] + w8 * a[j + 8 * step]
        )  # fmt: skip


@njit(error_model="numpy")
def smooth(values, local, first, among, around, weights, mix, near, far):
    """Averages of each value's neighbours by separable windows weights[k] (2 RADIUS + 1 numbers that sum to 1), its own
    centre left out and the rest scaled to 1: near = mix of the first two, far = the third. Whatever was not drawn
    counts as 0. The values of a tile and the tiles around it as `tiles_of` and `tiles_around` say."""
    tiles = np.zeros(around.shape[0] * TILE * TILE)
    for i in range(around.shape[0]):
        for j in range(first[i], first[i + 1]):
            tiles[i * TILE * TILE + local[among[j]]] = values[among[j]]
    beside, along, found = np.zeros(SIDE * SIDE + 2 * RADIUS), np.empty(SIDE * SIDE), np.empty((3, TILE * SIDE))
    for i in range(around.shape[0]):
        _surround(tiles, around[i], beside)
        for k in range(3):
            down = found[k]
            _window(beside, weights[k], 1, along)  # the last 2 RADIUS of each row are of no use
            _window(along, weights[k], SIDE, down)
            centre = weights[k, RADIUS] * weights[k, RADIUS]
            for j in range(TILE * SIDE):
                down[j] = (down[j] - centre * beside[j + RADIUS * SIDE + RADIUS]) / (1.0 - centre)
        for j in range(first[i], first[i + 1]):
            cell = among[j]
            at = np.int64(local[cell])
            at += at // TILE * (SIDE - TILE)
            near[cell] = mix[0] * found[0, at] + mix[1] * found[1, at]
            far[cell] = found[2, at]


@njit(error_model="numpy")
def bins_of(f, g, edges, inner, out):
    """Bin of each (f, g): b by `edges`, then within it by inner[b]; each edge belongs to the bin above it. Edges are
    few: all are compared, in vectors and without a branch."""
    within, further = inner.ravel(), inner.shape[1]
    for i in range(f.size):
        b = np.int64(0)
        for e in range(edges.size):
            b += np.int64(edges[e] <= f[i])
        at = b * (further + 1)
        for e in range(b * further, (b + 1) * further):
            at += np.int64(within[e] <= g[i])
        out[i] = at


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
    local = np.zeros(1, np.uint8)
    tiles_and_places(one, 1, 1, 1, one.copy(), local)
    ids, first, among = tiles_of(one, slots, keys)
    around = tiles_around(ids, 1, 1, slots, keys)
    smooth(f, local, first, among, around, np.full((3, 2 * RADIUS + 1), 0.1), np.ones(2), f.copy(), f.copy())
    hazards(f, f.copy())
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
