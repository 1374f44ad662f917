"""Views: which sums somebody will publish, in words, and where they lie in a tree.

A view names axes, separated by commas: "age, sex" is the table of both, summed over all other axes. "grid@3" is the
axis three heights above its cells (squares of 8 x 8), the name of a map its regions; "cells" is every cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kasuri.errors import DomainError
from kasuri.schema import Domain
from kasuri.schema.maps import RegionMap
from kasuri.trees.order import Order
from kasuri.trees.partition import AxisLabels, Partition, axis_labels, axis_level

MAX_GROUPS = 1 << 22
"""Most groups of a part, all of which are drawn."""


@dataclass(frozen=True)
class Term:
    """One axis of a view: so many heights above its cells, or the regions of a map over it."""

    axis: str
    height: int = 0
    map: str | None = None


View = tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Woven:
    """The main tree of a domain with its maps: resolves views."""

    domain: Domain
    tree: Order
    maps: tuple[RegionMap, ...] = ()

    @cached_property
    def ends(self) -> dict[str, tuple[int, ...]]:
        """Per axis: how many of its own splits are above each of its heights, from the cells up to the whole axis."""
        out = {}
        for axis in self.domain.axes:
            positions = self.domain.positions(axis.name)
            own = [digit for digit in self.tree.digits if digit.dim in positions]
            steps = [i for i in range(len(own)) if i == 0 or len(positions) == 1 or own[i].weight != own[i - 1].weight]
            out[axis.name] = (len(own), *reversed(steps)) if own else (0,)
        return out

    def view(self, text: str) -> View:
        """A view from its words; DomainError names what is wrong with it."""
        if text.strip() == "cells":
            return tuple(Term(axis.name) for axis in self.domain.axes)
        terms = []
        maps = {one.name: one for one in self.maps}
        for word in text.split(","):
            name, _, height = word.strip().partition("@")
            if name in maps and not height:
                terms.append(Term(maps[name].axis, 0, name))
            elif name in self.ends and (not height or height.isdigit()):
                up = int(height or 0)
                if up >= len(self.ends[name]):
                    raise DomainError(f"view {text!r}: axis {name!r} has heights 0..{len(self.ends[name]) - 1}")
                terms.append(Term(name, up))
            else:
                known = ", ".join((*self.ends, *maps))
                raise DomainError(f"view {text!r}: {word.strip()!r} is not an axis or a map; known: {known}")
        if len({term.axis for term in terms}) < len(terms):
            raise DomainError(f"view {text!r} names an axis twice; a map is over one of the axes")
        places = [axis.name for axis in self.domain.axes]
        return tuple(sorted(terms, key=lambda term: places.index(term.axis)))

    def words(self, view: View) -> str:
        """The inverse of `view`."""
        return ", ".join(term.map or term.axis + (f"@{term.height}" if term.height else "") for term in view)

    def cut(self, view: View) -> int | None:
        """The depth of the tree whose nodes are the groups of the view; None where there is none."""
        if any(term.map for term in view):
            return None
        wanted = {axis.name: 0 for axis in self.domain.axes}
        wanted |= {term.axis: self.ends[term.axis][term.height] for term in view}
        depth = sum(wanted.values())
        return depth if self.at(depth) == wanted else None

    def at(self, depth: int) -> dict[str, int]:
        """How many splits of every axis are above a depth of the tree."""
        out = {axis.name: 0 for axis in self.domain.axes}
        by_dim = {d: axis.name for axis in self.domain.axes for d in self.domain.positions(axis.name)}
        for digit in self.tree.digits[:depth]:
            out[by_dim[digit.dim]] += 1
        return out

    def view_at(self, depth: int) -> View | None:
        """The view of the nodes at a depth; None where it cuts through a height of an axis."""
        found = []
        for axis, own in self.at(depth).items():
            if own and own not in self.ends[axis]:
                return None
            if own:
                found.append(Term(axis, self.ends[axis].index(own)))
        return tuple(found)

    def heights(self, view: View) -> list[View]:
        """Every height of a view that is a level of the tree, down to itself; nothing of another view."""
        last = self.cut(view)
        found = [] if last is None else [self.view_at(depth) for depth in self.tree.stages if 0 < depth <= last]
        return [one for one in found if one is not None]

    def refines(self, fine: View, view: View) -> bool:
        """Is every sum of `view`, which has no map, one of sums of `fine`?"""
        heights = {term.axis: term.height for term in fine if not term.map}
        return all(term.axis in heights and heights[term.axis] <= term.height for term in view)

    def groups(self, view: View) -> int:
        """How many sums a view has."""
        return math.prod(self._axis(term).count for term in view)

    def partition(self, view: View) -> Partition:
        axes = tuple(self._axis(term) for term in view)
        found = Partition(self.words(view), axes)
        if found.groups > MAX_GROUPS:
            raise DomainError(
                f"view {found.name!r} has {found.groups} sums, all of which would be drawn; at most {MAX_GROUPS} can "
                "be: give a coarser one (axis@height)"
            )
        return found

    def around(self, cuts: Sequence[int], parts: Sequence[Partition] = ()) -> list[Partition]:
        """The partitions whose sums make the expectation of a cell where these depths are measured: the parts, and the
        margins of the axes that are split below the last level above the cells. None on one axis: its neighbours tell
        more."""
        axes = [axis.name for axis in self.domain.axes]
        if len(axes) < 2:
            return []
        last = self.at(cuts[-2] if len(cuts) > 1 else 0)
        split = [axis for axis in axes if last[axis] < self.ends[axis][0]]
        if len(split) == len(axes):  # all of them together are the cells
            wanted: list[View] = [(Term(axis),) for axis in split]
        else:
            wanted = [tuple(Term(axis) for axis in split)]
        found = list(parts)
        for view in wanted:
            if view and self.words(view) not in [part.name for part in found] and self.groups(view) <= MAX_GROUPS:
                found.append(self.partition(view))
        return found

    @cached_property
    def _known(self) -> dict[Term, AxisLabels]:
        return {}

    def _axis(self, term: Term) -> AxisLabels:
        if term not in self._known:
            if term.map is None:
                self._known[term] = axis_level(self.tree, self.domain, term.axis, self.ends[term.axis][term.height])
            else:
                own = next(one for one in self.maps if one.name == term.map)
                labels = own.along(self.domain.axis(term.axis)).labels
                self._known[term] = axis_labels(self.tree, self.domain, term.axis, labels, own.count)
        return self._known[term]


def map_faults(domain: Domain, maps: Sequence[RegionMap]) -> list[str]:
    """What is wrong with maps on a domain."""
    faults = []
    known = {axis.name: axis for axis in domain.axes}
    for one in maps:
        faults += one.faults(known)
        if one.name in known or one.name == "cells" or "," in one.name or "@" in one.name:
            faults.append(f"map {one.name!r}: its name is also that of an axis, or holds a comma or @")
    if len({one.name for one in maps}) < len(maps):
        faults.append("two maps have one name")
    return faults
