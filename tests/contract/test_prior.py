"""A public table must be declared, on the same domain, and stands in the guarantee; areas and shares are checked."""

import numpy as np
import pytest

import kasuri as ks
from kasuri.schema import Domain, Mesh

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
    with pytest.raises(ks.DomainError, match="outside"):
        ks.PublicTable.from_coo([999], [1], DOMAIN, name="x")
    masked = Domain.of(Mesh("g", shape=(2, 2)), mask=np.array([[True, False], [False, False]]))
    with pytest.raises(ks.DomainError, match="impossible"):
        ks.PublicTable.from_coo([0], [1], masked, name="x")


def test_another_domain_is_refused_before_anything_is_charged(tmp_path):
    ledger = ks.Ledger.open(str(tmp_path / "l"), epsilon="1", unit=PERSON, data="test-2020")
    other = ks.PublicTable.from_dense(np.ones((16, 16)), Domain.of(Mesh("h", shape=(16, 16))), name="x")
    for recipe in (ks.bayes_tree(prior=other), ks.auto((1000,)), ks.bayes_tree({0: "0.5", 9: "0.5"})):
        with pytest.raises(ks.DomainError):
            ks.release(COUNTS, recipe, epsilon="0.5", ledger=ledger)
    assert ledger.balance().left == 1


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
