"""Each fault of the samplers, planted as one changed line in the shipped code, is caught by a named test."""

import pytest
from planted import Fault, assert_caught

SAMPLERS = "tests/distributions/test_samplers.py"
TURN = f"{SAMPLERS}::test_a_tied_word_changes_its_outcome_where_the_exact_law_says"

FAULTS = [
    Fault("a tie counts as below", "noise/samplers.py", "if (u + 1) << 16 <= low:", "if u << 16 < high:", TURN),
    Fault("a second tie sees the first bits again", "noise/samplers.py", "(u << 64) | more(turn), bits + 64, turn + 1",
          "(u << 64) | more(0), bits + 64, turn + 1", TURN),
    Fault("the digits of a tie swapped", "noise/samplers.py", "low, _WORD, lambda turn: more(2 * turn + 1))",
          "low, _WORD, lambda turn: more(2 * turn + 2))", f"{SAMPLERS}::test_both_digits_are_settled_exactly"),
    Fault("a tie settled by another word's bits", "noise/samplers.py", "partial(stream.tie, first + i)",
          "partial(stream.tie, i)", f"{SAMPLERS}::test_every_tie_and_no_other_word_asks_for_more_bits"),
    Fault("ties decided by the table", "_kernels/noise.py", "np.uint64(u < threshold), u == threshold",
          "np.uint64(u < threshold), u < threshold and False",
          f"{SAMPLERS}::test_every_tie_and_no_other_word_asks_for_more_bits"),
    Fault("the scale smaller by half a percent", "noise/samplers.py",
          "            a = exp_minus(1 / scale, w)\n            one",
          "            a = exp_minus(201 / (200 * scale), w)\n            one",
          f"{SAMPLERS}::test_laplace_samples_have_their_law_to_the_tail"),
]  # fmt: skip


SHORT = ("a tie counts as below", "a tie settled by another word's bits")
"""Always run; the others by `run.py test --full`."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=() if fault.name in SHORT else pytest.mark.full) for fault in FAULTS],
)
def test_planted_faults_are_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
