"""What certificates and reports say about bias and about what a total counts: proved, or measured here again."""

import json
import re
from fractions import Fraction

import numpy as np
import pytest
from test_recipes import DOMAINS, VARIANTS, counts_on, name

import kasuri as ks
from kasuri import recipes
from kasuri.manifest import certificate, package
from kasuri.recipes import RECIPES
from kasuri.recipes.mechanism import Bias
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Unit
from kasuri.words import bias, japanese

PERSON = Unit("person", "add-remove", 1)
UNBIASED = {"cell_counts", "geometric", "laplace", "privelet", "hierarchy", "matrix"}
PEOPLE = Domain.of(Mesh("grid", shape=(8, 8)), Nominal("sex", labels=("f", "m")), Ordered("age", 3))


def released(recipe, counts, seed):
    return ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(seed))


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_unbiased_is_said_exactly_of_recipes_whose_error_does_not_depend_on_the_table(recipe):
    """The same noise on two tables: a linear recipe has the same error on both, and noise has mean 0."""
    domain = DOMAINS["odd, masked"]
    one = counts_on(domain)
    more = np.where(domain.possible_dense(), np.random.default_rng(8).poisson(3, domain.shape), 0)
    two = ks.Counts.from_dense(dense(one) + more, domain, one.unit)
    said = bias.by_area(recipe.on(domain, one.unit, "0.5"))
    linear = [item["area"] for item in said] == ["every area"] and said[0]["en"].startswith("unbiased")
    assert linear == (recipe.name in UNBIASED)

    def differs(seed):
        first, second = (released(recipe, counts, seed).to_dense() - dense(counts) for counts in (one, two))
        return np.abs(first - second).max() >= 1e-6

    assert any(map(differs, range(6))) != linear


def test_japanese_certificates_name_no_measurement_in_english():
    """Nor a refinement; names of recipes, in quotes, stay as they are typed. Pages of earlier versions come back."""
    for recipe in VARIANTS:
        run = recipe.on(DOMAINS["full"], PERSON, "1")
        words = run.words()
        asked = [item["query"] for item in package.mechanisms(words, Fraction(1))]
        refined = run.refined_ja or japanese.REFINED[words["refine"]]
        said = [*map(japanese.measured, asked), refined]
        assert not re.search(r"[A-Za-z]{2,}", "".join(said).replace("LASSO", "")), said
        if run.refined_ja:  # as no earlier version had it
            continue
        lines = [f"- {own}：離散ラプラス雑音、尺度 1、感度 1（方式 `{recipe.name}`）" for own in said[:-1]]
        before = certificate.japanese_before("\n".join([*lines, f"- 後処理：{said[-1]}（雑音を加えた値のみを参照）"]))
        then = [f"- {own}：離散ラプラス雑音、尺度 1、感度 1（レシピ `{recipe.name}`）" for own in asked]
        assert before == "\n".join([*then, f"- 後処理：{words['refine']}（雑音を加えた値のみを参照）"])
        stored = bias.by_area(run)
        told = certificate._bias(stored, "ja")
        assert "epsilon" not in "".join(told) and "レシピ" not in "".join(told)
        then = [f"- {bias.AREAS[item['area']]}：{item['ja']}" for item in stored]
        assert certificate.japanese_before("\n".join(told[1:])) == "\n".join(then)


def dense(counts):
    out = np.zeros(counts.domain.size, dtype=np.int64)
    out[counts.cells] = counts.values
    return out.reshape(counts.domain.shape)


def test_every_recipe_and_every_kind_of_bias_has_words():
    domain = DOMAINS["full"]
    said = {recipe.name: bias.by_area(recipe.on(domain, PERSON, "1")) for recipe in VARIANTS}
    assert set(said) == set(RECIPES)
    for sentences in said.values():
        for item in sentences:
            assert set(item) == {"area", "en", "ja"} and item["area"] in bias.AREAS
            assert "{" not in item["en"] + item["ja"] and item["en"].endswith(".") and item["ja"].endswith("。")
    words = json.dumps(said)
    assert "larger areas" not in words and "hardly at all" not in words
    assert {*bias._SENTENCES} == {*Bias}
    moves = ks.Unit("person", "replace", 1)
    public = ks.simplex("public", declared_total=5).on(domain, moves, "1")
    assert bias.by_area(public)[-1]["en"].startswith("the declared number")


def people():
    """4,000 people, most in few places, in three age groups of 12, 60 and 28 %."""
    rng = np.random.default_rng(2)
    places = rng.pareto(0.7, (8, 8)) + 0.02
    shares = places[:, :, None, None] * np.outer((0.49, 0.51), (0.12, 0.60, 0.28))[None, None]
    return rng.multinomial(4000, (shares / shares.sum()).ravel()).reshape(PEOPLE.shape)


