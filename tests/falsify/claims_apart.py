"""Claims of the siblings of the central model: local randomizers, the shuffle-model join, k-anonymity with sampling."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pandas as pd
from claims import Case, Claim, Sample, number_of
from reference.local import law_by_enumeration

import kasuri as ks
from kasuri import kanon
from kasuri.local import categorical, numeric
from kasuri.local.grid import Numeric
from kasuri.local.longitudinal import Memoised, MemoisedClient
from kasuri.local.randomizer import Randomizer
from kasuri.schema import Nominal, Unit
from kasuri.shuffle import columns as shuffle_columns

# -- local randomizers -------------------------------------------------------------------------------------------------

TWO = Nominal("place", labels=("a", "b"))  # with "elsewhere": 3 categories
SMALL = {
    "unary": ({"bits": 4}, 3),
    "oue": ({"bits": 4}, 3),
    "grr": ({"bits": 8}, 1),
    "olh": ({"bits": 6}, 2),
    "hadamard": ({"bits": 6}, 2),
    "count_mean_sketch": ({"bits": 4, "buckets": 2, "hashes": 4}, 3),
}
"""kind -> (words so short that all can be tried, how many words a report takes)."""
BOUNDS = (0, 10)
SMALL_NUMBERS = {
    "two_point": {"steps": 4, "bits": 8},
    "piecewise": {"steps": 4, "shift": 2, "bits": 8},
    "square_wave": {"steps": 4, "bits": 8},
    "hybrid": {"steps": 4, "shift": 2, "bits": 6},
    "laplace": {"steps": 4, "margin": 4, "bits": 12},
}


def worst_ratio(laws: Iterable[dict[object, Fraction]]) -> Fraction:
    """The largest ratio of the probabilities of one output; an output that one input cannot give is no ratio at all."""
    every = list(laws)
    worst = Fraction(1)
    for output in set().union(*every):
        chances = [law.get(output, Fraction(0)) for law in every]
        if min(chances) == 0:
            return Fraction(10**9)
        worst = max(worst, max(chances) / min(chances))
    return worst


def exact_categories(kind: str) -> tuple[Fraction, Fraction]:
    options, words = SMALL[kind]
    randomizer = categorical.MAKERS[kind](TWO, epsilon="1", **options)
    laws = [law_by_enumeration(randomizer, x, words) for x in range(randomizer.size)]
    return randomizer.guarantee().epsilon, worst_ratio(laws)


def number_law(randomizer: Numeric, x: Fraction) -> dict[object, Fraction]:
    """The law of a device's output by trying every word (the word that rounds x to the grid is not needed on it)."""
    seen: Counter[int] = Counter()
    words = 2 if randomizer.kind == "hybrid" else 1
    for drawn in itertools.product(range(randomizer.words), repeat=words):
        rest = iter((0, *drawn))
        seen[randomizer.report(x, lambda rest=rest: next(rest))] += 1
    return {output: Fraction(count, randomizer.words**words) for output, count in seen.items()}


def exact_numbers(randomizer: Numeric) -> tuple[Fraction, Fraction]:
    width = randomizer.high - randomizer.low
    grid = [randomizer.low + width * Fraction(g, randomizer.steps) for g in range(randomizer.steps + 1)]
    return randomizer.guarantee().epsilon, worst_ratio(number_law(randomizer, x) for x in grid)


def small_number(kind: str) -> tuple[Fraction, Fraction]:
    return exact_numbers(numeric.MAKERS[kind](BOUNDS, epsilon="1", **SMALL_NUMBERS[kind]))


def small_coin() -> tuple[Fraction, Fraction]:
    return exact_numbers(shuffle_columns.coin(BOUNDS, epsilon="1", steps=4, bits=10))


MANY = 40
"""Reports are drawn in bulk: one run of the falsifier is worth this many."""


@cache
def category_randomizer(kind: str) -> Randomizer:
    return categorical.MAKERS[kind](Nominal("place", labels=tuple("abcde")), epsilon="2")


