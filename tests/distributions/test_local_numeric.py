"""Randomizers of numbers: exact laws by enumeration, exact debiasing, estimates, refusals."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.local import numeric
from kasuri.local.odds import within

BOUNDS = (0, 10)
SMALL = {
    "two_point": numeric.two_point(BOUNDS, epsilon="1", steps=4, bits=8),
    "piecewise": numeric.piecewise(BOUNDS, epsilon="1", steps=4, shift=2, bits=8),
    "square_wave": numeric.square_wave(BOUNDS, epsilon="1", steps=4, bits=8),
    "hybrid": numeric.hybrid(BOUNDS, epsilon="1", steps=4, shift=2, bits=7),
    "laplace": numeric.laplace(BOUNDS, epsilon="1", steps=4, margin=4, bits=12),
}
every_kind = pytest.mark.parametrize("kind", sorted(numeric.MAKERS))


def law(randomizer, g):
    """The exact law of the device's output at a grid point: every word once (a coin word first for hybrid)."""
    x = randomizer.low + (randomizer.high - randomizer.low) * Fraction(g, randomizer.steps)
    coins = range(randomizer.words) if randomizer.kind == "hybrid" else [None]
    seen = Counter()
    for coin in coins:
        for u in range(randomizer.words):
            words = iter([0, u] if coin is None else [0, coin, u])
            seen[randomizer.report(x, lambda words=words: next(words))] += 1
    total = sum(seen.values())
    return {y: Fraction(n, total) for y, n in seen.items()}


@every_kind
def test_law_by_enumeration(kind):
    randomizer = SMALL[kind]
    laws = [law(randomizer, g) for g in range(randomizer.steps + 1)]
    worst = Fraction(0)
    for y in set().union(*laws):
        chances = [of.get(y, Fraction(0)) for of in laws]
        worst = max(worst, max(chances) / min(chances))
    assert worst == randomizer.ratio and within(worst, Fraction(1))
    for g, of in enumerate(laws):
        assert randomizer.channel[g] == pytest.approx([float(of.get(y, 0)) for y in range(randomizer.outputs)])
        v = Fraction(2 * g - randomizer.steps, randomizer.steps)
        mean = sum(chance * randomizer.values[y] for y, chance in of.items())
        assert abs(mean - v) <= randomizer.bias
        if randomizer.squares is not None:
            assert sum(chance * randomizer.squares[y] for y, chance in of.items()) == v * v
    assert randomizer.bias == 0 if kind != "laplace" else randomizer.bias < Fraction(1, 20)


@every_kind
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_full_size_randomizers_keep_their_claims(kind, epsilon):
    randomizer = numeric.MAKERS[kind](BOUNDS, epsilon=epsilon)
    assert within(randomizer.ratio, Fraction(epsilon)) and float(randomizer.ratio) > 0.97 * np.exp(float(epsilon))
    assert randomizer.bias <= Fraction(1, 10**6) and (kind == "laplace" or randomizer.bias == 0)
    assert numeric.from_json(json.loads(json.dumps(randomizer.to_json()))) == randomizer
    data = randomizer.to_json()
    for part in (data, data.get("wide", {}), data.get("narrow", {})):
        part["epsilon"] = str(float(epsilon) * 0.95)
    with pytest.raises(ks.PrivacyError):
        numeric.from_json(data)


@every_kind
def test_bulk_has_the_law_of_the_device(kind):
    randomizer = SMALL[kind]
    n = 40_000
    for g in range(randomizer.steps + 1):
        x = float(randomizer.low) + 10 * g / randomizer.steps
        reports = randomizer.randomize(np.full(n, x), source=ks.seeded(g))
        seen = np.bincount(randomizer.unpack(reports.rows), minlength=randomizer.outputs)
        expected = n * randomizer.channel[g]
        z = (seen - expected) / np.sqrt(np.maximum(expected * (1 - randomizer.channel[g]), 1))
        assert np.abs(z).max() < 5
        other = n * randomizer.channel[(g + 2) % (randomizer.steps + 1)]
        assert np.abs((seen - other) / np.sqrt(np.maximum(other, 1))).max() > 8


@every_kind
def test_mean_variance_and_histogram(kind):
    randomizer = numeric.MAKERS[kind](BOUNDS, epsilon="2")
    x = np.random.default_rng(3).beta(2, 5, 100_000) * 10
    outputs = randomizer.randomize(x, source=ks.seeded(1))
    mean = ks.local.mean(outputs, randomizer)
    assert abs(mean.value - x.mean()) < 4 * mean.standard_error < 0.3
    if randomizer.squares is None:
        with pytest.raises(ks.PrivacyError, match="cannot be identified"):
            ks.local.variance(outputs, randomizer)
    else:
        variance = ks.local.variance(outputs, randomizer)
        assert abs(variance.value - x.var()) < 4 * variance.standard_error + (10 / 64) ** 2 / 4
    if kind == "square_wave":
        found = ks.local.histogram(outputs, randomizer, prior=1000)
        assert found.converged and found.counts.sum() == pytest.approx(100_000)
        truth = np.array([(x < p).mean() for p in found.points])
        assert np.abs(np.cumsum(found.counts) / 100_000 - truth).max() < 0.04
    assert mean == ks.local.mean(randomizer.unpack(outputs.rows), randomizer)
    with pytest.raises(ks.FormatError):
        randomizer.unpack(np.full((1, randomizer.width), 255, np.uint8))


