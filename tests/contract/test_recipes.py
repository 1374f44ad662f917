"""One suite over every registered recipe: what each promises, in docstring, proof page and behaviour."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from reference.domains import taken_by

import kasuri as ks
from kasuri.noise.laws import IDEALISED, KEYSTREAM
from kasuri.published.protected import NO_LEDGER
from kasuri.recipes import RECIPES
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.table import PROVIDER_BOUNDED

ROOT = Path(__file__).parents[2]
VARIANTS = [
    ks.geometric(), ks.laplace(), ks.privelet("1d"), ks.privelet("2d"), ks.privelet("morton"), ks.haar_topdown(),
    ks.haar_topdown("1d"), ks.haar_topdown(descent="plain"), ks.haar_topdown(descent="jump"),
    ks.haar_topdown(descent="dense"), ks.haar_topdown(transform="haar"), ks.haar_topdown(transform="nominal"),
    ks.refined_tree(), ks.refined_tree("u4"), ks.refined_tree("tilt16"), ks.refined_tree({0: "0.6", 1: "0.4"}),
    ks.refined_tree(noise="gaussian", delta="1e-6"), ks.refined_tree("u4", noise="auto", delta="1e-4"),
    ks.refined_tree(order="1d"), ks.refined_tree(order="hierarchy"),
    ks.simplex(), ks.neg_l2_simplex(), ks.neg_l2_simplex("0.95"), ks.nonneg_lasso(), ks.nonneg_lasso(adjust="shift"),
    ks.nonneg_lasso("1"), ks.lasso(), ks.lasso(adjust="shift"), ks.recipes.hierarchy(), ks.recipes.hierarchy("morton"),
    ks.recipes.hierarchy("hierarchy"), ks.recipes.fourier(1), ks.recipes.matrix(), ks.recipes.matrix(workload="prefix"),
    ks.recipes.sparse(), ks.recipes.sparse(3),
    ks.bayes_tree(), ks.bayes_tree("sparse"), ks.bayes_tree({0: "0.6", 1: "0.4"}), ks.bayes_tree(pilot=True),
    ks.bayes_tree(facts={"density": "0.5", "size": "100"}), ks.bayes_tree("dense", "1d"),
    ks.bayes_tree(order="hierarchy"), ks.auto(), ks.auto((1, 16), "mae"), ks.recipes.woven_tree(),
    ks.recipes.woven_tree(shares={"cells": "1"}), ks.woven_tree(whole=True),
    ks.bayes_tree(noise="gaussian", delta="1e-6"), ks.bayes_tree("sparse", noise="auto", delta="1e-4"),
    ks.recipes.cell_counts(noise="gaussian", delta="1e-6"), ks.recipes.cell_counts(noise="auto", delta="1e-6"),
    ks.best(), ks.bayes_tree(order="interleaved", expect=True),
    ks.refined_tree("u4", order="interleaved"), ks.bayes_tree(order="interleaved", pilot=True, expect=True),
]  # fmt: skip
VARIANTS += [make() for name, make in RECIPES.items() if name not in {recipe.name for recipe in VARIANTS}]
MASK = np.zeros((5, 7), dtype=bool)
MASK[:2, :3] = True
DOMAINS = {
    "full": Domain.of(Mesh("g", shape=(8, 8))),
    "odd, masked": Domain.of(Mesh("g", shape=(5, 7)), mask=MASK),
    "axes": Domain.of(
        Mesh("g", shape=(3, 4)), Ordered("age", 3), Nominal("w", tuple("abc"), Tree.of({"x": ["a", "b"], "y": ["c"]}))
    ),
}


def counts_on(domain, change="add-remove"):
    truth = np.random.default_rng(1).poisson(3, domain.shape)
    truth[~domain.possible_dense()] = 0
    return ks.Counts.from_dense(truth, domain, Unit("person", change, 1), data="test-2020")


def name(recipe):
    parts, known = recipe.parts(), ("rule", "parameter", "ways", "workload", "threshold")
    words = [str(parts[word]) for word in ("name", "order", "transform", "descent", "shares")]
    return "-".join([*words, *(value for key, value in parts["options"] if key in known)])


@pytest.mark.parametrize("recipe", RECIPES)
def test_docstring_and_proof_page(recipe):
    text = RECIPES[recipe].__doc__
    for word in ("Privacy\n", "Neighbours:", "Sensitivity:", "Guarantee:", "Proof:", "Public:", "Assumes:", "Cost:"):
        assert word in text, word
    assert RECIPES[recipe]().name == recipe  # or its releases are read as those of another
    page = ROOT / RECIPES[recipe]().basis
    assert page.parent == ROOT / "docs" / "proofs" and f"`{recipe}(" in page.read_text(encoding="utf-8")
    proof = page.read_text(encoding="utf-8")
    assert "## Which test fails if this is wrong" in proof
    for line in proof.splitlines():
        if line.startswith("- `tests/"):
            path, _, test = line[3:].partition("`")[0].partition("::")
            source = (ROOT / path).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in source, line


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_release(recipe, domain):
    counts = counts_on(taken_by(recipe, DOMAINS[domain]))
    claim = recipe.guarantee(counts.domain, counts.unit, "0.5")
    law = recipe.on(counts.domain, counts.unit, "0.5").noise
    assert claim.model == "central" and claim.epsilon == Fraction(1, 2)
    assert (claim.delta == 0) == (law.name != "discrete Gaussian") == (claim.rho is None)
    assert ("declared density and size of the non-empty cells" in claim.public) == bool(recipe.parts()["facts"])
    assert ("mask" in claim.public) == bool(counts.domain.mask)
    assert claim.assumes == ((IDEALISED,) if recipe.parts()["noise"] == "float Laplace" else (KEYSTREAM,))
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4))
    assert out.guarantee == claim.assuming(PROVIDER_BOUNDED, NO_LEDGER)
    assert (np.diff(out.cells) > 0).all() and (out.values != 0).all()
    assert counts.domain.possible(out.cells).all()
    assert out.to_dense().shape == counts.domain.shape
    if not recipe.on(counts.domain, counts.unit, "0.5").signed:
        assert (out.values > 0).all() and out.values.dtype.kind == (
            "f" if recipe.parts()["noise"] == "float Laplace" else "i"
        )
    again = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4))
    assert np.array_equal(out.values, again.values) and np.array_equal(out.cells, again.cells)
    other = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(5))
    assert not np.array_equal(out.to_dense(), other.to_dense())


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_little_noise_at_large_epsilon(recipe):
    """Only noise stands between the table and the release: with almost none they agree."""
    for domain in DOMAINS.values():
        if recipe.name == "fourier":  # with fewer ways than dimensions most of the table is not measured
            recipe = RECIPES["fourier"](len(domain.shape))
        counts = counts_on(taken_by(recipe, domain))
        truth = np.zeros(domain.size)
        truth[counts.cells] = counts.values
        out = ks.release(counts, recipe, epsilon="100000 weak", ledger=None, source=ks.seeded(6))
        if recipe in (ks.nonneg_lasso("1"), RECIPES["sparse"](3)):  # thresholds, whatever the noise
            expected = np.where(truth >= 3, truth, 0) if recipe.name == "sparse" else None
            assert out.total() == truth.sum() if expected is None else np.array_equal(out.to_dense().ravel(), expected)
            continue
        assert np.allclose(out.to_dense().ravel(), truth, atol=0.05)


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_a_declared_tree_is_followed_or_refused(recipe):
    """Recipes along a tree split a nominal axis by its public tree unless another order was asked for, and refuse it
    then and say which do not; recipes without one measure the cells, however they are grouped. None passes over it in
    silence."""
    labels, groups = ("a", "b", "c", "d"), Tree.of({"east": ["a", "d"], "west": ["b", "c"]})
    domain = Domain.of(Nominal("ward", labels, groups))
    if recipe.tables or max(recipe.parts()["areas"] or [1]) > 4:  # made for larger domains, and refused for that
        return
    follows = recipe.suited(domain).ignores_trees is None and recipe.parts()["order"] != "none"
    if follows:
        tree = recipe.on(domain, Unit("person", "add-remove", 1), "1").tree
        keys = tree.keys(np.arange(4))
        assert keys[0] // 2 == keys[3] // 2 != keys[1] // 2 == keys[2] // 2, "east and west are nodes"
    elif recipe.parts()["order"] == "none":
        change = "replace" if "public" in str(recipe.parts()["options"]) else "add-remove"
        recipe.guarantee(domain, Unit("person", change, 1), "1")
    else:
        with pytest.raises(ks.DomainError, match=r"has a public tree, .* would ignore; use .*or declare the axis"):
            recipe.guarantee(domain, Unit("person", "add-remove", 1), "1")


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_a_seed_is_visible_and_cannot_be_saved(recipe, tmp_path):
    out = ks.release(counts_on(DOMAINS["full"]), recipe, epsilon="1", ledger=None, source=ks.seeded(9))
    assert "seeded(9)" in out.provenance["source"] and "seeded(9)" in repr(out)
    with pytest.raises(ks.PrivacyError, match="seeded"):
        out.save(str(tmp_path / "r"), unmetered=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_nothing_public_depends_on_the_counts(recipe):
    """Two tables, one seed: recipe, guarantee and provenance are equal but for the random release id."""
    axes = taken_by(recipe, DOMAINS["axes"])
    nobody = ks.Counts.from_coo([], [], axes, Unit("person", "add-remove", 1), data="test-2020")
    first, second = (
        ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(1))
        for counts in (counts_on(axes), nobody)
    )
    noisy = ("preset", "refined", "tuning", "shares") if recipe.parts()["shares"] in ("pilot", "simulation") else ()
    assert all(first.recipe[word] == second.recipe[word] for word in first.recipe if word not in noisy)
    assert first.recipe.keys() == second.recipe.keys() and first.guarantee == second.guarantee
    drop = {"release_id"}
    assert {k: v for k, v in first.provenance.items() if k not in drop} == {
        k: v for k, v in second.provenance.items() if k not in drop
    }
