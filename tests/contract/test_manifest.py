"""A saved release: its manifest, its certificates, its signature, and what `verify` finds."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import kasuri as ks
from kasuri.manifest import keygen, tables
from kasuri.manifest.package import digest, sha256, text

UNIT = ks.Unit("person", "add-remove", 1)
SEA = np.zeros((8, 8), dtype=bool)
SEA[:2, 5:] = True
DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(8, 8)),
    ks.Nominal("sex", ("female", "male")),
    mask={"grid": SEA},
)


def counts(data="census-2020"):
    values = np.random.default_rng(1).integers(0, 40, (8, 8, 2))
    values[SEA] = 0
    return ks.Counts.from_dense(values, DOMAIN, UNIT, data=data)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a key pair, a ledger and a signed release that the ledger paid for."""
    place = tmp_path_factory.mktemp("made")
    keygen(place / "office.key")
    ledger = ks.Ledger.open(place / "census.ledger", epsilon="1", unit=UNIT, data="census-2020")
    out = ks.release(counts(), ks.haar_topdown(), epsilon="0.1", ledger=ledger, threads=1)
    out.save(str(place / "release"), sign=str(place / "office.key"))
    return place


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def check(place: Path, **more):
    return ks.verify(place / "release", key=place / "office.key.pub", **more)


def manifest(place: Path):
    return json.loads((place / "release" / "datapackage.json").read_text(encoding="utf-8"))


def rewrite(place: Path, data: dict) -> None:
    """A forger's manifest: every hash and the digest are right again; only the signature is not."""
    for item in data["resources"]:
        item["hash"] = sha256((place / "release" / item["path"]).read_bytes())
    data["digest"] = digest(data)
    (place / "release" / "datapackage.json").write_bytes(text(data))


def test_a_release_verifies(made):
    result = check(made, ledger=made / "census.ledger")
    assert result["ok"], result["faults"]
    assert result["signature"] == "good" and result["ledger"] == "paid by entry 2 of 3"
    unsure = ks.verify(made / "release")
    assert unsure["ok"] and "nobody vouched" in unsure["signature"]


def test_frictionless_accepts_it(made):
    frictionless = pytest.importorskip("frictionless")
    report = frictionless.validate(str(made / "release" / "datapackage.json"))
    assert report.valid, report.flatten(["name", "type", "message"])
    assert {"release-parquet", "release-meta-parquet", "measurements-parquet"} <= {task.name for task in report.tasks}


def test_frictionless_reads_the_data(copy):
    """The check above can fail: a column that is no longer what the schema says is found."""
    frictionless = pytest.importorskip("frictionless")
    data = manifest(copy)
    for item in data["resources"]:
        for field in item.get("schema", {}).get("fields", []):
            field["type"] = "boolean" if field["name"] == "value" else field["type"]
    rewrite(copy, data)
    assert not frictionless.validate(str(copy / "release" / "datapackage.json")).valid


def test_privacy_block_says_everything(made):
    said = manifest(made)
    privacy = said["privacy"]
    assert privacy["dp_variant"] == {
        "name": "pure",
        "data_domain": "row (8) x col (8) x sex (2)",
        "unprotected_quantities": ["domain", "mask"],
        "neighbours": "one person, in 1 cell, enters or leaves the data",
        "relation": "add-remove",
    }
    assert privacy["privacy_loss"]["privacy_parameters"] == {"epsilon": "0.1", "delta": "0", "rho": None}
    assert privacy["privacy_loss"]["contribution_bound"]["enforced"] == "by the provider of the table, on trust"
    (part,) = privacy["implementation"]["mechanisms"]
    scale = ks.haar_topdown().scale(DOMAIN, UNIT, "0.1")
    assert Fraction(part["scale"]) == scale and Fraction(part["sensitivity"]) == scale / 10
    ledger = privacy["accounting"]["ledger"]
    assert (ledger["before"]["left"], ledger["charged"]["amount"], ledger["after"]["left"]) == ("1", "0.1", "0.9")
    assert said["grid"][0]["anchor"] == {"row": 8400, "col": 6080, "corner": "south-west"}
    assert privacy["implementation"]["configuration_hash"] == ks.haar_topdown().plan(DOMAIN, UNIT, "0.1")
    assert "no ledger" not in " ".join(privacy["assumes"])


