"""kasuri reproduce: the papers' tables and figures, measured here, beside what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show

app = typer.Typer(no_args_is_help=True, help="Measure the papers' tables and figures again, beside what they print.")

RUNS = typer.Option(None, "--runs", min=1, help="Runs per setting; the default takes about a minute.")
FULL = typer.Option(False, "--full", help="As many runs as the paper.")
FIGURES = typer.Option(None, "--figures", help="Folder for the figures as PNG.")
DATA = typer.Option(
    None, "--data", exists=True, file_okay=False,
    help="Folder with jp_mesh500_2020.parquet, the national 500 m mesh (mesh_code, population, suppressed).",
)  # fmt: skip


@app.callback()
def _group() -> None:
    pass


def _say(words: str) -> None:
    typer.echo(f"{words} ...", err=True)


def _runs(paper: Any, runs: int | None, full: bool) -> int:
    if runs is not None and full:
        raise typer.BadParameter("--runs and --full exclude each other")
    return int(paper.FULL if full else runs or paper.QUICK)


def _draw(chapter: Any, figures: Path | None) -> None:
    from kasuri.reproduce import paper

    if figures is not None:
        paper.draw([chapter], figures)


@app.command("all")
def everything(
    figures: Path = typer.Option(
        ..., "--figures", help="Folder for every figure, papers.html, papers.md, papers.json."
    ),
    data: Path | None = DATA,
    full: bool = FULL,
    as_json: bool = show.JSON,
) -> None:
    """Every table and figure of the five papers into one folder, and one HTML page of all of them.

    Example: kasuri reproduce all --figures figures
    """
    from kasuri import reproduce

    results = reproduce.everything(full=full, data=data, progress=_say)
    reproduce.write(results, figures, data)
    made = sorted(path.name for path in figures.iterdir())
    show.result({"folder": str(figures), "files": made}, f"{len(made)} files in {figures}; open papers.html", as_json)


@app.command()
def terada2015(
    runs: int | None = RUNS, full: bool = FULL, figures: Path | None = FIGURES, as_json: bool = show.JSON
) -> None:
    """Terada et al. 2015: Tables 1-2, Figures 1-7, exact laws, the standard decomposition refined.

    Example: kasuri reproduce terada2015 --runs 20 --figures figures
    """
    from kasuri.reproduce import terada2015 as paper
    from kasuri.reproduce import terada2015_page as page

    result = paper.run(_runs(paper, runs, full), progress=_say)
    _draw(page.chapter(result), figures)
    show.result(result, paper.text(result), as_json)


@app.command()
def matsumoto2025(
    runs: int | None = RUNS,
    full: bool = FULL,
    data: Path | None = DATA,
    figures: Path | None = FIGURES,
    as_json: bool = show.JSON,
) -> None:
    """Matsumoto et al. 2025 (simplex, negative l2): Tables 1-4, Figures 1-6, beside releases that are private.

    Example: kasuri reproduce matsumoto2025 --runs 20 --figures figures
    """
    from kasuri.reproduce import matsumoto2025 as paper
    from kasuri.reproduce import matsumoto2025_page as page

    result = paper.run(_runs(paper, runs, full), data=data, progress=_say)
    _draw(page.chapter(result, data), figures)
    show.result(result, paper.text(result), as_json)


@app.command()
def horigome2020(
    part: str = typer.Option(..., "--part", help="ldp: locations (Table A.5); kanon: audited k-anonymity (Table 4.1)."),
    runs: int | None = RUNS,
    full: bool = FULL,
    figures: Path | None = FIGURES,
    as_json: bool = show.JSON,
) -> None:
    """Horigome 2020: locations under local DP (appendix A), or k-anonymity audited with epsilon (chapters 2-4).

    Example: kasuri reproduce horigome2020 --part ldp --figures figures
    """
    from kasuri.reproduce import horigome2020, horigome2020_kanon, horigome2020_kanon_page, horigome2020_page

    if part not in ("ldp", "kanon"):
        raise typer.BadParameter("--part must be ldp or kanon")
    paper: Any = horigome2020 if part == "ldp" else horigome2020_kanon
    page: Any = horigome2020_page if part == "ldp" else horigome2020_kanon_page
    result = paper.run(_runs(paper, runs, full), progress=_say)
    _draw(page.chapter(result), figures)
    show.result(result, paper.text(result), as_json)


@app.command()
def kii2022(
    runs: int | None = RUNS, full: bool = FULL, figures: Path | None = FIGURES, as_json: bool = show.JSON
) -> None:
    """Kii et al. 2022: bounds of the shuffled join beside an attack, and the error of its statistics on Adult.

    Example: kasuri reproduce kii2022 --runs 10 --figures figures
    """
    from kasuri.reproduce import kii2022 as paper
    from kasuri.reproduce import kii2022_page as page

    result = paper.run(_runs(paper, runs, full), progress=_say)
    _draw(page.chapter(result), figures)
    show.result(result, paper.text(result), as_json)
