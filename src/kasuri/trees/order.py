"""A public tree over the cells of a domain: the order of its levels, its structural zeros, what a path costs.

A tree is a list of levels from the top; a level splits one digit of one dimension. A leaf's key is its mixed-radix
number over all levels (for binary trees: a plain bit string, e.g. the Morton code). Structural zeros, padding and
mask alike, factorise: the dimensions fall into groups (factors), and a node is possible iff each factor's part of it
is. A node is measured iff at least two of its children are possible, which is decided by the one factor it splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError
from kasuri.schema import Change, Domain
from kasuri.trees.factors import ALL, NONE, Factor, pyramid

_TABLE_BITS = 11
_EXPLICIT = 1 << 28  # largest factor held leaf by leaf (mask, hierarchy)


@dataclass(frozen=True)
class Dim:
    """One dimension of the tree: its size, and (hierarchies only) where each index is among the padded leaves."""

    size: int
    places: Int | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Digit:
    """One level: dimension `dim` is split by its digit of weight `weight` into `radix` parts."""

    dim: int
    weight: int
    radix: int


@dataclass(frozen=True, eq=False)
class Order:
    """A tree over a domain; see the module text. Built by `morton`, `row_major`, `hierarchy` or `jis`."""

    name: str
    dims: tuple[Dim, ...]
    digits: tuple[Digit, ...]
    factors: tuple[Factor, ...]
    mixed: bool = field(default=False, kw_only=True)
    """Are the bits of the dimensions of an axis mixed, so that nodes of a mesh are squares?"""

    @property
    def depth(self) -> int:
        """Number of levels, k in the papers."""
        return len(self.digits)

    @cached_property
    def binary(self) -> bool:
        """Every level splits a bit of an index, so that keys are bit strings."""
        return all(digit.radix == 2 for digit in self.digits) and all(dim.places is None for dim in self.dims)

    @cached_property
    def whole(self) -> bool:
        """No structural zero at all."""
        return all(factor.whole for factor in self.factors)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Leaves below one child of each level."""
        out, stride = [], 1
        for digit in reversed(self.digits):
            out.append(stride)
            stride *= digit.radix
        return tuple(reversed(out))

    @cached_property
    def leaves(self) -> int:
        """Leaves of the padded tree, structural zeros included."""
        return self.strides[0] * self.digits[0].radix if self.digits else 1

    @cached_property
    def split_by(self) -> tuple[tuple[int, int], ...]:
        """Per level: (factor, own depth of the node that is split)."""
        out: list[tuple[int, int]] = [(0, 0)] * self.depth
        for f, factor in enumerate(self.factors):
            for depth, at in enumerate(factor.levels):
                out[at] = (f, depth)
        return tuple(out)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Depths at which blocks of a user's kind end, from the root (0) to the leaves: one bit of every interleaved
        dimension (a mesh: squares of 2^l x 2^l), two bits of an axis by itself, one level of a hierarchy."""
        ends, depth = [], self.depth
        while depth > 0:
            ends.append(depth)
            last = self.digits[depth - 1]
            group = {last.dim}
            depth -= 1
            while depth > 0:
                digit = self.digits[depth - 1]
                together = digit.dim not in group and digit.weight == last.weight
                alone = len(group) == 1 and digit.dim == last.dim and digit.weight == 2 * last.weight
                if last.radix != 2 or digit.radix != 2 or not (together or (alone and ends[-1] - depth == 1)):
                    break
                group.add(digit.dim)
                depth -= 1
                if alone:
                    break
        return (0, *reversed(ends))

    def width(self, start: int, end: int) -> int:
        """Nodes (possible or not) at depth `end` below one node at depth `start`."""
        return math.prod(digit.radix for digit in self.digits[start:end])

    def nodes(self, depth: int) -> int:
        """Possible nodes at `depth`."""
        return math.prod(factor.nodes(sum(level < depth for level in factor.levels)) for factor in self.factors)

    def stride(self, depth: int) -> int:
        """Leaves below a node at `depth`."""
        return self.strides[depth] * self.digits[depth].radix if depth < self.depth else 1

    def children(self, parents: Int, start: int, end: int) -> tuple[Int, Int]:
        """Possible descendants of rising `parents` (depth start) at depth end, in key order; those of parent i are
        first[i]:first[i+1]."""
        width = self.width(start, end)
        if all(self.factors[f].whole for f, _ in self.split_by[start:end]):
            nodes = (parents[:, None] * width + np.arange(width)).ravel()
            return nodes, np.arange(parents.size + 1) * width
        nodes = parents
        for depth in range(start, end):
            radix = self.digits[depth].radix
            nodes = (nodes[:, None] * radix + np.arange(radix)).ravel()
            f, own = self.split_by[depth]
            if not self.factors[f].whole:
                nodes = nodes[self.factors[f].of(own + 1, self.own(nodes, depth + 1, f)) != NONE]
        return nodes, np.append(np.searchsorted(nodes, parents * width), nodes.size)

    def own(self, nodes: Int, depth: int, factor: int) -> Int:
        """The digits of one factor in the prefixes of nodes at `depth`."""
        out = np.zeros(nodes.size, dtype=np.int64)
        for level in self.factors[factor].levels:
            if level < depth:
                radix = self.digits[level].radix
                out = out * radix + nodes // self.width(level + 1, depth) % radix
        return out

    def cost(self, change: Change) -> Fraction:
        """L1 change of all measured numbers by one count, each level's own change taken as 1 (docs/proofs).

        add-remove: 1 + the most measured nodes on a possible path. replace: the larger of that (a unit may still
        drop out) and the dearest pair of leaves, f/(f-1) at the node where they part plus both paths below it.
        """
        paths = [factor.costs[0] for factor in self.factors]
        add = Fraction(1 + sum(most[0] for most in paths))
        if change == "add-remove":
            return add
        worst = add
        own = [0] * len(self.factors)
        for f, depth in self.split_by:
            fork = self.factors[f].costs[1][depth]
            if fork is not None:
                others = sum(paths[g][own[g]] for g in range(len(self.factors)) if g != f)
                worst = max(worst, fork + 2 * others)
            own[f] += 1
        return worst

    def keys(self, cells: Int) -> Int:
        """Cells (row-major) -> keys."""
        if self.binary:
            from kasuri._kernels.morton import add_bits, cells_to_keys

            index = np.ascontiguousarray(cells, dtype=np.int64)
            if self._key_by_bit is not None:
                return add_bits(index, self._key_by_bit, _TABLE_BITS)
            sizes, first, tables = self._cell_tables
            return cells_to_keys(index, sizes, first, tables, _TABLE_BITS)
        rest, parts = np.asarray(cells, dtype=np.int64), []
        for dim in reversed(self.dims):
            rest, index = np.divmod(rest, dim.size)
            parts.append(index if dim.places is None else dim.places[index])
        parts.reverse()
        out = np.zeros(rest.shape, dtype=np.int64)
        for digit, stride in zip(self.digits, self.strides, strict=True):
            out += parts[digit.dim] // digit.weight % digit.radix * stride
        return out

    def cells(self, keys: Int) -> Int:
        """Keys of possible leaves -> cells: the inverse of `keys`."""
        if self.binary:
            from kasuri._kernels.morton import add_bits

            return add_bits(np.ascontiguousarray(keys, dtype=np.int64), self._cell_by_bit, _TABLE_BITS)
        parts = [np.zeros(np.shape(keys), dtype=np.int64) for _ in self.dims]
        for digit, stride in zip(self.digits, self.strides, strict=True):
            parts[digit.dim] += keys // stride % digit.radix * digit.weight
        out = np.zeros(np.shape(keys), dtype=np.int64)
        for dim, part in zip(self.dims, parts, strict=True):
            if dim.places is not None:
                by_place = np.argsort(dim.places)
                part = by_place[np.searchsorted(dim.places[by_place], part)]
            out = out * dim.size + part
        return out

    @cached_property
    def shared_tail(self) -> tuple[int, int]:
        """(cells, leaves) of the last dimensions that are last in the tree too, in the same order: inside such a
        tail keys rise with cells, so only what is above it needs sorting. (size, leaves) if all keys rise."""
        cells = leaves = 1
        at = self.depth
        for d in range(len(self.dims) - 1, -1, -1):
            own = [level for level, digit in enumerate(self.digits) if digit.dim == d]
            if self.dims[d].places is not None or own != list(range(at - len(own), at)):
                break
            at -= len(own)
            cells, leaves = cells * self.dims[d].size, leaves << len(own)
        return cells, leaves

    @cached_property
    def rising_cells(self) -> int:
        """Size of the runs of cells inside which keys rise with cells, whatever is between their digits: the last
        dimensions whose digits follow one another in declared order (a mesh: its columns, and every axis below)."""
        cells, last = 1, [digit.dim for digit in self.digits]
        for d in range(len(self.dims) - 1, -1, -1):
            own = [dim for dim in last if dim >= d]
            if self.dims[d].places is not None or own != sorted(own):
                break
            cells *= self.dims[d].size
        return cells

    def possible_leaves(self) -> NDArray[np.bool_]:
        """Per key: is the leaf possible? Dense."""
        good = np.ones(1, dtype=np.uint8)
        prefix = [np.zeros(1, dtype=np.int64) for _ in self.factors]
        for (f, _), digit in zip(self.split_by, self.digits, strict=True):
            good = np.repeat(good, digit.radix)
            prefix = [np.repeat(p, digit.radix) for p in prefix]
            prefix[f] = prefix[f] * digit.radix + np.arange(good.size) % digit.radix
        for factor, p in zip(self.factors, prefix, strict=True):
            good &= factor.of(len(factor.radices), p) != NONE
        return good.astype(bool)

    @cached_property
    def _cell_tables(self) -> tuple[Int, Int, Int]:
        first, tables = [0], []
        for d, dim in enumerate(self.dims):
            bits = max(1, (dim.size - 1).bit_length())
            place = {
                digit.weight: stride for digit, stride in zip(self.digits, self.strides, strict=True) if digit.dim == d
            }
            for low in range(0, bits, _TABLE_BITS):
                tables.append(_sums([place.get(1 << b, 0) for b in range(low, low + _TABLE_BITS)]))
            first.append(len(tables))
        return (
            np.array([dim.size for dim in self.dims], dtype=np.int64),
            np.array(first, dtype=np.int64),
            np.array(tables),
        )

    @cached_property
    def _cell_by_bit(self) -> Int:
        """Tables from a key's bits to the cell."""
        stride_of = np.cumprod([1, *(dim.size for dim in reversed(self.dims[1:]))], dtype=object)[::-1]
        return _tables([int(stride_of[digit.dim]) * digit.weight for digit in reversed(self.digits)])

    @cached_property
    def _key_by_bit(self) -> Int | None:
        """Tables from a cell's bits to the key, where every size is a power of two and a cell is a bit string too."""
        if any(dim.size & (dim.size - 1) for dim in self.dims):
            return None
        place = {(digit.dim, digit.weight): stride for digit, stride in zip(self.digits, self.strides, strict=True)}
        bits = [
            (d, 1 << b) for d, dim in reversed(list(enumerate(self.dims))) for b in range(dim.size.bit_length() - 1)
        ]
        return _tables([place[bit] for bit in bits])


