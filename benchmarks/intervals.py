"""Coverage and width of 95 % intervals by size class of the true count, on real maps, with fresh noise.

python benchmarks/intervals.py [--runs 20] [--maps kanto,tohoku,GOWALLA,STROKE] [--recipes even16,u4,haar,bayes]

Per map, recipe and kind of area (cells; of them those the release lists, which were picked by their noise and have no
line; aligned blocks of 2x2 to 64x64; 300 irregular unions of cells): coverage before and after the interval is
stretched to the released value, and the median width over that of the least-squares estimate from the same noisy
numbers (no sign constraint, no limit from above; a part of a node that was not descended has none).
Lines: coverage >= 94 % in every class with at least 1,000 cases; <= 99 % for cells, blocks and regions of 100 people or
more (an interval that reaches down to 0 always holds a true count far below the noise, so smaller ones can only be
covered too often); width ratio <= 1.2. Exits 1 where one is missed.
"""

from __future__ import annotations

import argparse
import sys
import time

import maps
import numpy as np

import kasuri as ks
from kasuri import bounds, intervals
from kasuri.regions import Boxes, CellSearch

CLASSES = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, 1 << 62))
RECIPES = {
    "even16": ks.refined_tree,
    "u4": lambda: ks.refined_tree("u4"),
    "tilt16": lambda: ks.refined_tree("tilt16"),
    "haar": ks.haar_topdown,
    "bayes": lambda: ks.bayes_tree(pilot=True),
}
SIDES = (2, 4, 16, 64)


def plain_half(bars, search) -> np.ndarray:
    """Half-width of the least-squares estimate; NaN for a part of a node that was not descended, which has none."""
    c = intervals.factor(0.95)
    found = bounds.of_regions(bars.plain, search, c)
    return np.where(found.shut_in, np.nan, c * np.sqrt(found.variance))


class Tally:
    def __init__(self) -> None:
        self.rows: dict[tuple, list] = {}

    def add(self, kind, truth, found, value, half) -> None:
        raw = intervals.finish(found, np.clip(value, *found[:2]))  # without stretching
        full = intervals.finish(found, value)
        inside, stretched = ((low <= truth) & (truth <= high) for low, high in (raw, full))
        for name, (a, b) in zip(("0", "1-9", "10-99", "100-999", "1000+"), CLASSES, strict=True):
            m = (truth >= a) & (truth <= b)
            entry = self.rows.setdefault((kind, name), [0, 0, 0, []])
            entry[0] += int(m.sum())
            entry[1] += int(inside[m].sum())
            entry[2] += int(stretched[m].sum())
            entry[3].append(((full[1] - full[0])[m] / (2 * half[m])).astype(np.float32))


def study(name: str, recipe: str, runs: int) -> list[str]:
    truth = maps.load(name)
    domain = ks.Domain.of(ks.Mesh("grid", shape=truth.shape))
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("person", "add-remove", 1))
    areas = maps.regions(truth, 300)
    area_truth = np.array([truth.ravel()[cells].sum() for cells in areas])
    tally, spent = Tally(), 0.0
    for _ in range(runs):
        out = ks.release(counts, RECIPES[recipe](), epsilon="0.1", ledger=None)
        start = time.process_time()
        intervals.columns(out)
        spent += time.process_time() - start
        bars, dense = intervals.bars_of(out), out.to_dense()
        cells = np.arange(truth.size)
        found = bars.of_cells(cells, dense.ravel(), 0.95)
        leaf = bars.plain.find(len(bars.plain.depths) - 1, bars.tree.keys(cells))
        half = np.where(leaf >= 0, intervals.factor(0.95) * np.sqrt(bars.plain.levels[-1].f[leaf]), np.nan)
        tally.add("cell", truth.ravel(), found, dense.ravel(), half)
        listed = tuple(part[out.cells] for part in found)
        tally.add("listed", truth.ravel()[out.cells], listed, out.values, half[out.cells])
        for side in SIDES:
            n = truth.shape[0] // side
            corner = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), axis=-1).reshape(-1, 2) * side
            boxes = Boxes(corner, corner + side)
            sums = [part.reshape(n, side, n, side).sum(axis=(1, 3)).ravel() for part in (truth, dense)]
            found = bars.of_boxes(boxes, sums[1], 0.95)
            tally.add(f"block {side}", sums[0], found, sums[1], plain_half(bars, boxes.search(bars.tree, domain)))
        keys = [i * bars.tree.leaves + bars.tree.keys(part) for i, part in enumerate(areas)]
        search = CellSearch(bars.tree, np.sort(np.concatenate(keys)), len(areas))
        value = np.array([dense.ravel()[part].sum() for part in areas])
        tally.add("region", area_truth, bars._search(search, 0.95), value, plain_half(bars, search))
    print(f"\n{name}, {recipe}, {runs} runs; limits of all released cells: {spent / runs:.2f} CPU s")
    print(f"  {'area':9} {'true count':>10} {'cases':>9} {'coverage':>9} {'stretched':>9} {'width/LS':>9}")
    missed, pooled = [], {}
    for (kind, name_of), (n, inside, stretched, ratios) in tally.rows.items():
        if n == 0:
            continue
        ratio = float(np.nanmedian(np.concatenate(ratios))) if np.isfinite(np.concatenate(ratios)).any() else np.nan
        print(f"  {kind:9} {name_of:>10} {n:9d} {inside / n:9.4f} {stretched / n:9.4f} {ratio:9.3f}")
        where = f"{name} {recipe} {kind} {name_of}"
        if n >= 1000 and kind != "listed":
            if inside / n < 0.94:
                missed.append(f"{where}: coverage {inside / n:.4f} < 0.94")
            if name_of in ("100-999", "1000+") and stretched / n > 0.99:
                missed.append(f"{where}: coverage {stretched / n:.4f} > 0.99")
            if ratio > 1.2:
                missed.append(f"{where}: width ratio {ratio:.3f} > 1.2")
        group = pooled.setdefault(kind.split()[0], [0, 0])
        group[0] += n * (name_of not in ("0",))
        group[1] += stretched * (name_of not in ("0",))
    for kind in ("block", "region"):
        n, inside = pooled[kind]
        print(f"  {kind}s that are not empty, all classes: {inside / n:.4f} of {n}")
    return missed


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--maps", default="kanto,tohoku,GOWALLA,STROKE")
    asked.add_argument("--recipes", default="even16,u4,haar,bayes")
    given = asked.parse_args()
    missed = [
        line
        for name in given.maps.split(",")
        for recipe in given.recipes.split(",")
        for line in study(name, recipe, given.runs)
    ]
    print("\nmissed lines:" if missed else "\nevery line holds")
    for line in missed:
        print(f"  {line}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
