"""The join: rows whose pseudonyms are in both files, in a fresh random order, without pseudonyms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import FormatError, PrivacyError, ProtocolError, raise_faults
from kasuri.local.randomizer import trusted
from kasuri.noise.rng import Source, Streams
from kasuri.published.protected import NO_LEDGER
from kasuri.shuffle.columns import Codes
from kasuri.shuffle.files import JOINED, from_arrow, read, to_arrow, write
from kasuri.shuffle.party import Shuffled
from kasuri.shuffle.plan import SEEDED, Claims, Plan


@dataclass(frozen=True, eq=False, repr=False)
class Joined:
    """The joined rows: randomised columns of both sides, no pseudonym, an order that tells nothing."""

    plan: Plan
    columns: Mapping[str, Codes]
    claims: Claims
    secure: bool

    def __post_init__(self) -> None:
        if not self.secure:
            object.__setattr__(self, "claims", self.claims.assuming(SEEDED))

    def __len__(self) -> int:
        return self.claims.n

    def __repr__(self) -> str:
        seeded = "" if self.secure else ", seeded: for tests only"
        return f"Joined({len(self)} rows, {len(self.columns)} columns, {self.claims.public.words()}{seeded})"

    def save(self, path: str | Path, *, unmetered: bool = False) -> None:
        """Write the joined rows, the plan and the claims; where a side was charged to no ledger, `unmetered=True` says
        that this is meant."""
        if not self.secure:
            raise PrivacyError("a seeded table is for tests and is not saved")
        metered = NO_LEDGER not in self.claims.public.assumes
        if not metered and not unmetered:
            raise PrivacyError("a side was charged to no ledger; say save(..., unmetered=True) if that is meant")
        arrays = {name: to_arrow(codes) for name, codes in self.columns.items()}
        write(path, JOINED, self.plan, arrays, {"claims": self.claims.to_json(), "metered": metered})

    @classmethod
    def load(cls, path: str | Path) -> Joined:
        """Read joined rows. The claims are computed again, not believed; a number of rows other than the joined one is
        refused. The file is not signed: whoever can change it all can make it say anything."""
        table, head = read(path, JOINED, None)
        plan = Plan.from_json(head["plan"])
        if head["claims"]["n"] != table.num_rows:
            raise FormatError(f"{path}: holds another number of rows than were joined")
        if plan.hash != head["plan_hash"] or table.column_names != [column.name for column in plan.columns]:
            raise FormatError(f"{path}: its columns are not those of its plan")
        columns = {column.name: from_arrow(table.column(column.name), column, path) for column in plan.columns}
        claims = _claims(plan, table.num_rows, head.get("metered") is True)
        return cls(plan, MappingProxyType(columns), claims, True)


def _claims(plan: Plan, n: int, metered: bool) -> Claims:
    return plan.guarantee(n=n).assuming(*(() if metered else (NO_LEDGER,)))


def join(plan: Plan, a: Shuffled, b: Shuffled, *, source: Source | None = None) -> Joined:
    """The rows of people in both tables.

    Whoever calls this sees pseudonymous rows that found no partner, which are protected locally only, and drops them:
    they are in neither the result nor any file. An overlap below the plan's minimum is refused.

    Privacy
    -------
    Neighbours: one person's values change. Sensitivity: as of the plan. Guarantee: Plan.guarantee(n = rows joined).
    Proof: docs/proofs/shuffle_join.md. Public: which keys are in both tables, n. Assumes: as listed in the claims.
    """
    source = trusted(source)
    faults = []
    if (a.side, b.side) != ("a", "b"):
        faults.append("join(plan, a, b): the table of side a first, then that of side b")
    faults += [
        f"the table of side {table.side} was made under another plan"
        for table in (a, b)
        if table.plan.hash != plan.hash
    ]
    if a.session != b.session:
        faults.append("the two tables are of different runs: their secrets differ, and no key can match")
    raise_faults(ProtocolError, faults)
    from kasuri._kernels.shuffle import shared

    most = min(len(a), len(b))
    rows_a, rows_b = np.empty(most, np.int64), np.empty(most, np.int64)
    n = shared(a.pseudonyms, b.pseudonyms, rows_a, rows_b)
    if n < plan.minimum_overlap:
        raise PrivacyError(
            f"the overlap is below the plan's minimum of {plan.minimum_overlap} rows; nothing is joined or written"
        )
    order = permutation(n, source)
    picked = {"a": rows_a[:n][order], "b": rows_b[:n][order]}
    tables = {"a": a, "b": b}
    columns = {c.name: tables[c.side].columns[c.name][picked[c.side]] for c in plan.columns}
    metered = all(NO_LEDGER not in table.guarantee.assumes for table in (a, b))
    claims = _claims(plan, n, metered)
    return Joined(plan, MappingProxyType(columns), claims, source.secure and a.secure and b.secure)


def permutation(n: int, source: Source) -> NDArray[np.int64]:
    """A uniform order of n rows from a fresh keystream."""
    from kasuri._kernels.shuffle import shuffle

    stream = Streams(source.release_key(), "shuffle").open("order")
    order, drawn = np.arange(n, dtype=np.int64), np.empty(0, dtype=np.uint64)
    while True:
        more = np.empty(n + 64, dtype=np.uint64)
        stream.fill(more)
        drawn = np.concatenate((drawn, more))
        if shuffle(drawn, order) >= 0:
            return order
        order = np.arange(n, dtype=np.int64)  # words ran out (one word in 2^63 / n is thrown away): begin again
