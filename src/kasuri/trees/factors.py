"""Structural zeros of a tree, padding and mask alike: the dimensions fall into groups, and each group is one factor."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int

Status = NDArray[np.uint8]

NONE, SOME, ALL = 0, 1, 2
"""Status of a node in its factor: no possible leaf, some, all."""


@dataclass(frozen=True)
class Factor:
    """Dimensions whose structural zeros are decided together. `levels` are the tree levels that split it. `status`
    holds one array per own depth (a leaf-by-leaf factor), or None for a single padded axis of `size` leaves."""

    levels: tuple[int, ...]
    radices: tuple[int, ...]
    size: int
    status: tuple[Status, ...] | None = field(repr=False)

    @cached_property
    def whole(self) -> bool:
        """No structural zero at all."""
        if self.status is not None:
            return bool(self.status[0][0] == ALL)
        return self.size == int(np.prod(self.radices, dtype=object)) if self.radices else True

    def of(self, depth: int, prefix: Int) -> Status:
        """Status of the nodes `prefix` at own `depth`."""
        if self.status is not None:
            return self.status[depth][prefix]
        span = int(np.prod(self.radices[depth:], dtype=object)) if depth < len(self.radices) else 1
        first = prefix * span
        return np.where(first >= self.size, NONE, np.where(first + span <= self.size, ALL, SOME)).astype(np.uint8)

    def nodes(self, depth: int) -> int:
        """How many possible nodes it has at own `depth`."""
        if self.status is not None:
            return int((self.status[depth] != NONE).sum())
        span = int(np.prod(self.radices[depth:], dtype=object)) if depth < len(self.radices) else 1
        return -(-self.size // span)

    @cached_property
    def costs(self) -> tuple[list[int], list[Fraction | None]]:
        """Per own depth: the most measured nodes on a possible path below a node there, and the most expensive fork
        (two leaves that part there: f/(f-1) for the fork plus both paths below), None where nothing is measured."""
        if self.status is not None:
            return explicit_costs(self.status, self.radices)
        return padded_costs(len(self.radices), self.size)


def pyramid(leaves: Status, radices: tuple[int, ...]) -> tuple[Status, ...]:
    """Status per own depth, from the root (one node) to the leaves."""
    levels = [leaves]
    for radix in reversed(radices):
        below = levels[-1].reshape(-1, radix)
        least, most = below.min(axis=1), below.max(axis=1)
        levels.append(np.where(most == NONE, NONE, np.where(least == ALL, ALL, SOME)).astype(np.uint8))
    return tuple(reversed(levels))


def explicit_costs(status: tuple[Status, ...], radices: tuple[int, ...]) -> tuple[list[int], list[Fraction | None]]:
    below = np.where(status[-1] == NONE, -1, 0).astype(np.int64)  # measured nodes on the best path; -1: impossible
    paths: list[int] = [0]
    forks: list[Fraction | None] = []
    for depth in range(len(radices) - 1, -1, -1):
        children = np.sort(below.reshape(-1, radices[depth]), axis=1)
        fan = (children >= 0).sum(axis=1)
        measured = fan > 1
        if measured.any():
            two = children[measured, -1] + children[measured, -2]
            forks.append(max(Fraction(int(f), int(f) - 1) + int(two[fan[measured] == f].max())
                             for f in np.unique(fan[measured])))  # fmt: skip
        else:
            forks.append(None)
        below = np.where(fan > 0, children[:, -1] + measured, -1)
        paths.append(int(below.max()))
    return paths[::-1], forks[::-1]


def padded_costs(bits: int, size: int) -> tuple[list[int], list[Fraction | None]]:
    """`explicit_costs` of a binary axis of `size` leaves: at each depth at most one node (the edge) is not whole."""
    paths: list[int] = [0] * (bits + 1)
    forks: list[Fraction | None] = [None] * bits
    edge = -1  # most measured nodes below the node on the edge; -1: no node is on the edge
    for depth in range(bits, -1, -1):
        span, height = 1 << (bits - depth), bits - depth
        inside = size % span  # possible leaves of the node on the edge
        if inside:
            left = edge if inside < span // 2 else height - 1
            right = edge if inside > span // 2 else -1
            if right >= 0:
                forks[depth] = Fraction(2 + left + right)
            edge = max(left, right) + (right >= 0)
        else:
            edge = -1
        whole = height if size >= span else -1
        if whole > 0:
            forks[depth] = max(forks[depth] or Fraction(0), Fraction(2 * height))
        paths[depth] = max(whole, edge)
    return paths, forks
