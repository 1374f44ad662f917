"""The command line as a user meets it: real processes, real files."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import duckdb
import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri.meshcode import encode

ROOT = Path(__file__).parents[2]


kasuri = partial(forked.kasuri, COLUMNS="120")
UNIT = ("--unit", "person", "--change", "add-remove", "--max-cells", "1")


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    """A small CSV in mesh codes, and the same in rows and columns."""
    folder = tmp_path_factory.mktemp("census")
    rng = np.random.default_rng(3)
    row, col = (part.ravel() + start for part, start in zip(np.mgrid[0:20, 0:30], (8480, 6240), strict=True))
    people = rng.poisson(4, row.size)
    lines = [f"{code},{n}" for code, n in zip(encode(row, col, "500m"), people, strict=True)]
    (folder / "codes.csv").write_text("\n".join(["mesh_code,population", *lines]))
    lines = [f"{r},{c},{n}" for r, c, n in zip(row, col, people, strict=True)]
    (folder / "cells.csv").write_text("\n".join(["row,col,population", *lines]))
    return folder, people


def test_release_from_codes_and_from_rows(census, tmp_path):
    folder, people = census
    for name, where, file in (
        ("a", ("--code", "mesh_code"), "codes.csv"),
        ("b", ("--row", "row", "--col", "col"), "cells.csv"),
    ):
        run = kasuri(
            "release", folder / file, "--origin", "8480,6240", "--shape", "20,30", *where, "--count", "population",
            *UNIT, "--epsilon", "5", "--unmetered", "--out", name, "--json", cwd=tmp_path,
        )  # fmt: skip
        told = json.loads(run.stdout)
        with duckdb.connect(str(tmp_path / name / "release.duckdb"), read_only=True) as db:
            total = db.execute("SELECT sum(value) FROM release").fetchone()[0]
        assert told["total"] == total and abs(total - people.sum()) < 60
        assert told["guarantee"]["epsilon"] == "5"
        assert "reading" in run.stderr


def test_rows_and_columns_have_no_place_unless_it_is_declared(tmp_path):
    """A grid of another country, whose rows and columns count from its own corner: with the level of the Japanese mesh
    in place of none it was published at 100 E, 0 N."""
    (tmp_path / "paris.csv").write_text("row,col,n\n5,6,70\n9,3,40\n")
    base = ("release", "paris.csv", "--row", "row", "--col", "col", "--count", "n", "--origin", "0,0", "--shape",
            "16,16", *UNIT, "--epsilon", "5", "--unmetered", "--data", "paris")  # fmt: skip
    for wanted in (("--export", "m.gpkg"), ("--export", "m.parquet"), ("--export", "m.csv", "--levels", "1km")):
        run = kasuri(*base, "--out", "maps", *wanted, cwd=tmp_path, code=1)
        assert "have no place on the map" in run.stderr and "--level 500m" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["paris.csv"]
    kasuri(*base, "--out", "out", "--export", "t.csv", "--export", "t.sqlite", "--export", "t.duckdb", cwd=tmp_path)
    mesh = json.loads((tmp_path / "out" / "datapackage.json").read_text())["grid"][0]
    assert mesh["mesh_level"] is None and mesh["crs"] is None
    columns = ["release_id", "cell", "row", "col", "value", "lower", "upper"]
    assert pq.read_schema(tmp_path / "out" / "release.parquet").names == columns
    assert (tmp_path / "t.csv").read_text("utf-8-sig").splitlines()[0] == ",".join(f'"{name}"' for name in columns)
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(release)")] == columns
    assert json.loads(kasuri("verify", "out", "--json", cwd=tmp_path).stdout)["ok"]
    kasuri(*base, "--level", "500m", "--out", "placed", "--export", "p.gpkg", cwd=tmp_path)  # declared: their word
    assert json.loads((tmp_path / "placed" / "datapackage.json").read_text())["grid"][0]["mesh_level"] == "500m"


def test_a_budget_a_signature_and_a_check(census, tmp_path):
    folder, _ = census
    kasuri("ledger", "open", "c.ledger", "--data", "c-2020", *UNIT, "--epsilon", "1", cwd=tmp_path)
    kasuri("keygen", "office.key", cwd=tmp_path)
    base = (
        "release", folder / "codes.csv", "--origin", "8480,6240", "--shape", "20,30", "--code", "mesh_code",
        "--count", "population", *UNIT, "--data", "c-2020", "--ledger", "c.ledger", "--sign", "office.key",
    )  # fmt: skip
    run = kasuri(*base, "--epsilon", "0.7", "--out", "one", cwd=tmp_path)
    assert "paid by ledger entry 2, epsilon 0.3 is left of 1" in run.stdout and "no ledger" not in run.stdout
    told = json.loads(
        kasuri("verify", "one", "--key", "office.key.pub", "--ledger", "c.ledger", "--json", cwd=tmp_path).stdout
    )
    assert told["ok"] and told["signature"] == "good" and told["ledger"] == "paid by entry 2 of 3"
    run = kasuri(*base, "--epsilon", "0.7", "--out", "two", cwd=tmp_path, code=3)
    assert "epsilon 0.3 is left of 1" in run.stderr and not (tmp_path / "two").exists()
    assert "left       epsilon 0.3" in kasuri("ledger", "show", "c.ledger", cwd=tmp_path).stdout
    kasuri(*base, "--ledger", "d.ledger", "--epsilon", "0.1", "--out", "two", cwd=tmp_path, code=2)
    kasuri(*base, "--unmetered", "--epsilon", "0.1", "--out", "two", cwd=tmp_path, code=2)
    kasuri(*base, "--sign", folder / "codes.csv", "--epsilon", "0.1", "--out", "two", cwd=tmp_path, code=1)
    kasuri(*base, "--unit", "household", "--epsilon", "0.1", "--out", "two", cwd=tmp_path, code=1)
    assert json.loads(kasuri("ledger", "verify", "c.ledger", "--json", cwd=tmp_path).stdout)["entries"] == 3
    (tmp_path / "one" / "notes.txt").write_text("hello")
    run = kasuri("verify", "one", cwd=tmp_path, code=1)
    assert "notes.txt: not part of the release" in run.stderr


@pytest.mark.parametrize("out", ["file/release", "file/deep/release", "a" * 300])
def test_an_unusable_folder_costs_nothing(census, tmp_path, out):
    kasuri("ledger", "open", "c.ledger", "--data", "c-2020", *UNIT, "--epsilon", "1", cwd=tmp_path)
    (tmp_path / "file").write_text("not a folder")
    run = kasuri(
        "release", census[0] / "codes.csv", "--origin", "8480,6240", "--shape", "20,30", "--code", "mesh_code",
        "--count", "population", *UNIT, "--data", "c-2020", "--ledger", "c.ledger", "--epsilon", "0.1", "--out", out,
        cwd=tmp_path, code=1,
    )  # fmt: skip
    assert "not written" in run.stderr
    assert ks.Ledger.load(tmp_path / "c.ledger").balance().spent == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.ledger", "c.ledger.journal", "file"]


def test_mask_and_recipe_options(census, tmp_path):
    folder, _ = census
    sea = np.zeros((20, 30), dtype=bool)
    np.save(tmp_path / "sea.npy", sea)
    base = ("release", folder / "codes.csv", "--count", "population", *UNIT, "--epsilon", "1", "--origin", "8480,6240",
            "--shape", "20,30", "--code", "mesh_code", "--unmetered", "--json")  # fmt: skip
    run = kasuri(
        *base, "--mask", "sea.npy", "--recipe", 'haar_topdown(transform="nominal")', "--out", "a", cwd=tmp_path
    )
    told = json.loads(run.stdout)
    assert told["guarantee"]["public"] == ["domain", "mask"] and told["recipe"]["transform"] == "nominal"
    sea[3, 4] = True  # a populated cell declared impossible: refused, by row
    np.save(tmp_path / "sea.npy", sea)
    assert "rows 95" in kasuri(*base, "--mask", "sea.npy", "--out", "b", cwd=tmp_path, code=1).stderr
    kasuri(*base, "--mask", folder / "codes.csv", "--out", "b", cwd=tmp_path, code=2)
    kasuri(*base, "--recipe", 'geometric(transform="haar")', "--out", "b", cwd=tmp_path, code=2)


def test_usage_errors(census, tmp_path):
    folder, _ = census
    base = ("release", folder / "codes.csv", "--count", "population", *UNIT, "--epsilon", "1", "--out", "r")
    run = kasuri(*base, "--code", "mesh_code", "--unmetered", cwd=tmp_path, code=2)
    assert "kanto" in run.stderr and "never taken from the file" in run.stderr.replace("\n", " ").replace("│", "")
    kasuri(*base, "--code", "mesh_code", "--window", "5339", cwd=tmp_path, code=2)  # --unmetered must be said
    kasuri(*base, "--window", "5339", "--unmetered", cwd=tmp_path, code=2)  # where is the cell?
    kasuri(*base, "--code", "mesh_code", "--window", "5339", "--unmetered", "--recipe", "magic", cwd=tmp_path, code=2)
    kasuri("release", folder / "codes.csv", cwd=tmp_path, code=2)
    (tmp_path / "r").mkdir()
    kasuri(*base, "--code", "mesh_code", "--window", "5339", "--unmetered", cwd=tmp_path, code=2)
    assert list((tmp_path / "r").iterdir()) == []


def test_bad_files_name_rows_and_columns_never_values(census, tmp_path):
    (tmp_path / "bad.csv").write_text(
        "mesh_code,population\n533900001,7654\n533900001,8\n123,5\n533900002,-3\n533900003,2.5\n533900004,\n"
    )
    where = ("--window", "5339", "--code", "mesh_code")
    base = ("release", "bad.csv", "--count", "population", *UNIT, *where, "--unmetered", "--out", "r")
    run = kasuri(*base, "--epsilon", "1", cwd=tmp_path, code=1)
    assert "bad.csv: column mesh_code" in run.stderr and "rows 3" in run.stderr
    for value in ("7654", "-3", "2.5"):
        assert value not in run.stderr
    (tmp_path / "bad.csv").write_text("mesh_code,population\n533900001,7\n533900001,8\n533900002,-3\n533900003,2.5\n")
    run = kasuri(*base, "--epsilon", "1", cwd=tmp_path, code=1)
    for rule in ("more than once: rows 1, 2", "negative: rows 3", "fraction: rows 4"):
        assert rule in run.stderr
    run = kasuri(*base, "--epsilon", "0", cwd=tmp_path, code=1)
    assert "greater than 0" in run.stderr
    kasuri("release", "none.csv", *base[2:], "--epsilon", "1", cwd=tmp_path, code=1)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    run = kasuri("release", "bad.parquet", *base[2:], "--epsilon", "1", cwd=tmp_path, code=1)
    assert "damaged" in run.stderr
    assert not (tmp_path / "r").exists()


def test_demo_ends_in_a_database_and_a_map(tmp_path):
    run = kasuri("demo", cwd=tmp_path)
    assert "How exact it is" in run.stdout
    with duckdb.connect(str(tmp_path / "kasuri-demo" / "release.duckdb"), read_only=True) as db:
        assert abs(db.execute("SELECT sum(value) FROM release").fetchone()[0] - 47_595_417) < 190 * 40
    assert (tmp_path / "kasuri-demo.png").read_bytes()[:4] == b"\x89PNG"
    report = (tmp_path / "kasuri-demo" / "report.html").read_bytes()
    assert str(tmp_path / "kasuri-demo" / "report.html") in run.stdout and len(report) < 850_000
    assert "5/5 verifying" in run.stderr and "yes, every file" in run.stdout
    told = json.loads(kasuri("demo", "--json", cwd=tmp_path).stdout)
    assert told["folder"] == "kasuri-demo-2"


def test_reproduce(tmp_path):
    run = kasuri("reproduce", "terada2015", "--runs", "1", "--json", "--figures", "figures", cwd=tmp_path)
    told = json.loads(run.stdout)
    assert told["table"]["Proposed"]["negative_cells"] == 0 and told["coefficients"]["inverse_equal"]
    assert len(list((tmp_path / "figures").iterdir())) == 3


def test_version(tmp_path):
    command = [sys.executable, "-m", "kasuri", "--version"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == f"kasuri {ks.__version__}\n"
    assert kasuri("--version", cwd=tmp_path).stdout == f"kasuri {ks.__version__}\n"


def test_import_is_light(tmp_path):
    heavy = "numba scipy pandas pyarrow duckdb matplotlib narwhals cryptography"
    text = f"import sys, kasuri; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout.strip() == "[]"
    text = f"import sys, kasuri.cli; print([m for m in '{heavy} numpy'.split() if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout.strip() == "[]"


PROCESS = """
import atexit, sys, threading, time
from kasuri import cli
atexit.register(print, "at the end")
if sys.argv.pop(1) == "thread":
    threading.Thread(target=lambda: (time.sleep(0.5), print("thread done"))).start()
