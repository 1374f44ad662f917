"""From published measurements to released values, once more: what a release says it was made of, and what it shows.

A refinement sees noisy numbers only, so whoever has them can run it again. Trees of counts follow wholly from their
measurements; a descent of differences follows but for its coins, which can be read off the values. The noise itself
is gone; that there is too little of it for the scale stated can show all the same (docs/guide/budget.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import transform
from kasuri.choose import Choice, choose, refine_of, refined, simulated
from kasuri.errors import FormatError
from kasuri.mechanism import Cuts, Run
from kasuri.noise import laplace_variance
from kasuri.order import Order
from kasuri.published import Measurements, Release
from kasuri.recipes.words import Named
from kasuri.refine import LARGEST
from kasuri.rng import Streams
from kasuri.visit import Visit, Whole
from kasuri.visited import Float, Int, Level, Visited

ROWS = 1 << 23
"""Released cells and measurements are replayed up to so many rows together."""
EVIDENCE = 12
"""Too little noise is a fault where it has a chance below 10^-12."""
_STEPS = 1 << 20  # nodes looked at together: what a file promises below its nodes is not built before it is compared
_KAPPAS = (0.5, 0.8, 0.95, 0.99)
_BETS = (0.01, 0.1, 0.5)
Chances = tuple[Float, Float]
"""Of numbers: how likely noise is to be as small as each, at most; and how likely to be 0."""


def publishes(run: Run) -> bool:
    """Whether a release of this run has measurements."""
    if run.mechanism.transform == "counts":
        return run.mechanism.refine in ("least squares", "bayes", "chosen")
    return run.mechanism.transform == "sum_difference" and run.descent == "plain"


def chosen(run: Run, words: Mapping[str, Any], measured: Measurements | None) -> tuple[Cuts, str, Choice | None]:
    """The shares and the refinement of a count tree, and the words of whoever chose them: the rule once more where a
    pilot chose, any candidate where a simulation did. FormatError where the preset is none of them."""
    if not run.choices or measured is None:
        return run.cuts, run.mechanism.refine, None
    preset = str(words.get("preset"))
    if preset not in run.choices:
        raise FormatError("the preset is not among the candidates")
    if run.mechanism.shares == "simulation" and len(run.choices) > 1:
        return run.choices[preset], refine_of(preset), simulated(run, preset)
    pilot = None
    if run.pilot is not None:
        at, own = run.pilot[0], measured.level == run.pilot[0]
        pilot = Whole(at, run.scale / run.pilot[1], measured.prefix[own], measured.value[own])
    choice = choose(run, pilot, Streams(bytes(32), "no stream is opened"))
    return run.choices[choice.preset], choice.refine, choice


def visited(visit: Visit, measured: Measurements) -> Visited:
    """The visited tree of these measurements; FormatError where they are not the nodes that the visit draws."""
    from kasuri._kernels.visit import keep, water

    if set(np.unique(measured.level).tolist()) - set(visit.cuts) or measured.scale.keys() - set(visit.cuts):
        raise FormatError("a level was not to be measured")
    levels: list[Level] = []
    parents, totals, kept, above = np.zeros(1, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64), 0
    for at, (cut, scale, slack) in enumerate(zip(visit.cuts, visit.scales, visit.slacks, strict=True)):
        own = measured.level == cut
        nodes, y = measured.prefix[own], measured.value[own]
        first = _firsts(visit.order, parents, above, cut, nodes)
        if at == 0:
            totals = np.maximum(y.sum(dtype=np.float64, keepdims=True), 0.0)
        else:
            sizes = np.zeros(levels[-1].y.size + 1, dtype=np.int64)
            sizes[kept + 1] = np.diff(first)
            levels[-1] = Level(levels[-1].prefix, levels[-1].y, levels[-1].x, np.cumsum(sizes))
        x, t = np.zeros(nodes.size), np.empty(parents.size)
        water(y, first, totals, x, t)
        levels.append(Level(nodes, y, x, np.zeros(nodes.size + 1, dtype=np.int64)))
        kept = keep(y, first, t, float(slack * scale))
        parents, totals, above = nodes[kept], x[kept], cut
    return Visited(visit.cuts, visit.scales, visit.slacks, tuple(levels))


def _firsts(tree: Order, parents: Int, start: int, end: int, nodes: Int) -> Int:
    """Where the possible descendants of each parent begin among `nodes`, which must be exactly these."""
    step, at, sizes = max(1, _STEPS // tree.width(start, end)), 0, [np.zeros(1, dtype=np.int64)]
    for low in range(0, parents.size, step):
        wanted, first = tree.children(parents[low : low + step], start, end)
        if not np.array_equal(nodes[at : at + wanted.size], wanted):
            raise FormatError("the measured nodes are not those below the nodes that were kept")
        sizes.append(np.diff(first))
        at += wanted.size
    if at != nodes.size:
        raise FormatError("more nodes were measured than those below the nodes that were kept")
    return np.cumsum(np.concatenate(sizes))


def replayed(run: Run, tree: Visited, refine: str) -> tuple[Int, Int]:
    """Cells and values of a count tree, from its measurements."""
    keys, values = refined(run, tree, refine)
    cells = run.trees[0].cells(keys)
    ranked = np.argsort(cells)[values[np.argsort(cells)] != 0]
    return cells[ranked], values[ranked]


def needs_table(run: Run, refine: str) -> bool:
    """Whether the refinement reads the numbers of a public table that the release only names."""
    return refine == "bayes" and isinstance(run.mechanism.prior, Named)


def descends(run: Run, release: Release) -> bool:
    """Do the values of haar_topdown follow from its measured sum and differences, whatever the coins showed?

    Every node of positive sum S with two possible children was measured, and no other; the difference of its children
    is D, or D +- 1 where D and S differ in parity (the coin), cut to -S .. S.
    """
    tree, measured = run.trees[0], release.measurements
    assert measured is not None
    root = measured.value[measured.level == -1]
    if root.size != 1 or measured.prefix[measured.level == -1] != 0 or measured.level.min() < -1:
        return False
    if measured.level.max() >= tree.depth or int(root[0]) > LARGEST or release.values.dtype != np.int64:
        return False
    keys = tree.keys(release.cells)
    ranked = np.argsort(keys)
    nodes, sums = keys[ranked], release.values[ranked]
    if sum(sums.tolist()) != max(int(root[0]), 0) or (sums <= 0).any():
        return False
    for depth in range(tree.depth - 1, -1, -1):
        starts = np.flatnonzero(np.diff(nodes >> 1, prepend=-1))
        left = np.add.reduceat(np.where(nodes & 1 == 0, sums, 0), starts) if starts.size else sums
        nodes, sums = nodes[starts] >> 1, np.add.reduceat(sums, starts) if starts.size else sums
        both = np.diff(tree.children(nodes, depth, depth + 1)[1]) == 2
        own = measured.level == depth
        if not np.array_equal(measured.prefix[own], nodes[both]):
            return False
        S, D, found = sums[both], measured.value[own], (left - (sums - left))[both]
        odd, D = (D ^ S) & 1, np.clip(D, -S - 1, S + 1)
        if not ((found == np.clip(D - odd, -S, S)) | (found == np.clip(D + odd, -S, S))).all():
            return False
    return True


def near(cells: Int, values: Int, other: tuple[Int, Int]) -> bool:
    """Whether two tables of one total differ by no more than rounding does on another machine: by at most 1 in all
    cells but one of a hundred."""
    both = np.union1d(cells, other[0])
    one, two = np.zeros(both.size), np.zeros(both.size)
    one[np.searchsorted(both, cells)] = values
    two[np.searchsorted(both, other[0])] = other[1]
    far = int(np.count_nonzero(np.abs(one - two) > 1))
    return sum(values.tolist()) == sum(other[1].tolist()) and 100 * far <= both.size


def too_little_noise(run: Run, release: Release, tree: Visited | None) -> bool | None:
    """Whether the noisy numbers lie so near to 0, or to one another, that noise of their scale has a chance below
    10^-12 of it, whatever the counts are. None where the release shows no noisy number.

    Noise N is symmetric and falls away from 0, so count + N is at least as far from 0 as N (in law): the chance that
    |count + N| <= d is at most p = P(|N| <= d). Likewise a noisy parent and the sum of its f noisy children, which are
    drawn after it, with p = (2 d + 1) / sqrt(1 + 2 f v), v the variance of a child: by Bernoulli's inequality on
    characteristic functions a sum of f such numbers is 0 at most as often as one of variance f v. Evidence is a product
    over numbers drawn one after the other whose factors have mean at most 1, however many are drawn: above 10^12 with a
    chance of at most 10^-12 [Ville1939].
    """
    mechanism, measured = run.mechanism, release.measurements
    if tree is not None:
        own = [_chances(level.y, float(scale)) for level, scale in zip(tree.levels, tree.scales, strict=True)]
        evidence = float(np.logaddexp(_evidence(own), _evidence(_apart(tree, run)))) - math.log(2)
    elif measured is not None:
        evidence = _evidence([_chances(measured.value, float(run.scale))])
    elif mechanism.transform == "identity" and mechanism.refine == "none":
        absent = int(run.domain.possible_dense().sum()) - release.cells.size
        values = np.append(release.values.astype(np.float64), np.zeros(absent))
        evidence = _evidence([_chances(values, float(run.scale), mechanism.noise == "float Laplace")])
    elif mechanism.refine == "inverse" and mechanism.transform in ("sum_difference", "haar_nd"):
        coefficients = _coefficients(run, release)
        if coefficients is None:
            return None
        evidence = _evidence([_chances(np.rint(coefficients), float(run.scale))])
    else:
        return None
    return evidence > EVIDENCE * math.log(10)


def _chances(values: NDArray[Any], scale: float, continuous: bool = False) -> Chances:
    """P(|N| <= |value|) of each: 1 - exp(-d/s), or on the integers 1 - 2 a^(d+1) / (1 + a) with a = exp(-1/s), written
    without cancellation; and that of 0."""
    distance = np.abs(values.astype(np.float64))
    if continuous:
        return -np.expm1(-distance / scale), np.full(distance.size, 1e-300)
    a = math.exp(-1 / scale)
    p = (-np.expm1(-(distance + 1) / scale) - a * np.expm1(-distance / scale)) / (1 + a)
    return p, np.full(distance.size, -math.expm1(-1 / scale) / (1 + a))


def _apart(tree: Visited, run: Run) -> list[Chances]:
    """The chances of each noisy parent and the sum of its noisy children; where a pilot was drawn first, its own
    parents are left out."""
    out = []
    for at, (level, below) in enumerate(zip(tree.levels[:-1], tree.levels[1:], strict=True)):
        kept = np.diff(level.first) > 0
        if kept.any() and (run.pilot is None or tree.cuts[at + 1] != run.pilot[0]):
            sums = np.add.reduceat(below.y.astype(np.float64), level.first[:-1][kept])
            zero = 1 / np.sqrt(1 + 2 * np.diff(level.first)[kept] * laplace_variance(tree.scales[at + 1]))
            out.append((np.minimum((2 * np.abs(level.y[kept] - sums) + 1) * zero, 1.0), zero))
    return out


def _coefficients(run: Run, release: Release) -> NDArray[Any] | None:
    """The noisy coefficients that were inverted; None where the inverse lost some in padding or a mask."""
    domain = run.domain
    if run.mechanism.transform == "sum_difference":
        tree = run.trees[0]
        leaves = np.zeros(tree.leaves)
        leaves[tree.keys(release.cells)] = release.values
        return transform.sum_difference(tree).forward(leaves)
    if domain.mask or tuple(tree.leaves for tree in run.trees) != domain.shape:
        return None
    dense = np.zeros(domain.size)
    dense[release.cells] = release.values
    return transform.haar_nd(run.trees).forward(dense)


def _evidence(parts: list[Chances]) -> float:
    """log of a mean of products over all numbers: of kappa p^(kappa - 1), which finds numbers that are all too small,
    and of bets of a share q on 0, whose chance is at most p0: 1 - q + q / p0 where it comes, else 1 - q."""
    each = np.zeros(len(_KAPPAS) + len(_BETS))
    for p, zero in parts:
        logs, hit = float(np.log(np.maximum(p, 1e-300)).sum()), p <= zero
        each[: len(_KAPPAS)] += [p.size * math.log(kappa) + (kappa - 1) * logs for kappa in _KAPPAS]
        each[len(_KAPPAS) :] += [float(np.where(hit, np.log(1 - q + q / zero), math.log(1 - q)).sum()) for q in _BETS]
    return float(np.logaddexp.reduce(each)) - math.log(each.size)
