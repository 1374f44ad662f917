"""A column of a table as numbers: what the axes read records with. Which entries are wrong, never what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Bool, Float, Int
from kasuri.errors import DomainError

Place = str | Sequence[str] | Mapping[str, str]
"""Where an axis is: one column; two (row, col); or {"lat": column, "lon": column}."""

Found = tuple[list[Int], Bool, str]
"""Index arrays of one axis, which rows are wrong, and the rule they break."""


def names(place: Place) -> list[str]:
    """The columns of a place, in the order `Axis.indices` takes them."""
    if isinstance(place, str):
        return [place]
    return [place["lat"], place["lon"]] if isinstance(place, Mapping) else list(place)


def whole(values: NDArray[Any]) -> tuple[Int, Bool]:
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


def degrees(values: NDArray[Any]) -> Float:
    """Degrees; NaN where an entry is not a number."""
    if np.issubdtype(values.dtype, np.number):
        return values.astype(np.float64, copy=False)

    def one(item: object) -> float:
        try:
            return float(str(item))
        except ValueError:
            return float("nan")

    return np.array([one(item) for item in values.tolist()], dtype=np.float64)


def is_text(column: Any) -> bool:
    """Does an Arrow column hold text?"""
    import pyarrow as pa

    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def labelled(column: Any, labels: tuple[str, ...], others: Callable[[str], int] | None = None) -> Int:
    """Places of an Arrow column's entries among `labels`, -1 where there is none; `others` places an entry that is not
    one of them. The axis alone decides: reading numbers as indices where a column happens to be numeric would let one
    row (a text among numbers) move every other row. Whole numbers stand for their digits, also where a gap has made the
    column one of floats."""
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
    found = pc.index_in(column, value_set=pa.array(labels, type=column.type)).cast(pa.int64())
    if others is not None:
        there = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
        unknown = pc.and_(pc.is_null(found), there)
        coded = column.filter(unknown).cast(pa.large_binary()).dictionary_encode()
        places = pa.array([_other(raw, others) for raw in coded.dictionary.to_pylist()], pa.int64())
        found = pc.replace_with_mask(found, unknown, places.take(coded.indices))
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False)


def _other(raw: bytes, place: Callable[[str], int]) -> int:
    try:
        return place(raw.decode())
    except UnicodeDecodeError:
        return -1


def from_arrow(column: Any, axis: str, decimals: bool) -> NDArray[Any]:
    """An Arrow column of the axis as numbers or times; what is missing or not a number becomes far off, NaN or NaT.
    `decimals` lets text have a fraction."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):  # one value more and it had a type: a refusal would tell of it
        column, kind = column.cast(pa.int64()), pa.int64()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if getattr(kind, "tz", None) is not None:
            raise DomainError(f"axis {axis!r}: a time column with a zone; convert it to local time first")
        return _times(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        form = r"^[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?$" if decimals else r"^[0-9]{1,18}$"
        good = pc.match_substring_regex(column, form)
        column = pc.if_else(good, column, pa.scalar(None, kind)).cast(pa.float64() if decimals else pa.int64())
        kind = column.type
    if pa.types.is_integer(kind):
        if column.null_count:  # an entry that is neither a code nor an index nor in a window
            big = pa.types.is_uint64(kind)
            column = pc.fill_null(column if big else column.cast(pa.int64()), (1 << 64) - 1 if big else -(1 << 62))
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    raise DomainError(f"axis {axis!r}: a column of type {kind} cannot place a row; use numbers, text or times")


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
