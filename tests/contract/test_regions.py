"""Trees of places: read from files, asked for by code and name, every fault at once, points found in their shapes."""

import json
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyogrio
import pytest
import shapely
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app
from kasuri.errors import DomainError, FormatError
from kasuri.job.axes import parse

RNG = np.random.default_rng(2)
LATLON = {"lat": "lat", "lon": "lon"}
UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
CODES = ["01", "02", "03", "01001", "01003", "02001", "02003", "02005"]
NAMES = ["Ames", "Böhl", "Alone", "Cook", "Dell", "Cook", "Eyre", "Ames"]
JAPANESE = ["甲", "乙", "丙", "府中市", "丁", "府中市", "", "戊"]
LIST = {"code": CODES, "name": NAMES, "name_ja": JAPANESE}
"""Two places with places below them and one without: five and one that records hold."""
SQUARES = {  # two rows of three squares of ten degrees; the lower left corner of each
    "01001": (0, 0), "01003": (10, 0), "02001": (20, 0), "02003": (0, 10), "02005": (10, 10), "03": (20, 10),
}  # fmt: skip


def regions(**more):
    return ks.Regions("place", LIST, prefix=(2, 5), levels=("state", "county"), **more)


def shape(code):
    x, y = SQUARES[code]
    return shapely.box(x, y, x + 10, y + 10)


def shaped(folder, ending="gpkg", shapes=shape, crs="EPSG:4326", **more):
    """A file of the squares, and the axis that is read from it."""
    held = [code if code in SQUARES else None for code in CODES]
    frame = geopandas.GeoDataFrame(
        {**LIST, "geometry": [None if code is None else shapes(code) for code in held]}, crs=crs
    )
    path = folder / f"places.{ending}"
    frame.to_file(path)
    return ks.Regions("place", path, prefix=(2, 5), levels=("state", "county"), **more)


def released(axis, values):
    cells = np.flatnonzero(values)
    counts = ks.Counts(ks.Domain.of(axis), cells, np.asarray(values)[cells], UNIT, "census")
    return ks.release(counts, ks.refined_tree(order="hierarchy"), epsilon="1", ledger=None)


VRT = (
    '<OGRVRTDataSource><OGRVRTLayer name="rows"><SrcDataSource relativeToVRT="1">held/rows.csv</SrcDataSource>'
    "</OGRVRTLayer></OGRVRTDataSource>"
)


def test_confidential_rows_are_not_places_by_way_of_their_folder_or_of_a_file_that_points_to_them(tmp_path):
    """Neither is the confidential file, so comparing files does not tell."""
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "rows.csv").write_text("person,code\np1,secret\n")
    (tmp_path / "places.vrt").write_text(VRT)
    (tmp_path / "places.geojson").write_text(VRT)
    with sqlite3.connect(tmp_path / "places.sqlite") as base:
        base.execute("CREATE TABLE places AS SELECT 'secret' AS code")
    base.close()
    itself = "hold shapes itself"
    for name, words in (
        ("held", "is a folder"), ("places.vrt", itself), ("places.geojson", itself), ("places.sqlite", itself)
    ):  # fmt: skip
        with pytest.raises(FormatError, match=words) as refused:
            ks.Regions("place", tmp_path / name)
        assert "secret" not in str(refused.value)


def test_no_address_in_a_file_of_shapes_is_followed(tmp_path):
    """GDAL tells by the content what a file is, and would fetch what it names before kasuri can look."""
    asked = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}"
        feature = {
            "type": "Feature",
            "properties": {"code": "a"},
            "geometry": json.loads(shapely.to_geojson(shape("03"))),
        }
        places = {"type": "FeatureCollection", "features": [feature]}
        linked = {"type": "LINK", "properties": {"href": f"{here}/system"}}
        held = {
            "layer.geojson": VRT.replace("held/rows.csv", f"/vsicurl/{here}/a.geojson").replace('"1"', '"0"'),
            "service.geojson": f"<OGRWFSDataSource><URL>{here}/wfs</URL></OGRWFSDataSource>",
            "pipe.gdalg.json": json.dumps(
                {"type": "gdal_streamed_alg", "command_line": f"gdal vector pipeline ! read /vsicurl/{here}/b.geojson"}
            ),
            "system.geojson": json.dumps({**places, "crs": linked}),
            "inner.geojson": json.dumps(places).replace(
                '"geometry": {', '"geometry": {"\\u0063rs": ' + json.dumps(linked) + ", "
            ),
        }
        for name, text in held.items():
            (tmp_path / name).write_text(text)
            with pytest.raises(FormatError, match="hold shapes itself"):
                ks.Regions("place", tmp_path / name)
        server.shutdown()
    assert asked == []
    feature["properties"] |= {"type": "link", "url": "http://x.y"}  # what a place says of itself is not followed
    (tmp_path / "good.geojson").write_text("\ufeff" + json.dumps(places))
    assert ks.Regions("place", tmp_path / "good.geojson").labels == ("a",)


