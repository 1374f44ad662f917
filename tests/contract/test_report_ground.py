"""What lies below a map: public, small, the same for every release; degrees of every window; epsilon in words."""

import json
import math
import re
import shutil

import numpy as np
import pyproj
import pytest

import kasuri as ks
from kasuri.manifest.package import digest, sha256, text
from kasuri.report import compare, frame, ground, levels, page, promise, reliability, window
from kasuri.report.compare import around

UNIT = ks.Unit("person", "add-remove", 1)
KANTO = ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(512, 512))
EUROPE = ks.Grid("home", scheme="eu", level="1km", origin=(2800, 3600), shape=(512, 512))
WORLD = ks.Grid("g", crs="EPSG:4326", step=1, anchor=0, origin=(-60, -180), shape=(140, 360))
FIJI = ks.Grid("g", crs="EPSG:4326", step="0.1", anchor=0, origin=(-200, 1750), shape=(60, 100))
UTM = ks.Grid("g", crs="EPSG:32654", step=1000, anchor=0, origin=(3900, 300), shape=(100, 100))
TILES = ks.Grid("g", scheme="quadkey", level="12", origin=(2480, 3600), shape=(40, 60))


def save(folder, seed, recipe=None):
    domain = ks.Domain.of(ks.Mesh("grid", level="1km", origin=(4272, 3168), shape=(12, 10)))
    values = np.random.default_rng(seed).poisson(9 * seed, domain.shape)
    counts = ks.Counts.from_dense(values, domain, UNIT, data="c")
    ks.release(counts, recipe or ks.geometric(), epsilon="1", ledger=None).save(str(folder), unmetered=True)
    return folder


def parts(folder):
    head, packed, _ = around((folder / "report.html").read_text(encoding="utf-8"))
    told = json.loads(head.rpartition('id="view">')[2].partition("</script>")[0])["parts"]
    return [(what["what"], what["about"], one) for what, one in zip(told, packed.split(".")[1:], strict=True)]


def test_the_ground_is_the_same_for_every_release_of_a_domain(tmp_path):
    folders = [save(tmp_path / str(seed), seed) for seed in (1, 5)]
    (a,), (b,) = ([part for part in parts(folder) if part[0] == "ground"] for folder in folders)
    one, two = (around((folder / "report.html").read_text(encoding="utf-8"))[1] for folder in folders)
    assert a == b and one != two


@pytest.mark.parametrize("axis", [KANTO, EUROPE, WORLD, FIJI, UTM, TILES], ids=lambda axis: axis.name)
def test_the_ground_is_small_and_inside_its_window(axis):
    place = window.of_plane(axis)
    told, packed = ground.of(place)
    assert told["names"] > 3 and 500 < len(packed) < 60_000
    assert ground.of(place) == (told, packed), "made twice, made the same"
    lon, lat = np.array(place.told()["lon"]), np.array(place.told()["lat"])
    bounds = lon.min() - 0.2, lat.min() - 0.2, lon.max() + 0.2, lat.max() + 0.2
    for kind, points in ground._projected(place, bounds, {*range(4)}):
        assert (points >= -1e-6).all() and (points <= np.array(place.size) + 1e-6).all()
        assert kind != ground.RING or np.array_equal(points[0], points[-1])


def test_a_grid_without_a_place_has_no_ground():
    assert ground.of(window.of_plane(ks.Mesh("grid", shape=(9, 9)))) is None


@pytest.mark.parametrize("axis", [KANTO, EUROPE, FIJI, UTM, TILES], ids=lambda axis: axis.name)
def test_degrees_are_those_of_the_reference_system(axis):
    place = window.of_plane(axis)
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, axis.shape[1], 50), rng.uniform(0, axis.shape[0], 50)
    lon, lat = place.degrees(x, y)
    again = place.place(lon, lat)
    assert np.allclose(again[0], x, atol=1e-5) and np.allclose(again[1], y, atol=1e-5)
    west, south, east, north = axis.extent()
    east_of, north_of = west + x / axis.shape[1] * (east - west), north - y / axis.shape[0] * (north - south)
    true = pyproj.Transformer.from_crs(axis.epsg, 4326, always_xy=True).transform(east_of, north_of)
    assert np.allclose((lon + 180) % 360, (true[0] + 180) % 360, atol=2e-6) and np.allclose(lat, true[1], atol=2e-6)


def test_the_old_japanese_datum_is_moved():
    old, new = (
        window.of_plane(ks.Mesh("g", "1km", (4272, 3168), shape=(9, 9), crs=crs)) for crs in ("Tokyo", "JGD2011")
    )
    lon, lat = old.degrees(np.array([4.0]), np.array([4.0]))
    there = pyproj.Transformer.from_crs(4301, 6668, always_xy=True).transform(*new.degrees(4.0, 4.0))
    assert abs(lon[0] - there[0]) < 2e-4 and abs(lat[0] - there[1]) < 2e-4
    x, y = old.place(lon, lat)
    assert abs(x[0] - 4) < 0.01 and abs(y[0] - 4) < 0.01


def test_epsilon_in_words():
    assert promise.belief(0.1) == pytest.approx(math.exp(0.1) / (1 + math.exp(0.1)))
    words = promise.sentence("0.1", "0", "person", "add-remove")
    assert (
        "at most 52.5 % sure." in words.en and "高くても 52.5 % です" in words.ja and "rules out little" not in words.en
    )
    weak = promise.sentence("10", "1e-6", "person", "replace")
    assert "99.9955 % sure (but for cases of probability 1 in 1,000,000 at most)" in weak.en
    assert "1,000,000 分の 1 以下" in weak.ja and "rules out little" in weak.en
    assert not promise.per_cent(promise.belief(40), up=True).startswith("100"), "never told to be certain"
    assert promise.per_cent(0.50001, up=True) == "50.1" and promise.per_cent(0.49999, up=False) == "49.9"
    assert "<rect" in promise.picture("700", False)


