"""Bounded sums and the residual cell: what one unit can change, by brute force; what is refused."""

import itertools
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.bounding import bounded

import kasuri as ks
from kasuri.errors import DomainError, PrivacyError
from kasuri.schema import Tree

KEY = bytes(range(32))
LINE = ks.Domain.of(ks.Ordered("x", 5))


def dense(counts):
    out = np.zeros(counts.domain.size, dtype=np.int64)
    out[counts.cells] = counts.values
    return out


def summed(rows, max_cells, max_sum, engine="auto", text=False, change="add-remove"):
    ids = [f"p{row[0]}" if text else row[0] for row in rows]
    frame = pa.table(
        {
            "p": pa.array(ids, pa.string() if text else pa.int64()),
            "x": pa.array([row[1] for row in rows], pa.int64()),
            "spend": pa.array([row[2] for row in rows], pa.int64()),
        }
    )
    unit = ks.Unit("p", change, max_cells, max_sum=max_sum)
    counts = ks.count(frame, LINE, columns={"x": "x"}, unit=unit, sum="spend", key=KEY, engine=engine)
    return dense(counts)


def twin(rows, max_cells, max_sum, text=False):
    """Word for word: amounts above 0 of one unit in one cell added, clipped; then the cells of least rank."""
    amounts = defaultdict(Counter)
    for unit, cell, amount in rows:
        if 0 <= cell < 5 and amount > 0:
            amounts[f"p{unit}" if text else unit][cell] += amount
    clipped = [(unit, cell, min(total, max_sum)) for unit, own in amounts.items() for cell, total in own.items()]
    found = bounded(clipped, max_cells, KEY, max_weight=max_sum)
    return np.array([found.get(x, 0) for x in range(5)])


ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 6), st.integers(-3, 12)), max_size=25)


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_both_engines_are_the_twin(rows, max_cells, max_sum, text):
    expected = twin(rows, max_cells, max_sum, text).tolist()
    for engine in ("radix", "duckdb"):
        assert summed(rows, max_cells, max_sum, engine, text).tolist() == expected


def test_pieces_of_a_part_add_up(monkeypatch):
    """A unit whose records are read in many pieces: sums are clipped once and for all."""
    from kasuri.ingest import parts

    monkeypatch.setattr(parts, "PART_ROWS", 4)
    monkeypatch.setattr(parts, "_CHUNK", 3)
    rows = [(1, i % 3, 2) for i in range(60)] + [(2, 4, 1)] * 7
    for text, engine in itertools.product((False, True), ("radix", "duckdb")):
        assert summed(rows, 5, 30, engine, text).tolist() == [30, 30, 30, 0, 7]
        assert summed(rows, 5, 1000, engine, text).tolist() == [40, 40, 40, 0, 7]


def test_one_unit_changes_at_most_max_cells_times_max_sum():
    """All sets of up to three records of one unit over 3 cells and awkward amounts, entering and replaced."""
    others = [(7, 0, 5), (7, 2, 9), (8, 1, 4)]
    records = [(1, cell, amount) for cell in (0, 1, 2) for amount in (1, 3, 1 << 40)]
    files = [list(own) for size in range(3) for own in itertools.combinations(records, size)]
    for max_cells, max_sum in ((1, 4), (2, 4)):
        tables = [summed(others + own, max_cells, max_sum) for own in files]
        empty = summed(others, max_cells, max_sum)
        enters = max(int(np.abs(table - empty).sum()) for table in tables)
        replaced = max(int(np.abs(a - b).sum()) for a in tables for b in tables)
        unit = ks.Unit("p", "add-remove", max_cells, max_sum=max_sum)
        assert enters == unit.most == max_cells * max_sum, "reached, and never exceeded"
        assert enters < replaced <= 2 * unit.most


