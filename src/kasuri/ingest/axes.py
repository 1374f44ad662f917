"""Columns of a table to indices of the domain's axes; which rows are wrong and the rule they break, never a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.errors import DomainError
from kasuri.schema import Axis, Domain, Mesh, Nominal, Ordered, Time

Place = str | Sequence[str] | Mapping[str, str]
"""Where an axis stands: one column; two (row, col); or {"lat": column, "lon": column}."""

Int = NDArray[np.int64]

LONGEST = 1024
"""Bytes of the longest cell of text: a longer one is unknown, like one that is missing. One record must never need more
memory than there is."""


def names(place: Place) -> list[str]:
    """The columns of a place, in the order `indices` takes them."""
    if isinstance(place, str):
        return [place]
    return [place["lat"], place["lon"]] if isinstance(place, Mapping) else list(place)


def place_faults(present: Sequence[str], domain: Domain, columns: Mapping[str, Place], file: str) -> list[str]:
    """What is wrong with `columns`, before any row is read."""
    faults = []
    for axis in domain.axes:
        if axis.name not in columns:
            faults.append(f"{file}: columns must say where axis {axis.name!r} stands")
            continue
        labels = getattr(axis, "labels", None) or ()
        if any(len(label.encode()) > LONGEST for label in labels):  # the rows that have it would be left out
            faults.append(f"{file}: axis {axis.name!r} has a label of more than {LONGEST} bytes; shorten it")
        place = columns[axis.name]
        if isinstance(place, Mapping):
            if not isinstance(axis, Mesh) or axis.level is None:
                faults.append(f"{file}: axis {axis.name!r} is no mesh with a level; coordinates cannot place it")
            if set(place) != {"lat", "lon"}:
                faults.append(f'{file}: axis {axis.name!r}: coordinates are {{"lat": column, "lon": column}}')
                continue
        else:
            allowed = (1, 2) if isinstance(axis, Mesh) else (1,)
            if len(names(place)) not in allowed:
                faults.append(f"{file}: axis {axis.name!r} stands in {' or '.join(map(str, allowed))} columns")
            if isinstance(axis, Mesh) and axis.level is None and len(names(place)) == 1:
                faults.append(f"{file}: axis {axis.name!r} has no level, so it needs two columns (row, col)")
        # only the missing name: without a header line the others would be data
        faults += [
            f"{file}: no column {name!r}; is there a header line?" for name in names(place) if name not in present
        ]
    known = {axis.name for axis in domain.axes}
    faults += [f"{file}: no axis {name!r} in the domain" for name in columns if name not in known]
    return faults


def twice(present: Sequence[str], wanted: Iterable[str], file: str) -> list[str]:
    """The wanted columns that stand twice in a table, or once more but for case and spaces: which one is meant?"""
    plain = [name.strip().casefold() for name in present]
    return [
        f"{file}: more than one column is called {name!r} (case and spaces aside); rename all but one"
        for name in dict.fromkeys(wanted)
        if plain.count(name.strip().casefold()) > 1
    ]


def indices(axis: Axis, place: Place, parts: list[NDArray[Any]]) -> tuple[list[Int], NDArray[np.bool_], str]:
    """Index arrays of one axis, which rows are wrong, and the rule they break."""
    if isinstance(axis, Mesh):
        if isinstance(place, Mapping):
            lat, lon = _number(parts[0]), _number(parts[1])
            row, col, good = meshcode.try_locate(lat, lon, axis.level or "")
            rule = "not a latitude and longitude in degrees inside the window"
        elif len(parts) == 1:
            numbers, good = whole(parts[0])
            row, col, decoded = meshcode.try_decode(numbers, axis.level or "")
            rule = f"not a {axis.level} mesh code inside the window"
            good &= decoded
        else:
            (row, a), (col, b) = whole(parts[0]), whole(parts[1])
            good = a & b
            rule = "row or column outside the window"
        row, col = row - axis.origin[0], col - axis.origin[1]
        good &= (row >= 0) & (row < axis.shape[0]) & (col >= 0) & (col < axis.shape[1])
        return [np.where(good, row, 0), np.where(good, col, 0)], ~good, rule
    values = parts[0]
    labels = axis.labels if isinstance(axis, (Nominal, Ordered)) else None
    if isinstance(axis, Time) and np.issubdtype(values.dtype, np.datetime64):
        number, good = _steps(axis, values)
        return [np.where(good, number, 0)], ~good, f"not a time of axis {axis.name!r}"
    if labels is not None:
        import pyarrow as pa

        return _places(_labels(pa.array(values.tolist(), from_pandas=True), labels), axis)
    number, good = whole(values)
    good &= (number >= 0) & (number < axis.sizes[0])
    return [np.where(good, number, 0)], ~good, f"not an index of axis {axis.name!r} (0..{axis.sizes[0] - 1})"


def whole(values: NDArray[Any]) -> tuple[Int, NDArray[np.bool_]]:
    """Whole numbers from an integer, float or text column, and which entries are."""
    if np.issubdtype(values.dtype, np.unsignedinteger) and values.dtype.itemsize == 8:
        good = values < np.uint64(1 << 63)
        return np.where(good, values, 0).astype(np.int64), good
    if np.issubdtype(values.dtype, np.integer):
        return values.astype(np.int64, copy=False), np.ones(values.size, dtype=bool)
    if np.issubdtype(values.dtype, np.floating):
        with np.errstate(invalid="ignore"):
            good = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        return np.where(good, values, 0).astype(np.int64), good
    text = [str(value) for value in values.tolist()]
    good = np.array([item.isascii() and item.isdigit() and len(item) < 19 for item in text], dtype=bool)
    return np.array([int(item) if ok else 0 for item, ok in zip(text, good, strict=True)], dtype=np.int64), good


def _number(values: NDArray[Any]) -> NDArray[np.float64]:
    """Degrees; NaN where an entry is no number."""
    if np.issubdtype(values.dtype, np.number):
        return values.astype(np.float64, copy=False)

    def one(item: object) -> float:
        try:
            return float(str(item))
        except ValueError:
            return float("nan")

    return np.array([one(item) for item in values.tolist()], dtype=np.float64)


def _steps(axis: Time, values: NDArray[Any]) -> tuple[Int, NDArray[np.bool_]]:
    start = datetime.fromisoformat(axis.start)
    if start.tzinfo is not None:
        raise DomainError(f"axis {axis.name!r}: times in a column are local; its start must have no offset")
    micro = values.astype("datetime64[us]")
    first = np.datetime64(start.replace(tzinfo=None), "us")
    good = ~np.isnat(micro)
    gone = np.where(good, micro - first, np.timedelta64(-1, "us")).astype("timedelta64[us]").astype(np.int64)
    step = gone // (axis.seconds * 1_000_000)
    return step, good & (step >= 0) & (step < axis.size)


def from_arrow(axis: Axis, place: Place, columns: list[Any]) -> tuple[list[Int], NDArray[np.bool_], str]:
    """`indices` of Arrow columns; missing entries are wrong."""
    import pyarrow as pa

    try:
        if isinstance(axis, (Nominal, Ordered)) and axis.labels is not None:
            return _places(_labels(columns[0], axis.labels), axis)
        if isinstance(axis, Time) and (
            pa.types.is_string(columns[0].type) or pa.types.is_large_string(columns[0].type)
        ):
            return _time_text(axis, columns[0])
        return indices(axis, place, [_numpy(column, axis, isinstance(place, Mapping)) for column in columns])
    except pa.ArrowException as error:  # its message can quote a value
        raise DomainError(f"axis {axis.name!r}: its column cannot be read ({type(error).__name__})") from None


def _time_text(axis: Time, column: Any) -> tuple[list[Int], NDArray[np.bool_], str]:
    """Steps of text, entry by entry: digits are an index, anything else an ISO 8601 local time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def one(raw: bytes) -> datetime | None:
        try:
            found = datetime.fromisoformat(raw.decode())
        except ValueError:
            return None
        return None if raw.isdigit() or found.tzinfo is not None else found

    (index,), wrong, _ = indices(axis, axis.name, [_numpy(column, axis, False)])
    coded = column.cast(pa.large_binary()).dictionary_encode()
    times = np.array([*map(one, coded.dictionary.to_pylist()), None], dtype="datetime64[us]")
    at = pc.fill_null(coded.indices.cast(pa.int64()), times.size - 1).to_numpy(zero_copy_only=False)
    step, good = _steps(axis, times[at]) if datetime.fromisoformat(axis.start).tzinfo is None else (index, ~wrong)
    return [np.where(good, step, index)], wrong & ~good, f"not a time of axis {axis.name!r}"


