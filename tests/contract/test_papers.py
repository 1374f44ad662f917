"""docs/papers.md: generated from the reproductions, whole, and every place it names is there."""

import importlib
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import kasuri as ks
from kasuri import local, reproduce
from kasuri.reproduce import horigome2020, horigome2020_kanon, kii2022, matsumoto2025, paper, terada2015

ROOT = Path(__file__).resolve().parents[2]
RESULTS = json.loads((ROOT / "docs" / "papers.json").read_text(encoding="utf-8"))
CHAPTERS = reproduce.chapters(RESULTS)
LINES = [pytest.param(line, id=f"{chapter.anchor} {line.place}") for chapter in CHAPTERS for line in chapter.lines]


def test_the_page_is_what_its_generator_makes():
    assert (ROOT / "docs" / "papers.md").read_text(encoding="utf-8") == paper.markdown(CHAPTERS)


def test_the_page_is_of_full_runs():
    """Of the papers' sizes; a quick run says that it is one."""
    told = [chapter.runs.en for chapter in CHAPTERS]
    assert all(words.startswith("From a full run") for words in told)
    assert all(words in (ROOT / "docs" / "papers.md").read_text(encoding="utf-8") for words in told)
    quick = paper.runs_told(terada2015.QUICK, terada2015.FULL)
    assert quick.en == "From a quick run: 10 runs a setting; --full takes 100." and "簡易" in quick.ja


@pytest.mark.parametrize("line", LINES)
def test_no_line_is_empty_and_every_place_is_there(line):
    both = [line.what, *(v for v in (line.printed, line.measured, line.note) if isinstance(v, paper.Text))]
    assert all(text.en.strip() and text.ja.strip() for text in both)
    assert all(v.strip() for v in (line.place, line.printed, line.measured) if isinstance(v, str))
    assert "not run" not in str(line.measured)
    assert _exists(line.where), line.where
    words = line.command.split()
    if words[0] == "pytest":
        assert (ROOT / words[1]).exists(), line.command
    else:
        assert words[0] == "kasuri"
        told = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
        named = [w for before, w in itertools.pairwise(words) if not (w + before).count("--")]
        assert f"## kasuri {' '.join(named)}\n" in told, line.command
        assert all(re.search(rf"{option}\b", told) for option in words if option.startswith("--"))


def _exists(where):
    if "/" in where:
        return (ROOT / where).exists()
    parts = where.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return True
    return False


@pytest.mark.parametrize(
    ("prefix", "numbers"),
    [("Table", {"terada2015": 2, "matsumoto2025": 4}), ("Figure", {"terada2015": 7, "matsumoto2025": 6, "kii2022": 7})],
)
def test_every_table_and_figure_has_a_line(prefix, numbers):
    for chapter in CHAPTERS:
        places = [line.place for line in chapter.lines]
        for number in range(1, numbers.get(chapter.anchor, 0) + 1):
            assert any(number in _named(place, prefix) for place in places), (chapter.anchor, prefix, number)
    thesis = [line.place for line in CHAPTERS[4].lines]
    assert {n for place in thesis for n in _named(place.replace("A.", ""), "Figure")} >= set(range(1, 21))
    claims = [line.place for line in CHAPTERS[1].lines]
    assert {n for place in claims for n in _named(place, "Claim")} == set(range(1, 11))
    assert {n for place in claims for n in _named(place, "Figure")} == set(range(1, 9))


def _named(place, prefix):
    out = set()
    for part in re.findall(rf"{prefix}s? ([\d,\- ]+)", place):
        for piece in re.findall(r"\d+(?:-\d+)?", part):
            first, _, last = piece.partition("-")
            out |= set(range(int(first), int(last or first) + 1))
    return out


