"""Totals, tuning and sizes: what would weaken a claim is refused before anything is charged."""

from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.mechanism import SAME_TOTAL, Mechanism
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Unit

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
        lambda: Mechanism("simplex", "identity", "discrete Laplace", "simplex", "x").guarantee(GRID, ADD, "1"),
        lambda: Mechanism("simplex", "identity", "discrete Laplace", "simplex", "x",
                          options=(("total", "true"),)).guarantee(GRID, ADD, "1"),
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


def test_a_public_total_is_said_in_the_certificate(tmp_path):
    counts = ks.Counts.from_dense(TRUTH, GRID, REPLACE, data="d")
    out = ks.release(counts, ks.neg_l2_simplex(**PUBLIC), epsilon="0.5", ledger=None)
    assert out.total() == 630
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(str(tmp_path / "r"))["ok"]
    assert "none enters or leaves" in (tmp_path / "r" / "certificate.md").read_text(encoding="utf-8")
    assert "総数は変わらない" in (tmp_path / "r" / "certificate.ja.md").read_text(encoding="utf-8")


def test_ten_to_the_eleven_cells_are_thresholded():
    domain = Domain.of(Ordered("x", 10**11))
    counts = ks.Counts.from_coo([7, 10**10], [5000, 3], domain, ADD)
    out = ks.release(counts, ks.recipes.sparse(), epsilon="0.5", ledger=None, source=ks.seeded(1))
    assert 7 in out.cells and out.cells.size < 20 and out.recipe["threshold"] == 51
    low = ks.release(counts, ks.recipes.sparse(25), epsilon="0.5", ledger=None, source=ks.seeded(1))
    assert 100_000 < low.cells.size < 500_000 and (np.diff(low.cells) > 0).all()
