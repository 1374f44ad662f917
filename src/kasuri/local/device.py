"""The Python client: it checks who asks, for what, how often, and only then randomises.

device = Device(public_key="9f...", max_epsilon="1")
body = device.report(envelope, "Shinjuku")        # bytes to POST; the true value stays here
send(url, body)
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from kasuri.errors import FormatError, KasuriError, PrivacyError, ProtocolError
from kasuri.local.categorical import from_json
from kasuri.local.longitudinal import Memoised, MemoisedClient
from kasuri.local.wire import Round, encode, verify
from kasuri.privacy import decimal, exact


class Device:
    """One person's client. It trusts one collector key and never spends more than `max_epsilon` in all its rounds.

    Privacy: see Randomizer. A device reports at most reports_per_device times a round, with fresh randomness each
    time; so a round costs reports_per_device * epsilon; rounds add up. Rounds of one memoised randomizer share one
    memory and cost v_max * epsilon together. `to_json` is what a device must keep from one start to the next.
    """

    def __init__(self, public_key: str, *, max_epsilon: object, clock: Callable[[], float] = time.time) -> None:
        try:
            self._key = bytes.fromhex(public_key)
        except ValueError:
            raise FormatError("public_key must be 64 hexadecimal digits") from None
        self._most = exact(max_epsilon, "max_epsilon")
        self._clock = clock
        self._sent: Counter[str] = Counter()
        self._memories: dict[str, MemoisedClient] = {}
        self.spent = Fraction(0)
        """Epsilon spent so far, over all rounds."""

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

    def report(self, envelope: Mapping[str, Any], value: str | int | None) -> bytes:
        """A batch of one report of `value` (None: elsewhere), counted as sent before it is drawn."""
        rounded = self.accept(envelope)
        randomizer = rounded.randomizer
        category = int(randomizer.categories([value])[0])
        self._sent[rounded.id] += 1
        if isinstance(randomizer, Memoised):
            if randomizer.fingerprint not in self._memories:
                self._memories[randomizer.fingerprint] = MemoisedClient(randomizer)
                self.spent += randomizer.guarantee().epsilon
            sent = self._memories[randomizer.fingerprint].report(category)
        else:
            self.spent += randomizer.epsilon
            sent = randomizer.report(category, lambda: secrets.randbits(randomizer.bits))
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
        """Go on where `to_json` of this collector's device left off."""
        if data.get("key") != self._key.hex():
            raise ProtocolError("this state belongs to another collector's device")
        self.spent = Fraction(data["spent"])
        self._sent = Counter(data["sent"])
        for kept in data["memories"]:
            randomizer = from_json(kept["randomizer"])
            if not isinstance(randomizer, Memoised):
                raise ProtocolError("a memory belongs to a memoised randomizer")
            client = MemoisedClient(randomizer)
            client.restore(kept["memory"])
            self._memories[randomizer.fingerprint] = client


def send(url: str, body: bytes, *, token: str | None = None, tries: int = 5) -> int:
    """POST one batch and return the number of reports stored by it. A batch without an answer is sent again, byte by
    byte the same: its key makes that safe, and 409 then means that it had arrived (0 newly stored)."""
    headers = {"content-type": "application/octet-stream"} | ({"kasuri-token": token} if token else {})
    for attempt in range(tries):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
                return int(json.loads(answer.read())["stored"])
        except urllib.error.HTTPError as fault:
            if fault.code == 409:
                return 0
            if fault.code != 503:
                raise KasuriError(f"the collector refused the batch: {fault.code} {fault.reason}") from None
            time.sleep(min(float(fault.headers.get("retry-after", 1)), 10.0))
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            if attempt == tries - 1:
                raise KasuriError("the collector does not answer; keep the bytes and send them again") from None
            time.sleep(0.2 * 2**attempt)
    raise KasuriError("the collector is busy; keep the bytes and send them again")
