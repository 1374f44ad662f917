"""One release in every format, read back with plain SQL and other people's readers: equal cell by cell."""

import csv
import json
import os
import signal
import sqlite3
import time
from multiprocessing import Process
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri import examples
from kasuri.ingest import read_table
from kasuri.schema import Domain, Mesh, Nominal, Unit
from kasuri.store.columns import has_outline, release_table
from kasuri.store.export import export_faults

PERSON = Unit("person", "add-remove", 1)
LEVELS = ("500m", "1km", "10km")


def make(shape=(45, 30), origin=(8400, 6080), crs="JGD2011"):
    domain = Domain.of(Mesh("grid", "500m", origin, shape=shape, crs=crs), Nominal("sex", ("f", "男")))
    counts = ks.Counts.from_dense(np.random.default_rng(1).poisson(1, domain.shape), domain, PERSON, data="c-2020")
    return ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None)


def rows_of(out, origin=(8400, 6080)):
    """cell, mesh_code, row, col, sex, value by the published formula of the codes, without the store's code."""
    found = []
    for cell, value in zip(out.cells.tolist(), out.values.tolist(), strict=True):
        row, col, sex = cell // 60, cell // 2 % 30, cell % 2
        r, c = row + origin[0], col + origin[1]
        code = (r // 160 * 100 + c // 160) * 100000 + (r // 20 % 8 * 10 + c // 20 % 8) * 1000
        code += (r // 2 % 10 * 10 + c // 2 % 10) * 10 + r % 2 * 2 + c % 2 + 1
        found.append((cell, code, row, col, "f男"[sex], value))
    return found


SELECT = "SELECT cell, mesh_code, row, col, sex, value FROM release WHERE release_id = {} ORDER BY cell"


def by_level(run):
    """(total, number of cells, some code) of each table, with any SQL runner."""
    return {name: run(f'SELECT sum(value), count(*), min(mesh_code) FROM "{name}"')[0]
            for name in ("release", "release_1km", "release_10km")}  # fmt: skip


def test_sqlite_duckdb_and_csv(tmp_path):
    out = make()
    for name in ("r.sqlite", "r.duckdb", "r.csv"):
        out.export(str(tmp_path / name), levels=LEVELS, unmetered=True)
    identity = out.provenance["release_id"]
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        assert base.execute(SELECT.format("?"), [identity]).fetchall() == rows_of(out)
        for table in ("release", "release_1km", "release_10km"):
            outside = f"SELECT count(*) FROM {table} WHERE lower IS NULL OR NOT value BETWEEN lower AND upper"
            assert base.execute(outside).fetchall() == [(0,)]
        assert base.execute("SELECT release_id, epsilon FROM release_meta").fetchall() == [(identity, "1")]
        levels = by_level(lambda sql: base.execute(sql).fetchall())
    with duckdb.connect(str(tmp_path / "r.duckdb"), read_only=True) as base:
        assert base.execute(SELECT.format("?"), [identity]).fetchall() == rows_of(out)
        assert by_level(lambda sql: base.execute(sql).fetchall()) == levels
    assert {total for total, _, _ in levels.values()} == {out.total()}
    text = (tmp_path / "r.csv").read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    read = list(csv.DictReader(text.decode("utf-8-sig").splitlines()))
    assert [(int(r["cell"]), int(r["mesh_code"]), int(r["row"]), int(r["col"]), r["sex"], int(r["value"]))
            for r in read] == rows_of(out)  # fmt: skip
    assert sorted(p.name for p in tmp_path.glob("*.csv")) == ["r.csv", "r_10km.csv", "r_1km.csv", "r_meta.csv"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("origin", [(8400, 6080), (8407, 6093)])
def test_coarse_cells_are_the_sums_of_their_parts(tmp_path, origin):
    """Also where the window cuts 10 km cells, at its far side (45 rows of 20) and at its corner."""
    out = make(origin=origin)
    out.export(str(tmp_path / "r.sqlite"), levels=("10km", "5km", "2km", "80km"), unmetered=True)
    sums: dict = {}
    for _, code, *_, sex, value in rows_of(out, origin):
        sums[code // 1000, sex] = sums.get((code // 1000, sex), 0) + value
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        found = base.execute("SELECT mesh_code, sex, value FROM release_10km").fetchall()
        assert {(code, sex): value for code, sex, value in found} == sums
        for level in ("5km", "2km", "80km"):
            assert base.execute(f'SELECT sum(value) FROM "release_{level}"').fetchone()[0] == out.total()
    with pytest.raises(ks.DomainError, match="250m"):
        out.export(str(tmp_path / "s.sqlite"), levels=("250m",), unmetered=True)
    assert not (tmp_path / "s.sqlite").exists()


def test_geopackage_opens_in_gdal(tmp_path):
    pyogrio = pytest.importorskip("pyogrio")
    out = make()
    path = tmp_path / "r.gpkg"
    out.export(str(path), levels=LEVELS, unmetered=True)
    assert {name for name, _ in pyogrio.list_layers(path)} == {"release", "release_1km", "release_10km", "release_meta"}
    about = pyogrio.read_info(path, layer="release")
    assert "6668" in about["crs"] and about["geometry_type"] == "Polygon" and about["features"] == out.cells.size
    meta, _, shapes, fields = pyogrio.raw.read(path, layer="release")
    read = dict(zip(meta["fields"], fields, strict=True))
    assert read["cell"].tolist() == out.cells.tolist() and read["value"].tolist() == out.values.tolist()
    code, blob = int(read["mesh_code"][0]), shapes[0]
    points = np.frombuffer(blob[13:], "<f8").reshape(5, 2)
    pp, uu, q, v, r, w, m = (int(str(code)[a:b]) for a, b in ((0, 2), (2, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)))
    south = pp / 1.5 + q / 12 + r / 120 + (m - 1) // 2 / 240
    west = 100 + uu + v / 8 + w / 80 + (m - 1) % 2 / 160
    assert np.allclose(points.min(axis=0), (west, south), atol=1e-11)
    assert np.allclose(points.max(axis=0), (west + 1 / 160, south + 1 / 240), atol=1e-11)
    with sqlite3.connect(path) as base:
        assert base.execute(SELECT.format("?"), [out.provenance["release_id"]]).fetchall() == rows_of(out)
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert base.execute("PRAGMA foreign_key_check").fetchall() == []


def test_geoparquet_is_readable(tmp_path):
    out = make(crs="JGD2000")
    out.export(str(tmp_path / "r.parquet"), levels=("1km",), unmetered=True)
    table = pq.read_table(tmp_path / "r.parquet")
    about = json.loads(table.schema.metadata[b"geo"])
    assert about["primary_column"] == "geom" and about["columns"]["geom"]["crs"]["id"]["code"] == 4612
    assert table["value"].to_pylist() == out.values.tolist()
    assert pq.read_table(tmp_path / "r_1km.parquet")["value"].to_numpy().sum() == out.total()


@pytest.mark.parametrize("name", ["r.sqlite", "r.duckdb", "r.gpkg"])
def test_a_database_holds_many_releases_each_once(tmp_path, name):
    first, second = make(), make()
    path = str(tmp_path / name)
    first.export(path, unmetered=True)
    second.export(path, levels=("1km",), unmetered=True)
    before = (tmp_path / name).stat().st_size
    with pytest.raises(ks.DomainError, match="already"):
        first.export(path, unmetered=True)
    other = Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(4, 4)))
    plain = ks.release(
        ks.Counts.from_dense(np.ones((4, 4), int), other, PERSON), ks.geometric(), epsilon="1", ledger=None
    )
    with pytest.raises(ks.DomainError, match="other columns"):
        plain.export(path, unmetered=True)
    connect = duckdb.connect if name.endswith("duckdb") else sqlite3.connect
    with connect(path) as base:
        assert base.execute("SELECT count(*) FROM release_meta").fetchone() == (2,)
        assert base.execute("SELECT sum(value) FROM release").fetchone()[0] == first.total() + second.total()
    assert (tmp_path / name).stat().st_size <= before + (1 << 20)


def test_a_grid_without_a_level_is_on_no_map(tmp_path):
    """No outline in any format, and a sentence that says how to declare the level."""
    domain = Domain.of(Mesh("grid", shape=(4, 4)))
    counts = ks.Counts.from_dense(np.full((4, 4), 9), domain, PERSON, data="plain")
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    for name, levels in (("m.gpkg", ()), ("m.parquet", ()), ("m.csv", ("1km",)), ("m.sqlite", ("1km",))):
        with pytest.raises(ks.DomainError, match=r"no place on the map, .* declare the mesh level they count in"):
            out.export(str(tmp_path / name), levels=levels, unmetered=True)
        (fault,) = export_faults(domain, [str(tmp_path / name)], levels)
        assert "no place on the map" in fault and list(tmp_path.iterdir()) == []
    assert "geom" not in release_table(out, geometry=True).column_names
    assert not has_outline(domain)  # what PostgreSQL asks before it makes a geom column
    assert release_table(out).column_names == ["release_id", "cell", "row", "col", "value", "lower", "upper"]


def test_what_may_not_leave(tmp_path):
    domain = Domain.of(Mesh("grid", shape=(4, 4)))
    counts = ks.Counts.from_dense(np.ones((4, 4), int), domain, PERSON)
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    with pytest.raises(ks.PrivacyError, match="ledger"):
        out.export(str(tmp_path / "r.csv"))
    seeded = ks.release(counts, ks.geometric(), epsilon="1", ledger=None, source=ks.seeded(1))
    with pytest.raises(ks.PrivacyError, match="seeded"):
        seeded.export(str(tmp_path / "r.csv"), unmetered=True)
    for name in ("r.gpkg", "r.parquet", "r.docx"):
        with pytest.raises(ks.DomainError):
            out.export(str(tmp_path / name), unmetered=True)
    (tmp_path / "r.csv").write_text("mine")
    with pytest.raises(ks.DomainError, match="exists"):
        out.export(str(tmp_path / "r.csv"), unmetered=True)
    assert [p.name for p in tmp_path.iterdir()] == ["r.csv"] and (tmp_path / "r.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["Value", "Geom", "fid"])
def test_an_axis_cannot_hide_a_column(name):
    with pytest.raises(ks.DomainError, match=name):
        Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(2, 2)), Nominal(name, ("a", "b")))


def kanto():
    domain, unit = examples.kanto_domain(), examples.person()
    counts = ks.count(read_table(examples.KANTO), domain, columns={"grid": "mesh_code"}, unit=unit, weight="population")
    return ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None)


