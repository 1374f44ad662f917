"""Ordered: categories in an order that matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kasuri.errors import DomainError, raise_faults
from kasuri.schema.axis import Axis, label_faults, name_faults, number_faults


@dataclass(frozen=True)
class Ordered(Axis):
    """Categories in an order that matters (age bands, income classes); `labels` may name them."""

    name: str
    size: int
    labels: tuple[str, ...] | None = None
    kind: ClassVar[str] = "ordered"
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        faults = name_faults(self.name) + number_faults(self.name, "size", self.size)
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(self.labels))
            faults += label_faults(self.name, self.labels, self.size)
        raise_faults(DomainError, faults)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.size,)

    def to_json(self) -> dict[str, Any]:
        labels = None if self.labels is None else list(self.labels)
        return {"kind": self.kind, "name": self.name, "size": self.size, "labels": labels}
