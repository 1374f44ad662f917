"""The HTTP collector: it checks, stores and counts reports, and never sees a true value, an address or an agent.

`application(store, key, operator_token)` is the ASGI application; `serve` runs it with uvicorn. A batch is
acknowledged (200) only after it is on disk; 409 says that a batch with this key is stored already, so a client that
got no answer sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError
from kasuri.local.grid import Numeric
from kasuri.local.keys import CollectorKey
from kasuri.local.openapi import OPENAPI
from kasuri.local.randomizer import Reports
from kasuri.local.read import from_json
from kasuri.local.reports import Opened, Outcome, Store, token_hash
from kasuri.local.wire import HEAD, MAGIC, Round, decode
from kasuri.privacy import Guarantee

DELTA = "1e-8"
"""Delta of the shuffle-model claims that the status of closed rounds states, unless the operator asks for another."""
_CLIENT = Path(__file__).parent / "client"
_REFUSALS: dict[Outcome, tuple[int, str]] = {
    "duplicate": (409, "a batch with this key is stored already"),
    "conflict": (422, "another batch with this key is stored: a batch is sent again byte by byte the same"),
    "closed": (410, "this round is closed"),
    "token": (401, "this round asks for a one-round token with reports left"),
    "failed": (503, "the store could not write; send the batch again"),
}


_PREFLIGHT = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"content-type, kasuri-token"),
    (b"access-control-max-age", b"86400"),
]


def _need_serve() -> None:
    try:
        import msgspec  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise KasuriError("the collector needs further packages: pip install 'kasuri[serve]'") from None


class _Submit:
    """POST /rounds/{id}/reports, as a bare ASGI endpoint: this is the path that has to be fast."""

    def __init__(self, store: Store, key: CollectorKey, metrics: Counter[str]) -> None:
        import msgspec

        class Batch(msgspec.Struct, forbid_unknown_fields=True):
            version: int
            round: str
            key: str
            reports: list[bytes]

        self._store, self._token_key, self._metrics = store, key.token_key, metrics
        self._mailbox: _Mailbox | None = None
        self._json, self._encode = msgspec.json.Decoder(Batch), msgspec.json.Encoder().encode
        self._faults: tuple[type[Exception], ...] = (msgspec.MsgspecError, RecursionError, ValueError)

    async def __call__(self, id: str, scope: Any, receive: Any, send: Any) -> None:
        status, answer = await self._handle(id, scope, receive)
        self._metrics[f"batches_{status}"] += 1
        await _send(send, self._encode, status, answer)

    async def _handle(self, id: str, scope: Any, receive: Any) -> tuple[int, dict[str, Any]]:
        opened = self._store.find(id)
        if opened is None:
            return 404, {"error": "no such round"}
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind not in (b"application/octet-stream", b"application/json"):
            return 415, {"error": "send application/octet-stream or application/json"}
        most = opened.round.most
        room = HEAD + most * opened.round.randomizer.width
        body = await _body(receive, headers, room if kind == b"application/octet-stream" else 2 * room + (1 << 16))
        if body is None:
            return 413, {"error": f"a batch of this round holds at most {most} reports"}
        try:
            if kind == b"application/json":
                body = self._packed(body, opened.round)
            key, rows = decode(body, opened.round)
            token = self._token(headers, opened)
        except FormatError as fault:
            return 400, {"error": str(fault)}
        except PrivacyError as fault:
            return 401, {"error": str(fault)}
        if opened.closed:
            return 410, {"error": "this round is closed"}
        loop = asyncio.get_running_loop()
        if self._mailbox is None or self._mailbox.loop is not loop:
            self._mailbox = _Mailbox(loop)
        answer, done = self._mailbox.expect()
        if not self._store.put(opened, key, rows, done, token):
            return 503, {"error": "too much is waiting for the disk; send the batch again"}
        outcome = await answer
        if outcome == "stored":
            self._metrics["reports_stored"] += rows.shape[0]
            return 200, {"stored": rows.shape[0]}
        status, reason = _REFUSALS[outcome]
        return status, {"error": reason}

    def _packed(self, body: bytes, rounded: Round) -> bytes:
        """A JSON batch as a packed one; both then pass the same checks."""
        try:
            batch = self._json.decode(body)
            fingerprint, key = bytes.fromhex(batch.round), bytes.fromhex(batch.key)
        except self._faults:
            raise FormatError("not a JSON batch {version, round, key, reports: [base64, ...]}") from None
        width = rounded.randomizer.width
        if batch.version != MAGIC[6] or len(fingerprint) != 16 or len(key) != 16:
            raise FormatError("fields version, round, key: the version and twice 32 hexadecimal digits")
        if any(len(report) != width for report in batch.reports):
            raise FormatError(f"field reports: base64 of {width} bytes each")
        return MAGIC + fingerprint + key + b"".join(batch.reports)

    def _token(self, headers: dict[bytes, bytes], opened: Opened) -> bytes | None:
        if not opened.round.tokens:
            return None
        try:
            token = bytes.fromhex(headers.get(b"kasuri-token", b"").decode("ascii"))
        except ValueError:
            token = b""
        if len(token) != 16:
            raise PrivacyError("this round asks for a one-round token in the header Kasuri-Token")
        return token_hash(self._token_key, token)


class _Mailbox:
    """Outcomes from the writer's thread to the event loop: the loop is woken once for a group, not once a batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._letters, self._ringing = loop, deque[tuple[asyncio.Future[Outcome], Outcome]](), False

    def expect(self) -> tuple[asyncio.Future[Outcome], Callable[[Outcome], None]]:
        answer: asyncio.Future[Outcome] = self.loop.create_future()

        def done(outcome: Outcome) -> None:
            self._letters.append((answer, outcome))
            if not self._ringing:
                self._ringing = True
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more, and the writer goes on
                    self.loop.call_soon_threadsafe(self._open)

        return answer, done

    def _open(self) -> None:
        self._ringing = False  # before looking: a letter that comes from now on rings again
        while self._letters:
            answer, outcome = self._letters.popleft()
            if not answer.done():  # the client may have gone; what is stored stays stored
                answer.set_result(outcome)


