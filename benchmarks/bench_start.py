"""Start-up in CPU seconds of the process: import, --help, a warm release and what numba is of it, the first runs of a
wheel with compiled kernels against their second.

python3 run.py bench start                            the rows below; the wheel takes about a minute
.venv/bin/python benchmarks/bench_start.py CHECKOUT   a warm release here against one of another checkout, by turns
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from clock import line

ROOT = Path(__file__).parents[1]
ROWS = 27_000
RECIPES = ("haar_topdown", "refined_tree", "bayes_tree")
RELEASE = ["--window", "kanto", "--code", "mesh_code", "--count", "population", "--unit", "person", "--change",
           "add-remove", "--max-cells", "1", "--epsilon", "0.1", "--unmetered"]  # fmt: skip
START = "import sys, kasuri.cli as cli; sys.argv[0] = 'kasuri'; getattr(cli, 'process', cli.main)()"
LOADS = f"""
import atexit, sys, time
from kasuri._kernels import cached
load, spent = cached._Cache.load_overload, []
def timed(*given):
    start = time.thread_time()
    found = load(*given)
    spent.append(time.thread_time() - start)
    return found
cached._Cache.load_overload = timed
atexit.register(lambda: print("loads", len(spent), sum(spent)))
{START}
"""


def cpu(words: Sequence[str], **environment: str) -> tuple[float, str]:
    """CPU seconds of a process and those it waited for, and its last line."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    process = subprocess.Popen(list(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert process.stdout is not None
    said = process.stdout.read().decode().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{words} failed")
    return used.ru_utime + used.ru_stime, said[-1] if said else ""


def median(words: Sequence[str], repeat: int = 9) -> float:
    return statistics.median(cpu(words)[0] for _ in range(repeat))


def releases(folder: Path) -> Callable[[str], list[str]]:
    """The words of a release of the first rows of the shipped census as CSV, by recipe."""
    from pyarrow import csv

    from kasuri import examples
    from kasuri.files import read_parquet

    csv.write_csv(read_parquet(examples.KANTO).slice(0, ROWS), folder / "census.csv")

    def words(recipe: str) -> list[str]:
        shutil.rmtree(folder / "out", ignore_errors=True)
        return ["release", str(folder / "census.csv"), *RELEASE, "--out", str(folder / "out"), "--recipe", recipe]

    return words


def against(other: Path, repeat: int = 15) -> None:
    """Warm releases here and in another checkout, by turns."""
    with tempfile.TemporaryDirectory() as folder:
        words = releases(Path(folder))
        for recipe in RECIPES:
            times: dict[Path, list[float]] = {other: [], ROOT: []}
            for turn in range(repeat + 1):
                for place, spent in times.items():
                    env = {"PYTHONPATH": str(place / "src")}
                    used = cpu([sys.executable, "-c", START, *words(recipe)], **env)[0]
                    spent += [used] if turn else []  # the first compiles
            there, here = (statistics.median(spent) for spent in times.values())
            line(f"{recipe}, {ROWS:,} rows of CSV: here", f"{here:.2f} s", f"{here / there:.2f} of {there:.2f} s there")


def wheel(folder: Path) -> None:
    """First runs of a wheel with compiled kernels, installed as pip does, against their second."""
    uv = str(ROOT / ".tools" / "bin" / "uv")
    subprocess.run([sys.executable, str(ROOT / "wheel.py"), str(folder)], check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    words, place = releases(folder), folder / "venv"
    for what in ("bayes_tree", "haar_topdown", "demo"):
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)], check=True)
        install = ["pip", "install", "--quiet", "--offline", "--no-deps", "--compile-bytecode", "--python"]
        subprocess.run([uv, *install, str(place / "bin" / "python"), str(made)], check=True)
        (site,) = (place / "lib").glob("python*/site-packages")
        lent = str(metadata.distribution("numpy").locate_file(""))
        (site / "lent.pth").write_text(f"{lent}\n")  # what kasuri depends on
        times = []
        for _ in range(4):
            said = words(what) if what != "demo" else ["demo", "--out", str(folder / "out")]
            shutil.rmtree(folder / "out", ignore_errors=True)
            times.append(cpu([str(place / "bin" / "kasuri"), *said])[0])
        compiled = len(list((site / "kasuri" / "_kernels").glob("__pycache__/*.nbc")))
        later = statistics.median(times[1:])
        line(f"{what} from a wheel: first run, {compiled} kernels compiled", f"{times[0]:.2f} s",
             f"{times[0] / later:.2f} of {later:.2f} s later (<= 1.5)")  # fmt: skip


def main() -> None:
    if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir():
        against(Path(sys.argv[1]).resolve())
        return
    python, numpy, numba = (median([sys.executable, "-c", f"import {name}"]) for name in ("sys", "numpy", "numba"))
    line("import kasuri", f"{median([sys.executable, '-c', 'import kasuri']):.2f} s", f"Python itself {python:.2f} s")
    line("kasuri --help", f"{median([sys.executable, '-m', 'kasuri', '--help']):.2f} s")
    line("import numba", f"{numba:.2f} s", f"of which NumPy {numpy:.2f} s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = releases(folder)
        for recipe in RECIPES:
            cpu([sys.executable, "-c", START, *words(recipe)])  # compiles
            whole = statistics.median(cpu([sys.executable, "-c", START, *words(recipe)])[0] for _ in range(9))
            _, many, loads = cpu([sys.executable, "-c", LOADS, *words(recipe)])[1].split()
            share = (numba - numpy + float(loads)) / whole
            said = f"import numba and load {many} kernels: {share:.0%} of it"
            line(f"warm release of {ROWS:,} rows, {recipe}", f"{whole:.2f} s", said)
        if (ROOT / ".tools" / "bin" / "uv").exists():
            wheel(folder)


if __name__ == "__main__":
    main()