def test_postgres_and_back(postgres):
    import psycopg

    out, second = kanto(), kanto()
    out.export(postgres, levels=("1km", "10km"), unmetered=True)
    second.export(postgres, unmetered=True)
    with psycopg.connect(postgres) as base:
        found = base.execute("SELECT cell, value, mesh_code FROM release WHERE release_id = %s ORDER BY cell",
                             [out.provenance["release_id"]]).fetchall()  # fmt: skip
        assert [row[0] for row in found] == out.cells.tolist()
        assert [row[1] for row in found] == out.values.tolist()
        for table in ("release_1km", "release_10km"):
            assert base.execute(f"SELECT sum(value) FROM {table}").fetchone()[0] == out.total()
        assert base.execute("SELECT count(*) FROM release_meta").fetchone() == (2,)
        if base.execute("SELECT count(*) FROM pg_extension WHERE extname = 'postgis'").fetchone() == (1,):
            wrong = base.execute(
                "SELECT count(*) FROM release WHERE ST_SRID(geom) <> 6668 OR NOT ST_IsValid(geom) "
                "OR abs(ST_XMin(geom) - (138 + col / 160.0)) > 1e-9 OR abs(ST_YMin(geom) - (35 + row / 240.0)) > 1e-9"
            ).fetchone()
            assert wrong == (0,)
    with pytest.raises(ks.DomainError, match="already"):
        out.export(postgres, unmetered=True)
    from kasuri.ingest import Table

    unit = Unit("nobody", "add-remove", 1)
    own = Table(postgres, "release", (("release_id", "=", out.provenance["release_id"]),))
    again = ks.count(own, out.domain, columns={"grid": "mesh_code"}, unit=unit, weight="value")
    assert np.array_equal(again.cells, out.cells) and np.array_equal(again.values, out.values)


