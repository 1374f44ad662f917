"""kasuri describe: a release in the forms of registries, catalogues and offices."""

from __future__ import annotations

from pathlib import Path

import typer

from kasuri.cli import show


def describe(
    folder: Path = typer.Argument(..., help="The folder of a release."),
    form: str = typer.Option(..., "--as", help="registry, csvw, dcat, sdmx or nist."),
    out: Path | None = typer.Option(None, "--out", help="A folder for the files; one file is printed without it."),
    as_json: bool = show.JSON,
) -> None:
    """Describe a release, verified first, in a form that others read: an entry for a registry of deployments, CSV on
    the Web, DCAT and schema.org, SDMX-CSV, or a page that answers NIST SP 800-226 and ISO/IEC 27559 point by point.

    Facts about the input are those that the publisher declared in [about]. Example:

    kasuri describe release --as dcat --out catalogue
    """
    from kasuri.describe import describe as made
    from kasuri.errors import DomainError
    from kasuri.files import write

    files = made(folder, form)
    if out is None and len(files) > 1:
        raise DomainError(f"--as {form} makes {len(files)} files: {', '.join(files)}; say where with --out")
    if out is None:
        typer.echo(next(iter(files.values())), nl=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    taken = [name for name in files if (out / name).exists()]
    if taken:
        raise DomainError(*(f"{out / name} exists already; nothing is overwritten" for name in taken))
    for name, text in files.items():
        write(out / name, text, new=True)
    written = [str(out / name) for name in files]
    show.result({"files": written}, "\n".join(written), as_json)