def test_every_place_is_asked_for_by_code_and_by_name():
    axis = regions()
    assert axis.labels == ("01001", "01003", "02001", "02003", "02005", "03")
    assert [axis.span(text) for text in ("01", "02", "03", "02003", "Böhl", "乙", "Dell", "丙", "Alone")] == [
        (0, 2), (2, 5), (5, 6), (3, 4), (2, 5), (2, 5), (1, 2), (5, 6), (5, 6)]  # fmt: skip
    assert axis.span("Cook, Ames") == (0, 1) and axis.span("府中市, Böhl") == axis.span("Cook, 02") == (2, 3)
    assert axis.span("Nowhere") is None and axis.span("") is None and axis.span("Cook, Alone") is None
    with pytest.raises(DomainError, match="2 places are called 'Cook': 01001 in Ames, 02001 in Böhl; ask by code"):
        axis.span("Cook")
    with pytest.raises(DomainError, match="2 places are called 'Ames': 01, 02005 in Böhl"):
        axis.span("Ames")
    assert axis.tree_paths() == ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2,))
    out = released(axis, [900, 50, 0, 300, 20, 70])
    assert out.area(place="Böhl") == sum(out.area(place=code) for code in ("02001", "02003", "02005"))
    found = out.interval(place="乙")
    assert found == out.interval(place="02") and found.lower <= out.area(place="02") <= found.upper
    with pytest.raises(DomainError, match="ask by code"):
        out.area(place="府中市")


def test_parents_by_column_give_the_same_tree(tmp_path):
    parents = [code[:2] if len(code) == 5 else "" for code in CODES]
    by_column = ks.Regions("place", LIST | {"parent": parents}, levels=("state", "county"))
    assert by_column == regions()
    (tmp_path / "list.csv").write_text(
        "fips,up,name,name_ja\n"
        + "".join(",".join(row) + "\n" for row in zip(CODES, parents, NAMES, JAPANESE, strict=True))
    )
    read = ks.Regions("place", tmp_path / "list.csv", code="fips", parent="up", levels=("state", "county"))
    assert read == by_column and hash(read) == hash(by_column)
    assert ks.Regions("place", pa.table(LIST), prefix=(2, 5), levels=("state", "county")) == by_column
    two = [{key: values[:3] for key, values in LIST.items()}, {key: values[3:] for key, values in LIST.items()}]
    assert ks.Regions("place", two, prefix=(2, 5), levels=("state", "county")) == by_column
    alone = ks.Regions("place", {"code": CODES[3:]}, prefix=(2, 5))  # the states follow from the codes
    assert alone.span("01") == (0, 2) and alone.levels == ("1", "2")
    said = f'place=regions(places="{tmp_path}/list.csv", code="fips", parent="up", levels=["state", "county"])'
    assert parse(said).make(tmp_path) == by_column
    domain = ks.Domain.of(by_column, ks.Ordered("age", 3))
    assert ks.Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain


