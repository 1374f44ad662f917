"""What a saved release says, as values; nothing is verified here (`store.load` does)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kasuri.files import read_parquet
from kasuri.privacy import Guarantee, written
from kasuri.published.protected import Protected, files_of
from kasuri.schema import Domain, Unit
from kasuri.store.columns import measurements_from


def claimed(manifest: Mapping[str, Any]) -> Guarantee:
    """The promise a manifest states field by field, as one Guarantee."""
    privacy = manifest["privacy"]
    loss, relation = privacy["privacy_loss"], privacy["dp_variant"]
    bound, parameters = loss["contribution_bound"], loss["privacy_parameters"]
    return Guarantee(
        privacy["deployment_model"]["model_name"],
        written(parameters["epsilon"]),
        written(parameters["delta"]),
        Unit(loss["privacy_unit"], relation["relation"], bound["max_cells"], bound["max_weight"]),
        tuple(relation["unprotected_quantities"]),
        tuple(privacy["assumes"]),
        privacy["implementation"]["basis"],
        None if parameters["rho"] is None else written(parameters["rho"]),
    )


def read(folder: Path, said: Mapping[str, Any]) -> Protected:
    """The release in a folder whose manifest `said` was read already; nothing is verified."""
    import pyarrow as pa

    names = [str(item["path"]) for item in said["resources"]]
    cells = pa.concat_tables(read_parquet(folder / name, ["cell", "value"]) for name in files_of("release", names))
    (meta,) = read_parquet(folder / "release_meta.parquet").to_pylist()
    measured = [read_parquet(folder / name) for name in files_of("measurements", names)]
    return Protected(
        Domain.from_json(json.loads(meta["domain"])),
        cells["cell"].to_numpy(),
        cells["value"].to_numpy(),
        measurements_from(pa.concat_tables(measured)) if measured else None,
        claimed(said),
        MappingProxyType(json.loads(meta["recipe"])),
        MappingProxyType(json.loads(meta["provenance"])),
    )
