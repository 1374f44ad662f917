"""Data frames to Counts, through narwhals: pandas, polars, pyarrow, duckdb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.schema import PROVIDER_BOUNDED, Axis, Domain, Mesh, Nominal, Ordered, Unit
from kasuri.table import Counts, checked

_SHOWN = 10


def count(
    frame: Any,
    domain: Domain,
    *,
    columns: Mapping[str, str | Sequence[str]],
    unit: Unit,
    weight: str | None = None,
    data: str | None = None,
    file: str = "frame",
) -> Counts:
    """Counts from a pre-aggregated frame: one row per cell, its count in column `weight`.

    `columns` says where each axis stands: a mesh in one column of mesh codes, or in two of row and column numbers of
    the level's grid (not of the window); any other axis in one column of labels or indices. `file` names the frame in
    messages. Every fault of every row is reported at once, by row and column, never by value.
    """
    import narwhals as nw

    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    try:
        table = nw.from_native(frame, pass_through=False)
        table = table.collect() if isinstance(table, nw.LazyFrame) else table
    except (nw.exceptions.NarwhalsError, TypeError):
        raise DomainError(f"{file}: not a data frame with one name per column") from None
    faults = _column_faults(table.columns, domain, columns, unit, weight, file)
    raise_faults(DomainError, faults)
    assert weight is not None
    rows = len(table)
    if rows == 0:
        return checked([], [], domain, unit, data, assumes=(PROVIDER_BOUNDED,))

    def column(name: str) -> NDArray[Any]:
        return table[name].to_numpy()

    index: list[NDArray[np.int64]] = []
    bad = np.zeros(rows, dtype=bool)
    for axis in domain.axes:
        names = columns[axis.name]
        names = (names,) if isinstance(names, str) else tuple(names)
        parts, wrong, rule = _indices(axis, [column(name) for name in names])
        _report(faults, wrong, file, "/".join(names), rule)
        bad |= wrong
        index += parts
    values = column(weight)
    if values.dtype == object:
        _report(faults, np.ones(rows, dtype=bool), file, weight, "not a whole number; the column must be numeric")
    raise_faults(DomainError, faults)
    where = _Rows(file)
    return checked(domain.ravel(index), values, domain, unit, data, assumes=(PROVIDER_BOUNDED,), where=where)


class _Rows(Sequence[str]):
    """Names of data rows, made only when a message needs one (row 1 is the first below the header)."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, i: Any) -> Any:
        return f"{self._file} row {int(i) + 1}"


def _column_faults(
    present: Sequence[str],
    domain: Domain,
    columns: Mapping[str, str | Sequence[str]],
    unit: Unit,
    weight: str | None,
    file: str,
) -> list[str]:
    faults = []
    for axis in domain.axes:
        if axis.name not in columns:
            faults.append(f"{file}: columns must say where axis {axis.name!r} stands")
            continue
        names = columns[axis.name]
        names = [names] if isinstance(names, str) else list(names)
        allowed = (1, 2) if isinstance(axis, Mesh) else (1,)
        if len(names) not in allowed:
            faults.append(f"{file}: axis {axis.name!r} stands in {' or '.join(map(str, allowed))} columns")
        if isinstance(axis, Mesh) and axis.level is None and len(names) == 1:
            faults.append(f"{file}: axis {axis.name!r} has no level, so it needs two columns (row, col)")
        # only the missing name: without a header line the others would be data
        faults += [f"{file}: no column {name!r}; is there a header line?" for name in names if name not in present]
    faults += [
        f"{file}: no axis {name!r} in the domain" for name in columns if name not in {a.name for a in domain.axes}
    ]
    if unit.id.casefold() in {name.casefold() for name in present}:
        faults.append(f"{file}: column {unit.id!r} identifies units; this version counts pre-aggregated tables only")
    if weight is None:
        faults.append(
            f"{file}: a table without the id column {unit.id!r} is pre-aggregated: name its count column (weight=)"
        )
    elif weight not in present:
        faults.append(f"{file}: no column {weight!r}; is there a header line?")
    return faults


def _indices(axis: Axis, parts: list[NDArray[Any]]) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_], str]:
    """Index arrays of one axis, which rows are wrong, and the rule they break."""
    if isinstance(axis, Mesh):
        if len(parts) == 1:
            numbers, good = _whole(parts[0])
            row, col, decoded = meshcode.try_decode(numbers, axis.level or "")
            rule = f"not a {axis.level} mesh code inside the window"
            good &= decoded
        else:
            (row, a), (col, b) = _whole(parts[0]), _whole(parts[1])
            good = a & b
            rule = "row or column outside the window"
        row, col = row - axis.origin[0], col - axis.origin[1]
        good &= (row >= 0) & (row < axis.shape[0]) & (col >= 0) & (col < axis.shape[1])
        return [np.where(good, row, 0), np.where(good, col, 0)], ~good, rule
    values = parts[0]
    labels = axis.labels if isinstance(axis, (Nominal, Ordered)) else None
    if labels is not None:
        # the axis alone decides: reading numbers as indices where a column happens to be numeric would let one row
        # (a text among numbers) move every other row
        place = {label: i for i, label in enumerate(labels)}
        index = np.array([place.get(_text(value) or "", -1) for value in values.tolist()], dtype=np.int64)
        return [np.maximum(index, 0)], index < 0, f"not a label of axis {axis.name!r}"
    number, good = _whole(values)
    good &= (number >= 0) & (number < axis.sizes[0])
    return [np.where(good, number, 0)], ~good, f"not an index of axis {axis.name!r} (0..{axis.sizes[0] - 1})"


def _text(value: Any) -> str | None:
    """A label as text; whole numbers as their digits (a column with a gap arrives as floats); None if there is none."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None


def _whole(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers from an integer, float or text column, and which entries are."""
    if values.dtype.kind in "iu":
        good = np.abs(values.astype(np.float64)) < 2.0**62
        return np.where(good, values, 0).astype(np.int64), good
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            good = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        return np.where(good, values, 0).astype(np.int64), good
    text = [str(value) for value in values.tolist()]
    good = np.array([item.isascii() and item.isdigit() and len(item) < 19 for item in text], dtype=bool)
    return np.array([int(item) if ok else 0 for item, ok in zip(text, good, strict=True)], dtype=np.int64), good


def _report(faults: list[str], wrong: NDArray[np.bool_], file: str, column: str, rule: str) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        shown = ", ".join(str(row + 1) for row in rows[:_SHOWN].tolist())
        more = f" and {rows.size - _SHOWN} more" if rows.size > _SHOWN else ""
        faults.append(f"{file}: column {column}: {rule}: rows {shown}{more}")
