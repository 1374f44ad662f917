"""Questions that a released table already answers: quantiles, means, shares, ratios, changes, ranks.

Every answer is a function of intervals of counts, which are functions of what is published: nothing is charged, and a
release read back from disk gives the same answer. Each answer uses a few intervals, and shares the error among them
(Bonferroni), so that no more is assumed about how they hang together (docs/proofs/questions.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, raise_faults
from kasuri.published.area import Area
from kasuri.published.intervals import LEVEL, bars_of, finish, interval, stepped
from kasuri.published.protected import Protected
from kasuri.trees.regions import MOST_CELLS, Boxes

Values = NDArray[Any]
Two = tuple[Float, Float]


@dataclass(frozen=True)
class Answer:
    """A number made of released counts; the one made of the true counts is in [lower, upper] with confidence `level`.
    None: it is not settled whether there is one (a share of nobody)."""

    value: float | None
    lower: float
    upper: float
    level: float


@dataclass(frozen=True)
class Quantile:
    """The least index of an ordered axis up to which at least a part `q` of an area lies, and the range of indices,
    both ends included, in which the true one lies with confidence `level`. Labels are those of the axis."""

    q: float
    index: int
    lower: int
    upper: int
    label: str
    lower_label: str
    upper_label: str
    level: float


@dataclass(frozen=True)
class Rank:
    """One of several areas: its released count, the interval of the true one, and the ranks it may have (1: the
    largest). With confidence `level` all intervals of a ranking, and so all its ranks, hold together."""

    name: str
    value: float
    lower: float
    upper: float
    best: int
    worst: int


@dataclass(frozen=True)
class Ranking:
    """Areas from the largest released count down. `groups` are as fine as the certified order goes: every member of a
    group is larger than every member of the next one, all pairs together with confidence `level`."""

    ranks: tuple[Rank, ...]
    groups: tuple[tuple[str, ...], ...]
    level: float

    def top(self, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(those that are among the `count` largest, those that may be), with confidence `level`."""
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(self.ranks):
            raise DomainError(f"top: a whole number from 1 to {len(self.ranks)}, the areas there are")
        sure = tuple(rank.name for rank in self.ranks if rank.worst <= count)
        maybe = tuple(rank.name for rank in self.ranks if rank.best <= count < rank.worst)
        return sure, maybe


def quantiles(release: Protected, axis: str, wanted: Sequence[float], area: Area, level: float) -> list[Quantile]:
    """Quantiles along an ordered axis, each with its own interval.

    With B the count at indices up to k and A the count above, the q-quantile is at most k where (1-q) B >= q A. So k is
    ruled out as the quantile m where the intervals of B and A say that (1-q) B < q A, or, one index below, that
    (1-q) B >= q A. Of the true m that goes wrong only if one of four limits fails: each has a quarter of the error.
    """
    _level(level)
    faults = [] if wanted else ["quantile: give one number from 0 to 1 at least"]
    if not all(_is_number(q) and 0 <= q <= 1 for q in wanted):
        faults.append("quantile: a number from 0 to 1, such as 0.5 for the median")
    if faults:
        raise DomainError(*faults)
    along = _Along.of(release, axis, area, ordered="a quantile")
    below = np.cumsum(along.values)[:-1]
    low, high = along.limits(release, below, 1 - (1 - level) / 4)
    shown = along.shown
    out = []
    for q in wanted:
        # margins[k] of B and A split after index k: the most and the least that (1-q) B - q A may be
        most = (1 - q) * high[0] - q * low[1]
        least = (1 - q) * low[0] - q * high[1]
        slack = 1e-9 * (np.abs(most) + np.abs(least))
        possible = np.ones(along.values.size, dtype=bool)
        possible[:-1] &= most + slack >= 0
        possible[1:] &= least - slack < 0
        found, total = np.flatnonzero(possible), along.values.sum()
        reached = np.flatnonzero(np.cumsum(along.values) >= q * total * (1 - 1e-12))
        at = int(reached[0] if total > 0 else found[0] if found.size else 0)
        ends = (min(at, int(found[0])), max(at, int(found[-1]))) if found.size else (at, at)
        index, lower, upper = (along.first + k for k in (at, *ends))
        out.append(Quantile(float(q), index, lower, upper, shown[index], shown[lower], shown[upper], level))
    return out


