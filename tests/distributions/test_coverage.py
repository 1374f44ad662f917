"""Coverage of the intervals on a part of the real census, and the exact law where there is one."""

import numpy as np
import pytest
from reference.statistics import laplace_cdf

import kasuri as ks
from kasuri import examples, recipes
from kasuri.draw import draw
from kasuri.ingest import read_table
from kasuri.noise.rng import Streams
from kasuri.published import bounds, intervals
from kasuri.schema import Domain, Mesh, Ordered
from kasuri.trees.regions import Boxes, CellSearch

PERSON = ks.Unit("person", "add-remove", 1)
SIDE = 128


@pytest.fixture(scope="module")
def census():
    """128 x 128 cells around Tokyo bay: dense, empty and between."""
    table = read_table(examples.KANTO)
    domain = Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(512, 512)))
    counts = ks.count(table, domain, columns={"grid": "mesh_code"}, unit=PERSON, weight="population", data="c")
    truth = np.zeros(domain.size, dtype=np.int64)
    truth[counts.cells] = counts.values
    return truth.reshape(512, 512)[60 : 60 + SIDE, 200 : 200 + SIDE]


def irregular(count):
    """Areas bounded by wavy lines."""
    rng = np.random.default_rng(4)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    out = []
    while len(out) < count:
        cy, cx, r = *rng.uniform(0, SIDE, 2), rng.uniform(2, 30)
        angle = np.arctan2(y - cy, x - cx)
        inside = np.hypot(y - cy, x - cx) < r * (1 + 0.4 * np.sin(rng.integers(2, 6) * angle + rng.uniform(0, 6)))
        if inside.any():
            out.append(np.flatnonzero(inside))
    return out


def coverage(truth, recipe, runs, level=0.95):
    """{(kind, class): (cases, share covered)} before stretching, over seeded runs."""
    domain = Domain.of(Mesh("grid", shape=truth.shape))
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    areas = irregular(40)
    hits: dict = {}

    def add(kind, true, found):
        low, high = intervals.finish(found, np.clip(found[2], *found[:2]))
        inside = (low <= true) & (true <= high)
        for name, a, b in (("0", 0, 0), ("1-99", 1, 99), ("100+", 100, 1 << 60)):
            m = (true >= a) & (true <= b)
            n, k = hits.get((kind, name), (0, 0))
            hits[kind, name] = n + int(m.sum()), k + int(inside[m].sum())

    for run in range(runs):
        out = ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(run))
        bars, dense = intervals.bars_of(out), out.to_dense()
        add("cell", truth.ravel(), bars.of_cells(np.arange(truth.size), dense.ravel(), level))
        for side in (4, 16):
            n = SIDE // side
            corner = np.stack(np.divmod(np.arange(n * n), n), axis=-1) * side
            sums = [part.reshape(n, side, n, side).sum(axis=(1, 3)).ravel() for part in (truth, dense)]
            add("block", sums[0], bars.of_boxes(Boxes(corner, corner + side), sums[1], level))
        for cells in areas:
            value = dense.ravel()[cells].sum(keepdims=True)
            add("region", truth.ravel()[cells].sum(keepdims=True), bars.of_area(cells, value, level))
    return {key: (n, k / n) for key, (n, k) in hits.items() if n >= 150}


@pytest.mark.parametrize(
    "recipe", [ks.refined_tree(), ks.refined_tree("u4"), ks.haar_topdown()], ids=["even16", "u4", "haar"]
)
def test_95_percent_intervals_cover_in_every_class(census, recipe):
    """Cases of one run share noise: the bands are wider than those of independent trials."""
    found = coverage(census, recipe, 6)
    for (kind, name), (n, share) in found.items():
        assert share >= (0.94 if n >= 5000 else 0.92 if n >= 1000 else 0.9), (kind, name, n, share)
        if kind == "cell" and name == "100+":
            assert share <= 0.99, (kind, name, n, share)
    assert ("region", "100+") in found and ("block", "1-99") in found


