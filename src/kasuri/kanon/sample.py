"""Sampling, a generalisation fixed beforehand, and suppression below k: k-anonymity that is differentially private."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.kanon.anonymized import Anonymized, by_cut
from kasuri.kanon.classes import Tuples, cut_sizes, tuples_of
from kasuri.kanon.columns import arrow_of, ranked, table_of
from kasuri.kanon.delta import Sampling, exact_delta, least_k
from kasuri.kanon.draw import coin_exp, coins, uniform
from kasuri.kanon.recoding import Coded, Cut, Recoding, encode
from kasuri.privacy import Guarantee, decimal, exact
from kasuri.rng import Source, Streams, secure
from kasuri.schema import Unit

UNBOUNDED = "each row is a unit of its own (the rows carry no id column)"
UNMETERED = "no ledger: nothing bounds what other releases of the same data spend"
BASIS = "docs/proofs/sample_then_anonymize.md"


@dataclass(frozen=True, eq=False)
class ChosenCut:
    """A generalisation that was chosen with differential privacy, and what the choice cost."""

    cut: Cut
    guarantee: Guarantee


def sample_then_anonymize(
    rows: Any,
    spec: Recoding,
    *,
    cut: Mapping[str, int | Sequence[str]] | ChosenCut,
    k: int,
    sampling_rate: object,
    epsilon: object,
    delta: object,
    unit: Unit,
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
    Public: recoding, cut, k, sampling rate, the types of the columns.
    Assumes: nothing further with an id column; without one, that each row is a unit of its own.

    Parameters
    ----------
    cut: per attribute the depth (0 = root) or the labels to write, **decided without looking at the data**, or the
    result of `choose_cut`. sampling_rate, epsilon, delta: exact decimals such as "0.1"; delta is the most you accept.
    unit: `Unit(id=..., change="add-remove", max_cells=1)`. source: `secure()` unless a test wants `seeded(n)`.

    Rows that hold no leaf of a hierarchy, or no id, are left out silently: refusing them would tell that they exist.
    Sensitive columns are not published: a class is then not one outcome, and the theorem does not cover them.

    Returns: a release with a `guarantee`; the number of suppressed rows is not in it, being confidential.
    Cost: O(n). References: [Li2012], [Horigome2020, ch. 3].
    """
    sampling, chosen_guarantee = _checked(spec, k, sampling_rate, unit), None
    if isinstance(cut, ChosenCut):
        chosen, chosen_guarantee = cut.cut, cut.guarantee
        if chosen_guarantee.unit != unit:
            raise PrivacyError("the cut was chosen for another unit of protection; choose it for this one")
        if [node.size for node in chosen] != [tree.leaves for tree in spec.attributes]:
            raise DomainError("the cut was chosen for another recoding; choose it for this one")
    else:
        chosen = spec.cut(cut)
    value, most = exact(epsilon), exact(delta, "delta")
    claimed = exact_delta(value, sampling)
    if claimed > most:
        enough = least_k(value, most, sampling.rate)
        remedy = f"k = {enough} would do" if enough else "no k up to 4096 would do; lower the sampling rate"
        raise PrivacyError(
            f"k = {k} at sampling rate {decimal(sampling.rate)} and epsilon {decimal(value)} has delta "
            f"{decimal(claimed)}, more than {decimal(most)}; {remedy}"
        )
    coded, bounded, assumes = _bounded(rows, spec, unit)
    source = secure() if source is None else source
    streams = Streams(source.release_key(), "sample_then_anonymize")
    kept = coins(streams.open("sampling"), sampling.rate, coded.rows) & bounded
    tuples = tuples_of(coded, kept)
    of, sizes = cut_sizes(tuples, spec, chosen)
    shown = sizes[of] >= k
    guarantee = Guarantee(
        "central",
        value + (chosen_guarantee.epsilon if chosen_guarantee else 0),
        claimed,
        unit,
        ("recoding", "cut", "k", "sampling rate"),
        assumes,
        BASIS,
    )
    # only what is shown goes on: how many rows were hidden is no part of the release
    visible = Tuples(tuple(leaf[shown] for leaf in tuples.leaves), (), tuples.weights[shown], tuples.first[shown])
    out = by_cut(coded, visible, np.ones(visible.weights.size, dtype=bool), chosen, "sample_then_anonymize")
    measures = replace(out.measures, suppressed=None)
    return replace(out, measures=measures, guarantee=guarantee, seeded=not source.secure)


def choose_cut(
    rows: Any,
    spec: Recoding,
    *,
    cuts: Sequence[Mapping[str, int | Sequence[str]]],
    k: int,
    sampling_rate: object,
    epsilon: object,
    unit: Unit,
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
    sampling = _checked(spec, k, sampling_rate, unit)
    value = exact(epsilon)
    if not cuts:
        raise DomainError("choose_cut: give at least one cut to choose from")
    candidates = [spec.cut(cut) for cut in cuts]
    coded, bounded, assumes = _bounded(rows, spec, unit)
    tuples = tuples_of(coded, bounded)
    least = math.ceil(k / sampling.rate)
    scores = [
        _detail(spec, cut) * int(np.maximum(cut_sizes(tuples, spec, cut)[1] - least, 0).sum()) for cut in candidates
    ]
    source = secure() if source is None else source
    streams = Streams(source.release_key(), "choose_cut")
    pick, coin = streams.open("pick"), streams.open("coin")
    best = max(scores)
    while True:  # draw uniformly, accept with probability exp(-epsilon (best - score)): the exponential mechanism
        i = int(uniform(pick, len(candidates), 1)[0])
        if coin_exp(coin, value * (best - scores[i])):
            break
    public = ("recoding", "cuts", "k", "sampling rate")
    return ChosenCut(candidates[i], Guarantee("central", value, Fraction(0), unit, public, assumes, BASIS))


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


def _checked(spec: Recoding, k: int, sampling_rate: object, unit: Unit) -> Sampling:
    faults = []
    if not isinstance(spec, Recoding):
        faults.append("spec must be a Recoding (see Recoding.load)")
    if not isinstance(unit, Unit):
        faults.append('a unit of protection is needed: unit=Unit(id=..., change="add-remove", max_cells=1)')
    elif unit.change != "add-remove" or unit.most != 1:
        faults.append('the theorem covers one row of one unit: Unit(..., change="add-remove", max_cells=1), no weights')
    sampling = None
    try:
        sampling = Sampling(exact(sampling_rate, "sampling_rate"), k)
    except PrivacyError as error:
        faults += error.faults
    raise_faults(PrivacyError, faults)
    assert sampling is not None
    return sampling


def _bounded(rows: Any, spec: Recoding, unit: Unit) -> tuple[Coded, NDArray[np.bool_], tuple[str, ...]]:
    """Leaf numbers, which rows stand for a unit (inside the domain, the first of their id), and the caveats."""
    coded = encode(rows, replace(spec, sensitive=()), drop=True)
    table = table_of(rows)
    if unit.id not in table.columns:
        return coded, coded.good, (UNBOUNDED, UNMETERED)
    ids = ranked(arrow_of(table, unit.id))[0]
    usable = np.flatnonzero(coded.good & (ids >= 0))
    first = usable[np.unique(ids[usable], return_index=True)[1]]
    bounded = np.zeros(coded.rows, dtype=bool)
    bounded[first] = True
    return coded, bounded, (UNMETERED,)
