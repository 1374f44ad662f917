"""release.duckdb: tables release and release_meta, readable by DuckDB 1.0 and later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kasuri.errors import DomainError
from kasuri.published import Release
from kasuri.store.columns import all_tables, meta_table, release_table


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


def append(release: Release, path: Path, levels: Sequence[str] = ()) -> None:
    """Add the release to a DuckDB file (made where there is none), in one transaction."""
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        name = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{name}' AS out (STORAGE_VERSION 'v1.0.0')")
        connection.execute("BEGIN")
        for table, content in all_tables(release, levels).items():
            key = "release_id" if table == "release_meta" else "release_id, cell"
            connection.register("source", content)
            there = connection.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'out' AND table_name = ? "
                "ORDER BY column_index",
                [table],
            ).fetchall()
            if not there:
                connection.execute(f'CREATE TABLE out."{table}" AS SELECT * FROM source LIMIT 0')
                connection.execute(f'ALTER TABLE out."{table}" ADD PRIMARY KEY ({key})')
            elif there != [
                row[:2] for row in connection.execute("DESCRIBE source").fetchall()
            ]:  # types too: no rounding
                raise DomainError(f"{path}: its table {table} has other columns than this release; use a new file")
            connection.execute(f'INSERT INTO out."{table}" SELECT * FROM source')
            connection.unregister("source")
        connection.execute("COMMIT")
        connection.execute("DETACH out")
    except duckdb.ConstraintException:
        raise DomainError(f"{path}: this release is there already; a release is never written over another") from None
    except duckdb.Error as error:
        raise OSError(f"DuckDB could not write the release ({type(error).__name__})") from None
    finally:
        connection.close()
