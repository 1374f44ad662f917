"""From (id, cell) records to bounded counts: SHA-256 ranks, partition, sort, bound, run lengths."""

import numpy as np

from kasuri._kernels.cached import njit

K = np.array([
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
], np.uint32)  # fmt: skip
START = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19],
                 np.uint32)  # fmt: skip


@njit(inline="always")
def _rotate(x, n):
    return np.uint32(np.uint32(x >> np.uint32(n)) | np.uint32(x << np.uint32(32 - n)))


@njit()
def _compress(state, block, k, w, out):
    """One block of 64 bytes (FIPS 180-4, 6.2.2): out = the state after it."""
    for t in range(16):
        w[t] = (
            (np.uint32(block[4 * t]) << np.uint32(24))
            | (np.uint32(block[4 * t + 1]) << np.uint32(16))
            | (np.uint32(block[4 * t + 2]) << np.uint32(8))
            | np.uint32(block[4 * t + 3])
        )
    for t in range(16, 64):
        x, y = w[t - 15], w[t - 2]
        s0 = np.uint32(_rotate(x, 7) ^ _rotate(x, 18) ^ np.uint32(x >> np.uint32(3)))
        s1 = np.uint32(_rotate(y, 17) ^ _rotate(y, 19) ^ np.uint32(y >> np.uint32(10)))
        w[t] = np.uint32(w[t - 16] + s0 + w[t - 7] + s1)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(64):
        s1 = np.uint32(_rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25))
        one = np.uint32(h + s1 + np.uint32(g ^ (e & (f ^ g))) + k[t] + w[t])
        s0 = np.uint32(_rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22))
        two = np.uint32(s0 + np.uint32((a & b) | (c & (a | b))))
        h, g, f = g, f, e
        e = np.uint32(d + one)
        d, c, b = c, b, a
        a = np.uint32(one + two)
    out[0], out[1], out[2], out[3] = state[0] + a, state[1] + b, state[2] + c, state[3] + d
    out[4], out[5], out[6], out[7] = state[4] + e, state[5] + f, state[6] + g, state[7] + h


@njit()
def _decimal(block, at, value):
    """Write a whole number in decimal at block[at:]; the new end. int64 minimum included."""
    rest = np.uint64(value)
    if value < 0:
        block[at] = 45
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)
    size, left = 1, rest
    while left >= np.uint64(10):
        left //= np.uint64(10)
        size += 1
    for i in range(at + size - 1, at - 1, -1):
        block[i] = np.uint8(48 + rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + size


@njit()
def key_state(hex_key):
    """The state after the first block, which is the 64 hexadecimal digits of the sampling key."""
    out = np.empty(8, np.uint32)
    _compress(START, hex_key, K, np.empty(64, np.uint32), out)
    return out


LANES = 16
"""Messages that are hashed together: the compiler makes vectors of them (5 times faster than one after the other)."""
U = np.uint64  # unsigned places: no check for negative ones, which would keep the compiler from it
_A, _E, _W, _MORE, _ROWS = U(0), U(68 * LANES), U(136 * LANES), U(200 * LANES), 216 * LANES
"""Where rows of LANES words begin in the workspace of `_lanes`: A, E, W, a second block, the end."""


@njit()
def _lanes(n, k, r):
    """One block of each of n messages (FIPS 180-4, 6.2.2). Before round t the words a, b, c, d are A[t + 3], ..., A[t],
    and e, f, g, h are E[t + 3], ..., E[t]; the state is the first four rows of both, before and after."""
    step = U(LANES)
    for t in range(U(16), U(64)):
        at = _W + t * step
        for i in range(n):
            x, y = r[at - U(15) * step + i], r[at - U(2) * step + i]
            s0 = np.uint32(_rotate(x, 7) ^ _rotate(x, 18) ^ np.uint32(x >> np.uint32(3)))
            s1 = np.uint32(_rotate(y, 17) ^ _rotate(y, 19) ^ np.uint32(y >> np.uint32(10)))
            r[at + i] = np.uint32(r[at - U(16) * step + i] + s0 + r[at - U(7) * step + i] + s1)
    for t in range(U(64)):
        kt, at = k[t], t * step
        for i in range(n):
            a, b = r[_A + at + U(3) * step + i], r[_A + at + U(2) * step + i]
            c, d = r[_A + at + step + i], r[_A + at + i]
            e, f = r[_E + at + U(3) * step + i], r[_E + at + U(2) * step + i]
            g, h = r[_E + at + step + i], r[_E + at + i]
            s1 = np.uint32(_rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25))
            one = np.uint32(h + s1 + np.uint32(g ^ (e & (f ^ g))) + kt + r[_W + at + i])
            s0 = np.uint32(_rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22))
            two = np.uint32(s0 + np.uint32((a & b) | (c & (a | b))))
            r[_E + at + U(4) * step + i] = np.uint32(d + one)
            r[_A + at + U(4) * step + i] = np.uint32(one + two)
    for row in range(U(4)):
        for i in range(n):
            r[_A + row * step + i] += r[_A + (row + U(64)) * step + i]
            r[_E + row * step + i] += r[_E + (row + U(64)) * step + i]


