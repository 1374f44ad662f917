"""Every variant of every recipe on every domain of the contract suite: what is stored, promised and drawn, to the byte.

The file next to this one holds, per case: the stored words, the plan's fingerprint (declared series in ledgers hold
it), the guarantee, the privacy-loss parts, the names of the keystreams that were opened, and digests of cells, values
and measurements under `seeded(4)`. It is written anew only for a deliberate change, which the changelog then names:

    python tests/golden/test_recipe_golden.py
"""

import gzip
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kasuri as ks
from kasuri import meshcode
from kasuri.noise.rng import Streams
from kasuri.schema import Domain, Mesh, Nominal, Ordered, Tree, Unit

FILE = Path(__file__).with_name("recipes.json.gz")
MASK = np.zeros((5, 7), dtype=bool)
MASK[:2, :3] = True
SMALL = {
    "full": Domain.of(Mesh("g", shape=(8, 8))),
    "odd, masked": Domain.of(Mesh("g", shape=(5, 7)), mask=MASK),
    "axes": Domain.of(
        Mesh("g", shape=(3, 4)), Ordered("age", 3), Nominal("w", tuple("abc"), Tree.of({"x": ["a", "b"], "y": ["c"]}))
    ),
    "axes, no tree": Domain.of(Mesh("g", shape=(3, 4)), Ordered("age", 3), Nominal("w", tuple("abc"))),
}
LARGE = {
    "wide": Domain.of(Mesh("g", shape=(256, 200))),
    "jis": Domain.of(Mesh("g", "500m", (int(meshcode.level("500m").per_first) * 53, 80 * 39), shape=(80, 80))),
}


def _table(domain):
    return ks.PublicTable.from_dense(
        np.where(domain.possible_dense(), np.arange(domain.size).reshape(domain.shape) % 7, 0), domain, name="known"
    )


def _first(auto):
    """The version that tried its candidates on whole maps, as releases without the word do."""
    along = auto.along_trees
    first = replace(auto, chooser=replace(auto.chooser, version=1))
    return first if along is None else replace(first, along_trees=replace(along, chooser=first.chooser))


def variants(domain, size):
    """(label, constructor call) pairs; those a domain refuses are left out by their refusal, which is kept too."""
    r = ks.recipes
    table = _table(domain)
    yield from {
        "geometric": r.geometric(), "laplace": r.laplace(),
        "haar_topdown": r.haar_topdown(), "haar_topdown 1d": r.haar_topdown("1d"),
        "haar_topdown plain": r.haar_topdown(descent="plain"), "haar_topdown jump": r.haar_topdown(descent="jump"),
        "haar_topdown dense": r.haar_topdown(descent="dense"), "haar_topdown haar": r.haar_topdown(transform="haar"),
        "haar_topdown nominal": r.haar_topdown(transform="nominal"), "haar_topdown jis": r.haar_topdown("jis"),
        "privelet 1d": r.privelet("1d"), "privelet 2d": r.privelet("2d"), "privelet": r.privelet(),
        "refined_tree": r.refined_tree(), "refined_tree u4": r.refined_tree("u4"),
        "refined_tree tilt16": r.refined_tree("tilt16"), "refined_tree given": r.refined_tree({0: "0.6", 1: "0.4"}),
        "refined_tree 1d": r.refined_tree(order="1d"), "refined_tree hierarchy": r.refined_tree(order="hierarchy"),
        "bayes_tree": r.bayes_tree(), "bayes_tree sparse": r.bayes_tree("sparse"),
        "bayes_tree given": r.bayes_tree({0: "0.6", 1: "0.4"}), "bayes_tree pilot": r.bayes_tree(pilot=True),
        "bayes_tree facts": r.bayes_tree(facts={"density": "0.5", "size": "100"}),
        "bayes_tree 1d": r.bayes_tree("dense", "1d"), "bayes_tree hierarchy": r.bayes_tree(order="hierarchy"),
        "bayes_tree prior": r.bayes_tree(prior=table), "bayes_tree dense prior": r.bayes_tree("dense", prior=table),
        "sparse": r.sparse(), "sparse 3": r.sparse(3),
        "simplex": r.simplex(), "simplex share": r.simplex(share="0.2"), "neg_l2_simplex": r.neg_l2_simplex(),
        "neg_l2_simplex 0.95": r.neg_l2_simplex("0.95"), "neg_l2_simplex tuned": r.neg_l2_simplex(tune_on=table),
        "nonneg_lasso": r.nonneg_lasso(), "nonneg_lasso shift": r.nonneg_lasso(adjust="shift"),
        "nonneg_lasso 1": r.nonneg_lasso("1"), "lasso": r.lasso(), "lasso shift": r.lasso(adjust="shift"),
        "lasso tuned": r.lasso(tune_on=table), "public total": r.simplex("public", declared_total=120),
        "hierarchy": r.hierarchy(), "hierarchy morton": r.hierarchy("morton"),
        "hierarchy hierarchy": r.hierarchy("hierarchy"),
    }.items()  # fmt: skip
    if len(domain.axes) > 1:
        yield "haar_topdown interleave", r.haar_topdown(interleave=("g", "age"))
        yield "bayes_tree interleave", r.bayes_tree(interleave=("g", "age"))
    if size == "small":
        eye = np.eye(domain.size, dtype=int)
        yield from {
            "auto 1": _first(r.auto()), "auto prior 1": _first(r.auto(prior=table)),
            "auto": r.auto(), "auto mae": r.auto((1, 16), "mae"), "auto prior": r.auto(prior=table),
            "fourier": r.fourier(1), "fourier 2": r.fourier(2), "matrix": r.matrix(),
            "matrix prefix": r.matrix(workload="prefix"), "matrix given": r.matrix((eye * 2).tolist()),
            "matrix named": r.matrix(ks.PublicMatrix(eye + np.tri(domain.size, dtype=int), "steps")),
            "matrix for": r.matrix(workload=ks.PublicMatrix(np.tri(domain.size, dtype=int), "wanted")),
        }.items()  # fmt: skip


