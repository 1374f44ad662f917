"""The collector's secret: one 32-byte Ed25519 seed in a file that only its owner can read."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kasuri import files
from kasuri.errors import DomainError, FormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class CollectorKey:
    """Signs round descriptions; the key of the token hashes is derived from it."""

    signing: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> CollectorKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def open(cls, path: str | Path) -> CollectorKey:
        """Read the key file, or make it (mode 0600) where there is none."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if not os.path.lexists(path):
            made = cls.generate()
            try:
                files.write(path, made.signing.private_bytes_raw().hex() + "\n", new=True, private=True)
                return made
            except DomainError:
                if not os.path.lexists(path):  # else another process made it meanwhile
                    raise
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(Path(path).read_text().strip())))
        except ValueError:
            raise FormatError("the collector's key file must hold 64 hexadecimal digits") from None

    @property
    def public(self) -> str:
        """The public key that clients pin, in hexadecimal digits."""
        return self.signing.public_key().public_bytes_raw().hex()

    @property
    def token_key(self) -> bytes:
        return hashlib.blake2b(self.signing.private_bytes_raw(), digest_size=32, person=b"kasuri token").digest()
