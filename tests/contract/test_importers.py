"""Importers of published statistics: fixtures are written here, from the published layouts, without the importers."""

import zipfile

import numpy as np
import pytest

import kasuri as ks
from kasuri.ingest import Query, Table, read_estat, read_mobile, read_people_flow
from kasuri.schema import ROWS_ALONE, Domain, Mesh, Nominal, Time, Unit

PERSON = Unit("person", "add-remove", 1)
MESH = Mesh("grid", "500m", (53 * 160, 39 * 160), shape=(160, 160))

HEAD = "KEY_CODE,HTKSYORI,HTKSAKI,GASSAN,T001141001,T001141002,T001141003\r\n"
LABELS = ",,,,　人口（総数）,　人口（総数）　男,　人口（総数）　女\r\n"
ROWS = [
    "533900001,0,,,10,6,4",  # replaced below: digit 0 is no quadrant
    "533900002,1,,533900003;533900004,100,55,45",
    "533900003,2,533900002,,3,*,*",
    "533900004,2,533900002,,2,*,*",
    "533900011,0,,,7,3,4",
    "533900011,0,,,5,5,0",  # the same border cell in another prefecture
    "543900011,0,,,900,450,450",  # a neighbour mesh, outside the window
]
ROWS[0] = "533901111,0,,,10,6,4"