def places(size, town):
    """25 lone places on an empty map of 256 x 256 cells; with `town` each near one of 5,000, so that the nodes around
    it are large down to where the two part."""
    rng, truth = np.random.default_rng(0), np.zeros((256, 256), dtype=np.int64)
    if not town:
        truth.ravel()[rng.choice(truth.size, 25, replace=False)] = size
        return truth
    towns = np.stack(np.divmod(rng.choice(60 * 60, 25, replace=False), 60)) * 4 + 8
    truth[*(towns + rng.integers(3, 9, (2, 25)))] = size
    truth[*towns] = 5000
    return truth


@pytest.mark.parametrize(("size", "town"), [(300, False), (400, False), (2000, False), (300, True)])
@pytest.mark.parametrize(
    "recipe", [ks.haar_topdown(), ks.refined_tree(), ks.bayes_tree("sparse")], ids=lambda r: r.name
)
def test_isolated_places_are_covered(recipe, size, town):
    """Every node around a lone place holds it alone: the least of their limits is below it far too often. Of 400
    intervals 80 % held with that cut (haar_topdown), 90 % (refined_tree). And areas that cut the nodes around it."""
    truth = places(size, town)
    cells = np.flatnonzero(truth == size)
    counts = ks.Counts.from_dense(truth, Domain.of(Mesh("grid", shape=truth.shape)), PERSON)
    y, x = np.mgrid[:256, :256]
    discs = [np.flatnonzero((y - cell // 256 - 3) ** 2 + (x - cell % 256 + 2) ** 2 < 49) for cell in cells[:12]]
    held, in_discs = 0, 0
    for run in range(16):
        out = ks.release(counts, recipe, epsilon="0.1", ledger=None, source=ks.seeded(run))
        bars = intervals.bars_of(out)
        lower, upper, _ = bars.of_cells(cells, np.zeros(cells.size), 0.95)
        held += int(((lower <= size) & (size <= upper)).sum())
        keys = [i * bars.tree.leaves + bars.tree.keys(disc) for i, disc in enumerate(discs)]
        lower, upper, _ = bars.search(CellSearch(bars.tree, np.sort(np.concatenate(keys)), len(discs)), 0.95)
        people = np.array([truth.ravel()[disc].sum() for disc in discs])
        in_discs += int(((np.ceil(lower) <= people) & (people <= np.floor(upper) + 1)).sum())
    assert held >= 0.93 * 16 * cells.size, held
    assert in_discs >= 0.93 * 16 * len(discs), in_discs


@pytest.mark.parametrize("masked", [False, True])
def test_margins_over_a_padded_axis_are_covered(masked, monkeypatch):
    """Three labels in four places: a node that was not descended has halves, not thirds, of its labels below it. Also
    where areas believe what the nodes that they cut are expected to hold."""
    monkeypatch.setattr(bounds, "_DOUBT", (0.0, 0.0))
    sea = np.add.outer(np.arange(24), np.arange(32)) < 12
    domain = Domain.of(Mesh("grid", shape=(24, 32)), Ordered("age", 3), mask={"grid": sea} if masked else None)
    truth = np.random.default_rng(3).poisson(np.array([2.0, 12.0, 4.0]), domain.shape)
    truth[~domain.possible_dense()] = 0
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    held = 0
    for run in range(20):
        out = ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None, source=ks.seeded(run))
        for age in range(3):
            found = out.interval(age=age)
            held += found.lower <= truth[..., age].sum() <= found.upper
    assert held >= 57, held


@pytest.mark.parametrize("masked", [False, True])
def test_rows_that_hold_everybody_are_covered(masked):
    """What was lost in the nodes that such rows cut lies in them alone; the fit gives a part of it to other nodes."""
    truth = np.zeros((64, 64), dtype=np.int64)
    truth[3::8, 5::8] = 100
    sea = np.add.outer(np.arange(64), np.arange(64)) < 24
    truth[sea] = 0
    domain = Domain.of(Mesh("grid", shape=truth.shape), mask={"grid": sea} if masked else None)
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    rows = [np.flatnonzero((np.arange(64) == row)[:, None] & domain.possible_dense()) for row in range(3, 64, 8)]
    everybody = np.concatenate(rows)
    others = np.setdiff1d(np.flatnonzero(domain.possible_dense()), everybody)
    areas = [*rows, everybody, others]
    number = np.repeat(np.arange(len(areas)), [area.size for area in areas])
    people = np.array([truth.ravel()[area].sum() for area in areas])
    held, runs = np.zeros(len(areas)), 40
    for run in range(runs):
        out = ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None, source=ks.seeded(run))
        bars = intervals.bars_of(out)
        keys = np.sort(number * bars.tree.leaves + bars.tree.keys(np.concatenate(areas)))
        lower, upper, _ = bars.search(CellSearch(bars.tree, keys, len(areas)), 0.95)
        held += (np.ceil(lower) <= people) & (people <= np.floor(upper) + 1)
    assert held[:-2].sum() >= 0.94 * runs * len(rows), held
    assert held[-2:].min() >= 0.88 * runs, held


@pytest.mark.parametrize(
    ("level", "low", "high"), [(0.5, 0.5, 0.75), (0.8, 0.78, 0.93), (0.9, 0.885, 0.97), (0.99, 0.985, 1)]
)
def test_any_level_can_be_asked(census, level, low, high):
    found = coverage(census, ks.refined_tree(), 2, level)
    assert low <= found["cell", "100+"][1] <= high and found["block", "100+"][1] >= low - 0.03


@pytest.mark.parametrize("recipe", [ks.privelet(), ks.privelet("2d")], ids=["morton", "2d"])
def test_privelet_covers(census, recipe):
    found = coverage(census[:, :], recipe, 8)
    assert 0.93 <= found["cell", "100+"][1] <= 0.98 and 0.9 <= found["region", "100+"][1] <= 0.995


@pytest.mark.parametrize("epsilon", ["0.02", "0.1", "1", "3", "40 weak"])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_quantile_of_single_cells_is_exact(epsilon, level):
    """P(|N| <= q) >= level, and not for q - 1: by the law of the noise itself."""
    domain = Domain.of(Mesh("g", shape=(2, 2)))
    counts = ks.Counts.from_dense(np.full((2, 2), 10**6), domain, PERSON)
    out = ks.release(counts, ks.geometric(), epsilon=epsilon, ledger=None, source=ks.seeded(1))
    found = out.interval(rows=0, cols=0, level=level)
    q = found.upper - found.value
    assert q == found.value - found.lower == int(q)
    scale = float(1 / out.guarantee.epsilon)
    inside = lambda q: float(laplace_cdf(np.array(q), scale) - laplace_cdf(np.array(-q - 1), scale))  # noqa: E731
    assert inside(q) >= level - 1e-12 and (q == 0 or inside(q - 1) < level)


def test_sums_of_cells_cover(census):
    found = coverage(census, ks.geometric(), 3)
    assert 0.945 <= found["cell", "100+"][1] <= 0.96 and 0.94 <= found["block", "100+"][1] <= 0.98


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.haar_topdown()], ids=["refined_tree", "haar_topdown"])
def test_the_total_of_a_nearly_empty_table_has_no_bias(recipe):
    """90 % empty: setting negative cells to 0 one by one adds 88 % to the total; the refinements add nothing."""
    rng = np.random.default_rng(8)
    truth = np.where(rng.random((64, 64)) < 0.1, rng.integers(1, 104, (64, 64)), 0)
    domain = Domain.of(Mesh("g", shape=truth.shape))
    counts = ks.Counts.from_dense(truth, domain, PERSON)

    def totals(chosen, runs, clamp):
        made = (ks.release(counts, chosen, epsilon="0.1", ledger=None, source=ks.seeded(i)) for i in range(runs))
        return np.array([np.maximum(out.values, 0).sum() if clamp else out.total() for out in made], dtype=float)

    clamped = totals(ks.geometric(), 10, True).mean() / truth.sum() - 1
    assert 0.83 < clamped < 0.93
    errors = totals(recipe, 100, False) - truth.sum()
    assert abs(errors.mean()) < 0.5 * errors.std() and abs(errors.mean()) / truth.sum() < 0.005


