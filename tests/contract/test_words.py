"""Every reader of a recipe's words raises on a word it does not know, and has no default for the rest.

A recipe that is half finished (its new word is allowed by `mechanism`, and forgotten by a reader) would else run as
another one under the new name. `forged` makes such a recipe: it passes by the checks of Mechanism itself."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri import choose, draw, estimate, intervals, mechanism, noise, parameters, plan, project
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.manifest import expected, package, tables
from kasuri.mechanism import resolve
from kasuri.recipes import RECIPES
from kasuri.rng import Streams, seeded
from kasuri.schema import Domain, Mesh, Unit
from kasuri.spark import subtrees

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
}
SLOTS = {
    "transform": NEW, "noise": NEW, "refine": NEW, "order": NEW, "descent": NEW, "shares": NEW, "metric": NEW,
    "interleave": (NEW,), "facts": (NEW, NEW), "options": ((NEW, NEW),), "areas": (3,),
}  # fmt: skip


def forged(value, **words):
    """A copy with other words, past all checks of its class."""
    made = copy.copy(value)
    for name, word in words.items():
        object.__setattr__(made, name, word)
    return made


def run_of(recipe, **words):
    """What `resolve` made of the recipe; its mechanism then has other words."""
    found = resolve(recipe, DOMAIN, PERSON, "1")
    return forged(found, mechanism=forged(recipe, **words))


def streams():
    return Streams(seeded(1).release_key(), "words")


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_unknown_word_is_refused_before_anything_is_charged(name, slot, monkeypatch):
    recipe, word = VARIANTS[name], SLOTS[slot]
    if slot == "options":
        word = (*recipe.options, *word)
    if slot == "areas" and recipe.refine == "chosen":
        return  # a size it can choose for
    parts = {part: getattr(recipe, part) for part in ("transform", "noise", "refine", "descent")} | {slot: word}
    known = (parts["transform"], parts["noise"], parts["refine"])
    monkeypatch.setitem(mechanism._COMBINATIONS, known, (parts["descent"],))  # a proof someone wrote
    made = forged(recipe, **{slot: word})
    monkeypatch.setattr(draw, "charge", lambda *_, **__: pytest.fail("it was charged"))
    with pytest.raises((PrivacyError, DomainError)):
        resolve(made, DOMAIN, PERSON, "1")
    with pytest.raises((PrivacyError, DomainError)):
        ks.release(COUNTS, made, epsilon="1", ledger=None, source=ks.seeded(1))


def test_a_new_refinement_does_not_run_as_geometric(monkeypatch):
    """The reproduction: allowed by the table of proofs, and forgotten everywhere else."""
    monkeypatch.setitem(mechanism._COMBINATIONS, ("identity", "discrete Laplace", NEW), ("none",))
    recipe = mechanism.Mechanism("polished", "identity", "discrete Laplace", NEW, "docs/proofs/polished.md")
    with pytest.raises(PrivacyError, match="'polish' is not known here; known: none, inverse, topdown"):
        ks.release(COUNTS, recipe, epsilon="1", ledger=None, source=ks.seeded(1))


@pytest.mark.parametrize("slot", ["transform", "noise", "refine"])
@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_is_drawn_for_an_unknown_word(name, slot):
    with pytest.raises(PrivacyError, match=r"'.*polish.*' is not known here"):
        draw.draw(run_of(VARIANTS[name], **{slot: NEW}), COUNTS, streams(), 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_is_drawn_by_an_unknown_descent(name):
    run = forged(resolve(VARIANTS[name], DOMAIN, PERSON, "1"), descent=NEW)
    with pytest.raises(PrivacyError, match="is not known here"):
        draw.draw(run, COUNTS, streams(), 1)


def visited():
    run = resolve(ks.refined_tree(), DOMAIN, PERSON, "1")
    keys = np.sort(run.trees[0].keys(COUNTS.cells))
    return run, run.visit().run(keys, COUNTS.values, streams(), 1)


INSIDE = {
    "noise of coefficients": lambda: draw._noise(run_of(ks.geometric(), noise=NEW), streams(), 4, 1),
    "transform of a dense tree": lambda: draw._draw_tree(run_of(ks.privelet(), transform=NEW), COUNTS, streams(), 1),
    "refinement of a dense tree": lambda: draw._draw_tree(run_of(ks.privelet(), refine=NEW), COUNTS, streams(), 1),
    "transform of a sparse tree": lambda: draw._draw_sparse(
        run_of(ks.haar_topdown(), transform=NEW), COUNTS, streams(), 1
    ),
    "descent of a sparse tree": lambda: draw._draw_sparse(
        forged(resolve(ks.haar_topdown(), DOMAIN, PERSON, "1"), descent=NEW), COUNTS, streams(), 1
    ),
    "refinement of a count tree": lambda: draw._draw_sparse(
        run_of(ks.refined_tree(), refine=NEW), COUNTS, streams(), 1
    ),
    "refinement of a matrix": lambda: draw._draw_matrix(
        run_of(RECIPES["matrix"](), refine=NEW), COUNTS, streams(), 1
    ),
    "rule of a projection": lambda: draw._draw_projected(
        run_of(ks.simplex(), options=(("rule", NEW), ("parameter", "1"), ("total", "noisy"))), COUNTS, streams(), 1
    ),
    "rule of a shape": lambda: project.shape(project.Tally.of(np.arange(9)), 5, NEW, Fraction(1)),
    "slack of a visit": lambda: run_of(ks.refined_tree(), refine=NEW).visit(),
    "total": lambda: mechanism._total(forged(ks.geometric(), refine=NEW), PERSON),
    "presets": lambda: mechanism._measured(run_of(ks.refined_tree(), refine=NEW)),
    "trees": lambda: mechanism._trees(forged(ks.refined_tree(), order=NEW), DOMAIN),
    "refined": lambda: choose.refined(*visited(), NEW),
    "refinement of a preset": lambda: choose.refine_of(NEW),
    "who chooses": lambda: choose.choose(run_of(ks.bayes_tree(pilot=True), shares=NEW), None, streams()),
    "metric": lambda: choose._simulated(
        run_of(ks.auto(prior=ks.PublicTable.from_dense(np.ones((8, 8)), DOMAIN, name="even")), metric=NEW), None,
        streams(),
    ),
    "variance": lambda: noise.laplace_variance(Fraction(2), NEW),
}  # fmt: skip


@pytest.mark.parametrize("reader", INSIDE)
def test_a_reader_has_no_default(reader):
    with pytest.raises(PrivacyError, match=r"not known|not 'polish'"):
        INSIDE[reader]()


@pytest.mark.parametrize("slot", ["transform", "refine"])
@pytest.mark.parametrize("recipe", [ks.geometric(), ks.privelet(), ks.privelet("2d"), ks.refined_tree()],
                         ids=lambda recipe: f"{recipe.name} {recipe.order}")  # fmt: skip
def test_closed_forms_are_not_those_of_another_recipe(recipe, slot, monkeypatch):
    run = run_of(recipe, **{slot: NEW})
    monkeypatch.setattr(plan, "resolve", lambda *_: run)
    with pytest.raises(PrivacyError, match="'polish' is not known here"):
        plan.block_errors(run.mechanism, DOMAIN, PERSON, "1")


@pytest.mark.parametrize("slot", ["transform", "noise", "refine"])
@pytest.mark.parametrize("name", ["geometric", "haar_topdown", "refined_tree"])
def test_spark_draws_no_unknown_word(name, slot):
    with pytest.raises(DomainError, match="does not run on Spark"):
        subtrees.plan(run_of(VARIANTS[name], **{slot: NEW}))


@pytest.fixture(scope="module")
def released():
    return {
        name: ks.release(COUNTS, VARIANTS[name], epsilon="1", ledger=None, source=ks.seeded(2))
        for name in ("geometric", "privelet", "privelet 2d", "haar_topdown", "refined_tree", "bayes_tree", "simplex")
    }


@pytest.mark.parametrize("slot", ["transform", "noise", "refine", "descent"])
@pytest.mark.parametrize("name", ["geometric", "privelet", "privelet 2d", "haar_topdown", "refined_tree", "simplex"])
def test_intervals_of_unknown_words_are_refused(released, name, slot):
    out = forged(released[name], recipe={**released[name].recipe, slot: NEW})
    for read in (intervals.missing, intervals.bars_of, intervals.columns):
        with pytest.raises(FormatError, match="'polish' is not known here; known: "):
            read(out)


@pytest.mark.parametrize("word", [NEW, "morton and more", "none", "2d"])
@pytest.mark.parametrize("name", ["privelet", "haar_topdown", "refined_tree", "bayes_tree"])
def test_the_tree_of_an_unknown_order_is_refused(released, name, word):
    recipe = {**released[name].recipe, "order": word}
    with pytest.raises(FormatError, match=r"the order .* is not known here; known: morton, 1d, hierarchy, jis"):
        estimate.tree_of(recipe, DOMAIN)
    with pytest.raises(FormatError, match="the order"):
        intervals.bars_of(forged(released[name], recipe=recipe))


def test_bars_of_an_unknown_transform_are_refused(released):
    out = released["haar_topdown"]
    with pytest.raises(FormatError, match="known: identity, haar_nd, sum_difference, counts"):
        intervals._bars(forged(out, recipe={**out.recipe, "transform": "haar"}))


@pytest.mark.parametrize("slot", ["transform", "noise", "refine"])
@pytest.mark.parametrize("name", ["geometric", "privelet", "haar_topdown", "refined_tree", "simplex"])
def test_no_certificate_is_written_for_unknown_words(released, name, slot):
    out = forged(released[name], recipe={**released[name].recipe, slot: NEW})
    with pytest.raises((FormatError, PrivacyError), match="'polish' is not known here"):
        package.privacy_block(out)


@pytest.mark.parametrize("slot", ["transform", "refine", "order"])
def test_no_error_is_expected_of_unknown_words(released, slot):
    out = released["haar_topdown"]
    with pytest.raises(FormatError, match="'polish' is not known here"):
        expected.by_area(forged(out, recipe={**out.recipe, slot: NEW}))


def test_words_of_the_certificate_have_no_default():
    for read in (package._bias, package._sampler):
        with pytest.raises(FormatError, match="'polish' is not known here"):
            read(NEW)


def test_verify_refuses_a_refinement_it_does_not_know(tmp_path):
    """Whether its values may be negative is then unknown: a fault, not a pass."""
    out = ks.release(COUNTS, ks.geometric(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    about = json.loads((tmp_path / "r" / "datapackage.json").read_text(encoding="utf-8"))
    found: list[str] = []
    tables.check(tmp_path / "r", about, found)
    assert found == []
    about["privacy"]["accounting"]["post_processing"]["name"] = NEW
    tables.check(tmp_path / "r", about, found)
    assert found[:1] == ["release.parquet: cannot be read as the table the manifest describes"]


@pytest.mark.parametrize("text", ["polish", "geometric(polish=1)", 'haar_topdown(order="polish")',
                                  'bayes_tree(shares="polish")', 'auto(metric="polish")',
                                  'simplex(total="polish")', 'matrix(workload="polish")'])  # fmt: skip
def test_job_files_and_options_name_known_words_only(text, tmp_path):
    with pytest.raises(ks.KasuriError, match=r"polish|input should be"):
        parameters.parse(text).mechanism(tmp_path, DOMAIN)


def test_every_known_recipe_is_drawn():
    """The lists of `draw` hold what `mechanism` allows and nothing else."""
    allowed = {
        (kind, law, refine, way)
        for (kind, law, refine), descents in mechanism._COMBINATIONS.items()
        for way in descents
        if way != "auto"
    }
    assert {*draw._DENSE, *draw._SPARSE} == allowed
