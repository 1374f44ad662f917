"""Records to bounded counts: at most `max_cells` distinct cells per unit, each counted once, whatever the file holds.

Of a unit's cells those of least SHA-256(hex key | id | cell) are kept: "hex key" is the sampling key in 64 hexadecimal
digits, id its exact text (whole numbers in decimal), cell the cell number in decimal, joined by "|". The choice depends
on that unit's rows alone and is the same wherever it is computed. Records are read once and split on disk by a hash of
their id; then each part, which holds all rows of its units, is bounded by itself. Two engines, one answer: DuckDB (any
id, within a memory limit) and a radix count (ids that are whole numbers).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, NumericsError, PrivacyError, raise_faults
from kasuri.ingest import axes, scratch
from kasuri.ingest.stream import Stream
from kasuri.schema import MAX_CELLS, Domain, Unit
from kasuri.table import Counts, checked

Engine = Literal["auto", "duckdb", "radix"]
Progress = Callable[[float], None]

PARTS = 64
"""Parts that records are split into for DuckDB."""
PART_ROWS = 1 << 21
"""Records that are bounded at a time: DuckDB takes small parts together; a part that is larger is bounded piece by
piece."""
THREADS = 2
"""Of DuckDB: each holds buffers of its own, so that with one per core the machine would decide what is refused."""
_CHUNK = 4096
"""Records that are written, and read again, together: with ids as long as they may be, some 4 MB."""
_READ = 0.4
"""The share of the work that reading is, for `progress`."""
_BOUNDED = """
WITH pairs AS MATERIALIZED (SELECT id, cell, max(weight) AS weight FROM {source} GROUP BY id, cell),
crowded AS (SELECT id FROM pairs GROUP BY id HAVING count(*) > ?),
bounded AS (
    SELECT id, cell, weight FROM pairs ANTI JOIN crowded USING (id)
    UNION ALL
    SELECT id, cell, weight FROM (
        SELECT id, cell, weight,
            row_number() OVER (PARTITION BY id ORDER BY unhex(sha256(concat(?, '|', id, '|', cell))), cell) AS turn
        FROM pairs SEMI JOIN crowded USING (id)
    ) WHERE turn <= ?
)
"""
"""Of each unit in `source` the `max_cells` cells of least rank, each once with its largest weight."""


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
    Sensitivity: at most max_cells cells change, each by at most max_weight (1 without weights): L1 at most
    max_cells * max_weight, twice that under replace. Guarantee: none by itself, it is the bound releases rest on.
    Proof: docs/proofs/bounding.md. Public: domain, unit. Assumes: one person has one id; the sampling key was not
    chosen by looking at the data; `assumes`, where somebody vouches that rows depend on their own id alone.
    """
    key = sampling(stream, domain, columns, unit, weight, key)
    if engine not in ("auto", "duckdb", "radix"):
        raise DomainError('engine must be "auto", "duckdb" or "radix"')
    tell = progress or (lambda share: None)
    kind, first = _first(placed(stream, domain, columns, unit, weight, tell))
    if engine == "radix" and kind == "text":
        raise DomainError(f"{stream.label}: the radix count takes ids that are whole numbers; use engine='duckdb'")
    with scratch.folder(away) as folder:
        if engine == "duckdb" or kind == "text":
            cells, values = _duckdb(kind, first, domain, unit, weight is not None, key, memory, tell, folder)
        else:
            cells, values = _radix(first, domain, unit, weight is not None, key, tell, folder)
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
    if weight is not None and unit.max_weight is None:
        raise PrivacyError(
            f"column {weight!r} says how many one record counts for: Unit(..., max_weight=...) must bound it"
        )
    if key is not None and (not isinstance(key, bytes) or len(key) != 32):
        raise PrivacyError("the sampling key is 32 random bytes, e.g. secrets.token_bytes(32)")
    return secrets.token_bytes(32) if key is None else key


