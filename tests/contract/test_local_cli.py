"""kasuri local as a user meets it, and the reproduction of Table A.5."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from collector.asgi import free_port
from typer.testing import CliRunner

import kasuri as ks
from kasuri.cli import app as kasuri_app
from kasuri.reproduce import horigome2020


def run(*words, code=0):
    done = CliRunner().invoke(kasuri_app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done


def test_the_operator_chooses_memoised_or_numbers(tmp_path):
    rr, people, reports, out = (tmp_path / name for name in ("rr.json", "people.csv", "reports.parquet", "out.csv"))
    base = ("local", "plan", "--users", 4000, "--epsilon", "3")
    kept = (*base, "--labels", "a,b,c", "--randomizer", "memoised", "--v-max", 3, "--epsilon-instant", "2")
    once, often = (json.loads(run(*kept, "--reports", n, "--save", rr, "--json").output)["options"] for n in (1, 16))
    made = ks.local.from_json(json.loads(rr.read_text()))
    assert made.kind == "memoised" and made.epsilon == 1 and made.guarantee(reports=16).epsilon == 3
    assert often[0]["standard_error"] == pytest.approx(4 * once[0]["standard_error"]), "copies are not new evidence"
    for bad in (kept[:-2], (*kept, "--no-elsewhere"), (*base, "--labels", "a,b", "--v-max", 2),
                (*base, "--bounds", "0,9", "--v-max", 2), (*base, "--bounds", "0,9", "--randomizer", "oue"),
                (*base, "--bounds", "9,0"), (*base, "--bounds", "0"), (*base, "--bounds", "x,y"),
                (*base, "--labels", "a,b", "--randomizer", "piecewise")):  # fmt: skip
        assert CliRunner().invoke(kasuri_app, [str(word) for word in bad]).exit_code != 0, bad
    numbers = np.random.default_rng(5).uniform(20, 60, 4000)
    people.write_text("\n".join(["age", *map(str, numbers)]))
    compared = json.loads(run(*base, "--bounds", "0,100", "--json").output)["options"]
    assert {one["kind"] for one in compared} == {"hybrid", "piecewise", "square_wave", "two_point"}
    for kind in ("hybrid", "piecewise", "square_wave", "two_point"):
        run(*base, "--bounds", "0,100", "--randomizer", kind, "--save", rr)
        run("local", "randomize", people, "--column", "age", "--randomizer", rr, "--out", reports)
        told = json.loads(run("local", "estimate", reports, "--out", out, "--json").output)
        assert abs(told["mean"]["value"] - numbers.mean()) < 5 * told["mean"]["standard_error"]
        worst = next(one for one in compared if one["kind"] == kind)["standard_error"]
        assert told["mean"]["standard_error"] < 1.3 * worst, "what was planned is what comes"
        with out.open() as file:
            assert abs(sum(float(row["people"]) for row in csv.DictReader(file)) - 4000) < 1
    assert "mean" in run("local", "estimate", reports).output
    run("local", "estimate", reports, "--neighbours", 3, code=2)


def test_plan_randomize_estimate(tmp_path):
    rr, people, reports, out = (tmp_path / name for name in ("rr.json", "people.csv", "reports.parquet", "out.csv"))
    done = run("local", "plan", "--users", 5000, "--epsilon", "2", "--labels", "a,b,c", "--save", rr, "--json")
    assert json.loads(done.output)["options"][0]["kind"] == "grr"
    values = ["a"] * 3000 + ["b"] * 1500 + ["elsewhere"] * 500
    people.write_text("\n".join(["id,place", *(f"{i},{v}" for i, v in enumerate(values))]))
    done = run("local", "randomize", people, "--column", "place", "--randomizer", rr, "--out", reports)
    assert "5000 reports" in done.output and "epsilon 2" in done.output
    done = run("local", "estimate", reports, "--out", out, "--json")
    found = json.loads(done.output)
    assert found["converged"] and abs(found["counts"][0] - 3000) < 300
    with out.open() as file:
        assert [row["category"] for row in csv.DictReader(file)] == ["a", "b", "c", "elsewhere"]
    assert "converged" in run("local", "estimate", reports, "--prior", 50).output


def test_usage_and_content_faults(tmp_path):
    run("local", "plan", "--users", 10, "--epsilon", "1", code=2)
    run("local", "plan", "--users", 10, "--epsilon", "1", "--mesh", "3y3", code=2)
    people, rr = tmp_path / "p.csv", tmp_path / "rr.json"
    rr.write_text(json.dumps(ks.local.grr(ks.Nominal("p", labels=("a", "b")), epsilon="1").to_json()))
    people.write_text("id,place\n1,Atlantis\n")
    done = run("local", "randomize", people, "--column", "place", "--randomizer", rr, "--out", tmp_path / "r", code=1)
    assert isinstance(done.exception, ks.DomainError) and "Atlantis" not in str(done.exception)
    done = run("local", "estimate", people, code=1)
    assert isinstance(done.exception, ks.FormatError)
    rr.write_text("{")
    done = run("local", "randomize", people, "--column", "place", "--randomizer", rr, "--out", tmp_path / "r", code=1)
    assert isinstance(done.exception, ks.FormatError)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_numerals_is_a_column_of_labels(tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rr, people, reports = tmp_path / "rr.json", tmp_path / f"p.{kind}", tmp_path / "r.parquet"
    rr.write_text(json.dumps(ks.local.grr(ks.Nominal("p", labels=("1", "2", "3")), epsilon="20").to_json()))
    values = [1] * 50 + [2] * 30 + [3] * 20
    if kind == "csv":
        people.write_text("\n".join(["place", *map(str, values)]))
    else:
        pq.write_table(pa.table({"place": values}), people)
    run("local", "randomize", people, "--column", "place", "--randomizer", rr, "--out", reports)
    found = json.loads(run("local", "estimate", reports, "--json").output)
    assert np.rint(found["counts"]).tolist() == [50, 30, 20, 0]  # e^-20: no report lies


def test_an_estimate_of_a_round_claims_all_its_reports(tmp_path):
    randomizer = ks.local.unary(ks.Nominal("p", labels=("a", "b")), epsilon="1")
    rounded = ks.local.Round.new(randomizer, closes=2_000_000_000, reports_per_device=6)
    ks.local.write_reports(tmp_path / "r.parquet", randomizer.randomize(["a"] * 30), rounded)
    found = json.loads(run("local", "estimate", tmp_path / "r.parquet", "--json").output)
    assert found["guarantee"]["epsilon"] == "6"
    done = run("local", "estimate", tmp_path / "none.parquet", code=1)
    assert isinstance(done.exception, ks.FormatError) and "no such file" in str(done.exception)


def test_serve(tmp_path):
    pytest.importorskip("uvicorn", reason="the collector needs kasuri[serve]")
    rr, port = tmp_path / "rr.json", free_port()
    rr.write_text(json.dumps(ks.local.unary(ks.Nominal("p", labels=("a", "b")), epsilon="1").to_json()))
    command = [sys.executable, "-m", "kasuri", "local", "serve", str(tmp_path / "c"), "--port", str(port)]
    refused = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "KASURI_OPERATOR_TOKEN": "x"})
    assert refused.returncode == 1 and "KASURI_OPERATOR_TOKEN" in refused.stderr
    process = subprocess.Popen(
        [*command, "--randomizer", str(rr), "--json"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "KASURI_OPERATOR_TOKEN": "x" * 16, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        told = ""
        while not told.endswith("}\n"):
            told += process.stdout.readline()
        told = json.loads(told)
        for _ in range(200):
            try:
                with urllib.request.urlopen(f"{told['url']}/rounds/{told['round']}") as answer:
                    envelope = json.loads(answer.read())
                break
            except OSError:
                time.sleep(0.05)
        device = ks.local.Device(told["public_key"], max_epsilon="1")
        assert ks.local.send(f"{told['url']}/rounds/{told['round']}/reports", device.report(envelope, "a")) == 1
        again = ks.local.Device(told["public_key"], max_epsilon="1").report(envelope, None)
        assert ks.local.send(f"{told['url']}/rounds/{told['round']}/reports", again) == 1
        assert ks.local.send(f"{told['url']}/rounds/{told['round']}/reports", again) == 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_table_a5():
    """Within 10 % of what was measured for this table (PRINTED is the thesis, within 15 %), EM below inversion."""
    result = horigome2020.run(2)
    measured = result["measured"]
    for column, expected in (("inversion", (4541, 1127, 367)), ("em", (3191, 1032, 285))):
        for epsilon, value in zip(("0.5", "2", "5"), expected, strict=True):
            assert measured[column][result["epsilons"].index(epsilon)] == pytest.approx(value, rel=0.10)
        assert measured[column] == pytest.approx(result["printed"][column], rel=0.15)
    assert all(em < plain for em, plain in zip(measured["em"], measured["inversion"], strict=True))
    assert result["correlation"]["measured"]["em"] > 0.7 > result["correlation"]["measured"]["inversion"] > -0.3
    assert "thesis" in horigome2020.text(result)


def test_ward_figure(tmp_path):
    recorded = Path(__file__).parents[2] / "docs" / "papers.json"
    result = json.loads(recorded.read_text(encoding="utf-8"))["horigome2020"]
    horigome2020.figure(result, tmp_path / "wards.png")
    assert (tmp_path / "wards.png").stat().st_size > 20_000
    assert np.sum(result["maps"]["truth"]) == 4793


def test_the_claim_of_a_round_stands_beside_the_local_one(tmp_path):
    """A file of reports without tokens gets no shuffle-model claim; one with them gets both."""
    from kasuri import local

    rr = local.grr(ks.Nominal("w", labels=("a", "b")), epsilon="1")
    reports = rr.randomize(["a"] * 3000 + ["b"] * 1000)
    for tokens, closes in ((False, 1), (True, 1), ("open", (1 << 40) - 1)):
        made = local.Round.new(rr, closes=closes, tokens=bool(tokens))
        local.write_reports(tmp_path / f"{tokens}.parquet", reports, made)
    early = run("local", "estimate", tmp_path / "open.parquet", "--delta", "1e-8", code=1)
    assert "before the round closes" in str(early.exception) + early.output
    refused = run("local", "estimate", tmp_path / "False.parquet", "--delta", "1e-8", code=1)
    assert "one-round tokens" in str(refused.exception) + refused.output
    told = json.loads(run("local", "estimate", tmp_path / "True.parquet", "--delta", "1e-8", "--json").output)
    assert float(told["central"]["epsilon"]) < 0.5 and told["guarantee"]["epsilon"] == "1"
    assert "never instead" in run("local", "estimate", tmp_path / "True.parquet", "--delta", "1e-8").output
