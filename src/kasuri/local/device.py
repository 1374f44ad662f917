"""The Python client: it checks who asks, for what, how often, and only then randomises.

device = Device(public_key="9f...", max_epsilon="1", state="device.json")
body = device.report(envelope, "Shinjuku")        # bytes to POST; the true value stays here
body = device.report(envelope, Position(35.69, 139.70))       # found among the public places, here
send(url, body)
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import FormatError, KasuriError, PrivacyError, ProtocolError, raise_faults
from kasuri.files import sync
from kasuri.local.grid import Numeric
from kasuri.local.longitudinal import Memoised, MemoisedClient
from kasuri.local.places import Position, place_of
from kasuri.local.randomizer import Randomizer
from kasuri.local.read import from_json
from kasuri.local.wire import Round, encode, verify
from kasuri.privacy import Exact, asked, decimal, exact


class Device:
    """One person's client. It trusts one collector key and never spends more than `max_epsilon` in all its rounds.

    Privacy: see Randomizer. A device reports at most reports_per_device times a round, with fresh randomness each
    time; so a round costs reports_per_device * epsilon; rounds add up. Rounds of one memoised randomizer share one
    memory and cost v_max * epsilon together.

    `state` names the device's own file (mode 0600). It is read, checked, written and synced under a lock before
    anything is drawn, so that neither a crash nor a second process spends twice; it is as confidential as the places.
    Without it the budget lives no longer than this object, and the caller must keep `to_json` before a report is sent.
    Assumes: nobody puts an earlier state back.
    """

    def __init__(
        self,
        public_key: str,
        *,
        max_epsilon: Exact,
        state: str | Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            self._key = bytes.fromhex(public_key)
        except ValueError:
            raise FormatError("public_key must be 64 hexadecimal digits") from None
        self._most = asked(max_epsilon, "max_epsilon")
        self._state = None if state is None else Path(state).resolve()  # one budget, whatever link leads here
        self._clock = clock
        self._forget()
        if self._state is not None:
            with locked(self._state):
                self._load()

    def _forget(self) -> None:
        self._sent: Counter[str] = Counter()
        self._memories: dict[str, MemoisedClient] = {}
        self.spent = Fraction(0)
        """Epsilon spent so far, over all rounds."""

    def _load(self) -> None:
        """What the state file says, if there is one: another process may have reported since."""
        assert self._state is not None
        if not self._state.exists():
            if self._sent or self._memories:
                raise ProtocolError("the state file of this device is gone: it does not report")
            return
        try:
            data = json.loads(self._state.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise FormatError("the state file of this device is damaged: it does not report") from None
        self._forget()
        self.restore(data)

    def _save(self) -> None:
        if self._state is not None:
            write_synced(self._state, json.dumps(self.to_json()).encode())

    def accept(self, envelope: Mapping[str, Any]) -> Round:
        """The verified round of an envelope, if this device may take part in it now."""
        rounded = verify(envelope, self._key)
        if self._clock() >= rounded.closes:
            raise ProtocolError("this round is closed")
        left = rounded.reports_per_device - self._sent[rounded.id]
        if left < 1:
            raise ProtocolError("this device has sent all its reports of this round")
        cost = rounded.randomizer.guarantee(reports=left).epsilon
        if rounded.randomizer.fingerprint in self._memories:
            cost = Fraction(0)  # paid for when its memory was begun
        if self.spent + cost > self._most:
            raise PrivacyError(
                f"this round may cost a further epsilon {decimal(cost)}; this device has spent {decimal(self.spent)} "
                f"and spends at most {decimal(self._most)} in all"
            )
        return rounded

    def report(self, envelope: Mapping[str, Any], value: str | float | Position | None) -> bytes:
        """A batch of one report of `value` (None: elsewhere; a number where the round asks for numbers; a `Position`
        where its places are on the earth), counted as sent before it is drawn."""
        with nullcontext() if self._state is None else locked(self._state):
            if self._state is not None:
                self._load()
            rounded = self.accept(envelope)
            randomizer = rounded.randomizer
            truth = _truth(randomizer, value)  # what is refused is refused before anything is counted
            self._sent[rounded.id] += 1
            if isinstance(randomizer, Memoised):
                assert isinstance(truth, int)
                if randomizer.fingerprint not in self._memories:
                    self._memories[randomizer.fingerprint] = MemoisedClient(randomizer)
                    self.spent += randomizer.guarantee().epsilon
                self._save()
                sent = self._memories[randomizer.fingerprint].report_category(truth)
                self._save()  # a permanent report is kept before a copy of it can leave
            else:
                self.spent += randomizer.epsilon
                self._save()
                sent = _drawn(randomizer, truth)
        return encode(rounded, np.frombuffer(sent, np.uint8).reshape(1, -1))

    def to_json(self) -> dict[str, Any]:
        """What was spent and sent, and the memories: to be kept on the device, as confidential as its places."""
        return {
            "key": self._key.hex(),
            "spent": decimal(self.spent),
            "sent": dict(self._sent),
            "memories": [
                {"randomizer": client.randomizer.to_json(), "memory": client.to_json()}
                for client in self._memories.values()
            ],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on where `to_json` of this collector's device left off. Only a device that has sent nothing can: a state
        put back over a used one would spend its budget again."""
        if self.spent or self._sent or self._memories:
            raise ProtocolError("this device has a state already: restore into a fresh one")
        try:
            if data["key"] != self._key.hex():
                raise ProtocolError("this state belongs to another collector's device")
            spent = Fraction(0) if data["spent"] == "0" else exact(data["spent"], "spent")
            sent, memories = dict(data["sent"]), {}
            for kept in data["memories"]:
                randomizer = from_json(kept["randomizer"])
                if not isinstance(randomizer, Memoised):
                    raise ProtocolError("a memory belongs to a memoised randomizer")
                client = MemoisedClient(randomizer)
                client.restore(kept["memory"])
                memories[randomizer.fingerprint] = client
        except KasuriError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
            raise FormatError(f"not the state of a device: {type(fault).__name__}") from None
        faults = []
        if any(not isinstance(id, str) or type(count) is not int or count < 1 for id, count in sent.items()):
            faults.append("state: sent must count reports by round")
        if spent < sum((client.randomizer.guarantee().epsilon for client in memories.values()), Fraction(0)):
            faults.append("state: spent is less than its memories cost")
        if bool(sent) != bool(spent):
            faults.append("state: spent and sent do not fit together")
        raise_faults(ProtocolError, faults)
        self.spent, self._sent, self._memories = spent, Counter(sent), memories


