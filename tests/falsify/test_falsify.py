"""The falsifier in short: its bound is right and has power, no claim is without a row, ours stay below their epsilon,
and broken twins do not. Seeds are fixed; `python3 run.py falsify` is the long version."""

import json
import math
import re
from pathlib import Path

import assurance
import numpy as np
import pytest
from assurance import PAGE, STORE, render
from falsify import audit, keep_twins, main, planned, registry
from lower_bound import attack, limits
from scipy import stats
from twins import FACTORS, NEARER, TWINS, tried

from kasuri.local import categorical, numeric
from kasuri.recipes import RECIPES
from kasuri.shuffle import columns as shuffle_columns

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"

# -- the bound itself --------------------------------------------------------------------------------------------------


def test_limits_are_those_of_clopper_and_pearson():
    for hits, runs in ((0, 30), (1, 30), (17, 40), (400, 400)):
        low, high = limits(np.array([hits]), runs, 0.01)
        both = stats.binomtest(hits, runs).proportion_ci(0.98, method="exact")
        assert low[0] == pytest.approx(both.low, abs=1e-12) and high[0] == pytest.approx(both.high, abs=1e-12)


def noise(rng: np.random.Generator, scale: float, runs: int) -> np.ndarray:
    p = 1 - math.exp(-1 / scale)
    return (rng.geometric(p, runs) - rng.geometric(p, runs)).astype(float)


def pair(rng: np.random.Generator, scale: float, runs: int, levels: int = 2):
    sides = []
    for side in (0, 1):
        columns = {f"level {i}": noise(rng, scale, runs) + side for i in range(levels)}
        sides.append(columns | {f"other {i}": noise(rng, scale, runs) for i in range(4)})
    return sides


def test_a_true_claim_is_exceeded_as_seldom_as_stated():
    """At a level of 10 % about one bound in ten may be wrong; many wrong ones would mean a bound that cheats."""
    rng = np.random.default_rng(1)
    wrong = sum(attack(*pair(rng, 1.0, 400), 0.0, 0.1).epsilon > 2.0 for _ in range(60))
    assert wrong <= 12  # at most 6 expected; 13 or more has a chance of 0.6 % then


def test_the_bound_has_power_and_sees_what_two_numbers_share():
    rng = np.random.default_rng(2)
    true, broken = (attack(*pair(rng, scale, 20_000), 0.0, 1e-5).epsilon for scale in (1.0, 0.8))
    assert 1.7 < true < 2.0 < broken
    shared = [noise(rng, 1.0, 400) for _ in range(2)]
    sides = [{"sum": word + side, "difference": word - side} for side, word in enumerate(shared)]
    assert attack(*sides, 0.0, 1e-5).epsilon > 2.0  # each number alone is 1-DP; their difference tells all


def test_delta_is_subtracted():
    """An output that only one side has, with probability 5 %: no epsilon explains it without delta."""
    rng = np.random.default_rng(3)
    sides = [{"bit": (rng.random(4000) < 0.05 * side).astype(float)} for side in (0, 1)]
    assert attack(*sides, 0.0, 1e-3).epsilon > 1.5 and attack(*sides, 0.06, 1e-3).epsilon == 0.0


# -- no claim without a row --------------------------------------------------------------------------------------------

MAKES_CLAIMS = {
    "budget/accounting.py": "ledger",  # compose and parallel change the epsilon of claims
    "kanon/pk.py": "kanon.pk_anonymize",
    "kanon/sample.py": "kanon.sample_then_anonymize",
    "local/longitudinal.py": "local.memoised",
    "local/randomizer.py": "local.grr",
    "store/saved.py": None,  # reads a claim back
    "privacy.py": None,  # the class itself
    "recipes/mechanism.py": "geometric",
    "shuffle/plan.py": "shuffle.join",
    "shuffle/rounds.py": "shuffle.rounds",  # and enumerated exactly: tests/laws/test_shuffle_rounds.py
}
"""Every file that makes a Guarantee, and one claim that comes from it."""


