"""kasuri series open | run | missing | revise | status | verify | report"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kasuri.cli import show

if TYPE_CHECKING:
    from kasuri.job import Job
    from kasuri.series import Series

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Tables slot after slot, for ever: one job file, each slot once."
)

JobArgument = Annotated[Path, typer.Argument(help="A job file with a table [series].", show_default=False)]


def _opened(path: Path) -> tuple[Job, Series]:
    from kasuri import job
    from kasuri.job import serial

    work = job.load(path)
    return work, serial.opened(work, path.parent)


@app.command("open")
def open_series(path: JobArgument, as_json: bool = show.JSON) -> None:
    """Open the ledger and the folder of a series, or check that they are what the job file says. Nothing is charged.

    Example: kasuri series open flow.toml
    """
    from kasuri import job
    from kasuri.job import serial

    series = serial.begin(job.load(path), path.parent)
    status = series.status()
    show.result(status, _told(status), as_json)


@app.command()
def run(
    path: JobArgument,
    slot: Annotated[str | None, typer.Option(help="This slot alone, by its start.")] = None,
    until: Annotated[str | None, typer.Option(help="No slot that starts after this one.")] = None,
    most: Annotated[int | None, typer.Option(help="At most so many slots.")] = None,
    threads: Annotated[int | None, typer.Option(help="Any number gives the same result.")] = None,
    as_json: bool = show.JSON,
) -> None:
    """Release every slot that has ended and is not paid for, oldest first. A slot that is paid for is left alone, so
    running it again does no harm: a timer calls it as often as it likes.

    Example: kasuri series run flow.toml
    """
    from kasuri.job import serial

    work, series = _opened(path)
    note, slots = "", serial.due(work, series, until)
    if slot is not None:
        index = series.window.index(slot)
        slots = [index]
        if index in series.ledger.paid_slots():
            shown = series.window.label(index)
            published = shown in series.labels()
            note = f"slot {shown} is paid for and {'published' if published else 'was lost'}; nothing was drawn"
            slots = []
    slots = slots if most is None else slots[: max(most, 0)]
    done = []
    with show.course(max(len(slots), 1)) as begin:
        for hour in serial.run(work, path.parent, series, slots, threads=threads, begun=begin):
            done.append({"slot": hour.slot, "release_id": hour.provenance["release_id"], "total": hour.total(),
                         "status": hour.status, "flags": len(hour.flags)})  # fmt: skip
    text = note or (f"{len(done)} slots released, the last one {done[-1]['slot']}" if done else "no slot is due")
    show.result({"released": done, "note": text, "published": len(series.labels())}, f"{path}: {text}", as_json)


@app.command()
def missing(
    path: JobArgument,
    slot: Annotated[str, typer.Option(help="The slot, by its start.", show_default=False)],
    reason: Annotated[str, typer.Option(help="The public fact that it follows from, in words.", show_default=False)],
    as_json: bool = show.JSON,
) -> None:
    """Say that a slot will not be published, for a public reason (a timetable, a notice of an outage), never because of
    what its rows show. Costs nothing; the slot cannot be released afterwards, and a run goes on with those after it.

    Example: kasuri series missing flow.toml --slot 2020-10-05T03:00+09:00 --reason "announced maintenance, 1 October"
    """
    _, series = _opened(path)
    series.declare_missing(slot, reason=reason)
    shown = series.window.label(series.window.index(slot))
    show.result({"slot": shown, "reason": reason}, f"{path}: slot {shown} is declared missing ({reason})", as_json)


@app.command()
def revise(
    path: JobArgument,
    first: Annotated[str, typer.Option(help="The first slot, by its start.", show_default=False)],
    last: Annotated[str, typer.Option(help="The last one.", show_default=False)],
    out: Annotated[Path, typer.Option(help="New folder.", show_default=False)],
    as_json: bool = show.JSON,
) -> None:
    """Estimate published slots once more, with those before and after them. Costs nothing; status "revised".

    Example: kasuri series revise flow.toml --first 2020-10-05T00:00+09:00 --last 2020-10-11T23:00+09:00 --out rev1
    """
    _, series = _opened(path)
    with show.step(f"revising {first} to {last}"):
        revised = series.revise(first, last)
        revised.save(out)
    told = {"folder": str(out), "slots": len(revised.labels), "status": "revised"}
    show.result(told, f"{out}: {len(revised.labels)} slots, revised; nothing was charged", as_json)


@app.command()
def status(path: JobArgument, as_json: bool = show.JSON) -> None:
    """What is published, paid, lost and missing, and what may be claimed.

    Example: kasuri series status flow.toml
    """
    from kasuri.job import serial

    work, series = _opened(path)
    found = series.status() | {"due": [series.window.label(at) for at in serial.due(work, series)][:24]}
    show.result(found, _told(found), as_json)


@app.command()
def verify(path: JobArgument, as_json: bool = show.JSON) -> None:
    """Compute every map and the state again from the published measurements, and compare; exit code 1 if one differs.

    Example: kasuri series verify flow.toml
    """
    _, series = _opened(path)
    with show.step("replaying the series"):
        found = series.verify()
    lines = [
        f"{path}: {found['slots']} slots, {'all follow' if found['ok'] else 'NOT all follow'} from the measurements"
    ]
    show.result(found, "\n  ".join([*lines, *found["faults"]]), as_json)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def report(
    path: JobArgument,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("series.html"),
    rows: Annotated[str | None, typer.Option(help="Rows of the place whose line is drawn, e.g. 0:8.")] = None,
    cols: Annotated[str | None, typer.Option(help="Its columns.")] = None,
    last: Annotated[int, typer.Option(help="So many slots, the last ones.")] = 168,
    as_json: bool = show.JSON,
) -> None:
    """One page about a series: maps with a slider, a place over time with its intervals, prices, departures, gaps.

    Example: kasuri series report flow.toml --rows 0:8 --cols 0:8 --out flow.html
    """
    from kasuri import files
    from kasuri.report.series import Maps
    from kasuri.report.series import series as page

    _, series = _opened(path)
    area = {name: _slice(text) for name, text in (("rows", rows), ("cols", cols)) if text is not None}
    line, flags, maps = [], [], []
    with show.step(f"reading at most {max(last, 1)} slots"):
        for hour in series.hours(last):
            maps.append((series.window.index(hour.slot), hour.cells, hour.values))
            held = hour.interval(**area)  # type: ignore[arg-type]
            line.append((hour.slot, held.value, held.lower, held.upper))
            where = [f"{one['cells']} cells from {one['corner']}, value {one['value']:,}" for one in hour.flags]
            flags += [(hour.slot, text) for text in where]
    if not maps:
        raise typer.BadParameter("no slot of this series is published yet")
    place = ", ".join(f"{name} {text}" for name, text in (("rows", rows), ("cols", cols)) if text) or "the whole area"
    shown = Maps(series.run.domain, series.window, maps)
    files.write(out, page(series.status(), place, line, flags[-200:], shown))
    show.result({"file": str(out), "slots": len(line)}, f"{out} written: {len(line)} slots", as_json)


def _slice(text: str) -> slice:
    start, _, end = text.partition(":")
    if not (start.isdecimal() and end.isdecimal()):
        raise typer.BadParameter("rows and columns are written as 0:8")
    return slice(int(start), int(end))


def _told(found: dict[str, Any]) -> str:
    lines = [f"{found['series']}: {found['claim']}"]
    lines += [f"  {row['span']:>5}  epsilon {row['epsilon']}" for row in found["prices"]]
    lines += ["  do not claim:", *(f"    - {one}" for one in found["must_not_be_claimed"])]
    lines.append(f"  published {found['published']}" + (f", last {found['last']}" if found["last"] else ""))
    for name in ("late", "lost", "due"):
        if found.get(name):
            lines.append(f"  {name}: {', '.join(found[name][:6])}{' ...' if len(found[name]) > 6 else ''}")
    lines += [f"  missing: {slot} ({why})" for slot, why in found["missing"].items()]
    return "\n".join(lines)
