"""Grids with codes of their own: one file each, whose name is the word for the scheme and whose `SCHEME` is its value.

Nothing lists them: a new scheme is a new file here (docs/guide/geography.md).
"""

from __future__ import annotations

import importlib
import pkgutil

from kasuri.schema.schemes.scheme import Lines, Scheme

__all__ = ["Lines", "Scheme", "scheme", "words"]


def words() -> list[str]:
    """The words for all schemes."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "scheme")


def scheme(word: str) -> Scheme | None:
    """The scheme that a word names; None where it names none."""
    if word not in words():
        return None
    found: Scheme = importlib.import_module(f"{__name__}.{word}").SCHEME
    return found
