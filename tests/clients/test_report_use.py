"""Reports in a real browser: finding places, times, files to keep, links, paper, and input that is not nice."""

import base64
import csv
import io
import json
import re
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from clients.browser import CHROMIUM

import kasuri as ks
from kasuri import examples, names
from kasuri.ingest import read_table

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def kanto(tmp_path_factory):
    """The census around Tokyo, released and saved."""
    folder = tmp_path_factory.mktemp("kanto") / "release"
    counts = ks.count(read_table(examples.KANTO), examples.kanto_domain(), columns={"grid": "mesh_code"},
                      unit=examples.person(), weight="population", data="census-2020-kanto")  # fmt: skip
    ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None).save(str(folder), unmetered=True)
    return folder


@pytest.fixture(scope="module")
def hours(tmp_path_factory):
    """Four hours of a small mesh, by sex and three ages."""
    folder = tmp_path_factory.mktemp("hours") / "release"
    domain = ks.Domain.of(
        ks.Time("hour", "2020-10-01T00:00", seconds=3600, size=4),
        ks.Mesh("grid", level="1km", origin=(4280, 3170), shape=(10, 12)),
        ks.Nominal("sex", ("female", "male")),
        ks.Ordered("age", 3, ("0-19", "20-64", "65+")),
    )
    values = np.random.default_rng(5).poisson(30, domain.shape)
    counts = ks.Counts.from_dense(values, domain, ks.Unit("phone", "add-remove", 4), data="flow")
    ks.release(counts, ks.geometric(), epsilon="4", ledger=None).save(str(folder), unmetered=True)
    return folder


def quiet(browser, path):
    assert browser.complaints == []
    assert set(browser.requests) <= {path.resolve().as_uri()} | {r for r in browser.requests if r.startswith("blob:")}


def where(browser):
    """Latitude and longitude that the read-out tells."""
    text = browser.run("document.getElementById('read-where')?.textContent ?? ''")
    found = re.search(r"([\d.]+)° N ([\d.]+)° E", text)
    return None if found is None else (float(found[1]), float(found[2]))


@pytest.mark.parametrize(
    ("text", "lat", "lon"),
    [
        ("新宿", 35.69, 139.70),
        ("しんじゅく", 35.69, 139.70),
        ("シンジュク", 35.69, 139.70),
        ("shinjuku", 35.69, 139.70),
        ("13104", 35.69, 139.70),
        ("東京", 35.69, 139.69),
        ("Tokyo", 35.69, 139.69),
        ("うつのみや", 36.55, 139.87),
        ("35.68, 139.76", 35.68, 139.76),
        ("北緯35.68 東経139.76", 35.68, 139.76),
    ],
)
def test_places_are_found_by_name_code_and_degrees(kanto, browser, text, lat, lon):
    browser.open(kanto / "report.html")
    browser.choose("go", text)
    found = where(browser)
    assert found is not None, browser.run("document.getElementById('readout').textContent")
    assert abs(found[0] - lat) < 0.06 and abs(found[1] - lon) < 0.06
    quiet(browser, kanto / "report.html")


def test_what_is_not_there_is_said(kanto, browser):
    browser.open(kanto / "report.html")
    for text in ("大阪", "Osaka", "<img src=x>", "48.85, 2.35", "zzzz", "999999999"):
        browser.choose("go", text)
        assert browser.run("document.getElementById('go').getAttribute('aria-invalid')") == "true", text
        assert browser.run("document.getElementById('missed').textContent") == "no such place here"
    assert browser.run("document.getElementById('canvas').viewer.state.names") > 10, "names are drawn"
    quiet(browser, kanto / "report.html")


def downloaded(browser, folder, button):
    """The file that a press of a button gives."""
    session, browser.session = browser.session, None
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.session = session
    before = set(folder.iterdir())
    browser.run(f"document.getElementById('{button}').click()")
    for _ in range(100):
        new = [path for path in set(folder.iterdir()) - before if path.suffix in (".csv", ".png")]
        if new and new[0].stat().st_size:
            return new[0].read_bytes()
        browser.settle()
    raise AssertionError("nothing was kept")


