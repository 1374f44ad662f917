"""A release on two executors is the release of one machine, bit for bit, whatever Spark does with its tasks; and leaves
nothing behind but what it publishes."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kasuri as ks
from kasuri.spark import bounding, cluster as module, files, session as checks, subtrees
from reference.bounding import bounded

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
    "plain": (ks.Domain.of(ks.Mesh("grid", shape=(2048, 4000))), {"grid": ["c0", "c1"]}, ks.haar_topdown(), False, None),
    "count tree": (AXES, {"grid": ["c0", "c1"], "age": "c2"}, ks.refined_tree(), False, None),
    "cells": (ks.Domain.of(ks.Mesh("grid", shape=(300, 500)), mask={"grid": SEA}), {"grid": ["c0", "c1"]},
              ks.geometric(), False, 5),
    "whole": (ks.Domain.of(ks.Mesh("grid", shape=(30, 50)), mask={"grid": SEA[:30, :50]}), {"grid": ["c0", "c1"]},
              ks.refined_tree("u4"), False, None),
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
    call = {"domain": domain, "recipe": recipe, "epsilon": "0.5", "unit": unit, "ledger": None, "columns": columns,
            "weight": weight, "key": KEY, "source": ks.seeded(7), "work": cluster.work, "partitions": partitions}  # fmt: skip
    return cluster.session.read.parquet(str(path)).repartition(partitions), call, local


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
    [("jumps", 1), ("jumps", 7), ("jumps", 64), ("plain", 7), ("count tree", 7), ("cells", 7), ("whole", 2)],
)
def test_bit_identical_to_one_machine(cluster, name, partitions):
    frame, call, local = setting(cluster, name, partitions)
    assert local.cells.size > 100
    with ks.spark.release(frame, **call) as out:
        assert out.total() == local.total() and out.non_zero == local.non_zero
        assert_same(out.collect(), local)
        assert out.folder.exists()
    assert not out.folder.exists()


def events(cluster, kind):
    """Events of one kind from the event log, as written so far."""
    log = next((cluster.files / "events").iterdir())
    for line in log.read_text().splitlines():
        if f'"Event":"{kind}"' in line:
            yield json.loads(line)


def test_an_executor_killed_while_subtrees_run(cluster, monkeypatch):
    frame, call, local = setting(cluster, "plain", 7)
    tracker, killed = cluster.session.sparkContext.statusTracker(), {}
    spread = subtrees.Copy.kept

    def executors():
        jvm = psutil.Process(cluster.session.sparkContext._gateway.proc.pid)
        return [p for p in jvm.children(recursive=True) if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())]

    def kill(before):
        while "stage" not in killed:
            for stage in set(tracker.getActiveStageIds()) - before:
                info = tracker.getStageInfo(stage)
                if info is not None and info.name.startswith("parquet") and info.numActiveTasks and info.numTasks == 7:
                    killed["stage"], killed["tasks"] = stage, info.numActiveTasks
                    executors()[0].kill()
                    return
            time.sleep(0.002)

    def kept(self, rows, name, columns):
        if name != "drawn":
            return spread(self, rows, name, columns)
        thread = threading.Thread(target=kill, args=(set(tracker.getActiveStageIds()),))
        thread.start()
        try:
            return spread(self, rows, name, columns)
        finally:
            killed.setdefault("stage", None)
            thread.join()

    monkeypatch.setattr(subtrees.Copy, "kept", kept)
    with ks.spark.release(frame, **call) as out:
        assert_same(out.collect(), local)
    assert killed["stage"] is not None, "no executor was killed"
    lost = [e for e in events(cluster, "SparkListenerTaskEnd") if e["Task End Reason"]["Reason"] == "ExecutorLostFailure"]
    assert killed["stage"] in {event["Stage ID"] for event in lost}
