"""Ed25519 keys and signatures over the bytes of datapackage.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri import files
from kasuri.errors import DomainError, FormatError

SIGNATURE = "signature.json"
_CONTEXT = b"kasuri release manifest, version 1\n"  # a signature made for another purpose is worth nothing here


def keygen(path: str | Path) -> tuple[Path, Path]:
    """Write a new private key to `path` (readable by its owner only) and the public key to `path`.pub."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret, public = Path(path), Path(f"{path}.pub")
    for file in (secret, public):
        if file.exists():
            raise DomainError(f"{file} exists; a key is never written over. Choose another name")
    key = Ed25519PrivateKey.generate()
    private_text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_text = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files.write(public, public_text, new=True)
    try:
        files.write(secret, private_text, new=True, private=True)
    except DomainError:
        public.unlink(missing_ok=True)  # of no use without the other
        raise
    return secret, public


def private(path: str | Path) -> Any:
    """The private key in a file of `keygen`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    data = _read(path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FormatError(f"{path}: not a private key of `kasuri keygen`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise FormatError(f"{path}: not an Ed25519 key")
    return key


def public_hex(path: str | Path) -> str:
    """The public key in a file of `keygen`, as 64 hexadecimal digits."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = _read(path)
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise FormatError(f"{path}: not a public key of `kasuri keygen` (the file that ends in .pub)") from None
    if not isinstance(key, Ed25519PublicKey):
        raise FormatError(f"{path}: not an Ed25519 key")
    return key.public_bytes_raw().hex()


def signature(key: Any, manifest: bytes) -> dict[str, str]:
    """What signature.json says."""
    return {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(_CONTEXT + manifest).hex(),
    }


def signed(statement: Any, manifest: bytes) -> bool:
    """Does the key named in signature.json vouch for these bytes? Whether to trust that key is another question."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        if set(statement) != {"algorithm", "public_key", "signature"} or statement["algorithm"] != "Ed25519":
            return False
        public, proof = bytes.fromhex(statement["public_key"]), bytes.fromhex(statement["signature"])
        if (public.hex(), proof.hex()) != (statement["public_key"], statement["signature"]):
            return False  # fromhex also takes capitals and blanks: the same key, but not the same file
        Ed25519PublicKey.from_public_bytes(public).verify(proof, _CONTEXT + manifest)
    except (InvalidSignature, ValueError, TypeError, KeyError):
        return False
    return True


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DomainError(f"{path}: the key cannot be read ({error.strerror})") from None