def categories(kind: str, reports: int, side: int, runs: int, seed: int) -> Sample:
    """The bulk path at full word length; with several reports each person sends as many of the same place."""
    randomizer = category_randomizer(kind)
    people = runs * MANY // reports
    rows = randomizer.randomize(np.full(people * reports, 5 * side), source=ks.seeded(seed)).rows
    bits = np.unpackbits(randomizer.supports(rows), axis=1, bitorder="little")[:, : randomizer.size]
    columns: dict[str, np.ndarray] = {}
    for i in range(reports):
        own, shown = rows[i::reports].astype(float), bits[i::reports].astype(float)
        columns |= {f"support {i} {x}": shown[:, x] for x in range(randomizer.size)}
        columns[f"supports {i}"] = shown @ (1 << np.arange(randomizer.size))
        columns |= {f"byte {i} {j}": own[:, j] for j in range(min(own.shape[1], 6))}
    claim = randomizer.guarantee(reports=reports)
    return Sample(columns, claim.epsilon, claim.delta)


@cache
def number_randomizer(kind: str) -> Numeric:
    return numeric.MAKERS[kind](BOUNDS, epsilon="2")


def numbers(kind: str, off_grid: bool, side: int, runs: int, seed: int) -> Sample:
    """The ends of the bounds, or numbers between two grid points."""
    randomizer = number_randomizer(kind)
    x = (9.93 if side else 0.07) if off_grid else (10.0 if side else 0.0)
    out = randomizer.unpack(randomizer.randomize(np.full(runs * MANY, x), source=ks.seeded(seed)).rows)
    claim = randomizer.guarantee()
    return Sample({"output": out.astype(float)}, claim.epsilon, claim.delta)


@cache
def memoised() -> Memoised:
    return ks.local.memoised(TWO, epsilon_permanent="1", epsilon_instant="2", v_max=2, bits=16)


def exact_memoised() -> tuple[Fraction, Fraction]:
    """The permanent report of one place, by enumeration; a person has v_max of them."""
    small = ks.local.memoised(TWO, epsilon_permanent="1", epsilon_instant="2", v_max=2, bits=4)
    laws = []
    for x in range(3):
        seen: Counter[int] = Counter()
        for drawn in itertools.product(range(16), repeat=3):
            rest = iter(drawn)
            seen[small.permanent(x, lambda rest=rest: next(rest))] += 1
        laws.append({bits: Fraction(count, 16**3) for bits, count in seen.items()})
    return small.guarantee().epsilon, worst_ratio(laws) ** small.v_max


def days(side: int, runs: int, seed: int) -> Sample:
    """A person in two places, 40 reports from each, in one order or with the places exchanged for others."""
    randomizer, draw = memoised(), random.Random(seed)
    pattern = (0, 2) if side else (1, 0)
    seen = np.zeros((runs, 2, 3))
    for run in range(runs):
        client = MemoisedClient(randomizer, word=lambda: draw.getrandbits(16))
        for at, place in enumerate(pattern):
            for _ in range(40):
                report = client.report_category(place)[0]
                seen[run, at] += [report & 1, report >> 1 & 1, report >> 2 & 1]
    claim = randomizer.guarantee(reports=80)
    columns = {f"ones {at} {x}": seen[:, at, x] for at in range(2) for x in range(3)}
    return Sample(columns, claim.epsilon, claim.delta)


def local_claims() -> list[Claim]:
    found = [
        Claim(
            f"local.{kind}",
            f"local.{kind}",
            (Case("one report", partial(categories, kind, 1)), Case("two reports", partial(categories, kind, 2))),
            partial(exact_categories, kind),
            work=0.4,
            cost=0.1,
        )
        for kind in sorted(categorical.MAKERS)
    ]
    found += [
        Claim(
            f"local.{kind}",
            f"local.{kind}",
            (Case("ends", partial(numbers, kind, False)), Case("off the grid", partial(numbers, kind, True))),
            partial(small_number, kind),
            work=0.4,
            cost=0.1,
        )
        for kind in sorted(numeric.MAKERS)
    ]
    found.append(Claim("local.memoised", "local.memoised", (Case("40 reports each", days),), exact_memoised, cost=0.6))
    return found


