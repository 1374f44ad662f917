"""kasuri reproduce: the papers' tables, measured here, beside what they print."""

from __future__ import annotations

from pathlib import Path

import typer

from kasuri.cli import show

app = typer.Typer(no_args_is_help=True, help="Measure the papers' tables again, beside what they print.")


@app.callback()
def _group() -> None:
    pass


@app.command()
def terada2015(
    runs: int = typer.Option(100, "--runs", min=1, help="Releases per recipe."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for Figures 6 and 7 as PNG."),
    as_json: bool = show.JSON,
) -> None:
    """Table 2 of Terada et al. 2015 (error by area size, epsilon 0.1), its exact laws, and unaligned ranges.

    Example: kasuri reproduce terada2015 --runs 20 --figures figures
    """
    from kasuri.reproduce import terada2015 as paper

    result = paper.run(runs, progress=lambda words: typer.echo(f"{words} ...", err=True))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        paper.figure(result, figures / "terada2015-figure6.png", limit=None)
        paper.figure(result, figures / "terada2015-figure7.png", limit=800)
    show.result(result, paper.text(result), as_json)


@app.command()
def horigome2020(
    part: str = typer.Option("ldp", "--part", help="ldp: locations under local DP (Table A.5)."),
    runs: int = typer.Option(10, "--runs", min=1, help="Collections per time of day and epsilon."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for the ward maps and error curves as PNG."),
    as_json: bool = show.JSON,
) -> None:
    """Table A.5 of Horigome 2020, its ward maps (A.12-A.14) and the correlation of error with population.

    Example: kasuri reproduce horigome2020 --part ldp --figures figures
    """
    from kasuri.reproduce import horigome2020 as paper

    if part != "ldp":
        raise typer.BadParameter("--part must be ldp")
    result = paper.run(runs, progress=lambda words: typer.echo(f"{words} ...", err=True))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        paper.figure(result, figures / "horigome2020-ldp.png")
    show.result(result, paper.text(result), as_json)
