"""Speed of unary reports against multi-freq-ldpy and pure-ldp, in one run.

    python3 run.py bench local_peers
    python benchmarks/bench_local_peers.py [--peers PYTHON] [--users 1000000]

PYTHON (or KASURI_PEERS) is an interpreter that has multi-freq-ldpy and pure-ldp (with scikit-learn, bitarray, xxhash);
without it the peers are skipped with a message. Everyone randomises, aggregates and estimates with OUE at epsilon 1;
the peers, which keep whole vectors of floats, get fewer people and are scaled. Prints one JSON object of CPU seconds.
"""

import argparse
import json
import os
import subprocess
import sys

OURS = """
import json, resource, sys, time
import numpy as np
import kasuri as ks
n, d, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
values = np.random.default_rng(1).integers(0, d, n)
place = ks.Ordered("place", d)
if len(sys.argv) > 4:  # text labels, as a frame has them
    place = ks.Nominal("place", labels=tuple(f"place number {i}" for i in range(d)))
    values = np.array(place.labels, dtype=object)[values].tolist()
rr = getattr(ks.local, kind)(place, epsilon="1", elsewhere=False)
ks.local.estimate(rr.randomize(values[:1000]), rr, method="inversion")  # what is loaded late is there
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
reports = rr.randomize(values)
ks.local.estimate(reports, rr, method="inversion")
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = {"seconds": seconds, "peak_mb": peak / 1024, "added_mb": (peak - before) / 1024}
if d == 23:
    ks.local.estimate(rr.randomize(values[:1000]), rr, method="em")
    start = time.process_time()
    em = ks.local.estimate(reports, rr, method="em")
    found |= {"em_seconds": time.process_time() - start, "em_passes": em.passes, "em_converged": em.converged}
print(json.dumps(found))
"""

MULTI_FREQ = """
import json, sys, time
import numpy as np
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client, UE_Aggregator_MI
n, d = int(sys.argv[1]), int(sys.argv[2])
values = np.random.default_rng(1).integers(0, d, n)
UE_Aggregator_MI([UE_Client(int(v), d, 1.0) for v in values[:10]], 1.0)
start = time.process_time()
UE_Aggregator_MI([UE_Client(v, d, 1.0) for v in values.tolist()], 1.0)
print(json.dumps({"seconds": time.process_time() - start}))
"""

PURE = """
import json, sys, time
import numpy as np
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
n, d = int(sys.argv[1]), int(sys.argv[2])
values = np.random.default_rng(1).integers(0, d, n)
client, server = UEClient(1.0, d, use_oue=True, index_mapper=int), UEServer(1.0, d, use_oue=True, index_mapper=int)
start = time.process_time()
for v in values.tolist():
    server.aggregate(client.privatise(v))
[server.estimate(x, suppress_warnings=True) for x in range(d)]
print(json.dumps({"seconds": time.process_time() - start}))
"""


def run(python, code, *words):
    done = subprocess.run([python, "-c", code, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        print(f"skipped: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(words=()):
    asked = argparse.ArgumentParser()
    asked.add_argument("--peers", default=os.environ.get("KASURI_PEERS"))
    asked.add_argument("--users", type=int, default=1_000_000)
    given = asked.parse_args(words)
    out = {}
    for d, peer_users in ((23, given.users // 5), (1024, given.users // 50)):
        row = {"kasuri oue": run(sys.executable, OURS, given.users, d, "oue")}
        row["kasuri oue, labels"] = run(sys.executable, OURS, given.users, d, "oue", "labels")
        row["kasuri unary"] = run(sys.executable, OURS, given.users, d, "unary")
        if given.peers is None:
            print("peers skipped: give --peers PYTHON with multi-freq-ldpy and pure-ldp", file=sys.stderr)
        else:
            for name, code in (("multi-freq-ldpy", MULTI_FREQ), ("pure-ldp", PURE)):
                print(f"{name}, d = {d}, {peer_users} people ...", file=sys.stderr)
                found = run(given.peers, code, peer_users, d)
                if found is not None:
                    seconds = found["seconds"] * given.users / peer_users
                    row[name] = {
                        "seconds_scaled": seconds,
                        "times_ours": seconds / row["kasuri oue"]["seconds"],
                        "times_ours_from_labels": seconds / row["kasuri oue, labels"]["seconds"],
                    }
        out[f"d={d}"] = row
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
