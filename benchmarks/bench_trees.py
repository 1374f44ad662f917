"""Count trees: CPU seconds of refined_tree and bayes_tree, all threads, from Counts to Release.

python3 run.py bench trees

Kanto (the example shipped with kasuri), the national 500 m mesh of ../shared/data, and 2^36 cells with about 10^6
non-zeros (as in bench_topdown), epsilon 0.1. Memory of the largest: peak of the process, and per drawn node.
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


def main() -> None:
    counts, _ = kanto()
    for recipe, target in (
        (ks.bayes_tree(pilot=True), "(< 0.5)"),
        (ks.bayes_tree(), "(< 0.5)"),
        (ks.refined_tree(), ""),
    ):
        line(f"Kanto, {recipe.name} {recipe.shares}", f"{seconds(counts, recipe):.2f} CPU s", target)
    real = census()
    if real is None:
        print("  ../shared/data is not there: the national mesh is skipped")
    else:
        counts = ks.Counts.from_coo(*real, ks.Domain.of(ks.Mesh.window("grid", "japan4096")), PERSON)
        for recipe, target in ((ks.bayes_tree(pilot=True), "(< 3)"), (ks.refined_tree(), "(< 1)")):
            line(f"national mesh, {recipe.name} {recipe.shares}", f"{seconds(counts, recipe):.2f} CPU s", target)
    cells, values = people(1_000_000, np.random.default_rng(0))
    cells, first = np.unique(cells >> 1, return_index=True)
    domain = ks.Domain.of(
        ks.Mesh("grid", shape=(2048, 2048)),
        ks.Ordered("age", 16),
        ks.Nominal("sex", ("f", "m")),
        ks.Ordered("home", 512),
    )
    counts = ks.Counts.from_coo(cells, values[first], domain, PERSON)
    before = peak()
    drawn = []
    cpu = best(
        lambda: drawn.append(
            ks.release(counts, ks.refined_tree(), epsilon="0.1", ledger=None).measurements.value.size  # type: ignore[union-attr]
        ),
        1,
    )
    line(f"2^36 cells, {cells.size:,} non-zeros, refined_tree", f"{cpu:.2f} CPU s", "(< 20)")
    used = f"{(peak() - before) / drawn[0]:.0f} bytes each"
    line(f"    {drawn[0]:,} drawn nodes, peak {peak() / 1e9:.2f} GB", used)


if __name__ == "__main__":
    main()
