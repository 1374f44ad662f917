"""The real maps the studies run on, from ../shared/data: 512 x 512 windows of the census and DPBench histograms."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
NAMES = ("kanto", "tohoku", "kinki", "kyushu", "GOWALLA", "STROKE", "ADULT_2D")


def folder() -> Path:
    """Where the data lies; the study ends where it is not there."""
    for name in ("../shared/data", "../../shared/data"):
        if (ROOT / name / "README.md").exists():
            return ROOT / name
    sys.exit("skipped: ../shared/data is not there")


def load(name: str) -> np.ndarray:
    """One map as an array of counts."""
    if name.isupper():
        return np.load(folder() / "dpbench_dev.npz")[name]
    from pyarrow import parquet

    from kasuri import meshcode
    from kasuri.schema import WINDOWS

    _, origin, shape = WINDOWS[name]
    table = parquet.read_table(folder() / "jp_mesh500_2020.parquet", columns=["mesh_code", "population"])
    row, col = meshcode.decode(table["mesh_code"].to_numpy(), "500m")
    row, col = row - origin[0], col - origin[1]
    inside = (row >= 0) & (row < shape[0]) & (col >= 0) & (col < shape[1])
    out = np.zeros(shape, dtype=np.int64)
    out[row[inside], col[inside]] = table["population"].to_numpy()[inside]
    return out


def flow() -> np.ndarray:
    """People in the 1 km cells of Tokyo on weekday nights of December 2019, in the corner of an empty map."""
    from pyarrow import parquet

    from kasuri import meshcode

    wanted = [("year", "==", 2019), ("month", "==", 12), ("dayflag", "==", 1), ("timezone", "==", 1)]
    table = parquet.read_table(folder() / "jp_flow1km_tokyo_2019_2021.parquet", filters=wanted)
    row, col = meshcode.decode(table["mesh1km"].to_numpy(), "1km")
    row, col = row - 4100, col - 3000
    inside = (row >= 0) & (row < 256) & (col >= 0) & (col < 256)
    out = np.zeros((256, 256), dtype=np.int64)
    np.add.at(out, (row[inside], col[inside]), table["population"].to_numpy()[inside].astype(np.int64))
    return out


def regions(truth: np.ndarray, count: int, seed: int = 7) -> list[np.ndarray]:
    """`count` irregular areas: unions of 1-4 discs of random size, most around a cell where people live."""
    rng = np.random.default_rng(seed)
    side = min(truth.shape)
    y, x = np.ogrid[: truth.shape[0], : truth.shape[1]]
    lived, out = np.flatnonzero(truth), []
    while len(out) < count:
        cy, cx = divmod(rng.choice(lived), truth.shape[1]) if rng.random() < 0.7 else rng.integers(0, truth.shape)
        largest = np.exp(rng.uniform(np.log(1.5), np.log(side / 6)))
        chosen = np.zeros(truth.shape, dtype=bool)
        for _ in range(rng.integers(1, 5)):
            r = largest * rng.uniform(0.5, 1)
            chosen |= (y - cy - rng.normal(0, r)) ** 2 + (x - cx - rng.normal(0, r)) ** 2 < r * r
        if chosen.any():
            out.append(np.flatnonzero(chosen))
    return out
