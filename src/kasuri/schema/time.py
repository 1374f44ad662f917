"""Time: equal steps from a public start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri import names
from kasuri.arrays import Bool, Int
from kasuri.errors import DomainError, raise_faults
from kasuri.schema import columns
from kasuri.schema.axis import Axis, name_faults, number_faults
from kasuri.schema.columns import Found, Place


@dataclass(frozen=True)
class Time(Axis):
    """Equal steps of time from a public start, e.g. Time("hour", "2020-10-01T00:00", seconds=3600, size=24)."""

    name: str
    start: str
    seconds: int
    size: int
    kind: ClassVar[str] = "time"
    timed: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        faults = name_faults(self.name)
        try:
            datetime.fromisoformat(self.start)
        except (TypeError, ValueError):
            faults.append(f"axis {self.name!r}: start must be an ISO 8601 time such as 2020-10-01T00:00")
        else:
            faults += names.faults(self.start, f"axis {self.name!r}: start")  # any character may stand for the T
        for what in ("seconds", "size"):
            faults += number_faults(self.name, what, getattr(self, what))
        raise_faults(DomainError, faults)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.size,)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "start": self.start,
            "seconds": self.seconds,
            "size": self.size,
        }

    def codes(self) -> NDArray[Any]:
        return np.datetime64(self.start, "s") + self.seconds * np.arange(self.size)

    def shown(self) -> list[str] | None:
        """The start of every step, or None where the calendar ends before the axis."""
        start = datetime.fromisoformat(self.start)
        try:
            return [(start + timedelta(seconds=self.seconds * i)).isoformat(" ", "minutes") for i in range(self.size)]
        except OverflowError:
            return None

    def indices(self, place: Place, parts: Sequence[NDArray[Any]]) -> Found:
        if not np.issubdtype(parts[0].dtype, np.datetime64):
            return super().indices(place, parts)
        number, good = self._steps(parts[0])
        return [np.where(good, number, 0)], ~good, f"not a time of axis {self.name!r}"

    def from_arrow(self, place: Place, parts: Sequence[Any]) -> Found:
        if columns.is_text(parts[0]):
            return self._from_text(parts[0])
        return super().from_arrow(place, parts)

    def _from_text(self, column: Any) -> Found:
        """Entry by entry: digits are an index, anything else an ISO 8601 local time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def one(raw: bytes) -> datetime | None:
            try:
                found = datetime.fromisoformat(raw.decode())
            except ValueError:
                return None
            return None if raw.isdigit() or found.tzinfo is not None else found

        (index,), wrong, _ = self.indices(self.name, [columns.from_arrow(column, self.name, False)])
        coded = column.cast(pa.large_binary()).dictionary_encode()
        times = np.array([*map(one, coded.dictionary.to_pylist()), None], dtype="datetime64[us]")
        at = pc.fill_null(coded.indices.cast(pa.int64()), times.size - 1).to_numpy(zero_copy_only=False)
        local = datetime.fromisoformat(self.start).tzinfo is None
        step, good = self._steps(times[at]) if local else (index, ~wrong)
        return [np.where(good, step, index)], wrong & ~good, f"not a time of axis {self.name!r}"

    def _steps(self, values: NDArray[Any]) -> tuple[Int, Bool]:
        start = datetime.fromisoformat(self.start)
        if start.tzinfo is not None:
            raise DomainError(f"axis {self.name!r}: times in a column are local; its start must have no offset")
        micro = values.astype("datetime64[us]")
        first = np.datetime64(start.replace(tzinfo=None), "us")
        good = ~np.isnat(micro)
        gone = np.where(good, micro - first, np.timedelta64(-1, "us")).astype("timedelta64[us]").astype(np.int64)
        step = gone // (self.seconds * 1_000_000)
        return step, good & (step >= 0) & (step < self.size)
