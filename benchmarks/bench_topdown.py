"""The sparse top-down release (T2) against a NumPy float T2 written from the paper.

python3 run.py bench topdown

2^37 cells: a national table as the paper's (mesh x age x sex x home), synthetic people in towns. 2^24: the national
500 m mesh with the real census of ../shared/data. Both from COO in row-major cells to COO in row-major cells, one
thread; the twin does the paper's steps (Morton order, sparse Haar transform A.1, T2) in NumPy floats. CPU seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
from clock import best, line

import kasuri as ks
from kasuri.noise.rng import Streams, secure
from kasuri.recipes.descent import MEASURED_CELLS
from kasuri.recipes.engine import Descent
from kasuri.trees import order

ROOT = Path(__file__).parents[1]
CENSUS = ROOT.parent / "shared" / "data" / "jp_mesh500_2020.parquet"
PERSON = ks.Unit("person", "add-remove", 1)


def numpy_haar(keys: np.ndarray, values: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """[Terada2015, A.1]: the sparse Haar transform in sums and differences, level by level: (node, D) per level."""
    nodes, sums, out = keys, values.astype(np.float64), []
    for _ in range(k):
        parents, first = np.unique(nodes >> 1, return_index=True)
        signed = np.where(nodes & 1, -sums, sums)
        out.append((parents, np.add.reduceat(signed, first)))
        nodes, sums = parents, np.add.reduceat(sums, first)
    return [(nodes, sums), *out[::-1]]


def numpy_t2(keys: np.ndarray, values: np.ndarray, k: int, epsilon: float, rng: np.random.Generator):
    """The paper's two steps in NumPy floats: W = H(V) (A.1), then T2 (4.2.2) with eq. 25's scale."""
    scale = (1 + k) / epsilon
    (_, total), *levels = numpy_haar(keys, values, k)
    prefix = np.zeros(1, dtype=np.int64)
    S = np.maximum(total + rng.laplace(0, scale, 1), 0)
    for nodes, differences in levels:
        at = np.minimum(np.searchsorted(nodes, prefix), nodes.size - 1)
        D = np.where(nodes[at] == prefix, differences[at], 0.0) + rng.laplace(0, scale, prefix.size)
        D = np.clip(D, -S, S)
        S = np.column_stack(((S + D) / 2, (S - D) / 2)).ravel()
        prefix = np.column_stack((prefix << 1, (prefix << 1) | 1)).ravel()
        keep = S > 0
        prefix, S = prefix[keep], S[keep]
    return prefix, S


def spread_bits(x: np.ndarray) -> np.ndarray:
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
        x = (x | (x << shift)) & mask
    return x


def gather_bits(x: np.ndarray) -> np.ndarray:
    x = x & 0x5555555555555555
    for shift, mask in ((1, 0x3333333333333333), (2, 0x0F0F0F0F0F0F0F0F), (4, 0x00FF00FF00FF00FF),
                        (8, 0x0000FFFF0000FFFF), (16, 0x00000000FFFFFFFF)):  # fmt: skip
        x = (x | (x >> shift)) & mask
    return x


def numpy_release(cells, values, side_bits: int, low_bits: int, epsilon: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """COO in, COO out in NumPy: Morton order of the mesh bits above `low_bits`, sort, transform, T2, and back."""
    mesh, low = cells >> low_bits, cells & ((1 << low_bits) - 1)
    row, col = mesh >> side_bits, mesh & ((1 << side_bits) - 1)
    keys = ((spread_bits(row) << 1 | spread_bits(col)) << low_bits) | low
    ranked = np.argsort(keys)
    out, S = numpy_t2(keys[ranked], values[ranked], 2 * side_bits + low_bits, epsilon, rng)
    mesh, low = out >> low_bits, out & ((1 << low_bits) - 1)
    back = ((gather_bits(mesh >> 1) << side_bits | gather_bits(mesh)) << low_bits) | low
    ranked = np.argsort(back)
    return back[ranked], S[ranked]


def people(m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """About m non-empty cells of 2^37 = mesh 2048 x 2048, 16 ages, 2 sexes, 1024 homes: towns of all sizes, half of
    the people in their home town, counts with a long tail."""
    size = rng.pareto(1.2, 400) * 6 + 2
    town = rng.choice(400, 4 * m // 3 + 1000, p=size / size.sum())
    centre = rng.integers(0, 2048, (400, 2))
    place = np.round(centre[town] + rng.standard_normal((town.size, 2)) * size[town, None])
    row, col = np.clip(place, 0, 2047).astype(np.int64).T
    home = np.where(rng.random(town.size) < 0.5, town, rng.integers(0, 1024, town.size))
    cells = np.unique(((row * 2048 + col) * 32 + rng.integers(0, 32, town.size)) * 1024 + home)
    cells = np.sort(rng.choice(cells, min(m, cells.size), replace=False))
    return cells, rng.geometric(0.08, cells.size).astype(np.int64)


def compare(name: str, counts: ks.Counts, side_bits: int, low_bits: int, epsilon: str, target: str) -> None:
    """The paper's sparse release beside ours with jumps, and with every node drawn, which tells its measurements."""
    recipe = ks.haar_topdown(descent="jump")
    rng = np.random.default_rng()
    result = {}

    def ours() -> None:
        result["out"] = ks.release(counts, recipe, epsilon=epsilon, ledger=None, threads=1)

    ours()
    mine = best(ours)
    tree = order.morton(counts.domain)
    keys = tree.keys(counts.cells)
    ranked = np.argsort(keys)
    keys, values = keys[ranked], counts.values[ranked]
    descent = Descent(tree, tree.cost("add-remove") / Fraction(epsilon), jumps=True)
    alone = best(lambda: descent.run(keys, values, Streams(secure().release_key(), "haar_topdown"), 1, False))
    loss = float(epsilon)
    numpy = best(lambda: numpy_release(counts.cells, counts.values, side_bits, low_bits, loss, rng), repeat=2)
    numpy_alone = best(lambda: numpy_t2(keys, values, tree.depth, loss, rng), repeat=2)
    outputs = result["out"].cells.size
    line(f"{name}, eps {epsilon}: NumPy / kasuri ({numpy:.3f} / {mine:.3f} s)", f"{numpy / mine:.1f}", target)
    line(f"    the descent alone, sorted keys in ({numpy_alone:.3f} / {alone:.3f} s)", f"{numpy_alone / alone:.1f}")
    line(f"    {keys.size:,} records, {outputs:,} outputs", f"{alone / max(outputs, 1) * 1e9:.0f} ns per output")
    if tree.leaves <= MEASURED_CELLS:
        told = best(lambda: ks.release(counts, ks.haar_topdown(), epsilon=epsilon, ledger=None, threads=1))
        line(f"    the default, with measurements ({numpy:.3f} / {told:.3f} s)", f"{numpy / told:.1f}", target)