cli.process()
"""


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["check", "nowhere.toml"], 1), (["--nonsense"], 2)])
@pytest.mark.parametrize("beside", ["alone", "thread"])
def test_a_process_ends_with_its_code_when_all_is_written(words, code, beside, tmp_path):
    """Without taking its modules apart, but not before threads, exit functions and buffers are done."""
    command = [sys.executable, "-c", PROCESS, beside, *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == code and run.stdout.splitlines()[-1] == "at the end"
    assert ("thread done" in run.stdout) == (beside == "thread") and (code == 0) == (not run.stderr)


def test_a_foreign_error_shows_its_kind_only(monkeypatch, capsys):
    from kasuri import cli

    def broken(command):
        raise ValueError("could not convert 'SECRET'")

    monkeypatch.setattr(cli, "rephrase", broken)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr().err
    assert caught.value.code == 1 and "ValueError" in shown and "SECRET" not in shown


def test_a_wrong_export_is_refused_before_anything_is_drawn(census, tmp_path):
    run = kasuri(
        "release", census[0] / "codes.csv", "--origin", "8480,6240", "--shape", "20,30", "--code", "mesh_code",
        "--count", "population", *UNIT, "--epsilon", "5", "--unmetered", "--out", "a", "--export", "r.docx",
        cwd=tmp_path, code=1,
    )  # fmt: skip
    assert "a file ending in" in run.stderr and "reading" not in run.stderr and not (tmp_path / "a").exists()


def test_a_log_does_not_tell_the_number_of_rows(tmp_path):
    """Two files, one with many batches: what is printed off a terminal is the same."""
    told = []
    for name, rows in (("a", 10), ("b", 2_500_000)):
        folder = tmp_path / name
        folder.mkdir()
        table = pa.table({"person": np.arange(rows), "row": np.full(rows, 8480), "col": np.full(rows, 6240)})
        pq.write_table(table, folder / "v.parquet")
        run = kasuri(
            "release", "v.parquet", "--origin", "8480,6240", "--shape", "2,2", "--row", "row", "--col", "col", *UNIT,
            "--epsilon", "5", "--unmetered", "--out", "out", cwd=folder,
        )  # fmt: skip
        told.append(run.stderr)
    assert told[0] == told[1]