def test_files_to_keep_hold_what_is_shown(kanto, browser, tmp_path):
    table = pq.read_table(kanto / "release.parquet").to_pandas()
    out = ks.Release.load(str(kanto))
    browser.open(kanto / "report.html")
    rows = list(csv.reader(io.StringIO(downloaded(browser, tmp_path, "csv").decode("utf-8-sig"))))[1:]
    assert {int(row[0]): float(row[2]) for row in rows} == dict(zip(table.mesh_code, table.value, strict=True))
    limits = {int(row[0]): (float(row[3]), float(row[4])) for row in rows}
    assert limits == dict(zip(table.mesh_code, zip(table.lower, table.upper, strict=True), strict=True))
    browser.choose("level", "4")
    (tmp_path / "kasuri.csv").unlink()
    rows = list(csv.reader(io.StringIO(downloaded(browser, tmp_path, "csv").decode("utf-8-sig"))))[1:]
    sums = table.value.groupby(table.mesh_code.astype(str).str[:6]).sum()
    assert {row[0]: float(row[2]) for row in rows} == {code: v for code, v in sums.items() if v}
    code, _, _, lower, upper = next(row for row in rows if row[0] == "533945")
    assert (float(lower), float(upper)) == (out.interval(code=code).lower, out.interval(code=code).upper)
    assert downloaded(browser, tmp_path, "png").startswith(b"\x89PNG")
    quiet(browser, kanto / "report.html")


def test_a_link_brings_back_what_was_shown(kanto, browser):
    browser.open(kanto / "report.html")
    browser.choose("go", "53394525")
    browser.choose("scale", "linear")
    browser.choose("layer", "share")
    browser.run("document.getElementById('link').click()")
    before = browser.run(
        "[location.hash, document.getElementById('readout').textContent, document.getElementById('level').value]"
    )
    assert "level=1" in before[0] and "layer=share" in before[0]
    browser.call("Page.navigate", url="about:blank")
    browser.until("document.readyState === 'complete'")
    browser.open(kanto / "report.html", before[0])
    after = browser.run(
        "[document.getElementById('readout').textContent, document.getElementById('level').value,"
        "document.getElementById('layer').value, document.getElementById('scale').value]"
    )
    assert after == [before[1], "1", "share", "linear"]
    for bad in ("#en&box=1,2,3&level=99&at=999999999999&map=7&layer=<b>", "#ja&box=a,b,c&at=-1&pick0=2", "#box=,,"):
        browser.call("Page.navigate", url="about:blank")
        browser.until("document.readyState === 'complete'")
        browser.open(kanto / "report.html", bad)
        assert browser.run("document.getElementById('level').value") == "0"
    assert browser.complaints == []


