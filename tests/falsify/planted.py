"""The harness of planted faults: a copy of the package with one line changed, and the test that must then fail."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fault:
    """One changed line of the shipped code and the test (file::name) that catches it."""

    name: str
    file: str
    line: str
    changed: str
    caught_by: str


def plant(fault: Fault, target: Path) -> None:
    """A copy of the package with one line changed; unchanged files are links, so compiled kernels are found again."""
    source, package = ROOT / "src" / "kasuri", target / "kasuri"
    inner = Path(fault.file).parent
    for origin, place in {source: package, source / inner: package / inner}.items():
        place.mkdir(exist_ok=True)
        for path in origin.iterdir():
            if path.name not in ("__pycache__", inner.name) and path != source / fault.file:
                (place / path.name).symlink_to(path)
    if (source / inner / "__pycache__").exists() and inner.name == "_kernels":
        stale = shutil.ignore_patterns(f"{Path(fault.file).stem}*")
        shutil.copytree(source / inner / "__pycache__", package / inner / "__pycache__", ignore=stale)
    text = (source / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.line) == 1, "the line to change must be there exactly once"
    (package / fault.file).write_text(text.replace(fault.line, fault.changed), encoding="utf-8")


def assert_caught(fault: Fault, folder: Path) -> None:
    """Plant the fault in `folder` and run its test there: it fails, and not for want of the package."""
    file, _, name = fault.caught_by.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), "no such test"
    plant(fault, folder)
    environment = dict(os.environ, PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
    where = [sys.executable, "-c", "import kasuri; print(kasuri.__file__)"]
    assert str(folder) in subprocess.run(where, env=environment, capture_output=True, text=True, cwd=ROOT).stdout
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", fault.caught_by],
        env=environment, capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    if " skipped" in run.stdout and run.returncode == 0:
        pytest.skip("the test that catches it needs a program that is not installed")
    # not 1 alone: the value's own checks may refuse the fault while the test's file is read
    assert run.returncode != 0, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    signs = ("AssertionError", "PrivacyError", "ProtocolError", "FormatError", "DID NOT RAISE")
    assert any(sign in run.stdout for sign in signs), run.stdout[-3000:]
