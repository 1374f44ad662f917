"""The collector: acknowledges only what is on disk, stores nothing it should refuse, keeps nothing about senders."""

import asyncio
import base64
import dataclasses
import http.client
import http.server
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import threading
import time
import urllib.request
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the collector needs kasuri[serve]")

from collector.asgi import TOKEN, call, free_port, operator, request, start

import kasuri as ks
from kasuri.local.collector import application
from kasuri.local.device import Device, send
from kasuri.local.files import read_reports
from kasuri.local.keys import CollectorKey
from kasuri.local.read import NUMBERS
from kasuri.local.reports import Store
from kasuri.local.wire import MAGIC, Round, decode, encode, read_round, verify
from kasuri.shuffle.rounds import central_claim

WARDS = ks.Nominal("ward", labels=tuple(f"w{i}" for i in range(22)))
BINARY = {"content-type": "application/octet-stream"}


@pytest.fixture
def collector(tmp_path):
    clock = [1_000_000.0]
    store = Store(tmp_path / "reports.db", clock=lambda: clock[0])
    key = CollectorKey.open(tmp_path / "collector.key")
    yield store, key, application(store, key, operator_token=TOKEN, clock=lambda: clock[0]), clock
    store.close()


def open_round(app, **more):
    randomizer = ks.local.unary(WARDS, epsilon="1")
    status, envelope = operator(
        app, "POST", "/operator/rounds", {"randomizer": randomizer.to_json(), "closes": 2_000_000, **more}
    )
    assert status == 201
    return envelope, json.loads(envelope["description"])["id"], randomizer


def batch(key, envelope, randomizer, n=10, seed=1):
    rounded = verify(envelope, bytes.fromhex(key.public))
    return encode(rounded, randomizer.randomize(np.arange(n) % 23, source=ks.seeded(seed)).rows)


def stored(store):
    return sqlite3.connect(store.path).execute("SELECT COALESCE(SUM(count), 0) FROM batch").fetchone()[0]


def test_a_batch_is_stored_once_and_estimated(collector):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app, reports_per_device=3)
    body = batch(key, envelope, randomizer, 5000)
    assert call(app, "POST", f"/rounds/{id}/reports", body, BINARY)[0] == 200
    status, _, answer = call(app, "POST", f"/rounds/{id}/reports", body, BINARY)
    assert status == 409 and b"stored already" in answer
    assert stored(store) == 5000
    rounded = verify(envelope, bytes.fromhex(key.public))
    own = ks.local.estimate(decode(body, rounded)[1], randomizer, method="inversion")
    for method in ("inversion", "em"):
        status, found = operator(app, "GET", f"/operator/rounds/{id}/estimate?method={method}")
        assert status == 200 and found["reports"] == 5000
        assert found["guarantee"]["epsilon"] == "3"
        if method == "inversion":
            assert found["counts"] == own.counts.tolist()


def test_json_batches_pass_the_same_checks(collector):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    rounded = verify(envelope, bytes.fromhex(key.public))
    key_, rows = decode(batch(key, envelope, randomizer), rounded)
    data = {
        "version": 1,
        "round": rounded.fingerprint.hex(),
        "key": key_.hex(),
        "reports": [base64.b64encode(bytes(row)).decode() for row in rows],
    }
    json_type = {"content-type": "application/json"}
    for wrong in ({"version": 2}, {"round": "00" * 16}, {"key": "00"}, {"reports": []}, {"reports": ["AAAA" * 2]},
                  {"reports": ["////"]}, {"more": 1}, {"reports": [1]}):  # fmt: skip
        assert call(app, "POST", f"/rounds/{id}/reports", json.dumps({**data, **wrong}).encode(), json_type)[0] == 400
    assert stored(store) == 0
    assert call(app, "POST", f"/rounds/{id}/reports", json.dumps(data).encode(), json_type)[0] == 200
    assert stored(store) == 10


def test_refusals_have_reasons_and_store_nothing(collector):
    store, key, app, clock = collector
    envelope, id, randomizer = open_round(app)
    good = batch(key, envelope, randomizer)
    url = f"/rounds/{id}/reports"
    other = batch(key, open_round(app)[0], randomizer)
    for body, status in [
        (good[:-1], 400),  # a report cut short
        (good + b"\x00", 400),
        (good[:40], 400),  # no report
        (b"kasuri\x02\x00" + good[8:], 400),  # version 2
        (other, 400),  # another round
        (good[:-1] + b"\xff", 400),  # padding bits set
        (good[:40] + bytes(3 * 10_001), 413),
        (b"", 400),
    ]:
        found, _, answer = call(app, "POST", url, body, BINARY)
        assert found == status and len(json.loads(answer)["error"]) > 10
    assert call(app, "POST", "/rounds/none/reports", good, BINARY)[0] == 404
    assert call(app, "POST", url, good, {"content-type": "text/plain"})[0] == 415
    assert call(app, "GET", url)[0] == 404
    status, headers, _ = call(app, "OPTIONS", url)  # what a browser asks for a page of another origin
    assert status == 204 and "content-type" in headers["access-control-allow-headers"]
    clock[0] = 2_000_000.0
    assert call(app, "POST", url, good, BINARY)[0] == 410
    assert stored(store) == 0


