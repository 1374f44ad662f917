"""Local events: windows of the map where this slot's own published numbers say that many came or left.

An event is a term b s of the model: s = 1 in a window of nodes, b with a flat prior, and x - b s has the law that the
filter knows. So b is found by generalised least squares, and the filter is run on what is left: the sum over the window
is as the slot itself says, the shares inside it and the nodes beside it are still those of the history. Windows are
found by the score of that model, whose sums are exact, and stay free in later slots until they agree again.
Equations: docs/proofs/series.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.refine.grids import box_sums, places
from kasuri.refine.sweeps import Levels, down, up

if TYPE_CHECKING:
    from kasuri.refine.filter import Measured, Shape
    from kasuri.refine.learn import Split

_SIDES = (2, 3, 4, 6, 8, 12)  # of windows that are looked at first
_LARGEST_GRID = 1 << 16
_SURE, _SURE_LAPLACE = 3.75, 6.0  # standard deviations: an event
_AGAIN = 1.0  # standard deviations: one of the slots before goes on
_STAY = 2  # slots for which it may rest
_EACH, _TRIED, _WEAK = 6, 30, 2.5  # windows of one side, of all, and the least of them, whose sum is made exactly
_STEPS = 12  # of a window's edges
_LARGEST = 16  # side of a window
_MOST = 24  # events of a slot
_OWN = 0.05  # of a window's information that no other event has
_FOLLOWED = 1e-4  # of the numbers' information: where less is left the filter follows them anyway, the rest is rounding

Window = tuple[int, int, int, int]
"""Row, column, height and width, in nodes of a grid."""


@dataclass(frozen=True, eq=False)
class Events:
    """What is added in all windows, at every level; its variance; how much of each node is in a window, 0 to 1; and the
    windows as they are remembered: row, column, height, width and the slots since they were last free."""

    total: Levels
    variance: Levels
    cover: Levels
    windows: Int

    @property
    def any(self) -> bool:
        """Is there one in this slot? Others are only remembered."""
        return bool((self.windows[:, 4] == 0).any())

    def added(self, x: Levels, f: Levels, flags: Levels, noise: Sequence[float]) -> tuple[Levels, Levels, Levels]:
        """Estimates, variances and flags of what is left, with the events."""
        more = [np.minimum(total**2 / R, 1.0) for total, R in zip(self.total, noise, strict=True)]
        flags = [np.maximum(a, b * c) for a, b, c in zip(flags, self.cover, more, strict=True)]
        f = [f[0], *(a + b for a, b in zip(f[1:], self.variance[1:], strict=True))]  # the whole is the slot's own
        return [a + b for a, b in zip(x, self.total, strict=True)], f, flags


@dataclass(frozen=True, eq=False)
class _Shape:
    """s of a window: how many of its nodes each node has, by level; its information, 0 where the filter follows the
    numbers anyway, and its score."""

    nodes: tuple[Int, ...]
    many: tuple[Float, ...]
    own: float
    score: float


def find(shape: Shape, levels: Sequence[Measured], ms: Levels, Vs: Levels, splits: Sequence[Split],
         before: Int) -> Events | None:  # fmt: skip
    """The events of a slot; None where there are none and none is remembered."""
    fits = [at for at, grid in enumerate(shape.grids) if at and grid is not None and grid[0] * grid[1] <= _LARGEST_GRID]
    if not fits:
        return None
    search = _Search(shape, levels, ms, Vs, splits, fits[-1])
    rest = search.again(before)
    search.more(_SURE if shape.normal else _SURE_LAPLACE)
    if not search.windows and not rest:
        return None
    return search.events(rest, splits, [level.y.size for level in levels])


class _Search:
    """The score of one slot's numbers, and the windows that were taken from it so far."""

    def __init__(self, shape: Shape, levels: Sequence[Measured], ms: Levels, Vs: Levels, splits: Sequence[Split],
                 at: int) -> None:  # fmt: skip
        z, v = up(levels, ms, Vs, [level.y for level in levels], shape.variances)
        self.levels, self.ms, self.Vs, self.above = levels[: at + 1], ms[: at + 1], Vs[: at + 1], shape.variances[:at]
        # what is below the grid is in what the subtrees of its nodes say
        self.ys, self.lowest = [*(level.y for level in levels[:at]), z[at]], v[at]
        self.noise: Levels = [*(np.full(1, R) for R in self.above), v[at]]
        self.owners = [split.owner for split in splits[:at]]
        grid = shape.grids[at]
        assert grid is not None
        self.grid, self.place = grid, places(levels[at].prefix, grid)
        self.there = np.full(grid[0] * grid[1], -1, dtype=np.int64)
        self.there[self.place] = np.arange(self.place.size)
        self.x, f = down(self.levels, self.ms, self.Vs, z[: at + 1], v[: at + 1])
        left = [np.maximum(1 - one / R, 1e-3) for one, R in zip(f, self.noise, strict=True)]
        self.wild = max([1.0, *(self._wild(level, part) for level, part in enumerate(left))])
        self.usual = self._usual(shape, [part / R for part, R in zip(left, self.noise, strict=True)])
        self.tried: dict[Window, _Shape] = {}
        self.windows: list[Window] = []
        self.left: list[Levels] = []
        self._fit()

    def _wild(self, level: int, left: Float) -> float:
        """How many times larger than the model says the residuals of a level are."""
        if left.size < 256:
            return 1.0
        off = np.abs(self.ys[level] - self.x[level]) / np.sqrt(left * self.noise[level])
        return 1.4826 * float(np.median(off))

    def _usual(self, shape: Shape, left: Levels) -> Levels:
        """About the variance of the score of a window of each side; to choose those that are tried."""
        out = []
        for side in _SIDES:
            carried, size = left[-1], 1.0
            parts = []
            for at in range(len(left) - 1, 0, -1):
                parts.append(left[at] * (0.5 + 0.5 * min(side**2, size)))
                size *= shape.widths[at]
            carried = np.zeros(1)
            for part, owner in zip(reversed(parts), self.owners, strict=True):
                carried = carried[owner] + part
            out += box_sums(carried, self.place, self.grid, (side,))
        return out

    def _filtered(self, ys: Levels) -> Levels:
        z, v = up(self.levels, self.ms, self.Vs, ys, self.above, (ys[-1], self.lowest))
        return down(self.levels, self.ms, self.Vs, z, v)[0]

    def _unfollowed(self, nodes: Sequence[Int], many: Sequence[Float]) -> Levels:
        """What the filter does not follow of one more in every node of a window, over the noise."""
        more = [np.zeros(y.size) for y in self.ys]
        for one, at, count in zip(more, nodes, many, strict=True):
            one[at] = count
        new = self._filtered([y + one for y, one in zip(self.ys, more, strict=True)])
        return [(one - (x - old)) / R for one, x, old, R in zip(more, new, self.x, self.noise, strict=True)]

    def shape(self, window: Window) -> _Shape:
        if window not in self.tried:
            row, col, high, wide = window
            inside = self.there[(np.arange(row, row + high)[:, None] * self.grid[1] + np.arange(col, col + wide))]
            nodes, many = [inside[inside >= 0]], [np.ones(int((inside >= 0).sum()))]
            for owner in reversed(self.owners):
                above, where = np.unique(owner[nodes[0]], return_inverse=True)
                many.insert(0, np.bincount(where, many[0], above.size).astype(np.float64))
                nodes.insert(0, above)
            left = self._unfollowed(nodes, many)
            own = sum(float((s * part[at]).sum()) for s, part, at in zip(many, left, nodes, strict=True))
            full = sum(float((s * s / (R if R.size == 1 else R[at])).sum())
                       for s, at, R in zip(many, nodes, self.noise, strict=True))  # fmt: skip
            off = [(y - x) / R for y, x, R in zip(self.ys, self.x, self.noise, strict=True)]
            score = sum(float((s * part[at]).sum()) for s, part, at in zip(many, off, nodes, strict=True))
            self.tried[window] = _Shape(tuple(nodes), tuple(many), own if own > _FOLLOWED * full else 0.0, score)
        return self.tried[window]

    def _shared(self, one: _Shape) -> Float:
        """The information that a window shares with those taken."""
        pairs = [zip(one.many, one.nodes, left, strict=True) for left in self.left]
        return np.array([sum(float((s * part[at]).sum()) for s, at, part in pair) for pair in pairs])

    def sure(self, window: Window) -> float:
        """How many standard deviations an event of this window has, given those taken."""
        one = self.shape(window)
        shared = self._shared(one)
        free = one.own - (float(shared @ np.linalg.solve(self.information, shared)) if shared.size else 0.0)
        if one.own <= 0 or free <= _OWN * one.own:
            return 0.0
        return float(one.score - shared @ self.b) / np.sqrt(free) / self.wild

    def take(self, window: Window) -> None:
        self.windows.append(window)
        one = self.shape(window)
        self.left.append(self._unfollowed(one.nodes, one.many))
        self._fit()

    def _fit(self) -> None:
        shapes = [self.shape(window) for window in self.windows]
        self.information = np.array([self._shared(one) for one in shapes]).reshape(len(shapes), len(shapes))
        self.b = np.linalg.solve(self.information, np.array([one.score for one in shapes])) if shapes else np.zeros(0)

    def again(self, before: Int) -> list[list[int]]:
        """Windows of slots before that go on; those that rest are returned."""
        rest = []
        for *place, slots in before.tolist():
            window: Window = tuple(place)
            sure = abs(self.sure(window))
            if sure >= _AGAIN and window not in self.windows:
                self.take(self._fitted(window) if sure >= _SURE else window)
            elif slots < _STAY:
                rest.append([*place, slots + 1])
        return rest

    def more(self, least: float) -> None:
        while len(self.windows) < _MOST:
            found = [(abs(self.sure(window)), window) for window in self._likely()]
            if not found or max(found)[0] < least - 0.5:
                return
            window = self._fitted(max(found)[1])
            if abs(self.sure(window)) < least:
                return
            self.take(window)

    def _likely(self) -> list[Window]:
        """Windows whose score is large for their side, far enough from each other."""
        score = np.zeros(1)
        for at, (y, x, R) in enumerate(zip(self.ys, self.x, self.noise, strict=True)):
            taken = sum((b * left[at] for b, left in zip(self.b, self.left, strict=True)), np.zeros(1))
            score = (score[self.owners[at - 1]] if at else score) + (y - x) / R - taken
        found: list[tuple[float, Window]] = []
        sums = box_sums(score, self.place, self.grid, _SIDES)
        for side, total, usual in zip(_SIDES, sums, self.usual, strict=False):
            holds = usual > 1e-6 * usual.max()  # something was drawn there; the rest is rounding
            z = np.where(holds, np.abs(total) / np.sqrt(np.maximum(usual, 1e-300)), 0.0)
            z /= max(1.4826 * float(np.median(z[holds])), 1e-6) if holds.any() else 1.0
            for _ in range(_EACH):
                row, col = divmod(int(np.argmax(z)), z.shape[1])
                if z[row, col] < _WEAK:
                    break
                found.append((float(z[row, col]), (row, col, side, side)))
                near = max(side // 2, 1)
                z[max(row - near, 0) : row + near + 1, max(col - near, 0) : col + near + 1] = 0.0
        return [window for _, window in sorted(found, reverse=True)[:_TRIED] if window not in self.windows]

    def _fitted(self, window: Window) -> Window:
        """With its edges moved one by one for as long as that makes it surer."""
        best = abs(self.sure(window))
        for _ in range(_STEPS):
            near = [(abs(self.sure(one)), one) for one in self._near(window)]
            if not near or max(near)[0] <= best:
                break
            best, window = max(near)
        return window

    def _near(self, window: Window) -> list[Window]:
        row, col, high, wide = window
        rows = [(row - 1, high + 1), (row, high + 1), (row + 1, high - 1), (row, high - 1), (row - 1, high),
                (row + 1, high)]  # fmt: skip
        cols = [(col - 1, wide + 1), (col, wide + 1), (col + 1, wide - 1), (col, wide - 1), (col - 1, wide),
                (col + 1, wide)]  # fmt: skip
        near = [(a, col, h, wide) for a, h in rows if a >= 0 and a + h <= self.grid[0] and 2 <= h <= _LARGEST]
        near += [(row, a, high, w) for a, w in cols if a >= 0 and a + w <= self.grid[1] and 2 <= w <= _LARGEST]
        return [one for one in near if one not in self.windows]

    def events(self, rest: list[list[int]], splits: Sequence[Split], sizes: Sequence[int]) -> Events:
        """What was taken, at every level: below the grid in proportion to what is predicted."""
        depth = len(self.ys)
        total, variance, cover = ([np.zeros(size) for size in sizes] for _ in range(3))
        inside = np.zeros(self.place.size)
        spread = np.diag(np.linalg.inv(self.information)) if self.windows else np.zeros(0)
        for window, left, b, var in zip(self.windows, self.left, self.b, spread, strict=True):
            one = self.shape(window)
            inside[one.nodes[-1]] = 1.0
            for at in range(depth):
                total[at][one.nodes[at]] += b * one.many[at]
                variance[at] += var * (left[at] * self.noise[at]) ** 2
        has, cover[depth - 1] = np.ones(inside.size), inside
        for at in range(depth - 2, -1, -1):
            inside = np.bincount(self.owners[at], inside, sizes[at]).astype(np.float64)
            has = np.bincount(self.owners[at], has, sizes[at]).astype(np.float64)
            cover[at] = inside / np.maximum(has, 1)
        for at in range(depth, len(sizes)):
            split = splits[at - 1]
            total[at], variance[at] = split.h * total[at - 1][split.owner], split.h**2 * variance[at - 1][split.owner]
            cover[at] = cover[at - 1][split.owner]
        kept = [[*window, 0] for window in self.windows] + rest
        return Events(total, variance, cover, np.array(kept[:_MOST], dtype=np.int64).reshape(-1, 5))
