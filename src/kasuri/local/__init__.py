"""Local differential privacy: the device randomises, the collector never sees the truth, the operator estimates.

wards = ks.Nominal("ward", labels=WARDS)
rr = ks.local.unary(wards, epsilon="0.5")
est = ks.local.estimate(rr.randomize(values), rr, method="em")     # est.counts, est.standard_error, est.converged
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CollectorKey": "keys",
    "Device": "device",
    "Dirichlet": "estimators",
    "Estimate": "estimators",
    "MemoisedClient": "longitudinal",
    "Neighbours": "estimators",
    "Numeric": "numeric",
    "Randomizer": "randomizer",
    "Reports": "randomizer",
    "Round": "wire",
    "Store": "reports",
    "count_mean_sketch": "categorical",
    "estimate": "estimators",
    "from_columns": "estimators",
    "from_json": "categorical",
    "grr": "categorical",
    "hadamard": "categorical",
    "histogram": "moments",
    "hybrid": "numeric",
    "laplace": "numeric",
    "mean": "moments",
    "memoised": "longitudinal",
    "olh": "categorical",
    "oue": "categorical",
    "piecewise": "numeric",
    "plan": "planning",
    "read_reports": "files",
    "send": "device",
    "serve": "collector",
    "square_wave": "numeric",
    "two_point": "numeric",
    "unary": "categorical",
    "variance": "moments",
    "verify": "wire",
    "write_reports": "files",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kasuri.local.{_HOME[name]}"), name)
    raise AttributeError(f"module 'kasuri.local' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
