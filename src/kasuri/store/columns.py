"""One schema everywhere: release(release_id, cell, mesh_code, row, col, other axes, value, lower, upper) and
release_meta; release_<level> holds sums at a coarser level."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.privacy import written
from kasuri.published import intervals
from kasuri.published.measurements import Measurements
from kasuri.published.protected import NO_LEDGER, Described, Protected
from kasuri.schema import Axis, Domain
from kasuri.schema.maps import RegionMap
from kasuri.trees.regions import MOST_CELLS, Boxes, Sets


def may_leave(release: Described, unmetered: bool) -> None:
    """Refuse to write a seeded release, or one without a ledger unless `unmetered` says that this is meant."""
    if not release.provenance["secure"]:
        raise PrivacyError("a seeded release is for tests: it cannot be saved. Release again with source=secure()")
    if NO_LEDGER in release.guarantee.assumes and not unmetered:
        raise PrivacyError("this release was charged to no ledger; save(..., unmetered=True) publishes it all the same")
    if release.receipt is None and release.provenance.get("ledger") is not None:
        raise PrivacyError(
            "this release names a ledger but carries no receipt, so the ledger cannot be charged: save what release() "
            "returned"
        )


def release_table(release: Protected, *, geometry: bool = False) -> Any:
    """The released cells as an Arrow table, sorted by cell. `row` and `col` count from the window's corner; `lower` and
    `upper` are the ends of the 95 % interval, null where none can be made; `geometry` adds the outline as WKB where
    cells have one, and leaves out the cell elsewhere, which has none."""
    release_id = release.provenance["release_id"]
    return cell_table(release.domain, release.cells, release.values, release_id, geometry, intervals.columns(release))


def cell_table(
    domain: Domain,
    cells: Int,
    values: NDArray[Any],
    release_id: str,
    geometry: bool,
    limits: tuple[Float, Float] | None,
) -> Any:
    """`release_table` of any cells of any domain, with the limits of each."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "release_id": pa.array([release_id]).take(pa.array(np.zeros(cells.size, np.int32))),
        "cell": pa.array(cells),
    }
    index = domain.unravel(cells)
    for axis in domain.axes:
        made = axis.column([index[place] for place in domain.positions(axis.name)])
        columns |= {f"{domain.prefix(axis)}{name}": column for name, column in made.items()}
    columns["value"] = pa.array(values)
    for at, name in enumerate(("lower", "upper")):
        columns[name] = pa.nulls(cells.size, pa.float64()) if limits is None else pa.array(limits[at])
    table = pa.table(columns)
    if not geometry or not has_outline(domain):
        return table
    place = the_place(domain)
    own = [index[d] for d in domain.positions(place.name)]
    inside = place.inside(own)
    shapes = place.outlines([part[inside] for part in own])
    return table.filter(pa.array(inside)).append_column("geom", shapes)


def no_place(domain: Domain) -> str | None:
    """Why cells of `domain` have no place on the map; None where they have."""
    placed = [axis.name for axis in domain.axes if axis.epsg is not None]
    if len(placed) == 1:
        return None
    meshes = domain.planes
    if len(meshes) == 1 and not placed:
        return (
            f"the rows and columns of {meshes[0].name!r} have no place on the map, so there is no map format and no "
            'coarser level; declare the mesh level they count in (level = "500m", --level 500m), with the origin in '
            "cells of that level, or write .csv, .sqlite or .duckdb"
        )
    return f"a map format needs one mesh, or one axis of places; this domain has {len(placed) or len(meshes) or 'none'}"


def the_place(domain: Domain) -> Axis:
    """The one axis whose cells have a place on the map."""
    why = no_place(domain)
    if why is not None:
        raise DomainError(why)
    return next(axis for axis in domain.axes if axis.epsg is not None)


def has_outline(domain: Domain) -> bool:
    return no_place(domain) is None


