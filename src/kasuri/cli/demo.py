"""kasuri demo: the real census around Tokyo, planned, protected, verified, with a report to open; and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from kasuri.cli import show


def demo(
    what: str = typer.Argument("release", help="release, local, shuffle or kanon."),
    out: Path | None = typer.Option(None, "--out", help="New folder (default: kasuri-demo, kasuri-demo-2, ...)."),
    epsilon: str | None = typer.Option(None, "--epsilon", help="Privacy loss (release: 0.1; local, shuffle: 2)."),
    browse: bool = typer.Option(False, "--open", help="Open the report in a browser."),
    as_json: bool = show.JSON,
) -> None:
    """See kasuri at work in a few seconds, with a report at the end.

    release: the 2020 census around Tokyo (shipped with kasuri), planned, released and verified. local: a simulated
    crowd that reports its ward to a real collector. shuffle: two organisations join what neither may show. kanon: UCI
    Adult, made k-anonymous and audited. Examples:

    kasuri demo --out my-first-release --open

    kasuri demo local
    """
    from kasuri.cli.demos import KINDS

    if what != "release":
        if what not in KINDS:
            raise typer.BadParameter(f"{what!r} is not a demo; use release, {', '.join(KINDS)}")
        make, usual = KINDS[what]
        if epsilon is not None and not usual:
            raise typer.BadParameter("k-anonymity has no epsilon; leave --epsilon out")
        data, story, ok = make(out if out is not None else _free(Path(f"kasuri-demo-{what}")), epsilon or usual)
        show.result(data, story, as_json)
        _end(data["report"], browse, ok)
        return
    _release(out, epsilon or "0.1", browse, as_json)


def _end(report: str | Path, browse: bool, ok: bool) -> None:
    if browse:
        import webbrowser

        webbrowser.open(Path(report).as_uri())
    if not ok:
        raise typer.Exit(1)


def _release(out: Path | None, epsilon: str, browse: bool, as_json: bool) -> None:
    import kasuri as ks
    from kasuri import examples
    from kasuri.cli.release import summary
    from kasuri.ingest import read_table
    from kasuri.report.figures import map_png

    folder = out if out is not None else _free(Path("kasuri-demo"))
    domain, unit, recipe = examples.kanto_domain(), examples.person(), ks.best()
    with show.course(5) as begin:
        begin("choosing a recipe for a mesh of this size (no data is read for this)")
        recipe.on(domain, unit, epsilon)  # every refusal is made here
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
    told = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))["privacy"]["expected_error"]
    errors = {row["cells"]: row["rmse"] for row in told["after_refinement"]}
    data = summary(released, folder) | {
        "map": str(picture),
        "report": str(report),
        "verified": verified["ok"],
        "rmse": {str(cells): rmse for cells, rmse in errors.items()},
    }
    show.result(data, _story(released, errors, folder, picture, report, verified["ok"], epsilon), as_json)
    _end(report, browse, verified["ok"])


def _story(
    released: Any, errors: dict[int, float], folder: Path, picture: Path, report: Path, whole: bool, epsilon: str
) -> str:
    from kasuri import examples

    size, chosen = released.domain.size, released.recipe["chosen"]
    return f"""\
What was promised: at epsilon {epsilon} no result is more than e^{epsilon} times as likely with any one person in the
  data as without. This was fixed before the data was read.
How it was made: {released.recipe["name"]}, chosen without looking at the data ({chosen["why"]}).
What came out: {released.cells.size:,} populated cells of {size:,} and {released.total():,} people in whole numbers,
  none negative, and every block of cells is the sum of its parts; the noise is exact on the integers.
How exact it is: released counts are off by {errors[1]:.3g} people (root mean square) for one cell of 500 m,
  {errors[1 << 10]:.3g} for a block of 32 x 32 cells and {errors[size]:.3g} for the total, as estimated from the
  noisy numbers that are published with them.
Unchanged since it was written: {"yes, every file" if whole else "NO"} (kasuri verify {folder})

  report    {report}
            open it in any browser: a map to zoom, English and Japanese, no network  (kasuri demo --open)
  database  {folder / "release.duckdb"}    SELECT sum(value) FROM release
  picture   {picture}

What to try next:
  kasuri demo --epsilon 1                      ten times the privacy loss, a tenth of the noise
  kasuri start FILE                            publish your own table, on a page in your browser
  kasuri init job.toml                         the same without a page: a commented file to fill in
  kasuri demo local | shuffle | kanon          devices, two organisations, k-anonymity
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
