"""kasuri demo: the real census around Tokyo, planned, protected, verified, with a report to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show


def demo(
    out: Path | None = typer.Option(None, "--out", help="New folder (default: kasuri-demo, kasuri-demo-2, ...)."),
    epsilon: str = typer.Option("0.1", "--epsilon", help="Privacy loss of the demo."),
    browse: bool = typer.Option(False, "--open", help="Open the report in a browser."),
    as_json: bool = show.JSON,
) -> None:
    """Plan, release and verify the 2020 census around Tokyo (shipped with kasuri), and draw a report on it.

    Example: kasuri demo --out my-first-release --open
    """
    import kasuri as ks
    from kasuri import examples
    from kasuri.cli.release import summary
    from kasuri.ingest import read_table
    from kasuri.report.figures import map_png
    from kasuri.study.plan import block_errors

    folder = out if out is not None else _free(Path("kasuri-demo"))
    domain, unit, recipe = examples.kanto_domain(), examples.person(), ks.haar_topdown()
    with show.course(5) as begin:
        begin("planning: how exact will it be? (no data is read for this)")
        errors = {error.cells: error.rmse for error in block_errors(recipe, domain, unit, epsilon)}
        begin("counting the 2020 census, 512 x 512 cells of 500 m around Tokyo")
        counts = ks.count(
            read_table(examples.KANTO),
            domain,
            columns={"grid": "mesh_code"},
            unit=unit,
            weight="population",
            data="census-2020-kanto",
        )
        begin(f"releasing {domain.size:,} cells at epsilon {epsilon}")
        released = ks.release(counts, recipe, epsilon=epsilon, ledger=None, about=examples.ABOUT)
        begin(f"writing {folder}: tables, certificate, report")
        released.save(str(folder), unmetered=True)
        picture = folder.with_name(f"{folder.name}.png")
        map_png(released, picture, title=f"Released population, epsilon {epsilon}", credit=examples.CREDIT_EN)
        begin("verifying every file, as a reader of it would")
        verified = ks.verify(folder)
    report = (folder / "report.html").resolve()
    data = summary(released, folder) | {
        "map": str(picture),
        "report": str(report),
        "verified": verified["ok"],
        "rmse_before_refinement": {str(cells): round(rmse, 1) for cells, rmse in errors.items()},
    }
    show.result(data, _story(released, errors, folder, picture, report, verified["ok"], epsilon), as_json)
    if browse:
        import webbrowser

        webbrowser.open(report.as_uri())
    if not verified["ok"]:
        raise typer.Exit(1)


def _story(
    released: Any, errors: dict[int, float], folder: Path, picture: Path, report: Path, whole: bool, epsilon: str
) -> str:
    from kasuri import examples

    size = released.domain.size
    left = " (on average about 28 people a cell are left on this map)" if epsilon == "0.1" else ""  # measured there
    return f"""\
What was promised: at epsilon {epsilon} no result is more than e^{epsilon} times as likely with any one person in the
  data as without. This was fixed, and its price in accuracy known, before the data was read.
What came out: {released.cells.size:,} populated cells of {size:,} and {released.total():,} people in whole numbers,
  none negative, and every block of cells is the sum of its parts; the noise is exact on the integers,
  of scale {released.recipe["scale"]}.
How exact it is: the noise has a root mean square error of {errors[1]:.0f} people for one cell, {errors[1 << 16]:.0f}
  for a block of 256 x 256 cells and {errors[size]:.0f} for the total. Refinement then takes most of it off empty
  and small cells{left} and pulls large cells down a little.
Is it as it was written: {"yes, every file" if whole else "NO"} (kasuri verify {folder})

  report    {report}
            open it in any browser: a map to zoom, English and Japanese, no network  (kasuri demo --open)
  database  {folder / "release.duckdb"}    SELECT sum(value) FROM release
  picture   {picture}

What to try next:
  kasuri demo --epsilon 1                      ten times the privacy loss, a tenth of the noise
  kasuri init job.toml                         publish your own table: a commented file to fill in
  kasuri ledger open census.ledger --help      a budget that all releases of one data set share
  kasuri reproduce terada2015                  the paper's Table 2, measured here
Data: {examples.CREDIT}"""


def _free(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, ... that does not exist."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
