"""A release on two executors is the release of one machine, bit for bit, whatever Spark does with its tasks; and leaves
nothing behind but what it publishes."""

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference.bounding import bounded

import kasuri as ks
from kasuri.schema import ROWS_ALONE
from kasuri.spark import bounding, files, keep, subtrees
from kasuri.spark import cluster as module
from kasuri.spark import session as checks
from kasuri.spark.rows import COUNTS
from kasuri.words.japanese import ja

sys.path.insert(0, str(Path(__file__).parent))
import search

KEY = bytes(range(32))


def records(shape, rows, people, seed, text=False):
    """Rows of people in cells, some outside the window."""
    rng = np.random.default_rng(seed)
    person = rng.integers(0, people, rows)
    out = {"person": pa.array([f"p{i}" for i in person]) if text else pa.array(person)}
    out |= {f"c{d}": rng.integers(-1, size + 1, rows) for d, size in enumerate(shape)}
    return pa.table(out | {"weight": rng.integers(0, 6, rows)})


SEA = np.random.default_rng(0).random((300, 500)) < 0.3
AXES = ks.Domain.of(ks.Mesh("grid", shape=(4096, 3000)), ks.Ordered("age", 11))
CASES = {
    # name: domain, columns, recipe, text ids, max_weight
    "jumps": (AXES, {"grid": ["c0", "c1"], "age": "c2"}, ks.haar_topdown(), True, 5),
    "plain": (ks.Domain.of(ks.Mesh("grid", shape=(2048, 4000))), {"grid": ["c0", "c1"]}, ks.haar_topdown(), False,
              None),
    "count tree": (AXES, {"grid": ["c0", "c1"], "age": "c2"}, ks.refined_tree(), False, None),
    "cells": (ks.Domain.of(ks.Mesh("grid", shape=(300, 500)), mask={"grid": SEA}), {"grid": ["c0", "c1"]},
              ks.geometric(), False, 5),
    "whole": (ks.Domain.of(ks.Mesh("grid", shape=(30, 50)), mask={"grid": SEA[:30, :50]}), {"grid": ["c0", "c1"]},
              ks.haar_topdown(), False, None),
    "pilot": (AXES, {"grid": ["c0", "c1"], "age": "c2"}, ks.bayes_tree(pilot=True), True, None),
    "woven": (ks.Domain.of(ks.Mesh("grid", shape=(300, 20)), ks.Ordered("age", 11)), {"grid": ["c0", "c1"], "age":
              "c2"}, ks.best(), False, 5),
}  # fmt: skip


def setting(cluster, name, partitions):
    """(frame, keyword arguments of spark.release, the same release on one machine)."""
    domain, columns, recipe, text, max_weight = CASES[name]
    table = records(domain.shape, 6000, 2500, 1, text)
    path = cluster.work / f"{name}.parquet"
    if not path.exists():
        pq.write_table(table, path)
    unit = ks.Unit("person", "add-remove", 2, max_weight)
    weight = None if max_weight is None else "weight"
    counts = ks.count(table, domain, columns=columns, unit=unit, weight=weight, key=KEY)
    local = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(7))
    call = {
        "domain": domain, "recipe": recipe, "epsilon": "0.5", "unit": unit, "ledger": None, "columns": columns,
        "weight": weight, "key": KEY, "source": ks.seeded(7), "work": cluster.work, "partitions": partitions,
    }  # fmt: skip
    # 200 tasks read from 7: of 200 times 200 pieces each is encrypted by itself, for a minute, and they show no more
    return cluster.session.read.parquet(str(path)).repartition(min(partitions, 7)), call, local


def assert_same(got: ks.Release, local: ks.Release):
    assert np.array_equal(got.cells, local.cells) and np.array_equal(got.values, local.values)
    assert got.values.dtype == local.values.dtype
    assert (got.measurements is None) == (local.measurements is None)
    if local.measurements is not None:
        for name in ("level", "prefix", "value"):
            assert np.array_equal(getattr(got.measurements, name), getattr(local.measurements, name)), name
        assert got.measurements.scale == local.measurements.scale
    assert got.recipe == local.recipe


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        pytest.param("jumps", 1, marks=pytest.mark.full),
        ("jumps", 7),
        pytest.param("jumps", 64, marks=pytest.mark.full),
        ("plain", 7),
        ("count tree", 7),
        ("cells", 7),
        ("whole", 200),
        ("pilot", 7),
        ("woven", 2),
    ],
)
def test_bit_identical_to_one_machine(cluster, monkeypatch, name, partitions):
    if name == "count tree":
        monkeypatch.setattr(files, "HERE_ROWS", 0)
    frame, call, local = setting(cluster, name, partitions)
    assert local.cells.size > 100
    with ks.spark.release(frame, **call) as out:
        assert out.total() == local.total() and out.non_zero == local.non_zero
        assert ROWS_ALONE not in out.guarantee.assumes
        assert_same(out.collect(), local)
        assert out.folder.exists()
    assert not out.folder.exists()


def events(cluster, kind):
    """Events of one kind from the event log, as written so far."""
    log = next((cluster.files / "events").iterdir())
    for line in log.read_text().splitlines():
        if f'"Event":"{kind}"' in line:
            yield json.loads(line)