@pytest.mark.parametrize(
    ("table", "more", "words"),
    [
        ({"code": ["a", "b", "b", "c", "c", "d"], "parent": ["", "a", "a", "a", "b", "x"]}, {},
         ["code b is there more than once", "c has two parents", "d has a parent that is not in the list"]),
        ({"code": ["a", "b", "c", "d"], "parent": ["b", "a", "c", ""]}, {},
         ["parents of a never end", "parents of b never end", "parents of c never end"]),
        ({"code": ["a", "", "b\n"]}, {}, ["row 1 has no code", "U+000A"]),
        ({"code": []}, {}, ["no place"]),
        ({"code": [1001, 1003], "geometry": [None, None]}, {"names": ("title",), "points": "x"},
         ["column code is not text", "lost its leading zeros", "without a reference system", "no column title",
          "points: 'x'"]),
        ({"code": ["1001", "01003", "01003"]}, {"prefix": (2, 5), "points": "EPSG:99999"},
         ["length that is not in prefix (2, 5): 1001", "01003 is there more than once", "EPSG:99999 is not a known"]),
        ({"code": ["a", "b", "b"], "parent": ["", "", "a"], "geometry": [None] * 3},
         {"crs": "EPSG:99999", "points": "EPSG:1"}, ["b has two parents", "crs: EPSG:99999", "points: 'EPSG:1'"]),
        ({"code": ["01003"]}, {"prefix": (5, 2)}, ["rising from the top"]),
        ({"code": ["01"], "parent": [""]}, {"prefix": (2,), "parent": "parent"}, ["not both"]),
        ({"code": ["01", "01001"]}, {"prefix": (2, 5), "levels": ("state",)}, ["2 levels need"]),
        ({"code": ["01", "01001"]}, {"prefix": (2, 5), "levels": ("meta", "x y")}, ["names of levels are"]),
        ({"id": ["a"]}, {}, ["no column code"]),
        ({"code": ["a"], "name": ["x", "y"]}, {}, ["one length"]),
        ({"code": ["a"], "name_\u202e": ["x"]}, {}, ["rename it"]),
    ],
)  # fmt: skip
def test_faults_of_a_list_at_once(table, more, words):
    with pytest.raises(DomainError) as found:
        ks.Regions("place", table, **more)
    assert all(any(word in fault for fault in found.value.faults) for word in words), found.value.faults


@pytest.mark.parametrize("ending", ["gpkg", "geojson", "shp"])
def test_files_of_shapes(tmp_path, ending):
    axis = shaped(tmp_path, ending)
    assert axis.epsg == 4326 and axis.extent() == (0, 0, 30, 20) and axis.span("Böhl") == (2, 5)
    found = shapely.from_wkb(axis.outlines([np.arange(6)]).to_pylist())
    assert shapely.equals(found, np.array([shape(code) for code in axis.labels])).all()
    assert ks.Domain.from_json(json.loads(json.dumps(ks.Domain.of(axis).to_json()))).axes == (axis,)


def test_topojson_says_no_system_and_has_layers(tmp_path):
    arcs = [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]
    own = {"type": "Polygon", "arcs": [[0]], "id": "01001", "properties": {"name": "Cook"}}
    above = {"type": None, "id": "01", "properties": {"name": "Ames"}}
    layers = {"county": [own], "state": [above]}
    objects = {name: {"type": "GeometryCollection", "geometries": parts} for name, parts in layers.items()}
    path = tmp_path / "x.topojson"
    path.write_text(json.dumps({"type": "Topology", "arcs": arcs, "objects": objects}))
    axis = ks.Regions("place", path, code="id", prefix=(2, 5), layers=("county",), crs="EPSG:4326")
    assert axis.labels == ("01001",) and axis.extent() == (0, 0, 10, 10) and axis.epsg == 4326
    with pytest.raises(FormatError, match="no such layer"):
        ks.Regions("place", path, code="id", layers=("city",), crs="EPSG:4326")


def moved(code):
    return shapely.transform(shape(code), lambda xy: xy + np.array([0.5, 0])) if code == "01001" else shape(code)


def in_europe(code):
    return shapely.transform(shape(code), lambda xy: xy * 10_000 + np.array([4_000_000, 3_000_000]))


def crossed(code):
    x, y = SQUARES[code]
    return shapely.Polygon([(x, y), (x + 10, y + 10), (x + 10, y), (x, y + 10)]) if code == "03" else shape(code)


