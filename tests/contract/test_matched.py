"""A grid with regions over it: matched once, saved, asked for by name, exported at the levels of the regions."""

import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyogrio
import pytest
import shapely
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.schema.maps import RegionMap, match

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
GRID = ks.Grid("grid", crs="EPSG:3035", step=1000, origin=(3000, 4000), shape=(8, 8))
"""Two towns of one county side by side, another county north of them, and sea in the east of column 6."""


def box(west, south, east, north):
    return shapely.box(4_000_000 + west, 3_000_000 + south, 4_000_000 + east, 3_000_000 + north)


TABLE = {
    "code": ["A", "B", "A1", "A2", "B1", "Z9"],
    "parent": ["", "", "A", "A", "B", "B"],
    "name": ["Ames", "Böhl", "Cook", "Dell", "Cook", "Far"],
    "name_ja": ["甲", "乙", "府中市", "丁", "府中市", ""],
    "geometry": [None, None, *map(shapely.to_wkb, (
        box(0, 0, 3400, 5000), box(3400, 0, 6300, 5000), box(0, 5000, 6300, 8000), box(90_000, 0, 91_000, 1000)))],
}  # fmt: skip
TOWNS = ks.Regions("town", TABLE, levels=("county", "town"), crs="EPSG:3035")
MAP = match(GRID, TOWNS)


def truth(axes=()):
    return np.random.default_rng(3).integers(0, 90, (8, 8, *(axis.size for axis in axes)))


def released(domain, values, recipe=None):
    return ks.release(ks.Counts.from_dense(values, domain, UNIT, data="x"), recipe, epsilon="1", ledger=None)


def test_a_cell_is_where_its_centre_is_or_where_most_of_it_is():
    """Column 3 is from 3.0 to 4.0 km, its centre east of the border at 3.4; column 6 has its centre in the sea, and 0.3
    of it on land; column 7 is all sea. A town far away has no cell and is left out."""
    labels = MAP.labels.reshape(8, 8)
    assert MAP.regions == ("A1", "A2", "B1") and MAP.name == "town" and MAP.axis == "grid"
    wanted = np.full((8, 8), -1)
    wanted[:5, :3], wanted[:5, 3:7], wanted[5:, :7] = 0, 1, 2
    assert labels.tolist() == wanted.tolist()
    assert MAP.places.span("Ames") == (0, 2) and MAP.places.span("Far") is None
    shapes = [one and shapely.segmentize(shapely.from_wkb(one), 500) for one in TABLE["geometry"]]
    there = [one and shapely.to_wkb(shapely.transform(one, moved)) for one in shapes]
    degrees = ks.Regions(
        "town", TABLE | {"geometry": there}, levels=("county", "town"), crs="EPSG:4326", tolerance=0.01
    )
    assert (match(GRID, degrees).labels == MAP.labels).all(), "places in another reference system"


def moved(xy):
    import pyproj

    return np.column_stack(pyproj.Transformer.from_crs(3035, 4326, always_xy=True).transform(*xy.T))


def test_hexagons_are_matched_too():
    hexagons = ks.H3("hex", 7, ("85283473fffffff",))
    west, south, east, north = shapely.total_bounds(
        shapely.from_wkb(hexagons.outlines([np.arange(hexagons.sizes[0])]).to_pylist())
    )
    halves = [shapely.box(west, south, (west + east) / 2, north), shapely.box((west + east) / 2, south, east, north)]
    table = {"code": ["w", "e"], "geometry": [shapely.to_wkb(half) for half in halves]}
    found = match(hexagons, ks.Regions("side", table, crs="EPSG:4326"))
    lon = hexagons.centres([np.arange(hexagons.sizes[0])])[1]
    assert (found.labels == (lon > (west + east) / 2)).all() and set(found.labels.tolist()) == {0, 1}