def last_task(cluster):
    """The number of the last task that has ended."""
    return max((event["Task Info"]["Task ID"] for event in events(cluster, "SparkListenerTaskEnd")), default=-1)


def test_an_executor_killed_while_subtrees_run(cluster, monkeypatch, tmp_path):
    """The tasks of the blocks wait at a gate that is opened only when the executor of one of them has been killed."""
    frame, call, local = setting(cluster, "plain", 7)
    spread, gate = subtrees.Copy.spread, str(tmp_path / "gate")

    def gated(self, rows, roots, task, columns):
        def waiting(own, root):
            import os
            import time
            from pathlib import Path

            if not os.path.exists(gate):
                Path(f"{gate}.{os.getpid()}").touch()
            while not os.path.exists(gate):
                time.sleep(0.01)
            return task(own, root)

        return spread(self, rows, roots, waiting, columns)

    killed = []

    def kill():
        while not (running := list(tmp_path.glob("gate.*"))):
            time.sleep(0.01)
        worker = psutil.Process(int(running[0].suffix[1:]))
        executor = next(p for p in worker.parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))
        executor.kill()
        executor.wait()
        killed.append(executor.pid)
        Path(gate).touch()

    monkeypatch.setattr(subtrees.Copy, "spread", gated)
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    with ks.spark.release(frame, **call) as out:
        assert_same(out.collect(), local)
    assert len(killed) == 1
    ends = [event["Task End Reason"]["Reason"] for event in events(cluster, "SparkListenerTaskEnd")]
    assert "ExecutorLostFailure" in ends


def test_a_speculative_copy_of_a_subtree_task_runs_and_changes_nothing(cluster, monkeypatch, tmp_path):
    """The first run of one block hangs until a second run of it is under way: that one is Spark's speculative copy, and
    its answer is the one that counts."""
    frame, call, local = setting(cluster, "plain", 7)
    spread, gate, before = subtrees.Copy.spread, str(tmp_path / "gate"), last_task(cluster)

    def hanging(self, rows, roots, task, columns):
        slow = int(roots["block"][0])

        def run(own, root):
            import os
            import time

            if root.column("block")[0].as_py() == slow:
                try:
                    os.mkdir(f"{gate}.first")
                except FileExistsError:
                    os.mkdir(f"{gate}.second")
                else:
                    until = time.monotonic() + 100
                    while time.monotonic() < until:  # Spark ends this run when the copy has finished
                        time.sleep(0.05)
            return task(own, root)

        return spread(self, rows, roots, run, columns)

    monkeypatch.setattr(subtrees.Copy, "spread", hanging)
    with ks.spark.release(frame, **call) as out:
        assert_same(out.collect(), local)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate.first", "gate.second"]
    until = time.monotonic() + 60
    while "TaskKilled" not in (ends := _ends_of_the_copied(cluster, before)) and time.monotonic() < until:
        time.sleep(0.5)
        cluster.session.range(1).count()  # the log is written to the file when a job ends
    assert ends == {"Success": True, "TaskKilled": False}


def _ends_of_the_copied(cluster, before):
    """{how it ended: whether it was the speculative copy} of the subtree task, after task `before`, whose copy won."""
    trees = {
        event["Stage Info"]["Stage ID"]
        for event in events(cluster, "SparkListenerStageCompleted")
        if "FlatMapCoGroupsInArrow" in str(event["Stage Info"]["RDD Info"])
    }
    runs = {}
    for event in events(cluster, "SparkListenerTaskEnd"):
        if event["Task Info"]["Task ID"] > before and event["Stage ID"] in trees:
            task = runs.setdefault((event["Stage ID"], event["Task Info"]["Index"]), {})
            task[event["Task End Reason"]["Reason"]] = event["Task Info"]["Speculative"]
    return next((ends for ends in runs.values() if ends.get("Success")), {})


def test_a_task_that_wrote_and_then_failed_counts_once(cluster, monkeypatch, tmp_path):
    """Of every kept frame one task writes its file, hands over the receipt and fails. It runs again and writes a
    second file; rows of the first are nowhere in the release."""
    frame, call, local = setting(cluster, "whole", 2)
    writer, mark, twice = keep.writer, str(tmp_path / "failed"), []

    def failing(folder, token, name):
        write = writer(folder, token, name)

        def once(batches):
            import os

            for receipt in write(batches):
                yield receipt
                try:
                    os.mkdir(f"{mark}-{name}")
                except FileExistsError:
                    continue
                raise ValueError("after the file was written")

        return once

    def counting(copy, drawn, tables, folder):
        names = [path.name.split("-")[0] for path in copy.folder.glob("*.parquet")]
        twice.append((names.count("bounded"), names.count("counts"), names.count("drawn")))
        return write(copy, drawn, tables, folder)

    write = files.write
    monkeypatch.setattr(keep, "writer", failing)
    monkeypatch.setattr(files, "write", counting)
    with ks.spark.release(frame, **call) as out:
        assert_same(out.collect(), local)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failed-bounded", "failed-counts", "failed-drawn"]
    assert all(np.array(twice[0]) >= (3, 3, 2))  # two tasks, two tasks and one, and at least one more of each


