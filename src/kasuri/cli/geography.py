"""kasuri geography: public maps between geographies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Public geographies: a grid and regions over it.")


@app.command("describe")
def describe(
    axis: str = typer.Argument(..., help="An axis with a place on earth: NAME=KIND(...), as --axis takes it."),
    as_json: bool = show.JSON,
) -> None:
    """What a geography is: cells by level, reference system, extent, and gaps between places. Reads public files only;
    every fault of them is named at once. Example:

    kasuri geography describe 'place=regions(@counties.geojson)'
    """
    from kasuri.errors import DomainError
    from kasuri.job.axes import parse

    with show.step("reading"):
        found = parse(axis).make(Path())
        if found.epsg is None and not found.level_names:
            raise DomainError(f"axis {found.name!r} has no place on earth and no levels")
        levels = {found.own_level or "cells": list(found.sizes)}
        levels |= {level: list(found.coarsened(level)[0].sizes) for level in found.level_names}
        gaps = found.gaps()
    data: dict[str, Any] = {"name": found.name, "levels": levels, "epsg": found.epsg, "gaps": gaps}
    data["extent"] = None if found.epsg is None else found.extent()
    lines = [f"{found.name}: " + ", ".join(f"{' x '.join(map(str, size))} of {name}" for name, size in levels.items())]
    if found.epsg is not None:
        lines.append(f"EPSG:{found.epsg}, west {{:g}}, south {{:g}}, east {{:g}}, north {{:g}}".format(*found.extent()))
    lines += [f"a gap around ({x:.6g}, {y:.6g}): {part:.2g} of the ground, in no place" for x, y, part in gaps[:10]]
    if len(gaps) > 10:
        lines.append(f"and {len(gaps) - 10} more gaps (--json lists them)")
    show.result(data, "\n".join(lines), as_json)


@app.command("match")
def match(
    grid: str = typer.Argument(..., help="A grid, mesh or hexagons: NAME=KIND(...) as --axis takes it, or a job file."),
    regions: str = typer.Argument(..., help="Places with shapes: NAME=regions(...), or a job file."),
    out: Path = typer.Option(..., "--out", help="The new .json file of the map."),
    as_json: bool = show.JSON,
) -> None:
    """The public map from the cells of a grid to regions: made once, saved, and named in a job file by [[maps]], so
    that areas of the released grid can be asked for by the names of the regions, and exported at their levels.

    A cell is in the region that holds its centre; where none does, in the one that covers most of it. Nothing but the
    two public geographies is read. Example:

    kasuri geography match 'grid=mesh(kanto)' 'municipality=regions(places="municipalities.topojson", code="code",
    crs="EPSG:6668", repair=true)' --out municipalities.json
    """
    from kasuri.schema.maps import match as matched

    cells, places = _axis(grid, flat=False), _axis(regions, flat=True)
    with show.step("matching") as told:
        found = matched(cells, places, progress=told)
    found.save(out)
    none, left = int((found.labels < 0).sum()), sorted(set(places.labels or ()) - set(found.regions))
    data = {
        "file": str(out), "axis": found.axis, "name": found.name, "cells": int(found.labels.size),
        "regions": found.count, "cells_without_region": none, "regions_without_cells": left,
        "sha256": found.fingerprint(),
    }  # fmt: skip
    text = (
        f"{out}: {data['cells']:,} cells of {found.axis} in {found.count:,} regions of {found.name}; {none:,} are "
        f"in no region; {len(left):,} regions have no cell and are left out (--json lists them).\n"
        "Use it in a job file:\n\n"
        f'[[maps]]\nfile = "{out}"'
    )
    show.result(data, text, as_json)


def _axis(text: str, *, flat: bool) -> Any:
    """An axis as it is written, or the one of a job file that is a list of places with shapes (flat) or a grid."""
    from kasuri import job
    from kasuri.errors import DomainError, PrivacyError, raise_faults
    from kasuri.job.axes import not_public, parse

    if "=" in text:
        return parse(text).make(Path())
    path = Path(text)
    work, base = job.load(path), path.parent
    secret = [fault for part in work.axes for fault in not_public(part, job.sources(work, base), base)]
    raise_faults(PrivacyError, secret)
    made = [part.make(base) for part in work.axes]
    kind = "regions" if flat else "a grid"
    found = [axis for axis in made if axis.epsg is not None and axis.holds_points == flat]
    if len(found) != 1:
        raise DomainError(f"{path}: {len(found)} of its axes are {kind} with a place on the map; write NAME=KIND(...)")
    return found[0]