def write(path, rows=ROWS, head=HEAD, labels=LABELS, encoding="cp932"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tblT001141H5339.txt", (head + labels + "\r\n".join(rows) + "\r\n").encode(encoding))
    return path


def test_estat_totals_and_border_cells(tmp_path):
    counts = read_estat(write(tmp_path / "a.zip"), Domain.of(MESH), columns="人口（総数）", unit=PERSON, data="census")
    assert counts.values.sum() == 10 + 100 + 3 + 2 + 7 + 5
    assert 12 in counts.values.tolist()
    assert len(counts.assumes) == 1


def test_estat_withheld_details_are_counted_where_they_were_merged(tmp_path):
    path = write(tmp_path / "a.zip")
    domain = Domain.of(MESH, Nominal("sex", ("m", "f")))
    columns = {"m": "人口（総数）　男", "f": "T001141003"}
    with pytest.raises(ks.DomainError, match="withheld"):
        read_estat(path, domain, columns=columns, unit=PERSON)
    counts = read_estat(path, domain, columns=columns, unit=PERSON, suppressed="merged")
    dense = dict(zip(counts.cells.tolist(), counts.values.tolist(), strict=True))
    assert sum(v for c, v in dense.items() if c % 2 == 0) == 6 + 55 + 3 + 5
    assert sum(v for c, v in dense.items() if c % 2 == 1) == 4 + 45 + 4 + 0
    assert any("withheld" in words for words in counts.assumes)
    assert ks.release(counts, ks.geometric(), epsilon="1", ledger=None).guarantee.assumes
    none = write(tmp_path / "b.zip", rows=[ROWS[0]])  # the caveat must not tell whether a cell was withheld
    assert read_estat(none, domain, columns=columns, unit=PERSON, suppressed="merged").assumes == counts.assumes


def test_ten_faults_at_once(tmp_path):
    broken = [
        "533900009,0,,,10,6,4",  # 1 no quadrant 9
        "53390000,0,,,10,6,4",  # 1 km code: same rule as above, another row
        "533900001,0,,,10,6",  # 2 a field is missing
        "533900002,7,,,1,1,0",  # 3 HTKSYORI
        "533900003,0,,,1,*,0",  # 4 withheld without HTKSYORI 2
        "533900004,2,,,1,*,0",  # 5 no HTKSAKI
        "533900011,2,533900999,,1,*,0",  # 6 HTKSAKI is not a cell that took others in
        "533900012,2,533900021,,1,*,0",  # 7 the cell does not list it
        "533900021,1,,533900022,1,1,0",
        "533900013,0,,,-4,-4,0",  # 8 negative
        "533900014,0,,,1.5,1.5,0",  # same rule as 8
    ]
    path = write(tmp_path / "secret.zip", broken)
    with pytest.raises(ks.DomainError) as caught:
        read_estat([path, path, tmp_path / "none.zip"], Domain.of(MESH, Nominal("sex", ("m", "f"))),
                   columns={"m": "人口（総数）　男", "f": "人口"}, unit=PERSON, suppressed="merged")  # fmt: skip
    faults = caught.value.faults
    text = "\n".join(faults).replace(str(tmp_path), "")
    wanted = (
        "given twice",
        "no such file",
        "no column '人口'",
        "7 fields are needed: rows 5",
        "not a 500m mesh code: rows 3, 4",
        "HTKSYORI: not 0, 1 or 2: rows 6",
        "though HTKSYORI is not 2: rows 7",
        "must name the cell that holds its people: rows 8",
        "not marked as taking others in (HTKSYORI 1): rows 9",
        "does not list it (GASSAN): rows 10",
        "not a whole number of people (0, 1, 2, ...): rows 12, 13",
    )
    for words in wanted:
        assert words in text, words
    assert len(faults) >= 10
    assert "-4" not in text and "1.5" not in text


@pytest.mark.parametrize(("change", "match"), [
    ({"encoding": "utf-8"}, "cp932"), ({"head": "code,a,b,c,d,e,f\r\n"}, "KEY_CODE"),
    ({"head": HEAD.replace("HTKSAKI", "X")}, "HTKSAKI"), ({"labels": LABELS.replace("　男", "")}, "more than one"),
])  # fmt: skip
def test_headers_and_encoding(tmp_path, change, match):
    with pytest.raises(ks.DomainError, match=match):
        read_estat(write(tmp_path / "a.zip", **change), Domain.of(MESH), columns="人口（総数）", unit=PERSON)


MOBILE = """date,time,area,residence,age,gender,population
20190401,0900,533900011,-1,-1,-1,100
20190401,0900,533900011,-1,-1,1,60
20190401,0900,533900011,-1,-1,2,40
20190401,0900,533900011,-1,20,-1,30
20190401,0900,533900011,13101,-1,-1,70
20190401,1000,533900012,-1,-1,-1,50
20190401,1000,533900012,-1,-1,1,50
20190402,0900,533900012,-1,-1,-1,999
"""


def test_mobile_totals_are_not_counted_twice(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(MOBILE)
    hours = Time("hour", "2019-04-01T00:00", seconds=3600, size=24)
    domain = Domain.of(MESH, hours)
    counts = read_mobile(path, domain, columns={"grid": "area", "hour": "time"}, unit=PERSON)
    assert counts.values.tolist() == [100, 50]
    assert (counts.cells % 24).tolist() == [9, 10]
    by_sex = Domain.of(MESH, hours, Nominal("sex", ("1", "2")))
    counts = read_mobile(path, by_sex, columns={"grid": "area", "hour": "time", "sex": "gender"}, unit=PERSON)
    assert counts.values.tolist() == [60, 40, 50]
    path.write_text(MOBILE.replace("11,-1,", "11,13101,").replace("12,-1,", "12,13101,"))
    with pytest.raises(ks.DomainError, match="residence"):
        read_mobile(path, domain, columns={"grid": "area", "hour": "time"}, unit=PERSON)


def test_people_flow_sums_municipalities(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text(
        "mesh1kmid,prefcode,citycode,year,month,dayflag,timezone,population\n"
        "53390000,13,13101,2019,12,1,1,40\n53390000,13,13102,2019,12,1,1,2\n"
        "53390001,13,13101,2019,12,1,0,99\n53390001,13,13101,2019,12,1,1,10\n60000000,13,1,2019,12,1,1,5\n"
    )
    domain = Domain.of(Mesh("grid", "1km", (53 * 80, 39 * 80), shape=(80, 80)))
    pick = {"year": 2019, "month": 12, "dayflag": 1, "timezone": 1}
    assert read_people_flow(path, domain, **pick, unit=PERSON).values.tolist() == [42, 10]
    with pytest.raises(ks.DomainError, match="no row"):
        read_people_flow(path, domain, **pick | {"month": 1}, unit=PERSON)


def test_origin_and_destination(tmp_path):
    path = tmp_path / "od.csv"
    path.write_text("from,to,trips\n53390000,53390001,12\n53390001,53390000,7\n53390000,53390000,100\n")
    meshes = [Mesh(name, "1km", (53 * 80, 39 * 80), shape=(2, 4)) for name in ("origin", "destination")]
    domain = Domain.of(*meshes)
    counts = ks.count(path, domain, columns={"origin": "from", "destination": "to"}, unit=PERSON, weight="trips")
    dense = np.zeros(domain.size, int)
    dense[counts.cells] = counts.values
    table = dense.reshape(2, 4, 2, 4)
    assert (table[0, 0, 0, 1], table[0, 1, 0, 0], table[0, 0, 0, 0], table.sum()) == (12, 7, 100, 119)


def test_queries(tmp_path):
    import sqlite3

    import duckdb

    rows = [("a", 53390000), ("a", 53390001), ("b", 53390000), ("é", 53390000)]
    with sqlite3.connect(tmp_path / "v.db") as base:
        base.execute("CREATE TABLE visit (person TEXT, code INTEGER)")
        base.executemany("INSERT INTO visit VALUES (?, ?)", rows)
    base.close()
    with duckdb.connect(str(tmp_path / "v.duckdb")) as duck:
        duck.execute("CREATE TABLE visit (person VARCHAR, code INTEGER)")
        duck.executemany("INSERT INTO visit VALUES (?, ?)", rows)
    domain = Domain.of(Mesh("grid", "1km", (53 * 80, 39 * 80), shape=(2, 4)))
    for name in ("v.db", "v.duckdb"):
        for query, assume in (
            (Table(str(tmp_path / name), "visit"), None),
            (Query(str(tmp_path / name), "SELECT person, code FROM visit"), ROWS_ALONE),
        ):
            unit = Unit("person", "add-remove", 2)
            counts = ks.count(query, domain, columns={"grid": "code"}, unit=unit, assume=assume)
            assert counts.values.tolist() == [3, 1] and counts.assumes == (() if assume is None else (ROWS_ALONE,))
    from concurrent.futures import ThreadPoolExecutor

    from kasuri.ingest.sources import open_stream

    rows_read = open_stream(Query(str(tmp_path / "v.db"), "SELECT person, code FROM visit")).start(["person"], [])
    next(rows_read)
    with ThreadPoolExecutor(1) as pool:  # DuckDB goes on reading in a thread of its own
        assert pool.submit(lambda: list(rows_read)).result() == []
    with pytest.raises(ks.KasuriError, match="cannot be run"):
        ks.count(Query(str(tmp_path / "v.db"), "SELECT nothing"), domain, columns={"grid": "code"}, unit=PERSON)
    frame = duckdb.sql("SELECT 'x' AS person, 53390000 AS code")
    assert ks.count(frame, domain, columns={"grid": "code"}, unit=PERSON, assume=ROWS_ALONE).values.tolist() == [1]


def test_coordinates_and_times(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("person,y,x,t\na,35.681236,139.767125,2\nb,35.681236,139.767125,2\nc,95,x,2\n")
    domain = Domain.of(MESH, Time("hour", "2020-01-01", 3600, 24))
    places = {"grid": {"lat": "y", "lon": "x"}, "hour": "t"}
    counts = ks.count(path, domain, columns=places, unit=PERSON)
    assert counts.values.tolist() == [2]
    row, col, hour = (part[0] for part in domain.unravel(counts.cells))
    assert (row, col, hour) == (83, 122, 2)


def test_times_as_text(tmp_path):
    """Each entry by itself: an index in digits, an ISO time, or nothing; none moves another."""
    path = tmp_path / "v.csv"
    texts = ["2020-01-01T05:00:00", "2020-01-01 05:59:59.9", "6", "2020-01-01", "2020-01-02", "2020-02-30", "x", "",
             "2020-01-01T07:00+09:00", "24", "20200101"]  # fmt: skip
    path.write_text("person,t\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    counts = ks.count(path, Domain.of(Time("hour", "2020-01-01", 3600, 24)), columns={"hour": "t"}, unit=PERSON)
    assert (counts.cells.tolist(), counts.values.tolist()) == ([0, 5, 6], [1, 2, 1])


def test_a_query_spills_into_the_private_folder(tmp_path):
    import duckdb

    from kasuri.ingest.sources import open_stream

    duckdb.connect(str(tmp_path / "v.duckdb")).close()
    sql = "SELECT current_setting('temp_directory') AS place, current_setting('memory_limit') AS most"
    stream = open_stream(Query(str(tmp_path / "v.duckdb"), sql), memory="512MiB")
    ((batch, _),) = stream.start(["place", "most"], [])
    assert batch["most"][0].as_py() == "512.0 MiB"
    assert "kasuri-work-" in batch.column(0)[0].as_py()
