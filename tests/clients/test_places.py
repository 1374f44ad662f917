"""From a position to a public place on the device: Python and the browser find the same place, also on borders, and
nothing but one report leaves the page."""

import base64
import json
import time
import urllib.request

import numpy as np
import pytest
from clients.browser import CHROMIUM, Browser
from clients.test_clients import FOLDER, node, with_node

import kasuri as ks
from kasuri.errors import DomainError
from kasuri.local import CollectorKey, Device, Position, Round, place_of
from kasuri.local.categorical import MAKERS
from kasuri.local.wire import HEAD, decode


def ring(*corners):
    return {"type": "Polygon", "coordinates": [[*corners, corners[0]]]}


def regions(tmp_path, **more):
    """A square with a hole that is a place of its own, a slanted neighbour, and an island in two parts."""
    shapes = {
        "a": {
            "type": "Polygon",
            "coordinates": [
                [[139, 35], [140, 35], [140, 36], [139, 36], [139, 35]],
                [[139.4, 35.4], [139.4, 35.6], [139.6, 35.6], [139.6, 35.4], [139.4, 35.4]],
            ],
        },
        "b": ring([139.4, 35.4], [139.6, 35.4], [139.6, 35.6], [139.4, 35.6]),
        "c": ring([140, 35], [140.7, 35.1], [140.3, 35.9], [140, 36]),
        "d": {
            "type": "MultiPolygon",
            "coordinates": [
                [[[141, 35], [141.2, 35.3], [141, 35.3], [141, 35]]],
                [[[141.5, 35], [141.7, 35], [141.5, 35.2], [141.5, 35]]],
            ],
        },
    }
    features = [{"type": "Feature", "properties": {"code": c}, "geometry": g} for c, g in shapes.items()]
    path = tmp_path / "places.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return ks.Regions("place", path, **more)


def positions(south, west, north, east, marks, seed):
    """Points in and around a box, marks (corners, borders), and the doubles next to them."""
    rng = np.random.default_rng(seed)
    high, wide = north - south, east - west
    found = [
        (float(a), float(b))
        for a, b in zip(
            rng.uniform(south - high / 8, north + high / 8, 400), rng.uniform(west - wide / 8, east + wide / 8, 400),
            strict=True,
        )
    ]  # fmt: skip
    for y, x in marks:
        found += [(a, b) for a in (y, np.nextafter(y, 90), np.nextafter(y, -90)) for b in (x, np.nextafter(x, -180))]
    return [(float(y), float(x)) for y, x in found if abs(x) <= 180]


def axes(tmp_path):
    mesh = ks.Mesh("grid", level="500m", origin=(8566, 6350), shape=(12, 9))
    per = 160
    marks = [((8566 + k) * 2 / (3 * per), 100 + (6350 + k) / per) for k in range(9)]
    yield mesh, positions(8566 * 2 / 480, 139.6875, 8578 * 2 / 480, 139.745, marks, 1)
    grid = ks.Grid("grid", crs="EPSG:4326", step=("1/120", "0.0125"), origin=(4280, 11170), shape=(20, 15))
    marks = [((4280 + k) / 120, (11170 + k) * 0.0125) for k in range(15)]
    yield grid, positions(4280 / 120, 11170 / 80, 4300 / 120, 11185 / 80, marks, 2)
    across = ks.Grid("grid", crs="EPSG:4326", step=1, origin=(-20, 175), shape=(9, 12))
    yield across, positions(-20, 170, -11, 180, [(-15, 179.5), (-15, -179.5), (-15, 180), (-15, -174)], 3)
    hashed = ks.Grid("grid", scheme="geohash", level="4", origin=(700, 900), shape=(30, 40))
    south, west = -90 + 700 * 180 / 1024, -180 + 900 * 360 / 1024
    yield hashed, positions(south, west, south + 6, west + 15, [(south, west)], 4)
    marks = [(35, 139), (35.5, 140), (35.4, 139.4), (35.05, 140.35), (35.5, 139.6), (35.3, 141.2), (35.15, 141.1)]
    yield regions(tmp_path), positions(35, 139, 36, 141.7, marks, 5)


@with_node
def test_the_browser_and_python_find_the_same_place(tmp_path):
    for axis, points in axes(tmp_path):
        randomizer = ks.local.unary(axis, epsilon="1")
        own = [place_of(randomizer, Position(*point)) for point in points]
        assert node("places", {"randomizer": randomizer.to_json(), "positions": points}) == own
        assert len(set(own)) > 4 and randomizer.size - 1 in own, "places, and elsewhere"


