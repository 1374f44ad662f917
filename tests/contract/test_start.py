"""The desk and the door of `kasuri start`: what the page may ask, who may ask it, that the job file is what runs."""

import ast
import asyncio
import hashlib
import json
import os
import signal
import socket
import time
import tomllib
from datetime import date
from pathlib import Path

import pytest
from clients.start import Caller, excel, served
from collector.asgi import request
from hypothesis import given, settings
from hypothesis import strategies as st

import kasuri as ks
from kasuri import job
from kasuri.budget.ledger import repair
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.noise import rng
from kasuri.start import Desk, Door, application, lists
from kasuri.start.desk import PATHS, ChangedError
from kasuri.start.server import ACTS

FRAME = [
    {"kind": "mesh", "name": "grid", "level": "1km", "origin": [4320, 3120], "shape": [8, 80]},
    {"kind": "nominal", "name": "sex", "labels": ["female", "male"]},
    {"kind": "ordered", "name": "age", "labels": ["0-14", "15-64", "65+"]},
]
UNIT = {"id": "person", "change": "add-remove", "max_cells": 1}


@pytest.fixture
def desk(tmp_path):
    excel(tmp_path / "census.xlsx", 8)
    found = Desk(tmp_path / "job.toml")
    yield found
    found.close()


def filled(desk, recipe="geometric", axes=FRAME, **budget):
    """The page's way to a whole job."""
    state = desk.begin("census.xlsx")
    whole = state["content"] | {"axes": axes, "unit": UNIT, "budget": {"epsilon": "0.5", **budget}}
    return desk.save(whole | {"recipe": {"name": recipe}}, state["mark"])


def finished(desk):
    desk._worker.join()
    return desk.progress


# -- the job file


def test_equal_headers_give_equal_job_files(tmp_path):
    """No row decides anything: not its values, not their number, not which labels there are."""
    texts = []
    for number, rows in enumerate(("53394500,female,0-14,3\n", "1,x,y,-1\n99999999,,,\n", "")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "t.csv").write_text(f"mesh_code,sex,age,population\n{rows}", encoding="utf-8")
        desk = Desk(folder / "job.toml")
        desk.begin("t.csv")
        desk.close()
        texts.append((folder / "job.toml").read_text(encoding="utf-8"))
    assert len(set(texts)) == 1
    begun = tomllib.loads(texts[0])
    assert [set(axis) for axis in begun["axes"]] == [{"kind", "name"}] * 3, "no level, window or label is preselected"
    assert "unit" not in begun and "budget" not in begun


VALUES = st.recursive(
    st.text(max_size=8) | st.integers(-(2**60), 2**60) | st.booleans() | st.dates(date(1900, 1, 1)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["engine", "data", "unit", "about", "budget"]),
                       st.dictionaries(st.text(max_size=6), VALUES, max_size=4)),
       st.lists(st.dictionaries(st.text(min_size=1, max_size=6), VALUES, max_size=3), max_size=3))  # fmt: skip
def test_toml_says_what_it_was_given(tables, axes):
    content = tables | ({"axes": axes} if axes else {})
    assert tomllib.loads(job.toml(content, "job.toml")) == content


def test_the_python_it_writes_makes_the_same_release(desk, tmp_path, monkeypatch):
    state = filled(desk, unmetered=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rng.Source, "release_key", lambda self: bytes(32))
    monkeypatch.setattr("kasuri.draw.secrets.token_hex", lambda n: "0" * 2 * n)
    exec(compile(state["python"], "job.py", "exec"), {})
    by_python = (tmp_path / "release" / "release.parquet").read_bytes()
    (tmp_path / "release").rename(tmp_path / "by-python")
    job.run(job.load("job.toml"), tmp_path)
    assert by_python == (tmp_path / "release" / "release.parquet").read_bytes()
    fancy = job.Job.model_validate(tomllib.loads((tmp_path / "job.toml").read_text()) | {
        "recipe": {"name": "bayes_tree", "prior": {"public": "p", "file": "p.npy"}}})  # fmt: skip
    assert "job.load('job.toml')" in job.python(fancy, tmp_path, "job.toml")


