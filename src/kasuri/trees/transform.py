"""Linear transforms of a table, with inverse and computed sensitivity.

A transform maps leaf values to one flat vector of coefficients. Coefficient i receives noise of scale
`weights[i] * s`, where s = c * cost / epsilon (c: the most one unit adds). `cost` is the largest weighted change
sum_i |change_i| / weights[i] one count can make: computed here from the public tree, checked by brute force in
tests/laws/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Array
from kasuri.schema import Change
from kasuri.trees.order import Order


@dataclass(frozen=True, eq=False)
class Transform:
    """forward: leaf values (flat) -> coefficients; inverse: back; weights: relative noise scale per coefficient;
    cost: change -> weighted L1 change of one count."""

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    weights: Array
    cost: Callable[[Change], Fraction]


def identity(size: int) -> Transform:
    """The cells themselves."""
    return Transform(
        "identity",
        lambda leaves: leaves.copy(),
        lambda values: values.copy(),
        np.ones(size, dtype=np.int64),
        lambda change: identity_cost(size, change),
    )


def identity_cost(size: int, change: Change) -> Fraction:
    """One count changes one cell by 1; a moved count changes two, where there are two."""
    return Fraction(1 if change == "add-remove" or size == 1 else 2)


def levels(possible: NDArray[np.bool_]) -> list[tuple[Array, Array]]:
    """Per level of a binary tree from the top: (left child possible, right child possible) of every node."""
    out = []
    while possible.size > 1:
        out.append((possible[0::2], possible[1::2]))
        possible = possible[0::2] | possible[1::2]
    return out[::-1]


def _split(sums: Array, differences: Array, sides: tuple[Array, Array]) -> Array:
    """Children of every node of a level: (S + D)/2 and (S - D)/2 where measured, else S to the possible child.
    Nodes lie along the first axis."""
    left, right = (side.reshape(-1, *[1] * (sums.ndim - 1)) for side in sides)
    d = np.zeros(sums.shape)
    d[sides[0] & sides[1]] = differences
    out = np.empty((2 * sums.shape[0], *sums.shape[1:]))
    out[0::2] = np.where(left & right, (sums + d) / 2, np.where(left, sums, 0))
    out[1::2] = np.where(left & right, (sums - d) / 2, np.where(right, sums, 0))
    return out


def sum_difference(order: Order) -> Transform:
    """The root sum S and, for every measured node from the top, D = S_left - S_right ([JP6310345B2, eq. 33-36]).

    All coefficients are integers of the counts; one count changes one coefficient per level by 1.
    """
    possible = order.possible_leaves()
    sides = levels(possible)
    ends = np.cumsum([1, *(int((left & right).sum()) for left, right in sides)])

    def forward(leaves: Array) -> Array:
        parts = []
        sums = leaves
        for left, right in reversed(sides):
            parts.append((sums[0::2] - sums[1::2])[left & right])
            sums = sums[0::2] + sums[1::2]
        return np.concatenate([sums, *reversed(parts)])

    def inverse(coefficients: Array) -> Array:
        sums = np.asarray(coefficients[:1], dtype=np.float64)
        for at, side in enumerate(sides):
            sums = _split(sums, coefficients[ends[at] : ends[at + 1]], side)
        return sums

    return Transform("sum_difference", forward, inverse, np.ones(ends[-1], dtype=np.int64), order.cost)


def sum_weights(order: Order, leaves: Array) -> Array:
    """Weights of the coefficients of `sum_difference` in a weighted sum of leaves: the transpose of its inverse.
    Leaves lie along the first axis. (a_l - a_r)/2 on a difference, (a_l + a_r)/2 on the sum above."""
    parts = []
    for left, right in reversed(levels(order.possible_leaves())):
        both = (left & right).reshape(-1, *[1] * (leaves.ndim - 1))
        parts.append(((leaves[0::2] - leaves[1::2]) / 2)[left & right])
        leaves = (leaves[0::2] + leaves[1::2]) / np.where(both, 2, 1)
    return np.concatenate([leaves, *reversed(parts)])


def node_variance(depth: int) -> float:
    """Variance of the sum of a node `depth` measured levels below the root, inverted from noisy coefficients of
    variance 1: a child is (S + D)/2, so v = (v_above + 1)/4 from 1 down; 4^-depth + sum_{i=1..depth} 4^-i."""
    v = 1.0
    for _ in range(depth):
        v = (v + 1) / 4
    return v


def haar(order: Order) -> Transform:
    """Pair means and half differences, W = (cA_k | cD_k | ... | cD_1) ([Terada2015, eq. 12-17]), in floating point.

    cA_k is the sum-difference root over 2^k and cD_i its differences over 2^i; the weights are those powers, so that
    the noise of cD_i has scale lambda / 2^i ([Terada2015, eq. 25]; eq. 38-39 print half of it, see docs/references).
    """
    base = sum_difference(order)
    k = order.depth
    counts = [1, *(int((left & right).sum()) for left, right in levels(order.possible_leaves()))]
    heights = np.repeat(np.array([k, *range(k, 0, -1)]), counts)
    weights = np.ldexp(1.0, -heights)
    return Transform(
        "haar", lambda leaves: base.forward(leaves) * weights, lambda w: base.inverse(w / weights), weights, order.cost
    )


def haar_nd(axes: tuple[Order, ...]) -> Transform:
    """Standard decomposition: the sum-difference transform along every axis in turn ([Xiao2011]); integers.

    Noise of one scale on these integers is Privelet's weighting.
    """
    parts = [sum_difference(order) for order in axes]
    leaves = tuple(order.leaves for order in axes)
    shape = tuple(part.weights.size for part in parts)

    def along(function: str, array: Array) -> Array:
        for axis, part in enumerate(parts):
            array = np.moveaxis(getattr(part, function)(np.moveaxis(array, axis, 0)), 0, axis)
        return array

    return Transform(
        "haar_nd",
        lambda values: along("forward", values.reshape(leaves)).ravel(),
        lambda w: along("inverse", w.reshape(shape)).ravel(),
        np.ones(int(np.prod(shape)), dtype=np.int64),
        lambda change: haar_nd_cost(axes, change),
    )


def haar_nd_cost(axes: tuple[Order, ...], change: Change) -> Fraction:
    """Add-remove: the product of the axes' costs. Replace: the dearest pair of cells, or a unit that drops out."""
    most = math.prod((order.cost("add-remove") for order in axes), start=Fraction(1))
    return most if change == "add-remove" else max(most, _dearest_pair([order.dims[0].size for order in axes]))


