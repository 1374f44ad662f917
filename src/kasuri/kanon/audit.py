"""Audits: what a k-anonymised release measures, what one output happened to lose, and what is a guarantee.

Three different things, kept apart by their names [Horigome2020, ch. 3; errata in docs/guide/kanonymity.md]:

realised loss   ln(d (1 - beta) / (d - n)) of a class with d rows in the original and n in the sample. It belongs to
                one output, is infinite when n = d, and, the cut being chosen from the data, bounds nothing.
theorem         the (epsilon, delta) that sampling, suppression below k and a generalisation FIXED BEFOREHAND would
                have [Li2012], and the exact delta of the same. `specialize` does not fix it beforehand.
measures        k, l, t, NCP and so on: facts about one table.

An audit is computed from the original and is itself confidential.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, KasuriError, raise_faults
from kasuri.kanon import columns
from kasuri.kanon.anonymized import NO_GUARANTEE, Anonymized
from kasuri.kanon.classes import Measures, Tuples, distinct, grouped, measure, tuples_of
from kasuri.kanon.delta import Sampling, exact_delta, least_epsilon, li_qardaji_su_delta
from kasuri.kanon.draw import checked_source, coins
from kasuri.kanon.hierarchy import Hierarchy
from kasuri.kanon.recoding import Coded, Recoding, encode
from kasuri.kanon.specialize import Conditions, checked, specialized, too_few
from kasuri.noise.rng import Source, Streams
from kasuri.privacy import Exact, decimal
from kasuri.schema.axis import rational

DELTA = Fraction(1, 10**6)
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))

IS_NO_GUARANTEE = (
    "The realised loss is what this one output happened to lose against one removed record; another sample, or another "
    "neighbour, may lose more, without bound. The cut was chosen from the data, so no formula of this audit "
    "bounds it: there are tables whose realised loss is small and whose true loss is infinite. It is not a guarantee."
)
IS_A_GUARANTEE = (
    "These hold only if the generalisation is fixed before the data is seen (sample_then_anonymize does that) and "
    "nothing but the generalised columns is published. Then, and only then, they are a guarantee."
)


@dataclass(frozen=True, eq=False, repr=False)
class Losses:
    """Realised losses of classes (or of tuples): rows in the original, rows in the release, and the loss of removing
    one record, forward ln(d (1-beta)/(d-n)), infinite where n = d, and backward, its negative.

    Where original rows fit several classes (a local recoding made elsewhere) d is not known, only a bound above it,
    which would hide infinite losses: `forward` is then NaN, and the class counts as `not_computable`."""

    original: Int
    released: Int
    forward: Float

    @property
    def infinite(self) -> int:
        """Classes of which every record was released: removing one makes the output impossible."""
        return int(np.isinf(self.forward).sum())

    @property
    def not_computable(self) -> int:
        """Classes whose original rows may as well belong to another class."""
        return int(np.isnan(self.forward).sum())

    @property
    def largest_finite(self) -> float | None:
        finite = self.forward[np.isfinite(self.forward)]
        return float(finite.max()) if finite.size else None

    @property
    def largest_backward(self) -> float | None:
        """Largest ln((d-n)/(d(1-beta))): at most -ln(1-beta), reached where nothing of a class was sampled."""
        finite = self.forward[np.isfinite(self.forward)]
        return float((-finite).max()) if finite.size else None

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": int(self.forward.size),
            "infinite": self.infinite,
            "rows_in_infinite": int(self.original[np.isinf(self.forward)].sum()),
            "not_computable": self.not_computable,
            "largest": "infinite"
            if self.infinite
            else "not computable"
            if self.not_computable
            else self.largest_finite,
            "largest_finite": self.largest_finite,
            "largest_backward": self.largest_backward,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Bounds:
    """The (epsilon, delta) of sampling, a generalisation fixed beforehand and suppression below k."""

    sampling: Sampling

    def theorem(self, epsilon: Exact) -> Fraction | None:
        """delta of Li, Qardaji and Su; None below the floor -ln(1 - beta)."""
        return li_qardaji_su_delta(epsilon, self.sampling)

    def exact(self, epsilon: Exact) -> Fraction:
        """The exact hockey-stick delta."""
        return exact_delta(epsilon, self.sampling)

    def to_json(self) -> dict[str, Any]:
        def text(value: Fraction | None) -> str | None:
            return None if value is None else decimal(value)

        return {
            "k": self.sampling.k,
            "sampling_rate": decimal(self.sampling.rate),
            "least_delta": decimal(self.sampling.least_delta),
            "floor": self.sampling.floor,
            "at": [
                {"epsilon": decimal(e), "delta_exact": text(self.exact(e)), "delta_theorem": text(self.theorem(e))}
                for e in EPSILONS
            ],
            "for_delta": {
                "delta": decimal(DELTA),
                "epsilon_exact": text(least_epsilon(DELTA, self.sampling)),
                "epsilon_theorem": text(least_epsilon(DELTA, self.sampling, bound="theorem")),
            },
            "words": IS_A_GUARANTEE,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The result of `audit`. Confidential: it is computed from the original rows.

    `measures` of the release; `realised` losses per class; `ungeneralised` losses per distinct original tuple if the
    sample had been published as it was (Proposition 1); `could_split`: classes of at least 2k rows all of whose
    neighbours under some node have 2k too, for which the thesis' formula itself does not hold (sec. 3.2); `bounds`
    for a generalisation fixed beforehand; `original_unique` rows alone with their values in the original.
    """

    k: int
    sampling_rate: Fraction
    measures: Measures
    ncp: float
    ncp_share: float
    realised: Losses
    ungeneralised: Losses | None
    could_split: NDArray[np.bool_]
    original_rows: int
    original_unique: int
    bounds: Bounds
    release: Anonymized | None

    confidential = True

    def __repr__(self) -> str:
        return f"Audit(confidential, k={self.k}, sampling_rate={decimal(self.sampling_rate)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "confidential": True,
            "k_asked": self.k,
            "sampling_rate": decimal(self.sampling_rate),
            "original": {"rows": self.original_rows, "unique": self.original_unique},
            "release": {**self.measures.to_json(), "ncp": self.ncp, "ncp_share": self.ncp_share},
            "is_k_anonymous": self.measures.k >= self.k,
            "realised_loss": {
                "per_class": self.realised.to_json(),
                "sampling_alone": None if self.ungeneralised is None else self.ungeneralised.to_json(),
                "classes_that_could_split": int(self.could_split.sum()),
                "floor": self.bounds.sampling.floor,
                "is_a_guarantee": False,
                "words": IS_NO_GUARANTEE,
            },
            "if_generalised_beforehand": {**self.bounds.to_json(), "applies_to_this_release": False},
            "words": NO_GUARANTEE,
        }

    def text(self) -> str:
        """The audit for a terminal."""
        m, r, b = self.measures, self.realised, self.bounds.to_json()
        lines = [
            "CONFIDENTIAL: computed from the original rows",
            f"original       {self.original_rows} rows, {self.original_unique} of them unique",
            f"release        {m.rows} rows in {m.classes} classes, k = {m.k} (asked {self.k}), {m.unique} unique",
            f"loss of detail NCP {self.ncp_share:.4f} of 1, discernibility {m.discernibility}",
        ]
        lines += [
            f"  {s.name}: l = {s.distinct_l} distinct, {s.entropy_l:.2f} by entropy, t = {s.t:.4f}" for s in m.sensitive
        ]
        finite = "none" if r.largest_finite is None else f"{r.largest_finite:.4f}"
        lines += [
            f"realised loss  infinite in {r.infinite} of {r.forward.size} classes; not computable in "
            f"{r.not_computable} (values overlap); largest finite {finite}; floor {self.bounds.sampling.floor:.4f}",
            f"               {int(self.could_split.sum())} classes where the formula itself may fail (2k condition)",
        ]
        if self.ungeneralised is not None:
            u = self.ungeneralised
            lines.append(f"sampling alone infinite for {u.infinite} of {u.forward.size} distinct rows")
        lines += ["", IS_NO_GUARANTEE, "", "Had the generalisation been fixed beforehand:"]
        lines += [
            f"  epsilon {at['epsilon']:>4}: delta {_short(at['delta_exact'])} exactly, "
            f"{_short(at['delta_theorem'])} by Li, Qardaji and Su"
            for at in b["at"]
        ]
        least = b["for_delta"]
        lines += [
            f"  delta {least['delta']}: epsilon {least['epsilon_exact'] or 'none'} exactly, "
            f"{least['epsilon_theorem'] or 'none'} by Li, Qardaji and Su; "
            f"delta is never below {_short(b['least_delta'])}",
            IS_A_GUARANTEE,
        ]
        return "\n".join(lines)


