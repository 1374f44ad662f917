"""Plan: what two organisations agree on before any data is touched, and what it promises."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from kasuri import files, names
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.local.randomizer import canonical
from kasuri.privacy import WEAK, Exact, Guarantee, Meant, asked, decimal, exact, promised
from kasuri.schema import Unit
from kasuri.shuffle import bounds as _bounds
from kasuri.shuffle.columns import Column, Side, category, mechanism_of, number
from kasuri.shuffle.pk import epsilon_each, linked

VERSION = 1
PROOF = "docs/proofs/shuffle_join.md"
PSEUDONYM = "pseudonym"
"""Name of the pseudonyms' column in a party's table."""
PUBLIC = ("plan", "membership", "sizes of both tables and of the overlap")
SEEDED = "drawn from a seed, for tests only: it protects nobody"
ONE_KEY = "a key names one person, and a person has one key"
ASSUMES = (
    "both parties follow the protocol (semi-honest) and pool nothing but their files",
    "both parties deleted the secret, the order and the unshuffled rows",
    "whoever joins shows joined rows only",
    ONE_KEY,
)
NOT_PROTECTED = (
    "Not protected: who is in the joined table (membership), how many rows each side and the overlap have, "
    "and what is true of everyone alike."
)

PK_NOT = "not against the joiner, nor against a party that kept its reports"


@dataclass(frozen=True)
class Claims:
    """What is promised of one join: to the public that sees the joined rows, and of the one who joins."""

    public: Guarantee
    joiner: Guarantee | None
    """None where a trusted third party joins: then `public.assumes` names it."""
    bound: str
    """Which theorem gives the public epsilon."""
    n: int
    pk: Fraction = Fraction(1)
    """No joined row is laid to a person with probability above 1/pk by who sees the joined rows alone."""

    def assuming(self, *caveats: str) -> Claims:
        """The same claims with further caveats."""
        joiner = None if self.joiner is None else self.joiner.assuming(*caveats)
        return replace(self, public=self.public.assuming(*caveats), joiner=joiner)

    def words(self) -> str:
        """The claims as a person reads them."""
        joiner = (
            "The joiner is trusted and named below."
            if self.joiner is None
            else f"The joiner, who also sees rows that found no partner: {self.joiner.words()} (no amplification)."
        )
        lines = [
            f"The public, who sees {self.n} joined rows: {self.public.words()} (bound: {self.bound}).",
            joiner,
            f"Pk-anonymity: no joined row can be attributed to a person with a probability above "
            f"1/{decimal(self.pk)}, whatever is known of people's values; {PK_NOT}.",
            NOT_PROTECTED,
            "Assumed: " + "; ".join(self.public.assumes) + ".",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "bound": self.bound,
            "pk": decimal(self.pk),
            "public": self.public.to_json(),
            "joiner": None if self.joiner is None else self.joiner.to_json(),
            "not_protected": NOT_PROTECTED,
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """A join of two organisations' tables: columns, public bounds, mechanisms, epsilons. Frozen, JSON, hashed.

    key names the joining column; `a` and `b` the columns of each side. Every column is declared in `bounds` (numbers,
    (low, high)) or in `categories` (labels). `epsilon_each` is every column's local epsilon unless `epsilons` says
    otherwise; above 20, each or in all, they need a second word ("25 weak"). `mechanisms` names a column's randomizer:
    piecewise (the default of numbers), coin (two-point with a coin for squares), two_point, hybrid, laplace; grr (the
    default of categories), one_hot. `ab` gives (a, b) of [Kii2022, Alg. 3] for a two_point column. `outside` decides
    whether a number outside its bounds is refused or clipped. Nothing is joined below `minimum_overlap` rows.
    `trusted_joiner` names a third party that joins, passes on joined rows only and keeps nothing.

    Privacy
    -------
    Neighbours: one person's values change, on both sides; both tables keep their keys. Sensitivity: each column's
    randomizer is epsilon_j-LDP in exact odds. Guarantee: `guarantee(n=...)`: (epsilon, delta) of the joined rows for
    the public, the sum of all epsilon_j for the joiner. Proof: docs/proofs/shuffle_join.md, shuffle_bounds.md. Public:
    the plan, membership, sizes. Assumes: semi-honest parties, deletion.
    """

    key: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    bounds: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    epsilon_each: Exact | None = None
    delta: object = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    epsilons: Mapping[str, Exact] = field(default_factory=dict, kw_only=True)
    mechanisms: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    ab: Mapping[str, tuple[object, object]] = field(default_factory=dict, kw_only=True)
    minimum_overlap: int = field(default=1000, kw_only=True)
    outside: Literal["refuse", "clip"] = field(default="refuse", kw_only=True)
    trusted_joiner: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for side in ("a", "b"):
            given = getattr(self, side)
            put(self, side, (given,) if isinstance(given, str) else tuple(given))
        for name in ("bounds", "categories", "epsilons", "mechanisms", "ab"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise DomainError(f"plan: {name} must map column names to values")
            frozen = {column: tuple(v) if isinstance(v, (list, tuple)) else v for column, v in given.items()}
            put(self, name, MappingProxyType(frozen))
        raise_faults(DomainError, self._faults())
        # a float such as 1e-8 is read as it is written; an epsilon is never a float
        delta = exact(repr(self.delta) if isinstance(self.delta, float) else self.delta, "delta")
        if delta >= 1:
            raise PrivacyError("plan: delta must be below 1")
        put(self, "delta", delta)
        if self.epsilon_each is not None:
            put(self, "epsilon_each", asked(self.epsilon_each, "epsilon_each"))
        self.guarantee(n=self.minimum_overlap).to_json()  # every randomizer is built, and the claim stated, now
        if not any(isinstance(column.epsilon, Meant) for column in self.columns):
            promised(self.local_epsilon, "the sum of the columns' epsilons")

    def _faults(self) -> list[str]:
        every = (*self.a, *self.b)
        faults = []
        if not isinstance(self.key, str) or not self.key:
            faults.append("plan: key must name the joining column")
        else:
            faults += names.faults(self.key, "plan: key")
        faults += names.first(every, "plan: the name of column")
        for name, labels in self.categories.items():
            faults += names.first(labels, f"plan: column {name!r}: label") if isinstance(labels, tuple) else []
        if PSEUDONYM in map(str.lower, filter(lambda name: isinstance(name, str), every)):
            faults.append(f"plan: {PSEUDONYM!r} is the name of the pseudonyms in the tables; rename the column")
        if not self.a or not self.b:
            faults.append("plan: each side needs at least one column")
        if len({self.key, *every}) != len(every) + 1:
            faults.append("plan: key and columns must have different names on both sides")
        for name in every:
            if (name in self.bounds) == (name in self.categories):
                faults.append(f"plan: column {name!r} must be in bounds or in categories, once, declared and public")
            if name not in self.epsilons and self.epsilon_each is None:
                faults.append(f"plan: no epsilon for column {name!r}: give epsilon_each, or epsilons")
        for what in ("bounds", "categories", "epsilons", "mechanisms", "ab"):
            faults += [f"plan: {what} names {name!r}, no column" for name in getattr(self, what) if name not in every]
        if type(self.minimum_overlap) is not int or not 2 <= self.minimum_overlap <= _bounds.MAX_PEOPLE:
            faults.append("plan: minimum_overlap must be a whole number of at least 2")
        if self.outside not in ("refuse", "clip"):
            faults.append('plan: outside must be "refuse" or "clip"')
        if self.trusted_joiner is not None and (not isinstance(self.trusted_joiner, str) or not self.trusted_joiner):
            faults.append("plan: trusted_joiner must name the third party that joins")
        elif self.trusted_joiner is not None:
            faults += names.faults(self.trusted_joiner, "plan: trusted_joiner")
        if self.delta is None:
            faults.append("plan: a delta is needed, such as 1e-8")
        return faults

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Every column with its randomizer, those of `a` first."""
        return tuple(self._column(name, "a") for name in self.a) + tuple(self._column(name, "b") for name in self.b)

    def _column(self, name: str, side: Side) -> Column:
        eps = asked(self.epsilons.get(name, self.epsilon_each), f"epsilon of column {name!r}")
        if name in self.bounds:
            return number(name, side, self.bounds[name], self.mechanisms.get(name, "piecewise"), eps, self.ab.get(name))
        if name in self.ab:
            raise DomainError(f"plan: (a, b) goes with a column of numbers; {name!r} has categories")
        return category(name, side, self.categories[name], self.mechanisms.get(name, "grr"), eps)

    def of(self, side: Side) -> tuple[Column, ...]:
        """The columns of one side."""
        return tuple(column for column in self.columns if column.side == side)

    def column(self, name: str) -> Column:
        """The column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise DomainError(f"no column {name!r}; the plan has {', '.join(c.name for c in self.columns)}")

    @property
    def local_epsilon(self) -> Fraction:
        """What one person's whole row loses without any shuffling: the sum over all columns."""
        return sum((column.epsilon for column in self.columns), Fraction(0))

    @property
    def unit(self) -> Unit:
        return Unit(self.key, "replace", 1)

    def guarantee(self, *, n: int) -> Claims:
        """What n joined rows promise; n is the overlap of both tables, not the size of either."""
        if type(n) is not int or not self.minimum_overlap <= n <= _bounds.MAX_PEOPLE:
            raise PrivacyError(
                f"the plan joins {self.minimum_overlap} to {_bounds.MAX_PEOPLE} rows; give n, the number of people in "
                "both tables"
            )
        each = [column.epsilon for column in self.columns]
        assert isinstance(self.delta, Fraction)
        best = _bounds.least(n, each, self.delta, paired=all(column.covered for column in self.columns))
        assumes: tuple[str, ...] = ASSUMES
        joiner = Guarantee("local", self.local_epsilon, Fraction(0), self.unit, PUBLIC, ASSUMES, PROOF)
        if self.trusted_joiner is not None:
            assumes = (*ASSUMES, f"{self.trusted_joiner} joins, passes on joined rows only and keeps nothing")
        public = Guarantee("shuffle", best.epsilon, best.delta, self.unit, PUBLIC, assumes, PROOF)
        seen_by = joiner if self.trusted_joiner is None else None
        return Claims(public, seen_by, best.name, n, linked(n, each))

    @classmethod
    def anonymous(cls, k: int, *, a: tuple[str, ...], b: tuple[str, ...], minimum_overlap: int, **rest: Any) -> Plan:
        """A plan that anonymises inside the join: every column of both sides has the largest epsilon at which the least
        overlap it joins is Pk-anonymous with k (the second option of [Kii2022, sec. 2], after SCIS2022 1F3-2).

        Privacy
        -------
        Neighbours, Public, Assumes: as of `Plan`. Sensitivity: none: no data is read. Guarantee: that of the plan it
        makes, and `Claims.pk` at least k. Proof: docs/proofs/pk_anonymity.md.
        """
        own_a, own_b = ((side,) if isinstance(side, str) else tuple(side) for side in (a, b))
        each = epsilon_each(k, minimum_overlap, len(own_a) + len(own_b))
        return cls(a=own_a, b=own_b, epsilon_each=decimal(each), minimum_overlap=minimum_overlap, **rest)

    def side_claim(self, side: Side) -> Guarantee:
        """What handing out one side's file costs that side's data, whoever sees it: the sum of its own epsilons.

        Each row is randomised on its own, so that changing one person's values changes the law of the file by at most
        that factor: a central claim, which a ledger can pay.
        """
        own = sum((column.epsilon for column in self.of(side)), Fraction(0))
        return Guarantee("central", own, Fraction(0), self.unit, PUBLIC, (ONE_KEY,), PROOF)

    def to_json(self) -> dict[str, Any]:
        """The plan in plain data; every default is written out."""
        out: dict[str, Any] = {"kasuri": "shuffle plan", "version": VERSION, "key": self.key}
        for side in ("a", "b"):
            out[side] = [self._column_json(column) for column in self.of(side)]
        assert isinstance(self.delta, Fraction)
        return out | {
            "delta": decimal(self.delta),
            "minimum_overlap": self.minimum_overlap,
            "outside": self.outside,
            "trusted_joiner": self.trusted_joiner,
        }

    def _column_json(self, column: Column) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": column.name,
            "mechanism": mechanism_of(column),
            "epsilon": decimal(column.epsilon),
            "randomizer": column.randomizer.to_json(),
        }
        if column.is_number:
            made["bounds"] = [decimal(column.numeric.low), decimal(column.numeric.high)]
        else:
            made["labels"] = list(column.category.labels)
        if column.name in self.ab:
            made["ab"] = [decimal(exact(part, "ab")) for part in self.ab[column.name]]
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """A plan from its JSON, every randomizer built anew: what was written must be what is built.

        No default is taken from here: every column of a file names its mechanism, so that a file means the same
        whatever the defaults are, and both sides have one hash.
        """
        try:
            if data["kasuri"] != "shuffle plan" or data["version"] != VERSION:
                raise FormatError(f"field version: this kasuri reads shuffle plans of version {VERSION}")
            every = [*data["a"], *data["b"]]
            plan = cls(
                key=data["key"],
                a=tuple(column["name"] for column in data["a"]),
                b=tuple(column["name"] for column in data["b"]),
                bounds={c["name"]: tuple(c["bounds"]) for c in every if "bounds" in c},
                categories={c["name"]: tuple(c["labels"]) for c in every if "labels" in c},
                epsilons={c["name"]: f"{c['epsilon']} {WEAK}" for c in every},  # asked when the plan was made
                mechanisms={c["name"]: c["mechanism"] for c in every},
                ab={c["name"]: tuple(c["ab"]) for c in every if "ab" in c},
                delta=data["delta"],
                minimum_overlap=data["minimum_overlap"],
                outside=data["outside"],
                trusted_joiner=data["trusted_joiner"],
            )
        except KasuriError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as fault:
            raise FormatError(f"not a shuffle plan: {type(fault).__name__}") from None
        if canonical(plan.to_json()) != canonical(data):
            raise FormatError("the plan's randomizers are not those its mechanisms, bounds and epsilons make")
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON."""
        files.write(path, json.dumps(self.to_json(), ensure_ascii=False, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise DomainError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, DomainError):
                raise
            raise FormatError(f"{path}: no JSON file") from None

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: both sides must have the same."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and other.hash == self.hash

    def __hash__(self) -> int:
        return hash(self.hash)
