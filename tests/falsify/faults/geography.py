"""Faults of places on the earth: points on lines and borders, codes of another level, trees of places."""

from planted import Fault

GRIDS = "tests/contract/test_geography.py"
REGIONS = "tests/contract/test_regions.py"
MATCHED = "tests/contract/test_matched.py"
POINTED = "test_confidential_rows_are_not_places_by_way_of_their_folder_or_of_a_file_that_points_to_them"
EXAMPLES = "tests/contract/test_examples.py"

FAULTS = [
    Fault("a point on a line by a rounded quotient", "kasuri.schema.schemes.scheme:Lines.find",
          "number -= self.at(number) > place", "number -= 0",
          f"{GRIDS}::test_points_on_the_lines_of_decimal_steps"),
    Fault("a corner inside a cell taken for a code", "kasuri.schema.schemes.eu:European.decode",
          "(part % _METRES[level] == 0) & (part < _END)", "part < _END",
          f"{GRIDS}::test_what_is_not_a_european_code_of_the_level"),
    Fault("a point on a border in the last place", "kasuri.schema.places:_find",
          'np.argsort(place, kind="stable")[::-1]', 'np.argsort(place, kind="stable")',
          f"{REGIONS}::test_points_are_found_as_geopandas_finds_them"),
    Fault("places by way of a file that points to the rows", "kasuri.schema.places:_layer",
          "not in FORMATS", "in ()", f"{REGIONS}::{POINTED}"),
    Fault("an address in a file of shapes is followed", "kasuri.schema.places:_layer",
          "not _alone(path) or ", "", f"{REGIONS}::test_no_address_in_a_file_of_shapes_is_followed"),
    Fault("degrees are taken for metres", "kasuri.schema.systems:elsewhere",
          "max(abs(west), abs(east)) <= 360", "max(abs(west), abs(east)) <= 0",
          f"{REGIONS}::test_faults_of_shapes"),
    Fault("two parents of one place", "kasuri.schema.places:faults", "if len(above[code]) > 1]", "if False]",
          f"{REGIONS}::test_faults_of_a_list_at_once"),
    Fault("a cell in the region of its corner", "kasuri.schema.axis:Plane.centres",
          "return (south + north) / 2, (west + east) / 2", "return south, west",
          f"{MATCHED}::test_a_cell_is_where_its_centre_is_or_where_most_of_it_is"),
    Fault("a map of another window is accepted", "kasuri.schema.maps:RegionMap.faults",
          "if self.over and self.over != digest(axis):", "if False:",
          f"{MATCHED}::test_woven_tree_takes_the_same_value"),
    Fault("trees of places are left out unless asked for", "kasuri.recipes.mechanism:Mechanism.suited",
          "not domain.grouped else self.along_trees", "not domain.grouped else self",
          f"{REGIONS}::test_trees_are_followed_without_being_asked"),
    Fault("columns of names in the order of a sorted manifest", "kasuri.schema.regions:Regions.to_json",
          "if list(titles) != sorted(titles):", "if False:",
          f"{EXAMPLES}::test_japanese_municipalities_with_names"),
    Fault("limits of a region from another one", "kasuri.store.columns:_by_region",
          "number[there], cells.size)", "number[there][::-1].copy(), cells.size)",
          f"{MATCHED}::test_exports_have_a_table_of_every_level_of_the_regions"),
]  # fmt: skip
