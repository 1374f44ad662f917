"""Kills, rivals, full disks, cut and flipped files, in small numbers; the full ones: benchmarks/ledger_faults.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "benchmarks" / "ledger_faults.py"


@pytest.fixture(scope="module")
def study():
    """In a process of its own: it forks, and a test runner has threads."""
    done = subprocess.run([sys.executable, STUDY, "--quick", "--json"], capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["kills", "crash_points", "rivals", "full_disk", "tmpfs", "cuts", "flips"])
def test_nothing_is_overspent_or_lost(study, name, record_property):
    if study[name] is None:
        pytest.skip("mounting a tmpfs is not allowed here")
    assert study[name]["violations"] == 0, study[name]
    numbers = ", ".join(f"{key} {value}" for key, value in study[name].items() if key != "violations")
    for key, value in (("name", f"ledger: {name.replace('_', ' ')}"), ("tried", numbers), ("found", "0 violations")):
        record_property(key, value)
    record_property("section", "faults")


def test_the_study_reached_what_it_should(study):
    """A study in which nothing happens proves nothing."""
    assert study["kills"]["draws"] > 0 and study["kills"]["folders"] > 0
    assert study["crash_points"]["points"] > 40 and study["crash_points"]["repairs"] > 0
    assert study["rivals"]["draws"] == 40
    assert study["full_disk"]["refused"] > 0 and study["full_disk"]["paid"] > 0
    assert study["cuts"]["noticed"] > 0
    assert study["flips"]["noticed"] > study["flips"]["harmless"] > 0


FAULTS = {
    "a key is made before the charge": (
        "draw.py",
        ("    receipt = None\n", "    receipt, _ = None, source.release_key()\n"),
    ),
    "no lock between processes": (  # neither ours nor SQLite's: each of the two would do
        "budget/ledger/files.py",
        ("fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
        ('"BEGIN IMMEDIATE"', '"BEGIN"'),
    ),
    "nothing goes to the journal": (
        "budget/ledger/files.py",
        ("written += os.write(handle, data[written:])", "written += len(data)"),
    ),
    "a ledger behind its journal is believed": (
        "budget/ledger/book.py",
        ("if torn or len(rows) != len(lines)", "if torn"),
    ),
    "saved and not committed": (
        "store/folder.py",
        ("if release.receipt is not None:", "if release.receipt is None:"),
    ),
}
"""Name -> (module, (text, its replacement), ...)."""


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault, tmp_path):
    """Each fault is planted in a copy of the package; the study must then report it, or break down."""
    import os
    import shutil

    name, *changes = FAULTS[fault]
    shutil.copytree(ROOT / "src" / "kasuri", tmp_path / "kasuri")
    path = tmp_path / "kasuri" / name
    source = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    path.write_text(source, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, STUDY, "--quick", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode != 0
