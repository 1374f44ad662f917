"""Can the budget be overspent, or an entry be lost unseen? Kills, rivals, full disks, cut and flipped files.

    python benchmarks/ledger_faults.py                      # the full numbers (some minutes)
    python benchmarks/ledger_faults.py --quick --json       # the numbers of the test suite

Victims report every release key they make through a pipe, before the first noise word; every attempt has an epsilon
of its own, so the judge can look for exactly that claim in the ledger. A count above 0 in `violations` is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

import kasuri as ks
from kasuri.budget.ledger import Ledger, repair
from kasuri.manifest import verify
from kasuri.noise.rng import Source
from kasuri.privacy import decimal

UNIT = ks.Unit(id="person", change="add-remove", max_cells=1)
DOMAIN = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)))
STEP = Fraction(1, 10**6)


def counts() -> ks.Counts:
    return ks.Counts.from_dense(np.arange(16).reshape(4, 4), DOMAIN, UNIT, data="study")


def open_ledger(path: Path, epsilon: object) -> Ledger:
    return Ledger.open(path, epsilon=epsilon, unit=UNIT, data="study")


def report_draws(pipe: int, label: list[str]) -> None:
    """From now on every release key is reported before it exists."""
    make = Source.release_key

    def reported(self: Source) -> bytes:
        os.write(pipe, f"{label[0]}\n".encode())
        return make(self)

    Source.release_key = reported  # type: ignore[method-assign]


@contextlib.contextmanager
def child(work: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """A forked victim that runs `work(pipe)`; yields (pid, reading end)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            work(writing)
            code = 0
        except ks.BudgetError:
            code = 3
        except ks.KasuriError:
            code = 4
        finally:
            os._exit(code)
    os.close(writing)
    try:
        yield pid, reading
    finally:
        os.close(reading)


def pending(reading: int) -> bytes:
    """All that is still in the pipe of a victim that has ended."""
    data = b""
    while chunk := os.read(reading, 1 << 16):
        data += chunk
    return data


def drained(reading: int) -> list[str]:
    return pending(reading).decode().split()


def judge(path: Path, draws: list[str], folders: Path, found: dict[str, int]) -> None:
    """Readable (after a repair where it asks for one), not overspent, every draw paid, every folder committed."""
    try:
        ledger = Ledger.load(path)
    except ks.DomainError:
        if draws:
            found["violations"] += 1
        return  # killed before there was a ledger
    except ks.FormatError:
        found["repairs"] += 1
        with contextlib.suppress(ks.DomainError):
            repair(path)
        if not path.exists() and not draws:
            return
        ledger = Ledger.load(path)
    ledger.verify()
    entries = ledger.entries()
    paid = {entry["claim"]["epsilon"] for entry in entries if entry["kind"] == "reserved"}
    done = {entry["release_id"] for entry in entries if entry["kind"] == "committed"}
    total = sum((Fraction(epsilon) for epsilon in paid), start=Fraction(0))
    found["violations"] += len([draw for draw in draws if draw not in paid])
    found["violations"] += total > ledger.allowance.epsilon
    found["violations"] += total != ledger.balance().spent
    for folder in folders.glob("[!.]*"):
        result = verify(folder)
        found["violations"] += not result["ok"] or result["release_id"] not in done
        found["folders"] += 1
        shutil.rmtree(folder)
    for part in folders.glob(".*"):
        shutil.rmtree(part)


def work_until_killed(path: Path, folders: Path, first: int) -> Callable[[int], None]:
    def work(pipe: int) -> None:
        label = [""]
        report_draws(pipe, label)
        ledger = open_ledger(path, "1")
        table = counts()
        for attempt in range(first, first + 1000):
            epsilon = decimal(attempt * STEP)
            label[0] = epsilon
            out = ks.release(table, ks.geometric(), epsilon=epsilon, ledger=ledger, threads=1)
            if attempt % 4 == 0:
                out.save(str(folders / str(attempt)))

    return work


def kills(times: int, seed: int, folder: Path) -> dict[str, int]:
    """SIGKILL at random moments of a loop that charges, draws and saves; a fresh ledger every 25 kills."""
    rng = random.Random(seed)
    found = {"kills": 0, "draws": 0, "repairs": 0, "folders": 0, "violations": 0}
    draws: list[str] = []
    for turn in range(times):
        if turn % 25 == 0:
            draws = []
        path, folders = folder / f"kill{turn // 25}.ledger", folder / f"out{turn // 25}"
        folders.mkdir(exist_ok=True)
        with child(work_until_killed(path, folders, 1 + turn % 25 * 1000)) as (pid, reading):
            seen, wanted = b"", rng.randrange(8)  # counted in the victim's progress: a slow machine kills as deep
            while seen.count(b"\n") < wanted and (chunk := os.read(reading, 1 << 16)):
                seen += chunk
            time.sleep(rng.random() ** 2 * 0.1)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            fresh = (seen + pending(reading)).decode().split()
        draws += fresh
        judge(path, draws, folders, found)
        found["kills"] += 1
        found["draws"] += len(fresh)
    return found