def test_faults_of_shapes(tmp_path):
    with pytest.raises(DomainError, match="01001 and 01003 cover the same ground"):
        shaped(tmp_path, shapes=moved)
    assert shaped(tmp_path, shapes=moved, tolerance=0.06).epsg == 4326
    with pytest.raises(DomainError, match="outline of 03 crosses itself; correct it, or say repair"):
        shaped(tmp_path, shapes=crossed)
    assert shapely.area(shapely.from_wkb(shaped(tmp_path, shapes=crossed, repair=True).shapes[5])) == 50
    with pytest.raises(DomainError, match="03 has no polygon"):
        shaped(tmp_path, shapes=lambda code: shapely.Point(1, 1) if code == "03" else shape(code))
    unknown = ["POLYGON", b"x", shapely.to_wkb(shapely.Polygon()), shapely.to_wkb(shape("01001"))]
    with pytest.raises(DomainError, match=r"a has no polygon\n.*b has no polygon\n.*c has no polygon$"):
        ks.Regions("place", {"code": [*"abcd"], "geometry": unknown}, crs="EPSG:4326", repair=True)
    with pytest.raises(DomainError, match="the shapes are in EPSG:4326, not in EPSG:3035"):
        shaped(tmp_path, crs="EPSG:4326", ending="gpkg").__class__(
            "place", tmp_path / "places.gpkg", prefix=(2, 5), crs="EPSG:3035"
        )
    for crs in ("EPSG:3035", "EPSG:3857"):
        with pytest.raises(DomainError, match=f"not in {crs}: they are within 360 units of its origin, as degrees are"):
            shaped(tmp_path, crs=crs)
    with pytest.raises(DomainError, match="coordinates leave the globe"):
        shaped(tmp_path, shapes=lambda code: shapely.transform(shape(code), lambda xy: xy * 1e5))
    with pytest.raises(DomainError, match="not in EPSG:3035: they are far from where it is used"):
        shaped(tmp_path, shapes=lambda code: shapely.transform(shape(code), lambda xy: xy + 1e8), crs="EPSG:3035")
    with pytest.raises(DomainError, match=r"not in EPSG:4258: .* are its coordinates exchanged\?"):
        shaped(
            tmp_path,
            shapes=lambda code: shapely.transform(shape(code), lambda xy: xy + np.array([50, 2])),
            crs="EPSG:4258",
        )
    assert shaped(tmp_path, shapes=in_europe, crs="EPSG:3035").epsg == 3035


def test_points_are_found_as_geopandas_finds_them(tmp_path):
    axis = shaped(tmp_path)
    lat, lon = RNG.uniform(-2, 22, 3000), RNG.uniform(-2, 32, 3000)
    lat[:300], lon[300:600] = RNG.integers(0, 3, 300) * 10, RNG.integers(0, 4, 300) * 10  # borders and corners
    lat[600], lon[601] = np.nan, np.inf
    (found,), wrong, _ = axis.indices(LATLON, [lat, lon])
    points = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(lon, lat), crs=4326)
    polygons = geopandas.GeoDataFrame({"at": range(6)}, geometry=[shape(code) for code in axis.labels], crs=4326)
    first = points.sjoin(polygons, predicate="intersects").groupby(level=0)["at"].min()
    wanted = np.full(3000, -1)
    wanted[first.index] = first
    assert np.where(wrong, -1, found).tolist() == wanted.tolist()
    assert 0 < wrong.sum() < 2000 and wrong[600] and wrong[601]
    metric = shaped(tmp_path, points="EPSG:3857")
    x, y = geopandas.GeoSeries(points.geometry[:500], crs=4326).to_crs(3857).x, points.geometry[:500].to_crs(3857).y
    inside = (np.abs(lat[:500] % 10) > 1e-6) & (np.abs(lon[:500] % 10) > 1e-6)
    (moved_to,), gone, _ = metric.indices(LATLON, [y.to_numpy(), x.to_numpy()])
    assert np.where(gone, -1, moved_to)[inside].tolist() == wanted[:500][inside].tolist()
    assert regions().place_faults(LATLON) and not axis.place_faults(LATLON)


