"""What a ledger accepts, refuses and remembers."""

import json
import os
import shutil
import signal
import sqlite3
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import kasuri as ks
from kasuri.budget.ledger import Ledger, repair
from kasuri.noise.rng import Source

UNIT = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)))


def counts(data="census-2020", unit=UNIT, domain=DOMAIN):
    return ks.Counts.from_dense(np.ones(domain.shape, dtype=int), domain, unit, data=data)


def opened(path, epsilon="1", **more):
    return Ledger.open(path, **{"epsilon": epsilon, "unit": UNIT, "data": "census-2020", **more})


def spend(ledger, epsilon="0.1", table=None, recipe=None):
    return ks.release(table or counts(), recipe or ks.geometric(), epsilon=epsilon, ledger=ledger, threads=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "census.ledger"


@pytest.fixture
def no_draw(monkeypatch):
    """Any release key made while this holds is a failure."""

    def refuse(self):
        raise AssertionError("a key was made")

    monkeypatch.setattr(Source, "release_key", refuse)


# -- spending ---------------------------------------------------------------------------------------------------------


def test_charges_add_up_exactly_and_the_last_one_is_refused(path):
    ledger = opened(path)
    for _ in range(10):
        spend(ledger)
    assert ledger.balance().left == 0  # ten times 0.1 is 1, not 0.9999999999999999
    with pytest.raises(ks.BudgetError, match="epsilon 0 is left of 1"):
        spend(ledger, "1e-9")
    assert ledger.summary()["entries"] == 11


def test_reserved_on_disk_before_the_key_is_made(path, monkeypatch):
    seen = []
    make = Source.release_key

    def look(self):
        on_disk = Ledger.load(path)  # another process would see this
        seen.append((on_disk.summary()["reserved"], on_disk.balance().left))
        return make(self)

    monkeypatch.setattr(Source, "release_key", look)
    spend(opened(path))
    assert seen == [(1, Fraction(9, 10))]


def test_nothing_is_refunded(path, monkeypatch):
    ledger = opened(path)
    with monkeypatch.context() as patch:
        patch.setattr("kasuri.draw.draw", lambda *words: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            spend(ledger)
    assert ledger.balance().left == Fraction(9, 10)
    assert ledger.summary()["abandoned"] == 1
    assert [entry["kind"] for entry in ledger.entries()] == ["opened", "reserved", "abandoned"]


def test_save_commits_once_and_only_what_was_paid(path, tmp_path):
    ledger = opened(path)
    out = spend(ledger)
    assert "no ledger" not in " ".join(out.guarantee.assumes)
    out.save(str(tmp_path / "one"))
    out.save(str(tmp_path / "two"))
    assert [entry["kind"] for entry in ledger.entries()] == ["opened", "reserved", "committed"]
    assert ledger.entries()[2]["release_id"] == out.provenance["release_id"]
    assert ledger.balance().left == Fraction(9, 10)


def test_save_refuses_a_release_whose_entry_is_gone(path, tmp_path):
    out = spend(opened(path))
    for file in tmp_path.glob("census.ledger*"):
        file.unlink()
    opened(path)
    with pytest.raises(ks.KasuriError):
        out.save(str(tmp_path / "release"))
    assert not (tmp_path / "release").exists() and not list(tmp_path.glob(".release*"))


def test_an_abandoned_reservation_cannot_be_saved(path, tmp_path):
    out = spend(opened(path))
    out.receipt.abandon()
    with pytest.raises(ks.PrivacyError, match="abandoned"):
        out.save(str(tmp_path / "release"))
    assert not (tmp_path / "release").exists()


def test_threads_share_a_ledger(path):
    ledger, refused = opened(path), []

    def work():
        for _ in range(5):
            try:
                ledger.reserve(
                    ks.geometric().guarantee(DOMAIN, UNIT, "0.1"), data="census-2020", recipe="geometric", plan="x"
                )
            except ks.BudgetError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 10 and ledger.verify()["balance"]["left"] == "0"


def test_the_published_reference_names_the_entry(path):
    out = spend(opened(path), "0.25")
    reference = out.provenance["ledger"]
    entry = Ledger.load(path).entries()[1]
    assert reference["hash"] == entry["hash"] and reference["entry"] == 2
    assert (reference["before"]["left"], reference["after"]["left"]) == ("1", "0.75")
    assert str(path) not in json.dumps(dict(out.provenance))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_draw")
@pytest.mark.parametrize(
    ("table", "match"),
    [
        (lambda: counts(data=None), "carry no data name"),
        (lambda: counts(data="census-2015"), "holds the budget of 'census-2020', not of 'census-2015'"),
        (lambda: counts(unit=ks.Unit("household", "add-remove", 1)), "protects one person"),
        (lambda: counts(unit=ks.Unit("person", "replace", 1)), "changes its records"),
        (lambda: counts(unit=ks.Unit("person", "add-remove", 2)), "at most 2 cells"),
    ],
)
def test_other_data_units_and_relations(path, table, match):
    ledger = opened(path)
    with pytest.raises(ks.PrivacyError, match=match):
        spend(ledger, table=table())
    assert ledger.summary()["entries"] == 1


@pytest.mark.usefixtures("no_draw")
@pytest.mark.parametrize("ledger", [[], ("a", "b"), "census.ledger", 1])
def test_exactly_one_ledger(ledger):
    with pytest.raises(ks.PrivacyError, match="one Ledger"):
        spend(ledger)


@pytest.mark.usefixtures("no_draw")
def test_two_ledgers_for_one_output(path, tmp_path):
    ledgers = [opened(path), opened(tmp_path / "second.ledger")]
    with pytest.raises(ks.PrivacyError, match="one Ledger"):
        spend(ledgers)
    assert [ledger.summary()["entries"] for ledger in ledgers] == [1, 1]


@pytest.mark.usefixtures("no_draw")
def test_a_wrong_release_is_refused_before_it_is_charged(path):
    ledger = opened(path)
    large = ks.Domain.of(ks.Ordered("place", 1 << 27))
    with pytest.raises(ks.DomainError):
        spend(ledger, table=ks.Counts.from_coo([], [], large, UNIT, data="census-2020"))
    for epsilon in (0.1, "0", "-1", "nan", None):
        with pytest.raises(ks.PrivacyError):
            spend(ledger, epsilon)
    assert ledger.summary()["entries"] == 1


@pytest.mark.parametrize(
    "words",
    [
        {"epsilon": "0"},
        {"epsilon": "-1"},
        {"epsilon": 1.0},
        {"epsilon": None},
        {"rho": "0.5"},
        {"epsilon": None, "rho": "0"},
        {"epsilon": None, "rho": "0.5", "delta": "1e-9"},
        {"delta": "1"},
        {"delta": "-1e-9"},
        {"delta": 1e-9},
        {"data": " "},
        {"data": None},
        {"unit": None},
        {"accounting": "pld"},
        {"accounting": "pld", "delta": "1e-9"},
        {"accounting": "zcdp"},
        {"accounting": "renyi"},
        {"series": ks.geometric().series(DOMAIN, UNIT, "0.1", 3)},
    ],
)
def test_bad_allowances(path, words):
    with pytest.raises(ks.PrivacyError):
        opened(path, **words)
    assert not path.exists()


@pytest.mark.parametrize(
    "words",
    [
        {"data": "census\ud800"},
        {"owner": "\ud800"},
        {"epsilon": 10**5000},
        {"epsilon": Fraction(1, 3**9999)},
    ],
)
def test_what_no_file_can_hold(path, words):
    with pytest.raises(ks.PrivacyError):
        opened(path, **words)
    assert not path.exists()


def test_sums_that_cannot_be_written_are_refused_and_spend_nothing(path):
    """Fractions of unlike denominators: their sum grows until no entry can hold it."""
    ledger = opened(path)
    spent = []

    def pay():
        for number in range(60):
            claim = ks.geometric().guarantee(DOMAIN, UNIT, f"{10**94}/{10**97 + 2 * number + 1}")
            ledger.reserve(claim, data="census-2020", recipe="geometric", plan="x")
            spent.append(claim.epsilon)

    with pytest.raises(ks.PrivacyError, match="cannot be written down"):
        pay()
    assert spent and Ledger.load(path).balance().spent == sum(spent)


@pytest.mark.parametrize(
    "words",
    [
        {"epsilon": "2"},
        {"epsilon": "0.5"},
        {"delta": "1e-9"},
        {"epsilon": None, "rho": "1"},
        {"data": "census-2025"},
        {"unit": ks.Unit("person", "replace", 1)},
    ],
)
def test_an_open_ledger_does_not_change(path, words):
    spend(opened(path))
    before = path.with_name("census.ledger.journal").read_bytes()
    with pytest.raises(ks.PrivacyError):
        opened(path, **words)
    assert path.with_name("census.ledger.journal").read_bytes() == before
    assert opened(path, epsilon="1.0").balance().left == Fraction(9, 10)  # the same number, written otherwise


@pytest.mark.usefixtures("no_draw")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder nobody can write to")
def test_a_read_only_folder(tmp_path):
    with pytest.raises(ks.PrivacyError, match=r"nothing was drawn|no such folder"):
        opened("/proc/self/census.ledger")
    with pytest.raises(ks.PrivacyError, match="no such folder"):
        opened(tmp_path / "missing" / "census.ledger")


@pytest.mark.usefixtures("no_draw")
def test_a_ledger_of_a_newer_version(path):
    opened(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    for act in (lambda: Ledger.load(path), lambda: opened(path), lambda: repair(path)):
        with pytest.raises(ks.FormatError, match="newer than this kasuri"):
            act()


def test_a_newer_journal_is_not_repaired(path):
    opened(path)
    journal = path.with_name("census.ledger.journal")
    path.unlink()
    journal.write_text(journal.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(ks.FormatError, match="newer"):
        repair(path)


def test_a_foreign_sqlite_file_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ks.FormatError, match="not a kasuri ledger"):
        opened(path)
    assert path.read_bytes() == before


def test_no_ledger_at_all(path):
    with pytest.raises(ks.DomainError, match="no such ledger"):
        Ledger.load(path)
    with pytest.raises(ks.DomainError, match="no such ledger"):
        repair(path)
    assert not path.exists()


# -- what is remembered -----------------------------------------------------------------------------------------------


def test_entries_cannot_be_changed_through_sqlite(path):
    spend(opened(path))
    connection = sqlite3.connect(path)
    for statement in ("DELETE FROM entries", "UPDATE entries SET body = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


def rewritten(path, number, old, new):
    """A forger who drops the triggers and edits one entry in both files, with its hash made right."""
    import hashlib

    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_stay")
    body = connection.execute("SELECT body FROM entries WHERE entry = ?", (number,)).fetchone()[0]
    forged = body.replace(old, new)
    assert forged != body
    digest = hashlib.sha256(forged.encode()).hexdigest()
    connection.execute("UPDATE entries SET body = ?, hash = ? WHERE entry = ?", (forged, digest, number))
    connection.commit()
    connection.close()
    journal = path.with_name("census.ledger.journal")
    lines = journal.read_text().splitlines(keepends=True)
    lines[number - 1] = f"{digest} {forged}\n"
    journal.write_text("".join(lines))


@pytest.mark.parametrize(
    ("number", "old", "new", "match"),
    [
        (2, '"epsilon":"0.1"', '"epsilon":"0.01"', "entry 2: the balance written"),
        (2, '"recipe":"geometric"', '"recipe":"other"', "entry 3: the chain is broken"),
        (1, '"epsilon":"1"', '"epsilon":"9"', "entry 2"),
        (4, '"of":3', '"of":1', "entry 4: settles entry 1"),
        (4, '"kind":"committed"', '"kind":"refunded"', "entry 4: kind 'refunded'"),
        (4, '"of":3', '"of": 3', "entry 4: not in canonical form"),
        (2, '"claim":', '"clam":', "entry 2: a field is missing"),
    ],
)
def test_a_broken_chain_is_refused(path, tmp_path, number, old, new, match):
    ledger = opened(path)
    spend(ledger)
    out = spend(ledger)
    out.save(str(tmp_path / "release"))
    rewritten(path, number, old, new)
    with pytest.raises(ks.FormatError, match=match):
        Ledger.load(path)
    with pytest.raises(ks.FormatError):
        ledger.verify()


def crashed_between(path, monkeypatch):
    """A charge that reached the journal and not the ledger."""
    ledger = opened(path)
    spend(ledger)
    real = sqlite3.connect

    class Dying(sqlite3.Connection):
        def execute(self, statement, *more):
            if statement == "COMMIT":
                raise KeyboardInterrupt
            return super().execute(statement, *more)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *words, **more: real(*words, **more, factory=Dying))
        with pytest.raises(KeyboardInterrupt):
            spend(ledger, "0.2")
    return ledger


def test_a_ledger_behind_its_journal_pays_nothing_until_repaired(path, monkeypatch):
    ledger = crashed_between(path, monkeypatch)
    for act in (lambda: spend(ledger), lambda: Ledger.load(path), lambda: opened(path), ledger.verify):
        with pytest.raises(ks.FormatError, match=r"disagrees with its journal .2 entries against 3.*repair"):
            act()
    result = repair(path)
    assert result["done"] == ["replayed from the journal, entries: 1"]
    assert result["balance"]["spent"] == "0.3"  # spent is spent
    spend(Ledger.load(path), "0.7")
    assert repair(path)["done"] == []


def test_a_journal_behind_its_ledger(path):
    ledger = opened(path)
    spend(ledger)
    journal = path.with_name("census.ledger.journal")
    whole = journal.read_bytes()
    for cut in (0, 10, len(whole) - 1, whole.index(b"\n") + 1, whole.index(b"\n") + 40):
        journal.write_bytes(whole[:cut])
        with pytest.raises(ks.FormatError, match="repair"):
            Ledger.load(path)
        with pytest.raises(ks.FormatError, match="repair"):
            ledger.balance()
        backup = path.read_bytes()
        repair(path)
        assert journal.read_bytes().startswith(whole)
        path.write_bytes(backup)
        journal.write_bytes(whole)
    journal.unlink()
    with pytest.raises(ks.FormatError, match="journal is gone"):
        Ledger.load(path)
    repair(path)
    assert Ledger.load(path).balance().left == Fraction(9, 10)


def test_a_lost_or_damaged_ledger_is_rebuilt(path, tmp_path):
    spend(opened(path))
    path.unlink()
    with pytest.raises(ks.FormatError, match="gone, while its journal"):
        Ledger.load(path)
    with pytest.raises(ks.FormatError, match="disagrees"):
        opened(path)
    repair(path)
    assert Ledger.load(path).balance().left == Fraction(9, 10)
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(ks.FormatError, match="damaged"):
        Ledger.load(path)
    assert "rebuilt the ledger from its journal" in repair(path)["done"]
    assert Ledger.load(path).verify()["balance"]["left"] == "0.9"
    assert (tmp_path / "census.ledger.damaged-1").exists()


def test_a_torn_line_that_nobody_was_promised(path):
    spend(opened(path))
    journal = path.with_name("census.ledger.journal")
    with open(journal, "ab") as out:
        out.write(b'abc {"entry":3')
    with pytest.raises(ks.FormatError, match="broken last line"):
        Ledger.load(path)
    assert repair(path)["done"] == ["cut off a broken end of the journal"]
    assert Ledger.load(path).balance().left == Fraction(9, 10)


def test_a_whole_entry_without_its_line_end_is_kept(path):
    ledger = opened(path)
    spend(ledger, "0.3")
    before = path.read_bytes()
    spend(ledger, "0.3")
    path.write_bytes(before)  # SQLite lost the entry, and the journal the end of its line
    journal = path.with_name("census.ledger.journal")
    journal.write_bytes(journal.read_bytes()[:-1])
    assert "ended the last line of the journal" in repair(path)["done"]
    assert Ledger.load(path).balance().spent == Fraction(6, 10)


def test_a_flipped_byte_in_an_entry_is_repaired(path):
    """A body that is no longer UTF-8 is damage like any other."""
    spend(opened(path))
    data = bytearray(path.read_bytes())
    data[data.rfind(b"geometric")] = 0xFF
    path.write_bytes(data)
    with pytest.raises(ks.FormatError, match="repair"):
        Ledger.load(path)
    assert "rebuilt the ledger from its journal" in repair(path)["done"]
    assert Ledger.load(path).balance().spent == Fraction(1, 10)


def freelist(data):
    data[36:40] = b"\0\0\0\7"  # SQLite's integrity check fails, every row can be read


def schema(data):
    data[100] = 0  # no page of a table: SQLite reads nothing


def body(data):
    data[data.rfind(b"geometric")] = 0xFF


def header(data):
    data[:16] = b"x" * 16


@pytest.mark.parametrize("damage", [freelist, schema, body, header])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_repair_forgets_no_entry_that_either_file_shows(path, damage, cut):
    """A damaged SQLite file and a journal cut at a line: what the first still shows is not written off."""
    ledger = opened(path)
    for _ in range(5):
        spend(ledger)
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    journal = path.with_name("census.ledger.journal")
    whole = journal.read_bytes()
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:cut]))
    short = journal.read_bytes()
    with pytest.raises(ks.FormatError, match="by hand"):
        repair(path)
    assert journal.read_bytes() == short and path.read_bytes() == bytes(data)  # nothing was changed
    journal.write_bytes(whole)
    repair(path)
    assert Ledger.load(path).balance().spent == Fraction(5, 10)


