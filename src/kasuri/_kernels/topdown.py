"""The top-down descent in integers (docs/proofs/haar_topdown.md): sparse, depth first, with level jumps.

A node is (depth, prefix, S, low, high): S > 0 is its refined sum, [low, high) its true records in key order.
Measured node: D' = D + N; a fair coin adds +-1 if D' and S differ in parity; D+ = clip(D', -S, S);
children (S + D+)/2 and (S - D+)/2. A node with one possible child hands S on. Below a node without records D = 0,
and one geometric number G of the same scale tells how many levels pass before S is split, and how (METHODS, jumps):
G div (S-1) levels pass, |D+| = 2 floor(r/2) + 1 (S odd) or 2 ceil(r/2) (S even) with r = G mod (S-1).
"""

import numpy as np

from kasuri._kernels.cached import njit

DONE, NEED_NOISE, NEED_COINS, NEED_ROOM, NEED_RECORDS = 0, 1, 2, 3, 4

# state: integers that survive a pause
TOP, NOISE, COIN, OUT, RECORDED = 0, 1, 2, 3, 4
STATE = 5

_PAUSE_BITS = 130  # more coin bits than one node can use


@njit(inline="always")
def _u(index):
    """An index as unsigned: for a signed one numba would test for negative values."""
    return np.uint64(index)


@njit(inline="always")
def _bits(coins, at, count):
    """`count` <= 62 coin bits from bit `at`, as an integer."""
    word = at >> 6
    shift = np.uint64(at & 63)
    value = coins[_u(word)] >> shift
    value |= (coins[_u(word + 1)] << np.uint64(1)) << (np.uint64(63) - shift)
    return np.int64(value & ((np.uint64(1) << np.uint64(count)) - np.uint64(1)))


@njit(inline="always")
def _first_at_least(keys, low, high, key):
    """First i in [low, high) with keys[i] >= key, or high; low < high. No branch depends on the keys."""
    size = high - low
    while size > 1:
        half = size >> 1
        low += half * (keys[_u(low + half - 1)] < key)
        size -= half
    return low + (keys[_u(low)] < key)


@njit()
def _status(factor, depth, prefix, sizes, bits, offset, status):
    """0 no possible leaf, 1 some, 2 all: node `prefix` at own `depth` of a factor."""
    if offset[factor] >= 0:
        return np.int64(status[offset[factor] + (np.int64(1) << depth) + prefix])
    span = np.int64(1) << (bits[factor] - depth)
    first = prefix * span
    if first >= sizes[factor]:
        return np.int64(0)
    if first + span <= sizes[factor]:
        return np.int64(2)
    return np.int64(1)


@njit()
def _own_prefix(prefix, depth, levels, own):
    """The digits of one factor (its tree levels `levels[:own]`) in a node's prefix."""
    out = np.int64(0)
    for j in range(own):
        out = (out << 1) | ((prefix >> (depth - 1 - levels[j])) & 1)
    return out


@njit(inline="always")
def _run(depth, floor, whole, all_whole, factor_of):
    """How many levels from `depth` on have no structural zero below the node."""
    run = floor - depth
    if whole != all_whole:
        run = np.int64(1)
        while depth + run < floor and (whole >> factor_of[depth + run]) & 1 == 1:
            run += 1
    return run


