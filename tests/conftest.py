"""Shared settings: no flaky tests (hypothesis is derandomised, every source of noise in a test is seeded)."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tests/reference is importable as `reference`

settings.register_profile("kasuri", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("kasuri")
