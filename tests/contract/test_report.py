"""The report of a release: a function of its folder, byte for byte; no truth in it; what a forger changes is found."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typer.testing import CliRunner

import kasuri as ks
from kasuri.manifest.package import digest, sha256, text
from kasuri.report import answers, frame, levels, margins, page, sums, view
from kasuri.report import sheet as sheets
from kasuri.report.compare import around
from kasuri.report.pack import Rows, distances, from_planes, from_varints, pack, planes, unpack, varints, whole
from kasuri.words.japanese import ja

UNIT = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Mesh("grid", level="500m", origin=(8403, 6081), shape=(24, 20)))


def counts(seed=1, level=4):
    return ks.Counts.from_dense(np.random.default_rng(seed).poisson(level, DOMAIN.shape), DOMAIN, UNIT, data="c-2020")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "release"
    ks.release(counts(), ks.haar_topdown(), epsilon="1", ledger=None).save(str(folder), unmetered=True)
    return folder


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.uint64, st.integers(0, 40), elements=st.integers(0, 2**64 - 1)))
def test_varints_and_planes_come_back(numbers):
    assert np.array_equal(from_planes(np.frombuffer(b"".join(planes(numbers)), np.uint8), numbers.size), numbers)
    assert (from_varints(np.frombuffer(varints(numbers), np.uint8), numbers.size) == numbers).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_come_back(data):
    n = data.draw(st.integers(0, 30))
    first = np.sort(data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, 2**40))))
    other = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, 9)))
    value = data.draw(hnp.arrays(np.int64, n, elements=st.integers(-(2**61), 2**61)))
    small = hnp.arrays(np.int64, n, elements=st.integers(0, 60))
    below, above, none = data.draw(small), data.draw(small), data.draw(hnp.arrays(np.bool_, n))
    lower = np.where(value % 3 == 0, 0, value - below) if (np.abs(value) < 2**40).all() else value - below
    below = np.where(none, -1, value - lower)
    grain = data.draw(st.sampled_from((1, 5))) if (np.abs(value) < 2**40).all() else 1
    lower, value = (part // grain * grain for part in (lower, value))
    below = np.where(none, -1, np.maximum(value - lower, 0))
    rows = Rows((first, other), {"value": value, "below": below, "above": np.where(none, -1, above)}, 1, grain=grain)
    about, packed = pack(rows)
    again = unpack(json.loads(json.dumps(about)), packed)
    assert all((a == b).all() for a, b in zip(again.index, rows.index, strict=True))
    assert all((again.columns[name] == rows.columns[name]).all() for name in rows.columns)


def test_limits_of_very_many_cells_are_round_and_hold_what_they_held(monkeypatch):
    rng = np.random.default_rng(1)
    domain = ks.Domain.of(ks.Mesh("g", shape=(100, 60)))
    values = rng.integers(0, 90, 6000)
    lower, upper = np.maximum(values - rng.integers(0, 70, 6000), 0.0), values + rng.integers(1, 70, 6000) + 0.0
    lower[7] = upper[7] = np.nan
    sheet = sheets.Sheet(domain, np.arange(6000), values, lower, upper)
    assert sheet.step == 1 and sheet.rows.step == 1
    monkeypatch.setattr(sheets, "MOST_EXACT", 5999)
    sheet = replace(sheet)  # what was made before is kept
    assert sheet.step == 20, "at most a third of about 70"
    about, packed = pack(sheet.rows)
    again = unpack(json.loads(json.dumps(about)), packed)
    low, high = values - again.columns["below"], values + again.columns["above"]
    has = np.arange(6000) != 7
    assert (again.columns["above"] < 0).tolist() == (~has).tolist()
    assert ((low <= lower) & (upper <= high) & (low > lower - 20) & (high < upper + 20))[has].all()
    assert (low[has] % 20 == 0).all() and (high[has] % 20 == 0).all() and ((lower == 0) <= (low == 0))[has].all()


def test_limits_that_follow_from_the_value_take_no_room(monkeypatch):
    """Where noise fills every cell, its limits are the same everywhere: they stay exact, and nearly vanish."""
    monkeypatch.setattr(sheets, "MOST_EXACT", 5999)
    rng = np.random.default_rng(1)
    values = rng.poisson(3, 6000) + np.rint(rng.laplace(0, 10, 6000)).astype(np.int64)
    lower, upper = np.minimum(np.maximum(values - 30.0, 0), values), np.maximum(values + 30.0, 15)
    sheet = sheets.Sheet(ks.Domain.of(ks.Mesh("g", shape=(100, 60))), np.arange(6000), values, lower, upper)
    alone = sheets.Sheet(sheet.domain, sheet.cells, values, *np.full((2, 6000), np.nan))
    about, packed = pack(sheet.rows)
    assert sheet.step == 1 and len(packed) < 1.08 * len(pack(alone.rows)[1])
    again = unpack(about, packed)
    assert (values - again.columns["below"] == lower).all() and (values + again.columns["above"] == upper).all()


def test_values_that_are_not_whole_are_rounded_on_large_pages_and_their_sums_are_not(monkeypatch, tmp_path):
    monkeypatch.setattr(sheets, "MOST_EXACT", 300)
    domain = ks.Domain.of(ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(24, 20)))
    table = ks.Counts.from_dense(np.random.default_rng(1).poisson(90, domain.shape), domain, UNIT, data="c-2020")
    out = ks.release(table, ks.privelet(order="2d"), epsilon="0.02", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    sheet = page.Sheet.read(tmp_path / "r", page.read_manifest(tmp_path / "r"))
    grain, rows = sheet.grain, sheet.rows
    assert grain >= 10 and (rows.columns["value"] % grain == 0).all()
    assert (np.abs(sheet.drawn - sheet.values) <= grain).all()
    low, high = (rows.columns["value"] + sign * rows.columns[name] for sign, name in ((-1, "below"), (1, "above")))
    assert ((low <= sheet.lower) & (sheet.upper <= high)).all()
    html = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert f"values are rounded to multiples of {grain} " in html and ks.verify(tmp_path / "r")["ok"]
    told, seen = view.places(domain.axes)[0], 0
    for key, found in margins.tables(out):
        drawn = sums.around(sums.of(told, rows, key), found)
        areas = [part.index[0] if part.index else np.zeros(1, int) for part in (found, drawn)]
        _, i, j = np.intersect1d(*areas, return_indices=True)
        value, below, above = (found.columns[name][i] / found.unit for name in ("value", "below", "above"))
        shown, low, high = (drawn.columns[name][j] for name in ("value", "below", "above"))
        pieces = 4 if view.places(domain.axes)[0][0]["levels"][max(key[0], 0)]["name"] == "2km" else 1  # not in 5 km
        assert (np.abs(shown - value) <= pieces * grain).all() and (low >= 0).all(), key
        assert (shown - low <= value - below + 1e-6).all() and (value + above - 1e-6 <= shown + high).all(), key
        seen += i.size
    assert seen > 20


def test_a_table_full_of_noise_is_summed_and_keeps_the_intervals_of_larger_areas(monkeypatch, tmp_path):
    monkeypatch.setattr(sheets, "MOST_NOISE", 190)
    ks.release(counts(level=40), ks.geometric(), epsilon="0.1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    html = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    told = json.loads(around(html)[0].rpartition('id="view">')[2].partition("</script>")[0])
    axis, keys = told["axes"][0], [part["key"] for part in told["parts"] if part["what"] == "range"]
    assert axis["level"] == "2km" and [-1] in keys and len(keys) >= 3
    assert {axis["levels"][key[0]]["name"] for key in keys if key[0] >= 0} == {"10km", "80km"}
    assert "95 % interval is shown with larger areas: 10 km cells, 80 km cells, everything" in html
    assert "each of the" not in html and ks.verify(tmp_path / "r")["ok"]


def test_tables_of_sums_are_called_what_readers_call_them():
    places = {"code": ["A", "B", "A1", "A2", "B1"], "parent": ["", "", "A", "A", "B"]}
    axes = (
        ks.Mesh("grid", level="1km", origin=(4272, 3168), shape=(16, 16)),
        ks.Regions("place", places, parent="parent", levels=("part", "town")),
        ks.Time("hour", "2020-01-01T00:00", seconds=3600, size=24),
    )

    def told(view, many):
        found = levels.sums_of(axes, view, many)
        return found.en, found.ja

    assert told("grid@3, hour", 96) == ("grid: squares of 8 x 8 cells × hour", "grid：8 × 8 セルの区画 × 時刻")
    assert told("grid", 256) == ("grid: 1 km cells", "grid：1kmメッシュ")
    assert told("place@1, hour@1", 24) == ("place: part × hour, 2 at a time", "場所：part × 時刻（2 区分ずつ）")
    assert told("ward, hour", 7) == ("ward × hour", "区 × 時刻"), "the regions of a map"
    assert told("grid@3", 9) == ("grid@3", "grid@3"), "heights of another tree"


def test_sums_are_left_out_where_the_rows_add_up_to_them():
    """Two meshes of several levels, a tree of places: as `intervals.by_spans` has them."""
    places = {"code": ["A", "B", "A1", "A2", "B1"], "parent": ["", "", "A", "A", "B"]}
    axes = (
        ks.Mesh("m", level="1km", origin=(4273, 3169), shape=(5, 7)),
        ks.Regions("place", places, parent="parent", levels=("part", "town")),
    )
    domain = ks.Domain(axes)
    values, unit = np.random.default_rng(2).poisson(1, domain.shape), ks.Unit("person", "add-remove", 1)
    counts = ks.Counts.from_dense(values, domain, unit, "places")
    out = ks.release(counts, ks.refined_tree(), epsilon="2", ledger=None)
    sheet = sheets.Sheet(domain, out.cells, out.values, *np.full((2, out.cells.size), np.nan))
    told, seen = view.places(domain.axes)[0], 0
    for key, rows in margins.tables(out):
        known = sums.of(told, sheet.rows, key)
        assert known is not None and sums.same(known, rows), key
        back = unpack(*pack(rows, sums=True), known)
        assert all((back.columns[name] == rows.columns[name]).all() for name in rows.columns)
        seen += rows.size
    assert seen > 100


def test_intervals_are_rounded_outwards_and_may_be_absent():
    values, lower, upper = np.array([5.0, 7.25, 3.0]), np.array([1.004, np.nan, 3.0]), np.array([9.001, np.nan, 3.0])
    unit = whole([values])
    assert unit == 100 and whole([np.array([1.0, 2.0]), np.array([3])]) == 1
    below, above = distances(values, lower, upper, unit)
    assert below.tolist() == [400, -1, 0] and above.tolist() == [401, -1, 0]


def test_stored_intervals_reach_the_page(saved):
    sheet = page.Sheet.read(saved, page.read_manifest(saved))
    wide = replace(sheet, lower=sheet.values - 3.0, upper=sheet.values + 4.0)
    assert wide.has_intervals and set(wide.rows.columns) == {"value", "below", "above"}
    assert (wide.rows.columns["below"] == 3).all() and (wide.rows.columns["above"] == 4).all()
    words = [frame.markdown(page.text_of(saved / name)) for name in page.CERTIFICATES]
    assert "No interval is stored" not in page.compose(page.read_manifest(saved), wide, words)


@pytest.mark.parametrize("recipe", [ks.haar_topdown(descent="jump"), ks.simplex(), ks.geometric()])
def test_the_page_says_which_values_have_no_interval_and_why(recipe, tmp_path):
    ks.release(counts(), recipe, epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    about, html = page.read_manifest(tmp_path / "r"), page.build(tmp_path / "r")
    why = about["intervals"].get("why")
    if why is None:
        assert "interval is shown with each of the" in html and "掲載のないセル" in html
        assert "No value on this page" not in html
    else:
        assert f"are empty): {why}" in html.replace("&#x27;", "'")
        assert f"理由：{ja(why)}" in html.replace("&#x27;", "'") and ja(why) != why


def test_every_phrase_of_a_claim_has_its_japanese():
    from kasuri import schema
    from kasuri.ingest import estat
    from kasuri.kanon import anonymized, pk, sample
    from kasuri.kanon.audit import IS_A_GUARANTEE, IS_NO_GUARANTEE, NO_GUARANTEE
    from kasuri.local import longitudinal, randomizer
    from kasuri.manifest import package
    from kasuri.noise import laws
    from kasuri.published import protected as published
    from kasuri.recipes import shaped
    from kasuri.shuffle import marginals, plan, statistics, synthesis
    from kasuri.spark import cluster

    domain = ks.Domain.of(ks.Nominal("ward", ("a", "b")))
    claims = [
        ks.local.grr(domain, epsilon="1").guarantee(reports=3),
        ks.shuffle.Plan(key="k", a="x", b="y", bounds={"x": (0, 1), "y": (0, 1)}, epsilon_each="1", delta=1e-8,
                        trusted_joiner="Bureau").guarantee(n=2000).public,
    ]  # fmt: skip
    said = [
        *(phrase for claim in claims for phrase in (*claim.assumes, *claim.public)),
        published.NO_LEDGER, estat.MERGED, cluster.STEADY, cluster.LOGS, sample.UNBOUNDED, pk.ONE_ROW, pk.IN_DOMAIN,
        longitudinal.PATTERN, randomizer.ONE_DEVICE, package.IN_PARTS, plan.ONE_KEY, statistics.NOT_IDENTIFIED,
        marginals.MOVED, synthesis.TOGETHER,
        anonymized.UNMETERED, NO_GUARANTEE, IS_A_GUARANTEE, IS_NO_GUARANTEE,
        schema.PROVIDER_BOUNDED, schema.ROWS_ALONE, laws.KEYSTREAM, laws.IDEALISED, shaped.SAME_TOTAL,
        "table census-2015 (prior)", "matrix districts (workload)", "matrix of the recipe (strategy)",
        "declared density and size of the non-empty cells", "recoding", "cut", "cuts", "k",
        "sampling rate", "column types", "retention", "number of rows", "domain", "mask", "total",
    ]  # fmt: skip
    assert [phrase for phrase in said if not re.search("[ぁ-んァ-ヶ一-龠]", ja(phrase))] == []
    assert ja("a phrase nobody wrote") == "a phrase nobody wrote"
    assert ja("device 3: its variance cannot be identified from this").startswith("device 3：")


def test_the_page_in_the_folder_is_the_page_of_the_folder(saved, tmp_path):
    """save() writes what `kasuri report` makes again, elsewhere, from the folder alone."""
    other = tmp_path / "some where else"
    shutil.copytree(saved, other)
    assert page.build(other).encode() == (saved / "report.html").read_bytes()
    assert ks.verify(saved)["ok"]
    assert not re.search(rb"20[2-9]\d-[01]\d-[0-3]\dT", (saved / "report.html").read_bytes())


def test_equal_content_gives_equal_bytes_whatever_the_truth(tmp_path):
    """Two tables with other counts; what is published of them is made the same: so are the reports."""
    one = ks.release(counts(1), ks.haar_topdown(), epsilon="1", ledger=None)
    two = ks.release(counts(2, level=90), ks.haar_topdown(), epsilon="1", ledger=None)
    other = tmp_path / "other"
    one.save(str(tmp_path / "one"), unmetered=True)
    two.save(str(other), unmetered=True)
    same = replace(two, cells=one.cells, values=one.values, measurements=one.measurements, provenance=one.provenance)
    same.save(str(tmp_path / "two"), unmetered=True)
    made = [(tmp_path / name / "report.html").read_bytes() for name in ("one", "two", "other")]
    assert made[0] == made[1] != made[2]


CHILD = """
import sys
from pathlib import Path
from kasuri.report import page
Path(sys.argv[2]).write_bytes(page.build(sys.argv[1]).encode())
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: apt-get install strace")
def test_a_process_that_reads_only_the_folder_makes_the_same_page(saved, tmp_path):
    """Every file the process opens is the release's, or the language's and its libraries': no data, no census extract,
    no ledger; and it makes the very bytes that save() wrote."""
    log, out = tmp_path / "trace", tmp_path / "page.html"
    words = ["strace", "-f", "-qq", "-e", "trace=open,openat,openat2,connect,socket", "-o", str(log)]
    clean = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    done = subprocess.run([*words, sys.executable, "-c", CHILD, str(saved), str(out)], env=clean, cwd=tmp_path,
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == (saved / "report.html").read_bytes()
    trace = log.read_text(errors="replace")
    assert "connect(" not in trace and "AF_INET" not in trace
    opened = {Path(name) for name in re.findall(r'open(?:at2?)?\((?:AT_FDCWD, )?"([^"]+)".*= \d+', trace)}
    read = {path if path.is_absolute() else tmp_path / path for path in opened}
    source = Path(ks.__file__).parent
    allowed = [Path(sys.prefix), Path(sys.base_prefix), Path("/usr"), Path("/lib"), Path("/lib64"), Path("/etc"),
               Path("/proc"), Path("/sys"), Path("/dev"), source]  # fmt: skip
    others = sorted(p for p in read if p != out and not any(p.is_relative_to(top) for top in allowed))
    inside = {p.name for p in others if p.is_relative_to(saved)}
    assert [p for p in others if not p.is_relative_to(saved) and p.is_file()] == []
    assert inside - {""} <= {"release.parquet", "release_meta.parquet", "measurements.parquet", "datapackage.json",
                             "certificate.md", "certificate.ja.md", saved.name}  # fmt: skip
    assert not [p for p in read if p.is_relative_to(source) and p.suffix in (".parquet", ".csv", ".toml")]


def forge(folder, change):
    """The report changed, and every hash made right again."""
    path, manifest = folder / "report.html", json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    path.write_text(after, encoding="utf-8")
    for item in manifest["resources"]:
        item["hash"] = sha256((folder / item["path"]).read_bytes())
    manifest["digest"] = digest(manifest)
    (folder / "datapackage.json").write_bytes(text(manifest))


def other_rows(page_text):
    head, _, foot = around(page_text)
    about = json.loads(head.rpartition('id="view">')[2].partition("</script>")[0])["data"]
    first, _, others = around(page_text)[1].partition(".")
    rows = unpack(about, first)
    values = rows.columns["value"].copy()
    values[3] += 1 if values[3] % 2 == 0 else -1  # same length of bytes, another number
    return head + pack(replace(rows, columns={"value": values}))[1] + "." + others + "</script>" + foot


def other_ranges(page_text):
    """An interval of a coarser level made narrower."""
    head, packed, foot = around(page_text)
    view = json.loads(head.rpartition('id="view">')[2].partition("</script>")[0])
    at = next(i for i, part in enumerate(view["parts"]) if part["what"] == "range")
    texts, part = packed.split("."), view["parts"][at]
    known = sums.of(view["axes"], unpack(view["data"], texts[0]), part["key"])
    rows = unpack(part["about"], texts[at + 1], known)
    above = np.where(rows.columns["above"] > 1, rows.columns["above"] - 2, rows.columns["above"])
    texts[at + 1] = pack(replace(rows, columns={**rows.columns, "above": above}), sums=True)[1]
    return head + ".".join(texts) + "</script>" + foot


@pytest.mark.parametrize("change", [
    lambda t: t.replace("epsilon = 1", "epsilon = 0.1"),
    lambda t: t.replace('id="rows">', 'id="rows">A'),
    lambda t: t.replace("<main>", "<main><p>trust me</p>"),
    lambda t: t.replace('"unit": 1}', '"unit": 100}', 1),
    other_rows,
    other_ranges,
])  # fmt: skip
def test_a_forged_report_is_found(saved, tmp_path, change):
    shutil.copytree(saved, tmp_path / "r")
    forge(tmp_path / "r", change)
    found = ks.verify(tmp_path / "r")
    assert [fault.split(":")[0] for fault in found["faults"]] == ["report.html"]


def test_a_report_of_another_version_is_judged_by_its_hash(saved, tmp_path, monkeypatch):
    """Pages look otherwise in other versions; a release must not become faulty by an update."""
    shutil.copytree(saved, tmp_path / "r")
    forge(tmp_path / "r", lambda t: t.replace("<main>", "<main data-version='0.0'>"))
    assert not ks.verify(tmp_path / "r")["ok"]
    later = {"versions": {"kasuri": "9.9"}}
    monkeypatch.setattr(sys.modules["kasuri.manifest.recompute"], "environment", lambda: later)
    assert ks.verify(tmp_path / "r")["ok"]
    with (tmp_path / "r" / "report.html").open("a") as file:
        file.write(" ")
    assert [fault.split(":")[0] for fault in ks.verify(tmp_path / "r")["faults"]] == ["report.html"]


def test_another_zlib_is_no_forgery(saved, tmp_path):
    import zlib

    from kasuri.report.pack import bytes_of, text_of

    def again(page_text):
        head, packed, foot = around(page_text)
        squeeze = zlib.compressobj(1, zlib.DEFLATED, -15)
        first, _, others = packed.partition(".")
        raw = zlib.decompress(bytes_of(first), -15)
        again = text_of(squeeze.compress(raw) + squeeze.flush())
        return head + again + "." + others + "</script>" + foot

    shutil.copytree(saved, tmp_path / "r")
    forge(tmp_path / "r", again)
    assert ks.verify(tmp_path / "r")["ok"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("</script>\n", "00000</script>\n"),  # after the squeezed rows, where no reader looks
        ('id="view">{', 'id="view">{"axes":"epsilon 0.001",'),  # a key that is there twice: readers see the last
        ('"data": {', '"data": {"claim": "epsilon 0.001", '),
        (".", "F."),  # one letter more than the bytes have
        ('"scale": ', '"scale": 1'),  # outlines drawn elsewhere, as if the counts lay there
        ('"lines": ', '"lines": 1'),
        ('"unit": 1}', '"unit": 1.0}'),  # equal numbers, in other letters
        ('"cols": 20', '"cols": 20.0'),
    ],
)
def test_text_that_a_page_holds_and_never_shows_is_found(saved, old, new):
    from kasuri.report import compare

    page_text = (saved / "report.html").read_text(encoding="utf-8")
    head, packed, foot = around(page_text)
    other = head.replace(old, new, 1) + packed + "</script>" + foot
    if old == ".":
        other = head + packed.replace(old, new, 1) + "</script>" + foot
    if old.startswith("<"):
        other = head + packed + new.removesuffix("\n") + foot
    assert other != page_text and compare.same(page_text, page_text) and not compare.same(other, page_text)


