"""Hints name the command as it works in this shell: kasuri, python -m kasuri, or python3 run.py kasuri."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

COMMANDS = (
    "check", "compare", "demo", "describe", "diff", "geography", "init", "kanon", "keygen", "ledger", "local", "plan",
    "query", "release", "report", "reproduce", "series", "shuffle", "start", "verify", "withdraw",
)  # fmt: skip
_HINT = re.compile(rf"(?<![\w./-])kasuri (?=(?:{'|'.join(COMMANDS)})\b)")


@cache
def program() -> str:
    """What was typed to get here; run.py says so itself."""
    if os.environ.get("KASURI_COMMAND"):
        return os.environ["KASURI_COMMAND"]
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        python = "python" if shutil.which("python") == sys.executable else shlex.quote(sys.executable)
        return f"{python} -m kasuri"
    found = shutil.which(called.name)
    return called.name if found and Path(found).resolve() == called.resolve() else shlex.quote(str(called))


def spoken(text: str) -> str:
    """`text`, with every command in it as it can be typed here."""
    return text if program() == "kasuri" else _HINT.sub(lambda _: f"{program()} ", text)


def rephrase(command: Any) -> None:
    """The same for the help of a command and of all below it."""
    command.help = spoken(command.help or "")
    for option in command.params:
        if getattr(option, "help", None):
            option.help = spoken(option.help)
    for below in getattr(command, "commands", {}).values():
        rephrase(below)
