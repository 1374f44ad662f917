"""Locations under local differential privacy: Tables A.2-A.5, Figures A.1-A.20 and section A.4.4 of [Horigome2020].

The thesis' pseudo people-flow of 6,258 people is not available. Its people by time (Table A.2) and those of its ten
largest wards (Table A.3) are printed; the rest of each time is spread over the other 13 wards like the daytime
population of October 2019 (see NOTICE).
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
from kasuri.local.estimators import expectation
from kasuri.reproduce.paper import save, sheet

QUICK, FULL = 10, 10
"""Runs per setting: those of the thesis take half a minute."""
EPSILONS = ("0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4", "4.5", "5")
PEOPLE = {"8:00": 2957, "11:00": 3922, "14:00": 4640, "17:00": 4793, "20:00": 4300, "23:00": 3283}
"""People in the 23 wards by time of day (Table A.2)."""

WARDS = {
    "Shibuya": (262, 394, 533, 532, 479, 351),
    "Shinjuku": (278, 414, 505, 531, 454, 304),
    "Minato": (267, 393, 509, 479, 416, 284),
    "Chiyoda": (186, 381, 506, 496, 476, 248),
    "Setagaya": (295, 331, 367, 403, 368, 317),
    "Suginami": (165, 209, 227, 246, 187, 188),
    "Chuo": (121, 177, 216, 188, 148, 118),
    "Bunkyo": (98, 166, 181, 197, 206, 143),
    "Shinagawa": (98, 147, 182, 173, 147, 99),
    "Nakano": (154, 117, 116, 133, 141, 142),
}
"""People of the ten largest wards by time (Table A.3)."""
PRINTED_A4 = {
    "mean": (192.4, 272.9, 334.2, 337.8, 302.2, 219.4),
    "largest": (295, 414, 533, 532, 479, 351),
    "least": (98, 117, 116, 133, 141, 99),
}
"""Table A.4, of those ten wards."""
STOP = 1e-5
"""The thesis stops EM where no share changes by more than epsilon_2, which is not printed; this one gives its table."""
PRINTED_DIFFERENCE = 1871.515
"""Section A.4.4: error of the MLE less that of EM, 17:00, epsilon 0.5."""

PRINTED = {
    "em": (2971.31, 1846.69, 1404.14, 982.69, 780.58, 628.41, 524.80, 407.92, 349.73, 287.42),
    "inversion": (4885.28, 2256.53, 1614.74, 1072.24, 849.41, 710.34, 601.56, 503.13, 434.63, 363.16),
}
"""Table A.5: mean over the times of the sum of absolute errors."""
PRINTED_CORRELATION = {"em": 0.870, "inversion": 0.255}
"""Section A.4.4: correlation of a ward's mean absolute error with its population, 17:00, epsilon 0.5."""

METHODS = ("inversion", "projection", "em_columns", "em", "em, stopped")
"""The last is the thesis': plain EM from equal shares, stopped at `STOP`."""


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


def spread(time: str) -> NDArray[np.int64]:
    """People by ward: Table A.3 where it is printed, the rest of Table A.2 by population and largest remainder."""
    names, population, _ = wards()
    at = list(PEOPLE).index(time)
    out = np.array([WARDS[name][at] if name in WARDS else 0 for name in names], dtype=np.int64)
    rest = np.array([name not in WARDS for name in names])
    people = PEOPLE[time] - int(out.sum())
    share = population[rest] / population[rest].sum() * people
    part = np.floor(share).astype(np.int64)
    part[np.argsort(part - share)[: people - part.sum()]] += 1
    out[rest] = part
    return out


def stopped_em(
    reports: local.Reports, randomizer: local.Randomizer, stop: float = STOP
) -> tuple[NDArray[np.float64], int]:
    """(people by ward, passes) of the thesis' EM: equal shares, plain passes, stopped where no share changes by more
    than `stop`. An early stop pulls towards equal shares: that is why its error is below that of the maximum."""
    step = expectation(randomizer, reports.rows)
    theta, passes, change = np.full(randomizer.size, 1 / randomizer.size), 0, np.inf
    while change > stop:
        new = theta * step(theta)[0]
        new /= new.sum()
        change, theta, passes = float(np.abs(new - theta).max()), new, passes + 1
    return theta * reports.rows.shape[0], passes