@with_node
def test_positions_that_are_refused(tmp_path):
    wards = ks.local.unary(ks.Nominal("ward", labels=("a", "b")), epsilon="1")
    plain = ks.local.unary(ks.Mesh("grid", shape=(4, 4)), epsilon="1")
    both = ks.local.unary(ks.Domain.of(ks.Mesh("grid", level="1km", shape=(2, 2)), ks.Ordered("h", 2)), epsilon="1")
    named = ks.local.unary(ks.Regions("place", {"code": ["a", "b"]}), epsilon="1")
    closed = ks.local.unary(ks.Mesh("grid", level="1km", shape=(2, 2)), epsilon="1", elsewhere=False)
    for randomizer in (wards, plain, both, named, closed):
        with pytest.raises(DomainError):
            place_of(randomizer, Position(35.0, 139.0))
        told = node("places", {"randomizer": randomizer.to_json(), "positions": [[35.0, 139.0]]})
        assert isinstance(told[0], str)
    # a place that only a projection finds: Python has it, the page says that it is chosen by hand
    square = ks.local.unary(
        ks.Grid("grid", scheme="quadkey", level="10", origin=(600, 900), shape=(20, 20)), epsilon="1"
    )
    assert place_of(square, Position(35.0, 139.0)) == 367
    assert "by hand" in node("places", {"randomizer": square.to_json(), "positions": [[35.0, 139.0]]})[0]
    for bad in ((91, 0), (0, 181), (float("nan"), 0), ("35", 139), (True, 0), (None, 0)):
        with pytest.raises(DomainError, match="latitude"):
            Position(*bad)
    assert "35" not in repr(Position(35.123, 139.456))
    moved = json.loads(json.dumps(ks.local.unary(regions(tmp_path), epsilon="1").to_json()))
    axis = moved["domain"]["axes"][0]
    spoilt = [{"parents": ["", "", "", "z"]}, {"codes": ["a", "a", "c", "d"]}, {"codes": []}, {"more": 1}]
    for bad in (*spoilt, {"shapes": {"lengths": [9], "wkb": ""}}):
        with pytest.raises(Exception, match="non-zero exit"):
            node(
                "places", {"randomizer": {**moved, "domain": {"axes": [{**axis, **bad}], "mask": []}}, "positions": []}
            )


@with_node
def test_a_device_reports_a_position_and_counts_nothing_for_a_refused_one(tmp_path):
    key = CollectorKey.generate()
    rr = ks.local.grr(ks.Mesh("grid", level="500m", origin=(8566, 6350), shape=(12, 9)), epsilon="20", bits=32)
    rounded = Round.new(rr, closes=int(time.time()) + 600)
    device = Device(key.public, max_epsilon="20")
    with pytest.raises(DomainError):
        device.report(rounded.sign(key.signing), Position("35", 139))
    wards = Round.new(ks.local.grr(ks.Nominal("w", labels=("a", "b")), epsilon="1"), closes=int(time.time()) + 600)
    with pytest.raises(DomainError):
        device.report(wards.sign(key.signing), Position(35.7, 139.7))
    assert device.spent == 0
    body = device.report(rounded.sign(key.signing), Position(35.7, 139.7))
    assert len(body) == HEAD + 1
    hit = int(decode(body, rounded)[1][0, 0])
    assert hit == place_of(rr, Position(35.7, 139.7)), "at epsilon 20 the truth is kept but for once in a million"


@with_node
@pytest.mark.parametrize("kind", [*sorted(MAKERS), "memoised"])
def test_the_picture_shows_what_a_report_says(kind):
    mesh = ks.Mesh("grid", shape=(7, 9))
    if kind == "memoised":
        rr = ks.local.memoised(mesh, epsilon_permanent="1", epsilon_instant="2", v_max=3)
    else:
        rr = MAKERS[kind](mesh, epsilon="2")
    vectors = node("make", [{"randomizer": rr.to_json(), "count": 64}])
    rows = np.array([list(bytes.fromhex(v["report"])) for v in vectors], dtype=np.uint8)
    bits = np.unpackbits(rr.supports(rows), axis=1, bitorder="little")[:, : rr.size]
    assert node("supports", vectors) == [np.flatnonzero(row).tolist() for row in bits]


