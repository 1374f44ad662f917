"""Error of a map of 42,000 people in 32 x 32 regions by area size: inversion, projection, EM, EM with a prior.

    python3 run.py bench local_map
    python benchmarks/bench_local_map.py [--epsilon 4] [--runs 5] [--figure local_map.png]

Reads pwscup2019_tokyo_traces.npz (see data/README) from ../shared/data or ../../shared/data. RMSE over all aligned
blocks of 1, 4, ..., 1024 regions, mean square over the runs. Prints one JSON object.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import kasuri as ks

SIDE = 32


def people(time: int) -> np.ndarray:
    for folder in ("../shared/data", "../../shared/data"):
        path = Path(__file__).parent.parent / folder / "pwscup2019_tokyo_traces.npz"
        if path.exists():
            return np.load(path)["region"][:, time].astype(np.int64) - 1
    sys.exit("skipped: pwscup2019_tokyo_traces.npz is not in ../shared/data")


def blocks(grid: np.ndarray, side: int) -> np.ndarray:
    n = SIDE // side
    return grid.reshape(n, side, n, side).sum(axis=(1, 3))


METHODS = {
    "inversion": ("inversion", None, False),
    "projection": ("projection", None, False),
    "inversion, tree": ("inversion", None, True),
    "em": ("em", None, False),
    "em, neighbours": ("em", ks.local.Neighbours(50.0), False),
    "em, neighbours, tree": ("em", ks.local.Neighbours(50.0), True),
}


def main(words=()):
    asked = argparse.ArgumentParser()
    asked.add_argument("--epsilon", default="4")
    asked.add_argument("--kind", default="oue")
    asked.add_argument("--runs", type=int, default=5)
    asked.add_argument("--figure", type=Path)
    given = asked.parse_args(words)
    values = people(10)
    truth = np.bincount(values, minlength=SIDE * SIDE).reshape(SIDE, SIDE)
    rr = getattr(ks.local, given.kind)(ks.Mesh("grid", shape=(SIDE, SIDE)), epsilon=given.epsilon, elsewhere=False)
    sides = [1, 2, 4, 8, 16, 32]
    squares = {name: np.zeros(len(sides)) for name in METHODS}
    last = {}
    for seed in range(given.runs):
        reports = rr.randomize(values, source=ks.seeded(seed))
        for name, (method, prior, tree) in METHODS.items():
            found = ks.local.estimate(reports, rr, method=method, prior=prior)
            assert found.converged
            grid = found.refined() if tree else found.counts.reshape(SIDE, SIDE)
            last[name] = grid
            squares[name] += [((blocks(grid, k) - blocks(truth, k)) ** 2).mean() / given.runs for k in sides]
    table = {name: [round(float(x), 1) for x in np.sqrt(found)] for name, found in squares.items()}
    print(json.dumps({"epsilon": given.epsilon, "randomizer": rr.kind, "people": int(values.size), "runs": given.runs,
                      "area": [k * k for k in sides], "rmse": table}, indent=2))  # fmt: skip
    if given.figure:
        draw(truth, last, table, [k * k for k in sides], given)


def draw(truth, last, table, areas, given):
    from matplotlib.figure import Figure

    shown = Figure(figsize=(16, 4), layout="constrained")
    axes = shown.subplots(1, 4)
    for axis, (title, grid) in zip(
        axes,
        {"people": truth, "inversion": last["inversion"], "em, neighbours": last["em, neighbours"]}.items(),
        strict=False,
    ):
        axis.imshow(np.sqrt(np.maximum(grid, 0)), origin="lower", cmap="Blues", vmin=0, vmax=np.sqrt(truth.max()))
        axis.set_title(title)
        axis.set_axis_off()
    for name, errors in table.items():
        if min(errors[:-1]) > 0:
            axes[3].plot(areas[:-1], errors[:-1], marker="o", label=name)
    axes[3].set(xscale="log", yscale="log", xlabel="regions in the block", ylabel="RMSE (people)",
                title=f"42,000 people, 1,024 regions, ε = {given.epsilon}")  # fmt: skip
    axes[3].legend(frameon=False, fontsize=8)
    shown.savefig(given.figure, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1:])