def cases():
    for size, domains in (("small", SMALL), ("large", LARGE)):
        for place, domain in domains.items():
            for label, recipe in variants(domain, size):
                for change in ("add-remove", "replace"):
                    yield f"{place} | {label} | {change}", recipe, domain, change


def found(recipe, domain, change):
    """One case as JSON; a refusal by its words."""
    truth = np.random.default_rng(1).poisson(3, domain.shape)
    truth[~domain.possible_dense()] = 0
    counts = ks.Counts.from_dense(truth, domain, Unit("person", change, 1), data="test-2020")
    opened = set()
    plain = Streams.block_key

    def spied(self, purpose, level, block):
        opened.add(f"{self.recipe}|{purpose}|{level}|{block}")
        return plain(self, purpose, level, block)

    try:
        claim = recipe.guarantee(domain, counts.unit, "0.5")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Streams, "block_key", spied)
            out = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(4), threads=1)
    except ks.KasuriError as error:
        return {"refused": type(error).__name__, "why": str(error)}
    series = recipe.series(domain, counts.unit, "0.5", 3).to_json()
    measured = out.measurements
    return {
        "words": dict(out.recipe),
        "guarantee": claim.to_json(),
        "series": series,
        "scale": str(recipe.scale(domain, counts.unit, "0.5")),
        "streams": sorted(opened)
        if len(opened) <= 12
        else [len(opened), _digest(np.frombuffer("\n".join(sorted(opened)).encode(), np.uint8))],
        "cells": _digest(out.cells),
        "values": _digest(out.values),
        "measurements": None if measured is None else _measured(measured),
    }


def _measured(measured):
    arrays = [_digest(array) for array in (measured.level, measured.prefix, measured.value)]
    return [*arrays, {str(level): str(scale) for level, scale in measured.scale.items()}]


def _digest(array):
    data = np.ascontiguousarray(array)
    if data.dtype.kind == "f":  # the last bits of LAPACK and HiGHS are the machine's own
        data = np.round(data, 6)
    return f"{data.dtype.kind}{data.size}:{hashlib.sha256(data.tobytes()).hexdigest()[:16]}"


def anywhere(label, case):
    """A case without what the machine's linear algebra decides: the released values of a matrix (rounded at six places
    they may be ties) and the rows of one that is optimised. Its words, promise, streams and measurements stay."""
    if " | matrix" not in label or "words" not in case:
        return case
    optimised = case["words"]["options"].get("strategy") == "optimised"
    words = {key: value for key, value in case["words"].items() if not (optimised and key == "rows")}
    return case | {"words": words, "values": case["values"].partition(":")[0]}


@pytest.fixture(scope="module")
def golden():
    return json.loads(gzip.decompress(FILE.read_bytes()))


def test_the_file_holds_every_case(golden):
    assert sorted(golden) == sorted(label for label, *_ in cases())


@pytest.mark.parametrize("place", [*SMALL, *LARGE])
def test_nothing_stored_promised_or_drawn_has_changed(golden, place):
    wrong = {}
    for label, recipe, domain, change in cases():
        if label.startswith(f"{place} |"):
            now = anywhere(label, json.loads(json.dumps(found(recipe, domain, change))))
            then = anywhere(label, golden[label])
            differs = [key for key in {*now, *then} if now.get(key) != then.get(key)]
            if differs:
                wrong[label] = {key: (then.get(key), now.get(key)) for key in sorted(differs)}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


if __name__ == "__main__":
    made = {label: found(recipe, domain, change) for label, recipe, domain, change in cases()}
    FILE.write_bytes(gzip.compress(json.dumps(made, indent=0, sort_keys=True).encode(), mtime=0))
    sys.stdout.write(f"{len(made)} cases, {FILE.stat().st_size} bytes\n")
