"""release.parquet, release_meta.parquet and (where a recipe has them) measurements.parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri.published.protected import Protected
from kasuri.store.columns import measurements_table, meta_table


def write(release: Protected, table: Any, folder: Path) -> None:
    """Write the Parquet files of a release, whose cells are `table`, into an existing folder."""
    from pyarrow import parquet

    tables = {"release": table, "release_meta": meta_table(release)}
    measured = measurements_table(release)
    if measured is not None:
        tables["measurements"] = measured
    for name, content in tables.items():
        near = [field.name for field in content.schema if field.name in _NEAR and str(field.type) == "int64"]
        parquet.write_table(
            content,
            folder / f"{name}.parquet",
            compression="zstd",
            row_group_size=1 << 20,
            use_dictionary=[column for column in content.column_names if column not in near],
            column_encoding=dict.fromkeys(near, "DELTA_BINARY_PACKED"),
        )


_NEAR = ("cell", "mesh_code", "prefix")
"""Whole numbers of which no two are alike and each is near the one before: kept as differences, in a third of the
room, where a dictionary would be made in vain."""
