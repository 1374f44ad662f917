"""Faults of the shuffle-model join, each one changed line of the shipped code, and the test that catches it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_planted_faults import ROOT, Fault, plant

LAWS = "tests/laws/test_shuffle_bounds.py"
CONTRACT = "tests/contract/test_shuffle.py"
STATISTICS = "tests/distributions/test_shuffle_statistics.py"

FAULTS = [
    Fault("n of the smaller table", "shuffle/joined.py", "claims = _claims(plan, n, metered)",
          "claims = _claims(plan, most, metered)",
          "test_join_is_the_intersection_and_keeps_columns_together", CONTRACT),
    Fault("values rounded down instead of split", "shuffle/bounds.py",
          "share = np.clip(x / step - at, 0.0, 1.0)", "share = np.zeros_like(x)",
          "test_grid_bound_is_above_and_near_the_exact_expectation", LAWS),
    Fault("a blanket of twice its mass", "shuffle/bounds.py", "- count * math.log1p(math.exp(e))",
          "- count * (math.log1p(math.exp(e)) - math.log(2) / 2)",
          "test_grid_bound_is_above_and_near_the_exact_expectation", LAWS),
    Fault("the closed form without its condition", "shuffle/bounds.py", "if e > n / (16 * math.log(2 / d))",
          "if e > n * 1e9 / (16 * math.log(2 / d))", "test_theorem_3_needs_its_condition", LAWS),
    Fault("laplace taken for covered", "shuffle/columns.py", "return not isinstance(made, Laplace)", "return True",
          "test_laplace_is_not_covered", LAWS),
    Fault("a coin that follows the value", "shuffle/columns.py",
          "return [quarter - one, quarter + one, quarter - two, quarter + two]",
          "return [quarter - one, quarter + one + abs(one), quarter - two, quarter + two - abs(one)]",
          "test_coin_law_is_its_definition", LAWS),
    Fault("the square of the report for the report of the square", "shuffle/statistics.py",
          "            return self.s[i]\n", "            return self.z[:, i] ** 2\n",
          "test_mixed_moments_models_and_tables_are_within_their_errors", STATISTICS),
    Fault("the secret is not zeroed", "shuffle/secret.py", "        wipe(self._bytes)\n        self._used = True",
          "        self._used = True", "test_leaving_the_block_zeroes_a_secret_that_was_never_used", CONTRACT),
    Fault("a secret serves twice", "shuffle/secret.py", "        if self._used:\n", "        if False:\n",
          "test_protocol_errors", CONTRACT),
    Fault("rows are not put in order", "shuffle/party.py", "columns = {name: codes[order] for",
          "columns = {name: codes.copy() for", "test_nothing_confidential_is_reachable_or_on_disk", CONTRACT),
    Fault("the one-time key stays", "shuffle/secret.py", "        os.unlink(path)\n", "        pass\n",
          "test_offers_bind_plan_side_and_signer", CONTRACT),
    Fault("any key may sign an offer", "shuffle/secret.py", 'if theirs["public_key"] != peer:', "if False:",
          "test_offers_bind_plan_side_and_signer", CONTRACT),
    Fault("columns share their bits", "shuffle/party.py", "|{plan.hash}|{column.name}|{batch}", "|{plan.hash}|{batch}",
          "test_columns_and_batches_draw_their_own_bits", CONTRACT),
    Fault("charged after drawing, if at all", "shuffle/party.py",
          'receipt = ledger.reserve(guarantee, data=data, recipe="shuffle", plan=self.plan.hash)', "receipt = None",
          "test_the_ledger_pays_before_and_refuses", CONTRACT),
    Fault("the minimum overlap is not asked", "shuffle/joined.py", "if n < plan.minimum_overlap:", "if n < 2:",
          "test_too_small_an_overlap_is_refused_without_its_size", CONTRACT),
]  # fmt: skip

QUICK = ("a blanket of twice its mass", "the secret is not zeroed", "any key may sign an offer")


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in FAULTS]
)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path):
    plant(fault, tmp_path)
    environment = dict(os.environ, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", fault.tests, "-k",
         fault.caught_by],
        env=environment, capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert any(word in run.stdout for word in ("AssertionError", "DID NOT RAISE", "PrivacyError", "ProtocolError"))


def test_every_named_test_exists():
    for fault in FAULTS:
        assert f"def {fault.caught_by}(" in (ROOT / fault.tests).read_text(encoding="utf-8")
