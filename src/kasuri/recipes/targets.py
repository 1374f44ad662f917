"""Shares of epsilon from wished errors, before any data is touched: the closed form of products of trees.

Every axis has levels of k_0 = 1 < k_1 < ... groups; a partition is a tuple of levels, of K groups of n/K cells each.
Averages over such partitions commute (where fan-outs are uniform; else this is an approximation), so that space falls
into residuals r, tuples again, of dimension prod (k_r - k_{r-1}). Partition g measured with precision t_g:

    m_r = sum over g >= r of t_g n / K_g        V_h = n / K_h^2 * sum over r <= h of dim_r / m_r

V_h is the variance of one sum of view h after least squares. The shares make the largest V_h / T_h^2 small, T_h the
wished errors. A map that follows no tree is taken for a level by itself that the tree tells with variance ROUGH times
that of a block of its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import product

import numpy as np

from kasuri.arrays import Float

PARTS = 1000
"""Shares are multiples of 1/PARTS: they are stored, and must be the same wherever they are computed."""
LEAST = 0.012
"""Shares below this are given to the others: such a measurement tells nearly nothing."""
POWER = 4.0
"""The largest of all ratios is taken as the mean of their POWER-th powers, which is smooth."""
ROUGH = 6.0
HELD = 0.2
"""For `balanced`: what the held view has."""
ROUNDS = 300
HALVED = 24
"""Steps to a share that is just enough."""


@dataclass(frozen=True)
class Sums:
    """A partition as the closed form sees it: groups per axis (1: summed over), and whether it is a map's."""

    counts: tuple[int, ...]
    map: bool = False

    @property
    def groups(self) -> int:
        return math.prod(self.counts)


@dataclass(frozen=True)
class Form:
    """The closed form for some measured partitions and some views."""

    cells: tuple[int, ...]
    measured: tuple[Sums, ...]
    views: tuple[Sums, ...]
    known: float = 0.0
    """How exactly (one over the variance) a cell is known before anything is measured, where one count alone has scale
    1; sums of n cells 1/sqrt(n) of that."""

    @cached_property
    def _arrays(self) -> tuple[Float, Float, Float, Float, Float]:
        trees = [sums for sums in (*self.measured, *self.views) if not sums.map]
        levels = [sorted({1, n, *(sums.counts[d] for sums in trees)}) for d, n in enumerate(self.cells)]
        n = float(math.prod(self.cells))
        residuals = list(product(*levels))
        before = [{k: (0 if i == 0 else axis[i - 1]) for i, k in enumerate(axis)} for axis in levels]
        dims = np.array([math.prod(k - before[d][k] for d, k in enumerate(r)) for r in residuals], dtype=np.float64)

        def under(sums: Sums) -> Float:
            return np.array([all(a <= b for a, b in zip(r, sums.counts, strict=True)) for r in residuals], dtype=float)

        told = [under(sums) * n / sums.groups if not sums.map else 0.0 * dims for sums in self.measured]
        views = [under(self._block(sums, levels)) * n / float(sums.groups) ** 2 for sums in self.views]
        rough = np.array([ROUGH if sums.map else 1.0 for sums in self.views])
        own = [[float(sums.map and sums == other) for other in self.measured] for sums in self.views]
        return np.array(told), dims, np.array(views), rough, np.array(own)

    @cached_property
    def _before(self) -> Float:
        """What is known of every residual before."""
        trees = [sums for sums in (*self.measured, *self.views) if not sums.map]
        levels = [sorted({1, n, *(sums.counts[d] for sums in trees)}) for d, n in enumerate(self.cells)]
        n = math.prod(self.cells)
        return np.array([self.known * math.sqrt(math.prod(r) / n) for r in product(*levels)])

    def _block(self, sums: Sums, levels: list[list[int]]) -> Sums:
        """A map's sums as blocks of the tree of the next coarser level on every axis."""
        if not sums.map:
            return sums
        return Sums(tuple(max(k for k in axis if k <= c) for axis, c in zip(levels, sums.counts, strict=True)))

    def variances(self, shares: Float) -> Float:
        """V of every view, where one count alone has scale 1 (divide by epsilon squared; times (c sensitivity)^2)."""
        return self._solved(shares)[0]

    def _solved(self, shares: Float) -> tuple[Float, Float]:
        """V of every view and its derivatives by the shares."""
        told, dims, asked, rough, own = self._arrays
        m = np.einsum("g,gr->r", shares**2 / 2, told)
        if self.known:
            m = m + self._before
        tree = np.einsum("hr,r->h", asked, dims / m) * rough
        by_m = -asked * (dims / m**2) * rough[:, None]
        slope = np.einsum("hr,gr->hg", by_m, told) * shares
        precision = 1 / tree + np.einsum("hg,g->h", own, shares**2 / 2)
        return 1 / precision, (slope / tree[:, None] ** 2 - own * shares) / precision[:, None] ** 2


