"""Faults of the shuffle-model join, each one changed line of the shipped code, and the test that catches it."""

from pathlib import Path

import pytest
from planted import Fault, assert_caught

LAWS = "tests/laws/test_shuffle_bounds.py"
CONTRACT = "tests/contract/test_shuffle.py"
STATISTICS = "tests/distributions/test_shuffle_statistics.py"
SYNTHESIS = "tests/distributions/test_shuffle_synthesis.py"

FAULTS = [
    Fault("n of the smaller table", "shuffle/joined.py", "claims = _claims(plan, n, metered)",
          "claims = _claims(plan, most, metered)",
          f"{CONTRACT}::test_join_is_the_intersection_and_keeps_columns_together"),
    Fault("values rounded down instead of split", "shuffle/bounds.py",
          "share = np.clip(x / step - at, 0.0, 1.0)", "share = np.zeros_like(x)",
          f"{LAWS}::test_grid_bound_is_above_and_near_the_exact_expectation"),
    Fault("a blanket of twice its mass", "shuffle/bounds.py", "- count * math.log1p(math.exp(e))",
          "- count * (math.log1p(math.exp(e)) - math.log(2) / 2)",
          f"{LAWS}::test_grid_bound_is_above_and_near_the_exact_expectation"),
    Fault("the closed form without its condition", "shuffle/bounds.py", "if e > n / (16 * math.log(2 / d))",
          "if e > n * 1e9 / (16 * math.log(2 / d))", f"{LAWS}::test_theorem_3_needs_its_condition"),
    Fault("laplace taken for covered", "shuffle/columns.py", "return not isinstance(made, Laplace)", "return True",
          f"{LAWS}::test_laplace_is_not_covered"),
    Fault("a coin that follows the value", "shuffle/columns.py",
          "return [quarter - one, quarter + one, quarter - two, quarter + two]",
          "return [quarter - one, quarter + one + abs(one), quarter - two, quarter + two - abs(one)]",
          f"{LAWS}::test_coin_law_is_its_definition"),
    Fault("the square of the report for the report of the square", "shuffle/statistics.py",
          "            return self.s[i]\n", "            return self.z[:, i] ** 2\n",
          f"{STATISTICS}::test_mixed_moments_models_and_tables_are_within_their_errors"),
    Fault("the secret is not zeroed", "shuffle/secret.py", "        wipe(self._bytes)\n        self._used = True",
          "        self._used = True", f"{CONTRACT}::test_leaving_the_block_zeroes_a_secret_that_was_never_used"),
    Fault("a secret serves twice", "shuffle/secret.py", "        if self._used:\n", "        if False:\n",
          f"{CONTRACT}::test_protocol_errors"),
    Fault("rows are not put in order", "shuffle/party.py", "columns = {name: codes[order] for",
          "columns = {name: codes.copy() for", f"{CONTRACT}::test_nothing_confidential_is_reachable_or_on_disk"),
    Fault("the one-time key stays", "shuffle/secret.py", "        os.unlink(path)\n", "        pass\n",
          f"{CONTRACT}::test_offers_bind_plan_side_and_signer"),
    Fault("any key may sign an offer", "shuffle/secret.py",
          'if theirs["public_key"].lower() != peer.strip().lower():', "if False:",
          f"{CONTRACT}::test_offers_bind_plan_side_and_signer"),
    Fault("a secret serves another plan", "shuffle/secret.py", "if self.plan not in (None, plan):", "if False:",
          f"{CONTRACT}::test_offers_bind_plan_side_and_signer"),
    Fault("zero bytes are a secret", "shuffle/secret.py", "if not any(material):", "if False:",
          f"{CONTRACT}::test_a_secret_of_spent_bytes_is_refused"),
    Fault("an error keeps the order", "shuffle/party.py",
          "for spent in (order, pseudonyms,", "for spent in (pseudonyms,",
          f"{CONTRACT}::test_rows_that_change_leave_no_order_in_the_traceback"),
    Fault("every window taken for covered", "shuffle/columns.py",
          "return (made.outputs - 2 * made.window) * made.outside >= spare", "return True",
          f"{LAWS}::test_a_window_of_more_than_half_the_outputs_is_not_covered"),
    Fault("errors of the first order only", "shuffle/statistics.py",
          "influence.var() / n + 4 * (spread[0, 0] * spread[1, 1] + spread[0, 1] ** 2)", "influence.var() / n",
          f"{STATISTICS}::test_label_variances_are_covered_where_their_influence_vanishes"),
    Fault("any number of rows is believed", "shuffle/joined.py", 'if head["claims"]["n"] != table.num_rows:',
          "if False:", f"{CONTRACT}::test_files_that_cannot_be_trusted_are_refused"),
    Fault("columns share their bits", "shuffle/party.py", "|{plan.hash}|{column.name}|{batch}", "|{plan.hash}|{batch}",
          f"{CONTRACT}::test_columns_and_batches_draw_their_own_bits"),
    Fault("charged after drawing, if at all", "shuffle/party.py",
          'receipt = ledger.reserve(guarantee, data=data, recipe="shuffle", plan=self.plan.hash)', "receipt = None",
          f"{CONTRACT}::test_the_ledger_pays_before_and_refuses"),
    Fault("the minimum overlap is not asked", "shuffle/joined.py", "if n < plan.minimum_overlap:", "if n < 2:",
          f"{CONTRACT}::test_too_small_an_overlap_is_refused_without_its_size"),
    Fault("a law of the mean alone", "shuffle/marginals.py", "found = _tilted(unit, m, v)",
          "found = _tilted(unit, m, None)", f"{SYNTHESIS}::test_a_law_has_the_mean_and_deviation_asked_for"),
    Fault("a histogram as it comes", "shuffle/marginals.py", "    weights = _solve(log, stats)\n",
          "    weights = np.exp(log)\n", f"{SYNTHESIS}::test_a_law_has_the_mean_and_deviation_asked_for"),
    Fault("means at the bound", "shuffle/marginals.py", "room = min(mean_error, width) / 2", "room = 0.0",
          f"{SYNTHESIS}::test_moments_that_cannot_be_are_moved_to_what_can"),
    Fault("any mean will do", "shuffle/synthesis.py", "if not off <= WORST", "if not off <= 100 * WORST",
          f"{SYNTHESIS}::test_quality_fails_where_a_mean_is_three_errors_off"),
    Fault("learned at one error", "shuffle/statistics.py", "ERRORS = 2.0", "ERRORS = 1.0",
          f"{SYNTHESIS}::test_learned_means_two_errors_and_noise_shrinks"),
    Fault("noise is imitated", "shuffle/synthesis.py", "target = moments.imitated",
          "target = np.nan_to_num(moments.ratio)",
          f"{SYNTHESIS}::test_synthetic_rows_are_not_worse_than_independent_ones"),
    Fault("correlations beyond 1", "shuffle/statistics.py", "min(max(rho, -1.0), 1.0)", "rho",
          f"{SYNTHESIS}::test_no_correlation_beyond_one_is_printed_or_imitated"),
    Fault("a plan file takes the default", "shuffle/plan.py",
          'mechanisms={c["name"]: c["mechanism"] for c in every}',
          'mechanisms={c["name"]: c["mechanism"] for c in every if c["mechanism"] != "coin"}',
          f"{CONTRACT}::test_a_plan_file_means_what_it_meant_whatever_the_default_is"),
]  # fmt: skip

QUICK = (
    "a law of the mean alone", "a blanket of twice its mass", "the secret is not zeroed", "any key may sign an offer",
)  # fmt: skip


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in FAULTS]
)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path):
    assert_caught(fault, tmp_path)