@njit(inline="always")
def _geometric(noise, used, S, run):
    """(levels that pass before S > 0 is split, G mod (S - 1), noise words used so far)."""
    passes, rest = run, np.int64(0)
    if S > 1:
        x = noise[_u(used)]
        used += 1
        g = x ^ (x >> 63)  # x, or -x - 1 below 0
        passes = np.int64(np.uint64(g) // np.uint64(S - 1))
        rest = g - passes * (S - 1)
    return passes, rest, used


@njit(inline="always")
def _wholes(f, whole, s_left, s_right):
    """`whole` of both children: with factor f where all of its leaves below are possible."""
    bit = np.int64(1) << f
    return whole | bit * np.int64(s_left == 2), whole | bit * np.int64(s_right == 2)


@njit(inline="always")
def _middle(keys, low, high, key):
    """Where the records of the right child begin."""
    if low < high:
        return _first_at_least(keys, low, high, key)
    return low


@njit(error_model="numpy")
def descend(
    keys, sums, k, floor, jumps,
    factor_of, own_depth, levels, sizes, bits, offset, status, all_whole,
    noise, coins, stack, state, out_keys, out_values, rec_depth, rec_prefix, rec_value,
):  # fmt: skip
    """Run until the stack is empty or something is used up; call again with it refilled.

    keys: sorted keys of the true records; sums[i]: sum of the values before record i; k levels in all.
    stack rows: depth, prefix, S, low, high, whole (bit f set: factor f has no structural zero below).
    Nodes that reach depth `floor` are written to out_keys (their prefix) and out_values, of size >= 2. With rec_* of
    size > 0 every measured (depth, prefix, D') is recorded. jumps = 0: every node is drawn.
    """
    top, used, coin, out, recorded = state[TOP], state[NOISE], state[COIN], state[OUT], state[RECORDED]
    record = rec_depth.size > 0
    coin_end = coins.size * 64 - _PAUSE_BITS
    code = DONE
    depth = prefix = S = low = high = whole = np.int64(0)
    at_node = False  # the left child is followed without going over the stack
    while True:
        if not at_node:
            if top == 0:
                break
            top -= 1
            depth, prefix, S = stack[_u(top), 0], stack[_u(top), 1], stack[_u(top), 2]
            low, high, whole = stack[_u(top), 3], stack[_u(top), 4], stack[_u(top), 5]
        at_node = False
        if out + 1 >= out_keys.size:
            code = NEED_ROOM
            break
        if depth == floor:
            out_keys[_u(out)] = prefix
            out_values[_u(out)] = S
            out += 1
            continue
        if used == noise.size or coin > coin_end:
            code = NEED_NOISE if used == noise.size else NEED_COINS
            break
        f = factor_of[_u(depth)]
        free = (whole >> f) & 1
        if low == high and jumps != 0 and free == 1:
            run = _run(depth, floor, whole, all_whole, factor_of)
            passes, rest, used = _geometric(noise, used, S, run)
            if passes >= run:
                prefix = (prefix << run) | _bits(coins, coin, run)
                coin += run
                depth += run
                at_node = True
                continue
            prefix = (prefix << passes) | _bits(coins, coin, passes)
            coin += passes
            depth += passes
            odd = S & 1
            size = (((rest + 1 - odd) >> 1) << 1) + odd
            sign = -_bits(coins, coin, 1)
            size = (size ^ sign) - sign
            coin += 1
            left = (S >> 1) + (size >> 1) + (S & size & 1)  # (S + size) / 2 without overflow: equal parities
            right = S - left
            middle = low
            left_whole = right_whole = whole
        else:
            left_whole = right_whole = whole
            if free == 0:
                own = own_depth[depth]
                child = _own_prefix(prefix, depth, levels[f], own) << 1
                s_left = _status(f, own + 1, child, sizes, bits, offset, status)
                s_right = _status(f, own + 1, child + 1, sizes, bits, offset, status)
                left_whole, right_whole = _wholes(f, whole, s_left, s_right)
                measured = s_left > 0 and s_right > 0
                if not measured:
                    side = np.int64(0) if s_left > 0 else np.int64(1)
                    depth += 1
                    prefix = (prefix << 1) | side
                    whole = left_whole if side == 0 else right_whole
                    at_node = True
                    continue
            if record and recorded == rec_depth.size:
                code = NEED_RECORDS
                break
            middle = _middle(keys, low, high, ((prefix << 1) | 1) << (k - depth - 1))
            D = 2 * sums[_u(middle)] - sums[_u(low)] - sums[_u(high)] + noise[_u(used)]
            used += 1
            if record:
                rec_depth[recorded], rec_prefix[recorded], rec_value[recorded] = depth, prefix, D
                recorded += 1
            odd = (D ^ S) & 1
            D += odd * (2 * _bits(coins, coin, 1) - 1)
            coin += odd
            D = min(max(D, -S), S)
            left = (S >> 1) + (D >> 1) + (S & D & 1)
            right = S - left
        # no branch on which children live: either way is as likely, and a wrong guess costs more than the stores
        depth += 1
        prefix <<= 1
        if depth == floor:  # a pair of leaves
            out_keys[_u(out)] = prefix
            out_values[_u(out)] = left
            out += np.int64(left > 0)
            out_keys[_u(out)] = prefix | 1
            out_values[_u(out)] = right
            out += np.int64(right > 0)
            continue
        go_left = left > 0
        stack[_u(top), 0], stack[_u(top), 1], stack[_u(top), 2] = depth, prefix | 1, right
        stack[_u(top), 3], stack[_u(top), 4], stack[_u(top), 5] = middle, high, right_whole
        top += np.int64(go_left and right > 0)
        prefix |= np.int64(not go_left)
        S = left if go_left else right
        high = middle if go_left else high
        low = low if go_left else middle
        whole = left_whole if go_left else right_whole
        at_node = True
    if code != DONE:  # the node in hand waits on the stack
        stack[_u(top), 0], stack[_u(top), 1], stack[_u(top), 2] = depth, prefix, S
        stack[_u(top), 3], stack[_u(top), 4], stack[_u(top), 5] = low, high, whole
        top += 1
    state[TOP], state[NOISE], state[COIN], state[OUT], state[RECORDED] = top, used, coin, out, recorded
    return code


@njit()
def count_levels(depth, first):
    """first[d + 2] += how many records are of depth d >= -1."""
    for i in range(depth.size):
        first[depth[i] + 2] += 1


@njit()
def place_levels(depth, prefix, value, at, out_prefix, out_value):
    """Records to their level's next place, at[d + 1] for depth d: a descent meets the nodes of a level in order."""
    for i in range(depth.size):
        level = np.uint64(depth[i] + 1)
        to = np.uint64(at[level])
        out_prefix[to], out_value[to] = prefix[i], value[i]
        at[level] += 1


def warm_up():
    one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
    stack = np.zeros((4, 6), np.int64)
    descend(
        none, np.zeros(1, np.int64), 0, 0, 0, one, one, np.zeros((1, 1), np.int64), one, one, one,
        np.zeros(1, np.uint8), 0, one, np.zeros(4, np.uint64), stack, np.zeros(STATE, np.int64),
        none, none, none, none, none,
    )  # fmt: skip
    count_levels(one, np.zeros(4, np.int64))
    place_levels(one, one, one, np.zeros(4, np.int64), one.copy(), one.copy())
