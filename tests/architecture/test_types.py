"""The front door is typed: what a user's editor and mypy say of ten lines, and of the same lines misspelt."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_the_front_door_is_typed(tmp_path):
    """One run of mypy over all of them: a module for each."""
    assert (SOURCE / "kasuri" / "py.typed").exists()  # without it a type checker reads nothing of an installed kasuri
    texts = {"right": USER}
    for what, (right, wrong) in WRONG.items():
        assert USER.count(right) == 1, what
        texts[what.replace(" ", "_")] = USER.replace(right, wrong)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    apart = ["--cache-dir", str(tmp_path / "cache"), "--config-file", "", "--follow-imports=silent"]
    environment = dict(os.environ, MYPYPATH=str(SOURCE))
    command = [sys.executable, "-m", "mypy", "--strict", *apart, *(f"{name}.py" for name in texts)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = {line.partition(".py:")[0] for line in run.stdout.splitlines() if ": error: " in line}
    assert found == texts.keys() - {"right"}, run.stdout + run.stderr
