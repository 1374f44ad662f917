"""release.duckdb: tables release and release_meta, readable by DuckDB 1.0 and later."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kasuri import files
from kasuri.errors import DomainError
from kasuri.published.protected import Protected
from kasuri.schema import Domain
from kasuri.store.columns import OTHER_COLUMNS, all_tables, meta_table, other_columns, shapes


def _fresh() -> Any:
    """A connection that never saw Counts. Compressed columns of DuckDB leave a few bytes between their parts as they
    were in memory, which the process may have used for records before; uncompressed ones leave none."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET force_compression = 'uncompressed'")
    connection.execute("SET threads = 1")  # parts of several threads are written apart and then joined
    return connection


def write(release: Protected, cells: Any, folder: Path) -> None:
    """Write the DuckDB file, its table release the Arrow table `cells`, with a fresh connection: the same release gives
    the same bytes."""
    import duckdb

    connection, file = _fresh(), folder / "release.duckdb"
    try:
        path = str(file).replace("'", "''")
        connection.execute(f"ATTACH '{path}' AS out (STORAGE_VERSION 'v1.0.0')")
        for name, table in (("release", cells), ("release_meta", meta_table(release))):
            connection.register("source", table)
            columns = ", ".join(_narrow(table)) if name == "release" else "*"
            connection.execute(f"CREATE TABLE out.{name} AS SELECT {columns} FROM source")
            connection.unregister("source")
        connection.execute("DETACH out")
    except duckdb.Error as error:
        raise OSError(f"DuckDB could not write the release ({type(error).__name__})") from None
    finally:
        connection.close()
    _without_old_memory(file, _long_texts(release))


_BLOCKS, _BLOCK, _TEXT = 3 * 4096, 1 << 18, (1 << 18) - 16
"""Of a DuckDB file: where its blocks begin, their bytes, and those that hold text: less a checksum and a link."""
_MIX = 0xBF58476D1CE4E5B9


def _long_texts(release: Protected) -> list[bytes]:
    """The texts of release_meta that DuckDB keeps in blocks of their own: those of more than some thousand bytes."""
    values = [value for column in meta_table(release).columns for value in column.to_pylist()]
    return [text for value in values if isinstance(value, str) and len(text := value.encode()) > 1024]


def _without_old_memory(path: Path, texts: Sequence[bytes]) -> None:
    """Zeros in the last 8 bytes of every block that ends a long text. DuckDB links blocks there where a text goes on;
    where it ends, it leaves them as they were in memory, which the process may have used for records before."""
    begun = {len(text).to_bytes(4, "little") + text[:64]: len(text) + 4 for text in texts}
    with path.open("r+b") as file:
        for at in range(_BLOCKS, path.stat().st_size, _BLOCK):
            file.seek(at + 8)
            if (size := begun.get(file.read(68))) is not None:
                _end_of_text(file, at, size)


def _end_of_text(file: Any, at: int, size: int) -> None:
    """Clean the block in which a text ends whose `size` bytes, its length before it, begin in the block `at`."""
    while size > _TEXT:
        file.seek(at + _BLOCK - 8)
        at, size = _BLOCKS + int.from_bytes(file.read(8), "little") * _BLOCK, size - _TEXT
    file.seek(at)
    words = np.frombuffer(file.read(_BLOCK), "<u8")
    checksum = int(words[0])
    mixed = words[1:] * np.uint64(_MIX)
    if int(np.bitwise_xor.reduce(mixed)) ^ 5381 != checksum:
        raise OSError("this version of DuckDB writes blocks that kasuri does not know; use the one of its lock file")
    file.seek(at)
    file.write((checksum ^ int(mixed[-1])).to_bytes(8, "little"))
    file.seek(at + _BLOCK - 8)
    file.write(bytes(8))


def _narrow(table: Any) -> Iterator[str]:
    """The columns of `table` as they take least room without compression: whole numbers, limits among them, in 32 bits
    where all fit (not in 16: `row * 4096` would leave their range), and the id of the release, the same text in every
    row, as an enumeration of one."""
    import pyarrow as pa

    for name in table.column_names:
        column = table[name]
        quoted = '"' + name.replace('"', '""') + '"'
        if name == "release_id" and len(column):
            text = column[0].as_py().replace("'", "''")
            yield f"{quoted}::ENUM('{text}') AS {quoted}"
        elif (pa.types.is_int64(column.type) or name in ("lower", "upper")) and _fits(column):
            yield f"{quoted}::INTEGER AS {quoted}"
        else:
            yield quoted


def _fits(column: Any) -> bool:
    """Whether a column has numbers, and every one is a whole number of 32 bits."""
    import pyarrow.compute as pc

    if column.null_count == len(column):
        return False
    ends = pc.min_max(column).as_py()
    if not (ends["min"] >= -(1 << 31) and ends["max"] < 1 << 31):
        return False
    return str(column.type) == "int64" or bool(pc.all(pc.equal(column, pc.trunc(column))).as_py())


def faults(path: Path, domain: Domain, levels: Sequence[str]) -> list[str]:
    """What `append` of any release over `domain` would refuse of the file that is there."""
    import duckdb

    if not path.exists():
        return []
    connection = duckdb.connect(":memory:")
    try:
        name = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{name}' AS out (READ_ONLY)")
        found = []
        for table, content in shapes(domain, levels, geometry=False).items():
            connection.register("source", content)
            if other_columns(*_sides(connection, table), value=False):
                found.append(OTHER_COLUMNS.format(path, table))
            connection.unregister("source")
        return found
    except duckdb.Error as error:
        return [f"{path}: not a file of DuckDB that can be opened ({type(error).__name__}); use a new file"]
    finally:
        connection.close()


def _sides(connection: Any, table: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Columns (name, type) of the table in `out`, and of `source`: types too, so that nothing is rounded."""
    there = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'out' AND table_name = ? "
        "ORDER BY column_index",
        [table],
    ).fetchall()
    return there, [row[:2] for row in connection.execute("DESCRIBE source").fetchall()]


def append(release: Protected, path: Path, levels: Sequence[str] = ()) -> None:
    """Add the release to a DuckDB file, in one transaction; where there is none, a new one is written aside and named
    when it is whole, since DuckDB would leave a broken file behind on a full disk."""
    if path.exists():
        _append(release, path, levels)
        return
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        _append(release, part, levels)
        _without_old_memory(part, _long_texts(release))
        files.place(part, path)
    except FileExistsError:  # another process was faster
        _append(release, path, levels)
    finally:
        for left in (part, part.with_name(f"{part.name}.wal")):
            left.unlink(missing_ok=True)


def _append(release: Protected, path: Path, levels: Sequence[str]) -> None:
    import duckdb

    connection = _fresh()
    try:
        name = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{name}' AS out (STORAGE_VERSION 'v1.0.0')")
        connection.execute("BEGIN")
        for table, content in all_tables(release, levels).items():
            key = "release_id" if table == "release_meta" else "release_id, cell"
            connection.register("source", content)
            there, own = _sides(connection, table)
            if not there:
                connection.execute(f'CREATE TABLE out."{table}" AS SELECT * FROM source LIMIT 0')
                connection.execute(f'ALTER TABLE out."{table}" ADD PRIMARY KEY ({key})')
            elif other_columns(there, own):
                raise DomainError(OTHER_COLUMNS.format(path, table))
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
