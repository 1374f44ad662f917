"""The claim of a closed round against the exact law of its shuffled reports."""

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import exp
from types import SimpleNamespace

import pytest
from reference.local import law_by_enumeration
from reference.shuffle import hockey_stick, shuffled

import kasuri as ks
from kasuri import local
from kasuri.errors import PrivacyError
from kasuri.shuffle.rounds import ADD_UP, central_claim, together


def opened(randomizer, *, reports=1, tokens=True):
    return local.Round.new(randomizer, closes=10**9, reports_per_device=reports, tokens=tokens)


def exact_delta(randomizer, n, g):
    """The largest delta at e^epsilon = g over all values of the victim and of the others."""
    law = randomizer.law
    laws = [{y: law.p if x == y else law.q for y in range(randomizer.size)} for x in range(randomizer.size)]
    worst = Fraction(0)
    for rest in combinations_with_replacement(range(randomizer.size), n - 1):
        others = [laws[x] for x in rest]
        seen = [shuffled([own, *others]) for own in laws]
        for one in seen:
            for two in seen:
                worst = max(worst, hockey_stick(one, two, g))
    return worst


@pytest.mark.parametrize("n", [2, 4, 6])
@pytest.mark.parametrize("delta", ["0.2", "0.02"])
@pytest.mark.parametrize("size", [2, 3])
def test_the_claim_is_never_below_the_exact_loss(n, delta, size):
    rr = local.grr(ks.Ordered("x", size), epsilon="1", elsewhere=False, bits=8)
    claim = central_claim(opened(rr), n, delta)
    assert claim.epsilon <= 1 and claim.model == "shuffle"
    assert exact_delta(rr, n, Fraction(exp(float(claim.epsilon)))) <= claim.delta + Fraction(1, 10**9)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("kind", "words", "more"), [
    ("unary", 2, {"bits": 5}), ("oue", 2, {"bits": 5}), ("olh", 2, {"bits": 3, "buckets": 2}),
    ("hadamard", 2, {"bits": 5}), ("count_mean_sketch", 3, {"bits": 4, "buckets": 2, "hashes": 2}),
])  # fmt: skip
def test_no_randomizer_claims_less_than_its_enumeration(kind, words, more, n):
    """All words of a device enumerated, all multisets of reports: small n, where amplification has the least room."""
    rr = getattr(local, kind)(ks.Ordered("x", 2), epsilon="1", elsewhere=False, **more)
    claim = central_claim(opened(rr), n, "0.05")
    laws = [law_by_enumeration(rr, x, words) for x in range(rr.size)]
    g = Fraction(exp(float(claim.epsilon)))
    for ones in range(n):
        others = [laws[1]] * ones + [laws[0]] * (n - 1 - ones)
        one, two = (shuffled([own, *others]) for own in laws)
        assert max(hockey_stick(one, two, g), hockey_stick(two, one, g)) <= claim.delta + Fraction(1, 10**9)


NUMBERS = {
    "two_point": local.two_point((0, 10), epsilon="1", steps=2, bits=8),
    "piecewise": local.piecewise((0, 10), epsilon="1", steps=2, shift=2, bits=6),
    "square_wave": local.square_wave((0, 10), epsilon="1", steps=2, bits=6),
    "hybrid": local.hybrid((0, 10), epsilon="1", steps=2, shift=2, bits=5),
}


def number_law(made, x):
    """Every word of the device once; the word that rounds x to the grid does not matter on it."""
    words = 2 if made.kind == "hybrid" else 1
    seen = {}
    for drawn in product(range(made.words), repeat=words):
        rest = iter((0, *drawn))
        y = made.report(x, lambda rest=rest: next(rest))
        seen[y] = seen.get(y, 0) + Fraction(1, made.words**words)
    return seen


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kind", sorted(NUMBERS))
def test_no_round_of_numbers_claims_less_than_its_enumeration(kind, n):
    made = NUMBERS[kind]
    claim = central_claim(opened(made), n, "0.1")
    laws = [number_law(made, x) for x in (0, 5, 10)]
    g = Fraction(exp(float(claim.epsilon)))
    for rest in combinations_with_replacement(laws, n - 1):
        seen = [shuffled([own, *rest]) for own in laws]
        worst = max(hockey_stick(one, two, g) for one in seen for two in seen)
        assert worst <= claim.delta + Fraction(1, 10**9)


def test_rounds_that_one_person_joins_add_up():
    """The exact law of two closed rounds of three devices, whose victim changes in both: within the sum, and beyond
    the claim of one round alone."""
    rr = local.grr(ks.Ordered("x", 2), epsilon="1", elsewhere=False, bits=8)
    claim = central_claim(opened(rr), 3, "0.02")
    both = together([claim, claim])
    assert (both.epsilon, both.delta) == (2 * claim.epsilon, 2 * claim.delta) and ADD_UP not in both.assumes
    law = rr.law
    laws = [{y: law.p if x == y else law.q for y in range(2)} for x in range(2)]
    worst = {}
    for others in product(combinations_with_replacement(laws, 2), repeat=2):
        rounds = [[shuffled([own, *rest]) for own in laws] for rest in others]
        one, two = ({(a, b): p * q for a, p in rounds[0][x].items() for b, q in rounds[1][x].items()} for x in range(2))
        for name, epsilon in (("sum", both.epsilon), ("one", claim.epsilon)):
            found = max(hockey_stick(*pair, Fraction(exp(float(epsilon)))) for pair in ((one, two), (two, one)))
            worst[name] = max(worst.get(name, Fraction(0)), found)
    assert worst["sum"] <= both.delta < worst["one"]
    for claims in ([], [central_claim(opened(rr), 3, "0.6")] * 2):
        with pytest.raises(PrivacyError):
            together(claims)


def test_half_the_claim_would_be_found():
    rr = local.grr(ks.Ordered("x", 2), epsilon="1", elsewhere=False, bits=8)
    claim = central_claim(opened(rr), 4, "0.02")
    assert exact_delta(rr, 4, Fraction(exp(float(claim.epsilon) / 2))) > claim.delta


def test_many_devices_hide_each_other():
    rr = local.unary(ks.Ordered("x", 23), epsilon="1", elsewhere=False)
    few, many = (central_claim(opened(rr), n, "1e-8").epsilon for n in (1000, 100_000))
    assert many < few <= 1 and many < Fraction("0.1")


def test_what_has_no_such_claim():
    rr = local.grr(ks.Ordered("x", 3), epsilon="1")
    kept = local.memoised(ks.Ordered("x", 3), epsilon_permanent="2", epsilon_instant="1", v_max=1)
    fresh = opened(rr)
    for round_, n, delta in (
        (opened(rr, reports=6), 1000, "1e-8"),
        (opened(rr, tokens=False), 1000, "1e-8"),
        (SimpleNamespace(randomizer=kept, reports_per_device=1, tokens=True), 1000, "1e-8"),
        (fresh, 1, "1e-8"),
        (fresh, 1000, "1"),
    ):
        with pytest.raises(PrivacyError):
            central_claim(round_, n, delta)
