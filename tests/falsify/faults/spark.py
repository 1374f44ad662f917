"""Faults of the release on a cluster."""

from planted import Fault

SPARK_BLOCKS = "tests/laws/test_spark_blocks.py"
SPARK = "tests/spark/test_spark.py"
SPARK_ROWWISE = "tests/spark/test_spark_rowwise.py"

FAULTS = [
    Fault("a block without records is not drawn on Spark", "kasuri.spark.subtrees:_pairs",
          "yield own.slice(low, high - low), root.slice(i, 1)",
          "yield from [(own.slice(low, high - low), root.slice(i, 1))] if low < high else []",
          f"{SPARK_BLOCKS}::test_blocks_without_a_record_have_their_mass"),
    Fault("a task writes where the folder is another's", "kasuri.spark.keep:writer", "if not sees(folder, token):",
          "if not Path(folder).exists():",
          f"{SPARK_BLOCKS}::test_a_task_writes_only_where_its_token_is_and_says_what"),
    Fault("two runs of a task write one file", "kasuri.spark.files:_File.__init__",
          'folder / f".{secrets.token_hex(16)}"', 'folder / f".{number}"',
          f"{SPARK}::test_a_file_written_twice_is_the_same_and_half_a_file_is_none"),
    Fault("a block on Spark forgets its records", "kasuri.spark.subtrees:Halves.draw",
          "made = descent.below(prefix, S, keys, engine.prefix_sums(values), streams, record)",
          "made = descent.below(prefix, S, keys[:0], engine.prefix_sums(values[:0]), streams, record)",
          f"{SPARK_BLOCKS}::test_a_cut_tree_is_the_release_of_one_machine"),
    Fault("the pilot is measured once more in the blocks on Spark", "kasuri.spark.joined:Joined._by_blocks",
          "measure(self.run, visit, streams, cut.known)", "measure(self.run, visit, streams)",
          f"{SPARK_BLOCKS}::test_what_is_refined_as_a_whole_is_the_release_of_one_machine"),
    Fault("a part on Spark is published without noise", "kasuri.spark.joined:Joined._by_blocks",
          "part.noisy(found, streams)", "found",
          f"{SPARK_BLOCKS}::test_what_is_refined_as_a_whole_is_the_release_of_one_machine"),
    Fault("pieces of a unit on Spark are bounded one by one", "kasuri.ingest.parts:together",
          "kept, ids = _next(kernel, kept, ids, waiting", "kept, ids = _next(kernel, kept[:0], None, waiting",
          f"{SPARK_BLOCKS}::test_units_are_bounded_piece_by_piece"),
    Fault("any step of a Spark plan is passed over", "kasuri.spark.rowwise:_Plan.__init__",
          "while _name(node, PLANS) in STEPS:", "while node.children().size():",
          f"{SPARK_ROWWISE}::test_what_may_depend_on_other_records_or_fail_is_refused"),
    Fault("Spark skips rows by the numbers of others", "kasuri.spark.session:settings", "wanted = dict(SETTINGS)",
          'wanted = {name: value for name, value in SETTINGS.items() if "Pushdown" not in name}',
          f"{SPARK_ROWWISE}::test_rows_are_not_skipped_by_statistics_of_other_rows"),
    Fault("a cache that was filtered is taken", "kasuri.spark.rowwise:_Plan.__init__", "open_filters < sum(",
          "open_filters > sum(", f"{SPARK_ROWWISE}::test_a_filter_that_was_run_into_a_cache_is_refused"),
]  # fmt: skip
