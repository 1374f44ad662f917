"""`kasuri start` in a real browser: from an Excel file to a verified release, by mouse, by keyboard, on a phone, in
both languages; nothing but the page's own server is asked for anything."""

import json
import os
import shutil
import signal
import tomllib
from pathlib import Path

import pytest
from clients.browser import CHROMIUM
from clients.start import click, excel, saved, served, type_in, visit

import kasuri as ks
from kasuri import job

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".tools" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


def picture(browser, name):
    """Kept where KASURI_PICTURES names a folder, for people to look at."""
    if kept := os.environ.get("KASURI_PICTURES"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        browser.picture(Path(kept) / name, whole=True)


def accessible(browser):
    """What axe finds, above minor."""
    if not AXE.exists():
        return []
    browser.run(AXE.read_text(encoding="utf-8") + "; 1")
    found = browser.run("axe.run(document, { iframes: false }).then((r) => r.violations.map((v) => [v.id, v.impact,"
                        "v.nodes.map((n) => n.html.slice(0, 160))]))")  # fmt: skip
    return [own for own in found if own[1] != "minor"]


def test_from_excel_to_a_verified_release_in_under_ten_clicks(browser, tmp_path):
    excel(tmp_path / "census.xlsx", 60, "5km")
    clicks = ["#level-0-5km", "#first-0", "#labels-1-0", "#labels-2-6", "#unit-person", "#allowance",
              "#openledger", "#epsilon", "#go"]  # fmt: skip
    with served(tmp_path, "census.xlsx") as server:
        visit(browser, server)
        picture(browser, "start-1-begun.png")
        assert browser.run("state.content.unit") is None and browser.run("state.content.budget") is None
        for selector in clicks[:-1]:
            click(browser, selector)
            if selector == "#first-0":
                narrow(browser)
            if selector == "#allowance":
                type_in(browser, "2")
            if selector == "#openledger":
                browser.until("!!(state.content.budget || {}).ledger")
        assert accessible(browser) == []
        picture(browser, "start-2-ready.png")
        assert browser.run("state.faults") == []
        click(browser, "#go")
        browser.until("!!document.getElementById('verified')", 120)
        picture(browser, "start-3-released.png")
        assert accessible(browser) == []
        assert len(clicks) < 10 and browser.complaints == []
        origin = server.address.partition("#")[0]
        assert all(own.startswith((origin, "data:", "about:")) for own in browser.requests), browser.requests
        assert "closed" in server.stop()
    assert ks.verify(tmp_path / "release", ledger=tmp_path / "census.ledger").ok
    assert ks.Ledger.load(tmp_path / "census.ledger").summary()["committed"] == 1
    written = tomllib.loads((tmp_path / "job.toml").read_text(encoding="utf-8"))
    assert written["axes"][0] == {"kind": "mesh", "name": "grid", "level": "5km", "origin": [864, 624],
                                  "shape": [16, 16]}  # fmt: skip
    assert written["budget"] == {"ledger": "census.ledger", "epsilon": "1"}


def press_until(browser, wanted, most=120):
    """Tab until an element has the focus; a person without a mouse must get there."""
    for _ in range(most):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
        if browser.run(f"document.activeElement && document.activeElement.id === {json.dumps(wanted)}"):
            return
    raise AssertionError(f"{wanted} is not reached by Tab")


def stroke(browser, key, code, text=None):
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code,
                 **({"text": text} if text else {}))  # fmt: skip
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
    saved(browser)


def space(browser):
    stroke(browser, " ", 32, " ")


def narrow(browser):
    """In the box of first-order meshes: one of 16 x 16 cells, a tenth of a window's work."""
    type_in(browser, "5439")
    stroke(browser, "Enter", 13, "\r")
    browser.until("((state.content.axes[0] || {}).shape || [])[0] === 16")
    saved(browser)


