"""Every kind of report in a real browser, one by one: nothing asked of anybody, nothing said on the console, nothing
cut off at three widths in two languages, read by axe, printed in shape; places found with the table's own numbers."""

import base64
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clients.browser import CHROMIUM
from clients.test_report_page import AXE, joined_page
from clients.test_report_use import downloaded, placed

import kasuri as ks
from kasuri import examples

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")

EXAMPLES = Path(__file__).parents[2] / "examples"
WIDTHS = [(1366, 768, False), (768, 1024, False), (390, 844, True)]
MAPS = ["kanto", "national", "europe", "counties", "municipalities", "ages", "hours", "od"]
OTHERS = ["wards", "kanon", "local", "local-map", "joined"]


def saved(folder, domain, values, unit="person"):
    counts = ks.Counts.from_dense(np.asarray(values), domain, ks.Unit(unit, "add-remove", 1), data="t")
    ks.release(counts, ks.geometric(), epsilon="2", ledger=None).save(str(folder), unmetered=True)
    return folder / "report.html"


def census(folder, *axes, seed=1, unit="person"):
    domain = ks.Domain.of(*axes)
    return saved(folder, domain, np.random.default_rng(seed).poisson(40, domain.shape), unit)


def kanto(folder):
    return saved(folder, ks.Domain.of(ks.Mesh("grid", "500m", (8540, 6300), shape=(96, 96))),
                 examples.kanto_map()[140:236, 220:316])  # fmt: skip


def national(folder):
    """The population around Tokyo in the window of all of Japan."""
    mesh, people = ks.Mesh.window("grid", "japan4096"), examples.kanto_map()
    row, col = np.nonzero(people)
    cells = (row + 8400 - mesh.origin[0]) * 4096 + col + 6080 - mesh.origin[1]
    counts = ks.Counts.from_coo(cells, people[row, col], ks.Domain.of(mesh), examples.person(), data="t")
    ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None).save(str(folder), unmetered=True)
    return folder / "report.html"


def regions(name, file, code, levels):
    return ks.Regions(name, EXAMPLES / file, code=code, prefix=(2, 5), levels=levels, repair=True)


def kanon(folder):
    from kasuri.report.kanon import release_page

    spec = ks.kanon.Recoding.of(ks.kanon.numbers("age", 0, 100, widths=[10]))
    out = ks.kanon.specialize(pa.table({"age": np.arange(100) % 90}), spec, k=5)
    trees = [tree.to_json(cut) for tree, cut in zip(spec.attributes, out.cut, strict=True)]
    return written(folder, release_page(out.to_json(), trees))


def local(folder, axis):
    from kasuri.report.local import estimate_page

    oue = ks.local.oue(axis, epsilon="3")
    found = ks.local.estimate(oue.randomize(np.random.default_rng(1).integers(0, oue.domain.size, 5000)), oue)
    return written(folder, estimate_page(found.to_json(), oue.domain, "Where 5,000 phones are", "5,000 台の端末の所在"))


def written(folder, text):
    folder.mkdir()
    (folder / "report.html").write_text(text, encoding="utf-8")
    return folder / "report.html"


def joined(folder):
    folder.mkdir()
    joined_page(folder / "report.html")
    return folder / "report.html"


