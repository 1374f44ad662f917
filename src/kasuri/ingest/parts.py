"""Records in parts on disk, each part bounded by itself: what is kept of a unit's cells, and how cells add up.

A part holds all rows of its units (records are split by a keyed hash of the id), so parts can be bounded one after the
other; a part that is long is bounded piece by piece, since the least cells of a unit are the least among the least of
its pieces (docs/proofs/bounding.md). Two engines, one answer: a radix count (`numbers`, `texts`) and DuckDB.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, NumericsError
from kasuri.schema import MAX_CELLS, Domain, Unit

Progress = Callable[[float], None]
Record = tuple[str, Any, Int, NDArray[np.bool_], Int]
"""(kind of id, ids as Arrow, cells, which rows count, weights)."""

PARTS = 64
"""Parts that records are split into, but for whole-number ids in the radix count."""
PART_ROWS = 1 << 21
"""Records that are bounded at a time: small parts are taken together; a part that is larger is bounded piece by
piece."""
PART_BYTES = 1 << 28
"""Bytes of records that are held at most before they are bounded, where they come as they are read."""
THREADS = 2
"""Of DuckDB: each holds buffers of its own, so that with one per core the machine would decide what is refused."""
_CHUNK = 4096
"""Records that are written, and read again, together: with ids as long as they may be, some 4 MB."""
READ = 0.4
"""The share of the work that reading is, for `progress`."""
_BOUNDED = """
WITH pairs AS MATERIALIZED (SELECT id, cell, {joined} AS weight FROM {source} GROUP BY id, cell),
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
"""Of each unit in `source` the `max_cells` cells of least rank, each once with its largest weight, or with
the sum of its amounts, clipped."""


