"""Faults of series without end: slots, windows, units of one slot, and what the filter may see."""

from planted import Fault

LEDGER = "tests/contract/test_window_ledger.py"
SERIES = "tests/contract/test_series.py"
CLI = "tests/contract/test_series_cli.py"

FAULTS = [
    Fault("a slot drawn twice", "kasuri.budget.ledger.entries:State._in_window", "if slot in self.slots:", "if False:",
          f"{LEDGER}::test_a_slot_is_paid_once", short=True),
    Fault("calendar windows instead of sliding ones", "kasuri.budget.window:dearest_window",
          "(first - width + 1, other.cost), (last + 1, -other.cost)",
          "(first // width, other.cost), (last // width + 1, -other.cost)",
          f"{LEDGER}::test_the_dearest_window_slides", short=True),
    Fault("a unit of one slot charged as one", "kasuri.budget.ledger.book:Ledger._slots",
          'unit.per == "slot" and first != last', "False",
          f"{LEDGER}::test_a_unit_of_one_slot_is_not_charged_for_several"),
    Fault("a time axis under a unit of one slot", "kasuri.recipes.mechanism:Mechanism.on",
          'unit.per == "slot" and domain.timed', "False",
          f"{LEDGER}::test_a_unit_of_one_slot_has_no_time_axis_and_no_plain_ledger"),
    Fault("a window priced as one slot", "kasuri.budget.window:slot_epsilon",
          "priced(losses(guess), slots, guess, delta)", "priced(losses(guess), 1, guess, delta)",
          f"{LEDGER}::test_every_slot_costs_the_window_nothing_more_for_ever"),
    Fault("an entry for a slot of the future believed", "kasuri.budget.ledger.entries:State._reserved",
          'if ends is not None and not window.ended(ends, datetime.fromisoformat(entry["time"])):', "if False:",
          f"{LEDGER}::test_an_entry_for_a_slot_of_the_future_is_not_believed"),
    Fault("other releases free of charge", "kasuri.budget.window:beside",
          'epsilon if whole or change == "replace" else 2 * epsilon', "epsilon * 0",
          f"{LEDGER}::test_other_releases_are_paid_from_what_was_set_aside"),
    Fault("spans are priced without what was released beside the series", "kasuri.budget.window:prices",
          "+ dearest_window(others, slots)", "+ 0 * dearest_window(others, slots)",
          f"{LEDGER}::test_the_price_of_a_span_has_what_was_released_beside_the_series"),
    Fault("a slot from one clock to another", "kasuri.job.serial:_bounds",
          "{words[side]: kind for kind, words in enumerate(_ENDS)}", "{words[side]: 0 for words in _ENDS}",
          f"{CLI}::test_rows_are_those_of_one_slot"),
    Fault("a query that has both ends of a slot", "kasuri.job.serial:_source_faults", "if _BOTH_ENDS.search(query)",
          "if query is None", f"{CLI}::test_rows_are_those_of_one_slot"),
    Fault("filter state taken from an unpublished slot", "kasuri.series.flow:Series._drawn",
          "found, after = self._filtered(numbers, state, when, late)",
          "state = filters.step(self.shape, state, levels_of(self.run, numbers), when)[1]\n"
          "        found, after = self._filtered(numbers, state, when, late)",
          f"{SERIES}::test_everything_follows_from_the_published_measurements", short=True),
    Fault("variances from the true counts", "kasuri.series.flow:Series._drawn",
          "found, after = self._filtered(numbers, state, when, late)",
          "found, after = self._filtered(numbers, state, when, late)\n"
          "        found = (found[0], found[1] + (counts.values.sum() % 2 if found[1].size else 0), *found[2:])",
          f"{SERIES}::test_everything_follows_from_the_published_measurements"),
    Fault("a source that is not of the slot", "kasuri.job.serial:_source_faults",
          "for file in data.files if not _names_start(file, window)", "for file in ()",
          f"{CLI}::test_rows_are_those_of_one_slot", short=True),
    Fault("rows since the slot, too", "kasuri.job.serial:_source_faults", "of_start & of_end", "of_start or of_end",
          f"{CLI}::test_rows_are_those_of_one_slot"),
    Fault("a ledger that was put back believed", "kasuri.series.flow:Series._backed", "if lost:", "if False:",
          f"{SERIES}::test_a_restored_ledger_is_noticed"),
    Fault("two reservations of one second alike", "kasuri.budget.ledger.book:Ledger.reserve",
          '"nonce": secrets.token_hex(16)', '"nonce": ""', f"{SERIES}::test_a_restored_ledger_is_noticed"),
    Fault("a forged claim of a series believed", "kasuri.series.flow:Series.verify",
          "!= _declared(", "is _declared(", f"{SERIES}::test_a_forged_claim_is_noticed"),
    Fault("a missing slot without a reason", "kasuri.series.flow:Series.declare_missing",
          "len(reason.strip()) < 8", "False", f"{SERIES}::test_missing_slots_need_a_public_reason"),
]  # fmt: skip