def test_a_closed_round_stays_closed_after_a_restart(collector, tmp_path):
    _, key, app, clock = collector
    envelope, id, randomizer = open_round(app)
    assert operator(app, "POST", f"/operator/rounds/{id}/close")[0] == 200
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)[0] == 410
    again = Store(tmp_path / "reports.db", clock=lambda: clock[0])
    assert again.find(id).closed
    again.close()
    assert not json.loads(call(app, "GET", "/rounds")[2])["rounds"]


def test_operator_endpoints_want_the_token(collector):
    _, _, app, _ = collector
    _, id, _ = open_round(app)
    for method, path in [
        ("GET", "/operator/status"), ("POST", "/operator/rounds"), ("POST", f"/operator/rounds/{id}/close"),
        ("POST", f"/operator/rounds/{id}/tokens"), ("GET", f"/operator/rounds/{id}/estimate"),
        ("GET", f"/operator/rounds/{id}/export"),
    ]:  # fmt: skip
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer \xff"}):
            assert call(app, method, path, b"", headers)[0] == 401
    for data in ({}, {"randomizer": {}}, {"randomizer": 1, "closes": 1}, {"closes": 5}):
        assert operator(app, "POST", "/operator/rounds", data)[0] == 400
    assert operator(app, "GET", f"/operator/rounds/{id}/estimate")[0] == 400  # no reports yet
    assert operator(app, "GET", "/operator/rounds/none/estimate")[0] == 404


def test_one_round_tokens_pay_once_and_leave_no_trace(collector, tmp_path):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app, tokens=True, reports_per_device=2)
    url = f"/rounds/{id}/reports"
    tokens = operator(app, "POST", f"/operator/rounds/{id}/tokens", {"count": 3})[1]["tokens"]

    def post(token, n, seed):
        body = batch(key, envelope, randomizer, n, seed)
        return call(app, "POST", url, body, {**BINARY, "kasuri-token": token} if token else BINARY)[0]

    assert post(None, 1, 1) == 401 and post("zz", 1, 1) == 401 and post("00" * 16, 1, 1) == 401
    assert post(tokens[0], 2, 2) == 200
    assert post(tokens[0], 1, 3) == 401  # used up
    assert post(tokens[1], 3, 4) == 401 and post(tokens[1], 2, 5) == 200
    assert stored(store) == 4
    db = sqlite3.connect(store.path)
    kept = db.execute("SELECT hash FROM token").fetchall()
    assert len(kept) == 3 and all(bytes.fromhex(t) != h for t in tokens for (h,) in kept)
    assert operator(app, "POST", f"/operator/rounds/{id}/close")[0] == 200
    assert db.execute("SELECT COUNT(*) FROM token").fetchone() == (0,)
    hashes = [h for (h,) in kept]
    db.close()
    for name in ("reports.db", "reports.db-wal"):
        raw = (tmp_path / name).read_bytes()
        assert not any(h in raw for h in hashes), f"a token's hash is still in {name}"
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_closed_round_states_its_shuffle_model_claim(collector):
    """Beside the local claim, for n = reports under tokens; not while a round is open, and not what it cannot state."""
    _, key, app, _ = collector
    envelope, id, randomizer = open_round(app, tokens=True)
    plain, other, _ = open_round(app)
    tokens = operator(app, "POST", f"/operator/rounds/{id}/tokens", {"count": 60})[1]["tokens"]
    for seed, token in enumerate(tokens):
        body = batch(key, envelope, randomizer, 1, seed)
        assert call(app, "POST", f"/rounds/{id}/reports", body, {**BINARY, "kasuri-token": token})[0] == 200
    assert call(app, "POST", f"/rounds/{other}/reports", batch(key, plain, randomizer), BINARY)[0] == 200
    # n is the number of tokens that were used: a token used again, and a batch sent again, add nothing
    for sent, status in ((body, 409), (batch(key, envelope, randomizer, 1, 99), 401)):
        assert call(app, "POST", f"/rounds/{id}/reports", sent, {**BINARY, "kasuri-token": token})[0] == status
    asked = f"/operator/rounds/{id}/estimate?delta=1e-6"
    status, told = operator(app, "GET", asked)
    assert status == 400 and "open round" in told["error"]
    told = operator(app, "GET", "/operator/status")[1]
    assert [r["central"] for r in told["rounds"]] == [None, None] and told["together"] is None
    for one in (id, other):
        assert operator(app, "POST", f"/operator/rounds/{one}/close")[0] == 200
    status, told = operator(app, "GET", asked)
    rounded = verify(envelope, bytes.fromhex(key.public))
    assert status == 200 and told["central"] == central_claim(rounded, 60, "1e-6").to_json()
    assert told["guarantee"]["epsilon"] == "1" and told["central"]["model"] == "shuffle"
    assert float(told["central"]["epsilon"]) < 1 and any("while it was open" in a for a in told["central"]["assumes"])
    told = operator(app, "GET", "/operator/status?delta=1e-4")[1]
    first, second = (r["central"] for r in told["rounds"])
    assert first == central_claim(rounded, 60, "1e-4").to_json() and "tokens" in second["none"]
    # a person who joined both: the central claim of one, and the local one (epsilon 1) of the round that has no other
    sums = [Fraction(told["together"][name]) for name in ("epsilon", "delta")]
    assert sums == [Fraction(first["epsilon"]) + 1, Fraction(first["delta"])]
    assert any("while it was open" in words for words in told["together"]["assumes"])
    assert "central" not in operator(app, "GET", f"/operator/rounds/{id}/estimate")[1]
    for delta in ("0", "1", "-1", "2", "nan", "inf", "", "x", "1e-999999999", "1e999999999", "1/0", "9" * 9999):
        for path in (f"/operator/rounds/{id}/estimate", "/operator/status"):
            status, told = operator(app, "GET", f"{path}?delta={delta}")
            assert status == 400 or "none" in told["rounds"][0]["central"], (path, delta[:20])


