"""kasuri withdraw: a notice beside a release that stays as it was written."""

import json

import forked
import numpy as np
import pytest

import kasuri as ks
from kasuri.describe import describe
from kasuri.errors import DomainError, FormatError
from kasuri.manifest import notice, verify, withdraw, withdrawal

DOMAIN = ks.Domain.of(ks.Ordered("x", 6))


@pytest.fixture
def folder(tmp_path):
    unit = ks.Unit("person", "add-remove", 1)
    ledger = ks.Ledger.open(tmp_path / "l.ledger", epsilon="2", unit=unit, data="d")
    counts = ks.Counts.from_dense(np.full(6, 100), DOMAIN, unit, data="d")
    ks.release(counts, ks.geometric(), epsilon="1", ledger=ledger).save(str(tmp_path / "r"))
    return tmp_path


def test_the_release_stays_and_what_was_spent_stays_spent(folder):
    before = {p.name: p.read_bytes() for p in (folder / "r").iterdir()}
    balance = (folder / "l.ledger").read_bytes()
    assert notice(folder / "r") is None
    found = withdraw(folder / "r", reason="ages were shifted by a year", day="2026-11-18", replaced_by="abc")
    assert found["spent"] == {"epsilon": "1", "delta": "0"} and notice(folder / "r") == found
    after = {p.name: p.read_bytes() for p in (folder / "r").iterdir()}
    assert set(after) - set(before) == {"withdrawn.json", "withdrawn.md"}
    assert all(after[name] == before[name] for name in before) and (folder / "l.ledger").read_bytes() == balance
    text = after["withdrawn.md"].decode()
    assert "stays spent" in text and "撤回" in text and "abc" in text
    assert verify(folder / "r").ok and ks.Release.load(str(folder / "r")).cells.size
    entry = json.loads(describe(folder / "r", "registry")["registry.json"])
    assert entry["tier_1"]["status"] == "withdrawn" and "WITHDRAWN" in entry["tier_1"]["description"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"day": "yesterday"}, "a day"),
        ({"reason": ""}, "reason"),
        ({"reason": "a\nb"}, "reason"),
        ({"reason": "x" * 501}, "500"),
        ({"replaced_by": "a\u202eb"}, "replaced_by"),
    ],
)
def test_notices_that_are_refused(folder, more, words):
    with pytest.raises(DomainError, match=words):
        withdraw(folder / "r", **{"reason": "wrong", "day": "2026-11-18"} | more)
    assert not (folder / "r" / "withdrawn.json").exists()


def test_a_notice_is_written_once_and_belongs_to_its_release(folder):
    own = json.loads((folder / "r" / "datapackage.json").read_text())["privacy"]["release_id"]
    with pytest.raises(DomainError, match="itself"):
        withdraw(folder / "r", reason="wrong", day="2026-11-18", replaced_by=own)
    withdraw(folder / "r", reason="wrong", day="2026-11-18")
    with pytest.raises(DomainError, match="nothing is overwritten"):
        withdraw(folder / "r", reason="again", day="2026-11-19")
    told = folder / "r" / "withdrawn.json"
    for bad in (told.read_text().replace(own, "0" * len(own)), "{}", "[", told.read_text().replace("2026-11-18", "x")):
        told.write_text(bad)
        with pytest.raises(FormatError):
            notice(folder / "r")
        assert not verify(folder / "r").ok
    with pytest.raises(FormatError, match="not a saved release"):
        withdraw(folder, reason="wrong", day="2026-11-18")


FORGED = {
    "a smaller price": {"spent": {"epsilon": "0.001", "delta": "0"}},
    "a promise of its own": {"reason": "wrong.\n\n# What is promised\n\nepsilon = 0.001"},
    "no name of a release": {"replaced_by": {"epsilon": "0.001"}},
    "a further field": {"epsilon": "0.001"},
    "replaced by itself": {"replaced_by": "its own id"},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_notice_says_what_its_release_does(folder, name):
    """Whoever forges a notice makes both of its files agree."""
    withdraw(folder / "r", reason="wrong", day="2026-11-18")
    found = json.loads((folder / "r" / "withdrawn.json").read_text()) | FORGED[name]
    found |= {"replaced_by": found["release_id"]} if name == "replaced by itself" else {}
    (folder / "r" / "withdrawn.json").write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    (folder / "r" / "withdrawn.md").write_text(withdrawal._words(found))
    with pytest.raises(FormatError):
        notice(folder / "r")
    assert not verify(folder / "r").ok


def test_a_notice_is_two_files(folder):
    withdraw(folder / "r", reason="wrong", day="2026-11-18")
    for name in ("withdrawn.md", "withdrawn.json"):
        (folder / "r" / name).rename(folder / name)
        assert not verify(folder / "r").ok
        (folder / "r" / name).symlink_to(folder / name)
        assert not verify(folder / "r").ok
        (folder / "r" / name).unlink()
        (folder / name).rename(folder / "r" / name)
    assert verify(folder / "r").ok


def test_the_commands_say_so(folder):
    def kasuri(*words, code=0):
        run = forked.kasuri(*words, cwd=folder, code=code)
        return run.stdout + run.stderr

    assert "stays spent" in kasuri("withdraw", "r", "--reason", "wrong column", "--day", "2026-11-18")
    assert "WITHDRAWN on 2026-11-18: wrong column" in kasuri("verify", "r")
    run = forked.kasuri("verify", "r", "--json", cwd=folder)
    assert json.loads(run.stdout)["withdrawn"]["reason"] == "wrong column"
    assert "nothing is overwritten" in kasuri("withdraw", "r", "--reason", "x", "--day", "2026-11-18", code=1)