def test_a_wrong_address_shows_no_password():
    with pytest.raises(ks.KasuriError) as caught:
        make().export("postgresql://me:topsecret@127.0.0.1:1/none", unmetered=True)
    assert "topsecret" not in str(caught.value) and caught.value.__cause__ is None


def write_and_die(target: str) -> None:
    """Child: SIGKILL when the first table is in and the others are not."""
    from kasuri.store import duck, postgres, sqlite

    if target.endswith(".duckdb"):
        tables = duck.all_tables

        def two(release, levels):
            made = tables(release, levels)
            return _Deadly(made)

        duck.all_tables = two
    else:
        module = postgres if target.startswith("postgres") else sqlite
        add = module._add

        def then_die(*words):
            add(*words)
            os.kill(os.getpid(), signal.SIGKILL)

        module._add = then_die
    make().export(target, unmetered=True)


class _Deadly(dict):
    def items(self):
        for i, item in enumerate(super().items()):
            if i == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield item


@pytest.mark.parametrize("name", ["r.sqlite", "r.gpkg", "r.duckdb", "postgres"])
def test_a_write_killed_half_way_leaves_no_partial_release(tmp_path, name, request):
    target = request.getfixturevalue("postgres") if name == "postgres" else str(tmp_path / name)
    whole = make()
    whole.export(target, unmetered=True)
    child = Process(target=write_and_die, args=(target,))
    child.start()
    child.join()
    assert child.exitcode == -9
    time.sleep(0.2 if name == "postgres" else 0)  # the server notices that its client is gone
    if name == "postgres":
        import psycopg

        connect = psycopg.connect
    else:
        connect = duckdb.connect if name.endswith("duckdb") else sqlite3.connect
    with connect(target) as base:
        for table in ("release", "release_meta"):
            identities = base.execute(f"SELECT DISTINCT release_id FROM {table}").fetchall()
            assert identities == [(whole.provenance["release_id"],)]
    make().export(target, unmetered=True)  # and the next one is not in its way


