"""Questions that a release answers for free: right without noise, honest with it, refused where senseless."""

import json
import math

import forked
import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import DomainError
from kasuri.published import questions

PERSON = ks.Unit("person", "add-remove", 1)
WARDS = ks.Nominal("ward", labels=("a", "b", "c", "d", "e"))
AGES = ks.Ordered("age", 9)
DOMAIN = ks.Domain.of(WARDS, AGES)
RECIPES = {
    "geometric": ks.geometric, "haar_topdown": ks.haar_topdown, "refined_tree": ks.refined_tree,
    "bayes_tree": lambda: ks.bayes_tree("middle"), "privelet": ks.privelet, "best": ks.best,
}  # fmt: skip


def made(truth, recipe=None, epsilon="20", seed=1, domain=DOMAIN):
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    return ks.release(counts, recipe or ks.geometric(), epsilon=epsilon, ledger=None, source=ks.seeded(seed))


def true_quantile(own, q):
    """The least index up to which a part q lies, in whole numbers."""
    sums = np.cumsum(own)
    return next(k for k in range(len(own)) if sums[k] >= q * sums[-1])


def test_answers_of_a_table_almost_without_noise():
    rng = np.random.default_rng(4)
    truth = rng.integers(50, 5000, DOMAIN.shape) * 10
    out = made(truth)
    for area, own in ((ks.Area(), truth), (ks.Area(ward="c"), truth[2]), (ks.Area(ward=slice(1, 3)), truth[1:3])):
        profile = own.reshape(-1, 9).sum(axis=0)
        for found in out.quantile("age", [0, 0.1, 0.25, 0.5, 0.9, 1], area):
            assert found.lower <= true_quantile(profile, found.q) <= found.upper
            assert found.upper - found.lower <= 1 and found.label == str(found.index)
        mean = out.mean("age", area)
        assert mean.lower <= (profile * np.arange(9)).sum() / profile.sum() <= mean.upper < mean.lower + 0.2
        wide = out.mean("age", area, numbers=[(10 * k, 10 * k + 9) for k in range(9)])
        assert wide.lower <= 10 * mean.lower + 1e-9 and wide.upper >= 10 * mean.upper + 8
    share = out.share(ks.Area(ward="a"), ks.Area(age=slice(0, 3)))
    assert share.lower <= truth[0, :3].sum() / truth[:, :3].sum() <= share.upper < share.lower + 0.01
    ratio = out.ratio(ks.Area(ward="a"), ks.Area(ward="b"))
    assert ratio.lower <= truth[0].sum() / truth[1].sum() <= ratio.upper < ratio.lower + 0.02
    later = made(truth + 7, seed=2)
    change = later.change(out, ward="d")
    assert change.lower <= 63 <= change.upper < change.lower + 60
    ranks = out.rank("ward")
    by_size = sorted(WARDS.labels, key=lambda label: -truth[WARDS.labels.index(label)].sum())
    assert [rank.name for rank in ranks.ranks] == by_size
    assert ranks.groups == tuple((name,) for name in by_size) and ranks.top(2) == (tuple(by_size[:2]), ())
    named = out.rank({"first": ks.Area(ward="a"), "all": ks.Area()})
    assert named.groups == (("all",), ("first",))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name == "best" else []) for name in RECIPES]
)
def test_answers_hold_with_noise(name):
    """Every question, 25 draws: what is asked for at 95 % must hold about always, as errors are shared out."""
    rng = np.random.default_rng(5)
    truth = rng.poisson(np.outer([1, 5, 20, 60, 60], np.exp(-((np.arange(9) - 4) ** 2) / 9)))
    wards = truth.sum(axis=1)
    wrong, asked = 0, 0
    for seed in range(25):
        out = made(truth, RECIPES[name](), "1", seed)
        for ward in range(1, 5):
            own = truth[ward]
            median = out.quantile("age", 0.5, ward=ward)
            mean = out.mean("age", ward=ward)
            share = out.share(ks.Area(age=slice(0, 4)), ks.Area(ward=ward))
            ratio = out.ratio(ks.Area(ward=ward), ks.Area(ward=4))
            wrong += not median.lower <= true_quantile(own, 0.5) <= median.upper
            wrong += not mean.lower <= (own * np.arange(9)).sum() / own.sum() <= mean.upper
            wrong += not share.lower <= own[:4].sum() / own.sum() <= share.upper
            wrong += not ratio.lower <= own.sum() / truth[4].sum() <= ratio.upper
            asked += 4
        ranks = out.rank("ward")
        for rank in ranks.ranks:
            size = wards[WARDS.labels.index(rank.name)]
            wrong += not (rank.best <= (wards >= size).sum() and (wards > size).sum() + 1 <= rank.worst)
        asked += len(ranks.ranks)
    assert wrong <= 0.05 * asked, f"{wrong} of {asked}"


