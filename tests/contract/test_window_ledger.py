"""A ledger of a series without end: its ten rules (docs/proofs/window.md), and crashes, races, rollbacks, flips."""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from contract.test_forgeries import saved as forge

import kasuri as ks
from kasuri.budget.declared import Declared
from kasuri.budget.gaussian import Normal
from kasuri.budget.ledger import Ledger, repair
from kasuri.budget.window import Beside, dearest_window, prices
from kasuri.manifest import verify
from kasuri.noise.rng import Source

UNIT = ks.Unit("phone", "add-remove", 1, per="slot")
DOMAIN = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)))
WINDOW = ks.Window("6h", slot="1h", zone="+09:00")
RECIPE = ks.refined_tree("series", noise="gaussian", delta="1e-6")
DAY = "2020-10-01T{:02d}:00+09:00"


def opened(path, **more):
    given = {"epsilon": "1", "delta": "1e-6", "unit": UNIT, "data": "flow", "window": WINDOW}
    return Ledger.open(path, **given | {"recipe": RECIPE, "domain": DOMAIN} | more)


def table(unit=UNIT, data="flow"):
    return ks.Counts.from_dense(np.full((4, 4), 7), DOMAIN, unit, data=data)


def pay(ledger, hour, recipe=RECIPE, epsilon=None, counts=None, **more):
    each = ledger.allowance.series.epsilon if epsilon is None else epsilon
    slot = DAY.format(hour) if isinstance(hour, int) else hour
    return ks.release(counts or table(), recipe, epsilon=each, ledger=ledger, slots=slot, threads=1, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "flow.ledger"


@pytest.fixture
def no_draw(monkeypatch):
    def refuse(self):
        raise AssertionError("a key was made")

    monkeypatch.setattr(Source, "release_key", refuse)


# -- 1: the price of a window is fixed when the ledger is opened, and nothing is used up -------------------------------


def test_every_slot_costs_the_window_nothing_more_for_ever(path):
    ledger = opened(path)
    before = ledger.balance()
    assert Fraction(99, 100) < ledger.allowance.price <= 1
    for hour in range(14):  # more than two windows
        pay(ledger, hour)
    assert ledger.balance() == before and ledger.summary()["window"]["paid"] == 14
    assert ledger.verify()["window"]["paid"] == 14


def test_prices_of_a_week(tmp_path):
    """SERIES: week 1 = .070 an hour, .36 a day, 2.15 a month, 8.4 a year at delta 1e-9."""
    domain, week = ks.Domain.of(ks.Mesh("grid", shape=(128, 128))), ks.Window("7d", slot="1h")
    recipe = ks.refined_tree("series", noise="gaussian", delta="1e-9")
    series = recipe.recurring(domain, UNIT, week, "1", "1e-9")
    found = {name: float(price) for name, _, price in prices(series, week, Fraction(1, 10**9))}
    assert found["7d"] <= 1
    for name, wanted in {"1h": 0.0696, "1d": 0.3625, "7d": 1.0, "30d": 2.15, "365d": 8.36}.items():
        assert abs(found[name] / wanted - 1) < 0.01, name


def test_a_window_is_said_to_be_of_whole_slots():
    """One that begins inside a slot touches one slot more."""
    assert ks.Window("7d", slot="1h").words() == "any 7 consecutive days (168 whole slots)"
    assert ks.Window("30d", slot="30d").words() == "any 30 consecutive days (1 whole slot)"


def test_a_window_too_long_for_its_epsilon_is_refused(path):
    with pytest.raises(ks.PrivacyError):
        opened(path, epsilon="0.0001")
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window": None}, "go together"),
        ({"recipe": None}, "go together"),
        ({"delta": None}, "needs a delta"),
        ({"unit": ks.Unit("phone", "add-remove", 1)}, 'per="slot"'),
        ({"aside": "1"}, "set aside"),
    ],
)
def test_what_cannot_be_opened(path, change, words):
    with pytest.raises(ks.PrivacyError, match=words):
        opened(path, **change)
    assert not path.exists()