def test_first_write_killed_leaves_nothing_that_reads_as_a_release(tmp_path):
    target = str(tmp_path / "new.sqlite")
    child = Process(target=write_and_die, args=(target,))
    child.start()
    child.join()
    assert child.exitcode == -9
    if Path(target).exists():
        with sqlite3.connect(target) as base:
            assert base.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def whole_japan() -> Path | None:
    for base in Path(__file__).resolve().parents:
        path = base / "shared" / "data" / "jp_mesh500_2020.parquet"
        if path.exists():
            return path
    return None


@pytest.mark.skipif(whole_japan() is None, reason="the 2020 mesh of all Japan is not at hand (../shared/data)")
def test_the_whole_2020_mesh_to_postgis_and_geopackage_and_back(tmp_path, postgres):
    """466,144 cells: out through the stores, back with plain SQL, equal cell by cell."""
    import psycopg

    domain = Domain.of(Mesh("grid", "500m", (30 * 160, 22 * 160), shape=(39 * 160, 33 * 160)))
    counts = ks.count(whole_japan(), domain, columns={"grid": "mesh_code"}, unit=PERSON, weight="population")
    assert counts.values.sum() == 126_146_090 and counts.cells.size == 466_144
    out = ks.release(counts, ks.haar_topdown(), epsilon="10", ledger=None)
    out.export(postgres, levels=("10km",), unmetered=True)
    out.export(str(tmp_path / "japan.gpkg"), levels=("10km",), unmetered=True)
    r, c = out.cells // domain.shape[1] + 30 * 160, out.cells % domain.shape[1] + 22 * 160
    code = (r // 160 * 100 + c // 160) * 100000 + (r // 20 % 8 * 10 + c // 20 % 8) * 1000
    code += (r // 2 % 10 * 10 + c // 2 % 10) * 10 + r % 2 * 2 + c % 2 + 1
    wanted = np.stack((out.cells, code, out.values))
    sql = "SELECT cell, mesh_code, value FROM release ORDER BY cell"
    with psycopg.connect(postgres) as base:
        assert np.array_equal(np.array(base.execute(sql).fetchall()).T, wanted)
        assert base.execute("SELECT sum(value) FROM release_10km").fetchone()[0] == out.total()
    with sqlite3.connect(tmp_path / "japan.gpkg") as base:
        assert np.array_equal(np.array(base.execute(sql).fetchall()).T, wanted)
        assert base.execute("SELECT sum(value) FROM release_10km").fetchone()[0] == out.total()


@pytest.mark.parametrize("name", ["r.sqlite", "r.duckdb", "r.gpkg"])
def test_a_release_of_another_type_is_never_rounded_into_a_table(tmp_path, name):
    domain = Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(4, 4)))
    counts = ks.Counts.from_dense(np.ones((4, 4), int), domain, PERSON)
    path = str(tmp_path / name)
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).export(path, unmetered=True)
    real = ks.release(counts, ks.laplace(), epsilon="1", ledger=None)
    assert real.values.dtype.kind == "f"
    with pytest.raises(ks.DomainError, match="other columns"):
        real.export(path, unmetered=True)


