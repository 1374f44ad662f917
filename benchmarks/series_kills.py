"""Four weeks of hourly slots from the command line, killed (-9) every few slots: each paid once, none drawn twice.

nice .venv/bin/python benchmarks/series_kills.py [--slots 672] [--seed 20] [--export maps.duckdb] [--folder DIR]

A made-up table of 16 x 16 cells an hour. `kasuri series run` is started and killed a random moment after it has
published some more slots, again and again until none is due; `kasuri ledger repair` comes before every start, as the
timers of the guide have it. At the end the ledger's entries, the folder, the export and a replay from the published
measurements are compared. About 1 s of CPU a slot with a kill every 3 to 9 slots, nearly all of it starting Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import kasuri as ks

JOB = """
[data]
name = "flow"
files = ["in/{{date}}T{{hour}}.csv"]
columns = {{ grid = ["r", "c"] }}

[[axes]]
kind = "mesh"
name = "grid"
shape = [16, 16]

[unit]
id = "phone"
change = "add-remove"
max_cells = 1
per = "slot"

[recipe]
name = "refined_tree"
shares = "series"
noise = "gaussian"
delta = "1e-9"

[budget]
epsilon = "5"
ledger = "flow.ledger"

[series]
window = "7d"
slot = "1h"
zone = "+09:00"
start = "2020-10-05T00:00+09:00"
delta = "1e-9"

[output]
folder = "flow"
exports = ["{export}"]
"""
START = datetime.fromisoformat("2020-10-05T00:00+09:00")


def tables(folder: Path, slots: int, seed: int) -> None:
    """One CSV of records an hour; some are empty but for their header."""
    rng = np.random.default_rng(seed)
    (folder / "in").mkdir()
    mean = rng.gamma(0.5, 2.0, 256)
    for slot in range(slots):
        start = START + timedelta(hours=slot)
        where = np.repeat(np.arange(256), 0 if slot % 97 == 41 else rng.poisson(mean))
        lines = [f"{phone},{cell // 16},{cell % 16}" for phone, cell in enumerate(where)]
        (folder / "in" / f"{start:%Y-%m-%dT%H}.csv").write_text("\n".join(["phone,r,c", *lines]) + "\n")


def call(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "kasuri", *words], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--slots", type=int, default=24 * 28)
    words.add_argument("--seed", type=int, default=20)
    words.add_argument("--export", default="maps.duckdb", help="or a postgresql:// address")
    words.add_argument("--folder", type=Path)
    asked = words.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="series-kills-"))
    folder.mkdir(exist_ok=True)
    chance = random.Random(asked.seed)
    tables(folder, asked.slots, asked.seed)
    (folder / "flow.toml").write_text(JOB.format(export=asked.export))
    call(folder, "series", "open", "flow.toml", "--json")
    last = (START + timedelta(hours=asked.slots - 1)).isoformat(timespec="minutes")
    kills = repairs = 0
    while True:
        repairs += bool(call(folder, "ledger", "repair", "flow.ledger", "--json")["done"])
        run = subprocess.Popen(
            [sys.executable, "-m", "kasuri", "series", "run", "flow.toml", "--until", last, "--json"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        goal = len(os.listdir(folder / "flow" / "slots")) + chance.randint(3, 9)
        while run.poll() is None and len(os.listdir(folder / "flow" / "slots")) < goal:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.3)
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
            kills += 1
            run.communicate()
            continue
        _, error = run.communicate()
        if run.returncode:
            raise SystemExit(f"after {kills} kills: {error}")
        break
    status = call(folder, "series", "status", "flow.toml", "--json")
    verdict = call(folder, "series", "verify", "flow.toml", "--json")
    entries = ks.Ledger.load(folder / "flow.ledger").entries()
    paid = [entry["claim"]["slots"][0] for entry in entries if entry["kind"] == "reserved"]
    kept = folder / "flow" / "state.npz"
    kept.unlink(missing_ok=True)
    fresh = call(folder, "series", "verify", "flow.toml", "--json")  # with no state kept
    told = {
        "kills": kills, "repairs": repairs, "slots": asked.slots, "paid": len(paid),
        "paid twice": len(paid) - len(set(paid)),
        "published": status["published"], "lost (paid, never published)": len(status["lost"]),
        "replayed": verdict["ok"],
        "state the same bits without what was kept": verdict["state"] == fresh["state"],
        "exported": exported(folder, asked.export),
    }  # fmt: skip
    print(json.dumps(told, indent=1))
    good = told["paid"] == asked.slots == status["published"] + len(status["lost"])
    if told["paid twice"] or not (good and verdict["ok"] and fresh["ok"] and told["exported"] == status["published"]):
        raise SystemExit("not as promised")


def exported(folder: Path, target: str) -> int:
    """Different releases in the export; a slot that stands in it twice shows as more rows than releases."""
    ask = "SELECT count(*), count(DISTINCT release_id) FROM release_meta"
    if target.startswith("postgresql"):
        import psycopg

        with psycopg.connect(target) as base:
            rows, releases = base.execute(ask).fetchone()  # type: ignore[misc]
    else:
        import duckdb

        with duckdb.connect(str(folder / target), read_only=True) as base:
            rows, releases = base.execute(ask).fetchone()  # type: ignore[misc]
    return int(releases) if rows == releases else -1


if __name__ == "__main__":
    main()