def test_an_open_ledger_is_opened_again_as_it_was_only(path):
    opened(path)
    opened(path)
    for change in ({"window": ks.Window("5h", slot="1h", zone="+09:00")}, {"epsilon": "0.9"}, {"data": "other"}):
        with pytest.raises(ks.PrivacyError):
            opened(path, **change)


# -- 2: a slot is paid once --------------------------------------------------------------------------------------------


def test_a_slot_is_paid_once(path, monkeypatch):
    ledger = opened(path)
    pay(ledger, 3)
    drawn = []
    make = Source.release_key
    monkeypatch.setattr(Source, "release_key", lambda self: drawn.append(1) or make(self))
    with pytest.raises(ks.BudgetError, match="drawn once"):
        pay(ledger, 3)
    assert not drawn
    assert ledger.summary()["window"]["paid"] == 1


def test_a_crash_after_the_charge_has_spent_the_slot(path, monkeypatch):
    ledger = opened(path)
    with monkeypatch.context() as patch:
        patch.setattr("kasuri.draw.draw", lambda *words: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pay(ledger, 3)
    with pytest.raises(ks.BudgetError, match="paid for"):
        pay(Ledger.load(path), 3)


# -- 3: constant schedules only; 4: order and the future ---------------------------------------------------------------


def test_a_varying_schedule_is_refused_with_the_reason(path, no_draw):
    ledger = opened(path)
    each = ledger.allowance.series.epsilon
    for recipe, epsilon in (
        (RECIPE, each * 2),
        (RECIPE, each / 2),
        (ks.refined_tree(noise="gaussian", delta="1e-6"), each),
    ):
        with pytest.raises(ks.PrivacyError, match="schedule of a window ledger is constant"):
            pay(ledger, 3, recipe, epsilon)
    assert ledger.summary()["entries"] == 1


def test_slots_may_come_late_and_out_of_order(path):
    ledger = opened(path)
    for hour in (5, 2, 9, 0):
        pay(ledger, hour)
    assert len(ledger.paid_slots()) == 4


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        ("2020-10-01T03:00", "no zone"),
        ("2020-10-01T03:00+00:00", "another zone"),
        ("2020-10-01T03:30+09:00", "overlaps"),
        ("yesterday", "ISO 8601"),
    ],
)
def test_what_is_no_slot(path, no_draw, slot, words):
    with pytest.raises(ks.DomainError, match=words):
        pay(opened(path), slot)


def test_a_slot_of_the_future_is_refused(path, no_draw):
    ledger = opened(path)
    zone = WINDOW.start(0).tzinfo
    now = datetime.now(zone).replace(minute=0, second=0, microsecond=0)
    for start in (now, now + timedelta(hours=5)):
        with pytest.raises(ks.PrivacyError, match="has not ended"):
            pay(ledger, start.isoformat())


def test_an_entry_for_a_slot_of_the_future_is_not_believed(path):
    """As if another clock had written it: the rules are checked again whenever entries are read."""
    ledger = opened(path)
    later = WINDOW.index(datetime.now(WINDOW.start(0).tzinfo).replace(minute=0, second=0, microsecond=0)) + 9
    guarantee = RECIPE.guarantee(DOMAIN, UNIT, ledger.allowance.series.epsilon)
    ledger._slots = lambda slots, unit: {"slots": [later, later]}
    with pytest.raises(ks.FormatError, match="had not ended"):
        ledger.reserve(guarantee, data="flow", recipe="refined_tree", plan=ledger.allowance.series.plan, slots=None)
    assert Ledger.load(path).summary()["entries"] == 1


# -- 6, 7: other releases of the same data are charged to every window that they touch ---------------------------------


def test_the_dearest_window_slides():
    """Against all windows, one by one; the front-loaded pair fits calendar windows and not a sliding one."""
    front = [Beside((5, 5), Fraction(1, 2)), Beside((6, 6), Fraction(1, 2))]
    assert dearest_window(front, 6) == 1  # a calendar of 0..5, 6..11 would say 1/2
    rng = np.random.default_rng(5)
    for _ in range(200):
        width = int(rng.integers(1, 9))
        some = []
        for _ in range(int(rng.integers(1, 9))):
            first = int(rng.integers(0, 30))
            slots = None if rng.random() < 0.2 else (first, first + int(rng.integers(0, 7)))
            some.append(Beside(slots, Fraction(int(rng.integers(1, 9)), 8)))
        slow = max(
            sum(o.cost for o in some if o.slots is None or (o.slots[0] < i + width and o.slots[1] >= i))
            for i in range(-10, 50)
        )
        assert dearest_window(some, width) == slow


