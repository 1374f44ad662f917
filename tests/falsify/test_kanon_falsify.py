"""Attacks on the claims of kasuri.kanon: what is called a guarantee must hold, what is not must never be called one."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from reference import kanon as slow

from kasuri import PrivacyError, Unit, kanon, seeded
from kasuri.kanon import draw, sample
from kasuri.report.kanon import audit_page

UNIT = Unit(id="person", change="add-remove", max_cells=1)
LEAVES = kanon.Recoding.of(kanon.categories("v", ["x", "y"]))


def output_law(values, k, rate):
    """The exact law of: sample each row, specialise what is left; None where fewer than k rows are left."""
    law = Counter()
    for kept in itertools.product((0, 1), repeat=len(values)):
        rows = [v for v, keep in zip(values, kept, strict=True) if keep]
        if len(rows) < k:
            out = None
        else:
            found = kanon.specialize(pd.DataFrame({"v": rows}), LEAVES, k=k)
            out = tuple(sorted((line["v"], line["rows"]) for line in found.classes().to_pylist()))
        law[out] += rate ** len(rows) * (1 - rate) ** (len(values) - len(rows))
    return law


def test_the_realised_loss_is_not_a_guarantee():
    """Two leaves, k = 2: an output with a small realised loss that is impossible without one record."""
    rate = Fraction(1, 2)
    values = ["x", "x", "x", "x", "y"]
    output = (("*", 4),)
    with_y, without_y = output_law(values, 2, rate), output_law(values[:-1], 2, rate)
    assert with_y[output] > 0 and without_y[output] == 0  # the true loss is infinite
    release = pd.DataFrame({"v": ["*"] * 4})
    audit = kanon.audit(pd.DataFrame({"v": values}), LEAVES, k=2, sampling_rate=0.5, release=release)
    assert audit.realised.infinite == 0
    assert audit.realised.largest_finite == pytest.approx(math.log(5 * 0.5 / 1))  # and the realised one is 0.92


def walk(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*path, key), value
            yield from walk(value, (*path, key))
    elif isinstance(data, list):
        for value in data:
            yield from walk(value, path)


def test_no_output_calls_the_realised_loss_a_guarantee():
    values = pd.DataFrame({"v": ["x"] * 40 + ["y"] * 25})
    audit = kanon.audit(values, LEAVES, k=3, sampling_rate="0.4", source=seeded(2))
    data = audit.to_json()
    assert data["confidential"] is True and data["realised_loss"]["is_a_guarantee"] is False
    assert data["if_generalised_beforehand"]["applies_to_this_release"] is False
    for path, _ in walk(data):
        if any(word in path[-1] for word in ("epsilon", "delta")):
            assert path[0] == "if_generalised_beforehand", path
    losses = {x for x in (audit.realised.largest_finite, audit.realised.largest_backward) if x is not None}
    held = [value for path, value in walk(data) if path[0] == "if_generalised_beforehand"]
    assert not losses & {value for value in held if isinstance(value, float)}
    text = audit.text()
    head, _, tail = text.partition("Had the generalisation been fixed beforehand")
    assert "epsilon" not in head and "epsilon" in tail and "not a guarantee" in head
    assert text.startswith("CONFIDENTIAL") and "40" not in repr(audit)
    page = audit_page(json.loads(json.dumps(data)), [])
    head, _, tail = page.partition("Had the generalisation been fixed beforehand")
    assert "Confidential" in head and "epsilon" not in head and "not a guarantee" in head


def test_infinite_losses_are_counted_and_the_floor_is_kept():
    values = pd.DataFrame({"v": ["x"] * 3 + ["y"] * 9})
    release = pd.DataFrame({"v": ["x"] * 3 + ["y"] * 4})
    audit = kanon.audit(values, LEAVES, k=2, sampling_rate="0.5", release=release)
    assert audit.realised.infinite == 1 and audit.to_json()["realised_loss"]["per_class"]["largest"] == "infinite"
    assert audit.to_json()["realised_loss"]["per_class"]["rows_in_infinite"] == 3
    assert audit.bounds.sampling.floor == pytest.approx(math.log(2))
    assert audit.realised.largest_backward <= audit.bounds.sampling.floor


K, RATE, GROUPS = 3, Fraction(1, 3), 20_000
CELLS = kanon.Recoding.of(kanon.numbers("v", 0, GROUPS, [1]))


def shown_counts(size, seed=11):
    """How often a class of `size` rows shows 0 (hidden), k, k + 1, ... rows: one release with 20,000 such classes."""
    rows = pd.DataFrame({"v": np.repeat(np.arange(GROUPS), size)})
    out = kanon.sample_then_anonymize(
        rows,
        CELLS,
        cut={"v": 1},
        k=K,
        sampling_rate=RATE,
        epsilon="1",
        delta="0.9",
        unit=UNIT,
        rows_are_units=True,
        source=seeded(seed),
    )
    sizes = Counter(out.classes()["rows"].to_pylist())
    return [GROUPS - sum(sizes.values()), *(sizes[x] for x in range(K, size + 1))], out


def estimated_delta(p, q, epsilon):
    """A hockey-stick estimate, less its sampling error (4.5 deviations of the largest sum)."""
    width = max(len(p), len(q))
    p, q = (np.array([*x, *[0] * (width - len(x))]) / GROUPS for x in (p, q))
    e = math.exp(epsilon)
    return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum()) - 4.5 * e / math.sqrt(GROUPS)


@pytest.mark.parametrize("size", [3, 4, 6, 9])
def test_the_release_has_the_law_the_proof_speaks_of(size):
    seen, _ = shown_counts(size)
    law = [float(x) * GROUPS for x in slow.shown(slow.binomial(size, RATE), K)]
    error = [abs(a - b) / math.sqrt(max(b, 1)) for a, b in zip(seen, law, strict=True)]
    assert max(error) < 4.5
    wrong = [float(x) * GROUPS for x in slow.shown(slow.binomial(size, RATE * Fraction(5, 4)), K)]
    assert max(abs(a - b) / math.sqrt(max(b, 1)) for a, b in zip(seen, wrong, strict=True)) > 4.5


@pytest.mark.parametrize("epsilon", ["0.2", "1"])
def test_neighbouring_classes_stay_within_delta(epsilon):
    claimed = float(kanon.exact_delta(epsilon, kanon.Sampling(RATE, K)))
    for size in range(1, 10):
        p, q = shown_counts(size, 21)[0], (shown_counts(size - 1, 22)[0] if size > 1 else [GROUPS])
        assert estimated_delta(p, q, float(epsilon)) <= claimed


real_sizes = sample.cut_sizes


def all_sizes_look_large(tuples, spec, cut):
    of, sizes = real_sizes(tuples, spec, cut)
    return of, sizes + K


def test_a_release_that_shows_small_classes_is_caught(monkeypatch):
    claimed = float(kanon.exact_delta("1", kanon.Sampling(RATE, K)))
    seen = {}
    for size in (1, 2):
        rows = pd.DataFrame({"v": np.repeat(np.arange(GROUPS), size)})
        monkeypatch.setattr(sample, "cut_sizes", all_sizes_look_large)
        out = kanon.sample_then_anonymize(
            rows,
            CELLS,
            cut={"v": 1},
            k=K,
            sampling_rate=RATE,
            epsilon="1",
            delta="0.9",
            unit=UNIT,
            rows_are_units=True,
            source=seeded(size),
        )
        sizes = Counter(out.classes()["rows"].to_pylist())
        seen[size] = [GROUPS - sum(sizes.values()), sizes[1], sizes[2]]
    assert estimated_delta(seen[1], [GROUPS], 1.0) > claimed


def release(rows, **more):
    spec = kanon.Recoding.of(kanon.categories("v", {"g": ["x", "y"], "h": ["z"]}), sensitive=["s"])
    options = {"cut": {"v": 1}, "k": 3, "sampling_rate": "0.5", "epsilon": "1", "delta": "0.3", "unit": UNIT}
    options["rows_are_units"] = "person" not in rows
    return kanon.sample_then_anonymize(pd.DataFrame(rows), spec, source=seeded(5), **(options | more))


def test_nothing_but_the_shown_classes_leaves():
    rows = {"v": ["x", "y", "z"] * 30, "s": ["secret"] * 90}
    out = release(rows)
    assert out.suppressed is None and out.to_json()["suppressed"] is None
    assert out.table().column_names == ["v"]  # the sensitive column is not published
    assert out.guarantee.delta == kanon.exact_delta("1", kanon.Sampling(Fraction(1, 2), 3))
    assert "no ledger" in " ".join(out.guarantee.assumes) and "unit of its own" in " ".join(out.guarantee.assumes)
    with pytest.raises(PrivacyError, match="seed"):
        out.save("never.csv")


def test_one_record_never_makes_it_refuse_or_count_twice():
    rows = {"v": ["x", "y", "z"] * 30, "s": ["secret"] * 90}
    plain = release(rows)
    outside = release({"v": [*rows["v"], "no leaf", None], "s": ["secret"] * 92})
    assert outside.table().equals(plain.table())  # a row outside the domain is left out silently
    assert release({"v": ["x"], "s": ["t"]}).rows == 0  # fewer rows than k: an empty release, not a refusal
    assert release({"v": pd.Series([], dtype=str), "s": pd.Series([], dtype=str)}).rows == 0
    people = {**rows, "person": [f"p{i}" for i in range(90)]}
    once = release(people)
    assert "unit of its own" not in " ".join(once.guarantee.assumes)
    twice = {key: [*value, *value] for key, value in people.items()}
    assert release(twice).table().equals(once.table())  # a second row of the same person adds nothing


def test_choice_of_a_cut_has_the_exponential_law(monkeypatch):
    spec = kanon.Recoding.of(kanon.categories("v", {"g": ["x", "y"], "h": ["z", "w"]}))
    rows = pd.DataFrame({"v": ["x"] * 14 + ["y"] * 12 + ["z"] * 11 + ["w"] * 9})
    cuts = [{"v": 0}, {"v": 1}, {"v": 2}]
    options = {"cuts": cuts, "k": 2, "sampling_rate": "0.5", "epsilon": "0.05", "unit": UNIT, "rows_are_units": True}
    seen = Counter()
    for seed in range(3000):
        chosen = kanon.choose_cut(rows, spec, source=seeded(seed), **options)
        seen[len(np.unique(chosen.cut[0])) // 2] += 1
    scores = [0 * (46 - 4), 0.5 * (26 - 4 + 20 - 4), 0.75 * (10 + 8 + 7 + 5)]
    weights = [math.exp(0.05 * s) for s in scores]
    for i in range(3):
        p = weights[i] / sum(weights)
        assert abs(seen[i] - 3000 * p) < 4.5 * math.sqrt(3000 * p * (1 - p))
    total = kanon.sample_then_anonymize(
        rows,
        spec,
        cut=chosen,
        k=9,
        sampling_rate="0.5",
        epsilon="1",
        delta="0.1",
        unit=UNIT,
        rows_are_units=True,
        source=seeded(1),
    )
    assert total.guarantee.epsilon == Fraction("1.05")


class FakeStream:
    """Words and ties as given, to reach what happens once in 2^64 draws."""

    def __init__(self, words, ties):
        self.words, self.ties, self.drawn = words, ties, 0

    def fill(self, out):
        out[:] = self.words
        self.drawn += out.size

    def tie(self, word, turn):
        return self.ties[turn]


def test_ties_of_coins_and_uniforms_are_decided_exactly():
    third = (1 << 64) // 3  # 2^64/3 = third + 1/3: a tie is true with probability 1/3 again
    assert draw.coins(FakeStream([third - 1], []), Fraction(1, 3), 1)[0]
    assert not draw.coins(FakeStream([third + 1], []), Fraction(1, 3), 1)[0]
    assert draw.coins(FakeStream([third], [third - 1]), Fraction(1, 3), 1)[0]
    assert not draw.coins(FakeStream([third], [third, third + 1]), Fraction(1, 3), 1)[0]
    last = (1 << 64) - 1  # 2^64 mod 3 = 1: the last word is drawn again
    assert draw.uniform(FakeStream([last], [last, 5]), 3, 1)[0] == 2
    assert draw.uniform(FakeStream([7], []), 3, 1)[0] == 1


def test_randomised_values_have_the_law_of_retention_and_replacement():
    spec = kanon.Recoding.of(kanon.categories("v", ["x", "y", "z", "w"]))
    n = 60_000
    out = kanon.pk_anonymize(pd.DataFrame({"v": ["x"] * n}), spec, k=2, retention={"v": "0.3"}, source=seeded(8))
    seen = Counter(out.table()["v"].to_pylist())
    for label, p in (("x", 0.3 + 0.7 / 4), ("y", 0.7 / 4), ("z", 0.7 / 4), ("w", 0.7 / 4)):
        assert abs(seen[label] - n * p) < 4.5 * math.sqrt(n * p * (1 - p))
        assert abs(seen[label] - n * p * 1.25) > 4.5 * math.sqrt(n * p * (1 - p))
    assert sum(out.counts("v").values()) == pytest.approx(n)
    assert out.counts("v")["x"] == pytest.approx(n, rel=0.03)
    assert math.exp(float(out.guarantee.epsilon)) >= (0.3 + 0.7 / 4) / (0.7 / 4)
    assert out.guarantee.model == "local" and out.guarantee.unit.change == "replace"
