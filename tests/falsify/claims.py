"""What a registered claim is, and those of the central model: every recipe, and what a ledger and `count` add.

A case is one pair of neighbours under one unit. Its runs go through the public functions, and the epsilon it is judged
by is the one the guarantee prints, not one written here.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

import kasuri as ks
from kasuri import recipes
from kasuri.budget.accounting import epsilon_of_zcdp, parallel, zcdp_of_pure
from kasuri.draw import draw
from kasuri.noise.rng import Streams
from kasuri.privacy import Guarantee
from kasuri.published.measurements import Measurements
from kasuri.recipes.mechanism import Drawn, Mechanism
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit
from kasuri.trees import order


@dataclass(frozen=True)
class Sample:
    """Runs on one side of a pair: what an attacker sees by name (NaN: not shown), and the claim that was printed."""

    columns: Mapping[str, np.ndarray]
    epsilon: Fraction
    delta: Fraction = Fraction(0)


@dataclass(frozen=True)
class Case:
    """A pair of neighbours; `sample(side, runs, seed)` makes independent runs on one of them."""

    name: str
    sample: Callable[[int, int, int], Sample]


@dataclass(frozen=True)
class Claim:
    """One printed claim. `exact` gives its epsilon by enumeration: (printed, worst ratio of probabilities).

    `work` is the share of time it deserves, `cost` about the milliseconds of one run: so many runs follow from so many
    seconds, the same on every machine. `enough` runs of the first case find a scale that is 0.9 of what it should be;
    it has at least `least`, however short the time: so many that its row says something.
    """

    name: str
    covers: str
    cases: tuple[Case, ...] = ()
    exact: Callable[[], tuple[Fraction, Fraction]] | None = None
    work: float = 1.0
    cost: float = 0.4
    enough: int = 0
    least: int = 0
    random: Callable[[np.random.Generator], Case] | None = None


LINE = Domain.of(Ordered("x", 4))
LONG = Domain.of(Ordered("x", 8))
MESH = Domain.of(Mesh("g", shape=(4, 4)))
MASKED = Domain.of(
    Mesh("g", shape=(3, 3)), mask=np.array([[True, False, False], [False, False, True], [False, True, True]])
)
WARDS = Domain.of(
    Nominal("ward", labels=tuple("abcde"), tree=Tree.of({"east": ["a", "b"], "west": ["c", "d"], "far": ["e"]}))
)
STANDARD = Domain.of(Mesh("g", level="1km", origin=(8, 8), shape=(3, 3)))
ADD, MOVE = Unit("person", "add-remove", 1), Unit("person", "replace", 1)
THREE, HEAVY = Unit("person", "add-remove", 3), Unit("person", "add-remove", 1, 3)


def table_of(domain: Domain, seed: int = 3) -> np.ndarray:
    """A small table with empty cells; impossible cells hold nothing."""
    table = np.random.default_rng(seed).poisson(1.5, domain.shape)
    table[~domain.possible_dense()] = 0
    return table


def with_more(table: np.ndarray, more: Mapping[int, int]) -> np.ndarray:
    """The table with counts added to some cells."""
    out = table.copy().ravel()
    for cell, count in more.items():
        out[cell] += count
    return out.reshape(table.shape)


Pair = tuple[Domain, Unit, np.ndarray, np.ndarray]


def pairs(line: Domain = LINE, mesh: Domain = MESH, masked: Domain = MASKED) -> dict[str, Pair]:
    """The neighbours every recipe is tried on: entering, from nobody, moving, at a masked edge, in several cells."""
    first, small, edge = table_of(line), table_of(mesh), table_of(masked)
    last, other = line.size - 1, mesh.size // 3
    corner = int(np.flatnonzero(masked.possible_dense().ravel())[-1])
    return {
        "enters": (line, ADD, first, with_more(first, {0: 1})),
        "enters nobody": (mesh, ADD, np.zeros_like(small), with_more(np.zeros_like(small), {other: 1})),
        "moves": (line, MOVE, with_more(first, {0: 1}), with_more(first, {last: 1})),
        "masked edge": (masked, ADD, edge, with_more(edge, {corner: 1})),
        "three cells": (line, THREE, first, with_more(first, {0: 1, 1: 1, last: 1})),
        "weight three": (line, HEAVY, first, with_more(first, {last: 3})),
    }


def arranged(domain: Domain) -> np.ndarray:
    """For each leaf of a binary tree over the cells the cell there, or -1: an attacker sums along it."""
    tree = order.morton(domain)
    leaves = np.full(tree.leaves, -1)
    leaves[tree.keys(np.arange(domain.size))] = np.arange(domain.size)
    return leaves


def number_of(word: object) -> float:
    """A word as a number, the same everywhere."""
    return float(int.from_bytes(hashlib.blake2b(str(word).encode(), digest_size=4).digest(), "big"))


def _measured(measured: Measurements) -> list[list[int]]:
    return [part.tolist() for part in (measured.level, measured.prefix, measured.value)]


def columns_of(releases: Sequence[Drawn], domain: Domain) -> dict[str, np.ndarray]:
    """Everything a release shows: cells, sums and differences along a tree, measurements, words."""
    runs = len(releases)
    dense, outside = np.zeros((runs, domain.size)), np.zeros(runs)
    for run, made in enumerate(releases):
        cells, values = made.cells, made.values
        inside = cells < domain.size
        dense[run, cells[inside]] = values[inside]
        outside[run] = values[~inside].sum()
    found = {f"cell {i}": dense[:, i] for i in np.flatnonzero(domain.possible_dense().ravel())}
    middle = np.median(dense, axis=1)  # projections move all cells alike: an attacker looks at one beside the others
    found |= {f"beside {i}": dense[:, i] - middle for i in range(min(domain.size, 4))}
    found["outside"] = outside + dense[:, ~domain.possible_dense().ravel()].sum(axis=1)  # a sound release has none
    found["total"], found["cells shown"] = dense.sum(axis=1), (dense != 0).sum(axis=1).astype(float)
    leaves = arranged(domain)
    level = np.where(leaves >= 0, dense[:, leaves], 0.0)
    while level.shape[1] > 1:
        left, right = level[:, 0::2], level[:, 1::2]
        for i in range(left.shape[1] if level.shape[1] <= 8 else 0):
            found[f"split {left.shape[1]} {i}"] = left[:, i] - right[:, i]
            found[f"sum {left.shape[1]} {i}"] = left[:, i] + right[:, i]
        level = left + right
    places: dict[tuple[int, int], np.ndarray] = {}
    for run, made in enumerate(releases):
        measured, words = made.measurements, made.words
        if measured is not None:
            for *place, value in zip(*_measured(measured), strict=True):
                if tuple(place) not in places:
                    places[tuple(place)] = np.full(runs, np.nan)
                places[tuple(place)][run] = value
        for word in words.keys() & {"preset", "refined"}:
            found.setdefault(f"word {word}", np.zeros(runs))[run] = number_of(words[word])
    return found | {f"measured {depth} {prefix}": part for (depth, prefix), part in places.items()}


@cache
def counts_of(pair: tuple[Domain, Unit, bytes, bytes], side: int) -> ks.Counts:
    domain, unit, *tables = pair
    return ks.Counts.from_dense(np.frombuffer(tables[side], np.int64).reshape(domain.shape), domain, unit)


def drawn(counts: ks.Counts, recipe: Mechanism, epsilon: str, runs: int, seed: int) -> tuple[list[Drawn], Guarantee]:
    """Runs of `ks.release` on one table, and the claim they print.

    The first is made by `ks.release` itself. The others are what it does after it has resolved the recipe (which sees
    no data) and paid: fresh streams and `draw`, several times faster. That both are the same is checked, number by
    number.
    """
    first = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
    run = recipe.on(counts.domain, counts.unit, epsilon)
    name = run.mechanism.name  # of the recipe that was chosen, where `best` chose
    out = [draw(run, counts, Streams(ks.seeded(seed + i).release_key(), name), 1) for i in range(runs)]
    cells, values, measured = out[0].cells, out[0].values, out[0].measurements
    assert np.array_equal(first.cells, cells) and np.array_equal(first.values, values)
    assert (measured is None) == (first.measurements is None)
    assert measured is None or np.array_equal(first.measurements.value, measured.value)  # type: ignore[union-attr]
    return out, first.guarantee


def released(recipe: Mechanism, epsilon: str, pair: tuple[Any, ...], side: int, runs: int, seed: int) -> Sample:
    """Runs on one side of a pair."""
    counts = counts_of(pair, side)
    out, claim = drawn(counts, recipe, epsilon, runs, seed)
    return Sample(columns_of(out, counts.domain), claim.epsilon, claim.delta)


def case_of(name: str, recipe: Mechanism, pair: Pair, epsilon: str) -> Case:
    domain, unit, one, two = pair
    plain = (domain, unit, one.astype(np.int64).tobytes(), two.astype(np.int64).tobytes())
    return Case(name, partial(released, recipe, epsilon, plain))


def random_case(recipe: Mechanism, epsilon: str, domains: Sequence[Domain], rng: np.random.Generator) -> Case:
    """A table, a unit and a contribution drawn at random: neighbours nobody thought of."""
    domain = domains[int(rng.integers(len(domains)))]
    unit = (ADD, MOVE, THREE, HEAVY, Unit("person", "replace", 2))[int(rng.integers(5))]
    base = rng.poisson(rng.choice([0.0, 0.4, 2.0, 9.0]), domain.shape) * domain.possible_dense()
    possible = np.flatnonzero(domain.possible_dense().ravel())

    def contribution() -> dict[int, int]:
        cells = rng.permutation(possible)[: int(rng.integers(1, unit.max_cells + 1))]
        return {int(cell): unit.max_weight or 1 for cell in cells}

    one = with_more(base, contribution()) if unit.change == "replace" else base
    return case_of(f"random, {unit.words()}", recipe, (domain, unit, one, with_more(base, contribution())), epsilon)


def central(
    name: str, recipe: Mechanism, *, epsilon: str = "3", tables: Mapping[str, Pair] | None = None, work: float = 1.0,
    cost: float = 0.4, enough: int = 0, least: int = 0,
) -> Claim:  # fmt: skip
    """A recipe's claim with the usual neighbours, or those of `tables`."""
    given = pairs() if tables is None else tables
    cases = tuple(case_of(case, recipe, pair, epsilon) for case, pair in given.items())
    domains = tuple({id(pair[0]): pair[0] for pair in given.values()}.values())
    own = (
        None if "public" in dict(recipe.parts()["options"]).values() else partial(random_case, recipe, epsilon, domains)
    )
    return Claim(name, recipe.name, cases, work=work, cost=cost, enough=enough, least=least, random=own)