def test_other_releases_are_paid_from_what_was_set_aside(path):
    ledger = opened(path, aside="0.3")
    plain = ks.Unit("phone", "add-remove", 2)
    pay(ledger, 3)
    pay(ledger, 3, ks.geometric(), "0.1")  # another map of the same hour
    assert ledger.balance().spent == Fraction(1, 10)
    pay(ledger, 12, ks.geometric(), "0.1")  # a window away: no window holds both
    assert ledger.balance().spent == Fraction(1, 10)
    pay(ledger, 8, ks.geometric(), "0.1")  # with either of them in one window
    assert ledger.balance().spent == Fraction(2, 10)
    with pytest.raises(ks.BudgetError):
        pay(ledger, 5, ks.geometric(), "0.2")
    assert ledger.verify()["balance"]["spent"] == "0.2"
    with pytest.raises(ks.BudgetError):  # without slots it counts in every window, twice: see window.beside
        ks.release(table(plain), ks.geometric(), epsilon="0.08", ledger=ledger)
    ks.release(table(plain), ks.geometric(), epsilon="0.04", ledger=ledger)
    assert ledger.balance().spent == Fraction(28, 100)


def test_the_price_of_a_span_has_what_was_released_beside_the_series(path):
    """Whoever is counted in every slot of a span is in those releases as well."""
    ledger = opened(path, aside="0.3")
    told = lambda: {row["slots"]: Fraction(row["epsilon"]) for row in ledger.summary()["window"]["prices"]}  # noqa: E731
    alone = told()
    for hour in (3, 8, 9):
        pay(ledger, hour, ks.geometric(), "0.1")
    more = {slots: found - alone[slots] for slots, found in told().items()}
    tenth = Fraction(1, 10)
    assert (more[1], more[6], more[24]) == (tenth, 2 * tenth, 3 * tenth)
    series = ks.Series.open(path.with_name("series"), ledger=ledger, recipe=RECIPE, domain=DOMAIN)
    assert {row["slots"]: Fraction(row["epsilon"]) for row in series.status()["prices"]} == told()


def test_nothing_beside_where_nothing_was_set_aside(path, no_draw):
    with pytest.raises(ks.BudgetError):
        pay(opened(path), 3, ks.geometric(), "0.1")


def test_a_unit_of_one_slot_is_not_charged_for_several(path, no_draw):
    """Its bound holds in each slot: a table of a day moves by 24 such counts, not by one."""
    ledger = opened(path, aside="0.5")
    for slots in (None, (DAY.format(0), DAY.format(5))):
        with pytest.raises(ks.PrivacyError, match="records of one slot"):
            ks.release(table(), ks.geometric(), epsilon="0.1", ledger=ledger, slots=slots)


def test_a_unit_of_one_slot_has_no_time_axis_and_no_plain_ledger(tmp_path, no_draw):
    timed = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)), ks.Time("hour", "2020-10-01T00:00", 3600, 24))
    counts = ks.Counts.from_dense(np.zeros(timed.shape, dtype=int), timed, UNIT, data="flow")
    with pytest.raises(ks.PrivacyError, match="time axis"):
        ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    with pytest.raises(ks.PrivacyError, match="go together"):
        Ledger.open(tmp_path / "plain", epsilon="1", unit=UNIT, data="flow")
    plain = Ledger.open(tmp_path / "plain", epsilon="1", unit=ks.Unit("phone", "add-remove", 1), data="flow")
    with pytest.raises(ks.PrivacyError):
        ks.release(table(), ks.geometric(), epsilon="0.1", ledger=plain)
    other = table(ks.Unit("phone", "add-remove", 1))
    with pytest.raises(ks.PrivacyError, match="has no slots"):
        ks.release(other, ks.geometric(), epsilon="0.1", ledger=plain, slots=DAY.format(0))