def test_a_job_with_comments_is_kept_beside(desk, tmp_path):
    (tmp_path / "job.toml").write_text("# mine\n" + job.TEMPLATE, encoding="utf-8")
    state = desk.state()
    desk.save(state["content"], state["mark"])
    assert (tmp_path / "job.before-start.toml").read_text(encoding="utf-8").startswith("# mine")


def test_a_file_changed_elsewhere_is_not_overwritten(desk, tmp_path):
    state = filled(desk, unmetered=True)
    (tmp_path / "job.toml").write_text(state["toml"] + "# by hand\n", encoding="utf-8")
    with pytest.raises(ChangedError, match="elsewhere"):
        desk.save(state["content"], state["mark"])
    with pytest.raises(ChangedError, match="elsewhere"):
        desk.release(state["mark"])
    assert "# by hand" in (tmp_path / "job.toml").read_text(encoding="utf-8")


# -- the release


def digests(folder):
    """Hashes of the files but DuckDB's, whose own hash, which the report tells, is left out of them."""
    own = hashlib.sha256((folder / "release.duckdb").read_bytes()).hexdigest().encode()
    files = [path for path in sorted(folder.iterdir()) if path.suffix != ".duckdb"]
    return {path.name: hashlib.sha256(path.read_bytes().replace(own, b"")).hexdigest() for path in files}


def test_a_release_from_the_page_is_the_release_of_its_job_file(desk, tmp_path, monkeypatch):
    """Same key, same name of the release: same bytes (but for DuckDB's own, which differ from run to run)."""
    monkeypatch.setattr(rng.Source, "release_key", lambda self: bytes(32))
    monkeypatch.setattr("kasuri.draw.secrets.token_hex", lambda n: "0" * 2 * n)
    near = [FRAME[0] | {"shape": [8, 96]}, *FRAME[1:]]  # of a wide mesh much is planned
    state = filled(desk, recipe="best", axes=near, unmetered=True)
    desk.release(state["mark"])
    assert finished(desk) == {"phase": "done", "ok": True, "faults": []}
    (tmp_path / "release").rename(tmp_path / "by-page")
    job.run(job.load(tmp_path / "job.toml"), tmp_path)
    by_job, by_page = digests(tmp_path / "release"), digests(tmp_path / "by-page")
    manifest = "datapackage.json"  # lists the hash of the DuckDB file
    assert {k: v for k, v in by_job.items() if k != manifest} == {k: v for k, v in by_page.items() if k != manifest}
    assert {"release.parquet", "report.html"} <= set(by_job)


def test_it_is_charged_once_and_never_twice(desk, tmp_path):
    state = filled(desk, unmetered=True)
    state = desk.open_ledger("census.ledger", "2")
    assert state["content"]["budget"] == {"epsilon": "0.5", "ledger": "census.ledger"}
    desk.release(state["mark"])
    with pytest.raises((ChangedError, DomainError)):  # a second press of the button
        desk.release(state["mark"])
    assert finished(desk)["ok"]
    for again in (desk, desk):
        with pytest.raises(DomainError, match="exists"):
            again.release(desk.state()["mark"])
    assert ks.Ledger.load(tmp_path / "census.ledger").summary()["balance"]["spent"] == "0.5"
    with pytest.raises(ChangedError, match="is released"):  # the job file stays what was released
        desk.save(desk.state()["content"] | {"recipe": {"name": "haar_topdown"}}, desk.state()["mark"])
    following = desk.next()
    assert following["file"] == "job-2.toml" and following["content"]["output"]["folder"] == "release-2"
    assert "epsilon" not in following["content"]["budget"] and following["done"] is None