Record = tuple[str, Any, Int, NDArray[np.bool_], Int]
"""(kind of id, ids as Arrow, cells, which rows count, weights)."""


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
            parts, wrong, _ = axes.from_arrow(axis, place, [batch.column(n) for n in axes.names(place)])
            index += parts
            good &= ~wrong
        cells = domain.ravel(index)
        if domain.mask:
            good &= domain.possible(cells)
        values = np.ones(batch.num_rows, dtype=np.int64)
        if weight is not None:
            values = _weights(batch.column(weight), stream.label, weight)
            good &= values > 0
            values = np.minimum(values, unit.max_weight or 1)
        yield kind, ids, cells, good, values
        if share is not None:
            tell(_READ * share)


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
            "a float is no id (a missing value may have made the column float): convert it where it is made"
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
    if not pa.types.is_integer(column.type):
        raise DomainError(f"{file}: column {name}: weights are whole numbers, not {column.type}")
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(MAX_CELLS, pa.uint64()))
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _duckdb(
    kind: str,
    records: Iterator[Record],
    domain: Domain,
    unit: Unit,
    weighted: bool,
    key: bytes,
    memory: str,
    tell: Progress,
    folder: Path,
) -> tuple[Int, Int]:
    """DuckDB, within `memory`: records are split by a hash of their id in a file of the private folder, then bounded
    and counted part by part; a part that is long for `memory`, piece by piece."""
    import duckdb
    import pyarrow as pa

    base = duckdb.connect()
    try:
        base.execute("SET memory_limit = ?", [memory])
        base.execute(f"SET threads = {THREADS}")
        base.execute("SET temp_directory = ?", [str(folder / "spill")])
        base.execute("SET preserve_insertion_order = false")
        base.execute("SET default_collation = ''")
        room = base.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()[0][0] // 16
        parts = _split(kind, records, key, folder / "parts")
        total = _Total(domain)
        with pa.OSFile(str(folder / "parts")) as raw, pa.ipc.open_file(raw) as file:
            groups = _groups(parts, room)
            for done, chunks in enumerate(groups, 1):
                found = _bound_group(base, file, chunks, room, unit, weighted, key)
                total.add(np.asarray(found["cell"], np.int64), np.asarray(found["value"], np.int64))
                tell(_READ + (1 - _READ) * done / len(groups))
        return total.result()
    except (duckdb.Error, OSError) as error:
        raise DomainError(
            f"the records could not be counted within {memory} of memory ({type(error).__name__}); "
            "give more (memory=) or more room for temporary files (TMPDIR)"
        ) from None
    finally:
        base.close()


Chunk = tuple[int, int, int]
"""(number in the file, records, bytes)."""


def _split(kind: str, records: Iterator[Record], key: bytes, path: Path) -> list[list[Chunk]]:
    """Write the records that count to an Arrow file, chunks of one part each; the chunks of every part. Memory holds
    one batch, whatever its ids are."""
    import pyarrow as pa

    from kasuri._kernels.records import parts_of

    text = pa.large_string() if kind == "text" else pa.int64()
    schema = pa.schema([("id", text), ("cell", pa.int64()), ("weight", pa.int64())])
    parts: list[list[Chunk]] = [[] for _ in range(PARTS)]
    written, most = 0, min(_CHUNK, PART_ROWS)
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.OSFile(str(path), "wb") as raw, pa.ipc.new_file(raw, schema, options=options) as file:
        for _, ids, cells, good, values in records:
            made = pa.RecordBatch.from_arrays([ids.cast(text), pa.array(cells), pa.array(values)], schema=schema)
            made = made if good.all() else made.filter(pa.array(good))
            part = np.empty(made.num_rows, np.uint16)
            parts_of(*_bytes(made.column(0), kind), _salt(key), np.uint64(PARTS), part)
            made = made.take(pa.array(np.argsort(part, kind="stable")))
            ends = np.cumsum(np.bincount(part, minlength=PARTS)).tolist()
            for own, low, high in zip(parts, [0, *ends], ends, strict=False):
                for start in range(low, high, most):
                    chunk = made.slice(start, min(most, high - start))
                    file.write_batch(chunk)
                    own.append((written, chunk.num_rows, chunk.nbytes))
                    written += 1
    return parts


