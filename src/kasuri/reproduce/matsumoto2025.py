"""Tables 1-4 and Figures 1-6 of [Matsumoto2025]: what the paper does, and what is differentially private.

The paper's own rows use the true total and parameters tuned on the true table, with Laplace noise of scale 1/epsilon:
they are not differentially private, and are measured here on its synthetic map only to be compared with. The rows of
kasuri are releases, epsilon-DP under add-remove, total and tuning included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import kasuri as ks
from kasuri import meshcode
from kasuri.arrays import Float, Int
from kasuri.noise.rng import Source, Streams
from kasuri.noise.samplers import discrete_laplace, float_laplace
from kasuri.refine import project
from kasuri.reproduce.paper import save, sheet

QUICK, FULL = 20, 100
"""Runs per row: within a minute, and as in the paper."""
EPSILONS = ("0.1", "1", "10")
GAMMA = {"0.1": 0.95, "1": 0.995, "10": 0.9995}
"""gamma of the row Proposed, tuned on the true table as in the paper."""
GAMMA_NATIONAL = 0.99
CLASSES = (("0", 0, 0), ("1-9", 1, 9), ("10-99", 10, 99), ("100+", 100, 1 << 40))

PRINTED_RMSE = {
    "Proposed": (4.3133, 0.5141, 0.0319),
    "Simplex": (4.8221, 0.5538, 0.0341),
    "NNL": (6.4286, 0.6103, 0.0324),
    "LM": (25.2317, 4.6061, 0.5069),
}
PRINTED_NONZERO = {
    "Proposed": (4.82, 5.63, 3.39),
    "Simplex": (6.54, 6.76, 3.40),
    "NNL": (8.82, 7.23, 3.39),
    "LM": (46.69, 32.41, 7.44),
}
PRINTED_SECONDS: dict[str, tuple[float | None, ...]] = {
    "Proposed": (1.43, 19.36, 467.63),
    "Proposed (fixed)": (0.16, 2.24, 48.25),
    "Simplex": (0.13, 1.97, 49.43),
    "NNL": (5.37, 60.36, None),
    "LM": (0.10, 1.59, 34.42),
}
"""Table 3: seconds of 100 restorations; Proposed and NNL with the search of their parameter."""
PRINTED_NATIONAL = {"Proposed": 5.30, "Simplex": 5.96}
PRINTED_NATIONAL_SECONDS = {"Proposed": 2409.15, "Proposed (fixed)": 250.62, "Simplex": 233.96}
"""Table 4: seconds of 25 restorations."""
NATIONAL = "jp_mesh500_2020.parquet"
"""The national 500 m mesh in the folder of data: mesh_code, population, suppressed."""
SEARCHED = (0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995)
"""Nine values of gamma: the printed time of the search is nine to ten times that of one restoration."""

RECIPES: dict[str, Callable[[], ks.Mechanism]] = {
    "neg_l2_simplex": ks.neg_l2_simplex,
    "simplex": ks.simplex,
    "nonneg_lasso": ks.nonneg_lasso,
    "refined_tree": lambda: ks.refined_tree({0: "0.70", 2: "0.15", 4: "0.15"}),
}
"""kasuri's rows. refined_tree measures blocks of 1, 16 and 256 cells."""


def city(side: int) -> Int:
    """floor(1000 exp(-a r^2)) around the middle of a side x side map, eq. 15; a = 0.161 at side 64: 3.3 % are not 0."""
    r = np.arange(side) - side // 2
    spread = 0.161 * (64 / side) ** 2
    return np.floor(1000 * np.exp(-spread * np.add.outer(r**2, r**2))).astype(np.int64)


def whole(x: Float, total: int) -> Int:
    """Floors and largest remainders: whole numbers that sum to `total`."""
    out = np.floor(x).astype(np.int64)
    live = np.flatnonzero(x)
    left = total - int(out.sum())
    if left > 0:
        out[live[np.argpartition((out - x)[live], left - 1)[:left]]] += 1
    return out


