"""A job file read: its TOML, and every fault of its form by line and key."""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kasuri.errors import FormatError
from kasuri.job.models import Job
from kasuri.job.parameters import Place, form_faults


def load(path: str | Path) -> Job:
    """Read a job file; every fault of its form is named at once, by line and key."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists in lists in lists
        raise FormatError(f"{path}: not TOML ({error})") from None
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        found = sorted((line_of(text, at), words) for at, words in form_faults(error, content))
        raise FormatError(*(f"{path}, line {line}: {words}" for line, words in found)) from None


def line_of(text: str, at: Place) -> int:
    """The line of TOML on which the key `at` is written, or else the nearest table around it; 1 if there is neither.

    Lines up to the end of a value are TOML by themselves; the first of them that hold the key end with its value, and
    every shorter part of that value is no TOML and counts as the whole.
    """
    lines = text.splitlines(keepends=True)

    def depth(count: int) -> int:
        """How many parts of `at` the first `count` lines hold."""
        while True:
            try:
                content: Any = tomllib.loads("".join(lines[:count]))
                break
            except tomllib.TOMLDecodeError:
                count += 1
        for done, part in enumerate(at):
            if part not in (range(len(content)) if isinstance(content, list) else content):
                return done
            content = content[part]
        return len(at)

    most = depth(len(lines))
    return 1 + bisect_left(range(1, len(lines) + 1), most, key=depth) if most else 1


def schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors."""
    return Job.model_json_schema()
