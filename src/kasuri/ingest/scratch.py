"""Private working folders: outside every output, readable by their owner only, removed at exit, swept at next start.

A folder holds true records while a count runs. Its lock is held by the process that made it and freed by the system
when that process ends in any way, so a folder whose lock is free was left by a crash and is removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kasuri.errors import PrivacyError

_PREFIX = "kasuri-work-"
_LOCK = "lock"


@contextmanager
def folder(away: Sequence[Path] = (), inside: Path | None = None) -> Iterator[Path]:
    """A new private folder, gone when the block is left: in `inside` where that is named, else in the system's
    temporary folder, and then never below the current folder or one of `away`."""
    sweep(inside)
    path, lock = _new(_place(away) if inside is None else inside)
    try:
        yield path
    finally:
        try:
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    """Remove a working folder, and say so where it cannot be done: somebody may be writing to it still."""
    for wait in (0.0, 0.1, 0.5, 2.0):
        time.sleep(wait)
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
    raise PrivacyError(f"{path}: this working folder may hold true records and could not be removed; remove it by hand")


def _places() -> list[Path]:
    return [Path(tempfile.gettempdir()), Path("/var/tmp")]


def _place(away: Sequence[Path]) -> Path:
    """The first of the system's temporary folders that is not below the current folder or one of `away`.

    The root of the file system is not a working folder: everything is below it.
    """
    kept_clear = [path.resolve() for path in (Path.cwd(), *away)]
    for place in _places():
        own = place.resolve()
        below = any(own.is_relative_to(path) and path != Path(path.anchor) for path in kept_clear)
        if not below and os.access(own, os.W_OK | os.X_OK):
            return own
    raise PrivacyError(
        "the temporary folder lies in the current folder, the job's or the output's, where a crash would leave "
        "records; set TMPDIR to a folder outside them"
    )


def _new(place: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))  # mode 0700
        try:
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):  # a sweep came between the folder and its lock, and removes it
            continue
        if (path / _LOCK).exists():
            return path, lock
        os.close(lock)


def sweep(inside: Path | None = None) -> None:
    """Remove the working folders of this user that no living process holds."""
    places = _places() if inside is None else [inside]
    for path in (path for place in places for path in place.glob(f"{_PREFIX}*")):
        try:
            if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
                continue
            lock = _lock(path)
        except OSError:  # held, or gone already
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _lock(path: Path) -> int:
    import fcntl

    handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
