"""CPU seconds of this process (all threads), best of several: what ratios are made of."""

from __future__ import annotations

import time
from collections.abc import Callable


def best(function: Callable[[], object], repeat: int = 5) -> float:
    least = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        function()
        least = min(least, time.process_time() - start)
    return least


def line(what: str, value: str, target: str = "") -> None:
    print(f"  {what:58}{value:>24}   {target}")