def test_limits_of_larger_areas_moved_by_one_are_found_on_the_machine_that_made_them(saved):
    """Another machine may round them so; what it packs is its numbers and nothing more."""
    from kasuri.report import compare, pack

    page_text = (saved / "report.html").read_text(encoding="utf-8")
    head, packed, foot = around(page_text)
    view = json.loads(head.rpartition('id="view">')[2].partition("</script>")[0])
    texts = packed.split(".")
    at = next(i for i, part in enumerate(view["parts"]) if part["what"] == "range")
    about, text = view["parts"][at]["about"], texts[at + 1]
    known = None
    if all(name != "value" for name, _ in about["streams"]):
        rows = pack.unpack(view["data"], texts[0])
        known = compare.sums.of(view["axes"], rows, view["parts"][at]["key"])
    limits = pack.unpack(about, text, known)
    limits.columns["above"][:1] += 1

    def with_part(made):
        own, text = made
        told = {**view, "parts": [{**part, "about": own} if i == at else part for i, part in enumerate(view["parts"])]}
        said = json.dumps(told, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
        before = head.rpartition('id="view">')[0] + 'id="view">' + said
        after = head.rpartition('id="view">')[2].partition("</script>")[2]
        return f"{before}</script>{after}{'.'.join([*texts[: at + 1], text, *texts[at + 2 :]])}</script>{foot}"

    moved = with_part(pack.pack(limits, sums=known is not None))
    assert compare.same(moved, page_text, rounding=1) and not compare.same(moved, page_text, rounding=0)


def test_a_changed_table_is_not_drawn(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "r")
    with (tmp_path / "r" / "release.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ks.FormatError, match="kasuri verify"):
        page.build(tmp_path / "r")
    with pytest.raises(ks.FormatError, match="no saved release"):
        page.build(tmp_path)


def test_a_table_in_several_files_is_read_whole(saved, tmp_path):
    """As a cluster writes it: numbered files, in any order of cells."""
    import pyarrow.parquet as pq

    shutil.copytree(saved, tmp_path / "r")
    table = pq.read_table(saved / "release.parquet")
    half = table.num_rows // 2
    about = page.read_manifest(saved)
    about["resources"] = [item for item in about["resources"] if item["path"] != "release.parquet"]
    for i, part in enumerate((table.slice(half), table.slice(0, half))):
        path = tmp_path / "r" / f"release-0000{i}.parquet"
        pq.write_table(part, path)
        about["resources"].append({"path": path.name, "hash": sha256(path.read_bytes())})
    one, parts = page.Sheet.read(saved, page.read_manifest(saved)), page.Sheet.read(tmp_path / "r", about)
    assert (one.cells == parts.cells).all() and (one.values == parts.values).all()
    about["resources"] = []
    with pytest.raises(ks.FormatError, match="no released table"):
        page.Sheet.read(tmp_path / "r", about)


def test_names_that_look_like_code_stay_text(tmp_path):
    domain = ks.Domain.of(ks.Nominal("p", labels=("</script><script>alert(1)</script>", "b&amp;<i>")))
    counts = ks.Counts.from_dense(np.array([5, 6]), domain, UNIT, data="<img src=x>|**b**")
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    made = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in made and "<img" not in made
    assert made.count("<script") == made.count("</script>") == 3


def test_an_empty_table_has_a_report():
    domain = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)))
    sheet = page.Sheet(domain, np.array([], np.int64), np.array([], np.int64), np.array([]), np.array([]))
    assert sheet.shown()[0][0]["rows"] == 0 and "–" in levels.totals(sheet)