def test_a_job_from_points_to_a_map(tmp_path):
    axis = shaped(tmp_path)
    rows = {"person": np.arange(600), "lat": RNG.uniform(0, 20, 600), "lon": RNG.uniform(0, 30, 600)}
    rows["lat"][:5] = 80.0
    pa.csv.write_csv(pa.table(rows), tmp_path / "rows.csv")
    path = tmp_path / "job.toml"
    path.write_text(
        '[data]\nname = "x"\nfiles = ["rows.csv"]\ncolumns = { place = { lat = "lat", lon = "lon" } }\n'
        '[[axes]]\nkind = "regions"\nname = "place"\nplaces = "places.gpkg"\nprefix = [2, 5]\n'
        'levels = ["state", "county"]\n[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
        '[recipe]\nname = "refined_tree"\n[budget]\nepsilon = "1"\nunmetered = true\n'
        '[output]\nfolder = "out"\nexports = ["x.gpkg", "x.csv", "x.sqlite", "x.geojson", "x.parquet"]\n'
        'levels = ["state"]\n'
    )
    assert job.domain(job.load(path), tmp_path).axes == (axis,)
    (fault,) = job.check(path)
    assert "not a point in EPSG:4326 inside a place of axis 'place'" in fault
    job.run(job.load(path), tmp_path)
    out = ks.Release.load(str(tmp_path / "out"))
    assert ks.verify(str(tmp_path / "out"))["faults"] == [] and out.domain.axes == (axis,)
    assert out.recipe["order"] == "hierarchy", "without being asked"
    meta, states = pyogrio.read_arrow(tmp_path / "x.gpkg", layer="release_state")
    states = pa.table(states)
    assert meta["crs"] == "EPSG:4326"
    for code, name, japanese, value, lower, upper, geom in zip(
        *(states[c].to_pylist() for c in ("place", "place_name", "place_name_ja", "value", "lower", "upper", "geom")),
        strict=True,
    ):
        span = out.interval(place=code)
        assert value == out.area(place=code) and (lower, upper) == (span.lower, span.upper)
        assert (name, japanese) == (NAMES[CODES.index(code)], JAPANESE[CODES.index(code)])
        below = [label for label in axis.labels if label.startswith(code)]
        assert shapely.equals(shapely.from_wkb(geom), shapely.union_all([shape(label) for label in below]))
    assert sum(states["value"].to_pylist()) == out.total()
    text = (tmp_path / "x.csv").read_text(encoding="utf-8-sig")
    assert '"01001","Cook","府中市"' in text or "01001,Cook,府中市" in text
    with sqlite3.connect(tmp_path / "x.sqlite") as base:
        assert base.execute("SELECT sum(value) FROM release_state").fetchone()[0] == out.total()


def test_without_shapes_there_are_levels_and_no_map(tmp_path):
    out = released(regions(), [900, 50, 0, 300, 20, 70])
    out.export(str(tmp_path / "x.csv"), levels=["state"], unmetered=True)
    assert "Böhl" in (tmp_path / "x_state.csv").read_text(encoding="utf-8-sig")
    with pytest.raises(DomainError, match="a map format needs"):
        out.export(str(tmp_path / "x.gpkg"), unmetered=True)
    with pytest.raises(DomainError, match="there are state"):
        out.export(str(tmp_path / "y.csv"), levels=["city"], unmetered=True)


def test_a_stored_domain_that_lies_about_its_shapes(tmp_path):
    told = ks.Domain.of(shaped(tmp_path)).to_json()
    for change in ({"lengths": [1]}, {"lengths": [10] * 6}, {"wkb": ""}):
        forged = json.loads(json.dumps(told))
        forged["axes"][0]["shapes"] |= change
        with pytest.raises(FormatError):
            ks.Domain.from_json(forged)
    forged = json.loads(json.dumps(told))
    forged["axes"][0]["codes"].reverse()
    with pytest.raises((FormatError, DomainError)):
        ks.Domain.from_json(forged)


def on_sheet(rings):
    """Square units inside rings, by the even-odd rule."""
    if not rings:
        return 0.0
    whole = shapely.Polygon()
    for ring in rings:
        whole = whole.symmetric_difference(shapely.make_valid(shapely.Polygon(ring)))
    return whole.area


