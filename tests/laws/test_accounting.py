"""Laws of composition: never below the exact law, never above the pure sum, unlike things refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.randomized_response import delta as exact_delta

import kasuri as ks
from kasuri.budget.accounting import (
    compose,
    epsilon_of_zcdp,
    generic,
    parallel,
    pld_epsilon,
    repeated,
    zcdp_of_pure,
)
from kasuri.budget.declared import Declared
from kasuri.schema import Part

UNIT = ks.Unit("person", "add-remove", 1)
CELL = ks.Domain.of(ks.Ordered("place", 4))

epsilons = st.fractions(min_value=Fraction(1, 1000), max_value=2, max_denominator=1000)
deltas = st.sampled_from(["0.3", "1e-3", "1e-9", "1e-14", "1e-25"])


@given(st.lists(st.tuples(epsilons, st.integers(1, 12)), min_size=1, max_size=3), deltas)
def test_price_covers_the_exact_law(losses, delta):
    """The claim (price, delta) holds in exact arithmetic, and the price is tight but for the grid."""
    losses, target = tuple(losses), Fraction(delta)
    price = pld_epsilon(losses, target)
    assert exact_delta(losses, price) <= target
    pure = sum(epsilon * count for epsilon, count in losses)
    assert price <= pure
    below = price - pure / 4000 - Fraction(1, 10**5)
    if below > 0:
        assert exact_delta(losses, below) > target * (1 - Fraction(1, 10**5))


@pytest.mark.parametrize("delta", ["1e-3", "1e-12"])
@pytest.mark.parametrize(("epsilon", "count"), [("1", 3000), ("3", 900), ("0.01", 3000)])
def test_long_series_keep_their_mass(epsilon, count, delta):
    """Where only the middle of the law is kept, it is the right middle."""
    losses, target = ((Fraction(epsilon), count),), Fraction(delta)
    price = pld_epsilon(losses, target)
    assert exact_delta(losses, price) <= target < exact_delta(losses, price * (1 - Fraction(1, 10**5)))


@given(epsilons, st.integers(1, 2000), deltas)
def test_never_above_the_pure_sum(epsilon, releases, delta):
    series = Declared("any", "plan", epsilon, generic(epsilon), releases)
    assert 0 < series.price(Fraction(delta)) <= series.pure
    assert series.price(Fraction(0)) == series.pure


@given(epsilons, st.integers(1, 400), st.integers(1, 400), deltas)
def test_more_releases_cost_more(epsilon, fewer, more, delta):
    one, two = sorted((fewer, fewer + more))
    price = [pld_epsilon(repeated(generic(epsilon), n), Fraction(delta)) for n in (one, two)]
    assert price[0] <= price[1] + Fraction(1, 10**6)


@given(epsilons, st.integers(2, 30), st.integers(1, 40))
def test_parts_cost_no_more_than_the_whole(epsilon, parts, releases):
    """A recipe that declares its parts is never dearer than one of which nothing is known."""
    whole = pld_epsilon(repeated(generic(epsilon), releases), Fraction("1e-6"))
    split = pld_epsilon(repeated(((epsilon / parts, parts),), releases), Fraction("1e-6"))
    assert split <= whole + Fraction(1, 10**5)


@pytest.mark.parametrize("delta", [0, "0", "-1e-9", "1", "1e-31", 1e-9])
def test_bad_delta(delta):
    with pytest.raises(ks.PrivacyError):
        pld_epsilon(generic(Fraction(1)), delta)


@pytest.mark.parametrize("losses", [(), ((Fraction(1), 0),), ((Fraction(0), 1),), ((Fraction(1), 10**9 + 1),)])
def test_bad_losses(losses):
    with pytest.raises(ks.PrivacyError):
        pld_epsilon(losses, Fraction("1e-9"))


def claim(epsilon, delta="0", rho=None, unit=UNIT, model="central"):
    base = ks.geometric().guarantee(CELL, unit, epsilon)
    from dataclasses import replace

    rho = None if rho is None else Fraction(rho)
    return replace(base, delta=Fraction(delta), rho=rho, model=model)


@given(st.lists(epsilons, min_size=1, max_size=6))
def test_sums_are_exact(parts):
    total = compose(*(claim(epsilon) for epsilon in parts))
    assert total.epsilon == sum(parts) and total.delta == 0 and "sequential composition" in total.basis


def test_deltas_add_and_caveats_are_kept():
    total = compose(claim("0.1", "1e-9").assuming("a"), claim("0.2", "1e-8").assuming("b"))
    assert (total.epsilon, total.delta) == (Fraction(3, 10), Fraction("1.1e-8"))
    assert total.assumes[-2:] == ("a", "b") and len(set(total.assumes)) == len(total.assumes)


@given(st.lists(epsilons, min_size=1, max_size=6), st.integers(1, 4))
def test_parallel_is_the_dearest_parts(parts, most):
    unit = ks.Unit("person", "add-remove", most)
    claims = [(Part("s", str(i)), claim(e, unit=unit)) for i, e in enumerate(parts)]
    assert parallel(*claims).epsilon == sum(sorted(parts)[-most:])
    again = parallel(*claims, *claims)  # the same parts once more: each costs twice
    assert again.epsilon == 2 * sum(sorted(parts)[-most:])


def test_claims_about_one_part_add():
    same = Part("s", "f")
    assert parallel((same, claim("1")), (same, claim("1")), (same, claim("1"))).epsilon == 3


def test_equal_parts_are_counted_together_however_they_are_written():
    together = pld_epsilon(((Fraction(1, 10), 10),), Fraction("1e-6"))
    for losses in ((("0.1", 5), ("0.1", 5)), (("0.10", 5), (Fraction(1, 10), 5)), (("0.1", 9), ("1/10", 1))):
        assert pld_epsilon(losses, Fraction("1e-6")) == together


def test_a_series_declares_what_its_releases_lose():
    series = ks.geometric().series(CELL, UNIT, "0.1", 10)
    from dataclasses import replace

    with pytest.raises(ks.PrivacyError, match="lose less"):
        replace(series, losses=((Fraction(1, 100), 1),))
    with pytest.raises(ks.PrivacyError, match="lose less"):
        replace(series, epsilon=Fraction(1))


def test_very_large_numbers():
    assert epsilon_of_zcdp(Fraction(10) ** 60, Fraction(1, 10)) > Fraction(10) ** 60


@pytest.mark.parametrize(
    "combine",
    [
        lambda: compose(),
        lambda: compose(claim("1"), claim("1", unit=ks.Unit("household", "add-remove", 1))),
        lambda: compose(claim("1"), claim("1", unit=ks.Unit("person", "replace", 1))),
        lambda: compose(claim("1"), claim("1", model="local")),
        lambda: compose(claim("1", model="none")),
        lambda: compose(claim("1", "1e-9"), claim("1", "1e-9", rho="0.1")),
        lambda: parallel((Part("s", "a"), claim("1", unit=ks.Unit("person", "replace", 1)))),
        lambda: parallel((Part("s", "a"), claim("1", "1e-9")), (Part("s", "b"), claim("1"))),
        lambda: parallel((Part("s", "a"), claim("1")), (Part("t", "b"), claim("1"))),
        lambda: parallel(claim("1"), claim("1")),
    ],
)
def test_unlike_things_are_refused(combine):
    with pytest.raises(ks.PrivacyError):
        combine()


def test_zcdp_adds_rhos_and_converts_upwards():
    assert zcdp_of_pure(Fraction(1, 10)) == Fraction(1, 200)
    total = compose(claim("1", "1e-9", rho="0.01"), claim("0.1"))
    assert total.rho == Fraction(1, 100) + Fraction(1, 200)
    assert total.epsilon == epsilon_of_zcdp(total.rho, Fraction("1e-9"))
    # rho + 2 sqrt(rho ln(1/delta)) = 0.015 + 2 sqrt(0.015 * 20.72326583694641) = 1.130084...
    assert Fraction("1.130") < total.epsilon < Fraction("1.1302")


@given(st.fractions(min_value=Fraction(1, 10**4), max_value=4, max_denominator=10**4), deltas)
def test_zcdp_conversion_is_an_upper_bound(rho, delta):
    """The formula in 200 bits, compared exactly: (epsilon - rho)^2 >= 4 rho ln(1/delta)."""
    from decimal import Decimal, localcontext

    found = epsilon_of_zcdp(rho, Fraction(delta))
    with localcontext() as context:
        context.prec = 60
        log = -Decimal(delta).ln()
    gap = (found - rho) ** 2 - 4 * rho * Fraction(log)
    assert gap >= -Fraction(1, 10**40)
    assert gap <= Fraction(1, 10**4)
