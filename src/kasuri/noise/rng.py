"""Random bits. Bits live here, distributions in `noise`; there is no global generator.

A Source gives one fresh 256-bit release key per release. Every fixed block of a table has its own AES-256-CTR
keystream under

    block key = BLAKE2b-256(key = release key, recipe | purpose | level | block address),   counter from 0,

so that any number of threads and any partitioning draw the same bits for the same place, and a task that runs
again draws no second noise. Purposes ("noise", "coin", "tie", ...) never share a stream.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import PrivacyError

Words = NDArray[Any]
"""An array of uint32 or uint64."""

_CHUNK = 1 << 17  # bytes of keystream made at a time: stays in the second-level cache


@dataclass(frozen=True)
class Source:
    """Where release keys come from: the operating system, or (for tests only) a visible seed."""

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None and (not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0):
            raise PrivacyError("seeded(n) takes a whole number n >= 0")

    @property
    def secure(self) -> bool:
        return self.seed is None

    def words(self) -> str:
        """How a release names its source."""
        return "operating system, AES-256-CTR" if self.secure else f"seeded({self.seed}), for tests only"

    def release_key(self) -> bytes:
        """A 256-bit key: fresh on every call for `secure()`, always the same for `seeded(n)`."""
        if self.seed is None:
            return secrets.token_bytes(32)
        return hashlib.blake2b(str(self.seed).encode(), digest_size=32, person=b"kasuri seeded").digest()


def secure() -> Source:
    """The default source: a fresh key from the operating system for every release."""
    return Source()


def seeded(seed: int) -> Source:
    """A repeatable source for tests and papers. A seeded release says so, and `save()` refuses it."""
    if seed is None:
        raise PrivacyError("seeded(n) takes a whole number n >= 0")
    return Source(seed)


@dataclass(frozen=True)
class Streams:
    """All keystreams of one release: `Streams(release key, recipe).open(purpose, level, block)`."""

    key: bytes
    recipe: str

    def __repr__(self) -> str:
        return f"Streams({self.recipe!r})"

    def block_key(self, purpose: str, level: int, block: int) -> bytes:
        address = f"{self.recipe}|{purpose}|{level}|{block}".encode()
        return hashlib.blake2b(address, key=self.key, digest_size=32).digest()

    def open(self, purpose: str, level: int = 0, block: int = 0) -> Stream:
        tie_key = partial(self.block_key, f"{purpose}.tie", level, block)
        return Stream(self.block_key(purpose, level, block), tie_key)


class Stream:
    """One keystream, read once from the start, and beside it further bits for single words (`tie`)."""

    def __init__(self, key: bytes, tie_key: Callable[[], bytes]) -> None:
        self._key = key
        self._tie_key = tie_key
        self.drawn = 0
        """Words drawn so far; a stream is read in words of one size only."""

    @cached_property
    def _cipher(self) -> Any:
        """Made when the first word is read: many a stream of a tree is never read."""
        cipher, aes, mode = _counter_mode()
        return cipher(aes(self._key), mode).encryptor()

    def __reduce__(self) -> Any:
        raise TypeError("a keystream is not copied: both would read the same bits")

    def fill(self, out: Words) -> None:
        """Overwrite `out` with the next words of the keystream."""
        view = memoryview(out.view(np.uint8).data)
        for start in range(0, len(view), _CHUNK):
            part = view[start : start + _CHUNK]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        self.drawn += out.size

    def tie(self, word: int, turn: int) -> int:
        """64 further bits for word number `word`, the `turn`-th time it asks: the same wherever chunks were cut."""
        digest = hashlib.blake2b(f"{word}|{turn}".encode(), key=self._tie_key(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


@cache
def _counter_mode() -> tuple[Any, Any, Any]:
    """What a keystream is made of, looked up once: a release opens thousands."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher, algorithms.AES, modes.CTR(bytes(16))


_ZEROS = memoryview(bytes(_CHUNK))