def test_drawings_are_on_a_sheet_with_equal_areas(tmp_path):
    axis = shaped(tmp_path)
    counties, states = axis.drawing(), axis.drawing("state", side=500)
    assert (counties.level, counties.codes, counties.spans[3]) == ("county", axis.labels, (3, 4))
    assert (states.codes, states.spans) == (("01", "02", "03"), ((0, 2), (2, 5), (5, 6)))
    assert states.names == {"name": ("Ames", "Böhl", "Alone"), "name_ja": ("甲", "乙", "丙")}
    assert max(counties.width, counties.height) == 1000 and max(states.width, states.height) == 500
    for drawing in (counties, states):
        for rings in drawing.rings:
            xy = np.concatenate(rings)
            assert xy.dtype == np.int32 and xy.min() >= 0 and (xy <= [drawing.width, drawing.height]).all()
    ground = {0: np.sin(np.radians(10)), 10: np.sin(np.radians(20)) - np.sin(np.radians(10))}  # per degree of longitude
    wanted = np.array([ground[SQUARES[code][1]] for code in axis.labels])
    found = np.array([on_sheet(rings) for rings in counties.rings])
    assert np.allclose(found / found.sum(), wanted / wanted.sum(), rtol=0.02)
    corners = [{tuple(xy) for ring in rings for xy in ring.tolist()} for rings in counties.rings]
    assert len(corners[0] & corners[1]) >= 2, "neighbours share their border"
    assert counties.rings[3][0][:, 1].mean() < counties.rings[0][0][:, 1].mean(), "north is up"
    metric = shaped(tmp_path, shapes=in_europe, crs="EPSG:3035").drawing()
    assert (metric.width, metric.height) == (1000, 667)
    with pytest.raises(DomainError, match="no shapes to draw"):
        regions().drawing()
    with pytest.raises(DomainError, match="16 to 16384 units"):
        axis.drawing(side=3)


def test_a_drawing_across_the_date_line_is_in_one_piece_and_keeps_small_places():
    fiji = [
        shapely.box(177, -19, 180, -16),
        shapely.box(-180, -19, -178, -16),
        shapely.box(178, -17.5, 178.001, -17.499),
    ]
    fiji[0] = fiji[0] - fiji[2].buffer(0.1)
    table = {"code": ["a", "b", "c"], "geometry": [shapely.to_wkb(one) for one in fiji]}
    drawing = ks.Regions("place", table, crs="EPSG:4326").drawing(side=200)
    assert 190 < drawing.width <= 201 and 0 < len(drawing.rings[2][0]) <= 4
    assert max(drawing.rings[0][0][:, 0]) == min(drawing.rings[1][0][:, 0]), "they touch at 180 degrees"
    assert len(drawing.rings[0]) == 2, "a hole stays"
    hexagons = ks.H3("hex", 3, ("81283ffffffffff",)).drawing("2")
    assert hexagons.level == "2" and len(hexagons.codes) == 7 and hexagons.names == {}
    area = np.array([on_sheet(rings) for rings in hexagons.rings])
    assert area.max() < 1.3 * area.min(), "hexagons of one size, as on the ground"


@pytest.mark.parametrize(
    ("unasked", "asked"),
    [
        (ks.refined_tree(), ks.refined_tree(order="hierarchy")),
        (ks.bayes_tree(), ks.bayes_tree(order="hierarchy")),
        (ks.bayes_tree(pilot=True), ks.bayes_tree(pilot=True, order="hierarchy")),
        (ks.auto(), ks.auto(order="hierarchy")),
        (ks.recipes.hierarchy(), ks.recipes.hierarchy("hierarchy")),
        (ks.haar_topdown(), ks.haar_topdown(transform="nominal")),
    ],
    ids=lambda recipe: recipe.name,
)
def test_trees_are_followed_without_being_asked(unasked, asked, tmp_path):
    """The same plan, words and numbers as where the tree is asked for by its word; a release of it is read back."""
    domain = ks.Domain.of(regions())
    plain = ks.Domain.of(ks.Ordered("place", 6))
    assert unasked.plan(domain, UNIT, "1") == asked.plan(domain, UNIT, "1") != unasked.plan(plain, UNIT, "1")
    counts = ks.Counts(domain, np.arange(6), np.array([900, 50, 1, 300, 20, 70]), UNIT, "census")
    made = [ks.release(counts, one, epsilon="1", ledger=None, source=ks.seeded(4)) for one in (unasked, asked)]
    assert made[0].recipe == made[1].recipe and made[0].values.tolist() == made[1].values.tolist()
    out = ks.release(counts, unasked, epsilon="1", ledger=None)
    out.save(str(tmp_path / "out"), unmetered=True)
    assert ks.verify(str(tmp_path / "out"))["faults"] == []
    again = ks.Release.load(str(tmp_path / "out"))
    assert again.area(place="Böhl") == out.area(place="Böhl")
    if unasked.name != "haar_topdown":  # which publishes no measurements where fan-outs are above two
        assert again.interval(place="Böhl") == out.interval(place="Böhl")


