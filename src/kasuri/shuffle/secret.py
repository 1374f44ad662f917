"""The secret of one run: 32 bytes that both parties hold for a moment, and the one-time keys it is agreed with.

Long-term keys (Ed25519) only sign. For each run a party makes a one-time X25519 pair (`exchange`), signs its public
half together with the plan's hash, and `run` consumes the private half: the file is unlinked, durably, before the
secret is used, so that nobody can derive it again. A run that is refused before that leaves the file where it is:
nothing was made under its secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError, KasuriError, ProtocolError
from kasuri.files import sync
from kasuri.local.randomizer import canonical
from kasuri.shuffle.columns import Side
from kasuri.shuffle.plan import Plan

VERSION = 1
BYTES = 32
_CONTEXT = b"kasuri shuffle offer, version 1\n"  # a signature made for another purpose is worth nothing here
_GONE = "the one-time key is gone: it serves one run. Both sides make new ones (kasuri shuffle keygen)"


@dataclass(frozen=True)
class _Agreement:
    """What is needed to derive a secret: the plan's hash, the own one-time key and the other side's public half."""

    plan: str
    one_time: Path
    public: bytes
    peer: bytes

    def derive(self, session: str) -> bytes:
        """Consume the one-time key file and agree on the secret of this session."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

        private = _consumed(self.one_time)
        try:
            key = X25519PrivateKey.from_private_bytes(bytes(private))
        finally:
            wipe(private)
        if key.public_key().public_bytes_raw() != self.public:
            raise ProtocolError("the one-time key file does not belong to your own offer")
        try:
            shared = key.exchange(X25519PublicKey.from_public_bytes(self.peer))
        except ValueError:
            raise ProtocolError("the other side's one-time key is not a valid one") from None
        label = f"kasuri shuffle|{self.plan}|{session}".encode()
        return hashlib.blake2b(label, key=shared, digest_size=BYTES).digest()


class Secret:
    """32 secret bytes with one owner, used once.

    `Secret.pair()` makes both parties' copies where one process plays both; two real organisations use `exchange` and
    `Secret.agree`, which binds the secret to its plan. Whoever makes one from bytes of their own answers for them: the
    bytearray is taken over and zeroed, but two Secrets made from copies of the same bytes cannot be told apart, and
    using both links the two runs row by row.
    """

    def __init__(self, material: bytearray, session: str, side: Side) -> None:
        if not isinstance(material, bytearray) or len(material) != BYTES:
            raise ProtocolError(f"a secret is a bytearray of {BYTES} random bytes, which it takes over")
        if not any(material):
            raise ProtocolError("these bytes are all zero: another Secret took them over. Every run needs new ones")
        if side not in ("a", "b"):
            raise ProtocolError('Secret: side must be "a" or "b"')
        self.session = session
        """Public name of the run; both tables of one run carry the same."""
        self.side = side
        """Whose copy it is: the same person's values must not be randomised twice under one pseudonym."""
        self.plan: str | None = None
        """Hash of the plan it was agreed for; None where no agreement binds it to one."""
        self._bytes = bytearray(material)
        self._agreement: _Agreement | None = None
        self._used = self._derived = False
        wipe(material)

    @classmethod
    def pair(cls) -> tuple[Secret, Secret]:
        """The same fresh secret for the parties a and b."""
        shared, session = secrets.token_bytes(BYTES), secrets.token_hex(16)
        return cls(bytearray(shared), session, "a"), cls(bytearray(shared), session, "b")

    @classmethod
    def agree(
        cls, plan: Plan, side: Side, one_time: str | Path, own: str | Path, other: str | Path, peer: str
    ) -> Secret:
        """The secret of `plan` from the own one-time key file and the other side's signed offer.

        own, other: the two offers. peer: the other side's long-term public key (hexadecimal), known from elsewhere;
        an offer that it did not sign is refused. The key file is consumed when the secret is first used, and not
        before: a run that is refused (its rows, its budget) leaves it, and may be tried again with a new agreement.
        """
        mine, theirs = read_offer(own, plan), read_offer(other, plan)
        if mine["side"] != side or theirs["side"] == side:
            raise ProtocolError(f"side {side}: the first offer must be your own, the second the other side's")
        if theirs["public_key"].lower() != peer.strip().lower():  # hexadecimal, in either case
            raise ProtocolError("the other side's offer is not signed with the key you know as theirs")
        if not Path(one_time).exists():
            raise ProtocolError(f"{one_time}: {_GONE}")
        first, second = (mine, theirs) if side == "a" else (theirs, mine)
        name = hashlib.sha256(canonical([plan.hash, first["one_time"], second["one_time"]])).hexdigest()[:32]
        made = cls(bytearray(secrets.token_bytes(BYTES)), name, side)  # random until `take` derives the agreed ones
        made.plan = plan.hash
        made._agreement = _Agreement(
            plan.hash, Path(one_time), bytes.fromhex(mine["one_time"]), bytes.fromhex(theirs["one_time"])
        )
        return made

    @property
    def spent(self) -> bool:
        """Whether it was used or destroyed."""
        return self._used

    @property
    def held(self) -> tuple[str, ...]:
        """What there is, or was, to destroy: the bytes; for an agreed one nothing until it is derived."""
        if self._agreement is None:
            return ("secret",)
        return ("secret", "one-time key") if self._derived else ()

    def check(self, plan: str, side: Side) -> None:
        """Refuse a secret of another plan or side, or one that cannot be used any more; uses nothing."""
        if self.side != side:
            raise ProtocolError(f"this secret is the copy of side {self.side}; a side runs once in a run")
        if self.plan not in (None, plan):
            raise ProtocolError("this secret was agreed for another plan; both sides must run the same plan file")
        self._unspent()

    def _unspent(self) -> None:
        if self._used:
            raise ProtocolError("this secret was used or destroyed already; every run needs a new one")
        if self._agreement is not None and not self._agreement.one_time.exists():
            raise ProtocolError(f"{self._agreement.one_time}: {_GONE}")

    def take(self) -> bytearray:
        """The bytes, once; the one-time key file is unlinked before they are derived."""
        self._unspent()
        self._used = True
        if self._agreement is not None:
            self._bytes[:] = self._agreement.derive(self.session)
            self._derived = True
        return self._bytes

    def destroy(self) -> None:
        """Zero the bytes; this object cannot be used any more. A one-time key file that was not consumed stays."""
        wipe(self._bytes)
        self._used = True

    def __repr__(self) -> str:
        return f"Secret({'spent' if self._used else 'unused'})"

    def __reduce__(self) -> Any:
        raise ProtocolError("a secret is not copied or stored")


