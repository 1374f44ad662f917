"""compare, evaluate and plan: metrics by hand, confidential marks, nothing charged, nothing to publish."""

import json

import numpy as np
import pytest
from test_cli import UNIT

import kasuri as ks
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Unit
from kasuri.study import evaluate
from kasuri.study.plan import block_errors, plan

PERSON = Unit("person", "add-remove", 1)
DOMAIN = Domain.of(Mesh("grid", shape=(16, 16)))


def table(mean=3.0):
    rng = np.random.default_rng(1)
    truth = rng.poisson(mean, DOMAIN.shape) * rng.integers(0, 200, DOMAIN.shape) * (rng.random(DOMAIN.shape) < 0.4)
    return ks.Counts.from_dense(truth, DOMAIN, PERSON, data="c-2020"), truth


def test_metrics_are_what_they_say():
    counts, truth = table()
    found = ks.compare(counts, [ks.geometric()], epsilons=["0.5"], areas=[1, 16], trials=3, seed=7,
                       regions=[np.arange(30), truth > 50])  # fmt: skip
    outs = [ks.release(counts, ks.geometric(), epsilon="0.5", ledger=None, source=ks.seeded(7 + i)).to_dense()
            for i in range(3)]  # fmt: skip
    one, blocks, regions = found.rows
    error = np.array([out - truth for out in outs])
    assert one["mae"] == pytest.approx(np.abs(error).mean()) and one["bias"] == pytest.approx(error.mean())
    assert one["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    released = np.array(outs)
    there = np.broadcast_to(truth > 0, released.shape)
    assert one["false_zero"] == pytest.approx((released[there] <= 0).mean())
    assert one["false_non_zero"] == pytest.approx((released[~there] != 0).mean())
    off = np.abs(error[there]) / np.broadcast_to(truth, released.shape)[there]
    assert one["within_5"] == pytest.approx((off <= 0.05).mean())
    assert one["within_10"] == pytest.approx((off <= 0.1).mean())
    own = np.broadcast_to((truth >= 10) & (truth <= 99), released.shape)
    assert one["classes"]["10-99"]["rmse"] == pytest.approx(np.sqrt((error[own] ** 2).mean()))
    assert sum(part["areas"] for part in one["classes"].values()) == one["areas"] == 256
    sums = error.reshape(3, 4, 4, 4, 4).sum(axis=(2, 4))
    assert blocks["cells"] == 16 and blocks["rmse"] == pytest.approx(np.sqrt((sums**2).mean()))
    wanted = [np.abs(e.ravel()[:30].sum()) + np.abs(e[truth > 50].sum()) for e in error]
    assert regions["cells"] == "regions" and regions["mae"] == pytest.approx(np.mean(wanted) / 2)


def test_results_are_marked_confidential_and_repeatable(tmp_path):
    counts, _ = table()
    recipes = [ks.geometric(), ks.refined_tree(), ks.refined_tree("u4")]
    found = ks.compare(counts, recipes, epsilons=["0.1", "1"], areas=[1, 4], trials=2)
    assert found == ks.compare(counts, recipes, epsilons=["0.1", "1"], areas=[1, 4], trials=2)
    assert "CONFIDENTIAL" in repr(found) and found.table("mae").startswith("CONFIDENTIAL")
    assert found.to_json()["confidential"] is True
    json.dumps(found.to_json())
    assert len(found.rows) == 3 * 2 * 2 and "refined_tree(morton, u4)" in found.table()
    assert not [name for name in vars(found) if isinstance(getattr(found, name), ks.Release)]
    with pytest.raises(ks.DomainError, match="metric"):
        found.table("accuracy")


def test_one_release_against_its_counts():
    counts, truth = table()
    out = ks.release(counts, ks.refined_tree(), epsilon="0.5", ledger=None)
    found = evaluate.evaluate(counts, out, areas=[1])
    assert found.rows[0]["bias"] == pytest.approx((out.to_dense() - truth).mean()) and "CONFIDENTIAL" in repr(found)
    other = ks.Counts.from_dense(np.ones((4, 4)), Domain.of(Mesh("grid", shape=(4, 4))), PERSON)
    with pytest.raises(ks.DomainError, match="another domain"):
        evaluate.evaluate(other, out)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"areas": [3]}, "no square"),
        ({"areas": [0]}, "not a number of cells"),
        ({"areas": [10**6]}, "not a number of cells"),
        ({"areas": []}, "at least one"),
        ({"recipes": []}, "recipes is a list"),
        ({"epsilons": []}, "epsilons is a list"),
        ({"trials": 0}, "trials"),
    ],
)
def test_bad_comparisons_are_refused(change, fault):
    counts, _ = table()
    given = {"recipes": [ks.geometric()], "epsilons": ["0.1"], "areas": [1], "trials": 1} | change
    recipes = given.pop("recipes")
    with pytest.raises(ks.DomainError, match=fault):
        ks.compare(counts, recipes, **given)


