"""A series: drawn once, filtered from published numbers alone, replayed bit for bit, refusals before any charge."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import kasuri as ks
from kasuri.noise.rng import Source
from kasuri.series import Hour
from kasuri.series import folder as disk

UNIT = ks.Unit("phone", "add-remove", 1, per="slot")
DOMAIN = ks.Domain.of(ks.Mesh("grid", shape=(16, 16)))
WINDOW = ks.Window("1d", slot="1h", zone="+09:00")
RECIPE = ks.refined_tree("series", noise="gaussian", delta="1e-6")
SLOT = "2020-10-{:02d}T{:02d}:00+09:00"
MEAN = np.random.default_rng(1).gamma(0.5, 200, DOMAIN.shape)


def at(hour):
    return SLOT.format(1 + hour // 24, hour % 24)


def truth(hour):
    return np.random.default_rng(hour).poisson(MEAN)


def table(hour, domain=DOMAIN, unit=UNIT, data="flow"):
    values = np.random.default_rng(hour).poisson(MEAN if domain == DOMAIN else np.ones(domain.shape))
    return ks.Counts.from_dense(values, domain, unit, data=data)


def begun(folder, **more):
    given = {"epsilon": "5", "delta": "1e-6", "unit": UNIT, "data": "flow", "window": WINDOW}
    ledger = ks.Ledger.open(folder / "flow.ledger", recipe=RECIPE, domain=DOMAIN, **given)
    return ks.Series.open(folder / "flow", ledger=ledger, recipe=RECIPE, domain=DOMAIN, **more)


def drawn(source):
    """In place of a release key: what has to be refused is refused before."""
    raise AssertionError("noise was drawn")


def again(folder):
    return ks.Series.open(folder / "flow", ledger=ks.Ledger.load(folder / "flow.ledger"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    flow = begun(folder)
    return folder, [flow.release(table(hour), slot=at(hour), threads=1) for hour in range(30)]


@pytest.fixture
def copied(made, tmp_path):
    shutil.copytree(made[0], tmp_path / "copy")
    return tmp_path / "copy"


def test_the_map_is_better_than_the_slot_alone(made):
    _, out = made
    errors = np.array(
        [
            [((one - truth(hour)) ** 2).mean() for one in (out[hour].to_dense(), out[hour].alone().to_dense())]
            for hour in range(12, 30)
        ]
    ).mean(axis=0)
    assert errors[0] < 0.7 * errors[1]


def test_a_series_is_replayed_with_the_version_that_it_was_begun_with(tmp_path, monkeypatch):
    """Begun with the first filter it goes on with that one, and verifies."""
    for version in (1, 2, 3):
        with monkeypatch.context() as earlier:
            earlier.setattr("kasuri.refine.filter.VERSION", version)
            (tmp_path / str(version)).mkdir()
            begun(tmp_path / str(version))
        flow = again(tmp_path / str(version))
        assert flow.filter == flow.shape.version == version
        for hour in range(3):
            flow.release(table(hour), slot=at(hour), threads=1)
        found = again(tmp_path / str(version)).verify()
        assert found["ok"] and found["slots"] == 3
        assert json.loads((tmp_path / str(version) / "flow" / disk.FACTS).read_text())["filter"] == version
        assert flow.revise(at(0), at(2)).series["filter"] == version
    facts = tmp_path / "2" / "flow" / disk.FACTS
    facts.write_text(facts.read_text().replace('"filter": 2', '"filter": 4'))
    with pytest.raises(ks.FormatError, match="another version of the filter"):
        again(tmp_path / "2")


def test_everything_follows_from_the_published_measurements(made):
    folder, out = made
    found = again(folder).verify()
    assert found["ok"] and found["slots"] == 30 and not found["faults"]
    (folder / "flow" / disk.STATE).rename(folder / "state.aside")
    assert again(folder).verify()["state"] == found["state"]  # with no state kept at all
    (folder / "state.aside").rename(folder / "flow" / disk.STATE)
    back = again(folder).hour(at(29))
    assert isinstance(back, Hour) and np.array_equal(back.to_dense(), out[29].to_dense())
    area = {"rows": slice(0, 8), "cols": slice(0, 8)}
    assert back.interval(**area) == out[29].interval(**area)


def test_state_kept_or_replayed_gives_the_same_bits(made):
    folder, _ = made
    flow = again(folder)
    said = disk.slots(flow.folder)
    kept, last = flow._state(said)
    assert last == WINDOW.index(at(29))
    path = flow.folder / disk.STATE
    data = path.read_bytes()
    path.unlink()
    fresh, _ = again(folder)._state(said)
    path.write_bytes(data)
    assert disk.state_digest(kept) == disk.state_digest(fresh)


def test_windows_of_events_are_kept_with_the_state(tmp_path, monkeypatch):
    """A stadium fills: the slots after it begin with its window, from the kept state as from the measurements."""
    monkeypatch.setattr("kasuri.series.flow._STATE_EVERY", 1)
    flow = begun(tmp_path)
    for hour in range(6):
        values = np.random.default_rng(hour).poisson(MEAN)
        values[3:7, 8:13] += 400 * (hour == 5)
        counts = ks.Counts.from_dense(values, DOMAIN, UNIT, data="flow")
        flow.release(counts, slot=at(hour), threads=1)
    said = disk.slots(flow.folder)
    kept = disk.read_state(flow.folder, len(flow.shape.variances))
    assert kept is not None and kept[1] == said[-1]["digest"]
    assert any(row in (2, 3, 4) and col in (7, 8, 9) for row, col, *_ in kept[0].windows.tolist())
    (flow.folder / disk.STATE).unlink()
    fresh, _ = again(tmp_path)._state(said)
    assert disk.state_digest(kept[0]) == disk.state_digest(fresh)
    assert disk.state_digest(fresh) != disk.state_digest(replace(fresh, windows=fresh.windows[:0]))
    assert again(tmp_path).verify()["ok"]


@pytest.mark.parametrize("file", ["map.parquet", "measurements.parquet", "slot.json"])
def test_a_changed_slot_is_noticed(copied, file):
    path = copied / "flow" / "slots" / disk.name(at(7)) / file
    if file == "slot.json":
        told = json.loads(path.read_text())
        told["status"] = "late"
        path.write_text(json.dumps(told))
    else:
        other = copied / "flow" / "slots" / disk.name(at(8)) / file
        path.write_bytes(other.read_bytes())
    assert not again(copied).verify()["ok"]


def test_a_map_that_does_not_follow_is_noticed(copied):
    """Every hash made right again: only the replay can tell."""
    import pyarrow.parquet as pq

    folder = copied / "flow" / "slots" / disk.name(at(29))
    table_ = pq.read_table(folder / "map.parquet")
    values = table_["value"].to_numpy().copy()
    values[0] += 1
    pq.write_table(table_.set_column(1, "value", [values]), folder / "map.parquet")
    told = json.loads((folder / "slot.json").read_text())
    told["files"]["map.parquet"] = disk.digest(folder / "map.parquet")
    (folder / "slot.json").write_text(disk.text(told))
    assert any("does not follow" in fault for fault in again(copied).verify()["faults"])


def slot_of(copied, hour):
    return copied / "flow" / "slots" / disk.name(at(hour))


def said_anew(folder, **changes):
    """The last slot says something else, every hash made right again."""
    told = json.loads((folder / disk.SLOT).read_text()) | changes
    told["files"] = {name: disk.digest(folder / name) for name in disk.TABLES}
    (folder / disk.SLOT).write_text(disk.text(told))


def with_columns(path, **columns):
    import pyarrow.parquet as pq

    held = pq.read_table(path)
    for name, values in columns.items():
        rest = [own for own in held.column_names if own != name]
        held = held.select(rest).append_column(name, [values])
    pq.write_table(held, path)


def twice(folder):
    """The last slot once more, with another number: a table that nobody drew."""
    mark, other = disk.digest(folder / disk.SLOT), folder.with_name(disk.name(at(30)))
    shutil.copytree(folder, other)
    said_anew(other, number=31, previous=mark, used=30)


def beside(folder):
    """A slot under a number that is taken: one of the two is looked at."""
    shutil.copytree(folder, folder.with_name("2020-10-09T00-00"))


def paid_less(folder):
    told = json.loads((folder / disk.SLOT).read_text())["ledger"]
    said_anew(folder, ledger=told | {"window": told["window"] | {"price": "0.001"}})


def scaled(folder):
    with_columns(folder / "measurements.parquet", scale=["9.5"] * len(disk.measurements(folder).value))
    said_anew(folder)


def promised(folder):
    with_columns(folder / "map.parquet", lower=[1] * len(disk.values(folder)[0]))
    said_anew(folder)


def noted(folder, name):
    import pyarrow.parquet as pq

    held = pq.read_table(folder / name)
    pq.write_table(held.replace_schema_metadata({"note": "epsilon is 0.001"}), folder / name)
    said_anew(folder)


FORGED = {
    "assumptions left out": lambda folder: said_anew(folder, assumes=[]),
    "seeded": lambda folder: said_anew(folder, source="seed 1"),
    "filtered with more": lambda folder: said_anew(folder, used=300),
    "late": lambda folder: said_anew(folder, status="late", used=0),
    "a word of its own": lambda folder: said_anew(folder, epsilon="0.001"),
    "a word less": lambda folder: said_anew(folder, used=None),
    "other software": lambda folder: said_anew(folder, software="kasuri 0.1.0, with epsilon 0.001"),
    "words in its map": lambda folder: noted(folder, "map.parquet"),
    "words in its numbers": lambda folder: noted(folder, "measurements.parquet"),
    "another price": paid_less,
    "another scale": scaled,
    "limits that nobody made": promised,
    "twice": twice,
    "under one number": beside,
    "another name": lambda folder: folder.rename(folder.with_name(disk.name(at(40)))),
    "an empty folder": lambda folder: folder.with_name("2020-10-09T00-00").mkdir(),
    "a further file": lambda folder: (folder / "more.parquet").write_bytes(b""),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_slot_says_what_its_ledger_and_its_numbers_do(copied, name):
    assert again(copied).verify()["ok"]
    FORGED[name](slot_of(copied, 29))
    assert not again(copied).verify()["ok"]


def test_true_counts_in_place_of_the_numbers_of_a_slot(tmp_path, monkeypatch):
    """What a forger draws without noise follows from its measurements; too little noise shows all the same."""
    from kasuri.recipes.visit import Visit

    flow = begun(tmp_path)
    draw = Visit.run
    monkeypatch.setattr(Visit, "run", lambda self, *given: _without_noise(draw(self, *given), self, given))
    flow.release(table(0), slot=at(0), threads=1)
    monkeypatch.undo()
    assert any("less noise" in fault for fault in again(tmp_path).verify()["faults"])


def _without_noise(found, visit, given):
    from dataclasses import replace

    keys, values = given[:2]
    levels = []
    for cut, level in zip(found.cuts, found.levels, strict=True):
        sums = np.bincount(np.searchsorted(level.prefix, keys // visit.order.stride(cut)), values, level.y.size)
        levels.append(replace(level, y=sums.astype(np.int64)))
    return replace(found, levels=tuple(levels))


def test_a_gap_is_refused_before_anything_is_charged(copied, monkeypatch):
    shutil.rmtree(copied / "flow" / "slots" / disk.name(at(7)))
    monkeypatch.setattr(Source, "release_key", lambda self: 1 / 0)
    flow = again(copied)
    with pytest.raises(ks.FormatError, match="gap"):
        flow.release(table(40), slot=at(40))
    assert WINDOW.index(at(40)) not in flow.ledger.paid_slots()


def test_a_restored_ledger_is_noticed(tmp_path, monkeypatch):
    """Both files of the ledger put back by a backup: it would pay for slots that are published. Also where another
    slot was paid since, under the number of the one it forgot, in the same second."""

    def drawn(self):
        raise AssertionError("a key was made")

    now = datetime.now(UTC)
    monkeypatch.setattr("kasuri.budget.ledger.book.datetime", type("Still", (), {"now": lambda zone: now}))
    flow = begun(tmp_path)
    flow.release(table(0), slot=at(0))
    for file in tmp_path.glob("flow.ledger*"):
        shutil.copy(file, tmp_path / f"old-{file.name}")
    flow.release(table(1), slot=at(1))
    for file in tmp_path.glob("flow.ledger*"):
        file.unlink()
    for file in tmp_path.glob("old-*"):
        shutil.copy(file, tmp_path / file.name[4:])
    with monkeypatch.context() as no_draw:
        no_draw.setattr(Source, "release_key", drawn)
        for hour in (1, 2):
            with pytest.raises(ks.KasuriError):
                again(tmp_path).release(table(hour), slot=at(hour))
        assert not again(tmp_path).verify()["ok"]
    each = flow.ledger.allowance.series.epsilon
    ks.release(table(1), RECIPE, epsilon=each, ledger=ks.Ledger.load(tmp_path / "flow.ledger"), slots=at(1))
    with pytest.raises(ks.FormatError, match="put back to an earlier state"):
        again(tmp_path).release(table(2), slot=at(2))


@pytest.mark.parametrize("field", ["claim", "prices", "must_not_be_claimed", "slots"])
def test_a_forged_claim_is_noticed(copied, field):
    path = copied / "flow" / disk.FACTS
    told = json.loads(path.read_text())
    if field == "slots":
        told["prices"][0][field] = float(told["prices"][0][field])
    else:
        told[field] = told[field][:1] if field != "claim" else told[field].replace("any day", "any year")
    path.write_text(disk.text(told))
    assert any("does not say" in fault for fault in again(copied).verify()["faults"])


def test_alone_is_the_recipe_by_itself_and_can_be_saved(made, tmp_path):
    folder, out = made
    alone = out[3].alone()
    alone.save(str(tmp_path / "alone"))
    assert ks.verify(str(tmp_path / "alone"), ledger=str(folder / "flow.ledger"))["ok"]


def test_intervals_hold_whatever_the_filter_does(made):
    """Those of the slot's own numbers, of filtered values too: at least 95 % within three standard errors."""
    _, out = made
    inside = []
    for hour in range(30):
        for row in range(0, 16, 4):
            area = {"rows": slice(row, row + 4), "cols": slice(0, 8)}
            held = out[hour].interval(**area)
            assert held.lower <= held.value <= held.upper
            inside.append(held.lower <= truth(hour)[row : row + 4, :8].sum() <= held.upper)
    assert np.mean(inside) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / len(inside))


