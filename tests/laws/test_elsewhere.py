"""The cell elsewhere of meshes, grids, hexagons and places: who is in it, that it is bounded with the others, what it
costs, where it is in trees, and that every door tells of it."""

import itertools
import json
import sqlite3
from functools import partial
from pathlib import Path

import forked
import numpy as np
import pyarrow as pa
import pytest

import kasuri as ks
from kasuri import meshcode, recipes
from kasuri.errors import DomainError
from kasuri.schema import ELSEWHERE
from kasuri.schema.maps import match
from kasuri.trees import order as orders
from kasuri.trees.weave import interleaved

KEY = bytes(range(32))
UNIT = ks.Unit("p", "add-remove", 1)
MESH = ks.Mesh("g", "500m", (8400, 6080), shape=(3, 5), elsewhere=True)
PLAIN = ks.Mesh("g", shape=(3, 5), elsewhere=True)
EU = ks.Grid("g", scheme="eu", level="1km", origin=(2800, 3600), shape=(3, 5), elsewhere=True)
STEPS = ks.Grid("g", crs="EPSG:4326", step="0.5", anchor=("35", "139"), shape=(3, 5), elsewhere=True)
HEX = ks.H3("g", 4, ("832a13fffffffff",), elsewhere=True)
SQUARE = "POLYGON(({0} {1}, {2} {1}, {2} {3}, {0} {3}, {0} {1}))"


