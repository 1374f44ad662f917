"""What commands print: progress to stderr, one JSON object or a few sentences to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

JSON = typer.Option(False, "--json", help="Print one JSON object instead of text.")


def result(data: dict[str, Any], text: str, as_json: bool) -> None:
    """The result of a command, for a machine or for a person."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else text)


@contextmanager
def step(words: str) -> Iterator[Callable[[float], None]]:
    """A spinner on a terminal, one line elsewhere, while a step runs. The block may tell the share that is done, which
    only a person at the terminal sees."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(words) as status:
            yield lambda share: status.update(f"{words}: {share:.0%}")
    else:
        typer.echo(f"{words} ...", err=True)
        yield lambda share: None  # its steps follow the number of rows, and a log would keep them
