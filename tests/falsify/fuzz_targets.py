"""What is fuzzed: every reader of files, messages, configuration and arguments, with valid examples.

The examples of importers are written by the standard library, Arrow and SQLite; those of kasuri's own formats by
kasuri. Where a format is protected by a hash, the reader below repairs the hash first, as an attacker would, so that
what stands behind it is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import CANARY, Target

import kasuri as ks
from kasuri.ingest import Query, Table, read_estat, read_mobile, read_people_flow, read_table
from kasuri.schema import ROWS_ALONE, Domain, Mesh, Nominal, Ordered, Time, Unit

PERSON = Unit("person", "add-remove", 2)
WINDOW = Mesh("grid", "500m", (53 * 160, 39 * 160), shape=(160, 160))
TABLE = Domain.of(WINDOW, Nominal("sex", ("m", "f")), Time("hour", "2020-10-01T00:00", 3600, 24))
COLUMNS: dict[str, Any] = {"grid": "code", "sex": "sex", "hour": "at"}
ROWS = [
    {"person": 1, "code": 533900011, "sex": "m", "at": "2020-10-01T05:00", "n": 3},
    {"person": 2, "code": 533900012, "sex": "f", "at": "2020-10-01T06:30", "n": 2},
    {"person": 2, "code": 533900012, "sex": "f", "at": "2020-10-01T07:30", "n": 1},
    {"person": 3, "code": 533901111, "sex": CANARY, "at": CANARY, "n": 4},
]


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def arrow_of(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


def parquet_bytes(table: Any, **more: Any) -> bytes:
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(table, out, **more)
    return out.getvalue()


def file_reader(path: Path, read: Any) -> Any:
    def feed(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return feed


# -- importers ---------------------------------------------------------------------------------------------------------

ESTAT = (
    "KEY_CODE,HTKSYORI,HTKSAKI,GASSAN,T001141001,T001141002\r\n,,,,　人口（総数）,　男\r\n"
    "533900002,1,,533900003;533900004,100,55\r\n533900003,2,533900002,,3,*\r\n533900011,0,,,7,3\r\n"
).encode("cp932")


def estat_zip(folder: Path) -> Any:
    examples = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("tblT001141H5339.txt", ESTAT)
        examples.append(out.getvalue())
    return examples, file_reader(folder / "a.zip", _estat)


def estat_text(folder: Path) -> Any:
    return [ESTAT], file_reader(folder / "a.txt", _estat)


def _estat(path: Path) -> object:
    return read_estat(path, Domain.of(WINDOW), columns="人口（総数）", unit=PERSON)


def mobile(folder: Path) -> Any:
    head = "date,time,area,residence,age,gender,population\n"
    text = head + "20190401,0900,533900011,-1,-1,-1,12\n20190401,1000,533900012,-1,-1,-1,7\n"
    domain = Domain.of(WINDOW, Time("hour", "2019-04-01T00:00", 3600, 24))
    return [text.encode()], file_reader(
        folder / "m.csv", lambda path: read_mobile(path, domain, columns={"grid": "area", "hour": "time"}, unit=PERSON)
    )


def people_flow(folder: Path) -> Any:
    head = "mesh1kmid,citycode,year,month,dayflag,timezone,population\n"
    text = head + "53390001,13101,2019,04,2,2,12\n53390002,13101,2019,04,2,2,70\n53390002,13102,2019,04,2,2,7\n"
    domain = Domain.of(Mesh("grid", "1km", (53 * 80, 39 * 80), shape=(80, 80)))
    return [text.encode()], file_reader(
        folder / "p.csv",
        lambda path: read_people_flow(path, domain, year=2019, month=4, dayflag=2, timezone=2, unit=PERSON),
    )


def flows_of_pairs(folder: Path) -> Any:
    home = Mesh("home", "80km", (50, 36), shape=(8, 8))
    work = Mesh("work", "80km", (50, 36), shape=(8, 8))
    text = "person,home,work\n1,5339,5340\n2,5339,5239\nx,5339,5239\n,,\n"
    where = {"home": "home", "work": "work"}
    return [text.encode()], file_reader(
        folder / "od.csv", lambda path: ks.count(path, Domain.of(home, work), columns=where, unit=PERSON)
    )


def _count(source: Any, **more: Any) -> object:
    return ks.count(source, TABLE, columns=COLUMNS, unit=PERSON, key=bytes(32), **more)


def csv_records(folder: Path) -> Any:
    plain = [dict(row, sex="m") for row in ROWS]
    examples = [csv_of(ROWS), csv_of(plain), "﻿".encode() + csv_of(ROWS).replace(b"\n", b"\r\n")]
    return examples, file_reader(folder / "r.csv", _count)


def csv_points(folder: Path) -> Any:
    text = b"person,lat,lon\nA,35.68,139.76\nB,35.1,139.5\n" + CANARY.encode() + b",35.2,139.2\n"
    where = {"grid": {"lat": "lat", "lon": "lon"}}
    return [text], file_reader(
        folder / "g.csv", lambda path: ks.count(path, Domain.of(WINDOW), columns=where, unit=PERSON)
    )


def csv_cells(folder: Path) -> Any:
    rows = [{"code": row["code"] + i, "n": row["n"]} for i, row in enumerate(ROWS[:2])]
    return [csv_of(rows)], file_reader(
        folder / "c.csv",
        lambda path: ks.count(path, Domain.of(WINDOW), columns={"grid": "code"}, unit=PERSON, weight="n"),
    )


def whole_table(folder: Path) -> Any:
    return [csv_of(ROWS)], file_reader(folder / "t.csv", lambda path: read_table(path, text=["sex"]))


def parquet_records(folder: Path) -> Any:
    table = arrow_of(ROWS)
    examples = [
        parquet_bytes(table, compression=kind) for kind in ("none", "snappy", "gzip", "zstd", "brotli")
    ]  # fmt: skip
    examples.append(parquet_bytes(table, use_dictionary=False, data_page_version="2.0", store_schema=False))
    return examples, file_reader(folder / "r.parquet", _count)


def parquet_table(folder: Path) -> Any:
    return [parquet_bytes(arrow_of(ROWS))], file_reader(folder / "t.parquet", read_table)


def sqlite_records(folder: Path) -> Any:
    path = folder / "seed.db"
    base = sqlite3.connect(path)
    base.execute("PRAGMA page_size = 512")
    base.execute("CREATE TABLE t (person, code, sex, at, n)")
    base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [tuple(row.values()) for row in ROWS])
    base.execute("INSERT INTO t VALUES (x'ff00', 1.5, NULL, 7, 'z')")
    base.commit()
    base.close()
    read = lambda made: _count(Table(str(made), "t"))  # noqa: E731
    return [path.read_bytes()], file_reader(folder / "r.db", read)


def queries(folder: Path) -> Any:
    sqlite_records(folder)
    read = lambda data: _count(Query(str(folder / "seed.db"), data.decode(errors="replace")), assume=ROWS_ALONE)  # noqa: E731
    return [b"SELECT * FROM t", b"SELECT person, code, sex, at FROM t WHERE n > 1 ORDER BY 1 LIMIT 3"], read


def frames(folder: Path) -> Any:
    """Columns of odd types, chosen by the bytes."""
    import pandas as pd
    import polars as pl

    odd: list[Any] = [
        None, 1, -1, 2**63, 10**30, 1.5, float("nan"), "x", CANARY, b"\xff", True, [1], {"a": 1}, (),
        np.datetime64("NaT"),
        533900011, "533900011", "2020-10-01T05:00", "m", object, 1j, np.float32("inf"), pd.Timestamp("2020-10-01"),
    ]  # fmt: skip

    def read(data: bytes) -> object:
        values = [odd[byte % len(odd)] for byte in data[1:21]] or [None]
        columns = {name: values[i:] + values[:i] for i, name in enumerate(("person", "code", "sex", "at"))}
        kind = data[0] % 4 if data else 0
        try:
            if kind == 0:
                frame: Any = pd.DataFrame(columns)
            elif kind == 1:
                frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
            elif kind == 2:
                frame = pl.DataFrame(columns, strict=False)
            else:
                import pyarrow as pa

                frame = pa.table(columns)
        except Exception:  # no such frame can be made
            return None
        return _count(frame)

    return [b"\x03\x01\x01", b"\x02\x0f\x0f", b"\x01\x10\x10"], read


def mesh_codes(folder: Path) -> Any:
    from kasuri import meshcode

    def read(data: bytes) -> object:
        text = data.decode(errors="replace").split(",")
        for level in (*meshcode.LEVELS, text[0][:20]):
            for values in (text, [len(text)], [float(len(data))], [2**70], [None], [[1], [1, 2]]):
                for call in (lambda v=values, n=level: meshcode.decode(v, n),
                             lambda v=values, n=level: meshcode.encode(v, v, n),
                             lambda v=values, n=level: meshcode.locate(v, v, n)):  # fmt: skip
                    _own(call)
        for call in (lambda: meshcode.level_of(text[0]), lambda: meshcode.morton(text, text),
                     lambda: Mesh.window("grid", text[0])):  # fmt: skip
            _own(call)
        return None

    return [b"5339,533900011", b"36.5,139.5", b"533946113"], read


def _own(call: Any) -> None:
    """Run a call that may refuse."""
    with contextlib.suppress(ks.KasuriError):
        call()


# -- public files ------------------------------------------------------------------------------------------------------


def arrays(folder: Path) -> Any:
    from kasuri.ingest import read_array

    examples = []
    for array in (np.zeros((4, 4), bool), np.arange(6.0), np.array([[1, 2]], dtype=">i2")):
        out = io.BytesIO()
        np.save(out, array)
        examples.append(out.getvalue())

    def read(path: Path) -> object:
        found = read_array(path)
        _own(lambda: ks.PublicTable.from_dense(found, Domain.of(Mesh("g", shape=(4, 4))), name="census"))
        _own(lambda: Domain.of(Mesh("g", shape=(4, 4)), mask={"g": found}))
        return found

    return examples, file_reader(folder / "a.npy", read)


def domains(folder: Path) -> Any:
    made = Domain.of(
        WINDOW, Nominal("sex", ("m", "f")), Ordered("age", 3, ("a", "b", "c")),
        mask={"age": np.array([True, False, False])},
    )  # fmt: skip
    examples = [json.dumps(domain.to_json()).encode() for domain in (made, TABLE)]

    def read(data: bytes) -> object:
        path = folder / "domain.json"
        path.write_bytes(data)
        return _invoke("ledger", "open", str(folder / "x.ledger"), "--data", "d", "--unit", "p", "--change", "replace",
                       "--max-cells", "1", "--epsilon", "1", "--delta", "1e-6", "--releases", "3", "--each", "0.1",
                       "--domain", str(path))  # fmt: skip

    def fresh(data: bytes) -> object:
        for path in folder.glob("x.ledger*"):
            path.unlink()
        return read(data)

    return examples, fresh


JOB = """engine = "local"

