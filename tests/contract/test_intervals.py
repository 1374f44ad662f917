"""Intervals as a user meets them: every recipe, every store, a release read back, and what is refused."""

import json
import sqlite3

import duckdb
import numpy as np
import pytest
from reference.domains import taken_by
from test_recipes import DOMAINS, VARIANTS, counts_on, name

import kasuri as ks
from kasuri import recipes
from kasuri.manifest.package import digest, text
from kasuri.published import around, bounds, intervals
from kasuri.published.bars import NoBars
from kasuri.schema import Domain, Mesh, Nominal, Unit

PERSON = Unit("person", "add-remove", 1)


def make(recipe, domain=None, mean=0.4, secure=True):
    domain = domain or Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(40, 60)))
    rng = np.random.default_rng(3)
    truth = rng.poisson(mean, domain.shape) * rng.integers(0, 40, domain.shape)
    counts = ks.Counts.from_dense(truth, domain, PERSON, data="c-2020")
    source = None if secure else ks.seeded(5)
    return ks.release(counts, recipe, epsilon="0.5", ledger=None, source=source), truth


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_the_released_value_is_inside_or_there_is_a_reason(recipe, domain):
    counts = counts_on(taken_by(recipe, DOMAINS[domain]))
    out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4))
    why = intervals.missing(out)
    if why is not None:
        assert out.measurements is None and intervals.columns(out) is None
        with pytest.raises(ks.DomainError, match="no interval"):
            out.interval()
        return
    lower, upper = intervals.columns(out)
    assert (lower <= out.values).all() and (out.values <= upper).all() and np.isfinite(upper).all()
    for area in ({}, {"rows": slice(0, 2)}, {"rows": 1, "cols": slice(1, 3)}, {"cells": [1, 5, 9]}):
        found = out.interval(**area)
        assert found.lower <= found.value <= found.upper and found.value == out.area(**area)
        wide = out.interval(**area, level=0.999)
        assert wide.lower <= found.lower and found.upper <= wide.upper
    assert out.interval(rows=slice(2, 2)).upper == 0  # no cell, nobody


@pytest.mark.parametrize("epsilon", ["0.000000001", "100000 weak"])
@pytest.mark.parametrize("recipe", VARIANTS, ids=name)
def test_hardly_any_noise_and_hardly_anything_else(recipe, epsilon):
    counts = counts_on(DOMAINS["odd, masked"])
    truth = np.zeros(counts.domain.size)
    truth[counts.cells] = counts.values
    if recipe.stored().get("delta") and epsilon != "100000 weak":  # beyond the widest Gaussian noise
        with pytest.raises(ks.PrivacyError, match="epsilon is too small"):
            recipe.on(counts.domain, counts.unit, epsilon)
        return
    out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(6))
    if intervals.missing(out) is None:
        lower, upper = intervals.columns(out)
        assert np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()
        found = out.interval(rows=slice(1, 4))
        if epsilon == "100000 weak":
            assert (np.abs(lower - truth[out.cells]) <= 1).all() and (upper - lower <= 2).all()
            assert found.lower <= truth.reshape(5, 7)[1:4].sum() <= found.upper <= found.lower + 3


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.haar_topdown(), ks.geometric(), ks.laplace(), ks.privelet(),
                                    ks.recipes.hierarchy("morton"), ks.recipes.matrix(workload="prefix")],
                         ids=lambda recipe: recipe.name)  # fmt: skip
