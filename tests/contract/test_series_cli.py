"""kasuri series: one job file, each slot once, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app

JOB = """
[data]
name = "flow"
files = ["in/{date}T{hour}.csv"]
columns = { grid = ["r", "c"] }

[[axes]]
kind = "mesh"
name = "grid"
shape = [8, 8]

[unit]
id = "phone"
change = "add-remove"
max_cells = 1
per = "slot"

[recipe]
name = "refined_tree"
shares = "series"
noise = "gaussian"
delta = "1e-6"

[budget]
epsilon = "5"
ledger = "flow.ledger"

[series]
window = "1d"
slot = "1h"
zone = "+09:00"
start = "2020-10-01T00:00+09:00"
delta = "1e-6"
days_off = [2020-10-02]

[output]
folder = "flow"
exports = ["maps.duckdb", "parts/{date}T{hour}.csv"]
"""
LAST = "2020-10-01T07:00+09:00"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(1)
    for hour in range(8):
        rows = rng.integers(0, 8, (0 if hour == 5 else 400, 2))  # an empty hour is released like any other
        lines = [f"{phone},{row},{col}" for phone, (row, col) in enumerate(rows)]
        (tmp_path / "in" / f"2020-10-01T{hour:02d}.csv").write_text("\n".join(["phone,r,c", *lines]) + "\n")
    (tmp_path / "flow.toml").write_text(JOB)
    return tmp_path


def kasuri(folder, *words):
    done = CliRunner().invoke(app, ["series", words[0], str(folder / "flow.toml"), *words[1:], "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def test_one_job_file_run_again_and_again(folder):
    opened = kasuri(folder, "open")
    assert opened["published"] == 0 and "any day" in opened["claim"] and opened["prices"][0]["span"] == "1h"
    first = kasuri(folder, "run", "--until", LAST, "--most", "3")
    assert [one["slot"][11:13] for one in first["released"]] == ["00", "01", "02"]
    again = kasuri(folder, "run", "--slot", "2020-10-01T01:00+09:00")
    assert again["released"] == [] and "paid for and published" in again["note"]
    rest = kasuri(folder, "run", "--until", LAST)
    assert rest["published"] == 8
    assert kasuri(folder, "run", "--until", LAST)["note"] == "no slot is due"
    assert kasuri(folder, "status")["last"] == LAST
    assert kasuri(folder, "verify")["ok"]
    import duckdb

    with duckdb.connect(str(folder / "maps.duckdb"), read_only=True) as base:
        assert base.execute("SELECT count(DISTINCT release_id) FROM release_meta").fetchone() == (8,)
    assert len(list((folder / "parts").glob("*T0?.csv"))) == 8
    page = kasuri(folder, "report", "--rows", "0:4", "--cols", "0:8", "--out", str(folder / "flow.html"))
    text = (folder / "flow.html").read_text(encoding="utf-8")
    view = json.loads(text.partition('id="view">')[2].partition("</script>")[0])
    assert [(axis["kind"], axis["size"]) for axis in view["axes"]] == [("time", 8), ("mesh", 64)]  # a slider
    assert page["slots"] == 8 and "<polyline" in text and "any day" in text and "365d" in text
    revised = kasuri(
        folder, "revise", "--first", "2020-10-01T02:00+09:00", "--last", LAST, "--out", str(folder / "rev")
    )
    assert revised["slots"] == 6 and json.loads((folder / "rev" / "revision.json").read_text())["status"] == "revised"
    assert len(ks.Ledger.load(folder / "flow.ledger").entries()) == 1 + 2 * 8  # a revision costs nothing


def test_slots_are_appended_to_postgres(folder, postgres):
    """Hour by hour; a crash after the database took a slot and before that was noted does not append it twice."""
    import psycopg

    (folder / "flow.toml").write_text(JOB.replace('"maps.duckdb", "parts/{date}T{hour}.csv"', f'"{postgres}"'))
    kasuri(folder, "open")
    for most, slots in (("1", 1), ("2", 3)):
        kasuri(folder, "run", "--until", LAST, "--most", most)
        with psycopg.connect(postgres) as base:
            ask = "SELECT count(*), count(DISTINCT release_id) FROM release_meta"
            assert base.execute(ask).fetchone() == (slots, slots)
    next((folder / "flow" / "exported").iterdir()).unlink()
    kasuri(folder, "run", "--until", LAST, "--most", "1")
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "series.md").read_text(encoding="utf-8")
    by_slot = guide.partition("```sql\n")[2].partition("```")[0]
    with psycopg.connect(postgres) as base:
        assert base.execute(ask).fetchone() == (4, 4)
        assert [slot for slot, _ in base.execute(by_slot).fetchall()] == [f"2020-10-01T0{h}:00+09:00" for h in range(4)]


def test_exports_that_a_crash_left_are_made_later(folder, monkeypatch):
    kasuri(folder, "open")
    from kasuri.job import serial

    with monkeypatch.context() as patch:
        patch.setattr(serial, "_export", lambda *words, **more: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            list(_run(folder, 1))
    assert not (folder / "maps.duckdb").exists()
    kasuri(folder, "run", "--until", "2020-10-01T01:00+09:00")
    import duckdb

    with duckdb.connect(str(folder / "maps.duckdb"), read_only=True) as base:
        assert base.execute("SELECT count(*) FROM release_meta").fetchone() == (2,)


def test_an_export_of_files_that_a_crash_cut_short_is_made_again(folder):
    kasuri(folder, "open")
    kasuri(folder, "run", "--until", LAST, "--most", "1")
    next((folder / "flow" / "exported").iterdir()).unlink()
    values = folder / "parts" / "2020-10-01T00.csv"
    whole = values.read_bytes()
    values.unlink()  # the last of its files; the others are there
    kasuri(folder, "run", "--until", LAST, "--most", "1")
    assert values.read_bytes() == whole


def _run(folder, most):
    from kasuri.job import serial

    work = job.load(folder / "flow.toml")
    series = serial.opened(work, folder)
    yield from serial.run(work, folder, series, serial.due(work, series, LAST)[:most])


def test_killed_in_the_middle(folder):
    """kill -9 at some moment of a run, again and again: every slot is paid once, none is drawn twice, all replays."""
    kasuri(folder, "open")
    command = [sys.executable, "-m", "kasuri", "series", "run", str(folder / "flow.toml"), "--until", LAST]
    for wait in (2.2, 2.6, 3.0):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        if (folder / "flow.ledger").exists():
            subprocess.run([sys.executable, "-m", "kasuri", "ledger", "repair", str(folder / "flow.ledger")],
                           capture_output=True, check=True)  # fmt: skip
    kasuri(folder, "run", "--until", LAST)
    status = kasuri(folder, "status")
    assert status["published"] + len(status["lost"]) == 8 and status["due"][0] == "2020-10-01T08:00+09:00"
    assert kasuri(folder, "verify")["ok"]
    entries = ks.Ledger.load(folder / "flow.ledger").entries()
    slots = [entry["claim"]["slots"][0] for entry in entries if entry["kind"] == "reserved"]
    assert len(slots) == len(set(slots)) == 8


def test_what_a_run_refuses_is_refused_before_anything_is_charged(folder, monkeypatch):
    """Slots that are none, and a job file that was changed in mid-series."""
    from kasuri.noise.rng import Source

    kasuri(folder, "open")
    kasuri(folder, "run", "--until", LAST, "--most", "1")
    entries = len(ks.Ledger.load(folder / "flow.ledger").entries())
    (folder / "in" / "2099-01-01T00.csv").write_text("phone,r,c\n1,2,3\n")

    def drawn(self):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Source, "release_key", drawn)
    for slot, words in (
        ("2099-01-01T00:00+09:00", "not ended"),
        ("2020-10-01T02:30+09:00", "overlaps"),
        ("2020-10-01T02:00+00:00", "another zone"),
        ("2020-10-01T02:00", "no zone"),
    ):
        with pytest.raises(ks.KasuriError, match=words):
            kasuri(folder, "run", "--slot", slot)
    for old, new, words in (
        ("shape = [8, 8]", "shape = [16, 16]", "another domain"),
        ('shares = "series"', 'shares = "u4"', "another recipe"),
        ('window = "1d"', 'window = "2d"', "another window"),
        ('epsilon = "5"', 'epsilon = "9"', "opened with epsilon 5 .* the job says 9"),
        ('delta = "1e-6"\ndays_off', 'delta = "1e-7"\ndays_off', "delta 0.000001, .* the job says 5 and 0.0000001"),
        ("max_cells = 1", "max_cells = 2", "protects"),
        ("days_off = [2020-10-02]", 'aside = "1"', "less of epsilon"),
        ("days_off = [2020-10-02]", "", "another calendar"),
    ):
        (folder / "flow.toml").write_text(JOB.replace(old, new))
        with pytest.raises(ks.KasuriError, match=words):
            kasuri(folder, "run", "--until", LAST)
    assert len(ks.Ledger.load(folder / "flow.ledger").entries()) == entries


def test_a_phone_in_many_cells_of_a_slot_is_in_one(folder):
    from kasuri.job.running import counts

    rows = "".join(f"7,{row},{col}\n" for row in range(8) for col in range(8))
    (folder / "in" / "all.csv").write_text(f"phone,r,c\n{rows}")
    work = job.load(folder / "flow.toml")
    data = work.data.model_copy(update={"files": ["in/all.csv"]})
    assert counts(work.model_copy(update={"data": data}), folder).values.tolist() == [1]


def test_a_slot_is_left_out_for_a_public_reason_only(folder):
    kasuri(folder, "open")
    rows = folder / "in" / "2020-10-01T00.csv"
    rows.rename(folder / "later.csv")
    slot = ("--slot", "2020-10-01T00:00+09:00")
    with pytest.raises(ks.PrivacyError, match="public reason"):
        kasuri(folder, "missing", *slot, "--reason", "")
    with pytest.raises(ks.KasuriError, match="no such file"):
        kasuri(folder, "run", "--until", LAST)
    kasuri(folder, "missing", *slot, "--reason", "maintenance announced on 28 September")
    done = kasuri(folder, "run", "--until", LAST, "--most", "1")
    assert [one["slot"] for one in done["released"]] == ["2020-10-01T01:00+09:00"]
    (folder / "later.csv").rename(rows)
    with pytest.raises(ks.DomainError, match="declared missing"):
        kasuri(folder, "run", *slot)
    assert len(ks.Ledger.load(folder / "flow.ledger").entries()) == 1 + 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('per = "slot"\n', "", "go together"),
        ('slot = "1h"', 'slot = "5h"', "whole number of slots"),
        ('start = "2020-10-01T00:00+09:00"', 'start = "2020-10-01T00:00"', "zone"),
        ('zone = "+09:00"', 'zone = "Asia/Tokyo"', "offset"),
        ('ledger = "flow.ledger"', "unmetered = true", "paid by a ledger"),
        ('delta = "1e-6"\ndays_off', "days_off", "delta"),
        ("parts/{date}T{hour}.csv", "parts/{date}.csv", "name the slot"),
        ("days_off = [2020-10-02]", 'off = ["Sunday"]', "not a day"),
    ],
)
def test_what_is_no_series(folder, old, new, words):
    (folder / "flow.toml").write_text(JOB.replace(old, new))
    from kasuri.job import serial

    with pytest.raises(ks.KasuriError, match=words):
        serial.begin(job.load(folder / "flow.toml"), folder)
    assert not (folder / "flow.ledger").exists() and not (folder / "flow").exists()


TABLE = 'database = "pings.duckdb"\ntable = "pings"\nwhere = ['
FROM, TO = '{ column = "t", op = ">=", value = "{start}" }', '{ column = "t", op = "<", value = "{end}" }'
OTHER = '{ column = "u", op = "<", value = "{end}" }'
QUERY = 'database = "pings.duckdb"\nquery = "SELECT * FROM pings'


@pytest.mark.parametrize(
    ("source", "fits"),
    [
        ('files = ["in/{date}T{hour}.csv"]', True),
        ('files = ["in/{start}.csv"]', True),
        ('files = ["in/all.csv"]', False),  # every slot would count every record
        ('files = ["in/{date}.csv"]', False),
        ('files = ["in/{date}T{hour}.csv", "in/all.csv"]', False),
        (f"{TABLE}{FROM}, {TO}]", True),
        (f"{TABLE}{FROM.replace('>=', '>')}, {TO.replace('<', '<=')}]", True),
        (TABLE + '{ column = "hour", op = "=", value = "{local_start}" }]', True),
        (TABLE + '{ column = "d", op = "=", value = "{date}" }, { column = "h", op = "=", value = "{hour}" }]', True),
        (TABLE + '{ column = "d", op = "=", value = "{date}" }]', False),
        ('database = "{date}T{hour}.duckdb"\ntable = "pings"', True),
        (f"{TABLE}]", False),
        (f"{TABLE}{FROM}]", False),  # and whatever came since
        (f"{TABLE}{FROM}, {TO.replace('<', '<=')}]", False),  # the moment between two slots in both
        (f"{TABLE}{FROM}, {OTHER}]", False),
        (f"{TABLE}{FROM}, {TO.replace('end', 'local_end')}]", False),  # of two clocks: hours of other slots
        (f"{QUERY} WHERE t >= '{{start}}' AND t < '{{local_end}}'\"", False),
        (f"{QUERY} WHERE t >= '{{start}}' AND t < '{{end}}'\"", True),
        (f"{QUERY} WHERE t >= '{{start}}' AND t <= '{{end}}'\"", False),  # the moment between two slots in both
        (f"{QUERY} WHERE '{{start}}'::timestamptz <= t AND '{{end}}'::timestamptz >= t\"", False),
        (f"{QUERY} WHERE t BETWEEN TIMESTAMP '{{local_start}}' AND TIMESTAMP '{{local_end}}'\"", False),
        (f"{QUERY} WHERE t > '{{start}}' AND t <= '{{end}}'\"", True),
        (f"{QUERY} WHERE hour = '{{local_start}}'\"", True),
        (f"{QUERY} WHERE t >= '{{start}}'\"", False),
        (f'{QUERY}"', False),
    ],
)
def test_rows_are_those_of_one_slot(folder, source, fits):
    (folder / "flow.toml").write_text(JOB.replace('files = ["in/{date}T{hour}.csv"]', source))
    from kasuri.job import serial

    work = job.load(folder / "flow.toml")
    if fits:
        serial.begin(work, folder)
    else:
        with pytest.raises(ks.DomainError, match="rows of one slot"):
            serial.begin(work, folder)
        assert not (folder / "flow.ledger").exists()


def test_two_runs_at_once(folder):
    """As where a timer overtakes the run before: both end well, every slot is drawn and exported once."""
    kasuri(folder, "open")
    command = [sys.executable, "-m", "kasuri", "series", "run", str(folder / "flow.toml"), "--until", LAST, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [run.communicate(timeout=300) for run in both]
    assert [run.returncode for run in both] == [0, 0], told
    drawn = [one["slot"] for out, _ in told for one in json.loads(out)["released"]]
    assert len(drawn) == len(set(drawn)) == 8
    import duckdb

    with duckdb.connect(str(folder / "maps.duckdb"), read_only=True) as base:
        assert base.execute("SELECT count(*), count(DISTINCT release_id) FROM release_meta").fetchone() == (8, 8)


def test_a_job_of_one_release_is_none(folder):
    with pytest.raises(ks.DomainError, match="series run"):
        job.rehearse(job.load(folder / "flow.toml"), folder)


def test_plan_of_a_window():
    words = [
        "ledger",
        "plan",
        "--window",
        "7d",
        "--slot",
        "1h",
        "--epsilon",
        "1",
        "--delta",
        "1e-9",
        "--cells",
        "32x32",
    ]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert found["noises"]["gaussian"]["chosen"] and not found["noises"]["laplace"]["chosen"]
    assert "price of a span" in CliRunner().invoke(app, words).stdout