def _dearest_pair(sizes: list[int]) -> Fraction:
    """max over cells u, v of the L1 distance of their tensor coefficients.

    Along one axis u has P_u coefficients, v has P_v, and they share p of equal sign and m (0 or 1) of opposite sign.
    Over all axes prod P_u + prod P_v entries differ from 0, of which (prod (p+m) + prod (p-m)) / 2 agree in both and
    cancel, two each. Of an axis only two kinds of pairs can be dearest (docs/proofs/privelet.md): one that parts at the
    root, P = (a, x), p + m = 2, p - m = 0, and one that parts at the full left child of the root, P = (a, a), 3 and 1.
    All axes that part at the root do it in the same direction, and are those with the largest x / a.
    """
    heights = [(size - 1).bit_length() for size in sizes if size > 1]
    most = math.prod(1 + height for height in heights)
    rest = [size - (1 << (size - 1).bit_length() - 1) for size in sizes if size > 1]  # leaves of the right child
    kept = sorted((Fraction(2 + (n - 1).bit_length(), 1 + h) for n, h in zip(rest, heights, strict=True)), reverse=True)
    best, whole = Fraction(0), kept.count(Fraction(1))
    for parted in range(whole, len(kept) + 1):  # where x = a the root is always the better place
        same = 2**parted * 3 ** (len(kept) - parted) + (1 if parted == 0 else 0)
        best = max(best, most * (1 + math.prod(kept[:parted], start=Fraction(1))) - same)
    return best


def nominal(order: Order) -> Transform:
    """The root sum and, for every possible child i of a measured node with f possible children, f S_i - S_parent.

    One count changes the f numbers of each measured node on its path by 2(f-1) in all, the weight of that node.
    """
    fans = fan_levels(order)
    weights = [np.ones(1, dtype=np.int64)]
    for good, radix in fans:
        fan = good.reshape(-1, radix).sum(axis=1)
        keep = good & (np.repeat(fan, radix) > 1)
        weights.append(2 * (np.repeat(fan, radix)[keep] - 1))
    ends = np.cumsum([w.size for w in weights])

    def forward(leaves: Array) -> Array:
        parts = []
        sums = leaves
        for good, radix in reversed(fans):
            above = sums.reshape(-1, radix).sum(axis=1)
            fan = np.repeat(good.reshape(-1, radix).sum(axis=1), radix)
            parts.append((fan * sums - np.repeat(above, radix))[good & (fan > 1)])
            sums = above
        return np.concatenate([sums, *reversed(parts)])

    def inverse(coefficients: Array) -> Array:
        sums = np.asarray(coefficients[:1], dtype=np.float64)
        for at, (good, radix) in enumerate(fans):
            fan = np.repeat(good.reshape(-1, radix).sum(axis=1), radix)
            above = np.repeat(sums, radix)
            sums = np.where(good, above, 0.0)
            keep = good & (fan > 1)
            sums[keep] = (coefficients[ends[at] : ends[at + 1]] + above[keep]) / fan[keep]
        return sums

    return Transform("nominal", forward, inverse, np.concatenate(weights), order.cost)


def fan_levels(order: Order) -> list[tuple[NDArray[np.bool_], int]]:
    """Per level from the top: (which children are possible, radix)."""
    out = []
    good: Any = order.possible_leaves()
    for digit in reversed(order.digits):
        out.append((good, digit.radix))
        good = np.any(good.reshape(-1, digit.radix), axis=1)
    return out[::-1]
