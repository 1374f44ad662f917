"""Faults of what reads, judges, bounds and counts records."""

from planted import Attack, Fault

BOUNDING = "tests/laws/test_bounding.py"
CLI = "tests/contract/test_cli.py"
TABLE_FAULTS = "tests/contract/test_table_faults.py"
ROWWISE = "tests/laws/test_rowwise.py"
QUERIES = "tests/contract/test_queries.py"

FAULTS = [
    Fault("a unit split over two parts in DuckDB", "kasuri.ingest.micro:_split",
          "_salt(key), np.uint64(PARTS), part)", "np.uint64(written), np.uint64(PARTS), part)",
          f"{BOUNDING}::test_many_batches_and_parts_give_the_same"),
    Fault("a unit split over two parts of the radix count", "kasuri.ingest.micro:_radix",
          "good, _salt(key), bits, rows)", "good, np.uint64(at), bits, rows)",
          f"{BOUNDING}::test_many_batches_and_parts_give_the_same"),
    Fault("pieces of a part bounded one by one", "kasuri.ingest.micro:_part", "            used = len(kept)\n",
          "            used = len(kept)\n            bounded = np.array  # the rest as it is\n",
          f"{BOUNDING}::test_many_batches_and_parts_give_the_same"),
    Fault("DuckDB counts the last piece of a part by itself", "kasuri.ingest.micro:_bound_group",
          'source = "(SELECT * FROM kept UNION ALL SELECT * FROM incoming)"', 'source = "incoming"',
          f"{BOUNDING}::test_many_batches_and_parts_give_the_same"),
    Fault("a piece is as long as its part", "kasuri.ingest.micro:_bound_group",
          "size + chunks[at][2] <= times * room", "size >= 0",
          f"{BOUNDING}::test_a_crowd_is_bounded_in_pieces_that_fit_and_by_two_threads"),
    Fault("an id of any length", "kasuri.ingest.sources:short", "long = pc.greater(lengths, LONGEST)",
          "long = pc.greater(lengths, 1 << 30)", f"{BOUNDING}::test_an_id_that_is_too_long_is_no_id"),
    Fault("an id's length in characters", "kasuri.ingest.sources:short", "lengths = pc.binary_length(items)",
          "lengths = pc.utf8_length(items)", f"{BOUNDING}::test_text_ids_are_exact_bytes"),
    Fault("one line that is no UTF-8 stops the reading", "kasuri.ingest.utf8:readable", "    if _is_utf8(path):",
          "    if True:", f"{BOUNDING}::test_one_line_of_a_csv_file_never_stops_the_others"),
    Fault("rows and columns taken for the 500 m mesh", "kasuri.cli.options:asked", '(None if plain else "500m")',
          '"500m"', f"{CLI}::test_rows_and_columns_have_no_place_unless_it_is_declared"),
    Fault("the first of two columns", "kasuri.ingest.axes:twice", "if plain.count(name.strip().casefold()) > 1",
          "if False", f"{TABLE_FAULTS}::test_a_column_that_stands_twice"),
    Fault("a doubtful query taken without a word", "kasuri.ingest.stream:row_by_row",
          "if why is not None:", "if False:",
          f"{ROWWISE}::test_a_query_that_may_mix_rows_is_refused", short=True),
    Fault("an id that the query makes", "kasuri.ingest.stream:Doubt.words", "if unit_id in self.made:", "if False:",
          f"{ROWWISE}::test_a_query_that_may_mix_rows_is_refused"),
    Fault("a generated column read as a stored one", "kasuri.ingest.rowwise:_column", "    if generated:\n",
          "    if False:\n", f"{ROWWISE}::test_a_query_that_may_mix_rows_is_refused"),
    Fault("a macro of the database called by its short name", "kasuri.ingest.workshop:short_text",
          "system.main.strlen", "strlen",
          f"{ROWWISE}::test_one_person_changes_an_accepted_query_by_at_most_the_claim"),
    Fault("a failing expression stops the query", "kasuri.ingest.rowwise:_tried", 'f"TRY({value.sql})"',
          'f"({value.sql})"', f"{ROWWISE}::test_common_parts_of_expressions_stay_inside_their_try",
          also=(("kasuri.ingest.workshop:compute", "            own[0].close()\n            own[0] = workshop()",
                 "            raise\n            own[0] = workshop()"),)),
    Fault("external access left on", "kasuri.ingest.workshop:lock", "SET enable_external_access = false",
          "SET enable_external_access = true", f"{QUERIES}::test_a_view_of_a_file_is_not_read", short=True),
    Fault("SQLite may do anything but write", "kasuri.ingest.databases:_sqlite", "else sqlite3.SQLITE_DENY",
          "else sqlite3.SQLITE_OK", f"{QUERIES}::test_sqlite_only_reads_tables"),
    Fault("PostgreSQL may write", "kasuri.ingest.databases:_postgres", "SET TRANSACTION READ ONLY",
          "SET TRANSACTION READ WRITE", f"{QUERIES}::test_a_table_and_a_query_of_postgresql"),
    Fault("what is vouched for is not said", "kasuri.ingest.frames:count", "assumes=assumes,", "assumes=(),",
          f"{QUERIES}::test_what_is_vouched_for_is_said_in_both_languages"),
    Fault("one cell too many is counted", "kasuri.ingest.micro:_bounded", "n, min(unit.max_cells, len(rows)), state",
          "n, min(unit.max_cells + 1, len(rows)), state",
          attacks=(Attack("count() of records", "one cell, many rows", short=True),)),
]  # fmt: skip
