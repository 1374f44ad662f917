"""The count tree, densely and slowly: every node has a noisy count, the output reads only what was visited."""

from itertools import combinations

import numpy as np


def water(y, total):
    """max(y - t, 0) with sum `total`, trying every number of positive entries."""
    ranked = sorted(y, reverse=True)
    t = max((sum(ranked[:r]) - total) / r for r in range(1, len(ranked) + 1))
    return [max(v - t, 0.0) for v in y]


def visit(y, children, top):
    """y[level][node]; children(level, node) -> nodes of the next level; top: nodes of level 0 -> {(level, node): x}."""
    x = {
        (0, n): v for n, v in zip(top, water([y[0][n] for n in top], max(sum(y[0][n] for n in top), 0.0)), strict=True)
    }
    for level in range(len(y) - 1):
        for (at, node), value in list(x.items()):
            if at == level and value > 0:
                below = children(level, node)
                for child, part in zip(below, water([y[level + 1][c] for c in below], value), strict=True):
                    x[(level + 1, child)] = part
    return x


def least_squares(nodes, parent, y, variance):
    """Generalised least squares of all drawn counts, by the normal equations: unknowns are the drawn nodes without
    drawn children; every other node is the sum of its drawn children. Returns {node: estimate}."""
    leaves = [n for n in nodes if n not in set(parent.values())]
    rows = []
    for n in nodes:
        row = [1.0 if _under(leaf, n, parent) else 0.0 for leaf in leaves]
        rows.append(np.array(row) / variance[n] ** 0.5)
    right = np.array([y[n] / variance[n] ** 0.5 for n in nodes])
    solution = np.linalg.lstsq(np.array(rows), right, rcond=None)[0]
    return {n: sum(s for leaf, s in zip(leaves, solution, strict=True) if _under(leaf, n, parent)) for n in nodes}


def _under(leaf, node, parent):
    while leaf is not None:
        if leaf == node:
            return True
        leaf = parent.get(leaf)
    return False


def weighted_simplex(z, v, total):
    """argmin sum (x - z)^2 / v over {x >= 0, sum x = total}, trying every set of positive entries."""
    best, found = np.inf, None
    for size in range(1, len(z) + 1):
        for chosen in combinations(range(len(z)), size):
            theta = (sum(z[i] for i in chosen) - total) / sum(v[i] for i in chosen)
            x = np.zeros(len(z))
            x[list(chosen)] = [z[i] - theta * v[i] for i in chosen]
            if x.min() >= -1e-12:
                cost = sum((x[i] - z[i]) ** 2 / v[i] for i in range(len(z)))
                if cost < best - 1e-12:
                    best, found = cost, x
    return found
