"""docs/assurance.md is made here, from what the runs wrote into docs/assurance.json: never by hand.

A study calls `record` with its table; `python tests/falsify/assurance.py` writes the page anew.
"""

import datetime
import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORE = ROOT / "docs" / "assurance.json"
PAGE = ROOT / "docs" / "assurance.md"
SECTIONS = {
    "claims": "Claims and the lower bounds found",
    "twins": "Broken twins",
    "side doors": "Side doors",
    "faults": "Faults",
    "fuzz": "Hostile input",
    "samplers": "Noise samplers",
    "supply chain": "Supply chain",
}
HEAD = """# Assurance

What was tried against kasuri's guarantees, and what came of it. Every table below was written by a run; the command
that makes it anew is under it.
"""


def kept(section: str) -> dict[str, Any]:
    """What the runs before have left of one section."""
    return json.loads(STORE.read_text(encoding="utf-8")).get(section, {}) if STORE.exists() else {}


def record(section: str, command: str, text: str, columns: list[str], rows: list[list[str]], **more: Any) -> None:
    """Keep one section's table (it replaces the earlier one) and write the page anew."""
    found = json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    found[section] = {"day": day, "command": command, "text": text, "columns": columns, "rows": rows, **more}
    ordered = {name: found[name] for name in SECTIONS if name in found}
    replace(STORE, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    replace(PAGE, render())


def render() -> str:
    """The page, from the kept tables alone."""
    parts = [HEAD]
    for name, kept in json.loads(STORE.read_text(encoding="utf-8")).items():
        lines = [kept["columns"], ["---"] * len(kept["columns"]), *kept["rows"]]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        made = f"Made by `{kept['command']}` on {kept['day']}."
        parts.append(f"## {SECTIONS[name]}\n\n{kept['text']}\n\n{table}\n\n{made}\n")
    return "\n".join(parts)


def replace(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    replace(PAGE, render())
