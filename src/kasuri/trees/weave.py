"""Trees in which several axes of one kind are split together, level by level: "interleaved".

A pair of regions, or of squares of two meshes, is then a node. Meshes come first, then axes with a public tree of
labels, then long axes by halves; small axes come last, all at once. Where depths differ, levels are aligned at the
cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kasuri.schema import Axis, Domain
from kasuri.trees import order
from kasuri.trees.order import Digit, Dim, Order, along, beside, built

TAIL = 256
"""Small axes are split all at once, below everything else, while they have at most so many (padded) cells together."""

Step = tuple[Digit, ...]


@dataclass(frozen=True, eq=False)
class Staged(Order):
    """A tree that says itself where blocks of a user's kind end."""

    ends: tuple[int, ...]

    @property
    def stages(self) -> tuple[int, ...]:
        return self.ends


def interleaved(domain: Domain) -> Order:
    """The tree described above. Every depth in `stages` splits one level of every axis that is interleaved."""
    first, beyond = beside(domain)
    dims: dict[int, Dim] = dict(enumerate(first))
    kinds: dict[str, list[list[Step]]] = {"mesh": [], "tree": [], "long": [], "small": []}
    room = TAIL
    for axis in reversed(domain.axes):
        steps, kind = _steps(axis, domain, dims, beyond), _kind(axis)
        width = math.prod(digit.radix for step in steps for digit in step)
        if kind == "long" and width <= room:
            kind, room = "small", room // max(width, 1)
        kinds[kind].insert(0, steps)
    stages: list[Step] = []
    for together in (kinds["mesh"], kinds["tree"], *([steps] for steps in kinds["long"])):
        deepest = max((len(steps) for steps in together), default=0)
        for left in range(deepest, 0, -1):
            stages.append(tuple(digit for steps in together if len(steps) >= left for digit in steps[-left]))
    stages.append(tuple(digit for steps in kinds["small"] for step in steps for digit in step))
    digits, ends = [], [0]
    for stage in stages:
        digits += [digit for digit in stage if digit.radix > 1]
        if len(digits) > ends[-1]:
            ends.append(len(digits))
    base = built("interleaved", domain, tuple(dims[d] for d in range(len(dims))), tuple(digits))
    return Staged(base.name, base.dims, base.digits, base.factors, tuple(ends))


def make(word: str, domain: Domain, interleave: tuple[str, ...]) -> Order:
    """The tree of counts that a word names: one of `order.make`, or this one."""
    return interleaved(domain) if word == "interleaved" else order.make(word, domain, interleave)


def _kind(axis: Axis) -> str:
    if axis.plane is not None:
        return "mesh"
    return "tree" if axis.grouped else "long"


def _steps(axis: Axis, domain: Domain, dims: dict[int, Dim], beyond: dict[int, Digit]) -> list[Step]:
    """The splits of one axis from the top; `dims` learns where labels are among the padded leaves."""
    positions = domain.positions(axis.name)
    paths = axis.tree_paths()
    if paths is None:
        last = {d: (beyond[d].weight if d in beyond else domain.shape[d]) - 1 for d in positions}
        levels = range(max(last.values()).bit_length() - 1, -1, -1)
        steps = [tuple(Digit(d, 1 << b, 2) for d in positions if last[d] >> b) for b in levels]
        return [(beyond[d],) for d in positions if d in beyond] + steps
    dims[positions[0]], digits = along(paths, positions[0])
    return [(digit,) for digit in digits]
