"""One suite over every registered recipe: what each promises, in docstring, proof page and behaviour."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import kasuri as ks
from kasuri.mechanism import IDEALISED, KEYSTREAM
from kasuri.published import NO_LEDGER
from kasuri.recipes import RECIPES
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.table import PROVIDER_BOUNDED

ROOT = Path(__file__).parents[2]
VARIANTS = [
    ks.geometric(), ks.laplace(), ks.privelet("1d"), ks.privelet("2d"), ks.privelet("morton"), ks.haar_topdown(),
    ks.haar_topdown("1d"), ks.haar_topdown(descent="plain"), ks.haar_topdown(descent="jump"),
    ks.haar_topdown(descent="dense"), ks.haar_topdown(transform="haar"), ks.haar_topdown(transform="nominal"),
    ks.refined_tree(), ks.refined_tree("u4"), ks.refined_tree("tilt16"), ks.refined_tree({0: "0.6", 1: "0.4"}),
    ks.refined_tree(order="1d"), ks.refined_tree(order="hierarchy"),
]  # fmt: skip
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
    return f"{recipe.name}-{recipe.order}-{recipe.transform}-{recipe.descent}-{recipe.shares}"


def test_every_recipe_has_a_variant_here():
    assert {recipe.name for recipe in VARIANTS} == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_docstring_and_proof_page(recipe):
    text = RECIPES[recipe].__doc__
    for word in ("Privacy\n", "Neighbours:", "Sensitivity:", "Guarantee:", "Proof:", "Public:", "Assumes:", "Cost:"):
        assert word in text, word
    page = ROOT / "docs" / "proofs" / f"{recipe}.md"
    assert str(page.relative_to(ROOT)) == RECIPES[recipe]().basis
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
    counts = counts_on(DOMAINS[domain])
    claim = recipe.guarantee(counts.domain, counts.unit, "0.5")
    assert claim.model == "central" and claim.epsilon == Fraction(1, 2) and claim.delta == 0
    assert ("mask" in claim.public) == bool(counts.domain.mask)
    assert claim.assumes == ((IDEALISED,) if recipe.noise == "float Laplace" else (KEYSTREAM,))
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4))
    assert out.guarantee == claim.assuming(PROVIDER_BOUNDED, NO_LEDGER)
    assert (np.diff(out.cells) > 0).all() and (out.values != 0).all()
    assert counts.domain.possible(out.cells).all()
    assert out.to_dense().shape == counts.domain.shape
    if recipe.refine in ("topdown", "least squares"):
        assert (out.values > 0).all()
    again = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4))
    assert np.array_equal(out.values, again.values) and np.array_equal(out.cells, again.cells)
    other = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(5))
    assert not np.array_equal(out.to_dense(), other.to_dense())


@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_little_noise_at_large_epsilon(recipe):
    """Only noise stands between the table and the release: with almost none they agree."""
    for domain in DOMAINS.values():
        counts = counts_on(domain)
        truth = np.zeros(domain.size)
        truth[counts.cells] = counts.values
        out = ks.release(counts, recipe, epsilon="100000", ledger=None, source=ks.seeded(6))
        assert np.allclose(out.to_dense().ravel(), truth, atol=0.05)


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
    nobody = ks.Counts.from_coo([], [], DOMAINS["axes"], Unit("person", "add-remove", 1), data="test-2020")
    first, second = (
        ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(1))
        for counts in (counts_on(DOMAINS["axes"]), nobody)
    )
    assert first.recipe == second.recipe and first.guarantee == second.guarantee
    drop = {"release_id"}
    assert {k: v for k, v in first.provenance.items() if k not in drop} == {
        k: v for k, v in second.provenance.items() if k not in drop
    }