CALLS = ("open", "write", "fsync", "rename", "ftruncate", "fstat")


def crash_points(folder: Path) -> dict[str, int]:
    """SIGKILL itself before, and after, every single system call Python makes for one release, one run for each."""
    found = {"points": 0, "repairs": 0, "folders": 0, "violations": 0}
    for after in (False, True):
        point = 0
        while True:
            path, folders = folder / f"point{after}{point}.ledger", folder / f"saved{after}{point}"
            folders.mkdir()

            def work(pipe: int, path: Path = path, folders: Path = folders, point: int = point, after: bool = after):
                label = ["0.1"]
                report_draws(pipe, label)
                table, calls = counts(), [0]

                def deadly(real):
                    def call(*words, **more):
                        calls[0] += 1
                        if calls[0] == point + 1 and not after:
                            os.kill(os.getpid(), signal.SIGKILL)
                        result = real(*words, **more)
                        if calls[0] == point + 1 and after:
                            os.kill(os.getpid(), signal.SIGKILL)
                        return result

                    return call

                for name in CALLS:
                    setattr(os, name, deadly(getattr(os, name)))
                out = ks.release(table, ks.geometric(), epsilon="0.1", ledger=open_ledger(path, "1"), threads=1)
                out.save(str(folders / "release"))

            with child(work) as (pid, reading):
                _, status = os.waitpid(pid, 0)
                draws = drained(reading)
            judge(path, draws, folders, found)
            if os.WIFEXITED(status):
                found["violations"] += os.WEXITSTATUS(status) != 0
                break
            found["points"] += 1
            point += 1
    return found


def rivals(processes: int, charges: int, folder: Path) -> dict[str, int]:
    """Many processes and a budget for `charges` releases: exactly that many draws, and every one is paid."""
    path = folder / "rivals.ledger"
    each = Fraction(1, charges)
    open_ledger(path, "1")

    def work(pipe: int) -> None:
        report_draws(pipe, ["draw"])
        ledger, table = Ledger.load(path), counts()
        while True:
            ks.release(table, ks.geometric(), epsilon=each, ledger=ledger, threads=1)

    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(child(work)) for _ in range(processes)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in pids]
        draws = sum(len(drained(reading)) for _, reading in pids)
    summary = Ledger.load(path).verify()
    wrong = (draws != charges) + (summary["balance"]["spent"] != "1") + sum(code != 3 for code in codes)
    return {"processes": processes, "draws": draws, "violations": wrong}


def full_disk(steps: int, folder: Path) -> dict[str, int]:
    """A disk (here: the largest file a process may write) with room for a few bytes more, at every fill."""
    found = {"fills": 0, "refused": 0, "paid": 0, "repairs": 0, "folders": 0, "violations": 0}
    for step in range(steps):
        path = folder / f"full{step}.ledger"
        ledger = open_ledger(path, "1")
        for attempt in range(1, 12):
            claim(ledger, attempt * STEP)
        room = path.with_name(path.name + ".journal").stat().st_size + step * 40_000 // steps
        draws = squeezed(path, lambda room=room: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)), found)
        judge(path, draws, folder / "none", found)
        found["fills"] += 1
    return found


def squeezed(path: Path, squeeze: Callable[[], None], found: dict[str, int]) -> list[str]:
    def work(pipe: int) -> None:
        report_draws(pipe, ["0.5"])
        squeeze()
        ks.release(counts(), ks.geometric(), epsilon="0.5", ledger=Ledger.load(path), threads=1)

    with child(work) as (pid, reading):
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        draws = drained(reading)
    found["paid" if code == 0 else "refused"] += 1
    found["violations"] += code not in (0, 4) or (code != 0 and bool(draws))
    return draws