REGIONS = ks.RegionMap("g", [0, 1, 1, -1, 0, 2, 1, 1, 0, 2, 2, 1, -1, 2, 2, 0], name="regions")
"""Regions that do not nest with the squares of MESH; two cells are in none."""
PRIOR = ks.PublicTable.from_dense(table_of(MESH, 8).astype(float), MESH, name="earlier")


def recipe_claims() -> list[Claim]:
    """Every recipe with the options that change what is measured."""
    tall = pairs(MESH)  # presets of trees measure several levels from 4 x 4 cells on
    rising = {"enters a small table": pairs()["enters"], **tall}
    square = {name: pair for name, pair in tall.items() if pair[0] is MESH}
    few = {name: pair for name, pair in pairs().items() if name in ("enters", "moves")}
    moving = {"moves": few["moves"]}
    declared = int(moving["moves"][2].sum())
    wards = {name: pair for name, pair in pairs(WARDS, WARDS).items() if name != "masked edge"}
    grid = {name: pair for name, pair in pairs(STANDARD, STANDARD).items() if name in ("enters", "moves")}
    given = ks.recipes.matrix([[1, 1, 1, 1], [2, 0, 0, 0], [0, 1, -1, 0], [0, 0, 1, 3]])
    line = {name: pair for name, pair in pairs().items() if pair[0] is LINE}
    facts = {"density": "0.5", "size": "2"}
    mapped = {"cells": "0.4", "g@1": "0.2", "regions": "0.4"}
    crowd = np.full(MESH.shape, 50)
    full = {"enters a full table": (MESH, ADD, crowd, with_more(crowd, {0: 1})), **pairs()}
    edge = table_of(LINE)
    edge[0] = 2
    alone = Domain.of(Mesh("g", shape=(1, 2)), mask=np.array([[False, True]]))
    one = np.array([[2, 0]])
    bare = {**pairs(), "alone beside a mask": (alone, ADD, one, with_more(one, {0: 1}))}
    # dear recipes: the smallest tables that they treat as they treat large ones, where one person shows most
    dear = {"enters a table of threes": (MESH, ADD, np.full(MESH.shape, 3), with_more(np.full(MESH.shape, 3), {0: 1}))}
    couple, beside = Domain.of(Ordered("x", 2)), Domain.of(Mesh("g", level="1km", origin=(8, 8), shape=(1, 2)))
    two, three = np.array([9, 9]), np.array([[3, 3]])
    shaped = {"enters two cells": (couple, ADD, two, with_more(two, {0: 1}))}
    # half of epsilon on the total: an empty table then shows one
    nobody = {"enters two empty cells": (couple, ADD, 0 * two, with_more(0 * two, {0: 1})), **few}
    tuned: dict[str, Any] = {"epsilon": "4", "least": 300}
    grid = {"enters two cells": (beside, ADD, three, with_more(three, {0: 1})), **grid}
    passing = {"at the threshold": (LINE, ADD, edge, with_more(edge, {0: 1})), **pairs()}
    normal = ks.refined_tree("u4", noise="gaussian", delta="0.001")
    soft = ks.bayes_tree({0: "0.6", 1: "0.4"}, noise="gaussian", delta="0.001")
    flat = recipes.cell_counts(noise="gaussian", delta="0.001")
    listed = [
        central("geometric()", ks.geometric(), cost=0.06, enough=30_000),
        central("laplace()", ks.laplace(), cost=0.06),
        central('privelet("1d")', ks.privelet("1d")),
        central('privelet("2d")', ks.privelet("2d")),
        central('privelet("morton")', ks.privelet("morton")),
        central("haar_topdown()", ks.haar_topdown(), tables=bare, cost=0.2, enough=60_000),
        central('haar_topdown(descent="jump")', ks.haar_topdown(descent="jump"), cost=0.2),
        central('haar_topdown(descent="dense")', ks.haar_topdown(descent="dense"), cost=0.4),
        central('haar_topdown(transform="haar")', ks.haar_topdown(transform="haar")),
        central('haar_topdown(transform="nominal")', ks.haar_topdown(transform="nominal"), cost=1, tables=wards),
        central('haar_topdown(order="jis")', ks.haar_topdown(order="jis"), cost=1.5, tables=grid, least=4000),
        central('refined_tree("even16")', ks.refined_tree(), tables=tall, cost=0.5, enough=40_000),
        central('refined_tree("u4")', ks.refined_tree("u4"), cost=0.4),
        central('refined_tree("tilt16")', ks.refined_tree("tilt16"), tables=tall, cost=0.5),
        central('refined_tree(order="hierarchy")', ks.refined_tree("u4", "hierarchy"), tables=wards, cost=1),
        central('refined_tree(noise="gaussian")', normal, tables=tall, cost=0.5),
        central('bayes_tree(noise="gaussian")', soft, tables=tall, cost=1.5),
        central('cell_counts(noise="gaussian")', flat, cost=0.15),
        central("cell_counts()", recipes.cell_counts(), cost=0.06),
        central('bayes_tree("middle")', ks.bayes_tree(), tables=rising, cost=2.2, enough=30_000),
        central('bayes_tree("sparse")', ks.bayes_tree("sparse"), tables=square, cost=2.5),
        central('bayes_tree("dense")', ks.bayes_tree("dense"), tables=square, cost=2.5),
        central("bayes_tree(pilot=True)", ks.bayes_tree(pilot=True), tables=tall, cost=4),
        central("bayes_tree(facts=...)", ks.bayes_tree(facts=facts), tables=square, cost=2.5),
        central("bayes_tree(prior=...)", ks.bayes_tree(prior=PRIOR), tables=square, cost=2.5),
        central("woven_tree(maps=...)", ks.woven_tree(shares=mapped, maps=(REGIONS,)), tables=square, cost=8),
        central("woven_tree(whole=True)", ks.woven_tree(whole=True), tables=rising, cost=8),
        central("woven_tree(pilot=True)", ks.woven_tree(pilot=True), tables=square, cost=9),
        central('woven_tree(pilot="cells")', ks.woven_tree(pilot="cells"), tables=square, cost=12),
        central("best()", ks.best(), tables=square, cost=8),
        central("auto()", ks.auto(), tables=dear | square, cost=25, least=600),
        central("auto(prior=...)", ks.auto(prior=PRIOR), tables=dear | square, cost=25, least=600),
        central("simplex()", ks.simplex(), tables=full, cost=0.25, enough=12_000),
        central('simplex(share="0.01")', ks.simplex(share="0.01"), tables=full, cost=0.25, enough=40_000),
        central('simplex("public")', ks.simplex("public", declared_total=declared), tables=moving, cost=0.25),
        central('neg_l2_simplex("0.9")', ks.neg_l2_simplex("0.9"), tables=full, cost=0.25),
        central('neg_l2_simplex("auto", share="0.5")', ks.neg_l2_simplex(share="0.5"), tables=nobody, cost=30, **tuned),
        central('nonneg_lasso("1")', ks.nonneg_lasso("1"), tables=full, cost=0.25),
        central('nonneg_lasso("auto", share="0.5")', ks.nonneg_lasso(share="0.5"), tables=nobody, cost=60, **tuned),
        central('lasso("1", adjust="shift")', ks.lasso("1", adjust="shift"), tables=full, cost=0.25),
        central('lasso("auto", share="0.5")', ks.lasso(share="0.5"), tables=nobody, cost=65, **tuned),
        central('hierarchy("1d")', recipes.hierarchy(), cost=0.4),
        central('hierarchy("morton")', recipes.hierarchy("morton"), cost=0.4),
        central("fourier(1)", recipes.fourier(1), tables=shaped | pairs(), cost=2.2, least=3000),
        central('matrix("optimised")', recipes.matrix(), cost=0.15),
        central("matrix(given)", given, tables=line, cost=0.15),
        central("sparse(3)", recipes.sparse(3), tables=passing, cost=0.15),
        central('sparse("auto")', recipes.sparse(), cost=0.15),
    ]
    covered = {claim.covers for claim in listed}
    return listed + [central(f"{name}()", make()) for name, make in recipes.RECIPES.items() if name not in covered]


