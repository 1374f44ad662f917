"""A saved release, verified and read back."""

from __future__ import annotations

import json
from pathlib import Path

from kasuri.errors import FormatError
from kasuri.manifest.package import MANIFEST
from kasuri.manifest.verify import handed_on
from kasuri.published.protected import Protected
from kasuri.store.saved import read


def load(folder: str | Path) -> Protected:
    """The release in `folder`, as `save` wrote it: areas, intervals and exports as from a fresh one. It is verified
    first, but for what is not handed on: the limits of cells as they are written, the copy in DuckDB, the sentences of
    the manifest and the report have their hashes checked and are not made again. FormatError names every fault. It
    carries no receipt, so it cannot be saved or exported as newly paid for."""
    found, release = handed_on(folder)
    if not found.ok:
        raise FormatError("; ".join(found.faults))
    return release or read(Path(folder), json.loads((Path(folder) / MANIFEST).read_bytes()))
