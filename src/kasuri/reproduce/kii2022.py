"""Kii et al. 2022: the epsilon curves (Figures 1-3), only b/a matters (Figure 4), Figures 5-7 as the paper computes
them, and redone honestly.

The paper's covariance and correlation errors mix the off-diagonal with a diagonal that two-point reports cannot
identify; here the two are apart, and the identity matrix, which needs no data at all, is a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kasuri as ks
from kasuri import shuffle
from kasuri.local import numeric
from kasuri.reproduce.paper import save, sheet
from kasuri.shuffle import bounds
from kasuri.shuffle.joined import Joined

QUICK, FULL = 2, 10
"""Runs per setting: within a minute, and as in the paper."""
PEOPLE = (10**3, 10**4, 10**5, 10**6)
DELTAS = ("1e-10", "1e-9", "1e-8", "1e-7")
DELTA = Fraction("1e-10")
PRINTED = {"0.1": 2.4, "0.2": 3.7, "0.5": 5.7, "1": 7.6}
"""eps* <- eps' that the paper reads off Figure 3 at n = 10^6."""
CLAIMED = 0.248
"""Theorem 4 at nA = nB = 10^6, eps' = 4, whatever the overlap."""
COLUMNS = ("age", "education_num", "fnlwgt", "capital_gain", "capital_loss", "hours_per_week")
EPSILONS = ("0.6", "1.2", "3", "6", "12", "24")
"""Of a whole row of six columns."""
PRINTED_CROSSING = 3.7
"""Section 4: from this epsilon of a column on Laplace noise has the smaller error of the whole covariance matrix."""
PRINTED_IDENTITY = 0.054
COLUMN_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0, 7.0, 10.0)
MECHANISMS = ("two_point", "coin", "piecewise", "laplace")


def adult() -> dict[str, NDArray[np.float64]]:
    """Six numeric columns of the 30,162 complete training rows of Adult, scaled to [-1, 1] as the paper does: by their
    own extremes, so that errors compare. (A real plan's bounds are public knowledge, never taken from data.)"""
    from pyarrow import parquet

    table = parquet.ParquetFile(Path(__file__).with_name("adult") / "numeric.parquet").read()
    out = {}
    for name in COLUMNS:
        x = table.column(name).to_numpy().astype(np.float64)
        out[name] = 2 * (x - x.min()) / (x.max() - x.min()) - 1
    return out


def largest_local(n: int, delta: float) -> float:
    """The condition of Theorem 4: eps' <= ln(n / (16 ln(2/delta))) (Figures 1 and 2)."""
    return math.log(n / (16 * math.log(2 / delta)))


def curves(points: int = 17) -> dict[str, Any]:
    """Figure 3: eps* against eps' by Theorem 3, numeric clones and the blanket of six columns, beside the attack."""
    local = [Fraction(k, 2) for k in range(1, points)]
    out: dict[str, Any] = {"local": [float(eps) for eps in local], "n": {}}
    for n in PEOPLE:
        rows: dict[str, list[float | None]] = {name: [] for name in ("theorem 3", "clones 2023", "blanket", "attack")}
        for eps in local:
            six = [eps / 6] * 6
            found = (
                bounds.theorem_3(n, eps, DELTA),
                bounds.clones_2023(n, eps, DELTA),
                bounds.blanket(n, six, DELTA),
            )
            for name, bound in zip(rows, found, strict=False):
                rows[name].append(None if bound is None else float(bound.epsilon))
            rows["attack"].append(bounds.attack(n, six, DELTA))
        out["n"][str(n)] = rows
    return out


def inverse(amplified: float, n: int = 10**6) -> float:
    """The eps' whose Theorem 3 value is `amplified`."""
    low, high = 0.01, largest_local(n, float(DELTA))
    for _ in range(60):
        middle = (low + high) / 2
        e = math.exp(middle)
        inner = 8 * math.sqrt(e * math.log(4 / float(DELTA)) / n) + 8 * e / n
        below = math.log1p((e - 1) / (e + 1) * inner) < amplified
        low, high = (middle, high) if below else (low, middle)
    return low