# -- the shuffle-model join --------------------------------------------------------------------------------------------

OVERLAP, APART = 20, 180
AMPLIFIED, PLAIN = ("1.5", 20, 4), ("4", 4, 4)
"""Joins in which one person shows: epsilon of each side, rows in both tables, rows in one. The second is so small that
its claim is that of the local reports, without amplification."""


@cache
def plan_of(mechanisms: tuple[str, str], epsilon: str, overlap: int = OVERLAP) -> ks.shuffle.Plan:
    kinds = dict(zip("xy", mechanisms, strict=True))
    numbers_ = {name: (0, 1) for name, kind in kinds.items() if kind in shuffle_columns.NUMBERS}
    labels = {name: ("n", "s") for name, kind in kinds.items() if kind in shuffle_columns.CATEGORIES}
    return ks.shuffle.Plan(
        key="k", a=("x",), b=("y",), bounds=numbers_, categories=labels, epsilon_each=epsilon, delta="0.01",
        minimum_overlap=overlap, mechanisms=kinds,
    )  # fmt: skip


def tables_of(
    plan: ks.shuffle.Plan, side: int, seed: int, apart: int = APART
) -> tuple[ks.shuffle.Shuffled, ks.shuffle.Shuffled]:
    """Everyone at the low end but the victim, who stands at the high end on one side of the pair; few are in both."""
    secrets = ks.shuffle.Secret.pair()
    made = []
    for party, secret, column, other in zip("ab", secrets, plan.columns, ("u", "v"), strict=True):
        people = [f"k{i}" for i in range(plan.minimum_overlap)] + [f"{other}{i}" for i in range(apart)]
        low, high = (0.0, 1.0) if column.is_number else ("n", "s")
        values = [high if side and i == 0 else low for i in range(len(people))]
        with ks.shuffle.Party(plan, party, secret) as running:
            made.append(running.run({"k": people, column.name: values}, source=ks.seeded(2 * seed + (party == "b"))))
    return made[0], made[1]


def shown(joined: ks.shuffle.Joined) -> dict[str, float]:
    """Tallies of the joined rows: an order that tells nothing leaves nothing else."""
    codes = [np.asarray(part).reshape(len(part), -1)[:, 0].astype(int) for part in joined.columns.values()]
    top = [max(int(part.max()), 1) for part in codes]
    high = [part > 0.5 * most if most > 3 else part % 2 == 1 for part, most in zip(codes, top, strict=True)]
    return {
        "high both": float((high[0] & high[1]).sum()),
        "high one": float((high[0] | high[1]).sum()),
        "high x": float(high[0].sum()),
        "high y": float(high[1].sum()),
        "first x": float(codes[0][0]),
        "first y": float(codes[1][0]),
    }


def joined_rows(
    mechanisms: tuple[str, str], epsilon: str, overlap: int, apart: int, side: int, runs: int, seed: int
) -> Sample:
    """What the public sees."""
    plan, found, claim = plan_of(mechanisms, epsilon, overlap), [], None
    for i in range(runs):
        joined = ks.shuffle.join(plan, *tables_of(plan, side, seed + i, apart), source=ks.seeded(seed + i))
        claim = joined.claims.public
        found.append(shown(joined))
    assert claim is not None
    return Sample({name: np.array([row[name] for row in found]) for name in found[0]}, claim.epsilon, claim.delta)


def joiner_sees(side: int, runs: int, seed: int) -> Sample:
    """The joiner, told who the victim is, has the two reports: the local claim, without amplification."""
    plan = plan_of(("two_point", "two_point"), "1")
    claim = plan.guarantee(n=OVERLAP).joiner
    assert claim is not None
    return _victim(plan, ("x", "y"), claim, side, runs, seed)


