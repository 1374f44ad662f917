"""kasuri demo local, shuffle and kanon: each runs whole, ends in a report, and says what it promises."""

import json

import pytest
from typer.testing import CliRunner

from kasuri.cli import app, demos


def run(*words):
    result = CliRunner().invoke(app, ["demo", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(demos, "DEVICES", 200)
    monkeypatch.setattr(demos, "PEOPLE", 6000)
    monkeypatch.chdir(tmp_path)


def test_a_crowd_reports_to_a_real_collector(tmp_path):
    told = json.loads(run("local", "--json"))
    assert told["reports"] == 200 and told["converged"] and told["guarantee"]["epsilon"] == "2"
    assert "<!doctype html>" in (tmp_path / "kasuri-demo-local" / "report.html").read_text(encoding="utf-8")
    assert told["held"] >= 4, "95 % intervals: fewer than half of eight hold about once in 10^4 runs"


def test_two_folders_join(tmp_path):
    told = json.loads(run("shuffle", "--json"))
    assert told["rows"] == 4000
    for side in ("phone-company", "shop"):
        assert not (tmp_path / "kasuri-demo-shuffle" / side / "once.key").exists(), "the one-time key is destroyed"
    text = (tmp_path / "kasuri-demo-shuffle" / "report.html").read_text(encoding="utf-8")
    assert "epsilon" in text and "090" not in told["report"]


def test_adult_is_anonymised_and_audited(tmp_path):
    said = run("kanon")
    assert "CONFIDENTIAL" in said and "not differential privacy" in said
    assert (tmp_path / "kasuri-demo-kanon" / "anonymous.csv").exists()
    assert CliRunner().invoke(app, ["demo", "kanon", "--epsilon", "1"]).exit_code == 2
    assert CliRunner().invoke(app, ["demo", "central"]).exit_code == 2
