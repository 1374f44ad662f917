"""kasuri: population tables and mesh statistics with differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "BudgetError": "errors",
    "Counts": "table",
    "Domain": "schema",
    "DomainError": "errors",
    "FormatError": "errors",
    "Guarantee": "privacy",
    "KasuriError": "errors",
    "Ledger": "ledger",
    "Mechanism": "recipes",
    "Mesh": "schema",
    "Nominal": "schema",
    "NumericsError": "errors",
    "Ordered": "schema",
    "PrivacyError": "errors",
    "ProtocolError": "errors",
    "PublicMatrix": "public",
    "PublicTable": "public",
    "Release": "published",
    "Time": "schema",
    "Tree": "schema",
    "Unit": "schema",
    "auto": "recipes",
    "bayes_tree": "recipes",
    "compare": "evaluate",
    "count": "ingest",
    "geometric": "recipes",
    "haar_topdown": "recipes",
    "laplace": "recipes",
    "lasso": "recipes",
    "neg_l2_simplex": "recipes",
    "nonneg_lasso": "recipes",
    "privelet": "recipes",
    "refined_tree": "recipes",
    "release": "draw",
    "secure": "rng",
    "seeded": "rng",
    "simplex": "recipes",
    "verify": "manifest",
}

_PACKAGES = ("kanon", "local", "recipes", "shuffle", "spark")
"""Sibling packages that `ks.<name>` imports at first use."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kasuri.{_HOME[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"kasuri.{name}")
    raise AttributeError(f"module 'kasuri' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_PACKAGES])
