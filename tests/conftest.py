"""Shared settings: no flaky tests (hypothesis is derandomised, every source of noise in a test is seeded)."""

import hashlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tests/reference is importable as `reference`

settings.register_profile("kasuri", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("kasuri")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The Spark tests first and in one process: they wait for executors while the other processes work."""
    spark = [item for item in items if item.path.parent.name == "spark"]
    for item in spark:
        item.add_marker(pytest.mark.xdist_group("spark"))
    items[:] = spark + [item for item in items if item not in set(spark)]


@pytest.fixture(autouse=True)
def keys_by_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release keys that a test draws from the operating system come from its name and their number instead, so that a
    release that only `save()` accepts is the same in every run. Other processes, which tests start, draw their own."""
    count = itertools.count()

    def token_bytes(size: int) -> bytes:
        return hashlib.blake2b(f"{request.node.nodeid}|{next(count)}".encode(), digest_size=size).digest()

    monkeypatch.setattr("kasuri.noise.rng.secrets", SimpleNamespace(token_bytes=token_bytes))