def test_a_large_mask_is_sent_as_a_broadcast(cluster, monkeypatch):
    """What a task needs is then more than Spark puts into its description."""
    from pyspark import SparkContext

    sea = np.random.default_rng(1).random((4096, 2400)) < 0.3
    domain = ks.Domain.of(ks.Mesh("grid", shape=sea.shape), mask={"grid": sea})
    table = records(domain.shape, 3000, 900, 5)
    pq.write_table(table, cluster.work / "sea.parquet")
    place, unit, recipe = {"grid": ["c0", "c1"]}, ks.Unit("person", "add-remove", 2), ks.haar_topdown()
    counts = ks.count(table, domain, columns=place, unit=unit, key=KEY)
    local = ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(7))
    sent, broadcast = [], SparkContext.broadcast
    monkeypatch.setattr(SparkContext, "broadcast", lambda self, value: sent.append(value) or broadcast(self, value))
    frame = cluster.session.read.parquet(str(cluster.work / "sea.parquet"))
    call = {"epsilon": "1", "unit": unit, "ledger": None, "key": KEY, "source": ks.seeded(7), "partitions": 2}
    with ks.spark.release(frame, domain, recipe, columns=place, work=cluster.work, **call) as out:
        assert_same(out.collect(), local)
    assert sent


def test_a_source_rewritten_during_the_run_is_read_once(cluster, monkeypatch):
    """While units are bounded the table is replaced by another one, of other people in other cells: what is released
    is the table as it was first read, and no unit of it counts twice."""
    _, call, local = setting(cluster, "whole", 2)
    path, other = cluster.work / "rewritten.parquet", str(cluster.work / "other.parquet")
    shutil.copy(cluster.work / "whole.parquet", path)
    pq.write_table(records((30, 50), 9000, 9000, 99), other)
    bound, to = bounding.bound, str(path)

    def rewriting(*words):
        bounded = bound(*words)

        def task(batches):
            import os

            if os.path.exists(other):
                os.replace(other, to)
            yield from bounded(batches)

        return task

    monkeypatch.setattr(bounding, "bound", rewriting)
    with ks.spark.release(cluster.session.read.parquet(to), **call) as out:
        assert_same(out.collect(), local)
    assert pq.read_metadata(path).num_rows == 9000


