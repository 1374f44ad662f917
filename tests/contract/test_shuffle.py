"""The join as its users meet it: plan, parties, files, refusals, and that nothing is left behind."""

import gc
import json
import pickle
import types
from fractions import Fraction

import forked
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import kasuri as ks
from kasuri._kernels import shuffle as kernels
from kasuri.errors import BudgetError, DomainError, FormatError, PrivacyError, ProtocolError
from kasuri.ingest import Query, Table
from kasuri.manifest import keys
from kasuri.shuffle.joined import permutation

N = 1500


def plan_of(**more):
    given = {
        "key": "phone", "a": ("age",), "b": ("spend", "sex"), "bounds": {"age": (20, 80), "spend": (0, 1000)},
        "categories": {"sex": ("F", "M", "1")}, "epsilon_each": "1", "delta": 1e-8, "minimum_overlap": 1000,
    }  # fmt: skip
    return ks.shuffle.Plan(**given | more)


def rows(seed=1, n=N, skip=0):
    rng = np.random.default_rng(seed)
    phone = [f"090{i:08d}" for i in range(skip, n)]
    k = len(phone)
    return (
        {"phone": phone, "age": rng.uniform(20, 80, k)},
        {"phone": phone, "spend": rng.uniform(0, 1000, k), "sex": np.array(["F", "M", "1"])[rng.integers(0, 3, k)]},
    )


def tables(plan, rows_a=None, rows_b=None, source=None):
    one, two = rows()
    secret_a, secret_b = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan, "a", secret_a) as a:
        table_a = a.run(one if rows_a is None else rows_a, source=source)
    with ks.shuffle.Party(plan, "b", secret_b) as b:
        table_b = b.run(two if rows_b is None else rows_b, source=source)
    return table_a, table_b


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_the_shape_users_write():
    plan = ks.shuffle.Plan(
        key="phone",
        a=("age",),
        b=("spend",),
        bounds={"age": (20, 80), "spend": (0, 1000)},
        epsilon_each="1",
        delta=1e-8,
    )
    claims = plan.guarantee(n=10_000)
    assert claims.public.model == "shuffle" and claims.public.delta == Fraction("1e-8")
    assert claims.public.epsilon < 2 == claims.joiner.epsilon and claims.joiner.model == "local"
    assert claims.joiner.delta == 0
    one, two = rows()
    joined = ks.shuffle.join(plan, *tables(plan, one, {k: two[k] for k in ("phone", "spend")}))
    assert len(joined) == N
    assert ks.shuffle.covariance(joined).covariance.shape == (2, 2)
    assert len(ks.shuffle.synthesize(joined, rows=100).to_arrow()) == 100
    assert "when the values of one phone change, none enters or leaves the data" in repr(joined)


def test_plan_round_trip_hash_and_every_mechanism():
    bounds = dict.fromkeys("uvwxy", (0, 1))
    plan = plan_of(
        a=tuple("uvwx"), b=("y", "sex"), bounds=bounds, epsilons={"sex": "0.5"},
        mechanisms={"u": "two_point", "v": "piecewise", "w": "hybrid", "x": "laplace", "sex": "one_hot"},
        ab={"u": ("400", "1000")}, trusted_joiner="the bureau",
    )  # fmt: skip
    again = ks.shuffle.Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.hash == plan.hash and hash(again) == hash(plan)
    assert plan_of() != plan_of(delta=1e-9)
    claims = plan.guarantee(n=5000)
    assert claims.joiner is None and any("the bureau" in caveat for caveat in claims.public.assumes)
    assert "membership" in claims.words()


def test_a_changed_plan_file_is_refused():
    data = plan_of().to_json()
    data["a"][0]["randomizer"]["inside"] += 1
    with pytest.raises((FormatError, PrivacyError)):
        ks.shuffle.Plan.from_json(data)


