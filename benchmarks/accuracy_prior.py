"""What a declared earlier table is worth: errors of bayes_tree with and without it, by area size.

nice .venv/bin/python benchmarks/accuracy_prior.py [--runs 20] [--data FOLDER]

Epsilon 0.1. People flow: weekday nights of December 2019 on the 1 km mesh of Tokyo, the month before as prior. Census:
Kanto and Kyushu, the prior a public perturbation (every cell changed by about 12 %, one in thirty exchanged). Maps and
errors as in accuracy.py; printed: MAE and RMSE at 1, 4, 16, 64 and 256 cells, and the ratio of cell RMSEs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from accuracy import DATA, PERSON, Errors, measure, summary, truth_of

import kasuri as ks
from kasuri import meshcode
from kasuri.ingest import read_table

ORIGIN, SIDE = (4224, 3088), 128


def flow(data: Path, year: int, month: int) -> np.ndarray:
    """People at night on weekdays, summed over municipalities, in a window around Tokyo."""
    table = read_table(data / "jp_flow1km_tokyo_2019_2021.parquet")
    column = {
        name: table[name].to_numpy() for name in ("mesh1km", "year", "month", "dayflag", "timezone", "population")
    }
    own = (column["year"] == year) & (column["month"] == month) & (column["dayflag"] == 1) & (column["timezone"] == 1)
    row, col = meshcode.decode(column["mesh1km"][own], "1km")
    row, col = row - ORIGIN[0], col - ORIGIN[1]
    keep = (row >= 0) & (row < SIDE) & (col >= 0) & (col < SIDE)
    out = np.zeros((SIDE, SIDE), dtype=np.int64)
    np.add.at(out, (row[keep], col[keep]), column["population"][own][keep].astype(np.int64))
    return out


def perturbed(truth: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(7)
    out = np.round(truth * np.exp(rng.normal(0, 0.12, truth.shape))).astype(np.int64)
    moved = rng.random(truth.shape) < 0.03
    out[moved] = rng.permutation(out[moved])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    tables = {"people flow": (flow(options.data, 2019, 12), flow(options.data, 2019, 11))}
    for name in ("kanto", "kyushu"):
        truth = truth_of(name, options.data)
        tables[name] = truth, perturbed(truth)
    for name, (truth, earlier) in tables.items():
        domain = ks.Domain.of(ks.Mesh("grid", shape=truth.shape))
        counts, errors = ks.Counts.from_dense(truth, domain, PERSON), Errors(truth)
        prior = ks.PublicTable.from_dense(earlier, domain, name="earlier")
        calls = {
            "bayes_tree()": ks.bayes_tree(),
            "bayes_tree(pilot=True)": ks.bayes_tree(pilot=True),
            'bayes_tree("dense")': ks.bayes_tree("dense"),
            "bayes_tree(prior=...)": ks.bayes_tree(prior=prior),
        }
        found = {call: summary(measure(counts, errors, recipe, options.runs, 0)) for call, recipe in calls.items()}
        own = found["bayes_tree(prior=...)"][1, 0, 0]
        for call, row in found.items():
            numbers = " | ".join(" ".join(f"{value:6.1f}" for value in row[m, 0, :5]) for m in range(2))
            print(f"{name:12}{call:24} {numbers} | cell RMSE with prior / this: {own / row[1, 0, 0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
