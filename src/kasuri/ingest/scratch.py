"""Private working folders: outside every output, readable by their owner only, removed at exit, swept at next start.

A folder holds true records while a count runs. Its lock is held by the process that made it and freed by the system
when that process ends in any way, so a folder whose lock is free was left by a crash and is removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "kasuri-work-"
_LOCK = "lock"


@contextmanager
def folder(inside: Path | None = None) -> Iterator[Path]:
    """A new private folder, gone when the block is left; in the system's temporary folder unless told."""
    sweep(inside)
    path, lock = _new(inside)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _new(inside: Path | None) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))  # mode 0700
        try:
            lock = _lock(path)
        except OSError:  # a sweep came between the folder and its lock, and removes it
            continue
        if (path / _LOCK).exists():
            return path, lock
        os.close(lock)


def sweep(inside: Path | None = None) -> None:
    """Remove the working folders of this user that no living process holds."""
    for path in Path(inside or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
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
