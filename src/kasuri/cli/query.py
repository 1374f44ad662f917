"""kasuri query and kasuri diff: numbers of published releases, with their intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kasuri.cli import show

if TYPE_CHECKING:
    from kasuri import Release
    from kasuri.published.questions import Answer, Quantile, Ranking
    from kasuri.schema import Domain


def query(
    folder: Path = typer.Argument(..., help="The folder of a release."),
    area: str | None = typer.Option(None, "--area", help="A mesh code of the release's level or a coarser one."),
    rows: str | None = typer.Option(None, "--rows", help="FROM:TO, rows of the window (TO is not among them)."),
    cols: str | None = typer.Option(None, "--cols", help="FROM:TO, columns of the window."),
    where: list[str] = typer.Option(
        [], "--where", help="AXIS=LABEL or AXIS=INDEX of another axis, MAP=REGION of a map. Repeatable."
    ),
    by: str | None = typer.Option(None, "--by", help="An axis or a map: one line for each of its labels or regions."),
    over: Path | None = typer.Option(
        None, "--map", help="A map of kasuri geography match to ask by, where the release has none."
    ),
    quantile: str | None = typer.Option(
        None, "--quantile", help="AXIS or AXIS:0.25,0.5: quantiles along an ordered axis; the median unless said."
    ),
    mean: str | None = typer.Option(None, "--mean", help="The mean of an ordered axis whose labels are numbers."),
    share: bool = typer.Option(False, "--share", help="The part of the whole table that lies in the area."),
    average: Path | None = typer.Option(
        None, "--average", help="FOLDER is of sums: the mean amount, over the counts of this release (its folder)."
    ),
    since: Path | None = typer.Option(None, "--since", help="The change since an earlier release (its folder)."),
    rank: str | None = typer.Option(None, "--rank", help="An axis: its labels from the largest count down."),
    top: int | None = typer.Option(None, "--top", min=1, help="With --rank: so many of the largest."),
    level: float = typer.Option(0.95, "--level", help="Confidence of the interval."),
    as_json: bool = show.JSON,
) -> None:
    """The released number of an area, or what follows from such numbers, and where the true one lies. It costs no
    budget: only what is published is read.

    Examples:

    kasuri query release --area 5339 --by age

    kasuri query release --rows 0:64 --cols 0:64 --where sex=female

    kasuri query release --where municipality=府中市

    kasuri query release --map wards.json --by ward

    kasuri query release --quantile age:0.25,0.5,0.75 --by county

    kasuri query release --rank county --top 10
    """
    import kasuri as ks
    from kasuri.schema import ELSEWHERE

    asked = [one for one in (quantile, mean, rank, since, average) if one is not None] + [share] * share
    if len(asked) > 1:
        raise typer.BadParameter("one question at a time: --quantile, --mean, --average, --share, --since or --rank")
    if (top is not None and rank is None) or (rank is not None and by is not None):
        raise typer.BadParameter("--top goes with --rank, and --rank without --by")
    release = ks.Release.load(str(folder))
    if over is not None:
        maps = (*release.domain.maps, ks.RegionMap.load(over))
        release = replace(release, domain=replace(release.domain, maps=maps))
    names = {axis.name: axis for axis in release.domain.axes}
    wanted: dict[str, Any] = {"code": area, "rows": _span(rows, "--rows"), "cols": _span(cols, "--cols")}
    for part in where:
        name, found, label = part.partition("=")
        if not found:
            raise typer.BadParameter("AXIS=LABEL is needed", param_hint="--where")
        mapped = release.domain.map(name) is not None
        own = names.get(name)
        said = own is not None and (own.labels is not None or (own.elsewhere and label == ELSEWHERE))
        wanted[name] = label if mapped or said else _whole(label)
    if rank is not None:
        _ranking(release.rank(rank, level=level, **wanted), top, folder, as_json)
        return
    places = [(wanted, "")]
    if by is not None:
        places = [({**wanted, by: index}, label) for index, label in _each(release.domain, by)]
    question = _question(release, quantile, mean, share, since, average, level)
    answers = [(label, line, words) for asked, label in places for line, words in question(asked)]
    width = max(len(label) for label, _, _ in answers)
    text = "\n".join(f"{label:<{width}}  {words}".strip() for label, _, words in answers)
    lines = [{"label": label, **line} for label, line, _ in answers]
    show.result({"folder": str(folder), "level": level, "rows": lines}, text, as_json)


def _each(domain: Domain, by: str) -> list[tuple[Any, str]]:
    """What is asked for, and its label, along an axis or for the regions of a map."""
    from kasuri.errors import DomainError

    over = domain.map(by)
    if over is not None:
        shown = None if over.places is None else over.places.shown()
        return list(zip(over.codes, shown or over.codes, strict=True))
    names = [axis.name for axis in domain.axes if len(axis.sizes) == 1]
    if by not in names:
        known = ", ".join((*names, *(one.name for one in domain.maps)))
        raise DomainError(f"--by {by}: not an axis with labels; choose among: {known or 'this table has none'}")
    axis = domain.axis(by)
    return list(enumerate(axis.shown() or [str(i) for i in range(axis.sizes[0])]))


Told = list[tuple[dict[str, Any], str]]


def _question(
    release: Release,
    quantile: str | None,
    mean: str | None,
    share: bool,
    since: Path | None,
    average: Path | None,
    level: float,
) -> Callable[[dict[str, Any]], Told]:
    """What is asked of each area: lines for a machine, and in words."""
    import kasuri as ks

    if quantile is not None:
        axis, _, numbers = quantile.partition(":")
        parts = _numbers(numbers or "0.5", "--quantile")

        def quantiles(asked: dict[str, Any]) -> Told:
            return [(asdict(one), _quantile_words(one)) for one in release.quantile(axis, parts, level=level, **asked)]

        return quantiles
    if since is not None:
        earlier = ks.Release.load(str(since))
        return lambda asked: _answer(release.change(earlier, level=level, **asked))
    if average is not None:
        counts = ks.Release.load(str(average))
        return lambda asked: _answer(release.average(counts, level=level, **asked))
    if mean is not None:
        return lambda asked: _answer(release.mean(mean, level=level, **asked))
    if share:
        return lambda asked: _answer(release.share(ks.Area(**asked), level=level))
    return lambda asked: _count(release, asked, level)


def _count(release: Release, asked: dict[str, Any], level: float) -> Told:
    from kasuri.errors import DomainError

    line: dict[str, Any] = {"value": release.area(**asked), "lower": None, "upper": None}
    try:
        found = release.interval(level=level, **asked)
        line |= {"lower": found.lower, "upper": found.upper}
    except DomainError:  # this recipe publishes no measurements
        pass
    return [(line, _words(line, level))]


def _answer(found: Answer) -> Told:
    said = "not settled" if found.value is None else f"{found.value:,.6g}"
    words = f"{said}, with {found.level:.0%} confidence between {found.lower:,.6g} and {found.upper:,.6g}"
    line = asdict(found)
    if found.upper == float("inf"):
        line["upper"] = None
    return [(line, words)]


def _quantile_words(one: Quantile) -> str:
    ends = f"between {one.lower_label} and {one.upper_label}"
    return f"{one.q:g} quantile: {one.label}, with {one.level:.0%} confidence {ends}"


def _ranking(found: Ranking, top: int | None, folder: Path, as_json: bool) -> None:
    """The ranks that areas may have, and which are sure to be among the largest."""
    ranks = found.ranks if top is None else tuple(rank for rank in found.ranks if rank.best <= top)
    width = max(len(rank.name) for rank in ranks)
    lines = [
        f"{rank.name:<{width}}  {rank.value:,.0f} ({rank.lower:,.0f} to {rank.upper:,.0f}), "
        + (f"rank {rank.best}" if rank.best == rank.worst else f"rank {rank.best} to {rank.worst}")
        for rank in ranks
    ]
    data: dict[str, Any] = {"folder": str(folder), "level": found.level, "rows": [asdict(rank) for rank in ranks]}
    if top is None:
        data["groups"] = [list(group) for group in found.groups]
        lines.append(f"groups in certified order, all pairs together with {found.level:.0%} confidence: "
                     + " > ".join(", ".join(group) for group in found.groups))  # fmt: skip
    else:
        sure, maybe = found.top(top)
        data |= {"sure": list(sure), "maybe": list(maybe)}
        lines.append(f"among the {top} largest, with {found.level:.0%} confidence for all together: "
                     f"{', '.join(sure) or 'none for sure'}; possibly: {', '.join(maybe) or 'no other'}")  # fmt: skip
    show.result(data, "\n".join(lines), as_json)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter("numbers from 0 to 1 such as 0.25,0.5 are needed", param_hint=option) from None


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
