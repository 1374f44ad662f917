"""kasuri describe: every form is made of a verified release, and is accepted by the standard's own reader where one is
installed, else by a schema or shapes written from the standard."""

import csv
import io
import json

import forked
import numpy as np
import pytest

import kasuri as ks
from kasuri.describe import FORMS, describe
from kasuri.errors import DomainError, FormatError

DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="1km", origin=(2700, 3100), shape=(4, 4)), ks.Nominal("sex", labels=("f", "m, x"))
)
TEXT, WORDS = {"type": "string"}, {"type": ["string", "null"]}
REGISTRY = {
    "type": "object",
    "required": ["schema", "identifier", "tier_1", "tier_2", "tier_3"],
    "properties": {
        "tier_1": {
            "required": ["name", "data_curator", "description", "data_product_type", "publication_date", "undeclared"],
            "properties": {"name": WORDS, "data_curator": WORDS, "description": TEXT, "publication_date": WORDS},
        },
        "tier_2": {
            "required": ["dp_flavor", "privacy_loss", "deployment_model"],
            "properties": {
                "dp_flavor": {"required": ["name", "data_domain", "unprotected_quantities", "relation"]},
                "privacy_loss": {
                    "required": ["privacy_unit", "privacy_unit_description", "privacy_parameters", "contribution_bound"]
                },
                "deployment_model": {"required": ["model_name", "release_type", "data_source_type", "access_type"]},
            },
        },
        "tier_3": {
            "required": ["accounting", "implementation", "assumptions"],
            "properties": {
                "accounting": {"required": ["composition", "post_processing"]},
                "implementation": {
                    "required": ["mechanisms", "pre_processing_eda_hyperparameter_tuning", "software", "basis"]
                },
            },
        },
    },
}
"""The fields of the published registry schema: the deployment; flavour, loss, model; accounting, implementation."""
SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> . @prefix schema: <https://schema.org/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
[] a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dct:title ; sh:minCount 1 ] , [ sh:path dct:description ; sh:minCount 1 ] ,
    [ sh:path dct:publisher ; sh:minCount 1 ; sh:class foaf:Agent ] , [ sh:path dct:identifier ; sh:minCount 1 ] ,
    [ sh:path dcat:distribution ; sh:minCount 1 ; sh:class dcat:Distribution ] ,
    [ sh:path schema:name ; sh:minCount 1 ] , [ sh:path schema:description ; sh:minCount 1 ] .
[] a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dcat:mediaType ; sh:maxCount 1 ] .
"""
"""What DCAT-AP asks of a dataset and its distributions, and schema.org of a dataset."""


CSVW_TABLE = {
    "type": "object",
    "required": ["@context", "url", "tableSchema"],
    "properties": {
        "@context": {
            "prefixItems": [
                {"const": "http://www.w3.org/ns/csvw"},
                {"type": "object", "propertyNames": {"enum": ["@language", "@base"]}},
            ],
            "items": False,
        },
        "@type": {"const": "Table"},
        "url": {"type": "string", "pattern": "^[^ ]+$"},
        "tableSchema": {
            "type": "object",
            "required": ["columns"],
            "additionalProperties": False,
            "properties": {
                "columns": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/column"}},
                "primaryKey": {"type": ["string", "array"]},
            },
        },
    },
    "patternProperties": {"^[a-z]+:": True},
    "additionalProperties": False,
    "$defs": {
        "column": {
            "type": "object",
            "required": ["name", "datatype"],
            "properties": {
                "@type": {"const": "Column"},
                "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.]*$"},
                "titles": {"type": ["string", "array"]},
                "datatype": {"enum": ["integer", "number", "double", "string", "boolean", "date", "dateTime", "time"]},
                "required": {"type": "boolean"},
            },
            "patternProperties": {"^[a-z]+:": True},
            "additionalProperties": False,
        }
    },
}
"""Metadata Vocabulary for Tabular Data: a table, its columns; common properties have a prefix or are URLs."""
SDMX_LINE = {
    "type": "object",
    "required": ["STRUCTURE", "STRUCTURE_ID", "ACTION", "OBS_VALUE"],
    "properties": {
        "STRUCTURE": {"enum": ["dataflow", "datastructure", "dataprovision"]},
        "STRUCTURE_ID": {"pattern": "^[A-Za-z][A-Za-z0-9_.-]*:[A-Za-z0-9_@$-]+[(][0-9]+([.][0-9]+)*[)]$"},
        "ACTION": {"enum": ["A", "I", "M", "R", "D"]},
        "OBS_VALUE": {"pattern": "^-?[0-9]+([.][0-9]+)?$"},
        "OBS_STATUS": {"enum": list("ABDEFGHIJKLMNOPQSUVW")},
        "CONF_STATUS": {"enum": list("ACDEFMNPST")},
        "LOWER": {"pattern": "^(-?[0-9]+([.][0-9]+)?)?$"},
        "UPPER": {"pattern": "^(-?[0-9]+([.][0-9]+)?)?$"},
    },
    "propertyNames": {"pattern": "^[A-Z][A-Z0-9_]*$"},
    "additionalProperties": {"type": "string", "minLength": 1},
}
"""SDMX-CSV 2.0, a line of data: a component is an id, a dimension is never empty, a status is of its list."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("described")
    counts = ks.Counts.from_dense(
        np.random.default_rng(0).poisson(30, DOMAIN.shape), DOMAIN, ks.Unit("person", "add-remove", 1), data="census"
    )
    about = {"title": "Residents", "publisher": "An Office", "published": "2026-11-18", "licence": "CC BY 4.0"}
    for name, words in (("said", about), ("silent", None)):
        ks.release(counts, ks.refined_tree(), epsilon="1", ledger=None, about=words).save(
            str(home / name), unmetered=True
        )
    return home


