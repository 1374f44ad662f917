"""The page's server: this machine alone, one browser, nothing but the desk behind it.

*Who can use it.* It listens on 127.0.0.1. The address that is printed holds a token that works once; the page hands it
over and gets a session word, which it keeps for its own origin (host and port) and sends in a header of every request.
So another user of the machine, another site in the same browser and another program's page on 127.0.0.1 have nothing to
send; requests for another host, or from another origin, are refused before anything else is looked at.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from importlib.resources import files as package_files
from typing import Any

from kasuri import files
from kasuri.errors import KasuriError, PrivacyError
from kasuri.start import lists
from kasuri.start.desk import ChangedError, Desk

HEADER = b"kasuri-session"
_JSON = 1 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LOOK = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_ALWAYS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/start.css": ("start.css", "text/css; charset=utf-8"),
    "/start.js": ("start.js", "text/javascript; charset=utf-8"),
    "/words.js": ("words.js", "text/javascript; charset=utf-8"),
}
Act = Callable[[Desk, Mapping[str, Any]], Mapping[str, Any]]
ACTS: dict[str, Act] = {
    "state": lambda desk, asked: desk.state(),
    "lists": lambda desk, asked: {"labels": lists.LABELS, "levels": lists.LEVELS},
    "save": lambda desk, asked: desk.save(_field(asked, "content", dict), _field(asked, "mark", str)),
    "begin": lambda desk, asked: desk.begin(_field(asked, "file", str)),
    "preview": lambda desk, asked: desk.preview(),
    "windows": lambda desk, asked: desk.windows(_field(asked, "level", str)),
    "around": lambda desk, asked: desk.around(_field(asked, "codes", list), _field(asked, "level", str)),
    "simulate": lambda desk, asked: desk.simulate(_field(asked, "epsilon", str), _field(asked, "recipe", str)),
    "expected": lambda desk, asked: desk.expected(
        _field(asked, "epsilon", str), _field(asked, "people", list), every=bool(asked.get("every"))
    ),
    "ledger": lambda desk, asked: desk.open_ledger(_field(asked, "file", str), _field(asked, "epsilon", str)),
    "check": lambda desk, asked: desk.check(),
    "release": lambda desk, asked: desk.release(_field(asked, "mark", str)),
    "progress": lambda desk, asked: {"progress": desk.progress},
    "verify": lambda desk, asked: desk.verified(),
    "look": lambda desk, asked: desk.look(),
    "next": lambda desk, asked: desk.next(),
}
"""What the page can ask for: POST /api/NAME with a JSON object."""


def _field(asked: Mapping[str, Any], name: str, kind: type) -> Any:
    value = asked.get(name)
    if not isinstance(value, kind):
        raise KasuriError(f"the request needs {name}")
    return value


class Door:
    """The one-time token, and the session that it opens."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.token = secrets.token_urlsafe(32)
        self._used: set[str] = set()
        self._session = ""
        self.again: Callable[[str], None] = lambda address: None

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/#{self.token}"

    def enter(self, token: str) -> str | None:
        """The session word for a token that was not used before. A used one has a new address printed in the terminal,
        which only the operator sees."""
        if secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
            self._used.add(self.token)
            self.token, self._session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
            return self._session
        if token in self._used:
            self._used.discard(token)
            self.again(self.address)
        return None

    def admits(self, session: bytes) -> bool:
        return bool(self._session) and secrets.compare_digest(session, self._session.encode())


def application(desk: Desk, door: Door) -> Any:
    """The ASGI application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        refused = _refusal(door, headers, method)
        if refused is not None:
            await _answer(send, 403, {"error": refused})
        elif method == "GET" and path in _FILES:
            name, kind = _FILES[path]
            body = (package_files("kasuri.start") / name).read_bytes()
            await _send(send, 200, kind, body, POLICY)
        elif method == "GET" and path.startswith("/look/"):
            await _report(desk, path.removeprefix("/look/"), send)
        elif method == "POST" and path == "/session":
            await _enter(door, receive, headers, send)
        elif method == "POST" and path.startswith("/api/"):
            if not door.admits(headers.get(HEADER, b"")):
                await _answer(send, 401, {"error": "open the address that the terminal shows"})
            elif path == "/api/drop":
                await _drop(desk, scope, receive, headers, send)
            else:
                await _act(desk, path.removeprefix("/api/"), receive, headers, send)
        else:
            await _answer(send, 404, {"error": "no such page"})

    return app


def _refusal(door: Door, headers: Mapping[bytes, bytes], method: str) -> str | None:
    """Why a request is not looked at: another host (a name that leads here), another origin, another site's page."""
    host = headers.get(b"host", b"").decode("latin-1")
    if host not in door.hosts:
        return "this page is at 127.0.0.1 alone"
    origin = headers.get(b"origin", b"").decode("latin-1")
    if (method != "GET" and origin != f"http://{host}") or (origin and origin != f"http://{host}"):
        return "this page answers itself alone"
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        return "this page answers itself alone"
    return "GET or POST" if method not in ("GET", "POST") else None


