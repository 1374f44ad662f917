"""release.duckdb: tables release and release_meta, readable by DuckDB 1.0 and later."""

from __future__ import annotations

from pathlib import Path

from kasuri.published import Release
from kasuri.store.columns import meta_table, release_table


def write(release: Release, folder: Path) -> None:
    """Write the DuckDB file with a fresh connection that never saw Counts."""
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        path = str(folder / "release.duckdb").replace("'", "''")
        connection.execute(f"ATTACH '{path}' AS out (STORAGE_VERSION 'v1.0.0')")
        for name, table in (("release", release_table(release)), ("release_meta", meta_table(release))):
            connection.register("source", table)
            connection.execute(f"CREATE TABLE out.{name} AS SELECT * FROM source")
            connection.unregister("source")
        connection.execute("ALTER TABLE out.release ADD PRIMARY KEY (cell)")
        connection.execute("DETACH out")
    except duckdb.Error as error:
        raise OSError(f"DuckDB could not write the release ({type(error).__name__})") from None
    finally:
        connection.close()
