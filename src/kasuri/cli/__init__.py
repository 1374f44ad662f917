"""`kasuri`: arguments -> the functions of the front door, nothing else.

Exit codes: 0 ok, 1 failure, 2 usage, 3 budget refused. Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import os
import sys

import typer

from kasuri import __version__
from kasuri.cli import (
    demo,
    describe,
    geography,
    job,
    kanon,
    ledger,
    local,
    manifest,
    options,
    plan,
    query,
    release,
    report,
    reproduce,
    series,
    shuffle,
    start,
)
from kasuri.cli.spoken import program, rephrase, spoken
from kasuri.errors import BudgetError, KasuriError

app = typer.Typer(
    name="kasuri",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Publish population tables and mesh statistics with differential privacy.\n\n"
    "Start with:  kasuri demo  or, with a table of yours,  kasuri start FILE  (a page in your browser)",
)
app.command("demo")(demo.demo)
app.command("start")(start.start)
app.command("init")(job.init)
app.command("check")(job.check)
app.command("plan")(plan.plan)
app.command("compare")(plan.compare)
app.command("release", cls=options.NamesRecipes)(release.release)
app.add_typer(local.app, name="local")
app.command("verify")(manifest.verify)
app.command("withdraw")(manifest.withdraw)
app.command("report")(report.report)
app.command("query")(query.query)
app.command("describe")(describe.describe)
app.command("diff")(query.diff)
app.command("keygen")(manifest.keygen)
app.add_typer(geography.app, name="geography")
app.add_typer(ledger.app, name="ledger")
app.add_typer(kanon.app, name="kanon")
app.add_typer(shuffle.app, name="shuffle")
app.add_typer(series.app, name="series")
app.add_typer(reproduce.app, name="reproduce")


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(f"kasuri {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a KasuriError becomes a message and an exit code, any other error its kind."""
    try:
        if os.name != "posix":
            raise KasuriError("kasuri runs on Linux and macOS; on Windows use it inside WSL (wsl --install)")
        command = typer.main.get_command(app)
        rephrase(command)
        command(prog_name=program())
    except KasuriError as error:
        for fault in error.faults:
            typer.echo(f"kasuri: {spoken(fault)}", err=True)
        sys.exit(3 if isinstance(error, BudgetError) else 1)
    except Exception as error:  # a library's message can quote a record: only its kind is shown
        typer.echo(f"kasuri: failed ({type(error).__name__}); its message is withheld, it could quote data", err=True)
        sys.exit(1)