def test_a_table_too_large_for_a_page_is_summed(monkeypatch, saved):
    about = page.read_manifest(saved)
    sheet = page.Sheet.read(saved, about)
    monkeypatch.setattr(sheets, "MOST_ROWS", 100)
    _, drawn = sheet.shown()
    assert drawn.meshes[0].level == "2km" and drawn.values.sum() == sheet.values.sum() and drawn.cells.size <= 100
    made = page.build(saved)
    assert "too large for one page" in made and "2km" in made
    bare = ks.Domain.of(ks.Nominal("p", tuple(map(str, range(500)))))
    none = np.full(500, np.nan)
    many = page.Sheet(bare, np.arange(500), np.arange(500) + 1, none, none)
    assert many.shown()[1].values.tolist() == list(range(476, 501))


@pytest.mark.parametrize(
    "axes",
    [
        (ks.Mesh("grid", shape=(1, 1)),),
        (ks.Mesh("grid", shape=(1 << 30, 1 << 30)),),
        (ks.Mesh("grid", level="125m", origin=(0, 0), shape=(64000, 64000)),),
        (ks.Mesh("a", level="1km", origin=(7, 9), shape=(30, 50)), ks.Mesh("b", shape=(40_000, 3)), ks.Ordered("n", 2)),
        (ks.Ordered("age", 1 << 40),),
        (ks.Time("t", "9999-12-31T00:00", seconds=86400, size=9), ks.Nominal("x", ("a", "b"))),
        tuple(ks.Ordered(f"d{i}", 2) for i in range(40)),
    ],
    ids=lambda axes: "-".join(axis.name for axis in axes)[:20],
)
def test_every_domain_has_a_report(axes, tmp_path):
    """A release that was paid for must never be lost to its own picture."""
    domain = ks.Domain.of(*axes)
    cells = np.unique(np.array([0, domain.size // 3, domain.size - 1]))
    counts = ks.Counts.from_coo(cells, np.full(cells.size, 900), domain, UNIT, data="x")
    out = ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(tmp_path / "r")["ok"]
    sheet = page.Sheet.read(tmp_path / "r", page.read_manifest(tmp_path / "r"))
    assert sheet.shown()[1].values.sum() == out.total() and all(
        max(mesh.shape) <= sheets.MOST_SIDE for mesh in sheet.shown()[1].meshes
    )


@pytest.mark.parametrize("name", ["code", "cells", "rows", "cols", "self"])
def test_an_axis_may_have_the_name_of_a_word_of_areas(tmp_path, name):
    """A page that cannot be made comes after the charge."""
    axes = (ks.Nominal(name, ("a", "b", "c")), ks.Mesh("m", shape=(2, 2), elsewhere=True))
    twin = (ks.Mesh(name, shape=(2, 2), elsewhere=True), ks.Ordered("age", 4))
    for at, domain in enumerate((ks.Domain.of(*axes), ks.Domain.of(*twin))):
        shape = domain.shape
        values = np.where(domain.possible(np.arange(domain.size)), 5, 0).reshape(shape)
        made = ks.Counts.from_dense(values, domain, ks.Unit("person", "add-remove", 1), data="made up")
        ks.release(made, ks.geometric(), epsilon="1", ledger=None).save(tmp_path / str(at), unmetered=True)
        assert 'id="answers"' in (tmp_path / str(at) / "report.html").read_text("utf-8")


def test_the_page_answers_what_the_table_can_be_asked(tmp_path):
    """Quartiles and ranks of the page are those of the release, escaped; without intervals there are none."""
    wards = ("<b>north</b>", "south", "east")
    ages = ks.Ordered("age", 5, labels=("0-19", "20-39", "40-59", "60-79", "80+"))
    domain = ks.Domain.of(ks.Nominal("ward", wards), ages, ks.Nominal("sex", ("female", "male")))
    table = np.random.default_rng(3).poisson(np.array([900.0, 300, 290])[:, None, None], domain.shape)
    made = ks.Counts.from_dense(table, domain, UNIT, data="wards")
    for recipe in (ks.geometric(), ks.refined_tree()):
        out = ks.release(made, recipe, epsilon="1", ledger=None)
        out.save(str(tmp_path / recipe.name), unmetered=True)
        text = (tmp_path / recipe.name / "report.html").read_text("utf-8")
        (part,) = re.findall('<section id="answers".*?</section>', text)
        for one in out.quantile("age", [0.25, 0.5, 0.75]):
            ends = [one.lower_label] if one.lower == one.upper else [one.lower_label, one.upper_label]
            assert (
                f"{one.label}</span>" in part and f"({' to '.join(ends)})" in part and f"（{'～'.join(ends)}）" in part
            )
        ranks = out.rank("ward").ranks
        assert ranks[0].name == wards[0] and (ranks[0].best, ranks[0].worst) == (1, 1)
        assert "<b>" not in part and "&lt;b&gt;north&lt;/b&gt;" in part and "3 by ward" in part
        for one in ranks:
            shown = str(one.best) if one.best == one.worst else f"{one.best}–{one.worst}"
            assert f'<td class="n">{shown}</td>' in part and levels.number(one.value) in part
        assert ks.verify(str(tmp_path / recipe.name)).ok
    out = ks.release(made, ks.simplex(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "simplex"), unmetered=True)
    assert 'id="answers"' not in (tmp_path / "simplex" / "report.html").read_text("utf-8")


def test_places_are_ranked_at_the_finest_level_that_can_be_told(tmp_path):
    """450 counties are too many to be put in order; their 9 states are not, and a cell elsewhere is none of them."""
    names = [f"{state}{county}" for state in range(9) for county in range(10, 60)]
    (tmp_path / "counties.csv").write_text("code,name\n" + "".join(f"{code},County {code}\n" for code in names))
    counties = ks.Regions(
        "g", str(tmp_path / "counties.csv"), prefix=(1, 3), levels=("state", "county"), elsewhere=True
    )
    domain = ks.Domain.of(counties)
    people = np.append(np.arange(450) // 50 * 100, 10**6)
    made = ks.Counts.from_dense(people, domain, UNIT, data="counties")
    words, table = answers.section(ks.release(made, ks.geometric(), epsilon="1", ledger=None), 95)
    assert "9 by state" in words and re.findall('<td class=".">(.*?)</td>', table)[:6:4] == ["1", "2"]
    assert re.findall('<td class="t">(.*?)</td>', table)[:2] == ["8", "7"]


def test_ranked_places_have_their_names_in_both_languages(tmp_path):
    (tmp_path / "p.csv").write_text(
        "code,name,name_en\n1,北県,North\n11,甲市,Ko\n12,乙市,\n13,<b>市,Hei\n", encoding="utf-8"
    )
    axis = ks.Regions("g", str(tmp_path / "p.csv"), prefix=(1, 2), levels=("prefecture", "city"))
    made = ks.Counts.from_dense(np.array([900, 50, 500]), ks.Domain.of(axis), UNIT, data="d")
    _, table = answers.section(ks.release(made, ks.geometric(), epsilon="1", ledger=None), 95)
    told = re.findall('<td class="t">(.*?)</td>', table)
    assert told[0] == '<span lang="en">11 Ko</span><span lang="ja">11 甲市</span>' and told[2] == "12 乙市"
    assert told[1] == '<span lang="en">13 Hei</span><span lang="ja">13 &lt;b&gt;市</span>'


def test_the_report_command(saved, tmp_path):
    from kasuri.cli import app

    shutil.copytree(saved, tmp_path / "r")
    run = CliRunner().invoke(app, ["report", str(tmp_path / "r"), "--json"])
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    assert Path(facts["file"]) == (tmp_path / "r-report.html").resolve() and not facts["confidential"]
    assert Path(facts["file"]).read_bytes() == (saved / "report.html").read_bytes()
    assert CliRunner().invoke(app, ["report", str(tmp_path / "r")]).exit_code == 0
    (tmp_path / "mine.html").write_text("mine")
    for target in (tmp_path / "mine.html", tmp_path / "r" / "report.html", tmp_path):
        assert CliRunner().invoke(app, ["report", str(tmp_path / "r"), "--out", str(target)]).exit_code != 0
    assert (tmp_path / "mine.html").read_text() == "mine" and ks.verify(tmp_path / "r")["ok"]


def test_the_internal_report(tmp_path):
    """Truth from the job's own data; marked, for its owner only, and never in the release's folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kasuri import job
    from kasuri.cli import app
    from kasuri.meshcode import encode

    table = counts(3)
    row, col = (index for index in DOMAIN.unravel(table.cells))
    codes = encode(row + 8403, col + 6081, "500m")
    pq.write_table(pa.table({"mesh_code": codes, "population": table.values}), tmp_path / "census.parquet")
    words = job.TEMPLATE.replace("census.csv", "census.parquet")
    words = re.sub(r'window = "kanto"', "origin = [8403, 6081]\nshape = [24, 20]", words)
    (tmp_path / "job.toml").write_text(words, encoding="utf-8")
    released = job.run(job.load(tmp_path / "job.toml"), tmp_path)
    run = CliRunner().invoke(app, ["report", str(tmp_path / "release"), "--internal", str(tmp_path / "job.toml")])
    assert run.exit_code == 0 and "CONFIDENTIAL" in run.stdout
    path = tmp_path / "release-internal.html"
    made = path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o077 == 0 and "Do not publish" in made and "公表しないでください" in made
    from kasuri.report import internal

    full = internal.with_truth(page.Sheet.read(tmp_path / "release", page.read_manifest(tmp_path / "release")),
                               table.cells, table.values)  # fmt: skip
    levels = internal.errors_by_level(full)
    dense = np.zeros(DOMAIN.size)
    dense[table.cells] = table.values
    error = released.to_dense() - dense.reshape(DOMAIN.shape)
    assert levels[0]["areas"] == DOMAIN.size and levels[0]["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert levels[-1]["name"] == "80km" and [level["name"] for level in levels][:3] == ["500m", "1km", "2km"]
    coarse = np.add.reduceat(np.add.reduceat(np.pad(error, ((1, 0), (1, 0))), range(0, 25, 2), 0), range(0, 21, 2), 1)
    assert levels[1]["mae"] == pytest.approx(np.abs(coarse).mean())
    with pytest.raises(ks.DomainError, match="another domain"):
        internal.build(tmp_path / "release", ks.Domain.of(ks.Mesh("grid", shape=(2, 2))), table.cells, table.values)


def test_a_report_on_a_local_estimate(tmp_path, monkeypatch):
    from kasuri.cli import app

    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("ward\n" + "a\nb\nb\n" * 300, encoding="utf-8")
    for words in (
        "local plan --users 900 --epsilon 2 --labels a,b,c --save rr.json",
        "local randomize people.csv --column ward --randomizer rr.json --out reports.parquet",
        "local estimate reports.parquet --report estimate.html",
    ):
        run = CliRunner().invoke(app, words.split())
        assert run.exit_code == 0, run.output
    made = Path("estimate.html").read_text(encoding="utf-8")
    assert "局所差分プライバシー" in made and '"confidence": 95' in made and "<title>reports: 900 reports" in made


def test_rows_that_would_swell_are_refused():
    """A page made to fill the memory of whoever verifies it: its rows are never unpacked beyond what they announce."""
    import zlib

    from kasuri.report.pack import text_of

    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = text_of(squeeze.compress(b"\0" * 10_000_000) + squeeze.flush())
    with pytest.raises(ValueError, match="left over"):
        unpack({"rows": 3, "unit": 1, "streams": [["axis0", 3]]}, bomb)


def test_a_national_map_stays_small():
    """4096 x 4096 with 300,000 populated cells in clusters: far below 15 MB."""
    rng = np.random.default_rng(5)
    place = rng.normal(2048, 500, (2, 330_000)).astype(int).clip(0, 4095)
    cells = np.unique(place[0] * 4096 + place[1])
    values = np.maximum(1, rng.lognormal(4, 2, cells.size)).astype(np.int64)
    none = np.full(cells.size, np.nan)
    domain = ks.Domain.of(ks.Mesh.window("grid", "japan4096"))
    (about, packed), drawn = page.Sheet(domain, cells, values, none, none).shown()
    assert drawn.domain == domain and about["rows"] == cells.size and len(packed) < 1_500_000


ABOUT = {
    "title": "Where people <b>live</b> & work", "title_ja": "人口 <2020>", "publisher": "統計局",
    "contact": "a@example.org",
    "source": "census 2020",
    "licence": "CC BY 4.0", "published": "2026-11-18", "language": "en",
}  # fmt: skip


def test_who_and_when_are_on_everything_that_leaves(tmp_path):
    """Report, both certificates, manifest, stored table and exports; and a folder that was loaded still tells them."""
    released = ks.release(counts(), ks.haar_topdown(), epsilon="1", ledger=None, about=ABOUT)
    released.save(str(tmp_path / "r"), unmetered=True)
    found = ks.verify(tmp_path / "r")
    assert found["ok"], found["faults"]
    html = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    titles = (
        '<span lang="en">Where people &lt;b&gt;live&lt;/b&gt; &amp; work</span><span lang="ja">人口 &lt;2020&gt;</span>'
    )
    assert f"<h1>{titles}</h1>" in html and "<b>live" not in html
    assert "人口 <2020>" in (tmp_path / "r" / "certificate.ja.md").read_text(encoding="utf-8")
    shown = html.partition("How to cite")[0]
    for name in ("publisher", "contact", "source", "licence", "published"):
        assert ABOUT[name] in shown
        for certificate in page.CERTIFICATES:
            assert ABOUT[name] in (tmp_path / "r" / certificate).read_text(encoding="utf-8")
    manifest = page.read_manifest(tmp_path / "r")
    assert manifest["about"] == ABOUT and manifest["title"] == ABOUT["title"]
    assert manifest["sources"] == [{"title": "census 2020"}] and manifest["contributors"][0]["title"] == "統計局"
    assert ks.Release.load(str(tmp_path / "r")).provenance["about"] == ABOUT
    for name in ("x.csv", "x.parquet", "x.gpkg", "x.sqlite", "x.duckdb"):
        released.export(str(tmp_path / name), unmetered=True)
    assert json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[b"about"]) == ABOUT
    assert "census 2020" in (tmp_path / "x_meta.csv").read_text(encoding="utf-8-sig")
    for name in ("x.gpkg", "x.sqlite"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as base:
            (row,) = base.execute("SELECT provenance FROM release_meta").fetchall()
        assert json.loads(row[0])["about"] == ABOUT


def test_a_page_is_cited_by_its_title_in_each_language(tmp_path):
    said = {"title_en": "Where people live", "title_ja": "人口の分布", "publisher": "وزارة", "published": "2026-11-18"}
    ks.release(counts(), ks.haar_topdown(), epsilon="1", ledger=None, about=said).save(
        str(tmp_path / "r"), unmetered=True
    )
    html = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    cited = html.partition('<section id="cite"')[2].partition("</section>")[0]
    assert "وزارة, Where people live, 2026-11-18, released" in cited and "وزارة, 人口の分布, 2026-11-18（" in cited
    assert "title = {Where people live}" in cited
    assert "<bdi>وزارة</bdi>" in html, "text from right to left does not turn the words beside it"


def test_what_a_publisher_may_not_say(saved):
    for words, fault in [
        ({"title": "two\nlines"}, "U\\+000A"), ({"publisher": "a\u202eb"}, "U\\+202E"),
        ({"published": "18.11.2026"}, "day"),
        ({"published": "2026-11-18T10:00"}, "day"), ({"language": "English"}, "language"),
        ({"title": " "}, "characters"),
        ({"time": "now"}, "mapping"), ({"title": 3}, "text"),
        ("title", "mapping"), ({"source": "x" * 501}, "characters"),
    ]:  # fmt: skip
        with pytest.raises(ks.DomainError, match=fault):
            ks.release(counts(), ks.haar_topdown(), epsilon="1", ledger=None, about=words)
    assert "about" not in page.read_manifest(saved)
    assert "about" not in ks.Release.load(str(saved)).provenance


def test_words_of_a_publisher_that_were_changed_are_found(tmp_path):
    ks.release(counts(), ks.haar_topdown(), epsilon="1", ledger=None, about=ABOUT).save(
        str(tmp_path / "r"), unmetered=True
    )
    path = tmp_path / "r" / "datapackage.json"
    for change in ({"publisher": "somebody else"}, {"title": "a\u202eb"}, None, ["x"]):
        manifest = json.loads((tmp_path / "r" / "datapackage.json").read_text(encoding="utf-8"))
        forged = ABOUT | change if isinstance(change, dict) else change
        (tmp_path / "f").mkdir()
        for item in path.parent.iterdir():
            shutil.copy(item, tmp_path / "f")
        manifest["about"] = forged
        manifest["digest"] = digest(manifest)
        (tmp_path / "f" / "datapackage.json").write_bytes(text(manifest))
        assert not ks.verify(tmp_path / "f")["ok"]
        shutil.rmtree(tmp_path / "f")


def test_a_job_says_who_and_when(tmp_path):
    from kasuri import job

    (tmp_path / "t.csv").write_text("ward,population\na,30\nb,40\n")
    words = """
[data]
name = "t"
files = ["t.csv"]
columns = { ward = "ward" }
weight = "population"
[[axes]]
kind = "nominal"
name = "ward"
labels = ["a", "b"]
[unit]
id = "person"
change = "add-remove"
max_cells = 1
[recipe]
name = "geometric"
[budget]
epsilon = "1"
unmetered = true
[output]
folder = "r"
[about]
title = "Two wards"
"""
    path = tmp_path / "job.toml"
    path.write_text(words + "published = 18.11\n")
    assert "about.published" in job.check(path)[0]
    path.write_text(words + "published = 2026-11-18\n")
    assert job.check(path) == []
    job.run(job.load(path), tmp_path)
    assert page.read_manifest(tmp_path / "r")["about"] == {"title": "Two wards", "published": "2026-11-18"}
    assert ks.verify(tmp_path / "r")["ok"]