def test_two_hosts_that_share_a_folder_and_nothing_else_and_one_is_lost():
    """Two network namespaces, each with a /tmp of its own, every connection encrypted."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "java"))):
        pytest.skip("two networks on one machine need root, ip and unshare, and Spark needs Java")
    script, folder = Path(__file__).parent / "hosts.py", tempfile.mkdtemp(dir="/var/tmp")
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{folder}: {done.stderr[-3000:]}"
    out = json.loads(done.stdout.splitlines()[-1])
    assert out["same"] and out["cells"] > 100 and out["killed"] == ["b"]
    assert out["at work"] == ["1", "2"] and out["left"] == []


def test_a_frame_without_rows(cluster):
    frame, call, _ = setting(cluster, "plain", 3)
    none = pq.read_table(cluster.work / "plain.parquet").slice(0, 0)
    counts = ks.count(none, call["domain"], columns=call["columns"], unit=call["unit"], key=KEY)
    sizes = []
    for seed in (7, 8):  # noise leaves something, and nothing
        local = ks.release(counts, call["recipe"], epsilon="0.5", ledger=None, source=ks.seeded(seed))
        with ks.spark.release(frame.where("false"), **(call | {"source": ks.seeded(seed)})) as out:
            assert_same(out.collect(), local)
            sizes.append(out.non_zero)
    assert sizes[0] > 0 == sizes[1]


def test_the_driver_receives_no_row_below_the_split_level(cluster):
    """By what Spark says tasks sent to the driver: with a row per cell it would be several times the bound."""
    domain = ks.Domain.of(ks.Mesh("grid", shape=(8192, 8192)))
    table = records(domain.shape, 150_000, 150_000, 3).select(["person", "c0", "c1"])
    pq.write_table(table, cluster.work / "many.parquet")
    frame = cluster.session.read.parquet(str(cluster.work / "many.parquet"))
    done = last_task(cluster)
    unit = ks.Unit("person", "add-remove", 2)
    with ks.spark.release(frame, domain, ks.haar_topdown(), epsilon="4", unit=unit, ledger=None, work=cluster.work,
                          columns={"grid": ["c0", "c1"]}, source=ks.seeded(1), partitions=3) as out:  # fmt: skip
        assert out.non_zero > 50_000
    sent = 0
    for event in events(cluster, "SparkListenerTaskEnd"):
        if event["Task Info"]["Task ID"] > done and event.get("Task Metrics"):
            sent += event["Task Metrics"]["Result Size"]
    assert 0 < sent < 150_000 * 8 / 4, f"{sent} bytes came to the driver"


def test_nothing_secret_in_logs_plans_or_files(cluster):
    """Over everything this Spark has written so far: of this release, and of the tests before it."""
    frame, call, secrets = search.case(cluster.session, cluster.work)
    with ks.spark.release(frame, work=cluster.work, **call) as out:
        assert out.non_zero > 0
    search.plant(cluster.session)  # encrypted, the planted key is not found either
    names = {path.name for path in cluster.files.rglob("*") if path.is_file()}
    assert any(name.startswith("shuffle_") and name.endswith(".data") for name in names) and "driver.log" in names
    said = [path.read_text() for path in (cluster.files / "driver.log", *cluster.executors.rglob("stderr"))]
    assert len(said) >= 3 and all(" INFO " in text for text in said)
    log = next((cluster.files / "events").iterdir()).read_text()
    assert "physicalPlanDescription" in log and "FlatMapCoGroupsInArrow" in log
    earlier = {f"key of seed {seed}": ks.seeded(seed).release_key() for seed in (1, 7)} | {"sampling": KEY}
    assert search.found(cluster.files, secrets | earlier) == set() == search.found(cluster.executors, secrets | earlier)
    assert not list(cluster.work.glob("kasuri-work-*"))


def test_without_encryption_it_is_refused_and_the_search_finds_everything(cluster, tmp_path):
    done = subprocess.run([sys.executable, search.__file__, str(tmp_path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads(done.stdout.splitlines()[-1])
    assert "spark.io.encryption.enabled must be true" in out["refused"]
    assert {"planted key", "cell value", "id"} <= set(out["found"])
    assert "release key" not in out["found"]  # only ever in a task's closure


def test_what_must_be_encrypted():
    on = {"spark.io.encryption.enabled": "true"}
    for master in ("local", "local[4]", "local-cluster[2,1,1024]"):
        assert checks.encryption_faults(master, on) == []
        assert len(checks.encryption_faults(master, {})) == 1
        for other in ("spark.shuffle.manager", "spark.shuffle.sort.io.plugin.class"):
            (fault,) = checks.encryption_faults(master, on | {other: "org.example.Other"})
            assert "must be Spark's own" in fault
    for master in ("yarn", "spark://127.0.0.1:7077", "k8s://https://local", "localhost"):
        assert len(checks.encryption_faults(master, on)) == 2
        assert len(checks.encryption_faults(master, {"spark.io.encryption.enabled": "false"})) == 3
        crypto = on | {"spark.network.crypto.enabled": "true"}
        (fault,) = checks.encryption_faults(master, crypto)
        assert "saslFallback" in fault
        assert checks.encryption_faults(master, crypto | {"spark.network.crypto.saslFallback": "false"}) == []


def test_equal_values_from_different_records_give_the_same_files(cluster, monkeypatch):
    """Two tables and two keys chosen so that the released values agree, though the second block of one holds no record
    and that of the other does: every file is the same, byte for byte."""
    possible = np.zeros(131_072, bool)
    possible[::2000] = True  # 33 cells in the first block of noise, 33 in the second
    domain = ks.Domain.of(ks.Mesh("grid", shape=(512, 256)), mask={"grid": ~possible.reshape(512, 256)})
    unit = ks.Unit("person", "add-remove", 1)
    recipe, epsilon = ks.geometric(), "2"

    def noise(seed):
        none = ks.Counts.from_coo([], [], domain, unit)
        return ks.release(none, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed)).to_dense().ravel()

    cells = np.flatnonzero(possible)
    first, second = cells[cells < 65_536], cells[cells >= 65_536]
    one = noise(1)
    few = second[:3]
    # a seed whose noise is nowhere larger, and somewhere smaller, at the few cells that stay in the second block
    seed = next(s for s in range(2, 400) if (one[few] >= (own := noise(s))[few]).all() and (one[few] > own[few]).any())
    keep = np.zeros(131_072, bool)
    keep[first] = keep[few] = True
    domain = ks.Domain.of(ks.Mesh("grid", shape=(512, 256)), mask={"grid": ~keep.reshape(512, 256)})
    base = np.zeros(131_072, np.int64)
    base[first] = 40
    other = np.where(keep, base + one - noise(seed), 0)
    assert base[second].sum() == 0 < other[second].sum() and other.min() >= 0
    monkeypatch.setattr(files, "FILE_ROWS", 8)
    monkeypatch.setattr(files, "GROUP_ROWS", 4)
    monkeypatch.setattr("kasuri.draw.secrets", SimpleNamespace(token_hex=lambda n: "0" * 2 * n))
    trees = []
    for table, own in ((base, 1), (other, seed)):
        monkeypatch.setattr(files, "HERE_ROWS", 0 if own == 1 else 1 << 22)  # one by tasks, one by the driver
        rows = np.repeat(np.arange(table.size), table)
        path = cluster.work / f"{own}.parquet"
        pq.write_table(pa.table({"person": np.arange(rows.size), "row": rows // 256, "col": rows % 256}), path)
        frame = cluster.session.read.parquet(str(path))
        call = {"epsilon": epsilon, "unit": unit, "ledger": None, "work": cluster.work, "source": ks.seeded(own)}
        place = {"grid": ["row", "col"]}
        with ks.spark.release(frame, domain, recipe, columns=place, partitions=3 + own % 2, **call) as out:
            groups = [pq.ParquetFile(path).metadata for path in sorted(out.folder.glob("*.parquet"))]
            trees.append({path.name: path.read_bytes() for path in sorted(out.folder.glob("*.parquet"))})
            assert [meta.num_rows for meta in groups[:-1]] == [8] * (len(groups) - 1) and len(groups) > 3
            assert {meta.row_group(0).num_rows for meta in groups[:-1]} == {4}
            assert {path.name for path in out.folder.glob("[!.]*")} == {*trees[-1], "lock"}
    assert trees[0] == trees[1]


def test_bounding_is_the_rule_of_the_other_engines(cluster):
    """Crowded units, weights, ids that look alike: the cells kept are those of DuckDB, of the radix count, and of the
    slow twin."""
    domain = ks.Domain.of(ks.Mesh("grid", shape=(7, 9)))
    rng = np.random.default_rng(4)
    n = 900
    texts = ["7", "07", " 7", "7 ", "é", "e\u0301", "É", "a|b", "a", "", "\u0000", "７", "-7", "x" * 1024, "é" * 513]
    for ids in (rng.choice(texts, n).tolist(), rng.choice([0, 7, -7, 2**63 - 1, -(2**63)], n).tolist()):
        cells, weights = rng.integers(0, 70, n), rng.integers(-1, 9, n)
        table = pa.table({"person": ids, "row": cells // 9, "col": cells % 9, "weight": weights})
        pq.write_table(table, cluster.work / "crowd.parquet")
        frame = cluster.session.read.parquet(str(cluster.work / "crowd.parquet"))
        for max_cells, max_weight in ((3, None), (5, 4)):
            unit, weight = ks.Unit("person", "add-remove", max_cells, max_weight), max_weight and "weight"
            place = {"grid": ["row", "col"]}
            assert bounding.judge(frame, domain, place, unit, weight, KEY) == KEY
            placed = bounding.records(frame, domain, place, unit, weight)
            pairs = placed.mapInArrow(bounding.bound(domain, unit, weight is not None, KEY), bounding.BOUNDED)
            address = bounding.addressed(lambda c: (c * 0, c))
            found = bounding.counted(pairs).mapInArrow(address, COUNTS).toArrow()
            got = dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))
            rows = [
                (i, c if c < 63 else None, w) for i, c, w in zip(ids, cells.tolist(), weights.tolist(), strict=True)
            ]
            assert got == bounded(rows, max_cells, KEY, max_weight)
            for engine in ("duckdb",) if isinstance(ids[0], str) else ("duckdb", "radix"):
                local = ks.count(table, domain, columns=place, unit=unit, weight=weight, key=KEY, engine=engine)
                assert got == dict(zip(local.cells.tolist(), local.values.tolist(), strict=True))


def test_a_column_name_may_hold_anything_and_rows_without_an_id_are_left_out(cluster):
    from pyspark.sql import functions as fn

    frame, call, _ = setting(cluster, "cells", 2)
    table = pq.read_table(cluster.work / "cells.parquet")
    odd = frame.withColumn("person", fn.when(fn.col("person") % 3 != 0, fn.col("person")))
    odd = odd.withColumnRenamed("c0", "c`.0").select("*", fn.lit(0).alias("C1"))
    place = {"grid": ["c`.0", "c1"]}
    placed = bounding.records(odd, call["domain"], place, call["unit"], "weight")
    found = placed.mapInArrow(bounding.bound(call["domain"], call["unit"], True, KEY), bounding.BOUNDED).toArrow()
    some = table.filter(pa.array(table["person"].to_numpy() % 3 != 0))
    local = ks.count(some, call["domain"], columns=call["columns"], unit=call["unit"], weight="weight", key=KEY)
    assert found["value"].to_numpy().sum() == local.values.sum() > 0
    assert set(found["cell"].to_pylist()) == set(local.cells.tolist())


def test_saved_paid_and_verified(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILE_ROWS", 200)
    frame, call, _ = setting(cluster, "jumps", 2)
    book = ks.Ledger.open(tmp_path / "book.ledger", epsilon="1", unit=call["unit"], data="visits")
    call |= {"ledger": book, "data": "visits", "source": None, "assume": ROWS_ALONE}
    with ks.spark.release(frame.distinct(), **call) as out:
        assert out.guarantee.assumes[-3:] == (ROWS_ALONE, module.STEADY, module.LOGS)
        out.save(str(tmp_path / "out"))
        assert out.frame().count() == out.non_zero
        total = out.total()
    report = ks.verify(tmp_path / "out", ledger=tmp_path / "book.ledger")
    assert report["ok"], report["faults"]
    assert "report.html" in report["files"]
    said = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert ROWS_ALONE in said["privacy"]["assumes"] and ROWS_ALONE in book.summary()["assumes"]
    for name, words in {
        "certificate.md": ROWS_ALONE,
        "certificate.ja.md": ja(ROWS_ALONE),
        "report.html": ROWS_ALONE,
    }.items():
        assert words in (tmp_path / "out" / name).read_text(encoding="utf-8"), name
    assert ja(ROWS_ALONE) != ROWS_ALONE
    assert said["intervals"]["level"] is None and "in parts" in said["intervals"]["why"]
    back = ks.Release.load(tmp_path / "out")
    assert back.total() == total and back.recipe == out.recipe
    parts = sorted((tmp_path / "out").glob("release-*.parquet"))
    assert len(parts) > 1 and sum(pq.read_table(path)["value"].to_numpy().sum() for path in parts) == total
    table = pq.read_table(parts[1])
    pq.write_table(table.slice(1), parts[1])
    assert not ks.verify(tmp_path / "out")["ok"]
    assert [entry["kind"] for entry in book.entries()] == ["opened", "reserved", "committed"]


@pytest.mark.parametrize("lost", ["one part", "all parts", "rows of a part"])
def test_a_lost_copy_of_the_counts_ends_the_release(cluster, tmp_path, monkeypatch, lost):
    """The session says that missing files may be passed over; the release does not."""
    frame, call, _ = setting(cluster, "plain", 2)
    book = ks.Ledger.open(tmp_path / "book.ledger", epsilon="1", unit=call["unit"], data="visits")
    charge, sums = module.charge, subtrees.Copy.sums

    def lose():
        parts = sorted(cluster.work.glob("kasuri-work-*/counts-*"))
        assert len(parts) >= 2  # two are read; there may be one more of a speculative copy
        assert {path.stat().st_mode & 0o777 for path in (parts[0].parent, *parts)} == {0o700, 0o600}
        for path in parts[:-1] if lost != "all parts" else parts:
            if lost == "rows of a part":
                pq.write_table(pq.read_table(path).slice(1), path)
            else:
                path.unlink()

    def losing(*words, **more):
        lose()
        return (sums if lost == "rows of a part" else charge)(*words, **more)

    if lost == "rows of a part":  # what is written is read back and compared before anything is paid
        monkeypatch.setattr(subtrees.Copy, "sums", losing)
    else:
        monkeypatch.setattr(module, "charge", losing)
    cluster.session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(ks.KasuriError, match=r"Spark job failed|does not hold what was counted"):
            ks.spark.release(frame, **(call | {"ledger": book, "data": "visits"}))
        assert cluster.session.conf.get("spark.sql.files.ignoreMissingFiles") == "true"
    finally:
        cluster.session.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert not list(cluster.work.glob("kasuri-work-*"))
    assert book.entries()[-1]["kind"] == ("opened" if lost == "rows of a part" else "abandoned")


@pytest.mark.parametrize("step", ["bounded", "counts", "drawn"])
def test_a_folder_that_is_not_there_is_not_made(cluster, monkeypatch, step):
    """As on a host that does not share it: the release fails, and no task makes the folder again."""
    frame, call, _ = setting(cluster, "cells", 2)
    kept, seen = subtrees.Copy.kept, []

    def removed(self, own, name, columns, *made):
        if name == step:
            shutil.rmtree(self.folder)
            seen.append(self.folder)
        return kept(self, own, name, columns, *made)

    monkeypatch.setattr(subtrees.Copy, "kept", removed)
    with pytest.raises(ks.KasuriError, match="does not see the private folder" if step == "bounded" else ""):
        ks.spark.release(frame, **call)
    assert len(seen) == 1
    time.sleep(1)  # a task that was still running would have written by now
    assert not seen[0].exists() and not list(cluster.work.glob("kasuri-work-*"))


def test_a_failure_while_tasks_write_ends_them_first(cluster, monkeypatch, tmp_path):
    """The driver gives up while tasks are at work: they are ended before the folder goes, and nothing is left."""
    frame, call, _ = setting(cluster, "cells", 2)
    begun = str(tmp_path / "begun")

    def slow(batches):
        import time
        from pathlib import Path

        Path(begun).touch()
        for batch in batches:
            time.sleep(60)
            yield batch

    def failing(self, own, name, columns, *made):
        thread = inheritable(target=lambda: kept(self, own.mapInArrow(slow, own.schema), name, columns, *made))
        thread.start()
        while not Path(begun).exists():
            time.sleep(0.05)
        raise KeyboardInterrupt

    from pyspark import InheritableThread as inheritable  # noqa: N813 (the driver's job, in a thread of its group)

    kept = subtrees.Copy.kept
    monkeypatch.setattr(subtrees.Copy, "kept", failing)
    monkeypatch.setattr(threading, "excepthook", lambda words: None)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ks.spark.release(frame, **call)
    assert time.monotonic() - started < 50
    tracker = cluster.session.sparkContext.statusTracker()

    def at_work():
        return [s for s in tracker.getActiveStageIds() if tracker.getStageInfo(s).numActiveTasks]

    while at_work() and time.monotonic() - started < 50:  # what the tracker tells lags behind; a task would sleep 60 s
        time.sleep(0.1)
    assert not at_work()
    time.sleep(1)
    assert not list(cluster.work.glob("kasuri-work-*"))


def test_refusals_name_what_to_do_and_no_value(cluster, tmp_path):
    import logging

    from pyspark.sql import functions as fn

    frame, call, _ = setting(cluster, "cells", 2)
    odd = frame.withColumn("half", fn.col("person") / 2).withColumn("Person2", fn.lit(1))
    odd = odd.selectExpr(
        "*", "decimal(person) AS exact", "binary(string(person)) AS raw", "person > 9 AS some", "NULL AS none",
        "string(person) COLLATE UTF8_LCASE AS loose", "date_from_unix_date(1) AS day",
    )  # fmt: skip
    book = ks.Ledger.open(tmp_path / "book.ledger", epsilon="9", unit=call["unit"], data="visits")

    def refused(kind, words, frame=frame, **more):
        with pytest.raises(kind, match=words):
            ks.spark.release(frame, **(call | {"ledger": book, "data": "visits"} | more))

    refused(ks.PrivacyError, "not deterministic", frame.withColumn("c0", fn.rand()))
    once = frame.groupBy("person").agg(*(fn.first(name).alias(name) for name in ("c0", "c1", "weight")))
    twice = fn.udf(lambda x: x, "bigint")
    for name, unsteady in {
        "Sample": frame.sample(0.5), "GlobalLimit": frame.limit(10), "Deduplicate": frame.dropDuplicates(["person"]),
        "First": once, "MapInArrow": frame.mapInArrow(lambda rows: rows, frame.schema),
        "PythonUDF": frame.withColumn("c0", twice("c0")),
        "LogicalRDD": frame.rdd.map(lambda row: row).toDF(frame.schema),
        "ScriptTransformation": cluster.session.sql("SELECT TRANSFORM(id) USING 'cat' AS (person) FROM range(3)"),
        "ListAgg": frame.groupBy("person").agg(fn.expr("listagg(string(c0))")),
        "CollectList": frame.groupBy("person").agg(fn.collect_list("c0")),
    }.items():  # fmt: skip
        refused(ks.PrivacyError, rf"not deterministic \(.*{name}", unsteady)
    refused(ks.PrivacyError, "not deterministic", frame.randomSplit([0.5, 0.5])[0])
    for unsteady in (fn.monotonically_increasing_id(), fn.uuid(), fn.spark_partition_id(), fn.input_file_name()):
        refused(ks.PrivacyError, "not deterministic", frame.withColumn("c0", unsteady))
    refused(ks.PrivacyError, "not deterministic", frame.where("c0 > (SELECT 5 * rand())"))
    refused(ks.DomainError, "a stream of records", cluster.session.readStream.format("rate").load())
    assert checks.unsteady_parts(frame.distinct()._jdf.queryExecution().analyzed()) == set()
    assert checks.unsteady_parts(frame.dropDuplicates()._jdf.queryExecution().analyzed()) == set()
    settled = cluster.session.range(3).localCheckpoint()
    assert checks.unsteady_parts(settled._jdf.queryExecution().analyzed()) == set()
    refused(ks.PrivacyError, "no id column", unit=ks.Unit("nobody", "add-remove", 1, 5))
    refused(ks.PrivacyError, "is column 'person'", unit=ks.Unit("PERSON", "add-remove", 1, 5))
    for name in ("half", "exact", "raw", "some", "loose", "day", "none"):
        refused(ks.DomainError, "ids are whole numbers or text", odd, unit=ks.Unit(name, "add-remove", 1, 5))
    before = last_task(cluster)
    for recipe in (ks.privelet(), ks.recipes.sparse(), ks.recipes.simplex()):
        refused(ks.DomainError, "does not run on Spark", recipe=recipe)
    refused(ks.DomainError, "does not run on Spark", recipe=ks.haar_topdown(descent="dense"))
    refused(ks.DomainError, "does not run on Spark", recipe=ks.haar_topdown(transform="nominal"))
    assert last_task(cluster) == before
    refused(ks.DomainError, "not a URI", work="hdfs://name/tmp")
    refused(ks.DomainError, "no such folder", work=tmp_path / "none")
    refused(ks.DomainError, "no column 'height'", columns={"grid": ["height", "c1"]})
    refused(ks.PrivacyError, "max_weight", unit=ks.Unit("person", "add-remove", 1))
    refused(ks.DomainError, "classic Spark session", records((3, 3), 3, 3, 1))
    for number in (0, -1, True, 2.0):
        refused(ks.DomainError, "partitions", partitions=number)
    (tmp_path / "a[1]").mkdir()
    refused(ks.DomainError, "as a pattern", work=tmp_path / "a[1]")
    logging.getLogger("py4j").setLevel(logging.DEBUG)
    try:
        refused(ks.PrivacyError, "py4j")
    finally:
        logging.getLogger("py4j").setLevel(logging.NOTSET)
    assert [entry["kind"] for entry in book.entries()] == ["opened"]
    assert not list(cluster.work.glob("kasuri-work-*"))


def test_a_frame_of_spark_connect_is_refused(tmp_path):
    """By a server of its own, where the installed PySpark can start one."""
    needed = "grpc", "grpc_status", "zstandard"
    if shutil.which("java") is None or not all(importlib.util.find_spec(name) for name in needed):
        pytest.skip(
            "no Spark Connect here: it needs Java, grpcio, grpcio-status, googleapis-common-protos and zstandard"
        )
    script = Path(__file__).parent / "connect.py"
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads(done.stdout.splitlines()[-1])
    assert out["rows"] == 50 and out["kind"].startswith("pyspark.sql.connect")
    assert out["refused"] == checks.CONNECT and out["ledger"] == ["opened"]


def test_garbage_is_not_looked_for_among_modules(cluster):
    """PySpark looks for it after each task of a worker; in this process nothing is put aside."""

    def task(batches):
        import gc

        import pyarrow as pa

        with checks.quiet("counting"):
            list(batches)
        yield pa.RecordBatch.from_arrays([pa.array([gc.get_freeze_count()])], ["aside"])

    found = cluster.session.range(1).coalesce(1).mapInArrow(task, "aside bigint").toArrow().column("aside").to_pylist()
    with checks.quiet("nothing"):
        pass
    assert found[0] > 10_000 and gc.get_freeze_count() == 0


def test_a_client_without_a_jvm_is_told_the_same(monkeypatch):
    """Where the classic classes cannot even be imported."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.classic.dataframe", None)
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(ks.DomainError, match="as part of a plan"):
        checks.of(frame)


