"""kasuri demo: the real census around Tokyo, protected, in a database, with a map."""

from __future__ import annotations

from pathlib import Path

import typer

from kasuri.cli import show


def demo(
    out: Path | None = typer.Option(None, "--out", help="New folder (default: kasuri-demo, kasuri-demo-2, ...)."),
    epsilon: str = typer.Option("0.1", "--epsilon", help="Privacy loss of the demo."),
    as_json: bool = show.JSON,
) -> None:
    """Protect the 2020 census around Tokyo (shipped with kasuri), write a database and a map, say how exact it is.

    Example: kasuri demo --out my-first-release
    """
    import kasuri as ks
    from kasuri import examples
    from kasuri.cli.release import summary
    from kasuri.ingest import read_table
    from kasuri.plan import block_errors
    from kasuri.report.figures import map_png

    folder = out if out is not None else _free(Path("kasuri-demo"))
    domain, unit, recipe = examples.kanto_domain(), examples.person(), ks.haar_topdown()
    with show.step("counting the 2020 census, 512 x 512 cells of 500 m around Tokyo"):
        counts = ks.count(
            read_table(examples.KANTO),
            domain,
            columns={"grid": "mesh_code"},
            unit=unit,
            weight="population",
            data="census-2020-kanto",
        )
    with show.step(f"releasing {domain.size:,} cells at epsilon {epsilon}"):
        released = ks.release(counts, recipe, epsilon=epsilon, ledger=None)
    with show.step(f"writing {folder}"):
        released.save(str(folder), unmetered=True)
        picture = folder.with_name(f"{folder.name}.png")
        map_png(released, picture, title=f"Released population, epsilon {epsilon}", credit=examples.CREDIT_EN)
    errors = {error.cells: error.rmse for error in block_errors(recipe, domain, unit, epsilon)}
    data = summary(released, folder) | {
        "map": str(picture),
        "rmse_before_refinement": {str(cells): round(rmse, 1) for cells, rmse in errors.items()},
    }
    scale = released.recipe["scale"]
    text = f"""\
What was done: the population of {domain.size:,} cells of 500 m around Tokyo was published with differential privacy:
  at epsilon {epsilon} no result is more than e^{epsilon} times as likely with any one person in the data as without.
What came out: {released.cells.size:,} populated cells and {released.total():,} people in whole numbers, none negative,
  and every block of cells is the sum of its parts; the noise is exact on the integers, of scale {scale}.
How exact it is: the noise has a root mean square error of {errors[1]:.0f} people for one cell, {errors[1 << 16]:.0f}
  for a block of 256 x 256 cells and {errors[domain.size]:.0f} for the total. Refinement then takes most of it off empty
  and small cells (on average about 28 people a cell are left on this map) and pulls large cells down a little.

  database  {folder / "release.duckdb"}    SELECT sum(value) FROM release
  map       {picture}
  next      kasuri release --help    publish your own table
            kasuri reproduce terada2015    the paper's Table 2, measured here
Data: {examples.CREDIT}"""
    show.result(data, text, as_json)


def _free(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, ... that does not exist."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