def tmpfs(steps: int, folder: Path) -> dict[str, int] | None:
    """The same on a small tmpfs that a file fills up, where mounting is allowed; else None."""
    place = folder / "tmpfs"
    place.mkdir()
    if not shutil.which("mount") or subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], stderr=subprocess.DEVNULL
    ):
        return None
    found = {"fills": 0, "refused": 0, "paid": 0, "repairs": 0, "folders": 0, "violations": 0}
    try:
        for step in range(steps):
            path = place / "full.ledger"
            ledger = open_ledger(path, "1")
            for attempt in range(1, 12):
                claim(ledger, attempt * STEP)
            with open(place / "ballast", "wb", buffering=0) as ballast:
                with contextlib.suppress(OSError):
                    while ballast.write(bytes(4096)):
                        pass
                ballast.truncate(max(0, ballast.tell() - step % 24 * 4096))
            draws = squeezed(path, lambda: None, found)
            (place / "ballast").unlink()
            judge(path, draws, place / "none", found)
            found["fills"] += 1
            for file in place.iterdir():
                file.unlink()
    finally:
        subprocess.call(["umount", place])
    return found


def claim(ledger: Ledger, epsilon: Fraction) -> None:
    guarantee = ks.geometric().guarantee(DOMAIN, UNIT, epsilon)
    ledger.reserve(guarantee, data="study", recipe="geometric", plan="study")


def cuts(stride: int, folder: Path) -> dict[str, int]:
    """The SQLite file and its WAL, cut at every byte of their last page, beside a whole journal."""
    path = folder / "cut.ledger"
    ledger = open_ledger(path, "1")
    for attempt in range(1, 30):
        claim(ledger, attempt * STEP)
    found = {"cuts": 0, "noticed": 0, "harmless": 0, "violations": 0}
    whole = {file.name: file.read_bytes() for file in folder.glob("cut.ledger*")}
    reader = sqlite3.connect(path, isolation_level=None)  # while someone reads, closing does not fold the WAL in
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    for attempt in range(30, 34):
        claim(ledger, attempt * STEP)
    live = {file.name: file.read_bytes() for file in folder.glob("cut.ledger*") if not file.name.endswith("-shm")}
    reader.close()
    for files, name, page in ((whole, "cut.ledger", 4096), (live, "cut.ledger-wal", 4096 + 24)):
        size = len(files[name])
        entries = files["cut.ledger.journal"].count(b"\n")
        for cut in range(size - page, size, stride):
            place = folder / "place"
            place.mkdir()
            for file, data in files.items():
                (place / file).write_bytes(data[:cut] if file == name else data)
            try:
                harmless = len(Ledger.load(place / "cut.ledger").entries()) == entries
                found["harmless" if harmless else "violations"] += 1
            except ks.FormatError:
                found["noticed"] += 1
                kept = repair(place / "cut.ledger")
                found["violations"] += kept["entries"] != entries + 1  # and the note of the repair
            found["cuts"] += 1
            shutil.rmtree(place)
    return found


def flips(times: int, seed: int, folder: Path) -> dict[str, int]:
    """One flipped byte in the ledger or the journal: noticed, or no entry is changed by it."""
    path = folder / "flip.ledger"
    ledger = open_ledger(path, "1")
    for attempt in range(1, 30):
        claim(ledger, attempt * STEP)
    entries = ledger.entries()
    whole = {file.name: file.read_bytes() for file in folder.glob("flip.ledger*")}
    rng = random.Random(seed)
    found = {"flips": 0, "noticed": 0, "harmless": 0, "violations": 0}
    for _ in range(times):
        name = rng.choice(sorted(whole))
        at = rng.randrange(len(whole[name]))
        place = folder / "place"
        place.mkdir()
        for file, data in whole.items():
            changed = bytearray(data)
            if file == name:
                changed[at] ^= rng.randrange(1, 256)
            (place / file).write_bytes(changed)
        try:
            same = Ledger.load(place / "flip.ledger").entries() == entries
            found["harmless" if same else "violations"] += 1
        except ks.KasuriError:
            found["noticed"] += 1
        found["flips"] += 1
        shutil.rmtree(place)
    return found


def run(quick: bool) -> dict[str, dict[str, int] | None]:
    import duckdb  # noqa: F401  loaded and compiled before the first fork, so that kills fall where the work is
    import pandas  # noqa: F401  DuckDB asks for it
    import pyarrow.parquet  # noqa: F401

    ks.release(counts(), ks.geometric(), epsilon="1", ledger=None, threads=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "kills": kills(25 if quick else 500, 1, folder),
            "crash_points": crash_points(folder),
            "rivals": rivals(16, 40 if quick else 400, folder),
            "full_disk": full_disk(12 if quick else 400, folder),
            "tmpfs": tmpfs(12 if quick else 240, folder),
            "cuts": cuts(173 if quick else 1, folder),
            "flips": flips(80 if quick else 5000, 1, folder),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the numbers of the test suite")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    result = run(words.quick)
    if words.json:
        print(json.dumps(result))
    else:
        for study, numbers in result.items():
            print(f"{study:<13}", "not allowed here" if numbers is None else numbers)
    sys.exit(any(numbers and numbers["violations"] for numbers in result.values()))