def in_duckdb(
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
        room = _room(memory)
        parts = _split(kind, records, key, folder / "parts")
        total = _Total(domain)
        with pa.OSFile(str(folder / "parts")) as raw, pa.ipc.open_file(raw) as file:
            groups = _groups(parts, room)
            for done, chunks in enumerate(groups, 1):
                found = _bound_group(base, file, chunks, room, unit, weighted, key)
                total.add(np.asarray(found["cell"], np.int64), np.asarray(found["value"], np.int64))
                tell(READ + (1 - READ) * done / len(groups))
        return total.result()
    except (duckdb.Error, OSError) as error:
        raise _too_small(memory, error) from None
    finally:
        base.close()


def texts(
    records: Iterator[Record],
    domain: Domain,
    unit: Unit,
    weighted: bool,
    key: bytes,
    memory: str,
    tell: Progress,
    folder: Path,
) -> tuple[Int, Int]:
    """Ids of any text: in a part each is given a number, and parts are then counted like those of `numbers`."""
    import duckdb
    import pyarrow as pa

    from kasuri._kernels import records as kernel

    state = _state(kernel, key)
    try:
        room = _room(memory)
        parts = _split("text", records, key, folder / "parts")
        total = _Total(domain)
        with pa.OSFile(str(folder / "parts")) as raw, pa.ipc.open_file(raw) as file:
            groups = _groups(parts, room)
            for done, chunks in enumerate(groups, 1):
                rows = _numbered(kernel, file, chunks, room, domain, unit, state)
                total.add(rows[:, 1], rows[:, 2] if weighted else np.ones(len(rows), np.int64))
                tell(READ + (1 - READ) * done / len(groups))
        return total.result()
    except (duckdb.Error, OSError, pa.ArrowMemoryError, MemoryError) as error:
        raise _too_small(memory, error) from None


@functools.cache
def _room(memory: str) -> int:
    """Bytes of records that are bounded at a time: a sixteenth of the limit, as DuckDB reads it (to start one takes
    longer than to count a small table)."""
    import duckdb

    with duckdb.connect() as base:
        base.execute("SET memory_limit = ?", [memory])
        room: int = base.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()[0][0] // 16
    return room


def _too_small(memory: str, error: Exception) -> DomainError:
    return DomainError(
        f"the records could not be counted within {memory} of memory ({type(error).__name__}); "
        "give more (memory=) or more room for temporary files (TMPDIR)"
    )


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


def _piece(chunks: list[Chunk], at: int, room: int, times: int) -> tuple[list[int], int]:
    """The chunks from `at` on that are bounded next, by their numbers in the file, and how many records they hold: no
    more than PART_ROWS records and `room` bytes, `times` over; one chunk at least."""
    rows = size = 0
    numbers: list[int] = []
    for number, own, held in chunks[at:]:
        if numbers and (rows + own > times * PART_ROWS or size + held > times * room):
            break
        numbers.append(number)
        rows, size = rows + own, size + held
    return numbers, rows


def _bound_group(
    base: Any, file: Any, chunks: list[Chunk], room: int, unit: Unit, weighted: bool, key: bytes
) -> Mapping[str, Any]:
    """Counts of the bounded records in `chunks`, which hold all records of their units. A piece is bounded together
    with what is kept of those before it; where that is more than the piece, the next ones are twice as long."""
    import pyarrow as pa

    words = [unit.max_cells, key.hex(), unit.max_cells]
    counted = f"least(sum(weight), {MAX_CELLS + 1})" if weighted else "count(*)"
    joined = "max(weight)" if unit.max_sum is None else f"least(sum(weight), {unit.max_sum})::BIGINT"
    source, times, at = "incoming", 1, 0
    while True:
        numbers, rows = _piece(chunks, at, room, times)
        at += len(numbers)
        batches = (file.get_batch(number) for number in numbers)
        base.register("incoming", pa.RecordBatchReader.from_batches(file.schema, batches))
        bounded = _BOUNDED.format(source=source, joined=joined)
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


def _numbered(kernel: Any, file: Any, chunks: list[Chunk], room: int, domain: Domain, unit: Unit, state: Any) -> Int:
    """The bounded records in `chunks`, which hold all records of their units: rows (number of the id, cell, weight).
    Pieces as in `_bound_group`."""
    import pyarrow as pa

    ids, rows = pa.array([], pa.large_string()), np.empty((0, 3), np.int64)
    times, at = 1, 0
    while at < len(chunks):
        numbers, size = _piece(chunks, at, room, times)
        at += len(numbers)
        batches = [file.get_batch(number) for number in numbers]
        coded = pa.chunked_array([ids, *(batch.column(0) for batch in batches)]).combine_chunks().dictionary_encode()
        more = np.empty((len(rows) + size, 3), np.int64)
        more[:, 0] = coded.indices.to_numpy()
        for place in (1, 2):
            more[:, place] = np.concatenate([rows[:, place], *(batch.column(place).to_numpy() for batch in batches)])
        data, ends = _bytes(coded.dictionary, "text")
        rows = _bounded(kernel, more, domain, unit, state, data.copy(), ends)
        ids = coded.dictionary.take(pa.array(rows[:, 0]))
        times *= 2 if len(rows) > size else 1
    return rows


def numbers(
    records: Iterator[Record], domain: Domain, unit: Unit, weighted: bool, key: bytes, tell: Progress, folder: Path
) -> tuple[Int, Int]:
    """Partition by a hash of the id, then part by part: sort, one record per pair, bound, add up."""
    from kasuri._kernels import records as kernel

    bits, width = 8, 3 if weighted else 2
    ends_of: list[tuple[int, Int]] = []
    state = _state(kernel, key)
    own = np.zeros(0, np.uint8), np.zeros(0, np.int64)
    with (folder / "parts").open("w+b", buffering=0) as file:
        at = 0
        for _, ids, cells, good, values in records:
            numbers = ids.to_numpy(zero_copy_only=False).astype(np.int64)  # one that can be written, as compiled
            rows = np.empty((int(good.sum()), width), np.int64)
            ends = kernel.partition(numbers, np.ascontiguousarray(cells), values, good, _salt(key), bits, rows)
            _write(file, rows)
            ends_of.append((at, ends))
            at += rows.nbytes
        total = _Total(domain)
        for part in range(1 << bits):
            pieces = [(start + 8 * width * int(e[part]), int(e[part + 1] - e[part])) for start, e in ends_of]
            rows = _part(file, pieces, width, lambda rows: _bounded(kernel, rows, domain, unit, state, *own))
            total.add(rows[:, 1], rows[:, 2] if weighted else np.ones(len(rows), np.int64))
            tell(READ + (1 - READ) * (part + 1) / (1 << bits))
    return total.result()


def _state(kernel: Any, key: bytes) -> Any:
    """The state after the sampling key; of an array that can be written, as the kernel of a wheel is compiled for."""
    return kernel.key_state(np.frombuffer(bytearray(key.hex().encode()), np.uint8))


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


def together(batches: Iterator[Any], domain: Domain, unit: Unit, weighted: bool, key: bytes) -> Int:
    """The bounded records of `batches` (id, cell, and weight where it counts), which hold all records of their units:
    rows with these columns, ids as numbers. Bounded as they are read: memory holds what is kept and PART_ROWS more, or
    twice what is kept."""
    from kasuri._kernels import records as kernel

    state = _state(kernel, key)
    width = 3 if weighted else 2
    kept, ids, waiting, size, held = np.empty((0, width), np.int64), None, list[Any](), 0, 0
    for batch in batches:
        waiting.append(batch)
        size, held = size + batch.num_rows, held + batch.nbytes
        if size >= max(PART_ROWS, len(kept)) or held >= max(PART_BYTES, 0 if ids is None else ids.nbytes):
            kept, ids = _next(kernel, kept, ids, waiting, domain, unit, state)
            waiting, size, held = [], 0, 0
    return _next(kernel, kept, ids, waiting, domain, unit, state)[0] if waiting else kept


def _next(
    kernel: Any, kept: Int, ids: Any, waiting: list[Any], domain: Domain, unit: Unit, state: Any
) -> tuple[Int, Any]:
    """What is kept of `kept` and of the batches, and the texts that its numbers are of (None: ids are numbers)."""
    import pyarrow as pa

    size = sum(batch.num_rows for batch in waiting)
    rows = np.empty((len(kept) + size, kept.shape[1]), np.int64)
    rows[: len(kept)] = kept
    for column in range(1, kept.shape[1]):
        rows[len(kept) :, column] = np.concatenate([batch.column(column).to_numpy() for batch in waiting])
    own = [batch.column(0) for batch in waiting]
    if pa.types.is_integer(own[0].type):
        rows[len(kept) :, 0] = np.concatenate([column.to_numpy() for column in own])
        none = np.zeros(0, np.uint8), np.zeros(0, np.int64)
        return _bounded(kernel, rows, domain, unit, state, *none), None
    before = pa.array([], pa.large_string()) if ids is None else ids
    texts = [before, *(column.cast(pa.large_string()) for column in own)]
    coded = pa.chunked_array(texts).combine_chunks().dictionary_encode()
    rows[:, 0] = coded.indices.to_numpy()
    data, ends = _bytes(coded.dictionary, "text")
    rows = _bounded(kernel, rows, domain, unit, state, data.copy(), ends)
    return rows, coded.dictionary.take(pa.array(rows[:, 0]))


def _bounded(kernel: Any, rows: Int, domain: Domain, unit: Unit, state: Any, data: NDArray[np.uint8], ends: Int) -> Int:
    """What is kept of `rows`, which it overwrites: distinct pairs, at most `max_cells` of each unit. Ids are numbers of
    their own, or those of the texts data[ends[i] : ends[i + 1]]."""
    if not len(rows):
        return rows
    from kasuri._kernels.sort import sort_pairs

    low, high = int(rows[:, 0].min()), int(rows[:, 0].max())
    id_bits, cell_bits = (high - low).bit_length(), (domain.size - 1).bit_length()
    if id_bits + cell_bits < 63:  # both in one number
        both = (rows[:, 0] - low << cell_bits) + rows[:, 1]
        _, ordered = sort_pairs(both, np.arange(len(rows)), id_bits + cell_bits, 0)
    else:
        ordered = kernel.sort_rows(rows, np.int64(low), id_bits, cell_bits)
    pairs, values = np.empty((len(rows), 2), np.int64), np.empty(len(rows), np.int64)
    n = kernel.compact_cells(rows, ordered, pairs, values, unit.max_sum or 0)
    return rows[: kernel.bound(pairs, values, n, min(unit.max_cells, len(rows)), state, data, ends, rows)]


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
            raise NumericsError("the total is larger than 2^62; use a smaller max_weight or max_sum")
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
