"""From a position to a public place, on the device: a step of the client, of which nothing but the place is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kasuri.errors import DomainError, raise_faults
from kasuri.local.randomizer import Randomizer

_PLACE = {"lat": "latitude", "lon": "longitude"}


@dataclass(frozen=True)
class Position:
    """Where a device is, in degrees on WGS 84. Its repr does not show it."""

    latitude: float = field(repr=False)
    longitude: float = field(repr=False)

    def __post_init__(self) -> None:
        numbers = [self.latitude, self.longitude]
        good = all(isinstance(x, (int, float, np.floating)) and not isinstance(x, bool) for x in numbers)
        if not good or not (abs(self.latitude) <= 90 and abs(self.longitude) <= 180):  # NaN is refused, too
            raise DomainError("a position is a latitude (-90 to 90) and a longitude (-180 to 180) in degrees")


def place_of(randomizer: Randomizer, position: Position) -> int:
    """The category of the public place in which a position is: of a mesh, a grid, or regions with shapes. A position
    outside all of them is the category "elsewhere", and is refused where there is none.

    The browser's client finds the same place (kasuri-place.js).
    """
    axes = randomizer.domain.axes
    if len(axes) != 1:
        raise DomainError("a position is a place of one axis; this randomizer has several: give a label or a cell")
    axis = axes[0]
    raise_faults(DomainError, axis.place_faults(_PLACE))
    parts = [np.array([float(x)]) for x in (position.latitude, position.longitude)]
    index, wrong, _ = axis.indices(_PLACE, parts)
    if not wrong[0]:
        return int(np.ravel_multi_index([int(part[0]) for part in index], axis.sizes))
    if not randomizer.elsewhere:
        raise DomainError("the position is outside the places of this randomizer, which has no 'elsewhere'")
    return randomizer.size - 1
