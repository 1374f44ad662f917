"""Acceptance criteria: judged before the data, bound to the charge, printed, verified; never judged on the counts."""

import json
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pyarrow.parquet as pq
import pytest
from contract.test_forgeries import edited
from contract.test_forgeries import saved as forge
from contract.test_job import run, template
from pyarrow import csv

import kasuri as ks
from kasuri.examples import KANTO
from kasuri.published.acceptance import Acceptance, Criterion, Verdict, by_form, fingerprint, wrong
from kasuri.study.accept import accept

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(16, 16)),
    maps=[ks.RegionMap("grid", np.arange(256) // 64, name="ward")],
)
PUBLIC = ks.PublicTable.from_dense(np.full((16, 16), 400), DOMAIN, name="census-2015")
FINE = Criterion(1, people=100, within="30 %", share="90 %")
WARDS = Criterion("ward", people=500, within="5 %", share="95 %")


def counts(data="census-2020"):
    rng = np.random.default_rng(1)
    return ks.Counts.from_dense(rng.integers(0, 300, DOMAIN.shape), DOMAIN, UNIT, data=data)


def test_the_closed_form_is_the_law_of_the_noise():
    """One cell under geometric noise: the share within reach, beside the exact law and beside simulated releases."""
    for epsilon, people, within in (("0.1", 100, "30 %"), ("0.5", 60, "10 %"), ("1", 39, "5 %"), ("3", 39, "5 %")):
        run_ = ks.geometric().on(DOMAIN, UNIT, epsilon)
        found = by_form(run_, Criterion(1, people=people, within=within, share="1"))
        reach = int(Fraction(within.rstrip(" %")) / 100 * (people + 1))
        a = float(np.exp(-float(Fraction(epsilon))))
        assert found <= 1 - 2 * a ** (reach + 1) / (1 + a) + 1e-4
        assert found >= 1 - 2 * a ** (reach + 1) / (1 + a) - 0.08
    wards = by_form(ks.geometric().on(DOMAIN, UNIT, "0.1"), WARDS)
    assert 0 < wards < 0.95
    sums = [  # wards of 512: just over the size
        ks.release(ks.Counts.from_dense(np.full((16, 16), 8), DOMAIN, UNIT, data="x"), ks.geometric(), epsilon="0.1",
                   ledger=None, source=ks.seeded(i)).to_dense().reshape(4, 64).sum(1)
        for i in range(300)
    ]  # fmt: skip
    assert np.mean(np.abs(np.array(sums) - 512) <= 25) == pytest.approx(wards, abs=0.05)


def test_judged_on_a_public_table_where_no_closed_form_is():
    with pytest.raises(ks.DomainError, match="name a public table"):
        accept([FINE], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1")
    found = accept([FINE, WARDS], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC, trials=4)
    assert [verdict.areas for verdict in found.verdicts] == [256, 4] and found.met
    assert found.public == ("census-2015", PUBLIC.fingerprint())
    again = accept([FINE, WARDS], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC, trials=4)
    assert again == found  # seeded: the same criteria are judged alike for ever
    worse = accept([FINE], ks.haar_topdown(), DOMAIN, UNIT, epsilon="0.01", public=PUBLIC, trials=4)
    assert not worse.met and "NOT MET" in worse.table()


def test_what_would_not_be_met_is_neither_released_nor_charged(tmp_path):
    ledger = ks.Ledger.open(tmp_path / "l", epsilon="1", unit=UNIT, data="census-2020")
    weak = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.01")
    with pytest.raises(ks.DomainError, match="nothing was charged"):
        ks.release(counts(), ks.geometric(), epsilon="0.01", ledger=ledger, acceptance=weak)
    good = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.1")
    for recipe, epsilon in ((ks.geometric(), "0.2"), (ks.privelet(), "0.1")):
        with pytest.raises(ks.DomainError, match="judged for another"):
            ks.release(counts(), recipe, epsilon=epsilon, ledger=ledger, acceptance=good)
    tried = accept([FINE], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC, trials=2)
    with pytest.raises(ks.PrivacyError, match="confidential"):
        ks.release(counts("census-2015"), ks.haar_topdown(), epsilon="1", ledger=None, acceptance=tried)
    assert ledger.balance().left == 1


@pytest.mark.parametrize(("areas", "people", "within", "share", "faults"), [
    (1, 0, "1.5", "0", 3), (True, 5, 0.05, "95 %", 2), ("a\nb", 5, "5 %", "101 %", 2), ("ward", 2.0, "-5 %", "nan", 3),
])  # fmt: skip
def test_bad_criteria_are_refused_with_every_fault(areas, people, within, share, faults):
    with pytest.raises(ks.DomainError) as refused:
        Criterion(areas, people=people, within=within, share=share)
    assert len(refused.value.faults) == faults


def test_bad_calls_are_refused():
    with pytest.raises(ks.PrivacyError, match="never judged on Counts"):
        accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="1", public=counts())
    other = ks.Domain.of(ks.Ordered("age", 4))
    strange = ks.PublicTable.from_dense([1, 2, 3, 4], other, name="p")
    with pytest.raises(ks.DomainError) as refused:
        accept([], "geometric", DOMAIN, UNIT, epsilon="1", public=strange, trials=1)
    assert len(refused.value.faults) == 4
    unknown = [Criterion("ocean", people=5, within="5 %", share="95 %"), Criterion(7, people=5, within="1", share="1")]
    with pytest.raises(ks.DomainError) as refused:
        accept(unknown, ks.geometric(), DOMAIN, UNIT, epsilon="1")
    assert len(refused.value.faults) == 2
    huge = Criterion(1, people=10**6, within="5 %", share="95 %")
    with pytest.raises(ks.DomainError, match="no area of the public table"):
        accept([huge], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC)


def saved(folder, acceptance, epsilon="1", recipe=None):
    ledger = ks.Ledger.open(folder / "l", epsilon="5", unit=UNIT, data="census-2020")
    out = ks.release(counts(), recipe or ks.haar_topdown(), epsilon=epsilon, ledger=ledger, acceptance=acceptance)
    out.save(folder / "out")
    return folder / "out"


def test_it_is_printed_bound_to_the_charge_and_verified(tmp_path, monkeypatch):
    judged = accept([FINE, WARDS], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC, trials=4)
    folder = saved(tmp_path, judged)
    found = ks.verify(folder, ledger=tmp_path / "l")
    assert found.ok and any("public table it was judged on" in note for note in found.not_recomputed)
    assert "95 % of ward over 500 within 5 %" in (folder / "certificate.md").read_text()
    assert "受け入れ基準" in (folder / "certificate.ja.md").read_text()
    manifest = json.loads((folder / "datapackage.json").read_text())
    plain = ks.haar_topdown().plan(DOMAIN, UNIT, "1")
    assert manifest["privacy"]["implementation"]["configuration_hash"] != plain
    assert ks.Release.load(folder).provenance["acceptance"] == manifest["privacy"]["acceptance"]
    monkeypatch.setattr("kasuri.manifest.recompute._versions", lambda: {"kasuri": "another"})
    assert "acceptance: made by another version of kasuri" in ks.verify(folder).not_recomputed  # silence would vouch


def forged(said, change):
    first = said["criteria"][0]
    if change == "removed":
        return None
    if change == "added":
        return said | {"criteria": [first, first | {"areas": 4, "found": 0.9}]}
    told = {"looser": {"share": "0.5"}, "better": {"found": 0.9999}, "unmet": {"share": "0.9999", "met": False}}
    told["a digit better"] = {"found": round(first["found"] + 1e-4, 4)}
    return said | {"criteria": [first | told[change]]}


@pytest.mark.parametrize("change", ["looser", "better", "a digit better", "unmet", "added", "removed"])
def test_an_altered_criterion_is_found_though_every_hash_is_made_again(tmp_path, change):
    """What the forger cannot write is the ledger's entry, nor what the closed form gives."""
    judged = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.1")
    ledger = ks.Ledger.open(tmp_path / "l", epsilon="5", unit=UNIT, data="census-2020")
    out = ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=ledger, acceptance=judged)
    out.save(tmp_path / "out")
    assert ks.verify(tmp_path / "out", ledger=tmp_path / "l").ok
    said = forged(out.provenance["acceptance"], change)
    told = {name: value for name, value in out.provenance.items() if name != "acceptance"}
    told |= {"plan": fingerprint(ks.geometric().plan(DOMAIN, UNIT, "0.1"), said)}
    told |= {} if said is None else {"acceptance": said}
    path = forge(tmp_path / "forged", replace(out, provenance=MappingProxyType(told)))
    faults = ks.verify(path, ledger=tmp_path / "l").faults
    assert any("paid for another recipe" in fault for fault in faults), faults
    if change in ("better", "a digit better", "unmet", "added"):
        assert any("acceptance: " in fault for fault in faults), faults