# -- what several releases cost, and what `count` bounds --------------------------------------------------------------

RELEASES, EACH, DELTA = 8, "0.5", Fraction(1, 100)


def series_of(kind: str, side: int, runs: int, seed: int) -> Sample:
    """Eight equal releases of one table, and what the ledger's arithmetic asks for them."""
    recipe, pair = ks.geometric(), pairs()["enters"]
    counts = ks.Counts.from_dense(pair[2 + side], LINE, ADD)
    out, _ = drawn(counts, recipe, EACH, runs * RELEASES, seed)
    values = np.zeros(runs * RELEASES)
    for i, made in enumerate(out):
        cells, own = made.cells, made.values
        values[i] = own[cells == 0].sum()
    values = values.reshape(runs, RELEASES)
    columns = {f"release {j}": values[:, j] for j in range(RELEASES)}
    columns["sum of all"] = values.sum(axis=1)
    columns["number above"] = (values > pair[2].ravel()[0]).sum(axis=1).astype(float)
    series = recipe.series(LINE, ADD, EACH, RELEASES)
    price = {
        "pure": (series.pure, Fraction(0)),
        "pld": (series.price(DELTA), DELTA),
        "zcdp": (epsilon_of_zcdp(RELEASES * zcdp_of_pure(Fraction(EACH)), DELTA), DELTA),
    }[kind]
    return Sample(columns, *price)


