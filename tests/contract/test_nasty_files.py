"""Files as people have them: each is read right, or refused with what to do. No record decides how another is read."""

import datetime
import re
import subprocess
import sys
import tomllib
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri import job
from kasuri.errors import KasuriError
from kasuri.ingest import File, Melt, utf8
from kasuri.ingest.sources import open_stream
from kasuri.ingest.workbook import text
from kasuri.job.begun import begun
from kasuri.store import workbook

PERSON = ks.Unit("person", "add-remove", 1)
WARDS = ks.Domain.of(ks.Nominal("ward", labels=("千代田", "中央", "港")), ks.Nominal("sex", labels=("女", "男")))
COLUMNS = {"ward": "区", "sex": "性別"}
ROWS = [("千代田", "女", 3), ("千代田", "男", 1), ("港", "女", 2)]
TRUTH = [[3, 1], [0, 0], [2, 0]]
TEXT = "区,性別,人口\r\n" + "".join(f"{ward},{sex},{n}\r\n" for ward, sex, n in ROWS)


def counted(source, **more):
    domain, columns = more.pop("domain", WARDS), more.pop("columns", COLUMNS)
    found = ks.count(source, domain, columns=columns, unit=PERSON, weight=more.pop("weight", "人口"), **more)
    table = np.zeros(domain.size, np.int64)
    table[found.cells] = found.values
    return table.reshape(domain.shape).tolist()


def xlsx(path, rows, *sheets, merged=None):
    """A workbook of rows, and of further (name, rows)."""
    made = dict((("Sheet1", rows), *sheets))
    workbook.write({title: pa.table({"x": ["x"]}) for title in made}, path)
    with zipfile.ZipFile(path) as file:
        archive = {part: file.read(part) for part in file.namelist()}
    for number, body in enumerate(made.values(), 1):
        cells = "".join(map(workbook._row, body))
        merge = f'<mergeCells count="1"><mergeCell ref="{merged}"/></mergeCells>' if merged and number == 1 else ""
        main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        sheet = f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData>{merge}</worksheet>'
        archive[f"xl/worksheets/sheet{number}.xml"] = sheet.encode()
    with zipfile.ZipFile(path, "w") as file:
        for part, body in archive.items():
            file.writestr(part, body)
    return path


