"""woven_tree(pilot=True): what it spends, what it reads, and that no choice is worse than plain noise."""

import json
from fractions import Fraction

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.read import read
from kasuri.recipes.woven import FIRST_PART
from kasuri.recipes.wovenpilot import fullness

PERSON = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Mesh("g", shape=(32, 32)), ks.Ordered("age", 3))
MEANS = {"levels": 0.3, "middle": 9.0, "whole": 300.0}


def made(preset, seed=0):
    """A patchy table, so full that the pilot chooses `preset` at epsilon 0.1."""
    rng = np.random.default_rng(seed)
    uneven = rng.gamma(0.7, 1.4, (8, 8)).repeat(4, 0).repeat(4, 1)[..., None] * np.array([1.5, 1.0, 0.5])
    return rng.poisson(MEANS[preset] * uneven)


def released(preset, epsilon="0.1", seed=3):
    counts = ks.Counts.from_dense(made(preset), DOMAIN, PERSON, data="made up")
    out = ks.release(counts, ks.woven_tree(pilot=True), epsilon=epsilon, ledger=None, source=ks.seeded(seed))
    assert out.recipe["preset"] == preset
    return out


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("epsilon", ["0.1", "3"])
def test_every_choice_spends_all_of_epsilon_once_and_the_pilot_alike(epsilon, change):
    run = ks.woven_tree(pilot=True).on(DOMAIN, ks.Unit("person", change, 2), epsilon)
    assert set(run.choices) == set(MEANS) and sum(loss * times for loss, times in run.losses) == Fraction(epsilon)
    pilots = set()
    for one in run.choices.values():
        assert sum(share for _, share in (*one.cuts, *one.parts)) == 1
        pilots.add((one.parts[0][0].name, one.part_scale(0)))
        assert sum(run.guarantee.unit.most * run.cost / scale for scale in one.told_scales.values()) == Fraction(
            epsilon
        )
    assert len(pilots) == 1  # it is drawn before anything is chosen


@pytest.mark.parametrize("preset", MEANS)
def test_a_release_follows_from_its_measurements(preset):
    out = released(preset)
    assert sum(1 / scale for scale in out.measurements.scale.values()) == Fraction(1, 10)
    words = json.loads(json.dumps(dict(out.recipe)))
    run = read(words, DOMAIN, PERSON, "0.1")
    again = run.replay(Drawn(out.cells, out.values, out.measurements, words))
    np.testing.assert_array_equal(again.found[0], out.cells)
    np.testing.assert_array_equal(again.found[1], out.values)
    told, notes = run.retold(words, out.measurements)
    assert json.loads(json.dumps(told)) == words and notes == []
    other = next(name for name in MEANS if name != preset)
    assert run.retold(words | {"preset": other}, out.measurements)[0]["preset"] == preset  # so verify finds the forgery
    with pytest.raises(FormatError):
        run.retold(words | {"preset": "best"}, out.measurements)
    limits = out.interval(rows=slice(0, 16), cols=slice(0, 16), level=0.99)
    assert limits.lower <= made(preset)[:16, :16].sum() <= limits.upper
    found = run.after(Drawn(out.cells, out.values, out.measurements, words))
    assert all(error.rmse > 0 for error in found)


def test_the_choice_reads_the_noisy_pilot_alone():
    """Other people in the same places of the pilot's noisy numbers: the same choice, in the same words."""
    run = ks.woven_tree(pilot=True).on(DOMAIN, PERSON, "0.1")
    out = released("middle")
    y = out.measurements.value[out.measurements.level == FIRST_PART]
    assert run._rule(y)["tuning"] == out.recipe["tuning"]
    assert run._rule(0 * y)["preset"] == "levels" and run._rule(1000 * y)["preset"] == "whole"


def test_the_pilot_has_noise_of_its_own():
    zero = ks.Counts.from_dense(np.zeros(DOMAIN.shape, dtype=np.int64), DOMAIN, PERSON, data="none")
    out = ks.release(zero, ks.woven_tree(pilot=True), epsilon="0.1", ledger=None, source=ks.seeded(5))
    found = {level: out.measurements.value[out.measurements.level == level] for level in out.measurements.scale}
    pilot = found.pop(FIRST_PART).astype(float)
    assert 0.6 < np.abs(pilot).mean() / float(out.measurements.scale[FIRST_PART]) < 1.5
    for other in found.values():
        if other.size >= pilot.size:
            assert abs(np.corrcoef(pilot, other[: pilot.size].astype(float))[0, 1]) < 0.35


@pytest.mark.parametrize("preset", MEANS)
def test_no_choice_is_worse_than_plain_noise(preset):
    """Root mean square errors at every height, the margin and their table, over those of sums of plain noise."""
    truth = made(preset)
    rng = np.random.default_rng(9)
    views = [lambda x: x, lambda x: x.sum(2), lambda x: x.reshape(8, 4, 8, 4, 3).sum((1, 3)),
             lambda x: x.reshape(8, 4, 8, 4, 3).sum((1, 3, 4)),
             lambda x: x.reshape(2, 16, 2, 16, 3).sum((1, 3))]  # fmt: skip
    own, plain = [], []
    for seed in range(12):
        out = released(preset, seed=seed)
        gap = out.to_dense() - truth
        a = np.exp(-0.1)
        noise = rng.geometric(1 - a, (2, *DOMAIN.shape))
        own.append([(view(gap) ** 2).mean() for view in views])
        plain.append([(view(noise[0] - noise[1]) ** 2).mean() for view in views])
    assert (np.mean(own, axis=0) <= 1.3**2 * np.mean(plain, axis=0)).all()
    assert np.exp(np.log(np.mean(own, axis=0) / np.mean(plain, axis=0)).mean()) < {"levels": 0.3, "middle": 0.8}.get(
        preset, 1.15
    )


def test_fullness():
    sums, cells = np.array([0.0, 1e9, 40.0]), np.array([4, 4, 4])
    assert fullness(sums, cells, 10.0) == pytest.approx((0 + 1 + 0.5) / 3, rel=0.01)


def test_what_is_wrong_is_refused_before_the_charge():
    for given in ({"whole": True}, {"views": {"cells": "1"}}, {"shares": {"cells": "1"}}):
        with pytest.raises(PrivacyError, match="pilot"):
            ks.woven_tree(pilot=True, **given)
    with pytest.raises(PrivacyError, match="pilot"):
        ks.woven_tree(pilot="yes")
    labels = tuple(f"l{i}" for i in range(600))
    with pytest.raises(DomainError, match="no level"):
        ks.woven_tree(pilot=True).on(ks.Domain.of(ks.Nominal("x", labels)), PERSON, "1")
    with pytest.raises(DomainError, match="at most"):
        ks.woven_tree(pilot=True).on(ks.Domain.of(ks.Ordered("x", (1 << 22) + 1)), PERSON, "1")
