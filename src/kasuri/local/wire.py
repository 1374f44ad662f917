"""What goes over the wire: signed round descriptions one way, packed batches of reports the other.

A round description says which randomizer, until when, and how often a device may report. It travels as the very text
that was signed (Ed25519), so that no client has to agree on a canonical form, and its first 16 bytes of SHA-256 name
it in every batch:

    "kasuri" | version, 2 bytes | fingerprint, 16 | batch key, 16 | reports, `width` bytes each        (little-endian)

The batch key is 16 random bytes: a batch sent twice is stored once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, raise_faults
from kasuri.local.grid import Numeric
from kasuri.local.randomizer import WIRE_VERSION, Randomizer, Rows, canonical
from kasuri.local.read import from_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAGIC = b"kasuri" + WIRE_VERSION.to_bytes(2, "little")
HEAD = len(MAGIC) + 32
_CLAIM = ("model", "epsilon", "delta", "unit")
MAX_BATCH = 10_000
"""Most reports in one batch."""
MAX_BODY = 1 << 24
"""Most bytes of one batch, however wide its reports are."""


@dataclass(frozen=True)
class Round:
    """One collection: public, signed, the same for every device.

    closes: Unix time in seconds. reports_per_device: how often one device may report; the client keeps to it, and the
    claim is that many times epsilon. tokens: whether a batch must carry a one-round token.
    """

    id: str
    randomizer: Randomizer | Numeric
    closes: int
    reports_per_device: int = 1
    tokens: bool = False

    def __post_init__(self) -> None:
        faults = []
        if not (isinstance(self.id, str) and len(self.id) == 32 and set(self.id) <= set("0123456789abcdef")):
            faults.append("round: id must be 32 hexadecimal digits")
        if type(self.closes) is not int or not 0 < self.closes < 1 << 40:
            faults.append("round: closes must be a Unix time in whole seconds")
        if type(self.reports_per_device) is not int or not 1 <= self.reports_per_device <= MAX_BATCH:
            faults.append(f"round: reports_per_device must be 1 to {MAX_BATCH}")
        if type(self.tokens) is not bool:
            faults.append("round: tokens must be true or false")
        raise_faults(DomainError, faults)

    @classmethod
    def new(
        cls, randomizer: Randomizer | Numeric, *, closes: int, reports_per_device: int = 1, tokens: bool = False
    ) -> Round:
        """A round with a fresh random id."""
        return cls(secrets.token_hex(16), randomizer, closes, reports_per_device, tokens)

    @cached_property
    def most(self) -> int:
        """Most reports in one batch."""
        return min(MAX_BATCH, (MAX_BODY - HEAD) // self.randomizer.width)

    @cached_property
    def text(self) -> str:
        """The description as it is signed."""
        return canonical(
            {
                "kasuri": "local round",
                "version": WIRE_VERSION,
                "id": self.id,
                "closes": self.closes,
                "reports_per_device": self.reports_per_device,
                "tokens": self.tokens,
                "guarantee": self.randomizer.guarantee(reports=self.reports_per_device).to_json(),
                "randomizer": self.randomizer.to_json(),
            }
        ).decode()

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that name this description in a batch."""
        return hashlib.sha256(self.text.encode()).digest()[:16]

    def sign(self, key: Ed25519PrivateKey) -> dict[str, str]:
        """The envelope a collector publishes."""
        public = key.public_key().public_bytes_raw()
        return {"description": self.text, "key": public.hex(), "signature": key.sign(self.text.encode()).hex()}


def read_round(text: str) -> Round:
    """A round from its description, checked field by field; its claim must be the one its randomizer gives.

    The text is kept as it was signed: the caveats and the order of its fields may be those of another release.
    """
    try:
        data = json.loads(text)
        if data["kasuri"] != "local round" or data["version"] != WIRE_VERSION:
            raise FormatError(f"field version: this client reads rounds of version {WIRE_VERSION}")
        made = Round(
            data["id"], from_json(data["randomizer"]), data["closes"], data["reports_per_device"], data["tokens"]
        )
        own = json.loads(made.text)
        stated = [data["guarantee"][name] for name in _CLAIM]
        odd = set(data) ^ set(own) | set(data["guarantee"]) ^ set(own["guarantee"])
    except KasuriError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as fault:
        raise FormatError(f"not a round description: {type(fault).__name__}") from None
    if odd or stated != [own["guarantee"][name] for name in _CLAIM]:
        raise FormatError("field guarantee: not the claim that the round's randomizer gives, or unknown fields")
    made.__dict__["text"] = text  # what was signed, and what batches are fingerprinted with
    return made


def verify(envelope: Mapping[str, Any], public_key: bytes) -> Round:
    """The round of an envelope signed by the pinned `public_key` (32 bytes); anything else is refused."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        text, signature = envelope["description"], bytes.fromhex(envelope["signature"])
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text.encode())
    except (InvalidSignature, KeyError, TypeError, ValueError, AttributeError):
        raise PrivacyError("the round description is not signed by the collector this client trusts") from None
    return read_round(text)


def encode(rounded: Round, rows: Rows, key: bytes | None = None) -> bytes:
    """One batch: `rows` of the round's randomizer under a fresh random key (or a key to send again)."""
    rounded.randomizer.check(rows)
    return MAGIC + rounded.fingerprint + (key or secrets.token_bytes(16)) + np.ascontiguousarray(rows).tobytes()


def decode(body: bytes, rounded: Round) -> tuple[bytes, Rows]:
    """(batch key, rows) of a batch for this round; raises FormatError with the reason."""
    if body[: len(MAGIC)] != MAGIC:
        raise FormatError(f"field version: a batch starts with 'kasuri' and version {WIRE_VERSION}")
    if body[len(MAGIC) : len(MAGIC) + 16] != rounded.fingerprint:
        raise FormatError("field fingerprint: the batch was made for another round description")
    width = rounded.randomizer.width
    count, rest = divmod(len(body) - HEAD, width)
    if rest or not 1 <= count <= rounded.most:
        raise FormatError(f"field reports: 1 to {rounded.most} reports of {width} bytes each")
    rows = np.frombuffer(body, dtype=np.uint8, offset=HEAD).reshape(count, width)
    if rounded.randomizer.bad_rows(rows).any():
        raise FormatError(f"field reports: not reports of {rounded.randomizer.kind}")
    return body[HEAD - 16 : HEAD], rows