def test_a_release_read_back_gives_the_same_intervals(recipe, tmp_path):
    small = recipe.name == "matrix"
    out, _ = make(recipe, Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(8, 10))) if small else None)
    out.save(str(tmp_path / "r"), unmetered=True)
    back = ks.Release.load(str(tmp_path / "r"))
    areas = [
        {},
        {"rows": slice(3, 7 if small else 17), "cols": slice(9, 10 if small else 40)},
        {"cells": np.arange(7, out.domain.size - 9, 13)},
        {"rows": 1, "cols": 1},
    ]
    for area in areas:
        assert back.interval(**area, level=0.8) == out.interval(**area, level=0.8)
    assert back.guarantee == out.guarantee and back.recipe == dict(out.recipe) and repr(back) == repr(out)
    with duckdb.connect(str(tmp_path / "r" / "release.duckdb"), read_only=True) as base:
        stored = base.execute("SELECT cell, lower, upper FROM release ORDER BY cell").fetchnumpy()
    lower, upper = intervals.columns(out)
    assert np.array_equal(stored["cell"], out.cells)
    assert np.array_equal(stored["lower"], lower) and np.array_equal(stored["upper"], upper)
    said = json.loads((tmp_path / "r" / "datapackage.json").read_text())["intervals"]
    assert said["level"] == "0.95" and "not listed" in said["absent_cells"]


def test_where_there_are_none_the_manifest_says_why(tmp_path):
    out, _ = make(ks.haar_topdown(descent="jump"))
    out.save(str(tmp_path / "r"), unmetered=True)
    said = json.loads((tmp_path / "r" / "datapackage.json").read_text())["intervals"]
    assert said["level"] is None and "jumps" in said["why"]
    with duckdb.connect(str(tmp_path / "r" / "release.duckdb"), read_only=True) as base:
        assert base.execute("SELECT count(lower), count(upper) FROM release").fetchone() == (0, 0)
    assert ks.verify(str(tmp_path / "r"))["ok"]


def test_a_matrix_told_by_its_name_has_none():
    domain = Domain.of(Nominal("x", ("a", "b")))
    rows = [[1, 1], [1, -1]]
    counts = ks.Counts.from_dense(np.array([4, 9]), domain, PERSON)
    for given, there in ((rows, True), (ks.PublicMatrix(rows, name="plan"), False)):
        out = ks.release(counts, ks.recipes.matrix(given), epsilon="1", ledger=None, source=ks.seeded(1))
        assert ("rows" in out.recipe) == there == (intervals.missing(out) is None)
    with pytest.raises(ks.DomainError, match="row by row"):
        out.interval()


def aged(folder):
    """A manifest as an earlier kasuri wrote it, without the recipe."""
    path = folder / "datapackage.json"
    data = json.loads(path.read_bytes())
    del data["privacy"]["implementation"]["recipe"]
    data["digest"] = digest(data)
    path.write_bytes(text(data))
    return data


def test_a_hierarchy_saved_before_it_had_limits_is_still_good(tmp_path, monkeypatch):
    out, _ = make(ks.recipes.hierarchy("morton"))
    why = "hierarchy with these options publishes no measurements"
    with monkeypatch.context() as before:
        before.setattr(intervals, "known", lambda release: NoBars(why))
        out.save(str(tmp_path / "r"), unmetered=True)
    assert aged(tmp_path / "r")["intervals"] == {"level": None, "why": why}
    assert ks.verify(str(tmp_path / "r"))["ok"]
    assert ks.Release.load(str(tmp_path / "r")).interval() == out.interval()


def test_absent_cells_have_an_upper_limit():
    """A cell that is not listed was released as 0, but people may be there: its limit is that of the node around it."""
    out, truth = make(ks.refined_tree(), mean=0.02, secure=False)
    absent = np.setdiff1d(np.arange(out.domain.size), out.cells)[::12]
    bars = intervals.bars_of(out)
    drawn = bars.plain.find(len(bars.plain.depths) - 1, bars.tree.keys(absent)) >= 0
    assert drawn.sum() > 20 and (~drawn).sum() > 20
    found = [out.interval(cells=[cell]) for cell in absent.tolist()]
    assert all(one.value == 0 and one.lower == 0 and one.upper > 0 for one in found)
    assert np.mean([truth.ravel()[cell] <= one.upper for cell, one in zip(absent, found, strict=True)]) >= 0.9


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.refined_tree(order="hierarchy"), ks.haar_topdown(),
                                    ks.geometric(), ks.privelet(), ks.privelet("2d"), ks.privelet("1d"),
                                    ks.refined_tree(order="1d")],
                         ids=lambda recipe: f"{recipe.name}-{recipe.parts()['order']}")  # fmt: skip
