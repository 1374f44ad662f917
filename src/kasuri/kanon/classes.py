"""Distinct tuples and classes: the arrays that every method of k-anonymisation works on, and what can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, raise_faults
from kasuri.kanon.columns import arrow_of, ranked, table_of
from kasuri.kanon.recoding import Coded, Order, Recoding, Sensitive, Small

_DENSE_KEYS = 1 << 25


@dataclass(frozen=True, eq=False, repr=False)
class Tuples:
    """The distinct tuples of (attributes, sensitive columns) and how many rows hold each. Confidential."""

    leaves: tuple[Small, ...]
    sensitive: tuple[Small, ...]
    weights: Int
    first: Int
    """One row that holds the tuple."""

    @property
    def rows(self) -> int:
        return int(self.weights.sum())


def tuples_of(coded: Coded, keep: NDArray[np.bool_] | None = None) -> Tuples:
    """Count the distinct tuples of the rows (or of those in `keep`). Cost: O(rows) and one radix sort."""
    columns: list[NDArray[Any]] = [*coded.leaves, *coded.sensitive]
    sizes = [*(tree.leaves for tree in coded.spec.attributes), *coded.sensitive_sizes]
    where = None if keep is None else np.flatnonzero(keep)
    if where is not None:
        columns = [column[where] for column in columns]
    weights, first = distinct(columns, sizes)
    d = len(coded.leaves)
    parts = [column[first] for column in columns]
    return Tuples(tuple(parts[:d]), tuple(parts[d:]), weights, first if where is None else where[first])


def distinct(columns: Sequence[NDArray[Any]], sizes: Sequence[int]) -> tuple[Int, Int]:
    """(rows per distinct tuple, the first row of each), tuples in rising order of their columns."""
    from kasuri._kernels.kanon import runs
    from kasuri._kernels.sort import sort_pairs

    key, room = _keys(columns, sizes)
    if _dense(key, room):
        counts = np.bincount(key, minlength=1)
        present = np.flatnonzero(counts)
        return counts[present].astype(np.int64), _first_rows(key, room)[present]
    keys, index = sort_pairs(key.copy(), np.arange(key.size, dtype=np.int64), max((room - 1).bit_length(), 1), 0)
    starts = runs(keys)
    return np.diff(starts), index[starts[:-1]]


def grouped(columns: Sequence[NDArray[Any]], sizes: Sequence[int]) -> tuple[Int, Int]:
    """(number of each row's tuple, the first row of each tuple), tuples in rising order of their columns."""
    from kasuri._kernels.kanon import runs
    from kasuri._kernels.sort import sort_pairs

    key, room = _keys(columns, sizes)
    if _dense(key, room):
        present = np.zeros(room, dtype=bool)
        present[key] = True
        number = np.cumsum(present) - 1
        return number[key], _first_rows(key, room)[present]
    keys, index = sort_pairs(key.copy(), np.arange(key.size, dtype=np.int64), max((room - 1).bit_length(), 1), 0)
    starts = runs(keys)
    of = np.empty(key.size, dtype=np.int64)
    of[index] = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    return of, index[starts[:-1]]


def _keys(columns: Sequence[NDArray[Any]], sizes: Sequence[int]) -> tuple[Int, int]:
    """One number per row that orders rows as their columns do, and a bound above it."""
    rows = columns[0].size
    key, room = np.zeros(rows, dtype=np.int64), 1
    for column, size in zip(columns, sizes, strict=True):
        if room * max(size, 1) >= 1 << 62:  # squeeze: replace the keys so far by their rank
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            room = max(rows, 1)
        key *= max(size, 1)
        key += column
        room *= max(size, 1)
    return key, room


def _dense(key: Int, room: int) -> bool:
    return room <= _DENSE_KEYS and room <= 4 * key.size + 1024


def _first_rows(key: Int, room: int) -> Int:
    out = np.zeros(room, dtype=np.int64)
    out[key[::-1]] = np.arange(key.size - 1, -1, -1)  # of several writes the last remains: the first row
    return out


@dataclass(frozen=True)
class SensitiveMeasures:
    """Of one sensitive column, over all classes: fewest distinct values (l), least exponential of the entropy, and
    largest distance of a class's distribution from the table's (t)."""

    name: str
    distinct_l: int
    entropy_l: float
    t: float


@dataclass(frozen=True, eq=False, repr=False)
class Measures:
    """What can be measured on a k-anonymised table alone.

    `sizes` are the class sizes; `k` the smallest; `unique` the rows alone in their class; `discernibility` the sum of
    squared sizes, suppressed rows counted against the whole table [Bayardo2005]. `suppressed` is None where the number
    is not part of the release (it is confidential under differential privacy).
    """

    rows: int
    suppressed: int | None
    sizes: Int
    sensitive: tuple[SensitiveMeasures, ...]

    @property
    def k(self) -> int:
        return int(self.sizes.min()) if self.sizes.size else 0

    @property
    def classes(self) -> int:
        return int(self.sizes.size)

    @property
    def unique(self) -> int:
        return int((self.sizes == 1).sum())

    @property
    def discernibility(self) -> int:
        hidden = self.suppressed or 0
        return sum(int(size) ** 2 for size in self.sizes.tolist()) + hidden * (self.rows + hidden)

    def __repr__(self) -> str:
        return f"Measures(k={self.k}, classes={self.classes})"

    def to_json(self) -> dict[str, Any]:
        edges = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1 << 62]
        counts = np.histogram(self.sizes, edges)[0].tolist()
        return {
            "rows": self.rows,
            "suppressed": self.suppressed,
            "k": self.k,
            "classes": self.classes,
            "unique": self.unique,
            "discernibility": self.discernibility,
            "class_sizes": [
                {"from": low, "below": high, "classes": n}
                for low, high, n in zip(edges, edges[1:], counts, strict=False)
                if n
            ],
            "sensitive": [
                {"column": s.name, "distinct_l": s.distinct_l, "entropy_l": s.entropy_l, "t": s.t}
                for s in self.sensitive
            ],
        }


