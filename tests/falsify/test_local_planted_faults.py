"""Faults of local differential privacy, each one changed line of the shipped code, and the test that catches it."""

import pytest
from planted import Fault, assert_caught

LAWS = "tests/distributions/test_local_categorical.py"
NUMERIC = "tests/distributions/test_local_numeric.py"
CONTRACT = "tests/contract/test_local.py"
MEMO = "tests/laws/test_local_memoised.py"
COLLECTOR = "tests/collector/test_collector.py"


FAULTS = [
    Fault("the unary ratio is taken once instead of squared", "local/categorical.py",
          "q = least(1, N // 2, lambda k: within(Fraction((N - k) ** 2, k * k), eps))\n    return Unary",
          "q = least(1, N // 2, lambda k: within(Fraction(N - k, k), eps))\n    return Unary",
          f"{CONTRACT}::test_json_round_trip_and_guarantee"),
    Fault("a description is not checked again", "local/randomizer.py",
          'demand(self.law.ratio, self.epsilon, f"the {self.kind} randomizer")', "pass",
          f"{CONTRACT}::test_a_description_that_loses_more_than_it_states_is_refused"),
    Fault("the device keeps the truth one word too often", "local/categorical.py", "if u < keep:", "if u <= keep:",
          f"{LAWS}::test_response_law_is_the_definition"),
    Fault("coins of the others and of the truth share a stream", "local/categorical.py",
          'set_truth(rows, categories, coins(streams, "truth", block, n, self.p, self.bits), self.size)',
          'set_truth(rows, categories, coins(streams, "others", block, n, self.p, self.bits), self.size)',
          f"{LAWS}::test_the_coin_of_the_truth_is_its_own"),
    Fault("a coin that equals its threshold is a one", "local/bits.py", "        else:\n            undecided &= ~u\n",
          "        else:\n            undecided &= ~u\n        if plane == 0:\n            below |= undecided\n",
          f"{LAWS}::test_bit_sliced_coins_by_enumeration"),
    Fault("words that drop out lose their place", "local/bits.py", "left if at is None else at[left]", "left",
          f"{LAWS}::test_words_that_are_decided_early_are_left_alone"),
    Fault("blocks share a keystream", "local/randomizer.py", "self._draw(categories[start:stop], streams, block)",
          "self._draw(categories[start:stop], streams, 0)", f"{CONTRACT}::test_blocks_draw_their_own_bits"),
    Fault("inversion forgets the lies", "local/estimators.py",
          "return (agreeing.astype(np.float64) - n * float(law.q)) / float(law.p - law.q)",
          "return agreeing.astype(np.float64) / float(law.p)",
          f"{CONTRACT}::test_inversion_is_unbiased_and_its_error_is_the_stated_one"),
    Fault("the spare words follow the number", "local/numeric.py", "row[total // 2] += self.words - sum(row)",
          "row[first] += self.words - sum(row)", f"{NUMERIC}::test_full_size_randomizers_keep_their_claims"),
    Fault("a memory that is drawn anew", "local/longitudinal.py", "if category not in self._kept:\n", "if True:\n",
          f"{MEMO}::test_the_client_keeps_its_answers_and_v_max"),
    Fault("elsewhere does not count as a place", "local/longitudinal.py", "places >= randomizer.v_max - 1",
          "places >= randomizer.v_max", f"{MEMO}::test_the_client_keeps_its_answers_and_v_max"),
    Fault("acknowledged before the commit", "local/reports.py",
          "            outcomes = self._commit(group) if group else []",
          "            _tell(group, ['stored'] * len(group)); outcomes = self._commit(group) if group else []",
          f"{COLLECTOR}::test_a_failing_disk_is_no_acknowledgement"),
    Fault("a state is not read again", "local/device.py",
          "            if self._state is not None:\n                self._load()\n            rounded",
          "            rounded", f"{COLLECTOR}::test_a_device_keeps_its_budget_in_a_file"),
    Fault("a report is counted after it is drawn", "local/device.py",
          "                self.spent += randomizer.epsilon\n                self._save()\n",
          "                self.spent += randomizer.epsilon\n", f"{COLLECTOR}::test_a_device_counts_before_it_draws"),
    Fault("the log is not wiped", "local/reports.py", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(NOOP)",
          f"{COLLECTOR}::test_one_round_tokens_pay_once_and_leave_no_trace"),
    Fault("copies are taken for new evidence", "local/estimators.py", "wider = each**0.5 if", "wider = 1.0 if",
          f"{MEMO}::test_errors_of_repeated_copies_are_honest"),
    Fault("commits that are not synced", "local/reports.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF",
          f"{COLLECTOR}::test_the_disk_is_synced_before_the_acknowledgement"),
    Fault("a batch sent twice counts twice", "local/reports.py", "CREATE UNIQUE INDEX", "CREATE INDEX",
          f"{COLLECTOR}::test_a_batch_is_stored_once_and_estimated"),
    Fault("padding bits are not looked at", "local/bits.py", "return rows[:, -1] >> (size % 8) != 0",
          "return np.zeros(rows.shape[0], dtype=bool)", f"{COLLECTOR}::test_refusals_have_reasons_and_store_nothing"),
    Fault("any key may sign", "local/wire.py",
          "Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text.encode())",
          'Ed25519PublicKey.from_public_bytes(bytes.fromhex(envelope["key"])).verify(signature, text.encode())',
          f"{COLLECTOR}::test_devices_refuse_what_they_should"),
]  # fmt: skip


QUICK = ("a description is not checked again", "acknowledged before the commit", "any key may sign",
         "blocks share a keystream")  # fmt: skip


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in FAULTS]
)
def test_planted_fault_is_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