def test_times_slide_and_play(hours, browser):
    table = pq.read_table(hours / "release.parquet").to_pandas()
    browser.open(hours / "report.html")
    assert browser.run("document.querySelectorAll('#charts svg').length") >= 2, "a line and a pyramid of the whole"
    browser.choose("axis-hour", "2")
    code = int(table.mesh_code.iloc[40])
    browser.choose("go", str(code))
    here = table[(table.mesh_code == code) & (table.hour == 2)]
    assert browser.run("document.getElementById('read-value').textContent") == f"{here.value.sum():,}"
    assert browser.run("document.querySelector('.time output').textContent") == "2020-10-01 02:00"
    browser.until(f"document.querySelector('#charts .of').textContent.includes('{code}')")
    points = browser.run("document.querySelector('#charts .curve').getAttribute('points').split(' ').length")
    assert points == 4
    release = ks.Release.load(str(hours))
    wanted = release.interval(code=str(code), hour=2)
    seen = browser.run("document.getElementById('read-interval').textContent").replace(",", "")
    assert seen == f"{wanted.lower:.0f} to {wanted.upper:.0f}", "an interval of a margin"
    browser.run("document.querySelector('.play').click()")
    browser.until("document.querySelector('.time output').textContent === '2020-10-01 00:00'")
    browser.run("document.querySelector('.play').click()")
    named = browser.run("document.querySelector('#charts svg[aria-label*=female]')?.getAttribute('aria-label') ?? ''")
    old = table[
        (table.mesh_code == code) & (table.hour == int(browser.run("document.getElementById('axis-hour').value")))
    ]
    sums = [old.value[(old.age == "65+") & (old.sex == sex)].sum() for sex in ("female", "male")]
    assert f"65+ {sums[0]:,} / {sums[1]:,}" in named
    browser.choose("beside", "2")
    assert browser.run("document.querySelectorAll('#multiples canvas').length") == 2
    quiet(browser, hours / "report.html")


