"""Empirical Bayes on the visited tree: `bayes_tree` after its measurement. Pure post-processing.

Sees noisy counts, their scales and the public tree; it can import neither table nor noise. The cells of a bin of
like neighbourhoods share one prior, a mixture fitted to their own noisy counts; posterior means go up the tree, where
each level's noisy counts correct them, and come down as non-negative numbers that add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.public import PublicTable
from kasuri.refine import after
from kasuri.refine.least_squares import whole_total
from kasuri.refine.mixture import cut_off, mixture, start
from kasuri.schema import Domain
from kasuri.trees.order import Order
from kasuri.trees.visited import LEAST_SCALE, Level, Visited

FLAT = 5.0
"""From here (in units of the scale) the prior is blended into a flat one, which holds alone from 8 on."""
STEPS = 120
RIDGE = 30.0
"""EM steps for a bin's weights, which are drawn to the pooled ones as by so many further cells."""
SMALL = 20_000
"""Fewer drawn cells have 8 x 2 bins instead of 24 x 5."""
WINDOWS = (0.8, 1.6, 4.0)
NEAR = (0.6, 0.4)
"""Widths (in cells) of the Gaussian windows; the first two, so mixed, make the near neighbourhood."""
MANY = 200
"""Levels of fewer nodes have the variances of their sums doubled, or raised as by so many further nodes that say 2."""
DOUBT = 4
ROOM = 1 << 20
"""People inside blocks that were not descended are in at most so many cells, or as many as nodes were drawn."""
SPREADS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0)
BROAD = 80.0
PUBLIC_BINS = 14
"""Where a public table says p: 0, or normal about p with these relative spreads, or this broad (in scales of noise),
without which areas rebuilt since would be drawn to their old value; weights in so many quantile bins of p."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What empirical Bayes makes of a visited tree: the total, and estimates z with variances v of every level from
    itself and all below; children of level i at groups[i]."""

    total: Float
    z: list[Float]
    v: list[Float]
    groups: list[Int]

    def projected(self) -> list[Float]:
        """Non-negative numbers of every level that add up to the total."""
        from kasuri._kernels.visit import project

        out, totals = [], self.total
        for z, v, groups in zip(self.z, self.v, self.groups, strict=True):
            totals, above = np.empty(z.size), totals
            project(z, v, groups, above, totals)
            out.append(totals)
        return out


def estimate(visited: Visited, tree: Order, domain: Domain, prior: PublicTable | None = None) -> tuple[Int, Int]:
    """Keys and integer values of the leaves: non-negative, every drawn node the sum of its drawn children."""
    found = fit(visited, tree, domain, prior)
    return _integers(whole_total(found.total), found.z, found.v, visited.levels, found.groups, visited.cuts, tree)


def spreads(visited: Visited, tree: Order, domain: Domain, prior: PublicTable | None = None) -> list[after.Posterior]:
    """The posterior of every drawn node that `estimate` rounds: what its errors are expected to be."""
    found = fit(visited, tree, domain, prior)
    levels = [(level.prefix, level.first) for level in visited.levels]
    return after.posteriors(levels, found.z, found.v, found.projected(), total_variance(visited))


def units(visited: Visited) -> list[float]:
    """The scale of every level by which its noise has the variance 2 scale^2: that of Laplace noise, or the standard
    deviation of normal noise over sqrt(2)."""
    scales = [float(max(scale, LEAST_SCALE)) for scale in visited.scales]
    return [scale / math.sqrt(2) for scale in scales] if visited.normal else scales


def total_variance(visited: Visited) -> float:
    """That of `top_total`."""
    scales = units(visited)
    return 2 / looks(visited.levels, scales, visited.slacks)[1]


def fit(visited: Visited, tree: Order, domain: Domain, prior: PublicTable | None = None) -> Fitted:
    """Two passes of empirical Bayes over the cells, the second with what the first says of their neighbours; without a
    prior once per visited tree."""
    found: Fitted | None = visited.__dict__.get("_fitted") if prior is None else None
    if found is None:
        found = _fit(visited, tree, domain, prior)
        if prior is None:
            visited.__dict__["_fitted"] = found
    return found


