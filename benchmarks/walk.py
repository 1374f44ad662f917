"""The walk of one count, from a CSV file to a saved release: files of kasuri that run, and hand-overs between them.

    python benchmarks/walk.py [--list]

A hand-over is a call from a function in one file of kasuri into a function in another, told once per pair of functions
(a loop that calls a thousand times is one hand-over). Imports do not count: everything runs once before.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import kasuri as ks

HOME = str(Path(ks.__file__).parent) + "/"
STEPS = ("CSV to Counts", "Counts to Release", "Release to folder")


def walked(step: Callable[[], Any]) -> tuple[Any, set[str], set[tuple[str, str]]]:
    files: set[str] = set()
    handed: set[tuple[str, str]] = set()

    def place(frame: FrameType) -> tuple[str, str]:
        code = frame.f_code
        return code.co_filename.removeprefix(HOME), f"{code.co_filename}:{code.co_qualname}"

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(HOME):
            return
        file, name = place(frame)
        files.add(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HOME):
            caller = caller.f_back
        if caller is not None:
            from_file, from_name = place(caller)
            if from_file != file:
                handed.add((from_name, name))

    sys.setprofile(see)
    try:
        return step(), files, handed
    finally:
        sys.setprofile(None)


def walk(folder: Path) -> list[tuple[set[str], set[tuple[str, str]]]]:
    table = folder / "census.csv"
    table.write_text("person,mesh_code\n1,533946113\n2,533946113\n3,533946121\n")
    domain = ks.Domain.of(ks.Mesh.window("grid", "kanto"))
    unit = ks.Unit(id="person", change="add-remove", max_cells=1)
    found = []
    counts, *first = walked(lambda: ks.count(table, domain, columns={"grid": "mesh_code"}, unit=unit, data="census"))
    out, *second = walked(lambda: ks.release(counts, ks.haar_topdown(), epsilon="0.1", ledger=None))
    _, *third = walked(lambda: out.save(folder / "release", unmetered=True))
    for files, handed in (first, second, third):
        found.append((files, handed))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        walk(Path(one))  # imports and compiled kernels
        steps = walk(Path(two))
    files: set[str] = set()
    handed: set[tuple[str, str]] = set()
    for name, (own, calls) in zip(STEPS, steps, strict=True):
        files |= own
        handed |= calls
        print(f"{name:20} {len(own):3} files {len(calls):4} hand-overs; so far {len(files):3} and {len(handed):4}")
        if "--list" in sys.argv:
            print("    " + " ".join(sorted(own)))


if __name__ == "__main__":
    main()
