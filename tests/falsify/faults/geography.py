"""Faults of places on the earth: points on lines and borders, codes of another level, trees of places."""

from planted import Fault

GRIDS = "tests/contract/test_geography.py"
REGIONS = "tests/contract/test_regions.py"

FAULTS = [
    Fault("a point on a line by a rounded quotient", "kasuri.schema.schemes.scheme:Lines.find",
          "number -= self.at(number) > place", "number -= 0",
          f"{GRIDS}::test_points_on_the_lines_of_decimal_steps"),
    Fault("a corner inside a cell taken for a code", "kasuri.schema.schemes.eu:European.decode",
          "(part % _METRES[level] == 0) & (part < _END)", "part < _END",
          f"{GRIDS}::test_what_is_not_a_european_code_of_the_level"),
    Fault("a point on a border in the last place", "kasuri.schema.places:find",
          'np.argsort(place, kind="stable")[::-1]', 'np.argsort(place, kind="stable")',
          f"{REGIONS}::test_points_are_found_as_geopandas_finds_them"),
    Fault("two parents of one place", "kasuri.schema.places:faults", "if len(above[code]) > 1]", "if False]",
          f"{REGIONS}::test_faults_of_a_list_at_once"),
]  # fmt: skip