@lru_cache(maxsize=64)  # what is saved and verified is planned again from its words, several times
def shares_for(form: Form, targets: tuple[float, ...], keep: tuple[int, ...]) -> tuple[Fraction, ...]:
    """Shares of the measured partitions, multiples of 1/PARTS that sum to exactly 1, for wished errors of the views;
    those in `keep` have a share whatever comes out."""
    if not targets:  # one cell: nothing is wished but what is measured anyhow
        return tuple(_rounded(np.full(len(form.measured), 1 / len(form.measured))))
    wished = np.array(targets, dtype=np.float64)
    open_ = list(range(len(form.measured)))
    while True:
        q = _least(form, wished, open_)
        small = [i for i in open_ if q[i] < LEAST and i not in keep]
        if not small:
            return tuple(_rounded(np.maximum(q, [LEAST if i in keep else 0.0 for i in range(q.size)])))
        open_ = [i for i in open_ if i != min(small, key=lambda i: q[i])]


@dataclass(frozen=True)
class Plan:
    """What `balanced` is asked for: no error above `worst` times that of plain noise; how good, of plain noise, the
    cells are taken to be (a table where they are worse is not measured like this); what a view counts that is too
    bad; `alone`: of sums of so many cells and more least squares alone is asked, whatever the cells are taken to be."""

    worst: float
    taken: float = 0.8
    strict: float = 4.0
    alone: float = math.inf


@lru_cache(maxsize=64)
def balanced(cells: Sums, views: tuple[Sums, ...], own: Fraction, held: int | None, plan: Plan) -> tuple[Fraction, ...]:
    """Shares of views where the cells have `own`, multiples of 1/PARTS that sum to 1 - own: those that make the mean
    logarithm of the views' variances small, none much above what the plan allows. View `held` has HELD of them, where
    there is one."""
    left = 1 - float(own)
    known = max(1 / plan.taken**2 - float(own) ** 2, 0.0) / 2
    form = Form(cells.counts, (cells, *views), views, known)
    blind = replace(form, known=0.0)
    plain = np.array([2 * cells.groups / sums.groups for sums in views])
    fixed = np.zeros(len(views) + 1)
    fixed[0], open_ = 1 - left, list(range(1, len(views) + 1))
    if held is not None:
        fixed[held + 1] = left * HELD
        open_.remove(held + 1)
    if plan.alone < math.inf:
        fixed = _floors(blind, plain, plan, fixed)
        left = max(1 - float(fixed.sum()), 0.0)
    least = min(LEAST, left / 4)
    q = fixed
    while open_ and left > 1 / PARTS:
        q = _lowest(partial(_spoiled, form, blind, plain, plan), fixed, open_)
        small = [i for i in open_ if q[i] - fixed[i] < least]
        if not small:
            break
        open_ = [i for i in open_ if i != min(small, key=lambda i: q[i] - fixed[i])]
    return tuple(_rounded(q[1:], int((1 - own) * PARTS)))


def _floors(blind: Form, plain: Float, plan: Plan, shares: Float) -> Float:
    """The least shares, one view after the other from the smallest sums on, by which least squares has all large sums
    within the plan; what is left over makes each of them better still."""
    q, limit = shares.copy(), plan.worst**2 * plain
    for i in np.argsort(plain, kind="stable"):
        if plain[i] < 2 * plan.alone or blind.variances(q)[i] <= limit[i]:
            continue
        low, high = q[i + 1], 1.0
        for _ in range(HALVED):
            q[i + 1] = (low + high) / 2
            low, high = (low, q[i + 1]) if blind.variances(q)[i] <= limit[i] else (q[i + 1], high)
        q[i + 1] = high
    most, more = 1 - float(shares.sum()), q - shares
    return shares + more * min(1.0, most / max(float(more.sum()), 1e-300))