def side_file(side: int, runs: int, seed: int) -> Sample:
    """One side's file, whoever has it and knows the pseudonym."""
    plan = plan_of(("coin", "two_point"), "2")
    return _victim(plan, ("x",), plan.side_claim("a"), side, runs, seed)


def _victim(plan: ks.shuffle.Plan, names: tuple[str, ...], claim: object, side: int, runs: int, seed: int) -> Sample:
    """Reports of the victim alone: rows are randomised each by itself, so a table of victims holds independent runs."""
    people = runs * MANY
    keys, secrets = [f"k{i}" for i in range(people)], ks.shuffle.Secret.pair()
    columns: dict[str, np.ndarray] = {}
    order = None
    for party, secret, column in zip("ab", secrets, plan.columns, strict=True):
        if column.name in names:
            with ks.shuffle.Party(plan, party, secret) as running:
                rows = {"k": keys, column.name: [float(side)] * people}
                table = running.run(rows, source=ks.seeded(2 * seed + (party == "b")))
            order = table.pseudonyms if order is None else order
            assert np.array_equal(order, table.pseudonyms)  # the same people in the same order on both sides
            columns[f"code {column.name}"] = np.asarray(table.columns[column.name]).astype(float)
    return Sample(columns, claim.epsilon, claim.delta)  # type: ignore[attr-defined]


def post_processed(what: str, epsilon: str, overlap: int, apart: int, side: int, runs: int, seed: int) -> Sample:
    """Covariance and synthetic rows: made of the joined rows alone, and under the same claim."""
    plan, found, claim = plan_of(("coin", "coin"), epsilon, overlap), [], None
    for i in range(runs):
        joined = ks.shuffle.join(plan, *tables_of(plan, side, seed + i, apart), source=ks.seeded(seed + i))
        claim = joined.claims.public
        if what == "covariance":
            made = ks.shuffle.covariance(joined)
            found.append([*made.covariance.ravel(), *made.mean.ravel()])
        else:
            rows = ks.shuffle.synthesize(joined, rows=400, method=what, source=ks.seeded(seed + i)).columns
            parts = [np.asarray(rows[name]) for name in "xy"]
            found.append([number for part in parts for number in (part.mean(), part.max(), part.min())])
    assert claim is not None
    array = np.array(found, dtype=float)
    return Sample({f"{what} {j}": array[:, j] for j in range(array.shape[1])}, claim.epsilon, claim.delta)


METHODS = ("copula", "pca", "regression", "svm")
"""Ways to make synthetic rows, all of them of the joined rows alone."""


def shuffle_claims() -> list[Claim]:
    kinds = [("two_point", "two_point"), ("coin", "coin"), ("piecewise", "hybrid"), ("laplace", "two_point"),
             ("grr", "one_hot")]  # fmt: skip
    joins = []
    for both in kinds:
        usual = Case("values change", partial(joined_rows, both, "1", OVERLAP, APART))
        few = Case("few in both tables", partial(joined_rows, both, "2", 8, 592))
        four = Case("four in both tables", partial(joined_rows, both, *PLAIN))
        joins.append(
            Claim(f"joined rows, {both[0]} and {both[1]}", "shuffle.join", (four, usual, few), cost=12, least=800)
        )
    every = Case("nearly all in both tables", partial(joined_rows, kinds[0], *AMPLIFIED))
    joins[0] = replace(joins[0], cases=(*joins[0].cases, every))
    made = {
        what: (
            Case("four in both tables", partial(post_processed, what, *PLAIN)),
            Case("values change", partial(post_processed, what, "1", OVERLAP, APART)),
        )
        for what in ("covariance", *METHODS)
    }
    return [
        *joins,
        Claim("the joiner", "shuffle.join", (Case("values change", joiner_sees),), cost=0.1),
        Claim("one side's file", "shuffle.Party", (Case("values change", side_file),), small_coin, cost=0.1),
        Claim("covariance of joined rows", "shuffle.covariance", made["covariance"], cost=11, least=600),
        *(
            Claim(
                "synthetic rows" if what == METHODS[0] else f"synthetic rows by {what}",
                "shuffle.synthesize", made[what], cost=28, least=600,
            )
            for what in METHODS
        ),
    ]  # fmt: skip


