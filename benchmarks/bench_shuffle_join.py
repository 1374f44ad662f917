"""Two tables of 10^6 people, ten columns a side: pseudonyms, randomising, files and join, against hashlib and DuckDB.

    python3 run.py bench shuffle_join
    python benchmarks/bench_shuffle_join.py [--people 1000000] [--columns 10] [--mechanism coin]

Each side reads a Parquet file and writes its table in a process of its own; a third joins. Pseudonyms are compared with
a loop over hashlib.blake2b, the join with DuckDB joining the two files on their pseudonyms. Seconds are wall clock
(and CPU) of the whole process; memory is the peak of the largest. Prints one JSON object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PREPARE = """
import sys
import numpy as np, pyarrow as pa
from pyarrow import parquet
import kasuri as ks
folder, n, m, mechanism = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
rng = np.random.default_rng(1)
names = {side: [f"{side}{k}" for k in range(m)] for side in "ab"}
bounds = {name: (0, 100) for side in "ab" for name in names[side]}
plan = ks.shuffle.Plan(key="phone", a=names["a"], b=names["b"], bounds=bounds, epsilon_each="0.5", delta=1e-8,
                       mechanisms=dict.fromkeys(bounds, mechanism))
plan.save(f"{folder}/plan.json")
for side, shift in (("a", 0), ("b", n // 20)):
    numbers = rng.permutation(n) + shift
    phones = pa.array([f"090{k:08d}" for k in numbers.tolist()])
    columns = {"phone": phones} | {name: rng.uniform(0, 100, n) for name in names[side]}
    parquet.write_table(pa.table(columns), f"{folder}/{side}.parquet")
"""

COMMON = """
import json, resource, sys, time
import numpy as np
import kasuri as ks
from kasuri._kernels import warm_up
from kasuri._kernels import shuffle as kernels
kernels.warm_up()
folder = sys.argv[1]
plan = ks.shuffle.Plan.load(f"{folder}/plan.json")
def report(**found):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    print(json.dumps(spent | {"peak_mb": peak} | found))
start, cpu = time.perf_counter(), time.process_time()
"""

SIDE = (
    COMMON
    + """
side, key, session = sys.argv[2], bytes.fromhex(sys.argv[3]), sys.argv[4]
with ks.shuffle.Party(plan, side, ks.shuffle.Secret(bytearray(key), session, side)) as party:
    table = party.run(f"{folder}/{side}.parquet")
table.save(f"{folder}/{side}.out.parquet", unmetered=True)
report(rows=len(table))
"""
)

JOIN = (
    COMMON
    + """
a, b = (ks.shuffle.Shuffled.load(f"{folder}/{side}.out.parquet", plan) for side in "ab")
joined = ks.shuffle.join(plan, a, b)
joined.save(f"{folder}/joined.parquet", unmetered=True)
report(rows=len(joined), epsilon=float(joined.claims.public.epsilon), bound=joined.claims.bound)
"""
)

DUCK = """
import json, sys, time
import duckdb
folder = sys.argv[1]
start, cpu = time.perf_counter(), time.process_time()
con = duckdb.connect()
con.execute(f"COPY (SELECT * EXCLUDE pseudonym FROM '{folder}/a.out.parquet' a JOIN '{folder}/b.out.parquet' b "
            f"USING (pseudonym)) TO '{folder}/duck.parquet'")
print(json.dumps({"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}))
"""

KEYS = (
    COMMON
    + """
import hashlib
n = 1_000_000
data = np.random.default_rng(1).integers(48, 58, 11 * n, dtype=np.uint8)
ends, out = np.arange(n + 1) * 11, np.empty((n, 2), np.uint64)
state = kernels.key_state(np.zeros(32, np.uint8))
best, plain = 0.0, 0.0
texts = [data[11 * i : 11 * i + 11].tobytes() for i in range(n // 10)]
for _ in range(3):
    begun = time.process_time()
    kernels.pseudonyms(state, data, ends, out)
    best = max(best, n / (time.process_time() - begun))
    begun = time.process_time()
    for text in texts:
        hashlib.blake2b(text, key=bytes(32), digest_size=16).digest()
    plain = max(plain, len(texts) / (time.process_time() - begun))
report(keys_per_cpu_second=best, hashlib_loop=plain)
"""
)


def run(code, *words):
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout) if done.stdout else {}


def main(words=()):
    asked = argparse.ArgumentParser()
    asked.add_argument("--people", type=int, default=1_000_000)
    asked.add_argument("--columns", type=int, default=10)
    asked.add_argument("--mechanism", default="piecewise")
    given = asked.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(PREPARE, folder, given.people, given.columns, given.mechanism)
        found = {"people": given.people, "columns": given.columns, "mechanism": given.mechanism}
        for side in "ab":
            found[side] = run(SIDE, folder, side, "17" * 32, "benchmark")
        found["join"], found["duckdb"] = run(JOIN, folder), run(DUCK, folder)
        found["pseudonyms"] = run(KEYS, folder)
    parts = [found[part] for part in ("a", "b", "join")]
    found["total_seconds"] = sum(part["seconds"] for part in parts)
    found["total_cpu"] = sum(part["cpu"] for part in parts)
    found["peak_mb"] = max(part["peak_mb"] for part in parts)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
