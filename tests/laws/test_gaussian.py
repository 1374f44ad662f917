"""The price of discrete Gaussian noise against laws enumerated in 50 digits; the squares of a tree's levels by brute
force."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, partial
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kasuri as ks
from kasuri.budget.accounting import epsilon_of_zcdp, pld_epsilon
from kasuri.budget.gaussian import (
    Normal,
    analytic_mu,
    least_scale,
    normal_epsilon,
    rho_of,
    smooth_factor,
    tight_epsilon_of_zcdp,
)
from kasuri.errors import PrivacyError
from kasuri.noise.laws import DiscreteGaussian, root_above
from kasuri.recipes import cell_counts
from kasuri.recipes.normal import DIFFERENT_CELLS, level_square, nodes_square
from kasuri.trees import order

DELTA = Fraction(1, 10**9)
UNIT = ks.Unit("person", "add-remove", 1)


@cache
def law(variance: Fraction, n: int) -> dict[int, Decimal]:
    """The law of the sum of n discrete Gaussians, every term to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        s = Decimal(variance.numerator) / Decimal(variance.denominator)
        reach = math.ceil(18 * math.sqrt(float(variance))) + 2
        one = {y: (-Decimal(y * y) / (2 * s)).exp() for y in range(-reach, reach + 1)}
        total = sum(one.values())
        one = {y: p / total for y, p in one.items()}
        out = {0: Decimal(1)}
        for _ in range(n):
            wider: dict[int, Decimal] = {}
            for (a, p), (b, q) in product(out.items(), one.items()):
                wider[a + b] = wider.get(a + b, Decimal(0)) + p * q
            out = wider
        return out


def delta_of(parts, epsilon) -> Decimal:
    """E(1 - e^(epsilon - L))+ of the enumerated composition."""
    with localcontext() as context:
        context.prec = 50
        losses = {Decimal(0): Decimal(1)}
        for variance, n in parts:
            s = Decimal(variance.numerator) / Decimal(variance.denominator)
            wider: dict[Decimal, Decimal] = {}
            for (have, p), (y, q) in product(losses.items(), law(variance, n).items()):
                loss = have + (n - 2 * y) / (2 * s)
                wider[loss] = wider.get(loss, Decimal(0)) + p * q
            losses = wider
        at = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        return sum((p * (1 - (at - loss).exp()) for loss, p in losses.items() if loss > at), Decimal(0))


def formula(epsilon: float, mu: float) -> float:
    """Delta of continuous Gaussian noise."""
    one, two = (mu / 2 - epsilon / mu) / math.sqrt(2), (mu / 2 + epsilon / mu) / math.sqrt(2)
    return (math.erfc(-one) - math.exp(epsilon) * math.erfc(two)) / 2


variances = st.fractions(min_value=Fraction(1, 3), max_value=6, max_denominator=4)


@settings(max_examples=10)
@given(variances, st.integers(1, 3), st.sampled_from(["0.01", "1e-6", "1e-9"]))
def test_the_price_covers_the_enumerated_law_and_is_tight(variance, n, delta):
    delta = Fraction(delta)
    price = normal_epsilon(((variance, n),), delta)
    assert delta_of(((variance, n),), price) <= Decimal(float(delta))
    less = price - price / 1000 - Fraction(1, 10**4)
    if price < tight_epsilon_of_zcdp(rho_of(((variance, n),)), delta) and less > 0:
        assert delta_of(((variance, n),), less) > Decimal(float(delta))


@pytest.mark.parametrize("parts", [((Fraction(1), 2), (Fraction(3), 1)), ((Fraction(9, 2), 2), (Fraction(7), 2))])
def test_levels_of_several_variances_are_covered(parts):
    for delta in (Fraction(1, 100), DELTA):
        price = normal_epsilon(parts, delta)
        assert delta_of(parts, price) <= Decimal(float(delta))
        assert delta_of(parts, price * Fraction(99, 100)) > Decimal(float(delta))


def test_the_formula_of_continuous_noise_is_not_an_upper_bound():
    above = [float(delta_of(((Fraction(1), 5),), Fraction(k, 4))) / formula(k / 4, math.sqrt(5)) for k in range(4, 41)]
    assert max(above) > 1.05 and min(above) < 1
    # at the deltas people use too: noise that the formula gives exactly 1e-9 costs more than that
    sigma = Fraction(math.sqrt(5) / analytic_mu(1.0, 1e-9)).limit_denominator(1000)
    assert float(delta_of(((sigma**2, 5),), Fraction(1))) > 1.001 * formula(1.0, math.sqrt(5) / float(sigma))


