"""Grids and hexagons of the world: codes both ways, points on edges, faults all at once, and maps opened by GDAL."""

import json
import re
from fractions import Fraction
from pathlib import Path

import geopandas
import h3
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyogrio
import pyproj
import pytest
import shapely

import kasuri as ks
from kasuri import job, meshcode
from kasuri.errors import DomainError
from kasuri.job.axes import parse
from kasuri.schema import schemes
from kasuri.trees.order import make

RNG = np.random.default_rng(19)
LATLON = {"lat": "lat", "lon": "lon"}
UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
EU = ks.Grid.window("home", "eu", "1kmN3080E3920", "1kmN3111E3951")


def located(axis, lat, lon):
    found, wrong, _ = axis.indices(LATLON, [np.asarray(lat, float), np.asarray(lon, float)])
    assert not wrong.any()
    return found


def outside(axis, lat, lon):
    return axis.indices(LATLON, [np.asarray(lat, float), np.asarray(lon, float)])[1].tolist()


def world(count=20_000, most=90.0):
    """Points of the whole earth, the date line, the equator and Greenwich among them."""
    lat, lon = RNG.uniform(-most, most, count), RNG.uniform(-180, 180, count)
    lon[:50], lon[50:100], lat[100:150], lon[150:200] = 180, -180, 0, 0
    return lat, lon


@pytest.mark.parametrize(
    ("code", "metres"),
    [
        ("1kmN2689E4337", (2_689_000, 4_337_000)),
        ("CRS3035RES1000mN2689000E4337000", (2_689_000, 4_337_000)),
        ("100kmN26E43", (2_600_000, 4_300_000)),
        ("CRS3035RES100000mN2600000E4300000", (2_600_000, 4_300_000)),
        ("50kmN265E430", (2_650_000, 4_300_000)),
        ("5kmN2685E4335", (2_685_000, 4_335_000)),
        ("500mN26895E43370", (2_689_500, 4_337_000)),
        ("100mN26891E43373", (2_689_100, 4_337_300)),
    ],
)
def test_european_codes(code, metres):
    eu = schemes.scheme("eu")
    level = eu.level_of(code)
    row, col, good = eu.decode(level, pa.array([code]))
    rows, cols = eu.lines(level)
    assert good.all() and (rows.at(row)[0], cols.at(col)[0]) == metres
    short = eu.encode(level, row, col)
    assert code.startswith("CRS") or short.to_pylist() == [code]
    assert [part.tolist() for part in eu.decode(level, short)] == [row.tolist(), col.tolist(), [True]]


def test_what_is_not_a_european_code_of_the_level():
    wrong = ["10kmN268E433", "1kmE4337N2689", "5kmN2686E4335", "1kmN2689E4337 ", "", None, "1kmN99999E4337",
             "1kmN-1E4337", "CRS3035RES1000mN2689500E4337000", "CRS3034RES1000mN2689000E4337000"]  # fmt: skip
    assert not schemes.scheme("eu").decode("1km", pa.array(wrong))[2].any()
    assert not schemes.scheme("eu").decode("5km", pa.array(wrong))[2].any()


def test_european_points_by_pyproj():
    row, col = RNG.integers(0, 32, 500), RNG.integers(0, 32, 500)
    north, east = (3080 + row) * 1000 + RNG.uniform(1, 999, 500), (3920 + col) * 1000 + RNG.uniform(1, 999, 500)
    lon, lat = pyproj.Transformer.from_crs(3035, 4326, always_xy=True).transform(east, north)
    assert [part.tolist() for part in located(EU, lat, lon)] == [row.tolist(), col.tolist()]
    metric = ks.Grid.window("home", "eu", "1kmN3080E3920", "1kmN3111E3951", points="EPSG:3035")
    assert [part.tolist() for part in located(metric, [3_081_000.0], [3_921_000.0])] == [[1], [1]]  # on both lines
    below = np.nextafter(3_081_000.0, 0)
    assert [part.tolist() for part in located(metric, [below], [below - 3_081_000 + 3_921_000])] == [[0], [0]]
    assert outside(metric, [3_112_000.0, np.nan, np.inf, 3_920_000.0], [3_921_000.0] * 3 + [3_081_000.0]) == [True] * 4


