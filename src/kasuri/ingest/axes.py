"""Where the axes of a domain are in a table; which rows are wrong and the rule they break, never a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kasuri.errors import DomainError
from kasuri.schema import Axis, Domain
from kasuri.schema.columns import Found, Place, names

LONGEST = 1024
"""Bytes of the longest cell of text: a longer one is unknown, like one that is missing. One record must never need more
memory than there is."""


def place_faults(present: Sequence[str], domain: Domain, columns: Mapping[str, Place], file: str) -> list[str]:
    """What is wrong with `columns`, before any row is read."""
    faults = []
    for axis in domain.axes:
        if axis.name not in columns:
            faults.append(f"{file}: columns must say which column holds axis {axis.name!r}")
            continue
        if any(len(label.encode()) > LONGEST for label in axis.labels or ()):  # the rows that have it would be left out
            faults.append(f"{file}: axis {axis.name!r} has a label of more than {LONGEST} bytes; shorten it")
        place = columns[axis.name]
        faults += [f"{file}: {fault}" for fault in axis.place_faults(place)]
        if isinstance(place, Mapping) and set(place) != {"lat", "lon"}:
            faults.append(f'{file}: axis {axis.name!r}: coordinates are {{"lat": column, "lon": column}}')
            continue
        # only the missing name: without a header line the others would be data
        faults += [
            f"{file}: no column {name!r}; is there a header line?" for name in names(place) if name not in present
        ]
    known = {axis.name for axis in domain.axes}
    faults += [f"{file}: no axis {name!r} in the domain" for name in columns if name not in known]
    return faults


def twice(present: Sequence[str], wanted: Iterable[str], file: str) -> list[str]:
    """The wanted columns that a table has twice, or once more but for case and spaces: which one is meant?"""
    plain = [name.strip().casefold() for name in present]
    return [
        f"{file}: more than one column is called {name!r} (case and spaces aside); rename all but one"
        for name in dict.fromkeys(wanted)
        if plain.count(name.strip().casefold()) > 1
    ]


def from_arrow(axis: Axis, place: Place, columns: list[Any]) -> Found:
    """Index arrays of one axis from Arrow columns, which rows are wrong, and the rule they break."""
    import pyarrow as pa

    try:
        return axis.from_arrow(place, columns)
    except pa.ArrowException as error:  # its message can quote a value
        raise DomainError(f"axis {axis.name!r}: its column cannot be read ({type(error).__name__})") from None
