"""A table filtered with the tables published before it: pure post-processing of noisy counts, slot after slot.

Every slot publishes noisy counts y of the nodes of a tree. From earlier slots alone each node has a prediction m and
each split a variance V; the model is on splits,

    x_c = m_c + h_c (x_p - M_p) + u_c,    u_c ~ N(0, V_c) given sum u = 0,    M_p = sum m_c,    h_c = m_c / M_p,

so that a change of the parent is handed down in proportion and no level counts twice. Its posterior is exact, by one
sweep up and one down (`_kernels.filter`). Coefficients and variances are learned from published numbers
(`refine.learn`), jumps are allowed for from this slot's own (`refine.jumps`). Equations: docs/proofs/series.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kasuri.arrays import Array, Bool, Float, Int
from kasuri.refine import events, jumps, learn
from kasuri.refine.learn import Learned
from kasuri.refine.least_squares import share, whole_total
from kasuri.refine.sweeps import sweeps

VERSION = 3
"""Of the filter, with which a series begins. The first let nodes beside a local event take a part of it, the second
knew events as variances alone."""
VERSIONS = (1, 2, 3)
"""Those that series are continued and replayed with, bit for bit: each with the one that it was begun with."""
FLAT = 1e8
"""A variance of so many times the noise says nothing."""
_LINGER = 0.5  # of the noise: predictions below it are forgotten where a node is not drawn
_KEEP = 2.0  # of the noise: nodes predicted above it are drawn whatever this slot's noise says


@dataclass(frozen=True)
class When:
    """Where a slot is in the public calendar: its row of the profiles, the same hour of the other class of days,
    and the part of the day whose coefficients it has."""

    row: int
    twin: int
    part: int


@dataclass(frozen=True, eq=False)
class Measured:
    """The drawn nodes of one level in key order, their noisy counts, and where the children of each begin and end."""

    prefix: Int
    y: Float
    first: Int

    @cached_property
    def open(self) -> Int:
        """Nodes with children."""
        return np.flatnonzero(np.diff(self.first))


@dataclass(frozen=True)
class Shape:
    """What is public about the tree: the noise variance of every level, nodes of a level below one of the level above,
    the grid of each level where it is one (rows, columns, bits of a prefix), whether the noise is Gaussian, the number
    of rows of a profile, and the version of the filter."""

    variances: tuple[float, ...]
    widths: tuple[int, ...]
    grids: tuple[tuple[int, int] | None, ...]
    normal: bool
    rows: int
    version: int = VERSION


@dataclass(frozen=True, eq=False)
class Known:
    """What is remembered of the nodes of one level: the last estimate, the profile (one row per class of days and
    phase, NaN: never seen), the tracking signal and the discounted sum of surprises."""

    prefix: Int
    x: Array
    profile: Array
    track: Array
    surprise: Array

    @classmethod
    def empty(cls, rows: int) -> Known:
        none = np.zeros(0, dtype=np.float32)
        return cls(np.zeros(0, dtype=np.int64), none, np.zeros((rows, 0), dtype=np.float32), none, none)

    def find(self, prefix: Int) -> tuple[Int, Bool]:
        """Where nodes are, and whether they are there."""
        if self.prefix.size == prefix.size and (self.prefix.size == 0 or bool((self.prefix == prefix).all())):
            return np.arange(prefix.size), np.ones(prefix.size, dtype=bool)
        at = np.minimum(np.searchsorted(self.prefix, prefix), max(self.prefix.size - 1, 0))
        return at, (self.prefix[at] == prefix) if self.prefix.size else np.zeros(prefix.size, dtype=bool)


@dataclass(frozen=True, eq=False)
class State:
    """All that later slots need: public, and a function of the published measurements alone."""

    row: int
    """The profile's row of the last slot; -1 before the first."""
    twin: int
    times: Int
    """How often each row was seen."""
    known: tuple[Known, ...]
    learned: tuple[Learned, ...]
    windows: Int = field(default_factory=lambda: np.zeros((0, 5), dtype=np.int64))
    """Of the last slots' local events (`refine.events`); of versions 1 and 2 none."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """One level: the estimate, its model variance (calibrated), the estimate made to add up without negative numbers,
    whole numbers of it, and how far the node departs from its profile (0 to 1)."""

    x: Float
    f: Float
    real: Float
    whole: Int
    flag: Float


def begin(shape: Shape) -> State:
    """The state before the first slot."""
    levels = len(shape.variances)
    known = tuple(Known.empty(shape.rows) for _ in range(levels))
    return State(-1, -1, np.zeros(shape.rows, dtype=np.int64), known, tuple(Learned.begin() for _ in range(levels)))


@dataclass(frozen=True, eq=False)
class Predicted:
    """Of the nodes of one level: the features, which of them are known, which have a profile, the bin of their size and
    the prediction."""

    features: Float
    seen: Bool
    profiled: Bool
    bins: Int
    m: Float


def predict(known: Known, learned: Learned, state: State, when: When, prefix: Int) -> Predicted:
    """m = b1 x + b2 D[now] + b3 D[before]: an AR(1) about the profile of the hour and the class of day. Without a
    profile the last estimate; unknown nodes 0."""
    at, seen = known.find(prefix)
    size = prefix.size
    features = np.zeros((3, size))
    profiled = np.zeros(size, dtype=bool)
    if known.prefix.size:
        features[0] = np.where(seen, known.x[at], 0.0)
        now, before = _row(known, when.row, when.twin), _row(known, state.row, state.twin)
        features[1], features[2] = now[at], before[at]
        profiled = seen & np.isfinite(features[1]) & np.isfinite(features[2])
        features[1:] = np.where(profiled, features[1:], features[0])
    bins = learn.bins(features.sum(axis=0) / 3, seen)
    b = learned.coefficients(when.part)[bins]  # of each node's bin
    m = np.where(profiled, np.maximum((b.T * features).sum(axis=0), 0.0), features[0])
    return Predicted(features, seen, profiled, bins, m)


def _row(known: Known, row: int, twin: int) -> Float:
    """The profile of an hour; that of the other class of days where it was never seen."""
    own = known.profile[row].astype(np.float64)
    return own if row == twin else np.where(np.isfinite(own), own, known.profile[twin])


def wanted(shape: Shape, state: State, when: When) -> list[Int]:
    """The nodes of every level that are drawn whatever this slot's noise says: predicted well above the noise, and
    what is above them. A function of what was published."""
    out: list[Int] = []
    for at in range(len(shape.variances) - 1, -1, -1):
        known = state.known[at]
        m = predict(known, state.learned[at], state, when, known.prefix).m if state.row >= 0 else np.zeros(0)
        own = known.prefix[: m.size][m > _KEEP * np.sqrt(shape.variances[at])]
        if out:
            own = np.union1d(own, out[0] // shape.widths[at + 1])
        out.insert(0, own)
    return out


@dataclass(frozen=True, eq=False)
class _Prior:
    """Of every level: predictions, split variances, and of all but the first the residuals of its splits; features, and
    what was learned of the variances."""

    ms: list[Float]
    Vs: list[Float]
    splits: list[learn.Split]
    predicted: list[Predicted]
    learned: list[Learned]


def step(shape: Shape, state: State, levels: Sequence[Measured], when: When) -> tuple[list[Estimate], State]:
    """Filter one slot: the estimates of every level from the top, and the state after it.

    The first level is one node, the whole. Cost: O(drawn and known nodes).
    """
    firsts = state.row < 0
    prior, found, rest = _prior(shape, state, levels, when), None, levels
    if shape.version > 2 and not firsts:
        found = events.find(shape, levels, prior.ms, prior.Vs, prior.splits, state.windows)
    if found is not None and found.any:
        rest = [replace(level, y=level.y - more) for level, more in zip(levels, found.total, strict=True)]
        prior = _prior(shape, state, rest, when)
    ms, predicted = prior.ms, prior.predicted
    if firsts:
        Vs, learned = prior.Vs, prior.learned
        flags, tracks = ([np.zeros(level.y.size) for level in levels] for _ in range(2))
    else:
        Vs, flags, tracks, learned = _allowed(shape, state, rest, prior)
    flat = [np.full(V.size, FLAT * R) for V, R in zip(Vs, shape.variances, strict=True)]
    first, alone = sweeps(rest, ms, flat, shape.variances)
    x, f = sweeps(rest, ms, Vs, shape.variances, (first[0], alone[0]))
    if found is not None:
        x, f, flags = found.added(x, f, flags, shape.variances)
    out = estimates(levels, x, f, flags)
    after = []
    for at, level in enumerate(levels):
        own = learned[at]
        if not firsts:
            own = own.regressed(predicted[at], level.y, shape.variances[at], flags[at], when.part)
            own = own.judged(predicted[at].bins, level.y, x[at], f[at], alone[at], shape.variances[at])
        out[at] = replace(out[at], f=own.calibration()[predicted[at].bins] * f[at])
        after.append(own)
    known = tuple(
        _update(state.known[at], level, out[at], ms[at], tracks[at], when, state, shape.variances[at])
        for at, level in enumerate(levels)
    )
    times = state.times.copy()
    times[when.row] += 1
    new = State(when.row, when.twin, times, known, tuple(after))
    return out, new if found is None else replace(new, windows=found.windows)


def _prior(shape: Shape, state: State, levels: Sequence[Measured], when: When) -> _Prior:
    """What the slots before say of this one, and by how much its splits usually depart from that."""
    top = levels[0]
    ms, Vs = [top.y.copy()], [np.full(1, FLAT * shape.variances[0])]
    firsts = state.row < 0
    splits: list[learn.Split] = []
    predicted = [predict(state.known[0], state.learned[0], state, when, top.prefix)]
    learned = [state.learned[0]]
    for at in range(1, len(levels)):
        level, above = levels[at], levels[at - 1]
        guess = predict(state.known[at], state.learned[at], state, when, level.prefix)
        owner = np.repeat(np.arange(above.y.size), np.diff(above.first))
        fan = np.diff(above.first)[owner]
        fresh = ~guess.seen
        m = np.where(fresh, ms[at - 1][owner] / fan, guess.m)
        split = learn.split(level.y, m, above, owner, fan, shape.variances[at], shape.variances[at - 1])
        use = guess.seen if not firsts else np.zeros(level.y.size, dtype=bool)
        own, V = learn.variances(split, state.learned[at], when.part, use)
        room = np.maximum(np.maximum(ms[at - 1], above.y), 0) + np.sqrt(shape.variances[at - 1])
        V = np.where(fresh, room[owner] ** 2, V)  # never seen: anything from none to all of the parent
        V = np.full(level.y.size, FLAT * shape.variances[at]) if firsts else V
        ms.append(m)
        Vs.append(V)
        splits.append(split)
        predicted.append(guess)
        learned.append(own)
    return _Prior(ms, Vs, splits, predicted, learned)


def _allowed(shape: Shape, state: State, levels: Sequence[Measured],
             prior: _Prior) -> tuple[list[Float], list[Float], list[Float], list[Learned]]:  # fmt: skip
    """Split variances that allow for jumps, flags, tracking signals, what was learned of jumps; without limit where
    the filter did not help: there the slot by itself is published."""
    Vs = jumps.lasting(shape, prior.predicted, prior.Vs) if shape.version == 2 else prior.Vs
    kept = [_remembered(known, level) for known, level in zip(state.known, levels, strict=True)]
    Vs, flags, tracks, learned = jumps.allow(shape, levels, prior.ms, Vs, prior.splits, prior.learned, kept)
    for at in range(1, len(levels)):
        helps = learned[at].helps()[prior.predicted[at].bins]
        Vs[at] = np.where(helps, Vs[at], FLAT * shape.variances[at])
    return Vs, flags, tracks, learned


def _remembered(known: Known, level: Measured) -> tuple[Float, Float]:
    """Tracking signal and discounted surprise of the drawn nodes."""
    at, seen = known.find(level.prefix)
    if not known.prefix.size:
        return np.zeros(level.y.size), np.zeros(level.y.size)
    return np.where(seen, known.track[at], 0.0), np.where(seen, known.surprise[at], 0.0)


def estimates(levels: Sequence[Measured], x: list[Float], f: list[Float], flags: Sequence[Float]) -> list[Estimate]:
    """Made to add up without negative numbers, as real numbers and as whole ones."""
    from kasuri._kernels.visit import project

    pairs = [(level.y, level.first) for level in levels]
    whole = share(pairs, x, f, whole_total(x[0]))
    real = [np.maximum(x[0], 0.0)]
    for at in range(1, len(levels)):
        real.append(np.zeros(x[at].size))
        project(x[at], f[at], levels[at - 1].first, real[at - 1], real[at])
    return [Estimate(*each) for each in zip(x, f, real, whole, flags, strict=True)]


def _update(
    known: Known, level: Measured, out: Estimate, m: Float, track: Float, when: When, state: State, R: float
) -> Known:
    """Estimate, profile and signals after the slot. D += max(1/(n+1), .3)(1 - .7 flag)(x - D)."""
    at, seen = known.find(level.prefix)
    surprise = level.y - m + 0.7 * (np.where(seen, known.surprise[at], 0.0) if known.prefix.size else 0.0)
    x = out.real.astype(np.float32)
    rate = max(1 / (state.times[when.row] + 1), 0.3) * (1 - 0.7 * out.flag)
    rows = known.profile.shape[0]
    if known.prefix.size == level.prefix.size and seen.all():
        profile, prefix = known.profile.copy(), known.prefix
        lingering = np.zeros(0, dtype=np.int64)
    else:
        drawn = np.zeros(known.prefix.size, dtype=bool)
        drawn[at[seen]] = True
        lingering = np.flatnonzero(~drawn & (known.x > _LINGER * np.sqrt(R)))
        prefix = np.concatenate((level.prefix, known.prefix[lingering]))
        profile = np.full((rows, prefix.size), np.nan, dtype=np.float32)
        profile[:, : level.prefix.size][:, seen] = known.profile[:, at[seen]]
        profile[:, level.prefix.size :] = known.profile[:, lingering]
    size = level.prefix.size
    own = profile[when.row, :size]
    profile[when.row, :size] = np.where(np.isfinite(own), own + rate * (x - own), x)
    parts: list[tuple[Array, Array]] = [(x, known.x), (track, known.track), (surprise, known.surprise)]
    whole = [np.concatenate((new, old[lingering])).astype(np.float32) for new, old in parts]
    if lingering.size or prefix is not known.prefix:
        by = np.argsort(prefix, kind="stable")
        prefix, profile, whole = prefix[by], profile[:, by], [one[by] for one in whole]
    return Known(prefix, whole[0], profile, whole[1], whole[2])