@pytest.mark.parametrize("variance", [Fraction(4), Fraction(13, 2)])
def test_a_sum_is_one_discrete_gaussian_within_its_factor(variance):
    n = 3
    with localcontext() as context:
        context.prec = 50
        s = Decimal(variance.numerator) / Decimal(variance.denominator)
        single = {y: (-Decimal(y * y) / (2 * n * s)).exp() for y in range(-400, 401)}
        total = sum(single.values())
        ratio = max(law(variance, n)[y] / (single[y] / total) for y in range(-20, 21))
        assert 1 < ratio <= Decimal(smooth_factor(variance, n))
    assert smooth_factor(variance, 10**6) < 1 + 1e-12


def test_zcdp_conversion_covers_the_enumerated_law_and_beats_the_older_one():
    for variance, n in ((Fraction(2), 2), (Fraction(5), 4)):
        rho = rho_of(((variance, n),))
        for delta in (Fraction(1, 1000), DELTA):
            tight = tight_epsilon_of_zcdp(rho, delta)
            assert delta_of(((variance, n),), tight) <= Decimal(float(delta))
            assert tight < epsilon_of_zcdp(rho, delta)


def test_rows_of_a_week():
    """A week at epsilon 1 costs .070 an hour, .36 a day, 2.15 a month and 8.4 a year."""
    scale = least_scale(lambda tried: normal_epsilon(((tried**2, 168),), DELTA), Fraction(1), DELTA, 168)
    slots = {1: 0.0695, 24: 0.362, 168: 1.0, 720: 2.15, 8760: 8.37}
    for count, wanted in slots.items():
        assert float(normal_epsilon(((scale**2, count),), DELTA)) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(
    ("epsilon", "delta", "m", "ratio"),
    [("1", "1e-9", 8, 0.73), ("1", "1e-9", 24, 1.25), ("1", "1e-9", 168, 1.39), ("1", "1e-6", 16, 1.29),
     ("5", "1e-6", 24, 1.28), ("0.1", "1e-9", 48, 1.36), ("0.1", "1e-9", 3600, 1.41)],
)  # fmt: skip
def test_gaussian_against_laplace_both_priced_tightly(epsilon, delta, m, ratio):
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    sigma = float(least_scale(lambda tried: normal_epsilon(((tried**2, m),), delta), epsilon, delta, m))
    low, high = epsilon / m, epsilon
    for _ in range(30):
        middle = ((low + high) / 2).limit_denominator(10**12)
        low, high = (low, middle) if pld_epsilon(((middle, m),), delta) > epsilon else (middle, high)
    assert 1 / (math.sqrt(2) * math.sinh(low / 2)) / sigma == pytest.approx(ratio, rel=0.02)


def test_the_price_falls_with_noise_and_rises_with_draws():
    prices = [normal_epsilon(((Fraction(s), 10),), DELTA) for s in (1, 3, 5, 50, 500)]
    assert prices == sorted(prices, reverse=True)
    prices = [Normal(Fraction(n, 10), ((Fraction(5), n),)).price(DELTA) for n in (1, 2, 10, 1000)]
    assert prices == sorted(prices)
    many = ((Fraction(1), 10**6),)  # beyond what is convolved: zCDP
    assert normal_epsilon(many, DELTA) == tight_epsilon_of_zcdp(rho_of(many), DELTA)


@pytest.mark.parametrize("wrong", [(), ((Fraction(1), 0),), ((Fraction(1), 10**10),)])
def test_parts_that_cannot_be_priced(wrong):
    with pytest.raises(PrivacyError):
        normal_epsilon(wrong, DELTA)