def test_uneven_trees_are_not_refused_for_their_padding():
    """As states, counties, tracts and blocks are: 216,000 leaves below a state where every place has as many parts as
    the one with most, and 178 in truth."""
    parts = [(i, 0, 0) for i in range(60)] + [(0, i, 0) for i in range(1, 60)] + [(0, 0, i) for i in range(1, 60)]
    codes = [*(f"00{i:02d}{j:02d}{k:02d}" for i, j, k in parts), "01000000"]
    domain = ks.Domain.of(ks.Regions("place", {"code": codes}, prefix=(2, 4, 6, 8)))
    counts = ks.Counts.from_dense(np.arange(domain.size), domain, UNIT, data="x")
    for recipe in (ks.bayes_tree(), ks.bayes_tree("dense"), ks.bayes_tree(pilot=True), ks.auto()):
        out = ks.release(counts, recipe, epsilon="5", ledger=None)
        assert abs(out.area(place="00") - (counts.values.sum() - 178)) < 100


def test_an_order_that_was_asked_for_is_not_changed():
    domain = ks.Domain.of(regions())
    for recipe in (ks.refined_tree(order="morton"), ks.haar_topdown(order="morton"), ks.haar_topdown(descent="plain")):
        with pytest.raises(DomainError, match=r"has a public tree, .* would ignore"):
            recipe.on(domain, UNIT, "1")


def test_faults_of_the_list_and_of_the_shapes_at_once(tmp_path):
    """A cycle, a doubled code, an outline that crosses itself and two that overlap: one refusal names all of them."""
    codes = ["01", "02", "a", "b", "a1", "a1", "01001", "01003", "02001", "x"]
    above = ["", "", "b", "a", "01", "01", "01", "01", "02", "99"]
    shapes = [
        None,
        None,
        None,
        None,
        shape("02003"),
        None,
        moved("01001"),
        shape("01003"),
        crossed("03"),
        shape("02005"),
    ]
    frame = geopandas.GeoDataFrame({"code": codes, "parent": above, "geometry": shapes}, crs="EPSG:4326")
    frame.to_file(tmp_path / "bad.gpkg")
    with pytest.raises(DomainError) as found:
        ks.Regions("place", tmp_path / "bad.gpkg")
    for words in ("a1 is there more than once", "x has a parent that is not in the list", "parents of a never end",
                  "outline of 02001 crosses itself", "01001 and 01003 cover the same ground"):  # fmt: skip
        assert any(words in fault for fault in found.value.faults), (words, found.value.faults)


