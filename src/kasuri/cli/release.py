"""kasuri release: a table of counts, or records -> a protected table in a new folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from kasuri.cli import options, show


def release(
    context: typer.Context,
    table: Path = typer.Argument(
        ..., help="A job file (.toml), or CSV, Excel or Parquet: one row per cell, or records."
    ),
    out: Path | None = typer.Option(None, "--out", help="New folder for the release."),
    epsilon: str | None = typer.Option(None, "--epsilon", help='Privacy loss, such as "0.1"; above 20: "25 weak".'),
    unit: options.UnitId = None,
    change: options.Change = None,
    max_cells: options.MaxCells = None,
    max_weight: options.MaxWeight = None,
    count: options.Count = None,
    window: options.Window = None,
    level: options.Level = None,
    origin: options.Origin = None,
    shape: options.Shape = None,
    mask: options.Mask = None,
    axis: options.Axes = None,
    code: options.Code = None,
    row: options.Row = None,
    col: options.Col = None,
    lat: options.Lat = None,
    lon: options.Lon = None,
    column: options.Places = None,
    recipe: options.Recipe = "best",
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    add: options.Add = False,
    data: str | None = typer.Option(None, "--data", help='Declared name of the data, e.g. "census-2020".'),
    export: list[str] = typer.Option([], "--export", help="Also write x.csv, .xlsx, .parquet, .gpkg, .sqlite, ..."),
    levels: str = typer.Option("", "--levels", help="Coarser levels for the exports, e.g. 1km,10km."),
    ledger: list[Path] | None = typer.Option(None, "--ledger", help="The budget that pays (see kasuri ledger open)."),
    unmetered: bool = typer.Option(False, "--unmetered", help="Release without a ledger, and say so."),
    sign: Path | None = typer.Option(None, "--sign", help="Private key to sign with (see kasuri keygen)."),
    threads: int | None = typer.Option(None, "--threads", help="Threads; the result does not depend on it."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Judge everything but the data, charge nothing, stop."),
    as_json: bool = show.JSON,
) -> None:
    """Publish a table of counts on a mesh, or records, with differential privacy.

    The window is always given, never taken from the file. A recipe's arguments go in brackets, as in a job file; a
    table named there is declared public. Examples:

    kasuri release job.toml

    kasuri release census.csv --window kanto --code mesh_code --count population --unit person
    --change add-remove --max-cells 1 --epsilon 0.1 --data census-2020 --ledger census.ledger --out release
    --recipe 'bayes_tree(prior={file="census-2015.csv", public="census-2015"})'

    kasuri release visits.csv --axis 'ward=nominal(@wards.csv)' --axis 'hour=time(2020-10-01T00:00,3600,24)'
    --column hour=at --unit person --change add-remove --max-cells 1 --epsilon 0.5 --unmetered --out release
    --recipe 'haar_topdown(transform="nominal")'
    """
    if table.suffix.lower() == ".toml":
        options.alone(context, "table", "threads", "dry_run", "as_json")
        _job(table, threads, dry_run, as_json)
        return
    asked = options.asked(context, table, "out", "epsilon")
    assert out is not None and asked.read is not None and epsilon is not None
    if len(ledger or ()) > 1:
        raise typer.BadParameter("one release is paid by one ledger", param_hint="--ledger")
    if bool(ledger) == unmetered:
        raise typer.BadParameter("say who pays: --ledger FILE, or --unmetered for a release charged to no ledger")
    if ledger and data is None:
        raise typer.BadParameter("a ledger pays for one data set: name it with --data")
    if os.path.lexists(out):
        raise typer.BadParameter(f"{out} exists; a release is never written over another", param_hint="--out")

    import kasuri as ks
    from kasuri import privacy
    from kasuri.manifest import keys
    from kasuri.store import ready

    mechanism = asked.one_recipe(recipe)
    mechanism.guarantee(asked.domain, asked.unit, privacy.asked(epsilon))  # refuses before the file is read
    sums = [part for part in levels.split(",") if part]
    if export:
        from kasuri.job import judge_exports

        judge_exports(asked.domain, export, sums)
    book = ks.Ledger.load(ledger[0]) if ledger else None
    if sign is not None:
        keys.private(sign)  # readable, before anything is charged
    ready(out)  # and writable
    if dry_run:
        _rehearsed(asked.domain, asked.unit, mechanism, epsilon, book, as_json)
        return
    with show.step(f"reading {table}") as progress:
        counts = asked.read(progress=progress, away=[out])
    with show.step(f"releasing {asked.domain.size:,} cells"):
        released = ks.release(counts, mechanism, epsilon=epsilon, ledger=book, threads=threads)
    with show.step(f"writing {out}"):
        released.save(str(out), unmetered=unmetered, sign=None if sign is None else str(sign))
        for target in export:
            released.export(target, levels=sums, unmetered=True)
    show.result(summary(released, out), describe(released, out), as_json)


def _rehearsed(
    domain: Any, unit: Any, mechanism: Any, epsilon: Any, book: Any, as_json: bool, judged: Any = None
) -> None:
    """What a release would promise and cost; nothing was read, nothing is charged."""
    from kasuri import privacy

    loss = privacy.asked(epsilon)
    guarantee = mechanism.guarantee(domain, unit, loss)
    left = None if book is None else book.balance().to_json()
    data = {"dry_run": True, "cells": domain.size, "guarantee": guarantee.to_json(), "ledger": left}
    paid = "no ledger pays" if left is None else f"the ledger has {_left(left)}"
    text = f"dry run: {domain.size:,} cells, {guarantee.words()}.\n  {paid}. No row was read and nothing was charged."
    if judged is not None:
        text, data = f"{text}\n{judged.table()}", data | {"acceptance": judged.to_json()}
    show.result(data, text, as_json)


def _job(path: Path, threads: int | None, dry_run: bool, as_json: bool) -> None:
    from kasuri import job

    work = job.load(path)
    if dry_run:
        recipe, book, judged = job.rehearse(work, path.parent)
        facts = job.domain(work, path.parent), job.unit(work), recipe
        _rehearsed(*facts, work.budget.epsilon, book, as_json, judged)
        return
    out = path.parent / work.output.folder
    with show.step(f"running {path}") as progress:
        released = job.run(work, path.parent, threads=threads, progress=progress)
    show.result(summary(released, out), describe(released, out), as_json)


def summary(released: Any, out: Path) -> dict[str, Any]:
    """A release in a few public numbers."""
    return {
        "release_id": released.provenance["release_id"],
        "folder": str(out),
        "cells": released.domain.size,
        "non_zero": int(released.non_zero),
        "total": released.total(),
        "total_is_in": _counted(released),
        "recipe": dict(released.recipe),
        "guarantee": released.guarantee.to_json(),
        "ledger": released.provenance["ledger"],
    }


def describe(released: Any, out: Path) -> str:
    """A release in a few lines."""
    assumes = "".join(f"\n    - {caveat}" for caveat in released.guarantee.assumes) or " nothing further"
    paid = released.provenance["ledger"]
    budget = f"\n  paid by ledger entry {paid['entry']}, {_left(paid['after'])}" if paid else ""
    single = (out / "release.parquet").exists()
    files = f"{out / 'release.duckdb'} (tables release, release_meta) or {out / 'release.parquet'}"
    return (
        f"{out}: {released.non_zero:,} of {released.domain.size:,} cells are not 0, "
        f"total {released.total():,} {_counted(released)}.\n"
        f"  {released.guarantee.words()}\n"
        f"  recipe {released.recipe['name']}, noise scale {released.recipe['scale']}; assumes:{assumes}{budget}\n"
        f"  open {files if single else out / 'release-*.parquet'}"
    )


def _counted(released: Any) -> str:
    from kasuri.words.japanese import counted

    unit = released.guarantee.unit
    return counted(unit.id, unit.max_cells, unit.max_weight)[0]


def _left(balance: dict[str, str]) -> str:
    return f"{balance['currency']} {balance['left']} is left of {balance['allowance']}"