def slow_geohash(lat, lon, length):
    """The published algorithm, bit by bit."""
    ends, out, bits = [[-90.0, 90.0], [-180.0, 180.0]], "", 0
    for bit in range(5 * length):
        which, value = (1, lon) if bit % 2 == 0 else (0, lat)
        middle = sum(ends[which]) / 2
        ends[which][0 if value >= middle else 1] = middle
        bits = bits * 2 + (value >= middle)
        if bit % 5 == 4:
            out, bits = out + "0123456789bcdefghjkmnpqrstuvwxyz"[bits], 0
    return out


@pytest.mark.parametrize("level", [1, 4, 7, 10])
def test_geohashes(level):
    lat, lon = world(3000)
    lat[200:210], lat[210:220] = 90, -90
    _, high, _, right = schemes.scheme("geohash").bounds(str(level))
    grid = ks.Grid("home", scheme="geohash", level=str(level), shape=(high, right))
    found = located(grid, lat, lon)
    codes = grid.column(found)["grid_code"]
    assert codes.to_pylist() == [slow_geohash(y, x, level) for y, x in zip(lat, lon, strict=True)]
    back, wrong, _ = grid.from_arrow("code", [codes])
    assert not wrong.any() and all((a == b).all() for a, b in zip(back, found, strict=True))
    assert grid.from_arrow("code", [pa.array(["a" * level, "", None, "0" * (level + 1), "é" * level])])[1].all()


@pytest.mark.parametrize("level", [1, 9, 18])
def test_quadkeys_by_the_formula_of_web_maps(level):
    lat, lon = world(20_000, 85.05)
    size = 1 << level
    sine = np.sin(np.radians(lat))
    x = np.minimum(np.floor((lon + 180) / 360 * size), size - 1).astype(int)
    y = np.floor((0.5 - np.log((1 + sine) / (1 - sine)) / (4 * np.pi)) * size).astype(int)
    grid = ks.Grid("home", scheme="quadkey", level=str(level), shape=(size, size))
    row, col = located(grid, lat, lon)
    assert (col == x).all() and (size - 1 - row == y).all()
    codes = grid.column([row, col])["grid_code"]
    for code, a, b in list(zip(codes.to_pylist(), x.tolist(), y.tolist(), strict=True))[:500]:
        assert code == "".join(str((a >> bit & 1) + 2 * (b >> bit & 1)) for bit in range(level - 1, -1, -1))
    back, wrong, _ = grid.from_arrow("code", [codes])
    assert not wrong.any() and (back[0] == row).all() and (back[1] == col).all()
    assert outside(grid, [86, -86, np.nan, 0], [0, 0, 0, 181]) == [True] * 4
    west, south, east, north = grid.edges(row[:99], col[:99])
    lonlat = pyproj.Transformer.from_crs(3857, 4326, always_xy=True)
    for sign, (a, b) in ((1, (west, south)), (-1, (east, north))):
        lons, lats = lonlat.transform(a, b)
        assert (sign * (lon[:99] - lons) > -1e-9).all() and (sign * (lat[:99] - lats) > -1e-9).all()


def test_points_on_the_lines_of_decimal_steps():
    grid = ks.Grid("home", crs="EPSG:4326", step="0.1", origin=(300, 100), shape=(200, 200))
    lines = [float(f"{30 + i // 10}.{i % 10}") for i in range(200)]
    row, _ = located(grid, lines, [12.0] * 200)
    assert row.tolist() == list(range(200))
    row, _ = located(grid, [np.nextafter(line, 0) for line in lines[1:]], [12.0] * 199)
    assert row.tolist() == list(range(199))
    assert (grid.edges(np.arange(1, 200), np.arange(1, 200))[1] == lines[1:]).all()
    thirds = ks.Grid("home", crs="EPSG:4326", step="1/120", shape=(10, 10))
    assert thirds.edges(np.array([3]), np.array([7]))[1][0] == float(Fraction(3, 120))
    ends = thirds.edges(np.arange(9), np.arange(9))
    assert (ends[3][:-1] == ends[1][1:]).all()


