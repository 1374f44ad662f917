"""What a forger can write with kasuri's own writer, every file agreeing and every hash right, and `verify` refutes."""

import json
import sys
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri import manifest
from kasuri.manifest import certificate, expected
from kasuri.manifest.package import digest, sha256, text, versions_hash
from kasuri.noise.laws import KEYSTREAM
from kasuri.privacy import decimal
from kasuri.published.measurements import Measurements
from kasuri.published.protected import NO_LEDGER
from kasuri.recipes import hierarchy, laplace, simplex, sparse
from kasuri.recipes.descent import by_cell
from kasuri.recipes.mechanism import Drawn
from kasuri.recipes.read import read
from kasuri.recipes.replay import visited
from kasuri.schema import PROVIDER_BOUNDED
from kasuri.store import duck, parquet
from kasuri.store.columns import release_table

UNIT = ks.Unit("person", "add-remove", 1)
OTHER = ks.Unit("household", "replace", 10)
SEA = np.zeros((16, 16), dtype=bool)
SEA[:4, 10:] = SEA[9, 3:6] = True
MESH = ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(16, 16))
DOMAIN = ks.Domain.of(MESH, mask={"grid": SEA})
RNG = np.random.default_rng(5)
TRUE = np.where(SEA, 0, RNG.poisson(RNG.gamma(0.2, 60, (16, 16))))
COUNTS = ks.Counts.from_dense(TRUE, DOMAIN, UNIT, data="census")
RECIPES = {
    "geometric": ks.geometric(),
    "privelet": ks.privelet(),
    "haar_topdown": ks.haar_topdown(),
    "refined_tree": ks.refined_tree(),
    "bayes_tree": ks.bayes_tree(),
    "pilot": ks.bayes_tree(pilot=True),
    "auto": ks.auto(areas=(1, 16)),
}
TREES = ["haar_topdown", "refined_tree", "bayes_tree", "pilot", "auto"]


def released(recipe, epsilon="1", seed=1, ledger=None):
    """A seeded release that says it is not: the forger's own; what follows is the same in every run."""
    out = ks.release(COUNTS, recipe, epsilon=epsilon, ledger=ledger, source=ks.seeded(seed), threads=1)
    said = {**out.provenance, "secure": True, "source": ks.secure().words()}
    return replace(out, provenance=MappingProxyType(said))


class Made(dict):
    """Releases by name, each made when it is asked for."""

    def __missing__(self, name):
        self[name] = released(RECIPES[name])
        return self[name]


@pytest.fixture(scope="module")
def made():
    return Made()


def saved(folder, out, recipe=None, sign=None, honest=None):
    """Written by kasuri, whatever it claims; with `recipe` the configuration hash is made right too. Words that kasuri
    does not read cannot be written: a forger has a kasuri that reads them as those of the release `honest`."""
    if honest is not None:

        def reading(_, *rest, **more):
            return read(honest, *rest, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules["kasuri.manifest.package"], "read", reading)
            patch.setattr(sys.modules["kasuri.published.intervals"], "read", reading)
            return saved(folder, out, recipe, sign)
    if recipe is not None:
        plan = recipe.plan(out.domain, out.guarantee.unit, out.guarantee.epsilon)
        out = replace(out, provenance=MappingProxyType({**out.provenance, "plan": plan}))
    folder.mkdir()
    table = release_table(out)
    parquet.write(out, table, folder)
    duck.write(out, table, folder)
    estimated = expected.after

    def told(run, release):  # numbers that fit no recipe give no errors: a forger then tells none
        try:
            return estimated(run, release)
        except (LookupError, ValueError, ks.KasuriError):
            return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "after", told)
        manifest.write(out, folder, sign)
    return folder


def verified(folder, out, recipe=None, sign=None, honest=None):
    return ks.verify(saved(folder / "forged", out, recipe, sign, honest))


def promising(out, **changes):
    return replace(out, guarantee=replace(out.guarantee, **changes))


def saying(out, **changes):
    return replace(out, recipe=MappingProxyType({**out.recipe, **changes}))


def measuring(out, **changes):
    return replace(out, measurements=replace(out.measurements, **changes))


def said_by(recipe, domain, unit, epsilon):
    return MappingProxyType(json.loads(json.dumps(recipe.on(domain, unit, epsilon).words())))


def edited(folder, change):
    """A saved release whose manifest is edited, certificates, hashes and digest made right again."""
    path = folder / "datapackage.json"
    data = json.loads(path.read_bytes())
    change(data)
    for name, words in (("certificate.md", certificate.english), ("certificate.ja.md", certificate.japanese)):
        (folder / name).write_text(words(data["privacy"]), encoding="utf-8")
    return rehashed(folder, data)


def rehashed(folder, data):
    for item in data["resources"]:
        item["hash"] = sha256((folder / item["path"]).read_bytes())
    data["digest"] = digest(data)
    (folder / "datapackage.json").write_bytes(text(data))
    return ks.verify(folder)["faults"]


@pytest.mark.parametrize("name", RECIPES)
def test_the_forgers_tools_make_no_fault(made, tmp_path, name):
    found = verified(tmp_path, made[name], RECIPES[name])
    assert found["ok"], found["faults"]
    kinds = [item.partition(":")[0] for item in found["not_recomputed"]]
    assert "the input" in kinds and "the noise" in kinds and len(set(kinds)) == len(kinds)
    assert ("values" in kinds) == (name in ("geometric", "privelet"))
    assert ("the coins of the descent" in kinds) == (name == "haar_topdown")


def test_japanese_words_of_a_refinement_that_the_recipe_does_not_say(made, tmp_path):
    def reworded(data):
        data["privacy"]["accounting"]["post_processing"]["ja"] = "真の値に置き換え"

    faults = edited(saved(tmp_path / "forged", made["geometric"]), reworded)
    assert "datapackage.json: privacy.accounting.post_processing is not what follows from the rest" in faults


