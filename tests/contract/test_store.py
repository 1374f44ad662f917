"""A release on disk: whole or not at all, never over another, readable with plain tools."""

import json
import os
import subprocess
import sys
from multiprocessing import Process
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri.meshcode import encode
from kasuri.schema import Domain, Mesh, Nominal, Unit
from kasuri.store import duck

PERSON = Unit("person", "add-remove", 1)


def make(shape=(40, 30), recipe=None):
    domain = Domain.of(Mesh("grid", level="500m", origin=(8400, 6080), shape=shape), Nominal("sex", ("f", "m")))
    counts = ks.Counts.from_dense(np.random.default_rng(1).poisson(1, domain.shape), domain, PERSON, data="c-2020")
    return ks.release(counts, recipe or ks.haar_topdown(), epsilon="1", ledger=None)


def test_no_old_memory_where_a_long_text_ends(tmp_path, monkeypatch):
    """DuckDB leaves 8 bytes as they were there, in a release and in an export; here they are another's, with a sum that
    is right. Texts of one block and of three."""
    clean = duck._without_old_memory
    seen = []

    def dirty(path, texts):
        clean(path, texts)
        whole, sizes = bytearray(path.read_bytes()), {len(text).to_bytes(4, "little"): len(text) + 4 for text in texts}
        for at in range(12288, len(whole), 1 << 18):
            size = sizes.get(bytes(whole[at + 8 : at + 12]), 0)
            while size > (1 << 18) - 16:  # the text goes on
                at = 12288 + int.from_bytes(whole[at + (1 << 18) - 8 : at + (1 << 18)], "little") * (1 << 18)
                size -= (1 << 18) - 16
            if size:
                words = np.frombuffer(whole, "<u8", 1 << 15, at)
                assert words[-1] == 0
                words[0] ^= np.uint64(int.from_bytes(b"a secret", "little") * 0xBF58476D1CE4E5B9 % (1 << 64))
                words[-1:].view("S8")[:] = b"a secret"
        path.write_bytes(whole)
        seen.append(b"a secret" in whole)
        clean(path, texts)

    monkeypatch.setattr(duck, "_without_old_memory", dirty)
    out = make(recipe=ks.woven_tree(pilot="cells"))  # it tells what it looked at: a long text
    out.save(str(tmp_path / "r"), unmetered=True)
    duck.append(out, tmp_path / "e.duckdb")
    for path in (tmp_path / "r" / "release.duckdb", tmp_path / "e.duckdb"):
        assert b"a secret" not in path.read_bytes()
        with duckdb.connect(str(path), read_only=True) as base:
            assert len(base.execute("SELECT * FROM release_meta").fetchall()) == 1
    long, path = "xyz" * 200_000, tmp_path / "long.duckdb"
    with duckdb.connect(str(path), config={"storage_compatibility_version": "v1.0.0"}) as base:
        base.execute("SET force_compression = 'uncompressed'")
        base.execute("CREATE TABLE t AS SELECT ? AS text", [long])
    dirty(path, [long.encode()])
    assert seen == [True] * 3 and b"a secret" not in path.read_bytes()
    with duckdb.connect(str(path), read_only=True) as base:
        assert base.execute("SELECT text FROM t").fetchall() == [(long,)]
    assert ks.verify(tmp_path / "r").ok


def test_saved_tables_hold_the_release(tmp_path):
    out = make()
    folder = tmp_path / "deep" / "release"
    out.save(str(folder), unmetered=True)
    assert sorted(p.name for p in folder.iterdir()) == [
        "certificate.ja.md", "certificate.md", "datapackage.json", "measurements.parquet", "release.duckdb",
        "release.parquet", "release_meta.parquet", "report.html",
    ]  # fmt: skip
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as db:
        assert db.execute("SELECT sum(value) FROM release").fetchone()[0] == out.total()
        rows = db.execute("SELECT cell, mesh_code, row, col, sex, value FROM release ORDER BY cell").fetchall()
        meta = db.execute("SELECT epsilon, data, guarantee FROM release_meta").fetchone()
    assert [row[0] for row in rows] == out.cells.tolist()
    assert [row[5] for row in rows] == out.values.tolist()
    for cell, code, r, c, sex, _ in rows[:50]:
        assert cell == (r * 30 + c) * 2 + "fm".index(sex)
        assert code == encode([8400 + r], [6080 + c], "500m")[0]
    assert meta[:2] == ("1", "c-2020")
    assert json.loads(meta[2]) == out.guarantee.to_json()
    table = pq.read_table(folder / "release.parquet")
    assert table["value"].to_pylist() == out.values.tolist()
    assert set(table["release_id"].to_pylist()) == {out.provenance["release_id"]}
    measured = pq.read_table(folder / "measurements.parquet")
    assert measured["value"].to_pylist() == out.measurements.value.tolist()