[data]
name = "census-2020"
files = ["rows.csv"]
columns = { grid = "code", sex = "sex", hour = "at" }

[[axes]]
kind = "mesh"
name = "grid"
level = "500m"
origin = [8480, 6240]
shape = [160, 160]

[[axes]]
kind = "nominal"
name = "sex"
labels = ["m", "f"]

[[axes]]
kind = "time"
name = "hour"
start = "2020-10-01T00:00"
seconds = 3600
size = 24

[unit]
id = "person"
change = "add-remove"
max_cells = 1

[recipe]
name = "haar_topdown"

[budget]
epsilon = "0.1"
unmetered = true

[output]
folder = "out"
exports = ["x.csv"]
"""


def jobs(folder: Path) -> Any:
    from kasuri import job

    (folder / "rows.csv").write_bytes(csv_of(ROWS))
    np.save(folder / "sea.npy", np.zeros(2, bool))
    masked = JOB + '\n[[masks]]\naxes = ["sex"]\nfile = "sea.npy"\n'

    def read(path: Path) -> object:
        faults = job.check(path)
        assert not any("Traceback" in fault for fault in faults)
        return job.load(path)

    return [JOB.encode(), masked.encode()], file_reader(folder / "job.toml", read)


RECODING = """[attributes.age]
kind = "numbers"
low = 10
high = 100
widths = [10, 30]