def test_a_geopackage_holds_one_mesh(tmp_path):
    path = str(tmp_path / "r.gpkg")
    make().export(path, unmetered=True)
    make().export(path, unmetered=True)
    for other in (make(crs="JGD2000"), make(origin=(8400, 6081)), make(shape=(45, 29))):
        with pytest.raises(ks.DomainError, match="another window, level or reference system"):
            other.export(path, unmetered=True)
    with sqlite3.connect(path) as base:
        assert base.execute("SELECT count(*) FROM release_meta").fetchone() == (2,)


def test_postgres_refuses_another_type(postgres):
    domain = Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(4, 4)))
    counts = ks.Counts.from_dense(np.ones((4, 4), int), domain, PERSON)
    ks.release(counts, ks.geometric(), epsilon="1", ledger=None).export(postgres, unmetered=True)
    with pytest.raises(ks.DomainError, match="other columns"):
        ks.release(counts, ks.laplace(), epsilon="1", ledger=None).export(postgres, unmetered=True)


@pytest.mark.parametrize("name", ["r.sqlite", "r.duckdb", "r.gpkg", "postgres"])
def test_a_database_is_looked_into_before_anything_is_charged(tmp_path, name, request):
    """Other columns, another mesh or a foreign file are found without a release; what fits is no fault."""
    from kasuri.store.export import export_faults

    out = make()
    path = request.getfixturevalue("postgres") if name == "postgres" else str(tmp_path / name)
    assert export_faults(out.domain, [path], LEVELS) == []
    out.export(path, levels=LEVELS, unmetered=True)
    assert export_faults(out.domain, [path], LEVELS) == []
    make().export(path, levels=LEVELS, unmetered=True)
    other = Domain.of(Mesh("grid", "500m", (8400, 6080), shape=(4, 4)))
    found = export_faults(other, [path], LEVELS)
    assert len(found) == 3 and all("other columns" in fault for fault in found)  # every layer; release_meta agrees
    if name == "r.gpkg":
        assert "another window" in export_faults(make(shape=(45, 29)).domain, [path], ())[0]
    if name != "postgres":
        Path(path).write_bytes(b"something else" * 1000)
        (fault,) = export_faults(out.domain, [path], LEVELS)
        assert "use a new file" in fault


def test_a_database_that_cannot_be_reached_is_found_before(tmp_path):
    from kasuri.store.export import export_faults

    pytest.importorskip("adbc_driver_postgresql")
    (fault,) = export_faults(make().domain, ["postgresql://someone:secret@127.0.0.1:9/none"], ())
    assert "cannot be reached" in fault and "secret" not in fault