def test_bad_geographies_are_refused_at_once_and_charge_nothing(tmp_path):
    """A cycle and two places on the same ground, an unknown EPSG code, a step that does not divide: one refusal."""
    shapes = [None, None, moved("01001"), shape("01003")]
    told = {"code": ["a", "b", "01001", "01003"], "parent": ["b", "a", "", ""], "geometry": shapes}
    geopandas.GeoDataFrame(told, crs="EPSG:4326").to_file(tmp_path / "bad.gpkg")
    ks.Ledger.open(tmp_path / "x.ledger", epsilon="1", unit=UNIT, data="x")
    before = (tmp_path / "x.ledger").read_bytes()
    pa.csv.write_csv(pa.table({"person": [1], "place": ["a"], "grid": ["x"], "home": ["y"]}), tmp_path / "rows.csv")
    (tmp_path / "job.toml").write_text(
        '[data]\nname = "x"\nfiles = ["rows.csv"]\ncolumns = { place = "place", grid = "grid", home = "home" }\n'
        '[[axes]]\nkind = "regions"\nname = "place"\nplaces = "bad.gpkg"\nparent = "parent"\n'
        '[[axes]]\nkind = "grid"\nname = "grid"\ncrs = "EPSG:99999"\nstep = 10\nshape = [2, 2]\n'
        '[[axes]]\nkind = "grid"\nname = "home"\nscheme = "eu"\nlevel = "1km"\nshape = [9, 9]\nsplits = [3]\n'
        '[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
        '[budget]\nepsilon = "1"\nledger = "x.ledger"\n[output]\nfolder = "out"\n'
    )
    words = (
        "parents of a never end",
        "01001 and 01003 cover the same ground (0.05 of the smaller)",
        "crs: EPSG:99999 is not a known reference system",
        "squares of 3 x 3 cells, which are not a level of eu",
    )
    with pytest.raises(DomainError) as found:
        job.run(job.load(tmp_path / "job.toml"), tmp_path)
    done = CliRunner().invoke(app, ["release", str(tmp_path / "job.toml")])
    for said in ("\n".join(found.value.faults), "\n".join(job.check(tmp_path / "job.toml")), str(done.exception)):
        assert all(word in said.replace("\n", " ") for word in words), said
    assert done.exit_code and (tmp_path / "x.ledger").read_bytes() == before and not (tmp_path / "out").exists()


def test_check_says_of_records_what_a_release_does_not(tmp_path):
    axis = shaped(tmp_path)
    rows = {"person": [*"abcde"], "code": ["01001", "02", "99", None, "03"], "lat": [5.0, 25.0, 50.0, 5.0, 15.0],
            "lon": [25.0, 5.0, 50.0, 5.0, 25.0]}  # fmt: skip
    pa.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    for place, faults in (
        ('"code"', ["not a label of axis 'place', but a code of level state: rows 2", "of axis 'place': rows 3, 4"]),
        ('{ lat = "lat", lon = "lon" }',
         ["of axis 'place', but inside it with latitude and longitude exchanged: rows 2", "of axis 'place': rows 3"]),
    ):  # fmt: skip
        (tmp_path / "job.toml").write_text(
            f'[data]\nname = "x"\nfiles = ["rows.parquet"]\ncolumns = {{ place = {place} }}\n'
            '[[axes]]\nkind = "regions"\nname = "place"\nplaces = "places.gpkg"\nprefix = [2, 5]\n'
            'levels = ["state", "county"]\n[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
            '[budget]\nepsilon = "1"\nunmetered = true\n[output]\nfolder = "out"\n'
        )
        said = job.check(tmp_path / "job.toml")
        assert len(said) == 2 and all(one.endswith(end) for one, end in zip(said, faults, strict=True)), said
        columns = {"place": "code" if place == '"code"' else LATLON}
        counts = ks.count(str(tmp_path / "rows.parquet"), ks.Domain.of(axis), columns=columns, unit=UNIT, data="x")
        assert counts.values.sum() == 5 - (3 if place == '"code"' else 2), "the rest is left out without a word"


def test_gaps_are_listed_and_lie_outside(tmp_path):
    assert shaped(tmp_path).gaps() == [] == regions().gaps()
    lake = shapely.box(12, 2, 14, 4)
    axis = shaped(tmp_path, shapes=lambda code: shape(code) - lake if code == "01003" else shape(code))
    ((x, y, part),) = axis.gaps()
    assert lake.contains(shapely.Point(x, y)) and part == pytest.approx(4 / 596)
    assert axis.indices(LATLON, [np.array([3.0, 5.0]), np.array([13.0, 13.0])])[1].tolist() == [True, False]
    said = f'place=regions(places="{tmp_path}/places.gpkg", prefix=[2, 5], levels=["state", "county"])'
    done = CliRunner().invoke(app, ["geography", "describe", said])
    assert done.exit_code == 0 and "place: 6 of county, 3 of state\nEPSG:4326, west 0, south 0, east 30" in done.stdout
    assert "a gap around (13, 3): 0.0067 of the ground, in no place" in done.stdout
    told = json.loads(
        CliRunner().invoke(app, ["geography", "describe", "home=grid(eu,1kmN3080E3920,1kmN3111E3951)", "--json"]).stdout
    )
    assert told["levels"]["10km"] == [4, 4] and told["epsg"] == 3035 and told["gaps"] == []