PLACES = Domain.of(Ordered("x", 2), Nominal("sex", labels=("f", "m")))


def parts_of(side: int, runs: int, seed: int) -> Sample:
    """Both parts of one split table, each released with the whole epsilon: in parallel that costs it once."""
    table = np.array([[2, 1], [0, 3]])
    split = ks.Counts.from_dense(with_more(table, {0: side}), PLACES, ADD).split("sex")
    claims: list[tuple[Any, Guarantee]] = []
    columns: dict[str, np.ndarray] = {}
    for part, counts in sorted(split.items()):
        out, claim = drawn(counts, ks.geometric(), "3", runs, seed + (part == "m") * (1 << 30))
        columns |= {f"{name} {part}": own for name, own in columns_of(out, counts.domain).items()}
        claims.append((counts.part, claim))
    together = parallel(*claims)
    return Sample(columns, together.epsilon, together.delta)


KEY = bytes(range(32))
"""A sampling key the attacker knows; it was not chosen by looking at any data."""


@cache
def bounded(change: str, max_cells: int, max_weight: int | None, side: int) -> ks.Counts:
    """Records of a few people and a victim with far more rows, cells and weight than the unit allows."""
    import pyarrow as pa

    people = [(1, 0, 1), (2, 0, 1), (2, 3, 1), (3, 5, 1), (3, 5, 1)]
    victim = [(9, cell, 50) for cell in range(8) for _ in range(3)]
    elsewhere = [(9, 7 - cell, 9) for cell in range(4)] + [(9, 99, 4), (None, 2, 7)]
    rows = people + (victim if side else [] if change == "add-remove" else elsewhere)
    # ids of numbers are counted by the radix engine, ids of text by DuckDB
    ids = [row[0] if max_weight is None or row[0] is None else f"p{row[0]}" for row in rows]
    frame = {"person": ids, "x": [row[1] for row in rows], "w": [row[2] for row in rows]}

    unit = Unit("person", change, max_cells, max_weight)
    weight = None if max_weight is None else "w"
    return ks.count(pa.table(frame), LONG, columns={"x": "x"}, unit=unit, weight=weight, key=KEY)