def test_what_the_data_is_refused_for_costs_nothing(desk, tmp_path):
    state = filled(desk, unmetered=True)
    desk.open_ledger("census.ledger", "2")
    content = desk.state()["content"]
    content["axes"][2]["labels"] = ["0-14", "15-64"]
    state = desk.save(content, desk.state()["mark"])
    assert any("row" in fault for fault in desk.check()["faults"])
    desk.release(state["mark"])
    told = finished(desk)
    assert told["phase"] == "failed" and not told["charged"] and any("age" in fault for fault in told["faults"])
    assert ks.Ledger.load(tmp_path / "census.ledger").summary()["balance"]["spent"] == "0"
    assert not (tmp_path / "release").exists()


def test_a_page_that_is_gone_and_a_server_that_is_killed(tmp_path):
    """In mid-drop, in mid-release: finished or never there, charged once or not at all."""
    excel(tmp_path / "census.xlsx", 8)
    book = tmp_path / "census.ledger"
    ks.Ledger.open(book, epsilon="2", unit=ks.Unit("person", "add-remove", 1), data="census")
    with served(tmp_path, "census.xlsx") as server:
        page = Caller(server)
        host, port = page.origin.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:  # ten gigabytes are promised, the page is closed
            head = (
                f"POST /api/drop?name=big.csv HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {page.origin}\r\n"
                f"kasuri-session: {page.session}\r\nContent-Length: {3 << 30}\r\n\r\n"
            )
            line.sendall(head.encode() + b"x" * 99_999)
            time.sleep(0.3)
        state = page.ask("/api/state")[1]
        whole = state["content"] | {"axes": FRAME, "unit": UNIT, "recipe": {"name": "geometric"},
                                    "budget": {"epsilon": "0.5", "ledger": "census.ledger"}}  # fmt: skip
        status, state = page.ask("/api/save", content=whole, mark=state["mark"])
        assert status == 200 and not state["faults"]
        page.send("/api/release", json.dumps({"mark": state["mark"]}).encode()).close()  # nobody waits for the answer
        while page.ask("/api/state")[1]["done"] is None or page.ask("/api/progress")[1]["progress"]["phase"] != "done":
            time.sleep(0.05)
        assert not list(tmp_path.glob("*big*")) and not list(tmp_path.glob(".*big*")), "half a drop is no file"
        status, state = page.ask("/api/next")
        whole = state["content"] | {"budget": {"epsilon": "0.5", "ledger": "census.ledger"}}
        state = page.ask("/api/save", content=whole, mark=state["mark"])[1]
        page.ask("/api/release", mark=state["mark"])
        server.stop(signal.SIGKILL)
    try:
        ks.Ledger.load(book).summary()
    except FormatError:  # killed between the ledger's two files: nothing is paid until it is repaired
        with served(tmp_path, "job-2.toml") as server:
            assert "kasuri ledger repair" in Caller(server).ask("/api/state")[1]["ledgers"][0]["fault"]
        repair(book)
    assert ks.verify(tmp_path / "release", ledger=book).ok
    spent = ks.Ledger.load(book).summary()["balance"]["spent"]
    assert spent in ("0.5", "1")
    with served(tmp_path, "job-2.toml") as server:
        page = Caller(server)
        state = page.ask("/api/state")[1]
        assert state["content"]["budget"]["epsilon"] == "0.5" and state["progress"]["phase"] == "idle"
        assert state["done"] is None or ks.verify(tmp_path / "release-2").ok
        own = state["ledgers"][0]
        assert own["balance"]["spent"] == spent and own["reserved"] + own["committed"] == 2 * float(spent)


def test_one_page_has_a_folder(desk, tmp_path):
    with pytest.raises(DomainError, match="another kasuri start"):
        Desk(tmp_path / "job-2.toml")


# -- before any data


def test_the_simulation_reads_no_data(desk, tmp_path):
    filled(desk, unmetered=True)
    told = [desk.simulate("1", "best"), desk.expected("1", [0, 5000], every=False)]
    (tmp_path / "census.xlsx").unlink()
    assert [desk.simulate("1", "best"), desk.expected("1", [0, 5000], every=False)] == told
    weak = desk.expected("0.1", [0, 5000], every=False)

    def town(found):
        return next(row["percent"] for row in found["rows"] if row["recipe"] == "best" and row["people"] == 5000)

    assert 4 < town(weak) / town(told[1]) < 25, "a tenth of epsilon, about ten times the error"
    assert {row["recipe"] for row in weak["rows"]} >= {"best", "geometric", "haar_topdown", "refined_tree"}