def test_nothing_of_the_input_is_published(tmp_path):
    """Neighbours, and a table ten times as large: but for the released numbers and random names all is the same."""
    unlike = []
    for index, factor in enumerate((1, 10)):
        table = counts()
        table = ks.Counts.from_coo(table.cells, table.values * factor, DOMAIN, UNIT, data="census-2020")
        ledger = ks.Ledger.open(tmp_path / f"{index}.ledger", epsilon="1", unit=UNIT, data="census-2020")
        ks.release(table, ks.haar_topdown(), epsilon="0.1", ledger=ledger, threads=1).save(str(tmp_path / str(index)))
        said = json.loads((tmp_path / str(index) / "datapackage.json").read_text())
        entries = ledger.entries()
        random = {said["id"], said["privacy"]["accounting"]["ledger"]["ledger"]}
        body = json.dumps([said["privacy"], said["domain"], entries])
        for name in [
            *random,
            *(entry["hash"] for entry in entries),
            *(entry["time"] for entry in entries if "time" in entry),
            *(entry["nonce"] for entry in entries if "nonce" in entry),
        ]:
            body = body.replace(name, "-")
        unlike.append(json.loads(body))
    for privacy, _, _ in unlike:
        privacy["expected_error"].pop("advised_smallest_area")  # read off the released values
        privacy["expected_error"].pop("after_refinement")  # estimated from the noisy numbers
    assert unlike[0] == unlike[1]


@settings(max_examples=1000)
@given(data=st.data())
def test_any_flipped_byte_is_found_and_its_file_named(made, data):
    files = sorted((made / "release").iterdir())
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(whole)
    changed[at] ^= flip
    try:
        path.write_bytes(changed)
        for key in (None, made / "office.key.pub"):
            result = ks.verify(made / "release", key=key)
            assert not result["ok"]
            assert any(path.name in fault for fault in result["faults"])
            others = {file.name for file in files} - {path.name, "signature.json"}
            assert not any(name in fault for fault in result["faults"] for name in others)
    finally:
        path.write_bytes(whole)


def test_an_unsigned_release_finds_flips_too(tmp_path):
    out = ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=None, threads=1)
    out.save(str(tmp_path / "release"), unmetered=True)
    path = tmp_path / "release" / "datapackage.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not ks.verify(tmp_path / "release")["ok"], at
    for same_json in (whole.replace(b"  ", b" \t", 1), whole.replace(b"\n", b"\r", 1), whole + b" "):
        path.write_bytes(same_json)
        assert not ks.verify(tmp_path / "release")["ok"]
    path.write_bytes(whole)
    assert ks.verify(tmp_path / "release")["ok"]


@pytest.mark.parametrize("field", ["public_key", "signature"])
def test_a_signature_has_one_spelling(copy, field):
    path = copy / "release" / "signature.json"
    statement = json.loads(path.read_text())
    for spelling in (statement[field].upper(), " " + statement[field]):
        path.write_bytes(text(statement | {field: spelling}))
        assert any("signature.json" in fault for fault in ks.verify(copy / "release")["faults"])


def test_missing_and_foreign_files(copy):
    (copy / "release" / "certificate.md").unlink()
    (copy / "release" / "notes.txt").write_text("hello")
    faults = check(copy)["faults"]
    assert "certificate.md: missing" in faults and "notes.txt: not part of the release" in faults


def test_a_forged_manifest_fails_by_its_signature(copy):
    data = manifest(copy)
    data["privacy"]["privacy_loss"]["privacy_parameters"]["epsilon"] = "0.01"
    rewrite(copy, data)
    assert "signature.json: the signature does not belong to this manifest" in check(copy)["faults"]


def test_a_signature_by_another_key_fails(copy):
    keygen(copy / "forger.key")
    from kasuri.manifest import keys

    body = (copy / "release" / "datapackage.json").read_bytes()
    (copy / "release" / "signature.json").write_bytes(text(keys.signature(keys.private(copy / "forger.key"), body)))
    assert check(copy)["faults"] == ["signature.json: signed with another key than the one given"]


def test_a_missing_signature_fails_where_a_key_is_given(copy):
    (copy / "release" / "signature.json").unlink()
    assert check(copy)["faults"] == ["signature.json: missing; the release is not signed"]
    assert ks.verify(copy / "release")["signature"] == "none"