def test_the_hash_that_an_altered_criterion_leaves_behind_is_found(tmp_path):
    folder = saved(tmp_path, accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.1"), "0.1", ks.geometric())

    def loosened(manifest):
        manifest["privacy"]["acceptance"]["criteria"][0]["share"] = "0.5"

    assert edited(folder, loosened) == ["release_meta.parquet: does not say what the manifest says"]
    assert wrong({"criteria": "none"}, ks.geometric().on(DOMAIN, UNIT, "1"))[0]


def told(said, **change):
    """What a manifest tells, with other words in its first criterion (those that are a part of it) or beside them."""
    said = json.loads(json.dumps(said))
    own = {name: change.pop(name) for name in list(change) if name in said["criteria"][0]}
    return said | {"criteria": [said["criteria"][0] | own]} | change


def test_figures_that_nobody_judged_are_refuted_though_every_hash_and_the_charge_are_theirs():
    """Who writes them before the charge has a ledger entry that fits: figures alone must refute them."""
    form, tree = ks.geometric().on(DOMAIN, UNIT, "0.02"), ks.haar_topdown().on(DOMAIN, UNIT, "1")
    missed = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.02").to_json()
    tried = accept([FINE], ks.haar_topdown(), DOMAIN, UNIT, epsilon="1", public=PUBLIC, trials=2).to_json()
    assert not missed["criteria"][0]["met"] and wrong(told(tried), tree)[0] == []
    found = missed["criteria"][0]["found"]
    elsewhere = {name: tried[name] for name in ("basis", "public", "trials")}
    for run_, said in (
        (form, told(missed, margin=found - 1, met=True)),  # "less -70 % for the simulation"
        (form, told(missed, found=1.0, met=True, judged=256, **elsewhere)),  # a simulation where a form is known
        (tree, told(tried, margin=-1.0)),
        (tree, told(tried, found=7.0)),
        (tree, told(tried, judged=0)),
        (tree, told(tried, basis="audited")),
        (tree, told(tried, trials=0, basis=tried["basis"].replace("2 releases", "0 releases"))),
        (tree, told(tried, more="than is told")),
        (tree, told(tried, criteria=[], public=None, trials=0, basis="closed form")),
    ):
        assert wrong(said, run_)[0], said
    for build in (lambda: Verdict(FINE, 0.3, -0.7), lambda: Verdict(FINE, 0.3, -0.7, 10), lambda: Acceptance((), "p")):
        with pytest.raises(ks.DomainError):
            build()


def test_figures_are_compared_to_the_letter():
    """1, 1.0 and true are equal numbers, and print otherwise."""
    judged = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="10")
    run = ks.geometric().on(DOMAIN, UNIT, 10)
    said = judged.to_json()
    assert wrong(said, run)[0] == []
    for name, value in (("margin", 0), ("margin", False), ("found", 1), ("met", 1)):
        first = said["criteria"][0]
        assert wrong(said | {"criteria": [first | {name: value}]}, run)[0], (name, value)