def test_a_window_across_the_date_line():
    fiji = ks.Grid("home", crs="EPSG:4326", step="0.5", origin=(-40, 350), shape=(20, 20))
    row, col = located(fiji, [-19.9, -19.9, -19.9], [179.9, -179.9, 180.0])
    assert row.tolist() == [0, 0, 0] and col.tolist() == [9, 10, 10]
    assert outside(fiji, [-19.9, -19.9], [0.0, -170.0]) == [True, True]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"crs": "EPSG:99999", "step": 0}, ["not a known reference system", "step must be exact"]),
        ({"crs": "3035", "step": "x", "points": "wgs"}, ["points: 'wgs'", "'3035' is not a reference", "step must be"]),
        ({"crs": "EPSG:5703", "step": 1}, ["not a system of two coordinates"]),
        ({"crs": "EPSG:3035", "step": 1, "level": "1km"}, ["a level is of a scheme"]),
        ({"scheme": "us", "level": "1"}, [f"use {', '.join(schemes.words())}"]),
        ({"scheme": "eu", "level": "3km", "crs": "EPSG:3857", "step": 1},
         ["level '3km' is not one of eu", "are in EPSG:3035", "gives step"]),
        ({"scheme": "eu", "level": "1km", "splits": (3, 5)}, ["15 x 15 cells"]),
        ({"scheme": "eu", "level": "1km", "origin": (-1, 0)}, ["leaves the grid"]),
        ({"scheme": "eu", "level": "1km", "shape": (0, 3), "splits": (1,)}, ["at least one row", "at least 2"]),
        ({"crs": "EPSG:4326", "step": "1", "shape": (91, 1)}, ["leaves the globe"]),
        ({"crs": "EPSG:3035", "step": "0.00000000000000001", "shape": (10, 10), "anchor": 1}, ["too fine"]),
    ],
)  # fmt: skip
def test_faults_of_a_grid_at_once(given, words):
    with pytest.raises(DomainError) as found:
        ks.Grid("home", **{"shape": (2, 2)} | given)
    assert all(any(word in fault for fault in found.value.faults) for word in words), found.value.faults


def test_trees_of_schemes():
    assert EU.nesting() == (2, 5, 2, 5)
    other = ks.Grid.window("home", "eu", "1kmN3080E3920", "1kmN3111E3951", splits=(5, 2, 5, 2))
    for grid, sides in ((EU, {5, 10, 50, 100}), (other, {2, 10, 20, 100})):
        order = make("jis", ks.Domain.of(grid))
        weights = {digit.weight for digit in order.digits}
        assert sides - {100} <= weights and not ({2, 5, 20, 50} - sides) & weights
    assert [step.name for step in EU.levels] == ["1km", "2km", "5km", "10km", "20km", "50km", "100km"]
    tiles = ks.Grid("home", scheme="quadkey", level="14", origin=(9000, 8000), shape=(6, 6))
    assert tiles.nesting() == (2, 2, 2) and tiles.at_level("12").side == 4
    hashes = ks.Grid("home", scheme="geohash", level="6", shape=(64, 64))
    assert [step.name for step in hashes.levels] == ["6", "4", "2"] and hashes.at_level("4").side == 32
    assert EU.area("10kmN308E392") == (slice(0, 10), slice(0, 10))
    for code in ("10kmN307E392", "10kmN311E395", "500mN30800E39200", "x"):
        with pytest.raises(DomainError):
            EU.area(code)


PARENT = "85283473fffffff"


def test_h3_is_the_library_on_the_whole_earth():
    axis = ks.H3("hex", 3)
    lat, lon = world(5000)
    lat[200:210], lat[210:220] = 90, -90
    (at,) = located(axis, lat, lon)
    assert [axis.labels[i] for i in at] == [h3.latlng_to_cell(y, x, 3) for y, x in zip(lat, lon, strict=True)]
    assert sorted(axis.labels) == sorted(cell for top in h3.get_res0_cells() for cell in h3.cell_to_children(top, 3))
    back, wrong, _ = axis.from_arrow("hex", [pa.array([*(axis.labels[i] for i in at), "8", None])])
    assert (back[0][:-2] == at).all() and wrong.tolist() == [False] * 5000 + [True, True]
    assert outside(axis, [91, np.nan, 0], [0, 0, 181]) == [True] * 3
    shapes = shapely.from_wkb(axis.outlines([np.arange(axis.sizes[0])]).to_pylist())
    assert shapely.is_valid(shapes).all() and shapely.is_ccw(shapely.get_exterior_ring(shapely.get_parts(shapes))).all()
    assert abs(shapely.area(shapes).sum() - 360 * 180) < 1e-6  # every cell once: poles and date line too