def level_of(domain: Domain, level: str) -> tuple[Axis, RegionMap | None]:
    """The one axis that has a coarser level of this name, by itself or by the places of a map over it; refused with the
    names there are."""
    found: list[tuple[Axis, RegionMap | None]] = [(axis, None) for axis in domain.axes if level in axis.level_names]
    over = [(domain.axis(one.axis), one, one.places) for one in domain.maps if one.places is not None]
    found += [(axis, one) for axis, one, places in over if level in (places.own_level, *places.level_names)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DomainError(
            f"level {level}: {len(found)} axes or maps have one of that name, so it is not clear which is meant"
        )
    known = [name for axis in domain.axes for name in axis.level_names]
    known += [name for _, _, places in over for name in (places.own_level or "", *places.level_names)]
    if domain.planes and not known:
        the_place(domain)  # says why a mesh has none
    raise DomainError(f"level {level} is not made of whole cells of an axis; there are {', '.join(known) or 'none'}")


def own_level(domain: Domain, level: str) -> bool:
    """Is `level` that of the cells themselves?"""
    return level in [axis.own_level for axis in domain.axes]


def coarser_domain(domain: Domain, level: str) -> Domain:
    fine, over = level_of(domain, level)
    coarse = fine.coarsened(level)[0] if over is None else _regions(over, level)[0]
    return Domain(tuple(coarse if axis is fine else axis for axis in domain.axes))


def domains(domain: Domain, levels: Sequence[str]) -> dict[str, Domain]:
    """The domain of every table of `all_tables`."""
    finer = {f"release_{level}": coarser_domain(domain, level) for level in levels if not own_level(domain, level)}
    return {"release": domain, **finer, "release_meta": domain}


def _regions(over: RegionMap, level: str) -> tuple[Axis, Int]:
    """The places of a map at a level, and the one of them that each cell of the map's axis is in, or -1."""
    assert over.places is not None
    if level == over.places.own_level:
        return over.places, over.labels
    coarse, ((first, _),) = over.places.coarsened(level)
    return coarse, np.searchsorted(first, over.labels, side="right") - 1  # -1 stays


def _by_region(release: Protected, fine: Axis, over: RegionMap, level: str) -> tuple[Domain, Int, NDArray[Any], Sets]:
    """`coarser` to the regions of a map. Cells in no region are in no row."""
    own, domain = release.domain, coarser_domain(release.domain, level)
    region = _regions(over, level)[1]
    places, at = own.positions(fine.name), own.positions(fine.name)[0]

    def moved(cells: Int) -> tuple[Int, Int]:
        """Those of the cells that are in a region, and the cell of that region."""
        index = list(own.unravel(cells))
        to = region[np.ravel_multi_index([index[d] for d in places], fine.sizes)]
        index[at : at + len(places)] = [to]
        return cells[to >= 0], domain.ravel([part[to >= 0] for part in index])

    kept, to = moved(release.cells)
    cells, place = np.unique(to, return_inverse=True)
    values = np.zeros(cells.size, dtype=release.values.dtype)
    np.add.at(values, place, release.values[np.searchsorted(release.cells, kept)])
    cells, values = cells[values != 0], values[values != 0]
    if own.size > MOST_CELLS or not cells.size:
        return domain, cells, values, Sets(cells[:0], cells[:0], 0)
    whole = np.arange(own.size)
    every, to = moved(whole[own.possible(whole)])
    number = np.minimum(np.searchsorted(cells, to), cells.size - 1)
    there = cells[number] == to
    return domain, cells, values, Sets(every[there], number[there], cells.size)


def coarser(release: Protected, level: str) -> tuple[Domain, Int, NDArray[Any], Boxes | Sets]:
    """The release summed to a coarser level: domain, cells, values, and the cells of the release each is made of (none
    where they are too many to be told one by one). A coarse cell that the window cuts holds the part inside the window,
    so that every level of an axis has the same total."""
    fine, over = level_of(release.domain, level)
    if over is not None:
        return _by_region(release, fine, over, level)
    spans = fine.coarsened(level)[1]
    places = release.domain.positions(fine.name)
    domain = coarser_domain(release.domain, level)
    index = list(release.domain.unravel(release.cells))
    for d, (first, _) in zip(places, spans, strict=True):
        index[d] = np.searchsorted(first, index[d], side="right") - 1
    cells, place = np.unique(domain.ravel(index), return_inverse=True)
    values = np.zeros(cells.size, dtype=release.values.dtype)
    np.add.at(values, place, release.values)
    cells, values = cells[values != 0], values[values != 0]
    low = np.column_stack(domain.unravel(cells))
    high = low + 1
    for d, (first, last) in zip(places, spans, strict=True):
        low[:, d], high[:, d] = first[low[:, d]], last[low[:, d]]
    return domain, cells, values, Boxes(low, high)


def all_tables(release: Protected, levels: Sequence[str] = (), *, geometry: bool = False) -> dict[str, Any]:
    """Tables by name: release, release_<level> for every coarser level asked for, release_meta."""
    release_id = release.provenance["release_id"]
    tables = {"release": release_table(release, geometry=geometry)}
    for level in dict.fromkeys(levels):
        if not own_level(release.domain, level):
            domain, cells, values, areas = coarser(release, level)
            limits = intervals.columns(release, areas, values) if areas.count == cells.size else None
            tables[f"release_{level}"] = cell_table(domain, cells, values, release_id, geometry, limits)
    left = geometry and has_outline(release.domain) and the_place(release.domain).elsewhere
    tables["release_meta"] = meta_table(release, absent=LEFT_OUT if left else "0")
    return tables


LEFT_OUT = "0, but for the cell elsewhere: it has no outline and is left out here"


def shapes(domain: Domain, levels: Sequence[str], *, geometry: bool) -> dict[str, Any]:
    """The tables of `all_tables` without rows, of any release over `domain`; only the type of `value` may differ."""
    import pyarrow as pa

    none = np.zeros(0, np.int64)
    tables = {name: cell_table(own, none, none, "", geometry, None) for name, own in domains(domain, levels).items()}
    tables["release_meta"] = pa.table({name: pa.array([], type=pa.string()) for name in META})
    return tables


OTHER_COLUMNS = "{}: its table {} has other columns than this release; use a new file"


def other_columns(there: Sequence[tuple[str, str]], own: Sequence[tuple[str, str]], *, value: bool = True) -> bool:
    """Whether a table that is there has other columns (name, type); `value` says that the type of `value` counts."""
    plain = [[(name, "" if name == "value" and not value else kind) for name, kind in side] for side in (there, own)]
    return bool(there) and plain[0] != plain[1]


META = (
    "release_id", "data", "model", "epsilon", "delta", "unit", "recipe", "guarantee", "provenance", "domain",
    "absent_cells",
)  # fmt: skip


def meta_table(release: Described, absent: str = "0") -> Any:
    """One row: what the release is, in text a database can show, and what cells without a row were released as."""
    import pyarrow as pa

    guarantee = release.guarantee.to_json()
    row = {
        "release_id": release.provenance["release_id"],
        "data": release.provenance["data"] or "",
        "model": guarantee["model"],
        "epsilon": guarantee["epsilon"],
        "delta": guarantee["delta"],
        "unit": release.guarantee.unit.words(),
        "recipe": json.dumps(dict(release.recipe)),
        "guarantee": json.dumps(guarantee),
        "provenance": json.dumps(dict(release.provenance)),
        "domain": json.dumps(release.domain.to_json()),
        "absent_cells": absent,
    }
    return pa.table({name: pa.array([row[name]], type=pa.string()) for name in META})


def measurements_table(release: Protected) -> Any | None:
    """The noisy numbers the release was made of, or None where a recipe publishes none."""
    return None if release.measurements is None else measured_table(release.measurements)


def measured_table(measured: Measurements) -> Any:
    """Noisy numbers, sorted by level and prefix, as an Arrow table."""
    import pyarrow as pa

    levels = np.unique(measured.level)
    at = np.searchsorted(levels, measured.level)
    scale = pa.array([str(measured.scale[level]) for level in levels.tolist()], pa.string()).take(pa.array(at))
    return pa.table(
        {
            "level": pa.array(measured.level.astype(np.int32)),
            "prefix": pa.array(measured.prefix),
            "value": pa.array(measured.value),
            "scale": scale,
        }
    )


def measurements_from(table: Any) -> Measurements:
    """The inverse of `measurements_table`."""
    kinds = {name: str(table[name].type).removeprefix("large_") for name in ("level", "prefix", "value", "scale")}
    if kinds != {"level": "int32", "prefix": "int64", "value": "int64", "scale": "string"}:
        raise FormatError("measurements: a column has another type than measurements have")
    level = table["level"].to_numpy().astype(np.int64)
    first = np.unique(level, return_index=True)
    scales = table["scale"].take(first[1]).to_pylist()
    scale = {at: written(text) for at, text in zip(first[0].tolist(), scales, strict=True)}
    return Measurements(level, table["prefix"].to_numpy(), table["value"].to_numpy(), scale)