def negative_l2(noisy: Float, total: int, gamma: float) -> Float:
    """The projection of noisy / gamma by Michelot's shrinking set, no sort."""
    from kasuri._kernels.simplex import michelot

    scaled = noisy / gamma
    return np.maximum(scaled - michelot(scaled, float(total)), 0.0)


def scaled_to(x: Float, total: int) -> Float:
    return x * (total / x.sum()) if x.sum() > 0 else x + total / x.size


def run(
    runs: int,
    *,
    data: Path | None = None,
    progress: Callable[[str], None] = lambda words: None,
    source: Callable[[int], Source] | None = None,
) -> dict[str, Any]:
    """Measure every row `runs` times with fresh noise; `source` (run -> Source) makes a test repeatable. `data` is
    a folder with the 2020 census on the national 500 m mesh (`NATIONAL`) for Table 4 and Figures 5-6."""
    truth = city(64)
    table: dict[str, dict[str, Any]] = {}
    for at, epsilon in enumerate(EPSILONS):
        progress(f"epsilon {epsilon}, {runs} runs")
        outputs = _paper_rows(truth.ravel(), epsilon, runs, source) | _own_rows(truth, epsilon, runs, source)
        for name, released in outputs.items():
            row = table.setdefault(name, {"private": name in RECIPES, "rmse": [], "nonzero": [], "classes": []})
            error = released - truth.ravel()
            row["rmse"].append(float(np.sqrt((error**2).mean(axis=1)).mean()))
            row["nonzero"].append(float((released > 0).mean() * 100))
            row["classes"].append(_by_class(error, truth.ravel()))
            if name in PRINTED_RMSE:
                row.setdefault("printed_rmse", []).append(PRINTED_RMSE[name][at])
                row.setdefault("printed_nonzero", []).append(PRINTED_NONZERO[name][at])
    progress("timing")
    result: dict[str, Any] = {
        "paper": "Matsumoto, Matsui, Terada 2025, Tables 1-4",
        "runs": runs,
        "epsilons": list(EPSILONS),
        "true_nonzero": float((truth > 0).mean() * 100),
        "table": table,
        "timing": [_timing(side) for side in (64, 256, 1024)],
        "national": None,
        "note": "The paper's rows use the true total and gamma, lambda tuned on the true map, which is not "
        "differentially private. The rows of kasuri are epsilon-DP, total and tuning included.",
    }
    if data is not None:
        progress("the national mesh")
        result["national"] = restored(national(data), max(1, min(runs // 4, 25)), source)
    return result


def _streams(source: Callable[[int], Source] | None, at: int, name: str) -> Streams:
    return Streams((source(at) if source else ks.secure()).release_key(), name)


def _paper_rows(truth: Int, epsilon: str, runs: int, source: Any) -> dict[str, Int]:
    """LM, Simplex, Proposed, and NNL with the lambda of least mean RMSE, as in section 4.1."""
    total, scale = int(truth.sum()), 1 / float(epsilon)
    out: dict[str, list[Int]] = {"Proposed": [], "Simplex": [], "LM": []}
    candidates = np.arange(0, 8.25, 0.25) * scale
    lassos: list[list[Int]] = [[] for _ in candidates]
    for i in range(runs):
        noisy = truth + float_laplace(scale, _streams(source, i, f"matsumoto2025 {epsilon}").open("noise"), truth.size)
        out["Proposed"].append(whole(negative_l2(noisy, total, GAMMA[epsilon]), total))
        out["Simplex"].append(whole(negative_l2(noisy, total, 1.0), total))
        out["LM"].append(whole(scaled_to(np.maximum(noisy, 0.0), total), total))
        for row, t in zip(lassos, candidates, strict=True):
            row.append(whole(scaled_to(np.maximum(noisy - t, 0.0), total), total))
    errors = [np.mean([np.sqrt(((x - truth) ** 2).mean()) for x in row]) for row in lassos]
    return {name: np.array(rows) for name, rows in (out | {"NNL": lassos[int(np.argmin(errors))]}).items()}


def _own_rows(truth: Int, epsilon: str, runs: int, source: Any) -> dict[str, Int]:
    domain = ks.Domain.of(ks.Mesh("grid", shape=truth.shape))
    counts = ks.Counts.from_dense(truth, domain, ks.Unit("person", "add-remove", 1))

    def one(recipe: ks.Mechanism, at: int) -> Int:
        released = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=source and source(at))
        return released.to_dense().ravel()

    return {name: np.array([one(make(), i) for i in range(runs)]) for name, make in RECIPES.items()}


def _by_class(error: Int, truth: Int) -> dict[str, dict[str, float]]:
    """RMSE and mean error by size of the true count (Figures 2-4)."""
    out = {}
    for name, low, high in CLASSES:
        part = error[:, (truth >= low) & (truth <= high)]
        out[name] = {"rmse": float(np.sqrt((part**2).mean())), "me": float(part.mean())}
    return out


def _timing(side: int) -> dict[str, Any]:
    """CPU seconds of one restoration (Table 3), and of the projection alone: sorted as printed, and by a tally."""
    truth = city(side).ravel()
    total = int(truth.sum())
    streams = Streams(ks.secure().release_key(), "matsumoto2025 timing")
    repeat = max(3, (1 << 20) // truth.size // 8)
    exact = truth + discrete_laplace(Fraction(10)).draw(streams.open("noise", 1), truth.size)

    def noisy() -> Float:
        return truth + float_laplace(10.0, streams.open("noise"), truth.size)

    def tallied() -> None:
        project.RULES["neg l2"].shape(project.Tally.of(exact), total, Fraction(19, 20)).apply(exact)

    seconds = {
        "LM": _seconds(lambda: whole(scaled_to(np.maximum(noisy(), 0.0), total), total), repeat),
        "Simplex": _seconds(lambda: whole(negative_l2(noisy(), total, 1.0), total), repeat),
        "Proposed (fixed)": _seconds(lambda: whole(negative_l2(noisy(), total, 0.95), total), repeat),
        "Proposed": _seconds(lambda: _searched(truth, noisy(), SEARCHED, _scaled), repeat),
        "NNL": _seconds(lambda: _searched(truth, noisy(), SEARCHED, _lasso), repeat),
        "projection, sorted": _seconds(lambda: _sorted_threshold(exact.astype(np.float64), total), repeat),
        "projection, by a tally, whole numbers": _seconds(tallied, repeat),
    }
    at = {64: 0, 256: 1, 1024: 2}[side]
    simplex = PRINTED_SECONDS["Simplex"][at] or 1.0
    told = {name: row[at] for name, row in PRINTED_SECONDS.items()}
    printed = {name: None if seconds_of is None else seconds_of / simplex for name, seconds_of in told.items()}
    return {
        "cells": side * side,
        "seconds": seconds,
        "ratio_to_simplex": {name: seconds[name] / seconds["Simplex"] for name in printed},
        "printed_ratio_to_simplex": printed,
        "sorted_over_tally": seconds["projection, sorted"] / seconds["projection, by a tally, whole numbers"],
    }


def _searched(
    truth: Int, noisy: Float, candidates: tuple[float, ...], restore: Callable[[Float, int, float], Float]
) -> Int:
    """The restoration of least RMSE against the TRUE table: the paper's search, which is not private."""
    total = int(truth.sum())
    made = [whole(restore(noisy, total, value), total) for value in candidates]
    return min(made, key=lambda x: float(((x - truth) ** 2).sum()))


def _scaled(noisy: Float, total: int, gamma: float) -> Float:
    return negative_l2(noisy, total, gamma)


def _lasso(noisy: Float, total: int, share: float) -> Float:
    """The non-negative Lasso in closed form: soft threshold, here at a share of 80 noise units, then rescaled."""
    return scaled_to(np.maximum(noisy - 80 * share, 0.0), total)


def _sorted_threshold(noisy: Float, total: int) -> Float:
    """Eq. 8-10 as printed: sort, cumulate, compare."""
    ranked = np.sort(noisy)[::-1]
    sums = np.cumsum(ranked) - total
    rho = np.flatnonzero(ranked - sums / np.arange(1, noisy.size + 1) > 0)[-1]
    return np.maximum(noisy - sums[rho] / (rho + 1), 0.0)


def _seconds(function: Callable[[], object], repeat: int) -> float:
    function()
    least = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(repeat):
            function()
        least = min(least, (time.process_time() - start) / repeat)
    return least


def national(folder: Path) -> Int:
    """The census on the 4096 x 4096 mesh; cells that the census merged into others are 0."""
    import pyarrow.parquet as pq

    frame = pq.read_table(folder / NATIONAL)
    keep = ~frame["suppressed"].to_numpy(zero_copy_only=False)
    mesh = ks.Mesh.window("grid", "japan4096")
    row, col = meshcode.decode(frame["mesh_code"].to_numpy()[keep].astype(np.int64), "500m")
    row, col = row - mesh.origin[0], col - mesh.origin[1]
    inside = (row >= 0) & (row < 4096) & (col >= 0) & (col < 4096)
    truth = np.zeros(4096 * 4096, dtype=np.int64)
    truth[row[inside] * 4096 + col[inside]] = frame["population"].to_numpy()[keep][inside]
    return truth


def restored(truth: Int, runs: int, source: Any) -> dict[str, Any]:
    """Table 4 and Figure 6 at epsilon 0.1: cells that are not 0, RMSE and mean error by size of the true count, CPU
    seconds of one restoration with and without the search of gamma."""
    total = int(truth.sum())
    share: dict[str, list[float]] = {"Proposed": [], "Simplex": []}
    classes: dict[str, list[dict[str, dict[str, float]]]] = {"Proposed": [], "Simplex": []}
    seconds = {"Proposed": 0.0, "Proposed (fixed)": 0.0, "Simplex": 0.0}
    for i in range(runs):
        stream = _streams(source, i, "matsumoto2025 national").open("noise")
        noisy = truth + float_laplace(10.0, stream, truth.size)
        for name, gamma in (("Proposed", GAMMA_NATIONAL), ("Simplex", 1.0)):
            begun = time.process_time()
            made = whole(negative_l2(noisy, total, gamma), total)
            seconds["Simplex" if name == "Simplex" else "Proposed (fixed)"] += (time.process_time() - begun) / runs
            share[name].append(100 * float((made > 0).mean()))
            error = (made - truth)[None, :]
            every = {"rmse": float(np.sqrt((error**2).mean())), "me": float(error.mean())}
            classes[name].append({"All": every} | _by_class(error, truth))
        if i == 0:
            begun = time.process_time()
            _searched(truth, noisy, SEARCHED, _scaled)
            seconds["Proposed"] = time.process_time() - begun
    return {
        "runs": runs,
        "true_nonzero": 100 * float((truth > 0).mean()),
        "gamma": GAMMA_NATIONAL,
        "nonzero": {name: float(np.mean(row)) for name, row in share.items()},
        "printed_nonzero": PRINTED_NATIONAL,
        "seconds": seconds,
        "printed_seconds": {name: value / 25 for name, value in PRINTED_NATIONAL_SECONDS.items()},
        "classes": {
            name: {part: {key: float(np.mean([row[part][key] for row in rows])) for key in ("rmse", "me")}
                   for part in rows[0]}
            for name, rows in classes.items()
        },
    }  # fmt: skip


def text(result: dict[str, Any]) -> str:
    """The tables for a terminal, each printed row under the measured one."""
    head = "".join(f"{'eps ' + epsilon:>11}" for epsilon in result["epsilons"])
    lines = [f"{result['paper']}, {result['runs']} runs"]
    for title, key, places in (("Table 1: RMSE", "rmse", 4), ("Table 2: cells that are not 0, %", "nonzero", 2)):
        lines += ["", f"{title:40}{head}"]
        for name, row in result["table"].items():
            label = f"kasuri {name} (epsilon-DP)" if row["private"] else f"{name} (as in the paper)"
            lines.append(f"{label:40}" + "".join(f"{value:11.{places}f}" for value in row[key]))
            if f"printed_{key}" in row:
                lines.append(f"{'  printed':40}" + "".join(f"{value:11.{places}f}" for value in row[f"printed_{key}"]))
    lines.append(f"  true share of cells that are not 0: {result['true_nonzero']:.2f} %")
    lines += [
        "",
        "Table 3: CPU time of one restoration over that of Simplex (printed); Proposed and NNL with the search",
    ]
    for entry in result["timing"]:
        printed = entry["printed_ratio_to_simplex"]
        ratios = ", ".join(
            f"{name} {ratio:.2f} ({'out of memory' if printed[name] is None else format(printed[name], '.2f')})"
            for name, ratio in entry["ratio_to_simplex"].items()
        )
        lines.append(f"  {entry['cells']:>9,} cells: {ratios}; sorted / tally {entry['sorted_over_tally']:.1f}")
    found = result["national"]
    if found is None:
        lines += ["", f"Table 4 and Figures 5-6 need the national mesh: --data DIR with {NATIONAL}"]
    else:
        lines += ["", f"Table 4: cells that are not 0, %, of the national mesh (truth {found['true_nonzero']:.2f})"]
        for name, value in found["nonzero"].items():
            lines.append(f"  {name}: {value:.2f} (printed {found['printed_nonzero'][name]:.2f})")
        lines.append(
            "  CPU seconds of one restoration (printed): "
            + ", ".join(
                f"{name} {value:.2f} ({found['printed_seconds'][name]:.2f})" for name, value in found["seconds"].items()
            )
        )
        lines.append("Figure 6: RMSE and mean error by size of the true count")
        for name, parts in found["classes"].items():
            lines.append(
                f"  {name}: " + ", ".join(f"{part} {row['rmse']:.2f} / {row['me']:+.2f}" for part, row in parts.items())
            )
    return "\n".join([*lines, "", result["note"]])  # fmt: skip


def figure(result: dict[str, Any], path: Path) -> None:
    """Figures 2-4: RMSE and mean error by size of the true count, one column per epsilon."""
    plot, axes = sheet(12, 6.5, 2, len(result["epsilons"]))
    names = [name for name in result["table"] if name != "LM"]
    for at, epsilon in enumerate(result["epsilons"]):
        for line, metric in enumerate(("rmse", "me")):
            rows = {
                name + (" (epsilon-DP)" if result["table"][name]["private"] else ""): [
                    result["table"][name]["classes"][at][part][metric] for part, _, _ in CLASSES
                ]
                for name in names
            }
            axis = axes[line * len(result["epsilons"]) + at]
            _bars(axis, rows, [part for part, _, _ in CLASSES], "RMSE" if metric == "rmse" else "mean error")
            axis.set_title(f"epsilon {epsilon}")
    plot.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save(plot, path)


def _bars(axis: Any, rows: dict[str, list[float]], parts: list[str], label: str) -> None:
    for i, (name, values) in enumerate(rows.items()):
        places = np.arange(len(parts)) + (i - len(rows) / 2 + 0.5) * 0.8 / len(rows)
        axis.bar(places, values, 0.8 / len(rows), label=name)
    axis.set_xticks(range(len(parts)), parts)
    axis.set(xlabel="true count of the cell", ylabel=label)
    axis.grid(axis="y", alpha=0.3)


def figure_1(path: Path) -> None:
    """Figure 1: the map that is made up."""
    from kasuri.report.figures import small_multiples

    small_multiples({"Evaluation map, 64 x 64 (Fig. 1)": city(64)}, path)


def figure_5(folder: Path, path: Path) -> None:
    """Figure 5: the national mesh, summed over squares of 8 x 8 cells to fit a page."""
    from kasuri.report.figures import small_multiples

    squares = national(folder).reshape(512, 8, 512, 8).sum(axis=(1, 3))
    small_multiples({"Census 2020, sums of 8 x 8 cells of 500 m (Fig. 5)": squares}, path)


def figure_6(found: dict[str, Any], path: Path) -> None:
    """Figure 6: RMSE and mean error on the national mesh."""
    plot, axes = sheet(9, 4, 1, 2)
    parts = list(found["classes"]["Simplex"])
    for axis, metric, label in zip(axes, ("rmse", "me"), ("RMSE", "mean error"), strict=True):
        rows = {name: [row[part][metric] for part in parts] for name, row in found["classes"].items()}
        _bars(axis, rows, parts, label)
        axis.legend(frameon=False)
    save(plot, path)