def test_the_tree_of_h3_is_that_of_its_indices():
    axis = ks.H3("hex", 8, (PARENT,))
    for parent in h3.cell_to_children(PARENT, 6):
        low, high = axis.span(parent)
        assert sorted(axis.labels[low:high]) == sorted(h3.cell_to_children(parent, 8))
    assert axis.span(PARENT) == (0, 343) and axis.span(axis.labels[5]) == (5, 6)
    assert axis.span("843d4a1ffffffff") is None and axis.span("x") is None
    assert make("hierarchy", ks.Domain.of(axis)).leaves == 343
    pentagon = next(cell for cell in h3.get_pentagons(1))
    five = ks.H3("hex", 3, (pentagon,))
    assert five.sizes == (h3.cell_to_children_size(pentagon, 3),) == (41,)
    assert make("hierarchy", ks.Domain.of(five)).leaves >= 41
    coarse, ((low, high),) = five.coarsened("2")
    for label, first, last in zip(coarse.labels, low, high, strict=True):
        assert sorted(five.labels[first:last]) == sorted(h3.cell_to_children(label, 3))
    for within, words in (
        ((PARENT, "86283470fffffff"), "a cell and one below"),
        (("x",), "not an H3 index"),
        ((), "at most"),
    ):
        with pytest.raises(DomainError, match=words):
            ks.H3("hex", 9, within)
    with pytest.raises(DomainError, match="0 to 15"):
        ks.H3("hex", 16)


def released(axis, recipe=None):
    domain = ks.Domain.of(axis)
    size = domain.size
    cells = np.unique(RNG.integers(0, size, 300))
    counts = ks.Counts(domain, cells, RNG.integers(1, 400, cells.size), UNIT, "census")
    return ks.release(counts, recipe or ks.haar_topdown(), epsilon="1", ledger=None)


def opened(path, layer=None):
    meta, table = pyogrio.read_arrow(path, layer=layer)
    return meta, pa.table(table)


@pytest.mark.parametrize(
    ("axis", "level", "recipe"),
    [
        (EU, "10km", ks.bayes_tree(order="jis")),
        (EU, "20km", ks.haar_topdown(order="jis")),
        (ks.Grid("home", scheme="quadkey", level="14", origin=(9000, 8000), shape=(30, 20)), "12", None),
        (ks.Grid("home", scheme="geohash", level="6", origin=(9000, 8000), shape=(30, 20)), "4", None),
        (ks.Grid("home", crs="EPSG:27700", step=500, origin=(300, 900), shape=(20, 30), splits=(5, 2)), "10", None),
        (ks.H3("hex", 8, (PARENT,)), "7", ks.haar_topdown(order="jis")),
    ],
)
def test_maps_are_opened_by_gdal(tmp_path, axis, level, recipe):
    out = released(axis, recipe)
    out.save(str(tmp_path / "out"), unmetered=True)
    assert ks.verify(str(tmp_path / "out"))["faults"] == []
    assert ks.Release.load(str(tmp_path / "out")).domain == out.domain
    for kind in ("gpkg", "geojson", "parquet", "csv", "sqlite"):
        out.export(str(tmp_path / f"x.{kind}"), levels=[level], unmetered=True)
    wanted, total = axis.outlines(out.domain.unravel(out.cells)).to_pylist(), out.total()
    for layer in ("release", f"release_{level}"):
        meta, table = opened(tmp_path / "x.gpkg", layer)
        assert meta["crs"] == f"EPSG:{axis.epsg}" and sum(table["value"].to_pylist()) == total
        shapes = shapely.from_wkb(table["geom"].to_pylist())
        assert shapely.is_valid(shapes).all()
    assert shapely.equals_exact(
        shapely.from_wkb(opened(tmp_path / "x.gpkg", "release")[1]["geom"].to_pylist()), shapely.from_wkb(wanted)
    ).all()
    text = json.loads((tmp_path / f"x_{level}.geojson").read_text())
    assert sum(one["properties"]["value"] for one in text["features"]) == total
    move = pyproj.Transformer.from_crs(axis.epsg, 4326, always_xy=True).transform
    found = shapely.from_geojson((tmp_path / "x.geojson").read_text())
    for one, own in zip(found.geoms, shapely.from_wkb(wanted), strict=True):
        corners = shapely.get_coordinates(own)
        assert np.allclose(shapely.get_coordinates(one), np.column_stack(move(*corners.T)), atol=1e-9)
        assert shapely.is_ccw(shapely.get_exterior_ring(shapely.get_parts(one))).all()
    about = json.loads(pa.parquet.read_schema(tmp_path / "x.parquet").metadata[b"geo"])["columns"]["geom"]
    assert about["geometry_types"] == [axis.outline_type]
    frame = geopandas.read_parquet(tmp_path / "x.parquet")  # an independent reader
    assert frame.crs.to_epsg() == axis.epsg and frame["value"].sum() == total
    assert shapely.equals_exact(frame.geometry.to_numpy(), shapely.from_wkb(wanted)).all()


