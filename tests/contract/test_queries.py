"""A query only reads: one SELECT, no other file, in every database, also under `kasuri check`; and what is
vouched for is said in the release, in both languages."""

import os
import re
import shutil
import sqlite3
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri import job
from kasuri.ingest import Query, Table, databases, frames
from kasuri.schema import ROWS_ALONE, Domain, Nominal, Ordered, Unit

SEX = Domain.of(Nominal("s", ("s", "f")))
UNIT = Unit("person", "add-remove", 1)
PEOPLE = [("a", "s", 20), ("b", "f", 30), ("c", "s", 40), ("d", "?", 50)]
JOB = """
[data]
name = "people"
database = "{database}"
{what}
columns = {{ s = "s" }}

[[axes]]
kind = "nominal"
name = "s"
labels = ["s", "f"]

[unit]
id = "person"
change = "add-remove"
max_cells = 1

[recipe]
name = "geometric"

[budget]
epsilon = "1"
unmetered = true

[output]
folder = "out"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"person": ["x", "y"], "s": ["s", "s"]}), "other.parquet")
    with duckdb.connect("p.duckdb") as base:
        base.execute("CREATE TABLE t (person VARCHAR, s VARCHAR, age INTEGER)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?)", PEOPLE)
        base.execute("CREATE VIEW files AS SELECT person, s FROM 'other.parquet'")
    shutil.copy("p.duckdb", "q.duckdb")
    lite = sqlite3.connect("p.sqlite")
    lite.execute("CREATE TABLE t (person TEXT, s TEXT, age INTEGER, twice AS (s || s))")
    lite.executemany("INSERT INTO t VALUES (?, ?, ?)", PEOPLE)
    lite.execute("CREATE VIEW w AS SELECT person, s FROM t")
    lite.execute("CREATE VIRTUAL TABLE words USING fts5(person, s)")
    lite.commit()
    lite.close()
    return tmp_path


def counted(source, assume=None):
    frame_of_this_program = pa.table({"person": ["x"], "s": ["s"]})
    assert frame_of_this_program.num_rows == 1
    made = ks.count(source, SEX, columns={"s": "s"}, unit=UNIT, data="people", assume=assume)
    return dict(zip(made.cells.tolist(), made.values.tolist(), strict=True))


def written(what, database, folder):
    path = folder / "job.toml"
    path.write_text(JOB.format(what=what, database=database))
    return path


DUCKDB = [
    "COPY t TO 'leak.csv'; SELECT person, s FROM t",
    "SELECT person, s FROM t; COPY t TO 'leak.csv'",
    "COPY t TO 'leak.csv'",
    "COPY (SELECT * FROM t) TO 'leak.parquet'",
    "EXPORT DATABASE 'leak'",
    "ATTACH 'leak.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "CALL enable_logging(storage = 'file', storage_path = 'leak')",
    "SELECT person, s FROM t, enable_logging(storage = 'file', storage_path = 'leak')",
    "WITH x AS (INSERT INTO t VALUES ('e', 's', 1) RETURNING *) SELECT person, s FROM x",
    "SELECT person, s FROM read_parquet('other.parquet')",
    "SELECT person, s FROM 'other.parquet'",
    "SELECT file AS person, 's' AS s FROM glob('*')",
    "SELECT content AS person, 's' AS s FROM read_text('job.toml')",
    "SELECT person, s FROM files",
    "SELECT person, s FROM query('COPY t TO ''leak.csv''')",
    "SELECT person, s FROM sqlite_scan('p.sqlite', 't')",
    "SELECT person, s FROM read_duckdb('q.duckdb', table_name = 't')",
    "SELECT person, s FROM frame_of_this_program",
]
SQLITE = [
    "VACUUM INTO 'leak.db'",
    "SELECT person, s FROM t; VACUUM INTO 'leak.db'",
    "ATTACH 'leak.db' AS leak",
    "PRAGMA writable_schema = 1",
    "SELECT name AS person, 's' AS s FROM pragma_table_info('t')",
    "WITH x AS (SELECT 1) INSERT INTO t VALUES ('e', 's', 1)",
    "EXPLAIN SELECT person, s FROM t",
    "SELECT load_extension('leak') AS person, 's' AS s",
    "SELECT writefile('leak.db', 'x') AS person, 's' AS s",
    "CREATE TEMP TABLE x AS SELECT * FROM t",
    "-- SELECT\nVACUUM INTO 'leak.db'",
    "/* SELECT */ VACUUM INTO 'leak.db'",
    "/* /* */ SELECT */ VACUUM INTO 'leak.db'",
]


@pytest.mark.parametrize(
    ("database", "sql"), [*(("p.duckdb", sql) for sql in DUCKDB), *(("p.sqlite", s) for s in SQLITE)]
)
def test_a_query_writes_and_reads_no_other_file(folder, database, sql):
    """Whatever is vouched for, and under `check` too."""
    before = {path: path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(ks.KasuriError):
        counted(Query(database, sql), assume=ROWS_ALONE)
    assert {path: path.read_bytes() for path in folder.rglob("*")} == before
    escaped = sql.replace("\n", "\\n").replace('"', '\\"')
    path = written(f'query = "{escaped}"\nassume = "{ROWS_ALONE}"', database, folder)
    assert job.check(path)
    with pytest.raises(ks.KasuriError):
        job.run(job.load(path), folder)
    path.unlink()
    assert {path: path.read_bytes() for path in folder.rglob("*")} == before


def test_a_view_of_a_file_is_not_read(folder):
    with pytest.raises(ks.PrivacyError, match="beside its database"):
        counted(Query("p.duckdb", "SELECT person, s FROM files"), assume=ROWS_ALONE)


def test_sqlite_only_reads_tables(folder):
    with pytest.raises(ks.PrivacyError, match="only read the tables"):
        counted(Query("p.sqlite", "SELECT name AS person, 's' AS s FROM pragma_table_info('t')"), assume=ROWS_ALONE)


def test_a_file_that_the_job_lists_is_read_by_its_name(folder):
    what = 'query = "SELECT person, s FROM more UNION ALL SELECT person, s FROM t"\nreads = { more = "other.parquet" }'
    path = written(what, "p.duckdb", folder)
    assert any(ROWS_ALONE in fault for fault in job.check(path))
    path = written(f'{what}\nassume = "{ROWS_ALONE}"', "p.duckdb", folder)
    made = job.counts(job.load(path), folder)
    assert made.values.tolist() == [4, 1] and made.assumes == (ROWS_ALONE,)
    for wrong in ("job.toml", "none.csv", "*.parquet"):
        with pytest.raises(ks.DomainError, match="that exist"):
            counted(Query("p.duckdb", "SELECT person, s FROM more", {"more": wrong}), assume=ROWS_ALONE)
    with pytest.raises(ks.DomainError, match="only a query of DuckDB"):
        counted(Query("p.sqlite", "SELECT person, s FROM t", {"more": "other.parquet"}), assume=ROWS_ALONE)


@pytest.mark.parametrize("database", ["p.duckdb", "p.sqlite"])
def test_a_table_is_read_by_sql_that_kasuri_writes(folder, database):
    assert counted(Table(database, "t")) == counted(Table(database, ("main", "t"))) == {0: 2, 1: 1}
    assert counted(Table(database, "t", [("age", ">=", 30)])) == {0: 1, 1: 1}
    assert counted(Table(database, "t", [("s", "in", ["s", "x"]), ("age", "not in", [20])])) == {0: 1}
    assert counted(Table(database, "t", [("s", "<>", "s"), ("person", "is not null")])) == {1: 1}
    assert counted(Table(database, "t", [("age", "is null")])) == {}
    assert counted(Table(database, "t", [("s", "=", "s' OR 's' = 's")])) == {}
    for name in ("w", "files", "words", "sqlite_master", "none", 't"; --', "other.parquet", "pragma_table_list"):
        with pytest.raises(ks.DomainError, match="not a stored table"):
            counted(Table(database, name))
    for condition in (("rowid", ">", 1), ("twice", "=", "ss"), ("1=1 OR s", "=", "s")):
        with pytest.raises(ks.DomainError, match="no column"):
            counted(Table(database, "t", [condition]))
    for wrong in (
        [("age", "like", 1)], [("age", "=")], [("age", "is null", 1)], [("age", "in", 1)], [("age", "in", [])],
        [("age", "=", float("nan"))], [("age", "=", None)], [("age", "=", 1 << 70)], [("s", "=", "\0")],
    ):  # fmt: skip
        with pytest.raises(ks.DomainError, match="condition 1"):
            Table(database, "t", wrong)
    if database == "p.sqlite":
        with pytest.raises(ks.DomainError, match="generated"):
            ks.count(Table(database, "t"), SEX, columns={"s": "twice"}, unit=UNIT)
        for assume, words in ((None, ROWS_ALONE), ("trust me", "only assumption")):
            with pytest.raises(ks.PrivacyError, match=words):
                counted(Query(database, "SELECT person, s FROM t"), assume=assume)
    what = 'table = "t"\nwhere = [{ column = "age", op = ">=", value = 30 }, { column = "s", op = "is not null" }]'
    path = written(what, database, folder)
    assert any("not a label" in fault for fault in job.check(path)) and job.check(path, outside=True) == []
    made = job.counts(job.load(path), folder)
    assert (made.values.tolist(), made.assumes) == ([1, 1], ())


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ('table = "t"\nquery = "SELECT 1"', "database and table, or database and query"),
        ("", "database and table, or database and query"),
        ('query = "SELECT 1"\nwhere = [{ column = "age", op = "is null" }]', "where goes with table"),
        ('table = "t"\nreads = { a = "a.csv" }', "reads goes with query"),
        ('table = "t"\nassume = "trust me"', "rows depend on their own id alone"),
        ('table = "t"\nwhere = [{ column = "age", op = "like", value = "x" }]', "input should be"),
    ],
)
def test_a_job_says_one_thing(folder, what, words):
    path = written(what, "p.duckdb", folder)
    with pytest.raises(ks.FormatError, match=words):
        job.load(path)


def test_what_is_vouched_for_is_said_in_both_languages(folder):
    path = written(f'query = "SELECT DISTINCT person, s FROM t"\nassume = "{ROWS_ALONE}"', "p.duckdb", folder)
    out = job.run(job.load(path), folder)
    assert ROWS_ALONE in out.guarantee.assumes
    english = (folder / "out" / "certificate.md").read_text()
    assert f"- {ROWS_ALONE}" in english and "enforced by kasuri, when counting rows taken on trust" in english
    vouched = "各行はその識別子の記録だけから決まる（申告による。kasuri は検査していない）"
    japanese = (folder / "out" / "certificate.ja.md").read_text()
    assert f"- {vouched}" in japanese and "決まることは申告による" in japanese
    report = (folder / "out" / "report.html").read_text()
    assert ROWS_ALONE in report and vouched in report
    path = written('query = "SELECT person, s FROM t"', "p.duckdb", folder)
    path.write_text(path.read_text().replace('"out"', '"plain"'))
    assert ROWS_ALONE not in job.run(job.load(path), folder).guarantee.assumes
    assert "enforced by kasuri, when counting." in (folder / "plain" / "certificate.md").read_text()
    with pytest.raises(ks.PrivacyError, match="nobody's"):
        ks.count(Query("p.duckdb", "SELECT s, 1 AS n FROM t LIMIT 1"), SEX, columns={"s": "s"}, unit=UNIT, weight="n",
                 assume=ROWS_ALONE)  # fmt: skip


ONE_FOR_ALL = "SELECT person, (SELECT max(s) FROM kept) AS s FROM kept"
"""A view in which one record decides over the rows of all."""


CHANGED = r"changed after it was checked|not a stored table"


def swap(database):
    """Put a view in the place of table t."""
    connect = duckdb.connect if database.endswith("duckdb") else partial(sqlite3.connect, timeout=0)
    with connect(database) as base:
        base.execute("ALTER TABLE t RENAME TO kept")
        base.execute(f"CREATE VIEW t AS {ONE_FOR_ALL}")


def between(monkeypatch, module, name, step):
    """Run `step` right after a function of kasuri was called for the first time."""
    whole, left = getattr(module, name), [step]

    def called(*given, **named):
        out = whole(*given, **named)
        if left:
            left.pop()()
        return out

    monkeypatch.setattr(module, name, called)


@pytest.mark.parametrize("database", ["p.duckdb", "p.sqlite"])
@pytest.mark.parametrize("kind", [Table, Query])
def test_what_was_checked_is_what_is_read(folder, monkeypatch, database, kind):
    """Another program puts a view in the place of the table, after the check and before the rows are read."""
    source = Table(database, "t") if kind is Table else Query(database, "SELECT person, s FROM t")
    if (kind, database) == (Query, "p.sqlite"):
        pytest.skip("own SQL of SQLite is taken on trust")
    assert counted(source) == {0: 2, 1: 1}
    between(monkeypatch, frames, "trusted", lambda: swap(database))
    with pytest.raises(ks.KasuriError, match=CHANGED):
        counted(source)


@pytest.mark.parametrize("database", ["p.duckdb", "p.sqlite"])
def test_no_one_comes_between_the_last_look_and_the_reading(folder, monkeypatch, database):
    def try_to_swap():
        with pytest.raises((duckdb.Error, sqlite3.OperationalError)):
            swap(database)

    between(monkeypatch, databases, "unchanged", try_to_swap)
    assert counted(Table(database, "t")) == {0: 2, 1: 1}


def test_a_relation_that_changes_is_refused(folder, monkeypatch):
    base = duckdb.connect("p.duckdb")
    relation = base.sql("SELECT person, s FROM t")
    assert counted(relation) == {0: 2, 1: 1}

    def step():
        base.execute("ALTER TABLE t RENAME TO kept")
        base.execute(f"CREATE VIEW t AS {ONE_FOR_ALL}")

    between(monkeypatch, frames, "trusted", step)
    with pytest.raises(ks.KasuriError):
        counted(relation)


def test_a_table_of_postgresql_that_changes_is_refused(postgres, monkeypatch):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('a', 's'), ('b', 'f')) v(person, s)")
        base.execute("CREATE TABLE u (LIKE t)")
        assert counted(Table(postgres, "t")) == {0: 1, 1: 1}
        for name, change in (
            ("t", f"ALTER TABLE t RENAME TO kept; CREATE VIEW t AS {ONE_FOR_ALL}"),
            ("u", "ALTER TABLE u RENAME TO old; CREATE TABLE u AS SELECT * FROM kept"),
        ):
            with monkeypatch.context() as patched:
                between(patched, frames, "trusted", lambda change=change: base.execute(change))
                with pytest.raises(ks.KasuriError, match=CHANGED):
                    counted(Table(postgres, name))


def test_what_sqlite_keeps_for_itself_is_not_a_table_of_records(folder):
    """Where a record is in an index depends on the others."""
    with sqlite3.connect("p.sqlite") as base:
        base.execute("CREATE VIRTUAL TABLE near USING rtree(person, low, high)")
        base.execute("CREATE TABLE made (person INTEGER PRIMARY KEY AUTOINCREMENT, s TEXT)")
        base.execute("INSERT INTO made (s) VALUES ('s')")
    assert counted(Table("p.sqlite", "made")) == {0: 1}
    for name in ("near", "near_rowid", "near_node", "words", "words_content", "words_data", "w", "sqlite_sequence",
                 "sqlite_master", "sqlite_schema"):  # fmt: skip
        with pytest.raises(ks.DomainError, match="not a stored table"):
            counted(Table("p.sqlite", name))


def test_a_table_of_sqlite_with_the_name_of_a_pragma_says_nothing(folder):
    """A view that counts all records was taken for a stored table where the database said that it is one."""
    with sqlite3.connect("r.sqlite") as base:
        base.execute("CREATE TABLE p (person TEXT, s TEXT)")
        base.execute("INSERT INTO p VALUES ('a', 's')")
        base.execute("CREATE VIEW seen AS SELECT person, (SELECT count(*) FROM p) AS s FROM p")
        base.execute("CREATE TABLE pragma_table_list (schema, name, type)")
        base.execute("INSERT INTO pragma_table_list VALUES ('main', 'seen', 'table')")
    with pytest.raises(ks.DomainError, match="not a stored table"):
        counted(Table("r.sqlite", "seen"))
    assert counted(Table("r.sqlite", "p")) == {0: 1}


def test_rows_that_an_index_of_sqlite_lacks_are_counted(folder):
    """An index is what somebody wrote into the file; SQLite would read it in place of the table."""
    with sqlite3.connect("r.sqlite") as base:
        base.execute("CREATE TABLE p (person TEXT, s TEXT)")
        base.execute("CREATE INDEX i ON p (person, s)")
        (own,) = base.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'i'").fetchone()
        base.execute("PRAGMA writable_schema = on")
        base.execute("DELETE FROM sqlite_schema WHERE name = 'i'")
    with sqlite3.connect("r.sqlite") as base:
        base.execute("INSERT INTO p VALUES ('a', 's')")
        base.execute("PRAGMA writable_schema = on")
        made = "CREATE INDEX i ON p (person, s)"
        base.execute("INSERT INTO sqlite_schema VALUES ('index', 'i', 'p', ?, ?)", [own, made])
    with sqlite3.connect("r.sqlite") as base:
        assert base.execute("SELECT person, s FROM p WHERE person = 'a'").fetchall() == []
    assert counted(Table("r.sqlite", "p", [("person", "=", "a")])) == counted(Table("r.sqlite", "p")) == {0: 1}


def test_text_of_postgresql_that_cannot_be_written_ends_no_release(postgres):
    """One record with a byte that UTF-8 has no letter for."""
    import psycopg

    odd = "CREATE TABLE t (person text, s text); INSERT INTO t VALUES ('a', 's'), ('b', convert_from('\\x81', '{0}'))"
    for encoding, good in (("SQL_ASCII", True), ("WIN1252", False)):
        name = f"odd_{encoding.lower()}"
        with psycopg.connect(postgres, autocommit=True) as base:
            base.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        address = re.sub(r"/[^/?]*[?]", f"/{name}?", postgres)
        with psycopg.connect(address, autocommit=True, client_encoding=encoding) as base:
            base.execute(odd.format(encoding))
        if good:
            assert counted(Table(address, "t")) == {0: 1}
        else:
            with pytest.raises(ks.DomainError, match="not in UTF-8"):
                counted(Table(address, "t"))


OWN = {
    "a cast": "CREATE CAST (int4 AS text) WITH FUNCTION seen(int4) AS ASSIGNMENT",
    "an operator": "CREATE OPERATOR pg_catalog.= (LEFTARG = text, RIGHTARG = int4, FUNCTION = seen_too)",
    "a rule of order": "CREATE OPERATOR FAMILY own USING btree; "
    "ALTER OPERATOR FAMILY own USING btree ADD OPERATOR 1 > (int4, int4)",
    "a function": "SET allow_system_table_mods = on; CREATE FUNCTION pg_catalog.octet_length(int4) RETURNS int4 "
    "LANGUAGE sql AS 'SELECT 1'",
}


@pytest.mark.parametrize("what", OWN)
def test_casts_and_operators_of_a_postgresql_database_are_not_run(postgres, what):
    """They may look at other rows: with this cast one person turned the ages of twenty others."""
    import psycopg

    there = "SELECT EXISTS (SELECT 1 FROM public.t WHERE person = ''victim'')"
    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE t (person text, s text, age int4)")
        base.execute("INSERT INTO t SELECT 'p' || i, 's', 1 FROM generate_series(1, 20) i")
        base.execute(f"CREATE FUNCTION seen(int4) RETURNS text LANGUAGE sql STABLE AS '{there}::int::text'")
        base.execute(f"CREATE FUNCTION seen_too(text, int4) RETURNS bool LANGUAGE sql STABLE AS '{there}'")
        assert counted(Table(postgres, "t")) == {0: 20}
        base.execute(OWN[what])
        for where in ([], [("s", "=", 5)]):
            with pytest.raises(ks.PrivacyError, match="of its own"):
                counted(Table(postgres, "t", where))


def reading(postgres):
    """The address for a role that reads tables and nothing else."""
    import psycopg

    role = "r" + os.urandom(6).hex()
    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute(f"CREATE ROLE {role} LOGIN; GRANT pg_read_all_data TO {role}")
    return re.sub(r"//[^@]*@", f"//{role}@", postgres)


def test_a_query_of_postgresql_touches_no_file_of_the_server(postgres, tmp_path):
    """In a transaction that only reads, too, one SELECT of a mighty role can."""
    import psycopg

    tmp_path.chmod(0o777)
    with psycopg.connect(postgres, autocommit=True) as base:
        large = base.execute("SELECT lo_from_bytea(0, 'records')").fetchone()[0]
        role = base.execute("CREATE ROLE writer LOGIN; GRANT pg_write_server_files TO writer; SELECT 1") and "writer"
    reader, writer = reading(postgres), re.sub(r"//[^@]*@", f"//{role}@", postgres)
    for sql in (
        f"SELECT lo_export({large}, '{tmp_path}/leak')::text AS person, 's' AS s",
        "SELECT pg_read_file('PG_VERSION') AS person, 's' AS s",
    ):
        for address, words in (
            (postgres, "files of the server"),
            (writer, "files of the server"),
            (reader, "cannot be run"),
        ):
            with pytest.raises(ks.KasuriError, match=words):
                counted(Query(address, sql), assume=ROWS_ALONE)
    assert not list(tmp_path.iterdir())


def test_an_order_of_its_own_hides_no_rows_of_a_postgresql_table(postgres):
    """One person among other records emptied a table whose parts, or whose index, are told apart by a function."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE f (person text)")
        base.execute("CREATE FUNCTION cmp(int4, int4) RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN "
                     "sign($1 - $2) * CASE WHEN EXISTS (SELECT 1 FROM public.f) THEN -1 ELSE 1 END; END'")  # fmt: skip
        base.execute("CREATE TABLE plain (person text, s text, age int4)")
        base.execute("INSERT INTO plain VALUES ('a', 's', 20), ('b', 'f', 30)")
        assert counted(Table(postgres, "plain", [("age", ">=", 1)])) == {0: 1, 1: 1}
        base.execute("CREATE OPERATOR CLASS own_ops FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, "
                     "OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 cmp(int4, int4)")  # fmt: skip
        base.execute("CREATE TABLE t (person text, s text, age int4) PARTITION BY RANGE (age own_ops)")
        base.execute("CREATE TABLE young PARTITION OF t FOR VALUES FROM (0) TO (10)")
        base.execute("CREATE TABLE old PARTITION OF t FOR VALUES FROM (10) TO (100)")
        base.execute("INSERT INTO t SELECT 'p' || i, 's', i % 7 FROM generate_series(1, 20) i")
        base.execute("INSERT INTO f VALUES ('victim')")
        assert base.execute("SELECT count(*) FROM t WHERE age >= 1").fetchone() == (0,)  # what kasuri would have read
    with pytest.raises(ks.PrivacyError, match="orders of its own"):
        counted(Table(postgres, "t", [("age", ">=", 1)]))