[attributes.sex]
kind = "categories"
tree = { all = ["m", "f"] }
"""


def recodings(folder: Path) -> Any:
    (folder / "h.csv").write_text("a;x;*\nb;x;*\n")
    example = (ROOT_EXAMPLE / "adult.toml").read_bytes() if ROOT_EXAMPLE.exists() else RECODING.encode()
    for path in ROOT_EXAMPLE.glob("*.csv") if ROOT_EXAMPLE.exists() else ():
        shutil.copy(path, folder)
    return [example], file_reader(folder / "recoding.toml", ks.kanon.Recoding.load)


def hierarchies(folder: Path) -> Any:
    text = "a;x;*\nb;x;*\nc;y;*\n"
    read = lambda path: ks.kanon.hierarchy.categories_csv("name", path)  # noqa: E731
    return [text.encode(), text.replace(";", ",").encode()], file_reader(folder / "h.csv", read)


ROOT_EXAMPLE = Path(ks.__file__).parent / "reproduce" / "adult"


# -- releases and ledgers ----------------------------------------------------------------------------------------------


def _released(folder: Path) -> Path:
    domain = Domain.of(Mesh("grid", "500m", (8480, 6240), shape=(8, 8)), mask={"grid": np.eye(8, dtype=bool)})
    dense = np.arange(64).reshape(8, 8) * (1 - np.eye(8, dtype=int))
    counts = ks.Counts.from_dense(dense, domain, PERSON, data="census")
    out = ks.release(counts, ks.haar_topdown(order="morton"), epsilon="1", ledger=None)
    out.save(str(folder / "release"), unmetered=True)
    return folder / "release"


def _repaired(folder: Path, change: Any) -> None:
    """Make hashes and digest right again, as whoever changes a release can."""
    from kasuri.manifest.package import MANIFEST, digest, text

    path = folder / MANIFEST
    try:
        said = json.loads(path.read_bytes())
        change(said)
        for item in said["resources"]:
            item["hash"] = "sha256:" + hashlib.sha256((folder / item["path"]).read_bytes()).hexdigest()
            if "bytes" in item:
                item["bytes"] = (folder / item["path"]).stat().st_size
        said["digest"] = digest(said)
        path.write_bytes(text(said))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        pass


def _judged(folder: Path) -> object:
    from kasuri import manifest
    from kasuri.report import page

    found = manifest.verify(folder)
    _own(lambda: page.build(folder))
    from kasuri.store.load import load

    if found["ok"]:
        return load(folder)
    _own(lambda: load(folder))
    return found


def manifests(folder: Path) -> Any:
    source = _released(folder)

    def read(data: bytes) -> object:
        work = _copy(source, folder / "work")
        (work / "datapackage.json").write_bytes(data)
        first = _judged(work)
        _repaired(work, lambda said: None)
        _judged(work)
        return first

    return [(source / "datapackage.json").read_bytes()], read


def release_files(folder: Path) -> Any:
    """One file of a release changed and its hash repaired; the first byte says which."""
    source = _released(folder)
    names = sorted(path.name for path in source.iterdir() if path.name != "datapackage.json")

    def read(data: bytes) -> object:
        work = _copy(source, folder / "work")
        if data:
            (work / names[data[0] % len(names)]).write_bytes(data[1:])
        _repaired(work, lambda said: None)
        return _judged(work)

    small = [name for name in names if (source / name).stat().st_size < 200_000]
    return [bytes([names.index(name)]) + (source / name).read_bytes() for name in small], read


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def _spent(folder: Path) -> Path:
    path = folder / "seed.ledger"
    book = ks.Ledger.open(path, epsilon="1", unit=PERSON, data="census")
    counts = ks.Counts.from_dense(np.arange(4), Domain.of(Ordered("age", 4)), PERSON, data="census")
    for _ in range(2):
        ks.release(counts, ks.geometric(), epsilon="0.1", ledger=book)
    base = sqlite3.connect(path)
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    return path


def ledgers(folder: Path) -> Any:
    """The SQLite file, or (first byte odd) the journal, changed; read, verified, repaired."""
    from kasuri.budget.ledger import repair

    seed = _spent(folder)
    journal = ks.Ledger(seed).journal
    example = [b"\0" + seed.read_bytes(), b"\1" + journal.read_bytes()]

    def read(data: bytes) -> object:
        path = folder / "work.ledger"
        for old in folder.glob("work.ledger*"):
            old.unlink()
        beside = path.with_name(journal.name.replace("seed", "work"))
        shutil.copy(seed, path)
        shutil.copy(journal, beside)
        if data:
            (path if data[0] % 2 == 0 else beside).write_bytes(data[1:])
        first = _ledger_answers(path)
        _own(lambda: repair(path))
        _own(lambda: _ledger_answers(path))
        return first

    return example, read


def _ledger_answers(path: Path) -> object:
    book = ks.Ledger.load(path)
    book.entries()
    book.balance()
    return book.verify(), book.summary()


def ledger_entries(folder: Path) -> Any:
    """Entries whose chain of hashes was made anew after they were changed."""
    from kasuri.budget.ledger.entries import State, canonical

    seed = _spent(folder)
    lines = [line.partition(" ")[2] for line in ks.Ledger(seed).journal.read_text().splitlines()]
    example = json.dumps([json.loads(line) for line in lines]).encode()
    rho = [{"entry": 1, "format": 1, "kind": "opened", "previous": "0" * 64, "data": "d", "owner": "o", "id": "0" * 32,
            "allowance": {"accounting": "zcdp", "rho": "1"}, "unit": PERSON.to_json()}]  # fmt: skip
    pld = [dict(rho[0], allowance={
        "accounting": "pld", "epsilon": "2", "delta": "0.000001", "price": "1",
        "series": {"recipe": "r", "plan": "p", "epsilon": "0.1", "losses": [["0.1", 1]], "releases": 3}})]  # fmt: skip

    def read(data: bytes) -> object:
        try:
            entries = json.loads(data)
        except (ValueError, RecursionError):
            entries = [data.decode(errors="replace")]
        state = State()
        for entry in entries if isinstance(entries, list) else [entries]:
            try:
                if isinstance(entry, dict):
                    entry["previous"] = state.hash
                text = canonical(entry)
            except (ValueError, RecursionError, TypeError):
                text = str(entry)
            text = text.encode(errors="replace").decode()
            state.add(text, hashlib.sha256(text.encode()).hexdigest())
        if state.entries:
            state.balance()
        return state

    return [example, json.dumps(rho).encode(), json.dumps(pld).encode()], read


def private_keys(folder: Path) -> Any:
    from kasuri.local.keys import CollectorKey
    from kasuri.manifest import keys

    secret, public = keys.keygen(folder / "k")
    CollectorKey.open(folder / "collector.key")

    def read(path: Path) -> object:
        good = []
        for call in (keys.private, keys.public_hex, CollectorKey.open):
            with contextlib.suppress(ks.KasuriError):
                good.append(call(path))
        return good

    examples = [secret.read_bytes(), public.read_bytes(), (folder / "collector.key").read_bytes()]
    return examples, file_reader(folder / "work.key", read)


# -- local -------------------------------------------------------------------------------------------------------------

WARDS = Nominal("ward", labels=("a", "b", "c", "d", "e"))


def randomizers(folder: Path) -> Any:
    from kasuri.local import numeric

    made = [ks.local.unary(WARDS, epsilon="0.5"), ks.local.grr(WARDS, epsilon="1"), ks.local.olh(WARDS, epsilon="2")]
    numbers = [make((0, 10), epsilon="1") for make in numeric.MAKERS.values()]

    def read(data: bytes) -> object:
        tree = _loaded(data)
        for call in (ks.local.from_json, numeric.from_json):
            try:
                return call(tree)
            except ks.KasuriError as error:
                last = error
        raise last

    return [json.dumps(one.to_json()).encode() for one in (*made, *numbers)], read


def _loaded(data: bytes) -> Any:
    """Any JSON value; what is none is refused by whoever calls us in earnest."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ks.FormatError("no JSON") from None


