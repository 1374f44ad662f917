"""Ledger and Receipt: opening a budget, paying from it, looking at it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol

from kasuri import names, notebook
from kasuri.budget.declared import Declared
from kasuri.budget.ledger import files
from kasuri.budget.ledger.entries import FORMAT, Accounting, Allowance, Balance, State, canonical
from kasuri.budget.window import prices
from kasuri.errors import BudgetError, DomainError, FormatError, PrivacyError, raise_faults
from kasuri.privacy import Exact, Guarantee, asked, decimal, exact, promised
from kasuri.schema import Domain, Part, Unit, Window


class Recurs(Protocol):
    """A recipe that can be priced slot after slot: every Mechanism."""

    def recurring(self, domain: Domain, unit: Unit, window: Window, epsilon: Exact, delta: Exact) -> Declared: ...


@dataclass(frozen=True)
class Receipt:
    """A reservation: paid for, whatever becomes of it. `reference()` is what a release publishes of it."""

    ledger: Ledger = field(repr=False)
    entry: int
    hash: str
    before: Balance
    after: Balance
    of_series: int = 0
    """Which release of the declared series it pays for; 0 where it does not belong to it."""
    part: Part | None = None
    """Which part of a split it pays for, where that is charged in parallel with the others and so may cost nothing."""
    slot: int | None = None
    """Which slot of a series without end it pays for."""

    def reference(self) -> dict[str, Any]:
        series, price = self.ledger.allowance.series, self.ledger.allowance.price
        window = self.ledger.allowance.window
        place: dict[str, Any] = {}
        if window is not None and self.slot is not None:
            place["window"] = {
                "slot": window.label(self.slot), "length": window.slot, "span": window.span, "words": window.words(),
                "price": decimal(price), "delta": decimal(self.ledger.allowance.delta),
            }  # fmt: skip
        elif series is not None and self.of_series:
            place["series"] = {"number": self.of_series, "of": series.releases, "price": decimal(price)}
        if self.part is not None:
            most = self.ledger.unit.max_cells
            place["split"] = {"id": self.part.split, "part": self.part.name, "parts_per_unit": most}
        return {
            "ledger": self.ledger.id,
            "entry": self.entry,
            "hash": self.hash,
            "accounting": self.ledger.allowance.accounting,
            "charged": {"currency": self.after.currency, "amount": decimal(self.after.spent - self.before.spent)},
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            **place,
        }

    def commit(self, release_id: str) -> None:
        """Record that the release is about to appear on disk; once is enough, saving again records nothing."""
        self.ledger.settle(self, "committed", release_id)

    def abandon(self) -> None:
        """Record that nothing came of it. Nothing is refunded."""
        self.ledger.settle(self, "abandoned", None)


class Ledger:
    """The budget of one data set and one unit, shared by any number of processes.

    Privacy
    -------
    Neighbours: as of the unit. Sensitivity: none of its own. Guarantee: all releases charged to it together keep the
    allowance. Proof: docs/proofs/ledger.md. Public: every entry. Assumes: the two files are not both put back to an
    earlier state, the disk keeps what fsync promised, and every release of this data is charged here.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # one journal, whatever link leads here
        self._mutex, self._owner = threading.Lock(), os.getpid()
        self._handle = -1
        self._state = State()
        self._offset = 0  # bytes of the journal the state was read from

    def __repr__(self) -> str:
        return f"Ledger({self.path.name!r}, data={self.data!r}, {self.balance().words()})"

    # -- opening --------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: Exact | None = None,
        delta: object = None,
        rho: Exact | None = None,
        unit: Unit,
        data: str,
        owner: str = "",
        accounting: Accounting | None = None,
        series: Declared | None = None,
        window: Window | None = None,
        recipe: Recurs | None = None,
        domain: Domain | None = None,
        aside: Exact | None = None,
    ) -> Ledger:
        """Open the ledger at `path`, or create it with this allowance.

        Give epsilon (and delta), or rho for zCDP. accounting="pld" prices a series declared now
        (`series=recipe.series(...)`) by its privacy-loss distribution. window=, recipe= and domain= open a series
        without end: epsilon and delta are then about one unit's records in any such window, sliding, and the noise of
        a slot follows from them; `aside` is the part of epsilon kept for other releases of the same data.

        An existing ledger must have been opened with the same allowance, unit and data: an allowance never changes.
        One above epsilon 20 is opened with a second word, epsilon="25 weak".
        """
        if not isinstance(unit, Unit):
            raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
        names.declared(data, "ledger: data")
        raise_faults(PrivacyError, names.faults(owner, "ledger: owner"))
        if (epsilon is None) == (rho is None):
            raise PrivacyError("ledger: give an allowance, epsilon (and delta) or rho")
        if (window is None, window is None) != (recipe is None, domain is None) or (window and series):
            raise PrivacyError("ledger: a window, its recipe and its domain go together, without a declared series")
        if (window is not None) != (unit.per == "slot"):
            raise PrivacyError('ledger: a window and a unit of one slot go together: unit=Unit(..., per="slot")')
        zero = Fraction(0)
        least = zero if delta in (None, 0, "0") else exact(delta, "delta")
        if rho is not None:
            allowance = Allowance(accounting or "zcdp", zero, least, exact(rho, "rho"), series, zero)
        else:
            whole = asked(epsilon, study=True)
            if window is not None and recipe is not None and domain is not None:
                kept = zero if aside is None else exact(aside, "aside")
                if kept >= whole or not least:
                    raise PrivacyError("ledger: a window needs a delta, and an epsilon above what is set aside")
                series, accounting = recipe.recurring(domain, unit, window, whole - kept, least), "window"
            price = series.price(least) if series is not None else zero
            allowance = Allowance(accounting or "pure", whole, least, None, series, price, window)
        ledger = cls(path)
        if not ledger.path.exists() and not ledger.journal.exists():
            promised(allowance.epsilon, "ledger: epsilon")  # what it pays for may add up to that
        with ledger._locked(create=True) as connection:
            if ledger._state.entries == 0:
                fields = {
                    "format": FORMAT,
                    "ledger": secrets.token_hex(16),
                    "allowance": allowance.to_json(),
                    "unit": unit.to_json(),
                    "data": data,
                    "owner": owner,
                }
                ledger._append(connection, "opened", fields)
                files.sync_folder(ledger.path.parent)
            faults = []
            if ledger.allowance != allowance:
                faults.append(
                    f"{ledger.path.name}: opened with {json.dumps(ledger.allowance.to_json())}; an allowance never "
                    "changes. Write the same one, or open a new ledger for new data"
                )
            faults += ledger._faults(unit, data)
            raise_faults(PrivacyError, faults)
        return ledger

    @classmethod
    def load(cls, path: str | Path) -> Ledger:
        """An existing ledger, with the allowance it was opened with."""
        ledger = cls(path)
        if not ledger.path.exists() and not ledger.journal.exists():
            raise DomainError(f"{ledger.path}: no such ledger; create it with `kasuri ledger open`")
        with ledger._locked(create=False):
            if ledger._state.entries == 0:
                raise DomainError(f"{ledger.path}: an empty file; create the ledger with `kasuri ledger open`")
        return ledger

    @property
    def journal(self) -> Path:
        return self.path.with_name(self.path.name + ".journal")

    @property
    def id(self) -> str:
        return self._state.opened["ledger"]

    @property
    def allowance(self) -> Allowance:
        return self._state.allowance

    @property
    def unit(self) -> Unit:
        return self._state.opened["unit"]

    @property
    def data(self) -> str:
        return self._state.opened["data"]

    @property
    def owner(self) -> str:
        return self._state.opened["owner"]

    # -- spending -------------------------------------------------------------------------------------------------

    def reserve(
        self,
        guarantee: Guarantee,
        *,
        data: str | None,
        recipe: str,
        plan: str,
        part: Part | None = None,
        slots: tuple[object, object] | None = None,
    ) -> Receipt:
        """Pay for a release before its first noise word is drawn. On return the entry is on disk, twice. `slots`: the
        starts of the first and the last slot that its records come from, in a window ledger.

        Raises BudgetError, and writes nothing, where the allowance does not reach.
        """
        said = [recipe, plan, *guarantee.public, *guarantee.assumes, guarantee.basis]
        raise_faults(PrivacyError, names.first(said, "ledger: what is said of a release"))
        claim: dict[str, Any] = {
            "epsilon": decimal(guarantee.epsilon),
            "delta": decimal(guarantee.delta),
            "plan": plan,
        }
        if guarantee.rho is not None:
            claim["rho"] = decimal(guarantee.rho)
        if part is not None and guarantee.unit.change == "add-remove":
            claim |= {"split": part.split, "part": part.name}
        with self._locked(create=False) as connection:
            faults = self._faults(guarantee.unit, data)
            claim |= self._slots(slots, guarantee.unit)
            if guarantee.model != "central":
                faults.append(f"{self.path.name}: pays for central releases of a data set, not for {guarantee.model}")
            raise_faults(PrivacyError, faults)
            before = self._state.balance()
            charge = self._state.charge(claim)
            after = self._state.balance(charge)
            if after.left < 0 or after.delta_left < 0:
                asked = f"{before.currency} {decimal(charge.plain)}"
                asked += f", delta {decimal(charge.delta)}" if charge.delta else ""
                raise BudgetError(
                    f"{self.path.name}: {asked} was asked for; {before.words()}. Nothing was drawn. "
                    "Ask for less: an allowance is never raised"
                )
            fields = {
                "claim": claim,
                "recipe": recipe,
                "assumes": list(guarantee.assumes),
                "balance": after.to_json(),
                "nonce": secrets.token_hex(16),  # no two are alike: what a backup forgot is told from what came after
            }
            entry = self._append(connection, "reserved", fields)
            place = self._state.series_used if charge.of_series else 0
            return Receipt(self, entry["entry"], self._state.hash, before, after, place, charge.part, charge.slot)

    def _slots(self, slots: tuple[object, object] | None, unit: Unit) -> dict[str, Any]:
        """The slots of a claim by their numbers; one that has not ended is refused."""
        window = self.allowance.window
        if window is None:
            if slots is not None:
                raise PrivacyError(f"{self.path.name}: has no slots; open a ledger with window=Window(...)")
            return {}
        first, last = (0, 1) if slots is None else (window.index(slot) for slot in slots)
        if unit.per == "slot" and first != last:
            raise PrivacyError("the unit bounds the records of one slot: name the one slot that these records are of")
        if slots is None:
            return {}
        if not window.ended(last, datetime.now(UTC)):
            raise PrivacyError(f"slot {window.label(last)} has not ended; what it will hold is not known yet")
        return {"slots": [first, last]}

    def settle(self, receipt: Receipt, kind: Literal["committed", "abandoned"], release_id: str | None) -> None:
        """Record what became of a reservation; see Receipt."""
        with self._locked(create=False) as connection:
            found = connection.execute("SELECT hash FROM entries WHERE entry = ?", (receipt.entry,)).fetchone()
            if found is None or found[0] != receipt.hash:
                raise PrivacyError(f"{self.path.name}: entry {receipt.entry} of this release is missing; not saved")
            settled = self._state.settled.get(receipt.entry)
            if settled is None:
                fields = {"of": receipt.entry} | ({} if release_id is None else {"release_id": release_id})
                self._append(connection, kind, fields)
            elif settled == "abandoned" and kind == "committed":
                raise PrivacyError(f"{self.path.name}: entry {receipt.entry} was abandoned; its release is not saved")

    def note_repair(self, done: list[str]) -> None:
        """Record that `repair` changed one of the files, and how."""
        with self._locked(create=False) as connection:
            self._append(connection, "repaired", {"done": done})

    # -- looking --------------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """What is spent and left, as of now."""
        with self._locked(create=False):
            return self._state.balance()

    def entries(self) -> list[dict[str, Any]]:
        """Every entry with its hash, checked, oldest first. Nothing in it depends on the data."""
        with self._locked(create=False) as connection:
            rows = connection.execute("SELECT hash, body FROM entries ORDER BY entry").fetchall()
        return [json.loads(body) | {"hash": digest} for digest, body in rows]

    def receipt(self, number: int) -> Receipt | None:
        """The receipt of an entry as it was given out; None where it is not a reservation."""
        with self._locked(create=False) as connection:
            rows = files.rows(connection, 0)
        if not 1 < number <= len(rows):
            return None
        state = State()
        for digest, text in rows[: number - 1]:
            state.add(text, digest)
        before = state.balance()
        digest, text = rows[number - 1]
        entry = json.loads(text)
        charge = state.charge(entry["claim"]) if entry["kind"] == "reserved" else None
        state.add(text, digest)
        if charge is None:
            return None
        place = state.series_used if charge.of_series else 0
        return Receipt(self, number, digest, before, state.balance(), place, charge.part, charge.slot)

    def holds(self, number: int, digest: str) -> bool:
        """Is this entry there, with this hash?"""
        with self._locked(create=False) as connection:
            found = connection.execute("SELECT hash FROM entries WHERE entry = ?", (number,)).fetchone()
        return found is not None and found[0] == digest

    def paid_slots(self) -> dict[int, int]:
        """The slots that are paid for, and the entry of each."""
        with self._locked(create=False):
            return dict(self._state.slots)

    def summary(self) -> dict[str, Any]:
        """The ledger in plain data: allowance, balance, how its reservations ended, and what any of them rests on
        beside the relation (a public total: that no one enters or leaves)."""
        balance = self.balance()
        ends = list(self._state.settled.values())
        out = {
            "ledger": self.id,
            "data": self.data,
            "owner": self.owner,
            "unit": self.unit.to_json(),
            "relation": self.unit.words(),
            "assumes": list(self._state.assumes),
            "allowance": self.allowance.to_json(),
            "balance": balance.to_json(),
            "entries": self._state.entries,
            "committed": ends.count("committed"),
            "abandoned": ends.count("abandoned"),
            "reserved": len(self._state.open),
            "head": self._state.hash,
        }
        allowance = self.allowance
        if allowance.window is not None and allowance.series is not None:
            out["relation"] = f"{self.unit.words()}, for all slots of {allowance.window.words()} together"
            rows = prices(allowance.series, allowance.window, allowance.delta, self._state.others)
            out["window"] = {
                **allowance.window.to_json(),
                "paid": len(self._state.slots),
                "prices": [{"span": name, "slots": slots, "epsilon": decimal(price)} for name, slots, price in rows],
            }
        elif allowance.series is not None:
            out["series"] = {"released": self._state.series_used, "declared": allowance.series.releases}
        return out

    def _repr_html_(self) -> str:
        about, balance = self.summary(), self.balance().to_json()
        rows = [("data", about["data"]), ("protects", about["relation"])]
        rows += [(name, f"{balance['currency']} {balance[name]}") for name in ("allowance", "spent", "left")]
        return notebook.card("kasuri Ledger", rows)

    def verify(self) -> dict[str, Any]:
        """Check both files from the first byte: pages, chain, sums, prices, agreement. Returns the summary."""
        fresh = Ledger(self.path)
        with fresh._locked(create=False) as connection:
            allowance = fresh.allowance
            if allowance.series is not None and allowance.series.price(allowance.delta) > allowance.price:
                raise FormatError(f"{self.path.name}: its series costs more than was set aside for it")
            if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise FormatError(f"{self.path.name}: SQLite finds its pages damaged; {files.REPAIR}")
        return fresh.summary()

    # -- the two files --------------------------------------------------------------------------------------------

    def _faults(self, unit: Unit, data: str | None) -> list[str]:
        faults = []
        if data is None:
            faults.append("the counts carry no data name, so no ledger can pay for them: count(..., data=...)")
        elif data != self.data:
            faults.append(f"{self.path.name}: holds the budget of {self.data!r}, not of {data!r}")
        same = unit == self.unit
        if self.allowance.window is not None:  # a release beside the series may bound its records otherwise
            same = (unit.id, unit.change) == (self.unit.id, self.unit.change)
        if not same:
            faults.append(f"{self.path.name}: protects {self.unit.words()}; the counts protect {unit.words()}")
        return faults

    @contextlib.contextmanager
    def _locked(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        """Alone with both files, which agree, every entry checked."""
        if self._owner != os.getpid():  # forked: a thread that was inside is not here to leave
            if self._mutex.locked():
                self._forget()
            self._mutex, self._owner = threading.Lock(), os.getpid()
        with self._mutex, files.held(self.path, self.journal, create=create) as (connection, handle):
            self._handle = handle
            self._catch_up(connection)
            yield connection

    def _forget(self) -> None:
        """Read everything again next time."""
        opened, self._state, self._offset = self._state.opened, State(), 0
        self._state.opened = opened  # it still has its name

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        state = self._state
        rows = files.rows(connection, state.entries)
        lines, torn = files.lines(self._handle, self._offset)
        known = not state.entries or (bool(rows) and rows.pop(0)[0] == state.hash)
        if not known or files.length(self._handle) < self._offset:
            raise FormatError(f"{self.path.name}: entries this process has seen are gone or changed; {files.REPAIR}")
        if torn or len(rows) != len(lines) or any(row != line for row, line in zip(rows, lines, strict=False)):
            both = f"{state.entries + len(rows)} entries against {state.entries + len(lines)}"
            both += " and a broken last line" if torn else ""
            raise FormatError(f"{self.path.name}: disagrees with its journal ({both}); {files.REPAIR}")
        try:
            for digest, text in lines:
                state.add(text, digest)
                self._offset += files.size((digest, text))
        except FormatError as error:
            self._forget()
            raise FormatError(f"{self.path.name}: {error}") from None

    def _append(self, connection: sqlite3.Connection, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """One entry into both files, durably; checked by the rules it will be read by before anything is written."""
        entry = {"entry": self._state.entries + 1, "previous": self._state.hash, "kind": kind, **fields}
        if kind not in ("committed", "abandoned"):
            # from reservation to settlement is the running time of the release, which depends on the data
            entry["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        text = canonical(entry)
        digest = hashlib.sha256(text.encode()).hexdigest()
        try:
            self._state.add(text, digest)
            files.insert(connection, [(digest, text)], self._state.entries - 1)
            files.append(self._handle, [(digest, text)], self._offset)
            connection.execute("COMMIT")
        except BaseException:
            self._forget()  # memory may be ahead of the disk: read it again
            raise
        self._offset += files.size((digest, text))
        return entry
