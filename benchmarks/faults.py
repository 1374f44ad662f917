"""Memory that ends, disks that are full, two writers of one place, inputs cut short: what is left behind?

    python benchmarks/faults.py                      # the full numbers (some minutes)
    python benchmarks/faults.py --quick --json       # the numbers of the test suite

The ledger's own faults are in ledger_faults.py. A count above 0 in `violations` is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ledger_faults import UNIT, child, drained, judge, open_ledger, report_draws

import kasuri as ks
from kasuri import files, kanon
from kasuri.budget.ledger import Ledger
from kasuri.ingest import Table
from kasuri.manifest import keygen, verify
from kasuri.meshcode import encode
from kasuri.report import page

DOMAIN = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(256, 256)))
SMALL = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(24, 24)))


def counts(domain: ks.Domain = DOMAIN) -> ks.Counts:
    return ks.Counts.from_dense(np.random.default_rng(1).poisson(3, domain.shape), domain, UNIT, data="study")


def memory(steps: int, folder: Path) -> dict[str, int]:
    """So many MB more than the process has (at last no limit): a release on two threads, and its save."""
    found = {"limits": 0, "saved": 0, "refused": 0, "died": 0, "repairs": 0, "folders": 0, "violations": 0}
    for step in range(steps):
        path, folders = folder / f"memory{step}.ledger", folder / f"memory{step}"
        folders.mkdir()
        room = None if step == steps - 1 else step * 160 // steps << 20

        def work(pipe: int, path: Path = path, folders: Path = folders, room: int | None = room) -> None:
            report_draws(pipe, ["0.5"])
            table, ledger = counts(), open_ledger(path, "1")
            if room is not None:
                with open("/proc/self/statm") as file:
                    size = int(file.read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
            ks.release(table, ks.haar_topdown(), epsilon="0.5", ledger=ledger, threads=2).save(str(folders / "r"))

        with child(work) as (pid, reading):
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            draws = drained(reading)
        saved = (folders / "r").exists()
        found["saved" if code == 0 else "died" if code < 0 else "refused"] += 1
        found["violations"] += saved != (code == 0)
        judge(path, draws, folders, found)
        found["limits"] += 1
    return found


def writers(folder: Path) -> dict[str, tuple[str, Callable[[Path], None], Callable[[Path], bool]]]:
    """Name -> (file or folder, what writes it, whether it is whole)."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    out = ks.release(counts(SMALL), ks.haar_topdown(), epsilon="1", ledger=None, threads=1)
    out.save(str(folder / "saved"), unmetered=True)
    html = page.build(folder / "saved")
    spec = kanon.Recoding.of(kanon.numbers("age", 0, 100, [10, 50]))
    coarse = kanon.specialize(pa.table({"age": np.arange(20_000) % 100}), spec, k=10)
    wards = ks.local.unary(ks.Nominal("ward", labels=("a", "b")), epsilon="1")
    reports, closes = wards.randomize(["a"] * 40_000), (1 << 40) - 1
    rows = out.cells.size

    def count(table: str) -> Callable[[Path], bool]:
        def whole(path: Path) -> bool:
            with sqlite3.connect(path) as base:
                return base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == rows

        return whole

    def in_duckdb(path: Path) -> bool:
        import duckdb

        with duckdb.connect(str(path), read_only=True) as base:
            return base.execute("SELECT count(*) FROM release").fetchone() == (rows,)

    def exported(path: Path) -> None:
        out.export(str(path), levels=("1km",), unmetered=True)

    return {
        "folder": ("r", lambda path: out.save(str(path), unmetered=True), lambda path: verify(path)["ok"]),
        "csv": ("r.csv", exported, lambda path: csv.read_csv(path).num_rows == rows),
        "geoparquet": ("r.parquet", exported, lambda path: parquet.read_table(path).num_rows == rows),
        "geopackage": ("r.gpkg", exported, count("release")),
        "sqlite": ("r.sqlite", exported, count("release")),
        "duckdb": ("r.duckdb", exported, in_duckdb),
        "report": ("r.html", lambda path: files.write(path, html), lambda path: path.read_text() == html),
        "k-anonymity": ("k.csv", coarse.save, lambda path: csv.read_csv(path).num_rows == coarse.rows),
        "local reports": (
            "l.parquet",
            lambda path: ks.local.write_reports(path, reports, ks.local.Round.new(wards, closes=closes)),
            lambda path: len(ks.local.read_reports(path)[0]) == 40_000,
        ),
        "key": ("a.key", lambda path: keygen(path) and None, lambda path: path.with_name("a.key.pub").exists()),
    }


def full_disk(steps: int, folder: Path) -> dict[str, int]:
    """Every writer on a disk with room for a part of its largest file: it is there whole, or not there; and a second
    try with room is not in its own way."""
    found = {"writers": 0, "fills": 0, "refused": 0, "written": 0, "violations": 0}
    for name, (file, write, whole) in writers(folder).items():
        reference = folder / "reference"
        reference.mkdir()
        write(reference / file)
        largest = max(path.stat().st_size for path in reference.rglob("*") if path.is_file())
        found["violations"] += not whole(reference / file)
        shutil.rmtree(reference)
        found["writers"] += 1
        for step in range(steps):
            place = folder / "place"
            place.mkdir()
            room = largest * step // (steps - 1)

            def work(pipe: int, room: int = room, write: Any = write, target: Path = place / file) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
                write(target)

            with child(work) as (pid, _):
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            found["fills"] += 1
            found["refused" if code == 4 else "written"] += 1
            if code == 0:
                found["violations"] += not whole(place / file)
            else:
                left = sorted(path.name for path in place.iterdir())
                bad = code != 4 or left != []
                if not bad:
                    try:
                        write(place / file)
                        bad = not whole(place / file)
                    except ks.KasuriError:
                        bad = True
                if bad:
                    print("full disk:", name, room, code, left, file=sys.stderr)
                found["violations"] += bad
            shutil.rmtree(place)
    return found


