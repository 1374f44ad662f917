"""What a woven tree and `best` are asked to reach, line by line: the figure, its limit, and whether it holds.

nice .venv/bin/python benchmarks/woven_lines.py [--lines towns,flows,kanto,national,ages,margins,coverage,stated]
                                                [--draws 4] [--seed 1]

Figures are ratios of mean absolute errors over the same draws, ± one standard error by the draws. Tables are those of
`made_tables.py`; --seed 1 makes fresh ones where a table is made or has another window. `towns` are trips by a gravity
model, against plain noise, an interleaved tree of thirds, and the noise of InfTDA (discrete Gaussian, delta 1e-9, each
level poured down from above); `flows` real ones; `kanto` and `national` regions that follow no mesh; `ages` a mesh by
age and sex; `margins` their mean signed error in standard errors; `coverage` 95 % limits by view; `stated` the
certificate's errors over the true ones. Exits 1 where a line is missed. The lines of every table's every view are
those of `tables.py`.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from made_tables import TABLES, Table
from tables import RECIPES, Measured

import kasuri as ks
from kasuri.manifest import expected
from kasuri.published import intervals
from kasuri.recipes import woven_tree

EPSILONS = ("0.1", "1")
DELTA = 1e-9
AGES = {"age, sex": (0.12, 0), "cells": (0.65, 0), "cells; RMSE": (0.50, 1)} | {
    f"grid@{height}" if height else "grid": (1.15 if height < 4 else 1.40, 0) for height in range(6)
}
"""Views of the mesh by age and sex: limit and metric (0: MAE, 1: RMSE)."""
AREAS = 40
"""Sums of a view that limits are asked of, per draw."""


@dataclass(frozen=True)
class Line:
    words: str
    figure: float
    limit: float
    spread: float = 0.0
    least: float = -math.inf

    @property
    def holds(self) -> bool:
        return self.least <= self.figure <= self.limit

    def __str__(self) -> str:
        asked = f"<= {self.limit:g}" if self.least == -math.inf else f"{self.least:g}..{self.limit:g}"
        spread = f" ±{self.spread:.3f}" if self.spread else ""
        return f"{'holds ' if self.holds else 'MISSED'} {self.figure:8.3f}{spread:8}  (asked {asked})  {self.words}"


def draws(measured: Measured, recipe: ks.Mechanism, count: int, seed: int) -> np.ndarray:
    """Per draw, view and metric (MAE, RMSE)."""
    own = []
    for draw in range(count):
        out = ks.release(measured.counts, recipe, epsilon=measured.epsilon, ledger=None, source=ks.seeded(seed + draw))
        own.append(measured.errors(dense_of(measured, out)))
    return np.array(own)


def dense_of(measured: Measured, out: ks.Release) -> np.ndarray:
    dense = np.zeros(measured.truth.size)
    dense[out.cells] = out.values
    return dense


def over(own: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Mean over mean, with the standard error by the draws; `other` per draw, or a number."""
    other = np.broadcast_to(other, own.shape)
    ratio = float(own.mean() / other.mean())
    return ratio, float((own - ratio * other).std(ddof=1) / other.mean() / math.sqrt(own.size))


def compared(words: str, own: np.ndarray, other: np.ndarray, limit: float) -> Line:
    ratio, spread = over(own, other)
    return Line(words, ratio, limit, spread)


def poured(measured: Measured, levels: list[str], rng: np.random.Generator) -> list[float]:
    """MAE per level of InfTDA's noise: the total is public, every level has an equal part of rho, and each group's
    noisy parts are projected to non-negative numbers of its sum."""
    from kasuri._kernels.visit import water

    bits, epsilon = math.log(1 / DELTA), float(measured.epsilon)
    rho = (math.sqrt(bits + epsilon) - math.sqrt(bits)) ** 2 / len(levels)
    change = 2 if measured.table.change == "replace" else 1
    sigma = math.sqrt(change / (2 * rho))
    above, owner, errors = np.array([measured.truth.sum()]), np.zeros(measured.truth.size, dtype=np.int64), []
    for level in levels:
        label, groups = measured.labels[level]
        true = np.bincount(label, measured.truth, groups)
        parent = np.zeros(groups, dtype=np.int64)
        parent[label] = owner
        ranked = np.argsort(parent, kind="stable")
        first = np.searchsorted(parent[ranked], np.arange(above.size + 1))
        noisy = true + np.rint(rng.normal(0, sigma, groups))
        x, own = np.zeros(groups), np.zeros(groups)
        water(noisy[ranked].astype(np.int64), first, above.astype(np.float64), x, np.empty(above.size))
        own[ranked] = x
        errors.append(float(np.abs(own - true).mean()))
        above, owner = own, label
    return errors


