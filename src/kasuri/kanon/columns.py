"""Frames to codes: any frame narwhals takes, one column at a time, without pandas."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError

UNREADABLE = "\ufffd unreadable"
"""Stands for a cell that cannot be read; no label of a sensible tree."""
_NO_VALUE = object()
_PLAIN = (int, float, Decimal, datetime.date, datetime.time, datetime.timedelta, UUID)
_NO_NUMBER = frozenset(("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A",
                        "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"))  # fmt: skip
"""Text that stands for a missing number or day, as files spell it."""
_ISO_DAY = re.compile("[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def table_of(rows: Any) -> Any:
    """A narwhals frame, collected."""
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    twice = DomainError("rows: two columns have the same name; give each its own")
    try:
        table = nw.from_native(rows, pass_through=False)
        table = table.collect() if isinstance(table, nw.LazyFrame) else table
        names = table.columns
    except TypeError:
        raise DomainError("rows must be a data frame: pandas, polars, pyarrow or duckdb") from None
    except DuplicateError:
        raise twice from None
    if len(set(names)) != len(names):
        raise twice
    return table


def arrow_of(table: Any, name: str) -> Any:
    """One column as a single Arrow array."""
    import pyarrow as pa

    try:
        column = table[name].to_arrow()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Arrow's message can quote a value: only the rule is passed on
        raise DomainError(f"column {name!r} mixes kinds of values; give it one type") from None
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def cells_of(table: Any, name: str) -> Any:
    """One column as a single Arrow array whose every entry depends on its own cell alone.

    The type of a column is public, but a column of Python objects has none: Arrow would guess one from all cells, and
    one record could change how every other is read. Its cells become text one by one. A cell that cannot be read is
    `UNREADABLE`, never an error: an error would tell that the record exists, and might quote it.
    """
    import pyarrow as pa

    series = table[name]
    if _holds_objects(series):
        return _texts(series.to_list())
    try:
        column = arrow_of(table, name)
    except DomainError:  # text that Arrow does not take, such as a lone surrogate: not a matter of the column's type
        return _texts(series.to_list())
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_nested(kind):
        raise DomainError(f"column {name!r} holds lists or records; give it one plain value per row")
    if pa.types.is_float16(kind):
        return column.cast(pa.float64())
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_null(kind)
    )
    return column if plain else _texts(_values(column))


def _holds_objects(series: Any) -> bool:
    import narwhals as nw

    dtype = getattr(series.to_native(), "dtype", None)
    categories = getattr(dtype, "categories", None)  # pandas: a categorical of mixed objects
    return series.dtype == nw.Object or str(dtype) == "object" or str(getattr(categories, "dtype", "")) == "object"


def _values(column: Any) -> list[Any]:
    """The entries as Python values; one without (a date past year 9999, text that is not UTF-8) is `_NO_VALUE`."""
    try:
        return list(column.to_pylist())
    except (ValueError, ArithmeticError, TypeError):
        return [_value(entry) for entry in column]


def _value(entry: Any) -> Any:
    try:
        return entry.as_py()
    except (ValueError, ArithmeticError, TypeError):
        return _NO_VALUE


def _texts(cells: list[Any]) -> Any:
    """An Arrow array of text, each cell read on its own."""
    import pyarrow as pa

    try:
        return pa.array(cells, type=pa.large_string(), from_pandas=True)  # text and nothing else: the same, sooner
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_text(cell) for cell in cells], type=pa.large_string())


def coded(column: Any) -> tuple[Int, list[str]]:
    """(codes, values): each entry's value as text, -1 where it is missing or blank. Whole floats read as whole
    numbers; what cannot be read is `UNREADABLE`."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    column = column.dictionary_encode()
    texts = [_text(value) for value in _values(column.dictionary)]
    known = np.array([bool(text) for text in texts] + [False], dtype=bool)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(known[codes], codes, -1), [text or "" for text in texts]


def _text(value: Any) -> str | None:
    """One cell as text; None: missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float | Decimal) and math.isnan(value):
            return None
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, str):
            value.encode()  # a lone surrogate is not text
            return str(value)
        return str(value) if isinstance(value, _PLAIN) else UNREADABLE
    except (ValueError, ArithmeticError):
        return UNREADABLE


def identified(column: Any) -> Int:
    """Equal numbers for equal ids, -1 where the id is missing, blank or unreadable. 0.0 and -0.0 are one id."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.equal(column, UNREADABLE), None, column)
    return ranked(column)[0]


def ranked(column: Any) -> tuple[Int, int]:
    """(codes, how many): codes in the order of the values, -1 where missing or blank."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column)
    coded_column = column.dictionary_encode()
    order = pc.array_sort_indices(coded_column.dictionary).to_numpy()
    rank = np.empty(order.size + 1, dtype=np.int64)
    rank[order] = np.arange(order.size)
    rank[-1] = -1
    codes = coded_column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return rank[codes], int(order.size)


def numbers(column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(values, known) of a numeric column, or of text that spells numbers; known is False where missing.

    Text that spells no number is known and NaN, which lies outside every interval; blank text, and text such as NA
    that files use for a missing number, is missing.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
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
        return table[codes], _stated(codes, texts)
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return np.full(len(column), np.nan), known


def _stated(codes: Int, texts: list[str]) -> NDArray[np.bool_]:
    return np.array([text not in _NO_NUMBER for text in texts] + [False], dtype=bool)[codes]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def days(column: Any) -> tuple[Int, NDArray[np.bool_]]:
    """(days since 1970-01-01, known) of a column of dates, times or ISO text; unreadable text is day -2^40."""
    import pyarrow as pa

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        known = column.is_valid().to_numpy(zero_copy_only=False)
        day = column.cast(pa.date32(), safe=False).cast(pa.int32()).fill_null(0)
        return day.to_numpy(zero_copy_only=False).astype(np.int64), known
    codes, texts = coded(column)
    table = np.array([_day(text) for text in texts] + [0], dtype=np.int64)
    return table[codes], _stated(codes, texts)


def _day(text: str) -> int:
    if not _ISO_DAY.fullmatch(text[:10]):  # numpy would also take "today"
        return -(1 << 40)
    try:
        day = np.datetime64(text[:10], "D")
    except ValueError:
        return -(1 << 40)
    return int(day.astype(np.int64))