@pytest.mark.parametrize("epsilon", ["0.2", "9"])
@pytest.mark.parametrize("recipe", [recipes.hierarchy(), recipes.hierarchy("morton"), recipes.matrix(),
                                    recipes.matrix([[1, 1, 1, 1], [2, 0, 0, 0], [0, 1, -1, 0], [0, 0, 1, 3]])],
                         ids=["1d", "morton", "optimised", "given"])  # fmt: skip
def test_intervals_of_linear_recipes_cover(recipe, epsilon):
    """hierarchy and matrix, sums of one, few and many noises, at scales far above and below 1: every cell and area by
    itself, over noise alone."""
    given = dict(recipe.parts()["options"]).get("strategy", "optimised") != "optimised"
    domain = Domain.of(Ordered("x", 4)) if given else Domain.of(Mesh("g", shape=(4, 4)))
    truth = np.random.default_rng(1).poisson(300, domain.shape)
    counts, rng = ks.Counts.from_dense(truth, domain, PERSON), np.random.default_rng(2)
    areas = [np.flatnonzero(rng.random(domain.size) < share) for share in (0.3, 0.5, 0.7, 1)]
    areas += [np.array([cell]) for cell in range(domain.size)]
    run, runs = recipe.on(domain, PERSON, epsilon), 400
    first = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(0))
    bars, hits = intervals.bars_of(first), np.zeros(len(areas))
    for i in range(runs):
        made = draw(run, counts, Streams(ks.seeded(i).release_key(), recipe.name), 1)
        dense = np.zeros(domain.size)
        dense[made.cells] = made.values
        for j, area in enumerate(areas):
            value = np.array([dense[area].sum()])
            low, high = intervals.finish(bars.of_area(area, value, 0.95), value)
            hits[j] += low[0] <= truth.ravel()[area].sum() <= high[0]
    share, error = hits / runs, np.sqrt(0.95 * 0.05 / runs)
    assert share.mean() + error >= 0.95 and (share + 3 * error >= 0.95).all(), share
    if epsilon == "0.2":
        assert share.mean() < 0.985  # nor wide for nothing


def test_the_wider_of_two_quantiles_covers_every_sum_of_laplace_noises():
    """P(|sum w L| > t) = sum_i e^(-t/w_i) prod_{j != i} w_i^2 / (w_i^2 - w_j^2): one, few and many, any weights."""
    rng, least = np.random.default_rng(3), {}
    for level in (0.5, 0.8, 0.9, 0.905, 0.95, 0.99):
        for terms in (1, 2, 3, 4, 6, 8):
            for _ in range(150):
                w = np.sqrt(np.sort(rng.dirichlet(np.full(terms, rng.choice([0.3, 1.0, 3.0])))))
                if w[0] < 0.02 or (terms > 1 and np.diff(w).min() < 0.01):
                    continue  # the formula divides by differences
                t = bounds.factor(level) * np.sqrt(2)
                squares = w[:, None] ** 2 - w**2
                np.fill_diagonal(squares, 1.0)
                ratios = w[:, None] ** 2 / squares
                np.fill_diagonal(ratios, 1.0)
                covered = 1 - float(np.prod(ratios, axis=1) @ np.exp(-t / w))
                least[level] = min(least.get(level, 1.0), covered)
    assert all(level - 1e-9 <= covered <= level + 0.03 for level, covered in least.items()), least