def test_coarser_levels_have_the_limits_of_their_areas(recipe, tmp_path):
    """Window corners off the coarse grid: the first and last coarse cells are cut."""
    domain = Domain.of(Mesh("grid", "500m", (8401, 6083), shape=(24, 37)), Nominal("sex", ("m", "f")))
    out, _ = make(recipe, domain)
    out.export(str(tmp_path / "r.sqlite"), levels=["1km", "5km"], unmetered=True)
    for level, side in (("1km", 2), ("5km", 10)):
        with sqlite3.connect(tmp_path / "r.sqlite") as base:
            rows = base.execute(f'SELECT row, col, sex, value, lower, upper FROM "release_{level}"').fetchall()
        assert rows
        for row, col, sex, value, lower, upper in rows[:: max(1, len(rows) // 12)]:
            start = [max(0, (8401 // side + row) * side - 8401), max(0, (6083 // side + col) * side - 6083)]
            end = [min(24, (8401 // side + row + 1) * side - 8401), min(37, (6083 // side + col + 1) * side - 6083)]
            found = out.interval(rows=slice(start[0], end[0]), cols=slice(start[1], end[1]), sex=sex)
            assert (found.value, found.lower, found.upper) == pytest.approx((value, lower, upper), abs=1e-6)


def test_codes_and_irregular_areas():
    out, truth = make(ks.refined_tree(), Domain.of(Mesh.window("grid", "5339")), mean=0.2)
    one = out.interval(code="533945")
    row, col = (4 * 20, 5 * 20)
    assert one == out.interval(rows=slice(row, row + 20), cols=slice(col, col + 20))
    chosen = np.zeros(out.domain.shape, dtype=bool)
    chosen[row : row + 20, col : col + 20] = True
    other = out.interval(cells=chosen)
    assert (other.lower, other.upper, other.value) == (one.lower, one.upper, one.value)
    assert out.area(cells=np.flatnonzero(chosen)) == one.value
    everything = out.interval()
    assert everything.lower <= truth.sum() <= everything.upper


@pytest.mark.parametrize(
    ("area", "fault"),
    [
        ({"level": 1.0}, "level must be"),
        ({"level": "0.95"}, "level must be"),
        ({"level": True}, "level must be"),
        ({"level": 0.3}, "level must be"),
        ({"cells": [10**9]}, "outside the domain"),
        ({"cells": [-1]}, "outside the domain"),
        ({"cells": [0.5]}, "cell indices"),
        ({"cells": np.ones((3, 3), dtype=bool)}, "has shape"),
        ({"cells": [1], "rows": 1}, "not both"),
        ({"rows": slice(0, 999)}, "leaves the domain"),
        ({"sex": "f"}, "no dimension"),
    ],
)
def test_bad_areas_and_levels(area, fault):
    out, _ = make(ks.refined_tree(), secure=False)
    with pytest.raises(ks.DomainError, match=fault):
        out.interval(**area)


def test_limits_that_do_not_follow_are_found(tmp_path):
    """verify computes lower and upper again from the measurements."""
    out, _ = make(ks.refined_tree())
    out.save(str(tmp_path / "r"), unmetered=True)
    assert_found_when_changed(tmp_path / "r")


def assert_found_when_changed(folder):
    from pyarrow import parquet

    from kasuri.manifest.package import digest, sha256, text

    table = parquet.read_table(folder / "release.parquet")
    upper = table["upper"].to_numpy().copy()
    upper[0] += 50
    changed = table.set_column(table.column_names.index("upper"), "upper", [upper])
    parquet.write_table(changed, folder / "release.parquet")
    with duckdb.connect(str(folder / "release.duckdb")) as base:
        base.execute("UPDATE release SET upper = upper + 50 WHERE cell = (SELECT min(cell) FROM release)")
    manifest = json.loads((folder / "datapackage.json").read_text())
    for item in manifest["resources"]:
        item["hash"] = sha256((folder / item["path"]).read_bytes())
    manifest["digest"] = digest(manifest)
    (folder / "datapackage.json").write_bytes(text(manifest))
    faults = ks.verify(str(folder))["faults"]
    assert any("does not follow from the measurements" in fault for fault in faults), faults
    own = ks.Release.load(str(folder)).interval(cells=[table["cell"][0].as_py()])
    assert own.upper < upper[0], "made from the measurements: what is written of a cell is not handed on"


def cut(tree, keys, level):
    """The rule by which releases were saved before: every limit cut by the least of those around it."""
    c, upper, lower = bounds.factor(level), np.full(keys.size, np.inf), np.zeros(keys.size)
    for at, own in enumerate(tree.levels):
        node, half = tree.find(at, keys // tree.order.stride(tree.depths[at])), c * np.sqrt(own.f)
        there = node >= 0
        upper[there] = np.minimum(upper, np.maximum(own.x + half, half / 2)[node])[there]
    lower[there] = np.clip((own.x - half)[node], 0.0, upper)[there]
    return lower, upper, upper


def pooled(tree, keys, level):
    """The rule after that: windows that begin anywhere."""
    return OF_CELLS(tree, keys, level, around.pooled(tree, level, around.EVER))


def twice(tree, keys, level):
    """And the one after that: two windows."""
    return OF_CELLS(tree, keys, level, around.pooled(tree, level))


OF_CELLS = bounds.of_cells
POOLED = "; pooled with the nodes around it"
TWICE = POOLED + ", in two windows at most"
EARLIER = [(cut, ""), (pooled, POOLED), (twice, TWICE)]


@pytest.mark.parametrize("old", [True, False], ids=["another version", "the same version"])
@pytest.mark.parametrize(("rule", "words"), EARLIER, ids=["cut", "pooled", "two windows"])
@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.haar_topdown()], ids=lambda recipe: recipe.name)
def test_limits_saved_by_an_earlier_rule_are_known(recipe, rule, words, old, tmp_path, monkeypatch):
    """A release saved with them can be read; with others under that name it cannot."""
    out, _ = make(recipe)
    today = intervals.columns(out)
    what = "counts" if recipe.name == "refined_tree" else "differences"
    with monkeypatch.context() as earlier:
        method = f"least squares of the noisy {what} of the drawn tree, without sign constraint{words}"
        earlier.setattr(bounds, "of_cells", rule)
        earlier.setattr(bounds, "said", lambda tree, level: around.pooled(tree, level, (9.0, 9.0)))  # of areas
        earlier.setattr(intervals.TreeBars, "method", method)
        earlier.setattr(intervals, "stepped", lambda bars: False)
        out.save(str(tmp_path / "r"), unmetered=True)
        if rule is not twice or recipe.name != "refined_tree":  # whose cells may have the limits of today
            assert not np.array_equal(intervals.columns(out), today)
    if old:
        aged(tmp_path / "r")
    found = ks.verify(str(tmp_path / "r"))
    assert found["ok"], found["faults"]
    dated = any("intervals of its larger areas" in note for note in found["not_recomputed"])
    assert dated != old or recipe.name == "refined_tree"  # whose blocks are drawn nodes, so that the report is the same
    back = ks.Release.load(str(tmp_path / "r"))
    assert np.array_equal(intervals.columns(back), today) and back.interval(rows=1) == out.interval(rows=1)
    assert_found_when_changed(tmp_path / "r")


@pytest.mark.parametrize("old", [True, False], ids=["another version", "the same version"])
def test_a_report_whose_areas_believed_what_they_cut_is_known(old, tmp_path, monkeypatch):
    """Its cells have the limits of today."""
    out, _ = make(ks.haar_topdown())
    with monkeypatch.context() as earlier:
        (method,) = intervals.bars_of(out).earlier_of_areas
        assert method.endswith(f"{TWICE}, or weighed against the way to it")
        earlier.setattr(bounds, "_DOUBT", (0.0, 0.0))
        earlier.setattr(intervals.TreeBars, "method", method)
        out.save(str(tmp_path / "r"), unmetered=True)
    if old:
        aged(tmp_path / "r")
    found = ks.verify(str(tmp_path / "r"))
    assert found["ok"], found["faults"]
    assert any("intervals of its larger areas" in note for note in found["not_recomputed"]) != old
    assert_found_when_changed(tmp_path / "r")


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.haar_topdown()], ids=lambda recipe: recipe.name)
def test_limits_of_one_rule_under_the_name_of_another_are_found(recipe, tmp_path, monkeypatch):
    out, _ = make(recipe)
    with monkeypatch.context() as other:
        other.setattr(bounds, "of_cells", cut)
        out.save(str(tmp_path / "r"), unmetered=True)
    assert any("does not follow" in fault for fault in ks.verify(str(tmp_path / "r"))["faults"])


@pytest.mark.parametrize("recipe", [ks.geometric(), ks.woven_tree(whole=True)], ids=lambda recipe: recipe.name)
def test_limits_of_noise_that_goes_in_steps(recipe):
    """A full table: nothing but noise. At epsilon 3 nine numbers of ten have none, and a quantile of a law without
    steps, rounded inward, covered two cells in 80 of 100 cases."""
    domain = Domain.of(Mesh("g", shape=(16, 16)))
    counts = ks.Counts.from_dense(np.full((16, 16), 300), domain, Unit("person", "add-remove", 1), data="full")
    for epsilon in ("1", "3"):
        kept = {side: [] for side in (1, 2, 8)}
        for seed in range(4):
            out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
            for side, held in kept.items():
                for first in range(0, 256, 8):
                    found = out.interval(cells=list(range(first, first + side)))
                    held.append(found.lower <= 300 * side <= found.upper)
        assert min(np.mean(held) for held in kept.values()) >= 0.92, {s: np.mean(h) for s, h in kept.items()}


@pytest.mark.parametrize("recipe", [ks.haar_topdown(), recipes.privelet()], ids=lambda recipe: recipe.name)
def test_limits_of_differences_that_go_in_steps(recipe):
    """Two cells at epsilon 4, a sum and a difference: 95 % were 90 % (haar_topdown) and 92 % (privelet)."""
    counts = ks.Counts.from_dense(np.full(2, 300), Domain.of(ks.Ordered("a", 2)), PERSON, data="full")
    held = []
    for seed in range(300):
        out = ks.release(counts, recipe, epsilon="4", ledger=None, source=ks.seeded(seed), threads=1)
        lower, upper = intervals.columns(out)
        held += ((lower <= 300) & (upper >= 300)).tolist()
    assert np.mean(held) >= 0.96, np.mean(held)


def test_limits_of_privelet_saved_before_steps_were_known(tmp_path, monkeypatch):
    counts = ks.Counts.from_dense(np.full(64, 300), Domain.of(ks.Ordered("a", 64)), PERSON, data="full")
    out = ks.release(counts, recipes.privelet(), epsilon="6", ledger=None)
    with monkeypatch.context() as before:
        before.setattr(intervals, "stepped", lambda bars: False)
        before.setattr(intervals.FullBars, "method", intervals.FullBars.earlier[0])
        out.save(str(tmp_path / "r"), unmetered=True)
        old = intervals.columns(out)
    assert not np.array_equal(old, intervals.columns(out))
    found = ks.verify(str(tmp_path / "r"))
    assert found["ok"], found["faults"]
    assert_found_when_changed(tmp_path / "r")