def course(epsilon: str, passes: int, *, seed: int) -> list[float]:
    """Figure A.3: the estimate of Shinjuku at 14:00 after each pass of plain EM."""
    names = wards()[0]
    randomizer = local.unary(ks.Nominal("ward", labels=names), epsilon=epsilon, elsewhere=False)
    truth = spread("14:00")
    reports = randomizer.randomize(np.repeat(np.arange(len(names)), truth), source=ks.seeded(seed))
    step = expectation(randomizer, reports.rows)
    theta, out = np.full(len(names), 1 / len(names)), []
    for _ in range(passes):
        out.append(float(theta[names.index("Shinjuku")] * truth.sum()))
        theta = theta * step(theta)[0]
        theta /= theta.sum()
    return out


def run(runs: int = QUICK, *, seed: int = 2020, progress: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Table A.5 with every method and by time (Figures A.15-A.20), and the wards at 17:00, epsilon 0.5."""
    labels = wards()[0]
    axis = ks.Nominal("ward", labels=labels)
    by_time: dict[str, dict[str, list[float]]] = {time: {method: [] for method in METHODS} for time in PEOPLE}
    maps: dict[str, Any] = {}
    for e, epsilon in enumerate(EPSILONS):
        progress(f"epsilon {epsilon}")
        randomizer = local.unary(axis, epsilon=epsilon, elsewhere=False)
        for t, time in enumerate(PEOPLE):
            truth = spread(time)
            errors: dict[str, list[float]] = {method: [] for method in METHODS}
            for number in range(runs):
                source = ks.seeded(seed * 10**6 + e * 10**4 + t * 10**3 + number)
                reports = randomizer.randomize(np.repeat(np.arange(len(labels)), truth), source=source)
                for method in METHODS:
                    if method == "em, stopped":
                        counts = stopped_em(reports, randomizer)[0]
                    else:
                        counts = local.estimate(reports, randomizer, method=cast(Any, method)).counts
                    errors[method].append(float(np.abs(counts - truth).sum()))
            for method in METHODS:
                by_time[time][method].append(float(np.mean(errors[method])))
            if (time, epsilon) == ("17:00", "0.5"):
                maps = {"truth": truth.tolist(), "reports": randomizer.agreeing(reports.rows).tolist()}
    progress("wards at 17:00, epsilon 0.5")
    found = at_five(20 * runs, seed=seed)
    table = {method: np.mean([by_time[time][method] for time in PEOPLE], axis=0).tolist() for method in METHODS}
    return {
        "paper": "horigome2020",
        "part": "ldp",
        "runs": runs,
        "epsilons": list(EPSILONS),
        "measured": table,
        "by_time": by_time,
        "printed": {method: list(values) for method, values in PRINTED.items()},
        "correlation": {"measured": found["correlation"], "printed": PRINTED_CORRELATION},
        "wards": list(labels),
        "maps": maps | {"em": found["ten"]["em, stopped"]},
        "at_five": found,
        "flip": {epsilon: 1 / (1 + float(np.exp(float(epsilon) / 2))) for epsilon in EPSILONS},
        "course": {epsilon: course(epsilon, 200, seed=seed) for epsilon in ("0.5", "1", "2", "5")},
    }


def at_five(runs: int, *, seed: int) -> dict[str, Any]:
    """17:00 at epsilon 0.5: mean absolute error of each ward over many runs, its correlation with the population (ten
    runs, as in the thesis, leave it uncertain by 0.2), and the mean estimate of ten runs (Figures A.8-A.9)."""
    randomizer = local.unary(ks.Nominal("ward", labels=wards()[0]), epsilon="0.5", elsewhere=False)
    truth = spread("17:00")
    values = np.repeat(np.arange(truth.size), truth)
    methods = ("inversion", "em", "em, stopped")
    wrong, ten = ({method: np.zeros(truth.size) for method in methods} for _ in range(2))
    for number in range(runs):
        reports = randomizer.randomize(values, source=ks.seeded(seed * 10**6 + 500_000 + number))
        for method in methods:
            if method == "em, stopped":
                counts = stopped_em(reports, randomizer)[0]
            else:
                counts = local.estimate(reports, randomizer, method=cast(Any, method)).counts
            wrong[method] += np.abs(counts - truth) / runs
            ten[method] += counts / 10 if number < 10 else 0
    return {
        "runs": runs,
        "mean_error": {method: found.tolist() for method, found in wrong.items()},
        "ten": {method: found.tolist() for method, found in ten.items()},
        "correlation": {method: float(np.corrcoef(found, truth)[0, 1]) for method, found in wrong.items()},
        "difference": float(wrong["inversion"].sum() - wrong["em, stopped"].sum()),
    }


def sent_ones(epsilon: float, people: int, inside: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Figure A.2: the law of n', the ones sent for a ward with `inside` of `people`: the sum of two binomials."""
    from scipy.special import gammaln, xlogy

    p = 1 / (1 + np.exp(-epsilon / 2))

    def binomial(n: int, chance: float) -> NDArray[np.float64]:
        k = np.arange(n + 1)
        log = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, chance) + xlogy(n - k, 1 - chance)
        return np.asarray(np.exp(log), dtype=np.float64)

    law = np.convolve(binomial(inside, p), binomial(people - inside, 1 - p))
    return np.arange(law.size), law