def audit(
    rows: Any,
    spec: Recoding,
    *,
    k: int,
    sampling_rate: object,
    release: Any = None,
    source: Source | None = None,
) -> Audit:
    """Audit k-anonymisation of `rows`: sample at `sampling_rate`, specialise to k, and look at every class.

    With `release`, a table made elsewhere from a sample of `rows` is audited instead: its columns must hold labels of
    the trees of `spec` (or "first to last" of an ordered one). Where its values overlap, as a local recoding's do, the
    loss of the classes concerned cannot be computed; they are counted.

    Parameters
    ----------
    sampling_rate: strictly between 0 and 1; a float is read as it prints. source: where the sample's coins come from.

    Returns: an Audit, which is **confidential**. Nothing in it that is called a loss is a guarantee.
    References: [Horigome2020, ch. 3], [Li2012].
    """
    faults: list[str] = []
    source = checked_source(source)
    conditions = Conditions(2)
    try:
        conditions = checked(spec, k)
    except KasuriError as error:
        faults += error.faults
    rate = rational(sampling_rate)
    if rate is None or not 0 < rate < 1:
        faults.append("sampling_rate must lie between 0 and 1, both excluded, e.g. 0.2")
    raise_faults(DomainError, faults)
    assert rate is not None
    sampling = Sampling(rate, k)
    coded = encode(rows, spec)
    too_few(coded.rows, k)
    whole = tuples_of(coded)
    anonymous = None
    ungeneralised = None
    if release is None:
        streams = Streams(source.release_key(), "kanon_audit")
        kept = coins(streams.open("sampling"), rate, coded.rows)
        too_few(int(kept.sum()), k)
        anonymous = specialized(coded, tuples_of(coded, kept), conditions)
        ungeneralised = _sampled_alone(coded, kept, rate)
        measures, ncp, ncp_share = anonymous.measures, anonymous.ncp, anonymous.ncp_share
        boxes, released = _own_classes(anonymous)
    else:
        measures = measure(release, list(spec.names), {s.name: s.order for s in spec.sensitive})
        boxes, released, lost = _foreign_classes(release, spec)
        ncp = float((lost * released).sum())
        ncp_share = ncp / (int(released.sum()) * len(spec.attributes))
    original, shared = _rows_in(whole, boxes, spec)
    if (original < released).any():
        raise DomainError(
            f"release: {int((original < released).sum())} classes hold more rows than the original has for them; "
            "it was not made from these rows"
        )
    return Audit(
        k,
        rate,
        measures,
        ncp,
        ncp_share,
        _losses(original, released, rate, shared),
        ungeneralised,
        _could_split(boxes, released, spec, k),
        coded.rows,
        int((_attribute_counts(coded) == 1).sum()),
        Bounds(sampling),
        anonymous,
    )


