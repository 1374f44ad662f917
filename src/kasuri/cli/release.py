"""kasuri release: a table of counts on a mesh -> a protected table in a new folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show


def release(
    table: Path = typer.Argument(..., help="A job file (.toml), or CSV or Parquet: one row per cell, or records."),
    out: Path | None = typer.Option(None, "--out", help="New folder for the release."),
    epsilon: str | None = typer.Option(None, "--epsilon", help='Privacy loss, an exact decimal such as "0.1".'),
    unit: str | None = typer.Option(None, "--unit", help="Who is protected, e.g. person: the id column of records."),
    change: str | None = typer.Option(None, "--change", help="add-remove or replace."),
    max_cells: int | None = typer.Option(None, "--max-cells", help="In how many cells one unit can be counted."),
    max_weight: int | None = typer.Option(None, "--max-weight", help="Bound of the weights of records."),
    count: str | None = typer.Option(None, "--count", help="Column of counts (or of weights, in records)."),
    window: str | None = typer.Option(None, "--window", help="Public window: japan, kanto, ... or a mesh like 5339."),
    level: str = typer.Option("500m", "--level", help="Mesh level: 80km, 10km, 5km, 2km, 1km, 500m, 250m, 125m."),
    origin: str | None = typer.Option(None, "--origin", help="ROW,COL of the south-west cell, instead of --window."),
    shape: str | None = typer.Option(None, "--shape", help="ROWS,COLS, with --origin."),
    mask: Path | None = typer.Option(None, "--mask", help="Public .npy array of the window, true where nobody can be."),
    code: str | None = typer.Option(None, "--code", help="Column of mesh codes."),
    row: str | None = typer.Option(None, "--row", help="Column of grid rows (with --col, instead of --code)."),
    col: str | None = typer.Option(None, "--col", help="Column of grid columns."),
    lat: str | None = typer.Option(None, "--lat", help="Column of latitudes (with --lon, instead of --code)."),
    lon: str | None = typer.Option(None, "--lon", help="Column of longitudes."),
    recipe: str = typer.Option(
        "haar_topdown",
        "--recipe",
        help="auto, bayes_tree, fourier, geometric, haar_topdown, hierarchy, laplace, lasso, matrix, neg_l2_simplex, "
        "nonneg_lasso, privelet, refined_tree, simplex or sparse.",
    ),
    order: str | None = typer.Option(None, "--order", help="morton, jis, 1d or (privelet) 2d."),
    transform: str | None = typer.Option(None, "--transform", help="haar_topdown: sum_difference, haar or nominal."),
    data: str | None = typer.Option(None, "--data", help='Declared name of the data, e.g. "census-2020".'),
    export: list[str] = typer.Option([], "--export", help="Also write x.csv, .parquet, .gpkg, .sqlite, postgresql://."),
    levels: str = typer.Option("", "--levels", help="Coarser levels for the exports, e.g. 1km,10km."),
    ledger: list[Path] | None = typer.Option(None, "--ledger", help="The budget that pays (see kasuri ledger open)."),
    unmetered: bool = typer.Option(False, "--unmetered", help="Release without a ledger, and say so."),
    sign: Path | None = typer.Option(None, "--sign", help="Private key to sign with (see kasuri keygen)."),
    threads: int | None = typer.Option(None, "--threads", help="Threads; the result does not depend on it."),
    as_json: bool = show.JSON,
) -> None:
    """Publish a table of counts on a mesh, or records, with differential privacy.

    The window is always given, never taken from the file. Examples:

    kasuri release job.toml

    kasuri release census.csv --window kanto --code mesh_code --count population --unit person
    --change add-remove --max-cells 1 --epsilon 0.1 --data census-2020 --ledger census.ledger --out release
    """
    if table.suffix.lower() == ".toml":
        given = [out, epsilon, unit, change, max_cells, max_weight, count, window, origin, shape]
        places = [code, row, col, lat, lon, order, data]
        if any(value is not None for value in [*given, *places]) or export or levels or unmetered:
            raise typer.BadParameter("a job file says everything itself; only --threads and --json go with it")
        _job(table, threads, as_json)
        return
    needed = {"--out": out, "--epsilon": epsilon, "--unit": unit, "--change": change, "--max-cells": max_cells}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise typer.BadParameter(f"missing: {', '.join(missing)} (none has a default); or give a job file")
    assert out is not None and unit is not None and max_cells is not None
    mesh = mesh_of(window, level, origin, shape)
    columns = columns_of(code, row, col, lat, lon)
    if len(ledger or ()) > 1:
        raise typer.BadParameter("one release is paid by one ledger", param_hint="--ledger")
    if bool(ledger) == unmetered:
        raise typer.BadParameter("say who pays: --ledger FILE, or --unmetered for a release charged to no ledger")
    if ledger and data is None:
        raise typer.BadParameter("a ledger pays for one data set: name it with --data")
    if os.path.lexists(out):
        raise typer.BadParameter(f"{out} exists; a release is never written over another", param_hint="--out")

    import kasuri as ks
    from kasuri.job import judge_exports
    from kasuri.manifest import keys
    from kasuri.store import ready

    mechanism = recipe_of(recipe, {"order": order, "transform": transform})
    domain = domain_of(mesh, mask)
    who = ks.Unit(id=unit, change=change, max_cells=max_cells, max_weight=max_weight)
    mechanism.guarantee(domain, who, epsilon)  # refuses before the file is read
    sums = [part for part in levels.split(",") if part]
    judge_exports(domain, export, sums)
    book = ks.Ledger.load(ledger[0]) if ledger else None
    if sign is not None:
        keys.private(sign)  # readable, before anything is charged
    ready(out)  # and writable
    with show.step(f"reading {table}") as progress:
        counts = ks.count(
            str(table), domain, columns={"grid": columns}, unit=who, weight=count, data=data, progress=progress,
            away=[out],
        )  # fmt: skip
    with show.step(f"releasing {domain.size:,} cells"):
        released = ks.release(counts, mechanism, epsilon=epsilon, ledger=book, threads=threads)
    with show.step(f"writing {out}"):
        released.save(str(out), unmetered=unmetered, sign=None if sign is None else str(sign))
        for target in export:
            released.export(target, levels=sums, unmetered=True)
    show.result(summary(released, out), describe(released, out), as_json)


def _job(path: Path, threads: int | None, as_json: bool) -> None:
    from kasuri import job

    work = job.load(path)
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
        f"{out}: {released.non_zero:,} of {released.domain.size:,} cells are not 0, total {released.total():,}.\n"
        f"  {released.guarantee.words()}\n"
        f"  recipe {released.recipe['name']}, noise scale {released.recipe['scale']}; assumes:{assumes}{budget}\n"
        f"  open {files if single else out / 'release-*.parquet'}"
    )


def _left(balance: dict[str, str]) -> str:
    return f"{balance['currency']} {balance['left']} is left of {balance['allowance']}"


def mesh_of(window: str | None, level: str, origin: str | None, shape: str | None) -> Any:
    from kasuri.errors import DomainError
    from kasuri.schema import WINDOWS, Mesh

    try:
        if window is not None:
            if origin or shape:
                raise typer.BadParameter("give --window, or --origin and --shape, not both")
            return Mesh.window("grid", window, level=level)
        if origin is None or shape is None:
            known = "; ".join(f"{name} ({own}, origin {at}, shape {size})" for name, (own, at, size) in WINDOWS.items())
            raise typer.BadParameter(
                f"the public window is missing: give --window NAME or --origin ROW,COL --shape ROWS,COLS. "
                f"Windows: {known}; or a first-order mesh such as 5339. It is never taken from the file."
            )
        return Mesh("grid", level, _pair(origin, "--origin"), shape=_pair(shape, "--shape"))
    except DomainError as error:
        raise typer.BadParameter(str(error)) from None


def _pair(text: str, option: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter("two whole numbers such as 8400,6080 are needed", param_hint=option) from None
    return first, second


def columns_of(code: str | None, row: str | None, col: str | None, lat: str | None, lon: str | None) -> Any:
    given = [name is not None for name in (code, row, col, lat, lon)]
    if given == [True, False, False, False, False]:
        return code
    if given == [False, True, True, False, False]:
        return row, col
    if given == [False, False, False, True, True]:
        return {"lat": lat, "lon": lon}
    raise typer.BadParameter("say where the cell stands: --code COLUMN, or --row and --col, or --lat and --lon")


def domain_of(mesh: Any, mask: Path | None) -> Any:
    """The window without the cells of a public .npy array."""
    import kasuri as ks
    from kasuri.job import read_array

    try:
        return ks.Domain.of(mesh, mask=None if mask is None else read_array(mask))
    except ks.DomainError as error:
        raise typer.BadParameter(str(error), param_hint="--mask") from None


def recipe_of(name: str, options: dict[str, str | None]) -> Any:
    from kasuri.errors import DomainError
    from kasuri.recipes import RECIPES

    if name not in RECIPES:
        raise typer.BadParameter(f"unknown recipe {name!r}; use {', '.join(sorted(RECIPES))}", param_hint="--recipe")
    given = {option: value for option, value in options.items() if value is not None}
    try:
        return RECIPES[name](**given)
    except DomainError as error:
        raise typer.BadParameter(str(error)) from None
    except TypeError:
        raise typer.BadParameter(f"{name} takes no option {' or '.join(f'--{word}' for word in given)}") from None