OLD_HASH = "0a1ffe58e79eb649bd0096859109e72e5bbe3e02e1793d35f68e6d6b35b1af8b"
"""Of plan_of() when coin was the default of numbers: what a file written then has."""


def test_a_plan_file_means_what_it_meant_whatever_the_default_is(tmp_path):
    """Both sides compare hashes: a file written under the former default keeps its mechanisms and its hash."""
    old = plan_of(mechanisms={"age": "coin", "spend": "coin"})
    old.save(tmp_path / "plan.json")
    again = ks.shuffle.Plan.load(tmp_path / "plan.json")
    assert again.hash == old.hash == OLD_HASH
    assert [column.numeric.kind for column in again.columns if column.is_number] == ["coin", "coin"]
    new = plan_of()
    assert new.hash != old.hash and new == plan_of(mechanisms={"age": "piecewise", "spend": "piecewise", "sex": "grr"})
    for plan in (old, new):
        said = plan.to_json()
        assert all("mechanism" in column for column in (*said["a"], *said["b"])), "a file always says the word"
        del said["a"][0]["mechanism"]
        with pytest.raises(FormatError):
            ks.shuffle.Plan.from_json(said)  # and is refused without it, as ever: nobody guesses


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"ab": {"age": ("1", "1")}, "mechanisms": {"age": "two_point"}}, PrivacyError),
        ({"ab": {"age": ("999", "1000")}, "mechanisms": {"age": "two_point"}}, PrivacyError),
        ({"bounds": {"age": (20, 80)}}, DomainError),
        ({"epsilon_each": 1.0}, PrivacyError),
        ({"epsilon_each": None}, DomainError),
        ({"delta": None}, DomainError),
        ({"delta": "1"}, PrivacyError),
        ({"minimum_overlap": 1}, DomainError),
        ({"mechanisms": {"age": "grr"}}, DomainError),
        ({"a": ("age", "spend")}, DomainError),
        ({"outside": "ignore"}, DomainError),
        ({"a": ("pseudonym",), "bounds": {"pseudonym": (0, 1), "spend": (0, 1)}}, DomainError),
        ({"bounds": {"age": (-1e308, 1e308), "spend": (0, 1)}}, DomainError),
        ({"bounds": {"age": ("0", "1e400"), "spend": (0, 1)}}, DomainError),
        ({"bounds": {"age": ("1e16", "10000000000000001"), "spend": (0, 1)}}, DomainError),
        ({"ab": {"age": 1}, "mechanisms": {"age": "two_point"}}, DomainError),
    ],
)
def test_bad_plans_are_refused(change, kind):
    with pytest.raises(kind):
        plan_of(**change)


def test_no_claim_below_the_minimum_or_beyond_what_is_proved():
    for n in (999, 10**9 + 1):
        with pytest.raises(PrivacyError, match="1000 to 1000000000 rows"):
            plan_of().guarantee(n=n)


def test_a_plan_of_hopeless_epsilons_joins_under_the_local_claim():
    names = [f"c{i}" for i in range(60)]
    plan = ks.shuffle.Plan(
        key="k", a=names[:30], b=names[30:], bounds=dict.fromkeys(names, (0, 1)), epsilon_each="12 weak", delta=1e-8,
        minimum_overlap=2,
    )  # fmt: skip
    keys_ = {"k": ["1", "2", "3"]}
    halves = [keys_ | {name: [0.0, 1.0, 1.0] for name in part} for part in (names[:30], names[30:])]
    claims = ks.shuffle.join(plan, *tables(plan, *halves)).claims
    assert claims.bound == "local" and claims.public.epsilon == 720 and claims.public.delta == 0


def test_a_claim_that_cannot_be_stated_is_refused_with_the_plan(monkeypatch):
    from kasuri.shuffle import bounds

    def fail(*args, **more):
        raise OverflowError

    monkeypatch.setattr(bounds, "least", fail)
    with pytest.raises(OverflowError):
        plan_of()


# -- the run -----------------------------------------------------------------------------------------------------------


