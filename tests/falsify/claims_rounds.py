"""Closed rounds of local reports, what they cost together, and whose row a joined row is.

What a closed round publishes is a function of how many reports agree with each place, or of how often each output of a
round of numbers came. All others are at one end, which hides the victim least.
"""

import itertools
import math
from fractions import Fraction
from functools import cache, partial

import numpy as np
from claims import Case, Claim, Sample

import kasuri as ks
from kasuri.local import categorical, numeric
from kasuri.local.grid import Numeric
from kasuri.local.randomizer import Randomizer
from kasuri.privacy import Guarantee
from kasuri.schema import Nominal
from kasuri.shuffle.rounds import central_claim, together

ROUND = {"amplified": ("2", 40), "too few to hide": ("2", 10)}
"""A closed round: the local epsilon, and how many devices reported."""
BOUNDS = (0, 10)
NUMBERS = ("hybrid", "piecewise", "square_wave", "two_point")


@cache
def closed_round(kind: str, which: str) -> tuple[Randomizer | Numeric, int, Guarantee]:
    epsilon, devices = ROUND[which]
    randomizer: Randomizer | Numeric
    if kind in NUMBERS:
        randomizer = numeric.MAKERS[kind](BOUNDS, epsilon=epsilon)
    else:
        places = Nominal("place", labels=("a", "b", "c"))
        randomizer = categorical.MAKERS[kind](places, epsilon=epsilon, elsewhere=False)
    opened = ks.local.Round.new(randomizer, closes=10**9, tokens=True)
    return randomizer, devices, central_claim(opened, devices, "0.01")


def totals_of(kind: str, which: str, side: int, runs: int, seed: int) -> dict[str, np.ndarray]:
    """How many reports of a round of places agree with each."""
    randomizer, devices, _ = closed_round(kind, which)
    places = np.zeros((runs, devices), dtype=np.int64)
    places[:, 0] = 2 * side
    rows = randomizer.randomize(places.ravel(), source=ks.seeded(seed)).rows
    bits = np.unpackbits(randomizer.supports(rows), axis=1, bitorder="little")[:, : randomizer.size]
    totals = bits.reshape(runs, devices, -1).sum(axis=1).astype(float)
    columns = {f"place {x}": totals[:, x] for x in range(randomizer.size)}
    columns["third less first"] = totals[:, 2] - totals[:, 0]
    return columns


def round_totals(kind: str, which: str, side: int, runs: int, seed: int) -> Sample:
    claim = closed_round(kind, which)[2]
    return Sample(totals_of(kind, which, side, runs, seed), claim.epsilon, claim.delta)


def round_numbers(kind: str, side: int, runs: int, seed: int) -> Sample:
    """The published mean, the sum of the outputs, and how many of them lie in the upper parts of their range."""
    randomizer, devices, claim = closed_round(kind, "amplified")
    numbers = np.zeros((runs, devices))
    numbers[:, 0] = 10.0 * side
    outputs = randomizer.unpack(randomizer.randomize(numbers.ravel(), source=ks.seeded(seed)).rows)
    outputs = outputs.reshape(runs, devices)
    values = np.array([float(value) for value in randomizer.values])
    columns = {"mean": values[outputs].sum(axis=1).round(6), "outputs": outputs.sum(axis=1).astype(float)}
    columns["last"] = (outputs == randomizer.outputs - 1).sum(axis=1).astype(float)
    for share in (0.5, 0.9):
        columns[f"above {share}"] = (outputs >= share * randomizer.outputs).sum(axis=1).astype(float)
    return Sample(columns, claim.epsilon, claim.delta)


def two_rounds(side: int, runs: int, seed: int) -> Sample:
    """One person in two rounds, at the same place in both."""
    claim = together([closed_round("grr", "amplified")[2]] * 2)
    first, second = (totals_of("grr", "amplified", side, runs, seed + i) for i in range(2))
    columns = {f"{name}, both": first[name] + second[name] for name in first}
    return Sample(columns | {f"{name}, first": first[name] for name in first}, claim.epsilon, claim.delta)


def whose_row() -> tuple[Fraction, Fraction]:
    """Pk-anonymity of a join, as odds: whoever knows the values of all n people and sees the joined rows lays a row to
    a person with at most n/k times the chance of a guess. Every table, output and order of two labels a column."""
    n = 3
    plan = ks.shuffle.Plan(key="id", a=("u",), b=("v",), categories={"u": ("x", "y"), "v": ("p", "q")},
                           epsilon_each="1", delta="1e-6", minimum_overlap=2)  # fmt: skip
    laws = []
    for column in plan.columns:
        truth, lie = column.randomizer.p, column.randomizer.q
        laws.append([[Fraction(truth if x == y else lie, truth + lie) for y in range(2)] for x in range(2)])
    cells = list(itertools.product(range(2), repeat=2))
    odds = {(x, y): laws[0][x[0]][y[0]] * laws[1][x[1]][y[1]] for x in cells for y in cells}
    most = Fraction(0)
    for people in itertools.combinations_with_replacement(cells, n):
        for rows in itertools.combinations_with_replacement(cells, n):
            weights: dict[tuple[int, int], Fraction] = {}
            for order in itertools.permutations(range(n)):
                weight = math.prod(odds[people[i], rows[order[i]]] for i in range(n))
                for i in range(n):
                    weights[i, order[i]] = weights.get((i, order[i]), Fraction(0)) + weight
            total = sum(weights.values(), Fraction(0)) / n
            most = max(most, max(weights.values()) / total)
    printed = math.log(n / plan.guarantee(n=n).pk)
    return Fraction(math.ceil(printed * 10**9), 10**9), most * n


def round_claims() -> list[Claim]:
    which = [*((kind, "amplified") for kind in sorted(categorical.MAKERS)), ("grr", "too few to hide")]
    found = [
        Claim(
            f"closed round, {kind}" + (", ten devices" if case != "amplified" else ""), "shuffle.rounds",
            (Case(case, partial(round_totals, kind, case)),), cost=0.1, least=20_000,
        )
        for kind, case in which
    ]  # fmt: skip
    found += [
        Claim(f"closed round of numbers, {kind}", "shuffle.rounds", (Case("amplified", partial(round_numbers, kind)),),
              cost=0.1, least=20_000)
        for kind in NUMBERS
    ]  # fmt: skip
    both = (Case("in both", two_rounds),)
    found.append(Claim("two closed rounds, grr", "shuffle.rounds", both, cost=0.2, least=20_000))
    found.append(Claim("whose a joined row is, n/k", "shuffle.pk", exact=whose_row))
    return found
