"""Frames and files to Counts: every frame library, every fault at once, nothing inferred from the data."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pandas.api.types import is_hashable

import kasuri as ks
from kasuri.ingest import Query, Table
from kasuri.meshcode import encode
from kasuri.schema import ROWS_ALONE, Domain, Mesh, Nominal, Ordered, Time, Unit

PERSON = Unit("person", "add-remove", 1)
DOMAIN = Domain.of(Mesh("grid", level="500m", origin=(8480, 6240), shape=(4, 6)), Nominal("sex", ("f", "m")))


def columns(n=12):
    row, col = np.divmod(np.arange(n), 6)
    return {
        "code": encode(row + 8480, col + 6240, "500m"),
        "sex": np.array(["f", "m"] * (n // 2)),
        "people": np.arange(1, n + 1),
    }


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda d: pl.DataFrame(d).lazy(),
                                  lambda d: pa.table({k: pa.array(v) for k, v in d.items()})],
                         ids=["pandas", "polars", "polars lazy", "pyarrow"])  # fmt: skip
def test_every_frame_gives_the_same_counts(make):
    counts = ks.count(make(columns()), DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
    assert counts.values.tolist() == list(range(1, 13))
    assert counts.cells.tolist() == [2 * i + i % 2 for i in range(12)]
    assert counts.assumes


def test_codes_as_text():
    data = columns()
    frame = pd.DataFrame({"code": [str(c) for c in data["code"]], "sex": data["sex"], "people": data["people"]})
    counts = ks.count(frame, DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
    assert counts.values.tolist() == list(range(1, 13))


def test_every_fault_at_once():
    frame = pd.DataFrame({"code": [533900001, 1, 533900002], "sex": ["f", "x", "m"], "people": ["a", "b", "c"]})
    with pytest.raises(ks.DomainError) as caught:
        ks.count(frame, DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people", file="t.csv")
    text = str(caught.value)
    assert "t.csv: column code" in text and "column sex" in text and "column people" in text
    with pytest.raises(ks.DomainError) as caught:
        ks.count(frame, DOMAIN, columns={"grid": "kode"}, unit=PERSON)
    assert len(caught.value.faults) == 3  # no column kode, no axis sex, no weight


def test_unbounded_weights_and_tables_without_counts_are_refused():
    frame = pd.DataFrame({"person": [1], "code": [533900001], "sex": ["f"], "people": [1]})
    with pytest.raises(ks.PrivacyError, match="max_weight"):
        ks.count(frame, DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
    with pytest.raises(ks.DomainError, match="pre-aggregated"):
        ks.count(frame.drop(columns="person"), DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON)


def test_one_row_never_changes_how_the_others_are_read(tmp_path):
    """A text among numeric labels changes the column's type; every other row must keep its cell."""
    from kasuri.ingest import read_table

    domain = Domain.of(Nominal("grade", ("1", "2", "3", "unknown")))
    (tmp_path / "a.csv").write_text("grade,n\n1,90\n2,50\n3,20\n")
    (tmp_path / "b.csv").write_text("grade,n\n1,90\n2,50\n3,20\nunknown,1\n")
    for read in (read_table, pd.read_csv, pl.read_csv):
        a, b = (
            ks.count(read(tmp_path / name), domain, columns={"grade": "grade"}, unit=PERSON, weight="n")
            for name in ("a.csv", "b.csv")
        )
        assert a.cells.tolist() == [0, 1, 2] and b.cells.tolist() == [0, 1, 2, 3]
        assert a.values.tolist() == b.values.tolist()[:3]


@pytest.mark.parametrize("form", [lambda held: pd.DataFrame(held, dtype=object), pa.table])
def test_a_column_of_missing_values_is_not_refused(form):
    """It has no type; with one more record it would have one, so that a refusal would tell of that record."""
    domain = Domain.of(ks.Grid("g", crs="EPSG:4326", step=1, shape=(50, 50)), ks.Time("t", "2020-01-01", 3600, 24))
    columns = {"g": {"lat": "lat", "lon": "lon"}, "t": "t"}
    unit = Unit(id="person", change="add-remove", max_cells=1, max_weight=3)
    rows = {"person": ["p", "q"], "lat": [None, 35.5], "lon": [None, 20.5], "t": [None, 4], "n": [None, 2]}
    for size in (1, 2):
        frame = form({name: held[:size] for name, held in rows.items()})
        try:
            found = ks.count(frame, domain, columns=columns, unit=unit, weight="n")
        except ks.DomainError as refused:
            raise AssertionError(f"refused with {size - 1} records that have values") from refused
        assert found.values.tolist() == [2][: size - 1]


