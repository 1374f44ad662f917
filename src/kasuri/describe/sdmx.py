"""SDMX-CSV 2.0: one line per released cell, its dimensions by label, the limits of its interval as attributes."""

from __future__ import annotations

import csv as text
import io
import re
from typing import Any

import pyarrow as pa

from kasuri.errors import DomainError
from kasuri.published.protected import Protected
from kasuri.store.columns import release_table

STATUS, FREE = "E", "F"
"""CL_OBS_STATUS: an estimated value (noise was added); CL_CONF_STATUS: free for publication."""
OTHER = "_O"
"""The code of SDMX for what is in none of the others: the cell elsewhere, which has no code of its own."""
AGENCY, VERSION = "KASURI", "1.0"
_LEFT = ("release_id", "cell", "value", "lower", "upper", "row", "col")


def csv(manifest: dict[str, Any], release: Protected) -> dict[str, str]:
    """`release.sdmx.csv`. Cells that are not listed are 0, as in every table of the release."""
    table = release_table(release)
    coded = [name for name in table.column_names if name not in _LEFT]
    plain = [name for name in table.column_names if name in ("row", "col")] if not coded else []
    dims = coded + plain if coded else plain or ["cell"]
    ids = [re.sub(r"[^A-Z0-9_]", "_", name.upper()) for name in dims]
    if len(set(ids)) != len(ids):
        raise DomainError("sdmx: two dimensions have the same name in capital letters; rename an axis")
    structure = f"{AGENCY}:{_name(manifest)}({VERSION})"
    out = io.StringIO()
    lines = text.writer(out, lineterminator="\n")
    lines.writerow(
        ["STRUCTURE", "STRUCTURE_ID", "ACTION", *ids, "OBS_VALUE", "OBS_STATUS", "CONF_STATUS", "LOWER", "UPPER"]
    )
    columns = [table[name].cast(pa.string()).to_pylist() for name in (*dims, "value", "lower", "upper")]
    for row in zip(*columns, strict=True):
        *place, value, lower, upper = row
        where = (OTHER if part is None else part for part in place)
        ends = ("" if part is None else part for part in (lower, upper))
        lines.writerow(["dataflow", structure, "I", *where, value, STATUS, FREE, *ends])
    return {"release.sdmx.csv": out.getvalue()}


def _name(manifest: dict[str, Any]) -> str:
    return "RELEASE_" + re.sub(r"[^A-Z0-9_]", "_", str(manifest["privacy"]["release_id"]).upper())
