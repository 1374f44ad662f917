"""`verify`: is a release on disk what its maker wrote? Every fault names its file; all are found at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from kasuri import names
from kasuri.budget.ledger import Ledger
from kasuri.errors import DomainError, KasuriError
from kasuri.manifest import certificate, keys, recompute, tables, withdrawal
from kasuri.manifest.package import MANIFEST, VERSION, digest, machine, sha256, text
from kasuri.privacy import decimal
from kasuri.published.about import About
from kasuri.published.protected import Protected, files_of
from kasuri.store.saved import claimed

_SHAPE: dict[str, Any] = {
    "profile": str,
    "name": str,
    "id": str,
    "kasuri": int,
    "domain": {"axes": list, "mask": list},
    "grid": list,
    "absent_cells": str,
    "intervals": {"level": (str, NoneType)},
    "report": (str, NoneType),
    "total": (int, float),
    "resources": list,
    "digest": str,
    "privacy": {
        "release_id": str,
        "data": (str, NoneType),
        "dp_variant": {"name": str, "data_domain": str, "unprotected_quantities": list, "relation": str},
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_description": str,
            "privacy_parameters": {"epsilon": str, "delta": str, "rho": (str, NoneType)},
            "contribution_bound": {"max_cells": int, "max_weight": (int, NoneType), "enforced": str},
        },
        "deployment_model": {"model_name": str},
        "accounting": {"composition": str, "post_processing": dict},
        "implementation": {
            "mechanisms": list,
            "sampler": str,
            "randomness": str,
            "secure": bool,
            "software": str,
            "environment": dict,
            "basis": str,
        },
        "assumes": list,
        "expected_error": dict,
    },
}
"""The fields a manifest must have, and their types."""

_ALWAYS = ("release_meta.parquet", "certificate.md", "certificate.ja.md")
"""Files every release has, beside its table (release.parquet and release.duckdb, or numbered files) and the report,
which a very large table does without."""


_ID = re.compile("[0-9a-f]{32}")
NOT_REACHED = "recipe and values: the release is not as it was written"
UNPAID = "the entry that paid: no ledger was given to look it up in"


class Verdict(dict[str, Any]):
    """What `verify` found. It is a mapping too, written as JSON as it is, and does not change."""

    @property
    def ok(self) -> bool:
        """No fault was found."""
        return bool(self["ok"])

    @property
    def faults(self) -> tuple[str, ...]:
        """Every fault, each with its file."""
        return tuple(self["faults"])

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are whole."""
        return tuple(self["files"])

    @property
    def signature(self) -> str:
        """good, none, or what is wrong with it."""
        return str(self["signature"])

    @property
    def ledger(self) -> str:
        """What the ledger says, where one was given."""
        return str(self["ledger"])

    @property
    def release_id(self) -> str | None:
        """The release that the manifest names; None where it cannot be read."""
        return None if self["release_id"] is None else str(self["release_id"])

    @property
    def not_recomputed(self) -> tuple[str, ...]:
        """What could not be computed again, each with its reason."""
        return tuple(self["not_recomputed"])

    def _closed(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a verdict does not change; verify again")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _closed

    def __reduce__(self) -> tuple[Any, ...]:
        return Verdict, (dict(self),)  # a copy is filled when it is made


def verify(
    folder: str | Path, *, key: str | Path | None = None, ledger: str | Path | None = None, page: bool = True
) -> Verdict:
    """Check a saved release; `.ok` says whether it is whole, `.faults` what is not.

    Checked: the manifest's form and digest, every file's SHA-256 and that no other file is there, the
    signature (against `key`, a public key from outside the folder; without one only that it is intact), the tables
    (cells rising and inside the domain, none masked, non-negative where the refinement says so, columns and copies
    that agree, the total), the certificates, and, with `ledger`, the entry that paid and the whole chain. The recipe is
    rebuilt from its words and resolved on domain, unit and epsilon, and what is said must be what it gives; the
    measurements are refined again, and the values must be what comes out; the report is made again (`page=False`: only
    its hash is checked, which is most of the time saved). `not_recomputed` lists what was not computed again, each with
    its reason.
    """
    return _judged(Path(folder), key, ledger, page, handed=False)[0]


def handed_on(folder: str | Path) -> tuple[Verdict, Protected | None]:
    """`verify` of all that `load` hands on: the promise, the recipe, cells, values and measurements; and the release,
    where it was read whole. Limits of cells, copies of the table, sentences of the manifest and the report have their
    hashes alone."""
    return _judged(Path(folder), None, None, page=False, handed=True)


def _judged(
    folder: Path, key: str | Path | None, ledger: str | Path | None, page: bool, handed: bool
) -> tuple[Verdict, Protected | None]:
    if not folder.is_dir():
        raise DomainError(f"{folder}: no such folder")
    if key is not None and Path(key).resolve().is_relative_to(folder.resolve()):
        raise DomainError(f"{key}: the key lies in the release it should vouch for; take it from its owner")
    out: dict[str, Any] = {
        "ok": False,
        "faults": [],
        "files": [],
        "signature": "none",
        "ledger": "not checked",
        "release_id": None,
        "not_recomputed": [NOT_REACHED],
    }
    faults, release = out["faults"], None
    manifest, data = _manifest(folder, faults)
    out["signature"] = _signature(folder, data, manifest is not None, key, faults)
    if manifest is not None:
        out["release_id"] = manifest["id"]
        out["files"] = _files(folder, manifest, faults)
        if not manifest["privacy"]["implementation"]["secure"]:
            faults.append(f"{MANIFEST}: a seeded release, for tests only; it protects nobody")
        if not faults:  # what a changed file says is not worth judging
            _words(folder, manifest, faults)
            tables.check(folder, manifest, faults, copies=not handed)
        if not faults:
            notes, release = recompute.check(folder, manifest, faults, sentences=not handed)
            out["not_recomputed"] = [
                *notes,
                *_report(folder, manifest, page, faults),
                *([UNPAID] if ledger is None and manifest["privacy"]["accounting"].get("ledger") is not None else []),
            ]
        if ledger is not None:
            out["ledger"] = _paid(manifest, ledger, faults)
    out["ok"] = not faults
    return Verdict(out), release


def _manifest(folder: Path, faults: list[str]) -> tuple[dict[str, Any] | None, bytes]:
    """The manifest where its form and digest hold, else None; and its bytes."""
    try:
        if (folder / MANIFEST).is_symlink() or not (folder / MANIFEST).is_file():  # reading a pipe would never end
            raise OSError
        data = (folder / MANIFEST).read_bytes()
    except OSError:
        faults.append(f"{MANIFEST}: missing; this is not a kasuri release")
        return None, b""
    try:
        manifest = json.loads(data.decode())
    except (ValueError, RecursionError):
        faults.append(f"{MANIFEST}: changed (not readable as JSON)")
        return None, data
    if isinstance(manifest, dict) and isinstance(version := manifest.get("kasuri"), int) and version > VERSION:
        faults.append(f"{MANIFEST}: version {version}, newer than this kasuri reads; update kasuri")
        return None, data
    found: list[str] = []
    _shape(manifest, _SHAPE, "", found)
    if found:
        faults += [f"{MANIFEST}: {fault}" for fault in found]
        return None, data
    try:
        same = text(manifest) == data and manifest["digest"] == digest(manifest)
    except (ValueError, RecursionError):  # numbers or characters no manifest is written with
        same = False
    if not same:
        faults.append(f"{MANIFEST}: changed since it was written (its digest does not match)")
        return None, data
    if manifest["id"] != manifest["privacy"]["release_id"]:
        faults.append(f"{MANIFEST}: names two releases")
    if not _ID.fullmatch(manifest["id"]):
        faults.append(f"{MANIFEST}: its id is not one that kasuri draws")
    return manifest, data


def _shape(value: Any, wanted: Any, where: str, faults: list[str]) -> None:
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            faults.append(f"field {where or '(top)'} is missing or malformed")
            return
        for name, inner in wanted.items():
            own = value.get(name, ...)  # a field that may be null is there all the same
            _shape(own, inner, f"{where}.{name}" if where else name, faults)
    elif not isinstance(value, wanted):
        faults.append(f"field {where} is missing or malformed")


def _signature(folder: Path, data: bytes, intact: bool, key: str | Path | None, faults: list[str]) -> str:
    path = folder / keys.SIGNATURE
    trusted = None if key is None else keys.public_hex(key)
    if not path.exists() and not path.is_symlink():
        if trusted is not None:
            faults.append(f"{keys.SIGNATURE}: missing; the release is not signed")
        return "none"
    try:
        if path.is_symlink() or not path.is_file():
            raise OSError
        raw = path.read_bytes()
        statement = json.loads(raw.decode())
        good = text(statement) == raw
    except (OSError, ValueError, RecursionError):
        statement, good = None, False
    if not good or not isinstance(statement, dict):
        faults.append(f"{keys.SIGNATURE}: changed (not what a signature looks like)")
        return "broken"
    if not keys.signed(statement, data):
        # the manifest vouches for itself by its digest: where that holds, it is the signature that was changed
        where = keys.SIGNATURE if intact else f"{MANIFEST} or {keys.SIGNATURE}"
        faults.append(f"{where}: the signature does not belong to this manifest")
        return "broken"
    if trusted is None:
        return "intact, by a key nobody vouched for: give --key"
    if statement["public_key"] != trusted:
        faults.append(f"{keys.SIGNATURE}: signed with another key than the one given")
        return "by another key"
    return "good"


def _files(folder: Path, manifest: Mapping[str, Any], faults: list[str]) -> list[str]:
    """Names of the files that are whole."""
    from kasuri.report import page

    good, known = [], {MANIFEST, keys.SIGNATURE}
    for item in manifest["resources"]:
        name = item.get("path") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name or Path(name).name != name:
            faults.append(f"{MANIFEST}: a resource does not name a file of this folder")
            continue
        if name in known:
            faults.append(f"{MANIFEST}: lists {name} twice")
        known.add(name)
        path = folder / name
        try:
            whole = None if path.is_symlink() or not path.is_file() else path.read_bytes()
        except (OSError, ValueError) as error:  # a name no file can have, a file that may not be read
            faults.append(f"{name[:100]!r}: cannot be read ({type(error).__name__})")
            continue
        if whole is None:
            faults.append(f"{name}: missing")
        elif sha256(whole) != item.get("hash"):
            faults.append(f"{name}: changed since it was written (its SHA-256 does not match)")
        else:
            good.append(name)
    told = withdrawal.faults(folder)
    faults += told
    beside = known if told else known | set(withdrawal.FILES)
    faults += [f"{path.name}: not part of the release" for path in sorted(folder.iterdir()) if path.name not in beside]
    numbered = [name for name in files_of("release", known) if name != "release.parquet"]
    table = tuple(f"release-{i:05d}.parquet" for i in range(len(numbered))) or ("release.parquet", "release.duckdb")
    always = _ALWAYS if manifest["report"] else (*_ALWAYS, page.REPORT)
    faults += [f"{name}: not listed in the manifest" for name in (*table, *always) if name not in known]
    own = {MANIFEST, keys.SIGNATURE, page.REPORT, *table, *always, *files_of("measurements", known)}
    faults += [f"{name}: not a file of a release" for name in sorted(known - own)]
    if numbered and known & {"release.parquet", "release.duckdb"}:
        faults.append(f"{MANIFEST}: lists the table twice, in one file and in numbered ones")
    return good


def _words(folder: Path, manifest: Mapping[str, Any], faults: list[str]) -> None:
    said = manifest.get("about")
    if names.first(_texts(manifest["privacy"]), "text"):
        faults.append(f"{MANIFEST}: a name in it breaks a line or changes how text is shown")
    try:
        if said is not None:
            About.of(said)
    except KasuriError:
        faults.append(f"{MANIFEST}: about holds something else than a publisher may say of a release")
        return
    for name, words in (("certificate.md", certificate.english), ("certificate.ja.md", certificate.japanese)):
        try:
            page, found = words(manifest["privacy"], said), (folder / name).read_bytes()
            same = found == page.encode() or found == certificate.japanese_before(page).encode()
        except tables.UNREADABLE:
            same = False
        if not same:
            faults.append(f"{name}: does not say what the manifest says")


def _texts(value: Any) -> Iterator[str]:
    """All text in plain data, keys among it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(part)


def _report(folder: Path, manifest: Mapping[str, Any], again: bool, faults: list[str]) -> list[str]:
    """The page made again and compared, if `again`; one of another version of kasuri looks otherwise, and has its hash
    alone. Returns what was not made again."""
    from kasuri.report import page

    try:
        said = page.too_large(folder)
    except tables.UNREADABLE:
        said = ""
    if said != manifest["report"]:
        faults.append(f"{MANIFEST}: whether there is a report does not follow from the size of the table")
    if manifest["report"] is not None:
        return []
    if not recompute.same_version(manifest):
        return [f"{page.REPORT}: made by another version of kasuri; only its hash was checked"]
    if not again:
        return [f"{page.REPORT}: not made again, as asked; only its hash was checked"]
    notes: list[str] = []
    try:
        here = manifest["privacy"]["implementation"]["environment"].get("machine") == machine()
        same: bool | None = page.says_the_same(folder, manifest, rounding=0 if here else 1)
        if same is False and recompute.dated_limits(folder, manifest):
            same = page.says_the_same(folder, manifest, rounding=math.inf)
            notes.append(
                f"{page.REPORT}: the intervals of its larger areas and how wide they are, which an earlier rule made"
            )
    except tables.UNREADABLE:
        same = False
    if same is None:
        return [f"{page.REPORT}: a page of an earlier form; only its hash was checked"]
    if not same:
        faults.append(f"{page.REPORT}: does not show what the manifest and the table say")
    return notes


def _paid(manifest: Mapping[str, Any], path: str | Path, faults: list[str]) -> str:
    """The ledger's chain, and in it the entry that paid for this release and its commitment."""
    said = manifest["privacy"]["accounting"].get("ledger")
    if not isinstance(said, dict):
        faults.append(f"{MANIFEST}: the release was charged to no ledger")
        return "not charged"
    try:
        book = Ledger.load(path)
        book.verify()
        entries = book.entries()
    except KasuriError as error:
        faults.append(str(error))
        return "broken"
    number = said.get("entry")
    entry = entries[number - 1] if isinstance(number, int) and 0 < number <= len(entries) else {}
    if book.id != said.get("ledger") or entry.get("hash") != said.get("hash") or entry.get("kind") != "reserved":
        faults.append(f"{Path(path).name}: does not hold the entry this release names")
        return "not found"
    faults += [f"{Path(path).name}: entry {number} {fault}" for fault in _unlike(manifest, book, entry)]
    committed = [item for item in entries if item["kind"] == "committed" and item["of"] == number]
    if not committed or committed[0]["release_id"] != manifest["id"]:
        faults.append(f"{Path(path).name}: entry {number} was not committed to this release")
        return "not committed"
    return f"paid by entry {number} of {len(entries)}"


def _unlike(manifest: Mapping[str, Any], book: Ledger, entry: Mapping[str, Any]) -> list[str]:
    """Where the manifest says something else than the entry it names."""
    privacy, claim = manifest["privacy"], entry["claim"]
    try:
        guarantee = claimed(manifest)
    except tables.UNREADABLE:
        return ["paid for a promise; the manifest states none"]
    receipt, accounting = book.receipt(entry["entry"]), privacy["accounting"]["ledger"]
    reference = {} if receipt is None else receipt.reference()
    if "split" not in accounting and not recompute.same_version(manifest):
        reference.pop("split", None)  # an earlier kasuri did not say that it was a part
    pairs = [
        ("paid for another epsilon", claim["epsilon"], decimal(guarantee.epsilon)),
        ("paid for another delta", claim["delta"], decimal(guarantee.delta)),
        ("paid for another rho", claim.get("rho"), None if guarantee.rho is None else decimal(guarantee.rho)),
        ("protects another unit", book.unit, guarantee.unit),
        ("is about other data", book.data, privacy["data"]),
        ("paid for another recipe or domain", claim["plan"], privacy["implementation"].get("configuration_hash")),
        ("rests on other assumptions", entry["assumes"], privacy["assumes"]),
        ("left another balance", reference, accounting),
    ]
    return [words for words, paid, said in pairs if paid != said]
