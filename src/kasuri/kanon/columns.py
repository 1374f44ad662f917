"""Frames to codes: any frame narwhals takes, one column at a time, without pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError

Int = NDArray[np.int64]


def table_of(rows: Any) -> Any:
    """A narwhals frame, collected."""
    import narwhals as nw

    try:
        table = nw.from_native(rows, pass_through=False)
    except TypeError:
        raise DomainError("rows must be a data frame: pandas, polars, pyarrow or duckdb") from None
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def arrow_of(table: Any, name: str) -> Any:
    """One column as a single Arrow array."""
    import pyarrow as pa

    try:
        column = table[name].to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        # Arrow's message can quote a value: only the rule is passed on
        raise DomainError(f"column {name!r} mixes kinds of values; give it one type") from None
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def coded(column: Any) -> tuple[Int, list[str]]:
    """(codes, values): each entry's value as text, -1 where it is missing. Whole floats read as whole numbers."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if not isinstance(column, pa.DictionaryArray):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    values = column.dictionary.to_pylist()
    return codes, [_text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def ranked(column: Any) -> tuple[Int, int]:
    """(codes, how many): codes in the order of the values, -1 where missing."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, pa.DictionaryArray):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    coded_column = column.dictionary_encode()
    order = pc.array_sort_indices(coded_column.dictionary).to_numpy()
    rank = np.empty(order.size + 1, dtype=np.int64)
    rank[order] = np.arange(order.size)
    rank[-1] = -1
    codes = coded_column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return rank[codes], int(order.size)


def numbers(column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(values, known) of a numeric column, or of text that spells numbers; known is False where missing.

    Text that spells no number is known and NaN, which lies outside every interval.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, pa.DictionaryArray):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type):
        known = column.is_valid().to_numpy(zero_copy_only=False)
        wide = (
            pa.float64() if pa.types.is_uint64(column.type) else pa.int64()
        )  # a narrow type could not hold the bounds
        return column.fill_null(0).cast(wide, safe=False).to_numpy(zero_copy_only=False), known
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return values, ~np.isnan(values)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        codes, texts = coded(column)
        table = np.array([_number(text) for text in texts] + [np.nan])
        return table[codes], codes >= 0
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return np.full(len(column), np.nan), known


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def days(column: Any) -> tuple[Int, NDArray[np.bool_]]:
    """(days since 1970-01-01, known) of a column of dates, times or ISO text; unreadable text is day -2^40."""
    import pyarrow as pa

    if isinstance(column, pa.DictionaryArray):
        column = column.cast(column.type.value_type)
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        known = column.is_valid().to_numpy(zero_copy_only=False)
        day = column.cast(pa.date32(), safe=False).cast(pa.int32()).fill_null(0)
        return day.to_numpy(zero_copy_only=False).astype(np.int64), known
    codes, texts = coded(column)
    table = np.array([_day(text) for text in texts] + [0], dtype=np.int64)
    return table[codes], codes >= 0


def _day(text: str) -> int:
    try:
        day = np.datetime64(text[:10], "D")
    except ValueError:
        return -(1 << 40)
    return -(1 << 40) if np.isnat(day) else int(day.astype(np.int64))
