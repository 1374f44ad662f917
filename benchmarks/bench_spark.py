"""A release on Spark by rows and executors: time and processor time per row, shuffled bytes, memory of the driver.

python benchmarks/bench_spark.py [--rows 1000000 10000000 100000000] [--executors 1 2] [--folder FOLDER]

Each line is a fresh local-cluster of N executor processes with one core and 3 GB each. The records are made by Spark
(people who are seen twenty times each around a home cell of a 2^28-cell mesh), bounded to four cells per person and
released with haar_topdown. Processor time counts every process; driver memory is the peak of the Python process and
of its JVM (heap limit 1 GB), and what the JVM's heap holds after a collection. Needs Java 17 or later. Not two of these
at once: Spark may give both the same number, and the first to end removes the folder of the other.

Processor microseconds per row on two cores that others used too, at 10^6, 10^7 and 10^8 rows: 23.8, 5.0, 3.3 with one
executor, 27.9, 5.1, 3.4 with two; 14.6 to 14.1 bytes per row shuffled; a live heap of 75 to 82 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

ROWS = (10**6, 10**7)
EXECUTORS = (1, 2)
RECORDS = """
    id % greatest({rows} div 20, 1) AS person,
    cast(pmod(xxhash64(id % greatest({rows} div 20, 1), 1), 16000) + pmod(xxhash64(id, 2), 6) AS int) AS row,
    cast(pmod(xxhash64(id % greatest({rows} div 20, 1), 3), 16000) + pmod(xxhash64(id, 4), 6) AS int) AS col
"""


def one(rows: int, executors: int, folder: Path) -> dict:
    """One release in this process: what it took."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    import psutil
    import pyspark
    from pyspark.sql import SparkSession

    import kasuri as ks

    settings = {
        "spark.io.encryption.enabled": "true", "spark.local.dir": str(folder), "spark.executor.memory": "2g",
        "spark.driver.memory": "1g",
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}", "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
    }  # fmt: skip
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,3072]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    jvm = psutil.Process(session.sparkContext._gateway.proc.pid)
    domain = ks.Domain.of(ks.Mesh("grid", shape=(1 << 14, 1 << 14)))
    work = folder / "work"
    work.mkdir()

    def run(rows: int, partitions: int) -> int:
        frame = session.range(0, rows, 1, partitions).selectExpr(*_expressions(rows))
        call = {"epsilon": "1", "unit": ks.Unit("person", "add-remove", 4), "ledger": None, "work": work}
        call["assume"] = "rows depend on their own id alone"  # made as they are read, of no stored table
        columns = {"grid": ["row", "col"]}
        with ks.spark.release(frame, domain, ks.haar_topdown(), columns=columns, partitions=partitions, **call) as out:
            return out.non_zero

    run(1000, 2)  # processes started, kernels loaded
    watch, start = _Watch(jvm), time.perf_counter()
    cells = run(rows, max(4, rows // 2_000_000))
    seconds = time.perf_counter() - start
    used = watch.stop()
    java = session._jvm.java.lang
    java.System.gc()
    used["heap"] = java.Runtime.getRuntime().totalMemory() - java.Runtime.getRuntime().freeMemory()
    frame = session.range(0, rows, 1, 1).selectExpr(*_expressions(rows))
    frame.write.parquet(f"file://{folder}/records")
    here = _one_machine(sorted(map(str, (folder / "records").glob("*.parquet"))), domain)
    logs = Path(pyspark.__file__).parent / "work" / session.sparkContext.applicationId
    session.stop()
    shutil.rmtree(logs, ignore_errors=True)
    log = next(path for path in folder.iterdir() if path.name.startswith("app-"))
    written = [
        event for event in map(json.loads, log.read_text().splitlines()) if event["Event"] == "SparkListenerTaskEnd"
    ]
    shuffled = sum(
        e["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"] for e in written if e.get("Task Metrics")
    )
    return {
        "rows": rows,
        "executors": executors,
        "seconds": seconds,
        "shuffled": shuffled,
        "cells": cells,
        "here": here,
    } | used


def _one_machine(files: list[str], domain) -> float:
    """CPU seconds of the same count and release in this process, from a Parquet file of the same records."""
    import kasuri as ks
    from kasuri._kernels import records

    records.warm_up()
    start = time.process_time()
    unit = ks.Unit("person", "add-remove", 4)
    counts = ks.count(files, domain, columns={"grid": ("row", "col")}, unit=unit)
    ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None)
    return time.process_time() - start


def _expressions(rows: int) -> list[str]:
    return [line.strip().rstrip(",") for line in RECORDS.format(rows=rows).strip().splitlines()]


class _Watch:
    """Processor seconds of the driver, its JVM and every executor and Python worker below it, and the largest resident
    memory of the driver's two processes; looked at twice a second, since workers end unseen."""

    def __init__(self, jvm) -> None:
        import psutil

        self._driver = {"python": psutil.Process(), "jvm": jvm}
        self._most = dict.fromkeys(self._driver, 0)
        self._times: dict[tuple[int, float], float] = {}
        self._look()
        self._before = sum(self._times.values())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _look(self) -> None:
        import psutil

        for process in (*self._driver.values(), *self._driver["jvm"].children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                self._times[process.pid, process.create_time()] = sum(process.cpu_times()[:2])
        for name, process in self._driver.items():
            self._most[name] = max(self._most[name], process.memory_info().rss)

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self._look()

    def stop(self) -> dict:
        self._over.set()
        self._thread.join()
        self._look()
        return {"cpu": sum(self._times.values()) - self._before} | self._most


def main(rows=ROWS, executors=EXECUTORS, folder: str | None = None) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print("  no Java on this machine: not measured")
        return
    print(f"{'rows':>12} {'executors':>9} {'s':>8} {'us/row':>8} {'cpu us/row':>10} {'of one machine':>14} "
          f"{'shuffled MB':>11} {'B/row':>6} "
          f"{'driver MB: python':>17} {'jvm':>6} {'live heap':>9} {'cells':>10}")  # fmt: skip
    for many in rows:
        for number in executors:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                words = [sys.executable, __file__, "--one", str(many), str(number), place]
                done = subprocess.run(words, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{done.stdout[-1000:]}{done.stderr[:3000]}")
                out = json.loads(done.stdout.splitlines()[-1])
            print(f"{many:12,} {number:9} {out['seconds']:8.1f} {1e6 * out['seconds'] / many:8.2f} "
                  f"{1e6 * out['cpu'] / many:10.2f} {out['cpu'] / out['here']:14.1f} "
                  f"{out['shuffled'] / 1e6:11.1f} {out['shuffled'] / many:6.1f} "
                  f"{out['python'] / 1e6:17.0f} {out['jvm'] / 1e6:6.0f} {out['heap'] / 1e6:9.0f} "
                  f"{out['cells']:10,}", flush=True)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
        parser.add_argument("--executors", type=int, nargs="+", default=EXECUTORS)
        parser.add_argument("--folder", help="where shuffle files and output go")
        given = parser.parse_args()
        main(given.rows, given.executors, given.folder)