# -- 10: the price covers the enumerated law ---------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "slots"), [("0.7", 2), ("1", 3), ("2", 2)])
def test_the_price_covers_the_law_of_a_window(scale, slots):
    """All outputs of `slots` slots of two measured levels, one by one."""
    square = Fraction(scale) ** 2
    normal = Normal(Fraction(2) / (2 * square), ((square, 2),))
    delta = Fraction(1, 1000)
    each = normal.price(delta)
    window = Declared("tree", "plan", each, normal, slots, delta).price(delta)
    reach = math.ceil(9 * float(scale))
    at = np.arange(-reach, reach + 1)
    mass = np.exp(-(at**2) / (2 * float(square)))
    mass /= mass.sum()
    shifted = np.exp(-((at - 1) ** 2) / (2 * float(square)))
    shifted /= np.exp(-(np.arange(-reach * 2, reach * 2) ** 2) / (2 * float(square))).sum()
    law = {0.0: 1.0}
    for _ in range(2 * slots):  # the pair of every number, joined
        step = {}
        for (loss, chance), i in itertools.product(law.items(), range(at.size)):
            own = round(loss + math.log(mass[i] / shifted[i]), 9)
            step[own] = step.get(own, 0.0) + chance * mass[i]
        law = step
    spent, less = (
        sum(chance * -math.expm1(epsilon - loss) for loss, chance in law.items() if loss > epsilon)
        for epsilon in (float(window), 0.97 * float(window))
    )
    assert spent <= float(delta) * (1 + 1e-9) < less  # never undercut, and close


# -- releases, receipts ------------------------------------------------------------------------------------------------


def test_a_release_of_a_slot_says_what_it_is_a_part_of(path, tmp_path):
    ledger = opened(path)
    out = pay(ledger, 3)
    assert out.provenance["ledger"]["window"]["slot"] == DAY.format(3)
    out.save(str(tmp_path / "slot"))
    assert verify(str(tmp_path / "slot"), ledger=str(path))["ok"]
    said = (tmp_path / "slot" / "certificate.md").read_text(encoding="utf-8")
    assert "any 6 consecutive hours" in said and "a longer one costs more" in said
    loaded = ks.Release.load(str(tmp_path / "slot"))
    assert loaded.guarantee.unit == UNIT
    manifest = tmp_path / "slot" / "datapackage.json"
    forged = json.loads(manifest.read_text())
    forged["privacy"]["accounting"]["ledger"]["window"]["price"] = "0.5"
    manifest.write_text(json.dumps(forged))
    assert not verify(str(tmp_path / "slot"))["ok"]


@pytest.mark.parametrize(
    "told",
    [{"words": "any 10 years"}, {"delta": "1e-30"}, {"slot": "2020-10-01T03:00+00:00 "}, {"note": "x"}],
    ids=lambda told: next(iter(told)),
)
def test_a_slot_says_what_its_window_does(path, tmp_path, told):
    """Its certificate prints the span in words, and delta: whoever edits both has made no ledger say so."""
    out = pay(opened(path), 3)
    said = json.loads(json.dumps(dict(out.provenance["ledger"])))
    forged = replace(out, provenance=MappingProxyType({**out.provenance, "ledger": said}))
    assert verify(forge(tmp_path / "slot", forged))["ok"]
    said["window"] |= told
    faults = verify(forge(tmp_path / "forged", forged))["faults"]
    assert any("receipt says something else" in fault or "cannot be read" in fault for fault in faults), faults


# -- crash, race, rollback, flip ---------------------------------------------------------------------------------------

RIVAL = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
import kasuri as ks
from kasuri.budget.ledger import Ledger
from kasuri.noise.rng import Source
from contract.test_window_ledger import RECIPE, pay, table
make = Source.release_key
def told(self):
    print(slot, flush=True)
    return make(self)
Source.release_key = told
ledger = Ledger.load({path!r})
for slot in range({first}, 12):
    try:
        pay(ledger, slot)
    except ks.BudgetError:
        pass