@njit()
def _words(block, start, lane, r, at):
    """The 16 words of block[start : start + 64], as a column of the rows that begin at r[at]."""
    for t in range(16):
        word = np.uint32(0)
        for j in range(4):
            word = np.uint32(word << np.uint32(8)) | np.uint32(block[start + 4 * t + j])
        r[at + U(t * LANES + lane)] = word


@njit()
def ranks(state, text, cells, low, high, r, out):
    """SHA-256(hex key | id | cell) of cells[low:high] of the unit with the id `text`, as rows of eight words; `state`
    is that after the key, `r` a workspace of _ROWS words."""
    block, w, own = np.zeros(128, np.uint8), np.empty(64, np.uint32), state.copy()
    at = 0
    for i in range(-1, text.size + 1):  # "|" id "|": whole blocks of it are the same for every cell
        block[at] = text[i] if 0 <= i < text.size else np.uint8(124)
        at += 1
        if at == 64:
            _compress(own, block, K, w, own)
            at = 0
    i = low
    while i < high:
        n = blocks = 0
        while n < LANES and i + n < high:
            end = _decimal(block, at, cells[i + n])
            needs = 1 if end + 9 <= 64 else 2
            if n and needs != blocks:
                break
            blocks, bits = needs, (64 + 2 + text.size + end - at) * 8
            block[end] = 128
            block[end + 1 : 64 * blocks] = 0
            block[64 * blocks - 2] = np.uint8(bits >> 8)
            block[64 * blocks - 1] = np.uint8(bits & 255)
            _words(block, 0, n, r, _W)
            if blocks == 2:
                _words(block, 64, n, r, _MORE)
            for row in range(4):
                r[_A + U(row * LANES + n)] = own[3 - row]
                r[_E + U(row * LANES + n)] = own[7 - row]
            n += 1
        _lanes(U(n), K, r)
        if blocks == 2:
            r[_W : _W + U(16 * LANES)] = r[_MORE : _MORE + U(16 * LANES)]
            _lanes(U(n), K, r)
        for lane in range(n):
            for row in range(4):
                out[i + lane - low, 3 - row] = r[_A + U(row * LANES + lane)]
                out[i + lane - low, 7 - row] = r[_E + U(row * LANES + lane)]
        i += n


@njit(inline="always")
def _part(unit, salt, shift):
    """A hash of the id's 64 bits (the finaliser of splitmix64): which part a unit belongs to."""
    x = np.uint64(unit) ^ salt
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((x ^ (x >> np.uint64(31))) >> shift)


@njit()
def parts_of(data, ends, salt, parts, out):
    """out[i] = the part of the id data[ends[i] : ends[i + 1]], a hash of its bytes."""
    for i in range(len(out)):
        x = salt
        for at in range(ends[i], ends[i + 1]):
            x = (x ^ np.uint64(data[at])) * np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(32)
        out[i] = x % parts


@njit()
def partition(ids, cells, weights, good, salt, bits, out):
    """Records that are `good`, grouped by part (2^bits of them) as rows (id, cell, weight) of `out`; the ends."""
    shift = np.uint64(64 - bits)
    ends = np.zeros((1 << bits) + 1, np.int64)
    for i in range(ids.size):
        if good[i]:
            ends[_part(ids[i], salt, shift) + 1] += 1
    for p in range(1 << bits):
        ends[p + 1] += ends[p]
    place = ends[:-1].copy()
    for i in range(ids.size):
        if good[i]:
            p = _part(ids[i], salt, shift)
            at = place[p]
            out[at, 0] = ids[i]
            out[at, 1] = cells[i]
            if out.shape[1] > 2:
                out[at, 2] = weights[i]
            place[p] = at + 1
    return ends


@njit()
def compact_cells(rows, order, cells, values, most):
    """Records in `order` of (id, cell) -> one per distinct pair; ids in rows[:n, 0]. Its value is the largest weight,
    or, with `most` above 0, the sum of all but at most `most` (each is at most that, so nothing wraps)."""
    n = 0
    for j in range(order.size):
        i = order[j]
        value = rows[i, 2] if rows.shape[1] > 2 else np.int64(1)
        if n and cells[n - 1, 0] == rows[i, 0] and cells[n - 1, 1] == rows[i, 1]:
            values[n - 1] = min(values[n - 1] + value, most) if most > 0 else max(values[n - 1], value)
        else:
            cells[n, 0] = rows[i, 0]
            cells[n, 1] = rows[i, 1]
            values[n] = value
            n += 1
    return n