def test_by_keyboard_alone_on_a_phone_in_japanese(browser, tmp_path):
    excel(tmp_path / "人口.xlsx", 40, "5km")
    browser.size(390, 844, phone=True)
    with served(tmp_path, "人口.xlsx") as server:
        visit(browser, server)
        browser.run("document.querySelector('[data-language=ja]').focus()")
        space(browser)
        assert browser.run("document.documentElement.lang") == "ja"
        picture(browser, "start-phone-ja-1.png")
        for wanted in ("level-0-10km", "window-0-japan", "labels-1-0", "labels-2-4"):
            press_until(browser, wanted)
            space(browser)
            for _ in range({"level-0-10km": 1, "window-0-japan": 1, "labels-2-4": 2}.get(wanted, 0)):
                stroke(browser, "ArrowRight", 39)  # the arrow keys move inside a group of choices
            if wanted == "level-0-10km":
                browser.until("!!document.querySelector('#window-0-japan')")
            if wanted == "window-0-japan":
                assert browser.run("state.content.axes[0].shape[0]") > 50
                press_until(browser, "first-0")
                narrow(browser)
        assert browser.run("state.content.axes[0].level") == "5km"
        assert browser.run("state.content.axes[0].shape") == [16, 16]
        assert browser.run("state.content.axes[2].labels[0]") == "0-14"
        press_until(browser, "unit-person")
        space(browser)
        press_until(browser, "payer-none")
        space(browser)
        press_until(browser, "epsilon")
        stroke(browser, "ArrowRight", 39)
        assert browser.run("state.content.budget") == {"unmetered": True, "epsilon": "1.5"}
        browser.until("!!errors && !trying", 90)
        assert browser.run("document.documentElement.scrollWidth") <= 390, "nothing sticks out of a phone"
        assert accessible(browser) == []
        picture(browser, "start-phone-ja-2.png")
        words = browser.run("document.body.innerText")
        assert "公表" in words and "still open" not in words and "recommended" not in words
        press_until(browser, "go", 200)
        stroke(browser, "Enter", 13, "\r")
        browser.until("!!document.getElementById('verified')", 120)
        browser.until("!!document.querySelector('#report iframe[src]')")
        frame = browser.run("document.querySelector('#report iframe').src")
        browser.run("document.querySelector('[data-language=en]').click()")
        assert browser.run("document.querySelector('#report iframe').src") == frame
        picture(browser, "start-phone-ja-3.png")
        assert browser.complaints == []
    assert ks.verify(tmp_path / "release").ok


def test_a_killed_server_loses_nothing_and_charges_nothing_twice(browser, tmp_path):
    """Killed in mid-release: the charge is in the ledger once, the page says so, and releases nothing by itself."""
    excel(tmp_path / "census.xlsx", 20)
    unit = ks.Unit("person", "add-remove", 1)
    ks.Ledger.open(tmp_path / "census.ledger", epsilon="2", unit=unit, data="census")
    with served(tmp_path, "census.xlsx") as server:
        visit(browser, server)
        for selector in ("#level-0-1km", "#window-0-kanto", "#labels-1-0", "#labels-2-6", "#unit-person",
                         "#payer-census\\.ledger", "#epsilon"):  # fmt: skip
            click(browser, selector)
        kept = browser.run("JSON.stringify(state.content)")
        server.stop(signal.SIGKILL)
    assert job.load(tmp_path / "job.toml").budget.epsilon == "1"
    book = ks.Ledger.load(tmp_path / "census.ledger")
    guarantee = ks.geometric().guarantee(job.domain(job.load(tmp_path / "job.toml"), tmp_path), unit, "1")
    book.reserve(guarantee, data="census", recipe="geometric", plan="")  # as a run that was killed leaves it
    with served(tmp_path, "job.toml") as server:
        visit(browser, server)
        assert browser.run("JSON.stringify(state.content)") == kept
        assert "never finished" in browser.run("document.getElementById('budget').innerText")
        assert browser.run("state.done") is None and browser.run("state.progress.phase") == "idle"
    assert ks.Ledger.load(tmp_path / "census.ledger").summary()["balance"]["spent"] == "1"


def test_a_used_address_opens_no_second_page(browser, tmp_path):
    shutil.copy(excel(tmp_path / "a.xlsx", 5), tmp_path / "b.xlsx")
    with served(tmp_path) as server:
        visit(browser, server)
        browser.run("sessionStorage.clear()")
        browser.call("Page.navigate", url="about:blank")
        visit(browser, server)
        assert browser.run("document.body.dataset.ready") == "no" and browser.run("state") is None
        said = server.stop()
    assert "A new one: http://127.0.0.1" in said