def test_the_budget_is_a_bar(tmp_path):
    ledger = {"after": {"allowance": "2", "left": "1"}, "before": {"left": "1.5"}, "charged": {"currency": "epsilon"}}
    bar = promise.budget({"ledger": ledger})
    assert 'class="spent" style="width:25%"' in bar and 'class="own" style="width:25%"' in bar
    assert "0.5 by this release, 1 left" in bar and "No ledger" in promise.budget({"ledger": None})


def test_errors_after_refinement_are_those_of_the_intervals():
    kind = reliability.Kind(frame.Text("cells", "セル"), np.array([10.0, 100, 1000] * 8), np.array([5.0, 10, 20] * 8))
    table, chart = reliability.body([kind], 95, secret=False)[1:]
    assert "± 10.0 %" in table.replace("± 10 %", "± 10.0 %") and "67 %" in table and "<polyline" in chart
    assert reliability.body([], 95, secret=False) == []


def kind(name, *shares, rest=reliability.NOTHING):
    value = np.full(len(shares), 100.0)
    return reliability.Kind(frame.Text(name, name), value, np.array(shares, float), rest)


def test_the_first_numbers_name_the_smallest_areas_that_most_may_use():
    cells, towns, whole = (
        kind("cell", 5, 20, 30, 40),
        kind("town", 5, 10, 11, rest=frame.Text("age: all", "合計")),
        kind("all", 1),
    )
    heading, name, words = reliability.tile([whole, towns, cells])
    assert "Good to use from" in heading and ">towns<" in name
    assert (
        "67\u00a0% within ±\u00a010\u00a0% (age: all)" in words
        and "67\u00a0% が ±\u00a010\u00a0% 以内（合計）" in words
    )
    assert reliability.tile([whole, cells])[1] == "all" and "or better" in reliability.tile([whole, cells])[2]
    assert reliability.tile([cells, kind("all", 11)])[1] == "–", "no size of area is good"
    assert reliability.tile([cells]) is None, "nobody knows of larger ones"
    assert reliability.tile([]) is None and reliability.tile([kind("none")]) is None


def test_the_table_of_errors_has_every_size_of_area_when_there_are_more_axes(tmp_path):
    """All else added up; half of the intervals that Python computes."""
    mesh, sex = ks.Mesh("grid", level="1km", origin=(4280, 3170), shape=(10, 10)), ks.Nominal("sex", ("f", "m"))
    domain = ks.Domain.of(sex, mesh)
    counts = ks.Counts.from_dense(np.random.default_rng(1).poisson(90, domain.shape), domain, UNIT, data="c")
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    out, about = ks.Release.load(str(tmp_path / "r")), page.read_manifest(tmp_path / "r")
    kinds = levels.kinds(page.Sheet.read(tmp_path / "r", about), page.ranges_of(tmp_path / "r", about))
    assert [(one.name.en, one.rest.en, one.value.size) for one in kinds] == [
        ("1 km cells", "by sex", 200), ("1 km cells", "sex: all", 100), ("2 km cells", "sex: all", 25),
        ("5 km cells", "sex: all", 4), ("10 km cells", "sex: all", 1), ("80 km cells", "sex: all", 1),
        ("everything", "", 1),
    ]  # fmt: skip
    for one, rows in ((kinds[2], 2), (kinds[3], 5)):
        found = out.interval(rows=slice(0, rows), cols=slice(0, rows))
        assert one.half[0] == (found.upper - found.lower) / 2 and one.value[0] == found.value
    text = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert '2 km cells</span><span lang="ja">2kmメッシュ</span><span class="rest">' in text and "性別は合計" in text


def test_the_chart_of_errors_ends_where_differences_no_longer_matter():
    values = np.repeat(10.0 ** np.arange(1, 9), 8)
    (_, _, drawn) = reliability.body(
        [reliability.Kind(frame.Text("a", "a"), values, np.full(64, 5.0))], 95, secret=False
    )
    assert "≤ 0.01 %" in drawn and "0.001 %" not in drawn


def test_pages_whose_intervals_are_of_an_earlier_rule_are_compared_without_what_rests_on_them(tmp_path):
    found = (save(tmp_path / "r", 9) / "report.html").read_text(encoding="utf-8")
    heading = f"<dt>{reliability.HEADING.html()}</dt>"
    assert found.count(heading) == 2, "on the screen and on paper"
    other = re.sub(f"({re.escape(heading)}.*?)km", r"\g<1>mile", found)
    assert found != other and compare.same(found, other, rounding=math.inf) and not compare.same(found, other)
    assert not compare.same(found, found.replace("one person", "no person"), rounding=math.inf)


def test_a_page_of_an_earlier_form_is_judged_by_its_hash_and_said_so(tmp_path):
    folder = save(tmp_path / "r", 3)
    assert ks.verify(folder)["not_recomputed"] == [] or "report.html" not in str(ks.verify(folder)["not_recomputed"])
    path = folder / "report.html"
    path.write_text(path.read_text(encoding="utf-8").replace(frame.FORM, ""), encoding="utf-8")
    manifest = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    for item in manifest["resources"]:
        item["hash"] = sha256((folder / item["path"]).read_bytes())
    manifest["digest"] = digest(manifest)
    (folder / "datapackage.json").write_bytes(text(manifest))
    found = ks.verify(folder)
    assert found["ok"] and "earlier form" in str(found["not_recomputed"])
    shutil.copy(folder / "certificate.md", path)
    assert not ks.verify(folder)["ok"]
