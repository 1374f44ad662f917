"""One record must change nothing but its own count: not a column's type, not another's id, not whether it answers."""

import math
import warnings
from uuid import uuid4

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from kasuri import Mesh, Unit, kanon
from kasuri.cli.kanon import app
from kasuri.errors import KasuriError
from kasuri.kanon import columns, sample
from kasuri.kanon.recoding import encode
from kasuri.noise.rng import seeded

UNIT = Unit(id="id", change="add-remove", max_cells=1)
SEX = kanon.Recoding.of(kanon.categories("sex", ["f", "m"]))
OPTIONS = {"k": 2, "sampling_rate": "0.5", "epsilon": "1", "delta": "0.5", "unit": UNIT}


@pytest.fixture
def all_kept(monkeypatch):
    """Every coin keeps its row, so that a release is a function of the table and neighbours can be compared."""
    monkeypatch.setattr(sample, "coins", lambda stream, p, size: np.ones(size, dtype=bool))


def command(folder, toml, text, attribute):
    (folder / "t.toml").write_text(toml)
    (folder / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    words = ["anonymize", str(folder / "t.csv"), str(folder / "t.toml"), "--k", "2", "--out", str(folder / "o.csv")]
    words += ["--method", "sample", "--sampling-rate", "0.5", "--epsilon", "1", "--delta", "0.5", "--unit", "id"]
    result = CliRunner().invoke(app, [*words, "--cut", f"{attribute}=1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return (folder / "o.csv").read_text()


WARD = '[attributes.ward]\nkind="categories"\ntree=["01","02"]\n'
AGE = '[attributes.age]\nkind="numbers"\nlow=0\nhigh=100\nwidths=[50]\nmissing="unknown"\n'
SEX_TOML = '[attributes.sex]\nkind="categories"\ntree=["f","m"]\n'
NEIGHBOURS = [
    ("ward", WARD, "id,ward\n" + "".join(f"{i},0{1 + i % 2}\n" for i in range(40)), "40,x\n", 40),
    ("age", AGE, "id,age\n" + "".join(f"{i},NA\n" for i in range(40)) + "40,30\n41,31\n", "42,x\n", 42),
    ("sex", SEX_TOML, "id,sex\n" + "".join(f"{'0' * i}7,f\n" for i in range(40)), "x,no leaf\n", 40),
    ("sex", SEX_TOML, "id,sex\n" + "".join(f"{'0' * i}7,f\n" for i in range(40)), "x,m\n", 40),
    ("sex", SEX_TOML, "id,sex\n1,f\n2,f\n3,f\n", "4,m,too many\n", 3),
    ("sex", SEX_TOML, "id,sex\n1,f\n2,f\n3,f\n", b"\xff,\xff\n", 3),
    ("sex", SEX_TOML, "id,sex\n1,f\n2,f\n3,f\n", b"\xff\n", 3),
    ("sex", SEX_TOML, "id,sex\n1,f\n2,f\n3,f\n", "4," + "x" * (1 << 22) + "\n", 3),
    ("sex", SEX_TOML, "id,sex,other\n1,f,1\n2,f,2\n3,f,3\n", "4,m,x\n", 3),
]


@pytest.mark.parametrize(("attribute", "toml", "text", "record", "rows"), NEIGHBOURS, ids=range(len(NEIGHBOURS)))
def test_a_record_of_a_csv_file_does_not_change_how_the_others_are_read(
    all_kept, tmp_path, attribute, toml, text, record, rows
):
    without = command(tmp_path, toml, text, attribute)
    assert without.count("\n") == rows + 1
    line = record if isinstance(record, bytes) else record.encode()
    assert command(tmp_path, toml, text.encode() + line, attribute) == without


def released(rows, spec=SEX, **more):
    options = OPTIONS | {"cut": dict.fromkeys(spec.names, 1), "source": seeded(1)} | more
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kanon.sample_then_anonymize(rows, spec, **options).classes().to_pylist()


def broken_text():
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"ff\xff")])