# -- k-anonymity with a guarantee ----------------------------------------------------------------------------------

UNIT = Unit(id="person", change="add-remove", max_cells=1)
SPEC = kanon.Recoding.of(kanon.categories("v", {"g": ["x", "y"], "h": ["z", "w"]}))
CUTS = [{"v": 0}, {"v": 1}, {"v": 2}]


def classes(size: int, k: int, rate: str, epsilon: str, side: int, runs: int, seed: int) -> Sample:
    """Sampled, then hidden below k: the class the unit is in has `size` rows or one more."""
    rows = pd.DataFrame({"v": ["x"] * (size + side) + ["y"] * 5 + ["z"] * 4})
    found, claim = [], None
    for i in range(runs):
        out = kanon.sample_then_anonymize(
            rows, SPEC, cut={"v": 2}, k=k, sampling_rate=rate, epsilon=epsilon, delta="0.9", unit=UNIT,
            rows_are_units=True, source=ks.seeded(seed + i),
        )  # fmt: skip
        claim = out.guarantee
        sizes = {line["v"]: float(line["rows"]) for line in out.classes().to_pylist()}
        found.append([sizes.get(v, 0.0) for v in "xyzw"])
    assert claim is not None
    array = np.array(found)
    columns = {f"class {v}": array[:, j] for j, v in enumerate("xyzw")}
    return Sample(columns, claim.epsilon, claim.delta)


def choices(cuts: Sequence[Mapping[str, int]], values: str, side: int, runs: int, seed: int) -> Sample:
    """A cut chosen by the exponential mechanism, where one row moves a score the most."""
    rows = pd.DataFrame({"v": ["x"] * side + list(values)})
    found, claim = np.zeros(runs), None
    for i in range(runs):
        out = kanon.choose_cut(
            rows, SPEC, cuts=cuts, k=2, sampling_rate="0.5", epsilon="2", unit=UNIT, rows_are_units=True,
            source=ks.seeded(seed + i),
        )  # fmt: skip
        claim, found[i] = out.guarantee, number_of(out.cut[0].tolist())
    assert claim is not None
    return Sample({"cut": found}, claim.epsilon, claim.delta)


def retained(side: int, runs: int, seed: int) -> Sample:
    """Values kept or replaced: a table of like rows holds independent reports of the local claim."""
    rows = pd.DataFrame({"v": ["xyzw"[side]] * (runs * MANY)})
    out = kanon.pk_anonymize(rows, SPEC, k=2, retention={"v": "0.6"}, source=ks.seeded(seed))
    values = np.array([number_of(v) for v in out.table()["v"].to_pylist()])
    return Sample({"value": np.random.default_rng(seed).permutation(values)}, out.guarantee.epsilon)


def kanon_claims() -> list[Claim]:
    small = (Case(f"a class of {size} or {size + 1}", partial(classes, size, 3, "1/3", "1")) for size in (0, 2, 5, 8))
    # at this rate and k the smallest class that may be shown is shown far more often than delta allows for
    sizes = (Case("a class of 30 or 31, k = 30", partial(classes, 30, 30, "0.9", "1.25")), *small)
    cuts = (
        Case("all or nothing", partial(choices, (CUTS[0], CUTS[2]), "xxxxx")),
        Case("enters", partial(choices, CUTS, "xxxxxxyyyyzzzz")),
    )
    return [
        Claim("sample_then_anonymize", "kanon.sample_then_anonymize", sizes, cost=1, least=10_000),
        Claim("choose_cut", "kanon.choose_cut", cuts, cost=1.2, least=6000),
        Claim("pk_anonymize", "kanon.pk_anonymize", (Case("one value for another", retained),), cost=0.1),
    ]