def _places(found: Int, axis: Axis) -> tuple[list[Int], NDArray[np.bool_], str]:
    return [np.maximum(found, 0)], found < 0, f"not a label of axis {axis.name!r}"


def _labels(column: Any, labels: tuple[str, ...]) -> Int:
    """Places of a column's entries among `labels`, -1 where there is none. The axis alone decides: reading numbers as
    indices where a column happens to be numeric would let one row (a text among numbers) move every other row. Whole
    numbers stand for their digits, also where a gap has made the column one of floats."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        whole_floats = pc.and_kleene(pc.is_finite(column), pc.equal(column, pc.floor(column)))
        column = pc.if_else(whole_floats, column, pa.scalar(None, kind))
        column = pc.if_else(pc.less(pc.abs(column), 2.0**53), column, pa.scalar(None, kind)).cast(pa.int64())
        kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.string())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return np.full(len(column), -1, dtype=np.int64)
    found = pc.index_in(column, value_set=pa.array(labels, type=column.type))
    return pc.fill_null(found.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)


def _numpy(column: Any, axis: Axis, degrees: bool) -> NDArray[Any]:
    """An Arrow column as numbers or times; what is missing or no number becomes far off, NaN or NaT."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if getattr(kind, "tz", None) is not None:
            raise DomainError(f"axis {axis.name!r}: a time column with a zone; convert it to local time first")
        return _times(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        form = r"^[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?$" if degrees else r"^[0-9]{1,18}$"
        good = pc.match_substring_regex(column, form)
        column = pc.if_else(good, column, pa.scalar(None, kind)).cast(pa.float64() if degrees else pa.int64())
        kind = column.type
    if pa.types.is_integer(kind):
        if column.null_count:  # an entry that is no code, no index and in no window
            big = pa.types.is_uint64(kind)
            column = pc.fill_null(column if big else column.cast(pa.int64()), (1 << 64) - 1 if big else -(1 << 62))
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    raise DomainError(f"axis {axis.name!r}: a column of type {kind} cannot place a row; use numbers, text or times")


def _times(column: Any) -> NDArray[Any]:
    """Dates and times as microseconds, rounded down; one too far off for them is missing."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    values = column.to_numpy(zero_copy_only=False)
    per = {"s": 1_000_000, "ms": 1000, "us": 1}.get(column.type.unit)
    if per is not None:
        count = values.view(np.int64)
        far = (count > (1 << 61) // per) | (count < -(1 << 61) // per)
        values = np.where(far, np.array("NaT", values.dtype), values)
    return values.astype("datetime64[us]")