def measure(release: Any, quasi: str | Sequence[str], sensitive: Any = ()) -> Measures:
    """Measure a table that was anonymised anywhere: k, class sizes, uniqueness, discernibility, l and t.

    `quasi` names the columns that form the classes; `sensitive` names columns, or maps them to "nominal" or "ordered".
    Missing values are a value of their own in `quasi` and refused in `sensitive`.

    >>> import pyarrow as pa
    >>> measure(pa.table({"age": ["20s", "20s", "30s"]}), ["age"]).k
    1
    """
    table = table_of(release)
    quasi = [quasi] if isinstance(quasi, str) else list(quasi)
    kinds: dict[str, Any] = sensitive if isinstance(sensitive, dict) else dict.fromkeys(sensitive, "nominal")
    faults = [f"release: no column {name!r}; the columns are {table.columns}" for name in [*quasi, *kinds]
              if name not in table.columns]  # fmt: skip
    if not quasi:
        faults.append("measure: name at least one quasi-identifier")
    faults += [f'measure: order of {name!r} must be "nominal" or "ordered"' for name, order in kinds.items()
               if order not in ("nominal", "ordered")]  # fmt: skip
    raise_faults(DomainError, faults)
    if len(table) == 0:
        raise DomainError("release: the table has no rows")
    coded = [ranked(arrow_of(table, name)) for name in quasi]
    coded = [(np.where(code < 0, size, code), size + 1) for code, size in coded]
    values = [ranked(arrow_of(table, name)) for name in kinds]
    faults = [f"release: column {name}: a sensitive value is missing; leave the rows out or fill them in"
              for name, (code, _) in zip(kinds, values, strict=True) if (code < 0).any()]  # fmt: skip
    raise_faults(DomainError, faults)
    weights, first = distinct([c for c, _ in [*coded, *values]], [n for _, n in [*coded, *values]])
    of = grouped([code[first] for code, _ in coded], [n for _, n in coded])[0]
    columns = tuple(Sensitive(name, order) for name, order in kinds.items())
    return measured(of, weights, tuple(code[first] for code, _ in values), tuple(n for _, n in values), columns)


