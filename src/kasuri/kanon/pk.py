"""Pk-anonymity: every value is kept with a certain probability, else replaced at random, and k is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.kanon.anonymized import UNMETERED, Anonymized, assemble
from kasuri.kanon.classes import tuples_of
from kasuri.kanon.draw import checked_source, coins, uniform
from kasuri.kanon.recoding import Coded, Recoding, encode
from kasuri.kanon.specialize import checked, too_few
from kasuri.noise.rng import Source, Streams
from kasuri.privacy import Guarantee, decimal, exact
from kasuri.schema import Unit

_GRID = 1 << 30  # retention probabilities found by `pk_anonymize` are multiples of 2^-30
ONE_ROW = "each row is a unit of its own"
IN_DOMAIN = "every row lies in the declared domain (rows that do not are refused)"


@dataclass(frozen=True, eq=False, repr=False)
class Randomized:
    """A Pk-anonymous table: `release` (leaves of the trees, ordered by value), `retention` per attribute, and `pk`.

    No row of the release can be linked to a person with probability above 1/pk, whatever the attacker knows.
    """

    release: Anonymized
    retention: Mapping[str, Fraction]
    pk: Fraction

    def __repr__(self) -> str:
        return f"Randomized(pk={_down(self.pk)})"

    @property
    def guarantee(self) -> Guarantee:
        assert self.release.guarantee is not None
        return self.release.guarantee

    def table(self) -> Any:
        return self.release.table()

    def counts(self, attribute: str) -> dict[str, float]:
        """Unbiased estimates of how many rows held each value: (seen - n q) / (p - q), with q = (1 - rho)/size and
        p = rho + q."""
        at = self.release.spec.names.index(attribute) if attribute in self.release.spec.names else -1
        if at < 0:
            raise DomainError(f"no attribute {attribute!r}; there are {list(self.release.spec.names)}")
        tree, rho = self.release.spec.attributes[at], self.retention[attribute]
        seen = np.bincount(self.release.codes[at], self.release.weights, tree.leaves)
        if rho == 0:
            raise DomainError(f"attribute {attribute!r} was replaced entirely: nothing can be estimated")
        estimate = (seen - self.release.rows * float((1 - rho) / tree.leaves)) / float(rho)
        return dict(zip(tree.leaf_labels, estimate.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        return {
            "method": "pk_anonymize",
            "rows": self.release.rows,
            "pk": float(_down(self.pk)),
            "retention": {name: decimal(rho) for name, rho in self.retention.items()},
            "guarantee": self.guarantee.to_json(),
            "words": f"no row can be linked to a person with probability above 1/{_down(self.pk)}; "
            + self.guarantee.words(),
        }


def _down(pk: Fraction) -> str:
    """A k with six digits after the point, rounded down: what is printed promises no more than what holds."""
    return decimal(Fraction(math.floor(pk * 10**6), 10**6))


def pk_of(rows: int, sizes: list[int], retention: list[Fraction]) -> Fraction:
    """k = 1 + (n - 1) prod_a ((1 - rho_a) / (1 + (V_a - 1) rho_a))^2 for n rows and attributes of V_a values.

    >>> pk_of(101, [2], [Fraction(0)])
    Fraction(101, 1)
    """
    product = Fraction(1)
    for size, rho in zip(sizes, retention, strict=True):
        product *= ((1 - rho) / (1 + (size - 1) * rho)) ** 2
    return 1 + (rows - 1) * product


def pk_anonymize(
    rows: Any,
    spec: Recoding,
    *,
    k: int,
    retention: Mapping[str, object] | None = None,
    source: Source | None = None,
) -> Randomized:
    """Keep each value with probability rho, else replace it by one drawn uniformly from all leaves; shuffle the rows.

    Privacy
    -------
    Neighbours: tables in which one row is replaced by another of the domain; the number of rows is public.
    Sensitivity: an attribute of V values shows a value up to e^(eps_a) = (1 + (V-1) rho)/(1 - rho) times as often.
    Guarantee: sum of eps_a (rounded up), delta 0, in the local model; and Pk-anonymity: whatever an attacker knows,
    the probability that a given row of the release came from a given person is at most 1/k, with
    k = 1 + (n-1) prod (e^-eps_a)^2. Proof: docs/proofs/pk_anonymity.md.
    Public: recoding, retention, number of rows, column types. Assumes: each row is a unit of its own, inside the
    declared domain; no ledger bounds what other releases spend.

    Parameters
    ----------
    k: the least k wanted. retention: rho per attribute, exact decimals in [0, 1); by default one rho for all
    attributes, the largest that gives k. Sensitive columns are not published: they would link rows.

    Cost: O(n) words per attribute. References: [Ikarashi2015].
    """
    checked(spec, k)
    source = checked_source(source)
    coded = encode(rows, replace(spec, sensitive=()))
    too_few(coded.rows, k)
    sizes = [tree.leaves for tree in spec.attributes]
    kept = _retention(spec, sizes, coded.rows, k, retention)
    pk = pk_of(coded.rows, sizes, kept)
    if pk < k:
        raise PrivacyError(f"this retention gives k = {_down(pk)}, less than {k}; lower it or leave it out")
    streams = Streams(source.release_key(), "pk_anonymize")
    drawn: list[NDArray[np.int32]] = []
    for a, (leaf, size, rho) in enumerate(zip(coded.leaves, sizes, kept, strict=True)):
        fresh = uniform(streams.open("replacement", a), size, coded.rows)
        keep = coins(streams.open("retention", a), rho, coded.rows) if rho else np.zeros(coded.rows, dtype=bool)
        drawn.append(np.where(keep, leaf, fresh.astype(np.int32)))
    guarantee = Guarantee(
        "local",
        _epsilon(sizes, kept),
        Fraction(0),
        Unit(id="row", change="replace", max_cells=1),
        ("recoding", "retention", "number of rows", "column types"),
        (ONE_ROW, IN_DOMAIN, UNMETERED),
        "docs/proofs/pk_anonymity.md",
    )
    release = replace(_release(coded, drawn), guarantee=guarantee, seeded=not source.secure)
    return Randomized(release, dict(zip(spec.names, kept, strict=True)), pk)


def _retention(
    spec: Recoding, sizes: list[int], rows: int, k: int, given: Mapping[str, object] | None
) -> list[Fraction]:
    if given is None:
        low, high = 0, _GRID  # pk falls in rho: the largest multiple of 2^-30 that still gives k
        while high - low > 1:
            middle = (low + high) // 2
            good = pk_of(rows, sizes, [Fraction(middle, _GRID)] * len(sizes)) >= k
            low, high = (middle, high) if good else (low, middle)
        return [Fraction(low, _GRID)] * len(sizes)
    faults = [
        f"retention: no attribute {name!r}; there are {list(spec.names)}" for name in given if name not in spec.names
    ]
    out = []
    for name in spec.names:
        value = given.get(name)
        try:
            rho = Fraction(0) if value in (0, "0") else exact(value, f"retention of {name!r}")
            if rho >= 1:
                faults.append(f"retention of {name!r} must be below 1")
            out.append(rho)
        except PrivacyError as error:
            faults += error.faults
    raise_faults(PrivacyError, faults)
    return out


def _epsilon(sizes: list[int], retention: list[Fraction]) -> Fraction:
    """sum of ln((1 + (V-1) rho)/(1 - rho)), rounded up to a multiple of 10^-6 (a float's error is far below)."""
    ratio = math.prod((1 + (size - 1) * rho) / (1 - rho) for size, rho in zip(sizes, retention, strict=True))
    exponent = math.log(ratio.numerator) - math.log(ratio.denominator) if ratio != 1 else 0.0
    return Fraction(math.ceil(exponent * 10**6 + 1e-3), 10**6)


def _release(coded: Coded, drawn: list[NDArray[np.int32]]) -> Anonymized:
    """The drawn rows, counted and ordered by value: as good as a shuffle, since only the multiset shows."""
    leaves = replace(coded, leaves=tuple(drawn))
    tuples = tuples_of(leaves)
    trees = coded.spec.attributes
    shares = tuple(np.full(tree.leaves, 1 / tree.leaves) for tree in trees)
    keep = np.ones(tuples.weights.size, dtype=bool)
    values = tuple(tree.leaf_labels for tree in trees)
    return assemble(leaves, tuples, keep, values, tuples.leaves, shares, "pk_anonymize")
