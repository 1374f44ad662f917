"""Recipes as job files and the command line write them: every argument of every constructor, and no other."""

import hashlib
import inspect
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import job
from kasuri.cli import app
from kasuri.job import parameters
from kasuri.recipes import RECIPES

SIDE = 16
GRID = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6080), shape=(SIDE, SIDE)))
PERSON = ks.Unit("person", "add-remove", 1)
CITY = np.random.default_rng(3).poisson(30, (SIDE, SIDE))

JOB = """\
[data]
name = "census-2020"
files = ["census.parquet"]
columns = { grid = ["row", "col"] }
weight = "n"

[[axes]]
kind = "mesh"
name = "grid"
level = "500m"
origin = [8400, 6080]
shape = [16, 16]

[unit]
id = "person"
change = "add-remove"
max_cells = 1

[recipe]
RECIPE

[budget]
epsilon = "1"
unmetered = true

[output]
folder = "release"
"""


def table(path: Path, values: np.ndarray) -> None:
    row, col = np.indices(values.shape).reshape(2, -1)
    pq.write_table(pa.table({"row": row + 8400, "col": col + 6080, "n": values.ravel()}), path)


@pytest.fixture
def folder(tmp_path):
    table(tmp_path / "census.parquet", CITY)
    table(tmp_path / "older.parquet", CITY + 2)
    np.save(tmp_path / "older.npy", CITY + 0.5)
    np.save(tmp_path / "cells.npy", np.eye(SIDE * SIDE, dtype=np.int64))
    return tmp_path


def write(folder: Path, recipe: str) -> Path:
    (folder / "job.toml").write_text(JOB.replace("RECIPE", recipe))
    return folder / "job.toml"


def made(folder: Path, recipe: str) -> ks.Mechanism:
    path = write(folder, recipe)
    return job.mechanism(job.load(path), folder, GRID)


