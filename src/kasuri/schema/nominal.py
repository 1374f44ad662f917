"""Nominal: categories without an order, which a public tree may group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from kasuri.errors import DomainError, raise_faults
from kasuri.schema import columns
from kasuri.schema.axis import ELSEWHERE, Axis, label_faults, name_faults
from kasuri.schema.columns import Found
from kasuri.schema.tree import Tree


@dataclass(frozen=True)
class Nominal(Axis):
    """Categories without an order; `tree` may group them. Recipes with order="hierarchy" (or "jis", or the nominal
    transform) measure the groups; recipes along another tree refuse a domain that declares one.

    `elsewhere` declares one more label, "elsewhere", a child of the root, for records with any other label: totals then
    count everybody. Records without a label are left out, as they are without it."""

    name: str
    labels: tuple[str, ...] = field()  # else a dataclass would take the None of `Axis` for its default
    tree: Tree | None = None
    elsewhere: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "nominal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        if self.elsewhere:
            self._add_residual()
        faults = name_faults(self.name) + label_faults(self.name, self.labels, len(self.labels))
        if not self.labels:
            faults.append(f"axis {self.name!r}: at least one label is needed")
        if self.tree is not None and sorted(self.tree.leaves) != sorted(self.labels):
            faults.append(f"axis {self.name!r}: the leaves of its tree must be its labels, each once")
        raise_faults(DomainError, faults)

    def _add_residual(self) -> None:
        """The residual label is the last one; an axis that has it there already is left as it is."""
        if self.labels[-1:] != (ELSEWHERE,):
            object.__setattr__(self, "labels", (*self.labels, ELSEWHERE))
        if self.tree is not None and ELSEWHERE not in self.tree.leaves:
            object.__setattr__(self, "tree", Tree((*self.tree.children, ELSEWHERE)))

    def _labelled(self, column: Any, labels: tuple[str, ...]) -> Found:
        if not self.elsewhere:
            return super()._labelled(column, labels)
        found = columns.labelled(column, labels, others=lambda _: len(labels) - 1)
        return [np.maximum(found, 0)], found < 0, f"not a label for axis {self.name!r}"

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        tree = fields["tree"]
        return cls(**{**fields, "tree": None if tree is None else Tree.of(tree)})

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.labels),)

    @property
    def grouped(self) -> bool:
        return self.tree is not None

    def tree_paths(self) -> tuple[tuple[int, ...], ...]:
        if self.tree is None:
            return tuple((i,) for i in range(len(self.labels)))
        paths = dict(self.tree.paths)
        return tuple(paths[label] for label in self.labels)

    def to_json(self) -> dict[str, Any]:
        tree = None if self.tree is None else self.tree.to_json()
        more = {"elsewhere": True} if self.elsewhere else {}
        return {"kind": self.kind, "name": self.name, "labels": list(self.labels), "tree": tree, **more}
