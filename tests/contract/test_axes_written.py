"""Axes in job files and on the command line: all that Python can give them, every fault at once, nothing confidential
among the public files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app
from kasuri.errors import DomainError, FormatError, PrivacyError
from kasuri.ingest.labels import MAX_LEVELS, read_labels
from kasuri.job.axes import PARTS, parse
from kasuri.schema.kinds import KINDS
from kasuri.schema.tree import Tree

WARDS = "code,name,parent\n01,Naka,east\n02,Minami,east\n03,Kita,west\n"
TREE = Tree.of({"east": ["01", "02"], "west": ["03"]})
ASKED = ("--unit", "person", "--change", "add-remove", "--max-cells", "1", "--epsilon", "1", "--unmetered")


def run(*words, code=0):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result


def write(folder, axes):
    (folder / "rows.csv").write_text("person,ward,age\n1,01,0\n2,02,1\n3,03,1\n4,99,1\n")
    path = folder / "job.toml"
    path.write_text(
        f'[data]\nname = "visits"\nfiles = ["rows.csv"]\ncolumns = {{ ward = "ward", age = "age" }}\n{axes}\n'
        '[unit]\nid = "person"\nchange = "add-remove"\nmax_cells = 1\n'
        '[recipe]\nname = "haar_topdown"\ntransform = "nominal"\n[budget]\nepsilon = "1"\nunmetered = true\n'
        '[output]\nfolder = "out"\n'
    )
    return path


AGE = '[[axes]]\nkind = "ordered"\nname = "age"\nsize = 2\n'


def test_every_kind_can_be_written():
    assert PARTS.keys() == KINDS.keys()


@pytest.mark.parametrize(
    "told",
    [
        'labels = ["01", "02", "03"]\ntree = { east = ["01", "02"], west = ["03"] }',
        'tree = { east = ["01", "02"], west = ["03"] }',
        'tree = [{ east = ["01", "02"] }, { west = ["03"] }]',
        'labels_file = "wards.csv"',
    ],
)
def test_a_job_gives_a_tree(tmp_path, told):
    (tmp_path / "wards.csv").write_text(WARDS)
    path = write(tmp_path, f'[[axes]]\nkind = "nominal"\nname = "ward"\n{told}\n{AGE}')
    table = job.domain(job.load(path), tmp_path)
    assert table.axes == (ks.Nominal("ward", ("01", "02", "03"), TREE), ks.Ordered("age", 2))
    assert job.check(path, outside=True) == []
    assert len(job.check(path)) == 1  # ward 99, by row
    job.run(job.load(path), tmp_path)
    assert ks.Release.load(str(tmp_path / "out")).domain == table


def test_a_job_gives_ordered_labels_by_file(tmp_path):
    (tmp_path / "ages.csv").write_text("label\nyoung\nold\n")
    ward = '[[axes]]\nkind = "nominal"\nname = "ward"\nlabels = ["01"]\n'
    path = write(tmp_path, f'{ward}[[axes]]\nkind = "ordered"\nname = "age"\nlabels_file = "ages.csv"\n')
    assert job.domain(job.load(path), tmp_path).axes[1] == ks.Ordered("age", 2, ("young", "old"))
    path = write(tmp_path, f'{ward}[[axes]]\nkind = "ordered"\nname = "age"\nsize = 3\nlabels_file = "ages.csv"\n')
    with pytest.raises(DomainError, match="2 labels for size 3"):
        job.domain(job.load(path), tmp_path)
    (tmp_path / "ages.csv").write_text(WARDS)
    with pytest.raises(DomainError, match="takes no tree"):
        job.domain(job.load(path), tmp_path)


def test_every_fault_of_the_axes_at_once(tmp_path):
    (tmp_path / "wards.csv").write_text(WARDS)
    both = 'labels_file = "wards.csv"\ntree = { a = ["01", "02", "03"] }'
    path = write(
        tmp_path,
        f'[[axes]]\nkind = "nominal"\nname = "ward"\n{both}\n'
        '[[axes]]\nkind = "nominal"\nname = "age"\nlabels_file = "none.csv"\n'
        '[[axes]]\nkind = "nominal"\nname = "sex"\nlabels = ["f", "m"]\ntree = ["f"]\n',
    )
    with pytest.raises(DomainError) as found:
        job.domain(job.load(path), tmp_path)
    assert [
        word in fault for word, fault in zip(("twice", "cannot be read", "leaves"), found.value.faults, strict=True)
    ]
    path.write_text(path.read_text().replace('labels = ["f", "m"]\ntree = ["f"]', "tree = [1]"))
    path.write_text(path.read_text().replace('labels_file = "none.csv"', ""))
    with pytest.raises(FormatError) as form:
        job.load(path)
    assert len(form.value.faults) == 2
    assert "give labels, labels_file or tree" in form.value.faults[0] and "a tree is" in form.value.faults[1]


@pytest.mark.parametrize("name", ["rows.csv", "./rows.csv", "link.csv", "hard.csv"])
def test_a_confidential_file_is_not_a_list_of_labels(tmp_path, name):
    path = write(tmp_path, f'[[axes]]\nkind = "nominal"\nname = "ward"\nlabels_file = "{name}"\n{AGE}')
    (tmp_path / "link.csv").symlink_to("rows.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "rows.csv")
    with pytest.raises(PrivacyError, match="labels file of axis 'ward' is the confidential file itself"):
        job.domain(job.load(path), tmp_path)
    assert any("is the confidential file itself" in fault for fault in job.check(path))
    out = run("release", tmp_path / "rows.csv", "--axis", f"ward=nominal(@{tmp_path / name})", *ASKED, "--out",
              tmp_path / "o", code=2)  # fmt: skip
    assert "is the confidential file itself" in " ".join(out.output.replace("│", " ").split())


@pytest.mark.parametrize("name", ["rows-2020-10-01.csv", "link.csv"])
def test_the_file_of_a_slot_is_not_a_list_of_labels(tmp_path, name):
    """A series names its files by slot: each of them is confidential, not the name with {date} alone."""
    path = write(tmp_path, f'[[axes]]\nkind = "nominal"\nname = "ward"\nlabels_file = "{name}"\n{AGE}')
    (tmp_path / "rows.csv").rename(tmp_path / "rows-2020-10-01.csv")
    (tmp_path / "link.csv").symlink_to("rows-2020-10-01.csv")
    text = path.read_text()
    assert '"rows.csv"' in text
    path.write_text(text.replace('"rows.csv"', '"rows-{date}.csv"'))
    with pytest.raises(PrivacyError, match="labels file of axis 'ward' is the confidential file itself"):
        job.domain(job.load(path), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a column code or label"),
        ("name,parent\na,b\n", "needs a column code or label"),
        ("code,code\na,b\n", "is there twice"),
        ("code\n", "no label below"),
        ("code,parent\na\n", "line 2: 1 fields for 2 columns"),
        ("code,name\na,1\n,2\n", "line 3: the code is missing"),
        ("code\na\nb\na\n", "line 4: the code of line 2 once more"),
        ("code,parent\na,b\nb,a\n", "line 2: its parents lead back to it"),
        ("code,parent\na,a\n", "line 2: its parents lead back to it"),
        ("code,parent\n" + "".join(f"{i},{i + 1}\n" for i in range(MAX_LEVELS + 1)), "levels"),
        ('code\n"a\n', None),
    ],
)
def test_faults_of_a_file_of_labels(tmp_path, text, words):
    (tmp_path / "x.csv").write_text(text)
    if words is None:
        assert read_labels(tmp_path / "x.csv") == (("a\n",), None)  # refused by the axis: a label is one line
        return
    with pytest.raises(DomainError, match=words):
        read_labels(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_bytes(b"code\n\xff\n")
    with pytest.raises(FormatError, match="UTF-8"):
        read_labels(tmp_path / "x.csv")


def test_groups_of_groups_in_a_file(tmp_path):
    (tmp_path / "x.csv").write_bytes("﻿code,parent\nJP,\n13,JP\n13101,13\n13102,13\n27,JP\nX,\n".encode())
    labels, tree = read_labels(tmp_path / "x.csv")
    assert labels == ("13101", "13102", "27", "X")
    assert tree == Tree.of([{"JP": [{"13": ["13101", "13102"]}, "27"]}, "X"])
    (tmp_path / "x.csv").write_text("label,parent\na,\nb,\n")
    assert read_labels(tmp_path / "x.csv") == (("a", "b"), None)


def test_the_command_line_gives_what_python_gives(tmp_path):
    (tmp_path / "wards.csv").write_text(WARDS)
    made = {
        "sex=nominal(f, m)": ks.Nominal("sex", ("f", "m")),
        f"ward=nominal(@{tmp_path / 'wards.csv'})": ks.Nominal("ward", ("01", "02", "03"), TREE),
        "ward=nominal(east(01,02),west(03))": ks.Nominal("ward", ("01", "02", "03"), TREE),
        'ward=nominal(labels=["03", "01", "02"], tree={east=["01", "02"], west=["03"]})': ks.Nominal(
            "ward", ("03", "01", "02"), TREE
        ),
        "age=ordered(18)": ks.Ordered("age", 18),
        "age=ordered(young,old)": ks.Ordered("age", 2, ("young", "old")),
        "hour=time(2020-10-01T00:00,3600,24)": ks.Time("hour", "2020-10-01T00:00", 3600, 24),
        "home=mesh(kanto)": ks.Mesh.window("home", "kanto"),
        'home=mesh(level="1km", origin=[10, 20], shape=[3, 4], crs="Tokyo")': ks.Mesh(
            "home", "1km", (10, 20), shape=(3, 4), crs="Tokyo"
        ),
    }
    assert {text: parse(text).make(Path()) for text in made} == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sex", "write NAME=KIND"),
        ("sex=nominal", "write NAME=KIND"),
        ("sex=nominal(f,m", "write NAME=KIND"),
        ("sex=colour(f,m)", "use mesh, grid, h3, regions, ordered, nominal, time"),
        ("sex=nominal('f','m')", "in quotes goes with a key"),
        ("sex=nominal(a(b,c)", "cannot be read"),
        ("hour=time(2020)", r"time\(START,SECONDS,STEPS\)"),
        ("hour=time(2020-10-01,x,y)", "valid integer"),
        ("sex=nominal(colour=3)", "unknown key"),
        ('sex=nominal(name="x", labels=["a"])', "goes before the bracket"),
        ("home=mesh(500m,1,2)", "mesh.WINDOW"),
    ],
)
def test_faults_of_an_axis_on_the_command_line(text, words):
    with pytest.raises(DomainError, match=words):
        parse(text)


def test_release_and_plan_take_axes(tmp_path):
    (tmp_path / "rows.csv").write_text("person,w,age,mesh\n1,01,0,53394500\n2,02,1,53394500\n3,03,1,53394501\n")
    (tmp_path / "wards.csv").write_text(WARDS)
    axes = ("--axis", f"ward=nominal(@{tmp_path / 'wards.csv'})", "--axis", "age=ordered(2)")
    recipe = ("--recipe", 'haar_topdown(transform="nominal")')
    run("release", tmp_path / "rows.csv", *axes, "--column", "ward=w", *ASKED, *recipe, "--out", tmp_path / "a")
    assert ks.Release.load(str(tmp_path / "a")).domain.axes == (
        ks.Nominal("ward", ("01", "02", "03"), TREE),
        ks.Ordered("age", 2),
    )
    window = ("--window", "5339", "--level", "1km", "--code", "mesh")
    run("release", tmp_path / "rows.csv", *window, "--axis", "age=ordered(2)", *ASKED, "--out", tmp_path / "b")
    assert ks.Release.load(str(tmp_path / "b")).domain.dims == ("row", "col", "age")
    plan = ("plan", "--unit", "person", "--change", "add-remove", "--max-cells", "1", "--epsilons", "1")
    assert "geometric" in run(*plan, "--axis", "age=ordered(8)", "--recipes", "geometric").output
    for words, code in (
        ((*plan, "--axis", "age=ordered(0)", "--axis", "x=nominal()"), 2),
        ((*plan, "--axis", "age=ordered(2)", "--axis", "age=ordered(3)"), 2),
        (("release", tmp_path / "rows.csv", *axes, "--code", "mesh", *ASKED, "--out", tmp_path / "c"), 2),
        (("release", tmp_path / "rows.csv", *axes, "--column", "x=w", *ASKED, "--out", tmp_path / "c"), 2),
    ):
        run(*words, code=code)
    both = run(*plan, "--axis", "age=ordered(0)", "--axis", "x=nominal(a,a)", code=2).output
    assert "size must be" in both and "differ from one another" in both
