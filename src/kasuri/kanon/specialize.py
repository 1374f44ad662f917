"""Top-down specialisation: global recoding by full subtrees, the split of least NCP first [Horigome2020, sec. 2.4]."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, raise_faults
from kasuri.kanon.anonymized import Anonymized, by_cut
from kasuri.kanon.classes import Tuples, grouped, spread, tuples_of
from kasuri.kanon.recoding import Coded, Recoding, encode
from kasuri.schema.axis import rational


@dataclass(frozen=True)
class Conditions:
    """What every published class must satisfy: k rows, l distinct sensitive values, t-closeness; and how many rows may
    be suppressed to get there. l and t hold for every sensitive column on its own."""

    k: int
    l_diversity: int | None = None
    t_closeness: Fraction | None = None
    suppression: Fraction = Fraction(0)


def specialize(
    rows: Any,
    spec: Recoding,
    *,
    k: int,
    l_diversity: int | None = None,
    t_closeness: object = None,
    suppression: object = 0,
) -> Anonymized:
    """k-anonymise `rows`: start from the roots, split nodes while every class keeps k.

    All rows under a node are split together (global recoding, full subtrees). Of the nodes that can be split the one
    that lowers the total NCP most is tried first; a node whose split would leave a class with fewer than k rows is
    never tried again, because further splits only make classes smaller. The same holds for l and t.

    This is a method of statistical disclosure control. It is **not differentially private**: the cut depends on the
    data. See `audit` and `sample_then_anonymize`.

    Parameters
    ----------
    rows: any frame narwhals takes. spec: the trees and the sensitive columns. k: at least 2.
    l_diversity: distinct values every sensitive column keeps in a class. t_closeness: largest distance, in [0, 1], of
    a class's distribution of a sensitive column from the whole table's, which is that of the published table too:
    together with `suppression` it is refused.
    suppression: share of rows, in [0, 1), that may be left out in classes that break a condition; a split is made
    only if the total NCP, with 1 per attribute for a suppressed row, does not rise.

    Cost: O(n) to count the m distinct tuples, then O(m) per level of each tree.
    References: [Horigome2020, sec. 2.4], [Xu2006], [Fung2005].
    """
    conditions = checked(spec, k, l_diversity, t_closeness, suppression)
    coded = encode(rows, spec)
    too_few(coded.rows, k)
    return specialized(coded, tuples_of(coded), conditions)


def checked(
    spec: Recoding, k: int, l_diversity: int | None = None, t_closeness: object = None, suppression: object = 0
) -> Conditions:
    """Conditions, every fault of the arguments at once."""
    faults = []
    if not isinstance(spec, Recoding):
        faults.append("spec must be a Recoding (see Recoding.load)")
    if not isinstance(k, int) or isinstance(k, bool) or k < 2:
        faults.append("k must be a whole number of at least 2")
    share = rational(suppression)
    if share is None or not 0 <= share < 1:
        faults.append('suppression must be a share such as "0.01", from 0 up to (not including) 1')
    if l_diversity is not None and (not isinstance(l_diversity, int) or l_diversity < 2):
        faults.append("l_diversity must be a whole number of at least 2")
    closeness = None if t_closeness is None else rational(t_closeness)
    if t_closeness is not None and (closeness is None or not 0 <= closeness <= 1):
        faults.append('t_closeness must be a number such as "0.2", from 0 to 1')
    if closeness is not None and share:
        faults.append(
            "t_closeness and suppression do not go together: t is the distance from the whole table, and leaving rows "
            "out changes it; take one of the two"
        )
    if (l_diversity is not None or t_closeness is not None) and isinstance(spec, Recoding) and not spec.sensitive:
        faults.append("l_diversity and t_closeness need a sensitive column in the recoding")
    raise_faults(DomainError, faults)
    assert share is not None
    return Conditions(k, l_diversity, closeness, share)


def too_few(rows: int, k: int) -> None:
    if rows < k:
        raise DomainError(f"k = {k} is larger than the table: no class can reach it")


def reachable(coded: Coded, conditions: Conditions) -> None:
    """Refuse an l that not even the whole table as one class satisfies."""
    faults = [
        f"l_diversity = {conditions.l_diversity}: column {column.name!r} has fewer distinct values"
        for column, size in zip(coded.spec.sensitive, coded.sensitive_sizes, strict=True)
        if conditions.l_diversity is not None and size < conditions.l_diversity
    ]
    raise_faults(DomainError, faults)


def specialized(coded: Coded, tuples: Tuples, conditions: Conditions) -> Anonymized:
    """`specialize` on counted tuples."""
    reachable(coded, conditions)
    state = _State(coded, tuples, conditions)
    heap = [(-state.gain(a, 0), a, 0) for a in range(len(coded.spec.attributes))]
    heapq.heapify(heap)
    while heap:
        _, attribute, node = heapq.heappop(heap)
        children = coded.spec.attributes[attribute].children[node]
        if children and state.split(attribute, node):
            for child in children:
                if state.rows_under(attribute, child):
                    heapq.heappush(heap, (-state.gain(attribute, child), attribute, child))
    return by_cut(coded, tuples, state.kept(), state.cut(), "specialize")


class _State:
    """The current cut and its classes. Tuples are indexed per attribute in the order of their leaves, so that the
    tuples under a node, and under each of its children, are one run."""

    def __init__(self, coded: Coded, tuples: Tuples, conditions: Conditions) -> None:
        from kasuri._kernels.kanon import by_leaf

        self.trees, self.tuples, self.conditions = coded.spec.attributes, tuples, conditions
        self.columns, self.sizes = coded.spec.sensitive, coded.sensitive_sizes
        runs = [by_leaf(leaf, tree.leaves) for leaf, tree in zip(tuples.leaves, self.trees, strict=True)]
        self.order, self.starts = [run[0] for run in runs], [run[1] for run in runs]
        self.before = [  # rows before each leaf
            np.concatenate(([0], np.cumsum(np.bincount(leaf, tuples.weights, tree.leaves).astype(np.int64))))
            for leaf, tree in zip(tuples.leaves, self.trees, strict=True)
        ]
        self.of = np.zeros(tuples.weights.size, dtype=np.int32)
        self.count = 1
        # by class, with room to grow:
        self.size = np.array([tuples.rows])
        self.ncp = np.array([float(len(self.trees))])
        self.scratch, self.owner, self.fresh, self.fresh_at = (np.zeros(1, dtype=np.int64) for _ in range(4))
        self.broken = np.zeros(1, dtype=bool)
        """Classes that break a condition (kept up only where l or t is asked for)."""
        self.stamp = 1
        self.is_split = [np.zeros(len(tree.labels), dtype=bool) for tree in self.trees]
        self.allowed = int(conditions.suppression * tuples.rows)
        self.suppressed = 0
        self.extra = conditions.l_diversity is not None or conditions.t_closeness is not None
        self.overall = [
            np.bincount(code, tuples.weights, size) / max(tuples.rows, 1)
            for code, size in zip(tuples.sensitive, self.sizes, strict=True)
        ]

    def rows_under(self, a: int, node: int) -> int:
        tree = self.trees[a]
        return int(self.before[a][tree.high[node]] - self.before[a][tree.low[node]])

    def share(self, a: int, node: int) -> float:
        return float((self.trees[a].high[node] - self.trees[a].low[node]) / self.trees[a].leaves)

    def gain(self, a: int, node: int) -> float:
        """How much the total NCP falls when the node is split; the same whatever else is split."""
        below = sum(self.rows_under(a, child) * self.share(a, child) for child in self.trees[a].children[node])
        return self.rows_under(a, node) * self.share(a, node) - below

    def _make_room(self, classes: int) -> None:
        if classes > self.size.size:
            for name in ("size", "ncp", "scratch", "owner", "fresh", "fresh_at", "broken"):
                old = getattr(self, name)
                new = np.zeros(max(classes, 2 * old.size), dtype=old.dtype)
                new[: old.size] = old
                setattr(self, name, new)

    def split(self, a: int, node: int) -> bool:
        """Split a node if every condition is kept."""
        from kasuri._kernels import kanon as kernels

        tree = self.trees[a]
        children = tree.children[node]
        edges = self.starts[a][[*(tree.low[child] for child in children), tree.high[node]]]
        shares = np.array([self.share(a, child) for child in children])
        self._make_room(self.count + min(int(edges[-1] - edges[0]), self.count * (len(children) - 1)))
        own = (self.order[a], edges, shares, self.share(a, node), self.of, self.tuples.weights, self.size, self.ncp)
        if self.extra:
            more, loss, tuples, broken = self._try_all(own)
        else:
            more, loss = kernels.try_split(*own, self.conditions.k, float(len(self.trees)), self.scratch)
        if self.suppressed + more > self.allowed or (self.allowed and loss > 0):
            return False
        self.count = kernels.split(*own, self.count, self.owner, self.fresh, self.fresh_at, self.stamp)
        self.stamp += len(children)
        self.suppressed += more
        self.is_split[a][node] = True
        if self.extra:
            self.broken[self.of[tuples]] = broken
        return True

    def _try_all(self, own: tuple[Any, ...]) -> tuple[int, float, Int, NDArray[np.bool_]]:
        """As the kernel `try_split`, with l and t: (more suppressed rows, change of loss, tuples under the node, which
        of them would be in a class that breaks a condition)."""
        order, edges, shares, share, of, weights, _, ncp = own
        worst = float(len(self.trees))
        tuples = order[edges[0] : edges[-1]]
        child = np.repeat(np.arange(shares.size), np.diff(edges))
        group = grouped([of[tuples], child], [self.count, shares.size])[0]
        broken = self._breaks(tuples, group)[group]
        was = self.broken[of[tuples]]
        before = np.where(was, worst, ncp[of[tuples]])
        after = np.where(broken, worst, ncp[of[tuples]] - share + shares[child])
        weight = weights[tuples]
        more = int(weight[broken].sum()) - int(weight[was].sum())
        return more, float((weight * (after - before)).sum()), tuples, broken

    def _breaks(self, tuples: Int, group: Int) -> NDArray[np.bool_]:
        """Which groups of these tuples break a condition."""
        conditions, weights = self.conditions, self.tuples.weights[tuples]
        totals = np.bincount(group, weights).astype(np.int64)
        broken = totals < conditions.k
        for code, size, column, overall in zip(
            self.tuples.sensitive, self.sizes, self.columns, self.overall, strict=True
        ):
            values, _, t = spread(group, code[tuples], weights, totals, size, column.order, overall)
            if conditions.l_diversity is not None:
                broken |= values < conditions.l_diversity
            if conditions.t_closeness is not None:
                broken |= t > float(conditions.t_closeness)
        return broken

    def kept(self) -> NDArray[np.bool_]:
        """Tuples in classes that satisfy every condition."""
        return (self.size[self.of] >= self.conditions.k) & ~self.broken[self.of]

    def cut(self) -> tuple[Int, ...]:
        out = []
        for tree, split in zip(self.trees, self.is_split, strict=True):
            nodes = np.zeros(tree.leaves, dtype=np.int64)
            reached = np.zeros(split.size, dtype=bool)
            reached[0] = True
            for node, parent in enumerate(tree.parent.tolist()):
                reached[node] = node == 0 or (reached[parent] and split[parent])
                if reached[node]:
                    nodes[tree.low[node] : tree.high[node]] = node  # a deeper node overwrites its ancestors
            out.append(nodes)
        return tuple(out)
