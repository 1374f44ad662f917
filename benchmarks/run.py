"""All speed benchmarks, each a ratio against a named peer in this run: `python3 run.py bench [name ...]`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

NAMES = (
    "noise",
    "topdown",
    "simplex",
    "trees",
    "morton",
    "mesh",
    "records",
    "report",
    "store",
    "start",
    "local_peers",
    "local_collector",
    "local_map",
    "shuffle_join",
    "spark",
)


def main() -> None:
    names = sys.argv[1:] or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"unknown benchmark {unknown}; choose from {', '.join(NAMES)}")
    for name in names:
        print(f"\n== {name}: {importlib.import_module(f'bench_{name}').__doc__.strip().splitlines()[0]}")
        importlib.import_module(f"bench_{name}").main()


if __name__ == "__main__":
    main()
