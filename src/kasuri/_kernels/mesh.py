"""Mesh codes digit by digit, and coordinates to grid cells.

A level is described by its steps from the leaf up: `sides[t]` cells of step t per cell of the next, and `forms[t]`, how
the step is written: 0 two digits (row, col), 1 one digit 1..4, 2 two even digits and a 5 (the 2 km mesh).
"""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def encode(rows, cols, sides, forms, out):
    for i in range(rows.size):
        row, col = rows[i], cols[i]
        code, scale = np.int64(0), np.int64(1)
        for t in range(sides.size):
            side = sides[t]
            r, c = row % side, col % side
            row //= side
            col //= side
            if forms[t] == 1:
                code += (2 * r + c + 1) * scale
                scale *= 10
            elif forms[t] == 0:
                code += (10 * r + c) * scale
                scale *= 100
            else:
                code += (200 * r + 20 * c + 5) * scale
                scale *= 1000
        out[i] = code + (100 * row + col) * scale


@njit()
def decode(codes, digits, sides, forms, rows, cols, good):
    low, high = np.int64(10) ** (digits - 1), np.int64(10) ** digits
    for i in range(codes.size):
        rest = codes[i]
        ok = low <= rest < high
        row, col, step = np.int64(0), np.int64(0), np.int64(1)
        for t in range(sides.size):
            side = sides[t]
            if forms[t] == 1:
                digit = rest % 10 - 1
                rest //= 10
                ok &= 0 <= digit < 4
                r, c = digit // 2, digit % 2
            else:
                if forms[t] == 2:
                    ok &= rest % 10 == 5
                    rest //= 10
                r, c = rest // 10 % 10, rest % 10
                rest //= 100
                if forms[t] == 2:
                    ok &= r % 2 == 0 and c % 2 == 0
                    r //= 2
                    c //= 2
                ok &= r < side and c < side
            row += r * step
            col += c * step
            step *= side
        good[i] = ok
        rows[i] = row + rest // 100 * step if ok else 0
        cols[i] = col + rest % 100 * step if ok else 0


@njit()
def locate(lats, lons, per, guard, rows, cols, good):
    """Degrees -> (row, col). A point within `guard` cells below an edge belongs to the cell above it: the double
    nearest to a corner's decimal stands for the corner."""
    side = 100 * per
    for i in range(lats.size):
        row = np.floor(lats[i] * 1.5 * per + guard)
        col = np.floor((lons[i] - 100.0) * per + guard)
        ok = 0 <= row < side and 0 <= col < side  # false for NaN
        good[i] = ok
        rows[i] = np.int64(row) if ok else 0
        cols[i] = np.int64(col) if ok else 0


def warm_up():
    one, two = np.ones(1, np.int64), np.zeros(1, np.int64)
    good = np.ones(1, bool)
    encode(one, one, one, one, two)
    at = np.ones(1)
    for _ in range(2):
        decode(two, 4, one, one, one.copy(), one.copy(), good)
        locate(at, at, 1, 1e-7, one.copy(), one.copy(), good)
        two.flags.writeable = at.flags.writeable = False  # as columns of files are