def wipe(data: bytearray) -> None:
    """Overwrite with zeros."""
    data[:] = bytes(len(data))


def exchange(plan: Plan, side: Side, signing: Any, one_time: str | Path, offer: str | Path) -> dict[str, Any]:
    """Make this side's one-time pair: its private half in the file `one_time` (readable by its owner only), its public
    half with the plan's hash, signed, in the file `offer`, which the other side gets."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if side not in ("a", "b"):
        raise DomainError('side must be "a" or "b"')
    for path in (Path(one_time), Path(offer)):
        if path.exists():
            raise DomainError(f"{path} exists; it is never written over. Choose another name")
    key = X25519PrivateKey.generate()
    said = {
        "kasuri": "shuffle offer",
        "version": VERSION,
        "plan": plan.hash,
        "side": side,
        "one_time": key.public_key().public_bytes_raw().hex(),
        "public_key": signing.public_key().public_bytes_raw().hex(),
    }
    signed = said | {"signature": signing.sign(_CONTEXT + canonical(said)).hex()}
    _new_file(Path(one_time), key.private_bytes_raw(), 0o600)
    try:
        _new_file(Path(offer), (json.dumps(signed, indent=2) + "\n").encode(), 0o644)
    except BaseException:
        wipe(_consumed(Path(one_time)))  # a key without an offer serves nobody
        raise
    return signed


def _new_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file that was not there, whole and durably, or leave none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise DomainError(f"{path}: not written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise DomainError(f"{path}: not written ({error.strerror})") from None


def read_offer(path: str | Path, plan: Plan) -> Mapping[str, Any]:
    """An offer whose signature holds and which is for this plan."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data["kasuri"] != "shuffle offer" or data["version"] != VERSION:
            raise FormatError(f"{path}: field version: this kasuri reads offers of version {VERSION}")
        said = {key: value for key, value in data.items() if key != "signature"}
        if set(said) != {"kasuri", "version", "plan", "side", "one_time", "public_key"} or len(said["one_time"]) != 64:
            raise FormatError(f"{path}: not an offer")
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(said["public_key"]))
        public.verify(bytes.fromhex(data["signature"]), _CONTEXT + canonical(said))
    except OSError as error:
        raise DomainError(f"{path}: cannot be read ({error.strerror})") from None
    except InvalidSignature:
        raise ProtocolError(f"{path}: the signature does not hold") from None
    except KasuriError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError(f"{path}: not an offer of `kasuri shuffle keygen`") from None
    if said["plan"] != plan.hash:
        raise ProtocolError(f"{path}: was made for another plan; both sides must run the same plan file")
    return said


def _consumed(path: Path) -> bytearray:
    """The bytes of a file that is gone when this returns: overwritten, unlinked, both durably."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        raise ProtocolError(f"{path}: {_GONE}") from None
    try:
        data = bytearray(os.read(handle, BYTES + 1))
        os.pwrite(handle, bytes(len(data)), 0)
        os.fsync(handle)
        os.unlink(path)
    except FileNotFoundError:
        raise ProtocolError(f"{path}: another run consumed the one-time key") from None
    finally:
        os.close(handle)
    sync(path.parent)
    if len(data) != BYTES:
        raise FormatError(f"{path}: not a one-time key of `kasuri shuffle keygen`")
    return data
