"""Reports: size of the page and CPU time to make it, beside the time of the whole save.

python benchmarks/bench_report.py [--dense]

The Kanto census (shipped) and, where ../shared/data holds it, the national 4096 x 4096 window; --dense adds `geometric`
on the national window, 16 million listed cells, whose page is summed to a coarser level.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from clock import best, line

import kasuri as ks
from kasuri import examples
from kasuri.report import page


def maps() -> dict[str, Any]:
    """Counts by name."""
    kanto = ks.count(str(examples.KANTO), examples.kanto_domain(), columns={"grid": "mesh_code"},
                     unit=examples.person(), weight="population", data="census-2020")  # fmt: skip
    found = {"Kanto, 512 x 512": kanto}
    for folder in ("../shared/data", "../../shared/data"):
        path = Path(__file__).parents[1] / folder / "jp_mesh500_2020.parquet"
        if path.exists():
            from pyarrow import parquet

            from kasuri.meshcode import decode

            table = parquet.read_table(path, columns=["mesh_code", "population"])
            mesh = ks.Mesh.window("grid", "japan4096")
            row, col = decode(table["mesh_code"].to_numpy().astype(np.int64), "500m")
            row, col = row - mesh.origin[0], col - mesh.origin[1]
            inside = (row >= 0) & (row < 4096) & (col >= 0) & (col < 4096)
            cells = row[inside] * 4096 + col[inside]
            order = np.argsort(cells)
            people = table["population"].to_numpy()[inside][order].astype(np.int64)
            domain = ks.Domain.of(mesh)
            found["Japan, 4096 x 4096"] = ks.Counts.from_coo(cells[order], people, domain, examples.person(), data="c")
            break
    return found


def measure(out: ks.Release) -> tuple[int, float, float]:
    """Bytes of the page, CPU seconds to make it, CPU seconds of the whole save."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "release"
        whole = best(lambda: out.save(str(folder), unmetered=True), 1)
        return (folder / "report.html").stat().st_size, best(lambda: page.build(folder), 3), whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dense", action="store_true")
    dense = parser.parse_known_args()[0].dense
    found = maps()
    for name, counts in found.items():
        recipes = [ks.haar_topdown(), ks.refined_tree(), *([ks.geometric()] if dense or "Kanto" in name else [])]
        for recipe in recipes:
            out = ks.release(counts, recipe, epsilon="0.1", ledger=None)
            size, made, whole = measure(out)
            line(f"{name}, {recipe.name}, {out.cells.size:,} cells", f"{size / 1e6:.2f} MB",
                 f"page {made:.2f} s of save {whole:.2f} s")  # fmt: skip
    if len(found) == 1:
        print("  ../shared/data is not there: the national mesh is skipped")


if __name__ == "__main__":
    main()