def measured(
    of: Int,
    weights: Int,
    codes: Sequence[NDArray[Any]],
    sizes: tuple[int, ...],
    columns: tuple[Sensitive, ...],
    suppressed: int = 0,
) -> Measures:
    """Measures of weighted tuples with class numbers `of` (dense, from 0) and sensitive codes."""
    from kasuri._kernels.kanon import class_sums

    count = int(of.max()) + 1 if of.size else 0
    totals = class_sums(of, weights, count)
    each = []
    for column, code, size in zip(columns, codes, sizes, strict=True):
        l_distinct, l_entropy, t = spread(of, code, weights, totals, size, column.order)
        each.append(
            SensitiveMeasures(column.name, int(l_distinct.min()), float(l_entropy.min()), float(t.max()))
            if count
            else SensitiveMeasures(column.name, 0, 0.0, 0.0)
        )
    return Measures(int(totals.sum()), suppressed, totals, tuple(each))


def spread(
    of: Int,
    code: NDArray[Any],
    weights: Int,
    totals: Int,
    size: int,
    order: Order,
    overall: NDArray[np.float64] | None = None,
) -> tuple[Int, NDArray[np.float64], NDArray[np.float64]]:
    """Per class: distinct values, exp(entropy), and the earth mover's distance from `overall` (default: all rows).

    Nominal: half the sum of |p - q|; ordered: the mean of |cumulated p - q| over the size - 1 steps [Li2007].
    """
    from kasuri._kernels.sort import sort_pairs

    count = totals.size
    if overall is None:
        overall = np.bincount(code, weights=weights, minlength=size) / max(int(weights.sum()), 1)
    pair = of * size + code
    pair, weight = sort_pairs(pair, weights.copy(), max((count * size - 1).bit_length(), 1), 0)
    starts = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1]))) if pair.size else np.zeros(0, np.int64)
    pair, weight = pair[starts], np.add.reduceat(weight, starts) if starts.size else weight
    group, value = pair // size, pair % size
    p = weight / totals[group]
    l_distinct = np.bincount(group, minlength=count).astype(np.int64)
    l_entropy = np.exp(-np.bincount(group, weights=p * np.log(p), minlength=count))
    if order == "nominal":  # half the sum over present values of |p - q| - q, plus the whole of q
        t = 0.5 * (np.bincount(group, weights=np.abs(p - overall[value]) - overall[value], minlength=count) + 1.0)
        return l_distinct, l_entropy, np.maximum(t, 0.0)
    t = np.zeros(count)
    edges = np.searchsorted(group, np.arange(count + 1))
    block = max(1, (1 << 22) // max(size, 1))
    for low in range(0, count, block):  # dense rows of at most 2^22 numbers at a time
        high = min(low + block, count)
        dense = np.tile(-overall, (high - low, 1))
        part = slice(edges[low], edges[high])
        dense[group[part] - low, value[part]] += p[part]
        t[low:high] = np.abs(np.cumsum(dense, axis=1)).sum(axis=1) / max(size - 1, 1)
    return l_distinct, l_entropy, t


def cut_sizes(tuples: Tuples, spec: Recoding, cut: Sequence[Int]) -> tuple[Int, Int]:
    """(class of each tuple, rows of each class) when every leaf is written as its node of the cut."""
    from kasuri._kernels.kanon import class_sums

    nodes = [node.astype(np.int32)[leaf] for node, leaf in zip(cut, tuples.leaves, strict=True)]
    of, one = grouped(nodes, [len(tree.labels) for tree in spec.attributes])
    return of, class_sums(of, tuples.weights, one.size)