async def _body(receive: Any, headers: dict[bytes, bytes], limit: int) -> bytes | None:
    """The request body, or None as soon as it is known to exceed the limit."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 12 or int(length) > limit:
        return None
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(send: Any, encode: Callable[[Any], bytes], status: int, answer: dict[str, Any]) -> None:
    body = encode(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"access-control-allow-origin", b"*"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


Answer = tuple[int, Any]
"""Status and JSON."""


class _Desk:
    """What the endpoints answer, apart from HTTP. Those of the operator take the round that they are about, or None."""

    def __init__(
        self, store: Store, key: CollectorKey, clock: Callable[[], float], metrics: Counter[str], operator_token: str
    ) -> None:
        self._store, self._key, self._clock, self._metrics = store, key, clock, metrics
        self._operator_token = operator_token.encode()

    def health(self, id: str) -> Answer:
        if not self._store.alive():
            return 503, {"status": "the store's writer has stopped: restart the collector"}
        return 200, {"status": "ok", "waiting": self._store.waiting()}

    def openapi(self, id: str) -> Answer:
        return 200, OPENAPI

    def rounds(self, id: str) -> Answer:
        return 200, {"rounds": [opened.round.id for opened in self._store.rounds() if self._is_open(opened)]}

    def one_round(self, id: str) -> Answer:
        opened = self._store.find(id)
        return (200, self._describe(opened)) if opened else (404, {"error": "no such round"})

    def metrics(self) -> str:
        lines = [f"kasuri_{name} {value}" for name, value in sorted(self._metrics.items())]
        return "\n".join([*lines, f"kasuri_waiting {self._store.waiting()}", ""])

    def admit(self, headers: Mapping[str, str], id: str | None) -> Opened | Answer | None:
        """The round that the operator asks for, None where the endpoint is about none, or the refusal."""
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._operator_token):
            return 401, {"error": "this endpoint is the operator's"}
        if id is None:
            return None
        return self._store.find(id) or (404, {"error": "no such round"})

    def status(self, _: Opened | None, body: bytes, query: Mapping[str, str]) -> Answer:
        delta = query.get("delta", DELTA)
        rounds = [self._status(opened, delta) for opened in self._store.rounds()]
        return 200, {"rounds": rounds, "together": self._together(delta), "waiting": self._store.waiting()}

    def open_round(self, _: Opened | None, body: bytes, query: Mapping[str, str]) -> Answer:
        data = _object(body)
        unknown = set(data) - {"randomizer", "closes", "reports_per_device", "tokens"}
        if unknown or not isinstance(data.get("randomizer"), dict):
            raise FormatError("fields: randomizer, closes, and as wanted reports_per_device, tokens")
        made = Round.new(
            from_json(data["randomizer"]),
            closes=data.get("closes", 0),
            reports_per_device=data.get("reports_per_device", 1),
            tokens=data.get("tokens", False),
        )
        if made.closes <= self._clock():
            raise DomainError("closes must lie in the future")
        return 201, self._describe(self._store.open_round(made))

    def close_round(self, opened: Opened | None, body: bytes, query: Mapping[str, str]) -> Answer:
        assert opened
        self._store.close_round(opened.round.id)
        return 200, {"closed": opened.round.id}

    def tokens(self, opened: Opened | None, body: bytes, query: Mapping[str, str]) -> Answer:
        assert opened
        count = _object(body).get("count", 1)
        if type(count) is not int:
            raise FormatError("field count: a whole number")
        return 201, {"tokens": self._store.issue_tokens(opened.round.id, count, self._key.token_key)}

    def estimate(self, opened: Opened | None, body: bytes, query: Mapping[str, str]) -> Answer:
        from kasuri.local import estimators, moments

        assert opened
        method: Any = query.get("method", "projection")
        each, randomizer = opened.round.reports_per_device, opened.round.randomizer
        if method not in estimators.METHODS:
            raise DomainError(f"method must be one of {', '.join(estimators.METHODS)}")
        found: estimators.Estimate | moments.Summary
        if isinstance(randomizer, Numeric):  # one method serves numbers
            outputs = np.repeat(np.arange(randomizer.outputs), self._store.tally(opened)[1])
            found = moments.summary(outputs, randomizer, reports_per_device=each)
        elif method == "em":
            rows = self._store.rows(opened)
            found = estimators.estimate(rows, randomizer, method="em", reports_per_device=each)
        else:
            reports, agreeing = self._store.tally(opened)
            found = estimators.from_columns(agreeing, reports, randomizer, method=method, reports_per_device=each)
        told = found.to_json()
        if "delta" in query:
            told["central"] = self._central(opened, query["delta"]).to_json()
        return 200, told

    def _central(self, opened: Opened, delta: str) -> Guarantee:
        """What the estimate of a closed round costs, for who sees it alone: beside the local claim, never instead."""
        from kasuri.shuffle.rounds import central_claim

        if not opened.closed:
            raise PrivacyError("no shuffle-model claim of an open round. The local epsilon is what holds")
        return central_claim(opened.round, self._store.count(opened), delta)

    def _together(self, delta: str) -> dict[str, Any] | None:
        """What the estimates of all closed rounds cost a person who joined every one; a round that can state no other
        claim counts with its local one. None where no round is closed."""
        from kasuri.shuffle.rounds import together

        claims = []
        for opened in (one for one in self._store.rounds() if one.closed):
            try:
                claims.append(self._central(opened, delta))
            except PrivacyError:
                claims.append(opened.round.randomizer.guarantee(reports=opened.round.reports_per_device))
        try:
            return together(claims).to_json() if claims else None
        except PrivacyError as fault:
            return {"none": str(fault)}

    def export(self, opened: Opened | None, body: bytes, query: Mapping[str, str]) -> Path:
        """A new file of the round's reports, to be deleted when it is sent."""
        from kasuri.local.files import write_reports

        assert opened
        with tempfile.NamedTemporaryFile(suffix=".parquet", delete=False) as file:
            path = Path(file.name)
        try:
            reports = Reports(self._store.rows(opened), opened.round.randomizer.fingerprint)
            write_reports(path, reports, opened.round)
        except BaseException:
            path.unlink()
            raise
        return path

    def _is_open(self, opened: Opened) -> bool:
        return not opened.closed and self._clock() < opened.round.closes

    def _describe(self, opened: Opened) -> dict[str, Any]:
        return {**opened.round.sign(self._key.signing), "open": self._is_open(opened)}

    def _status(self, opened: Opened, delta: str) -> dict[str, Any]:
        randomizer = opened.round.randomizer
        try:
            central = self._central(opened, delta).to_json() if opened.closed else None
        except PrivacyError as fault:
            central = {"none": str(fault)}
        return {
            "id": opened.round.id,
            "open": self._is_open(opened),
            "closes": opened.round.closes,
            "reports": self._store.count(opened),
            "randomizer": randomizer.kind,
            "guarantee": randomizer.guarantee(reports=opened.round.reports_per_device).words(),
            "domain": None if isinstance(randomizer, Numeric) else randomizer.domain.to_json(),
            "central": central,
        }


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise FormatError("send a JSON object")
    return data