def _round(randomizer: Any) -> Any:
    from kasuri.local.wire import Round

    return Round("ab" * 16, randomizer, 2_000_000_000, 2)


def rounds(folder: Path) -> Any:
    from kasuri.local.wire import read_round

    made = [ks.local.unary(WARDS, epsilon="0.5"), ks.local.grr(Mesh("g", shape=(4, 4)), epsilon="1")]
    return [_round(one).text.encode() for one in made], lambda data: read_round(data.decode(errors="replace"))


def batches(folder: Path) -> Any:
    from kasuri.local.wire import decode, encode

    made = [ks.local.unary(WARDS, epsilon="0.5"), ks.local.grr(WARDS, epsilon="1")]
    told = [_round(one) for one in made]
    examples = [encode(one, one.randomizer.randomize([0, 1, 2], source=ks.seeded(1)).rows) for one in told]

    def read(data: bytes) -> object:
        for one in told:
            try:
                return decode(data, one)
            except ks.KasuriError as error:
                last = error
        raise last

    return examples, read


def report_files(folder: Path) -> Any:
    from kasuri.local.files import read_reports, write_reports

    randomizer = ks.local.unary(WARDS, epsilon="0.5")
    path = folder / "seed.parquet"
    write_reports(path, randomizer.randomize([0, 1, 2]), _round(randomizer))
    return [path.read_bytes()], file_reader(folder / "work.parquet", read_reports)


