"""What kasuri is made of: docs/licences.md and a CycloneDX list, from requirements.lock and the installed metadata.

    python3 run.py licences            # writes docs/licences.md
    python3 run.py sbom [FILE]         # writes FILE (default kasuri.cdx.json)

Runs in the environment of run.py. Equal environments give equal bytes: no time, no random number.
"""

import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent
LICENCES = ROOT / "docs" / "licences.md"
EXTRAS = ("postgres", "serve", "spark")

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "Artistic License": "Artistic-1.0-Perl",
    "BSD License": "BSD-3-Clause",
    "GNU General Public License (GPL)": "GPL-1.0-or-later",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "LicenseRef-Public-Domain",
    "Python Software Foundation License": "PSF-2.0",
}
SPELLINGS = {
    "Apache 2.0": "Apache-2.0", "Artistic License": "Artistic-1.0-Perl", "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause", "ISC License": "ISC", "MIT License": "MIT", "MIT license": "MIT",
    "Modified BSD License": "BSD-3-Clause", "PSFL": "PSF-2.0",
}  # fmt: skip
FREE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "LLVM-exception", "MIT", "MIT-0",
    "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
}  # fmt: skip
"""May be used by, and shipped beside, software under Apache-2.0 (MPL-2.0: file by file, unchanged)."""
TOOLS_ONLY = {"Artistic-1.0-Perl", "GPL-1.0-or-later", "GPL-2.0-or-later", "LGPL-3.0-only", "LicenseRef-Public-Domain"}
"""Further licences of tools that developers run and nobody is given."""


def locked() -> list[dict]:
    """Every pin of requirements.lock: name, version, hashes of its files, and whether it is the one for this Python and
    platform (a package can have several)."""
    found = []
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        words, *hashes = re.split(r"\s+--hash=sha256:", line)
        requirement = Requirement(words)
        (pin,) = requirement.specifier
        assert pin.operator == "==" and hashes and requirement.url is None, f"{words}: not pinned with hashes"
        key, here = canonicalize_name(requirement.name), requirement.marker is None or requirement.marker.evaluate()
        found.append({"name": requirement.name, "key": key, "version": pin.version, "hashes": hashes, "here": here})
    return sorted(found, key=lambda pin: (pin["key"], pin["version"]))


def needs(name: str, extras: tuple[str, ...] = ()) -> set[tuple[str, tuple[str, ...]]]:
    """What an installed package needs here, each with the extras it is asked with."""
    found = set()
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(extra) for extra in wanted):
            found.add((canonicalize_name(requirement.name), tuple(sorted(requirement.extras))))
    return found


def closure(extras: tuple[str, ...]) -> set[str]:
    """Every package that kasuri with these extras brings along."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    todo = needs("kasuri", extras)
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            try:
                todo |= needs(*one)
            except metadata.PackageNotFoundError:
                continue  # for another platform
    return {name for name, _ in seen} - {"kasuri"}


def licence(name: str) -> str | None:
    """An SPDX expression from the package's own metadata; None where it is not installed here."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if about.get("License-Expression"):
        return about["License-Expression"]
    said = (about.get("License") or "").strip()
    if said not in ("", "UNKNOWN") and len(said) < 40 and "\n" not in said:
        return SPELLINGS.get(said, said)
    kinds = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    return " OR ".join(CLASSIFIERS.get(kind, kind) for kind in kinds if kind != "OSI Approved") or "unknown"


def parts() -> list[dict]:
    """Every pinned package: name, version, licence, hashes, and what it is for: core, an extra, or development."""
    core = closure(())
    by_extra = {extra: closure((extra,)) for extra in EXTRAS}
    found = []
    for pin in locked():
        extras = [extra for extra, names in by_extra.items() if pin["key"] in names]
        use = "core" if pin["key"] in core else ", ".join(extras) if extras else "development"
        found.append({**pin, "licence": licence(pin["key"]), "use": use})
    return found