def test_the_page_has_the_style_of_the_reports():
    css = (FOLDER.parent.parent / "report" / "page.css").read_text(encoding="utf-8")
    page = (FOLDER / "demo.html").read_text(encoding="utf-8")
    assert css.splitlines()[0] in page
    assert css.split("header, main, footer")[0].split("body {")[1].split("}")[0].split("font:")[1].split()[0] in page


def operator(port, path, data):
    from collector.asgi import TOKEN

    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(data).encode(), {"authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def opened(port, randomizer):
    data = {"randomizer": randomizer.to_json(), "closes": int(time.time()) + 600}
    return json.loads(operator(port, "/operator/rounds", data)["description"])["id"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_a_faked_position_in_a_real_browser(tmp_path):
    """The device is at a faked position; the page reports from it in both languages, and all that it sends is one
    batch, which has neither the position nor the place in it."""
    pytest.importorskip("uvicorn", reason="the collector needs kasuri[serve]")
    from collector.asgi import free_port, start

    port = free_port()
    collector = start(tmp_path, port)
    key = CollectorKey.open(tmp_path / "collector.key")
    where = (35.6895, 139.6917)
    mesh = ks.local.grr(ks.Mesh("grid", level="500m", origin=(8560, 6340), shape=(16, 16)), epsilon="17")
    shapes = ks.local.unary(regions(tmp_path), epsilon="3")
    try:
        with Browser(tmp_path / "profile", 420, 900, phone=True) as browser:
            session, browser.session = browser.session, None
            browser.call("Browser.grantPermissions", permissions=["geolocation"], origin=f"http://127.0.0.1:{port}")
            browser.session = session
            browser.call("Emulation.setGeolocationOverride", latitude=where[0], longitude=where[1], accuracy=5)
            for randomizer, language in ((mesh, "en"), (shapes, "ja")):
                id = opened(port, randomizer)
                browser.run("window.left = true")
                browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/?key={key.public}&max=20&round={id}")
                browser.until("!window.left && document.body?.dataset.ready === 'yes'")
                browser.run(f"document.querySelector('[data-to={language}]').click()")
                browser.requests.clear()
                browser.posted.clear()
                browser.run("document.getElementById('here').click()")
                browser.until("['sent', 'refused'].includes(document.getElementById('state').dataset.kind)")
                assert browser.run("document.getElementById('state').dataset.kind") == "sent", browser.run(
                    "document.body.innerText"
                )
                told = browser.run("document.body.innerText")
                assert ("送りました" in told) == (language == "ja") and ("Use my position" in told) == (
                    language == "en"
                )
                assert browser.requests == [f"http://127.0.0.1:{port}/rounds/{id}/reports"]
                body = base64.b64decode(browser.posted[0])
                assert len(browser.posted) == 1 and len(body) == HEAD + randomizer.width
                if randomizer is mesh:  # at this epsilon the report is the place but for once in 90,000
                    assert int(body[-2]) + 256 * int(body[-1]) == place_of(mesh, Position(*where))
                    assert not browser.run("document.getElementById('own').hidden")
                else:
                    drawn = "[...document.querySelectorAll('#map path')].map((p) => p.classList.contains('%s'))"
                    bits = [bool(body[-1] >> i & 1) for i in range(4)]
                    assert browser.run(drawn % "sent") == bits and browser.run(drawn % "true") == [
                        True,
                        False,
                        False,
                        False,
                    ]
                kept = browser.run("JSON.stringify({ ...localStorage })")
                assert "35.68" not in kept and "139.69" not in kept
            assert not browser.complaints
            browser.picture(tmp_path / "page.png", whole=True)
            # a device that does not say where it is: nothing is sent, and the page says how to go on
            id = opened(port, mesh)
            browser.run("window.left = true")
            browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/?key={key.public}&max=20&round={id}")
            browser.until("!window.left && document.body?.dataset.ready === 'yes'")
            browser.call("Emulation.setGeolocationOverride")
            browser.requests.clear()
            browser.run("document.querySelector('[data-to=en]').click(), document.getElementById('here').click()")
            browser.until("document.getElementById('state').dataset.kind === 'refused'")
            assert "by hand" in browser.run("document.getElementById('state').textContent") and not browser.requests
            # the round ends between page and tap: a report has left the page, and the page does not deny it
            operator(port, f"/operator/rounds/{id}/close", {})
            browser.run("localStorage.clear(), document.querySelector('#places button').click()")
            browser.until("document.getElementById('state').textContent.includes('closed')")
            told = browser.run("document.getElementById('state').textContent")
            assert "A report left this page" in told and "Nothing was sent" not in told
    finally:
        collector.terminate()
        collector.wait()
