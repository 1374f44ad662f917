"""Withdrawing a release, or replacing it by a corrected one: a notice beside its files. The release itself stays as it
was written, because what was published cannot be called back, and what it spent stays spent."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

from kasuri import names
from kasuri.errors import DomainError, FormatError, raise_faults
from kasuri.files import write
from kasuri.manifest.package import sha256

NOTICE, TEXT = FILES = ("withdrawn.json", "withdrawn.md")
_LONGEST = 500


def withdraw(folder: str | Path, *, reason: str, day: str, replaced_by: str | None = None) -> dict[str, Any]:
    """Write the notice that a saved release is withdrawn (or replaced by the release whose id is given), and why, in a
    file for machines and one for people. Never over an earlier notice. `day` is declared, such as 2026-11-18.

    Privacy: `reason` is text that its publisher declares; it must not reveal anything about a record. Nothing is
    refunded.
    """
    home = Path(folder)
    faults = _faults(reason, day, replaced_by)
    if (home / NOTICE).exists():
        faults.append(f"{home / NOTICE} exists already: the release is withdrawn; nothing is overwritten")
    raise_faults(DomainError, faults)
    found = _notice(home, reason, day, replaced_by)
    if _by_itself(found):
        raise DomainError("replaced_by names the release itself; give the id of the corrected one")
    for name, text in _files(found).items():
        write(home / name, text, new=True)
    return found


def notice(folder: str | Path) -> dict[str, Any] | None:
    """The notice in a release's folder, None where there is none; FormatError for one that belongs to another release,
    says of this one what its manifest does not, or is damaged."""
    home = Path(folder)
    if not any(os.path.lexists(home / name) for name in FILES):
        return None
    try:
        texts = {name: _text(home / name) for name in FILES}
        said = json.loads(texts[NOTICE])
        given = said["reason"], said["day"], said["replaced_by"]
        found = None if _faults(*given) else _notice(home, *given)
        same = found is not None and not _by_itself(found) and _files(found) == texts
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        found, same = None, False
    if not same:
        raise FormatError(f"{home / NOTICE}, {TEXT}: not a notice of withdrawal of this release")
    return found


def faults(folder: Path) -> list[str]:
    """What is wrong with the notice in a folder: both files, of this release, as `withdraw` writes them."""
    try:
        notice(folder)
    except FormatError:
        return [f"{NOTICE}, {TEXT}: not a notice of withdrawal of this release"]
    return []


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():  # reading a pipe would never end
        raise OSError
    return path.read_bytes().decode()


def _faults(reason: object, day: object, replaced_by: object) -> list[str]:
    """What is wrong with what a publisher says; it is printed beside a promise."""
    found = [*names.faults(reason, "reason"), *([] if _is_day(day) else ["day must be a day such as 2026-11-18"])]
    if isinstance(reason, str) and not 1 <= len(reason.strip()) <= _LONGEST:
        found.append(f"reason must be text of 1 to {_LONGEST} characters")
    if replaced_by is not None:
        found += names.faults(replaced_by, "replaced_by")
    return found


def _by_itself(found: dict[str, Any]) -> bool:
    return found["replaced_by"] == found["release_id"]


def _notice(home: Path, reason: str, day: str, replaced_by: str | None) -> dict[str, Any]:
    release_id, digest, loss = _told(home)
    spent = {name: loss["privacy_parameters"][name] for name in ("epsilon", "delta")}
    return {
        "kasuri": "withdrawal", "version": 1, "release_id": release_id, "manifest": digest, "day": day,
        "reason": reason, "replaced_by": replaced_by, "spent": spent,
    }  # fmt: skip


def _files(found: dict[str, Any]) -> dict[str, str]:
    """Both files, the one for people first: a notice that is there is whole."""
    return {TEXT: _words(found), NOTICE: json.dumps(found, ensure_ascii=False, indent=2) + "\n"}


def _told(home: Path) -> tuple[str, str, dict[str, Any]]:
    """Release id, hash of the manifest, and the loss it states."""
    try:
        data = (home / "datapackage.json").read_bytes()
        privacy = json.loads(data)["privacy"]
        return str(privacy["release_id"]), sha256(data), dict(privacy["privacy_loss"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise FormatError(f"{home}: not a saved release: datapackage.json cannot be read") from None


def _words(found: dict[str, Any]) -> str:
    spent = f"epsilon {found['spent']['epsilon']}"
    other = found["replaced_by"]
    en = f" It is replaced by release {other}." if other else ""
    ja = f"代わりに公表物 {other} をご利用ください。" if other else ""
    return (
        f"# Withdrawn\n\nThis release ({found['release_id']}) was withdrawn on {found['day']}: "
        f"{found['reason']}{en}\n\n"
        f"Please do not use its numbers. What it spent ({spent}) stays spent: whoever has seen it has seen it.\n\n"
        f"# 撤回\n\nこの公表物（{found['release_id']}）は {found['day']} に撤回されました。理由：{found['reason']}\n\n"
        f"この公表物の数値は使わないでください。{ja}消費した予算（{spent}）は戻りません。すでに公表されたものは取り消せないためです。\n"
    )


def _is_day(text: object) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
