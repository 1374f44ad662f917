"""What the views of a woven tree are by themselves: those that a domain has, their shares, and those that are held."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from kasuri.arrays import Float
from kasuri.recipes.targets import Form, Sums, shares_for
from kasuri.recipes.views import MAX_GROUPS, Term, View, Woven

HELD = 2
"""Which sums `whole` holds (`anchored`); a release without the word holds those of 1."""
ANCHORED = 16
"""Where all cells are measured, sums of so many of them and more are held at what the noisy cells say: what makes cells
non-negative moves people from large cells to empty ones, a little each, which adds up."""


def standard(weave: Woven) -> list[View]:
    """The views of a domain by itself: every height of its tree, every axis, all small axes together, every map."""
    found = [weave.view_at(depth) for depth in weave.tree.stages[1:]]
    axes = [axis.name for axis in weave.domain.axes]
    if len(axes) > 1:
        found += [(Term(axis),) for axis in axes]
        last = weave.at(weave.tree.stages[-2])
        tail = tuple(Term(axis) for axis in axes if last[axis] < weave.ends[axis][0])
        found.append(tail)
    found += [(Term(one.axis, 0, one.name),) for one in weave.maps]
    out: list[View] = []
    for view in found:
        if view and view not in out:
            out.append(view)
    return out


def crossed(weave: Woven) -> list[View]:
    """Those of `standard`, and every height of the tree by all small axes together: what no sum of the tree and no
    margin tells. Counties by race had seven times the error of plain noise without."""
    found = standard(weave)
    last = weave.at(weave.tree.stages[-2]) if len(weave.tree.stages) > 1 else {}
    tail = [axis for axis in last if last[axis] < weave.ends[axis][0]]
    if tail and len(tail) < len(last):
        stages = weave.tree.stages
        for depth in dict.fromkeys((stages[1], stages[(len(stages) - 1) // 2])):
            above = weave.view_at(depth)
            if above:
                view = weave.view(", ".join((weave.words(above), *tail)))
                if weave.groups(view) <= MAX_GROUPS:
                    found.append(view)
    return found


def every(weave: Woven) -> list[View]:
    """Those of `crossed`, and every axis at every height."""
    found = crossed(weave)
    for name, ends in weave.ends.items():
        own: list[View] = [(Term(name, height),) for height, end in enumerate(ends) if end > 0]
        found += [view for view in own if view not in found]
    return found


def planned(weave: Woven, wished: dict[View, Fraction]) -> dict[View, Fraction]:
    """Shares for wished errors of views (0: as good as the fourth root of its number of cells); without any, those of
    `standard`."""
    domain = weave.domain
    cells = tuple(weave.view("cells"))
    views = wished or dict.fromkeys(standard(weave), Fraction(0))
    sums = {view: sums_of(weave, view) for view in (*views, cells)}
    n = float(domain.size)
    targets = tuple(float(views[view]) or (n / sums[view].groups) ** 0.25 for view in views)
    measured = list(dict.fromkeys((*views, cells)))
    form = Form(
        tuple(sums_of(weave, cells).counts), tuple(sums[view] for view in measured), tuple(sums[view] for view in views)
    )
    shares = shares_for(form, targets, (measured.index(cells),))
    return {view: share for view, share in zip(measured, shares, strict=True) if share}


def anchored(weave: Woven, held: int) -> list[View]:
    """The sums of noisy cells that are held where all cells are measured: those of `standard`; from 2 on also those of
    several axes together, each at its top height (one without a tree or a plane: itself); from 3 on every axis at every
    height; from 4 on those of `crossed`. Without them counties by race had 3.2 times the error of plain noise, though
    both margins were held, work places in squares of 2 x 2 1.2 times, and ages in squares of 16 x 16 1.13 times."""
    found = standard(weave)
    if held > 3:
        found += [view for view in crossed(weave) if view not in found]
    if held > 2 and len(weave.domain.axes) > 1:
        for name, ends in weave.ends.items():
            every: list[View] = [(Term(name, height),) for height, end in enumerate(ends) if end > 0]
            found += [view for view in every if view not in found]
    if held > 1:
        tops: list[tuple[Term | None, ...]] = []
        for axis in weave.domain.axes:
            heights = [height for height, end in enumerate(weave.ends[axis.name]) if end > 0] or [0]
            folds = axis.name in weave.domain.grouped or axis.plane is not None
            tops.append((None, Term(axis.name, heights[-1] if folds else 0)))
        for chosen in product(*tops):
            view = tuple(term for term in chosen if term is not None)
            if len(view) > 1 and view not in found:
                found.append(view)
    return found


def least_squares(weave: Woven, measured: Sequence[tuple[View, Fraction]], views: Sequence[View]) -> Float:
    """The variance of a sum of each view by least squares on measured views and their shares, without sign or prior,
    where one count alone has scale 1."""
    told, asked = (tuple(sums_of(weave, view) for view in some) for some in ((view for view, _ in measured), views))
    form = Form(sums_of(weave, weave.view("cells")).counts, told, asked)
    return form.variances(np.array([float(share) for _, share in measured]))


def sums_of(weave: Woven, view: View) -> Sums:
    counts = [1] * len(weave.domain.axes)
    names = [axis.name for axis in weave.domain.axes]
    for term in view:
        counts[names.index(term.axis)] = weave.groups((term,))
    return Sums(tuple(counts), any(term.map for term in view))
