"""Every fault of a table at once, no column that stands twice, and no cell that a spreadsheet runs."""

import csv
import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri import names
from kasuri.ingest import File, Query, read_public, read_table
from kasuri.ingest.sources import open_stream

UNIT = ks.Unit("person", "add-remove", 1)
WINDOW = ks.Domain.of(ks.Mesh.window("grid", "5339"))
SIX = "mesh_code,population\n533946113,12\n533946113,7\n53394,3\n533946119,-987654\n533946121,abc\n533946122,1.5\n"


def count(source, domain=WINDOW, **more):
    words = {"columns": {"grid": "mesh_code"}, "unit": UNIT, "weight": "population", "data": "census-2020"}
    return ks.count(source, domain, **words | more)


def faults_of(make, *words, **more):
    with pytest.raises(ks.DomainError) as caught:
        make(*words, **more)
    return list(caught.value.faults)


def test_six_faults_of_six_rows(tmp_path):
    path = tmp_path / "census.csv"
    path.write_text(SIX)
    found = faults_of(count, str(path))
    assert all(fault.startswith(f"{path}: column ") for fault in found)
    assert [fault.removeprefix(f"{path}: column ") for fault in found] == [
        "mesh_code: not a 500m mesh code inside the window: rows 3, 4; correct it, or leave the row out",
        "mesh_code: a cell appears more than once: rows 1, 2; add an axis for the columns in which these rows differ, "
        "or say sum = true to add them",
        "population: not a whole number: rows 5; write plain digits (1234; neither 1,234 nor full-width "
        "digits), 0 for nobody",
        "population: a count has a fraction: rows 6; counts are 0, 1, 2, ...",
        "population: a count is negative: rows 4; counts are 0 or more",
    ]
    said = "\n".join(found)
    assert not any(value in said for value in ("987654", "abc", "1.5", "53394,", "533946"))


def test_a_ragged_line_moves_no_number(tmp_path):
    """Rows keep the numbers they have in the file, whatever else is wrong with it."""
    path = tmp_path / "census.csv"
    path.write_text(SIX.replace("53394,3", "1,2,3\n53394,3"))
    found = faults_of(count, str(path))
    assert [fault.split(": rows ")[1].split(";")[0] for fault in found] == ["3", "4, 5", "1, 2", "6", "7", "5"]


def test_a_bad_column_hides_no_bad_row(tmp_path):
    table = pa.table({"mesh_code": [b"x", b"y"], "sex": ["f", "?"], "population": [-1, 1]})
    domain = ks.Domain.of(*WINDOW.axes, ks.Nominal("sex", labels=("f", "m")))
    found = faults_of(count, table, domain, columns={"grid": "mesh_code", "sex": "sex"})
    assert len(found) == 3 and "binary" in found[0] and "sex: not a label" in found[1] and "negative" in found[2]


def test_frames_and_masks(tmp_path):
    sea = np.zeros(4, dtype=bool)
    sea[2] = True
    domain = ks.Domain.of(ks.Ordered("age", 4), mask={"age": sea})
    table = pa.table({"age": [0, 2, 9, 1, 1, 3], "n": [np.nan, 1.0, np.inf, 2.5, -3.0, 2.0**63]})
    found = faults_of(count, table, domain, columns={"age": "age"}, weight="n")
    rules = {fault.split(": ")[2]: fault.split(": rows ")[1].split(";")[0] for fault in found}
    assert rules == {
        "not an index of axis 'age' (0..3)": "3", "a cell is impossible by the mask": "2",
        "a cell appears more than once": "4, 5",
        "a count is missing or not finite": "1, 3", "a count has a fraction": "4", "a count is negative": "5",
        "a count is larger than 2^62": "3, 6",
    }  # fmt: skip