def test_what_needs_no_noise_is_what_is_recorded():
    told = RESULTS["kii2022"]
    assert told["figure4"] == kii2022.ratios()
    assert told["printed"]["0.1"]["measured"] == kii2022.inverse(0.1)
    assert told["as_printed"]["crossing"] == pytest.approx(3.7, abs=0.05)
    assert RESULTS["horigome2020_kanon"]["cuts"] == horigome2020_kanon.cuts()
    assert RESULTS["horigome2020_kanon"]["records"] == horigome2020_kanon.records()
    assert RESULTS["matsumoto2025"]["true_nonzero"] == float((matsumoto2025.city(64) > 0).mean() * 100)


def test_seeded_results_come_again():
    told = RESULTS["terada2015"]["coefficients"]
    counts, truth = terada2015.kanto()
    assert terada2015.refined_coefficients(counts, ks.seeded) == told and told["inverse_equal"]
    one = terada2015.standard_decomposition(truth, 1)["table"]["lattice"]
    assert one["least_cell"] == 0 and one["mae"][0] == pytest.approx(58, rel=0.03)
    assert horigome2020.course("2", 200, seed=2020) == RESULTS["horigome2020"]["course"]["2"]


def test_table_a3_and_a4():
    for at, time in enumerate(horigome2020.PEOPLE):
        people = horigome2020.spread(time)
        assert people.sum() == horigome2020.PEOPLE[time] and people.min() >= 0
        row = [values[at] for values in horigome2020.WARDS.values()]
        printed = {name: values[at] for name, values in horigome2020.PRINTED_A4.items()}
        assert max(row) == printed["largest"] and np.mean(row) == pytest.approx(printed["mean"], abs=0.05)
        # 98 of Table A.4 is Bunkyo's and Shinagawa's; every least of it is a ward of Table A.3
        assert min(row) == printed["least"]


def test_the_weights_of_the_thesis_example():
    """z = (1, 0, 1, 0): p^3 q for the wards with a one, p q^3 for the others."""
    randomizer = local.unary(ks.Nominal("ward", labels=tuple("abcd")), epsilon="1", elsewhere=False)
    rows = np.packbits(np.array([[1, 0, 1, 0]], dtype=np.uint8), axis=1, bitorder="little")
    reports = local.Reports(rows, randomizer.fingerprint)
    theta, _ = horigome2020.stopped_em(reports, randomizer, stop=10.0)
    assert theta[0] / theta[1] == pytest.approx(np.exp(1)) and theta[0] == theta[2] and theta[1] == theta[3]


def test_the_stopped_em_gives_the_printed_table():
    """EM at epsilon 0.5 within 3 % of the printed 2971 in the recorded ten runs."""
    measured = RESULTS["horigome2020"]["measured"]["em, stopped"]
    assert measured[0] == pytest.approx(2971.31, rel=0.03)
    assert measured == pytest.approx(horigome2020.PRINTED["em"], rel=0.07)


def test_restorations_on_a_small_map():
    """Table 4 and Figure 6 on the map of Figure 1 in place of the national mesh."""
    found = matsumoto2025.restored(matsumoto2025.city(64).ravel(), 2, ks.seeded)
    assert set(found["classes"]["Proposed"]) == {"All", "0", "1-9", "10-99", "100+"}
    assert abs(found["classes"]["Proposed"]["All"]["me"]) < 1e-9  # the total is kept
    assert found["nonzero"]["Proposed"] < found["nonzero"]["Simplex"]
    assert all(value > 0 for value in found["seconds"].values())


def test_one_html_page_in_two_languages_without_network(tmp_path):
    few = [CHAPTERS[1], CHAPTERS[3]]
    drawn = paper.draw(few, tmp_path)
    page = paper.page(few, tmp_path)
    assert len(drawn) == 2 and page.count("data:image/png;base64,") == 2
    assert "default-src 'none'" in page and not re.search(r'(?:src|href)="https?:', page)
    assert page.count('lang="ja"') > 100 and "Claim 10" in page


def test_names_of_results_are_public():
    text = json.dumps(RESULTS)
    assert "/work" not in text and "/home" not in text