def saved(folder, data, name="t.csv"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


READ = {
    "UTF-8": lambda folder: saved(folder, TEXT),
    "UTF-8 with a mark": lambda folder: saved(folder, TEXT.encode("utf-8-sig")),
    "cp932, as Excel in Japan saves CSV": lambda folder: saved(folder, TEXT.encode("cp932")),
    "UTF-16 with a mark": lambda folder: saved(folder, TEXT.encode("utf-16")),
    "UTF-16, big end first": lambda folder: saved(folder, b"\xfe\xff" + TEXT.encode("utf-16-be")),
    "UTF-16 without a mark, told": lambda folder: File([saved(folder, TEXT.encode("utf-16-le"))], encoding="UTF-16"),
    "cp932, told by another name": lambda folder: File([saved(folder, TEXT.encode("cp932"))], encoding="Shift_JIS"),
    "blank lines at the end": lambda folder: saved(folder, TEXT + "\r\n\r\n"),
    "every cell in quotation marks": lambda folder: saved(
        folder, "\n".join('"' + line.replace(",", '","') + '"' for line in TEXT.splitlines())
    ),
    "columns in another order, and more of them": lambda folder: saved(
        folder, "備考,人口,性別,区\n" + "".join(f"x,{n},{sex},{ward}\n" for ward, sex, n in ROWS)
    ),
    "Excel": lambda folder: xlsx(folder / "t.xlsx", [("区", "性別", "人口"), *ROWS]),
    "Excel with empty rows above and below": lambda folder: xlsx(
        folder / "t.xlsx", [(None, None), ("区", "性別", "人口"), *ROWS, (None, None, None)]
    ),
    "Excel with other empty sheets": lambda folder: xlsx(
        folder / "t.xlsx", [("区", "性別", "人口"), *ROWS], ("空", [])
    ),
    "Excel, one of two sheets": lambda folder: File(
        [xlsx(folder / "t.xlsx", [("x",), (1,)], ("人口", [("区", "性別", "人口"), *ROWS]))], sheet="人口"
    ),
    "a wide Excel table": lambda folder: File(
        [xlsx(folder / "t.xlsx", [("区", "女の数", "男の数"), ("千代田", 3, 1), ("港", 2, 0)])],
        melt=Melt(("性別",), "人口", {"女の数": ("女",), "男の数": ("男",)}),
    ),
    "a wide cp932 table": lambda folder: File(
        [saved(folder, "区,女,男\n千代田,3,1\n港,2,0\n".encode("cp932"))],
        melt=Melt(("性別",), "人口", {"女": ("女",), "男": ("男",)}),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_read_right(name, tmp_path):
    assert counted(READ[name](tmp_path)) == TRUTH


REFUSED = {
    "thousands separators": (lambda f: saved(f, TEXT.replace(",3", ',"1,003"')), "plain digits (1234; neither 1,234"),
    "full-width digits": (lambda f: saved(f, TEXT.replace(",3", ",３")), "nor full-width digits"),
    "cp932 cells under a header in ASCII": (
        lambda f: saved(f, TEXT.replace("区,性別,人口", "ward,sex,n").encode("cp932")),
        "", {"columns": {"ward": "ward", "sex": "sex"}, "weight": "n"},
    ),
    "the wrong encoding, told": (lambda f: File([saved(f, TEXT.encode("cp932"))], encoding="utf-8"), "no column"),
    "an unknown encoding": (lambda f: File([saved(f, TEXT)], encoding="ebcdic"), "use one of utf-8"),
    "a header in no encoding": (lambda f: saved(f, b"\x81\xff,b\n1,2\n"), "save as UTF-8"),
    "tabs": (lambda f: saved(f, TEXT.replace(",", "\t")), "save it with commas"),
    "semicolons": (lambda f: saved(f, TEXT.replace(",", ";")), "save it with commas"),
    "two header rows": (lambda f: saved(f, TEXT.replace("\r\n", "\r\n地域,区分,（人）\r\n", 1)), "rows 1"),
    "a title above the header in Excel": (
        lambda f: xlsx(f / "t.xlsx", [("区別人口", None, None), ("区", "性別", "人口"), *ROWS]), "no column",
    ),
    "a header with a gap in Excel": (
        lambda f: xlsx(f / "t.xlsx", [("区", None, "人口"), *ROWS]), "no name in column B; leave one header row",
    ),
    "merged cells in Excel": (
        lambda f: xlsx(f / "t.xlsx", [("区", "性別", "人口"), *ROWS], merged="A2:A3"), "unmerge them in Excel",
    ),
    "two full sheets in Excel": (
        lambda f: xlsx(f / "t.xlsx", [("区", "性別", "人口"), *ROWS], ("2015", [("a",), (1,)])), "one with sheet =",
    ),
    "a sheet that is not there": (
        lambda f: File([xlsx(f / "t.xlsx", [("区", "性別", "人口"), *ROWS])], sheet="2020"), "its sheets are Sheet1",
    ),
    "no workbook at all": (lambda f: saved(f, b"PK\x03\x04 nothing", "t.xlsx"), "is it damaged"),
    "an old workbook": (lambda f: saved(f, b"\xd0\xcf\x11\xe0", "t.xls"), "save it as one of these"),
    "a row without its axis": (
        lambda f: saved(f, TEXT), "add an axis for the columns in which these rows differ, or say sum = true",
        {"domain": ks.Domain.of(WARDS.axes[0]), "columns": {"ward": "区"}},
    ),
    "a melted column that is not there": (
        lambda f: File([saved(f, TEXT)], melt=Melt(("年齢",), "n", {"女": ("女",), "男": ("男",)})), "which melt lists",
    ),
    "a count with a fraction": (lambda f: saved(f, TEXT.replace(",3", ",3.5")), "counts are 0, 1, 2"),
    "an empty file": (lambda f: saved(f, b""), "read"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_remedy(name, tmp_path):
    make, words, *more = REFUSED[name]
    with pytest.raises(KasuriError) as refusal:
        counted(make(tmp_path), **(more[0] if more else {}))
    assert words in str(refusal.value), str(refusal.value)
    told = str(refusal.value).replace(str(tmp_path), "")
    assert not any(value in told for value in ("千代田", "1,003", "３"))  # never a value of the data


def test_leading_zeros_that_excel_lost_are_not_guessed(tmp_path):
    codes = ks.Domain.of(ks.Nominal("code", labels=("01101", "13101")))
    where = {"domain": codes, "columns": {"code": "コード"}}
    whole = xlsx(tmp_path / "a.xlsx", [("コード", "人口"), ("01101", 5), ("13101", 7)])
    assert counted(whole, **where) == [5, 7]
    with pytest.raises(KasuriError, match="rows 1"):
        counted(xlsx(tmp_path / "b.xlsx", [("コード", "人口"), (1101, 5), (13101, 7)]), **where)


def test_cells_of_a_workbook_are_what_a_csv_would_hold():
    assert [text(value) for value in (13.0, 0.5, "0013", True, "", None)] == ["13", "0.5", "0013", "TRUE", None, None]
    assert text(datetime.datetime(2020, 10, 1)) == text(datetime.date(2020, 10, 1)) == "2020-10-01"
    assert text(datetime.datetime(2020, 10, 1, 13)) == "2020-10-01 13:00:00"
    assert text(1e15) is None and text(999999999999999.0) == "999999999999999"  # Excel keeps 15 digits


def test_a_serial_number_is_not_a_time(tmp_path):
    days = ks.Domain.of(ks.Time("day", start="2020-10-01T00:00", seconds=86400, size=3))
    rows = [("日付", "人口"), (44105, 5)]
    with pytest.raises(KasuriError, match="日付"):
        counted(xlsx(tmp_path / "t.xlsx", rows), domain=days, columns={"day": "日付"})


def test_rows_of_one_cell_are_added_when_told(tmp_path):
    ward = {"domain": ks.Domain.of(WARDS.axes[0]), "columns": {"ward": "区"}, "sum": True}
    assert counted(saved(tmp_path, TEXT), **ward) == [4, 0, 2]


def test_faults_of_a_melted_table_name_the_rows_of_the_file(tmp_path):
    path = saved(tmp_path, "区,女,男\n千代田,3,1\n港,2,x\n")
    wide = File([path], melt=Melt(("性別",), "人口", {"女": ("女",), "男": ("男",)}))
    with pytest.raises(KasuriError, match="not a whole number: rows 2;"):
        counted(wide)


def test_melt_to_two_axes_and_records_keep_their_ids(tmp_path):
    """Each record becomes several rows of its own id, and the tool bounds them: max_cells = 1 keeps one."""
    path = saved(tmp_path, "person,a,b\n1,女,女\n2,女,男\n")
    wide = File([path], melt=Melt(("visit",), "性別", {"a": ("1",), "b": ("2",)}))
    domain = ks.Domain.of(ks.Nominal("visit", labels=("1", "2")), ks.Nominal("sex", labels=("女", "男")))
    found = ks.count(wide, domain, columns={"visit": "visit", "sex": "性別"}, unit=ks.Unit("person", "add-remove", 2))
    assert found.cells.tolist() == [0, 2, 3] and found.values.tolist() == [2, 1, 1]
    one = ks.count(wide, domain, columns={"visit": "visit", "sex": "性別"}, unit=ks.Unit("person", "add-remove", 1))
    assert one.values.sum() == 2
    pair = Melt(("x", "y"), "n", {"a": ("1", "女"), "b": ("2", "男")})
    batch, _ = next(iter(open_stream(File([path], melt=pair)).start(["x", "y", "n"], [])))
    assert batch.to_pylist()[:2] == [{"x": "1", "y": "女", "n": "女"}, {"x": "2", "y": "男", "n": "女"}]


@pytest.mark.parametrize("unit", ["visit", "性別"])
def test_an_id_that_melt_makes_is_refused(tmp_path, unit):
    """A label or a melted number is nobody's id: whole rows of people would count as one."""
    path = saved(tmp_path, "person,a,b\n1,女,女\n2,女,男\n")
    wide = File([path], melt=Melt(("visit",), "性別", {"a": ("1",), "b": ("2",)}))
    domain = ks.Domain.of(ks.Nominal("person", labels=("1", "2")))
    with pytest.raises(ks.PrivacyError, match=f"the id column '{unit}' is computed"):
        ks.count(wide, domain, columns={"person": "person"}, unit=ks.Unit(unit, "add-remove", 2))


@pytest.mark.parametrize("bad", [b"\x81", b"\x81\xff", b"\xfd", "é".encode(), b"\xff\xfe", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("codec", ["utf-8", "cp932", "cp1252"])
def test_no_record_decides_how_another_is_read(codec, bad, tmp_path):
    """One record of any bytes: all others are counted as if it were not there."""
    domain = ks.Domain.of(ks.Nominal("ward", labels=("A", "ﾅ", "é")))
    header = "person,区\n" if codec != "cp1252" else "person,wärd\n"
    name = header.strip().split(",")[1]
    labels = [label for label in ("A", "ﾅ", "é") if label.encode(codec, "ignore")]
    others = "".join(f"{i},{label}\n" for i, label in enumerate(labels * 3))

    def of(extra):
        path = saved(tmp_path, header.encode(codec) + others.encode(codec) + extra)
        forced = File([path], encoding=codec if codec == "cp1252" else None)
        return ks.count(forced, domain, columns={"ward": name}, unit=PERSON)

    alone, beside = of(b""), of(b"x" + bad + b",x" + bad + b"\n99,\n")
    assert alone.cells.tolist() == beside.cells.tolist() and alone.values.tolist() == beside.values.tolist()


def test_every_line_break_survives_wrong_bytes():
    """What the rule of encodings rests on: no byte before it takes a line break or a comma away."""
    for codec in ("cp932", "cp1252", "utf-8"):
        for first in range(256):
            for second in range(256):
                for end in (b"\n", b","):
                    assert (bytes([first, second]) + end).decode(codec, "replace")[-1:] == end.decode()
    for unit in range(1 << 16):
        assert (b"\xff\xfe" + unit.to_bytes(2, "little") + b"\n\0").decode("utf-16", "replace")[-1] == "\n"


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("bad", [b"\0", b"\n", b'"', b"\xd8\0\xd8", b"\0\n", b"x\0y\0\n"])
def test_an_odd_byte_of_utf16_spoils_its_own_line_alone(tmp_path, monkeypatch, bad, big):
    """Every later line was read shifted by a byte: all people after the record were lost."""
    codec, mark = ("utf-16-be", b"\xfe\xff") if big else ("utf-16-le", b"\xff\xfe")

    def of(extra, block):
        monkeypatch.setattr(utf8, "_BLOCK", block)
        rows = [f'"{person}","{"千代田" if person % 2 else "港"}","女"\r\n'.encode(codec) for person in range(20)]
        data = mark + "person,区,性別\r\n".encode(codec) + b"".join([*rows[:7], extra, *rows[7:]])
        found = ks.count(saved(tmp_path, data), WARDS, columns=COLUMNS, unit=PERSON)
        return found.cells.tolist(), found.values.tolist()

    alone, extra = of(b"", 1 << 24), '"99","港","女'.encode(codec) + bad + '"\r\n'.encode(codec)
    assert sum(alone[1]) == 20
    for block in (1 << 24, 50, 51):
        cells, values = of(extra, block)
        more = np.bincount(cells, values, 6) - np.bincount(alone[0], alone[1], 6)
        assert np.abs(more).sum() <= 1, (block, more)


@pytest.mark.parametrize("value", ["1e10", "-1e10", "1e300", "-1e300"])
@pytest.mark.parametrize("form", ["yyyy-mm-dd", "[h]:mm:ss"])
def test_a_time_that_no_calendar_has_spoils_its_own_row_alone(tmp_path, value, form):
    """A number in the form of a time ended the reading, or the process: whether it ran told of one record."""
    rows = [("person", "区", "性別"), *((f"p{i}", "港", "女") for i in range(5)), ("victim", "港", 777)]
    path = xlsx(tmp_path / "t.xlsx", [*rows, ("last", "港", "女")])
    with zipfile.ZipFile(path) as file:
        archive = {part: file.read(part).decode() for part in file.namelist()}
    sheet = archive["xl/worksheets/sheet1.xml"]
    changed = re.sub(r"<c[^>]*><v>777</v></c>", f'<c s="1"><v>{value}</v></c>', sheet)
    assert changed != sheet
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    styles = (
        f'<styleSheet xmlns="{main}"><numFmts count="1"><numFmt numFmtId="170" formatCode="{form}"/></numFmts>'
        '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="170"/></cellXfs></styleSheet>'
    )
    archive |= {"xl/worksheets/sheet1.xml": changed, "xl/styles.xml": styles}
    with zipfile.ZipFile(path, "w") as file:
        for part, body in archive.items():
            file.writestr(part, body)
    found = ks.count(path, WARDS, columns=COLUMNS, unit=PERSON)
    assert found.values.tolist() == [6]


@pytest.mark.parametrize("error", ["#SPILL!", "#CALC!", "#GETTING_DATA", "#N/A"])
def test_an_error_in_a_workbook_is_an_unknown_cell(tmp_path, error):
    """The reader knows the older errors alone and ended with any other: whether it ran told of one record."""
    rows = [("person", "区", "性別"), *((f"p{i}", "港", "女") for i in range(5)), ("victim", "港", 777)]
    path = xlsx(tmp_path / "t.xlsx", [*rows, ("last", "港", "女")])
    with zipfile.ZipFile(path) as file:
        archive = {part: file.read(part).decode() for part in file.namelist()}
    sheet = archive["xl/worksheets/sheet1.xml"]
    wrong = f'<c r="C7" t="e"><f>A1</f><v>{error}</v></c><c r="D7" t="e"/>'
    changed = re.sub(r"<c[^>]*><v>777</v></c>", wrong, sheet)
    assert changed != sheet
    with zipfile.ZipFile(path, "w") as file:
        for part, body in (archive | {"xl/worksheets/sheet1.xml": changed}).items():
            file.writestr(part, body)
    found = ks.count(path, WARDS, columns=COLUMNS, unit=PERSON)
    assert found.values.tolist() == [6]


JOB = """
[data]
name = "wards"
files = ["t.csv"]
columns = { ward = "区", sex = "性別" }
weight = "人口"
MORE
[[axes]]
kind = "nominal"
name = "ward"
labels = ["千代田", "中央", "港"]
[[axes]]
kind = "nominal"
name = "sex"
labels = ["女", "男"]
[unit]
id = "person"
change = "add-remove"
max_cells = 1
[budget]
epsilon = "1"
unmetered = true
[output]
folder = "release"
"""


def test_a_job_says_encoding_and_melt(tmp_path):
    saved(tmp_path, "区,女の数,男の数\n千代田,3,1\n港,2,0\n".encode("cp932"))
    wide = '{ "女の数" = "女", "男の数" = "男" }'
    melt = f'encoding = "cp932"\nmelt = {{ into = "性別", value = "人口", columns = {wide} }}'
    path = saved(tmp_path, JOB.replace("MORE", melt), "job.toml")
    assert job.check(path) == []
    assert job.counts(job.load(path), tmp_path).values.tolist() == [3, 1, 2]
    saved(tmp_path, JOB.replace("MORE", melt.replace('"女の数" = "女"', '"女の数" = ["女", "x"]')), "job.toml")
    assert any("2 labels for 1 new columns" in fault for fault in job.check(path))


def test_a_release_as_a_workbook(tmp_path):
    saved(tmp_path, TEXT)
    counts = ks.count(tmp_path / "t.csv", WARDS, columns=COLUMNS, unit=PERSON, weight="人口", data="wards")
    out = ks.release(counts, ks.geometric(), epsilon="5", ledger=None)
    out.export(str(tmp_path / "out.xlsx"), unmetered=True)
    out.export(str(tmp_path / "out.csv"), unmetered=True)
    again = open_stream(File([tmp_path / "out.xlsx"], sheet="release"))
    plain = open_stream(tmp_path / "out.csv")
    assert again.names == plain.names
    rows = [next(iter(stream.start(list(stream.names), [])))[0].to_pylist() for stream in (again, plain)]
    assert rows[0] == rows[1] and len(rows[0]) > 0
    with pytest.raises(KasuriError, match=r"out[.]xlsx"):
        out.export(str(tmp_path / "out.xlsx"), unmetered=True)


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet"])
def test_a_job_begun_from_a_header_depends_on_the_header_alone(kind, tmp_path):
    header = ["mesh_code", "年齢", 'a"b\\', "population"]
    texts = []
    for number, row in enumerate(([533900001, "0-4", "x", 7], [644100002, "85+", "y", 123456])):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / f"data.{kind}"
        if kind == "csv":
            quoted = ['"' + name.replace('"', '""') + '"' for name in header]
            path.write_text(",".join(quoted) + "\n" + ",".join(map(str, row)) + "\n", encoding="utf-8")
        elif kind == "xlsx":
            xlsx(path, [header, row])
        else:
            pq.write_table(pa.table({name: [value] for name, value in zip(header, row, strict=True)}), path)
        texts.append(begun(open_stream(path).names, path.name))
    assert texts[0] == texts[1]
    content = tomllib.loads(texts[0])
    assert content["data"]["columns"] == {"grid": "mesh_code"} and content["data"]["weight"] == "population"
    assert content["budget"] == {} and "name" not in content["data"] and "window" not in content["axes"][0]
    run = [sys.executable, "-m", "kasuri", "init", path.name, "--out", "job.toml"]
    subprocess.run(run, cwd=folder, check=True, capture_output=True)
    assert (folder / "job.toml").read_text(encoding="utf-8") == texts[0]
    assert any("epsilon" in fault for fault in job.check(folder / "job.toml"))


def test_a_workbook_that_unfolds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kasuri.ingest.workbook._UNFOLDS", 1 << 16)
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(1 << 17))
    with pytest.raises(KasuriError, match="more than 2 GB"):
        counted(path)
