"""Published population flows: mobile spatial statistics, and the 1 km people-flow open data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, raise_faults, rows_faults
from kasuri.ingest import axes
from kasuri.ingest.sources import RAGGED, open_stream
from kasuri.schema import PROVIDER_BOUNDED, Domain, Unit
from kasuri.schema.columns import whole
from kasuri.table import Counts, checked

Files = str | Path | Sequence[str | Path]

_MOBILE = ("date", "time", "area", "residence", "age", "gender", "population")
_TOTALS = ("residence", "age", "gender")


def read_mobile(
    files: Files, domain: Domain, *, columns: Mapping[str, str], unit: Unit, data: str | None = None
) -> Counts:
    """Counts from mobile spatial statistics: CSV with date, time, area, residence, age, gender, population.

    `columns` maps each axis to `area`, `residence`, `age` or `gender`; a Time axis to `time` (date and time together,
    e.g. 20190401 and 0900). -1 in residence, age or gender stands for their total: for a column that is an axis the
    totals are left out, for one that is not only the totals are taken, so that nobody is counted twice. Areas outside
    the domain are left out.
    """
    table = _table(files, _MOBILE)
    keep = np.ones(len(table["population"]), dtype=bool)
    used = set(columns.values())
    for name in _TOTALS:
        total = table[name] == "-1"
        if name not in used and keep.size and not total.any():
            raise DomainError(f"no row has the total (-1) of {name}; make {name} an axis, or take the file with totals")
        keep &= ~total if name in used else total
    return _sum(table, keep, domain, columns, unit, data)


def read_people_flow(
    files: Files,
    domain: Domain,
    *,
    year: int,
    month: int,
    dayflag: int,
    timezone: int,
    unit: Unit,
    data: str | None = None,
) -> Counts:
    """Counts of one month from the 1 km people-flow open data (mesh1kmid, citycode, year, month, dayflag, timezone,
    population). dayflag: 0 holiday, 1 weekday, 2 all; timezone: 0 day, 1 night, 2 all day. A mesh on a border has
    a row per municipality: they are summed; meshes outside the domain are left out. Cells below 10 are not there."""
    present = open_stream(files).names
    code = "mesh1kmid" if "mesh1kmid" in present else "mesh1km"
    table = _table(files, (code, "year", "month", "dayflag", "timezone", "population"))
    keep = np.ones(len(table["population"]), dtype=bool)
    for name, wanted in (("year", year), ("month", month), ("dayflag", dayflag), ("timezone", timezone)):
        keep &= np.array([item.lstrip("0") or "0" for item in table[name]], dtype=object) == str(wanted)
    if keep.size and not keep.any():
        raise DomainError(f"no row is of year {year}, month {month}, dayflag {dayflag}, timezone {timezone}")
    return _sum(table, keep, domain, {axis.name: code for axis in domain.axes}, unit, data)


def _table(files: Files, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The wanted columns as text, of all files."""
    import pyarrow as pa

    stream = open_stream(files)
    raise_faults(
        DomainError,
        # only the missing name: without a header line the others would be data
        [f"{stream.label}: no column {name!r}; is there a header line?"
         for name in wanted if name not in stream.names],
    )  # fmt: skip
    ragged: list[int] = []
    batches = [batch for batch, _ in stream.start(wanted, ragged)]
    raise_faults(DomainError, rows_faults(stream.label, "", RAGGED, ragged))
    if not batches:
        return {name: np.zeros(0, dtype=object) for name in wanted}
    table = pa.Table.from_batches(batches)
    try:
        return {name: np.array(table[name].cast(pa.string()).fill_null("").to_pylist(), object) for name in wanted}
    except UnicodeDecodeError:
        raise DomainError(f"{stream.label}: not UTF-8; save it as UTF-8") from None


def _sum(
    table: Mapping[str, NDArray[Any]],
    keep: NDArray[np.bool_],
    domain: Domain,
    columns: Mapping[str, str],
    unit: Unit,
    data: str | None,
) -> Counts:
    """The kept rows, summed by cell; rows outside the domain are left out, broken numbers are faults."""
    faults = axes.place_faults(list(table), domain, columns, "table") + axes.aggregated(domain)
    raise_faults(DomainError, faults)
    at = np.flatnonzero(keep)
    people, good = whole(table["population"][at])
    if not good.all():
        rows = (at[~good] + 1).tolist()
        raise DomainError(*rows_faults("table", "population", "not a whole number", rows))
    index, good = [], np.ones(at.size, dtype=bool)
    for axis in domain.axes:
        values = table[columns[axis.name]][at]
        if axis.timed:
            values = _times(table["date"][at], values)
        parts, wrong, _ = axis.indices(columns[axis.name], [values])
        index += parts
        good &= ~wrong
    cells = domain.ravel(index)[good]
    if domain.mask:
        possible = domain.possible(cells)
        cells, people = cells[possible], people[good][possible]
    else:
        people = people[good]
    unique, place = np.unique(cells, return_inverse=True)
    total = np.zeros(unique.size, np.int64)
    np.add.at(total, place, people)
    return checked(unique, total, domain, unit, data, assumes=(PROVIDER_BOUNDED,))


def _times(dates: NDArray[Any], times: NDArray[Any]) -> NDArray[Any]:
    """20190401 and 0900 (or 9) -> 2019-04-01T09:00; NaT where they are not a date and a time."""

    def one(date: str, time: str) -> str:
        clock = time.zfill(2).ljust(4, "0") if len(time) <= 2 else time.zfill(4)
        if len(date) == 8 and (date + clock).isdigit() and clock <= "2359":
            return f"{date[:4]}-{date[4:6]}-{date[6:]}T{clock[:2]}:{clock[2:]}"
        return "NaT"

    made = [one(date, time) for date, time in zip(dates.tolist(), times.tolist(), strict=True)]
    try:
        return np.array(made, dtype="datetime64[us]")
    except ValueError:
        raise DomainError("columns date/time: a row is not a date of the calendar") from None
