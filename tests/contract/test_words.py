"""Every reader of a recipe's words raises on a word it does not know, and has no default for the rest.

In memory there are no words to forget: a recipe is a class, and one without a draw, an error or bars cannot be made
(tests/laws/test_values.py). Words are read in one place, `recipes.read`, and these tests hand it others."""

import copy
import json

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.job import parameters
from kasuri.manifest import package, tables
from kasuri.published import intervals
from kasuri.recipes import RECIPES
from kasuri.recipes.joins import of_preset
from kasuri.recipes.mechanism import Bias, Mechanism
from kasuri.recipes.read import UntoldError, read
from kasuri.schema import Domain, Mesh, Unit
from kasuri.spark import plans
from kasuri.trees import order
from kasuri.words import bias

NEW = "polish"
DOMAIN = Domain.of(Mesh("g", level="500m", origin=(8400, 6080), shape=(8, 8)))
PERSON = Unit("person", "add-remove", 1)
COUNTS = ks.Counts.from_dense(np.full((8, 8), 5), DOMAIN, PERSON, data="words-2020")
VARIANTS = {
    **{name: make() for name, make in RECIPES.items()},
    "privelet 2d": ks.privelet("2d"),
    "haar": ks.haar_topdown(transform="haar"),
    "nominal": ks.haar_topdown(transform="nominal"),
    "jump": ks.haar_topdown(descent="jump"),
    "dense": ks.haar_topdown(descent="dense"),
    "pilot": ks.bayes_tree(pilot=True),
    "woven pilot": ks.woven_tree(pilot=True),
    "woven look": ks.woven_tree(pilot="cells"),
}
SLOTS = {
    "name": NEW, "transform": NEW, "noise": NEW, "refine": NEW, "order": NEW, "descent": NEW, "interleave": [NEW],
    "shares": NEW, "metric": NEW, "facts": {"density": NEW, "size": NEW}, "rule": NEW, "parameter": NEW, "total": NEW,
    "ways": NEW, "strategy": NEW, "workload": NEW, "threshold": NEW,
}  # fmt: skip


def told(recipe):
    return json.loads(json.dumps(recipe.on(DOMAIN, PERSON, "1").words()))


def forged(value, **words):
    """A copy with other words, past all checks of its class."""
    made = copy.copy(value)
    for name, word in words.items():
        object.__setattr__(made, name, word)
    return made


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_unknown_word_is_read_as_nothing(name, slot):
    words = told(VARIANTS[name])
    places = [words, words.get("arguments", {}), words.get("options", {})]
    where = next((place for place in places if slot in place), None)
    if where is None or (slot == "shares" and "arguments" not in words):
        return
    if slot == "shares":
        where = words["arguments"]
    if slot == "threshold":
        where = words["options"]
    where[slot] = SLOTS[slot]
    with pytest.raises((FormatError, UntoldError)):
        read(words, DOMAIN, PERSON, "1")


@pytest.mark.parametrize("name", VARIANTS)
def test_an_unknown_part_is_read_as_nothing(name):
    with pytest.raises(FormatError, match=f"the part '{NEW}' is not known"):
        read(told(VARIANTS[name]) | {NEW: "1"}, DOMAIN, PERSON, "1")


@pytest.mark.parametrize("name", VARIANTS)
def test_words_are_read_back_as_they_are(name):
    run = VARIANTS[name].on(DOMAIN, PERSON, "1")
    back = read(told(VARIANTS[name]), DOMAIN, PERSON, "1")
    assert type(back) is type(run) and back.words() == run.words() and back.guarantee == run.guarantee


@pytest.mark.parametrize("name", [*VARIANTS, "left out"])
def test_the_words_of_a_release_are_read_back(name):
    """What its noisy numbers chose is among them; and every word that `chooses` names is one of a release."""
    out = ks.release(COUNTS, VARIANTS.get(name), epsilon="1", ledger=None)
    run = read(out.recipe, DOMAIN, PERSON, "1")
    assert run.words() == {word: out.recipe[word] for word in run.words()} and set(run.chooses) <= set(out.recipe)


