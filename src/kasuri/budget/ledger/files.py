"""The two files of a ledger and the lock over both. A record is (hash, text); nothing here knows what it means."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from kasuri.budget.ledger.entries import FORMAT, NEWER
from kasuri.errors import FormatError, PrivacyError

APPLICATION_ID = 0x6B617375  # "kasu", in the SQLite header
WAIT = 60.0
"""Seconds to wait for another process that holds the ledger."""
REPAIR = "nothing is paid until `kasuri ledger repair` has replayed what is missing"

Record = tuple[str, str]

_TABLES = (
    "CREATE TABLE entries (entry INTEGER PRIMARY KEY, hash TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER entries_keep BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


@contextlib.contextmanager
def held(path: Path, journal: Path, *, create: bool) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Alone with both files: a connection inside BEGIN IMMEDIATE, and the journal's handle.

    Each use opens both afresh, so a Ledger may cross threads and forks. The lock is on the journal, which is never
    replaced, and ends with the process that held it.
    """
    with lock(journal, create=create) as handle, explained(path):
        if not create and not path.exists():
            raise FormatError(f"{path.name}: gone, while its journal is there; {REPAIR}")
        connection = connect(path, create=create)
        try:
            yield connection, handle
        finally:
            connection.close()  # what was not committed is rolled back


@contextlib.contextmanager
def lock(journal: Path, *, create: bool) -> Iterator[int]:
    import fcntl

    try:
        handle = os.open(journal, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except OSError as error:
        if not journal.parent.is_dir():
            raise PrivacyError(f"{journal.parent}: no such folder; the ledger was not opened") from None
        if isinstance(error, FileNotFoundError) and not create:
            raise FormatError(f"{journal.name}: the ledger's journal is gone; {REPAIR}") from None
        raise PrivacyError(
            f"{journal}: cannot be opened for writing ({error.strerror}); nothing was drawn. Is the folder writable?"
        ) from None
    owner = os.getpid()
    try:
        until = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise PrivacyError(f"{journal.name}: held by another process for {WAIT:.0f} s; try again") from None
                time.sleep(0.002)
        yield handle
    finally:
        if os.getpid() == owner:  # a child forked meanwhile has the same lock, and closing ours alone would leave it
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """A connection in a write transaction, the tables made where `create` allows it. Its file is checked to be ours."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=WAIT)
    connection.text_factory = _text
    try:
        ours = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if ours != APPLICATION_ID and (ours or tables):
            raise FormatError(f"{path.name}: a SQLite file, but not a kasuri ledger")
        if version > FORMAT:
            raise FormatError(f"{path.name}: {NEWER.format(version)}")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if create and not tables:
            for statement in _TABLES:
                connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _text(data: bytes) -> str:
    """What a damaged page holds is not text; it is read all the same, and its hash shows it."""
    return data.decode(errors="replace")


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words: what happened, and what to do."""
    try:
        yield
    except UnicodeDecodeError:  # names in a damaged schema
        raise FormatError(f"{path.name}: damaged; {REPAIR}") from None
    except sqlite3.Error as error:
        name = errorname(error)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")) or not name:
            raise FormatError(f"{path.name}: damaged ({error}); {REPAIR}") from None
        raise PrivacyError(
            f"{path.name}: cannot be written ({name}); nothing was drawn. Is the folder writable, the disk full?"
        ) from None


def errorname(error: sqlite3.Error) -> str:
    """SQLite's name of the error; empty where the sqlite3 module itself could not read what it found."""
    return getattr(error, "sqlite_errorname", "") or ""


def rows(connection: sqlite3.Connection, start: int) -> list[Record]:
    """Records from entry `start` on, in order."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return []
    found = connection.execute("SELECT entry, hash, body FROM entries WHERE entry >= ? ORDER BY entry", (start,))
    return [(digest, body) for _, digest, body in found]


def insert(connection: sqlite3.Connection, records: list[Record], after: int) -> None:
    """Add records as the entries that follow `after`."""
    numbered = [(after + 1 + i, *record) for i, record in enumerate(records)]
    connection.executemany("INSERT INTO entries (entry, hash, body) VALUES (?, ?, ?)", numbered)


def size(record: Record) -> int:
    """Bytes of a record in the journal."""
    return len(_line(record))


def _line(record: Record) -> bytes:
    return f"{record[0]} {record[1]}\n".encode()


def length(handle: int) -> int:
    """Bytes of the journal."""
    return os.fstat(handle).st_size


def lines(handle: int, offset: int) -> tuple[list[Record], bytes]:
    """The journal's records from byte `offset` on, and what follows the last line end (a torn line, or nothing)."""
    data = b""
    while chunk := os.pread(handle, 1 << 20, offset + len(data)):
        data += chunk
    *whole, torn = data.split(b"\n")
    return records(whole), torn


def records(whole: list[bytes]) -> list[Record]:
    """Lines of the journal as records."""
    parts = [line.decode(errors="replace").partition(" ") for line in whole]
    return [(digest, text) for digest, _, text in parts]


def append(handle: int, records: list[Record], offset: int) -> None:
    """Add records to the journal, which must end at `offset`, and wait until they are on disk."""
    data = b"".join(map(_line, records))
    if length(handle) != offset:
        raise FormatError(f"the journal changed under the lock; {REPAIR}")
    try:
        written = 0
        while written < len(data):
            written += os.write(handle, data[written:])
    except OSError as error:
        with contextlib.suppress(OSError):  # half a line was never promised to anyone
            os.ftruncate(handle, offset)
        raise PrivacyError(f"the ledger's journal cannot be written ({error.strerror}); nothing was drawn") from None
    try:
        os.fsync(handle)
    except OSError as error:
        raise PrivacyError(f"the ledger's journal is not on disk ({error.strerror}); nothing was drawn") from None


def sync_folder(folder: Path) -> None:
    """Make the names of new files durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