def test_the_sensitivity_is_written_from_the_cost(made, tmp_path):
    for name, most in {"geometric": 1, "refined_tree": 1, "haar_topdown": 9}.items():
        folder = saved(tmp_path / name, promising(made[name], epsilon=Fraction(1, 1000)))
        said = json.loads((folder / "datapackage.json").read_bytes())["privacy"]["implementation"]
        assert {Fraction(part["sensitivity"]) for part in said["mechanisms"]} == {Fraction(most)}


@pytest.mark.parametrize("name", RECIPES)
def test_epsilon_10_printed_as_0001(tmp_path, name):
    """The scale stays that of epsilon 10, or is made right as well: then there is too little noise for it."""
    recipe, out = RECIPES[name], released(RECIPES[name], "10")
    small = promising(out, epsilon=Fraction(1, 1000))
    found = verified(tmp_path, small, recipe)["faults"]
    assert "datapackage.json: scale is not what the recipe gives on this domain, unit and epsilon" in found
    scaled = saying(small, scale=decimal(Fraction(out.recipe["scale"]) * 10_000))
    if out.measurements is not None:
        scaled = measuring(scaled, scale={at: scale * 10_000 for at, scale in out.measurements.scale.items()})
    assert ks.verify(saved(tmp_path / "again", scaled, recipe))["faults"]


@pytest.mark.parametrize("name", ["geometric", "haar_topdown", "refined_tree", "privelet"])
def test_too_little_noise(tmp_path, name):
    recipe, out = RECIPES[name], released(RECIPES[name], "10")
    scaled = saying(promising(out, epsilon=Fraction(1, 10)), scale=decimal(Fraction(out.recipe["scale"]) * 100))
    if out.measurements is not None:
        scaled = measuring(scaled, scale={at: scale * 100 for at, scale in out.measurements.scale.items()})
    found = verified(tmp_path, scaled, recipe)["faults"]
    assert found == ["release.parquet: its noisy numbers hold less noise than their scale says"]


def test_the_forger_signs_with_a_key_of_their_own(made, tmp_path):
    manifest.keygen(tmp_path / "forger.key")
    manifest.keygen(tmp_path / "office.key")
    out = promising(released(ks.haar_topdown(), "10"), epsilon=Fraction(1, 1000))
    folder = saved(tmp_path / "forged", out, ks.haar_topdown(), tmp_path / "forger.key")
    found = ks.verify(folder)
    assert not found["ok"] and "nobody vouched" in found["signature"]
    assert ks.verify(folder, key=tmp_path / "office.key.pub")["signature"] == "by another key"


@pytest.mark.parametrize("name", RECIPES)
def test_another_unit(made, tmp_path, name):
    faults = verified(tmp_path, promising(made[name], unit=OTHER), RECIPES[name])["faults"]
    assert any("scale is not what the recipe gives" in fault for fault in faults)


@pytest.mark.parametrize("name", TREES)
def test_true_counts_in_place_of_the_values(made, tmp_path, name):
    out = replace(made[name], cells=COUNTS.cells, values=COUNTS.values)
    faults = verified(tmp_path, out, RECIPES[name])["faults"]
    assert faults == ["release.parquet: its values do not follow from the measurements"]


@pytest.mark.parametrize("name", ["haar_topdown", "bayes_tree"])
def test_load_judges_what_it_hands_on(made, tmp_path, name):
    """Promise and values as `verify` does; what is beside them has its hash alone, and is not handed on."""
    forged = replace(made[name], cells=COUNTS.cells, values=COUNTS.values)
    with pytest.raises(ks.FormatError, match="values do not follow from the measurements"):
        ks.Release.load(str(saved(tmp_path / "values", forged, RECIPES[name])))
    with pytest.raises(ks.FormatError, match="scale is not what the recipe gives"):
        ks.Release.load(str(saved(tmp_path / "promise", promising(made[name], unit=OTHER), RECIPES[name])))
    folder = saved(tmp_path / "page", made[name], RECIPES[name])
    page = (folder / "report.html").read_text(encoding="utf-8")
    (folder / "report.html").write_text(page.replace("<h2", "<h2 hidden", 1), encoding="utf-8")
    with pytest.raises(ks.FormatError, match="changed since it was written"):
        ks.Release.load(str(folder))
    edited(folder, lambda data: None)  # its hash made right
    assert ks.Release.load(str(folder)).total() == made[name].total() and not ks.verify(folder).ok


def test_equal_numbers_of_another_kind(made, tmp_path):
    """1, 1.0 and true are equal numbers to Python, and other words to every reader."""
    recipe = ks.woven_tree(pilot="cells")
    out = released(recipe)
    tuning = json.loads(json.dumps(out.recipe["tuning"]))
    row = next(row for row in tuning["look"] if 1 in row)
    row[row.index(1)] = True
    said = {"arguments": {"pilot": "cells", "version": 3.0}, "tuning": tuning}
    for word, other in said.items():
        folder = saved(tmp_path / word, saying(out, **{word: other}), recipe)
        wrong = f"{word} is not what the recipe gives on this domain, unit and epsilon"
        assert ks.verify(folder)["faults"] == [f"datapackage.json: {wrong}"]
        with pytest.raises(ks.FormatError, match=wrong):
            ks.Release.load(str(folder))
    folder = saved(tmp_path / "made", made["geometric"], ks.geometric())
    table = pq.read_table(folder / "release_meta.parquet")
    (meta,) = table.to_pylist()
    meta["provenance"] = json.dumps(json.loads(meta["provenance"]) | {"secure": 1})
    pq.write_table(pa.Table.from_pylist([meta], table.schema), folder / "release_meta.parquet")
    edited(folder, lambda data: None)
    with pytest.raises(ks.FormatError, match="does not say what the manifest says"):
        ks.Release.load(str(folder))


