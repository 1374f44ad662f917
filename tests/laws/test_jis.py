"""order="jis": every standard cell is a node, the sensitivity is exact, and releases add up, also on cut windows."""

import numpy as np
import pytest
from reference.sensitivity import brute_force, mask

import kasuri as ks
from kasuri import meshcode
from kasuri.schema import Domain, Mesh, Nominal, Unit
from kasuri.trees import order, transform

WINDOWS = {
    "inside": Domain.of(Mesh("g", "10km", (424, 312), shape=(2, 3))),
    "across 80 km": Domain.of(Mesh("g", "10km", (423, 311), shape=(3, 2))),
    "5 km": Domain.of(Mesh("g", "5km", (848 + 7, 624 + 1), shape=(3, 2))),
    "2 km": Domain.of(Mesh("g", "2km", (2120 + 3, 1560), shape=(3, 1))),
    "one cell": Domain.of(Mesh("g", "10km", (424, 312), shape=(1, 1))),
    "masked": Domain.of(Mesh("g", "10km", (423, 312), shape=(2, 3)), mask=mask((2, 3), [(0, 0), (1, 1)])),
    "with sex": Domain.of(Mesh("g", "10km", (424, 312), shape=(2, 2)), Nominal("sex", ("f", "m", "x"))),
    "whole 80 km": Domain.of(Mesh("g", "80km", (53, 39), shape=(2, 3))),
}


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("name", WINDOWS)
def test_sensitivity_by_brute_force(name, change):
    tree = order.jis(WINDOWS[name])
    made = transform.nominal(tree)
    found = brute_force(made.forward, made.weights, tree.leaves, tree.possible_leaves(), change, 1)
    assert found == tree.cost(change)


@pytest.mark.parametrize("level", ["1km", "500m", "250m"])
def test_standard_cells_are_nodes(level):
    """The keys of the cells of a 10 km (and 80 km, 1 km) mesh are one aligned range."""
    per = meshcode.LEVELS[level].per_first
    domain = Domain.of(Mesh("g", level, (53 * per - per // 8, 39 * per + 3), shape=(per // 4 + 3, per // 4)))
    tree = order.jis(domain)
    cells = np.arange(domain.size)
    keys = tree.keys(cells)
    assert np.array_equal(tree.cells(keys), cells) and np.unique(keys).size == cells.size
    row, col = domain.unravel(cells)
    mesh = domain.axes[0]
    for coarse in ("80km", "10km", "1km"):
        side = per // meshcode.LEVELS[coarse].per_first
        node = keys // side**2  # a node of the tree is a range of side^2 keys
        code = meshcode.encode((row + mesh.origin[0]) // side, (col + mesh.origin[1]) // side, coarse)
        pairs = {(int(a), int(b)) for a, b in zip(node, code, strict=True)}
        assert len(pairs) == np.unique(node).size == np.unique(code).size


@pytest.mark.parametrize("name", WINDOWS)
def test_releases_are_whole_numbers_on_possible_cells(name):
    domain = WINDOWS[name]
    dense = np.random.default_rng(3).poisson(50, domain.shape) * domain.possible_dense()
    counts = ks.Counts.from_dense(dense, domain, Unit("person", "add-remove", 1))
    out = ks.release(counts, ks.haar_topdown(order="jis"), epsilon="100 weak", ledger=None, source=ks.seeded(2))
    assert np.array_equal(out.to_dense(), dense)  # at a large epsilon nothing is lost on the way
    noisy = ks.release(counts, ks.haar_topdown(order="jis"), epsilon="0.05", ledger=None, source=ks.seeded(2))
    assert noisy.values.min(initial=1) > 0 and domain.possible(noisy.cells).all()
    assert noisy.recipe["order"] == "jis"


@pytest.mark.parametrize("recipe", [ks.refined_tree("u4", "jis"), ks.bayes_tree(order="jis"), ks.auto(order="jis")])
def test_count_trees_measure_standard_cells(recipe):
    """Along the standard grid too, and areas of standard cells have intervals as narrow as a few noisy counts."""
    domain = Domain.of(Mesh("g", "5km", (848 + 7, 624 + 1), shape=(9, 8)), Nominal("sex", ("f", "m")))
    dense = np.random.default_rng(3).poisson(50, domain.shape)
    counts = ks.Counts.from_dense(dense, domain, Unit("person", "add-remove", 1))
    out = ks.release(counts, recipe, epsilon="20", ledger=None, source=ks.seeded(2))
    assert out.recipe["order"] == "jis" and np.abs(out.to_dense() - dense).max() <= 2
    found = out.interval(code=meshcode.encode(np.array([428]), np.array([313]), "10km")[0])
    true = dense[1:3, 1:3].sum()
    assert found.lower <= true <= found.upper and found.upper - found.lower < 8


def test_what_jis_cannot_do():
    counts = ks.Counts.from_dense(np.ones((2, 2), int), Domain.of(Mesh("g", shape=(2, 2))), Unit("p", "add-remove", 1))
    with pytest.raises(ks.DomainError, match="no level"):
        ks.release(counts, ks.haar_topdown(order="jis"), epsilon="1", ledger=None)
    with pytest.raises(ks.DomainError, match="binary"):
        ks.haar_topdown(order="jis", transform="haar")
