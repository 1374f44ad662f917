"""k, l and t of k-anonymised tables: agreement with pycanon, and the time of both.

    .venv/bin/python benchmarks/kanon_pycanon.py

pycanon pins an old NumPy, so it gets an environment of its own (.venv-pycanon, made on the first run).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from kasuri import _kernels, kanon

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-pycanon"
PEER = """
import json, sys, time
import pandas as pd
from pycanon import anonymity
out = []
for path, quasi, sensitive in json.load(open(sys.argv[1])):
    data = pd.read_csv(path)
    start = time.process_time()
    k = anonymity.k_anonymity(data, quasi)
    found = [f(data, quasi, [sensitive]) for f in (anonymity.l_diversity, anonymity.entropy_l_diversity)]
    t = float(anonymity.t_closeness(data, quasi, [sensitive]))
    out.append([k, *found, t, time.process_time() - start])
print(json.dumps(out))
"""


def adult() -> pd.DataFrame:
    for folder in ("../shared/data", "../../shared/data"):
        path = ROOT / folder / "adult.csv.gz"
        if path.exists():
            data = pd.read_csv(path)
            return data[(data != "?").all(axis=1)].reset_index(drop=True)
    sys.exit("adult.csv.gz was not found in ../shared/data")


def cases(data: pd.DataFrame) -> list[tuple[str, pd.DataFrame, list[str], str, str]]:
    trees = kanon.Recoding.load(ROOT / "src/kasuri/reproduce/adult/adult.toml").attributes[:3]
    out = []
    for sensitive, order in (("occupation", "nominal"), ("hours_per_week", "ordered"), ("income", "nominal")):
        spec = kanon.Recoding.of(*trees, sensitive={sensitive: order})
        for name, release in (
            ("specialize k=5", kanon.specialize(data, spec, k=5)),
            ("specialize k=10, 1 % suppressed", kanon.specialize(data, spec, k=10, suppression="0.01")),
            ("mondrian k=10", kanon.mondrian(data, spec, k=10)),
        ):
            table = release.table().to_pandas()
            table = table.astype({tree.name: str for tree in trees})
            out.append((f"{name}, {sensitive}", table, [tree.name for tree in trees], sensitive, order))
    raw = data[["sex", "race", "relationship", "education_num"]]
    out.append(("raw Adult columns", raw, ["sex", "race", "relationship"], "education_num", "ordered"))
    return out


def environment() -> Path:
    python = ENVIRONMENT / "bin/python"
    if not python.exists():
        uv = ROOT / ".tools/bin/uv"
        subprocess.run([uv, "venv", "-q", ENVIRONMENT], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", python, "pycanon==1.3.6"], check=True)
    return python


def main() -> None:
    _kernels.warm_up()
    work = cases(adult())
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for i, (_, table, quasi, sensitive, _) in enumerate(work):
            path = f"{folder}/{i}.csv"
            table.to_csv(path, index=False)
            jobs.append((path, quasi, sensitive))
        Path(folder, "jobs.json").write_text(json.dumps(jobs))
        Path(folder, "peer.py").write_text(PEER)
        done = subprocess.run(
            [environment(), f"{folder}/peer.py", f"{folder}/jobs.json"], check=True, capture_output=True, text=True
        )
        peers = json.loads(done.stdout.strip().splitlines()[-1])
        tables = [pd.read_csv(path) for path, _, _ in jobs]
    for (name, _, quasi, sensitive, order), table, peer in zip(work, tables, peers, strict=True):
        times = []
        for _ in range(5):
            start = time.process_time()
            found = kanon.measure(table, quasi, {sensitive: order})
            times.append(time.process_time() - start)
        one = found.sensitive[0]
        same = (found.k, one.distinct_l, int(one.entropy_l)) == tuple(peer[:3]) and abs(one.t - peer[3]) < 1e-9
        verdict = "agree" if same else f"DIFFER {peer[:4]}"
        print(
            f"{name:48} k {found.k:3} l {one.distinct_l:3} entropy l {one.entropy_l:6.3f} t {one.t:.6f}  "
            f"{verdict}  {min(times) * 1e3:6.1f} ms, pycanon {peer[4] * 1e3:8.0f} ms, "
            f"{peer[4] / min(times):6.0f}x"
        )


if __name__ == "__main__":
    main()
