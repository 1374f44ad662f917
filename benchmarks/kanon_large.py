"""Ten million rows, six attributes: time and memory of `kanon.specialize`.

    .venv/bin/python benchmarks/kanon_large.py [rows]

Synthetic rows (there is no public table of this size with these columns): age, sex, a 500 m mesh cell of the Kanto
window, a date within three years, one of 64 occupations, one of 8 household types; skewed, so that classes differ.
Prints CPU and wall seconds (kernels warm) and the peak memory of the whole process, frame included.
"""

import resource
import sys
import time

import numpy as np
import pyarrow as pa

from kasuri import _kernels, kanon, meshcode
from kasuri.schema import Mesh

WINDOW = Mesh.window("cell", "kanto")


def frame(rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    row = np.clip(rng.normal(180, 60, rows), 0, 511).astype(np.int64) + WINDOW.origin[0]
    col = np.clip(rng.normal(290, 70, rows), 0, 511).astype(np.int64) + WINDOW.origin[1]
    occupation = (64 * rng.random(rows) ** 2).astype(np.int32)
    return pa.table(
        {
            "age": rng.integers(0, 100, rows, dtype=np.int32),
            "sex": pa.DictionaryArray.from_arrays(rng.integers(0, 2, rows, dtype=np.int32), ["f", "m"]),
            "cell": meshcode.encode(row, col, "500m"),
            "date": pa.array((18262 + 1096 * rng.random(rows)).astype(np.int32)).cast(pa.date32()),
            "occupation": pa.DictionaryArray.from_arrays(occupation, [f"o{i}" for i in range(64)]),
            "household": rng.integers(0, 8, rows, dtype=np.int32),
        }
    )


def recoding() -> kanon.Recoding:
    groups = {f"group {g}": [f"o{i}" for i in range(8 * g, 8 * g + 8)] for g in range(8)}
    return kanon.Recoding.of(
        kanon.numbers("age", 0, 100, [1, 5, 10, 50]),
        kanon.categories("sex", ["f", "m"]),
        kanon.mesh("cell", WINDOW, ["1km", "10km", "80km"]),
        kanon.dates("date", "2020-01-01", "2022-12-31", ["day", "month", "quarter", "year"]),
        kanon.categories("occupation", groups),
        kanon.categories("household", {"alone": ["0", "1"], "together": [str(i) for i in range(2, 8)]}),
    )


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10**7
    _kernels.warm_up()
    table = frame(rows)
    start = time.perf_counter()
    spec = recoding()
    print(f"hierarchies {time.perf_counter() - start:.1f} s")
    for more in ({}, {"suppression": "0.01"}):
        start, cpu = time.perf_counter(), time.process_time()
        out = kanon.specialize(table, spec, k=10, **more)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{rows} rows, k = 10, {more or 'no suppression'}: {wall:.1f} s ({cpu:.1f} s CPU), peak {peak:.2f} GB; "
            f"{out.measures.classes} classes, k = {out.k}, {out.suppressed} suppressed, NCP {out.ncp_share:.4f}"
        )


if __name__ == "__main__":
    main()
