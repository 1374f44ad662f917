"""Coordinates to 500 m mesh codes: kasuri against jismesh, CPU time in one run.

python benchmarks/bench_mesh.py [--points 10000000]
"""

from __future__ import annotations

import argparse

import numpy as np
from clock import best


def main() -> None:
    import jismesh.utils as jismesh

    from kasuri import meshcode

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    points = parser.parse_known_args()[0].points
    rng = np.random.default_rng(1)
    lat, lon = rng.uniform(24, 46, points), rng.uniform(122, 154, points)
    meshcode.locate(lat[:10], lon[:10], "500m")
    ours = best(lambda: meshcode.locate(lat, lon, "500m"), 3)
    theirs = best(lambda: jismesh.to_meshcode(lat, lon, 4), 2)
    other = np.flatnonzero(meshcode.locate(lat, lon, "500m") != jismesh.to_meshcode(lat, lon, 4))
    rest = np.minimum(-lat[other] * 240 % 1, -(lon[other] - 100) * 160 % 1)  # cells below the next edge
    print(f"{points:,} points to 500 m codes: kasuri {ours:.2f} s, jismesh {theirs:.2f} s, {theirs / ours:.1f}x")
    print(
        f"other codes: {other.size}, of them within the guard of 1e-7 cells below an edge: {int((rest < 1e-7).sum())}"
    )


if __name__ == "__main__":
    main()
