"""`kasuri`: arguments -> the functions of the front door, nothing else.

Exit codes: 0 ok, 1 failure, 2 usage, 3 budget refused. Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from copy import copy
from typing import Any, NoReturn

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


class _WithoutPandas:
    """No command takes or gives a frame of pandas, and pyarrow imports it, where it is installed, at the first array it
    makes: a tenth of a short command. Spark, which needs it, comes first."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"no command needs {name}", name=name)


def _asked(name: str | None) -> Any:
    """The commands as typer runs them; where the first word names one, that one alone: making one takes a millisecond,
    and there are fifty."""
    known = [part.name for part in app.registered_commands] + [part.name for part in app.registered_groups]
    if name not in known:
        return typer.main.get_command(app)
    alone = copy(app)
    alone.registered_commands = [part for part in app.registered_commands if part.name == name]
    alone.registered_groups = [part for part in app.registered_groups if part.name == name]
    return typer.main.get_command(alone)


def main() -> None:
    """Run the command line; a KasuriError becomes a message and an exit code, any other error its kind."""
    try:
        if os.name != "posix":
            raise KasuriError("kasuri runs on Linux and macOS; on Windows use it inside WSL (wsl --install)")
        command = _asked(next(iter(sys.argv[1:]), None))
        rephrase(command)
        if _WithoutPandas not in sys.meta_path:
            sys.meta_path.insert(0, _WithoutPandas)
        command(prog_name=program())
    except KasuriError as error:
        for fault in error.faults:
            typer.echo(f"kasuri: {spoken(fault)}", err=True)
        sys.exit(3 if isinstance(error, BudgetError) else 1)
    except Exception as error:  # a library's message can quote a record: only its kind is shown
        typer.echo(f"kasuri: failed ({type(error).__name__}); its message is withheld, it could quote data", err=True)
        sys.exit(1)


def process() -> NoReturn:
    """`main` in a process of its own, as `kasuri` starts it. A short command would spend a tenth of its time on looking
    for garbage among the modules that it loads, and another on taking them apart at the end: it looks seldom, and ends
    when all is written."""
    gc.set_threshold(50_000, 10, 10)
    code: Any = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    waits = any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    if waits or not isinstance(code, int):
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # whoever read it is gone
        sys.exit(code)
    os._exit(code)
