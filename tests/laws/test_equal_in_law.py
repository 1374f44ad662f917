"""Dense T1, sparse T2 and T2 with jumps have one law: exact enumeration on trees of 2, 4 and 8 leaves.

The compiled kernel itself is enumerated: every noise value and every coin it can meet is fed to it, weighted by exact
rationals, and the resulting law is compared with the slow twin for equality, not closeness.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from reference import law

from kasuri._kernels import topdown as kernel
from kasuri.recipes.engine import Descent
from kasuri.refine.topdown import topdown
from kasuri.schema import Domain, Ordered
from kasuri.trees import order, transform

A = Fraction(2, 3)


def tree(leaves: int, impossible: tuple[int, ...] = ()):
    mask = None
    if impossible:
        mask = np.zeros(leaves, dtype=bool)
        mask[list(impossible)] = True
    return order.row_major(Domain.of(Ordered("x", leaves), mask=mask))


class NeedError(Exception):
    """The kernel asked for more noise than the prefix holds."""


def run_kernel(descent, shape, true, S, jumps, noise, coins):
    """One run of the compiled descent on given noise and coins: (leaves, coins used)."""
    values = np.array(true, dtype=np.int64)
    keys = np.flatnonzero(values)
    sums = np.concatenate(([0], np.cumsum(values[keys])))
    stack = np.zeros((shape.depth + 2, 6), dtype=np.int64)
    stack[0] = 0, 0, S, 0, keys.size, descent.whole_factors(0, 0)
    state = np.zeros(kernel.STATE, dtype=np.int64)
    state[kernel.TOP] = 1
    words = np.zeros(8, dtype=np.uint64)
    for i, bit in enumerate(coins):
        words[i // 64] |= np.uint64(bit) << np.uint64(i % 64)
    # one spare noise word lets the kernel reach leaves it needs no noise for; using it is an error
    tape = np.array([*noise, 1 << 40], dtype=np.int64)
    out_keys, out_values = np.zeros(32, np.int64), np.zeros(32, np.int64)
    empty = [np.zeros(0, np.int64) for _ in range(3)]
    code = kernel.descend(
        keys, sums, shape.depth, shape.depth, int(jumps), *descent._tree, tape, words, stack, state,
        out_keys, out_values, *empty,
    )  # fmt: skip
    if state[kernel.NOISE] > len(noise) or code == kernel.NEED_NOISE:
        raise NeedError
    assert code == kernel.DONE
    leaves = np.zeros(shape.leaves, np.int64)
    leaves[out_keys[: state[kernel.OUT]]] = out_values[: state[kernel.OUT]]
    return tuple(leaves.tolist()), int(state[kernel.COIN])


def kernel_law(shape, true, S, jumps):
    """Exact law of the kernel by exploring every continuation; noise beyond `reach` acts as noise at `reach`."""
    reach = max(S + sum(true) + 2, shape.depth * max(S - 1, 1) + 1)
    weight = {n: law.pmf(A, n) for n in range(-reach + 1, reach)}
    weight[reach] = law.tail(A, reach)
    weight[-reach] = law.tail(A, reach)
    found, descent = defaultdict(Fraction), Descent(shape, Fraction(1), jumps)

    def explore(noise, coins, p):
        try:
            leaves, used = run_kernel(descent, shape, true, S, jumps, noise, coins)
        except NeedError:
            for n, q in weight.items():
                explore((*noise, n), coins, p * q)
            return
        if used > len(coins):
            for bits in product((0, 1), repeat=used - len(coins)):
                explore(noise, (*coins, *bits), p / 2 ** (used - len(coins)))
            return
        found[leaves] += p

    explore((), (), Fraction(1))
    return dict(found)


CASES = [
    (2, (0, 0), (), 3), (2, (2, 0), (), 2), (2, (1, 3), (), 4),
    (4, (0, 0, 0, 0), (), 3), (4, (1, 0, 0, 0), (), 2), (4, (0, 2, 0, 0), (), 2), (4, (0, 1, 0, 0), (2,), 2),
    (4, (0, 0, 1, 0), (0, 1), 3), (8, (0,) * 8, (), 2), (8, (0,) * 8, (3,), 2), (8, (0, 0, 0, 1, 0, 0, 0, 0), (), 1),
]  # fmt: skip


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize(("leaves", "true", "impossible", "S"), CASES)
def test_kernel_law_is_the_plain_law(leaves, true, impossible, S, jumps):
    possible = tuple(i not in impossible for i in range(leaves))
    assert kernel_law(tree(leaves, impossible), true, S, jumps) == law.plain(true, possible, S, A)


@pytest.mark.parametrize("jumps", [False, True])
def test_kernel_law_with_one_whole_and_one_padded_axis(jumps):
    """Jumps pass the levels of the whole axis only; the padded one is descended plainly."""
    shape = order.morton(Domain.of(Ordered("x", 2), Ordered("y", 3)))
    possible = tuple(shape.possible_leaves().tolist())
    assert possible == (True, True, True, False) * 2
    for true in ((0,) * 8, (0, 0, 0, 0, 0, 1, 0, 0)):
        assert kernel_law(shape, true, 2, jumps) == law.plain(true, possible, 2, A)


@pytest.mark.parametrize(("height", "most"), [(1, 9), (2, 6), (3, 4)])
def test_jump_law_is_the_plain_law_in_exact_rationals(height, most):
    n = 1 << height
    for S in range(1, most + 1):
        assert law.jump(height, S, A) == law.plain((0,) * n, (True,) * n, S, A)


@pytest.mark.parametrize(
    ("leaves", "true", "impossible", "S"), [case for case in CASES if case[0] <= 4 and sum(case[1]) <= 2]
)
def test_dense_refinement_has_the_plain_law(leaves, true, impossible, S):
    shape = tree(leaves, impossible)
    coefficients = transform.sum_difference(shape).forward(np.array(true))
    sides = transform.levels(shape.possible_leaves())
    reach = S + sum(true) + 2
    draws = len(coefficients) - 1
    found = defaultdict(Fraction)
    for noise in product(range(-reach, reach + 1), repeat=draws):
        p = Fraction(1)
        for n in noise:
            p *= law.tail(A, reach) if abs(n) == reach else law.pmf(A, n)
        for coins in product((0, 1), repeat=draws):
            noisy = np.array([S, *(coefficients[1:] + noise)])
            out = topdown(noisy, sides, np.array([0, *coins]))
            found[tuple(out.tolist())] += p / 2**draws
    possible = tuple(i not in impossible for i in range(leaves))
    assert dict(found) == law.plain(true, possible, S, A)


def test_the_reference_tells_a_wrong_law():
    """The comparison can fail: a dropped coin, a wrong clamp and a halved scale each give another law."""
    true, possible = (1, 0), (True, True)
    right = law.plain(true, possible, 2, A)
    assert law.plain(true, possible, 2, A * A) != right
    one_sided = law.split(1, 2, A) | {0: Fraction(0)}
    assert one_sided != law.split(1, 2, A)
