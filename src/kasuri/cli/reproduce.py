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
def matsumoto2025(
    runs: int = typer.Option(100, "--runs", min=1, help="Runs per row."),
    national: Path | None = typer.Option(
        None, "--national", help="Parquet of the national 500 m mesh (mesh_code, population, suppressed) for Table 4."
    ),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for Figures 2-4 as one PNG."),
    as_json: bool = show.JSON,
) -> None:
    """Tables 1-4 of Matsumoto et al. 2025 (simplex, negative l2), beside releases that are differentially private.

    Example: kasuri reproduce matsumoto2025 --runs 20 --figures figures
    """
    from kasuri.reproduce import matsumoto2025 as paper

    result = paper.run(runs, national=national, progress=lambda words: typer.echo(f"{words} ...", err=True))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        paper.figure(result, figures / "matsumoto2025.png")
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


@app.command()
def kii2022(
    runs: int = typer.Option(10, "--runs", min=1, help="Runs per setting."),
    figures: Path | None = typer.Option(None, "--figures", help="Folder for the figure as PNG."),
    as_json: bool = show.JSON,
) -> None:
    """Kii et al. 2022: bounds of the shuffled join beside an attack, and the error of its statistics on Adult.

    Example: kasuri reproduce kii2022 --runs 10 --figures figures
    """
    from kasuri.reproduce import kii2022 as paper

    result = paper.run(runs, progress=lambda words: typer.echo(f"{words} ...", err=True))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        paper.figure(result, figures / "kii2022.png")
    show.result(result, paper.text(result), as_json)