def test_the_release_of_a_sum_pays_for_it(tmp_path):
    rows = [(i, i % 5, 3 * i) for i in range(1, 40)]
    frame = pa.table({"p": [r[0] for r in rows], "x": [r[1] for r in rows], "spend": [r[2] for r in rows]})
    unit = ks.Unit("p", "add-remove", 2, max_sum=50)
    sums = ks.count(frame, LINE, columns={"x": "x"}, unit=unit, sum="spend")
    out = ks.release(sums, ks.geometric(), epsilon="1", ledger=None)
    assert out.recipe["scale"] == "100" and "sum of at most 50" in out.guarantee.words()
    double = ks.release(
        ks.count(frame, LINE, columns={"x": "x"}, unit=ks.Unit("p", "replace", 2, max_sum=50), sum="spend"),
        ks.geometric(), epsilon="1", ledger=None,
    )  # fmt: skip
    assert double.recipe["scale"] == "200"
    out.save(str(tmp_path / "sums"), unmetered=True)
    again = ks.Release.load(str(tmp_path / "sums"))
    assert again.guarantee == out.guarantee and again.guarantee.unit.max_sum == 50
    assert "sum at most 50" in (tmp_path / "sums" / "certificate.md").read_text()
    assert "合計 50 以下" in (tmp_path / "sums" / "certificate.ja.md").read_text()
    from kasuri.manifest import verify

    assert verify(tmp_path / "sums").ok
    # mean = sum / count, two releases, each charged
    people = ks.count(frame, LINE, columns={"x": "x"}, unit=ks.Unit("p", "add-remove", 2))
    counted = ks.release(people, ks.geometric(), epsilon="20", ledger=None)
    mean = ks.release(sums, ks.geometric(), epsilon="20", ledger=None).ratio(ks.Area(), ks.Area(), other=counted)
    assert mean.lower <= dense(sums).sum() / 39 <= mean.upper


def test_an_average_holds_and_needs_a_sum_over_its_count():
    """400 pairs of releases at the seeds 0, 1, ...: at least 95 % of the intervals hold the mean amount."""
    table, unit = np.array([30, 4, 0, 11, 60]), ks.Unit("p", "add-remove", 1)
    domain, spent = ks.Domain.of(ks.Ordered("x", 5)), table * np.array([7, 3, 1, 9, 5])
    people = ks.Counts.from_dense(table, domain, unit)
    amounts = ks.Counts.from_dense(spent, domain, ks.Unit("p", "add-remove", 1, max_sum=10))
    held = []
    for seed in range(400):
        counts, sums = (
            ks.release(one, ks.geometric(), epsilon="2", ledger=None, source=ks.seeded(2 * seed + at))
            for at, one in enumerate((people, amounts))
        )
        for where in ({}, {"x": slice(0, 2)}, {"x": 4}):
            low, high = (0, 5) if not where else (0, 2) if where["x"] != 4 else (4, 5)
            found = sums.average(counts, **where)
            held.append(found.lower <= spent[low:high].sum() / table[low:high].sum() <= found.upper)
            assert found.value is None or found.lower <= found.value <= found.upper
    assert np.mean(held) >= 0.95
    with pytest.raises(DomainError) as error:
        counts.average(sums)
    assert len(error.value.faults) == 2, "a count over a sum: both are wrong, and both are said"
    with pytest.raises(DomainError, match="different units"):
        sums.average(replace(counts, guarantee=replace(counts.guarantee, unit=replace(unit, id="q"))))


def test_sums_without_a_bound_are_refused():
    frame = pa.table({"p": [1], "x": [1], "spend": [3], "part": [1.5]})
    plain, bounded_ = ks.Unit("p", "add-remove", 1), ks.Unit("p", "add-remove", 1, max_sum=9)
    for more, words in (
        ({"unit": plain, "sum": "spend"}, "max_sum"),
        ({"unit": bounded_}, "max_sum"),
        ({"unit": bounded_, "weight": "spend"}, "max_sum"),
        ({"unit": bounded_, "sum": "spend", "weight": "spend"}, "no weight"),
        ({"unit": bounded_, "sum": True}, "max_sum"),
    ):
        with pytest.raises(PrivacyError, match=words):
            ks.count(frame, LINE, columns={"x": "x"}, **more)
    with pytest.raises(DomainError, match="whole numbers"):
        ks.count(frame, LINE, columns={"x": "x"}, unit=bounded_, sum="part")
    with pytest.raises(DomainError, match="no column 'money'"):
        ks.count(frame, LINE, columns={"x": "x"}, unit=bounded_, sum="money")
    for bad in (0, -1, 1.5, True, 1 << 41):
        with pytest.raises(PrivacyError):
            ks.Unit("p", "add-remove", 1, max_sum=bad)
    with pytest.raises(PrivacyError, match="one of them"):
        ks.Unit("p", "add-remove", 1, 2, max_sum=3)


# -- the residual cell -------------------------------------------------------------------------------------------------

WARDS = ks.Nominal("ward", labels=("a", "b"), elsewhere=True)
TOWNS = ks.Domain.of(WARDS)


