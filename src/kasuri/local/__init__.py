"""Local differential privacy: the device randomises, the collector never sees the truth, the operator estimates.

wards = ks.Nominal("ward", labels=WARDS)
rr = ks.local.unary(wards, epsilon="0.5")
est = ks.local.estimate(rr.randomize(values), rr, method="em")     # est.counts, est.standard_error, est.converged
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Dirichlet": "estimators",
    "Estimate": "estimators",
    "Neighbours": "estimators",
    "Randomizer": "randomizer",
    "Reports": "randomizer",
    "count_mean_sketch": "categorical",
    "estimate": "estimators",
    "from_json": "categorical",
    "grr": "categorical",
    "hadamard": "categorical",
    "olh": "categorical",
    "oue": "categorical",
    "unary": "categorical",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kasuri.local.{_HOME[name]}"), name)
    raise AttributeError(f"module 'kasuri.local' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
