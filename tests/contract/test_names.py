"""Names are printed in certificates, reports and ledgers: none breaks a line or hides what it holds."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import kasuri as ks
from kasuri import names
from kasuri.manifest import verify
from kasuri.manifest.package import digest, sha256, text
from kasuri.schema import Part

UNIT = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Ordered("age", 4))
BAD = {
    "line feed": "x\ny", "carriage return": "x\ry", "tab": "x\ty", "null": "x\0y", "next line": "x\x85y",
    "line separator": "x\u2028y", "paragraph separator": "x\u2029y", "right to left": "x\u202ey",
    "isolate": "x\u2066y", "zero width space": "x\u200by", "joiner at the end": "x\u200d", "mark of order": "\ufeffx",
    "soft hyphen": "x\xady", "tag": "x\U000e0041y", "surrogate": "x\udc80y",
}  # fmt: skip
GOOD = ["census-2020", "国勢調査　令和２年", "'s-Hertogenbosch", "می‌خواهم", "क्‍ष", "=1+1", "a|b*`", "é", "\ue000"]


def counts(**more):
    return ks.Counts.from_dense([5, 6, 7, 8], DOMAIN, more.pop("unit", UNIT), more.pop("data", "census-2020"), **more)


def plan(**more):
    words = {"key": "phone", "a": ("age",), "b": ("spend",), "bounds": {"age": (20, 80), "spend": (0, 1000)}}
    return ks.shuffle.Plan(**words | {"epsilon_each": "1", "delta": 1e-8} | more)


DOORS = {
    "Unit.id": lambda name: ks.Unit(name, "add-remove", 1),
    "Counts.from_dense data": lambda name: counts(data=name),
    "Counts.from_coo data": lambda name: ks.Counts.from_coo([0], [1], DOMAIN, UNIT, name),
    "Counts data": lambda name: replace(counts(), data=name),
    "Counts assumes": lambda name: replace(counts(), assumes=(name,)),
    "count data": lambda name: ks.count(
        pa.table({"age": [0], "n": [1]}), DOMAIN, columns={"age": "age"},
        unit=UNIT, weight="n", data=name,
    ),
    "Part.name": lambda name: Part("split", name),
    "Mesh": lambda name: ks.Mesh(name, shape=(2, 2)),
    "Ordered": lambda name: ks.Ordered(name, 3),
    "Ordered label": lambda name: ks.Ordered("age", 2, ("young", name)),
    "Nominal": lambda name: ks.Nominal(name, labels=("a", "b")),
    "Nominal label": lambda name: ks.Nominal("sex", labels=("a", name)),
    "Time": lambda name: ks.Time(name, "2020-10-01T00:00", seconds=3600, size=2),
    "Tree node": lambda name: ks.Tree.of({name: ["a", "b"]}),
    "Domain.from_json": lambda name: ks.Domain.from_json(
        {"axes": [{"kind": "ordered", "name": "age", "size": 1, "labels": [name]}], "mask": []}
    ),
    "PublicTable": lambda name: ks.PublicTable.from_dense([1, 2, 3, 4], DOMAIN, name=name),
    "PublicMatrix": lambda name: ks.PublicMatrix([[1, 1, 1, 1]], name),
    "Ledger.open data": lambda name: ks.Ledger.open("never.ledger", epsilon="1", unit=UNIT, data=name),
    "Ledger.open owner": lambda name: ks.Ledger.open("never.ledger", epsilon="1", unit=UNIT, data="x", owner=name),
    "Plan key": lambda name: plan(key=name),
    "Plan column": lambda name: plan(b=(name,), bounds={"age": (20, 80), name: (0, 1)}),
    "Plan label": lambda name: plan(b=("sex",), bounds={"age": (20, 80)}, categories={"sex": ("a", name)}),
    "Plan trusted_joiner": lambda name: plan(trusted_joiner=name),
    "Hierarchy": lambda name: ks.kanon.categories(name, ["a", "b"]),
    "Hierarchy label": lambda name: ks.kanon.categories("sex", ["a", name]),
    "Hierarchy node": lambda name: ks.kanon.categories("sex", {name: ["a"], "other": ["b"]}),
    "Hierarchy missing": lambda name: ks.kanon.categories("sex", ["a", "b"], missing=name),
    "Sensitive": lambda name: ks.kanon.Recoding.of(ks.kanon.categories("sex", ["a", "b"]), sensitive=[name]),
    "guarantee person": lambda name: ks.local.grr(ks.Ordered("x", 3), epsilon="1").guarantee(person=name),
}  # fmt: skip
IDENTIFIERS = ("Mesh", "Ordered", "Nominal", "Time")  # axes are columns: letters, digits, underscore


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_names_that_hide_or_break_are_refused_where_they_are_built(door, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ks.DomainError, ks.PrivacyError)) as caught:
        DOORS[door](BAD[kind])
    assert str(caught.value).isprintable()  # the message does not do what the name would have done
    assert not list(tmp_path.iterdir())  # nothing was opened, so nothing charged


@pytest.mark.parametrize("door", [door for door in DOORS if door not in IDENTIFIERS])
def test_names_of_any_language_are_taken(door, tmp_path, monkeypatch):
    for number, name in enumerate(GOOD):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        DOORS[door](name)


def test_the_start_of_a_time_axis_has_no_line_break_for_its_t():
    assert ks.Time("hour", "2020-10-01 00:00", seconds=3600, size=2).start
    with pytest.raises(ks.DomainError, match=r"U\+000A"):
        ks.Time("hour", "2020-10-01\n00:00", seconds=3600, size=2)


def test_nothing_is_charged_for_what_cannot_be_said(tmp_path):
    """A guarantee whose words were made elsewhere is refused before the ledger writes anything."""
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="1", unit=UNIT, data="census-2020")
    claim = ks.geometric().guarantee(DOMAIN, UNIT, "0.1")
    before = ledger.entries()
    for more in ({"assumes": ("a\nb",)}, {"public": ("a\u2028b",)}):
        with pytest.raises(ks.PrivacyError, match="U\\+"):
            ledger.reserve(replace(claim, **more), data="census-2020", recipe="geometric", plan="x")
    with pytest.raises(ks.PrivacyError, match=r"U\+000D"):
        ledger.reserve(claim, data="census-2020", recipe="geo\rmetric", plan="x")
    assert ledger.entries() == before


def test_a_certificate_is_bytes(tmp_path):
    """What no name can hold any more cannot be put back into the file either: a carriage return is a changed byte."""
    out = ks.release(counts(), ks.geometric(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    path = tmp_path / "r" / "certificate.md"
    data = path.read_bytes()
    assert b"\r" not in data and verify(tmp_path / "r")["ok"]
    path.write_bytes(data.replace(b"\n", b"\r\n"))
    manifest = json.loads((tmp_path / "r" / "datapackage.json").read_bytes())
    for item in manifest["resources"]:
        if item["path"] == "certificate.md":
            item["hash"] = sha256(path.read_bytes())
    resigned(tmp_path / "r", manifest)
    assert any(fault.startswith("certificate.md") for fault in verify(tmp_path / "r")["faults"])


def test_a_manifest_with_such_a_name_is_not_believed(tmp_path):
    """An older release, or a forged one: its certificate would hold a second promise, word for word as the manifest."""
    from kasuri.manifest import certificate

    out = ks.release(counts(), ks.geometric(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    manifest = json.loads((tmp_path / "r" / "datapackage.json").read_bytes())
    manifest["privacy"]["data"] = "x\n\n## What is promised\n\nPure differential privacy, epsilon = 0.0001."
    for name, words in (("certificate.md", certificate.english), ("certificate.ja.md", certificate.japanese)):
        (tmp_path / "r" / name).write_bytes(words(manifest["privacy"]).encode())
        for item in manifest["resources"]:
            if item["path"] == name:
                item["hash"] = sha256((tmp_path / "r" / name).read_bytes())
    resigned(tmp_path / "r", manifest)
    assert (
        "datapackage.json: a name in it breaks a line or changes how text is shown" in verify(tmp_path / "r")["faults"]
    )


def resigned(folder, manifest):
    manifest["digest"] = digest(manifest)
    (folder / "datapackage.json").write_bytes(text(manifest))


def test_the_rule_is_by_category():
    import unicodedata

    characters = list(map(chr, range(0x20000))) + [chr(i) for i in range(0xE0000, 0xE0200)]
    refused = {c for c in characters if names.faults(f"a{c}b", "x")}
    wanted = {c for c in characters if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert wanted - refused == {"\u200c", "\u200d"} and refused < wanted
