"""kasuri start: the local page."""

from __future__ import annotations

import os
import tempfile
import tomllib
import webbrowser
from pathlib import Path
from typing import Any

import typer

from kasuri import files
from kasuri.cli import show
from kasuri.cli.spoken import program


def start(
    file: Path | None = typer.Argument(
        None, help="A table (.csv, .xlsx, .parquet), a database, or a job file (.toml)."
    ),
    port: int = typer.Option(0, "--port", min=0, max=65535, help="Port on this machine (0: any that is free)."),
    browse: bool = typer.Option(True, "--open/--no-open", help="Open the page in a browser."),
    as_json: bool = show.JSON,
) -> None:
    """Open a page in your browser that takes you from a file to a protected release, step by step, in English or
    Japanese; no file has to be written by hand.

    The page is served on this machine alone, to the one browser that opens the address. It keeps what you choose in
    the job file job.toml of this folder, so that you can close it and go on later, here or with kasuri release.
    Ctrl-C closes it. Examples:

    kasuri start census.xlsx

    kasuri start job.toml --no-open
    """
    from kasuri.start import Desk, Door, listen, serve
    from kasuri.start.desk import DATABASES

    if file is not None and not file.exists():
        raise typer.BadParameter(f"{file}: no such file")
    table = None if file is None or file.suffix.lower() == ".toml" else file
    path = _job(table) if table is not None else (file or Path("job.toml"))
    desk = Desk(path, [table] if table is not None else [])
    if table is not None and not path.exists() and table.suffix.lower() not in DATABASES:
        desk.begin(os.path.relpath(table, path.parent))
    with listen(port) as at:
        door = Door(at.getsockname()[1])
        door.again = lambda address: typer.echo(f"That address was used already. A new one: {address}", err=True)
        show.result(
            {"address": door.address, "job": str(path)},
            f"kasuri is at {door.address}\n"
            f"  The address works once, on this machine. What you choose is kept in {path}. Close with Ctrl-C.",
            as_json,
        )
        with tempfile.TemporaryDirectory(prefix="kasuri-start-") as private:
            if browse:
                _open(Path(private) / "open.html", door.address)
            try:
                serve(desk, door, at)
            except KeyboardInterrupt:  # how uvicorn hands Ctrl-C on
                pass
            finally:
                if desk.busy:
                    typer.echo("a release is running; waiting for it to end", err=True)
                desk.close()
    typer.echo(f"closed. Go on with: {program()} start {path}", err=True)


def _job(table: Path) -> Path:
    """The job file of this folder that is about `table`, or a new name for one."""
    number, path = 1, Path("job.toml")
    while path.exists() and not _about(path, table):
        number += 1
        path = Path(f"job-{number}.toml")
    return path


def _about(path: Path, table: Path) -> bool:
    try:
        data: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("data", {})
        named = [*data.get("files", []), data.get("database", "")]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
    return any(os.path.realpath(path.parent / name) == os.path.realpath(table) for name in named if name)


def _open(page: Path, address: str) -> None:
    """Open the address by way of a file that only this user can read: other users see the words of a command."""
    files.write(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">', private=True)
    webbrowser.open(page.as_uri())
