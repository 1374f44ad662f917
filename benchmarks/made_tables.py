"""The tables that `tables.py` measures, made from ../shared/data (docs: NOTICE): a domain, its true counts, maps.

Every maker takes a seed: 0 is what settings were chosen on; others give new draws of the models, and another window
where there is one.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import kasuri as ks
from kasuri.schema.maps import RegionMap

DATA = Path(os.environ.get("KASURI_DATA", str(Path(__file__).parents[2] / "shared" / "data")))


@dataclass
class Table:
    domain: ks.Domain
    truth: np.ndarray
    pairs: tuple[str, ...] = ()
    """Declared views beside the cells, every axis at every height and every map."""
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
    shares = {"cells": "0.24", "home@1, work@1": "0.327", "home@2, work@2": "0.333", "home": "0.05", "work": "0.05"}
    return Table(domain, truth, ("home@1, work@1", "home@2, work@2"), change="replace", shares=shares)


def uk(seed: int = 0) -> Table:
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
    return Table(domain, truth, ("home@1, work@1", "home@2, work@2"))


def newyork(seed: int = 0) -> Table:
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
    return Table(domain, truth, ("home@1, work@1",))


def flights(seed: int = 0) -> Table:
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
    return Table(domain, truth, ("home@1, work@1",))


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


def mesh_sex_age(seed: int = 0) -> Table:
    """64 x 64 cells of the Kanto fringe (or of Kinki), real men and women of 2020, 16 ages by a public model."""
    rng = np.random.default_rng(7 + seed)
    men, women = _japan(*((8400, 6200) if seed == 0 else (8290, 5680)), 64, 64, ("male", "female"))
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
    shares = {"cells": "0.24", "grid": "0.15", "grid@1": "0.11", "grid@2": "0.10", "grid@3": "0.10", "grid@4": "0.10",
              "grid@5": "0.10", "age, sex": "0.04", "grid@4, age": "0.06"}  # fmt: skip
    return Table(domain, truth, ("grid@2, age", "grid@4, age", "age, sex"), shares=shares)


def kanto(seed: int = 0) -> Table:
    """The 512 x 512 mesh with 300 ragged regions and its real municipalities."""
    rng = np.random.default_rng(11 + seed)
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
    rest = {f"grid@{h}": "0.064" for h in range(4, 9)}
    return Table(domain, truth, (), (regions, towns), shares={"cells": "0.63", **rest, "region": "0.05"})


def counties(seed: int = 0) -> Table:
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
    return Table(domain, truth, ("sex, age", "county@1, sex, age"))


def line(name: str) -> Table:
    """A one-dimensional set of DPBench."""
    with np.load(DATA / "dpbench_dev.npz") as file:
        truth = file[name].astype(np.int64)
    domain = ks.Domain.of(ks.Ordered("x", truth.size))
    return Table(domain, truth)


def ten(seed: int = 0) -> Table:
    """Ten cells."""
    truth = np.array([1200, 15, 0, 480, 3, 9000, 60, 0, 22, 310])
    return Table(ks.Domain.of(ks.Nominal("kind", tuple("abcdefghij"))), truth)


def france(seed: int = 0) -> Table:
    """34,969 communes in departments in regions: a full table of one axis."""
    with gzip.open(DATA / "fr_communes.csv.gz", "rt", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (row["region"], row["dep"], row["commune"]))
    tree = grouped([(f"r{row['region']}", f"d{row['dep']}", row["commune"]) for row in rows])
    people = {row["commune"]: int(row["population"] or 0) for row in rows}
    truth = np.array([people[label] for label in tree.leaves])
    return Table(ks.Domain.of(ks.Nominal("commune", tree.leaves, tree)), truth)


def rhode_island(seed: int = 0) -> Table:
    """25,181 census blocks in block groups, tracts and counties, by eight groups of race."""
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / "us_blocks_ri_2010.parquet")
    codes = [str(code) for code in table["geoid"].to_pylist()]
    races = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
    names = [next(n for n in table.column_names if n in (f"pop_{race}", race)) for race in races]
    counts = np.stack([table[name].to_numpy() for name in names], axis=1).astype(np.int64)
    tree = grouped([(code[:5], code[:11], code[:12], code) for code in sorted(codes)])
    at = {code: i for i, code in enumerate(codes)}
    truth = counts[[at[label] for label in tree.leaves]]
    domain = ks.Domain.of(ks.Nominal("block", tree.leaves, tree), ks.Nominal("race", races))
    return Table(domain, truth, ("block@1, race", "block@2, race", "block@3, race"))


def mesh_hours(seed: int = 0) -> Table:
    """64 x 64 cells of 1 km around Tokyo by 24 hours: people by day and by night of December 2019 (October 2020), mixed
    by the hour; each person counted once."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from kasuri import meshcode

    table = pq.read_table(DATA / "jp_flow1km_tokyo_2019_2021.parquet")
    year, month = (2019, 12) if seed == 0 else (2020, 10)
    both = []
    for slot in (0, 1):
        own = table.filter(
            (pc.field("year") == year) & (pc.field("month") == month) & (pc.field("dayflag") == 1)
            & (pc.field("timezone") == slot)
        )  # fmt: skip
        row, col = meshcode.decode(own["mesh1km"].to_numpy().astype(np.int64), "1km")[:2]
        people = np.zeros((64, 64))
        top, left = 4255, 3130
        inside = (row >= top) & (row < top + 64) & (col >= left) & (col < left + 64)
        np.add.at(people, (row[inside] - top, col[inside] - left), own["population"].to_numpy()[inside])
        both.append(people)
    out = np.clip(np.sin((np.arange(24) - 7) / 12 * np.pi) * 1.4, 0, 1)
    rate = both[1][..., None] * (1 - out) + both[0][..., None] * out
    truth = np.random.default_rng(5 + seed).poisson(rate / 24)
    domain = ks.Domain.of(ks.Mesh("grid", shape=(64, 64)), ks.Ordered("hour", 24))
    return Table(domain, truth, ("grid@2, hour", "grid@4, hour"))


