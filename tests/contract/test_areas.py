"""An area in a user's words: one value for `area`, `interval`, `compare` and `plan`, and the verdict of `verify`."""

import copy
import json
import pickle

import numpy as np
import pytest

import kasuri as ks

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
DOMAIN = ks.Domain.of(
    ks.Mesh("grid", level="1km", origin=(4320, 4800), shape=(20, 20)), ks.Nominal("sex", labels=("f", "m"))
)
COUNTS = ks.Counts.from_dense(np.random.default_rng(1).poisson(3, (20, 20, 2)), DOMAIN, UNIT, data="census-2020")
MASK = np.zeros(DOMAIN.shape, dtype=bool)
MASK[2:5, 3, 1] = True

WORDS = [
    {"rows": slice(0, 8), "cols": 3},
    {"rows": slice(2, None), "sex": "f"},
    {"code": "546000", "sex": 1},
    {"cells": [0, 3, 17]},
    {"cells": MASK},
    {},
]


@pytest.fixture(scope="module")
def out():
    return ks.release(COUNTS, ks.geometric(), epsilon="1", ledger=None, source=ks.seeded(4), threads=1)


@pytest.mark.parametrize("words", WORDS)
def test_an_area_and_its_keywords_are_the_same(out, words):
    area = ks.Area(**words)
    assert out.area(area) == out.area(**words) == out.to_dense().ravel()[area.cells_on(DOMAIN)].sum()
    assert out.interval(area, level=0.9) == out.interval(**words, level=0.9)


def test_areas_are_refused_where_they_are_made_or_looked_up(out):
    with pytest.raises(ks.DomainError, match="not both"):
        ks.Area(rows=1, cells=[1])
    with pytest.raises(ks.DomainError, match="not both"):
        ks.Area(code="5339", cols=2)
    with pytest.raises(ks.DomainError, match="not both"):
        out.area(ks.Area(rows=1), cols=2)
    with pytest.raises(ks.DomainError, match="not both"):
        out.area({"rows": 1})
    with pytest.raises(ks.DomainError, match="no dimension"):
        out.area(ks.Area(age=3))
    with pytest.raises(AttributeError):
        ks.Area(rows=1).rows = 2


def test_an_area_says_what_it_is():
    assert repr(ks.Area(rows=slice(0, 64), cols=slice(None, 5), sex="f")) == "Area(rows 0:64, cols :5, sex f)"
    assert ks.Area(code="5339").words() == "code 5339" and ks.Area().words() == "all"
    assert ks.Area(cells=[1, 2]).words() == "cells"


def test_compare_and_plan_take_areas():
    area = ks.Area(rows=slice(0, 8), sex="f")
    areas = [1, 4, area, ks.Area(cells=[1]), ks.Area(cells=[2])]
    names = [1, 4, "rows 0:8, sex f", "cells #4", "cells #5"]
    found = ks.compare(COUNTS, [ks.geometric()], epsilons=["1"], areas=areas, trials=3)
    assert [row["cells"] for row in found.rows] == names
    truth = _truth(area)
    released = [
        ks.release(COUNTS, ks.geometric(), epsilon="1", ledger=None, source=ks.seeded(trial)).area(area)
        for trial in range(3)
    ]
    assert found.rows[2]["mae"] == pytest.approx(np.abs(np.array(released) - truth).mean())
    assert "rows 0:8, sex f" in found.table("mae")
    public = np.ones(DOMAIN.shape, dtype=np.int64)
    told = ks.plan(
        [ks.geometric()], DOMAIN, UNIT, epsilons=["1"], areas=areas, public_map=public, public_name="flat", trials=2
    )
    assert [row["cells"] for row in told.rows] == names
    assert told.rows[2]["rmse"] is not None and "public map flat" in told.rows[2]["basis"]
    alone = ks.plan([ks.geometric()], DOMAIN, UNIT, epsilons=["1"], areas=areas)
    assert alone.rows[0]["rmse"] is not None and alone.rows[2]["rmse"] is None
    assert "rows 0:8, sex f" in alone.table()


def _truth(area):
    dense = np.zeros(DOMAIN.size, dtype=np.int64)
    dense[COUNTS.cells] = COUNTS.values
    return dense[area.cells_on(DOMAIN)].sum()


def test_a_verdict_is_a_value_and_a_mapping(tmp_path):
    ks.release(COUNTS, ks.geometric(), epsilon="1", ledger=None, threads=1).save(str(tmp_path / "r"), unmetered=True)
    good = ks.verify(tmp_path / "r")
    assert good.ok and good["ok"] is True and good.get("nothing") is None and good.faults == ()
    assert good == dict(good) == json.loads(json.dumps(good)) == copy.deepcopy(good) == pickle.loads(pickle.dumps(good))
    assert good.files == tuple(good["files"]) and good.release_id == good["release_id"] and good.signature == "none"
    assert good.ledger == "not checked" and list(good.not_recomputed) == good["not_recomputed"]
    for change in (lambda: good.update(ok=False), lambda: good.pop("ok"), lambda: good.__setitem__("ok", False)):
        with pytest.raises(TypeError, match="does not change"):
            change()
    (tmp_path / "r" / "certificate.md").write_text("all is well")
    bad = ks.verify(tmp_path / "r")
    assert not bad.ok and list(bad.faults) == bad["faults"] != []