def faults(found: list[dict]) -> list[str]:
    """Packages whose licence is not known or not compatible with what they are used for."""
    wrong = []
    for part in found:
        if part["licence"] is None:
            continue  # for another platform: judged where it is installed
        choices = [set(re.findall(r"[\w.+-]+", choice)) - {"AND", "WITH"} for choice in part["licence"].split(" OR ")]
        allowed = FREE | TOOLS_ONLY if part["use"] == "development" else FREE
        if not any(choice <= allowed for choice in choices):
            wrong.append(f"{part['name']} ({part['use']}): {part['licence']}")
    return wrong


def here() -> str:
    """Which pins are installed depends on it."""
    return f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"


def licences() -> str:
    """docs/licences.md"""
    rows = [
        f"| {part['name']} | {part['version']} | {part['licence'] or 'of another platform, not installed here'} "
        f"| {part['use']} |"
        for part in parts()
    ]
    return "\n".join(
        [
            "# Licences of dependencies",
            "",
            "kasuri itself is under Apache-2.0. Everything `requirements.lock` pins, with the licence its own metadata",
            "states (SPDX). *core* comes with kasuri, the extras on demand; *development* is for its developers alone",
            "and is given to nobody. Made by `python3 run.py licences`; a test fails when it is out of date, or when",
            f"a licence does not go with Apache-2.0. Seen from {here()}.",
            "",
            "| package | version | licence | used for |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def sbom() -> str:
    """All parts in CycloneDX 1.6 (JSON): versions, purls, hashes of the pinned files, licences, who needs whom."""
    found = parts()
    purls = [f"pkg:pypi/{part['key']}@{part['version']}" for part in found]
    refs = {
        part["key"]: purl for part, purl in sorted(zip(found, purls, strict=True), key=lambda pair: pair[0]["here"])
    }
    own = f"pkg:pypi/kasuri@{metadata.version('kasuri')}"
    scopes = {"core": "required", "development": "excluded"}
    components = [
        {
            "type": "library",
            "bom-ref": purl,
            "name": part["name"],
            "version": part["version"],
            "scope": scopes.get(part["use"], "optional"),
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(part["hashes"])],
            "properties": [
                {"name": "kasuri:used-for", "value": part["use"]},
                {"name": "kasuri:hashes", "value": "one for every file of this version that may be installed"},
            ],
            **({"licenses": [_licence(part["licence"])]} if part["licence"] else {}),
        }
        for part, purl in zip(found, purls, strict=True)
    ]
    links = [{"ref": own, "dependsOn": sorted(refs[name] for name in _direct("kasuri", refs, EXTRAS))}]
    links += [
        {"ref": purl, "dependsOn": sorted(refs[name] for name in _direct(part["key"], refs))}
        for part, purl in zip(found, purls, strict=True)
    ]
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "kasuri",
                "version": metadata.version("kasuri"),
                "purl": own,
                "licenses": [_licence("Apache-2.0")],
            }
        },
        "components": components,
        "dependencies": links,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return json.dumps({**body, "serialNumber": f"urn:uuid:{serial}"}, indent=2) + "\n"


def _direct(name: str, refs: dict[str, str], extras: tuple[str, ...] = ()) -> set[str]:
    try:
        return {key for key, _ in needs(name, extras) if key in refs}
    except metadata.PackageNotFoundError:
        return set()


def _licence(text: str) -> dict:
    if re.fullmatch(r"[\w.+-]+", text) and not text.startswith("LicenseRef"):
        return {"license": {"id": text}} if text != "unknown" else {"license": {"name": text}}
    return {"expression": text}


def main() -> None:
    command, rest = sys.argv[1], sys.argv[2:]
    wrong = faults(parts())
    if wrong:
        sys.exit("kasuri: licences that do not go with Apache-2.0:\n  " + "\n  ".join(wrong))
    path = LICENCES if command == "licences" else Path(rest[0] if rest else "kasuri.cdx.json")
    path.write_text(licences() if command == "licences" else sbom(), encoding="utf-8")
    print(f"{path}: {len(parts())} packages")


if __name__ == "__main__":
    main()
