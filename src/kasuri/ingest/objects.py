"""A column of Python objects as text, each value by itself.

Arrow gives such a column one type by looking at all its values: one b"x" among texts makes bytes of every one of them,
and no row has a place any more; one number among texts, or a character that cannot be written, ends the reading.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

EXACT = 2.0**53
"""Floats from here on may be another whole number than the one that was meant."""
_DIGITS = 10**100


def text(value: Any) -> str | None:
    """A value as a CSV file would hold it; None for one that is missing, or of a kind that no column is read from."""
    if isinstance(value, np.generic):
        value = str(value) if isinstance(value, np.datetime64) else value.item()
    if isinstance(value, bool):
        return None  # as in a column of them: neither a number nor a label
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _DIGITS else None
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ") if value == value else None  # NaT is not
    return str(value) if isinstance(value, (datetime.date, uuid.UUID)) else None


def _float(value: float) -> str | None:
    if not abs(value) < EXACT:
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def _decimal(value: Decimal) -> str | None:
    if not value.is_finite() or not abs(value.adjusted()) < 100:
        return None
    return str(int(value)) if value == int(value) else str(value)


def texts(values: Sequence[Any]) -> Any:
    """An Arrow array of the values' texts."""
    import pyarrow as pa

    made = [value if type(value) is str else text(value) for value in values]
    try:
        return pa.array(made, pa.large_string())
    except UnicodeEncodeError:
        return pa.array([None if item is None or not _written(item) else item for item in made], pa.large_string())


def _written(item: str) -> bool:
    try:
        item.encode()
        return True
    except UnicodeEncodeError:
        return False