def written(made, name, form):
    files = describe(made / name, form)
    out = made / f"{name}-{form}"
    out.mkdir(exist_ok=True)
    for file, text in files.items():
        (out / file).write_text(text, encoding="utf-8")
    return out


def test_an_entry_for_the_registry(made):
    import jsonschema  # a second, which no other test needs

    said, silent = (json.loads(describe(made / name, "registry")["registry.json"]) for name in ("said", "silent"))
    for entry in (said, silent):
        jsonschema.validate(entry, REGISTRY)
    assert (
        said["tier_1"]["data_curator"] == "An Office"
        and said["tier_2"]["privacy_loss"]["privacy_parameters"]["epsilon"] == "1"
    )
    assert silent["tier_1"]["name"] is None and "data_curator" in silent["tier_1"]["undeclared"]


def test_sdmx_has_every_cell_with_its_limits(made):
    lines = list(csv.DictReader(io.StringIO(describe(made / "said", "sdmx")["release.sdmx.csv"])))
    out = ks.Release.load(str(made / "said"))
    table = out.to_arrow().to_pylist()
    assert len(lines) == out.cells.size
    for line, row in zip(lines, table, strict=True):
        assert (line["MESH_CODE"], line["SEX"]) == (str(row["mesh_code"]), row["sex"])
        assert (float(line["OBS_VALUE"]), float(line["LOWER"]), float(line["UPPER"])) == (
            row["value"],
            row["lower"],
            row["upper"],
        )
        assert (line["OBS_STATUS"], line["CONF_STATUS"], line["ACTION"]) == ("E", "F", "I")


def test_pysdmx_reads_it(made):
    io_ = pytest.importorskip("pysdmx.io", reason="pysdmx is not installed")
    found = io_.read_sdmx(str(written(made, "said", "sdmx") / "release.sdmx.csv"), validate=False).data[0]
    assert found.data.shape[0] == ks.Release.load(str(made / "said")).cells.size


def test_csvw_is_read_by_its_readers(made):
    csvw = pytest.importorskip("csvw", reason="csvw is not installed")
    out = written(made, "said", "csvw")
    found = csvw.CSVW(str(out / "release.csv-metadata.json"), validate=True)
    assert found.is_valid and len(list(found.tables[0].iterdicts())) == ks.Release.load(str(made / "said")).cells.size


def test_csvw_eo_accepts_the_privacy_terms(made):
    eo = pytest.importorskip("csvw_eo.validate_metadata", reason="csvw-eo is not installed")
    found = eo.validate_metadata(json.loads(describe(made / "said", "csvw")["csvw-eo.json"]))
    assert (found.privacy_unit, found.max_contributions) == ("person", 1)


def test_csvw_describes_the_file_beside_it(made):
    files = describe(made / "said", "csvw")
    meta = json.loads(files["release.csv-metadata.json"])
    header = next(csv.reader(io.StringIO(files["release.csv"])))
    assert [column["name"] for column in meta["tableSchema"]["columns"]] == header and meta["url"] == "release.csv"
    assert meta["@context"][0] == "http://www.w3.org/ns/csvw" and set(meta["@context"][1]) <= {"@language", "@base"}


