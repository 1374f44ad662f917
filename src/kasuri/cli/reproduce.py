"""kasuri reproduce: the papers' tables, measured here, beside what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show

app = typer.Typer(no_args_is_help=True, help="Measure the papers' tables again, beside what they print.")


@app.callback()
def _group() -> None:
    pass


@app.command()
def terada2015(
    runs: int = typer.Option(100, "--runs", min=1, help="Releases per recipe."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for Figures 1-5 (maps), 6 and 7 as PNG."),
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
        paper.maps(figures / "terada2015-figures1-5.png")
    show.result(result, paper.text(result), as_json)


@app.command()
def horigome2020(
    part: str = typer.Option(..., "--part", help="ldp: locations (Table A.5); kanon: audited k-anonymity (Table 4.1)."),
    runs: int = typer.Option(10, "--runs", min=1, help="Runs per setting."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for the figures as PNG."),
    as_json: bool = show.JSON,
) -> None:
    """Horigome 2020: locations under local DP (Table A.5, ward maps), or k-anonymity audited with epsilon (Table 4.1).

    Example: kasuri reproduce horigome2020 --part ldp --figures figures
    """
    from kasuri.reproduce import horigome2020, horigome2020_kanon

    if part not in ("ldp", "kanon"):
        raise typer.BadParameter("--part must be ldp or kanon")
    paper: Any = horigome2020 if part == "ldp" else horigome2020_kanon
    result = paper.run(runs, progress=lambda words: typer.echo(f"{words} ...", err=True))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        paper.figure(result, figures / f"horigome2020-{part}.png")
    show.result(result, paper.text(result), as_json)