@pytest.mark.parametrize("name", TREES)
def test_one_person_moved_to_the_next_cell(made, tmp_path, name):
    values = made[name].values.copy()
    at = int(np.argmax(values[:-1]))
    values[at], values[at + 1] = values[at] - 3, values[at + 1] + 3
    faults = verified(tmp_path, replace(made[name], values=values), RECIPES[name])["faults"]
    assert faults == ["release.parquet: its values do not follow from the measurements"]


def test_true_counts_as_noisy_cells(tmp_path):
    """Cells by themselves have nothing to be compared with; but exact zeros show that there is no noise."""
    out = replace(released(ks.geometric(), "0.1"), cells=COUNTS.cells, values=COUNTS.values)
    faults = verified(tmp_path, out, ks.geometric())["faults"]
    assert faults == ["release.parquet: its noisy numbers hold less noise than their scale says"]


def test_true_counts_as_measurements(tmp_path):
    """The tree of true counts, visited and refined as the recipe does: parents are the sum of their children. On a
    crowded map no number is near 0."""
    run = ks.refined_tree().on(DOMAIN, UNIT, "0.1")
    visit, tree = run.visit, run.tree
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    crowd = np.flatnonzero(~SEA)
    leaves[tree.keys(crowd)] = TRUE.ravel()[crowd] + 300
    parents, rows = np.zeros(1, dtype=np.int64), []
    above = 0
    for cut, slack, scale in zip(visit.cuts, visit.slacks, visit.scales, strict=True):
        nodes, _ = tree.children(parents, above, cut)
        y = leaves.reshape(-1, tree.stride(cut)).sum(axis=1)[nodes]
        rows.append((np.full(nodes.size, cut), nodes, y))
        parents, above = nodes[(y > 0) | (slack * scale > 0)], cut  # parents that add up lower nothing: t = 0
    level, prefix, value = (np.concatenate(column) for column in zip(*rows, strict=True))
    true = Measurements(level, prefix, value, dict(zip(visit.cuts, visit.scales, strict=True)))
    found = run.mechanism.join.refine(visited(visit, true), tree, DOMAIN)
    cells, values = by_cell(tree, DOMAIN, [found])
    out = replace(released(ks.refined_tree(), "0.1"), cells=cells, values=values, measurements=true)
    faults = verified(tmp_path, out, ks.refined_tree())["faults"]
    assert faults == ["release.parquet: its noisy numbers hold less noise than their scale says"]


@pytest.mark.parametrize("name", TREES)
def test_measurements_of_another_release(made, tmp_path, name):
    other = released(RECIPES[name], seed=2)
    faults = verified(tmp_path, replace(made[name], measurements=other.measurements), RECIPES[name])["faults"]
    assert any("measurements" in fault or "preset" in fault or "tuning" in fault for fault in faults)


@pytest.mark.parametrize("name", TREES)
def test_two_measurements_swapped(made, tmp_path, name):
    value = made[name].measurements.value.copy()
    first, last = np.argmin(value[-64:]) - 64, np.argmax(value[-64:]) - 64
    value[[first, last]] = value[[last, first]]
    faults = verified(tmp_path, measuring(made[name], value=value), RECIPES[name])["faults"]
    assert faults


def test_measurements_left_out(made, tmp_path):
    out = replace(made["refined_tree"], measurements=None)
    assert "datapackage.json: its recipe publishes measurements" in verified(tmp_path, out, ks.refined_tree())["faults"]


def test_measurements_where_the_recipe_has_none(made, tmp_path):
    out = replace(made["geometric"], measurements=made["refined_tree"].measurements)
    faults = verified(tmp_path, out, ks.geometric())["faults"]
    assert "datapackage.json: its recipe publishes no measurements" in faults


def test_a_scale_of_the_measurements(made, tmp_path):
    for name in ("haar_topdown", "refined_tree"):
        scale = dict(made[name].measurements.scale)
        scale[max(scale)] *= 2
        found = ks.verify(saved(tmp_path / name, measuring(made[name], scale=scale), RECIPES[name]))["faults"]
        assert found == ["measurements.parquet: a scale is not what the recipe gives"]


def test_a_scale_of_one_measurement(made, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet as files

    folder = saved(tmp_path / "forged", made["refined_tree"], ks.refined_tree())
    table = files.read_table(folder / "measurements.parquet")
    scales = table["scale"].to_pylist()
    scales[-1] = "1000"
    files.write_table(table.set_column(3, "scale", pa.array(scales)), folder / "measurements.parquet")
    faults = rehashed(folder, json.loads((folder / "datapackage.json").read_bytes()))
    assert "measurements.parquet: is not a table of measurements" in faults


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("haar_topdown", ks.haar_topdown(descent="jump")),
        ("haar_topdown", ks.haar_topdown("1d")),
        ("geometric", laplace()),
        ("geometric", sparse(1)),
        ("geometric", simplex()),
        ("refined_tree", ks.bayes_tree()),
        ("refined_tree", hierarchy("morton")),
        ("refined_tree", ks.refined_tree("u4")),
        ("bayes_tree", ks.refined_tree({0: "0.5", 2: "0.5"})),
        ("bayes_tree", ks.auto()),
    ],
)
def test_another_recipe(made, tmp_path, name, other):
    """Its words and its promise, on what the one of that name measured and released."""
    guarantee = replace(other.guarantee(DOMAIN, UNIT, "1"), assumes=made[name].guarantee.assumes)
    out = replace(made[name], recipe=said_by(other, DOMAIN, UNIT, "1"), guarantee=guarantee)
    assert verified(tmp_path, out, other)["faults"]


@pytest.mark.parametrize("name", ["auto", "sparse", "matrix", "a new one", ""])
def test_another_name(made, tmp_path, name):
    honest = made["refined_tree"].recipe
    faults = verified(tmp_path, saying(made["refined_tree"], name=name), honest=honest)["faults"]
    assert "datapackage.json: no recipe is described like this on this domain, unit and epsilon" in faults


