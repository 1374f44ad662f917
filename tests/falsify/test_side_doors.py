"""Two inputs, one seed, equal released values: everything else that leaves a run must be equal, byte for byte.

Printed, logged, warned, raised, shown in a repr, told as progress, and every byte and name of every file. The values
are made equal by tests/falsify/twin_run.py, so nothing needs to be masked. Where the two inputs are neighbours this
is what a guarantee promises beside the values; the stores are also given two tables that share nothing.
"""

import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

import kasuri as ks
from kasuri.meshcode import encode

RUNNER = Path(__file__).with_name("twin_run.py")


@dataclass
class Seen:
    """What left one run: text and files (those that were not put in)."""

    out: str = ""
    err: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


def run_once(folder: Path, prepare, commands) -> Seen:
    """`prepare(folder)` puts the input in; the commands run there. Then the folder gets another name, so that both runs
    have the same."""
    folder.mkdir()
    prepare(folder)
    given = {path.relative_to(folder) for path in folder.rglob("*")}
    (folder.parent / "commands.json").write_text(json.dumps(commands))
    done = subprocess.run(
        [sys.executable, RUNNER, "../commands.json"],
        cwd=folder, capture_output=True, text=True, timeout=300, env=dict(os.environ, TERM="dumb", NO_COLOR="1"),
    )  # fmt: skip
    seen = Seen(done.stdout, done.stderr)
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder) not in given:
            seen.files[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else b"folder"
    shutil.rmtree(folder.parent / "kept", ignore_errors=True)
    os.rename(folder, folder.parent / "kept")
    return seen


def twins(tmp_path: Path, first, second, commands) -> tuple[Seen, Seen]:
    """Both runs, on one day: exports to GeoPackage tell it."""
    while True:
        day = datetime.now(tz=UTC).date()
        pair = run_once(tmp_path / "run", first, commands), run_once(tmp_path / "run", second, commands)
        if datetime.now(tz=UTC).date() == day:
            return pair


def assert_equal(one: Seen, other: Seen) -> None:
    assert one.out == other.out
    assert one.err == other.err
    assert list(one.files) == list(other.files)
    assert [name for name in one.files if one.files[name] != other.files[name]] == []


def told(record_property, door: str, pairs: int, one: Seen) -> None:
    record_property("section", "side doors")
    record_property("name", door)
    lines = len((one.out + one.err).splitlines())
    size = sum(map(len, one.files.values()))
    tried = f"{pairs} pair{'s' * (pairs > 1)} of inputs; {lines} lines, {len(one.files)} files, {size:,} bytes each"
    record_property("tried", tried)
    record_property("found", "equal, byte for byte")


# -- records with ids --------------------------------------------------------------------------------------------------

HEAD = "person,code,sex\n"
JOB = """
[data]
name = "doors"
files = ["{file}"]
columns = {{ grid = "code", sex = "sex" }}
[[axes]]
kind = "mesh"
name = "grid"
level = "500m"
origin = [8400, 6080]
shape = [16, 16]
[[axes]]
kind = "nominal"
name = "sex"
labels = ["f", "m"]
[unit]
id = "person"
change = "add-remove"
max_cells = 2
[recipe]
name = "{recipe}"
[budget]
epsilon = "0.5"
ledger = "doors.ledger"
[output]
folder = "{folder}"
exports = {exports}
levels = ["1km"]
"""
EXPORTS = ["r.csv", "r.parquet", "r.gpkg", "r.sqlite", "r.duckdb"]
UNIT = ["--unit", "person", "--change", "add-remove", "--max-cells", "2"]


def rows(seed=1, people=120):
    rng = np.random.default_rng(seed)
    codes = encode(8400 + rng.integers(0, 16, 3 * people), 6080 + rng.integers(0, 16, 3 * people), "500m")
    return [f"p{i // 3},{code},{'fm'[i % 2]}" for i, code in enumerate(codes.tolist())]


def of_one(name="q"):
    """The records of one person who does everything wrong: outside the window, a label that is none, too many cells,
    the same cell twice, broken lines, text that is no UTF-8."""
    inside = encode(8400 + np.arange(8), 6080 + np.arange(8), "500m").tolist()
    return [f"{name},{code},f".encode() for code in [*inside, inside[0], 36220000, "Tokyo", ""]] + [
        f"{name},{inside[0]},unknown".encode(), f"{name},{inside[0]}".encode(), f"{name},{inside[0]},f,4".encode(),
        b"\xff\xfe,\xff,\xff", f'"{name}",{inside[3]},m'.encode(), f",{inside[0]},m".encode(),
    ]  # fmt: skip


def jobs(folder: Path, file: str, exports=EXPORTS) -> None:
    for name, recipe, targets in (("job", "haar_topdown", exports), ("next", "bayes_tree", []), ("over", "auto", [])):
        text = JOB.format(file=file, recipe=recipe, folder=f"out-{name}", exports=json.dumps(targets))
        (folder / f"{name}.toml").write_text(text)


def csv_of(lines):
    def prepare(folder: Path) -> None:
        jobs(folder, "people.csv")
        (folder / "people.csv").write_bytes(HEAD.encode() + b"\n".join(lines) + b"\n")

    return prepare


COMMANDS = [
    ["ledger", "open", "doors.ledger", "--data", "doors", "--epsilon", "1", *UNIT],
    ["release", "job.toml"],
    ["release", "job.toml", "--json"],  # refused: the folder is there
    ["release", "next.toml", "--json", "--threads", "2"],
    ["release", "over.toml"],  # refused: the budget is spent
    ["verify", "out-job", "--json"],
    ["verify", "out-next", "--ledger", "doors.ledger"],
    ["report", "out-job", "--json"],
    ["ledger", "export", "doors.ledger", "--json"],
]


def test_one_person_more_changes_nothing_but_values(tmp_path, record_property):
    base = [line.encode() for line in rows()]
    one, other = twins(tmp_path, csv_of(base), csv_of([*base[:30], *of_one(), *base[30:]]), COMMANDS)
    assert one.out.count("-> 0") == 7 and one.out.count("-> 1\n") == 1 and one.out.count("-> 3") == 1, one.err
    assert {"r.csv", "r_1km.csv", "r_meta.csv", "r.gpkg", "out-job/report.html", "out-next/release.duckdb"} <= set(
        one.files
    )
    assert_equal(one, other)
    told(record_property, "command line: one person more, who does everything wrong", 1, one)


LIBRARY = """
import traceback
from pathlib import Path
import kasuri as ks
from kasuri.ingest import Table
domain = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(16, 16)), ks.Nominal("sex", ("f", "m")))
unit = ks.Unit(id="person", change="add-remove", max_cells=2)
told = []
source = "people.parquet" if Path("people.parquet").exists() else Table("people.db", "people")
counts = ks.count(source, domain, columns={"grid": "code", "sex": "sex"}, unit=unit, data="doors", progress=told.append)
print("progress", told, repr(counts), str(counts), f"{counts}")
for wrong in (lambda: ks.release(counts, ks.geometric(), epsilon=0.5, ledger=None),
              lambda: ks.release(counts, ks.laplace, epsilon="1", ledger=None),
              lambda: ks.count(source, domain, columns={"grid": "code"}, unit=unit),
              lambda: ks.count(source, domain, columns={"grid": "cod", "sex": "sex"}, unit=unit),
              lambda: counts.nothing, lambda: counts + 1, lambda: len(counts), lambda: list(counts),
              lambda: counts == counts):
    try:
        print("answer", wrong())
    except Exception:
        traceback.print_exc()
ledger = ks.Ledger.open("doors.ledger", epsilon="9", unit=unit, data="doors")
for recipe in (ks.geometric(), ks.privelet("2d"), ks.simplex(), ks.recipes.sparse(), ks.refined_tree()):
    out = ks.release(counts, recipe, epsilon="0.5", ledger=ledger, threads=2)
    print(repr(out), repr(ledger), repr(out.receipt), dict(out.provenance), dict(out.recipe), out.guarantee)
    out.save(f"out-{recipe.name}")
"""
FAILING = """
import kasuri.noise.blocks
def fail(*args, **more):
    raise MemoryError("no room")
kasuri.noise.blocks.dense_noise = fail
ks.release(counts, ks.geometric(), epsilon="0.5", ledger=None)
"""


def frame_of(lines):
    """The same records as a Parquet file: no broken lines there."""
    cells = [line.decode(errors="replace").replace('"', "").split(",") for line in lines]
    person, code, sex = zip(*(row for row in cells if len(row) == 3), strict=True)
    return pa.table({"person": person, "code": code, "sex": sex})


def parquet_of(lines):
    def prepare(folder: Path) -> None:
        pq.write_table(frame_of(lines), folder / "people.parquet")

    return prepare


def numbers_of(lines):
    """Ids as whole numbers, which another engine counts."""

    def prepare(folder: Path) -> None:
        table = frame_of(lines)
        names = table["person"].to_pylist()
        ids = [10**6 if name == "q" else int(name[1:]) if name[1:].isdigit() else None for name in names]
        pq.write_table(table.set_column(0, "person", pa.array(ids, pa.int64())), folder / "people.parquet")

    return prepare


def sqlite_of(lines):
    def prepare(folder: Path) -> None:
        with sqlite3.connect(folder / "people.db") as base:
            base.execute("CREATE TABLE people (person, code, sex)")
            base.executemany(
                "INSERT INTO people VALUES (?, ?, ?)", [tuple(r.values()) for r in frame_of(lines).to_pylist()]
            )
        base.close()

    return prepare


@pytest.mark.parametrize(
    "kind", ["numbers", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("parquet", "sqlite"))]
)
def test_the_library_says_nothing_of_one_person(tmp_path, record_property, kind):
    base = [line.encode() for line in rows(2)]
    make = {"numbers": numbers_of, "parquet": parquet_of, "sqlite": sqlite_of}[kind]
    one, other = twins(tmp_path, make(base), make([*base, *of_one()]), [LIBRARY + FAILING])
    assert "Release(geometric" in one.out and "out-refined_tree/datapackage.json" in one.files, one.err[-2000:]
    assert one.err.count("Traceback") >= 7
    assert_equal(one, other)
    told(record_property, f"library: repr, errors, progress, ledger, files ({kind})", 1, one)