def test_regions_are_asked_for_by_code_and_name_with_intervals():
    age = ks.Ordered("age", 3)
    domain = ks.Domain.of(GRID, age, maps=[MAP])
    assert ks.Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain
    values = truth([age])
    labels = MAP.labels.reshape(8, 8)
    out = released(domain, values)
    dense = out.to_dense()
    for name, inside in (("A1", labels == 0), ("Dell", labels == 1), ("乙", labels == 2), ("Ames", labels < 2)):
        own = inside & (labels >= 0)
        assert out.area(town=name) == dense[own].sum()
        assert out.area(town=name, age=1) == dense[own][:, 1].sum()
        found = out.interval(town=name, age=slice(0, 2))
        assert found.lower <= out.area(town=name, age=slice(0, 2)) <= found.upper
        assert found == out.interval(cells=(own[:, :, None] & (np.arange(3) < 2)))
    west = out.area(town="Ames", cols=slice(0, 2))
    assert west == dense[:5, :2].sum() and out.area(ks.Area(town="Ames", cols=slice(0, 2))) == west
    with pytest.raises(DomainError, match="2 places are called 'Cook': A1 in Ames, B1 in Böhl"):
        out.area(town="Cook")
    with pytest.raises(DomainError, match="town: no region 'Far'"):
        out.area(town="Far")
    with pytest.raises(DomainError, match=r"no dimension \['city'\].*'town'"):
        out.area(city="Cook")


def test_a_map_is_saved_in_the_manifest_and_read_back(tmp_path):
    out = released(ks.Domain.of(GRID, maps=[MAP]), truth())
    out.save(str(tmp_path / "out"), unmetered=True)
    assert ks.verify(str(tmp_path / "out"))["faults"] == []
    again = ks.Release.load(str(tmp_path / "out"))
    assert again.domain.maps == (MAP,) and again.interval(town="Ames") == out.interval(town="Ames")
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert '"Böhl"' in json.dumps(package, ensure_ascii=False)
    plain = released(ks.Domain.of(GRID), truth())
    assert plain.provenance["plan"] != out.provenance["plan"], "the map is in the plan's fingerprint"
    MAP.save(tmp_path / "towns.json")
    with pytest.raises(DomainError, match="not written"):
        MAP.save(tmp_path / "towns.json")
    assert RegionMap.load(tmp_path / "towns.json") == MAP
    plain.save(str(tmp_path / "plain"), unmetered=True)
    for folder, more in (("out", []), ("plain", ["--map", str(tmp_path / "towns.json")])):
        asked = ["query", str(tmp_path / folder), *more, "--json"]
        one = json.loads(CliRunner().invoke(app, [*asked, "--where", "town=Ames"]).stdout)["rows"]
        side = out if folder == "out" else plain
        assert [one[0][key] for key in ("value", "lower", "upper")] == [
            side.area(cells=(MAP.labels < 2).reshape(8, 8) & (MAP.labels >= 0).reshape(8, 8)),
            *(getattr(side.interval(cells=MAP.inside("A").reshape(8, 8)), end) for end in ("lower", "upper")),
        ]  # fmt: skip
        rows = json.loads(CliRunner().invoke(app, [*asked, "--by", "town"]).stdout)["rows"]
        assert [row["label"] for row in rows] == ["A1 Cook", "A2 Dell", "B1 Cook"]
        assert sum(row["value"] for row in rows) == side.area(cells=(MAP.labels >= 0).reshape(8, 8))


