"""kasuri report: one HTML file about a saved release."""

from __future__ import annotations

from pathlib import Path

import typer

from kasuri import files
from kasuri.cli import show


def report(
    folder: Path = typer.Argument(..., help="A saved release."),
    out: Path | None = typer.Option(None, "--out", help="File to write (default: FOLDER-report.html beside it)."),
    internal: Path | None = typer.Option(
        None, "--internal", help="Job file the release was made with: adds maps of the true error. CONFIDENTIAL."
    ),
    browse: bool = typer.Option(False, "--open", help="Open the file in a browser."),
    as_json: bool = show.JSON,
) -> None:
    """Write a report on a release: map, intervals, error, guarantee, checksums; English and Japanese, no network.

    Made from the folder alone. With --internal it shows the truth, is marked confidential and is for your eyes only.

    Example: kasuri report release --open
    """
    from kasuri.errors import DomainError
    from kasuri.report import internal as inner
    from kasuri.report import page

    name = f"{folder.resolve().name}-{'report' if internal is None else 'internal'}.html"
    target = out if out is not None else folder.resolve().parent / name
    if target.resolve().is_relative_to(folder.resolve()):
        raise DomainError(f"{target}: a release folder holds what was released, and nothing else; write beside it")
    if target.is_dir():
        raise DomainError(f"{target}: a folder; name a file")
    with show.step(f"drawing {folder}"):
        if internal is None:
            text = page.build(folder)
        else:
            from kasuri import job

            counts = job.counts(job.load(internal), internal.parent)
            text = inner.build(folder, counts.domain, counts.cells, counts.values)
    data = text.encode()
    if target.exists() and target.read_bytes() != data:
        raise DomainError(f"{target} exists and is something else; choose another name with --out")
    files.write(target, data, private=internal is not None)
    if browse:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    kind = "CONFIDENTIAL: it shows the truth" if internal is not None else "made from the release alone"
    facts = {"file": str(target), "bytes": len(data), "confidential": internal is not None}
    show.result(facts, f"{target}: {len(data) / 1e6:.2f} MB, {kind}", as_json)
