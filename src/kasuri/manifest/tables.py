"""The released tables against the manifest and against one another: what one says, all say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import FormatError, KasuriError
from kasuri.files import read_parquet
from kasuri.manifest.package import data_domain, grid, machine, mechanisms, post_processing, text, variant
from kasuri.privacy import Guarantee
from kasuri.published import intervals
from kasuri.published.protected import files_of
from kasuri.recipes.read import read
from kasuri.schema import Domain
from kasuri.store import saved
from kasuri.store.columns import cell_table
from kasuri.store.saved import claimed

UNREADABLE = (
    ArithmeticError, AttributeError, KasuriError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What a file made to confuse its reader can raise."""


def check(folder: Path, manifest: Mapping[str, Any], faults: list[str], *, copies: bool = True) -> None:
    """Add a fault for everything in the tables that does not follow from the manifest, or from the cells; without
    `copies` for cells, values and what is said of them alone, which are all that `load` hands on."""
    try:
        domain, guarantee = Domain.from_json(manifest["domain"]), claimed(manifest)
        same = _says(manifest, domain, guarantee)
    except UNREADABLE:
        faults.append("datapackage.json: its domain or its promise cannot be read")
        return
    if not same:
        faults.append("datapackage.json: says the same thing in two ways, and they differ")
        return
    names = files_of("release", (item["path"] for item in manifest["resources"]))
    table = _release(folder, names, manifest, domain, guarantee, faults, copies)
    if table is None:
        return
    if copies:
        faults += _beside(folder, [str(item["path"]) for item in manifest["resources"]])
    meta = "release_meta.parquet"
    try:
        rows = read_parquet(folder / meta).to_pylist()
        same = len(rows) == 1 and _meta(rows[0], manifest, guarantee)
    except UNREADABLE:
        rows, same = [], False
    if not same:
        faults.append(f"{meta}: does not say what the manifest says")
    if names != ["release.parquet"]:
        if manifest["intervals"]["level"] is not None:
            faults.append("datapackage.json: names limits, which numbered files do not have")
        return
    if not copies:
        return
    if same:
        try:
            follows = _limits(folder, table, manifest)
        except UNREADABLE:
            follows = False
        if not follows:
            faults.append(f"{names[-1]}: lower or upper does not follow from the measurements")
    _duckdb(folder, table, rows, faults)


def _release(
    folder: Path,
    names: list[str],
    manifest: Mapping[str, Any],
    domain: Domain,
    guarantee: Guarantee,
    faults: list[str],
    copies: bool,
) -> Any | None:
    """The last file of the released table, every file checked; None where they are not worth comparing further."""
    try:
        signed = _signed(folder, domain, guarantee)
    except FormatError:
        faults.append("datapackage.json: no recipe is described like this on this domain, unit and epsilon")
        signed = True
    except UNREADABLE:  # named below
        signed = True
    last, total = -1, 0
    for name in names:  # one file at a time: a table of many files need not fit in memory
        try:
            table = read_parquet(folder / name, None if copies else ["cell", "value"])
            if not _cells(table, name, domain, last, signed, faults):
                return None
            if copies and not _columns(table, name, domain, manifest, faults):
                return None
            last = table["cell"][-1].as_py() if table.num_rows else last
            total += table["value"].to_numpy().sum().item()
        except UNREADABLE:
            faults.append(f"{name}: cannot be read as the table the manifest describes")
            return None
    if total != manifest["total"]:
        faults.append(f"{', '.join(names[:3])}: does not add up to the total of the manifest")
    return table


def _signed(folder: Path, domain: Domain, guarantee: Guarantee) -> bool:
    """Whether the recipe may release negative values; FormatError where the words are of no recipe."""
    (meta,) = read_parquet(folder / "release_meta.parquet").to_pylist()
    return read(json.loads(meta["recipe"]), domain, guarantee.unit, guarantee.epsilon, told=True).signed


def _says(manifest: Mapping[str, Any], domain: Domain, guarantee: Guarantee) -> bool:
    """Do the fields that follow from others follow from them?"""
    privacy, words = manifest["privacy"], guarantee.relation()
    loss, relation = privacy["privacy_loss"], privacy["dp_variant"]
    found = {
        "grid": grid(domain) if manifest["grid"] == _older_grid(domain) else manifest["grid"],
        "name": relation["name"],
        "domain": relation["data_domain"],
        "neighbours": (relation["neighbours"], loss["privacy_unit_description"]),
        "parameters": loss["privacy_parameters_description"],
    }
    return found == {
        "grid": grid(domain),
        "name": variant(guarantee),
        "domain": data_domain(domain),
        "neighbours": (words, words),
        "parameters": guarantee.words(),
    }


def _older_grid(domain: Domain) -> list[dict[str, Any]]:
    """As it was once written: with a reference system also where there is no level."""
    return [{**place, "crs": mesh.crs} for place, mesh in zip(grid(domain), domain.planes, strict=True)]


