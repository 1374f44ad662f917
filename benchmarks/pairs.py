"""Two checkouts against each other: the same releases by turns, CPU time, the median of the ratios.

    python benchmarks/pairs.py ../older-checkout            # 15 pairs
    python benchmarks/pairs.py ../older-checkout --pairs 5

Each checkout runs in a process of its own that stays alive (compiled kernels loaded, inputs made once); a pair is one
run of each, in an order that alternates. A ratio above 1 says that this checkout is slower. Cases: plain noise on 2^22
cells, `haar_topdown` on the shipped census and on 2^37 cells with 10^6 non-zero ones, count trees on the census, and
`interval` and `save` of a release.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

WORKER = r"""
import shutil, sys, tempfile, time
import numpy as np
import kasuri as ks
from kasuri.reproduce.terada2015 import kanto

unit = ks.Unit(id="person", change="add-remove", max_cells=1)
census, _ = kanto()
side = ks.Domain.of(ks.Mesh("grid", shape=(2048, 2048)))
flat = ks.Counts.from_coo(np.arange(0, side.size, 7), np.full(-(-side.size // 7), 3), side, unit, data="made")
wide = ks.Domain.of(ks.Mesh("grid", shape=(2048, 2048)), ks.Ordered("a", 1 << 15))
cells = np.unique(np.random.default_rng(0).integers(0, wide.size, 1_000_000))
huge = ks.Counts.from_coo(cells, np.ones(cells.size, np.int64), wide, unit, data="made")
made = ks.release(census, ks.refined_tree(), epsilon="0.1", ledger=None)
folder = tempfile.mkdtemp()


def drawn(counts, recipe):
    return lambda: ks.release(counts, recipe, epsilon="0.1", ledger=None)


def saved():
    made.save(folder + "/out", unmetered=True)
    shutil.rmtree(folder + "/out")


CASES = {
    "noise on 2^22 cells": drawn(flat, ks.geometric()),
    "haar_topdown, census": drawn(census, ks.haar_topdown()),
    "haar_topdown, 2^37 cells": drawn(huge, ks.haar_topdown()),
    "refined_tree, census": drawn(census, ks.refined_tree()),
    "bayes_tree, census": drawn(census, ks.bayes_tree()),
    "interval of an area": lambda: [made.interval(rows=slice(i, 200 + i), cols=slice(30, 170)) for i in range(40)],
    "save": saved,
}
for case in CASES.values():
    case()
print("ready", flush=True)
for line in sys.stdin:
    start = time.process_time()
    CASES[line.strip()]()
    print(time.process_time() - start, flush=True)
"""
CASES = (
    "noise on 2^22 cells",
    "haar_topdown, census",
    "haar_topdown, 2^37 cells",
    "refined_tree, census",
    "bayes_tree, census",
    "interval of an area",
    "save",
)


def started(checkout: Path) -> subprocess.Popen[str]:
    environment = dict(os.environ, PYTHONPATH=str(checkout / "src"))
    command = [sys.executable, "-c", WORKER]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, cwd=checkout, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{checkout} does not run"
    return process


def took(process: subprocess.Popen[str], case: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(case + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    asked = parser.parse_args()
    old, new = started(asked.older.resolve()), started(HERE)
    print(f"{'CPU s, median of ' + str(asked.pairs) + ' pairs':32}{'older':>9}{'here':>9}{'ratio':>8}")
    for case in CASES:
        times: list[tuple[float, float]] = []
        for i in range(asked.pairs):
            if i % 2:
                here = took(new, case)
                times.append((took(old, case), here))
            else:
                before = took(old, case)
                times.append((before, took(new, case)))
        ratio = statistics.median(b / a for a, b in times)
        older, here = (statistics.median(pair[i] for pair in times) for i in (0, 1))
        print(f"{case:32}{older:9.4f}{here:9.4f}{ratio:8.3f}", flush=True)
    for process in (old, new):
        process.kill()


if __name__ == "__main__":
    main()
