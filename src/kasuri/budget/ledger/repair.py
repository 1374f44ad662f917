"""Bring the two files of a ledger back to one history. What either of them holds stays spent; nothing is forgotten."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

from kasuri.budget.ledger import files
from kasuri.budget.ledger.book import Ledger
from kasuri.budget.ledger.entries import FORMAT, NEWER, State
from kasuri.budget.ledger.files import Record
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError


def repair(path: str | Path) -> dict[str, Any]:
    """Replay what one file has and the other lost; returns what was done, and the summary.

    A journal ahead of the ledger: a crash between the two writes, a truncated WAL, a lost or damaged SQLite file; its
    entries are put back (or the file rebuilt, the old one kept beside it). A journal behind: its missing lines are
    written again. A torn last line was never acknowledged: nothing was drawn for it, and it is cut off (a whole entry
    that lacks its line end is kept). Two histories that differ are left alone: someone changed one of them, and no
    program can say which; and so is a damaged file in which an entry can still be seen that the other does not have.
    """
    ledger = Ledger(path)
    if not ledger.path.exists() and not ledger.journal.exists():
        raise DomainError(f"{ledger.path}: no such ledger")
    done: list[str] = []
    with files.lock(ledger.journal, create=True) as handle:
        seen = _bytes(ledger.path)  # before SQLite opens it, which may shorten its WAL
        written, torn = files.lines(handle, 0)
        _refuse_newer(written)
        journal, journal_good = _good(written)
        unended = [*journal, *files.records([torn])]
        lacks_end = bool(torn) and journal_good and _good(unended)[1]
        if lacks_end:
            journal, torn = unended, b""
        stored, stored_good, most = _stored(ledger.path)
        _one_history(ledger.path, journal, stored)
        if not stored_good and len(stored) > len(journal):
            raise FormatError(
                f"{ledger.path.name}: damaged, and its journal holds fewer entries; restore one of them by hand"
            )
        best = max(journal, stored, key=len)
        if (not stored_good and most > len(best)) or _goes_on(seen, best):
            raise FormatError(
                f"{ledger.path.name}: damaged, and shows entries that its journal lost; nothing was changed. "
                "Restore one of them by hand: what was spent stays spent"
            )
        if not journal_good and len(stored) < len(written):
            raise FormatError(
                f"{ledger.journal.name}: damaged, and the ledger holds fewer entries; restore one of them by hand"
            )
        if not best:
            raise DomainError(f"{ledger.path}: neither the ledger nor its journal holds an entry; nothing to repair")
        keep = sum(map(files.size, journal))
        if lacks_end:
            os.write(handle, b"\n")
            done.append("ended the last line of the journal")
        if torn or not journal_good:
            if not journal_good:
                _beside(ledger.journal).write_bytes(os.pread(handle, os.fstat(handle).st_size, 0))
            os.ftruncate(handle, keep)
            done.append("cut off a broken end of the journal")
        if len(best) > len(journal):
            files.append(handle, best[len(journal) :], keep)
            done.append(f"written to the journal again, entries: {len(best) - len(journal)}")
        os.fsync(handle)
        if not stored_good:
            done.append("rebuilt the ledger from its journal")
            _set_aside(ledger.path)
            stored = []
        with files.explained(ledger.path):
            connection = files.connect(ledger.path, create=True)
            try:
                files.insert(connection, best[len(stored) :], len(stored))
                connection.execute("COMMIT")
            finally:
                connection.close()
        if stored_good and len(best) > len(stored):
            done.append(f"replayed from the journal, entries: {len(best) - len(stored)}")
        files.sync_folder(ledger.path.parent)
    fresh = Ledger.load(ledger.path)
    if done:
        fresh.note_repair(done)
    return {"done": done, **fresh.summary()}


def _good(records: list[Record]) -> tuple[list[Record], bool]:
    """The records up to the first that breaks the chain, and whether that is all of them."""
    state = State()
    for at, (digest, text) in enumerate(records):
        try:
            state.add(str(text), str(digest))  # a damaged row may hold a number
        except (KasuriError, UnicodeEncodeError):
            return records[:at], False
    return records, True


def _stored(path: Path) -> tuple[list[Record], bool, int]:
    """What the SQLite file holds as far as it can be read, whether it is whole, and its highest entry."""
    if not path.exists():
        return [], True, 0
    found: list[Record] = []
    most, whole = 0, False
    try:
        connection = files.connect(path, create=False)
        try:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                return [], True, 0
            for number, digest, text in connection.execute("SELECT entry, hash, body FROM entries ORDER BY entry"):
                most = max(most, number)
                if number == len(found) + 1:
                    found.append((digest, text))
            whole = connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        name = files.errorname(error)
        if name.startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL")):
            raise PrivacyError(f"{path.name}: cannot be opened for writing ({error}); nothing was changed") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError):
        pass  # what was read up to here is judged by its hashes
    good, sound = _good(found)
    return good, sound and whole and most == len(good), most


def _bytes(path: Path) -> bytes:
    """The SQLite file and its WAL as they lie on disk: entries can be recognised where SQLite gives up."""
    data = b""
    for file in (path, path.with_name(path.name + "-wal")):
        if file.is_file():
            data += file.read_bytes()
    return data


def _goes_on(seen: bytes, history: list[Record]) -> bool:
    """Does a file show an entry that follows this history? In an entry's text a quotation mark inside a value is
    escaped, so `"entry":` and `"previous":` are nothing but the fields; entries are never rewritten, so no page holds
    an old one. A number alone is not a sign where the hash before it is known: it may be what was damaged."""
    known = {digest for digest, _ in history[:-1]} | {"0" * 64}
    last = history[-1][0] if history else ""
    for match in re.finditer(rb'"entry":(\d{1,18}),', seen):
        after = re.search(rb'"previous":"([0-9a-f]{64})"', seen[match.end() : match.end() + 4096])
        previous = after[1].decode() if after else ""
        if int(match[1]) > len(history) and previous not in known:
            return True
    return bool(last) and f'"previous":"{last}"'.encode() in seen


def _refuse_newer(written: list[Record]) -> None:
    try:
        version = json.loads(written[0][1])["format"] if written else FORMAT
    except (ValueError, KeyError, TypeError):
        return  # not an opening entry at all: damage, which is judged elsewhere
    if version > FORMAT:
        raise FormatError(NEWER.format(version))


def _one_history(path: Path, journal: list[Record], stored: list[Record]) -> None:
    for at, (one, other) in enumerate(zip(journal, stored, strict=False)):
        if one != other:
            raise FormatError(
                f"{path.name} and its journal have different histories from entry {at + 1} on; nothing was changed. "
                "Keep both files and find out who wrote the second one"
            )


def _beside(path: Path) -> Path:
    """A free name for the damaged file."""
    number = 1
    while (found := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return found


def _set_aside(path: Path) -> None:
    os.rename(path, _beside(path))
    for suffix in ("-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            os.rename(side, _beside(side))
