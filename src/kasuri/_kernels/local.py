"""Local differential privacy in bulk: hashes, responses and EM passes (see kasuri.local)."""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def em_pass(rows, theta, gain, out):
    """One expectation pass over packed whole reports; out[i] = sum over reports z with bit i of 1 / m(z), where
    m(z) = 1 + gain * sum_i theta_i z_i is the likelihood of z up to a factor without theta.
    Returns (sum of 1/m, sum of log m). Tables of 256 partial sums per byte make both products one look-up a byte."""
    n, width = rows.shape
    tables = np.zeros((width, 256))
    for k in range(width):
        for byte in range(1, 256):
            low = byte & -byte
            bit = 0
            while (low >> bit) != 1:
                bit += 1
            i = 8 * k + bit
            tables[k, byte] = tables[k, byte ^ low] + (theta[i] if i < theta.size else 0.0)
    sums = np.zeros((width, 256))
    total = 0.0
    logs = 0.0
    product = 1.0
    for r in range(n):
        m = 0.0
        for k in range(width):
            m += tables[k, rows[r, k]]
        m = 1.0 + gain * m
        weight = 1.0 / m
        total += weight
        product *= m
        if product > 1e200 or product < 1e-200:
            logs += np.log(product)
            product = 1.0
        for k in range(width):
            sums[k, rows[r, k]] += weight
    logs += np.log(product)
    out[:] = 0.0
    for k in range(width):
        for byte in range(1, 256):
            for bit in range(8):
                if (byte >> bit) & 1 and 8 * k + bit < out.size:
                    out[8 * k + bit] += sums[k, byte]
    return total, logs


@njit(inline="always")
def mix(x):
    """murmur3's 32-bit finaliser: a bijection of the 32-bit words that scatters them."""
    x = np.uint32(x)
    x ^= x >> np.uint32(16)
    x = np.uint32(x * np.uint32(0x85EBCA6B))
    x ^= x >> np.uint32(13)
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    x ^= x >> np.uint32(16)
    return x


@njit(inline="always")
def bucket(seed, category, buckets):
    """Hash number `seed` of a category: 0 .. buckets - 1."""
    scattered = mix(np.uint32(np.uint32(category) * np.uint32(0x9E3779B9)) + np.uint32(1))
    return np.int64((np.uint64(mix(np.uint32(seed) ^ scattered)) * np.uint64(buckets)) >> np.uint64(32))


@njit()
def buckets_of(seeds, category, buckets, out):
    """out[i] = bucket(seeds[i], category)."""
    for i in range(seeds.size):
        out[i] = bucket(seeds[i], category, buckets)


@njit()
def categories_of(seed, size, buckets, out):
    """out[x] = bucket(seed, x) for the categories 0 .. size - 1."""
    for x in range(size):
        out[x] = bucket(seed, x, buckets)


@njit()
def hash_values(seeds, values, buckets, out):
    """out[i] = bucket(seeds[i], values[i])."""
    for i in range(seeds.size):
        out[i] = bucket(seeds[i], values[i], buckets)


@njit()
def hash_counts(seeds, found, size, buckets, out):
    """out[x] = number of reports (seed, y) with bucket(seed, x) = y."""
    scattered = np.empty(size, np.uint32)
    for x in range(size):
        scattered[x] = mix(np.uint32(np.uint32(x) * np.uint32(0x9E3779B9)) + np.uint32(1))
    g = np.uint64(buckets)
    for i in range(seeds.size):
        seed, y = np.uint32(seeds[i]), np.uint64(found[i])
        for x in range(size):
            out[x] += np.int64(((np.uint64(mix(seed ^ scattered[x])) * g) >> np.uint64(32)) == y)


@njit()
def hash_supports(seeds, found, size, buckets, rows):
    """Packed rows with bit x set where bucket(seed, x) = y."""
    for i in range(seeds.size):
        for x in range(size):
            if bucket(seeds[i], x, buckets) == found[i]:
                rows[i, x >> 3] |= np.uint8(1 << (x & 7))


@njit()
def k_ary(words, values, size, keep, other, bits, out):
    """Randomised response over 0 .. size - 1: of the 2^bits words, the first `keep` keep the value and `other` each
    go to every further category in rising order (keep + (size - 1) other = 2^bits)."""
    shift = 32 - bits
    for i in range(values.size):
        u = np.int64(words[i]) >> shift
        v = values[i]
        if u < keep:
            out[i] = v
        else:
            y = (u - keep) // other
            out[i] = y + (1 if y >= v else 0)


@njit()
def parity(x):
    x = np.uint32(x)
    x ^= x >> np.uint32(16)
    x ^= x >> np.uint32(8)
    x ^= x >> np.uint32(4)
    x ^= x >> np.uint32(2)
    x ^= x >> np.uint32(1)
    return np.int64(x & np.uint32(1))


@njit()
def hadamard_reports(words, values, keep, order, bits, out):
    """Report 2 j + b: j of `order` bits uniform, b = parity of j and (value + 1), flipped unless word < keep."""
    shift = 32 - bits
    for i in range(values.size):
        j = np.int64(words[2 * i]) >> (32 - order)
        kept = (np.int64(words[2 * i + 1]) >> shift) < keep
        out[i] = 2 * j + (parity(j & (values[i] + 1)) ^ (0 if kept else 1))


@njit()
def walsh(values):
    """Fast Walsh-Hadamard transform in place, natural order: out[x] = sum_j (-1)^parity(x & j) values[j]."""
    h = 1
    while h < values.size:
        for start in range(0, values.size, 2 * h):
            for i in range(start, start + h):
                a, b = values[i], values[i + h]
                values[i], values[i + h] = a + b, a - b
        h *= 2


@njit()
def hadamard_supports(reports, size, rows):
    """Packed rows with bit x set where the report 2 j + b agrees with category x: parity(j & (x + 1)) = b."""
    for i in range(reports.size):
        j, b = reports[i] >> 1, reports[i] & 1
        for x in range(size):
            if parity(j & (x + 1)) == b:
                rows[i, x >> 3] |= np.uint8(1 << (x & 7))


def warm_up():
    rows = np.zeros((2, 1), np.uint8)
    values, out = np.zeros(2, np.int64), np.zeros(2, np.int64)
    seeds = np.zeros(2, np.uint32)
    em_pass(rows, np.full(2, 0.5), 1.0, np.zeros(2))
    buckets_of(seeds, 0, 2, out)
    categories_of(0, 2, 2, out)
    hash_values(seeds, values, 2, out)
    hash_counts(seeds, values, 2, 2, out)
    hash_supports(seeds, values, 2, 2, rows)
    k_ary(seeds, values, 2, 1, 1, 32, out)
    hadamard_reports(np.zeros(4, np.uint32), values, 1, 2, 32, out)
    walsh(np.zeros(4, np.int64))
    hadamard_supports(values, 2, rows)
