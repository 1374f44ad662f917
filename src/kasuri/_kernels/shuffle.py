"""Keyed BLAKE2b of many short texts, and the rows two sorted lists of 128-bit numbers share."""

import numpy as np

from kasuri._kernels.cached import njit

IV = np.array([
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
], np.uint64)  # fmt: skip
SIGMA = np.array([
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
], np.uint64)  # fmt: skip


@njit(inline="always")
def _mix(a, b, c, d, x, y):
    """G of RFC 7693, section 3.1."""
    a = a + b + x
    d ^= a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c = c + d
    b ^= c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + y
    d ^= a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c = c + d
    b ^= c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return a, b, c, d


@njit()
def _compress(h, m, count, last, iv, sigma):
    """F of RFC 7693, section 3.2: one block of sixteen words after `count` bytes in all."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = iv[0], iv[1], iv[2], iv[3], iv[4], iv[5], iv[6], iv[7]
    v12 ^= np.uint64(count)
    if last:
        v14 = ~v14
    for r in range(12):
        t = np.uint64(r % 10)
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[sigma[t, 0]], m[sigma[t, 1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[sigma[t, 2]], m[sigma[t, 3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[sigma[t, 4]], m[sigma[t, 5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[sigma[t, 6]], m[sigma[t, 7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[sigma[t, 8]], m[sigma[t, 9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[sigma[t, 10]], m[sigma[t, 11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[sigma[t, 12]], m[sigma[t, 13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[sigma[t, 14]], m[sigma[t, 15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15


@njit()
def key_state(key):
    """The state after the block of the 32-byte key, for digests of 16 bytes."""
    h = IV.copy()
    h[0] ^= np.uint64(0x01010000) ^ (np.uint64(32) << np.uint64(8)) ^ np.uint64(16)
    m = np.zeros(16, np.uint64)
    for i in range(32):
        m[i >> 3] |= np.uint64(key[i]) << np.uint64(8 * (i & 7))
    _compress(h, m, 128, False, IV, SIGMA)
    m[:] = 0
    return h


@njit()
def pseudonyms(state, data, ends, out):
    """BLAKE2b-128 under the key of `state` of the texts data[ends[i]:ends[i+1]], each at least one byte long.

    out[i] = the digest as two big-endian numbers: their order is that of the bytes.
    """
    h, m = np.empty(8, np.uint64), np.empty(16, np.uint64)
    for i in range(out.shape[0]):
        h[:] = state
        at, stop, count = ends[i], ends[i + 1], 128
        while True:
            size = min(128, stop - at)
            m[:] = 0
            for j in range(size):
                m[j >> 3] |= np.uint64(data[at + j]) << np.uint64(8 * (j & 7))
            at += size
            count += size
            _compress(h, m, count, at >= stop, IV, SIGMA)
            if at >= stop:
                break
        for k in range(2):
            word = np.uint64(0)
            for j in range(8):
                word = (word << np.uint64(8)) | ((h[k] >> np.uint64(8 * j)) & np.uint64(255))
            out[i, k] = word
    h[:] = 0
    m[:] = 0


@njit()
def shared(a, b, rows_a, rows_b):
    """Rows of two sorted lists (n, 2) without repeats that hold the same number; how many there are."""
    i, j, n = 0, 0, 0
    while i < a.shape[0] and j < b.shape[0]:
        if a[i, 0] == b[j, 0] and a[i, 1] == b[j, 1]:
            rows_a[n] = i
            rows_b[n] = j
            n += 1
            i += 1
            j += 1
        elif a[i, 0] < b[j, 0] or (a[i, 0] == b[j, 0] and a[i, 1] < b[j, 1]):
            i += 1
        else:
            j += 1
    return n


@njit()
def shuffle(words, order):
    """Fisher-Yates by 64-bit words: uniform on all orders; words drawn, or -1 where `words` ran out.

    A word that falls in the incomplete last multiple of i is thrown away, so that no place is favoured.
    """
    used = 0
    for i in range(order.size, 1, -1):
        limit = ~np.uint64(0) - (~np.uint64(0) % np.uint64(i) + np.uint64(1)) % np.uint64(i)
        while True:
            if used == words.size:
                return -1
            word = words[used]
            used += 1
            if word <= limit:
                break
        j = np.int64(word % np.uint64(i))
        order[i - 1], order[j] = order[j], order[i - 1]
    return used


def warm_up():
    state = key_state(np.zeros(32, np.uint8))
    out = np.empty((2, 2), np.uint64)
    pseudonyms(state, np.frombuffer(b"ab", np.uint8), np.array([0, 1, 2], np.int64), out)
    rows = np.empty(2, np.int64)
    shared(out, out, rows, rows.copy())
    shuffle(np.arange(8, dtype=np.uint64), np.arange(3, dtype=np.int64))