def device_states(folder: Path) -> Any:
    from kasuri.local.device import Device
    from kasuri.local.keys import CollectorKey

    key = CollectorKey.open(folder / "c.key")
    device = Device(key.public, max_epsilon="3", state=folder / "seed.json")
    for one in (
        ks.local.memoised(WARDS, epsilon_permanent="1", epsilon_instant="0.5", v_max=2),
        ks.local.unary(WARDS, epsilon="0.5"),
    ):
        device.report(_round(one).sign(key.signing), "a")

    def read(path: Path) -> object:
        return Device(key.public, max_epsilon="3", state=path).spent

    return [(folder / "seed.json").read_bytes()], file_reader(folder / "work.json", read)


def collector(folder: Path) -> Any:
    """Requests as bytes: method, path, headers, blank line, body. Every answer has a status below 500."""
    import base64

    from collector.asgi import TOKEN, request

    from kasuri.local.collector import application
    from kasuri.local.keys import CollectorKey
    from kasuri.local.reports import Store
    from kasuri.local.wire import Round, encode

    store = Store(folder / "reports.db", clock=lambda: 1e6)
    key = CollectorKey.open(folder / "collector.key")
    app = application(store, key, operator_token=TOKEN, clock=lambda: 1e6)
    randomizer = ks.local.unary(WARDS, epsilon="0.5")
    told = store.open_round(Round.new(randomizer, closes=2_000_000)).round
    body = encode(told, randomizer.randomize([0, 1], source=ks.seeded(1)).rows, key=bytes(16))
    rows = [base64.b64encode(row.tobytes()).decode() for row in randomizer.randomize([0], source=ks.seeded(1)).rows]
    packed = {"version": 1, "round": told.fingerprint.hex(), "key": "00" * 16, "reports": rows}
    send = f"POST /rounds/{told.id}/reports\ncontent-type: "
    operate = f"\nauthorization: Bearer {TOKEN}\n\n"
    opened = {"randomizer": randomizer.to_json(), "closes": 2_000_000, "tokens": True}
    examples = [
        f"{send}application/octet-stream\n\n".encode() + body,
        f"{send}application/json\n\n{json.dumps(packed)}".encode(),
        f"POST /operator/rounds{operate}{json.dumps(opened)}".encode(),
        f"POST /operator/rounds/{told.id}/tokens{operate}{json.dumps({'count': 2})}".encode(),
        f"GET /operator/rounds{operate}".encode(),
        f"GET /rounds/{told.id}\nx: y\n\n".encode(),
        b"GET /metrics\n\n",
    ]
    loop = asyncio.new_event_loop()

    def read(data: bytes) -> object:
        head, _, content = data.partition(b"\n\n")
        first, *rest = head.decode("latin-1").split("\n")
        method, _, path = first.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        try:
            path.encode("ascii")
        except UnicodeEncodeError:
            path = "/"
        told_headers = {k: v for k, v in headers.items() if k.isascii() and k}
        status, _, answer = loop.run_until_complete(
            asyncio.wait_for(request(app, method or "GET", path or "/", content, told_headers), 30)
        )
        assert status < 500 or status == 503, f"status {status}"
        return answer

    return examples, read