def test_float_epsilons_and_tables_are_refused():
    counts, truth = table()
    with pytest.raises(ks.PrivacyError):
        ks.compare(counts, [ks.geometric()], epsilons=[0.1])
    with pytest.raises(ks.PrivacyError, match="Counts"):
        ks.compare(truth, [ks.geometric()], epsilons=["0.1"])


def test_areas_of_other_axes():
    domain = Domain.of(Mesh("grid", shape=(4, 6)), Nominal("sex", ("f", "m")))
    truth = np.arange(48).reshape(domain.shape)
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    (row,) = ks.compare(counts, [ks.geometric()], epsilons=["1"], areas=[4], trials=1).rows
    assert row["areas"] == 2 * 3 * 2  # squares of the mesh, for each sex
    ages = Domain.of(Ordered("age", 12))
    counts = ks.Counts.from_dense(np.arange(12), ages, PERSON)
    (row,) = ks.compare(counts, [ks.geometric()], epsilons=["1"], areas=[5], trials=1).rows
    assert row["areas"] == 3


@pytest.mark.parametrize("recipe", [ks.geometric(), ks.privelet(), ks.privelet("2d"), ks.refined_tree(),
                                    ks.refined_tree("u4"), ks.refined_tree({0: "0.5", 3: "0.5"}),
                                    ks.recipes.hierarchy("morton")],
                         ids=lambda recipe: f"{recipe.name}-{recipe.parts()['shares']}")  # fmt: skip
def test_planned_errors_are_met(recipe):
    """On a table so full that refinement does nothing, closed forms are what is measured."""
    full = ks.Counts.from_dense(np.full(DOMAIN.shape, 10**5), DOMAIN, PERSON)
    rows = {row["cells"]: row for row in plan([recipe], DOMAIN, PERSON, epsilons=["1"], areas=[1, 4, 16]).rows}
    for row in ks.compare(full, [recipe], epsilons=["1"], areas=[1, 4, 16], trials=60).rows:
        expected = rows[row["cells"]]
        assert expected["rmse"] == pytest.approx(row["rmse"], rel=0.08), row["cells"]
        assert expected["mae"] == pytest.approx(row["mae"], rel=0.15), row["cells"]  # a normal law: 13 % off at most
    assert {error.cells for error in block_errors(recipe, DOMAIN, PERSON, "1")} >= {1, 4, 16, 64, 256}


def test_recipes_that_shape_their_cells_have_no_closed_form():
    """Their noise is not that of geometric: nothing is said, or what was simulated; never the cells' own noise."""
    _, truth = table()
    shaped = [ks.simplex(), ks.neg_l2_simplex("0.9"), ks.nonneg_lasso("2"), ks.lasso("2"), ks.recipes.sparse()]
    others = [ks.recipes.matrix(workload="cells"), ks.recipes.fourier()]
    asked = {"epsilons": ["1"], "areas": [1, 16]}
    assert {row["basis"] for row in plan([*shaped, *others], DOMAIN, PERSON, **asked).rows} == {
        "no closed form: declare a public map"}  # fmt: skip
    told = plan(shaped, DOMAIN, PERSON, **asked, public_map=truth, public_name="older", trials=2)
    counts = ks.Counts.from_dense(truth, DOMAIN, PERSON)
    measured = ks.compare(counts, shaped, **asked, trials=2).rows
    assert [row["rmse"] for row in told.rows] == [row["rmse"] for row in measured]
    assert {row["basis"] for row in told.rows} == {"simulated on the public map older"}
    for recipe, words in ((shaped[0], "depends on the table"), (others[0], "cell to cell")):
        with pytest.raises(ks.DomainError, match=words):
            block_errors(recipe, DOMAIN, PERSON, "1")
    with pytest.raises(ks.DomainError, match="node to node"):
        block_errors(ks.recipes.hierarchy(), Domain.of(Ordered("x", 5)), PERSON, "1")