def test_a_task_that_fails_tells_no_value():
    with pytest.raises(ks.KasuriError) as caught, checks.quiet("blocks"):
        raise ValueError("person-77 in cell 12")
    assert "person-77" not in str(caught.value) and caught.value.__cause__ is None
    with pytest.raises(ks.DomainError, match="an id is missing"), checks.quiet("blocks"):
        raise ks.DomainError("frame: an id is missing")


def test_a_file_written_twice_is_the_same_and_half_a_file_is_none(tmp_path):
    """In whatever batches its rows come; and a run of the task that Spark ends, whose rows just stop, leaves the file
    of the run that counts alone."""
    domain = ks.Domain.of(ks.Mesh("grid", shape=(64, 64)))
    rng = np.random.default_rng(0)
    rows = pa.table({"part": pa.array(np.zeros(100, np.int32)), "file": np.repeat([0, 1], [60, 40]),
                     "level": pa.array(np.zeros(100, np.int32)), "place": np.sort(rng.permutation(4096)[:100]),
                     "value": rng.integers(1, 9, 100)})  # fmt: skip
    writer = files._writer(files.Tables(domain, "0" * 32, None), str(tmp_path), 16)
    seen = []
    for size in (100, 7, 1):
        made = [batch.to_pylist()[0] for batch in writer(iter(rows.to_batches(size)))]
        list(writer(iter(rows.slice(0, 30).to_batches(size))))
        assert [receipt["rows"] for receipt in made] == [60, 40]
        names = [files._named(tmp_path, **receipt).name for receipt in made]
        list(writer(iter(rows.slice(0, 30).to_batches(size))))
        assert names == ["release-00000.parquet", "release-00001.parquet"]
        seen.append([(tmp_path / name).read_bytes() for name in names])
    assert seen[0] == seen[1] == seen[2] and pq.read_table(tmp_path / "release-00000.parquet").num_rows == 60
    with pytest.raises(ks.NumericsError, match="not there"):
        files._named(tmp_path, **made[0])