def text(result: dict[str, Any]) -> str:
    """The table as a person reads it."""
    head = f"{'epsilon':>8}" + "".join(f"{m:>12}" for m in METHODS) + f"{'thesis MLE':>14}{'thesis EM':>12}"
    out = ["Sum of absolute errors over 23 wards, mean of six times of day (Table A.5)", head]
    for i, epsilon in enumerate(result["epsilons"]):
        own = "".join(f"{result['measured'][m][i]:12.0f}" for m in METHODS)
        out.append(f"{epsilon:>8}{own}{result['printed']['inversion'][i]:14.0f}{result['printed']['em'][i]:12.0f}")
    out.append("By time (Figures A.15-A.20), epsilon 0.5 / 2 / 5:")
    for time, rows in result["by_time"].items():
        for method in ("inversion", "em, stopped"):
            out.append(f"  {time:>6} {method:12}" + "".join(f"{rows[method][i]:10.0f}" for i in (0, 3, 9)))
    found, printed = result["correlation"]["measured"], result["correlation"]["printed"]
    out.append("Correlation of a ward's error with its population, 17:00, epsilon 0.5: "
               f"inversion {found['inversion']:.3f} (thesis {printed['inversion']}), "
               f"em {found['em']:.3f}, stopped {found['em, stopped']:.3f} (thesis {printed['em']})")  # fmt: skip
    out.append(f"Error of the MLE less that of the stopped EM there: {result['at_five']['difference']:.0f} "
               f"(thesis {PRINTED_DIFFERENCE:.0f})")  # fmt: skip
    return "\n".join(out)


def figure(result: dict[str, Any], path: str | Path) -> None:
    """The three ward maps (truth, what the reports add up to, the EM estimate) and the errors of Table A.5."""
    shown, axes = sheet(15, 4.2, 1, 4)
    titles = {
        "truth": "People at 17:00 (A.12)",
        "reports": "Sum of the reports, ε = 0.5 (A.13)",
        "em": "EM estimate (A.14)",
    }
    top = max(max(result["maps"]["truth"]), max(result["maps"]["em"]))
    for axis, (name, title) in zip(axes[:3], titles.items(), strict=True):
        _map(shown, axis, result["maps"][name], title, None if name == "reports" else top)
    epsilons = [float(e) for e in result["epsilons"]]
    for method, color in (("inversion", "#b2541f"), ("em", "#1f6fb2")):
        own = "em, stopped" if method == "em" else method
        axes[3].plot(epsilons, result["measured"][own], color=color, label=f"{own}, measured")
        axes[3].plot(epsilons, result["printed"][method], "o", mfc="none", color=color, label=f"{method}, thesis")
    axes[3].set(xlabel="ε", ylabel="sum of absolute errors", yscale="log", title="Table A.5")
    axes[3].legend(frameon=False)
    save(shown, Path(path))


def _map(shown: Any, axis: Any, values: Any, title: str, top: float | None = None) -> None:
    cells = wards()[2]
    every = np.array([cell for ward in cells for cell in ward])
    low, high = every.min(axis=0), every.max(axis=0)
    image = np.full(high - low + 1, np.nan)
    for ward, value in zip(cells, values, strict=True):
        for row, col in ward:
            image[row - low[0], col - low[1]] = value
    drawn = axis.imshow(image, origin="lower", cmap="Blues", vmin=0, vmax=top, aspect=1.2)
    axis.set_title(title)
    axis.set_axis_off()
    shown.colorbar(drawn, ax=axis, shrink=0.7)