@pytest.mark.parametrize("level", ["10km", "1km", "500m", "125m"])
def test_windows_hold_the_same_ground_at_every_level(level):
    for window in lists.windows(level):
        mesh = ks.Mesh("grid", level=level, origin=tuple(window["origin"]), shape=tuple(window["shape"]))
        own = ks.Mesh.window("grid", window["window"])
        west, south, _, _ = mesh.edges(0, 0)
        _, _, east, north = mesh.edges(mesh.shape[0] - 1, mesh.shape[1] - 1)
        low, high = own.edges(0, 0), own.edges(own.shape[0] - 1, own.shape[1] - 1)
        assert west <= low[0] + 1e-9 and south <= low[1] + 1e-9 and east >= high[2] - 1e-9 and north >= high[3] - 1e-9
    assert all(len(own["labels"]) == len(set(own["labels"])) for own in lists.LABELS)
    assert len(lists.LABELS[-1]["labels"]) == 47


# -- who may ask


HOST = {"host": "127.0.0.1:4711"}
OWN = HOST | {"origin": "http://127.0.0.1:4711", "content-type": "application/json"}


def asked(desk, method, path, told=None, headers=OWN, door=None, body=None):
    door = door or Door(4711)
    raw = json.dumps(told or {}).encode() if body is None else body
    status, head, answer = asyncio.run(request(application(desk, door), method, path, raw, headers))
    return status, head, answer


def entered(door):
    return OWN | {"kasuri-session": door.enter(door.token)}