def _bytes(ids: Any, kind: str) -> tuple[NDArray[np.uint8], Int]:
    """The bytes of ids one after the other, and where each starts and the last ends."""
    if kind == "number":
        return ids.to_numpy().view(np.uint8), np.arange(0, 8 * len(ids) + 1, 8)
    _, ends, data = ids.buffers()
    if not len(ids) or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(ids) + 1, np.int64)
    return np.frombuffer(data, np.uint8), np.frombuffer(ends, np.int64)[ids.offset : ids.offset + len(ids) + 1]


def _groups(parts: list[list[Chunk]], room: int) -> list[list[Chunk]]:
    """The chunks of whole parts, as many together as PART_ROWS records and `room` bytes hold; one part at least."""
    groups: list[list[Chunk]] = []
    rows = size = 0
    for chunks in parts:
        own_rows, own_size = sum(n for _, n, _ in chunks), sum(n for _, _, n in chunks)
        if not groups or rows + own_rows > PART_ROWS or size + own_size > room:
            groups.append([])
            rows = size = 0
        groups[-1] += chunks
        rows, size = rows + own_rows, size + own_size
    return groups


def _bound_group(
    base: Any, file: Any, chunks: list[Chunk], room: int, unit: Unit, weighted: bool, key: bytes
) -> Mapping[str, Any]:
    """Counts of the bounded records in `chunks`, which hold all records of their units. The least cells of a unit are
    the least among the least of its pieces: a piece is bounded together with what is kept of those before it, and is
    no longer than PART_ROWS records and `room` bytes, or twice what is kept."""
    import pyarrow as pa

    words = [unit.max_cells, key.hex(), unit.max_cells]
    counted = f"least(sum(weight), {MAX_CELLS + 1})" if weighted else "count(*)"
    source, times, at = "incoming", 1, 0
    while True:
        rows = size = 0
        numbers: list[int] = []
        while at < len(chunks) and (
            not numbers or (rows + chunks[at][1] <= times * PART_ROWS and size + chunks[at][2] <= times * room)
        ):
            numbers.append(chunks[at][0])
            rows, size, at = rows + chunks[at][1], size + chunks[at][2], at + 1
        batches = (file.get_batch(number) for number in numbers)
        base.register("incoming", pa.RecordBatchReader.from_batches(file.schema, batches))
        bounded = _BOUNDED.format(source=source)
        if at == len(chunks):
            made = f"{bounded} SELECT cell, {counted}::BIGINT AS value FROM bounded GROUP BY cell"
            found: Mapping[str, Any] = base.execute(made, words).fetchnumpy()
            base.unregister("incoming")
            base.execute("DROP TABLE IF EXISTS kept")
            return found
        base.execute(f"CREATE TABLE more AS {bounded} SELECT id, cell, weight FROM bounded", words)
        base.unregister("incoming")
        base.execute("DROP TABLE IF EXISTS kept")
        base.execute("ALTER TABLE more RENAME TO kept")
        source = "(SELECT * FROM kept UNION ALL SELECT * FROM incoming)"
        if base.execute("SELECT count(*) FROM kept").fetchall()[0][0] > rows:
            times *= 2


def _radix(
    records: Iterator[Record], domain: Domain, unit: Unit, weighted: bool, key: bytes, tell: Progress, folder: Path
) -> tuple[Int, Int]:
    """Partition by a hash of the id, then part by part: sort, one record per pair, bound, add up."""
    from kasuri._kernels import records as kernel

    bits, width = 8, 3 if weighted else 2
    ends_of: list[tuple[int, Int]] = []
    state = kernel.key_state(np.frombuffer(key.hex().encode(), np.uint8))
    with (folder / "parts").open("w+b", buffering=0) as file:
        at = 0
        for _, ids, cells, good, values in records:
            numbers = ids.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            rows = np.empty((int(good.sum()), width), np.int64)
            ends = kernel.partition(numbers, np.ascontiguousarray(cells), values, good, _salt(key), bits, rows)
            _write(file, rows)
            ends_of.append((at, ends))
            at += rows.nbytes
        total = _Total(domain)
        for part in range(1 << bits):
            pieces = [(start + 8 * width * int(e[part]), int(e[part + 1] - e[part])) for start, e in ends_of]
            rows = _part(file, pieces, width, lambda rows: _bounded(kernel, rows, domain, unit, state))
            total.add(rows[:, 1], rows[:, 2] if weighted else np.ones(len(rows), np.int64))
            tell(_READ + (1 - _READ) * (part + 1) / (1 << bits))
    return total.result()


