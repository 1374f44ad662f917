"""A job as text: the TOML of its file, and the Python that does the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from kasuri.job.facts import domain, unit
from kasuri.job.models import Job
from kasuri.job.parameters import places

HEAD = """\
# A kasuri job, written by `kasuri start`. What is public was declared there; nothing here comes from a row of the data.
# The same once more:  kasuri check {file}   and   kasuri release {file}
"""
_TABLES = ("data", "axes", "masks", "unit", "recipe", "budget", "output", "about", "spark")
_BARE = re.compile("[A-Za-z0-9_-]+")
_HIDDEN = re.compile("[\x00-\x1f\x7f\u0085\u2028\u2029]")


def toml(content: Mapping[str, Any], file: str) -> str:
    """The text of the job file `file`: tables in the order of the guide; keys without a value (None) are left out."""
    parts = [HEAD.format(file=file)]
    plain = {key: value for key, value in content.items() if key not in _TABLES}
    if plain:
        parts.append(_lines(plain))
    for key in _TABLES:
        value = content.get(key)
        if isinstance(value, Mapping):
            parts.append(f"[{key}]\n{_lines(value)}")
        elif isinstance(value, list):
            parts += [f"[[{key}]]\n{_lines(item)}" for item in value]
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(own)}" for key, own in value.items() if own is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def text(words: str) -> str:
    """A TOML string; a character that would end the line is written by its number."""
    out = words.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", out) + '"'


def python(job: Job, base: Path, file: str) -> str:
    """The Python that does what the job file `file` does; where the job needs more than plain values it runs the file
    itself."""
    data, recipe = job.data, job.recipe
    plain = data.kind == "table" and len(data.files) == 1 and job.spark is None and not job.masks
    special = data.encoding or data.sheet or data.melt or data.sampling_key or data.assume or recipe.public
    axes = [f"ks.{axis!r}" for axis in domain(job, base).axes] if plain and not special else []
    if not axes or any("(" in axis.partition("(")[2].replace("=(", "=") for axis in axes):
        return f"from pathlib import Path\n\nfrom kasuri import job\n\nout = job.run(job.load({file!r}), Path())\n"
    who = unit(job)
    given = ", ".join(f"{name}={getattr(recipe, name)!r}" for name in sorted(recipe.model_fields_set - {"name"}))
    words = f", weight={data.weight!r}" if data.weight else ""
    words += ", sum=True" if data.sum else ""
    ledger = "None" if job.budget.ledger is None else f"ks.Ledger.load({job.budget.ledger!r})"
    free = ", unmetered=True" if job.budget.ledger is None else ""
    about = f", about={job.about.words()!r}" if job.about is not None else ""
    levels = f", levels={job.output.levels!r}" if job.output.levels else ""
    bound = f", max_weight={who.max_weight}" if who.max_weight is not None else ""
    lines = [
        "import kasuri as ks\n",
        "domain = ks.Domain.of(",
        *(f"    {axis}," for axis in axes),
        ")",
        f"unit = ks.Unit(id={who.id!r}, change={who.change!r}, max_cells={who.max_cells}{bound})",
        "counts = ks.count(",
        f"    {data.files[0]!r}, domain, columns={places(data.columns)!r}, unit=unit{words}, data={data.name!r}",
        ")",
        f"ledger = {ledger}",
        f"out = ks.release(counts, ks.recipes.{recipe.name}({given}), epsilon={job.budget.epsilon!r}, "
        f"ledger=ledger{about})",
        f"out.save({job.output.folder!r}{free})",
        *(f"out.export({export!r}{levels}{free})" for export in job.output.exports),
    ]
    return "\n".join(lines) + "\n"