def _tables(weights: list[int]) -> Int:
    """`_sums` of the weights, _TABLE_BITS at a time from the lowest."""
    padded = weights + [0] * (-len(weights) % _TABLE_BITS if weights else _TABLE_BITS)
    return np.array([_sums(padded[low : low + _TABLE_BITS]) for low in range(0, len(padded), _TABLE_BITS)])


def _sums(weights: list[int]) -> Int:
    """Table t[x] = sum of weights[b] over the set bits b of x. Entries no possible leaf reaches may wrap."""
    table = np.zeros(1, dtype=np.int64)
    for weight in weights:
        table = np.concatenate((table, table + np.int64(weight)))
    return table


def morton(domain: Domain, interleave: tuple[str, ...] = ()) -> Order:
    """Mesh bits interleaved from the most significant (row above col), then the other axes in declared order.

    Dimensions of unequal length are aligned at their lowest bit, so that every block near the leaves is square.
    `interleave` names axes whose bits are mixed together (e.g. origin and destination), placed first.
    """
    unknown = [name for name in interleave if name not in [axis.name for axis in domain.axes]]
    if unknown:
        raise DomainError(f"interleave names unknown axes {unknown}")
    groups: list[list[int]] = []
    if interleave:
        groups.append([p for axis in domain.axes if axis.name in interleave for p in domain.positions(axis.name)])
    rest = [axis for axis in domain.axes if axis.name not in interleave]
    for axis in sorted(rest, key=lambda axis: axis.plane is None):  # stable: meshes first
        groups.append(list(domain.positions(axis.name)))
    dims, beyond = beside(domain)
    digits = []
    for group in groups:
        digits += [beyond[d] for d in group if d in beyond]
        last = {d: (beyond[d].weight if d in beyond else domain.shape[d]) - 1 for d in group}
        for b in range(max(last.values()).bit_length() - 1, -1, -1):
            digits += [Digit(d, 1 << b, 2) for d in group if last[d] >> b]
    name = "morton" if not interleave else f"morton({', '.join(interleave)} interleaved)"
    return replace(built(name, domain, dims, tuple(digits)), mixed=True)


