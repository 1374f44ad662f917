"""Parts joined to a drawn tree, slowly: every drawn node and every group is one row of a dense least-squares problem
over the units, the covariance a dense inverse."""

import numpy as np


def units_of(levels):
    """(level, index) of every drawn node without drawn children, level by level."""
    return [
        (at, i) for at, level in enumerate(levels) for i in range(level.y.size) if level.first[i] == level.first[i + 1]
    ]


def below(levels, units):
    """One row per drawn node: 1 for every unit that it holds."""
    place = {unit: n for n, unit in enumerate(units)}
    rows = [np.zeros((level.y.size, len(units))) for level in levels]
    for at in range(len(levels) - 1, -1, -1):
        for i in range(levels[at].y.size):
            if (at, i) in place:
                rows[at][i, place[at, i]] = 1
            else:
                rows[at][i] = rows[at + 1][levels[at].first[i] : levels[at].first[i + 1]].sum(axis=0)
    return np.concatenate(rows)


def fractions(partition, tree, visited, units, possible):
    """B, leaf by leaf: the share of every unit's possible leaves in each group."""
    out = np.zeros((partition.groups, len(units)))
    for n, (at, i) in enumerate(units):
        stride = tree.stride(visited.cuts[at])
        prefix = int(visited.levels[at].prefix[i])
        leaves = np.arange(prefix * stride, (prefix + 1) * stride)
        leaves = leaves[possible[leaves]]
        for group in partition.of_keys(tree, leaves):
            if group >= 0:
                out[group, n] += 1 / leaves.size
    return out


def least_squares(rows, numbers, variances):
    """The weighted estimate and its covariance."""
    weight = rows / variances[:, None]
    covariance = np.linalg.inv(weight.T @ rows)
    return covariance @ (weight.T @ numbers), covariance
