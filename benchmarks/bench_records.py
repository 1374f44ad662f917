"""Records to bounded counts: the radix count against DuckDB, CPU and memory in one run.

python benchmarks/bench_records.py --rows 100000000 [--folder FOLDER | --file FILE]     (10^7 rows unless told)

Writes synthetic microdata (a Parquet file of visits: person, phone, row, col; FILE is kept, and taken as it is where it
exists), then counts it with both engines by the whole-number id and by the text id, each in a process of its own; shows
progress, and prints CPU seconds, the ratio and the peak memory of each, which must stay below 2 GB: the high-water mark
of the process, of which DuckDB is a part. Then the same records from a CSV file, beside polars and DuckDB, which count
rows by cell and bound nobody, and the keyed hash of ids beside hashlib's (OpenSSL).

10^8 rows, two cores shared with other work: radix 18.9 CPU s, 0.66 GB; by ids in text (decimals) 62.0 CPU s, 0.73 GB;
before ids and cells were sorted as one number, radix 44.0 CPU s, DuckDB 170.8 CPU s and 1.55 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clock import best, line

SIDE = 4096


def write(path: Path, rows: int) -> None:
    """`rows` visits of rows/20 people around a home cell each, a million at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    people = max(1, rows // 20)
    rng = np.random.default_rng(1)
    schema = pa.schema([("person", pa.int64()), ("phone", pa.string()), ("row", pa.int32()), ("col", pa.int32())])
    with parquet.ParquetWriter(path, schema, compression="snappy") as file:
        for start in range(0, rows, 1 << 20):
            n = min(1 << 20, rows - start)
            person = rng.integers(0, people, n)
            home = person * 0x9E3779B1 % (SIDE * SIDE)
            away = rng.geometric(0.3, (2, n)) * rng.choice([-1, 1], (2, n)) - 1
            row, col = (home // SIDE + away[0]) % SIDE, (home % SIDE + away[1]) % SIDE
            phone = pc.binary_join_element_wise("phone", pa.array(person + 10**12).cast(pa.string()), "-")
            columns = [pa.array(person), phone, pa.array(row.astype(np.int32)), pa.array(col.astype(np.int32))]
            file.write_table(pa.table(columns, schema=schema))


def peak() -> int:
    """Most bytes this process had in memory so far; nothing that its parent had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def one(path: Path, engine: str, by: str, max_cells: int) -> None:
    import kasuri as ks
    from kasuri._kernels import records

    records.warm_up()
    domain = ks.Domain.of(ks.Mesh("grid", shape=(SIDE, SIDE)))
    unit = ks.Unit(by, "add-remove", max_cells)
    shown = -1

    def progress(share: float) -> None:
        nonlocal shown
        if int(share * 10) > shown:
            shown = int(share * 10)
            print(f"  {engine} by {by}: {share:.0%}", file=sys.stderr)

    cpu, clock = time.process_time(), time.perf_counter()
    counts = ks.count(
        str(path), domain, columns={"grid": ("row", "col")}, unit=unit, key=bytes(32), engine=engine,
        memory="1GB", progress=progress,
    )  # fmt: skip
    result = {
        "engine": engine,
        "id": by,
        "cpu_s": round(time.process_time() - cpu, 1),
        "wall_s": round(time.perf_counter() - clock, 1),
        "peak_gb": round(peak() / 1e9, 2),
        "digest": hash((counts.cells.tobytes(), counts.values.tobytes())),
    }
    print(json.dumps(result))


def unbounded(path: Path, engine: str) -> float:
    """CPU seconds of another engine to count rows by cell, nobody bounded."""
    import duckdb
    import polars as pl

    scan = {".csv": pl.scan_csv, ".parquet": pl.scan_parquet}[path.suffix]
    run = {
        "polars": lambda: scan(path).group_by("row", "col").len().collect(),
        "DuckDB": lambda: duckdb.sql(f"SELECT row, col, count(*) FROM '{path}' GROUP BY ALL").to_arrow_table(),
    }[engine]
    return best(run, 2)


def hashes() -> None:
    """The keyed hash of 10^5 (id, cell) pairs, 100 cells to an id, beside one call of hashlib for each."""
    import hashlib

    import numpy as np

    from kasuri._kernels import records

    key, text, cells = b"0" * 64, b"phone-1000000000007", np.arange(100) * 167_771
    state, r, out = (
        records.key_state(np.full(64, 48, np.uint8)),
        np.empty(216 * 16, np.uint32),
        np.empty((100, 8), "u4"),
    )
    name = np.frombuffer(bytearray(text), np.uint8)
    records.ranks(state, name, cells, 0, 100, r, out)
    assert out[7].astype(">u4").tobytes() == hashlib.sha256(key + b"|" + text + b"|%d" % cells[7]).digest()
    ours = best(lambda: [records.ranks(state, name, cells, 0, 100, r, out) for _ in range(1000)]) / 1e5
    made = [key + b"|" + text + b"|%d" % cell for cell in cells]
    theirs = best(lambda: [hashlib.sha256(one).digest() for _ in range(1000) for one in made]) / 1e5
    line(f"keyed hash of an id and a cell: {1e9 * ours:.0f} ns", f"{ours / theirs:.2f} of hashlib's", "one at a time")


def from_csv(path: Path, folder: Path, max_cells: int) -> None:
    """The count of a CSV file, and of the Parquet file by each kind of id, beside engines that bound nobody."""
    from pyarrow import csv, parquet

    text = folder / "visits.csv"
    with parquet.ParquetFile(path) as file:
        names = ["person", "row", "col"]
        schema = file.schema_arrow.empty_table().select(names).schema
        with csv.CSVWriter(text, schema) as out:
            for batch in file.iter_batches(columns=names):
                out.write_batch(batch)
    for given, by in ((text, "person"), (path, "person"), (path, "phone")):
        ours = run_one(given, "auto", by, max_cells)["cpu_s"]
        for peer in ("polars", "DuckDB"):
            theirs = unbounded(given, peer)
            line(f"{given.suffix} by {by}, bounded: {ours:.1f} s", f"{ours / theirs:.2f} of {peer}'s", "bounds nobody")


def run_one(path: Path, engine: str, by: str, max_cells: int) -> dict:
    command = [sys.executable, __file__, "--engine", engine, "--by", by, "--file", str(path)]
    command += ["--max-cells", str(max_cells)]
    env = dict(os.environ, PYTHONHASHSEED="0")
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--max-cells", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--by", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path)
    words, _ = parser.parse_known_args()
    if words.engine:
        one(words.file, words.engine, words.by, words.max_cells)
        return
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        path = words.file or Path(folder) / "visits.parquet"
        if not path.exists():
            write(path, words.rows)
        results = []
        for engine, by in (("radix", "person"), ("duckdb", "person"), ("radix", "phone"), ("duckdb", "phone")):
            results.append(run_one(path, engine, by, words.max_cells))
            print(results[-1], flush=True)
        for ours, theirs in (results[:2], results[2:]):
            assert ours["digest"] == theirs["digest"], "the engines disagree"
            print(f"radix / DuckDB CPU by {ours['id']}: {ours['cpu_s'] / theirs['cpu_s']:.2f} (at most 0.6)")
        print(f"most memory: {max(result['peak_gb'] for result in results):.2f} GB (less than 2)")
        from_csv(path, Path(folder), words.max_cells)
    hashes()


if __name__ == "__main__":
    main()
