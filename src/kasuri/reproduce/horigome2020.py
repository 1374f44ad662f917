"""Locations under local differential privacy: Table A.5, the maps A.12-A.14 and section A.4.4 of [Horigome2020].

The thesis' pseudo people-flow of 6,258 people is not available. Here the people of Table A.2 (2,957 to 4,793 at six
times of day) are spread over the 23 wards like the daytime population of October 2019 (see NOTICE); the error of
inversion hardly depends on that spread, the error of EM somewhat.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import kasuri as ks
from kasuri import local

EPSILONS = ("0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4", "4.5", "5")
PEOPLE = {"8:00": 2957, "11:00": 3922, "14:00": 4640, "17:00": 4793, "20:00": 4300, "23:00": 3283}
"""People in the 23 wards by time of day (Table A.2)."""

PRINTED = {
    "em": (2971.31, 1846.69, 1404.14, 982.69, 780.58, 628.41, 524.80, 407.92, 349.73, 287.42),
    "inversion": (4885.28, 2256.53, 1614.74, 1072.24, 849.41, 710.34, 601.56, 503.13, 434.63, 363.16),
}
"""Table A.5: mean over the times of the sum of absolute errors."""
PRINTED_CORRELATION = {"em": 0.870, "inversion": 0.255}
"""Section A.4.4: correlation of a ward's mean absolute error with its population, 17:00, epsilon 0.5."""

METHODS = ("inversion", "projection", "em_columns", "em")


def wards() -> tuple[tuple[str, ...], NDArray[np.int64], list[list[tuple[int, int]]]]:
    """(names, daytime population, (row, col) of the 1 km cells) of the 23 wards."""
    path = Path(__file__).with_name("horigome2020_wards.csv")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = [[_cell(code) for code in row["meshes"].split()] for row in rows]
    return tuple(row["ward"] for row in rows), np.array([int(row["population"]) for row in rows]), cells


def _cell(code: str) -> tuple[int, int]:
    """(row, col) of an eight-digit JIS code of the 1 km mesh."""
    pp, uu, q, v, r, w = int(code[:2]), int(code[2:4]), *(int(c) for c in code[4:])
    return 80 * pp + 10 * q + r, 80 * uu + 10 * v + w


def spread(people: int) -> NDArray[np.int64]:
    """That many people over the wards, by largest remainder."""
    share = wards()[1] / wards()[1].sum() * people
    out = np.floor(share).astype(np.int64)
    out[np.argsort(out - share)[: people - out.sum()]] += 1
    return out


