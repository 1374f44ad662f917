"""kasuri init and kasuri check: a job file, and every fault of it and its data in one go."""

from __future__ import annotations

from pathlib import Path

import typer

from kasuri import files
from kasuri.cli import show


def init(
    path: Path = typer.Argument(Path("job.toml"), help="File to write; an existing one is left alone."),
    schema: bool = typer.Option(False, "--schema", help="Write the JSON Schema of job files instead."),
    as_json: bool = show.JSON,
) -> None:
    """Write a commented job file to start from; nothing in it is taken from data.

    Example: kasuri init job.toml
    """
    import json

    from kasuri import job

    text = json.dumps(job.schema(), indent=2) + "\n" if schema else job.TEMPLATE
    if path.exists():
        raise typer.BadParameter(f"{path} exists; choose another name")
    files.write(path, text, new=True)
    show.result({"file": str(path)}, f"{path} written. Edit it, then: kasuri check {path}", as_json)


def check(
    path: Path = typer.Argument(..., help="A job file (see kasuri init)."),
    outside: bool = typer.Option(False, "--allow-outside", help="Records outside the domain are no fault."),
    as_json: bool = show.JSON,
) -> None:
    """Find every fault of a job file and its data in one go: file, row, column, remedy. Exit code 1 if there is one.

    The answer depends on the data without protection: it is for the operator's eyes. Example:

    kasuri check job.toml
    """
    from kasuri import job

    with show.step(f"checking {path}"):
        faults = job.check(path, outside=outside)
    lines = [f"  {fault}" for fault in faults]
    text = "\n".join([f"{path}: {len(faults)} faults. CONFIDENTIAL: computed from the data.", *lines])
    show.result(
        {"file": str(path), "confidential": True, "faults": faults}, text if faults else f"{path}: no fault", as_json
    )
    if faults:
        raise typer.Exit(1)