# -- any records, any one person ---------------------------------------------------------------------------------------

GOOD = [str(code) for code in encode(8400 + np.arange(3), 6080 + np.arange(3), "500m").tolist()]
CELLS = st.tuples(
    st.sampled_from(["a", "b", "c", "d", "0", "", " ", "日本"]),
    st.sampled_from([*GOOD, *GOOD, "36220000", "Tokyo", "", "-1", "1e9", "９"]),
    st.sampled_from(["f", "m", "f", "x", "", "F"]),
)
LINES = st.one_of(CELLS, CELLS, CELLS, CELLS.map(lambda row: row[:2]), CELLS.map(lambda row: (*row, "4")))
PEOPLE = st.lists(LINES, max_size=14)


def everything_said(path: Path, lines, monkeypatch) -> list[str]:
    """All that a count and a release of one seed tell beside values: text, logs, warnings, words, errors. (Progress
    follows the rows that are read, as time does: SECURITY.md.)"""
    from kasuri import draw

    path.write_text(HEAD + "".join(",".join(line) + "\n" for line in lines), encoding="utf-8")
    domain = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(4, 4)), ks.Nominal("sex", ("f", "m")))
    unit = ks.Unit("person", "add-remove", 2)
    said, drawn = [], draw.draw

    def reference(run, counts, streams, threads):
        drawn(run, counts, streams, threads)
        return drawn(run, replace(counts, cells=np.arange(3), values=np.arange(1, 4)), streams, threads)

    class Keep(logging.Handler):
        def emit(self, record):
            said.append(f"log {record.name} {record.getMessage()}")

    handler = Keep()
    logging.getLogger().addHandler(handler)
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.setattr(draw, "draw", reference)
        try:
            counts = ks.count(str(path), domain, columns={"grid": "code", "sex": "sex"}, unit=unit, data="doors")
            said.append(repr(counts))
            for recipe in (ks.haar_topdown(), ks.geometric(), ks.refined_tree()):
                out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(1), threads=1)
                about = {name: word for name, word in out.provenance.items() if name != "release_id"}
                said += [repr(out), str(about), str(dict(out.recipe)), str(out.guarantee), str(out.values.tolist())]
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    logging.getLogger().removeHandler(handler)
    return said + [str(item.message) for item in warned]


