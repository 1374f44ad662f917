"""Two organisations, one table that nobody can trace: pseudonymise, randomise, shuffle, forget, join.

plan = ks.shuffle.Plan(key="phone", a=("age",), b=("spend",), bounds={"age": (20, 80), "spend": (0, 1000)},
                       epsilon_each="1", delta=1e-8)
with ks.shuffle.Party(plan, "a", secret) as a: table_a = a.run(rows_a)
joined = ks.shuffle.join(plan, table_a, table_b)
ks.shuffle.covariance(joined); ks.shuffle.synthesize(joined, rows=100_000)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Bound": "bounds",
    "Claims": "plan",
    "Joined": "joined",
    "Party": "party",
    "Plan": "plan",
    "Secret": "secret",
    "Shuffled": "party",
    "attack": "bounds",
    "bounds_of": "bounds",
    "contingency": "statistics",
    "covariance": "statistics",
    "exchange": "secret",
    "join": "joined",
    "logistic": "models",
    "pca": "models",
    "quality": "synthesis",
    "regression": "models",
    "report": "overview",
    "summary": "overview",
    "svm": "models",
    "synthesize": "synthesis",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kasuri.shuffle.{_HOME[name]}"), name)
    raise AttributeError(f"module 'kasuri.shuffle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