def test_public_tables_name_all_of_them_too(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("age,n\n0,1.5\n0,2\n7,1\n1,-3\n2,x\n")
    found = faults_of(
        read_public, path, ks.Domain.of(ks.Ordered("age", 4)), name="p", columns={"age": "age"}, value="n"
    )
    assert [fault.split(": rows ")[1].split(";")[0] for fault in found] == ["3", "1, 2", "5", "4"]
    path.write_text("age,n\n0,1.5\n1,2\n")
    made = read_public(path, ks.Domain.of(ks.Ordered("age", 4)), name="p", columns={"age": "age"}, value="n")
    assert made.values.tolist() == [1.5, 2]


HEADERS = [
    "mesh_code,population,population", "mesh_code, population,population", "mesh_code,Population,population",
    'mesh_code,population,"population "', "mesh_code,population,MESH_CODE",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_a_column_that_stands_twice(tmp_path, header):
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n533946113,12,99\n")
    assert "more than one column" in faults_of(count, str(path))[0]
    path.write_text(f"person,{header}\n1,533946113,12,99\n")  # records
    unit = ks.Unit("person", "add-remove", 1, 100)
    assert "more than one column" in faults_of(count, str(path), unit=unit)[0]
    (tmp_path / "good.csv").write_text("mesh_code,population\n533946112,1\n")
    path.write_text(f"{header}\n533946113,12,99\n")  # the second file of two
    assert "more than one column" in faults_of(count, [tmp_path / "good.csv", path])[0]


def test_a_column_that_is_not_used_may_stand_twice(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("mesh_code,population,note,note\n533946113,12,a,b\n")
    assert count(str(path)).values.tolist() == [12]


def test_every_source_refuses_it(tmp_path):
    columns = [pa.array([533946113]), pa.array([12]), pa.array([99])]
    double = pa.Table.from_arrays(columns, names=["mesh_code", "population", "population"])
    pq.write_table(double, tmp_path / "x.parquet")
    with sqlite3.connect(tmp_path / "x.sqlite") as base:
        base.execute("CREATE TABLE t (mesh_code, population)")
        base.execute("INSERT INTO t VALUES (533946113, 12)")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as base:
        base.execute("CREATE TABLE t AS SELECT 533946113 AS mesh_code, 12 AS population")
    sql = "SELECT mesh_code, population, 99 AS population FROM t"
    sources = [
        str(tmp_path / "x.parquet"),
        Query(str(tmp_path / "x.sqlite"), sql),
        Query(str(tmp_path / "x.duckdb"), sql),
    ]
    for source in sources:
        assert "more than one column is called 'population'" in faults_of(count, source)[0]
    assert "twice" in faults_of(count, double)[0] or "one name per column" in faults_of(count, double)[0]
    for path in (tmp_path / "x.parquet", tmp_path / "x.csv"):
        (tmp_path / "x.csv").write_text("mesh_code,Population,population\n1,2,3\n")
        assert "more than one column" in faults_of(read_table, path, text=["population"])[0]


# -- spreadsheets ------------------------------------------------------------------------------------------------------

LABELS = ("=1+1", "+x", "-cmd|' /C calc'!A0", "@sum", "＝1+1", "-5", "+81.5", "'quoted", "plain", "a=b")
MARKED = ("'=1+1", "'+x", "'-cmd|' /C calc'!A0", "'@sum", "'＝1+1", "-5", "+81.5", "'quoted", "plain", "a=b")


def test_cells_of_text():
    assert tuple(map(names.cell, LABELS)) == MARKED
    assert [names.cell(text) for text in ("\tx", "\rx", "\nx", "-5+1", "-", "")] == [
        "'\tx",
        "'\rx",
        "'\nx",
        "'-5+1",
        "'-",
        "",
    ]
    coded = pa.array([*LABELS, None]).dictionary_encode()
    table = pa.table({"=x": [*LABELS, None], "n": [-1] * 11, "coded": coded, "f": [-1.5] * 11})
    made = names.cells(table)
    assert made.column_names == ["'=x", "n", "coded", "f"] and made["n"].to_pylist() == [-1] * 11
    assert made["'=x"].to_pylist() == made["coded"].to_pylist() == [*MARKED, None]
    assert tuple(names.uncell(pa.array(MARKED), LABELS).to_pylist()) == LABELS


@pytest.fixture
def exported(tmp_path):
    domain = ks.Domain.of(ks.Nominal("place", labels=LABELS))
    counts = ks.Counts.from_dense(np.arange(1, 11) * 1000, domain, UNIT, "=cmd")
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    out.export(str(tmp_path / "x.csv"), unmetered=True)
    out.export(str(tmp_path / "x.xlsx"), unmetered=True)
    out.export(str(tmp_path / "x.sqlite"), unmetered=True)
    return out, domain


def test_exports_hold_no_formula_and_are_read_back(tmp_path, exported):
    out, domain = exported
    for name in ("x.csv", "x_meta.csv"):
        with (tmp_path / name).open(encoding="utf-8-sig", newline="") as file:
            for row in csv.reader(file):
                assert not any(text.startswith(("=", "+x", "-cmd", "@", "＝")) for text in row)
    with (tmp_path / "x.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(row["place"] for row in rows) == MARKED and all(int(row["value"]) > 0 for row in rows)
    again = read_public(tmp_path / "x.csv", domain, name="x", columns={"place": "place"}, value="value")
    assert np.array_equal(again.on(out.cells), out.values)
    with sqlite3.connect(tmp_path / "x.sqlite") as base:  # a database is not a spreadsheet
        assert tuple(row[0] for row in base.execute("SELECT place FROM release ORDER BY cell")) == LABELS


def test_a_workbook_holds_no_formula_and_is_read_back(tmp_path, exported):
    out, domain = exported
    sheet = File([tmp_path / "x.xlsx"], sheet="release")
    for part in ("release", "release_meta"):
        stream = open_stream(File([tmp_path / "x.xlsx"], sheet=part))
        for batch, _ in stream.start(list(stream.names), []):
            rows = [stream.names, *zip(*batch.to_pydict().values(), strict=True)]
            assert not any(str(text).startswith(("=", "+x", "-cmd", "@", "＝")) for row in rows for text in row)
    again = ks.count(sheet, domain, columns={"place": "place"}, unit=UNIT, weight="value", data="again")
    assert np.array_equal(again.cells, out.cells) and np.array_equal(again.values, out.values)


def test_a_label_that_is_a_marked_one_is_itself(tmp_path):
    domain = ks.Domain.of(ks.Nominal("place", labels=("=x", "'=x")))
    (tmp_path / "x.csv").write_text("place,n\n=x,1\n'=x,2\n")
    made = ks.count(str(tmp_path / "x.csv"), domain, columns={"place": "place"}, unit=UNIT, weight="n")
    assert made.values.tolist() == [1, 2]


def test_anonymised_tables_hold_no_formula(tmp_path):
    spec = ks.kanon.Recoding.of(ks.kanon.categories("job", ["=1+1", "@sum"]), sensitive=["ill"])
    rows = pa.table({"job": ["=1+1", "=1+1", "@sum", "@sum"], "ill": ["+cmd", "flu", "-5", "-1"]})
    ks.kanon.specialize(rows, spec, k=2).save(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        found = sorted(tuple(row) for row in csv.reader(file))
    assert found == sorted([("job", "ill"), ("'=1+1", "'+cmd"), ("'=1+1", "flu"), ("'@sum", "-5"), ("'@sum", "-1")])
