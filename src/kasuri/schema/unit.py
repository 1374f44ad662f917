"""Unit: who is protected; Part: which part of a public partition a table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kasuri import names
from kasuri.errors import PrivacyError, raise_faults

PROVIDER_BOUNDED = "the provider bounded each unit's contributions (the table came pre-aggregated)"
"""The caveat of a table that was counted elsewhere."""

ROWS_ALONE = "rows depend on their own id alone"
"""What a person vouches for where kasuri cannot see that each record is mapped by itself."""

Change = Literal["add-remove", "replace"]


@dataclass(frozen=True)
class Unit:
    """Who is protected: the only source of sensitivity.

    `id` names the id column; `change` is the neighbour relation: "add-remove" (a unit and all its records enter or
    leave) or "replace" (a unit's records change, the unit stays). One unit is counted in at most `max_cells` different
    cells, once in each, or at most `max_weight` times in each where records carry a weight. `max_sum` is the most that
    the amounts of one unit's records add up to in one cell, where sums are published (`count(sum=...)`). per="slot":
    all of that in each slot of a series of tables (`Window`); without it, in all the data.
    """

    id: str
    change: Change
    max_cells: int
    max_weight: int | None = None
    per: Literal["slot"] | None = None
    max_sum: int | None = None

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.id, str) or not self.id:
            faults.append("unit: id must name the column that tells one unit from another")
        else:
            faults += names.faults(self.id, "unit: id")
        if self.change not in ("add-remove", "replace"):
            faults.append('unit: change must be "add-remove" or "replace"')
        for what in ("max_cells", "max_weight", "max_sum"):
            value = getattr(self, what)
            if value is None and what != "max_cells":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 40:
                faults.append(f"unit: {what} must be a whole number from 1 to 2^40")
        if self.max_weight is not None and self.max_sum is not None:
            faults.append("unit: max_weight bounds a count by weights, max_sum a sum: give one of them")
        if self.per not in (None, "slot"):
            faults.append('unit: per must be "slot", or be left out')
        raise_faults(PrivacyError, faults)

    @property
    def each(self) -> int:
        """The most one unit adds to one cell."""
        return self.max_weight or self.max_sum or 1

    @property
    def most(self) -> int:
        """The most one unit adds to the table, over all cells (c in the proofs)."""
        return self.max_cells * self.each

    def words(self) -> str:
        """The relation in words, for a certificate."""
        weight = "" if self.max_weight is None else f", each counted at most {self.max_weight} times"
        weight = weight if self.max_sum is None else f", with a sum of at most {self.max_sum} in each"
        cells = "1 cell" if self.max_cells == 1 else f"at most {self.max_cells} cells"
        if self.per == "slot":
            act = "enter or leave the data" if self.change == "add-remove" else "change"
            return f"the records of one {self.id} in one slot, in {cells}{weight}, {act}"
        act = "enters or leaves the data" if self.change == "add-remove" else "changes its records"
        return f"one {self.id}, in {cells}{weight}, {act}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "change": self.change,
            "max_cells": self.max_cells,
            "max_weight": self.max_weight,
            **({} if self.per is None else {"per": self.per}),
            **({} if self.max_sum is None else {"max_sum": self.max_sum}),
        }


@dataclass(frozen=True)
class Part:
    """Which part of a public partition a table is: `split` is drawn once per `Counts.split`, `name` a public label."""

    split: str
    name: str

    def __post_init__(self) -> None:
        raise_faults(PrivacyError, [*names.faults(self.split, "a split"), *names.faults(self.name, "a part's name")])
