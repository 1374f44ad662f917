"""Hostile input in short: what was found once stays mended, a few hundred new cases of every reader, costly files.

The long form is `python tests/falsify/fuzz.py`; its table stands in docs/assurance.md.
"""

import io
import json
import time
import zipfile

import fuzz
import hostile
import numpy as np
import pytest
from fuzz_targets import ESTAT, JOB, RECODING, TARGETS, csv_of
from hypothesis import given
from hypothesis import strategies as st

import kasuri as ks
from kasuri.budget.ledger.entries import State
from kasuri.local import numeric
from kasuri.local.wire import read_round
from kasuri.privacy import written
from kasuri.schema import Domain

BY_NAME = {target.name: target for target in TARGETS}
SLOW = (
    "manifests",
    "release files",
    "domains",
    "arguments",
    "origin-destination CSV",
    "records in CSV",
    "points in CSV",
)
"""Readers of which a case takes long: fewer cases in the short form."""


def packed(method, spoil=False):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.txt", ESTAT * 20)
    data = bytearray(out.getvalue())
    if spoil:
        data[60:70] = b"\xff" * 10
    return bytes(data)


def npz():
    out = io.BytesIO()
    np.savez(out, np.zeros(3))
    return out.getvalue()


DEEP = b'{"a":' * 100_000
OPENED = {"entry": 1, "format": 1, "kind": "opened", "previous": "", "data": "d", "owner": "o", "id": "0" * 32,
          "unit": {"id": "p", "change": "replace", "max_cells": 1, "max_weight": None}}  # fmt: skip


def opened(**allowance):
    return json.dumps(
        [OPENED | {"allowance": {"accounting": "pure", "epsilon": "1", "delta": "0"} | allowance}]
    ).encode()


FOUND = [
    ("e-Stat archives", "a spoilt stream: zlib.error", packed(zipfile.ZIP_DEFLATED, spoil=True)),
    ("e-Stat archives", "LZMA: LZMAError, EOFError", packed(zipfile.ZIP_LZMA, spoil=True)),
    ("e-Stat text", "a carriage return alone: csv.Error", b"KEY_CODE,T001141001\n,\r,x\n/"),
    ("e-Stat text", "a field of 200,000 characters: csv.Error", b"KEY_CODE," + b"x" * 200_000),
    ("mobile statistics", "no header line: its first row was quoted", fuzz.CANARY.encode() + b",1,2,3,4,5,6\n"),
    ("people flow", "no header line: its first row was quoted", fuzz.CANARY.encode() + b",1,2,3,4,5,6\n"),
    ("tables in CSV", "a field of 200,000 characters: csv.Error", b"x" * 200_000 + b",y\n1,2\n"),
    ("mesh codes", "text, None, numbers beyond 64 bits: ValueError, TypeError, OverflowError", b"x,\xff"),
    ("public arrays", "a header that is no expression: TokenError",
     b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '>i2', 'fortran_order': False, 'shape': (1, 2), }  (".ljust(117) + b"\n"),
    ("public arrays", "an archive of arrays", npz()),
    ("public arrays", "10^12 numbers promised: MemoryError", hostile._array("(1000000, 1000000)")()),
    ("job files", "a number of 5,000 digits: ValueError", JOB.replace("= 24", "= " + "9" * 5000).encode()),
    ("job files", "lists in lists: RecursionError", JOB.replace("= 24", "= " + "[" * 5000).encode()),
    ("recodings", "a number of 5,000 digits: ValueError", RECODING.replace("100", "9" * 5000).encode()),
    ("recodings", "lists in lists: RecursionError", RECODING.replace("100", "[" * 5000).encode()),
    ("recodings", "a kind that is a list: TypeError", RECODING.replace('"numbers"', "[]").encode()),
    ("recodings", "a file name with a NUL: ValueError", b'[attributes.a]\nkind = "categories"\nfile = "\\u0000"\n'),
    ("recodings", "a file without end: MemoryError", b'[attributes.a]\nkind = "categories"\nfile = "/dev/zero"\n'),
    ("hierarchies", "a field of 200,000 characters: csv.Error", b"x" * 200_000 + b";y\n"),
    ("domains", "a mask of 10^12 cells: MemoryError", json.dumps({
        "axes": [{"kind": "ordered", "name": "a", "size": 10**12, "labels": None}],
        "mask": [{"axes": ["a"], "shape": [10**12], "first": False, "runs": [10**12]}]}).encode()),
    ("manifests", "objects in objects: RecursionError", DEEP),
    ("ledger entries", "an exponent that fills the memory", opened(epsilon="1e999999999")),
    ("ledger entries", "1/0: ZeroDivisionError", opened(epsilon="1/0")),
    ("ledger entries", "objects in objects: RecursionError", DEEP),
    ("keys", "a key of an unknown kind: UnsupportedAlgorithm",
     b"-----BEGIN PUBLIC KEY-----\nMCowBQYDI2VwAyEAQmbFJdxjro7ZdScf8DZsK7JXDmGEgWsFZub0SrSDd4g=\n"
     b"-----END PUBLIC KEY-----\n"),
    ("shuffle plans", "objects in objects: RecursionError", DEEP),
    ("shuffle offers", "objects in objects: RecursionError", DEEP),
    ("shuffle rows", "a key that is no UTF-8: ArrowInvalid", b"phone,age\n\xff\xfe,20\n0900,21\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "data"), FOUND, ids=[f"{name}: {what}" for name, what, _ in FOUND])
def test_what_was_found_stays_mended(name, what, data, tmp_path):
    _, read = BY_NAME[name].prepare(tmp_path)
    start = time.process_time()
    assert fuzz.judge(read, data)[0] in ("ok", "refused")
    assert time.process_time() - start < fuzz.SECONDS


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_mutated_examples_meet_kasuri_errors_only(target, tmp_path):
    out = fuzz.work(target, tmp_path, seed=0, seconds=60, cases=4 if target.name in SLOW else 25)
    assert out["found"] == {}
    assert out["cases"] == out["ok"] + out["refused"] > 0


SHORT = ("zip: 2 GB of zeros in 2 MB", "CSV: 10^6 columns", "release: the manifest is a pipe")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in SHORT else pytest.mark.full) for case in hostile.CASES],
)
def test_costly_files_cost_little(case):
    found = hostile.run(case)
    assert hostile.good(case, found), found