def test_a_function_of_its_own_is_not_run_while_a_postgresql_table_is_read(postgres):
    """An owner without other rights: PostgreSQL works out constants when it plans, and a function that calls itself
    one may look at other rows. A part was skipped, and a release ended, for one person."""
    import psycopg

    role = f"owner_{os.urandom(4).hex()}"
    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA mine AUTHORIZATION {role}")
    with psycopg.connect(re.sub(r"//[^@]*@", f"//{role}@", postgres), autocommit=True) as base:
        base.execute("CREATE TABLE mine.f (person text); CREATE TABLE mine.t (person text, s text, age int4)")
        base.execute("CREATE FUNCTION mine.many() RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS "
                     "'BEGIN RETURN (SELECT 1000 * count(*) FROM mine.f); END'")  # fmt: skip
        base.execute("CREATE FUNCTION mine.fails() RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS "
                     "'BEGIN RETURN 1 / (SELECT 1 - count(*) FROM mine.f); END'")  # fmt: skip
        base.execute("CREATE TABLE mine.child (CHECK (age > mine.many())) INHERITS (mine.t)")
        base.execute("INSERT INTO mine.child SELECT 'p' || i, 's', i FROM generate_series(1, 20) i")
        base.execute("CREATE INDEX ON mine.t (lower(person)) WHERE age > 3; CREATE STATISTICS mine.two ON s, age "
                     "FROM mine.t")  # fmt: skip
        base.execute("INSERT INTO mine.f VALUES ('victim')")
        few = Table(postgres, ("mine", "t"), [("age", "<", 500)])
        assert counted(few) == {0: 20}
        base.execute("DELETE FROM mine.f")
        for make, undo in (
            ("INDEX one ON mine.child (age) WHERE age > mine.fails()", "INDEX mine.one"),
            ("INDEX one ON mine.t ((age + mine.fails()))", "INDEX mine.one"),
            ("STATISTICS mine.one ON (age + mine.fails()), age FROM mine.t", "STATISTICS mine.one"),
        ):
            base.execute(f"CREATE {make}")
            with pytest.raises(ks.PrivacyError, match="made by a function of this database"):
                counted(few)
            base.execute(f"DROP {undo}")
        assert counted(few) == {0: 20}
        base.execute("CREATE TABLE mine.p (person text, s text, age int4) PARTITION BY RANGE ((age + mine.many()))")
    with pytest.raises(ks.PrivacyError, match="made by a function of this database"):
        counted(Table(postgres, ("mine", "p")))