def places(rows, domain=TOWNS, max_cells=1, engine="auto"):
    frame = pa.table(
        {"p": pa.array([r[0] for r in rows], pa.int64()), "w": pa.array([r[1] for r in rows], pa.string())}
    )
    unit = ks.Unit("p", "add-remove", max_cells)
    return dense(ks.count(frame, domain, columns={"ward": "w"}, unit=unit, key=KEY, engine=engine)).tolist()


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
def test_ten_places_outside_count_once(engine):
    far = [(1, f"far {i}") for i in range(10)]
    assert places(far, max_cells=5, engine=engine) == [0, 0, 1]
    assert places([*far, (1, "a"), (2, "a"), (3, "z")], max_cells=5, engine=engine) == [2, 0, 2]
    assert places([(1, None), (2, ""), (None, "z"), (3, "elsewhere")], engine=engine) == [0, 0, 1], "missing is dropped"


def test_the_residual_takes_part_in_bounding():
    """One unit over all sets of its records: at most max_cells cells change by 1 each."""
    others = [(7, "a"), (8, "z"), (8, "y")]
    for max_cells in (1, 2):
        empty = np.array(places(others, max_cells=max_cells))
        most = 0
        for size in range(1, 5):
            for own in itertools.combinations(["a", "b", "x", "y", "z"], size):
                table = np.array(places([*others, *((1, w) for w in own)], max_cells=max_cells))
                most = max(most, int(np.abs(table - empty).sum()))
        assert most == max_cells


def test_a_residual_is_a_child_of_the_root_and_is_read_back(tmp_path):
    tree = Tree.of({"east": ["a", "b"], "west": ["c", "d"]})
    axis = ks.Nominal("ward", labels=tree.leaves, tree=tree, elsewhere=True)
    assert axis.labels == ("a", "b", "c", "d", "elsewhere") and axis.tree_paths()[-1] == (2,)
    domain = ks.Domain.of(axis)
    assert ks.Domain.from_json(domain.to_json()) == domain
    assert "elsewhere" not in str(ks.Nominal("ward", labels=("a",)).to_json()), "domains without one are as they were"
    counts = ks.Counts.from_dense(np.array([5, 6, 7, 8, 100]), domain, ks.Unit("p", "add-remove", 1))
    out = ks.release(counts, ks.refined_tree(order="hierarchy"), epsilon="5", ledger=None)
    out.save(str(tmp_path / "r"), unmetered=True)
    again = ks.Release.load(str(tmp_path / "r"))
    assert again.domain == domain and again.area(ward="elsewhere") == out.area(ward="elsewhere")
    assert again.share(ks.Area(ward="elsewhere")).upper > 0.5


def test_numbers_and_pre_aggregated_rows():
    codes = ks.Domain.of(ks.Nominal("code", labels=("1", "2"), elsewhere=True))
    frame = pa.table({"p": [1, 2, 3, 4], "c": pa.array([1.0, 7.0, None, 2.5])})
    found = dense(ks.count(frame, codes, columns={"code": "c"}, unit=ks.Unit("p", "add-remove", 1)))
    assert found.tolist() == [1, 0, 1], "7 is elsewhere; what is missing or not a whole number stays dropped"
    table = pa.table({"w": ["a", "x", "y"], "n": [3, 4, 5]})
    unit = ks.Unit("p", "add-remove", 1)
    with pytest.raises(DomainError, match="more than once"):
        ks.count(table, TOWNS, columns={"ward": "w"}, unit=unit, weight="n")
    whole = ks.count(table.slice(0, 2), TOWNS, columns={"ward": "w"}, unit=unit, weight="n")
    assert dense(whole).tolist() == [3, 0, 4]


def test_an_impossible_residual_stays_impossible():
    masked = ks.Domain.of(WARDS, mask=np.array([False, False, True]))
    assert places([(1, "z"), (2, "a")], masked) == [1, 0, 0]


def test_a_job_says_elsewhere_and_sum(tmp_path):
    import subprocess
    import sys

    (tmp_path / "d.csv").write_text(
        "p,w,spend\n" + "".join(f"{i},{'ab'[i % 2] if i % 3 else 'far'},{i}\n" for i in range(60))
    )
    (tmp_path / "job.toml").write_text(
        '[data]\nfiles = ["d.csv"]\nname = "d"\ncolumns = { ward = "w" }\nsum = "spend"\n'
        '[unit]\nid = "p"\nchange = "add-remove"\nmax_cells = 1\nmax_sum = 30\n'
        '[budget]\nepsilon = "1"\nunmetered = true\n[output]\nfolder = "r"\n'
        '[recipe]\nname = "geometric"\n'
        '[[axes]]\nname = "ward"\nkind = "nominal"\nlabels = ["a", "b"]\nelsewhere = true\n'
    )
    run = subprocess.run(
        [sys.executable, "-m", "kasuri", "release", "job.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    out = ks.Release.load(str(tmp_path / "r"))
    assert out.domain.axes[0].labels == ("a", "b", "elsewhere") and out.guarantee.unit.max_sum == 30
