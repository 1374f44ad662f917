"""Count trees: CPU seconds of refined_tree and bayes_tree, all threads, from Counts to Release.

python3 run.py bench trees

Kanto (the example shipped with kasuri), the national 500 m mesh of ../shared/data, and 2^36 cells with about 10^6
non-zeros, of several axes (as in bench_topdown) and of one mesh, epsilon 0.1. Of the largest also per drawn node: time,
and memory (what the peak of the process grew by).
"""

from __future__ import annotations

import numpy as np
from bench_topdown import PERSON, census, people
from clock import best, line

import kasuri as ks
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


def main() -> None:
    counts, _ = kanto()
    for recipe, target in (
        (ks.bayes_tree(pilot=True), "(< 0.5)"),
        (ks.bayes_tree(), "(< 0.5)"),
        (ks.refined_tree(), ""),
    ):
        line(f"Kanto, {recipe.name} {recipe.parts()['shares']}", f"{seconds(counts, recipe):.2f} CPU s", target)
    real = census()
    if real is None:
        print("  ../shared/data is not there: the national mesh is skipped")
    else:
        counts = ks.Counts.from_coo(*real, ks.Domain.of(ks.Mesh.window("grid", "japan4096")), PERSON)
        for recipe, target in ((ks.bayes_tree(pilot=True), "(< 3)"), (ks.refined_tree(), "(< 1)")):
            what = f"national mesh, {recipe.name} {recipe.parts()['shares']}"
            line(what, f"{seconds(counts, recipe):.2f} CPU s", target)
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
