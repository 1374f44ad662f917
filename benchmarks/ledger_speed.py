"""How long a charge and a full check take on a ledger of 10,000 entries.

python benchmarks/ledger_speed.py [--entries 10000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import kasuri as ks

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
CELL = ks.Domain.of(ks.Ordered("place", 2))


def main(entries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speed.ledger"
        ledger = ks.Ledger.open(path, epsilon="1", unit=UNIT, data="speed")
        claim = ks.geometric().guarantee(CELL, UNIT, Fraction(1, 2 * entries))

        def charge() -> float:
            start = time.perf_counter()
            ledger.reserve(claim, data="speed", recipe="geometric", plan="speed")
            return time.perf_counter() - start

        for _ in range(entries - 1):
            charge()
        times = [charge() for _ in range(200)]
        print(f"charge at {entries} entries: median {statistics.median(times) * 1e3:.1f} ms, worst of 200 "
              f"{max(times) * 1e3:.1f} ms")  # fmt: skip
        for name, act in (("load", lambda: ks.Ledger.load(path)), ("verify", ledger.verify)):
            start = time.perf_counter()
            act()
            print(f"{name} of {entries + 200} entries: {time.perf_counter() - start:.2f} s")
        print(f"{path.stat().st_size / 1e6:.1f} MB, journal {ledger.journal.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=10_000)
    main(parser.parse_args().entries)
