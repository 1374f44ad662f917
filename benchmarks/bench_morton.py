"""Morton codes of 10^7 points against NumPy bit operations.

python3 run.py bench morton
"""

from __future__ import annotations

import numpy as np
from clock import best, line

from kasuri.meshcode import morton


def numpy_morton(row: np.ndarray, col: np.ndarray) -> np.ndarray:
    def spread(x):
        x = x & np.uint64(0x00000000FFFFFFFF)
        for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                            (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
            x = (x | (x << np.uint64(shift))) & np.uint64(mask)
        return x

    return (spread(row) << np.uint64(1)) | spread(col)


def main() -> None:
    rng = np.random.default_rng(0)
    n = 10_000_000
    row, col = rng.integers(0, 1 << 15, n), rng.integers(0, 1 << 15, n)
    assert np.array_equal(morton(row, col), numpy_morton(row.view(np.uint64), col.view(np.uint64)).view(np.int64))
    chunk = 1 << 14  # both in the cache: memory traffic would hide the arithmetic

    def ours() -> None:
        for start in range(0, n, chunk):
            morton(row[start : start + chunk], col[start : start + chunk])

    def numpy() -> None:
        numpy_morton(row.view(np.uint64), col.view(np.uint64))

    def numpy_chunked() -> None:
        for start in range(0, n, chunk):
            numpy_morton(row[start : start + chunk].view(np.uint64), col[start : start + chunk].view(np.uint64))

    mine, whole, pieces = best(ours), best(numpy), best(numpy_chunked)
    each = f"{whole / n * 1e9:.1f} / {mine / n * 1e9:.2f} ns"
    line(f"NumPy on whole arrays / kasuri ({each} per point)", f"{whole / mine:.1f}", "(>= 18)")
    line(f"NumPy in cache-sized pieces / kasuri ({pieces / n * 1e9:.1f} ns)", f"{pieces / mine:.1f}")


if __name__ == "__main__":
    main()
