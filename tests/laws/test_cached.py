"""Compiled kernels read back from the disk: every one runs without what compiling needs."""

import subprocess
import sys

CHILD = """
import sys
import kasuri._kernels as kernels
kernels.warm_up()
print(  # imported by a compilation only
    "numba.misc.cffiimpl" in sys.modules
)
"""


def test_kernels_from_the_cache_need_no_compiler():
    """Twice in fresh processes: whatever the first one compiles, the second loads, and no kernel needs numba's
    registries (a crash would end it)."""
    runs = [subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[-1].stderr
    assert runs[1].stdout == "False\n"
