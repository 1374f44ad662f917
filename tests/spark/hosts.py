"""Two hosts on one machine: `python hosts.py FOLDER` makes two network namespaces, each with a /tmp of its own and one
Spark worker in it, which share FOLDER and nothing else; kills one of them, with its executor, while it draws; and
prints what was released beside what one machine gives. Needs root, ip and unshare; leaves the machine's network alone.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

DRIVER, HOSTS = "10.77.0.1", {"a": "10.77.1.2", "b": "10.77.2.2"}
CONF = """
spark.authenticate true
spark.authenticate.secret {secret}
spark.network.crypto.enabled true
spark.network.crypto.saslFallback false
spark.io.encryption.enabled true
spark.driver.host {driver}
spark.driver.bindAddress {driver}
spark.ui.enabled false
spark.executor.memory 600m
spark.sql.shuffle.partitions 6
spark.network.timeout 300s
"""


def networks() -> None:
    """This process is alone in a new network: two wires to two further ones, which reach one another through it."""
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount -t tmpfs tmpfs /run/netns")  # the names, too, are of this process alone
    run("ip link set lo up", f"ip addr add {DRIVER}/32 dev lo", "sysctl -qw net.ipv4.ip_forward=1")
    for name, address in HOSTS.items():
        near = address.rsplit(".", 1)[0] + ".1"
        run(
            f"ip netns add {name}", f"ip link add to-{name} type veth peer name eth0 netns {name}",
            f"ip addr add {near}/24 dev to-{name}", f"ip link set to-{name} up",
            f"ip -n {name} addr add {address}/24 dev eth0", f"ip -n {name} link set lo up",
            f"ip -n {name} link set eth0 up", f"ip -n {name} route add default via {near}",
        )  # fmt: skip


def run(*lines: str) -> None:
    for line in lines:
        subprocess.run(line.split(), check=True)


def started(words: list[str], address: str, log: Path) -> subprocess.Popen:
    with log.open("wb") as file:
        env = os.environ | {"SPARK_LOCAL_IP": address, "SPARK_PUBLIC_DNS": address}
        return subprocess.Popen(words, env=env, stdout=file, stderr=file, start_new_session=True)


def main(folder: Path) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(CONF.format(secret=os.urandom(16).hex(), driver=DRIVER))
    os.environ |= {"SPARK_CONF_DIR": str(folder / "conf"), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable,
                   "SPARK_LOCAL_IP": DRIVER}  # fmt: skip
    networks()
    spark = str(home / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    made = [started([spark, f"{deploy}.master.Master", "--host", DRIVER, "--port", "7077", "--webui-port", "0"], DRIVER,
                    folder / "master.log")]  # fmt: skip
    workers = {}
    try:
        for name, address in HOSTS.items():
            own = (
                f"{apart(folder / name)}; exec {spark} {deploy}.worker.Worker --host {address} --cores 1 "
                f"--memory 1g --work-dir /tmp/work --webui-port 0 spark://{DRIVER}:7077"
            )
            workers[name] = started(["ip", "netns", "exec", name, "unshare", "-m", "sh", "-c", own], address,
                                    folder / f"{name}.log")  # fmt: skip
            made.append(workers[name])
        print(json.dumps(compared(folder, workers)))
    finally:
        for process in made:
            ended(process)


def apart(aside: Path) -> str:
    """A /tmp of its own, in which this project, where it lies in /tmp, is all that there was before."""
    tree, own = Path(__file__).resolve().parents[2], "mount -t tmpfs tmpfs /tmp"
    if Path("/tmp") not in tree.parents:
        return own
    aside.mkdir()
    return f"mount --bind {tree} {aside} && {own} && mkdir -p {tree} && mount --bind {aside} {tree}"


def ended(process: subprocess.Popen) -> None:
    """The process and all that it started, which is in sessions of their own."""
    import psutil

    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    for one in (process, *below):
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def compared(folder: Path, workers: dict) -> dict:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    import kasuri as ks
    from kasuri.spark import subtrees

    rng = np.random.default_rng(1)
    domain = ks.Domain.of(ks.Mesh("grid", shape=(2048, 4000)))
    table = pa.table({"person": rng.integers(0, 2500, 6000), "row": rng.integers(0, 2048, 6000),
                      "col": rng.integers(0, 4000, 6000)})  # fmt: skip
    pq.write_table(table, folder / "records.parquet")
    unit, place, recipe = ks.Unit("person", "add-remove", 2), {"grid": ["row", "col"]}, ks.bayes_tree(pilot=True)
    key = bytes(range(32))
    counts = ks.count(table, domain, columns=place, unit=unit, key=key)
    local = ks.release(counts, recipe, epsilon="1", ledger=None, source=ks.seeded(7))
    session = SparkSession.builder.master(f"spark://{DRIVER}:7077").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    frame = session.read.parquet(str(folder / "records.parquet")).repartition(6)
    gate, spread, died = str(folder / "gate"), subtrees.Copy.spread, []

    def gated(self, rows, roots, task, columns):
        def waiting(own, root):
            import os
            import socket
            import time
            from pathlib import Path

            if not os.path.exists(gate):
                Path(f"{gate}.{os.environ['SPARK_LOCAL_IP']}.{socket.gethostname()}.{os.getpid()}").touch()
            while not os.path.exists(gate):
                time.sleep(0.05)
            return task(own, root)

        return spread(self, rows, roots, waiting, columns)

    def kill() -> None:
        """Host b is gone, with its executor, while both are at work."""
        while len({path.name.split(".")[3] for path in folder.glob("gate.*")}) < 2:
            time.sleep(0.1)
        ended(workers["b"])
        died.append("b")
        Path(gate).touch()

    subtrees.Copy.spread = gated
    threading.Thread(target=kill, daemon=True).start()
    work = folder / "work"
    work.mkdir()
    with ks.spark.release(frame, domain, recipe, epsilon="1", unit=unit, ledger=None, columns=place, work=work, key=key,
                          source=ks.seeded(7)) as out:  # fmt: skip
        found = out.collect()
        same = np.array_equal(found.cells, local.cells) and np.array_equal(found.values, local.values)
        measured = np.array_equal(found.measurements.value, local.measurements.value)
    seen = sorted({path.name.split(".")[3] for path in folder.glob("gate.*")})
    left = [path.name for path in work.iterdir()]
    session.stop()
    return {"same": bool(same and measured), "cells": int(found.cells.size), "killed": died, "at work": seen,
            "left": left}  # fmt: skip


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    if "--inside" in sys.argv:
        main(place)
    else:
        words = ["unshare", "-n", "-m", sys.executable, __file__, str(place), "--inside"]
        done = subprocess.run(words)
        if done.returncode == 0:
            shutil.rmtree(place)
        sys.exit(done.returncode)
