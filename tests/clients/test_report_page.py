"""Reports in a real browser: what the page shows against the Parquet file, and that it asks nobody for anything."""

import json
import math
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clients.browser import CHROMIUM

import kasuri as ks
from kasuri import examples
from kasuri.ingest import read_table
from kasuri.report import frame, page

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".tools" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def kanto(tmp_path_factory):
    """The census around Tokyo, released and saved."""
    folder = tmp_path_factory.mktemp("kanto") / "release"
    domain = examples.kanto_domain()
    counts = ks.count(read_table(examples.KANTO), domain, columns={"grid": "mesh_code"}, unit=examples.person(),
                      weight="population", data="census-2020-kanto")  # fmt: skip
    ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None).save(str(folder), unmetered=True)
    return folder


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A mesh with a sea, hours and sexes, some values negative."""
    folder = tmp_path_factory.mktemp("several") / "release"
    sea = np.zeros((40, 40), dtype=bool)
    sea[:6, 20:] = True
    domain = ks.Domain.of(
        ks.Time("hour", "2020-10-01T00:00", seconds=3600, size=3),
        ks.Mesh("grid", level="1km", origin=(4243, 3125), shape=(40, 40)),
        ks.Nominal("sex", ("female", "male")),
        mask={"grid": sea},
    )
    values = np.random.default_rng(1).poisson(20, domain.shape)
    values[:, sea] = 0
    counts = ks.Counts.from_dense(values, domain, ks.Unit("phone", "add-remove", 2), data="flow<2020>")
    ks.release(counts, ks.geometric(), epsilon="0.5", ledger=None).save(str(folder), unmetered=True)
    return folder


def place(browser, row, col):
    """Where the middle of a cell of the window is on the screen."""
    return browser.run(
        "(() => { const c = document.getElementById('canvas'), v = c.viewer, r = c.getBoundingClientRect();"
        f"return [r.left + v.toX({col} + .5), r.top + v.toY(v.axis.rows - {row} - .5)]; }})()"
    )


def at(browser, row, col):
    """What the page says when the mouse is on a cell."""
    x, y = place(browser, row, col)
    browser.mouse("mouseMoved", x, y)
    browser.settle()
    return said(browser)


def said(browser):
    names = "['where', 'value', 'interval', 'layer', 'truth', 'error']"
    return browser.run(
        f"Object.fromEntries({names}.map((k) => [k, document.getElementById('read-' + k)?.textContent]))"
    )


def to_map(browser):
    browser.run("document.getElementById('stage').scrollIntoView()")
    browser.settle()


def picture(browser, name, tmp_path):
    """A screenshot; kept where KASURI_PICTURES names a folder, for people to look at."""
    path = tmp_path / name
    browser.picture(path)
    assert path.stat().st_size > 20_000
    if kept := os.environ.get("KASURI_PICTURES"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)


def quiet(browser, path):
    assert browser.complaints == []
    assert set(browser.requests) == {path.resolve().as_uri()}


def test_the_map_against_the_table(kanto, browser, tmp_path):
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    path = kanto / "report.html"
    assert path.stat().st_size < 600_000
    browser.open(path)
    picture(browser, "report-desktop.png", tmp_path)
    to_map(browser)
    colours = browser.run(
        "(() => { const c = document.getElementById('canvas'); const d = new Uint32Array(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.buffer); return new Set(d).size; })()"
    )
    assert colours > 100, "the map is drawn"
    ranked = table.sort_values("value")
    top, middle = ranked.iloc[-1], ranked.iloc[len(ranked) // 2]
    whole = browser.run("document.getElementById('canvas').viewer.box.s")
    x, y = place(browser, top.row, top.col)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=400)
    browser.settle()
    assert browser.run("document.getElementById('canvas').viewer.box.s") == whole, "the wheel is the page's"
    browser.run("scrollTo(0, 0)")
    to_map(browser)
    x, y = place(browser, top.row, top.col)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400, modifiers=2)  # with Ctrl
    browser.settle()
    assert browser.run("document.getElementById('canvas').viewer.box.s") > whole
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, x, y, button="left", clickCount=1)
    for _ in range(3):
        browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
        browser.settle()
    assert browser.run("document.getElementById('canvas').viewer.box.s") > 8 * whole, "the wheel zooms"
    listed = set(zip(table.row, table.col, strict=True))
    empty = next((r, c) for r in range(50, 512) for c in range(50, 512) if (r, c) not in listed)
    near = at(browser, top.row, top.col)
    assert near["value"] == f"{top.value:,}" and str(top.mesh_code) in near["where"]
    browser.run("document.getElementById('all').click()")
    found = at(browser, middle.row, middle.col)
    assert found["value"] == f"{middle.value:,}" and str(middle.mesh_code) in found["where"]
    none = at(browser, *empty)
    assert none["value"] == "0" and "interval" not in none
    if table.lower.notna().any():
        assert found["interval"] == f"{middle.lower:,.0f} to {middle.upper:,.0f}"
    else:
        assert "No interval is stored" in browser.run("document.getElementById('map').innerText")
    # 1 km: the first eight digits; 10 km: the first six
    for level, digits in (("1", 8), ("4", 6)):
        browser.choose("level", level)
        code = str(top.mesh_code)[:digits]
        total = table.value[table.mesh_code.astype(str).str.startswith(code)].sum()
        found = at(browser, top.row, top.col)
        assert found["value"] == f"{total:,}" and f" {code}" in found["where"]
    browser.choose("scale", "linear")
    browser.choose("go", str(middle.mesh_code))
    assert said(browser)["value"] == f"{middle.value:,}"
    browser.run("document.querySelector('[data-language=ja]').click()")
    browser.settle()
    assert browser.run("document.documentElement.lang") == "ja" and "保護しています" in browser.run("document.title")
    words = browser.run("document.body.innerText")
    assert "公表値" in words and "保証の内容" in words and "What is promised" not in words
    assert "対数" in words and "logarithmic" not in words and "500mメッシュ" in words
    quiet(browser, path)


def test_keyboard_and_table_of_the_largest(kanto, browser):
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    value = {(r, c): v for r, c, v in zip(table.row, table.col, table.value, strict=True)}
    browser.open(kanto / "report.html")
    browser.run("document.getElementById('canvas').focus()")
    top = table.sort_values("value").iloc[-1]
    browser.choose("go", str(top.mesh_code))
    browser.run("document.getElementById('canvas').focus()")
    moves = [("ArrowUp", 1, 0), ("ArrowRight", 0, 1), ("ArrowDown", -1, 0), ("ArrowDown", -1, 0), ("ArrowLeft", 0, -1)]
    row, col = int(top.row), int(top.col)
    for key, dr, dc in moves:
        browser.key(key)
        browser.settle()
        row, col = row + dr, col + dc
        assert said(browser)["value"] == f"{value.get((row, col), 0):,}"
    browser.key("PageUp")
    browser.settle()
    assert browser.run("document.getElementById('level').value") == "1"
    before = browser.run("document.getElementById('canvas').viewer.box.s")
    browser.key("-")
    browser.key("-")
    assert browser.run("document.getElementById('canvas').viewer.box.s") < before
    browser.key("PageDown")
    browser.run("document.getElementById('largest-box').open = true")
    first = browser.run("document.querySelector('#largest tbody tr').innerText").split()
    assert first[:2] == [str(top.mesh_code), f"{top.value:,}"]
    quiet(browser, kanto / "report.html")


def test_a_phone(kanto, browser, tmp_path):
    browser.size(390, 844, phone=True)
    path = kanto / "report.html"
    browser.open(path, "#ja")
    assert browser.run("document.documentElement.lang") == "ja"
    assert browser.run("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
    picture(browser, "report-phone.png", tmp_path)
    to_map(browser)
    before = browser.run("document.getElementById('canvas').viewer.box.s")
    x, y = place(browser, 256, 256)
    browser.touch("touchStart", (x - 20, y), (x + 20, y))
    for reach in (40, 60, 80):
        browser.touch("touchMove", (x - reach, y), (x + reach, y))
    browser.touch("touchEnd")
    browser.settle()
    assert browser.run("document.getElementById('canvas').viewer.box.s") > 2 * before, "two fingers zoom"
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    top = table.sort_values("value").iloc[-1]
    browser.choose("go", str(top.mesh_code))
    browser.touch("touchStart", place(browser, top.row, top.col))
    browser.touch("touchEnd")
    browser.settle()
    assert said(browser)["value"] == f"{top.value:,}"
    picture(browser, "report-phone-map.png", tmp_path)
    assert browser.complaints == [] and len(set(browser.requests)) == 1


READ_OUT = {
    "#en": r"500 m cells \d{{9}} · row {row}, column {col} · [\d.]+° N [\d.]+° E:\s+"
    r"Released: {value:,};\s+95 % interval: {lower:,.0f} to {upper:,.0f}",
    "#ja": r"500mメッシュ \d{{9}} · 行 {row}、列 {col} · [\d.]+° N [\d.]+° E：\s*"
    r"公表値：{value:,}、\s*95 % 信頼区間：{lower:,.0f} 〜 {upper:,.0f}",
}


@pytest.mark.parametrize("language", READ_OUT)
def test_the_read_out_is_text_that_can_be_copied_and_read_aloud(kanto, browser, language, tmp_path):
    """The released value and "95 % interval" beside it were one number to whoever copied or heard them."""
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    cell = table[(table.lower < table.value) & (table.value < table.upper)].sort_values("value").iloc[-1]
    browser.open(kanto / "report.html", language)
    to_map(browser)
    browser.choose("go", str(cell.mesh_code))
    wanted = READ_OUT[language].format(**cell.to_dict())
    copied = browser.run(
        "(() => { const chosen = getSelection(); chosen.selectAllChildren(document.getElementById('readout'));"
        "const text = chosen.toString(); chosen.removeAllRanges(); return text; })()"
    )
    whole = browser.run("document.getElementById('readout').textContent")
    for text in (copied, browser.run("document.getElementById('readout').innerText"), whole.strip()):
        assert re.fullmatch(wanted, text), text
    heard = "".join(browser.spoken("#readout"))  # whether or not a reader pauses between two pieces
    assert re.fullmatch(wanted.replace(r"\s+", r"\s*"), heard), heard
    picture(browser, f"report-read-out-{language[1:]}.png", tmp_path)
    row, col = np.divmod(np.setdiff1d(np.arange(512 * 512), table.cell)[1000:1001], 512)
    code = examples.kanto_domain().planes[0].column([row, col])["mesh_code"][0].as_py()
    browser.choose("go", str(code))  # nobody there: a remark stands in brackets after what it is about
    remark = {"#en": r"Released: 0 \(not listed.*\)", "#ja": r"公表値：0\(掲載なし.*\)"}[language]
    assert re.fullmatch(remark, browser.run("document.getElementById('readout').innerText").splitlines()[1])
    quiet(browser, kanto / "report.html")


def test_a_grid_without_a_level_is_drawn_without_coordinates(tmp_path, browser):
    domain = ks.Domain.of(ks.Mesh("grid", origin=(40, 60), shape=(9, 12)))
    counts = ks.Counts.from_dense(np.random.default_rng(2).poisson(30, domain.shape), domain, examples.person(),
                                  data="paris")  # fmt: skip
    ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(tmp_path / "r")["ok"]
    browser.open(tmp_path / "r" / "report.html")
    assert browser.run("document.querySelector('#map h2').innerText") == "The grid"
    to_map(browser)
    found = at(browser, 4, 7)
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas()
    assert found["value"] == f"{table.value[(table.row == 4) & (table.col == 7)].sum():,}"
    assert found["where"] == "1 cell · row 4, column 7:"
    assert browser.run("document.getElementById('canvas').getAttribute('aria-label')").startswith("Grid of")
    assert browser.run("document.getElementById('go')") is None, "there are no mesh codes to go to"
    text = browser.run("document.querySelector('main').textContent")
    assert "°" not in text and "500m" not in text
    picture(browser, "report-grid.png", tmp_path)
    quiet(browser, tmp_path / "r" / "report.html")


def test_other_axes_are_chosen_from(several, browser, tmp_path):
    table = pq.read_table(several / "release.parquet").to_pandas()
    browser.open(several / "report.html")
    to_map(browser)
    assert "flow<2020>" in browser.run("document.querySelector('h1').innerText")
    one = table[(table.row == 20) & (table.col == 7)]
    assert at(browser, 20, 7)["value"] == f"{one.value.sum():,}"
    browser.choose("axis-sex", "1")
    assert at(browser, 20, 7)["value"] == f"{one.value[one.sex == 'male'].sum():,}"
    browser.choose("axis-hour", "2")
    chosen = one.value[(one.sex == "male") & (one.hour == 2)].sum()
    assert at(browser, 20, 7)["value"] == f"{chosen:,}"
    assert at(browser, 2, 30)["value"] == "0"
    assert "outside what is possible" in browser.run("document.getElementById('readout').innerText")
    assert (table.value < 0).any() and browser.run("document.getElementById('canvas').viewer.top.low") < 0
    picture(browser, "report-several.png", tmp_path)
    # the window's corner cuts the 10 km mesh: the part inside is shown, and said to be a part
    browser.choose("axis-sex", "-1")
    browser.choose("axis-hour", "-1")
    browser.choose("level", "3")
    code = str(table.mesh_code[(table.row == 0) & (table.col == 0)].iloc[0])[:6]
    total = table.value[table.mesh_code.astype(str).str.startswith(code)].sum()
    found = at(browser, 0, 0)
    assert found["value"] == f"{total:,}" and code in found["where"] and "outside the window" in found["where"]
    quiet(browser, several / "report.html")


def test_origins_and_destinations(tmp_path, browser):
    """Two meshes: one is the map, a mesh code of the other chooses; and they can change places."""
    domain = ks.Domain.of(
        ks.Mesh("home", level="1km", origin=(4272, 3168), shape=(8, 9)),
        ks.Mesh("work", level="500m", origin=(8544, 6336), shape=(10, 6)),
    )
    counts = ks.Counts.from_dense(
        np.random.default_rng(3).poisson(2, domain.shape), domain, examples.person(), data="od"
    )
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas()
    browser.open(tmp_path / "r" / "report.html")
    to_map(browser)
    here = table[(table.home_row == 3) & (table.home_col == 5)]
    assert at(browser, 3, 5)["value"] == f"{here.value.sum():,}"
    code = int(here.work_mesh_code.iloc[4])
    browser.choose("axis-work", str(code))
    assert at(browser, 3, 5)["value"] == f"{here.value[here.work_mesh_code == code].sum():,}"
    browser.choose("axis-work", "99")
    assert browser.run("document.getElementById('axis-work').getAttribute('aria-invalid')") == "true"
    browser.choose("axis-work", "")
    browser.choose("mesh", "1")
    assert "500 m" in browser.run("document.getElementById('level').innerText")
    there = table[(table.work_row == 9) & (table.work_col == 0)]
    assert at(browser, 9, 0)["value"] == f"{there.value.sum():,}"
    quiet(browser, tmp_path / "r" / "report.html")


def test_tables_without_a_mesh_are_bars(tmp_path, browser):
    domain = ks.Domain.of(ks.Ordered("age", 3, ("0-19", "20-64", "65+")), ks.Nominal("ward", ("a", "b")))
    counts = ks.Counts.from_dense(np.array([[5, 9], [50, 3], [20, 8]]), domain, examples.person(), data="wards")
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas()
    browser.open(tmp_path / "r" / "report.html")

    def shown():
        return browser.run("[...document.querySelectorAll('#bars tbody tr')].map((r) => [r.cells[0].innerText, "
                           "r.cells[2].innerText])")  # fmt: skip

    assert shown() == [[a, str(table.value[table.age == a].sum())] for a in ("0-19", "20-64", "65+")]
    browser.choose("axis-ward", "1")
    assert shown() == [
        [a, str(table.value[(table.age == a) & (table.ward == "b")].sum())] for a in ("0-19", "20-64", "65+")
    ]
    browser.choose("along", "1")
    assert [row[0] for row in shown()] == ["a", "b"]
    quiet(browser, tmp_path / "r" / "report.html")


def test_an_estimate_with_its_intervals(tmp_path, browser):
    from kasuri.report.local import estimate_page

    oue = ks.local.oue(ks.Mesh("grid", shape=(9, 7)), epsilon="3")
    found = ks.local.estimate(oue.randomize(np.random.default_rng(1).integers(0, 63, 5000)), oue)
    path = tmp_path / "estimate.html"
    path.write_text(estimate_page(found.to_json(), oue.domain, "phones"), encoding="utf-8")
    browser.open(path)
    to_map(browser)
    low, high = found.interval()
    for row, col in ((0, 0), (4, 6), (8, 2)):
        i = row * 7 + col
        seen = at(browser, row, col)
        assert abs(float(seen["value"].replace(",", "")) - found.counts[i]) <= 0.5001, "whole people"
        a, b = (float(end.replace(",", "")) for end in seen["interval"].split(" to "))
        assert low[i] - 1 <= a <= low[i] + 1e-6 and high[i] - 1e-6 <= b <= high[i] + 1, "rounded outwards"
    browser.choose("layer", "share")
    assert "95 %" in browser.run("document.getElementById('readout').innerText")
    quiet(browser, path)


def joined_page(path):
    """A report on rows of two organisations, written to `path`; their means and standard errors."""
    plan = ks.shuffle.Plan(key="phone", a=("age", "sex"), b=("spend", "member"),
                           bounds={"age": (20, 80), "spend": (0, 1000)},
                           categories={"sex": ("F", "M"), "member": ("no", "<b>yes</b>", "was")},
                           epsilon_each="1", delta=1e-8)  # fmt: skip
    rng, n = np.random.default_rng(4), 4000
    phone, age = [f"{i:06d}" for i in range(n)], rng.uniform(20, 80, n)
    rows = {
        "a": {"phone": phone, "age": age, "sex": np.array(["F", "M"])[rng.integers(0, 2, n)]},
        "b": {"phone": phone, "spend": 8 * age, "member": np.array(["no", "<b>yes</b>", "was"])[rng.integers(0, 3, n)]},
    }
    tables = []
    for side, secret in zip("ab", ks.shuffle.Secret.pair(), strict=True):
        with ks.shuffle.Party(plan, side, secret) as party:
            tables.append(party.run(rows[side]))
    joined = ks.shuffle.join(plan, *tables)
    made = ks.shuffle.synthesize(joined, rows=2000)
    path.write_text(ks.shuffle.report(joined, synthetic=made), encoding="utf-8")
    return ks.shuffle.covariance(joined)


def test_a_joined_table_of_two_organisations(tmp_path, browser):
    path = tmp_path / "joined.html"
    found = joined_page(path)
    browser.open(path)
    seen = browser.run("[...document.querySelectorAll('#means tbody tr')].map((r) => r.cells[2].innerText)")
    for words, mean, error, name in zip(seen, found.mean, found.mean_error, found.names, strict=True):
        value, spread = (float(word.replace(",", "")) for word in words.removesuffix(" %").split(" ± "))
        factor = 100 if "=" in name else 1
        assert abs(value - factor * mean) <= 0.06 * factor * error, name
        assert abs(spread - factor * error) <= 0.06 * factor * error, name
    assert browser.run("document.querySelector('#means').innerText").count("<b>yes</b>") == 1, "a label stays text"
    picture(browser, "joined-desktop.png", tmp_path)
    browser.run("document.querySelector('[data-language=ja]').click()")
    words = browser.run("document.body.innerText")
    assert "保証の内容" in words and "What is promised" not in words and "組織 a" in words
    browser.size(390, 844, phone=True)
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") <= 390
    picture(browser, "joined-phone.png", tmp_path)
    quiet(browser, path)


def test_intervals_of_a_release(kanto, browser, tmp_path):
    """Columns lower and upper under the cursor, and as a map of relative errors."""
    about = page.read_manifest(kanto)
    sheet = page.Sheet.read(kanto, about)
    reach = np.where(sheet.cells % 3 == 0, 30.0, 5 + np.sqrt(sheet.values))
    lower, upper = np.maximum(sheet.values - np.rint(reach), 0), sheet.values + np.rint(2 * reach)
    lower[0] = upper[0] = np.nan
    words = [frame.markdown(page.text_of(kanto / name)) for name in page.CERTIFICATES]
    path = tmp_path / "intervals.html"
    path.write_text(page.compose(about, replace(sheet, lower=lower, upper=upper), words), encoding="utf-8")
    browser.open(path)
    to_map(browser)
    browser.choose("layer", "share")
    picture(browser, "report-relative-error.png", tmp_path)
    for i in (1, sheet.cells.size // 2, int(sheet.values.argmax())):
        row, col = (int(index[0]) for index in sheet.domain.unravel(sheet.cells[[i]]))
        seen = at(browser, row, col)
        assert seen["value"] == f"{sheet.values[i]:,}" and seen["interval"] == f"{lower[i]:,.0f} to {upper[i]:,.0f}"
    assert "interval" not in at(browser, *(int(index[0]) for index in sheet.domain.unravel(sheet.cells[[0]])))
    browser.choose("layer", "value")
    browser.choose("level", "1")
    assert "no interval for this area" in browser.run("document.getElementById('readout').innerText")
    quiet(browser, path)


def test_every_level_has_intervals_and_advice(kanto, browser, tmp_path):
    """What the page says of an area of any size is what Release.interval says, and its advice follows."""
    out, path = ks.Release.load(str(kanto)), kanto / "report.html"
    browser.open(path)
    to_map(browser)
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    near = table[(50 * (table.upper - table.lower) / table.value).between(11, 19)].mesh_code.iloc[0]  # with care
    for level, code in ((0, str(near)), (1, "53394525"), (2, "533945245"), (4, "533945"), (5, "5339")):
        browser.choose("go", code)
        true = out.interval(code=code)
        assert browser.run("document.getElementById('level').value") == str(level)
        assert said(browser)["value"] == f"{out.area(code=code):,}"
        assert said(browser)["interval"] == f"{true.lower:,.0f} to {true.upper:,.0f}"
        advice = browser.run("document.getElementById('advice').textContent")
        off = math.ceil(50 * (true.upper - true.lower) / true.value)
        assert advice.startswith(f"Between {true.lower:,.0f} and {true.upper:,.0f} people (such ranges hold for 95 of")
        assert f"± {off} %" in advice and ("good to use" in advice) == (off <= 10)
    browser.choose("layer", "share")
    browser.choose("level", "1")
    assert browser.run("document.getElementById('level').value") == "1", "the map of errors has every level"
    browser.choose("go", "53394525")
    assert said(browser)["value"] == f"{out.area(code='53394525'):,}" and "layer" not in said(browser)
    picture(browser, "report-relative-error-1km.png", tmp_path)
    quiet(browser, path)
    assert path.stat().st_size < 600_000


@pytest.mark.parametrize(("width", "height", "phone"), [(1366, 768, False), (768, 1024, False), (390, 844, True)])
def test_the_map_is_on_the_first_screen(kanto, browser, width, height, phone, tmp_path):
    """Title, four numbers, the map: most of it before anybody scrolls, and nothing wider than the screen."""
    browser.size(width, height, phone=phone)
    browser.open(kanto / "report.html")
    top, high = browser.run(
        "(({ top, height }) => [top, height])(document.getElementById('stage').getBoundingClientRect())"
    )
    assert top < 0.45 * height and top + 0.8 * high < height
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('header .tiles > div').length") == 4
    picture(browser, f"report-{width}.png", tmp_path)


def test_the_internal_report_shows_the_truth_and_says_so(several, browser, tmp_path):
    from kasuri.report import internal

    about = page.read_manifest(several)
    sheet = page.Sheet.read(several, about)
    cells = np.arange(0, sheet.domain.size, 7)
    cells = cells[sheet.domain.possible(cells)]
    truth = np.random.default_rng(2).poisson(20, cells.size) + 1
    path = tmp_path / "internal.html"
    path.write_text(internal.build(several, sheet.domain, cells, truth), encoding="utf-8")
    browser.open(path)
    assert "Confidential" in browser.run("document.querySelector('.secret').innerText")
    assert browser.run(
        "[...document.querySelectorAll('main svg[role=img]')].every((s) => s.textContent.includes('部外秘'))"
    )
    to_map(browser)
    hour, row, col, sex = (int(x[0]) for x in sheet.domain.unravel(cells[[200]]))
    browser.choose("axis-sex", str(sex))
    browser.choose("axis-hour", str(hour))
    seen = at(browser, row, col)
    released = dict(zip(sheet.cells.tolist(), sheet.values.tolist(), strict=True)).get(int(cells[200]), 0)
    assert seen["truth"] == str(truth[200]) and seen["error"] == f"{released - truth[200]:,}"
    browser.choose("layer", "error")
    seen = at(browser, row, col)
    assert seen["error"] == f"{released - truth[200]:,}" and "layer" not in seen, "said once"
    browser.choose("level", "3")
    assert at(browser, row, col)["layer"] is not None
    picture(browser, "report-internal.png", tmp_path)
    quiet(browser, path)


def test_the_page_cannot_reach_the_network(several, browser):
    browser.open(several / "report.html")
    asked = (
        "new Promise((done) => { const i = new Image(); i.onload = i.onerror = () => done(i.naturalWidth);"
        "i.src = 'http://127.0.0.1:9/x.png'; })"
    )
    browser.run(
        "window.stopped = []; addEventListener('securitypolicyviolation', (e) => stopped.push(e.effectiveDirective))"
    )
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert browser.run(asked) == 0
    assert any("Content Security Policy" in text for text in browser.complaints)
    assert browser.run("stopped") == ["connect-src", "img-src"], "by the page's own rules"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("(k) => place(k) % cols, value", "(k) => (place(k) + 1) % cols, value"),
        ("Math.floor((r + offset[0]) / side)", "Math.floor(r / side)"),
        ("numbers[i] = axis ? number : number % 2 ? -(number + 1) / 2 : number / 2", "numbers[i] = number"),
    ],
)
def test_planted_faults_of_the_viewer_are_seen(several, browser, tmp_path, monkeypatch, line, instead):
    """The comparison with the table can fail: one line of the viewer changed, and it does."""
    script = frame._script()
    assert script.count(line) == 1
    monkeypatch.setattr(frame, "_script", lambda figure: script.replace(line, instead))
    path = tmp_path / "broken.html"
    path.write_text(page.build(several), encoding="utf-8")
    browser.open(path)
    to_map(browser)
    table = pq.read_table(several / "release.parquet").to_pandas()
    wrong = []
    for level, digits in (("0", 8), ("3", 6)):
        browser.choose("level", level)
        for row, col in ((20, 7), (33, 30), (12, 3)):
            code = str(table.mesh_code[(table.row == row) & (table.col == col)].iloc[0])[:digits]
            total = table.value[table.mesh_code.astype(str).str.startswith(code)].sum()
            wrong.append(at(browser, row, col)["value"] != f"{total:,}")
    assert any(wrong)


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not there: npm install --no-save --prefix .tools axe-core@4.10.3"
)
@pytest.mark.parametrize("language", ["#en", "#ja"])
def test_axe_finds_no_serious_fault(kanto, several, browser, tmp_path, language):
    from kasuri.report import internal
    from kasuri.report.kanon import release_page

    sheet = page.Sheet.read(several, page.read_manifest(several))
    inner = tmp_path / "internal.html"
    inner.write_text(internal.build(several, sheet.domain, sheet.cells, sheet.values), encoding="utf-8")
    anon = tmp_path / "kanon.html"
    spec = ks.kanon.Recoding.of(ks.kanon.numbers("age", 0, 100, widths=[10]))
    out = ks.kanon.specialize(pa.table({"age": np.arange(100) % 90}), spec, k=5)
    anon.write_text(release_page(out.to_json(), [t.to_json(c) for t, c in zip(spec.attributes, out.cut, strict=True)]),
                    encoding="utf-8")  # fmt: skip
    joined_page(tmp_path / "joined.html")
    for path in (kanto / "report.html", several / "report.html", inner, anon, tmp_path / "joined.html"):
        browser.open(path, language)
        browser.run(AXE.read_text(encoding="utf-8") + "; 0")
        faults = json.loads(browser.run(
            "axe.run(document).then((r) => JSON.stringify(r.violations.filter((v) =>"
            "['serious', 'critical', 'moderate'].includes(v.impact))"
            ".map((v) => [v.id, v.impact, v.nodes.map((n) => n.html.slice(0, 120))])))"
        ))  # fmt: skip
        assert faults == [], path.name