WHOLE = """
import json, sys, time
import numpy as np
import kasuri as ks
from kasuri._kernels import warm_up
warm_up()
domain = ks.Domain.of(ks.Mesh("grid", shape=(2048, 2048)), ks.Ordered("age", 16), ks.Nominal("sex", ("f", "m")),
                      ks.Ordered("home", 1024))
keys, values = np.load(sys.argv[1]), np.load(sys.argv[2])
counts = ks.Counts.from_coo(keys, values, domain, ks.Unit("person", "add-remove", 1))
del keys, values
out = {"cells": domain.size, "records": int(counts.cells.size)}
for epsilon in ("0.1", "1"):
    start, wall = time.process_time(), time.perf_counter()
    released = ks.release(counts, ks.haar_topdown(), epsilon=epsilon, ledger=None)
    # not ru_maxrss: a child starts with its parent's
    peak = next(int(x.split()[1]) / 1e6 for x in open('/proc/self/status') if x.startswith('VmHWM'))
    out[epsilon] = [time.process_time() - start, time.perf_counter() - wall, int(released.cells.size), peak]
    del released
print(json.dumps(out))
"""


def census() -> tuple[np.ndarray, np.ndarray] | None:
    """Cells and counts of the national window, suppressed cells left out, where the census file is."""
    if not CENSUS.exists():
        return None
    from kasuri import meshcode
    from kasuri.ingest import read_table

    table = read_table(CENSUS)
    row, col = meshcode.decode(table["mesh_code"].to_numpy(), "500m")
    row, col = row - 6912, col - 3328
    keep = (row >= 0) & (row < 4096) & (col >= 0) & (col < 4096) & ~table["suppressed"].to_numpy()
    return row[keep] * 4096 + col[keep], table["population"].to_numpy()[keep].astype(np.int64)


def main() -> None:
    rng = np.random.default_rng(0)
    large = ks.Domain.of(
        ks.Mesh("grid", shape=(2048, 2048)),
        ks.Ordered("age", 16),
        ks.Nominal("sex", ("f", "m")),
        ks.Ordered("home", 1024),
    )
    counts = ks.Counts.from_coo(*people(1_000_000, rng), large, PERSON)
    for epsilon in ("0.1", "1"):
        compare("2^37 cells", counts, 11, 15, epsilon, "(>= 8)")
    real = census()
    if real is None:
        print("  ../shared/data is not there: the national mesh is skipped")
    else:
        counts = ks.Counts.from_coo(*real, ks.Domain.of(ks.Mesh.window("grid", "japan4096")), PERSON)
        for epsilon in ("0.1", "1"):
            compare("2^24 cells, census", counts, 12, 0, epsilon, "(>= 4)")
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("cells.npy", "values.npy")]
        many = people(10_000_000, rng)
        for file, array in zip(files, many, strict=True):
            np.save(file, array)
        run = subprocess.run([sys.executable, "-c", WHOLE, *files], capture_output=True, text=True, check=True)
    whole = json.loads(run.stdout)
    for epsilon in ("0.1", "1"):
        cpu, wall, outputs, peak = whole[epsilon]
        line(f"ks.release, 2^37 cells, {whole['records']:,} records, eps {epsilon}", f"{cpu:.2f} CPU s", "(< 2)")
        line(f"    {outputs:,} outputs, {wall:.2f} s wall, peak memory", f"{peak:.2f} GB", "(< 1.5)")
    del counts
    numpy = best(lambda: numpy_release(*many, 11, 15, 1.0, rng), 1)
    line(f"    NumPy / kasuri at eps 1 ({numpy:.1f} s, all threads)", f"{numpy / whole['1'][0]:.1f}", "(>= 8)")


if __name__ == "__main__":
    main()