WORDS = {
    "scale": "123",
    "sensitivity": "0.0001",
    "descent": "jump",
    "order": "1d",
    "shares": {"0": "0.5", "4": "0.25", "8": "0.25"},
    "interleave": ["grid"],
    "arguments": {"shares": "tilt16"},
    "a new word": "as it likes",
}


@pytest.mark.parametrize("word", WORDS)
def test_another_word(made, tmp_path, word):
    honest = made["refined_tree"].recipe
    out = saying(made["refined_tree"], **{word: WORDS[word]})
    faults = verified(tmp_path, out, honest=honest)["faults"]
    wrong = "release.parquet: lower or upper" if word == "order" else "datapackage.json: "  # a known tree, not its own
    assert any(fault.startswith(wrong) for fault in faults)


def test_other_shares_with_their_scales(made, tmp_path):
    """Consistent in every file; the preset named has other shares."""
    other = ks.refined_tree("tilt16")
    shares = said_by(other, DOMAIN, UNIT, "1")["shares"]
    scales = {int(at): 1 / Fraction(share) for at, share in shares.items()}
    out = measuring(saying(made["refined_tree"], shares=shares), scale=scales)
    faults = verified(tmp_path, out, ks.refined_tree())["faults"]
    assert "datapackage.json: shares is not what the recipe gives on this domain, unit and epsilon" in faults


@pytest.mark.parametrize("name", ["pilot", "auto"])
def test_another_preset(made, tmp_path, name):
    run = RECIPES[name].on(DOMAIN, UNIT, "1")
    own = made[name].recipe["preset"]
    other = next(preset for preset in run.offer.choices if preset != own)
    shares = {str(depth): decimal(share) for depth, share in run.offer.choices[other]}
    whole = {"preset": other, "shares": shares, "refined": run.offer.join(other).word}
    for index, words in enumerate(({"preset": other}, {"preset": "best"}, whole)):
        faults = ks.verify(saved(tmp_path / str(index), saying(made[name], **words), RECIPES[name]))["faults"]
        told = any("preset" in fault or "is not what the recipe gives" in fault for fault in faults)
        assert told or (faults and (name, words) == ("auto", whole)), faults  # any candidate; but not these numbers


@pytest.mark.parametrize("name", TREES)
def test_a_mask_dropped(made, tmp_path, name):
    out = replace(promising(made[name], public=("domain",)), domain=ks.Domain.of(MESH))
    assert verified(tmp_path, out, RECIPES[name])["faults"]


def test_a_mask_dropped_from_noisy_cells(tmp_path):
    """Cells by themselves have the same scale without a mask: the sea is then a stretch of exact zeros."""
    out = promising(released(ks.geometric(), "0.01"), public=("domain",))
    faults = verified(tmp_path, replace(out, domain=ks.Domain.of(MESH)), ks.geometric())["faults"]
    assert faults == ["release.parquet: its noisy numbers hold less noise than their scale says"]


PROMISES = {
    "delta": Fraction(1, 10**6),
    "rho": Fraction(1, 2),
    "model": "local",
    "basis": "docs/proofs/geometric.md",
    "public": ("domain",),
    "assumes": (),
}


@pytest.mark.parametrize("field", PROMISES)
def test_another_promise(made, tmp_path, field):
    faults = verified(tmp_path, promising(made["haar_topdown"], **{field: PROMISES[field]}), ks.haar_topdown())[
        "faults"
    ]
    assert any(fault.startswith(f"datapackage.json: {field} is not") for fault in faults)


@pytest.mark.parametrize("caveat", [NO_LEDGER, KEYSTREAM])
def test_a_caveat_left_out(made, tmp_path, caveat):
    left = tuple(item for item in made["haar_topdown"].guarantee.assumes if item != caveat)
    faults = verified(tmp_path, promising(made["haar_topdown"], assumes=left), ks.haar_topdown())["faults"]
    assert faults == ["datapackage.json: assumes is not what the recipe and the ledger rest on"]


def test_who_bounded_contributions_is_said_once(made, tmp_path):
    folder = saved(tmp_path / "forged", made["geometric"], ks.geometric())
    assert PROVIDER_BOUNDED in made["geometric"].guarantee.assumes

    def change(data):
        data["privacy"]["privacy_loss"]["contribution_bound"]["enforced"] = "by kasuri, when counting"

    assert "datapackage.json: says in two ways who bounded contributions, and they differ" in edited(folder, change)


def test_a_japanese_certificate_of_another_epsilon(made, tmp_path):
    """In the wording of today and of earlier versions, which itself is taken."""
    folder = saved(tmp_path / "forged", made["haar_topdown"], ks.haar_topdown())
    path = folder / "certificate.ja.md"
    today = path.read_text(encoding="utf-8")
    for page, true, forged in ((today, "ε = 1", "ε = 0.01"),
                               (certificate.japanese_before(today), "epsilon = 1", "epsilon = 0.01")):  # fmt: skip
        assert true in page
        for said, refused in ((page, False), (page.replace(true, forged), True)):
            path.write_text(said, encoding="utf-8")
            faults = rehashed(folder, json.loads((folder / "datapackage.json").read_bytes()))
            assert ("certificate.ja.md: does not say what the manifest says" in faults) == refused


def test_another_configuration(made, tmp_path):
    faults = verified(tmp_path, made["haar_topdown"], ks.haar_topdown("1d"))["faults"]
    assert faults == ["datapackage.json: configuration_hash is not that of recipe, domain, unit and epsilon"]


def made_with(data):
    return data["privacy"]["implementation"]


def versioned(data, **versions):
    own = made_with(data)["environment"]
    own["versions"] |= versions
    own["hash"] = versions_hash(own["versions"])