def mean(release: Protected, axis: str, numbers: Sequence[Any] | None, area: Area, level: float) -> Answer:
    """The mean over an area of an axis whose indices have numbers: one each, or two where records may have any number
    between them (the edges of a bin). Left out: labels that are numbers, or the indices themselves.

    With numbers v rising and T_k the part of the area at index k and above, the mean is v_0 + sum (v_k - v_(k-1)) T_k.
    All parts hold together; each of their 2 (K - 1) counts has an equal share of the error.
    """
    _level(level)
    along = _Along.of(release, axis, area, ordered="a mean")
    first, last = _numbers(along, numbers)
    total = float(along.values.sum())
    value = None
    if total > 0:
        value = float(((first + last) / 2 * along.values).sum() / total)
    count = along.values.size
    if count == 1:
        return Answer(value, float(first[0]), float(last[0]), level)
    below = np.cumsum(along.values)[:-1]
    low, high = along.limits(release, below, 1 - (1 - level) / (2 * (count - 1)))
    part_low, part_high = _part(low[1], high[1], low[0], high[0])
    lower = float(first[0] + (np.diff(first) * part_low).sum())
    upper = float(last[0] + (np.diff(last) * part_high).sum())
    return Answer(value, *_around(lower, upper, value), level)


def share(release: Protected, part: Area, whole: Area, level: float) -> Answer:
    """The part of `whole` that lies in `part` (and in `whole`): from the intervals of what is inside and of the rest,
    each with half of the error."""
    _level(level)
    domain = release.domain
    every, some = whole.cells_on(domain), part.cells_on(domain)
    inside = np.intersect1d(every, some, assume_unique=True)
    rest = np.setdiff1d(every, inside, assume_unique=True)
    own = part.on(domain) if inside.size == some.size else inside
    one, other = (_limits(release, cells, 1 - (1 - level) / 2) for cells in (own, rest))
    lower, upper = (float(x) for x in _part(one[1], one[2], other[1], other[2]))
    both = one[0] + other[0]
    value = one[0] / both if both > 0 else None
    return Answer(value, *_around(lower, upper, value), level)


def ratio(above: Protected, first: Area, below: Protected, second: Area, level: float) -> Answer:
    """The count of an area over that of another, of the same release or of another one: each has half of the error. The
    upper limit is infinite where the second may hold nobody."""
    _level(level)
    one = _limits(above, first.on(above.domain), 1 - (1 - level) / 2)
    two = _limits(below, second.on(below.domain), 1 - (1 - level) / 2)
    value = one[0] / two[0] if two[0] > 0 else None
    lower = one[1] / two[2] if two[2] > 0 else 0.0
    upper = one[2] / two[1] if two[1] > 0 else math.inf
    return Answer(value, *_around(lower, upper, value), level)


def average(sums: Protected, counts: Protected, area: Area, level: float) -> Answer:
    """What one counted record adds to a sum, on average over an area: the sum, of one release, over the count, of
    another. As `ratio`: an average r is ruled out where the interval of the sum lies above or below r times that of the
    count, each with half of the error."""
    faults = []
    if sums.guarantee.unit.max_sum is None:
        faults.append("average: the release asked is one of sums (Unit(max_sum=...)); ask it, and give it the counts")
    if counts.guarantee.unit.max_sum is not None or counts.guarantee.unit.max_weight is not None:
        faults.append("average: the other release is one of counts, without sums or weights")
    if sums.guarantee.unit.id != counts.guarantee.unit.id:
        faults.append("average: the sums and the counts are of different units")
    if sums.domain != counts.domain:
        faults.append("average: the sums and the counts are over different domains")
    raise_faults(DomainError, faults)
    return ratio(sums, area, counts, area, level)


def change(before: Protected, after: Protected, area: Area, level: float) -> Answer:
    """The count of an area in a later release less that in an earlier one: each has half of the error."""
    _level(level)
    one, two = (_limits(side, area.on(side.domain), 1 - (1 - level) / 2) for side in (before, after))
    return Answer(two[0] - one[0], two[1] - one[2], two[2] - one[1], level)


