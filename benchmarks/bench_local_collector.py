"""Durable reports a second: the collector against a FastAPI + pydantic JSON endpoint, in one run on loopback.

    python3 run.py bench local_collector
    python benchmarks/bench_local_collector.py [--seconds 60] [--connections 64] [--peers PYTHON]

Batches of 1,000 reports of 24 categories. PYTHON is an interpreter that has fastapi and uvicorn; the peer's endpoint
validates a JSON list with pydantic and gets the same group commit to SQLite (WAL, synchronous=FULL), so that only
the wire format and the framework differ. Prints one JSON object.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import uvloop

import kasuri as ks
from kasuri.local.wire import encode

SLICES = 6
"""The two servers take turns, so that a busy machine is equally busy for both."""
TOKEN = "benchmark-operator-token"
OURS = """
import sys
from kasuri import local
store, key = local.Store(sys.argv[1]), local.CollectorKey.open(sys.argv[2])
local.serve(store, key, operator_token=sys.argv[3], port=int(sys.argv[4]))
"""
PEER = """
import asyncio, queue, sqlite3, sys, threading
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field
from typing import Annotated

class Batch(BaseModel):
    key: str
    reports: list[Annotated[int, Field(ge=0, lt=1 << 24)]]

app, waiting = FastAPI(), queue.SimpleQueue()

def write():
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL"); db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE batch (key TEXT UNIQUE, count INTEGER, reports BLOB)")
    while True:
        group = [waiting.get()]
        while not waiting.empty() and len(group) < 1024:
            group.append(waiting.get())
        db.execute("BEGIN IMMEDIATE")
        for batch, _, _ in group:
            blob = b"".join(r.to_bytes(3, "little") for r in batch.reports)
            db.execute("INSERT OR IGNORE INTO batch VALUES (?, ?, ?)", (batch.key, len(batch.reports), blob))
        db.execute("COMMIT")
        for _, loop, done in group:
            loop.call_soon_threadsafe(done.set_result, None)

@app.get("/health")
async def health():
    return {}

@app.post("/reports")
async def reports(batch: Batch):
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    waiting.put((batch, loop, done))
    await done
    return {"stored": len(batch.reports)}

threading.Thread(target=write, daemon=True).start()
uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="warning")
"""


class Sender(asyncio.Protocol):
    """One keep-alive connection that always has one batch on the way."""

    def __init__(self, head: bytes, make, tally):
        self.head, self.make, self.tally, self.buffer = head, make, tally, b""

    def connection_made(self, transport):
        self.transport = transport
        self.post()

    def post(self):
        if not self.tally["stop"]:
            body = self.make()
            self.transport.write(self.head % len(body) + body)

    def data_received(self, data):
        self.buffer += data
        if not self.buffer.endswith(b"}"):  # every answer is one small JSON object
            return
        status = self.buffer[9:12].decode()
        self.buffer = b""
        self.tally[status] = self.tally.get(status, 0) + 1
        self.post()


async def load(server, port, path, kind, make, seconds, connections):
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n".encode()
    head += b"content-length: %d\r\n\r\n"
    tally = {"stop": False}
    loop = asyncio.get_running_loop()
    senders = [
        await loop.create_connection(lambda: Sender(head, make, tally), "127.0.0.1", port) for _ in range(connections)
    ]
    times = psutil.Process(server.pid).cpu_times
    start, before, already = time.perf_counter(), sum(times()[:2]), tally.get("200", 0)
    await asyncio.sleep(seconds)
    acknowledged, spent = tally.get("200", 0) - already, time.perf_counter() - start
    cpu = sum(times()[:2]) - before
    tally["stop"] = True
    await asyncio.sleep(1)
    for transport, _ in senders:
        transport.close()
    refused = sum(n for status, n in tally.items() if status not in ("stop", "200"))
    return {"batches": acknowledged, "seconds": spent, "cpu": cpu, "refused": refused}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, port):
    process = subprocess.Popen(command)
    for _ in range(400):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            return process
        except OSError:
            if process.poll() is not None:
                return None
            time.sleep(0.05)
    return None


def ours(folder):
    """(server, what `load` needs) of the collector."""
    port = free_port()
    process = start([sys.executable, "-c", OURS, folder / "reports.db", folder / "key", TOKEN, str(port)], port)
    rr = ks.local.unary(ks.Ordered("place", 23), epsilon="1")
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/operator/rounds",
        json.dumps({"randomizer": rr.to_json(), "closes": int(time.time()) + 86400}).encode(),
        {"authorization": f"Bearer {TOKEN}"},
    )
    envelope = json.loads(urllib.request.urlopen(asked).read())
    made = ks.local.verify(envelope, bytes.fromhex(envelope["key"]))
    body = encode(made, rr.randomize(np.arange(1000) % 24).rows)
    first, number, rest = body[:24] + os.urandom(8), itertools.count(), body[40:]
    path = f"/rounds/{made.id}/reports"
    return process, (port, path, "application/octet-stream", lambda: first + next(number).to_bytes(8, "little") + rest)


def peer(python, folder):
    """The same of the FastAPI endpoint, or None where it does not start."""
    port = free_port()
    process = start([python, "-c", PEER, str(folder / "peer.db"), str(port)], port)
    if process is None:
        return None
    values = json.dumps(np.random.default_rng(1).integers(0, 1 << 24, 1000).tolist())
    first, number, rest = b'{"key":"', itertools.count(), f'","reports":{values}}}'.encode()
    return process, (port, "/reports", "application/json", lambda: first + b"%032d" % next(number) + rest)


def total(parts):
    """The slices of one server together."""
    batches = sum(part["batches"] for part in parts)
    return {
        "reports_per_second": round(1000 * batches / sum(part["seconds"] for part in parts)),
        "server_cpu_microseconds_per_batch": round(1e6 * sum(part["cpu"] for part in parts) / batches, 1),
        "batches": batches,
        "refused": sum(part["refused"] for part in parts),
    }


def main(words=()):
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--connections", type=int, default=64)
    asked.add_argument("--peers", default=os.environ.get("KASURI_PEERS"))
    given = asked.parse_args(words)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as name:
        servers = {"kasuri": ours(Path(name))}
        found = peer(given.peers, Path(name)) if given.peers else None
        if found is None:
            print("FastAPI skipped: give --peers PYTHON with fastapi and uvicorn", file=sys.stderr)
        else:
            servers["FastAPI + pydantic JSON"] = found
        parts = {server: [] for server in servers}
        try:
            for _ in range(SLICES):
                for server, (process, target) in servers.items():
                    parts[server].append(uvloop.run(load(process, *target, given.seconds / SLICES, given.connections)))
        finally:
            for process, _ in servers.values():
                process.send_signal(signal.SIGTERM)
                process.wait()
        out = {server: total(found) for server, found in parts.items()}
        stored = sqlite3.connect(Path(name) / "reports.db").execute("SELECT COUNT(*) FROM batch").fetchone()[0]
        assert stored >= out["kasuri"]["batches"], "an acknowledged batch is missing"
        if len(out) == 2:
            mine, other = out.values()
            cpu = "server_cpu_microseconds_per_batch"
            out["ratio"] = mine["reports_per_second"] / other["reports_per_second"]
            out["ratio_of_server_cpu"] = other[cpu] / mine[cpu]
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
