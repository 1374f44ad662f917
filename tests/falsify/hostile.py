"""Files made to be costly: each is read in a process of its own, under a limit of memory and time that is the claim.

python tests/falsify/hostile.py [word]      # all cases, or those whose name holds the word
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEMORY = 1500
"""MB that reading a hostile file may add to a process that has the libraries loaded, unless a case says otherwise."""
SECONDS = 60
"""CPU seconds it may take."""


@dataclass(frozen=True)
class Case:
    """`write(folder)` makes the files, `read(folder)` reads them and must end with a KasuriError (or, `fine`, well)."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    fine: bool = False


def _put(name: str, make: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(make())


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    packing = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
    with packing as archive, archive.open("a.txt", "w", force_zip64=True) as file:
        for _ in range(2048):
            file.write(bytes(1 << 20))
    return out.getvalue()


def _many_members() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(100):
            archive.writestr(f"{i}.txt", bytes(1 << 24))
    return out.getvalue()


def _wide() -> bytes:
    names = ",".join(f"c{i}" for i in range(10**6))
    return f"person,code,sex,at,{names}\n1,533900011,m,2020-10-01T05:00{',1' * 10**6}\n".encode()


def _endless(rows: int) -> bytes:
    """Parquet: a few KB that say they are very many equal rows."""
    import pyarrow as pa
    from pyarrow import parquet

    out = io.BytesIO()
    one = pa.RunEndEncodedArray.from_arrays(pa.array([1 << 22], pa.int32()), pa.array([7]))
    column = pa.chunked_array([pa.compute.run_end_decode(one)])
    with parquet.ParquetWriter(out, pa.schema([("cell", pa.int64()), ("report", pa.int64())])) as writer:
        table = pa.table({"cell": column, "report": column})
        for _ in range(rows >> 22):
            writer.write_table(table)
    return out.getvalue()


def _long_text() -> bytes:
    """Parquet: one text of a megabyte, ten million times."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    out = io.BytesIO()
    schema = pa.schema([("report", pa.dictionary(pa.int32(), pa.string()))])
    with parquet.ParquetWriter(out, schema) as writer:
        index = pa.array(np.zeros(10**6, np.int32))
        for _ in range(10):
            writer.write_table(pa.table({"report": pa.DictionaryArray.from_arrays(index, ["x" * 10**6])}, schema))
    return out.getvalue().replace(b"ARROW:schema", b"ARROW:schemb")


def _array(shape: str) -> Callable[[], bytes]:
    def make() -> bytes:
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
        return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(64)

    return make


def _sqlite_promise() -> bytes:
    """A SQLite header that promises 2^32 - 2 pages, and a recursive view that never ends."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE t (person, code, sex, at)")
        base.commit()
        base.close()
        data = bytearray(path.read_bytes())
    data[28:32] = (2**32 - 2).to_bytes(4, "big")
    return bytes(data)


def _release(change: Callable[[Path], object], *, repair: bool = True) -> Callable[[Path], object]:
    def write(folder: Path) -> object:
        import fuzz_targets as targets

        made = targets._released(folder)
        change(made)
        return targets._repaired(made, lambda said: None) if repair else None

    return write


def _edit_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> object:
        import fuzz_targets as targets

        return targets._repaired(targets._released(folder), change)

    return write


def _verify(folder: Path) -> object:
    import kasuri as ks
    from kasuri import manifest

    found = manifest.verify(folder / "release")
    if found["ok"]:
        return found
    raise ks.FormatError(*found["faults"])


def _count(name: str, **more: Any) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        import fuzz_targets as targets

        return targets._count(folder / name, **more)

    return read


