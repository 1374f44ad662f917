"""A randomizer of categories or numbers back from its JSON: the one way that devices, rounds and collectors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kasuri.errors import FormatError, KasuriError
from kasuri.local import categorical, numeric
from kasuri.local.grid import Numeric
from kasuri.local.longitudinal import Memoised
from kasuri.local.randomizer import WIRE_VERSION, Randomizer
from kasuri.privacy import exact
from kasuri.schema import Domain

KINDS: dict[str, type[Randomizer]] = {**categorical.KINDS, "memoised": Memoised}
"""Every class of categories that a description can name."""
NUMBERS = ("hybrid", "piecewise", "square_wave", "two_point")
"""Every kind of numbers that a round can have: those that all clients know."""


def from_json(data: Mapping[str, Any]) -> Randomizer | Numeric:
    """A randomizer from its JSON, checked again: probabilities that lose more than their epsilon are refused."""
    try:
        if data["kasuri"] == "local numeric":
            if data["kind"] not in NUMBERS:
                raise FormatError(f"field kind: a round of numbers is one of {', '.join(NUMBERS)}")
            return numeric.from_json(data)
        if data["kasuri"] != "local randomizer" or data["version"] != WIRE_VERSION:
            raise FormatError(f"field version: this client reads local randomizers of version {WIRE_VERSION}")
        kind = KINDS[data["kind"]]
        names = {f.name for f in fields(kind)} - {"domain", "epsilon"}
        given = {key: value for key, value in data.items() if key in names}
        odd = [key for key, value in given.items() if type(value) is not (bool if key == "elsewhere" else int)]
        unknown = set(data) - names - {"kasuri", "version", "kind", "domain", "epsilon"}
        if odd or unknown or names - set(given):
            raise FormatError(f"fields {sorted({*odd, *unknown, *(names - set(given))})} of the randomizer")
        made = kind(Domain.from_json(data["domain"]), exact(data["epsilon"]), **given)
        if made.kind != data["kind"]:
            raise FormatError(f"field kind: the probabilities are those of {made.kind}")
    except KasuriError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as fault:
        raise FormatError(f"not a randomizer's description: {type(fault).__name__}") from None
    return made