def test_counts_from_codes_and_from_points_are_the_same(tmp_path):
    row, col = RNG.integers(0, 32, 400), RNG.integers(0, 32, 400)
    codes = EU.column([row, col])["grid_code"]
    north, east = (3080 + row) * 1000 + 500.0, (3920 + col) * 1000 + 500.0
    lon, lat = pyproj.Transformer.from_crs(3035, 4326, always_xy=True).transform(east, north)
    table = pa.table({"person": np.arange(400), "code": codes, "lat": lat, "lon": lon})
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    domain = ks.Domain.of(EU)
    wanted = np.unique(domain.ravel([row, col]), return_counts=True)
    for place in ("code", {"lat": "lat", "lon": "lon"}):
        counts = ks.count(str(tmp_path / "rows.csv"), domain, columns={"home": place}, unit=UNIT, data="x")
        assert counts.cells.tolist() == wanted[0].tolist() and counts.values.tolist() == wanted[1].tolist()
    (tmp_path / "job.toml").write_text(
        '[data]\nname = "x"\nfiles = ["rows.csv"]\ncolumns = { home = { lat = "lon", lon = "lat" } }\n'
        '[[axes]]\nkind = "grid"\nname = "home"\nscheme = "eu"\nwindow = ["1kmN3080E3920", "1kmN3111E3951"]\n'
        '[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n[budget]\nepsilon = "1"\nunmetered = true\n'
        '[output]\nfolder = "out"\nexports = ["x.gpkg"]\nlevels = ["5km"]\n'
    )
    assert job.domain(job.load(tmp_path / "job.toml"), tmp_path) == domain
    (fault,) = job.check(tmp_path / "job.toml")  # said by check alone
    assert "inside the window, but inside it with latitude and longitude exchanged: rows 1, 2" in fault
    job.run(job.load(tmp_path / "job.toml"), tmp_path)
    assert opened(tmp_path / "x.gpkg", "release_5km")[0]["crs"] == "EPSG:3035"


def test_the_command_line_and_json_give_what_python_gives():
    made = {
        "home=grid(eu,1kmN3080E3920,1kmN3111E3951)": EU,
        'home=grid(crs="EPSG:27700", step=500, origin=[1, 2], shape=[3, 4], anchor=[0, "0.5"], splits=[5, 2])': ks.Grid(
            "home", crs="EPSG:27700", step=500, origin=(1, 2), shape=(3, 4), anchor=(0, "0.5"), splits=(5, 2)
        ),
        f"hex=h3(8,{PARENT})": ks.H3("hex", 8, (PARENT,)),
        'hex=h3(resolution=2, points="EPSG:6668")': ks.H3("hex", 2, points="EPSG:6668"),
    }
    for text, axis in made.items():
        assert parse(text).make(None) == axis
        domain = ks.Domain.of(axis, ks.Ordered("age", 3))
        assert ks.Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain
    with pytest.raises(DomainError, match="window goes with scheme alone"):
        parse('home=grid(scheme="eu", level="1km", window=["1kmN3080E3920", "1kmN3111E3951"])').make(None)
    with pytest.raises(DomainError, match="two codes of one level"):
        parse("home=grid(eu,1kmN3080E3920,10kmN311E395)").make(None)


def test_the_columns_of_a_grid_are_taken():
    with pytest.raises(DomainError, match="grid_code"):
        ks.Domain.of(EU, ks.Ordered("grid_code", 3))


