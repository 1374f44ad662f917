"""Real data shipped with kasuri (credit in NOTICE): the 2020 census of Japan, 512 x 512 cells of 500 m around Tokyo."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import meshcode
from kasuri.files import read_parquet
from kasuri.schema import Domain, Mesh, Unit

KANTO = Path(__file__).parent / "kanto512_2020.parquet"
"""Columns mesh_code (9 digits) and population; 95,976 populated cells, 47,595,417 people."""

CREDIT_EN = "Made from the 2020 census of Japan, 500 m mesh, Statistics Bureau (e-Stat)"
CREDIT = f"総務省統計局「令和2年国勢調査」500mメッシュ（e-Stat 統計GIS）を加工して作成 / {CREDIT_EN}"


ABOUT = {
    "title": "Where people live around Tokyo: the 2020 census on a map of 500 m cells, protected",
    "title_ja": "東京周辺の人口分布：2020年国勢調査（500mメッシュ）を保護して公表",
    "publisher": "kasuri demo",
    "source": CREDIT,
    "licence": "e-Stat terms of use: free reuse with attribution",
    "language": "en",
}
"""What readers of the demo's release are told."""


def kanto_domain() -> Domain:
    """The public window of the extract."""
    return Domain.of(Mesh.window("grid", "kanto"))


def person() -> Unit:
    """One resident, counted in one cell, enters or leaves."""
    return Unit(id="person", change="add-remove", max_cells=1)


@cache
def kanto_map() -> NDArray[Any]:
    """People by row and column of the extract: whole numbers, 512 x 512, south first. Do not write into it."""
    table, (grid,) = read_parquet(KANTO), kanto_domain().planes
    rows, cols = meshcode.decode(table["mesh_code"].to_numpy(), "500m")
    out = np.zeros(grid.shape, dtype=np.int64)
    out[rows - grid.origin[0], cols - grid.origin[1]] = table["population"].to_numpy()
    out.setflags(write=False)
    return out
