"""Every fault of SECURITY.md's table: nothing lost, nothing half-written, nothing released without a charge.

What needs forks and limits is a study of its own (benchmarks/faults.py, benchmarks/ledger_faults.py), run here in small
numbers.
"""

import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import files
from kasuri.cli import app
from kasuri.meshcode import encode

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "benchmarks" / "faults.py"
UNIT = ks.Unit("person", "add-remove", 1)


def told(record_property, name, tried, found):
    for key, value in (("section", "faults"), ("name", name), ("tried", tried), ("found", found)):
        record_property(key, value)


@pytest.fixture(scope="module")
def study():
    """In a process of its own: it forks, and a test runner has threads."""
    done = subprocess.run([sys.executable, STUDY, "--quick", "--json"], capture_output=True, text=True, timeout=400)
    assert done.stdout, done.stderr
    return {**json.loads(done.stdout), "said": done.stderr}


STUDIES = {
    "memory": "out of memory while two threads draw, and while the release is saved",
    "full_disk": "a disk with room for a part of each writer's largest file",
    "two_writers": "four processes on one folder, one file, one database",
    "cut_inputs": "inputs cut short: Parquet, CSV, DuckDB, SQLite",
}


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_is_left_half_done(study, name, record_property):
    assert study[name]["violations"] == 0, (study[name], study["said"])
    numbers = ", ".join(f"{key} {value}" for key, value in study[name].items() if key != "violations")
    told(record_property, STUDIES[name], numbers, "0 violations")


def test_the_study_reached_what_it_should(study):
    """A study in which nothing happens proves nothing."""
    assert study["memory"]["saved"] > 0 and study["memory"]["refused"] + study["memory"]["died"] > 0
    assert study["full_disk"]["writers"] == 10 and study["full_disk"]["refused"] >= 15
    assert study["two_writers"]["released"] == 4 and study["two_writers"]["folders"] == 1
    assert study["cut_inputs"]["refused"] > 15 and study["cut_inputs"]["csv read in part"] > 0


# -- a place nobody can write to ---------------------------------------------------------------------------------------


@contextmanager
def read_only(folder: Path):
    """A folder that refuses everything: a small disk mounted read-only where we are root, else one without the right to
    write."""
    folder.mkdir()
    if os.geteuid() == 0:
        words = ["mount", "-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here, and nothing else stops root")
    else:
        folder.chmod(0o555)
    try:
        yield folder
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(folder)], check=True)


JOB = """
[data]
name = "doors"
files = ["table.csv"]
columns = { grid = "code" }
weight = "n"
[[axes]]
kind = "mesh"
name = "grid"
level = "500m"
origin = [8400, 6080]
shape = [8, 8]
[unit]
id = "person"
change = "add-remove"
max_cells = 1
[budget]
epsilon = "1"
ledger = "doors.ledger"
[output]
"""


@pytest.mark.parametrize("output", ['folder = "ro/out"', 'folder = "out"\nexports = ["ro/r.gpkg"]'])
def test_a_read_only_folder_costs_nothing(tmp_path, output, record_property):
    """Found before the ledger is charged: the budget is whole, nothing was drawn, nothing is there."""
    (tmp_path / "table.csv").write_text(f"code,n\n{int(encode([8400], [6080], '500m')[0])},5\n")
    (tmp_path / "job.toml").write_text(JOB + output)
    ledger = ks.Ledger.open(tmp_path / "doors.ledger", epsilon="1", unit=UNIT, data="doors")
    with read_only(tmp_path / "ro"):
        done = CliRunner().invoke(app, ["release", str(tmp_path / "job.toml")])
        assert done.exit_code == 1 and isinstance(done.exception, ks.DomainError), done.output
        assert list((tmp_path / "ro").iterdir()) == [] and not (tmp_path / "out").exists()
        with pytest.raises(ks.DomainError, match="not written"):
            files.write(tmp_path / "ro" / "file", "text")
    assert ledger.balance().spent == 0 and len(ledger.entries()) == 1
    assert CliRunner().invoke(app, ["release", str(tmp_path / "job.toml")]).exit_code == 0
    told(
        record_property,
        "a read-only place for the folder" if "ro/out" in output else "a read-only place for an export",
        "release of a job",
        "refused before the charge",
    )


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_never_takes_the_place_of_another(tmp_path, monkeypatch, links):
    """Also on a file system without links (a stick with keys on it)."""

    def refuse(*words):
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    files.write(tmp_path / "new", "text", new=True, private=True)
    assert (tmp_path / "new").read_text() == "text" and (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ks.DomainError, match="not written"):
        files.write(tmp_path / "new", "other", new=True)
    assert [path.name for path in tmp_path.iterdir()] == ["new"] and (tmp_path / "new").read_text() == "text"
    (tmp_path / "link").symlink_to(tmp_path / "new")
    files.write(tmp_path / "link", "through")
    assert (tmp_path / "new").read_text() == "through" and (tmp_path / "link").is_symlink()
    with pytest.raises(ks.DomainError, match="not a plain file"):
        files.write("/dev/null", "text")