# -- shuffle -----------------------------------------------------------------------------------------------------------


def _plan() -> Any:
    return ks.shuffle.Plan(
        key="phone", a=("age",), b=("spend", "sex"), bounds={"age": (20, 80), "spend": (0, 1000)},
        categories={"sex": ("F", "M", "1")}, epsilon_each="1", delta=1e-8, minimum_overlap=4,
    )  # fmt: skip


def plans(folder: Path) -> Any:
    return [json.dumps(_plan().to_json()).encode()], file_reader(folder / "plan.json", ks.shuffle.Plan.load)


def offers(folder: Path) -> Any:
    from kasuri.manifest import keys
    from kasuri.shuffle.secret import read_offer

    plan = _plan()
    secret, _ = keys.keygen(folder / "k")
    ks.shuffle.exchange(plan, "a", keys.private(secret), folder / "one", folder / "offer.json")
    example = (folder / "offer.json").read_bytes()
    return [example], file_reader(folder / "work.json", lambda path: read_offer(path, plan))


def shuffled(folder: Path) -> Any:
    plan = _plan()
    secret_a, secret_b = ks.shuffle.Secret.pair()
    phones = [f"090{i:08d}" for i in range(12)]
    with ks.shuffle.Party(plan, "a", secret_a) as a:
        one = a.run({"phone": phones, "age": np.linspace(20, 80, 12)})
    with ks.shuffle.Party(plan, "b", secret_b) as b:
        two = b.run({"phone": phones, "spend": np.linspace(0, 900, 12), "sex": ["F", "M", "1"] * 4})
    one.save(folder / "a.parquet", unmetered=True)
    ks.shuffle.join(plan, one, two).save(folder / "j.parquet", unmetered=True)

    def read(path: Path) -> object:
        for call in (lambda: ks.shuffle.Shuffled.load(path, plan), lambda: ks.shuffle.Joined.load(path)):
            try:
                return call()
            except ks.KasuriError as error:
                last = error
        raise last

    return [(folder / name).read_bytes() for name in ("a.parquet", "j.parquet")], file_reader(
        folder / "w.parquet", read
    )


