"""Hostile input by mutation, guided by coverage: only kasuri's own errors may come out, in bounded time and memory.

    python tests/falsify/fuzz.py --minutes 15                 # all targets, the table of docs/assurance.md
    python tests/falsify/fuzz.py --minutes 1 --only estat     # targets whose name holds a word; nothing is recorded

Each target (fuzz_targets.py) has valid examples made by independent code and a function that reads one. A worker
process mutates examples (bytes, cells of CSV, nodes of JSON, values of TOML), keeps what reaches lines not reached
before, and feeds it on, under a limit of memory and of time. A finding is: an error of any other kind, a message that
quotes a confidential value, a case that takes too long or too much memory, a worker that dies. The bounds of files made
to be costly are measured apart (hostile.py).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = str(ROOT / "src" / "kasuri")
CANARY = "Zx81qSECRETv"
"""Stands in the confidential cells of the examples: no message may hold it."""
MEMORY = 6 << 30
"""Address space of a worker; libraries reserve far more than they use."""
GROWTH = 400 << 10
"""KB by which one case may raise the worker's peak memory."""
SECONDS = 20
"""The longest one case may take."""


@dataclass(frozen=True)
class Target:
    """One reader. `prepare(folder)` gives the examples and the function that reads one; `form` says how to mutate."""

    name: str
    form: str
    prepare: Callable[[Path], tuple[list[bytes], Callable[[bytes], object]]]


class TooSlow(BaseException):
    """A case took too long."""


# -- mutation ----------------------------------------------------------------------------------------------------------

TOKENS = [
    b"", b"0", b"-1", b"1", b"-0", b"1.5", b"1e309", b"1e999999999", b"-1e-999999999", b"NaN", b"inf", b"-Infinity",
    b"null", b"true", b"9" * 19, b"9" * 400, b"9" * 5000, b"18446744073709551616", b"9223372036854775807",
    b"-9223372036854775808", b"1/0", b"1/3", b"0x10", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    "é絣😀".encode(), b"\r", b"\n", b"\r\n\r\n", b'"', b"''", b",", b";", b"\t", b"\\", b"\\ud800", b"../../etc/passwd",
    b"/dev/zero", b"a\x00b", b"[" * 3000, b"{" * 200, b"(" * 200, b"*", b"%s", b"2020-02-30", b"9999-12-31T23:59:59",
    b"0000-00-00", b"x" * 3000, b"__proto__", b" ", "　".encode(), "１２".encode(), b"5339", b"533900011",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 10**400, 1.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "0", "-1", "1.5", "1e999999999", "1/0", "1/3", "nan", "x", "x" * 5000, "\x00", "\ud800", "é絣",
    [], {}, [[]], [0], [None], {"": 0}, "central", "pure", "mesh", "nominal", "time", "ordered", "memoised", "grr",
    "0" * 64, "ff" * 32, "2020-01-01", "a" * 32, [1, 2, 3], [2**62], [-1, 5], [10**12], "../x", "/dev/zero",
]  # fmt: skip


def mutate(data: bytes, others: list[bytes], form: str, rng: random.Random) -> bytes:
    """A changed copy; now and then of its structure, else of its bytes."""
    special = {"json": _json, "toml": _lines, "csv": _cells, "argv": _argv}.get(form)
    for _ in range(1 + int(rng.expovariate(1.0))):
        if special is not None and rng.random() < (1.0 if form == "argv" else 0.8):
            data = special(data, others, rng)
        else:
            data = _bytes(data, others, rng)
    return data[: 1 << 20]


def _bytes(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    many = min(len(data) - at, int(rng.expovariate(0.1)) + 1)
    kind = rng.randrange(9)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + many :]
    if kind == 2:
        return data[:at] + data[at : at + many] * rng.choice((2, 3, 20)) + data[at + many :]
    if kind == 3:
        return data[:at] + rng.choice(TOKENS) + data[at + rng.choice((0, many)) :]
    if kind == 4:
        other = rng.choice(others)
        cut = rng.randrange(len(other) + 1)
        return data[:at] + other[cut:]
    if kind == 5 and len(data) >= 8:
        at = rng.randrange(len(data) - 7)
        number = rng.choice((0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1, rng.getrandbits(32)))
        wide = rng.choice((2, 4, 8))
        value = (number & (256**wide - 1)).to_bytes(wide, rng.choice(("little", "big")))
        return data[:at] + value + data[at + wide :]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            place = rng.randrange(len(changed))
            changed[place] = changed[place] ^ (1 << rng.randrange(8)) if kind < 8 else rng.randrange(256)
    return bytes(changed)


