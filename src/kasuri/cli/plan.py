"""kasuri plan and kasuri compare: what a release would be like, and what releases of data one may look at are like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show
from kasuri.cli.release import columns_of, domain_of, mesh_of, recipe_of

RECIPES = "geometric,haar_topdown,refined_tree"
_RECIPES_HELP = "Recipes, e.g. geometric,privelet:2d,refined_tree:u4 (an order, or the shares of refined_tree)."


def plan(
    epsilons: str = typer.Option(..., "--epsilons", help='Exact decimals, e.g. "0.1,1".'),
    unit: str = typer.Option(..., "--unit", help="Who is protected, e.g. person."),
    change: str = typer.Option(..., "--change", help="add-remove or replace."),
    max_cells: int = typer.Option(..., "--max-cells", help="In how many cells one unit can be counted."),
    max_weight: int | None = typer.Option(None, "--max-weight", help="Bound of the weights of records."),
    window: str | None = typer.Option(None, "--window", help="Public window: japan, kanto, ... or a mesh like 5339."),
    level: str = typer.Option("500m", "--level", help="Mesh level."),
    origin: str | None = typer.Option(None, "--origin", help="ROW,COL of the south-west cell, instead of --window."),
    shape: str | None = typer.Option(None, "--shape", help="ROWS,COLS, with --origin."),
    mask: Path | None = typer.Option(None, "--mask", help="Public .npy array of the window, true where nobody can be."),
    recipes: str = typer.Option(RECIPES, "--recipes", help=_RECIPES_HELP),
    areas: str = typer.Option("", "--areas", help="Numbers of cells, e.g. 1,4,16 (default: squares up to 256 x 256)."),
    budget: str | None = typer.Option(None, "--budget", help="Epsilon there is to spend in all."),
    ledger: Path | None = typer.Option(None, "--ledger", help="Take what is left in this ledger as the budget."),
    public_map: Path | None = typer.Option(None, "--public-map", help="Public .npy array to simulate on."),
    public_name: str | None = typer.Option(None, "--public-name", help="What the public map is, e.g. census-2015."),
    trials: int = typer.Option(10, "--trials", min=1, help="Releases of the public map."),
    metric: str = typer.Option("rmse", "--metric", help="rmse, mae or half_width (of a 95 % interval)."),
    figure: Path | None = typer.Option(None, "--figure", help="Also draw a chart: x.png, x.svg or x.pdf."),
    as_json: bool = show.JSON,
) -> None:
    """Expected error by area size, interval widths and effect on the budget, before any data is touched.

    Example: kasuri plan --window kanto --unit person --change add-remove --max-cells 1 --epsilons 0.1,1 --budget 1
    """
    import kasuri as ks
    from kasuri.job import read_array
    from kasuri.plan import plan as make
    from kasuri.privacy import decimal

    domain = domain_of(mesh_of(window, level, origin, shape), mask)
    who = ks.Unit(id=unit, change=change, max_cells=max_cells, max_weight=max_weight)
    if ledger is not None:
        if budget is not None:
            raise typer.BadParameter("give --budget or --ledger, not both")
        balance = ks.Ledger.load(ledger).balance()
        if balance.currency != "epsilon" or balance.left <= 0:
            raise typer.BadParameter(f"{ledger}: no epsilon is left in it, or it counts in rho", param_hint="--ledger")
        budget = decimal(balance.left)
    found = make(
        _recipes(recipes),
        domain,
        who,
        epsilons=epsilons.split(","),
        areas=_numbers(areas) or None,
        budget=budget,
        public_map=None if public_map is None else read_array(public_map),
        public_name=public_name,
        trials=trials,
    )
    text = found.table(metric)
    if figure is not None:
        _figure(found.rows, figure, metric, f"Expected {metric.replace('_', ' ')} before any data is touched", "")
    show.result(found.to_json(), text, as_json)


def compare(
    table: Path = typer.Argument(..., help="CSV or Parquet: one row per cell, or records."),
    epsilons: str = typer.Option(..., "--epsilons", help='Exact decimals, e.g. "0.1,1".'),
    unit: str = typer.Option(..., "--unit", help="Who is protected, e.g. person: the id column of records."),
    change: str = typer.Option(..., "--change", help="add-remove or replace."),
    max_cells: int = typer.Option(..., "--max-cells", help="In how many cells one unit can be counted."),
    max_weight: int | None = typer.Option(None, "--max-weight", help="Bound of the weights of records."),
    count: str | None = typer.Option(None, "--count", help="Column of counts (or of weights, in records)."),
    window: str | None = typer.Option(None, "--window", help="Public window: japan, kanto, ... or a mesh like 5339."),
    level: str = typer.Option("500m", "--level", help="Mesh level."),
    origin: str | None = typer.Option(None, "--origin", help="ROW,COL of the south-west cell, instead of --window."),
    shape: str | None = typer.Option(None, "--shape", help="ROWS,COLS, with --origin."),
    mask: Path | None = typer.Option(None, "--mask", help="Public .npy array of the window, true where nobody can be."),
    code: str | None = typer.Option(None, "--code", help="Column of mesh codes."),
    row: str | None = typer.Option(None, "--row", help="Column of grid rows (with --col, instead of --code)."),
    col: str | None = typer.Option(None, "--col", help="Column of grid columns."),
    lat: str | None = typer.Option(None, "--lat", help="Column of latitudes (with --lon, instead of --code)."),
    lon: str | None = typer.Option(None, "--lon", help="Column of longitudes."),
    recipes: str = typer.Option(RECIPES, "--recipes", help=_RECIPES_HELP),
    areas: str = typer.Option("1,4,16,64", "--areas", help="Numbers of cells of square areas."),
    trials: int = typer.Option(20, "--trials", min=1, help="Releases per recipe and epsilon; none can be published."),
    metric: str = typer.Option("rmse", "--metric", help="mae, rmse, bias, false_zero, false_non_zero, within_5, ..."),
    figure: Path | None = typer.Option(None, "--figure", help="Also draw a chart: x.png, x.svg or x.pdf."),
    as_json: bool = show.JSON,
) -> None:
    """Measure how far releases of a table are from it. CONFIDENTIAL: the answer depends on the data without protection.

    Nothing is charged, and no release is kept. Example:

    kasuri compare census.csv --window kanto --code mesh_code --count population --unit person --change add-remove
    --max-cells 1 --epsilons 0.1 --areas 1,16,256
    """
    import kasuri as ks

    domain = domain_of(mesh_of(window, level, origin, shape), mask)
    who = ks.Unit(id=unit, change=change, max_cells=max_cells, max_weight=max_weight)
    where, chosen = columns_of(code, row, col, lat, lon), _recipes(recipes)
    with show.step(f"reading {table}") as progress:
        counts = ks.count(str(table), domain, columns={"grid": where}, unit=who, weight=count, progress=progress)
    with show.step(f"releasing {trials} times with each recipe") as progress:
        found = ks.compare(
            counts, chosen, epsilons=epsilons.split(","), areas=_numbers(areas), trials=trials, progress=progress
        )
    text = found.table(metric)
    if figure is not None:
        title = f"Measured {metric.replace('_', ' ')}, {trials} trials"
        _figure(found.rows, figure, metric, title, found.to_json()["note"])
    show.result(found.to_json(), text, as_json)


def _figure(rows: Any, path: Path, metric: str, title: str, note: str) -> None:
    from kasuri.report.figures import KINDS, errors_figure

    if path.suffix.lower() not in KINDS:
        raise typer.BadParameter(f"a chart is one of {', '.join(KINDS)}", param_hint="--figure")
    errors_figure(rows, path, metric=metric, title=title, note=note)


def _recipes(text: str) -> list[Any]:
    """Recipes by name; what follows a colon is the order, or the shares of a count tree."""
    out = []
    for part in text.split(","):
        name, _, option = part.strip().partition(":")
        out.append(recipe_of(name, {"shares" if name.endswith("_tree") else "order": option or None}))
    return out


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise typer.BadParameter("whole numbers such as 1,4,16 are needed", param_hint="--areas") from None