def test_the_key_comes_from_outside(copy):
    shutil.copy(copy / "office.key.pub", copy / "release" / "office.key.pub")
    with pytest.raises(ks.DomainError, match="take it from its owner"):
        ks.verify(copy / "release", key=copy / "release" / "office.key.pub")


def damaged(place: Path, change) -> list[str]:
    """Faults after `change(table)` of release.parquet, hashes made right again, unsigned."""
    from pyarrow import parquet

    path = place / "release" / "release.parquet"
    parquet.write_table(change(parquet.read_table(path)), path)
    (place / "release" / "signature.json").unlink()
    rewrite(place, manifest(place))
    return ks.verify(place / "release")["faults"]


def column(name, edit):
    def change(table):
        import pyarrow as pa

        values = edit(table[name].to_numpy().copy())
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    return change


def negative(values):
    values[0], values[1] = -1, values[1] + values[0] + 1
    return values


def moved(values):
    values[0], values[1] = values[0] + 1, values[1] - 1
    return values


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (column("value", negative), "release.parquet: a value is negative"),
        (column("value", moved), "release.duckdb: holds another table"),
        (column("value", lambda values: values + 1), "release.parquet: does not add up"),
        (column("cell", lambda cells: cells[::-1].copy()), "release.parquet: cells are not rising"),
        (column("cell", lambda cells: cells + 128), "release.parquet: cells are not rising inside the domain"),
        (column("row", lambda rows: rows + 1), "release.parquet: column row does not follow"),
        (lambda table: table.drop_columns(["value"]), "release.parquet: cannot be read as the table"),
    ],
)
def test_tables_must_be_consistent(copy, change, fault):
    assert any(found.startswith(fault) for found in damaged(copy, change))


def unsigned(place: Path, change) -> list[str]:
    """Faults, ledger included, after `change(folder, manifest)`, certificates, hashes and digest made right again."""
    from kasuri.manifest import certificate

    folder, data = place / "release", manifest(place)
    (folder / "signature.json").unlink()
    change(folder, data)
    (folder / "certificate.md").write_text(certificate.english(data["privacy"]), encoding="utf-8")
    (folder / "certificate.ja.md").write_text(certificate.japanese(data["privacy"]), encoding="utf-8")
    rewrite(place, data)
    return ks.verify(folder, ledger=place / "census.ledger")["faults"]


def test_a_forger_changes_nothing(copy):
    assert unsigned(copy, lambda folder, data: None) == []


def said(*path, value):
    def change(folder, data):
        *inner, last = path
        for name in ("privacy", *inner):
            data = data[name]
        assert data[last] != value
        data[last] = value

    return change


def meta(file, column, value):
    def change(folder, data):
        if file.endswith("duckdb"):
            import duckdb

            connection = duckdb.connect(str(folder / file))
            connection.execute(f"UPDATE release_meta SET {column} = ?", [value])
            connection.close()
            return
        import pyarrow as pa
        from pyarrow import parquet

        table = parquet.read_table(folder / file)
        changed = table.set_column(table.column_names.index(column), column, pa.array([value]))
        parquet.write_table(changed, folder / file)

    return change


def sql(*statements):
    def change(folder, data):
        import duckdb

        connection = duckdb.connect(str(folder / "release.duckdb"))
        for statement in statements:
            connection.execute(statement.format(folder=folder))
        connection.close()

    return change


