"""A new recipe, made here in memory as docs/guide/add-a-recipe.md says: it runs, is saved, verified and read back; with
any one step forgotten it is refused, and never runs as something else."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import kasuri as ks
from kasuri.errors import FormatError
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.published.bars import NoBars
from kasuri.recipes import RECIPES
from kasuri.recipes.cells import noisy_cells
from kasuri.recipes.mechanism import Drawn, Mechanism, NoForm, OwnBias, Run, kept, scale_of
from kasuri.recipes.read import read
from kasuri.trees import transform
from kasuri.words import bias

DOMAIN = ks.Domain.of(ks.Mesh("g", level="500m", origin=(8400, 6080), shape=(8, 8)))
UNIT = ks.Unit("person", "add-remove", 1)


@dataclass(frozen=True)
class Cut(Mechanism):
    """Every cell plus exact noise, negatives set to 0."""

    refine: str = "cut"

    def stored(self):
        return {"transform": "identity", "noise": DiscreteLaplace.name, "refine": self.refine}

    def run(self, domain, unit, epsilon):
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace)
        cost = transform.identity_cost(domain.size, unit.change)
        return CutRun(self, domain, claim, cost, DiscreteLaplace(scale_of(unit, cost, claim.epsilon)))


@dataclass(frozen=True, eq=False)
class CutRun(Run):
    signed: ClassVar[bool] = False
    refined_ja: ClassVar[str] = "負の値を 0 に置き換え"
    bias: ClassVar[OwnBias] = OwnBias((("every area", "too high.", "高めになります。"),))

    def draw(self, cells, values, streams, threads):
        found, noisy = noisy_cells(self, cells, values, streams, threads)
        return Drawn(*kept(found, np.maximum(noisy, 0)))

    def errors(self, sizes=()):
        return NoForm("how much is cut depends on the table")

    def bars(self, measurements):
        return NoBars("cut_at_0 publishes no measurements")

    def blocks(self):
        return None


def cut_at_0() -> Mechanism:
    return Cut("cut_at_0", "docs/proofs/geometric.md")


def released(recipe=None) -> ks.Release:
    counts = ks.Counts.from_dense(np.arange(64).reshape(8, 8) % 3, DOMAIN, UNIT, data="scratch")
    return ks.release(counts, recipe or cut_at_0(), epsilon="1", ledger=None)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(RECIPES, "cut_at_0", cut_at_0)


def test_a_registered_recipe_runs_is_saved_verified_and_read_back(registered, tmp_path):
    out = released()
    assert out.recipe["name"] == "cut_at_0" and out.recipe["refine"] == "cut" and (out.values > 0).all()
    out.save(str(tmp_path / "r"), unmetered=True)
    assert ks.verify(str(tmp_path / "r"))["ok"]
    again = ks.Release.load(str(tmp_path / "r"))
    assert np.array_equal(again.values, out.values)
    assert type(read(again.recipe, DOMAIN, UNIT, "1")) is CutRun
    assert "too high." in (tmp_path / "r" / "certificate.md").read_text(encoding="utf-8")
    assert "後処理：負の値を 0 に置き換え（" in (tmp_path / "r" / "certificate.ja.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", ["draw", "errors", "bars", "blocks"])
def test_a_run_without_one_of_its_answers_cannot_be_made(method):
    parts = {name: value for name, value in vars(CutRun).items() if name != method and not name.startswith("__")}
    with pytest.raises(TypeError, match=f"abstract.*{method}"):
        type("Less", (Run,), parts)(None, None, None, None, None)


@pytest.mark.parametrize("method", ["stored", "run"])
def test_a_mechanism_without_one_of_its_answers_cannot_be_made(method):
    with pytest.raises(TypeError, match=f"abstract.*{method}"):
        type("Less", (Mechanism,), {name: vars(Cut)[name] for name in {"stored", "run"} - {method}})("less", "x")


@pytest.mark.parametrize("word", ["signed", "bias"])
def test_a_run_that_does_not_say_what_it_releases_cannot_be_made(word):
    parts = {name: value for name, value in vars(CutRun).items() if name != word and not name.startswith("__")}
    with pytest.raises(TypeError, match=word):
        type("Less", (Run,), parts)(None, None, None, None, None)


def test_an_unregistered_recipe_cannot_be_saved(tmp_path):
    with pytest.raises(FormatError, match="no recipe is described like this"):
        released().save(str(tmp_path / "r"), unmetered=True)
    assert list(tmp_path.iterdir()) == []


def test_words_of_another_recipe_are_not_read_as_it(registered):
    words = dict(released().recipe)
    for changed in ({"name": "geometric"}, {"refine": "none"}):
        with pytest.raises(FormatError):
            read(words | changed, DOMAIN, UNIT, "1")


def test_arguments_that_nothing_reads_back_are_refused(monkeypatch):
    """A recipe with an argument needs its line in recipes/read.py: without it nothing of it is read."""
    monkeypatch.setitem(RECIPES, "cut_at_0", lambda refine="cut": Cut("cut_at_0", "x", refine))
    with pytest.raises(FormatError):
        read(cut_at_0().on(DOMAIN, UNIT, "1").words(), DOMAIN, UNIT, "1")


def test_a_bias_of_its_own_is_said_of_a_known_kind_of_area():
    said = bias.by_area(cut_at_0().on(DOMAIN, UNIT, "1"))
    assert said == [{"area": "every area", "en": "too high.", "ja": "高めになります。"}]


def test_half_of_the_noise_is_found_from_outputs_alone():
    """No type, word or formula sees it: the run says what it was asked. The falsifier's attack does not ask."""
    sys.path.append(str(Path(__file__).parents[1] / "falsify"))
    from lower_bound import attack

    domain = ks.Domain.of(ks.Mesh("g", shape=(100, 200)))
    run = cut_at_0().on(domain, UNIT, "1")

    def shown(run, count):  # cells have noise of their own: a table of equal cells is one cell so many times
        cells, out = np.arange(domain.size), np.zeros(domain.size)
        streams = Streams(ks.seeded(count).release_key(), "cut_at_0")
        drawn = run.draw(cells, np.full(domain.size, count), streams, 1)
        out[drawn.cells] = drawn.values
        return {"cell": out}

    half = replace(run, noise=DiscreteLaplace(run.noise.scale / 2))
    honest, broken = (attack(shown(one, 5), shown(one, 6), 0.0, 1e-4).epsilon for one in (run, half))
    assert 0.8 < honest <= 1 and broken > 1.5
    assert half.words() | {"scale": None} == run.words() | {"scale": None} and half.guarantee == run.guarantee