"""


def test_rivals_draw_every_slot_once(path):
    opened(path)
    tests = os.path.dirname(os.path.dirname(__file__))
    text = [RIVAL.format(tests=tests, path=str(path), first=first) for first in (0, 0, 3)]
    running = [subprocess.Popen([sys.executable, "-c", one], stdout=subprocess.PIPE, text=True) for one in text]
    drawn = [int(line) for one in running for line in one.communicate(timeout=120)[0].split()]
    assert sorted(drawn) == list(range(12))
    assert Ledger.load(path).verify()["window"]["paid"] == 12


def test_a_rolled_back_file_is_noticed_and_repaired(path, tmp_path):
    ledger = opened(path)
    pay(ledger, 1)
    for file in tmp_path.glob("flow.ledger*"):
        shutil.copy(file, tmp_path / f"old-{file.name}")
    pay(ledger, 2)
    for name in ("flow.ledger", "flow.ledger.journal"):
        kept = (tmp_path / name).read_bytes()
        for side in tmp_path.glob("flow.ledger-*"):
            side.unlink()
        shutil.copy(tmp_path / f"old-{name}", tmp_path / name)
        with pytest.raises(ks.KasuriError):
            pay(Ledger.load(path), 2)
        repair(path)
        with pytest.raises(ks.BudgetError, match="paid for"):
            pay(Ledger.load(path), 2)
        assert kept


def test_no_flipped_byte_frees_a_slot(path, tmp_path):
    ledger = opened(path)
    pay(ledger, 1)
    pay(ledger, 2)
    journal = tmp_path / "flow.ledger.journal"
    whole = journal.read_bytes()
    rng = np.random.default_rng(3)
    for at in rng.choice(len(whole), 40, replace=False):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << int(rng.integers(0, 8))
        journal.write_bytes(bytes(flipped))
        with pytest.raises(ks.KasuriError):
            pay(Ledger.load(path), 2)
    journal.write_bytes(whole)
    assert Ledger.load(path).summary()["window"]["paid"] == 2


def test_a_line_without_its_draw_is_spent(path):
    """A crash between the journal and SQLite: the journal knows more, and the slot stays paid."""
    ledger = opened(path)
    pay(ledger, 1)
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from kasuri.budget.ledger import Ledger, files
from contract.test_window_ledger import pay
append = files.append
def dies(*words):
    append(*words)
    os._exit(9)
files.append = dies
pay(Ledger.load({str(path)!r}), 2)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 9
    with pytest.raises(ks.FormatError):
        Ledger.load(path)
    repair(path)
    with pytest.raises(ks.BudgetError, match="paid for"):
        pay(Ledger.load(path), 2)


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("7", "1h"), ("7d", "5h"), ("1h", "1d"), ("7d", "1s"), ("7d", "1h", "Asia/Tokyo")])
def test_what_is_no_window(words):
    with pytest.raises(ks.PrivacyError):
        ks.Window(*words)


def test_slots_are_numbered_in_their_zone():
    day = ks.Window("7d", slot="1d", zone="+09:00")
    assert day.label(day.index("2020-10-01T00:00+09:00")) == "2020-10-01T00:00+09:00"
    with pytest.raises(ks.DomainError, match="overlaps"):
        day.index("2020-10-01T09:00+09:00")
    hour = ks.Window("7d", slot="1h")
    assert hour.index("2020-10-01T01:00+00:00") - hour.index("2020-10-01T00:00+00:00") == 1
    assert hour.ended(0, datetime(1970, 1, 1, 1, tzinfo=UTC)) and not hour.ended(1, datetime(1970, 1, 1, 1, tzinfo=UTC))


def test_noise_is_chosen_by_the_price_of_the_window():
    domain = ks.Domain.of(ks.Mesh("grid", shape=(16, 16)))
    auto = ks.refined_tree("series", noise="auto", delta="1e-9")
    for window, gaussian in ((ks.Window("7d", slot="1h"), True), (ks.Window("1h", slot="1h"), False)):
        series = auto.recurring(domain, UNIT, window, "1", "1e-9")
        assert isinstance(series.losses, Normal) == gaussian
