"""A frame is released without a caveat only where Spark's plan shows that each record is mapped by itself."""

import decimal
import functools
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri.schema import ROWS_ALONE
from kasuri.spark import rowwise
from kasuri.spark.session import settings


@pytest.fixture(scope="module")
def stored(cluster):
    """Two tables that differ by the rows of one person, and further files of the first."""
    rows = {"person": [f"p{i % 40}" for i in range(60)] + ["victim"] * 2, "s": [0] * 60 + [1, 1]}
    rows |= {"i": pa.array(range(62), pa.int32()), "d": np.arange(62) / 7, "t": [str(i) for i in range(62)]}
    rows["at"] = pa.array(np.arange(62) * 10**9, pa.timestamp("us"))
    rows["spot"] = [{"lat": i / 2} for i in range(62)]
    folder = cluster.work / "rowwise"
    folder.mkdir()
    table = pa.table(rows)
    pq.write_table(table, folder / "with.parquet")
    pq.write_table(table.slice(0, 60), folder / "without.parquet")
    for part in range(2):
        (folder / "parts" / f"day={part}").mkdir(parents=True)
        pq.write_table(table.slice(30 * part, 30), folder / "parts" / f"day={part}" / "a.parquet")
    (folder / "t.csv").write_text("person,s\np1,0\n")
    (folder / "t.json").write_text('{"person": "p1", "s": 0}\n')
    yield folder
    for kind, name in (("TABLE", "days"), ("VIEW", "v"), ("VIEW", "joined"), ("TEMPORARY VARIABLE", "seen")):
        cluster.session.sql(f"DROP {kind} IF EXISTS {name}")


def trusted(frame, needed=("person", "s"), assume=None):
    return rowwise.trusted(frame, "person", list(needed), assume)


HONEST = {
    "as it is": lambda t: t,
    "filters and columns": lambda t: t.where("i > 3 AND t <> '7' OR d IS NULL").withColumn("s", t.s),
    "renamed": lambda t: t.withColumnRenamed("person", "who").select("who", "s").toDF("person", "s"),
    "a view": lambda t: (
        t.createOrReplaceTempView("v") or t.sparkSession.sql("SELECT person, s FROM v a WHERE a.i < 50")
    ),
    "cases": lambda t: t.selectExpr("person", "CASE WHEN i IN (1, 2) THEN 1 ELSE coalesce(s, 0) END AS s"),
    "numbers": lambda t: t.selectExpr("person", "try_cast(try_add(i, 1) AS bigint) AS s").where("s BETWEEN 2 AND 9"),
    "floats": lambda t: t.selectExpr("person", "try_cast(d * 2.5 + spot.lat AS int) AS s").where("s >= 1.5 OR s < 1"),
    "text": lambda t: t.selectExpr("person", "try_cast(substring(trim(t), 1, 1) AS int) AS s").where("length(t) < 9"),
    "nothing missing": lambda t: t.dropna().fillna({"d": 0.0}),
    "rearranged": lambda t: t.repartition(3, "i").coalesce(1).orderBy("i", (t.d * 2.0).desc()),
    "kept in memory": lambda t: t.cache().where("i < 40"),
}


def test_honest_frames_are_taken_and_one_person_changes_only_their_own_rows(cluster, stored):
    from pyspark.sql import functions as fn

    found = []
    for file in ("with", "without"):
        table = cluster.session.read.parquet(str(stored / f"{file}.parquet"))
        parts = []
        for name, make in HONEST.items():
            frame = make(table)
            assert trusted(frame) == (), name
            parts.append(frame.select(fn.lit(name), "person", fn.col("s").cast("string")))
        rows = functools.reduce(lambda a, b: a.union(b), parts).toArrow().to_pylist()
        found.append(Counter(tuple(row.values()) for row in rows))
        cluster.session.catalog.clearCache()
    assert {person for _, person, _ in (found[0] - found[1]) + (found[1] - found[0])} == {"victim"}
    assert {name for name, _, _ in found[1]} == set(HONEST)


