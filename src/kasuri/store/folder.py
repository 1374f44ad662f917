"""A release on disk: a new folder, written aside and renamed, so that it is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

from kasuri import manifest
from kasuri.errors import DomainError
from kasuri.files import sync
from kasuri.published.protected import Described, Protected
from kasuri.store import duck, parquet
from kasuri.store.columns import may_leave, release_table


def save(release: Protected, folder: str | Path, *, unmetered: bool = False, sign: str | Path | None = None) -> None:
    """Write `release` to the new folder `folder`; see `save_tables`."""

    def tables(aside: Path) -> None:
        table = release_table(release)
        parquet.write(release, table, aside)
        duck.write(release, table, aside)

    save_tables(release, tables, folder, unmetered=unmetered, sign=sign)


def save_tables(
    release: Described,
    tables: Callable[[Path], None],
    folder: str | Path,
    *,
    unmetered: bool = False,
    sign: str | Path | None = None,
) -> None:
    """Write `release` to the new folder `folder`, its tables by `tables(folder)`; an existing one is refused and left
    as it is, and so is a seeded release, or one without a ledger unless `unmetered` says that this is meant.

    The ledger hears of it when all is written and before it appears: no release is on disk that it does not know.
    """
    may_leave(release, unmetered)
    target = Path(folder)
    aside = _aside(target)
    try:
        tables(aside)
        manifest.write(release, aside, sign)  # last: it lists every other file
        for path in sorted(aside.iterdir()):
            sync(path)
        sync(aside)
        if release.receipt is not None:
            release.receipt.commit(release.provenance["release_id"])
        # rename(2) refuses a folder that is not empty, so a rival that was faster is not overwritten
        os.rename(aside, target)
    except OSError as error:
        raise _not_written(target, error) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    try:
        sync(target.parent)
    except OSError:  # the release is there; saying "not written" would invite a second one
        warnings.warn(f"{target} is written, but may not survive a power failure in the next seconds", stacklevel=2)


def ready(folder: str | Path) -> None:
    """Refuse a target that cannot be written, while nothing is charged yet; its parent folders are made."""
    _aside(Path(folder)).rmdir()


def _aside(target: Path) -> Path:
    """A new hidden folder beside `target`, which must not exist."""
    try:
        if os.path.lexists(target):
            raise DomainError(f"{target} exists; a release is never written over another. Choose a new folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.parent / f".{target.name}.{secrets.token_hex(8)}.part"
        aside.mkdir()
    except (OSError, ValueError) as error:
        if isinstance(error, DomainError):
            raise
        raise _not_written(target, error) from None
    return aside


def _not_written(target: Path, error: OSError | ValueError) -> DomainError:
    why = getattr(error, "strerror", None) or type(error).__name__
    where = getattr(error, "filename", None) or target
    return DomainError(f"{target}: not written ({why}: {where}); nothing was kept")
