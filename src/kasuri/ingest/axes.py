"""Where the axes of a domain are in a table; which rows are wrong and the rule they break, never a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kasuri.arrays import Bool
from kasuri.errors import DomainError
from kasuri.schema import Axis, Domain
from kasuri.schema.columns import Found, Place, is_text, names

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


def aggregated(domain: Domain) -> list[str]:
    """Why tables of many rows per place, which an importer adds up, cannot fill cells elsewhere: one person may be in
    several rows outside the window, and nothing says in how many."""
    return [
        f"axis {axis.name!r}: published tables fill no cell elsewhere, as several of their rows may hold one person; "
        "leave elsewhere out"
        for axis in domain.axes
        if axis.elsewhere and axis.plane is not None
    ]


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


_LOOKED_AT = 1000
"""Different wrong codes of a batch whose level is looked for."""


def reasons(axis: Axis, place: Place, columns: list[Any], wrong: Bool, rule: str) -> Iterator[tuple[Bool, str]]:
    """Rows that break the rule of their axis, apart by what can be said of them: inside where latitude and longitude
    are exchanged, or with a code of another level. Confidential, like all that is said of records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rest = wrong
    if isinstance(place, Mapping) and wrong.any():
        rest = wrong & from_arrow(axis, place, columns[::-1])[1]
        yield wrong & ~rest, f"{rule}, but inside it with latitude and longitude exchanged"
    elif len(columns) == 1 and axis.own_level is not None and wrong.any():
        column = columns[0].cast(columns[0].type.value_type) if pa.types.is_dictionary(columns[0].type) else columns[0]
        known = is_text(column) or pa.types.is_integer(column.type)
        texts = column.cast(pa.string()) if known else pa.nulls(len(column), pa.string())
        codes = pc.unique(texts.filter(pa.array(wrong))).drop_null()[:_LOOKED_AT]
        levels = {code: axis.code_level(code) for code in codes.to_pylist()}
        for level in dict.fromkeys(levels.values()):
            if level not in (None, axis.own_level):
                of_it = pa.array([code for code in levels if levels[code] == level], pa.string())
                found = wrong & pc.is_in(texts, value_set=of_it).to_numpy(zero_copy_only=False)
                rest = rest & ~found
                yield found, f"{rule}, but a code of level {level}"
    yield rest, rule