def test_any_records_and_any_one_person(tmp_path, monkeypatch, capfd, record_property):
    tried = []

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(PEOPLE, st.sampled_from(["a", "b", "0", "日本"]))
    def holds(lines, person):
        without = [line for line in lines if line[0] != person]
        one, other = (everything_said(tmp_path / "people.csv", rows, monkeypatch) for rows in (lines, without))
        assert one == other
        tried.append(one)

    holds()
    assert capfd.readouterr() == ("", "")
    assert sum("Release(" in " ".join(said) for said in tried) > 50
    record_property("section", "side doors")
    record_property("name", "library: any records, any one person left out")
    record_property("tried", f"{len(tried)} pairs of random files")
    record_property("found", "equal")


# -- a table of counts, two truths that share nothing ------------------------------------------------------------------


def table_of(values):
    def prepare(folder: Path) -> None:
        row, col = np.indices((64, 64)).reshape(2, -1)
        code = encode(8400 + row, 6080 + col, "500m")
        csv.write_csv(pa.table({"code": code[values > 0], "n": values[values > 0]}), folder / "table.csv")

    return prepare


RELEASE = ["release", "table.csv", "--origin", "8400,6080", "--shape", "64,64", "--code", "code", "--count", "n",
           "--unit", "person", "--change", "add-remove", "--max-cells", "1", "--epsilon", "0.5", "--data", "doors",
           "--unmetered"]  # fmt: skip