def square(west, south, east, north):
    import shapely

    return shapely.box(west, south, east, north).wkb


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Two states of two counties and one of one, unit squares side by side."""
    path = tmp_path_factory.mktemp("places") / "places.geojson"
    codes, shapes = ("01001", "01002", "02001", "02002", "03001"), []
    for i, code in enumerate(codes):
        ring = [[i, 0], [i + 1, 0], [i + 1, 1], [i, 1], [i, 0]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        shapes.append({"type": "Feature", "properties": {"code": code, "name": f"County {i}"}, "geometry": shape})
    shapes += [
        {"type": "Feature", "properties": {"code": code, "name": f"State {code}"}, "geometry": None}
        for code in ("01", "02", "03")
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": shapes}))
    return ks.Regions("g", str(path), prefix=(2, 5), levels=("state", "county"), elsewhere=True)


def dense(counts):
    out = np.zeros(counts.domain.size, dtype=np.int64)
    out[counts.cells] = counts.values
    return out.reshape(counts.domain.shape)


def outside(axis, columns, place, unit=UNIT, ids=None):
    """(counted elsewhere, counted inside) of one record per row."""
    rows = len(next(iter(columns.values())))
    frame = pa.table({"p": pa.array(range(rows) if ids is None else ids, pa.int64()), **columns})
    counts = ks.count(frame, ks.Domain.of(axis), columns={axis.name: place}, unit=unit, key=KEY)
    found = dense(counts)
    away = int(found[tuple(part[0] for part in axis.residual)]) if axis.elsewhere else 0
    return away, int(found.sum()) - away


# -- who is in it ------------------------------------------------------------------------------------------------------


def test_a_code_of_another_cell_is_elsewhere_and_what_is_no_code_is_dropped():
    near, far = meshcode.encode([8400, 8399], [6080, 6080], "500m").tolist(), 523911111
    coarse = int(meshcode.encode([4200], [3040], "1km")[0])
    texts = [str(near[0]), str(near[1]), str(far), str(coarse), "999999999", "12", "", "sea", None]
    assert outside(MESH, {"c": pa.array(texts)}, "c") == (2, 1)
    numbers = [near[0], near[1], far, coarse, 999_999_999, 12, 0, -near[1], None]
    assert outside(MESH, {"c": pa.array(numbers, pa.int64())}, "c") == (2, 1)
    assert outside(ks.Mesh("g", "500m", (8400, 6080), shape=(3, 5)), {"c": pa.array(texts)}, "c") == (0, 1)


def test_a_point_on_earth_is_elsewhere_and_what_is_no_point_is_dropped():
    lat = pa.array([35.0, 35.01, 48.9, -33.0, 90.0, 135.0, float("nan"), float("inf"), None])
    lon = pa.array([138.99, 150.0, 2.3, -70.0, 0.0, 35.0, 139.0, 139.0, 139.0])
    window = ks.Mesh("g", "500m", meshcode_of(35.0, 138.99), shape=(3, 5), elsewhere=True)
    assert outside(window, {"y": lat, "x": lon}, {"lat": "y", "lon": "x"}) == (4, 1)
    lat = pa.array([35.2, 34.9, 10.0, 91.0, None])
    lon = pa.array([139.2, 139.2, -179.0, 139.2, 139.2])
    assert outside(STEPS, {"y": lat, "x": lon}, {"lat": "y", "lon": "x"}) == (2, 1)
    text = {"y": pa.array(["35.2", "34.9", "x", ""]), "x": pa.array(["139.2", "139.2", "139", "139"])}
    assert outside(STEPS, text, {"lat": "y", "lon": "x"}) == (1, 1)


def meshcode_of(lat, lon):
    row, col, _ = meshcode.try_locate([lat], [lon], "500m")
    return int(row[0]), int(col[0])


def test_rows_and_columns_codes_of_grids_and_hexagons():
    row, col = pa.array([0, 2, 3, 7, -1, None, 1 << 62], pa.int64()), pa.array([0, 4, 0, 9, 0, 0, 0], pa.int64())
    assert outside(PLAIN, {"r": row, "c": col}, ("r", "c")) == (2, 2)
    codes = ["1kmN2800E3600", "1kmN2802E3604", "1kmN2803E3600", "1kmN1000E1000", "10kmN280E360", "N2800", "", None]
    assert outside(EU, {"c": pa.array(codes)}, "c") == (2, 2)
    own, other = HEX.labels[0], "8428309ffffffff"
    codes = [own, other, "832a13fffffffff", "elsewhere", "842a13f", "", None]
    assert outside(HEX, {"c": pa.array(codes)}, "c") == (1, 1)
    lat, lon = pa.array([40.7, -33.0, 95.0, None]), pa.array([-74.0, 151.0, 0.0, 0.0])
    there = ks.H3("g", 4, (parent(40.7, -74.0),), elsewhere=True)
    assert outside(there, {"y": lat, "x": lon}, {"lat": "y", "lon": "x"}) == (1, 1)


def parent(lat, lon):
    import h3

    return h3.latlng_to_cell(lat, lon, 3)


def test_other_places_are_elsewhere_and_a_place_above_is_no_code(places):
    codes = ["01001", "03001", "04001", "nowhere", "elsewhere", "01", "", None]
    assert outside(places, {"c": pa.array(codes)}, "c") == (3, 2)
    lat, lon = pa.array([0.5, 0.5, 40.0, 91.0, None]), pa.array([0.5, 4.5, 139.0, 0.5, 0.5])
    assert outside(places, {"y": lat, "x": lon}, {"lat": "y", "lon": "x"}) == (1, 2)


def test_what_is_masked_is_dropped_and_not_elsewhere():
    sea = np.zeros((3, 5), dtype=bool)
    sea[1] = True
    domain = ks.Domain.of(PLAIN, mask={"g": sea})
    frame = pa.table({"p": [1, 2, 3], "r": [1, 0, 9], "c": [1, 0, 9]})
    found = dense(ks.count(frame, domain, columns={"g": ("r", "c")}, unit=UNIT, key=KEY))
    assert found[:3].sum() == 1 and found[3].tolist() == [1, 0, 0, 0, 0]
    assert domain.possible_dense().sum() == 11, "ten cells of the window, and the one elsewhere"


# -- bounding and sensitivity ------------------------------------------------------------------------------------------

SMALL = ks.Mesh("g", shape=(2, 2), elsewhere=True)


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
@pytest.mark.parametrize("max_cells", [1, 2])
def test_one_unit_inside_and_outside_changes_max_cells_cells_by_one(engine, max_cells):
    """All sets of its records: inside, outside and both."""
    others = [(7, 0, 0), (8, 5, 5), (8, 9, 9), (8, 1, 1)]
    where = [(0, 0), (1, 1), (5, 5), (6, 6), (0, 7)]

    def table(rows):
        names = ("p", "r", "c")
        frame = pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(names)})
        unit = ks.Unit("p", "add-remove", max_cells)
        domain = ks.Domain.of(SMALL)
        return dense(ks.count(frame, domain, columns={"g": ("r", "c")}, unit=unit, key=KEY, engine=engine))

    before, most = table(others), 0
    for size in range(1, 6):
        for own in itertools.combinations(where, size):
            change = table([*others, *((1, r, c) for r, c in own)]) - before
            assert change.min() >= 0 and change.max() <= 1
            most = max(most, int(change.sum()))
    assert most == max_cells


def test_ten_places_outside_count_once():
    rows = pa.array([9 + i for i in range(10)], pa.int64())
    unit = ks.Unit("p", "add-remove", 5)
    assert outside(PLAIN, {"r": rows, "c": rows}, ("r", "c"), unit, ids=[1] * 10) == (1, 0)


def test_several_pre_aggregated_rows_outside_are_refused():
    table = pa.table({"r": [0, 8, 9], "c": [0, 8, 9], "n": [3, 4, 5]})
    where = {"g": ("r", "c")}
    with pytest.raises(DomainError, match="more than once"):
        ks.count(table, ks.Domain.of(PLAIN), columns=where, unit=UNIT, weight="n")
    one = ks.count(table.slice(0, 2), ks.Domain.of(PLAIN), columns=where, unit=UNIT, weight="n")
    assert dense(one)[3, 0] == 4


def measured(tree, cell):
    """Which numbers of the tree a cell is in: the root, and every node on its way that is one of several."""
    key, found = int(tree.keys(np.array([cell]))[0]), {(0, 0)}
    for depth in range(tree.depth):
        above = np.array([key // tree.stride(depth)])
        if tree.children(above, depth, depth + 1)[0].size > 1:
            found.add((depth + 1, key // tree.stride(depth + 1)))
    return found


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (5, 3), (1, 1), (1, 6), (4, 4)])
@pytest.mark.parametrize("word", ["morton", "1d", "hierarchy", "interleaved"])
def test_the_cost_of_a_path_is_that_of_its_numbers(shape, word):
    """By enumeration: every number of the tree that one more record changes, wherever it is."""
    domain = ks.Domain.of(ks.Mesh("g", shape=shape, elsewhere=True), ks.Ordered("age", 2))
    tree = interleaved(domain) if word == "interleaved" else orders.make(word, domain)
    cells = np.flatnonzero(domain.possible_dense().ravel())
    assert cells.size == (shape[0] * shape[1] + 1) * 2 == tree.possible_leaves().sum()
    assert (tree.cells(tree.keys(cells)) == cells).all() and np.unique(tree.keys(cells)).size == cells.size
    assert max(len(measured(tree, cell)) for cell in cells.tolist()) == tree.cost("add-remove")
    if word != "1d":
        top = tree.keys(cells) // tree.strides[0]
        assert np.array_equal(top == 1, cells >= shape[0] * shape[1] * 2), "the cell elsewhere is a child of the root"


def test_the_standard_grid_has_it_beside_its_largest_cells():
    domain = ks.Domain.of(MESH)
    tree = orders.jis(domain)
    cells = np.flatnonzero(domain.possible_dense().ravel())
    top = tree.keys(cells) // tree.strides[0]
    assert (tree.cells(tree.keys(cells)) == cells).all() and top[-1] > top[:-1].max()


def test_a_label_elsewhere_is_a_child_of_the_root(places):
    for axis in (HEX, places):
        paths = axis.tree_paths()
        assert len(paths) == axis.sizes[0] and len(paths[-1]) == 1
        assert paths[-1][0] > max(path[0] for path in paths[:-1])


# -- what is stored, and every door ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [MESH, PLAIN, EU, STEPS, HEX], ids=lambda axis: f"{axis.kind} {axis.sizes}")
def test_it_is_read_back_and_domains_without_it_are_as_they_were(axis):
    domain = ks.Domain.of(axis)
    assert ks.Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert domain.to_json()["axes"][0]["elsewhere"] is True
    plain = axis.mapped()
    assert "elsewhere" not in plain.to_json() and not plain.elsewhere and plain.sizes == axis.declared


def test_regions_are_read_back(places):
    domain = ks.Domain.of(places)
    again = ks.Domain.from_json(json.loads(json.dumps(domain.to_json())))
    assert again == domain and again.axes[0].labels[-1] == ELSEWHERE and again.axes[0].outlines([np.arange(5)])
    assert "elsewhere" not in places.mapped().to_json()
    assert places.coarsened("state")[0].labels == ("01", "02", "03", ELSEWHERE)


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_it_is_true_or_false(bad):
    with pytest.raises(DomainError, match="true or false"):
        ks.Mesh("g", shape=(2, 2), elsewhere=bad)


def test_a_window_too_large_is_refused():
    with pytest.raises(DomainError, match="cannot be held"):
        ks.Mesh("g", shape=(1 << 15, 1 << 15), elsewhere=True)


def test_a_place_called_elsewhere_is_refused():
    with pytest.raises(DomainError, match="rename it"):
        ks.Regions("g", {"code": ["a", "elsewhere"]}, elsewhere=True)


def released(domain, recipe=None, epsilon="3"):
    truth = np.zeros(domain.shape, dtype=np.int64)
    possible = domain.possible_dense()
    truth[possible] = np.random.default_rng(5).poisson(30, int(possible.sum()))
    away = domain.axes[0].residual
    truth[tuple(slice(*span) for span in away)] *= 50
    counts = ks.Counts.from_dense(truth, domain, UNIT)
    return truth, ks.release(counts, recipe or ks.refined_tree(), epsilon=epsilon, ledger=None)


FAMILIES = [
    ks.geometric(), ks.privelet("1d"), ks.privelet("2d"), ks.privelet("morton"), ks.haar_topdown(),
    ks.haar_topdown(descent="dense"), ks.haar_topdown(transform="haar"), ks.refined_tree(), ks.refined_tree("u4"),
    ks.refined_tree(order="1d"), ks.refined_tree(order="jis"), ks.bayes_tree(),
    ks.recipes.hierarchy("morton"), ks.woven_tree(), ks.best(), ks.auto(), ks.bayes_tree(pilot=True),
]  # fmt: skip


@pytest.mark.parametrize("recipe", FAMILIES, ids=lambda recipe: f"{recipe.name}-{dict(recipe.parts())['order']}")
def test_every_family_runs_and_its_intervals_hold(recipe):
    domain = ks.Domain.of(MESH, ks.Ordered("age", 2))
    truth, out = released(domain, recipe)
    inside, away = truth[:3].sum(), truth[3, 0].sum()
    assert out.area(g="elsewhere") + out.area(rows=slice(None)) == pytest.approx(out.total())
    assert out.area(g="elsewhere") == pytest.approx(out.area(g="elsewhere", age=0) + out.area(g="elsewhere", age=1))
    with pytest.raises(DomainError, match="not both"):
        out.area(g="elsewhere", rows=0)
    if dict(recipe.parts())["descent"] == "dense" or dict(recipe.parts())["transform"] == "haar":
        return
    found = out.interval(g="elsewhere", level=0.9999)
    assert found.lower <= away <= found.upper and found.upper - found.lower < 400
    found = out.interval(rows=slice(0, 3), level=0.9999)
    assert found.lower <= inside <= found.upper


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_releases_it_or_refuses_before_a_charge(name, tmp_path):
    domain = ks.Domain.of(ks.Mesh("g", shape=(3, 5), elsewhere=True))
    counts = ks.Counts.from_dense(np.where(domain.possible_dense(), 9, 0), domain, UNIT, data="d")
    ledger = ks.Ledger.open(tmp_path / "l", epsilon="1", unit=UNIT, data="d")
    try:
        out = ks.release(counts, recipes.RECIPES[name](), epsilon="1", ledger=ledger)
    except ks.KasuriError:
        assert ledger.balance().left == 1
    else:
        assert not out.to_dense()[3, 1:].any() and out.area(g="elsewhere") == out.to_dense()[3, 0]
        assert ledger.balance().left == 0


@pytest.mark.parametrize("shape", [(9, 16), (8, 8)])
def test_a_series_runs_on_it(tmp_path, shape):
    """Beside a window that with one row more looks as square as it is not."""
    domain = ks.Domain.of(ks.Mesh("g", shape=shape, elsewhere=True))
    unit, recipe = ks.Unit("p", "add-remove", 1, per="slot"), ks.refined_tree("series", noise="gaussian", delta="1e-6")
    given = {"epsilon": "5", "delta": "1e-6", "unit": unit, "data": "d", "window": ks.Window("1d", slot="1h")}
    ledger = ks.Ledger.open(tmp_path / "l", recipe=recipe, domain=domain, **given)
    flow = ks.Series.open(tmp_path / "flow", ledger=ledger, recipe=recipe, domain=domain)
    truth = np.where(domain.possible_dense(), 40, 0)
    for hour in range(3):
        counts = ks.Counts.from_dense(truth, domain, unit, data="d")
        out = flow.release(counts, slot=f"2020-10-01T{hour:02d}:00+00:00", threads=1)
    assert abs(out.to_dense()[shape[0], 0] - 40) < 400 and not out.to_dense()[shape[0], 1:].any()
    found = flow.verify()
    assert found["ok"], found["faults"]


def test_save_verify_load_and_the_report(tmp_path):
    domain = ks.Domain.of(MESH, ks.Nominal("sex", ("f", "m")), mask={"g": np.eye(3, 5, dtype=bool)})
    _, out = released(domain)
    folder = tmp_path / "r"
    out.save(str(folder), unmetered=True)
    assert ks.verify(str(folder)).ok
    again = ks.Release.load(str(folder))
    assert again.domain == domain and again.interval(g="elsewhere") == out.interval(g="elsewhere")
    said = json.loads((folder / "datapackage.json").read_text())["privacy"]["dp_variant"]["data_domain"]
    assert said == "row (3) x col (5) x sex (2), g elsewhere"
    page = (folder / "report.html").read_text()
    found = out.interval(g="elsewhere")
    said = f"{out.area(g='elsewhere'):,.0f} (95 % interval {found.lower:,.0f} to {found.upper:,.0f})"
    assert said in page and "範囲外" in page
    rows = out.to_arrow().to_pylist()
    away = [row for row in rows if row["row"] is None]
    assert sum(row["value"] for row in away) == out.area(g="elsewhere") and away[0]["mesh_code"] is None


def test_map_formats_leave_it_out_and_say_so(tmp_path, places):
    for axis in (MESH, EU, HEX, places):
        _, out = released(ks.Domain.of(axis))
        own = tmp_path / axis.kind
        out.export(str(own / "r.gpkg"), unmetered=True)
        with sqlite3.connect(own / "r.gpkg") as base:
            assert base.execute("SELECT sum(value) FROM release").fetchone()[0] == out.total() - out.area(g="elsewhere")
            assert "left out" in base.execute("SELECT absent_cells FROM release_meta").fetchone()[0]
        out.export(str(own / "r.geojson"), unmetered=True)
        assert all(feature["geometry"] for feature in json.loads((own / "r.geojson").read_text())["features"])
        out.export(str(own / "r.csv"), unmetered=True)
        told = pa.csv.read_csv(own / "r.csv")
        assert sum(told["value"].to_pylist()) == out.total()
        out.save(str(own / "folder"), unmetered=True)
        assert ks.verify(str(own / "folder")).ok and "範囲外" in (own / "folder" / "report.html").read_text()


def test_coarser_levels_keep_the_total(tmp_path, places):
    for axis, level in ((MESH, "1km"), (PLAIN, "2"), (HEX, "3"), (places, "state"), (EU, "2km")):
        _, out = released(ks.Domain.of(axis))
        if level not in axis.level_names:
            assert axis.where() is None
            continue
        out.export(str(tmp_path / f"{axis.kind}.csv"), levels=[level], unmetered=True)
        fine, coarse = (pa.csv.read_csv(tmp_path / f"{axis.kind}{end}.csv") for end in ("", f"_{level}"))
        assert sum(coarse["value"].to_pylist()) == sum(fine["value"].to_pylist()) == out.total()


def test_a_map_of_regions_beside_it(places):
    grid = ks.Grid("cell", crs="EPSG:4326", step="0.5", anchor=("0", "0"), shape=(2, 10), elsewhere=True)
    named = ks.Regions("place", {"code": ["a"]})
    assert named.labels == ("a",)
    own = ks.RegionMap("cell", np.repeat([0, 1], 10), name="half")
    made = match(grid, places.mapped())
    domain = ks.Domain.of(grid, maps=[own])
    assert made.labels.size == 20 and ks.Domain.of(grid, maps=[made]).map("g").labels.size == 30
    _, out = released(domain, ks.woven_tree(maps=[own]))
    assert out.area(half="0") + out.area(half="1") + out.area(cell="elsewhere") == out.total()


def test_a_job_on_the_command_line(tmp_path):
    codes = meshcode.encode([8400, 8401, 7000], [6080, 6081, 5000], "500m").tolist()
    (tmp_path / "d.csv").write_text("p,c\n" + "".join(f"{i},{codes[i % 3]}\n" for i in range(600)))
    (tmp_path / "job.toml").write_text(
        '[data]\nfiles = ["d.csv"]\nname = "d"\ncolumns = { home = "c" }\n'
        '[unit]\nid = "p"\nchange = "add-remove"\nmax_cells = 1\n'
        '[budget]\nepsilon = "2"\nunmetered = true\n[output]\nfolder = "r"\n[recipe]\nname = "refined_tree"\n'
        '[[axes]]\nname = "home"\nkind = "mesh"\nlevel = "500m"\norigin = [8400, 6080]\nshape = [4, 4]\n'
        "elsewhere = true\n"
    )

    run = partial(forked.kasuri, cwd=tmp_path)
    for words in (("check", "job.toml"), ("release", "job.toml"), ("verify", "r")):
        run(*words)
    told = run("query", "r", "--where", "home=elsewhere", "--json")
    found = json.loads(told.stdout)["rows"][0]
    assert found["lower"] <= 200 <= found["upper"]
    axis = "home=mesh(level='500m', origin=[8400, 6080], shape=[4, 4], elsewhere=true)".replace("'", '"')
    words = ["--epsilons", "1", "--recipes", "refined_tree", "--max-cells", "1", "--change", "add-remove"]
    run("plan", "--axis", axis, "--unit", "person", *words)
    run("plan", "job.toml")


def test_studies_keep_it_apart_from_the_blocks_of_the_window():
    domain = ks.Domain.of(PLAIN, ks.Ordered("age", 2))
    truth = np.zeros(domain.shape, dtype=np.int64)
    truth[3, 0] = 1000
    counts = ks.Counts.from_dense(truth, domain, UNIT)
    table = ks.compare(counts, [ks.geometric()], epsilons=["5"], areas=[1, 4], trials=2)
    assert "geometric" in table.table("rmse")
    from kasuri.study.evaluate import areas_of

    sums = areas_of(domain, [4], ())[4].sums(truth)
    assert sums.shape == (3, 3, 2) and sums[2, 0].tolist() == [1000, 1000] and sums[:2].sum() == 0
    earlier = ks.PublicTable.from_dense(truth, domain, name="earlier")
    judged = ks.accept([ks.Criterion(4, people=10, within="10 %", share="90 %")], ks.refined_tree(), domain, UNIT,
                       epsilon="1", public=earlier, trials=3)  # fmt: skip
    assert judged.verdicts[0].areas == 2, "one area of each age: elsewhere"
    assert ks.plan([ks.refined_tree(), ks.geometric()], domain, UNIT, epsilons=["1"], areas=[1, 4]).rows


def test_published_tables_and_randomizers_refuse_it():
    from kasuri import local
    from kasuri.ingest import estat

    with pytest.raises(DomainError, match="leave elsewhere out"):
        local.grr(SMALL, epsilon="1")
    with pytest.raises(DomainError, match="fill no cell elsewhere"):
        estat._axes(ks.Domain.of(MESH), "population")


def test_the_page_of_proof_names_these_tests():
    page = (Path(__file__).parents[2] / "docs/proofs/bounding.md").read_text(encoding="utf-8")
    assert "test_one_unit_inside_and_outside_changes_max_cells_cells_by_one" in page
