"""Mean error of every recipe by kind of area: the measurements behind what kasuri/words/bias.py says.

nice .venv/bin/python benchmarks/bias.py [--runs 20] [--epsilon 0.1] [--only fourier]

Three tables of mesh x sex (2) x age (3): the 2020 census around Tokyo, 256 x 256 cells of 500 m, each cell's people
split at random, once, over the sexes (49 and 51 %) and ages (12, 60 and 28 %); its sums over 8 x 8 large blocks, for
recipes of at most 1024 cells; and 4,000 people spread over those blocks in the same proportions. An error is released
less true: its mean over the runs +- one standard error. Cells and blocks: the mean over all of the kind.
"""

from __future__ import annotations

import argparse

import numpy as np
from pyarrow import parquet

import kasuri as ks
from kasuri import examples, meshcode, recipes
from kasuri.recipes.mechanism import Mechanism

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
SHARES = np.outer((0.49, 0.51), (0.12, 0.60, 0.28)).ravel()
LARGE: dict[str, Mechanism] = {
    "geometric": ks.geometric(),
    "laplace": ks.laplace(),
    "privelet": ks.privelet(),
    "hierarchy": recipes.hierarchy("morton"),
    "haar_topdown": ks.haar_topdown(),
    "refined_tree": ks.refined_tree(),
    "bayes_tree": ks.bayes_tree(),
    "auto": ks.auto(),
    "simplex": ks.simplex(),
    "neg_l2_simplex": ks.neg_l2_simplex(),
    "nonneg_lasso": ks.nonneg_lasso(),
    "lasso": ks.lasso(),
    "sparse": recipes.sparse(),
    "woven_tree": recipes.woven_tree(),
}
SMALL: dict[str, Mechanism] = {
    "matrix": recipes.matrix(),
    "fourier(1)": recipes.fourier(1),
    "fourier(2)": recipes.fourier(2),
}


def census() -> np.ndarray:
    """rows x cols x sex x age: the middle of the window."""
    mesh, table = examples.kanto_domain().axes[0], parquet.read_table(examples.KANTO)
    assert isinstance(mesh, ks.Mesh)
    row, col = meshcode.decode(table["mesh_code"].to_numpy(), "500m")
    dense = np.zeros(mesh.shape, dtype=np.int64)
    dense[row - mesh.origin[0], col - mesh.origin[1]] = table["population"].to_numpy()
    split = np.random.default_rng(1).multinomial(dense[128:384, 128:384], SHARES)
    return split.reshape(256, 256, 2, 3)


def kinds(truth: np.ndarray) -> dict[str, np.ndarray]:
    """kind of area -> the weights of the cells in it."""
    place, index = truth.sum(axis=(2, 3), keepdims=True), np.indices(truth.shape)
    side = truth.shape[0] // 4
    block = place.reshape(4, side, 4, side).sum(axis=(1, 3)).repeat(side, 0).repeat(side, 1)[:, :, None, None]
    low, middle, high = truth == 0, (truth > 0) & (truth < 10), truth >= 100
    found = {
        "empty cell": low / max(low.sum(), 1),
        "cell of 1-9": middle / max(middle.sum(), 1),
        "cell of 100 or more": high / max(high.sum(), 1),
        "block, the emptier half": np.broadcast_to(block < np.median(block), truth.shape) / 8,
        "block, the fuller half": np.broadcast_to(block >= np.median(block), truth.shape) / 8,
        "every third row": (index[0] % 3 == 0) * 1.0,
        "places of 1-99 people": np.broadcast_to((place > 0) & (place < 100), truth.shape) * 1.0,
    }
    for name, axis in (("sex", 2), ("age", 3)):
        found |= {f"margin, {name} {i}": (index[axis] == i) * 1.0 for i in range(truth.shape[axis])}
    return {name: weight for name, weight in found.items() if weight.any()} | {"total": np.ones(truth.shape)}


def study(name: str, mechanism: Mechanism, truth: np.ndarray, epsilon: str, runs: int) -> None:
    mesh = ks.Mesh("grid", shape=(truth.shape[0], truth.shape[1]))
    domain = ks.Domain.of(mesh, ks.Nominal("sex", labels=("f", "m")), ks.Ordered("age", 3))
    counts, weights, found = ks.Counts.from_dense(truth, domain, UNIT), kinds(truth), []
    for seed in range(runs):
        out = ks.release(counts, mechanism, epsilon=epsilon, ledger=None, source=ks.seeded(seed))
        gap = out.to_dense() - truth
        found.append([float((weight * gap).sum()) for weight in weights.values()])
    errors = np.array(found)
    mean, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / runs**0.5
    print(f"\n{name}, epsilon {epsilon}, {runs} runs, {truth.size:,} cells, {int(truth.sum()):,} people")
    for kind, m, e in zip(weights, mean, error, strict=True):
        of = float((weights[kind] * truth).sum())
        print(f"  {kind:24} {m:+14,.2f} +- {e:10,.2f}   of {of:,.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilon", default="0.1")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    large = census()
    small = large.reshape(8, 32, 8, 32, 2, 3).sum(axis=(1, 3))
    few = np.random.default_rng(2).multinomial(4000, (small / small.sum()).ravel()).reshape(small.shape)
    for truth, mechanisms in ((large, LARGE), (small, SMALL), (few, SMALL | LARGE)):
        for name, mechanism in mechanisms.items():
            runs = options.runs
            if truth is few and name in ("haar_topdown", "refined_tree", "bayes_tree"):  # cheap
                runs *= 10
            elif truth is large and name in ("auto", "neg_l2_simplex", "nonneg_lasso", "lasso"):  # dear
                runs = max(runs // 4, 4)
            if options.only in name:
                study(name, mechanism, truth, options.epsilon, runs)


if __name__ == "__main__":
    main()