def test_a_scheme_in_one_file_as_the_guide_shows_it(tmp_path, monkeypatch):
    """The file of the guide, put among the schemes: found by its word from points to maps. The locators are those
    that radio amateurs publish for these places."""
    page = (Path(__file__).parents[2] / "docs" / "guide" / "geography.md").read_text(encoding="utf-8")
    (text,) = re.findall(r'```python\n("""Maidenhead.*?)```', page, re.S)
    (tmp_path / "schemes").mkdir()
    (tmp_path / "schemes" / "maidenhead.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(schemes, "__path__", [*schemes.__path__, str(tmp_path / "schemes")])
    assert "maidenhead" in schemes.words()
    whole = ks.Grid("home", scheme="maidenhead", level="6", shape=(4320, 4320))
    known = {
        "JN58TD": (48.14666, 11.60833), "GF15VC": (-34.91, -56.21166), "FM18LW": (38.92, -77.065),
        "RE78IR": (-41.28333, 174.745), "FN31PR": (41.714775, -72.72726), "CM87WJ": (37.413708, -122.1073236),
    }  # fmt: skip
    found = located(whole, *zip(*known.values(), strict=True))
    assert whole.column(found)["grid_code"].to_pylist() == list(known)
    lat, lon = RNG.uniform(-90, 90, 2000), RNG.uniform(-180, 180, 2000)
    index = located(whole, lat, lon)
    back, wrong, _ = whole.from_arrow("code", [whole.column(index)["grid_code"]])
    assert not wrong.any() and all((a == b).all() for a, b in zip(back, index, strict=True))
    assert whole.from_arrow("code", [pa.array(["JN58", "JN58TZ", None, "jn58td", "ZZ58TD"])])[1].all()
    axis = parse("home=grid(maidenhead,JN58AA,JN59XX)").make(None)
    assert axis.shape == (48, 24) and axis.nesting() == (10, 24) and axis.area("JN58") == (slice(0, 24), slice(0, 24))
    out = released(axis, ks.haar_topdown(order="jis"))
    out.export(str(tmp_path / "x.gpkg"), levels=["4"], unmetered=True)
    meta, squares = opened(tmp_path / "x.gpkg", "release_4")
    assert meta["crs"] == "EPSG:4326" and sum(squares["value"].to_pylist()) == out.total()
    assert dict(zip(squares["grid_code"].to_pylist(), squares["value"].to_pylist(), strict=True)) == {
        code: out.area(code=code) for code in ("JN58", "JN59")
    }


@pytest.mark.parametrize("level", ["80km", "10km", "5km", "2km", "1km", "500m", "250m", "125m"])
def test_the_japanese_mesh_is_one_scheme_among_others(level):
    """The cells, codes, edges and tree of `Mesh`, to the last bit, points on the lines among them."""
    per = meshcode.level(level).per_first
    mesh = ks.Mesh("home", level, (36 * per, 39 * per), shape=(18 * per, 14 * per))
    grid = ks.Grid("home", scheme="jis", level=level, origin=mesh.origin, shape=mesh.shape)
    row, col = RNG.integers(0, mesh.shape[0], 3000), RNG.integers(0, mesh.shape[1], 3000)
    codes = grid.column([row, col])["grid_code"]
    assert codes.cast(pa.int64()).to_pylist() == mesh.column([row, col])["mesh_code"].to_pylist()
    back, wrong, _ = grid.from_arrow("code", [codes])
    assert not wrong.any() and (back[0] == row).all() and (back[1] == col).all()
    west, south, east, north = mesh.edges(row, col)
    assert all((a == b).all() for a, b in zip(grid.edges(row, col), (west, south, east, north), strict=True))
    lat = np.concatenate([south, np.nextafter(north, 0), RNG.uniform(24.0, 36.0, 3000)])
    lon = np.concatenate([west, np.nextafter(east, 0), RNG.uniform(139.0, 153.0, 3000)])
    for points in ("EPSG:4326", "EPSG:6668"):
        own = ks.Grid("home", scheme="jis", level=level, origin=mesh.origin, shape=mesh.shape, points=points)
        (found, outside_own, _), (wanted, outside_mesh, _) = (axis.indices(LATLON, [lat, lon]) for axis in (own, mesh))
        assert (outside_own == outside_mesh).all() and outside_own.mean() < 0.2
        assert all((a == b)[~outside_own].all() for a, b in zip(found, wanted, strict=True))
    assert grid.nesting() == mesh.nesting() and grid.epsg == mesh.epsg
    assert [(step.name, step.side) for step in grid.levels] == [(step.name, step.side) for step in mesh.levels]
    code = codes[0].as_py()[:6]  # the long ones do not settle their level
    assert grid.area(code) == mesh.area(code)
    assert grid.from_arrow("code", [pa.array(["", "x", None, "9" * 12, codes[0].as_py()[:-1]])])[1].all()