def _fit(visited: Visited, tree: Order, domain: Domain, prior: PublicTable | None) -> Fitted:
    levels, normal = visited.levels, visited.normal
    scales = units(visited)
    groups = [np.array([0, levels[0].y.size], dtype=np.int64), *(level.first for level in levels[:-1])]
    dropped = [
        dropped_posteriors(level, part, scale, normal=normal)
        for level, part, scale in zip(levels[:-1], groups, scales, strict=False)
    ]
    cells = levels[-1]
    index = tree.cells(cells.prefix)
    place = Neighbours.of(index, domain)
    u = cells.y / scales[-1]
    public = None if prior is None else _on_cells(prior, index, levels[0].y.sum(dtype=np.float64)) / scales[-1]
    around = None if public is None or place is None else place.smooth(public)[0]
    values: Float = u
    total = top_total(levels, scales, visited.slacks)  # whatever the prior is
    found: Fitted | None = None
    for _ in range(2):
        if found is not None:
            values = found.projected()[-1] / scales[-1]
        features = (
            place.smooth(values) if place is not None else (sibling_features(values, groups[-1]), np.zeros(u.size))
        )
        if public is None:
            mean, variance = cell_posteriors(u, *features, normal=normal)
        else:
            near = features[0] if around is None else around
            mean, variance = near_posteriors(u, public, scales[-1], near, features[0], normal=normal)
        z, v = upward(visited, groups, scales, dropped, mean * scales[-1], variance * scales[-1] ** 2)
        found = Fitted(total, z, v, groups)
    assert found is not None
    return found


def total_of(visited: Visited) -> int:
    """The total of `estimate`, which no prior changes."""
    return int(whole_total(top_total(visited.levels, units(visited), visited.slacks)).sum())


def top_total(levels: tuple[Level, ...], scales: list[float], slacks: tuple[float, ...]) -> Float:
    """The total by least squares over the levels that were drawn whole, cut at 0. Their y were not selected by noise,
    so it has no bias; sums of posterior means have one, where most cells are empty."""
    top, weight = looks(levels, scales, slacks)
    return np.array([max(top / weight, 0.0)])


def looks(levels: tuple[Level, ...], scales: list[float], slacks: tuple[float, ...]) -> tuple[float, float]:
    """The sums of the levels that were drawn whole, each times 2 over the variance of its noise, and these weights."""
    top, weight = 0.0, 0.0
    for level, scale, slack in zip(levels, scales, slacks, strict=True):
        own = 1 / (max(level.y.size, 1) * scale**2)  # 2 / variance of the level's sum
        top += own * level.y.sum(dtype=np.float64)
        weight += own
        if slack != math.inf:  # the next level was drawn below kept nodes only
            break
    return top, weight


def _integers(
    totals: Int,
    z: list[Float],
    v: list[Float],
    levels: tuple[Level, ...],
    groups: list[Int],
    cuts: tuple[int, ...],
    tree: Order,
) -> tuple[Int, Int]:
    from kasuri._kernels.visit import share_out

    room = max(ROOM, sum(level.y.size for level in levels))
    nodes, mass = (
        np.zeros(0, dtype=np.int64),
        np.zeros(0, dtype=np.int64),
    )  # blocks that were not descended, so far down
    for at, level in enumerate(levels):
        if at:
            nodes, mass = spread_evenly(tree, cuts[at - 1], cuts[at], nodes, mass, room)
        shares = np.zeros(z[at].size, dtype=np.int64)
        share_out(z[at], v[at], np.zeros(z[at].size, dtype=bool), groups[at], totals, shares)
        alone = (shares > 0) & (np.diff(level.first) == 0)
        nodes, mass = np.concatenate((nodes, level.prefix[alone])), np.concatenate((mass, shares[alone]))
        ranked = np.argsort(nodes, kind="stable")
        nodes, mass = nodes[ranked], mass[ranked]
        totals = shares
    return nodes, mass