def ranking(release: Protected, by: str | Mapping[str, Area], area: Area, level: float) -> Ranking:
    """Areas by size: the indices of an axis of one dimension within `area`, or areas by name. Every interval has an
    equal share of the error, so all hold together, and every comparison made of them."""
    _level(level)
    if isinstance(by, str):
        along = _Along.of(release, by, area)
        names, values = along.shown[along.first : along.first + along.values.size], along.values.astype(np.float64)
        low, high = along.single_limits(release, 1 - (1 - level) / values.size)
    else:
        if not by or not all(isinstance(one, Area) for one in by.values()):
            raise DomainError("rank: areas by name, such as {'north': ks.Area(rows=slice(0, 8))}")
        names = list(by)
        found = [_limits(release, one.on(release.domain), 1 - (1 - level) / len(by)) for one in by.values()]
        values, low, high = (np.array(part, dtype=np.float64) for part in zip(*found, strict=True))
    return _ranked(names, values, low, high, level)


def _ranked(names: Sequence[str], values: Float, low: Float, high: Float, level: float) -> Ranking:
    order = np.argsort(-values, kind="stable")
    values, low, high = values[order], low[order], high[order]
    larger = np.searchsorted(np.sort(low), high, side="right")  # areas with low <= high of this one
    smaller = np.searchsorted(np.sort(high), low, side="left")  # areas with high < low of this one
    best, worst = low.size - larger + 1, low.size - smaller
    ranks = tuple(
        Rank(names[order[i]], float(values[i]), float(low[i]), float(high[i]), int(best[i]), int(worst[i]))
        for i in range(low.size)
    )
    least, most = np.minimum.accumulate(low), np.maximum.accumulate(high[::-1])[::-1]
    cuts = np.flatnonzero(least[:-1] > most[1:]) + 1
    groups = tuple(tuple(rank.name for rank in ranks[a:b]) for a, b in zip([0, *cuts], [*cuts, low.size], strict=True))
    return Ranking(ranks, groups, level)


@dataclass(frozen=True, eq=False)
class _Along:
    """An area cut along one axis: the released sum of every index from `first` on."""

    dim: int
    first: int
    values: Values
    where: Boxes | Int
    shown: list[str]
    numbers: Sequence[str] | None

    @classmethod
    def of(cls, release: Protected, axis: str, area: Area, ordered: str = "") -> _Along:
        domain = release.domain
        names = {one.name: one for one in domain.axes}
        if axis not in names or len(domain.positions(axis)) != 1:
            known = ", ".join(name for name in names if len(domain.positions(name)) == 1)
            raise DomainError(f"{axis!r} is not an axis of one dimension; choose among: {known or 'there is none'}")
        own = names[axis]
        if ordered and not own.ordered:
            raise DomainError(f"{ordered} needs an axis with an order (Ordered or Time); {axis!r} has none")
        (dim,) = domain.positions(axis)
        where = area.on(domain)
        index = domain.unravel(release.cells)
        if isinstance(where, Boxes):
            keep = np.ones(release.cells.size, dtype=bool)
            for at, low, high in zip(index, where.low[0], where.high[0], strict=True):
                keep &= (at >= low) & (at < high)
            first, last = int(where.low[0, dim]), int(where.high[0, dim])
        else:
            keep, (first, last) = np.isin(release.cells, where, assume_unique=True), (0, domain.shape[dim])
        if not isinstance(where, Boxes) and not where.size:
            raise DomainError("the area is empty: it has no cells")
        values = np.zeros(last - first, dtype=release.values.dtype)
        np.add.at(values, index[dim][keep] - first, release.values[keep])
        shown = own.shown() or [str(i) for i in range(domain.shape[dim])]
        return cls(dim, first, values, where, shown, own.labels)

    def limits(self, release: Protected, below: Values, level: float) -> tuple[Two, Two]:
        """((lower of B, lower of A), (upper of B, upper of A)) for every split of the area after an index."""
        ends, above = self.first + 1 + np.arange(below.size), self.values.sum() - below
        if below.size == 0:
            none = np.zeros(0)
            return (none, none), (none, none)
        if isinstance(self.where, Boxes):
            one = _box_limits(release, self._cut(None, ends), below, level)
            two = _box_limits(release, self._cut(ends, None), above, level)
        else:
            at = release.domain.unravel(self.where)[self.dim]
            one = _listed_limits(release, [self.where[at < end] for end in ends], level)
            two = _listed_limits(release, [self.where[at >= end] for end in ends], level)
        return (one[0], two[0]), (one[1], two[1])

    def single_limits(self, release: Protected, level: float) -> Two:
        """(lower, upper) of every index by itself."""
        ends = self.first + np.arange(self.values.size)
        if isinstance(self.where, Boxes):
            return _box_limits(release, self._cut(ends, ends + 1), self.values, level)
        at = release.domain.unravel(self.where)[self.dim]
        return _listed_limits(release, [self.where[at == end] for end in ends], level)

    def _cut(self, low: Int | None, high: Int | None) -> Boxes:
        """The box of the area between indices, once for each of them."""
        assert isinstance(self.where, Boxes)
        count = next(part.size for part in (low, high) if part is not None)
        lows, highs = (np.repeat(part, count, axis=0) for part in (self.where.low, self.where.high))
        if low is not None:
            lows[:, self.dim] = low
        if high is not None:
            highs[:, self.dim] = high
        return Boxes(lows, highs)


