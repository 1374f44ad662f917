"""kasuri keygen, kasuri verify and kasuri withdraw"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kasuri.cli import show


def keygen(
    path: Annotated[Path, typer.Argument(help="File for the private key; the public key goes to PATH.pub.")],
    as_json: bool = show.JSON,
) -> None:
    """Make an Ed25519 key pair to sign releases with. Keep the private key; hand the .pub file to readers.

    Example: kasuri keygen office.key
    """
    from kasuri.manifest import keygen as make

    private, public = make(path)
    if as_json:
        typer.echo(json.dumps({"private": str(private), "public": str(public)}))
    else:
        typer.echo(f"private key {private} (keep it), public key {public} (hand it out)")


def verify(
    folder: Annotated[Path, typer.Argument(help="A saved release.", show_default=False)],
    key: Annotated[Path | None, typer.Option(help="Public key, from its owner, not from the folder.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger that paid for it.")] = None,
    as_json: bool = show.JSON,
) -> None:
    """Check a release: form, every file's hash, signature, tables, certificate, and the ledger's entry.

    Recipe and refinement are run again, and what they give is compared; what could not be run again is listed.

    Example: kasuri verify release/ --key office.key.pub
    """
    from kasuri.manifest import notice
    from kasuri.manifest import verify as check

    result = check(folder, key=key, ledger=ledger)
    told = notice(folder)
    if as_json:
        said = {**result} if told is None else {**result, "withdrawn": told}
        typer.echo(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        if told is not None:
            typer.echo(f"WITHDRAWN on {told['day']}: {told['reason']}", err=True)
        for fault in result.faults:
            typer.echo(fault, err=True)
        state = "whole" if result.ok else "NOT as it was written"
        for item in result.not_recomputed if result.ok else ():
            typer.echo(f"not recomputed: {item}")
        typer.echo(f"{folder}: {state}; signature: {result.signature}; ledger: {result.ledger}")
    if not result.ok:
        raise typer.Exit(1)


def withdraw(
    folder: Annotated[Path, typer.Argument(help="A saved release.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for readers; it must not reveal anything about a record.")],
    day: Annotated[str, typer.Option(help="The day of the withdrawal, such as 2026-11-18.")],
    replaced_by: Annotated[str | None, typer.Option(help="The id of the corrected release.")] = None,
    as_json: bool = show.JSON,
) -> None:
    """Withdraw a release, or say which one corrects it: a notice beside its files, which stay as they were written.
    What it spent stays spent. `kasuri verify` and `kasuri describe` then say so.

    Example: kasuri withdraw release --reason "ages were shifted by a year" --day 2026-11-18
    """
    from kasuri.manifest import withdraw as take_back

    found = take_back(folder, reason=reason, day=day, replaced_by=replaced_by)
    text = f"{folder}: withdrawn; epsilon {found['spent']['epsilon']} stays spent. Hand out withdrawn.md with it."
    show.result(found, text, as_json)
