"""refined_tree on the Kanto census at epsilon 0.1: the known rows, and better than the top-down method."""

import numpy as np

import kasuri as ks
from kasuri.reproduce.terada2015 import HEIGHTS, block_sums, kanto

EVEN16 = [35.3, 65.5, 49.2, 90.6, 58.6]
TILT16 = [19.6, 38.2, 56.4, 104, 77.1]
TERADA = [64.8, 85.8, 104.8, 120.5, 134.1, 143.8, 149.1, 152.5, 161.2, 268.7]


def rmse(recipe, runs):
    counts, truth = kanto()
    squares = []
    for seed in range(runs):
        out = ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(seed)).to_dense()
        assert (out >= 0).all()
        errors = [block_sums(out, 1 << h // 2) - block_sums(truth, 1 << h // 2) for h in HEIGHTS]
        squares.append([(error.astype(float) ** 2).mean() for error in errors])
    return np.sqrt(np.mean(squares, axis=0))


def test_even16():
    found = rmse(ks.refined_tree("even16"), 8)
    assert np.allclose(found[:5], EVEN16, rtol=0.03)
    assert (found[:6] <= 0.8 * np.array(TERADA[:6])).all()  # larger blocks need more runs: see the benchmarks


def test_tilt16():
    assert np.allclose(rmse(ks.refined_tree("tilt16"), 6)[:5], TILT16, rtol=0.04)