def test_given_rows_and_tables_of_the_catalogue(cluster, stored):
    session = cluster.session
    assert trusted(session.createDataFrame(pa.table({"person": [1, 2], "s": [0, 1]}))) == ()
    both = [str(stored / f"{file}.parquet") for file in ("with", "without")]
    assert trusted(session.read.parquet(*both)) == ()
    session.read.parquet(both[0]).drop("spot").write.orc(str(stored / "orc"))
    assert trusted(session.read.option("mergeSchema", True).orc(str(stored / "orc"))) == ()
    session.sql(
        "CREATE TABLE days (person STRING, s BIGINT, day INT) USING parquet PARTITIONED BY (day) "
        f"LOCATION 'file://{stored / 'parts'}'"
    )
    declared = session.sql("SELECT person, day AS s FROM days WHERE day >= 0")
    assert trusted(declared) == ()  # the type of `day` does not follow from the names of folders
    parts = session.read.parquet(str(stored / "parts"))
    assert trusted(parts) == ()  # `day` is there, and nothing depends on it
    with pytest.raises(ks.PrivacyError, match="column 'day' is made from the names of folders"):
        trusted(parts.where("day = 0"))
    with pytest.raises(ks.PrivacyError, match="column 'day' is made from the names of folders"):
        trusted(parts.selectExpr("person", "day AS s"))
    session.conf.set(rowwise.INFERENCE, "false")
    try:
        assert trusted(session.read.parquet(str(stored / "parts")).selectExpr("person", "day AS s")) == ()
        with pytest.raises(ks.PrivacyError, match="column 'day'"):
            trusted(parts.selectExpr("person", "day AS s"))  # read before
    finally:
        session.conf.unset(rowwise.INFERENCE)


def others(t):
    """The issue itself: whether one person is in the table, written into every row."""
    from pyspark.sql import functions as fn

    seen = t.agg(fn.max((t.person == "victim").cast("int")).alias("hit"))
    return t.drop("s").crossJoin(seen).withColumnRenamed("hit", "s")


def udf(t, kind):
    from pyspark.sql import functions as fn

    same = fn.pandas_udf(lambda x: x, "bigint") if kind == "pandas" else fn.udf(lambda x: x, "bigint")
    return t.withColumn("s", same("s"))


def view_of_a_join(t):
    others(t).createOrReplaceTempView("joined")
    return t.sparkSession.sql("SELECT person, s FROM joined")


def variable(t):
    t.createOrReplaceTempView("v")
    t.sparkSession.sql("DECLARE OR REPLACE VARIABLE seen INT")
    t.sparkSession.sql("SET VAR seen = (SELECT count(*) FROM v WHERE person = 'victim')")
    return t.sparkSession.sql("SELECT person, seen AS s FROM v")


def fn_max(column):
    from pyspark.sql import functions as fn

    return fn.max(column)


def sql(text):
    return lambda t: t.createOrReplaceTempView("v") or t.sparkSession.sql(text)


def with_column(text):
    return lambda t: t.selectExpr("person", f"{text} AS s", "i")


def read(how, file):
    return lambda t, folder: how(t.sparkSession.read, f"{folder}/{file}")