OBJECTS = [1, "1", 2**70, 10**5000, 3.5, math.nan, None, pd.NA, pd.NaT, b"\xff", "x\ud800", object(), (1, 2), [1], {}]


@pytest.mark.parametrize("cell", OBJECTS, ids=lambda cell: type(cell).__name__)
def test_no_object_makes_it_refuse_or_warn_or_changes_the_others(all_kept, cell):
    for ids in (["a", "b", "c"], [1, 2, 3], [2**60 + 1, 2**60 + 2, 2**60 + 3]):
        frame = pd.DataFrame({"id": pd.Series(ids, dtype=object), "sex": pd.Series(["f"] * 3, dtype=object)})
        assert released(frame) == [{"sex": "f", "rows": 3}]
        for bad in ({"id": [cell], "sex": ["no leaf"]}, {"id": ["new"], "sex": [cell]}):
            more = pd.DataFrame({name: pd.Series([*frame[name], *bad[name]], dtype=object) for name in frame})
            assert released(more) == [{"sex": "f", "rows": 3}]


def test_a_cell_that_cannot_be_read_is_outside_and_an_id_that_cannot_be_read_is_none(all_kept):
    assert released(pa.table({"id": [1, 2, 3], "sex": broken_text()})) == [{"sex": "f", "rows": 2}]
    days = kanon.Recoding.of(kanon.categories("d", ["2020-01-01"]))
    for far in (2**30, 3_000_000):  # past the year 9999
        column = pa.array([18262, 18262, far], pa.date32())
        assert released(pa.table({"id": [1, 2, 3], "d": column}), days) == [{"d": "2020-01-01", "rows": 2}]
    times = kanon.Recoding.of(kanon.categories("d", ["1970-01-01 00:00:00"]))
    for unit in ("s", "us"):
        column = pa.array([0, 0, 2**62], pa.timestamp(unit))
        assert released(pa.table({"id": [1, 2, 3], "d": column}), times)[0]["rows"] == 2
    ids = pd.Series(["a", "b", "x\ud800", object(), ("t",)], dtype=object)
    assert released(pd.DataFrame({"id": ids, "sex": ["f"] * 5})) == [{"sex": "f", "rows": 2}]


def test_meshes_dates_and_numbers_take_any_cell_without_a_warning():
    window = Mesh("cell", "500m", (8400, 6080), shape=(2, 2))
    mesh = kanon.mesh("cell", window, ["1km"])
    code = int(mesh.leaf_labels[0])
    wild = [code, math.inf, -math.inf, 1e300, -1.0, 0.5, math.nan]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mesh.reader.read(pa.array(wild)).tolist() == [0, -1, -1, -1, -1, -1, -2]
        texts = pa.array([str(code), "inf", "1e300", "x", "", "NA", None])
        assert mesh.reader.read(texts).tolist() == [0, -1, -1, -1, -2, -2, -2]
        ages = kanon.numbers("n", 0, 100, [50], open_high=True)
        assert ages.reader.read(pa.array([math.inf, -math.inf, 1e300])).tolist() == [1, -1, 1]
        days = kanon.dates("d", "2020-01-01", "2020-12-31", ["month"])
        for text in ("today", "now", "99999999999", "2020-13-45", "20200101", "\x00", "9223372036854775807"):
            assert days.reader.read(pa.array([text, "2020-02-01"])).tolist() == [-1, 1]


def bounded(rows):
    return int(sample._bounded(columns.table_of(rows), SEX, "id")[1].sum())


