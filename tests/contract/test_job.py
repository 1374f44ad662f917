"""Job files: the template runs, unknown keys are refused, check finds every fault at once, nothing is left behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app
from kasuri.examples import KANTO

ROOT = Path(__file__).parents[2]


def run(*words, code=0):
    result = CliRunner().invoke(app, list(map(str, words)))
    if code is not None:
        assert result.exit_code == code, result.output
    return result


def template(tmp_path, **changes):
    run("init", tmp_path / "job.toml")
    text = (tmp_path / "job.toml").read_text()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "job.toml").write_text(text)
    return tmp_path / "job.toml"


def test_the_template_runs_as_it_stands(tmp_path):
    from pyarrow import csv

    path = template(
        tmp_path, exports=("exports = []", 'exports = ["r.sqlite"]'), levels=("levels = []", 'levels = ["1km"]')
    )
    csv.write_csv(pq.read_table(KANTO), tmp_path / "census.csv")
    assert "no fault" in run("check", path).output
    out = json.loads(run("release", path, "--json").stdout)
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        assert base.execute("SELECT sum(value) FROM release").fetchone()[0] == out["total"]
        assert base.execute("SELECT sum(value) FROM release_1km").fetchone()[0] == out["total"]
    assert (tmp_path / "release" / "release.duckdb").exists()
    run("init", path, code=2)
    assert "exists" in run("check", path, code=1).output


def test_the_shipped_schema_is_the_model(tmp_path):
    assert json.loads((ROOT / "src/kasuri/job/job.schema.json").read_text()) == job.schema()
    run("init", tmp_path / "s.json", "--schema")
    assert json.loads((tmp_path / "s.json").read_text())["additionalProperties"] is False


def test_every_fault_of_form_at_once(tmp_path):
    path = template(
        tmp_path,
        a=('epsilon = "0.1" ', "epsilon = 0.1 "),
        b=("max_cells = 1", 'max_cell = 1\nmax_weight = "x"'),
        c=('kind = "mesh"', 'kind = "mush"'),
        d=('folder = "release"', ""),
    )
    faults = job.check(path)
    text = "\n".join(faults)
    for words in ("budget.epsilon", "unit.max_cells: missing", "unit.max_cell: unknown key", "unit.max_weight",
                  "axes.0", "output.folder: missing"):  # fmt: skip
        assert words in text
    assert run("release", path, code=None).exit_code != 0


def test_check_names_rows_and_release_stays_silent(tmp_path):
    """Records outside the window: faults for the operator, dropped without a word in a release."""
    path = template(tmp_path, weight=('weight = "population" ', "# "), file=("census.csv", "v.parquet"))
    visits = pa.table({"person": ["a", "b", "c"], "mesh_code": [523900001, 533945263, 1]})
    pq.write_table(visits, tmp_path / "v.parquet")
    found = run("check", path, code=1).output
    assert "CONFIDENTIAL" in found and "column mesh_code" in found and "rows 1, 3" in found
    run("check", path, "--allow-outside")
    result = run("release", path)
    assert "1, 3" not in result.output and "dropped" not in result.output
    assert "provider bounded" not in result.output  # the tool bounded them


def test_a_job_says_everything_itself(tmp_path):
    path = template(tmp_path)
    assert "job file says everything" in run("release", path, "--epsilon", "1", code=2).output
    assert "missing: --out" in run("release", "census.csv", code=2).output


def test_sampling_key_of_a_job(tmp_path):
    key = "ab" * 32
    path = template(
        tmp_path, weight=('weight = "population" ', f'sampling_key = "{key}" # '), file=("census.csv", "v.parquet")
    )
    rows = np.arange(200)
    codes = ks.Mesh.window("grid", "kanto")
    from kasuri.meshcode import encode

    table = {"person": ["a"] * 200, "mesh_code": encode(rows + codes.origin[0], rows + codes.origin[1], "500m")}
    pq.write_table(pa.table(table), tmp_path / "v.parquet")
    first, second = (job.counts(job.load(path), tmp_path) for _ in range(2))
    assert first.cells.tolist() == second.cells.tolist() and first.values.sum() == 1


CHILD = """
import os, signal, sys
import pyarrow as pa
import kasuri as ks
from kasuri.ingest import micro, parts

engine, moment = sys.argv[1:]
rows = 300_000
ids = [7_310_579_624_301] * rows if engine == "radix" else [f"PLANTED-ID-{i % 97}" for i in range(rows)]
frame = pa.table({"person": ids, "row": [i % 50 for i in range(rows)], "col": [i % 50 for i in range(rows)]})

def die(*words):
    os.kill(os.getpid(), signal.SIGKILL)

def read_and_die(*words):
    yield from original(*words)
    die()

if moment == "bounding":  # the parts are written
    parts._Total.add = die