def test_everything_that_prints_an_epsilon_is_registered():
    covered = {claim.covers for claim in registry().values()}
    assert set(RECIPES) <= covered
    assert {f"local.{kind}" for kind in (*categorical.MAKERS, *numeric.MAKERS, "memoised")} <= covered
    assert {"shuffle.join", "shuffle.Party", "shuffle.covariance", "shuffle.synthesize", "ledger", "count",
            "kanon.sample_then_anonymize", "kanon.choose_cut", "kanon.pk_anonymize",
            "shuffle.pk"} <= covered  # fmt: skip
    joins = " ".join(name for name in registry() if name.startswith("joined rows"))
    assert all(kind in joins for kind in (*shuffle_columns.NUMBERS, *shuffle_columns.CATEGORIES))
    made = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bGuarantee\(|replace\(\s*first,", path.read_text(encoding="utf-8"))
    }
    assert made <= set(MAKES_CLAIMS), "a new file makes claims: register one of them"
    assert {name for name in MAKES_CLAIMS.values() if name} <= covered


def test_the_page_is_what_the_runs_wrote_and_has_every_row():
    assert PAGE.read_text(encoding="utf-8") == render()
    kept = json.loads(STORE.read_text(encoding="utf-8"))
    columns, rows = kept["claims"]["columns"], kept["claims"]["rows"]
    found = {row[0].strip("`"): dict(zip(columns, row, strict=True)) for row in rows}
    assert set(found) == set(registry())
    strong = {f"scale x{float(factor):g}" for factor in (FACTORS[0], NEARER)}
    for row in found.values():
        assert float(row["lower bound"]) <= float(row["epsilon"]) and int(row["pairs"]) >= 1
    powerful = {row["of"] for row in found.values() if row["mildest fault found"].split(" in ")[0] in strong}
    assert {"geometric", "haar_topdown", "refined_tree", "bayes_tree", "simplex"} <= powerful
    twins = {(row[0], row[1].strip("`")): row[-1] for row in kept["twins"]["rows"]}
    assert twins == {(twin.fault.name, twin.attack.claim): "yes" for twin in TWINS}


# -- ours and the twins ------------------------------------------------------------------------------------------------

GROUPS = 4


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_bound_exceeds_a_claim(group):
    names = list(registry())[group::GROUPS]
    bounds = audit(planned(names, 6.0, 0, 5, fewest=4), more=names)
    assert {bound.claim for bound in bounds} == set(names)
    assert not [bound for bound in bounds if bound.broken]
    assert max(bound.found for bound in bounds) > 0.3  # and it does see something


@pytest.mark.parametrize(
    "twin",
    [pytest.param(twin, marks=() if twin.attack.short else pytest.mark.full) for twin in TWINS],
    ids=lambda twin: f"{twin.fault.name}, {twin.attack.claim}",
)
def test_broken_twin_is_caught(twin):
    caught = tried(twin, 11)
    assert caught.caught, caught


def test_rows_of_some_twins_take_the_place_of_their_older_ones(tmp_path, monkeypatch):
    for name in ("STORE", "PAGE"):
        monkeypatch.setattr(assurance, name, tmp_path / name)
    whole = [[twin.fault.name, f"`{twin.attack.claim}`", "1", "2", "yes"] for twin in TWINS]
    keep_twins(whole[1:], None)
    for found in ("NO", "yes"):
        keep_twins([[*row[:4], found] for row in whole[:2]], None, "haar")
    kept = assurance.kept("twins")
    assert kept["rows"] == whole and kept["command"] == "python3 run.py falsify --record"
    assert kept["text"].startswith(f"{len(TWINS)} of {len(TWINS)} copies") and kept["text"].count("--only 'haar'") == 1


def test_the_command_shows_a_table_and_says_what_it_found(capsys):
    assert main(["--only", "local.two_point", "--seed", "3", "--workers", "1", "--hours", "0.0002"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("claim") and "`local.two_point`" in out and "any: enumerated" in out
    assert "seed 3" in err and "0 above a claim" in err
