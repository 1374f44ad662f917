"""The kinds of axes by the word that stored domains and job files use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kasuri.errors import DomainError
from kasuri.schema.axis import Axis
from kasuri.schema.grid import Grid
from kasuri.schema.h3 import H3
from kasuri.schema.mesh import Mesh
from kasuri.schema.nominal import Nominal
from kasuri.schema.ordered import Ordered
from kasuri.schema.regions import Regions
from kasuri.schema.time import Time

KINDS: dict[str, type[Axis]] = {kind.kind: kind for kind in (Mesh, Grid, H3, Regions, Ordered, Nominal, Time)}


def axis_from_json(data: Mapping[str, Any]) -> Axis:
    """The axis `to_json` wrote."""
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DomainError(f"axis kind {kind!r} is not known")
    return KINDS[kind].from_json({key: value for key, value in data.items() if key != "kind"})
