"""njit with a disk cache that believes no damaged file.

numba runs whatever machine code its cache files hold: a flipped bit in them could change the noise and nobody would
know. Here every file begins with a digest of its content, its name, numba's version and the kernel's source; what does
not fit is compiled again. This finds accidents: whoever may write these files may as well change the source. Where
nothing can be cached (a read-only installation without a home, a full disk) kernels are compiled in every process.
"""

import contextlib
import hashlib
import os
import pickle

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

_DIGEST = 32


def njit(**options):
    """numba.njit(nogil=True, **options), cached."""

    def compiled(function):
        made = numba.njit(nogil=True, **options)(function)
        with contextlib.suppress(RuntimeError):  # numba found no folder it may write to
            made._cache = _Cache(function)
        return made

    return compiled


class _Cache(FunctionCache):
    def __init__(self, function):
        super().__init__(function)
        # numba's stamp is a digest of this one source file: kernel modules take no function from each other
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig, target_context):
        with contextlib.suppress(OSError):
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig, data):
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _Files(IndexDataCacheFile):
    """Index and data, each as digest | pickle."""

    def _load_index(self):
        try:
            return self._read(self._index_path)
        except OSError:
            return {}

    def _save_index(self, overloads):
        self._write(self._index_path, overloads)

    def _load_data(self, name):
        return self._read(self._data_path(name))

    def _save_data(self, name, data):
        self._write(self._data_path(name), data)

    def _read(self, path):
        with open(path, "rb") as file:
            content = file.read()
        if content[:_DIGEST] != self._digest(path, content[_DIGEST:]):
            raise OSError("damaged, or made from another source")  # numba takes it as a file that is not there
        return pickle.loads(content[_DIGEST:])

    def _write(self, path, data):
        body = self._dump(data)
        with self._open_for_write(path) as file:  # aside, then renamed
            file.write(self._digest(path, body) + body)

    def _digest(self, path, body):
        about = f"{self._version}|{os.path.basename(path)}|{self._source_stamp!r}|".encode()
        return hashlib.sha256(about + body).digest()