def test_a_plan_needs_no_data_and_simulates_on_public_maps_only():
    counts, truth = table()
    recipes = [ks.geometric(), ks.haar_topdown(), ks.haar_topdown(transform="nominal")]
    made = plan(recipes, DOMAIN, PERSON, epsilons=["0.1", "1"], budget="1")
    assert {row["basis"] for row in made.rows} == {
        "closed form", "closed form, before refinement", "no closed form: declare a public map"}  # fmt: skip
    assert [(row["epsilon"], row["releases"]) for row in made.budget] == [("0.1", 10), ("1", 1)]
    assert "10 such releases" in made.table("half_width")
    json.dumps(made.to_json())
    told = plan(recipes, DOMAIN, PERSON, epsilons=["1"], areas=[1], public_map=truth, public_name="older", trials=2)
    assert [row["basis"] for row in told.rows] == ["closed form", *["simulated on the public map older"] * 2]
    with pytest.raises(ks.PrivacyError, match="never Counts"):
        plan(recipes, DOMAIN, PERSON, epsilons=["1"], public_map=counts, public_name="no")
    with pytest.raises(ks.PrivacyError, match="by name"):
        plan(recipes, DOMAIN, PERSON, epsilons=["1"], public_map=truth)
    with pytest.raises(ks.DomainError, match="metric"):
        made.table("bias")


def test_plan_and_compare_on_the_command_line(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from kasuri.cli import app

    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.stdout

    where = ("--origin", "8480,6240", "--shape", "16,16", *UNIT, "--epsilons", "0.1,1")
    formulas = ("plan", *where, "--no-simulate")  # what is simulated is in test_outlook.py
    told = json.loads(run(*formulas, "--budget", "2", "--figure", "plan.svg", "--json"))
    assert {row["recipe"] for row in told["rows"]} == {"geometric", "haar_topdown", "refined_tree"}
    assert (tmp_path / "plan.svg").read_text().lstrip().startswith("<?xml")
    np.save(tmp_path / "map.npy", np.full((16, 16), 9))
    simulated = ("--public-map", "map.npy", "--public-name", "older", "--trials", "2", "--areas", "1,4")
    assert "public map older" in run(*formulas, *simulated)
    (tmp_path / "t.csv").write_text("row,col,n\n8480,6240,5\n8485,6241,700\n")
    given = ("compare", "t.csv", *where, "--row", "row", "--col", "col", "--count", "n", "--trials", "2")
    shown = run(*given, "--recipes", 'geometric,refined_tree(shares="u4")', "--figure", "c.png")
    assert shown.startswith("CONFIDENTIAL") and (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(run(*given, "--json"))["confidential"] is True
    run(*given, "--recipes", "magic", code=2)
    run(*given, "--figure", "c.gif", code=2)
    run(*given, "--figure", "c.pdf")
    run(*given, "--figure", "again.pdf")
    assert (tmp_path / "c.pdf").read_bytes() == (tmp_path / "again.pdf").read_bytes(), "no date in it"
    run(*given, "--areas", "3", code=1)


def test_compare_tells_ranks_moves_and_views():
    domain = ks.Domain.of(ks.Ordered("age", 4), ks.Nominal("sex", ("f", "m")))
    truth = np.array([[40, 0], [30, 10], [20, 20], [10, 30]]) * 100
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("person", "add-remove", 1), data="made up")
    towns = ks.RegionMap("age", np.array([0, 0, 1, -1]), name="halves")
    found = ks.compare(
        counts, [ks.geometric()], epsilons=["20"], views=["age, sex", "sex", "halves"], maps=[towns], trials=2
    )
    rows = {row["cells"]: row for row in found.rows}
    assert rows["age, sex"]["areas"] == 8 and rows["sex"]["areas"] == 2 and rows["halves"]["areas"] == 2
    assert rows["age, sex"]["rank"] > 0.95 and rows["sex"]["rank"] is None
    assert 0 <= rows[1]["moved"] < 0.01
    with pytest.raises(ks.DomainError) as caught:
        ks.compare(counts, [ks.geometric()], epsilons=["1"], views=["town", "age@9"])
    assert len(caught.value.faults) == 2


def test_moved_is_the_distance_people_are_carried():
    from kasuri.study.evaluate import moved, rank_agreement

    truth = np.array([[8, 0, 0], [0, 0, 0]])
    assert moved(np.array([[0, 0, 8], [0, 0, 0]]), truth, (True, True)) == 2.0  # two steps for everybody
    assert moved(np.array([[0, 0, 8], [0, 0, 0]]), truth, (True, False)) == 1.0  # another label
    assert moved(np.array([[4, 0, 0], [4, 0, 0]]), truth, (True, True)) == 0.5
    assert rank_agreement(np.array([1, 2, 3]), np.array([5, 6, 9])) == pytest.approx(1.0)
    assert rank_agreement(np.array([3, 2, 1]), np.array([5, 6, 9])) == pytest.approx(-1.0)
    assert rank_agreement(np.array([1, 1, 1]), np.array([5, 6, 9])) is None