def towns(count: int, seed: int) -> Iterator[Line]:
    pairs = {"cells": "town pairs", "home@1, work@1": "province pairs", "home@2, work@2": "region pairs"}
    for epsilon in EPSILONS:
        measured = Measured(TABLES["od_towns"](seed), epsilon)
        at = {view: measured.views.index(view) for view in measured.views}
        tree = draws(measured, RECIPES["paired"](measured.table), count, 100 * seed)
        rng = np.random.default_rng(seed)
        down = np.array([poured(measured, [*pairs][::-1], rng)[::-1] for _ in range(count)])
        for name, recipe in (("shares", RECIPES["hand"](measured.table)), ("best", ks.best())):
            own = draws(measured, recipe, count, 100 * seed)
            for i, (view, words) in enumerate(pairs.items()):
                where = f"towns {epsilon} {name}: {words} over "
                limit = 1.0 if epsilon == "0.1" else 1.02
                yield compared(where + "the interleaved tree", own[:, at[view], 0], tree[:, at[view], 0], limit)
                yield compared(where + "InfTDA's noise", own[:, at[view], 0], down[:, i], 0.65)
            for view in ("home", "work"):
                plain = measured.plain[at[view], 0]
                yield compared(f"towns {epsilon} {name}: {view} over plain noise", own[:, at[view], 0], plain, 1.2)


def flows(count: int, seed: int) -> Iterator[Line]:
    for name in ("uk", "newyork", "flights"):
        for epsilon in EPSILONS:
            measured = Measured(TABLES[name](seed), epsilon)
            tree = draws(measured, RECIPES["paired"](measured.table), count, 100 * seed)
            own = draws(measured, RECIPES["expect"](measured.table), count, 100 * seed)
            for i, view in enumerate(measured.views):
                if view == "cells" or view in measured.table.pairs:
                    words = f"{name} {epsilon}: {view}, expectation over the interleaved tree"
                    yield compared(words, own[:, i, 0], tree[:, i, 0], 1.03)


def mapped(table: Table, name: str, share: str = "0.05") -> ks.Mechanism:
    """The shares of a dense mesh with one map."""
    rest = {view: number for view, number in table.shares.items() if view != "region"}
    return woven_tree(shares=rest | {name: share}, maps=table.maps)


def kanto(count: int, seed: int) -> Iterator[Line]:
    for epsilon in EPSILONS:
        measured = Measured(TABLES["kanto"](seed), epsilon)
        tree = draws(measured, ks.bayes_tree("dense"), count, 100 * seed)
        for name in ("region", "municipality"):
            own = draws(measured, mapped(measured.table, name), count, 100 * seed)
            for i, view in enumerate(measured.views):
                blocks = view.startswith("grid@") and 2 ** int(view[5:]) <= 64
                limits = {name: 0.65, "grid": 1.02} | ({view: 1.15} if blocks else {})
                if view in limits:
                    words = f"kanto {epsilon}, {name} measured: {view} over bayes_tree"
                    yield compared(words, own[:, i, 0], tree[:, i, 0], limits[view])


