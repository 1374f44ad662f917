"""Memoised reports: the law of both stages, the bound v_max * epsilon, what it does not cover, and the client."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from reference.local import law_by_enumeration, unary_law

import kasuri as ks
from kasuri.local.odds import within

PLACE = ks.Nominal("p", labels=("a",))  # with elsewhere: 2 categories


def transcript_law(randomizer, places, length):
    """P(reports z_1..z_T) of a person who is in `places` in turn, by summing over all permanent reports."""
    N, d = randomizer.words, randomizer.size
    p, q = Fraction(randomizer.p, N), Fraction(randomizer.q, N)
    one, zero = Fraction(randomizer.instant_p, N), Fraction(randomizer.instant_q, N)
    distinct = sorted(set(places))
    out = {}
    for sent in itertools.product(range(1 << d), repeat=length):
        total = Fraction(0)
        for kept in itertools.product(range(1 << d), repeat=len(distinct)):
            chance = Fraction(1)
            for place, bits in zip(distinct, kept, strict=True):
                chance *= unary_law(p, q, d, place)[bits.to_bytes(1, "little")]
            for place, z in zip(places, sent, strict=True):
                bits = kept[distinct.index(place)]
                for x in range(d):
                    on = one if bits >> x & 1 else zero
                    chance *= on if z >> x & 1 else 1 - on
            total += chance
        out[sent] = total
    return out


def worst(a, b):
    return max(a[z] / b[z] for z in a)


def test_a_single_report_has_the_combined_law():
    randomizer = ks.local.memoised(PLACE, epsilon_permanent="1", epsilon_instant="2", v_max=2, bits=4)
    for category in range(2):
        found = law_by_enumeration(randomizer, category, 4)
        assert found == unary_law(randomizer.law.p, randomizer.law.q, 2, category)
        assert found == {bytes(z): c for z, c in transcript_law(randomizer, [category], 1).items()}
        rows = randomizer.randomize(np.full(100_000, category), source=ks.seeded(1)).rows
        for report, chance in found.items():
            seen = (rows[:, 0] == report[0]).mean()
            assert abs(seen - float(chance)) < 5 * (float(chance) / 1e5) ** 0.5


def test_many_reports_cost_v_max_epsilon_and_no_more():
    """Same pattern of staying and moving on: the bound is v_max * epsilon, however many reports there are."""
    randomizer = ks.local.memoised(PLACE, epsilon_permanent="0.5", epsilon_instant="6", v_max=2, bits=6)
    claim = randomizer.guarantee(reports=1000)
    assert claim.epsilon == 1 and any("not protected" in caveat for caveat in claim.assumes)
    stay = worst(transcript_law(randomizer, [0, 0, 0], 3), transcript_law(randomizer, [1, 1, 1], 3))
    assert within(stay, Fraction(1, 2)), "one place, any number of reports: one epsilon"
    move = worst(transcript_law(randomizer, [0, 1, 0], 3), transcript_law(randomizer, [1, 0, 1], 3))
    assert within(move, claim.epsilon) and not within(move, Fraction(1, 2))


def test_the_pattern_of_moving_is_not_protected_and_the_claim_says_so():
    """Staying against moving tells more than v_max * epsilon: the caveat in `assumes` is needed."""
    randomizer = ks.local.memoised(PLACE, epsilon_permanent="0.5", epsilon_instant="6", v_max=2, bits=6)
    told = worst(transcript_law(randomizer, [0, 1, 0], 3), transcript_law(randomizer, [0, 0, 0], 3))
    assert not within(told, randomizer.guarantee().epsilon)


def test_the_client_keeps_its_answers_and_v_max():
    places = ks.Nominal("p", labels=tuple("abcdefgh"))
    randomizer = ks.local.memoised(places, epsilon_permanent="1", epsilon_instant="20", v_max=3)
    client = ks.local.MemoisedClient(randomizer)
    first = {value: client.report(value) for value in "ab"}
    assert all(client.report(v) == first[v] for v in "ab" for _ in range(20))  # instant noise of e^-10: the same copy
    outside = client.report("c")
    assert client.report("d") == client.report(None) == outside, "the third place is reported as elsewhere"
    assert len(client.to_json()["kept"]) == 3
    again = ks.local.MemoisedClient(randomizer)
    again.restore(client.to_json())
    assert again.report("a") == first["a"]
    with pytest.raises(ks.ProtocolError):
        again.restore({"randomizer": "other", "kept": {}})


def test_estimates_and_refusals():
    places = ks.Nominal("p", labels=tuple("abcd"))
    randomizer = ks.local.memoised(places, epsilon_permanent="3", epsilon_instant="3", v_max=2)
    assert ks.local.from_json(randomizer.to_json()) == randomizer
    truth = np.array([4000, 2000, 1000, 500, 0])
    reports = randomizer.randomize(np.repeat(np.arange(5), truth), source=ks.seeded(1))
    found = ks.local.estimate(reports, randomizer, method="em")
    assert found.converged and np.abs(found.counts - truth).max() < 400
    for v_max in (0, 6):
        with pytest.raises(ks.DomainError):
            ks.local.memoised(places, epsilon_permanent="1", epsilon_instant="1", v_max=v_max)
    with pytest.raises(ks.PrivacyError):
        ks.local.from_json({**randomizer.to_json(), "epsilon": "2.9"})


def test_plan_compares_the_randomizers_and_splits_epsilon():
    few = ks.local.plan(ks.Nominal("p", labels=("a", "b")), users=10_000, epsilon="4")
    assert few.best.randomizer.kind == "grr" and len(few.options) == 6
    many = ks.local.plan(ks.Mesh("grid", shape=(32, 32)), users=42_000, epsilon="6", reports=6)
    assert many.best.randomizer.epsilon == 1 and many.best.randomizer.kind in ("oue", "olh", "hadamard")
    assert all(option.loss <= 1 + 1e-9 for option in many.options)
    with pytest.raises(ks.DomainError):
        ks.local.plan(ks.Nominal("p", labels=("a", "b")), users=0, epsilon="1")
