"""kasuri plan and kasuri compare: what a release would be like, and what releases of data one may look at are like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import options, show

RECIPES = "geometric, haar_topdown, refined_tree"

_ALSO = ("epsilons", "recipes", "areas", "trials", "metric", "figure", "as_json")
_BUDGET = ("budget", "ledger", "public_map", "public_name", "people", "simulate")
"""Options that go with a job file."""


def plan(
    context: typer.Context,
    job: Path | None = typer.Argument(None, help="A job file: its table, unit, epsilon and recipe."),
    epsilons: options.Epsilons = None,
    unit: options.UnitId = None,
    change: options.Change = None,
    max_cells: options.MaxCells = None,
    max_weight: options.MaxWeight = None,
    window: options.Window = None,
    level: options.Level = None,
    origin: options.Origin = None,
    shape: options.Shape = None,
    mask: options.Mask = None,
    axis: options.Axes = None,
    recipes: options.Recipes = None,
    areas: str = typer.Option("", "--areas", help="Numbers of cells, e.g. 1,4,16 (default: squares up to 256 x 256)."),
    budget: str | None = typer.Option(None, "--budget", help="Epsilon there is to spend in all."),
    ledger: Path | None = typer.Option(None, "--ledger", help="Take what is left in this ledger as the budget."),
    public_map: Path | None = typer.Option(None, "--public-map", help="Public .npy array to simulate on."),
    public_name: str | None = typer.Option(None, "--public-name", help="What the public map is, e.g. census-2015."),
    trials: int = typer.Option(10, "--trials", min=1, help="Releases of the public map."),
    metric: str = typer.Option("rmse", "--metric", help="rmse, mae or half_width (of a 95 % interval)."),
    people: str = typer.Option("100,1000,5000,50000", "--people", help="Sizes of areas for the errors in percent."),
    simulate: bool = typer.Option(True, "--simulate/--no-simulate", help="Try the recipes on a public model."),
    figure: options.Figure = None,
    as_json: bool = show.JSON,
) -> None:
    """Expected error by area size, interval widths and effect on the budget, before any data is touched.

    First what closed forms say. Then every recipe (those of --recipes, where given) is tried on a public model of the
    table: the usual error of areas of so many people, in percent, and a recommendation. Examples:

    kasuri plan --window kanto --unit person --change add-remove --max-cells 1 --epsilons 0.1,1 --budget 1

    kasuri plan job.toml --recipes 'bayes_tree(pilot=true), auto(areas=[1, 64])'
    """
    import kasuri as ks
    from kasuri.ingest import read_array
    from kasuri.privacy import decimal
    from kasuri.study.plan import plan as make

    asked = options.asked(context, None) if job is None else options.asked_by_job(context, job, "job", *_ALSO, *_BUDGET)
    chosen, losses = _recipes(asked, recipes), _epsilons(asked, epsilons)
    if ledger is not None:
        if budget is not None:
            raise typer.BadParameter("give --budget or --ledger, not both")
        balance = ks.Ledger.load(ledger).balance()
        if balance.currency != "epsilon" or balance.left <= 0:
            raise typer.BadParameter(f"{ledger}: no epsilon is left in it, or it counts in rho", param_hint="--ledger")
        budget = decimal(balance.left)
    found = make(
        chosen,
        asked.domain,
        asked.unit,
        epsilons=losses,
        areas=_numbers(areas) or None,
        budget=budget,
        public_map=None if public_map is None else read_array(public_map),
        public_name=public_name,
        trials=trials,
    )
    text, data = found.table(metric), found.to_json()
    if asked.judged is not None and (judged := asked.judged()) is not None:
        text, data = f"{text}\n\n{judged.table()}", data | {"acceptance": judged.to_json()}
    if figure is not None:
        _figure(found.rows, figure, metric, f"Expected {metric.replace('_', ' ')} before any data is touched", "")
    if simulate:
        told = _outlook(asked, chosen if recipes is not None else [], losses, _numbers(people, "--people"))
        left = [] if recipes is not None else told.untried()
        note = f"Not tried here, because they take long: {', '.join(left)}. To try them: --recipes\n" if left else ""
        text, data = f"{text}\n\n{note}{told.table()}", data | {"outlook": told.to_json() | {"not_tried": left}}
    show.result(data, text, as_json)


def _outlook(asked: options.Asked, chosen: list[Any], losses: list[str], people: list[int]) -> Any:
    """The recipes on a public model of the table: those that were named beside `best` and `geometric`, or all."""
    from kasuri.study.evaluate import names_of
    from kasuri.study.outlook import PLAIN, USUAL, everything, outlook

    kept = {one.name: one for one in (USUAL, PLAIN)} if chosen else everything(asked.domain)
    own = dict(zip(names_of(chosen), chosen, strict=True)) if chosen else {}
    if asked.recipe is not None:
        own = {asked.recipe.name: asked.recipe} | own
    with show.step("trying the recipes on a public model") as progress:
        return outlook(kept | own, asked.domain, asked.unit, losses, people=[0, *people], trials=2, progress=progress)


def compare(
    context: typer.Context,
    table: Path = typer.Argument(
        ..., help="A job file (.toml), or CSV, Excel or Parquet: one row per cell, or records."
    ),
    epsilons: options.Epsilons = None,
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
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    add: options.Add = False,
    recipes: options.Recipes = None,
    areas: str = typer.Option("1,4,16,64", "--areas", help="Numbers of cells of square areas."),
    trials: int = typer.Option(20, "--trials", min=1, help="Releases per recipe and epsilon; none can be published."),
    metric: str = typer.Option("rmse", "--metric", help="mae, rmse, bias, false_zero, false_non_zero, within_5, ..."),
    figure: options.Figure = None,
    as_json: bool = show.JSON,
) -> None:
    """Measure how far releases of a table are from it. CONFIDENTIAL: the answer depends on the data without protection.

    Nothing is charged, and no release is kept. With a job file its recipe is shown beside `geometric`, unless --recipes
    says otherwise. Examples:

    kasuri compare census.csv --window kanto --code mesh_code --count population --unit person --change add-remove
    --max-cells 1 --epsilons 0.1 --areas 1,16,256 --recipes 'geometric, bayes_tree(pilot=true)'

    kasuri compare job.toml
    """
    import kasuri as ks

    from_job = table.suffix.lower() == ".toml"
    asked = options.asked_by_job(context, table, "table", *_ALSO) if from_job else options.asked(context, table)
    chosen, losses = _recipes(asked, recipes), _epsilons(asked, epsilons)
    assert asked.read is not None
    with show.step(f"reading {table}") as progress:
        counts = asked.read(progress=progress)
    with show.step(f"releasing {trials} times with each recipe") as progress:
        found = ks.compare(counts, chosen, epsilons=losses, areas=_numbers(areas), trials=trials, progress=progress)
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


def _recipes(asked: options.Asked, text: str | None) -> list[Any]:
    """The recipes asked for; without a word, a job's own beside `geometric`, or the usual ones."""
    if text is None and asked.recipe is not None:
        return [asked.recipe, *(plain for plain in asked.recipes("geometric") if plain != asked.recipe)]
    return asked.recipes(RECIPES if text is None else text)


def _epsilons(asked: options.Asked, text: str | None) -> list[str]:
    if text is None and asked.epsilon is None:
        raise typer.BadParameter('missing: --epsilons, exact decimals such as "0.1,1"')
    return [str(asked.epsilon)] if text is None else text.split(",")


def _numbers(text: str, option: str = "--areas") -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise typer.BadParameter("whole numbers such as 1,4,16 are needed", param_hint=option) from None
