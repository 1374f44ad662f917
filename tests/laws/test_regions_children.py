"""The children of a node that a box may hold are those that are not apart, on trees of one axis and of several."""

import numpy as np
import pytest

import kasuri as ks
from kasuri.trees.regions import APART, Boxes, BoxSearch


@pytest.mark.parametrize("kind", ["mesh", "pairs", "places"])
def test_children_that_are_left_out_are_apart(kind):
    places = {"code": ["A", "B", "A1", "A2", "B1", "B2", "B3"], "parent": ["", "", "A", "A", "B", "B", "B"]}
    town = {name: ks.Regions(name, places, parent="parent") for name in ("home", "work")}
    axes = {"mesh": (ks.Mesh("g", shape=(5, 7)),), "pairs": tuple(town.values()), "places": (town["home"],)}[kind]
    domain = ks.Domain(axes)
    tree = ks.woven_tree().on(domain, ks.Unit("person", "add-remove", 1), "1").tree
    rng = np.random.default_rng(3)
    low = np.column_stack([rng.integers(0, size, 40) for size in domain.shape])
    high = np.column_stack([rng.integers(at + 1, size + 1) for at, size in zip(low.T, domain.shape, strict=True)])
    boxes = Boxes(low, high).in_places(tree, domain)
    assert boxes is not None
    search, prefix, region, out = BoxSearch(tree, boxes), np.zeros(40, np.int64), np.arange(40), 0
    starts = search.starts()
    for depth, digit in enumerate(tree.digits):
        every = (prefix[:, None] * digit.radix + np.arange(digit.radix)).ravel()
        of = np.repeat(region, digit.radix)
        status = search.status(depth + 1, every, of)
        reached = status != APART
        parent, child, own, starts = search.below(depth, prefix, region, starts)
        assert np.array_equal(child, every[reached]) and np.array_equal(region[parent], of[reached])
        assert np.array_equal(own, status[reached])
        out += int((~reached).sum())
        prefix, region = child, region[parent]
    assert out > 20, "some were left out"