def test_the_printed_map_keeps_its_shape(kanto, browser):
    browser.open(kanto / "report.html")
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.size(794, 1123)
    browser.settle()
    wide, high, shape, paper = browser.run(
        "(() => { const c = document.getElementById('canvas'), r = c.getBoundingClientRect();"
        "return [r.width, r.height, c.width / c.height,"
        "['.paper', '.panel .tools', '.use']"
        ".map((s) => getComputedStyle(document.querySelector(s)).display).join()]; })()"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
    assert wide > 300 and abs(wide / high / shape - 1) < 0.01 and paper == "block,none,none"
    made = base64.b64decode(browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert made.startswith(b"%PDF")
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", made)
    assert box and abs(float(box[1]) - 595) < 3 and abs(float(box[2]) - 842) < 3, "A4"
    (across, down, wide, high), *others = placed(made)
    assert not others and wide > 1000 and abs(wide / high / (across / down) - 1) < 0.01, "the picture on paper"


def placed(pdf):
    """The pictures of a PDF: how many pixels wide and high each is, and how wide and high it is drawn."""
    pixels, drawn = {}, []
    for found in re.finditer(rb"(\d+) 0 obj\s*<<(.*?)>>\s*stream\r?\n", pdf, re.S):
        told = {name: int(number) for name, number in re.findall(rb"/(Width|Height|Length) (\d+)", found[2])}
        if b"/Subtype /Image" in found[2]:
            pixels[found[1]] = told[b"Width"], told[b"Height"]
        elif b"FlateDecode" in found[2]:
            text = zlib.decompress(pdf[found.end() : found.end() + told[b"Length"]])
            for use in re.finditer(rb"/X(\d+) Do", text):  # the matrix that was set last before
                *_, (wide, high) = re.findall(rb"([\d.]+) 0 0 -([\d.]+) [\d.-]+ [\d.-]+ cm", text[: use.start()])
                drawn.append((wide, high, use[1]))
    return [(*pixels[name], float(wide), float(high)) for wide, high, name in drawn]


def test_bars_sort_search_and_add_up(tmp_path, browser):
    """Places without shapes: a sum of a named area is that of the Parquet file."""
    places = {"code": ["A", "B", "A1", "A2", "B1", "B2", "B3"], "parent": ["", "", "A", "A", "B", "B", "B"],
              "name": ["北部", "南部", "<b>x</b>", "مدينة", "千代田区", "港区", "Foo, bar"]}  # fmt: skip
    axis = ks.Regions("place", places, parent="parent", levels=("part", "town"))
    domain = ks.Domain.of(axis, ks.Nominal("sex", ("f", "m")))
    counts = ks.Counts.from_dense(np.array([[5, 9], [50, 3], [20, 8], [700, 650], [1, 0]]), domain, examples.person(),
                                  data="towns")  # fmt: skip
    ks.release(counts, ks.geometric(), epsilon="3", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas()
    path = tmp_path / "r" / "report.html"
    browser.open(path)

    def shown():
        return browser.run("[...document.querySelectorAll('#bars tbody tr')].map((r) => [r.cells[0].textContent, "
                           "r.cells[2].textContent])")  # fmt: skip

    assert browser.run("document.querySelectorAll('#bars b').length") == 0, "a label stays text"
    browser.choose("sort", "most")
    assert shown()[0][0] == "B2 港区"
    browser.choose("go", "港")
    assert [row[0] for row in shown()] == ["B2 港区"]
    browser.choose("go", "")
    browser.choose("sort", "listed")
    browser.choose("level", "1")
    sums = {part: f"{table.value[table.place.str.startswith(part)].sum():,}" for part in "AB"}
    assert shown() == [["A 北部", sums["A"]], ["B 南部", sums["B"]]]
    browser.choose("axis-sex", "1")
    assert shown()[1][1] == f"{table.value[table.place.str.startswith('B') & (table.sex == 'm')].sum():,}"
    browser.choose("beside", "1")
    assert browser.run("document.querySelectorAll('.multiples figure').length") == 2
    quiet(browser, path)


def release(folder, domain, values, name="t", recipe=None, epsilon="1"):
    counts = ks.Counts.from_dense(values, domain, examples.person(), data=name)
    ks.release(counts, recipe or ks.geometric(), epsilon=epsilon, ledger=None).save(str(folder), unmetered=True)
    return folder / "report.html"


def test_a_window_across_the_date_line(tmp_path, browser):
    axis = ks.Grid("g", crs="EPSG:4326", step="0.1", anchor=0, origin=(-200, 1750), shape=(40, 100))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.full((40, 100), 9))
    browser.open(path)
    browser.choose("go", "-16.72, -179.93")
    text = browser.run("document.getElementById('read-where').textContent")
    assert "16.75" in text and "° S" in text and "° W" in text
    browser.choose("go", "Suva")
    assert "178.45" in browser.run("document.getElementById('read-where').textContent")
    quiet(browser, path)


def test_a_european_grid_knows_its_degrees_and_codes(tmp_path, browser):
    axis = ks.Grid("home", scheme="eu", level="1km", origin=(2860, 3740), shape=(60, 60))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.random.default_rng(1).poisson(50, (60, 60)))
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas()
    browser.open(path)
    browser.choose("go", "Paris")
    assert "48.86" in browser.run("document.getElementById('read-where').textContent")
    browser.choose("go", "48.8566, 2.3522")
    assert "1kmN2889E3760" in browser.run("document.getElementById('read-where').textContent"), "as pyproj says"
    value = table.value[table.grid_code == "1kmN2889E3760"].sum()
    assert browser.run("document.getElementById('read-value').textContent") == f"{value:,}"
    browser.choose("go", "10kmN288E376")
    assert browser.run("document.getElementById('level').value") != "0"
    inside = table.grid_code.str.extract(r"N(\d+)E(\d+)").astype(int)
    total = table.value[inside[0].between(2880, 2889) & inside[1].between(3760, 3769)].sum()
    assert browser.run("document.getElementById('read-value').textContent") == f"{total:,}"
    quiet(browser, path)


def test_empty_and_single_tables_are_drawn(tmp_path, browser):
    mesh = ks.Mesh("grid", "1km", (4272, 3168), shape=(8, 8))
    empty = release(tmp_path / "e", ks.Domain.of(mesh), np.zeros((8, 8), np.int64), epsilon="20")
    one = release(tmp_path / "o", ks.Domain.of(ks.Mesh("grid", "1km", (4272, 3168), shape=(1, 1))), np.array([[70]]),
                  "one & only")  # fmt: skip
    bar = release(tmp_path / "b", ks.Domain.of(ks.Nominal("x", ("only",))), np.array([7]))
    for path in (empty, one, bar):
        browser.open(path)
        assert browser.run("document.body.dataset.ready") == "yes"
        assert browser.run("document.documentElement.scrollWidth") <= 1280
        assert browser.complaints == [], path
        browser.call("Page.navigate", url="about:blank")
        browser.until("document.readyState === 'complete'")


def test_many_labels_are_searched(tmp_path, browser):
    many = 100_000
    axis = ks.Nominal("shop", tuple(f"shop {i:06d}" for i in range(many)))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.random.default_rng(1).poisson(3, many))
    browser.open(path)
    assert browser.run("document.querySelectorAll('#bars tbody tr').length") == 25
    browser.run("document.querySelector('.more').click()")
    assert browser.run("document.querySelectorAll('#bars tbody tr').length") == 125
    browser.choose("go", "shop 077777")
    seen = browser.run("[...document.querySelectorAll('#bars tbody tr')].map((r) => r.cells[0].textContent)")
    assert seen == ["shop 077777"]
    assert path.stat().st_size < 4_000_000
    quiet(browser, path)


