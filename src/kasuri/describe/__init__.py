"""A release that registers itself: its manifest in the forms that registries, catalogues and offices read.

*Privacy.* Functions of the published folder alone, which is verified first; facts about the input appear only as its
publisher declared them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kasuri.describe import forms, sdmx
from kasuri.errors import DomainError, FormatError
from kasuri.manifest import notice, verify
from kasuri.published.protected import Protected
from kasuri.store.load import load

Files = dict[str, str]
"""Text by file name."""

FORMS: dict[str, Callable[[dict[str, Any], Protected], Files]] = {
    "registry": forms.registry,
    "csvw": forms.csvw,
    "dcat": forms.dcat,
    "sdmx": sdmx.csv,
    "nist": forms.hazards,
}


def describe(folder: str | Path, form: str) -> Files:
    """The files that describe a saved release in a form: registry (an entry for a public registry of deployments), csvw
    (CSV on the Web, with the csvw-eo vocabulary), dcat (DCAT and schema.org), sdmx (SDMX-CSV 2.0), nist (a page of
    answers to NIST SP 800-226 and ISO/IEC 27559). FormatError where the release is not as it was written."""
    if form not in FORMS:
        raise DomainError(f"{form!r} is not a form; use {', '.join(FORMS)}")
    found = verify(folder)
    if not found.ok:
        raise FormatError(f"{folder}: not as it was written, so it is not described", *found.faults)
    manifest = json.loads((Path(folder) / "datapackage.json").read_text(encoding="utf-8"))
    manifest["withdrawn"] = notice(folder)
    return FORMS[form](manifest, load(str(folder)))