def beside(domain: Domain) -> tuple[tuple[Dim, ...], dict[int, Digit]]:
    """All dimensions, and those with the one row more of a cell elsewhere by the split that comes before all others of
    their axis: the window on one side, that cell on the other. Where the rows do not fill a power of two, its place
    follows the padding."""
    dims, beyond = [Dim(size) for size in domain.shape], {}
    for plane in domain.planes:
        if plane.elsewhere:
            d, rows = domain.positions(plane.name)[0], plane.shape[0]
            weight = 1 << (rows - 1).bit_length()
            beyond[d] = Digit(d, weight, 2)
            if weight > rows:
                dims[d] = Dim(rows + 1, np.append(np.arange(rows), weight))
    return tuple(dims), beyond


def row_major(domain: Domain) -> Order:
    """The cells in their own order, one after the other: the one-dimensional form of the papers."""
    size = domain.size
    digits = tuple(Digit(0, 1 << b, 2) for b in range((size - 1).bit_length() - 1, -1, -1))
    levels = tuple(range(len(digits)))
    _fits(digits)
    if not domain.zeros:
        factor = Factor(levels, (2,) * len(digits), size, None)
    else:
        _small(1 << len(digits))
        leaves = np.zeros(1 << len(digits), dtype=np.uint8)
        leaves[:size] = ALL * domain.possible_dense().ravel()
        factor = Factor(levels, (2,) * len(digits), size, pyramid(leaves, (2,) * len(digits)))
    return Order("1d", (Dim(size),), digits, (factor,))


