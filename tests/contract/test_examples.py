"""The examples run as they are written, and what they write is opened by GDAL and compared with the published codes."""

import shutil
import subprocess
from pathlib import Path

import h3
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyogrio
import pyproj
import pytest
import shapely
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app

ROOT = Path(__file__).parents[2]
NAMES = ("europe", "united-states", "oslo", "japan")
LATLON = {"lat": "lat", "lon": "lon"}


def run(name, folder):
    """The example in a folder of its own, and its release."""
    target = folder / name
    shutil.copytree(ROOT / "examples" / name, target, ignore=shutil.ignore_patterns("release", "*.gpkg"))
    assert job.check(target / "job.toml") == []
    job.run(job.load(target / "job.toml"), target)
    assert ks.verify(str(target / "release"))["faults"] == []
    return target, ks.Release.load(str(target / "release"))


def layer(path, name):
    about, table = pyogrio.read_arrow(path, layer=name)
    return about, pa.table(table)


def test_the_european_grid(tmp_path):
    """Codes, points and outlines are those of the published file, on every row."""
    folder, out = run("europe", tmp_path)
    published = pa.parquet.read_table(folder / "brussels_2011.parquet")
    (grid,) = out.domain.axes
    codes = published["grd_id"].to_pylist()
    north, east = (np.array([int(code[4:].split("E")[at]) for code in codes]) * 1000 for at in (0, 1))
    move = pyproj.Transformer.from_crs(3035, 4326, always_xy=True).transform
    for part in (0.001, 0.5, 0.999):
        lon, lat = move(east + part * 1000, north + part * 1000)
        index, wrong, _ = grid.indices(LATLON, [lat, lon])
        assert not wrong.any() and grid.column(index)["grid_code"].to_pylist() == codes
    about, cells = layer(folder / "brussels.gpkg", "release")
    assert about["crs"] == "EPSG:3035" and sum(cells["value"].to_pylist()) == out.total()
    corners = shapely.bounds(shapely.from_wkb(cells["geom"].to_pylist()))
    found = [f"1kmN{int(y) // 1000}E{int(x) // 1000}" for x, y in corners[:, :2]]
    assert found == cells["grid_code"].to_pylist() and (corners[:, 2:] - corners[:, :2] == 1000).all()
    about, squares = layer(folder / "brussels.gpkg", "release_10km")
    assert about["crs"] == "EPSG:3035" and sum(squares["value"].to_pylist()) == out.total()
    for code, value in zip(squares["grid_code"].to_pylist(), squares["value"].to_pylist(), strict=True):
        y, x = (int(part) for part in code[5:].split("E"))
        within = [v for c, v in zip(found, cells["value"].to_pylist(), strict=True)
                  if c.startswith(f"1kmN{y}") and f"E{x}" in c]  # fmt: skip
        assert sum(within) == value
    true = dict(zip(codes, published["population"].to_pylist(), strict=True))
    held = [true.get(code, 0) for code in found]
    assert np.abs(np.array(held) - cells["value"].to_pylist()).mean() < 8, "noise of scale 2, refined"


def test_us_counties_in_states(tmp_path):
    folder, out = run("united-states", tmp_path)
    text = (folder / "northeast.csv").read_text(encoding="utf-8-sig")
    assert '"09001","Fairfield County",' in text and '"9001"' not in text
    true = {}
    for line in (folder / "population_2019.csv").read_text().splitlines()[1:]:
        fips, people = line.split(",")
        true[fips[:2]] = true.get(fips[:2], 0) + int(people)
    _, states = layer(folder / "northeast.gpkg", "release_state")
    assert set(states["place"].to_pylist()) == set(true) and sum(states["value"].to_pylist()) == out.total()
    hit = 0
    for code, name, value, lower, upper in zip(
        *(states[c].to_pylist() for c in ("place", "place_name", "value", "lower", "upper")), strict=True
    ):
        span = out.interval(place=name)
        assert value == out.area(place=name) == out.area(place=code) and (lower, upper) == (span.lower, span.upper)
        hit += lower <= true[code] <= upper
    assert hit >= 7, "of nine 95 % intervals"
    with pytest.raises(ks.DomainError, match=r"\d places are called 'Washington County': 09|23029 in Maine"):
        out.area(place="Washington County")
    assert out.area(place="Washington County, Maine") == out.area(place="23029")
    page = (folder / "release" / "report.html").read_text()
    assert "Fairfield County" in page and "Connecticut" in page, "counties and states are on the map of the report"


def test_hexagons_of_a_city_from_points(tmp_path):
    folder, out = run("oslo", tmp_path)
    rows = pa.parquet.read_table(folder / "trips_2022_02.parquet")
    places = zip(rows["lat"].to_pylist(), rows["lon"].to_pylist(), strict=True)
    true, counts = np.unique([h3.latlng_to_cell(lat, lon, 8) for lat, lon in places], return_counts=True)
    dense = dict(zip(true.tolist(), counts.tolist(), strict=True))
    for name, resolution in (("release", 8), ("release_7", 7), ("release_6", 6)):
        about, cells = layer(folder / "oslo.gpkg", name)
        assert about["crs"] == "EPSG:4326" and sum(cells["value"].to_pylist()) == out.total()
        for index, value in zip(cells["hex"].to_pylist(), cells["value"].to_pylist(), strict=True):
            assert h3.get_resolution(index) == resolution and out.area(hex=index) == value
    assert sum(dense.values()) == 17_533 and abs(out.total() - 17_533) < 200
    gaps = [out.area(hex=cell) - dense.get(cell, 0) for cell in dense]
    assert np.abs(gaps).mean() < 8


def test_points_on_the_command_line(tmp_path):
    """The hexagons of the example without a job file."""
    within = job.load(ROOT / "examples" / "oslo" / "job.toml").axes[0].within
    words = "--column hex=lat:lat,lon:lon --unit trip --change add-remove --max-cells 1 --epsilon 1 --data trips"
    axis = [
        "--axis",
        f"hex=h3(7,{','.join(within)})",
        "--recipe",
        "bayes_tree",
        "--unmetered",
        "--out",
        str(tmp_path / "out"),
    ]
    table = str(ROOT / "examples" / "oslo" / "trips_2022_02.parquet")
    done = CliRunner().invoke(app, ["release", table, *axis, *words.split()])
    assert done.exit_code == 0, done.output
    out = ks.Release.load(str(tmp_path / "out"))
    assert abs(out.total() - 17_533) < 200 and out.recipe["order"] == "hierarchy", "its tree without being asked"


def test_japanese_municipalities_with_names(tmp_path):
    folder, out = run("japan", tmp_path)
    assert (
        out.area(municipality="横浜市西区")
        == out.area(municipality="14103")
        == out.area(municipality="Nishi-ku, Kanagawa")
    )
    _, prefectures = layer(folder / "kanto.gpkg", "release_prefecture")
    names = dict(zip(prefectures["municipality_name_ja"].to_pylist(), prefectures["value"].to_pylist(), strict=True))
    assert set(names) == {"茨城県", "栃木県", "群馬県", "埼玉県", "千葉県", "東京都", "神奈川県"}
    assert names["東京都"] == out.area(municipality="東京都") == out.area(municipality="13")
    assert sum(names.values()) == out.total()
    text = (folder / "kanto.csv").read_text(encoding="utf-8-sig")
    assert '"08201","水戸市","Mito Shi"' in text


def test_what_examples_leave_is_ignored():
    made = [f"examples/{name}/{left}" for name in NAMES for left in ("release/report.html", "x.gpkg")]
    ignored = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert ignored == made