def _cells(table: Any, name: str, domain: Domain, last: int, signed: bool, faults: list[str]) -> bool:
    """The cells above `last` and their values; False where they are not worth comparing with anything."""
    cells, values = table["cell"].to_numpy(), table["value"].to_numpy()
    if cells.dtype != np.int64 or values.dtype not in (np.int64, np.float64):
        raise TypeError
    inside = bool(cells.size == 0 or (cells.min() > last and cells.max() < domain.size))
    if not inside or bool(np.any(np.diff(cells) <= 0)):
        faults.append(f"{name}: cells are not rising inside the domain")
        return False
    if not domain.possible(cells).all():
        faults.append(f"{name}: a masked cell is not 0")
    if not signed and (values < 0).any():
        faults.append(f"{name}: a value is negative after a refinement that allows none")
    return True


def _columns(table: Any, name: str, domain: Domain, manifest: Mapping[str, Any], faults: list[str]) -> bool:
    """What follows from each cell; False where the columns are not those of the domain."""
    cells, values = table["cell"].to_numpy(), table["value"].to_numpy()
    none = table["lower"].null_count == table["upper"].null_count == cells.size
    limits = None if none else (table["lower"].to_numpy(), table["upper"].to_numpy())  # judged by _limits
    if limits is not None and name != "release.parquet":
        faults.append(f"{name}: has limits, which numbered files do not have")
    wanted = cell_table(domain, cells, values, manifest["id"], geometry=False, limits=limits)
    if table.column_names != wanted.column_names:
        faults.append(f"{name}: its columns are not those of the domain")
        return False
    for column in table.column_names:
        if not _equal(table[column], wanted[column]):
            what = (
                "another release's id" if column == "release_id" else f"column {column} does not follow from the cell"
            )
            faults.append(f"{name}: {what}")
    return True


def _limits(folder: Path, table: Any, manifest: Mapping[str, Any]) -> bool:
    """Do lower and upper follow from the measurements? Another machine may round a few limits to the next number."""
    release, told = saved.read(folder, manifest), manifest["intervals"]
    found = intervals.saved_columns(release, told.get("method"))
    nulls = table["lower"].null_count == table["upper"].null_count == table.num_rows
    if found is None or (nulls and intervals.once_without(release, told.get("why"))):
        return nulls and told["level"] is None
    if table["lower"].null_count or table["upper"].null_count or told["level"] != f"{intervals.LEVEL}":
        return False
    here = manifest["privacy"]["implementation"]["environment"].get("machine") == machine()
    gaps = [np.abs(table[name].to_numpy() - own) for name, own in zip(("lower", "upper"), found, strict=True)]
    far = sum(int(np.count_nonzero(gap)) for gap in gaps)
    near = all(bool((gap <= 1).all()) for gap in gaps) and 100 * far <= max(100, 2 * table.num_rows)
    return far == 0 if here else near


def _equal(one: Any, other: Any) -> bool:
    return one.type == other.type and one.combine_chunks().equals(other.combine_chunks())


def _meta(said: Mapping[str, Any], manifest: Mapping[str, Any], guarantee: Guarantee) -> bool:
    """Does release_meta say what the manifest says? Its recipe has more words; what both have must be the same."""
    privacy = manifest["privacy"]
    implementation = privacy["implementation"]
    recipe, provenance = _once(said["recipe"]), _once(said["provenance"])
    promise = guarantee.to_json()
    plain = {
        "release_id": manifest["id"],
        "data": privacy["data"] or "",
        "model": promise["model"],
        "epsilon": promise["epsilon"],
        "delta": promise["delta"],
        "unit": guarantee.unit.words(),
        "absent_cells": "0",
    }
    origin = {
        "release_id": manifest["id"],
        "software": implementation["software"],
        "source": implementation["randomness"],
        "secure": implementation["secure"],
        "data": privacy["data"],
        "plan": implementation["configuration_hash"],
        "ledger": privacy["accounting"]["ledger"],
        "about": manifest.get("about"),
        "acceptance": privacy.get("acceptance"),
    }
    refined = privacy["accounting"]["post_processing"]
    japanese = {"ja": refined["ja"]} if "ja" in refined else {}  # which the recipe itself says, and no word of it
    return (
        set(said) == {*plain, "recipe", "guarantee", "provenance", "domain"}
        and all(said[name] == value for name, value in plain.items())
        and text(_once(said["guarantee"])) == text(promise)  # to the letter: 1, 1.0 and true are equal numbers
        and text(_once(said["domain"])) == text(manifest["domain"])
        and provenance.keys() <= origin.keys()
        and text({name: provenance.get(name) for name in origin}) == text(origin)
        and mechanisms(recipe, guarantee.epsilon) == implementation["mechanisms"]
        and post_processing(recipe) | japanese == refined
    )