@pytest.mark.parametrize(
    "recipe", [None, ks.haar_topdown(), ks.geometric(), ks.refined_tree(), ks.privelet(order="2d")]
)
def test_exports_have_a_table_of_every_level_of_the_regions(tmp_path, recipe):
    out = released(ks.Domain.of(GRID, ks.Ordered("age", 2), maps=[MAP]), truth([ks.Ordered("age", 2)]), recipe)
    for kind in ("gpkg", "csv", "sqlite", "geojson", "parquet", "duckdb"):
        out.export(str(tmp_path / f"x.{kind}"), levels=["town", "county", "4"], unmetered=True)
    for level, codes in (("town", ["A1", "A2", "B1"]), ("county", ["A", "B"])):
        meta, found = pyogrio.read_arrow(tmp_path / "x.gpkg", layer=f"release_{level}")
        found = pa.table(found)
        assert meta["crs"] == "EPSG:3035" and meta["geometry_type"] == "MultiPolygon"
        assert set(found["town"].to_pylist()) == set(codes)
        for code, name, age, value, lower, upper, geom in zip(
            *(found[c].to_pylist() for c in ("town", "town_name", "age", "value", "lower", "upper", "geom")),
            strict=True,
        ):
            assert value == out.area(town=code, age=age) and name == TABLE["name"][TABLE["code"].index(code)]
            if recipe is not None and recipe.name == "privelet":
                assert lower is None, "many areas have no closed form there"
            else:
                span = out.interval(town=code, age=age)
                assert (lower, upper) == (span.lower, span.upper)
            wanted = [shapely.from_wkb(shape) for own, shape in zip(TABLE["code"], TABLE["geometry"], strict=True)
                      if shape and own.startswith(code)]  # fmt: skip
            assert shapely.equals(shapely.from_wkb(geom), shapely.union_all(wanted))
        with sqlite3.connect(tmp_path / "x.sqlite") as base:
            total = base.execute(f"SELECT sum(value) FROM release_{level}").fetchone()[0]
        assert total == sum(found["value"].to_pylist())
        told = json.loads((tmp_path / f"x_{level}.geojson").read_text())["features"]
        assert {one["geometry"]["type"] for one in told} == {"MultiPolygon"} and len(told) == found.num_rows
    assert pyogrio.read_info(tmp_path / "x.gpkg", layer="release")["geometry_type"] == "Polygon"
    with pytest.raises(DomainError, match="there are 2, 4, 8, town, county"):
        out.export(str(tmp_path / "y.csv"), levels=["state"], unmetered=True)


def test_places_without_shapes_have_tables_without_outlines(tmp_path):
    """Such as a public list cell -> municipality that somebody else made."""
    bare = ks.Regions(
        "town", {key: values[:5] for key, values in TABLE.items() if key != "geometry"}, levels=("county", "town")
    )
    own = RegionMap("grid", MAP.labels, name="town", regions=bare.labels, places=bare)
    out = released(ks.Domain.of(GRID, maps=[own]), truth())
    for kind in ("gpkg", "geojson", "parquet"):
        out.export(str(tmp_path / f"x.{kind}"), levels=["county"], unmetered=True)
    found = pa.table(pyogrio.read_arrow(tmp_path / "x.gpkg", layer="release_county")[1])
    assert dict(zip(found["town"].to_pylist(), found["value"].to_pylist(), strict=True)) == {
        code: out.area(town=code) for code in "AB"
    }
    assert "geom" not in found.column_names


def test_woven_tree_takes_the_same_value(tmp_path):
    domain = ks.Domain.of(GRID, maps=[MAP])
    out = released(domain, truth(), ks.woven_tree(views={"cells": "10", "town": "10"}, maps=[MAP]))
    out.save(str(tmp_path / "out"), unmetered=True)
    assert ks.verify(str(tmp_path / "out"))["faults"] == []
    assert "map town (regions)" in out.guarantee.public
    assert ks.Release.load(str(tmp_path / "out")).interval(town="B1") == out.interval(town="B1")
    elsewhere = ks.Domain.of(ks.Grid("grid", crs="EPSG:3035", step=1000, origin=(3001, 4000), shape=(8, 8)))
    with pytest.raises(DomainError, match="made for another window"):
        ks.woven_tree(maps=[MAP]).on(elsewhere, UNIT, "1")