def _national(seed: int, epsilon: str, woven: bool, count: int, out: multiprocessing.Queue) -> None:
    """Errors of the regions, CPU seconds of a warm release, and memory above what the table takes."""
    table = TABLES["national"](seed)
    name, labels = table.maps[0].name, table.maps[0].labels.ravel()
    unit = ks.Unit("person", "add-remove", 1)
    counts = ks.Counts.from_dense(table.truth, table.domain, unit, data="benchmark")
    truth = np.bincount(labels[labels >= 0], table.truth.ravel()[labels >= 0])
    del table.truth
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    recipe = ks.bayes_tree("sparse")
    if woven:
        cuts = recipe.on(table.domain, unit, epsilon).cuts
        top = max(depth for depth, _ in cuts)
        shares = {("cells" if depth == top else f"grid@{(top - depth) // 2}"): share for depth, share in cuts}
        given = {view: f"{float(share) * 0.94:.4f}" for view, share in shares.items() if view != "cells"}
        given |= {name: "0.06"}
        given["cells"] = f"{1 - sum(map(float, given.values())):.4f}"
        recipe = woven_tree(shares=given, maps=table.maps)
    found, seconds = [], []
    for draw in range(count):
        started = time.process_time()
        made = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(draw))
        seconds.append(time.process_time() - started)
        own = labels[made.cells]
        error = np.bincount(own[own >= 0], made.values[own >= 0], truth.size) - truth
        found.append(float(np.abs(error).mean()))
        del made
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out.put((found, float(np.median(seconds[1:])), after / 1e6, before / 1e6))


def national(count: int, seed: int) -> Iterator[Line]:
    """Each recipe in a process of its own; the first release compiles and is not timed."""
    context = multiprocessing.get_context("spawn")
    for kind in (0, 1):
        what = ("1,895 municipalities", "1,700 made-up regions")[kind]
        for epsilon in EPSILONS:
            found = {}
            for woven in (False, True):
                queue = context.Queue()
                child = context.Process(target=_national, args=(kind * max(seed, 1), epsilon, woven, count, queue))
                child.start()
                found[woven] = queue.get()
                child.join()
            (tree, slow, _, _), (own, cpu, memory, before) = found[False], found[True]
            yield compared(f"national {epsilon}: {what} over bayes_tree", np.array(own), np.array(tree), 0.55)
            yield Line(f"national {epsilon}: {what}, CPU over bayes_tree's {slow:.1f} s", cpu / slow, 4.0)
            yield Line(f"national {epsilon}: {what}, GB at most ({before:.2f} by the table)", memory, 1.5)


def ages(count: int, seed: int) -> Iterator[Line]:
    for epsilon in EPSILONS:
        measured = Measured(TABLES["mesh_sex_age"](seed), epsilon)
        at = {view: measured.views.index(view) for view in measured.views}
        tree = draws(measured, ks.bayes_tree(pilot=True), count, 100 * seed)
        for name, recipe in (("shares", RECIPES["hand"](measured.table)), ("best", ks.best())):
            own = draws(measured, recipe, count, 100 * seed)
            asked = {"cells": (1.25, 0)} if epsilon == "1" else AGES
            for words, (limit, metric) in asked.items():
                view = words.partition(";")[0]
                told = f"ages {epsilon} {name}: {view} over bayes_tree(pilot)" + (", RMSE" if metric else "")
                yield compared(told, own[:, at[view], metric], tree[:, at[view], metric], limit)


def _several(seed: int) -> Iterator[tuple[str, Table, str, ks.Mechanism]]:
    """What margins, limits and stated errors are looked at on."""
    for epsilon in EPSILONS:
        for name in ("mesh_sex_age", "od_towns", "newyork", "rhode_island"):
            yield name, TABLES[name](seed), epsilon, ks.best()
        table = TABLES["od_towns"](seed)
        yield "od_towns (shares)", table, epsilon, woven_tree(shares=table.shares)
        table = TABLES["kanto"](seed)
        yield "kanto (regions)", table, epsilon, mapped(table, "region")