def margin_error(recipe, runs, at=0):
    """Mean error of one age group in per cent, and its standard error."""
    truth = people()
    counts = ks.Counts.from_dense(truth, PEOPLE, PERSON)
    sums = [
        ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(i)).area(age=at) for i in range(runs)
    ]
    errors = 100 * (np.array(sums, dtype=float) / truth[..., at].sum() - 1)
    return errors.mean(), errors.std(ddof=1) / runs**0.5


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), ks.refined_tree(), ks.bayes_tree(), ks.simplex(),
                                    ks.recipes.sparse(), ks.lasso("40")], ids=lambda recipe: recipe.name)  # fmt: skip
def test_margins_are_off_as_the_certificate_says(recipe):
    """By sign, and by tens of per cent as measured on the benchmark's table of as many people."""
    mean, error = margin_error(recipe, 12)
    (margins,) = [item["en"] for item in bias.by_area(recipe.on(PEOPLE, PERSON, "1"))
                  if "margins" in item["area"]]  # fmt: skip
    high = "too high" in margins
    assert (mean > 4 * error) if high else (mean < -4 * error)
    assert 0.4 < abs(mean) / bias.MEASURED[recipe.name]["small margin"] < 2.5


def test_the_total_of_a_fourier_release_is_off():
    """What is said of it: the nearest table need not keep the total."""
    truth = people()
    counts = ks.Counts.from_dense(truth, PEOPLE, PERSON)
    totals = [
        ks.release(counts, recipes.fourier(2), epsilon="0.1", ledger=None, source=ks.seeded(i)).total()
        for i in range(10)
    ]
    assert np.mean(totals) > 1.25 * truth.sum()


def test_a_certificate_says_it_by_area_and_old_ones_stay_as_they_were(tmp_path):
    truth = np.random.default_rng(1).poisson(3, (4, 4))
    out = ks.release(ks.Counts.from_dense(truth, Domain.of(Mesh("g", shape=(4, 4))), PERSON), ks.haar_topdown(),
                     epsilon="1", ledger=None)  # fmt: skip
    out.save(str(tmp_path / "r"), unmetered=True)
    english, japanese = ((tmp_path / "r" / name).read_text() for name in ("certificate.md", "certificate.ja.md"))
    assert "- margins over an axis: sums over all places" in english and "- 軸ごとの合計" in japanese
    privacy = json.loads((tmp_path / "r" / "datapackage.json").read_text())["privacy"]
    privacy["expected_error"]["bias"] = "none: every sum is unbiased, and values may be negative."
    assert certificate.english(privacy).endswith("\n\nnone: every sum is unbiased, and values may be negative.\n")
    assert certificate.japanese(privacy).endswith("どの合計も不偏であり、負の値になることもあります。\n")


@pytest.mark.parametrize(("unit", "en", "ja", "long"), [
    (Unit("person", "add-remove", 1), "people", "人", None),
    (Unit("device_id", "add-remove", 24), "counts (one device_id adds up to 24)",
     "件（device_id 1 単位につき最大 24 件）", "counts one device_id once in each of its cells: up to 24 times"),
    (Unit("household", "add-remove", 2, 5), "in weights (one household adds up to 10)",
     "重みの合計（世帯 1 単位につき最大 10）", "adds weights, up to 10 per household"),
])  # fmt: skip
def test_a_total_says_what_it_counts(unit, en, ja, long, tmp_path):
    """device-hours are not devices: in report, certificate and on the command line."""
    from pathlib import Path

    from kasuri.cli.release import describe, summary

    domain = Domain.of(Mesh("g", shape=(2, 2)), Ordered("hour", 24))
    counts = ks.Counts.from_dense(np.full(domain.shape, 30), domain, unit)
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    folder = tmp_path / "r"
    out.save(str(folder), unmetered=True)
    page = (folder / "report.html").read_text()
    tile = page[page.index("Released total") :][:400]
    assert en in tile and ja in tile
    certificates = [(folder / file).read_text() for file in ("certificate.md", "certificate.ja.md")]
    assert (long is None and "A sum over" not in certificates[0]) or long in certificates[0]
    assert ("総数を含む" in certificates[1]) == (long is not None)
    assert f"total {out.total():,} {en}." in describe(out, Path(folder))
    assert summary(out, Path(folder))["total_is_in"] == en
    assert ks.verify(str(folder))["ok"]


def test_the_page_of_auto_has_the_shares_of_the_code():
    """docs/proofs: the pilots' shares of epsilon, and what is left for the rest."""
    import re
    from pathlib import Path

    from kasuri.recipes.shares import PILOT_SHARE

    proofs = Path(__file__).parents[2] / "docs" / "proofs"
    for page, named in (("auto.md", "simulation"), ("bayes_tree.md", "pilot")):
        text = (proofs / page).read_text(encoding="utf-8")
        told = {Fraction(number) for number in re.findall(r"(0\.\d+) epsilon", text)}
        assert told == {PILOT_SHARE[named]} | ({1 - PILOT_SHARE[named]} if named == "simulation" else set())