LEDGER = ("accounting", "ledger")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (said(*LEDGER, "after", "left", value="999"), "left another balance"),
        (said(*LEDGER, "before", "left", value="999"), "left another balance"),
        (said(*LEDGER, "charged", "amount", value="0"), "left another balance"),
        (said(*LEDGER, "accounting", value="pld"), "left another balance"),
        (said("data", value="other"), "is about other data"),
        (said("privacy_loss", "contribution_bound", "max_cells", value=99), "protects another unit"),
        (said("privacy_loss", "privacy_parameters", "delta", value="0.1"), "paid for another delta"),
        (said("privacy_loss", "privacy_parameters", "rho", value="0.1"), "paid for another rho"),
        (said("implementation", "configuration_hash", value="0" * 64), "paid for another recipe"),
        (said("assumes", value=[]), "rests on other assumptions"),
        (said("dp_variant", "relation", value="replace"), "two ways, and they differ"),
        (said("dp_variant", "data_domain", value="row (9)"), "two ways, and they differ"),
        (said("implementation", "software", value="kasuri 99"), "release_meta.parquet: does not say"),
        (said("implementation", "basis", value="trust me"), "release_meta.parquet: does not say"),
        *((meta("release_meta.parquet", name, "{}"), "release_meta.parquet: does not say")
          for name in ("unit", "guarantee", "recipe", "provenance", "model", "data", "absent_cells")),
        (meta("release.duckdb", "epsilon", "0.0001"), "release.duckdb: its release_meta is not"),
        (sql("UPDATE release SET row = 0"), "release.duckdb: holds another table"),
        (sql("UPDATE release SET mesh_code = '0'"), "release.duckdb: holds another table"),
        (sql("DROP TABLE release_meta"), "release.duckdb: holds something else"),
        (sql("CREATE TABLE people AS SELECT 1 AS id"), "release.duckdb: holds something else"),
        (sql("CREATE MACRO one() AS 1"), "release.duckdb: holds something else"),
        (
            sql("DROP TABLE release", "CREATE VIEW release AS SELECT * FROM read_parquet('{folder}/release.parquet')"),
            "release.duckdb: holds something else",
        ),
    ],
)  # fmt: skip
def test_all_say_the_same(copy, change, fault):
    assert any(fault in found for found in unsigned(copy, change))


def test_verify_runs_nothing_that_a_release_brings(copy, monkeypatch):
    """Were a view let through, DuckDB itself would refuse to open the file it names."""
    import duckdb

    real, seen = duckdb.connect, []

    def look(*words, **more):
        connection = real(*words, **more)
        if words == (":memory:",):  # where the tables are written anew: nothing of the release is opened in it
            return connection
        with pytest.raises(duckdb.Error):
            connection.execute(f"SELECT * FROM read_parquet('{copy}/release/release.parquet')")
        with pytest.raises(duckdb.Error):
            connection.execute("SET enable_external_access = true")
        seen.append(1)
        return connection

    monkeypatch.setattr(duckdb, "connect", look)
    assert check(copy)["ok"] and seen == [1]


def text_column(name):
    def change(table):
        import pyarrow as pa

        return table.set_column(table.column_names.index(name), name, pa.array([f"{i}" for i in range(len(table))]))

    return change


@pytest.mark.parametrize("name", ["release_id", "cell", "mesh_code", "row", "col", "sex", "value"])
def test_every_column_is_there_and_follows(copy, tmp_path, name):
    shutil.copytree(copy, tmp_path / "again")
    for place, change in ((copy, lambda table: table.drop_columns([name])), (tmp_path / "again", text_column(name))):
        faults = damaged(place, change)
        assert faults and all(fault.startswith("release.") for fault in faults)


@pytest.mark.parametrize("file", ["datapackage.json", "signature.json"])
@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"kasuri":' + b"1" * 5000 + b"}", b"\xff", b""])
def test_hostile_json(copy, file, content):
    (copy / "release" / file).write_bytes(content)
    assert any(fault.startswith(file) for fault in check(copy)["faults"])


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b"])
def test_hostile_names(copy, name):
    data = manifest(copy)
    data["resources"].append({"path": name, "hash": ""})
    data["digest"] = digest(data)
    (copy / "release" / "datapackage.json").write_bytes(text(data))
    assert any("cannot be read" in fault or "missing" in fault for fault in check(copy)["faults"])


@pytest.mark.parametrize("file", ["datapackage.json", "signature.json", "release.parquet"])
def test_links_are_not_files_of_a_release(copy, made, file):
    path = copy / "release" / file
    for target in (made / "release" / file, made / "nowhere"):
        path.unlink()
        path.symlink_to(target)
        for key in (None, copy / "office.key.pub"):
            faults = ks.verify(copy / "release", key=key)["faults"]
            assert any(fault.startswith(file) for fault in faults), faults


def test_a_key_that_is_not_there(copy):
    with pytest.raises(ks.DomainError, match="cannot be read"):
        ks.verify(copy / "release", key=copy / "missing.pub")


