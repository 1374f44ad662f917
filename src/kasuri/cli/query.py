"""kasuri query and kasuri diff: numbers of published releases, with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show


def query(
    folder: Path = typer.Argument(..., help="The folder of a release."),
    area: str | None = typer.Option(None, "--area", help="A mesh code of the release's level or a coarser one."),
    rows: str | None = typer.Option(None, "--rows", help="FROM:TO, rows of the window (TO is not among them)."),
    cols: str | None = typer.Option(None, "--cols", help="FROM:TO, columns of the window."),
    where: list[str] = typer.Option([], "--where", help="AXIS=LABEL or AXIS=INDEX of another axis. Repeatable."),
    by: str | None = typer.Option(None, "--by", help="An axis: one line for each of its labels."),
    level: float = typer.Option(0.95, "--level", help="Confidence of the interval."),
    as_json: bool = show.JSON,
) -> None:
    """The released number of an area, and where the true one lies. It costs no budget: only what is published is read.

    Examples:

    kasuri query release --area 5339 --by age

    kasuri query release --rows 0:64 --cols 0:64 --where sex=female
    """
    import kasuri as ks
    from kasuri.errors import DomainError

    release = ks.Release.load(str(folder))
    names = {axis.name: axis for axis in release.domain.axes}
    wanted: dict[str, Any] = {"code": area, "rows": _span(rows, "--rows"), "cols": _span(cols, "--cols")}
    for part in where:
        name, found, label = part.partition("=")
        if not found:
            raise typer.BadParameter("AXIS=LABEL is needed", param_hint="--where")
        wanted[name] = label if name in names and names[name].labels else _whole(label)
    if by is not None and (by not in names or len(release.domain.positions(by)) != 1):
        known = ", ".join(name for name in names if len(release.domain.positions(name)) == 1)
        raise DomainError(f"--by {by}: not an axis with labels; choose among: {known or 'this table has none'}")
    cells = [(None, "")]
    if by is not None:
        shown = names[by].shown() or [str(i) for i in range(names[by].sizes[0])]
        cells = list(enumerate(shown))  # type: ignore[arg-type]
    lines = []
    for index, label in cells:
        asked = wanted if index is None else {**wanted, by: index}
        value = release.area(**asked)
        try:
            found_in = release.interval(level=level, **asked)
            limits: tuple[float | None, float | None] = (found_in.lower, found_in.upper)
        except DomainError:  # this recipe publishes no measurements
            limits = (None, None)
        lines.append({"label": label, "value": value, "lower": limits[0], "upper": limits[1]})
    width = max(len(label) for _, label in cells)
    text = "\n".join(f"{line['label']:<{width}}  {_words(line, level)}".strip() for line in lines)
    show.result({"folder": str(folder), "level": level, "rows": lines}, text, as_json)


def diff(
    first: Path = typer.Argument(..., help="The folder of a release."),
    second: Path = typer.Argument(..., help="The folder of another one."),
    top: int = typer.Option(10, "--top", min=0, help="How many of the largest changes are listed."),
    as_json: bool = show.JSON,
) -> None:
    """What two releases differ in: promise, recipe, total, and the cells that changed most. Exit code 1 if any number
    differs.

    A change is marked as more than noise where intervals that hold for all cells at once, with 95 % confidence, do not
    overlap. Example:

    kasuri diff release-2024 release-2025
    """
    import numpy as np

    import kasuri as ks

    sides = [ks.Release.load(str(folder)) for folder in (first, second)]
    facts = [
        {
            "promise": side.guarantee.words(),
            "recipe": side.recipe["name"],
            "data": side.provenance["data"] or "",
            "cells_not_0": side.non_zero,
            "total": side.total(),
        }
        for side in sides
    ]
    lines = [f"{name}: {facts[0][name]} -> {facts[1][name]}" for name in facts[0] if facts[0][name] != facts[1][name]]
    data: dict[str, Any] = {"first": facts[0], "second": facts[1], "changed": None, "largest": []}
    if sides[0].domain != sides[1].domain:
        lines.append("the domains differ, so cells are not compared")
    else:
        cells = np.union1d(sides[0].cells, sides[1].cells)
        values = np.zeros((2, cells.size), np.result_type(*(side.values for side in sides)))
        for at, side in enumerate(sides):
            values[at, np.searchsorted(cells, side.cells)] = side.values
        change = values[1] - values[0]
        data["changed"] = int(np.count_nonzero(change))
        lines.append(f"{data['changed']:,} of {sides[0].domain.size:,} cells have another number")
        for at in np.argsort(-np.abs(change), kind="stable")[:top]:
            if change[at] == 0:
                break
            entry = _change(sides, int(cells[at]), values[:, at].tolist())
            data["largest"].append(entry)
            mark = {True: "  more than noise", False: "", None: ""}[entry["apart"]]
            lines.append(f"  {entry['where']}: {entry['first']:,} -> {entry['second']:,}{mark}")
    same = data["changed"] == 0 and facts[0] == facts[1]
    show.result(data, "no difference" if same else "\n".join(lines), as_json)
    if not same:
        raise typer.Exit(1)


def _change(sides: list[Any], cell: int, values: list[Any]) -> dict[str, Any]:
    import numpy as np

    from kasuri.errors import DomainError

    domain = sides[0].domain
    index = domain.unravel(np.array([cell]))
    words = []
    for axis in domain.axes:
        made = axis.column([index[place] for place in domain.positions(axis.name)])
        shown = {"mesh_code": made["mesh_code"]} if "mesh_code" in made else made
        words += [f"{name} {column[0]}" for name, column in shown.items()]
    try:
        ends = [side.interval(cells=[cell], level=1 - 0.05 / (2 * domain.size)) for side in sides]
        apart: bool | None = bool(ends[0].upper < ends[1].lower or ends[1].upper < ends[0].lower)
    except DomainError:  # without intervals nothing is said
        apart = None
    return {"cell": cell, "where": ", ".join(words), "first": values[0], "second": values[1], "apart": apart}


def _words(line: dict[str, Any], level: float) -> str:
    if line["lower"] is None:
        return f"{line['value']:,} (this recipe has no intervals)"
    return f"{line['value']:,}, with {level:.0%} confidence between {line['lower']:,.0f} and {line['upper']:,.0f}"


def _span(text: str | None, option: str) -> slice | None:
    if text is None:
        return None
    low, found, high = text.partition(":")
    if not found or not (low + high).isdigit() or not low or not high:
        raise typer.BadParameter("two whole numbers such as 0:64 are needed", param_hint=option)
    return slice(int(low), int(high))


def _whole(text: str) -> int | str:
    return int(text) if text.isdigit() else text