def _json(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(data, others, rng)
    tree = change_node(tree, rng)
    try:
        return json.dumps(tree, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 2))).encode(
            errors="surrogatepass"
        )
    except (ValueError, RecursionError):
        return data


def change_node(tree: Any, rng: random.Random) -> Any:
    """A JSON value with one node replaced, removed, renamed, repeated or swapped for another node."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(items):
            places.append((node, key))
            stack.append(value)
    if not places:
        return rng.choice(VALUES)
    parent, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(("x", "", "kasuri", "kind", "\x00"))] = parent.pop(key)
    elif kind == 1:
        parent.insert(key, parent[key])
    elif kind == 2:
        other, name = rng.choice(places)
        parent[key] = other[name] if other is not parent else rng.choice(VALUES)
    elif kind == 3:
        parent[key] = nested(rng.choice((3, 60, 700)))
    elif kind == 4 and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        parent[key] = rng.choice(
            (parent[key] + 1, -parent[key], parent[key] * 2 ** rng.randrange(70), str(parent[key]))
        )
    elif kind == 5 and isinstance(parent[key], str) and parent[key]:
        parent[key] = _bytes(parent[key].encode(errors="replace"), [b"x"], rng).decode(errors="replace")
    else:
        parent[key] = rng.choice(VALUES)
    return tree


def nested(depth: int) -> Any:
    value: Any = 0
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


def _cells(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    row = rng.randrange(len(lines))
    cells = lines[row].split(b",")
    kind = rng.randrange(6)
    if kind == 0:
        del lines[row]
    elif kind == 1:
        lines.insert(row, rng.choice(lines))
    elif kind == 2:
        cells.insert(rng.randrange(len(cells) + 1), rng.choice(TOKENS))
        lines[row] = b",".join(cells)
    elif kind == 3:
        del cells[rng.randrange(len(cells))]
        lines[row] = b",".join(cells)
    else:
        cells[rng.randrange(len(cells))] = rng.choice(TOKENS)
        lines[row] = b",".join(cells)
    return b"\n".join(lines)


TOML = [
    b"0", b"-1", b"true", b"nan", b"inf", b"1e400", b"9" * 25, b"9" * 5000, b'""', b'"x"', b"[]", b"{}", b"[[]]",
    b"[1, 2]", b'["a", "b"]', b'["a", "a"]', b"2020-01-01", b"07:00:00", b"{ a = 1 }", b'"../../x"', b'"/dev/zero"',
    b'"\\u0000"', b"[" * 2000, b'"postgresql://nowhere.invalid/x"', b'"1e999999999"', b"[-1, 0]", b"[1, 99999999999]",
    b"1.5", b'"' + b"y" * 4000 + b'"', b"{" * 300, b"'''", b'"0.1"', b'"mesh"', b'"5339"', b'"japan"',
    b"[4294967296, 4294967296]",
]  # fmt: skip


def _lines(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    key, equals, _ = lines[at].partition(b"=")
    kind = rng.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        lines[at] = rng.choice(rng.choice(others).split(b"\n"))
    elif equals:
        lines[at] = key + equals + b" " + rng.choice(TOML)
    else:
        lines[at] = _bytes(lines[at], others, rng)
    return b"\n".join(lines)


def _argv(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    words = data.split(b"\0")
    at = rng.randrange(len(words))
    kind = rng.randrange(5)
    if kind == 0 and len(words) > 1:
        del words[at]
    elif kind == 1:
        words.insert(at, rng.choice(words))
    elif kind == 2:
        words[at] = rng.choice(rng.choice(others).split(b"\0"))
    else:
        words[at] = rng.choice([token for token in TOKENS if b"\0" not in token])
    return b"\0".join(words)


# -- judgement ---------------------------------------------------------------------------------------------------------


def judge(read: Callable[[bytes], object], data: bytes) -> tuple[str, str]:
    """("ok" or "refused", "") or (what is wrong, where): the outcome of one case."""
    from kasuri.errors import KasuriError

    try:
        read(data)
    except KasuriError as error:
        if CANARY in f"{error}{error!r}":
            return "quotes a confidential value", place(error)
        return "refused", ""
    except (Exception, TooSlow) as error:
        return type(error).__name__, place(error)
    return "ok", ""


def place(error: BaseException) -> str:
    """The innermost line of kasuri in the error's trace."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(SOURCE)]
    if not frames:
        return "outside kasuri"
    return f"{frames[-1].filename[len(SOURCE) + 1 :]}:{frames[-1].lineno} {frames[-1].name}"