def test_a_reader_puts_the_wiping_of_the_log_off_and_no_further(collector, tmp_path):
    store, _, app, _ = collector
    _, id, _ = open_round(app, tokens=True)
    operator(app, "POST", f"/operator/rounds/{id}/tokens", {"count": 3})
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    hashes = [h for (h,) in reader.execute("SELECT hash FROM token")]
    assert operator(app, "POST", f"/operator/rounds/{id}/close")[0] == 200
    log = tmp_path / "reports.db-wal"
    assert any(h in log.read_bytes() for h in hashes)
    reader.execute("ROLLBACK")
    reader.close()
    for _ in range(100):
        if not any(h in log.read_bytes() for h in hashes):
            break
        time.sleep(0.05)
    raw = log.read_bytes() + store.path.read_bytes()
    assert not any(h in raw for h in hashes)


def test_nothing_about_the_sender_is_kept(collector, capfd):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    marks = {"user-agent": "Mozilla/agent-4711", "x-forwarded-for": "198.51.100.7", "cookie": "who=me"}
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), {**BINARY, **marks})[0] == 200
    call(app, "POST", f"/rounds/{id}/reports", b"junk", {**BINARY, **marks})
    operator(app, "GET", "/operator/status")
    files = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    told = "".join(capfd.readouterr()).encode() + call(app, "GET", "/metrics")[2]
    for mark in (b"agent-4711", b"198.51.100.7", b"203.0.113.9", b"who=me"):
        assert mark not in files and mark not in told


def test_a_full_queue_says_so(collector, monkeypatch):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    monkeypatch.setattr("kasuri.local.reports.MAX_PENDING", 0)
    status, headers, _ = call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)
    assert status == 503 and headers["retry-after"] == "1" and stored(store) == 0
    monkeypatch.undo()
    monkeypatch.setattr("kasuri.local.reports.MAX_PENDING_BYTES", 0)
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)[0] == 503
    monkeypatch.undo()
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)[0] == 200


def test_a_failing_disk_is_no_acknowledgement(collector, monkeypatch):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)

    def broken(group, late):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(store, "_all", broken)
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)[0] == 503
    monkeypatch.undo()
    assert call(app, "POST", f"/rounds/{id}/reports", batch(key, envelope, randomizer), BINARY)[0] == 200
    assert stored(store) == 10


def test_a_group_with_a_replayed_batch_stores_the_others(tmp_path):
    """Outcomes are told batch by batch, also within one commit."""
    store = Store(tmp_path / "reports.db")
    randomizer = ks.local.unary(WARDS, epsilon="1")
    opened = store.open_round(Round.new(randomizer, closes=1 << 39))
    over = store.open_round(Round.new(randomizer, closes=1))
    rows = randomizer.randomize([1, 2], source=ks.seeded(1)).rows
    found = {}
    with store._wake:  # the writer waits: all of these become one group
        for name, target, key in [("a", opened, b"a"), ("b", opened, b"b"), ("a again", opened, b"a"),
                                  ("other round", over, b"a"), ("c", opened, b"c")]:  # fmt: skip
            assert store.put(target, key * 16, rows, lambda outcome, name=name: found.update({name: outcome}))
    store.close()
    assert found == {"a": "stored", "b": "stored", "a again": "duplicate", "other round": "closed", "c": "stored"}
    assert stored(store) == 6


def test_a_large_group_is_stored_whole(tmp_path):
    """More batches than one statement takes, and sizes that leave every remainder."""
    store = Store(tmp_path / "reports.db")
    randomizer = ks.local.unary(WARDS, epsilon="1")
    opened = store.open_round(Round.new(randomizer, closes=1 << 39))
    rows = randomizer.randomize([1, 2], source=ks.seeded(1)).rows
    found = []
    with store._wake:
        for number in range(256 + 64 + 16 + 4 + 3):
            assert store.put(opened, number.to_bytes(16, "little"), rows, found.append)
    store.close()
    assert found == ["stored"] * 343 and stored(store) == 686


