"""Exact laws on tiny trees, in rationals: `a` = exp(-1/scale) is treated as a free rational number."""

from collections import defaultdict
from fractions import Fraction

HALF = Fraction(1, 2)


def pmf(a: Fraction, x: int) -> Fraction:
    """Discrete Laplace."""
    return (1 - a) / (1 + a) * a ** abs(x)


def tail(a: Fraction, x: int) -> Fraction:
    """P(N >= x)."""
    return a**x / (1 + a) if x >= 1 else 1 - tail(a, 1 - x)


def split(D: int, S: int, a: Fraction) -> dict[int, Fraction]:
    """Law of D+ at a measured node of true difference D and refined sum S > 0: noise, parity coin, clamp."""
    law: dict[int, Fraction] = defaultdict(Fraction)
    reach = S + abs(D) + 2
    for n in range(-reach, reach + 1):
        weight = tail(a, reach) if abs(n) == reach else pmf(a, n)
        d = D + n
        for coin in (-1, 1) if (d - S) % 2 else (0,):
            law[max(-S, min(S, d + coin))] += weight * (HALF if coin else 1)
    return dict(law)


def plain(true: tuple[int, ...], possible: tuple[bool, ...], S: int, a: Fraction) -> dict[tuple[int, ...], Fraction]:
    """Law of the refined leaves below a node of refined sum S, descending every node."""
    if len(true) == 1:
        return {(S,): Fraction(1)}
    half = len(true) // 2
    left, right = (true[:half], possible[:half]), (true[half:], possible[half:])
    zero = (0,) * half
    if S == 0:
        return {zero + zero: Fraction(1)}
    if not any(right[1]):
        return {low + zero: p for low, p in plain(*left, S, a).items()}
    if not any(left[1]):
        return {zero + high: p for high, p in plain(*right, S, a).items()}
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for d, weight in split(sum(left[0]) - sum(right[0]), S, a).items():
        for low, p in plain(*left, (S + d) // 2, a).items():
            for high, q in plain(*right, (S - d) // 2, a).items():
                law[low + high] += weight * p * q
    return dict(law)


def jump(height: int, S: int, a: Fraction) -> dict[tuple[int, ...], Fraction]:
    """Law of the leaves of an empty subtree by level jumps, written from the description: one geometric number G,
    P(G = g) = (1-a) a^g, passes G div (S-1) levels and splits by G mod (S-1)."""
    zero = (0,) * (1 << height)
    if S == 0:
        return {zero: Fraction(1)}
    if height == 0:
        return {(S,): Fraction(1)}
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)

    def place(passes: int, inner: dict[tuple[int, ...], Fraction], weight: Fraction) -> None:
        width = len(next(iter(inner)))
        for at in range(1 << passes):
            before, after = (0,) * (at * width), (0,) * (((1 << passes) - 1 - at) * width)
            for leaves, p in inner.items():
                law[before + leaves + after] += weight * p / (1 << passes)

    if S == 1:
        place(height, {(1,): Fraction(1)}, Fraction(1))
        return dict(law)
    for g in range(height * (S - 1)):
        passes, rest = divmod(g, S - 1)
        d = 2 * (rest // 2) + 1 if S % 2 else 2 * ((rest + 1) // 2)
        inner: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for sign in (-1, 1):
            for low, p in jump(height - passes - 1, (S + sign * d) // 2, a).items():
                for high, q in jump(height - passes - 1, (S - sign * d) // 2, a).items():
                    inner[low + high] += HALF * p * q
        place(passes, dict(inner), (1 - a) * a**g)
    place(height, {(S,): Fraction(1)}, a ** (height * (S - 1)))
    return dict(law)


def project(estimates: list[Fraction], total: int) -> list[int]:
    """Largest-remainder integers of the projection on {x >= 0, sum x = total}, by trying every active set size."""
    ranked = sorted(estimates, reverse=True)
    theta = max((sum(ranked[:r]) - total) / r for r in range(1, len(ranked) + 1))
    exact = [max(e - theta, Fraction(0)) for e in estimates]
    floors = [int(x) for x in exact]
    left = total - sum(floors)
    by_rest = sorted(range(len(exact)), key=lambda i: (-(exact[i] - floors[i]), exact[i] == 0, i))
    for i in by_rest[:left]:
        floors[i] += 1
    return floors
