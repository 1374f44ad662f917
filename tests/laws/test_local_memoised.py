"""Memoised reports: the law of both stages, the bound v_max * epsilon, what it does not cover, and the client."""

import itertools
import random
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


def people(randomizer, places, each=1, seed=1):
    """Rows of `each` reports of one fresh client for every place."""
    rng = random.Random(seed)
    word = lambda: rng.getrandbits(randomizer.bits)  # noqa: E731
    sent = []
    for place in places:
        client = ks.local.MemoisedClient(randomizer, word=word)
        sent += [client.report(int(place)) for _ in range(each)]
    return np.frombuffer(b"".join(sent), np.uint8).reshape(-1, randomizer.width)


def test_bulk_reports_would_draw_again_and_are_refused():
    randomizer = ks.local.memoised(PLACE, epsilon_permanent="1", epsilon_instant="2", v_max=2)
    with pytest.raises(ks.PrivacyError, match="memory"):
        randomizer.randomize(["a", "a"])


def test_errors_of_repeated_copies_are_honest():
    """20 copies of one permanent report are hardly more evidence than one: independent errors covered 46 %."""
    randomizer = ks.local.memoised(ks.Ordered("p", 9), epsilon_permanent="1", epsilon_instant="3", v_max=3)
    places = np.arange(300) % 10
    truth = 20 * np.bincount(places)
    for method in ("inversion", "em"):
        covered = []
        for seed in range(4):
            found = ks.local.estimate(
                people(randomizer, places, 20, seed), randomizer, method=method, reports_per_device=20
            )
            low, high = found.interval(0.95)
            covered.append(((low <= truth) & (truth <= high)).mean())
        assert np.mean(covered) > 0.9
    assert found.guarantee.epsilon == 3
    with pytest.raises(ks.DomainError, match="reports_per_device"):
        ks.local.estimate(people(randomizer, places), randomizer)


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
    with pytest.raises(ks.ProtocolError, match="already"):
        again.restore(client.to_json())
    own = randomizer.fingerprint
    full = {str(k): 1 for k in range(2)}
    for bad in (
        {"randomizer": "other", "kept": {}},
        {"randomizer": own, "kept": {str(k): 1 for k in range(3)}},  # three places beside elsewhere: v_max + 1
        {"randomizer": own, "kept": full | {"02": 1}},
        {"randomizer": own, "kept": {"9": 1}},
        {"randomizer": own, "kept": {"-1": 1}},
        {"randomizer": own, "kept": {"1": 1 << 9}},
        {"randomizer": own, "kept": {"1": -1}},
        {"randomizer": own, "kept": {"1": True}},
    ):
        with pytest.raises(ks.ProtocolError):
            ks.local.MemoisedClient(randomizer).restore(bad)
    ks.local.MemoisedClient(randomizer).restore({"randomizer": own, "kept": full | {"8": 1}})


def test_estimates_and_refusals():
    places = ks.Nominal("p", labels=tuple("abcd"))
    randomizer = ks.local.memoised(places, epsilon_permanent="3", epsilon_instant="3", v_max=2)
    assert ks.local.from_json(randomizer.to_json()) == randomizer
    truth = np.array([4000, 2000, 1000, 500, 0])
    reports = people(randomizer, np.repeat(np.arange(5), truth))
    found = ks.local.estimate(reports, randomizer, method="em", reports_per_device=1)
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