def test_existing_folder_is_refused_and_untouched(tmp_path):
    out = make()
    for name, content in (("full", "keep"), ("empty", None)):
        folder = tmp_path / name
        folder.mkdir()
        if content:
            (folder / "x").write_text(content)
        with pytest.raises(ks.DomainError, match="exists"):
            out.save(str(folder), unmetered=True)
        assert [p.name for p in folder.iterdir()] == (["x"] if content else [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "full"]


def test_an_error_after_the_rename_does_not_deny_the_release(tmp_path, monkeypatch):
    from kasuri.store import folder as store

    sync = store.sync

    def fail(path):
        if path == tmp_path:
            raise OSError(13, "Permission denied")
        sync(path)

    monkeypatch.setattr(store, "sync", fail)
    with pytest.warns(UserWarning, match="is written"):
        make().save(str(tmp_path / "r"), unmetered=True)
    assert (tmp_path / "r" / "release.duckdb").exists()


def test_the_store_itself_refuses_seeded_releases(tmp_path):
    from kasuri.store import save

    domain = Domain.of(Mesh("grid", shape=(2, 2)))
    counts = ks.Counts.from_coo([1], [3], domain, PERSON)
    with pytest.raises(ks.PrivacyError, match="seeded"):
        save(
            ks.release(counts, ks.geometric(), epsilon="1", ledger=None, source=ks.seeded(1)),
            tmp_path / "r",
            unmetered=True,
        )


@pytest.mark.parametrize("name", ["file/release", "file/deep/release", "a" * 300, "a\0b"])
def test_a_folder_that_cannot_be(tmp_path, name):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ks.DomainError, match="not written"):
        make().save(str(tmp_path / name), unmetered=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_unmetered_must_be_said(tmp_path):
    with pytest.raises(ks.PrivacyError, match="ledger"):
        make().save(str(tmp_path / "r"))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    from kasuri.store import duck

    def fail(release, table, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(duck, "write", fail)
    with pytest.raises(ks.DomainError, match="No space left"):
        make().save(str(tmp_path / "r"), unmetered=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small disk needs root on Linux")
def test_a_full_disk_leaves_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(ks.DomainError, match="not written"):
            make((200, 200)).save(str(disk / "r"), unmetered=True)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def save_and_kill(folder: str, after: str) -> None:
    """Child: die by SIGKILL in the middle of a save."""
    import signal

    from kasuri.store import duck, parquet

    module = {"parquet": parquet, "duck": duck}[after]
    write = module.write

    def then_die(release, table, where):
        write(release, table, where)
        os.kill(os.getpid(), signal.SIGKILL)

    module.write = then_die
    make().save(folder, unmetered=True)


@pytest.mark.parametrize("after", ["parquet", "duck"])
def test_kill_9_leaves_no_release(tmp_path, after):
    child = Process(target=save_and_kill, args=(str(tmp_path / "r"), after))
    child.start()
    child.join()
    assert child.exitcode == -9
    assert not (tmp_path / "r").exists()
    make().save(str(tmp_path / "r"), unmetered=True)  # and the next one is not in its way
    assert (tmp_path / "r" / "release.duckdb").exists()


def test_two_writers_of_one_folder(tmp_path, monkeypatch):
    """The second finds the folder taken at the very last moment and keeps nothing."""
    first, second = make(), make()
    rename = os.rename

    def rival(source, target):
        monkeypatch.setattr(os, "rename", rename)
        second.save(str(target), unmetered=True)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rival)
    with pytest.raises(ks.DomainError):
        first.save(str(tmp_path / "r"), unmetered=True)
    assert [p.name for p in tmp_path.iterdir()] == ["r"]
    kept = pq.read_table(tmp_path / "r" / "release_meta.parquet")["release_id"].to_pylist()
    assert kept == [second.provenance["release_id"]]


def test_file_layout_follows_released_values_alone(tmp_path):
    """Equal released numbers give equal bytes in the Parquet file of values, whatever the table was."""
    out = make()
    twin = type(out)(out.domain, out.cells, out.values, out.measurements, out.guarantee, out.recipe, out.provenance)
    for release, folder in ((out, "a"), (twin, "b")):
        release.save(str(tmp_path / folder), unmetered=True)
    assert Path(tmp_path / "a/release.parquet").read_bytes() == Path(tmp_path / "b/release.parquet").read_bytes()


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.bayes_tree(), ks.bayes_tree(pilot=True), ks.woven_tree()])
def test_levels_where_nothing_was_drawn(recipe, tmp_path):
    """Three people on a wide map: the lowest levels of the tree may be empty, and a saved release has no row of them.
    It verifies, and its limits are those it was saved with."""
    domain = Domain.of(Mesh("grid", shape=(64, 64)), Nominal("sex", ("m", "f")))
    truth = np.zeros(domain.shape, int)
    truth[5, 5, 0] = 3
    counts = ks.Counts.from_dense(truth, domain, PERSON, data="test")
    for turn in range(12):
        out = ks.release(counts, recipe, epsilon="0.05", ledger=None)
        out.save(str(tmp_path / str(turn)), unmetered=True)
        assert not ks.verify(tmp_path / str(turn), page=False).faults


def test_the_database_is_narrow_and_the_limits_in_it_are_whole(tmp_path):
    """Whole numbers in 32 bits, wide enough to be multiplied by a row's length, and one part per 122,880 rows: what
    more threads would leave behind is room that nobody uses."""
    domain = Domain.of(Mesh("grid", shape=(512, 512)))
    counts = ks.Counts.from_dense(np.full(domain.shape, 300), domain, PERSON, data="test")
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(tmp_path / "r"), unmetered=True)
    with duckdb.connect(str(tmp_path / "r" / "release.duckdb"), read_only=True) as base:
        kinds = dict(row[:2] for row in base.execute("DESCRIBE release").fetchall())
        assert kinds.pop("release_id").startswith("ENUM") and set(kinds.values()) == {"INTEGER"}, kinds
        assert base.execute("SELECT max(row * 512 + col) = max(cell) FROM release").fetchone() == (True,)
        groups = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('release')"
        assert base.execute(groups).fetchone() == (-(-domain.size // 122_880),)
    assert (tmp_path / "r" / "release.duckdb").stat().st_size < 40 * domain.size
    assert ks.verify(tmp_path / "r", page=False).ok