def party_rows(folder: Path) -> Any:
    plan = _plan()
    text = "phone,age\n" + "".join(f"090{i:08d},{20 + i}\n" for i in range(8))
    hidden = text.replace("09000000003", CANARY)

    def read(path: Path) -> object:
        secret, _ = ks.shuffle.Secret.pair()
        with ks.shuffle.Party(plan, "a", secret) as party:
            return party.run(path)

    return [text.encode(), hidden.encode()], file_reader(folder / "rows.csv", read)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _invoke(*words: str) -> object:
    """A command in this process; its error, if it is not one of usage."""
    from typer.testing import CliRunner

    from kasuri.cli import app

    found = CliRunner().invoke(app, list(words))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert 0 <= found.exit_code <= 3, found.exit_code
    if found.exit_code:
        raise ks.DomainError("refused")
    return found.output


def arguments(folder: Path) -> Any:
    (folder / "rows.csv").write_bytes(csv_of([dict(row, sex="m", at=1) for row in ROWS]))
    (folder / "job.toml").write_text(JOB)
    _spent(folder)
    _released(folder)
    where = ["--window", "5339", "--unit", "person", "--change", "add-remove", "--max-cells", "1"]
    lines = [
        ["plan", *where, "--epsilons", "0.1,1", "--budget", "1", "--areas", "1,4", "--recipes", "geometric"],
        ["check", "job.toml"], ["check", "job.toml", "--json"], ["verify", "release"],
        ["ledger", "show", "seed.ledger"],
        ["ledger", "verify", "seed.ledger", "--json"],
        ["local", "plan", "--users", "1000", "--epsilon", "1", "--labels", "a,b"],
        ["local", "plan", "--users", "10", "--epsilon", "1/3", "--mesh", "4x4", "--reports", "2", "--json"],
        ["compare", "rows.csv", *where, "--epsilons", "1", "--code", "code", "--trials", "1", "--recipes", "geometric"],
        ["report", "release", "--out", "r.html"],
        ["ledger", "open", "x.ledger", "--data", "d", "--unit", "p", "--change", "replace",
         "--max-cells", "1", "--epsilon", "1"],
    ]  # fmt: skip
    here = os.getcwd()

    def read(data: bytes) -> object:
        words = [word.decode(errors="replace") for word in data.split(b"\0")]
        if {"demo", "reproduce", "serve", "--open"} & set(words):  # long, or with a server or a browser
            raise ks.DomainError("not run here")
        os.chdir(folder)
        try:
            for old in folder.glob("x.ledger*"):
                old.unlink()
            return _invoke(*words)
        finally:
            os.chdir(here)

    return ["\0".join(line).encode() for line in lines], read


