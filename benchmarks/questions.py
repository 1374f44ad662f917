"""Coverage and width of the answers that a release gives for free: quantiles, means, averages, shares, ratios, changes,
ranks.

python benchmarks/questions.py [--runs 20] [--tables kanto,counties,sparse] [--recipes geometric,refined,haar,best]

Tables (made_tables.py): kanto, 64 x 64 cells of the Kanto fringe x 16 ages (people of 2020, ages by a public model), at
epsilon 1; counties, 1,827 US counties x 18 ages, real, at epsilon 0.1; sparse, 256 x 256 cells x 24 hours of which 1 in
400 has anybody, at epsilon 1.
Areas: the whole table; blocks of the mesh, or states and counties, chosen once by a seed. Per table, recipe and
question: cases, coverage with its standard error (that of whole runs: the cases of one share its noise), the share of
answers that settle more than nothing (an interval smaller than all there is), and the median width. A ranking is one
case: all its ranks and groups must hold. Exits 1 where a question with 100 cases or more is covered in less than 95 %
by more than two standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import made_tables
import numpy as np

import kasuri as ks

MOST = 50
Q = (0.1, 0.25, 0.5, 0.75, 0.9)
RECIPES: dict[str, Callable[[], ks.Mechanism]] = {
    "geometric": ks.geometric,
    "refined": ks.refined_tree,
    "haar": ks.haar_topdown,
    "best": ks.best,
}


@dataclass(frozen=True)
class Case:
    """A table, an ordered axis of it, and areas by kind."""

    domain: ks.Domain
    truth: np.ndarray
    axis: str
    areas: dict[str, list[ks.Area]]
    by: str | dict[str, ks.Area]
    epsilon: str
    skip: tuple[str, ...] = ()
    sums: np.ndarray | None = None
    """Amounts of the same people, at most MOST each: a second release at the same epsilon."""


def blocks(side: int, shape: tuple[int, int], count: int, seed: int) -> list[ks.Area]:
    rng = np.random.default_rng(seed)
    at = [rng.integers(0, size - side + 1, count) for size in shape]
    return [
        ks.Area(rows=slice(r, r + side), cols=slice(c, c + side))
        for r, c in zip(*map(np.ndarray.tolist, at), strict=True)
    ]


def kanto() -> Case:
    table = made_tables.mesh_sex_age()
    truth = table.truth.sum(axis=3)
    domain = ks.Domain.of(ks.Mesh("grid", shape=(64, 64)), ks.Ordered("age", 16))
    quarters = {
        f"{r} {c}": ks.Area(rows=slice(16 * r, 16 * r + 16), cols=slice(16 * c, 16 * c + 16))
        for r in range(4) for c in range(4)
    }  # fmt: skip
    areas = {"all": [ks.Area()]} | {f"{side} x {side}": blocks(side, (64, 64), 12, side) for side in (4, 16, 33)}
    amounts = np.random.default_rng(24).binomial(MOST * truth, 0.1 + 0.04 * np.arange(16))
    return Case(domain, truth, "age", areas, quarters, "1", sums=amounts)


def counties() -> Case:
    table = made_tables.counties()
    county = ks.Nominal("county", table.domain.axes[0].labels)
    truth = table.truth.sum(axis=1)
    domain = ks.Domain.of(county, ks.Ordered("age", 18))
    rng = np.random.default_rng(5)
    some = [ks.Area(county=int(i)) for i in rng.integers(0, truth.shape[0], 12)]
    codes = np.array([label[:2] for label in county.labels])
    states = [ks.Area(county=slice(*np.searchsorted(codes, [code, code + "~"]).tolist())) for code in np.unique(codes)]
    return Case(domain, truth, "age", {"all": [ks.Area()], "states": states[:12], "counties": some}, "county", "0.1",
                skip=("haar",))  # fmt: skip


def sparse() -> Case:
    rng = np.random.default_rng(3)
    truth = np.zeros((256, 256, 24), dtype=np.int64)
    busy = rng.random((256, 256)) < 1 / 400
    profile = np.exp(-((np.arange(24) - 14) ** 2) / 40)
    people = rng.lognormal(4, 1.5, int(busy.sum()))
    truth[busy] = rng.poisson(people[:, None] * profile / profile.sum())
    domain = ks.Domain.of(ks.Mesh("grid", shape=(256, 256)), ks.Time("hour", "2020-10-01T00:00", 3600, 24))
    areas = {"all": [ks.Area()]} | {f"{side} x {side}": blocks(side, (256, 256), 12, side) for side in (16, 64)}
    quarters = {f"{r} {c}": ks.Area(rows=slice(64 * r, 64 * r + 64), cols=slice(64 * c, 64 * c + 64))
                for r in range(4) for c in range(4)}  # fmt: skip
    return Case(domain, truth, "hour", areas, quarters, "1", skip=("geometric",))


CASES = {"kanto": kanto, "counties": counties, "sparse": sparse}


def true_profile(case: Case, area: ks.Area, of: np.ndarray | None = None) -> np.ndarray:
    box = area.on(case.domain)
    index = tuple(slice(a, b) for a, b in zip(box.low[0].tolist(), box.high[0].tolist(), strict=True))
    return (case.truth if of is None else of)[index].reshape(-1, case.truth.shape[-1]).sum(axis=0)


Told = tuple[str, bool, bool, float]
"""Question, whether the truth is inside, whether the answer settles anything, width."""


def asked(case: Case, out: ks.Release, again: ks.Release) -> Iterator[Told]:
    size = case.truth.shape[-1]
    total = true_profile(case, ks.Area())
    for kind, areas in case.areas.items():
        for area in areas:
            own = true_profile(case, area)
            if not own.sum():  # a quantile of nobody is not defined
                continue
            sums = np.cumsum(own)
            for found in out.quantile(case.axis, Q, area):
                at = int(np.flatnonzero(sums >= found.q * sums[-1] * (1 - 1e-12))[0])
                yield (
                    f"quantile, {kind}",
                    found.lower <= at <= found.upper,
                    found.upper - found.lower < size - 1,
                    float(found.upper - found.lower),
                )
            mean = out.mean(case.axis, area, numbers=range(size))
            true = float((own * np.arange(size)).sum() / own.sum())
            yield (
                f"mean, {kind}",
                mean.lower <= true <= mean.upper,
                mean.upper - mean.lower < size - 1,
                mean.upper - mean.lower,
            )
            part = out.share(ks.Area(**{case.axis: slice(0, size // 2)}), area)
            true = float(own[: size // 2].sum() / own.sum())
            yield (
                f"share, {kind}",
                part.lower <= true <= part.upper,
                part.upper - part.lower < 1,
                part.upper - part.lower,
            )
            ratio = out.ratio(area, ks.Area())
            true = float(own.sum() / total.sum())
            yield f"ratio, {kind}", ratio.lower <= true <= ratio.upper, ratio.upper < np.inf, ratio.upper - ratio.lower
            moved = out.change(again, area)
            yield f"change, {kind}", moved.lower <= 0 <= moved.upper, True, moved.upper - moved.lower


def averaged(case: Case, recipe: ks.Mechanism, out: ks.Release, seed: int) -> Iterator[Told]:
    """Sums over counts, from two releases."""
    if case.sums is None:
        return
    unit = ks.Unit("person", "add-remove", 1, max_sum=MOST)
    amounts = ks.Counts.from_dense(case.sums, case.domain, unit)
    sums = ks.release(amounts, recipe, epsilon=case.epsilon, ledger=None, source=ks.seeded(seed))
    for kind, areas in case.areas.items():
        for area in areas:
            people = true_profile(case, area).sum()
            if people:
                true = true_profile(case, area, case.sums).sum() / people
                found = sums.average(out, area)
                width = found.upper - found.lower
                yield f"average, {kind}", found.lower <= true <= found.upper, found.upper < MOST, width


def ranked(case: Case, out: ks.Release) -> Told:
    found = out.rank(case.by)
    if isinstance(case.by, str):
        shown = case.domain.axes[0].shown() or []
        true = dict(zip(shown, case.truth.sum(axis=1).tolist(), strict=True))
    else:
        true = {name: int(true_profile(case, area).sum()) for name, area in case.by.items()}
    values = np.array(sorted(true.values()))
    good = True
    for rank in found.ranks:
        best = int((values > true[rank.name]).sum()) + 1  # ties: any order of equals is right
        worst = int((values >= true[rank.name]).sum())
        good &= rank.best <= worst and best <= rank.worst
    least = [min(true[name] for name in group) for group in found.groups]
    most = [max(true[name] for name in group) for group in found.groups]
    good &= all(a > b for a, b in zip(least, most[1:], strict=False))
    sure, _ = found.top(min(10, len(found.ranks)))
    good &= all(true[name] >= values[-min(10, values.size)] for name in sure)
    return "ranking", bool(good), len(found.groups) > 1, float(np.mean([r.worst - r.best for r in found.ranks]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--tables", default=",".join(CASES))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    given = parser.parse_args()
    missed = []
    print("| table | recipe | question | cases | coverage | +- | settled | width |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in given.tables.split(","):
        case = CASES[name]()
        counts = ks.Counts.from_dense(case.truth, case.domain, ks.Unit("person", "add-remove", 1))
        for word in given.recipes.split(","):
            if word in case.skip:
                continue
            held: dict[str, list[list[bool]]] = defaultdict(lambda: [[] for _ in range(given.runs)])
            settled, widths = defaultdict(list), defaultdict(list)
            earlier = ks.release(counts, RECIPES[word](), epsilon=case.epsilon, ledger=None, source=ks.seeded(999))
            for run in range(given.runs):
                out = ks.release(
                    counts, RECIPES[word](), epsilon=case.epsilon, ledger=None, source=ks.seeded(1000 + run)
                )
                for what, good, some, width in [
                    *asked(case, out, earlier), *averaged(case, RECIPES[word](), out, 5000 + run), ranked(case, out),
                ]:  # fmt: skip
                    held[what][run].append(good)
                    settled[what].append(some)
                    widths[what].append(width)
                earlier = out
            for what, runs in held.items():
                shares = np.array([np.mean(own) for own in runs])
                cases, covered = sum(map(len, runs)), float(np.mean([x for own in runs for x in own]))
                error = float(shares.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0
                told = [name, word, what, cases, f"{covered:.1%}", f"{error:.1%}", f"{np.mean(settled[what]):.0%}"]
                print("|", *(f"{part} |" for part in [*told, f"{np.median(widths[what]):.4g}"]), flush=True)
                if cases >= 100 and covered + 2 * error < 0.95:
                    missed.append(f"{name}, {word}, {what}: {covered:.1%} +- {error:.1%}")
    for line in missed:
        print(f"MISSED {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
