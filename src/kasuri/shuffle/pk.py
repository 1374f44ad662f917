"""Pk-anonymity of joined rows: how surely one of them can be laid to a person [Ikarashi2015, Kii2022 sec. 2].

A row of the joined table is one report in every column. Whoever knows the true values of all n people, and sees the
joined rows in their fresh order, lays a given row to a given person with probability at most 1/k,

    k = 1 + (n - 1) prod_j e^(-2 epsilon_j),

over the columns of both sides (docs/proofs/pk_anonymity.md, "Rows of a join"). It says nothing against the joiner, who
sees pseudonyms, nor against a party that kept its reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from kasuri.errors import PrivacyError

_DOWN = 1 - Fraction(1, 1 << 40)
"""More than an error of `math.exp` and `math.log`: what is rounded by them is then rounded down."""


def linked(n: int, epsilons: Sequence[Fraction]) -> Fraction:
    """k of n joined rows whose columns have these local epsilons, rounded down to a millionth; 1 promises nothing.

    Privacy
    -------
    Neighbours: none; two orders of the same rows. Sensitivity: exchanging two people's rows changes the odds of all
    rows by at most e^(2 sum epsilon_j). Guarantee: no row is laid to a person with probability above 1/k. Proof:
    docs/proofs/pk_anonymity.md. Public: n. Assumes: only joined rows in a uniform order are seen.
    """
    share = Fraction(math.exp(-2 * float(sum(epsilons, Fraction(0))))) * _DOWN
    return Fraction(math.floor((1 + (n - 1) * share) * 10**6), 10**6)


def epsilon_each(k: int, n: int, columns: int) -> Fraction:
    """The largest epsilon of each of so many columns, of both sides, at which n joined rows are Pk-anonymous with k; a
    multiple of a millionth, rounded down."""
    if type(k) is not int or k < 2:
        raise PrivacyError("k must be a whole number of at least 2")
    most = math.log((n - 1) / (k - 1)) / 2 / columns if k <= n else 0.0
    each = Fraction(math.floor(most * 10**6), 10**6)
    while each > 0 and linked(n, [each] * columns) < k:
        each -= Fraction(1, 10**6)
    if each <= 0:
        raise PrivacyError(f"no epsilon gives k = {k} with {n} joined rows; ask for a smaller k or a larger overlap")
    return each
