"""woven_tree: what each partition costs, by brute force; what a release follows from; what is refused."""

import json
import warnings
from fractions import Fraction

import numpy as np
import pytest
from reference.sensitivity import contributions

import kasuri as ks
from kasuri.errors import AccuracyWarning, DomainError, PrivacyError
from kasuri.privacy import decimal
from kasuri.recipes import targets, woven_tree
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.read import read
from kasuri.recipes.woven import FIRST_PART
from kasuri.schema.maps import RegionMap

TREE = ks.Tree.of({"e": ["a", "b"], "w": ["c"]})
REGIONS = RegionMap("g", [0, 1, -1, 1, 0, -1], name="regions")
CASES = {
    "od": (ks.Domain.of(ks.Nominal("o", tuple("abc"), TREE), ks.Nominal("d", tuple("abc"), TREE)), (),
           {"cells": "0.5", "o@1, d@1": "0.2", "o": "0.2", "d": "0.1"}),
    "map with none": (ks.Domain.of(ks.Mesh("g", shape=(2, 3)), ks.Ordered("age", 2)), (REGIONS,),
                      {"cells": "0.4", "g": "0.3", "regions": "0.1", "regions, age": "0.1", "age": "0.1"}),
    "masked": (ks.Domain.of(ks.Mesh("g", shape=(2, 3)), mask=np.array([[0, 1, 0], [0, 0, 1]], dtype=bool)), (REGIONS,),
               {"cells": "0.5", "g@1": "0.25", "regions": "0.25"}),
    "whole": (ks.Domain.of(ks.Mesh("g", shape=(4, 6)), ks.Ordered("age", 2)), (), {"cells": "0.75", "g": "0.25"}),
    "whole, cells alone": (ks.Domain.of(ks.Nominal("o", tuple("abc"), TREE), ks.Ordered("d", 16)), (), {"cells": "1"}),
}  # fmt: skip


def unit(change="add-remove", c=1):
    return ks.Unit("person", change, c)


