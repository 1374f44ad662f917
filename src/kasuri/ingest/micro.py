"""Records to bounded counts: at most `max_cells` distinct cells per unit, each counted once, whatever the file holds.

Of a unit's cells those of least SHA-256(hex key | id | cell) are kept: "hex key" is the sampling key in 64 hexadecimal
digits, id its exact text (whole numbers in decimal), cell the cell number in decimal, joined by "|". The choice depends
on that unit's rows alone and is the same wherever it is computed. Records are read once and split on disk by a hash of
their id; then each part, which holds all rows of its units, is bounded by itself (`parts`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.ingest import axes, parts, scratch
from kasuri.ingest.parts import Progress, Record
from kasuri.ingest.stream import Stream
from kasuri.schema import MAX_CELLS, Domain, Unit
from kasuri.table import Counts, checked

Engine = Literal["auto", "duckdb", "radix"]


def count_records(
    stream: Stream,
    domain: Domain,
    columns: Mapping[str, axes.Place],
    unit: Unit,
    weight: str | None,
    data: str | None,
    *,
    key: bytes | None,
    engine: Engine,
    memory: str,
    progress: Progress | None,
    away: Sequence[Path],
    assumes: tuple[str, ...] = (),
) -> Counts:
    """Counts of records with the id column `unit.id`; see `ingest.count`.

    Privacy
    -------
    Neighbours: files that differ by all rows of one id (add-remove), or by other rows for one id (replace).
    Sensitivity: at most max_cells cells change, each by at most max_weight, or max_sum, or 1: L1 at most max_cells
    times that, twice as much under replace. Guarantee: none by itself, it is the bound releases rest on.
    Proof: docs/proofs/bounding.md. Public: domain, unit. Assumes: one person has one id; the sampling key was not
    chosen by looking at the data; `assumes`, where somebody vouches that rows depend on their own id alone.
    """
    key = sampling(stream, domain, columns, unit, weight, key)
    if engine not in ("auto", "duckdb", "radix"):
        raise DomainError('engine must be "auto", "duckdb" or "radix"')
    tell = progress or (lambda share: None)
    kind, first = _first(placed(stream, domain, columns, unit, weight, tell))
    weighted = weight is not None
    with scratch.folder(away) as folder:
        if engine == "duckdb":
            cells, values = parts.in_duckdb(kind, first, domain, unit, weighted, key, memory, tell, folder)
        elif kind == "text":
            cells, values = parts.texts(first, domain, unit, weighted, key, memory, tell, folder)
        else:
            cells, values = parts.numbers(first, domain, unit, weighted, key, tell, folder)
    return checked(cells, values, domain, unit, data, assumes=assumes)


def sampling(
    stream: Stream,
    domain: Domain,
    columns: Mapping[str, axes.Place],
    unit: Unit,
    weight: str | None,
    key: bytes | None,
) -> bytes:
    """Refuse columns that cannot be counted or bounded, before any row is read; the sampling key, fresh unless
    given."""
    faults = axes.place_faults(stream.names, domain, columns, stream.label)
    if weight is not None and weight not in stream.names:
        faults.append(f"{stream.label}: no column {weight!r}; is there a header line?")
    if not faults:
        faults += axes.twice(stream.names, needed(columns, unit, weight), stream.label)
    raise_faults(DomainError, faults)
    if weight is not None and unit.max_weight is None and unit.max_sum is None:
        raise PrivacyError(
            f"column {weight!r} says how many one record counts for: Unit(..., max_weight=...) must bound it"
        )
    if key is not None and (not isinstance(key, bytes) or len(key) != 32):
        raise PrivacyError("the sampling key is 32 random bytes, e.g. secrets.token_bytes(32)")
    return secrets.token_bytes(32) if key is None else key


def _first(records: Iterator[Record]) -> tuple[str, Iterator[Record]]:
    """The kind of the ids, and the records from the first one on."""
    try:
        head = next(records)
    except StopIteration:
        return "number", iter(())

    def again() -> Iterator[Record]:
        yield head
        yield from records

    return head[0], again()


def placed(
    stream: Stream,
    domain: Domain,
    columns: Mapping[str, axes.Place],
    unit: Unit,
    weight: str | None,
    tell: Progress,
) -> Iterator[Record]:
    """Batches as records. Rows outside domain or mask, without an id or with one that is too long (`sources.short`),
    or on a line with too few or too many cells are dropped without a word: a refusal would be an oracle."""
    import pyarrow as pa

    wanted = needed(columns, unit, weight)
    kind = None
    for batch, share in stream.start(wanted, []):
        ids = batch.column(unit.id)
        if pa.types.is_null(ids.type):  # a frame's column of nothing but missing ids
            continue
        kind, ids = typed_ids(ids, kind, stream.label, unit.id)
        index: list[Int] = []
        good = ids.is_valid().to_numpy(zero_copy_only=False)
        if not good.all():
            ids = ids.fill_null("" if kind == "text" else 0)  # dropped below
        for axis in domain.axes:
            place = columns[axis.name]
            own, wrong, _ = axes.from_arrow(axis, place, [batch.column(n) for n in axes.names(place)])
            index += own
            good &= ~wrong
        cells = domain.ravel(index)
        if domain.mask:
            good &= domain.possible(cells)
        values = np.ones(batch.num_rows, dtype=np.int64)
        if weight is not None:
            values = _weights(batch.column(weight), stream.label, weight)
            good &= values > 0
            values = np.minimum(values, unit.each)
        yield kind, ids, cells, good, values
        if share is not None:
            tell(parts.READ * share)


def needed(columns: Mapping[str, axes.Place], unit: Unit, weight: str | None) -> list[str]:
    """The columns that are read, each once."""
    places = [name for place in columns.values() for name in axes.names(place)]
    return list(dict.fromkeys([unit.id, *places, *([] if weight is None else [weight])]))


def typed_ids(ids: Any, kind: str | None, file: str, column: str) -> tuple[str, Any]:
    """Ids as they are: whole numbers, or text by its exact bytes; null where one is missing or no UTF-8. One kind in
    all batches."""
    import pyarrow as pa

    own = ids.type
    if pa.types.is_dictionary(own):
        ids, own = ids.cast(own.value_type), own.value_type
    if pa.types.is_uint64(own):
        raise DomainError(f"{file}: column {column}: unsigned 64-bit ids; cast the column to text")
    if pa.types.is_integer(own):
        found = "number"
    elif pa.types.is_string(own) or pa.types.is_large_string(own):
        found = "text"
        try:
            ids.validate(full=True)
        except pa.ArrowInvalid:
            ids = pa.array([_utf8(item) for item in ids.cast(pa.large_binary()).to_pylist()], pa.large_string())
    else:
        raise DomainError(
            f"{file}: column {column}: ids are whole numbers or text, not {own}; "
            "ids cannot be floats (pandas makes floats of whole numbers with gaps); convert the column to Int64 or text"
        )
    if kind is not None and found != kind:
        raise DomainError(f"{file}: column {column}: ids are whole numbers in one part and text in another; use one")
    return found, ids


def _utf8(item: bytes | None) -> str | None:
    try:
        return None if item is None else item.decode()
    except UnicodeDecodeError:
        return None


def _weights(column: Any, file: str, name: str) -> Int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        good = pc.match_substring_regex(column, r"^[0-9]{1,18}$")
        column = pc.if_else(good, column, pa.scalar(None, column.type)).cast(pa.int64())
    if pa.types.is_null(column.type):
        column = column.cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise DomainError(f"{file}: column {name}: weights are whole numbers, not {column.type}")
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(MAX_CELLS, pa.uint64()))
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