# -- paying, refusing --------------------------------------------------------------------------------------------------


def test_a_slot_is_drawn_once(tmp_path, monkeypatch):
    flow = begun(tmp_path)
    flow.release(table(0), slot=at(0))
    monkeypatch.setattr(Source, "release_key", lambda self: 1 / 0)
    with pytest.raises(ks.BudgetError, match="drawn once"):
        again(tmp_path).release(table(0), slot=at(0))
    assert len(flow.ledger.paid_slots()) == 1


def test_a_late_slot_is_published_by_itself(tmp_path):
    flow = begun(tmp_path)
    for hour in (0, 1, 4):
        flow.release(table(hour), slot=at(hour))
    late = flow.release(table(2), slot=at(2))
    assert late.status == "late"
    flow.release(table(5), slot=at(5))
    assert again(tmp_path).verify()["ok"]
    assert flow.status()["late"] == [at(2)]


def test_an_empty_table_is_released_like_any_other(tmp_path):
    flow = begun(tmp_path)
    empty = ks.Counts.from_dense(np.zeros(DOMAIN.shape, dtype=int), DOMAIN, UNIT, data="flow")
    assert flow.release(empty, slot=at(0)).measurements is not None
    assert flow.release(empty, slot=at(1)).status == "first"


def bad_inputs():
    other = ks.Domain.of(ks.Mesh("grid", shape=(8, 8)))
    now = datetime.now(WINDOW.start(0).tzinfo).replace(minute=0, second=0, microsecond=0)
    return {
        "future": (table(0), (now + timedelta(hours=3)).isoformat()),
        "overlap": (table(0), "2020-10-01T00:30+09:00"),
        "zone": (table(0), "2020-10-01T00:00+00:00"),
        "no zone": (table(0), "2020-10-01T00:00"),
        "domain": (table(0, other), at(0)),
        "unit": (table(0, unit=ks.Unit("phone", "add-remove", 2, per="slot")), at(0)),
        "data": (table(0, data="other"), at(0)),
        "not counts": (np.zeros(DOMAIN.shape), at(0)),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_is_refused_before_anything_is_charged(tmp_path, monkeypatch, case):
    flow = begun(tmp_path)
    monkeypatch.setattr(Source, "release_key", lambda self: 1 / 0)
    counts, slot = bad_inputs()[case]
    with pytest.raises(ks.KasuriError):
        flow.release(counts, slot=slot)
    assert flow.ledger.summary()["entries"] == 1 and not list((tmp_path / "flow" / "slots").iterdir())


def test_another_recipe_domain_or_calendar_in_mid_series(tmp_path):
    flow = begun(tmp_path)
    flow.release(table(0), slot=at(0))
    for more in (
        {"recipe": ks.refined_tree("u4", noise="gaussian", delta="1e-6")},
        {"domain": ks.Domain.of(ks.Mesh("grid", shape=(8, 8)))},
        {"calendar": ks.Calendar.weekly(off=("fri",))},
    ):
        with pytest.raises(ks.KasuriError):
            ks.Series.open(tmp_path / "flow", ledger=flow.ledger, **more)


def test_missing_slots_need_a_public_reason(tmp_path):
    flow = begun(tmp_path)
    with pytest.raises(ks.PrivacyError, match="public reason"):
        flow.declare_missing(at(0), reason="")
    flow.declare_missing(at(0), reason="announced maintenance of the source")
    with pytest.raises(ks.DomainError, match="declared missing"):
        flow.release(table(0), slot=at(0))
    assert flow.status()["missing"] == {at(0): "announced maintenance of the source"}
    with pytest.raises(ks.PrivacyError, match=r"U\+202E"):
        flow.declare_missing(at(2), reason="announced \N{RIGHT-TO-LEFT OVERRIDE} maintenance")


def test_what_is_declared_missing_is_judged(tmp_path):
    flow, reason = begun(tmp_path), "announced maintenance of the source"
    flow.declare_missing(at(0), reason=reason)
    flow.release(table(1), slot=at(1), threads=1)
    assert again(tmp_path).verify()["ok"]
    for told in ({at(1): reason}, {at(0): 1}, {at(0): "empty"}, {at(0): f"{reason}\n"}, {"a night": reason}):
        (tmp_path / "flow" / disk.ABSENT).write_text(disk.text(told))
        faults = again(tmp_path).verify()["faults"]
        assert len(faults) == 1 and faults[0].startswith("missing.json: "), told


def test_a_seeded_source_is_refused(tmp_path):
    with pytest.raises(ks.PrivacyError, match="secure"):
        begun(tmp_path).release(table(0), slot=at(0), source=ks.seeded(1))


def test_a_crash_before_the_name_is_finished_later(tmp_path, monkeypatch):
    """Written whole and not yet named: the next call gives it its name. Not whole: it is gone, and stays paid."""
    flow = begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "publish", lambda aside: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(disk, "drop", lambda aside: None)
        with pytest.raises(KeyboardInterrupt):
            flow.release(table(0), slot=at(0))
    assert again(tmp_path).labels() == [at(0)]
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_slot", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(disk, "drop", lambda aside: None)
        with pytest.raises(KeyboardInterrupt):
            flow.release(table(1), slot=at(1))
    flow = again(tmp_path)
    assert flow.status()["lost"] == [at(1)] and flow.labels() == [at(0)]
    with pytest.raises(ks.BudgetError):
        flow.release(table(1), slot=at(1))
    flow.release(table(2), slot=at(2))
    assert again(tmp_path).verify()["ok"]


def test_large_trees_are_drawn_where_something_is(tmp_path, monkeypatch):
    """Above a size not every node is drawn: those that noise leaves, and those that earlier slots want."""
    from kasuri.series import hour as hours

    monkeypatch.setattr(hours, "WHOLE", 16)
    domain = ks.Domain.of(ks.Mesh("grid", shape=(64, 64)))
    ledger = ks.Ledger.open(
        tmp_path / "l", epsilon="5", delta="1e-6", unit=UNIT, data="flow", window=WINDOW, recipe=RECIPE, domain=domain
    )
    flow = ks.Series.open(tmp_path / "f", ledger=ledger, recipe=RECIPE, domain=domain)
    rng = np.random.default_rng(3)
    mean = np.zeros((64, 64))
    mean[:16, :20] = rng.gamma(1, 300, (16, 20))
    errors = []
    for t in range(16):
        true = rng.poisson(mean)
        out = flow.release(ks.Counts.from_dense(true, domain, UNIT, data="flow"), slot=at(t))
        errors.append([((one.to_dense() - true) ** 2).mean() for one in (out, out.alone())])
        assert (out.measurements.level == 12).sum() < 64 * 64
    late = np.array(errors)[8:].mean(axis=0)
    assert late[0] < late[1]
    assert ks.Series.open(tmp_path / "f", ledger=ledger).verify()["ok"]