def _spoiled(form: Form, blind: Form, plain: Float, plan: Plan, q: Float) -> tuple[float, Float]:
    """What `balanced` makes small, and its derivatives by the shares. `blind`: the form of those who know nothing."""
    V, slope = form._solved(q)
    large = plain >= 2 * plan.alone
    if large.any():
        V_blind, slope_blind = blind._solved(q)
        V, slope = np.where(large, V_blind, V), np.where(large[:, None], slope_blind, slope)
    limit = plan.worst**2 * plain
    over = np.maximum(V / limit - 1, 0.0)
    value = float(np.log(V / plain).mean()) + plan.strict * float((over**2).sum())
    return value, np.einsum("h,hg->g", 1 / V / V.size + 2 * plan.strict * over / limit, slope)


def _lowest(cost: Callable[[Float], tuple[float, Float]], fixed: Float, open_: list[int]) -> Float:
    """The shares, `fixed` and for those in `open_` more than that, that make a cost of them small."""
    left = 1 - float(fixed.sum())

    def shares(theta: Float) -> Float:
        q = fixed.copy()
        weights = np.exp(np.maximum(theta - theta.max(), -20.0))
        q[open_] += weights / weights.sum() * left
        return q

    def loss(theta: Float) -> tuple[float, Float]:
        q = shares(theta)
        value, slope = cost(q)
        own, by_q = (q - fixed)[open_], slope[open_]
        return value, own * (by_q - float((own * by_q).sum()) / left)

    found = [_descended(loss, theta) for theta in _starts(len(open_))]
    return shares(min(found, key=lambda one: round(one[0], 9))[1])


def _starts(count: int) -> list[Float]:
    """The costs are not convex in the shares."""
    return [np.zeros(count), *(np.cos(np.arange(count) * (start + 1.0)) for start in range(1, 4))]


def _least(form: Form, targets: Float, open_: list[int]) -> Float:
    def cost(q: Float) -> tuple[float, Float]:
        V, slope = form._solved(q)
        ratio = V / targets**2
        top = float(ratio.max())
        powers = (ratio / top) ** POWER
        value = math.log(top) + math.log(float(powers.mean())) / POWER
        return value, np.einsum("h,hg->g", powers / powers.sum() / ratio / targets**2, slope)

    return _lowest(cost, np.zeros(len(form.measured)), open_)


def _descended(loss: Callable[[Float], tuple[float, Float]], theta: Float) -> tuple[float, Float]:
    """A local minimum by L-BFGS [Nocedal1980] with halved steps, in a fixed order of sums: the same on every machine
    but for the last digits."""
    value, slope = loss(theta)
    steps: list[tuple[Float, Float, float]] = []
    for _ in range(ROUNDS):
        way = slope.copy()
        weights = []
        for s, y, sy in reversed(steps):
            weights.append(_dot(s, way) / sy)
            way -= weights[-1] * y
        if steps:
            _, y, sy = steps[-1]
            way *= sy / _dot(y, y)
        for (s, y, sy), weight in zip(steps, reversed(weights), strict=True):
            way += s * (weight - _dot(y, way) / sy)
        down, size = _dot(slope, way), 1.0
        if not down > 1e-14:
            break
        while size > 1e-9:
            new, new_slope = loss(theta - size * way)
            if new <= value - 1e-4 * size * down:
                break
            size /= 2
        else:
            break
        s, y = -size * way, new_slope - slope
        if (sy := _dot(s, y)) > 1e-14:
            steps = [*steps[-7:], (s, y, sy)]
        gain, theta, value, slope = value - new, theta + s, new, new_slope
        if gain < 1e-11:
            break
    return value, theta


def _dot(a: Float, b: Float) -> float:
    """In NumPy's own order of sums, which no matrix library changes."""
    return float(np.add.reduce(a * b))


def _rounded(q: Float, parts: int = PARTS) -> list[Fraction]:
    """Multiples of 1/PARTS, so many in all, by largest remainder; what is not 0 stays above it."""
    exact = q / q.sum() * parts
    whole = np.maximum(np.floor(exact), exact > 0).astype(np.int64)
    ranked = np.argsort(-(exact - whole), kind="stable")
    left = parts - int(whole.sum())
    for i in ranked[: max(left, 0)]:
        whole[i] += 1
    if left < 0:
        whole[np.argmax(whole)] += left
    return [Fraction(int(part), PARTS) for part in whole]
