"""Withdrawing a release, or replacing it by a corrected one: a notice beside its files. The release itself stays as it
was written, because what was published cannot be called back, and what it spent stays spent."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from kasuri import names
from kasuri.errors import DomainError, FormatError, raise_faults
from kasuri.files import write
from kasuri.manifest.package import sha256

NOTICE, TEXT = FILES = ("withdrawn.json", "withdrawn.md")
_LONGEST = 500
_FIELDS = {"kasuri", "version", "release_id", "manifest", "day", "reason", "replaced_by", "spent"}


def withdraw(folder: str | Path, *, reason: str, day: str, replaced_by: str | None = None) -> dict[str, Any]:
    """Write the notice that a saved release is withdrawn (or replaced by the release whose id is given), and why, in a
    file for machines and one for people. Never over an earlier notice. `day` is declared, such as 2026-11-18.

    Privacy: `reason` is text that its publisher declares; it must not reveal anything about a record. Nothing is
    refunded.
    """
    home = Path(folder)
    faults = [*names.faults(reason, "reason"), *([] if _is_day(day) else ["day must be a day such as 2026-11-18"])]
    if isinstance(reason, str) and not 1 <= len(reason.strip()) <= _LONGEST:
        faults.append(f"reason must be text of 1 to {_LONGEST} characters")
    if replaced_by is not None:
        faults += names.faults(replaced_by, "replaced_by")
    if (home / NOTICE).exists():
        faults.append(f"{home / NOTICE} exists already: the release is withdrawn; nothing is overwritten")
    raise_faults(DomainError, faults)
    release_id, digest, loss = _told(home)
    if replaced_by == release_id:
        raise DomainError("replaced_by names the release itself; give the id of the corrected one")
    spent = {name: loss["privacy_parameters"][name] for name in ("epsilon", "delta")}
    found: dict[str, Any] = {
        "kasuri": "withdrawal", "version": 1, "release_id": release_id, "manifest": digest, "day": day,
        "reason": reason, "replaced_by": replaced_by, "spent": spent,
    }  # fmt: skip
    write(home / TEXT, _words(found), new=True)
    write(home / NOTICE, json.dumps(found, ensure_ascii=False, indent=2) + "\n", new=True)
    return found


def notice(folder: str | Path) -> dict[str, Any] | None:
    """The notice in a release's folder, None where there is none; FormatError for one that belongs to another release
    or is damaged."""
    home = Path(folder)
    if not (home / NOTICE).is_file():
        return None
    try:
        found = json.loads((home / NOTICE).read_text(encoding="utf-8"))
        good = isinstance(found, dict) and set(found) == _FIELDS and found["kasuri"] == "withdrawal"
    except (OSError, ValueError, RecursionError):
        good = False
    if not good or not _is_day(found["day"]) or not isinstance(found["reason"], str):
        raise FormatError(f"{home / NOTICE}: not a notice of withdrawal")
    release_id, digest, _ = _told(home)
    if (found["release_id"], found["manifest"]) != (release_id, digest):
        raise FormatError(f"{home / NOTICE}: belongs to another release")
    return dict(found)


def faults(folder: Path) -> list[str]:
    """What is wrong with the notice in a folder: both files, of this release, and the text that the notice gives."""
    if not any((folder / name).exists() for name in FILES):
        return []
    try:
        found = notice(folder)
        same = found is not None and (folder / TEXT).read_text(encoding="utf-8") == _words(found)
    except (FormatError, OSError, ValueError, LookupError, TypeError):
        same = False
    return [] if same else [f"{NOTICE}, {TEXT}: not a notice of withdrawal of this release"]


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