def moves(tree, depth, unit):
    """Every way a unit's counts can fall on the nodes of a level, by enumeration over its cells."""
    weights = range(unit.max_weight or 1, 0, -1)
    for cells in combinations_with_replacement(range(-1, tree.leaves), unit.max_cells):
        used = [cell for cell in cells if cell >= 0]
        if len(set(used)) < len(used):
            continue
        for own in product(weights, repeat=len(used)):
            out = np.zeros(tree.leaves // tree.stride(depth), dtype=np.int64)
            np.add.at(out, [cell // tree.stride(depth) for cell in used], own)
            yield tuple(out)


@pytest.mark.parametrize("cells", [1, 2, 3, 5])
@pytest.mark.parametrize("weight", [None, 2])
def test_squares_of_a_level_by_brute_force(cells, weight):
    if cells == 5 and weight:
        pytest.skip("too many ways")
    domain = ks.Domain.of(ks.Ordered("x", 8))
    tree = order.make("morton", domain, ())
    for change in ("add-remove", "replace"):
        unit = ks.Unit("person", change, cells, weight)
        for depth in range(tree.depth + 1):
            ways = np.array(sorted(set(moves(tree, depth, unit))))
            if change == "add-remove":
                most = int((ways**2).sum(axis=1).max())
            else:
                most = max(int(((ways - way) ** 2).sum(axis=1).max()) for way in ways)
            bound = level_square(tree, depth, unit)
            assert most <= bound
            fits = 2 * -(
                -unit.most // min(unit.most, tree.stride(depth) * (weight or 1))
            ) <= tree.leaves // tree.stride(depth)
            if change == "add-remove" or fits:
                assert most == bound


@pytest.mark.parametrize("recipe", [partial(ks.refined_tree, "tilt16"), partial(ks.bayes_tree, "sparse")])
@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("most", [1, 4])
def test_a_run_costs_no_more_than_it_claims(change, most, recipe):
    domain, unit = ks.Domain.of(ks.Mesh("g", shape=(8, 8))), ks.Unit("person", change, most)
    run = recipe(noise="gaussian", delta="1e-6").on(domain, unit, "0.7")
    visit, rho, parts = run.visit, Fraction(0), []
    for depth, scale in zip(visit.cuts, visit.scales, strict=True):
        square = level_square(run.tree, depth, unit)
        rho += Fraction(square) / (2 * scale**2)
        parts.append((scale**2, square))
    price = (
        normal_epsilon(tuple(parts), Fraction("1e-6")) if most == 1 else tight_epsilon_of_zcdp(rho, Fraction("1e-6"))
    )
    assert Fraction("0.697") <= price <= run.guarantee.epsilon == Fraction("0.7")
    assert rho <= run.guarantee.rho <= rho + Fraction(1, 10**12)
    shares = [
        float(scale) ** -2 * level_square(run.tree, depth, unit)
        for depth, scale in zip(visit.cuts, visit.scales, strict=True)
    ]
    wanted = [float(share) for _, share in run.cuts]
    assert np.allclose(np.array(shares) / sum(shares), wanted, rtol=1e-6)  # spent in squares


@pytest.mark.parametrize("cells", [1, 2, 3])
@pytest.mark.parametrize("weight", [None, 2])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_squares_of_cells_by_brute_force(cells, weight, size):
    for change in ("add-remove", "replace"):
        unit = ks.Unit("person", change, cells, weight)
        ways = [
            np.array(way)
            for way in product(range((weight or 1) + 1), repeat=size)
            if sum(part > 0 for part in way) <= cells
        ]
        pairs = product(ways, ways) if change == "replace" else ((way, 0 * way) for way in ways)
        most = max(int(((a - b) ** 2).sum()) for a, b in pairs)
        bound = nodes_square(1, size, unit)
        assert most <= bound
        if size >= 2 * cells:
            assert most == bound


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize(("cells", "weight"), [(1, None), (24, None), (2, 3), (1, 3)])
def test_cells_cost_no_more_than_they_claim(change, cells, weight):
    """One count a cell: by the exact law of as many numbers as move, also of several cells. Weights: by zCDP."""
    domain, unit = ks.Domain.of(ks.Mesh("g", shape=(8, 8))), ks.Unit("person", change, cells, weight)
    run = cell_counts(noise="gaussian", delta="1e-6").on(domain, unit, "0.7")
    square = cells * (weight or 1) ** 2 * (2 if change == "replace" else 1)
    variance, delta = run.noise.scale**2, Fraction("1e-6")
    exact, loose = normal_epsilon(((variance, square),), delta), tight_epsilon_of_zcdp(square / (2 * variance), delta)
    price = exact if weight is None else loose
    assert Fraction("0.697") <= price <= run.guarantee.epsilon == Fraction("0.7")
    assert abs(run.losses.price(delta) - price) < Fraction(1, 10**5) and run.guarantee.delta == delta
    assert square / (2 * variance) <= run.guarantee.rho <= square / (2 * variance) + Fraction(1, 10**12)
    assert (DIFFERENT_CELLS in run.guarantee.assumes) == (cells > 1)


def test_weights_are_not_single_counts():
    """Enumerated: a number that moves by 3 has another law of its loss than nine that move by 1; zCDP bounds both."""
    variance = Fraction(40)

    def lost(moves, n):
        """Delta at epsilon 1/2 of n numbers that move by so much each."""
        with localcontext() as context:
            context.prec = 50
            half, found = Decimal("0.5"), Decimal(0)
            for y, p in law(variance, n).items():
                loss = (n * Decimal(moves * moves) - 2 * moves * y) / (2 * Decimal(40))
                found += p * (1 - (half - loss).exp()) if loss > half else 0
            return found

    one, nine = lost(3, 1), lost(1, 9)
    assert abs(float(one / nine) - 1) > 1e-6
    for small in (one, nine):
        assert tight_epsilon_of_zcdp(Fraction(9) / (2 * variance), Fraction(float(small))) >= Fraction(1, 2)


def test_cells_take_the_noise_that_is_smaller():
    """Gaussian from about 16 counts of a unit on at delta 1e-9, and over a window of that many slots."""
    domain = ks.Domain.of(ks.Mesh("g", shape=(32, 32)))
    chosen = {}
    for cells in (1, 8, 14, 17, 24, 168):
        unit = ks.Unit("person", "add-remove", cells)
        made = {word: cell_counts(noise=word, delta="1e-9").on(domain, unit, "1") for word in ("auto", "gaussian")}
        plain = cell_counts().on(domain, unit, "1")
        best = min(made["gaussian"].noise.variance, plain.noise.variance)
        assert made["auto"].noise.variance == best
        chosen[cells] = made["auto"].guarantee.delta > 0
    assert list(chosen.values()) == [False, False, False, True, True, True]
    unit, epsilon = ks.Unit("person", "add-remove", 1, per="slot"), Fraction(1)
    auto = cell_counts(noise="auto", delta="1e-9")
    for span, word in (("7d", "gaussian"), ("4h", None)):
        found = auto.settled(domain, unit, ks.Window(span, slot="1h"), epsilon, DELTA).asked
        assert (found and found.word) == word
    week = ks.Window("7d", slot="1h")
    tree = ks.bayes_tree(noise="auto", delta="1e-9").settled(domain, unit, week, epsilon, DELTA)
    assert tree == ks.bayes_tree(noise="gaussian", delta="1e-9")


@pytest.mark.parametrize("cells", [1, 3])
def test_noise_of_every_measured_number_has_its_scale(cells):
    """On an empty table what is measured is noise: its variance is that of the level, not 0.64 or 1.56 of it."""
    domain, unit = ks.Domain.of(ks.Mesh("g", shape=(128, 128))), ks.Unit("person", "add-remove", cells)
    empty = ks.Counts.from_dense(np.zeros(domain.shape, dtype=np.int64), domain, unit)
    words = {"noise": "gaussian", "delta": "1e-6"}
    for recipe in (cell_counts(**words), ks.bayes_tree({0: "0.5", 1: "0.5"}, **words)):
        run = recipe.on(domain, unit, "2")
        out = ks.release(empty, recipe, epsilon="2", ledger=None, source=ks.seeded(5))
        samples = [(out.to_dense().ravel(), run.noise.scale, 1, 1)]
        if out.measurements is not None:
            own = out.measurements
            samples = [
                (own.value[own.level == at], own.scale[at], run.tree.stride(at), Fraction(1, 2)) for at in own.scale
            ]
        for values, scale, size, share in samples:
            square = nodes_square(size, domain.size // size, unit)
            assert float(Fraction(square) / (2 * scale**2)) == pytest.approx(float(share * run.losses.rho), rel=1e-5)
            if values.size == domain.size // size:  # drawn whole: noise selected none of them
                ratio = (values.astype(float) ** 2).mean() / DiscreteGaussian(scale).variance
                assert abs(ratio - 1) < 5 * math.sqrt(2 / values.size)
        assert max(values.size for values, *_ in samples) > 1000


def test_several_cells_of_a_unit_are_taken_to_be_different_and_the_claim_says_so():
    domain, recipe = ks.Domain.of(ks.Mesh("g", shape=(8, 8))), ks.refined_tree(noise="gaussian", delta="1e-6")
    for cells, weight in ((1, None), (1, 5), (2, None)):
        claim = recipe.guarantee(domain, ks.Unit("person", "add-remove", cells, weight), "0.7")
        assert (DIFFERENT_CELLS in claim.assumes) == (cells > 1)
        assert claim.delta == Fraction(1, 10**6) and claim.rho > 0


def test_a_law_too_wide_to_hold_is_priced_by_zcdp():
    for parts in (((Fraction(2) ** 36, 1),), ((Fraction(1000), 10**9 - 1), (Fraction(5), 1))):
        assert normal_epsilon(parts, Fraction(1, 10**9)) == tight_epsilon_of_zcdp(rho_of(parts), Fraction(1, 10**9))


def test_auto_takes_the_noise_that_is_smaller():
    domain = ks.Domain.of(ks.Mesh("g", shape=(32, 32)))
    for shares, delta, cells in (("u4", "1e-4", 1), ("u4", "1e-9", 1), ("even16", "1e-4", 1), ("u4", "1e-6", 60)):
        unit = ks.Unit("person", "add-remove", cells)
        made = {
            word: ks.refined_tree(shares, noise=word, delta=delta).on(domain, unit, "1")
            for word in ("auto", "gaussian")
        }
        laplace = ks.refined_tree(shares).on(domain, unit, "1")
        of = {
            name: sum(run.visit.law(scale).variance for scale in run.visit.scales)
            for name, run in (*made.items(), ("laplace", laplace))
        }
        assert of["auto"] == min(of["gaussian"], of["laplace"])
        assert (made["auto"].guarantee.delta == 0) == (of["laplace"] <= of["gaussian"])


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(31, 4)])
def test_the_noise_knows_its_law(scale):
    noise, masses = DiscreteGaussian(scale), {}
    for y, p in law(scale**2, 1).items():
        masses[abs(y)] = masses.get(abs(y), 0.0) + float(p)
    assert noise.variance == pytest.approx(sum(p * y * y for y, p in masses.items()), rel=1e-12)
    for level in (0.5, 0.9, 0.95, 0.999):
        q = noise.half_width(level)
        assert sum(p for y, p in masses.items() if y > q) <= 1 - level
        assert q == 0 or sum(p for y, p in masses.items() if y > q - 1) > 1 - level
    values = np.array([0, 1, -2, 5, 10**6])
    p, _ = noise.chances(values)
    assert np.allclose(p, [sum(m for y, m in masses.items() if y <= abs(v)) for v in values.tolist()], rtol=1e-12)
    for n in (1, 2, 4):
        assert float(max(law(scale**2, n).values())) <= noise.repeats(np.array([n]))[0] * (1 + 1e-12)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**9, max_denominator=10**6))
