"""The bound on contributions: true whatever the file holds, the same in every engine, silent about what it dropped."""

import hashlib
from contextlib import contextmanager

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.bounding import bounded

import kasuri as ks
from kasuri._kernels import records as kernel
from kasuri.ingest import Query, Table, parts, sources, utf8
from kasuri.schema import ROWS_ALONE, Domain, Mesh, Unit

KEY = bytes(range(32))
DOMAIN = Domain.of(Mesh("grid", shape=(7, 9)))
PLACE = {"grid": ("row", "col")}


def count(rows, max_cells, engine="auto", max_weight=None, key=KEY):
    frame = pa.table(
        {
            "person": pa.array([r[0] for r in rows], None if rows else pa.int64()),
            "row": pa.array([-1 if r[1] is None else r[1] // 9 for r in rows], pa.int64()),
            "col": pa.array([0 if r[1] is None else r[1] % 9 for r in rows], pa.int64()),
            "w": pa.array([r[2] for r in rows], pa.int64()),
        }
    )
    unit = Unit("person", "add-remove", max_cells, max_weight)
    weight = None if max_weight is None else "w"
    made = ks.count(frame, DOMAIN, columns=PLACE, unit=unit, weight=weight, key=key, engine=engine)
    assert made.assumes == ()
    return dict(zip(made.cells.tolist(), made.values.tolist(), strict=True))


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
texts = st.text(max_size=5) | st.sampled_from(["1", "01", " 1", "1 ", "é", "é", "A", "a", "A", "", "\0", "a|1"])


LONG = ["x" * 1024, "x" * 1025, "é" * 512, "é" * 513, "é" * 512 + "x"]
texts |= st.sampled_from(LONG)


def records(ids):
    return st.lists(st.tuples(ids, st.none() | st.integers(0, 62), st.integers(-2, 9)), max_size=40)


@settings(max_examples=40)
@given(rows=records(numbers), max_cells=st.sampled_from([1, 2, 5, 10**6]), max_weight=st.sampled_from([None, 1, 4]))
def test_both_engines_are_the_twin(rows, max_cells, max_weight):
    wanted = bounded(rows, max_cells, KEY, max_weight)
    assert count(rows, max_cells, "radix", max_weight) == wanted
    assert count(rows, max_cells, "duckdb", max_weight) == wanted


@settings(max_examples=40)
@given(rows=records(texts), max_cells=st.sampled_from([1, 3]), max_weight=st.sampled_from([None, 4]))
def test_text_ids_are_exact_bytes(rows, max_cells, max_weight):
    wanted = bounded(rows, max_cells, KEY, max_weight)
    assert count(rows, max_cells, "radix", max_weight) == wanted
    assert count(rows, max_cells, "duckdb", max_weight) == wanted


@settings(max_examples=40)
@given(
    data=st.data(),
    ids=st.sampled_from(["number", "text"]),
    max_cells=st.integers(1, 4),
    max_weight=st.sampled_from([None, 3]),
)
def test_one_unit_changes_at_most_the_declared_sensitivity(data, ids, max_cells, max_weight):
    """Add-remove: any rows of one new unit, mixed in anywhere. Replace: any other rows for that unit."""
    kind = numbers if ids == "number" else texts
    rest = data.draw(records(kind.filter(lambda unit: unit not in (77, "77"))))
    me = 77 if ids == "number" else "77"
    mine = [[(me, cell, w) for _, cell, w in data.draw(records(kind))] for _ in range(2)]
    shuffled = [data.draw(st.permutations(rest + own)) for own in mine]
    tables = [count(rows, max_cells, max_weight=max_weight) for rows in (rest, *shuffled)]
    most = Unit("person", "add-remove", max_cells, max_weight).most

    def distance(a, b):
        return sum(abs(a.get(cell, 0) - b.get(cell, 0)) for cell in {*a, *b})

    assert distance(tables[0], tables[1]) <= most
    assert distance(tables[0], tables[2]) <= most
    assert distance(tables[1], tables[2]) <= 2 * most
    assert sum(tables[0].get(c, 0) != tables[1].get(c, 0) for c in range(63)) <= max_cells


@pytest.mark.parametrize("text", [False, True])
def test_one_person_everywhere_and_a_million_times(text):
    domain = Domain.of(Mesh("grid", shape=(200, 100)))
    rng = np.random.default_rng(3)
    everywhere = rng.permutation(20_000)[:10_000]
    cells = np.concatenate((everywhere, np.full(1_000_000, 5), rng.integers(0, 20_000, 50)))
    ids = np.concatenate((np.zeros(10_000, np.int64), np.ones(1_000_000, np.int64), np.full(50, 2)))
    mixed = rng.permutation(ids.size)
    cells, ids = cells[mixed], ids[mixed]
    person = pa.array(ids).cast(pa.string()) if text else pa.array(ids)
    frame = pa.table({"person": person, "row": cells // 100, "col": cells % 100})
    made = ks.count(frame, domain, columns=PLACE, unit=Unit("person", "add-remove", 7), key=KEY)
    assert made.values.sum() == 15
    ranked = sorted(everywhere.tolist(), key=lambda c: hashlib.sha256(f"{KEY.hex()}|0|{c}".encode()).digest())
    assert set(ranked[:7]) <= set(made.cells.tolist())


def test_the_key_decides_and_is_fresh_unless_given():
    rows = [(1, cell, 1) for cell in range(63)]
    assert count(rows, 3) == count(rows, 3) != count(rows, 3, key=bytes(32))
    assert len({tuple(count(rows, 3, key=None)) for _ in range(5)}) > 1
    for wrong in (b"short", "x" * 32, bytes(31)):
        with pytest.raises(ks.PrivacyError, match="32 random bytes"):
            count(rows, 3, key=wrong)


@given(
    unit=numbers.map(str) | st.text(max_size=70) | st.sampled_from(LONG),
    cells=st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 99), max_size=40),
    key=st.binary(min_size=32, max_size=32),
)
def test_kernel_hash_is_sha256(unit, cells, key):
    """Many cells at a time, and ids that end anywhere in a block of the hash."""
    state = kernel.key_state(np.frombuffer(key.hex().encode(), np.uint8))
    out, text = np.zeros((len(cells), 8), np.uint32), np.frombuffer(unit.encode(), np.uint8).copy()
    workspace = np.empty(kernel._ROWS, np.uint32)
    kernel.ranks(state, text, np.array(cells, np.int64), 0, len(cells), workspace, out)
    wanted = [hashlib.sha256(f"{key.hex()}|{unit}|{cell}".encode()).digest() for cell in cells]
    assert [row.astype(">u4").tobytes() for row in out] == wanted


def test_whole_numbers_and_their_text_are_hashed_alike():
    """A column of whole numbers and the same column as text keep the same cells."""
    rows = [(unit, cell, 1) for unit in (-(2**63), -7, 0, 5, 2**63 - 1) for cell in range(63)]
    assert count(rows, 4, "radix") == count([(str(unit), cell, w) for unit, cell, w in rows], 4, "radix")


def test_bad_ids_are_refused_without_a_value():
    base = {"row": [0, 0], "col": [0, 1]}
    frames = {
        "float": pd.DataFrame(base | {"person": [1.5, 2.5]}),
        "bool": pl.DataFrame(base | {"person": [True, False]}),
        "float made by a missing value": pd.DataFrame(base | {"person": [1, None]}),
    }
    for name, frame in frames.items():
        with pytest.raises(ks.DomainError) as caught:
            ks.count(frame, DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 1))
        assert "2.5" not in str(caught.value) and "True" not in str(caught.value), name
        assert caught.value.__cause__ is None


def test_ids_of_two_kinds_in_one_column_are_read_each_by_itself():
    """A text beside a whole number makes no record refuse, or change, another one."""
    base, unit = {"row": [0, 0, 0], "col": [0, 1, 2]}, Unit("person", "add-remove", 1)
    mixed, text = (
        ks.count(
            pd.DataFrame(base | {"person": pd.Series(ids, dtype=object)}), DOMAIN, columns=PLACE, unit=unit, key=KEY
        )
        for ids in (["secret-a", 7, "7"], ["secret-a", "7", "7"])
    )
    assert mixed.cells.size == 2 and np.array_equal(mixed.cells, text.cells)


def test_ids_of_two_kinds_in_two_files(tmp_path):
    import pyarrow.parquet as pq

    for name, ids in (("a", [1, 2]), ("b", ["1", "2"])):
        pq.write_table(pa.table({"person": ids, "row": [0, 0], "col": [0, 1]}), tmp_path / f"{name}.parquet")
    unit = Unit("person", "add-remove", 1)
    with pytest.raises(ks.DomainError, match="one part and text in another"):
        ks.count([tmp_path / "a.parquet", tmp_path / "b.parquet"], DOMAIN, columns=PLACE, unit=unit)
    twice = ks.count([tmp_path / "a.parquet"] * 2, DOMAIN, columns=PLACE, unit=unit)
    assert twice.values.tolist() == [1, 1]  # the same rows again count once


def test_csv_ids_keep_their_zeros(tmp_path):
    (tmp_path / "v.csv").write_text('person,row,col\n0012,0,0\n12,0,0\n"12 ",0,0\n12,0,0\n12,9,9\n12,,\n')
    made = ks.count(str(tmp_path / "v.csv"), DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 2))
    assert made.cells.tolist() == [0] and made.values.tolist() == [3]


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
def test_rows_outside_domain_or_mask_are_dropped_without_a_word(engine, capfd):
    mask = np.zeros((7, 9), bool)
    mask[0, 0] = True
    domain = Domain.of(Mesh("grid", shape=(7, 9)), mask={"grid": mask})
    frame = pa.table({"person": [1, 1, 1, 2], "row": [0, 99, 3, -1], "col": [0, 0, 3, 2]})
    made = ks.count(frame, domain, columns=PLACE, unit=Unit("person", "add-remove", 1), engine=engine)
    assert made.cells.tolist() == [30] and made.values.tolist() == [1]  # dropped before bounding, not after
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
def test_huge_domains_and_an_empty_file(engine):
    domain = Domain.of(Mesh("grid", shape=(2**31, 2**30)))
    cells = np.array([2**60 + 5, 3, 2**60 + 5, 2**61 - 1])
    frame = pa.table({"person": [1, 1, 2, 2], "row": cells // 2**30, "col": cells % 2**30})
    made = ks.count(frame, domain, columns=PLACE, unit=Unit("person", "add-remove", 2), engine=engine)
    assert dict(zip(made.cells.tolist(), made.values.tolist(), strict=True)) == {3: 1, 2**60 + 5: 2, 2**61 - 1: 1}
    empty = ks.count(frame.slice(0, 0), domain, columns=PLACE, unit=Unit("person", "add-remove", 2), engine=engine)
    assert empty.cells.size == 0


@contextmanager
def small():
    """Few records at a time: every table has many batches, parts and pieces of parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PARTS", 5)
        patch.setattr(parts, "PART_ROWS", 4)
        patch.setattr(sources, "BATCH", 3)
        yield


@settings(max_examples=50)
@given(
    data=st.data(),
    engine=st.sampled_from(["radix", "duckdb"]),
    text=st.booleans(),
    max_cells=st.sampled_from([1, 3]),
    max_weight=st.sampled_from([None, 4]),
)
def test_many_batches_and_parts_give_the_same(data, engine, text, max_cells, max_weight):
    """Few ids, each with many cells, over many batches: a unit that is split, or bounded before all its records are
    seen, would count in too many cells."""
    ids = st.sampled_from(["a", "é", "a|1"] if text else [-(2**63), 0, 5])
    rows = data.draw(st.lists(st.tuples(ids, st.integers(0, 62), st.integers(-1, 9)), min_size=20, max_size=40))
    with small():
        made = count(rows, max_cells, engine, max_weight)
    assert made == bounded(rows, max_cells, KEY, max_weight)


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("most", [7, 10**6])
def test_a_part_of_any_length(engine, text, most, monkeypatch):
    """One unit in 10^4 cells, one with 10^5 rows in one cell, and many that are ordinary, in parts of 2000 records: the
    twin's counts, and no more records at a time than are kept and as many again."""
    batch, most_rows, seen = 1000, 2000, []
    monkeypatch.setattr(sources, "BATCH", batch)
    monkeypatch.setattr(parts, "PART_ROWS", most_rows)
    original, added = parts._bounded, parts._Total.add
    monkeypatch.setattr(
        parts, "_bounded", lambda kernel, rows, *rest: seen.append(len(rows)) or original(kernel, rows, *rest)
    )
    groups = []
    monkeypatch.setattr(parts._Total, "add", lambda *words: groups.append(1) or added(*words))
    rng = np.random.default_rng(5)
    cells = np.concatenate((rng.permutation(10_000), np.full(100_000, 5), rng.integers(0, 10_000, 20_000)))
    ids = np.concatenate((np.full(10_000, -7), np.full(100_000, 8), rng.integers(10, 3000, 20_000)))
    mixed = rng.permutation(ids.size)
    cells, ids = cells[mixed], ids[mixed]
    person = pa.array(ids).cast(pa.string()) if text else pa.array(ids)
    frame = pa.table({"person": person, "row": cells // 100, "col": cells % 100})
    made = ks.count(
        frame, Domain.of(Mesh("grid", shape=(100, 100))), columns=PLACE, unit=Unit("person", "add-remove", most),
        key=KEY, engine=engine,
    )  # fmt: skip
    wanted = bounded(zip(person.to_pylist(), cells.tolist(), [1] * ids.size, strict=True), most, KEY)
    assert dict(zip(made.cells.tolist(), made.values.tolist(), strict=True)) == wanted
    assert len(groups) > 1
    kept = min(most, 10_000) + 2 * 20_000 // (parts.PARTS if text else 256)
    assert engine != "radix" or max(seen) <= kept + max(2 * kept if text else kept, most_rows)


@pytest.mark.parametrize("engine", ["radix", "duckdb"])
@pytest.mark.parametrize("text", [False, True])
def test_all_records_of_one_person_within_a_small_limit(engine, text, monkeypatch):
    """Half a million cells of one unit, whose ranks alone are larger than the limit."""
    monkeypatch.setattr(parts, "PART_ROWS", 1 << 16)
    monkeypatch.setattr(sources, "BATCH", 1 << 16)
    cells = np.random.default_rng(6).permutation(1 << 19)
    person = pa.array(np.full(cells.size, 4)).cast(pa.string() if text else pa.int64())
    frame = pa.table({"person": person, "row": cells >> 10, "col": cells & 1023})
    made = ks.count(
        frame, Domain.of(Mesh("grid", shape=(512, 1024))), columns=PLACE, unit=Unit("person", "add-remove", 9),
        key=KEY, engine=engine, memory="60MB",
    )  # fmt: skip
    ranked = sorted(range(1 << 19), key=lambda c: hashlib.sha256(f"{KEY.hex()}|4|{c}".encode()).digest())
    assert made.cells.tolist() == sorted(ranked[:9]) and made.values.tolist() == [1] * 9


def one_crowd(n, ordinary=0):
    """One text id in n distinct cells, after `ordinary` units of a row each; and the cells of least rank."""
    cells = np.random.default_rng(8).permutation(n)
    ids = pa.concat_arrays([pa.array(range(ordinary)).cast(pa.string()), pa.array(["one"] * n)])
    cells = np.concatenate((np.arange(ordinary) % n, cells))
    ranked = sorted(range(n), key=lambda c: hashlib.sha256(f"{KEY.hex()}|one|{c}".encode()).digest())
    return pa.table({"person": ids, "row": cells >> 11, "col": cells & 2047}), ranked


@pytest.mark.full
@pytest.mark.parametrize("engine", ["radix", "duckdb"])
@pytest.mark.parametrize(("n", "memory"), [(4_000_000, "100MB"), (2_000_000, "60MB")])
def test_one_unit_never_decides_whether_a_count_runs(engine, n, memory):
    """Batches and parts of their real size, most rows of one unit: within the limit that ordinary rows need."""
    frame, ranked = one_crowd(n, 1000)
    made = ks.count(
        frame, Domain.of(Mesh("grid", shape=(2048, 2048))), columns=PLACE, unit=Unit("person", "add-remove", 9),
        key=KEY, memory=memory, engine=engine,
    )  # fmt: skip
    assert made.values.sum() == 1009 and set(ranked[:9]) <= set(made.cells.tolist())


def test_a_crowd_is_bounded_in_pieces_that_fit_and_by_two_threads(monkeypatch):
    """Parts of their real size: the limit alone cuts one unit's rows into pieces. Threads do not depend on the machine,
    whose cores would else decide what fits."""
    import duckdb

    said, pieces = [], []
    connect = duckdb.connect

    class Base:
        def __init__(self):
            self._base = connect()

        def __getattr__(self, name):
            return getattr(self._base, name)

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            self._base.close()

        def execute(self, sql, *words):
            said.append(sql)
            return self._base.execute(sql, *words)

        def register(self, name, reader):
            table = reader.read_all()
            pieces.append(table.nbytes)
            return self._base.register(name, table.to_reader())

    frame, ranked = one_crowd(400_000)
    monkeypatch.setattr(duckdb, "connect", Base)
    made = ks.count(
        frame, Domain.of(Mesh("grid", shape=(256, 2048))), columns=PLACE, unit=Unit("person", "add-remove", 9),
        key=KEY, memory="60MB", engine="duckdb",
    )  # fmt: skip
    assert made.cells.tolist() == sorted(ranked[:9])
    assert len(pieces) > 3 and max(pieces) <= 60_000_000 // 16
    assert "SET threads = 2" in said


@pytest.mark.parametrize("kind", ["parquet", "plain", "frame", "category", "csv", "sqlite", "duckdb", "relation"])
def test_an_id_that_is_too_long_is_no_id(kind, tmp_path):
    """1024 bytes are an id, 1025 are none, in every source; `check` would name the row."""
    import sqlite3

    import duckdb
    import pyarrow.parquet as pq

    rows = [(unit, i % 63, 1) for i, unit in enumerate([*LONG, "a"] * 30)]
    frame = pa.table(
        {"person": [r[0] for r in rows], "row": [r[1] // 9 for r in rows], "col": [r[1] % 9 for r in rows]}
    )
    source = tmp_path / "v.parquet"
    if kind in ("parquet", "plain"):
        pq.write_table(frame, source, use_dictionary=kind == "parquet")
    elif kind == "frame":
        source = frame
    elif kind == "category":
        source = frame.set_column(0, "person", frame.column(0).dictionary_encode())
    elif kind == "csv":
        frame.to_pandas().to_csv(source := tmp_path / "v.csv", index=False)
    elif kind == "sqlite":
        with sqlite3.connect(tmp_path / "v.sqlite") as base:
            frame.to_pandas().to_sql("v", base, index=False)
        base.close()
        source = Table(str(tmp_path / "v.sqlite"), "v")
    elif kind == "duckdb":
        with duckdb.connect(str(tmp_path / "v.duckdb")) as base:
            base.execute("CREATE TABLE v AS SELECT * FROM frame")
        source = Query(str(tmp_path / "v.duckdb"), "SELECT * FROM v")
    else:
        source = duckdb.sql("SELECT * FROM frame")
    assume = ROWS_ALONE if kind == "relation" else None
    made = ks.count(source, DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 4), key=KEY, assume=assume)
    assert dict(zip(made.cells.tolist(), made.values.tolist(), strict=True)) == bounded(rows, 4, KEY)
    assert made.values.sum() == 12


def test_a_small_file_never_unfolds(tmp_path, monkeypatch):
    """A few KB of Parquet that would be 400 MB of ids, and one id of 20 MB beside an ordinary row: counted in a small
    limit, with little memory."""
    import pyarrow.parquet as pq

    i = np.arange(20_000)
    pq.write_table(
        pa.table({"person": pa.array(["x" * 20_000]).take(pa.array(i * 0)), "row": i % 7, "col": i % 9}),
        tmp_path / "many.parquet",
    )
    pq.write_table(
        pa.table({"person": ["x" * 20_000_000, "b"], "row": [0, 1], "col": [0, 1]}), tmp_path / "one.parquet"
    )
    pq.write_table(
        pa.table({"person": pa.array(["x" * 1024]).take(pa.array(i * 0)), "row": i % 7, "col": i % 9}),
        tmp_path / "edge.parquet",
    )
    assert (tmp_path / "many.parquet").stat().st_size < 200_000
    monkeypatch.setattr(sources, "TEXT", 1 << 21)
    seen, short = [], sources.short
    monkeypatch.setattr(sources, "short", lambda batch: (seen.append(piece.nbytes) or piece for piece in short(batch)))
    unit = Unit("person", "add-remove", 2)
    for name, total in (("many", 0), ("one", 1), ("edge", 2)):
        made = ks.count(str(tmp_path / f"{name}.parquet"), DOMAIN, columns=PLACE, unit=unit, memory="60MB")
        assert made.values.sum() == total
    assert max(seen) < 1 << 22


def test_a_label_that_no_row_can_have_is_refused():
    domain = Domain.of(ks.Nominal("kind", labels=("a", "b" * 1025)))
    frame = pa.table({"person": ["1"], "kind": ["a"]})
    with pytest.raises(ks.DomainError, match="more than 1024 bytes"):
        ks.count(frame, domain, columns={"kind": "kind"}, unit=Unit("person", "add-remove", 1))


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("ids", [["a", None, "b", None], [1, None, 3, None], [None] * 4])
def test_rows_without_an_id_are_dropped(ids, batch, monkeypatch):
    """A refusal would tell that somebody's record has no id."""
    monkeypatch.setattr(sources, "BATCH", batch)
    frame = pa.table({"person": ids, "row": [0] * 4, "col": [1] * 4})
    made = ks.count(frame, DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 1))
    assert made.values.tolist() == ([2] if any(ids) else [])


def test_one_line_of_a_csv_file_never_stops_the_others(tmp_path, monkeypatch, capfd):
    """Lines with too few or too many cells, without an id, or of bytes that are no UTF-8: each is dropped by itself, in
    one block or in many, and the rest is counted as if it were not there."""
    good = [b"a%d,%d,%d" % (i, i % 7, i % 9) for i in range(200)]
    bad = [
        b"b",
        b"c,1,2,3,4",
        b",3,3",
        b"\xff\xfe,4,4",
        b"d,\xff,4",
        b'"e\xe3,5",1,2',
        b"f,,",
        b"\xff",
        b"\xff,1,2,\xfe,4",
        "\ufffd".encode() + b"g",
    ]
    wanted = None
    for block in (1 << 24, 64):
        monkeypatch.setattr(sources, "_CSV_BLOCK", block)
        monkeypatch.setattr(utf8, "_BLOCK", block - 63)  # every byte by itself, or all at once
        for extra in ([], *([line] for line in bad), bad):
            lines = good.copy()
            for i, line in enumerate(extra):
                lines.insert(1 + 25 * i, line)
            (tmp_path / "v.csv").write_bytes(b"\n".join([b"person,row,col", *lines, b""]))
            made = ks.count(str(tmp_path / "v.csv"), DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 1))
            found = made.cells.tolist(), made.values.tolist()
            wanted = found if wanted is None else wanted
            assert found == wanted and made.values.sum() == 200
    assert capfd.readouterr() == ("", "")


def test_the_type_of_ids_is_refused_whatever_they_are():
    """A column of missing ids of a wrong type is refused like one that holds some: the type decides, not the rows."""
    for ids in ([None], [1.5]):
        frame = pa.table({"person": pa.array(ids, pa.float64()), "row": [0] * len(ids), "col": [0] * len(ids)})
        with pytest.raises(ks.DomainError, match="whole numbers or text"):
            ks.count(frame, DOMAIN, columns=PLACE, unit=Unit("person", "add-remove", 1))


@pytest.mark.parametrize("shape", [(7, 9), (2**13, 2**13)])
def test_a_total_never_wraps(shape):
    """Sums above 2^62 are refused: a wrapped sum would break the bound."""
    total = parts._Total(Domain.of(Mesh("grid", shape=shape)))
    total.add(np.array([5, 5, 6]), np.full(3, 2**60))
    with pytest.raises(ks.NumericsError, match="max_weight"):
        total.add(np.array([5, 5]), np.full(2, 2**60))
