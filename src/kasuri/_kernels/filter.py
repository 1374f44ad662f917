"""The exact posterior of splits along a tree: one sweep up, one down (docs/proofs/series.md)."""

import numpy as np

from kasuri._kernels.cached import njit


@njit(error_model="numpy")
def sweep_up(first, m, V, z, v, y, R, out_z, out_v):
    """What each node's subtree says of it: z and v of its children (predicted m, split variance V) and its own number y
    of variance R. A node without children has its own number alone.

    With k = V/(V+v), A = k v, h = m/M, c = z - m + h M:
    J = sum h^2/(V+v) + (sum k h)^2/sum A, b = sum h c/(V+v) + (sum k h)(sum k c)/sum A.
    """
    for i in range(y.size):
        start, end = first[i], first[i + 1]
        if start == end:
            out_z[i], out_v[i] = y[i], R
            continue
        M = 0.0
        for j in range(start, end):
            M += m[j]
        J, b, kh, kc, A = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(start, end):
            h = m[j] / M if M > 0 else 1.0 / (end - start)
            t = V[j] + v[j]
            k = V[j] / t
            c = z[j] - m[j] + h * M
            J += h * h / t
            b += h * c / t
            kh += k * h
            kc += k * c
            A += k * v[j]
        J += kh * kh / A
        b += kh * kc / A
        out_v[i] = 1.0 / (J + 1.0 / R)
        out_z[i] = out_v[i] * (b + y[i] / R)


@njit(error_model="numpy")
def sweep_down(first, m, V, z, v, above_x, above_f, x, f):
    """x and f of the children from those of their parents: w = c - h x_p,
    x = m + h (x_p - M) + k w - (A/sum A) sum k w;  g = h (1 - k) + (A/sum A) sum k h,  f = A - A^2/sum A + g^2 f_p.
    """
    for i in range(above_x.size):
        start, end = first[i], first[i + 1]
        if start == end:
            continue
        M = 0.0
        for j in range(start, end):
            M += m[j]
        kw, kh, A = 0.0, 0.0, 0.0
        for j in range(start, end):
            h = m[j] / M if M > 0 else 1.0 / (end - start)
            k = V[j] / (V[j] + v[j])
            kw += k * (z[j] - m[j] + h * M - h * above_x[i])
            kh += k * h
            A += k * v[j]
        for j in range(start, end):
            h = m[j] / M if M > 0 else 1.0 / (end - start)
            k = V[j] / (V[j] + v[j])
            own = k * v[j]
            w = z[j] - m[j] + h * M - h * above_x[i]
            x[j] = m[j] + h * (above_x[i] - M) + k * w - own / A * kw
            g = h * (1.0 - k) + own / A * kh
            f[j] = own - own * own / A + g * g * above_f[i]


def warm_up():
    one, first = np.ones(1), np.array([0, 1], np.int64)
    sweep_up(first, one, one, one, one, one, 1.0, one.copy(), one.copy())
    sweep_down(first, one, one, one, one, one, one, one.copy(), one.copy())
