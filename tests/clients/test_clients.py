"""The JavaScript client against the Python one: the same bytes from the same words, the same law, the same refusals;
and the demo page in a real browser, from which the true place never leaves."""

import asyncio
import itertools
import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from reference.local import law_by_enumeration

import kasuri as ks
from kasuri.local.categorical import MAKERS
from kasuri.local.keys import CollectorKey
from kasuri.local.read import NUMBERS
from kasuri.local.wire import Round, decode, read_round

FOLDER = Path(ks.__file__).parent / "local" / "client"
MODULE = FOLDER / "kasuri-local.js"
DRIVER = Path(__file__).parent / "vectors.mjs"
GOLDEN = Path(__file__).parent.parent / "golden"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
with_node = pytest.mark.skipif(NODE is None, reason="node is not installed: apt-get install nodejs")

SMALL = {
    "unary": ({"bits": 4}, 3), "oue": ({"bits": 4}, 3), "grr": ({"bits": 8}, 1), "olh": ({"bits": 5}, 2),
    "hadamard": ({"bits": 5}, 2), "count_mean_sketch": ({"bits": 4, "buckets": 2, "hashes": 4}, 3),
}  # fmt: skip


def node(command, data):
    module = MODULE.as_uri()
    done = subprocess.run(
        [NODE, "--no-warnings", str(DRIVER), module, command],
        input=json.dumps(data), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def sent_by(randomizer, truth, word):
    """The bytes that a Python device sends of a category or number."""
    made = randomizer.report(truth, word)
    return made if isinstance(made, bytes) else made.to_bytes(randomizer.width, "little")


def check_in_python(vectors):
    wrong = []
    for i, v in enumerate(vectors):
        words = iter(v["words"])
        sent = sent_by(ks.local.from_json(v["randomizer"]), v["category"], lambda words=words: next(words))
        wrong += [] if sent.hex() == v["report"] and next(words, None) is None else [i]
    return wrong


def test_python_checks_the_vectors_of_the_javascript_client():
    vectors = json.loads((GOLDEN / "local_vectors_javascript.json").read_text())
    assert {v["randomizer"]["kind"] for v in vectors} == set(MAKERS)
    assert check_in_python(vectors) == []


@with_node
def test_javascript_checks_the_vectors_of_the_python_client():
    vectors = json.loads((GOLDEN / "local_vectors_python.json").read_text())
    assert {v["randomizer"]["kind"] for v in vectors} == set(MAKERS)
    assert node("check", vectors) == []
    assert check_in_python(vectors) == []
    spoilt = [{**vectors[0], "report": "ff" + vectors[0]["report"][2:]}]
    assert node("check", spoilt) == [0] == check_in_python(spoilt)


@with_node
def test_fresh_javascript_reports_are_read_by_python():
    mesh = ks.Mesh("grid", shape=(7, 9))
    asked = [{"randomizer": make(mesh, epsilon="2").to_json(), "count": 64} for make in MAKERS.values()]
    kept = ks.local.memoised(mesh, epsilon_permanent="1", epsilon_instant="2", v_max=3)
    asked.append({"randomizer": kept.to_json(), "count": 64})
    inside = [-3.7, 1 / 3, 0, 0.1, -0.3, 1e-300, -1.0000000000000002]
    for kind in NUMBERS:
        for bounds, epsilon in (((-5, 5), "0.3"), (("-3.75", "1/3"), "2"), ((-4, 8), "7")):
            made = getattr(ks.local, kind)(bounds, epsilon=epsilon)
            numbers = [x for x in inside if made.low <= Fraction(x) <= made.high]
            asked.append({"randomizer": made.to_json(), "count": 16, "numbers": numbers})
    vectors = node("make", asked)
    assert check_in_python(vectors) == []
    again = node("make", asked)
    assert [v["words"] for v in again] != [v["words"] for v in vectors]


@with_node
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_javascript_law_by_enumeration(kind):
    more, words = SMALL[kind]
    randomizer = MAKERS[kind](ks.Nominal("p", labels=("a", "b")), epsilon="1", **more)
    total = randomizer.words**words
    for category in range(3):
        counts = node("law", {"randomizer": randomizer.to_json(), "category": category, "words": words})
        found = {bytes.fromhex(report): Fraction(n, total) for report, n in counts.items()}
        assert found == law_by_enumeration(randomizer, category, words)


@with_node
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("x", [0, 1, 0.3, 0.5])
def test_javascript_law_of_numbers_by_enumeration(kind, x):
    more = {} if kind in ("two_point", "square_wave") else {"shift": 1}
    randomizer = getattr(ks.local, kind)((0, 1), epsilon="1", steps=2, bits=6, **more)
    words = 3 if randomizer.kind == "hybrid" else 2
    counts = node("law", {"randomizer": randomizer.to_json(), "category": x, "words": words})
    seen = Counter()
    for drawn in itertools.product(range(64), repeat=words):
        rest = iter(drawn)
        seen[sent_by(randomizer, x, lambda rest=rest: next(rest)).hex()] += 1
    assert counts == seen


@with_node
def test_javascript_refuses_numbers_and_descriptions_that_python_refuses():
    key = CollectorKey.generate()
    made = ks.local.hybrid((0, 100), epsilon="2")
    good = json.loads(Round.new(made, closes=2_000_000_000).text)
    asked = {"key": key.public, "maxEpsilon": 2, "envelopes": [signed(key, good)]}
    for value in (None, "5", -0.001, 100.1, [5], True):
        found = node("device", {**asked, "value": value})
        assert isinstance(found["answers"][0], str) and not found["kept"], "nothing is counted for what is refused"
    assert node("device", {**asked, "value": 33.3})["answers"] == [42]
    r = good["randomizer"]
    wide, narrow = r["wide"], r["narrow"]
    bad = [
        *({**r, **m} for m in ({"mix": 0}, {"mix": 1 << 32}, {"low": "100"}, {"low": 0}, {"high": "1e9"}, {"steps": 63},
                               {"bits": 33}, {"more": 1}, {"kind": "laplace"}, {"epsilon": "1.9"}, {"version": 2})),
        {**r, "wide": narrow}, {**r, "narrow": wide}, {**r, "wide": {**wide, "epsilon": "9"}},
        {**r, "narrow": {**narrow, "slope": 1 << 30}}, {**r, "wide": {**wide, "inside": 2 * wide["inside"]}},
        {**r, "wide": {**wide, "outside": 1}}, {**r, "wide": {**wide, "window": 2}}, {**r, "wide": None},
        {**r, "narrow": {**narrow, "low": "1"}},
    ]  # fmt: skip
    rounds = [signed(key, {**good, "randomizer": data}) for data in bad]
    found = node("device", {**asked, "maxEpsilon": 20, "value": 50, "envelopes": rounds})["answers"]
    assert [(i, told) for i, told in enumerate(found) if not isinstance(told, str)] == []
    for data in bad:
        with pytest.raises(ks.KasuriError):
            read_round(json.dumps({**good, "randomizer": data}))


@with_node
def test_javascript_keeps_a_memory_and_pays_for_it_once():
    """Restarted before each report: copies of one permanent report, v_max times epsilon for all rounds together."""
    key = CollectorKey.generate()
    wards = ks.Nominal("p", labels=("a", "b", "c"))
    kept = ks.local.memoised(wards, epsilon_permanent="1", epsilon_instant="40", v_max=2)  # copies are the kept report
    rounds = [Round.new(kept, closes=2_000_000_000, reports_per_device=5) for _ in range(3)]
    fresh = Round.new(ks.local.grr(wards, epsilon="1"), closes=2_000_000_000)
    envelopes = [made.sign(key.signing) for made in (rounds[0], rounds[1], rounds[0], rounds[2], rounds[2], fresh)]
    asked = {"key": key.public, "maxEpsilon": 2, "envelopes": envelopes}
    found = node("device", {**asked, "value": "a"})
    assert found["answers"][:5] == [41] * 5 and "more epsilon" in found["answers"][5]
    state = json.loads(found["kept"][0])
    (memory,) = state["memories"].values()
    assert state["spent"] == 2 and list(memory) == ["0"]
    assert len(set(found["reports"][:5])) == 1 and found["reports"][0] == memory["0"]
    found = node("device", {**asked, "values": ["a", "b", "c", None, "a"], "envelopes": envelopes[:1] * 5})
    (memory,) = json.loads(found["kept"][0])["memories"].values()
    assert sorted(memory) == ["0", "3"], "v_max - 1 places and elsewhere"
    assert found["reports"][1:4] == [memory["3"]] * 3 and found["reports"][4] == memory["0"]
    assert "more epsilon" in node("device", {**asked, "maxEpsilon": 1.9, "value": "a"})["answers"][0]
    good = json.loads(rounds[0].text)
    for change in ({"v_max": 0}, {"v_max": 5}, {"instant_q": 0}, {"instant_p": 1 << 32}, {"elsewhere": False},
                   {"p": good["randomizer"]["p"] + (1 << 28)}, {"v_max": 1}):  # fmt: skip
        data = {**good, "randomizer": {**good["randomizer"], **change}}
        assert isinstance(node("device", {**asked, "value": "a", "envelopes": [signed(key, data)]})["answers"][0], str)


@with_node
def test_javascript_verifies_before_it_randomises():
    key = CollectorKey.generate()
    randomizer = ks.local.olh(ks.Nominal("p", labels=("渋谷", "新宿")), epsilon="0.5")
    rounded = Round.new(randomizer, closes=2_000_000_000, reports_per_device=3)
    envelope = rounded.sign(key.signing)
    good = node("verify", {"envelope": envelope, "key": key.public})
    assert good == {"id": rounded.id, "epsilon": 1.5, "fingerprint": rounded.fingerprint.hex()}
    other = CollectorKey.generate()
    forged = {**envelope, "description": envelope["description"].replace("0.5", "0.6")}
    object.__setattr__(randomizer, "epsilon", Fraction(1, 10))  # a signed lie: the probabilities lose 0.5
    lie = Round(rounded.id, randomizer, 2_000_000_000).sign(key.signing)
    for bad, trusted in [(envelope, other.public), (forged, key.public), ({**envelope, "signature": "00"}, key.public),
                         (envelope, "zz"), (lie, key.public)]:  # fmt: skip
        assert "error" in node("verify", {"envelope": bad, "key": trusted})


@with_node
def test_javascript_device_keeps_to_its_budget_across_restarts():
    key = CollectorKey.generate()
    randomizer = ks.local.grr(ks.Nominal("p", labels=("secretplace", "b")), epsilon="1")
    first, second = (Round.new(randomizer, closes=2_000_000_000).sign(key.signing) for _ in range(2))
    late = Round.new(randomizer, closes=1_000_000_000).sign(key.signing)
    asked = {"key": key.public, "maxEpsilon": 1.5, "value": "secretplace"}
    found = node("device", {**asked, "envelopes": [late, first, first, second]})
    closed, length, again, beyond = found["answers"]
    assert "closed" in closed and length == 41 and "all its reports" in again and "more epsilon" in beyond
    assert "secretplace" not in found["kept"][0]
    assert "not one of the 3" in node("device", {**asked, "value": "x", "envelopes": [first]})["answers"][0]


def signed(key, data):
    """An envelope of any description at all: what a collector that means harm can sign."""
    text = json.dumps(data)
    return {"description": text, "signature": key.signing.sign(text.encode()).hex()}


@with_node
def test_javascript_refuses_signed_rounds_that_python_would_refuse():
    """A description is trusted no further for being signed: each of these got a report past the budget, or could."""
    key = CollectorKey.generate()
    loud = ks.local.grr(ks.Nominal("p", labels=("a", "b")), epsilon="23 weak", bits=32)
    good = json.loads(Round.new(loud, closes=2_000_000_000).text)
    asked = {"key": key.public, "maxEpsilon": 1, "value": "a"}
    tell = lambda data: node("device", {**asked, "envelopes": [signed(key, data)]})["answers"][0]  # noqa: E731
    assert "more epsilon" in tell(good)
    assert node("device", {**asked, "maxEpsilon": "23 weak", "envelopes": [signed(key, good)]})["answers"] == [41]
    axis = good["randomizer"]["domain"]["axes"][0]

    def with_axis(**more):
        domain = {"axes": [{**axis, **more}], "mask": []}
        return {**good, "randomizer": {**good["randomizer"], "domain": domain}}

    claim = good["guarantee"]
    cases = [
        *({**good, "reports_per_device": n} for n in (0.01, 0, -1, None, "1", 10_001, [1])),
        *({k: v for k, v in good.items() if k != gone} for gone in good),
        *({**good, "id": id} for id in ("constructor", "toString", "__proto__", "A" * 32, None)),
        *({**good, "closes": closes} for closes in (None, "x", 1.5, 1 << 40, True)),
        {**good, "tokens": 1}, {**good, "more": 1}, {**good, "guarantee": {**claim, "epsilon": "0.5"}},
        {**good, "guarantee": {**claim, "delta": "0.1"}}, {**good, "guarantee": {**claim, "model": "central"}},
        *({**good, "randomizer": {**good["randomizer"], "epsilon": e}} for e in ("-1/-0.04", "1/0", "Infinity", 23)),
        *({**good, "randomizer": {**good["randomizer"], **m}} for m in ({"more": 1}, {"elsewhere": 1}, {"bits": 33},
                                                                        {"kind": "constructor"}, {"version": 2})),
        with_axis(size=1), with_axis(labels=["a", "a"]), with_axis(labels=["a", 2]), with_axis(labels=2),
        with_axis(kind="toString"), with_axis(kind="mesh"), with_axis(labels=["a", "b\n"]),
        with_axis(labels=["a", "b\u202e"]),
    ]  # fmt: skip
    asked |= {"maxEpsilon": "1000 weak", "envelopes": [signed(key, data) for data in cases]}
    found = node("device", asked)["answers"]
    assert [(i, told) for i, told in enumerate(found) if not isinstance(told, str)] == []


@with_node
def test_javascript_never_sends_a_category_beyond_its_randomizer():
    """An axis that states one size and lists more labels would send the 18th category in the clear."""
    key = CollectorKey.generate()
    small = ks.local.grr(ks.Nominal("p", labels=("w0",)), epsilon="0.1")
    good = json.loads(Round.new(small, closes=2_000_000_000).text)
    axis = {"kind": "nominal", "size": 1, "labels": [f"w{i}" for i in range(23)]}
    for extra in ({}, {"name": "p", "tree": None}):
        bad = {**good, "randomizer": {**good["randomizer"], "domain": {"axes": [{**axis, **extra}], "mask": []}}}
        asked = {"key": key.public, "maxEpsilon": 9, "value": "w17", "envelopes": [signed(key, bad)]}
        assert isinstance(node("device", asked)["answers"][0], str)
    ordered = {"kind": "ordered", "name": "p", "size": 1, "labels": axis["labels"]}
    bad = {**good["randomizer"], "domain": {"axes": [ordered], "mask": []}}
    asked = {
        "key": key.public,
        "maxEpsilon": 9,
        "value": "w17",
        "envelopes": [signed(key, {**good, "randomizer": bad})],
    }
    assert isinstance(node("device", asked)["answers"][0], str)
    codes = ks.local.grr(ks.Nominal("p", labels=("1", "2", "3")), epsilon="1")
    told = node("category", {"randomizer": codes.to_json(), "values": [1, "1", 3, 0]})
    assert told[:3] == [0, 0, 2] and isinstance(told[3], str), "a number is looked up where labels are numerals"
    told = node("category", {"randomizer": small.to_json(), "values": [0, 1, 2, -1, 1.5, "w1", "w0", None]})
    assert [isinstance(x, str) for x in told] == [False, False, True, True, True, True, False, False]


@with_node
def test_javascript_tabs_share_one_budget_and_a_device_needs_storage():
    key = CollectorKey.generate()
    randomizer = ks.local.grr(ks.Nominal("p", labels=("a", "b")), epsilon="1")
    envelope = Round.new(randomizer, closes=2_000_000_000).sign(key.signing)
    asked = {"key": key.public, "maxEpsilon": 1, "value": "a", "envelope": envelope}
    answers = node("tabs", {**asked, "tabs": 5})
    assert sorted(map(str, answers))[0] == "41" and answers.count(41) == 1
    no_storage, no_locks, forgetful, damaged = node("bare", asked)
    assert "needs storage" in no_storage and "needs storage" in no_locks
    assert "keeps nothing" in forgetful and "damaged" in damaged


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("trusted", [True, False])
def test_the_demo_page_in_a_browser(tmp_path, trusted):
    uvicorn = pytest.importorskip("uvicorn", reason="the collector needs kasuri[serve]")
    from collector.asgi import TOKEN, free_port

    from kasuri.local.collector import application
    from kasuri.local.reports import Store

    store = Store(tmp_path / "reports.db")
    key = CollectorKey.generate()
    wards = ks.Nominal("ward", labels=("Shinjuku", "Shibuya", "Minato", "Chuo", "Koto"))
    opened = store.open_round(Round.new(ks.local.unary(wards, epsilon="1"), closes=int(time.time()) + 600))
    app = application(store, key, operator_token=TOKEN)
    seen = []
    held = (FOLDER / "demo.html").read_bytes() + b"<img src='hold'>"

    async def answer(send, body, kind):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})

    async def hold():
        """An image that comes when the page has done its work: until then the browser does not dump the page."""
        for _ in range(600 if trusted else 60):
            await asyncio.sleep(0.05)
            if any(said["line"].startswith("POST") for said in seen):
                await asyncio.sleep(0.5)
                return

    async def watched(scope, receive, send):
        """Everything the page tells the collector."""
        said = {"line": "", "body": b""}

        async def listening():
            message = await receive()
            said["body"] += message.get("body", b"")
            return message

        if scope["type"] == "http":
            query, headers = scope["query_string"].decode(), [v.decode("latin-1") for _, v in scope["headers"]]
            said["line"] = " ".join([scope["method"], scope["path"], query, *headers])
            seen.append(said)
            if scope["path"] == "/":
                await answer(send, held, b"text/html; charset=utf-8")
                return
            if scope["path"] == "/hold":
                await hold()
                await answer(send, b"", b"text/plain")
                return
        await app(scope, listening, send)

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(watched, port=port, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    pinned = key.public if trusted else CollectorKey.generate().public
    try:
        page = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={tmp_path / 'profile'}", "--timeout=40000", "--dump-dom",
             f"http://127.0.0.1:{port}/?key={pinned}#place=3"],
            capture_output=True, text=True, timeout=90, check=True,
        ).stdout  # fmt: skip
    finally:
        server.should_exit = True
        thread.join()
        rows = store.rows(opened)
        store.close()
    posts = [said for said in seen if said["line"].startswith("POST")]
    if not trusted:
        assert 'data-kind="refused"' in page and "not signed" in page
        assert rows.shape[0] == 0 and not posts
        return
    assert 'data-kind="sent"' in page and rows.shape == (1, 1)
    assert len(posts) == 1 and (decode(posts[0]["body"], opened.round)[1] == rows).all()
    assert len(posts[0]["body"]) == 41
    told = "\n".join(said["line"] for said in seen)
    assert "place=" not in told and "Chuo" not in told  # the fragment and the choice stay in the page


def regenerate():
    """Write the vectors of both clients anew: python -c "from clients.test_clients import regenerate; regenerate()"."""
    places = [ks.Nominal("ward", labels=tuple(f"w{i}" for i in range(23))), ks.Mesh("grid", shape=(20, 17))]
    vectors, asked = [], []
    rng = np.random.default_rng(2020)
    for make in MAKERS.values():
        for place in places:
            more = {"buckets": 64} if make is MAKERS["count_mean_sketch"] else {}
            randomizer = make(place, epsilon="1", **more)
            asked.append({"randomizer": randomizer.to_json(), "count": 3})
            for _ in range(3):
                words, category = [], int(rng.integers(randomizer.size))

                def word(words=words):
                    words.append(int(rng.integers(1 << 32)))
                    return words[-1]

                sent = randomizer.report(category, word).hex()
                vectors.append(
                    {"randomizer": randomizer.to_json(), "category": category, "words": words, "report": sent}
                )
    (GOLDEN / "local_vectors_python.json").write_text(json.dumps(vectors) + "\n")
    (GOLDEN / "local_vectors_javascript.json").write_text(json.dumps(node("make", asked)) + "\n")