def _cells(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        import kasuri as ks

        domain = ks.Domain.of(ks.Ordered("age", 100))
        return ks.count(
            folder / name, domain, columns={"age": "cell"}, unit=ks.Unit("person", "replace", 1), weight="cell"
        )

    return read


def _call(module: str, function: str, name: str, *more: Any) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        import importlib

        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
        return found(folder / name, *more)

    return read


def _text(module: str, function: str, name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        import importlib

        return getattr(importlib.import_module(module), function)((folder / name).read_text(encoding="utf-8"))

    return read


def _estat(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        import fuzz_targets as targets

        return targets._estat(folder / name)

    return read


def _query(folder: Path) -> object:
    import fuzz_targets as targets

    from kasuri.ingest import Table

    return targets._count(Table(str(folder / "a.db"), "t"))


def _collector(folder: Path) -> object:
    """A body that never ends, and one that says it is packed: the limit is on bytes, nothing is unpacked."""
    import asyncio
    import gzip

    import fuzz_targets as targets

    import kasuri as ks
    from kasuri.local.collector import application
    from kasuri.local.keys import CollectorKey
    from kasuri.local.reports import Store
    from kasuri.local.wire import Round

    store = Store(folder / "r.db", clock=lambda: 1e6)
    app = application(store, CollectorKey.open(folder / "k"), operator_token="operator-token-0", clock=lambda: 1e6)
    told = store.open_round(Round.new(ks.local.unary(targets.WARDS, epsilon="1"), closes=2_000_000)).round

    async def post(parts: Any, *headers: tuple[bytes, bytes]) -> int:
        path = f"/rounds/{told.id}/reports"
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
                 "raw_path": path.encode(), "query_string": b"", "scheme": "http", "root_path": "",
                 "headers": [(b"content-type", b"application/octet-stream"), *headers], "server": ("test", 80),
                 "client": ("203.0.113.9", 1)}  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": next(parts), "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return int(sent[0]["status"])

    async def both() -> list[int]:
        chunk, packed = bytes(1 << 20), gzip.compress(bytes(1 << 30))
        one = await post(iter(lambda: chunk, None))
        return [one, await post(iter([packed] * 999), (b"content-encoding", b"gzip"))]

    assert asyncio.run(both()) == [413, 413]
    store.close()
    raise ks.FormatError("both refused")


def _fifo(folder: Path) -> object:
    (folder / "release" / "datapackage.json").unlink()
    return os.mkfifo(folder / "release" / "datapackage.json")


DEEP = b"[" * 200_000
BIG = "9" * 4000
CASES = [
    Case("zip: 2 GB of zeros in 2 MB", _put("a.zip", _zip_bomb), _estat("a.zip")),
    Case("zip: 100 members of 16 MB", _put("a.zip", _many_members), _estat("a.zip")),
    Case("e-Stat text: 128 MB of one field", _put("a.txt", lambda: b"KEY_CODE," + b"x" * (1 << 27)), _estat("a.txt")),
    Case("CSV: 10^6 columns", _put("a.csv", _wide), _count("a.csv")),
    Case("CSV: one line of 200 MB", _put("a.csv", lambda: b"person,code,sex,at\n1," + b"5" * (200 << 20)),
         _count("a.csv")),
    Case("CSV: an open quotation mark, 100 MB", _put("a.csv", lambda: b'person,code,sex,at\n"' + b"5\n" * (50 << 20)),
         _count("a.csv")),
    Case("CSV: NUL bytes, 50 MB", _put("a.csv", lambda: bytes(50 << 20)), _count("a.csv")),
    Case("Parquet: 2^28 equal rows, as cells", _put("a.parquet", lambda: _endless(1 << 28)), _cells("a.parquet")),
    Case("Parquet: 2^28 equal rows, as reports", _put("a.parquet", lambda: _endless(1 << 28)),
         _call("kasuri.local.files", "read_reports", "a.parquet")),
    Case("Parquet: 10^7 times one megabyte", _put("a.parquet", _long_text),
         _call("kasuri.local.files", "read_reports", "a.parquet")),
    Case("release: a table of 2^28 equal rows", _release(lambda made: (made / "release.parquet").write_bytes(
        _endless(1 << 28))), _verify),
    Case("release: the manifest is a pipe", lambda folder: (_release(lambda made: None)(folder), _fifo(folder)),
         _verify),
    Case("release: the manifest is 200,000 lists deep", _release(
        lambda made: (made / "datapackage.json").write_bytes(DEEP), repair=False), _verify),
    Case("release: epsilon 1e999999999", _edit_manifest(lambda said: said["privacy"]["privacy_loss"][
        "privacy_parameters"].update(epsilon="1e999999999")), _verify),
    Case("release: a mask of 10^12 cells", _edit_manifest(lambda said: said["domain"].update(
        mask=[{"axes": ["grid"], "shape": [10**6, 10**6], "first": False, "runs": [10**12]}])), _verify),
    Case("SQLite: 2^32 pages promised", _put("a.db", _sqlite_promise), _query, fine=True),
    Case("array: 10^12 numbers promised", _put("a.npy", _array("(1000000, 1000000)")),
         _call("kasuri.ingest", "read_array", "a.npy")),
    Case("job: 200,000 lists deep", _put("a.toml", lambda: b"a = " + DEEP), _call("kasuri.job", "load", "a.toml")),
    Case("job: a number of 10^6 digits", _put("a.toml", lambda: b"a = " + b"9" * 10**6),
         _call("kasuri.job", "load", "a.toml")),
    Case("recoding: 2,000 tables deep", _put("a.toml", lambda: b"[" + b"a." * 2000 + b"a]\nx = 1\n"),
         _call("kasuri.kanon.recoding", "Recoding.load", "a.toml")),
    Case("plan: 200,000 lists deep", _put("a.json", lambda: DEEP), _call("kasuri.shuffle.plan", "Plan.load", "a.json")),
    Case("round: 200,000 lists deep", _put("a.json", lambda: DEEP), _text("kasuri.local.wire", "read_round", "a.json")),
    Case("round: a number of 4,000 digits", _put("a.json", lambda: json.dumps(
        {"kasuri": "local round", "version": 1, "id": "0" * 32, "closes": 1}).replace(": 1}", f": {BIG}}}").encode()),
        _text("kasuri.local.wire", "read_round", "a.json")),
    Case("collector: a body without end, a packed body", lambda folder: None, _collector),
]  # fmt: skip


def run(case: Case) -> dict[str, Any]:
    """{"outcome", "megabytes", "seconds"} of one case; a process that dies or hangs is an outcome too."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([sys.executable, __file__, "--case", case.name, folder], capture_output=True,
                                  text=True, timeout=SECONDS * 6)  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"outcome": "hangs", "megabytes": 0, "seconds": SECONDS}
        if done.returncode:
            return {"outcome": f"died: {done.stderr[-300:]}", "megabytes": 0, "seconds": 0}
        return json.loads(done.stdout.splitlines()[-1])


def good(case: Case, found: dict[str, Any]) -> bool:
    return (
        (found["outcome"] == "refused" or (case.fine and found["outcome"] == "ok"))
        and found["megabytes"] <= MEMORY
        and found["seconds"] <= SECONDS
    )


def _inside(name: str, folder: Path) -> None:
    """In the process of one case: write, load what any reader loads, limit, read, tell."""
    import fuzz
    import fuzz_targets  # noqa: F401  pandas, Arrow and numba are loaded before memory is counted

    case = next(case for case in CASES if case.name == name)
    child = os.fork()  # what the writer needs must not count
    if child == 0:
        code = 1
        try:
            case.write(folder)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, "the case could not be written"
    before, limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, (MEMORY + 4000) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * 2, SECONDS * 2))
    start = time.process_time()
    what, where = fuzz.judge(lambda data: case.read(folder), b"")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = what if not where else f"{what} at {where}"
    print(json.dumps({"outcome": told, "megabytes": (peak - before) >> 10, "seconds": time.process_time() - start}))


def write_page(rows: list[list[str]], cases: int, bad: int, minutes: float) -> None:
    """The section of docs/assurance.md: fuzzed targets, then the costly files."""
    from assurance import record
    from test_fuzz import FOUND

    measured = []
    for case in CASES:
        found = run(case)
        fine = good(case, found)
        bad += not fine
        name, took = f"{case.name} ({found['megabytes']} MB)", f"{found['seconds']:.1f}"
        outcome = ["1", "0"] if found["outcome"] == "ok" else ["0", "1"]
        measured.append([name, "1", *outcome, "-", took, str(int(not fine))])
        print(f"{name}: {found['outcome']}, {took} s", flush=True)
    text = (
        f"{cases:,} cases in {minutes:g} minutes over {len(rows)} readers: valid examples were mutated (bytes, cells, "
        "nodes of JSON, lines of TOML), guided by the lines of kasuri that they reach. A finding is an error that is "
        "not kasuri's own, a message that quotes a confidential value, a case above 20 s or 400 MB, or a worker "
        "that dies. "
        f"Below them {len(measured)} files made to be costly, each in a process with limited memory: at most {MEMORY} "
        f"MB may be added (what was added is in brackets) and {SECONDS} s taken. Findings left in this run: {bad}. "
        f"{len(FOUND)} inputs that were findings of earlier runs were mended and are kept as tests "
        "(tests/falsify/test_fuzz.py)."
    )
    columns = ["input", "cases", "read", "refused", "lines reached", "slowest, s", "findings"]
    record("fuzz", f"python tests/falsify/fuzz.py --minutes {minutes:g}", text, columns, rows + measured)


def main() -> None:
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    if sys.argv[1:2] == ["--case"]:
        _inside(sys.argv[2], Path(sys.argv[3]))
        return
    for case in CASES:
        if not sys.argv[1:] or sys.argv[1] in case.name:
            found = run(case)
            print("good" if good(case, found) else "BAD ", case.name, found, flush=True)


if __name__ == "__main__":
    main()
