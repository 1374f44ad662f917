"""A public table must be declared, on the same domain, and stands in the guarantee; areas and shares are checked."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.recipes import joins
from kasuri.recipes.shares import pilot_height
from kasuri.schema import Domain, Mesh, Nominal
from kasuri.trees import order

DOMAIN = Domain.of(Mesh("g", shape=(16, 16)))
PERSON = ks.Unit("p", "add-remove", 1)
COUNTS = ks.Counts.from_dense(np.full((16, 16), 7), DOMAIN, PERSON, data="test-2020")
PRIOR = ks.PublicTable.from_dense(np.full((16, 16), 5), DOMAIN, name="census-2015")


def test_its_name_is_public_in_the_guarantee():
    for recipe in (ks.bayes_tree(prior=PRIOR), ks.auto((1, 4), prior=PRIOR)):
        out = ks.release(COUNTS, recipe, epsilon="1", ledger=None, source=ks.seeded(1))
        assert "table census-2015 (prior)" in out.guarantee.public


@pytest.mark.parametrize("wrong", [COUNTS, np.full((16, 16), 5), "census-2015", {"cells": []}])
def test_what_is_not_declared_is_refused(wrong):
    for recipe in (ks.bayes_tree, ks.auto):
        with pytest.raises(ks.PrivacyError, match="declared public"):
            recipe(prior=wrong)


def test_counts_make_no_public_table():
    with pytest.raises(ks.PrivacyError, match="confidential"):
        ks.PublicTable.from_dense(COUNTS, DOMAIN, name="x")
    with pytest.raises(ks.PrivacyError, match="confidential"):
        ks.PublicTable.from_coo(COUNTS, COUNTS, DOMAIN, name="x")


def test_every_fault_is_named():
    with pytest.raises(ks.PrivacyError, match="name"):
        ks.PublicTable.from_dense(np.ones((16, 16)), DOMAIN, name="")
    with pytest.raises(ks.DomainError, match="shape"):
        ks.PublicTable.from_dense(np.ones((8, 8)), DOMAIN, name="x")
    with pytest.raises(ks.DomainError) as told:
        ks.PublicTable.from_coo([3, 3, 4], [1.0, -1.0, np.nan], DOMAIN, name="x")
    assert "more than once" in str(told.value) and "finite" in str(told.value)
    with pytest.raises(ks.DomainError, match="2\\^62"):
        ks.PublicTable.from_coo([3, 4], [1e18, 4e18], DOMAIN, name="x")
    with pytest.raises(ks.DomainError, match="outside"):
        ks.PublicTable.from_coo([999], [1], DOMAIN, name="x")
    masked = Domain.of(Mesh("g", shape=(2, 2)), mask=np.array([[True, False], [False, False]]))
    with pytest.raises(ks.DomainError, match="impossible"):
        ks.PublicTable.from_coo([0], [1], masked, name="x")


def test_a_table_made_by_hand_is_checked_and_copied():
    for cells, values in (([5, 1], [1.0, 2.0]), ([1], [np.nan]), ([1], [0.0]), ([1], [-3.0]), ([99999], [1.0])):
        with pytest.raises(ks.DomainError):
            ks.PublicTable(DOMAIN, np.array(cells), np.array(values), "x")
    with pytest.raises(ks.PrivacyError, match="name"):
        ks.PublicTable(DOMAIN, np.array([1]), np.array([1.0]), " ")
    values = np.array([1.0])
    table = ks.PublicTable(DOMAIN, np.array([1]), values, "x")
    recipe = ks.bayes_tree(prior=table)
    before = recipe.plan(DOMAIN, PERSON, "1")
    values[0] = 7.0
    assert recipe.plan(DOMAIN, PERSON, "1") == before
    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = 7.0


def test_the_confidential_data_are_no_public_table(tmp_path):
    """By its name: a copy under another name cannot be told without looking at the data."""
    ledger = ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=PERSON, data="test-2020")
    same = ks.PublicTable.from_coo(COUNTS.cells, COUNTS.values, DOMAIN, name="test-2020")
    assert not np.shares_memory(same.cells, COUNTS.cells)
    for recipe in (ks.bayes_tree(prior=same), ks.auto((1,), prior=same)):
        with pytest.raises(ks.PrivacyError, match="confidential data"):
            ks.release(COUNTS, recipe, epsilon="0.5", ledger=ledger)
    assert ledger.balance().left == 1


def test_another_domain_is_refused_before_anything_is_charged(tmp_path):
    ledger = ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=PERSON, data="test-2020")
    other = ks.PublicTable.from_dense(np.ones((16, 16)), Domain.of(Mesh("h", shape=(16, 16))), name="x")
    for recipe in (ks.bayes_tree(prior=other), ks.auto((1000,)), ks.bayes_tree({0: "0.5", 9: "0.5"})):
        with pytest.raises(ks.DomainError):
            ks.release(COUNTS, recipe, epsilon="0.5", ledger=ledger)
    assert ledger.balance().left == 1


def labels(name, size):
    return Nominal(name, tuple(map(str, range(size))))


@pytest.mark.parametrize(
    ("domain", "recipe"),
    [
        (Domain.of(labels("a", 1500), labels("b", 200_000), labels("c", 3)), ks.auto((1,), order="hierarchy")),
        (Domain.of(*(labels(name, 1000) for name in "abc")), ks.bayes_tree(order="hierarchy")),
        (Domain.of(Mesh("g", shape=(1 << 15, 1 << 15))), ks.refined_tree({0: "0.5", 14: "0.5"})),
    ],
    ids=["auto", "bayes_tree", "refined_tree"],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_charged(domain, recipe, tmp_path):
    ledger = ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=PERSON, data="test-2020")
    counts = ks.Counts.from_coo([0], [1000], domain, PERSON, data="test-2020")
    with pytest.raises(ks.DomainError, match="single node"):
        ks.release(counts, recipe, epsilon="0.5", ledger=ledger)
    assert ledger.balance().left == 1


def test_a_pilot_is_never_too_wide():
    """Its height is odd only where an odd one can be drawn: the lower one, the upper one, or neither."""
    for sizes, plain, odd in (((10, 100, 60_000, 3, 3, 3), 4, 5), ((1500, 200_000, 3), 2, 2), ((10, 10, 10), 2, 1)):
        tree = order.hierarchy(Domain.of(*(labels(f"a{i}", size) for i, size in enumerate(sizes))))
        assert pilot_height(tree) == plain and pilot_height(tree, odd=True) == odd


def test_one_choice_of_shares():
    with pytest.raises(ks.PrivacyError, match="only one"):
        ks.bayes_tree("sparse", pilot=True)
    with pytest.raises(ks.PrivacyError, match="sum to exactly 1"):
        ks.bayes_tree({0: "0.5", 1: "0.4"})
    with pytest.raises(ks.PrivacyError, match="not known"):
        ks.bayes_tree("thick")
    with pytest.raises(ks.PrivacyError, match="density"):
        ks.bayes_tree(facts={"density": "0.3"})
    with pytest.raises(ks.PrivacyError, match="at most 1"):
        ks.bayes_tree(facts={"density": "3", "size": "10"})
    with pytest.raises(ks.PrivacyError, match="float"):
        ks.bayes_tree(facts={"density": 0.3, "size": "10"})
    for wrong in ((), (0,), ("1",), "1"):
        with pytest.raises(ks.PrivacyError, match="areas"):
            ks.auto(wrong)
    assert ks.auto(tuple(np.array([1, 4]))).plan(DOMAIN, PERSON, "1") == ks.auto((1, 4)).plan(DOMAIN, PERSON, "1")
    with pytest.raises(ks.PrivacyError, match="metric"):
        ks.auto((1,), "max")


def test_plans_and_losses_know_what_was_declared():
    plans = {
        recipe.plan(DOMAIN, PERSON, "1")
        for recipe in (
            ks.bayes_tree(),
            ks.bayes_tree(pilot=True),
            ks.bayes_tree(prior=PRIOR),
            ks.auto((1,)),
            ks.auto((4,)),
        )
    }
    assert len(plans) == 5
    fixed, chosen = ks.bayes_tree("dense"), ks.bayes_tree(pilot=True)
    assert sum(epsilon * times for epsilon, times in fixed.losses(DOMAIN, PERSON, "1")) == 1
    assert len(fixed.losses(DOMAIN, PERSON, "1")) > 1  # one independent part per level
    assert chosen.losses(DOMAIN, PERSON, "1") == ((1, 1),)  # the generic pair
    assert fixed.losses(DOMAIN, ks.Unit("p", "replace", 1), "1") == ((1, 1),)
    renamed = replace(ks.geometric(), name="bayes_tree")  # its name makes it no tree
    assert renamed.losses(DOMAIN, PERSON, "1") == ((1, 1),)


def test_a_preset_with_a_negative_share_makes_no_claim(monkeypatch):
    monkeypatch.setitem(joins.LeastSquares.presets, "u4", lambda top: {0: Fraction(2), 1: Fraction(-1)})
    with pytest.raises(ks.PrivacyError, match="positive"):
        ks.refined_tree("u4").guarantee(DOMAIN, PERSON, "1")