def test_roots_are_never_below(square):
    root = root_above(square)
    assert square <= root**2 <= square * (1 + Fraction(1, 1 << 20))


def test_arguments_are_refused_with_their_remedy():
    for wrong, words in (
        ({"noise": "normal"}, "is not known"),
        ({"noise": "gaussian"}, "needs a delta"),
        ({"delta": "1e-9"}, "has no delta"),
        ({"noise": "auto", "delta": "0.5"}, "from 1e-30"),
    ):
        for recipe in (ks.refined_tree, ks.bayes_tree, cell_counts):
            with pytest.raises(PrivacyError, match=words):
                recipe(**wrong)
    for other in ({"pilot": True}, {"expect": True}):
        with pytest.raises(PrivacyError, match="the noise is Laplace"):
            ks.bayes_tree(noise="gaussian", delta="1e-9", **other)
    with pytest.raises(PrivacyError, match="too small"):
        ks.refined_tree(noise="gaussian", delta="1e-9").on(ks.Domain.of(ks.Ordered("x", 4)), UNIT, "0.00001")


def test_a_declared_series_is_priced_by_its_law_and_read_back(tmp_path):
    domain, recipe = ks.Domain.of(ks.Mesh("g", shape=(4, 4))), ks.refined_tree(noise="gaussian", delta="1e-9")
    series = recipe.series(domain, UNIT, "0.07", 24)
    parts = recipe.on(domain, UNIT, "0.07").losses.parts
    assert series.price(DELTA) == normal_epsilon(tuple((s, 24 * n) for s, n in parts), DELTA) < series.pure / 3
    assert type(series).from_json(series.to_json()) == series
    with pytest.raises(PrivacyError, match="delta above 0"):
        series.price(Fraction(0))
    kind = {"unit": UNIT, "data": "hours", "accounting": "pld", "series": series}
    ledger = ks.Ledger.open(tmp_path / "l", epsilon="1", delta="1e-9", **kind)
    counts = ks.Counts.from_dense(np.ones((4, 4), dtype=np.int64), domain, UNIT, data="hours")
    for number in (1, 2):
        out = ks.release(counts, recipe, epsilon="0.07", ledger=ledger)
        assert out.receipt.of_series == number
    assert ks.Ledger.load(tmp_path / "l").balance().delta_left == 0