def outcome_of(store, opened, key, rows):
    """What becomes of one batch; None where the writer never answers."""
    told, found = threading.Event(), []
    taken = store.put(opened, key, rows, lambda outcome: (found.append(outcome), told.set()))
    return (found[0] if told.wait(20) else None) if taken else "refused"


def test_the_writer_outlives_a_locked_disk(tmp_path, monkeypatch):
    """A round that ends while another process holds the file ended the writer, and every batch then hung."""
    clock = [1_000.0]
    store = Store(tmp_path / "reports.db", clock=lambda: clock[0])
    try:
        randomizer = ks.local.unary(WARDS, epsilon="1")
        store.open_round(Round.new(randomizer, closes=2_000))
        opened = store.open_round(Round.new(randomizer, closes=9_000))
        rows = randomizer.randomize([1, 2], source=ks.seeded(1)).rows
        connect = Store._connect

        def hurried(self):
            db = connect(self)
            db.execute("PRAGMA busy_timeout = 50")  # 30 s in earnest
            return db

        monkeypatch.setattr(Store, "_connect", hurried)
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        clock[0] = 3_000.0
        time.sleep(2.5)
        assert store.alive()
        other.execute("ROLLBACK")
        other.close()
        assert outcome_of(store, opened, b"k" * 16, rows) == "stored"
        for _ in range(100):
            if store.rounds()[0].closed:
                break
            time.sleep(0.05)
        assert store.rounds()[0].closed, "closed at a later turn"
    finally:
        store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_writer_takes_nothing_and_health_says_so(collector, monkeypatch):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    assert call(app, "GET", "/health")[0] == 200

    def broken(group):
        raise SystemExit  # what no handler of the writer expects

    monkeypatch.setattr(store, "_commit", broken)
    body = batch(key, envelope, randomizer)
    told = []
    assert store.put(store.find(id), b"a" * 16, decode(body, store.find(id).round)[1], told.append)
    store._writer.join(10)
    assert not store.alive() and told == ["failed"]
    assert call(app, "POST", f"/rounds/{id}/reports", body, BINARY)[0] == 503
    assert call(app, "GET", "/health")[0] == 503


def test_a_key_with_other_bytes_is_no_duplicate(collector):
    """A batch cut short on its way was stored, and the whole one then answered as if it were stored too."""
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    body = batch(key, envelope, randomizer, 10)
    url = f"/rounds/{id}/reports"
    assert call(app, "POST", url, body[: 40 + 3 * 4], BINARY)[0] == 200
    assert call(app, "POST", url, body[: 40 + 3 * 4], BINARY)[0] == 409
    assert call(app, "POST", url, body, BINARY)[0] == 422
    assert stored(store) == 4


def test_a_body_is_bounded_however_wide_its_reports_are(collector):
    _, _, app, _ = collector
    wide = ks.local.unary(ks.Ordered("x", (1 << 20) - 1), epsilon="1")
    status, envelope = operator(app, "POST", "/operator/rounds", {"randomizer": wide.to_json(), "closes": 2_000_000})
    assert status == 201
    id = json.loads(envelope["description"])["id"]
    for kind in ("application/octet-stream", "application/json"):
        headers = {"content-type": kind, "content-length": str(40 << 20)}
        status, _, answer = call(app, "POST", f"/rounds/{id}/reports", b"", headers)
        assert status == 413 and b"at most 127 reports" in answer


def test_a_round_keeps_the_text_it_was_signed_with():
    """Caveats and order of another release still read, a claim that is not the round's own does not."""
    made = Round.new(ks.local.unary(WARDS, epsilon="1"), closes=2_000_000, reports_per_device=2)
    data = json.loads(made.text)
    older = json.dumps({**dict(reversed(data.items())), "guarantee": {**data["guarantee"], "assumes": ["less"]}})
    again = read_round(older)
    assert again == made and again.text == older and again.fingerprint != made.fingerprint
    for change in ({"more": 1}, {"guarantee": {**data["guarantee"], "epsilon": "1"}},
                   {"guarantee": {**data["guarantee"], "delta": "0.1"}}, {"guarantee": {}}, {"guarantee": None},
                   {"reports_per_device": 1}):  # fmt: skip
        with pytest.raises(ks.KasuriError):
            read_round(json.dumps({**data, **change}))


def test_a_device_keeps_its_budget_in_a_file(collector, tmp_path):
    _, key, app, clock = collector
    envelope, _, _ = open_round(app, reports_per_device=2)
    path = tmp_path / "device.json"
    new = lambda: Device(key.public, max_epsilon="2", state=path, clock=lambda: clock[0])  # noqa: E731
    first, second = new(), new()  # two processes with one state
    first.report(envelope, "w3")
    assert path.stat().st_mode & 0o777 == 0o600 and "w3" not in path.read_text()
    second.report(envelope, "w3")
    for device in (first, second, new()):
        with pytest.raises(ks.ProtocolError, match="all its reports"):
            device.report(envelope, "w3")
    other = open_round(app)[0]
    for device in (first, second, new()):
        with pytest.raises(ks.PrivacyError, match="in all"):
            device.report(other, "w3")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    linked = Device(key.public, max_epsilon="3", state=link, clock=lambda: clock[0])
    linked.report(open_round(app)[0], "w3")
    assert link.is_symlink() and new().spent == 3, "one budget, whatever link leads to it"
    good = path.read_text()
    path.write_text("{")
    with pytest.raises(ks.FormatError, match="damaged"):
        first.report(other, "w3")
    path.write_text(good)
    path.unlink()
    with pytest.raises(ks.ProtocolError, match="gone"):
        first.report(other, "w3")