def utility(runs: int, *, seed: int = 2022, progress: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Figures 5-7: mean absolute error of the covariance and correlation matrices, off the diagonal and on it."""
    data = adult()
    truth = np.stack([data[name] for name in COLUMNS])
    cov, corr = np.atleast_2d(np.cov(truth, bias=True)), np.atleast_2d(np.corrcoef(truth))
    off = ~np.eye(len(COLUMNS), dtype=bool)
    n = truth.shape[1]
    out: dict[str, Any] = {
        "n": n,
        "epsilons": [float(eps) for eps in EPSILONS],
        "identity": float(np.abs(corr - np.eye(len(COLUMNS))).mean()),
        "zero_covariance": float(np.abs(cov[off]).mean()),
        "mechanisms": {},
    }
    for mechanism in MECHANISMS:
        table: dict[str, list[float | None]] = {"covariance": [], "diagonal": [], "correlation": [], "as_printed": []}
        for eps in EPSILONS:
            progress(f"{mechanism}, epsilon {eps}")
            plan = ks.shuffle.Plan(
                key="id", a=COLUMNS[:3], b=COLUMNS[3:], bounds=dict.fromkeys(COLUMNS, (-1, 1)),
                epsilon_each=f"{Fraction(eps) / 6} weak", delta="1e-10", mechanisms=dict.fromkeys(COLUMNS, mechanism),
            )  # fmt: skip
            found = [_one(plan, data, cov, corr, off, seed + 1000 * k) for k in range(runs)]
            for name, values in zip(table, zip(*found, strict=True), strict=True):
                known = [value for value in values if math.isfinite(value)]
                table[name].append(float(np.mean(known)) if len(known) == runs else None)
        out["mechanisms"][mechanism] = table
    return out


def _one(
    plan: shuffle.Plan,
    data: dict[str, NDArray[np.float64]],
    cov: NDArray[np.float64],
    corr: NDArray[np.float64],
    off: NDArray[np.bool_],
    seed: int,
) -> tuple[float, float, float, float]:
    """Mean absolute errors of one run: covariance off and on the diagonal, correlation off it (shrunk by its noise, as
    kasuri prints it), and what the paper computes (the correlation matrix of the raw reports)."""
    columns = {c.name: c.randomize(data[c.name], ks.seeded(seed + i)) for i, c in enumerate(plan.columns)}
    n = len(data[COLUMNS[0]])
    local = plan.side_claim("a")
    joined = Joined(plan, MappingProxyType(columns), shuffle.Claims(local, local, "not shuffled", n), False)
    found = shuffle.covariance(joined)
    raw = np.corrcoef(np.stack([c.unbiased(columns[c.name])[:, 0] for c in plan.columns]))
    return (
        float(np.abs(found.covariance - cov)[off].mean()),
        float(np.abs(found.covariance - cov)[~off].mean()),
        float(np.abs(found.correlation - corr)[off].mean()),
        float(np.abs(raw - corr).mean()),
    )


def as_the_paper(runs: int, *, seed: int = 2022) -> dict[str, Any]:
    """Figures 4-7 as the paper computes them: the covariance matrix of the raw reports, its diagonal included, against
    that of the data. The rows are public and the noise is numpy's; nothing here is a release."""
    truth = np.stack([adult()[name] for name in COLUMNS])
    cov, corr, rng = np.cov(truth, bias=True), np.corrcoef(truth), np.random.default_rng(seed)

    def coins(ratio: float) -> NDArray[np.float64]:
        return np.where(rng.random(truth.shape) < (truth / ratio + 1) / 2, ratio, -ratio)

    def error(draw: Callable[[float], NDArray[np.float64]], value: float) -> tuple[float, float]:
        found = [float(np.abs(np.cov(draw(value), bias=True) - cov).mean()) for _ in range(runs)]
        return float(np.mean(found)), float(np.std(found))

    def two_point(epsilon: float) -> NDArray[np.float64]:
        return coins(1 / math.tanh(epsilon / 2))

    def laplace(epsilon: float) -> NDArray[np.float64]:
        return truth + rng.laplace(0, 2 / epsilon, truth.shape)

    both = [(error(two_point, epsilon), error(laplace, epsilon)) for epsilon in COLUMN_EPSILONS]
    least = 1 / math.tanh(1 / 12)  # epsilon 1 over six columns
    surface = [(share, *error(coins, share * least)) for share in (1, 1.25, 1.5, 2, 3, 4)]
    each = [10.0**k for k in range(-5, 2)]
    second = float((truth**2).mean())
    return {
        "columns": list(COLUMN_EPSILONS),
        "two_point": [row[0] for row in both],
        "laplace": [row[1] for row in both],
        "crossing": _crossing(second),
        "least_ratio": least,
        "surface": surface,
        "each": each,
        "correlation": [
            float(np.mean([np.abs(np.corrcoef(two_point(e)) - corr).mean() for _ in range(runs)])) for e in each
        ],
        "amplified": {
            str(eps): None
            if (bound := bounds.theorem_3(truth.shape[1], Fraction(eps), DELTA)) is None
            else float(bound.epsilon)
            for eps in (1, 2, 3, 4)
        },
        "limit": largest_local(truth.shape[1], float(DELTA)),
    }


def _crossing(second: float) -> float:
    """Where coth(eps/2)^2 - E[x^2] = 8/eps^2: the diagonal errors of both, which is all that counts in the mean of the
    matrix. The first is that of a constant, the second the variance of the noise."""
    low, high = 1.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        below = 1 / math.tanh(middle / 2) ** 2 - second < 8 / middle**2
        low, high = (middle, high) if below else (low, middle)
    return low


def ratios() -> dict[str, Any]:
    """Figure 4: the mechanism for (a, b) = (c, c coth(eps/2)) is the same for every c."""
    b_over_a = Fraction(math.ceil(2**40 * (math.e + 1) / (math.e - 1)), 2**40)
    made = [
        numeric.two_point((-1, 1), epsilon="1", ab=(Fraction(c), Fraction(c) * b_over_a)) for c in (1, 10, 1000, 10**6)
    ]
    return {"b_over_a": float(b_over_a), "slopes": [m.slope for m in made], "same": len(set(made)) == 1}


def run(runs: int = 10, *, seed: int = 2022, progress: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Everything: limits, curves, counter-example, ratios, utility."""
    progress("bounds")
    return {
        "paper": "kii2022",
        "runs": runs,
        "figure1": {str(n): [largest_local(n, 10.0**-k) for k in range(2, 16)] for n in PEOPLE},
        "figure2": {d: [largest_local(10**k, float(d)) for k in range(3, 8)] for d in DELTAS},
        "figure3": curves(),
        "printed": {
            amplified: {"printed": printed, "measured": inverse(float(amplified))}
            for amplified, printed in PRINTED.items()
        },
        "counter_example": {
            str(n): {
                "theorem 4": CLAIMED,
                "attack": bounds.attack(n, ["4"], DELTA),
                "ours": float(bounds.least(n, [Fraction(4)], DELTA, paired=True).epsilon),
            }
            for n in (10**4, 10**3)
        },
        "figure4": ratios(),
        "as_printed": as_the_paper(runs, seed=seed),
        "figures5to7": utility(runs, seed=seed, progress=progress),
    }


def text(result: dict[str, Any]) -> str:
    """The figures in words."""
    lines = ["eps* at n = 10^6, delta = 10^-10 by Theorem 3: eps' (the paper, read off its plot)"]
    lines += [
        f"  {amplified:>4}: {row['measured']:.2f} ({row['printed']})" for amplified, row in result["printed"].items()
    ]
    lines.append("nA = nB = 10^6, eps' = 4, delta = 10^-10: the claim for min(nA, nB), an attack, and ours")
    for n, row in result["counter_example"].items():
        lines.append(f"  {n} in both: claimed {row['theorem 4']}, attack {row['attack']:.3f}, ours {row['ours']:.3f}")
    lines.append(f"Figure 4: (a, b) and (ca, cb) are the same mechanism: {result['figure4']['same']}")
    own = result["as_printed"]
    lines.append(
        f"Figures 5-6: Laplace has the smaller error from epsilon {own['crossing']:.2f} of a column on (printed 3.7)"
    )
    lines.append("  epsilon of a column: error of the covariance matrix (deviation), two-point and Laplace")
    for eps, (a, b), (c, d) in zip(own["columns"], own["two_point"], own["laplace"], strict=True):
        lines.append(f"  {eps:>5}: {a:12.4f} ({b:.4f}){c:12.4f} ({d:.4f})  ratio {a / c:.3f}")
    lines.append(
        f"Figure 7: n = 30,162, eps' = 4 -> eps* {own['amplified']['4'] or math.nan:.2f} (printed about 1); "
        f"error of the correlation {min(own['correlation']):.4f} to {max(own['correlation']):.4f} at eps0 10^-5 to 10"
    )
    use = result["figures5to7"]
    lines.append(
        f"Adult, {use['n']} rows, mean absolute error; correlation of the identity matrix: {use['identity']:.3f}; "
        f"covariance of 0 off the diagonal: {use['zero_covariance']:.4f}"
    )
    head = (
        f"{'mechanism':12}{'epsilon':>8}{'cov, off':>11}{'cov, diagonal':>15}{'corr, off':>11}{'corr as printed':>17}"
    )
    lines.append(head)
    for mechanism, table in use["mechanisms"].items():
        for i, eps in enumerate(use["epsilons"]):
            cells = [table[name][i] for name in ("covariance", "diagonal", "correlation", "as_printed")]
            shown = ["unknown" if value is None else f"{value:.4f}" for value in cells]
            lines.append(f"{mechanism:12}{eps:8}{shown[0]:>11}{shown[1]:>15}{shown[2]:>11}{shown[3]:>17}")
    return "\n".join(lines)


def figure(result: dict[str, Any], path: str | Path) -> None:
    """Figure 3 with every bound and the attack at n = 10^4 and 10^6, and Figures 5-7."""
    shown, (left, middle, right) = sheet(15, 4.4, 1, 3)
    looks = {"theorem 3": ":", "clones 2023": "--", "blanket": "-", "attack": "-."}
    local = result["figure3"]["local"]
    for n, colour in (("10000", "#b2541f"), ("1000000", "#1f6fb2")):
        for name, look in looks.items():
            values = [math.nan if v is None else v for v in result["figure3"]["n"][n][name]]
            left.plot(local, values, look, color=colour, label=f"{name}, n = {int(n):,}")
    left.set(
        xlabel="ε' of a row (six columns)", ylabel="ε*", yscale="log", title="Figure 3: bounds and attack, δ = 10⁻¹⁰"
    )
    left.legend(frameon=False, fontsize=7)
    use = result["figures5to7"]
    colours = {"two_point": "#1f6fb2", "coin": "#3a9d5d", "piecewise": "#b2541f", "laplace": "#777777"}
    for mechanism, table in use["mechanisms"].items():
        colour = colours[mechanism]
        for axis, name, look in ((middle, "covariance", "-"), (middle, "diagonal", ":"), (right, "correlation", "-")):
            values = [math.nan if v is None else v for v in table[name]]
            if not all(map(math.isnan, values)):
                axis.plot(use["epsilons"], values, look, color=colour, label=None if look == ":" else mechanism)
    middle.axhline(use["zero_covariance"], color="black", lw=0.8, label="0 off the diagonal")
    middle.set(xlabel="ε of a row", xscale="log", yscale="log", title="Covariance error (dotted: diagonal)")
    middle.legend(frameon=False, fontsize=7)
    two = [math.nan if v is None else v for v in use["mechanisms"]["two_point"]["as_printed"]]
    right.plot(use["epsilons"], two, "--", color=colours["two_point"], label="two_point, as the paper computes it")
    right.axhline(use["identity"], color="black", lw=0.8, label="identity matrix: no data")
    right.set(xlabel="ε of a row", xscale="log", yscale="log", title="Correlation error, off the diagonal")
    right.legend(frameon=False, fontsize=7)
    save(shown, Path(path))


def figure_limits(result: dict[str, Any], path: Path) -> None:
    """Figures 1 and 2: the largest eps' that Theorem 4 allows."""
    shown, (left, right) = sheet(10, 4, 1, 2)
    for n, values in result["figure1"].items():
        left.plot([10.0**-k for k in range(2, 16)], values, label=f"n = {int(n):,}")
    left.set(xscale="log", xlabel="δ*", ylabel="largest ε'", title="Figure 1: n fixed")
    for delta, values in result["figure2"].items():
        right.plot([10**k for k in range(3, 8)], values, label=f"δ* = {delta}")
    right.set(xscale="log", xlabel="n", ylabel="largest ε'", title="Figure 2: δ* fixed")
    left.set_ylim(top=14)
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, loc="upper left")
    save(shown, path)


def figure_surface(result: dict[str, Any], path: Path) -> None:
    """Figure 4: error and deviation over (a, b) at epsilon 1. They follow b/a alone, so the surface is made of rays."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    own = result["as_printed"]
    shown = Figure(figsize=(10, 4.4), layout="constrained")
    FigureCanvasAgg(shown)
    share = np.array([row[0] for row in own["surface"]])
    a, times = np.meshgrid(np.logspace(-2, 4, 13), share)
    for place, (at, title) in enumerate(((1, "mean absolute error"), (2, "standard deviation")), 1):
        axis: Any = shown.add_subplot(1, 2, place, projection="3d")
        height = np.repeat(np.array([row[at] for row in own["surface"]])[:, None], a.shape[1], axis=1)
        axis.plot_surface(np.log10(a), np.log10(a * times * own["least_ratio"]), height, cmap="viridis")
        axis.set(xlabel="log10 a", ylabel="log10 b", title=f"Figure 4: {title}")
    save(shown, path)


def figure_printed(result: dict[str, Any], path: Path) -> None:
    """Figures 5-7 as the paper computes them."""
    own = result["as_printed"]
    shown, (left, middle, right) = sheet(15, 4.4, 1, 3)
    for name, colour in (("two_point", "#1f6fb2"), ("laplace", "#777777")):
        mean, deviation = (np.array([row[i] for row in own[name]]) for i in (0, 1))
        left.errorbar(own["columns"], mean, deviation, color=colour, marker="o", capsize=2, label=name)
    left.axvline(PRINTED_CROSSING, color="black", lw=0.8, label="printed crossing 3.7")
    left.set(xscale="log", yscale="log", xlabel="ε of a column", title="Figure 5: error of the covariance matrix")
    for i, name in enumerate(("mean", "deviation")):
        ratio = [a[i] / b[i] for a, b in zip(own["two_point"], own["laplace"], strict=True)]
        middle.plot(own["columns"], ratio, marker="o", label=name)
    middle.axhline(1, color="black", lw=0.8)
    middle.set(xscale="log", yscale="log", xlabel="ε of a column", title="Figure 6: two-point over Laplace")
    right.plot(own["each"], own["correlation"], marker="o", color="#1f6fb2", label="correlation error, by ε0")
    right.axhline(result["figures5to7"]["identity"], color="black", lw=0.8, label="identity matrix: no data")
    right.set(xscale="log", xlabel="ε0 or ε'", ylim=(0, 0.08), title="Figure 7, n = 30,162")
    other = right.twinx()
    known = {float(eps): value for eps, value in own["amplified"].items() if value is not None}
    other.plot(list(known), list(known.values()), marker="s", color="#c0392b", label="ε* by Theorem 4, by ε'")
    other.set_ylabel("ε*")
    for axis, where in ((left, "best"), (middle, "best"), (right, "lower left"), (other, "upper left")):
        axis.legend(frameon=False, fontsize=8, loc=where)
    save(shown, path)