EDITS = {
    "title": lambda data: data.update(title="census: something safer"),
    "intervals": lambda data: data["intervals"].update(method="exact"),
    "a further field": lambda data: data["privacy"].update(note="reviewed and found safe"),
    "privacy.expected_error": lambda data: data["privacy"]["expected_error"].update(before_refinement=None),
    "privacy.accounting.composition": lambda data: data["privacy"]["accounting"].update(composition="none needed"),
    "privacy.implementation.sampler": lambda data: data["privacy"]["implementation"].update(sampler="certified"),
    "total": lambda data: data.update(total=float(data["total"])),  # an equal number, written otherwise
    "kasuri": lambda data: data.update(kasuri=True),
    "says more of its refinement": lambda data: made_with(data)["refinement"].update(checked="by a regulator"),
    "says more of its environment": lambda data: made_with(data)["environment"].update(machine="found to be exact"),
    "its versions are not": lambda data: versioned(data, audit="1"),
    "a version is not one": lambda data: versioned(data, numpy="2, and audited"),
    "describes release.parquet": lambda data: next(
        item for item in data["resources"] if item["path"] == "release.parquet"
    ).update(schema={"fields": []}),
}


@pytest.mark.parametrize("field", EDITS)
def test_another_sentence(made, tmp_path, field):
    folder = saved(tmp_path / "forged", made["haar_topdown"], ks.haar_topdown())
    faults = edited(folder, EDITS[field])
    assert any(fault.startswith(f"datapackage.json: {field}") for fault in faults), faults


def test_an_id_that_says_something(made, tmp_path):
    said = {**made["geometric"].provenance, "release_id": "epsilon is 0.001"}
    faults = verified(tmp_path, replace(made["geometric"], provenance=MappingProxyType(said)))["faults"]
    assert faults == ["datapackage.json: its id is not one that kasuri draws"]


def test_the_recipe_of_the_manifest_is_that_of_the_table(made, tmp_path):
    folder = saved(tmp_path / "forged", made["geometric"], ks.geometric())
    faults = edited(folder, lambda data: data["privacy"]["implementation"]["recipe"].update(name="sparse"))
    assert "datapackage.json: its recipe is not that of release_meta.parquet" in faults


def receipt(**changes):
    def change(ledger):
        for where, value in changes.items():
            part, name = where.split("__")
            ledger[part] = {**ledger[part], name: value}

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (receipt(charged__amount="0.1"), "the ledger's receipt does not add up"),
        (receipt(after__left="9"), "the ledger's receipt does not add up"),
        (receipt(before__allowance="9", before__left="9"), "the ledger's receipt does not add up"),
        (receipt(charged__amount="2", after__spent="2", after__left="1"), "was charged another price"),
    ],
)
def test_another_receipt(tmp_path, change, fault):
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="3", unit=UNIT, data="census")
    out = released(ks.geometric(), ledger=ledger)
    said = json.loads(json.dumps(out.provenance["ledger"]))
    change(said)
    out = replace(out, provenance=MappingProxyType({**out.provenance, "ledger": said}))
    assert any(fault in found for found in verified(tmp_path, out)["faults"])


def overdrawn(ledger):
    """An allowance of half of what was spent."""
    for balance in ("before", "after"):
        ledger[balance] = {**ledger[balance], "allowance": "0.5"}
    ledger["before"]["left"], ledger["after"]["left"] = "0.5", "-0.5"


def free(**place):
    """Charged nothing, for a reason that is `place`."""

    def change(ledger):
        ledger["charged"] = {**ledger["charged"], "amount": "0"}
        ledger["after"] = ledger["before"]
        ledger.update(place)

    return change


PRICE = "the ledger was charged another price than the promise has"
SPLIT = {"id": "0" * 32, "part": "f", "parts_per_unit": 1}
SERIES = {"number": 3, "of": 5, "price": "1"}
RECEIPTS = {
    "overdrawn": (overdrawn, "the ledger's receipt does not add up"),
    "the entry that opens a ledger": (lambda ledger: ledger.update(entry=1), "the ledger's receipt does not add up"),
    "a further word": (lambda ledger: ledger["after"].update(note="1"), "says something else than receipts do"),
    "another currency": (receipt(charged__currency="rho"), "the ledger's receipt does not add up"),
    "nothing, for no reason": (free(), PRICE),
    "nothing, as a part of more cells": (free(split={**SPLIT, "parts_per_unit": 2}), PRICE),
    "nothing, as one of a series of a ledger without one": (free(series=SERIES), PRICE),
    "nothing, as the last of a series": (free(series=SERIES, accounting="pld"), "has another price"),
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_a_receipt_that_no_ledger_gives(tmp_path, name):
    change, fault = RECEIPTS[name]
    test_another_receipt(tmp_path, change, fault)


def test_a_part_of_a_split_says_why_it_costs_nothing(tmp_path):
    """The second part of two: charged 0, and manifest and certificates say in which table it is a part."""
    domain = ks.Domain.of(MESH, ks.Nominal("sex", ("f", "m")))
    parts = ks.Counts.from_dense(np.stack([TRUE, TRUE], axis=-1), domain, UNIT, data="census").split("sex")
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="3", unit=UNIT, data="census")
    for name in ("f", "m"):
        out = ks.release(parts[name], ks.geometric(), epsilon="1", ledger=ledger)
        out.save(tmp_path / name)
        found = ks.verify(tmp_path / name, ledger=tmp_path / "census.ledger")
        assert found["ok"], found["faults"]
    said = json.loads((tmp_path / "m" / "datapackage.json").read_bytes())["privacy"]["accounting"]
    assert said["ledger"]["charged"]["amount"] == "0" and "parts of one split" in said["composition"]
    assert said["ledger"]["split"] == {"id": parts["m"].part.split, "part": "m", "parts_per_unit": 1}
    english, japanese = ((tmp_path / "m" / name).read_text() for name in ("certificate.md", "certificate.ja.md"))
    assert "Part m of one table that was split" in english and "charged in parallel" in english
    assert "一つの表を分割したもの" in japanese and "並列に計上" in japanese