SURROGATE = "\ud800"
ODD = [
    None, float("nan"), float("inf"), -0.0, 0.5, 1e308, 2.0**53, 2**63, 2**70, 10**5000, -1, True, "", "x", SURROGATE,
    b"x", b"\xff", Decimal("1.5"), Decimal("1e999999"), Decimal("NaN"), Decimal(10) ** 80, 1j, [1], {"a": 1}, object(),
    date(2020, 1, 1), datetime(9999, 12, 31), datetime(2020, 1, 1, tzinfo=UTC), time(5), timedelta(1), pd.NA, pd.NaT,
    pd.Timestamp("2020-01-01 05:00:00.123456789"), pd.Timestamp("2020-01-01", tz="Asia/Tokyo"), np.float32(0.5),
    np.datetime64("2020-01-01T05"), np.uint64(2**63), UUID(int=1), np.array([1, 2]),
]  # fmt: skip
CODES = encode(np.arange(8400, 8404), np.arange(6080, 6084), "500m").tolist()
PLACES = {
    "mesh": (Mesh("a", shape=(4, 4)), ["v", "w"], [0, 1, 2, 3]),
    "codes": (Mesh("a", "500m", (8400, 6080), shape=(4, 4)), "v", CODES),
    "degrees": (ks.Grid("a", crs="EPSG:4326", step=1, shape=(50, 50)), {"lat": "v", "lon": "w"}, [0.5, 1, 2.25, 3]),
    "texts": (Nominal("a", ("p", "q", "r")), "v", ["p", "q", "r", "p"]),
    "numbers": (Nominal("a", ("1", "2", "3")), "v", [1, 2.0, 3, np.int8(1)]),
    "index": (Ordered("a", 9), "v", [0, 1, Decimal(2), 8.0]),
    "times": (Time("a", "2020-01-01", 3600, 24), "v",
              [datetime(2020, 1, 1, 5), date(2020, 1, 1), "2020-01-01 06:00", 3]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("form", ["object", "category"])
def test_one_odd_object_of_a_frame_changes_no_other_row(kind, form):
    """Arrow types a column of Python objects by all of them: one b"x" among texts would make bytes of every text."""
    axis, place, values = PLACES[kind]
    unit = Unit("person", "add-remove", 1, max_weight=2)
    usual = [{"person": f"p{i}", "v": values[i % 4], "w": i % 4, "n": 1} for i in range(8)]

    def counted(rows):
        frame = pd.DataFrame(rows, dtype=object)
        frame["v"] = frame["v"].astype(form)
        made = ks.count(frame, Domain.of(axis), columns={"a": place}, unit=unit, weight="n", key=bytes(32))
        return np.bincount(made.cells, made.values, minlength=made.domain.size)

    before = counted(usual)
    assert before.sum() == 8
    for column in ("v", "person", "n"):
        # what pandas itself takes into categories
        for odd in ODD if form == "object" else [odd for odd in ODD if is_hashable(odd) and odd is not SURROGATE]:
            after = counted([*usual, {"person": "victim", "v": values[0], "w": 0, "n": 2} | {column: odd}])
            assert np.abs(after - before).sum() <= 2, (column, odd)


def test_an_object_is_read_as_its_text():
    frame = pd.DataFrame(
        {"person": [7, "7", 7.0, b"7", Decimal("7.00"), 8, 2.5, UUID(int=1)], "x": [0] * 8}, dtype=object
    )
    assert ks.count(frame, Domain.of(Ordered("x", 3)), columns={"x": "x"}, unit=PERSON).values.tolist() == [4]


def test_missing_labels_durations_and_double_names_are_refused():
    domain = Domain.of(Nominal("w", ("nan", "None", "a")))
    for bad in (None, float("nan"), True):
        frame = pd.DataFrame({"w": pd.Series([bad, "a"], dtype=object), "n": [1, 2]})
        with pytest.raises(ks.DomainError, match="rows 1"):
            ks.count(frame, domain, columns={"w": "w"}, unit=PERSON, weight="n")
    line = Domain.of(Ordered("x", 3))
    frame = pd.DataFrame({"x": [0], "n": pd.to_timedelta([3], unit="s")})
    with pytest.raises(ks.DomainError, match="whole number"):
        ks.count(frame, line, columns={"x": "x"}, unit=PERSON, weight="n")
    double = pa.Table.from_arrays([pa.array([0]), pa.array([1])], names=["x", "x"])
    with pytest.raises(ks.DomainError):
        ks.count(double, line, columns={"x": "x"}, unit=PERSON, weight="x")


def test_a_missing_header_shows_no_data():
    frame = pd.DataFrame({"533945263": [533945264], "1234": [77]})
    with pytest.raises(ks.DomainError) as caught:
        ks.count(frame, DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
    assert "1234" not in str(caught.value) and "533945263" not in str(caught.value)


def test_repeated_cells_are_refused_by_row():
    frame = pd.DataFrame({"code": [848000, 848000], "x": [0, 0], "people": [1, 2]})
    domain = Domain.of(Ordered("x", 3))
    with pytest.raises(ks.DomainError, match="more than once: rows 1, 2"):
        ks.count(frame, domain, columns={"x": "x"}, unit=PERSON, weight="people", file="t")


def test_empty_frame_works():
    frame = pd.DataFrame({"x": np.zeros(0, int), "people": np.zeros(0, int)})
    assert ks.count(frame, Domain.of(Ordered("x", 3)), columns={"x": "x"}, unit=PERSON, weight="people").cells.size == 0


def test_deleting_a_record_never_changes_the_domain():
    data = columns()
    whole = ks.count(pd.DataFrame(data), DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
    for i in range(12):
        part = pd.DataFrame({k: np.delete(v, i) for k, v in data.items()})
        counts = ks.count(part, DOMAIN, columns={"grid": "code", "sex": "sex"}, unit=PERSON, weight="people")
        assert counts.domain == whole.domain == DOMAIN


LONG = '"' + "te\n" * 30_000 + '",person,row,col\n'  # longer than the block that is looked at first


@pytest.mark.parametrize("head", ["\nperson,row,col\n", '"no\nte",person,row,col\n', LONG, "person,row,col\n"],
                         ids=["blank line", "line break in a name", "long", "plain"])  # fmt: skip
def test_ids_of_a_csv_are_text_whatever_its_header_looks_like(tmp_path, head):
    """ "7", "07" and "007" are three people, with or without one more whose id is no number."""
    domain, lead = Domain.of(Mesh("grid", shape=(4, 4))), "a," if "te" in head else ""
    for extra in ("", f"{lead}x,3,3\n"):
        (tmp_path / "a.csv").write_text(head + f"{lead}7,0,0\n{lead}07,0,1\n{lead}007,0,2\n" + extra)
        counts = ks.count(tmp_path / "a.csv", domain, columns={"grid": ("row", "col")}, unit=PERSON)
        assert counts.cells.tolist() == [0, 1, 2, 15][: 3 + bool(extra)]


def test_an_error_of_a_source_quotes_no_record(tmp_path):
    import duckdb

    with duckdb.connect(str(tmp_path / "q.duckdb")) as base:
        base.execute("CREATE TABLE t AS SELECT i AS person, CASE WHEN i = 4000 THEN 'SECRET' ELSE '1' END AS r "
                     "FROM range(5000) s(i)")  # fmt: skip
    (tmp_path / "a.csv").write_text("person,r,c\n" + "1,1,1\n" * 2000 + "1,SECRET,1\n")
    sql = "SELECT person, r::INT AS r, 1 AS c FROM t LIMIT 5000"
    live = duckdb.connect(str(tmp_path / "q.duckdb"), read_only=True)
    sources = [Query(str(tmp_path / "q.duckdb"), sql), live.sql(sql), pl.scan_csv(tmp_path / "a.csv")]
    domain, places = Domain.of(Mesh("grid", shape=(4, 4))), {"grid": ("r", "c")}
    for source in sources:
        with pytest.raises(ks.KasuriError) as caught:
            ks.count(source, domain, columns=places, unit=PERSON, assume=ROWS_ALONE)
        assert "SECRET" not in str(caught.value)
    live.close()


def test_times_and_codes_out_of_range_are_dropped_row_by_row():
    hours = Domain.of(Time("t", "2020-01-01T00:00:00", 3600, 24))
    start = 1577836800
    for unit, values in {
        "ns": [start * 10**9 + 1, start * 10**9 - 1],
        "s": [start, 2**62],
        "ms": [start * 1000, None],
    }.items():
        frame = pa.table({"person": ["a", "b"], "t": pa.array(values, pa.timestamp(unit))})
        counts = ks.count(frame, hours, columns={"t": "t"}, unit=PERSON)
        assert (counts.cells.tolist(), counts.values.tolist()) == ([0], [1])
    frame = pa.table({"person": ["a", "b", "c"], "r": pa.array([2**63 + 5, None, 1], pa.uint64()), "c": [0, 0, 0]})
    counts = ks.count(frame, Domain.of(Mesh("grid", shape=(4, 4))), columns={"grid": ("r", "c")}, unit=PERSON)
    assert counts.cells.tolist() == [4]


def test_one_odd_value_never_refuses_the_others(tmp_path):
    """SQLite types each value by itself, and Parquet may hold text that is not UTF-8."""
    import sqlite3

    with sqlite3.connect(tmp_path / "v.db") as base:
        base.execute("CREATE TABLE t (person, r, c)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?)", [(7, 0, 0), ("x", "0", 1), (b"\xff", 0, 2), ("y", 1.0, "?")])
        base.execute("INSERT INTO t VALUES (CAST(x'ff' AS TEXT), 0, 3)")
        base.execute("INSERT INTO t VALUES ('z', 1.0, 3)")
    base.close()
    bad = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    frame = pa.table({"person": bad, "r": [0, 0], "c": [0, 1]})
    for source, cells in ((Table(str(tmp_path / "v.db"), "t"), [0, 1, 7]), (frame, [1])):
        counts = ks.count(source, Domain.of(Mesh("grid", shape=(4, 4))), columns={"grid": ("r", "c")}, unit=PERSON)
        assert counts.cells.tolist() == cells


def test_columns_of_a_release_differ_by_more_than_case():
    for axes in ((Ordered("age", 2), Ordered("Age", 2)), (Ordered("Value", 2),),
                 (Mesh("a", shape=(2, 2)), Mesh("b", shape=(2, 2)), Ordered("A_row", 2))):  # fmt: skip
        with pytest.raises(ks.DomainError, match=r"there twice|is a column"):
            Domain.of(*axes)