def od_meshes(seed: int = 0) -> Table:
    """Half a million trips between 16 x 16 and 16 x 16 cells: homes as the population of Kanto, gravity."""
    rng = np.random.default_rng(3 + seed)
    top, left = ((8560, 6240), (8290, 5680))[seed > 0]
    home = _japan(top, left, 64, 64, ("population",))[0].reshape(16, 4, 16, 4).sum((1, 3)).astype(float)
    at = np.stack(np.mgrid[:16, :16], -1).reshape(-1, 2)
    gap = np.linalg.norm(at[:, None] - at[None], axis=2)
    work = home.ravel() ** 1.2 * rng.lognormal(0, 0.6, 256)
    flow = home.ravel()[:, None] * work[None] / (1 + gap) ** 2
    truth = rng.poisson(flow / flow.sum() * 5e5).reshape(16, 16, 16, 16)
    domain = ks.Domain.of(ks.Mesh("home", shape=(16, 16)), ks.Mesh("work", shape=(16, 16)))
    return Table(domain, truth, tuple(f"home@{h}, work@{h}" for h in range(1, 4)))


def europe(seed: int = 0) -> Table:
    """512 x 512 cells of 1 km, London to Cologne, 2011 (2018)."""
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / "eu_grid1km_nw512.parquet")
    truth = np.zeros((512, 512), dtype=np.int64)
    people = table["pop_2011" if seed == 0 else "pop_2018"].to_numpy()
    truth[table["y_km"].to_numpy() - 2800, table["x_km"].to_numpy() - 3600] = np.nan_to_num(people).astype(np.int64)
    return Table(ks.Domain.of(ks.Mesh("grid", shape=(512, 512))), truth)


def traces(seed: int = 0) -> Table:
    """32 x 32 regions of Tokyo: where 42,000 made-up people are at one time."""
    with np.load(DATA / "pwscup2019_tokyo_traces.npz") as file:
        place = file["region"][:, 20 if seed == 0 else 35].astype(np.int64) - 1
    truth = np.bincount(place, minlength=1024).reshape(32, 32)
    return Table(ks.Domain.of(ks.Mesh("grid", shape=(32, 32))), truth)


def national(seed: int = 0) -> Table:
    """The mesh of Japan, 4096 x 4096, with its municipalities (and 1,700 made-up regions: seed above 0)."""
    import pyarrow.parquet as pq

    from kasuri import meshcode

    table = pq.read_table(DATA / "jp_mesh500_2020.parquet")
    row, col = meshcode.decode(table["mesh_code"].to_numpy().astype(np.int64), "500m")[:2]
    inside = (row - row.min() < 4096) & (col - col.min() < 4096)  # all but a few cells of the far islands
    table = table.filter(inside)
    row, col = (row - row.min())[inside], (col - col.min())[inside]
    truth = np.zeros((4096, 4096), dtype=np.int64)
    truth[row, col] = table["population"].to_numpy()
    labels = np.full((4096, 4096), -1, dtype=np.int64)
    known = pq.read_table(DATA / "jp_mesh500_muni.parquet")
    number = dict(zip(known["mesh_code"].to_pylist(), np.unique(known["muni_code"].to_numpy(), return_inverse=True)[1],
                      strict=True))  # fmt: skip
    if seed == 0:
        labels[row, col] = [number[code] for code in table["mesh_code"].to_pylist()]
    else:
        from scipy.spatial import cKDTree

        places = np.random.default_rng(seed).choice(row.size, 1700, replace=False)
        labels[row, col] = cKDTree(np.c_[row[places], col[places]]).query(np.c_[row, col])[1]
    maps = (RegionMap("grid", labels, name="municipality" if seed == 0 else "region"),)
    return Table(ks.Domain.of(ks.Mesh("grid", shape=(4096, 4096))), truth, (), maps)


TABLES: dict[str, Callable[[int], Table]] = {
    "mesh_sex_age": mesh_sex_age, "mesh_hours": mesh_hours, "counties": counties, "france": france,
    "rhode_island": rhode_island, "od_towns": od_towns, "od_meshes": od_meshes, "uk": uk, "newyork": newyork,
    "flights": flights, "hepth": lambda _: line("HEPTH"), "searchlogs": lambda _: line("SEARCHLOGS"),
    "medcost": lambda _: line("MEDCOST"), "adult": lambda _: line("ADULT_1D"), "traces": traces, "ten": ten,
    "kanto": kanto, "europe": europe, "national": national,
}  # fmt: skip
