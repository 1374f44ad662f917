"""Rounds of memoised reports and of numbers, from the JavaScript client in a real browser to a real collector that is
killed on the way: nothing is lost, nothing is counted twice, and the estimates hold the truth.

KASURI_DEVICES=2000 runs it with so many simulated devices."""

import json
import os
import signal
import sqlite3
import time
import urllib.request

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the collector needs kasuri[serve]")

from clients.browser import CHROMIUM, Browser
from collector.asgi import TOKEN, free_port, start

import kasuri as ks
from kasuri.local.keys import CollectorKey

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")

DEVICES = int(os.environ.get("KASURI_DEVICES", "120"))
REPORTS = 3
ERRORS = 5
"""Standard errors that an estimate may be off: by chance once in two million."""
SCRIPT = """
(async () => {
  const { Device, toHex } = await import("./kasuri-local.js");
  const { key, rounds, places, numbers, reports } = ASKED;
  window.acknowledged = [];
  window.spent = [];
  const envelopes = await Promise.all(rounds.map(async (id) => (await fetch(`rounds/${id}`)).json()));
  const storing = () => {
    const kept = new Map();
    return { kept, getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
  };
  const locks = { request: async (_, act) => act() };
  const post = async (made) => {  // a client that got no answer sends the same bytes again
    for (;;) {
      try {
        const answer = await fetch(`rounds/${made.round.id}/reports`, { method: "POST", body: made.body,
          headers: { "content-type": "application/octet-stream" } });
        if (answer.status === 200 || answer.status === 409) break;
        if (answer.status !== 503) throw new RangeError(`${answer.status}`);
      } catch (fault) { if (fault instanceof RangeError) { window.trouble = fault.message; return; } }
      await new Promise((done) => setTimeout(done, 50));
    }
    window.acknowledged.push(toHex(made.body.slice(24, 40)));
  };
  const one = async (i) => {
    const storage = storing();
    for (let k = 0; k < reports; k++) {  // restarted before each report: the memory is in the storage
      const device = new Device(key, { maxEpsilon: 6, storage, locks });
      await post(await device.report(envelopes[0], places[i]));
    }
    await post(await new Device(key, { maxEpsilon: 6, storage, locks }).report(envelopes[1], numbers[i]));
    window.spent.push(JSON.parse([...storage.kept.values()][0]).spent);
  };
  let next = 0;
  await Promise.all(Array.from({ length: 16 }, async () => { while (next < places.length) await one(next++); }));
})().then(() => { window.finished = true; }, (fault) => { window.trouble = String(fault); window.finished = true; });
1
"""


def asked(port, path, data=None, method="GET"):
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"authorization": f"Bearer {TOKEN}"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_a_memoised_and_a_numeric_round_from_the_browser(tmp_path):
    port = free_port()
    collector = start(tmp_path, port)
    key = CollectorKey.open(tmp_path / "collector.key")
    wards = ks.Nominal("ward", labels=("Shinjuku", "Shibuya", "Minato"))
    day = ks.local.memoised(wards, epsilon_permanent="2", epsilon_instant="3", v_max=2)
    ages = ks.local.piecewise((0, 100), epsilon="2")
    closes = int(time.time()) + 3600
    rounds = [
        json.loads(
            asked(port, "/operator/rounds", {"randomizer": made.to_json(), "closes": closes, **more}, "POST")[
                "description"
            ]
        )["id"]
        for made, more in ((day, {"reports_per_device": REPORTS}), (ages, {}))
    ]
    rng = np.random.default_rng(7)
    places = rng.choice([*wards.labels, "elsewhere"], DEVICES, p=[0.4, 0.3, 0.2, 0.1]).tolist()
    numbers = rng.normal(45, 15, DEVICES).clip(0, 100).tolist()
    given = {"key": key.public, "rounds": rounds, "places": places, "numbers": numbers, "reports": REPORTS}
    expected = DEVICES * (REPORTS + 1)
    try:
        with Browser(tmp_path / "profile") as browser:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/status")
            browser.until("document.readyState === 'complete' && location.pathname === '/status'")
            browser.run(SCRIPT.replace("ASKED", json.dumps(given)))
            browser.until(f"Boolean(window.trouble) || (window.acknowledged?.length ?? 0) > {expected // 4}")
            os.kill(collector.pid, signal.SIGKILL)
            collector.wait()
            assert not browser.run("window.finished")
            collector = start(tmp_path, port)
            browser.until("window.finished", 120)
            assert browser.run("window.trouble ?? null") is None
            acknowledged, spent = browser.run("window.acknowledged"), browser.run("window.spent")
        means = asked(port, f"/operator/rounds/{rounds[1]}/estimate")
        people = asked(port, f"/operator/rounds/{rounds[0]}/estimate?method=inversion")
        status = asked(port, "/operator/status")["rounds"]
    finally:
        collector.terminate()
        collector.wait()
    db = sqlite3.connect(tmp_path / "reports.db")
    kept = [key.hex() for (key,) in db.execute("SELECT key FROM batch")]
    assert len(acknowledged) == expected and sorted(acknowledged) == sorted(kept) and len(set(kept)) == expected
    assert [r["reports"] for r in status] == [DEVICES * REPORTS, DEVICES]
    assert spent == [6] * DEVICES, "v_max times epsilon once for the memory, and epsilon for the number"
    off = (means["mean"]["value"] - np.mean(numbers)) / means["mean"]["standard_error"]
    assert abs(off) < ERRORS and means["guarantee"]["epsilon"] == "2"
    truth = REPORTS * np.array([places.count(label) for label in people["labels"]])
    wrong = (np.array(people["counts"]) - truth) / np.array(people["standard_error"])
    assert people["guarantee"]["epsilon"] == "4" and (abs(wrong) < ERRORS).all()
    print(f"{DEVICES} devices, {expected} reports; mean off by {off:.2f} errors, places by {np.round(wrong, 2)}")
