"""What a month of hourly releases costs: the published figures, the exact law, and dp-accounting."""

from fractions import Fraction

import pytest
from reference.randomized_response import delta as exact_delta

import kasuri as ks
from kasuri.budget.accounting import generic, pld_epsilon, repeated
from kasuri.recipes import RECIPES

HOURS = 720
UNIT = ks.Unit("person", "add-remove", 1)
KANTO = ks.Domain.of(ks.Mesh("grid", shape=(512, 512)))
FIVE_LEVELS = ((Fraction(1, 50), 5),)


def series(name):
    if name == "unknown":
        return generic(Fraction(1, 10))
    return FIVE_LEVELS if name == "five levels" else ks.haar_topdown().losses(KANTO, UNIT, "0.1")


@pytest.mark.parametrize(
    ("name", "published", "price"),
    [("unknown", 19.0, "19.026897"), ("haar_topdown", 3.71, "3.637063"), ("five levels", 7.6, "7.552060")],
)
def test_a_month_of_hours(name, published, price):
    """At most 3 % above the published figure, and tight: `price` is the exact law to the last digit, cut off."""
    losses = repeated(series(name), HOURS)
    found = pld_epsilon(losses, Fraction("1e-9"))
    assert float(found) <= published * 1.03
    assert Fraction(price) < found <= Fraction(price) + 4 * Fraction("1e-6")
    target = Fraction("1e-9")
    assert exact_delta(losses, found) <= target < exact_delta(losses, found - 4 * Fraction("1e-6"))


def test_haar_topdown_declares_its_path():
    assert ks.haar_topdown().losses(KANTO, UNIT, "0.1") == ((Fraction(1, 190), 19),)
    assert ks.privelet("2d").losses(KANTO, UNIT, "0.1") == ((Fraction(1, 1000), 100),)
    assert ks.geometric().losses(KANTO, UNIT, "0.1") == generic(Fraction(1, 10))


@pytest.mark.parametrize(
    ("recipe", "unit"),
    [
        (ks.haar_topdown(), ks.Unit("person", "add-remove", 2)),
        (ks.haar_topdown(), ks.Unit("person", "add-remove", 1, max_weight=3)),
        (ks.haar_topdown(), ks.Unit("person", "replace", 1)),
        (ks.haar_topdown(transform="haar"), UNIT),
        (ks.laplace(), UNIT),
        (ks.haar_topdown(transform="nominal"), UNIT),
    ],
)
def test_everything_else_is_the_generic_pair(recipe, unit):
    domain = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)), ks.Nominal("sex", ("f", "m", "x")))
    assert recipe.losses(domain, unit, "0.1") == generic(Fraction(1, 10))


@pytest.mark.parametrize("recipe", [make() for make in RECIPES.values()], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 8)])
def test_parts_sum_to_the_pure_epsilon(recipe, shape):
    losses = recipe.losses(ks.Domain.of(ks.Mesh("grid", shape=shape)), UNIT, "0.3")
    assert sum(epsilon * count for epsilon, count in losses) == Fraction(3, 10)


@pytest.mark.parametrize("name", ["unknown", "haar_topdown", "five levels"])
def test_dp_accounting_agrees(name):
    """Google's library, on the grid that fits each loss: the same price to three digits (its FFT errs both ways)."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    ((epsilon, count),) = repeated(series(name), HOURS)
    theirs = pld.from_discrete_laplace_mechanism(
        float(epsilon), value_discretization_interval=float(epsilon), pessimistic_estimate=True
    )
    theirs = theirs.self_compose(count).get_epsilon_for_delta(1e-9)
    assert float(pld_epsilon(((epsilon, count),), Fraction("1e-9"))) == pytest.approx(theirs, rel=1e-3)


def test_several_sizes_agree_with_dp_accounting():
    """Theirs rounds every draw up to the grid, ours every sum: a little less, never more."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    shares = {"0.059": 720, "0.004": 720, "0.0065": 720, "0.0069": 1440, "0.007": 720, "0.0097": 720}
    total = None
    for epsilon, count in shares.items():
        part = pld.from_discrete_laplace_mechanism(
            float(epsilon), value_discretization_interval=1e-4, pessimistic_estimate=True
        ).self_compose(count)
        total = part if total is None else total.compose(part)
    losses = tuple((Fraction(epsilon), count) for epsilon, count in shares.items())
    theirs = total.get_epsilon_for_delta(1e-9)
    assert theirs * 0.995 <= float(pld_epsilon(losses, Fraction("1e-9"))) <= theirs * 1.0001
