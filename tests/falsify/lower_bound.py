"""A lower confidence bound on epsilon from outputs alone: learn an event on some of the runs, count it on the others.

If a mechanism is (epsilon, delta)-DP, then P(E | one) <= e^epsilon P(E | two) + delta for every event E and both
directions. So (P(E | one) - delta) / P(E | two) never exceeds e^epsilon. Here E is what looks
best on the first half of the runs (one part of it fits scores, the other picks score and threshold); the second half,
which had no say, gives an exact binomial (Clopper-Pearson) lower limit of the one probability and an upper limit of the
other. The logarithm of their ratio is above epsilon with probability at most `alpha` if the claim is true, however
cleverly or stupidly E was chosen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

Columns = Mapping[str, np.ndarray]
"""What an attacker sees of each run, by name: one number per run, NaN where a run does not show it."""
Score = Callable[[Columns], np.ndarray]

BINS = 48
THRESHOLDS = 160
TELLING = 9
"""Columns whose sums and differences in pairs are tried as well; and those of measurements with the best three."""


@dataclass(frozen=True)
class Event:
    """{score >= threshold} (or below it), more likely on side `more`; found on the training half."""

    words: str
    score: Score
    threshold: float
    above: bool
    more: int

    def hits(self, columns: Columns) -> int:
        found = self.score(columns) >= self.threshold
        return int(found.sum() if self.above else (~found).sum())


@dataclass(frozen=True)
class Found:
    """A lower bound on epsilon, the event it rests on, and how often that happened in the testing half."""

    epsilon: float
    event: str
    hits: tuple[int, int]
    runs: tuple[int, int]


def limits(hits: np.ndarray, runs: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson: each limit is wrong with probability at most alpha."""
    hits = np.asarray(hits, dtype=float)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - np.maximum(hits, 1) + 1, alpha), 0.0)
    rest = np.maximum(runs - hits, 1)
    high = np.where(hits < runs, betaincinv(np.minimum(hits, runs - 1) + 1, rest, 1 - alpha), 1.0)
    return low, high


def epsilon_above(hits: np.ndarray, runs: int, others: np.ndarray, other_runs: int, delta: float, alpha: float):
    """ln((lower limit of P(E | one) - delta) / upper limit of P(E | two)); 0 where it tells nothing."""
    low, _ = limits(hits, runs, alpha / 2)
    _, high = limits(others, other_runs, alpha / 2)
    return np.log(np.maximum(low - delta, 1e-300) / high).clip(min=0.0)


def attack(one: Columns, two: Columns, delta: float, alpha: float) -> Found:
    """The bound of one pair of neighbours: the runs on either side, all columns of equal length."""
    train, test = zip(*(_halves(columns) for columns in (one, two)), strict=True)
    event = best_event(*train, delta, alpha)
    hits = [event.hits(part) for part in test]
    runs = [_length(part) for part in test]
    more, less = event.more, 1 - event.more
    epsilon = float(epsilon_above(hits[more], runs[more], hits[less], runs[less], delta, alpha))
    return Found(epsilon, event.words, (hits[more], hits[less]), (runs[more], runs[less]))


def best_event(one: Columns, two: Columns, delta: float, alpha: float) -> Event:
    """The event with the largest bound on these runs (which it then may not be judged by)."""
    (fit_one, one), (fit_two, two) = _halves(one), _halves(two)
    scores: dict[str, Score] = {name: _column(name) for name in one}
    fine, sides = {}, {}
    for name in one:
        fine[name] = _table(name, fit_one[name], fit_two[name])
        sides[name] = _two_sides(name, fit_one[name], fit_two[name])
        scores[f"{name}, by likelihood"] = fine[name]
    best = {words: _best_threshold(words, score, one, two, delta, alpha) for words, score in scores.items()}
    ranked = sorted(one, key=lambda name: -max(best[name][0], best[f"{name}, by likelihood"][0]))
    more: dict[str, Score] = {}
    for words, tables in (("likelihood", fine), ("sides", sides)):
        for size in (2, 3, 4, 5, 6, 8, 11, 16, len(ranked)):
            if size <= len(ranked):
                more[f"{words} of {size} numbers"] = _sum([tables[name] for name in ranked[:size]])
        kinds = {name.split(" ")[0] for name in one}
        for kind in sorted(kinds) if len(kinds) > 1 else ():
            more[f"{words} of all {kind}"] = _sum([tables[name] for name in one if name.split(" ")[0] == kind])
    telling, measured = ranked[:TELLING], [name for name in ranked if name.startswith("measured")]
    twos = [(name, other) for i, name in enumerate(telling) for other in telling[:i]]
    twos += [(name, other) for i, name in enumerate(measured) for other in measured[:i][:3]]
    for name, other in twos:  # a noise word that two numbers share tells nothing in either of them
        more[f"{name} - {other}"] = _pair(name, other, -1)
        more[f"{name} + {other}"] = _pair(name, other, 1)
    for words, score in more.items():
        best[words] = _best_threshold(words, score, one, two, delta, alpha)
    return max(best.values(), key=lambda found: found[0])[1]