def counted(change: str, max_cells: int, max_weight: int | None, side: int, runs: int, seed: int) -> Sample:
    """Releases of counted records: the bound on contributions is the tool's."""
    out, claim = drawn(bounded(change, max_cells, max_weight, side), ks.geometric(), "3", runs, seed)
    return Sample(columns_of(out, LONG), claim.epsilon)


@cache
def summed(change: str, max_cells: int, side: int) -> ks.Counts:
    """Sums of amounts: a victim with many records and huge amounts, or other ones."""
    import pyarrow as pa

    rows = [(1, 0, 2), (2, 3, 1), (3, 5, 1)]
    victim = [(9, cell, 40) for cell in range(8) for _ in range(3)]
    rows += victim if side else [] if change == "add-remove" else [(9, 7 - cell, 9) for cell in range(4)]
    frame = {"person": [r[0] for r in rows], "x": [r[1] for r in rows], "w": [r[2] for r in rows]}
    unit = Unit("person", change, max_cells, max_sum=3)
    return ks.count(pa.table(frame), LONG, columns={"x": "x"}, unit=unit, sum="w", key=KEY)


def sums_of(change: str, max_cells: int, side: int, runs: int, seed: int) -> Sample:
    """Releases of bounded sums."""
    out, claim = drawn(summed(change, max_cells, side), ks.geometric(), "3", runs, seed)
    return Sample(columns_of(out, LONG), claim.epsilon)