def invoke(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


SAME = {
    'name = "bayes_tree"\npilot = true': ks.bayes_tree(pilot=True),
    'name = "bayes_tree"\nshares = "dense"': ks.bayes_tree("dense"),
    'name = "bayes_tree"\nfacts = { density = "0.35", size = "480" }': ks.bayes_tree(
        facts={"density": "0.35", "size": "480"}
    ),
    'name = "refined_tree"\nshares = { 0 = "0.5", 2 = "0.3", 4 = "0.2" }': ks.refined_tree(
        {0: "0.5", 2: "0.3", 4: "0.2"}
    ),
    'name = "refined_tree"\nshares = "u4"\norder = "1d"': ks.refined_tree("u4", "1d"),
    'name = "refined_tree"\nnoise = "gaussian"\ndelta = "1e-9"': ks.refined_tree(noise="gaussian", delta="1e-9"),
    'name = "bayes_tree"\nshares = "dense"\nnoise = "auto"\ndelta = "1e-9"': ks.bayes_tree(
        "dense", noise="auto", delta="1e-9"
    ),
    'name = "cell_counts"\nnoise = "gaussian"\ndelta = "1e-9"': ks.recipes.cell_counts(noise="gaussian", delta="1e-9"),
    'name = "auto"\nareas = [1, 16]\nmetric = "mae"': ks.auto((1, 16), "mae"),
    'name = "simplex"\nshare = "0.1"': ks.simplex(share="0.1"),
    'name = "neg_l2_simplex"\ngamma = "0.95"': ks.neg_l2_simplex("0.95"),
    'name = "neg_l2_simplex"\ngamma = "auto"': ks.neg_l2_simplex("auto"),
    'name = "nonneg_lasso"\nstrength = "12"\nadjust = "shift"': ks.nonneg_lasso("12", adjust="shift"),
    'name = "lasso"\nstrength = "12"': ks.lasso("12"),
    'name = "hierarchy"\norder = "morton"': ks.recipes.hierarchy("morton"),
    'name = "fourier"\nways = 2': ks.recipes.fourier(2),
    'name = "matrix"\nworkload = "prefix"': ks.recipes.matrix(workload="prefix"),
    'name = "matrix"\nstrategy = [[1, 1], [0, 2]]': ks.recipes.matrix([[1, 1], [0, 2]]),
    'name = "matrix"\nstrategy = { public = "cells", file = "cells.npy" }': ks.recipes.matrix(
        ks.PublicMatrix(np.eye(SIDE * SIDE, dtype=int), "cells")
    ),
    'name = "sparse"\nthreshold = 40': ks.recipes.sparse(40),
    'name = "sparse"\nthreshold = "auto"': ks.recipes.sparse(),
    'name = "privelet"\norder = "2d"': ks.privelet("2d"),
    'name = "haar_topdown"\ntransform = "nominal"': ks.haar_topdown(transform="nominal"),
    'name = "haar_topdown"\ndescent = "jump"\ninterleave = ["grid"]': ks.haar_topdown(
        descent="jump", interleave=("grid",)
    ),
    'name = "woven_tree"\nviews = { cells = "12", "grid@1" = "40" }': ks.recipes.woven_tree(
        {"cells": "12", "grid@1": "40"}
    ),
    'name = "woven_tree"\nwhole = true': ks.woven_tree(whole=True),
    'name = "best"\nfacts = { density = "0.2", size = "9" }': ks.best(facts={"density": "0.2", "size": "9"}),
    'name = "geometric"': ks.geometric(),
    'name = "laplace"': ks.laplace(),
}


@pytest.mark.parametrize("text", SAME)
def test_a_job_and_the_command_line_make_what_python_makes(folder, monkeypatch, text):
    monkeypatch.chdir(folder)
    assert made(folder, text) == SAME[text]
    name, _, rest = text.partition("\n")
    word = name.removeprefix('name = "').removesuffix('"')
    line = f"{word}({', '.join(rest.splitlines())})" if rest else word
    assert parameters.parse(line).mechanism(Path(), GRID) == SAME[text]


def test_every_argument_of_every_recipe_can_be_written():
    """The signature is the only list: a constructor's argument is a key of its model and of the schema."""
    known = job.schema()["$defs"]
    for name, make in RECIPES.items():
        arguments = {*inspect.signature(make).parameters, "name"}
        assert set(parameters.model(name).model_fields) == arguments == set(known[name]["properties"])
        assert known[name]["additionalProperties"] is False and known[name]["required"] == ["name"]
    written = {text.split('"')[1] for text in SAME}
    written |= {name for name, make in RECIPES.items() if not inspect.signature(make).parameters}
    assert written == set(RECIPES)


@pytest.mark.parametrize(
    "file",
    [
        'file = "older.parquet"',
        'file = "older.npy"',
        'file = "older.parquet", columns = { grid = ["row", "col"] }, value = "n"',
    ],
)
@pytest.mark.parametrize("name", ["bayes_tree", "auto", "neg_l2_simplex"])
def test_a_table_is_declared_public_by_name(folder, name, file):
    key = "tune_on" if name == "neg_l2_simplex" else "prior"
    recipe = made(folder, f'name = "{name}"\n{key} = {{ public = "census-2015", {file} }}')
    ((found, _),) = recipe.tables
    expected = CITY + (0.5 if "npy" in file else 2)
    assert found.name == "census-2015" and found.on(np.arange(SIDE * SIDE)).tolist() == expected.ravel().tolist()
    use = "tuning" if name == "neg_l2_simplex" else "prior"
    assert f"table census-2015 ({use})" in recipe.guarantee(GRID, PERSON, "1").public


REFUSED = {
    'name = "bayes_tree"\npilto = true': (
        "line 21: recipe.pilto: unknown key; bayes_tree takes delta, expect, facts,",
    ),
    'name = "geometric"\norder = "1d"': ("line 21: recipe.order: unknown key; geometric takes no arguments",),
    'name = "magic"\npilot = true': ("line 20: recipe.name: 'magic' is not known; use auto, bayes_tree",),
    "pilot = true": ("line 19: recipe.name: missing",),
    'name = "bayes_tree"\npilot = "yes"\nshares = 3\norder = "2d"': (
        "line 21: recipe.pilot: input should be a valid boolean",
        "line 22: recipe.shares: input should be a valid string or input should be a valid dictionary",
        "line 23: recipe.order: input should be 'morton', '1d', 'hierarchy', 'jis' or 'interleaved'",
    ),
    'name = "simplex"\nshare = 0.05': ('line 21: recipe.share: an exact decimal in quotes is needed, such as "0.05"',),
    'name = "simplex"\nshare = "0.05x"': ("line 19: recipe: ",),
    'name = "bayes_tree"\npilot = true\nshares = "dense"': (
        "line 19: recipe: bayes_tree: give shares, facts or pilot",
    ),
    'name = "bayes_tree"\nshares = { 0 = "0.5", 2 = "0.3" }': ("shares must include height 0 and sum to exactly 1",),
    'name = "bayes_tree"\nshares = { 0 = "0.5", 02 = "0.5" }': ("line 21: recipe.shares.02: string should match",),
    'name = "bayes_tree"\nfacts = { density = "0.5" }': ("facts are",),
    'name = "bayes_tree"\nprior = "older.npy"': ("line 21: recipe.prior: ",),
    'name = "bayes_tree"\nprior = { file = "older.npy" }': ("line 21: recipe.prior.public: missing",),
    'name = "bayes_tree"\nprior = { file = "older.npy", public = " " }': ("declared by a name",),
    'name = "matrix"\nworkload = { file = "cells.npy" }': ("line 21: recipe.workload.public: missing",),
    'name = "matrix"\nworkload = { file = "cells.npy", public = "" }': ("declared by a name",),
    'name = "matrix"\nworkload = { public = "a", file = "a\\u0000.npy" }': (
        "line 21: recipe.workload.file: a path holds no NUL character",
    ),
    'name = "auto"\nareas = [0]': ("areas are sizes in cells",),
    'name = "auto"\nareas = [\n  1,\n  "2",\n]': ("line 21: recipe.areas.1: input should be a valid integer",),
    'name = "matrix"\nstrategy = [[1, 0.5]]': ("line 21: recipe.strategy.0.1: input should be a valid integer",),
    'name = "matrix"\nstrategy = [[1], [1, 2]]': ("rows of one length",),
    'name = "fourier"\nways = true': ("line 21: recipe.ways: input should be a valid integer",),
    'name = "sparse"\nthreshold = 0': ("threshold is",),
    'name = "simplex"\ntotal = "public"': ("needs declared_total",),
}


@pytest.mark.parametrize("text", REFUSED)
def test_faults_are_named_by_file_line_and_remedy(folder, text):
    path = write(folder, text)
    with pytest.raises(ks.FormatError) as caught:
        job.load(path)
    found = str(caught.value)
    for words in REFUSED[text]:
        assert words in found, found
    assert all(fault.startswith(f"{path}, line ") for fault in caught.value.faults)
    assert job.check(path) == list(caught.value.faults)


NOT_PUBLIC = {
    'public = "census-2020", file = "older.parquet"': "has the name of the confidential data",
    'public = "older", file = "census.parquet"': "is the confidential file itself",
    'public = "older", file = "./sub/../census.parquet"': "is the confidential file itself",
    'public = "older", file = "none.npy"': "is not a .npy array",
    'public = "older", file = "cells.npy"': "cells.npy: the public table has shape (256, 256)",
    'public = "older", file = "older.parquet", value = "m"': "no column 'm'",
    'public = "older", file = "older.npy", value = "m"': "an array has no columns",
    'public = "older", file = "bad.csv"': "column row/col: ",
}


@pytest.mark.parametrize("table", NOT_PUBLIC)
def test_what_cannot_be_the_public_table_is_refused_before_the_data_is_read(folder, monkeypatch, table):
    (folder / "sub").mkdir()
    (folder / "bad.csv").write_text("row,col,n\n1,1,5\n8400,6080,x\n")
    path = write(folder, f'name = "bayes_tree"\nprior = {{ {table} }}')
    faults = "\n".join(job.check(path))
    assert f"{path}, line 19: recipe: " in faults and NOT_PUBLIC[table] in faults
    monkeypatch.setattr("kasuri.job.running.counts", lambda *_: pytest.fail("the data was read"))
    with pytest.raises(ks.KasuriError) as caught:
        job.run(job.load(path), folder)
    assert NOT_PUBLIC[table] in str(caught.value) and not (folder / "release").exists()


def test_a_part_of_the_confidential_folder_is_not_public(folder):
    (folder / "records").mkdir()
    table(folder / "records" / "part.parquet", CITY)
    recipe = parameters.parse('bayes_tree(prior={public="older", file="records/part.parquet"})')
    with pytest.raises(ks.PrivacyError, match="itself"):
        parameters.refuse_public(recipe.public, None, [folder / "records"], folder)
    parameters.refuse_public(recipe.public, None, [folder / "census.parquet"], folder)


PRIOR = 'name = "bayes_tree"\nprior = { public = "older", file = "FILE" }'


def on_spark(folder: Path, files: str) -> Path:
    path = write(folder, PRIOR.replace("FILE", "records/part.parquet"))
    text = path.read_text().replace('files = ["census.parquet"]', f'files = ["{files}"]')
    path.write_text(f'engine = "spark"\n{text}\n[spark]\nwork = "work"\n')
    return path


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("file://FOLDER/records/part.parquet", "itself"),
        ("file://FOLDER/records/", "itself"),
        ("records/", "itself"),
        ("records/*.parquet", "itself"),
        ("file://FOLDER/rec*/", "itself"),
        ("file://FOLDER/records/pa?t.parquet", "itself"),
        ("linked/", "itself"),
        ("years/", "itself"),
        ("records/{part,other}.parquet", "cannot be compared"),
        ("records/[p]art.parquet", "cannot be compared"),
        ("hdfs://cluster/part.parquet", "cannot be compared"),
    ],
)
def test_the_confidential_files_of_a_cluster_are_not_public(folder, files, words):
    (folder / "records").mkdir()
    (folder / "linked").mkdir()
    table(folder / "records" / "part.parquet", CITY)
    (folder / "linked" / "other.parquet").hardlink_to(folder / "records" / "part.parquet")
    (folder / "years").mkdir()
    (folder / "years" / "year=2020").symlink_to(folder / "records")
    (folder / "records" / "again").symlink_to(folder / "years")  # a circle ends
    path = on_spark(folder, files.replace("FOLDER", str(folder)))
    with pytest.raises(ks.PrivacyError, match=words):
        job.mechanism(job.load(path), folder, GRID)
    table(folder / "part.parquet", CITY)
    path.write_text(path.read_text().replace('records/part.parquet" }', 'part.parquet" }'))
    if words == "itself":
        assert job.mechanism(job.load(path), folder, GRID).prior.name == "older"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM read_parquet('FOLDER/older.parquet')", "named in the query"),
        ("SELECT * FROM read_parquet('FOLDER/old*.parquet')", "beside its database"),
        ("SELECT * FROM outside", "beside its database"),
        ("SELECT * FROM listed", "itself"),
        ("SELECT * FROM people", None),
    ],
)
def test_a_query_reads_its_own_database_and_the_files_it_lists(folder, monkeypatch, sql, words):
    import duckdb

    monkeypatch.chdir(folder)
    with duckdb.connect(str(folder / "q.duckdb")) as base:
        base.execute(f"CREATE TABLE people AS SELECT * FROM read_parquet('{folder}/census.parquet')")
        base.execute(f"CREATE VIEW outside AS SELECT * FROM read_parquet('{folder}/older.parquet')")
    query = f'database = "q.duckdb"\nquery = "{sql.replace("FOLDER", str(folder))}"'
    query += '\nreads = { listed = "older.parquet" }' if "listed" in sql else ""

    def asked(recipe: str) -> Path:
        path = write(folder, recipe)
        path.write_text(path.read_text().replace('files = ["census.parquet"]', query))
        return path

    alone = asked('name = "geometric"')
    if "people" in sql or "listed" in sql:
        assert job.counts(job.load(alone), folder).values.sum() >= CITY.sum()
        assert job.check(alone) == []
    else:
        with pytest.raises(ks.PrivacyError, match="beside its database"):
            job.counts(job.load(alone), folder)
        assert "beside its database" in " ".join(job.check(alone))
    many = ("--recipes", 'bayes_tree(prior={public="older", file="older.parquet"})', "--trials", "2", "--areas", "1")
    compared = CliRunner().invoke(app, ["compare", str(alone), *many])
    told = f"{compared.output} {compared.exception}"
    assert words in " ".join(told.split()) if words else "rmse" in told, told
    path = asked(PRIOR.replace("FILE", "older.parquet"))
    if words is None:
        assert job.check(path) == []
        job.run(job.load(path), folder)
        return
    assert words in "\n".join(job.check(path))
    with pytest.raises(ks.PrivacyError, match=words):
        job.run(job.load(path), folder)
    assert not (folder / "release").exists()


