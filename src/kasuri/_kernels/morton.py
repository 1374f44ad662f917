"""Bit interleaving, and general maps cell <-> tree key by table."""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def _spread(x):
    x = x & np.uint64(0x00000000FFFFFFFF)
    x = (x | (x << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    x = (x | (x << np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = (x | (x << np.uint64(2))) & np.uint64(0x3333333333333333)
    return (x | (x << np.uint64(1))) & np.uint64(0x5555555555555555)


@njit()
def interleave2(rows, cols):
    """int64 rows, cols < 2^31 -> int64 keys, row bit above col bit ([Terada2015, eq. 55]); and every bit that is set in
    any of them, which tells whether all lie in range without a second pass."""
    out = np.empty(rows.size, np.int64)
    seen = np.uint64(0)
    for i in range(rows.size):
        row, col = np.uint64(rows[i]), np.uint64(cols[i])
        seen |= row | col
        out[i] = np.int64((_spread(row) << np.uint64(1)) | _spread(col))
    return out, seen


@njit()
def cells_to_keys(cells, sizes, first, tables, bits):
    """Row-major cells -> keys. Dimension d (size `sizes[d]`) has its tables at first[d]..first[d+1]-1; table t maps
    the next `bits` low bits of the index to their place in the key, so that a key is a sum of table entries."""
    out = np.empty(cells.size, np.int64)
    mask = (1 << bits) - 1
    for i in range(cells.size):
        rest = cells[i]
        key = np.int64(0)
        for d in range(sizes.size - 1, -1, -1):
            size = sizes[d]
            if d == 0:
                index = rest
            else:
                quotient = rest // size
                index = rest - quotient * size
                rest = quotient
            for t in range(first[d], first[d + 1]):
                key += tables[t, index & mask]
                index >>= bits
        out[i] = key
    return out


@njit()
def add_bits(keys, tables, bits):
    """A number that is linear in the bits of each key, as a sum of table entries (keys -> cells, and cells -> keys
    where every size is a power of two)."""
    out = np.empty(keys.size, np.int64)
    mask = (1 << bits) - 1
    for i in range(keys.size):
        rest = keys[i]
        total = np.int64(0)
        for t in range(tables.shape[0]):
            total += tables[t, rest & mask]
            rest >>= bits
        out[i] = total
    return out


def warm_up():
    one = np.ones(1, np.int64)
    interleave2(one, one)
    table = np.zeros((1, 2), np.int64)
    ends, sizes = np.array([0, 1], np.int64), np.ones(1, np.int64)
    for _ in range(2):
        cells_to_keys(one, sizes, ends, table, 1)
        add_bits(one, table, 1)
        one.flags.writeable = False  # as cells of Counts are