Boxes = tuple[tuple[Int, Int], ...]
"""Per attribute: first leaf and end of the run of leaves that each class covers."""


def _own_classes(release: Anonymized) -> tuple[Boxes, Int]:
    first = np.unique(release.of, return_index=True)[1]
    boxes = tuple(
        (tree.low[code[first]], tree.high[code[first]])
        for tree, code in zip(release.spec.attributes, release.codes, strict=True)
    )
    return boxes, release.measures.sizes


def _foreign_classes(release: Any, spec: Recoding) -> tuple[Boxes, Int, Float]:
    """Classes of a table made elsewhere: their runs of leaves, their rows, and NCP per row."""
    table = columns.table_of(release)
    codes, runs, faults = [], [], []
    for tree in spec.attributes:
        code, texts = columns.coded(columns.cells_of(table, tree.name))
        found = [_run(tree, text) for text in texts]
        missing = np.array([run is None for run in found] + [tree.missing is None], dtype=bool)[code]
        if missing.any():
            at = ", ".join(str(i + 1) for i in np.flatnonzero(missing)[:10].tolist())
            faults.append(f"release: column {tree.name}: no label of the hierarchy: rows {at}")
        root = _run(tree, tree.missing) if tree.missing is not None else (0, tree.leaves)
        table_of_runs = np.array([run or (0, tree.leaves) for run in [*found, root]], dtype=np.int64)
        codes.append(np.where(code < 0, len(texts), code))
        runs.append(table_of_runs)
    raise_faults(DomainError, faults)
    sizes, first = distinct(codes, [len(run) for run in runs])
    boxes = tuple((run[code[first], 0], run[code[first], 1]) for run, code in zip(runs, codes, strict=True))
    lost = sum((b - a) / tree.leaves for (a, b), tree in zip(boxes, spec.attributes, strict=True))
    return boxes, sizes, np.asarray(lost)


