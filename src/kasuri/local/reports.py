"""The collector's store: one SQLite file, written by one thread that commits batches in groups.

A batch is acknowledged after the commit that holds it has been synced to disk (WAL, synchronous=FULL), never before;
its key is unique, so that a batch sent twice, or again after a crash, is stored once. Nothing about who sent a report
is kept: no address, no agent, no time. One-round tokens are kept only as keyed hashes in a table of their own, and
are deleted when the round closes, from the write-ahead log too.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import DomainError, FormatError, ProtocolError
from kasuri.local.grid import Numeric
from kasuri.local.randomizer import Ints, Randomizer, Rows
from kasuri.local.wire import Round, read_round

Outcome = str
"""stored, duplicate, conflict (the key is that of another batch), closed, token (refused), failed (not written)."""
MAX_PENDING = 8192
MAX_PENDING_BYTES = 1 << 26
"""Batches, and their bytes, that may wait for the disk; beyond this the collector answers 503."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS round (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, description TEXT NOT NULL, closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, key BLOB NOT NULL, count INTEGER NOT NULL, reports BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS batch_key ON batch (round, key);
CREATE TABLE IF NOT EXISTS token (
    round INTEGER NOT NULL, hash BLOB NOT NULL, left INTEGER NOT NULL, PRIMARY KEY (round, hash)
) WITHOUT ROWID;
"""
_STORE_VERSION = 1
_ROW = "(?, ?, ?, ?)"
_RUNS = (256, 64, 16, 4, 1)
"""Batches in one INSERT. Python's lock changes hands with every statement, so a group takes few."""


@dataclass(frozen=True)
class Opened:
    """A round and its number in the store."""

    number: int
    round: Round
    closed: bool


@dataclass
class _Pending:
    number: int
    closes: int
    key: bytes
    count: int
    reports: bytes
    token: bytes | None
    done: Callable[[Outcome], None]


@dataclass
class _Tally:
    last: int
    reports: int
    agreeing: Ints = field(repr=False)


