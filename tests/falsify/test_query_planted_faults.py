"""Faults planted in what judges and runs queries, each caught by a named test from outputs alone."""

import pytest
from planted import Fault, assert_caught

ROWWISE, QUERIES = "tests/laws/test_rowwise.py", "tests/contract/test_queries.py"
REFUSED = f"{ROWWISE}::test_a_query_that_may_mix_rows_is_refused"
BOUNDED = f"{ROWWISE}::test_one_person_changes_an_accepted_query_by_at_most_the_claim"

FAULTS = [
    Fault("a doubtful query taken without a word", "ingest/stream.py", "if why is not None and not assumes:",
          "if False:", REFUSED),
    Fault("an id that the query makes", "ingest/stream.py", "if unit_id in self.made:", "if False:", REFUSED),
    Fault("a generated column read as a stored one", "ingest/rowwise.py", "    if generated:\n",
          "    if False:\n", REFUSED),
    Fault("a macro of the database called by its short name", "ingest/workshop.py", "system.main.strlen",
          "strlen", BOUNDED),
    Fault("a failing expression stops the query", "ingest/rowwise.py", 'f"TRY({value.sql})"', 'f"({value.sql})"',
          f"{ROWWISE}::test_common_parts_of_expressions_stay_inside_their_try"),
    Fault("external access left on", "ingest/workshop.py", "SET enable_external_access = false",
          "SET enable_external_access = true", f"{QUERIES}::test_a_view_of_a_file_is_not_read"),
    Fault("SQLite may do anything but write", "ingest/databases.py", "else sqlite3.SQLITE_DENY",
          "else sqlite3.SQLITE_OK", f"{QUERIES}::test_sqlite_only_reads_tables"),
    Fault("PostgreSQL may write", "ingest/databases.py", "SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE",
          f"{QUERIES}::test_a_table_and_a_query_of_postgresql"),
    Fault("what is vouched for is not said", "ingest/frames.py", "assumes=assumes,", "assumes=(),",
          f"{QUERIES}::test_what_is_vouched_for_is_said_in_both_languages"),
]  # fmt: skip


SHORT = {
    "a doubtful query taken without a word",
    "external access left on",
}


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name, marks=() if f.name in SHORT else pytest.mark.full) for f in FAULTS]
)
def test_planted_fault_is_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
