"""woven_tree(pilot="cells"): the look at the cells costs nothing, chooses by its histograms, can be told again."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.noise.rng import Streams, seeded
from kasuri.recipes import wovenlook, wovenviews
from kasuri.recipes.descent import by_key
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.read import read
from kasuri.recipes.targets import Form, Plan, Sums, balanced

PERSON = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Mesh("g", shape=(32, 32)), ks.Ordered("age", 3))
LOOKED = ks.woven_tree(pilot="cells")
EVERY = {1: replace(LOOKED, version=1), 2: replace(LOOKED, version=2), 3: LOOKED}
FILLED = {
    1: {"0.25": 0.004, "0.8": 0.28, "whole": 1.0},
    2: {"0.5": 0.085, "0.7": 0.25, "0.9": 0.5, "whole": 1.0},
    3: {"0.25": 0.004, "0.7": 0.25, "0.9": (20, 1.0), "whole": 0.5},
}
"""By version and choice, the part of places (or so many rows, and the part of theirs) that have people, about 300 in
each of their cells."""
CASES = [(version, preset) for version in FILLED for preset in FILLED[version]]


def made(preset, version=3, seed=0):
    rng = np.random.default_rng(seed)
    filled = FILLED[version][preset]
    rows, filled = filled if isinstance(filled, tuple) else (DOMAIN.shape[0], filled)
    some = rng.poisson(300.0, DOMAIN.shape) * (rng.random(DOMAIN.shape[:2]) < filled)[..., None]
    some[rows:] = 0
    return some


def released(preset, version=3, epsilon="0.1", seed=3):
    counts = ks.Counts.from_dense(made(preset, version), DOMAIN, PERSON, data="made up")
    out = ks.release(counts, EVERY[version], epsilon=epsilon, ledger=None, source=ks.seeded(seed))
    assert out.recipe["preset"] == preset
    return out


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("epsilon", ["0.1", "3"])
def test_every_choice_spends_all_of_epsilon_once(epsilon, change, version):
    run = EVERY[version].on(DOMAIN, ks.Unit("person", change, 2), epsilon)
    assert sum(loss * times for loss, times in run.losses) == Fraction(epsilon)
    most = run.guarantee.unit.most * run.cost
    for (name, one), scale in zip(run.choices.items(), run._scales().values(), strict=True):
        assert sum(share for _, share in (*one.cuts, *one.parts)) == 1
        assert sum(most / own for own in one.told_scales.values()) == Fraction(epsilon)
        assert one.told_scales[one.tree.depth] == scale  # the noise of the look that it publishes
        held = name == "whole" or (version > 1 and float(name) >= 0.6)
        assert one.mechanism.whole == held and one.everywhere != held
        assert one.mechanism.held == (4 if version == 3 else 3) and one.damped == (version == 3)
        assert set(wovenviews.crossed(one.weave)) <= set(wovenviews.anchored(one.weave, 4))


@pytest.mark.parametrize(("version", "preset"), CASES)
def test_a_release_follows_from_its_measurements_and_the_look(version, preset):
    out = released(preset, version)
    assert sum(1 / scale for scale in out.measurements.scale.values()) == Fraction(1, 10)
    words = json.loads(json.dumps(dict(out.recipe)))
    assert words["arguments"] == {"pilot": "cells"} | ({"version": version} if version > 1 else {})
    run = read(words, DOMAIN, PERSON, "0.1")
    assert run.mechanism.version == version
    again = run.replay(Drawn(out.cells, out.values, out.measurements, words))
    np.testing.assert_array_equal(again.found[0], out.cells)
    np.testing.assert_array_equal(again.found[1], out.values)
    told, notes = run.retold(words, out.measurements)
    assert json.loads(json.dumps(told)) == words and len(notes) == (preset != "0.25")  # the look itself is published
    other = next(name for name in run.choices if name != preset)
    assert run.retold(words | {"preset": other}, out.measurements)[0]["preset"] == preset
    look = words["tuning"]["look"]
    wrong = [look[:-1], "look", None, [look], [[0.5, *row[1:]] for row in look] if version > 1 else [0.5, *look[1:]]]
    first = look[0] if version > 1 else look
    wrong += [([row, *look[1:]] if version > 1 else row) for row in ([*first[1:], first[0] + 1], [-1, *first[1:]])]
    if version > 1:  # 16 * 2^60 is 0 modulo 2^64
        wrong.append([[row[0] + (1 << 60), *row[1:]] for row in look])
    sums = words["tuning"].get("sums")
    assert (sums is not None) == (version > 2)
    told_sums = [] if sums is None else [None, [], sums[:-1], [sums], [-1, *sums[1:]], [sums[0] + 1, *sums[1:]]]
    for one in [{"look": one} for one in wrong] + [{"sums": one} for one in told_sums]:
        with pytest.raises(FormatError):
            run.retold(words | {"tuning": words["tuning"] | one}, out.measurements)
    with pytest.raises(FormatError):
        run.retold(words | {"preset": "0.45"}, out.measurements)
    limits = out.interval(rows=slice(0, 16), cols=slice(0, 16), level=0.99)
    assert limits.lower <= made(preset, version)[:16, :16].sum() <= limits.upper
    assert all(error.rmse > 0 for error in run.after(Drawn(out.cells, out.values, out.measurements, words)))


@pytest.mark.parametrize("epsilon", ["0.1", "3"])
@pytest.mark.parametrize(("version", "preset"), CASES)
def test_a_look_that_the_published_cells_refute(version, preset, epsilon):
    """Where the look is what was published, to the last cell; elsewhere what its noise cannot have done."""
    run, every = looks(made(preset, version), version, epsilon=epsilon)
    first, own = every["0.25"], every[preset]
    look, sums = run._look(first), run._sums(first)
    assert not run._refuted(look, sums, own)
    far = np.roll(look, 30, axis=1)
    assert run._refuted(far, sums, own) and run._refuted(far[:, ::-1], sums, own)
    if preset == "0.25":
        assert not sums.size or run._refuted(look, np.roll(sums, 1), own)
        look[0, [look[0].argmax(), 5]] += (-1, 1)
        assert run._refuted(look, sums, own)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(4, 7), Fraction(5), Fraction(320, 3), Fraction(10**9)])
def test_the_least_number_of_a_class(scale):
    for name in range(1, 65):
        least = wovenlook._least(name, scale)
        below, own = (wovenlook._classes(np.array([y]), scale).argmax() for y in (least - 1, least))
        assert below < name <= own


def test_a_version_that_nobody_knows_is_refused():
    words = json.loads(json.dumps(dict(released("0.9").recipe)))
    for version in (0, 4, "x"):
        with pytest.raises(FormatError):
            read(words | {"arguments": {"pilot": "cells", "version": version}}, DOMAIN, PERSON, "0.1")
    with pytest.raises(FormatError, match=r"preset|look"):  # the second one's words said of the first
        read(words | {"arguments": {"pilot": "cells"}}, DOMAIN, PERSON, "0.1").retold(words, None)


def looks(table, version=3, seed=5, epsilon="0.1"):
    run = EVERY[version].on(DOMAIN, PERSON, epsilon)
    cells = np.flatnonzero(table)
    keys, values = by_key(run.tree, DOMAIN, cells, table.ravel()[cells])
    first, streams = run.first(), Streams(seeded(seed).release_key(), "x")
    return run, run.looks(first.noisy(first.sums(keys, values), streams), streams)


def test_each_look_is_the_finer_one_with_noise_that_is_independent_of_it():
    """So what is chosen is a function of what is published and of randomness of its own."""
    run, found = looks(np.zeros(DOMAIN.shape, dtype=np.int64))
    assert list(found) == list(run.choices)
    numbers, scales = list(found.values()), list(run._scales().values())
    for look, scale in zip(numbers, scales, strict=True):
        assert look.scale == scale and 0.93 < np.abs(look.y).mean() / float(scale) < 1.07
    for coarse, fine in pairwise(numbers):
        more = coarse.y - fine.y
        assert abs(np.corrcoef(more, fine.y)[0, 1]) < 0.06
        a, b = (np.exp(-1 / float(scale)) for scale in (coarse.scale, fine.scale))
        assert abs((more == 0).mean() - (b / a * ((1 - a) / (1 - b)) ** 2 + (1 - a) / (1 + a) * 0.3)) < 0.06


@pytest.mark.parametrize("preset", FILLED[3])
def test_the_published_cells_are_the_look_that_was_chosen(preset):
    out = released(preset)
    table = made(preset)
    run = LOOKED.on(DOMAIN, PERSON, "0.1")
    own = out.measurements.level == run.tree.depth
    keys = out.measurements.prefix[own]
    noise = out.measurements.value[own] - table.ravel()[run.tree.cells(keys)]
    scale = float(run._scales()[preset])
    assert own.sum() == DOMAIN.size and 0.93 < np.abs(noise).mean() / scale < 1.07


@pytest.mark.parametrize("version", EVERY)
def test_the_histogram_that_chooses_is_of_noisy_cells(version):
    """Of cells that are nearly all empty about half are at or below 0, and the rest fall off as the noise does."""
    table = made("0.25", 3)
    run, found = looks(table, version, seed=3)
    look = np.atleast_2d(run._look(found["0.25"]))
    assert look.shape == ((16, 66) if version > 1 else (1, 66)) and look.sum() == DOMAIN.size
    assert 0.47 < look[:, 0].sum() / look.sum() < 0.56 and 0.10 < look[:, 9:].sum() / look.sum() < 0.25
    if version > 1:  # bins of cells whose neighbours have like numbers
        assert look.sum(1).min() > 0.8 * DOMAIN.size / 16


def test_the_choice_reads_the_histograms_of_noisy_cells_alone():
    """The first version reads the numbers of all cells, wherever they are; the second where they are, too."""
    for version, same in ((1, True), (2, False), (3, False)):
        run, found = looks(made("0.7"), version)
        first = found["0.25"]
        words = run._rule(run._look(first), run._sums(first))
        shuffled = np.random.default_rng(1).permutation(first.y)
        other = type(first)(first.depth, first.scale, first.prefix, shuffled)
        assert (run._rule(run._look(other), run._sums(other)) == words) == same


def test_neighbours_say_how_well_cells_are_told():
    """People in one corner only: by their neighbours the empty cells are known to be empty, and need less noise."""
    truth = np.zeros(DOMAIN.shape, dtype=np.int64)
    truth[:16, :16] = 150
    spread = {}
    for version in EVERY:
        run, found = looks(truth, version)
        look = run._look(found["0.25"])
        spread[version] = wovenlook.expected(look, (Fraction(1, 4), Fraction(3, 5)))
    assert all(spread[2][stop] < 0.93 * spread[1][stop] for stop in spread[1])


def test_more_filled_tables_have_more_of_epsilon_on_their_cells():
    rng = np.random.default_rng(4)
    stops = wovenlook.VERSIONS[2].stops
    before = dict.fromkeys(stops, 0.0)
    for filled in (0.01, 0.1, 0.4, 1.0):
        u = (rng.random(40_000) < filled) * 30.0 + rng.laplace(0, 1, 40_000)
        for bins in (1, 4):
            look = wovenlook.bayes.classes(u, np.arange(u.size) % bins, bins).astype(np.int64)
            found = wovenlook.expected(look, stops)
            assert all(found[stop] > before[stop] for stop in stops)
            assert all(found[a] > found[b] for a, b in pairwise(stops))
        before = found
    for stop in stops:  # full: that of noise with the share
        assert before[stop] == pytest.approx(1 / float(stop), rel=0.02)


@pytest.mark.parametrize(("version", "preset"), CASES)
def test_no_choice_is_worse_than_plain_noise(version, preset):
    """Root mean square errors at every height, the margin and their table, over those of sums of plain noise."""
    truth = made(preset, version)
    views = [lambda x: x, lambda x: x.sum(2), lambda x: x.reshape(8, 4, 8, 4, 3).sum((1, 3)),
             lambda x: x.reshape(8, 4, 8, 4, 3).sum((1, 3, 4)), lambda x: x.sum((0, 1)),
             lambda x: x.reshape(2, 16, 2, 16, 3).sum((1, 3))]  # fmt: skip
    own = []
    for seed in range(8):
        gap = released(preset, version, seed=seed).to_dense() - truth
        own.append([(view(gap) ** 2).mean() for view in views])
    a = np.exp(-0.1)
    plain = np.array([truth.size / view(truth).size for view in views]) * 2 * a / (1 - a) ** 2
    ratio = np.sqrt(np.mean(own, axis=0) / plain)
    assert (ratio[:4] <= 1.1).all() and (ratio <= 1.5).all()
    assert np.exp(np.log(ratio).mean()) < {"0.25": 0.4, "0.5": 0.6, "0.9": 0.95, "whole": 1.05}.get(preset, 0.8)


@pytest.mark.parametrize(("rows", "filled", "preset"), [(32, 0.35, "whole"), (16, 0.95, "0.8")])
def test_a_stop_must_do_for_the_sums_that_are_held(rows, filled, preset):
    """Where every block is filled alike the look knows little of its sum, and shares which trust that it does will not
    do; where half of the blocks are empty they do. The second version took 0.8 for both."""
    rng = np.random.default_rng(0)
    truth = rng.poisson(300.0, DOMAIN.shape) * (rng.random(DOMAIN.shape[:2]) < filled)[..., None]
    truth[rows:] = 0
    run, found = looks(truth)
    look, sums = run._look(found["0.25"]), run._sums(found["0.25"])
    assert run._rule(look, sums)["preset"] == preset
    before, same = looks(truth, 2)
    assert before._rule(before._look(same["0.25"]), before._sums(same["0.25"]))["preset"] == "0.8"
    assert (run._of_sums("0.8", sums) > wovenlook.LIMIT) == (preset != "0.8")


def _worst(cells, views, shares):
    """The worst of the views over plain noise, by least squares alone."""
    own = 1 - float(sum(shares))
    plain = np.array([2 * cells.groups / view.groups for view in views])
    form = Form(cells.counts, (cells, *views), views)
    return float((form.variances(np.array([own, *map(float, shares)])) / plain).max())


def test_balanced_shares():
    """Derivatives by differences; nothing planned much worse than asked; the held view has its part."""
    cells, views = Sums((16, 16)), tuple(Sums(counts) for counts in ((8, 8), (4, 4), (16, 1), (1, 16), (2, 1)))
    for own, worst in ((Fraction(1, 4), 0.95), (Fraction(4, 5), 0.95), (Fraction(24, 25), 1.05)):
        plan = Plan(worst)
        shares = balanced(cells, views, own, 1, plan)
        assert sum(shares) == 1 - own and shares[1] >= (1 - own) / 8 and shares == balanced(cells, views, own, 1, plan)
        form = Form((16, 16), (cells, *views), views, max(1 / 0.8**2 - float(own) ** 2, 0) / 2)
        plain = np.array([2 * 256 / view.groups for view in views])
        ratio = np.sqrt(form.variances(np.array([float(own), *map(float, shares)])) / plain)
        assert np.exp(np.log(ratio).mean()) < 1.0 and shares != balanced(cells, views, own, None, plan)
    loose, strict = (balanced(cells, views, Fraction(4, 5), None, Plan(0.95, strict=much)) for much in (0.0, 100.0))
    assert _worst(cells, views, strict) < _worst(cells, views, loose)
    form = Form((16, 16), (cells, *views), views, 0.4)
    q = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    V, slope = form._solved(q)
    for at in range(q.size):
        moved = q.copy()
        moved[at] += 1e-6
        np.testing.assert_allclose((form._solved(moved)[0] - V) / 1e-6, slope[:, at], rtol=1e-3, atol=1e-6)
    assert (Form((16, 16), (cells, *views), views)._solved(q)[0] > V).all()


def test_what_is_wrong_is_refused_before_the_charge():
    for given in ({"whole": True}, {"views": {"cells": "1"}}, {"shares": {"cells": "1"}}):
        with pytest.raises(PrivacyError, match="pilot"):
            ks.woven_tree(pilot="cells", **given)
    with pytest.raises(PrivacyError, match="pilot"):
        ks.woven_tree(pilot="places")
    labels = tuple(f"l{i}" for i in range(600))
    with pytest.raises(DomainError, match="no level"):
        LOOKED.on(ks.Domain.of(ks.Nominal("x", labels)), PERSON, "1")
    with pytest.raises(DomainError, match="at most"):
        LOOKED.on(ks.Domain.of(ks.Ordered("x", (1 << 22) + 1)), PERSON, "1")


def test_of_very_many_cells_errors_of_sums_are_told_by_least_squares_as_at_most(monkeypatch):
    """What is told then is not below the true error, of sums of 2 x 2 and 4 x 4 places over six releases."""
    monkeypatch.setattr("kasuri.recipes.woven.MANY_CELLS", 0)
    truth, off = made("0.25"), {}
    for seed in range(6):
        out = released("0.25", seed=seed)
        run = LOOKED.on(DOMAIN, PERSON, "0.1")
        told = [row for row in run.after(Drawn(out.cells, out.values, out.measurements, out.recipe), (1,)) if row.view]
        form = {row.view: row.rmse for row in run.choices["0.25"].view_errors()}
        assert told and all(row.bound and row.rmse == form[row.view] for row in told)
        wrong = out.to_dense() - truth
        for height in (1, 2):
            side = 32 >> height
            blocks = wrong.sum(-1).reshape(side, 1 << height, side, 1 << height).sum((1, 3))
            off.setdefault(f"g@{height}", []).append(float((blocks.astype(float) ** 2).mean()))
    seen = {view: np.mean(found) ** 0.5 / form[view] for view, found in off.items() if view in form}
    assert seen and max(seen.values()) <= 1.05, seen