def run(runs: int = 10, *, seed: int = 2020, progress: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Table A.5 with every method, and the maps and correlations at 17:00, epsilon 0.5."""
    labels = wards()[0]
    axis = ks.Nominal("ward", labels=labels)
    table: dict[str, list[float]] = {method: [] for method in METHODS}
    maps: dict[str, Any] = {}
    for e, epsilon in enumerate(EPSILONS):
        progress(f"epsilon {epsilon}")
        randomizer = local.unary(axis, epsilon=epsilon, elsewhere=False)
        errors: dict[str, list[float]] = {method: [] for method in METHODS}
        for t, (time, people) in enumerate(PEOPLE.items()):
            truth = spread(people)
            for number in range(runs):
                source = ks.seeded(seed * 10**6 + e * 10**4 + t * 10**3 + number)
                reports = randomizer.randomize(np.repeat(np.arange(len(labels)), truth), source=source)
                for method in METHODS:
                    found = local.estimate(reports, randomizer, method=cast(Any, method))
                    errors[method].append(float(np.abs(found.counts - truth).sum()))
            if (time, epsilon) == ("17:00", "0.5"):
                maps = {
                    "truth": truth.tolist(),
                    "reports": randomizer.agreeing(reports.rows).tolist(),
                    "em": local.estimate(reports, randomizer, method="em").counts.tolist(),
                }
        for method in METHODS:
            table[method].append(float(np.mean(errors[method])))
    return {
        "paper": "horigome2020",
        "part": "ldp",
        "runs": runs,
        "epsilons": list(EPSILONS),
        "measured": table,
        "printed": {method: list(values) for method, values in PRINTED.items()},
        "correlation": {"measured": correlation(max(runs, 10) * 20, seed=seed), "printed": PRINTED_CORRELATION},
        "wards": list(labels),
        "maps": maps,
    }


def correlation(runs: int, *, seed: int) -> dict[str, float]:
    """Correlation of a ward's mean absolute error with its population at 17:00, epsilon 0.5: ten runs, as in the
    thesis, leave it uncertain by 0.2, so that many more are taken here."""
    randomizer = local.unary(ks.Nominal("ward", labels=wards()[0]), epsilon="0.5", elsewhere=False)
    truth = spread(PEOPLE["17:00"])
    values = np.repeat(np.arange(truth.size), truth)
    wrong = {"inversion": np.zeros(truth.size), "em": np.zeros(truth.size)}
    for number in range(runs):
        reports = randomizer.randomize(values, source=ks.seeded(seed * 10**6 + 500_000 + number))
        wrong["inversion"] += np.abs(local.estimate(reports, randomizer, method="inversion").counts - truth)
        wrong["em"] += np.abs(local.estimate(reports, randomizer, method="em").counts - truth)
    return {method: float(np.corrcoef(found, truth)[0, 1]) for method, found in wrong.items()}


def text(result: dict[str, Any]) -> str:
    """The table as a person reads it."""
    head = f"{'epsilon':>8}" + "".join(f"{m:>12}" for m in METHODS) + f"{'thesis MLE':>14}{'thesis EM':>12}"
    lines = ["Sum of absolute errors over 23 wards, mean of six times of day (Table A.5)", head]
    for i, epsilon in enumerate(result["epsilons"]):
        own = "".join(f"{result['measured'][m][i]:12.0f}" for m in METHODS)
        lines.append(f"{epsilon:>8}{own}{result['printed']['inversion'][i]:14.0f}{result['printed']['em'][i]:12.0f}")
    found, printed = result["correlation"]["measured"], result["correlation"]["printed"]
    lines.append("Correlation of a ward's error with its population, 17:00, epsilon 0.5: "
                 f"inversion {found['inversion']:.3f} (thesis {printed['inversion']}), "
                 f"em {found['em']:.3f} (thesis {printed['em']})")  # fmt: skip
    return "\n".join(lines)


def figure(result: dict[str, Any], path: str | Path) -> None:
    """The three ward maps (truth, what the reports add up to, the EM estimate) and the errors of Table A.5."""
    from matplotlib.figure import Figure

    cells = wards()[2]
    every = np.array([cell for ward in cells for cell in ward])
    low, high = every.min(axis=0), every.max(axis=0)
    shown = Figure(figsize=(15, 4.2), layout="constrained")
    axes = shown.subplots(1, 4)
    titles = {
        "truth": "People at 17:00 (A.12)",
        "reports": "Sum of the reports, ε = 0.5 (A.13)",
        "em": "EM estimate (A.14)",
    }
    top = max(max(result["maps"]["truth"]), max(result["maps"]["em"]))
    for axis, (name, title) in zip(axes[:3], titles.items(), strict=True):
        image = np.full(high - low + 1, np.nan)
        for ward, value in zip(cells, result["maps"][name], strict=True):
            for row, col in ward:
                image[row - low[0], col - low[1]] = value
        drawn = axis.imshow(
            image, origin="lower", cmap="Blues", vmin=0, vmax=None if name == "reports" else top, aspect=1.2
        )
        axis.set_title(title)
        axis.set_axis_off()
        shown.colorbar(drawn, ax=axis, shrink=0.7)
    epsilons = [float(e) for e in result["epsilons"]]
    for method, color in (("inversion", "#b2541f"), ("em", "#1f6fb2")):
        axes[3].plot(epsilons, result["measured"][method], color=color, label=f"{method}, measured")
        axes[3].plot(epsilons, result["printed"][method], "o", mfc="none", color=color, label=f"{method}, thesis")
    axes[3].set(xlabel="ε", ylabel="sum of absolute errors", yscale="log", title="Table A.5")
    axes[3].legend(frameon=False)
    shown.savefig(path, dpi=120)