def _best_threshold(
    words: str, score: Score, one: Columns, two: Columns, delta: float, alpha: float
) -> tuple[float, Event]:
    values = [np.sort(score(columns)) for columns in (one, two)]
    both = np.concatenate(values)
    cuts = np.unique(both)
    if cuts.size > THRESHOLDS:
        cuts = np.unique(np.quantile(both, np.linspace(0, 1, THRESHOLDS), method="nearest"))
    runs = [part.size for part in values]
    below = [np.searchsorted(part, cuts) for part in values]
    found = (-1.0, Event(words, score, 0.0, True, 0))
    for above in (True, False):
        hits = [n - part if above else part for n, part in zip(runs, below, strict=True)]
        for more in (0, 1):
            less = 1 - more
            bounds = epsilon_above(hits[more], runs[more], hits[less], runs[less], delta, alpha)
            at = int(np.argmax(bounds))
            if bounds[at] > found[0]:
                found = float(bounds[at]), Event(words, score, float(cuts[at]), above, more)
    return found


def _column(name: str) -> Score:
    return lambda columns: np.nan_to_num(columns[name], nan=-1e300)


def _pair(name: str, other: str, sign: int) -> Score:
    return lambda columns: np.nan_to_num(columns[name] + sign * columns[other], nan=-1e300)


def _sum(scores: list[Score]) -> Score:
    return lambda columns: np.sum([score(columns) for score in scores], axis=0)


def _table(name: str, one: np.ndarray, two: np.ndarray) -> Score:
    """The log-likelihood ratio of a column, by values or by bins, as the training half shows it."""
    both = np.concatenate((one, two))
    there = both[~np.isnan(both)]
    edges = np.unique(there)
    if edges.size > BINS:
        edges = np.unique(np.quantile(there, np.linspace(0, 1, BINS + 1), method="nearest")[:-1])

    def place(values: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(values), edges.size + 1, np.searchsorted(edges, values, side="right"))

    counts = [np.bincount(place(values), minlength=edges.size + 2) + 2.0 for values in (one, two)]
    ratio = np.log(counts[0] / one.size) - np.log(counts[1] / two.size)
    return lambda columns: ratio[place(columns[name])]


def _two_sides(name: str, one: np.ndarray, two: np.ndarray) -> Score:
    """As `_table`, with two bins: below a value and from it on, where they tell most. Noise of a Laplace kind that a
    neighbour moves by 1 tells nothing further, and two numbers are learnt from fewer runs than fifty."""
    values = [np.sort(np.nan_to_num(part, nan=-1e300)) for part in (one, two)]
    cuts = np.unique(np.quantile(np.concatenate(values), np.linspace(0, 1, THRESHOLDS), method="nearest"))
    below = [(np.searchsorted(part, cuts) + 2.0) / (part.size + 4.0) for part in values]
    ratios = np.log(below[0] / below[1]), np.log((1 - below[0]) / (1 - below[1]))
    told = (below[0] - below[1]) * (ratios[0] - ratios[1])  # divergence of the two laws of the bin, both ways
    at = int(np.argmax(told))
    low, high, cut = ratios[0][at], ratios[1][at], cuts[at]
    return lambda columns: np.where(np.nan_to_num(columns[name], nan=-1e300) >= cut, high, low)


def _halves(columns: Columns) -> tuple[Columns, Columns]:
    half = _length(columns) // 2
    return {name: part[:half] for name, part in columns.items()}, {name: part[half:] for name, part in columns.items()}


def _length(columns: Columns) -> int:
    return next(iter(columns.values())).size