def test_the_command_and_the_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features = [
        {"type": "Feature", "properties": {key: TABLE[key][i] for key in ("code", "parent", "name", "name_ja")},
         "geometry": json.loads(shapely.to_geojson(shapely.from_wkb(shape))) if shape else None}
        for i, shape in enumerate(TABLE["geometry"])
    ]  # fmt: skip
    about = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3035"}}
    (tmp_path / "towns.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "crs": about, "features": features})
    )
    row, col = np.divmod(np.arange(640) % 64, 8)
    pa.csv.write_csv(pa.table({"person": np.arange(640), "row": row + 3000, "col": col + 4000}), "rows.csv")
    text = (
        '[data]\nname = "x"\nfiles = ["rows.csv"]\ncolumns = { grid = ["row", "col"] }\n'
        '[[axes]]\nkind = "grid"\nname = "grid"\ncrs = "EPSG:3035"\nstep = 1000\norigin = [3000, 4000]\n'
        'shape = [8, 8]\n[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
        '[budget]\nepsilon = "1"\nunmetered = true\n[output]\nfolder = "out"\n'
    )
    (tmp_path / "job.toml").write_text(text)
    places = 'town=regions(places="towns.geojson", levels=["county", "town"])'
    done = CliRunner().invoke(app, ["geography", "match", "job.toml", places, "--out", "towns.json", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["cells"] == 64 and told["regions"] == 3 and told["cells_without_region"] == 8
    assert (
        told["regions_without_cells"] == ["Z9"] and RegionMap.load("towns.json").labels.tolist() == MAP.labels.tolist()
    )
    (tmp_path / "job.toml").write_text(
        text + 'exports = ["x.csv", "x.gpkg"]\nlevels = ["county"]\n[[maps]]\nfile = "towns.json"\n'
        '[recipe]\nname = "woven_tree"\nmaps = [{ public = "town", axis = "grid", file = "towns.json" }]\n'
    )
    assert job.check(tmp_path / "job.toml") == []
    job.run(job.load(tmp_path / "job.toml"), tmp_path)
    out = ks.Release.load("out")
    assert f'"B","Böhl","乙",{out.area(town="B")}' in (tmp_path / "x_county.csv").read_text(encoding="utf-8-sig")
    for change, kind, words in (
        (('file = "towns.json"\n[recipe]', 'file = "rows.csv"\n[recipe]'), PrivacyError, "the map rows.csv"),
        (('file = "towns.json"\n[recipe]', 'file = "none.json"\n[recipe]'), DomainError, "cannot be read"),
        (('file = "towns.json"\n[recipe]', 'file = "towns.geojson"\n[recipe]'), DomainError, "not a map of regions"),
        (("origin = [3000, 4000]", "origin = [3000, 4001]"), DomainError, "made for another window"),
        (('public = "town"', 'public = "city"'), DomainError, "is the map 'town' over axis 'grid'"),
        (('levels = ["county"]', 'levels = ["state"]'), DomainError, "there are 2, 4, 8, town, county"),
    ):
        (tmp_path / "bad.toml").write_text(
            (tmp_path / "job.toml").read_text().replace(*change).replace('"out"', '"o2"')
        )
        with pytest.raises(kind, match=words):
            job.run(job.load(tmp_path / "bad.toml"), tmp_path)
        assert not (tmp_path / "o2").exists()


def test_the_places_of_a_job_are_not_read_from_its_rows(tmp_path):
    """A map of them would be declared public by the next job, in which it is a file of its own."""
    (tmp_path / "rows.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    (tmp_path / "rows.csv").symlink_to("rows.geojson")
    (tmp_path / "job.toml").write_text(
        '[data]\nname = "x"\nfiles = ["rows.csv"]\ncolumns = { town = "town" }\n'
        '[[axes]]\nkind = "regions"\nname = "town"\nplaces = "rows.geojson"\n'
        '[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
        '[budget]\nepsilon = "1"\nunmetered = true\n[output]\nfolder = "out"\n'
    )
    asked = ["geography", "match", "grid=grid(eu,1kmN3000E4000,1kmN3001E4001)", str(tmp_path / "job.toml")]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "map.json")])
    assert isinstance(done.exception, PrivacyError) and "is the confidential file itself" in str(done.exception)
    assert not (tmp_path / "map.json").exists()