# -- compiled kernels --------------------------------------------------------------------------------------------------

TINY = "from kasuri._kernels.cached import njit\n\n\n@njit()\ndef twice(x):\n    return 2 * x\n"


def tiny(folder: Path):
    """A kernel of its own with its own cache."""
    path = folder / "tiny.py"
    path.write_text(TINY)
    spec = spec_from_file_location("tiny", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.twice(np.int64(21)) == 42
    return module.twice


def test_a_damaged_kernel_cache_is_not_believed(tmp_path, record_property):
    """Every flipped byte and every cut of the two files of a kernel is taken as no file at all."""
    files = tiny(tmp_path)._cache._cache_file
    ((key, name),) = files._load_index().items()
    assert files.load(key) is not None
    rng, tried = random.Random(1), 0
    for path in (Path(files._index_path), Path(files._data_path(name))):
        whole = path.read_bytes()
        for at in [0, 1, 31, 32, 33, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(60))]:
            for damaged in (bytes([*whole[:at], whole[at] ^ 1 << rng.randrange(8), *whole[at + 1 :]]), whole[:at]):
                path.write_bytes(damaged)
                assert files.load(key) is None
                tried += 1
        path.write_bytes(whole)
    assert files.load(key) is not None
    other = Path(files._data_path(name)).with_name("other.nbc")
    shutil.copy(files._data_path(name), other)  # a whole file of another kernel
    files._save_index({key: other.name})
    assert files.load(key) is None
    told(
        record_property,
        "kernel cache: flipped bytes, cuts, files exchanged",
        f"{tried + 1} damaged files",
        "none believed",
    )


def test_a_release_on_damaged_kernels_is_the_same(tmp_path, record_property):
    """The noise sampler's compiled code is damaged in the middle: it is compiled again, to the same numbers."""
    own = ROOT / "src" / "kasuri" / "_kernels"
    cache = tmp_path / f"_kernels_{hashlib.sha1(str(own).encode()).hexdigest()}"
    shutil.copytree(own / "__pycache__", cache, ignore=shutil.ignore_patterns("*.pyc"))
    damaged = sorted(cache.glob("noise.*.nbc"))
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
        path.write_bytes(data)
    ask = (
        "import kasuri as ks, numpy as np\n"
        "counts = ks.Counts.from_dense(np.arange(64).reshape(8, 8), ks.Domain.of(ks.Mesh('g', shape=(8, 8))), "
        "ks.Unit('person', 'add-remove', 1))\n"
        "print(ks.release(counts, ks.geometric(), epsilon='0.1', ledger=None, source=ks.seeded(1)).to_dense().tolist())"
    )
    said = []
    for folder in (None, tmp_path):
        environment = {**os.environ, **({} if folder is None else {"NUMBA_CACHE_DIR": str(folder)})}
        done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1] and damaged
    told(record_property, "kernel cache: the sampler's machine code damaged", f"{len(damaged)} files, one release",
         "compiled again, the same numbers")  # fmt: skip


def test_kernels_work_where_nothing_can_be_cached(tmp_path, monkeypatch):
    """No folder to write to (a read-only installation without a home), and a disk that is full."""
    from kasuri._kernels import cached

    def full(self, path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached._Files, "_write", full)
    tiny(tmp_path)
    assert list(tmp_path.rglob("*.nbi")) == []
    monkeypatch.setattr(cached._Impl, "_locator_classes", [cached._Nowhere])
    tiny(tmp_path)

    class Nowhere:
        def __init__(self, function):
            raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(cached, "_Cache", Nowhere)
    tiny(tmp_path)


def test_kernel_modules_take_nothing_from_each_other():
    """A cached kernel is judged by the digest of its own source file: it must not hold another file's code."""
    for path in (ROOT / "src" / "kasuri" / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kasuri"):
                assert node.module == "kasuri._kernels.cached", path


# -- the table ---------------------------------------------------------------------------------------------------------

FAULTS = ("kill -9", "full disk", "read-only", "out of memory", "compiled kernels", "two processes", "cut short",
          "rolled back")  # fmt: skip


def test_every_test_of_the_table_exists():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition("## Faults\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line][1:]
    for fault in FAULTS:
        assert any(fault in row.split("|")[1] for row in rows), fault
    for row in rows:
        names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[3])
        assert names, row
        for file, name in names:
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
