"""The outlook: every recipe on a public model of the table, in percent; nothing of it depends on data."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri.cli import app
from kasuri.recipes import RECIPES
from kasuri.study import outlook

UNIT = ks.Unit("person", "add-remove", 1)
TABLES = {
    "mesh": ks.Domain.of(ks.Mesh("grid", level="1km", origin=(4320, 3040), shape=(32, 32))),
    "fine": ks.Domain.of(ks.Mesh("grid", level="125m", origin=(0, 0), shape=(64, 32))),
    "cube": ks.Domain.of(ks.Mesh("grid", level="10km", origin=(400, 300), shape=(8, 8)), ks.Nominal("sex", ("f", "m"))),
    "flat": ks.Domain.of(ks.Nominal("ward", tuple("abcdefghij")), ks.Ordered("age", 5)),
    "long": ks.Domain.of(ks.Ordered("income", 5000), ks.Ordered("age", 100)),
    "vast": ks.Domain.of(ks.Mesh.window("grid", "japan"), ks.Ordered("age", 100), ks.Time("t", "2020-01-01", 3600, 24)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_model_is_like_the_table_and_small(name):
    table = TABLES[name]
    public, again = outlook.model(table, UNIT), outlook.model(table, UNIT)
    small = public.counts.domain
    assert small.size <= 2 * outlook.CELLS and [axis.name for axis in small.axes] == [axis.name for axis in table.axes]
    assert np.array_equal(public.counts.values, again.counts.values), "the same table has the same model"
    assert public.whole == (small.shape == table.shape) and ("larger" in public.words) != public.whole
    assert public.counts.values.sum() > 1000


def test_every_recipe_is_tried_or_says_why_not():
    found = outlook.outlook(outlook.everything(TABLES["cube"]), TABLES["cube"], UNIT, ["1"], trials=1)
    assert {row["recipe"] for row in found.rows} | set(found.refused) == set(RECIPES)
    told = found.to_json()
    assert json.dumps(told) and told["recommended"]["recipe"] in RECIPES
    assert "laplace" in found.lesser and "laplace" not in told["recommended"]["scores"], "floating-point noise"
    assert found.table().splitlines()[-1].startswith("Recommended: ")


def test_plain_noise_has_the_error_it_must_have():
    """Geometric noise of scale 1/epsilon: the usual error of an empty square of n cells is sqrt(2 n) / epsilon, and
    squares of each side count alike."""
    table = TABLES["mesh"]
    found = outlook.outlook({"geometric": ks.geometric()}, table, UNIT, ["0.5"], people=[5000], trials=8)
    public = outlook.model(table, UNIT)
    truth = np.zeros(table.size, dtype=np.int64)
    truth[public.counts.cells] = public.counts.values
    variance = 2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2
    sides = []
    for side, own in zip((1, 2, 4, 8, 16, 32), outlook.sums(table, truth.reshape(table.shape)), strict=True):
        if ((own >= 5000 / 1.5) & (own <= 7500)).sum() >= 4:
            sides.append(side**2 * variance)
    assert len(sides) >= 2
    (row,) = found.rows
    assert 0.8 < row["off"] / np.sqrt(np.mean(sides)) < 1.2 and row["percent"] == row["off"] / 5000


def test_the_command_ends_with_a_recommendation():
    words = ["plan", "--axis", "ward=nominal(a,b,c)", "--axis", "age=ordered(60)", "--unit", "person", "--change",
             "add-remove", "--max-cells", "1", "--epsilons", "0.5", "--recipes", "haar_topdown",
             "--people"]  # fmt: skip
    result = CliRunner().invoke(app, [*words, "50000,100000"])
    assert result.exit_code == 0 and "Recommended: " in result.output.strip().splitlines()[-1]
    told = json.loads(CliRunner().invoke(app, [*words, "50000", "--json"]).stdout)
    assert {row["recipe"] for row in told["outlook"]["rows"]} == {"best", "geometric", "haar_topdown"}
    every = json.loads(CliRunner().invoke(app, [*words[:-3], "--people", "50000", "--json"]).stdout)["outlook"]
    known = {row["recipe"] for row in every["rows"]} | set(every["refused"])
    assert known | set(every["not_tried"]) == set(RECIPES) and every["not_tried"] == ["matrix"]
    assert CliRunner().invoke(app, [*words, "many"]).exit_code == 2