def test_the_certificate_of_a_series(tmp_path):
    """Late in a series a release costs nothing more; its certificate says what the whole costs."""
    recipe = ks.haar_topdown()
    series = recipe.series(DOMAIN, UNIT, "0.1", 60)
    path = tmp_path / "census.ledger"
    ledger = ks.Ledger.open(
        path, epsilon="6", delta="1e-9", unit=UNIT, data="census-2020", accounting="pld", series=series
    )
    claim = recipe.guarantee(DOMAIN, UNIT, "0.1")
    for _ in range(58):
        ledger.reserve(claim, data="census-2020", recipe=recipe.name, plan=series.plan)
    ks.release(counts(), recipe, epsilon="0.1", ledger=ledger, threads=1).save(str(tmp_path / "release"))
    place = manifest(tmp_path)["privacy"]["accounting"]["ledger"]["series"]
    assert (place["number"], place["of"]) == (59, 60) and Fraction(place["price"]) == ledger.allowance.price
    assert "Release 59 of 60 of a series" in (tmp_path / "release" / "certificate.md").read_text(encoding="utf-8")
    assert ks.verify(tmp_path / "release", ledger=path)["ok"]


def test_a_masked_cell_must_be_zero(copy):
    def sea(cells):
        cells[5:7] = [5 * 2, 5 * 2 + 1]  # row 0, column 5: in the sea
        return np.sort(cells)

    assert "release.parquet: a masked cell is not 0" in damaged(copy, column("cell", sea))


def test_the_certificate_must_agree(copy):
    path = copy / "release" / "certificate.md"
    path.write_text(path.read_text().replace("epsilon = 0.1", "epsilon = 0.01"))
    rewrite(copy, manifest(copy))
    (copy / "release" / "signature.json").unlink()
    assert ks.verify(copy / "release")["faults"] == ["certificate.md: does not say what the manifest says"]


def test_certificates_in_two_languages(made):
    english = (made / "release" / "certificate.md").read_text(encoding="utf-8")
    japanese = (made / "release" / "certificate.ja.md").read_text(encoding="utf-8")
    assert "Pure differential privacy, epsilon = 0.1." in english and "| left after | 0.9 |" in english
    assert "純粋差分プライバシー、ε = 0.1。" in japanese and "| 公表後の残り | 0.9 |" in japanese
    assert english.count("\n## ") == japanese.count("\n## ") == 6


def test_seeded_releases_are_refused_and_fail(copy, tmp_path):
    out = ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=None, source=ks.seeded(1), threads=1)
    with pytest.raises(ks.PrivacyError, match="seeded"):
        out.save(str(tmp_path / "seeded"), unmetered=True, sign=str(copy / "office.key"))
    from kasuri.manifest import write

    with pytest.raises(ks.PrivacyError, match="cannot be signed"):
        write(out, tmp_path, copy / "office.key")
    data = manifest(copy)
    data["privacy"]["implementation"]["secure"] = False
    rewrite(copy, data)
    assert any("seeded" in fault for fault in check(copy)["faults"])


def test_the_wrong_ledger_is_found(copy, tmp_path):
    ks.Ledger.open(tmp_path / "other.ledger", epsilon="1", unit=UNIT, data="census-2020")
    assert check(copy, ledger=tmp_path / "other.ledger")["ledger"] == "not found"
    (copy / "census.ledger").unlink()
    assert check(copy, ledger=copy / "census.ledger")["ledger"] == "broken"


def test_an_uncommitted_release_is_found(copy, monkeypatch):
    ledger = ks.Ledger.load(copy / "census.ledger")
    out = ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=ledger, threads=1)
    from kasuri.store import save

    with pytest.raises(ks.PrivacyError, match="no receipt"):
        save(replace(out, receipt=None), copy / "second")
    assert not (copy / "second").exists()
    monkeypatch.setattr(type(out.receipt), "commit", lambda self, release_id: None)
    save(out, copy / "second")
    faults = ks.verify(copy / "second", ledger=copy / "census.ledger")["faults"]
    assert faults == ["census.ledger: entry 4 was not committed to this release"]


def test_a_manifest_of_a_newer_version(copy):
    rewrite(copy, manifest(copy) | {"kasuri": 2})
    assert "datapackage.json: version 2, newer than this kasuri reads; update kasuri" in check(copy)["faults"]


