"""Each comparison of `verify` left out, one line at a time: the forgery that it refutes is then believed, and its test
fails. The short run has one fault of each kind."""

import pytest
from planted import Fault, assert_caught

FORGERIES, OLD = "tests/contract/test_forgeries.py", "tests/golden/test_old_release.py"
RECOMPUTE, REPLAY = "manifest/recompute.py", "recipes/replay.py"
WORDS = "if json.loads(json.dumps(own.get(name))) != words.get(name):"
FIELDS = '("model", "epsilon", "delta", "rho", "unit", "public", "basis")'

SHORT = [
    Fault("the scale is believed", RECOMPUTE, WORDS, WORDS.replace(":", ' and name != "scale":'),
          f"{FORGERIES}::test_epsilon_10_printed_as_0001"),
    Fault("refined values are believed", RECOMPUTE, "if here or not _near(", "if False and not _near(",
          f"{FORGERIES}::test_true_counts_in_place_of_the_values"),
    Fault("too little noise is believed", "noise/evidence.py", "return found > EVIDENCE * math.log(10)", "return False",
          f"{FORGERIES}::test_too_little_noise"),
]  # fmt: skip

LONG = [
    Fault("sensitivity from scale x epsilon", "manifest/package.py",
          'recipe.get("sensitivity") or decimal(scale * epsilon)', "decimal(scale * epsilon)",
          f"{FORGERIES}::test_the_sensitivity_is_written_from_the_cost"),
    Fault("delta is believed", RECOMPUTE, FIELDS, FIELDS.replace('"delta", ', ""),
          f"{FORGERIES}::test_another_promise"),
    Fault("caveats may be left out", RECOMPUTE, 'yield "assumes is not what the recipe and the ledger rest on"',
          "yield from ()", f"{FORGERIES}::test_a_caveat_left_out"),
    Fault("a descent is believed", REPLAY, "if not ((found == np.clip(D - odd, -S, S))",
          "if False and not ((found == np.clip(D - odd, -S, S))",
          f"{FORGERIES}::test_one_person_moved_to_the_next_cell"),
    Fault("shares are believed", RECOMPUTE, WORDS, WORDS.replace(":", ' and name != "shares":'),
          f"{FORGERIES}::test_other_shares_with_their_scales"),
    Fault("a further word is believed", RECOMPUTE, "for name in words.keys() | own.keys():", "for name in own:",
          f"{FORGERIES}::test_another_word"),
    Fault("what is public is believed", RECOMPUTE, FIELDS, FIELDS.replace('"public", ', ""),
          f"{FORGERIES}::test_another_promise"),
    Fault("the proof is believed", RECOMPUTE, FIELDS, FIELDS.replace(', "basis"', ""),
          f"{FORGERIES}::test_another_promise"),
    Fault("a receipt need not add up", RECOMPUTE, 'yield "the ledger\'s receipt does not add up"', "yield from ()",
          f"{FORGERIES}::test_another_receipt"),
    Fault("any price is the right one", RECOMPUTE,
          'yield "the ledger was charged another price than the promise has"', "yield from ()",
          f"{FORGERIES}::test_the_price_is_that_of_the_promise_printed"),
    Fault("the configuration hash is believed", RECOMPUTE, 'get("configuration_hash") not in hashes:',
          'get("configuration_hash") is None:', f"{FORGERIES}::test_another_configuration"),
    Fault("measurements may be left out", RECOMPUTE, "if bool(names) != run.publishes:", "if False:",
          f"{FORGERIES}::test_measurements_left_out"),
    Fault("scales of measurements are believed", "recipes/counttree.py", "if any(scales.get(level) != scale for",
          "if any(False for", f"{FORGERIES}::test_a_scale_of_the_measurements"),
    Fault("one scale stands for its level", RECOMPUTE, "if not said.equals(measured_table(measured).combine_chunks()):",
          "if False:", f"{FORGERIES}::test_a_scale_of_one_measurement"),
    Fault("every machine rounds otherwise", RECOMPUTE,
          'here = implementation["environment"].get("machine") == machine()', "here = False",
          f"{FORGERIES}::test_a_unit_of_rounding_from_another_machine_is_named"),
    Fault("a newer refinement is believed", RECOMPUTE,
          "if type(version) is int and version > refine.VERSION:", "if False:",
          f"{FORGERIES}::test_a_newer_refinement_is_not_believed"),
    Fault("a threshold is believed", "recipes/threshold.py", " and bool((values >= self.least).all())", "",
          f"{FORGERIES}::test_a_declared_total_and_a_threshold"),
    Fault("a declared total is believed", "recipes/shaped.py",
          "sum(values.tolist()) == min(total.total, LARGEST)", "True",
          f"{FORGERIES}::test_a_declared_total_and_a_threshold"),
    Fault("sentences are believed", RECOMPUTE, "elif name not in said or said[name] != value:", "elif False:",
          f"{FORGERIES}::test_another_sentence"),
    Fault("further fields are believed", RECOMPUTE,
          'beyond = said.keys() - own.keys() - {"digest", "report", "resources"}', "beyond: set[str] = set()",
          f"{FORGERIES}::test_another_sentence"),
    Fault("descriptions of files are believed", RECOMPUTE, 'if item != json.loads(json.dumps(resource(',
          'if None is json.loads(json.dumps(resource(', f"{FORGERIES}::test_another_sentence"),
    Fault("the manifest's recipe is believed", RECOMPUTE,
          'if implementation.get("recipe", dict(words)) != dict(words):', "if False:",
          f"{FORGERIES}::test_the_recipe_of_the_manifest_is_that_of_the_table"),
    Fault("who bounded is believed", RECOMPUTE,
          'if enforced.startswith("by the provider") != (PROVIDER_BOUNDED in said.assumes):', "if False:",
          f"{FORGERIES}::test_who_bounded_contributions_is_said_once"),
    Fault("the Japanese certificate is believed", "manifest/verify.py",
          '(("certificate.md", certificate.english), ("certificate.ja.md", certificate.japanese))',
          '(("certificate.md", certificate.english),)', f"{FORGERIES}::test_a_japanese_certificate_of_another_epsilon"),
    Fault("parents and children are not compared", "recipes/counttree.py",
          "apart=tuple(apart(tree, pilot))", "apart=None",
          f"{FORGERIES}::test_true_counts_as_measurements"),
    Fault("a preset is believed", RECOMPUTE, WORDS, WORDS.replace(":", ' and name not in ("preset", "shares"):'),
          f"{FORGERIES}::test_another_preset"),
    Fault("a kernel changed under its version", "_kernels/visit.py", "np.floor(running + 0.5)",
          "np.floor(running + 0.4)", f"{OLD}::test_todays_refinement_gives_the_old_values"),
]  # fmt: skip


@pytest.mark.parametrize(
    "fault", [*SHORT, *(pytest.param(fault, marks=pytest.mark.full) for fault in LONG)], ids=lambda fault: fault.name
)
def test_planted_fault_is_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
