"""Error of recipes on tables of several kinds, at every view, over that of plain noise.

nice .venv/bin/python benchmarks/tables.py [--tables od_towns,uk] [--epsilons 0.1,1] [--seconds 20] [--runs 200]
                                           [--recipes best,topdown] [--seed 1] [--quick] [--worst]

Views: the cells, every axis at every height, every map, and the declared pairs. Plain noise is the noisy cells of the
same release where it measures every cell with nearly all of epsilon (drawn numbers are then paired, and views of
few sums can be judged); else its expectation, by the law of sums of geometric noise. A recipe is drawn until the
standard error of every ratio is at most .02, --seconds of CPU time are over (at least twice), or --runs times. --worst
prints the largest ratios alone. --seed 1 makes fresh tables: new draws of models, other windows.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from made_tables import TABLES, Table

import kasuri as ks
from kasuri.recipes import woven_tree
from kasuri.recipes.views import Woven
from kasuri.trees.weave import interleaved

CLOSE = 0.02
QUICK = ("mesh_sex_age", "od_towns", "newyork", "hepth", "traces", "ten")


def _heights(table: Table) -> dict[int, str]:
    """Every height of the interleaved tree equally."""
    top = len(interleaved(table.domain).stages) - 1
    each = 1000 // top
    return {height: f"{(1000 - each * (top - 1) if height == 0 else each) / 1000:.3f}" for height in range(top)}


RECIPES: dict[str, Callable[[Table], ks.Mechanism | None]] = {
    "best": lambda table: ks.best(),
    "maps": lambda table: ks.best(maps=table.maps) if table.maps else None,
    "topdown": lambda table: ks.haar_topdown(transform="nominal") if table.domain.grouped else ks.haar_topdown(),
    "pilot": lambda table: ks.bayes_tree(pilot=True, order="hierarchy" if table.domain.grouped else "morton"),
    "paired": lambda table: ks.bayes_tree(_heights(table), order="interleaved"),
    "expect": lambda table: ks.bayes_tree(_heights(table), order="interleaved", expect=True),
    "hand": lambda table: woven_tree(shares=table.shares, maps=table.maps) if table.shares else None,
    "woven": lambda table: woven_tree(maps=table.maps),
    "whole": lambda table: woven_tree(whole=True),
}


def views_of(table: Table, weave: Woven) -> list[str]:
    """The cells, every axis at every height, maps and declared pairs; not the total."""
    found = ["cells"] if len(table.domain.axes) > 1 else []
    for axis, ends in weave.ends.items():
        found += [axis + (f"@{height}" if height else "") for height in range(len(ends)) if ends[height] > 0]
    return [*found, *table.pairs, *(one.name for one in table.maps)]


def plain_errors(scale: float, cells: np.ndarray) -> tuple[float, float]:
    """Expected mean absolute and root mean square error of sums of so many cells each under geometric noise: the
    difference of two gamma laws has E|s| = 2 n b C(2n, n) / 4^n; the part of rounding is that of one cell."""
    a = math.exp(-1 / scale)
    sd, mae = math.sqrt(2 * a) / (1 - a), 2 * a / (1 - a * a)
    n = np.maximum(cells, 1e-9)
    smooth = np.exp(np.log(2 * n) + np.array([math.lgamma(2 * m + 1) - 2 * math.lgamma(m + 1) for m in n])
                    - n * math.log(4)) / np.sqrt(2 * n)  # fmt: skip
    one = mae / sd / math.sqrt(0.5)
    share = 1 + (one - 1) / n
    return float((smooth * share * sd * np.sqrt(n) * (cells > 0)).mean()), float(sd * math.sqrt(cells.mean()))


class Measured:
    """Errors of one recipe on one table: per draw and view [MAE, RMSE], and those of plain noise."""

    def __init__(self, table: Table, epsilon: str) -> None:
        self.table, self.epsilon, domain = table, epsilon, table.domain
        self.unit = ks.Unit("person", table.change, 1)
        self.counts = ks.Counts.from_dense(table.truth, domain, self.unit, data="benchmark")
        weave = Woven(domain, interleaved(domain), table.maps)
        self.views = views_of(table, weave)
        self.truth = table.truth.ravel().astype(np.float64)
        keys = weave.tree.keys(np.arange(domain.size))
        self.labels, self.scale = {}, float(ks.geometric().scale(domain, self.unit, epsilon))
        for view in self.views:
            if view == "cells" or (len(domain.axes) == 1 and view == domain.axes[0].name):
                self.labels[view] = np.arange(domain.size), domain.size
                continue
            found = weave.partition(weave.view(view))
            self.labels[view] = found.of_keys(weave.tree, keys), found.groups
        self.plain = np.array(
            [
                plain_errors(self.scale, np.bincount(own[own >= 0], minlength=groups))
                for own, groups in self.labels.values()
            ]
        )

    def errors(self, values: np.ndarray) -> list[tuple[float, float]]:
        rows = []
        for label, groups in self.labels.values():
            gap = values - self.truth
            error = gap if groups == gap.size else np.bincount(label[label >= 0], gap[label >= 0], groups)
            rows.append((float(np.abs(error).mean()), float(np.sqrt((error**2).mean()))))
        return rows

    def run(self, recipe: ks.Mechanism, seconds: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
        own, plain, started, name = [], [], time.process_time(), ""
        for draw in range(runs):
            out = ks.release(self.counts, recipe, epsilon=self.epsilon, ledger=None, source=ks.seeded(seed + draw))
            whole = out.recipe.get("arguments", {}).get("whole")
            preset = "whole" if whole else out.recipe.get("preset")
            name = out.recipe["name"] + (f"({preset})" if preset else "")
            dense = np.zeros(self.truth.size)
            dense[out.cells] = out.values
            own.append(self.errors(dense))
            noisy = self._noisy(out)
            plain.append(self.plain if noisy is None else noisy)
            if draw >= 1 and (time.process_time() - started > seconds or draw >= 9):
                _, spread = ratios(np.array(own), np.array(plain))
                if spread.max() <= CLOSE or time.process_time() - started > seconds:
                    break
        return np.array(own), np.array(plain), name

    def _noisy(self, out: ks.Release) -> np.ndarray | None:
        """The errors of plain noise in this draw, where a release measures every cell: those of its noisy cells, times
        what the larger share of plain noise makes of their expectation."""
        told = out.measurements
        if told is None:
            return None
        depth, own = max(told.scale), told.level == max(told.scale)
        scale = float(told.scale[depth])
        if np.count_nonzero(own) != self.truth.size or scale > 1.1 * self.scale:
            return None
        dense = np.zeros(self.truth.size)
        dense[interleaved(out.domain).cells(told.prefix[own])] = told.value[own]
        if scale == self.scale:
            return np.array(self.errors(dense))
        sizes = [np.bincount(label[label >= 0], minlength=groups) for label, groups in self.labels.values()]
        return np.array(self.errors(dense)) * self.plain / np.array([plain_errors(scale, cells) for cells in sizes])


def ratios(own: np.ndarray, plain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per view and metric: mean over mean (root mean square for RMSE), and the standard error by the draws."""
    power = np.array([1, 2])
    a, b = own**power, plain**power
    ratio = a.mean(0) / b.mean(0)
    spread = (a - ratio * b).std(0, ddof=1) / b.mean(0) / math.sqrt(len(own))
    return ratio ** (1 / power), spread / power * ratio ** (1 / power - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="")
    parser.add_argument("--recipes", default="best,topdown")
    parser.add_argument("--epsilons", default="0.1,1")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worst", action="store_true")
    asked = parser.parse_args()
    names = asked.tables.split(",") if asked.tables else QUICK if asked.quick else tuple(TABLES)
    means: dict[bool, list[float]] = {True: [], False: []}
    for name in names:
        table = TABLES[name](asked.seed)
        filled = float((table.truth > 0).mean())
        for epsilon in asked.epsilons.split(","):
            measured = Measured(table, epsilon)
            found = {}
            for word in asked.recipes.split(","):
                recipe = RECIPES[word](table)
                if recipe is None:
                    continue
                try:
                    own, plain, chosen = measured.run(recipe, asked.seconds, asked.runs, 1000 + 5000 * asked.seed)
                except ks.DomainError as error:
                    print(f"{name}: {word} is refused: {error}")
                    continue
                found[word] = (*ratios(own, plain), chosen, len(own))
            if "best" in found:
                anchor = np.ones_like(found["best"][0])
                if "topdown" in found:
                    anchor = np.minimum(anchor, found["topdown"][0])
                mean = float(np.exp(np.log(found["best"][0] / anchor).mean()))
                means[filled < 0.3].append(np.log(found["best"][0] / anchor).mean())
                worst = np.unravel_index(found["best"][0].argmax(), anchor.shape)
                print(f"{name}, epsilon {epsilon}, {filled:.0%} filled: {found['best'][2]}, {found['best'][3]} draws; "
                      f"cells {found['best'][0][0, 0]:.3f}/{found['best'][0][0, 1]:.3f}; worst "
                      f"{found['best'][0][worst]:.3f}±{found['best'][1][worst]:.3f} {('MAE', 'RMSE')[worst[1]]} "
                      f"{measured.views[worst[0]]}; geometric mean {mean:.3f} of the better anchor, "
                      f"{float(np.exp(np.log(found['best'][0]).mean())):.3f} of plain noise", flush=True)  # fmt: skip
            if asked.worst:
                continue
            print(f"{'view':>22} {'sums':>8} {'plain MAE':>10} " + "".join(f"{word:>26}" for word in found))
            for at, view in enumerate(measured.views):
                row = f"{view:>22} {measured.labels[view][1]:8d} {measured.plain[at, 0]:10.2f} "
                for ratio, spread, _, _ in found.values():
                    row += f"{ratio[at, 0]:12.3f}±{spread[at, 0]:.3f}/{ratio[at, 1]:7.3f}"
                print(row, flush=True)
    for sparse, rows in means.items():
        if rows:
            which = "under 30 % filled" if sparse else "30 % and more filled"
            print(f"geometric mean over views and tables, {which}: {math.exp(float(np.mean(rows))):.3f}")


if __name__ == "__main__":
    main()
