"""The persistent budget of one data set and one unit: a SQLite file, and beside it an append-only journal.

An entry is canonical JSON that names the hash of the entry before it; its own hash is SHA-256 of that text. Every
entry goes first into the journal (appended, fsynced), then into the SQLite file (WAL, synchronous=FULL), both under
one lock. SQLite alone would not do: a truncated WAL loses its last transactions in silence, and what is left is still
a good chain. Wherever the two files disagree the ledger refuses to pay until `repair` replays what is missing.

Entries: opened, reserved (spent from that moment, never refunded), committed, abandoned, repaired.
Proof: docs/proofs/ledger.md.
"""

from kasuri.budget.ledger.book import Ledger, Receipt
from kasuri.budget.ledger.entries import Allowance, Balance
from kasuri.budget.ledger.repair import repair

__all__ = ["Allowance", "Balance", "Ledger", "Receipt", "repair"]
