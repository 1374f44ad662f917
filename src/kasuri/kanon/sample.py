"""Sampling, a generalisation fixed beforehand, and suppression below k: k-anonymity that is differentially private."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, KasuriError, NumericsError, PrivacyError, raise_faults
from kasuri.kanon.anonymized import UNMETERED, Anonymized, by_cut
from kasuri.kanon.classes import Tuples, cut_sizes, tuples_of
from kasuri.kanon.columns import cells_of, identified, table_of
from kasuri.kanon.delta import Sampling, exact_delta, least_k
from kasuri.kanon.draw import checked_source, coin_exp, coins, source_faults, uniform
from kasuri.kanon.recoding import Coded, Cut, Recoding, absent, encode
from kasuri.noise.rng import Source, Streams
from kasuri.privacy import Exact, Guarantee, Meant, asked, decimal, exact, promised
from kasuri.schema import Unit

UNBOUNDED = "each row is a unit of its own, as the caller stated (the rows carry no id column)"
BASIS = "docs/proofs/sample_then_anonymize.md"
_REMEDY_ROWS = 4000  # class sizes looked at per k when an error message looks for a k that would do


@dataclass(frozen=True, eq=False)
class ChosenCut:
    """A generalisation that was chosen with differential privacy, and what the choice cost."""

    cut: Cut
    guarantee: Guarantee
    spec: Recoding
    """The recoding whose nodes the cut names."""
    seeded: bool = False
    """Drawn from a seed: a release made with it is seeded too."""


def sample_then_anonymize(
    rows: Any,
    spec: Recoding,
    *,
    cut: Mapping[str, int | Sequence[str]] | ChosenCut,
    k: int,
    sampling_rate: object,
    epsilon: Exact,
    delta: object,
    unit: Unit,
    rows_are_units: bool = False,
    source: Source | None = None,
) -> Anonymized:
    """Keep each unit's row with probability `sampling_rate`, write it as `cut` says, hide classes below k.

    Privacy
    -------
    Neighbours: tables that differ by one unit, which enters or leaves with its rows.
    Sensitivity: one unit changes the size of one class by 1 (one row per unit; the first one inside the domain).
    Guarantee: (epsilon, delta)-DP with the exact hockey-stick delta of n against n - 1 rows in a class, the largest
    over all n, rounded up; a `ChosenCut` adds its epsilon. It is an error if that delta exceeds `delta`.
    Proof: docs/proofs/sample_then_anonymize.md.
    Public: recoding, cut (with a `ChosenCut` the cuts to choose from), k, sampling rate, the types of the columns.
    Assumes: no ledger bounds what other releases spend; with `rows_are_units`, that each row is a unit of its own;
    what the choice of a `ChosenCut` assumes.

    Parameters
    ----------
    cut: per attribute the depth (0 = root) or the labels to write, **decided without looking at the data**, or the
    result of `choose_cut`. sampling_rate, epsilon, delta: exact decimals such as "0.1"; delta is the most you accept.
    unit: `Unit(id=..., change="add-remove", max_cells=1)`; `id` names the column of ids, which must be there.
    rows_are_units: states that there is no such column because every row is a unit of its own.
    source: `secure()` unless a test wants `seeded(n)`.

    Rows that hold no leaf of a hierarchy, no id (missing, blank, unreadable) or a value that cannot be read are left
    out silently: refusing them would tell that they exist.
    Sensitive columns are not published: a class is then not one outcome, and the theorem does not cover them.

    Returns: a release with a `guarantee`; the number of suppressed rows is not in it, being confidential.
    Cost: O(n). References: [Li2012], [Horigome2020, ch. 3].
    """
    wrong: list[KasuriError] = []
    chosen, before = _chosen(spec, cut, unit, wrong)
    most = _most(delta, wrong)
    table, sampling, value = _checked(rows, spec, k, sampling_rate, epsilon, unit, rows_are_units, source, wrong)
    whole = value + before.guarantee.epsilon if before else value
    if not isinstance(value, Meant):
        promised(whole, "epsilon, with that of the chosen cut,")
    claimed = exact_delta(value, sampling)
    if claimed > most:
        raise PrivacyError(
            f"k = {k} at sampling rate {decimal(sampling.rate)} and epsilon {decimal(value)} has delta "
            f"{decimal(claimed)}, more than {decimal(most)}; {_remedy(value, most, sampling.rate)}"
        )
    coded, bounded, assumes = _bounded(table, spec, None if rows_are_units else unit.id)
    source = checked_source(source)
    streams = Streams(source.release_key(), "sample_then_anonymize")
    kept = coins(streams.open("sampling"), sampling.rate, coded.rows) & bounded
    tuples = tuples_of(coded, kept)
    of, sizes = cut_sizes(tuples, spec, chosen)
    shown = sizes[of] >= k
    guarantee = Guarantee(
        "central",
        whole,
        claimed,
        unit,
        ("recoding", "cuts" if before else "cut", "k", "sampling rate", "column types"),
        assumes,
        BASIS,
    )
    if before:
        guarantee = guarantee.assuming(*before.guarantee.assumes)
    # only what is shown goes on: how many rows were hidden is not part of the release
    visible = Tuples(tuple(leaf[shown] for leaf in tuples.leaves), (), tuples.weights[shown], tuples.first[shown])
    out = by_cut(coded, visible, np.ones(visible.weights.size, dtype=bool), chosen, "sample_then_anonymize")
    measures = replace(out.measures, suppressed=None)
    return replace(
        out, measures=measures, guarantee=guarantee, seeded=not source.secure or (before is not None and before.seeded)
    )


def choose_cut(
    rows: Any,
    spec: Recoding,
    *,
    cuts: Sequence[Mapping[str, int | Sequence[str]]],
    k: int,
    sampling_rate: object,
    epsilon: Exact,
    unit: Unit,
    rows_are_units: bool = False,
    source: Source | None = None,
) -> ChosenCut:
    """Choose one of several cuts by the exponential mechanism: detailed ones are better, small classes count nothing.

    score(cut) = detail(cut) * sum over classes of max(rows - T, 0), T = ceil(k / sampling_rate), where detail is 1
    less the mean NCP over the leaves (public); a cut is drawn with probability proportional to exp(epsilon * score).

    Privacy
    -------
    Neighbours: tables that differ by one unit, which enters or leaves with its rows.
    Sensitivity: each score rises by 0 to 1 when a unit enters (one class grows by 1, detail is at most 1).
    Guarantee: epsilon-DP, exactly: all weights change by factors from 1 to e^epsilon in the same direction.
    Proof: docs/proofs/sample_then_anonymize.md. Public: recoding, cuts, k, sampling rate, the types of the columns.
    Assumes: as `sample_then_anonymize`; the running time depends on the scores.

    Cost: O(m) per cut for m distinct tuples. References: [McSherry2007].
    """
    wrong: list[KasuriError] = []
    candidates: list[Cut] = []
    for cut in cuts if isinstance(cuts, Sequence) else ():
        if isinstance(cut, ChosenCut):  # its own epsilon would be lost
            wrong.append(PrivacyError("choose_cut: a cut that was itself chosen from the data is not a candidate"))
        else:
            candidates.append(_chosen(spec, cut, unit, wrong)[0])
    if not isinstance(cuts, Sequence) or not cuts:
        wrong.append(DomainError("choose_cut: give at least one cut to choose from"))
    table, sampling, value = _checked(rows, spec, k, sampling_rate, epsilon, unit, rows_are_units, source, wrong)
    coded, bounded, assumes = _bounded(table, spec, None if rows_are_units else unit.id)
    tuples = tuples_of(coded, bounded)
    least = math.ceil(k / sampling.rate)
    scores = [
        _detail(spec, cut) * int(np.maximum(cut_sizes(tuples, spec, cut)[1] - least, 0).sum()) for cut in candidates
    ]
    source = checked_source(source)
    streams = Streams(source.release_key(), "choose_cut")
    pick, coin = streams.open("pick"), streams.open("coin")
    best = max(scores)
    while True:  # draw uniformly, accept with probability exp(-epsilon (best - score)): the exponential mechanism
        i = int(uniform(pick, len(candidates), 1)[0])
        if coin_exp(coin, value * (best - scores[i])):
            break
    public = ("recoding", "cuts", "k", "sampling rate", "column types")
    guarantee = Guarantee("central", value, Fraction(0), unit, public, assumes, BASIS)
    return ChosenCut(candidates[i], guarantee, spec, seeded=not source.secure)


def _detail(spec: Recoding, cut: Cut) -> Fraction:
    """1 less the mean over attributes and leaves of NCP; public."""
    lost: Fraction = sum(
        (
            Fraction(int((tree.high[node] - tree.low[node]).sum()), tree.leaves**2)
            for tree, node in zip(spec.attributes, cut, strict=True)
        ),
        Fraction(0),
    )
    return 1 - lost / len(spec.attributes)


def _chosen(spec: Recoding, cut: Any, unit: Unit, wrong: list[KasuriError]) -> tuple[Cut, ChosenCut | None]:
    """The cut, and the choice it came from if there was one."""
    if not isinstance(spec, Recoding):
        return (), None  # `_checked` says so
    if not isinstance(cut, ChosenCut):
        try:
            return spec.cut(cut), None
        except DomainError as error:
            wrong.append(error)
            return (), None
    if cut.guarantee.unit != unit:
        wrong.append(PrivacyError("the cut was chosen for another unit of protection; choose it for this one"))
    if _nodes(cut.spec) != _nodes(spec):
        wrong.append(DomainError("the cut was chosen for another recoding; choose it for this one"))
    return cut.cut, cut


def _nodes(spec: Recoding) -> list[tuple[str, tuple[str, ...], list[int]]]:
    return [(tree.name, tree.labels, tree.parent.tolist()) for tree in spec.attributes]


def _most(delta: object, wrong: list[KasuriError]) -> Fraction:
    most = _exact_or(Fraction(0), delta, "delta", wrong)
    if most >= 1:
        wrong.append(PrivacyError("delta must be below 1: a delta of 1 promises nothing"))
    return most


def _exact_or(default: Fraction, value: object, what: str, wrong: list[KasuriError]) -> Fraction:
    try:
        return asked(value) if what == "epsilon" else exact(value, what)
    except PrivacyError as error:
        wrong.append(error)
        return default


def _remedy(epsilon: Fraction, delta: Fraction, rate: Fraction) -> str:
    try:
        enough = least_k(epsilon, delta, rate, most_rows=_REMEDY_ROWS)
    except NumericsError:
        return "raise k or epsilon, or lower the sampling rate"
    return f"k = {enough} would do" if enough else "no k up to 4096 would do; lower the sampling rate"


def _checked(
    rows: Any,
    spec: Recoding,
    k: int,
    sampling_rate: object,
    epsilon: Exact,
    unit: Unit,
    rows_are_units: bool,
    source: Source | None,
    wrong: list[KasuriError],
) -> tuple[Any, Sampling, Fraction]:
    """The frame, the sampling and epsilon; every fault of the arguments at once, those in `wrong` among them."""
    privacy, domain = source_faults(source), []
    if not isinstance(spec, Recoding):
        privacy.append("spec must be a Recoding (see Recoding.load)")
    if not isinstance(unit, Unit):
        privacy.append('a unit of protection is needed: unit=Unit(id=..., change="add-remove", max_cells=1)')
    elif unit.change != "add-remove" or unit.most != 1:
        privacy.append(
            'the theorem covers one row of one unit: Unit(..., change="add-remove", max_cells=1), no weights'
        )
    rate = _exact_or(Fraction(1, 2), sampling_rate, "sampling_rate", wrong)
    value = _exact_or(Fraction(1), epsilon, "epsilon", wrong)
    sampling = Sampling(Fraction(1, 2), 2)
    try:
        sampling = Sampling(rate, k)
    except PrivacyError as error:
        wrong.append(error)
    table = None
    try:
        table = table_of(rows)
    except DomainError as error:
        wrong.append(error)
    if table is not None and isinstance(spec, Recoding):
        domain += absent(table.columns, replace(spec, sensitive=()), "rows")
    if table is not None and isinstance(unit, Unit):
        privacy += _id_faults(table.columns, unit.id, rows_are_units)
    privacy += [fault for error in wrong if isinstance(error, PrivacyError) for fault in error.faults]
    domain += [fault for error in wrong if not isinstance(error, PrivacyError) for fault in error.faults]
    raise_faults(PrivacyError if privacy else DomainError, [*privacy, *domain])
    return table, sampling, value


def _id_faults(columns: Sequence[str], name: str, rows_are_units: bool) -> list[str]:
    """Without ids nothing bounds what one unit adds: that must be stated, not happen by a slip of the pen."""
    if rows_are_units is not True and rows_are_units is not False:
        return ["rows_are_units is True or False"]
    if name in columns and rows_are_units:
        return [f"rows: there is an id column {name!r}; leave rows_are_units out"]
    if name not in columns and not rows_are_units:
        return [f"rows: no id column {name!r}; is there a header line? If every row is a unit of its own, say so: "
                "rows_are_units=True (--rows-are-units)"]  # fmt: skip
    return []


def _bounded(table: Any, spec: Recoding, name: str | None) -> tuple[Coded, NDArray[np.bool_], tuple[str, ...]]:
    """Leaf numbers, which rows stand for a unit (inside the domain, the first of their id), and the caveats; `name` is
    the column of ids, None where every row is a unit of its own."""
    coded = encode(table, replace(spec, sensitive=()), drop=True)
    if name is None:
        return coded, coded.good, (UNBOUNDED, UNMETERED)
    ids = identified(cells_of(table, name))
    usable = np.flatnonzero(coded.good & (ids >= 0))
    first = usable[np.unique(ids[usable], return_index=True)[1]]
    bounded = np.zeros(coded.rows, dtype=bool)
    bounded[first] = True
    return coded, bounded, (UNMETERED,)
