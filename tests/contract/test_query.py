"""kasuri query, diff and release --dry-run: what is published, read by people; nothing is charged."""

import json

import forked
import numpy as np
import pytest

import kasuri as ks

PERSON = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(8, 8)), ks.Nominal("sex", labels=("female", "male"))
)


def kasuri(*words, cwd, code=0):
    return forked.kasuri(*words, cwd=cwd, code=code).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three releases: a and b of the same table, c of one with a crowd more."""
    home = tmp_path_factory.mktemp("releases")
    dense = np.full(DOMAIN.shape, 100)
    for name, more in (("a", 0), ("b", 0), ("c", 100_000)):
        dense[2, 3, 1] = 100 + more
        counts = ks.Counts.from_dense(dense, DOMAIN, PERSON, data="wards")
        ks.release(counts, ks.geometric(), epsilon="1", ledger=None).save(str(home / name), unmetered=True)
    return home


def test_query_is_area_and_interval(folder):
    out = ks.Release.load(str(folder / "a"))
    found = json.loads(kasuri("query", "a", "--rows", "0:4", "--cols", "2:4", "--by", "sex", "--json", cwd=folder))
    for index, row in enumerate(found["rows"]):
        asked = {"rows": slice(0, 4), "cols": slice(2, 4), "sex": index}
        limits = out.interval(**asked)
        assert (row["label"], row["value"]) == (("female", "male")[index], out.area(**asked))
        assert (row["lower"], row["upper"]) == (limits.lower, limits.upper)
    text = kasuri("query", "a", "--where", "sex=male", cwd=folder)
    assert f"{out.area(sex='male'):,}, with 95% confidence between" in text
    assert "choose among: sex" in forked.kasuri("query", "a", "--by", "age", cwd=folder, code=1).stderr


def test_diff_marks_what_noise_does_not_explain(folder):
    assert kasuri("diff", "a", "a", cwd=folder) == "no difference\n"
    same = json.loads(kasuri("diff", "a", "b", "--top", "200", "--json", cwd=folder, code=1))
    assert same["largest"] and not any(row["apart"] for row in same["largest"])
    crowd = json.loads(kasuri("diff", "a", "c", "--json", cwd=folder, code=1))
    (marked,) = [row for row in crowd["largest"] if row["apart"]]
    assert marked["cell"] == int(DOMAIN.ravel([np.array([2]), np.array([3]), np.array([1])])[0])
    assert "sex male" in marked["where"]


def test_a_dry_run_reads_nothing_and_charges_nothing(tmp_path):
    ks.Ledger.open(tmp_path / "x.ledger", epsilon="1", unit=PERSON, data="wards")
    before = (tmp_path / "x.ledger").read_bytes()
    words = ["release", "gone.csv", "--window", "5339", "--code", "mesh_code", "--count", "n", "--unit", "person"]
    words += ["--change", "add-remove", "--max-cells", "1", "--epsilon", "0.1", "--data", "wards"]
    text = kasuri(*words, "--ledger", "x.ledger", "--out", "out", "--dry-run", cwd=tmp_path)
    assert "nothing was charged" in text and "epsilon 0.1" in text and "is left of" in text
    assert (tmp_path / "x.ledger").read_bytes() == before and not (tmp_path / "out").exists()
    kasuri(*words[:-4], "--epsilon", "x", "--unmetered", "--out", "out", "--dry-run", cwd=tmp_path, code=1)