def _listed_limits(release: Protected, areas: Sequence[Int], level: float) -> Two:
    found = [_limits(release, area, level) for area in areas]
    return np.array([one[1] for one in found]), np.array([one[2] for one in found])


def _box_limits(release: Protected, boxes: Boxes, values: Values, level: float) -> Two:
    """Limits of many boxes, so many at a time as can be treated cell by cell where a recipe needs that."""
    bars, parts, at = bars_of(release), [], 0
    ends = np.cumsum(boxes.sizes())
    while at < boxes.count:
        room = (0 if at == 0 else ends[at - 1]) + MOST_CELLS
        stop = max(int(np.searchsorted(ends, room, side="right")), at + 1)
        own = Boxes(boxes.low[at:stop], boxes.high[at:stop])
        parts.append(finish(bars.of_boxes(own, values[at:stop], level), values[at:stop], stepped(bars)))
        at = stop
    return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])


def _limits(release: Protected, area: Boxes | Int, level: float) -> tuple[float, float, float]:
    """(released sum, lower, upper)."""
    if not isinstance(area, Boxes) and area.size == 0:
        bars_of(release)  # refused where there are no intervals at all
        return 0.0, 0.0, 0.0
    found = interval(release, area, level)
    return found.value, found.lower, found.upper


def _part(low: Any, high: Any, low_rest: Any, high_rest: Any) -> tuple[Any, Any]:
    """Limits of x / (x + rest); from 0 to 1 where both may be nothing."""
    low, high, low_rest, high_rest = (np.maximum(part, 0.0) for part in (low, high, low_rest, high_rest))
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(low + high_rest > 0, np.divide(low, low + high_rest), 0.0)
        upper = np.where(high + low_rest > 0, np.divide(high, high + low_rest), 1.0)
    return lower, upper


def _numbers(along: _Along, given: Sequence[Any] | None) -> Two:
    """The least and the largest number of every index of the area, rising."""
    count = along.values.size
    if given is None:
        try:
            given = range(len(along.shown)) if along.numbers is None else [float(x) for x in along.numbers]
        except ValueError:
            raise DomainError("mean: labels are not numbers; give numbers=, one (or low and high) a label") from None
    try:
        both = [x if isinstance(x, (tuple, list, np.ndarray)) else (x, x) for x in given]
        pairs = [(float(low), float(high)) for low, high in both]
    except (TypeError, ValueError):
        raise DomainError("mean: numbers are one (or low and high) a label") from None
    first, last = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    good = len(pairs) == len(along.shown) and bool(np.isfinite(pairs).all()) and bool((first <= last).all())
    if not good or (np.diff(first) < 0).any() or (np.diff(last) < 0).any():
        raise DomainError(f"mean: {len(along.shown)} rising numbers are needed, one (or low and high) a label")
    return first[along.first : along.first + count], last[along.first : along.first + count]


def _around(lower: float, upper: float, value: float | None) -> tuple[float, float]:
    """Limits with the released number inside: rounding aside, it always is."""
    return (lower, upper) if value is None else (min(lower, value), max(upper, value))


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float, np.floating, np.integer)) and not isinstance(x, bool)


def _level(level: object) -> None:
    if not _is_number(level) or not 0.5 <= level < 1:  # type: ignore[operator]
        raise DomainError("level must be a number from 0.5 up to but not 1, such as 0.95")


__all__ = [
    "LEVEL", "Answer", "Quantile", "Rank", "Ranking",
    "average", "change", "mean", "quantiles", "ranking", "ratio", "share",
]  # fmt: skip