def test_the_view_has_no_more_than_it_says(kanto):
    """The ground is small, and what the page is packed with is listed."""
    text = (kanto / "report.html").read_text(encoding="utf-8")
    view = json.loads(text.partition('id="view">')[2].partition("</script>")[0])
    packed = text.partition('id="rows">')[2].partition("</script>")[0].split(".")
    ground = [len(part) for told, part in zip(view["parts"], packed[1:], strict=True) if told["what"] == "ground"]
    assert len(ground) == 1 and 10_000 < ground[0] < 60_000 and len(text.encode()) < 600_000


def square(x, y):
    return {"type": "Polygon", "coordinates": [[[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]]}


def test_places_with_shapes_are_a_map(tmp_path, browser):
    """A choropleth by level, with names; a sum of a named area is that of the Parquet file."""
    at = {"A": (0, 0), "B": (0, 0), "A1": (139, 35), "A2": (140, 35), "B1": (139, 34), "B2": (140, 34)}
    names = ("北県", "South", "<i>one</i>", "千代田区", "Umi", "Yama")
    places = [(code, name, square(*place)) for (code, place), name in zip(at.items(), names, strict=True)]
    shapes = [{"type": "Feature", "properties": {"code": c, "name": n}, "geometry": g} for c, n, g in places]
    told = json.dumps({"type": "FeatureCollection", "features": shapes})
    (tmp_path / "p.geojson").write_text(told, encoding="utf-8")
    axis = ks.Regions("place", tmp_path / "p.geojson", prefix=(1, 2), levels=("part", "town"))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.array([50, 700, 20, 8]), epsilon="5")
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas().set_index("place").value
    browser.open(path)
    assert browser.run("document.querySelectorAll('#readout i, #largest i').length") == 0
    for text, value in (("Umi", table.B1), ("A2", table.A2), ("ちよだく", None), ("千代田", table.A2)):
        browser.choose("go", text)
        if value is not None:
            assert browser.run("document.getElementById('read-value').textContent") == f"{value:,}", text
    browser.choose("go", "北県")
    assert browser.run("document.getElementById('level').value") == "1"
    assert browser.run("document.getElementById('read-value').textContent") == f"{table.A1 + table.A2:,}"
    found = ks.Release.load(str(tmp_path / "r")).interval(place="北県")
    seen = browser.run("document.getElementById('read-interval').textContent").replace(",", "")
    assert seen == f"{found.lower:.0f} to {found.upper:.0f}"
    edges = browser.run("document.getElementById('canvas').viewer.axis.levels[1].edges.map((e) => e.length)")
    assert max(edges) <= 8, "the line between two towns is not an edge of their part"
    browser.run("document.getElementById('canvas').focus()")
    browser.key("PageDown")
    browser.key("ArrowDown")
    assert "B" in browser.run("document.getElementById('read-where').textContent")
    quiet(browser, path)


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_a_map_of_places_lies_clear_of_the_buttons(tmp_path, browser, width, height):
    """Its part that is shown first holds what lies close together, whole, and leaves islands far away out; while no
    name of a place has room, those of the next level are shown."""
    codes = ["A", "B", *(f"{'A' if i < 24 else 'B'}{i:02d}" for i in range(49)), "B99"]
    spots = {f"{'A' if i < 24 else 'B'}{i:02d}": (130 + i % 7, 30 + i // 7) for i in range(49)} | {"B99": (180, 36)}
    called = {code: f"Some town called {code}" for code in spots} | {"A": "North", "B": "South"}
    shapes = [{"type": "Feature", "properties": {"code": code, "name": called[code]},
               "geometry": square(*spots.get(code, (0, 0)))} for code in codes]  # fmt: skip
    (tmp_path / "p.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": shapes}), encoding="utf-8")
    axis = ks.Regions("place", tmp_path / "p.geojson", prefix=(1, 3), levels=("part", "town"))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.arange(50) * 9, epsilon="5")
    browser.size(width, height, phone=width < 400)
    browser.open(path)
    edges = browser.run(
        "(() => { const c = document.getElementById('canvas'), v = c.viewer, b = document.querySelector('.zoom'),"
        "boxes = v.axis.levels[0].boxes, x = boxes.flatMap((p) => [p[0], p[2]]).map(v.toX), "
        "y = boxes.flatMap((p) => [p[1], p[3]]).map(v.toY), near = (p) => p.slice(0, 98);"
        "ends = (p) => [Math.min(...near(p)), Math.max(...near(p))];"
        "return [...ends(x), ...ends(y), Math.min(...x.slice(98)), c.clientWidth, c.clientHeight,"
        "b.offsetWidth, b.offsetHeight, v.state.names]; })()"
    )
    left, right, head, foot, island, w, h, wide, high, named = edges
    assert left >= 7 and foot <= h - 7 and right <= w - 7 and island > w, edges
    assert right <= w - wide - 7 if high > wide else head >= high + 7, edges
    assert named >= 1
    quiet(browser, path)