@every_kind
def test_seeded_numbers_say_so_and_do_not_leave(kind):
    randomizer, other = (numeric.MAKERS[kind](BOUNDS, epsilon=epsilon) for epsilon in ("1", "2"))
    seeded, real = randomizer.randomize([1.0, 2.0], source=ks.seeded(1)), randomizer.randomize([1.0, 2.0])
    assert not seeded.secure and "seeded" in repr(seeded) and real.secure and "seeded" not in repr(real)
    assert randomizer.pack(real).shape == (2, randomizer.width)
    with pytest.raises(ks.PrivacyError, match="seeded"):
        randomizer.pack(seeded)
    with pytest.raises(ks.PrivacyError, match="another randomizer"):
        other.pack(real)
    with pytest.raises(ks.FormatError, match="another randomizer"):
        ks.local.mean(real, other)


def test_rounding_to_the_grid_keeps_the_mean():
    randomizer = numeric.two_point(BOUNDS, epsilon="1", steps=4, bits=8)
    ups = sum(randomizer.report(Fraction(1), iter([u, 0]).__next__) >= 0 for u in range(256))
    assert ups == 256
    hits = Counter()
    for u in range(256):
        words = iter([u])
        g = []
        object.__setattr__(randomizer, "_choose", lambda at, word, g=g: g.append(at) or 0)
        randomizer.report(Fraction(1), lambda words=words: next(words))
        hits[g[0]] += 1
    assert hits == {0: 154, 1: 102}  # 1 = 0.4 of a step of 2.5: 102 of 256 words round up


def test_two_point_of_kii():
    same = numeric.two_point((-1, 1), epsilon="1", ab=("0.4621171572", "1"))  # tanh(1/2), rounded down
    assert abs(same.slope / numeric.two_point((-1, 1), epsilon="1").slope - 1) < 1e-6
    with pytest.raises(ks.PrivacyError, match="a must be less than b"):
        numeric.two_point((-1, 1), epsilon="1", ab=(1, 1))
    with pytest.raises(ks.PrivacyError, match="more than the epsilon"):
        numeric.two_point((-1, 1), epsilon="1", ab=(1, 2))
    assert float(numeric.two_point((-1, 1), epsilon="1").values[1]) == pytest.approx(1 / np.tanh(0.5), rel=1e-6)


@every_kind
def test_numbers_outside_the_bounds_and_bad_parameters_are_refused(kind):
    make = numeric.MAKERS[kind]
    randomizer = make(BOUNDS, epsilon="1")
    for bad in ([11.0], [-0.1], [float("nan")], [float("inf")]):
        with pytest.raises(ks.DomainError) as fault:
            randomizer.randomize(bad)
        assert "11" not in str(fault.value)
        with pytest.raises(ks.DomainError):
            randomizer.report(bad[0], lambda: 0)
    for bounds in ((1, 1), (2, 1), ("a", 1), 5, (0, "1e999999999"), (0, "1e400"), (0, 1, 2), (False, True)):
        with pytest.raises(ks.DomainError):
            make(bounds, epsilon="1")
    with pytest.raises(ks.DomainError):
        make(BOUNDS, epsilon="1", steps=3)
    with pytest.raises(ks.PrivacyError):
        make(BOUNDS, epsilon=0.5)
    assert randomizer.guarantee(reports=3).epsilon == 3


def test_descriptions_of_numbers_are_read_exactly():
    data = ks.local.two_point((0, 1), epsilon="1").to_json()
    read = numeric.from_json
    assert read(data).epsilon == 1
    for epsilon in (0.9999999, "inf", float("inf"), "-1", "1/0", "nan", True, None, "0", 1e400):
        with pytest.raises(ks.KasuriError):
            read({**data, "epsilon": epsilon})
    for low in (0.0, True, "1e999999999", "1/0", "nan", None):
        with pytest.raises(ks.KasuriError):
            read({**data, "low": low})
    spread = ks.local.laplace((0, 1), epsilon="1", steps=4).to_json()
    with pytest.raises(ks.KasuriError):
        read({**spread, "decay": [float(words) for words in spread["decay"]]})
    for number in ("1/0", float("nan"), float("inf"), None):
        with pytest.raises(ks.DomainError):
            ks.local.two_point((0, 1), epsilon="1").report(number, lambda: 0)
