"""Wide tables made long: one column per age group becomes one row per age group, by a list that the job states.

Each record is mapped by itself and its rows keep its id, so what docs/proofs/bounding.md asks of rows holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kasuri.errors import DomainError, raise_faults
from kasuri.ingest.stream import Batches, Stream


@dataclass(frozen=True)
class Melt:
    """`columns` of a file (column -> its labels, one for each name in `into`) become rows: the labels are in the new
    columns `into`, the numbers in the new column `value`.

    Melt(into=("sex", "age"), value="population", columns={"F0_14": ("female", "0-14"), "M0_14": ("male", "0-14")})
    """

    into: tuple[str, ...]
    value: str
    columns: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        faults = []
        made = [*self.into, self.value]
        if len(set(made)) < len(made) or not self.into:
            faults.append("melt: into and value are different names of new columns")
        if len(self.columns) < 2:
            faults.append("melt: columns lists the columns that become rows, at least two")
        faults += [
            f"melt: column {name!r} has {len(labels)} labels for {len(self.into)} new columns"
            for name, labels in self.columns.items()
            if len(labels) != len(self.into)
        ]
        if len(set(self.columns.values())) < len(self.columns):
            faults.append("melt: two columns have the same label; a label belongs to one column")
        raise_faults(DomainError, faults)


def melted(stream: Stream, melt: Melt) -> Stream:
    """The stream with one row for each of the melted columns of each row."""
    missing = [name for name in melt.columns if name not in stream.names]
    faults = [f"{stream.label}: no column {name!r}, which melt lists" for name in missing]
    kept = tuple(name for name in stream.names if name not in melt.columns)
    faults += [
        f"{stream.label}: has a column {name!r} already; melt needs another name"
        for name in (*melt.into, melt.value)
        if name in kept
    ]
    raise_faults(DomainError, faults)
    new = (*melt.into, melt.value)

    def start(wanted: Sequence[str], ragged: list[int]) -> Batches:
        inner = [name for name in wanted if name not in new] + list(melt.columns)
        for batch, share in stream.start(inner, ragged):
            for piece in _pieces(batch, len(melt.columns)):
                yield _long(piece, melt, wanted, stream.label), share

    doubt = replace(stream.doubt, made=stream.doubt.made | set(new))  # a label is nobody's id
    return replace(stream, names=kept + new, start=start, fold=len(melt.columns), doubt=doubt)


def _pieces(batch: Any, times: int) -> Iterator[Any]:
    """A batch in parts that stay of its length when every row becomes `times` rows."""
    step = max(1, batch.num_rows // times)
    for start in range(0, max(1, batch.num_rows), step):
        yield batch.slice(start, step)


def _long(batch: Any, melt: Melt, wanted: Sequence[str], label: str) -> Any:
    import pyarrow as pa

    rows, times = batch.num_rows, len(melt.columns)
    again = pa.array(np.repeat(np.arange(rows), times))
    made: dict[str, Any] = {}
    for at, name in enumerate(melt.into):
        labels = pa.array([own[at] for own in melt.columns.values()], pa.string())
        made[name] = labels.take(pa.array(np.tile(np.arange(times), rows)))
    if melt.value in wanted:
        parts = [batch.column(name) for name in melt.columns]
        try:
            joined = pa.concat_arrays(parts)
        except pa.ArrowException:
            raise DomainError(f"{label}: the columns that melt lists are not of one type; use one") from None
        made[melt.value] = joined.take(pa.array((np.arange(rows)[:, None] + rows * np.arange(times)).ravel()))
    columns = [made[name] if name in made else batch.column(name).take(again) for name in wanted]
    return pa.RecordBatch.from_arrays(columns, names=list(wanted))
