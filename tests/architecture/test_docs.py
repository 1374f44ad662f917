"""docs/cli.md is what --help prints, and the list of docs/guide/mechanisms.md is what RECIPES says; rewrite both with
`python3 tests/architecture/test_docs.py`."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


ASKED = """
import json, os, sys
import typer
from kasuri.cli import app, program, rephrase

command = typer.main.get_command(app)
rephrase(command)
for line in sys.stdin:  # a process each, forked from one that has loaded the command line
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, 1)
        try:
            command([*json.loads(line), "--help"], prog_name=program())
        except SystemExit as stop:
            sys.stdout.flush()
            os._exit(stop.code or 0)  # to take its modules apart would cost most of its time
    os.close(write)
    with open(read, encoding="utf-8") as said:
        text = said.read()
    print(json.dumps([os.wait()[1], text]), flush=True)
"""


def commands(asked: subprocess.Popen[str], *words: str):
    """This command and, from its help, every one below it."""
    asked.stdin.write(json.dumps(words) + "\n")
    asked.stdin.flush()
    code, said = json.loads(asked.stdout.readline())
    assert code == 0, words
    text = "\n".join(line.rstrip() for line in said.strip().splitlines())
    yield words, text
    if "\nCommands:" in text:
        for line in text.split("\nCommands:\n")[1].splitlines():
            if line.startswith("  ") and line[2] != " ":
                yield from commands(asked, *words, line.split()[0])


def page() -> str:
    parts = ["# Command line\n\nGenerated from `--help`.\n"]
    environment = dict(os.environ, COLUMNS="100", TERM="dumb", NO_COLOR="1", KASURI_COMMAND="kasuri")
    command, pipe = [sys.executable, "-c", ASKED], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as asked:
        for words, text in commands(asked):
            parts.append(f"## {' '.join(('kasuri', *words))}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def test_cli_page_is_what_help_prints():
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page()


# -- the page that owns the choice of recipe ---------------------------------------------------------------------------

CHOICE = ROOT / "docs" / "guide" / "mechanisms.md"
BEGIN, END = "<!-- made from RECIPES by tests/architecture/test_docs.py -->\n", "<!-- end -->\n"


def recipes() -> str:
    """Every recipe: how it is called, the first line of its docstring, its proof."""
    import kasuri as ks

    rows = ["| recipe | what it is | |", "| --- | --- | --- |"]
    for name, make in ks.recipes.RECIPES.items():
        given = inspect.signature(make).parameters.values()
        called = ", ".join(f"{one.name}={one.default!r}".replace("'", '"') for one in given)
        door = f"ks.{name}" if name in ks.__all__ else f"ks.recipes.{name}"
        line = (inspect.getdoc(make) or "").partition("\n")[0]
        proof = make().basis.removeprefix("docs/")
        assert "Privacy\n---" in (make.__doc__ or "").replace("    ", ""), f"{name} has no Privacy block"
        assert (ROOT / "docs" / proof).exists(), f"{name} has no proof page"
        rows.append(f"| `{door}({called})` | {line} | [proof](../{proof}) |")
    return "\n".join(rows) + "\n"


def with_recipes(text: str) -> str:
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, "mechanisms.md has lost the marks of its list"
    return head + begin + recipes() + end + tail


def test_the_page_of_recipes_lists_every_one_and_says_when_to_take_it():
    text = CHOICE.read_text(encoding="utf-8")
    assert text == with_recipes(text)
    import kasuri as ks

    choice = text.partition("## Which to take")[2].partition("\n## ")[0]
    assert [name for name in ks.recipes.RECIPES if f"`{name}" not in choice] == []


def test_no_other_page_has_a_choice_of_its_own():
    """A table that says which recipe to take for what is on one page; the others link to it."""
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8")
        if path != CHOICE and "_build" not in path.parts:
            assert not re.search(r"^\| you publish \|", text, re.MULTILINE), f"{path.name}: link to mechanisms.md"
    for name in ("accuracy", "choosing", "first-release", "plan-and-compare"):
        assert "](mechanisms.md" in (CHOICE.parent / f"{name}.md").read_text(encoding="utf-8"), name


def test_no_machine_paths_or_hosts():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for lock in ROOT.glob("*.lock"):
        assert "://" not in lock.read_text()
    for name in listed:
        if name.endswith((".py", ".md", ".toml", ".lock")):
            assert "/ro" + "ot/" not in (ROOT / name).read_text(encoding="utf-8"), name


def test_every_page_is_listed_once():
    """Sphinx warns of a page that is listed twice or not at all, and `run.py docs` takes warnings for errors."""
    listed, seen = (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), []
    for tree in listed.split("```{toctree}")[1:]:
        lines = [line.strip() for line in tree.split("```")[0].splitlines()]
        named = [line for line in lines if line and not line.startswith(":")]
        whole = [name for name in named if "*" not in name]
        assert len(whole) == len(set(whole)), f"listed twice: {sorted({n for n in whole if whole.count(n) > 1})}"
        for pattern in named:
            found = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in ROOT.glob(f"docs/{pattern}.md")}
            assert found, f"docs/index.md lists {pattern}, which is not there"
            seen += sorted(found - set(seen))
    assert sorted(seen) == sorted(
        str(page.relative_to(ROOT / "docs").with_suffix(""))
        for page in (ROOT / "docs").rglob("*.md")
        if "_build" not in page.parts and page.name != "index.md"
    )


STUB = """#!/bin/sh
[ "$1" = run.py ] || exit 0
echo "$2" >> asked
[ "$2" != "$FAILS" ]
"""


@pytest.mark.parametrize("fails", ["", "warm-up", "docs", "check", "test"])
def test_ci_runs_everything_and_every_failure_counts(fails, tmp_path):
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".tools" / "node_modules" / "axe-core").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name in ("python3", "apt-get", "npm", "chromium", "strace", "node", "java"):
        (tmp_path / name).write_text(STUB)
        (tmp_path / name).chmod(0o700)
    environment = dict(os.environ, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", FAILS=fails)
    done = subprocess.run([tmp_path / ".ci" / "run"], env=environment, capture_output=True)
    assert (done.returncode == 0) == (not fails)
    asked = (tmp_path / "asked").read_text().split()
    assert sorted(asked) == (["warm-up"] if fails == "warm-up" else ["check", "docs", "test", "warm-up"])


def test_what_the_demo_leaves_is_ignored():
    """`python3 run.py demo` writes where it is called: a folder and a picture, numbered from the second time on."""
    made = ["kasuri-demo/report.html", "kasuri-demo.png", "docs/kasuri-demo-2/report.html", "docs/kasuri-demo-2.png"]
    ignored = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert ignored == made


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(page(), encoding="utf-8")
    CHOICE.write_text(with_recipes(CHOICE.read_text(encoding="utf-8")), encoding="utf-8")