OUTSIDE = Domain.of(Nominal("ward", labels=("a", "b"), elsewhere=True))
BEYOND = Domain.of(Mesh("ward", shape=(1, 2), elsewhere=True))


@cache
def away(max_cells: int, side: int) -> ks.Counts:
    """A victim at ten places outside the window of a mesh, and at one inside."""
    import pyarrow as pa

    rows = [(1, 0, 0), (2, 7, 7), (3, 0, 1)] + ([(9, 5 + i, 3) for i in range(10)] + [(9, 0, 0)]) * side
    frame = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("person", "r", "c"))})
    unit = Unit("person", "add-remove", max_cells)
    return ks.count(frame, BEYOND, columns={"ward": ("r", "c")}, unit=unit, key=KEY)


def away_of(max_cells: int, side: int, runs: int, seed: int) -> Sample:
    """Releases with a cell elsewhere beside a mesh."""
    out, claim = drawn(away(max_cells, side), ks.geometric(), "3", runs, seed)
    return Sample(columns_of(out, BEYOND), claim.epsilon)


@cache
def residual(max_cells: int, side: int) -> ks.Counts:
    """A victim in ten places outside the labels, and in one inside."""
    import pyarrow as pa

    rows = [(1, "a"), (2, "z"), (3, "b")] + ([(9, f"far {i}") for i in range(10)] + [(9, "a")]) * side
    frame = pa.table({"person": [r[0] for r in rows], "w": [r[1] for r in rows]})
    return ks.count(frame, OUTSIDE, columns={"ward": "w"}, unit=Unit("person", "add-remove", max_cells), key=KEY)


