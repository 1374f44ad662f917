"""What a release is, written down: datapackage.json with a privacy block, a certificate, a signature, and `verify`."""

from kasuri.manifest.keys import keygen
from kasuri.manifest.package import write
from kasuri.manifest.verify import verify
from kasuri.manifest.withdrawal import notice, withdraw

__all__ = ["keygen", "notice", "verify", "withdraw", "write"]