def test_what_the_geopackage_standard_requires(tmp_path):
    """OGC 12-128r18: the application id, the three registers, their rows and types, a primary key in every layer."""
    path = tmp_path / "r.gpkg"
    make().export(str(path), levels=LEVELS, unmetered=True)
    with sqlite3.connect(path) as base:

        def one(sql):
            return base.execute(sql).fetchall()

        assert one("PRAGMA application_id") == [(0x47504B47,)] and one("PRAGMA user_version")[0][0] >= 10200
        assert {-1, 0, 4326, 6668} <= {row[0] for row in one("SELECT srs_id FROM gpkg_spatial_ref_sys")}
        layers = [f"release{part}" for part in ("", "_10km", "_1km")]
        kinds = dict(one("SELECT table_name, data_type FROM gpkg_contents"))
        assert kinds == {**dict.fromkeys(layers, "features"), "release_meta": "attributes"}
        assert one("SELECT table_name, column_name, geometry_type_name, srs_id, z, m FROM gpkg_geometry_columns "
                   "ORDER BY table_name") == [(layer, "geom", "POLYGON", 6668, 0, 0) for layer in layers]  # fmt: skip
        assert one("SELECT count(*) FROM gpkg_contents WHERE last_change NOT GLOB "
                   "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*Z'") == [(0,)]  # fmt: skip
        for layer in layers:
            key = [(name, kind, pk) for _, name, kind, _, _, pk in one(f'PRAGMA table_info("{layer}")') if pk]
            assert key == [("fid", "INTEGER", 1)]
            (blob,) = one(f'SELECT geom FROM "{layer}" LIMIT 1')[0]
            assert blob[:4] == b"GP\0\1" and int.from_bytes(blob[4:8], "little") == 6668
            low, high = one(f"SELECT min_x, max_x FROM gpkg_contents WHERE table_name = '{layer}'")[0]
            assert 100 < low < high < 180


def test_gdal_reads_geoparquet_and_postgis_layers(tmp_path, postgres):
    """The drivers QGIS reads with: geometry type, reference system, and (in a database) the key."""
    pyogrio = pytest.importorskip("pyogrio")
    import psycopg

    out = make()
    drivers = pyogrio.list_drivers()
    out.export(str(tmp_path / "r.parquet"), unmetered=True)
    if "Parquet" in drivers:
        about = pyogrio.read_info(tmp_path / "r.parquet")
        assert about["geometry_type"] == "Polygon" and "6668" in about["crs"] and about["features"] == out.cells.size
    out.export(postgres, unmetered=True)
    with psycopg.connect(postgres) as base:
        if base.execute("SELECT count(*) FROM pg_extension WHERE extname = 'postgis'").fetchone() == (0,):
            pytest.skip("PostGIS is not installed")
        layer = "SELECT f_geometry_column, coord_dimension, srid, type FROM geometry_columns WHERE f_table_name = %s"
        assert base.execute(layer, ["release"]).fetchall() == [("geom", 2, 6668, "POLYGON")]
        key = ("SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = "
               "ANY(i.indkey) WHERE i.indrelid = 'release'::regclass AND i.indisprimary ORDER BY a.attnum")  # fmt: skip
        assert [name for (name,) in base.execute(key).fetchall()] == ["release_id", "cell"]
        valid = "SELECT bool_and(ST_IsValid(geom)), count(DISTINCT ST_SRID(geom)) FROM release"
        assert base.execute(valid).fetchone() == (True, 1)
    if "PostgreSQL" in drivers:
        about = pyogrio.read_info(postgres, layer="release")
        assert about["geometry_type"] == "Polygon" and "6668" in about["crs"] and about["features"] == out.cells.size


@pytest.mark.parametrize("name", ["r.sqlite", "r.duckdb", "r.parquet", "r.csv"])
def test_a_file_holds_no_bytes_of_old_memory(tmp_path, name):
    """The same release gives the same bytes, whatever DuckDB and this process held in memory before."""
    out = make()
    found = set()
    for turn in range(4):
        base = duckdb.connect()
        base.execute(f"CREATE TABLE t AS SELECT random() a, repeat('{turn}', 30) || random() b FROM range(200000)")
        base.execute("SELECT a, count(b) FROM t GROUP BY a").fetchall()
        base.close()
        (tmp_path / str(turn)).mkdir()
        out.export(str(tmp_path / str(turn) / name), unmetered=True)
        found.add((tmp_path / str(turn) / name).read_bytes())
    assert len(found) == 1


def test_a_geopackage_tells_the_day_and_not_the_minute(tmp_path):
    make().export(str(tmp_path / "r.gpkg"), unmetered=True)
    with sqlite3.connect(tmp_path / "r.gpkg") as base:
        times = {row[0][10:] for row in base.execute("SELECT last_change FROM gpkg_contents")}
    assert times == {"T00:00:00.000Z"}
