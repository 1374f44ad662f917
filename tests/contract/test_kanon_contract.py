"""Bad input (all faults at once, no value in any message), hierarchies and their files, commands and reports."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import kanon
from kasuri.cli.kanon import app
from kasuri.reproduce import horigome2020_kanon as paper

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
SPEC = kanon.Recoding.of(kanon.numbers("age", 0, 100, [10, 50]), kanon.categories("sex", ["f", "m"]))
ROWS = pd.DataFrame({"age": [5, 15, 25, 35] * 5, "sex": ["f", "m"] * 10})


def faults(make, *args, **more):
    with pytest.raises(ks.KasuriError) as caught:
        make(*args, **more)
    return caught.value.faults


def test_the_front_door_resolves_the_package():
    assert ks.kanon is kanon and "kanon" in dir(ks)
    assert kanon.__all__ == sorted(kanon.__all__)
    for name in kanon.__all__:
        assert getattr(kanon, name).__doc__


def test_rows_outside_the_hierarchy_are_named_by_place_never_by_value():
    bad = pd.DataFrame({"age": [5, 777, None, 12, -3], "sex": ["f", "SECRET", "m", None, "f"]})
    for make, more in (
        (kanon.specialize, {"k": 2}),
        (kanon.mondrian, {"k": 2}),
        (kanon.audit, {"k": 2, "sampling_rate": 0.5}),
        (kanon.pk_anonymize, {"k": 2}),
    ):
        found = faults(make, bad, SPEC, **more)
        text = "\n".join(found)
        assert len(found) == 4
        assert "column age" in text and "rows 2, 5" in text and "column sex" in text and "rows 4" in text
        assert "777" not in text and "SECRET" not in text and "-3" not in text


def test_arguments_are_refused_all_at_once():
    assert len(faults(kanon.specialize, ROWS, SPEC, k=1, l_diversity=1, t_closeness="2", suppression="1")) == 6
    assert len(faults(kanon.audit, ROWS, SPEC, k=1, sampling_rate=1.5)) == 2
    one = kanon.Recoding.of(SPEC.attributes[0], sensitive=["sex"])
    for make in (kanon.specialize, kanon.mondrian):
        assert "fewer distinct" in faults(make, ROWS, one, k=2, l_diversity=3)[0]
    for rate in (0, 1, -0.1, "x", None, True):
        assert any("sampling_rate" in f for f in faults(kanon.audit, ROWS, SPEC, k=2, sampling_rate=rate))
    for k in (1, 0, -2, 2.0, True, None):
        assert any(f.startswith("k must") for f in faults(kanon.specialize, ROWS, SPEC, k=k))
    for make, more in ((kanon.specialize, {}), (kanon.mondrian, {}), (kanon.pk_anonymize, {})):
        assert "larger than the table" in faults(make, ROWS, SPEC, k=21, **more)[0]
    missing = faults(kanon.specialize, pd.DataFrame({"x": [1]}), SPEC, k=2)
    assert len(missing) == 2 and "'age'" in missing[0] and "'sex'" in missing[1]
    assert faults(kanon.specialize, [1, 2], SPEC, k=2)
    assert len(faults(kanon.measure, ROWS, ["nope"], {"nor": "nominal"})) == 2


def test_the_private_release_refuses_what_it_cannot_claim():
    options = {
        "cut": {"age": 1, "sex": 1},
        "k": 5,
        "sampling_rate": "0.2",
        "epsilon": "1",
        "delta": "0.01",
        "unit": UNIT,
        "rows_are_units": True,
    }

    def release(**more):
        return faults(kanon.sample_then_anonymize, ROWS, SPEC, **(options | more))

    assert "k = 6 would do" in release(delta="0.0005")[0]
    assert "float" in release(sampling_rate=0.2)[0] and "float" in release(epsilon=1.0)[0]
    assert len(release(sampling_rate="1", unit=ks.Unit(id="p", change="replace", max_cells=1))) == 2
    assert release(unit=ks.Unit(id="p", change="add-remove", max_cells=2))
    assert len(release(cut={"age": -1, "nope": 1})) == 3
    assert release(cut={"age": ["0-49"], "sex": 1}) and release(cut={"age": ["0-49", "0-9", "50-99"], "sex": 1})
    chosen = kanon.choose_cut(
        ROWS,
        SPEC,
        cuts=[options["cut"]],
        k=5,
        sampling_rate="0.2",
        epsilon="1",
        unit=ks.Unit("q", "add-remove", 1),
        rows_are_units=True,
    )
    assert "another unit" in release(cut=chosen)[0]
    few = kanon.Recoding.of(SPEC.attributes[1])
    chosen = kanon.choose_cut(
        ROWS, few, cuts=[{"sex": 1}], k=5, sampling_rate="0.2", epsilon="1", unit=UNIT, rows_are_units=True
    )
    assert "another recoding" in release(cut=chosen)[0]
    retention = faults(kanon.pk_anonymize, ROWS, SPEC, k=2, retention={"age": "1", "nope": "0.1"})
    assert len(retention) == 3
    assert "less than" in faults(kanon.pk_anonymize, ROWS, SPEC, k=19, retention={"age": "0.5", "sex": "0"})[0]


def test_missing_values_may_be_a_category():
    spec = kanon.Recoding.of(
        kanon.numbers("age", 0, 100, [50], missing="unknown"), kanon.categories("sex", ["f", "m"], missing="m")
    )
    out = kanon.specialize(pd.DataFrame({"age": [1, 2, None, np.nan] * 3, "sex": ["f", None] * 6}), spec, k=3)
    assert {line["age"] for line in out.classes().to_pylist()} == {"0-49", "unknown"}
    assert {line["sex"] for line in out.classes().to_pylist()} == {"f", "m"}


def test_numbers_may_be_open_at_the_ends():
    tree = kanon.numbers("age", 20, 60, [20], open_low=True, open_high=True)
    assert tree.leaf_labels == ("<40", "40+")
    out = kanon.specialize(pd.DataFrame({"age": [-5, 20, 39, 40, 60, 999]}), kanon.Recoding.of(tree), k=3)
    assert out.classes().to_pylist() == [{"age": "<40", "rows": 3}, {"age": "40+", "rows": 3}]


def test_dates_and_meshes():
    dates = kanon.dates("day", "2020-01-30", "2021-02-02", ["day", "month", "quarter", "year", "decade"])
    assert dates.leaves == 370 and "2020-Q4" in dates.labels and "2020s" in dates.labels
    days = ["2020-01-30", "2020-02-01", "2021-02-02"] * 4
    for column in (days, pd.to_datetime(days), pa.array(pd.to_datetime(days).date)):
        out = kanon.specialize(pa.table({"day": pa.array(column)}), kanon.Recoding.of(dates), k=4)
        assert out.measures.classes == 3
    assert faults(
        kanon.specialize, pd.DataFrame({"day": ["2019-01-01", "", "NaT", "x"]}), kanon.Recoding.of(dates), k=2
    )
    window = ks.Mesh("cell", "500m", (8400, 6080), shape=(40, 40))
    mesh = kanon.mesh("cell", window, ["10km", "1km", "80km"])
    assert mesh.leaves == 1600 and int(mesh.depth.max()) == 4
    codes = [int(mesh.leaf_labels[i]) for i in (0, 1, 2, 3, 900, 901, 902, 903)]
    out = kanon.specialize(pd.DataFrame({"cell": codes}), kanon.Recoding.of(mesh), k=4)
    assert all(str(code).startswith(out.written()["cell"][i // 4]) for i, code in enumerate(codes))
    assert faults(kanon.mesh, "cell", window, ["5km"])
    for bad in (["day", "year", "month"], [], ["week"]):
        assert faults(kanon.dates, "d", "2020-01-01", "2020-12-31", bad)
    assert faults(kanon.dates, "d", "2020-13-01", "x", ["day"])
    for bad in ([], [10, 15], [0], [10, 10]):
        assert faults(kanon.numbers, "n", 0, 100, bad)


def test_trees_must_cover_a_declared_domain():
    window = ks.Mesh("cell", "1km", (4000, 3040), shape=(20, 20))
    spec = kanon.Recoding.of(
        kanon.categories("sex", ["f", "m"]),
        kanon.numbers("age", 0, 100, [10]),
        kanon.mesh("cell", window, ["10km"]),
        kanon.dates("day", "2020-01-01", "2020-01-31", ["day"]),
    )
    good = ks.Domain.of(
        ks.Nominal("sex", ("m", "f")),
        ks.Ordered("age", 100),
        window,
        ks.Time("day", "2020-01-01", seconds=3600, size=744),
    )
    spec.check_covers(good)
    bad = ks.Domain.of(
        ks.Nominal("sex", ("m", "f", "x")),
        ks.Ordered("age", 101),
        ks.Mesh("cell", "1km", (4000, 3040), shape=(21, 20)),
        ks.Time("day", "2020-01-01", seconds=3600, size=745),
        ks.Ordered("other", 2),
    )
    found = faults(spec.check_covers, bad)
    assert len(found) == 5 and "leaves out 20 values" in found[2]


def test_arx_files_round_trip_and_their_faults(tmp_path):
    for tree in paper.recoding().attributes[1:3]:
        tree.save_csv(tmp_path / "tree.csv")
        again = kanon.categories_csv(tree.name, tmp_path / "tree.csv")
        assert (again.labels, again.parent.tolist()) == (tree.labels, tree.parent.tolist())
    bad = tmp_path / "bad.csv"
    for text, words in (
        ("a;b;a\n", "own ancestor"),
        ("a;b;*\nb;a;*\n", "second parent"),
        ("a;g;*\na;h;*\n", "second parent"),
        ("a;g\nb;h\n", "at the top"),
        ("a;g;*\ng;h;*\n", "also generalises"),
        ("", "empty"),
    ):
        bad.write_text(text)
        assert any(words in fault for fault in faults(kanon.categories_csv, "x", bad)), words
    assert faults(kanon.categories_csv, "x", tmp_path / "absent.csv")
    assert "two places" in faults(kanon.categories, "x", {"g": ["a", "b"], "h": ["a"]})[0]


def test_a_recoding_file_names_every_fault(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        'other = 1\nsensitive = 3\n[attributes.a]\nkind = "numbers"\nlow = 1\n[attributes.b]\nkind = "what"\n'
        '[attributes.c]\nkind = "categories"\nfile = "absent.csv"\n[attributes.d]\nkind = "mesh"\nlevel = "500m"\n'
        '[attributes.e]\nkind = "categories"\ntree = 5\n'
    )
    found = faults(kanon.Recoding.load, path)
    assert len(found) == 9
    for name in ("a", "b", "c", "d", "e"):
        assert any(f"[attributes.{name}]" in fault for fault in found)
    path.write_text("not toml at all")
    assert faults(kanon.Recoding.load, path)
    assert faults(kanon.Recoding.load, tmp_path / "absent.toml")
    assert "twice" in faults(kanon.Recoding.of, *SPEC.attributes, sensitive=["age"])[0]


def test_a_release_made_elsewhere_must_fit():
    rows = pd.DataFrame({"age": [5, 15, 25, 35] * 5, "sex": ["f", "m"] * 10})
    other = pd.DataFrame({"age": ["0-49"] * 3, "sex": ["f", "SECRET", "m"]})
    assert "SECRET" not in faults(kanon.audit, rows, SPEC, k=2, sampling_rate=0.5, release=other)[0]
    more = pd.DataFrame({"age": ["0-9"] * 11, "sex": ["f"] * 11})
    assert "not made from these rows" in faults(kanon.audit, rows, SPEC, k=2, sampling_rate=0.5, release=more)[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kanon")
    paper.adult().to_pandas().to_csv(folder / "adult.csv", index=False)
    return folder, str(folder / "adult.csv"), str(paper.HERE / "adult.toml")


def run(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def test_the_commands(files):
    folder, data, spec = files
    code, text = run("hierarchy", spec, data)
    assert code == 0 and "Government" in text and "every row is covered" in text
    code, text = run("hierarchy", spec, "--json", "--csv", str(folder / "trees"))
    assert len(json.loads(text)["attributes"]) == 4 and (folder / "trees" / "age.csv").exists()
    out = str(folder / "out.csv")
    code, text = run("anonymize", data, spec, "--k", "10", "--out", out, "--report", str(folder / "r.html"), "--json")
    found = json.loads(text)
    assert (found["k"], found["classes"], found["guarantee"]) == (41, 39, None)
    assert pd.read_csv(out).groupby(["age", "workclass", "education", "income"]).size().min() == 41
    page = (folder / "r.html").read_text()
    assert (
        page.count("<svg") == 5 and "Self-employed or unpaid" in page and "http:" not in page and "https:" not in page
    )
    for method in ("mondrian", "pk"):
        code, text = run("anonymize", data, spec, "--k", "5", "--out", str(folder / "m.parquet"), "--method", method)
        assert code == 0 and "smallest" in text
    sample = [
        "--method",
        "sample",
        "--sampling-rate",
        "0.2",
        "--epsilon",
        "1",
        "--delta",
        "0.000001",
        "--unit",
        "person",
        "--rows-are-units",
    ]
    cut = [word for name in ("age=2", "workclass=1", "education=2", "income=1") for word in ("--cut", name)]
    code, text = run("anonymize", data, spec, "--k", "12", "--out", str(folder / "s.parquet"), *sample, *cut)
    assert code == 0 and "central differential privacy, epsilon 1, delta 0.000000552472" in text
    code, text = run("anonymize", data, spec, "--k", "12", "--out", out, "--method", "sample", "--suppression", "0.1")
    assert code == 2 and "--epsilon" in text and "--suppression" in text
    code, text = run("audit", data, spec, "--k", "10", "--sampling-rate", "0.2", "--report", str(folder / "a.html"))
    assert code == 0 and text.startswith("CONFIDENTIAL")
    assert "Do not publish" in (folder / "a.html").read_text()
    code, text = run("audit", data, spec, "--k", "10", "--sampling-rate", "0.2", "--release", out, "--json")
    assert json.loads(text)["realised_loss"]["per_class"]["infinite"] == 39  # nothing was left out: all is shown
    with pytest.raises(ks.DomainError):
        run("audit", data, spec, "--k", "10", "--sampling-rate", "2")
    for command in ("hierarchy", "anonymize", "audit"):
        assert "Example" in re.sub(r"\s+", " ", run(command, "--help")[1])


def test_a_report_is_safe_against_labels_that_look_like_code():
    spec = kanon.Recoding.of(kanon.categories("v", ["<script>alert(1)</script>", "b"]))
    out = kanon.specialize(pd.DataFrame({"v": ["b"] * 4}), spec, k=2)
    from kasuri.report.kanon import release_page

    page = release_page(out.to_json(), [tree.to_json(cut) for tree, cut in zip(spec.attributes, out.cut, strict=True)])
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page


def test_sizes_that_no_class_has_are_not_skipped():
    """A chart without 500 to 999 rows would show neighbours that are none."""
    from kasuri.report.kanon import sizes_svg

    bins = [{"from": 200, "below": 500, "classes": 9}, {"from": 1000, "below": 2000, "classes": 2}]
    found = re.findall(r">([\d,]+ to [\d,]+ rows|\d+ class(?:es)?)<", sizes_svg(bins))
    assert found == ["200 to 499 rows", "9 classes", "500 to 999 rows", "0 classes", "1,000 to 1,999 rows", "2 classes"]


def test_columns_of_any_type_are_read():
    for kind in ("uint8", "int8", "int16", "uint64", "float32"):
        spec = kanon.Recoding.of(kanon.numbers("n", -500, 500, [100]))
        out = kanon.specialize(pd.DataFrame({"n": np.array([1, 2, 101, 102], dtype=kind)}), spec, k=2)
        assert out.measures.classes == 2, kind
    flags = kanon.Recoding.of(kanon.categories("b", ["true", "false"]))
    assert kanon.specialize(pd.DataFrame({"b": [True, True, False, False]}), flags, k=2).measures.classes == 2
    codes = kanon.Recoding.of(kanon.categories("b", ["1", "2"], missing="none"))
    assert kanon.specialize(pd.DataFrame({"b": [1.0, 1.0, 2.0, 2.0, None, None]}), codes, k=2).measures.classes == 3
    for spec in (SPEC, flags, codes):
        empty = pa.table({tree.name: pa.nulls(4) for tree in spec.attributes})
        if spec is codes:
            assert kanon.specialize(empty, spec, k=2).written() == {"b": ["none"]}
        else:
            assert "missing" in faults(kanon.specialize, empty, spec, k=2)[0]
    assert "rows 2, 3" in faults(kanon.specialize, pd.DataFrame({"b": [1, "x", b"y"]}), codes, k=2)[0]
    mixed = kanon.Recoding.of(kanon.categories("b", ["1"]), sensitive=["s"])
    assert "one type" in faults(kanon.specialize, pd.DataFrame({"b": [1, 1], "s": [1, "x"]}), mixed, k=2)[0]


def test_no_repr_shows_data():
    rows = pd.DataFrame({"age": [7] * 9 + [71], "sex": ["f"] * 10})
    spec = kanon.Recoding.of(*SPEC.attributes[:1], sensitive=["sex"])
    from kasuri.kanon.recoding import encode

    assert "confidential" in repr(encode(rows, spec))
    assert repr(kanon.audit(rows, spec, k=2, sampling_rate=0.9)).count("7") == 0