def test_ids_that_are_blank_are_no_ids_and_equal_numbers_are_one():
    assert bounded(pa.table({"id": ["a", "", "", None], "sex": ["f"] * 4})) == 1
    assert bounded(pl.DataFrame({"id": ["a", "", "b", None], "sex": ["f"] * 4})) == 2
    assert bounded(pd.DataFrame({"id": pd.Categorical(["a", "", "b"]), "sex": ["f"] * 3})) == 2
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", None]))
    assert bounded(pa.table({"id": null, "sex": ["f"] * 3})) == 1
    assert bounded(pa.table({"id": [0.0, -0.0, 1.5, math.nan], "sex": ["f"] * 4})) == 2


def test_ids_of_any_plain_type_are_told_apart_and_others_are_refused_by_their_type():
    plain = [
        pa.array([True, False, True]),
        pa.array([b"a", b"b", b"a"]),
        pa.array([1, 2, 1]).cast(pa.decimal128(20)),
        pa.array([1, 2, 1], pa.date32()),
        pa.array([1, 2, 1], pa.timestamp("ns")),
        pa.array([1, 2, 1], pa.duration("s")),
        pa.array([1, 2, 1], pa.time32("s")),
        pa.array(["a", "b", "a"]).cast(pa.string_view()),
        pa.array([1, 2, 1], pa.float16()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ]
    for ids in plain:
        assert bounded(pa.table({"id": ids, "sex": ["f"] * 3})) == 2, ids.type
    one, two = uuid4(), uuid4()
    assert bounded(pd.DataFrame({"id": [one, two, one], "sex": ["f"] * 3})) == 2
    assert bounded(pl.DataFrame({"id": pl.Series([one, two, one], dtype=pl.Object), "sex": ["f"] * 3})) == 2
    surrogate = pd.Series(["a", "b", "x\ud800"], dtype=pd.StringDtype("python"))
    assert bounded(pd.DataFrame({"id": surrogate, "sex": ["f"] * 3})) == 2
    mixed = pd.Categorical(["a", 1, "a"])
    assert bounded(pd.DataFrame({"id": mixed, "sex": ["f"] * 3})) == 2
    for ids in (pa.array([[1]] * 3), pa.array([{"a": 1}] * 3)):
        with pytest.raises(KasuriError, match="lists or records"):
            released(pa.table({"id": ids, "sex": ["f"] * 3}))


def test_blank_cells_and_nulls_of_a_dictionary_are_missing():
    spec = kanon.Recoding.of(
        kanon.categories("sex", ["f", "m"], missing="unknown"),
        kanon.numbers("age", 0, 100, [50], missing="unknown"),
        kanon.dates("day", "2020-01-01", "2020-12-31", ["month"], missing="unknown"),
    )
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["f", None]))
    for sex in (null, pa.array(["f", "", None])):
        rows = pa.table({"sex": sex, "age": ["7", "", "NA"], "day": ["2020-01-05", "", None]})
        leaves = [leaf.tolist() for leaf in encode(rows, spec).leaves]
        assert leaves == [[0, 2, 2], [0, 2, 2], [0, 12, 12]]
    # a null of a dictionary is not the word None
    word = kanon.categories("sex", ["f", "None"])
    assert word.reader.read(null).tolist() == [0, -2, -2]


def test_a_mistyped_id_is_refused_and_rows_as_units_must_be_stated():
    rows = pa.table({"id": [1] * 50, "sex": ["f"] * 50})
    wrong = Unit(id="Id", change="add-remove", max_cells=1)
    choice = {"cuts": [{"sex": 1}], "k": 2, "sampling_rate": "0.5", "epsilon": "1"}
    for call in (
        lambda **more: released(rows, **more),
        lambda **more: kanon.choose_cut(rows, SEX, **choice, **more),
    ):
        with pytest.raises(KasuriError, match="no id column 'Id'"):
            call(unit=wrong)
        assert call(unit=wrong, rows_are_units=True)  # stated
        with pytest.raises(KasuriError, match="leave rows_are_units out"):
            call(unit=UNIT, rows_are_units=True)
    assert released(rows) == []  # one unit: no class of two
