"""A job file begun from the header of a table: what the names say, and everything else left open.

Only the names of the columns are looked at, never a row: files with equal headers give equal job files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kasuri.job.written import text as _text

MESH = re.compile(r"(?i)mesh(_?code)?|key_code|(地域)?メッシュ(コード)?")
LAT = re.compile(r"(?i)lat(itude)?|緯度")
LON = re.compile(r"(?i)lon(gitude)?|lng|経度")
TIME = re.compile(r"(?i)(date|time|hour|timestamp|day)(_?(time|of_day))?|日付|時刻|日時|時間帯?")
COUNT = re.compile(r"(?i)population|count|people|persons|value|n|weight|人口(総数)?|人数|値")
IDENTITY = re.compile(
    r"(?i)(person|people|user|phone|device|household|member|customer|patient)(_?(id|no|number))?|id|(個人|世帯|利用者)?(ID|番号)"
)
CATEGORIES = {
    "sex": re.compile(r"(?i)sex|gender|性別|男女(別)?"),
    "age": re.compile(r"(?i)age([ _]?(group|class|band))?s?|年齢(階級|区分|層|別)?|年代"),
    "prefecture": re.compile(r"(?i)pref(ecture)?([ _]?(code|name))?|都道府県(コード|名)?"),
    "day": re.compile(r"(?i)weekday|day[ _]of[ _]week|曜日"),
    "place": re.compile(r"(?i)(ward|city|municipality|region|county|district|area)([ _]?(code|name))?"
                        r"|(市区町村|市町村|区|地域)(コード|名)?"),
}  # fmt: skip
"""Columns of labels by the kind of list that says which labels there can be."""
OPEN = "# left open on purpose:"


def begun(names: Sequence[str], file: str) -> str:
    """The text of a job file for the table `file` with these columns; `kasuri check` then lists what is still open."""
    mesh, lat, lon = (_first(names, rule) for rule in (MESH, LAT, LON))
    time, count, person = (_first(names, rule) for rule in (TIME, COUNT, IDENTITY))
    known = {mesh, lat, lon, time, count, person}
    rest = [name for name in names if name not in known]
    columns = []
    if mesh is not None:
        columns.append(f"grid = {_text(mesh)}")
    elif lat is not None and lon is not None:
        columns.append(f"grid = {{ lat = {_text(lat)}, lon = {_text(lon)} }}")
    if time is not None:
        columns.append(f"time = {_text(time)}")
    lines = [
        "# A kasuri job begun from the names of the columns alone: no row was read, and nothing in it comes from one.",
        "# What is public is declared by you; what is left open has no default. Then: kasuri check",
        "",
        "[data]",
        f'{OPEN} the declared name of the data, used in ledger and certificate\n# name = "census-2020"',
        f"files = [{_text(file)}]",
        f"# its columns: {', '.join(map(_text, names))}",
        f"columns = {{ {', '.join(columns)} }}"
        if columns
        else f'{OPEN} axis -> column\n# columns = {{ grid = "..." }}',
    ]
    if count is not None:
        lines.append(f"weight = {_text(count)}" + ("" if person is None else "    # only if records carry weights"))
    lines += ["", *_axes(grid=mesh is not None or lat is not None, time=time is not None, rest=rest)]
    lines += [
        "[unit]",
        f"{OPEN} who is protected, and by how much one of them can change the table",
        f"id = {_text(person)}"
        if person is not None
        else '# id = "person"              # the id column, where there is one',
        '# change = "add-remove"      # or "replace"',
        "# max_cells = 1              # in how many cells one of them can be counted",
        "",
        "[budget]",
        f"{OPEN} the privacy loss, an exact decimal in quotes, and the ledger that pays (kasuri ledger open)",
        '# epsilon = "..."',
        '# ledger = "..."',
        "",
        "[output]",
        'folder = "release"',
        "",
    ]
    return "\n".join(lines)


def recognised(names: Sequence[str]) -> dict[str, str]:
    """What each column is by its name: mesh, lat, lon, time, count, id, or a kind of CATEGORIES; others are left out.
    A kind that is one column's is given to the first that has the name."""
    found: dict[str, str] = {}
    rules = {"mesh": MESH, "lat": LAT, "lon": LON, "time": TIME, "count": COUNT, "id": IDENTITY} | CATEGORIES
    for kind, rule in rules.items():
        name = _first([name for name in names if name not in found], rule)
        if name is not None:
            found[name] = kind
    return found


def declared(names: Sequence[str], file: str, data: str) -> dict[str, Any]:
    """The content of a job file for the table `file` with these columns: places and kinds of axes by the names of the
    columns, and nothing that is public. It is not whole: what is declared by people is missing."""
    kinds = {kind: name for name, kind in recognised(names).items()}
    columns: dict[str, Any] = {}
    axes: list[dict[str, Any]] = []
    if "mesh" in kinds:
        columns["grid"] = kinds["mesh"]
    elif "lat" in kinds and "lon" in kinds:
        columns["grid"] = {"lat": kinds["lat"], "lon": kinds["lon"]}
    if columns:
        axes.append({"kind": "mesh", "name": "grid"})
    if "time" in kinds:
        columns["time"] = kinds["time"]
        axes.append({"kind": "time", "name": "time"})
    for kind in CATEGORIES:
        if kind in kinds:
            columns[kinds[kind]] = kinds[kind]
            axes.append({"kind": "ordered" if kind in ("age", "day") else "nominal", "name": kinds[kind]})
    content: dict[str, Any] = {"data": {"name": data, "files": [file], "columns": columns}, "axes": axes}
    if "count" in kinds and "id" not in kinds:
        content["data"]["weight"] = kinds["count"]
    if "id" in kinds:
        content["unit"] = {"id": kinds["id"]}
    return content | {"output": {"folder": "release"}}


def _axes(*, grid: bool, time: bool, rest: Sequence[str]) -> list[str]:
    lines = []
    if grid:
        lines += [
            "[[axes]]                     # the public domain: never taken from the file",
            'kind = "mesh"\nname = "grid"',
            f"{OPEN} the level and the public window",
            '# level = "500m"             # 80km 10km 5km 2km 1km 500m 250m 125m',
            '# window = "..."             # japan kanto kinki kyushu tohoku, or a first-order mesh such as "5339"',
            "",
        ]
    if time:
        lines += [
            '[[axes]]\nkind = "time"\nname = "time"',
            f"{OPEN} when it starts, how long a step is, how many there are",
            '# start = "2020-10-01T00:00"\n# seconds = 3600\n# size = 24',
            "",
        ]
    if rest:
        lines.append("# Further columns: an axis for each that the table shall have (and its place in columns above).")
    for name in rest:
        lines += [
            f'# [[axes]]\n# kind = "nominal"           # or "ordered"\n# name = {_text(name)}',
            '# labels = ["..."]           # every label that can be, from a public list',
            "",
        ]
    return lines


def _first(names: Sequence[str], rule: re.Pattern[str]) -> str | None:
    return next((name for name in names if rule.fullmatch(name.strip())), None)