def test_a_device_counts_before_it_draws(collector, tmp_path, monkeypatch):
    """A crash while drawing, or a disk that keeps nothing, must not leave a report unpaid."""
    _, key, app, clock = collector
    path = tmp_path / "device.json"
    new = lambda: Device(key.public, max_epsilon="9", state=path, clock=lambda: clock[0])  # noqa: E731
    envelope = open_round(app)[0]

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kasuri.local.device.secrets.randbits", crash)
    with pytest.raises(KeyboardInterrupt):
        new().report(envelope, "w3")
    monkeypatch.undo()
    assert new().spent == 1
    monkeypatch.setattr("kasuri.local.device.os.fsync", crash)
    monkeypatch.setattr("kasuri.local.device.secrets.randbits", lambda bits: pytest.fail("drawn before it was synced"))
    with pytest.raises(KeyboardInterrupt):
        new().report(open_round(app)[0], "w3")
    monkeypatch.undo()
    memoised = ks.local.memoised(WARDS, epsilon_permanent="1", epsilon_instant="40", v_max=2)
    rounded = Round.new(memoised, closes=2_000_000, reports_per_device=5).sign(key.signing)
    sent = {new().report(rounded, "w3")[40:] for _ in range(4)}
    assert len(sent) == 1 and new().spent == 3, "one permanent report, kept over restarts and paid once"


def test_a_state_that_gives_budget_back_is_refused(collector):
    _, key, app, clock = collector
    envelope = open_round(app)[0]
    fresh = lambda: Device(key.public, max_epsilon="1", clock=lambda: clock[0])  # noqa: E731
    device = fresh()
    unused = device.to_json()
    device.report(envelope, "w3")
    for data in (unused, device.to_json()):
        with pytest.raises(ks.ProtocolError, match="already"):
            device.restore(data)
    good = device.to_json()
    memoised = ks.local.memoised(WARDS, epsilon_permanent="1", epsilon_instant="40", v_max=2)
    memory = {"randomizer": memoised.to_json(), "memory": {"randomizer": memoised.fingerprint, "kept": {}}}
    for change in ({"spent": "-100"}, {"spent": "0"}, {"spent": 1.0}, {"spent": "x"}, {"spent": None}, {"sent": {}},
                   {"sent": {"a": -1}}, {"sent": {"a": "1"}}, {"sent": 3}, {"memories": 1}, {"memories": [1]},
                   {"memories": [memory]}):  # fmt: skip
        with pytest.raises(ks.KasuriError):
            fresh().restore({**good, **change})
    again = fresh()
    again.restore(good)
    assert again.spent == 1