def test_join_is_the_intersection_and_keeps_columns_together():
    # an epsilon so large that reports are the truth: the join can be checked by value
    plan = ks.shuffle.Plan(
        key="id", a=("x",), b=("y",), bounds={"x": (0, 1), "y": (0, 1)}, epsilon_each="20 weak", delta=1e-8,
        minimum_overlap=50, mechanisms={"x": "two_point", "y": "two_point"},
    )  # fmt: skip
    bits = np.random.default_rng(3).integers(0, 2, 300).astype(float)
    ids = np.arange(300)
    joined = ks.shuffle.join(
        plan, *tables(plan, {"id": ids[:200], "x": bits[:200]}, {"id": ids[100:][::-1], "y": bits[100:][::-1]})
    )
    assert len(joined) == 100
    assert (joined.columns["x"] == joined.columns["y"]).all()
    assert joined.columns["x"].sum() == bits[100:200].sum()


def test_pseudonyms_are_keyed_blake2b_and_ascend():
    import hashlib

    key = bytes(range(32))
    texts = [b"x" * size for size in (1, 11, 127, 128, 129, 256, 1000)]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    out = np.empty((len(texts), 2), np.uint64)
    state = kernels.key_state(np.frombuffer(key, np.uint8))
    kernels.pseudonyms(state, np.frombuffer(b"".join(texts), np.uint8), ends, out)
    for text, (high, low) in zip(texts, out.tolist(), strict=True):
        expected = hashlib.blake2b(text, key=key, digest_size=16).digest()
        assert high.to_bytes(8, "big") + low.to_bytes(8, "big") == expected
    table_a, _ = tables(plan_of())
    high = table_a.pseudonyms[:, 0]
    assert (high[1:] >= high[:-1]).all()


def test_text_and_whole_number_keys_agree():
    plan = plan_of()
    _, two = rows()
    numbers = {"phone": np.arange(N), "age": np.full(N, 50.0)}
    texts = two | {"phone": [str(i) for i in range(N)]}
    assert len(ks.shuffle.join(plan, *tables(plan, numbers, texts))) == N


def test_every_order_of_four_is_as_likely():
    seen = np.zeros(24)
    index = {}
    for seed in range(4800):
        order = tuple(permutation(4, ks.seeded(seed)).tolist())
        seen[index.setdefault(order, len(index))] += 1
    assert len(index) == 24
    assert ((seen - 200) ** 2 / 200).sum() < 60  # chi-square, 23 degrees: 1e-5


def test_two_runs_share_no_pseudonym_and_seeds_are_not_saved(tmp_path):
    plan = plan_of()
    one, _ = tables(plan)
    two, _ = tables(plan)
    assert not np.isin(one.pseudonyms[:, 0], two.pseudonyms[:, 0]).any()
    seeded = ks.shuffle.join(plan, *tables(plan, source=ks.seeded(1)), source=ks.seeded(2))
    with pytest.raises(PrivacyError):
        seeded.save(tmp_path / "joined.parquet")
    made = ks.shuffle.synthesize(seeded, rows=5)
    for text in (repr(seeded), seeded.claims.words(), repr(made), str(made.guarantee.assumes)):
        assert "seed" in text
    with pytest.raises(PrivacyError):
        made.to_arrow()