MESH = ks.Mesh("grid", "1km", (4280, 3170), shape=(10, 12))
AGES = ks.Ordered("age", 4, ("0-19", "20-39", "40-64", "65+"))
KINDS = {
    "kanto": kanto,
    "national": national,
    "europe": lambda at: census(at, ks.Grid("home", scheme="eu", level="1km", origin=(2860, 3740), shape=(60, 60))),
    "counties": lambda at: census(
        at, regions("place", "united-states/counties.geojson", "fips", ("state", "county")), seed=2
    ),
    "municipalities": lambda at: census(
        at, regions("municipality", "japan/municipalities.geojson", "code", ("prefecture", "municipality")), seed=3
    ),
    "ages": lambda at: census(at, MESH, ks.Nominal("sex", ("female", "male")), AGES),
    "hours": lambda at: census(at, ks.Time("hour", "2020-10-01T00:00", seconds=3600, size=24), MESH),
    "od": lambda at: census(
        at, *(ks.Mesh(name, "2km", (2140, 1584), shape=(6, 7)) for name in ("home", "work")), unit="commuter"
    ),
    "wards": lambda at: census(at, ks.Nominal("ward", tuple(f"<b>区</b> {i}" for i in range(30))), AGES),
    "kanon": kanon,
    "local": lambda at: local(at, ks.Nominal("ward", ("Chuo", "Minato", "Ota"))),
    "local-map": lambda at: local(at, ks.Mesh("grid", "1km", (4280, 3170), shape=(5, 6))),
    "joined": joined,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a kind, made when it is first asked for."""
    made, place = {}, tmp_path_factory.mktemp("kinds")

    def find(kind):
        if kind not in made:
            made[kind] = KINDS[kind](place / kind)
        return made[kind]

    return find


@pytest.fixture
def browser(browser):
    browser.size(1366, 768)
    return browser


def again(browser, path, fragment):
    browser.call("Page.navigate", url="about:blank")
    browser.until("document.readyState === 'complete'")
    browser.open(path, fragment)


@pytest.mark.parametrize("kind", MAPS + OTHERS)
def test_nothing_is_cut_off_asked_for_or_complained_about(kind, report, browser):
    """At three widths in two languages; tables that the page itself makes fit a phone whole."""
    path = report(kind)
    for width, height, phone in WIDTHS:
        browser.size(width, height, phone=phone)
        for language in ("en", "ja"):
            again(browser, path, f"#{language}")
            assert browser.run("document.documentElement.scrollWidth") <= width, (width, language)
            title = browser.run("document.querySelector('h1').innerText")
            assert len(title) > 8 and bool(re.search("[ぁ-ん]", title)) == (language == "ja"), "a sentence"
            cut = browser.run("[...document.querySelectorAll('#error > .scroll, #levels > .scroll')]"
                              ".filter((box) => box.scrollWidth > box.clientWidth + 1).length")  # fmt: skip
            assert cut == 0, (width, language)
            small = browser.run("[...document.querySelectorAll('header .tiles > div')].map((one) => one.scrollWidth >"
                                " one.clientWidth)")  # fmt: skip
            assert len(small) == 4 and not any(small)
    assert browser.complaints == []
    assert {url.split("#")[0] for url in browser.requests} <= {path.resolve().as_uri(), "about:blank"}


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not there: npm install --no-save --prefix .tools axe-core@4.10.3"
)
@pytest.mark.parametrize("kind", MAPS + OTHERS)
def test_axe_finds_nothing_above_minor(kind, report, browser):
    for language in ("#en", "#ja"):
        again(browser, report(kind), language)
        browser.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        browser.run(AXE.read_text(encoding="utf-8") + "; 0")
        faults = json.loads(browser.run(
            "axe.run(document).then((r) => JSON.stringify(r.violations.filter((v) => v.impact !== 'minor')"
            ".map((v) => [v.id, v.impact, v.nodes.map((n) => n.html.slice(0, 120))])))"
        ))  # fmt: skip
        assert faults == [], language


@pytest.mark.parametrize("kind", [*MAPS, "local-map"])
def test_a_printed_map_keeps_its_shape(kind, report, browser):
    browser.open(report(kind))
    made = base64.b64decode(browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    across, down, wide, high = placed(made)[0]
    assert wide > 500 and abs(wide / high / (across / down) - 1) < 0.01


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize(("width", "height", "phone"), WIDTHS)
def test_the_map_is_first_and_its_legend_hides_nothing_of_it(kind, width, height, phone, report, browser):
    """Most of the map is on the first screen, and no cell of a window lies under the legend where there is room."""
    browser.size(width, height, phone=phone)
    browser.open(report(kind))
    top, high, left, low, h = browser.run(
        "(() => { const c = document.getElementById('canvas'), v = c.viewer, r = c.getBoundingClientRect(), a = v.axis;"
        "const [wide, tall] = a.kind === 'mesh' ? [a.cols, a.rows] : a.page;"
        "return [r.top, r.height, v.toX(0), v.toY(tall), c.clientHeight]; })()"
    )
    assert top < 0.45 * height and top + 0.75 * high < height
    if kind not in ("counties", "municipalities"):
        assert left >= 252 or low <= h - 66, (left, low, h)
    if phone:
        assert browser.run("document.getElementById('readout').innerText").startswith("Touch")
        assert not browser.run("document.querySelector('.keys').offsetWidth")


def table(path):
    return pq.read_table(path.parent / "release.parquet").to_pandas()


FOUND = {
    "kanto": ("新宿", "grid"), "national": ("Shinjuku", "grid"), "europe": ("Paris", "home"),
    "ages": ("35.68, 139.65", "grid"), "hours": ("35.68, 139.65", "grid"), "od": ("35.68, 139.70", "home"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOUND)
def test_a_place_found_by_name_or_degrees_has_the_table_s_number(kind, report, browser):
    """And a larger area around it the sum of the table's rows, with the interval that Python computes."""
    path, (text, axis) = report(kind), FOUND[kind]
    browser.open(path)
    browser.choose("go", text)
    where = browser.run("document.getElementById('read-where').textContent")
    code = re.search(r"\b(\d{8,9}|1kmN\d+E\d+)\b", where)[1]
    rows = table(path)
    name = next(column for column in rows if column.endswith(("mesh_code", "grid_code")) and
                (kind != "od" or column.startswith(axis)))  # fmt: skip
    codes = rows[name].astype(str)
    seen = browser.run("document.getElementById('read-value')?.textContent ?? '0'")
    assert seen == f"{rows.value[codes == code].sum():,}"
    out = ks.Release.load(str(path.parent))
    if kind == "europe":
        larger, inside = "10kmN288E376", codes.str.fullmatch("1kmN288.E376.")
    else:
        larger, inside = code[:6], codes.str.startswith(code[:6])
    browser.choose("go", larger)
    assert browser.run("document.getElementById('read-value').textContent") == f"{rows.value[inside].sum():,}"
    if kind == "od":
        ends = [(int(side.min()), int(side.max()) + 1) for side in (rows.home_row[inside], rows.home_col[inside])]
        wanted = out.interval(home_row=slice(*ends[0]), home_col=slice(*ends[1]))
    else:
        wanted = out.interval(code=larger)
    shown = browser.run("document.getElementById('read-interval').textContent").replace(",", "")
    assert shown == f"{wanted.lower:.0f} to {wanted.upper:.0f}"


@pytest.mark.parametrize(
    ("kind", "name", "prefix"), [("counties", "Pennsylvania", "42"), ("municipalities", "千葉県", "12")]
)
def test_a_named_area_is_the_sum_of_the_table_s_rows(kind, name, prefix, report, browser):
    path = report(kind)
    rows = table(path)
    codes = rows[{"counties": "place", "municipalities": "municipality"}[kind]].astype(str)
    browser.open(path)
    browser.choose("go", name)
    total = rows.value[codes.str.startswith(prefix)].sum()
    assert browser.run("document.getElementById('read-value').textContent") == f"{total:,}"
    assert browser.run("document.getElementById('level').value") == "1"


@pytest.mark.parametrize("kind", [kind for kind in MAPS if kind not in ("national", "od")] + ["wards"])
def test_the_table_that_a_reader_keeps_adds_up_to_the_release(kind, report, browser, tmp_path):
    path = report(kind)
    browser.open(path)
    browser.run("document.getElementById('all')?.click()")  # islands far away are not in the first view
    browser.settle()
    rows = list(csv.reader(io.StringIO(downloaded(browser, tmp_path, "csv").decode("utf-8-sig"))))
    at = next(i for i, word in enumerate(rows[0]) if word.startswith("released"))
    assert sum(float(row[at]) for row in rows[1:]) == table(path).value.sum()


def test_an_hour_is_chosen_and_its_number_is_the_table_s(report, browser):
    path = report("hours")
    rows = table(path)
    browser.open(path)
    browser.choose("axis-hour", "9")
    code = int(rows.mesh_code.iloc[50])
    browser.choose("go", str(code))
    here = rows.value[(rows.mesh_code == code) & (rows.hour == rows.hour.unique()[9])].sum()
    assert browser.run("document.getElementById('read-value').textContent") == f"{here:,}"
    assert browser.run("document.querySelector('#charts svg').viewBox.baseVal.width") == 640, "one chart has the room"


def test_one_end_is_kept_and_the_other_shown(report, browser):
    path = report("od")
    rows = table(path)
    browser.open(path)
    assert "Keep this place and show work" in browser.run("document.getElementById('advice').textContent")
    code = str(rows.home_mesh_code.iloc[100])
    browser.choose("go", code)
    browser.run("document.getElementById('follow').click()")
    browser.settle()
    there = str(rows.work_mesh_code[rows.home_mesh_code.astype(str) == code].iloc[3])
    browser.choose("go", there)
    wanted = rows.value[(rows.home_mesh_code.astype(str) == code) & (rows.work_mesh_code.astype(str) == there)].sum()
    assert browser.run("document.getElementById('read-value').textContent") == f"{wanted:,}"


def test_what_is_folded_on_the_screen_is_on_paper(report, browser):
    browser.open(report("kanto"))
    folds = "[...document.querySelectorAll('details.printed')].map((fold) => fold.open)"
    assert browser.run(folds) == [False, False]
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folds) == [True, True]
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(folds) == [False, False]
