"""Shared settings: no flaky tests (hypothesis is derandomised, every source of noise in a test is seeded)."""

import functools
import hashlib
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))  # tests/reference is importable as `reference`

# Before NumPy is loaded, and for every process that a test starts. Tests run beside each other: threads of matrix
# products then wait for each other in circles (five times the CPU time of a fit), and compiling kasuri's modules once
# more in each of some hundred processes is waste, even where the user wants no such files beside their own programs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Spark starts some fifteen Java processes that live for seconds: to compile well, and to verify the byte code of files
# that were installed by their hashes, costs them more than it saves.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote",
)

settings.register_profile("kasuri", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("kasuri")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The Spark tests first: they wait for executors while the other processes work. Then what one process must do."""

    def rank(item: pytest.Item) -> int:
        return 0 if item.path.parent.name == "spark" else 1 if shares(item.nodeid.partition("::")[0]) else 2

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process for all Spark tests and one for each file that shares what is dear to make (a browser, releases, a
    study), these first; every other test goes wherever there is room. The marks of xdist itself, which
    `--dist loadgroup` reads, have no effect under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith("tests/spark/"):
                return "spark"
            return file if shares(file) else nodeid

    config.option.loadscopereorder = False  # in the order above, not by the number of tests
    return Together(config, log)


@functools.cache
def shares(file: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    return 'scope="module"' in text or "(browser" in text


@pytest.fixture(autouse=True, scope="session")
def commands_once() -> None:
    """The tree of commands is made at the first call of the command line and serves all others of this process."""
    import typer.testing

    typer.testing._get_command = functools.cache(typer.testing._get_command)


@pytest.fixture(autouse=True)
def keys_by_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release keys that a test draws from the operating system come from its name and their number instead, so that a
    release that only `save()` accepts is the same in every run. Other processes, which tests start, draw their own."""
    count = itertools.count()

    def token_bytes(size: int) -> bytes:
        return hashlib.blake2b(f"{request.node.nodeid}|{next(count)}".encode(), digest_size=size).digest()

    monkeypatch.setattr("kasuri.noise.rng.secrets", SimpleNamespace(token_bytes=token_bytes))