def test_columns_and_batches_draw_their_own_bits():
    plan = ks.shuffle.Plan(
        key="id", a=("x", "z"), b=("y",), bounds={"x": (0, 1), "y": (0, 1), "z": (0, 1)}, epsilon_each="1", delta=1e-8
    )
    same = {"id": np.arange(4000), "x": np.full(4000, 0.5), "z": np.full(4000, 0.5)}
    table, _ = tables(plan, same, {"id": np.arange(4000), "y": np.full(4000, 0.5)}, source=ks.seeded(5))
    assert abs(np.corrcoef(table.columns["x"], table.columns["z"])[0, 1]) < 0.1


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phone": ["1"] * N}, "repeat a key"),
        ({"phone": [None] * N}, "no key on any row"),
        ({"age": np.full(N, 81.0)}, "outside the plan's bounds"),
        ({"age": [None] * N}, "hold no numbers"),
        ({"age": ["zzz"] * N}, "hold no numbers"),
        ({"phone": np.linspace(0, 1, N)}, "text or whole numbers"),
    ],
)
def test_bad_rows_are_refused_before_the_secret_is_used(change, words):
    secret, _ = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan_of(), "a", secret) as party:
        with pytest.raises(DomainError, match=words) as fault:
            party.run(rows()[0] | change)
        assert not secret.spent
        assert "81" not in str(fault.value) and "zzz" not in str(fault.value)