def test_the_judge_sees_other_errors_and_quoted_values():
    def quote(data):
        raise ks.DomainError(f"not a code: {fuzz.CANARY}")

    def divide(data):
        return 1 / len(data)

    assert fuzz.judge(quote, b"")[0] == "quotes a confidential value"
    assert fuzz.judge(divide, b"")[0] == "ZeroDivisionError"
    assert fuzz.judge(divide, b"x") == ("ok", "")
    assert fuzz.judge(lambda data: Domain.from_json(data), b"")[0] == "refused"


def test_the_worker_finds_a_planted_fault(tmp_path):
    def fragile(data):
        return None if b"\0" not in data else data[len(data)]

    planted = fuzz.Target("planted", "csv", lambda folder: ([csv_of([{"a": 1, "b": 2}])], fragile))
    found = fuzz.work(planted, tmp_path, seed=0, seconds=60, cases=400)["found"]
    assert [what.split()[0] for what in found] == ["IndexError"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(fuzz.VALUES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
EXAMPLES = {
    "domain": Domain.of(ks.Mesh("g", shape=(4, 4)), ks.Nominal("sex", ("m", "f"))).to_json(),
    "categories": ks.local.unary(ks.Nominal("w", ("a", "b", "c")), epsilon="1").to_json(),
    "numbers": numeric.MAKERS["two_point"]((0, 10), epsilon="1").to_json(),
}


def places(tree, path=()):
    yield path
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(value, (*path, key))


def replaced(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize(
    ("name", "read"),
    [("domain", Domain.from_json), ("categories", ks.local.from_json), ("numbers", numeric.from_json)],
)
@given(data=st.data())
def test_any_value_at_any_place_of_a_description(name, read, data):
    path = data.draw(st.sampled_from(list(places(EXAMPLES[name]))))
    tree = replaced(EXAMPLES[name], path, data.draw(VALUES))
    assert fuzz.judge(lambda _: read(tree), b"")[0] in ("ok", "refused")


@given(st.text(max_size=400))
def test_any_text_as_a_round_or_an_entry(text):
    assert fuzz.judge(lambda _: read_round(text), b"")[0] == "refused"
    assert fuzz.judge(lambda _: State().add(text, "0" * 64), b"")[0] == "refused"


@given(st.text(alphabet="-0123456789./eE_ ", max_size=30))
def test_numbers_as_they_are_written(text):
    """`written` takes what `decimal` writes and never an exponent."""
    try:
        value = written(text)
    except ValueError:
        return
    assert "e" not in text.lower() and written(ks.privacy.decimal(value)) == value