def test_the_price_of_a_series_is_that_of_its_recipe(tmp_path):
    series = ks.geometric().series(DOMAIN, UNIT, "0.1", 40)
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="4", delta="1e-6", accounting="pld", series=series,
                            unit=UNIT, data="census")  # fmt: skip
    out = released(ks.geometric(), epsilon="0.1", ledger=ledger)
    assert verified(tmp_path, out)["ok"]
    said = json.loads(json.dumps(out.provenance["ledger"]))
    said["series"]["price"] = "0.2"
    for balance, left in (("before", "0.2"), ("after", "0.1")):
        said[balance] = {**said[balance], "set_aside": left}
        spent = Fraction(said[balance]["spent"])
        said[balance]["left"] = decimal(Fraction(said[balance]["allowance"]) - spent - Fraction(left))
    out = replace(out, provenance=MappingProxyType({**out.provenance, "ledger": said}))
    found = ks.verify(saved(tmp_path / "cheap", out))
    assert found["faults"] == ["datapackage.json: a series of these releases has another price"]


MAKING = {
    "the hash of its versions is not theirs": lambda own: own["environment"]["versions"].update(numpy="0.0.1"),
    "names two versions of kasuri": lambda own: own["environment"].update(
        versions={"kasuri": "0.0.1"}, hash=versions_hash({"kasuri": "0.0.1"})
    ),
    "its recipe is not that of release_meta.parquet": lambda own: own["recipe"].pop("sensitivity"),
}


@pytest.mark.parametrize("fault", MAKING)
def test_what_is_stated_about_the_making_does_not_contradict_itself(made, tmp_path, fault):
    folder = saved(tmp_path / "forged", made["geometric"], ks.geometric())
    assert f"datapackage.json: {fault}" in edited(folder, lambda data: MAKING[fault](data["privacy"]["implementation"]))


def test_words_of_an_earlier_kasuri_need_an_earlier_kasuri(made, tmp_path):
    words = {name: word for name, word in made["geometric"].recipe.items() if name != "sensitivity"}
    out = replace(made["geometric"], recipe=MappingProxyType(words))
    assert any("sensitivity is not what the recipe gives" in fault for fault in verified(tmp_path, out)["faults"])


def test_a_seed_is_not_a_secure_source(made, tmp_path):
    said = {**made["geometric"].provenance, "source": ks.seeded(7).words()}
    found = verified(tmp_path, replace(made["geometric"], provenance=MappingProxyType(said)))
    assert "datapackage.json: its randomness is not that of a secure source" in found["faults"]


@pytest.mark.parametrize("name", ["report", "data", "rho", "max_weight", "level"])
def test_a_field_that_may_be_null_is_there_all_the_same(made, tmp_path, name):
    """A missing one is a fault; it ended `verify` with an error of Python's own."""
    folder = saved(tmp_path / "forged", made["geometric"], ks.geometric())
    data = json.loads((folder / "datapackage.json").read_bytes())
    todo = [data]
    while todo:
        part = todo.pop()
        part.pop(name, None)
        todo += [inner for inner in part.values() if isinstance(inner, dict)]
    assert any("missing or malformed" in fault for fault in rehashed(folder, data))


def test_limits_moved_by_one(made, tmp_path, monkeypatch):
    """On the machine that made them they are the same to the last one."""
    from kasuri.published import intervals

    real = intervals.columns

    def narrower(*words):
        lower, upper = real(*words)
        if len(words) > 1:  # sums of the report
            return lower, upper
        upper[np.argmax(upper - made["haar_topdown"].values)] -= 1  # one limit alone: another machine may round it so
        return lower, upper

    with monkeypatch.context() as patch:
        patch.setattr(intervals, "columns", narrower)
        folder = saved(tmp_path / "forged", made["haar_topdown"], ks.haar_topdown())
    assert "release.parquet: lower or upper does not follow from the measurements" in ks.verify(folder)["faults"]


def in_parquet(folder):
    import pyarrow.parquet as pq

    path = folder / "release.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({"epsilon": "0.001"}), path, compression="zstd")


def in_duckdb(sql):
    def change(folder):
        import duckdb

        with duckdb.connect(str(folder / "release.duckdb")) as base:
            base.execute(sql)

    return change


def after_the_blocks(folder):
    with (folder / "release.duckdb").open("ab") as file:
        file.write(b"true total 12345")


def in_a_field(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "measurements.parquet"
    table = pq.read_table(path)
    fields = [field.with_metadata({"epsilon": "0.001"}) for field in table.schema]
    pq.write_table(pa.Table.from_arrays(table.columns, schema=pa.schema(fields)), path, compression="zstd")


def between_columns_and_footer(folder):
    path = folder / "release.parquet"
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:-footer] + b"true total 12345" + data[-footer:])


def in_least_values(folder):
    """Readers skip rows by what a file states of them: a query then sees another table."""
    import pyarrow.parquet as pq

    path = folder / "release.parquet"
    said = pq.ParquetFile(path).metadata.row_group(0).column(1).statistics.max
    data, stated = path.read_bytes(), said.to_bytes(8, "little")
    at = len(data) - int.from_bytes(data[-8:-4], "little") - 8  # of the footer alone
    path.write_bytes(data[:at] + data[at:].replace(stated, (said + 1).to_bytes(8, "little")))


def as_a_condition(folder):
    """A file made anew, whose table says something that all its rows fulfil."""
    import duckdb

    old, new = folder / "release.duckdb", folder / "new.duckdb"
    with duckdb.connect() as base:
        base.execute(f"ATTACH '{old}' AS old; ATTACH '{new}' AS new (STORAGE_VERSION 'v1.0.0')")
        (made,) = base.execute("SELECT sql FROM duckdb_tables() WHERE table_name = 'release'").fetchone()
        made = made.replace('TABLE "release"', "TABLE new.release").replace(");", ", CHECK ('epsilon 0.001' <> ''));")
        base.execute(f"{made} INSERT INTO new.release FROM old.release")
        base.execute("CREATE TABLE new.release_meta AS FROM old.release_meta; DETACH old; DETACH new")
    new.replace(old)


