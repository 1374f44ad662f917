"""Save and load: CPU seconds beside Arrow and DuckDB, which write and read the same table and nothing else.

python3 run.py bench store

The national 500 m mesh of ../shared/data, or the Kanto census that is shipped; epsilon 0.1. A saved release also has
its measurements, intervals, certificates, a report and the manifest; `load` verifies them. The file of DuckDB is
uncompressed (of compressed columns it keeps bytes of old memory); its size is beside that of the Parquet file.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import duckdb
from bench_report import maps
from clock import best, line
from pyarrow import parquet

import kasuri as ks

RECIPES = (ks.haar_topdown(), ks.refined_tree(), ks.bayes_tree())


def bare(table: Any, folder: Path) -> None:
    """The table as Parquet and as a file of DuckDB."""
    folder.mkdir()
    parquet.write_table(table, folder / "release.parquet", compression="zstd")
    with duckdb.connect(str(folder / "release.duckdb"), config={"threads": 1}) as base:
        base.execute('CREATE TABLE release AS SELECT * FROM "table"')
    shutil.rmtree(folder)


def measure(name: str, counts: ks.Counts, recipe: ks.Mechanism, place: Path) -> None:
    folder, times = place / "release", []
    for _ in range(4):
        out = ks.release(counts, recipe, epsilon="0.1", ledger=None)
        shutil.rmtree(folder, ignore_errors=True)
        times.append(best(lambda out=out: out.save(str(folder), unmetered=True), 1))
    saved = min(times[1:])  # the first compiles
    table = parquet.read_table(folder / "release.parquet")
    alone = best(lambda: bare(table, place / "bare"), 3)
    line(f"{name}, {recipe.name}: save", f"{saved:.2f} CPU s", f"{saved / alone:.1f} times {alone:.2f} s, bare")

    def loaded() -> None:
        ks.Release.load(str(folder)).interval(rows=slice(100, 300), cols=slice(50, 200))

    loaded()
    read, taken = best(lambda: parquet.read_table(folder / "release.parquet"), 3), best(loaded, 3)
    line("    load and an interval", f"{taken:.2f} CPU s", f"{taken / read:.0f} times {read:.3f} s, bare")
    large, small = ((folder / f"release.{kind}").stat().st_size for kind in ("duckdb", "parquet"))
    line("    release.duckdb", f"{large / 1e6:.1f} MB", f"{large / small:.1f} times release.parquet")


def main() -> None:
    name, counts = list(maps().items())[-1]
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as place:
            measure(name, counts, recipe, Path(place))


if __name__ == "__main__":
    main()