def test_send_tells_a_collector_that_answers_nonsense(monkeypatch):
    answers = [(503, {"retry-after": "soon"}, b""), (200, {}, b"<html>")]

    class Odd(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = answers.pop(0)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    waits = []
    monkeypatch.setattr("kasuri.local.device.time.sleep", waits.append)
    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with pytest.raises(ks.KasuriError, match="keep the bytes"):
                send(f"http://127.0.0.1:{server.server_port}/", b"x")
        finally:
            server.shutdown()
            thread.join()
    assert waits == [1] and not answers


def test_export_is_shuffled_and_complete(collector, tmp_path, monkeypatch):
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    body = batch(key, envelope, randomizer, 4000)
    assert call(app, "POST", f"/rounds/{id}/reports", body, BINARY)[0] == 200
    found = call(app, "GET", f"/operator/rounds/{id}/export", b"", {"authorization": f"Bearer {TOKEN}"})[2]
    (tmp_path / "x.parquet").write_bytes(found)
    rows, rounded = read_reports(tmp_path / "x.parquet")
    ks.local.write_reports(tmp_path / "own", ks.local.Reports(rows, randomizer.fingerprint), rounded)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600, "an export lies in a folder of all"
    sent = decode(body, rounded)[1]
    assert (rows != sent).any()
    assert sorted(map(bytes, rows)) == sorted(map(bytes, sent))
    monkeypatch.setattr("kasuri.local.reports.secrets.randbits", lambda bits: 1)  # a seed has too few orders
    one, two = (store.rows(store.find(id)) for _ in range(2))
    assert (one != two).any()
    seeded = randomizer.randomize([1], source=ks.seeded(1))
    with pytest.raises(ks.PrivacyError, match="seeded"):
        ks.local.write_reports(tmp_path / "z", seeded, rounded)
    with pytest.raises(ks.PrivacyError, match="bare rows"):
        ks.local.write_reports(tmp_path / "z", seeded.rows, rounded)
    with pytest.raises(ks.PrivacyError, match="another randomizer"):
        ks.local.write_reports(tmp_path / "z", ks.local.oue(WARDS, epsilon="1").randomize([1]), rounded)
    (tmp_path / "y.parquet").write_bytes(b"PAR1junk")
    with pytest.raises(ks.FormatError):
        read_reports(tmp_path / "y.parquet")


def test_devices_refuse_what_they_should(collector):
    _, key, app, clock = collector
    envelope, id, randomizer = open_round(app)
    device = Device(key.public, max_epsilon="1", clock=lambda: clock[0])
    assert call(app, "POST", f"/rounds/{id}/reports", device.report(envelope, "w3"), BINARY)[0] == 200
    assert device.spent == 1
    with pytest.raises(ks.ProtocolError, match="all its reports"):
        device.report(envelope, "w3")
    further = open_round(app)[0]
    with pytest.raises(ks.PrivacyError, match="in all"):
        device.report(further, "w3")  # rounds add up: this one is beyond the device's budget
    again = Device(key.public, max_epsilon="9", clock=lambda: clock[0])
    again.restore(device.to_json())
    assert again.spent == 1
    with pytest.raises(ks.ProtocolError, match="all its reports"):
        again.report(envelope, "w3")
    again.report(further, "w3")
    with pytest.raises(ks.ProtocolError, match="another collector"):
        Device("00" * 32, max_epsilon="9").restore(device.to_json())
    with pytest.raises(ks.PrivacyError, match="not signed"):
        Device(CollectorKey.generate().public, max_epsilon="1").report(envelope, "w3")
    forged = {**envelope, "description": envelope["description"].replace('"epsilon":"1"', '"epsilon":"9"')}
    with pytest.raises(ks.PrivacyError, match="not signed"):
        Device(key.public, max_epsilon="9").report(forged, "w3")
    with pytest.raises(ks.PrivacyError, match="at most"):
        Device(key.public, max_epsilon="0.5", clock=lambda: clock[0]).report(envelope, "w3")
    with pytest.raises(ks.DomainError):
        Device(key.public, max_epsilon="1", clock=lambda: clock[0]).report(envelope, "nowhere")
    with pytest.raises(ks.ProtocolError, match="closed"):
        Device(key.public, max_epsilon="1", clock=lambda: 3e6).report(envelope, "w3")
    # a collector that signs a false claim: probabilities of epsilon 5 under the name of epsilon 1
    loud = ks.local.unary(WARDS, epsilon="5")
    object.__setattr__(loud, "epsilon", randomizer.epsilon)
    lie = dataclasses.replace(Round.new(randomizer, closes=2_000_000))
    object.__setattr__(lie, "randomizer", loud)
    with pytest.raises(ks.PrivacyError, match="more than the epsilon"):
        Device(key.public, max_epsilon="1", clock=lambda: clock[0]).report(lie.sign(key.signing), "w3")


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_round_of_numbers_is_collected_and_refuses_what_it_should(collector, tmp_path, kind):
    _, key, app, clock = collector
    made = getattr(ks.local, kind)((0, 100), epsilon="1")
    data = {"randomizer": made.to_json(), "closes": 2_000_000}
    status, envelope = operator(app, "POST", "/operator/rounds", data)
    assert status == 201
    id = json.loads(envelope["description"])["id"]
    url = f"/rounds/{id}/reports"
    device = Device(key.public, max_epsilon="1", clock=lambda: clock[0])
    for bad in (None, "5", float("nan"), float("inf"), -0.1, 100.5, True, [1]):
        with pytest.raises(ks.DomainError):
            device.report(envelope, bad)
    assert device.spent == 0
    body = device.report(envelope, 33.3)
    assert device.spent == 1 and call(app, "POST", url, body, BINARY)[0] == 200
    beyond = made.outputs.to_bytes(made.width, "little")
    for wrong in (body[:40] + beyond, body[:40] + b"\xff" * made.width, body[:40], body[:-1]):
        assert call(app, "POST", url, wrong[:24] + b"k" * 16 + wrong[40:], BINARY)[0] == 400
    rounded = verify(envelope, bytes.fromhex(key.public))
    assert operator(app, "GET", f"/operator/rounds/{id}/estimate")[0] == 400  # one report has no error
    numbers = np.random.default_rng(3).uniform(20, 60, 4000)
    rows = made.randomize(numbers).rows
    assert call(app, "POST", url, encode(rounded, rows), BINARY)[0] == 200
    status, told = operator(app, "GET", f"/operator/rounds/{id}/estimate")
    assert status == 200 and told["reports"] == 4001 and told["guarantee"]["epsilon"] == "1"
    assert abs(told["mean"]["value"] - numbers.mean()) < 5 * told["mean"]["standard_error"]
    assert (told["variance"] is None) == (made.squares is None) and abs(sum(told["counts"]) - 4001) < 1
    assert operator(app, "GET", "/operator/status")[1]["rounds"][0]["domain"] is None
    _, _, parquet = call(app, "GET", f"/operator/rounds/{id}/export", b"", {"authorization": f"Bearer {TOKEN}"})
    (tmp_path / "x.parquet").write_bytes(parquet)
    rows, rounded = read_reports(tmp_path / "x.parquet")
    assert len(rows) == 4001 and rounded.randomizer == made
    if made.kind != "hybrid":
        return
    wide, narrow = data["randomizer"]["wide"], data["randomizer"]["narrow"]
    for change in ({"wide": narrow}, {"narrow": wide}, {"more": 1}, {"kind": "laplace"}, {"steps": 1 << 40},
                   {"mix": 0}, {"wide": {**wide, "shift": 1 << 30}}, {"low": "nan"}, {"low": "9" * 500}):  # fmt: skip
        hostile = {**data, "randomizer": {**data["randomizer"], **change}}
        assert operator(app, "POST", "/operator/rounds", hostile)[0] == 400, change


@pytest.mark.parametrize("name", ["grid", "oue", "olh", "count_mean_sketch", "memoised", "piecewise"])
def test_descriptions_that_would_fill_the_memory_are_refused_at_once(collector, name):
    """Numbers of 10^9 digits, words of 2^63 bits, no buckets: 400, and nothing is opened. Devices read the same."""
    store, _, app, _ = collector
    if name == "grid":
        grid = ks.Grid("grid", crs="EPSG:4326", step="1/120", origin=(4280, 16700), shape=(4, 4))
        data = ks.local.unary(grid, epsilon="1").to_json()
        axis = data["domain"]["axes"][0]
        hostile = [{"step": bad} for bad in ("1e999999999", "1e-999999999", ["1", "1e999"], "1/0", "9" * 4000, None)]
        hostile = [{"domain": {"axes": [{**axis, **bad}], "mask": []}} for bad in hostile]
    elif name == "piecewise":
        data = ks.local.piecewise((0, 1), epsilon="1").to_json()
        hostile = [{"high": "1/0"}, {"high": "9" * 4000}, {"steps": 1 << 63}, {"bits": 1 << 63}, {"low": "1e999999999"}]
    else:
        data = OTHERS[name]().to_json()
        hostile = [{"bits": bad} for bad in (1 << 63, 0, -1, 10**30)]
        hostile += [{"buckets": 0}, {"buckets": -1}] if name == "olh" else []
    for change in hostile:
        body = {"randomizer": {**data, **change}, "closes": 2_000_000}
        try:
            status, told = operator(app, "POST", "/operator/rounds", body)
        except (MemoryError, ArithmeticError):
            status, told = 500, {}
        assert status == 400 and told["error"], change
    assert not store.rounds()
    assert operator(app, "POST", "/operator/rounds", {"randomizer": data, "closes": 2_000_000})[0] == 201


OTHERS = {
    "oue": lambda: ks.local.oue(WARDS, epsilon="1"),
    "olh": lambda: ks.local.olh(WARDS, epsilon="1"),
    "count_mean_sketch": lambda: ks.local.count_mean_sketch(WARDS, epsilon="1"),
    "memoised": lambda: ks.local.memoised(WARDS, epsilon_permanent="1", epsilon_instant="2", v_max=2),
}


def test_ten_thousand_malformed_bodies(collector):
    """Mutated, random, truncated, oversized, wrongly typed: never a 500, never a stored byte."""
    store, key, app, _ = collector
    envelope, id, randomizer = open_round(app)
    good = batch(key, envelope, randomizer, 3)
    rng = random.Random(0)
    as_json = json.dumps({"version": 1, "round": "0" * 32, "key": "1" * 32, "reports": ["AAAA"]}).encode()

    def body():
        shape = rng.randrange(8)
        if shape == 0:
            return rng.randbytes(rng.randrange(200)), BINARY
        if shape == 1:  # flip a byte of the head (not of the key: that would be another good batch)
            at = rng.randrange(24)
            return good[:at] + bytes([good[at] ^ rng.randrange(1, 256)]) + good[at + 1 :], BINARY
        if shape == 2:
            return good[: rng.choice([k for k in range(len(good)) if (k - 40) % 3 or k <= 40])], BINARY
        if shape == 3:
            return good + rng.randbytes(rng.choice([1, 2, 4, 5, 31_000])), BINARY
        if shape == 4:
            return MAGIC + rng.randbytes(64), BINARY
        if shape == 5:
            at = rng.randrange(len(as_json))
            return as_json[:at] + rng.randbytes(rng.randrange(3)) + as_json[at:], {"content-type": "application/json"}
        if shape == 6:
            return b"[" * rng.randrange(100_000), {"content-type": "application/json"}
        kind = rng.choice(["", "text/html", "application/xml", "application/octet-stream;x", "\xff"])
        length = rng.choice(["-1", "x", "99999999999999", "1e3"])
        return good, {"content-type": kind, "content-length": length}

    async def storm():
        seen = set()
        for _ in range(10_000):
            data, headers = body()
            status, _, _ = await request(app, "POST", f"/rounds/{id}/reports", data, headers)
            seen.add(status)
        return seen

    seen = asyncio.run(storm())
    assert seen <= {400, 413, 415} and {400, 413, 415} <= seen
    assert stored(store) == 0


def test_schemathesis_finds_no_server_error(collector):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is a development dependency")
    from hypothesis import HealthCheck, Phase, given, settings

    store, _, app, _ = collector
    _, id, _ = open_round(app)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for operation in schema.get_all_operations():
        strategy = operation.ok().as_strategy()

        @given(case=strategy)
        @settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        def run(case):
            if "id" in case.path_parameters:
                case.path_parameters["id"] = id
            assert case.call().status_code < 500

        run()
    assert stored(store) == 0


# a real process on loopback


def load(port, url, bodies, acknowledged, stop):
    """Post batches on one connection and note the keys that were acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for body in bodies:
        if stop.is_set():
            return
        try:
            connection.request("POST", url, body, BINARY)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return
        if answer.status in (200, 409):
            acknowledged.append(body[24:40])


def published(port, folder, **more):
    key = CollectorKey.open(folder / "collector.key")
    randomizer = ks.local.unary(WARDS, epsilon="1")
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/operator/rounds",
        json.dumps({"randomizer": randomizer.to_json(), "closes": int(time.time()) + 3600, **more}).encode(),
        {"authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(asked) as answer:
        envelope = json.loads(answer.read())
    return key, envelope, json.loads(envelope["description"])["id"], randomizer


def test_kill_9_loses_no_acknowledged_report_and_counts_none_twice(tmp_path):
    port = free_port()
    process = start(tmp_path, port)
    key, envelope, id, randomizer = published(port, tmp_path)
    url = f"/rounds/{id}/reports"
    rounded = verify(envelope, bytes.fromhex(key.public))
    rows = randomizer.randomize(np.arange(100) % 23, source=ks.seeded(1)).rows
    bodies = [[encode(rounded, rows) for _ in range(20_000)] for _ in range(4)]
    acknowledged: list[bytes] = []
    threads = []
    for part in bodies:
        threads.append(threading.Thread(target=load, args=(port, url, part, acknowledged, threading.Event())))
        threads[-1].start()
    while len(acknowledged) < 400:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for thread in threads:
        thread.join()
    assert 400 <= len(acknowledged) < 80_000
    second = free_port()
    again = start(tmp_path, second)
    try:
        sure: list[bytes] = []
        for part in bodies:  # a client that got no answer sends the same bytes again
            load(second, url, part[: len(acknowledged) // 4 + 200], sure, threading.Event())
    finally:
        again.terminate()
        again.wait()
    db = sqlite3.connect(tmp_path / "reports.db")
    kept = [key for (key,) in db.execute("SELECT key FROM batch")]
    assert len(kept) == len(set(kept))
    assert set(acknowledged) | set(sure) == set(kept) | set(acknowledged)
    assert set(acknowledged) <= set(kept), "an acknowledged batch is gone"
    assert db.execute("SELECT SUM(count) FROM batch").fetchone() == (100 * len(kept),)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: apt-get install strace")
def test_the_disk_is_synced_before_the_acknowledgement(tmp_path):
    """In the system-call trace every 200 of a batch comes after an fsync that follows the batch's own arrival."""
    port = free_port()
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,read,recvfrom,recvmsg,write,writev,sendto,sendmsg"
    process = start(tmp_path, port, "strace", "-f", "-s", "200", "-e", calls, "-o", str(trace))
    try:
        key, envelope, id, randomizer = published(port, tmp_path)
        for seed in range(5):
            body = batch(key, envelope, randomizer, 3, seed)
            assert send(f"http://127.0.0.1:{port}/rounds/{id}/reports", body) == 3
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    synced, answers, waiting = False, 0, False
    for line in trace.read_text(errors="replace").splitlines():
        if re.search(r"POST /rounds/\w+/reports", line):
            synced, waiting = False, True
        elif waiting and re.search(r"f(data)?sync(\(\d+\)| resumed>\))\s*= 0", line):
            synced = True
        elif waiting and "HTTP/1.1 200" in line:
            assert synced, "acknowledged before the sync"
            answers, waiting = answers + 1, False
    assert answers == 5


def test_a_memoised_round_uses_one_memory(collector):
    _, key, _, clock = collector
    randomizer = ks.local.memoised(WARDS, epsilon_permanent="1", epsilon_instant="40", v_max=2)
    device = Device(key.public, max_epsilon="2", clock=lambda: clock[0])
    sent = set()
    for _ in range(3):
        made = Round.new(randomizer, closes=2_000_000, reports_per_device=5)
        sent |= {device.report(made.sign(key.signing), "w1")[40:] for _ in range(5)}
        again = Device(key.public, max_epsilon="2", clock=lambda: clock[0])
        again.restore(device.to_json())
        device = again
    assert len(sent) == 1 and device.spent == 2
