"""Slow twins of the projections: sorted, in exact rationals, as [Matsumoto2025] prints them."""

from fractions import Fraction


def threshold(y, total):
    """theta of eq. 8-10, by sorting."""
    ranked = sorted(y, reverse=True)
    rho = max(j for j in range(1, len(y) + 1) if ranked[j - 1] - (sum(ranked[:j]) - total) / Fraction(j) > 0)
    return (sum(ranked[:rho]) - total) / Fraction(rho)


def simplex(y, total):
    theta = threshold(y, total)
    return [max(value - theta, Fraction(0)) for value in y]


def negative_l2(y, total, gamma):
    return simplex([value / gamma for value in y], total)


def iterate(y, total, gamma, steps):
    """Eq. 12-13: linearise -lambda |b|^2 around the last b, solve, repeat; lambda = 1 - gamma. Floating point."""
    lam = 1 - float(gamma)
    last = simplex([Fraction(value) for value in y], Fraction(total))
    for _ in range(steps):
        last = simplex([Fraction(float(value) + lam * float(b)) for value, b in zip(y, last, strict=True)], total)
    return [float(value) for value in last]


def soft(y, t, signed):
    return [y_i - t if y_i > t else y_i + t if signed and y_i < -t else Fraction(0) for y_i in map(Fraction, y)]


def lasso(y, total, t, signed, adjust):
    """Eq. 4 and 5, then the total; None where nothing is left to carry it."""
    s = soft(y, t, signed)
    if adjust == "scale":
        return [x * total / sum(s) for x in s] if sum(s) > 0 else None
    live = [i for i, x in enumerate(s) if x != 0]
    if not live:
        return None
    out = [Fraction(0)] * len(s)
    if signed:
        for i in live:
            out[i] = s[i] + (total - sum(s)) / len(live)
    else:
        for i, x in zip(live, simplex([s[i] for i in live], total), strict=True):
            out[i] = x
    return out


def whole(y, exact, total):
    """Floors and largest remainders; ties to the larger noisy value, then to the lower key. Zeros stay."""
    out = [x.numerator // x.denominator for x in exact]
    order = sorted(range(len(y)), key=lambda i: (-(exact[i] - out[i]), -y[i], i))
    for i in order[: total - sum(out)]:
        out[i] += 1
    return out