def test_a_fork_under_the_lock_does_not_keep_it(path, monkeypatch):
    from kasuri.budget.ledger import files

    monkeypatch.setattr(files, "WAIT", 1.0)
    ledger = opened(path)
    reading, writing = os.pipe()
    with ledger._locked(create=False):
        child = os.fork()
        if child == 0:  # it holds the journal open until the parent is done
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        assert Ledger.load(path).balance().left == 1
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_a_fork_beside_a_busy_thread(path):
    """The child of a process whose other thread was paying: that thread is not there to leave."""
    ledger = opened(path)
    with ledger._mutex:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if ledger.balance().left == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_histories_are_left_alone(path, tmp_path):
    opened(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("census.ledger*"):
        shutil.copy(file, copy / file.name)
    spend(Ledger.load(path), "0.1")
    spend(Ledger.load(copy / "census.ledger"), "0.2")
    shutil.copy(copy / "census.ledger.journal", path.with_name("census.ledger.journal"))
    with pytest.raises(ks.FormatError, match="disagrees"):
        Ledger.load(path)
    with pytest.raises(ks.FormatError, match="different histories from entry 2"):
        repair(path)


def test_a_ledger_put_back_is_seen_by_who_remembers(path, tmp_path):
    """Both files put back together is the stated limit; a process that had seen more refuses all the same."""
    ledger = opened(path)
    old = {file: file.read_bytes() for file in tmp_path.glob("census.ledger*")}
    spend(ledger)
    for file, data in old.items():
        file.write_bytes(data)
    with pytest.raises(ks.FormatError, match="gone or changed"):
        spend(ledger)


def test_links_lead_to_one_journal(path, tmp_path):
    spend(opened(path))
    (tmp_path / "link.ledger").symlink_to(path)
    spend(Ledger.load(tmp_path / "link.ledger"))
    assert Ledger.load(path).balance().left == Fraction(8, 10)
    assert not (tmp_path / "link.ledger.journal").exists()


# -- accounting -------------------------------------------------------------------------------------------------------


def test_epsilon_and_delta(path):
    ledger = opened(path, delta="1e-9")
    claim = replace(ks.geometric().guarantee(DOMAIN, UNIT, "0.1"), delta=Fraction("6e-10"))
    reserve = {"data": "census-2020", "recipe": "x", "plan": "x"}
    ledger.reserve(claim, **reserve)
    with pytest.raises(ks.BudgetError, match=r"delta 0.0000000004 is left"):
        ledger.reserve(claim, **reserve)
    with pytest.raises(ks.PrivacyError, match="central releases of a data set, not for local"):
        ledger.reserve(replace(claim, model="local"), **reserve)
    assert Ledger.load(path).balance().delta_spent == Fraction("6e-10")


def test_zcdp(path):
    ledger = opened(path, epsilon=None, rho="0.01")
    spend(ledger, "0.1")  # 0.005
    gaussian = replace(ks.geometric().guarantee(DOMAIN, UNIT, "1"), rho=Fraction("0.004"), delta=Fraction("1e-9"))
    reserve = {"data": "census-2020", "recipe": "x", "plan": "x"}
    ledger.reserve(gaussian, **reserve)
    assert ledger.balance().left == Fraction("0.001")
    with pytest.raises(ks.BudgetError, match=r"rho 0.001 is left"):
        spend(ledger, "0.1")
    with pytest.raises(ks.PrivacyError, match="no rho"):
        ledger.reserve(replace(gaussian, rho=None), **reserve)
    assert Ledger.load(path).verify()["balance"]["spent"] == "0.009"


def test_a_declared_series(path):
    recipe = ks.haar_topdown()
    series = recipe.series(DOMAIN, UNIT, "0.1", 100)
    price = series.price(Fraction("1e-9"))
    assert price < 10
    ledger = opened(path, "5", delta="1e-9", accounting="pld", series=series)
    assert ledger.balance().left == 5 - price  # set aside from the start
    for number in range(1, 6):
        spend(ledger, "0.1", recipe=recipe)
        assert ledger.balance().spent == Fraction(number, 10)  # never above the pure sum
    spend(ledger, "0.2")  # not of the series: a pure sum beside it
    assert ledger.balance().left == 5 - price - Fraction(2, 10)
    spend(ledger, "0.1")  # the epsilon of the series, but another recipe
    assert ledger.balance().left == 5 - price - Fraction(3, 10)
    assert ledger.summary()["series"] == {"released": 5, "declared": 100}
    with pytest.raises(ks.BudgetError):
        spend(ledger, decimal_text(5 - price))
    again = opened(path, "5", delta="1e-9", accounting="pld", series=series)
    assert again.verify()["balance"] == ledger.balance().to_json()


def decimal_text(value):
    from kasuri.privacy import decimal

    return decimal(value)


def test_a_series_ends(path):
    recipe = ks.haar_topdown()
    series = recipe.series(DOMAIN, UNIT, "0.1", 60)
    price = series.price(Fraction("1e-9"))
    ledger = opened(path, decimal_text(price + Fraction(1, 10)), delta="1e-9", accounting="pld", series=series)
    claim, plan = recipe.guarantee(DOMAIN, UNIT, "0.1"), recipe.plan(DOMAIN, UNIT, "0.1")
    for number in range(1, 61):
        ledger.reserve(claim, data="census-2020", recipe=recipe.name, plan=plan)
        assert ledger.balance().spent == min(Fraction(number, 10), price)
    assert ledger.balance().left == Fraction(1, 10)
    spend(ledger, "0.1", recipe=recipe)  # the 61st is an ordinary release
    with pytest.raises(ks.BudgetError):
        spend(ledger, "0.1", recipe=recipe)


def test_a_release_dearer_than_its_series_is_not_of_it(path):
    """A series that declares less than its plan costs buys nothing."""
    recipe = ks.geometric()
    honest = recipe.series(DOMAIN, UNIT, "10", 100)
    lie = replace(honest, epsilon=Fraction(1, 1000), losses=((Fraction(1, 1000), 1),))
    ledger = opened(path, "1", delta="1e-9", accounting="pld", series=lie)
    with pytest.raises(ks.BudgetError):
        spend(ledger, "10")
    claim = replace(recipe.guarantee(DOMAIN, UNIT, "0.001"), delta=Fraction("1e-9"))
    with pytest.raises(ks.BudgetError):  # the series takes all of delta
        ledger.reserve(claim, data="census-2020", recipe="geometric", plan=lie.plan)
    assert ledger.summary()["series"]["released"] == 0


def test_replay_does_not_count_a_dearer_release_as_of_the_series(path):
    recipe = ks.geometric()
    series = recipe.series(DOMAIN, UNIT, "0.1", 10)
    ledger = opened(path, "5", delta="1e-9", accounting="pld", series=series)
    spend(ledger, recipe=recipe)
    rewritten(path, 2, '"epsilon":"0.1"', '"epsilon":"0.2"')
    with pytest.raises(ks.FormatError, match="entry 2: the balance"):
        Ledger.load(path)


def test_a_series_that_does_not_fit(path):
    series = ks.geometric().series(DOMAIN, UNIT, "0.1", 720)
    with pytest.raises(ks.BudgetError, match=r"series costs epsilon 19.0"):
        opened(path, "19", delta="1e-9", accounting="pld", series=series)
    assert not path.exists()
    for releases in (0, -1, 1.5, True):
        with pytest.raises(ks.PrivacyError, match="whole number"):
            ks.geometric().series(DOMAIN, UNIT, "0.1", releases)


def test_the_fingerprint_of_a_plan(path):
    """Equal releases have one; a change of recipe, option, domain, mask, unit or epsilon gives another."""
    plan = ks.haar_topdown().plan(DOMAIN, UNIT, "0.1")
    assert plan == ks.haar_topdown().plan(DOMAIN, UNIT, "0.10")
    masked = ks.Domain.of(*DOMAIN.axes, mask={"grid": np.eye(4, dtype=bool)})
    others = [
        ks.haar_topdown(descent="jump").plan(DOMAIN, UNIT, "0.1"),
        ks.privelet().plan(DOMAIN, UNIT, "0.1"),
        ks.haar_topdown().plan(masked, UNIT, "0.1"),
        ks.haar_topdown().plan(DOMAIN, ks.Unit("person", "replace", 1), "0.1"),
        ks.haar_topdown().plan(DOMAIN, UNIT, "0.2"),
    ]
    assert len({plan, *others}) == 6


# -- parallel composition ---------------------------------------------------------------------------------------------

SEXES = ks.Domain.of(
    ks.Mesh("grid", shape=(3, 5)), ks.Nominal("sex", ("f", "m", "x")), ks.Ordered("age", 2, ("a", "b"))
)


def by_sex(unit=UNIT):
    values = np.arange(3 * 5 * 3 * 2).reshape(SEXES.shape)
    return values, ks.Counts.from_dense(values, SEXES, unit, data="census-2020")


def test_split_is_a_partition():
    values, table = by_sex()
    parts = table.split("sex")
    assert list(parts) == ["f", "m", "x"]
    for index, part in enumerate(parts.values()):
        assert part.domain.dims == ("row", "col", "age")
        dense = np.zeros(part.domain.size, dtype=int)
        dense[part.cells] = part.values
        assert np.array_equal(dense.reshape(part.domain.shape), values[:, :, index])
        assert part.assumes == table.assumes and part.data == table.data
    assert len({part.part.split for part in parts.values()}) == 1


def test_parts_of_one_split_cost_the_dearest(path):
    ledger = opened(path)
    parts = by_sex()[1].split("sex")
    for name, epsilon, left in (("f", "0.2", "0.8"), ("m", "0.3", "0.7"), ("x", "0.3", "0.7"), ("f", "0.2", "0.6")):
        spend(ledger, epsilon, table=parts[name])
        assert ledger.balance().left == Fraction(left)
    assert Ledger.load(path).verify()["balance"]["left"] == "0.6"


def test_two_counts_always_add(path):
    ledger = opened(path)
    first, second = by_sex()[1].split("sex"), by_sex()[1].split("sex")
    spend(ledger, "0.2", table=first["f"])
    spend(ledger, "0.2", table=second["m"])
    assert ledger.balance().left == Fraction(6, 10)


def test_with_two_cells_each_the_two_dearest_add(path):
    unit = ks.Unit("person", "add-remove", 2)
    ledger = opened(path, unit=unit)
    parts = by_sex(unit)[1].split("sex")
    for name, epsilon, left in (("f", "0.1", "0.9"), ("m", "0.3", "0.6"), ("x", "0.2", "0.5")):
        spend(ledger, epsilon, table=parts[name])
        assert ledger.balance().left == Fraction(left)


def test_under_replace_parts_add(path):
    unit = ks.Unit("person", "replace", 1)
    ledger = opened(path, unit=unit)
    parts = by_sex(unit)[1].split("sex")
    spend(ledger, "0.2", table=parts["f"])
    spend(ledger, "0.2", table=parts["m"])
    assert ledger.balance().left == Fraction(6, 10)


def test_what_cannot_be_split():
    hours = ks.Domain.of(ks.Time("hour", "2020-10-01T00:00", 3600, 4), ks.Nominal("sex", ("f", "m")))
    table = ks.Counts.from_dense(np.ones((4, 2), dtype=int), hours, UNIT)
    with pytest.raises(ks.DomainError, match="time and mesh"):
        table.split("hour")
    with pytest.raises(ks.DomainError, match="no axis"):
        table.split("age")
    with pytest.raises(ks.DomainError, match=r"not split again.*|no other axis"):
        table.split("sex")["f"].split("hour")
    masked = ks.Domain.of(*hours.axes, mask={"sex": np.array([True, False])})
    with pytest.raises(ks.DomainError, match="has a mask"):
        ks.Counts.from_coo([], [], masked, UNIT).split("sex")


# -- the command line -------------------------------------------------------------------------------------------------


def command(*words):
    from kasuri.cli.ledger import app

    return CliRunner().invoke(app, [str(word) for word in words])


OPEN = ("--data", "census-2020", "--unit", "person", "--change", "add-remove", "--max-cells", 1, "--epsilon", 1)


def test_commands(path, tmp_path):
    assert command("open", path, *OPEN).exit_code == 0
    ledger = Ledger.load(path)
    spend(ledger, "0.4").save(str(tmp_path / "release"))
    shown = command("show", path)
    assert shown.exit_code == 0 and "left       epsilon 0.6" in shown.stdout
    assert json.loads(command("show", path, "--json").stdout)["balance"]["left"] == "0.6"
    assert json.loads(command("verify", path, "--json").stdout)["ok"] is True
    exported = json.loads(command("export", path, "--json").stdout)
    assert [entry["kind"] for entry in exported["chain"]] == ["opened", "reserved", "committed"]
    assert command("export", path).stdout.count("\n") == 3
    assert "nothing to repair" in command("repair", path).stdout
    refused = command("open", path, *OPEN[:-1], 2)
    assert isinstance(refused.exception, ks.PrivacyError)


def test_open_declares_a_series(path, tmp_path):
    (tmp_path / "domain.json").write_text(json.dumps(DOMAIN.to_json()))
    series = ("--releases", 100, "--each", "0.1", "--domain", tmp_path / "domain.json", "--delta", "1e-9")
    result = command("open", path, *OPEN[:-1], 5, *series, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["series"] == {"released": 0, "declared": 100}
    spend(Ledger.load(path), "0.1", recipe=ks.haar_topdown())
    assert Ledger.load(path).summary()["series"]["released"] == 1
    assert command("open", path, *OPEN, "--releases", 3).exit_code == 2


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ((), "19.0269"),
        (("--recipe", "haar_topdown", "--cells", "512x512"), "3.637064"),
        (("--recipe", "haar_topdown", "--cells", 262144), "3.637064"),
        (("--recipe", "haar_topdown", "--cells", 262144, "--max-cells", 2), "19.0269"),
        (("--levels", 5), "7.552062"),
    ],
)
def test_plan(words, least):
    result = command("plan", "--releases", 720, "--epsilon", "0.1", "--delta", "1e-9", *words, "--json")
    assert json.loads(result.stdout)["pure"] == "72"
    assert json.loads(result.stdout)["least"] == least
    text = command("plan", "--releases", 720, "--epsilon", "0.1", "--delta", "1e-9", *words).stdout
    assert "epsilon 72\n" in text and f"epsilon {least} at delta 1e-9" in text


