"""docs/cli.md is what --help prints; rewrite it with `python3 tests/architecture/test_docs.py`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def help_of(*words: str) -> str:
    environment = dict(os.environ, COLUMNS="100", TERM="dumb", NO_COLOR="1")
    run = subprocess.run(
        [sys.executable, "-m", "kasuri.cli", *words, "--help"], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    return "\n".join(line.rstrip() for line in run.stdout.strip().splitlines()).replace(
        "python -m kasuri.cli", "kasuri"
    )


def commands(*words: str):
    """This command and, from its help, every one below it."""
    text = help_of(*words)
    yield words, text
    if "\nCommands:" in text:
        for line in text.split("\nCommands:\n")[1].splitlines():
            if line.startswith("  ") and line[2] != " ":
                yield from commands(*words, line.split()[0])


def page() -> str:
    parts = ["# Command line\n\nGenerated from `--help`.\n"]
    for words, text in commands():
        parts.append(f"## {' '.join(('kasuri', *words))}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def test_cli_page_is_what_help_prints():
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page()


def test_no_machine_paths_or_hosts():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    for name in listed:
        if name.endswith((".py", ".md", ".toml", ".lock")):
            assert "/ro" + "ot/" not in (ROOT / name).read_text(encoding="utf-8"), name


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(page(), encoding="utf-8")