HOSTILE = {
    "a join with an aggregate": (others, "Join"),
    "a view of a join": (view_of_a_join, "Join"),
    "a scalar subquery": (sql("SELECT person, (SELECT count(*) FROM v) AS s FROM v"), "ScalarSubquery"),
    "EXISTS": (sql("SELECT person, CASE WHEN EXISTS (SELECT 1 FROM v WHERE person = 'victim') THEN s ELSE 1 END AS s "
                   "FROM v"), "Exists"),
    "IN a subquery": (sql("SELECT person, s FROM v WHERE s IN (SELECT s FROM v WHERE person = 'victim')"),
                      "InSubquery"),
    "a lateral join": (sql("SELECT v.person, w.s FROM v, LATERAL (SELECT max(s) AS s FROM v) w"), "LateralJoin"),
    "a common table": (sql("WITH w AS (SELECT max(s) AS s FROM v) SELECT person, w.s FROM v CROSS JOIN w"), "WithCTE"),
    "a window": (sql("SELECT person, row_number() OVER (ORDER BY i) AS s FROM v"), "Window"),
    "an aggregate": (sql("SELECT max(person) AS person, s FROM v GROUP BY s"), "Aggregate"),
    "distinct": (lambda t: t.select("person", "s").distinct(), "Deduplicate|Distinct"),
    "a limit": (lambda t: t.limit(5), "GlobalLimit"),
    "the first after a sort": (lambda t: t.orderBy("person").limit(1), "GlobalLimit"),
    "an offset": (lambda t: t.offset(5), "Offset"),
    "a sample": (lambda t: t.sample(0.5, 1), "Sample"),
    "a union": (lambda t: t.union(t), "Union"),
    "except": (lambda t: t.exceptAll(t.where("s = 1")), "Except"),
    "explode": (sql("SELECT person, explode(array(0, 1)) AS s FROM v"), "Generate"),
    "a metric": (lambda t: t.observe("n", fn_max(t.s)), "CollectMetrics"),
    "a Python function": (lambda t: udf(t, "python"), "PythonUDF"),
    "a pandas function": (lambda t: udf(t, "pandas"), "PythonUDF"),
    "batches of Arrow": (lambda t: t.mapInArrow(lambda rows: rows, t.schema), "InArrow"),
    "an RDD": (lambda t: t.rdd.map(lambda row: row).toDF(t.schema), "LogicalRDD"),
    "a checkpoint": (lambda t: others(t).localCheckpoint(), "LogicalRDD"),
    "a range": (lambda t: t.sparkSession.range(5).selectExpr("id AS person", "id AS s"), "Range"),
    "rand": (with_column("int(rand() * 2)"), "Rand"),
    "uuid": (with_column("length(uuid())"), "Uuid"),
    "a running number": (with_column("monotonically_increasing_id()"), "MonotonicallyIncreasingID"),
    "the partition": (with_column("spark_partition_id()"), "SparkPartitionID"),
    "the file": (with_column("length(input_file_name())"), "InputFileName"),
    "the time": (with_column("current_timestamp() > timestamp'2020-01-01'"), "CurrentTimestamp|Now"),
    "a variable": (variable, "VariableReference"),
    "metadata of files": (lambda t: t.selectExpr("person", "_metadata.row_index AS s"), "_metadata"),
    "the number of a row": (read(lambda r, p: r.schema("person string, _tmp_metadata_row_index bigint").parquet(p)
                                 .toDF("person", "s"), "with.parquet"), "_tmp_metadata"),
    "a CSV file": (read(lambda r, p: r.csv(p, header=True, inferSchema=True), "t.csv"), "CSVFileFormat"),
    "a JSON file": (read(lambda r, p: r.json(p), "t.json"), "JsonFileFormat"),
    "an option": (read(lambda r, p: r.option("datetimeRebaseMode", "EXCEPTION").parquet(p), "with.parquet"),
                  "option 'datetimerebasemode'"),
    "a made-up id": (lambda t: t.selectExpr("concat(person, '-', i) AS person", "s"), "id column 'person' is computed"),
    "an id that is cut": (lambda t: t.selectExpr("substring(person, 1, 1) AS person", "s"), "is computed"),
    "one id for all": (lambda t: t.selectExpr("'x' AS person", "s"), "is computed"),
    "an overflow": (with_column("i + 1"), "try_add"),
    "a division": (with_column("1 / (i - 5)"), "try_divide"),
    "a remainder": (with_column("5 % i"), "try_mod"),
    "whole division": (with_column("1 div i"), "IntegralDivide"),
    "a text that is not a number": (with_column("int(t)"), "try_cast"),
    "a narrower number in a struct": (lambda t: t.selectExpr("person", "CAST(spot AS struct<lat: tinyint>).lat AS s"),
                                      "try_cast"),
    "a narrower number": (with_column("tinyint(i)"), "try_cast"),
    "a late time": (lambda t: t.withColumn("s", t.at.cast("timestamp")), "try_cast"),
    "a whole part": (with_column("floor(d)"), "Floor"),
    "an item of a list": (with_column("array(1, 2)[i]"), "GetArrayItem"),
    "an error on purpose": (with_column("if(person = 'victim', raise_error('x'), 1)"), "RaiseError"),
    "an error in a filter": (lambda t: t.where("1 / (i - 61) > 0"), "try_divide"),
    "an error in an order": (lambda t: t.orderBy(1 / t.i), "try_divide"),
    "an error in a column that is not read": (lambda t: t.withColumn("x", 1 / t.i), "try_divide"),
    "Java's own methods": (with_column("java_method('java.lang.Math', 'abs', i)"), "CallMethodViaReflection"),
}  # fmt: skip


def test_what_may_depend_on_other_records_or_fail_is_refused(cluster, stored):
    table = cluster.session.read.parquet(str(stored / "with.parquet"))
    for name, (make, words) in HOSTILE.items():
        frame = make(table, stored) if make.__code__.co_argcount == 2 else make(table)
        said = ""
        try:
            trusted(frame)
        except ks.PrivacyError as error:
            said = str(error)
        assert re.search(words, said), f"{name}: {said or 'it was taken'}"
        assert said.endswith(f'assume="{ROWS_ALONE}"') and "victim" not in said, name
        assert trusted(frame, assume=ROWS_ALONE) == (ROWS_ALONE,)