JOB = """
engine = "spark"

[data]
name = "visits"
files = ["visits.parquet"]
columns = { grid = ["c0", "c1"] }

[[axes]]
kind = "mesh"
name = "grid"
shape = [30, 50]

[unit]
id = "person"
change = "add-remove"
max_cells = 2

[budget]
epsilon = "1"
unmetered = true

[output]
folder = "out"

[spark]
work = "."
partitions = 2
"""


def test_a_job_file_runs_on_spark(cluster, tmp_path, monkeypatch):
    """And a table too large to be read whole has no report, which the manifest says and verify expects."""
    from kasuri import job
    from kasuri.report import page

    monkeypatch.setattr(page, "MOST_READ", 1)
    pq.write_table(records((30, 50), 500, 200, 2), tmp_path / "visits.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    assert job.check(tmp_path / "job.toml") == []
    released = job.run(job.load(tmp_path / "job.toml"), tmp_path)
    report = ks.verify(tmp_path / "out")
    assert report["ok"], report["faults"]
    assert "release-00000.parquet" in report["files"] and "measurements-00000.parquet" in report["files"]
    assert released.non_zero == pq.read_table(tmp_path / "out" / "release-00000.parquet").num_rows > 1
    assert not (tmp_path / "out" / "report.html").exists()
    monkeypatch.undo()
    assert any("there is a report" in fault for fault in ks.verify(tmp_path / "out")["faults"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "out", "visits.parquet"]


def test_a_job_file_that_spark_cannot_run(tmp_path):
    from kasuri import job

    (tmp_path / "job.toml").write_text(JOB.replace("[budget]", '[recipe]\nname = "privelet"\n\n[budget]'))
    (fault,) = job.check(tmp_path / "job.toml")
    assert "privelet does not run on Spark" in fault
    with pytest.raises(ks.DomainError, match="privelet does not run on Spark"):
        job.run(job.load(tmp_path / "job.toml"), tmp_path)
    for was, now, words in [
        ('"visits.parquet"', '"visits.csv"', "Parquet"),
        ('folder = "out"', 'folder = "out"\nexports = ["out.csv"]', "exports must be empty"),
        ('engine = "spark"', "", "go together"),
        ("partitions = 2", "partitions = 0", "partitions"),
    ]:
        (tmp_path / "job.toml").write_text(JOB.replace(was, now))
        with pytest.raises(ks.FormatError, match=words):
            job.load(tmp_path / "job.toml")
