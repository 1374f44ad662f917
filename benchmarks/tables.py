"""Error of recipes on tables of several kinds, at every view, over that of plain noise on the same draws.

nice .venv/bin/python benchmarks/tables.py [--tables od_towns,uk] [--epsilons 0.1,1] [--seconds 60] [--recipes ...]

Every draw has one seed for all recipes. Printed per view: the number of sums, MAE and RMSE of `geometric`, and each
recipe's MAE / RMSE over it with the standard error of the MAE's ratio over the draws. A recipe is drawn until
--seconds are over (at least twice), or --runs times. Tables are made from ../shared/data (docs: NOTICE).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import kasuri as ks
from kasuri.recipes import woven_tree
from kasuri.recipes.views import Woven
from kasuri.schema.maps import RegionMap
from kasuri.trees.weave import interleaved

DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass
class Table:
    domain: ks.Domain
    truth: np.ndarray
    views: list[str]
    maps: tuple[RegionMap, ...] = ()
    change: str = "add-remove"
    shares: dict[str, str] = field(default_factory=dict)
    """Set by hand, to compare the closed form with."""


def grouped(pairs: list[tuple[str, ...]]) -> ks.Tree:
    """A tree from (group, ..., label) paths."""
    top: dict = {}
    for *path, label in pairs:
        at = top
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at.setdefault(path[-1], []).append(label)
    return ks.Tree.of(top)


def od_towns(seed: int = 0) -> Table:
    """200 towns in 20 provinces in 5 regions, about a million trips of a gravity model."""
    tree = ks.Tree.of(
        {f"r{r}": {f"p{r}.{p}": [f"t{r}.{p}.{t}" for t in range(10)] for p in range(4)} for r in range(5)}
    )
    rng = np.random.default_rng(seed)
    regions = rng.normal(0, 2, (5, 2))
    provinces = np.repeat(regions, 4, axis=0) + rng.normal(0, 0.5, (20, 2))
    towns = np.repeat(provinces, 10, axis=0) + rng.normal(0, 0.1, (200, 2))
    size = rng.lognormal(0, 1.2, 200)
    flow = np.outer(size, size) / (0.1 + np.linalg.norm(towns[:, None] - towns[None], axis=2)) ** 2.5
    truth = rng.poisson(flow / flow.sum() * 1e6)
    domain = ks.Domain.of(ks.Nominal("home", tree.leaves, tree), ks.Nominal("work", tree.leaves, tree))
    views = ["cells", "home@1, work@1", "home@2, work@2", "home", "work"]
    shares = dict(zip(views, ("0.24", "0.327", "0.333", "0.05", "0.05"), strict=True))
    return Table(domain, truth, views, change="replace", shares=shares)


def uk() -> Table:
    """Travel to work between districts of the United Kingdom, in regions in countries."""
    with open(DATA / "uk_lad.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["code"].startswith("OD")]
    paths = [(row["country"], row["nhs_region"] or row["country"] + " ", row["code"]) for row in rows]
    homes = grouped(paths)
    works = grouped([*paths, *(("none", "none ", f"OD000000{i}") for i in range(1, 5))])
    place, other = ({label: i for i, label in enumerate(tree.leaves)} for tree in (homes, works))
    truth = np.zeros((len(place), len(other)), dtype=np.int64)
    with gzip.open(DATA / "uk_commute_lad_2011.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            truth[place[row["origin"]], other[row["destination"]]] += int(row["people"])
    domain = ks.Domain.of(ks.Nominal("home", homes.leaves, homes), ks.Nominal("work", works.leaves, works))
    return Table(domain, truth, ["cells", "home@1, work@1", "home@2, work@2", "home", "work"])


def newyork() -> Table:
    """Commuters between the 62 counties of New York."""
    with open(DATA / "us_ny_commute_county.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["origin"] for row in rows} | {row["destination"] for row in rows})
    place = {name: i for i, name in enumerate(names)}
    truth = np.zeros((len(names), len(names)), dtype=np.int64)
    for row in rows:
        truth[place[row["origin"]], place[row["destination"]]] = int(float(row["flow"]))
    tree = grouped([(f"g{i // 8}", name) for i, name in enumerate(names)])
    domain = ks.Domain.of(ks.Nominal("home", tree.leaves, tree), ks.Nominal("work", tree.leaves, tree))
    return Table(domain, truth, ["cells", "home@1, work@1", "home", "work"])


def flights() -> Table:
    """Flights between 224 airports, in arbitrary groups of 16."""
    with gzip.open(DATA / "us_flights_od.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["origin"] for row in rows} | {row["destination"] for row in rows})
    place = {name: i for i, name in enumerate(names)}
    truth = np.zeros((len(names), len(names)), dtype=np.int64)
    for row in rows:
        truth[place[row["origin"]], place[row["destination"]]] = int(row["flights"])
    tree = grouped([(f"g{i // 16}", name) for i, name in enumerate(names)])
    domain = ks.Domain.of(ks.Nominal("home", tree.leaves, tree), ks.Nominal("work", tree.leaves, tree))
    return Table(domain, truth, ["cells", "home@1, work@1", "home", "work"])


def _japan(row0: int, col0: int, rows: int, cols: int, columns: tuple[str, ...]) -> list[np.ndarray]:
    import pyarrow.parquet as pq

    from kasuri import meshcode

    table = pq.read_table(DATA / "jp_mesh500_2020.parquet")
    code = table["mesh_code"].to_numpy()
    row, col = meshcode.decode(code.astype(np.int64), "500m")[:2]
    inside = (row >= row0) & (row < row0 + rows) & (col >= col0) & (col < col0 + cols)
    out = []
    for name in columns:
        own = np.zeros((rows, cols), dtype=np.int64)
        own[row[inside] - row0, col[inside] - col0] = table[name].to_numpy()[inside]
        out.append(own)
    return out


def mesh_sex_age() -> Table:
    """64 x 64 cells of the Kanto fringe, real men and women of 2020, 16 ages by a public model."""
    rng = np.random.default_rng(7)
    men, women = _japan(8400, 6200, 64, 64, ("male", "female"))
    base = np.array([5, 5, 5.5, 5.6, 6, 6, 6, 6.5, 7, 8, 7.5, 6.5, 6.2, 7, 7, 11.2])
    slope = np.linspace(-1, 1, 16)
    old = rng.normal(0, 0.25, (16, 16)).repeat(4, 0).repeat(4, 1) + rng.normal(0, 0.1, (64, 64))
    truth = np.zeros((64, 64, 16, 2), dtype=np.int64)
    for sex, people in enumerate((men, women)):
        weight = base * np.exp((old[..., None] + 0.1 * sex) * slope)
        weight /= weight.sum(axis=-1, keepdims=True)
        for at in np.ndindex(64, 64):
            truth[(*at, slice(None), sex)] = rng.multinomial(people[at], weight[at])
    domain = ks.Domain.of(ks.Mesh("grid", shape=(64, 64)), ks.Ordered("age", 16), ks.Nominal("sex", ("m", "f")))
    views = ["cells", "grid@2, age", "grid@4, age", "age, sex", "age", "sex", *(f"grid@{h}" for h in range(6))]
    shares = {"cells": "0.24", "grid": "0.15", "grid@1": "0.11", "grid@2": "0.10", "grid@3": "0.10", "grid@4": "0.10",
              "grid@5": "0.10", "age, sex": "0.04", "grid@4, age": "0.06"}  # fmt: skip
    return Table(domain, truth, views, shares=shares)


def kanto() -> Table:
    """The 512 x 512 mesh with 300 ragged regions and its real municipalities."""
    rng = np.random.default_rng(11)
    with np.load(DATA / "kanto512_muni.npz") as file:
        muni = file["muni"]
    codes, number = np.unique(muni, return_inverse=True)
    towns = RegionMap("grid", number.reshape(muni.shape) - int(codes[0] == 0), name="municipality")
    seeds = rng.uniform(0, 512, (300, 2))
    at = np.stack(np.mgrid[:512, :512], axis=-1) + rng.normal(0, 2.0, (512, 512, 2))
    nearest = np.zeros((512, 512), dtype=np.int64)
    for row in range(512):
        nearest[row] = ((at[row][:, None] - seeds[None]) ** 2).sum(-1).argmin(1)
    regions = RegionMap("grid", nearest, name="region")
    truth = _japan(8400, 6080, 512, 512, ("population",))[0]
    domain = ks.Domain.of(ks.Mesh("grid", shape=(512, 512)))
    views = ["cells", *(f"grid@{h}" for h in range(1, 8)), "region", "municipality"]
    rest = {f"grid@{h}": "0.064" for h in range(4, 9)}
    return Table(domain, truth, views, (regions, towns), shares={"cells": "0.63", **rest, "region": "0.05"})


def counties() -> Table:
    """1,827 counties in states, by sex and 18 ages: a full table."""
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / "us_county_agesex_2019.parquet")
    fips = [str(code).zfill(5) for code in table["fips"].to_pylist()]
    ranked = sorted(range(len(fips)), key=lambda i: fips[i])
    names = [name for name in table.column_names if name != "fips"]
    truth = np.stack([table[name].to_numpy() for name in names], axis=1).astype(np.int64)[ranked]
    men = [i for i, name in enumerate(names) if name.startswith("m_")]
    women = [i for i, name in enumerate(names) if name.startswith("f_")]
    truth = np.stack((truth[:, men], truth[:, women]), axis=1)
    tree = grouped([(fips[i][:2], fips[i]) for i in ranked])
    domain = ks.Domain.of(ks.Nominal("county", tree.leaves, tree), ks.Nominal("sex", ("m", "f")), ks.Ordered("age", 18))
    return Table(domain, truth, ["cells", "county", "county@1", "age", "sex", "sex, age", "county@1, sex, age"])


def line(name: str) -> Table:
    """A one-dimensional set of DPBench."""
    with np.load(DATA / "dpbench_dev.npz") as file:
        truth = file[name].astype(np.int64)
    domain = ks.Domain.of(ks.Ordered("x", truth.size))
    return Table(domain, truth, ["cells", *(f"x@{h}" for h in range(1, 11))])


def ten() -> Table:
    """Ten cells."""
    truth = np.array([1200, 15, 0, 480, 3, 9000, 60, 0, 22, 310])
    return Table(ks.Domain.of(ks.Nominal("kind", tuple("abcdefghij"))), truth, ["cells"])


TABLES: dict[str, Callable[[], Table]] = {
    "od_towns": od_towns, "uk": uk, "newyork": newyork, "flights": flights, "mesh_sex_age": mesh_sex_age,
    "kanto": kanto, "counties": counties, "hepth": lambda: line("HEPTH"), "searchlogs": lambda: line("SEARCHLOGS"),
    "medcost": lambda: line("MEDCOST"), "adult": lambda: line("ADULT_1D"), "ten": ten,
}  # fmt: skip

RECIPES: dict[str, Callable[[Table], ks.Mechanism | None]] = {
    "topdown": lambda table: ks.haar_topdown(transform="nominal") if table.domain.grouped else ks.haar_topdown(),
    "pilot": lambda table: ks.bayes_tree(pilot=True, order="hierarchy" if table.domain.grouped else "morton"),
    "paired": lambda table: ks.bayes_tree(_heights(table), order="interleaved"),
    "expect": lambda table: ks.bayes_tree(_heights(table), order="interleaved", expect=True),
    "tree": lambda table: woven_tree(shares=_stages(table)),
    "hand": lambda table: woven_tree(shares=table.shares, maps=table.maps) if table.shares else None,
    "woven": lambda table: woven_tree(maps=table.maps),
    "whole": lambda table: woven_tree(maps=table.maps, whole=True),
    "best": lambda table: ks.best(maps=table.maps),
    "views": lambda table: woven_tree(dict.fromkeys(table.views, "1"), maps=table.maps),
}


def _heights(table: Table) -> dict[int, str]:
    """Every height of the interleaved tree equally."""
    top = len(interleaved(table.domain).stages) - 1
    each = 1000 // top
    return {height: f"{(1000 - each * (top - 1) if height == 0 else each) / 1000:.3f}" for height in range(top)}


def _stages(table: Table) -> dict[str, str]:
    """Every stage of the interleaved tree equally, no parts."""
    weave = Woven(table.domain, interleaved(table.domain))
    views = [weave.words(view) for depth in weave.tree.stages[1:] if (view := weave.view_at(depth)) is not None]
    each = 1000 // len(views)
    return {view: f"{(1000 - each * (len(views) - 1) if i == len(views) - 1 else each) / 1000:.3f}"
            for i, view in enumerate(views)}  # fmt: skip


def measure(table: Table, recipes: dict[str, ks.Mechanism], epsilon: str, seconds: float, runs: int
            ) -> dict[str, np.ndarray]:  # fmt: skip
    """Per recipe an array (draw, view, [MAE, RMSE])."""
    domain = table.domain
    counts = ks.Counts.from_dense(table.truth, domain, ks.Unit("person", table.change, 1), data="benchmark")
    weave = Woven(domain, interleaved(domain), table.maps)
    keys = weave.tree.keys(np.arange(domain.size))
    labels = {}
    for view in table.views:
        found = weave.partition(weave.view(view))
        labels[view] = found.of_keys(weave.tree, keys), found.groups
    out: dict[str, list] = {name: [] for name in recipes}
    started = time.process_time()
    for seed in range(runs):
        if seed >= 2 and time.process_time() - started > seconds:
            break
        for name, recipe in recipes.items():
            release = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(1000 + seed))
            gap = -table.truth.ravel().astype(np.float64)
            gap[release.cells] += release.values
            rows = []
            for label, groups in labels.values():
                error = np.bincount(label[label >= 0], gap[label >= 0], groups)
                rows.append((np.abs(error).mean(), np.sqrt((error**2).mean())))
            out[name].append(rows)
    return {name: np.array(rows) for name, rows in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--epsilons", default="0.1,1")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args()
    for name in asked.tables.split(","):
        table = TABLES[name]()
        recipes = {"geometric": ks.geometric()}
        for word in asked.recipes.split(","):
            recipe = RECIPES[word](table)
            try:
                if recipe is not None:
                    recipe.on(table.domain, ks.Unit("person", table.change, 1), "1")
                    recipes[word] = recipe
            except ks.DomainError as error:
                print(f"{name}: {word} is refused: {error}")
        filled = (table.truth > 0).mean()
        for epsilon in asked.epsilons.split(","):
            found = measure(table, recipes, epsilon, asked.seconds, asked.runs)
            plain = found.pop("geometric")
            print(f"\n{name}, epsilon {epsilon}, {filled:.1%} filled, {len(plain)} draws")
            print(f"{'view':>22} {'MAE':>8} {'RMSE':>8} " + "".join(f"{word:>22}" for word in found))
            for at, view in enumerate(table.views):
                row = f"{view:>22} {plain[:, at, 0].mean():8.2f} {plain[:, at, 1].mean():8.2f} "
                for own in found.values():
                    mae, rmse = own[:, at].mean(0) / plain[:, at].mean(0)
                    spread = (own[:, at, 0] - mae * plain[:, at, 0]).std(ddof=1) / plain[:, at, 0].mean()
                    row += f"{mae:10.3f}±{spread / np.sqrt(len(plain)):.3f}/{rmse:5.2f}"
                print(row, flush=True)
            means = [np.exp(np.log(own.mean(0) / plain.mean(0)).mean()) for own in found.values()]
            print(f"{'geometric mean':>40} " + "".join(f"{mean:>22.3f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