def test_a_plan_says_its_relation():
    words = ("plan", "--releases", 720, "--epsilon", "0.1", "--delta", "1e-9", "--recipe", "haar_topdown", "--cells", 9)
    assert "when one unit, in 1 cell, enters or leaves the data" in command(*words).stdout
    replaced = json.loads(command(*words, "--change", "replace", "--json").stdout)
    assert replaced["relation"].endswith("changes its records") and replaced["least"] == "19.0269"  # the generic pair


@pytest.mark.parametrize("text", ['{"axes": [1]}', '{"axes": [1], "mask": []}', "[" * 100_000, "1"])
def test_a_domain_that_is_none(path, tmp_path, text):
    (tmp_path / "domain.json").write_text(text)
    series = ("--releases", 3, "--each", "0.1", "--domain", tmp_path / "domain.json", "--delta", "1e-9")
    assert command("open", path, *OPEN, *series).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--recipe", "haar_topdown"),
        ("--cells", "9"),
        ("--recipe", "nothing", "--cells", "9"),
        ("--recipe", "geometric", "--cells", "9x9x9"),
        ("--levels", 0),
        ("--levels", 2, "--recipe", "geometric", "--cells", "9"),
    ],
)
def test_bad_plans(words):
    assert command("plan", "--releases", 3, "--epsilon", "0.1", "--delta", "1e-9", *words).exit_code == 2
