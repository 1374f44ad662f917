"""auto: candidates are tried on parts of a map, which are trees of their own; a release names the version."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import FormatError
from kasuri.noise.rng import Streams, seeded
from kasuri.recipes import simulated
from kasuri.recipes.descent import by_key
from kasuri.recipes.read import read
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree
from kasuri.trees import order
from kasuri.trees.part import Part

PERSON = ks.Unit("p", "add-remove", 1)
TREES = {
    "masked": order.morton(
        Domain.of(Mesh("g", shape=(7, 13)), mask=np.random.default_rng(0).random((7, 13)) < 0.3),
    ),
    "grouped": order.hierarchy(
        Domain.of(Ordered("age", 3), Nominal("w", tuple("abc"), Tree.of({"x": ["a", "b"], "y": ["c"]})))
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_a_part_has_what_lies_below_its_nodes(name):
    tree, rng, root = TREES[name], np.random.default_rng(1), np.zeros(1, dtype=np.int64)
    for at in range(tree.depth + 1):
        nodes, _ = tree.children(root, 0, at)
        kept = np.sort(rng.choice(nodes, max(1, nodes.size // 3), replace=False))
        part = Part.of(tree, at, kept)
        leaves, _ = tree.children(kept, at, tree.depth)
        for start in range(tree.depth + 1):
            parents = np.unique(leaves // tree.stride(start))
            for end in range(start, tree.depth + 1):
                found, first = part.children(parents, start, end)
                assert np.array_equal(found, np.unique(leaves // tree.stride(end)))
                owner = np.repeat(parents, np.diff(first))
                assert np.array_equal(owner, found // tree.width(start, end))


def people(shape=(512, 512)):
    rng = np.random.default_rng(2)
    truth = rng.poisson(rng.pareto(1.2, (shape[0] // 8, shape[1] // 8)).clip(0, 300)[:, :, None, None], (64, 64, 8, 8))
    return ks.Counts.from_dense(truth.swapaxes(1, 2).reshape(shape), Domain.of(Mesh("g", shape=shape)), PERSON)


def scene(counts, recipe, area):
    run = recipe.run(counts.domain, PERSON, "0.1")
    keys, values = by_key(run.tree, run.domain, counts.cells, counts.values)
    pilot = run.offer.measure(keys, values, Streams(seeded(1).release_key(), "auto"))
    return run.offer, simulated._Scene.of(run.offer, pilot, area)


@pytest.mark.parametrize("public", [False, True])
def test_a_part_is_a_quarter_of_a_small_map_and_mixed_as_it_is(public):
    counts = people()
    prior = ks.PublicTable.from_coo(counts.cells, counts.values, counts.domain, name="before") if public else None
    offer, found = scene(counts, ks.auto(prior=prior), 1)
    rng, seen = np.random.default_rng(3), []
    for _ in range(2):
        own, keys, values = found.drawn(rng)
        kept = own.tree.kept
        assert kept.size * 4 == found.nodes.size and np.isin(keys // offer.tree.stride(found.at), kept).all()
        assert 0.2 < values.sum() / found.people.sum() < 0.3
        assert prior is None or np.isin(own.tree.keys(own.prior.cells) // own.tree.stride(found.at), kept).all()
        seen.append(kept)
    assert not np.array_equal(*seen)


def test_areas_as_large_as_parts_are_tried_on_whole_maps():
    offer, found = scene(people(), ks.auto((256,)), 256)
    assert found.count == found.nodes.size
    assert found.drawn(np.random.default_rng(3))[0] is offer


def test_who_is_behind_is_tried_no_further():
    scores = {"a": np.array([0.0, 0.1]), "b": np.array([0.10, 0.2]), "c": np.array([0.02, 0.12]), "d": np.array([1, 0])}
    assert simulated._ahead(scores, 2.5) == ("a", ["a", "c"])
    assert simulated._ahead(scores, np.inf) == ("a", ["a", "b", "c"])
    first = {name: own[:1] for name, own in scores.items()}
    assert simulated._ahead(first, 2.5) == ("a", ["a", "b", "c"])


def test_a_large_map_is_tried_once_as_a_whole_and_four_times_in_parts():
    large = SimpleNamespace(tree=SimpleNamespace(leaves=simulated.LARGE + 1))
    nodes = np.arange(8)
    for count, turns in ((8, 1), (2, 4)):
        found = simulated._Scene(large, None, None, None, 0, nodes, None, count)
        assert found.turns(simulated.VERSIONS[2]) == turns


def test_a_release_names_its_version_and_an_older_one_is_read_as_the_first():
    counts = ks.Counts.from_dense(np.full((8, 8), 9), Domain.of(Mesh("g", shape=(8, 8))), PERSON)
    out = ks.release(counts, ks.auto(order="morton"), epsilon="1", ledger=None, source=ks.seeded(1))
    words = dict(out.recipe)
    assert words["arguments"]["version"] == 2
    assert read(words, out.domain, PERSON, "1").mechanism.chooser.version == 2
    told = {name: word for name, word in words["arguments"].items() if name != "version"}
    older = read(words | {"arguments": told}, out.domain, PERSON, "1").mechanism
    assert older.chooser.version == 1 and "version" not in older.run(out.domain, PERSON, "1").words()["arguments"]
    newer = replace(older, chooser=replace(older.chooser, version=2))
    assert older.plan(out.domain, PERSON, "1") == newer.plan(out.domain, PERSON, "1")  # declared series go on
    for version in (1, 3, "2"):
        with pytest.raises(FormatError):
            read(words | {"arguments": told | {"version": version}}, out.domain, PERSON, "1")
