"""One release to one file or database, by the target's name. Each writer opens a fresh connection that never saw
Counts, and writes in one transaction (databases) or aside and renamed (files)."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kasuri import files, names
from kasuri.errors import DomainError
from kasuri.published.protected import Protected
from kasuri.schema import Axis, Domain
from kasuri.store import duck, outline, postgres, sqlite, workbook
from kasuri.store.columns import all_tables, domains, has_outline, level_of, may_leave, no_place, own_level, the_place

KINDS = (".csv", ".xlsx", ".parquet", ".geojson", ".gpkg", ".sqlite", ".duckdb")
_MAPS = (".parquet", ".geojson", ".gpkg")


def export(release: Protected, target: str | Path, levels: Sequence[str] = (), *, unmetered: bool = False) -> None:
    """Write `release` (and its sums at `levels`) to `target`: a file by its ending, or a postgresql:// address."""
    may_leave(release, unmetered)
    if str(target).startswith(("postgresql://", "postgres://")):
        postgres.write(release, str(target), levels)
        return
    path = Path(target)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise DomainError(f"{path}: a file ending in {', '.join(KINDS)} or a postgresql:// address is needed")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if kind == ".csv":
            _files(path, all_tables(release, levels), _csv)
        elif kind == ".xlsx":
            with files.whole(path, new=True) as aside:
                # as text until somebody edits the cell, or saves the sheet as CSV
                own = {name: names.cells(table) for name, table in all_tables(release, levels).items()}
                workbook.write(own, aside)
        elif kind == ".parquet":
            told = release.provenance.get("about")
            tables = _placed(release, levels, lambda table, place: _geo(table, place, told))
            _files(path, tables, _parquet)
        elif kind == ".geojson":
            _files(path, _placed(release, levels, outline.geojson), lambda text, part: _bytes(part, text))
        elif kind == ".duckdb":
            duck.append(release, path, levels)
        else:
            sqlite.write(release, path, levels, map_format=kind == ".gpkg")
    except OSError as error:
        raise DomainError(
            f"{path}: not written ({error.strerror or error or type(error).__name__}); nothing was kept"
        ) from None


def _placed(release: Protected, levels: Sequence[str], make: Callable[[Any, Axis], Any]) -> dict[str, Any]:
    """What `make` makes of every table with outlines and of the axis that these are of."""
    own = domains(release.domain, levels)
    places = {name: the_place(domain if has_outline(domain) else release.domain) for name, domain in own.items()}
    return {name: make(table, places[name]) for name, table in all_tables(release, levels, geometry=True).items()}


def export_faults(domain: Domain, targets: Sequence[str], levels: Sequence[str]) -> list[str]:
    """What `export` of any release over `domain` would refuse, knowable before the data is read."""
    faults = [f"{target}: named twice" for target in dict.fromkeys(targets) if targets.count(target) > 1]
    good = True  # whether the tables can be made at all, so that those in a database can be compared with them
    if targets and levels:
        try:
            for level in levels:
                if not own_level(domain, level):
                    level_of(domain, level)
        except DomainError as error:
            faults += error.faults
            good = False
    for target in dict.fromkeys(targets):
        if target.startswith(("postgresql://", "postgres://")):
            faults += postgres.faults(target, domain, levels) if good else []
            continue
        path = Path(target)
        kind = path.suffix.lower()
        if kind not in KINDS:
            faults.append(f"{path}: a file ending in {', '.join(KINDS)} or a postgresql:// address is needed")
        if not _writable(path):
            faults.append(f"{path}: nothing can be written there")
        if kind in _MAPS and (why := no_place(domain)) is not None:
            faults.append(f"{path}: {why}")
        if kind in (".csv", ".geojson", ".parquet"):
            parts = ["release", "release_meta", *(f"release_{level}" for level in levels)]
            taken = [str(file) for file in _targets(path, parts).values() if file.exists()]
            faults += [f"{file} exists; a release is never written over another" for file in taken]
        elif path.is_dir():
            faults.append(f"{path}: a folder; name a file")
        elif kind == ".xlsx" and path.exists():
            faults.append(f"{path} exists; a release is never written over another")
        elif kind == ".duckdb" and good:
            faults += duck.faults(path, domain, levels)
        elif good and (kind == ".sqlite" or (kind == ".gpkg" and has_outline(domain))):
            faults += sqlite.faults(path, domain, levels, map_format=kind == ".gpkg")
    return faults


def adds(target: str) -> bool:
    """Does an export there join the releases that it holds? Other files hold one release."""
    return "://" in target or Path(target).suffix.lower() in (".duckdb", ".sqlite", ".gpkg")


def finished(target: str, levels: Sequence[str]) -> bool:
    """After a crash: whether the files of one release are all there. What is there without the table of values, which
    comes last, is taken away."""
    path = Path(target)
    if path.is_file():
        return True
    for part in _targets(path, ["release_meta", *(f"release_{level}" for level in levels)]).values():
        part.unlink(missing_ok=True)
    return False


def _writable(path: Path) -> bool:
    """Whether the file, or the nearest folder above it that is there, may be written to."""
    place = path if path.exists() else next((folder for folder in path.absolute().parents if folder.exists()), path)
    return os.access(place, os.W_OK) and (place == path or place.is_dir())


def _targets(path: Path, tables: Iterable[str]) -> dict[str, Path]:
    return {name: path.with_name(f"{path.stem}{name.removeprefix('release')}{path.suffix}") for name in tables}


def _files(path: Path, tables: dict[str, Any], write: Callable[[Any, Path], None]) -> None:
    """One file per table beside each other: x.csv, x_1km.csv, x_meta.csv; an existing one is refused."""
    targets = _targets(path, tables)
    taken = [str(target) for target in targets.values() if target.exists()]
    if taken:
        raise DomainError(f"{', '.join(taken)} exists; a release is never written over another")
    mark = secrets.token_hex(8)
    parts = {name: target.with_name(f".{target.name}.{mark}.part") for name, target in targets.items()}
    placed: list[Path] = []
    try:
        for name, table in tables.items():
            write(table, parts[name])
            files.sync(parts[name])
        for name in reversed(list(tables)):  # the table of values last: where it is there, all the others are
            files.place(parts[name], targets[name])  # refuses to replace what appeared meanwhile
            placed.append(targets[name])
    except BaseException:
        for target in placed:
            target.unlink(missing_ok=True)
        raise
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _csv(table: Any, path: Path) -> None:
    from pyarrow import csv

    with path.open("xb") as file:
        file.write(b"\xef\xbb\xbf")  # spreadsheets read UTF-8 only with a mark
        csv.write_csv(names.cells(table), file)


def _parquet(table: Any, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path, compression="zstd", row_group_size=1 << 20)


def _bytes(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _geo(table: Any, place: Axis, told: Mapping[str, str] | None) -> Any:
    """GeoParquet 1.1: the key `geo` of the file's metadata describes the outline column; `about` holds what the
    publisher says of it, where anything is said."""
    if "geom" not in table.column_names:
        return table
    column = {
        "encoding": "WKB",
        "geometry_types": [place.outline_type],
        "crs": outline.projjson(place.where() or ""),
        "orientation": "counterclockwise",
    }
    about = {"version": "1.1.0", "primary_column": "geom", "columns": {"geom": column}}
    said = {} if told is None else {"about": json.dumps(dict(told), ensure_ascii=False)}
    return table.replace_schema_metadata({"geo": json.dumps(about)} | said)