async def _body(receive: Any, headers: Mapping[bytes, bytes], most: int) -> bytes | None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 12 or int(length) > most:
        return None
    parts, size = [], 0
    async for part in _pieces(receive):
        parts.append(part)
        size += len(part)
        if size > most:
            return None
    return b"".join(parts)


async def _pieces(receive: Any) -> Any:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _asked(receive: Any, headers: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    if headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/json":
        raise KasuriError("send application/json")
    body = await _body(receive, headers, _JSON)
    try:
        found = json.loads(body or b"")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise KasuriError("send a JSON object of at most 1 MiB")
    return found


async def _enter(door: Door, receive: Any, headers: Mapping[bytes, bytes], send: Any) -> None:
    try:
        token = (await _asked(receive, headers)).get("token")
    except (KasuriError, ConnectionError):
        token = None
    session = door.enter(token) if isinstance(token, str) else None
    if session is None:
        await _answer(send, 401, {"error": "this address was used before, or was never given out"})
    else:
        await _answer(send, 200, {"session": session})


async def _act(desk: Desk, name: str, receive: Any, headers: Mapping[bytes, bytes], send: Any) -> None:
    act = ACTS.get(name)
    if act is None:
        await _answer(send, 404, {"error": "no such request"})
        return
    try:
        asked = await _asked(receive, headers)
        await _answer(send, 200, await asyncio.to_thread(act, desk, asked))
    except ChangedError as error:
        await _answer(send, 409, {"error": str(error), "faults": list(error.faults)})
    except KasuriError as error:
        await _answer(send, 422, {"error": str(error), "faults": list(error.faults)})
    except ConnectionError:
        return
    except Exception as error:  # a library's message can quote a record
        words = f"failed ({type(error).__name__}); its message is withheld, it could quote data"
        await _answer(send, 500, {"error": words, "faults": [words]})


async def _drop(desk: Desk, scope: Any, receive: Any, headers: Mapping[bytes, bytes], send: Any) -> None:
    """A file, streamed to the folder: whole or not at all, readable by its owner alone, over no other."""
    from urllib.parse import parse_qs

    name = parse_qs(scope["query_string"].decode("latin-1")).get("name", [""])[0]
    length = headers.get(b"content-length", b"")
    try:
        if not length.isdigit() or len(length) > 15:
            raise PrivacyError("the length of a dropped file must be given")
        target = desk.room(name, int(length))
        with files.whole(target, new=True, private=True) as part:
            with part.open("wb") as out:
                size = 0
                async for piece in _pieces(receive):
                    size += len(piece)
                    if size > int(length):
                        raise PrivacyError("the dropped file is longer than its given length")
                    await asyncio.to_thread(out.write, piece)
            if size != int(length):
                raise PrivacyError("the file did not arrive whole; drop it again")
        await _answer(send, 200, {"file": target.name})
    except KasuriError as error:
        await _answer(send, 422, {"error": str(error), "faults": list(error.faults)})
    except (OSError, ConnectionError):
        await _answer(send, 422, {"error": "the file was not kept", "faults": ["the file was not kept"]})


async def _report(desk: Desk, word: str, send: Any) -> None:
    path = desk.taken(word)
    if path is None:
        await _answer(send, 404, {"error": "this address works once"})
    else:
        await _send(send, 200, "text/html; charset=utf-8", path.read_bytes(), _LOOK)


async def _answer(send: Any, status: int, told: Mapping[str, Any]) -> None:
    body = json.dumps(told, ensure_ascii=False).encode()
    await _send(send, status, "application/json", body, "default-src 'none'; frame-ancestors 'none'")


async def _send(send: Any, status: int, kind: str, body: bytes, policy: str) -> None:
    named = {**_ALWAYS, "content-type": kind, "content-length": str(len(body)), "content-security-policy": policy}
    headers = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def listen(port: int = 0) -> socket.socket:
    """A socket on this machine alone, at a free port unless one is asked for."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(128)  # who asks before the server runs waits for it
    except OSError as error:
        found.close()
        raise KasuriError(f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); leave --port out") from None
    return found


def serve(desk: Desk, door: Door, at: socket.socket) -> None:
    """Answer until Ctrl-C. No request is logged."""
    import uvicorn

    settings = uvicorn.Config(
        application(desk, door), access_log=False, log_level="error", server_header=False, date_header=False,
        lifespan="off", proxy_headers=False, ws="none", timeout_graceful_shutdown=2,
    )  # fmt: skip
    uvicorn.Server(settings).run(sockets=[at])