def test_schemas_written_from_the_standards_accept_every_file(made, tmp_path):
    """Also where the standards' own readers are not installed, and of a release with a cell elsewhere."""
    import jsonschema

    beyond = ks.Domain.of(ks.Mesh("grid", level="1km", origin=(2700, 3100), shape=(4, 4), elsewhere=True))
    counts = ks.Counts.from_dense(np.where(beyond.possible_dense(), 40, 0), beyond, ks.Unit("person", "add-remove", 1))
    out = ks.release(counts, ks.refined_tree(), epsilon="1", ledger=None)
    out.save(str(tmp_path / "away"), unmetered=True)
    for folder in (made / "said", made / "silent", tmp_path / "away"):
        jsonschema.validate(json.loads(describe(folder, "csvw")["release.csv-metadata.json"]), CSVW_TABLE)
        lines = list(csv.DictReader(io.StringIO(describe(folder, "sdmx")["release.sdmx.csv"])))
        check = jsonschema.Draft202012Validator(SDMX_LINE)
        assert lines and all(check.is_valid(line) for line in lines)
        assert list(lines[0])[:3] == ["STRUCTURE", "STRUCTURE_ID", "ACTION"]
    away = [line for line in lines if line["MESH_CODE"] == "_O"]
    assert [float(line["OBS_VALUE"]) for line in away] == [out.area(grid="elsewhere")]
    for wrong in ({"ACTION": "X"}, {"MESH_CODE": ""}, {"OBS_VALUE": ""}, {"STRUCTURE_ID": "RELEASE"}):
        assert not check.is_valid({**lines[0], **wrong}), "the schema itself refuses"


@pytest.mark.parametrize("name", ["said", "silent"])
def test_dcat_keeps_the_shapes(made, name):
    graph = json.loads(describe(made / name, "dcat")["dcat.jsonld"])["@graph"]
    (dataset,) = [node for node in graph if "dcat:Dataset" in node["@type"]]
    ids = {node["@id"] for node in graph}
    assert all(link["@id"] in ids for link in [*dataset["dcat:distribution"], dataset["dct:publisher"]])
    hashes = {
        node["dct:title"]: node["spdx:checksum"]["spdx:checksumValue"] for node in graph if "dcat:mediaType" in node
    }
    listed = json.loads((made / name / "datapackage.json").read_text())["resources"]
    assert hashes == {item["path"]: item["hash"].removeprefix("sha256:") for item in listed}
    pyshacl = pytest.importorskip("pyshacl", reason="pyshacl is not installed")
    ok, _, words = pyshacl.validate(
        json.dumps({"@context": json.loads(describe(made / name, "dcat")["dcat.jsonld"])["@context"], "@graph": graph}),
        data_graph_format="json-ld", shacl_graph=SHAPES, shacl_graph_format="turtle",
    )  # fmt: skip
    assert ok, words


def test_the_page_of_answers_leaves_nothing_open(made):
    for name in ("said", "silent"):
        page = describe(made / name, "nist")["answers.md"]
        points = [line for line in page.splitlines() if line.startswith("**")]
        assert len(points) >= 20 and all(len(line.split(".** ", 1)[1]) > 3 for line in points)
    assert "not declared by the publisher" in page


def test_a_changed_release_is_not_described(made, tmp_path):
    import shutil

    shutil.copytree(made / "said", tmp_path / "r")
    manifest = tmp_path / "r" / "datapackage.json"
    manifest.write_text(manifest.read_text().replace('"An Office"', '"Another"'))
    for form in FORMS:
        with pytest.raises(FormatError, match="not as it was written"):
            describe(tmp_path / "r", form)
    with pytest.raises(DomainError, match="registry, csvw"):
        describe(made / "said", "word")


def test_the_command(made, tmp_path):
    def kasuri(*words, code=0):
        run = forked.kasuri("describe", *words, cwd=tmp_path, code=code)
        return run.stdout + run.stderr

    assert json.loads(kasuri(made / "said", "--as", "registry"))["tier_1"]["name"] == "Residents"
    assert "say where" in kasuri(made / "said", "--as", "csvw", code=1)
    assert "release.csv-metadata.json" in kasuri(made / "said", "--as", "csvw", "--out", tmp_path / "web")
    assert "nothing is overwritten" in kasuri(made / "said", "--as", "csvw", "--out", tmp_path / "web", code=1)