def _once(text: str) -> Any:
    """JSON whose keys are each said once: readers differ in which of two they believe."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in items}) != len(items):
            raise ValueError
        return dict(items)

    return json.loads(text, object_pairs_hook=pairs)


def _beside(folder: Path, names: list[str]) -> list[str]:
    """Parquet files that hold more than their table: kasuri writes no such text, and a reader may take it for a
    promise, or may never show it."""
    found = []
    for name in names:
        if name.endswith(".parquet"):
            try:
                whole = _plainly(folder / name)
            except UNREADABLE:  # named where it is read
                continue
            if not whole:
                found.append(f"{name}: holds something beside its table")
    return found


_WRITER = re.compile(r"parquet-cpp-arrow version [0-9.]+(-SNAPSHOT)?")


def _plainly(path: Path) -> bool:
    """Whether a Parquet file has no text beside its columns' names, every byte of it belongs to a column or to the
    footer, and the least and largest values that it states (by which readers skip rows) are those of its rows."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        footer, schema = file.metadata, file.schema_arrow
        told = [schema.metadata, *(field.metadata for field in schema)]
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        chunks = [[group.column(at) for at in range(footer.num_columns)] for group in groups]
        size = sum(chunk.total_compressed_size for own in chunks for chunk in own) + footer.serialized_size + _FRAME
        if any(told) or not _WRITER.fullmatch(footer.created_by) or size != path.stat().st_size:
            return False
    start, table = 0, read_parquet(path)
    for group, own in zip(groups, chunks, strict=True):
        for at, chunk in enumerate(own):
            rows, said = table.column(at).slice(start, group.num_rows), chunk.statistics
            ends = pc.min_max(rows).as_py() if said is not None and said.has_min_max else {}
            if ends and (ends["min"], ends["max"]) != (said.min, said.max):
                return False
            if said is not None and said.has_null_count and said.null_count != rows.null_count:
                return False
        start += group.num_rows
    return True


_FRAME = 12
"""Bytes of a Parquet file before its columns and around its footer."""

_BESIDE = (
    *(f"system.main.duckdb_{kind}() WHERE NOT internal" for kind in ("schemas", "types", "views")),
    *(f"system.main.duckdb_{kind}()" for kind in ("indexes", "sequences", "triggers")),
    "system.main.duckdb_constraints() WHERE constraint_type NOT IN ('NOT NULL', 'PRIMARY KEY')",  # once ours
    *(f"system.main.duckdb_{kind}() WHERE NOT internal AND comment IS NOT NULL" for kind in ("tables", "columns")),
    "system.main.duckdb_columns() WHERE NOT internal AND (column_default IS NOT NULL OR is_generated)",
    "system.main.pragma_database_size() WHERE free_blocks > 0",
    *(f"(SELECT sum(count) AS stored FROM system.main.pragma_storage_info('release.main.{name}') "
      f"GROUP BY column_path, segment_type) WHERE stored > (SELECT count(*) FROM release.main.{name})"
      for name in ("release", "release_meta")),
)  # fmt: skip
"""What a DuckDB file may hold beside its tables and their rows; dropped tables and deleted rows leave blocks behind."""


_HEADERS = 3 * 4096
"""Bytes of a DuckDB file before its blocks."""


def _more(connection: Any, size: int) -> bool:
    """Whether a DuckDB file of so many bytes holds more than its two tables."""
    blocks = connection.execute("SELECT block_size * total_blocks FROM system.main.pragma_database_size()").fetchone()
    if blocks[0] + _HEADERS != size:
        return True
    functions = connection.execute("SELECT function_name, internal FROM system.main.duckdb_functions()").fetchall()
    if not all(internal for _, internal in functions):
        return True
    known = {f"system.main.{name}()" for name, _ in functions}  # an earlier DuckDB knows no triggers
    asked = [what for what in _BESIDE if what.startswith("(") or what.split()[0] in known]
    return any(connection.execute(f"SELECT 1 FROM {what} LIMIT 1").fetchall() for what in asked)


def _duckdb(folder: Path, table: Any, meta: list[dict[str, Any]], faults: list[str]) -> None:
    """The DuckDB copy, read without running anything it brings along: no files, no network, no extensions, no views."""
    import duckdb

    name = "release.duckdb"
    off: dict[str, Any] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "lock_configuration": "true",
    }
    try:
        connection = duckdb.connect(str(folder / name), read_only=True, config=off)
        try:
            tables = connection.execute(
                "SELECT schema_name, table_name FROM system.main.duckdb_tables() WHERE NOT internal"
            ).fetchall()
            more = _more(connection, (folder / name).stat().st_size)
            if sorted(tables) != [("main", "release"), ("main", "release_meta")] or more:
                faults.append(f"{name}: holds something else than the tables release and release_meta")
                return
            copy = connection.sql("SELECT * FROM release.main.release ORDER BY cell").to_arrow_table()
            said = connection.sql("SELECT * FROM release.main.release_meta").to_arrow_table().to_pylist()
        finally:
            connection.close()
        same = copy.column_names == table.column_names and all(
            _equal(copy[column].cast(table[column].type), table[column]) for column in table.column_names
        )
    except (duckdb.Error, *UNREADABLE):
        faults.append(f"{name}: cannot be read")
        return
    if not same:
        faults.append(f"{name}: holds another table than release.parquet")
    if said != meta:
        faults.append(f"{name}: its release_meta is not that of release_meta.parquet")
