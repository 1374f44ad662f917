"""What a stopwatch tells: the time of a release by how full its table is, and by whether one person is in it.

    python benchmarks/timing.py            # some minutes
    python benchmarks/timing.py --runs 50

Processor time of `release` on one thread, from counts in memory, 512 x 512 cells, epsilon 0.1. Two tables are run in
turn, in random order; "told apart" is the chance that the run with the person takes longer than one without (0.5: the
stopwatch tells nothing), with its 95 % interval.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import numpy as np

import kasuri as ks

DOMAIN = ks.Domain.of(ks.Mesh("grid", shape=(512, 512)))
UNIT = ks.Unit("person", "add-remove", 1)
RECIPES = {"haar_topdown": ks.haar_topdown(), "refined_tree": ks.refined_tree(), "geometric": ks.geometric()}


def table(people: int, seed: int = 1) -> ks.Counts:
    cells, values = np.unique(np.random.default_rng(seed).integers(0, DOMAIN.size, people), return_counts=True)
    return ks.Counts.from_coo(cells, values, DOMAIN, UNIT, data="clock")


def one_more(counts: ks.Counts) -> ks.Counts:
    """One person in the first cell that was empty."""
    dense = np.zeros(DOMAIN.size, np.int64)
    dense[counts.cells] = counts.values
    dense[np.flatnonzero(dense == 0)[0]] += 1
    return ks.Counts.from_dense(dense.reshape(512, 512), DOMAIN, UNIT, data="clock")


def took(recipe: ks.Mechanism, counts: ks.Counts) -> float:
    start = time.process_time()
    ks.release(counts, recipe, epsilon="0.1", ledger=None, threads=1)
    return time.process_time() - start


def apart(recipe: ks.Mechanism, one: ks.Counts, other: ks.Counts, runs: int) -> tuple[float, float]:
    """P(other takes longer), and half its 95 % interval (Mann-Whitney)."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for which in random.sample((0, 1), 2):
            times[which].append(took(recipe, (one, other)[which]))
    a, b = (np.array(part) for part in times)
    share = float(((b[:, None] > a) + 0.5 * (b[:, None] == a)).mean())
    return share, 1.96 * ((2 * runs + 1) / (12 * runs * runs)) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    sizes = (0, 1000, 100_000, 1_000_000)
    print(f"{'ms of processor time, people:':30}" + "".join(f"{people:>12,}" for people in sizes))
    for name, recipe in RECIPES.items():
        took(recipe, table(1000))
        medians = [statistics.median(took(recipe, table(people)) for _ in range(7)) for people in sizes]
        print(f"{name:30}" + "".join(f"{1000 * median:12.1f}" for median in medians))
    print(f"{'told apart by one person:':30}" + "".join(f"{people:>18,}" for people in sizes[:3]))
    for name, recipe in RECIPES.items():
        found = [apart(recipe, table(people), one_more(table(people)), runs) for people in sizes[:3]]
        print(f"{name:30}" + "".join(f"{share:11.3f} +-{half:5.3f}" for share, half in found))


if __name__ == "__main__":
    main()