TARGETS = [
    Target("e-Stat archives", "bytes", estat_zip),
    Target("e-Stat text", "csv", estat_text),
    Target("mobile statistics", "csv", mobile),
    Target("people flow", "csv", people_flow),
    Target("origin-destination CSV", "csv", flows_of_pairs),
    Target("records in CSV", "csv", csv_records),
    Target("points in CSV", "csv", csv_points),
    Target("cells in CSV", "csv", csv_cells),
    Target("tables in CSV", "csv", whole_table),
    Target("records in Parquet", "bytes", parquet_records),
    Target("tables in Parquet", "bytes", parquet_table),
    Target("records in SQLite", "bytes", sqlite_records),
    Target("SQL queries", "bytes", queries),
    Target("data frames", "bytes", frames),
    Target("mesh codes", "bytes", mesh_codes),
    Target("public arrays", "bytes", arrays),
    Target("domains", "json", domains),
    Target("job files", "toml", jobs),
    Target("recodings", "toml", recodings),
    Target("hierarchies", "csv", hierarchies),
    Target("manifests", "json", manifests),
    Target("release files", "bytes", release_files),
    Target("ledger files", "bytes", ledgers),
    Target("ledger entries", "json", ledger_entries),
    Target("keys", "bytes", private_keys),
    Target("local randomizers", "json", randomizers),
    Target("local rounds", "json", rounds),
    Target("local batches", "bytes", batches),
    Target("local report files", "bytes", report_files),
    Target("device states", "json", device_states),
    Target("collector requests", "bytes", collector),
    Target("shuffle plans", "json", plans),
    Target("shuffle offers", "json", offers),
    Target("shuffle tables", "bytes", shuffled),
    Target("shuffle rows", "csv", party_rows),
    Target("arguments", "argv", arguments),
]
