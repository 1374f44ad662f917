"""Least squares on a drawn tree by the normal equations, densely and slowly."""

import numpy as np


def covariance(nodes, parent, y, variance):
    """Estimates and covariance matrix of the drawn nodes without drawn children, and which nodes those are."""
    ends = [n for n in nodes if n not in set(parent.values())]
    rows = np.array([[1.0 if under(end, n, parent) else 0.0 for end in ends] for n in nodes])
    weights = np.diag([1 / variance[n] for n in nodes])
    information = rows.T @ weights @ rows
    inverse = np.linalg.inv(information)
    return inverse @ rows.T @ weights @ np.array([y[n] for n in nodes]), inverse, ends


def under(node, above, parent):
    while node is not None:
        if node == above:
            return True
        node = parent.get(node)
    return False


def halves(order, depth, prefix, inside):
    """Share of the area `inside` (truth per leaf) in a node, every node shared in halves by its possible children."""
    possible = order.possible_leaves()
    if depth == order.depth:
        return float(inside[prefix])
    stride = order.stride(depth + 1)
    below = [2 * prefix + side for side in (0, 1)]
    below = [child for child in below if possible[child * stride : (child + 1) * stride].any()]
    return sum(halves(order, depth + 1, child, inside) for child in below) / len(below)


def window(x, covariance, factors, small):
    """Estimate, variance and chances of the last of a path of nodes, from their estimates and the covariance of these:
    the best estimate of one count that all nodes of a window hold, by the normal equations. A node extends the window
    or begins one, whichever has the lower upper limit."""
    sd = np.sqrt(np.diag(covariance))
    start, chances, seen = 0, 0, 0
    for j in range(len(x)):
        if j:
            limits = [_limit(*_pooled(x, covariance, i, j), factors[n]) for i, n in ((start, chances), (j, seen))]
            if limits[1] < limits[0]:
                start, chances = j, seen
        seen += int(x[j] < small * sd[j])
    return *_pooled(x, covariance, start, len(x) - 1), chances


def _pooled(x, covariance, start, end):
    inverse = np.linalg.inv(covariance[start : end + 1, start : end + 1])
    return inverse.sum(axis=0) @ x[start : end + 1] / inverse.sum(), 1 / inverse.sum()


def _limit(x, variance, factor):
    half = factor * np.sqrt(variance)
    return max(x + half, half / 2)


def weigh(seen, path, sizes):
    """Tracked sum and log odds of a child of the last node of `path`: the difference `seen` in noise scales."""
    held, odds = path[-1]
    added = []
    for t in sizes:
        if held <= t:
            added.append(min(abs(seen), abs(seen + held)) - abs(seen - t))
        else:
            least = 2 * t - held - 0.5
            others = min(_rounded(seen + held), _rounded(seen - min(0.0, least)))
            added.append(others - _rounded(seen - least))
    return (held + np.clip(seen, -held, held)) / 2, odds + np.array(added)


def _rounded(u):
    return np.hypot(u, np.sqrt(0.74)) - 0.86


def largest(odds, sizes, error):
    """The largest size whose odds reach what it is given up at, between two sizes by a straight line."""
    over = odds - error * np.minimum(1.5, np.maximum(0.15 + 0.58 * sizes, 1.2 * sizes - 0.71))
    if over[-1] >= 0:
        return np.inf
    if (over < 0).all():
        return 0.0
    k = np.flatnonzero(over >= 0)[-1]
    return np.interp(0.0, [over[k + 1], over[k]], [sizes[k + 1], sizes[k]])
