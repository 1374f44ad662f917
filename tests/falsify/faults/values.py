"""Faults of names, prices and numbers."""

from planted import Attack, Fault

NAMES = "tests/contract/test_names.py"
EPSILON = "tests/contract/test_epsilon.py"

FAULTS = [
    Fault("a line break in a name", "kasuri.names:faults", "in _REFUSED and not _joins(text, i)", "in ()",
          f"{NAMES}::test_names_that_hide_or_break_are_refused_where_they_are_built"),
    Fault("any text Python takes for a number", "kasuri.privacy:_fraction", " or not _NUMBER.fullmatch(value)", "",
          f"{EPSILON}::test_text_that_is_not_a_plain_number"),
    Fault("a release above 20 without the word", "kasuri.draw:release", "asked(epsilon))",
          "asked(epsilon, study=True))", f"{EPSILON}::test_above_20_needs_the_word"),
    Fault("the formula of continuous noise as a price", "kasuri.budget.gaussian:least_scale",
          "if found <= epsilon:", "if True:", "tests/laws/test_gaussian.py::test_a_run_costs_no_more_than_it_claims"),
    Fault("a tail that nobody pays for", "kasuri.budget.gaussian:_reach", "math.log(1 / tail)", "math.log(1e3)",
          "tests/laws/test_gaussian.py::test_rows_of_a_week"),
    Fault("a series priced as one release", "kasuri.budget.declared:Declared.price",
          "priced(self.losses, self.releases,", "priced(self.losses, 1,",
          attacks=(Attack("8 releases, privacy-loss distribution", runs=1500),)),
]  # fmt: skip