def test_places_far_away_have_a_small_map_of_their_own(tmp_path, browser):
    """Alaska and Hawaii, Okinawa: read, listed and kept like all others; gone as soon as the map moves."""
    spots = {f"A{i:03d}": (130 + i % 12, 30 + i // 12) for i in range(144)}
    spots |= {"B001": (160, 60), "B002": (161, 60), "B003": (161, 61), "C001": (100, 31)}
    shapes = [{"type": "Feature", "properties": {"code": code, "name": f"<b>{code}</b>"},
               "geometry": square(*spots.get(code, (0, 0)))} for code in ("A", "B", "C", *spots)]  # fmt: skip
    (tmp_path / "p.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": shapes}), encoding="utf-8")
    axis = ks.Regions("place", tmp_path / "p.geojson", prefix=(1, 4), levels=("part", "town"))
    path = release(tmp_path / "r", ks.Domain.of(axis), np.arange(148) * 9 + 5, epsilon="5")
    table = pq.read_table(tmp_path / "r" / "release.parquet").to_pandas().set_index("place").value
    for width, height in ((1366, 768), (390, 844)):
        browser.size(width, height, phone=width < 400)
        browser.open(path)
        (inset,) = browser.run(
            "(() => { const c = document.getElementById('canvas'), r = c.getBoundingClientRect(), v = c.viewer;"
            "return v.insets.map(({ x, y, wide, high, ids, toX, toY }) => ({ x, y, wide, high, w: r.width, h: r.height,"
            "at: ids.map((i) => { const own = v.axis.levels[0], b = own.boxes[i];"
            "return [own.codes[i], r.left + toX((b[0] + b[2]) / 2), r.top + toY((b[1] + b[3]) / 2)]; }) })); })()"
        )
        assert inset["x"] >= 7 and inset["y"] >= 7 and inset["x"] + inset["wide"] <= inset["w"] - 7
        assert sorted(code for code, *_ in inset["at"]) == ["B001", "B002", "B003"], "one place alone has none"
        for code, x, y in inset["at"]:
            browser.mouse("mouseMoved", x, y)
            browser.settle()
            assert browser.run("document.getElementById('read-value').textContent") == f"{table[code]:,}"
        kept = browser.run("document.getElementById('canvas').viewer.listed().map((row) => row[0])")
        assert {"B001", "B002", "B003"} <= set(kept) and "C001" not in kept
        browser.run("document.getElementById('in').click()")
        assert browser.run("document.getElementById('canvas').viewer.insets.length") == 0
        browser.call("Page.navigate", url="about:blank")
        browser.until("document.readyState === 'complete'")
    quiet(browser, path)


