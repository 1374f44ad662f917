"""What a release says of itself is no more than what holds: seeds, caveats, losses that are not known, rounding."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri import kanon
from kasuri.cli.kanon import app
from kasuri.report.kanon import audit_page, release_page

UNIT = ks.Unit(id="id", change="add-remove", max_cells=1)
SEX = kanon.Recoding.of(kanon.categories("sex", ["f", "m"]))
ROWS = pa.table({"id": list(range(200)), "sex": ["f", "m"] * 100})
NO_ID = ROWS.drop(["id"])
BASE = {"k": 5, "sampling_rate": "0.2", "unit": UNIT}
CHOICE = {**BASE, "cuts": [{"sex": 0}, {"sex": 1}], "epsilon": "1"}
OPTIONS = {**BASE, "cut": {"sex": 1}, "epsilon": "1", "delta": "0.01"}


def faults(make, *args, **more):
    with pytest.raises(ks.KasuriError) as caught:
        make(*args, **more)
    return caught.value.faults


class Pretender:
    """Not a Source, but says that it is secure."""

    secure = True

    def release_key(self):
        return bytes(32)


class Heir(type(ks.secure())):
    """A Source that always gives the same key and still calls itself secure."""

    def release_key(self):
        return bytes(32)


@pytest.mark.parametrize("source", [Pretender(), Heir(), 5, "secure"])
def test_only_a_source_is_a_source(source):
    for make, more in (
        (kanon.sample_then_anonymize, OPTIONS),
        (kanon.choose_cut, CHOICE),
        (kanon.pk_anonymize, {"k": 2}),
        (kanon.audit, {"k": 2, "sampling_rate": "0.5"}),
    ):
        assert "secure()" in faults(make, ROWS, SEX, **more, source=source)[0]


def test_a_seeded_choice_makes_a_seeded_release(tmp_path):
    chosen = kanon.choose_cut(ROWS, SEX, **CHOICE, source=ks.seeded(1))
    out = kanon.sample_then_anonymize(ROWS, SEX, **(OPTIONS | {"cut": chosen}))
    assert chosen.seeded and out.seeded
    assert "seed" in faults(out.save, tmp_path / "never.csv")[0] and not (tmp_path / "never.csv").exists()
    free = kanon.choose_cut(ROWS, SEX, **CHOICE)
    out = kanon.sample_then_anonymize(ROWS, SEX, **(OPTIONS | {"cut": free}))
    assert not free.seeded and not out.seeded
    out.save(tmp_path / "out.csv")


def test_what_a_choice_assumes_stays_with_the_release():
    chosen = kanon.choose_cut(NO_ID, SEX, **CHOICE, rows_are_units=True)
    out = kanon.sample_then_anonymize(ROWS, SEX, **(OPTIONS | {"cut": chosen}))
    assert any("unit of its own" in caveat for caveat in out.guarantee.assumes)
    assert len(set(out.guarantee.assumes)) == len(out.guarantee.assumes)
    assert "cuts" in out.guarantee.public and "cut" not in out.guarantee.public
    fixed = kanon.sample_then_anonymize(ROWS, SEX, **OPTIONS).guarantee
    assert "cut" in fixed.public and "cuts" not in fixed.public
    for public in (out.guarantee.public, fixed.public, chosen.guarantee.public):
        assert "column types" in public


def test_the_randomised_table_and_the_report_name_their_caveats():
    random = kanon.pk_anonymize(ROWS, SEX, k=5)
    assert any("no ledger" in caveat for caveat in random.guarantee.assumes)
    assert "column types" in random.guarantee.public
    for release in (kanon.sample_then_anonymize(ROWS, SEX, **OPTIONS), random.release):
        page = release_page(release.to_json(), [])
        for caveat in release.guarantee.assumes:
            assert caveat in page
        assert "column types" in page
    assert "Assumes" not in release_page(kanon.specialize(ROWS, SEX, k=5).to_json(), [])


def test_a_cut_chosen_for_another_tree_is_refused():
    for other in (
        kanon.categories("sex", {"p": ["f"], "q": ["m"]}),
        kanon.categories("sex", ["m", "f"]),
        kanon.categories("gender", ["f", "m"]),
    ):
        rows = ROWS.rename_columns(["id", other.name])
        chosen = kanon.choose_cut(rows, kanon.Recoding.of(other), **(CHOICE | {"cuts": [{other.name: 1}]}))
        assert "another recoding" in faults(kanon.sample_then_anonymize, ROWS, SEX, **(OPTIONS | {"cut": chosen}))[0]
    again = kanon.Recoding.of(kanon.categories("sex", ["f", "m"]))
    kanon.sample_then_anonymize(ROWS, again, **(OPTIONS | {"cut": kanon.choose_cut(ROWS, SEX, **CHOICE)}))


def test_a_chosen_cut_is_no_candidate_of_a_further_choice():
    chosen = kanon.choose_cut(ROWS, SEX, **CHOICE)
    for cuts in ([chosen], [{"sex": 1}, chosen]):
        assert "itself chosen" in faults(kanon.choose_cut, ROWS, SEX, **(CHOICE | {"cuts": cuts}))[0]
    for cuts in (None, [], 5, {"sex": 1}):
        assert "at least one cut" in faults(kanon.choose_cut, ROWS, SEX, **(CHOICE | {"cuts": cuts}))[-1]


def test_every_fault_of_a_private_release_is_named_at_once():
    other = kanon.Recoding.of(kanon.categories("zz", ["a"]))
    wrong = {"cut": {"q": 1}, "k": 1, "sampling_rate": "2", "epsilon": "-1", "delta": "x", "source": 5}
    unit = ks.Unit(id="nobody", change="replace", max_cells=1)
    found = faults(kanon.sample_then_anonymize, ROWS, other, **wrong, unit=unit)
    for part in ("'q'", "'zz' is missing", "k must", "sampling rate", "epsilon", "delta", "source", "no column 'zz'",
                 "'nobody'", "add-remove"):  # fmt: skip
        assert any(part in fault for fault in found), part
    assert len(faults(kanon.choose_cut, ROWS, SEX, **(BASE | {"k": 1}), cuts=[{"sex": -1}, {}], epsilon="x")) == 4
    for delta in ("1", "7"):
        assert "below 1" in faults(kanon.sample_then_anonymize, ROWS, SEX, **(OPTIONS | {"delta": delta}))[0]
    for cut in ([1], 3, None, "sex=1"):
        assert "maps every attribute" in faults(kanon.sample_then_anonymize, ROWS, SEX, **(OPTIONS | {"cut": cut}))[0]
    # what is wrong with the table alone is no matter of privacy
    with pytest.raises(ks.DomainError):
        kanon.sample_then_anonymize(ROWS, SEX, **(OPTIONS | {"cut": {"sex": -1}}))


def test_losses_that_overlap_hide_are_called_not_computable():
    spec = kanon.Recoding.of(kanon.categories("c", {"A": ["l0", "l1", "l2", "l3"]}))
    rows = pa.table({"c": ["l0"] * 20 + ["l1"] * 2 + ["l2"] * 2 + ["l3"] * 2})
    local = kanon.mondrian(rows, spec, k=5)
    audit = kanon.audit(rows, spec, k=5, sampling_rate="0.5", release=local.table())
    assert audit.realised.not_computable == 2 and audit.realised.infinite == 0
    assert audit.realised.largest_finite is None
    found = audit.to_json()["realised_loss"]["per_class"]
    assert (found["not_computable"], found["largest"]) == (2, "not computable")
    assert "not computable in 2" in audit.text()
    assert "cannot be computed" in audit_page(audit.to_json(), [])
    # boxes that overlap where no row lies hide nothing: there the loss is known, and infinite
    apart = pa.table({"c": ["l0"] * 5 + ["l1"] * 3 + ["l2"] * 3})
    made = pa.table({"c": ["l0"] * 5 + ["l1"] * 3 + ["l2"] * 3})
    assert kanon.audit(apart, spec, k=3, sampling_rate="0.5", release=made).realised.infinite == 3
    two = kanon.Recoding.of(kanon.numbers("n", 0, 4, [1]), kanon.numbers("m", 0, 4, [1]))
    rows = pa.table({"n": [0, 0, 3, 3, 0, 0], "m": [0, 0, 3, 3, 3, 3]})
    made = pa.table(
        {"n": ["0 to 1"] * 2 + ["1 to 3"] * 2 + ["0"] * 2, "m": ["0 to 1"] * 2 + ["1 to 3"] * 2 + ["3"] * 2}
    )
    losses = kanon.audit(rows, two, k=2, sampling_rate="0.5", release=made).realised
    assert (losses.infinite, losses.not_computable) == (3, 0)


def test_t_closeness_holds_in_the_published_table_or_is_refused():
    spec = kanon.Recoding.of(kanon.categories("q", list("abcd")), sensitive=["s"])
    rng = np.random.default_rng(3)
    for _ in range(30):
        rows = pa.table({"q": rng.choice(list("abcd"), 14), "s": rng.choice(["x", "y"], 14)})
        for make in (kanon.specialize, kanon.mondrian):
            out = make(rows, spec, k=2, t_closeness="0.1")
            assert kanon.measure(out.table(), ["q"], ["s"]).sensitive[0].t <= 0.1 + 1e-9
    assert "do not go together" in faults(kanon.specialize, rows, spec, k=2, t_closeness="0.1", suppression="0.6")[0]


def test_a_printed_k_is_never_above_the_true_one():
    out = kanon.pk_anonymize(pa.table({"sex": ["f", "m"] * 5000}), SEX, k=2, retention={"sex": "0.98"})
    for pk in (out.pk, Fraction(35003, 17501), Fraction(10**7 * 2 - 1, 10**7), Fraction(123456789, 10)):
        one = type(out)(out.release, out.retention, pk)
        written = one.to_json()["words"].split("above 1/")[1].split(";")[0]
        assert Fraction(written) <= pk and Fraction(repr(one).split("=")[1].rstrip(")")) <= pk
        assert Fraction(repr(one.to_json()["pk"])) <= pk
    assert "1/1.999999;" in type(out)(out.release, out.retention, Fraction(19_999_999, 10**7)).to_json()["words"]


def test_extreme_epsilons_and_rates_are_answered_or_refused():
    for epsilon in ("200", "500"):  # nothing but the rate^k that no epsilon pays for is left
        delta = kanon.exact_delta(epsilon, kanon.Sampling(Fraction(1, 10), 5))
        assert Fraction(1, 10**5) <= delta <= Fraction(100_001, 10**10)
    assert "at most 500" in faults(kanon.exact_delta, "501", kanon.Sampling(Fraction(1, 10), 5))[0]
    for rate in (Fraction(1, 10**400), Fraction(1, 10**13), 1 - Fraction(1, 10**20)):
        assert "away from" in faults(kanon.Sampling, rate, 2)[0]
    for rate in (Fraction(1, 10**12), 1 - Fraction(1, 10**12)):
        assert kanon.exact_delta("1", kanon.Sampling(rate, 2)) >= min(rate**2, Fraction(1))


def test_the_remedy_in_the_message_gives_up_soon():
    hard = OPTIONS | {"k": 2, "sampling_rate": "0.5", "epsilon": "0.05", "delta": "0.000000001"}
    found = faults(kanon.sample_then_anonymize, ROWS, SEX, **hard)  # the whole search would take many seconds
    assert "more than 0.000000001; raise k or epsilon" in found[0]
    with pytest.raises(ks.KasuriError, match="too small"):
        kanon.least_k("0.05", "0.000000001", Fraction(1, 2), most_rows=100)
    assert kanon.least_k("1", "0.01", Fraction(1, 5), most_rows=4000) == kanon.least_k("1", "0.01", Fraction(1, 5))


def test_odd_arguments_are_refused_in_words(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["f"] * 5)] * 2, names=["sex", "sex"])
    assert "same name" in faults(kanon.specialize, twice, SEX, k=2)[0]
    pandas_twice = pd.DataFrame([["f", "f"]] * 5, columns=["sex", "sex"])
    assert "same name" in faults(kanon.specialize, pandas_twice, SEX, k=2)[0]
    deep = tmp_path / "deep.csv"
    deep.write_text(";".join(f"v{i}" for i in range(3000)) + "\n")
    assert "levels" in faults(kanon.categories_csv, "d", deep)[0]
    tree = {"attributes": {"x": {"kind": "categories", "tree": ["a"]}}}
    for sensitive in ([["a"]], [5], {"a": ["nominal"]}, {"a": 3}):
        assert "sensitive" in faults(kanon.Recoding.from_dict, {**tree, "sensitive": sensitive})[0]
    for entry in (
        {"low": 0, "high": 10, "widths": [1], "open_low": "no"},
        {"low": 0, "high": 2**70, "widths": [2**65]},
        {"low": -(2**63), "high": 10, "widths": [2**60]},
        {"low": 0, "high": 10, "widths": 5},
    ):
        assert faults(kanon.Recoding.from_dict, {"attributes": {"x": {"kind": "numbers", **entry}}})


@pytest.fixture
def files(tmp_path):
    (tmp_path / "t.toml").write_text('[attributes.sex]\nkind="categories"\ntree=["f","m"]\nmissing="unknown"\n')
    lines = "".join(f"{i},{'' if i % 3 == 0 else 'f'}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("id,sex\n" + lines)
    return tmp_path


def run(folder, *words):
    first = ["anonymize", str(folder / "t.csv"), str(folder / "t.toml"), "--k", "5"]
    return CliRunner().invoke(app, [*first, *words], catch_exceptions=False)


SAMPLE = ["--method", "sample", "--sampling-rate", "0.2", "--epsilon", "1", "--delta", "0.01", "--unit", "id"]


def test_blank_cells_of_a_csv_file_are_missing(files):
    out = str(files / "o.csv")
    result = run(files, "--out", out, "--json")
    assert json.loads(result.output)["written"] == {"sex": ["f", "unknown"]}


def test_the_command_checks_where_it_writes_before_it_draws(files, monkeypatch):
    drawn = []
    monkeypatch.setattr(kanon, "sample_then_anonymize", lambda *args, **more: drawn.append(1))
    good = str(files / "o.csv")
    for words in (
        ["--out", str(files / "nowhere" / "o.csv")],
        ["--out", str(files / "o.txt")],
        ["--out", str(files)],
        ["--out", good, "--report", str(files / "nowhere" / "r.html")],
        ["--out", good, "--report", str(files)],
    ):
        with pytest.raises(ks.DomainError):
            run(files, *words, *SAMPLE, "--cut", "sex=1")
    assert not drawn
    assert "folder" in faults(kanon.specialize(ROWS, SEX, k=5).save, files / "nowhere" / "o.csv")[0]


def test_the_command_states_rows_as_units_and_reads_depths(files):
    out = ["--out", str(files / "o.csv")]
    for depth in ("sex=²", "sex=x", "sex=", "sex=-1", "sex"):
        result = run(files, *out, *SAMPLE, "--cut", depth)
        assert result.exit_code == 2 and "attribute=depth" in result.output
    with pytest.raises(ks.KasuriError, match="no id column 'person'"):
        run(files, *out, *SAMPLE, "--unit", "person", "--cut", "sex=1")
    result = run(files, *out, *SAMPLE, "--unit", "person", "--cut", "sex=1", "--rows-are-units")
    assert result.exit_code == 0 and "unit of its own" in result.output
    assert run(files, *out, "--rows-are-units").exit_code == 2
