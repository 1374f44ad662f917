"""Four ways to synthesise joined rows of Adult, by epsilon: means, correlations, and a model trained on synthetic rows.

python benchmarks/shuffle_synthesis.py ADULT.csv.gz [--runs N]. The training rows (age, education, hours, capital gain
as numbers; sex, married and income as labels) go through every column's randomizer as a Party does; 30,000 synthetic
rows are made by each method. `means`: largest distance of a mean or share from the truth, in true deviations.
`correlation`: mean absolute distance off the diagonal, labels as 0/1. `accuracy`: share of the UCI test rows whose
income a least-squares model trained on the synthetic rows gets right; the same model on the true training rows, and
always "<=50K", beside it.
"""

from __future__ import annotations

import argparse
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kasuri as ks
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.synthesis import METHODS

NUMBERS = {"age": (17, 90), "education_num": (1, 16), "hours_per_week": (1, 99), "capital_gain": (0, 99999)}
LABELS = {"sex": ("Female", "Male"), "married": ("no", "yes"), "income": ("<=50K", ">50K")}
EPSILONS = ("0.5", "1", "2", "4", "8")

Rows = dict[str, NDArray[Any]]


def adult(path: str) -> tuple[Rows, Rows]:
    """(training rows, test rows) without missing values."""
    from pyarrow import csv

    table = csv.read_csv(path).to_pydict()
    complete = [
        i
        for i in range(len(table["age"]))
        if "?" not in (table["workclass"][i], table["occupation"][i], table["native_country"][i])
    ]

    def pick(split: str) -> Rows:
        at = [i for i in complete if table["split"][i] == split]
        out: Rows = {name: np.array([float(table[name][i]) for i in at]) for name in NUMBERS}
        out["sex"] = np.array([table["sex"][i] for i in at])
        out["married"] = np.array(["yes" if table["marital_status"][i].startswith("Married") else "no" for i in at])
        out["income"] = np.array([table["income"][i] for i in at])
        return out

    return pick("train"), pick("test")


def matrix(rows: Rows) -> NDArray[np.float64]:
    """One column a number or the second label."""
    parts = [rows[name].astype(float) for name in NUMBERS]
    return np.stack([*parts, *((rows[name] == labels[1]).astype(float) for name, labels in LABELS.items())], axis=1)


def classifier(train: NDArray[np.float64], test: NDArray[np.float64]) -> float:
    """Accuracy on the test rows of least squares on the training rows."""

    def features(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack((np.ones(len(x)), x[:, :-1]))

    beta = np.linalg.lstsq(features(train), 2 * train[:, -1] - 1)[0]
    return float(((features(test) @ beta > 0) == (test[:, -1] > 0)).mean())


def main() -> None:
    """Print the table as Markdown."""
    asked = argparse.ArgumentParser()
    asked.add_argument("path")
    asked.add_argument("--runs", type=int, default=3)
    given = asked.parse_args()
    train, test = adult(given.path)
    true, held = matrix(train), matrix(test)
    corr, spread = np.corrcoef(true.T), true.std(axis=0)
    off = ~np.eye(len(spread), dtype=bool)
    print(f"{len(true):,} rows, {given.runs} runs; trained on the true rows: {classifier(true, held):.3f}; "
          f"always <=50K: {1 - held[:, -1].mean():.3f}\n")  # fmt: skip
    print("| epsilon of a column | method | means | correlation | accuracy |\n| --- | --- | --- | --- | --- |")
    for epsilon in EPSILONS:
        every = tuple(NUMBERS) + tuple(LABELS)
        plan = ks.shuffle.Plan(key="id", a=every[:4], b=every[4:], bounds=NUMBERS, categories=LABELS,
                               epsilons=dict.fromkeys(every, f"{epsilon} weak"), delta="1e-8")  # fmt: skip
        found: dict[str, list[tuple[float, float, float]]] = {method: [] for method in METHODS}
        for run in range(given.runs):
            columns = {c.name: c.randomize(train[c.name], ks.seeded(100 * run + i)) for i, c in enumerate(plan.columns)}
            joined = Joined(plan, MappingProxyType(columns), plan.guarantee(n=len(true)), False)
            for method in METHODS:
                made = matrix(ks.shuffle.synthesize(joined, rows=30_000, method=method, source=ks.seeded(run)).columns)
                with np.errstate(invalid="ignore"):
                    apart = np.abs(np.nan_to_num(np.corrcoef(made.T)) - corr)[off].mean()
                means = float((np.abs(made.mean(axis=0) - true.mean(axis=0)) / spread).max())
                found[method].append((means, float(apart), classifier(made, held)))
        for method, rows in found.items():
            means, apart, right = np.mean(rows, axis=0)
            print(f"| {epsilon} | {method} | {means:.3f} | {apart:.3f} | {right:.3f} |", flush=True)


if __name__ == "__main__":
    main()