class Reached:
    """Lines of kasuri that were reached; kernels are compiled and have none."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def __enter__(self) -> Reached:
        sys.settrace(self._call)
        return self

    def __exit__(self, *args: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(SOURCE) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


# -- the worker --------------------------------------------------------------------------------------------------------


def work(target: Target, folder: Path, seed: int, seconds: float, cases: int | None = None) -> dict[str, Any]:
    """Feed mutated examples until the time (or the number of cases) is over; what was found, by kind and place."""
    rng = random.Random(f"{target.name} {seed}")
    corpus, read = target.prepare(folder)
    found: dict[str, dict[str, Any]] = {}
    out = {"cases": 0, "ok": 0, "refused": 0, "kept": 0, "lines": 0, "slowest": 0.0, "found": found}

    def stop(number: int, frame: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    for example in corpus:
        what, where = judge(read, example)
        if what != "ok":
            raise SystemExit(f"{target.name}: an example is not read: {what} {where}")
    reached, until = Reached(), time.monotonic() + seconds
    while time.monotonic() < until and (cases is None or out["cases"] < cases):
        data = mutate(rng.choice(corpus), corpus, target.form, rng)
        (folder / "last-case").write_bytes(data)
        before, peak, start = len(reached.lines), _peak(), time.process_time()
        signal.setitimer(signal.ITIMER_REAL, SECONDS * 4)
        with reached:
            what, where = judge(read, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.process_time() - start
        out["cases"] += 1
        out["slowest"] = max(out["slowest"], took)
        if what in ("ok", "refused"):
            out[what] += 1
            if took > SECONDS:
                what = "too slow"
            elif _peak() - peak > GROWTH:
                what = f"{(_peak() - peak) >> 10} MB"
        if what not in ("ok", "refused"):
            kept = found.setdefault(f"{what} at {where}", {"times": 0, "input": data.hex()[:200_000]})
            kept["times"] += 1
            if len(data) * 2 < len(kept["input"]):
                kept["input"] = data.hex()
        elif len(reached.lines) > before:
            corpus.append(data)
    out |= {"kept": len(corpus), "lines": len(reached.lines)}
    return out


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def spawn(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """One target in a process of its own, which may die."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--worker", name, "--folder", folder, "--seed", str(seed)]
        try:
            run = subprocess.run([*words, "--minutes", str(seconds / 60)], capture_output=True, text=True,
                                 timeout=seconds * 3 + 240)  # fmt: skip
            if run.returncode == 0:
                return json.loads(run.stdout.splitlines()[-1])
            what = f"worker ended with {run.returncode}: {run.stderr[-300:]}"
        except subprocess.TimeoutExpired:
            what = "worker hangs"
        last = Path(folder, "last-case")
        data = last.read_bytes().hex() if last.exists() else ""
        return {"cases": 0, "ok": 0, "refused": 0, "kept": 0, "lines": 0, "slowest": 0.0,
                "found": {what: {"times": 1, "input": data}}}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description="Hostile input by mutation.")
    options.add_argument("--minutes", type=float, default=15)
    options.add_argument("--only", default="")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--save", type=Path, help="Keep the inputs of findings in this folder.")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import fuzz  # this file under its own name, so that its classes are the ones the targets know
    from fuzz_targets import TARGETS

    if given.worker:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        target = next(target for target in TARGETS if target.name == given.worker)
        print(json.dumps(fuzz.work(target, given.folder, given.seed, given.minutes * 60)))
        return
    chosen = [target for target in TARGETS if given.only in target.name]
    rows, bad, all_cases = [], 0, 0
    for target in chosen:
        out = spawn(target.name, given.seed, given.minutes * 60 / len(chosen))
        all_cases += out["cases"]
        bad += len(out["found"])
        rows.append([target.name, f"{out['cases']:,}", f"{out['ok']:,}", f"{out['refused']:,}", f"{out['lines']:,}",
                     f"{out['slowest']:.1f}", str(len(out["found"]))])  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
        for number, (what, kept) in enumerate(out["found"].items()):
            print(f"    {what} ({kept['times']} times) {bytes.fromhex(kept['input'])[:160]!r}", flush=True)
            if given.save is not None:
                given.save.mkdir(parents=True, exist_ok=True)
                name = f"{target.name.replace(' ', '-')}-{number}"
                (given.save / name).write_bytes(bytes.fromhex(kept["input"]))
    print(f"{all_cases:,} cases, {bad} findings")
    if not given.only:
        import hostile

        hostile.write_page(rows, all_cases, bad, given.minutes)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