class Store:
    """`Store(path)` opens or makes the file and starts its writer; `close()` waits for what is pending."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._db = self._connect()
        self._check()
        self._rounds: dict[str, Opened] = {}
        self._load()
        self._tallies: dict[int, _Tally] = {}
        self._reading = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._wake = threading.Condition()
        self._admin = threading.Lock()
        self._stopping = False
        self._unwiped = True  # a log left by a process that was killed may still hold deleted token hashes
        self._writer = threading.Thread(target=self._write, name="kasuri-store", daemon=True)
        self._writer.start()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its log the mode of the file
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA busy_timeout = 30000")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")  # deleted token hashes are overwritten
        return db

    def _check(self) -> None:
        try:
            self._db.execute("PRAGMA page_size = 16384")  # a few batches each: fewer and larger writes
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(
                "PRAGMA wal_autocheckpoint = 8192"
            )  # 128 MiB: random pages of the key index are written once
            self._db.execute("PRAGMA cache_size = -65536")  # ... and stay in memory: 64 MiB
            self._db.executescript(_SCHEMA)
            found = self._db.execute("SELECT version FROM meta").fetchall()
        except sqlite3.DatabaseError:
            raise FormatError("the store is not a SQLite file of a kasuri collector") from None
        if not found:
            self._db.execute("INSERT INTO meta VALUES (?)", (_STORE_VERSION,))
        elif found != [(_STORE_VERSION,)]:
            raise FormatError(f"field version: this collector reads stores of version {_STORE_VERSION}")

    def _load(self) -> None:
        for number, text, closed in self._db.execute("SELECT number, description, closed FROM round"):
            made = read_round(text)
            self._rounds[made.id] = Opened(number, made, bool(closed))

    # rounds

    def rounds(self) -> list[Opened]:
        return sorted(self._rounds.values(), key=lambda opened: opened.number)

    def find(self, id: str) -> Opened | None:
        return self._rounds.get(id)

    def open_round(self, made: Round) -> Opened:
        with self._admin:
            if made.id in self._rounds:
                raise ProtocolError("this round is in the store already")
            db = self._connect()
            try:
                cursor = db.execute("INSERT INTO round (id, description) VALUES (?, ?)", (made.id, made.text))
                opened = Opened(int(cursor.lastrowid or 0), made, False)
            finally:
                db.close()
            self._rounds = {**self._rounds, made.id: opened}
            return opened

    def close_round(self, id: str) -> None:
        """No further batch is stored, and the round's token hashes are gone. Closing twice is not a fault."""
        with self._admin:
            opened = self._rounds[id]
            db = self._connect()
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("UPDATE round SET closed = 1 WHERE number = ?", (opened.number,))
                db.execute("DELETE FROM token WHERE round = ?", (opened.number,))
                db.execute("COMMIT")
            finally:
                db.close()  # rolls back what was not committed
            self._rounds = {**self._rounds, id: Opened(opened.number, opened.round, True)}
            self._unwiped = True
        with suppress(sqlite3.Error):  # the writer tries again
            self._wipe()

    def _wipe(self) -> None:
        """Empty the write-ahead log, which still holds the pages as they were. A reader at work puts it off."""
        db = self._connect()
        try:
            db.execute("PRAGMA busy_timeout = 100")
            self._unwiped = False  # before: a round closed meanwhile sets it again
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._unwiped = self._unwiped or bool(busy)
        except sqlite3.Error:
            self._unwiped = True
            raise
        finally:
            db.close()

    def issue_tokens(self, id: str, count: int, key: bytes) -> list[str]:
        """`count` fresh one-round tokens, each good for reports_per_device reports; only keyed hashes are kept."""
        opened = self._rounds[id]
        if opened.closed or not opened.round.tokens:
            raise ProtocolError("tokens are issued for open rounds that were described with tokens=true")
        if not 1 <= count <= 100_000:
            raise DomainError("1 to 100000 tokens at a time")
        tokens = [secrets.token_bytes(16) for _ in range(count)]
        with self._admin:
            db = self._connect()
            try:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(
                    "INSERT INTO token VALUES (?, ?, ?)",
                    [(opened.number, token_hash(key, t), opened.round.reports_per_device) for t in tokens],
                )
                db.execute("COMMIT")
            finally:
                db.close()
        return [token.hex() for token in tokens]

    # batches

    def put(
        self, opened: Opened, key: bytes, rows: Rows, done: Callable[[Outcome], None], token: bytes | None = None
    ) -> bool:
        """Hand one checked batch to the writer; `done(outcome)` is called from its thread after the sync.
        False when too much is waiting, or the writer is gone: nothing was taken."""
        with self._wake:
            if not self._writer.is_alive():
                return False
            if len(self._pending) >= MAX_PENDING or self._pending_bytes >= MAX_PENDING_BYTES or self._stopping:
                return False
            self._pending_bytes += rows.size
            self._pending.append(
                _Pending(opened.number, opened.round.closes, key, rows.shape[0], rows.tobytes(), token, done)
            )
            self._wake.notify()
        return True

    def waiting(self) -> int:
        return len(self._pending)

    def alive(self) -> bool:
        """Whether batches can be stored: the writer runs."""
        return self._writer.is_alive()

    def _write(self) -> None:
        try:
            while self._turn():
                pass
        finally:  # whatever ended the writer: nobody waits for an answer that will not come
            with self._wake:
                self._stopping = True
                left = list(self._pending)
                self._pending.clear()
            _tell(left, ["failed"] * len(left))

    def _turn(self) -> bool:
        """Store what is waiting and close what has ended; False when there is nothing left to do."""
        with self._wake:
            if not self._pending and not self._stopping:
                self._wake.wait(1.0)  # wakes by itself once a second, to close rounds that have ended
            if self._stopping and not self._pending:
                return False
            group = [self._pending.popleft() for _ in range(min(len(self._pending), 1024))]
            self._pending_bytes -= sum(len(item.reports) for item in group)
        outcomes = ["failed"] * len(group)  # should anything end the writer here: sending again is always safe
        try:
            outcomes = self._commit(group) if group else []
        finally:
            _tell(group, outcomes)
        with suppress(sqlite3.Error):  # a locked or full disk: again at the next turn
            self._expire()
            if self._unwiped:
                self._wipe()
        return True

    def _commit(self, group: list[_Pending]) -> list[Outcome]:
        """Store a group in one transaction; when this returns, it is on disk."""
        now = self._clock()
        try:
            for store in (self._all, self._each):
                self._db.execute("BEGIN IMMEDIATE")
                closed = {number for (number,) in self._db.execute("SELECT number FROM round WHERE closed")}
                late = [item.number in closed or now >= item.closes for item in group]
                outcomes = store(group, late)
                if outcomes is not None:
                    self._db.execute("COMMIT")
                    return outcomes
                self._db.execute("ROLLBACK")
            raise AssertionError("each batch alone has an outcome")
        except (sqlite3.Error, MemoryError):
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            return ["failed"] * len(group)

    def _all(self, group: list[_Pending], late: list[bool]) -> list[Outcome] | None:
        """Store a group of new batches without tokens, many in a statement; None where one of them is not new."""
        if any(item.token is not None for item in group):
            return None
        new = [item for item, after in zip(group, late, strict=True) if not after]
        start = 0
        for size in _RUNS:
            while len(new) - start >= size:
                run = new[start : start + size]
                done = self._db.execute(
                    f"INSERT OR IGNORE INTO batch (round, key, count, reports) VALUES {_ROW}{f', {_ROW}' * (size - 1)}",
                    [value for item in run for value in (item.number, item.key, item.count, item.reports)],
                )
                if done.rowcount != size:
                    return None
                start += size
        return ["closed" if after else "stored" for after in late]

    def _each(self, group: list[_Pending], late: list[bool]) -> list[Outcome]:
        return ["closed" if after else self._insert(item) for item, after in zip(group, late, strict=True)]

    def _insert(self, item: _Pending) -> Outcome:
        done = self._db.execute(
            "INSERT OR IGNORE INTO batch (round, key, count, reports) VALUES (?, ?, ?, ?)",
            (item.number, item.key, item.count, item.reports),
        )
        if not done.rowcount:
            same = self._db.execute(
                "SELECT reports = ? FROM batch WHERE round = ? AND key = ?", (item.reports, item.number, item.key)
            )
            return "duplicate" if same.fetchone()[0] else "conflict"
        if item.token is not None:
            paid = self._db.execute(
                "UPDATE token SET left = left - ? WHERE round = ? AND hash = ? AND left >= ?",
                (item.count, item.number, item.token, item.count),
            )
            if not paid.rowcount:
                self._db.execute("DELETE FROM batch WHERE round = ? AND key = ?", (item.number, item.key))
                return "token"
        return "stored"

    def _expire(self) -> None:
        now = self._clock()
        for id, opened in list(self._rounds.items()):
            if not opened.closed and now >= opened.round.closes:
                self.close_round(id)

    # reading

    def count(self, opened: Opened) -> int:
        """Reports stored so far."""
        return self.tally(opened)[0]

    def tally(self, opened: Opened) -> tuple[int, Ints]:
        """(reports, agreeing reports by category, or by output), kept up to date by reading only what is new."""
        randomizer = opened.round.randomizer
        with self._reading:
            tally = self._tallies.setdefault(opened.number, _Tally(0, 0, np.zeros(randomizer.size, dtype=np.int64)))
            db = self._connect()
            try:
                for number, rows in _read(db, opened, randomizer, tally.last):
                    tally.agreeing = tally.agreeing + randomizer.agreeing(rows)
                    tally.reports += rows.shape[0]
                    tally.last = number
            finally:
                db.close()
            return tally.reports, tally.agreeing

    def rows(self, opened: Opened) -> Rows:
        """Every report of a round, in an order drawn afresh: the order of arrival stays in the store."""
        randomizer = opened.round.randomizer
        db = self._connect()
        try:
            parts = [rows for _, rows in _read(db, opened, randomizer, 0)]
        finally:
            db.close()
        if not parts:
            return np.zeros((0, randomizer.width), dtype=np.uint8)
        rows = np.concatenate(parts)
        # sorted by 128 secret bits each: devices that know where theirs came from learn nothing of the others' places,
        # as they could from the state of a generator that is not made for secrets
        return rows[np.lexsort(np.frombuffer(secrets.token_bytes(16 * rows.shape[0]), np.uint64).reshape(2, -1))]

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._writer.join()
        self._db.close()


def _tell(group: list[_Pending], outcomes: list[Outcome]) -> None:
    for item, outcome in zip(group, outcomes, strict=True):
        with suppress(Exception):  # a caller that fails to listen does not stop the writer
            item.done(outcome)


def _read(
    db: sqlite3.Connection, opened: Opened, randomizer: Randomizer | Numeric, after: int
) -> Iterator[tuple[int, Rows]]:
    """(last batch number, rows) of the batches after number `after`, some thousand batches at a time."""
    found: Any = db.execute(
        "SELECT number, reports FROM batch WHERE round = ? AND number > ? ORDER BY number", (opened.number, after)
    )
    while chunk := found.fetchmany(2000):
        joined = b"".join(reports for _, reports in chunk)
        yield chunk[-1][0], np.frombuffer(joined, np.uint8).reshape(-1, randomizer.width)


def token_hash(key: bytes, token: bytes) -> bytes:
    """What the store keeps of a token."""
    return hmac.new(key, token, hashlib.sha256).digest()