def test_a_word_without_a_class_is_not_known():
    with pytest.raises(PrivacyError, match="'polish' is not known; known: morton, 1d, hierarchy, jis"):
        order.make(NEW, DOMAIN)
    with pytest.raises(PrivacyError, match="'polish' is not known here"):
        of_preset(NEW, None)
    assert {*bias._SENTENCES} == {*Bias}


class Odd:
    """Blocks of a kind that no cluster knows."""


def test_spark_draws_blocks_of_known_kinds_only():
    run = ks.geometric().on(DOMAIN, PERSON, "1")
    with pytest.raises(PrivacyError, match="Odd are not known"):
        plans.plan(forged(run, blocks=Odd))
    for name in ("privelet", "simplex", "laplace"):
        with pytest.raises(DomainError, match="does not run on Spark"):
            plans.plan(VARIANTS[name].on(DOMAIN, PERSON, "1"))


@pytest.fixture(scope="module")
def released():
    return {
        name: ks.release(COUNTS, VARIANTS[name], epsilon="1", ledger=None, source=ks.seeded(2))
        for name in ("geometric", "privelet", "privelet 2d", "haar_topdown", "refined_tree", "bayes_tree", "simplex")
    }


@pytest.mark.parametrize("slot", ["transform", "noise", "refine", "descent", "order"])
@pytest.mark.parametrize("name", ["geometric", "privelet", "privelet 2d", "haar_topdown", "refined_tree", "simplex"])
def test_intervals_of_unknown_words_are_refused(released, name, slot):
    out = forged(released[name], recipe={**released[name].recipe, slot: NEW})
    for reader in (intervals.missing, intervals.bars_of, intervals.columns):
        with pytest.raises(FormatError):
            reader(out)


@pytest.mark.parametrize("word", [NEW, "morton and more", "none", "2d"])
@pytest.mark.parametrize("name", ["privelet", "haar_topdown", "refined_tree", "bayes_tree"])
def test_the_tree_of_an_unknown_order_is_refused(released, name, word):
    with pytest.raises(FormatError):
        intervals.bars_of(forged(released[name], recipe={**released[name].recipe, "order": word}))


@pytest.mark.parametrize("slot", ["transform", "noise", "refine"])
@pytest.mark.parametrize("name", ["geometric", "privelet", "haar_topdown", "refined_tree", "simplex"])
def test_no_certificate_is_written_for_unknown_words(released, name, slot):
    out = forged(released[name], recipe={**released[name].recipe, slot: NEW})
    with pytest.raises(FormatError, match=r"'polish' is not known here|no recipe is described like this"):
        package.privacy_block(out)


def test_verify_refuses_a_refinement_it_does_not_know(tmp_path):
    out = ks.release(COUNTS, ks.geometric(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    about = json.loads((tmp_path / "r" / "datapackage.json").read_text(encoding="utf-8"))
    found: list[str] = []
    tables.check(tmp_path / "r", about, found)
    assert found == []
    about["privacy"]["accounting"]["post_processing"]["name"] = NEW
    tables.check(tmp_path / "r", about, found)
    assert found == ["release_meta.parquet: does not say what the manifest says"]


@pytest.mark.parametrize("text", ["polish", "geometric(polish=1)", 'haar_topdown(order="polish")',
                                  'bayes_tree(shares="polish")', 'auto(metric="polish")',
                                  'simplex(total="polish")', 'matrix(workload="polish")'])  # fmt: skip
def test_job_files_and_options_name_known_words_only(text, tmp_path):
    with pytest.raises(ks.KasuriError, match=r"polish|input should be"):
        parameters.parse(text).mechanism(tmp_path, DOMAIN)


def test_every_family_is_read_back():
    """Every class that stores words is reached by a variant above, but for what only a saved release can be."""

    def below(kind):
        return [kind, *(inner for each in kind.__subclasses__() for inner in below(each))]

    made = {type(recipe) for recipe in VARIANTS.values()}
    whole = {kind for kind in below(Mechanism) if not kind.__abstractmethods__ and kind.__module__.startswith("kasuri")}
    assert {kind.__name__ for kind in whole - made} == {"Untold"}
