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
    parameters = loss["privacy_parameters"]
    return Guarantee(
        privacy["deployment_model"]["model_name"],
        written(parameters["epsilon"]),
        written(parameters["delta"]),
        _unit(loss, relation),
        tuple(relation["unprotected_quantities"]),
        tuple(privacy["assumes"]),
        privacy["implementation"]["basis"],
        None if parameters["rho"] is None else written(parameters["rho"]),
    )


def _unit(loss: Mapping[str, Any], relation: Mapping[str, Any]) -> Unit:
    """The unit of a manifest; where sums are published `max_weight` repeats `max_sum`, for readers who know that."""
    bound = loss["contribution_bound"]
    most = bound.get("max_sum")
    weight = bound["max_weight"] if most is None else None
    return Unit(loss["privacy_unit"], relation["relation"], bound["max_cells"], weight, bound.get("per"), most)


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