def test_whatever_counts_the_intervals_allow_their_quantile_is_in_the_range():
    """The rule itself: truths drawn inside the limits of every split never have a quantile outside."""
    rng = np.random.default_rng(6)
    truth = rng.poisson(30, DOMAIN.shape)
    out = made(truth, ks.refined_tree(), "0.5", 3)
    level = 1 - 0.05 / 4
    limits = [
        (out.interval(level=level, ward=1, age=slice(0, k)), out.interval(level=level, ward=1, age=slice(k, 9)))
        for k in range(1, 9)
    ]
    found, seen = out.quantile("age", [0.2, 0.5, 0.8], ward=1), 0
    for _ in range(4000):
        own = np.maximum(truth[1] + rng.integers(-20, 21, 9), 0)
        inside = all(
            low.lower <= own[:k].sum() <= low.upper and high.lower <= own[k:].sum() <= high.upper
            for k, (low, high) in enumerate(limits, 1)
        )
        if inside and own.sum():
            seen += 1
            assert all(one.lower <= true_quantile(own, one.q) <= one.upper for one in found)
    assert seen > 200


def test_ranks_are_what_pairs_of_intervals_say():
    rng = np.random.default_rng(7)
    for _ in range(50):
        low = rng.integers(0, 40, 12).astype(float)
        high = low + rng.integers(0, 15, 12)
        values = (low + high) / 2
        found = questions._ranked([str(i) for i in range(12)], values, low, high, 0.95)
        for rank in found.ranks:
            i = int(rank.name)
            assert rank.best == 1 + sum(low[j] > high[i] for j in range(12))
            assert rank.worst == 12 - sum(high[j] < low[i] for j in range(12))
        at = {name: g for g, group in enumerate(found.groups) for name in group}
        above = [(i, j) for i in range(12) for j in range(12) if at[str(i)] < at[str(j)]]
        assert all(low[i] > high[j] for i, j in above)
        order = [int(rank.name) for rank in found.ranks]
        cuts = {len([n for g in found.groups[: k + 1] for n in g]) for k in range(len(found.groups))}
        for cut in range(1, 12):  # as fine as it goes
            sure = min(low[i] for i in order[:cut]) > max(high[i] for i in order[cut:])
            assert sure == (cut in cuts)


def test_nobody_and_negative_numbers():
    empty = made(np.zeros(DOMAIN.shape, dtype=np.int64), epsilon="1")
    found = empty.quantile("age", 0.5)
    assert (found.lower, found.upper) == (0, 8), "a median of nobody may be anywhere"
    mean = empty.mean("age")
    assert mean.lower <= 0.001 and mean.upper >= 7.999
    share = empty.share(ks.Area(ward="a"), ks.Area(ward=slice(0, 2)))
    assert share.lower <= 0 and share.upper >= 1
    assert empty.ratio(ks.Area(ward="a"), ks.Area(ward="b")).upper == math.inf
    assert empty.share(ks.Area(ward="a"), ks.Area(ward="b")).value in (0.0, None), "areas that do not meet"


def test_irregular_areas_and_a_release_read_back(tmp_path):
    truth = np.random.default_rng(8).poisson(300, DOMAIN.shape)
    counts = ks.Counts.from_dense(truth, DOMAIN, PERSON)
    out = ks.release(counts, ks.refined_tree(), epsilon="1", ledger=None)
    some = ks.Area(cells=np.arange(DOMAIN.shape[1] * 2))  # wards a and b, as cells
    box = ks.Area(ward=slice(0, 2))
    assert out.quantile("age", [0.5], some) == out.quantile("age", [0.5], box)
    assert out.rank("age", some).groups and out.mean("age", some).level == 0.95
    out.save(str(tmp_path / "r"), unmetered=True)
    again = ks.Release.load(str(tmp_path / "r"))
    assert again.quantile("age", [0.1, 0.5]) == out.quantile("age", [0.1, 0.5])
    assert again.mean("age") == out.mean("age") and again.rank("ward") == out.rank("ward")


