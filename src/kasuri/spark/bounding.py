"""Records to bounded counts in Spark: the rule of `ingest.micro`, to the byte.

A batch of rows becomes (id, cell, weight), and a unit's rows become the cells it counts in, by the very code that reads
files on one machine, whole columns at a time; bringing a unit's rows together and adding up cells are Spark's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.ingest import micro, parts, sources
from kasuri.ingest.axes import LONGEST, Place
from kasuri.ingest.sources import Stream
from kasuri.schema import Domain, Unit
from kasuri.spark.session import quiet

Address = Callable[[Int], tuple[Int, Int]]
"""Cells -> (block, key): where a count is drawn."""

LABEL = "frame"
BOUNDED = "cell bigint, value bigint"
CELLS = ["cell", "value"]
HANDED = 1 << 18
"""Rows of a batch that a task hands on."""


def judge(
    frame: Any, domain: Domain, columns: Mapping[str, Place], unit: Unit, weight: str | None, key: bytes | None
) -> bytes:
    """Refuse, before a row is read, what cannot be counted or bounded; the sampling key, fresh unless given."""
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    if unit.max_sum is not None:
        raise PrivacyError("sums are not made on a cluster; count on one machine, which holds no more than the table")
    names = tuple(frame.columns)
    alike = [name for name in names if name != unit.id and name.casefold() == unit.id.casefold()]
    if alike:
        raise PrivacyError(f"{LABEL}: is column {alike[0]!r} the id column {unit.id!r}? Names must agree exactly")
    if unit.id not in names:
        raise PrivacyError(
            f"{LABEL}: no id column {unit.id!r}. spark.release bounds records itself; a table that is one row per cell "
            "already is small enough for ks.count and ks.release"
        )
    key = micro.sampling(Stream(names, lambda wanted, ragged: iter(()), LABEL), domain, columns, unit, weight, key)
    faults = [f"{LABEL}: column {name!r} is there twice; rename one" for name in set(names) if names.count(name) > 1]
    types = dict(frame.dtypes)
    if not faults and _id_type(types[unit.id]) is None:
        faults.append(
            f"{LABEL}: column {unit.id}: ids are whole numbers or text, not {types[unit.id]}; "
            "convert them where they are made"
        )
    for axis in domain.axes:
        if axis.timed and types.get(str(columns[axis.name])) == "timestamp":
            faults.append(
                f"axis {axis.name!r}: a time column with a zone; convert it to local time first "
                '(column.try_cast("timestamp_ntz"))'
            )
    raise_faults(DomainError, faults)
    return key


def _id_type(kind: str) -> str | None:
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    return "string" if kind == "string" else None


def records(frame: Any, domain: Domain, columns: Mapping[str, Place], unit: Unit, weight: str | None) -> Any:
    """(id, cell, weight where one counts) of the rows that have a place, all of a unit in one task, where `bound` takes
    them."""
    from pyspark.sql import functions as fn

    # by number: mapInArrow cannot take every name, and Spark may take two names for one that differ by case
    rows = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    rows = rows.select([f"c{frame.columns.index(name)}" for name in micro.needed(columns, unit, weight)])
    kind = _id_type(dict(frame.dtypes)[unit.id])
    if kind == "string":  # the rule of `sources.short`, before a row leaves the JVM
        rows = rows.where(fn.octet_length("c0") <= LONGEST)
    rows = rows.mapInArrow(
        _places(domain, columns, unit, weight),
        f"id {kind}, cell bigint" + ("" if weight is None else ", weight bigint"),
    )
    return rows.repartition("id")


def bound(domain: Domain, unit: Unit, weighted: bool, key: bytes) -> Any:
    """Batches of `records` -> BOUNDED: one row per unit and cell that counts, without the unit's id. All rows of a unit
    are made by one task, so whoever keeps the answer of one run of each task holds no unit in more than `max_cells`
    cells.

    Privacy
    -------
    Neighbours: frames that differ by all rows of one id (add-remove), or by other rows for one id (replace).
    Sensitivity: as in `ingest.micro.count_records`, whose rule this is. Guarantee: none by itself.
    Proof: docs/proofs/spark.md, docs/proofs/bounding.md. Public: domain, unit. Assumes: one person has one id; each row
    of the frame depends on its own id alone (`rowwise`); the frame gives the same rows whenever Spark reads it.
    """
    import pyarrow as pa

    def bounded(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("bounding records"):
            rows = parts.together(batches, domain, unit, weighted, key)
            for low in range(0, len(rows), HANDED):
                piece = rows[low : low + HANDED]
                value = piece[:, 2] if weighted else np.ones(len(piece), np.int64)
                yield pa.RecordBatch.from_arrays([pa.array(piece[:, 1].copy()), pa.array(value.copy())], CELLS)

    return bounded


def counted(pairs: Any) -> Any:
    """(cell, value): the sums of `pairs`, whose total is at most MAX_CELLS; one row per cell that is not 0."""
    from pyspark.sql import functions as fn

    return pairs.groupBy("cell").agg(fn.sum("value").alias("value"))


def _places(domain: Domain, columns: Mapping[str, Place], unit: Unit, weight: str | None) -> Any:
    import pyarrow as pa

    names = tuple(micro.needed(columns, unit, weight))

    def place(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("placing records"):
            rows = (pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)
            stream = Stream(
                names,
                lambda wanted, ragged: ((piece, None) for b in rows for piece in sources.short(b.select(wanted))),
                LABEL,
            )
            for kind, ids, cells, good, values in micro.placed(stream, domain, columns, unit, weight, _silent):
                made = [ids.cast(pa.int64() if kind == "number" else pa.string()), pa.array(cells)]
                if weight is not None:
                    made.append(pa.array(values))
                batch = pa.RecordBatch.from_arrays(made, ["id", "cell", "weight"][: len(made)])
                yield batch if good.all() else batch.filter(pa.array(good))

    return place


def _silent(share: float) -> None:
    """Spark tells how far a task is."""


def addressed(address: Address) -> Any:
    """Batches of `counted` -> (block, key, value)."""
    import pyarrow as pa

    def where(batches: Iterator[Any]) -> Iterator[Any]:
        with quiet("placing counts"):
            for batch in batches:
                block, key = address(batch.column("cell").to_numpy())
                made = [pa.array(block), pa.array(key), batch.column("value")]
                yield pa.RecordBatch.from_arrays(made, ["block", "key", "value"])

    return where