_FILES = {
    "/": ("demo.html", "text/html"),
    "/status": ("status.html", "text/html"),
    "/kasuri-local.js": ("kasuri-local.js", "text/javascript"),
    "/kasuri-place.js": ("kasuri-place.js", "text/javascript"),
}
_PUBLIC = {
    "/health": _Desk.health,
    "/openapi.json": _Desk.openapi,
    "/rounds": _Desk.rounds,
    "/rounds/{id}": _Desk.one_round,
}
_OPERATOR: dict[str, tuple[str, Callable[..., Answer | Path]]] = {
    "/operator/status": ("GET", _Desk.status),
    "/operator/rounds": ("POST", _Desk.open_round),
    "/operator/rounds/{id}/close": ("POST", _Desk.close_round),
    "/operator/rounds/{id}/tokens": ("POST", _Desk.tokens),
    "/operator/rounds/{id}/estimate": ("GET", _Desk.estimate),
    "/operator/rounds/{id}/export": ("GET", _Desk.export),
}


def _pages(desk: _Desk) -> Any:
    """The router of everything but batches."""
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def answer(status: int, data: Any) -> Response:
        return JSONResponse(data, status, headers={"access-control-allow-origin": "*"})

    def file(name: str, kind: str) -> Any:
        async def show(request: Request) -> Response:
            return FileResponse(_CLIENT / name, media_type=kind)

        return show

    def public(act: Callable[[_Desk, str], Answer]) -> Any:
        async def show(request: Request) -> Response:
            return answer(*act(desk, request.path_params.get("id", "")))

        return show

    def operator(act: Callable[..., Answer | Path]) -> Any:
        async def guarded(request: Request) -> Response:
            opened = desk.admit(request.headers, request.path_params.get("id"))
            if isinstance(opened, tuple):
                return answer(*opened)
            body = await _body(request.receive, dict(request.scope["headers"]), 1 << 20)
            if body is None:
                return answer(413, {"error": "at most 1 MiB"})
            try:
                found = await run_in_threadpool(act, desk, opened, body, request.query_params)
            except KasuriError as fault:
                return answer(400, {"error": str(fault)})
            if not isinstance(found, Path):
                return answer(*found)
            name = f"{request.path_params['id']}.parquet"
            return FileResponse(found, filename=name, background=BackgroundTask(found.unlink))

        return guarded

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(desk.metrics())

    return Starlette(
        routes=[
            *(Route(path, file(*what)) for path, what in _FILES.items()),
            Route("/metrics", metrics),
            *(Route(path, public(act)) for path, act in _PUBLIC.items()),
            *(Route(path, operator(act), methods=[method]) for path, (method, act) in _OPERATOR.items()),
        ]
    )


