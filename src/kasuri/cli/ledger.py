"""kasuri ledger open | show | verify | export | repair | plan"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kasuri.cli import options, show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The persistent budget of a data set.")

PathArgument = Annotated[Path, typer.Argument(help="The ledger file.", show_default=False)]


@app.command("open")
def open_ledger(
    path: PathArgument,
    data: Annotated[str, typer.Option(help="Declared name of the data set, e.g. census-2020.", show_default=False)],
    unit: Annotated[str, typer.Option(help="Who is protected: the id column, e.g. person.", show_default=False)],
    change: Annotated[str, typer.Option(help="add-remove or replace.", show_default=False)],
    max_cells: Annotated[int, typer.Option(help="Most cells one unit is counted in.", show_default=False)],
    max_weight: Annotated[int | None, typer.Option(help="Most one record counts.")] = None,
    epsilon: Annotated[str | None, typer.Option(help='Allowance, e.g. 1; above 20: "25 weak".')] = None,
    delta: Annotated[str | None, typer.Option(help="Allowance, e.g. 1e-9.")] = None,
    rho: Annotated[str | None, typer.Option(help="zCDP allowance, instead of epsilon.")] = None,
    owner: Annotated[str, typer.Option(help="Who answers for the budget.")] = "",
    releases: Annotated[int | None, typer.Option(help="Declare a series of this many equal releases.")] = None,
    each: Annotated[str | None, typer.Option(help="Epsilon of each release of the series.")] = None,
    recipe: Annotated[str, typer.Option(help="Recipe of the series.")] = "haar_topdown",
    domain: Annotated[Path | None, typer.Option(help="Domain of the series, as JSON.")] = None,
    as_json: bool = show.JSON,
) -> None:
    """Open a budget, or check that an open one is the same.

    Example: kasuri ledger open census.ledger --data census-2020 --unit person --change add-remove --max-cells 1
    --epsilon 1
    """
    from kasuri.budget.ledger import Ledger
    from kasuri.errors import FormatError
    from kasuri.schema import Domain, Unit

    who = Unit(unit, change, max_cells, max_weight)  # type: ignore[arg-type]
    series = None
    given = [releases is not None, each is not None, domain is not None]
    if any(given):
        if not all(given):
            raise typer.BadParameter("a series needs --releases, --each and --domain together")
        assert domain is not None and releases is not None
        try:
            shape = Domain.from_json(json.loads(domain.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError, FormatError):
            raise typer.BadParameter(f"{domain}: not a domain in JSON") from None
        series = options.Asked(shape, who).one_recipe(recipe).series(shape, who, each, releases)
    accounting = "pld" if series is not None else None
    ledger = Ledger.open(
        path, epsilon=epsilon, delta=delta, rho=rho, unit=who, data=data, owner=owner,
        accounting=accounting, series=series,  # type: ignore[arg-type]
    )  # fmt: skip
    _print_summary(ledger.summary(), as_json)


@app.command("show")
def show_ledger(path: PathArgument, as_json: bool = show.JSON) -> None:
    """What is spent and what is left.

    Example: kasuri ledger show census.ledger
    """
    from kasuri.budget.ledger import Ledger

    _print_summary(Ledger.load(path).summary(), as_json)


@app.command()
def verify(path: PathArgument, as_json: bool = show.JSON) -> None:
    """Check every page, every hash, every sum, and that ledger and journal agree.

    Example: kasuri ledger verify census.ledger
    """
    from kasuri.budget.ledger import Ledger

    summary = Ledger.load(path).verify()
    if as_json:
        _print({"ok": True, **summary})
    else:
        typer.echo(f"{path}: {summary['entries']} entries, whole and consistent; head {summary['head']}")


@app.command()
def export(path: PathArgument, as_json: bool = show.JSON) -> None:
    """Every entry, oldest first: a table, or with --json the full text. Nothing in it depends on the data.

    Example: kasuri ledger export census.ledger --json > census.ledger.json
    """
    from kasuri.budget.ledger import Ledger

    ledger = Ledger.load(path)
    entries = ledger.entries()
    if as_json:
        _print({**ledger.summary(), "chain": entries})
        return
    for entry in entries:
        balance = entry.get("balance")
        about = (
            f"{entry['recipe']}, left {balance['left']}" if balance else f"of {entry['of']}" if "of" in entry else ""
        )
        typer.echo(f"{entry['entry']:>6}  {entry.get('time', ''):<25}  {entry['kind']:<10} {about}")


@app.command()
def repair(path: PathArgument, as_json: bool = show.JSON) -> None:
    """Bring ledger and journal back to one history. What either of them holds stays spent.

    Example: kasuri ledger repair census.ledger
    """
    from kasuri.budget.ledger import repair as bring_back

    result = bring_back(path)
    if as_json:
        _print(result)
        return
    for line in result["done"] or ["nothing to repair"]:
        typer.echo(line)
    _print_summary(result, as_json)


@app.command()
def plan(
    epsilon: Annotated[str, typer.Option(help="Epsilon of each; with --window that of a window.", show_default=False)],
    delta: Annotated[str, typer.Option(help="Delta of the whole series, or of a window.", show_default=False)],
    releases: Annotated[int | None, typer.Option(help="How many equal releases.", show_default=False)] = None,
    window: Annotated[str | None, typer.Option(help="Instead: a series without end, protected over 7d, say.")] = None,
    slot: Annotated[str, typer.Option(help="With --window: length of a slot.")] = "1h",
    recipe: Annotated[
        str | None, typer.Option(help="A recipe, as in kasuri release; without it: any epsilon-DP mechanism.")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(help="Cells of the table, with --recipe: 262144, or rows x cols as 512x512.")
    ] = None,
    levels: Annotated[int | None, typer.Option(help="Instead of a recipe: so many equal, independent levels.")] = None,
    max_cells: Annotated[int, typer.Option(help="Most cells one unit is counted in.")] = 1,
    change: Annotated[str, typer.Option(help="Neighbour relation: add-remove or replace.")] = "add-remove",
    as_json: bool = show.JSON,
) -> None:
    """What a series of releases costs: the pure sum, by its privacy-loss distribution, and the least of both. With
    --window what each slot of a series without end can have: its noise, its errors, and the price of longer spans.

    Example: kasuri ledger plan --releases 720 --epsilon 0.1 --delta 1e-9 --recipe haar_topdown --cells 512x512

    Example: kasuri ledger plan --window 7d --slot 1h --epsilon 1 --delta 1e-9 --cells 128x128
    """
    from kasuri.budget.accounting import generic
    from kasuri.budget.declared import priced
    from kasuri.budget.gaussian import Normal
    from kasuri.privacy import asked, decimal, exact
    from kasuri.schema import Unit

    each, small = asked(epsilon, study=True), exact(delta, "delta")
    if (window is None) == (releases is None):
        raise typer.BadParameter("give --releases, or --window for a series without end")
    if releases is None:
        if window is None or cells is None or recipe is not None or levels is not None:
            raise typer.BadParameter("--window goes with --cells, and without --recipe and --levels")
        _window(window, slot, each, small, cells, (change, max_cells), as_json)
        return
    if releases < 1:
        raise typer.BadParameter("--releases must be at least 1")
    if (recipe is None) != (cells is None):
        raise typer.BadParameter("--recipe and --cells go together")
    if levels is not None and (recipe is not None or levels < 1):
        raise typer.BadParameter("--levels is a whole number from 1 on, and replaces --recipe")
    unit = Unit("unit", change, max_cells)  # type: ignore[arg-type]
    name, losses = f"any {decimal(each)}-DP mechanism", generic(each)
    if recipe is not None and cells is not None:
        table = options.Asked(_domain(cells), unit)
        losses = table.one_recipe(recipe).losses(table.domain, unit, each)
        name = f"{recipe} on {cells} cells"
    elif levels is not None:
        name = f"{levels} equal levels"
        losses = ((each / levels, levels),) if (change, max_cells) == ("add-remove", 1) else losses
    pure = None if isinstance(losses, Normal) else each * releases  # an (epsilon, delta) release has no pure sum
    by_pld = priced(losses, releases, each, small)
    if as_json:
        _print(
            {
                "recipe": name,
                "relation": unit.words(),
                "releases": releases,
                "epsilon_each": decimal(each),
                "delta": decimal(small),
                **_told(losses),
                **({} if pure is None else {"pure": decimal(pure)}),
                "pld": decimal(by_pld),
                "least": decimal(by_pld),
            }
        )
        return
    typer.echo(f"{releases} releases of {name}, epsilon {decimal(each)} each, when {unit.words()}")
    if pure is not None:
        typer.echo(f"  pure sum                    epsilon {decimal(pure)}")
    typer.echo(f"  privacy-loss distribution   epsilon {decimal(by_pld)} at delta {delta}")


def _window(window: str, slot: str, epsilon: Any, delta: Any, cells: str, who: tuple[str, int], as_json: bool) -> None:
    """Both noises over a window: the standard deviation of every measured level, errors of a slot alone, prices."""
    import kasuri as ks
    from kasuri.budget.window import prices
    from kasuri.privacy import decimal
    from kasuri.schema import Unit, Window

    span, unit, domain = Window(window, slot), Unit("unit", who[0], who[1], per="slot"), _domain(cells)  # type: ignore[arg-type]
    both = {"gaussian": ks.refined_tree("series", noise="gaussian", delta=delta), "laplace": ks.refined_tree("series")}
    chosen = ks.refined_tree("series", noise="auto", delta=delta).settled(domain, unit, span, epsilon, delta)
    out: dict[str, Any] = {"window": span.to_json(), "relation": f"{unit.words()}, for all slots of {span.words()}"}
    out |= {"epsilon": decimal(epsilon), "delta": decimal(delta), "cells": cells, "noises": {}}
    for name, recipe in both.items():
        series = recipe.recurring(domain, unit, span, epsilon, delta)
        run = recipe.on(domain, unit, series.epsilon)
        visit = run.visit  # type: ignore[attr-defined]
        noise = {
            visit.order.stride(cut): round(visit.law(scale).variance ** 0.5, 2)
            for cut, scale in zip(visit.cuts, visit.scales, strict=True)
        }
        rows = [
            {"span": span_, "slots": slots, "epsilon": decimal(price)}
            for span_, slots, price in prices(series, span, delta)
        ]
        alone = [{"cells": one.cells, "rmse": round(one.rmse, 2)} for one in run.errors()]  # type: ignore[union-attr]
        told = {"chosen": recipe == chosen, "slot_epsilon": decimal(series.epsilon), "noise_sd_by_cells": noise}
        out["noises"][name] = told | {"errors_of_a_slot_alone": alone, "prices": rows}
    if as_json:
        _print(out)
        return
    typer.echo(
        f"{span.words()} in slots of {slot}: epsilon {out['epsilon']} at delta {out['delta']}, when {out['relation']}"
    )
    for name, told in out["noises"].items():
        typer.echo(f"{name}{' (the smaller one, chosen by noise = auto)' if told['chosen'] else ''}")
        levels = ", ".join(f"{size} cells {sd}" for size, sd in told["noise_sd_by_cells"].items())
        typer.echo(f"  noise, standard deviation   {levels}")
        shown = ", ".join(f"{one['cells']} cells {one['rmse']}" for one in told["errors_of_a_slot_alone"])
        typer.echo(f"  error of a slot by itself   {shown}")
        priced = ", ".join(f"{row['span']} {row['epsilon']}" for row in told["prices"])
        typer.echo(f"  price of a span, epsilon    {priced}")
    typer.echo(
        "Earlier slots filter a slot at no cost; whoever is counted longer than a window loses the longer span's price."
    )


def _told(losses: Any) -> dict[str, Any]:
    """A privacy-loss pair: an epsilon, or a variance of Gaussian noise, and how many numbers have it."""
    from kasuri.budget.gaussian import Normal
    from kasuri.privacy import decimal

    name, parts = ("variances", losses.parts) if isinstance(losses, Normal) else ("losses", losses)
    return {name: [[decimal(part), count] for part, count in parts]}


def _domain(cells: str) -> Any:
    from kasuri.schema import Domain, Mesh, Ordered

    sizes = cells.lower().split("x")
    if not all(size.isascii() and size.isdigit() for size in sizes) or len(sizes) > 2:
        raise typer.BadParameter("--cells is a number such as 262144, or rows x cols such as 512x512")
    if len(sizes) == 1:
        return Domain.of(Ordered("place", int(sizes[0])))
    return Domain.of(Mesh("grid", shape=(int(sizes[0]), int(sizes[1]))))


def _print(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def _print_summary(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print(summary)
        return
    balance = summary["balance"]
    typer.echo(f"{summary['data']}: {summary['relation']}")
    for caveat in summary["assumes"]:
        typer.echo(f"  assumes    {caveat}")
    for name in ("allowance", "spent", "set_aside", "left"):
        if name != "set_aside" or balance[name] != "0":
            typer.echo(f"  {name.replace('_', ' '):<10} {balance['currency']} {balance[name]}")
    ends = ", ".join(f"{summary[name]} {name}" for name in ("committed", "abandoned", "reserved") if summary[name])
    typer.echo(f"  entries    {summary['entries']}" + (f" ({ends})" if ends else ""))
    if "window" in summary:
        told = summary["window"]
        typer.echo(f"  slots of {told['slot']} paid: {told['paid']}; nothing of them is used up")
        for row in told["prices"]:
            typer.echo(f"  {row['span']:>5}  epsilon {row['epsilon']}")
    if "series" in summary:
        typer.echo(f"  series: {summary['series']['released']} of {summary['series']['declared']} released")