def test_a_postgresql_table_that_an_extension_stores_is_refused(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE ACCESS METHOD own TYPE TABLE HANDLER heap_tableam_handler")
        base.execute("CREATE TABLE t (person text, s text) USING own")
        base.execute("CREATE TABLE p (person text, s text) PARTITION BY LIST (s)")
        base.execute("CREATE TABLE part PARTITION OF p DEFAULT USING own")
    for name in ("t", "p"):
        with pytest.raises(ks.DomainError, match="not a stored table"):
            counted(Table(postgres, name))


def test_a_letter_that_another_encoding_lacks_ends_no_release(postgres, monkeypatch):
    """The database, the role or the environment may ask for another encoding than the table's."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE t (person text, s text)")
        base.execute("INSERT INTO t VALUES ('絣', 's'), ('b', 's')")
        base.execute(f"ALTER DATABASE {base.info.dbname} SET client_encoding = 'LATIN1'")
    assert counted(Table(postgres, "t", [("person", "=", "絣")])) == {0: 1}
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert counted(Table(postgres, "t")) == {0: 2}


def test_a_query_of_postgresql_calls_nothing_that_does_more_than_read(postgres, tmp_path):
    """A function that runs as its owner wrote a file of the server; one that was granted read one."""
    import psycopg

    tmp_path.chmod(0o777)
    reader = reading(postgres)
    role = re.search(r"//([^@]*)@", reader)[1]
    grant = f"EXECUTE ON FUNCTION pg_read_file(text) TO {role}"
    writes = (
        "CREATE FUNCTION write() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS "
        f"'BEGIN COPY public.t TO ''{tmp_path}/leak''; RETURN 1; END'"
    )
    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE t (person text, s text); INSERT INTO t VALUES ('a', 's')")
        for make, undo, call in (
            (f"GRANT {grant}", f"REVOKE {grant.replace(' TO ', ' FROM ')}", "pg_read_file('PG_VERSION')"),
            (writes, "DROP FUNCTION write", "write()"),
        ):
            base.execute(make)
            with pytest.raises(ks.PrivacyError, match=f"may call {call.partition('(')[0]}"):
                counted(Query(reader, f"SELECT {call} AS person, 's' AS s"), assume=ROWS_ALONE)
            base.execute(undo)
    assert counted(Query(reader, "SELECT person, s FROM t"), assume=ROWS_ALONE) == {0: 1}
    assert not list(tmp_path.iterdir())


def test_a_table_and_a_query_of_postgresql(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as base:
        base.execute("CREATE TABLE t (person text, s text, age int, at timestamp, ip inet, zone timestamptz)")
        base.execute("INSERT INTO t SELECT person, s, age, 'infinity'::timestamp, '::1', now() "
                     "FROM (VALUES ('a', 's', 20), ('b', 'f', 30), ('c', 's', 40), ('d', repeat('x', 5000), 50), "
                     "(repeat('y', 5000), 's', 60)) v(person, s, age)")  # fmt: skip
        base.execute("CREATE VIEW w AS SELECT person, (SELECT min(s) FROM t) AS s FROM t")
        base.execute("CREATE SCHEMA other; CREATE TABLE other.t AS SELECT person, 'f' AS s FROM t")
        base.execute("CREATE TABLE secure (person text, s text); ALTER TABLE secure ENABLE ROW LEVEL SECURITY")
        base.execute("CREATE TABLE parts (person text, s text) PARTITION BY LIST (s); "
                     "CREATE TABLE part PARTITION OF parts DEFAULT; INSERT INTO parts VALUES ('a', 's')")  # fmt: skip
        base.execute("CREATE FUNCTION public.loud(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'")
        base.execute("CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.loud)")
    assert counted(Table(postgres, "t")) == counted(Table(postgres, ("public", "t"))) == {0: 2, 1: 1}
    assert counted(Table(postgres, ("other", "t"))) == {1: 4} and counted(Table(postgres, "parts")) == {0: 1}
    assert counted(Table(postgres, "t", [("age", ">=", 30), ("s", "=", "s")])) == {0: 1}
    assert counted(Table(postgres, "t", [("s", "=", "s\\' OR true --")])) == {}
    for name in ("w", "secure", "none", 't"; --', ("pg_catalog", "pg_tables")):
        with pytest.raises(ks.DomainError, match="not a stored table"):
            counted(Table(postgres, name))
    ages = Domain.of(Ordered("age", 100))
    made = ks.count(Table(postgres, "t", [("at", ">", "2020-01-01")]), ages, columns={"age": "age"}, unit=UNIT)
    assert made.cells.tolist() == [20, 30, 40, 50]
    for name in ("ip", "zone"):
        with pytest.raises(ks.DomainError, match="plain type"):
            ks.count(Table(postgres, "t"), SEX, columns={"s": name}, unit=UNIT)
    reader = reading(postgres)
    with pytest.raises(ks.PrivacyError, match=ROWS_ALONE):
        counted(Query(reader, "SELECT person, s FROM t"))
    assert counted(Query(reader, "WITH x AS (SELECT * FROM t) SELECT person, s FROM x;"), assume=ROWS_ALONE)[1] == 1
    for sql in (
        "COPY t TO '/tmp/leak'", "SELECT person, s FROM t; DROP TABLE other.t", "DROP TABLE other.t",
        "SELECT person, s INTO leak FROM t", "WITH x AS (DELETE FROM other.t RETURNING *) SELECT * FROM x",
        "SELECT person, s FROM t FOR UPDATE", "SELECT nextval('q') AS person, 's' AS s", "EXPLAIN ANALYZE SELECT 1",
        "SELECT set_config('transaction_read_only', 'off', true) AS person, 's' AS s", "DO $$ BEGIN END $$",
        "SELECT person, s FROM t) TO '/tmp/leak' --", "CALL x()", "(SELECT 1)", "TABLE t", "",
        "/* /* */ SELECT */ COPY t TO '/tmp/leak'",
    ):  # fmt: skip
        with pytest.raises(ks.KasuriError):
            counted(Query(reader, sql), assume=ROWS_ALONE)
    with psycopg.connect(postgres) as base:
        assert base.execute("SELECT count(*) FROM other.t").fetchone() == (5,)
        assert base.execute("SELECT to_regclass('leak')").fetchone() == (None,)
