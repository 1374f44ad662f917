"""What commands print: progress to stderr, one JSON object or a few sentences to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import typer

from kasuri.cli.spoken import spoken

if TYPE_CHECKING:
    from rich.progress import Progress

JSON = typer.Option(False, "--json", help="Print one JSON object instead of text.")


def result(data: dict[str, Any], text: str, as_json: bool) -> None:
    """The result of a command, for a machine or for a person."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else spoken(text))


@contextmanager
def step(words: str) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, one line elsewhere, while a step runs. The bar moves to and fro until the block tells the
    share that is done, which only a person at the terminal sees."""
    if sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(words, total=None)
            yield lambda share: bar.update(task, total=1.0, completed=share)
    else:
        typer.echo(f"{words} ...", err=True)
        yield lambda share: None  # its steps follow the number of rows, and a log would keep them


@contextmanager
def course(steps: int) -> Iterator[Callable[[str], None]]:
    """One bar over a known number of steps: gives a function that names the step that begins now."""
    if sys.stderr.isatty():
        with _bar() as bar:
            task, begun = bar.add_task("", total=steps), count()

            def begin(words: str) -> None:
                bar.update(task, description=f"{words} ...", completed=next(begun))

            yield begin
    else:
        number = count(1)
        yield lambda words: typer.echo(f"{next(number)}/{steps} {words} ...", err=True)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True), transient=True)