def test_boxes_in_groups_give_the_same(monkeypatch):
    out = made(np.random.default_rng(3).poisson(50, DOMAIN.shape), ks.refined_tree(), "1")
    found = out.quantile("age", [0.3, 0.5]), out.rank("age"), out.mean("age")
    monkeypatch.setattr(questions, "MOST_CELLS", 17)
    assert (out.quantile("age", [0.3, 0.5]), out.rank("age"), out.mean("age")) == found


def test_a_time_axis_has_a_median():
    domain = ks.Domain.of(ks.Time("hour", "2020-10-01T00:00", 3600, 24))
    out = made(np.full(24, 1000), domain=domain)
    assert out.quantile("hour", 0.5).label == "2020-10-01 11:00"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda out: out.quantile("age", 1.5), "from 0 to 1"),
        (lambda out: out.quantile("age", float("nan")), "from 0 to 1"),
        (lambda out: out.quantile("age", []), "at least"),
        (lambda out: out.quantile("age", True), "from 0 to 1"),
        (lambda out: out.quantile("age", "0.5"), "from 0 to 1"),
        (lambda out: out.quantile("ward", 0.5), "an order"),
        (lambda out: out.quantile("place", 0.5), "choose among: ward, age"),
        (lambda out: out.quantile("age", 0.5, level=1), "level"),
        (lambda out: out.quantile("age", 0.5, ward="z"), "no label"),
        (lambda out: out.quantile("age", 0.5, ks.Area(cells=np.zeros(0, np.int64))), "no cells"),
        (lambda out: out.mean("age", numbers=[1, 2]), "9 rising numbers"),
        (lambda out: out.mean("age", numbers=range(9, 0, -1)), "rising"),
        (lambda out: out.mean("age", numbers=["x"] * 9), "numbers"),
        (lambda out: out.mean("age", numbers=[math.inf] * 9), "rising"),
        (lambda out: out.mean("ward"), "an order"),
        (lambda out: out.rank({}), "areas by name"),
        (lambda out: out.rank("ward").top(0), "from 1 to 5"),
        (lambda out: out.share(ks.Area(), level=0.2), "level"),
    ],
)
def test_senseless_questions_are_refused(ask, words):
    with pytest.raises(DomainError, match=words):
        ask(made(np.full(DOMAIN.shape, 10)))


def test_labels_that_are_not_numbers_have_no_mean():
    domain = ks.Domain.of(ks.Ordered("age", 3, labels=("young", "middle", "old")))
    with pytest.raises(DomainError, match="not numbers"):
        made(np.full(3, 10), domain=domain).mean("age")


def test_a_recipe_without_intervals_refuses_with_the_reason():
    out = made(np.full(DOMAIN.shape, 10), ks.simplex(), "1")
    for ask in (lambda: out.quantile("age", 0.5), lambda: out.rank("ward"), lambda: out.share(ks.Area(ward="a"))):
        with pytest.raises(DomainError, match="no interval"):
            ask()


def test_the_command_line_gives_the_same_answers(tmp_path):
    truth = np.random.default_rng(9).poisson(300, DOMAIN.shape)
    counts = ks.Counts.from_dense(truth, DOMAIN, PERSON)
    for name in ("old", "new"):
        ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / name), unmetered=True)
    out, old = (ks.Release.load(str(tmp_path / name)) for name in ("new", "old"))

    def kasuri(*words, code=0):
        run = forked.kasuri("query", *words, cwd=tmp_path, code=code)
        return run.stderr if code else run.stdout

    rows = json.loads(kasuri("new", "--quantile", "age:0.25,0.5", "--where", "ward=b", "--json"))["rows"]
    found = out.quantile("age", [0.25, 0.5], ward="b")
    assert [(r["q"], r["index"], r["lower"], r["upper"]) for r in rows] == [
        (f.q, f.index, f.lower, f.upper) for f in found
    ]
    (row,) = json.loads(kasuri("new", "--since", "old", "--where", "ward=c", "--json"))["rows"]
    change = out.change(old, ward="c")
    assert (row["value"], row["lower"], row["upper"]) == (change.value, change.lower, change.upper)
    told = json.loads(kasuri("new", "--rank", "ward", "--top", "2", "--json"))
    assert (tuple(told["sure"]), tuple(told["maybe"])) == out.rank("ward").top(2)
    assert "confidence between" in kasuri("new", "--mean", "age", "--by", "ward")
    assert "confidence between" in kasuri("new", "--share", "--where", "ward=a")
    assert "one question" in kasuri("new", "--share", "--mean", "age", code=2)
    assert "an order" in kasuri("new", "--quantile", "ward", code=1)
