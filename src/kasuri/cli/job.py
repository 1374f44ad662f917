"""kasuri init and kasuri check: a job file, and every fault of it and its data in one go."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from kasuri import files
from kasuri.cli import show


def init(
    path: Path = typer.Argument(Path("job.toml"), help="The job file to write, or the table to begin it from."),
    out: Path = typer.Option(Path("job.toml"), "--out", help="The job file to write for a table."),
    schema: bool = typer.Option(False, "--schema", help="Write the JSON Schema of job files instead."),
    as_json: bool = show.JSON,
) -> None:
    """Write a job file to start from: a commented one, or one begun from the column names of a CSV, Excel or Parquet
    file. No row is read; domain, unit, epsilon and ledger are left open. An existing file is left alone. Examples:

    kasuri init job.toml

    kasuri init census.xlsx --out job.toml
    """
    import json

    from kasuri import job
    from kasuri.ingest.sources import KINDS, open_stream
    from kasuri.job.begun import begun

    text = json.dumps(job.schema(), indent=2) + "\n" if schema else job.TEMPLATE
    if path.suffix.lower() in KINDS:
        where = os.path.relpath(path, out.parent)
        text, path = begun(open_stream(path).names, where), out
    if path.exists():
        raise typer.BadParameter(f"{path} exists; choose another name")
    files.write(path, text, new=True)
    show.result({"file": str(path)}, f"{path} written. Edit it, then: kasuri check {path}", as_json)


def check(
    path: Path = typer.Argument(..., help="A job file (see kasuri init)."),
    outside: bool = typer.Option(False, "--allow-outside", help="Records outside the domain are not faults."),
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