def test_what_is_no_map(tmp_path):
    for bad, words in (
        (lambda: match(TOWNS, GRID), "match a grid with one, in this order"),
        (lambda: match(ks.Mesh("grid", shape=(4, 4)), TOWNS), "has no place on earth"),
        (lambda: match(GRID, ks.Regions("town", {"code": ["a"]})), "has no shapes"),
        (lambda: match(ks.Grid("town", crs="EPSG:3035", step=1000, shape=(2, 2)), TOWNS), "both called 'town'"),
        (lambda: match(ks.Grid("grid", crs="EPSG:3035", step=1000, shape=(2, 2)), TOWNS), "are they of one country"),
        (lambda: ks.Domain.of(GRID, maps=[MAP, MAP]), "must be of letters"),
        (lambda: ks.Domain.of(GRID, ks.Ordered("town", 2), maps=[MAP]), "not that of an axis"),
        (lambda: ks.Domain.of(GRID, maps=[RegionMap("grid", MAP.labels, name="my towns")]), "must be of letters"),
        (lambda: ks.Domain.of(GRID, maps=[RegionMap("grid", [0, 1], name="t")]), "has 2 labels"),
        (lambda: ks.Domain.of(ks.Ordered("age", 3), maps=[MAP]), "which the domain does not have"),
        (
            lambda: RegionMap("grid", MAP.labels, name="x", regions=TOWNS.labels, places=TOWNS),
            "an axis of the same name",
        ),
    ):
        with pytest.raises(DomainError, match=words):
            bad()
    MAP.save(tmp_path / "map.json")
    told = json.loads((tmp_path / "map.json").read_text())
    for change in ({"runs": "x"}, {"labels": [9]}, {"places": {"kind": "mesh"}}, {"kind": "x"}, {"regions": None}):
        (tmp_path / "bad.json").write_text(json.dumps(told | change))
        with pytest.raises((FormatError, DomainError)):
            RegionMap.load(tmp_path / "bad.json")


@pytest.mark.parametrize("which", ["grid and regions", "hexagons", "places"])
def test_postgis_has_every_geography_with_its_system_and_names(postgres, which):
    import psycopg

    if which == "hexagons":
        axis, domain, level = None, ks.Domain.of(ks.H3("hex", 7, ("85283473fffffff",))), "6"
    elif which == "places":
        axis, domain, level = TOWNS, ks.Domain.of(TOWNS), "county"
    else:
        axis, domain, level = None, ks.Domain.of(GRID, maps=[MAP]), "county"
    rng = np.random.default_rng(6)
    out = released(domain, rng.integers(1, 90, domain.shape))
    out.export(postgres, levels=[level], unmetered=True)
    place = axis or domain.axes[0]
    with psycopg.connect(postgres) as base:
        if base.execute("SELECT count(*) FROM pg_extension WHERE extname = 'postgis'").fetchone() != (1,):
            pytest.skip("PostGIS is not installed (apt-get install postgresql-postgis)")
        rows = base.execute(
            "SELECT cell, value, ST_AsBinary(geom), ST_SRID(geom), ST_IsValid(geom) FROM release ORDER BY cell"
        ).fetchall()
        assert [row[:2] for row in rows] == list(zip(out.cells.tolist(), out.values.tolist(), strict=True))
        assert {row[3:] for row in rows} == {(place.epsg, True)}
        wanted = place.outlines(domain.unravel(out.cells)).to_pylist()
        assert shapely.equals_exact(shapely.from_wkb([bytes(row[2]) for row in rows]), shapely.from_wkb(wanted)).all()
        kinds = base.execute(f'SELECT DISTINCT GeometryType(geom), ST_SRID(geom) FROM "release_{level}"').fetchall()
        assert kinds == [("MULTIPOLYGON", place.epsg)]
        total = base.execute(f'SELECT sum(value) FROM "release_{level}"').fetchone()[0]
        if which == "hexagons":
            assert total == out.total()
            return
        named = base.execute("SELECT town, town_name, town_name_ja, value, lower, upper FROM release_county").fetchall()
        for code, name, japanese, value, lower, upper in named:
            at, span = TABLE["code"].index(code), out.interval(town=code)
            assert (name, japanese) == (TABLE["name"][at], TABLE["name_ja"][at])
            assert (value, lower, upper) == (out.area(town=code), span.lower, span.upper)
        assert total == sum(row[3] for row in named) and len(named) == 2