def test_rows_that_depend_on_others_are_refused_before_the_secret_is_used(tmp_path):
    """One person's age would decide over the ages of all."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    plan, file, source = plan_of(), str(tmp_path / "a.duckdb"), str(tmp_path / "rows.parquet")
    parquet.write_table(pa.table(rows()[0]), source)
    victim = "EXISTS (SELECT 1 FROM t v WHERE v.phone = '09000000000' AND v.age > 50)"
    plain, mixed = "SELECT phone, age FROM t", f"SELECT phone, CASE WHEN {victim} THEN 20 ELSE 80 END AS age FROM t"
    made_key = "SELECT phone || '1' AS phone, age FROM t"
    base, lazy = duckdb.connect(file), polars.scan_parquet(source)
    base.execute(f"CREATE TABLE t AS SELECT * FROM '{source}'")

    def run(table, good):
        with ks.shuffle.Party(plan, "a", ks.shuffle.Secret.pair()[0]) as party:
            if good:
                assert len(party.run(table, source=ks.seeded(1))) == N
                return
            with pytest.raises(PrivacyError, match="one record might change the rows of others"):
                party.run(table, source=ks.seeded(1))
        assert "order" not in party.deletion["destroyed"]  # not a word of the secret was used

    for sql, good in ((plain, True), (mixed, False), (made_key, False)):
        run(base.sql(sql), good)
    run(lazy, True)
    run(lazy.with_columns(polars.col("age").max()), False)
    base.close()
    for sql, good in ((plain, True), (mixed, False), (made_key, False)):
        run(Query(file, sql), good)
    run(Table(file, "t"), True)


def test_a_line_that_is_no_row_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("phone,age\n0901,30\n0902,30,7\n0903,40\n")
    secret, _ = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan_of(), "a", secret) as party, pytest.raises(DomainError, match="number of cells: rows 2"):
        party.run(tmp_path / "rows.csv")


def test_leaving_the_block_zeroes_a_secret_that_was_never_used():
    secret, _ = ks.shuffle.Secret.pair()
    assert bytes(secret._bytes) != bytes(32)
    with pytest.raises(DomainError), ks.shuffle.Party(plan_of(), "a", secret) as party:
        party.run({"phone": ["1"], "age": [200.0]})
    assert bytes(secret._bytes) == bytes(32) and secret.spent
    assert party.deletion["destroyed"] == ["secret"]


def test_every_fault_is_told_at_once():
    bad = {"phone": ["1"] * N, "spend": np.full(N, -1.0), "sex": ["?"] * N}
    _, secret = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan_of(), "b", secret) as party, pytest.raises(DomainError) as fault:
        party.run(bad)
    assert len(fault.value.faults) == 3


def test_clipping_is_said_and_rows_without_key_are_left_out():
    plan = plan_of(outside="clip")
    one, _ = rows()
    secret, _ = ks.shuffle.Secret.pair()
    phone = [None if i < 7 else p for i, p in enumerate(one["phone"])]
    with ks.shuffle.Party(plan, "a", secret) as party:
        table = party.run({"phone": phone, "age": np.full(N, 99.0)})
    assert len(table) == N - 7
    assert party.notes == (
        "7 rows have no key and were left out",
        f"column 'age': {N - 7} values clipped to the bounds",
    )


def test_protocol_errors():
    plan, (one, two) = plan_of(), rows()
    secret, other = ks.shuffle.Secret.pair()
    party = ks.shuffle.Party(plan, "a", secret)
    with pytest.raises(ProtocolError):
        party.run(one)  # outside the block
    with party:
        party.run(one)
        with pytest.raises(ProtocolError):
            party.run(one)  # twice
    with pytest.raises(ProtocolError):
        party.run(one)  # after the block
    with pytest.raises(ProtocolError), party:
        pass
    with pytest.raises(ProtocolError):
        ks.shuffle.Party(plan, "a", secret)  # a used secret
    with pytest.raises(ProtocolError):
        pickle.dumps(other)
    with pytest.raises(ProtocolError):
        ks.shuffle.Secret(b"short", "s", "a")
    with pytest.raises(ProtocolError, match="copy of side b"):
        ks.shuffle.Party(plan, "a", other)
    with ks.shuffle.Party(plan, "b", other) as party_b:
        table_b = party_b.run(two)
    stranger_a, _ = tables(plan)
    with pytest.raises(ProtocolError, match="different runs"):
        ks.shuffle.join(plan, stranger_a, table_b)
    with pytest.raises(ProtocolError, match="another plan"):
        ks.shuffle.join(plan_of(delta=1e-9), *tables(plan))
    with pytest.raises(ProtocolError, match="side a first"):
        ks.shuffle.join(plan, *reversed(tables(plan)))


def test_too_small_an_overlap_is_refused_without_its_size():
    plan = plan_of()
    with pytest.raises(PrivacyError, match="overlap is below") as fault:
        ks.shuffle.join(plan, *tables(plan, rows(n=N)[0], rows(n=2 * N, skip=N - 777)[1]))
    assert "777" not in str(fault.value)


def test_the_ledger_pays_before_and_refuses(tmp_path):
    plan, (one, _) = plan_of(), rows()
    ledger = ks.Ledger.open(tmp_path / "a.ledger", epsilon="1.5", unit=plan.unit, data="phones")
    secret, _ = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan, "a", secret) as party:
        table = party.run(one, ledger=ledger, data="phones")
    assert ledger.balance().spent == 1
    table.save(tmp_path / "a.parquet")
    assert ledger.summary()["committed"] == 1
    secret, _ = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan, "a", secret) as party:
        with pytest.raises(BudgetError):
            party.run(one, ledger=ledger, data="phones")
        assert not secret.spent
        bare = party.run(one)
    with pytest.raises(PrivacyError, match="unmetered"):
        bare.save(tmp_path / "bare.parquet")
    bare.save(tmp_path / "bare.parquet", unmetered=True)
    with pytest.raises(DomainError, match="exists"):
        bare.save(tmp_path / "bare.parquet", unmetered=True)


def test_a_secret_of_spent_bytes_is_refused():
    material = bytearray(range(32))
    ks.shuffle.Secret(material, "s", "a")
    assert not any(material)
    with pytest.raises(ProtocolError, match="all zero"):
        ks.shuffle.Secret(material, "s", "b")
    with pytest.raises(ProtocolError, match="side"):
        ks.shuffle.Secret(bytearray(range(32)), "s", "c")


def test_keys_with_spaces_are_refused_and_every_text_type_is_read():
    one, two = rows()
    secret, other = ks.shuffle.Secret.pair()
    with ks.shuffle.Party(plan_of(), "a", secret) as party, pytest.raises(DomainError, match="2 keys begin or end"):
        party.run(one | {"phone": [" 1", "2\u3000", *one["phone"][2:]]})
    views = pa.table({name: pa.array(map(str, two[name]), pa.string_view()) for name in two})
    with ks.shuffle.Party(plan_of(), "b", other) as party:
        assert len(party.run(views)) == N


def test_rows_that_change_leave_no_order_in_the_traceback(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    phones = [str(i) for i in range(N)]
    parquet.write_table(pa.table({"phone": phones, "age": np.full(N, 50.0)}), path)
    original = ks.shuffle.Party._checked

    def then_changed(self, *args):
        found = original(self, *args)
        parquet.write_table(pa.table({"phone": ["0", *phones[:-1]], "age": np.full(N, 50.0)}), path)
        return found

    monkeypatch.setattr(ks.shuffle.Party, "_checked", then_changed)
    secret, _ = ks.shuffle.Secret.pair()
    with pytest.raises(ProtocolError, match="changed") as fault, ks.shuffle.Party(plan_of(), "a", secret) as party:
        party.run(path)
    frames = [entry.frame.f_locals for entry in fault.traceback if entry.frame.code.name == "_draw"]
    (left,) = frames
    for name in ("order", "out", "pseudonyms", "codes"):
        assert left[name].size and not left[name].any()
    assert not any(left["key"]) and not any(codes.any() for codes in left["unshuffled"].values())


# -- what is left behind -----------------------------------------------------------------------------------------------


def reachable(*roots):
    """Every object that can be reached from these, modules and classes left out."""
    seen, todo = {}, list(roots)
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (types.ModuleType, type, types.FunctionType)):
            continue
        seen[id(item)] = item
        todo += gc.get_referents(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            todo.append(item.base)
    return list(seen.values())


def test_nothing_confidential_is_reachable_or_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plan = ks.shuffle.Plan(
        key="phone", a=("age",), b=("spend",), bounds={"age": (0, 1), "spend": (0, 1)}, epsilon_each="20 weak",
        delta=1e-8, mechanisms={"age": "two_point", "spend": "two_point"},
    )  # fmt: skip
    truth = np.random.default_rng(8).integers(0, 2, N)
    phones = [f"0801234{i:05d}" for i in range(N)]
    secret, twin = ks.shuffle.Secret.pair()
    kept = bytes(twin.take())
    unshuffled = []
    original = ks.shuffle.Party._randomized

    def spy(self, *args):
        unshuffled.append(original(self, *args))
        return unshuffled[-1].copy()

    monkeypatch.setattr(ks.shuffle.Party, "_randomized", spy)
    with ks.shuffle.Party(plan, "a", secret) as party:
        table = party.run({"phone": phones, "age": truth.astype(float)})
    assert bytes(secret._bytes) == bytes(32) != kept
    assert party.deletion["destroyed"] == ["secret", "order", "unshuffled rows", "keystreams"]
    order = truth.astype(np.uint8).tobytes()
    assert unshuffled[0].tobytes() == order  # at this epsilon the reports are the truth
    table.save(tmp_path / "a.parquet", unmetered=True)
    for item in reachable(table, party, secret):
        if isinstance(item, np.ndarray):
            raw = item.tobytes()
            assert order not in raw and kept not in raw
            if item.ndim == 1 and item.size == N and item.dtype.kind in "iu":
                assert not np.array_equal(np.sort(item), np.arange(N))  # no permutation
        elif isinstance(item, (bytes, bytearray)):
            assert kept not in item and phones[0].encode() not in item
        elif isinstance(item, str):
            assert phones[0] not in item
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "a.parquet"]
    raw = files[0].read_bytes()
    assert kept not in raw and phones[0].encode() not in raw
    assert parquet.read_table(files[0]).column("age").to_numpy().tobytes() != order


def test_joined_rows_carry_no_pseudonym(tmp_path):
    plan = plan_of()
    joined = ks.shuffle.join(plan, *tables(plan))
    with pytest.raises(PrivacyError, match="no ledger"):
        joined.save(tmp_path / "joined.parquet")
    joined.save(tmp_path / "joined.parquet", unmetered=True)
    assert parquet.read_table(tmp_path / "joined.parquet").column_names == ["age", "spend", "sex"]
    again = ks.shuffle.Joined.load(tmp_path / "joined.parquet")
    assert again.claims == joined.claims and len(again) == N
    assert all((again.columns[name] == joined.columns[name]).all() for name in joined.columns)
    names = {str(item) for item in reachable(joined) if isinstance(item, str)}
    assert "pseudonym" not in names


# -- two processes, two folders ----------------------------------------------------------------------------------------


def kasuri(folder, *words, code=0):
    return forked.kasuri(*words, cwd=folder, code=code, TERM="dumb", NO_COLOR="1")


@pytest.fixture(scope="module")
def organisations(tmp_path_factory):
    """Two folders with rows, keys, the plan and both offers, as two organisations have them."""
    root = tmp_path_factory.mktemp("join")
    one, two = rows(n=N + 200)
    for side, table in (("a", one), ("b", two)):
        folder = root / side
        folder.mkdir()
        csv.write_csv(pa.table(table), folder / "people.csv")
        keys.keygen(folder / "own.key")
    plan_of(mechanisms={"age": "piecewise", "spend": "piecewise"}).save(root / "plan.json")
    for side in "ab":
        kasuri(root / side, "shuffle", "keygen", "--plan", "../plan.json", "--side", side, "--sign", "own.key",
               "--one-time", "once.key", "--offer", f"../offer-{side}.json")  # fmt: skip
    return root


def run_words(side, other, out="table.parquet"):
    return ("shuffle", "run", "people.csv", "--plan", "../plan.json", "--side", side, "--one-time", "once.key",
            "--own", f"../offer-{side}.json", "--other", f"../offer-{other}.json", "--peer", f"../{other}/own.key.pub",
            "--out", out, "--unmetered", "--json")  # fmt: skip


def test_two_processes_in_two_folders(organisations):
    root = organisations
    for side, other in ("ab", "ba"):
        said = json.loads(kasuri(root / side, *run_words(side, other)).stdout)
        assert said["rows"] == N + 200
        assert not (root / side / "once.key").exists()
        assert sorted(p.name for p in (root / side).iterdir()) == [
            "own.key", "own.key.pub", "people.csv", "table.parquet"
        ]  # fmt: skip
        refused = kasuri(root / side, *run_words(side, other, "again.parquet"), code=1)
        assert "one-time key is gone" in refused.stderr and not (root / side / "again.parquet").exists()
    kasuri(root, "shuffle", "join", "a/table.parquet", "b/table.parquet", "--plan", "plan.json", "--out", "j.parquet",
           "--unmetered")  # fmt: skip
    joined = ks.shuffle.Joined.load(root / "j.parquet")
    assert len(joined) == N + 200
    said = json.loads(kasuri(root, "shuffle", "stats", "j.parquet", "--json").stdout)
    assert said["names"][0] == "age" and said["guarantee"]["model"] == "shuffle"
    kasuri(root, "shuffle", "synthesize", "j.parquet", "--rows", "50", "--out", "s.csv")
    assert csv.read_csv(root / "s.csv").num_rows == 50


def test_offers_bind_plan_side_and_signer(organisations, tmp_path):
    root = organisations
    plan, other_plan = ks.shuffle.Plan.load(root / "plan.json"), plan_of(delta=1e-9)
    signing = keys.private(root / "a" / "own.key")
    peer = keys.public_hex(root / "b" / "own.key.pub")
    ks.shuffle.exchange(plan, "a", signing, tmp_path / "once", tmp_path / "own.json")
    good = (tmp_path / "once", tmp_path / "own.json", root / "offer-b.json")
    agree = ks.shuffle.Secret.agree
    assert not agree(plan, "a", *good, peer).spent
    with pytest.raises(ProtocolError, match="another plan"):
        agree(other_plan, "a", *good, peer)
    with pytest.raises(ProtocolError, match="not signed"):
        agree(plan, "a", *good, keys.public_hex(root / "a" / "own.key.pub"))
    with pytest.raises(ProtocolError, match="must be your own"):
        agree(plan, "b", *good, peer)
    forged = json.loads((root / "offer-b.json").read_text()) | {"one_time": "ab" * 32}
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    with pytest.raises(ProtocolError, match="signature"):
        agree(plan, "a", tmp_path / "once", tmp_path / "own.json", tmp_path / "forged.json", peer)
    with pytest.raises(ProtocolError, match="agreed for another plan"):
        ks.shuffle.Party(other_plan, "a", agree(plan, "a", *good, peer))
    with pytest.raises(ProtocolError, match="copy of side a"):
        ks.shuffle.Party(plan, "b", agree(plan, "a", *good, peer))
    # a refused run derived nothing: its key stays, and the record does not say that it went
    with ks.shuffle.Party(plan, "a", agree(plan, "a", *good, peer)) as party, pytest.raises(DomainError):
        party.run({"phone": ["1"], "age": [200.0]})
    assert (tmp_path / "once").exists() and party.deletion["destroyed"] == []
    with ks.shuffle.Party(plan, "a", agree(plan, "a", *good, peer.upper())) as party:
        party.run(rows()[0])
    assert not (tmp_path / "once").exists()
    assert party.deletion["destroyed"][:2] == ["secret", "one-time key"]
    with pytest.raises(ProtocolError):
        agree(plan, "a", *good, peer)


def test_an_offer_that_cannot_be_written_leaves_no_key(organisations, tmp_path):
    plan, signing = ks.shuffle.Plan.load(organisations / "plan.json"), keys.private(organisations / "a" / "own.key")
    with pytest.raises(DomainError, match="offer"):
        ks.shuffle.exchange(plan, "a", signing, tmp_path / "once", tmp_path / "no" / "offer")
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_trusted_are_refused(tmp_path):
    plan = plan_of()
    table, _ = tables(plan)
    table.save(tmp_path / "a.parquet", unmetered=True)
    assert len(ks.shuffle.Shuffled.load(tmp_path / "a.parquet", plan)) == N
    with pytest.raises(ProtocolError, match="another plan"):
        ks.shuffle.Shuffled.load(tmp_path / "a.parquet", plan_of(delta=1e-9))
    with pytest.raises(FormatError):
        ks.shuffle.Joined.load(tmp_path / "a.parquet")
    good = parquet.read_table(tmp_path / "a.parquet")
    for name, change in {
        "code": good.set_column(1, "age", pa.array(np.full(N, plan.column("age").numeric.outputs, np.uint16))),
        "twice": pa.concat_tables([good, good]),
        "short": good.drop_columns(["age"]),
    }.items():
        parquet.write_table(change.replace_schema_metadata(good.schema.metadata), tmp_path / f"{name}.parquet")
        with pytest.raises(FormatError):
            ks.shuffle.Shuffled.load(tmp_path / f"{name}.parquet", plan)
    joined = ks.shuffle.join(plan, *tables(plan))
    joined.save(tmp_path / "joined.parquet", unmetered=True)
    rows_ = parquet.read_table(tmp_path / "joined.parquet")
    head = json.loads(rows_.schema.metadata[b"kasuri"])
    for name, held, said in (
        ("more", pa.concat_tables([rows_, rows_]), head),
        ("no plan", rows_, {key: value for key, value in head.items() if key != "plan"}),
        ("no claims", rows_, {key: value for key, value in head.items() if key != "claims"}),
        ("list", rows_, []),
    ):
        metadata = {b"kasuri": json.dumps(said).encode()}
        parquet.write_table(held.replace_schema_metadata(metadata), tmp_path / f"{name}.parquet")
        with pytest.raises(FormatError):
            ks.shuffle.Joined.load(tmp_path / f"{name}.parquet")
    (tmp_path / "no.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError):
        ks.shuffle.Shuffled.load(tmp_path / "no.parquet", plan)