def _run(tree: Hierarchy, text: str) -> tuple[int, int] | None:
    """The leaves a written value covers: a node's, or "first to last" of an ordered tree."""
    if text in tree.node_of:
        node = tree.node_of[text]
        return int(tree.low[node]), int(tree.high[node])
    ends = [tree.node_of.get(part) for part in text.split(" to ")]
    if tree.ordered and len(ends) == 2 and ends[0] is not None and ends[1] is not None:
        return int(tree.low[ends[0]]), int(tree.high[ends[1]])
    return None


def _rows_in(tuples: Tuples, boxes: Boxes, spec: Recoding) -> tuple[Int, NDArray[np.bool_]]:
    """Rows of the original that each class could have come from, and whether some of them fit another class too."""
    count = boxes[0][0].size
    place = [_partition(low, high, tree.leaves) for (low, high), tree in zip(boxes, spec.attributes, strict=True)]
    if all(part is not None for part in place):  # global recoding: every leaf is written in one way only
        starts = [part[leaf] for part, leaf in zip(place, tuples.leaves, strict=True)]  # type: ignore[index]
        sizes = [tree.leaves + 1 for tree in spec.attributes]
        both = [np.concatenate((low, start)) for (low, _), start in zip(boxes, starts, strict=True)]
        of, one = grouped(both, sizes)
        rows = np.bincount(of[count:], tuples.weights, one.size).astype(np.int64)[of[:count]]
        return rows, np.zeros(count, dtype=bool)

    def inside(c: int) -> NDArray[np.bool_]:
        out = np.ones(tuples.weights.size, dtype=bool)
        for (low, high), leaf in zip(boxes, tuples.leaves, strict=True):
            out &= (leaf >= low[c]) & (leaf < high[c])
        return out

    fits = np.zeros(tuples.weights.size, dtype=np.int64)  # classes that each tuple fits
    for c in range(count):
        fits += inside(c)
    rows, shared = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    for c in range(count):
        own = inside(c)
        rows[c], shared[c] = int(tuples.weights[own].sum()), bool((fits[own] > 1).any())
    return rows, shared


def _partition(low: Int, high: Int, leaves: int) -> Int | None:
    """For each leaf the start of the only run that covers it (`leaves` where none does); None if two runs overlap."""
    out = np.full(leaves, leaves, dtype=np.int64)
    for a, b in sorted(set(zip(low.tolist(), high.tolist(), strict=True))):
        if (out[a:b] != leaves).any():
            return None
        out[a:b] = a
    return out


def _losses(original: Int, released: Int, rate: Fraction, shared: NDArray[np.bool_] | None = None) -> Losses:
    left = original - released
    with np.errstate(divide="ignore"):
        forward = np.where(left > 0, np.log(original * float(1 - rate) / np.maximum(left, 1)), np.inf)
    return Losses(original, released, forward if shared is None else np.where(shared, np.nan, forward))


def _sampled_alone(coded: Coded, kept: NDArray[np.bool_], rate: Fraction) -> Losses:
    """Proposition 1: the loss of every distinct original tuple when the sample is published ungeneralised."""
    of, one = grouped(list(coded.leaves), [tree.leaves for tree in coded.spec.attributes])
    return _losses(np.bincount(of, minlength=one.size), np.bincount(of[kept], minlength=one.size), rate)


def _attribute_counts(coded: Coded) -> Int:
    return distinct(list(coded.leaves), [tree.leaves for tree in coded.spec.attributes])[0]


def _could_split(boxes: Boxes, released: Int, spec: Recoding, k: int) -> NDArray[np.bool_]:
    """The condition of section 3.2: under a node that could still be split, every class has at least 2k rows."""
    out = np.zeros(released.size, dtype=bool)
    for low, high in boxes:
        of, one = grouped([low, high], [int(high.max()) + 1] * 2)
        smallest = np.full(one.size, np.iinfo(np.int64).max)
        np.minimum.at(smallest, of, released)
        out |= (high - low > 1) & (smallest[of] >= 2 * k)
    return out


def _short(text: str | None) -> str:
    return "not defined" if text is None else f"{float(Fraction(text)):.3g}"
