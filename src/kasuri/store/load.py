"""A saved release, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kasuri import manifest
from kasuri.errors import FormatError
from kasuri.files import read_parquet
from kasuri.manifest.package import MANIFEST
from kasuri.manifest.tables import claimed
from kasuri.published.release import Release, files_of
from kasuri.schema import Domain
from kasuri.store.columns import measurements_from


def load(folder: str | Path) -> Release:
    """The release in `folder`, as `save` wrote it: areas, intervals and exports as from a fresh one. It is verified
    first; FormatError names every fault. It carries no receipt, so it cannot be saved or exported as newly paid for."""
    found = manifest.verify(folder)
    if not found["ok"]:
        raise FormatError("; ".join(found["faults"]))
    return read(Path(folder), json.loads((Path(folder) / MANIFEST).read_bytes()))


def read(folder: Path, said: Mapping[str, Any]) -> Release:
    """The release in a folder whose manifest `said` was read already; nothing is verified."""
    import pyarrow as pa

    names = [str(item["path"]) for item in said["resources"]]
    cells = pa.concat_tables(read_parquet(folder / name, ["cell", "value"]) for name in files_of("release", names))
    (meta,) = read_parquet(folder / "release_meta.parquet").to_pylist()
    measured = [read_parquet(folder / name) for name in files_of("measurements", names)]
    return Release(
        Domain.from_json(json.loads(meta["domain"])),
        cells["cell"].to_numpy(),
        cells["value"].to_numpy(),
        measurements_from(pa.concat_tables(measured)) if measured else None,
        claimed(said),
        MappingProxyType(json.loads(meta["recipe"])),
        MappingProxyType(json.loads(meta["provenance"])),
    )