def _salt(key: bytes) -> np.uint64:
    """Makes the part of an id unknown to whoever writes the file, who could else send all units to one part."""
    return np.uint64(int.from_bytes(key[:8], "little"))


def _part(file: Any, pieces: list[tuple[int, int]], width: int, bounded: Callable[[Int], Int]) -> Int:
    """The bounded records of one part. The least cells of a unit are the least among the least of its pieces, so a part
    of any length is bounded as it is read, and memory holds twice what is kept, or PART_ROWS more than that."""
    rows, used = np.empty((min(sum(n for _, n in pieces), PART_ROWS), width), np.int64), 0
    for start, n in pieces:
        if used + n > len(rows):
            kept = bounded(rows[:used])
            used = len(kept)
            rows = np.concatenate((kept, np.empty((max(n, used, PART_ROWS), width), np.int64)))
        _read(file, start, rows[used : used + n])
        used += n
    return bounded(rows[:used])


def _bounded(kernel: Any, rows: Int, domain: Domain, unit: Unit, state: Any) -> Int:
    """What is kept of `rows`, which it overwrites: distinct pairs, at most `max_cells` of each unit."""
    if not len(rows):
        return rows
    low, high = int(rows[:, 0].min()), int(rows[:, 0].max())
    ordered = kernel.sort_rows(rows, np.int64(low), (high - low).bit_length(), (domain.size - 1).bit_length())
    pairs, values = np.empty((len(rows), 2), np.int64), np.empty(len(rows), np.int64)
    n = kernel.compact_cells(rows, ordered, pairs, values)
    return rows[: kernel.bound(pairs, values, n, min(unit.max_cells, len(rows)), state, rows)]


def _write(file: Any, rows: Int) -> None:
    view = memoryview(rows.data).cast("B") if rows.size else memoryview(b"")
    while len(view):
        view = view[file.write(view) :]


def _read(file: Any, start: int, out: Int) -> None:
    if not out.size:
        return
    file.seek(start)
    view = memoryview(out.data).cast("B")
    while len(view):
        got = file.readinto(view)
        if not got:
            raise DomainError("a temporary file of the count was cut short; is the disk full?")
        view = view[got:]


class _Total:
    """Counts by cell: an array where the domain is small, else sorted pairs that are merged as they grow."""

    _DENSE = 1 << 24
    _MERGE = 1 << 23

    def __init__(self, domain: Domain) -> None:
        self._bits = max(1, (domain.size - 1).bit_length())
        self._dense = np.zeros(domain.size, np.int64) if domain.size <= self._DENSE else None
        self._pairs: list[tuple[Int, Int]] = []
        self._limit = self._MERGE
        self._all = 0

    def add(self, cells: Int, values: Int) -> None:
        self._all += int(values.astype(object).sum()) if values.max(initial=0) > 1 << 30 else int(values.sum())
        if self._all > MAX_CELLS:
            raise NumericsError("the total is larger than 2^62; use a smaller max_weight")
        if self._dense is not None:
            np.add.at(self._dense, cells, values)
            return
        self._pairs.append(self._merged(cells.copy(), values.copy()))
        if sum(part.size for part, _ in self._pairs) > self._limit:
            self._join()
            self._limit = self._MERGE + 2 * self._pairs[0][0].size

    def _merged(self, cells: Int, values: Int) -> tuple[Int, Int]:
        from kasuri._kernels.records import add_runs
        from kasuri._kernels.sort import sort_pairs

        cells, values = sort_pairs(cells, values, self._bits, 0)
        n = add_runs(cells, values)
        return cells[:n].copy(), values[:n].copy()

    def _join(self) -> None:
        cells = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in self._pairs)])
        values = np.concatenate([np.zeros(0, np.int64), *(part for _, part in self._pairs)])
        self._pairs = [self._merged(cells, values)]

    def result(self) -> tuple[Int, Int]:
        if self._dense is not None:
            cells = np.flatnonzero(self._dense)
            return cells, self._dense[cells]
        self._join()
        return self._pairs[0]