def spread_evenly(tree: Order, start: int, end: int, nodes: Int, mass: Int, room: int) -> tuple[Int, Int]:
    """Whole numbers `mass` on rising nodes of depth `start`, split level by level as evenly as they go among possible
    children, down to depth `end`.

    At most `room` of them (or as many as `nodes`): from the level on where it would be more, each node hands what it
    has to one child. Cost: O((room + nodes) fan-out) per level, however many people there are.
    """
    from kasuri._kernels.visit import hand_down, split_evenly

    for at in range(start, end):
        below, first = tree.children(nodes, at, at + 1)
        heirs, shares = (np.empty(min(below.size, max(room, nodes.size)), dtype=np.int64) for _ in range(2))
        found = split_evenly(nodes, mass, below, first, heirs, shares)
        if found < 0:
            hand_down(nodes, below, first, heirs)
            found, shares = nodes.size, mass
        nodes, mass = heirs[:found], shares[:found]
    return nodes, mass


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Drawn cells in square tiles of a mesh, one layer per combination of the other axes: each cell's tile and place
    in it; `shape` counts the tiles of a layer, and there are `most` tiles at most."""

    tile: Int
    local: NDArray[np.uint8]
    shape: tuple[int, int]
    most: int

    @classmethod
    def of(cls, cells: Int, domain: Domain) -> Neighbours | None:
        """None where there is no mesh, or hardly any drawn cell has a drawn neighbour on it."""
        from kasuri._kernels.bayes import TILE, tiles_and_places

        meshes = domain.planes
        if not meshes or cells.size == 0:
            return None
        at = domain.positions(meshes[-1].name)[0]
        size_r, size_c = domain.shape[at : at + 2]
        below = math.prod(domain.shape[at + 2 :])
        tile, local = np.empty(cells.size, dtype=np.int64), np.empty(cells.size, dtype=np.uint8)
        tiles_and_places(cells, below, size_r, size_c, tile, local)
        runs = 1 + int(np.count_nonzero(np.diff(tile)))
        if 4 * runs > cells.size:  # perhaps tiles are in several runs
            some = tile[tile % 61 == 0] if tile.size > 1 << 20 else tile
            if 4 * np.unique(some).size > some.size:
                return None
        # not cells / 4: of many cells some tiles were looked at, and the table of all tiles must not become full
        return cls(tile, local, (-(-size_r // TILE), -(-size_c // TILE)), runs)

    @cached_property
    def _tiles(self) -> tuple[Int, Int, Int]:
        """Of every tile the cells, and the numbers of the tiles around it, as the kernel reads them."""
        from kasuri._kernels.bayes import tiles_around, tiles_of

        size = 1 << max(4, (2 * self.most).bit_length())
        keys, slots = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
        ids, first, among = tiles_of(self.tile, slots, keys)
        return first, among, tiles_around(ids, *self.shape, slots, keys)

    def smooth(self, values: Float) -> tuple[Float, Float]:
        """Two averages of the neighbours' values, the cell itself left out: near, and farther."""
        from kasuri._kernels.bayes import RADIUS, smooth

        offset = np.arange(-RADIUS, RADIUS + 1)
        weights = np.array([np.exp(-0.5 * (offset / sigma) ** 2) for sigma in WINDOWS])
        weights /= weights.sum(axis=1, keepdims=True)
        near, far = np.empty(values.size), np.empty(values.size)
        smooth(values, self.local, *self._tiles, weights, np.array(NEAR), near, far)
        return near, far


def sibling_features(values: Float, groups: Int) -> Float:
    from kasuri._kernels.bayes import sibling_means

    out = np.zeros(values.size)
    sibling_means(values, groups, out)
    return out


def cell_posteriors(u: Float, f: Float, g: Float, *, normal: bool = False) -> tuple[Float, Float]:
    """Posterior mean and variance of every drawn cell, in units of the scale."""
    outer, inner = (24, 5) if u.size >= SMALL else (8, 2)
    return fitted(u, quantile_bins(f, g, outer, inner), outer * inner, normal=normal)


def _on_cells(prior: PublicTable, cells: Int, total: float) -> Float:
    """The public table on these cells, scaled to the noisy total."""
    return prior.on(cells) * (max(total, 0.0) / max(float(prior.values.sum()), 1.0))