@pytest.mark.parametrize("wrong", [
    {"host": "evil.example:4711"},  # a name that was made to lead here
    {"host": "127.0.0.1:80"},
    {"host": ""},
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:8888"},  # another program's page on this machine
    {"origin": "null"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
])  # fmt: skip
def test_other_hosts_and_origins_are_refused(desk, wrong):
    door = Door(4711)
    good = entered(door)
    assert asked(desk, "POST", "/api/state", headers=good, door=door)[0] == 200
    status, head, body = asked(desk, "POST", "/api/state", headers=good | wrong, door=door)
    assert status == 403 and b"census" not in body
    assert not any(name.lower().startswith("access-control") for name in dict(head))


def test_without_the_session_nothing_is_answered(desk):
    door = Door(4711)
    session = entered(door)["kasuri-session"]
    for guess in ("", "x", session[:-1], session + "x", session.swapcase()):
        for name in ACTS:
            status, _, body = asked(desk, "POST", f"/api/{name}", headers=OWN | {"kasuri-session": guess}, door=door)
            assert status == 401 and b"census" not in body
    assert asked(desk, "OPTIONS", "/api/state", headers=OWN, door=door)[0] == 403, "no other origin is let in"
    assert asked(desk, "GET", "/api/state", headers=OWN | {"kasuri-session": session}, door=door)[0] == 404
    form = entered(Door(4711)) | {"content-type": "text/plain", "kasuri-session": session}
    assert asked(desk, "POST", "/api/state", headers=form, door=door)[0] == 422, "what a form of another site can send"


def test_a_token_works_once(desk):
    door, said = Door(4711), []
    door.again = said.append
    token = door.token
    for guess in ("guessed" * 6, "", "é", "\ud800", 5, None, [token], token[:-1]):
        assert asked(desk, "POST", "/session", {"token": guess}, door=door)[0] == 401
    status, _, body = asked(desk, "POST", "/session", {"token": token}, door=door)
    assert status == 200 and len(json.loads(body)["session"]) > 40
    assert asked(desk, "POST", "/session", {"token": token}, door=door)[0] == 401
    assert said == [door.address] and token not in door.address
    assert asked(desk, "POST", "/session", {"token": token}, door=door)[0] == 401 and len(said) == 1


def test_every_answer_has_its_policy(desk):
    for path in ("/", "/start.js", "/words.js", "/start.css", "/nowhere"):
        status, head, body = asked(desk, "GET", path, headers=HOST)
        found = dict(head)
        assert "default-src 'none'" in found["content-security-policy"] and found["cache-control"] == "no-store"
        assert "unsafe" not in found["content-security-policy"] and "frame-ancestors 'none'" in str(found)
        assert found["x-content-type-options"] == "nosniff" and found["referrer-policy"] == "no-referrer"
        assert (status == 200) == (path != "/nowhere") and b"http://" not in body.replace(b"http://www.w3.org", b"")


def test_no_path_outside_what_was_opened(desk, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.csv"
    outside.write_text("mesh_code,population\n53394500,1\n", encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(outside)
    state = filled(desk, unmetered=True)
    bad = [
        str(outside),
        f"../{outside.name}",
        "link.csv",
        "/etc/passwd",
        f"file://{outside}",
        f"x://../../{outside.name}",
    ]
    for name in bad:
        with pytest.raises(PrivacyError, match="not in the folder"):
            desk.begin(name)
        for content in (
            {"data": {"name": "d", "files": [name], "columns": {}}},
            {"axes": [{"kind": "nominal", "name": "a", "labels_file": name}]},
            {"budget": {"ledger": name}}, {"output": {"folder": name}}, {"output": {"folder": "r", "exports": [name]}},
            {"recipe": {"name": "auto", "prior": {"public": "p", "file": name}}}, {"maps": [{"file": name}]},
            {"data": {"reads": {"columns": name}}}, {"data": {"database": name}}, {"masks": [{"file": name}]},
            {"recipe": {"deep": [[{"file": name}]]}}, {"spark": {"work": name}},
        ):  # fmt: skip
            with pytest.raises(PrivacyError, match="not in the folder"):
                desk.save(content, state["mark"])
    desk.close()
    given = Desk(tmp_path / "job.toml", [outside])  # named when the page was started
    assert given.begin(str(outside))["content"]["data"]["name"] == outside.stem
    desk._held = given._held


def test_odd_requests_are_refused_and_lose_nothing(desk, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    state = filled(desk, unmetered=True)
    with pytest.raises(DomainError, match="not a file"):
        desk.begin("pipe.csv")
    for codes in ([], [1], ["533"], ["５３３９"], ["5339 "], [None]):
        with pytest.raises(DomainError, match="four digits"):
            desk.around(codes, "1km")
    for content in ({"axes": [[[[]]]]}, {"data": 5}, {"output": 5}, {"unit": "x"}, {"axes": [{"a": [{"b": [None]}]}]}):
        with pytest.raises(DomainError, match="cannot be written"):
            desk.save(content, state["mark"])
    assert desk.state()["mark"] == state["mark"] and "pipe.csv" not in desk.state()["files"]["tables"]


def test_every_key_of_a_path_is_known():
    """Whatever the models of a job file read as a path is looked at before the page may name it."""
    found = set()
    for name in ("models", "axes", "parameters"):
        tree = ast.parse((Path(job.__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                kinds = {own.id for own in ast.walk(node.annotation) if isinstance(own, ast.Name)}
                found |= {node.target.id} if kinds & {"File", "LabelsFile"} else set()
    assert found == PATHS


def test_drops(desk, tmp_path):
    door = Door(4711)
    headers = entered(door) | {"content-type": "application/octet-stream"}
    body = b"mesh_code,population\n53394500,1\n"
    status, _, told = asked(desk, "POST", "/api/drop?name=t.csv", headers=headers, door=door, body=body)
    assert status == 200 and json.loads(told) == {"file": "t.csv"}
    assert (tmp_path / "t.csv").read_bytes() == body and (tmp_path / "t.csv").stat().st_mode & 0o077 == 0
    status, _, told = asked(desk, "POST", "/api/drop?name=t.csv", headers=headers, door=door, body=b"mesh_code\n1\n")
    assert json.loads(told) == {"file": "t-2.csv"}, "no file is written over"
    assert (tmp_path / "t.csv").read_bytes() == body
    before = sorted(path.name for path in tmp_path.iterdir())
    for name, extra in (("..%2Fx.csv", {}), ("%2Fetc%2Fx.csv", {}), (".x.csv", {}), ("x.toml", {}), ("", {}),
                        ("big.csv", {"content-length": str(10 << 30)}), ("short.csv", {"content-length": "999"}),
                        ("long.csv", {"content-length": "3"})):  # fmt: skip
        status, _, told = asked(desk, "POST", f"/api/drop?name={name}", headers=headers | extra, door=door, body=body)
        assert status == 422 and json.loads(told)["faults"], name
    assert "kasuri start big.csv" in json.dumps(
        json.loads(asked(desk, "POST", "/api/drop?name=big.csv", headers=headers | {"content-length": str(10 << 30)},
                         door=door, body=b"")[2]))  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing is left of what was refused"


def test_a_report_is_looked_at_once(desk):
    state = filled(desk, unmetered=True)
    desk.release(state["mark"])
    assert finished(desk)["ok"]
    address = desk.look()["address"]
    status, head, body = asked(desk, "GET", address, headers=HOST)
    assert status == 200 and b"<!doctype html>" in body
    assert dict(head)["content-security-policy"].startswith("sandbox allow-scripts")
    assert asked(desk, "GET", address, headers=HOST)[0] == 404
    assert asked(desk, "GET", "/look/../../job.toml", headers=HOST)[0] == 404


def test_no_confidential_value_in_a_message(desk, tmp_path):
    (tmp_path / "t.csv").write_text("person,mesh_code,sex\nSECRETID,SECRETCODE,SECRETSEX\n", encoding="utf-8")
    state = desk.begin("t.csv")
    content = state["content"] | {"axes": FRAME[:2], "unit": UNIT, "budget": {"epsilon": "1", "unmetered": True}}
    state = desk.save(content, state["mark"])
    assert "SECRET" not in json.dumps(state) and "SECRET" not in json.dumps(desk.check())
    desk.release(state["mark"])
    assert "SECRET" not in json.dumps(finished(desk)) and "SECRET" not in (tmp_path / "job.toml").read_text()
    assert "SECRETSEX" in json.dumps(desk.preview()), "the first rows are shown to the operator, and only there"


def test_every_word_is_in_both_languages():
    folder = Path(ks.__file__).parent / "start"
    words = (folder / "words.js").read_text(encoding="utf-8")
    script = (folder / "start.js").read_text(encoding="utf-8")
    import re

    pairs = dict(re.findall(r'(\w+): \["((?:[^"\\]|\\.)*)", "(?:[^"\\]|\\.)*"\]', words))
    asked_for = set(re.findall(r'\bw\("(\w+)"', script)) | set(
        re.findall(r'data-w="(\w+)"', (folder / "page.html").read_text(encoding="utf-8")))  # fmt: skip
    assert asked_for <= set(pairs), asked_for - set(pairs)
    for key, found in re.findall(r'(\w+): \["(?:[^"\\]|\\.)*", "((?:[^"\\]|\\.)*)"\]', words):
        assert set(re.findall(r"\{\w+\}", found)) == set(re.findall(r"\{\w+\}", pairs[key])), key
        assert re.search(r"[\u3040-\u30ff\u4e00-\u9fff±]", found), key


def test_japanese_pages_hold_the_programs_of_the_english_ones():
    """Their blocks are run on the English pages; here they are compared."""
    import re

    guide = Path(__file__).parents[2] / "docs" / "guide"
    fence = re.compile(r"^```.*?^```$", re.M | re.S)
    pages = sorted((guide / "ja").glob("*.md"))
    assert {page.stem for page in pages} >= {"quickstart", "start", "first-release", "choosing", "report"}
    for page in pages:
        own, there = (fence.findall(path.read_text(encoding="utf-8")) for path in (page, guide / page.name))
        assert own == [block for block in there if not block.startswith("```{")], page.name
        assert "公開する" not in page.read_text(encoding="utf-8"), "a release is 公表"