def two_writers(turns: int, folder: Path) -> dict[str, int]:
    """Four processes release to one folder, one file and one database at the same moment."""
    found = {"turns": 0, "released": 0, "repairs": 0, "folders": 0, "violations": 0}
    for turn in range(turns):
        path, folders = folder / f"two{turn}.ledger", folder / f"two{turn}"
        folders.mkdir()
        open_ledger(path, "4")

        def work(pipe: int, path: Path = path, folders: Path = folders) -> None:
            report_draws(pipe, ["1"])
            out = ks.release(counts(SMALL), ks.geometric(), epsilon="1", ledger=Ledger.load(path), threads=1)
            done = 0
            for target in ("r", "r.csv", "r.sqlite"):
                try:
                    out.save(str(folders / "r")) if target == "r" else out.export(str(folders / f".{target}"))
                    done += 1
                except ks.DomainError:
                    pass
            if done == 0:
                raise ks.DomainError("nothing was written")

        pids = [child(work) for _ in range(4)]
        entered = [one.__enter__() for one in pids]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in entered]
        draws = [draw for _, reading in entered for draw in drained(reading)]
        for one in pids:
            one.__exit__(None, None, None)
        with sqlite3.connect(folders / ".r.sqlite") as base:
            sizes = base.execute("SELECT count(*) FROM release GROUP BY release_id").fetchall()
            named = base.execute("SELECT count(*) FROM release_meta").fetchone()[0]
        found["violations"] += len(sizes) != named or len(draws) != 4 or any(code not in (0, 4) for code in codes)
        lines = (folders / ".r.csv").read_text(encoding="utf-8-sig").splitlines()
        found["violations"] += len({line.split(",")[0] for line in lines[1:]}) != 1
        for hidden in folders.glob(".*"):
            found["violations"] += hidden.name.endswith(".part")
            hidden.unlink()
        found["violations"] += len(list(folders.iterdir())) != 1
        ledger = Ledger.load(path)
        found["violations"] += ledger.balance().left != 0
        found["released"] += len(draws)
        judge_each(ledger, folders, found)
        found["turns"] += 1
    return found


def judge_each(ledger: Ledger, folders: Path, found: dict[str, int]) -> None:
    done = {entry["release_id"] for entry in ledger.entries() if entry["kind"] == "committed"}
    for folder in folders.iterdir():
        result = verify(folder)
        found["violations"] += not result["ok"] or result["release_id"] not in done
        found["folders"] += 1


def cut_inputs(cuts: int, seed: int, folder: Path) -> dict[str, int]:
    """Inputs of every kind, cut at random: refused by an error of ours, or (CSV, where nothing tells) read in part."""
    import duckdb
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng, random_places = np.random.default_rng(seed), random.Random(seed)
    n = 4000
    cells = encode(8400 + rng.integers(0, 24, n), 6080 + rng.integers(0, 24, n), "500m")
    table_in = pa.table({"person": np.arange(n), "code": cells})
    parquet.write_table(table_in, folder / "in.parquet")
    csv.write_csv(table_in, folder / "in.csv")
    with duckdb.connect(str(folder / "in.duckdb")) as base:
        base.execute("CREATE TABLE people AS SELECT * FROM table_in")
    with sqlite3.connect(folder / "in.sqlite") as base:
        base.execute("CREATE TABLE people (person, code)")
        base.executemany("INSERT INTO people VALUES (?, ?)", zip(range(n), cells.tolist(), strict=True))
    base.close()
    found = {"cuts": 0, "refused": 0, "csv read in part": 0, "violations": 0}
    for name in ("in.parquet", "in.csv", "in.duckdb", "in.sqlite"):
        data = (folder / name).read_bytes()
        for _ in range(cuts):
            (folder / f"cut-{name}").write_bytes(data[: random_places.randrange(len(data))])
            where: Any = str(folder / f"cut-{name}")
            source = where if name.endswith((".parquet", ".csv")) else Table(where, "people")
            found["cuts"] += 1
            try:
                read = ks.count(source, SMALL, columns={"grid": "code"}, unit=UNIT, data="study")
                part = name == "in.csv" and int(read.values.sum()) <= n
                found["csv read in part" if part else "violations"] += 1
            except ks.KasuriError:
                found["refused"] += 1
            except Exception as error:
                print("cut input:", name, type(error).__name__, file=sys.stderr)
                found["violations"] += 1
    return found


def run(quick: bool) -> dict[str, dict[str, int]]:
    import duckdb  # noqa: F401  loaded and compiled before the first fork, so that faults fall where the work is
    import pandas  # noqa: F401  DuckDB asks for it
    import pyarrow.parquet  # noqa: F401

    ks.release(counts(SMALL), ks.haar_topdown(), epsilon="1", ledger=None, threads=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "memory": memory(8 if quick else 64, folder),
            "full_disk": full_disk(3 if quick else 25, folder),
            "two_writers": two_writers(1 if quick else 20, folder),
            "cut_inputs": cut_inputs(6 if quick else 200, 1, folder),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the numbers of the test suite")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    result = run(words.quick)
    if words.json:
        print(json.dumps(result))
    else:
        for study, numbers in result.items():
            print(f"{study:<13}", numbers)
    sys.exit(any(numbers["violations"] for numbers in result.values()))