def along(paths: Sequence[tuple[int, ...]], d: int) -> tuple[Dim, list[Digit]]:
    """Dimension d split along the paths of its indices through a public tree: its places among the padded leaves, and
    the splits from the top."""
    deepest = max(len(path) for path in paths)
    padded = [path + (0,) * (deepest - len(path)) for path in paths]
    radices = [1 + max(path[i] for path in padded) for i in range(deepest)]
    weights = [math.prod(radices[i + 1 :]) for i in range(deepest)]
    places = [sum(p * w for p, w in zip(path, weights, strict=True)) for path in padded]
    found = [Digit(d, w, r) for w, r in zip(weights, radices, strict=True) if r > 1]
    return Dim(len(padded), np.array(places, dtype=np.int64)), found


def hierarchy(domain: Domain) -> Order:
    """As `morton`, but a nominal axis is split along its public tree (or into all its labels at once)."""
    base = morton(domain)
    dims = list(base.dims)
    split: set[int] = set()
    replaced: dict[int, list[Digit]] = {}
    for axis in domain.axes:
        paths = axis.tree_paths()
        if paths is None:
            continue
        d = domain.positions(axis.name)[0]
        split.add(d)
        dims[d], replaced[d] = along(paths, d)
    digits: list[Digit] = []
    for digit in base.digits:
        if digit.dim in replaced:
            digits += replaced.pop(digit.dim)
        elif digit.dim not in split:
            digits.append(digit)
    return built("hierarchy", domain, tuple(dims), tuple(digits))


