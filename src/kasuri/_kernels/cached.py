"""njit with a disk cache that believes no damaged file.

numba runs whatever machine code its cache files hold: a flipped bit in them could change the noise and nobody would
know. Here every file begins with a digest of its content, its name, numba's version and the kernel's source; what does
not fit is compiled again. This finds accidents: whoever may write these files may as well change the source. Where
nothing can be cached (a read-only installation without a home, a full disk) kernels are compiled in every process.

A wheel may carry kernels that are compiled already (`python3 run.py wheel`), for any processor of level x86-64-v3: they
are taken where this machine has compiled none itself.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import pickle

import numba
from llvmlite import binding
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

_DIGEST = 32
_KNOWN = ("0.68.",)
"""Versions of numba whose machine code was seen to run without what compiling needs (tests/laws/test_cached.py)."""
SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compiled")
"""Where a wheel carries compiled kernels."""
_LEVEL = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")
"""What a processor of level x86-64-v3 has."""


def njit(**options):
    """numba.njit(nogil=True, **options), cached."""

    def compiled(function):
        made = numba.njit(nogil=True, **options)(function)
        with contextlib.suppress(RuntimeError):  # numba was told of places where nothing can be cached
            made._cache = _Cache(function)
        return made

    return compiled


def _known():
    return numba.__version__.startswith(_KNOWN)


@functools.cache
def _shipped_for(triple):
    """The target (as numba names it) that shipped kernels were compiled for; None where there are none, or this
    processor lacks something they use."""
    try:
        with open(os.path.join(SHIPPED, "target.json"), encoding="ascii") as file:
            target = tuple(json.load(file))
    except (OSError, ValueError):
        return None
    has = binding.get_host_cpu_features()
    return target if target[0] == triple and all(has.get(name) for name in _LEVEL) else None


class _Nowhere(_SourceFileBackedLocatorMixin, _CacheLocator):
    """The last of numba's places for a cache: one that nobody can write to, so that shipped kernels are found."""

    def __init__(self, function, file):
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function, file):
        return cls(function, file)

    def get_cache_path(self):
        return os.path.join(SHIPPED, "nowhere")

    def ensure_cache_path(self):
        raise OSError("nothing can be cached here")


class _Impl(CompileResultCacheImpl):
    _locator_classes = [*CompileResultCacheImpl._locator_classes, _Nowhere]  # noqa: RUF012


class _Cache(FunctionCache):
    _impl_class = _Impl

    def __init__(self, function):
        super().__init__(function)
        # numba's stamp is a digest of this one source file: kernel modules take no function from each other
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)
        self._shipped = _Files(SHIPPED, self._impl.filename_base, stamp)

    def load_overload(self, sig, target_context):
        with contextlib.suppress(OSError):
            if _known():
                # numba's own method first imports and registers all that compiling needs, a third of a short command.
                # Machine code needs the runtime of arrays only; a compilation does the rest.
                rtsys.initialize(target_context)
            else:
                target_context.refresh()
            with self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)
                return self._load_shipped(sig, target_context) if found is None else found
        return None

    def _load_shipped(self, sig, target_context):
        key = self._index_key(sig, target_context.codegen())
        target = _shipped_for(key[1][0])
        data = None if target is None else self._shipped.load((key[0], target, key[2]))
        return None if data is None else self._impl.rebuild(target_context, data)

    def save_overload(self, sig, data):
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _Reader(pickle.Unpickler):
    """Reads a kernel without importing the modules that its functions are from (those of numba's own bring SciPy, a
    tenth of a short command): machine code looks up constants in its environment, never names."""

    def find_class(self, module, name):
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


def _environment(module, constants, name):
    found = lookup_environment(name)
    if found is None:
        found = Environment._memo[name] = Environment({"__name__": module})
        found.consts[:] = constants
        found.env_name = name
    return found


class _Files(IndexDataCacheFile):
    """Index and data, each as digest | pickle."""

    def load(self, key):
        """Kept with its key: of two processes that compile one kernel for two types at a time, one may write the index
        last and the other the data that it names."""
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def save(self, key, data):
        super().save(key, (key, data))

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
        return _Reader(io.BytesIO(content[_DIGEST:])).load() if _known() else pickle.loads(content[_DIGEST:])

    def _write(self, path, data):
        body = self._dump(data)
        with self._open_for_write(path) as file:  # aside, then renamed
            file.write(self._digest(path, body) + body)

    def _digest(self, path, body):
        about = f"{self._version}|{os.path.basename(path)}|{self._source_stamp!r}|".encode()
        return hashlib.sha256(about + body).digest()
