"""One suite over every randomizer of categories, and an audit of those of numbers: JSON, refusals, odds, estimates."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.local import numeric
from kasuri.local.categorical import MAKERS
from kasuri.local.odds import within

WARDS = ks.Nominal("ward", labels=tuple(f"w{i}" for i in range(22)))
every_kind = pytest.mark.parametrize("kind", sorted(MAKERS))


@every_kind
@pytest.mark.parametrize("epsilon", ["0.1", "1", "5"])
def test_json_round_trip_and_guarantee(kind, epsilon):
    randomizer = MAKERS[kind](WARDS, epsilon=epsilon)
    again = ks.local.from_json(json.loads(json.dumps(randomizer.to_json())))
    assert again == randomizer and again.fingerprint == randomizer.fingerprint and again.kind == kind
    claim = randomizer.guarantee(reports=6)
    assert claim.model == "local" and claim.epsilon == 6 * Fraction(epsilon) and claim.delta == 0
    assert randomizer.size == 23 and randomizer.labels[-1] == "elsewhere"


@every_kind
def test_probabilities_are_the_tightest_of_the_word_size(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    assert within(randomizer.law.ratio, Fraction(1))
    less = randomizer.q - 1  # one word fewer for the lie
    if kind in ("unary", "count_mean_sketch"):
        change = {"q": less, "p": randomizer.words - less}
    elif kind == "oue":
        change = {"q": less}
    else:
        others = {"grr": 22, "olh": getattr(randomizer, "buckets", 0) - 1, "hadamard": 1}[kind]
        change = {"q": less, "p": randomizer.words - others * less}
    with pytest.raises(ks.PrivacyError, match="more than the epsilon"):
        dataclasses.replace(randomizer, **change)


@every_kind
def test_a_description_that_loses_more_than_it_states_is_refused(kind):
    data = MAKERS[kind](WARDS, epsilon="1").to_json()
    with pytest.raises(ks.PrivacyError):
        ks.local.from_json({**data, "epsilon": "0.99"})
    for change in ({"version": 2}, {"kind": "plain"}, {"q": "1"}, {"more": 1}, {"bits": 33}, {"domain": {}},
                   {"bits": 10**400}, {"bits": -1}):  # fmt: skip
        with pytest.raises(ks.KasuriError):
            ks.local.from_json({**data, **change})


@every_kind
def test_a_category_outside_the_domain_is_refused_without_naming_it(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    for values in (["w1", "Atlantis"], [1, 23], [-1, 3], np.array([0.5, 1.0]), [True, False]):
        with pytest.raises(ks.DomainError) as fault:
            randomizer.randomize(values)
        assert "Atlantis" not in str(fault.value)
    assert len(randomizer.randomize(["w1", None, "elsewhere"])) == 3


@every_kind
def test_domains_and_words_that_cannot_work_are_refused(kind):
    make = MAKERS[kind]
    for places in (ks.Nominal("p", labels=("a", "elsewhere")), ks.Mesh("grid", shape=(1 << 11, 1 << 11)),
                   ks.Domain.of(ks.Ordered("x", 4), mask=np.array([True, False, False, False]))):  # fmt: skip
        with pytest.raises(ks.KasuriError):
            make(places, epsilon="1")
    with pytest.raises(ks.KasuriError):
        make(WARDS, epsilon="0.0001", bits=4)
    with pytest.raises(ks.PrivacyError):
        make(WARDS, epsilon=1.0)
    with pytest.raises(ks.PrivacyError):
        make(WARDS, epsilon="0")


@every_kind
def test_reports_of_the_wrong_length_or_randomizer_are_refused(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    reports = randomizer.randomize(np.zeros(100, np.int64), source=ks.seeded(1))
    with pytest.raises(ks.FormatError):
        ks.local.estimate(np.zeros((10, randomizer.width + 1), np.uint8), randomizer)
    with pytest.raises(ks.PrivacyError):
        ks.local.estimate(reports, MAKERS[kind](WARDS, epsilon="2"))
    with pytest.raises(ks.DomainError):
        ks.local.estimate(np.zeros((0, randomizer.width), np.uint8), randomizer)
    if kind != "oue":
        bad = np.full((3, randomizer.width), 255, np.uint8)
        with pytest.raises(ks.FormatError):
            ks.local.estimate(bad, randomizer)
    assert "100" in repr(reports) and "seeded" in repr(reports) and len(repr(reports)) < 100


@every_kind
def test_inversion_is_unbiased_and_its_error_is_the_stated_one(kind):
    """200 times the same 2,000 people: the mean is right within 4.5 standard errors, the spread within 20 %."""
    randomizer = MAKERS[kind](ks.Nominal("p", labels=("a", "b", "c", "d")), epsilon="1")
    truth = np.array([1000, 500, 300, 200, 0])
    values = np.repeat(np.arange(5), truth)
    runs = [
        ks.local.estimate(randomizer.randomize(values, source=ks.seeded(s)), randomizer, method="inversion")
        for s in range(200)
    ]
    counts = np.array([run.counts for run in runs])
    spread = counts.std(axis=0)
    stated = np.sqrt(np.mean([run.standard_error**2 for run in runs], axis=0))
    collisions = 12 if kind in ("olh", "count_mean_sketch") else 0  # hash families are random, not perfect
    assert (np.abs(counts.mean(axis=0) - truth) < 4.5 * spread / 200**0.5 + collisions).all()
    assert (np.abs(spread / stated - 1) < 0.2).all()


@every_kind
def test_em_is_certified_feasible_and_closer_than_inversion(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    truth = np.array([600, 300, 100] + [0] * 20)
    reports = randomizer.randomize(np.repeat(np.arange(23), truth), source=ks.seeded(3))
    em = ks.local.estimate(reports, randomizer, method="em")
    plain = ks.local.estimate(reports, randomizer, method="inversion")
    assert em.converged and em.gap <= 1e-3
    assert em.counts.min() >= 0 and em.counts.sum() == pytest.approx(1000)
    assert np.abs(em.counts - truth).sum() < np.abs(plain.counts - truth).sum()
    low, high = em.interval(0.95)
    assert (low <= em.counts + 1e-9).all() and (em.counts <= high + 1e-9).all()
    assert json.dumps(em.to_json())


@every_kind
def test_seeded_reports_repeat_and_secure_ones_do_not(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    values = np.arange(23).repeat(5000)  # more than one block
    first = randomizer.randomize(values, source=ks.seeded(1)).rows
    assert (first == randomizer.randomize(values, source=ks.seeded(1)).rows).all()
    assert (first != randomizer.randomize(values, source=ks.seeded(2)).rows).any()
    assert (randomizer.randomize(values).rows != randomizer.randomize(values).rows).any()


@every_kind
def test_blocks_draw_their_own_bits(kind):
    randomizer = MAKERS[kind](WARDS, epsilon="1")
    rows = randomizer.randomize(np.zeros(3 << 16, np.int64), source=ks.seeded(1)).rows.reshape(3, 1 << 16, -1)
    assert (rows[0] != rows[1]).any() and (rows[1] != rows[2]).any()


def empirical_epsilon(mine, other):
    """Lower confidence bound (5 standard deviations) of ln P(S | x) / P(S | y), from the share of reports in S."""
    (a, n), (b, m) = mine, other
    return np.log((a - 5 * (a * (1 - a) / n) ** 0.5) / (b + 5 * (b * (1 - b) / m) ** 0.5))


@every_kind
def test_empirical_epsilon_stays_below_the_claim_and_a_broken_twin_is_caught(kind):
    """S: the reports that agree with x and not with y."""
    places = ks.Nominal("p", labels=("a", "b", "c"))
    n = 200_000

    def audit(randomizer):
        rows = [randomizer.randomize(np.full(n, x), source=ks.seeded(50 + x)).rows for x in (0, 1)]
        keep = [np.unpackbits(randomizer.supports(r), axis=1, bitorder="little").astype(bool) for r in rows]
        return empirical_epsilon(*(((k[:, 0] & ~k[:, 1]).mean(), n) for k in keep))

    honest = MAKERS[kind](places, epsilon="1")
    assert 0.5 < audit(honest) <= 1
    broken = MAKERS[kind](places, epsilon="1.5")  # what a client that ignores the declared epsilon would send
    assert audit(broken) > 1


@pytest.mark.parametrize("kind", sorted(numeric.MAKERS))
def test_empirical_epsilon_of_numbers_stays_below_the_claim_and_a_broken_twin_is_caught(kind):
    """x and y are the bounds; S: the outputs whose odds between them are as good as the best, chosen on other reports
    than those that are counted."""
    n = 200_000

    def audit(randomizer):
        def seen(seed):
            drawn = [randomizer.randomize(np.full(n, x), source=ks.seeded(seed + x)).rows for x in (0, 1)]
            return [np.bincount(randomizer.unpack(r), minlength=randomizer.outputs) for r in drawn]

        mine, other = seen(60)
        order = np.argsort(-(mine + 1) / (other + 1), kind="stable")
        size = 1 + np.argmax([  # the set with the best bound of its own
            empirical_epsilon((a / n, n), (b / n, n)) if a > 100 else -np.inf
            for a, b in zip(np.cumsum(mine[order]), np.cumsum(other[order]), strict=True)
        ])  # fmt: skip
        return empirical_epsilon(*((found[order[:size]].sum() / n, n) for found in seen(70)))

    assert 0.5 < audit(numeric.MAKERS[kind]((0, 1), epsilon="1")) <= 1
    assert audit(numeric.MAKERS[kind]((0, 1), epsilon="1.5")) > 1


def test_numbers_are_labels_where_labels_are_numerals():
    """Codes 1, 2, 3 given as integers were read as positions: everyone moved by one category."""
    codes = ks.local.grr(ks.Nominal("ward", labels=("1", "2", "3")), epsilon="1")
    for values in ([1, 1, 2, 3], np.array([1, 1, 2, 3]), np.array([1.0, 1.0, 2.0, 3.0]), ["1", "1", "2", "3"]):
        assert codes.categories(values).tolist() == [0, 0, 1, 2]
    assert codes.categories([1, None]).tolist() == [0, 3]
    for values in ([0, 1], [1, 4], [1.5], [float("nan")], [True]):
        with pytest.raises(ks.DomainError):
            codes.categories(values)
    padded = ks.local.grr(ks.Nominal("ward", labels=("01", "02")), epsilon="1")
    with pytest.raises(ks.DomainError):
        padded.categories([1, 2])
    assert ks.local.grr(ks.Ordered("x", 3), epsilon="1").categories([0, 2, 3]).tolist() == [0, 2, 3]


def test_only_a_source_of_kasuri_is_drawn_from():
    class Lookalike:
        secure = True

        def release_key(self):
            return bytes(32)

    with pytest.raises(ks.PrivacyError, match="source"):
        ks.local.grr(WARDS, epsilon="1").randomize([1], source=Lookalike())
    with pytest.raises(ks.PrivacyError, match="source"):
        ks.local.two_point((0, 1), epsilon="1").randomize([0.5], source=Lookalike())


@pytest.mark.parametrize("kind", ["unary", "olh", "hadamard", "grr"])
def test_errors_are_honest_where_reports_do_not_determine_the_estimate(kind):
    """10 reports of 100 categories: the information is singular, and its errors were 0 or a million."""
    randomizer = MAKERS[kind](ks.Ordered("x", 99), epsilon="1")
    places = np.arange(10) * 7
    truth = np.bincount(places, minlength=100)
    covered = []
    for seed in range(5):
        found = ks.local.estimate(randomizer.randomize(places, source=ks.seeded(seed)), randomizer)
        plain = ks.local.estimate(randomizer.randomize(places, source=ks.seeded(seed)), randomizer, method="projection")
        low, high = found.interval()
        covered.append(((low <= truth) & (truth <= high)).mean())
        assert found.standard_error.min() > 1 and found.standard_error.max() < 2 * plain.standard_error.max()
    assert np.mean(covered) > 0.95


def test_an_estimate_claims_what_its_devices_spent():
    randomizer = MAKERS["unary"](WARDS, epsilon="1")
    reports = randomizer.randomize(np.arange(100) % 23, source=ks.seeded(1))
    for method in ("inversion", "em"):
        found = ks.local.estimate(reports, randomizer, method=method, reports_per_device=6)
        assert found.guarantee.epsilon == 6 and found.to_json()["guarantee"]["epsilon"] == "6"
        assert "a person reports with one device" in found.guarantee.assumes
    for wrong in (0, True, 1.0, -1):
        with pytest.raises(ks.DomainError):
            ks.local.estimate(reports, randomizer, reports_per_device=wrong)
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ks.DomainError):
            ks.local.estimate(reports, randomizer, tolerance=wrong)


@pytest.mark.parametrize("passes", [-1, 0, 2.5, True, None])
@pytest.mark.parametrize("method", ["em", "em_columns", "inversion"])
def test_a_number_of_passes_is_at_least_one(passes, method):
    rr = ks.local.unary(ks.Nominal("w", labels=("a", "b")), epsilon="1")
    reports = rr.randomize(["a"] * 20, source=ks.seeded(1))
    with pytest.raises(ks.DomainError, match="max_passes"):
        ks.local.estimate(reports, rr, method=method, max_passes=passes)


@pytest.mark.parametrize("kind", ["unary", "grr", "oue", "olh", "hadamard"])
def test_an_epsilon_of_a_thousand_million_is_refused(kind):
    for epsilon in ("1000000000", "1000000000 weak"):
        with pytest.raises(ks.PrivacyError):
            getattr(ks.local, kind)(ks.Nominal("w", labels=("a", "b", "c")), epsilon=epsilon)


def test_hybrid_is_two_point_alone_up_to_its_threshold():
    from kasuri.local import numeric

    for epsilon in ("0.1", "0.61"):
        assert numeric.hybrid((0, 1), epsilon=epsilon) == numeric.two_point((0, 1), epsilon=epsilon)
    assert numeric.hybrid((0, 1), epsilon="0.62").kind == "hybrid"


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("1", "13101", "x")])
def test_many_texts_are_looked_up_as_few_are(labels):
    """Above 1,000 values each different text is looked up once: the same categories, the same refusals."""
    rr = ks.local.unary(ks.Nominal("w", labels=labels), epsilon="1")
    few = [*labels, "elsewhere", None]
    wanted = [int(rr.categories([value])[0]) for value in few]
    many = [few[i % 5] for i in range(2000)]
    import pyarrow as pa

    told = [wanted[i % 5] for i in range(2000)]
    for values in (
        many,
        tuple(many),
        np.array(many, dtype=object),
        pa.array(many),
        pa.chunked_array([many[:7], many[7:]]),
    ):
        assert rr.categories(values).tolist() == told
    assert rr.categories(np.array([v for v in many if v is not None])).tolist() == [t for v, t in zip(many, told) if v is not None]  # fmt: skip  # noqa: B905, E501
    for bad in ("d", b"a", 1.5, True, "", float("nan")):
        with pytest.raises(ks.DomainError, match=r"1 of 2001 values \(the first at position 2000\)"):
            rr.categories([*many, bad])
    with pytest.raises(ks.DomainError, match="2000 of 2000"):
        rr.categories([b"a"] * 2000)
    strict = ks.local.unary(ks.Nominal("w", labels=labels), epsilon="1", elsewhere=False)
    with pytest.raises(ks.DomainError, match="800 of 2000"):
        strict.categories(many)


def test_the_operator_chooses_the_randomizer():
    for name in (*MAKERS, "cms"):
        found = ks.local.plan(
            ks.Nominal("w", labels=("a", "b", "c")), users=1000, epsilon="1", randomizer=name, elsewhere=False
        )
        kind = "count_mean_sketch" if name == "cms" else name
        assert [option.randomizer.kind for option in found.options] == [kind] and found.best.randomizer.size == 3
    with pytest.raises(ks.DomainError, match="one of count_mean_sketch"):
        ks.local.plan(ks.Ordered("x", 3), users=10, epsilon="1", randomizer="rappor")
