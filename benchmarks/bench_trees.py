"""Count trees: CPU seconds of refined_tree, bayes_tree and auto, all threads, beside the same measurements in NumPy.

python3 run.py bench trees

Kanto (the example shipped with kasuri), the national 500 m mesh of ../shared/data, and 2^36 cells with about 10^6
non-zeros, of several axes (as in bench_topdown) and of one mesh, epsilon 0.1, from Counts to Release. NumPy measures
the same levels whole, with float noise, and joins them by least squares [Hay2010] from the dense map to the dense map.
auto is compared with bayes_tree. Of the largest also per drawn node: time, and memory (what the peak of the process
grew by).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from bench_topdown import PERSON, census, people
from clock import best, line

import kasuri as ks
from kasuri.recipes.shares import BAYES, REFINED
from kasuri.reproduce.terada2015 import kanto


def seconds(counts: ks.Counts, recipe: ks.Mechanism, repeat: int = 3) -> float:
    ks.release(counts, recipe, epsilon="0.1", ledger=None)
    return best(lambda: ks.release(counts, recipe, epsilon="0.1", ledger=None), repeat)


def peak() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(row.split()[1]) * 1024.0 for row in file if row.startswith("VmHWM"))


def huge() -> dict[str, ks.Counts]:
    """Two tables of 2^36 cells with about 10^6 non-zeros: a mesh with further axes, and towns on one mesh."""
    rng = np.random.default_rng(0)
    cells, values = people(1_000_000, rng)
    cells, first = np.unique(cells >> 1, return_index=True)
    axes = ks.Domain.of(
        ks.Mesh("grid", shape=(2048, 2048)),
        ks.Ordered("age", 16),
        ks.Nominal("sex", ("f", "m")),
        ks.Ordered("home", 512),
    )
    side, town = 1 << 18, rng.integers(0, 2000, 1_000_000)
    centre, size = rng.integers(0, side, (2000, 2)), np.exp(rng.normal(4, 1, 2000))
    place = np.clip(centre[town] + rng.standard_normal((town.size, 2)) * size[town, None], 0, side - 1).astype(np.int64)
    lived, people_there = np.unique(place[:, 0] * side + place[:, 1], return_counts=True)
    mesh = ks.Domain.of(ks.Mesh("grid", shape=(side, side)))
    return {
        "four axes": ks.Counts.from_coo(cells, values[first], axes, PERSON),
        "one mesh": ks.Counts.from_coo(lived, people_there * rng.integers(1, 60, lived.size), mesh, PERSON),
    }


def pooled(table: np.ndarray, side: int) -> np.ndarray:
    """Sums over squares of side x side."""
    rows, cols = (size // side for size in table.shape)
    return table.reshape(rows, side, cols, side).sum(axis=(1, 3))


def numpy_tree(truth: np.ndarray, shares: dict, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Float noise on every node of the measured heights, weighted least squares up and down [Hay2010], cut at 0."""
    heights, sums, z, v = sorted(shares), [truth], [], []
    for low, high in pairwise(heights):
        sums.append(pooled(sums[-1], 1 << (high - low)))
    for at, (height, count) in enumerate(zip(heights, sums, strict=True)):
        scale = 1 / (epsilon * float(shares[height]))
        y, own = count + rng.laplace(0, scale, count.shape), 2 * scale**2
        if at:
            side = 1 << (height - heights[at - 1])
            below, w = pooled(z[-1], side), v[-1] * side**2
            y, own = (y * w + below * own) / (w + own), w * own / (w + own)
        z.append(y)
        v.append(own)
    for at in range(len(z) - 2, -1, -1):
        side = 1 << (heights[at + 1] - heights[at])
        surplus = (z[at + 1] - pooled(z[at], side)) / side**2
        z[at] = z[at] + np.repeat(np.repeat(surplus, side, axis=0), side, axis=1)
    return np.maximum(z[0], 0.0)


def beside_numpy(name: str, counts: ks.Counts, limits: tuple[str, str, str]) -> None:
    """refined_tree and bayes_tree beside NumPy on the same heights, and auto beside bayes_tree."""
    rng, dense, top = np.random.default_rng(0), np.zeros(counts.domain.shape), counts.domain.shape[0].bit_length() - 1
    dense.flat[counts.cells] = counts.values
    took = {}
    for recipe, shares, target in (
        (ks.refined_tree(), REFINED["even16"](top), limits[0]),
        (ks.bayes_tree(), BAYES["middle"](top), limits[1]),
    ):
        mine = took[recipe.name] = seconds(counts, recipe)
        numpy = best(lambda shares=shares: numpy_tree(dense, shares, 0.1, rng), 2)
        line(f"{name}: NumPy / {recipe.name} ({numpy:.2f} / {mine:.3f} s)", f"{numpy / mine:.1f}", target)
    mine = seconds(counts, ks.auto())
    line(f"{name}: auto / bayes_tree ({mine:.2f} s)", f"{mine / took['bayes_tree']:.1f}", limits[2])


def main() -> None:
    counts, _ = kanto()
    beside_numpy("Kanto", counts, ("", "", ""))
    recipe = ks.bayes_tree(pilot=True)
    line("Kanto, bayes_tree with a pilot", f"{seconds(counts, recipe):.2f} CPU s", "(< 0.5)")
    real = census()
    if real is None:
        print("  ../shared/data is not there: the national mesh is skipped")
    else:
        counts = ks.Counts.from_coo(*real, ks.Domain.of(ks.Mesh.window("grid", "japan4096")), PERSON)
        beside_numpy("national mesh", counts, ("", "", "(<= 3)"))
    for name, counts in huge().items():
        for recipe, target in ((ks.refined_tree(), "(< 20)"), (ks.bayes_tree(), "")):
            before, drawn = peak(), []
            cpu = best(
                lambda counts=counts, recipe=recipe, drawn=drawn: drawn.append(
                    ks.release(counts, recipe, epsilon="0.1", ledger=None).measurements.value.size
                ),
                1,
            )
            line(f"2^36 cells, {name}, {counts.cells.size:,} non-zeros, {recipe.name}", f"{cpu:.2f} CPU s", target)
            used = f"{(peak() - before) / drawn[0]:.0f} bytes each, {cpu / drawn[0] * 1e6:.2f} us each"
            line(f"    {drawn[0]:,} drawn nodes, peak {peak() / 1e9:.2f} GB", used)


if __name__ == "__main__":
    main()