def margins(count: int, seed: int) -> Iterator[Line]:
    """The mean signed error of every sum of a margin over the draws, in its standard errors: root mean square, which is
    about sqrt((n - 1) / (n - 3)) for n draws without bias."""
    for name, table, epsilon, recipe in _several(seed):
        if len(table.domain.axes) < 2:
            continue
        measured = Measured(table, epsilon)
        margin = [axis.name for axis in table.domain.axes if axis.name in measured.labels and axis.plane is None]
        gaps: dict[str, list[np.ndarray]] = {view: [] for view in margin}
        runs = max(count, 6)
        for draw in range(runs):
            out = ks.release(measured.counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(100 * seed + draw))
            gap = dense_of(measured, out) - measured.truth
            for view in margin:
                label, groups = measured.labels[view]
                gaps[view].append(np.bincount(label, gap, groups))
        for view, rows in gaps.items():
            errors = np.array(rows)
            bias = float(np.sqrt((errors.mean(0) ** 2).mean()))
            noise = float(np.sqrt(errors.var(0, ddof=1).mean() / runs))
            yield Line(f"margins {name} {epsilon}: {view}, bias in standard errors", bias / max(noise, 1e-9), 1.5)


def coverage(count: int, seed: int) -> Iterator[Line]:
    for name, table, epsilon, recipe in _several(seed):
        measured, rng = Measured(table, epsilon), np.random.default_rng(seed)
        held: dict[str, list[float]] = {view: [] for view in measured.views}
        for draw in range(max(count, 4)):
            out = ks.release(measured.counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(100 * seed + draw))
            bars, dense = intervals.bars_of(out), dense_of(measured, out)
            for view, (label, groups) in measured.labels.items():
                inside = 0
                some = rng.choice(groups, min(groups, AREAS), replace=False)
                for group in some:
                    cells = np.array([group]) if groups == label.size else np.flatnonzero(label == group)
                    value = dense[cells].sum(keepdims=True)
                    limits = bars.of_area(cells, value, 0.95)
                    low, high = intervals.finish(limits, np.clip(value, *limits[:2]), intervals.stepped(bars))
                    inside += bool(low[0] <= measured.truth[cells].sum() <= high[0])
                held[view].append(inside / some.size)
        for view, rates in held.items():
            mean, spread = float(np.mean(rates)), float(np.std(rates, ddof=1) / math.sqrt(len(rates)))
            sums = min(measured.labels[view][1], AREAS) * len(rates)
            spread = max(spread, math.sqrt(0.05 * 0.95 / sums))
            least = max(0.92, 0.95 - 2 * spread)
            yield Line(f"coverage {name} {epsilon}: {view} ({sums} sums)", mean, 1.0, spread, least)


def stated(count: int, seed: int) -> Iterator[Line]:
    """Views of fewer than 16 sums scatter by themselves and are left out."""
    for name, table, epsilon, recipe in _several(seed):
        measured = Measured(table, epsilon)
        run = recipe.on(table.domain, measured.unit, epsilon)
        told: dict[str, list[float]] = {}
        true: dict[str, list[float]] = {}
        for draw in range(count):
            out = ks.release(measured.counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(100 * seed + draw))
            errors = dict(zip(measured.views, measured.errors(dense_of(measured, out)), strict=True))
            for row in expected.after(run, out):
                view = row.get("view") or ("cells" if row.get("cells") == 1 else "")
                view = measured.views[0] if view == "cells" else view
                if view in errors and measured.labels[view][1] >= 16 and not row.get("bound"):
                    told.setdefault(view, []).append(row["rmse"] ** 2)
                    true.setdefault(view, []).append(errors[view][1] ** 2)
        for view, own in told.items():
            ratio = math.sqrt(np.mean(own) / np.mean(true[view]))
            yield Line(f"stated {name} {epsilon}: {view}, stated over true", ratio, 1.25, least=0.8)


LINES: dict[str, Callable[[int, int], Iterator[Line]]] = {
    "towns": towns, "flows": flows, "kanto": kanto, "national": national, "ages": ages, "margins": margins,
    "coverage": coverage, "stated": stated,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", default=",".join(LINES))
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    held = []
    for name in asked.lines.split(","):
        for line in LINES[name](asked.draws, asked.seed):
            print(line, flush=True)
            held.append(line.holds)
    print(f"{sum(held)} of {len(held)} lines hold")
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
