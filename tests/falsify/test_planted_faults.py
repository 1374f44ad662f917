"""Each fault that would break privacy or the result, planted as one changed line in the shipped code, is caught by a
named test that sees outputs alone. The same tests pass on the code as it is."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = "_kernels/topdown.py"
TREE_LAW = "tests/distributions/test_tree_law.py"
SPARK = "tests/laws/test_spark_blocks.py"


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    line: str
    changed: str
    caught_by: str
    tests: str = "tests/distributions/test_release_law.py"


FAULTS = [
    Fault("scale halved", "mechanism.py", "unit.most * cost / loss", "unit.most * cost / loss / 2", "test_total_law"),
    Fault("eq. 38 as printed", KERNEL, "- sums[_u(low)] - sums[_u(high)] + noise[_u(used)]",
          "- sums[_u(low)] - sums[_u(high)] + (noise[_u(used)] >> min(depth, 1))",
          "test_split_law_level_by_level"),
    Fault("eq. 38 as printed, float form", "draw.py", "+= parts.weights * _noise(",
          "+= np.where(parts.weights > parts.weights[0], 0.5, 1) * parts.weights * _noise(",
          "test_float_haar_law_level_by_level"),
    Fault("parity coin dropped", KERNEL, "D += odd * (2 * _bits(coins, coin, 1) - 1)", "D += odd", "test_split_law"),
    Fault("clamp skipped", KERNEL, "D = min(max(D, -S), S)", "D = D + 0", "test_split_law"),
    Fault("noise word used twice", KERNEL, "used += 1\n            if record",
          "used += depth & 1\n            if record", "test_no_noise_word_is_used_twice"),
    Fault("blocks share a stream", "rng.py", "|{level}|{block}\"", "|{level}\"", "test_blocks_do_not_share_a_stream"),
    Fault("purposes share a stream", "engine.py", 'streams.open("coin", level, block)',
          'streams.open("noise", level, block)', "test_purposes_do_not_share_a_stream"),
    Fault("replace computed as add-remove", "order.py", 'if change == "add-remove":', "if True:", "test_split_law"),
    Fault("a mask cell receives mass", KERNEL, "measured = s_left > 0 and s_right > 0", "measured = True",
          "test_impossible_cells_are_exactly_zero"),
    Fault("a level's share counted twice", "mechanism.py", "(depth, self.scale / share)",
          "(depth, self.scale / share / 2)", "test_measured_counts_have_the_law_of_their_level", TREE_LAW),
    Fault("replace counted once in a tree", "mechanism.py", 'Fraction(1 if unit.change == "add-remove" else 2)',
          "Fraction(1)", "test_measured_counts_have_the_law_of_their_level", TREE_LAW),
    Fault("blocks of a tree share a stream", "visit.py", 'streams.open("noise", self.cuts[at], block)',
          'streams.open("noise", self.cuts[at], 0)', "test_levels_and_blocks_do_not_share_noise", TREE_LAW),
    Fault("a block without records is not drawn on Spark", "spark/subtrees.py",
          "yield own.slice(low, high - low), root.slice(i, 1)",
          "yield from [(own.slice(low, high - low), root.slice(i, 1))] if low < high else []",
          "test_blocks_without_a_record_have_their_mass", SPARK),
    Fault("blocks share the stream of their level", "engine.py", "streams, cut, prefix, keys.size)",
          "streams, cut, 0, keys.size)", "test_blocks_do_not_share_a_stream"),
    Fault("a block on Spark forgets its records", "spark/subtrees.py",
          "made = descent.below(prefix, S, keys, engine.prefix_sums(values), streams, record)",
          "made = descent.below(prefix, S, keys[:0], engine.prefix_sums(values[:0]), streams, record)",
          "test_a_cut_tree_is_the_release_of_one_machine", SPARK),
]  # fmt: skip


def plant(fault: Fault, target: Path) -> None:
    """A copy of the package with one line changed; unchanged files are links, so compiled kernels are found again."""
    source = ROOT / "src" / "kasuri"
    package = target / "kasuri"
    folder = package / Path(fault.file).parent
    for place, origin in {package: source, folder: source / Path(fault.file).parent}.items():
        place.mkdir(exist_ok=True)
        for path in origin.iterdir():
            if (
                path.name != "__pycache__"
                and not (place / path.name).exists()
                and path.name != Path(fault.file).parts[0]
            ):
                (place / path.name).symlink_to(path)
        if (origin / "__pycache__").exists() and place == folder and fault.file.startswith("_kernels"):
            shutil.copytree(origin / "__pycache__", place / "__pycache__", ignore=shutil.ignore_patterns("topdown*"))
    text = (source / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.line) == 1, "the line to change must be there exactly once"
    changed = folder / Path(fault.file).name
    changed.unlink(missing_ok=True)
    changed.write_text(text.replace(fault.line, fault.changed), encoding="utf-8")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path):
    plant(fault, tmp_path)
    environment = dict(os.environ, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    where = [sys.executable, "-c", "import kasuri; print(kasuri.__file__)"]
    assert str(tmp_path) in subprocess.run(where, env=environment, capture_output=True, text=True, cwd=ROOT).stdout
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-n",
            "0",
            fault.tests,
            "-k",
            fault.caught_by,
        ],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert "AssertionError" in run.stdout, run.stdout[-3000:]


def test_every_named_test_exists():
    for fault in FAULTS:
        assert f"def {fault.caught_by}(" in (ROOT / fault.tests).read_text(encoding="utf-8")