HIDDEN = {
    "metadata": ("release.parquet", in_parquet),
    "metadata of a column": ("measurements.parquet", in_a_field),
    "bytes of no column": ("release.parquet", between_columns_and_footer),
    "other ends than its rows have": ("release.parquet", in_least_values),
    "a comment": ("release.duckdb", in_duckdb("COMMENT ON TABLE release IS 'epsilon 0.001'")),
    "a sequence": ("release.duckdb", in_duckdb("CREATE SEQUENCE true_total START 12345")),
    "a type": ("release.duckdb", in_duckdb("CREATE TYPE t AS ENUM ('12', '345')")),
    "bytes after its blocks": ("release.duckdb", after_the_blocks),
    "an index": ("release.duckdb", in_duckdb("CREATE INDEX epsilon_0001 ON release(cell)")),
    "a condition": ("release.duckdb", as_a_condition),
    "a table that was dropped": (
        "release.duckdb",
        in_duckdb("CREATE TABLE x AS SELECT range FROM range(99999); CHECKPOINT; DROP TABLE x"),
    ),
    "rows that were deleted": (
        "release.duckdb",
        in_duckdb(
            "INSERT INTO release FROM release; CHECKPOINT; "
            "DELETE FROM release WHERE rowid >= (SELECT count(DISTINCT cell) FROM release)"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_a_table_with_something_beside_it(made, tmp_path, name):
    recipe = "haar_topdown" if name == "metadata of a column" else "geometric"  # which publishes measurements
    folder = saved(tmp_path / "forged", made[recipe], RECIPES[recipe])
    file, change = HIDDEN[name]
    change(folder)
    assert any(fault.startswith(f"{file}: holds something") for fault in edited(folder, lambda data: None))


def test_a_receipt_that_adds_up_is_not_looked_up_without_the_ledger(tmp_path):
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="3", unit=UNIT, data="census")
    out = released(ks.geometric(), ledger=ledger)
    found = verified(tmp_path, out)
    assert found["ok"] and any(item.startswith("the entry that paid") for item in found["not_recomputed"])


def test_the_price_is_that_of_the_promise_printed(tmp_path):
    """Paid for 1, printed as 0.001 with all that follows from it."""
    ledger = ks.Ledger.open(tmp_path / "census.ledger", epsilon="3", unit=UNIT, data="census")
    out = saying(promising(released(ks.geometric(), ledger=ledger), epsilon=Fraction(1, 1000)), scale="1000")
    faults = verified(tmp_path, out, ks.geometric())["faults"]
    assert faults == ["datapackage.json: the ledger was charged another price than the promise has"]


def test_a_declared_total_and_a_threshold(tmp_path):
    unit = ks.Unit("person", "replace", 1)
    counts = ks.Counts.from_dense(TRUE, DOMAIN, unit, data="census")
    for name, recipe in {"total": simplex("public", declared_total=5000), "least": sparse(20)}.items():
        out = ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(1), threads=1)
        said = {**out.provenance, "secure": True, "source": ks.secure().words()}
        out = replace(out, provenance=MappingProxyType(said))
        assert ks.verify(saved(tmp_path / name, out))["ok"]
        values = out.values.copy()
        values[0] = 1 if values[0] != 1 else 2
        found = ks.verify(saved(tmp_path / f"{name} forged", replace(out, values=values)))["faults"]
        assert found == ["release.parquet: not a table that this recipe releases"]


def test_a_newer_refinement_is_not_believed(made, tmp_path):
    out = replace(made["refined_tree"], cells=COUNTS.cells, values=COUNTS.values)
    folder = saved(tmp_path / "forged", out, ks.refined_tree())
    faults = edited(folder, lambda data: data["privacy"]["implementation"]["refinement"].update(version=99))
    assert "release.parquet: refined by version 99, newer than this kasuri runs; update kasuri" in faults


@pytest.mark.parametrize("name", ["geometric", "haar_topdown"])
def test_a_newer_refinement_of_a_recipe_that_has_none(made, tmp_path, name):
    folder = saved(tmp_path / "forged", made[name], RECIPES[name])
    faults = edited(folder, lambda data: data["privacy"]["implementation"]["refinement"].update(version=99))
    assert any("refined by version 99" in fault for fault in faults)


@pytest.mark.parametrize("claim", [{"machine": "arm64 0123456789ab"}, {"versions": {"kasuri": "0.0.1"}}, None])
def test_another_machine_or_version_is_no_excuse(made, tmp_path, claim):
    """What was made elsewhere may be rounded otherwise; true counts are refuted all the same."""

    def change(data):
        implementation = data["privacy"]["implementation"]
        if claim is None:
            del implementation["recipe"], implementation["refinement"]
        else:
            implementation["environment"].update(claim)
            implementation["environment"]["hash"] = versions_hash(implementation["environment"]["versions"])

    for name in TREES:
        out = replace(made[name], cells=COUNTS.cells, values=COUNTS.values)
        if claim and "versions" in claim:
            out = replace(out, provenance=MappingProxyType({**out.provenance, "software": "kasuri 0.0.1"}))
        faults = edited(saved(tmp_path / name, out, RECIPES[name]), change)
        assert "release.parquet: its values do not follow from the measurements" in faults


def test_a_unit_of_rounding_from_another_machine_is_named(made, tmp_path):
    values = made["refined_tree"].values.copy()
    values[np.argsort(values)[-2:]] += (1, -1)
    out = replace(made["refined_tree"], values=values)
    here = ks.verify(saved(tmp_path / "here", out, ks.refined_tree()))
    assert any("values do not follow" in fault for fault in here["faults"])
    out = replace(out, provenance=MappingProxyType({**out.provenance, "software": "kasuri 0.0.1"}))
    folder = saved(tmp_path / "forged", out, ks.refined_tree())
    versions = {"kasuri": "0.0.1"}
    elsewhere = {"machine": "arm64 0123456789ab", "versions": versions, "hash": versions_hash(versions)}
    edited(folder, lambda data: data["privacy"]["implementation"]["environment"].update(elsewhere))
    found = ks.verify(folder)
    assert found["ok"] and any("to within rounding" in item for item in found["not_recomputed"])


def test_the_command_line_names_what_was_not_recomputed(made, tmp_path):
    from typer.testing import CliRunner

    from kasuri.cli import app

    folder = saved(tmp_path / "release", made["geometric"], ks.geometric())
    told = CliRunner().invoke(app, ["verify", str(folder)])
    assert told.exit_code == 0 and "not recomputed: values: they are the noisy numbers themselves" in told.stdout
    told = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert any(item.startswith("the noise:") for item in json.loads(told.stdout)["not_recomputed"])


# -- what a second forger tried ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, -1, 0.5, True])
def test_a_version_of_the_kernels_that_never_was(tmp_path, version):
    out = replace(released(ks.refined_tree(), "1"), cells=COUNTS.cells, values=COUNTS.values)
    folder = saved(tmp_path / "r", out, ks.refined_tree())
    faults = edited(folder, lambda data: data["privacy"]["implementation"].update(refinement={"version": version}))
    assert any("never was" in fault or "do not follow" in fault for fault in faults)


def test_a_matrix_told_by_its_rows_has_a_cost(tmp_path):
    line = ks.Domain.of(ks.Ordered("age", 16))
    recipe = ks.recipes.matrix(np.vstack([np.eye(16, dtype=int)] * 4).tolist())
    counts = ks.Counts.from_dense(np.arange(16), line, UNIT, data="census")
    honest = ks.release(counts, recipe, epsilon="10", ledger=None)
    assert ks.verify(saved(tmp_path / "honest", honest, recipe))["ok"]
    assert ks.verify(saved(tmp_path / "a", promising(honest, epsilon=Fraction(1, 1000)), recipe))["faults"]
    assert ks.verify(saved(tmp_path / "b", saying(honest, sensitivity="0.0001"), recipe))["faults"]
    assert ks.verify(saved(tmp_path / "c", promising(honest, assumes=(KEYSTREAM,)), recipe))["faults"]
    assert ks.verify(saved(tmp_path / "d", promising(honest, public=("domain",)), recipe))["faults"]


def test_true_counts_above_a_threshold(tmp_path):
    recipe = ks.recipes.sparse(1)
    out = released(recipe, "0.001")
    assert ks.verify(saved(tmp_path / "honest", out, recipe))["ok"]
    forged = replace(out, cells=COUNTS.cells, values=COUNTS.values)
    faults = ks.verify(saved(tmp_path / "forged", forged, recipe))["faults"]
    assert faults == ["release.parquet: its noisy numbers hold less noise than their scale says"]


def test_a_further_file_that_is_listed(made, tmp_path):
    folder = saved(tmp_path / "r", made["geometric"], ks.geometric())
    (folder / "certificate.fr.md").write_text("epsilon = 0.001\n", encoding="utf-8")

    def listed(data):
        data["resources"].append({**data["resources"][0], "path": "certificate.fr.md"})

    assert "certificate.fr.md: not a file of a release" in edited(folder, listed)


def test_words_of_a_prior_on_another_recipe_are_a_fault(made, tmp_path):
    out = saying(made["geometric"], arguments={"shares": "prior"})
    assert verified(tmp_path, out, honest=made["geometric"].recipe)["faults"]


def test_a_large_release_of_one_file_verifies(made, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["kasuri.manifest.recompute"], "ROWS", 10)
    for name in ("geometric", "refined_tree", "haar_topdown", "auto"):
        found = ks.verify(saved(tmp_path / name, made[name], RECIPES[name]))
        assert found["ok"], found["faults"]
        assert any(note.startswith("total: ") for note in found["not_recomputed"])
    shares = dict.fromkeys(made["auto"].recipe["shares"], "5")
    assert ks.verify(saved(tmp_path / "shares", saying(made["auto"], shares=shares), RECIPES["auto"]))["faults"]


SHARES = {"cells": "0.5", "age": "0.25", "sex, place": "0.25"}


@pytest.mark.parametrize("recipe", [ks.woven_tree(whole=True, shares=SHARES), ks.woven_tree()], ids=["whole", "tree"])
def test_too_little_noise_of_sums_beside_their_cells(tmp_path, recipe):
    """On a full table no number is near 0; margins that are the sums of their noisy cells show how small noise is."""
    domain = ks.Domain.of(ks.Nominal("sex", ("f", "m")), ks.Ordered("age", 16), ks.Nominal("place", tuple("abcdefgh")))
    counts = ks.Counts.from_dense(np.random.default_rng(3).integers(300, 3000, domain.shape), domain, UNIT, data="c")

    def made(epsilon):
        out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(1), threads=1)
        said = {**out.provenance, "secure": True, "source": ks.secure().words()}
        return replace(out, provenance=MappingProxyType(said))

    honest = made("1")
    assert ks.verify(saved(tmp_path / "honest", honest, recipe)).ok
    numbers = replace(made("20").measurements, scale=honest.measurements.scale)
    run = recipe.on(domain, UNIT, "1")
    cells, values = run.replay(Drawn(honest.cells, honest.values, numbers, honest.recipe)).found
    forged = replace(honest, cells=cells, values=values, measurements=numbers)
    faults = verified(tmp_path, forged, recipe)["faults"]
    assert faults == ["release.parquet: its noisy numbers hold less noise than their scale says"]