def test_files_follow_released_values_alone(tmp_path, record_property):
    """An empty table and a full one, of which the same values are released: the same bytes in every store."""
    rng = np.random.default_rng(5)
    truths = np.zeros(4096, np.int64), rng.integers(1, 10**6, 4096)
    exports = [word for name in EXPORTS for word in ("--export", name)]
    commands = [
        [*RELEASE, "--out", "out", *exports, "--levels", "1km,10km"],
        [*RELEASE, "--recipe", "refined_tree", "--out", "tree", "--json"],
        [*RELEASE, "--recipe", "geometric", "--out", "cells", "--json"],
    ]
    one, other = twins(tmp_path, *map(table_of, truths), commands)
    assert one.out.count("-> 0") == 3, one.err
    assert_equal(one, other)
    told(record_property, "stores: an empty table and a full one, the same released values", 1, one)
    rows_are_sorted_and_groups_are_fixed(tmp_path / "kept")


def rows_are_sorted_and_groups_are_fixed(folder: Path) -> None:
    for path in [*folder.rglob("*.parquet")]:
        read = pq.ParquetFile(path)
        assert read.num_row_groups == -(-max(read.metadata.num_rows, 1) // (1 << 20)), path
        columns = [read.metadata.row_group(0).column(at) for at in range(read.metadata.num_columns)]
        assert {column.compression for column in columns} == {"ZSTD"}, path
        if "cell" in read.schema_arrow.names:
            assert (np.diff(read.read(["cell"])["cell"].to_numpy()) > 0).all(), path
    for path in [folder / "r.csv", folder / "r_1km.csv"]:
        assert (np.diff(csv.read_csv(path)["cell"].to_numpy()) > 0).all(), path
    for path in [folder / "r.sqlite", folder / "r.gpkg"]:
        with sqlite3.connect(path) as base:
            for table in ("release", "release_1km"):
                cells = [cell for (cell,) in base.execute(f"SELECT cell FROM {table} ORDER BY rowid")]
                assert cells == sorted(set(cells)) and len(cells) > 100
            assert base.execute("PRAGMA freelist_count").fetchone() == (0,)  # no page of something else
        base.close()
    for path in [folder / "r.duckdb", folder / "out" / "release.duckdb"]:
        with duckdb.connect(str(path), read_only=True) as base:
            cells = [cell for (cell,) in base.execute("SELECT cell FROM release ORDER BY rowid").fetchall()]
            assert cells == sorted(set(cells)) and len(cells) > 100


# -- the siblings ------------------------------------------------------------------------------------------------------


def local_of(places):
    def prepare(folder: Path) -> None:
        wards = ks.Nominal("ward", labels=("a", "b", "c"))
        (folder / "rr.json").write_text(json.dumps(ks.local.unary(wards, epsilon="1").to_json()))
        (folder / "people.csv").write_text("\n".join(["ward", *places]) + "\n")

    return prepare


def kanon_of(ages):
    def prepare(folder: Path) -> None:
        text = '[attributes.age]\nkind = "numbers"\nlow = 0\nhigh = 100\nwidths = [10, 50]\n'
        (folder / "spec.toml").write_text(text)
        csv.write_csv(pa.table({"person": np.arange(len(ages)), "age": ages}), folder / "people.csv")

    return prepare


JOIN = """
import kasuri as ks, numpy as np
from kasuri.shuffle.secret import Secret
plan = ks.shuffle.Plan.load("plan.json")
for side, column in (("a", "age"), ("b", "spend")):
    data = np.load("people.npz", allow_pickle=False)
    with ks.shuffle.Party(plan, side, Secret(bytearray(b"s" * 32), "run", side)) as party:
        table = party.run({"phone": data["phone"], column: data[column]})
    print(repr(party), repr(table), repr(plan))
    table.save(f"{side}.parquet", unmetered=True)
"""


def join_of(age):
    def prepare(folder: Path) -> None:
        plan = ks.shuffle.Plan(key="phone", a=("age",), b=("spend",), bounds={"age": (20, 80), "spend": (0, 1000)},
                               epsilon_each="1", delta=1e-8, outside="clip")  # fmt: skip
        plan.save(folder / "plan.json")
        phones = np.array([f"0{i:09}" for i in range(1500)])
        np.savez(folder / "people.npz", phone=phones, age=np.asarray(age, float), spend=np.full(1500, 7.0))

    return prepare


SIBLINGS = {
    "local: one person is elsewhere": (
        local_of(["a", "b", "c"] * 30),
        local_of([*["a", "b", "c"] * 29, "a", "b", "a"]),
        [["local", "randomize", "people.csv", "--column", "ward", "--randomizer", "rr.json", "--out", "r.parquet"],
         ["local", "estimate", "r.parquet", "--json", "--out", "e.csv", "--report", "e.html"]],
    ),
    "k-anonymity with a guarantee: one row more": (
        kanon_of(np.arange(2000) % 100),
        kanon_of([*np.arange(2000) % 100, 99]),
        [["kanon", "anonymize", "people.csv", "spec.toml", "--k", "40", "--out", "s.csv", "--method", "sample",
          "--sampling-rate", "0.2", "--epsilon", "1", "--delta", "0.01", "--unit", "person", "--cut", "age=1",
          "--report", "s.html", "--json"]],
    ),
    "shuffle-model join: one value, beyond its bounds": (
        join_of(np.full(1500, 30)),
        join_of([99, *[30] * 1499]),
        [JOIN,
         ["shuffle", "join", "a.parquet", "b.parquet", "--plan", "plan.json", "--out", "j.parquet", "--unmetered"],
         ["shuffle", "stats", "j.parquet", "--json"],
         ["shuffle", "synthesize", "j.parquet", "--rows", "20", "--out", "s.parquet"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings(tmp_path, record_property, name):
    first, second, commands = SIBLINGS[name]
    one, other = twins(tmp_path, first, second, commands)
    assert one.out.count("-> 0") == len(commands), one.err
    assert_equal(one, other)
    told(record_property, name, 1, one)
