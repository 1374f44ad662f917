"""Compiled kernels read back from the disk: every one runs without what compiling needs, and what a short command calls
is among them."""

import json
import subprocess
import sys

import pyarrow
import pyarrow.csv
import pytest
from pyarrow import parquet

from kasuri import _kernels as kernels
from kasuri import examples
from kasuri.files import read_parquet

CHILD = """
import sys
import kasuri._kernels as kernels
kernels.warm_up()
print(  # imported by a compilation only; by numba's own reader of a cache
    "numba.misc.cffiimpl" in sys.modules, "numba.np.arraymath" in sys.modules
)
"""


def test_kernels_from_the_cache_need_no_compiler():
    """Twice in fresh processes: whatever the first one compiles, the second loads, and no kernel needs numba's
    registries (a crash would end it)."""
    runs = [subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[-1].stderr
    assert runs[1].stdout == "False False\n"


RACE = """
import sys
from numba import float64
from numba.core.registry import cpu_target
from kernel import half
cache = half._cache
if len(sys.argv) > 1:  # for whole numbers; the index is that of a process which compiled it for others meanwhile
    half(3)
    key = cache._index_key((float64,), cpu_target.target_context.codegen())
    cache._cache_file._save_index({key: cache._cache_file._data_name(1)})
else:
    print(half(5.5))
"""


def test_a_kernel_of_other_types_is_not_taken(tmp_path):
    """Two processes compile one kernel at a time: the index of the one may name what the other wrote."""
    (tmp_path / "kernel.py").write_text(
        "from kasuri._kernels.cached import njit\n\n@njit()\ndef half(x):\n    return x / 2\n"
    )
    (tmp_path / "race.py").write_text(RACE)
    runs = [
        subprocess.run([sys.executable, str(tmp_path / "race.py"), *more], capture_output=True, text=True)
        for more in (["first"], [], [])
    ]
    assert [run.stdout for run in runs] == ["", "2.75\n", "2.75\n"], runs[-1].stderr


BESIDE = """
import numpy as np
from numba import njit
import kasuri._kernels as kernels
kernels.warm_up()

@njit
def own(a, b):
    found = np.searchsorted(a, b)
    return np.median(a), found.sum(), np.sort(b)[0], np.argsort(b)[0], a.mean()

print(own(np.arange(5.0), np.array([2.5, 1.0])))
"""


def test_a_function_compiled_after_kernels_were_loaded_is_whole():
    """It shares numba's own functions with kernels that were read without their modules."""
    run = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True)
    assert run.stdout == "(2.0, 4, 1.0, 1, 2.0)\n", run.stderr


CALLED = """
def called():
    import json, sys
    kernels = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("kasuri._kernels.") and not name.endswith("cached"):
            found = {key: one.overloads for key, one in vars(module).items() if hasattr(one, "overloads")}
            kernels[name.rpartition(".")[2]] = sorted(f"{key}{types}" for key in found for types in found[key])
    print("\\n" + json.dumps([kernels, [name for name in sys.argv if name in sys.modules]]))
"""
COMMAND = f"""{CALLED}
import sys
from kasuri.cli import main
try:
    main()
finally:
    sys.argv = ["pandas", "scipy.linalg", "kasuri.job.models", "kasuri.study", "kasuri.ingest.databases"]
    called()
"""
WARM = f"{CALLED}\nimport kasuri._kernels as kernels\nkernels.warm_up()\ncalled()"
RELEASE = ["release", "census.csv", "--window", "kanto", "--code", "mesh_code", "--count", "population", "--unit",
           "person", "--change", "add-remove", "--max-cells", "1", "--epsilon", "1", "--unmetered", "--out", "out",
           "--recipe"]  # fmt: skip


def kernels_of(*words, cwd):
    run = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    return kernels_of("-c", WARM, cwd=tmp_path_factory.mktemp("warm"))[0]


@pytest.mark.parametrize("recipe", ["haar_topdown", "refined_tree", "bayes_tree", "demo"])
def test_a_short_command_calls_what_a_wheel_carries_and_loads_what_it_needs(recipe, warm, tmp_path):
    """Types too: columns of files are read-only, for which numba compiles once more."""
    pyarrow.csv.write_csv(read_parquet(examples.KANTO).slice(0, 27_000), tmp_path / "census.csv")
    words = ["demo", "--out", "out"] if recipe == "demo" else [*RELEASE, recipe]
    found, loaded = kernels_of("-c", COMMAND, *words, cwd=tmp_path)
    assert loaded == [] and (tmp_path / "out" / "report.html").exists()
    assert {f"{name}.{one}" for name in found for one in found[name]} <= {
        f"{name}.{one}" for name in warm for one in warm[name]
    }
    if recipe == "demo":
        assert {name for name in found if found[name]} == {*kernels.DEMO}


COUNTED = f"""{CALLED}
import kasuri as ks
domain = ks.Domain.of(ks.Mesh("grid", shape=(8, 8)))
for name in ("people.parquet", "people.csv"):
    for unit in (ks.Unit("person", "add-remove", 1), ks.Unit("phone", "add-remove", 2, max_weight=3)):
        weight = None if unit.max_weight is None else "row"
        ks.count(name, domain, columns={{"grid": ("row", "col")}}, unit=unit, weight=weight)
called()
"""


def test_counting_by_ids_calls_what_a_wheel_carries(warm, tmp_path):
    table = pyarrow.table({"person": [7, 7, 9], "phone": ["a", "b", "b"], "row": [1, 2, 3], "col": [0, 5, 7]})
    parquet.write_table(table, tmp_path / "people.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "people.csv")
    found = kernels_of("-c", COUNTED, cwd=tmp_path)[0]
    assert "records" in found and set(found["records"]) <= set(warm["records"])
    assert set(found.get("sort", ())) <= set(warm["sort"])