def residual_of(max_cells: int, side: int, runs: int, seed: int) -> Sample:
    """Releases with a residual label."""
    out, claim = drawn(residual(max_cells, side), ks.geometric(), "3", runs, seed)
    return Sample(columns_of(out, OUTSIDE), claim.epsilon)


def composition_claims() -> list[Claim]:
    """A ledger's prices, and the bound on what one unit adds."""
    count_cases = (
        Case("one cell, many rows", partial(counted, "add-remove", 1, None)),
        Case("max_cells = 3", partial(counted, "add-remove", 3, None)),
        Case("max_cells = 3, replace", partial(counted, "replace", 3, None)),
        Case("max_cells = 2, max_weight = 3", partial(counted, "add-remove", 2, 3)),
    )
    return [
        Claim("8 releases, sums", "ledger", (Case("enters", partial(series_of, "pure")),), cost=0.5),
        Claim(
            "8 releases, privacy-loss distribution", "ledger", (Case("enters", partial(series_of, "pld")),), cost=0.5
        ),
        Claim("8 releases, zCDP", "ledger", (Case("enters", partial(series_of, "zcdp")),), cost=0.5),
        Claim("parts of a split", "ledger", (Case("enters", parts_of),), cost=0.15),
        Claim("count() of records", "count", count_cases, cost=0.06),
        Claim(
            "bounded sums",
            "count",
            (
                Case("many records", partial(sums_of, "add-remove", 1)),
                Case("three cells", partial(sums_of, "add-remove", 3)),
                Case("replaced", partial(sums_of, "replace", 2)),
            ),
            cost=0.06,
            least=20_000,
        ),
        Claim(
            "a residual label",
            "count",
            (
                Case("ten places outside", partial(residual_of, 1)),
                Case("two cells", partial(residual_of, 2)),
                Case("beyond a mesh", partial(away_of, 1)),
            ),
            cost=0.06,
            least=20_000,
        ),
    ]