def application(store: Store, key: CollectorKey, *, operator_token: str, clock: Callable[[], float] = time.time) -> Any:
    """The ASGI application. Operator endpoints want `Authorization: Bearer <operator_token>`."""
    _need_serve()
    if len(operator_token) < 16:
        raise PrivacyError("the operator token must have at least 16 characters")
    metrics: Counter[str] = Counter()
    submit, pages = _Submit(store, key, metrics), _pages(_Desk(store, key, clock, metrics, operator_token))

    async def collector(scope: Any, receive: Any, send: Any) -> None:
        """Batches go straight to their endpoint; everything else through the router."""
        if scope["type"] == "http" and scope["method"] in ("POST", "OPTIONS"):
            _, *parts = scope["path"].split("/")
            if len(parts) == 3 and parts[0] == "rounds" and parts[2] == "reports":
                if scope["method"] == "POST":
                    await submit(parts[1], scope, receive, send)
                else:  # a page of another origin asks whether it may send a batch: it may
                    await send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
                    await send({"type": "http.response.body", "body": b""})
                return
        await pages(scope, receive, send)

    return collector


def serve(store: Store, key: CollectorKey, *, operator_token: str, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Run the collector until it is stopped. Logs no request: neither address nor agent is written anywhere."""
    _need_serve()
    import uvicorn

    try:
        uvicorn.run(
            application(store, key, operator_token=operator_token),
            host=host,
            port=port,
            access_log=False,
            log_level="warning",
            server_header=False,
            date_header=False,
            lifespan="off",
            proxy_headers=False,
        )
    finally:
        store.close()