def near_posteriors(
    u: Float, public: Float, scale: float, f: Float, g: Float, *, normal: bool = False
) -> tuple[Float, Float]:
    """As `cell_posteriors`, where a public table says p > 0: x is 0, or near p, or anything; elsewhere the ordinary
    prior in bins of the public table around."""
    from kasuri._kernels.bayes import public_likelihoods, public_posteriors, row_weights

    mean, variance = np.empty(u.size), np.empty(u.size)
    known = public > 0
    other = ~known
    if other.any():
        mean[other], variance[other] = cell_posteriors(u[other], f[other], g[other], normal=normal)
    if known.any():
        own, p = u[known], public[known]
        parts = np.column_stack((p, p / (2 * scale)))  # p / 2 people of variance, in squared scales
        bins = quantile_bins(p, p, PUBLIC_BINS, 1)
        spreads = np.array(SPREADS)
        step = -(-own.size // 40_000)
        some = slice(None, None, step)
        likelihood = np.empty((own[some].size, len(SPREADS) + 2))
        public_likelihoods(own[some], parts[some], spreads, BROAD, normal, likelihood)
        weights = row_weights(likelihood, bins[some], PUBLIC_BINS, STEPS)
        m, v = np.empty(own.size), np.empty(own.size)
        public_posteriors(own, parts, bins, weights, spreads, BROAD, normal, m, v)
        mean[known], variance[known] = m, v
    return mean, variance


def fitted(u: Float, bins: Int, count: int, *, middle: bool = False, normal: bool = False) -> tuple[Float, Float]:
    """Mixture weights per bin by EM on the bins' own values, and every value's posterior mean and variance under them.

    middle: instead of the mean m the point half way to the median, which is m (1 - 2p) / (1 - p)^2 where 0 has
    probability p < 1/2 and the rest is taken as uniform from 0 up, else 0: good for squared and absolute errors alike.
    """
    from kasuri._kernels.bayes import posteriors

    likelihood, first, second = mixture(normal)
    weights = fitted_weights(u, bins, count, normal=normal)
    # einsum, not @: a fixed order of sums, whatever the number of threads of the linear algebra behind @
    total, one, two = (np.einsum("bk,jk->bj", weights, table) for table in (likelihood[:-1], first, second))
    means = one / total
    variances = np.maximum(two / total - means**2, 1e-4)
    if middle:
        zero = np.minimum(weights[:, :1] * likelihood[:-1, 0] / total, 0.5)
        means = means * (1 + (1 - 2 * zero) / (1 - zero) ** 2) / 2
    mean, variance = np.empty(u.size), np.empty(u.size)
    posteriors(u, bins, means, variances, start(normal), FLAT, mean, variance)
    return mean, variance


def fitted_weights(u: Float, bins: Int, count: int, *, normal: bool = False) -> NDArray[Any]:
    """Weights of the mixture's parts per bin, drawn to those of all bins together."""
    from kasuri._kernels.bayes import histograms, mixture_weights

    likelihood = mixture(normal)[0]
    hist = np.zeros((count, likelihood.shape[0]))
    histograms(u, bins, start(normal), hist)
    parts = likelihood.shape[1]
    pooled = mixture_weights(hist.sum(axis=0, keepdims=True), likelihood, np.full(parts, 1 / parts), 1.0, STEPS)[0]
    return mixture_weights(hist, likelihood, pooled, RIDGE, STEPS)


CLASSES, CLASSES_NORMAL = 66, 98
"""Of u, in histograms: up to 0 (or up to -BELOW), the points of a grid up to TOP, everything above."""


def classes(u: Float, bins: Int, count: int, *, normal: bool = False) -> Float:
    """How many values of every bin are in every class."""
    from kasuri._kernels.bayes import histograms

    out = np.zeros((count, CLASSES_NORMAL if normal else CLASSES))
    histograms(u, bins, start(normal), out)
    return out


def class_variances(hist: Float, *, normal: bool = False) -> Float:
    """Posterior variance of a value by its bin and class, in squared scales, under the prior fitted to its bin."""
    from kasuri._kernels.bayes import GRID, TOP, mixture_weights

    likelihood, first, second = mixture(normal)
    parts = likelihood.shape[1]
    weights = mixture_weights(hist.sum(axis=0, keepdims=True), likelihood, np.full(parts, 1 / parts), 1.0, STEPS)
    if len(hist) > 1:
        weights = mixture_weights(hist, likelihood, weights[0], RIDGE, STEPS)
    total, one, two = (np.einsum("bk,jk->bj", weights, table) for table in (likelihood[:-1], first, second))
    variance = np.maximum(two / total - (one / total) ** 2, 1e-4)
    flat = np.clip((np.arange(total.shape[1]) / GRID - start(normal) - FLAT) / (TOP - FLAT), 0.0, 1.0)
    return np.column_stack((variance * (1 - flat) + 2 * flat, np.full(len(hist), 2.0)))


def quantile_bins(f: Float, g: Float, outer: int, inner: int) -> Int:
    """Quantile bins of f, and within each of them quantile bins of g, from at most 2^16 evenly placed values."""
    from kasuri._kernels.bayes import bins_of

    step = -(-f.size // (1 << 16)) or 1
    some, other = f[::step], g[::step]
    edges = np.quantile(some, np.arange(1, outer) / outer) if some.size else np.zeros(outer - 1)
    at = np.searchsorted(edges, some, "right")
    within = np.zeros((outer, inner - 1))
    for b in range(outer):
        own = other[at == b]
        if own.size:
            within[b] = np.quantile(own, np.arange(1, inner) / inner)
    out = np.empty(f.size, dtype=np.int64)
    bins_of(f, g, edges, within, out)
    return out


def dropped_posteriors(level: Level, groups: Int, scale: float, *, normal: bool = False) -> tuple[Float, Float]:
    """Posterior of every node of a level from its own y, the prior fitted in bins of its siblings' mean: for nodes that
    were not kept. Fitted on all drawn nodes, whose y were not selected."""
    u = level.y / scale
    bins = int(np.clip(u.size // 400, 1, 8))
    own = quantile_bins(sibling_features(u, groups), u, bins, 1)
    mean, variance = fitted(u, own, bins, middle=True, normal=normal)
    return mean * scale, variance * scale**2


def upward(
    visited: Visited,
    groups: list[Int],
    scales: list[float],
    dropped: list[tuple[Float, Float]],
    mean: Float,
    variance: Float,
    few: bool = False,
) -> tuple[list[Float], list[Float]]:
    """Estimates and variances of every level, from the cells to the top. `few`: also levels of few nodes say how far
    the sums below them are off."""
    from kasuri._kernels.bayes import child_sums, normal_laplace, thresholds

    z, v = [mean], [variance]
    for at in range(len(visited.levels) - 2, -1, -1):
        level, scale = visited.levels[at], scales[at]
        s, w = np.empty(level.y.size), np.empty(level.y.size)
        child_sums(level.first, z[0], v[0], s, w)
        t = np.empty(level.y.size)
        y = level.y.astype(np.float64)
        thresholds(y, level.x, groups[at], t)
        kept = np.diff(level.first) > 0
        new_z, new_v = dropped[at][0].copy(), dropped[at][1].copy()
        if kept.any():
            if few and int(kept.sum()) < MANY:
                own_s, own_w = s[kept], _raised(s[kept], w[kept], y[kept], scale)
            else:
                slack = visited.slacks[at] * (math.sqrt(2) if visited.normal else 1)
                own_s, own_w = _calibrated(s[kept], w[kept], y[kept], t[kept], scale, slack, visited.normal)
            if visited.normal:
                own_w = np.maximum(own_w, 1e-12 * scale**2)
                gain = own_w / (own_w + 2 * scale**2)
                out_z, out_v = own_s + gain * (y[kept] - own_s), gain * (2 * scale**2)
            else:
                out_z, out_v = np.empty(own_s.size), np.empty(own_s.size)
                normal_laplace(own_s, own_w, y[kept], scale, out_z, out_v)
            new_z[kept], new_v[kept] = out_z, out_v
        z.insert(0, new_z)
        v.insert(0, new_v)
    return z, v


def _raised(s: Float, w: Float, y: Float, scale: float) -> Float:
    """The variances of few sums, raised by one factor until they explain how far the sums are from the level's own y:
    posterior means of cells err together, and a level of few nodes is all that tells."""
    w = np.maximum(w, 1e-6 * scale**2)
    spare = float(((y - s) ** 2).mean()) - 2 * scale**2
    return w * float(np.clip((s.size * spare / float(w.mean()) + DOUBT * 2) / (s.size + DOUBT), 1.0, 1e4))


def _calibrated(
    s: Float, w: Float, y: Float, t: Float, scale: float, slack: float, normal: bool
) -> tuple[Float, Float]:
    """Sums of children and their variances, corrected against the level's own y in bins of w.

    Only nodes kept almost surely (s well above the limit) are compared, and the mean and variance of noise that was
    cut off at the limit are allowed for.
    """
    w = np.maximum(w, 1e-6 * scale**2)
    if s.size < MANY:
        return s, 2.0 * w
    sure, a = np.ones(s.size, dtype=bool), np.full(s.size, np.inf)
    if np.isfinite(slack):
        above = (s - t) / scale + slack  # of the limit, in scales
        sure = above > 1.6
        a = np.where(sure, above, np.inf)
    cut_mean, cut_square = (part * scale**power for power, part in enumerate(cut_off(a, normal), 1))
    r = y - s
    count = int(np.clip(sure.sum() // 100, 1, 6))
    edges = np.quantile(w[sure] if sure.any() else w, np.arange(1, count) / count)
    at = np.searchsorted(edges, w, "right")
    out_s, out_w = s.copy(), w.copy()
    for b in range(count):
        own, here = sure & (at == b), at == b
        n = int(own.sum())
        bias, inflation = 0.0, 1.3
        if n >= 30:
            bias = float((r[own] - cut_mean[own]).mean())
            spare = float(((r[own] - bias) ** 2 - cut_square[own]).mean())
            inflation = (n * spare / float(w[own].mean()) + 100 * 1.3) / (n + 100)
            inflation = min(max(inflation, 0.5), 30.0)
        out_s[here] += bias
        out_w[here] *= inflation
    return out_s, out_w
