"""What an entry may say and what entries amount to: allowance, charge, balance, and the chain that is replayed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal

from kasuri.budget.accounting import dearest, zcdp_of_pure
from kasuri.budget.declared import Declared
from kasuri.budget.window import VARYING, Beside, beside, dearest_window
from kasuri.errors import BudgetError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.privacy import decimal, written
from kasuri.schema import Part, Unit, Window

FORMAT = 1
"""Version of the ledger's entries; a ledger of a higher version is refused."""
NEWER = "the ledger has format {}, newer than this kasuri reads; update kasuri"

Accounting = Literal["pure", "zcdp", "pld", "window"]
_FIRST = "0" * 64


def canonical(entry: Mapping[str, Any]) -> str:
    """The one text of an entry: the text that is hashed and stored."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Allowance:
    """What may be spent in all: epsilon (and delta), or rho."""

    accounting: Accounting
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None
    series: Declared | None
    price: Fraction
    """Set aside for the series from the start; 0 without one."""
    window: Window | None = None
    """The span that all of it is about, sliding; None: the data, once and for all."""

    def __post_init__(self) -> None:
        if self.accounting not in ("pure", "zcdp", "pld", "window"):
            raise PrivacyError('ledger: accounting must be "pure", "zcdp", "pld" or "window"')
        faults = []
        if (self.accounting == "zcdp") != (self.rho is not None):
            faults.append('ledger: give rho with accounting="zcdp", and epsilon (and delta) with the others')
        if (self.accounting in ("pld", "window")) != (self.series is not None):
            faults.append('ledger: accounting="pld" is for a series declared now: series=recipe.series(...)')
        if (self.accounting == "window") != (self.window is not None):
            faults.append("ledger: a window, its recipe and its domain go together")
        if self.window is not None and self.series is not None and self.series.releases != self.window.slots:
            faults.append(
                f"ledger: the schedule is of {self.series.releases} slots, the window has {self.window.slots}"
            )
        if self.series is not None and not self.delta:
            faults.append("ledger: a series that is priced as a whole needs a delta")
        if self.delta >= 1:
            faults.append("ledger: delta must be below 1")
        if self.delta and self.rho is not None:
            faults.append("ledger: a zCDP allowance is rho alone; a delta comes in when it is converted")
        raise_faults(PrivacyError, faults)
        if self.series is not None and self.price > self.epsilon:
            raise BudgetError(
                f"{'a window' if self.window else 'the declared series'} costs epsilon {decimal(self.price)} at delta "
                f"{decimal(self.delta)}; "
                f"the allowance is {decimal(self.epsilon)}. Declare fewer releases or a smaller epsilon each"
            )

    def to_json(self) -> dict[str, Any]:
        if self.rho is not None:
            return {"accounting": self.accounting, "rho": decimal(self.rho)}
        out: dict[str, Any] = {
            "accounting": self.accounting,
            "epsilon": decimal(self.epsilon),
            "delta": decimal(self.delta),
        }
        if self.series is not None:
            out |= {"series": self.series.to_json(), "price": decimal(self.price)}
        if self.window is not None:
            out["window"] = self.window.to_json()
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Allowance:
        zero = Fraction(0)
        if "rho" in data:
            return cls(data["accounting"], zero, zero, written(data["rho"]), None, zero)
        series = Declared.from_json(data["series"]) if "series" in data else None
        price = written(data["price"]) if series else zero
        window = Window(**data["window"]) if "window" in data else None
        return cls(data["accounting"], written(data["epsilon"]), written(data["delta"]), None, series, price, window)


@dataclass(frozen=True)
class Balance:
    """What was spent, what a declared series has set aside, and what is left. In rho for a zCDP ledger."""

    currency: Literal["epsilon", "rho"]
    allowance: Fraction
    spent: Fraction
    set_aside: Fraction
    delta_allowance: Fraction
    delta_spent: Fraction

    @property
    def left(self) -> Fraction:
        return self.allowance - self.spent - self.set_aside

    @property
    def delta_left(self) -> Fraction:
        return self.delta_allowance - self.delta_spent

    def words(self) -> str:
        delta = f", delta {decimal(self.delta_left)}" if self.delta_allowance else ""
        aside = f" and {decimal(self.set_aside)} set aside for the declared series" if self.set_aside else ""
        return (
            f"{self.currency} {decimal(self.left)}{delta} is left of {decimal(self.allowance)} "
            f"({decimal(self.spent)} spent{aside})"
        )

    def to_json(self) -> dict[str, str]:
        out = {
            "allowance": decimal(self.allowance),
            "spent": decimal(self.spent),
            "set_aside": decimal(self.set_aside),
            "left": decimal(self.left),
        }
        if self.delta_allowance:
            out |= {"delta_spent": decimal(self.delta_spent), "delta_left": decimal(self.delta_left)}
        return {"currency": self.currency, **out}


@dataclass(frozen=True)
class Charge:
    """The cost of one claim: `plain` in the ledger's currency, delta, 1 where it is one of the series, else 0, and
    the part of a split that it is charged as, in parallel with the other parts. In a window ledger the slot of the
    series that it pays for, or what it is charged as beside the series."""

    plain: Fraction
    delta: Fraction
    of_series: int
    part: Part | None = None
    slot: int | None = None
    beside: Beside | None = None


class State:
    """What the entries so far amount to: built by `add`, one entry after the other, which checks each of them."""

    def __init__(self) -> None:
        self.entries = 0
        self.hash = _FIRST
        self.opened: dict[str, Any] = {}
        self.spent = Fraction(0)  # outside the series
        self.delta = Fraction(0)
        self.series_used = 0
        self.splits: dict[str, dict[str, Fraction]] = {}
        self.slots: dict[int, int] = {}  # of a window ledger: slot -> the entry that paid for it
        self.others: list[Beside] = []
        self.open: set[int] = set()
        self.settled: dict[int, str] = {}
        self.assumes: dict[str, None] = {}  # what any release charged here rests on, each once

    @property
    def allowance(self) -> Allowance:
        return self.opened["allowance"]

    def balance(self, charge: Charge | None = None) -> Balance:
        """The balance now, or after `charge`."""
        allowance = self.allowance
        spent, delta, used = self.spent, self.delta, self.series_used
        if charge is not None:
            spent, delta, used = spent + charge.plain, delta + charge.delta, used + charge.of_series
        if allowance.rho is not None:
            return Balance("rho", allowance.rho, spent, Fraction(0), Fraction(0), Fraction(0))
        in_series = Fraction(0)
        if allowance.window is not None:  # nothing of the series is used up: every window costs its price, for ever
            return Balance("epsilon", allowance.epsilon, spent, allowance.price, allowance.delta, allowance.delta)
        if allowance.series is not None:
            in_series = min(allowance.series.epsilon * used, allowance.price)
            delta += allowance.delta  # a series takes all of it
        aside = allowance.price - in_series
        return Balance("epsilon", allowance.epsilon, spent + in_series, aside, allowance.delta, delta)

    def charge(self, claim: Mapping[str, Any]) -> Charge:
        """What a claim costs, as an entry has it."""
        allowance, zero = self.allowance, Fraction(0)
        epsilon, delta = written(claim["epsilon"]), written(claim["delta"])
        if allowance.rho is not None:
            if "rho" in claim:
                return Charge(written(claim["rho"]), zero, 0)
            if delta:
                raise PrivacyError("an (epsilon, delta) release cannot be charged to a zCDP ledger: it has no rho")
            return Charge(zcdp_of_pure(epsilon), zero, 0)
        if allowance.window is not None:
            return self._in_window(claim, epsilon, delta)
        series = allowance.series
        if series is not None and claim["plan"] == series.plan and self.series_used < series.releases:
            as_declared = epsilon <= series.epsilon and delta <= series.delta
            if as_declared:  # the price holds for no more than that: a dearer claim is an ordinary release
                return Charge(zero, zero, 1)
        if "split" in claim and not delta:
            parts = self.splits.get(claim["split"], {})
            more = parts | {claim["part"]: parts.get(claim["part"], zero) + epsilon}
            most = self.opened["unit"].max_cells
            plain = dearest(list(more.values()), most) - dearest(list(parts.values()), most)
            return Charge(plain, zero, 0, Part(claim["split"], claim["part"]))
        return Charge(epsilon, delta, 0)

    def _in_window(self, claim: Mapping[str, Any], epsilon: Fraction, delta: Fraction) -> Charge:
        """A slot of the series, paid once; or a release beside it, charged to every window that its slots touch."""
        window, series, zero = self.allowance.window, self.allowance.series, Fraction(0)
        assert window is not None and series is not None
        slots = (int(claim["slots"][0]), int(claim["slots"][1])) if "slots" in claim else None
        if slots is not None and slots[0] > slots[1]:
            raise PrivacyError("the last slot lies before the first")
        if claim["plan"] == series.plan and slots is not None and slots[0] == slots[1]:
            slot = slots[0]
            if slot in self.slots:
                raise BudgetError(
                    f"slot {window.label(slot)} is paid for (entry {self.slots[slot]}); a slot is drawn once. "
                    "Nothing was drawn"
                )
            if epsilon != series.epsilon or delta != series.delta:
                raise PrivacyError(VARYING)
            return Charge(zero, zero, 1, slot=slot)
        if delta:
            raise PrivacyError(
                f"{VARYING}; a release beside it is paid from what is left of epsilon, and has no delta of its own"
            )
        other = beside(epsilon, self.opened["unit"].change, slots)
        more = dearest_window([*self.others, other], window.slots)
        return Charge(more - self.spent, zero, 0, beside=other)

    def add(self, text: str, digest: str) -> dict[str, Any]:
        """Check one entry against the chain and the rules, and take it in."""
        where = f"entry {self.entries + 1}"
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise FormatError(f"{where}: its hash does not match its text")
        try:
            entry = json.loads(text)
            if canonical(entry) != text:
                raise FormatError(f"{where}: not in canonical form")
            if entry["entry"] != self.entries + 1 or entry["previous"] != self.hash:
                raise FormatError(f"{where}: the chain is broken (an entry is missing, repeated or out of place)")
            self._apply(entry, where)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            if isinstance(error, KasuriError):
                raise
            raise FormatError(f"{where}: a field is missing or malformed") from None
        self.entries += 1
        self.hash = digest
        return entry

    def _apply(self, entry: Mapping[str, Any], where: str) -> None:
        kind = entry["kind"]
        if (kind == "opened") != (self.entries == 0):
            raise FormatError(f"{where}: a ledger begins with `opened`, once")
        if kind == "opened":
            if entry["format"] > FORMAT:
                raise FormatError(NEWER.format(entry["format"]))
            known = {"allowance": Allowance.from_json(entry["allowance"]), "unit": Unit(**entry["unit"])}
            self.opened = {**entry, **known}
        elif kind == "reserved":
            self._reserved(entry, where)
        elif kind in ("committed", "abandoned"):
            if entry["of"] not in self.open:
                raise FormatError(f"{where}: settles entry {entry['of']}, which is not an open reservation")
            self.open.remove(entry["of"])
            self.settled[entry["of"]] = kind
        elif kind != "repaired":
            raise FormatError(f"{where}: kind {kind!r} is not known")

    def _reserved(self, entry: Mapping[str, Any], where: str) -> None:
        claim = entry["claim"]
        charge = self.charge(claim)
        after = self.balance(charge)
        if after.left < 0 or after.delta_left < 0:
            raise FormatError(f"{where}: more is spent than was allowed")
        if after.to_json() != entry["balance"]:
            raise FormatError(f"{where}: the balance written is not the sum of the entries")
        self.spent, self.delta = self.spent + charge.plain, self.delta + charge.delta
        self.series_used += charge.of_series
        window = self.allowance.window
        if window is not None:
            ends = int(claim["slots"][1]) if "slots" in claim else None
            if ends is not None and not window.ended(ends, datetime.fromisoformat(entry["time"])):
                raise FormatError(f"{where}: pays for a slot that had not ended")
            if charge.slot is not None:
                self.slots[charge.slot] = entry["entry"]
            if charge.beside is not None:
                self.others.append(charge.beside)
        if charge.part is not None:
            parts = self.splits.setdefault(charge.part.split, {})
            parts[charge.part.name] = parts.get(charge.part.name, Fraction(0)) + written(claim["epsilon"])
        self.assumes |= dict.fromkeys(entry["assumes"])
        self.open.add(entry["entry"])