def test_a_release_does_not_depend_on_being_judged():
    judged = accept([FINE], ks.geometric(), DOMAIN, UNIT, epsilon="0.1")
    one, other = (
        ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=None, source=ks.seeded(3), acceptance=said)
        for said in (judged, None)
    )
    assert (one.to_dense() == other.to_dense()).all()


def test_a_margin_counts_against_the_release():
    told = Acceptance((Verdict(FINE, 0.91, 0.02, 10),), "p", ("census-2015", "d"), 4)
    assert not told.met and Verdict(FINE, 0.92, 0.02, 10).met


def test_in_a_job(tmp_path):
    path = template(tmp_path)
    asked = """
[acceptance]
trials = 2
on = { public = "census-2015", file = "earlier.npy" }
[[acceptance.criteria]]
areas = 16
people = 1000
within = "20 %"
share = "90 %"
"""
    path.write_text(path.read_text() + asked)
    text = pq.read_table(KANTO)
    csv.write_csv(text, tmp_path / "census.csv")
    np.save(tmp_path / "earlier.npy", np.full((512, 512), 100))
    assert "met      90 % of areas of 16 cells" in run("plan", path, "--no-simulate").output
    assert "90 % of areas of 16 cells" in run("release", path, "--dry-run").output
    path.write_text(path.read_text().replace('"20 %"', '"0.1 %"'))
    assert "NOT MET" in run("plan", path, "--no-simulate").output
    assert "would not meet" in run("check", path, code=1).output
    assert "would not meet" in str(run("release", path, code=1).exception)
    assert not (tmp_path / "release").exists()
    path.write_text(path.read_text().replace("earlier.npy", "census.csv").replace('"0.1 %"', "0.001"))
    faults = run("check", path, code=1).output
    assert "exact decimal in quotes" in faults
    path.write_text(path.read_text().replace("0.001", '"0.001"'))
    assert "is the confidential file itself" in str(run("release", path, code=1).exception)