def jis(domain: Domain) -> Order:
    """As `hierarchy`, but a mesh is split along the standard grid, whatever its window: 80 km cells, then 8 x 8 of
    10 km, 10 x 10 of 1 km, 2 x 2 of 500 m, ..., each as rows and then columns, so that every cell of every standard
    level is a node. An 80 km cell that the window cuts is padded."""
    base = hierarchy(domain)
    dims, replaced = list(base.dims), {}
    order_of: list[Digit] = []
    for mesh in domain.planes:
        sides = mesh.nesting()
        if sides is None:
            raise DomainError(f"order='jis': mesh {mesh.name!r} has no level, so it is on no standard grid")
        whole = math.prod(sides)
        positions = domain.positions(mesh.name)
        for d, start, size in zip(positions, mesh.origin, mesh.shape, strict=True):
            first = start // whole * whole
            places = np.arange(start - first, start - first + size)
            replaced[d] = -(-(start + size) // whole) - start // whole
            if mesh.elsewhere and d == positions[0]:  # beside the largest cells
                places = np.append(places, replaced[d] * whole)
                replaced[d] += 1
            dims[d] = Dim(places.size, places)
        weight = whole
        order_of += [Digit(d, weight, replaced[d]) for d in positions]
        for side in sides:
            weight //= side
            order_of += [Digit(d, weight, side) for d in positions]
    kept = [digit for digit in base.digits if digit.dim not in replaced]
    digits = tuple(digit for digit in (*order_of, *kept) if digit.radix > 1)
    return built("jis", domain, tuple(dims), digits)


MAKERS: dict[str, Callable[[Domain, tuple[str, ...]], Order]] = {
    "morton": morton,
    "1d": lambda domain, _: row_major(domain),
    "hierarchy": lambda domain, _: hierarchy(domain),
    "jis": lambda domain, _: jis(domain),
}
"""The trees by the words that recipes and saved releases use."""


def ignoring(word: str) -> str | None:
    """`word` where that order ignores the declared trees of labels."""
    return None if word in ("hierarchy", "jis", "interleaved") else word


def make(word: str, domain: Domain, interleave: tuple[str, ...] = ()) -> Order:
    """The tree a word names; `interleave` is of "morton" alone."""
    if word not in MAKERS:
        raise PrivacyError(f"order {word!r} is not known; known: {', '.join(MAKERS)}")
    return MAKERS[word](domain, interleave)


def halved(word: str, domain: Domain, interleave: tuple[str, ...] = ()) -> Order:
    """The binary tree a word names: what sums and differences, and the descent along them, are proved for."""
    if word not in ("morton", "1d"):
        raise PrivacyError(f"order {word!r} has no proof here: sums and differences need morton or 1d")
    return make(word, domain, interleave)


def built(name: str, domain: Domain, dims: tuple[Dim, ...], digits: tuple[Digit, ...]) -> Order:
    _fits(digits)
    grouped = [tuple(p for axis in mask.axes for p in domain.positions(axis)) for mask in domain.zeros]
    covered = {d for group in grouped for d in group}
    factors = []
    for group, mask in zip(grouped, domain.zeros, strict=True):
        factors.append(_explicit_factor(group, dims, digits, ~mask.impossible()))
    for d, dim in enumerate(dims):
        if d in covered:
            continue
        if dim.places is not None:
            factors.append(_explicit_factor((d,), dims, digits, np.ones(dim.size, dtype=bool)))
        else:
            own = tuple(level for level, digit in enumerate(digits) if digit.dim == d)
            factors.append(Factor(own, (2,) * len(own), dim.size, None))
    return Order(name, dims, digits, tuple(factors))


def _fits(digits: tuple[Digit, ...]) -> None:
    leaves = int(np.prod([digit.radix for digit in digits], dtype=object)) if digits else 1
    if leaves > 1 << 62:
        raise DomainError("the padded tree has more than 2^62 leaves; use fewer or smaller axes")


def _small(leaves: int) -> None:
    if leaves > _EXPLICIT:
        raise DomainError(f"a mask over {leaves} padded cells is too large to hold (2^28 at most); mask fewer axes")


def _explicit_factor(group: tuple[int, ...], dims: tuple[Dim, ...], digits: tuple[Digit, ...],
                     possible: NDArray[np.bool_]) -> Factor:  # fmt: skip
    """The factor of the dimensions `group`, leaf by leaf; `possible` is indexed by their indices."""
    levels = tuple(level for level, digit in enumerate(digits) if digit.dim in group)
    radices = tuple(digits[level].radix for level in levels)
    leaves = int(np.prod(radices, dtype=object)) if radices else 1
    _small(leaves)
    key = np.zeros((1,) * len(group), dtype=np.int64)
    stride = leaves
    for level in levels:
        digit = digits[level]
        stride //= digit.radix
        dim = dims[digit.dim]
        place = np.arange(dim.size) if dim.places is None else dim.places
        part = place // digit.weight % digit.radix * stride
        key = key + part.reshape([-1 if d == digit.dim else 1 for d in group])
    status = np.zeros(leaves, dtype=np.uint8)
    status[np.broadcast_to(key, possible.shape)[possible]] = ALL
    return Factor(levels, radices, int(possible.sum()), pyramid(status, radices))
