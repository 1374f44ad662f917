"""Acceptance criteria beside what releases then did: the verdicts made before any data, and fresh releases.

python benchmarks/acceptance.py [--draws 20] [--trials 10] [--tables kanto,counties] [--recipes geometric,refined,...]

Tables: kanto, the 512 x 512 mesh of 2020 with its municipalities; counties, 1,827 US counties x sex x 18 ages of 2019.
The public table that verdicts without a closed form are made on is not the one that is released: every number times
exp(0.2 z), z normal, by another seed, as a count of some years before may differ. Areas are added up here by hand, not
by the code that judged. Per table, recipe, epsilon and criterion: how it was judged, the share that was stated (twice
its standard error in brackets where it is simulated), the verdict, the share of the areas that releases then kept
within reach (twice the standard error of that mean), in how many releases the criterion held, and whether the verdict
was right: met and kept on average, or not met and not kept. A closed form speaks for the smallest area that counts,
so that "not met" may be kept after all. Exits 1 where a criterion was met and then missed by more than two standard
errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import made_tables
import numpy as np

import kasuri as ks
from kasuri.published.acceptance import Criterion, Verdict, by_form
from kasuri.recipes.mechanism import NoForm

UNIT = ks.Unit("person", "add-remove", 1)


@dataclass(frozen=True)
class Case:
    """A table, criteria on it with the sums that each is about, recipes, and the budgets they are judged at."""

    domain: ks.Domain
    truth: np.ndarray
    criteria: dict[Criterion, Callable[[np.ndarray], np.ndarray]]
    recipes: dict[str, ks.Mechanism]
    epsilons: tuple[str, ...]


def kanto() -> Case:
    table = made_tables.kanto()
    towns = next(one for one in table.maps if one.name == "municipality")
    inside = towns.labels >= 0

    def towns_of(dense: np.ndarray) -> np.ndarray:
        return np.bincount(towns.labels[inside], dense.ravel()[inside])

    def squares(dense: np.ndarray) -> np.ndarray:
        return dense.reshape(128, 4, 128, 4).sum(axis=(1, 3)).ravel()

    criteria = {
        Criterion("municipality", people=500, within="5 %", share="95 %"): towns_of,
        Criterion("municipality", people=500, within="0.5 %", share="95 %"): towns_of,
        Criterion(16, people=500, within="10 %", share="95 %"): squares,
        Criterion(1, people=100, within="10 %", share="90 %"): np.ravel,
    }
    recipes = {
        "geometric": ks.geometric(),
        "refined_tree": ks.refined_tree(),
        "haar_topdown": ks.haar_topdown(),
        "bayes_tree": ks.bayes_tree(),
        "best": ks.best(),
    }
    return Case(ks.Domain.of(table.domain.axes[0], maps=[towns]), table.truth, criteria, recipes, ("0.1", "1"))


def counties() -> Case:
    table = made_tables.counties()
    codes = np.array([label[:2] for label in table.domain.axes[0].labels or ()])
    firsts = np.unique(codes, return_index=True)[1]
    criteria: dict[Criterion, Callable[[np.ndarray], np.ndarray]] = {
        Criterion("county", people=500, within="5 %", share="95 %"): lambda dense: dense.sum(axis=(1, 2)),
        Criterion("county", people=500, within="0.5 %", share="95 %"): lambda dense: dense.sum(axis=(1, 2)),
        Criterion("county@1, sex, age", people=500, within="1 %", share="95 %"): lambda dense: np.add.reduceat(
            dense, firsts, axis=0
        ).ravel(),
        Criterion(1, people=100, within="5 %", share="90 %"): np.ravel,
    }
    recipes = {
        "geometric": ks.geometric(),
        "refined_tree": ks.refined_tree(order="hierarchy"),
        "bayes_tree": ks.bayes_tree(order="hierarchy"),
        "best": ks.best(),
    }
    return Case(table.domain, table.truth, criteria, recipes, ("0.1", "1"))


CASES = {"kanto": kanto, "counties": counties}


def earlier(case: Case) -> ks.PublicTable:
    """A public table that is like the one released, and is not it."""
    z = np.random.default_rng(2015).normal(0, 0.2, case.truth.shape)
    return ks.PublicTable.from_dense(np.rint(case.truth * np.exp(z)), case.domain, name="some years before")


def stated(case: Case, recipe: ks.Mechanism, epsilon: str, trials: int) -> tuple[Verdict, ...]:
    """Before any data; the number of trials is that of a job."""
    judged = ks.accept(
        list(case.criteria), recipe, case.domain, UNIT, epsilon=epsilon, public=earlier(case), trials=trials
    )
    return judged.verdicts


def kept(case: Case, recipe: ks.Mechanism, epsilon: str, draws: int) -> np.ndarray:
    """Per criterion and draw: the share of the areas within reach of the truth."""
    counts = ks.Counts.from_dense(case.truth, case.domain, UNIT)
    out = np.zeros((len(case.criteria), draws))
    for draw in range(draws):
        release = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(7000 + draw))
        dense = release.to_dense()
        for at, (criterion, sums) in enumerate(case.criteria.items()):
            true, own = sums(case.truth), sums(dense)
            judged = true > criterion.people
            reach = float(criterion.within) * true[judged]
            out[at, draw] = (np.abs(own[judged] - true[judged]) <= reach).mean()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--tables", default=",".join(CASES))
    parser.add_argument("--recipes", default="")
    parser.add_argument("--epsilons", default="")
    given = parser.parse_args()
    missed = 0
    print("| table | recipe | epsilon | criterion | judged by | stated | verdict | then kept | held in | right |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in given.tables.split(","):
        case = CASES[name]()
        for word, recipe in case.recipes.items():
            if given.recipes and word not in given.recipes.split(","):
                continue
            for epsilon in given.epsilons.split(",") if given.epsilons else case.epsilons:
                verdicts = stated(case, recipe, epsilon, given.trials)
                run = recipe.on(case.domain, UNIT, epsilon)
                shares = kept(case, recipe, epsilon, given.draws)
                for verdict, (criterion, own) in zip(verdicts, zip(case.criteria, shares, strict=True), strict=True):
                    form = not isinstance(by_form(run, criterion), NoForm)
                    mean, error = own.mean(), own.std(ddof=1) / np.sqrt(own.size)
                    reached = mean >= float(criterion.share)
                    missed += verdict.met and mean + 2 * error < float(criterion.share)
                    by = "closed form" if form else f"{verdict.areas:,} areas"
                    said = f"{verdict.found:.1%}" + ("" if form else f" ({abs(verdict.margin):.1%})")
                    held = int((own >= float(criterion.share)).sum())
                    line = [name, word, epsilon, criterion.words(), by, said, "met" if verdict.met else "not met",
                            f"{mean:.1%} ({2 * error:.1%})", f"{held} of {own.size}",
                            "yes" if verdict.met == reached else "no"]  # fmt: skip
                    print("|", " | ".join(line), "|", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