def test_a_matrix_file_is_declared_and_told_by_name_and_fingerprint(folder):
    """No entry of it is written into the release; its fingerprint is that of the matrix as it is measured."""
    line = np.arange(7_310_001, 7_310_001 + SIDE * SIDE)[None]
    np.save(folder / "line.npy", line)
    path = write(folder, 'name = "matrix"\nworkload = { public = "districts", file = "line.npy" }')
    recipe = job.mechanism(job.load(path), folder, GRID)
    assert "matrix districts (workload)" in recipe.guarantee(GRID, PERSON, "1").public
    invoke("release", path)
    told = dict(ks.Release.load(str(folder / "release")).recipe)["options"]
    written = " ".join(map(str, line[0].tolist()))
    assert told == {"strategy": "optimised", "public": "districts",
                    "workload": f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"}  # fmt: skip
    manifest = (folder / "release" / "datapackage.json").read_text()
    assert "matrix districts (workload)" in manifest and "7310001" not in manifest
    assert invoke("verify", folder / "release").exit_code == 0
    named = path.read_text().replace("districts", "census-2020")
    path.write_text(named.replace('folder = "release"', 'folder = "again"'))
    assert "has the name of the confidential data" in "\n".join(job.check(path))
    counts = ks.Counts.from_dense(CITY, GRID, PERSON, data="districts")
    with pytest.raises(ks.PrivacyError, match="name of the confidential data"):
        ks.release(counts, recipe, epsilon="1", ledger=None)


def test_a_matrix_without_a_name_is_public_too_and_a_large_one_is_not_written_out():
    small, large = ks.recipes.matrix([[1, 1], [0, 2]]), ks.recipes.matrix(np.eye(64, dtype=int))
    assert small.queries.told() == {"strategy": "1 1;0 2"}
    assert large.queries.told()["strategy"].startswith("sha256:")
    pair = ks.Domain.of(ks.Ordered("x", 2))
    assert "matrix of the recipe (strategy)" in small.guarantee(pair, PERSON, "1").public
    assert not any("matrix" in fact for fact in ks.recipes.matrix().guarantee(pair, PERSON, "1").public)


def test_faults_of_a_recipe_and_of_the_rest_come_together(folder):
    path = write(folder, 'name = "bayes_tree"\nprior = { public = "older", file = "none.npy" }')
    path.write_text(path.read_text().replace("max_cells = 1", "max_cells = 0"))
    found = "\n".join(job.check(path))
    assert "line 14: unit: " in found and "line 19: recipe: " in found


def test_the_line_of_a_key():
    text = '# a\n[a]\nb = [\n  1,\n]\nc = """\nb = 2\n"""\n[[d]]\ne = 1\n[[d]]\ne = 2\nf.g = 3\n'
    lines = {("a",): 2, ("a", "b"): 3, ("a", "b", 0): 3, ("a", "c"): 6, ("a", "x"): 2, ("d", 0, "e"): 10,
             ("d", 1): 11, ("d", 1, "e"): 12, ("d", 1, "f", "g"): 13, ("x",): 1, (): 1}  # fmt: skip
    assert {at: job.line_of(text, at) for at in lines} == lines


TOLD = {
    'name = "bayes_tree"\nfacts = { density = "0.9", size = "30" }': {
        "shares": "facts", "facts": {"density": "0.9", "size": "30"}},
    'name = "auto"\nareas = [1, 16]\nmetric = "mae"': {"areas": [1, 16], "metric": "mae"},
    'name = "refined_tree"\nshares = "u4"': {"shares": "u4"},
    'name = "refined_tree"\nshares = { 0 = "0.6", 2 = "0.4" }': {"shares": {"0": "0.6", "2": "0.4"}},
    'name = "sparse"\nthreshold = 9': {"threshold": "9"},
    'name = "bayes_tree"\nprior = { public = "census-2015", file = "older.npy" }': {"prior": "census-2015"},
    'name = "neg_l2_simplex"\ngamma = "0.9"\nshare = "0.1"': {"parameter": "0.9", "share": "0.1"},
}  # fmt: skip


@pytest.mark.parametrize(("recipe", "expected"), TOLD.items())
def test_a_release_tells_its_parameters_wherever_it_is_read(folder, recipe, expected):
    """The manifest, the loaded release and the DuckDB table say what was asked for; verify agrees."""
    path = write(folder, recipe)
    told = json.loads(invoke("release", path, "--json").stdout)["recipe"]
    loaded = dict(ks.Release.load(str(folder / "release")).recipe)
    assert loaded == told
    manifest = json.loads((folder / "release" / "datapackage.json").read_text())
    listed = manifest["privacy"]["accounting"]["post_processing"]["parameters"]
    asked = {**told.get("arguments", {}), **told.get("options", {})}
    assert asked == {**listed.get("arguments", {}), **listed.get("options", {})}
    for key, value in expected.items():
        assert asked[key] == value
    assert invoke("verify", folder / "release").exit_code == 0


def test_plan_and_compare_take_a_job_and_recipes_with_arguments(folder, monkeypatch):
    monkeypatch.chdir(folder)
    path = write(folder, 'name = "refined_tree"\nshares = "u4"')
    planned = json.loads(invoke("plan", path, "--json").stdout)
    assert {(row["recipe"], row["epsilon"]) for row in planned["rows"]} == {("refined_tree", "1"), ("geometric", "1")}
    given = ("--trials", "2", "--areas", "1,4", "--json")
    found = json.loads(invoke("compare", path, *given).stdout)
    assert found["confidential"] and {row["recipe"] for row in found["rows"]} == {"refined_tree", "geometric"}
    many = 'geometric, bayes_tree(prior={public="older", file="older.parquet"}), auto(areas=[1, 4])'
    where = ("--origin", "8400,6080", "--shape", "16,16", "--unit", "person", "--change", "add-remove")
    place = ("--max-cells", "1", "--row", "row", "--col", "col", "--count", "n", "--epsilons", "1", "--recipes")
    told = json.loads(invoke("compare", "census.parquet", *where, *place, many, *given).stdout)
    assert {row["recipe"] for row in told["rows"]} == {"geometric", "bayes_tree", "auto"}
    itself = many.replace("older.parquet", "census.parquet")
    assert "itself" in invoke("compare", "census.parquet", *where, *place, itself, code=2).output
    mine = many.replace("older.parquet", str(folder / "census.parquet"))
    for command in ("plan", "compare"):  # also in the columns that the job names
        assert "itself" in invoke(command, path, "--recipes", mine, code=2).output
        told = invoke(command, path, "--recipes", many, "--trials", "2", "--areas", "1,4", "--json").stdout
        assert {row["recipe"] for row in json.loads(told)["rows"]} == {"geometric", "bayes_tree", "auto"}
    wrongs = invoke("plan", path, "--recipes", "magic, bayes_tree(pilto=true), sparse(threshold=0)", code=2).output
    assert "magic" in wrongs and "pilto" in wrongs and "threshold" in wrongs
    for wrong in ("bayes_tree(pilot=true", "bayes_tree(pilot=yes)", "bayes_tree(pilto=true)", "geometric,", "(a=1)",
                  'geometric(name="x")', "geometric(} #)", 'matrix(workload={public="a", file="a\\u0000.npy"})',
                  'bayes_tree(prior={public="a", file="' + "a" * 300 + '.csv", value="n"})'):  # fmt: skip
        assert "Invalid value for --recipes" in invoke("plan", path, "--recipes", wrong, code=2).output
    assert "job file says everything" in invoke("plan", path, "--window", "kanto", code=2).output
    assert "missing: --epsilons" in invoke("plan", *where, "--max-cells", "1", code=2).output


@pytest.mark.parametrize(
    "text",
    [
        "geometric(} #)",
        "bayes_tree(pilot=true } #)",
        "auto(areas=" + "[" * 5000 + ")",
        "sparse(threshold=" + "9" * 5000 + ")",
        "geometric(,)",
        'matrix(workload={public="a", file="a\\u0000.npy"})',
    ],
)
def test_what_is_no_recipe_is_a_fault_of_the_recipe(text):
    with pytest.raises(ks.DomainError, match="recipe "):
        parameters.parse(text)
    assert parameters.parse("geometric( )") == parameters.parse("geometric") == parameters.parse("geometric()")


def test_a_released_table_is_a_prior_of_the_next(folder):
    """Last year's release, as it was saved, is a public table."""
    invoke("release", write(folder, 'name = "haar_topdown"'))
    (folder / "release").rename(folder / "last")
    where = 'columns = { grid = "mesh_code" }'
    prior = f'prior = {{ public = "last-year", file = "last/release.parquet", {where}, value = "value" }}'
    recipe = made(folder, f'name = "bayes_tree"\n{prior}')
    assert recipe.prior.values.sum() == ks.Release.load(str(folder / "last")).total()
    assert recipe.on(GRID, PERSON, "1").guarantee.epsilon == Fraction(1)
