"""Each fault that would break privacy or the result, planted as one changed line in the shipped code, is caught by a
named test that sees outputs alone. The same tests pass on the code as it is."""

import pytest
from planted import Fault, assert_caught

KERNEL = "_kernels/topdown.py"
LAW = "tests/distributions/test_release_law.py"
TREE_LAW = "tests/distributions/test_tree_law.py"

FAULTS = [
    Fault("scale halved", "mechanism.py", "unit.most * cost / loss", "unit.most * cost / loss / 2",
          f"{LAW}::test_total_law"),
    Fault("eq. 38 as printed", KERNEL, "- sums[_u(low)] - sums[_u(high)] + noise[_u(used)]",
          "- sums[_u(low)] - sums[_u(high)] + (noise[_u(used)] >> min(depth, 1))",
          f"{LAW}::test_split_law_level_by_level"),
    Fault("eq. 38 as printed, float form", "mechanism.py", "+= parts.weights * _noise(",
          "+= np.where(parts.weights > parts.weights[0], 0.5, 1) * parts.weights * _noise(",
          f"{LAW}::test_float_haar_law_level_by_level"),
    Fault("parity coin dropped", KERNEL, "D += 2 * _bits(coins, coin, 1) - 1", "D += 1", f"{LAW}::test_split_law"),
    Fault("clamp skipped", KERNEL, "D = min(max(D, -S), S)", "D = D + 0", f"{LAW}::test_split_law"),
    Fault("noise word used twice", KERNEL, "used += 1\n            if record",
          "used += depth & 1\n            if record", f"{LAW}::test_no_noise_word_is_used_twice"),
    Fault("blocks share a stream", "rng.py", "|{level}|{block}\"", "|{level}\"",
          f"{LAW}::test_blocks_do_not_share_a_stream"),
    Fault("purposes share a stream", "engine.py", 'streams.open("coin", level, block)',
          'streams.open("noise", level, block)', f"{LAW}::test_purposes_do_not_share_a_stream"),
    Fault("replace computed as add-remove", "order.py", 'if change == "add-remove":', "if True:",
          f"{LAW}::test_split_law"),
    Fault("a mask cell receives mass", KERNEL, "measured = s_left > 0 and s_right > 0", "measured = True",
          f"{LAW}::test_impossible_cells_are_exactly_zero"),
    Fault("a level's share counted twice", "mechanism.py", "(depth, self.scale / share)",
          "(depth, self.scale / share / 2)", f"{TREE_LAW}::test_measured_counts_have_the_law_of_their_level"),
    Fault("replace counted once in a tree", "mechanism.py", 'Fraction(1 if unit.change == "add-remove" else 2)',
          "Fraction(1)", f"{TREE_LAW}::test_measured_counts_have_the_law_of_their_level"),
    Fault("blocks of a tree share a stream", "visit.py", 'streams.open("noise", self.cuts[at], block)',
          'streams.open("noise", self.cuts[at], 0)', f"{TREE_LAW}::test_levels_and_blocks_do_not_share_noise"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