def _truth(randomizer: Randomizer | Numeric, value: str | float | Position | None) -> int | Fraction:
    """The category of a value, or its place on the grid of numbers."""
    if isinstance(randomizer, Numeric):
        return randomizer.at(value)
    if isinstance(value, Position):
        return place_of(randomizer, value)
    return int(randomizer.categories([value])[0])


def _drawn(randomizer: Randomizer | Numeric, truth: int | Fraction) -> bytes:
    """One fresh report of a category, or of a place on the grid of numbers."""

    def word() -> int:
        return secrets.randbits(randomizer.bits)

    if isinstance(randomizer, Numeric):
        return randomizer.draw(Fraction(truth), word).to_bytes(randomizer.width, "little")
    return randomizer.report(int(truth), word)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a state file: one process, and one thread, at a time."""
    try:
        import fcntl
    except ImportError:
        raise KasuriError(
            "a state file needs file locks, which this system does not have; keep to_json yourself"
        ) from None

    with os.fdopen(os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file whole (mode 0600): when this returns it is on disk, and a crash leaves the old or the new one."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync(path.parent)


def send(url: str, body: bytes, *, token: str | None = None, tries: int = 5) -> int:
    """POST one batch and return the number of reports stored by it. A batch without an answer is sent again, byte by
    byte the same: its key makes that safe, and 409 then means that it had arrived (0 newly stored)."""
    headers = {"content-type": "application/octet-stream"} | ({"kasuri-token": token} if token else {})
    for attempt in range(tries):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
                stored = json.loads(answer.read())["stored"]
            if type(stored) is int:
                return stored
            raise KasuriError("the collector did not send a valid answer; keep the bytes and send them again")
        except urllib.error.HTTPError as fault:
            if fault.code == 409:
                return 0
            if fault.code != 503:
                raise KasuriError(f"the collector refused the batch: {fault.code} {fault.reason}") from None
            asked = fault.headers.get("retry-after", "1")
            time.sleep(min(int(asked), 10) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 1)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            if attempt == tries - 1:
                raise KasuriError("the collector does not answer; keep the bytes and send them again") from None
            time.sleep(0.2 * 2**attempt)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise KasuriError("the collector did not send a valid answer; keep the bytes and send them again") from None
        except http.client.HTTPException:
            if attempt == tries - 1:
                raise KasuriError("the collector does not answer; keep the bytes and send them again") from None
    raise KasuriError("the collector is busy; keep the bytes and send them again")
