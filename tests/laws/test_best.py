"""`best` chooses from what is public, before the charge, and its release is one of the recipe it chose."""

import json

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import FormatError
from kasuri.recipes.read import read
from kasuri.trees.weave import interleaved

PERSON = ks.Unit("person", "add-remove", 1)
WARDS = ks.Tree.of({"east": ["a", "b"], "west": ["c"]})
SPARSE, FULL = {"density": "0.1", "size": "10"}, {"density": "0.9", "size": "100"}
CASES = {
    "pilot": (ks.Domain.of(ks.Mesh("g", shape=(16, 16)), ks.Ordered("age", 3)), {}, "woven_tree"),
    "small": (ks.Domain.of(ks.Mesh("g", shape=(8, 8))), {}, "woven_tree"),
    "mesh": (ks.Domain.of(ks.Mesh("g", shape=(128, 128))), {}, "bayes_tree"),
    "mesh, facts": (ks.Domain.of(ks.Mesh("g", shape=(128, 128))), {"facts": FULL}, "bayes_tree"),
    "line, sparse": (ks.Domain.of(ks.Ordered("x", 64)), {"facts": SPARSE}, "bayes_tree"),
    "wards": (ks.Domain.of(ks.Nominal("ward", WARDS.leaves, WARDS), ks.Ordered("age", 3)), {}, "woven_tree"),
    "views": (ks.Domain.of(ks.Ordered("x", 4), ks.Ordered("y", 4)), {"views": {"cells": "2", "x": "1"}}, "woven_tree"),
    "vast": (ks.Domain.of(ks.Mesh("g", shape=(1 << 17, 1 << 17))), {}, "haar_topdown"),
    "long": (ks.Domain.of(ks.Ordered("x", 1 << 21)), {}, "bayes_tree"),
}  # fmt: skip


def told(run):
    return json.loads(json.dumps(run.words()))


@pytest.mark.parametrize("case", CASES)
def test_the_choice_reads_nothing_but_the_domain_and_what_is_declared(case):
    domain, given, name = CASES[case]
    run = ks.best(**given).on(domain, PERSON, "0.5")
    assert run.mechanism.name == name and run.chosen["by"] == "best" and run.chosen["why"]
    assert told(ks.best(**given).on(domain, PERSON, "0.5")) == told(run)
    assert sum(epsilon * count for epsilon, count in run.losses) == run.guarantee.epsilon


def test_small_tables_are_measured_whole():
    run = ks.best().on(CASES["wards"][0], PERSON, "0.5")
    assert run.mechanism.whole and [share for _, share in run.cuts] == [1] and run.parts == ()


@pytest.mark.parametrize("case", ["small", "mesh", "wards", "views", "line, sparse"])
def test_a_release_is_one_of_the_chosen_recipe(case):
    """Plan and numbers are those of the recipe by its own name."""
    domain, given, name = CASES[case]
    counts = ks.Counts.from_dense(np.full(domain.shape, 3), domain, PERSON, data="best-2020")
    chosen = ks.best(**given)
    own = chosen.on(domain, PERSON, "0.5").mechanism
    out, same = (
        ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(3)) for recipe in (chosen, own)
    )
    assert out.recipe["name"] == name and np.array_equal(out.values, same.values)
    assert out.provenance["plan"] == same.provenance["plan"] == own.plan(domain, PERSON, "0.5")
    assert chosen.plan(domain, PERSON, "0.5") == out.provenance["plan"]
    assert {word for word in out.recipe if out.recipe[word] != same.recipe.get(word)} == {"chosen"}


def test_left_out_means_best():
    counts = ks.Counts.from_dense(np.full((4, 4), 3), ks.Domain.of(ks.Mesh("g", shape=(4, 4))), PERSON, data="d")
    out = ks.release(counts, epsilon="1", ledger=None, source=ks.seeded(1))
    assert out.recipe["chosen"]["by"] == "best" and out.recipe["name"] == "woven_tree"


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_read_back_and_cannot_be_changed(case):
    domain, given, _ = CASES[case]
    run = ks.best(**given).on(domain, PERSON, "0.5")
    words = told(run)
    back = read(words, domain, PERSON, "0.5")
    assert back.words() == run.words() and type(back) is type(run)
    other = {"density": "0.2", "size": "1"}
    changes = [{"by": "somebody"}, {"rule": "0"}, {"why": "because"}]
    if case not in ("views", "vast"):  # facts change nothing there; that they were declared is in the guarantee
        changes.append({"facts": other})
    for change in changes:
        with pytest.raises(FormatError):
            read(words | {"chosen": words["chosen"] | change}, domain, PERSON, "0.5")
    other = told(ks.refined_tree().run(domain, PERSON, "0.5")) | {"chosen": words["chosen"]}
    with pytest.raises(FormatError):  # said of a recipe that it does not choose here
        read(other, domain, PERSON, "0.5")


