"""Records to bounded counts: the radix count against DuckDB, CPU and memory in one run.

python benchmarks/bench_records.py --rows 100000000 [--folder FOLDER | --file FILE]     (10^7 rows unless told)

Writes synthetic microdata (a Parquet file of visits: person, phone, row, col; FILE is kept, and taken as it is where it
exists), then counts it with both engines by the whole-number id and by the text id, each in a process of its own; shows
progress, and prints CPU seconds, the ratio and the peak memory of each, which must stay below 2 GB: the high-water mark
of the process, of which DuckDB is a part.

10^8 rows, two cores shared with other work: radix 44.0 CPU s, 0.72 GB; DuckDB 170.8 CPU s, 1.55 GB (ratio 0.26); DuckDB
by text ids 270 CPU s, 1.64 GB, when DuckDB split the records itself. 10^7 rows, before and since the split is ours:
DuckDB 14.7 and 14.7 CPU s, 0.92 and 0.71 GB; by text ids 21.1 and 22.6 CPU s, 1.37 and 0.92 GB.
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
            command = [sys.executable, __file__, "--engine", engine, "--by", by, "--file", str(path)]
            command += ["--max-cells", str(words.max_cells)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                                 env=dict(os.environ, PYTHONHASHSEED="0"))  # fmt: skip
            results.append(json.loads(run.stdout))
            print(results[-1], flush=True)
        for ours, theirs in (results[:2], results[2:]):
            assert ours["digest"] == theirs["digest"], "the engines disagree"
            print(f"radix / DuckDB CPU by {ours['id']}: {ours['cpu_s'] / theirs['cpu_s']:.2f} (at most 0.6)")
        print(f"most memory: {max(result['peak_gb'] for result in results):.2f} GB (less than 2)")


if __name__ == "__main__":
    main()