def figure_laws(result: dict[str, Any], path: Path) -> None:
    """Figures A.1-A.4: flip chance, law of the ones sent, course of EM, people by time."""
    shown, axes = sheet(15, 4, 1, 4)
    at = np.linspace(0, 10, 101)
    axes[0].plot(at, 1 / (1 + np.exp(at / 2)))
    axes[0].set(xlabel="ε", ylabel="q", title="A.1: chance of a flipped bit")
    ones, law = sent_ones(0.5, PEOPLE["14:00"], WARDS["Shinjuku"][2])
    keep = law > law.max() * 1e-4
    axes[1].plot(ones[keep], law[keep])
    axes[1].set(xlabel="n'", ylabel="probability", title="A.2: ones sent for Shinjuku, 14:00, ε = 0.5")
    for epsilon, values in result["course"].items():
        axes[2].plot(values, label=f"ε = {epsilon}")
    axes[2].axhline(WARDS["Shinjuku"][2], color="0.5", lw=0.8, label="truth")
    axes[2].set(xlabel="passes", ylabel="people", title="A.3: estimate of Shinjuku by pass")
    axes[2].legend(frameon=False)
    names = result["wards"]
    for name in ("Nakano", "Koto", "Chuo", "Bunkyo"):
        dotted = name not in WARDS
        axes[3].plot(list(PEOPLE), [int(spread(time)[names.index(name)]) for time in PEOPLE], ":" if dotted else "-",
                     label=name + (" (not printed: by population)" if dotted else ""))  # fmt: skip
    axes[3].set(ylabel="people", title="A.4: people by time", ylim=(80, 290))
    axes[3].legend(frameon=False, loc="upper left", fontsize=8)
    save(shown, path)


def figure_wards(result: dict[str, Any], path: Path) -> None:
    """Figures A.6-A.11: people at 8:00 and 14:00, estimates by ward, estimate against truth, maps of the mean error."""
    shown, axes = sheet(15, 8, 2, 3)
    _map(shown, axes[0], spread("8:00"), "A.6: people at 8:00")
    _map(shown, axes[1], spread("14:00"), "A.7: people at 14:00")
    truth, ten = result["maps"]["truth"], result["at_five"]["ten"]
    places = np.arange(len(truth))
    for i, (name, values) in enumerate({"truth": truth, "MLE": ten["inversion"], "EM": ten["em, stopped"]}.items()):
        axes[2].bar(places + 0.28 * (i - 1), values, 0.28, label=name)
    axes[2].set_xticks(places, result["wards"], rotation=90, fontsize=7)
    axes[2].set(title="A.8: 17:00, ε = 0.5, mean of ten runs")
    axes[2].legend(frameon=False)
    axes[3].plot(truth, ten["inversion"], "s", label="MLE")
    axes[3].plot(truth, ten["em, stopped"], "o", label="EM")
    axes[3].plot([0, max(truth)], [0, max(truth)], color="0.5", lw=0.8)
    axes[3].set(xlabel="people", ylabel="estimate", title="A.9: estimate against truth")
    axes[3].legend(frameon=False)
    error = result["at_five"]["mean_error"]
    top = max(*error["inversion"], *error["em, stopped"])
    _map(shown, axes[4], error["em, stopped"], "A.10: mean absolute error of EM", top)
    _map(shown, axes[5], error["inversion"], "A.11: mean absolute error of the MLE", top)
    save(shown, path)


def figure_times(result: dict[str, Any], path: Path) -> None:
    """Figures A.15-A.20: the error S by epsilon at each time."""
    shown, axes = sheet(15, 7, 2, 3)
    epsilons = [float(e) for e in result["epsilons"]]
    for number, (axis, (time, rows)) in enumerate(zip(axes, result["by_time"].items(), strict=True), 15):
        for method, name in (("inversion", "MLE"), ("em, stopped", "EM"), ("em", "EM at its maximum")):
            axis.plot(epsilons, rows[method], "-" if method != "em" else ":", label=name)
        axis.set(xlabel="ε", ylabel="S", title=f"A.{number}: {time}")
        axis.legend(frameon=False)
    save(shown, path)