else:
    original, micro.placed = micro.placed, read_and_die
domain = ks.Domain.of(ks.Mesh("grid", shape=(50, 50)))
unit = ks.Unit("person", "add-remove", 1)
ks.count(frame, domain, columns={"grid": ("row", "col")}, unit=unit, engine=engine)
"""


def holders(folder: Path, needle: bytes) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and needle in p.read_bytes()]


@pytest.mark.parametrize("moment", ["reading", "bounding"])
@pytest.mark.parametrize("engine", ["radix", "duckdb"])
def test_kill_9_leaves_no_record_in_the_output_or_working_folder(tmp_path, engine, moment):
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    needle = b"PLANTED-ID" if engine == "duckdb" else (7_310_579_624_301).to_bytes(8, "little")
    environment = dict(os.environ, TMPDIR=str(temporary))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, engine, moment], cwd=work, env=environment, capture_output=True
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    assert list(work.iterdir()) == []
    left = list(temporary.glob("kasuri-work-*"))
    assert left and all(p.stat().st_mode & 0o077 == 0 for p in left)
    if moment == "bounding":
        assert holders(left[0], needle)  # true records, in private
    done = subprocess.run(  # the next count sweeps them
        [sys.executable, "-c", "from kasuri.ingest import scratch\nwith scratch.folder() as f: pass"],
        env=environment, cwd=work,
    )  # fmt: skip
    assert done.returncode == 0
    assert holders(temporary, needle) == [] and not list(temporary.glob("kasuri-work-*"))


def test_a_living_folder_is_not_swept(tmp_path, monkeypatch):
    from kasuri.ingest import scratch

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch.folder() as first:
        code = "import tempfile,sys; tempfile.tempdir=sys.argv[1]; from kasuri.ingest import scratch; scratch.sweep()"
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
        assert first.exists()
        (first / "x").write_text("record")
    assert not first.exists()


def test_working_files_never_lie_where_the_work_or_the_output_is(tmp_path, monkeypatch):
    """A temporary folder below the current folder or an output is passed over; with no other, nothing is written."""
    from kasuri.ingest import scratch

    inside, elsewhere = tmp_path / "work" / "tmp", tmp_path / "elsewhere"
    inside.mkdir(parents=True)
    elsewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(inside)
    for temporary in (inside, link):
        monkeypatch.setattr(scratch, "_places", lambda t=temporary: [t, elsewhere])
        for away, cwd in (([tmp_path / "work"], tmp_path / "elsewhere"), ([], tmp_path / "work"), ([inside], "/")):
            monkeypatch.chdir(cwd)
            if cwd == elsewhere:
                monkeypatch.setattr(scratch, "_places", lambda t=temporary: [t])
                with pytest.raises(ks.PrivacyError, match="TMPDIR"), scratch.folder(away):
                    pass
                monkeypatch.setattr(scratch, "_places", lambda t=temporary: [t, elsewhere])
                continue
            with scratch.folder(away) as made:
                assert made.parent == elsewhere
        monkeypatch.chdir("/")
        with scratch.folder() as made:  # everything is below the root: it is no working folder
            assert made.parent == inside
    assert not list(inside.iterdir()) and not list(elsewhere.iterdir())


def test_a_job_keeps_records_out_of_its_folder(tmp_path, monkeypatch):
    path = template(tmp_path, weight=('weight = "population" ', "# "), file=("census.csv", "v.csv"))
    (tmp_path / "v.csv").write_text("person,mesh_code\nPLANTED,533945263\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    from kasuri.ingest import parts, scratch

    seen = []
    original = parts.texts
    monkeypatch.setattr(parts, "texts", lambda *words: seen.append(words[-1]) or original(*words))
    run("release", path)
    assert seen and not Path(seen[0]).is_relative_to(tmp_path)
    monkeypatch.setattr(scratch, "_places", lambda: [tmp_path / "tmp"])
    (tmp_path / "release").rename(tmp_path / "first")
    assert "TMPDIR" in str(run("release", path, code=1).exception)
    assert not (tmp_path / "release").exists()


def test_check_names_the_lines_a_release_drops(tmp_path):
    path = template(tmp_path, weight=('weight = "population" ', "# "), file=("census.csv", "v.csv"))
    lines = [b"person,mesh_code", b"a,533945263", b"b", b",533945263", b"\xff,533945263", b"c,1,2,3", b"d,1", b""]
    (tmp_path / "v.csv").write_bytes(b"\n".join(lines))
    text = "\n".join(job.check(path))
    assert "v.csv: the line does not have the header's number of cells: rows 2, 5" in text
    assert (
        "v.csv: column person: the id is missing, not in the file's encoding, or longer than 1024 bytes: rows 3, 4"
        in text
    )
    assert "v.csv: column mesh_code: not a 500m mesh code inside the window: rows 6" in text
    run("release", path)


def test_a_broken_line_of_an_aggregated_table_is_named(tmp_path):
    path = template(tmp_path)
    lines = [b"mesh_code,population", b"533945263,1", b"533945264", b"533945264,x", b"533945261,\xff", b""]
    (tmp_path / "census.csv").write_bytes(b"\n".join(lines))
    text = "\n".join(job.check(path))
    assert "census.csv: the line does not have the header's number of cells: rows 2" in text
    assert "census.csv: column population: not a whole number: rows 3, 4" in text
    assert "cells: rows 2" in str(run("release", path, code=1).exception)


def test_a_mask_of_a_job(tmp_path):
    """Masked cells are no faults of the file but of the rows; a mask of the wrong shape or type is one of the job."""
    path = template(
        tmp_path,
        weight=('weight = "population" ', "# "),
        file=("census.csv", "v.csv"),
        mask=("[unit]", '[[masks]]\naxes = ["grid"]\nfile = "sea.npy"\n\n[unit]'),
    )
    (tmp_path / "v.csv").write_text("person,mesh_code\na,533945263\nb,533945264\n")
    assert "sea.npy is not a .npy array" in "\n".join(job.check(path))
    np.save(tmp_path / "sea.npy", np.zeros((2, 2), bool))
    assert "mask of grid has shape (2, 2)" in "\n".join(job.check(path))
    mesh = ks.Mesh.window("grid", "kanto")
    row, col = (int(x[0]) for x in ks.meshcode.decode([533945264], "500m"))
    sea = np.zeros(mesh.shape, bool)
    sea[row - mesh.origin[0], col - mesh.origin[1]] = True
    np.save(tmp_path / "sea.npy", sea)
    assert "a cell that is masked: rows 2" in "\n".join(job.check(path))
    made = job.counts(job.load(path), tmp_path)
    assert made.values.sum() == 1 and made.domain.mask
    run("release", path)


def test_release_files_hold_no_true_row(tmp_path):
    """Every file of a release is written by a connection that never saw a record: a planted id occurs nowhere."""
    ids = [f"PLANTED-{i:06d}" for i in range(3000)]
    rng = np.random.default_rng(2)
    frame = pa.table({"person": ids, "row": rng.integers(0, 40, 3000), "col": rng.integers(0, 40, 3000)})
    domain = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(40, 40)))
    shifted = frame.set_column(1, "row", pa.array(frame["row"].to_numpy() + 8400)).set_column(
        2, "col", pa.array(frame["col"].to_numpy() + 6080)
    )
    unit = ks.Unit("person", "add-remove", 1)
    counts = ks.count(shifted, domain, columns={"grid": ("row", "col")}, unit=unit)
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    for name in ("x.csv", "x.parquet", "x.gpkg", "x.sqlite", "x.duckdb"):
        out.export(str(tmp_path / name), unmetered=True)
    assert holders(tmp_path, b"PLANTED") == []


def test_exports_are_judged_before_the_data_is_read(tmp_path, monkeypatch):
    path = template(
        tmp_path,
        exports=("exports = []", 'exports = ["r.csv", "r.docx"]'),
        levels=("levels = []", 'levels = ["1km", "250m"]'),
    )
    (tmp_path / "r_1km.csv").write_text("")
    (tmp_path / "census.csv").write_text("mesh_code,population\n533945263,1\n")
    monkeypatch.setattr("kasuri.job.running.counts", lambda *_: pytest.fail("the data was read"))
    with pytest.raises(ks.DomainError) as caught:
        job.run(job.load(path), tmp_path)
    monkeypatch.undo()
    for text in (str(caught.value), "\n".join(job.check(path))):
        assert "r.docx: a file ending in" in text and "r_1km.csv exists" in text and "level 250m is not made" in text
    assert not (tmp_path / "release").exists()


def test_a_window_of_a_job_keeps_its_reference_system(tmp_path):
    path = template(tmp_path, crs=('kind = "mesh"', 'kind = "mesh"\ncrs = "JGD2000"'))
    assert job.domain(job.load(path), tmp_path).axes[0].crs == "JGD2000"


def test_check_finds_bad_weights_and_mixed_ids(tmp_path):
    path = template(
        tmp_path,
        file=('["census.csv"]', '["a.parquet", "b.parquet"]'),
        bound=("max_cells = 1", "max_cells = 1\nmax_weight = 3"),
    )
    for name, ids in (("a", [1, 2, 3]), ("b", ["x", "y", "z"])):
        weights = ["1", "?", "0"]
        table = {"person": ids, "mesh_code": [533945263] * 3, "population": weights}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    text = "\n".join(job.check(path))
    assert "a.parquet: column population: not a whole number of at least 1: rows 2, 3" in text
    assert "ids are whole numbers in one part and text in another" in text