def test_what_is_wrong_is_refused_all_at_once():
    with pytest.raises(ks.PrivacyError) as error:
        ks.best({"cells": "0"}, facts={"density": "2", "size": "1"})
    assert len(error.value.faults) == 2 and all("best: " in fault for fault in error.value.faults)
    with pytest.raises(ks.PrivacyError, match="facts are"):
        ks.best(facts={"density": "0.1"})
    with pytest.raises(ks.DomainError, match="is not an axis"):
        ks.best({"towns": "1"}).on(CASES["small"][0], PERSON, "1")


def test_sums_of_several_axes_are_held_where_all_cells_are_measured():
    """A race that lives in few blocks: where margins alone are held, counties by race are worse than plain noise."""
    rng = np.random.default_rng(4)
    tree = ks.Tree.of({f"c{i}": [f"b{i}.{j}" for j in range(400)] for i in range(3)})
    domain = ks.Domain.of(ks.Nominal("block", tree.leaves, tree), ks.Nominal("race", tuple("abcdefgh")))
    mean = np.outer(rng.lognormal(2.5, 1, 1200), [0.8, *[0.03] * 7])
    mean[:400, 1] *= 10
    truth = rng.poisson(mean)
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("person", "add-remove", 1), data="made up")
    own, plain = [], []
    for seed in range(6):
        out = ks.release(counts, ks.woven_tree(whole=True), epsilon="0.1", ledger=None, source=ks.seeded(seed))
        assert out.recipe["arguments"]["held"] == 2
        noisy = np.zeros(domain.size)
        noisy[interleaved(domain).cells(out.measurements.prefix)] = out.measurements.value
        for found, table in ((own, out.to_dense()), (plain, noisy.reshape(domain.shape))):
            found.append(((table - truth).reshape(3, 400, 8).sum(1) ** 2).mean())
    assert np.mean(own) <= 1.05**2 * np.mean(plain)


def test_releases_of_the_first_rule_are_read_as_they_were_made():
    """Before more sums were held there was no word for them: without it they are those of the first rule."""
    domain = ks.Domain.of(ks.Nominal("a", tuple("pqrs")), ks.Nominal("b", tuple("xyz")))
    unit = ks.Unit("person", "add-remove", 1)
    words = ks.best().on(domain, unit, "1").words()
    assert words["chosen"]["rule"] == "6" and words["arguments"]["held"] == 2
    assert read(words, domain, unit, "1").mechanism.held == 2
    arguments = {name: told for name, told in words["arguments"].items() if name != "held"}
    earlier = words | {"arguments": arguments, "chosen": words["chosen"] | {"rule": "1"}}
    run = read(earlier, domain, unit, "1")
    assert run.mechanism.held == 1 and run.words() == earlier
    domain, _, _ = CASES["pilot"]  # the first two rules had no pilot for a mesh with further axes
    words = ks.woven_tree().on(domain, unit, "1").words()
    why = "2 axes, 768 cells, a mesh, taken to be mostly empty: levels and margins have shares"
    for rule in ("1", "2"):
        said = words | {"chosen": {"by": "best", "rule": rule, "why": why}}
        assert read(said, domain, unit, "1").words() == said
    with pytest.raises(FormatError):
        read(said | {"chosen": said["chosen"] | {"rule": "3"}}, domain, unit, "1")
    words = ks.woven_tree(pilot=True).on(domain, unit, "1").words()  # the third had one of sums
    said = words | {
        "chosen": {"by": "best", "rule": "3", "why": "768 cells, full or not: a pilot chooses what is measured"}
    }
    assert read(said, domain, unit, "1").words() == said
    with pytest.raises(FormatError):
        read(said | {"chosen": said["chosen"] | {"rule": "4"}}, domain, unit, "1")
    words = ks.woven_tree(pilot="cells").on(domain, unit, "1").words()  # the fourth had the first version of the look
    why = "768 cells, full or not: noisy cells choose what is measured"
    said = words | {"arguments": {"pilot": "cells"}, "chosen": {"by": "best", "rule": "4", "why": why}}
    assert read(said, domain, unit, "1").words() == said and read(said, domain, unit, "1").mechanism.version == 1
    with pytest.raises(FormatError):
        read(said | {"arguments": words["arguments"]}, domain, unit, "1")
    said |= {
        "arguments": {"pilot": "cells", "version": 2},
        "chosen": said["chosen"] | {"rule": "5"},
    }  # the fifth its second
    assert read(said, domain, unit, "1").words() == said
    with pytest.raises(FormatError):
        read(said | {"chosen": said["chosen"] | {"rule": "6"}}, domain, unit, "1")