def test_a_series_tells_slots_that_are_missing_from_slots_of_nobody(tmp_path, browser):
    from kasuri.report.series import Maps, series

    domain = ks.Domain.of(ks.Mesh("grid", "1km", (4272, 3168), shape=(4, 4)))
    slots = [(at, np.arange(16), np.full(16, at + 1)) for at in (100, 101, 103, 104, 105)]
    maps = Maps(domain, ks.Window("7d", slot="1h", zone="+09:00"), slots)
    assert maps.gaps() == [2]
    claim = "whatever one phone did in any 7 consecutive days (168 whole slots) changes the probability of anything "
    claim += "published of this series, ever, by a factor of at most e^5, but for delta 0.000000001"
    status = {"series": "flow", "claim": claim, "prices": [{"span": "1h", "slots": 1, "epsilon": "0.3"}],
              "must_not_be_claimed": ["epsilon per person: the claim is about one window", "what nobody translated"],
              "published": 5, "last": "2020-10-01T05:00+09:00", "late": [], "lost": [], "missing": {}}  # fmt: skip
    path, rows = tmp_path / "series.html", [(f"2020-10-01T0{i}:00+09:00", 5.0 + i, 4.0, 9.0 + i) for i in range(5)]
    path.write_text(series(status, "everything", rows, [], maps), encoding="utf-8")
    browser.open(path, "#ja")
    assert browser.run("document.querySelectorAll('#charts .curve').length") == 2, "a line on each side of the gap"
    words = browser.run("document.body.innerText")
    assert "どの連続する 7 日間（168 時間枠）に" in words and "e^5 倍しか変えません" in words and "10⁻⁹" in words
    assert "what nobody translated" in words and "Whatever one phone" not in words
    browser.run("document.querySelector('[data-language=en]').click()")
    words = browser.run("document.body.innerText")
    assert "flow: 5 slots published; random noise protects each phone in any 7 days." in words and claim[1:] in words
    quiet(browser, path)


def test_a_table_that_a_reader_keeps_holds_no_formula(tmp_path, browser):
    """Its text is marked as in exports (`kasuri.names.cell`), whatever digit follows; numbers stay numbers."""
    labels = ("=1+1", "+1x", "-2+3", "@1", "＝1+1", "-5", '=A1,"x"', "plain")
    path = release(tmp_path / "r", ks.Domain.of(ks.Nominal("place", labels)), np.arange(8) * 9, recipe=ks.privelet())
    browser.open(path)
    rows = list(csv.reader(io.StringIO(downloaded(browser, tmp_path, "csv").decode("utf-8-sig"))))
    assert rows[0][0] == "place" and [row[0] for row in rows[1:]] == [names.cell(label) for label in labels]
    table = pq.read_table(tmp_path / "r" / "release.parquet")
    shown = np.array([row[1:3] for row in rows[1:]], float)  # with two places
    assert np.abs(shown - np.stack([table["value"], table["lower"]], axis=1)).max() < 0.01
