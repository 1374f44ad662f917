"""Call an ASGI application without a socket, and run a real collector in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

SERVER = """
import sys
from kasuri.local.collector import serve
from kasuri.local.keys import CollectorKey
from kasuri.local.reports import Store
serve(Store(sys.argv[1]), CollectorKey.open(sys.argv[2]), operator_token="operator-token-0", port=int(sys.argv[3]))
"""
TOKEN = "operator-token-0"


async def request(app, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, chunk=1 << 16):
    """(status, headers, body) of one request."""
    path, _, query = path.partition("?")
    given = {"content-length": str(len(body)), **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "scheme": "http", "root_path": "",
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()], "server": ("test", 80),
        "client": ("203.0.113.9", 4711),
    }  # fmt: skip
    parts = [body[i : i + chunk] for i in range(0, len(body), chunk)] or [b""]
    messages = [{"type": "http.request", "body": part, "more_body": i + 1 < len(parts)} for i, part in enumerate(parts)]
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    start = next(m for m in sent if m["type"] == "http.response.start")
    found = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, found


def call(app, *args, **more):
    return asyncio.run(request(app, *args, **more))


def operator(app, method, path, data=None):
    body = b"" if data is None else json.dumps(data).encode()
    status, _, found = call(app, method, path, body, {"authorization": f"Bearer {TOKEN}"})
    return status, json.loads(found)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(folder, port: int, *before: str) -> subprocess.Popen:
    """A collector on loopback; `before` may be a tracer's command line."""
    command = [
        *before,
        sys.executable,
        "-c",
        SERVER,
        str(folder / "reports.db"),
        str(folder / "collector.key"),
        str(port),
    ]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True)
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return process
        except OSError:
            assert process.poll() is None, "the collector stopped at once"
            time.sleep(0.05)
    raise AssertionError("the collector did not start")