SKIPPED = {
    "NaN is larger than any number": (pa.float64(), [1.0] + [float("nan")] * 19, 6.0, None, "x > 5D"),
    "two zeros": (pa.float64(), [-0.0] * 20, 5.0, None, "x >= 0D"),
    "a narrower type": (pa.int32(), [300] * 20, 44, "person string, s bigint, x byte", "x = 44"),
    "a day of the old calendar": (pa.date32(), [-354221] * 20, -354220, None, "x = DATE'1000-03-01'"),
}  # fmt: skip
"""Types, values of twenty rows, the value of one person, how they are read, and a filter that keeps all of them or (the
first) all but one: files and caches know the least and the largest value of many rows, without NaN, and as stored."""


def test_rows_are_not_skipped_by_statistics_of_other_rows(cluster, stored):
    """Where one person's number is the largest, rows of others that a filter keeps would no longer be skipped."""
    spark, calendar = cluster.session, "spark.sql.parquet.datetimeRebaseModeInRead"
    before, found = spark.conf.get(calendar), {}
    spark.conf.set(calendar, "LEGACY")
    try:
        for name, (kind, many, one, schema, text) in SKIPPED.items():
            table = pa.table({"person": [*(f"p{i}" for i in range(20)), "victim"], "s": [0] * 21,
                              "x": pa.array([*many, one], kind)})  # fmt: skip
            for part, rows in (("with", 21), ("without", 20)):
                pq.write_table(table.slice(0, rows), path := stored / f"skipped-{part}.parquet", store_schema=False)
                reader = spark.read if schema is None else spark.read.schema(schema)
                frame = reader.parquet(str(path))
                assert trusted(frame.where(text)) == (), name
                for cached in (False, True):
                    frame = frame.cache() if cached else frame
                    with settings(spark, None):
                        found[name, part, cached] = frame.where(text).count()
                    assert trusted(frame.where(text)) == (), name
                frame.unpersist()
    finally:
        spark.conf.set(calendar, before)
    kept = [found[name, part, cached] for name in SKIPPED for cached in (False, True) for part in ("with", "without")]
    assert kept == [20, 19] * 2 + [21, 20] * 6


def test_a_filter_that_was_run_into_a_cache_is_refused(cluster, stored):
    frame = cluster.session.read.parquet(str(stored / "with.parquet")).where("i < 40")
    assert trusted(frame) == ()
    assert frame.count() == 40  # the frame is planned: it does not look at the cache again
    frame.cache()
    try:
        for each in (frame, frame.select("person", "s"), frame.where("i < 30")):
            with pytest.raises(ks.PrivacyError, match="run into a cache"):
                trusted(each)
    finally:
        frame.unpersist()
    assert trusted(frame) == ()


def test_settings_under_which_one_record_stops_others(cluster, stored):
    """A time in milliseconds that Spark cannot hold: with `ignoreCorruptFiles` it would take the whole file along."""
    table = cluster.session.read.parquet(str(stored / "with.parquet"))
    for name, wrong in (("spark.sql.files.ignoreCorruptFiles", "true"),
                        ("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION")):  # fmt: skip
        cluster.session.conf.set(name, wrong)
        try:
            with pytest.raises(ks.PrivacyError, match=name):
                trusted(table)
        finally:
            cluster.session.conf.unset(name)
    assert trusted(table) == ()