@pytest.mark.parametrize("name", ["../office.key", "/etc/hostname", "", "datapackage.json"])
def test_resources_stay_in_the_folder(copy, name):
    data = manifest(copy)
    data["resources"][0]["path"] = name
    data["digest"] = digest(data)
    (copy / "release" / "datapackage.json").write_bytes(text(data))
    assert any(fault.startswith("datapackage.json:") for fault in check(copy)["faults"])


@pytest.mark.parametrize(
    ("recipe", "block", "variance"),
    [
        (ks.geometric(), 4, lambda v: 4 * v),
        (ks.privelet("morton"), 1, lambda v: v * (4.0**-6 + sum(4.0**-i for i in range(1, 7)))),
        (ks.privelet("morton"), 64, lambda v: v),
        (ks.privelet("2d"), 1, lambda v: v * (4.0**-3 + sum(4.0**-i for i in range(1, 4))) ** 2),
    ],
)
def test_expected_error_is_the_closed_form(recipe, block, variance):
    """And the closed form is what comes out: the variance of 400 seeded releases of an empty table."""
    from kasuri.manifest.expected import by_area

    domain = ks.Domain.of(ks.Mesh("grid", shape=(8, 8)))
    empty = ks.Counts.from_coo([], [], domain, UNIT)
    side, errors = int(block**0.5), []
    for seed in range(400):
        out = ks.release(empty, recipe, epsilon="1", ledger=None, source=ks.seeded(seed), threads=1)
        errors.append(out.area(rows=slice(0, side), cols=slice(0, side)))
    (row,) = [row for row in by_area(recipe.on(domain, UNIT, "1")) if row["cells"] == block]
    a = np.exp(-1 / float(recipe.scale(domain, UNIT, "1")))
    assert row["exact"] and row["rmse"] == pytest.approx(variance(2 * a / (1 - a) ** 2) ** 0.5, rel=1e-3)
    assert np.std(errors) == pytest.approx(row["rmse"], rel=0.15)


def test_command_line(made, copy):
    import typer

    from kasuri.cli import manifest as commands

    app = typer.Typer()
    app.command()(commands.keygen)
    app.command()(commands.verify)
    run = CliRunner().invoke
    result = run(app, ["verify", str(made / "release"), "--key", str(made / "office.key.pub"), "--json"])
    assert result.exit_code == 0 and json.loads(result.stdout)["signature"] == "good"
    (copy / "release" / "release.parquet").write_bytes(b"x")
    result = run(app, ["verify", str(copy / "release")])
    assert result.exit_code == 1 and "release.parquet: changed" in result.stderr
    assert run(app, ["keygen", str(copy / "new.key"), "--json"]).exit_code == 0
    assert (copy / "new.key").stat().st_mode & 0o077 == 0
    again = run(app, ["keygen", str(copy / "new.key")])
    assert isinstance(again.exception, ks.DomainError)


@pytest.mark.parametrize("content", [b"", b"not a key", None])
def test_bad_keys(tmp_path, content):
    if content is not None:
        (tmp_path / "bad.key").write_bytes(content)
    out = ks.release(counts(), ks.geometric(), epsilon="0.1", ledger=None, threads=1)
    with pytest.raises(ks.KasuriError, match="key"):
        out.save(str(tmp_path / "release"), unmetered=True, sign=str(tmp_path / "bad.key"))
    assert not (tmp_path / "release").exists()


def test_a_grid_without_a_level_names_no_reference_system(tmp_path):
    """And a release that was saved while it did is still good, but not one that names another."""
    domain = ks.Domain.of(ks.Mesh("grid", origin=(3, 4), shape=(4, 4)))
    table = ks.Counts.from_dense(np.full((4, 4), 9), domain, UNIT, data="plain")
    ks.release(table, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "release"), unmetered=True)
    data = manifest(tmp_path)
    assert data["grid"][0]["crs"] is None and data["grid"][0]["mesh_level"] is None
    for crs, faults in ((None, []), ("JGD2011", []), ("Tokyo", ["says the same thing in two ways"])):
        data["grid"][0]["crs"] = crs
        found: list[str] = []
        tables.check(tmp_path / "release", data, found)
        assert len(found) == len(faults) and all(part in fault for part, fault in zip(faults, found, strict=True))
    out = ks.Release.load(tmp_path / "release")
    with pytest.raises(ks.DomainError, match="give rows and cols"):
        out.area(code="5339")
    assert out.area(rows=slice(0, 4), cols=slice(0, 4)) == out.total()
