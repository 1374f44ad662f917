"""Start-up: import, --help, and the first call of all kernels with a cold and a warm cache.

python3 run.py bench start
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from clock import line


def wall(words: list[str], repeat: int, **environment: str) -> float:
    least = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True, env=dict(os.environ, **environment))
        least = min(least, time.perf_counter() - start)
    return least


def main() -> None:
    bare = wall([sys.executable, "-c", "pass"], 5)
    line("import kasuri", f"{wall([sys.executable, '-c', 'import kasuri'], 5):.2f} s", "(< 0.3)")
    line("kasuri --help", f"{wall([sys.executable, '-m', 'kasuri', '--help'], 5):.2f} s", "(< 0.5)")
    line("  of which Python itself", f"{bare:.2f} s")
    call = (
        "import time, numba; t = time.perf_counter(); import kasuri._kernels as k; k.warm_up(); "
        "print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as cold:
        cold_time = float(_out(call, NUMBA_CACHE_DIR=cold))
        warm = min(float(_out(call, NUMBA_CACHE_DIR=cold)) for _ in range(3))
    line("first call of all kernels, cold cache", f"{cold_time:.2f} s")
    line("first call of all kernels, warm cache (after import numba)", f"{warm:.2f} s", "(<= 1)")


def _out(text: str, **environment: str) -> str:
    run = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True,
                         env=dict(os.environ, **environment))  # fmt: skip
    return run.stdout


if __name__ == "__main__":
    main()
