"""Tables 1-2, Figures 1-7 and sections 5.3, 6 and 6.4 of [Terada2015], on the 2020 census window shipped with kasuri.

The paper's window of the 2010 census is not available; the rows of Laplace and Privelet have exact laws that need
no data, and the proposed method is measured on a window of the same size and density.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kasuri as ks
from kasuri import examples
from kasuri.ingest import read_table
from kasuri.reproduce import standard
from kasuri.reproduce.paper import save, sheet
from kasuri.study.plan import block_errors
from kasuri.trees import transform
from kasuri.trees.order import halved, row_major

QUICK, FULL = 10, 100
"""Releases per recipe: within a minute, and as in the paper."""
EPSILON = "0.1"
HEIGHTS = tuple(range(0, 19, 2))
"""log2 of the area sizes."""

PRINTED: dict[str, dict[str, tuple[float, ...]]] = {
    "Laplace": {
        "mae": (10.00, 21.87, 44.77, 90.03, 180.69, 363.21, 722.03, 1402.73, 2806.58, 5553.95),
        "rmse": (14.14, 28.28, 56.55, 113.06, 226.48, 455.65, 906.12, 1789.27, 3474.87, 6907.69),
    },
    "Privelet (2D)": {
        "mae": (361.51, 361.27, 361.67, 361.93, 361.25, 366.09, 378.30, 414.57, 593.86, 1178.56),
        "rmse": (471.37, 471.01, 471.66, 472.52, 471.26, 479.17, 494.20, 531.12, 756.30, 1631.86),
    },
    "Privelet (Morton)": {
        "mae": (115.74, 115.73, 115.73, 115.56, 115.57, 116.55, 116.69, 118.01, 121.70, 209.08),
        "rmse": (155.16, 155.16, 155.09, 154.90, 155.00, 155.88, 155.69, 155.93, 161.45, 317.79),
    },
    "Proposed": {
        "mae": (28.73, 44.49, 60.14, 74.91, 89.41, 101.02, 111.14, 119.87, 124.95, 139.32),
        "rmse": (66.20, 87.54, 106.18, 121.09, 135.07, 145.33, 152.92, 158.95, 168.02, 195.30),
    },
}

PRINTED_NEGATIVE = {"Laplace": 88399, "Privelet (2D)": 114533, "Privelet (Morton)": 105275, "Proposed": 0}
"""Section 6.3: cells below 0 of 262,144."""
PRINTED_DENSITY = {"Laplace": 100.0, "Privelet (2D)": 100.0, "Privelet (Morton)": 100.0, "Proposed": 27.5}
"""Section 6.4: cells that are not 0, in per cent; of the data 36.3."""
PRINTED_TIME = "20-30"
"""Section 6.4: milliseconds of one run of any method."""

EARLIER: dict[str, tuple[Callable[[], ks.Mechanism], str]] = {
    "Barak et al. [1]": (lambda: ks.recipes.fourier(2), "not solved | solved | O(n log n) and more"),
    "Xiao et al. [19], [20]": (lambda: ks.privelet("morton"), "not solved | solved | O(n)"),
    "Hay et al. [9]": (lambda: ks.recipes.hierarchy("morton"), "not solved | solved | O(n) and more"),
    "Li et al. [12]": (lambda: ks.recipes.matrix(), "not solved | solved | O(n^2)"),
    "Cormode et al. [3]": (lambda: ks.recipes.sparse(), "solved | not solved | by the threshold"),
    "Proposed": (ks.haar_topdown, "solved | solved | O(m+ log n)"),
}
"""Table 1: method -> (recipe, printed: cells below 0 | sums over areas | cost)."""
WINDOW = (slice(232, 248), slice(376, 392))
"""256 cells of the map at which every method of Table 1 can be run, the linear program included."""

ROWS: dict[str, Callable[[], ks.Mechanism]] = {
    "Laplace": ks.laplace,
    "Privelet (2D)": lambda: ks.privelet("2d"),
    "Privelet (Morton)": lambda: ks.privelet("morton"),
    "Proposed": ks.haar_topdown,
    "Proposed (float Haar)": lambda: ks.haar_topdown(transform="haar"),
}


def kanto() -> tuple[ks.Counts, NDArray[np.int64]]:
    """The census window as Counts and, since the census is published, as an array to measure errors against."""
    domain = examples.kanto_domain()
    counts = ks.count(
        read_table(examples.KANTO),
        domain,
        columns={"grid": "mesh_code"},
        unit=examples.person(),
        weight="population",
        data="census-2020-kanto",
    )
    truth = np.zeros(domain.size, dtype=np.int64)
    truth[counts.cells] = counts.values
    return counts, truth.reshape(domain.shape)


def block_sums(values: NDArray[Any], side: int) -> NDArray[Any]:
    """Sums over aligned squares of side x side cells."""
    rows, cols = values.shape
    return values.reshape(rows // side, side, cols // side, side).sum(axis=(1, 3))


def run(runs: int, *, progress: Callable[[str], None] = lambda words: None, source: Any = None) -> dict[str, Any]:
    """Measure every row `runs` times with fresh noise; `source` (run -> Source) makes a test repeatable."""
    counts, truth = kanto()
    table = {}
    for name, recipe in ROWS.items():
        progress(f"{name}, {runs} runs")
        table[name] = _row(recipe(), counts, truth, runs, source)
        if name in PRINTED:
            table[name]["printed"] = PRINTED[name]
        errors = {e.cells: e for e in block_errors(recipe(), counts.domain, counts.unit, EPSILON)}
        if errors[1].exact:
            table[name]["exact_rmse"] = [errors[1 << height].rmse for height in HEIGHTS]
    progress("unaligned ranges, Table 1, standard decomposition, refined coefficients")
    return {
        "paper": "Terada et al. 2015, Table 2",
        "epsilon": EPSILON,
        "runs": runs,
        "area_cells": [1 << height for height in HEIGHTS],
        "table": table,
        "true_density": 100 * float((truth > 0).mean()),
        "unaligned": unaligned(counts, runs, source),
        "table1": earlier(truth, max(20, runs), source),
        "standard": standard_decomposition(truth, min(runs, 20)),
        "coefficients": refined_coefficients(counts, source),
        "note": "Proposed at 2^18 is exactly Lap(190): MAE 190, RMSE 268.7; the printed 139/195 are a chance result.",
    }


def _row(recipe: ks.Mechanism, counts: ks.Counts, truth: NDArray[Any], runs: int, source: Any) -> dict[str, Any]:
    absolute, squared, negative = np.zeros((runs, len(HEIGHTS))), np.zeros((runs, len(HEIGHTS))), 0
    filled, seconds = 0.0, np.inf
    for i in range(runs):
        begun = time.process_time()
        out = ks.release(counts, recipe, epsilon=EPSILON, ledger=None, source=source and source(i))
        seconds = min(seconds, time.process_time() - begun)  # the first run compiles the kernels
        released = out.to_dense()
        negative += int((released < 0).sum())
        filled += float((released != 0).mean())
        for j, height in enumerate(HEIGHTS):
            error = block_sums(released, 1 << (height // 2)) - block_sums(truth, 1 << (height // 2))
            absolute[i, j], squared[i, j] = np.abs(error).mean(), (error.astype(float) ** 2).mean()
    rmse = np.sqrt(squared.mean(axis=0))
    return {
        "mae": absolute.mean(axis=0).tolist(),
        "mae_error": (absolute.std(axis=0) / np.sqrt(runs)).tolist(),
        "rmse": rmse.tolist(),
        "rmse_error": (squared.std(axis=0) / np.sqrt(runs) / (2 * rmse)).tolist(),
        "negative_cells": negative / runs,
        "density": 100 * filled / runs,
        "cpu_ms": 1000 * seconds,
    }


def earlier(truth: NDArray[Any], runs: int, source: Any) -> list[dict[str, Any]]:
    """Table 1: every earlier method on 256 cells of the map: cells below 0, RMSE of a cell and of the sum of all, the
    mean error of that sum, CPU time. epsilon as in Table 2."""
    part = truth[WINDOW]
    unit, domain = examples.person(), ks.Domain.of(ks.Mesh("grid", shape=part.shape))
    counts = ks.Counts.from_dense(part, domain, unit)
    out = []
    for name, (make, printed) in EARLIER.items():
        begun, recipe, errors, negative = time.process_time(), make(), [], 0.0
        for i in range(runs):
            values = ks.release(counts, recipe, epsilon=EPSILON, ledger=None, source=source and source(i)).to_dense()
            errors.append(values - part)
            negative += float((values < 0).mean())
        whole = np.array([error.sum() for error in errors])
        out.append(
            {
                "method": name,
                "recipe": recipe.name,
                "printed": printed,
                "negative_share": 100 * negative / runs,
                "rmse_cell": float(np.sqrt(np.mean(np.square(errors)))),
                "rmse_whole": float(np.sqrt(np.mean(whole**2))),
                "bias_whole": float(whole.mean()),
                "cpu_ms": 1000 * (time.process_time() - begun) / runs,
            }
        )
    return out


def standard_decomposition(truth: NDArray[Any], runs: int) -> dict[str, Any]:
    """Section 6: the proposed method on the two-dimensional standard decomposition, coefficient by coefficient and
    axis by axis. The noise is floating-point Laplace of the scale prod(1 + k) / epsilon on a public table."""
    clean = standard.forward(truth)
    scale = standard.cost(truth.shape) / float(EPSILON)
    table: dict[str, Any] = {}
    for name, refine in (("lattice", standard.lattice), ("axes", standard.axes)):
        absolute, squared, least, filled = [], [], 0.0, 0.0
        for i in range(runs):
            made = refine(clean + np.random.default_rng([2015, i]).laplace(0, scale, clean.shape))
            errors = [block_sums(made, 1 << (h // 2)) - block_sums(truth, 1 << (h // 2)) for h in HEIGHTS]
            absolute.append([float(np.abs(error).mean()) for error in errors])
            squared.append([float((error**2).mean()) for error in errors])
            least, filled = min(least, float(made.min())), filled + float((made > 0).mean())
        table[name] = {
            "mae": np.mean(absolute, axis=0).tolist(),
            "rmse": np.sqrt(np.mean(squared, axis=0)).tolist(),
            "least_cell": least,
            "density": 100 * filled / runs,
        }
    return {"runs": runs, "scale": scale, "table": table}


def refined_coefficients(counts: ks.Counts, source: Any) -> dict[str, Any]:
    """The patent's other output: W+, the refined coefficients, in place of V+. They are the transform of the published
    table (post-processing); |D| <= S holds at every node, and the inverse gives the table back."""
    released = ks.release(counts, ks.haar_topdown(), epsilon=EPSILON, ledger=None, source=source and source(0))
    tree = halved("morton", counts.domain)
    parts = transform.sum_difference(tree)
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(released.cells)] = released.values
    coefficients = parts.forward(leaves)
    return {
        "coefficients": int(coefficients.size),
        "nonzero": int((coefficients != 0).sum()),
        "root": int(coefficients[0]),
        "inverse_equal": bool((parts.inverse(coefficients) == leaves).all()),
    }


def range_variance(depth: int, first: int, last: int, scale: float) -> float:
    """Variance of a Privelet range sum over leaves first..last-1 of 2^depth: 2 scale^2 (w_root^2 + sum w_node^2) with
    w_root = length / 2^depth and w = (leaves of the range on the left - on the right) / (leaves of the node)."""
    total = ((last - first) / 2**depth) ** 2
    for height in range(1, depth + 1):
        size, half = 1 << height, 1 << (height - 1)
        for node in {first >> height, (last - 1) >> height}:  # any other node lies wholly inside or outside: w = 0
            start = node * size
            left = max(0, min(last, start + half) - max(first, start))
            right = max(0, min(last, start + size) - max(first, start + half))
            total += ((left - right) / size) ** 2
    return 2 * scale**2 * total


def unaligned(counts: ks.Counts, runs: int, source: Any) -> list[dict[str, Any]]:
    """Section 5.3 for ranges that are not blocks: measured against the exact law of Privelet and the refined one."""
    ranges = [(1, 2), (3, 77), (1000, 5097), (32767, 98305), (5, 262139)]
    tree = row_major(counts.domain)
    truth = np.zeros(counts.domain.size)
    truth[counts.cells] = counts.values
    before = np.concatenate(([0.0], np.cumsum(truth)))
    errors: dict[str, list[list[float]]] = {"privelet": [], "haar_topdown": []}
    for i in range(runs):
        for name, recipe in (("privelet", ks.privelet("1d")), ("haar_topdown", ks.haar_topdown("1d"))):
            values = ks.release(counts, recipe, epsilon=EPSILON, ledger=None, source=source and source(i)).to_dense()
            after = np.concatenate(([0.0], np.cumsum(values.ravel())))
            errors[name].append([float(after[b] - after[a] - before[b] + before[a]) for a, b in ranges])
    rms = {name: np.sqrt(np.mean(np.square(rows), axis=0)) for name, rows in errors.items()}
    return [
        {
            "range": [a, b],
            "exact_privelet_rmse": range_variance(tree.depth, a, b, 190.0) ** 0.5,
            "privelet_rmse": float(rms["privelet"][i]),
            "haar_topdown_rmse": float(rms["haar_topdown"][i]),
        }
        for i, (a, b) in enumerate(ranges)
    ]


def text(result: dict[str, Any]) -> str:
    """The table for a terminal: measured here, then printed in the paper, then the exact law."""
    head = "".join(f"{'2^' + str(height):>9}" for height in HEIGHTS)
    lines = [f"{result['paper']}, epsilon {result['epsilon']}, {result['runs']} runs, 2020 census around Tokyo", ""]
    lines.append(f"{'':34}{head}")
    for name, row in result["table"].items():
        for metric in ("mae", "rmse"):
            lines.append(_line(f"{name} {metric.upper()}", row[metric]))
            if "printed" in row:
                lines.append(_line("  printed", row["printed"][metric]))
            if metric == "rmse" and "exact_rmse" in row:
                lines.append(_line("  exact law", row["exact_rmse"]))
        lines.append(f"  negative cells per run: {row['negative_cells']:,.0f}")
        lines.append(f"  cells that are not 0: {row['density']:.1f} %, CPU {row['cpu_ms']:.0f} ms per release")
    lines.append(
        f"  of the data {result['true_density']:.1f} % are not 0 (printed 36.3); printed time {PRINTED_TIME} ms"
    )
    lines += [
        "",
        "Table 1 on 256 cells: printed (below 0 | sums | cost); cells below 0, RMSE of a cell, of the sum, CPU",
    ]
    for row in result["table1"]:
        lines.append(
            f"  {row['method']:24}{row['printed']:46}{row['negative_share']:6.1f} %{row['rmse_cell']:9.1f}"
            f"{row['rmse_whole']:9.1f}  (mean error {row['bias_whole']:+.0f}){row['cpu_ms']:9.2f} ms"
        )
    flat = result["standard"]
    lines += [
        "",
        f"Section 6: the standard decomposition refined, noise of scale {flat['scale']:g}, {flat['runs']} runs",
    ]
    for name, row in flat["table"].items():
        lines += [_line(f"{name} {metric.upper()}", row[metric]) for metric in ("mae", "rmse")]
        lines.append(f"  least cell {row['least_cell']:g}, cells that are not 0: {row['density']:.1f} %")
    own = result["coefficients"]
    lines.append(
        f"Patent, W+ in place of V+: {own['coefficients']:,} coefficients, {own['nonzero']:,} not 0; the inverse is "
        f"the published table: {'yes' if own['inverse_equal'] else 'NO'}"
    )
    lines += ["", "Sums over unaligned ranges of the row-major order (section 5.3), RMSE:"]
    for entry in result["unaligned"]:
        a, b = entry["range"]
        law = f"{entry['privelet_rmse']:.1f} (exact law {entry['exact_privelet_rmse']:.1f})"
        lines.append(f"  cells {a}..{b - 1}: Privelet {law}, haar_topdown {entry['haar_topdown_rmse']:.1f}")
    return "\n".join([*lines, "", result["note"]])


def _line(name: str, values: list[float]) -> str:
    return f"{name:34}" + "".join(f"{value:9.2f}" for value in values)


def maps(path: Path) -> None:
    """Figures 1-5: the census and one output of each mechanism side by side; cells below 0 in red."""
    from kasuri.report.figures import mesh_values, small_multiples

    counts, truth = kanto()
    panels: dict[str, NDArray[Any]] = {"Census 2020 (Fig. 1)": truth}
    for number, name in enumerate(("Laplace", "Privelet (2D)", "Privelet (Morton)", "Proposed"), 2):
        released = ks.release(counts, ROWS[name](), epsilon=EPSILON, ledger=None, source=ks.seeded(number))
        panels[f"{name} (Fig. {number})"] = mesh_values(released)
    (mesh,) = examples.kanto_domain().planes
    small_multiples(panels, path, f"epsilon {EPSILON}  ·  {examples.CREDIT_EN}", aspect=mesh.aspect)


def figure(result: dict[str, Any], path: Path, limit: float | None) -> None:
    """Figure 6 (limit None) or 7 (errors up to `limit`): MAE and RMSE by area size; printed values as crosses."""
    plot, (axes,) = sheet(7.5, 5)
    rows = result["table"] | {f"standard, {name}": row for name, row in result["standard"]["table"].items()}
    for colour, (name, row) in enumerate(rows.items()):
        for metric, style in (("rmse", "-"), ("mae", "--")):
            axes.plot(HEIGHTS, row[metric], style, color=f"C{colour}", label=f"{name} {metric.upper()}")
            if "printed" in row:
                axes.plot(HEIGHTS, row["printed"][metric], "x", color=f"C{colour}")
    axes.set_xlabel("area size, log2 of cells (crosses: printed in the paper)")
    axes.set_ylabel("error")
    axes.set_xticks(HEIGHTS)
    axes.set_ylim(0, limit)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)
    save(plot, path)