EXTREME = pa.table(
    {
        "person": list("abcde"),
        "y": pa.array([-128, 127, 0, 1, None], pa.int8()),
        "i": pa.array([-(2**31), 2**31 - 1, 0, -1, None], pa.int32()),
        "l": pa.array([-(2**63), 2**63 - 1, 0, -1, None]),
        "f": pa.array(np.array([np.nan, np.inf, -3e38, 0, 1], np.float32)),
        "d": pa.array([float("nan"), float("-inf"), 1e308, -0.0, None]),
        "e": pa.array([decimal.Decimal("9" * 38), decimal.Decimal("-" + "9" * 38), decimal.Decimal(0), None, None],
                      pa.decimal128(38, 0)),
        "b": [True, False, None, True, False],
        "t": ["abc", "", "9" * 400, "\x00", None],
        "day": pa.array(np.array([-(2**31), 2**31 - 1, 0, 1, 2], np.int32)).view(pa.date32()),
        "at": pa.array(np.array([-(2**63) + 1, 2**63 - 1, 0, 1, 2])).view(pa.timestamp("us")),
        "z": pa.array(np.array([-(2**63) + 1, 2**63 - 1, 0, 1, 2])).view(pa.timestamp("us", tz="UTC")),
    }
)  # fmt: skip
KINDS = ("tinyint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,0)", "string", "boolean", "date",
         "timestamp", "timestamp_ntz")  # fmt: skip


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_what_is_taken_fails_on_no_value(cluster, stored, ansi):
    """Every expression that the list lets pass, of all that are tried here, over the values where such things fail."""
    session = cluster.session
    pq.write_table(EXTREME, stored / "extreme.parquet", row_group_size=1)
    tried = [f"{f}({a}, {b})" for f in ("try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "pmod")
             for a, b in ("yl", "ii", "ll", "ld", "fd", "ee", "el")]  # fmt: skip
    tried += [f"{a} {o} {b}" for o in ("+", "-", "*", "/", "%", "div") for a, b in ("li", "yy", "dd", "fl", "ee")]
    tried += [f"cast({a} AS {k})" for a in EXTREME.column_names[1:] for k in KINDS]
    tried += [f"try_cast({a} AS {k})" for a in ("l", "d", "t", "day", "at", "z") for k in KINDS]
    tried += [f"{f}({a})" for f in ("-", "abs", "floor") for a in "ilde"]
    tried += [f"{f}(t)" for f in ("upper", "lower", "trim", "ltrim", "rtrim", "length", "octet_length")]
    tried += ["substring(t, i, i)", "substring(t, -2147483648, 2147483647)", "nanvl(d, f)", "greatest(l, d)", "l <=> d",
              "least(y, l)", "nullif(l, y)", "i BETWEEN y AND l", "t IN ('a', 'b')", "startswith(t, t)", "day + 1",
              "at + interval 1 year", "at > timestamp_ntz'2020-01-01'", "date_add(day, i)", "day - date'2020-01-01'",
              "make_date(i, 1, 1)", "to_number(t, '999')", "l << 70", "shiftleft(l, i)", "round(l, -1)"]  # fmt: skip
    before = {name: session.conf.get(name) for name in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    try:
        session.conf.set("spark.sql.ansi.enabled", ansi)
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        table = session.read.parquet(str(stored / "extreme.parquet"))
        passed = [text for text in tried if _passes(table, text)]
        for name in ("NO_CODEGEN", "CODEGEN_ONLY"):
            session.conf.set("spark.sql.codegen.factoryMode", name)
            columns = [f"string({text}) AS c{i}" for i, text in enumerate(passed)]
            assert table.selectExpr(*columns).toArrow().num_rows == 5
    finally:
        session.conf.unset("spark.sql.codegen.factoryMode")
        for name, value in before.items():
            session.conf.set(name, value)
    assert {"try_add(l, l)", "try_divide(y, l)", "try_cast(day AS timestamp)", "cast(i AS bigint)"} <= set(passed)
    assert ("l + i" in passed) == ("l / i" in passed) == (ansi == "false")
    assert not {"cast(day AS timestamp)", "cast(z AS timestamp_ntz)", "-(e)", "floor(d)", "date_add(day, i)"} & set(
        passed
    )
    assert 100 < len(passed) < len(tried) - 50


def _passes(table, text):
    from pyspark.errors import AnalysisException

    try:
        frame = table.selectExpr("person", f"{text} AS s")
    except AnalysisException:
        return False
    try:
        return trusted(frame) == ()
    except ks.PrivacyError:
        return False


def test_whether_one_person_is_there_is_not_told_to_every_row(cluster, stored):
    """As it was found: one person's record changed the place of everybody. Refused before a task runs."""
    from pyspark.sql import functions as fn

    call = {"epsilon": "1", "unit": ks.Unit("person", "add-remove", 1), "ledger": None, "columns": {"s": "s"}}
    told = []
    for file in ("with", "without"):
        frame = others(cluster.session.read.parquet(str(stored / f"{file}.parquet")))
        told.append(frame.agg(fn.sum("s")).toArrow()[0][0].as_py())
        for assume, words in ((None, "its plan has Join"), ("", "the only"), (ROWS_ALONE + " ", "the only"),
                              (True, "the only"), ([ROWS_ALONE], "the only")):  # fmt: skip
            with pytest.raises(ks.PrivacyError, match=words):
                ks.spark.release(frame, ks.Domain.of(ks.Ordered("s", 2)), ks.geometric(), work=cluster.work,
                                 assume=assume, **call)  # fmt: skip
    assert told == [62, 0]
