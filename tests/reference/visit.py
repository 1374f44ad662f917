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


def replay(measured, tree, slacks):
    """The visited tree from what a release published, by its rules alone: {drawn nodes of a cut} must be the children
    of the nodes kept above. Returns [(prefix, y, x, first)] from the top."""
    cuts = sorted(measured.scale)
    levels, parents, totals, above = [], [0], None, []
    for i, cut in enumerate(cuts):
        own = measured.level == cut
        prefix, y = measured.prefix[own], measured.value[own]
        children, first = tree.children(np.array(parents, dtype=np.int64), cuts[i - 1] if i else 0, cut)
        assert np.array_equal(children, prefix), "what was drawn does not follow from what was published"
        totals = [max(float(y.sum()), 0.0)] if totals is None else totals
        x, kept = np.zeros(y.size), []
        for g, total in enumerate(totals):
            part = slice(first[g], first[g + 1])
            t = np.inf
            if total > 0 and first[g] < first[g + 1]:
                x[part] = water(y[part].tolist(), total)
                t = (y[part] - x[part])[x[part] > 0][0]
            limit = -np.inf if slacks[i] == np.inf else t - slacks[i] * float(measured.scale[cut])
            kept += [j for j in range(first[g], first[g + 1]) if y[j] > limit]
        if levels:
            sizes = np.zeros(levels[-1][0].size, dtype=np.int64)
            sizes[above] = np.diff(first)
            levels[-1] = (*levels[-1][:3], np.concatenate(([0], np.cumsum(sizes))))
        levels.append((prefix, y, x, np.zeros(y.size + 1, dtype=np.int64)))
        above, parents, totals = kept, prefix[kept].tolist(), x[kept].tolist()
    return levels