def counts(domain, seed=0, who=None):
    rng = np.random.default_rng(seed)
    table = rng.poisson(30.0, domain.shape)
    table[~domain.possible_dense()] = 0
    return ks.Counts.from_dense(table, domain, who or unit(), data="truth")


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_partition_changes_by_c_and_no_more(name, c, change):
    """The counts that each partition measures, for every contribution of a unit: the scale is what L1 change costs."""
    domain, maps, shares = CASES[name]
    run = woven_tree(shares=shares, maps=maps, whole="whole" in name).on(domain, unit(change, c), "1")
    tree = run.tree
    keys = tree.keys(np.arange(domain.size))
    partitions = {f"cut {depth}": (keys // tree.stride(depth), share) for depth, share in run.cuts}
    partitions |= {part.name: (part.of_keys(tree, keys), share) for part, share in run.parts}
    assert sum(share for _, share in partitions.values()) == 1
    changes = list(contributions(domain.size, c, domain.possible_dense().ravel()))
    for groups, share in partitions.values():
        inside = groups >= 0
        images = [np.bincount(groups[inside], x[inside], groups.max() + 1) for x in changes]
        if change == "add-remove":
            most = max(np.abs(image).sum() for image in images)
        else:
            different = np.unique(images, axis=0)
            most = max(np.abs(different - one).sum(axis=1).max() for one in different)
        assert most <= c * run.cost
        assert run.noise.scale / share == Fraction(c) * run.cost / (share * Fraction(1))
        if (groups[domain.possible_dense().ravel()] >= 0).all() and np.unique(groups).size > 1:
            assert most == c * run.cost


@pytest.mark.parametrize("change", ["add-remove", "replace"])
@pytest.mark.parametrize("name", CASES)
def test_the_published_scales_spend_epsilon_once(name, change):
    domain, maps, shares = CASES[name]
    who = unit(change)
    release = ks.release(
        counts(domain, who=who),
        woven_tree(shares=shares, maps=maps, whole="whole" in name),
        epsilon="0.5",
        ledger=None,
        source=ks.seeded(1),
    )
    delta = 1 if change == "add-remove" else 2
    assert sum(delta / scale for scale in release.measurements.scale.values()) == Fraction(1, 2)
    assert len(release.measurements.scale) == len(shares)
    run = woven_tree(shares=shares, maps=maps, whole="whole" in name).on(domain, unit(), "0.5")
    assert sum(loss * times for loss, times in run.losses) == Fraction(1, 2) and len(run.losses) == len(shares)


@pytest.mark.parametrize("name", CASES)
def test_a_release_follows_from_its_measurements(name):
    domain, maps, shares = CASES[name]
    recipe = woven_tree(shares=shares, maps=maps, whole="whole" in name)
    release = ks.release(counts(domain), recipe, epsilon="1", ledger=None, source=ks.seeded(3))
    run = recipe.on(domain, unit(), "1")
    again = run.replay(Drawn(release.cells, release.values, release.measurements, release.recipe))
    np.testing.assert_array_equal(again.found[0], release.cells)
    np.testing.assert_array_equal(again.found[1], release.values)
    assert (release.values > 0).all() and len(again.shown) == len(shares)
    other = ks.release(counts(domain), recipe, epsilon="1", ledger=None, source=ks.seeded(3), threads=3)
    np.testing.assert_array_equal(other.values, release.values)


def test_whole_leaves_a_full_table_as_the_noise_left_it():
    domain = ks.Domain.of(ks.Mesh("g", shape=(16, 16)), ks.Ordered("age", 4))
    table = np.random.default_rng(2).poisson(5000.0, domain.shape)
    full = ks.Counts.from_dense(table, domain, unit(), data="full")
    release = ks.release(full, woven_tree(whole=True), epsilon="0.5", ledger=None, source=ks.seeded(4))
    noisy = np.zeros(domain.size)
    noisy[woven_tree(whole=True).on(domain, unit(), "0.5").tree.cells(release.measurements.prefix)] = (
        release.measurements.value
    )
    assert np.abs(release.to_dense().ravel() - noisy).max() <= 1


def test_whole_keeps_large_sums_of_a_half_empty_table():
    """What makes cells non-negative moves people to empty places: held at the sums of the noisy cells, large areas and
    margins stay near plain noise, and the cells are better."""
    domain = ks.Domain.of(ks.Mesh("g", shape=(32, 32)), ks.Ordered("age", 3))
    table = np.zeros(domain.shape, dtype=np.int64)
    table[:, :16, 0] = np.random.default_rng(3).poisson(20.0, (32, 16))
    half = ks.Counts.from_dense(table, domain, unit(), data="half")
    ratios = []
    for seed in range(12):
        release = ks.release(half, woven_tree(whole=True), epsilon="0.1", ledger=None, source=ks.seeded(seed))
        noisy = np.zeros(domain.size)
        noisy[woven_tree(whole=True).on(domain, unit(), "0.1").tree.cells(release.measurements.prefix)] = (
            release.measurements.value
        )
        gaps = [found.reshape(domain.shape) - table for found in (release.to_dense(), noisy)]
        views = [lambda x: x, lambda x: x[:, :16].sum(), lambda x: x.sum((0, 1)), lambda x: x[:16].sum((0, 2))]
        ratios.append([[np.abs(view(gap)).mean() for view in views] for gap in gaps])
    ours, plain = np.mean(ratios, axis=0)
    assert ours[0] < 0.5 * plain[0] and (ours < 1.3 * plain).all()  # 1.20 for the full half, over 40 draws


def test_parts_and_levels_do_not_share_noise():
    """Two parts of one number of groups, and a cut of as many: all differences are noise, and no two are alike."""
    domain = ks.Domain.of(ks.Ordered("a", 200), ks.Ordered("b", 200))
    recipe = woven_tree(shares={"cells": "0.25", "a": "0.25", "b": "0.5"})
    zero = ks.Counts.from_dense(np.zeros((200, 200), dtype=np.int64), domain, unit(), data="none")
    measured = ks.release(zero, recipe, epsilon="0.1", ledger=None, source=ks.seeded(5)).measurements
    found = {level: measured.value[measured.level == level][:200].astype(float) for level in measured.scale}
    assert {FIRST_PART} <= found.keys() and len(found) == 3
    names = list(found)
    for i, one in enumerate(names):
        assert 0.6 < np.abs(found[one]).mean() / float(measured.scale[one]) < 1.5
        for other in names[:i]:
            assert abs(np.corrcoef(found[one], found[other])[0, 1]) < 0.25


def test_shares_are_read_as_told_where_rounding_may_differ():
    domain, maps, _ = CASES["map with none"]
    run = woven_tree(maps=maps).on(domain, unit(), "1")
    words = json.loads(json.dumps(run.words()))
    first, second = list(words["shares"])[:2]
    for step, taken in ((Fraction(1, 1000), True), (Fraction(1, 100), False)):
        told = dict(words["shares"])
        told[first] = decimal(Fraction(told[first]) + step)
        told[second] = decimal(Fraction(told[second]) - step)
        back = read(words | {"shares": told}, domain, unit(), "1")
        assert (back.further()["shares"] == told) == taken and sum(s for _, s in (*back.cuts, *back.parts)) == 1
        assert back.further()["shares"] == (told if taken else words["shares"])
    told[second] = words["shares"][second]  # more than 1 in all is never taken
    assert read(words | {"shares": told}, domain, unit(), "1").further()["shares"] == words["shares"]


def test_what_is_wrong_is_refused_before_the_charge():
    domain, maps, shares = CASES["map with none"]
    faulty = [
        (PrivacyError, lambda: woven_tree({"cells": "0"})),
        (PrivacyError, lambda: woven_tree(shares={"cells": "0.7", "g": "0.4"})),
        (PrivacyError, lambda: woven_tree({"cells": "1"}, shares={"cells": "1"})),
        (PrivacyError, lambda: woven_tree(maps=[np.zeros(6, dtype=int)])),
        (DomainError, lambda: RegionMap("g", [[0.5, 1.0]], name="r")),
        (DomainError, lambda: RegionMap("g\nepsilon = 0", [0, 1], name="r")),
        (DomainError, lambda: RegionMap("g", [0, -2], name="r")),
        (DomainError, lambda: RegionMap("g", [-1, -1], name="r")),
        (PrivacyError, lambda: woven_tree(whole="yes")),
        (DomainError, lambda: woven_tree(whole=True).on(ks.Domain.of(ks.Ordered("x", (1 << 22) + 1)), unit(), "1")),
        (DomainError, lambda: woven_tree({"cells": "1", "town": "1"}).on(domain, unit(), "1")),
        (DomainError, lambda: woven_tree({"cells": "1", "g@9": "1"}).on(domain, unit(), "1")),
        (DomainError, lambda: woven_tree({"g, regions": "1"}, maps=maps).on(domain, unit(), "1")),
        (DomainError, lambda: woven_tree(shares={"age": "1"}).on(domain, unit(), "1")),
        (DomainError, lambda: woven_tree(maps=[RegionMap("g", [0, 1], name="r")]).on(domain, unit(), "1")),
        (DomainError, lambda: woven_tree(maps=[RegionMap("town", [0, 1], name="r")]).on(domain, unit(), "1")),
    ]
    for error, make in faulty:
        with pytest.raises(error):
            make()
    with pytest.raises(DomainError) as found:  # all faults at once
        woven_tree({"cells": "1", "town": "1", "g@9": "1"}).on(domain, unit(), "1")
    assert len(found.value.faults) == 2
    named = RegionMap("g", REGIONS.labels, name="truth")
    with pytest.raises(PrivacyError):
        ks.release(counts(domain), woven_tree({"cells": "1", "truth": "1"}, maps=[named]), epsilon="1", ledger=None)
    assert sum(Fraction(share) for share in shares.values()) == 1


def brute_variances(form, shares):
    """V by dense least squares over all cells."""
    cells = form.cells
    index = np.stack(np.meshgrid(*(np.arange(n) for n in cells), indexing="ij"), -1).reshape(-1, len(cells))

    def rows(sums):
        group = np.zeros(len(index), dtype=int)
        for d, k in enumerate(sums.counts):
            group = group * k + index[:, d] * k // cells[d]
        return np.eye(sums.groups)[group].T

    stacked = np.concatenate(
        [rows(sums) * share / np.sqrt(2) for sums, share in zip(form.measured, shares, strict=True)]
    )
    covariance = np.linalg.inv(stacked.T @ stacked)
    return [np.diag(rows(view) @ covariance @ rows(view).T).mean() for view in form.views]


def test_the_closed_form_is_dense_least_squares():
    measured = tuple(targets.Sums(counts) for counts in ((4, 6), (2, 3), (1, 6), (4, 1), (1, 1)))
    views = (*measured, targets.Sums((2, 1)), targets.Sums((2, 6)))
    form = targets.Form((4, 6), measured, views)
    shares = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    np.testing.assert_allclose(form.variances(shares), brute_variances(form, shares), rtol=1e-9)
    step = 1e-6
    slope = form._solved(shares)[1]
    for at in range(shares.size):
        moved = shares.copy()
        moved[at] += step
        np.testing.assert_allclose(
            (form.variances(moved) - form.variances(shares)) / step, slope[:, at], rtol=1e-3, atol=1e-6
        )


def test_shares_follow_targets_and_sum_to_one():
    measured = tuple(targets.Sums(counts) for counts in ((16, 16), (4, 4), (16, 1), (1, 16)))
    form = targets.Form((16, 16), measured, measured)
    plain = targets.shares_for(form, (1.0, 1.0, 1.0, 1.0), (0,))
    rows = targets.shares_for(form, (1.0, 1.0, 0.1, 1.0), (0,))
    for shares in (plain, rows):
        assert sum(shares) == 1 and all(share >= 0 for share in shares) and shares[0] > 0
    assert rows[2] > plain[2] + Fraction(1, 10) and rows == targets.shares_for.__wrapped__(
        form, (1.0, 1.0, 0.1, 1.0), (0,)
    )


def test_limits_of_margins_hold_and_are_shorter_than_those_of_the_tree():
    tree = ks.Tree.of({f"p{p}": [f"t{p}.{t}" for t in range(6)] for p in range(5)})
    domain = ks.Domain.of(ks.Nominal("home", tree.leaves, tree), ks.Nominal("work", tree.leaves, tree))
    truth = np.random.default_rng(2).poisson(np.outer(*np.random.default_rng(3).gamma(0.7, 9.0, (2, 30))))
    table = ks.Counts.from_dense(truth, domain, unit(), data="od")
    recipe = woven_tree(shares={"cells": "0.4", "home@1, work@1": "0.4", "home": "0.1", "work": "0.1"})
    hits, widths = [], []
    for seed in range(12):
        release = ks.release(table, recipe, epsilon="0.5", ledger=None, source=ks.seeded(seed))
        bars = recipe.on(domain, unit(), "0.5").bars(release.measurements)
        cells = np.arange(900).reshape(30, 30)
        for town in range(0, 30, 3):
            low, high, _ = (part[0] for part in bars.of_area(cells[:, town], np.zeros(1), 0.95))
            from kasuri.published.bars import CountBars

            alone = CountBars.of_area(bars, cells[:, town], np.zeros(1), 0.95)
            hits.append(low <= truth[:, town].sum() <= high)
            widths.append((high - low) / (alone[1][0] - alone[0][0]))
    assert np.mean(hits) > 0.91 and np.mean(widths) < 0.8


def test_a_view_that_plain_noise_serves_better_is_warned_of_before_the_charge(tmp_path):
    domain = ks.Domain.of(ks.Nominal("town", tuple(f"t{i}" for i in range(30))), ks.Nominal("sex", ("f", "m")))
    counts = ks.Counts.from_dense(np.full((30, 2), 50), domain, ks.Unit("person", "add-remove", 1), data="made up")
    recipe = ks.woven_tree(shares={"cells": "0.01", "town": "0.98", "sex": "0.01"})
    run = recipe.on(domain, counts.unit, "1")
    assert len(run.cautions) == 1
    caution = run.cautions[0]
    told = {error.view: error.rmse for error in run.view_errors()}
    assert "'sex'" in caution and f"{told['sex']:.3g}" in caution and told["sex"] > 1.05 * np.sqrt(60)
    ledger = ks.Ledger.open(tmp_path / "b.ledger", epsilon="1", unit=counts.unit, data="made up")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AccuracyWarning, match="plain noise"):
            ks.release(counts, recipe, epsilon="1", ledger=ledger)
    assert ledger.balance().left == 1  # who stops there has spent nothing
    assert not ks.woven_tree(shares={"cells": "0.9", "sex": "0.1"}).on(domain, counts.unit, "1").cautions
    full = ks.best({"cells": "9", "town": "1"}, facts={"density": "1", "size": "50"})
    assert any("'cells'" in text for text in full.on(domain, counts.unit, "1").cautions)


def test_the_plan_has_every_view_in_closed_form():
    """Against dense least squares on all measured sums."""
    domain = ks.Domain.of(ks.Nominal("a", tuple("pqrs")), ks.Nominal("b", tuple("xyz")))
    unit = ks.Unit("person", "add-remove", 1)
    recipe = ks.woven_tree(shares={"cells": "0.5", "a": "0.2", "b": "0.3"})
    rows = [np.eye(12), np.kron(np.eye(4), np.ones((1, 3))), np.kron(np.ones((1, 4)), np.eye(3))]
    spread = np.linalg.inv(sum(w**2 / 2 * r.T @ r for w, r in zip((0.5, 0.2, 0.3), rows, strict=True)))
    found = ks.plan([recipe, ks.geometric()], domain, unit, epsilons=["1"])
    for view, r in zip(("a", "b"), rows[1:], strict=True):
        own, plain = (row["rmse"] for row in found.rows if row["cells"] == view)
        assert own == pytest.approx(np.sqrt(np.trace(r @ spread @ r.T) / len(r)), rel=1e-9)
        assert plain == pytest.approx(np.sqrt(ks.geometric().on(domain, unit, "1").noise.variance * 12 / len(r)))