@njit()
def _less(rank, a, b):
    for j in range(8):
        if rank[a, j] != rank[b, j]:
            return rank[a, j] < rank[b, j]
    return a < b


@njit(inline="always")
def _keep(pairs, values, i, out, at):
    out[at, 0] = pairs[i, 0]
    out[at, 1] = pairs[i, 1]
    if out.shape[1] > 2:
        out[at, 2] = values[i]


@njit()
def bound(pairs, values, n, max_cells, state, data, ends, out):
    """Distinct pairs sorted by id -> at most `max_cells` per id, those of least rank, as rows (id, cell, weight) of
    `out`; how many were kept. An id i is the text data[ends[i] : ends[i + 1]]; without texts, i itself.

    A heap of the best so far (its root the worst of them): O(d log max_cells) for a unit with d cells."""
    size, low = 0, 0
    rank = np.empty((16, 8), np.uint32)
    heap = np.empty(max(1, min(max_cells, n)), np.int64)
    cells = pairs[:, 1].copy()
    digits, r = np.empty(20, np.uint8), np.empty(_ROWS, np.uint32)
    while low < n:
        high = low + 1
        while high < n and pairs[high, 0] == pairs[low, 0]:
            high += 1
        if high - low <= max_cells:
            for i in range(low, high):
                _keep(pairs, values, i, out, size + i - low)
            size += high - low
        else:
            if rank.shape[0] < high - low:
                rank = np.empty((2 * (high - low), 8), np.uint32)
            unit = pairs[low, 0]
            text = data[ends[unit] : ends[unit + 1]] if ends.size else digits[: _decimal(digits, 0, unit)]
            ranks(state, text, cells, low, high, r, rank)
            full = 0
            for i in range(high - low):
                if full < max_cells:
                    at = full
                    full += 1
                    while at > 0 and _less(rank, heap[(at - 1) // 2], i):
                        heap[at] = heap[(at - 1) // 2]
                        at = (at - 1) // 2
                    heap[at] = i
                elif _less(rank, i, heap[0]):
                    at = 0
                    while 2 * at + 1 < full:
                        child = 2 * at + 1
                        if child + 1 < full and _less(rank, heap[child], heap[child + 1]):
                            child += 1
                        if not _less(rank, i, heap[child]):
                            break
                        heap[at] = heap[child]
                        at = child
                    heap[at] = i
            for j in range(full):
                _keep(pairs, values, low + heap[j], out, size + j)
            size += full
        low = high
    return size


@njit()
def sort_rows(rows, id_low, id_bits, cell_bits):
    """Stable radix order of rows by (id, cell): id - id_low is below 2^id_bits, a cell below 2^cell_bits."""
    n = rows.shape[0]
    order, other = np.arange(n), np.empty(n, np.int64)
    place = np.empty(2048, np.int64)
    for column in range(1, -1, -1):
        bits = cell_bits if column == 1 else id_bits
        base = np.int64(id_low * (1 - column))
        for shift in range(0, bits, 11):
            place[:] = 0
            for i in range(n):
                place[np.int64((np.uint64(rows[i, column] - base) >> np.uint64(shift)) & np.uint64(2047))] += 1
            total = np.int64(0)
            for d in range(2048):
                count = place[d]
                place[d] = total
                total = np.int64(total + count)
            for j in range(n):
                i = order[j]
                digit = np.int64((np.uint64(rows[i, column] - base) >> np.uint64(shift)) & np.uint64(2047))
                other[place[digit]] = i
                place[digit] += 1
            order, other = other, order
    return order


@njit()
def add_runs(cells, values):
    """Sorted cells, summed where equal, in place; how many are left."""
    n = 0
    for i in range(cells.size):
        if n and cells[n - 1] == cells[i]:
            values[n - 1] += values[i]
        else:
            cells[n] = cells[i]
            values[n] = values[i]
            n += 1
    return n


def warm_up():
    one = np.ones(2, np.int64)
    out = np.empty((2, 2), np.int64)
    partition(one, one, one, np.ones(2, bool), np.uint64(0), 1, out)
    parts_of(np.zeros(1, np.uint8), one - 1, np.uint64(0), np.uint64(1), np.empty(1, np.uint16))
    order = sort_rows(out, np.int64(1), 1, 1)
    pairs, values = np.empty((2, 2), np.int64), np.empty(2, np.int64)
    n = compact_cells(out, order, pairs, values, 0)
    state = key_state(np.full(64, 48, np.uint8))
    bound(pairs, values, n, 1, state, np.zeros(1, np.uint8), np.array([0, 0, 1]), out)
    add_runs(np.ones(1, np.int64), np.ones(1, np.int64))
