"""The report of a join: a function of the joined rows, and nobody's truth in it."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from contract.test_shuffle import plan_of, rows, tables
from typer.testing import CliRunner

import kasuri as ks
from kasuri.errors import DomainError, PrivacyError
from kasuri.report import frame
from kasuri.report import shuffle as page
from kasuri.words.japanese import ja


@pytest.fixture(scope="module")
def joined():
    return ks.shuffle.join(plan_of(), *tables(plan_of()))


def words_of(html, language):
    """The page as a reader of one language sees it."""
    other = "ja" if language == "en" else "en"
    main = html.partition("<main>")[2].partition("</main>")[0]
    body = re.sub(rf'<(span|text|div)(?: [^>]*)? lang="{other}">.*?</\1>', "", main)
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body))


def test_equal_rows_give_equal_bytes_whoever_they_were_made_of(joined):
    """Two joins of different people whose published rows are the same."""
    other = ks.shuffle.join(plan_of(), *tables(plan_of(), *rows(seed=77)))
    same = replace(other, columns=joined.columns)
    assert ks.shuffle.report(joined) == ks.shuffle.report(same)
    assert ks.shuffle.report(joined) != ks.shuffle.report(other)


def test_a_copy_elsewhere_gives_the_same_page(joined, tmp_path):
    from kasuri.cli import app

    joined.save(tmp_path / "one.parquet", unmetered=True)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "two.parquet").write_bytes((tmp_path / "one.parquet").read_bytes())
    for source, out in (("one.parquet", "1.html"), ("far/two.parquet", "2.html")):
        run = CliRunner().invoke(app, ["shuffle", "stats", str(tmp_path / source), "--report", str(tmp_path / out)])
        assert run.exit_code == 0, run.output
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()
    assert str(tmp_path) not in (tmp_path / "1.html").read_text(encoding="utf-8")
    again = CliRunner().invoke(
        app, ["shuffle", "stats", str(tmp_path / "one.parquet"), "--report", str(tmp_path / "1.html")]
    )
    assert again.exit_code == 1, "nothing is written over"


def test_what_is_promised_stands_in_both_languages(joined):
    html = ks.shuffle.report(joined)
    claims = joined.claims
    for language in ("en", "ja"):
        words = words_of(html, language)
        assert f"ε {ks.privacy.decimal(claims.public.epsilon)}, δ 10⁻⁸" in words, "the public"
        assert f"ε {ks.privacy.decimal(claims.joiner.epsilon)}" in words, "whoever joins"
        assert joined.plan.hash in words
    english, japanese = words_of(html, "en"), words_of(html, "ja")
    for item in claims.public.assumes:
        assert item in english and item not in japanese, "every assumption is told, and translated"
        assert ja(item) in japanese
    assert "membership" in english and "誰が結合表に含まれるか" in japanese
    assert not re.search("[ぁ-ん]", english), "no Japanese is left in the English page"


def test_a_trusted_joiner_is_named():
    plan = plan_of(trusted_joiner="Bureau <of> Statistics")
    html = ks.shuffle.report(ks.shuffle.join(plan, *tables(plan)))
    assert "Bureau &lt;of&gt; Statistics" in html and "<of>" not in html
    assert "Bureau &lt;of&gt; Statistics が結合を行い" in html


def test_shuffling_that_gains_nothing_is_said():
    plan = plan_of(epsilon_each="9 weak")
    html = ks.shuffle.report(ks.shuffle.join(plan, *tables(plan)))
    assert "Shuffling gained nothing here" in html
    assert "Shuffling gained nothing here" not in ks.shuffle.report(ks.shuffle.join(plan_of(), *tables(plan_of())))


def test_estimates_and_intervals_are_those_of_the_library(joined):
    found = ks.shuffle.covariance(joined)
    words = words_of(ks.shuffle.report(joined), "en")
    low, high = found.interval()
    i, j = found.names.index("age"), found.names.index("spend")
    error = found.covariance_error[i, j]
    for value in (found.covariance[i, j], low[i, j], high[i, j]):
        assert page.near(value, error) in words
    table = ks.shuffle.contingency
    plan = plan_of(categories={"sex": ("F", "M"), "age": ("young", "old")}, bounds={"spend": (0, 1000)})
    a, b = rows()
    b["sex"] = np.where(b["sex"] == "F", "F", "M")
    both = ks.shuffle.join(plan, *tables(plan, a | {"age": np.where(a["age"] < 50, "young", "old")}, b))
    counted = table(both, "age", "sex")
    cell = page.near(counted.counts[0, 0], max(counted.standard_error[0, 0], 10))
    assert f"{cell} ±" in words_of(ks.shuffle.report(both), "en")


def test_synthetic_rows_and_models_are_shown(joined):
    made = ks.shuffle.synthesize(joined, rows=500)
    model = ks.shuffle.regression(joined, "spend", ("age",), ridge=0.1)
    html = ks.shuffle.report(joined, synthetic=made, models=[model])
    english = words_of(html, "en")
    assert "500 synthetic people (copula)" in english and "linear regression" in english
    assert "線形回帰" in words_of(html, "ja")
    near = ks.shuffle.quality(made, joined)
    assert near.means[0] == pytest.approx(made.columns["age"].mean())
    assert sum(near.means[2:]) == pytest.approx(1)
    json.dumps(ks.shuffle.summary(joined, synthetic=made, models=[model]), allow_nan=False)


def test_seeded_or_foreign_rows_have_no_report(joined):
    seeded = ks.shuffle.join(plan_of(), *tables(plan_of(), source=ks.seeded(3)), source=ks.seeded(4))
    with pytest.raises(PrivacyError, match="seed"):
        ks.shuffle.report(seeded)
    less = ks.shuffle.join(plan_of(), *tables(plan_of(), *rows(n=1200)))
    with pytest.raises(DomainError, match="other joined rows"):
        ks.shuffle.report(joined, synthetic=ks.shuffle.synthesize(less, rows=10))


def test_what_cannot_be_told_is_said(joined):
    plan = plan_of(mechanisms={"age": "two_point"})
    html = ks.shuffle.report(ks.shuffle.join(plan, *tables(plan)))
    assert "its variance cannot be identified" in html and "この方法の報告からは分散を推定できません" in html
    assert "nan" not in words_of(html, "en").lower()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (38.2917, 0.1748, "38.29"), (-0.004, 0.3, "0.00"), (-12345.6, 210.0, "−12,346"), (None, None, "–"),
        (0.5, 0.0, "0.5000"), (math.pi, 1e-12, "3.141592654"),
    ],
)  # fmt: skip
def test_numbers_have_the_decimals_of_their_error(value, error, text):
    assert page.near(value, error) == text


@pytest.mark.parametrize(("epsilon", "text"), [("0.1", "e^0.1 (about 1.11)"), ("12", "e^12 (about 163,000)")])
def test_a_factor_is_rounded_up(epsilon, text):
    assert page._factor(epsilon) == text


@pytest.mark.parametrize(
    ("text", "shown"), [("0.00000001", "10⁻⁸"), ("0.0000005", "5 × 10⁻⁷"), ("0", "0"), ("0.00015", "0.00015")]
)
def test_a_small_delta_is_a_power_of_ten(text, shown):
    assert frame.small(text) == shown
