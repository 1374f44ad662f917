"""The front door is typed: what a user's editor and mypy say of ten lines, and of the same lines misspelt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

USER = """
from decimal import Decimal
from fractions import Fraction

import kasuri as ks

domain = ks.Domain.of(ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(4, 4)))
unit = ks.Unit(id="person", change="add-remove", max_cells=1)
counts = ks.Counts.from_coo([1, 2], [3, 4], domain, unit, data="census-2020")
recipe: ks.Mechanism = ks.haar_topdown(order="morton")
out: ks.Release = ks.release(counts, recipe, epsilon="0.1", ledger=None)
total: int | float = out.total()
expected = ks.plan([recipe, ks.recipes.simplex()], domain, unit, epsilons=["0.1"]).table("rmse")
downtown = ks.Area(rows=slice(0, 2), cols=slice(0, 2))
inside: int | float = out.area(downtown)
upper: float = out.interval(downtown, level=0.9).upper
errors = ks.compare(counts, [recipe], epsilons=["0.1", Fraction(1, 3)], areas=[1, downtown]).table()
ledger = ks.Ledger.open("census.ledger", epsilon=Decimal("1.5"), unit=unit, data="census-2020")
whole: bool = ks.verify("release/").ok
faults: tuple[str, ...] = ks.verify("release/").faults
told: bool = ks.verify("release/")["ok"]
private = ks.local.unary(ks.Nominal("ward", labels=("a", "b")), epsilon="0.5")
"""
WRONG = {
    "a misspelt name": ("ks.haar_topdown(", "ks.haar_topdwn("),
    "a misspelt argument": ('order="morton"', 'ordr="morton"'),
    "a word that is not one": ('change="add-remove"', 'change="add"'),
    "a recipe where counts belong": ("ks.release(counts,", "ks.release(recipe,"),
    "an epsilon that is not exact": ('epsilon="0.1"', "epsilon=0.1"),
    "an epsilon of a list that is not exact": ('epsilons=["0.1", ', "epsilons=[0.1, "),
    "a budget that is not exact": ('epsilon=Decimal("1.5")', "epsilon=1.5"),
    "a local epsilon that is not exact": ('epsilon="0.5"', "epsilon=0.5"),
    "a size where an area belongs": ("out.area(downtown)", "out.area(4)"),
    "a misspelt field of a verdict": (").ok\n", ").okay\n"),
    "a name of a sibling package": ("ks.local.unary(", "ks.local.unray("),
}


def judged(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "user.py").write_text(text, encoding="utf-8")
    apart = ["--cache-dir", str(folder / "cache"), "--config-file", "", "--follow-imports=silent"]
    environment = dict(os.environ, MYPYPATH=str(SOURCE))
    command = [sys.executable, "-m", "mypy", "--strict", *apart, "user.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("types")


def test_the_front_door_is_typed(folder):
    assert (SOURCE / "kasuri" / "py.typed").exists()  # without it a type checker reads nothing of an installed kasuri
    found = judged(folder, USER)
    assert found.returncode == 0, found.stdout
    for what, (right, wrong) in WRONG.items():
        assert USER.count(right) == 1, what
        found = judged(folder, USER.replace(right, wrong))
        assert found.returncode == 1 and "user.py:" in found.stdout, f"{what}: {found.stdout}"
