"""Totals, tuning and sizes: what would weaken a claim is refused before anything is charged."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.recipes.matrix import Fourier, Measured, ToldRows, Untold
from kasuri.recipes.shaped import SAME_TOTAL, Bought, Declared, Shaped
from kasuri.recipes.simulated import Simulated
from kasuri.recipes.threshold import Thresholded
from kasuri.refine.project import RULES
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Unit
from kasuri.words.japanese import measured

GRID = Domain.of(Mesh("g", shape=(6, 6)))
ADD, REPLACE = Unit("person", "add-remove", 1), Unit("person", "replace", 1)
TRUTH = np.arange(36).reshape(6, 6)
PUBLIC = {"total": "public", "declared_total": 630}
FAMILY = (ks.simplex, ks.neg_l2_simplex, ks.nonneg_lasso, ks.lasso)


@pytest.fixture
def ledger(tmp_path):
    return ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=ADD, data="d")


@pytest.mark.parametrize("recipe", FAMILY)
def test_a_public_total_needs_a_unit_that_only_moves(recipe):
    made = recipe(**PUBLIC)
    for unit in (ADD, Unit("p", "replace", 2), Unit("p", "replace", 1, 3)):
        with pytest.raises(ks.PrivacyError, match='total="public"'):
            made.guarantee(GRID, unit, "1")
    claim = made.guarantee(GRID, REPLACE, "1")
    assert "total" in claim.public and SAME_TOTAL in claim.assumes
    assert "none enters or leaves" in claim.words()
    assert made.scale(GRID, REPLACE, "1") == 2  # twice that of add-remove
    assert recipe().scale(GRID, ADD, "1") == 1 / Fraction(19, 20)


@pytest.mark.parametrize("adjust", ["scale", "shift"])
@pytest.mark.parametrize("recipe", FAMILY)
def test_the_declared_total_is_what_comes_out_not_the_truth(recipe, adjust):
    counts = ks.Counts.from_dense(TRUTH, GRID, REPLACE)
    further = {} if recipe in FAMILY[:2] else {"adjust": adjust}
    for declared in (0, 77, 1000):
        made = recipe(total="public", declared_total=declared, **further)
        assert ks.release(counts, made, epsilon="1", ledger=None, source=ks.seeded(2)).total() == declared


def test_a_refused_total_charges_nothing(ledger):
    counts = ks.Counts.from_dense(TRUTH, GRID, ADD, data="d")
    before = ledger.balance()
    elsewhere = ks.PublicTable.from_dense(np.ones((5, 6), int), Domain.of(Mesh("g", shape=(5, 6))), name="older")
    wide = ks.Counts.from_coo([1], [1], Domain.of(Ordered("x", 10**11)), ADD, data="d")
    for table, recipe, error in (
        (counts, ks.simplex(**PUBLIC), ks.PrivacyError),
        (counts, ks.neg_l2_simplex(tune_on=elsewhere), ks.DomainError),
        (wide, ks.simplex(), ks.DomainError),
        (wide, ks.recipes.hierarchy(), ks.DomainError),
        (wide, ks.recipes.matrix(), ks.DomainError),
        (wide, ks.recipes.fourier(), ks.DomainError),
        (wide, ks.recipes.sparse(1), ks.DomainError),
    ):
        with pytest.raises(error):
            ks.release(table, recipe, epsilon="0.1", ledger=ledger)
    assert ledger.balance() == before


def built(rule, parameter=1, total=Bought(Fraction(1, 20)), tuning=None):  # noqa: B008
    return Shaped("simplex", "x", RULES[rule], None if parameter is None else Fraction(parameter), total, tuning)


@pytest.mark.parametrize(
    ("recipe", "error"),
    [
        (built("neg l2", 2), ks.PrivacyError),
        (built("neg l2", 0), ks.PrivacyError),
        (built("lasso shift", -1), ks.PrivacyError),
        (built("nonneg lasso scale", total=Bought(Fraction(1))), ks.PrivacyError),
        (built("nonneg lasso scale", total=Bought(Fraction(0))), ks.PrivacyError),
        (built("neg l2", tuning=ks.PublicTable.from_dense(TRUTH, GRID, name="older")), ks.PrivacyError),
        (Thresholded("sparse", "x", 0), ks.PrivacyError),
        (Thresholded("sparse", "x", 2.5), ks.PrivacyError),
        (Thresholded("sparse", "x", Fraction(5, 2)), ks.PrivacyError),
        (built("neg l2", total=Bought(0.05)), ks.PrivacyError),
        (replace(ks.auto(), chooser=Simulated((1,), "bogus")), ks.PrivacyError),
        (replace(ks.auto(), chooser=Simulated((), "rmse")), ks.PrivacyError),
        (replace(ks.auto(), chooser=Simulated((0,), "rmse")), ks.PrivacyError),
        (replace(ks.haar_topdown(), tree_word="hierarchy"), ks.PrivacyError),
        (replace(ks.haar_topdown(descent="dense"), tree_word="jis"), ks.PrivacyError),
        (replace(ks.privelet(), tree_word="hierarchy"), ks.PrivacyError),
        (Measured("matrix", "x", ToldRows("1 1", ())), ks.DomainError),
        (Untold("matrix", "x", (), Fraction(1)), ks.PrivacyError),
        (Fourier("fourier", "x", "two"), ks.PrivacyError),
        (ks.recipes.sparse(1 << 62), ks.DomainError),
        (ks.recipes.sparse(10**400), ks.DomainError),
        (ks.neg_l2_simplex(tune_on=ks.PublicTable.from_dense(np.full((6, 6), 0.25), GRID, name="thin")),
         ks.DomainError),
        (ks.lasso(tune_on=ks.PublicTable.from_coo([0], [2.0**62], GRID, name="huge")), ks.DomainError),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_before_it_is_charged(recipe, error, ledger):
    counts = ks.Counts.from_dense(TRUTH, GRID, ADD, data="d")
    before = ledger.balance()
    with pytest.raises(error):
        ks.release(counts, recipe, epsilon="0.1", ledger=ledger)
    assert ledger.balance() == before
    for total in (-1, 1 << 80, 5.5, Fraction(11, 2)):
        with pytest.raises(ks.PrivacyError, match=r"total"):
            built("neg l2", total=Declared(total)).guarantee(GRID, REPLACE, "1")


def test_runs_drawn_by_the_slow_rule_are_few():
    """Chances below 2^-24 a cell: milliseconds for each that passes."""
    domain = Domain.of(Ordered("x", 1 << 61))
    assert ks.recipes.sparse(40).scale(Domain.of(Ordered("x", 1 << 40)), ADD, "0.5") == 2
    for least in (40, 45):  # 2^61 / e^20 or / e^22.5: billions, and still more than 2^16
        with pytest.raises(ks.DomainError, match="65536"):
            ks.recipes.sparse(least).scale(domain, ADD, "0.5")
    assert ks.recipes.sparse(64).scale(domain, ADD, "0.5") == 2


def test_a_part_of_a_split_has_no_public_total():
    domain = Domain.of(Nominal("sex", ("f", "m")), Ordered("x", 3))
    counts = ks.Counts.from_dense([[1, 2, 3], [4, 5, 6]], domain, REPLACE)
    part = counts.split("sex")["f"]
    with pytest.raises(ks.PrivacyError, match="part"):
        ks.release(part, ks.simplex("public", declared_total=6), epsilon="1", ledger=None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ks.simplex("true"),
        lambda: ks.simplex("public"),
        lambda: ks.simplex("public", declared_total=1.5),
        lambda: ks.simplex("public", declared_total=-1),
        lambda: ks.simplex(declared_total=5),
        lambda: ks.simplex(share="1"),
        lambda: ks.simplex(share=0.1),
        lambda: ks.neg_l2_simplex("1.5"),
        lambda: ks.neg_l2_simplex("0"),
        lambda: ks.neg_l2_simplex(0.9),
        lambda: ks.neg_l2_simplex(tune_on=TRUTH),
        lambda: ks.neg_l2_simplex(tune_on=ks.Counts.from_dense(TRUTH, GRID, ADD)),
        lambda: ks.neg_l2_simplex("0.9", tune_on=ks.PublicTable.from_dense(TRUTH, GRID, name="older")),
        lambda: ks.nonneg_lasso("-1"),
        lambda: ks.lasso(adjust="stretch"),
        lambda: ks.PublicTable.from_dense(ks.Counts.from_dense(TRUTH, GRID, ADD), GRID, name="mine"),
        lambda: built("neg l2", total=Declared(5)).guarantee(GRID, ADD, "1"),
        lambda: built("neg l2", total=None).guarantee(GRID, ADD, "1"),
    ],
)  # fmt: skip
def test_choices_that_would_weaken_a_claim(make):
    with pytest.raises(ks.PrivacyError):
        make()


def test_a_public_table_is_checked():
    mask = np.zeros((6, 6), dtype=bool)
    mask[0, 1] = True
    for values, domain, name in (
        (TRUTH - 1, GRID, "n"), (TRUTH + np.nan, GRID, "n"), (TRUTH[:5], GRID, "n"), (TRUTH, GRID, " "),
        (TRUTH, Domain.of(Mesh("g", shape=(6, 6)), mask=mask), "n"), ([["a"] * 6] * 6, GRID, "n"),
    ):  # fmt: skip
        with pytest.raises((ks.DomainError, ks.PrivacyError)):
            ks.PublicTable.from_dense(values, domain, name=name)
    table = ks.PublicTable.from_dense(TRUTH, GRID, name="census-2015")
    recipe = ks.neg_l2_simplex(tune_on=table)
    claim = recipe.guarantee(GRID, ADD, "1")
    assert "table census-2015 (tuning)" in claim.public
    other = ks.neg_l2_simplex(tune_on=ks.PublicTable.from_dense(TRUTH + 1, GRID, name="census-2015"))
    assert recipe.plan(GRID, ADD, "1") != other.plan(GRID, ADD, "1")


@pytest.mark.parametrize("recipe", [*FAMILY[:3], ks.recipes.hierarchy, ks.recipes.sparse, ks.recipes.fourier])
def test_saved_and_verified(recipe, tmp_path):
    counts = ks.Counts.from_dense(TRUTH, GRID, ADD, data="d")
    out = ks.release(counts, recipe(), epsilon="0.5", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(str(tmp_path / "r"))["ok"]
    text = (tmp_path / "r" / "certificate.md").read_text(encoding="utf-8")
    assert "discrete Laplace" in text
    if recipe in FAMILY[:3]:
        assert "total: discrete Laplace noise of scale 40, sensitivity 1" in text


@pytest.mark.parametrize(
    "recipe",
    [ks.refined_tree(), ks.bayes_tree(), ks.bayes_tree(pilot=True), ks.auto(), ks.recipes.hierarchy("morton")],
    ids=["refined_tree", "bayes_tree", "pilot", "auto", "hierarchy"],
)
def test_every_measured_level_is_said_with_its_own_noise(recipe, tmp_path):
    """What the manifest lists costs epsilon in all, and is the noise the measurements have."""
    counts = ks.Counts.from_dense(np.arange(256).reshape(16, 16), Domain.of(Mesh("g", shape=(16, 16))), REPLACE)
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(str(tmp_path / "r"))["ok"]
    said = json.loads((tmp_path / "r" / "datapackage.json").read_text(encoding="utf-8"))
    parts = said["privacy"]["implementation"]["mechanisms"]
    assert len(parts) > 1 and {part["sensitivity"] for part in parts} == {"2"}
    assert sum(Fraction(part["sensitivity"]) / Fraction(part["scale"]) for part in parts) == Fraction(1, 2)
    if out.measurements is not None:
        scales = {f"counts of level {depth}": scale for depth, scale in out.measurements.scale.items()}
        assert scales == {part["query"]: Fraction(part["scale"]) for part in parts}
    for name in ("certificate.md", "certificate.ja.md"):
        text = (tmp_path / "r" / name).read_text(encoding="utf-8")
        said = measured if name == "certificate.ja.md" else str
        assert all(said(part["query"]) in text and part["scale"] in text for part in parts)


def test_a_public_total_is_said_in_the_certificate(tmp_path):
    counts = ks.Counts.from_dense(TRUTH, GRID, REPLACE, data="d")
    out = ks.release(counts, ks.neg_l2_simplex(**PUBLIC), epsilon="0.5", ledger=None)
    assert out.total() == 630
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(str(tmp_path / "r"))["ok"]
    assert "none enters or leaves" in (tmp_path / "r" / "certificate.md").read_text(encoding="utf-8")
    assert "総数は変わらない" in (tmp_path / "r" / "certificate.ja.md").read_text(encoding="utf-8")


def test_a_public_total_is_said_by_the_ledger(tmp_path):
    book = ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=REPLACE, data="d")
    counts = ks.Counts.from_dense(TRUTH, GRID, REPLACE, data="d")
    ks.release(counts, ks.simplex(), epsilon="0.1", ledger=book)
    assert SAME_TOTAL not in book.summary()["assumes"]
    ks.release(counts, ks.simplex(**PUBLIC), epsilon="0.1", ledger=book)
    assert book.summary()["assumes"].count(SAME_TOTAL) == 1
    assert SAME_TOTAL in ks.Ledger.load(str(tmp_path / "l")).summary()["assumes"]


def test_ten_to_the_eleven_cells_are_thresholded():
    domain = Domain.of(Ordered("x", 10**11))
    counts = ks.Counts.from_coo([7, 10**10], [5000, 3], domain, ADD)
    out = ks.release(counts, ks.recipes.sparse(), epsilon="0.5", ledger=None, source=ks.seeded(1))
    assert 7 in out.cells and out.cells.size < 20 and out.recipe["threshold"] == 51
    low = ks.release(counts, ks.recipes.sparse(25), epsilon="0.5", ledger=None, source=ks.seeded(1))
    assert 100_000 < low.cells.size < 500_000 and (np.diff(low.cells) > 0).all()
