"""What auto loses against the best preset in hindsight, on nine maps and for three kinds of areas.

nice .venv/bin/python benchmarks/accuracy_auto.py [--runs 10] [--maps kanto,kinki] [--data FOLDER] [--version 1]

Epsilon 0.1. For every map and workload: the geometric mean over area sizes of auto's error (its pilot paid from the
same epsilon) over that of the preset that turns out best for this map, less 1. Maps and errors as in accuracy.py.
Version 1 of auto tries the candidates on whole maps.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from accuracy import DATA, MAPS, PERSON, Errors, measure, summary, truth_of

import kasuri as ks
from kasuri.recipes.simulated import VERSIONS

WORKLOADS = {"cells": (1,), "blocks": (256, 1024, 4096), "mixed": (1, 16, 256, 4096)}
PRESETS = {name: ks.bayes_tree(name) for name in ("sparse", "scattered", "middle", "dense")} | {
    name: ks.refined_tree(name) for name in ("u4", "even16", "tilt16")
}


def score(found: np.ndarray, areas: tuple[int, ...], metric: str) -> float:
    row = found[("mae", "rmse").index(metric), 0]
    return float(np.exp(np.mean([np.log(row[(area.bit_length() - 1) // 2]) for area in areas])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--maps", default=",".join(MAPS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--version", type=int, choices=VERSIONS, default=max(VERSIONS))
    options = parser.parse_args()
    regrets: dict[str, list[float]] = {name: [] for name in WORKLOADS}
    for at, name in enumerate(options.maps.split(",")):
        truth = truth_of(name, options.data)
        counts = ks.Counts.from_dense(truth, ks.Domain.of(ks.Mesh("grid", shape=truth.shape)), PERSON)
        errors = Errors(truth)
        runs = options.runs if truth.shape[0] < 2000 else max(options.runs // 5, 1)
        rows = {preset: summary(measure(counts, errors, recipe, 2 * runs, 0)) for preset, recipe in PRESETS.items()}
        for workload, areas in WORKLOADS.items():
            auto = ks.auto(areas)
            auto = replace(auto, chooser=replace(auto.chooser, version=options.version))
            own = summary(measure(counts, errors, auto, runs, 500_000 + 10_000 * at))
            scores = {preset: score(row, areas, "rmse") for preset, row in rows.items()}
            best = min(scores, key=lambda preset: scores[preset])
            regret = score(own, areas, "rmse") / scores[best] - 1
            regrets[workload].append(regret)
            print(f"{name:10} {workload:7} best in hindsight {best:7} auto loses {100 * regret:6.1f} %", flush=True)
    for workload, values in regrets.items():
        print(f"mean over {len(values)} maps, {workload}: {100 * float(np.mean(values)):.1f} % (target 10)")


if __name__ == "__main__":
    main()
